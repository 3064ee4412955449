// data_file.c — all lines of a source, tokenised into one file, which batches are read from.
//
//     | header: what it was made of, counts | length, tokens ... | length, tokens ... |
//
// The file's name is a hash of the source's bytes, the tokenizer's tokens, the template and the
// settings, so a change of any of them makes another one. It appears whole or not at all. Samples
// are read when a batch needs them: memory holds where each begins, and no more.
#include "train/data.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/str.h"
#include "base/temporary.h"
#include "memory/account.h"

enum { CHUNK = 64 << 10, MOST_LINE = 64 << 20, OUT_BYTES = 256 << 10 };
#define MAGIC "RNDATA1"

typedef struct writing {
    const rn_train_data_options *options;
    const char *source;
    rn_data_maker maker;
    rn_data_header header;
    rn_buffer pending; // of the file's end
    int fd;
    char path[PATH_MAX];
    uint64_t line, offset; // of the source
} writing;

// ---- the key ------------------------------------------------------------------------------------

static rn_status hash_source(const char *path, rn_sha256 *hash) {
    int fd = -1;
    uint64_t bytes = 0;
    char chunk[CHUNK];
    RN_TRY(rn_file_open(path, &fd, &bytes));
    rn_status s = RN_OK;
    for (uint64_t at = 0; s == RN_OK && at < bytes; at += CHUNK) {
        size_t part = (size_t)rn_min_u64(CHUNK, bytes - at);
        s = rn_file_read_at(fd, path, at, chunk, part);
        if (s == RN_OK) rn_sha256_add(hash, chunk, part);
    }
    close(fd);
    rn_sha256_add(hash, &bytes, sizeof bytes);
    return s;
}

static bool marks_answers(rn_str source) {
    static const rn_str word = {"endgeneration", sizeof "endgeneration" - 1};
    for (size_t at = 0; at + word.bytes <= source.bytes; at++)
        if (memcmp(source.data + at, word.data, word.bytes) == 0) return true;
    return false;
}

static rn_status find_key(const char *path, const rn_train_data_options *o, uint8_t key[32]) {
    const rn_tokenizer_info *info = rn_tokenizer_get_info(o->tokenizer);
    uint64_t settings[] = {o->tokens, o->too_long,      info->vocab_size, info->begin,
                           info->end, info->adds_begin, info->adds_end};
    rn_sha256 hash;
    rn_sha256_begin(&hash);
    rn_sha256_add(&hash, MAGIC, sizeof MAGIC);
    rn_sha256_add(&hash, settings, sizeof settings);
    for (uint32_t id = 0; id < info->vocab_size; id++) {
        rn_str text = rn_tokenizer_bytes(o->tokenizer, id, true);
        uint64_t bytes = text.bytes;
        rn_sha256_add(&hash, &bytes, sizeof bytes);
        if (bytes) rn_sha256_add(&hash, text.data, text.bytes);
    }
    if (o->chat_template.bytes) rn_sha256_add(&hash, o->chat_template.data, o->chat_template.bytes);
    if (marks_answers(o->chat_template)) rn_sha256_add(&hash, "marks", 5); // earlier: not heeded
    RN_TRY(hash_source(path, &hash));
    rn_sha256_end(&hash, key);
    return RN_OK;
}

static bool is_kept(const rn_train_data_options *o) {
    return !o->cache || o->cache[0];
}

// "<source>.<16 digits>.tokens", there or in the cache's folder; among the system's temporary files
// where it is not kept.
static rn_status name_file(const char *source, const rn_train_data_options *o,
                           const uint8_t key[32], char out[PATH_MAX]) {
    char digits[2 * RN_SHA256_BYTES + 1];
    const char *slash = strrchr(source, '/'), *name = o->cache && slash ? slash + 1 : source;
    const char *temporary = getenv("TMPDIR"), *folder = o->cache;
    if (!is_kept(o)) folder = temporary && temporary[0] ? temporary : "/tmp";
    rn_sha256_text(key, digits);
    int bytes = snprintf(out, PATH_MAX, "%s%s%s.%.16s.tokens", folder ? folder : "",
                         folder ? "/" : "", name, digits);
    if (bytes > 0 && bytes < PATH_MAX - RN_TEMPORARY_SUFFIX_BYTES) return RN_OK;
    return rn_fail(RN_INVALID, "the path '%.60s...' is too long", source);
}

// ---- writing ------------------------------------------------------------------------------------

static rn_status flush(writing *w) {
    RN_TRY(
        rn_file_write_at(w->fd, w->path, w->header.file_bytes, w->pending.data, w->pending.bytes));
    w->header.file_bytes += w->pending.bytes;
    w->pending.bytes = 0;
    return RN_OK;
}

static rn_status put_sample(writing *w, const uint32_t *ids, size_t count) {
    uint32_t length = (uint32_t)count;
    uint64_t targets = 0;
    for (size_t i = 1; i < count; i++) // nobody predicts the first
        targets += (ids[i] & RN_DATA_LEARNED) != 0;
    if (targets == 0) {
        w->header.masked++;
        return RN_OK;
    }
    w->header.samples++;
    w->header.tokens += count;
    w->header.targets += targets;
    RN_TRY(rn_buffer_append(&w->pending, &length, sizeof length));
    for (size_t at = 0; at < count;) {
        size_t part = rn_min_u64(count - at, CHUNK / sizeof *ids);
        RN_TRY(rn_buffer_append(&w->pending, ids + at, part * sizeof *ids));
        at += part;
        if (w->pending.bytes > OUT_BYTES - CHUNK - 64) RN_TRY(flush(w));
    }
    return RN_OK;
}

static rn_status put_tokens(writing *w, const rn_tokens *t) {
    size_t most = w->options->tokens, count = t->count;
    w->header.longest = rn_max_u64(w->header.longest, count);
    if (count <= most) return put_sample(w, t->ids, count);
    switch (w->options->too_long) {
    case RN_LONG_TRUNCATE:
        w->header.truncated++;
        return put_sample(w, t->ids, most);
    case RN_LONG_DROP:
        w->header.dropped++;
        return RN_OK;
    case RN_LONG_SPLIT:
        w->header.split++;
        for (size_t at = 0; at < count; at += most)
            RN_TRY(put_sample(w, t->ids + at, rn_min_u64(most, count - at)));
        return RN_OK;
    default:
        return rn_hint(
            rn_fail(RN_INVALID, "the sample has %zu tokens, a sequence %zu", count, most),
            "say what becomes of long samples: truncate, drop or split");
    }
}

static rn_status put_line(writing *w, rn_str text) {
    rn_tokens tokens = {0};
    size_t at = 0;
    while (at < text.bytes && strchr(" \t\r", text.data[at]))
        at++;
    if (at == text.bytes) return RN_OK; // an empty line
    rn_status s = rn_data_make(&w->maker, text, &tokens);
    if (s == RN_OK) s = put_tokens(w, &tokens);
    rn_tokens_free(&tokens);
    rn_arena_free_all(&w->maker.memory);
    rn_arena_init(&w->maker.memory, RN_HOST_OTHER, 0);
    if (s == RN_OK) return RN_OK;
    rn_error_info error = *rn_last_error();
    s = rn_fail(s, "line %llu: %s", (unsigned long long)w->line, error.message);
    if (error.hint[0]) s = rn_hint(s, "%s", error.hint);
    return rn_error_locate(s, w->source, w->offset);
}

// Line by line; a line may span chunks.
static rn_status put_lines(writing *w) {
    int fd = -1;
    uint64_t bytes = 0;
    char chunk[CHUNK];
    rn_buffer text;
    RN_TRY(rn_file_open(w->source, &fd, &bytes));
    rn_buffer_init(&text, RN_HOST_OTHER, MOST_LINE);
    rn_status s = RN_OK;
    for (uint64_t at = 0; s == RN_OK && at < bytes; at += CHUNK) {
        size_t part = (size_t)rn_min_u64(CHUNK, bytes - at);
        s = rn_file_read_at(fd, w->source, at, chunk, part);
        for (size_t from = 0; s == RN_OK && from < part;) {
            const char *stop = memchr(chunk + from, '\n', part - from);
            size_t length = stop ? (size_t)(stop - chunk) - from : part - from;
            s = rn_buffer_append(&text, chunk + from, length);
            from += length + (stop != NULL);
            if (s != RN_OK || (!stop && at + part < bytes)) continue;
            w->line++;
            s = put_line(w, (rn_str){text.data, text.bytes});
            w->offset = at + from;
            text.bytes = 0;
        }
    }
    rn_buffer_free(&text);
    close(fd);
    return s;
}

static rn_status write_all(writing *w, const char *path) {
    RN_TRY(rn_file_write_at(w->fd, w->path, 0, &w->header, sizeof w->header));
    w->header.file_bytes = sizeof w->header;
    RN_TRY(put_lines(w));
    RN_TRY(flush(w));
    if (w->header.samples == 0)
        return rn_hint(rn_error_locate(rn_fail(RN_INVALID,
                                               "there is nothing to learn: %llu samples "
                                               "dropped, %llu without a target",
                                               (unsigned long long)w->header.dropped,
                                               (unsigned long long)w->header.masked),
                                       w->source, RN_NO_OFFSET),
                       "every sample is too long, or has no answer");
    RN_TRY(rn_file_write_at(w->fd, w->path, 0, &w->header, sizeof w->header));
    if (!is_kept(w->options))
        return unlink(w->path) == 0 ? RN_OK : rn_file_fail("cannot remove", w->path);
    if (fsync(w->fd) != 0) return rn_file_fail("cannot write", w->path);
    if (rename(w->path, path) != 0) return rn_file_fail("cannot rename to", path);
    return RN_OK;
}

// The file, open: `*out_fd`.
static rn_status make_file(const char *source, const rn_train_data_options *o,
                           const uint8_t key[32], const char *path, int *out_fd) {
    writing w = {.options = o, .source = source, .fd = -1, .header = {.magic = MAGIC}};
    rn_chat_template *chat_template = NULL;
    memcpy(w.header.key, key, sizeof w.header.key);
    if (o->chat_template.bytes)
        RN_TRY(rn_chat_template_parse("the chat template", o->chat_template, &chat_template));
    w.maker = (rn_data_maker){.tokenizer = o->tokenizer, .chat_template = chat_template};
    rn_arena_init(&w.maker.memory, RN_HOST_OTHER, 0);
    rn_buffer_init(&w.pending, RN_HOST_IO, OUT_BYTES);
    rn_status s = rn_temporary_create(path, 0666, w.path, sizeof w.path, &w.fd);
    bool made = s == RN_OK;
    if (s == RN_OK) s = write_all(&w, path);
    if (made && s != RN_OK) {
        unlink(w.path);
        close(w.fd);
    }
    if (s == RN_OK) *out_fd = w.fd;
    rn_buffer_free(&w.pending);
    rn_arena_free_all(&w.maker.memory);
    rn_chat_template_free(chat_template);
    return s;
}

// ---- reading ------------------------------------------------------------------------------------

static rn_status damaged(const char *path, uint64_t offset) {
    return rn_hint(
        rn_error_locate(rn_fail(RN_CORRUPT, "the tokens' file is damaged"), path, offset),
        "delete it: it is made anew");
}

// Where samples begin. The file is not trusted: lengths must end where the file does, and tokens
// must be the tokenizer's.
static rn_status find_samples(rn_train_data *data, const char *path) {
    const rn_data_header *h = &data->header;
    uint32_t words = rn_tokenizer_get_info(data->options.tokenizer)->vocab_size;
    uint32_t chunk[CHUNK / sizeof(uint32_t)], left = 0;
    uint64_t found = 0;
    void *block = NULL;
    if (h->samples > h->file_bytes / sizeof(uint32_t)) return damaged(path, 0);
    RN_TRY(rn_alloc(RN_HOST_OTHER, (h->samples + 1) * sizeof *data->samples, &block));
    data->samples = block;
    for (uint64_t at = sizeof *h; at < h->file_bytes; at += CHUNK) {
        size_t bytes = (size_t)rn_min_u64(CHUNK, h->file_bytes - at);
        RN_TRY(rn_file_read_at(data->fd, path, at, chunk, bytes));
        if (bytes % sizeof *chunk) return damaged(path, at);
        for (size_t i = 0; i < bytes / sizeof *chunk; i++) {
            if (left-- > 0) {
                if ((chunk[i] & ~RN_DATA_LEARNED) >= words) return damaged(path, at + i * 4);
                continue;
            }
            left = chunk[i];
            if (found == h->samples || left == 0 || left > data->options.tokens)
                return damaged(path, at + i * 4);
            data->samples[found++] = at + i * 4;
        }
    }
    if (found != h->samples || left != 0) return damaged(path, h->file_bytes);
    data->samples[found] = h->file_bytes;
    return RN_OK;
}

// RN_NOT_FOUND: none, or another one's.
static rn_status open_file(rn_train_data *data, const char *path, const uint8_t key[32]) {
    uint64_t bytes = 0;
    rn_data_header *h = &data->header;
    RN_TRY(rn_file_open(path, &data->fd, &bytes));
    rn_status s = bytes >= sizeof *h ? rn_file_read_at(data->fd, path, 0, h, sizeof *h)
                                     : rn_fail(RN_CORRUPT, "it is too short");
    if (s == RN_OK && memcmp(h->magic, MAGIC, sizeof MAGIC) == 0 &&
        memcmp(h->key, key, sizeof h->key) == 0 && h->file_bytes == bytes)
        return RN_OK;
    rn_data_close_file(data);
    return rn_fail(RN_NOT_FOUND, "'%s' was made of something else", path);
}

void rn_data_close_file(rn_train_data *data) {
    if (data->samples)
        rn_free(RN_HOST_OTHER, data->samples, (data->header.samples + 1) * sizeof *data->samples);
    if (data->fd >= 0) close(data->fd);
    data->samples = NULL;
    data->fd = -1;
}

rn_status rn_data_open_file(rn_train_data *data, const char *path, const rn_train_data_options *o) {
    uint8_t key[32];
    char file[PATH_MAX];
    data->fd = -1;
    RN_TRY(find_key(path, o, key));
    RN_TRY(name_file(path, o, key, file));
    rn_status s = is_kept(o) ? open_file(data, file, key) : RN_NOT_FOUND;
    data->info.reused = s == RN_OK;
    if (s == RN_NOT_FOUND) {
        RN_TRY(make_file(path, o, key, file, &data->fd));
        s = rn_file_read_at(data->fd, file, 0, &data->header, sizeof data->header);
    }
    RN_TRY(s);
    return find_samples(data, file);
}

rn_status rn_data_read(const rn_train_data *data, uint64_t sample, uint32_t *out) {
    uint32_t words = rn_tokenizer_get_info(data->options.tokenizer)->vocab_size;
    uint32_t count = rn_data_length(data, sample);
    uint64_t at = data->samples[sample] + sizeof *out;
    RN_TRY(rn_file_read_at(data->fd, "the tokens' file", at, out, count * sizeof *out));
    for (uint32_t i = 0; i < count; i++)
        if ((out[i] & ~RN_DATA_LEARNED) >= words)
            return damaged("the tokens' file", at + i * sizeof *out);
    return RN_OK;
}

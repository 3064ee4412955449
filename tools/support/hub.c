// hub.c — see hub.h.
#include "support/hub.h"

#include "support/curl_load.h"

#include "base/buffer.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/str.h"
#include "io/json_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_FILES = 512, MOST_LIST_BYTES = 8 << 20, CHUNK = 64 << 10 };

typedef struct pull {
    const rn_model_name *name;
    const rn_hub_options *options;
    const char *endpoint, *token;
    rn_hub_result *out;
    rn_hub_file *files; // (count)
    uint32_t count;
    uint64_t all_bytes, all_done;
} pull;

static bool ends_with(const char *text, const char *end) {
    size_t bytes = strlen(text), end_bytes = strlen(end);
    return bytes >= end_bytes && strcasecmp(text + bytes - end_bytes, end) == 0;
}

// ---- the list of files --------------------------------------------------------------------------

static bool put_list(void *self, const void *data, size_t bytes) {
    return rn_buffer_append(self, data, bytes) == RN_OK;
}

static rn_status skip_value(rn_json_reader *reader, rn_json_item item) {
    int depth = 0;
    for (;;) {
        if (item.kind == RN_JSON_OBJECT || item.kind == RN_JSON_ARRAY) depth++;
        if (item.kind == RN_JSON_OBJECT_END || item.kind == RN_JSON_ARRAY_END) depth--;
        if (depth <= 0 && item.kind != RN_JSON_KEY) return RN_OK;
        RN_TRY(rn_json_next(reader, &item));
    }
}

static bool is_sha256(rn_str text) {
    for (size_t i = 0; i < text.bytes; i++)
        if (!strchr("0123456789abcdef", text.data[i]) || !text.data[i]) return false;
    return text.bytes == 64;
}

// {"rfilename": ..., "size": ..., "lfs": {"sha256": ..., "size": ...}}: the '{' has been read.
static rn_status read_file(rn_json_reader *reader, rn_hub_file *out) {
    rn_json_item item;
    memset(out, 0, sizeof *out);
    for (int depth = 1; depth > 0;) {
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) depth--;
        if (item.kind != RN_JSON_KEY) continue;
        bool name = depth == 1 && rn_str_equal(item.text, RN_STR("rfilename"));
        bool size = rn_str_equal(item.text, RN_STR("size"));
        bool lfs = depth == 1 && rn_str_equal(item.text, RN_STR("lfs"));
        bool sha = depth == 2 && rn_str_equal(item.text, RN_STR("sha256"));
        RN_TRY(rn_json_next(reader, &item));
        if (lfs && item.kind == RN_JSON_OBJECT) {
            depth = 2;
            continue;
        }
        if (name && item.kind == RN_JSON_STRING && item.text.bytes < sizeof out->name)
            memcpy(out->name, item.text.data, item.text.bytes);
        if (size && item.kind == RN_JSON_NUMBER) RN_TRY(rn_json_u64_of(&item, &out->bytes));
        if (sha && item.kind == RN_JSON_STRING && is_sha256(item.text))
            memcpy(out->sha256, item.text.data, 64);
        RN_TRY(skip_value(reader, item));
    }
    return RN_OK;
}

// A name that leaves the folder, or hides, is passed over: nobody needs it.
static rn_status read_siblings(pull *p, rn_json_reader *reader) {
    rn_json_item item;
    RN_TRY(rn_json_expect(reader, RN_JSON_ARRAY, NULL));
    for (;;) {
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_ARRAY_END) return RN_OK;
        if (item.kind != RN_JSON_OBJECT || p->count == MOST_FILES)
            return rn_fail(RN_CORRUPT, "the hub's list has no files, or more than %d", MOST_FILES);
        rn_hub_file *file = &p->files[p->count];
        RN_TRY(read_file(reader, file));
        p->count += rn_path_is_inside(file->name) && file->name[0] != '.';
    }
}

static rn_status read_list(pull *p, rn_str text) {
    rn_json_reader reader;
    rn_json_item item;
    rn_json_reader_init(&reader, text, &rn_system_allocator);
    rn_status s = rn_json_expect(&reader, RN_JSON_OBJECT, NULL);
    while (s == RN_OK) {
        s = rn_json_next(&reader, &item);
        if (s != RN_OK || item.kind == RN_JSON_OBJECT_END) break;
        if (item.kind == RN_JSON_KEY && rn_str_equal(item.text, RN_STR("siblings"))) {
            s = read_siblings(p, &reader);
        } else {
            s = rn_json_next(&reader, &item);
            if (s == RN_OK) s = skip_value(&reader, item);
        }
    }
    rn_json_reader_free(&reader);
    return s;
}

static rn_status refuse_status(const pull *p, long status) {
    const char *what = p->name->name;
    if (status == 401 || status == 403)
        return rn_hint(rn_fail(RN_NOT_FOUND, "the hub does not give %s/%s away (%ld)",
                               p->name->organisation, what, status),
                       "it does not exist, or needs a token: set HF_TOKEN, and accept the model's "
                       "terms on its page");
    if (status == 404)
        return rn_fail(RN_NOT_FOUND, "the hub has no %s/%s", p->name->organisation, what);
    return rn_fail(RN_IO, "the hub answers with status %ld", status);
}

static rn_status fetch_list(pull *p) {
    char url[1024];
    rn_buffer text;
    rn_buffer_init(&text, &rn_system_allocator, MOST_LIST_BYTES);
    snprintf(url, sizeof url, "%s/api/models/%s/%s/revision/main?blobs=true", p->endpoint,
             p->name->organisation, p->name->name);
    rn_http_get get = {.url = url,
                       .token = p->token,
                       .cancel = p->options->cancel,
                       .put = put_list,
                       .self = &text};
    rn_status s = rn_http_fetch(&get);
    if (s == RN_OK && get.status != 200) s = refuse_status(p, get.status);
    if (s == RN_OK) s = read_list(p, (rn_str){text.data, text.bytes});
    rn_buffer_free(&text);
    return s;
}

// ---- which of them ------------------------------------------------------------------------------

static bool is_wanted_beside(const char *name) {
    static const char *const endings[] = {".json", ".safetensors", ".model",
                                          ".txt",  ".jinja",       ".tiktoken"};
    if (strchr(name, '/')) return false; // other forms of the same model
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends_with(name, endings[i])) return true;
    return false;
}

static bool has_ending(const pull *p, const char *ending) {
    for (uint32_t i = 0; i < p->count; i++)
        if (ends_with(p->files[i].name, ending) && !strchr(p->files[i].name, '/')) return true;
    return false;
}

// Of several GGUF files the one that is asked for, or the usual one; all parts of it.
static rn_status choose_gguf(pull *p) {
    char found[600] = "";
    const char *wanted = p->name->file;
    uint32_t count = 0, usual = 0, all = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        const char *name = p->files[i].name;
        if (!ends_with(name, ".gguf")) continue;
        size_t bytes = strlen(found);
        snprintf(found + bytes, sizeof found - bytes, "%s%s", bytes ? ", " : "", name);
        all++;
        usual += strcasestr(name, "q4_k_m") != NULL;
        count += wanted[0] && strcasestr(name, wanted) != NULL;
    }
    if (!wanted[0] && all > 1 && !usual)
        return rn_hint(rn_fail(RN_INVALID, "%s/%s has several files: %s", p->name->organisation,
                               p->name->name, found),
                       "name one of them behind ':'");
    if (wanted[0] && !count)
        return rn_hint(rn_fail(RN_NOT_FOUND, "%s/%s has no file '%s'", p->name->organisation,
                               p->name->name, wanted),
                       "it has %s", found[0] ? found : "no GGUF file");
    if (!wanted[0]) wanted = all > 1 ? "q4_k_m" : "";
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->count; i++)
        if (ends_with(p->files[i].name, ".gguf") && strcasestr(p->files[i].name, wanted))
            p->files[kept++] = p->files[i];
    p->count = kept;
    return RN_OK;
}

static rn_status choose_files(pull *p) {
    if (!p->name->file[0] && has_ending(p, ".safetensors")) {
        uint32_t kept = 0;
        for (uint32_t i = 0; i < p->count; i++)
            if (is_wanted_beside(p->files[i].name)) p->files[kept++] = p->files[i];
        p->count = kept;
    } else {
        RN_TRY(choose_gguf(p));
    }
    if (p->count == 0)
        return rn_fail(RN_NOT_FOUND, "%s/%s has neither safetensors nor GGUF files",
                       p->name->organisation, p->name->name);
    for (uint32_t i = 0; i < p->count; i++)
        p->all_bytes += p->files[i].bytes;
    return RN_OK;
}

// ---- one file -----------------------------------------------------------------------------------

typedef struct saving {
    pull *pull;
    const rn_hub_file *file;
    char path[RN_PATH_BYTES], part[RN_PATH_BYTES + 8];
    int fd;
    uint64_t at, told_ms;
    rn_http_get get;
    rn_status status;
} saving;

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void tell(saving *s, bool last) {
    const rn_hub_options *o = s->pull->options;
    if (!o->progress || (!last && now_ms() - s->told_ms < 200)) return;
    s->told_ms = now_ms();
    o->progress(o->self, &(rn_hub_progress){.file = s->file,
                                            .done_bytes = s->at,
                                            .all_bytes = s->pull->all_bytes,
                                            .all_done_bytes = s->pull->all_done + s->at});
}

static bool put_part(void *self, const void *data, size_t bytes) {
    saving *s = self;
    if (s->get.from_start) { // what was there is sent again
        s->get.from_start = false;
        s->at = 0;
    }
    if (s->file->bytes && bytes > s->file->bytes - s->at) {
        s->status = rn_fail(RN_CORRUPT, "%s is longer than the %llu bytes that were announced",
                            s->file->name, (unsigned long long)s->file->bytes);
        return false;
    }
    s->status = rn_file_write_at(s->fd, s->part, s->at, data, bytes);
    s->at += bytes;
    tell(s, false);
    return s->status == RN_OK;
}

static rn_status make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        int failed = mkdir(path, 0755) != 0 && errno != EEXIST;
        rn_status s = failed ? rn_file_fail("making the folder", path) : RN_OK;
        *slash = '/';
        RN_TRY(s);
    }
    return RN_OK;
}

static rn_status check_sum(saving *s) {
    rn_sha256 hash;
    uint8_t digest[RN_SHA256_BYTES];
    char text[2 * RN_SHA256_BYTES + 1], chunk[CHUNK];
    if (!s->file->sha256[0]) return RN_OK;
    rn_sha256_begin(&hash);
    for (uint64_t at = 0; at < s->at;) {
        ssize_t got = pread(s->fd, chunk, sizeof chunk, (off_t)at);
        if (got <= 0) return rn_file_fail("reading", s->part);
        if (s->pull->options->cancel && atomic_load(s->pull->options->cancel))
            return rn_fail(RN_CANCELLED, "the download was ended");
        rn_sha256_add(&hash, chunk, (size_t)got);
        at += (uint64_t)got;
    }
    rn_sha256_end(&hash, digest);
    rn_sha256_text(digest, text);
    if (strcmp(text, s->file->sha256) == 0) return RN_OK;
    return rn_fail(RN_CORRUPT, "%s has the SHA-256 %s, but %s was announced", s->file->name, text,
                   s->file->sha256);
}

static rn_status download(saving *s) {
    char url[2048];
    snprintf(url, sizeof url, "%s/%s/%s/resolve/main/%s", s->pull->endpoint,
             s->pull->name->organisation, s->pull->name->name, s->file->name);
    s->get = (rn_http_get){.url = url,
                           .token = s->pull->token,
                           .from = s->at,
                           .cancel = s->pull->options->cancel,
                           .put = put_part,
                           .self = s};
    if (s->file->bytes == 0 || s->at < s->file->bytes) {
        RN_TRY(rn_http_fetch(&s->get));
        RN_TRY(s->status);
        if (s->get.status != 200 && s->get.status != 206)
            return refuse_status(s->pull, s->get.status);
    }
    tell(s, true);
    if (s->file->bytes && s->at != s->file->bytes)
        return rn_hint(rn_fail(RN_IO, "%s ended after %llu of %llu bytes", s->file->name,
                               (unsigned long long)s->at, (unsigned long long)s->file->bytes),
                       "try again: it goes on from there");
    return check_sum(s);
}

// What is damaged is not gone on with.
static rn_status save(saving *s) {
    struct stat there;
    RN_TRY(make_folders(s->part));
    s->fd = open(s->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (s->fd < 0) return rn_file_fail("writing", s->part);
    if (fstat(s->fd, &there) == 0) s->at = (uint64_t)there.st_size;
    if (s->file->bytes && s->at > s->file->bytes) s->at = 0;
    uint64_t before = s->at;
    rn_status status = download(s);
    if (status == RN_OK && (ftruncate(s->fd, (off_t)s->at) != 0 || fsync(s->fd) != 0))
        status = rn_file_fail("writing", s->part);
    close(s->fd);
    if (status == RN_OK && rename(s->part, s->path) != 0)
        status = rn_file_fail("renaming", s->part);
    if (status == RN_CORRUPT) {
        rn_error_info error = *rn_last_error();
        unlink(s->part);
        return rn_hint(rn_error_restore(&error), "what was downloaded was thrown away: try again");
    }
    if (status == RN_OK) s->pull->out->bytes += s->at > before ? s->at - before : s->at;
    return status;
}

static rn_status pull_file(pull *p, const rn_hub_file *file) {
    static saving s; // two paths
    struct stat there;
    s = (saving){.pull = p, .file = file};
    if (snprintf(s.path, sizeof s.path, "%s/%s", p->out->folder, file->name) >= (int)sizeof s.path)
        return rn_fail(RN_INVALID, "%s: a path that is too long", file->name);
    snprintf(s.part, sizeof s.part, "%s.part", s.path);
    bool whole = stat(s.path, &there) == 0 && S_ISREG(there.st_mode) &&
                 (!file->bytes || (uint64_t)there.st_size == file->bytes);
    if (whole) {
        p->out->there++;
    } else {
        RN_TRY(save(&s));
    }
    p->all_done += file->bytes;
    return RN_OK;
}

// ---- all of it ----------------------------------------------------------------------------------

static rn_status pull_all(pull *p) {
    RN_TRY(fetch_list(p));
    RN_TRY(choose_files(p));
    p->out->files = p->count;
    for (uint32_t i = 0; i < p->count && !p->options->check_only; i++)
        RN_TRY(pull_file(p, &p->files[i]));
    return RN_OK;
}

rn_status rn_hub_pull(const rn_model_name *name, const rn_hub_options *options,
                      rn_hub_result *out) {
    const char *endpoint = getenv("HF_ENDPOINT"), *token = getenv("HF_TOKEN");
    char root[RN_PATH_BYTES];
    pull p = {.name = name, .options = options, .out = out, .token = token};
    memset(out, 0, sizeof *out);
    p.endpoint = endpoint && endpoint[0] ? endpoint : "https://huggingface.co";
    if (strncmp(p.endpoint, "https://", 8) != 0 && strncmp(p.endpoint, "http://", 7) != 0)
        return rn_fail(RN_INVALID, "HF_ENDPOINT is '%.200s': it must begin with https://",
                       p.endpoint);
    if (!name->organisation[0])
        return rn_hint(rn_fail(RN_INVALID, "'%s' has no organisation", name->name),
                       "ration pull org/name");
    RN_TRY(rn_models_folder(root));
    if (snprintf(out->folder, sizeof out->folder, "%s/%s/%s", root, name->organisation,
                 name->name) >= (int)sizeof out->folder)
        return rn_fail(RN_INVALID, "the folder's path is too long");
    p.files = calloc(MOST_FILES, sizeof *p.files);
    if (!p.files) return rn_fail(RN_NO_MEMORY, "no memory");
    rn_status s = pull_all(&p);
    free(p.files);
    return s;
}

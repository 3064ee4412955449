// tokenizer_open.c — from a path to a tokenizer: which file it is, and what stands beside it.
#include "text/tokenizer_parts.h"

#include "base/file.h"
#include "memory/account.h"

enum { FILE_CAP_BYTES = 256 << 20, PATH_BYTES = 4096 };

typedef struct opening {
    rn_tokenizer *tokenizer;
    char folder[PATH_BYTES];
    rn_tokenizer_settings settings;
} opening;

// Whatever goes wrong with the file's text is about that file.
typedef rn_status (*file_taker)(opening *o, const char *path, rn_str text);

static rn_status with_file(opening *o, const char *path, file_taker take) {
    rn_buffer file;
    rn_buffer_init(&file, RN_HOST_OTHER, FILE_CAP_BYTES);
    rn_status s = rn_file_read_all(path, &file);
    if (s == RN_OK) {
        s = take(o, path, (rn_str){file.data, file.bytes});
        if (s != RN_OK && !rn_last_error()->path[0])
            rn_error_locate(s, path, rn_last_error()->offset);
    }
    rn_buffer_free(&file);
    return s;
}

static rn_status beside(const opening *o, const char *name, char out[PATH_BYTES], bool *found) {
    RN_TRY(rn_path_join(o->folder, name, out, PATH_BYTES));
    *found = rn_file_exists(out) && !rn_file_is_folder(out);
    return RN_OK;
}

// ---- what stands beside it --------------------------------------------------------------

static rn_status take_settings(opening *o, const char *path, rn_str text) {
    (void)path;
    return rn_read_tokenizer_settings(o->tokenizer, text, true, &o->settings);
}

static rn_status take_class(opening *o, const char *path, rn_str text) {
    (void)path;
    return rn_read_tokenizer_settings(o->tokenizer, text, false, &o->settings);
}

static rn_status read_beside(opening *o, const char *name, file_taker take) {
    char path[PATH_BYTES];
    bool found;
    RN_TRY(beside(o, name, path, &found));
    return found ? with_file(o, path, take) : RN_OK;
}

static rn_status read_settings(opening *o) {
    RN_TRY(read_beside(o, "special_tokens_map.json", take_settings));
    return read_beside(o, "tokenizer_config.json", take_settings);
}

static rn_status settle(opening *o) {
    RN_TRY(rn_apply_tokenizer_settings(o->tokenizer, &o->settings));
    return rn_tokenizer_finish(o->tokenizer);
}

// ---- the files --------------------------------------------------------------------------

static rn_status take_tiktoken(opening *o, const char *path, rn_str text) {
    size_t ranks = 0;
    RN_TRY(rn_load_tiktoken(o->tokenizer, text, rn_str_ends(rn_str_from(path), RN_STR(".model")),
                            &ranks));
    RN_TRY(read_settings(o));
    RN_TRY(rn_add_tiktoken_specials(o->tokenizer, ranks));
    return settle(o);
}

// A tokenizer.json, SentencePiece's protobuf, or tiktoken's lines, told apart by how they begin.
static rn_status take_any(opening *o, const char *path, rn_str text) {
    size_t at = 0;
    while (at < text.bytes && (text.data[at] == ' ' || text.data[at] == '\n'))
        at++;
    if (rn_is_tiktoken(text)) return take_tiktoken(o, path, text);
    if (at < text.bytes && text.data[at] == '{')
        RN_TRY(rn_load_tokenizer_json(o->tokenizer, text));
    else
        RN_TRY(rn_load_sentencepiece(o->tokenizer, text));
    RN_TRY(read_settings(o));
    return settle(o);
}

static rn_status take_vocab(opening *o, const char *path, rn_str text) {
    (void)path;
    return rn_load_vocab(o->tokenizer, text);
}

static rn_status take_merges(opening *o, const char *path, rn_str text) {
    (void)path;
    RN_TRY(rn_load_merges(o->tokenizer, text, o->settings.class_name));
    RN_TRY(read_settings(o));
    return settle(o);
}

static rn_status open_vocab(opening *o, const char *vocab_path, const char *merges_path) {
    RN_TRY(with_file(o, vocab_path, take_vocab));
    RN_TRY(read_beside(o, "tokenizer_config.json", take_class));
    return with_file(o, merges_path, take_merges);
}

static rn_status take_vocab_txt(opening *o, const char *path, rn_str text) {
    (void)path;
    RN_TRY(rn_load_vocab_txt(o->tokenizer, text, &o->settings));
    RN_TRY(read_settings(o));
    return settle(o);
}

static rn_status open_vocab_txt(opening *o, const char *path) {
    RN_TRY(read_beside(o, "tokenizer_config.json", take_class));
    return with_file(o, path, take_vocab_txt);
}

// ---- folders ----------------------------------------------------------------------------

static rn_status open_pair(opening *o, bool *out_done) {
    static const char *const vocabs[] = {"vocab.json", "encoder.json"};
    static const char *const merges[] = {"merges.txt", "vocab.bpe"};
    char vocab_path[PATH_BYTES], merges_path[PATH_BYTES];
    bool found, both;
    *out_done = false;
    for (size_t i = 0; i < 4 && !*out_done; i++) {
        RN_TRY(beside(o, vocabs[i / 2], vocab_path, &found));
        RN_TRY(beside(o, merges[i % 2], merges_path, &both));
        *out_done = found && both;
    }
    return *out_done ? open_vocab(o, vocab_path, merges_path) : RN_OK;
}

static rn_status open_folder(opening *o) {
    static const char *const names[] = {
        "tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", NULL,
        "qwen.tiktoken",  "gpt2.tiktoken"};
    char path[PATH_BYTES];
    bool found;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!names[i]) {
            RN_TRY(open_pair(o, &found));
            if (found) return RN_OK;
            continue;
        }
        RN_TRY(beside(o, names[i], path, &found));
        if (found) return with_file(o, path, take_any);
    }
    RN_TRY(beside(o, "vocab.txt", path, &found));
    if (found) return open_vocab_txt(o, path);
    rn_status s = rn_fail(RN_NOT_FOUND, "%s has no tokenizer", o->folder);
    return rn_hint(s, "tokenizer.json, tokenizer.model, vocab.json with merges.txt or vocab.txt is "
                      "looked for");
}

// The folder of a path to a file.
static rn_status set_folder(opening *o, const char *path, bool is_folder) {
    const char *slash = strrchr(path, '/');
    size_t bytes = is_folder ? strlen(path) : slash ? (size_t)(slash - path) : 0;
    if (!is_folder && slash == path) bytes = 1;
    if (bytes >= PATH_BYTES) return rn_fail(RN_INVALID, "the path is too long");
    memcpy(o->folder, bytes ? path : ".", bytes ? bytes : 1);
    o->folder[bytes ? bytes : 1] = 0;
    return RN_OK;
}

static bool is_pair(rn_str path) {
    return rn_str_ends(path, RN_STR("/vocab.json")) || rn_str_ends(path, RN_STR("/encoder.json"));
}

static rn_status open_path(opening *o, const char *path) {
    bool is_folder = rn_file_is_folder(path), done = false;
    RN_TRY(set_folder(o, path, is_folder));
    if (is_folder) return open_folder(o);
    if (rn_str_ends(rn_str_from(path), RN_STR("vocab.txt"))) return open_vocab_txt(o, path);
    if (is_pair(rn_str_from(path))) RN_TRY(open_pair(o, &done));
    return done ? RN_OK : with_file(o, path, take_any);
}

static rn_status open_gguf(const char *path, rn_tokenizer **out) {
    rn_checkpoint *checkpoint;
    RN_TRY(rn_checkpoint_open(path, &checkpoint));
    rn_status s = rn_tokenizer_from_gguf(checkpoint, out);
    rn_checkpoint_close(checkpoint);
    return rn_error_locate(s, path, RN_NO_OFFSET);
}

rn_status rn_tokenizer_open(const char *path, rn_tokenizer **out) {
    opening o = {.settings = RN_TOKENIZER_SETTINGS_UNSAID};
    *out = NULL;
    if (rn_str_ends(rn_str_from(path), RN_STR(".gguf"))) return open_gguf(path, out);
    RN_TRY(rn_tokenizer_create(&o.tokenizer));
    rn_status s = open_path(&o, path);
    if (s == RN_OK)
        *out = o.tokenizer;
    else
        rn_tokenizer_close(o.tokenizer);
    return s;
}

rn_status rn_tokenizer_from_json(const char *name, rn_str json, rn_tokenizer **out) {
    rn_tokenizer *tokenizer;
    *out = NULL;
    RN_TRY(rn_tokenizer_create(&tokenizer));
    rn_status s = rn_load_tokenizer_json(tokenizer, json);
    if (s == RN_OK) s = rn_tokenizer_finish(tokenizer);
    if (s == RN_OK)
        *out = tokenizer;
    else
        rn_tokenizer_close(tokenizer);
    return rn_error_locate(s, name, rn_last_error()->offset);
}

rn_status rn_tokenizer_from_gguf(const rn_checkpoint *checkpoint, rn_tokenizer **out) {
    rn_tokenizer *tokenizer;
    *out = NULL;
    RN_TRY(rn_tokenizer_create(&tokenizer));
    rn_status s = rn_load_gguf_vocab(tokenizer, checkpoint);
    if (s == RN_OK) s = rn_tokenizer_finish(tokenizer);
    if (s == RN_OK)
        *out = tokenizer;
    else
        rn_tokenizer_close(tokenizer);
    return s;
}

// model_rewrite.c — see model_rewrite.h.
#include "model/text/model_rewrite.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/output.h"
#include "base/str.h"
#include "io/writer.h"
#include "memory/account.h"
#include "model/text/text_network.h"

enum { COMPANION_BYTES = 256 << 20 };

// ---- tensors ------------------------------------------------------------------------------------

// As the file has it, piece by piece.
static rn_status copy_tensor(const rn_rewrite *r, const rn_tensor_info *info, rn_writer *writer) {
    uint64_t n = 0;
    for (uint64_t at = 0; at < info->bytes; at += n) {
        n = rn_min_u64(info->bytes - at, r->piece_bytes);
        RN_TRY(rn_checkpoint_read(r->from, info, at, r->piece, n));
        RN_TRY(rn_writer_append(writer, r->piece, n));
    }
    return RN_OK;
}

static rn_status write_tensors(const rn_rewrite *r, rn_writer *writer) {
    for (size_t i = 0; i < rn_checkpoint_count(r->from); i++) {
        const rn_tensor_info *info = rn_checkpoint_tensor(r->from, i);
        rn_dtype dtype = info->dtype;
        rn_rewrite_what what = r->look(r->self, info, &dtype);
        if (what == RN_REWRITE_COPY) RN_TRY(copy_tensor(r, info, writer));
        if (what == RN_REWRITE_WRITE) RN_TRY(r->write(r->self, info, dtype, writer));
    }
    return rn_writer_commit(writer);
}

static rn_status declare(const rn_rewrite *r, rn_arena *memory, rn_write_tensor **out,
                         size_t *out_count) {
    size_t count = rn_checkpoint_count(r->from);
    void *block = NULL;
    *out_count = 0;
    RN_TRY(rn_arena_array(memory, count, sizeof **out, &block));
    *out = block;
    for (size_t i = 0; i < count; i++) {
        const rn_tensor_info *info = rn_checkpoint_tensor(r->from, i);
        rn_dtype dtype = info->dtype;
        if (r->look(r->self, info, &dtype) == RN_REWRITE_LEAVE_OUT) continue;
        (*out)[(*out_count)++] = (rn_write_tensor){
            .name = info->name, .dtype = dtype, .rank = info->rank, .dims = info->dims};
    }
    return RN_OK;
}

// GGUF's keys are the model's description; safetensors have but the one that loaders ask for.
static rn_status gather_keys(const rn_rewrite *r, rn_arena *memory, rn_writer_options *options) {
    static const rn_metadata format = {
        .key = {"format", 6}, .kind = RN_METADATA_TEXT, .gguf_type = 8, .text = {"pt", 2}};
    bool gguf = rn_checkpoint_container(r->from) == RN_CONTAINER_GGUF;
    size_t count = gguf ? rn_checkpoint_metadata_count(r->from) : 1;
    void *block = NULL;
    RN_TRY(rn_arena_array(memory, count, sizeof(rn_metadata), &block));
    rn_metadata *keys = block;
    for (size_t i = 0; i < count; i++)
        keys[i] = gguf ? *rn_checkpoint_metadata(r->from, i) : format;
    options->metadata = keys;
    options->metadata_count = count;
    return RN_OK;
}

static rn_status write_file(const rn_rewrite *r, const char *path) {
    rn_writer_options options = {.buffer_bytes = r->buffer_bytes};
    rn_write_tensor *tensors = NULL;
    rn_writer *writer = NULL;
    size_t count = 0;
    rn_arena memory;
    rn_arena_init(&memory, RN_HOST_IO, 0);
    rn_status s = declare(r, &memory, &tensors, &count);
    if (s == RN_OK) s = gather_keys(r, &memory, &options);
    if (s == RN_OK)
        s = rn_writer_create_in(path, tensors, count, &options, r->writer_from, &writer);
    if (s == RN_OK) s = write_tensors(r, writer);
    rn_writer_destroy(writer);
    rn_arena_free_all(&memory);
    return s;
}

// ---- companions ---------------------------------------------------------------------------------

// Configuration, tokenizer, templates: whatever is text, but for the list of the old shards and the
// configuration of an adapter.
static bool is_companion(const char *name) {
    static const char *const endings[] = {".json", ".jinja", ".txt", ".model", ".md"};
    rn_str text = rn_str_from(name);
    if (rn_str_ends(text, RN_STR(".index.json")) || strcmp(name, "adapter_config.json") == 0)
        return false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (rn_str_ends(text, rn_str_from(endings[i]))) return true;
    return false;
}

static rn_status copy_bytes(int fd, const char *from, uint64_t bytes, const char *to) {
    uint8_t piece[4096];
    rn_output_options options = {.file_bytes = bytes, .buffer_bytes = 8192, .buffer_count = 1};
    rn_output *output = NULL;
    rn_status s = rn_output_create(to, &options, RN_HOST_IO, &output);
    for (uint64_t at = 0; s == RN_OK && at < bytes; at += sizeof piece) {
        size_t n = (size_t)rn_min_u64(bytes - at, sizeof piece);
        s = rn_file_read_at(fd, from, at, piece, n);
        if (s == RN_OK) s = rn_output_put(output, at, piece, n);
    }
    if (s == RN_OK) s = rn_output_commit(output);
    rn_output_destroy(output);
    return s;
}

static rn_status copy_file(const char *folder, const char *name, const char *into) {
    char from[PATH_MAX], to[PATH_MAX];
    uint64_t bytes = 0;
    int fd = -1;
    RN_TRY(rn_path_join(folder, name, from, sizeof from));
    RN_TRY(rn_path_join(into, name, to, sizeof to));
    if (rn_file_is_folder(from)) return RN_OK;
    RN_TRY(rn_file_open(from, &fd, &bytes));
    rn_status s = bytes > COMPANION_BYTES
                      ? rn_fail(RN_INVALID, "%s is too large to belong to a model's settings", from)
                      : copy_bytes(fd, from, bytes, to);
    close(fd);
    return s;
}

static rn_status copy_companions(const char *folder, const char *into) {
    DIR *list = opendir(folder);
    const struct dirent *entry;
    rn_status s = RN_OK;
    if (!list) return rn_file_fail("cannot list", folder);
    while (s == RN_OK && (entry = readdir(list)))
        if (is_companion(entry->d_name)) s = copy_file(folder, entry->d_name, into);
    closedir(list);
    return s;
}

// ---- the model ----------------------------------------------------------------------------------

static bool is_same_folder(const char *a, const char *b) {
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

// The tensors first: a folder with a configuration is whole.
static rn_status write_folder(const rn_rewrite *r, const char *path) {
    char file[PATH_MAX], folder[PATH_MAX];
    rn_text_find_folder(rn_checkpoint_file(r->from, 0)->path, folder, sizeof folder);
    if (mkdir(path, 0777) != 0 && errno != EEXIST) return rn_file_fail("cannot make", path);
    if (is_same_folder(folder, path))
        return rn_hint(rn_fail(RN_INVALID, "%s is the folder that the model was opened from", path),
                       "name another one: the model's files are read while it is written");
    RN_TRY(rn_path_join(path, "model.safetensors", file, sizeof file));
    RN_TRY(write_file(r, file));
    return copy_companions(folder, path);
}

rn_status rn_rewrite_model(const rn_rewrite *rewrite, const char *path) {
    bool gguf = rn_checkpoint_container(rewrite->from) == RN_CONTAINER_GGUF;
    if (gguf == rn_str_ends(rn_str_from(path), RN_STR(".gguf")))
        return gguf ? write_file(rewrite, path) : write_folder(rewrite, path);
    return gguf ? rn_hint(rn_fail(RN_UNSUPPORTED, "a model of a GGUF file is written as one"),
                          "let the path end in .gguf")
                : rn_hint(rn_fail(RN_UNSUPPORTED, "a model of safetensors is written as a folder "
                                                  "of them"),
                          "name a folder; `ration convert FOLDER OUT.gguf` makes GGUF of it");
}

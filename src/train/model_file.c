// model_file.c — a model whose own weights were trained, written as its files were: the same
// tensors under the same names, in the same order and numbers, the trained ones with their new
// values.
//
//     MODEL/config.json, tokenizer.json, ...    copied
//     MODEL/*.safetensors                    ─▶ OUT/model.safetensors
//     MODEL.gguf                             ─▶ OUT.gguf, with all keys
#include "train/trainer.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/file.h"
#include "base/output.h"
#include "base/str.h"
#include "io/writer.h"
#include "memory/account.h"
#include "model/text/text_network.h"

enum { COMPANION_BYTES = 256 << 20 };

typedef struct export_job {
    rn_trainer *trainer;
    const rn_checkpoint *from;
    rn_trainer_scratch scratch;
    rn_writer *writer;
} export_job;

// ---- tensors ------------------------------------------------------------------------------------

// A tied head is the embedding: a second copy of it would be the old one.
static bool is_left_out(const export_job *e, const rn_tensor_info *info) {
    return e->trainer->config.tied && rn_str_matches(info->name, RN_STR("*lm_head.weight"));
}

static const rn_trained *find_trained(const export_job *e, const rn_tensor_info *info) {
    const rn_trainer *t = e->trainer;
    for (uint32_t i = 0; i < t->weight_count; i++)
        if (rn_str_equal(info->name, rn_str_from(t->tensors[i].name))) return &t->tensors[i];
    return NULL;
}

// As the file has it, piece by piece.
static rn_status copy_tensor(const export_job *e, const rn_tensor_info *info) {
    uint64_t most = rn_min_u64(e->trainer->most, RN_TRAINER_CHUNK) * sizeof(float), n = 0;
    for (uint64_t at = 0; at < info->bytes; at += n) {
        n = rn_min_u64(info->bytes - at, most);
        RN_TRY(rn_checkpoint_read(e->from, info, at, e->scratch.chunk, n));
        RN_TRY(rn_writer_append(e->writer, e->scratch.chunk, n));
    }
    return RN_OK;
}

static rn_status write_tensors(const export_job *e) {
    for (size_t i = 0; i < rn_checkpoint_count(e->from); i++) {
        const rn_tensor_info *info = rn_checkpoint_tensor(e->from, i);
        const rn_trained *trained = find_trained(e, info);
        if (is_left_out(e, info)) continue;
        RN_TRY(trained ? rn_trainer_write_tensor(e->trainer, trained, info->dtype, e->writer,
                                                 &e->scratch)
                       : copy_tensor(e, info));
    }
    return rn_writer_commit(e->writer);
}

static rn_status declare(const export_job *e, rn_arena *memory, rn_write_tensor **out,
                         size_t *out_count) {
    size_t count = rn_checkpoint_count(e->from);
    void *block = NULL;
    *out_count = 0;
    RN_TRY(rn_arena_array(memory, count, sizeof **out, &block));
    *out = block;
    for (size_t i = 0; i < count; i++) {
        const rn_tensor_info *info = rn_checkpoint_tensor(e->from, i);
        if (is_left_out(e, info)) continue;
        (*out)[(*out_count)++] = (rn_write_tensor){
            .name = info->name, .dtype = info->dtype, .rank = info->rank, .dims = info->dims};
    }
    return RN_OK;
}

// GGUF's keys are the model's description; safetensors have but the one that loaders ask for.
static rn_status gather_keys(const export_job *e, rn_arena *memory, rn_writer_options *options) {
    static const rn_metadata format = {
        .key = {"format", 6}, .kind = RN_METADATA_TEXT, .gguf_type = 8, .text = {"pt", 2}};
    bool gguf = rn_checkpoint_container(e->from) == RN_CONTAINER_GGUF;
    size_t count = gguf ? rn_checkpoint_metadata_count(e->from) : 1;
    void *block = NULL;
    RN_TRY(rn_arena_array(memory, count, sizeof(rn_metadata), &block));
    rn_metadata *keys = block;
    for (size_t i = 0; i < count; i++)
        keys[i] = gguf ? *rn_checkpoint_metadata(e->from, i) : format;
    options->metadata = keys;
    options->metadata_count = count;
    return RN_OK;
}

static rn_status write_file(export_job *e, const char *path) {
    rn_writer_options options = {.buffer_bytes = rn_trainer_buffer_bytes(e->trainer->most)};
    rn_write_tensor *tensors = NULL;
    size_t count = 0;
    rn_arena memory;
    rn_arena_init(&memory, RN_HOST_IO, 0);
    rn_status s = declare(e, &memory, &tensors, &count);
    if (s == RN_OK) s = gather_keys(e, &memory, &options);
    if (s == RN_OK) s = rn_trainer_scratch_take(e->trainer, &e->scratch);
    if (s == RN_OK)
        s = rn_writer_create_in(path, tensors, count, &options, &e->scratch.from, &e->writer);
    if (s == RN_OK) s = write_tensors(e);
    rn_writer_destroy(e->writer);
    rn_trainer_scratch_free(&e->scratch);
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
static rn_status write_folder(export_job *e, const char *path) {
    char file[PATH_MAX], folder[PATH_MAX];
    rn_text_find_folder(rn_checkpoint_file(e->from, 0)->path, folder, sizeof folder);
    if (mkdir(path, 0777) != 0 && errno != EEXIST) return rn_file_fail("cannot make", path);
    if (is_same_folder(folder, path))
        return rn_hint(rn_fail(RN_INVALID, "%s is the folder that the model was opened from", path),
                       "name another one: the model's files are read while it is written");
    RN_TRY(rn_path_join(path, "model.safetensors", file, sizeof file));
    RN_TRY(write_file(e, file));
    return copy_companions(folder, path);
}

static rn_status check(const rn_trainer *t, const char *path) {
    if (!t->full)
        return rn_hint(rn_fail(RN_INVALID, "this trainer does not train a model's own weights"),
                       t->lora ? "rn_trainer_export_adapter writes its additions"
                               : "rn_trainer_export writes its weights");
    if (t->network->in_memory)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "a built-in model has no files to write it like"),
                       "rn_trainer_export writes its weights");
    bool gguf = rn_checkpoint_container(t->network->checkpoint) == RN_CONTAINER_GGUF;
    if (gguf == rn_str_ends(rn_str_from(path), RN_STR(".gguf"))) return RN_OK;
    return gguf ? rn_hint(rn_fail(RN_UNSUPPORTED, "a model of a GGUF file is written as one"),
                          "let the path end in .gguf")
                : rn_hint(rn_fail(RN_UNSUPPORTED, "a model of safetensors is written as a folder "
                                                  "of them"),
                          "name a folder; `ration convert FOLDER OUT.gguf` makes GGUF of it");
}

rn_status rn_trainer_export_model(rn_trainer *trainer, const char *path) {
    RN_TRY(check(trainer, path));
    export_job e = {.trainer = trainer, .from = trainer->network->checkpoint};
    if (rn_checkpoint_container(e.from) == RN_CONTAINER_GGUF) return write_file(&e, path);
    return write_folder(&e, path);
}

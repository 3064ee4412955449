// importance.c — both formats into one list.
#include "io/importance.h"

#include "base/buffer.h"
#include "base/file.h"
#include "base/str.h"
#include "memory/account.h"

#include <math.h>
#include <unistd.h>

enum { MAX_FILE_BYTES = 1 << 30, MAX_NAME_BYTES = 1024 };

static rn_status add(rn_importances *all, size_t index, rn_str name, const float *values,
                     uint64_t count) {
    bool existing = false;
    void *copy;
    for (uint64_t i = 0; i < count; i++)
        if (!(values[i] >= 0 && values[i] <= 3.4e38f))
            return rn_fail(RN_CORRUPT, "an importance of '%.*s' is %g", RN_STR_ARG(name),
                           (double)values[i]);
    RN_TRY(rn_arena_copy(&all->arena, name.data, name.bytes, &copy));
    rn_str kept = {copy, name.bytes};
    all->entries[index] = (rn_importance_entry){kept, values, count};
    RN_TRY(rn_map_add(&all->by_name, kept, index, &existing));
    return existing ? rn_fail(RN_CORRUPT, "'%.*s' is there twice", RN_STR_ARG(name)) : RN_OK;
}

static rn_status allocate(rn_importances *all, size_t count) {
    void *block;
    RN_TRY(rn_arena_array(&all->arena, count, sizeof *all->entries, &block));
    all->entries = block;
    return rn_map_reserve(&all->by_name, count);
}

// ---- GGUF ---------------------------------------------------------------------------------------

static const rn_str sums_suffix = {".in_sum2", 8};

static rn_status load_f32(const rn_checkpoint *file, const rn_tensor_info *t, rn_arena *arena,
                          float **out) {
    void *block;
    if (t->dtype != RN_DTYPE_F32)
        return rn_fail(RN_CORRUPT, "tensor '%.*s' is %s, not f32", RN_STR_ARG(t->name),
                       rn_dtype_get(t->dtype)->name);
    RN_TRY(rn_arena_array(arena, (size_t)t->elements, sizeof(float), &block));
    *out = block;
    return rn_checkpoint_load(file, t, RN_DTYPE_F32, block, (size_t)t->bytes);
}

// Sums by counts: one count for each expert. An expert that was never asked has no preferences.
static rn_status add_sums(rn_importances *all, const rn_checkpoint *file,
                          const rn_tensor_info *sums, rn_str name) {
    char key[MAX_NAME_BYTES];
    float *values = NULL, *counts = NULL;
    if (name.bytes + 8 > sizeof key) return rn_fail(RN_CORRUPT, "a name has %zu bytes", name.bytes);
    memcpy(key, name.data, name.bytes);
    memcpy(key + name.bytes, ".counts", 8);
    const rn_tensor_info *t = rn_checkpoint_find(file, key);
    if (!t || t->elements == 0 || sums->elements % t->elements)
        return rn_fail(RN_CORRUPT, "'%.*s' lacks counts that go with its sums", RN_STR_ARG(name));
    RN_TRY(load_f32(file, sums, &all->arena, &values));
    RN_TRY(load_f32(file, t, &all->arena, &counts));
    uint64_t columns = sums->elements / t->elements;
    for (uint64_t i = 0; i < sums->elements; i++) {
        float count = roundf(counts[i / columns]);
        values[i] = count > 0 ? values[i] / count : 1;
    }
    return add(all, all->count++, name, values, sums->elements);
}

static rn_status read_gguf(const char *path, rn_importances *all) {
    rn_checkpoint *file;
    RN_TRY(rn_checkpoint_open(path, &file));
    rn_status s = allocate(all, rn_checkpoint_count(file));
    for (size_t i = 0; s == RN_OK && i < rn_checkpoint_count(file); i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(file, i);
        rn_str name = {t->name.data, t->name.bytes - sums_suffix.bytes};
        if (rn_str_ends(t->name, sums_suffix)) s = add_sums(all, file, t, name);
    }
    if (s == RN_OK && all->count == 0)
        s = rn_hint(rn_fail(RN_UNSUPPORTED, "%s holds no importances", path),
                    "llama-imatrix makes them of a model and a text");
    rn_checkpoint_close(file);
    return s;
}

// ---- the older format ---------------------------------------------------------------------------

typedef struct cursor {
    const char *path, *data;
    size_t bytes, at;
} cursor;

static rn_status take(cursor *c, size_t bytes, const char **out) {
    if (bytes > c->bytes - c->at)
        return rn_error_locate(rn_fail(RN_CORRUPT, "the file ends within an importance matrix"),
                               c->path, c->at);
    *out = c->data + c->at;
    c->at += bytes;
    return RN_OK;
}

static rn_status take_i32(cursor *c, int32_t least, int32_t *out) {
    const char *bytes = NULL;
    size_t at = c->at;
    RN_TRY(take(c, sizeof *out, &bytes));
    memcpy(out, bytes, sizeof *out);
    if (*out >= least) return RN_OK;
    return rn_error_locate(rn_fail(RN_CORRUPT, "a count cannot be %d", *out), c->path, at);
}

static rn_status read_entry(rn_importances *all, cursor *c) {
    int32_t length = 0, calls = 0, count = 0;
    const char *name = NULL, *raw = NULL;
    void *block = NULL;
    RN_TRY(take_i32(c, 1, &length));
    RN_TRY(take(c, (size_t)length, &name));
    RN_TRY(take_i32(c, INT32_MIN, &calls));
    RN_TRY(take_i32(c, 1, &count));
    RN_TRY(take(c, (size_t)count * sizeof(float), &raw));
    RN_TRY(rn_arena_copy(&all->arena, raw, (size_t)count * sizeof(float), &block));
    float *values = block;
    for (int32_t i = 0; calls > 0 && i < count; i++)
        values[i] /= (float)calls;
    return add(all, all->count++, (rn_str){name, (size_t)length}, values, (uint64_t)count);
}

static rn_status read_entries(rn_importances *all, cursor *c) {
    enum { LEAST_ENTRY_BYTES = 4 + 1 + 4 + 4 + 4 };
    int32_t count = 0;
    RN_TRY(take_i32(c, 1, &count));
    if ((size_t)count > (c->bytes - c->at) / LEAST_ENTRY_BYTES)
        return rn_error_locate(rn_fail(RN_CORRUPT, "%d importances do not fit the file", count),
                               c->path, 0);
    RN_TRY(allocate(all, (size_t)count));
    for (int32_t i = 0; i < count; i++)
        RN_TRY(read_entry(all, c));
    return RN_OK;
}

static rn_status read_old(const char *path, rn_importances *all) {
    rn_buffer text;
    rn_buffer_init(&text, RN_HOST_IO, MAX_FILE_BYTES);
    rn_status s = rn_file_read_all(path, &text);
    cursor c = {path, text.data, text.bytes, 0};
    if (s == RN_OK) s = read_entries(all, &c);
    rn_buffer_free(&text);
    return s;
}

// ---- either -------------------------------------------------------------------------------------

static rn_status is_gguf(const char *path, bool *out) {
    char magic[4] = {0};
    uint64_t bytes;
    int fd;
    RN_TRY(rn_file_open(path, &fd, &bytes));
    rn_status s = bytes >= sizeof magic ? rn_file_read_at(fd, path, 0, magic, sizeof magic) : RN_OK;
    close(fd);
    *out = memcmp(magic, "GGUF", sizeof magic) == 0;
    return s;
}

rn_status rn_importances_read(const char *path, rn_importances *out) {
    *out = (rn_importances){0};
    rn_arena_init(&out->arena, RN_HOST_IO, 0);
    rn_map_init(&out->by_name, RN_HOST_IO);
    bool gguf = false;
    rn_status s = is_gguf(path, &gguf);
    if (s == RN_OK) s = gguf ? read_gguf(path, out) : read_old(path, out);
    if (s != RN_OK) rn_importances_free(out);
    if (s == RN_OK || rn_last_error()->path[0]) return s;
    return rn_error_locate(s, path, rn_last_error()->offset);
}

void rn_importances_free(rn_importances *all) {
    if (all->arena.from) {
        rn_map_free(&all->by_name);
        rn_arena_free_all(&all->arena);
    }
    *all = (rn_importances){0};
}

const rn_importance_entry *rn_importances_find(const rn_importances *all, rn_str name) {
    uint64_t index = 0;
    if (all->count == 0 || !rn_map_find(&all->by_name, name, &index)) return NULL;
    return &all->entries[index];
}

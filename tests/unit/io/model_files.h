// model_files.h — for the tests of src/io: files built byte by byte, without the code under test.
#ifndef RN_TEST_MODEL_FILES_H
#define RN_TEST_MODEL_FILES_H

#include "support.h"

#include <ration/checkpoint.h>
#include <ration/memory.h>

#include <dirent.h>

// ---- bytes that grow ---------------------------------------------------------------------------

typedef struct blob {
    char *data;
    size_t count, room;
} blob;

static inline void put(blob *to, const void *data, size_t count) {
    if (to->count + count > to->room) {
        to->room = (to->count + count) * 2;
        to->data = realloc(to->data, to->room);
    }
    if (count) memcpy(to->data + to->count, data, count);
    to->count += count;
}

static inline void put_text(blob *to, const char *text) {
    put(to, text, strlen(text));
}
static inline void put_u32(blob *to, uint32_t value) {
    put(to, &value, sizeof value);
}
static inline void put_u64(blob *to, uint64_t value) {
    put(to, &value, sizeof value);
}

static inline void put_zeros(blob *to, size_t count) {
    char *zeros = calloc(1, count + 1);
    put(to, zeros, count);
    free(zeros);
}

static inline void put_format(blob *to, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    int count = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert_true(count >= 0 && (size_t)count < sizeof text);
    put(to, text, (size_t)count);
}

// Writes the file and forgets the bytes.
static inline void put_file(const char *path, blob *from) {
    test_write(path, from->data, from->count);
    free(from->data);
    *from = (blob){0};
}

// ---- safetensors -------------------------------------------------------------------------------

static inline void write_safetensors(const char *path, const char *header, size_t header_bytes,
                                     const void *data, size_t data_bytes) {
    blob file = {0};
    put_u64(&file, header_bytes);
    put(&file, header, header_bytes);
    if (data)
        put(&file, data, data_bytes);
    else
        put_zeros(&file, data_bytes);
    put_file(path, &file);
}

// ---- GGUF --------------------------------------------------------------------------------------

static inline void put_string(blob *to, const char *text) {
    put_u64(to, strlen(text));
    put_text(to, text);
}

static inline void put_gguf_start(blob *to, uint32_t version, uint64_t tensors, uint64_t pairs) {
    put_text(to, "GGUF");
    put_u32(to, version);
    put_u64(to, tensors);
    put_u64(to, pairs);
}

// `dims` innermost first, as the file has them.
static inline void put_gguf_tensor(blob *to, const char *name, uint32_t rank, const uint64_t *dims,
                                   uint32_t type, uint64_t offset) {
    put_string(to, name);
    put_u32(to, rank);
    for (uint32_t i = 0; i < rank; i++)
        put_u64(to, dims[i]);
    put_u32(to, type);
    put_u64(to, offset);
}

static inline void put_padding(blob *to, size_t alignment) {
    while (to->count % alignment)
        put(to, "", 1);
}

// ---- numbers -----------------------------------------------------------------------------------

static inline uint64_t draw(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// About a bell curve with the width of trained weights.
static inline void fill_weights(float *values, size_t count, uint64_t seed) {
    uint64_t state = seed;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = draw(&state);
        float sum = 0;
        for (int k = 0; k < 4; k++, bits >>= 16)
            sum += (float)(bits & 0xFFFF) * 0x1p-16f - 0.5f;
        values[i] = sum * 0.04f;
    }
}

// ---- what must hold afterwards -----------------------------------------------------------------

static inline uint64_t held_bytes(void) {
    return rn_ledger_total(RN_DEVICE_HOST).now_bytes;
}

// The number of files in a folder, those that begin with a dot left out.
static inline size_t count_files(const char *folder) {
    size_t count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

#define assert_contains(text, part)                                                                \
    do {                                                                                           \
        if (!strstr((text), (part))) fail_msg("\"%s\" does not hold \"%s\"", (text), (part));      \
    } while (0)
// The last story's message holds `part`.
#define assert_said(part) assert_contains(rn_last_error()->message, part)

#endif

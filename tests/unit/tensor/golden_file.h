// golden_file.h — just enough of safetensors to look tensors up in a golden file that is known to
// be sound.
#ifndef RN_TEST_GOLDEN_FILE_H
#define RN_TEST_GOLDEN_FILE_H

#include "support.h"

typedef struct golden {
    char *file;    // the whole file, read with test_read
    char *header;  // the JSON, terminated
    uint8_t *data; // what follows it, aligned as malloc aligns
} golden;

static inline void golden_open(const char *path, golden *out) {
    size_t bytes;
    out->file = test_read(path, &bytes);
    assert_non_null(out->file);
    uint64_t header_bytes;
    memcpy(&header_bytes, out->file, 8);
    out->header = calloc(1, header_bytes + 1);
    memcpy(out->header, out->file + 8, header_bytes);
    out->data = malloc(bytes - 8 - header_bytes);
    memcpy(out->data, out->file + 8 + header_bytes, bytes - 8 - header_bytes);
}

static inline void golden_close(golden *g) {
    free(g->file);
    free(g->header);
    free(g->data);
}

static inline const char *golden_entry(const golden *g, const char *name, const char *field) {
    char key[160];
    snprintf(key, sizeof key, "\"%s\":{", name);
    const char *entry = strstr(g->header, key);
    if (!entry) fail_msg("no tensor %s", name);
    snprintf(key, sizeof key, "\"%s\":[", field);
    return strstr(entry, key) + strlen(key);
}

// The tensor's bytes, inside `g`.
static inline const void *golden_tensor(const golden *g, const char *name, size_t *out_bytes) {
    unsigned long begin, end;
    assert_int_equal(sscanf(golden_entry(g, name, "data_offsets"), "%lu,%lu", &begin, &end), 2);
    *out_bytes = end - begin;
    return g->data + begin;
}

// The first two dimensions.
static inline void golden_shape(const golden *g, const char *name, uint64_t out_shape[2]) {
    unsigned long rows, cols;
    assert_int_equal(sscanf(golden_entry(g, name, "shape"), "%lu,%lu", &rows, &cols), 2);
    out_shape[0] = rows;
    out_shape[1] = cols;
}

#endif

// run_text.c — texts that grow, and files that are read into them.
#include "run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rn_status append_text(void *self, const char *piece, size_t bytes) {
    text_buffer *b = self;
    if (b->bytes + bytes > TEXT_MAX_BYTES)
        return rn_fail(RN_INVALID, "a text has at most %s", rn_size_format(TEXT_MAX_BYTES).text);
    if (b->bytes + bytes + 1 > b->capacity) {
        size_t capacity = (b->bytes + bytes + 1) * 2;
        char *data = realloc(b->data, capacity);
        if (!data) return rn_fail(RN_NO_MEMORY, "no memory for the text");
        b->data = data;
        b->capacity = capacity;
    }
    if (bytes) memcpy(b->data + b->bytes, piece, bytes);
    b->bytes += bytes;
    b->data[b->bytes] = 0;
    return RN_OK;
}

static rn_status read_stream(FILE *file, const char *path, text_buffer *out) {
    char piece[8192];
    size_t bytes;
    while ((bytes = fread(piece, 1, sizeof piece, file)) > 0)
        RN_TRY(append_text(out, piece, bytes));
    return ferror(file) ? rn_fail(RN_IO, "cannot read %s: %s", path, strerror(errno)) : RN_OK;
}

rn_status read_text(const char *path, text_buffer *out) {
    if (strcmp(path, "-") == 0) return read_stream(stdin, "standard input", out);
    FILE *file = fopen(path, "rb");
    if (!file) return rn_fail(RN_NOT_FOUND, "cannot read %s: %s", path, strerror(errno));
    rn_status s = read_stream(file, path, out);
    fclose(file);
    return s;
}

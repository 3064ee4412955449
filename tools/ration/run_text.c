// run_text.c — texts that grow, and files that are read into them.
#include "run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const rn_account account = {.device = RN_DEVICE_HOST, .purpose = RN_PURPOSE_IO};

void free_text(text_buffer *text) {
    if (text->data) rn_ledger_release(account, NULL, text->capacity); // as it was charged
    free(text->data);
    *text = (text_buffer){0};
}

// The old block is there while it is copied, and on the ledger.
static rn_status grow(text_buffer *b, size_t capacity) {
    RN_TRY(rn_budget_charge(account, NULL, capacity));
    char *data = malloc(capacity);
    if (!data) {
        rn_ledger_release(account, NULL, capacity);
        return rn_fail(RN_NO_MEMORY, "no memory for the text");
    }
    if (b->bytes) memcpy(data, b->data, b->bytes);
    size_t bytes = b->bytes;
    free_text(b);
    *b = (text_buffer){data, bytes, capacity};
    return RN_OK;
}

rn_status reserve_text(text_buffer *b, size_t bytes) {
    return bytes < b->capacity ? RN_OK : grow(b, bytes + 1);
}

rn_status append_text(void *self, const char *piece, size_t bytes) {
    text_buffer *b = self;
    if (b->bytes + bytes > TEXT_MAX_BYTES)
        return rn_fail(RN_INVALID, "a text has at most %s", rn_size_format(TEXT_MAX_BYTES).text);
    if (b->bytes + bytes + 1 > b->capacity) RN_TRY(grow(b, (b->bytes + bytes + 1) * 2));
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
    // A file's size is known: it is held once, without room to grow.
    struct stat state;
    rn_status s = RN_OK;
    if (fstat(fileno(file), &state) == 0 && S_ISREG(state.st_mode) && state.st_size > 0 &&
        state.st_size <= TEXT_MAX_BYTES)
        s = reserve_text(out, out->bytes + (size_t)state.st_size);
    if (s == RN_OK) s = read_stream(file, path, out);
    fclose(file);
    return s;
}

rn_status read_line(FILE *file, text_buffer *out, bool *out_more) {
    char piece[4096];
    out->bytes = 0;
    *out_more = false;
    while (fgets(piece, sizeof piece, file)) {
        size_t bytes = strlen(piece);
        *out_more = true;
        RN_TRY(append_text(out, piece, bytes));
        if (bytes && piece[bytes - 1] == '\n') break;
    }
    while (out->bytes > 0 && strchr("\r\n", out->data[out->bytes - 1]))
        out->data[--out->bytes] = 0;
    return RN_OK;
}

uint64_t text_room(const rn_model *model, const rn_text_options *text, uint64_t held_bytes) {
    enum { FIXED = 512 << 10, EACH = 64, CONTEXT = 4096 }; // a token is 4 bytes of text, and of ids
    uint32_t trained = rn_model_get_info(model)->context, context = text->context;
    if (context == 0) context = trained && trained < CONTEXT ? trained : CONTEXT;
    uint64_t room = FIXED + (uint64_t)context * EACH;
    return room > held_bytes ? room - held_bytes : 0;
}

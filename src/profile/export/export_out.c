// export_out.c — small pieces in, large pieces out.
#include "base/str.h"
#include "memory/account.h"
#include "profile/export/export.h"

#define FROM (&rn_host_allocators[RN_PURPOSE_PROFILER])

rn_status rn_out_open(rn_out *out, rn_sink sink) {
    *out = (rn_out){.sink = sink};
    return rn_alloc(FROM, RN_OUT_BYTES, (void **)&out->data);
}

static void flush(rn_out *out) {
    if (out->status == RN_OK) out->status = rn_sink_write(out->sink, out->data, out->bytes);
    out->bytes = 0;
}

rn_status rn_out_close(rn_out *out) {
    flush(out);
    rn_free(FROM, out->data, RN_OUT_BYTES);
    out->data = NULL;
    return out->status;
}

char *rn_out_room(rn_out *out, size_t bytes) {
    if (bytes > RN_OUT_BYTES - out->bytes) flush(out);
    return out->data + out->bytes;
}

void rn_out_put_large(rn_out *out, const void *data, size_t bytes) {
    flush(out);
    if (bytes <= RN_OUT_BYTES)
        rn_out_put(out, data, bytes);
    else if (out->status == RN_OK)
        out->status = rn_sink_write(out->sink, data, bytes);
}

void rn_out_text(rn_out *out, const char *text) {
    rn_out_put(out, text, strlen(text));
}

void rn_out_u64(rn_out *out, uint64_t value) {
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    rn_out_put(out, digits + at, sizeof digits - at);
}

void rn_out_i64(rn_out *out, int64_t value) {
    if (value < 0) rn_out_put(out, "-", 1);
    rn_out_u64(out, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

static void put_escape(rn_out *out, unsigned char c) {
    static const char hex[] = "0123456789abcdef";
    if (c == '"' || c == '\\')
        rn_out_put(out, (char[]){'\\', (char)c}, 2);
    else
        rn_out_put(out, (char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6);
}

void rn_out_quoted(rn_out *out, rn_str text) {
    size_t run = 0; // start of the bytes not yet written
    rn_out_put(out, "\"", 1);
    for (size_t i = 0; i < text.bytes; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7F) continue;
        rn_out_put(out, text.data + run, i - run);
        put_escape(out, c);
        run = i + 1;
    }
    rn_out_put(out, text.data + run, text.bytes - run);
    rn_out_put(out, "\"", 1);
}

static rn_status write_out(void *self, const char *text, size_t bytes) {
    rn_out *out = self;
    rn_out_put(out, text, bytes);
    return out->status;
}

rn_sink rn_out_sink(rn_out *out) {
    return (rn_sink){out, write_out};
}

// stopper.c — stop strings in text that comes in pieces.
//
//     held      piece                    stops: "</s>", "<end"
//     "ab<"  +  "/s"          "ab" goes out, "</s" may still become a stop
//
// The first stop to be complete is the one that counts; of two that end at the same byte, the
// longer. So the result does not depend on where pieces were cut. Only what is at the same time the
// end of the text and the beginning of a stop string is held: less than the longest of them.
#include <ration/generate.h>

#include "base/checked.h"
#include "memory/account.h"

#include <string.h>

#define FROM RN_HOST_OTHER

enum { MOST_BYTES = 256 }; // of a stop string

struct rn_stopper {
    rn_str *stops; // (count), of this block
    size_t count, block_bytes;
    bool stopped;
    size_t held_bytes;
    char held[MOST_BYTES];
};

// What is held and the piece behind it, as one text.
typedef struct text {
    const rn_stopper *stopper;
    rn_str piece;
    size_t bytes;
} text;

// ---- life ---------------------------------------------------------------------------------------

static rn_status count_bytes(const rn_str *stops, size_t count, size_t *out) {
    if (count > SIZE_MAX / (sizeof(rn_str) + MOST_BYTES) - sizeof(rn_stopper))
        return rn_fail(RN_INVALID, "%zu stop strings are too many", count);
    *out = sizeof(rn_stopper) + count * sizeof(rn_str);
    for (size_t i = 0; i < count; i++) {
        if (stops[i].bytes == 0 || stops[i].bytes > MOST_BYTES)
            return rn_fail(RN_INVALID, "stop string %zu has %zu bytes: it must have 1 to %d", i + 1,
                           stops[i].bytes, MOST_BYTES);
        *out += stops[i].bytes;
    }
    return RN_OK;
}

rn_status rn_stopper_create(const rn_str *stops, size_t count, rn_stopper **out) {
    void *block = NULL;
    size_t bytes = 0;
    *out = NULL;
    RN_TRY(count_bytes(stops, count, &bytes));
    RN_TRY(rn_alloc_zeroed(FROM, 1, bytes, &block));
    rn_stopper *stopper = block;
    stopper->stops = (rn_str *)(stopper + 1);
    stopper->count = count;
    stopper->block_bytes = bytes;
    char *at = (char *)(stopper->stops + count);
    for (size_t i = 0; i < count; i++) {
        memcpy(at, stops[i].data, stops[i].bytes);
        stopper->stops[i] = (rn_str){at, stops[i].bytes};
        at += stops[i].bytes;
    }
    *out = stopper;
    return RN_OK;
}

void rn_stopper_destroy(rn_stopper *stopper) {
    if (stopper) rn_free(FROM, stopper, stopper->block_bytes);
}

// ---- looking ------------------------------------------------------------------------------------

static char byte_at(const text *t, size_t at) {
    size_t held = t->stopper->held_bytes;
    return at < held ? t->stopper->held[at] : t->piece.data[at - held];
}

// Whether the `bytes` bytes up to `end` are the beginning of `stop`.
static bool ends_with(const text *t, size_t end, rn_str stop, size_t bytes) {
    if (bytes > stop.bytes || bytes > end) return false;
    for (size_t i = 0; i < bytes; i++)
        if (byte_at(t, end - bytes + i) != stop.data[i]) return false;
    return true;
}

// The length of the longest stop string that ends at `end`, or 0.
static size_t find_stop(const text *t, size_t end) {
    size_t longest = 0;
    for (size_t i = 0; i < t->stopper->count; i++) {
        rn_str stop = t->stopper->stops[i];
        if (ends_with(t, end, stop, stop.bytes)) longest = rn_max_u64(longest, stop.bytes);
    }
    return longest;
}

// How much of the text's end may be the beginning of a stop string.
static size_t count_held(const text *t) {
    for (size_t bytes = rn_min_u64(t->bytes, MOST_BYTES - 1); bytes > 0; bytes--)
        for (size_t i = 0; i < t->stopper->count; i++)
            if (ends_with(t, t->bytes, t->stopper->stops[i], bytes)) return bytes;
    return 0;
}

// ---- writing ------------------------------------------------------------------------------------

// The first `bytes` bytes of the text.
static rn_status write_text(const text *t, size_t bytes, rn_sink sink) {
    size_t held = rn_min_u64(bytes, t->stopper->held_bytes);
    if (held) RN_TRY(rn_sink_write(sink, t->stopper->held, held));
    if (bytes > held) RN_TRY(rn_sink_write(sink, t->piece.data, bytes - held));
    return RN_OK;
}

// The text's end moves to the front: a byte never goes where one is yet to be read.
static void hold(rn_stopper *stopper, const text *t, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        stopper->held[i] = byte_at(t, t->bytes - bytes + i);
    stopper->held_bytes = bytes;
}

rn_status rn_stopper_put(rn_stopper *stopper, rn_str piece, rn_sink sink, bool *out_stopped) {
    text t = {stopper, piece, stopper->held_bytes + piece.bytes};
    for (size_t end = stopper->held_bytes + 1; !stopper->stopped && end <= t.bytes; end++) {
        size_t stop = find_stop(&t, end);
        if (stop == 0) continue;
        stopper->stopped = true;
        rn_status s = write_text(&t, end - stop, sink);
        stopper->held_bytes = 0;
        *out_stopped = true;
        return s;
    }
    *out_stopped = stopper->stopped;
    if (stopper->stopped) return RN_OK;
    size_t held = count_held(&t);
    rn_status s = write_text(&t, t.bytes - held, sink);
    hold(stopper, &t, held);
    return s;
}

rn_status rn_stopper_flush(rn_stopper *stopper, rn_sink sink) {
    text t = {.stopper = stopper};
    rn_status s = write_text(&t, stopper->held_bytes, sink);
    stopper->held_bytes = 0;
    return s;
}

// page_lz.c — greedy, with one candidate a hash: where these four bytes were last. What repeats
// with one period is found at once and followed to its end, so every byte is looked at about twice.
#include "profile/page/page_lz.h"

#include <stdbool.h>
#include <string.h>

typedef struct writer {
    uint8_t *data;
    size_t bytes, capacity;
    bool full;
} writer;

static void put(writer *out, const uint8_t *data, size_t bytes) {
    out->full |= bytes > out->capacity - out->bytes;
    if (out->full) return;
    memcpy(out->data + out->bytes, data, bytes);
    out->bytes += bytes;
}

static void put_number(writer *out, size_t value) {
    uint8_t digits[10];
    size_t count = 0;
    for (; value >= 128; value >>= 7)
        digits[count++] = (uint8_t)(value | 128);
    digits[count++] = (uint8_t)value;
    put(out, digits, count);
}

static uint32_t slot_of(const uint8_t *at) {
    uint32_t four;
    memcpy(&four, at, sizeof four);
    return (four * 2654435761u) >> 16;
}

// How many bytes at `a` and `b`, which is behind it, are the same, up to `end`.
static size_t match(const uint8_t *a, const uint8_t *b, const uint8_t *end) {
    const uint8_t *begin = b;
    while (b < end && *a == *b) {
        a++;
        b++;
    }
    return (size_t)(b - begin);
}

// Positions are kept from 1: 0 is an empty slot.
size_t rn_page_lz_pack(const uint8_t *from, size_t bytes, uint8_t *to, size_t capacity,
                       uint32_t *slots) {
    writer out = {.data = to, .capacity = capacity};
    size_t literal = 0, at = 0;
    memset(slots, 0, RN_PAGE_LZ_SLOTS * sizeof *slots);
    while (at + RN_PAGE_LZ_LEAST <= bytes && !out.full) {
        uint32_t *slot = &slots[slot_of(from + at)], seen = *slot;
        *slot = (uint32_t)at + 1;
        size_t length = seen ? match(from + seen - 1, from + at, from + bytes) : 0;
        if (length < RN_PAGE_LZ_LEAST) {
            at++;
            continue;
        }
        put_number(&out, at - literal);
        put(&out, from + literal, at - literal);
        put_number(&out, length - RN_PAGE_LZ_LEAST);
        put_number(&out, at + 1 - seen);
        for (size_t end = at + length, i = at + 1; i < end && i + RN_PAGE_LZ_LEAST <= bytes; i++)
            slots[slot_of(from + i)] = (uint32_t)i + 1;
        at += length;
        literal = at;
    }
    if (literal < bytes) {
        put_number(&out, bytes - literal);
        put(&out, from + literal, bytes - literal);
    }
    return out.full ? 0 : out.bytes;
}

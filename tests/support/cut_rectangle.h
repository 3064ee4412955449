// cut_rectangle.h — placement problems whose optimum is known: a rectangle of moments x bytes is
// cut into pieces, and each piece is a buffer that lives as long as it is wide. Uncut, they fill
// the rectangle without a gap, so the least height is the rectangle's.
//
//     bytes |  a  |  b   |        guillotine: every cut goes right through one piece
//           |-----|---+--|        pinwheel:   some pieces are cut into five around a middle one,
//           |   c     |d |                    which no cut right through can do
//           +---------+--+        loose:      a tenth of the pieces is taken away, none of those
//              moments                        that are alive at one moment: it is still full
//                                 long:       cuts along time are rare, lives are long
//                                 mixed:      a few pieces live long, the others a moment or two
//                                 chain:      the upper two thirds are first cut into eight
//                                 stretches
//                                             of time, then loosened like "loose": once the long
//                                             pieces lie, they are eight problems
//
// Header only: unit tests and benchmarks share it.
#ifndef RN_TESTS_CUT_RECTANGLE_H
#define RN_TESTS_CUT_RECTANGLE_H

#include <ration/place.h>

typedef enum cut_family {
    CUT_GUILLOTINE,
    CUT_PINWHEEL,
    CUT_LOOSE,
    CUT_LONG,
    CUT_MIXED,
    CUT_CHAIN,
    CUT_FAMILIES
} cut_family;

static const char *const cut_family_names[CUT_FAMILIES] = {"guillotine", "pinwheel", "loose",
                                                           "long",       "mixed",    "chain"};

typedef struct cut_rectangle {
    rn_place_buffer *buffers; // (room for `count` of the call)
    uint64_t *bottom;         // (the same): where each piece was cut from
    size_t count;
    uint64_t moments, height_bytes, grain;
    uint64_t random;
} cut_rectangle;

static inline uint64_t cut_random(cut_rectangle *r, uint64_t limit) {
    r->random = r->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (r->random >> 33) % limit;
}

static inline uint64_t cut_width(const rn_place_buffer *b) {
    return b->upper - b->lower;
}

// The larger of three random pieces: sizes vary, but none stays huge.
static inline size_t cut_choose(cut_rectangle *r) {
    size_t chosen = cut_random(r, r->count);
    for (int i = 0; i < 2; i++) {
        size_t other = cut_random(r, r->count);
        const rn_place_buffer *a = &r->buffers[chosen], *b = &r->buffers[other];
        if (cut_width(b) * b->size_bytes > cut_width(a) * a->size_bytes) chosen = other;
    }
    return chosen;
}

static inline void cut_add(cut_rectangle *r, uint64_t lower, uint64_t upper, uint64_t bottom,
                           uint64_t top) {
    r->bottom[r->count] = bottom;
    r->buffers[r->count++] = (rn_place_buffer){lower, upper, top - bottom, 0};
}

// Cuts a piece in two: after some moments, or at some offset. False where it is too small.
static inline bool cut_in_two(cut_rectangle *r, size_t at, bool in_time) {
    rn_place_buffer b = r->buffers[at];
    uint64_t steps = in_time ? cut_width(&b) : b.size_bytes / r->grain;
    if (steps < 2) return false;
    uint64_t cut = 1 + cut_random(r, steps - 1), bottom = r->bottom[at];
    if (in_time) {
        r->buffers[at].upper = b.lower + cut;
        cut_add(r, b.lower + cut, b.upper, bottom, bottom + b.size_bytes);
    } else {
        r->buffers[at].size_bytes = cut * r->grain;
        cut_add(r, b.lower, b.upper, bottom + cut * r->grain, bottom + b.size_bytes);
    }
    return true;
}

// Five pieces, four of them around the fifth:   |  d   |c |
//                                               |--+---|  |
//                                               |a |mid|  |
//                                               |  +---+--|
//                                               |  |  b   |
static inline bool cut_in_five(cut_rectangle *r, size_t at) {
    rn_place_buffer b = r->buffers[at];
    uint64_t steps = b.size_bytes / r->grain, bottom = r->bottom[at];
    if (cut_width(&b) < 3 || steps < 3) return false;
    uint64_t left = b.lower + 1 + cut_random(r, cut_width(&b) - 2);
    uint64_t right = left + 1 + cut_random(r, b.upper - left - 1);
    uint64_t low = 1 + cut_random(r, steps - 2), high = low + 1 + cut_random(r, steps - low - 1);
    uint64_t y1 = bottom + low * r->grain, y2 = bottom + high * r->grain;
    r->buffers[at] = (rn_place_buffer){b.lower, left, y2 - bottom, 0};
    cut_add(r, left, b.upper, bottom, y1);
    cut_add(r, right, b.upper, y1, bottom + b.size_bytes);
    cut_add(r, b.lower, right, y2, bottom + b.size_bytes);
    cut_add(r, left, right, y1, y2);
    return true;
}

static inline bool cut_once(cut_rectangle *r, cut_family family, size_t count) {
    static const uint64_t time_cuts[CUT_FAMILIES] = {50, 50, 50, 15, 50, 50}; // per cent
    size_t at = cut_choose(r);
    if (family == CUT_PINWHEEL && r->count + 4 <= count && cut_random(r, 3) == 0)
        return cut_in_five(r, at);
    if (family != CUT_MIXED) return cut_in_two(r, at, cut_random(r, 100) < time_cuts[family]);
    // The pieces at the bottom keep their lives; the others are mostly cut in time.
    bool keeps = r->bottom[at] < r->height_bytes / 3;
    return cut_in_two(r, at, !keeps && cut_random(r, 100) < 70);
}

// Takes a tenth of the pieces away, none that are alive in the middle.
static inline void cut_loosen(cut_rectangle *r) {
    uint64_t middle = r->moments / 2;
    for (size_t gone = r->count / 10, tries = 20 * r->count; gone > 0 && tries > 0; tries--) {
        size_t at = cut_random(r, r->count);
        if (r->buffers[at].lower <= middle && middle < r->buffers[at].upper) continue;
        r->count--;
        r->buffers[at] = r->buffers[r->count];
        r->bottom[at] = r->bottom[r->count];
        gone--;
    }
}

// The lower third, and the rest in eight stretches.
static inline void cut_chain(cut_rectangle *r) {
    uint64_t third = r->height_bytes / r->grain / 3 * r->grain;
    r->count = 0;
    cut_add(r, 0, r->moments, 0, third);
    for (uint64_t i = 0; i < 8; i++)
        cut_add(r, r->moments * i / 8, r->moments * (i + 1) / 8, third, r->height_bytes);
}

// Cuts moments x height_bytes into `count` pieces, or as many as there is room for; both arrays of
// *r have room for `count`. Pieces come in a random order, sizes are multiples of r->grain.
static inline void cut_make(cut_rectangle *r, cut_family family, uint64_t seed, size_t count) {
    r->random = seed * UINT64_C(2654435761) + (uint64_t)family;
    r->count = 0;
    cut_add(r, 0, r->moments, 0, r->height_bytes);
    if (family == CUT_CHAIN && count > 9) cut_chain(r);
    for (size_t tries = 100 * count; r->count < count && tries > 0; tries--)
        cut_once(r, family, count);
    if (family == CUT_LOOSE || family == CUT_CHAIN) cut_loosen(r);
    for (size_t i = r->count; i > 1; i--) {
        size_t j = cut_random(r, i);
        rn_place_buffer buffer = r->buffers[i - 1];
        uint64_t bottom = r->bottom[i - 1];
        r->buffers[i - 1] = r->buffers[j];
        r->bottom[i - 1] = r->bottom[j];
        r->buffers[j] = buffer;
        r->bottom[j] = bottom;
    }
}

#endif

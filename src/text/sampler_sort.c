// sampler_sort.c — three rounds of a radix sort, from the lowest digit up. Each keeps the order of
// equals, so of equal logits the lower token stays in front.
#include "text/sampler_sort.h"

#include <string.h>

enum { BITS = 11, DIGITS = 1 << BITS };

// Ascending keys are descending values.
static uint32_t key_of(float value) {
    uint32_t bits;
    value += 0.0f; // -0 is 0
    memcpy(&bits, &value, sizeof bits);
    return bits >> 31 ? bits : ~bits & 0x7fffffffu;
}

static uint32_t digit_of(float value, int round) {
    return key_of(value) >> round * BITS & (DIGITS - 1);
}

static void deal(const rn_candidate_token *from, size_t count, int round, rn_candidate_token *to) {
    uint32_t next[DIGITS] = {0}, begin = 0;
    for (size_t i = 0; i < count; i++)
        next[digit_of(from[i].value, round)]++;
    for (uint32_t d = 0; d < DIGITS; d++) {
        uint32_t items = next[d];
        next[d] = begin;
        begin += items;
    }
    for (size_t i = 0; i < count; i++)
        to[next[digit_of(from[i].value, round)]++] = from[i];
}

void rn_logits_sort(const float *logits, size_t count, rn_candidate_token *out,
                    rn_candidate_token *spare) {
    for (size_t i = 0; i < count; i++)
        spare[i] = (rn_candidate_token){(uint32_t)i, logits[i]};
    deal(spare, count, 0, out);
    deal(out, count, 1, spare);
    deal(spare, count, 2, out);
}

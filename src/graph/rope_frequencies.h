// rope_frequencies.h — how fast each pair of a head turns, under every scaling of rope that Hugging
// Face's transformers knows. Back ends share this table; what they do with it is op/rope.c's rule.
#ifndef RN_GRAPH_ROPE_FREQUENCIES_H
#define RN_GRAPH_ROPE_FREQUENCIES_H

#include "graph/op.h"

// The dims that are rotated: attrs->dims, or all.
static inline uint64_t rn_rope_dims(const rn_rope_attrs *attrs, uint64_t head_dim) {
    return attrs->dims ? attrs->dims : head_dim;
}

// 0: positions are one a token.
static inline uint32_t rn_rope_section_count(const rn_rope_attrs *attrs) {
    uint32_t count = 0;
    while (count < RN_ROPE_SECTIONS && attrs->sections[count])
        count++;
    return count;
}

// The positions of a token, pair by pair.
typedef struct rn_rope_places {
    const rn_rope_attrs *attrs;
    const int32_t *positions; // (sections), or of one
} rn_rope_places;

static inline rn_rope_places rn_rope_places_of(const rn_rope_attrs *attrs, const int32_t *positions,
                                               uint64_t token) {
    uint32_t sections = rn_rope_section_count(attrs);
    return (rn_rope_places){attrs, positions + token * (sections ? sections : 1)};
}

static inline int32_t rn_rope_place(const rn_rope_places *of, uint64_t pair) {
    uint32_t section = 0;
    if (of->attrs->sections[0])
        for (; section + 1 < RN_ROPE_SECTIONS && pair >= of->attrs->sections[section] / 2;
             section++)
            pair -= of->attrs->sections[section] / 2;
    return of->positions[section];
}

// Radians a position for pair 0 .. dims / 2 - 1, and the factor that cos and sin are multiplied by
// (1 but for YARN, where it is not given). beta_fast and beta_slow of 0 mean 32 and 1. The
// attributes are those that rope's shape rule let in.
void rn_rope_frequencies(const rn_rope_attrs *attrs, uint64_t head_dim,
                         double *out /* (dims / 2) */, double *out_attention_factor);
// Each frequency by the divisor of its pair, f32 (dims / 2) in the host's memory.
void rn_rope_divide(const rn_tensor *divisors, uint64_t dims, double *frequencies);

#endif

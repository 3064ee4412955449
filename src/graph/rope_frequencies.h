// rope_frequencies.h — how fast each pair of a head turns, under every scaling of rope that Hugging
// Face's transformers knows. Back ends share this table; what they do with it is op/rope.c's rule.
#ifndef RN_GRAPH_ROPE_FREQUENCIES_H
#define RN_GRAPH_ROPE_FREQUENCIES_H

#include "graph/op.h"

// The dims that are rotated: attrs->dims, or all.
static inline uint64_t rn_rope_dims(const rn_rope_attrs *attrs, uint64_t head_dim) {
    return attrs->dims ? attrs->dims : head_dim;
}

// Radians a position for pair 0 .. dims / 2 - 1, and the factor that cos and sin are multiplied by
// (1 but for YARN, where it is not given). beta_fast and beta_slow of 0 mean 32 and 1. The
// attributes are those that rope's shape rule let in.
void rn_rope_frequencies(const rn_rope_attrs *attrs, uint64_t head_dim,
                         double *out /* (dims / 2) */, double *out_attention_factor);
// Each frequency by the divisor of its pair, f32 (dims / 2) in the host's memory.
void rn_rope_divide(const rn_tensor *divisors, uint64_t dims, double *frequencies);

#endif

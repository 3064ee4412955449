// random.h — what the random ops share: where their seed comes from, and their own shape.
#ifndef RN_GRAPH_OP_RANDOM_H
#define RN_GRAPH_OP_RANDOM_H

#include "graph/op.h"
#include "graph/philox.h"

#include <stdio.h>

// The attributes of random_uniform and random_normal: the shape has no input to come from.
typedef struct rn_random_shape_attrs {
    rn_random_attrs random;
    rn_shape shape; // may hold RN_ROWS
} rn_random_shape_attrs;

// The run's seed: a whole number from 0 to 2^53.
static inline rn_status rn_random_seed(const rn_call *call, uint32_t scalar, uint64_t *out) {
    double seed = call->scalars[scalar].f64;
    if (!(seed >= 0 && seed <= 0x1p53) || seed != (double)(uint64_t)seed)
        return rn_fail(RN_INVALID, "%s: the seed %g is no whole number from 0 to 2^53",
                       rn_op_name(call->op), seed);
    *out = (uint64_t)seed;
    return RN_OK;
}

static inline void rn_random_print(const void *attrs, char *out, size_t bytes) {
    const rn_random_attrs *a = &((const rn_random_shape_attrs *)attrs)->random;
    snprintf(out, bytes, "%g, %g, stream %u", a->low, a->high, a->stream);
}

#endif

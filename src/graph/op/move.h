// move.h — what the ops share that move elements without looking into them.
#ifndef RN_GRAPH_OP_MOVE_H
#define RN_GRAPH_OP_MOVE_H

#include "graph/op.h"
#include "graph/op/walk.h"

#include <string.h>

// Input `input` has elements of whole bytes that stand alone: no blocks, no scales behind them.
static inline rn_status rn_shape_want_plain(const rn_shaping *s, uint32_t input) {
    rn_dtype dtype = s->in[input].dtype;
    if (rn_dtype_get(dtype)->block_elements == 1 && dtype != RN_DTYPE_INT8) return RN_OK;
    return rn_shape_fail(s, "elements of %s cannot be moved one by one", rn_dtype_get(dtype)->name);
}

static inline uint64_t rn_element_bytes(const rn_tensor *plain) {
    return rn_dtype_get(plain->dtype)->block_bytes;
}

// Moving is no arithmetic.
static inline void rn_move_cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
}

// Elements from `axis` on that lie together, and how many such runs there are.
typedef struct rn_runs {
    uint64_t count, elements;
} rn_runs;

static inline rn_runs rn_runs_of(rn_shape shape, uint32_t axis) {
    rn_runs runs = {1, 1};
    for (uint32_t i = 0; i < shape.rank; i++)
        *(i < axis ? &runs.count : &runs.elements) *= shape.dims[i];
    return runs;
}

// Copies `n` elements of `size` bytes; steps are in elements.
static inline void rn_move_row(char *to, uint64_t to_step, const char *from, uint64_t from_step,
                               uint64_t n, uint64_t size) {
    if (to_step == 1 && from_step == 1) {
        memcpy(to, from, n * size);
    } else if (size == 4) { // a constant size is one instruction
        for (uint64_t i = 0; i < n; i++)
            memcpy(to + i * to_step * 4, from + i * from_step * 4, 4);
    } else {
        for (uint64_t i = 0; i < n; i++)
            memcpy(to + i * to_step * size, from + i * from_step * size, size);
    }
}

// Fills `to` from `from`, where an element's neighbours along to's axes are `strides` away.
static inline void rn_move_strided(const rn_tensor *to, const rn_tensor *from, rn_strides strides) {
    uint64_t size = rn_element_bytes(to);
    rn_walk w = rn_walk_begin(to->shape, strides, rn_strides_of(to->shape));
    do
        rn_move_row((char *)to->data + w.at[1] * size, w.step[1],
                    (const char *)from->data + w.at[0] * size, w.step[0], w.count, size);
    while (rn_walk_next(&w));
}

#endif

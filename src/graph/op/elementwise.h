// elementwise.h — the loops of ops that make each element from one place of their inputs.
//
// The functions here are inlined with their constant `fn`, so that each op has its own tight loop.
// Every loop reads an element before it writes that place: outputs may overwrite inputs.
#ifndef RN_GRAPH_OP_ELEMENTWISE_H
#define RN_GRAPH_OP_ELEMENTWISE_H

#include "graph/op.h"
#include "graph/op/walk.h"

#include <math.h>

// y = fn(x)
static inline rn_status rn_map(const rn_call *call, float (*fn)(float x)) {
    const float *x = call->inputs[0].data; // (n)
    float *y = call->outputs[0].data;      // (n)
    uint64_t n = rn_tensor_elements(&call->outputs[0]);
    for (uint64_t i = 0; i < n; i++)
        y[i] = fn(x[i]);
    return RN_OK;
}

// y = fn(a, b), both of y's shape.
static inline rn_status rn_map_pairs(const rn_call *call, float (*fn)(float a, float b)) {
    const float *a = call->inputs[0].data, *b = call->inputs[1].data; // (n)
    float *y = call->outputs[0].data;                                 // (n)
    uint64_t n = rn_tensor_elements(&call->outputs[0]);
    for (uint64_t i = 0; i < n; i++)
        y[i] = fn(a[i], b[i]);
    return RN_OK;
}

// A row of y; a step of 0 means one element for the whole row.
static inline void rn_map_row(const float *a, uint64_t a_step, const float *b, uint64_t b_step,
                              float *y, uint64_t n, float (*fn)(float a, float b)) {
    if (a_step && b_step)
        for (uint64_t i = 0; i < n; i++)
            y[i] = fn(a[i], b[i]);
    else if (a_step)
        for (uint64_t i = 0; i < n; i++)
            y[i] = fn(a[i], *b);
    else
        for (uint64_t i = 0; i < n; i++)
            y[i] = fn(*a, b[i * b_step]);
}

// y = fn(a, b) with a and b stretched to y's shape.
static inline rn_status rn_map_broadcast(const rn_call *call, float (*fn)(float a, float b)) {
    const rn_tensor *a = &call->inputs[0], *b = &call->inputs[1];
    rn_shape shape = call->outputs[0].shape;
    float *y = call->outputs[0].data;
    rn_walk w = rn_walk_begin(shape, rn_strides_stretched(a->shape, shape),
                              rn_strides_stretched(b->shape, shape));
    do {
        rn_map_row((const float *)a->data + w.at[0], w.step[0], (const float *)b->data + w.at[1],
                   w.step[1], y, w.count, fn);
        y += w.count;
    } while (rn_walk_next(&w));
    return RN_OK;
}

// A broadcast may overwrite the first input that has the output's shape.
static inline rn_alias rn_broadcast_alias(const rn_call *call, uint32_t output,
                                          uint64_t *out_offset_bytes) {
    (void)output, (void)out_offset_bytes;
    for (uint32_t i = 0; i < 2; i++)
        if (rn_shape_equal(call->inputs[i].shape, call->outputs[0].shape))
            return (rn_alias)RN_ALIAS_MAY(i);
    return (rn_alias){RN_ALIAS_KIND_NONE, 0};
}

#endif

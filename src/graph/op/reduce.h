// reduce.h — what sum, mean and max share: axes given as bits are folded away.
//
// NaN counts as larger than everything, so that max and argmax show it, as in PyTorch.
#ifndef RN_GRAPH_OP_REDUCE_H
#define RN_GRAPH_OP_REDUCE_H

#include "graph/op.h"
#include "graph/op/walk.h"

// The shape rule of sum, mean and max.
rn_status rn_reduce_shape(rn_shaping *s);
// One operation an element of input 0: for whatever makes less than it reads.
void rn_reduce_cost(const rn_call *call, rn_cost *out);
void rn_reduce_print(const void *attrs, char *out, size_t bytes);
// The gradient of a sum: out_gradients[0], stretched to the shape of input 0.
rn_value rn_reduce_spread(rn_backward *b);

// x's shape with the axes that are not in `axes` as 1. Walked in steps of x's strides it visits the
// elements that are folded into one; with ~axes, where each of those groups begins.
rn_shape rn_reduce_axes(rn_shape x, uint32_t axes);

static inline bool rn_is_larger(float x, float than) {
    return x > than || (x != x && than == than);
}

enum { RN_REDUCE_LANES = 64 };

// Folds the elements of `group` into each of `n` neighbouring sums.
static inline void rn_reduce_group(const float *x, rn_walk group, double *sums /* (n) */,
                                   uint64_t n, double (*fold)(double sum, float x)) {
    do {
        const float *p = x + group.at[0];
        for (uint64_t i = 0; i < group.count; i++, p += group.step[0])
            for (uint64_t j = 0; j < n; j++)
                sums[j] = fold(sums[j], p[j]);
    } while (rn_walk_next(&group));
}

// y = the fold of each group, from `start` on, divided by `divisor`. Elements of a group come in
// order; where the last axis is kept, its neighbours go side by side.
static inline rn_status rn_reduce(const rn_call *call, double start,
                                  double (*fold)(double sum, float x), double divisor) {
    const rn_reduce_attrs *attrs = call->attrs;
    const float *x = call->inputs[0].data;
    float *y = call->outputs[0].data;
    rn_shape shape = call->inputs[0].shape;
    rn_strides strides = rn_strides_of(shape);
    rn_walk group = rn_walk_begin(rn_reduce_axes(shape, attrs->axes), strides, strides);
    rn_walk kept = rn_walk_begin(rn_reduce_axes(shape, ~attrs->axes), strides, strides);
    uint64_t lanes = kept.step[0] == 1 ? RN_REDUCE_LANES : 1;
    do {
        for (uint64_t i = 0; i < kept.count; i += lanes) {
            double sums[RN_REDUCE_LANES];
            uint64_t n = kept.count - i < lanes ? kept.count - i : lanes;
            for (uint64_t j = 0; j < n; j++)
                sums[j] = start;
            rn_reduce_group(x + kept.at[0] + i * kept.step[0], group, sums, n, fold);
            for (uint64_t j = 0; j < n; j++)
                *y++ = (float)(sums[j] / divisor);
        }
    } while (rn_walk_next(&kept));
    return RN_OK;
}

#endif

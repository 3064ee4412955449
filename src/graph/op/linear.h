// linear.h — which scale an element has, for quantize_linear and dequantize_linear.
#ifndef RN_GRAPH_OP_LINEAR_H
#define RN_GRAPH_OP_LINEAR_H

#include "graph/op/number.h"

enum { RN_LINEAR_X, RN_LINEAR_SCALE, RN_LINEAR_ZERO };

// Scales fit x: one, one an index of the axis, or one a block of it; zeros are as many.
static inline rn_status rn_linear_shape(rn_shaping *s) {
    const rn_linear_attrs *a = s->attrs;
    rn_shape x = s->in[RN_LINEAR_X].shape, scale = s->in[RN_LINEAR_SCALE].shape, blocks = x;
    RN_TRY(rn_shape_want_float(s, RN_LINEAR_SCALE));
    s->out[0].shape = x;
    s->out[0].dtype = a->dtype;
    bool given = s->in[RN_LINEAR_ZERO].dtype != RN_DTYPE_NONE;
    if (given && !rn_shape_equal(s->in[RN_LINEAR_ZERO].shape, scale))
        return rn_shape_fail(s, "zeros must have the shape of the scales");
    if (rn_shape_elements(scale, 2) == 1) return RN_OK;
    RN_TRY(rn_shape_want_axis(s, RN_LINEAR_X, a->axis));
    uint64_t length = x.dims[a->axis];
    if (a->block == 0 && rn_shape_equal(scale, RN_SHAPE(length))) return RN_OK;
    if (a->block == 0 || length == RN_ROWS)
        return rn_shape_fail(s, "scales must be one, or one an index of axis %u", a->axis);
    blocks.dims[a->axis] = (length - 1) / a->block + 1;
    if (rn_shape_equal(scale, blocks)) return RN_OK;
    return rn_shape_fail(s, "scales must be %s", rn_shape_format(blocks).text);
}

// The scale of element i of x.
static inline uint64_t rn_linear_scale_at(const rn_call *call, uint64_t i) {
    const rn_linear_attrs *a = call->attrs;
    if (rn_tensor_elements(&call->inputs[RN_LINEAR_SCALE]) == 1) return 0;
    rn_axis_cut cut = rn_axis_cut_of(call->inputs[RN_LINEAR_X].shape, a->axis);
    uint64_t inner = i % cut.inner, at = i / cut.inner % cut.length;
    if (a->block == 0) return at;
    uint64_t blocks = (cut.length - 1) / a->block + 1;
    return (i / cut.inner / cut.length * blocks + at / a->block) * cut.inner + inner;
}

#endif

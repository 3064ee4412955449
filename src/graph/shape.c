// shape.c — shapes as values, and the shape rules that many ops share.
#include "graph/op.h"

#include "base/checked.h"

#include <stdio.h>

rn_shape_text rn_shape_format(rn_shape shape) {
    rn_shape_text out;
    size_t at = 0, room = sizeof out.text;
    at += (size_t)snprintf(out.text, room, "(");
    for (uint32_t i = 0; i < shape.rank && i < RN_MAX_RANK && at < room; i++) {
        const char *comma = i ? ", " : "";
        at +=
            (size_t)(shape.dims[i] == RN_ROWS ? snprintf(out.text + at, room - at, "%srows", comma)
                                              : snprintf(out.text + at, room - at, "%s%llu", comma,
                                                         (unsigned long long)shape.dims[i]));
    }
    if (at < room) snprintf(out.text + at, room - at, ")");
    return out;
}

bool rn_shape_equal(rn_shape a, rn_shape b) {
    if (a.rank != b.rank) return false;
    for (uint32_t i = 0; i < a.rank; i++)
        if (a.dims[i] != b.dims[i]) return false;
    return true;
}

uint64_t rn_shape_elements(rn_shape shape, uint64_t rows) {
    uint64_t elements = 1;
    for (uint32_t i = 0; i < shape.rank; i++)
        if (!rn_mul_u64(elements, shape.dims[i] == RN_ROWS ? rows : shape.dims[i], &elements))
            return UINT64_MAX;
    return elements;
}

// The axis that aligns with axis i of a shape of `rank`, or 1 where this shape is shorter.
static uint64_t aligned_axis(rn_shape shape, uint32_t rank, uint32_t i) {
    uint32_t missing = rank - shape.rank;
    return i < missing ? 1 : shape.dims[i - missing];
}

bool rn_shape_join(rn_shape a, rn_shape b, rn_shape *out) {
    *out = (rn_shape){.rank = a.rank > b.rank ? a.rank : b.rank};
    for (uint32_t i = 0; i < out->rank; i++) {
        uint64_t x = aligned_axis(a, out->rank, i), y = aligned_axis(b, out->rank, i);
        if (x != y && x != 1 && y != 1) return false;
        out->dims[i] = x == 1 ? y : x;
    }
    return true;
}

rn_status rn_shape_like_first(rn_shaping *s) {
    for (uint32_t i = 0; i < s->input_count; i++) {
        if (s->in[i].dtype == RN_DTYPE_NONE) continue;
        RN_TRY(rn_shape_want(s, i, RN_DTYPE_F32));
        if (!rn_shape_equal(s->in[0].shape, s->in[i].shape))
            return rn_shape_fail(s, "input %u must have the shape of the first", i);
    }
    s->out[0].shape = s->in[0].shape;
    return RN_OK;
}

rn_status rn_shape_broadcast(rn_shaping *s) {
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_F32));
    RN_TRY(rn_shape_want(s, 1, RN_DTYPE_F32));
    if (!rn_shape_join(s->in[0].shape, s->in[1].shape, &s->out[0].shape))
        return rn_shape_fail(s, "the shapes do not broadcast");
    return RN_OK;
}

// The gradient of a broadcast: axes that were added are summed away, axes that were stretched are
// summed to 1.
rn_value rn_graph_unbroadcast(rn_graph *graph, rn_value gradient, rn_value like) {
    if (gradient == RN_NO_VALUE || like == RN_NO_VALUE) return RN_NO_VALUE;
    rn_shape from = rn_graph_value(graph, gradient)->shape;
    rn_shape to = rn_graph_value(graph, like)->shape;
    uint32_t axes = 0, extra = from.rank - to.rank;
    for (uint32_t i = 0; i < from.rank; i++)
        if (i < extra || (to.dims[i - extra] == 1 && from.dims[i] != 1)) axes |= 1u << i;
    if (axes == 0) return gradient;
    return rn_op_reshape(graph, rn_op_sum(graph, gradient, axes, true), to);
}

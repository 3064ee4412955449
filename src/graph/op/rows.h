// rows.h — a tensor as rows along its last axis, for ops that work on one row at a time, and the
// shape rules that they share.
#ifndef RN_GRAPH_OP_ROWS_H
#define RN_GRAPH_OP_ROWS_H

#include "graph/op.h"

typedef struct rn_row_count {
    uint64_t rows, width; // the product of all axes but the last; the last axis
} rn_row_count;

static inline rn_row_count rn_rows_of(const rn_tensor *tensor) {
    rn_row_count n = {.rows = 1, .width = 1};
    for (uint32_t i = 0; i < tensor->shape.rank; i++) {
        n.rows *= n.width;
        n.width = tensor->shape.dims[i];
    }
    return n;
}

static inline rn_shape rn_shape_without_last(rn_shape shape) {
    shape.dims[--shape.rank] = 0;
    return shape;
}

// Input 0 is f32 and has a last axis.
static inline rn_status rn_shape_want_rows(const rn_shaping *s) {
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_F32));
    if (s->in[0].shape.rank == 0) return rn_shape_fail(s, "a single element has no last axis");
    return RN_OK;
}

// Input 0 is f32 and its last axis, the channels, has a constant length.
static inline rn_status rn_shape_want_channels(const rn_shaping *s, uint64_t *out_channels) {
    *out_channels = 0;
    RN_TRY(rn_shape_want_rows(s));
    uint64_t channels = s->in[0].shape.dims[s->in[0].shape.rank - 1];
    if (channels == RN_ROWS) return rn_shape_fail(s, "the last axis must be a constant");
    *out_channels = channels;
    return RN_OK;
}

// An f32 input of this shape, or one that was left out where the op allows it.
static inline rn_status rn_shape_want_shape(const rn_shaping *s, uint32_t input, const char *what,
                                            rn_shape shape) {
    if (s->in[input].dtype == RN_DTYPE_NONE) return RN_OK;
    RN_TRY(rn_shape_want(s, input, RN_DTYPE_F32));
    if (rn_shape_equal(s->in[input].shape, shape)) return RN_OK;
    return rn_shape_fail(s, "%s must be %s", what, rn_shape_format(shape).text);
}

#endif

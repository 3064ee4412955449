// argmax.c — where the largest element of each row lies: the first of equals, a NaN before all.
#include "graph/op/reduce.h"
#include "graph/op/rows.h"

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_shape_want_rows(s));
    s->out[0].shape = rn_shape_without_last(s->in[0].shape);
    s->out[0].dtype = RN_DTYPE_I32;
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    const float *x = call->inputs[0].data; // (rows, width)
    int32_t *y = call->outputs[0].data;    // (rows)
    for (uint64_t row = 0; row < n.rows; row++, x += n.width) {
        uint64_t best = 0;
        for (uint64_t i = 1; i < n.width; i++)
            if (rn_is_larger(x[i], x[best])) best = i;
        y[row] = (int32_t)best;
    }
    return RN_OK;
}

extern const rn_op_info rn_argmax_op;
const rn_op_info rn_argmax_op = {
    .name = "argmax",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = rn_reduce_cost,
    .reference = reference,
};

rn_value rn_op_argmax(rn_graph *g, rn_value x) {
    return rn_graph_add(g, RN_OP_ARGMAX, &x, 1, NULL);
}

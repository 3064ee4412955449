// mean.c — the mean over some of the axes; NaN over nothing.
#include "graph/op/reduce.h"

static double add(double sum, float x) {
    return sum + x;
}

static rn_status reference(const rn_call *call) {
    const rn_reduce_attrs *attrs = call->attrs;
    uint64_t n = rn_shape_elements(rn_reduce_axes(call->inputs[0].shape, attrs->axes), 0);
    return rn_reduce(call, 0.0, add, (double)n);
}

// How many rows a run has, as a value: the sum of that many ones.
static rn_value count_rows(rn_graph *g) {
    static const char name[] = "the number one";
    static const float one = 1.0f;
    rn_value constant = rn_graph_find(g, RN_ROLE_CONSTANT, name);
    if (constant == RN_NO_VALUE)
        constant = rn_graph_constant(g, name, RN_DTYPE_F32, RN_SCALAR, &one);
    return rn_op_sum(g, rn_op_broadcast(g, constant, RN_SHAPE(RN_ROWS)), 0x1, false);
}

static rn_status gradient(rn_backward *b) {
    const rn_reduce_attrs *attrs = b->node.attrs;
    rn_shape x = rn_graph_value(b->graph, b->node.inputs[0])->shape;
    uint64_t n = rn_shape_elements(rn_reduce_axes(x, attrs->axes), 1); // rows apart
    rn_value dy = rn_op_scale(b->graph, b->out_gradients[0], (float)(1.0 / (double)n), 0.0f);
    bool over_rows = x.rank > 0 && x.dims[0] == RN_ROWS && attrs->axes & 1;
    if (over_rows) dy = rn_op_div(b->graph, dy, count_rows(b->graph));
    rn_backward scaled = *b;
    scaled.out_gradients = &dy;
    b->in_gradients[0] = rn_reduce_spread(&scaled);
    return RN_OK;
}

extern const rn_op_info rn_mean_op;
const rn_op_info rn_mean_op = {
    .name = "mean",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_reduce_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = rn_reduce_shape,
    .cost = rn_reduce_cost,
    .gradient = gradient,
    .reference = reference,
    .print = rn_reduce_print,
};

rn_value rn_op_mean(rn_graph *g, rn_value x, uint32_t axes, bool keep) {
    if (rn_graph_takes_any(g, x)) return rn_op_reduce(g, RN_REDUCE_MEAN, x, axes, keep);
    return rn_graph_add(g, RN_OP_MEAN, &x, 1, &(rn_reduce_attrs){axes, keep});
}

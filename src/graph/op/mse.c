// mse.c — the mean of (a - b) squared over all elements: one number, 0 over nothing.
#include "graph/op/grads.h"
#include "graph/op/reduce.h"

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_shape_like_first(s));
    s->out[0].shape = RN_SCALAR;
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const float *a = call->inputs[0].data, *b = call->inputs[1].data; // (n)
    float *loss = call->outputs[0].data;                              // ()
    uint64_t n = rn_tensor_elements(&call->inputs[0]);
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        double difference = (double)a[i] - b[i];
        sum += difference * difference;
    }
    *loss = n ? (float)(sum / (double)n) : 0.0f;
    return RN_OK;
}

static rn_status gradient(rn_backward *b) {
    rn_value da =
        rn_op_mse_grad(b->graph, b->node.inputs[0], b->node.inputs[1], b->out_gradients[0]);
    if (b->wanted[0]) b->in_gradients[0] = da;
    if (b->wanted[1]) b->in_gradients[1] = rn_op_neg(b->graph, da);
    return RN_OK;
}

extern const rn_op_info rn_mse_op;
const rn_op_info rn_mse_op = {
    .name = "mse",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = rn_reduce_cost,
    .gradient = gradient,
    .reference = reference,
};

rn_value rn_op_mse(rn_graph *g, rn_value a, rn_value b) {
    return rn_graph_add(g, RN_OP_MSE, (rn_value[]){a, b}, 2, NULL);
}

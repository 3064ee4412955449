// mse_grad.c — a, b, dloss -> d a = 2 (a - b) dloss / n.
#include "graph/op/grads.h"
#include "graph/op/rows.h"

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_F32));
    RN_TRY(rn_shape_want_shape(s, 1, "b", s->in[0].shape));
    RN_TRY(rn_shape_want_shape(s, 2, "dloss", RN_SCALAR));
    s->out[0].shape = s->in[0].shape;
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const float *a = call->inputs[0].data, *b = call->inputs[1].data; // (n)
    const float *dloss = call->inputs[2].data;                        // ()
    float *da = call->outputs[0].data;                                // (n)
    uint64_t n = rn_tensor_elements(&call->inputs[0]);
    double factor = 2.0 * *dloss / (double)n;
    for (uint64_t i = 0; i < n; i++)
        da[i] = (float)(((double)a[i] - b[i]) * factor);
    return RN_OK;
}

extern const rn_op_info rn_mse_grad_op;
const rn_op_info rn_mse_grad_op = {
    .name = "mse_grad",
    .min_inputs = 3,
    .max_inputs = 3,
    .output_count = 1,
    .traits = RN_TRAIT_EXACT,
    .alias = {RN_ALIAS_MAY(0)},
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
};

rn_value rn_op_mse_grad(rn_graph *g, rn_value a, rn_value b, rn_value dloss) {
    return rn_graph_add(g, RN_OP_MSE_GRAD, (rn_value[]){a, b, dloss}, 3, NULL);
}

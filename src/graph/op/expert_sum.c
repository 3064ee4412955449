// expert_sum.c — what the experts of a row said, each by its weight, in the router's order.
#include "graph/op.h"

#include <math.h>

enum { Y, WEIGHTS, INPUTS };

static rn_status shape(rn_shaping *s) {
    rn_shape y = s->in[Y].shape, weights = s->in[WEIGHTS].shape;
    RN_TRY(rn_shape_want(s, Y, RN_DTYPE_F32));
    RN_TRY(rn_shape_want(s, WEIGHTS, RN_DTYPE_F32));
    if (y.rank != 3 || weights.rank != 2 || y.dims[0] != weights.dims[0] ||
        y.dims[1] != weights.dims[1] || y.dims[1] == 0)
        return rn_shape_fail(s, "y is (rows, k, N), weights are (rows, k)");
    s->out[0].shape = RN_SHAPE(y.dims[0], y.dims[2]);
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += 2.0 * (double)rn_tensor_elements(&call->inputs[Y]);
}

static rn_status reference(const rn_call *call) {
    rn_shape shape = call->inputs[Y].shape;
    uint64_t rows = shape.dims[0], k = shape.dims[1], n = shape.dims[2];
    const float *y = call->inputs[Y].data,
                *w = call->inputs[WEIGHTS].data; // (rows, k, n), (rows, k)
    float *out = call->outputs[0].data;          // (rows, n)
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t j = 0; j < n; j++) {
            float acc = 0;
            for (uint64_t i = 0; i < k; i++)
                acc = fmaf(w[r * k + i], y[(r * k + i) * n + j], acc);
            out[r * n + j] = acc;
        }
    return RN_OK;
}

extern const rn_op_info rn_expert_sum_op;
const rn_op_info rn_expert_sum_op = {
    .name = "expert_sum",
    .min_inputs = INPUTS,
    .max_inputs = INPUTS,
    .output_count = 1,
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = cost,
    .reference = reference,
};

rn_value rn_op_expert_sum(rn_graph *g, rn_value y, rn_value weights) {
    return rn_graph_add(g, RN_OP_EXPERT_SUM, (rn_value[]){y, weights}, INPUTS, NULL);
}

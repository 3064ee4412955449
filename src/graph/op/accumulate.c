// accumulate.c — sum += gradient, in place. The sum is f32, or bf16: then each addition is rounded
// to the nearest.
#include "graph/op.h"

static rn_status shape(rn_shaping *s) {
    rn_dtype dtype = s->in[0].dtype;
    if (dtype != RN_DTYPE_BF16) RN_TRY(rn_shape_want(s, 0, RN_DTYPE_F32));
    RN_TRY(rn_shape_want(s, 1, RN_DTYPE_F32));
    if (!rn_shape_equal(s->in[0].shape, s->in[1].shape))
        return rn_shape_fail(s, "input 1 must have the shape of the first");
    s->out[0].shape = s->in[0].shape;
    s->out[0].dtype = dtype;
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const float *gradient = call->inputs[1].data;
    rn_dtype dtype = call->inputs[0].dtype;
    const uint8_t *sum = call->inputs[0].data;
    uint8_t *out = call->outputs[0].data;
    uint64_t n = rn_tensor_elements(&call->outputs[0]), size = dtype == RN_DTYPE_BF16 ? 2 : 4;
    for (uint64_t i = 0; i < n; i++) {
        float value = 0;
        RN_TRY(rn_dtype_to_f32(dtype, sum + i * size, &value, 1));
        value += gradient[i];
        RN_TRY(rn_dtype_from_f32(dtype, &value, out + i * size, 1));
    }
    return RN_OK;
}

extern const rn_op_info rn_accumulate_op;
const rn_op_info rn_accumulate_op = {
    .name = "accumulate",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .half_inputs = 2,
    .traits = RN_TRAIT_ACCUMULATE,
    .alias = {RN_ALIAS_MUST(0)},
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
};

rn_value rn_op_accumulate(rn_graph *g, rn_value sum, rn_value gradient) {
    return rn_graph_add(g, RN_OP_ACCUMULATE, (rn_value[]){sum, gradient}, 2, NULL);
}

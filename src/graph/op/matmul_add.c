// matmul_add.c — addend + X W + bias: a product that is added to what is there. What policies of 16
// bits make of a product and a sum (graph/fold_sums.h): the sum is rounded once. The bias may be
// left out.
#include "graph/fused.h"

enum { X, W, ADDEND, BIAS, INPUTS };

static rn_tensor bias_of(const rn_call *call) {
    return call->input_count > BIAS ? call->inputs[BIAS] : (rn_tensor){.dtype = RN_DTYPE_NONE};
}

static rn_status shape(rn_shaping *s) {
    struct rn_typed in[3] = {s->in[X], s->in[W], {.dtype = RN_DTYPE_NONE}};
    if (s->input_count > BIAS) in[2] = s->in[BIAS];
    RN_TRY(rn_fused_shape(s, RN_OP_MATMUL, s->attrs, in, 3, &s->out[0]));
    RN_TRY(rn_shape_want(s, ADDEND, RN_DTYPE_F32));
    if (rn_shape_equal(s->in[ADDEND].shape, s->out[0].shape)) return RN_OK;
    return rn_shape_fail(s, "the addend must have the product's shape, %s",
                         rn_shape_format(s->out[0].shape).text);
}

static void unfold(const rn_call *call, rn_fused *out) {
    const rn_tensor *in = call->inputs, bias = bias_of(call);
    rn_tensor product = rn_fused_hand(out, call->outputs[0].shape); // y may be the addend's memory
    rn_fused_add(out, RN_OP_MATMUL, call->attrs, (rn_tensor[]){in[X], in[W], bias}, 3, &product, 1);
    rn_fused_add(out, RN_OP_ADD, NULL, (rn_tensor[]){in[ADDEND], product}, 2, call->outputs, 1);
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    rn_fused_flops(call, out);
}

static bool describe_product(const rn_call *call, uint32_t index, rn_product *out) {
    const rn_matmul_attrs *a = call->attrs;
    *out = (rn_product){.x = X,
                        .weight = W,
                        .bias = call->input_count > BIAS ? BIAS : RN_NO_INPUT,
                        .norm = RN_NO_INPUT,
                        .residual = ADDEND,
                        .transposed = a->transpose_x || a->transpose_w,
                        .unquantised_activations = a->unquantised_activations};
    return index == 0;
}

static void print(const void *attrs, char *out, size_t bytes) {
    rn_op_get(RN_OP_MATMUL)->print(attrs, out, bytes);
}

extern const rn_op_info rn_matmul_add_op;
const rn_op_info rn_matmul_add_op = {
    .name = "matmul_add",
    .min_inputs = BIAS,
    .max_inputs = INPUTS,
    .optional_inputs = 1u << BIAS,
    .output_count = 1,
    .half_inputs = 1u << X | 1u << ADDEND,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_matmul_attrs),
    .traits = RN_TRAIT_PRODUCT,
    .product = describe_product,
    .alias = {RN_ALIAS_MAY(ADDEND)},
    .shape = shape,
    .cost = cost,
    .workspace = rn_fused_reference_workspace,
    .reference = rn_fused_reference,
    .unfold = unfold,
    .print = print,
};

rn_value rn_op_matmul_add(rn_graph *g, rn_value x, rn_value w, rn_value addend,
                          rn_matmul_attrs attrs) {
    return rn_graph_add(g, RN_OP_MATMUL_ADD, (rn_value[]){x, w, addend}, BIAS, &attrs);
}

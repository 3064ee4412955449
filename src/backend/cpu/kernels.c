// kernels.c — the table of the CPU's kernels, in the order of ops.def: one line an op.
#include "backend/cpu/cpu.h"

#include "base/checked.h"
#include "graph/fused.h"
#include "graph/linear_loss.h"
#include "graph/op/conv.h"

static rn_status reference(const rn_call *call) {
    return rn_op_get(call->op)->reference(call);
}

static uint64_t reference_workspace(const rn_call *call) {
    const rn_op_info *op = rn_op_get(call->op);
    return op->workspace ? rn_round_up(op->workspace(call), 64) : 0;
}

// A pure view: its output is its input's bytes.
static rn_status view(const rn_call *call) {
    (void)call;
    return RN_OK;
}

// A fused op: the kernels of its parts, one after the other.
static rn_status run_part(const rn_call *part) {
    return rn_cpu_kernels[part->op].run(part);
}

static uint64_t part_workspace(const rn_call *part) {
    const rn_kernel *kernel = &rn_cpu_kernels[part->op];
    return kernel->workspace ? kernel->workspace(part) : 0;
}

static rn_status fused(const rn_call *call) {
    return rn_fused_run(call, run_part);
}

static uint64_t fused_workspace(const rn_call *call) {
    return rn_round_up(rn_fused_workspace(call, part_workspace), 64);
}

static rn_status linear_cross_entropy(const rn_call *call) {
    return rn_linear_loss_run(call, run_part);
}

static uint64_t linear_cross_entropy_workspace(const rn_call *call) {
    return rn_round_up(rn_linear_loss_workspace(call, part_workspace), 64);
}

#define REFERENCE                                                                                  \
    { reference, reference_workspace }
#define FUSED                                                                                      \
    { fused, fused_workspace }

const rn_kernel rn_cpu_kernels[RN_OP_COUNT] = {
    // elementwise
    [RN_OP_ADD] = {rn_cpu_add, NULL},
    [RN_OP_SUB] = {rn_cpu_sub, NULL},
    [RN_OP_MUL] = {rn_cpu_mul, NULL},
    [RN_OP_DIV] = {rn_cpu_div, NULL},
    [RN_OP_NEG] = {rn_cpu_neg, NULL},
    [RN_OP_EXP] = {rn_cpu_exp, NULL},
    [RN_OP_LOG] = REFERENCE,
    [RN_OP_SQRT] = {rn_cpu_sqrt, NULL},
    [RN_OP_RSQRT] = {rn_cpu_rsqrt, NULL},
    [RN_OP_POW] = REFERENCE,
    [RN_OP_CLAMP] = {rn_cpu_clamp, NULL},
    [RN_OP_CLAMP_GRAD] = {rn_cpu_clamp_grad, NULL},
    [RN_OP_SCALE] = {rn_cpu_scale, NULL},
    [RN_OP_RELU] = {rn_cpu_relu, NULL},
    [RN_OP_RELU_GRAD] = {rn_cpu_relu_grad, NULL},
    [RN_OP_SIGMOID] = {rn_cpu_sigmoid, NULL},
    [RN_OP_TANH] = {rn_cpu_tanh, NULL},
    [RN_OP_SILU] = {rn_cpu_silu, NULL},
    [RN_OP_SILU_GRAD] = {rn_cpu_silu_grad, NULL},
    [RN_OP_GELU] = {rn_cpu_gelu, NULL},
    [RN_OP_GELU_GRAD] = {rn_cpu_gelu_grad, NULL},
    [RN_OP_GELU_TANH] = {rn_cpu_gelu_tanh, NULL},
    [RN_OP_GELU_TANH_GRAD] = {rn_cpu_gelu_tanh_grad, NULL},
    [RN_OP_GATED] = {rn_cpu_gated, NULL},
    [RN_OP_GATED_GRAD] = {rn_cpu_gated_grad, NULL},
    // rows
    [RN_OP_SOFTMAX] = {rn_cpu_softmax, NULL},
    [RN_OP_SOFTMAX_GRAD] = {rn_cpu_softmax_grad, NULL},
    [RN_OP_LAYERNORM] = {rn_cpu_norm, NULL},
    [RN_OP_LAYERNORM_GRAD] = {rn_cpu_norm_grad, rn_cpu_norm_grad_workspace},
    [RN_OP_RMSNORM] = {rn_cpu_norm, NULL},
    [RN_OP_RMSNORM_GRAD] = {rn_cpu_norm_grad, rn_cpu_norm_grad_workspace},
    [RN_OP_BATCHNORM] = {rn_cpu_batchnorm, rn_cpu_batchnorm_workspace},
    [RN_OP_BATCHNORM_GRAD] = {rn_cpu_batchnorm_grad, rn_cpu_batchnorm_grad_workspace},
    [RN_OP_GROUP_NORM] = {rn_cpu_group_norm, rn_cpu_group_norm_workspace},
    [RN_OP_GROUP_NORM_GRAD] = {rn_cpu_group_norm_grad, rn_cpu_group_norm_grad_workspace},
    // products
    [RN_OP_MATMUL] = {rn_cpu_matmul, rn_cpu_matmul_workspace},
    [RN_OP_CONV2D] = {rn_cpu_conv2d, rn_cpu_conv2d_workspace},
    [RN_OP_CONV2D_GRAD_INPUT] = {rn_cpu_conv2d_grad_input, rn_cpu_conv2d_grad_input_workspace},
    [RN_OP_CONV2D_GRAD_WEIGHT] = {rn_cpu_conv2d_grad_weight, rn_cpu_conv2d_grad_weight_workspace},
    [RN_OP_EMBEDDING] = REFERENCE,
    [RN_OP_EMBEDDING_GRAD] = {rn_cpu_embedding_grad, NULL},
    [RN_OP_MATMUL_ADD] = FUSED,
    [RN_OP_PROJECT] = FUSED,
    [RN_OP_PROJECT_THREE] = FUSED,
    [RN_OP_PROJECT_GATED] = FUSED,
    // mixture of experts
    [RN_OP_ROUTE] = {rn_cpu_route, rn_cpu_route_workspace},
    [RN_OP_EXPERT_PRODUCT] = {rn_cpu_expert_product, rn_cpu_expert_product_workspace},
    [RN_OP_EXPERT_SUM] = {rn_cpu_expert_sum, NULL},
    [RN_OP_HEAD_PRODUCT] = {rn_cpu_head_product, rn_cpu_head_product_workspace},
    // attention
    [RN_OP_ROPE] = {rn_cpu_rope, rn_cpu_rope_workspace},
    [RN_OP_ATTENTION] = {rn_cpu_attention, rn_cpu_attention_workspace},
    [RN_OP_ATTENTION_GRAD] = {rn_cpu_attention_grad, rn_cpu_attention_grad_workspace},
    [RN_OP_KV_APPEND] = REFERENCE,
    [RN_OP_PAGED_ATTENTION] = {rn_cpu_paged_attention, rn_cpu_paged_attention_workspace},
    [RN_OP_ATTEND] = FUSED,
    // recurrent states
    [RN_OP_SHORT_CONV] = {rn_cpu_short_conv, NULL},
    [RN_OP_DELTA_RULE] = {rn_cpu_delta_rule, NULL},
    [RN_OP_VARLEN_ATTENTION] = {rn_cpu_varlen_attention, rn_cpu_varlen_attention_workspace},
    // reductions
    [RN_OP_SUM] = {rn_cpu_sum, NULL},
    [RN_OP_MEAN] = {rn_cpu_sum, NULL},
    [RN_OP_MAX] = {rn_cpu_max, NULL},
    [RN_OP_MAX_GRAD] = REFERENCE,
    [RN_OP_SUM_SQUARES] = {rn_cpu_sum_squares, NULL},
    [RN_OP_ARGMAX] = REFERENCE,
    [RN_OP_AVG_POOL] = {rn_cpu_pool2d, NULL},
    [RN_OP_AVG_POOL_GRAD] = REFERENCE,
    [RN_OP_MAX_POOL] = {rn_cpu_pool2d, NULL},
    [RN_OP_MAX_POOL_GRAD] = REFERENCE,
    // moving elements
    [RN_OP_RESHAPE] = {view, NULL},
    [RN_OP_PERMUTE] = {rn_cpu_permute, NULL},
    [RN_OP_SLICE] = REFERENCE,
    [RN_OP_CONCAT] = REFERENCE,
    [RN_OP_PAD] = REFERENCE,
    [RN_OP_BROADCAST] = REFERENCE,
    [RN_OP_CAST] = {rn_cpu_cast, NULL},
    [RN_OP_QUANTIZE] = REFERENCE,
    [RN_OP_DEQUANTIZE] = REFERENCE,
    // losses
    [RN_OP_CROSS_ENTROPY] = {rn_cpu_cross_entropy, rn_cpu_cross_entropy_workspace},
    [RN_OP_CROSS_ENTROPY_GRAD] = {rn_cpu_cross_entropy_grad, NULL},
    [RN_OP_LINEAR_CROSS_ENTROPY] = {linear_cross_entropy, linear_cross_entropy_workspace},
    [RN_OP_MSE] = REFERENCE,
    [RN_OP_MSE_GRAD] = REFERENCE,
    // random numbers
    [RN_OP_RANDOM_UNIFORM] = REFERENCE,
    [RN_OP_RANDOM_NORMAL] = REFERENCE,
    [RN_OP_DROPOUT] = REFERENCE,
    // training
    [RN_OP_ADAMW] = {rn_cpu_adamw, NULL},
    [RN_OP_SGD] = {rn_cpu_sgd, NULL},
    [RN_OP_LION] = {rn_cpu_lion, NULL},
    [RN_OP_ADAMW8] = {rn_cpu_adamw8, NULL},
    [RN_OP_LION8] = {rn_cpu_lion8, NULL},
    [RN_OP_ADAFACTOR] = {rn_cpu_adafactor, rn_cpu_adafactor_workspace},
    [RN_OP_AVERAGE] = {rn_cpu_average, NULL},
    [RN_OP_ACCUMULATE] = {rn_cpu_accumulate, NULL},
    // several ranks
    [RN_OP_ALL_GATHER] = {rn_cpu_all_gather, rn_cpu_all_gather_workspace},
    // fine-tuning
    [RN_OP_ADAPTED_NORM] = {rn_cpu_adapted_norm, rn_cpu_adapted_norm_workspace},
    [RN_OP_TREE_SUM] = {rn_cpu_tree_sum, NULL},
    [RN_OP_RANK_SUM] = REFERENCE,
    [RN_OP_RANK_GATHER] = REFERENCE,
    // of any plain dtype
    [RN_OP_UNARY] = {rn_cpu_unary, NULL},
    [RN_OP_BINARY] = {rn_cpu_any, NULL},
    [RN_OP_COMPARE] = {rn_cpu_any, NULL},
    [RN_OP_SELECT] = {rn_cpu_any, NULL},
    [RN_OP_CONVERT] = {rn_cpu_any, NULL},
    [RN_OP_REDUCE] = {rn_cpu_reduce, NULL},
    [RN_OP_ARG_REDUCE] = REFERENCE,
    [RN_OP_GATHER] = REFERENCE,
    [RN_OP_SCATTER] = REFERENCE,
    [RN_OP_STRIDED_SLICE] = REFERENCE,
    [RN_OP_SOFT] = REFERENCE,
    [RN_OP_CUMULATE] = REFERENCE,
    [RN_OP_TOP_K] = REFERENCE,
    [RN_OP_REVERSE_SEQUENCE] = REFERENCE,
    [RN_OP_PRODUCT] = {rn_cpu_product, rn_cpu_product_workspace},
    [RN_OP_PRODUCT_SCALED] = {rn_cpu_product, rn_cpu_product_workspace},
    [RN_OP_CONV] = {rn_cpu_conv, rn_cpu_conv_workspace},
    [RN_OP_CONV_CLAMP] = {rn_cpu_conv_clamp, rn_cpu_conv_clamp_workspace},
    [RN_OP_CONV_TRANSPOSE] = REFERENCE,
    [RN_OP_CONV_GRAD_WEIGHT] = REFERENCE,
    [RN_OP_POOL] = {rn_cpu_pool, NULL},
    [RN_OP_RESIZE] = REFERENCE,
    [RN_OP_RESIZE_GRAD] = REFERENCE,
    [RN_OP_GRID_SAMPLE] = REFERENCE,
    [RN_OP_RNN] = REFERENCE,
    [RN_OP_QUANTIZE_LINEAR] = {rn_cpu_quantize_linear, NULL},
    [RN_OP_DEQUANTIZE_LINEAR] = {rn_cpu_dequantize_linear, NULL},
    [RN_OP_DFT] = REFERENCE,
    [RN_OP_COL2IM] = REFERENCE,
    [RN_OP_ROI_ALIGN] = REFERENCE,
};

// A weight (K, N) by rows of x.
static bool reads_across(const rn_call *call) {
    const rn_matmul_attrs *attrs = call->attrs;
    return attrs->transpose_w && !attrs->transpose_x;
}

rn_layout rn_cpu_weight_layout(const rn_call *call, uint32_t input) {
    const rn_tensor *weight = &call->inputs[input];
    const uint64_t *dims = weight->shape.dims;
    rn_product product;
    uint64_t bytes;
    bool is_product = rn_call_product_of(call, input, &product) && weight->shape.rank == 2;
    // Panels are along K: f32 that is read across has its own.
    if (is_product && product.transposed && weight->dtype == RN_DTYPE_F32)
        return call->op == RN_OP_MATMUL && reads_across(call) ? RN_LAYOUT_COLUMN_PANELS
                                                              : RN_LAYOUT_PLAIN;
    if (is_product && rn_layout_bytes(RN_LAYOUT_PANELS, weight->dtype, dims[0], dims[1], &bytes))
        return RN_LAYOUT_PANELS;
    rn_expert_call experts;
    if (rn_call_experts(call, &experts) && input == experts.weight &&
        rn_cpu_experts_take_panels(&experts) &&
        rn_layout_bytes(RN_LAYOUT_PANELS, weight->dtype, dims[0], dims[1], &bytes))
        return RN_LAYOUT_PANELS;
    bool is_byte = weight->dtype == RN_DTYPE_I8 || weight->dtype == RN_DTYPE_U8;
    bool product_of_bytes = call->op == RN_OP_PRODUCT || call->op == RN_OP_PRODUCT_SCALED;
    if (product_of_bytes && input == 1 && is_byte && weight->shape.rank == 2)
        return RN_LAYOUT_COLUMN_PANELS;
    bool conv2d = call->op == RN_OP_CONV2D;
    if (call->op == RN_OP_CONV_CLAMP)
        conv2d = rn_conv_is_conv2d(&((const rn_conv_clamp_attrs *)call->attrs)->conv,
                                   call->inputs[0].shape.rank);
    bool floats = weight->dtype == RN_DTYPE_F32 || weight->dtype == RN_DTYPE_F16 ||
                  weight->dtype == RN_DTYPE_BF16;
    if (conv2d && input == 1 && floats) return RN_LAYOUT_CONV_PANELS;
    return RN_LAYOUT_PLAIN;
}

// kernels.c — the table of the device's kernels, in the order of ops.def: one line an op. An op
// without a line is not supported.
#include "backend/cuda/rows.h"

#include "tensor/tiles.h"

// A pure view: its output is its input's bytes.
static rn_status view(const rn_call *call) {
    (void)call;
    return RN_OK;
}

const rn_kernel rn_cuda_kernels[RN_OP_COUNT] = {
    // elementwise
    [RN_OP_ADD] = {rn_cuda_pair, NULL},
    [RN_OP_SUB] = {rn_cuda_pair, NULL},
    [RN_OP_MUL] = {rn_cuda_pair, NULL},
    [RN_OP_DIV] = {rn_cuda_pair, NULL},
    [RN_OP_NEG] = {rn_cuda_map, NULL},
    [RN_OP_EXP] = {rn_cuda_map, NULL},
    [RN_OP_LOG] = {rn_cuda_map, NULL},
    [RN_OP_SQRT] = {rn_cuda_map, NULL},
    [RN_OP_RSQRT] = {rn_cuda_map, NULL},
    [RN_OP_POW] = {rn_cuda_pow, NULL},
    [RN_OP_CLAMP] = {rn_cuda_clamp, NULL},
    [RN_OP_CLAMP_GRAD] = {rn_cuda_clamp_grad, NULL},
    [RN_OP_SCALE] = {rn_cuda_scale, NULL},
    [RN_OP_RELU] = {rn_cuda_map, NULL},
    [RN_OP_RELU_GRAD] = {rn_cuda_slope, NULL},
    [RN_OP_SIGMOID] = {rn_cuda_map, NULL},
    [RN_OP_TANH] = {rn_cuda_map, NULL},
    [RN_OP_SILU] = {rn_cuda_map, NULL},
    [RN_OP_SILU_GRAD] = {rn_cuda_slope, NULL},
    [RN_OP_GELU] = {rn_cuda_map, NULL},
    [RN_OP_GELU_GRAD] = {rn_cuda_slope, NULL},
    [RN_OP_GELU_TANH] = {rn_cuda_map, NULL},
    [RN_OP_GELU_TANH_GRAD] = {rn_cuda_slope, NULL},
    [RN_OP_GATED] = {rn_cuda_gated, NULL},
    [RN_OP_GATED_GRAD] = {rn_cuda_gated_grad, NULL},
    // rows
    [RN_OP_SOFTMAX] = {rn_cuda_softmax, NULL},
    [RN_OP_SOFTMAX_GRAD] = {rn_cuda_softmax_grad, NULL},
    [RN_OP_LAYERNORM] = {rn_cuda_layernorm, NULL},
    [RN_OP_LAYERNORM_GRAD] = {rn_cuda_layernorm_grad, rn_cuda_norm_grad_workspace},
    [RN_OP_RMSNORM] = {rn_cuda_rmsnorm, NULL},
    [RN_OP_RMSNORM_GRAD] = {rn_cuda_rmsnorm_grad, rn_cuda_norm_grad_workspace},
    [RN_OP_BATCHNORM] = {rn_cuda_batchnorm, rn_cuda_batchnorm_workspace},
    [RN_OP_BATCHNORM_GRAD] = {rn_cuda_batchnorm_grad, rn_cuda_batchnorm_grad_workspace},
    [RN_OP_GROUP_NORM] = {rn_cuda_group_norm, rn_cuda_group_norm_workspace},
    [RN_OP_GROUP_NORM_GRAD] = {rn_cuda_group_norm_grad, rn_cuda_group_norm_grad_workspace},
    // products
    [RN_OP_MATMUL] = {rn_cuda_matmul, rn_cuda_matmul_workspace},
    [RN_OP_MATMUL_ADD] = {rn_cuda_matmul_add, rn_cuda_matmul_add_workspace},
    [RN_OP_CONV2D] = {rn_cuda_conv, rn_cuda_conv_workspace},
    [RN_OP_CONV2D_GRAD_INPUT] = {rn_cuda_conv_grad_input, rn_cuda_conv_grad_input_workspace},
    [RN_OP_CONV2D_GRAD_WEIGHT] = {rn_cuda_conv_grad_weight, rn_cuda_conv_grad_weight_workspace},
    [RN_OP_PROJECT] = {rn_cuda_project, rn_cuda_project_workspace},
    [RN_OP_PROJECT_THREE] = {rn_cuda_project, rn_cuda_project_workspace},
    [RN_OP_PROJECT_GATED] = {rn_cuda_project, rn_cuda_project_workspace},
    [RN_OP_EMBEDDING] = {rn_cuda_embedding, NULL},
    [RN_OP_EMBEDDING_GRAD] = {rn_cuda_embedding_grad, rn_cuda_embedding_grad_workspace},
    // attention
    [RN_OP_ROPE] = {rn_cuda_rope, NULL},
    [RN_OP_ATTENTION] = {rn_cuda_attention, rn_cuda_attention_workspace},
    [RN_OP_ATTENTION_GRAD] = {rn_cuda_attention_grad, rn_cuda_attention_grad_workspace},
    [RN_OP_VARLEN_ATTENTION] = {rn_cuda_varlen_attention, NULL},
    [RN_OP_KV_APPEND] = {rn_cuda_kv_append, NULL},
    [RN_OP_PAGED_ATTENTION] = {rn_cuda_paged_attention, rn_cuda_paged_attention_workspace},
    [RN_OP_ATTEND] = {rn_cuda_attend, rn_cuda_attend_workspace},
    // recurrent states
    [RN_OP_SHORT_CONV] = {rn_cuda_short_conv, NULL},
    [RN_OP_DELTA_RULE] = {rn_cuda_delta_rule, NULL},
    // reductions
    [RN_OP_SUM] = {rn_cuda_sum, rn_cuda_reduce_workspace},
    [RN_OP_MEAN] = {rn_cuda_sum, rn_cuda_reduce_workspace},
    [RN_OP_MAX] = {rn_cuda_max, rn_cuda_reduce_workspace},
    [RN_OP_MAX_GRAD] = {rn_cuda_max_grad, NULL},
    [RN_OP_SUM_SQUARES] = {rn_cuda_sum_squares, rn_cuda_reduce_workspace},
    [RN_OP_ARGMAX] = {rn_cuda_argmax, NULL},
    [RN_OP_AVG_POOL] = {rn_cuda_pool, NULL},
    [RN_OP_AVG_POOL_GRAD] = {rn_cuda_pool_grad, NULL},
    [RN_OP_MAX_POOL] = {rn_cuda_pool, NULL},
    [RN_OP_MAX_POOL_GRAD] = {rn_cuda_pool_grad, NULL},
    [RN_OP_RESIZE] = {rn_cuda_resize, NULL},
    // of any plain dtype: images
    [RN_OP_CONV] = {rn_cuda_conv, rn_cuda_conv_workspace},
    [RN_OP_CONV_TRANSPOSE] = {rn_cuda_conv_grad_input, rn_cuda_conv_grad_input_workspace},
    [RN_OP_CONV_GRAD_WEIGHT] = {rn_cuda_conv_grad_weight, rn_cuda_conv_grad_weight_workspace},
    // losses of heads
    [RN_OP_LINEAR_CROSS_ENTROPY] = {rn_cuda_linear_cross_entropy,
                                    rn_cuda_linear_cross_entropy_workspace},
    // moving elements
    [RN_OP_RESHAPE] = {view, NULL},
    [RN_OP_PERMUTE] = {rn_cuda_permute, NULL},
    [RN_OP_SLICE] = {rn_cuda_slice, NULL},
    [RN_OP_CONCAT] = {rn_cuda_concat, NULL},
    [RN_OP_PAD] = {rn_cuda_pad, NULL},
    [RN_OP_BROADCAST] = {rn_cuda_broadcast, NULL},
    [RN_OP_CAST] = {rn_cuda_cast, NULL},
    [RN_OP_QUANTIZE] = {rn_cuda_quantize, NULL},
    [RN_OP_DEQUANTIZE] = {rn_cuda_cast, NULL},
    // losses
    [RN_OP_CROSS_ENTROPY] = {rn_cuda_cross_entropy, rn_cuda_cross_entropy_workspace},
    [RN_OP_CROSS_ENTROPY_GRAD] = {rn_cuda_cross_entropy_grad, NULL},
    [RN_OP_MSE] = {rn_cuda_mse, rn_cuda_mse_workspace},
    [RN_OP_MSE_GRAD] = {rn_cuda_mse_grad, NULL},
    // random numbers
    [RN_OP_RANDOM_UNIFORM] = {rn_cuda_random, NULL},
    [RN_OP_RANDOM_NORMAL] = {rn_cuda_random, NULL},
    [RN_OP_DROPOUT] = {rn_cuda_dropout, NULL},
    // training
    [RN_OP_ADAMW] = {rn_cuda_adamw, NULL},
    [RN_OP_SGD] = {rn_cuda_sgd, NULL},
    [RN_OP_ACCUMULATE] = {rn_cuda_accumulate, NULL},
    [RN_OP_TREE_SUM] = {rn_cuda_tree_sum, NULL},
    [RN_OP_LION] = {rn_cuda_lion, NULL},
    [RN_OP_ADAMW8] = {rn_cuda_adamw8, NULL},
    [RN_OP_ADAFACTOR] = {rn_cuda_adafactor, rn_cuda_adafactor_workspace},
    [RN_OP_LION8] = {rn_cuda_lion8, NULL},
    [RN_OP_AVERAGE] = {rn_cuda_average, NULL},
    [RN_OP_ADAPTED_NORM] = {rn_cuda_adapted_norm, NULL},
};

// ---- layouts ------------------------------------------------------------------------------------

enum { MOST_ROWS = 1 << 20, MOST_COLS = 1 << 24 }; // of a weight in tiles

// Whether `input` is the weight of a product that reads tiles: (N, K), x and y in f32. The
// products of 16-bit policies read weights as files have them, both ways round.
static bool is_tiled(const rn_call *call, uint32_t input) {
    rn_product product;
    return rn_call_product_of(call, input, &product) && !product.transposed &&
           call->inputs[product.x].dtype == RN_DTYPE_F32 &&
           (call->output_count == 0 || call->outputs[0].dtype == RN_DTYPE_F32);
}

// (N, K) that the kernels for tiles can count, blocks of a grid included; the plain ones take any.
static bool is_served(rn_shape shape) {
    return shape.rank == 2 && shape.dims[0] > 0 && shape.dims[0] <= MOST_ROWS &&
           shape.dims[1] <= MOST_COLS;
}

rn_layout rn_cuda_tile_layout(const rn_call *call, uint32_t input) {
    const rn_tensor *weight = &call->inputs[input];
    uint64_t bytes;
    if (is_served(weight->shape) && is_tiled(call, input) &&
        rn_tiles_bytes(weight->dtype, weight->shape.dims[0], weight->shape.dims[1], &bytes))
        return RN_LAYOUT_TILES;
    return RN_LAYOUT_PLAIN;
}

rn_layout rn_cuda_weight_layout(const rn_call *call, uint32_t input) {
    if (rn_cuda_conv_wants_channels(call, input)) return RN_LAYOUT_CONV_CHANNELS;
    return rn_cuda_tile_layout(call, input);
}

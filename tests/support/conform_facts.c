// conform_facts.c — how near a kernel must come to the reference, and which ops are row-wise.
//
// 0: the same bits. What only moves, compares, adds, multiplies, divides or takes a root has no
// choice, for IEEE 754 rounds each of these in one way. LIBM: one function of one element, by a
// polynomial instead of the C library's, good to a few units in the last place. CANCELS: the same
// for gelu's and silu's tails and slopes, in which terms of up to 4 cancel almost to nothing (1 +
// erf, 1 + tanh); a unit in the last place of 4 is 4.8e-7. SUM: a sum in another order, or in f32
// where the reference sums in double; the rows are up to a thousand elements long, and the error of
// a sum of n terms is at most n/2 units, in practice about sqrt(n).
#include "conform.h"

#define SAME    0, 0
#define LIBM    1e-6f, 0
#define CANCELS 1e-6f, 5e-7f
#define SUM     1e-5f, 0

const conform_fact conform_same = {SAME, false};

const conform_fact conform_facts[RN_OP_COUNT] = {
    [RN_OP_ADD] = {SAME, true},
    [RN_OP_SUB] = {SAME, true},
    [RN_OP_MUL] = {SAME, true},
    [RN_OP_DIV] = {SAME, true},
    [RN_OP_NEG] = {SAME, true},
    [RN_OP_EXP] = {LIBM, true},
    [RN_OP_LOG] = {LIBM, true},
    [RN_OP_SQRT] = {SAME, true},
    [RN_OP_RSQRT] = {LIBM, true},
    [RN_OP_POW] = {LIBM, true},
    [RN_OP_CLAMP] = {SAME, true},
    [RN_OP_CLAMP_GRAD] = {SAME, true},
    [RN_OP_SCALE] = {LIBM, true}, // x * f + o, fused or not
    [RN_OP_RELU] = {SAME, true},
    [RN_OP_RELU_GRAD] = {SAME, true},
    [RN_OP_SIGMOID] = {LIBM, true},
    [RN_OP_TANH] = {LIBM, true},
    [RN_OP_SILU] = {LIBM, true},
    [RN_OP_SILU_GRAD] = {CANCELS, true},
    [RN_OP_GELU] = {CANCELS, true},
    [RN_OP_GELU_GRAD] = {CANCELS, true},
    [RN_OP_GELU_TANH] = {CANCELS, true},
    [RN_OP_GELU_TANH_GRAD] = {CANCELS, true},
    [RN_OP_GATED] = {CANCELS, true},
    [RN_OP_GATED_GRAD] = {CANCELS, true},
    [RN_OP_SOFTMAX] = {SUM, true},
    [RN_OP_SOFTMAX_GRAD] = {SUM, true},
    [RN_OP_LAYERNORM] = {SUM, true},
    [RN_OP_LAYERNORM_GRAD] = {SUM, false},
    [RN_OP_RMSNORM] = {SUM, true},
    [RN_OP_RMSNORM_GRAD] = {SUM, false},
    [RN_OP_BATCHNORM] = {SUM, true}, // but for training: `mixed`
    [RN_OP_BATCHNORM_GRAD] = {SUM, false},
    [RN_OP_MATMUL] = {SUM, true},
    [RN_OP_CONV2D] = {SUM, true},
    [RN_OP_CONV2D_GRAD_INPUT] = {SUM, false},
    [RN_OP_CONV2D_GRAD_WEIGHT] = {SUM, false},
    [RN_OP_EMBEDDING] = {SAME, true},
    [RN_OP_EMBEDDING_GRAD] = {SUM, false},
    [RN_OP_MATMUL_ADD] = {SUM, false},
    [RN_OP_PROJECT] = {SUM, true},
    [RN_OP_PROJECT_THREE] = {SUM, true},
    [RN_OP_PROJECT_GATED] = {SUM, true},
    [RN_OP_ROPE] = {LIBM, true},
    [RN_OP_ATTENTION] = {SUM, true},
    [RN_OP_ATTENTION_GRAD] = {SUM, false},
    [RN_OP_KV_APPEND] = {SAME, true},
    [RN_OP_PAGED_ATTENTION] = {SUM, true},
    [RN_OP_ATTEND] = {SUM, true},
    [RN_OP_SHORT_CONV] = {SAME, false}, // rows of a sequence follow one another
    [RN_OP_DELTA_RULE] = {SUM, false},
    [RN_OP_VARLEN_ATTENTION] = {SUM, false}, // a text at a time: unit/backend/varlen_test.c
    [RN_OP_SUM] = {SUM, true},
    [RN_OP_MEAN] = {SUM, true},
    [RN_OP_MAX] = {SAME, true},
    [RN_OP_MAX_GRAD] = {SAME, true},
    [RN_OP_SUM_SQUARES] = {SUM, false},
    [RN_OP_ARGMAX] = {SAME, true},
    [RN_OP_AVG_POOL] = {SUM, true},
    [RN_OP_AVG_POOL_GRAD] = {SUM, true},
    [RN_OP_MAX_POOL] = {SAME, true},
    [RN_OP_MAX_POOL_GRAD] = {SUM, true}, // windows overlap
    [RN_OP_RESHAPE] = {SAME, true},
    [RN_OP_PERMUTE] = {SAME, true},
    [RN_OP_SLICE] = {SAME, true},
    [RN_OP_CONCAT] = {SAME, true},
    [RN_OP_PAD] = {SAME, true},
    [RN_OP_BROADCAST] = {SAME, true},
    [RN_OP_CAST] = {SAME, true},
    [RN_OP_QUANTIZE] = {SAME, true},
    [RN_OP_DEQUANTIZE] = {SAME, true},
    [RN_OP_CROSS_ENTROPY] = {SUM, false},
    [RN_OP_CROSS_ENTROPY_GRAD] = {SUM, false},
    [RN_OP_LINEAR_CROSS_ENTROPY] = {SUM, false},
    [RN_OP_MSE] = {SUM, false},
    [RN_OP_MSE_GRAD] = {LIBM, false},
    [RN_OP_RANDOM_UNIFORM] = {SAME, false},
    [RN_OP_RANDOM_NORMAL] = {LIBM, false},
    [RN_OP_DROPOUT] = {SAME, false}, // by the element's place in the whole
    [RN_OP_ADAMW] = {LIBM, false},
    [RN_OP_SGD] = {LIBM, false},
    [RN_OP_LION] = {SAME, false},
    [RN_OP_ACCUMULATE] = {SAME, false},
    [RN_OP_UNARY] = {LIBM, true},
    [RN_OP_BINARY] = {SAME, true},
    [RN_OP_COMPARE] = {SAME, true},
    [RN_OP_SELECT] = {SAME, true},
    [RN_OP_CONVERT] = {SAME, true},
    [RN_OP_REDUCE] = {SAME, true},
    [RN_OP_ARG_REDUCE] = {SAME, true},
    [RN_OP_GATHER] = {SAME, true},
    [RN_OP_SCATTER] = {SAME, false},
    [RN_OP_STRIDED_SLICE] = {SAME, true},
    [RN_OP_SOFT] = {SAME, true},
    [RN_OP_CUMULATE] = {SAME, true},
    [RN_OP_TOP_K] = {SAME, true},
    [RN_OP_REVERSE_SEQUENCE] = {SAME, true},
    [RN_OP_PRODUCT] = {SAME, true},
    [RN_OP_PRODUCT_SCALED] = {SAME, true},
    [RN_OP_CONV] = {SUM, true},
    [RN_OP_CONV_CLAMP] = {SUM, true},
    [RN_OP_CONV_TRANSPOSE] = {SAME, true},
    [RN_OP_POOL] = {SUM, true},
    [RN_OP_RESIZE] = {SAME, true},
    [RN_OP_GRID_SAMPLE] = {SAME, true},
    [RN_OP_RNN] = {SAME, false},
    [RN_OP_QUANTIZE_LINEAR] = {SAME, true},
    [RN_OP_DEQUANTIZE_LINEAR] = {SAME, true},
    [RN_OP_DFT] = {SAME, true},
    [RN_OP_COL2IM] = {SAME, true},
    [RN_OP_ROI_ALIGN] = {SAME, false},
};

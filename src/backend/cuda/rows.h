// rows.h — the rows of the device's kernel table: one function an op, beside what it needs.
//
// A row's function reads the call, fills the kernel's arguments and launches; it allocates nothing
// and waits for nothing. `workspace` is a pure function of shapes and dtypes (device/kernel.h): it
// does not know the device.
#ifndef RN_BACKEND_CUDA_ROWS_H
#define RN_BACKEND_CUDA_ROWS_H

#include "device/kernel.h"

extern const rn_kernel rn_cuda_kernels[RN_OP_COUNT]; // kernels.c
rn_layout rn_cuda_weight_layout(const rn_call *call, uint32_t input);
// The same where there is no sm_90a.
rn_layout rn_cuda_tile_layout(const rn_call *call, uint32_t input);

// ---- product.c ----------------------------------------------------------------------------------
rn_status rn_cuda_matmul(const rn_call *call);
uint64_t rn_cuda_matmul_workspace(const rn_call *call);
rn_status rn_cuda_matmul_add(const rn_call *call);
uint64_t rn_cuda_matmul_add_workspace(const rn_call *call);
rn_status rn_cuda_project(const rn_call *call); // PROJECT, PROJECT_THREE, PROJECT_GATED
uint64_t rn_cuda_project_workspace(const rn_call *call);

// ---- attend.c -----------------------------------------------------------------------------------
rn_status rn_cuda_attend(const rn_call *call);
uint64_t rn_cuda_attend_workspace(const rn_call *call);
rn_status rn_cuda_kv_append(const rn_call *call);
rn_status rn_cuda_paged_attention(const rn_call *call);
uint64_t rn_cuda_paged_attention_workspace(const rn_call *call);
rn_status rn_cuda_varlen_attention(const rn_call *call); // a span that cannot be gives NaN

// ---- flash.c ------------------------------------------------------------------------------------
rn_status rn_cuda_attention(const rn_call *call);
uint64_t rn_cuda_attention_workspace(const rn_call *call);
rn_status rn_cuda_attention_grad(const rn_call *call);
uint64_t rn_cuda_attention_grad_workspace(const rn_call *call);

// ---- elementwise.c ------------------------------------------------------------------------------
rn_status rn_cuda_map(const rn_call *call); // NEG .. RSQRT, RELU, SIGMOID .. GELU_TANH
rn_status rn_cuda_pow(const rn_call *call);
rn_status rn_cuda_clamp(const rn_call *call);
rn_status rn_cuda_scale(const rn_call *call);
rn_status rn_cuda_pair(const rn_call *call); // ADD .. DIV
rn_status rn_cuda_gated(const rn_call *call);
rn_status rn_cuda_slope(const rn_call *call); // RELU_GRAD, SILU_GRAD, GELU_GRAD, GELU_TANH_GRAD
rn_status rn_cuda_clamp_grad(const rn_call *call);
rn_status rn_cuda_gated_grad(const rn_call *call);
rn_status rn_cuda_accumulate(const rn_call *call);
rn_status rn_cuda_tree_sum(const rn_call *call);

// ---- norms.c, rope.c ----------------------------------------------------------------------------
rn_status rn_cuda_softmax(const rn_call *call);
rn_status rn_cuda_layernorm(const rn_call *call);
rn_status rn_cuda_rmsnorm(const rn_call *call);
rn_status rn_cuda_softmax_grad(const rn_call *call);
rn_status rn_cuda_layernorm_grad(const rn_call *call);
rn_status rn_cuda_rmsnorm_grad(const rn_call *call);
uint64_t rn_cuda_norm_grad_workspace(const rn_call *call); // of the norms' two
rn_status rn_cuda_rope(const rn_call *call);

// ---- recurrent.c --------------------------------------------------------------------------------
// Row by row, as the reference; a row that cannot be gives NaN.
rn_status rn_cuda_short_conv(const rn_call *call);
rn_status rn_cuda_delta_rule(const rn_call *call);

// ---- embedding.c --------------------------------------------------------------------------------
// An id that is no row of the table gives a row of NaN: ids are not looked at on the host.
rn_status rn_cuda_embedding(const rn_call *call);
rn_status rn_cuda_embedding_grad(const rn_call *call);
uint64_t rn_cuda_embedding_grad_workspace(const rn_call *call);

// ---- losses.c -----------------------------------------------------------------------------------
// A target that is no class gives NaN.
rn_status rn_cuda_cross_entropy(const rn_call *call);
uint64_t rn_cuda_cross_entropy_workspace(const rn_call *call);
rn_status rn_cuda_cross_entropy_grad(const rn_call *call);
rn_status rn_cuda_mse(const rn_call *call);
uint64_t rn_cuda_mse_workspace(const rn_call *call);
rn_status rn_cuda_mse_grad(const rn_call *call);

// ---- random.c -----------------------------------------------------------------------------------
rn_status rn_cuda_random(const rn_call *call); // RANDOM_UNIFORM, RANDOM_NORMAL
rn_status rn_cuda_dropout(const rn_call *call);

// ---- adapted_norm.c -----------------------------------------------------------------------------
rn_status rn_cuda_adapted_norm(const rn_call *call);

// ---- optimizers.c -------------------------------------------------------------------------------
rn_status rn_cuda_adamw(const rn_call *call);
rn_status rn_cuda_adamw8(const rn_call *call);
rn_status rn_cuda_lion8(const rn_call *call);
rn_status rn_cuda_average(const rn_call *call);
rn_status rn_cuda_adafactor(const rn_call *call);
uint64_t rn_cuda_adafactor_workspace(const rn_call *call);
rn_status rn_cuda_sgd(const rn_call *call);
rn_status rn_cuda_lion(const rn_call *call);

// ---- move.c -------------------------------------------------------------------------------------
rn_status rn_cuda_permute(const rn_call *call);
rn_status rn_cuda_slice(const rn_call *call);
rn_status rn_cuda_concat(const rn_call *call);
rn_status rn_cuda_pad(const rn_call *call);
rn_status rn_cuda_broadcast(const rn_call *call);
rn_status rn_cuda_cast(const rn_call *call); // CAST, DEQUANTIZE
rn_status rn_cuda_quantize(const rn_call *call);

// ---- reduce.c -----------------------------------------------------------------------------------
rn_status rn_cuda_sum(const rn_call *call); // SUM, MEAN
rn_status rn_cuda_max(const rn_call *call);
rn_status rn_cuda_sum_squares(const rn_call *call);
uint64_t rn_cuda_reduce_workspace(const rn_call *call); // of these three
rn_status rn_cuda_max_grad(const rn_call *call);
rn_status rn_cuda_argmax(const rn_call *call);

// ---- matmul_plain.c -----------------------------------------------------------------------------
// Any matmul that tiles do not serve: f32 or any plain weight, transposed, batched.
rn_status rn_cuda_matmul_plain(const rn_call *call);
rn_status rn_cuda_matmul_plain_add(const rn_call *call, bool adds); // to what y has

// ---- matmul_half.c ------------------------------------------------------------------------------
bool rn_cuda_is_half(rn_dtype dtype); // bf16 or f16
// Any matmul whose x is of 16 bits and whose w is plain: by cuBLASLt (lt.h) or our own kernel.
rn_status rn_cuda_matmul_half(const rn_call *call);
uint64_t rn_cuda_matmul_half_workspace(const rn_call *call);
// The same, added to `addend`, of y's type and shape; it may be y.
rn_status rn_cuda_matmul_half_add(const rn_call *call, const void *addend);

// ---- conv.c, conv_grad.c ------------------------------------------------------------------------
rn_status rn_cuda_conv(const rn_call *call); // CONV2D, CONV of f32, bf16 and f16
uint64_t rn_cuda_conv_workspace(const rn_call *call);
// Whether this input is a convolution's weight that is best kept with its channels last.
bool rn_cuda_conv_wants_channels(const rn_call *call, uint32_t input);
rn_status rn_cuda_conv_grad_input(const rn_call *call); // of CONV2D; CONV_TRANSPOSE
uint64_t rn_cuda_conv_grad_input_workspace(const rn_call *call);
rn_status rn_cuda_conv_grad_weight(const rn_call *call); // of CONV2D, CONV
uint64_t rn_cuda_conv_grad_weight_workspace(const rn_call *call);

// ---- group_norm.c, pool.c -----------------------------------------------------------------------
rn_status rn_cuda_group_norm(const rn_call *call);
uint64_t rn_cuda_group_norm_workspace(const rn_call *call);
rn_status rn_cuda_group_norm_grad(const rn_call *call);
uint64_t rn_cuda_group_norm_grad_workspace(const rn_call *call);
rn_status rn_cuda_batchnorm(const rn_call *call);
uint64_t rn_cuda_batchnorm_workspace(const rn_call *call);
rn_status rn_cuda_batchnorm_grad(const rn_call *call);
uint64_t rn_cuda_batchnorm_grad_workspace(const rn_call *call);
rn_status rn_cuda_pool(const rn_call *call); // MAX_POOL, AVG_POOL
rn_status rn_cuda_resize(const rn_call *call);
rn_status rn_cuda_pool_grad(const rn_call *call); // of both

// ---- head_loss.c --------------------------------------------------------------------------------
// A target that is no class gives NaN.
rn_status rn_cuda_linear_cross_entropy(const rn_call *call);
uint64_t rn_cuda_linear_cross_entropy_workspace(const rn_call *call);

#endif

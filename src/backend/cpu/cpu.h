// cpu.h — the CPU back end: a row an op, and the layouts in which its kernels want weights.
//
// Every op works, by its reference loop where no faster kernel has been written. A kernel's result
// does not depend on the number of threads, nor do an output row's bits on which rows stand beside
// it. Instruction levels (base/cpu.h) may differ in the last bits: with FMA or without.
#ifndef RN_BACKEND_CPU_CPU_H
#define RN_BACKEND_CPU_CPU_H

#include "device/registry.h"

extern const rn_backend rn_cpu_backend;

extern const rn_kernel rn_cpu_kernels[RN_OP_COUNT];

// The layout in which a weight that is read only is wanted: PANELS for a product's matrix, also
// where it is read across, as the gradient of x does (its other reader is the forward product);
// COLUMN_PANELS for one of f32 (K, N), and of bytes; CONV_PANELS for a convolution's weight;
// PLAIN otherwise.
rn_layout rn_cpu_weight_layout(const rn_call *call, uint32_t input);

// Seconds of a call, for plans (cost.c).
double rn_cpu_cost(const rn_device_caps *caps, const rn_call *call, rn_workload workload);

// ---- the kernels, by file -----------------------------------------------------------------------

rn_status rn_cpu_matmul(const rn_call *call);
uint64_t rn_cpu_matmul_workspace(const rn_call *call);

rn_status rn_cpu_conv2d(const rn_call *call);
uint64_t rn_cpu_conv2d_workspace(const rn_call *call);
// The same, outputs kept within two ends; clamp may be NULL.
rn_status rn_cpu_conv2d_within(const rn_call *call, const rn_clamp_attrs *clamp);
// Multiply-adds that a convolution takes as long as, over those it is counted with: winograd.h.
double rn_cpu_conv2d_share(const rn_call *call);
double rn_cpu_conv2d_grad_input_share(const rn_call *call);
double rn_cpu_conv_clamp_share(const rn_call *call);
rn_status rn_cpu_conv2d_grad_input(const rn_call *call);
uint64_t rn_cpu_conv2d_grad_input_workspace(const rn_call *call);
rn_status rn_cpu_conv2d_grad_weight(const rn_call *call);
uint64_t rn_cpu_conv2d_grad_weight_workspace(const rn_call *call);

// elementwise.c
rn_status rn_cpu_neg(const rn_call *call);
rn_status rn_cpu_exp(const rn_call *call);
rn_status rn_cpu_sqrt(const rn_call *call);
rn_status rn_cpu_rsqrt(const rn_call *call);
rn_status rn_cpu_relu(const rn_call *call);
rn_status rn_cpu_sigmoid(const rn_call *call);
rn_status rn_cpu_tanh(const rn_call *call);
rn_status rn_cpu_silu(const rn_call *call);
rn_status rn_cpu_gelu(const rn_call *call);
rn_status rn_cpu_gelu_tanh(const rn_call *call);
rn_status rn_cpu_scale(const rn_call *call);
rn_status rn_cpu_clamp(const rn_call *call);
rn_status rn_cpu_relu_grad(const rn_call *call);
rn_status rn_cpu_clamp_grad(const rn_call *call);
rn_status rn_cpu_silu_grad(const rn_call *call);
rn_status rn_cpu_gelu_grad(const rn_call *call);
rn_status rn_cpu_gelu_tanh_grad(const rn_call *call);
rn_status rn_cpu_gated(const rn_call *call);
rn_status rn_cpu_gated_grad(const rn_call *call);
rn_status rn_cpu_add(const rn_call *call);
rn_status rn_cpu_sub(const rn_call *call);
rn_status rn_cpu_mul(const rn_call *call);
rn_status rn_cpu_div(const rn_call *call);
rn_status rn_cpu_accumulate(const rn_call *call);
rn_status rn_cpu_tree_sum(const rn_call *call);
rn_status rn_cpu_adamw(const rn_call *call);
rn_status rn_cpu_sgd(const rn_call *call);
rn_status rn_cpu_adamw8(const rn_call *call);
rn_status rn_cpu_lion8(const rn_call *call);
rn_status rn_cpu_adafactor(const rn_call *call);
uint64_t rn_cpu_adafactor_workspace(const rn_call *call);
rn_status rn_cpu_adapted_norm(const rn_call *call); // adapted_norm.c
uint64_t rn_cpu_adapted_norm_workspace(const rn_call *call);
rn_status rn_cpu_average(const rn_call *call);
rn_status rn_cpu_lion(const rn_call *call);
// rows.c: norm is layernorm and rmsnorm
rn_status rn_cpu_softmax(const rn_call *call);
rn_status rn_cpu_softmax_grad(const rn_call *call);
rn_status rn_cpu_norm(const rn_call *call);
rn_status rn_cpu_norm_grad(const rn_call *call);
uint64_t rn_cpu_norm_grad_workspace(const rn_call *call);
rn_status rn_cpu_cross_entropy(const rn_call *call);
uint64_t rn_cpu_cross_entropy_workspace(const rn_call *call);
rn_status rn_cpu_cross_entropy_grad(const rn_call *call);
// batchnorm.c
rn_status rn_cpu_batchnorm(const rn_call *call);
uint64_t rn_cpu_batchnorm_workspace(const rn_call *call);
rn_status rn_cpu_batchnorm_grad(const rn_call *call);
uint64_t rn_cpu_batchnorm_grad_workspace(const rn_call *call);
// group_norm.c
rn_status rn_cpu_group_norm(const rn_call *call);
uint64_t rn_cpu_group_norm_workspace(const rn_call *call);
rn_status rn_cpu_group_norm_grad(const rn_call *call);
uint64_t rn_cpu_group_norm_grad_workspace(const rn_call *call);
// attention.c, paged_attention.c, varlen_attention.c
rn_status rn_cpu_attention(const rn_call *call);
uint64_t rn_cpu_attention_workspace(const rn_call *call);
rn_status rn_cpu_attention_grad(const rn_call *call);
uint64_t rn_cpu_attention_grad_workspace(const rn_call *call);
rn_status rn_cpu_paged_attention(const rn_call *call);
uint64_t rn_cpu_paged_attention_workspace(const rn_call *call);

// recurrent.c
rn_status rn_cpu_short_conv(const rn_call *call);
rn_status rn_cpu_delta_rule(const rn_call *call);
rn_status rn_cpu_varlen_attention(const rn_call *call);
uint64_t rn_cpu_varlen_attention_workspace(const rn_call *call);
// rope.c, embedding_grad.c
rn_status rn_cpu_rope(const rn_call *call);
uint64_t rn_cpu_rope_workspace(const rn_call *call);
rn_status rn_cpu_embedding_grad(const rn_call *call);
// extremes.c: over the last axes; other reductions by the reference loop
rn_status rn_cpu_max(const rn_call *call);
rn_status rn_cpu_reduce(const rn_call *call);
// reduce.c: sum is mean, too; permute.c
rn_status rn_cpu_sum(const rn_call *call);
rn_status rn_cpu_sum_squares(const rn_call *call);
rn_status rn_cpu_permute(const rn_call *call);
rn_status rn_cpu_cast(const rn_call *call); // cast.c
// any.c: elementwise ops of any dtype
rn_status rn_cpu_any(const rn_call *call);
rn_status rn_cpu_unary(const rn_call *call);
rn_status rn_cpu_quantize_linear(const rn_call *call);
rn_status rn_cpu_dequantize_linear(const rn_call *call);

// product.c: of bytes, scaled or not; of other dtypes the reference loop
rn_status rn_cpu_product(const rn_call *call);
uint64_t rn_cpu_product_workspace(const rn_call *call);

// collectives.c
rn_status rn_cpu_all_gather(const rn_call *call);
uint64_t rn_cpu_all_gather_workspace(const rn_call *call);

// experts.c
rn_status rn_cpu_route(const rn_call *call);
uint64_t rn_cpu_route_workspace(const rn_call *call);
rn_status rn_cpu_expert_product(const rn_call *call);
uint64_t rn_cpu_expert_product_workspace(const rn_call *call);
rn_status rn_cpu_expert_sum(const rn_call *call);
// Whether each matrix, and what is multiplied of it, is in panels of its own.
bool rn_cpu_experts_take_panels(const rn_expert_call *experts);

// head_product.c
rn_status rn_cpu_head_product(const rn_call *call);
uint64_t rn_cpu_head_product_workspace(const rn_call *call);

// conv_groups.c, pool.c
rn_status rn_cpu_conv(const rn_call *call);
uint64_t rn_cpu_conv_workspace(const rn_call *call);
rn_status rn_cpu_conv_clamp(const rn_call *call);
uint64_t rn_cpu_conv_clamp_workspace(const rn_call *call);
rn_status rn_cpu_pool(const rn_call *call);

// pool2d.c: both kinds
rn_status rn_cpu_pool2d(const rn_call *call);

#endif

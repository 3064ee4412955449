// grads.h — builders of the ops that only gradients are made of. dy is d loss / d y of the op they
// belong to; where there are several outputs the first is returned, the others are
// rn_graph_output_of(g, first, i). An output that nobody reads is not computed.
#ifndef RN_GRAPH_OP_GRADS_H
#define RN_GRAPH_OP_GRADS_H

#include "graph/op.h"

// ---- elementwise, rows, reductions, losses ------------------------------------------------------

rn_value rn_op_relu_grad(rn_graph *g, rn_value y, rn_value dy); // y or x: they agree in sign
rn_value rn_op_silu_grad(rn_graph *g, rn_value x, rn_value dy);
rn_value rn_op_gelu_grad(rn_graph *g, rn_value x, rn_value dy);
rn_value rn_op_gelu_tanh_grad(rn_graph *g, rn_value x, rn_value dy);
rn_value rn_op_clamp_grad(rn_graph *g, rn_value x, rn_value dy, const rn_clamp_attrs *attrs);
// -> d gate, d up
rn_value rn_op_gated_grad(rn_graph *g, rn_value gate, rn_value up, rn_value dy,
                          const rn_gated_attrs *attrs);

rn_value rn_op_softmax_grad(rn_graph *g, rn_value y, rn_value dy);
// weight (C) or RN_NO_VALUE; mean and rstd as layernorm made them -> dx, d weight (C), d bias (C)
rn_value rn_op_layernorm_grad(rn_graph *g, rn_value x, rn_value weight, rn_value mean,
                              rn_value rstd, rn_value dy);
// -> dx, d weight (C)
rn_value rn_op_rmsnorm_grad(rn_graph *g, rn_value x, rn_value weight, rn_value rstd, rn_value dy);
// mean and rstd (C) are those that batchnorm used -> dx, d weight (C), d bias (C)
rn_value rn_op_batchnorm_grad(rn_graph *g, rn_value x, rn_value weight, rn_value mean,
                              rn_value rstd, rn_value dy, const rn_batchnorm_attrs *attrs);

// mean and rstd (N, groups) as group_norm made them; bias is read with silu alone
// -> dx, d weight (C), d bias (C)
rn_value rn_op_group_norm_grad(rn_graph *g, rn_value x, rn_value weight, rn_value bias,
                               rn_value mean, rn_value rstd, rn_value dy,
                               const rn_group_norm_attrs *attrs);

// dy goes to the first of the largest along the reduced axes.
rn_value rn_op_max_grad(rn_graph *g, rn_value x, rn_value dy, const rn_reduce_attrs *attrs);

// logsumexp (N) and count () as cross_entropy made them, dloss () -> d logits (N, V)
rn_value rn_op_cross_entropy_grad(rn_graph *g, rn_value logits, rn_value targets,
                                  rn_value logsumexp, rn_value count, rn_value dloss,
                                  const rn_cross_entropy_attrs *attrs);
// dloss () -> d a; d b is its negative
rn_value rn_op_mse_grad(rn_graph *g, rn_value a, rn_value b, rn_value dloss);

// ---- products, pools, embedding, attention ------------------------------------------------------

typedef struct rn_conv2d_grad_input_attrs {
    rn_conv2d_attrs conv;
    rn_shape shape; // of x, (N, H, W, C); N may be RN_ROWS
} rn_conv2d_grad_input_attrs;
rn_value rn_op_conv2d_grad_input(rn_graph *g, rn_value w, rn_value dy,
                                 const rn_conv2d_grad_input_attrs *attrs);
typedef struct rn_conv2d_grad_weight_attrs {
    rn_conv2d_attrs conv;
    uint64_t kernel_h, kernel_w;
} rn_conv2d_grad_weight_attrs;
// -> (O, C, KH, KW) f32
rn_value rn_op_conv2d_grad_weight(rn_graph *g, rn_value x, rn_value dy,
                                  const rn_conv2d_grad_weight_attrs *attrs);

typedef struct rn_conv_grad_weight_attrs {
    rn_conv_attrs conv;
    uint64_t size[RN_MAX_SPATIAL]; // of the kernels
} rn_conv_grad_weight_attrs;
// -> (O, C / groups, K...) f32
rn_value rn_op_conv_grad_weight(rn_graph *g, rn_value x, rn_value dy,
                                const rn_conv_grad_weight_attrs *attrs);

typedef struct rn_resize_grad_attrs {
    rn_resize_attrs resize;
    uint64_t length; // of x's axis
} rn_resize_grad_attrs;
rn_value rn_op_resize_grad(rn_graph *g, rn_value dy, const rn_resize_grad_attrs *attrs);

typedef struct rn_avg_pool_grad_attrs {
    rn_pool2d_attrs pool;
    rn_shape shape; // of x
} rn_avg_pool_grad_attrs;
rn_value rn_op_avg_pool_grad(rn_graph *g, rn_value dy, const rn_avg_pool_grad_attrs *attrs);
// dy goes to the first maximum of each window.
rn_value rn_op_max_pool_grad(rn_graph *g, rn_value x, rn_value dy, const rn_pool2d_attrs *attrs);

typedef struct rn_embedding_grad_attrs {
    uint64_t vocab;
} rn_embedding_grad_attrs;
// -> (vocab, C) f32
rn_value rn_op_embedding_grad(rn_graph *g, rn_value ids, rn_value dy,
                              const rn_embedding_grad_attrs *attrs);

// y and logsumexp as attention made them -> dq, dk, dv
rn_value rn_op_attention_grad(rn_graph *g, rn_value q, rn_value k, rn_value v, rn_value mask,
                              rn_value y, rn_value logsumexp, rn_value dy,
                              const rn_attention_attrs *attrs);

#endif

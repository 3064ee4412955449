// stablehlo_ops.h — an emitter an op: what its reference loop means, in StableHLO.
#ifndef RN_EXCHANGE_STABLEHLO_OPS_H
#define RN_EXCHANGE_STABLEHLO_OPS_H

#include "exchange/stablehlo_build.h"
#include "graph/op.h"

// `call` has concrete shapes and no data: an output's data is NULL where nobody reads it, and means
// nothing else. in[i].id is 0 where input i is left out; its dtype may be wider than the call's (a
// quantised weight). Sets out[i] of the outputs that are read.
typedef void (*rn_hlo_emitter)(rn_hlo *h, const rn_call *call, const rn_hlo_value *in,
                               rn_hlo_value *out);
// NULL: gradients and optimisers, which are refused, and fused ops, which are unfolded.
extern const rn_hlo_emitter rn_hlo_emitters[RN_OP_COUNT];

// x by a weight (N, K), in f32; and what follows a product.
rn_hlo_value rn_hlo_multiply(rn_hlo *h, rn_hlo_value x, rn_hlo_value w);
rn_hlo_value rn_hlo_add_bias(rn_hlo *h, const rn_call *call, rn_hlo_value y, rn_hlo_value bias);

#define RN_HLO_EMITTER(name)                                                                       \
    void rn_hlo_emit_##name(rn_hlo *h, const rn_call *call, const rn_hlo_value *in,                \
                            rn_hlo_value *out)
RN_HLO_EMITTER(unary); // ops that StableHLO has
RN_HLO_EMITTER(binary);
RN_HLO_EMITTER(activation);
RN_HLO_EMITTER(gated);
RN_HLO_EMITTER(pow);
RN_HLO_EMITTER(clamp);
RN_HLO_EMITTER(scale);
RN_HLO_EMITTER(softmax);
RN_HLO_EMITTER(layernorm);
RN_HLO_EMITTER(rmsnorm);
RN_HLO_EMITTER(batchnorm);
RN_HLO_EMITTER(group_norm);
RN_HLO_EMITTER(reduce);
RN_HLO_EMITTER(sum_squares);
RN_HLO_EMITTER(argmax);
RN_HLO_EMITTER(cross_entropy);
RN_HLO_EMITTER(mse);
RN_HLO_EMITTER(matmul);
RN_HLO_EMITTER(conv2d);
RN_HLO_EMITTER(conv2d_grad_input);
RN_HLO_EMITTER(pool2d);
RN_HLO_EMITTER(embedding);
RN_HLO_EMITTER(rope);
RN_HLO_EMITTER(attention);
RN_HLO_EMITTER(varlen_attention);
RN_HLO_EMITTER(kv_append);
RN_HLO_EMITTER(paged_attention);
RN_HLO_EMITTER(short_conv);
RN_HLO_EMITTER(delta_rule);
RN_HLO_EMITTER(reshape);
RN_HLO_EMITTER(permute);
RN_HLO_EMITTER(slice);
RN_HLO_EMITTER(concat);
RN_HLO_EMITTER(pad);
RN_HLO_EMITTER(broadcast);
RN_HLO_EMITTER(cast);
RN_HLO_EMITTER(dequantize);
RN_HLO_EMITTER(random);
RN_HLO_EMITTER(dropout);
RN_HLO_EMITTER(unary_as); // ops of any plain dtype
RN_HLO_EMITTER(binary_as);
RN_HLO_EMITTER(compare);
RN_HLO_EMITTER(select);
RN_HLO_EMITTER(convert);
RN_HLO_EMITTER(reduce_as);
RN_HLO_EMITTER(arg_reduce);
RN_HLO_EMITTER(soft);
RN_HLO_EMITTER(gather);
RN_HLO_EMITTER(scatter);
RN_HLO_EMITTER(strided_slice);
RN_HLO_EMITTER(cumulate);
RN_HLO_EMITTER(top_k);
RN_HLO_EMITTER(reverse_sequence);
RN_HLO_EMITTER(product);
RN_HLO_EMITTER(conv);
RN_HLO_EMITTER(conv_transpose);
RN_HLO_EMITTER(pool);
RN_HLO_EMITTER(resize);
RN_HLO_EMITTER(grid_sample);
RN_HLO_EMITTER(rnn);
RN_HLO_EMITTER(quantize_linear);
RN_HLO_EMITTER(dequantize_linear);
RN_HLO_EMITTER(dft);
RN_HLO_EMITTER(col2im);
RN_HLO_EMITTER(route);
RN_HLO_EMITTER(expert_product);
RN_HLO_EMITTER(expert_sum);
RN_HLO_EMITTER(head_product);

// What several emitters use: a function of one element, x in a dtype that ops compute in; the first
// lengths[b] of the time axis of batch b reversed; an axis sorted, largest first, NaN before all
// (smallest first, NaN behind all), equals as they stand, and where each was (i64).
rn_hlo_value rn_hlo_function(rn_hlo *h, const rn_unary_attrs *attrs, rn_hlo_value x);
rn_hlo_value rn_hlo_reverse_sequence(rn_hlo *h, rn_hlo_value x, rn_hlo_value lengths,
                                     uint32_t batch_axis, uint32_t time_axis);
void rn_hlo_sort(rn_hlo *h, rn_hlo_value x, uint32_t axis, bool smallest, rn_hlo_value *out_sorted,
                 rn_hlo_value *out_order);

// A result in the dtype that the op's output has.
static inline rn_hlo_value rn_hlo_result(rn_hlo *h, const rn_call *call, rn_hlo_value y) {
    return rn_hlo_convert(h, y, call->outputs[0].dtype);
}

#endif

// onnx_export_ops.h — a function an op: what its reference loop means, in ONNX.
#ifndef RN_EXCHANGE_ONNX_EXPORT_OPS_H
#define RN_EXCHANGE_ONNX_EXPORT_OPS_H

#include "exchange/onnx_export_build.h"

RN_EXPORTER(binary);
RN_EXPORTER(unary);
RN_EXPORTER(rsqrt);
RN_EXPORTER(pow);
RN_EXPORTER(clamp);
RN_EXPORTER(scale);
RN_EXPORTER(activation);
RN_EXPORTER(gated);
RN_EXPORTER(softmax);
RN_EXPORTER(layernorm);
RN_EXPORTER(rmsnorm);
RN_EXPORTER(batchnorm);
RN_EXPORTER(group_norm);
RN_EXPORTER(matmul);
RN_EXPORTER(conv2d);
RN_EXPORTER(embedding);
RN_EXPORTER(rope);
RN_EXPORTER(attention);
RN_EXPORTER(kv_append);
RN_EXPORTER(paged_attention);
RN_EXPORTER(varlen_attention);
RN_EXPORTER(reduce);
RN_EXPORTER(sum_squares);
RN_EXPORTER(argmax);
RN_EXPORTER(pool2d);
RN_EXPORTER(reshape);
RN_EXPORTER(permute);
RN_EXPORTER(slice);
RN_EXPORTER(concat);
RN_EXPORTER(pad);
RN_EXPORTER(broadcast);
RN_EXPORTER(cast);
RN_EXPORTER(convert);
RN_EXPORTER(unary_as);
RN_EXPORTER(binary_as);
RN_EXPORTER(compare);
RN_EXPORTER(select);
RN_EXPORTER(reduce_as);
RN_EXPORTER(arg_reduce);
RN_EXPORTER(gather);
RN_EXPORTER(scatter);
RN_EXPORTER(strided_slice);
RN_EXPORTER(soft);
RN_EXPORTER(cumulate);
RN_EXPORTER(top_k);
RN_EXPORTER(reverse_sequence);
RN_EXPORTER(product);
RN_EXPORTER(conv);
RN_EXPORTER(conv_transpose);
RN_EXPORTER(pool);
RN_EXPORTER(resize);
RN_EXPORTER(rnn);
// (N, S..., C) as (N, C, S...).
rn_shape rn_export_channels_first(rn_shape x);

RN_EXPORTER(grid_sample);
RN_EXPORTER(roi_align);
RN_EXPORTER(col2im);
RN_EXPORTER(dft);
RN_EXPORTER(quantize_linear);
RN_EXPORTER(dequantize_linear);

#endif

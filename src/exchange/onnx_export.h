// onnx_export.h — a graph as an ONNX model: the bytes of a ModelProto.
//
//     rn_onnx_export_options options = {0};
//     rn_stablehlo_signature signature;
//     RN_TRY(rn_onnx_export_signature(graph, &memory, &signature));
//     RN_TRY(rn_onnx_export(graph, &options, &bytes)); // an rn_buffer
//
// Pure: the same graph and options give the same bytes. RN_ROWS is the symbolic axis "rows", so one
// model serves any number of rows.
//
// Inputs and outputs are those of the signature, in its order and under the names of
// rn_onnx_export_name: inputs that some node reads, runtime scalars (f64, rank 0), weights and
// large constants, states; the graph's outputs, then each state as it is after the run. With
// `weight_file`, weights and constants are initializers instead, whose bytes lie in that file one
// behind the other, from rn_onnx_export_offset on: the caller writes them.
//
// What it means is what the ops' reference loops mean, computed in f32. Two things differ: a
// quantised weight (and one of f16 or bf16) is widened to f32, and an index out of range is what
// the runtime makes of it.
//
// Refused with RN_UNSUPPORTED and the node's name: gradients and optimisers, recurrent layers'
// states, KV pages of q8_0, dtypes that ONNX runtimes do not compute with.
#ifndef RN_EXCHANGE_ONNX_EXPORT_H
#define RN_EXCHANGE_ONNX_EXPORT_H

#include "base/buffer.h"
#include "exchange/stablehlo.h"

enum { RN_ONNX_LEAST_OPSET = 18, RN_ONNX_OPSET = 21, RN_ONNX_MOST_OPSET = 27 };

typedef struct rn_onnx_export_options {
    uint32_t opset; // 0: RN_ONNX_OPSET
    // The name of the file that weights lie in, beside the model; NULL: they are inputs.
    const char *weight_file;
    // Weights that only products and convolutions read are i8 there, with a scale a row behind them
    // and a DequantizeLinear in front of whoever reads them.
    bool int8;
} rn_onnx_export_options;

// The model's inputs and outputs (and initializers); `memory` owns them. Shapes have RN_ROWS bound
// to 1, and so have bytes.
RN_MUST_USE rn_status rn_onnx_export_signature(const rn_graph *graph, rn_arena *memory,
                                               rn_stablehlo_signature *out);
// The name of an argument (result: of a result), in `memory`.
RN_MUST_USE rn_status rn_onnx_export_name(const rn_graph *graph,
                                          const rn_stablehlo_signature *signature, uint32_t index,
                                          bool result, rn_arena *memory, const char **out);
// Where argument `index` lies in the file of weights; that of argument_count: the file's bytes. Of
// one that is i8 there, the scales, f32 (dims[0]), lie behind it, on the next boundary of 4096.
uint64_t rn_onnx_export_offset(const rn_graph *graph, const rn_stablehlo_signature *signature,
                               uint32_t index);
// Makes the signature that of a model with options.int8: dtype and bytes of such weights are those
// of i8.
void rn_onnx_export_mark_int8(const rn_graph *graph, rn_stablehlo_signature *signature);
// Whether a weight was marked.
bool rn_onnx_export_is_int8(const rn_graph *graph, const rn_stablehlo_entry *entry);
// ONNX's number of a dtype, which is ONNX Runtime's, too; 0: there is none.
int rn_onnx_data_type(rn_dtype dtype);

// Appends the model.
RN_MUST_USE rn_status rn_onnx_export(const rn_graph *graph, const rn_onnx_export_options *options,
                                     rn_buffer *out);

#endif

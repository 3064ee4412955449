// retype.h — a graph whose f32 weights are held as another dtype or quantised kind.
//
//     matmul(x, w f32)      matmul(x, w q8_0)                              as it is
//     conv2d(x, w f32)      conv2d(x, reshape(dequantize(w q8_0)))         widened while it is used
//
// Products take matrices of any kind as they are, convolutions those of 16 bits; in front of all
// else stands a node that widens the weight to f32. int8 is by rows and for products only:
// elsewhere 8 bits are q8_0. Blocks are within a row of the first axis, so a weight that is widened
// from blocks is a matrix of such rows, under its own name. Vectors, and what is no whole number of
// blocks, stay f32.
#ifndef RN_GRAPH_RETYPE_H
#define RN_GRAPH_RETYPE_H

#include <ration/graph.h>

// A copy of a finished graph. `unquantised_activations`: of products, as rn_matmul_attrs has it.
// RN_UNSUPPORTED: no weight can be of this dtype.
RN_MUST_USE rn_status rn_graph_retype_weights(const rn_graph *graph, rn_dtype dtype,
                                              bool unquantised_activations, rn_graph **out);

#endif

// packed.h — products with weights, y = x wᵀ + bias: x (..., K) f32, w (N, K), bias (N) or none.
//
// Weights in panels (tensor/panels.h) are multiplied as they lie, whatever their dtype; the few
// dtypes that have panels are those that models are kept in. Rows of such a dtype as a file has
// them, at any address, are packed as they are used: so a weight that passes by need not be
// rearranged first. Every other readable weight is dequantised a tile at a time into workspace.
// The kinds of tensor/kinds.h are products with rounded activations, whose bits
// graph/quantized_product.h defines, unless unquantised_activations asks for numbers; those and all
// others are sums in f32, one chain over k (backend/cpu/tile.h).
//
// A row of y depends on its row of x alone, never on the others, on threads or on sizes of tiles.
#ifndef RN_BACKEND_CPU_PACKED_H
#define RN_BACKEND_CPU_PACKED_H

#include "graph/op.h"

// A matmul call whose weight is in RN_LAYOUT_PANELS, or plain with panels and a single part; x is
// not transposed.
bool rn_packed_plain_works(const rn_tensor *weight);
RN_MUST_USE rn_status rn_cpu_packed_matmul(const rn_call *call);
uint64_t rn_cpu_packed_matmul_workspace(const rn_call *call);

// The same for a plain weight of rank 2 of any readable dtype whose product is a sum in f32.
RN_MUST_USE rn_status rn_cpu_generic_matmul(const rn_call *call);
uint64_t rn_cpu_generic_matmul_workspace(const rn_call *call);

#endif

// weight_rows.h — a weight under a name of its own that is (some rows of) a tensor of the model's
// files under another: files that name tensors otherwise, or have q, k and v in one.
#ifndef RN_GRAPH_WEIGHT_ROWS_H
#define RN_GRAPH_WEIGHT_ROWS_H

#include <ration/graph.h>

// `tensor` is copied. The file's tensor may have other axes, as long as it has tensor_rows rows of
// as many elements each as the weight.
rn_value rn_graph_weight_rows(rn_graph *graph, const char *name, rn_dtype dtype, rn_shape shape,
                              const char *tensor, uint64_t first_row, uint64_t tensor_rows);

// The tensor of one matrix of a stack: `name` with its number in the place of the '*'; the name
// itself where it has none. False: it is longer than `capacity`.
bool rn_expert_tensor(const char *name, uint32_t expert, char *out, size_t capacity);

#endif

// head_product.h — a head's matrix, as kernels take it.
#ifndef RN_GRAPH_OP_HEAD_PRODUCT_H
#define RN_GRAPH_OP_HEAD_PRODUCT_H

#include "graph/op.h"

// The rows of head `head`'s matrix that count: (count, K), data NULL while planning.
rn_tensor rn_head_matrix(const rn_call *call, uint64_t head);

#endif

// packed_product.h — a packed product's call, read once. Private to the packed product.
#ifndef RN_BACKEND_CPU_PACKED_PRODUCT_H
#define RN_BACKEND_CPU_PACKED_PRODUCT_H

#include "backend/cpu/packed_ints.h"
#include "graph/op.h"
#include "tensor/panels.h"

typedef struct rn_packed_product {
    const rn_call *call;
    rn_panels panels;
    uint64_t m, n, k;      // y (m, n), x (m, k)
    const float *x, *bias; // bias NULL: none
    float *y;
    const uint8_t *weights; // the panels; NULL while planning
} rn_packed_product;

// packed_ints.c: the dtypes whose activations are rounded.
void rn_packed_ints_run(const rn_packed_product *product);
uint64_t rn_packed_ints_workspace(const rn_packed_product *product);
// packed_floats.c: the others.
void rn_packed_floats_run(const rn_packed_product *product);
uint64_t rn_packed_floats_workspace(const rn_packed_product *product);

#endif

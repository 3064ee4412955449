// packed_product.h — a packed product's call, read once. Private to the packed product.
//
// A weight lies in panels, or as its file has it: then a task packs the few panels that it is about
// to multiply into its own part of the workspace, where they stay in the cache until they have been
// used. So the kernels see the same bytes either way.
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
    const uint8_t *weights; // NULL while planning
    bool plain;             // they are rows of a file
    bool rounded;           // activations are rounded
} rn_packed_product;

// packed_plain.c. Bytes that a task packs `panels` panels into; 0 where they are there already.
uint64_t rn_packed_room(const rn_packed_product *product, uint64_t panels);
// The panels [panel, panel + panels), where they lie or packed into `room`.
const uint8_t *rn_packed_panels(const rn_packed_product *product, uint64_t panel, uint64_t panels,
                                void *room);

// packed_ints.c: the dtypes whose activations are rounded.
void rn_packed_ints_run(const rn_packed_product *product);
uint64_t rn_packed_ints_workspace(const rn_packed_product *product);
// packed_widened.c: the same dtypes in panels, activations as they are.
void rn_packed_widened_run(const rn_packed_product *product);
uint64_t rn_packed_widened_workspace(const rn_packed_product *product);
// packed_floats.c: the others.
void rn_packed_floats_run(const rn_packed_product *product);
// Rows of x up to which weights are multiplied as they lie; more of them are worth widening.
uint64_t rn_packed_floats_few(void);
uint64_t rn_packed_floats_workspace(const rn_packed_product *product);

#endif

// eager.h — the baseline: a graph run node by node, without a plan.
//
//     rn_eager *eager;
//     RN_TRY(rn_eager_create(graph, rn_cpu_kernels, workers, rows, &eager));
//     RN_TRY(rn_eager_set(eager, x, data, bytes)); // inputs, weights, states
//     RN_TRY(rn_eager_run(eager));
//     RN_TRY(rn_eager_get(eager, y, data, bytes));
//     rn_eager_destroy(eager);
//
// It does what frameworks do: each result is allocated from a pool when its node runs and freed
// after its last reader; weights lie as in the file; nothing overwrites an input unless the op says
// that it must. Everything planned is compared with it: the same bits, less memory.
//
// One thread at a time. The graph must be finished and outlive it.
#ifndef RN_RUNTIME_EAGER_H
#define RN_RUNTIME_EAGER_H

#include <ration/pool.h>

#include "device/kernel.h"

typedef struct rn_eager rn_eager;

// RN_ROWS stands for `rows` in every run. `workers` may be NULL: one thread. States begin as zeros.
RN_MUST_USE rn_status rn_eager_create(const rn_graph *graph, const rn_kernel *kernels,
                                      rn_workers *workers, uint64_t rows, rn_eager **out);
void rn_eager_destroy(rn_eager *eager);
// Copies an input, weight or state; `bytes` must be what its plain form has.
RN_MUST_USE rn_status rn_eager_set(rn_eager *eager, rn_value value, const void *data,
                                   uint64_t bytes);
void rn_eager_set_scalar(rn_eager *eager, uint32_t scalar, rn_scalar value);
// Every input and weight must have been set. RN_UNSUPPORTED: there is no kernel for an op.
RN_MUST_USE rn_status rn_eager_run(rn_eager *eager);
// An output, or anything that can be set.
RN_MUST_USE rn_status rn_eager_get(const rn_eager *eager, rn_value value, void *data,
                                   uint64_t bytes);
// The bytes themselves, or NULL where the value is not held now.
void *rn_eager_data(const rn_eager *eager, rn_value value);
// What the pool held at most.
rn_pool_stats rn_eager_stats(const rn_eager *eager);

#endif

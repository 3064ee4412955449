// storage.h — which values are the same bytes, and which node changes them in place.
//
//     kv ──view──▶ part          kv and part are one version of one storage;
//      └──kv_append──▶ kv'       kv' is the same storage, later: another version
//
// A version may be read until its updater runs, and never after.
#ifndef RN_GRAPH_STORAGE_H
#define RN_GRAPH_STORAGE_H

#include "base/arena.h"
#include "graph/op.h"

typedef struct rn_storage {
    rn_value *version; // (values + 1): the first value of the same version
    uint32_t *updater; // (values + 1): by version, the first node that changes it, or RN_NO_NODE
} rn_storage;

// The arrays lie in `memory`. Where a view depends on the number of rows, it counts as one.
RN_MUST_USE rn_status rn_storage_trace(const rn_graph *graph, rn_arena *memory, rn_storage *out);
// Whether `value` is no longer what it was when node `at` runs: another node has changed it before.
bool rn_storage_is_stale(const rn_storage *storage, rn_value value, uint32_t at);

#endif

// targets.h — the classes that a loss is told to expect.
#ifndef RN_GRAPH_OP_TARGETS_H
#define RN_GRAPH_OP_TARGETS_H

#include <ration/graph.h>

// Whether a row counts; RN_INVALID where its target is no class.
static inline rn_status rn_target_check(uint64_t row, int32_t target, int32_t ignore,
                                        uint64_t classes, bool *out_counts) {
    *out_counts = target != ignore;
    if (!*out_counts || (target >= 0 && (uint64_t)target < classes)) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "row %llu has target %d of %llu classes",
                           (unsigned long long)row, (int)target, (unsigned long long)classes),
                   "targets are 0 .. %llu, or %d for a row that does not count",
                   (unsigned long long)classes - 1, (int)ignore);
}

#endif

// fault.c — countdowns to a failure.
#include "base/fault.h"

#include <stdatomic.h>

static _Atomic uint64_t countdown[RN_FAULT_COUNT]; // 0: not armed
static _Atomic bool fired[RN_FAULT_COUNT];

void rn_fault_arm(rn_fault kind, uint64_t nth) {
    atomic_store(&fired[kind], false);
    atomic_store(&countdown[kind], nth);
}

bool rn_fault_fired(rn_fault kind) {
    return atomic_load(&fired[kind]);
}

bool rn_fault_hit(rn_fault kind) {
    uint64_t left = atomic_load_explicit(&countdown[kind], memory_order_relaxed);
    while (left != 0) {
        if (!atomic_compare_exchange_weak(&countdown[kind], &left, left - 1)) continue;
        if (left > 1) return false;
        atomic_store(&fired[kind], true);
        return true;
    }
    return false;
}

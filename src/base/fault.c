// fault.c — countdowns to a failure.
#include "base/fault.h"

#include <stdatomic.h>

static _Atomic uint64_t countdown[RN_FAULT_COUNT]; // 0: not armed
static _Atomic bool fired[RN_FAULT_COUNT];
static _Atomic(rn_fault_watcher) watcher;

void rn_fault_arm(rn_fault kind, uint64_t nth) {
    atomic_store(&fired[kind], false);
    atomic_store(&countdown[kind], nth);
}

bool rn_fault_fired(rn_fault kind) {
    return atomic_load(&fired[kind]);
}

void rn_fault_watch(rn_fault_watcher watch) {
    atomic_store(&watcher, watch);
}

static void tell(rn_fault kind) {
    rn_fault_watcher watch = atomic_load(&watcher);
    if (watch) watch(kind);
}

bool rn_fault_hit(rn_fault kind) {
    uint64_t left = atomic_load_explicit(&countdown[kind], memory_order_relaxed);
    if (left != 0) tell(kind);
    while (left != 0) {
        if (!atomic_compare_exchange_weak(&countdown[kind], &left, left - 1)) continue;
        if (left > 1) return false;
        atomic_store(&fired[kind], true);
        return true;
    }
    return false;
}

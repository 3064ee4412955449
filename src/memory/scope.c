// scope.c — a stack of scopes for each thread, found through the thread context that workers
// inherit. Several threads may add to one scope, so its fields change by atomic operations.
#include "memory/scope.h"
#include "memory/ledger.h"

#include "base/workers.h"

#include <assert.h>

void rn_scope_begin(rn_scope *scope, const char *name, rn_device_id device) {
    *scope = (rn_scope){.name = name, .outer = rn_thread_context(), .device = device};
    rn_thread_context_set(scope);
    rn_ledger_emit(&(rn_event){.kind = RN_EVENT_SCOPE_BEGIN, .name = name});
}

rn_scope_stats rn_scope_end(rn_scope *scope) {
    assert(rn_thread_context() == scope); // scopes end in the reverse order of their beginning
    rn_thread_context_set(scope->outer);
    rn_ledger_emit(&(rn_event){.kind = RN_EVENT_SCOPE_END, .name = scope->name});
    scope->stats.delta = __atomic_load_n(&scope->held, __ATOMIC_RELAXED);
    return scope->stats;
}

static void count_charge(rn_scope *scope, uint64_t bytes) {
    int64_t held = __atomic_add_fetch(&scope->held, (int64_t)bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&scope->stats.total_allocated, bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&scope->stats.num_allocations, 1, __ATOMIC_RELAXED);
    uint64_t peak = __atomic_load_n(&scope->stats.peak_allocated, __ATOMIC_RELAXED);
    while (held > 0 && (uint64_t)held > peak)
        if (__atomic_compare_exchange_n(&scope->stats.peak_allocated, &peak, (uint64_t)held, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return;
}

void rn_scope_count(rn_scope *innermost, rn_device_id device, int64_t bytes) {
    for (rn_scope *scope = innermost; scope; scope = scope->outer) {
        if (scope->device != RN_DEVICE_ANY && scope->device != device) continue;
        if (bytes >= 0)
            count_charge(scope, (uint64_t)bytes);
        else
            __atomic_add_fetch(&scope->held, bytes, __ATOMIC_RELAXED);
    }
}

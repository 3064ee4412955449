// request_memory.c — one counter: taking is a compare-and-swap that never passes the total.
#include "server/request_memory.h"

#include "base/checked.h"

void rn_request_memory_init(rn_request_memory *memory, uint64_t total_bytes) {
    memory->total_bytes = total_bytes;
    atomic_init(&memory->taken_bytes, 0);
    atomic_init(&memory->peak_bytes, 0);
}

static void raise_peak(rn_request_memory *memory, uint64_t taken) {
    uint64_t peak = atomic_load_explicit(&memory->peak_bytes, memory_order_relaxed);
    while (peak < taken && !atomic_compare_exchange_weak(&memory->peak_bytes, &peak, taken)) {
    }
}

bool rn_request_memory_take(rn_request_memory *memory, uint64_t bytes) {
    uint64_t taken = atomic_load_explicit(&memory->taken_bytes, memory_order_relaxed), then;
    do {
        if (!rn_add_u64(taken, bytes, &then) || then > memory->total_bytes) return false;
    } while (!atomic_compare_exchange_weak(&memory->taken_bytes, &taken, then));
    raise_peak(memory, then);
    return true;
}

void rn_request_memory_release(rn_request_memory *memory, uint64_t bytes) {
    atomic_fetch_sub(&memory->taken_bytes, bytes);
}

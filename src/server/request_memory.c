// request_memory.c — one counter: taking is a compare-and-swap that never passes the total.
#include "server/request_memory.h"

#include "base/checked.h"

void rn_request_memory_init(rn_request_memory *room, uint64_t total_bytes) {
    room->total_bytes = total_bytes;
    atomic_init(&room->taken_bytes, 0);
    atomic_init(&room->peak_bytes, 0);
}

static void raise_peak(rn_request_memory *room, uint64_t taken) {
    uint64_t peak = atomic_load_explicit(&room->peak_bytes, memory_order_relaxed);
    while (peak < taken && !atomic_compare_exchange_weak(&room->peak_bytes, &peak, taken)) {
    }
}

bool rn_request_memory_take(rn_request_memory *room, uint64_t bytes) {
    uint64_t taken = atomic_load_explicit(&room->taken_bytes, memory_order_relaxed), then;
    do {
        if (!rn_add_u64(taken, bytes, &then) || then > room->total_bytes) return false;
    } while (!atomic_compare_exchange_weak(&room->taken_bytes, &taken, then));
    raise_peak(room, then);
    return true;
}

void rn_request_memory_release(rn_request_memory *room, uint64_t bytes) {
    atomic_fetch_sub(&room->taken_bytes, bytes);
}

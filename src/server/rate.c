// rate.c — a wheel of slots. Whoever comes first in a new quarter of a second takes over the slot
// of one that is long past; one compare-and-swap replaces its number and its count together.
#include "server/rate.h"

static uint64_t slot_number(uint64_t now_ns) {
    return now_ns / RN_RATE_SLOT_NS;
}

void rn_rate_add(rn_rate *rate, uint64_t now_ns, uint32_t amount) {
    uint64_t number = slot_number(now_ns);
    uint64_t first = (uint64_t)(uint32_t)number << 32;
    _Atomic uint64_t *slot = &rate->slots[number % RN_RATE_SLOTS];
    uint64_t seen = atomic_load_explicit(slot, memory_order_relaxed), next;
    do
        next = seen >> 32 == first >> 32 ? seen + amount : first + amount;
    while (!atomic_compare_exchange_weak_explicit(slot, &seen, next, memory_order_relaxed,
                                                  memory_order_relaxed));
}

double rn_rate_get(const rn_rate *rate, uint64_t now_ns) {
    uint64_t number = slot_number(now_ns), sum = 0;
    for (uint64_t back = 1; back <= RN_RATE_SLOTS_SEEN && back <= number; back++) {
        uint64_t slot = atomic_load_explicit(&rate->slots[(number - back) % RN_RATE_SLOTS],
                                             memory_order_relaxed);
        if (slot >> 32 == (uint32_t)(number - back)) sum += (uint32_t)slot;
    }
    return (double)sum * 1e9 / ((double)RN_RATE_SLOTS_SEEN * RN_RATE_SLOT_NS);
}

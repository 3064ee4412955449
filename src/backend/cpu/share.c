// share.c — one task a slot, and each takes indices until none is left.
#include "backend/cpu/share.h"

#include <stdatomic.h>

typedef struct shared {
    rn_slot_task fn;
    void *arg;
    size_t count;
    _Atomic size_t next;
} shared;

static void take(void *arg, size_t slot) {
    shared *s = arg;
    for (;;) {
        size_t index = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
        if (index >= s->count) return;
        s->fn(s->arg, (uint32_t)slot, index);
    }
}

void rn_share(const rn_call *call, size_t count, rn_slot_task fn, void *arg) {
    shared s = {.fn = fn, .arg = arg, .count = count};
    rn_call_each(call, count < call->threads ? count : call->threads, take, &s);
}

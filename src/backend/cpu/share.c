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

// ---- runs ---------------------------------------------------------------------------------------

enum { MOST_RUNS = 64 };

typedef struct runs {
    rn_slot_task fn;
    void *arg;
    size_t count; // of runs
    struct run {
        _Atomic size_t next;
        size_t end;
    } run[MOST_RUNS];
} runs;

static void take_runs(void *arg, size_t slot) {
    runs *r = arg;
    for (size_t i = 0; i < r->count; i++) {
        struct run *run = &r->run[(slot + i) % r->count];
        for (;;) {
            size_t index = atomic_fetch_add_explicit(&run->next, 1, memory_order_relaxed);
            if (index >= run->end) break;
            r->fn(r->arg, (uint32_t)slot, index);
        }
    }
}

void rn_share_runs(const rn_call *call, size_t count, rn_slot_task fn, void *arg) {
    size_t slots = count < call->threads ? count : call->threads;
    runs r = {.fn = fn, .arg = arg, .count = slots < MOST_RUNS ? slots : MOST_RUNS};
    for (size_t i = 0; i < r.count; i++) {
        atomic_init(&r.run[i].next, count * i / r.count);
        r.run[i].end = count * (i + 1) / r.count;
    }
    rn_call_each(call, slots, take_runs, &r);
}

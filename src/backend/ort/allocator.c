// allocator.c — what ONNX Runtime allocates for tensors, within what was planned.
//
// Sessions are charged with what they may hold before they are made (runtime/session_executable.c),
// so blocks are counted here, against the sum of that, and come straight from the system. In front
// of each block lies its size, because its owner does not say it when it frees.
//
// A request that is refused gets a stand-in (stand_in.c), and the run that made it is told to end.
// It is made by the thread that runs; where a helper of it makes one, the thread finds out later.
// The same way leads out of a run that somebody cancels: a request is where the flag is looked at.
#include "backend/ort/ort.h"

#include "base/alloc.h"
#include "base/checked.h"

#include <stdatomic.h>
#include <string.h>

enum { HEAD = 64 };

static _Atomic uint64_t allowed, held, peak;
static _Atomic uint64_t refused_elsewhere; // in a thread that nobody watches
static _Atomic uint32_t stand_ins;
static _Thread_local rn_ort_run *current;

static bool take(uint64_t bytes) {
    uint64_t now = atomic_load(&held);
    do {
        uint64_t limit = atomic_load(&allowed);
        if (now > limit || bytes > limit - now) return false;
    } while (!atomic_compare_exchange_weak(&held, &now, now + bytes));
    uint64_t most = atomic_load(&peak);
    while (most < now + bytes && !atomic_compare_exchange_weak(&peak, &most, now + bytes))
        ;
    return true;
}

static void end_run(void) {
    if (!current->run_options || current->ended) return;
    rn_ort_status *status = current->api->set_terminate(current->run_options);
    if (status) current->api->release_status(status);
    current->ended = true;
}

static void *refuse(uint64_t bytes) {
    void *address = rn_ort_stand_in(bytes);
    if (address) atomic_fetch_add(&stand_ins, 1);
    if (!current) {
        atomic_store(&refused_elsewhere, bytes);
        return address;
    }
    current->refused_bytes = bytes;
    end_run();
    return address;
}

static void *allocate(rn_ort_allocator *self, size_t bytes) {
    void *block = NULL;
    uint64_t all;
    (void)self;
    if (bytes == 0) return NULL;
    if (current && current->cancel && atomic_load(current->cancel)) end_run();
    if (!rn_add_u64(bytes, HEAD, &all) || !take(all)) return refuse(bytes);
    if (rn_alloc(&rn_system_allocator, all, &block) != RN_OK) {
        atomic_fetch_sub(&held, all);
        return refuse(bytes);
    }
    memcpy(block, &all, sizeof all);
    return (char *)block + HEAD;
}

static void release(rn_ort_allocator *self, void *data) {
    uint64_t all;
    (void)self;
    if (!data) return;
    if (atomic_load(&stand_ins) && rn_ort_stand_in_free(data)) {
        atomic_fetch_sub(&stand_ins, 1);
        return;
    }
    char *block = (char *)data - HEAD;
    memcpy(&all, block, sizeof all);
    rn_free(&rn_system_allocator, block, all);
    atomic_fetch_sub(&held, all);
}

static const void *describe(const rn_ort_allocator *self) {
    (void)self;
    return rn_ort_cpu_memory();
}

rn_ort_allocator *rn_ort_allocator_get(void) {
    static rn_ort_allocator allocator = {
        .version = RN_ORT_VERSION, .alloc = allocate, .free = release, .info = describe};
    return &allocator;
}

void rn_ort_allow(uint64_t bytes) {
    atomic_fetch_add(&allowed, bytes);
}

void rn_ort_disallow(uint64_t bytes) {
    atomic_fetch_sub(&allowed, bytes);
}

uint64_t rn_ort_held_bytes(void) {
    return atomic_load(&held);
}

uint64_t rn_ort_take_peak(void) {
    return atomic_exchange(&peak, atomic_load(&held));
}

void rn_ort_watch(rn_ort_run *run) {
    uint64_t elsewhere = atomic_exchange(&refused_elsewhere, 0);
    if (current && !current->refused_bytes) current->refused_bytes = elsewhere;
    current = run;
}

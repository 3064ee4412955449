// hook_table.c — 64 shards, each an open-addressed table behind a spin lock. A block's shard and
// its place in it come from one multiplication; blocks of two threads rarely meet in a shard, and
// what is done under a lock is a few loads. Removing closes the gap (backward shift), so there are
// no tombstones and a table that has been full is as fast as a new one.
#include "profile/hook/hook_table.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "memory/account.h"

#define SHARD_BITS  6
#define SHARD_COUNT (1 << SHARD_BITS)
#define FIRST_SLOTS 64

// A slot is free when its address is 0.
typedef struct slot {
    uint64_t address;
    uint64_t word; // bytes, purpose << 48, label << 56
} slot;

typedef struct shard {
    _Alignas(64) _Atomic int owner; // the process that has it locked; 0: nobody
    uint32_t capacity;              // of slots: a power of two, or 0
    uint32_t count;
    uint64_t total, total_bytes, missed;
    slot *slots;
} shard;

static shard shards[SHARD_COUNT];
// A shard's first slots: some thousand blocks are followed before an operation of the program's
// would be seen to pay for the table's growth.
static slot first_slots[SHARD_COUNT][FIRST_SLOTS];
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static _Atomic int process; // this one

static void note_process(void) {
    atomic_store(&process, (int)getpid());
}

static void watch_forks(void) {
    note_process();
    (void)pthread_atfork(NULL, NULL, note_process);
}

// A child inherits a lock whose owner it does not have, and a table in the middle of a change: it
// forgets that part. (Locking everything before a fork would lock out the handlers of other
// libraries, which may allocate.)
static bool take_over(shard *s) {
    int owner = atomic_load(&s->owner), self = (int)getpid();
    if (owner == 0 || owner == self) return false;
    if (!atomic_compare_exchange_strong(&s->owner, &owner, self)) return false;
    s->slots = NULL;
    s->capacity = s->count = 0;
    return true;
}

static void lock(shard *s) {
    int self = atomic_load_explicit(&process, memory_order_relaxed), nobody = 0;
    if (self == 0) {
        (void)pthread_once(&fork_once, watch_forks);
        self = atomic_load(&process);
    }
    for (unsigned spins = 1; !atomic_compare_exchange_weak_explicit(
             &s->owner, &nobody, self, memory_order_acquire, memory_order_relaxed);
         spins++) {
        nobody = 0;
        if (spins % 64 != 0) continue;
        if (take_over(s)) return;
        sched_yield();
    }
}

static void unlock(shard *s) {
    atomic_store_explicit(&s->owner, 0, memory_order_release);
}

static uint64_t hash(uint64_t address) {
    return (address >> 4) * UINT64_C(0x9E3779B97F4A7C15);
}

static shard *shard_of(uint64_t address) {
    return &shards[hash(address) >> (64 - SHARD_BITS)];
}

static uint32_t home(const shard *s, uint64_t address) {
    return (uint32_t)(hash(address) >> 24) & (s->capacity - 1);
}

static slot pack(uint64_t address, rn_hook_block block) {
    return (slot){address,
                  block.bytes | (uint64_t)block.purpose << 48 | (uint64_t)block.label << 56};
}

static rn_hook_block unpack(slot s) {
    return (rn_hook_block){s.word & RN_HOOK_MOST_BYTES, (uint8_t)(s.word >> 48),
                           (uint8_t)(s.word >> 56)};
}

// The slot of the address, or the free one where it belongs. There is always a free one.
static slot *probe(const shard *s, uint64_t address) {
    uint32_t i = home(s, address);
    while (s->slots[i].address && s->slots[i].address != address)
        i = (i + 1) & (s->capacity - 1);
    return &s->slots[i];
}

static bool is_first(const shard *s) {
    return s->slots == first_slots[s - shards];
}

static void begin_small(shard *s) {
    s->slots = first_slots[s - shards];
    s->capacity = FIRST_SLOTS;
    s->count = 0;
    memset(s->slots, 0, sizeof first_slots[0]);
}

static void free_slots(shard *s) {
    if (!is_first(s))
        rn_free(&rn_host_allocators[RN_PURPOSE_PROFILER], s->slots, s->capacity * sizeof(slot));
}

static bool grow(shard *s) {
    shard larger = {.capacity = 2 * s->capacity};
    if (rn_alloc_zeroed(&rn_host_allocators[RN_PURPOSE_PROFILER], larger.capacity, sizeof(slot),
                        (void **)&larger.slots) != RN_OK)
        return false;
    for (uint32_t i = 0; i < s->capacity; i++)
        if (s->slots[i].address) *probe(&larger, s->slots[i].address) = s->slots[i];
    free_slots(s);
    s->slots = larger.slots;
    s->capacity = larger.capacity;
    return true;
}

static rn_hook_put put_locked(shard *s, uint64_t address, rn_hook_block block, bool keep,
                              rn_hook_block *out_old) {
    if (s->capacity == 0) begin_small(s);
    if (4 * (s->count + 1) > 3 * s->capacity && !grow(s) && s->count + 1 >= s->capacity) {
        s->missed++;
        return RN_HOOK_NO_MEMORY;
    }
    slot *at = probe(s, address);
    bool there = at->address != 0;
    if (there) *out_old = unpack(*at);
    if (there && keep) return RN_HOOK_REPLACED;
    *at = pack(address, block);
    s->count += !there;
    s->total++;
    s->total_bytes += block.bytes;
    return there ? RN_HOOK_REPLACED : RN_HOOK_NEW;
}

rn_hook_put rn_hook_table_put(uint64_t address, rn_hook_block block, bool keep,
                              rn_hook_block *out_old) {
    shard *s = shard_of(address);
    lock(s);
    rn_hook_put result = put_locked(s, address, block, keep, out_old);
    unlock(s);
    return result;
}

// Moves back what had to go past the hole, until a free slot.
static void close_gap(shard *s, uint32_t hole) {
    uint32_t mask = s->capacity - 1;
    for (uint32_t i = (hole + 1) & mask; s->slots[i].address; i = (i + 1) & mask) {
        uint32_t wanted = home(s, s->slots[i].address);
        if (((i - wanted) & mask) < ((i - hole) & mask)) continue; // its home is behind the hole
        s->slots[hole] = s->slots[i];
        hole = i;
    }
    s->slots[hole].address = 0;
}

// Locks the address's shard; *out_shard is to be unlocked. NULL: it is not there.
static slot *find_locked(uint64_t address, shard **out_shard) {
    shard *s = *out_shard = shard_of(address);
    lock(s);
    slot *at = s->capacity ? probe(s, address) : NULL;
    return at && at->address ? at : NULL;
}

bool rn_hook_table_take(uint64_t address, rn_hook_block *out) {
    shard *s;
    slot *at = find_locked(address, &s);
    if (at) {
        *out = unpack(*at);
        close_gap(s, (uint32_t)(at - s->slots));
        s->count--;
    }
    unlock(s);
    return at != NULL;
}

bool rn_hook_table_find(uint64_t address, rn_hook_block *out) {
    shard *s;
    slot *at = find_locked(address, &s);
    if (at) *out = unpack(*at);
    unlock(s);
    return at != NULL;
}

bool rn_hook_table_label(uint64_t address, uint8_t label, rn_hook_block *out) {
    shard *s;
    slot *at = find_locked(address, &s);
    if (at) {
        *out = unpack(*at);
        out->label = label;
        *at = pack(address, *out);
    }
    unlock(s);
    return at != NULL;
}

rn_hook_table_counts rn_hook_table_count(void) {
    rn_hook_table_counts sum = {0};
    for (int i = 0; i < SHARD_COUNT; i++) {
        lock(&shards[i]);
        sum.live += shards[i].count;
        sum.total += shards[i].total;
        sum.total_bytes += shards[i].total_bytes;
        sum.missed += shards[i].missed;
        unlock(&shards[i]);
    }
    return sum;
}

void rn_hook_table_walk(void (*visit)(void *self, uint64_t address, rn_hook_block block),
                        void *self) {
    for (int i = 0; i < SHARD_COUNT; i++) {
        shard *s = &shards[i];
        lock(s);
        for (uint32_t k = 0; k < s->capacity; k++)
            if (s->slots[k].address) visit(self, s->slots[k].address, unpack(s->slots[k]));
        unlock(s);
    }
}

uint64_t rn_hook_table_forget(void) {
    uint64_t bytes = 0;
    for (int i = 0; i < SHARD_COUNT; i++) {
        shard *s = &shards[i];
        lock(s);
        for (uint32_t k = 0; k < s->capacity; k++)
            if (s->slots[k].address) bytes += unpack(s->slots[k]).bytes;
        if (s->capacity) memset(s->slots, 0, s->capacity * sizeof(slot));
        s->count = 0;
        unlock(s);
    }
    return bytes;
}

void rn_hook_table_clear(void) {
    for (int i = 0; i < SHARD_COUNT; i++) {
        shard *s = &shards[i];
        lock(s);
        free_slots(s);
        s->slots = NULL;
        s->capacity = s->count = 0;
        s->total = s->total_bytes = s->missed = 0;
        unlock(s);
    }
}

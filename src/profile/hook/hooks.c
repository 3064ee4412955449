// hooks.c — counting what other code allocates, and telling the recording of it.
//
// Order matters where addresses come back: a block's release is told before the C library can hand
// its address to another thread, its allocation after it was handed out. `now` counts what exists,
// and the largest value that an addition gave is the exact peak. Where there is a limit, a block is
// counted before it is allocated, so that the limit is never crossed.
#include "profile/hook/hook_count.h"

#include <pthread.h>
#include <stdatomic.h>

#include "profile/hook/hook_stack.h"
#include "profile/hook/hook_table.h"
#include "profile/record/record.h"

#define MAX_DEPTH 128

static _Atomic uint64_t now, peak, refused;
static _Atomic uint64_t limit = RN_NO_LIMIT;
static _Atomic uint64_t min_bytes = 64 << 10, min_align = 64;
static atomic_bool stacks;
static rn_device_id cpu_device;
static atomic_bool has_device;
static pthread_once_t device_once = PTHREAD_ONCE_INIT;

// How deep this thread is in the profiler; what its memory serves, operation by operation.
static _Thread_local unsigned inside;
static _Thread_local uint8_t purpose_now = RN_PURPOSE_OTHER;
static _Thread_local uint8_t purposes[MAX_DEPTH];
static _Thread_local uint32_t depth;

static void add_device(void) {
    inside++;
    if (rn_device_add("cpu", &cpu_device) != RN_OK) cpu_device = RN_DEVICE_HOST; // table full
    atomic_store_explicit(&has_device, true, memory_order_release);
    inside--;
}

static rn_account account_of(uint8_t purpose) {
    if (!atomic_load_explicit(&has_device, memory_order_acquire))
        (void)pthread_once(&device_once, add_device);
    return (rn_account){cpu_device, purpose, NULL};
}

void rn_hooks_set_filter(rn_hooks_filter filter) {
    atomic_store(&min_bytes, filter.min_bytes);
    atomic_store(&min_align, filter.min_align);
}

// The first walk over a stack loads what unwinds it.
void rn_hooks_set_stacks(bool on) {
    inside++;
    if (on) (void)rn_hook_stack(false);
    inside--;
    atomic_store(&stacks, on);
}

void rn_hooks_set_limit(uint64_t bytes) {
    atomic_store(&limit, bytes);
}

// ---- blocks -----------------------------------------------------------------------------------

static bool is_wanted(uint64_t bytes, uint64_t align) {
    return bytes > 0 && bytes <= RN_HOOK_MOST_BYTES && !inside &&
           (bytes >= atomic_load_explicit(&min_bytes, memory_order_relaxed) ||
            align >= atomic_load_explicit(&min_align, memory_order_relaxed));
}

// The recording has it on disk before the program dies of it.
static void refuse(uint64_t bytes) {
    atomic_fetch_add(&refused, 1);
    if (!rn_profile_is_on()) return;
    inside++;
    rn_record_mark(RN_MARK_REFUSAL, account_of(RN_PURPOSE_OTHER).device, 0, bytes);
    rn_profile_flush();
    inside--;
}

static bool reserve(uint64_t bytes, uint64_t most) {
    uint64_t have = atomic_load_explicit(&now, memory_order_relaxed);
    do {
        if (bytes > most || have > most - bytes) return false;
    } while (!atomic_compare_exchange_weak_explicit(&now, &have, have + bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

rn_hook_room rn_hook_take_room(uint64_t bytes, uint64_t align) {
    if (!is_wanted(bytes, align)) return RN_HOOK_UNWANTED;
    uint64_t most = atomic_load_explicit(&limit, memory_order_relaxed);
    if (most == RN_NO_LIMIT) return RN_HOOK_WANTED;
    if (reserve(bytes, most)) return RN_HOOK_TAKEN;
    refuse(bytes);
    return RN_HOOK_REFUSED;
}

static void count_down(uint64_t bytes) {
    atomic_fetch_sub_explicit(&now, bytes, memory_order_relaxed);
}

// Signed: rn_hook_forget may take away a block that another thread is just about to add.
static void raise_peak(uint64_t level) {
    uint64_t most = atomic_load_explicit(&peak, memory_order_relaxed);
    while ((int64_t)level > (int64_t)most &&
           !atomic_compare_exchange_weak_explicit(&peak, &most, level, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

static void count_up(uint64_t bytes, rn_hook_room room) {
    if (room == RN_HOOK_TAKEN)
        raise_peak(atomic_load_explicit(&now, memory_order_relaxed));
    else
        raise_peak(atomic_fetch_add_explicit(&now, bytes, memory_order_relaxed) + bytes);
}

static void forget(uint64_t address, rn_hook_block block) {
    rn_profile_free(account_of(block.purpose), address, block.bytes, 0);
    count_down(block.bytes);
}

// A program that asks for tensors holds no lock that Python's could wait for; of all memory, that
// cannot be said.
static void tell_site(uint64_t address, rn_hook_block block) {
    if (!atomic_load_explicit(&stacks, memory_order_relaxed) || !rn_profile_is_on()) return;
    uint32_t site = rn_hook_stack(atomic_load_explicit(&min_bytes, memory_order_relaxed) > 0);
    if (site)
        rn_profile_alloc(account_of(block.purpose), address, block.bytes, site, RN_PROFILE_SITE);
}

static bool remember(uint64_t address, rn_hook_block block, bool keep, rn_hook_room room) {
    rn_hook_block old = {0};
    rn_hook_put put = rn_hook_table_put(address, block, keep, &old);
    bool added = put == RN_HOOK_NEW || (put == RN_HOOK_REPLACED && !keep);
    if (put == RN_HOOK_REPLACED && !keep) forget(address, old); // freed where we do not look
    if (added) {
        count_up(block.bytes, room);
        rn_profile_alloc(account_of(block.purpose), address, block.bytes, 0, 0);
        if (!keep) tell_site(address, block); // of one that was there before nobody knows
    } else if (room == RN_HOOK_TAKEN) {
        count_down(block.bytes);
    }
    return added;
}

void rn_hook_saw_alloc(const void *address, uint64_t bytes, rn_hook_room room) {
    if (!address) {
        if (room == RN_HOOK_TAKEN) count_down(bytes);
        return;
    }
    inside++;
    (void)remember((uint64_t)(uintptr_t)address, (rn_hook_block){bytes, purpose_now, purpose_now},
                   false, room);
    inside--;
}

bool rn_hooks_adopt(uint64_t address, uint64_t bytes, rn_purpose purpose) {
    if (address == 0 || bytes == 0 || bytes > RN_HOOK_MOST_BYTES) return false;
    inside++;
    bool added = remember(address, (rn_hook_block){bytes, (uint8_t)purpose, (uint8_t)purpose}, true,
                          RN_HOOK_WANTED); // it exists, whatever the limit
    inside--;
    return added;
}

uint64_t rn_hook_saw_free(const void *address) {
    rn_hook_block block = {0};
    if (!address || inside || !rn_hook_table_take((uint64_t)(uintptr_t)address, &block)) return 0;
    inside++;
    forget((uint64_t)(uintptr_t)address, block);
    inside--;
    return block.bytes;
}

void rn_hook_forget(void) {
    uint64_t bytes = rn_hook_table_forget();
    count_down(bytes);
}

static void tell(void *self, uint64_t address, rn_hook_block block) {
    (void)self;
    rn_profile_alloc(account_of(block.purpose), address, block.bytes, 0, 0);
}

void rn_hooks_replay(void) {
    (void)account_of(RN_PURPOSE_OTHER);
    inside++;
    rn_hook_table_walk(tell, NULL);
    inside--;
}

// ---- what they are ------------------------------------------------------------------------------

static bool label(uint64_t address, rn_purpose purpose, uint32_t name) {
    rn_hook_block block = {0};
    bool known = purpose < RN_PURPOSE_COUNT ? rn_hook_table_label(address, (uint8_t)purpose, &block)
                                            : rn_hook_table_find(address, &block);
    if (known)
        rn_profile_alloc(account_of(block.label), address, block.bytes, name, RN_PROFILE_RELABEL);
    return known;
}

bool rn_hooks_label(uint64_t address, rn_purpose purpose, uint32_t name) {
    inside++;
    bool known = label(address, purpose, name);
    inside--;
    return known;
}

size_t rn_hooks_label_all(const uint64_t *addresses, const uint32_t *names, size_t count,
                          rn_purpose purpose) {
    size_t known = 0;
    inside++;
    for (size_t i = 0; i < count; i++)
        known += label(addresses[i], purpose, names ? names[i] : 0);
    inside--;
    return known;
}

rn_purpose rn_hooks_set_purpose(rn_purpose purpose) {
    rn_purpose before = purpose_now;
    purpose_now = (uint8_t)purpose;
    return before;
}

// Deeper than MAX_DEPTH the purpose stays what it is.
void rn_hooks_begin(uint32_t name, rn_purpose purpose) {
    inside++;
    rn_profile_begin(name);
    inside--;
    if (depth < MAX_DEPTH) {
        purposes[depth] = purpose_now;
        if (purpose < RN_PURPOSE_COUNT) purpose_now = (uint8_t)purpose;
    }
    depth++;
}

void rn_hooks_end(void) {
    if (depth == 0) return;
    if (--depth < MAX_DEPTH) purpose_now = purposes[depth];
    inside++;
    rn_profile_end();
    inside--;
}

// ---- numbers ------------------------------------------------------------------------------------

void rn_hooks_get_stats(rn_hooks_stats *out) {
    rn_hook_table_counts blocks = rn_hook_table_count();
    *out = (rn_hooks_stats){
        .now_bytes = atomic_load(&now),
        .peak_bytes = atomic_load(&peak),
        .now_count = blocks.live,
        .total_bytes = blocks.total_bytes,
        .total_count = blocks.total,
        .refused_count = atomic_load(&refused),
        .missed_count = blocks.missed,
        .limit_bytes = atomic_load(&limit),
        .slot_count = rn_hook_slot_count(),
        .preloaded = rn_hook_is_wrapped(),
    };
}

void rn_hooks_reset_peak(void) {
    atomic_store(&peak, atomic_load(&now));
}

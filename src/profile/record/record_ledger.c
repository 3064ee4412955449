// record_ledger.c — the ledger's events become the trace's, and its peaks the trace's peaks.
//
// The peak of a device is the ledger's own: counted by the add that reached it, so no order of
// threads can hide it. Where a device has bytes that are not on the ledger (rn_profile_alloc), it
// is the most of both together, as each event finds them.
#include "profile/record/record.h"

#include "base/str.h"
#include "memory/ledger.h"

#include <sched.h>
#include <stdio.h>

// ---- peaks --------------------------------------------------------------------------------------

// Bytes and time belong together, so the few who raise it take turns.
static void raise_slowly(rn_peak *peak, uint64_t bytes, uint64_t now_ns) {
    while (atomic_flag_test_and_set_explicit(&peak->lock, memory_order_acquire))
        sched_yield();
    if (bytes > atomic_load_explicit(&peak->bytes, memory_order_relaxed)) {
        atomic_store_explicit(&peak->bytes, bytes, memory_order_relaxed);
        atomic_store_explicit(&peak->time_ns, now_ns, memory_order_relaxed);
    }
    atomic_flag_clear_explicit(&peak->lock, memory_order_release);
}

static inline void raise_peak(rn_peak *peak, uint64_t bytes, uint64_t now_ns) {
    if (bytes > atomic_load_explicit(&peak->bytes, memory_order_relaxed))
        raise_slowly(peak, bytes, now_ns);
}

// The ledger's bytes together with `extra`, which is what is beside it.
static uint64_t together(rn_device_id device, int64_t extra) {
    return rn_ledger_now(device) + (extra > 0 ? (uint64_t)extra : 0);
}

static inline void count_ledger(rn_device_id device, uint64_t now_ns) {
    rn_peak *peak = &rn_rec.peaks[device];
    int64_t extra = atomic_load_explicit(&peak->extra, memory_order_relaxed);
    raise_peak(peak, rn_ledger_watched_peak(device), now_ns);
    if (extra) raise_peak(peak, together(device, extra), now_ns);
}

void rn_record_count(rn_device_id device, int64_t change, uint64_t now_ns) {
    rn_peak *peak = &rn_rec.peaks[device];
    int64_t before = atomic_fetch_add_explicit(&peak->extra, change, memory_order_relaxed);
    if (change > 0) raise_peak(peak, together(device, before + change), now_ns);
}

// In a signal handler without the lock, which the thread may hold that was hit: the time may then
// be a later one's.
rn_held_bytes rn_record_peak(rn_device_id device) {
    rn_peak *peak = &rn_rec.peaks[device];
    if (!rn_rec.in_signal) raise_peak(peak, rn_ledger_watched_peak(device), rn_record_now());
    return (rn_held_bytes){(int64_t)atomic_load(&peak->bytes),
                           (int64_t)atomic_load(&peak->time_ns)};
}

void rn_record_peaks_begin(void) {
    rn_ledger_watch();
    for (size_t d = 0; d < RN_DEVICE_MAX; d++) {
        rn_peak *peak = &rn_rec.peaks[d];
        atomic_flag_clear(&peak->lock);
        atomic_store(&peak->bytes, rn_ledger_watched_peak((rn_device_id)d));
        atomic_store(&peak->time_ns, 0);
        atomic_store(&peak->extra, 0);
    }
}

// ---- events -------------------------------------------------------------------------------------

static void put_memory(const rn_event *event, rn_trace_kind kind, uint8_t flags) {
    const rn_account *account = &event->account;
    uint64_t now = rn_record_now();
    bool named = kind == RN_TRACE_ALLOC && account->holder;
    if (kind == RN_TRACE_ALLOC && !flags) count_ledger(account->device, now);
    rn_record_put(
        &(rn_trace_event){.time_ns = now,
                          .address = (uintptr_t)event->address,
                          .bytes = event->bytes,
                          .name = named ? rn_name_cached(rn_holder_name(account->holder)) : 0,
                          .kind = (uint8_t)kind,
                          .device = account->device,
                          .purpose = account->purpose,
                          .flags = flags});
}

// What is asked for in vain is often the last that a program does.
static void put_refusal(const rn_event *event, rn_trace_mark mark) {
    if (rn_this_recording.busy) return; // it was the recorder itself, which can do without
    rn_record_mark(mark, event->account.device, 0, event->bytes);
    rn_profile_flush();
}

static void hear(void *self, const rn_event *event) {
    (void)self;
    if (!rn_profile_is_on()) return;
    switch (event->kind) {
    case RN_EVENT_CHARGE:
        put_memory(event, RN_TRACE_ALLOC, 0);
        return;
    case RN_EVENT_RELEASE:
        put_memory(event, RN_TRACE_FREE, 0);
        return;
    case RN_EVENT_PART_CHARGE:
        put_memory(event, RN_TRACE_ALLOC, RN_PROFILE_INNER);
        return;
    case RN_EVENT_PART_RELEASE:
        put_memory(event, RN_TRACE_FREE, RN_PROFILE_INNER);
        return;
    case RN_EVENT_SCOPE_BEGIN:
        rn_profile_begin(rn_name_cached(event->name));
        return;
    case RN_EVENT_SCOPE_END:
        rn_profile_end();
        return;
    case RN_EVENT_STAGE:
        rn_record_mark(RN_MARK_STAGE, 0, rn_name_cached(event->name), 0);
        return;
    case RN_EVENT_REFUSAL:
        put_refusal(event, RN_MARK_REFUSAL);
        return;
    case RN_EVENT_NO_MEMORY:
        put_refusal(event, RN_MARK_NO_MEMORY);
        return;
    }
}

// ---- what is held already -----------------------------------------------------------------------

#define UNNAMED "before the recording"
enum { MAX_HOLDERS = 128 };

typedef struct base_list {
    struct {
        char name[64];
        rn_account account;
        uint64_t bytes;
    } holders[MAX_HOLDERS];
    size_t count;
    uint64_t rest[RN_DEVICE_MAX][RN_PURPOSE_COUNT]; // without a name, or with one too many
} base_list;

// The ledger's lock is held here: only copying.
static bool note(void *self, const char *name, rn_account account, uint64_t bytes) {
    base_list *list = self;
    if (!name || list->count == MAX_HOLDERS) {
        list->rest[account.device][account.purpose] += bytes;
        return true;
    }
    snprintf(list->holders[list->count].name, sizeof list->holders[0].name, "%s", name);
    list->holders[list->count].account = account;
    list->holders[list->count++].bytes = bytes;
    return true;
}

static void put_on_service(const rn_trace_event *event) {
    rn_recorder_lock();
    if (!rn_rec.over) rn_service_put(event);
    rn_recorder_unlock();
}

// Addresses are small numbers, which no block has.
_Static_assert(MAX_HOLDERS + RN_DEVICE_MAX * RN_PURPOSE_COUNT < RN_TRACE_FIRST_ADDRESS,
               "there is a small number for each");
static void put_base(uint64_t address, rn_account account, uint64_t bytes, const char *name) {
    put_on_service(
        &(rn_trace_event){.address = address,
                          .bytes = bytes,
                          .name = rn_name_intern(rn_str_from(name), (rn_str){0}, (rn_str){0}, NULL),
                          .kind = RN_TRACE_ALLOC,
                          .device = account.device,
                          .purpose = account.purpose});
}

static void put_list(const base_list *list) {
    uint64_t address = 0;
    for (size_t i = 0; i < list->count; i++)
        put_base(++address, list->holders[i].account, list->holders[i].bytes,
                 list->holders[i].name);
    for (uint8_t d = 0; d < RN_DEVICE_MAX; d++)
        for (uint8_t p = 0; p < RN_PURPOSE_COUNT; p++)
            if (list->rest[d][p])
                put_base(++address, (rn_account){d, p, NULL}, list->rest[d][p], UNNAMED);
}

static void list_all(base_list *out) {
    *out = (base_list){.count = 0};
    for (size_t d = 0; d < rn_device_count(); d++)
        rn_ledger_visit_holders((rn_device_id)d, note, out);
}

// New names take memory, which would be missing from the list: they are made first.
void rn_record_base(void) {
    base_list list;
    (void)rn_name_intern(RN_STR(UNNAMED), (rn_str){0}, (rn_str){0}, NULL);
    list_all(&list);
    for (size_t i = 0; i < list.count; i++)
        (void)rn_name_intern(rn_str_from(list.holders[i].name), (rn_str){0}, (rn_str){0}, NULL);
    list_all(&list);
    rn_ledger_listen(hear, NULL);
    put_list(&list);
    put_on_service(&(rn_trace_event){.kind = RN_TRACE_MARK, .purpose = RN_MARK_START});
}

// record_round.c — what is in the rings goes into the file: totals, what is new of names, lanes and
// devices, events. Everything here runs under the recorder's lock, possibly in a signal handler.
#include "profile/record/record.h"

#include <stdio.h>
#include <string.h>

#include <ration/log.h>

typedef struct total_record {
    uint32_t device, purpose;
    int64_t bytes, blocks;
} total_record;

typedef enum outcome { WRITTEN, AGAIN, OVER } outcome; // AGAIN: a lap has begun
typedef outcome (*write_step)(void);

static const uint64_t DUE_NS = 20000000;

static total_record totals[RN_DEVICE_MAX * (RN_PURPOSE_COUNT + 1)];

// ---- the end, and what is said about it ---------------------------------------------------------

void rn_recorder_lock(void) {
    pthread_mutex_lock(&rn_rec.lock);
    atomic_store(&rn_rec.owner, (uintptr_t)pthread_self());
}

bool rn_recorder_try_lock(void) {
    if (pthread_mutex_trylock(&rn_rec.lock) != 0) return false;
    atomic_store(&rn_rec.owner, (uintptr_t)pthread_self());
    return true;
}

void rn_recorder_unlock(void) {
    atomic_store(&rn_rec.owner, 0);
    pthread_mutex_unlock(&rn_rec.lock);
}

void rn_recorder_say(void) {
    char warning[sizeof rn_rec.warning];
    rn_recorder_lock();
    memcpy(warning, rn_rec.warning, sizeof warning);
    rn_rec.warning[0] = '\0';
    rn_recorder_unlock();
    if (warning[0]) rn_log(RN_LOG_WARNING, "profile", "%s", warning);
}

static void warn(const char *format, const char *path, const char *why) {
    if (!rn_rec.in_signal) snprintf(rn_rec.warning, sizeof rn_rec.warning, format, path, why);
}

// What is in the rings and will not be written.
static void drop_rest(void) {
    uint64_t rest = atomic_load(&rn_rec.service->head) - atomic_load(&rn_rec.service->tail);
    for (rn_ring *ring = rn_rec.rings; ring; ring = ring->next)
        rest += atomic_load(&ring->head) - atomic_load(&ring->tail);
    atomic_fetch_add(&rn_rec.dropped_count, rest);
}

static void finish(void) {
    atomic_store(&rn_rec.session, 0);
    if (!rn_rec.over) drop_rest();
    rn_rec.over = true;
}

static void fail_write(void) {
    finish();
    warn("%.300s cannot be written: %s; the recording ends here", rn_rec.file.path,
         rn_rec.in_signal ? "" : strerror(rn_rec.file.error));
}

// ---- one block, in what room there is -----------------------------------------------------------

static void begin_lap(void);

// For a payload of at least `least` bytes.
static outcome need(uint32_t least) {
    if (rn_trace_file_room(&rn_rec.file) >= least) return WRITTEN;
    if (rn_rec.file.ring) {
        begin_lap();
        return rn_rec.file.error ? OVER : AGAIN;
    }
    rn_recorder_end("limit");
    if (!rn_rec.file.error)
        warn("%.300s has reached its limit%s; the recording ends here", rn_rec.file.path, "");
    return OVER;
}

static outcome put(rn_trace_block_kind kind, uint32_t lane, const void *payload, uint32_t bytes) {
    if (rn_trace_file_put(&rn_rec.file, kind, lane, payload, bytes)) return WRITTEN;
    fail_write();
    return OVER;
}

// ---- what events are read with ------------------------------------------------------------------

static uint32_t collect_totals(void) {
    uint32_t count = 0;
    for (uint32_t d = 0; d < RN_DEVICE_MAX; d++) {
        for (uint32_t p = 0; p < RN_PURPOSE_COUNT; p++) {
            rn_held_bytes held = rn_rec.held[d][p];
            if (held.bytes || held.blocks)
                totals[count++] = (total_record){d, p, held.bytes, held.blocks};
        }
        rn_held_bytes peak = rn_record_peak((rn_device_id)d);
        if (peak.bytes)
            totals[count++] = (total_record){d, RN_PURPOSE_COUNT, peak.bytes, peak.blocks};
    }
    return count * (uint32_t)sizeof *totals;
}

// With the last totals, where there is room for them.
void rn_recorder_end(const char *reason) {
    char text[256];
    uint32_t total_bytes = collect_totals();
    finish();
    rn_rec.file.round++;
    if (rn_trace_file_room(&rn_rec.file) >= total_bytes &&
        put(RN_TRACE_TOTALS, 0, totals, total_bytes) == OVER)
        return;
    int bytes =
        snprintf(text, sizeof text, "{\"reason\": \"%s\", \"events\": %llu, \"dropped\": %llu}\n",
                 reason, (unsigned long long)rn_rec.event_count,
                 (unsigned long long)atomic_load(&rn_rec.dropped_count));
    if (!rn_trace_file_put_end(&rn_rec.file, text, (uint32_t)bytes)) fail_write();
}

static outcome write_totals(void) {
    uint32_t bytes = collect_totals();
    outcome o = need(bytes);
    return o == WRITTEN ? put(RN_TRACE_TOTALS, 0, totals, bytes) : o;
}

static outcome write_devices(void) {
    char records[RN_DEVICE_MAX * 64];
    uint32_t bytes = 0;
    size_t count = rn_device_count();
    if (count == rn_rec.devices_at) return WRITTEN;
    for (uint32_t d = (uint32_t)rn_rec.devices_at; d < count; d++) {
        const char *name = rn_device_name((rn_device_id)d);
        uint32_t length = (uint32_t)strlen(name);
        memcpy(records + bytes, &d, sizeof d);
        memcpy(records + bytes + sizeof d, &length, sizeof length);
        memcpy(records + bytes + sizeof d + sizeof length, name, length);
        bytes += (uint32_t)(sizeof d + sizeof length) + length;
    }
    outcome o = need(bytes);
    if (o == WRITTEN) o = put(RN_TRACE_DEVICES, 0, records, bytes);
    if (o == WRITTEN) rn_rec.devices_at = count;
    return o;
}

static outcome write_log(rn_record_log *log, rn_log_cursor *at, rn_trace_block_kind kind) {
    const char *records;
    uint32_t bytes;
    for (rn_log_cursor next = *at; rn_record_log_next(log, &next, &records, &bytes); *at = next) {
        outcome o = need(bytes);
        if (o == WRITTEN) o = put(kind, 0, records, bytes);
        if (o != WRITTEN) return o;
    }
    return WRITTEN;
}

static outcome write_lanes(void) {
    return write_log(&rn_lanes_log, &rn_rec.lanes_at, RN_TRACE_LANES);
}

static outcome write_names(void) {
    return write_log(&rn_names_log, &rn_rec.names_at, RN_TRACE_NAMES);
}

// ---- laps ---------------------------------------------------------------------------------------

// All names again, but no more than half of the file: the rest of a small ring is for events.
static void repeat_log(rn_record_log *log, rn_log_cursor *at, rn_trace_block_kind kind) {
    const char *records;
    uint32_t bytes;
    *at = (rn_log_cursor){0};
    while (rn_record_log_next(log, at, &records, &bytes)) {
        bool fits = rn_rec.file.offset + bytes < rn_rec.file.limit_bytes / 2;
        if (fits && put(kind, 0, records, bytes) != WRITTEN) return;
    }
}

// A lap begins with a round of its own, so that what follows can be read without the lap before.
static void begin_lap(void) {
    rn_trace_file_begin_lap(&rn_rec.file);
    rn_rec.laps++;
    rn_rec.file.round++;
    rn_rec.devices_at = 0;
    if (put(RN_TRACE_TOTALS, 0, totals, collect_totals()) != WRITTEN) return;
    if (write_devices() != WRITTEN) return;
    repeat_log(&rn_lanes_log, &rn_rec.lanes_at, RN_TRACE_LANES);
    if (!rn_rec.file.error) repeat_log(&rn_names_log, &rn_rec.names_at, RN_TRACE_NAMES);
}

// ---- events -------------------------------------------------------------------------------------

// PREDICTED changes with every step: it need not be kept.
static void keep_counter(const rn_trace_event *event) {
    bool lasts = event->purpose == RN_COUNTER_RESIDENT || event->purpose == RN_COUNTER_BUDGET ||
                 event->purpose == RN_COUNTER_PREDICTED_PEAK;
    if (lasts && event->device < RN_DEVICE_MAX)
        rn_rec.counters[event->device][event->purpose] = *event;
}

static void sum_events(const rn_trace_event *events, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        const rn_trace_event *event = &events[i];
        if (event->kind == RN_TRACE_COUNTER) keep_counter(event);
        if (event->kind > RN_TRACE_FREE ||
            event->flags & (RN_PROFILE_INNER | RN_PROFILE_RELABEL | RN_PROFILE_SITE))
            continue;
        rn_held_bytes *held = &rn_rec.held[event->device][event->purpose];
        bool alloc = event->kind == RN_TRACE_ALLOC;
        held->bytes += alloc ? (int64_t)event->bytes : -(int64_t)event->bytes;
        held->blocks += alloc ? 1 : -1;
    }
}

// Blocks of a ring file are small against it: each one overwrites a part of what is oldest.
static uint64_t most_events(void) {
    uint64_t bytes = RN_TRACE_MAX_PAYLOAD, room = rn_trace_file_room(&rn_rec.file);
    if (rn_rec.file.ring && bytes > rn_rec.file.limit_bytes / 8)
        bytes = rn_rec.file.limit_bytes / 8;
    return (bytes < room ? bytes : room) / sizeof(rn_trace_event);
}

static outcome write_events(rn_ring *ring) {
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    while (tail < ring->taken) {
        outcome o = need(sizeof(rn_trace_event));
        if (o == OVER) return OVER;
        uint64_t at = tail & (ring->capacity - 1), count = ring->taken - tail;
        if (count > ring->capacity - at) count = ring->capacity - at; // up to where it wraps
        if (count > most_events()) count = most_events();
        const rn_trace_event *events = ring->events + at;
        if (put(RN_TRACE_EVENTS, ring->lane, events, (uint32_t)(count * sizeof *events)) == OVER)
            return OVER;
        sum_events(events, count);
        rn_rec.event_count += count;
        tail += count;
        atomic_store_explicit(&ring->tail, tail, memory_order_release);
    }
    return WRITTEN;
}

// ---- a round ------------------------------------------------------------------------------------

// Heads before names: an event's name is in the log before the event is in its ring.
static bool take(rn_ring *ring) {
    ring->taken = atomic_load_explicit(&ring->head, memory_order_acquire);
    return ring->taken != atomic_load_explicit(&ring->tail, memory_order_relaxed);
}

static bool take_all(rn_ring *only) {
    if (only) return take(only);
    bool any = take(rn_rec.service);
    for (rn_ring *ring = rn_rec.rings; ring; ring = ring->next)
        any |= take(ring);
    atomic_store_explicit(&rn_rec.due_ns, rn_record_now() + DUE_NS, memory_order_relaxed);
    return any;
}

static outcome write_prologue(void) {
    static const write_step steps[] = {write_totals, write_devices, write_lanes, write_names};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i]() == OVER) return OVER;
    return WRITTEN; // where a lap began in the middle, it has brought the rest
}

void rn_round_write(rn_ring *only) {
    if (rn_rec.over || !take_all(only)) return;
    rn_rec.file.round++;
    if (write_prologue() == OVER) return;
    if (only) {
        (void)write_events(only);
        return;
    }
    outcome o = write_events(rn_rec.service);
    for (rn_ring *ring = rn_rec.rings; ring && o != OVER; ring = ring->next)
        o = write_events(ring);
}

// record_events.c — the calls that become events.
#include "profile/record/record.h"

#include "base/clock.h"

bool rn_profile_is_on(void) {
    return atomic_load_explicit(&rn_rec.session, memory_order_relaxed) != 0;
}

uint32_t rn_profile_recording(void) {
    return atomic_load_explicit(&rn_rec.session, memory_order_relaxed);
}

uint64_t rn_profile_now(void) {
    return rn_clock_ns();
}

static uint64_t since_start(uint64_t clock_ns) {
    uint64_t start = atomic_load_explicit(&rn_rec.start_ns, memory_order_relaxed);
    return clock_ns > start ? clock_ns - start : 0;
}

uint64_t rn_record_now(void) {
    return since_start(rn_clock_ns());
}

void rn_profile_begin(uint32_t name) {
    if (!rn_profile_is_on()) return;
    rn_record_put(
        &(rn_trace_event){.time_ns = rn_record_now(), .name = name, .kind = RN_TRACE_BEGIN});
}

void rn_profile_end(void) {
    if (!rn_profile_is_on()) return;
    rn_record_put(&(rn_trace_event){.time_ns = rn_record_now(), .kind = RN_TRACE_FINISH});
}

void rn_profile_span(uint32_t lane, uint32_t name, uint64_t begin_ns, uint64_t end_ns) {
    if (!rn_profile_is_on() || !lane) return;
    rn_record_put(&(rn_trace_event){.time_ns = since_start(begin_ns),
                                    .address = lane,
                                    .bytes = end_ns > begin_ns ? end_ns - begin_ns : 0,
                                    .name = name,
                                    .kind = RN_TRACE_SPAN});
}

static void put_memory(rn_trace_kind kind, rn_account account, uint64_t address, uint64_t bytes,
                       uint32_t name, unsigned flags) {
    uint64_t now = rn_record_now();
    if (account.device >= RN_DEVICE_MAX) return;
    if (!(flags & (RN_PROFILE_INNER | RN_PROFILE_RELABEL | RN_PROFILE_SITE)))
        rn_record_count(account.device, kind == RN_TRACE_ALLOC ? (int64_t)bytes : -(int64_t)bytes,
                        now);
    uint8_t purpose = account.purpose < RN_PURPOSE_COUNT ? account.purpose : RN_PURPOSE_OTHER;
    rn_record_put(&(rn_trace_event){.time_ns = now,
                                    .address = address,
                                    .bytes = bytes,
                                    .name = name,
                                    .kind = (uint8_t)kind,
                                    .device = account.device,
                                    .purpose = purpose,
                                    .flags = (uint8_t)flags});
}

void rn_profile_alloc(rn_account account, uint64_t address, uint64_t bytes, uint32_t name,
                      unsigned flags) {
    if (rn_profile_is_on()) put_memory(RN_TRACE_ALLOC, account, address, bytes, name, flags);
}

void rn_profile_free(rn_account account, uint64_t address, uint64_t bytes, unsigned flags) {
    if (rn_profile_is_on()) put_memory(RN_TRACE_FREE, account, address, bytes, 0, flags);
}

void rn_profile_move(rn_device_id from, rn_device_id to, uint64_t address, uint64_t bytes,
                     uint32_t name) {
    if (!rn_profile_is_on()) return;
    rn_record_put(&(rn_trace_event){.time_ns = rn_record_now(),
                                    .address = address,
                                    .bytes = bytes,
                                    .name = name,
                                    .kind = RN_TRACE_MOVE,
                                    .device = to,
                                    .purpose = from});
}

void rn_profile_counter(rn_counter kind, rn_device_id device, uint32_t name, uint64_t value) {
    if (!rn_profile_is_on()) return;
    rn_record_put(&(rn_trace_event){.time_ns = rn_record_now(),
                                    .bytes = value,
                                    .name = name,
                                    .kind = RN_TRACE_COUNTER,
                                    .device = device,
                                    .purpose = (uint8_t)kind});
}

void rn_record_mark(rn_trace_mark mark, rn_device_id device, uint32_t name, uint64_t bytes) {
    rn_record_put(&(rn_trace_event){.time_ns = rn_record_now(),
                                    .bytes = bytes,
                                    .name = name,
                                    .kind = RN_TRACE_MARK,
                                    .device = device,
                                    .purpose = (uint8_t)mark});
}

void rn_profile_checkpoint(const char *name) {
    if (rn_profile_is_on()) rn_record_mark(RN_MARK_CHECKPOINT, 0, rn_name_cached(name), 0);
}

// export_prometheus.c — the recording's last state and its sums, in Prometheus' text format.
//
//     ration_memory_bytes{device="host",category="weights",state="live"} 4096
//
// live and peak are by category and add up to the device's; what is known of a device as a whole
// (reserved, budget, predicted) has category "all".
#include "profile/export/export.h"

typedef struct metrics {
    const rn_timeline *t;
    rn_export_names names;
    rn_out out;
} metrics;

static void put_help(metrics *m, const char *name, const char *type, const char *help) {
    rn_out_text(&m->out, "# HELP ");
    rn_out_text(&m->out, name);
    rn_out_put(&m->out, " ", 1);
    rn_out_text(&m->out, help);
    rn_out_text(&m->out, "\n# TYPE ");
    rn_out_text(&m->out, name);
    rn_out_put(&m->out, " ", 1);
    rn_out_text(&m->out, type);
    rn_out_put(&m->out, "\n", 1);
}

// Label values escape the backslash, the quote and the line break, nothing else.
static void put_label(metrics *m, const char *before, rn_str value) {
    rn_out_text(&m->out, before);
    rn_out_text(&m->out, "=\"");
    for (size_t i = 0; i < value.bytes; i++) {
        char c = value.data[i];
        if (c == '\\' || c == '"' || c == '\n') rn_out_put(&m->out, "\\", 1);
        rn_out_put(&m->out, c == '\n' ? "n" : &c, 1);
    }
    rn_out_put(&m->out, "\"", 1);
}

static void put_value(metrics *m, uint64_t value) {
    rn_out_put(&m->out, " ", 1);
    rn_out_u64(&m->out, value);
    rn_out_put(&m->out, "\n", 1);
}

static void put_memory(metrics *m, uint32_t device, const char *category, const char *state,
                       uint64_t bytes) {
    rn_out_text(&m->out, "ration_memory_bytes{");
    put_label(m, "device", m->names.devices[device]);
    put_label(m, ",category", rn_str_from(category));
    put_label(m, ",state", rn_str_from(state));
    rn_out_put(&m->out, "}", 1);
    put_value(m, bytes);
}

static void put_device_value(metrics *m, const char *name, uint32_t device, uint64_t value) {
    rn_out_text(&m->out, name);
    rn_out_put(&m->out, "{", 1);
    put_label(m, "device", m->names.devices[device]);
    rn_out_put(&m->out, "}", 1);
    put_value(m, value);
}

// ---- gauges -------------------------------------------------------------------------------------

static rn_timeline_level last_level(const rn_timeline *t, uint8_t device) {
    rn_timeline_level level = {0};
    for (uint32_t i = 0; i < t->alloc_count; i++) {
        const rn_timeline_alloc *a = &t->allocs[i];
        if (a->device != device || a->end_ns != RN_STILL_LIVE) continue;
        if (!a->inner) level.reserved_bytes += a->bytes;
        if (rn_is_in_use(a)) level.purpose_bytes[a->purpose] += a->bytes;
    }
    return level;
}

static bool last_counter(const rn_timeline *t, rn_counter kind, uint32_t device, uint64_t *out) {
    for (uint32_t i = t->counter_count; i-- > 0;) {
        if (t->counters[i].kind != kind || t->counters[i].device != device) continue;
        if (kind == RN_COUNTER_BUDGET && t->counters[i].value == RN_NO_LIMIT) continue;
        *out = t->counters[i].value;
        return true;
    }
    return false;
}

static void put_levels(metrics *m, uint32_t device) {
    rn_timeline_level peak = rn_timeline_peak(m->t, (uint8_t)device);
    rn_timeline_level live = last_level(m->t, (uint8_t)device);
    uint64_t value;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
        const char *category = rn_purpose_name((rn_purpose)p);
        if (!peak.purpose_bytes[p] && !live.purpose_bytes[p]) continue;
        put_memory(m, device, category, "live", live.purpose_bytes[p]);
        put_memory(m, device, category, "peak", peak.purpose_bytes[p]);
    }
    put_memory(m, device, "all", "reserved", live.reserved_bytes);
    if (last_counter(m->t, RN_COUNTER_BUDGET, device, &value))
        put_memory(m, device, "all", "budget", value);
    if (last_counter(m->t, RN_COUNTER_PREDICTED, device, &value))
        put_memory(m, device, "all", "predicted", value);
}

static uint64_t peak_of(const metrics *m, uint32_t device) {
    uint64_t seen = rn_timeline_peak(m->t, (uint8_t)device).reserved_bytes;
    uint64_t counted = m->t->counted_peaks[device].bytes;
    return counted > seen ? counted : seen;
}

static void put_gauges(metrics *m) {
    uint64_t value;
    put_help(m, "ration_memory_bytes", "gauge", "Bytes by device, category and state.");
    for (uint32_t i = 0; i < m->t->device_count; i++)
        put_levels(m, i);
    put_help(m, "ration_memory_peak_bytes", "gauge", "The most bytes reserved at once.");
    for (uint32_t i = 0; i < m->t->device_count; i++)
        put_device_value(m, "ration_memory_peak_bytes", i, peak_of(m, i));
    put_help(m, "ration_memory_predicted_peak_bytes", "gauge", "The peak that was planned.");
    for (uint32_t i = 0; i < m->t->device_count; i++)
        if (last_counter(m->t, RN_COUNTER_PREDICTED_PEAK, i, &value))
            put_device_value(m, "ration_memory_predicted_peak_bytes", i, value);
    put_help(m, "ration_resident_bytes", "gauge", "What the system holds of the process.");
    for (uint32_t i = 0; i < m->t->device_count; i++)
        if (last_counter(m->t, RN_COUNTER_RESIDENT, i, &value))
            put_device_value(m, "ration_resident_bytes", i, value);
}

// ---- counters -----------------------------------------------------------------------------------

typedef struct sums {
    uint64_t count, bytes;
} sums;

static void put_sums(metrics *m, const char *name, const char *help,
                     const sums (*of)[RN_PURPOSE_COUNT], bool of_bytes) {
    put_help(m, name, "counter", help);
    for (uint32_t d = 0; d < m->t->device_count; d++)
        for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
            if (!of[d][p].count) continue;
            rn_out_text(&m->out, name);
            put_label(m, "{device", m->names.devices[d]);
            put_label(m, ",category", rn_str_from(rn_purpose_name((rn_purpose)p)));
            rn_out_put(&m->out, "}", 1);
            put_value(m, of_bytes ? of[d][p].bytes : of[d][p].count);
        }
}

static void put_allocations(metrics *m) {
    sums of[RN_DEVICE_MAX][RN_PURPOSE_COUNT] = {{{0}}};
    for (uint32_t i = 0; i < m->t->alloc_count; i++) {
        const rn_timeline_alloc *a = &m->t->allocs[i];
        if (!rn_is_in_use(a)) continue;
        of[a->device][a->purpose].count++;
        of[a->device][a->purpose].bytes += a->bytes;
    }
    put_sums(m, "ration_allocations_total", "Blocks and parts of arenas that were allocated.", of,
             false);
    put_sums(m, "ration_allocated_bytes_total", "Their bytes.", of, true);
}

static rn_str device_name(const metrics *m, uint32_t device) {
    return device < m->t->device_count ? m->names.devices[device] : RN_STR("disk");
}

static void put_moves(metrics *m) {
    sums of[RN_DEVICE_MAX + 1][RN_DEVICE_MAX + 1] = {{{0}}}; // the last is the disk
    for (uint32_t i = 0; i < m->t->move_count; i++) {
        const rn_timeline_move *move = &m->t->moves[i];
        uint32_t from = move->from < RN_DEVICE_MAX ? move->from : RN_DEVICE_MAX;
        uint32_t to = move->to < RN_DEVICE_MAX ? move->to : RN_DEVICE_MAX;
        of[from][to].count++;
        of[from][to].bytes += move->bytes;
    }
    put_help(m, "ration_moved_bytes_total", "counter",
             "Bytes copied between devices, or read from disk.");
    for (uint32_t from = 0; from <= RN_DEVICE_MAX; from++)
        for (uint32_t to = 0; to <= RN_DEVICE_MAX; to++) {
            if (!of[from][to].count) continue;
            put_label(m, "ration_moved_bytes_total{from", device_name(m, from));
            put_label(m, ",to", device_name(m, to));
            rn_out_put(&m->out, "}", 1);
            put_value(m, of[from][to].bytes);
        }
}

static void put_plain(metrics *m, const char *name, const char *help, uint64_t value) {
    put_help(m, name, "counter", help);
    rn_out_text(&m->out, name);
    put_value(m, value);
}

rn_status rn_export_prometheus(const rn_timeline *t, rn_sink sink) {
    metrics m = {.t = t};
    RN_TRY(rn_export_names_make(t, &m.names));
    rn_status s = rn_out_open(&m.out, sink);
    if (s == RN_OK) {
        put_gauges(&m);
        put_allocations(&m);
        put_moves(&m);
        put_plain(&m, "ration_operations_total", "Operations that were recorded.", t->op_count);
        put_plain(&m, "ration_profile_events_total", "Events that were recorded.", t->event_count);
        put_plain(&m, "ration_profile_dropped_events_total", "Events for which there was no room.",
                  t->dropped_count);
        s = rn_out_close(&m.out);
    }
    rn_export_names_free(&m.names);
    return s;
}

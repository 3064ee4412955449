// trace_fuzz.c — any bytes as a trace, or any bytes as the payloads of blocks that are sealed here,
// so that hostile fields get past the checksums. What is read can be asked, reported and exported.
//
//     'R' file...            as it is
//     'B' (kind, lane, round, bytes / 8, payload...)...   each payload in a block of its own
#include "fuzz_file.h"

#include "profile/timeline.h"

#include <string.h>

#define MOST_BYTES ((size_t)256 << 10)

static rn_status swallow(void *self, const char *text, size_t bytes) {
    (void)text;
    *(uint64_t *)self += bytes;
    return RN_OK;
}

// ---- blocks -------------------------------------------------------------------------------------

static uint8_t file[MOST_BYTES];

static size_t seal_blocks(const uint8_t *data, size_t size) {
    size_t bytes = 0;
    for (uint64_t sequence = 0; size >= 4; sequence++) {
        size_t payload = (size_t)data[3] * 8 < size - 4 ? (size_t)data[3] * 8 : size - 4;
        rn_trace_block block = {.kind = 1u + data[0] % RN_TRACE_END,
                                .payload_bytes = (uint32_t)payload,
                                .sequence = data[2] & 0x80 ? 255u - sequence : sequence,
                                .round = data[2] & 0x7f,
                                .lane = data[1] == 255 ? UINT32_MAX : data[1]};
        size_t all = rn_trace_block_bytes((uint32_t)payload);
        if (all > sizeof file - bytes) break;
        memset(file + bytes, 0, all);
        memcpy(file + bytes + sizeof block, data + 4, payload);
        rn_trace_seal(&block, file + bytes + sizeof block);
        memcpy(file + bytes, &block, sizeof block);
        bytes += all;
        data += 4 + payload;
        size -= 4 + payload;
    }
    return bytes;
}

// ---- what must hold -----------------------------------------------------------------------------

static void check_order(const rn_timeline *t) {
    const uint32_t *by_end = rn_timeline_by_end(t);
    for (uint32_t i = 0; i < t->alloc_count; i++) {
        const rn_timeline_alloc *a = &t->allocs[i];
        require(a->begin_ns <= a->end_ns && a->name < t->name_count && a->lane < t->lane_count);
        require(a->device < t->device_count && a->purpose < RN_PURPOSE_COUNT);
        require(a->op == RN_NO_INDEX || a->op < t->op_count);
        require(a->parent == RN_NO_INDEX || (a->inner && t->allocs[a->parent].is_arena));
        if (i == 0) continue;
        require(t->allocs[i - 1].begin_ns <= a->begin_ns);
        require(t->allocs[by_end[i - 1]].end_ns <= t->allocs[by_end[i]].end_ns);
    }
    for (uint32_t i = 0; i < t->op_count; i++) {
        const rn_timeline_op *op = &t->ops[i];
        require(op->begin_ns <= op->end_ns && op->name < t->name_count);
        if (op->parent == RN_NO_INDEX) continue;
        const rn_timeline_op *outer = &t->ops[op->parent];
        require(op->parent < i && outer->lane == op->lane && op->depth == outer->depth + 1);
        require(outer->begin_ns <= op->begin_ns && op->end_ns <= outer->end_ns);
    }
}

static void check_levels(const rn_timeline *t) {
    rn_timeline_level peak = rn_timeline_peak(t, RN_DEVICE_ANY);
    rn_timeline_level again = rn_timeline_level_at(t, RN_DEVICE_ANY, peak.time_ns);
    require(peak.reserved_bytes == again.reserved_bytes && peak.active_bytes == again.active_bytes);
    uint32_t largest[4];
    require(rn_timeline_live_at(t, RN_DEVICE_ANY, peak.time_ns, largest, 4) == again.count);
}

static void use(const rn_timeline *t) {
    uint64_t written = 0;
    rn_sink sink = {&written, swallow};
    rn_report_options early = {.at_seconds = 1e-6};
    require(rn_timeline_report(t, NULL, sink) == RN_OK);
    require(rn_timeline_report_json(t, &early, sink) == RN_OK);
    require(rn_timeline_diff(t, t, sink) == RN_OK);
    int first = t->event_count % 16 ? RN_EXPORT_HTML + 1 : RN_EXPORT_HTML; // large: not always
    for (int form = first; form < RN_EXPORT_COUNT; form++)
        require(rn_timeline_export(t, (rn_export)form, sink) == RN_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const uint8_t *trace = data + 1;
    size_t bytes = size - 1;
    if (data[0] == 'B') {
        bytes = seal_blocks(trace, bytes);
        trace = file;
    }
    rn_timeline *t = NULL;
    rn_ledger_reset_peaks();
    rn_status s = rn_trace_read("fuzz", trace, bytes, &t);
    if (s == RN_OK) {
        s = rn_timeline_finish(t);
        require(s == RN_OK);
        require(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).peak_bytes <
                ((uint64_t)1 << 20) + 32 * bytes);
        check_order(t);
        check_levels(t);
        use(t);
    }
    require(s == RN_OK || s == RN_CORRUPT || s == RN_UNSUPPORTED);
    rn_timeline_destroy(t);
    require(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes == 0);
    return 0;
}

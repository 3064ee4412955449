// report_json.c — the same numbers as report.c, for programs: all rows of every table.
#include "base/checked.h"
#include "base/json.h"
#include "profile/timeline/report.h"

#include <string.h>

static double seconds(uint64_t ns) {
    return (double)ns / 1e9;
}

static void write_known(rn_json *json, const char *key, uint64_t value) {
    if (value)
        rn_json_u64(json, key, value);
    else
        rn_json_null(json, key);
}

static void write_file(const rn_timeline *t, rn_json *json) {
    rn_json_string(json, "file", t->path);
    rn_json_string(json, "format", t->format);
    rn_json_string(json, "mode", t->mode);
    rn_json_string(json, "command", t->command);
    rn_json_u64(json, "start_unix_ns", t->start_unix_ns);
    rn_json_f64(json, "duration_seconds", seconds(t->end_ns));
    rn_json_u64(json, "events", t->event_count);
    rn_json_u64(json, "dropped", t->dropped_count);
    rn_json_bool(json, "ended", t->has_end);
    rn_json_string(json, "reason", t->reason);
    rn_json_array(json, "notes");
    for (uint32_t i = 0; i < t->note_count; i++)
        rn_json_string(json, NULL, t->notes[i]);
    rn_json_end(json);
}

static void write_table(const rn_report_table *table, rn_json *json, const char *key) {
    rn_json_array(json, key);
    for (size_t i = 0; i < table->count; i++) {
        rn_json_object(json, NULL);
        rn_json_string(json, "name", table->rows[i].text);
        rn_json_u64(json, "bytes", table->rows[i].bytes);
        rn_json_u64(json, "count", table->rows[i].count);
        rn_json_end(json);
    }
    rn_json_end(json);
}

// A text's lines, as an array.
static void write_lines(const char *text, rn_json *json, const char *key) {
    rn_json_array(json, key);
    while (*text) {
        size_t bytes = strcspn(text, "\n");
        rn_json_text(json, NULL, (rn_str){text, bytes});
        text += bytes + (text[bytes] == '\n');
    }
    rn_json_end(json);
}

// Call stacks of what was in use, the most bytes first.
static void write_sites(const rn_report_table *table, rn_json *json) {
    rn_json_array(json, "call_stacks");
    for (size_t i = 0; i < table->count; i++) {
        rn_json_object(json, NULL);
        rn_json_string(json, "site", table->rows[i].text);
        rn_json_u64(json, "bytes", table->rows[i].bytes);
        rn_json_u64(json, "count", table->rows[i].count);
        write_lines(table->rows[i].detail, json, "stack");
        rn_json_end(json);
    }
    rn_json_end(json);
}

static void write_block(const rn_timeline *t, const rn_timeline_alloc *alloc, uint64_t now_ns,
                        rn_json *json) {
    const rn_timeline_name *name = &t->names[alloc->name];
    rn_json_object(json, NULL);
    rn_json_string(json, "name", name->name);
    rn_json_string(json, "layer", name->group);
    rn_json_string(json, "detail", name->detail);
    rn_json_u64(json, "bytes", alloc->bytes);
    rn_json_string(json, "purpose", rn_purpose_name((rn_purpose)alloc->purpose));
    rn_json_string(json, "operation",
                   alloc->op == RN_NO_INDEX ? "" : t->names[t->ops[alloc->op].name].name);
    rn_json_string(json, "site", t->names[alloc->site].name);
    rn_json_f64(json, "age_seconds", seconds(now_ns - alloc->begin_ns));
    rn_json_bool(json, "before", alloc->before);
    rn_json_end(json);
}

static void write_moment(const rn_report *r, const rn_report_device *d, rn_json *json) {
    rn_json_object(json, "moment");
    rn_json_bool(json, "is_peak", r->at_peak);
    rn_json_f64(json, "at_seconds", seconds(d->moment.time_ns));
    rn_json_u64(json, "reserved_bytes", d->moment.reserved_bytes);
    rn_json_u64(json, "active_bytes", d->moment.active_bytes);
    rn_json_u64(json, "count", d->moment.count);
    write_table(&d->purposes, json, "purposes");
    write_table(&d->blocks, json, "layers");
    write_table(&d->ops, json, "operations");
    write_sites(&d->sites, json);
    rn_json_array(json, "largest");
    for (size_t i = 0; i < rn_min_u64(d->live_count, r->rows); i++)
        write_block(r->timeline, &r->timeline->allocs[d->live[i]], d->moment.time_ns, json);
    rn_json_end(json);
    rn_json_end(json);
}

static void write_peak(rn_json *json, const char *key, uint64_t bytes, uint64_t ns) {
    rn_json_object(json, key);
    rn_json_u64(json, "bytes", bytes);
    rn_json_f64(json, "at_seconds", seconds(ns));
    rn_json_end(json);
}

static void write_device(const rn_report *r, const rn_report_device *d, rn_json *json) {
    rn_json_object(json, NULL);
    rn_json_string(json, "device", r->timeline->devices[d->device].name);
    write_peak(json, "peak", d->peak.reserved_bytes, d->peak.time_ns);
    write_peak(json, "active_peak", d->active_peak_bytes, d->active_peak_ns);
    if (d->counted_bytes) write_peak(json, "counted_peak", d->counted_bytes, d->counted_ns);
    write_known(json, "budget_bytes", d->budget_bytes);
    write_known(json, "resident_peak_bytes", d->resident_peak_bytes);
    write_known(json, "predicted_peak_bytes", d->predicted_peak_bytes);
    if (d->predicted_peak_bytes)
        rn_json_f64(json, "active_per_predicted",
                    (double)d->active_peak_bytes / (double)d->predicted_peak_bytes);
    rn_json_u64(json, "predicted_samples", d->predicted_count);
    rn_json_u64(json, "most_over_predicted_bytes", d->most_over_bytes);
    rn_json_u64(json, "most_under_predicted_bytes", d->most_under_bytes);
    write_moment(r, d, json);
    rn_json_object(json, "at_end");
    rn_json_u64(json, "bytes", d->end_bytes);
    rn_json_u64(json, "count", d->end_count);
    rn_json_u64(json, "left_bytes", d->left_bytes);
    rn_json_u64(json, "left_count", d->left_count);
    write_table(&d->left, json, "left_by");
    rn_json_end(json);
    rn_json_end(json);
}

static void write_op(const rn_report_op *op, rn_json *json) {
    rn_json_object(json, NULL);
    rn_json_string(json, "name", op->text);
    rn_json_u64(json, "count", op->count);
    rn_json_u64(json, "unfinished", op->unfinished_count);
    rn_json_f64(json, "self_seconds", seconds(op->self_ns));
    rn_json_f64(json, "total_seconds", seconds(op->total_ns));
    rn_json_i64(json, "delta_bytes", op->delta_bytes);
    rn_json_i64(json, "inner_delta_bytes", op->inner_delta_bytes);
    rn_json_u64(json, "allocated_bytes", op->allocated_bytes);
    rn_json_u64(json, "peak_bytes", op->peak_bytes);
    rn_json_u64(json, "allocations", op->alloc_count);
    rn_json_u64(json, "releases", op->free_count);
    if (op->is_told) rn_json_i64(json, "most_delta_bytes", op->most_delta_bytes);
    rn_json_end(json);
}

static void write_torch(const rn_timeline *t, const rn_timeline_torch_op *op, rn_json *json) {
    rn_json_object(json, NULL);
    rn_json_string(json, "name", t->names[op->name].name);
    rn_json_string(json, "input_shapes", t->names[op->name].detail);
    rn_json_u64(json, "count", op->count);
    rn_json_f64(json, "cpu_seconds", op->cpu_us / 1e6);
    rn_json_f64(json, "cuda_seconds", op->cuda_us / 1e6);
    rn_json_i64(json, "cpu_bytes", op->cpu_bytes);
    rn_json_i64(json, "cuda_bytes", op->cuda_bytes);
    rn_json_end(json);
}

static void write_mark(const rn_report *r, uint32_t i, rn_json *json) {
    const rn_timeline_mark *mark = &r->timeline->marks[i];
    rn_json_object(json, NULL);
    rn_json_f64(json, "at_seconds", seconds(mark->time_ns));
    rn_json_string(json, "kind", rn_mark_name(mark->kind));
    rn_json_string(json, "name", r->timeline->names[mark->name].name);
    rn_json_u64(json, "bytes", mark->bytes);
    rn_json_array(json, "held");
    for (size_t d = 0; d < r->device_count; d++) {
        const rn_report_held *held = &r->held[i * r->device_count + d];
        rn_json_object(json, NULL);
        rn_json_string(json, "device", r->timeline->devices[r->devices[d].device].name);
        rn_json_u64(json, "reserved_bytes", held->reserved_bytes);
        rn_json_u64(json, "active_bytes", held->active_bytes);
        rn_json_end(json);
    }
    rn_json_end(json);
    rn_json_end(json);
}

static void write_all(const rn_report *r, rn_json *json, const char *key) {
    rn_json_object(json, key);
    write_file(r->timeline, json);
    rn_json_array(json, "devices");
    for (size_t d = 0; d < r->device_count; d++)
        write_device(r, &r->devices[d], json);
    rn_json_end(json);
    rn_json_array(json, "operations");
    for (size_t i = 0; i < r->op_count; i++)
        write_op(&r->ops[i], json);
    rn_json_end(json);
    rn_json_array(json, "torch_operations");
    for (uint32_t i = 0; i < r->timeline->torch_op_count; i++)
        write_torch(r->timeline, &r->timeline->torch_ops[i], json);
    rn_json_end(json);
    rn_json_array(json, "marks");
    for (uint32_t i = 0; i < r->timeline->mark_count; i++)
        write_mark(r, i, json);
    rn_json_end(json);
    rn_json_end(json);
}

rn_status rn_timeline_report_json(const rn_timeline *t, const rn_report_options *options,
                                  rn_sink sink) {
    rn_report report;
    rn_json json;
    rn_status s = rn_report_make(t, options, &report);
    if (s == RN_OK) {
        rn_json_begin(&json, sink, true);
        write_all(&report, &json, NULL);
        s = rn_json_finish(&json);
    }
    rn_report_free(&report);
    return s;
}

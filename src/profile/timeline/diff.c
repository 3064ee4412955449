// diff.c — what changed from one recording to another: a table and its JSON twin.
#include "base/checked.h"
#include "base/json.h"
#include "base/str.h"
#include "profile/timeline/diff.h"

#include <stdio.h>
#include <string.h>

// Two reports, and the devices of either by name.
typedef struct pair {
    rn_report a, b;
    struct {
        const char *name;
        const rn_report_device *sides[2];
    } devices[2 * RN_DEVICE_MAX];
    size_t device_count;
} pair;

static void add_devices(pair *p, const rn_report *r, int side) {
    for (size_t i = 0; i < r->device_count; i++) {
        const char *name = r->timeline->devices[r->devices[i].device].name;
        size_t at = 0;
        while (at < p->device_count && strcmp(p->devices[at].name, name) != 0)
            at++;
        if (at == p->device_count) p->device_count++;
        p->devices[at].name = name;
        p->devices[at].sides[side] = &r->devices[i];
    }
}

static rn_status make_pair(pair *p, const rn_timeline *a, const rn_timeline *b) {
    *p = (pair){.a.timeline = a, .b.timeline = b};
    RN_TRY(rn_report_make(a, NULL, &p->a));
    RN_TRY(rn_report_make(b, NULL, &p->b));
    add_devices(p, &p->a, 0);
    add_devices(p, &p->b, 1);
    return RN_OK;
}

static void free_pair(pair *p) {
    rn_report_free(&p->a);
    rn_report_free(&p->b);
}

// The tables of a device, and what they are called.
enum { TABLES = 4 };
static const struct {
    const char *title, *key, *instead;
    size_t offset;
} tables[TABLES] = {
    {"purpose, at the peak", "purposes", "?", offsetof(rn_report_device, purposes)},
    {"layer, at the peak", "layers", "(none)", offsetof(rn_report_device, blocks)},
    {"allocated in, at the peak", "operations", "(no operation)", offsetof(rn_report_device, ops)},
    {"left at the end by", "left_by", "(no name)", offsetof(rn_report_device, left)},
};

static const rn_report_table *table_of(const rn_report_device *d, int table) {
    return d ? (const rn_report_table *)((const char *)d + tables[table].offset) : NULL;
}

static rn_status diff_device(const pair *p, size_t device, int table, rn_diff_table *out) {
    return rn_diff_tables(p->a.timeline->allocator, table_of(p->devices[device].sides[0], table),
                          table_of(p->devices[device].sides[1], table), out);
}

// Numbers of a device that are compared as they are.
enum { SUMS = 5 };
static const struct {
    const char *title, *key;
} sums[SUMS] = {{"peak", "peak_bytes"},
                {"in use at the peak", "peak_active_bytes"},
                {"most in use", "active_peak_bytes"},
                {"counted peak", "counted_peak_bytes"},
                {"in use at the end", "end_bytes"}};

static uint64_t sum_of(const rn_report_device *d, int sum) {
    if (!d) return 0;
    const uint64_t values[SUMS] = {d->peak.reserved_bytes, d->peak.active_bytes,
                                   d->active_peak_bytes, d->counted_bytes, d->end_bytes};
    return values[sum];
}

// ---- for people ---------------------------------------------------------------------------------

static rn_status print_line(rn_sink sink, uint64_t a, uint64_t b, const char *text) {
    char ratio[32] = "";
    if (a && a != b) snprintf(ratio, sizeof ratio, "%+.1f%%", ((double)b / (double)a - 1) * 100);
    return rn_sink_print(sink, "%12s %12s %12s %9s  %s\n", rn_size_format(a).text,
                         rn_size_format(b).text, rn_change_format((int64_t)(b - a)).text, ratio,
                         text);
}

// Rows without a change come last; they are not worth a line.
static rn_status print_table(const rn_diff_table *table, int kind, size_t most, rn_sink sink) {
    size_t changed = 0;
    while (changed < table->count && table->rows[changed].size)
        changed++;
    if (changed == 0) return RN_OK;
    RN_TRY(rn_sink_print(sink, "%12s %12s %12s %9s  %s\n", "a", "b", "change", "",
                         tables[kind].title));
    for (size_t i = 0; i < rn_min_u64(changed, most); i++) {
        const rn_diff_row *row = &table->rows[i];
        RN_TRY(print_line(sink, rn_diff_bytes(row, 0), rn_diff_bytes(row, 1),
                          rn_label_of(row->text, tables[kind].instead).text));
    }
    return changed > most ? rn_sink_print(sink, "%12s and %zu more\n", "", changed - most) : RN_OK;
}

static rn_status print_device(const pair *p, size_t device, rn_sink sink) {
    RN_TRY(rn_sink_print(sink, "\n%s\n%12s %12s %12s\n",
                         rn_label_of(p->devices[device].name, "?").text, "a", "b", "change"));
    for (int i = 0; i < SUMS; i++) {
        uint64_t a = sum_of(p->devices[device].sides[0], i);
        uint64_t b = sum_of(p->devices[device].sides[1], i);
        if (a || b) RN_TRY(print_line(sink, a, b, sums[i].title));
    }
    rn_status s = RN_OK;
    for (int i = 0; i < TABLES && s == RN_OK; i++) {
        rn_diff_table table;
        s = diff_device(p, device, i, &table);
        if (s == RN_OK) s = print_table(&table, i, p->a.rows, sink);
        rn_diff_free(&table);
    }
    return s;
}

static const rn_report_op no_op = {.text = ""};

static const rn_report_op *op_of(const rn_diff_row *row, int side) {
    return row->sides[side] ? row->sides[side] : &no_op;
}

static rn_status print_op(const rn_diff_row *row, rn_sink sink) {
    const rn_report_op *a = op_of(row, 0), *b = op_of(row, 1);
    return rn_sink_print(
        sink, "%8llu %8llu %10s %10s %12s %12s %12s %12s  %s\n", (unsigned long long)a->count,
        (unsigned long long)b->count, rn_time_format((double)a->self_ns / 1e9).text,
        rn_time_format((double)b->self_ns / 1e9).text, rn_change_format(a->delta_bytes).text,
        rn_change_format(b->delta_bytes).text, rn_size_format(a->peak_bytes).text,
        rn_size_format(b->peak_bytes).text, rn_label_of(row->text, "(no name)").text);
}

static rn_status print_ops(const pair *p, rn_sink sink) {
    rn_diff_table table;
    rn_status s = rn_diff_ops(&p->a, &p->b, &table);
    if (s == RN_OK && table.count)
        s = rn_sink_print(sink, "\n%8s %8s %10s %10s %12s %12s %12s %12s  %s\n", "count a",
                          "count b", "self a", "self b", "change a", "change b", "peak a", "peak b",
                          "operation");
    for (size_t i = 0; s == RN_OK && i < rn_min_u64(table.count, p->a.rows); i++)
        s = print_op(&table.rows[i], sink);
    if (s == RN_OK && table.count > p->a.rows)
        s = rn_sink_print(sink, "%8s and %zu more\n", "", table.count - p->a.rows);
    rn_diff_free(&table);
    return s;
}

static rn_status print_file(const char *side, const rn_timeline *t, rn_sink sink) {
    char path[sizeof t->path];
    snprintf(path, sizeof path, "%s", t->path);
    rn_str_clean(path);
    RN_TRY(rn_sink_print(sink, "%s  %s, %s, %llu events\n", side, path,
                         rn_time_format((double)t->end_ns / 1e9).text,
                         (unsigned long long)t->event_count));
    for (uint32_t i = 0; i < t->note_count; i++)
        RN_TRY(rn_sink_print(sink, "   note: %s\n", t->notes[i]));
    return RN_OK;
}

static rn_status print_pair(const pair *p, rn_sink sink) {
    RN_TRY(print_file("a", p->a.timeline, sink));
    RN_TRY(print_file("b", p->b.timeline, sink));
    for (size_t d = 0; d < p->device_count; d++)
        RN_TRY(print_device(p, d, sink));
    return print_ops(p, sink);
}

rn_status rn_timeline_diff(const rn_timeline *a, const rn_timeline *b, rn_sink sink) {
    pair p;
    rn_status s = make_pair(&p, a, b);
    if (s == RN_OK) s = print_pair(&p, sink);
    free_pair(&p);
    return s;
}

// ---- for programs -------------------------------------------------------------------------------

static void write_bytes(rn_json *json, uint64_t a, uint64_t b) {
    rn_json_u64(json, "a_bytes", a);
    rn_json_u64(json, "b_bytes", b);
    rn_json_i64(json, "change_bytes", (int64_t)(b - a));
}

static void write_file(const rn_timeline *t, rn_json *json, const char *key) {
    rn_json_object(json, key);
    rn_json_string(json, "file", t->path);
    rn_json_f64(json, "duration_seconds", (double)t->end_ns / 1e9);
    rn_json_u64(json, "events", t->event_count);
    rn_json_array(json, "notes");
    for (uint32_t i = 0; i < t->note_count; i++)
        rn_json_string(json, NULL, t->notes[i]);
    rn_json_end(json);
    rn_json_end(json);
}

static rn_status write_table(const pair *p, size_t device, int kind, rn_json *json) {
    rn_diff_table table;
    rn_status s = diff_device(p, device, kind, &table);
    if (s == RN_OK) rn_json_array(json, tables[kind].key);
    for (size_t i = 0; s == RN_OK && i < table.count; i++) {
        rn_json_object(json, NULL);
        rn_json_string(json, "name", table.rows[i].text);
        write_bytes(json, rn_diff_bytes(&table.rows[i], 0), rn_diff_bytes(&table.rows[i], 1));
        rn_json_end(json);
    }
    if (s == RN_OK) rn_json_end(json);
    rn_diff_free(&table);
    return s;
}

static rn_status write_device(const pair *p, size_t device, rn_json *json) {
    rn_json_object(json, NULL);
    rn_json_string(json, "device", p->devices[device].name);
    for (int i = 0; i < SUMS; i++) {
        rn_json_object(json, sums[i].key);
        write_bytes(json, sum_of(p->devices[device].sides[0], i),
                    sum_of(p->devices[device].sides[1], i));
        rn_json_end(json);
    }
    for (int i = 0; i < TABLES; i++)
        RN_TRY(write_table(p, device, i, json));
    rn_json_end(json);
    return RN_OK;
}

static void write_op_side(const rn_report_op *op, rn_json *json, const char *key) {
    rn_json_object(json, key);
    rn_json_u64(json, "count", op->count);
    rn_json_f64(json, "self_seconds", (double)op->self_ns / 1e9);
    rn_json_f64(json, "total_seconds", (double)op->total_ns / 1e9);
    rn_json_i64(json, "delta_bytes", op->delta_bytes);
    rn_json_u64(json, "allocated_bytes", op->allocated_bytes);
    rn_json_u64(json, "peak_bytes", op->peak_bytes);
    rn_json_end(json);
}

static rn_status write_ops(const pair *p, rn_json *json) {
    rn_diff_table table;
    rn_status s = rn_diff_ops(&p->a, &p->b, &table);
    rn_json_array(json, "operations");
    for (size_t i = 0; s == RN_OK && i < table.count; i++) {
        rn_json_object(json, NULL);
        rn_json_string(json, "name", table.rows[i].text);
        write_op_side(op_of(&table.rows[i], 0), json, "a");
        write_op_side(op_of(&table.rows[i], 1), json, "b");
        rn_json_end(json);
    }
    rn_json_end(json);
    rn_diff_free(&table);
    return s;
}

static rn_status write_pair(const pair *p, rn_json *json, const char *key) {
    rn_json_object(json, key);
    write_file(p->a.timeline, json, "a");
    write_file(p->b.timeline, json, "b");
    rn_json_array(json, "devices");
    for (size_t d = 0; d < p->device_count; d++)
        RN_TRY(write_device(p, d, json));
    rn_json_end(json);
    RN_TRY(write_ops(p, json));
    rn_json_end(json);
    return RN_OK;
}

rn_status rn_timeline_diff_json(const rn_timeline *a, const rn_timeline *b, rn_sink sink) {
    pair p;
    rn_json json;
    rn_json_begin(&json, sink, true);
    rn_status s = make_pair(&p, a, b);
    if (s == RN_OK) s = write_pair(&p, &json, NULL);
    free_pair(&p);
    return s == RN_OK ? rn_json_finish(&json) : s;
}

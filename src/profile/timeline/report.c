// report.c — the report for people. Texts from the file stand last in a line: they are of any
// length and any alphabet.
#include "base/checked.h"
#include "base/str.h"
#include "profile/timeline/radix.h"
#include "profile/timeline/report.h"
#include "profile/timeline/sites.h"

#include <stdio.h>
#include <time.h>

typedef unsigned long long ull;

static rn_time_text time_text(uint64_t ns) {
    return rn_time_format((double)ns / 1e9);
}

// "-" for what is not known.
static rn_size_text known_size(uint64_t bytes) {
    return bytes ? rn_size_format(bytes) : (rn_size_text){"-"};
}

static double percent(uint64_t part, uint64_t whole) {
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static rn_status print_more(rn_sink sink, size_t all, size_t shown) {
    return all > shown ? rn_sink_print(sink, "%12s  and %zu more\n", "", all - shown) : RN_OK;
}

// ---- the file -----------------------------------------------------------------------------------

static rn_status print_start(const rn_timeline *t, rn_sink sink) {
    time_t seconds = (time_t)(t->start_unix_ns / 1000000000);
    struct tm utc;
    char text[32];
    if (!t->start_unix_ns || !gmtime_r(&seconds, &utc)) return RN_OK;
    if (!strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &utc)) return RN_OK;
    return rn_sink_print(sink, "recorded   %s UTC\n", text);
}

static rn_status print_file(const rn_timeline *t, rn_sink sink) {
    char path[sizeof t->path], command[sizeof t->command];
    snprintf(path, sizeof path, "%s", t->path);
    snprintf(command, sizeof command, "%s", t->command);
    rn_str_clean(path);
    rn_str_clean(command);
    RN_TRY(rn_sink_print(sink, "file       %s (%s%s%s)\n", path, t->format, t->mode[0] ? ", " : "",
                         t->mode));
    if (command[0]) RN_TRY(rn_sink_print(sink, "command    %s\n", command));
    RN_TRY(print_start(t, sink));
    RN_TRY(rn_sink_print(sink, "duration   %s, %llu events", time_text(t->end_ns).text,
                         (ull)t->event_count));
    if (t->dropped_count) RN_TRY(rn_sink_print(sink, ", %llu dropped", (ull)t->dropped_count));
    if (t->has_end && t->reason[0])
        RN_TRY(rn_sink_print(sink, "; ended: %s", rn_label_of(t->reason, "").text));
    RN_TRY(rn_sink_print(sink, "\n"));
    for (uint32_t i = 0; i < t->note_count; i++)
        RN_TRY(rn_sink_print(sink, "note       %s\n", t->notes[i]));
    return RN_OK;
}

// ---- peaks --------------------------------------------------------------------------------------

static rn_status print_counted(const rn_report_device *d, rn_sink sink) {
    if (!d->counted_bytes || d->counted_bytes == d->peak.reserved_bytes) return RN_OK;
    return rn_sink_print(sink,
                         "%-10s counted as it happened: %s at %s (threads at the same moment, or "
                         "events that are lost, make the difference)\n",
                         "", rn_size_format(d->counted_bytes).text, time_text(d->counted_ns).text);
}

static rn_status print_peaks(const rn_report *r, rn_sink sink) {
    RN_TRY(rn_sink_print(sink, "\n%-10s %12s %10s %12s %12s %12s %12s\n", "device", "peak", "at",
                         "in use then", "most in use", "budget", "resident"));
    for (size_t i = 0; i < r->device_count; i++) {
        const rn_report_device *d = &r->devices[i];
        RN_TRY(rn_sink_print(
            sink, "%-10s %12s %10s %12s %12s %12s %12s\n",
            rn_label_of(r->timeline->devices[d->device].name, "?").text,
            rn_size_format(d->peak.reserved_bytes).text, time_text(d->peak.time_ns).text,
            rn_size_format(d->peak.active_bytes).text, rn_size_format(d->active_peak_bytes).text,
            known_size(d->budget_bytes).text, known_size(d->resident_peak_bytes).text));
        RN_TRY(print_counted(d, sink));
    }
    return RN_OK;
}

static rn_status print_predicted(const rn_report *r, rn_sink sink) {
    bool any = false;
    for (size_t i = 0; i < r->device_count; i++) {
        const rn_report_device *d = &r->devices[i];
        if (!d->predicted_peak_bytes && !d->predicted_count) continue;
        if (!any)
            RN_TRY(rn_sink_print(sink, "\n%-10s %12s %12s %8s %8s %12s %12s\n", "device",
                                 "predicted", "most in use", "ratio", "samples", "most over",
                                 "most under"));
        any = true;
        char ratio[32] = "-";
        if (d->predicted_peak_bytes)
            snprintf(ratio, sizeof ratio, "%.3f",
                     (double)d->active_peak_bytes / (double)d->predicted_peak_bytes);
        RN_TRY(rn_sink_print(sink, "%-10s %12s %12s %8s %8llu %12s %12s\n",
                             rn_label_of(r->timeline->devices[d->device].name, "?").text,
                             known_size(d->predicted_peak_bytes).text,
                             rn_size_format(d->active_peak_bytes).text, ratio,
                             (ull)d->predicted_count, rn_size_format(d->most_over_bytes).text,
                             rn_size_format(d->most_under_bytes).text));
    }
    return RN_OK;
}

// ---- what was in use ----------------------------------------------------------------------------

static rn_status print_table(const rn_report *r, const rn_report_table *table, const char *what,
                             uint64_t whole, const char *instead, rn_sink sink) {
    if (table->count == 0) return RN_OK;
    size_t shown = (size_t)rn_min_u64(table->count, r->rows);
    RN_TRY(rn_sink_print(sink, "%12s %7s %8s  %s\n", "bytes", "share", "blocks", what));
    for (size_t i = 0; i < shown; i++) {
        const rn_report_row *row = &table->rows[i];
        RN_TRY(rn_sink_print(sink, "%12s %6.1f%% %8llu  %s\n", rn_size_format(row->bytes).text,
                             percent(row->bytes, whole), (ull)row->count,
                             rn_label_of(row->text, instead).text));
    }
    return print_more(sink, table->count, shown);
}

static rn_status print_block(const rn_report *r, const rn_report_device *d,
                             const rn_timeline_alloc *alloc, rn_sink sink) {
    const rn_timeline *t = r->timeline;
    const rn_timeline_name *name = &t->names[alloc->name];
    const char *op = alloc->op == RN_NO_INDEX ? "" : t->names[t->ops[alloc->op].name].name;
    RN_TRY(rn_sink_print(sink, "%12s %-12s %10s  %s", rn_size_format(alloc->bytes).text,
                         rn_purpose_name((rn_purpose)alloc->purpose),
                         alloc->before ? "before"
                                       : time_text(d->moment.time_ns - alloc->begin_ns).text,
                         rn_label_of(name->name, "(no name)").text));
    if (name->group[0]) RN_TRY(rn_sink_print(sink, ", %s", rn_label_of(name->group, "").text));
    if (name->detail[0]) RN_TRY(rn_sink_print(sink, ", %s", rn_label_of(name->detail, "").text));
    if (op[0]) RN_TRY(rn_sink_print(sink, ", in %s", rn_label_of(op, "").text));
    return rn_sink_print(sink, "\n");
}

static rn_status print_largest(const rn_report *r, const rn_report_device *d, rn_sink sink) {
    size_t shown = (size_t)rn_min_u64(d->live_count, r->rows);
    RN_TRY(rn_sink_print(sink, "%12s %-12s %10s  %s\n", "largest", "purpose", "age", "block"));
    for (size_t i = 0; i < shown; i++)
        RN_TRY(print_block(r, d, &r->timeline->allocs[d->live[i]], sink));
    return print_more(sink, d->live_count, shown);
}

// Who asked for it: the tree of call stacks, without branches of less than a fiftieth.
static rn_status print_sites(const rn_report *r, const rn_report_device *d, rn_sink sink) {
    rn_site_tree tree;
    if (d->sites.count == 0) return RN_OK;
    rn_status s = rn_site_tree_make(r->timeline, d->live, d->live_count, &tree);
    if (s == RN_OK)
        s = rn_sink_print(sink, "%12s %7s %8s  %s\n", "bytes", "share", "blocks",
                          "asked for by (outermost first; below 2 % left out)");
    if (s == RN_OK) s = rn_site_tree_print(&tree, tree.nodes[0].bytes / 50 + 1, sink);
    rn_site_tree_free(r->timeline, &tree);
    return s;
}

static rn_status print_moment(const rn_report *r, const rn_report_device *d, rn_sink sink) {
    const char *device = r->timeline->devices[d->device].name;
    uint64_t whole = d->moment.active_bytes;
    RN_TRY(rn_sink_print(sink, "\n%s %s%s: %s in use in %llu blocks, %s reserved\n",
                         rn_label_of(device, "?").text, r->at_peak ? "at its peak, " : "at ",
                         time_text(d->moment.time_ns).text, rn_size_format(whole).text,
                         (ull)d->moment.count, rn_size_format(d->moment.reserved_bytes).text));
    if (d->live_count == 0) return RN_OK;
    RN_TRY(print_table(r, &d->purposes, "purpose", whole, "?", sink));
    if (d->blocks.count > 1 || (d->blocks.count && d->blocks.rows[0].text[0]))
        RN_TRY(print_table(r, &d->blocks, "layer", whole, "(none)", sink));
    RN_TRY(print_table(r, &d->ops, "allocated in", whole, "(no operation)", sink));
    RN_TRY(print_largest(r, d, sink));
    return print_sites(r, d, sink);
}

// ---- operations ---------------------------------------------------------------------------------

// A file that has its own sums does not say the rest.
static rn_status print_told_op(const rn_report_op *op, rn_sink sink) {
    return rn_sink_print(sink, "%8llu %10s %10s %12s %12s %12s %12s  %s (%s at most in one)\n",
                         (ull)op->count, op->total_ns ? time_text(op->self_ns).text : "-",
                         op->total_ns ? time_text(op->total_ns).text : "-",
                         rn_change_format(op->delta_bytes).text, "-", "-", "-",
                         rn_label_of(op->text, "(no name)").text,
                         rn_change_format(op->most_delta_bytes).text);
}

static rn_status print_op(const rn_report_op *op, rn_sink sink) {
    if (op->is_told) return print_told_op(op, sink);
    return rn_sink_print(
        sink, "%8llu %10s %10s %12s %12s %12s %12s  %s%s\n", (ull)op->count,
        time_text(op->self_ns).text, time_text(op->total_ns).text,
        rn_change_format(op->delta_bytes).text, rn_change_format(op->inner_delta_bytes).text,
        rn_size_format(op->allocated_bytes).text, rn_size_format(op->peak_bytes).text,
        rn_label_of(op->text, "(no name)").text, op->unfinished_count ? " (not ended)" : "");
}

static rn_status print_op_head(rn_sink sink, const char *title) {
    RN_TRY(rn_sink_print(sink, "\noperations by %s\n", title));
    return rn_sink_print(sink, "%8s %10s %10s %12s %12s %12s %12s  %s\n", "count", "self", "total",
                         "change", "in arenas", "allocated", "peak", "operation");
}

// The numbers 0 .. count - 1, the largest by `size_of` first, equal ones in their order. Freed by
// the caller.
static rn_status order_by(const rn_report *r, uint64_t (*size_of)(const rn_report *, size_t),
                          size_t count, rn_sort_item **out) {
    const rn_allocator *from = r->timeline->allocator;
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc(from, count * sizeof **out, &block));
    rn_sort_item *items = block;
    for (size_t i = 0; i < count; i++)
        items[i] = (rn_sort_item){.key = ~size_of(r, i), .index = (uint32_t)i};
    rn_status s = rn_radix_sort(from, items, count);
    if (s == RN_OK)
        *out = items;
    else
        rn_free(from, items, count * sizeof *items);
    return s;
}

static uint64_t change_of(const rn_report *r, size_t op) {
    int64_t change = r->ops[op].delta_bytes;
    return change < 0 ? 0 - (uint64_t)change : (uint64_t)change;
}

static rn_status print_by_change(const rn_report *r, size_t shown, rn_sink sink) {
    rn_sort_item *order = NULL;
    RN_TRY(order_by(r, change_of, r->op_count, &order));
    rn_status s = RN_OK;
    for (size_t i = 0; i < shown && s == RN_OK && change_of(r, order[i].index); i++) {
        if (i == 0) s = print_op_head(sink, "change");
        if (s == RN_OK) s = print_op(&r->ops[order[i].index], sink);
    }
    rn_free(r->timeline->allocator, order, r->op_count * sizeof *order);
    return s;
}

static rn_status print_ops(const rn_report *r, rn_sink sink) {
    if (r->op_count == 0) return RN_OK;
    size_t shown = (size_t)rn_min_u64(r->op_count, r->rows);
    RN_TRY(print_op_head(sink, "their own time"));
    for (size_t i = 0; i < shown; i++)
        RN_TRY(print_op(&r->ops[i], sink));
    RN_TRY(print_more(sink, r->op_count, shown));
    return print_by_change(r, shown, sink);
}

// ---- PyTorch's own operations -------------------------------------------------------------------

static uint64_t torch_ns(const rn_report *r, size_t op) {
    double ns = (r->timeline->torch_ops[op].cpu_us + r->timeline->torch_ops[op].cuda_us) * 1e3;
    return ns > 0 ? ns < 1e18 ? (uint64_t)ns : (uint64_t)1e18 : 0;
}

static rn_status print_torch_op(const rn_timeline *t, uint32_t i, rn_sink sink) {
    const rn_timeline_torch_op *op = &t->torch_ops[i];
    const rn_timeline_name *name = &t->names[op->name];
    return rn_sink_print(
        sink, "%8llu %10s %10s %12s %12s  %s %s\n", (ull)op->count,
        rn_time_format(op->cpu_us / 1e6).text, rn_time_format(op->cuda_us / 1e6).text,
        rn_change_format(op->cpu_bytes).text, rn_change_format(op->cuda_bytes).text,
        rn_label_of(name->name, "(no name)").text, rn_label_of(name->detail, "").text);
}

static rn_status print_torch(const rn_report *r, rn_sink sink) {
    const rn_timeline *t = r->timeline;
    size_t shown = (size_t)rn_min_u64(t->torch_op_count, r->rows);
    rn_sort_item *order = NULL;
    if (shown == 0) return RN_OK;
    RN_TRY(order_by(r, torch_ns, t->torch_op_count, &order));
    rn_status s = rn_sink_print(sink, "\n%8s %10s %10s %12s %12s  %s\n", "count", "CPU", "CUDA",
                                "CPU bytes", "CUDA bytes", "PyTorch operation, input shapes");
    for (size_t i = 0; i < shown && s == RN_OK; i++)
        s = print_torch_op(t, order[i].index, sink);
    if (s == RN_OK) s = print_more(sink, t->torch_op_count, shown);
    rn_free(t->allocator, order, t->torch_op_count * sizeof *order);
    return s;
}

// ---- what is left, and marks --------------------------------------------------------------------

static rn_status print_left(const rn_report *r, const rn_report_device *d, rn_sink sink) {
    if (d->end_count == 0) return RN_OK;
    RN_TRY(rn_sink_print(sink,
                         "\n%s at the end: %s in use in %llu blocks; %s in %llu of them come "
                         "from operations that have ended\n",
                         rn_label_of(r->timeline->devices[d->device].name, "?").text,
                         rn_size_format(d->end_bytes).text, (ull)d->end_count,
                         rn_size_format(d->left_bytes).text, (ull)d->left_count));
    return print_table(r, &d->left, "left by", d->end_bytes, "(no name)", sink);
}

static rn_status print_mark(const rn_report *r, uint32_t i, rn_sink sink) {
    const rn_timeline_mark *mark = &r->timeline->marks[i];
    RN_TRY(
        rn_sink_print(sink, "%10s %-10s", time_text(mark->time_ns).text, rn_mark_name(mark->kind)));
    for (size_t d = 0; d < r->device_count; d++) {
        const rn_report_held *held = &r->held[i * r->device_count + d];
        RN_TRY(rn_sink_print(sink, " %12s %12s", rn_size_format(held->reserved_bytes).text,
                             rn_size_format(held->active_bytes).text));
    }
    RN_TRY(rn_sink_print(sink, "  %s", rn_label_of(r->timeline->names[mark->name].name, "").text));
    if (mark->kind == RN_MARK_REFUSAL || mark->kind == RN_MARK_NO_MEMORY)
        RN_TRY(rn_sink_print(sink, " %s requested", rn_size_format(mark->bytes).text));
    if (mark->kind == RN_MARK_SIGNAL) RN_TRY(rn_sink_print(sink, " number %llu", (ull)mark->bytes));
    return rn_sink_print(sink, "\n");
}

// Of the many periodic ones only how many there are; the JSON has them.
static rn_status print_marks(const rn_report *r, rn_sink sink) {
    const rn_timeline *t = r->timeline;
    size_t shown = 0, periodic = 0, others = 0;
    for (uint32_t i = 0; i < t->mark_count; i++)
        *(t->marks[i].kind == RN_MARK_PERIODIC ? &periodic : &others) += 1;
    if (!others && !periodic) return RN_OK;
    RN_TRY(rn_sink_print(sink, "\n%10s %-10s", "at", "mark"));
    for (size_t d = 0; d < r->device_count; d++) {
        const char *device = t->devices[r->devices[d].device].name;
        RN_TRY(rn_sink_print(sink, " %12.12s %12s", rn_label_of(device, "?").text, "in use"));
    }
    RN_TRY(rn_sink_print(sink, "  name\n"));
    for (uint32_t i = 0; i < t->mark_count && shown < 4 * r->rows; i++)
        if (t->marks[i].kind != RN_MARK_PERIODIC) {
            RN_TRY(print_mark(r, i, sink));
            shown++;
        }
    RN_TRY(print_more(sink, others, shown));
    return periodic ? rn_sink_print(sink, "%10s and %zu periodic snapshots\n", "", periodic)
                    : RN_OK;
}

// ---- all of it ----------------------------------------------------------------------------------

static rn_status print_all(const rn_report *r, rn_sink sink) {
    RN_TRY(print_file(r->timeline, sink));
    RN_TRY(print_peaks(r, sink));
    RN_TRY(print_predicted(r, sink));
    for (size_t d = 0; d < r->device_count; d++)
        RN_TRY(print_moment(r, &r->devices[d], sink));
    RN_TRY(print_ops(r, sink));
    RN_TRY(print_torch(r, sink));
    for (size_t d = 0; d < r->device_count; d++)
        RN_TRY(print_left(r, &r->devices[d], sink));
    return print_marks(r, sink);
}

rn_status rn_timeline_report(const rn_timeline *t, const rn_report_options *options, rn_sink sink) {
    rn_report report;
    rn_status s = rn_report_make(t, options, &report);
    if (s == RN_OK) s = print_all(&report, sink);
    rn_report_free(&report);
    return s;
}

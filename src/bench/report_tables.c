// report_tables.c — results and changes as tables: a line a variant, in the order asked for. A
// variant without figures has its outcome and the reason in their place.
#include "bench/bench_report.h"

#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CELL(row, column) (row)->cells[column].text, sizeof(row)->cells[column].text

static void put_time(char *out, size_t bytes, double seconds) {
    if (!isnan(seconds)) snprintf(out, bytes, "%s", rn_time_format(seconds).text);
}

static void put_size(char *out, size_t bytes, uint64_t size) {
    if (size != RN_BENCH_UNKNOWN) snprintf(out, bytes, "%s", rn_size_format(size).text);
}

static void put_share(char *out, size_t bytes, double share) {
    if (isnan(share)) return;
    snprintf(out, bytes, fabs(share) < 0.0995 ? "%+.1f %%" : "%+.0f %%", 100 * share);
}

// As it was asked for.
static void put_name(char *out, size_t bytes, const rn_bench_result *r) {
    snprintf(out, bytes, "%s", r->asked[0] ? r->asked : r->name);
    rn_str_clean(out);
}

// What of one batch is not known is not another one.
static bool has_batches(const rn_bench_results *results) {
    uint64_t first = RN_BENCH_UNKNOWN;
    for (size_t i = 0; i < results->count; i++) {
        uint64_t batch = results->items[i].batch;
        if (batch == RN_BENCH_UNKNOWN) continue;
        if (first != RN_BENCH_UNKNOWN && batch != first) return true;
        first = batch;
    }
    return false;
}

// Why there are no figures, in one line.
static void put_reason(char *out, size_t bytes, const rn_bench_result *r) {
    const rn_bench_failure *f = &r->failure;
    char outcome[24];
    snprintf(outcome, sizeof outcome, "%s", rn_bench_outcome_name(r->outcome));
    for (char *c = outcome; *c; c++)
        if (*c == '_') *c = ' ';
    int used = snprintf(out, bytes, "%s", outcome);
    if (f->signal) used += snprintf(out + used, bytes - (size_t)used, " by signal %d", f->signal);
    if (f->stage[0] && f->stage[0] != '-')
        used += snprintf(out + used, bytes - (size_t)used, " while %s", f->stage);
    if (f->message[0]) snprintf(out + used, bytes - (size_t)used, ": %.300s", f->message);
    for (char *c = out; *c; c++)
        if (*c == '\n') *c = ' ';
    rn_str_clean(out);
}

// ---- variants -----------------------------------------------------------------------------------

enum {
    NAME,
    BATCH,
    BUDGET,
    P50,
    INTERVAL,
    P99,
    THROUGHPUT,
    SPEEDUP,
    SPEEDUPS, // its interval
    PLANNED,
    PEAK,
    RESIDENT,
    ON_DEVICE,
    LOAD,
    ERROR,
    TOP1,
    JOULES,
    DEVICE,
    CANONICAL, // the name, where another was asked for
    COLUMN_COUNT
};

static const rn_bench_column columns[COLUMN_COUNT] = {
    [NAME] = {"variant", true, 0},
    [BATCH] = {"batch", false, 1},
    [BUDGET] = {"budget", false, 1},
    [P50] = {"median", false, 1},
    [INTERVAL] = {"95 %", false, 4},
    [P99] = {"p99", false, 7},
    [THROUGHPUT] = {"items/s", false, 6},
    [SPEEDUP] = {"speed-up", false, 2},
    [SPEEDUPS] = {"95 %", false, 8},
    [PLANNED] = {"planned", false, 5},
    [PEAK] = {"measured", false, 3},
    [RESIDENT] = {"resident", false, 2},
    [ON_DEVICE] = {"on device", false, 2},
    [LOAD] = {"load", false, 8},
    [ERROR] = {"error", false, 2},
    [TOP1] = {"top-1", false, 9},
    [JOULES] = {"J", false, 9},
    [DEVICE] = {"device", true, 10},
    [CANONICAL] = {"is", true, 7},
};

// Half the width of the median's interval, as a share of it.
static double interval_of(const rn_bench_latency *t) {
    if (t->samples < RN_BENCH_FEW) return NAN;
    return t->p50_s > 0 ? (t->p50_high_s - t->p50_low_s) / 2 / t->p50_s : NAN;
}

static void fill_times(const rn_bench_result *r, rn_bench_row *row) {
    put_time(CELL(row, P50), r->latency.p50_s);
    put_time(CELL(row, P99), r->latency.p99_s);
    put_time(CELL(row, LOAD), r->load_s);
    if (!isnan(interval_of(&r->latency)))
        snprintf(CELL(row, INTERVAL), "±%.1f %%", 100 * interval_of(&r->latency));
    if (!isnan(r->throughput)) snprintf(CELL(row, THROUGHPUT), "%.4g", r->throughput);
    if (isnan(r->speedup)) return;
    snprintf(CELL(row, SPEEDUP), "%.2f", r->speedup);
    if (!isnan(r->speedup_low) && r->speedup_low != r->speedup_high)
        snprintf(CELL(row, SPEEDUPS), "%.2f-%.2f", r->speedup_low, r->speedup_high);
}

// In the place of figures: "batch 8, within 2.00 GiB: refused: ...".
static void put_note(const rn_bench_result *r, rn_bench_row *row) {
    const char *batch = row->cells[BATCH].text, *budget = row->cells[BUDGET].text;
    char *out = row->note;
    size_t room = sizeof row->note;
    int used = snprintf(out, room, "%s%s%s%s%s%s", *batch ? "batch " : "", batch,
                        *batch && *budget ? ", " : "", *budget ? "within " : "", budget,
                        *batch || *budget ? ": " : "");
    put_reason(out + used, room - (size_t)used, r);
}

static void fill_row(const rn_bench_result *r, bool batches, rn_bench_row *row) {
    put_name(CELL(row, NAME), r);
    if (batches && r->batch != RN_BENCH_UNKNOWN)
        snprintf(CELL(row, BATCH), "%llu", (unsigned long long)r->batch);
    put_size(CELL(row, BUDGET), r->budget_bytes);
    if (!rn_bench_has_figures(r)) {
        put_note(r, row);
        return;
    }
    if (strcmp(row->cells[NAME].text, r->name) != 0) {
        snprintf(CELL(row, CANONICAL), "%s", r->name);
        rn_str_clean(row->cells[CANONICAL].text);
    }
    fill_times(r, row);
    // Of the memory that it computes in.
    bool own = r->device_memory.planned_bytes != RN_BENCH_UNKNOWN && r->device_memory.planned_bytes;
    put_size(CELL(row, PLANNED), own ? r->device_memory.planned_bytes : r->host.planned_bytes);
    put_size(CELL(row, PEAK), own ? r->device_memory.measured_bytes : r->host.measured_bytes);
    put_size(CELL(row, RESIDENT), r->resident_peak_bytes);
    if (r->device_memory.peak_bytes != 0)
        put_size(CELL(row, ON_DEVICE), r->device_memory.peak_bytes);
    if (r->accuracy.reference[0] && strcmp(r->accuracy.reference, r->name) != 0) {
        if (!isnan(r->accuracy.max_rel)) snprintf(CELL(row, ERROR), "%.1e", r->accuracy.max_rel);
        if (!isnan(r->accuracy.top1)) snprintf(CELL(row, TOP1), "%.3g", r->accuracy.top1);
    }
    if (r->outcome == RN_BENCH_WRONG) {
        size_t used = strlen(row->cells[ERROR].text);
        snprintf(row->cells[ERROR].text + used, sizeof row->cells[ERROR].text - used, " wrong");
    }
    if (!isnan(r->joules)) snprintf(CELL(row, JOULES), "%.3g", r->joules);
    snprintf(CELL(row, DEVICE), "%s", r->device);
    rn_str_clean(row->cells[DEVICE].text);
}

static rn_status write_variants(const rn_bench_results *results, rn_bench_form form, uint32_t width,
                                rn_sink sink) {
    rn_bench_grid grid;
    bool batches = has_batches(results);
    RN_TRY(rn_bench_grid_create(columns, COLUMN_COUNT, results->count, &grid));
    for (size_t i = 0; i < results->count; i++)
        fill_row(&results->items[i], batches, &grid.rows[i]);
    rn_status s = rn_bench_grid_write(&grid, form, width, sink);
    rn_bench_grid_destroy(&grid);
    return s;
}

// ---- text models --------------------------------------------------------------------------------

static rn_status write_texts(const rn_bench_results *results, rn_bench_form form, uint32_t width,
                             rn_sink sink) {
    static const rn_bench_column text_columns[] = {
        {"variant", true, 0}, {"test", false, 0}, {"tokens/s", false, 0}, {"95 %", false, 1}};
    rn_bench_grid grid;
    size_t count = 0, at = 0;
    for (size_t i = 0; i < results->count; i++)
        count += results->items[i].text_count;
    if (count == 0) return RN_OK;
    RN_TRY(rn_sink_write(sink, "\n", 1));
    RN_TRY(rn_bench_grid_create(text_columns, 4, count, &grid));
    for (size_t i = 0; i < results->count; i++) {
        const rn_bench_result *r = &results->items[i];
        for (size_t t = 0; t < r->text_count; t++) {
            const rn_bench_text *text = &r->texts[t];
            rn_bench_row *row = &grid.rows[at++];
            put_name(CELL(row, 0), r);
            snprintf(CELL(row, 1), "%s", text->test);
            rn_str_clean(row->cells[1].text);
            snprintf(CELL(row, 2), "%.2f", text->tokens_per_s);
            if (!isnan(text->tokens_per_s_low))
                snprintf(CELL(row, 3), "%.2f-%.2f", text->tokens_per_s_low,
                         text->tokens_per_s_high);
        }
    }
    rn_status s = rn_bench_grid_write(&grid, form, width, sink);
    rn_bench_grid_destroy(&grid);
    return s;
}

// ---- changes ------------------------------------------------------------------------------------

static void fill_change(const rn_bench_change *c, rn_bench_row *row) {
    put_name(CELL(row, 0), c->after ? c->after : c->before);
    snprintf(CELL(row, 7), "%s", rn_bench_verdict(c));
    if (!c->before)
        snprintf(row->note, sizeof row->note, "was not measured before");
    else if (!c->after)
        snprintf(row->note, sizeof row->note, "is not measured any more");
    else if (!rn_bench_has_figures(c->after)) {
        snprintf(row->note, sizeof row->note, "%s",
                 rn_bench_has_figures(c->before) ? "broken: " : "");
        size_t used = strlen(row->note);
        put_reason(row->note + used, sizeof row->note - used, c->after);
    } else if (!rn_bench_has_figures(c->before))
        snprintf(row->note, sizeof row->note, "works now");
    if (row->note[0]) return;
    put_time(CELL(row, 1), c->before_s);
    put_time(CELL(row, 2), c->after_s);
    put_share(CELL(row, 3), c->slower);
    if (!isnan(c->slower))
        snprintf(CELL(row, 4), "%+.1f to %+.1f %%", 100 * c->slower_low, 100 * c->slower_high);
    put_size(CELL(row, 5), c->after_bytes);
    put_share(CELL(row, 6), c->larger);
}

rn_status rn_bench_changes_write(const rn_bench_changes *changes, rn_bench_form form,
                                 uint32_t width, rn_sink sink) {
    static const rn_bench_column change_columns[] = {
        {"variant", true, 0}, {"before", false, 3}, {"now", false, 2},    {"change", false, 0},
        {"99.9 %", false, 1}, {"peak", false, 4},   {"change", false, 1}, {"", true, 0}};
    rn_bench_grid grid;
    RN_TRY(rn_bench_grid_create(change_columns, 8, changes->count, &grid));
    bool of_floors = false, in_turns = false;
    const char *gap = form == RN_BENCH_MARKDOWN ? "\n" : "";
    for (size_t i = 0; i < changes->count; i++) {
        fill_change(&changes->items[i], &grid.rows[i]);
        of_floors |= changes->items[i].of_floors;
        in_turns |= changes->items[i].in_turns;
    }
    rn_status s = rn_bench_grid_write(&grid, form, width, sink);
    rn_bench_grid_destroy(&grid);
    if (s == RN_OK && of_floors)
        s = rn_sink_print(sink,
                          "%sbefore, now: the median of the processes' undisturbed times (1 run in "
                          "20 takes no longer)%s\n",
                          gap, in_turns ? ", measured in turns" : "");
    if (s == RN_OK && changes->failed_count)
        s = rn_sink_print(sink, "%s%zu of %zu beyond the limits\n", gap, changes->failed_count,
                          changes->count);
    return s;
}

// ---- failures -----------------------------------------------------------------------------------

// The last lines of a log.
static const char *last_lines(const char *log, int count) {
    const char *at = log + strlen(log);
    while (at > log && at[-1] == '\n')
        at--;
    for (; at > log; at--)
        if (at[-1] == '\n' && --count == 0) break;
    return at;
}

// What is needed to look into it: the whole message, a hint, its last lines, how to see it again.
static rn_status write_failure(const rn_bench_result *r, rn_sink sink) {
    const rn_bench_failure *f = &r->failure;
    rn_bench_cell name;
    char text[sizeof f->log];
    put_name(name.text, sizeof name.text, r);
    snprintf(text, sizeof text, "%s", f->message);
    rn_str_clean(text);
    RN_TRY(rn_sink_print(sink, "\n%s: %s%s%s\n", name.text, rn_bench_outcome_name(r->outcome),
                         text[0] ? ": " : "", text));
    snprintf(text, sizeof text, "%s", f->hint);
    rn_str_clean(text);
    if (text[0]) RN_TRY(rn_sink_print(sink, "  hint: %s\n", text));
    snprintf(text, sizeof text, "%s", f->log);
    rn_str_clean(text);
    for (const char *line = last_lines(text, 5); *line;) {
        size_t bytes = strcspn(line, "\n");
        RN_TRY(rn_sink_print(sink, "  | %.*s\n", (int)bytes, line));
        line += bytes + (line[bytes] == '\n');
    }
    snprintf(text, sizeof text, "%s", r->command);
    rn_str_clean(text);
    return text[0] ? rn_sink_print(sink, "  again: %s\n", text) : RN_OK;
}

static rn_status write_failures(const rn_bench_results *results, rn_sink sink) {
    for (size_t i = 0; i < results->count; i++) {
        const rn_bench_result *r = &results->items[i];
        if (r->outcome != RN_BENCH_SUCCESS && r->outcome != RN_BENCH_CANCELLED)
            RN_TRY(write_failure(r, sink));
    }
    return RN_OK;
}

// ---- the whole ----------------------------------------------------------------------------------

// "resnet18 (11.7 million parameters), batch 1, 2 threads; Intel(R) Xeon(R) ..."
static rn_status write_heading(const rn_bench_results *results, rn_sink sink) {
    char model[sizeof results->model], cpu[sizeof results->cpu];
    snprintf(model, sizeof model, "%s", results->model);
    snprintf(cpu, sizeof cpu, "%s", results->cpu);
    rn_str_clean(model);
    rn_str_clean(cpu);
    RN_TRY(rn_sink_print(sink, "%s", model));
    if (results->parameters != RN_BENCH_UNKNOWN && results->parameters)
        RN_TRY(rn_sink_print(sink, ", %s parameters", rn_count_format(results->parameters).text));
    if (results->count && results->items[0].batch != RN_BENCH_UNKNOWN && !has_batches(results))
        RN_TRY(rn_sink_print(sink, ", batch %llu", (unsigned long long)results->items[0].batch));
    if (results->threads != RN_BENCH_UNKNOWN && results->threads)
        RN_TRY(rn_sink_print(sink, ", %llu threads", (unsigned long long)results->threads));
    if (cpu[0]) RN_TRY(rn_sink_print(sink, ", %s", cpu));
    return rn_sink_write(sink, "\n\n", 2);
}

static rn_status write_ending(const rn_bench_results *results, rn_sink sink) {
    char baseline[sizeof results->baseline];
    snprintf(baseline, sizeof baseline, "%s", results->baseline);
    rn_str_clean(baseline);
    RN_TRY(rn_sink_write(sink, "\n", 1));
    if (baseline[0]) RN_TRY(rn_sink_print(sink, "speed-up: against %s; ", baseline));
    if (!isnan(results->empty_s))
        RN_TRY(rn_sink_print(sink, "the harness itself: %s a sample; ",
                             rn_time_format(results->empty_s).text));
    return rn_sink_print(sink, "all in %s%s\n", rn_time_format(results->elapsed_s).text,
                         results->cancelled ? "; cancelled: not all were measured" : "");
}

rn_status rn_bench_tables_write(const rn_bench_results *results, rn_bench_form form,
                                const rn_bench_report_options *options, rn_sink sink) {
    RN_TRY(write_heading(results, sink));
    RN_TRY(write_variants(results, form, options->width, sink));
    RN_TRY(write_texts(results, form, options->width, sink));
    if (form == RN_BENCH_TEXT) RN_TRY(write_failures(results, sink));
    RN_TRY(write_ending(results, sink));
    if (!options->changes) return RN_OK;
    RN_TRY(rn_sink_write(sink, "\n", 1));
    return rn_bench_changes_write(options->changes, form, options->width, sink);
}

// harness.c — one worker after the other; whatever becomes of one is a result.
//
// The baseline runs first, whatever its place: its outputs, of each batch, are what the others' are
// compared with.
#include "bench/bench_report.h"
#include "bench/machine.h"
#include "bench/measure.h"
#include "bench/result.h"
#include "bench/samples.h"

#include "base/clock.h"
#include "memory/account.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef rn_bench_run_state bench;

static rn_status prepare_item(const bench *b, size_t index, rn_bench_result *r) {
    const rn_bench_variant *v = &b->variants[index];
    const rn_bench_options *o = b->options;
    rn_bench_name name;
    if (!v->name) return rn_fail(RN_INVALID, "variant %zu has no name", index);
    for (int i = 0; i < 4; i++)
        if (v->reserved[i]) return rn_fail(RN_INVALID, "reserved fields of a variant are not 0");
    snprintf(r->asked, sizeof r->asked, "%s", v->name);
    snprintf(r->name, sizeof r->name, "%s", v->name);
    if (!v->command) {
        RN_TRY(rn_bench_name_parse(rn_str_from(v->name), &name));
        snprintf(r->name, sizeof r->name, "%s", name.name);
    }
    r->batch = v->batch ? v->batch : o->batch ? o->batch : 1;
    uint64_t budget = v->budget_bytes ? v->budget_bytes : o->budget_bytes;
    if (budget) r->budget_bytes = budget;
    if (o->limit_bytes) r->limit_bytes = o->limit_bytes;
    if (o->threads) r->threads = o->threads;
    return RN_OK;
}

// By the name as it was asked for, its canonical form, or its number from 1.
static rn_status find_baseline(bench *b) {
    const char *wanted = b->options->baseline;
    char *end = NULL;
    if (!wanted || !*wanted) return RN_OK;
    unsigned long number = strtoul(wanted, &end, 10);
    if (!*end && number >= 1 && number <= b->count) {
        b->baseline = number - 1;
        return RN_OK;
    }
    for (size_t i = 0; i < b->count; i++)
        if (strcmp(b->results->items[i].asked, wanted) == 0 ||
            strcmp(b->results->items[i].name, wanted) == 0) {
            b->baseline = i;
            return RN_OK;
        }
    return rn_fail(RN_NOT_FOUND, "the baseline '%s' is not among the variants", wanted);
}

static rn_status prepare(bench *b) {
    const rn_bench_options *o = b->options;
    rn_bench_results *all = b->results;
    for (int i = 0; i < 3; i++)
        if (o->reserved[i]) return rn_fail(RN_INVALID, "reserved fields of the options are not 0");
    if (o->processes > RN_BENCH_PROCESSES)
        return rn_fail(RN_INVALID, "%llu processes of a variant, at most %d can be",
                       (unsigned long long)o->processes, RN_BENCH_PROCESSES);
    for (size_t i = 0; i < b->count; i++)
        RN_TRY(prepare_item(b, i, &b->results->items[i]));
    RN_TRY(find_baseline(b));
    snprintf(all->model, sizeof all->model, "%s", o->model ? o->model : "");
    snprintf(all->tier, sizeof all->tier, "%s", o->tier ? o->tier : "");
    snprintf(all->sweep, sizeof all->sweep, "%s", o->sweep ? o->sweep : "");
    snprintf(all->baseline, sizeof all->baseline, "%s", all->items[b->baseline].name);
    if (o->parameters) all->parameters = o->parameters;
    rn_machine_describe(all);
    if (o->threads) all->threads = o->threads;
    return RN_OK;
}

// A variant that nobody got to.
static void leave_out(rn_bench_result *r) {
    r->outcome = RN_BENCH_CANCELLED;
    snprintf(r->failure.message, sizeof r->failure.message, "cancelled before it began");
}

// The baseline of the same batch, or where there is none, the baseline.
static const rn_bench_result *base_of(const bench *b, const rn_bench_result *r) {
    for (size_t i = 0; i < b->count; i++) {
        const rn_bench_result *base = &b->results->items[i];
        if (rn_bench_is_baseline(b, i) && base->batch == r->batch && base->latency.samples)
            return base;
    }
    return &b->results->items[b->baseline];
}

// Both medians' intervals: the ratio is within theirs at least as surely.
static void find_speedups(bench *b) {
    for (size_t i = 0; i < b->count; i++) {
        rn_bench_result *r = &b->results->items[i];
        const rn_bench_result *base = base_of(b, r);
        if (!r->latency.samples || !base->latency.samples) continue;
        double items = (double)r->batch / (double)base->batch; // of a run, against the baseline's
        r->speedup = base->latency.p50_s / r->latency.p50_s * items;
        r->speedup_low = base->latency.p50_low_s / r->latency.p50_high_s * items;
        r->speedup_high = base->latency.p50_high_s / r->latency.p50_low_s * items;
    }
}

// A process behind the first adds its median and its floor. One that fails where the first did not
// is what the variant comes to: it works sometimes.
static rn_status measure_again(bench *b, size_t index, rn_bench_result *again) {
    rn_bench_result *r = &b->results->items[index];
    if (!rn_bench_has_figures(r) || !r->latency.samples) return RN_OK;
    rn_bench_result_clear(again);
    RN_TRY(prepare_item(b, index, again));
    RN_TRY(rn_bench_measure(b, index, again));
    if (again->outcome == RN_BENCH_CANCELLED) return RN_OK;
    if (rn_bench_has_figures(again) && again->latency.samples) {
        r->latency.floors_s[r->latency.processes] = again->latency.floors_s[0];
        b->medians[index][r->latency.processes++] = log(again->latency.p50_s);
        return RN_OK;
    }
    r->outcome = again->outcome;
    r->failure = again->failure;
    return RN_OK;
}

static void join_processes(bench *b) {
    for (size_t i = 0; i < b->count; i++) {
        rn_bench_latency *t = &b->results->items[i].latency;
        uint64_t n = t->samples ? t->processes : 0;
        if (n < 2) continue;
        rn_interval median = rn_samples_of_processes(b->medians[i], n, &t->between);
        t->p50_s = exp((log(median.low) + log(median.high)) / 2);
        t->p50_low_s = median.low;
        t->p50_high_s = median.high;
    }
}

// One process of a variant.
static rn_status run_once(bench *b, size_t index, uint64_t round) {
    rn_bench_result *r = &b->results->items[index];
    if (round > 0) return rn_bench_is_cancelled(b) ? RN_OK : measure_again(b, index, b->again);
    if (rn_bench_is_cancelled(b)) {
        leave_out(r);
        return RN_OK;
    }
    RN_TRY(rn_bench_measure(b, index, r));
    if (!r->latency.samples) return RN_OK;
    b->medians[index][0] = log(r->latency.p50_s);
    r->latency.processes = 1;
    return RN_OK;
}

// The baseline's first, then the others, each in the order asked for. Two sides change places from
// round to round: before, now, now, before.
static rn_status run_round(bench *sides, size_t side_count, uint64_t round) {
    size_t count = sides->count;
    for (size_t i = 0; i < 2 * count; i++)
        for (size_t k = 0; k < side_count; k++) {
            bench *b = &sides[round % 2 ? side_count - 1 - k : k];
            if (rn_bench_is_baseline(b, i % count) == (i < count))
                RN_TRY(run_once(b, i % count, round));
        }
    return RN_OK;
}

static rn_status prepare_side(bench *b) {
    RN_TRY(rn_bench_results_create(b->count, &b->results));
    RN_TRY(prepare(b));
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof *b->again, (void **)&b->again));
    return rn_alloc_zeroed(RN_HOST_OTHER, b->count, sizeof *b->medians, (void **)&b->medians);
}

static void finish_side(bench *b) {
    join_processes(b);
    find_speedups(b);
    b->results->cancelled = rn_bench_is_cancelled(b);
    b->results->elapsed_s = (double)(rn_clock_ns() - b->pace->begin_ns) * 1e-9;
}

static void free_side(bench *b) {
    for (size_t i = 0; i < b->reference_count; i++)
        rn_reference_destroy(&b->references[i].outputs);
    rn_free(RN_HOST_OTHER, b->medians, b->count * sizeof *b->medians);
    rn_free(RN_HOST_OTHER, b->again, sizeof *b->again);
}

// In rounds, so that what changes while it all runs meets every variant of every side alike.
static rn_status run_sides(bench *sides, size_t side_count, uint64_t rounds) {
    rn_bench_pace pace = {.wanted = side_count * sides->count * rounds, .begin_ns = rn_clock_ns()};
    rn_status s = RN_OK;
    for (size_t k = 0; s == RN_OK && k < side_count; k++) {
        sides[k].pace = &pace;
        s = prepare_side(&sides[k]);
    }
    for (uint64_t round = 0; s == RN_OK && round < rounds; round++)
        s = run_round(sides, side_count, round);
    for (size_t k = 0; k < side_count; k++) {
        if (s == RN_OK) finish_side(&sides[k]);
        free_side(&sides[k]);
    }
    return s;
}

rn_status rn_bench_run(const rn_bench_variant *variants, size_t count,
                       const rn_bench_options *options, rn_bench_results **out) {
    bench b = {.variants = variants, .count = count, .options = options};
    *out = NULL;
    if (count == 0) return rn_fail(RN_INVALID, "there is no variant to measure");
    rn_status s = run_sides(&b, 1, options->processes ? options->processes : 1);
    if (s == RN_OK)
        *out = b.results;
    else
        rn_bench_results_destroy(b.results);
    return s;
}

rn_status rn_bench_run_in_turns(const rn_bench_variant *variants, size_t count,
                                const rn_bench_options *before, const rn_bench_options *options,
                                rn_bench_results **out_before, rn_bench_results **out) {
    rn_bench_options other = *options;
    other.model = before->model;
    other.program = before->program;
    other.arguments = before->arguments;
    other.parameters = before->parameters;
    bench sides[2] = {{.variants = variants, .count = count, .options = &other, .is_before = true},
                      {.variants = variants, .count = count, .options = options}};
    *out_before = *out = NULL;
    if (count == 0) return rn_fail(RN_INVALID, "there is no variant to measure");
    for (size_t i = 0; i < count; i++)
        if (variants[i].command)
            return rn_fail(RN_INVALID, "%s has a command of its own, the same on both sides",
                           variants[i].name);
    uint64_t rounds = options->processes < RN_BENCH_TURNS ? RN_BENCH_TURNS : options->processes;
    rn_status s = run_sides(sides, 2, rounds);
    for (size_t k = 0; k < 2; k++)
        if (s != RN_OK)
            rn_bench_results_destroy(sides[k].results);
        else
            sides[k].results->in_turns = true;
    if (s != RN_OK) return s;
    *out_before = sides[0].results;
    *out = sides[1].results;
    return RN_OK;
}

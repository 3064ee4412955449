// result.c — the figures of a result as tables; results of which nothing is known; every figure as
// a text.
#include "bench/result.h"

#include "bench/figures.h"

#include "memory/account.h"

#include <math.h>
#include <stdio.h>

#define AT(object, key, kind, member)                                                              \
    {                                                                                              \
        object, key, kind, offsetof(rn_bench_result, member),                                      \
            sizeof(((rn_bench_result *)NULL)->member)                                              \
    }

// Figures of one object stand together.
static const rn_figure result_rows[] = {
    AT(NULL, "name", RN_FIGURE_TEXT, name),
    AT(NULL, "asked", RN_FIGURE_TEXT, asked),
    AT(NULL, "outcome", RN_FIGURE_OUTCOME, outcome),
    AT(NULL, "engine", RN_FIGURE_TEXT, engine),
    AT(NULL, "device", RN_FIGURE_TEXT, device),
    AT(NULL, "weights", RN_FIGURE_TEXT, weights),
    AT(NULL, "activations", RN_FIGURE_TEXT, activations),
    AT(NULL, "mode", RN_FIGURE_TEXT, mode),
    AT(NULL, "data_dtype", RN_FIGURE_TEXT, data_dtype),
    AT(NULL, "batch_size", RN_FIGURE_COUNT, batch),
    AT(NULL, "threads", RN_FIGURE_COUNT, threads),
    AT(NULL, "budget_bytes", RN_FIGURE_COUNT, budget_bytes),
    AT(NULL, "throughput", RN_FIGURE_REAL, throughput),
    AT(NULL, "load_s", RN_FIGURE_REAL, load_s),
    AT(NULL, "compile_s", RN_FIGURE_REAL, compile_s),
    AT(NULL, "first_s", RN_FIGURE_REAL, first_s),
    AT(NULL, "elapsed_s", RN_FIGURE_REAL, elapsed_s),
    AT(NULL, "resident_peak_bytes", RN_FIGURE_COUNT, resident_peak_bytes),
    AT(NULL, "limit_bytes", RN_FIGURE_COUNT, limit_bytes),
    AT(NULL, "left_bytes", RN_FIGURE_COUNT, left_bytes),
    AT(NULL, "read_bytes", RN_FIGURE_COUNT, read_bytes),
    AT(NULL, "joules", RN_FIGURE_REAL, joules),
    AT(NULL, "joules_source", RN_FIGURE_TEXT, joules_source),
    AT(NULL, "command", RN_FIGURE_TEXT, command),
    AT("latency", "samples", RN_FIGURE_COUNT, latency.samples),
    AT("latency", "warm_up", RN_FIGURE_COUNT, latency.warm_up),
    AT("latency", "steady", RN_FIGURE_FLAG, latency.steady),
    AT("latency", "min_s", RN_FIGURE_REAL, latency.min_s),
    AT("latency", "p50_s", RN_FIGURE_REAL, latency.p50_s),
    AT("latency", "p50_low_s", RN_FIGURE_REAL, latency.p50_low_s),
    AT("latency", "p50_high_s", RN_FIGURE_REAL, latency.p50_high_s),
    AT("latency", "p90_s", RN_FIGURE_REAL, latency.p90_s),
    AT("latency", "p99_s", RN_FIGURE_REAL, latency.p99_s),
    AT("latency", "max_s", RN_FIGURE_REAL, latency.max_s),
    AT("latency", "mean_s", RN_FIGURE_REAL, latency.mean_s),
    AT("latency", "total_s", RN_FIGURE_REAL, latency.total_s),
    AT("latency", "loop_s", RN_FIGURE_REAL, latency.loop_s),
    AT("latency", "processes", RN_FIGURE_COUNT, latency.processes),
    AT("latency", "between", RN_FIGURE_REAL, latency.between),
    AT("latency", "floors_s", RN_FIGURE_REALS, latency.floors_s),
    AT("accuracy", "reference", RN_FIGURE_TEXT, accuracy.reference),
    AT("accuracy", "values", RN_FIGURE_COUNT, accuracy.values),
    AT("accuracy", "max_abs", RN_FIGURE_REAL, accuracy.max_abs),
    AT("accuracy", "max_rel", RN_FIGURE_REAL, accuracy.max_rel),
    AT("accuracy", "cosine", RN_FIGURE_REAL, accuracy.cosine),
    AT("accuracy", "top1", RN_FIGURE_REAL, accuracy.top1),
    AT("speedup", "ratio", RN_FIGURE_REAL, speedup),
    AT("speedup", "low", RN_FIGURE_REAL, speedup_low),
    AT("speedup", "high", RN_FIGURE_REAL, speedup_high),
    AT("failure", "signal", RN_FIGURE_SIGNED, failure.signal),
    AT("failure", "exit_code", RN_FIGURE_SIGNED, failure.exit_code),
    AT("failure", "status", RN_FIGURE_TEXT, failure.status),
    AT("failure", "stage", RN_FIGURE_TEXT, failure.stage),
    AT("failure", "message", RN_FIGURE_TEXT, failure.message),
    AT("failure", "hint", RN_FIGURE_TEXT, failure.hint),
    AT("failure", "log", RN_FIGURE_TEXT, failure.log),
    AT("host_memory", "planned_bytes", RN_FIGURE_COUNT, host.planned_bytes),
    AT("host_memory", "measured_bytes", RN_FIGURE_COUNT, host.measured_bytes),
    AT("host_memory", "peak_bytes", RN_FIGURE_COUNT, host.peak_bytes),
    AT("device_memory", "planned_bytes", RN_FIGURE_COUNT, device_memory.planned_bytes),
    AT("device_memory", "measured_bytes", RN_FIGURE_COUNT, device_memory.measured_bytes),
    AT("device_memory", "peak_bytes", RN_FIGURE_COUNT, device_memory.peak_bytes),
};

#define RUN(key, kind, member)                                                                     \
    {                                                                                              \
        NULL, key, kind, offsetof(rn_bench_results, member),                                       \
            sizeof(((rn_bench_results *)NULL)->member)                                             \
    }

static const rn_figure run_rows[] = {
    RUN("model", RN_FIGURE_TEXT, model),
    RUN("parameters", RN_FIGURE_COUNT, parameters),
    RUN("baseline", RN_FIGURE_TEXT, baseline),
    RUN("sweep", RN_FIGURE_TEXT, sweep),
    RUN("tier", RN_FIGURE_TEXT, tier),
    RUN("version", RN_FIGURE_TEXT, version),
    RUN("date", RN_FIGURE_TEXT, date),
    RUN("machine", RN_FIGURE_TEXT, machine),
    RUN("cpu", RN_FIGURE_TEXT, cpu),
    RUN("system", RN_FIGURE_TEXT, system),
    RUN("threads", RN_FIGURE_COUNT, threads),
    RUN("machine_bytes", RN_FIGURE_COUNT, machine_bytes),
    RUN("empty_s", RN_FIGURE_REAL, empty_s),
    RUN("elapsed_s", RN_FIGURE_REAL, elapsed_s),
    RUN("cancelled", RN_FIGURE_FLAG, cancelled),
};

#define TEXT_LINE(key, kind, member)                                                               \
    { NULL, key, kind, offsetof(rn_bench_text, member), sizeof(((rn_bench_text *)NULL)->member) }

static const rn_figure text_rows[] = {
    TEXT_LINE("test", RN_FIGURE_TEXT, test),
    TEXT_LINE("tokens", RN_FIGURE_COUNT, tokens),
    TEXT_LINE("depth", RN_FIGURE_COUNT, depth),
    TEXT_LINE("tokens_per_s", RN_FIGURE_REAL, tokens_per_s),
    TEXT_LINE("tokens_per_s_low", RN_FIGURE_REAL, tokens_per_s_low),
    TEXT_LINE("tokens_per_s_high", RN_FIGURE_REAL, tokens_per_s_high),
};

#define TABLE(rows)                                                                                \
    { rows, sizeof(rows) / sizeof *(rows) }
const rn_figures rn_figures_of_result = TABLE(result_rows);
const rn_figures rn_figures_of_run = TABLE(run_rows);
const rn_figures rn_figures_of_text = TABLE(text_rows);

static const char *const outcome_names[RN_BENCH_OUTCOME_COUNT] = {
    "success", "wrong",     "refused",   "failed",   "crashed",
    "killed",  "no_memory", "timed_out", "cancelled"};

const char *rn_bench_outcome_name(rn_bench_outcome outcome) {
    return (unsigned)outcome < RN_BENCH_OUTCOME_COUNT ? outcome_names[outcome] : "unknown";
}
// ---- unknown ------------------------------------------------------------------------------------

void rn_figures_clear(const rn_figures *figures, void *base) {
    for (size_t i = 0; i < figures->count; i++) {
        const rn_figure *f = &figures->rows[i];
        void *at = (char *)base + f->offset;
        if (f->kind == RN_FIGURE_COUNT) *(uint64_t *)at = RN_BENCH_UNKNOWN;
        bool is_real = f->kind == RN_FIGURE_REAL || f->kind == RN_FIGURE_REALS;
        for (size_t k = 0; is_real && k < f->bytes / sizeof(double); k++)
            ((double *)at)[k] = NAN;
    }
}

void rn_bench_result_clear(rn_bench_result *r) {
    *r = (rn_bench_result){0};
    rn_figures_clear(&rn_figures_of_result, r);
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        r->host.planned[p] = r->host.measured[p] = r->device_memory.planned[p] =
            r->device_memory.measured[p] = RN_BENCH_UNKNOWN;
    r->failure.exit_code = -1;
    r->latency.samples = r->latency.warm_up = 0;
}

rn_status rn_bench_results_create(size_t count, rn_bench_results **out) {
    rn_bench_results *results;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof *results, (void **)&results));
    rn_status s =
        rn_alloc_zeroed(RN_HOST_OTHER, count, sizeof *results->items, (void **)&results->items);
    if (s != RN_OK) {
        rn_free(RN_HOST_OTHER, results, sizeof *results);
        return s;
    }
    rn_figures_clear(&rn_figures_of_run, results);
    results->count = count;
    for (size_t i = 0; i < count; i++)
        rn_bench_result_clear(&results->items[i]);
    *out = results;
    return RN_OK;
}

void rn_bench_results_destroy(rn_bench_results *results) {
    if (!results) return;
    rn_free(RN_HOST_OTHER, results->items, results->count * sizeof *results->items);
    rn_free(RN_HOST_OTHER, results, sizeof *results);
}
// ---- visiting -----------------------------------------------------------------------------------

static const char *print_figure(const rn_figure *f, const void *base, char *out, size_t bytes) {
    const void *at = (const char *)base + f->offset;
    switch (f->kind) {
    case RN_FIGURE_TEXT:
        return *(const char *)at ? at : NULL;
    case RN_FIGURE_OUTCOME:
        return rn_bench_outcome_name(*(const rn_bench_outcome *)at);
    case RN_FIGURE_FLAG:
        return *(const bool *)at ? "true" : "false";
    case RN_FIGURE_COUNT:
        if (*(const uint64_t *)at == RN_BENCH_UNKNOWN) return NULL;
        snprintf(out, bytes, "%llu", (unsigned long long)*(const uint64_t *)at);
        return out;
    case RN_FIGURE_REAL:
        if (isnan(*(const double *)at)) return NULL;
        snprintf(out, bytes, "%.9g", *(const double *)at);
        for (char *c = out; *c; c++)
            if (*c == ',') *c = '.'; // in locales that a program around us may have set
        return out;
    case RN_FIGURE_SIGNED:
    case RN_FIGURE_REALS:
        break;
    }
    snprintf(out, bytes, "%d", *(const int32_t *)at);
    return out;
}

rn_status rn_bench_result_visit(const rn_bench_result *r, void *self, rn_bench_visit *visit) {
    for (size_t i = 0; i < rn_figures_of_result.count; i++) {
        char number[32];
        const rn_figure *f = &rn_figures_of_result.rows[i];
        if (f->kind == RN_FIGURE_REALS) continue;
        RN_TRY(visit(self, f->object, f->key, print_figure(f, r, number, sizeof number)));
    }
    return RN_OK;
}

// work.c — ration's own worker: the variant's device and plan, and the figures of both.
#include "bench/work.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "bench/graph_model.h"
#include "device/device.h"
#include "memory/account.h"

#include <ration/calibrate.h>
#include <ration/session.h>

#include <stdio.h>
#include <stdlib.h>

bool rn_work_is_cancelled(const rn_work *w) {
    return w->options->cancel && *w->options->cancel;
}

// "O3" is the engine's own option; instruction levels were set before anything ran.
rn_status rn_work_open_device(rn_work *w) {
    char target[96];
    const char *level = strchr(w->variant.mode, 'O');
    bool optioned =
        level && (strcmp(w->variant.engine, "ort") == 0 || strcmp(w->variant.engine, "xla") == 0);
    snprintf(target, sizeof target, optioned ? "%s?opt=%c" : "%s", w->variant.target,
             optioned ? level[1] : 0);
    RN_TRY(rn_device_open(target, w->options->threads, &w->device));
    (void)rn_rates_use(w->options->threads);
    (void)rn_rates_apply(w->device);
    snprintf(w->figures.device, sizeof w->figures.device, "%s", rn_device_target(w->device));
    return RN_OK;
}

rn_status rn_work_plan_options(rn_work *w, uint64_t beside, rn_plan_options *out) {
    rn_device_budget budget = {.bytes = 0};
    uint64_t bytes = w->options->budget_bytes;
    bool own = rn_device_has_own_memory(w->device);
    *out = (rn_plan_options){.exact = true};
    RN_TRY(rn_process_charge_unaccounted());
    if (own) budget.bytes = bytes;
    if (bytes && !own) {
        out->budget_bytes = bytes;
        out->with_reserve = true;
        out->reserved_bytes = rn_ledger_total(RN_DEVICE_HOST).now_bytes + beside;
    }
    if (strstr(w->variant.mode, "stream")) out->resident_blocks = RN_NO_BLOCKS;
    return own ? rn_plan_options_for(w->device, &budget, out) : RN_OK;
}

static rn_bench_memory *memory_of_plan(rn_work *w) {
    return rn_device_has_own_memory(w->device) ? &w->figures.device_memory : &w->figures.host;
}

void rn_work_note_plan(rn_work *w, const rn_plan_summary *summary) {
    rn_bench_memory *memory = memory_of_plan(w);
    memory->planned_bytes = summary->planned_bytes;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        if (summary->purpose_bytes[p]) memory->planned[p] = summary->purpose_bytes[p];
    if (memory != &w->figures.host) w->figures.host.planned_bytes = summary->host_bytes;
}

// Peaks of what the plan decides, by purpose; and of all that is on the ledger. What of the arena
// has no purpose of its own is `other`, which structures and converted weights are, too: of that
// the plan's part counts.
static void note_memory(rn_device_id device, rn_bench_memory *memory) {
    uint64_t sum = 0;
    bool any = false;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
        uint64_t peak = rn_ledger_read(device, (rn_purpose)p).peak_bytes;
        if (peak) memory->measured[p] = peak;
        if (memory->planned[p] == RN_BENCH_UNKNOWN) continue;
        sum += p == RN_PURPOSE_OTHER && peak > memory->planned[p] ? memory->planned[p] : peak;
        any = true;
    }
    if (any) memory->measured_bytes = sum;
    memory->peak_bytes = rn_ledger_total(device).peak_bytes;
}

void rn_work_note_ledger(rn_work *w) {
    note_memory(RN_DEVICE_HOST, &w->figures.host);
    if (w->device && rn_device_has_own_memory(w->device))
        note_memory(rn_device_number(w->device), &w->figures.device_memory);
}

void rn_work_note_energy(rn_work *w, uint64_t runs) {
    rn_energy end = rn_energy_read(w->device && rn_device_has_own_memory(w->device));
    double joules = rn_energy_between(&w->energy, &end, w->figures.joules_source,
                                      sizeof w->figures.joules_source);
    if (runs) w->figures.joules = joules / (double)runs;
}

// ---- a run of nothing ---------------------------------------------------------------------------

static void work_nothing(rn_work *w) {
    uint64_t begin;
    snprintf(w->figures.device, sizeof w->figures.device, "none");
    rn_bench_worker_stage(w->worker, "warm_up");
    do
        begin = rn_clock_ns();
    while (rn_bench_worker_sample(w->worker, (double)(rn_clock_ns() - begin)) &&
           !rn_work_is_cancelled(w));
}

// ---- all ----------------------------------------------------------------------------------------

static uint64_t held_now(void) {
    return rn_ledger_total(RN_DEVICE_HOST).now_bytes -
           rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED).now_bytes;
}

static rn_status send_figures(rn_work *w) {
    rn_buffer text;
    rn_json json;
    rn_buffer_init(&text, RN_HOST_OTHER, 1 << 20);
    rn_json_begin(&json, rn_buffer_sink(&text), false);
    rn_bench_result_write(&w->figures, &json, NULL);
    rn_status s = rn_json_finish(&json);
    if (s == RN_OK) s = rn_buffer_append(&text, "", 1);
    if (s == RN_OK) s = rn_bench_worker_figures(w->worker, text.data);
    rn_buffer_free(&text);
    return s;
}

static rn_status prepare(rn_work *w) {
    rn_bench_result *f = &w->figures;
    rn_bench_result_clear(f);
    RN_TRY(rn_bench_name_parse(rn_str_from(w->options->variant), &w->variant));
    snprintf(f->name, sizeof f->name, "%s", w->variant.name);
    snprintf(f->engine, sizeof f->engine, "%s", w->variant.engine);
    snprintf(f->mode, sizeof f->mode, "%s", w->variant.mode);
    snprintf(f->activations, sizeof f->activations, "%s",
             w->variant.activations[0] ? w->variant.activations : "f32");
    if (strcmp(w->variant.engine, "torch") == 0)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "PyTorch's variants need Python"),
                       "python -m ration.bench measures them beside these");
    // Read when the first kernel is chosen: nothing has computed yet in this process.
    static const char *const levels[] = {"avx512", "avx2", "portable"};
    for (size_t i = 0; i < 3; i++)
        if (strcmp(w->variant.mode, levels[i]) == 0) setenv("RATION_CPU", levels[i], 1);
    return RN_OK;
}

static rn_status work(rn_work *w) {
    RN_TRY(prepare(w));
    w->begin_bytes = held_now();
    rn_ledger_reset_peaks();
    rn_status s = RN_OK;
    if (strcmp(w->variant.engine, "empty") == 0)
        work_nothing(w);
    else if (rn_graph_model_is(w->options->model))
        s = rn_work_graph(w);
    else
        s = rn_work_text(w);
    rn_device_destroy(w->device);
    w->device = NULL;
    if (s == RN_OK) w->figures.left_bytes = held_now() - w->begin_bytes;
    return s;
}

rn_status rn_bench_worker_run(rn_bench_worker *worker, const rn_bench_work *options) {
    rn_work *w;
    RN_TRY(rn_alloc_zeroed(&rn_system_allocator, 1, sizeof *w, (void **)&w));
    w->worker = worker;
    w->options = options;
    if (work(w) != RN_OK) rn_bench_worker_fail(worker, rn_last_error());
    rn_status s = send_figures(w);
    rn_free(&rn_system_allocator, w, sizeof *w);
    return s;
}

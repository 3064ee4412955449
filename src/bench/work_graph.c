// work_graph.c — runs of a model of tensors: by a session of a plan, or node by node (eager and
// reference).
#include "bench/graph_model.h"
#include "bench/work.h"

#include "base/clock.h"
#include "device/device.h"
#include "device/reference.h"
#include "memory/account.h"
#include "runtime/eager.h"
#include "runtime/session.h"

#include <stdio.h>

enum { MOST_INPUTS = 64 };

typedef struct graph_work {
    rn_work *w;
    rn_graph_model model;
    rn_plan *plan;
    rn_session *session; // or
    rn_eager *eager;
    struct {
        rn_value value;
        void *data;
        uint64_t bytes;
    } inputs[MOST_INPUTS];
    size_t input_count;
    uint64_t runs;
} graph_work;

// ---- opening ------------------------------------------------------------------------------------

static rn_status make_inputs(graph_work *g) {
    const rn_bench_work *o = g->w->options;
    for (rn_value v = 1; v <= rn_graph_value_count(g->model.graph); v++) {
        const rn_value_info *info = rn_graph_value(g->model.graph, v);
        if (info->role != RN_ROLE_INPUT) continue;
        if (g->input_count == MOST_INPUTS)
            return rn_fail(RN_UNSUPPORTED, "a model with more than %d inputs", MOST_INPUTS);
        uint64_t bytes = rn_graph_model_bytes(&g->model, info);
        void *data = NULL;
        RN_TRY(rn_alloc(RN_HOST_OTHER, bytes, &data));
        g->inputs[g->input_count].value = v;
        g->inputs[g->input_count].data = data;
        g->inputs[g->input_count++].bytes = bytes;
        RN_TRY(rn_graph_model_fill_input(&g->model, info, o->inputs, o->input_count, data, bytes));
        if (g->input_count == 1)
            snprintf(g->w->figures.data_dtype, sizeof g->w->figures.data_dtype, "%s",
                     rn_dtype_get(info->dtype)->name);
    }
    return RN_OK;
}

// "least": the smallest budget that the first plan names.
static rn_status make_plan(graph_work *g) {
    rn_plan_options options;
    const rn_device_caps *caps = rn_device_get_caps(g->w->device);
    RN_TRY(rn_work_plan_options(g->w, g->model.made_bytes, &options));
    RN_TRY(rn_plan_make(&g->model.recipe, caps, &options, &g->plan));
    if (!strstr(g->w->variant.mode, "least")) return RN_OK;
    options.budget_bytes = rn_plan_get_summary(g->plan)->smallest_bytes;
    options.reserved_bytes = 0;
    options.with_reserve = false;
    rn_plan_destroy(g->plan);
    g->plan = NULL;
    return rn_plan_make(&g->model.recipe, caps, &options, &g->plan);
}

static rn_status open_session(graph_work *g) {
    rn_work *w = g->w;
    rn_weight_source source = rn_graph_model_source(&g->model);
    rn_session_options options = {.device = w->device, .cancel = w->options->cancel};
    RN_TRY(make_plan(g));
    const rn_plan_summary *summary = rn_plan_get_summary(g->plan);
    rn_work_note_plan(w, summary);
    bool compiles = w->device->compile != NULL;
    rn_bench_worker_stage(w->worker, compiles ? "compiling" : "loading");
    uint64_t begin = rn_clock_ns();
    RN_TRY(rn_session_create(g->plan, &source, &options, &g->session));
    if (compiles) w->figures.compile_s = (double)(rn_clock_ns() - begin) * 1e-9;
    if (strstr(w->variant.mode, "nograph")) g->session->cannot_capture = true;
    if (summary->streamed_bytes == 0) rn_graph_model_release_made(&g->model);
    return RN_OK;
}

// Weights as the graph has them, one at a time.
static rn_status open_eager(graph_work *g) {
    bool reference = strcmp(g->w->variant.engine, "reference") == 0;
    const rn_graph *graph = g->model.graph;
    rn_device *device = g->w->device;
    RN_TRY(rn_eager_create(graph, reference ? rn_reference_kernels : device->caps.kernels,
                           device->workers, g->model.rows, &g->eager));
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->role != RN_ROLE_WEIGHT) continue;
        uint64_t bytes = rn_graph_model_bytes(&g->model, info);
        const void *data = rn_graph_model_weight(&g->model, info, bytes);
        if (!data) return rn_last_error()->status;
        RN_TRY(rn_eager_set(g->eager, v, data, bytes));
        rn_graph_model_release_made(&g->model);
    }
    return RN_OK;
}

// A GPU computes in the 16 bits of its weights, unless something else is asked for.
static void choose_activations(rn_bench_name *variant) {
    bool half = strcmp(variant->weights, "bf16") == 0 || strcmp(variant->weights, "f16") == 0;
    if (strncmp(variant->target, "cuda", 4) == 0 && half && !variant->activations[0])
        memcpy(variant->activations, variant->weights, sizeof variant->activations);
}

static rn_status open_work(graph_work *g) {
    rn_work *w = g->w;
    const rn_bench_work *o = w->options;
    rn_bench_worker_stage(w->worker, "opening");
    RN_TRY(rn_work_open_device(w));
    choose_activations(&w->variant);
    if (w->variant.activations[0])
        snprintf(w->figures.activations, sizeof w->figures.activations, "%s",
                 w->variant.activations);
    RN_TRY(
        rn_graph_model_open(o->model, o->weights, &w->variant, o->batch ? o->batch : 1, &g->model));
    snprintf(w->figures.weights, sizeof w->figures.weights, "%s", g->model.weights_name);
    RN_TRY(make_inputs(g));
    rn_bench_worker_stage(w->worker, "loading");
    bool eager =
        strcmp(w->variant.engine, "eager") == 0 || strcmp(w->variant.engine, "reference") == 0;
    return eager ? open_eager(g) : open_session(g);
}

static void close_work(graph_work *g) {
    rn_session_destroy(g->session);
    rn_eager_destroy(g->eager);
    rn_plan_destroy(g->plan);
    for (size_t i = 0; i < g->input_count; i++)
        rn_free(RN_HOST_OTHER, g->inputs[i].data, g->inputs[i].bytes);
    rn_graph_model_close(&g->model);
}

// ---- running ------------------------------------------------------------------------------------

// Inputs from the host, outputs to the host.
static rn_status run_once(graph_work *g, double *out_ns) {
    uint64_t begin = rn_clock_ns();
    for (size_t i = 0; i < g->input_count; i++) {
        const rn_value_info *info = rn_graph_value(g->model.graph, g->inputs[i].value);
        if (g->eager)
            RN_TRY(
                rn_eager_set(g->eager, g->inputs[i].value, g->inputs[i].data, g->inputs[i].bytes));
        else
            RN_TRY(rn_session_set(g->session, info->name, g->inputs[i].data, g->inputs[i].bytes));
    }
    RN_TRY(g->eager ? rn_eager_run(g->eager) : rn_session_run(g->session, g->model.rows));
    *out_ns = (double)(rn_clock_ns() - begin);
    g->runs++;
    return RN_OK;
}

static rn_status measure(graph_work *g) {
    rn_work *w = g->w;
    double ns;
    RN_TRY(run_once(g, &ns));
    w->figures.first_s = ns * 1e-9;
    rn_bench_worker_stage(w->worker, "warm_up");
    w->energy = rn_energy_read(rn_device_has_own_memory(w->device));
    uint64_t before = g->runs;
    do {
        if (rn_work_is_cancelled(w)) return rn_fail(RN_CANCELLED, "interrupted");
        RN_TRY(run_once(g, &ns));
    } while (rn_bench_worker_sample(w->worker, ns));
    rn_work_note_energy(w, g->runs - before);
    return RN_OK;
}

static rn_status send_output(graph_work *g, rn_value v, const rn_value_info *info) {
    uint64_t bytes = rn_graph_model_bytes(&g->model, info), element = 1;
    void *data = NULL;
    float piece[4096];
    if (!rn_dtype_bytes(info->dtype, 1, &element)) return RN_OK;
    RN_TRY(rn_alloc(RN_HOST_OTHER, bytes, &data));
    rn_status s = g->eager ? rn_eager_get(g->eager, v, data, bytes)
                           : rn_session_get(g->session, info->name, data, bytes);
    for (uint64_t at = 0, count = bytes / element; s == RN_OK && at < count; at += 4096) {
        uint64_t some = count - at < 4096 ? count - at : 4096;
        s = rn_dtype_to_f32(info->dtype, (char *)data + at * element, piece, some);
        if (s == RN_OK) s = rn_bench_worker_output(g->w->worker, piece, some);
    }
    rn_free(RN_HOST_OTHER, data, bytes);
    return s;
}

static rn_status send_outputs(graph_work *g) {
    for (rn_value v = 1; v <= rn_graph_value_count(g->model.graph); v++) {
        const rn_value_info *info = rn_graph_value(g->model.graph, v);
        if (info->role == RN_ROLE_OUTPUT) RN_TRY(send_output(g, v, info));
    }
    return RN_OK;
}

rn_status rn_work_graph(rn_work *w) {
    graph_work g = {.w = w};
    uint64_t begin = rn_clock_ns();
    rn_status s = open_work(&g);
    w->figures.load_s = (double)(rn_clock_ns() - begin) * 1e-9;
    if (s == RN_OK) s = measure(&g);
    if (s == RN_OK) rn_bench_worker_stage(w->worker, "outputs");
    if (s == RN_OK) s = send_outputs(&g);
    if (g.session) w->figures.read_bytes = rn_session_get_facts(g.session).read_bytes;
    rn_work_note_ledger(w);
    rn_error_info error = *rn_last_error();
    if (s == RN_OK) rn_bench_worker_stage(w->worker, "clean_up"); // else where it failed is told
    close_work(&g);
    return s == RN_OK ? RN_OK : rn_error_restore(&error);
}

// result_write.c — results as JSON.
//
//     {"format": "ration-bench-1", "model": ..., "results": [
//         {"name": "cpu+int8", "status": "success", ..., "latency": {"p50_s": ...}, ...}]}
//
// alma's keys stand among ours: device, batch_size, throughput, data_dtype and status in any
// version, total_elapsed_time and total_samples, total_inf_time (until its 0.3.10), and of a
// failure error and traceback. They are derived from ours, so the reader passes them over.
#include "bench/figures.h"
#include "bench/result.h"

#include <math.h>
#include <stdio.h>

static void write_count(rn_json *json, const char *key, uint64_t value) {
    if (value == RN_BENCH_UNKNOWN)
        rn_json_null(json, key);
    else
        rn_json_u64(json, key, value);
}

// Until the first that is not known.
static void write_reals(const rn_figure *f, const double *at, rn_json *json) {
    rn_json_array(json, f->key);
    for (size_t k = 0; k < f->bytes / sizeof *at && !isnan(at[k]); k++)
        rn_json_f64(json, NULL, at[k]);
    rn_json_end(json);
}

static void write_figure(const rn_figure *f, const void *base, rn_json *json) {
    const void *at = (const char *)base + f->offset;
    switch (f->kind) {
    case RN_FIGURE_TEXT:
        if (*(const char *)at)
            rn_json_string(json, f->key, at);
        else
            rn_json_null(json, f->key);
        break;
    case RN_FIGURE_COUNT:
        write_count(json, f->key, *(const uint64_t *)at);
        break;
    case RN_FIGURE_SIGNED:
        rn_json_i64(json, f->key, *(const int32_t *)at);
        break;
    case RN_FIGURE_REAL:
        rn_json_f64(json, f->key, *(const double *)at);
        break;
    case RN_FIGURE_REALS:
        write_reals(f, at, json);
        break;
    case RN_FIGURE_FLAG:
        rn_json_bool(json, f->key, *(const bool *)at);
        break;
    case RN_FIGURE_OUTCOME:
        rn_json_string(json, f->key, rn_bench_outcome_name(*(const rn_bench_outcome *)at));
        break;
    }
}

static void write_purposes(const rn_bench_memory *memory, rn_json *json) {
    rn_json_object(json, "purposes");
    for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
        if (memory->planned[p] == RN_BENCH_UNKNOWN && memory->measured[p] == RN_BENCH_UNKNOWN)
            continue;
        rn_json_object(json, rn_purpose_name((rn_purpose)p));
        write_count(json, "planned_bytes", memory->planned[p]);
        write_count(json, "measured_bytes", memory->measured[p]);
        rn_json_end(json);
    }
    rn_json_end(json);
}

static bool has_failed(const rn_bench_result *r) {
    return r->outcome != RN_BENCH_SUCCESS && r->outcome != RN_BENCH_WRONG;
}

static void write_alma(const rn_bench_result *r, rn_json *json) {
    rn_json_string(json, "status", has_failed(r) ? "error" : "success");
    if (has_failed(r)) {
        rn_json_string(json, "error", r->failure.message);
        rn_json_string(json, "traceback", r->failure.log);
        return;
    }
    rn_json_f64(json, "total_elapsed_time", r->latency.loop_s);
    rn_json_f64(json, "total_inf_time", r->latency.total_s);
    write_count(json, "total_samples",
                r->batch == RN_BENCH_UNKNOWN ? r->batch : r->latency.samples * r->batch);
}

// Objects of which nothing is known are left out.
static bool leaves_out(const rn_bench_result *r, const char *object) {
    return strcmp(object, "failure") == 0       ? r->outcome == RN_BENCH_SUCCESS
           : strcmp(object, "accuracy") == 0    ? !r->accuracy.reference[0]
           : strcmp(object, "latency") == 0     ? r->latency.samples == 0
           : strcmp(object, "speedup") == 0     ? isnan(r->speedup)
           : strcmp(object, "host_memory") == 0 ? r->host.peak_bytes == RN_BENCH_UNKNOWN
                                                : r->device_memory.peak_bytes == RN_BENCH_UNKNOWN;
}

// The figures of one object, from figure `i` on; the next object's first figure.
static size_t write_object(const rn_bench_result *r, size_t i, rn_json *json) {
    const char *object = rn_figures_of_result.rows[i].object;
    bool empty = leaves_out(r, object);
    if (empty)
        rn_json_null(json, object);
    else
        rn_json_object(json, object);
    for (;
         i < rn_figures_of_result.count && strcmp(rn_figures_of_result.rows[i].object, object) == 0;
         i++)
        if (!empty) write_figure(&rn_figures_of_result.rows[i], r, json);
    if (empty) return i;
    if (strcmp(object, "host_memory") == 0) write_purposes(&r->host, json);
    if (strcmp(object, "device_memory") == 0) write_purposes(&r->device_memory, json);
    rn_json_end(json);
    return i;
}

void rn_bench_result_write(const rn_bench_result *r, rn_json *json, const char *key) {
    size_t i = 0;
    rn_json_object(json, key);
    for (; !rn_figures_of_result.rows[i].object; i++)
        write_figure(&rn_figures_of_result.rows[i], r, json);
    write_alma(r, json);
    while (i < rn_figures_of_result.count)
        i = write_object(r, i, json);
    rn_json_array(json, "texts");
    for (size_t k = 0; k < r->text_count; k++) {
        rn_json_object(json, NULL);
        for (size_t f = 0; f < rn_figures_of_text.count; f++)
            write_figure(&rn_figures_of_text.rows[f], &r->texts[k], json);
        rn_json_end(json);
    }
    rn_json_end(json);
    rn_json_end(json);
}

rn_status rn_bench_results_write(const rn_bench_results *results, rn_sink sink) {
    rn_json json;
    rn_json_begin(&json, sink, true);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "format", "ration-bench-1");
    for (size_t i = 0; i < rn_figures_of_run.count; i++)
        write_figure(&rn_figures_of_run.rows[i], results, &json);
    rn_json_array(&json, "results");
    for (size_t i = 0; i < results->count; i++)
        rn_bench_result_write(&results->items[i], &json, NULL);
    rn_json_end(&json);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

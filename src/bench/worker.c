// worker.c — the worker's end of the pipe: samples in chunks, figures, outputs.
#include "bench/records.h"
#include "bench/result.h"
#include "bench/samples.h"

#include "base/clock.h"
#include "memory/account.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHUNK = 1024, CHUNK_NS = 100000000 };

struct rn_bench_worker {
    int fd;           // -1: started by hand
    rn_status status; // of the first record that did not reach the harness
    rn_error_info error;
    rn_samples *samples;
    rn_sampling_state sampling;
    uint64_t begin_ns, end_ns; // of the samples
    double chunk[CHUNK];       // not yet sent
    size_t chunk_count;
    uint64_t sent_ns;
    rn_bench_result result;
};

// "fd=3 samples=0 interval=0.01 seconds=1"
static void read_rule(const char *text, rn_bench_worker *w, rn_sampling_rule *rule) {
    const char *fd = text ? strstr(text, "fd=") : NULL;
    const char *samples = text ? strstr(text, "samples=") : NULL;
    const char *interval = text ? strstr(text, "interval=") : NULL;
    const char *seconds = text ? strstr(text, "seconds=") : NULL;
    if (fd) w->fd = (int)strtol(fd + 3, NULL, 10);
    if (samples) rule->samples = strtoull(samples + 8, NULL, 10);
    if (interval) rule->interval = strtod(interval + 9, NULL);
    if (seconds) rule->seconds = strtod(seconds + 8, NULL);
}

rn_status rn_bench_worker_open(rn_bench_worker **out) {
    rn_bench_worker *w;
    rn_sampling_rule rule = {.interval = 0.01, .seconds = 1};
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof *w, (void **)&w));
    w->fd = -1;
    rn_bench_result_clear(&w->result);
    read_rule(getenv("RATION_BENCH"), w, &rule);
    if (w->fd >= 0) fcntl(w->fd, F_SETFD, FD_CLOEXEC); // not for what it starts itself
    rn_sampling_begin(&w->sampling, &rule);
    rn_status s = rn_samples_create(&w->samples);
    if (s == RN_OK)
        *out = w;
    else
        rn_free(RN_HOST_OTHER, w, sizeof *w);
    return s;
}

static void send(rn_bench_worker *w, rn_record_kind kind, const void *data, size_t bytes) {
    if (w->fd < 0 || w->status != RN_OK) return;
    w->status = rn_record_write(w->fd, kind, data, bytes);
    if (w->status != RN_OK) w->error = *rn_last_error();
}

void rn_bench_worker_stage(rn_bench_worker *w, const char *stage) {
    snprintf(w->result.failure.stage, sizeof w->result.failure.stage, "%s", stage);
    send(w, RN_RECORD_STAGE, stage, strlen(stage));
}

// ---- samples ------------------------------------------------------------------------------------

static void send_chunk(rn_bench_worker *w, uint64_t now) {
    if (w->chunk_count) send(w, RN_RECORD_SAMPLES, w->chunk, w->chunk_count * sizeof *w->chunk);
    w->chunk_count = 0;
    w->sent_ns = now;
}

bool rn_bench_worker_sample(rn_bench_worker *w, double ns) {
    bool counts = rn_sampling_take(&w->sampling, w->samples, ns);
    uint64_t now = rn_clock_ns();
    if (!counts) {
        if (w->sampling.measuring) {
            rn_bench_worker_stage(w, "measuring");
            w->begin_ns = rn_clock_ns();
        }
        return true;
    }
    w->end_ns = now;
    w->chunk[w->chunk_count++] = ns;
    if (w->chunk_count == CHUNK || now - w->sent_ns > CHUNK_NS) send_chunk(w, now);
    return w->status == RN_OK && rn_sampling_wants(&w->sampling, w->samples);
}

// ---- the rest -----------------------------------------------------------------------------------

rn_status rn_bench_worker_output(rn_bench_worker *w, const float *values, size_t count) {
    enum { PIECE = RN_RECORD_MOST_BYTES / sizeof(float) };
    for (size_t at = 0; at < count; at += PIECE) {
        size_t some = count - at < PIECE ? count - at : PIECE;
        send(w, RN_RECORD_OUTPUT, values + at, some * sizeof *values);
    }
    return w->status == RN_OK ? RN_OK : rn_error_restore(&w->error);
}

rn_status rn_bench_worker_figures(rn_bench_worker *w, const char *json) {
    rn_json_reader reader;
    rn_json_reader_init(&reader, rn_str_from(json), RN_HOST_IO);
    rn_status s = rn_json_expect(&reader, RN_JSON_OBJECT, NULL);
    if (s == RN_OK) s = rn_bench_result_read(&reader, &w->result);
    rn_json_reader_free(&reader);
    RN_TRY(s);
    send(w, RN_RECORD_FIGURES, json, strlen(json));
    return w->status == RN_OK ? RN_OK : rn_error_restore(&w->error);
}

void rn_bench_worker_fail(rn_bench_worker *w, const rn_error_info *error) {
    char text[2048];
    rn_bench_failure *f = &w->result.failure;
    snprintf(f->status, sizeof f->status, "%s", rn_status_name(error->status));
    snprintf(f->message, sizeof f->message, "%s", error->message);
    snprintf(f->hint, sizeof f->hint, "%s", error->hint);
    w->result.outcome = RN_BENCH_FAILED;
    // Lines: a message keeps its own line breaks, so it comes last.
    int bytes = snprintf(text, sizeof text, "%s\n%s\n%s", f->status, f->hint, error->message);
    send(w, RN_RECORD_FAILURE, text, (size_t)bytes);
}

// What only the worker knows: its samples, and its peak. What the system tells a parent of a child
// (ru_maxrss) has the parent's own pages in it, from before the child's exec.
static void send_loop(rn_bench_worker *w) {
    char json[256];
    const rn_sampling_state *s = &w->sampling;
    rn_process_info process = {0};
    if (rn_process_read(&process) != RN_OK) process.resident_peak_bytes = 0;
    snprintf(json, sizeof json,
             "{\"resident_peak_bytes\": %llu, "
             "\"latency\": {\"warm_up\": %llu, \"steady\": %s, \"loop_s\": %.9f}}",
             (unsigned long long)process.resident_peak_bytes, (unsigned long long)s->warm_up,
             s->steady ? "true" : "false", (double)(w->end_ns - w->begin_ns) * 1e-9);
    (void)!rn_bench_worker_figures(w, json);
    rn_samples_summary(w->samples, &w->result.latency);
}

const rn_bench_result *rn_bench_worker_result(rn_bench_worker *w) {
    send_chunk(w, rn_clock_ns());
    if (w->samples->count) send_loop(w);
    return &w->result;
}

rn_status rn_bench_worker_close(rn_bench_worker *w) {
    if (!w) return RN_OK;
    send_chunk(w, rn_clock_ns());
    if (w->samples->count) send_loop(w);
    send(w, RN_RECORD_END, NULL, 0);
    rn_status s = w->status == RN_OK ? RN_OK : rn_error_restore(&w->error);
    rn_samples_destroy(w->samples);
    rn_free(RN_HOST_OTHER, w, sizeof *w);
    return s;
}

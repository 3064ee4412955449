// rates.c — measures what a plan's time is made of, with the very kernels and the very reader that
// a session uses. Each measurement is repeated for up to a second, and the best one counts: the
// others were disturbed.
#include "runtime/rates.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/output.h"
#include "base/reader.h"
#include "base/reserved.h"
#include "memory/account.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { REPEATS = 5, SIDE = 1024, WIDE_ROWS = 512, TINY = 16, TINY_STEPS = 64 };
#define FILE_BYTES ((uint64_t)256 << 20)

typedef struct meter {
    const rn_rates_options *options;
    rn_device *host;
    rn_queue *queue;
    rn_rates *rates;
} meter;

// ---- timing -------------------------------------------------------------------------------------

rn_status rn_rates_check(const rn_rates_options *options) {
    if (!options->cancel || !*options->cancel) return RN_OK;
    return rn_fail(RN_CANCELLED, "calibration was stopped");
}

rn_status rn_rates_tell(const rn_rates_options *options, const char *what) {
    RN_TRY(rn_rates_check(options));
    if (options->progress) options->progress(options->self, what);
    return RN_OK;
}

rn_status rn_rates_time(const rn_rates_options *options, rn_status (*work)(void *self), void *self,
                        double *out_seconds) {
    double spent = 0;
    *out_seconds = 1e9;
    for (int i = 0; i < REPEATS && spent < 1; i++) {
        RN_TRY(rn_rates_check(options));
        uint64_t start = rn_clock_ns();
        RN_TRY(work(self));
        double seconds = (double)(rn_clock_ns() - start) / 1e9;
        if (seconds < *out_seconds) *out_seconds = seconds;
        spent += seconds;
    }
    return RN_OK;
}

// ---- products -----------------------------------------------------------------------------------

static rn_status time_product(const meter *m, rn_drill_kind kind, uint32_t launches,
                              double *out_seconds) {
    rn_drill drill = {0};
    kind.count = 1;
    rn_status s = rn_drill_begin(&drill, m->host, m->queue, &kind);
    if (s == RN_OK) s = rn_drill_time(&drill, m->options, launches, 0, out_seconds);
    *out_seconds /= launches;
    rn_drill_end(&drill);
    return s;
}

static rn_status measure_memory(const meter *m) {
    rn_device_rates *rates = &m->rates->cpu;
    const rn_rates_sizes *sizes = &rn_rates_usual;
    rn_drill drill = {0};
    double seconds = 1;
    RN_TRY(rn_rates_tell(m->options, "memory"));
    rn_status s = rn_drill_begin_memory(&drill, m->host, m->queue, sizes);
    if (s == RN_OK) s = rn_drill_time(&drill, m->options, drill.count, sizes->seconds, &seconds);
    rates->memory_bytes_second = (double)rn_drill_weight_bytes(&drill) / seconds;
    rates->link_bytes_second = rates->memory_bytes_second;
    rn_drill_end(&drill);
    return s;
}

static rn_status measure_products(const meter *m) {
    rn_drill_kind square = {.rows = SIDE, .k = SIDE, .n = {SIDE}, .dtype = RN_DTYPE_F32};
    rn_drill_kind narrow = {.rows = WIDE_ROWS, .k = SIDE, .n = {SIDE}, .dtype = RN_DTYPE_Q8_0};
    rn_drill_kind tiny = {.rows = 1, .k = TINY, .n = {TINY}, .dtype = RN_DTYPE_F32};
    rn_device_rates *rates = &m->rates->cpu;
    double seconds = 0;
    RN_TRY(rn_rates_tell(m->options, "f32 products"));
    RN_TRY(time_product(m, square, 1, &seconds));
    rates->flops = 2.0 * SIDE * SIDE * SIDE / seconds;
    RN_TRY(rn_rates_tell(m->options, "int8 products"));
    RN_TRY(time_product(m, narrow, 1, &seconds));
    rates->quantized_flops = 2.0 * WIDE_ROWS * SIDE * SIDE / seconds;
    RN_TRY(measure_memory(m));
    RN_TRY(rn_rates_tell(m->options, "kernels"));
    RN_TRY(time_product(m, tiny, TINY_STEPS, &seconds));
    rates->step_seconds = seconds > 1e-7 ? seconds : 1e-7;
    return RN_OK;
}

// ---- disk ---------------------------------------------------------------------------------------

static rn_status write_file(const char *path) {
    static const uint8_t piece[64 << 10] = {1};
    rn_output *output = NULL;
    rn_output_options options = {.file_bytes = FILE_BYTES, .stream_bytes = FILE_BYTES};
    RN_TRY(rn_output_create(path, &options, RN_HOST_IO, &output));
    rn_status s = RN_OK;
    for (uint64_t at = 0; s == RN_OK && at < FILE_BYTES; at += sizeof piece)
        s = rn_output_append(output, piece, sizeof piece);
    if (s == RN_OK) s = rn_output_commit(output);
    rn_output_destroy(output);
    return s;
}

static rn_status read_file(void *self) {
    rn_reader *reader = self;
    rn_extent extent = {.file = 0, .offset = 0, .bytes = FILE_BYTES};
    rn_reader_piece piece = {0};
    RN_TRY(rn_reader_start(reader, &extent, 1));
    for (;;) {
        RN_TRY(rn_reader_next(reader, &piece));
        if (piece.bytes == 0) return RN_OK;
        rn_reader_release(reader, &piece);
    }
}

static rn_status time_file(const meter *m, const char *path, double *out_seconds) {
    rn_reader *reader = NULL;
    rn_reader_options options = {.ignore_page_cache = true, .allocator = RN_HOST_IO};
    RN_TRY(rn_reader_create(&(rn_reader_file){.path = path}, 1, &options, &reader));
    rn_status s = rn_rates_time(m->options, read_file, reader, out_seconds);
    rn_reader_destroy(reader);
    return s;
}

// In the folder that is asked for, or in the one in which the rates are kept, which is made.
static rn_status choose_file(const meter *m, char *path, size_t bytes) {
    char name[64], rates[512];
    snprintf(name, sizeof name, "ration-calibrate.%d", (int)getpid());
    if (m->options->disk_folder) return rn_path_join(m->options->disk_folder, name, path, bytes);
    RN_TRY(rn_rates_path(rates, sizeof rates));
    RN_TRY(rn_rates_make_folders(rates));
    *strrchr(rates, '/') = 0;
    return rn_path_join(rates, name, path, bytes);
}

static rn_status measure_disk(const meter *m) {
    char path[4096];
    double seconds = 0;
    RN_TRY(rn_rates_tell(m->options, "disk"));
    RN_TRY(choose_file(m, path, sizeof path));
    RN_TRY(write_file(path));
    rn_status s = time_file(m, path, &seconds);
    unlink(path);
    if (s == RN_OK) m->rates->cpu.disk_bytes_second = (double)FILE_BYTES / seconds;
    return s;
}

// ---- both ---------------------------------------------------------------------------------------

static rn_status measure(meter *m) {
    RN_TRY(measure_disk(m)); // first: a folder may be wrong
    RN_TRY(m->host->open_queue(m->host, RN_QUEUE_COMPUTE, NULL, &m->queue));
    rn_status s = measure_products(m);
    rn_queue_destroy(m->queue);
    return s;
}

rn_status rn_rates_measure(const rn_rates_options *options, rn_rates *out) {
    static const rn_rates_options none = {0};
    meter m = {.options = options ? options : &none, .rates = out};
    *out = (rn_rates){0};
    RN_TRY(rn_check_reserved(m.options->reserved, "rn_rates_options"));
    RN_TRY(rn_cpu_device_create(m.options->threads, &m.host));
    out->threads = m.host->caps.threads;
    snprintf(out->cpu_level, sizeof out->cpu_level, "%s", rn_cpu_level_name(rn_cpu_level_get()));
    rn_status s = measure(&m);
    rn_device_destroy(m.host);
    return s;
}

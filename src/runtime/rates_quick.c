// rates_quick.c — a tenth of a second of measuring, where nobody has calibrated this machine. It is
// done once a plan is known to fit, within the memory that the plan will have, and kept until
// somebody calibrates. Guesses were off by six times. The weights that it reads again and again are
// few, so they are brought out of the caches first, as a model's are between two tokens.
#include "runtime/rates.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/reader.h"
#include "base/reserved.h"
#include "memory/account.h"
#include "memory/budget.h"

#include <ration/log.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RN_SANITIZED true
#else
#define RN_SANITIZED false
#endif

#define MIB ((uint64_t)1 << 20)

// Weights of 2 MiB, 32 MiB in all; where there is less room they are narrower.
enum { SIDE = 512, INT8_ROWS = 256, K = 2048, WIDE = 512, LEAST_WIDE = 64, TINY = 16 };
enum { TINY_STEPS = 64 };
#define LEAST_BYTES (8 * MIB) // of room
#define DISK_BYTES  (256 * MIB)
// Of one measurement.
#define PRODUCT_SECONDS 0.012
#define MEMORY_SECONDS  0.03
#define STEP_SECONDS    0.004
#define DISK_SECONDS    0.03

typedef struct meter {
    rn_device *host;
    rn_queue *queue;
    rn_device_rates *rates;
} meter;

// ---- the CPU ------------------------------------------------------------------------------------

typedef struct timing {
    uint32_t launches;   // of each product
    bool cold;           // caches have nothing of it
    double most_seconds; // in all
} timing;

// The least seconds of the launches; the first time does not count.
static rn_status time_launches(const rn_drill *drill, const timing *t, double *out_seconds) {
    uint64_t begin = rn_clock_ns(), most_ns = (uint64_t)(t->most_seconds * 1e9);
    *out_seconds = 1e9;
    for (int i = 0; i < 2 || rn_clock_ns() - begin < most_ns; i++) {
        if (t->cold) rn_cpu_flush(drill->memory.base, drill->memory.bytes);
        uint64_t start = rn_clock_ns();
        rn_drill_launch(drill, t->launches * drill->count);
        RN_TRY(rn_queue_finish(drill->queue));
        double seconds = (double)rn_max_u64(rn_clock_ns() - start, 1) / 1e9;
        if (i > 0 && seconds < *out_seconds) *out_seconds = seconds;
    }
    return RN_OK;
}

static rn_status time_kind(const meter *m, rn_drill_kind kind, timing t, double *out_seconds) {
    rn_drill drill = {0};
    rn_status s = rn_drill_begin(&drill, m->host, m->queue, &kind);
    if (s == RN_OK) s = time_launches(&drill, &t, out_seconds);
    rn_drill_end(&drill);
    return s;
}

static uint64_t choose_width(uint64_t room_bytes) {
    uint64_t weight = room_bytes / (RN_DRILL_CALLS + 2); // and its staging
    uint64_t wide = weight / (K * sizeof(uint16_t)) / LEAST_WIDE * LEAST_WIDE;
    return rn_min_u64(rn_max_u64(wide, LEAST_WIDE), WIDE);
}

static rn_status measure_cpu(const meter *m, uint64_t wide) {
    rn_drill_kind square = {
        .rows = SIDE, .k = SIDE, .n = {SIDE}, .dtype = RN_DTYPE_F32, .count = 1};
    rn_drill_kind narrow = {
        .rows = INT8_ROWS, .k = SIDE, .n = {SIDE}, .dtype = RN_DTYPE_Q8_0, .count = 1};
    rn_drill_kind tiny = {.rows = 1, .k = TINY, .n = {TINY}, .dtype = RN_DTYPE_F32, .count = 1};
    rn_drill_kind weights = {
        .rows = 1, .k = K, .n = {wide, wide}, .dtype = RN_DTYPE_F16, .count = RN_DRILL_CALLS};
    timing product = {1, false, PRODUCT_SECONDS};
    rn_device_rates *r = m->rates;
    double seconds = 1;
    RN_TRY(time_kind(m, square, product, &seconds));
    r->flops = 2.0 * SIDE * SIDE * SIDE / seconds;
    RN_TRY(time_kind(m, narrow, product, &seconds));
    r->quantized_flops = 2.0 * INT8_ROWS * SIDE * SIDE / seconds;
    RN_TRY(time_kind(m, tiny, (timing){TINY_STEPS, false, STEP_SECONDS}, &seconds));
    r->step_seconds = seconds / TINY_STEPS > 1e-7 ? seconds / TINY_STEPS : 1e-7;
    RN_TRY(time_kind(m, weights, (timing){1, true, MEMORY_SECONDS}, &seconds));
    r->memory_bytes_second = (double)(K * wide * RN_DRILL_CALLS * sizeof(uint16_t)) / seconds;
    r->link_bytes_second = r->memory_bytes_second;
    return RN_OK;
}

// ---- the disk -----------------------------------------------------------------------------------

static rn_status read_some(rn_reader *reader, uint64_t bytes, double *out_rate) {
    rn_extent extent = {.bytes = rn_min_u64(bytes, DISK_BYTES)};
    rn_reader_piece piece = {0};
    uint64_t start = rn_clock_ns(), got = 0;
    double seconds = 0;
    RN_TRY(rn_reader_start(reader, &extent, 1));
    do {
        RN_TRY(rn_reader_next(reader, &piece));
        if (piece.bytes == 0) break;
        got += piece.bytes;
        rn_reader_release(reader, &piece);
        seconds = (double)rn_max_u64(rn_clock_ns() - start, 1) / 1e9;
    } while (seconds < DISK_SECONDS);
    *out_rate = seconds > 0 ? (double)got / seconds : 0;
    return RN_OK;
}

// Of a model's first file, past the page cache. A small one would be a matter of latency.
static rn_status measure_disk(const rn_checkpoint *checkpoint, double *out_rate) {
    const rn_checkpoint_file_info *file = rn_checkpoint_file(checkpoint, 0);
    rn_reader_options options = {.ignore_page_cache = true, .allocator = RN_HOST_IO};
    rn_reader *reader = NULL;
    if (file->bytes < LEAST_BYTES) return RN_OK;
    RN_TRY(rn_reader_create(&(rn_reader_file){.path = file->path}, 1, &options, &reader));
    rn_status s = read_some(reader, file->bytes, out_rate);
    rn_reader_destroy(reader);
    return s;
}

static bool has_files(const rn_checkpoint *checkpoint) {
    return checkpoint && rn_checkpoint_file_count(checkpoint) > 0;
}

// ---- both ---------------------------------------------------------------------------------------

static uint64_t room_of(const rn_rates_quick_options *o) {
    return o->room_bytes ? o->room_bytes : UINT64_MAX;
}

static rn_status measure_with(rn_device *host, uint64_t wide, rn_device_rates *rates) {
    meter m = {.host = host, .rates = rates};
    RN_TRY(host->open_queue(host, RN_QUEUE_COMPUTE, NULL, &m.queue));
    rn_status s = measure_cpu(&m, wide);
    rn_queue_destroy(m.queue);
    return s;
}

static rn_status measure(rn_device *device, const rn_rates_quick_options *o, rn_rates *rates) {
    uint64_t room = room_of(o);
    rn_status s = RN_OK;
    if (room < LEAST_BYTES)
        return rn_fail(RN_OVER_BUDGET, "%s are too few to measure in", rn_size_format(room).text);
    if (has_files(o->checkpoint)) s = measure_disk(o->checkpoint, &rates->cpu.disk_bytes_second);
    if (s == RN_OK && rates->cpu.flops == 0)
        s = measure_with(device, choose_width(room), &rates->cpu);
    return s;
}

// What was measured in less memory than it wants is not worth it, and what a build with sanitizers
// measures, a hundred times slower, would mislead all others: those go into no cache folder but one
// that a test has named ($XDG_CACHE_HOME). What others calibrated for another
// number of threads stays; a file that cannot be read does not.
static bool keep(const rn_rates *rates, const rn_rates_quick_options *o) {
    rn_rates old;
    if (RN_SANITIZED && !getenv("XDG_CACHE_HOME")) return false;
    if (choose_width(room_of(o)) < WIDE) return false;
    if (rn_rates_load(NULL, &old) == RN_OK && !old.quick) return false;
    return rn_rates_save(rates, NULL) == RN_OK;
}

static void tell(const rn_rates *rates, uint64_t start_ns, bool kept) {
    char disk[48] = "the disk as guessed";
    if (rates->cpu.disk_bytes_second > 0)
        snprintf(disk, sizeof disk, "disk %.1f GB/s", rates->cpu.disk_bytes_second / 1e9);
    rn_log(RN_LOG_INFO, "rates",
           "measured for %.0f ms: %.1f GFLOP/s f32, %.1f GOP/s int8, memory %.1f GB/s, %s; %s; "
           "ration calibrate measures more exactly",
           (double)(rn_clock_ns() - start_ns) / 1e6, rates->cpu.flops / 1e9,
           rates->cpu.quantized_flops / 1e9, rates->cpu.memory_bytes_second / 1e9, disk,
           kept ? "kept for the next start" : "not kept");
}

rn_rates_source rn_rates_measure_quick(rn_device *device, const rn_rates_quick_options *options) {
    rn_rates rates = {.threads = device->caps.threads, .quick = true};
    uint64_t start = rn_clock_ns();
    if (rn_check_reserved(options->reserved, "rn_rates_quick_options") != RN_OK)
        return rn_rates_apply(device);
    if (device->caps.own_memory || device->caps.compiles ||
        !rn_rates_are_wanted(has_files(options->checkpoint), &rates.cpu))
        return rn_rates_apply(device);
    rn_error_info error = *rn_last_error();
    rn_refusal refusal = *rn_last_refusal();
    snprintf(rates.cpu_level, sizeof rates.cpu_level, "%s", rn_cpu_level_name(rn_cpu_level_get()));
    rn_refusals_mute(true);
    rn_status s = measure(device, options, &rates);
    rn_refusals_mute(false);
    if (s == RN_OK) {
        rn_rates_round(&rates);
        tell(&rates, start, keep(&rates, options));
        rn_rates_use_cpu(&rates, device);
    } else {
        rn_log(RN_LOG_INFO, "rates", "not measured: %s; times are guessed",
               rn_last_error()->message);
    }
    rn_refusal_restore(&refusal);
    (void)rn_error_restore(&error);
    return rn_rates_apply(device);
}

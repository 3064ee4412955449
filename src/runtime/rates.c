// rates.c — measures what a plan's time is made of, with the very kernels and the very reader that
// a session uses. Each measurement is repeated for up to a second, and the best one counts: the
// others were disturbed.
#include "runtime/rates.h"

#include "backend/cpu/cpu.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/output.h"
#include "base/reader.h"
#include "memory/account.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { REPEATS = 5, SIDE = 1024, WIDE_ROWS = 512, TINY = 16 };
#define STREAM_ROWS ((uint64_t)16384) // with 4096 columns of f32: 256 MiB, more than any cache
#define STREAM_COLS ((uint64_t)4096)
#define FILE_BYTES  ((uint64_t)256 << 20)

typedef struct meter {
    const rn_rates_options *options;
    rn_workers *workers;
    rn_rates *rates;
} meter;

// ---- timing -------------------------------------------------------------------------------------

static rn_status check_cancel(const rn_rates_options *options) {
    if (!options->cancel || !*options->cancel) return RN_OK;
    return rn_fail(RN_CANCELLED, "calibration was stopped");
}

rn_status rn_rates_tell(const rn_rates_options *options, const char *what) {
    RN_TRY(check_cancel(options));
    if (options->progress) options->progress(options->self, what);
    return RN_OK;
}

rn_status rn_rates_time(const rn_rates_options *options, rn_status (*work)(void *self), void *self,
                        double *out_seconds) {
    double spent = 0;
    *out_seconds = 1e9;
    for (int i = 0; i < REPEATS && spent < 1; i++) {
        RN_TRY(check_cancel(options));
        uint64_t start = rn_clock_ns();
        RN_TRY(work(self));
        double seconds = (double)(rn_clock_ns() - start) / 1e9;
        if (seconds < *out_seconds) *out_seconds = seconds;
        spent += seconds;
    }
    return RN_OK;
}

// ---- products -----------------------------------------------------------------------------------

// y (m, n) = x (m, k) wT, w (n, k)
typedef struct product {
    uint64_t m, n, k;
    rn_dtype dtype;
    rn_tensor tensors[4]; // x, w, no bias, y
    rn_call call;
} product;

static void shape_product(const meter *m, product *p) {
    rn_tensor *t = p->tensors;
    t[0] = (rn_tensor){.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(p->m, p->k)};
    t[1] = (rn_tensor){.dtype = p->dtype, .shape = RN_SHAPE(p->n, p->k)};
    t[2] = (rn_tensor){.dtype = RN_DTYPE_NONE};
    t[3] = (rn_tensor){.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(p->m, p->n)};
    static const rn_matmul_attrs attrs = {0};
    p->call = (rn_call){.op = RN_OP_MATMUL,
                        .attrs = &attrs,
                        .inputs = t,
                        .outputs = t + 3,
                        .input_count = 3,
                        .output_count = 1,
                        .workers = m->workers,
                        .threads = (uint32_t)rn_workers_count(m->workers)};
    t[1].layout = rn_cpu_weight_layout(&p->call, 1);
    const rn_kernel *kernel = &rn_cpu_kernels[RN_OP_MATMUL];
    p->call.workspace_bytes = kernel->workspace ? kernel->workspace(&p->call) : 0;
}

// The memory of a product in one block: x, y, workspace, w. Zeros: they cost what numbers cost.
static rn_status hold_product(product *p, void **out_block, uint64_t *out_bytes) {
    uint64_t at[4] = {0},
             sizes[4] = {rn_tensor_bytes(&p->tensors[0]), rn_tensor_bytes(&p->tensors[3]),
                         p->call.workspace_bytes, rn_tensor_bytes(&p->tensors[1])};
    uint64_t total = 0;
    for (int i = 0; i < 4; i++) {
        at[i] = total;
        total += (sizes[i] + 63) / 64 * 64;
    }
    RN_TRY(rn_alloc(RN_HOST_OTHER, total, out_block));
    memset(*out_block, 0, total); // so that every page is really there
    *out_bytes = total;
    uint8_t *base = *out_block;
    p->tensors[0].data = base + at[0];
    p->tensors[3].data = base + at[1];
    p->call.workspace = base + at[2];
    p->tensors[1].data = base + at[3];
    return RN_OK;
}

static rn_status run_call(void *self) {
    const rn_call *call = self;
    return rn_cpu_kernels[call->op].run(call);
}

static rn_status time_product(const meter *m, product p, double *out_seconds) {
    void *block = NULL;
    uint64_t bytes = 0;
    shape_product(m, &p);
    RN_TRY(hold_product(&p, &block, &bytes));
    rn_status s = rn_rates_time(m->options, run_call, &p.call, out_seconds);
    rn_free(RN_HOST_OTHER, block, bytes);
    return s;
}

static rn_status measure_products(const meter *m) {
    product square = {.m = SIDE, .n = SIDE, .k = SIDE, .dtype = RN_DTYPE_F32};
    product narrow = {.m = WIDE_ROWS, .n = SIDE, .k = SIDE, .dtype = RN_DTYPE_Q8_0};
    product stream = {.m = 1, .n = STREAM_ROWS, .k = STREAM_COLS, .dtype = RN_DTYPE_F32};
    product tiny = {.m = 1, .n = TINY, .k = TINY, .dtype = RN_DTYPE_F32};
    rn_device_rates *rates = &m->rates->cpu;
    double seconds = 0;
    RN_TRY(rn_rates_tell(m->options, "f32 products"));
    RN_TRY(time_product(m, square, &seconds));
    rates->flops = 2.0 * SIDE * SIDE * SIDE / seconds;
    RN_TRY(rn_rates_tell(m->options, "int8 products"));
    RN_TRY(time_product(m, narrow, &seconds));
    rates->quantized_flops = 2.0 * WIDE_ROWS * SIDE * SIDE / seconds;
    RN_TRY(rn_rates_tell(m->options, "memory"));
    RN_TRY(time_product(m, stream, &seconds));
    rates->memory_bytes_second = (double)(STREAM_ROWS * STREAM_COLS * 4) / seconds;
    rates->link_bytes_second = rates->memory_bytes_second;
    RN_TRY(rn_rates_tell(m->options, "kernels"));
    RN_TRY(time_product(m, tiny, &seconds));
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
    RN_TRY(rn_reader_create(&(rn_reader_file){path}, 1, &options, &reader));
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

rn_status rn_rates_measure(const rn_rates_options *options, rn_rates *out) {
    static const rn_rates_options none = {0};
    meter m = {.options = options ? options : &none, .rates = out};
    *out = (rn_rates){0};
    RN_TRY(rn_workers_create(m.options->threads, RN_HOST_OTHER, &m.workers));
    out->threads = (uint32_t)rn_workers_count(m.workers);
    snprintf(out->cpu_level, sizeof out->cpu_level, "%s", rn_cpu_level_name(rn_cpu_level_get()));
    rn_status s = measure_disk(&m); // first: a folder may be wrong
    if (s == RN_OK) s = measure_products(&m);
    rn_workers_destroy(m.workers);
    return s;
}

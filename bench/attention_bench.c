// attention_bench.c — one token's attention to a long KV cache, beside reading the cache's bytes.
//
//     attention_bench [THREADS [SECONDS for a figure]]
//
// 32 query heads, 8 key heads, pages of 32 tokens; as many layers that no cache holds them all, and
// every call takes the next. A line is "name: milliseconds a layer, GB/s of keys and values, of
// what plain reading reaches". The best of several rounds: other programs disturb it less.
#include "backend/cpu/cpu.h"
#include "peak.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HEADS = 32, KV_HEADS = 8, PAGE_TOKENS = 32, READ_BYTES = 512 << 20, HUGE = 2 << 20 };

static rn_workers *workers;
static size_t threads;
static double bandwidth; // GB/s

// With one thread its own time: other programs disturb it less.
static double seconds(void) {
    struct timespec now;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *make(uint64_t bytes, int byte) {
    void *data = aligned_alloc(HUGE, (bytes + HUGE - 1) / HUGE * HUGE);
    if (!data) exit(1);
    madvise(data, (bytes + HUGE - 1) / HUGE * HUGE, MADV_HUGEPAGE);
    memset(data, byte, bytes);
    return data;
}

static atomic_ullong sink;

static void read_share(void *arg, size_t index) {
    size_t share = READ_BYTES / threads / 8 / 64 * 64;
    const uint64_t *from = (const uint64_t *)arg + index * share;
    uint64_t sum[8] = {0};
    for (size_t i = 0; i < share / 8; i += 8)
        for (size_t stream = 0; stream < 8; stream++)
            for (size_t j = 0; j < 8; j++)
                sum[j] ^= from[stream * (share / 8) + i + j];
    for (int j = 0; j < 8; j++)
        sink += sum[j];
}

static void measure_reading(void) {
    void *memory = make(READ_BYTES, 1);
    double best = 1e9;
    for (int round = 0; round < 5; round++) {
        double begin = seconds();
        rn_workers_run(workers, threads, read_share, memory);
        double passed = seconds() - begin;
        best = passed < best ? passed : best;
    }
    bandwidth = READ_BYTES / best * 1e-9;
    printf("reading: %.1f GB/s on %zu threads\n", bandwidth, threads);
    free(memory);
}

static void measure(rn_dtype dtype, uint64_t dims, uint64_t depth, double limit) {
    uint64_t pages = depth / PAGE_TOKENS, elements = 2 * KV_HEADS * depth * dims, bytes = 0;
    if (!rn_dtype_bytes(dtype, elements, &bytes)) exit(1);
    uint64_t layers = ((uint64_t)256 << 20) / bytes + 1;
    uint8_t *kv = make(layers * bytes, 1); // small numbers in every dtype
    float *q = make(HEADS * dims * sizeof(float), 0), *y = make(HEADS * dims * sizeof(float), 0);
    int32_t *table = make(pages * sizeof *table, 0), sequence = 0, position = (int32_t)depth - 1;
    for (uint64_t i = 0; i < pages; i++)
        table[i] = (int32_t)(i * 37 % pages);
    rn_tensor in[] = {{q, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(1, HEADS, dims)},
                      {kv, dtype, RN_LAYOUT_PLAIN, RN_SHAPE(pages, 2, KV_HEADS, PAGE_TOKENS, dims)},
                      {&sequence, RN_DTYPE_I32, RN_LAYOUT_PLAIN, RN_SHAPE(1)},
                      {&position, RN_DTYPE_I32, RN_LAYOUT_PLAIN, RN_SHAPE(1)},
                      {table, RN_DTYPE_I32, RN_LAYOUT_PLAIN, RN_SHAPE(1, pages)}};
    rn_tensor out = {y, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(1, HEADS, dims)};
    rn_attention_attrs attrs = {.causal = true};
    rn_call call = {.op = RN_OP_PAGED_ATTENTION,
                    .attrs = &attrs,
                    .inputs = in,
                    .outputs = &out,
                    .input_count = 5,
                    .output_count = 1,
                    .workers = workers,
                    .threads = (uint32_t)threads};
    call.workspace_bytes = rn_cpu_paged_attention_workspace(&call);
    call.workspace = make(call.workspace_bytes, 0);
    double begin = wall_seconds(), best = 1e9;
    do {
        double start = seconds();
        for (uint64_t i = 0; i < layers; i++) {
            in[1].data = kv + i * bytes;
            if (rn_cpu_paged_attention(&call) != RN_OK) exit(1);
        }
        double passed = (seconds() - start) / (double)layers;
        best = passed < best ? passed : best;
    } while (wall_seconds() - begin < limit);
    double rate = (double)bytes / best * 1e-9;
    printf("%-4s D %3d, %5d keys: %8.3f ms %6.1f GB/s %4.0f %% of reading\n",
           rn_dtype_get(dtype)->name, (int)dims, (int)depth, best * 1e3, rate,
           100 * rate / bandwidth);
    fflush(stdout);
    free(kv), free(q), free(y), free(table), free(call.workspace);
}

int main(int argc, char **argv) {
    threads = argc > 1 ? (size_t)atoi(argv[1]) : 2;
    double limit = argc > 2 ? atof(argv[2]) : 0.5;
    if (rn_workers_create(threads, &rn_system_allocator, &workers) != RN_OK) return 1;
    measure_reading();
    static const rn_dtype dtypes[] = {RN_DTYPE_F32, RN_DTYPE_F16, RN_DTYPE_Q8_0};
    for (int i = 0; i < 3; i++)
        for (uint64_t dims = 64; dims <= 128; dims *= 2)
            for (uint64_t depth = 1024; depth <= 4096; depth *= 4)
                measure(dtypes[i], dims, depth, limit);
    rn_workers_destroy(workers);
}

// gemm_bench.c — f32 products beside the most that this machine's multiply-adds can do.
//
//     gemm_bench [THREADS [SECONDS for a figure]]
//
// A line is "name: milliseconds, GFLOP/s, of the peak"; peer_torch.py prints the same names, and
// bench/run puts them side by side. The peak is a loop of multiply-adds in registers on as many
// threads. Each figure is the best of many short runs: other programs disturb it less.
#include "backend/cpu/cpu.h"
#include "peak.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct shape {
    const char *name;
    uint64_t m, n, k;
    bool panels; // w packed once, as for inference
    rn_matmul_attrs attrs;
} shape;

static const shape shapes[] = {
    {"gemm 1024x1024x1024", 1024, 1024, 1024, false, {0}},
    {"gemm 1024x1024x1024 nn", 1024, 1024, 1024, false, {.transpose_w = true}},
    {"gemm 1024x1024x1024 tn", 1024, 1024, 1024, false, {.transpose_x = true, .transpose_w = true}},
    {"llama q 1x4096x4096", 1, 4096, 4096, false, {0}},
    {"llama q 8x4096x4096", 8, 4096, 4096, false, {0}},
    {"llama q 512x4096x4096", 512, 4096, 4096, false, {0}},
    {"llama up 1x14336x4096", 1, 14336, 4096, false, {0}},
    {"llama up 8x14336x4096", 8, 14336, 4096, false, {0}},
    {"llama up 512x14336x4096", 512, 14336, 4096, false, {0}},
    {"llama down 1x4096x14336", 1, 4096, 14336, false, {0}},
    {"llama down 8x4096x14336", 8, 4096, 14336, false, {0}},
    {"llama down 512x4096x14336", 512, 4096, 14336, false, {0}},
    {"llama dw 4096x4096x512", 4096, 4096, 512, false, {.transpose_x = true, .transpose_w = true}},
    {"thin dw 64x64x65536", 64, 64, 65536, false, {.transpose_x = true, .transpose_w = true}},
    {"packed 1x4096x4096", 1, 4096, 4096, true, {0}},
    {"packed 8x4096x4096", 8, 4096, 4096, true, {0}},
    {"packed 512x4096x4096", 512, 4096, 4096, true, {0}},
};

static float *make(uint64_t floats) {
    float *data = aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64);
    for (uint64_t i = 0; data && i < floats; i++)
        data[i] = (float)(i * 2654435761u % 1000) * 1e-3f - 0.5f;
    return data;
}

static void measure(const shape *s, rn_workers *workers, double seconds, double peak) {
    rn_tensor in[3] = {{make(s->m * s->k), RN_DTYPE_F32, RN_LAYOUT_PLAIN,
                        s->attrs.transpose_x ? RN_SHAPE(s->k, s->m) : RN_SHAPE(s->m, s->k)},
                       {make(s->n * s->k), RN_DTYPE_F32,
                        s->panels ? RN_LAYOUT_PANELS : RN_LAYOUT_PLAIN,
                        s->attrs.transpose_w ? RN_SHAPE(s->k, s->n) : RN_SHAPE(s->n, s->k)},
                       {0}};
    rn_tensor out = {make(s->m * s->n), RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(s->m, s->n)};
    rn_call call = {.op = RN_OP_MATMUL,
                    .attrs = &s->attrs,
                    .inputs = in,
                    .outputs = &out,
                    .input_count = 3,
                    .output_count = 1,
                    .workers = workers,
                    .threads = (uint32_t)rn_workers_count(workers)};
    call.workspace_bytes = rn_cpu_matmul_workspace(&call);
    call.workspace = make(call.workspace_bytes / sizeof(float));
    double begin = wall_seconds(), best = 1e9;
    for (int n = 0; n < 3 || wall_seconds() - begin < seconds; n++) {
        double start = wall_seconds();
        if (rn_cpu_matmul(&call) != RN_OK) exit(1);
        double passed = wall_seconds() - start;
        best = passed < best ? passed : best;
    }
    double rate = 2.0 * (double)s->m * (double)s->n * (double)s->k / best * 1e-9;
    printf("%-28s: %9.3f ms %8.1f GFLOP/s %5.1f %% of peak\n", s->name, best * 1e3, rate,
           100 * rate / peak);
    fflush(stdout);
    free(in[0].data), free(in[1].data), free(out.data), free(call.workspace);
}

int main(int argc, char **argv) {
    size_t threads = argc > 1 ? (size_t)atoi(argv[1]) : 0;
    double seconds = argc > 2 ? atof(argv[2]) : 1;
    rn_workers *workers;
    if (rn_workers_create(threads, &rn_system_allocator, &workers) != RN_OK) return 1;
    double peak = peak_gflops(workers, seconds);
    printf("%-28s: %23.1f GFLOP/s on %zu threads\n", "peak", peak, rn_workers_count(workers));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        measure(&shapes[i], workers, seconds, peak);
    rn_workers_destroy(workers);
}

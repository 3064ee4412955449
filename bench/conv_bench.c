// conv_bench.c — ResNet-18's convolutions beside the most that this machine's multiply-adds can do.
//
//     conv_bench [THREADS [SECONDS for a figure]]
//
// Lines as gemm_bench's; peer_torch.py prints the same names. Weights are packed once, as for
// inference. "all 20" is the sum over the network, each layer as often as it occurs.
#include "backend/cpu/cpu.h"
#include "peak.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct layer {
    const char *name;
    uint32_t times; // it occurs
    uint64_t size, channels, outputs, kernel;
    uint32_t stride, pad;
} layer;

static const layer layers[] = {
    {"conv1 7x7/2 3>64", 1, 224, 3, 64, 7, 2, 3},
    {"layer1 3x3 64>64", 4, 56, 64, 64, 3, 1, 1},
    {"layer2 3x3/2 64>128", 1, 56, 64, 128, 3, 2, 1},
    {"layer2 3x3 128>128", 3, 28, 128, 128, 3, 1, 1},
    {"layer2 1x1/2 64>128", 1, 56, 64, 128, 1, 2, 0},
    {"layer3 3x3/2 128>256", 1, 28, 128, 256, 3, 2, 1},
    {"layer3 3x3 256>256", 3, 14, 256, 256, 3, 1, 1},
    {"layer3 1x1/2 128>256", 1, 28, 128, 256, 1, 2, 0},
    {"layer4 3x3/2 256>512", 1, 14, 256, 512, 3, 2, 1},
    {"layer4 3x3 512>512", 3, 7, 512, 512, 3, 1, 1},
    {"layer4 1x1/2 256>512", 1, 14, 256, 512, 1, 2, 0},
};

static void *make(uint64_t floats) {
    float *data = aligned_alloc(64, (floats * sizeof(float) + 64) / 64 * 64);
    for (uint64_t i = 0; data && i < floats; i++)
        data[i] = (float)(i * 2654435761u % 1000) * 1e-3f - 0.5f;
    return data;
}

static double run_best(rn_call *call, double seconds) {
    double begin = wall_seconds(), best = 1e9;
    call->workspace_bytes = rn_cpu_conv2d_workspace(call);
    call->workspace = make(call->workspace_bytes / sizeof(float));
    for (int n = 0; n < 3 || wall_seconds() - begin < seconds; n++) {
        double start = wall_seconds();
        if (rn_cpu_conv2d(call) != RN_OK) exit(1);
        double passed = wall_seconds() - start;
        best = passed < best ? passed : best;
    }
    free(call->workspace);
    return best;
}

static void tell(uint64_t batch, const char *name, double flops, double best, double peak) {
    double rate = flops / best * 1e-9;
    printf("b%llu %-25s: %9.3f ms %8.1f GFLOP/s %5.1f %% of peak\n", (unsigned long long)batch,
           name, best * 1e3, rate, 100 * rate / peak);
    fflush(stdout);
}

typedef struct total {
    double seconds, flops;
} total;

static void measure(const layer *l, uint64_t batch, rn_workers *workers, double seconds,
                    double peak, total *sum) {
    uint64_t out = (l->size + 2 * l->pad - l->kernel) / l->stride + 1;
    rn_conv2d_attrs attrs = {l->stride, l->stride, l->pad, l->pad, l->pad, l->pad};
    uint64_t weights = l->outputs * l->channels * l->kernel * l->kernel;
    rn_tensor in[3] = {{make(batch * l->size * l->size * l->channels), RN_DTYPE_F32,
                        RN_LAYOUT_PLAIN, RN_SHAPE(batch, l->size, l->size, l->channels)},
                       {make(weights), RN_DTYPE_F32, RN_LAYOUT_CONV_PANELS,
                        RN_SHAPE(l->outputs, l->channels, l->kernel, l->kernel)},
                       {0}};
    rn_tensor y = {make(batch * out * out * l->outputs), RN_DTYPE_F32, RN_LAYOUT_PLAIN,
                   RN_SHAPE(batch, out, out, l->outputs)};
    rn_call call = {.op = RN_OP_CONV2D,
                    .attrs = &attrs,
                    .inputs = in,
                    .outputs = &y,
                    .input_count = 3,
                    .output_count = 1,
                    .workers = workers,
                    .threads = (uint32_t)rn_workers_count(workers)};
    double best = run_best(&call, seconds);
    double flops = 2.0 * (double)(batch * out * out) * (double)weights;
    tell(batch, l->name, flops, best, peak);
    sum->seconds += l->times * best;
    sum->flops += l->times * flops;
    free(in[0].data), free(in[1].data), free(y.data);
}

int main(int argc, char **argv) {
    size_t threads = argc > 1 ? (size_t)atoi(argv[1]) : 0;
    double seconds = argc > 2 ? atof(argv[2]) : 1;
    rn_workers *workers;
    if (rn_workers_create(threads, &rn_system_allocator, &workers) != RN_OK) return 1;
    double peak = peak_gflops(workers, seconds);
    printf("%-28s: %23.1f GFLOP/s on %zu threads\n", "peak", peak, rn_workers_count(workers));
    for (uint64_t batch = 1; batch <= 8; batch += 7) {
        total sum = {0, 0};
        for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
            measure(&layers[i], batch, workers, seconds, peak, &sum);
        tell(batch, "all 20 convolutions", sum.flops, sum.seconds, peak);
    }
    rn_workers_destroy(workers);
}

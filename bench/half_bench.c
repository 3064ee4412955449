// half_bench.c — products in 16 bits as training asks for them on the first GPU, and the loss of a
// head without its logits.
//
//     half_bench [products] [loss [TOKENS CLASSES WIDTH]]
//
// A product (tokens x out x in) comes in three forms: forward y = x wᵀ, dx = dy w, and dw = dyᵀ x
// (in f32). What is printed is the best of several rounds, each long enough to hide the host. The
// loss: time with both gradients, and bytes of gradients and workspace, by the ledger.
#include "backend/cuda/rows.h"
#include "base/checked.h"
#include "device/device.h"
#include "graph/linear_loss.h"

#include <ration/cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 5, PATTERN = 1 << 20 };

static rn_device *gpu;
static rn_queue *queue;
static uint16_t *pattern; // (PATTERN) of bf16

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void want(rn_status status) {
    if (status == RN_OK) return;
    fprintf(stderr, "half_bench: %s (%s)\n", rn_last_error()->message, rn_last_error()->hint);
    exit(1);
}

static rn_device_memory take(uint64_t bytes) {
    uint64_t purposes[RN_PURPOSE_COUNT] = {[RN_PURPOSE_ACTIVATIONS] = bytes};
    rn_device_memory memory;
    want(rn_device_memory_take(gpu, purposes, &memory));
    return memory;
}

static void fill(rn_device_memory memory) {
    for (uint64_t at = 0; at < memory.bytes; at += PATTERN * 2)
        rn_queue_copy_in(queue, memory.base + at, pattern,
                         rn_min_u64(PATTERN * 2, memory.bytes - at));
    want(rn_queue_finish(queue));
}

// Seconds of one call.
static double measure(const rn_call *call, double at_least) {
    double best = 1e9;
    int count = 1;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = seconds();
        for (int i = 0; i < count; i++)
            rn_queue_launch(queue, &gpu->caps.kernels[call->op], call);
        want(rn_queue_finish(queue));
        double each = (seconds() - begin) / count;
        if (round > 0 && each < best) best = each;
        count = (int)(at_least / each) + 1;
    }
    return best;
}

// ---- products -----------------------------------------------------------------------------------

static double measure_product(uint64_t m, uint64_t n, uint64_t k, bool turn_x, bool turn_w,
                              rn_dtype w_dtype, rn_dtype out) {
    rn_tensor t[4] = {
        {NULL, RN_DTYPE_BF16, RN_LAYOUT_PLAIN, turn_x ? RN_SHAPE(k, m) : RN_SHAPE(m, k)},
        {NULL, w_dtype, RN_LAYOUT_PLAIN, turn_w ? RN_SHAPE(k, n) : RN_SHAPE(n, k)},
        {0},
        {NULL, out, RN_LAYOUT_PLAIN, RN_SHAPE(m, n)}};
    rn_matmul_attrs attrs = {
        .transpose_x = turn_x, .transpose_w = turn_w, .unquantised_activations = true};
    rn_call call = {.op = RN_OP_MATMUL,
                    .attrs = &attrs,
                    .inputs = t,
                    .outputs = &t[3],
                    .input_count = 3,
                    .output_count = 1};
    call.workspace_bytes = rn_cuda_kernels[call.op].workspace(&call);
    rn_device_memory memory[5] = {take(rn_tensor_bytes(&t[0])),
                                  take(rn_tensor_bytes(&t[1])),
                                  {0},
                                  take(rn_tensor_bytes(&t[3])),
                                  take(call.workspace_bytes)};
    fill(memory[0]);
    fill(memory[1]);
    for (int i = 0; i < 4; i++)
        t[i].data = memory[i].base;
    call.workspace = memory[4].base;
    double best = measure(&call, 0.02);
    for (int i = 0; i < 5; i++)
        rn_device_memory_release(&memory[i]);
    return best;
}

static void print_forms(uint64_t tokens, uint64_t out, uint64_t in, rn_dtype w) {
    double flops = 2.0 * (double)tokens * (double)out * (double)in / 1e12;
    double forward = measure_product(tokens, out, in, false, false, w, RN_DTYPE_BF16);
    double back = measure_product(tokens, in, out, false, true, w, RN_DTYPE_BF16);
    printf("%6llu x %6llu x %6llu %-5s  y = x w' %6.1f TFLOP/s %8.1f us   dx = dy w %6.1f %8.1f us",
           (unsigned long long)tokens, (unsigned long long)out, (unsigned long long)in,
           rn_dtype_get(w)->name, flops / forward, forward * 1e6, flops / back, back * 1e6);
    if (w == RN_DTYPE_BF16) {
        double dw = measure_product(out, in, tokens, true, true, RN_DTYPE_BF16, RN_DTYPE_F32);
        printf("   dw = dy' x %6.1f %8.1f us", flops / dw, dw * 1e6);
    }
    printf("\n");
    fflush(stdout);
}

static void run_products(void) {
    static const uint64_t sizes[][3] = {
        {4096, 4096, 4096}, {4096, 14336, 4096}, {4096, 4096, 14336}, {4096, 1024, 4096},
        {4096, 16, 4096},   {4096, 4096, 16},    {4096, 14336, 16},   {4096, 128256, 2048}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        print_forms(sizes[i][0], sizes[i][1], sizes[i][2], RN_DTYPE_BF16);
    static const rn_dtype kinds[] = {RN_DTYPE_NF4, RN_DTYPE_Q8_0, RN_DTYPE_INT8, RN_DTYPE_Q4_K,
                                     RN_DTYPE_F32};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        print_forms(4096, 14336, 4096, kinds[i]);
}

// ---- the loss -----------------------------------------------------------------------------------

static void run_loss(uint64_t tokens, uint64_t classes, uint64_t width, rn_dtype dw_dtype,
                     bool frozen) {
    rn_tensor t[6] = {{NULL, RN_DTYPE_BF16, RN_LAYOUT_PLAIN, RN_SHAPE(tokens, width)},
                      {NULL, RN_DTYPE_BF16, RN_LAYOUT_PLAIN, RN_SHAPE(classes, width)},
                      {NULL, RN_DTYPE_I32, RN_LAYOUT_PLAIN, RN_SHAPE(tokens)},
                      {NULL, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SCALAR},
                      {NULL, RN_DTYPE_BF16, RN_LAYOUT_PLAIN, RN_SHAPE(tokens, width)},
                      {NULL, dw_dtype, RN_LAYOUT_PLAIN, RN_SHAPE(classes, width)}};
    rn_cross_entropy_attrs attrs = {.ignore = -100, .normalizer = RN_NO_SCALAR};
    rn_call call = {.op = RN_OP_LINEAR_CROSS_ENTROPY,
                    .attrs = &attrs,
                    .inputs = t,
                    .outputs = &t[3],
                    .input_count = 3,
                    .output_count = 3};
    uint64_t inputs = 0, outputs = 0;
    call.workspace_bytes = rn_cuda_kernels[call.op].workspace(&call);
    rn_device_memory memory[7] = {{0}};
    for (int i = 0; i < 6; i++) {
        if (i == 5 && frozen) continue;
        memory[i] = take(rn_tensor_bytes(&t[i]));
        t[i].data = memory[i].base;
        *(i < 3 ? &inputs : &outputs) += memory[i].bytes;
    }
    memory[6] = take(call.workspace_bytes);
    call.workspace = memory[6].base;
    fill(memory[0]);
    fill(memory[1]);
    int32_t *targets = malloc(tokens * sizeof *targets);
    for (uint64_t i = 0; targets && i < tokens; i++)
        targets[i] = (int32_t)(i * 7919 % classes);
    rn_queue_copy_in(queue, t[2].data, targets, tokens * sizeof *targets);
    double best = measure(&call, 0.05);
    float loss = 0;
    rn_queue_copy_out(queue, &loss, t[3].data, sizeof loss);
    want(rn_queue_finish(queue));
    double flops = (frozen ? 4.0 : 6.0) * (double)tokens * (double)classes * (double)width / 1e12;
    printf("loss of %llu x %llu x %llu, %s: %.1f ms, %.0f TFLOP/s; gradients and loss %.3f GB, "
           "workspace %.3f GB, inputs %.3f GB, together %.3f GB; loss %.5f\n",
           (unsigned long long)tokens, (unsigned long long)classes, (unsigned long long)width,
           frozen ? "frozen head" : rn_dtype_get(dw_dtype)->name, best * 1e3, flops / best,
           (double)outputs / 1e9, (double)call.workspace_bytes / 1e9, (double)inputs / 1e9,
           (double)(outputs + inputs + call.workspace_bytes) / 1e9, (double)loss);
    fflush(stdout);
    for (int i = 0; i < 7; i++)
        rn_device_memory_release(&memory[i]);
    free(targets);
}

// ---- the program --------------------------------------------------------------------------------

static void make_pattern(void) {
    uint32_t seed = 1;
    pattern = malloc(PATTERN * sizeof *pattern);
    if (!pattern) exit(1);
    for (int i = 0; i < PATTERN; i++) { // in +-[2^-7, 2^-3)
        seed = seed * 1664525u + 1013904223u;
        pattern[i] =
            (uint16_t)((seed >> 31 << 15) | ((120 + (seed >> 24) % 4) << 7) | (seed >> 8 & 127));
    }
}

static uint64_t number(const char *text) {
    return strtoull(text, NULL, 10);
}

int main(int argc, char **argv) {
    bool all = argc < 2;
    want(rn_cuda_device_create(0, 1, &gpu));
    want(gpu->open_queue(gpu, RN_QUEUE_COMPUTE, NULL, &queue));
    make_pattern();
    uint64_t before = rn_cuda_device_unaccounted(gpu);
    if (all || strcmp(argv[1], "products") == 0) run_products();
    if (all || strcmp(argv[1], "loss") == 0) {
        uint64_t tokens = argc > 4 ? number(argv[2]) : 16384;
        uint64_t classes = argc > 4 ? number(argv[3]) : 248320;
        uint64_t width = argc > 4 ? number(argv[4]) : 2048;
        run_loss(tokens, classes, width, RN_DTYPE_BF16, false);
        run_loss(tokens, classes, width, RN_DTYPE_F32, false);
        run_loss(tokens, classes, width, RN_DTYPE_BF16, true);
    }
    uint64_t after = 0;
    want(rn_cuda_device_measure(gpu, &after));
    printf("unaccounted on the device: %.1f MB before, %.1f MB after\n", (double)before / 1e6,
           (double)after / 1e6);
    rn_queue_destroy(queue);
    rn_device_destroy(gpu);
    free(pattern);
    return 0;
}

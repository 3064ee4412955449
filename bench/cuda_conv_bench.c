// cuda_conv_bench.c — how fast a GPU's convolutions are: those of the UNets of SD1.5 (512 x 512)
// and SDXL (1024 x 1024), batch 2, and of their decoder at 1024 x 1024, in bf16, each as often as
// it occurs; forward and the gradients.
//
//     cuda_conv_bench [grad]
//
// Lines: the shape, how often, microseconds, TFLOP/s. Calls follow each other over two copies of
// their tensors; the best of several rounds. Weights lie as a plan would have them.
#include "backend/cuda/rows.h"
#include "base/checked.h"
#include "device/device.h"
#include "graph/op/grads.h"

#include <ration/cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 4, CALLS = 20, COPIES = 2 };
static const uint64_t BLOCK = 8ull << 30;

static rn_device *gpu;
static rn_queue *queue;
static rn_device_memory memory;

static void must(rn_status status) {
    if (status == RN_OK) return;
    fprintf(stderr, "%s\n", rn_last_error()->message);
    exit(status == RN_UNSUPPORTED || status == RN_NOT_FOUND ? 77 : 1);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

typedef struct layer {
    uint32_t times;
    uint64_t n, size, c, o, kernel;
    uint32_t stride;
} layer;

typedef struct network {
    const char *name;
    layer layers[32];
} network;

static const network networks[] = {
    {"sdxl",
     {{1, 2, 128, 4, 320, 3, 1},    {7, 2, 128, 320, 320, 3, 1},   {1, 2, 128, 320, 320, 3, 2},
      {1, 2, 64, 320, 640, 3, 1},   {6, 2, 64, 640, 640, 3, 1},    {1, 2, 64, 640, 640, 3, 2},
      {1, 2, 32, 640, 1280, 3, 1},  {10, 2, 32, 1280, 1280, 3, 1}, {2, 2, 32, 2560, 1280, 3, 1},
      {1, 2, 32, 1920, 1280, 3, 1}, {1, 2, 64, 1280, 1280, 3, 1},  {1, 2, 64, 1920, 640, 3, 1},
      {1, 2, 64, 1280, 640, 3, 1},  {1, 2, 64, 960, 640, 3, 1},    {1, 2, 128, 640, 640, 3, 1},
      {1, 2, 128, 960, 320, 3, 1},  {2, 2, 128, 640, 320, 3, 1},   {1, 2, 128, 320, 4, 3, 1},
      {1, 2, 64, 320, 640, 1, 1},   {1, 2, 32, 640, 1280, 1, 1},   {2, 2, 32, 2560, 1280, 1, 1},
      {1, 2, 64, 1920, 640, 1, 1},  {1, 2, 128, 960, 320, 1, 1},   {2, 2, 128, 640, 320, 1, 1}}},
    {"sd15",
     {{1, 2, 64, 4, 320, 3, 1},      {7, 2, 64, 320, 320, 3, 1},   {1, 2, 64, 320, 320, 3, 2},
      {1, 2, 32, 320, 640, 3, 1},    {6, 2, 32, 640, 640, 3, 1},   {1, 2, 32, 640, 640, 3, 2},
      {1, 2, 16, 640, 1280, 3, 1},   {6, 2, 16, 1280, 1280, 3, 1}, {1, 2, 16, 1280, 1280, 3, 2},
      {11, 2, 8, 1280, 1280, 3, 1},  {3, 2, 8, 2560, 1280, 3, 1},  {1, 2, 16, 1280, 1280, 3, 1},
      {2, 2, 16, 2560, 1280, 3, 1},  {1, 2, 16, 1920, 1280, 3, 1}, {1, 2, 32, 1280, 1280, 3, 1},
      {1, 2, 32, 1920, 640, 3, 1},   {1, 2, 32, 1280, 640, 3, 1},  {1, 2, 32, 960, 640, 3, 1},
      {1, 2, 64, 640, 640, 3, 1},    {1, 2, 64, 960, 320, 3, 1},   {2, 2, 64, 640, 320, 3, 1},
      {1, 2, 64, 320, 4, 3, 1},      {10, 2, 64, 320, 320, 1, 1},  {10, 2, 32, 640, 640, 1, 1},
      {12, 2, 16, 1280, 1280, 1, 1}, {3, 2, 8, 2560, 1280, 1, 1}}},
    {"vae",
     {{1, 1, 128, 4, 512, 3, 1},
      {10, 1, 128, 512, 512, 3, 1},
      {7, 1, 256, 512, 512, 3, 1},
      {1, 1, 512, 512, 512, 3, 1},
      {1, 1, 512, 512, 256, 3, 1},
      {5, 1, 512, 256, 256, 3, 1},
      {1, 1, 1024, 256, 256, 3, 1},
      {1, 1, 1024, 256, 128, 3, 1},
      {5, 1, 1024, 128, 128, 3, 1},
      {1, 1, 1024, 128, 3, 3, 1}}},
    {"resnet18, batch 64",
     {{1, 64, 224, 3, 64, 7, 2},
      {4, 64, 56, 64, 64, 3, 1},
      {3, 64, 28, 128, 128, 3, 1},
      {3, 64, 14, 256, 256, 3, 1},
      {3, 64, 7, 512, 512, 3, 1}}},
};

static void fill_block(void) {
    const uint64_t bytes = 64 << 20;
    uint16_t *host = malloc(bytes);
    uint32_t seed = 1;
    if (!host) exit(1);
    for (uint64_t i = 0; i < bytes / 2; i++) {
        seed = seed * 1664525u + 1013904223u;
        host[i] = (uint16_t)(0x3c00u | (seed >> 16 & 0x83ffu));
    }
    for (uint64_t at = 0; at < BLOCK; at += bytes)
        rn_queue_copy_in(queue, memory.base + at, host, bytes);
    must(rn_queue_finish(queue));
    free(host);
}

static rn_tensor place(rn_shape shape, rn_dtype dtype, uint64_t *at) {
    rn_tensor t = {NULL, dtype, RN_LAYOUT_PLAIN, shape};
    t.data = memory.base + *at;
    *at += rn_round_up(rn_tensor_bytes(&t), 1024);
    if (*at > BLOCK) {
        fprintf(stderr, "the block is full\n");
        exit(1);
    }
    return t;
}

static double time_calls(rn_call *calls) {
    const rn_kernel *kernel = &rn_cuda_kernels[calls[0].op];
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = seconds();
        for (uint32_t i = 0; i < CALLS; i++)
            rn_queue_launch(queue, kernel, &calls[i % COPIES]);
        must(rn_queue_finish(queue));
        double each = (seconds() - begin) / CALLS;
        if (round > 0 && each < best) best = each;
    }
    return best;
}

// which: 0 forward, 1 by x, 2 by w.
static double time_layer(const layer *l, int which, rn_dtype dtype) {
    uint32_t pad = (uint32_t)(l->kernel / 2);
    rn_conv2d_attrs attrs = {l->stride, l->stride, pad, pad, pad, pad};
    uint64_t out = (l->size + 2 * pad - l->kernel) / l->stride + 1, at = 0;
    rn_shape x = RN_SHAPE(l->n, l->size, l->size, l->c), y = RN_SHAPE(l->n, out, out, l->o),
             w = RN_SHAPE(l->o, l->c, l->kernel, l->kernel);
    rn_conv2d_grad_input_attrs by_x = {attrs, x};
    rn_conv2d_grad_weight_attrs by_w = {attrs, l->kernel, l->kernel};
    rn_tensor in[COPIES][3], results[COPIES];
    rn_call calls[COPIES];
    for (int i = 0; i < COPIES; i++) {
        rn_tensor image = place(x, dtype, &at), weight = place(w, dtype, &at);
        rn_tensor made = place(y, dtype, &at), bias = place(RN_SHAPE(l->o), RN_DTYPE_F32, &at);
        calls[i] = (rn_call){.op = RN_OP_CONV2D,
                             .attrs = &attrs,
                             .inputs = in[i],
                             .outputs = &results[i],
                             .input_count = which ? 2 : 3,
                             .output_count = 1,
                             .threads = 1};
        in[i][0] = image, in[i][1] = weight, in[i][2] = bias;
        results[i] = made;
        if (which == 0) in[i][1].layout = rn_cuda_weight_layout(&calls[i], 1);
        if (which == 1) {
            calls[i].op = RN_OP_CONV2D_GRAD_INPUT, calls[i].attrs = &by_x;
            in[i][0] = weight, in[i][1] = made, results[i] = image;
            in[i][0].layout = rn_cuda_weight_layout(&calls[i], 0);
        } else if (which == 2) {
            calls[i].op = RN_OP_CONV2D_GRAD_WEIGHT, calls[i].attrs = &by_w;
            in[i][1] = made, results[i] = place(w, RN_DTYPE_F32, &at);
        }
    }
    uint64_t bytes = rn_cuda_kernels[calls[0].op].workspace(&calls[0]);
    rn_tensor workspace = place(RN_SHAPE(bytes), RN_DTYPE_U8, &at);
    for (int i = 0; i < COPIES; i++) {
        calls[i].workspace = workspace.data;
        calls[i].workspace_bytes = bytes;
    }
    return time_calls(calls);
}

static void bench(const network *net, int which, rn_dtype dtype) {
    static const char *const names[] = {"forward", "by x", "by w"};
    double all = 0, all_flops = 0;
    printf("%s, %s, %s\n", net->name, names[which], rn_dtype_get(dtype)->name);
    for (const layer *l = net->layers; l->times; l++) {
        uint64_t out = (l->size - 1) / l->stride + 1;
        double flops =
            2.0 * (double)(l->n * out * out * l->o) * (double)(l->c * l->kernel * l->kernel);
        double each = time_layer(l, which, dtype);
        all += each * l->times, all_flops += flops * l->times;
        printf("  %2u x %llu x %4llu^2 %4llu > %4llu  %llux%llu/%u %9.1f us %7.1f TFLOP/s\n",
               l->times, (unsigned long long)l->n, (unsigned long long)l->size,
               (unsigned long long)l->c, (unsigned long long)l->o, (unsigned long long)l->kernel,
               (unsigned long long)l->kernel, l->stride, each * 1e6, flops / each * 1e-12);
        fflush(stdout);
    }
    printf("  all convolutions: %.2f ms, %.1f TFLOP/s\n", all * 1e3, all_flops / all * 1e-12);
}

int main(int argc, char **argv) {
    uint64_t purposes[RN_PURPOSE_COUNT] = {[RN_PURPOSE_ACTIVATIONS] = BLOCK};
    bool grad = argc > 1 && strcmp(argv[1], "grad") == 0;
    must(rn_cuda_device_create(0, 1, &gpu));
    must(gpu->open_queue(gpu, RN_QUEUE_COMPUTE, NULL, &queue));
    must(rn_device_memory_take(gpu, purposes, &memory));
    fill_block();
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        for (int which = 0; which < (grad && i == 0 ? 3 : 1); which++)
            bench(&networks[i], which, RN_DTYPE_BF16);
    bench(&networks[3], 0, RN_DTYPE_F32);
    rn_queue_destroy(queue);
    rn_device_memory_release(&memory);
    rn_device_destroy(gpu);
    return 0;
}

// cuda_attention_bench.c — attention of a training step on a GPU, forward and backward: TFLOP/s,
// and what part of the matrix units' rate that is.
//
//     cuda_attention_bench [TFLOP/S [BATCH TOKENS HEADS KV_HEADS DIMS [WINDOW [DOCUMENT]]]]
//
// TFLOP/S: what the matrix units give (989: an H200's, dense, in bf16). DOCUMENT: tokens of each of
// the documents that are packed one behind the other. Without sizes those of Llama-3.1-8B and
// Llama-3.2-1B. Counted are the products of what is seen, two forward and five backward, though the
// backward pass makes seven. bf16 throughout, causal; the best of several rounds.
#include "backend/cuda/rows.h"
#include "base/checked.h"
#include "device/device.h"

#include <ration/cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 6, CALLS = 20 };
enum { Q, K, V, DOCUMENTS, Y, TOTAL, DY, DQ, DK, DV, TENSORS };

static rn_device *gpu;
static rn_queue *queue;
static double rate = 989;

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

typedef struct sizes {
    uint64_t batch, tokens, heads, kv_heads, dims, window, document;
} sizes;

static void describe(const sizes *s, rn_tensor *tensors) {
    rn_shape q = RN_SHAPE(s->batch, s->tokens, s->heads, s->dims);
    rn_shape k = RN_SHAPE(s->batch, s->tokens, s->kv_heads, s->dims);
    for (int i = 0; i < TENSORS; i++)
        tensors[i] = (rn_tensor){.dtype = RN_DTYPE_BF16,
                                 .layout = RN_LAYOUT_PLAIN,
                                 .shape = i == K || i == V || i == DK || i == DV ? k : q};
    tensors[TOTAL].dtype = RN_DTYPE_F32;
    tensors[TOTAL].shape = RN_SHAPE(s->batch, s->heads, s->tokens);
    tensors[DOCUMENTS] = (rn_tensor){0};
    if (s->document)
        tensors[DOCUMENTS] = (rn_tensor){.dtype = RN_DTYPE_I32,
                                         .layout = RN_LAYOUT_PLAIN,
                                         .shape = RN_SHAPE(s->batch, s->tokens)};
}

// Numbers of -1 to 1; the beginnings of documents.
static void fill(const rn_tensor *tensor, const sizes *s) {
    uint64_t n = rn_tensor_elements(tensor), bytes = rn_tensor_bytes(tensor);
    void *host = malloc(bytes);
    uint32_t seed = 1;
    if (!host) exit(1);
    for (uint64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        if (tensor->dtype == RN_DTYPE_I32)
            ((int32_t *)host)[i] = (int32_t)(i % s->tokens / s->document * s->document);
        else if (tensor->dtype == RN_DTYPE_BF16)
            ((uint16_t *)host)[i] = (uint16_t)(0x3e00u | (seed >> 16 & 0x817fu));
        else
            ((float *)host)[i] = 0;
    }
    rn_queue_copy_in(queue, tensor->data, host, bytes);
    must(rn_queue_finish(queue));
    free(host);
}

static double time_call(const rn_call *call) {
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = seconds();
        for (int i = 0; i < CALLS; i++)
            rn_queue_launch(queue, &rn_cuda_kernels[call->op], call);
        must(rn_queue_finish(queue));
        double each = (seconds() - begin) / CALLS;
        if (round > 0 && each < best) best = each;
    }
    return best;
}

// Keys that a query sees, in the middle.
static double count_keys(const sizes *s) {
    double tokens = (double)s->tokens, window = (double)s->window;
    if (s->document && s->document < s->tokens) tokens = (double)s->document;
    if (s->window == 0 || window >= tokens) return (tokens + 1) / 2;
    return window - (window - 1) * window / 2 / tokens;
}

static void bench(const sizes *s) {
    rn_attention_attrs attrs = {.causal = true, .window = (uint32_t)s->window};
    rn_tensor tensors[TENSORS];
    rn_call forward = {.op = RN_OP_ATTENTION,
                       .attrs = &attrs,
                       .inputs = tensors,
                       .input_count = 4,
                       .outputs = tensors + Y,
                       .output_count = 2,
                       .threads = 1};
    rn_call backward = {.op = RN_OP_ATTENTION_GRAD,
                        .attrs = &attrs,
                        .inputs = tensors,
                        .input_count = 7,
                        .outputs = tensors + DQ,
                        .output_count = 3,
                        .threads = 1};
    describe(s, tensors);
    uint64_t workspace = rn_cuda_attention_grad_workspace(&backward), bytes = 0;
    for (int i = 0; i < TENSORS; i++)
        bytes += rn_round_up(rn_tensor_bytes(&tensors[i]), 256);
    uint64_t purposes[RN_PURPOSE_COUNT] = {[RN_PURPOSE_ACTIVATIONS] = bytes + workspace};
    rn_device_memory memory;
    must(rn_device_memory_take(gpu, purposes, &memory));
    uint8_t *at = memory.base;
    for (int i = 0; i < TENSORS; i++) {
        if (tensors[i].dtype == RN_DTYPE_NONE) continue;
        tensors[i].data = at;
        at += rn_round_up(rn_tensor_bytes(&tensors[i]), 256);
        fill(&tensors[i], s);
    }
    backward.workspace = at;
    backward.workspace_bytes = workspace;
    double flops = 4 * (double)rn_tensor_elements(&tensors[Q]) * count_keys(s);
    double there = time_call(&forward), back = time_call(&backward);
    printf("(%llu, %llu), %llu / %llu heads of %llu, window %llu, documents of %llu: "
           "forward %.1f us, %.0f TFLOP/s, %.0f %%; backward %.1f us, %.0f TFLOP/s, %.0f %%\n",
           (unsigned long long)s->batch, (unsigned long long)s->tokens,
           (unsigned long long)s->heads, (unsigned long long)s->kv_heads,
           (unsigned long long)s->dims, (unsigned long long)s->window,
           (unsigned long long)s->document, there * 1e6, flops / there / 1e12,
           flops / there / 1e10 / rate, back * 1e6, 2.5 * flops / back / 1e12,
           2.5 * flops / back / 1e10 / rate);
    fflush(stdout);
    rn_device_memory_release(&memory);
}

int main(int argc, char **argv) {
    uint64_t given[7] = {0};
    if (argc > 1) rate = strtod(argv[1], NULL);
    for (int i = 2; i < argc && i < 9; i++)
        given[i - 2] = strtoull(argv[i], NULL, 10);
    must(rn_cuda_device_create(0, 1, &gpu));
    must(gpu->open_queue(gpu, RN_QUEUE_COMPUTE, NULL, &queue));
    if (argc > 6) {
        bench(&(sizes){given[0], given[1], given[2], given[3], given[4], given[5], given[6]});
    } else {
        bench(&(sizes){2, 2048, 32, 8, 128, 0, 0});
        bench(&(sizes){2, 2048, 32, 8, 128, 512, 0});
        bench(&(sizes){2, 2048, 32, 8, 128, 0, 256});
        bench(&(sizes){1, 8192, 32, 8, 128, 0, 0});
        bench(&(sizes){4, 1024, 32, 8, 64, 0, 0});
    }
    rn_queue_destroy(queue);
    rn_device_destroy(gpu);
    return 0;
}

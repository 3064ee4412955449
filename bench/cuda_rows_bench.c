// cuda_rows_bench.c — how fast a GPU's kernels over elements and rows are, those of a training
// step: GB/s of what a call must read and write, and what part of the memory's rate that is.
//
//     cuda_rows_bench [GB/S [ROWS COLS]]
//
// GB/S: what the memory gives (4,200: an H200's); without ROWS and COLS (4096, 4096) and
// (4096, 14336). Calls follow each other over several copies of their tensors, more than the cache
// holds; the best of several rounds.
#include "backend/cuda/rows.h"
#include "base/checked.h"
#include "device/device.h"

#include <ration/cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 5, CALLS = 40, HEAD = 128, WORDS = 32000, TENSORS = 12 };
static const uint64_t BLOCK = 4ull << 30;

static rn_device *gpu;
static rn_queue *queue;
static rn_device_memory memory;
static const rn_scalar scalars[] = {{1e-3}, {7}};

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

// ---- calls --------------------------------------------------------------------------------------

// Tensors are pairs of letters, inputs and behind '>' outputs. Shapes: M (rows, cols), C (cols),
// R (rows), B blocks of 256 of M, S (), H (rows, heads, 128), T (32000 words, cols), L logits
// (rows / 2, 128256), N the
// rows of those, - none. Types: f32, bf16, int32, u8.
typedef struct bench_row {
    const char *name, *tensors;
    rn_op op;
    const void *attrs;
} bench_row;

static const rn_scale_attrs scale = {.factor = 2};
static const rn_gated_attrs gate = {.activation = RN_ACTIVATION_SILU};
static const rn_norm_attrs norm = {.eps = 1e-5f};
static const rn_rope_attrs rope = {.base = 500000};
static const rn_cross_entropy_attrs loss = {.ignore = -100, .normalizer = RN_NO_SCALAR};
static const rn_adamw_attrs adamw = {
    .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8f, .rate = 0, .step = 1};
static const rn_reduce_attrs first_axis = {.axes = 1};
static const rn_dropout_attrs dropout = {.probability = 0.1f, .seed = 1};

static const bench_row rows_of_bench[] = {
    {"add", "MbMb>Mb", RN_OP_ADD, NULL},
    {"add f32", "MfMf>Mf", RN_OP_ADD, NULL},
    {"add a row", "MbCb>Mb", RN_OP_ADD, NULL},
    {"scale", "Mb>Mb", RN_OP_SCALE, &scale},
    {"silu", "Mb>Mb", RN_OP_SILU, NULL},
    {"silu f32", "Mf>Mf", RN_OP_SILU, NULL},
    {"gelu", "Mb>Mb", RN_OP_GELU, NULL},
    {"gelu_tanh", "Mb>Mb", RN_OP_GELU_TANH, NULL},
    {"silu_grad", "MbMb>Mb", RN_OP_SILU_GRAD, NULL},
    {"gelu_grad", "MbMb>Mb", RN_OP_GELU_GRAD, NULL},
    {"gelu_tanh_grad", "MbMb>Mb", RN_OP_GELU_TANH_GRAD, NULL},
    {"gated", "MbMb>Mb", RN_OP_GATED, &gate},
    {"gated_grad", "MbMbMb>MbMb", RN_OP_GATED_GRAD, &gate},
    {"cast to bf16", "Mf>Mb", RN_OP_CAST, NULL},
    {"rmsnorm", "MbCf>MbRf", RN_OP_RMSNORM, &norm},
    {"rmsnorm f32", "MfCf>MfRf", RN_OP_RMSNORM, &norm},
    {"rmsnorm_grad, frozen", "MbCfRfMb>Mb-f", RN_OP_RMSNORM_GRAD, NULL},
    {"rmsnorm_grad", "MbCfRfMb>MbCf", RN_OP_RMSNORM_GRAD, NULL},
    {"layernorm", "MbCfCf>MbRfRf", RN_OP_LAYERNORM, &norm},
    {"layernorm_grad", "MbCfRfRfMb>MbCfCf", RN_OP_LAYERNORM_GRAD, NULL},
    {"softmax", "Mb>Mb", RN_OP_SOFTMAX, NULL},
    {"softmax_grad", "MbMb>Mb", RN_OP_SOFTMAX_GRAD, NULL},
    {"rope", "HbRi>Hb", RN_OP_ROPE, &rope},
    {"sum of columns", "Mb>Cf", RN_OP_SUM, &first_axis},
    {"sum_squares", "Mb>Sf", RN_OP_SUM_SQUARES, NULL},
    {"dropout", "Mb>Mb", RN_OP_DROPOUT, &dropout},
    {"accumulate", "MfMb>Mf", RN_OP_ACCUMULATE, NULL},
    {"adamw", "MfMbMfMf>MfMfMf", RN_OP_ADAMW, &adamw},
    {"adamw bf16", "MbMbMbMb>MbMbMb", RN_OP_ADAMW, &adamw},
    {"adamw8", "MbMbMuMuBfBf>MbMuMuBfBf", RN_OP_ADAMW8, &adamw},
    {"embedding", "TbRi>Mb", RN_OP_EMBEDDING, NULL},
    {"embedding_grad", "RiMb>Tf", RN_OP_EMBEDDING_GRAD, NULL},
    {"cross_entropy", "LbNi>SfNfSf", RN_OP_CROSS_ENTROPY, &loss},
    {"cross_entropy_grad", "LbNiNfSfSf>Lb", RN_OP_CROSS_ENTROPY_GRAD, &loss},
};

static rn_shape shape_of(char letter, uint64_t rows, uint64_t cols) {
    switch (letter) {
    case 'M':
        return RN_SHAPE(rows, cols);
    case 'C':
        return RN_SHAPE(cols);
    case 'R':
        return RN_SHAPE(rows);
    case 'B':
        return RN_SHAPE(rows * cols / 256);
    case 'H':
        return RN_SHAPE(rows, cols / HEAD, HEAD);
    case 'T':
        return RN_SHAPE(WORDS, cols);
    case 'L':
        return RN_SHAPE(rows / 2, 128256);
    case 'N':
        return RN_SHAPE(rows / 2);
    default:
        return RN_SCALAR;
    }
}

static rn_dtype dtype_of(char letter) {
    return letter == 'b'   ? RN_DTYPE_BF16
           : letter == 'i' ? RN_DTYPE_I32
           : letter == 'u' ? RN_DTYPE_U8
                           : RN_DTYPE_F32;
}

static void describe(const bench_row *row, uint64_t rows, uint64_t cols, rn_tensor *tensors,
                     rn_call *out) {
    uint32_t count = 0;
    *out = (rn_call){
        .op = row->op, .attrs = row->attrs, .inputs = tensors, .scalars = scalars, .threads = 1};
    for (const char *t = row->tensors; *t; t += *t == '>' ? 1 : 2) {
        if (*t == '>') {
            out->input_count = count;
            out->outputs = tensors + count;
            continue;
        }
        tensors[count++] = (rn_tensor){.dtype = dtype_of(t[1]),
                                       .layout = RN_LAYOUT_PLAIN,
                                       .shape = shape_of(*t == '-' ? 'C' : *t, rows, cols)};
    }
    out->output_count = count - out->input_count;
}

// All of the block: numbers of 0.01 to 2, whether they are read as f32 or as bf16.
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

// Ids, targets and positions: words.
static void fill_ids(const rn_tensor *tensor) {
    uint64_t n = rn_tensor_elements(tensor);
    int32_t *host = malloc(n * sizeof *host);
    uint32_t seed = 1;
    if (!host) exit(1);
    for (uint64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        host[i] = (int32_t)((seed >> 8) % WORDS);
    }
    rn_queue_copy_in(queue, tensor->data, host, n * sizeof *host);
    must(rn_queue_finish(queue));
    free(host);
}

// ---- timing -------------------------------------------------------------------------------------

// Places for one more copy of the call's tensors; false where the block is full. A letter '-' and
// what an op updates in place has none of its own.
static bool place(const bench_row *row, rn_call *call, rn_tensor *tensors, uint64_t *at) {
    const char *letter = row->tensors;
    for (uint32_t i = 0; i < call->input_count + call->output_count; i++, letter += 2) {
        uint64_t offset = 0, bytes = rn_round_up(rn_tensor_bytes(&tensors[i]), 256);
        bool output = i >= call->input_count;
        rn_alias alias = {0};
        if (*letter == '>') letter++;
        if (output) alias = rn_call_alias(call, i - call->input_count, &offset);
        tensors[i].data = NULL;
        if (*letter == '-') continue;
        if (output && alias.kind == RN_ALIAS_KIND_MUST) {
            tensors[i].data = tensors[alias.input].data;
            continue;
        }
        if (*at + bytes > BLOCK) return false;
        tensors[i].data = memory.base + *at;
        if (tensors[i].dtype == RN_DTYPE_I32) fill_ids(&tensors[i]);
        *at += bytes;
    }
    return true;
}

static double time_row(const bench_row *row, uint64_t rows, uint64_t cols, double *out_bytes) {
    enum { COPIES = 8 };
    static rn_tensor tensors[COPIES][TENSORS];
    rn_call calls[COPIES];
    uint32_t copies = 0;
    uint64_t at = 0, workspace;
    describe(row, rows, cols, tensors[0], &calls[0]);
    workspace =
        rn_cuda_kernels[row->op].workspace ? rn_cuda_kernels[row->op].workspace(&calls[0]) : 0;
    at = rn_round_up(workspace, 256);
    for (; copies < COPIES; copies++) {
        describe(row, rows, cols, tensors[copies], &calls[copies]);
        calls[copies].workspace = memory.base;
        calls[copies].workspace_bytes = workspace;
        if (!place(row, &calls[copies], tensors[copies], &at)) break;
        if (at > (600u << 20)) {
            copies++;
            break;
        }
    }
    double best = 1e9;
    *out_bytes = 0;
    const char *letter = row->tensors;
    for (uint32_t i = 0; i < calls[0].input_count + calls[0].output_count; i++, letter += 2) {
        if (*letter == '>') letter++;
        // Of a table the rows that are looked up.
        double bytes = (double)rn_tensor_bytes(&tensors[0][i]);
        if (*letter == 'T' && i == 0) bytes = (double)(rows * cols * 2);
        if (tensors[0][i].data) *out_bytes += bytes;
    }
    for (int round = 0; round < ROUNDS; round++) {
        double begin = seconds();
        for (uint32_t i = 0; i < CALLS; i++)
            rn_queue_launch(queue, &rn_cuda_kernels[row->op], &calls[i % copies]);
        must(rn_queue_finish(queue));
        double each = (seconds() - begin) / CALLS;
        if (round > 0 && each < best) best = each;
    }
    return best;
}

static void bench(double rate, uint64_t rows, uint64_t cols) {
    printf("(%llu, %llu)\n", (unsigned long long)rows, (unsigned long long)cols);
    for (size_t i = 0; i < sizeof rows_of_bench / sizeof *rows_of_bench; i++) {
        const bench_row *row = &rows_of_bench[i];
        double bytes = 0, each = time_row(row, rows, cols, &bytes);
        printf("  %-22s %8.1f us %7.0f GB/s %4.0f %%\n", row->name, each * 1e6, bytes / each / 1e9,
               bytes / each / 1e7 / rate);
    }
}

int main(int argc, char **argv) {
    double rate = argc > 1 ? strtod(argv[1], NULL) : 4200;
    uint64_t purposes[RN_PURPOSE_COUNT] = {[RN_PURPOSE_ACTIVATIONS] = BLOCK};
    must(rn_cuda_device_create(0, 1, &gpu));
    must(gpu->open_queue(gpu, RN_QUEUE_COMPUTE, NULL, &queue));
    must(rn_device_memory_take(gpu, purposes, &memory));
    fill_block();
    if (argc > 3) {
        bench(rate, strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
    } else {
        bench(rate, 4096, 4096);
        bench(rate, 4096, 14336);
    }
    rn_queue_destroy(queue);
    rn_device_memory_release(&memory);
    rn_device_destroy(gpu);
    return 0;
}

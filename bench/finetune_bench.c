// finetune_bench.c — training steps of a language model's shape, with made-up weights: what a
// device does in a second, and what of its memory that takes.
//
//     finetune_bench MODEL METHOD BATCH TOKENS [KEY=VALUE ...] [ops] [plan]
//
//     MODEL    llama-8b, llama-1b, mistral-7b, small, tiny
//     METHOD   lora (rank 16, every matrix of the layers) or full
//     device=cuda:0 (h200, link=53: an H200's rates, for "plan" where there is none)
//     budget=GB of the device (1e9)   host=GB   policy=bf16|f16|f32   steps=5
//     weights=bf16|f32|nf4|q8_0 (of lora's base; full trains f32, or bf16 where the optimizer can)
//     optimizer=adamw   rank=16   exact=1 (the same bits at every budget)   dora=1 (magnitudes,
//     too) clip=NORM of all gradients   keep=PATTERN of weights that stay on the device
//
// "ops" runs one step more whose kernels are waited for one by one: where the time goes. "plan"
// prints the plan and computes nothing. TF/s are those of the model (2 a weight and token forward,
// as much back to the activations, and for `full` to the weights), without what is repeated.
#include <ration/device.h>
#include <ration/memory.h>
#include <ration/session.h>

#include "backend/cuda/cost.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/queue.h"
#include "backend/cuda/rows.h"
#include "device/device.h"
#include "graph/fuse.h"
#include "model/model.h"
#include "tensor/layout.h"
#include "train/train_recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct shape {
    const char *name;
    uint32_t layers, dim, heads, kv_heads, ffn, vocab;
    bool tied;
    float rope_base;
} shape;

static const shape shapes[] = {
    {"llama-8b", 32, 4096, 32, 8, 14336, 128256, false, 500000},
    {"llama-1b", 16, 2048, 32, 8, 8192, 128256, true, 500000},
    {"mistral-7b", 32, 4096, 32, 8, 14336, 32768, false, 10000},
    {"small", 4, 1024, 16, 4, 3072, 32000, false, 10000},
    {"tiny", 2, 256, 4, 2, 512, 1000, false, 10000},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct bench {
    shape of;
    bool lora, ops, plan_only;
    uint32_t batch, tokens, steps, rank;
    const char *device, *optimizer;
    const char *keep;
    double budget, host, clip;
    rn_dtype policy, weights;
    bool exact, dora;
    // made up
    uint8_t *narrow, *wide; // (bytes): numbers about 0.02 as bf16 (or any bytes), and as f32
    uint64_t bytes;
    rn_low_rank additions[512];
    char names[512][4][96]; // weight, down, up, magnitude
    uint32_t addition_count;
} bench;

static bench b = {
    .steps = 5, .rank = 16, .device = "cuda:0", .policy = RN_DTYPE_BF16, .weights = RN_DTYPE_BF16};

static void must(rn_status status) {
    if (status == RN_OK) return;
    fprintf(stderr, "%s: %s\n  %s\n", rn_status_name(status), rn_last_error()->message,
            rn_last_error()->hint);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// ---- weights ------------------------------------------------------------------------------------

static rn_dtype dtype_of(const void *self, const char *weight) {
    (void)self;
    if (strstr(weight, "norm") || strncmp(weight, "tuned.", 6) == 0) return RN_DTYPE_F32;
    bool block = rn_dtype_get(b.weights)->is_float == false;
    bool table = strstr(weight, "embed") || strstr(weight, "lm_head");
    return block && table ? RN_DTYPE_BF16 : b.weights;
}

static const rn_low_rank *addition_of(const void *self, const char *weight, uint32_t index) {
    (void)self;
    if (!b.lora || index > 0 || !strstr(weight, "_proj.")) return NULL;
    for (uint32_t i = 0; i < b.addition_count; i++)
        if (strcmp(b.names[i][0], weight) == 0) return &b.additions[i];
    if (b.addition_count == 512) return NULL;
    uint32_t i = b.addition_count++;
    snprintf(b.names[i][0], sizeof b.names[i][0], "%s", weight);
    snprintf(b.names[i][1], sizeof b.names[i][1], "tuned.%.80s.down", weight);
    snprintf(b.names[i][2], sizeof b.names[i][2], "tuned.%.80s.up", weight);
    b.additions[i] =
        (rn_low_rank){.down = b.names[i][1], .up = b.names[i][2], .rank = b.rank, .scale = 1};
    snprintf(b.names[i][3], sizeof b.names[i][3], "tuned.%.80s.magnitude", weight);
    if (b.dora) b.additions[i].magnitude = b.names[i][3];
    return &b.additions[i];
}

static const rn_llama_files files = {.dtype = dtype_of, .addition = addition_of};

// All weights of a width are the same bytes: nobody looks at what is learned.
static const void *find(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    (void)self, (void)name;
    if (bytes > b.bytes) return NULL;
    return dtype == RN_DTYPE_F32 ? b.wide : b.narrow;
}

static void make_weights(void) {
    enum { PATTERN = 1 << 20 };
    uint64_t rows = b.of.vocab > b.of.ffn ? b.of.vocab : b.of.ffn;
    b.bytes = rows * b.of.dim * 4 + PATTERN;
    b.narrow = malloc(b.bytes);
    b.wide = malloc(b.bytes);
    uint32_t state = 1;
    for (uint64_t i = 0; i < PATTERN / 4; i++) {
        state = state * 1664525u + 1013904223u;
        float value = (float)(int32_t)state * (0.04f * 0x1p-31f);
        uint16_t half;
        must(rn_dtype_convert(RN_DTYPE_F32, &value, RN_DTYPE_BF16, &half, 1));
        memcpy(b.wide + i * 4, &value, 4);
        memcpy(b.narrow + i * 2, &half, 2);
    }
    for (uint64_t at = PATTERN; at < b.bytes; at += PATTERN)
        memcpy(b.wide + at, b.wide, b.bytes - at < PATTERN ? b.bytes - at : PATTERN);
    for (uint64_t at = PATTERN / 2; at < b.bytes; at += PATTERN / 2)
        memcpy(b.narrow + at, b.narrow, b.bytes - at < PATTERN / 2 ? b.bytes - at : PATTERN / 2);
}

// ---- time by op ---------------------------------------------------------------------------------

typedef struct kind {
    char name[96];
    uint32_t calls;
    double seconds, flops, bytes;
} kind;
static kind kinds[256];
static uint32_t kind_count;
static const rn_kernel *plain_kernels;
static rn_kernel timed_kernels[RN_OP_COUNT];

static void print_shape(const rn_tensor *t, char *out, size_t bytes) {
    snprintf(out, bytes, "%s%.60s", rn_dtype_get(t->dtype)->name, rn_shape_format(t->shape).text);
}

static kind *find_kind(const rn_call *call) {
    char name[96], x[96], y[96];
    print_shape(&call->inputs[0], x, sizeof x);
    print_shape(&call->inputs[call->input_count > 1 && call->op == RN_OP_MATMUL], y, sizeof y);
    snprintf(name, sizeof name, "%s %.32s %.32s>%s", rn_op_name(call->op), x,
             call->op == RN_OP_MATMUL ? y : "", rn_dtype_get(call->outputs[0].dtype)->name);
    for (uint32_t i = 0; i < kind_count; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    kind *k = &kinds[kind_count < 255 ? kind_count++ : 255];
    memcpy(k->name, name, sizeof name);
    return k;
}

static void wait_for(const rn_call *call) {
    const rn_cuda_driver *driver;
    if (call->stream && rn_cuda_driver_get(&driver) == RN_OK)
        driver->stream_synchronize(((rn_cuda_stream *)call->stream)->handle);
}

static rn_status run_timed(const rn_call *call) {
    rn_cost cost = {0};
    wait_for(call);
    double begin = now();
    rn_status s = plain_kernels[call->op].run(call);
    wait_for(call);
    kind *k = find_kind(call);
    k->seconds += now() - begin;
    k->calls++;
    rn_op_get(call->op)->cost(call, &cost);
    k->flops += cost.flops;
    k->bytes += cost.read_bytes + cost.write_bytes;
    return s;
}

static int by_time(const void *x, const void *y) {
    double a = ((const kind *)x)->seconds, c = ((const kind *)y)->seconds;
    return a < c ? 1 : a > c ? -1 : 0;
}

static void print_kinds(void) {
    double all = 0;
    qsort(kinds, kind_count, sizeof *kinds, by_time);
    for (uint32_t i = 0; i < kind_count; i++)
        all += kinds[i].seconds;
    printf("ops, %.1f ms one by one\n", all * 1e3);
    for (uint32_t i = 0; i < kind_count && i < 26; i++)
        printf("%7.2f ms %5u %6.0f TF/s %5.0f GB/s  %s\n", kinds[i].seconds * 1e3, kinds[i].calls,
               kinds[i].flops / kinds[i].seconds * 1e-12, kinds[i].bytes / kinds[i].seconds * 1e-9,
               kinds[i].name);
}

// What the plan's graph has, by its ops' own counts.
static void count_kinds(const rn_plan *plan) {
    const rn_graph *graph = rn_plan_graph(plan);
    rn_tensor tensors[64];
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        rn_cost cost = {0};
        rn_call call;
        uint64_t offset;
        const rn_node *node = rn_graph_node(graph, n);
        if (node->input_count + node->output_count > 64) continue;
        rn_graph_bind(graph, n, 1, tensors, &call);
        if (rn_call_alias(&call, 0, &offset).kind == RN_ALIAS_KIND_VIEW) continue;
        rn_op_get(node->op)->cost(&call, &cost);
        kind *k = find_kind(&call);
        k->calls++;
        k->flops += cost.flops;
        k->bytes += cost.read_bytes + cost.write_bytes;
        k->seconds += cost.flops / 600e12 + (cost.read_bytes + cost.write_bytes) / 4e12;
    }
}

// ---- steps --------------------------------------------------------------------------------------

static double model_flops(void) { // of a step
    const shape *s = &b.of;
    double head = (double)s->dim / s->heads, n = s->layers, d = s->dim;
    double linear = n * (2 * d * d + 2 * d * head * s->kv_heads + 3 * d * s->ffn) + d * s->vocab;
    double rows = (double)b.batch * b.tokens, attention = n * 2 * d * b.tokens; // causal
    return rows * (b.lora ? 4 * linear + 3 * attention : 6 * linear + 3 * attention);
}

static void make_recipe(rn_recipe *out) {
    rn_llama_config config = {.layers = b.of.layers,
                              .dim = b.of.dim,
                              .heads = b.of.heads,
                              .kv_heads = b.of.kv_heads,
                              .ffn = b.of.ffn,
                              .vocab = b.of.vocab,
                              .tied = b.of.tied,
                              .rope_base = b.of.rope_base,
                              .files = &files,
                              .unquantised_activations = true,
                              .tokens = b.tokens,
                              .activations = b.policy};
    rn_train_options options = {.optimizer = b.optimizer,
                                .trained = b.lora ? "tuned.*" : NULL,
                                .clip = b.clip > 0 ? RN_CLIP_GLOBAL : RN_CLIP_NONE,
                                .max_norm = (float)b.clip};
    must(rn_train_recipe(rn_llama_forward(&config), b.batch, &options, out));
    snprintf(out->name, sizeof out->name, "%s %s", b.of.name, b.lora ? "lora" : "full");
    out->weights_in_memory = true;
}

static rn_plan *make_plan(const rn_recipe *recipe, const rn_device_caps *caps) {
    rn_plan *plan = NULL;
    rn_plan_options options = {.budget_bytes = (uint64_t)(b.budget * 1e9),
                               .host_budget_bytes = (uint64_t)(b.host * 1e9),
                               .exact = b.exact,
                               .keep = b.keep};
    double begin = now();
    must(rn_plan_make(recipe, caps, &options, &plan));
    const rn_plan_summary *s = rn_plan_get_summary(plan);
    printf("plan in %.2f s: %.3f GB (weights %.3f, optimizer %.3f, gradients %.3f, activations "
           "%.3f, workspace %.3f), host %.3f GB (weights %.3f, states %.3f, saved %.3f); %u "
           "micro-batches, %u of %u blocks resident, %u recomputed, streamed %.3f GB; predicted "
           "%.1f ms\n",
           now() - begin, s->planned_bytes * 1e-9, s->purpose_bytes[RN_PURPOSE_WEIGHTS] * 1e-9,
           s->purpose_bytes[RN_PURPOSE_OPTIMIZER] * 1e-9,
           s->purpose_bytes[RN_PURPOSE_GRADIENTS] * 1e-9,
           s->purpose_bytes[RN_PURPOSE_ACTIVATIONS] * 1e-9,
           s->purpose_bytes[RN_PURPOSE_WORKSPACE] * 1e-9, s->host_bytes * 1e-9,
           s->host_weight_bytes * 1e-9, s->host_state_bytes * 1e-9, s->host_saved_bytes * 1e-9,
           s->micro_batches, s->resident_blocks, s->block_count, s->recomputed_blocks,
           s->streamed_bytes * 1e-9, s->seconds * 1e3);
    fflush(stdout);
    return plan;
}

// What a GPU that is not here would say of itself: rates as measured on one.
static rn_device_caps h200 = {.name = "cuda:0",
                              .hardware = "NVIDIA H200",
                              .device = 1,
                              .threads = 16,
                              .memory_bytes = 139ull << 30,
                              .kernels = rn_cuda_kernels,
                              .backend = &rn_cuda_backend,
                              .weight_layout = rn_cuda_weight_layout,
                              .own_memory = true,
                              .group_bytes = 64 << 20,
                              .row_table_bytes = 1 << 20,
                              .fusions = RN_FUSE_ALL | RN_FUSE_HALVES,
                              .flops = 4.3e14,
                              .quantized_flops = 4.3e14,
                              .memory_bytes_second = 4.1e12,
                              .disk_bytes_second = 2.8e9,
                              .link_bytes_second = 53e9,
                              .step_seconds = 3e-6,
                              .product_rows = 16,
                              .run_seconds = 15e-6,
                              .own = {[RN_CUDA_UNPACK_WEIGHTS] = 6.5e12,
                                      [RN_CUDA_UNPACK_BYTES] = 4.2e12,
                                      [RN_CUDA_ATTEND_FLOPS] = 2.1e14,
                                      [RN_CUDA_ATTEND_SECONDS] = 22e-6,
                                      [RN_CUDA_MULTIPROCESSORS] = 132,
                                      [RN_CUDA_HALF_FLOPS] = 7.8e14}};

static double step(rn_session *session, const int32_t *tokens, const int32_t *targets,
                   uint32_t number, float *loss) {
    uint64_t bytes = (uint64_t)b.batch * b.tokens * sizeof(int32_t);
    double begin = now();
    must(rn_session_set(session, "tokens", tokens, bytes));
    must(rn_session_set(session, "targets", targets, bytes));
    must(rn_session_set_scalar(session, "loss_scale", 1.0 / ((double)b.batch * b.tokens)));
    must(rn_session_set_scalar(session, "rate", 1e-4));
    if (!b.optimizer || strncmp(b.optimizer, "adam", 4) == 0)
        must(rn_session_set_scalar(session, "step", number));
    must(rn_session_run(session, 0));
    must(rn_session_get(session, "loss", loss, sizeof *loss));
    return now() - begin;
}

// The plan's bytes beside the ledger's: the arena by purpose, and what of the device nobody
// planned.
static void print_bytes(rn_device *device, const rn_plan *plan) {
    const rn_plan_summary *s = rn_plan_get_summary(plan);
    uint32_t number = rn_device_number(device);
    uint64_t peak = 0;
    printf("planned, measured:");
    for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
        uint64_t bytes = rn_ledger_read(number, p).peak_bytes;
        if (p != RN_PURPOSE_UNACCOUNTED) peak += bytes;
        if (bytes || s->purpose_bytes[p])
            printf(" %s %llu %llu,", rn_purpose_name(p), (unsigned long long)s->purpose_bytes[p],
                   (unsigned long long)bytes);
    }
    printf(" all %llu %llu, ratio %.6f\n", (unsigned long long)s->planned_bytes,
           (unsigned long long)peak, (double)s->planned_bytes / (double)peak);
}

static void run_steps(rn_session *session, rn_device *device, const rn_plan *plan, double begin) {
    uint32_t rows = b.batch * b.tokens;
    int32_t *tokens = malloc(2 * rows * sizeof *tokens), *targets = tokens + rows;
    float loss = 0;
    double best = 1e9, flops = model_flops();
    for (uint32_t i = 0; i < rows; i++) {
        tokens[i] = (int32_t)(i * 2654435761u % b.of.vocab);
        targets[i] = (int32_t)((i + 1) * 2654435761u % b.of.vocab);
    }
    double first = step(session, tokens, targets, 1, &loss);
    printf("first step: %.3f s, ended %.2f s after the start; loss %.6f\n", first, now() - begin,
           loss);
    for (uint32_t i = 0; i < b.steps; i++) {
        double seconds = step(session, tokens, targets, i + 2, &loss);
        best = seconds < best ? seconds : best;
    }
    printf("best of %u: %.1f ms, %.0f tok/s, %.0f TF/s of the model; loss %.6f; device peak %.3f "
           "GB\n",
           b.steps, best * 1e3, rows / best, flops / best * 1e-12, loss,
           rn_ledger_total(rn_device_number(device)).peak_bytes * 1e-9);
    print_bytes(device, plan);
    if (b.ops) {
        plain_kernels = device->caps.kernels;
        for (int op = 0; op < RN_OP_COUNT; op++) {
            timed_kernels[op] = plain_kernels[op];
            if (plain_kernels[op].run) timed_kernels[op].run = run_timed;
        }
        device->caps.kernels = timed_kernels;
        step(session, tokens, targets, b.steps + 2, &loss);
        print_kinds();
    }
    free(tokens);
}

static bool take(const char *text, const char *key, const char **out) {
    size_t n = strlen(key);
    if (strncmp(text, key, n) != 0 || text[n] != '=') return false;
    *out = text + n + 1;
    return true;
}

static rn_dtype dtype_named(const char *name) {
    for (rn_dtype d = 0; d < RN_DTYPE_COUNT; d++)
        if (strcmp(rn_dtype_get(d)->name, name) == 0) return d;
    fprintf(stderr, "no dtype '%s'\n", name);
    exit(2);
}

static void read_option(const char *text) {
    const char *v;
    if (strcmp(text, "ops") == 0)
        b.ops = true;
    else if (strcmp(text, "plan") == 0)
        b.plan_only = true;
    else if (take(text, "device", &v))
        b.device = v;
    else if (take(text, "budget", &v))
        b.budget = atof(v);
    else if (take(text, "link", &v))
        h200.link_bytes_second = atof(v) * 1e9;
    else if (take(text, "host", &v))
        b.host = atof(v);
    else if (take(text, "policy", &v))
        b.policy = dtype_named(v);
    else if (take(text, "weights", &v))
        b.weights = dtype_named(v);
    else if (take(text, "optimizer", &v))
        b.optimizer = v;
    else if (take(text, "steps", &v))
        b.steps = (uint32_t)atoi(v);
    else if (take(text, "rank", &v))
        b.rank = (uint32_t)atoi(v);
    else if (take(text, "clip", &v))
        b.clip = atof(v);
    else if (take(text, "keep", &v))
        b.keep = v;
    else if (take(text, "dora", &v))
        b.dora = atoi(v) != 0;
    else if (take(text, "exact", &v))
        b.exact = atoi(v) != 0;
    else {
        fprintf(stderr, "what is '%s'?\n", text);
        exit(2);
    }
}

int main(int argc, char **argv) {
    double begin = now();
    rn_device *device = NULL;
    rn_recipe recipe;
    rn_session *session = NULL;
    if (argc < 5) {
        fprintf(stderr,
                "finetune_bench MODEL lora|full BATCH TOKENS [KEY=VALUE ...] [ops] [plan]\n");
        return 2;
    }
    for (int i = 0; i < SHAPES; i++)
        if (strcmp(shapes[i].name, argv[1]) == 0) b.of = shapes[i];
    b.lora = strcmp(argv[2], "lora") == 0;
    b.batch = (uint32_t)atoi(argv[3]);
    b.tokens = (uint32_t)atoi(argv[4]);
    if (!b.lora) b.weights = RN_DTYPE_F32;
    for (int i = 5; i < argc; i++)
        read_option(argv[i]);
    if (b.of.layers == 0 || b.batch == 0 || b.tokens == 0) return 2;
    for (int i = 1; i < argc; i++)
        printf("%s ", argv[i]);
    printf("\n");
    bool absent = b.plan_only && strcmp(b.device, "h200") == 0;
    if (!absent) must(rn_device_open(b.device, 0, &device));
    make_recipe(&recipe);
    rn_plan *plan = make_plan(&recipe, absent ? &h200 : rn_device_get_caps(device));
    if (b.plan_only && b.ops) {
        count_kinds(plan);
        print_kinds();
    }
    if (!b.plan_only) {
        make_weights();
        rn_weight_source source = {.find = find};
        must(rn_session_create(plan, &source, &(rn_session_options){.device = device}, &session));
        printf("loaded %.2f s after the start\n", now() - begin);
        run_steps(session, device, plan, begin);
    }
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
    rn_device_destroy(device);
    free(b.narrow);
    free(b.wide);
    return 0;
}

// image_bench.c — networks of image models at their true shapes, with made-up weights in bf16: what
// a step takes on a device, of its time and of its memory.
//
//     image_bench NETWORK [KEY=VALUE ...] [ops] [check] [plan]
//
//     NETWORK  sdxl (UNet, batch 2, 1024 x 1024), sd15 (batch 2, 512 x 512), vae (decoder, 1024 x
//              1024), flux (1024 x 1024), small (a UNet that a test can wait for)
//     device=cuda:0   budget=GB of the device (1e9)   host=GB   policy=bf16|f16|f32   steps=10
//     size=PIXELS   batch=N   save=FILE (the output, as raw f32)
//     alone=1   a denoiser makes what is the same in all steps itself, in every step
//     bands=0|1|2   of a decoder: whole, in bands, in bands some of which are computed again
//     lora=RANK: a training step of additions to the attention's matrices instead (batch 1)
//     weights=nf4|int8|q8_0 (of matrices, in training)   optimizer=adamw   keep=PATTERN
//
// "ops" runs one step more in which each kernel is timed by itself: where the time goes. "check"
// runs one whose kernels' results are held against the reference loops, from the same inputs: for
// small networks. "plan" prints the plan for an H200 and computes nothing.
#include <ration/device.h>
#include <ration/memory.h>
#include <ration/session.h>

#include "backend/cuda/cost.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/queue.h"
#include "backend/cuda/rows.h"
#include "device/device.h"
#include "graph/activations.h"
#include "graph/fuse.h"
#include "graph/halves.h"
#include "model/image/image_networks.h"
#include "train/image_trainer.h"
#include "train/train_recipe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct bench {
    const char *network, *device, *save;
    bool ops, check, plan_only, alone;
    double budget, host;
    rn_dtype policy;
    uint32_t steps, size, batch, bands, rank;
    rn_dtype weights; // of matrices; 0: as the policy
    const char *optimizer, *keep;
    uint8_t *narrow, *wide; // numbers about 0.02 as bf16, and as f32
    rn_recipe inner;        // in f32
    rn_low_rank additions[2048];
    char names[2048][3][RN_IMAGE_NAME + 16]; // weight, down, up
    uint32_t addition_count;
} bench;
static bench b = {.device = "cuda:0", .policy = RN_DTYPE_BF16, .steps = 10};
static const uint64_t MOST = 512ull << 20; // bytes of a weight

static void must(rn_status status) {
    if (status == RN_OK) return;
    fprintf(stderr, "%s: %s\n  %s\n", rn_status_name(status), rn_last_error()->message,
            rn_last_error()->hint);
    exit(status == RN_UNSUPPORTED || status == RN_NOT_FOUND ? 77 : 1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// ---- weights ------------------------------------------------------------------------------------

// Matrices and kernels are of 16 bits, vectors f32.
static bool place(const void *self, const char *weight, rn_image_place *out) {
    size_t n = strlen(weight);
    bool norm = strstr(weight, "norm") && !strstr(weight, ".linear.");
    bool vector = norm || (n > 5 && strcmp(weight + n - 5, ".bias") == 0);
    (void)self;
    *out = (rn_image_place){.dtype = vector || b.policy == RN_DTYPE_F32 ? RN_DTYPE_F32 : b.policy};
    bool matrix = !strstr(weight, "conv") && !strstr(weight, "embed");
    if (!vector && matrix && b.weights) out->dtype = b.weights;
    snprintf(out->tensor, sizeof out->tensor, "%s", weight);
    return true;
}

static bool is_adapted(const char *weight) {
    static const char *const names[] = {".to_q.weight", ".to_k.weight", ".to_v.weight",
                                        ".to_out.0.weight"};
    size_t n = strlen(weight);
    for (int i = 0; i < 4; i++) {
        size_t m = strlen(names[i]);
        if (n > m && strcmp(weight + n - m, names[i]) == 0) return true;
    }
    return false;
}

static const rn_low_rank *addition(const void *self, const char *weight, uint32_t index) {
    (void)self;
    if (!b.rank || index > 0 || !is_adapted(weight)) return NULL;
    for (uint32_t i = 0; i < b.addition_count; i++)
        if (strcmp(b.names[i][0], weight) == 0) return &b.additions[i];
    if (b.addition_count == 2048) return NULL;
    uint32_t i = b.addition_count++;
    snprintf(b.names[i][0], sizeof b.names[i][0], "%s", weight);
    snprintf(b.names[i][1], sizeof b.names[i][1], "tuned.%s.down", weight);
    snprintf(b.names[i][2], sizeof b.names[i][2], "tuned.%s.up", weight);
    b.additions[i] =
        (rn_low_rank){.down = b.names[i][1], .up = b.names[i][2], .rank = b.rank, .scale = 1};
    return &b.additions[i];
}
static const rn_image_files files = {.place = place, .addition = addition};

// All weights of a width are the same bytes.
static const void *find(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    (void)self, (void)name;
    if (bytes > MOST) return NULL;
    return dtype == RN_DTYPE_F32 ? b.wide : b.narrow;
}

static void make_weights(void) {
    enum { PATTERN = 1 << 20 };
    b.narrow = malloc(MOST);
    b.wide = malloc(MOST);
    if (!b.narrow || !b.wide) exit(1);
    uint32_t state = 1;
    for (uint64_t i = 0; i < PATTERN / 4; i++) {
        state = state * 1664525u + 1013904223u;
        float value = (float)(int32_t)state * (0.04f * 0x1p-31f);
        uint16_t half;
        must(rn_dtype_convert(RN_DTYPE_F32, &value,
                              b.policy == RN_DTYPE_F16 ? RN_DTYPE_F16 : RN_DTYPE_BF16, &half, 1));
        memcpy(b.wide + i * 4, &value, 4);
        memcpy(b.narrow + i * 2, &half, 2);
    }
    for (uint64_t at = PATTERN; at < MOST; at += PATTERN)
        memcpy(b.wide + at, b.wide, PATTERN);
    for (uint64_t at = PATTERN / 2; at < MOST; at += PATTERN / 2)
        memcpy(b.narrow + at, b.narrow, PATTERN / 2);
}

// ---- networks -----------------------------------------------------------------------------------

// A step of training, whose activations are the policy's.
static void make_step(const rn_image_step_config *config, uint32_t batch, rn_recipe *out) {
    rn_train_options options = {.optimizer = b.optimizer, .trained = "tuned.*"};
    rn_forward forward = rn_image_step_forward(config, true);
    forward.activations = b.policy;
    must(rn_train_recipe(forward, batch, &options, out));
    out->rows = 1;
}

static void make_network(rn_recipe *out) {
    uint32_t size = b.size ? b.size : strcmp(b.network, "sd15") == 0 ? 512 : 1024;
    rn_unet_config xl = {.files = &files,
                         .in_channels = 4,
                         .out_channels = 4,
                         .levels = 3,
                         .channels = {320, 640, 1280},
                         .layers = 2,
                         .depth = {0, 2, 10},
                         .heads = {5, 10, 20},
                         .mid_depth = 10,
                         .context_channels = 2048,
                         .context_tokens = 77,
                         .linear_projection = true,
                         .groups = 32,
                         .eps = 1e-5f,
                         .added_channels = 2816,
                         .added_time_dim = 256,
                         .height = size / 8,
                         .width = size / 8};
    rn_unet_config one = {.files = &files,
                          .in_channels = 4,
                          .out_channels = 4,
                          .levels = 4,
                          .channels = {320, 640, 1280, 1280},
                          .layers = 2,
                          .depth = {1, 1, 1, 0},
                          .heads = {8, 8, 8, 8},
                          .mid_depth = 1,
                          .context_channels = 768,
                          .context_tokens = 77,
                          .groups = 32,
                          .eps = 1e-5f,
                          .height = size / 8,
                          .width = size / 8};
    rn_vae_config vae = {.files = &files,
                         .levels = 4,
                         .channels = {128, 256, 512, 512},
                         .layers = 2,
                         .latent_channels = 4,
                         .image_channels = 3,
                         .groups = 32,
                         .quant_conv = true,
                         .post_quant_conv = true,
                         .mid_attention = true,
                         .scaling = 0.13025f,
                         .banding = {.rows = 64, .cut = b.bands > 0, .again = b.bands > 1},
                         .height = size / 8,
                         .width = size / 8};
    rn_flux_config flux = {.files = &files,
                           .in_channels = 64,
                           .out_channels = 64,
                           .double_blocks = 19,
                           .single_blocks = 38,
                           .heads = 24,
                           .head_dim = 128,
                           .context_channels = 4096,
                           .context_tokens = 512,
                           .pooled_channels = 768,
                           .axes = {16, 56, 56},
                           .guidance = true,
                           .height = size / 16,
                           .width = size / 16};
    bool is_unet = strcmp(b.network, "vae") != 0 && strcmp(b.network, "flux") != 0;
    uint32_t rows = b.batch ? b.batch : is_unet && !b.rank ? 2 : 1;
    xl.rows = one.rows = vae.rows = flux.rows = rows;
    if (!b.rank && !b.alone && b.policy != RN_DTYPE_F32) xl.text_type = one.text_type = b.policy;
    flux.modulated = !b.rank && !b.alone && rows == 1;
    if (strcmp(b.network, "small") == 0) {
        one.channels[0] = 32, one.channels[1] = one.channels[2] = one.channels[3] = 64;
        one.height = one.width = 16;
    }
    if (b.rank)
        make_step(&(rn_image_step_config){.kind = strcmp(b.network, "flux") == 0 ? RN_IMAGE_FLUX
                                                                                 : RN_IMAGE_UNET,
                                          .unet = strcmp(b.network, "sdxl") == 0 ? xl : one,
                                          .flux = flux},
                  b.batch ? b.batch : 1, out);
    else if (strcmp(b.network, "sdxl") == 0)
        must(rn_unet_recipe(&xl, out));
    else if (strcmp(b.network, "vae") == 0)
        must(rn_vae_decoder_recipe(&vae, out));
    else if (strcmp(b.network, "flux") == 0)
        must(rn_flux_recipe(&flux, out));
    else if (strcmp(b.network, "sd15") == 0 || strcmp(b.network, "small") == 0)
        must(rn_unet_recipe(&one, out));
    else {
        fprintf(stderr, "no network '%s'\n", b.network);
        exit(2);
    }
}

static rn_status build(void *self, const rn_recipe_options *options, rn_graph **out) {
    (void)self;
    if (b.rank) return b.inner.build(b.inner.self, options, out);
    RN_TRY(b.inner.build(b.inner.self, NULL, out));
    return rn_graph_hold_activations_in(out, b.policy, options && options->halves);
}

// ---- time by op ---------------------------------------------------------------------------------

typedef struct kind {
    char name[128];
    uint32_t calls;
    double seconds, flops, bytes;
    double apart; // check: from the reference by norm, at most
} kind;
static kind kinds[512];
static uint32_t kind_count;
static const rn_kernel *plain_kernels;
static rn_kernel timed_kernels[RN_OP_COUNT];

static kind *find_kind(const rn_call *call) {
    char name[128];
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    snprintf(name, sizeof name, "%s %s%.40s > %s%.40s", rn_op_name(call->op),
             rn_dtype_get(x->dtype)->name, rn_shape_format(x->shape).text,
             rn_dtype_get(y->dtype)->name, rn_shape_format(y->shape).text);
    for (uint32_t i = 0; i < kind_count; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    kind *k = &kinds[kind_count < 511 ? kind_count++ : 511];
    memcpy(k->name, name, sizeof name);
    return k;
}

static void wait_for(const rn_call *call) {
    const rn_cuda_driver *driver;
    if (call->stream && rn_cuda_driver_get(&driver) == RN_OK)
        driver->stream_synchronize(((rn_cuda_stream *)call->stream)->handle);
}

// Seconds of one of REPEATS calls in a graph of the driver's: without the host's part. What is
// computed in place is computed over and over: times are right, numbers are not.
enum { REPEATS = 16 };
static rn_status time_call(const rn_call *call, double *out) {
    const rn_cuda_driver *driver;
    rn_cuda_stream *stream = call->stream;
    rn_cu_graph graph = NULL;
    rn_cu_graph_exec exec = NULL;
    rn_status s = rn_cuda_driver_get(&driver);
    if (s == RN_OK) s = plain_kernels[call->op].run(call); // what comes with the first one
    wait_for(call);
    if (s != RN_OK || driver->stream_begin_capture(stream->handle, RN_CU_CAPTURE_THREAD_LOCAL))
        return s;
    bool recording = stream->is_recording;
    stream->is_recording = true;
    stream->after_launch = false;
    for (int i = 0; i < REPEATS && s == RN_OK; i++)
        s = plain_kernels[call->op].run(call);
    stream->is_recording = recording;
    stream->after_launch = false;
    driver->stream_end_capture(stream->handle, &graph);
    if (s == RN_OK && driver->graph_instantiate(&exec, graph, 0) == RN_CU_SUCCESS) {
        double best = 1;
        for (int i = 0; i < 3; i++) {
            double begin = now();
            driver->graph_launch(exec, stream->handle);
            wait_for(call);
            if (now() - begin < best) best = now() - begin;
        }
        *out = best / REPEATS;
        driver->graph_exec_destroy(exec);
    }
    if (graph) driver->graph_destroy(graph);
    return s;
}

static rn_status run_timed(const rn_call *call) {
    rn_cost cost = {0};
    double seconds = 0;
    rn_status s = time_call(call, &seconds);
    kind *k = find_kind(call);
    k->seconds += seconds;
    k->calls++;
    rn_op_get(call->op)->cost(call, &cost);
    k->flops += cost.flops;
    k->bytes += cost.read_bytes + cost.write_bytes;
    return s;
}

// ---- against the reference ----------------------------------------------------------------------

static void *to_host(const rn_call *call, const rn_tensor *t) {
    const rn_cuda_driver *driver;
    uint64_t bytes = rn_tensor_bytes(t);
    void *copy = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!copy) exit(1);
    memset(copy, 0, bytes);
    if (!call->stream && t->data) memcpy(copy, t->data, bytes);
    if (call->stream && t->data && bytes && rn_cuda_driver_get(&driver) == RN_OK)
        driver->memcpy_dtoh_async(copy, (rn_cu_address)(uintptr_t)t->data, bytes,
                                  ((rn_cuda_stream *)call->stream)->handle);
    wait_for(call);
    return copy;
}

static double distance(const rn_tensor *t, const void *got, const void *want) {
    uint64_t n = rn_tensor_elements(t);
    float *a = malloc(n * sizeof *a + 4), *c = malloc(n * sizeof *c + 4);
    double apart = 0, all = 0;
    if (!a || !c || rn_dtype_to_f32(t->dtype, got, a, n) != RN_OK ||
        rn_dtype_to_f32(t->dtype, want, c, n) != RN_OK)
        n = 0;
    for (uint64_t i = 0; i < n; i++)
        apart += ((double)a[i] - c[i]) * ((double)a[i] - c[i]), all += (double)c[i] * c[i];
    free(a);
    free(c);
    return all > 0 ? sqrt(apart / all) : sqrt(apart);
}

// Weights in the device's own layouts are left alone.
static rn_status run_checked(const rn_call *call) {
    rn_tensor tensors[64];
    uint32_t count = call->input_count + call->output_count;
    bool plain = count <= 64;
    for (uint32_t i = 0; plain && i < count; i++) {
        tensors[i] = i < call->input_count ? call->inputs[i] : call->outputs[i - call->input_count];
        plain = tensors[i].layout == RN_LAYOUT_PLAIN;
    }
    wait_for(call);
    for (uint32_t i = 0; plain && i < count; i++) // also of outputs: they may be inputs
        tensors[i].data = tensors[i].data ? to_host(call, &tensors[i]) : NULL;
    RN_TRY(plain_kernels[call->op].run(call));
    if (!plain) return RN_OK;
    rn_call on_host = *call;
    on_host.inputs = tensors;
    on_host.outputs = tensors + call->input_count;
    on_host.stream = NULL;
    on_host.workspace_bytes = rn_reference_workspace(&on_host);
    on_host.workspace = calloc(1, on_host.workspace_bytes + 64);
    rn_status s = rn_reference_run(&on_host);
    void *got = to_host(call, &call->outputs[0]);
    double apart = distance(&call->outputs[0], got, on_host.outputs[0].data);
    kind *k = find_kind(call);
    k->calls++;
    if (apart > k->apart) k->apart = apart;
    k->seconds = k->apart; // they are printed in this order
    free(got);
    free(on_host.workspace);
    for (uint32_t i = 0; i < count; i++)
        free(tensors[i].data);
    return s;
}

static int by_time(const void *x, const void *y) {
    double a = ((const kind *)x)->seconds, c = ((const kind *)y)->seconds;
    return a < c ? 1 : a > c ? -1 : 0;
}

static void print_kinds(void) {
    double all = 0, flops = 0;
    qsort(kinds, kind_count, sizeof *kinds, by_time);
    for (uint32_t i = 0; b.check && i < kind_count && i < 20; i++)
        printf("%9.2e %5u %s\n", kinds[i].apart, kinds[i].calls, kinds[i].name);
    if (b.check) return;
    for (uint32_t i = 0; i < kind_count; i++)
        all += kinds[i].seconds, flops += kinds[i].flops;
    printf("ops, %.2f ms in all, %.3f TFLOP\n", all * 1e3, flops * 1e-12);
    for (uint32_t i = 0; i < kind_count && i < 60; i++)
        printf("%8.3f ms %5u %6.1f us %6.0f TF/s %5.0f GB/s  %s\n", kinds[i].seconds * 1e3,
               kinds[i].calls, kinds[i].seconds / kinds[i].calls * 1e6,
               kinds[i].flops / kinds[i].seconds * 1e-12, kinds[i].bytes / kinds[i].seconds * 1e-9,
               kinds[i].name);
}

// What the plan's graph has, by its ops' own counts.
static void count_kinds(const rn_plan *plan, uint64_t rows) {
    const rn_graph *graph = rn_plan_graph(plan);
    rn_tensor tensors[64];
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        rn_cost cost = {0};
        rn_call call;
        uint64_t offset;
        const rn_node *node = rn_graph_node(graph, n);
        if (node->input_count + node->output_count > 64) continue;
        rn_graph_bind(graph, n, rows, tensors, &call);
        if (rn_call_alias(&call, 0, &offset).kind == RN_ALIAS_KIND_VIEW) continue;
        rn_op_get(node->op)->cost(&call, &cost);
        kind *k = find_kind(&call);
        k->calls++;
        k->flops += cost.flops;
        k->bytes += cost.read_bytes + cost.write_bytes;
        k->seconds += cost.flops / 600e12 + (cost.read_bytes + cost.write_bytes) / 4e12 + 2e-6;
    }
}

// ---- running ------------------------------------------------------------------------------------

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

static rn_plan *make_plan(const rn_recipe *recipe, const rn_device_caps *caps) {
    rn_plan *plan = NULL;
    rn_plan_options options = {.budget_bytes = (uint64_t)(b.budget * 1e9),
                               .host_budget_bytes = (uint64_t)(b.host * 1e9),
                               .keep = b.keep};
    double begin = now();
    must(rn_plan_make(recipe, caps, &options, &plan));
    const rn_plan_summary *s = rn_plan_get_summary(plan);
    printf(
        "plan in %.2f s: %.3f GB (weights %.3f, activations %.3f, workspace %.3f), host %.3f GB; "
        "%u of %u blocks resident, %u recomputed, streamed %.3f GB; predicted %.1f ms\n",
        now() - begin, s->planned_bytes * 1e-9, s->purpose_bytes[RN_PURPOSE_WEIGHTS] * 1e-9,
        s->purpose_bytes[RN_PURPOSE_ACTIVATIONS] * 1e-9,
        s->purpose_bytes[RN_PURPOSE_WORKSPACE] * 1e-9, s->host_bytes * 1e-9, s->resident_blocks,
        s->block_count, s->recomputed_blocks, s->streamed_bytes * 1e-9, s->seconds * 1e3);
    fflush(stdout);
    return plan;
}

static void set_inputs(rn_session *session, const rn_graph *graph, uint64_t rows) {
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->role != RN_ROLE_INPUT) continue;
        uint64_t n = rn_shape_elements(info->shape, rows);
        static float *kept[64]; // they are borrowed for the run
        float **data = &kept[v % 64];
        free(*data);
        *data = calloc(n, sizeof **data);
        if (!*data) exit(1);
        if (info->dtype == RN_DTYPE_F32) rn_builtin_input(v, n, *data);
        must(rn_session_set(session, info->name, *data, n * sizeof **data));
    }
    if (!b.rank) return;
    static uint32_t number = 0;
    for (uint32_t i = 0; i < rn_graph_scalar_count(graph); i++) {
        const char *name = rn_graph_scalar_name(graph, i);
        must(rn_session_set_scalar(session, name, strcmp(name, "rate") == 0 ? 1e-4 : ++number));
    }
}

static double step(rn_session *session, const rn_graph *graph, uint64_t rows) {
    double begin = now();
    set_inputs(session, graph, rows);
    must(rn_session_run(session, rows));
    return now() - begin;
}

static void save_output(rn_session *session, const rn_graph *graph) {
    FILE *file = fopen(b.save, "wb");
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        uint64_t bytes = 0;
        if (info->role != RN_ROLE_OUTPUT) continue;
        const void *data = rn_session_output(session, info->name, &bytes);
        if (!file || !data || fwrite(data, 1, bytes, file) != bytes) exit(1);
    }
    if (file) fclose(file);
}

// The plan's bytes beside the ledger's, without what of the device nobody planned.
static void print_bytes(rn_session *session, rn_device *device, const rn_plan *plan) {
    const rn_plan_summary *s = rn_plan_get_summary(plan);
    uint32_t number = rn_device_number(device), unequal = 0;
    uint64_t peak = 0;
    float loss = 0;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
        uint64_t bytes = rn_ledger_read(number, p).peak_bytes;
        if (p == RN_PURPOSE_UNACCOUNTED) continue;
        peak += bytes;
        unequal += bytes != s->purpose_bytes[p];
    }
    must(rn_session_get(session, "loss", &loss, sizeof loss));
    printf("planned %llu, measured %llu, ratio %.6f; %u purposes differ; loss %.6f\n",
           (unsigned long long)s->planned_bytes, (unsigned long long)peak,
           (double)s->planned_bytes / (double)peak, unequal, (double)loss);
}

static void run_steps(rn_session *session, const rn_plan *plan, rn_device *device, double begin) {
    const rn_graph *graph = rn_plan_graph(plan);
    uint64_t rows = b.inner.rows;
    double best = 1e9, best_run = 1e9;
    double first = step(session, graph, rows);
    printf("first step: %.3f s, ended %.2f s after the start\n", first, now() - begin);
    for (uint32_t i = 0; i < b.steps; i++) {
        set_inputs(session, graph, rows);
        double start = now();
        must(rn_session_run(session, rows));
        double seconds = now() - start;
        if (seconds < best) best = seconds;
        double inside = rn_session_get_facts(session).seconds;
        if (inside < best_run) best_run = inside;
    }
    printf("%s: best of %u: %.2f ms a step; device peak %.3f GB of the ledger; the last one waited "
           "%.2f ms for weights\n",
           b.network, b.steps, best * 1e3,
           rn_ledger_total(rn_device_number(device)).peak_bytes * 1e-9,
           rn_session_get_facts(session).wait_seconds * 1e3);
    if (b.save) save_output(session, graph);
    if (b.rank) print_bytes(session, device, plan);
}

// A session of its own, of which only the first run is not a recording.
static void time_ops(const rn_plan *plan, const rn_weight_source *source, rn_device *device) {
    rn_session *session = NULL;
    plain_kernels = device->caps.kernels;
    for (int op = 0; op < RN_OP_COUNT; op++) {
        timed_kernels[op] = plain_kernels[op];
        if (plain_kernels[op].run) timed_kernels[op].run = b.check ? run_checked : run_timed;
    }
    device->caps.kernels = timed_kernels;
    must(rn_session_create(plan, source, &(rn_session_options){.device = device}, &session));
    step(session, rn_plan_graph(plan), b.inner.rows);
    print_kinds();
    rn_session_destroy(session);
    device->caps.kernels = plain_kernels;
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
    else if (strcmp(text, "check") == 0)
        b.check = true;
    else if (strcmp(text, "plan") == 0)
        b.plan_only = true;
    else if (take(text, "device", &v))
        b.device = v;
    else if (take(text, "budget", &v))
        b.budget = atof(v);
    else if (take(text, "host", &v))
        b.host = atof(v);
    else if (take(text, "steps", &v))
        b.steps = (uint32_t)atoi(v);
    else if (take(text, "size", &v))
        b.size = (uint32_t)atoi(v);
    else if (take(text, "batch", &v))
        b.batch = (uint32_t)atoi(v);
    else if (take(text, "alone", &v))
        b.alone = atoi(v) != 0;
    else if (take(text, "bands", &v))
        b.bands = (uint32_t)atoi(v);
    else if (take(text, "save", &v))
        b.save = v;
    else if (take(text, "lora", &v))
        b.rank = (uint32_t)atoi(v);
    else if (take(text, "optimizer", &v))
        b.optimizer = v;
    else if (take(text, "keep", &v))
        b.keep = v;
    else if (take(text, "weights", &v))
        b.weights = dtype_named(v);
    else if (take(text, "policy", &v))
        b.policy = strcmp(v, "f32") == 0   ? RN_DTYPE_F32
                   : strcmp(v, "f16") == 0 ? RN_DTYPE_F16
                                           : RN_DTYPE_BF16;
    else {
        fprintf(stderr, "what is '%s'?\n", text);
        exit(2);
    }
}

int main(int argc, char **argv) {
    double begin = now();
    rn_device *device = NULL;
    rn_session *session = NULL;
    if (argc < 2) {
        fprintf(stderr, "image_bench NETWORK [KEY=VALUE ...] [ops] [plan]\n");
        return 2;
    }
    b.network = argv[1];
    for (int i = 2; i < argc; i++)
        read_option(argv[i]);
    make_network(&b.inner);
    rn_recipe recipe = b.inner;
    recipe.build = build;
    recipe.destroy = NULL;
    recipe.weights_in_memory = true;
    if (!b.rank) recipe.least_rows = recipe.rows;
    if (b.plan_only) {
        rn_plan *plan = make_plan(&recipe, &h200);
        count_kinds(plan, recipe.rows);
        print_kinds();
        rn_plan_destroy(plan);
        rn_recipe_destroy(&b.inner);
        return 0;
    }
    make_weights();
    must(rn_device_open(b.device, 0, &device));
    rn_plan *plan = make_plan(&recipe, &device->caps);
    rn_weight_source source = {.find = find};
    must(rn_session_create(plan, &source, &(rn_session_options){.device = device}, &session));
    printf("session ready %.2f s after the start\n", now() - begin);
    run_steps(session, plan, device, begin);
    rn_session_destroy(session);
    if (b.ops || b.check) time_ops(plan, &source, device);
    rn_plan_destroy(plan);
    rn_device_destroy(device);
    rn_recipe_destroy(&b.inner);
    free(b.narrow);
    free(b.wide);
    return 0;
}

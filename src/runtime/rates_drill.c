// rates_drill.c — calls on a device, only to be timed: through the device's interface alone, in one
// block of its memory. Here are products; rates_attend.c has attention.
//
//     | x | y | workspace | w 0 | w 1 | ... |      each weight at an address of its own, so that
//                                                  caches do not hold what is read in turn
//
// Where the queue can, launches are recorded and replayed, as a session does for single tokens.
#include "runtime/rates.h"

#include "base/checked.h"
#include "base/clock.h"
#include "memory/account.h"

#include <string.h>
#include <sys/mman.h>

enum {
    ALIGN = 256,
    PATTERN = RN_DRILL_PATTERN, // weights that repeat: whole blocks, but no number of whole rows
    MOST_PASSES = 1024
};

#define LONG_SECONDS 0.75

// ---- numbers ------------------------------------------------------------------------------------

void rn_drill_fill(float *target, uint64_t count) {
    uint64_t state = 0x9E3779B97F4A7C15u;
    for (uint64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        target[i] = (float)(int32_t)(state >> 32) * 0x1p-31f;
    }
}

// The pattern again and again: `numbers` has room for it as f32 and behind that as w's dtype.
rn_status rn_drill_pack(const rn_tensor *w, rn_workers *workers, void *numbers, uint8_t *target) {
    uint8_t *pattern = (uint8_t *)numbers + PATTERN * sizeof(float);
    uint64_t pattern_bytes = 0, bytes = 0;
    rn_packer_room packer;
    if (!rn_dtype_bytes(w->dtype, PATTERN, &pattern_bytes) ||
        !rn_dtype_bytes(w->dtype, rn_tensor_elements(w), &bytes))
        return rn_fail(RN_INVALID, "weights of %s are not in whole blocks",
                       rn_dtype_get(w->dtype)->name);
    rn_drill_fill(numbers, PATTERN);
    RN_TRY(rn_dtype_from_f32(w->dtype, numbers, pattern, PATTERN));
    if (w->layout)
        RN_TRY(w->layout->begin(&packer, w->dtype, w->shape.dims, w->shape.rank, workers, target));
    for (uint64_t at = 0; at < bytes; at += pattern_bytes) {
        uint64_t take = rn_min_u64(pattern_bytes, bytes - at);
        if (w->layout)
            RN_TRY(w->layout->take(&packer, RN_COMPONENT_DATA, at, pattern, take));
        else
            memcpy(target + at, pattern, take);
    }
    return RN_OK;
}

// ---- shapes -------------------------------------------------------------------------------------

static rn_tensor matrix(rn_dtype dtype, uint64_t rows, uint64_t cols) {
    return (rn_tensor){.dtype = dtype, .shape = RN_SHAPE(rows, cols)};
}

static void add_weight(rn_drill_call *c, const rn_drill_kind *kind, uint32_t input, uint64_t n) {
    c->tensors[input] = matrix(kind->dtype, n, kind->k);
    c->weights[c->weight_count++] = input;
}

static void set_call(rn_drill_call *c, rn_op op, const void *attrs, uint32_t inputs) {
    c->call = (rn_call){.op = op,
                        .attrs = attrs,
                        .inputs = c->tensors,
                        .outputs = c->tensors + inputs,
                        .input_count = inputs,
                        .output_count = 1};
}

// x, w, no bias
static void shape_matmul(const rn_drill_kind *kind, uint64_t n, rn_drill_call *c) {
    static const rn_matmul_attrs attrs = {0};
    add_weight(c, kind, 1, n);
    set_call(c, RN_OP_MATMUL, &attrs, 3);
}

// x, no norm, w, no bias, and a residual that lies where x does, where that is as wide.
static void shape_project(const rn_drill_kind *kind, uint64_t n, rn_drill_call *c) {
    static const rn_project_attrs attrs = {.eps = 1e-5f};
    add_weight(c, kind, 2, n);
    if (n <= kind->k) c->tensors[4] = matrix(RN_DTYPE_F32, kind->rows, n);
    set_call(c, RN_OP_PROJECT, &attrs, 5);
}

// x, norm, w, no bias, another w, no bias; the norm's weights are x's first row.
static void shape_gated(const rn_drill_kind *kind, uint64_t n, rn_drill_call *c) {
    static const rn_project_attrs attrs = {.eps = 1e-5f, .activation = RN_ACTIVATION_SILU};
    c->tensors[1] = (rn_tensor){.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(kind->k)};
    add_weight(c, kind, 2, n);
    add_weight(c, kind, 4, n);
    set_call(c, RN_OP_PROJECT_GATED, &attrs, 6);
}

static void shape_product(const rn_drill *drill, const rn_drill_kind *kind, uint32_t number,
                          rn_drill_call *c) {
    const rn_device_caps *caps = &drill->device->caps;
    uint64_t n = kind->n[number % 2];
    *c = (rn_drill_call){0};
    (!kind->fused ? shape_matmul : number % 2 ? shape_gated : shape_project)(kind, n, c);
    c->tensors[0] = matrix(RN_DTYPE_F32, kind->rows, kind->k);
    c->tensors[c->call.input_count] = matrix(RN_DTYPE_F32, kind->rows, n);
    c->call.workers = drill->device->workers;
    c->call.threads = caps->threads;
    for (uint32_t i = 0; caps->weight_layout && i < c->weight_count; i++)
        c->tensors[c->weights[i]].layout = caps->weight_layout(&c->call, c->weights[i]);
    const rn_kernel *kernel = &caps->kernels[c->call.op];
    c->call.workspace_bytes = kernel->workspace ? kernel->workspace(&c->call) : 0;
}

typedef enum part { PART_X, PART_Y, PART_WORKSPACE, PART_W } part;

static uint64_t part_bytes(const rn_drill_call *c, part p) {
    if (p == PART_WORKSPACE) return c->call.workspace_bytes;
    return rn_tensor_bytes(p == PART_X   ? &c->tensors[0]
                           : p == PART_Y ? &c->call.outputs[0]
                                         : &c->tensors[c->weights[0]]);
}

static uint64_t largest(const rn_drill *drill, part p) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < drill->count; i++)
        most = rn_max_u64(most, part_bytes(&drill->calls[i], p));
    return rn_round_up(most, ALIGN);
}

static void place(rn_drill_call *c, uint8_t *x, uint8_t *y, uint8_t *workspace) {
    for (uint32_t i = 0; i < c->call.input_count; i++)
        if (c->tensors[i].dtype != RN_DTYPE_NONE) c->tensors[i].data = x;
    c->tensors[c->call.input_count].data = y;
    if (c->call.workspace_bytes) c->call.workspace = workspace;
}

static uint64_t weight_room(const rn_drill_call *c) {
    return rn_round_up(part_bytes(c, PART_W), ALIGN);
}

// As a session does for weights in the host's memory (walk.c). Only a hint.
static void ask_huge_pages(const rn_drill *drill) {
    uint64_t whole = drill->memory.bytes / RN_PAGE_BYTES * RN_PAGE_BYTES;
    if (!drill->device->caps.own_memory && whole)
        (void)madvise(drill->memory.base, whole, MADV_HUGEPAGE);
}

static rn_status hold(rn_drill *drill) {
    uint64_t y = largest(drill, PART_X), workspace = y + largest(drill, PART_Y);
    uint64_t at = workspace + largest(drill, PART_WORKSPACE);
    uint64_t purposes[RN_PURPOSE_COUNT] = {[RN_PURPOSE_OTHER] = at};
    for (uint32_t i = 0; i < drill->count; i++)
        purposes[RN_PURPOSE_OTHER] += weight_room(&drill->calls[i]) * drill->calls[i].weight_count;
    RN_TRY(rn_device_memory_take(drill->device, purposes, &drill->memory));
    ask_huge_pages(drill);
    uint8_t *base = drill->memory.base;
    for (uint32_t i = 0; i < drill->count; i++) {
        rn_drill_call *c = &drill->calls[i];
        place(c, base, base + y, base + workspace);
        for (uint32_t w = 0; w < c->weight_count; w++, at += weight_room(c))
            c->tensors[c->weights[w]].data = base + at;
    }
    return RN_OK;
}

// ---- filling ------------------------------------------------------------------------------------

rn_status rn_drill_bring(const rn_drill *drill, const rn_tensor *w, const void *host) {
    rn_queue_copy_in(drill->queue, w->data, host, rn_tensor_bytes(w));
    return rn_queue_finish(drill->queue);
}

static rn_status bring_weights_of(const rn_drill *drill, const rn_drill_call *c, const void *host) {
    for (uint32_t i = 0; i < c->weight_count; i++)
        RN_TRY(rn_drill_bring(drill, &c->tensors[c->weights[i]], host));
    return RN_OK;
}

// Products of even numbers are alike, and so are those of odd ones: each is packed once.
static rn_status bring_weights(rn_drill *drill, void *numbers, uint8_t *host) {
    for (uint32_t first = 0; first < 2 && first < drill->count; first++) {
        const rn_drill_call *c = &drill->calls[first];
        RN_TRY(rn_drill_pack(&c->tensors[c->weights[0]], drill->device->workers, numbers, host));
        for (uint32_t i = first; i < drill->count; i += 2)
            RN_TRY(bring_weights_of(drill, &drill->calls[i], host));
    }
    return RN_OK;
}

static rn_status bring_all(rn_drill *drill, void *numbers, uint8_t *host) {
    const rn_tensor *x = &drill->calls[0].tensors[0];
    rn_drill_fill((float *)(void *)host, rn_tensor_elements(x));
    RN_TRY(rn_drill_bring(drill, x, host));
    return bring_weights(drill, numbers, host);
}

static rn_status fill(rn_drill *drill) {
    uint64_t bytes = rn_max_u64(largest(drill, PART_X), largest(drill, PART_W));
    void *host = NULL, *numbers = NULL;
    RN_TRY(rn_device_host_take(drill->device, RN_STAGING, bytes, &host));
    rn_status s = rn_alloc(RN_HOST_OTHER, RN_DRILL_NUMBERS, &numbers);
    if (s == RN_OK) s = bring_all(drill, numbers, host);
    rn_free(RN_HOST_OTHER, numbers, RN_DRILL_NUMBERS);
    rn_device_host_release(drill->device, RN_STAGING, host, bytes);
    return s;
}

rn_status rn_drill_begin(rn_drill *drill, rn_device *device, rn_queue *queue,
                         const rn_drill_kind *kind) {
    *drill = (rn_drill){.device = device, .queue = queue, .count = kind->count};
    for (uint32_t i = 0; i < kind->count; i++)
        shape_product(drill, kind, i, &drill->calls[i]);
    RN_TRY(hold(drill));
    return fill(drill);
}

// ---- the host's memory --------------------------------------------------------------------------

// Of two kinds in turn, as many as are together what `weights` wide ones are.
static rn_drill_kind memory_kind(const rn_rates_sizes *sizes) {
    uint64_t count = 2 * sizes->weights * sizes->wide / (sizes->narrow + sizes->wide);
    return (rn_drill_kind){.rows = 1,
                           .k = sizes->k,
                           .dtype = RN_DTYPE_F16,
                           .n = {sizes->narrow, sizes->wide},
                           .count = (uint32_t)rn_min_u64(count, RN_DRILL_CALLS)};
}

// Half of what is free, at most: others need the rest.
static uint64_t room_on_host(void) {
    rn_process_info info;
    return rn_process_read(&info) == RN_OK ? rn_process_free_bytes(&info) / 2 : 0;
}

rn_status rn_drill_begin_memory(rn_drill *drill, rn_device *host, rn_queue *queue,
                                const rn_rates_sizes *sizes) {
    rn_drill_kind kind = memory_kind(sizes);
    uint64_t pair = 2 * sizes->k * (sizes->narrow + sizes->wide), room = room_on_host();
    while (kind.count > 2 && kind.count / 2 * pair > room)
        kind.count -= 2;
    return rn_drill_begin(drill, host, queue, &kind);
}

uint64_t rn_drill_weight_bytes(const rn_drill *drill) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < drill->count; i++)
        bytes += part_bytes(&drill->calls[i], PART_W) * drill->calls[i].weight_count;
    return bytes;
}

// ---- timing -------------------------------------------------------------------------------------

void rn_drill_launch(const rn_drill *drill, uint32_t launches) {
    for (uint32_t i = 0; i < launches; i++) {
        const rn_call *call = &drill->calls[i % drill->count].call;
        rn_queue_launch(drill->queue, &drill->device->caps.kernels[call->op], call);
    }
}

static rn_status run_passes(void *self) {
    rn_drill *drill = self;
    for (uint32_t i = 0; i < drill->passes; i++)
        if (drill->recording)
            drill->queue->replay(drill->queue, drill->recording);
        else
            rn_drill_launch(drill, drill->launches);
    return rn_queue_finish(drill->queue);
}

static rn_status record(rn_drill *drill) {
    rn_queue *queue = drill->queue;
    if (!queue->record) return RN_OK;
    RN_TRY(queue->record(queue));
    rn_drill_launch(drill, drill->launches);
    return queue->keep(queue, &drill->recording);
}

// The first pass is not recorded and does not count: whatever is done once is done there. Unless it
// takes so long that this is nothing.
static rn_status time_passes(rn_drill *drill, const rn_rates_options *options, double least_seconds,
                             double *out_seconds) {
    double once = 0, all = 0;
    uint64_t start = rn_clock_ns();
    drill->passes = 1;
    RN_TRY(run_passes(drill));
    *out_seconds = (double)(rn_clock_ns() - start) / 1e9;
    if (*out_seconds > LONG_SECONDS) return RN_OK;
    RN_TRY(record(drill));
    RN_TRY(rn_rates_time(options, run_passes, drill, &once));
    double wanted = least_seconds / (once > 1e-9 ? once : 1e-9);
    *out_seconds = once;
    if (wanted < 2) return RN_OK; // that was long enough
    drill->passes = wanted < MOST_PASSES ? (uint32_t)wanted : MOST_PASSES;
    RN_TRY(rn_rates_time(options, run_passes, drill, &all));
    *out_seconds = all / drill->passes;
    return RN_OK;
}

rn_status rn_drill_time(rn_drill *drill, const rn_rates_options *options, uint32_t launches,
                        double least_seconds, double *out_seconds) {
    drill->launches = launches;
    rn_status s = time_passes(drill, options, least_seconds, out_seconds);
    if (drill->recording) drill->queue->forget(drill->queue, drill->recording);
    drill->recording = NULL;
    return s;
}

void rn_drill_end(rn_drill *drill) {
    rn_device_memory_release(&drill->memory);
}

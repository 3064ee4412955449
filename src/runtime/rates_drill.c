// rates_drill.c — products on a device, only to be timed: through the device's interface alone, in
// one block of its memory.
//
//     | x | y | workspace | w 0 | w 1 | ... |      each weight at an address of its own, so that
//                                                  caches do not hold what is read in turn
//
// Where the queue can, launches are recorded and replayed, as a session does for single tokens.
#include "runtime/rates.h"

#include "base/checked.h"
#include "memory/account.h"
#include "tensor/panels.h"
#include "tensor/tiles.h"

#include <string.h>

enum {
    ALIGN = 256,
    PATTERN = 32 * 2039, // weights that repeat: whole blocks, but no number of whole rows
    MOST_PASSES = 1024
};

static const rn_account staging = {.device = RN_DEVICE_HOST, .purpose = RN_PURPOSE_STAGING};

// ---- numbers ------------------------------------------------------------------------------------

void rn_drill_fill(float *target, uint64_t count) {
    uint64_t state = 0x9E3779B97F4A7C15u;
    for (uint64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        target[i] = (float)(int32_t)(state >> 32) * 0x1p-31f;
    }
}

// Takes the bytes of a file's weight; one layout or the other.
typedef struct packing {
    rn_layout layout;
    rn_packer panels;
    rn_tiler tiles;
    uint8_t *target;
} packing;

static rn_status begin_packing(const rn_tensor *w, rn_workers *workers, uint8_t *target,
                               packing *out) {
    uint64_t rows = w->shape.dims[0], cols = w->shape.dims[1];
    *out = (packing){.layout = w->layout, .target = target};
    if (w->layout == RN_LAYOUT_PANELS)
        RN_TRY(rn_packer_begin(&out->panels, w->dtype, rows, cols, target));
    if (w->layout == RN_LAYOUT_TILES)
        RN_TRY(rn_tiler_begin(&out->tiles, w->dtype, rows, cols, target));
    out->panels.workers = out->tiles.workers = workers;
    return RN_OK;
}

static rn_status take(packing *p, uint64_t offset, const void *data, uint64_t bytes) {
    if (p->layout == RN_LAYOUT_PANELS)
        return rn_packer_take(&p->panels, RN_PART_DATA, offset, data, bytes);
    if (p->layout == RN_LAYOUT_TILES)
        return rn_tiler_take(&p->tiles, RN_PART_DATA, offset, data, bytes);
    memcpy(p->target + offset, data, bytes);
    return RN_OK;
}

// The pattern again and again: `numbers` has room for it as f32 and behind that as w's dtype.
static rn_status pack_weight(const rn_tensor *w, rn_workers *workers, float *numbers,
                             uint8_t *target) {
    uint8_t *pattern = (uint8_t *)(numbers + PATTERN);
    uint64_t pattern_bytes = 0, bytes = 0;
    packing p;
    if (!rn_dtype_bytes(w->dtype, PATTERN, &pattern_bytes) ||
        !rn_dtype_bytes(w->dtype, rn_tensor_elements(w), &bytes))
        return rn_fail(RN_INVALID, "weights of %s are not in whole blocks",
                       rn_dtype_get(w->dtype)->name);
    rn_drill_fill(numbers, PATTERN);
    RN_TRY(rn_dtype_from_f32(w->dtype, numbers, pattern, PATTERN));
    RN_TRY(begin_packing(w, workers, target, &p));
    for (uint64_t at = 0; at < bytes; at += pattern_bytes)
        RN_TRY(take(&p, at, pattern, rn_min_u64(pattern_bytes, bytes - at)));
    return RN_OK;
}

// ---- shapes -------------------------------------------------------------------------------------

static void shape_product(const rn_drill *drill, const rn_drill_kind *kind, uint64_t n,
                          rn_drill_product *p) {
    static const rn_matmul_attrs attrs = {0};
    const rn_device_caps *caps = &drill->device->caps;
    rn_tensor *t = p->tensors;
    t[0] = (rn_tensor){.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(kind->rows, kind->k)};
    t[1] = (rn_tensor){.dtype = kind->dtype, .shape = RN_SHAPE(n, kind->k)};
    t[2] = (rn_tensor){.dtype = RN_DTYPE_NONE};
    t[3] = (rn_tensor){.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(kind->rows, n)};
    p->call = (rn_call){.op = RN_OP_MATMUL,
                        .attrs = &attrs,
                        .inputs = t,
                        .outputs = t + 3,
                        .input_count = 3,
                        .output_count = 1,
                        .workers = drill->device->workers,
                        .threads = caps->threads};
    if (caps->weight_layout) t[1].layout = caps->weight_layout(&p->call, 1);
    const rn_kernel *kernel = &caps->kernels[RN_OP_MATMUL];
    p->call.workspace_bytes = kernel->workspace ? kernel->workspace(&p->call) : 0;
}

// Numbers of a product's tensors, and the place of the bias that it does not have.
enum { PART_X = 0, PART_W = 1, PART_WORKSPACE = 2, PART_Y = 3 };

static uint64_t part_bytes(const rn_drill_product *p, int part) {
    return part == PART_WORKSPACE ? p->call.workspace_bytes : rn_tensor_bytes(&p->tensors[part]);
}

static uint64_t largest(const rn_drill *drill, int part) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < drill->count; i++)
        most = rn_max_u64(most, part_bytes(&drill->products[i], part));
    return rn_round_up(most, ALIGN);
}

static rn_status hold(rn_drill *drill) {
    uint64_t y = largest(drill, PART_X), workspace = y + largest(drill, PART_Y);
    uint64_t first = workspace + largest(drill, PART_WORKSPACE), each = largest(drill, PART_W);
    uint64_t purposes[RN_PURPOSE_COUNT] = {[RN_PURPOSE_OTHER] = first + each * drill->count};
    RN_TRY(rn_device_memory_take(drill->device, purposes, &drill->memory));
    uint8_t *base = drill->memory.base;
    for (uint32_t i = 0; i < drill->count; i++) {
        rn_drill_product *p = &drill->products[i];
        p->tensors[0].data = base;
        p->tensors[3].data = base + y;
        if (p->call.workspace_bytes) p->call.workspace = base + workspace;
        p->tensors[1].data = base + first + each * i;
    }
    return RN_OK;
}

// ---- filling ------------------------------------------------------------------------------------

static rn_status bring(rn_drill *drill, const rn_tensor *to, const void *host) {
    rn_queue_copy_in(drill->queue, to->data, host, rn_tensor_bytes(to));
    return rn_queue_finish(drill->queue);
}

// Products of even numbers are alike, and so are those of odd ones: each is packed once.
static rn_status bring_weights(rn_drill *drill, float *numbers, uint8_t *host) {
    for (uint32_t first = 0; first < 2 && first < drill->count; first++) {
        const rn_tensor *w = &drill->products[first].tensors[1];
        RN_TRY(pack_weight(w, drill->device->workers, numbers, host));
        for (uint32_t i = first; i < drill->count; i += 2)
            RN_TRY(bring(drill, &drill->products[i].tensors[1], host));
    }
    return RN_OK;
}

static rn_status bring_all(rn_drill *drill, float *numbers, uint8_t *host) {
    const rn_tensor *x = &drill->products[0].tensors[0];
    rn_drill_fill((float *)(void *)host, rn_tensor_elements(x));
    RN_TRY(bring(drill, x, host));
    return bring_weights(drill, numbers, host);
}

static rn_status fill(rn_drill *drill) {
    uint64_t bytes = rn_max_u64(largest(drill, PART_X), largest(drill, PART_W));
    uint64_t numbers_bytes = 2 * PATTERN * sizeof(float);
    void *host = NULL, *numbers = NULL;
    RN_TRY(rn_device_host_take(drill->device, staging, bytes, &host));
    rn_status s = rn_alloc(RN_HOST_OTHER, numbers_bytes, &numbers);
    if (s == RN_OK) s = bring_all(drill, numbers, host);
    rn_free(RN_HOST_OTHER, numbers, numbers_bytes);
    rn_device_host_give_back(drill->device, staging, host, bytes);
    return s;
}

rn_status rn_drill_begin(rn_drill *drill, rn_device *device, rn_queue *queue,
                         const rn_drill_kind *kind) {
    *drill = (rn_drill){.device = device, .queue = queue, .count = kind->count};
    for (uint32_t i = 0; i < kind->count; i++)
        shape_product(drill, kind, kind->n[i % 2], &drill->products[i]);
    RN_TRY(hold(drill));
    return fill(drill);
}

// ---- timing -------------------------------------------------------------------------------------

static void launch_all(rn_drill *drill) {
    const rn_kernel *kernel = &drill->device->caps.kernels[RN_OP_MATMUL];
    for (uint32_t i = 0; i < drill->launches; i++)
        rn_queue_launch(drill->queue, kernel, &drill->products[i % drill->count].call);
}

static rn_status run_passes(void *self) {
    rn_drill *drill = self;
    for (uint32_t i = 0; i < drill->passes; i++)
        if (drill->recording)
            drill->queue->replay(drill->queue, drill->recording);
        else
            launch_all(drill);
    return rn_queue_finish(drill->queue);
}

static rn_status record(rn_drill *drill) {
    rn_queue *queue = drill->queue;
    if (!queue->record) return RN_OK;
    RN_TRY(queue->record(queue));
    launch_all(drill);
    return queue->keep(queue, &drill->recording);
}

// The first pass is not recorded and not timed: whatever is done once is done there.
static rn_status time_passes(rn_drill *drill, const rn_rates_options *options, double least_seconds,
                             double *out_seconds) {
    double once = 0, all = 0;
    drill->passes = 1;
    RN_TRY(run_passes(drill));
    RN_TRY(record(drill));
    RN_TRY(rn_rates_time(options, run_passes, drill, &once));
    double wanted = least_seconds / (once > 1e-9 ? once : 1e-9);
    drill->passes = wanted < 1 ? 1 : wanted < MOST_PASSES ? (uint32_t)wanted : MOST_PASSES;
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
    rn_device_memory_give_back(&drill->memory);
}

// rates_attend.c — attention on a device, only to be timed: the last rows of one sequence, to keys
// of its whole length in pages.
//
//     | q | k | v | kv | sequence | position | page table | result | workspace |
#include "runtime/rates.h"

#include "base/checked.h"
#include "memory/account.h"

enum { ALIGN = 256, Q = 0, K, V, KV, SEQUENCE, POSITION, PAGE_TABLE, NEW_KV, RESULT, TENSORS };

static rn_tensor tensor(rn_dtype dtype, rn_shape shape) {
    return (rn_tensor){.dtype = dtype, .shape = shape};
}

static void shape(const rn_drill *drill, const rn_drill_attention *kind, rn_drill_call *c) {
    static const rn_attend_attrs attrs = {
        .attention = {.causal = true}, .rope = {.base = 10000}, .steady_places = true};
    uint64_t pages = kind->keys / RN_DRILL_PAGE;
    rn_tensor *t = c->tensors;
    t[Q] = t[RESULT] = tensor(RN_DTYPE_F32, RN_SHAPE(kind->rows, kind->heads, kind->head_dim));
    t[K] = t[V] = tensor(RN_DTYPE_F32, RN_SHAPE(kind->rows, kind->kv_heads, kind->head_dim));
    t[KV] = tensor(RN_DTYPE_F16, RN_SHAPE(pages, 2, kind->kv_heads, RN_DRILL_PAGE, kind->head_dim));
    t[NEW_KV] = t[KV];
    t[SEQUENCE] = t[POSITION] = tensor(RN_DTYPE_I32, RN_SHAPE(kind->rows));
    t[PAGE_TABLE] = tensor(RN_DTYPE_I32, RN_SHAPE(1, pages));
    c->call = (rn_call){.op = RN_OP_ATTEND,
                        .attrs = &attrs,
                        .inputs = t,
                        .outputs = t + NEW_KV,
                        .input_count = NEW_KV,
                        .output_count = TENSORS - NEW_KV,
                        .workers = drill->device->workers,
                        .threads = drill->device->caps.threads};
    const rn_kernel *kernel = &drill->device->caps.kernels[RN_OP_ATTEND];
    c->call.workspace_bytes = kernel->workspace ? kernel->workspace(&c->call) : 0;
}

// The state that comes out is the one that goes in.
static rn_status hold(rn_drill *drill, rn_drill_call *c) {
    uint64_t at[TENSORS], bytes = 0;
    for (int i = 0; i < TENSORS; i++) {
        at[i] = bytes;
        if (i != NEW_KV) bytes += rn_round_up(rn_tensor_bytes(&c->tensors[i]), ALIGN);
    }
    at[NEW_KV] = at[KV];
    uint64_t purposes[RN_PURPOSE_COUNT] = {[RN_PURPOSE_OTHER] = bytes + c->call.workspace_bytes};
    RN_TRY(rn_device_memory_take(drill->device, purposes, &drill->memory));
    for (int i = 0; i < TENSORS; i++)
        c->tensors[i].data = drill->memory.base + at[i];
    if (c->call.workspace_bytes) c->call.workspace = drill->memory.base + bytes;
    return RN_OK;
}

// `first`, `first + step`, ...
static rn_status bring_numbers(const rn_drill *drill, const rn_tensor *to, uint64_t first,
                               uint64_t step, int32_t *host) {
    for (uint64_t i = 0; i < rn_tensor_elements(to); i++)
        host[i] = (int32_t)(first + i * step);
    return rn_drill_bring(drill, to, host);
}

static rn_status bring_all(const rn_drill *drill, const rn_drill_attention *kind, void *numbers,
                           void *host) {
    const rn_tensor *t = drill->calls[0].tensors;
    for (int i = Q; i <= KV; i++) {
        RN_TRY(rn_drill_pack(&t[i], drill->device->workers, numbers, host));
        RN_TRY(rn_drill_bring(drill, &t[i], host));
    }
    RN_TRY(bring_numbers(drill, &t[SEQUENCE], 0, 0, host));
    RN_TRY(bring_numbers(drill, &t[POSITION], kind->keys - kind->rows, 1, host));
    return bring_numbers(drill, &t[PAGE_TABLE], 0, 1, host);
}

static rn_status fill(const rn_drill *drill, const rn_drill_attention *kind) {
    uint64_t bytes = 0;
    void *host = NULL, *numbers = NULL;
    for (int i = 0; i < NEW_KV; i++)
        bytes = rn_max_u64(bytes, rn_tensor_bytes(&drill->calls[0].tensors[i]));
    RN_TRY(rn_device_host_take(drill->device, RN_STAGING, bytes, &host));
    rn_status s = rn_alloc(RN_HOST_OTHER, RN_DRILL_NUMBERS, &numbers);
    if (s == RN_OK) s = bring_all(drill, kind, numbers, host);
    rn_free(RN_HOST_OTHER, numbers, RN_DRILL_NUMBERS);
    rn_device_host_release(drill->device, RN_STAGING, host, bytes);
    return s;
}

rn_status rn_drill_begin_attention(rn_drill *drill, rn_device *device, rn_queue *queue,
                                   const rn_drill_attention *kind) {
    *drill = (rn_drill){.device = device, .queue = queue, .count = 1};
    shape(drill, kind, &drill->calls[0]);
    RN_TRY(hold(drill, &drill->calls[0]));
    return fill(drill, kind);
}

// device.c — the least that a device is: caps, a block of memory, a queue.
#include "backend/null/null.h"
#include "device/executable.h"
#include "memory/account.h"

#include <stdio.h>
#include <string.h>

const rn_kernel rn_null_kernels[RN_OP_COUNT] = {0};

static rn_layout weight_layout(const rn_call *call, uint32_t input) {
    (void)call;
    (void)input;
    return RN_LAYOUT_PLAIN;
}

static rn_status take(rn_device *device, rn_account account, uint64_t bytes, void **out) {
    (void)device;
    (void)account;
    return rn_alloc_aligned(&rn_system_allocator, bytes, RN_PAGE_BYTES, out);
}

static void release(rn_device *device, void *block, uint64_t bytes) {
    (void)device;
    rn_free(&rn_system_allocator, block, bytes);
}

static rn_status open_queue(rn_device *device, rn_queue_kind kind, const _Atomic bool *cancel,
                            rn_queue **out) {
    (void)device;
    (void)kind;
    return rn_queue_thread_create(rn_host_executor, cancel, out);
}

// Instead of kernels: a compiler. A real one names the first node that it cannot compile, fills in
// rn_executable's functions, and says in purpose_bytes what it holds.
static rn_status compile(rn_device *device, const rn_compile_request *request,
                         rn_executable **out) {
    (void)device;
    *out = NULL;
    const rn_node *first = rn_graph_node(request->graph, 0);
    return rn_fail(RN_UNSUPPORTED, "null cannot compile node '%s' (%s)", first->name,
                   rn_op_name(first->op));
}

static rn_status estimate(const rn_device_caps *caps, const rn_graph *graph, uint64_t rows,
                          uint64_t purpose_bytes[RN_PURPOSE_COUNT]) {
    (void)caps;
    return rn_executable_count(graph, rows, purpose_bytes); // and what it needs within a run
}

static void destroy(rn_device *device) {
    rn_free(RN_HOST_OTHER, device, sizeof *device);
}

static rn_status fill_caps(rn_device_caps *caps) {
    *caps = (rn_device_caps){
        .name = "null",
        .threads = 1,
        .kernels = rn_null_kernels,
        .backend = &rn_null_backend,
        .weight_layout = weight_layout,
        .own_memory = true,
        .flops = 1e9,
        .quantized_flops = 1e9,
        .memory_bytes_second = 1e9,
        .disk_bytes_second = 1e9,
        .link_bytes_second = 1e9,
        .step_seconds = 1e-6,
    };
    return rn_device_add(caps->name, &caps->device);
}

rn_status rn_null_device_create(bool compiles, rn_device **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_device), &block));
    rn_device *device = block;
    device->alloc = take;
    device->free = release;
    device->open_queue = open_queue;
    device->destroy = destroy;
    rn_status s = fill_caps(&device->caps);
    if (compiles) {
        device->compile = compile;
        device->caps.compiles = true;
        device->caps.kernels = NULL;
    }
    if (s == RN_OK)
        *out = device;
    else
        rn_device_destroy(device);
    return s;
}

// "null", with kernels, or "null:compile".
static rn_status parse(rn_str text, rn_target *out) {
    bool compiles = rn_str_equal(text, RN_STR("compile"));
    if (!compiles) return rn_target_parse_plain(text, out);
    memcpy(out->own, &compiles, sizeof compiles);
    snprintf(out->name, sizeof out->name, "null:compile");
    return RN_OK;
}

static rn_status open_null(const rn_target *target, uint32_t threads, rn_device **out) {
    bool compiles;
    (void)threads;
    memcpy(&compiles, target->own, sizeof compiles);
    return rn_null_device_create(compiles, out);
}

const rn_backend rn_null_backend = {
    .name = "null",
    .parse = parse,
    .open = open_null,
    .estimate = estimate,
};

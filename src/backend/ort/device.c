// device.c — ONNX Runtime's CPU as a device. Its memory is the host's. The library is loaded when
// the device is opened, so that what it takes of the process is measured before a plan is made.
#include "backend/ort/ort.h"

#include "memory/account.h"

#include <stdio.h>
#include <string.h>

static rn_layout weight_layout(const rn_call *call, uint32_t input) {
    (void)call;
    (void)input;
    return RN_LAYOUT_PLAIN;
}

static void destroy(rn_device *base) {
    rn_ort_device *device = (rn_ort_device *)((char *)base - offsetof(rn_ort_device, base));
    rn_workers_destroy(base->workers);
    rn_free(RN_HOST_OTHER, device, sizeof *device);
}

static void fill_caps(rn_ort_device *device, const rn_backend *backend, uint32_t threads) {
    const rn_device_caps *cpu = rn_cpu_caps();
    uint32_t own = device->target.threads;
    device->base.caps = (rn_device_caps){.threads = own       ? own
                                                    : threads ? threads
                                                              : cpu->threads,
                                         .backend = backend,
                                         .device = RN_DEVICE_HOST,
                                         .compiles = true,
                                         .weight_layout = weight_layout,
                                         .most_rows = device->target.most_rows,
                                         .flops = cpu->flops,
                                         .quantized_flops = cpu->quantized_flops,
                                         .memory_bytes_second = cpu->memory_bytes_second,
                                         .disk_bytes_second = cpu->disk_bytes_second,
                                         .link_bytes_second = cpu->link_bytes_second,
                                         .step_seconds = 5e-6};
    device->base.caps.own[RN_ORT_LEVEL] = device->target.level;
    snprintf(device->base.caps.name, sizeof device->base.caps.name, "ort");
}

rn_status rn_ort_open(const rn_target *target, uint32_t threads, rn_device **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_ort_device), &block));
    rn_ort_device *device = block;
    memcpy(&device->target, target->own, sizeof device->target);
    rn_executable_device_init(&device->base);
    device->base.compile = rn_ort_compile;
    device->base.destroy = destroy;
    fill_caps(device, target->backend, threads);
    rn_status s = rn_ort_load(device->target.library, &device->api);
    device->base.caps.frugal = !device->target.packs || !rn_ort_shares_initializers();
    if (s == RN_OK)
        s = rn_workers_create(device->base.caps.threads, RN_HOST_OTHER, &device->base.workers);
    if (s == RN_OK)
        *out = &device->base;
    else
        destroy(&device->base);
    return s;
}

// device.c — the CPU as a device: its memory is the host's, it computes in the thread that asks,
// with workers beside it.
#include "backend/cpu/cpu.h"
#include "device/device.h"
#include "graph/fuse.h"
#include "memory/account.h"

#include <stddef.h>

// Modest for any machine of the last ten years: a plan made with them is feasible all the same, its
// times are rough. `ration calibrate` measures.
#define FLOPS_A_THREAD      20e9
#define QUANTIZED_A_THREAD  40e9
#define MEMORY_BYTES_SECOND 8e9
#define DISK_BYTES_SECOND   1e9
#define STEP_SECONDS        5e-6
// On one host of an H200 (16 cores, 2026-11-15) interleaved runs took as long as with about this.
#define BESIDE_LINK 0.75
// Measured on q4_0, 1.1 billion weights: 129, 183, 224, 242, 267 tokens/s with 8, 16, 32, 64, 512
// rows.
#define PRODUCT_ROWS 8

// Below this the pages around a weight are more than a few percent of it.
#define RAW_WEIGHT_BYTES ((uint64_t)256 << 10)
// Smaller tables are not worth reading again and again.
#define ROW_TABLE_BYTES ((uint64_t)1 << 20)

static rn_device_rates measured; // all 0: none
static rn_device_caps caps;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static rn_device_caps make_caps(uint32_t threads) {
    rn_device_caps made = {
        .name = "cpu",
        .device = RN_DEVICE_HOST,
        .threads = threads,
        .kernels = rn_cpu_kernels,
        .fusions = RN_FUSE_CONV | RN_FUSE_BYTES | RN_FUSE_BIAS,
        .backend = &rn_cpu_backend,
        .weight_layout = rn_cpu_weight_layout,
        .file_layout_bytes = RAW_WEIGHT_BYTES,
        .row_table_bytes = ROW_TABLE_BYTES,
        .flops = FLOPS_A_THREAD * threads,
        .quantized_flops = QUANTIZED_A_THREAD * threads,
        .memory_bytes_second = MEMORY_BYTES_SECOND,
        .disk_bytes_second = DISK_BYTES_SECOND,
        .link_bytes_second = MEMORY_BYTES_SECOND,
        .step_seconds = STEP_SECONDS,
        .product_rows = PRODUCT_ROWS,
        .beside_link = BESIDE_LINK,
    };
    return made;
}

// Whoever measured it; a file may say anything.
static double keep_share(double share) {
    if (share <= 0) return BESIDE_LINK;
    return share >= 1 ? 1 : share > 0.1 ? share : 0.1;
}

static void use_rates(rn_device_caps *of, const rn_device_rates *rates) {
    of->flops = rates->flops;
    of->quantized_flops = rates->quantized_flops;
    of->memory_bytes_second = rates->memory_bytes_second;
    of->disk_bytes_second = rates->disk_bytes_second;
    of->link_bytes_second = rates->link_bytes_second;
    of->step_seconds = rates->step_seconds;
    of->beside_link = keep_share(rates->beside_link);
}

static void find_caps(void) {
    caps = make_caps((uint32_t)rn_cpu_count());
}

const rn_device_caps *rn_cpu_caps(void) {
    pthread_once(&once, find_caps);
    return &caps;
}

void rn_cpu_set_rates(const rn_device_rates *rates) {
    (void)rn_cpu_caps();
    measured = *rates;
    use_rates(&caps, rates);
}

// ---- the device ---------------------------------------------------------------------------------

static rn_status take(rn_device *device, rn_account account, uint64_t bytes, void **out) {
    (void)device;
    (void)account; // the budget has been asked
    return rn_alloc_aligned(&rn_system_allocator, bytes, RN_PAGE_BYTES, out);
}

static void release(rn_device *device, void *block, uint64_t bytes) {
    (void)device;
    rn_free(&rn_system_allocator, block, bytes);
}

static rn_status open_queue(rn_device *device, rn_queue_kind kind, const _Atomic bool *cancel,
                            rn_queue **out) {
    (void)device;
    (void)kind; // nothing is ever copied for the CPU, so both may run in the caller
    return rn_queue_inline_create(rn_host_executor, cancel, out);
}

static void destroy(rn_device *device) {
    rn_workers_destroy(device->workers);
    rn_free(RN_HOST_OTHER, device, sizeof *device);
}

rn_status rn_cpu_device_create(uint32_t threads, rn_device **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_device), &block));
    rn_device *device = block;
    *device = (rn_device){
        .caps = make_caps(threads ? threads : rn_cpu_caps()->threads),
        .alloc = take,
        .free = release,
        .open_queue = open_queue,
        .destroy = destroy,
    };
    if (measured.flops > 0) use_rates(&device->caps, &measured);
    rn_status s = rn_workers_create(device->caps.threads, RN_HOST_OTHER, &device->workers);
    if (s == RN_OK)
        *out = device;
    else
        rn_device_destroy(device);
    return s;
}

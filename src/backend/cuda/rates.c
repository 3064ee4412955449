// rates.c — how fast a GPU is, until somebody measures: the clocks times a share that kernels
// reach.
#include "backend/cuda/cost.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/nvml.h"

#define MEMORY_SHARE        0.85
#define MEMORY_BYTES_SECOND 3e11 // where the clocks are not told
#define FLOPS_SHARE         0.4
#define HALF_SHARE          0.73 // of products by cuBLASLt: an H200's, 740 to 840 TFLOP/s
#define LINK_BYTES_SECOND   2e10 // PCIe 4, where nobody tells
#define LINK_SHARE          0.84 // an H200's: 53 of 63 GB/s
#define DISK_BYTES_SECOND   1e9
#define STEP_SECONDS        3e-6
#define ATTEND_SHARE        0.5   // of the products' rate, for attention of a long prompt
#define ATTEND_SECONDS      22e-6 // an H200's, of a short one
#define RUN_SECONDS         15e-6 // an H200's
#define PRODUCT_ROWS        16
#define UNPACK_WEIGHTS      25.0 // q4_0's, of a multiprocessor in a clock: an H200's
#define UNPACK_BYTES        16.0 // q8_0's

static double ask(const rn_gpu *gpu, int attribute) {
    int value = 0;
    rn_cu_result code = gpu->cuda.driver->device_get_attribute(&value, attribute, gpu->cuda.device);
    return code == RN_CU_SUCCESS && value > 0 ? value : 0;
}

// Bytes move on both edges of the clock.
static double guess_memory(const rn_gpu *gpu) {
    double hertz = ask(gpu, RN_CU_ATTRIBUTE_MEMORY_CLOCK) * 1e3;
    double rate = 2 * hertz * ask(gpu, RN_CU_ATTRIBUTE_MEMORY_WIDTH) / 8 * MEMORY_SHARE;
    return rate > 0 ? rate : MEMORY_BYTES_SECOND;
}

// Of the matrix units in 16 bits: products are nearly all there is to compute.
static double guess_flops(const rn_gpu *gpu) {
    double each_clock = gpu->traits.capability >= 90 ? 4096 : 2048; // a multiprocessor's
    double hertz = ask(gpu, RN_CU_ATTRIBUTE_CLOCK) * 1e3;
    if (hertz == 0) hertz = 1e9;
    return gpu->traits.multiprocessors * each_clock * hertz * FLOPS_SHARE;
}

// Pinned memory reaches most of what the lanes carry. A lane of generation 3 has 8 GT/s with 128 of
// 130 bits; each generation behind it twice that, those before it a half.
static double guess_link(const rn_gpu *gpu) {
    const rn_cuda_driver *driver = gpu->cuda.driver;
    char address[32];
    unsigned generation = 0, lanes = 0;
    if (!driver->device_get_pci_bus_id ||
        driver->device_get_pci_bus_id(address, sizeof address, gpu->cuda.device) != RN_CU_SUCCESS ||
        !rn_nvml_link(address, &generation, &lanes) || generation < 1 || generation > 8 ||
        lanes < 1 || lanes > 32)
        return LINK_BYTES_SECOND;
    double lane = 8e9 / 8 * 128 / 130 / 4;
    for (unsigned g = 1; g < generation; g++)
        lane *= 2;
    return lane * lanes * LINK_SHARE;
}

void rn_gpu_guess_rates(const rn_gpu *gpu, rn_device_caps *caps) {
    caps->flops = caps->quantized_flops = guess_flops(gpu);
    caps->own[RN_CUDA_HALF_FLOPS] = caps->flops / FLOPS_SHARE * HALF_SHARE;
    caps->memory_bytes_second = guess_memory(gpu);
    caps->disk_bytes_second = DISK_BYTES_SECOND;
    caps->link_bytes_second = guess_link(gpu);
    caps->step_seconds = STEP_SECONDS;
    caps->product_rows = PRODUCT_ROWS;
    caps->run_seconds = RUN_SECONDS;
    double clocks = gpu->traits.multiprocessors * ask(gpu, RN_CU_ATTRIBUTE_CLOCK) * 1e3;
    caps->own[RN_CUDA_UNPACK_WEIGHTS] = gpu->traits.has_wgmma ? UNPACK_WEIGHTS * clocks : 0;
    caps->own[RN_CUDA_UNPACK_BYTES] = gpu->traits.has_wgmma ? UNPACK_BYTES * clocks : 0;
    caps->own[RN_CUDA_ATTEND_FLOPS] = caps->flops * ATTEND_SHARE;
    caps->own[RN_CUDA_ATTEND_SECONDS] = ATTEND_SECONDS;
    caps->own[RN_CUDA_MULTIPROCESSORS] = gpu->traits.has_wgmma ? gpu->traits.multiprocessors : 0;
}

// port.c — which copies are made by threads (kernels/port.cu) instead of a copy engine: small ones,
// of pinned memory, which the device can address.
#include "backend/cuda/kernels/rows_args.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/queue.h"
#include "base/checked.h"

enum { MOST_IN = 64 << 10, MOST_OUT = 1 << 20, THREADS = 128 };

static bool is_aligned(const void *address) {
    return (uintptr_t)address % 16 == 0;
}

// Where the device finds the host's memory; NULL: nowhere.
static void *find_mapped(const rn_cuda_driver *driver, const void *host) {
    rn_cu_address mapped = 0;
    rn_cu_result code = driver->pointer_get_attribute(&mapped, RN_CU_POINTER_DEVICE_ADDRESS,
                                                      (rn_cu_address)(uintptr_t)host);
    return code == RN_CU_SUCCESS ? (void *)(uintptr_t)mapped : NULL;
}

bool rn_cuda_port_takes(const rn_cuda_queue *queue, const rn_command *command,
                        rn_port_args *out_args) {
    bool in = command->kind == RN_COMMAND_COPY_IN;
    uint64_t bytes = command->as.copy.bytes;
    if (!in && command->kind != RN_COMMAND_COPY_OUT) return false;
    if (bytes > (in ? MOST_IN : MOST_OUT) || !queue->stream.gpu->module.functions[RN_CUDA_PORT])
        return false;
    const void *host = in ? command->as.copy.source : command->as.copy.target;
    void *mapped = find_mapped(rn_cuda_queue_driver(queue), host);
    *out_args = (rn_port_args){.from = in ? mapped : command->as.copy.source,
                               .to = in ? command->as.copy.target : mapped,
                               .bytes = (uint32_t)bytes,
                               .from_host = in};
    return mapped && is_aligned(out_args->from) && is_aligned(out_args->to);
}

rn_status rn_cuda_port_copy(rn_cuda_queue *queue, const rn_port_args *args) {
    rn_call call = {.stream = &queue->stream};
    uint32_t threads = args->bytes / 16 + args->bytes % 16;
    rn_cuda_grid grid = {(uint32_t)rn_div_up(threads, THREADS), 1, 1, .threads = THREADS,
                         .early = true};
    return rn_cuda_launch(&call, RN_CUDA_PORT, grid, args);
}

// launch.c — from a call to the driver: one struct of arguments, up to two attributes.
//
// A launch that may begin early overlaps the end of the launch before it. That is only right behind
// another launch: behind a copy or a wait the driver would have nothing to hold it to.
#include "backend/cuda/launch.h"
#include "backend/cuda/queue.h"

static rn_status check(const rn_gpu *gpu, rn_cuda_kernel kernel, uint32_t shared_bytes) {
    const char *name = gpu->base.caps.name, *kernel_name = rn_cuda_kernel_name(kernel);
    if (!gpu->module.functions[kernel])
        return rn_hint(rn_fail(RN_UNSUPPORTED, "%s has no kernel %s", name, kernel_name),
                       "build the library again: make cuda");
    if (shared_bytes > gpu->module.shared_bytes[kernel])
        return rn_hint(rn_fail(RN_UNSUPPORTED,
                               "%s wants %u bytes of shared memory, a block of %s has %u",
                               kernel_name, shared_bytes, name, gpu->module.shared_bytes[kernel]),
                       "models run on the CPU: --device cpu");
    return RN_OK;
}

static bool may_begin_early(const rn_cuda_stream *stream, rn_cuda_kernel kernel) {
    return stream->after_launch && (!stream->after_port || kernel == RN_CUDA_PORT) &&
           (stream->is_recording ? stream->gpu->records_early : stream->gpu->starts_early);
}

rn_status rn_cuda_launch(const rn_call *call, rn_cuda_kernel kernel, rn_cuda_grid grid,
                         const void *args) {
    rn_cuda_stream *stream = call->stream;
    const rn_gpu *gpu = stream->gpu;
    RN_TRY(check(gpu, kernel, grid.shared_bytes));
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return RN_OK;
    rn_cu_launch_attribute attributes[2];
    unsigned count = 0;
    if (grid.early && may_begin_early(stream, kernel))
        attributes[count++] = (rn_cu_launch_attribute){.id = RN_CU_LAUNCH_EARLY, .value.number = 1};
    if (grid.ring > 1)
        attributes[count++] =
            (rn_cu_launch_attribute){.id = RN_CU_LAUNCH_CLUSTER, .value.dims = {1, 1, grid.ring}};
    rn_cu_launch launch = {.grid = {grid.x, grid.y, grid.z},
                           .block = {grid.threads, 1, 1},
                           .shared_bytes = grid.shared_bytes,
                           .stream = stream->handle,
                           .attributes = attributes,
                           .attribute_count = count};
    void *arguments[] = {(void *)args};
    rn_cu_result code =
        gpu->cuda.driver->launch_kernel_ex(&launch, gpu->module.functions[kernel], arguments, NULL);
    stream->after_launch = code == RN_CU_SUCCESS;
    stream->after_port = kernel == RN_CUDA_PORT;
    if (code == RN_CU_SUCCESS) return RN_OK;
    return rn_cuda_check(gpu->cuda.driver, code, rn_cuda_kernel_name(kernel));
}

const rn_cuda_traits *rn_cuda_traits_of(const rn_call *call) {
    const rn_cuda_stream *stream = call->stream;
    return &stream->gpu->traits;
}

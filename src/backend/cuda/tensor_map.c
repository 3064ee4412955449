// tensor_map.c — see tensor_map.h.
#include "backend/cuda/tensor_map.h"
#include "backend/cuda/queue.h"

// CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion
enum { MAP_F16 = 6, MAP_BF16 = 9, MAP_SWIZZLE_128 = 3, MAP_PROMOTE_256 = 3 };

rn_status rn_tensor_map_draw(const rn_call *call, const rn_boxed *boxed, rn_tensor_map *out) {
    const rn_cuda_stream *stream = call->stream;
    const rn_cuda_driver *driver = stream->gpu->cuda.driver;
    uint64_t bytes[RN_BOX_RANK] = {0}; // from one element of an axis to the next, but the first's
    if (!driver->tensor_map_encode_tiled)
        return rn_fail(RN_UNSUPPORTED, "the CUDA driver is too old for convolutions in 16 bits");
    for (uint32_t i = 1; i < boxed->rank; i++)
        bytes[i - 1] = boxed->strides[i] * sizeof(uint16_t);
    rn_cu_result code = driver->tensor_map_encode_tiled(
        out, boxed->dtype == RN_DTYPE_BF16 ? MAP_BF16 : MAP_F16, boxed->rank,
        (void *)(uintptr_t)boxed->data, boxed->dims, bytes, boxed->box, boxed->steps, 0,
        MAP_SWIZZLE_128, MAP_PROMOTE_256, 0);
    return rn_cuda_check(driver, code, "describing a tensor to the copy engine");
}

// map_args.h — a tensor as the copy engine is told of it: CUtensorMap, drawn by the driver
// (backend/cuda/tensor_map.h). Read by C and by CUDA C.
#ifndef RN_CUDA_KERNELS_MAP_ARGS_H
#define RN_CUDA_KERNELS_MAP_ARGS_H

#include <stdint.h>

#if defined(__cplusplus)
#define RN_MAP_ALIGN alignas(64)
#else
#define RN_MAP_ALIGN _Alignas(64)
#endif

typedef struct rn_tensor_map {
    RN_MAP_ALIGN uint64_t opaque[16];
} rn_tensor_map;

#endif

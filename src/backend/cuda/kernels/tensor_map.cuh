// tensor_map.cuh — boxes of a tensor to shared memory by the copy engine, through a map that the
// host has drawn (tensor_map.h): what lies outside of the tensor comes as zeros. sm_90 and later.
#ifndef RN_CUDA_KERNELS_TENSOR_MAP_CUH
#define RN_CUDA_KERNELS_TENSOR_MAP_CUH

#include "bulk.cuh"
#include "map_args.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ __forceinline__ void rn_map_fetch(const rn_tensor_map *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// The box at these places of the axes, innermost first, to this block; `barrier` counts its bytes.
__device__ __forceinline__ void rn_map_copy(uint32_t target, const rn_tensor_map *map, int c0,
                                            int c1, int c2, int c3, int c4, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(target),
                 "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void rn_map_copy(uint32_t target, const rn_tensor_map *map, int c0,
                                            int c1, int c2, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(target),
                 "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(barrier)
                 : "memory");
}

// The same to all blocks of the cluster whose rank's bit is set, and to the barrier of each.
__device__ __forceinline__ void rn_map_spread(uint32_t target, const rn_tensor_map *map, int c0,
                                              int c1, int c2, uint32_t barrier, uint16_t blocks) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(target),
                 "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(barrier), "h"(blocks)
                 : "memory");
}

#endif
#endif

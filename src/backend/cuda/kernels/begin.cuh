// begin.cuh — how a small kernel begins where the one before it may still be running: the next one
// may be set up now, and nothing is touched before the one before has ended. Also the small things
// that kernels over elements share.
#ifndef RN_CUDA_KERNELS_BEGIN_CUH
#define RN_CUDA_KERNELS_BEGIN_CUH

#include "rows_args.h"

__device__ __forceinline__ void rn_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// This thread among all of the grid's x axis, and how many those are.
__device__ __forceinline__ uint64_t rn_thread() {
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ uint64_t rn_threads() {
    return (uint64_t)gridDim.x * blockDim.x;
}

// The position that a pair of a token's heads is turned by.
__device__ __forceinline__ int32_t rn_rope_position(const rn_rope_args &a, uint64_t token,
                                                    uint32_t pair) {
    if (a.sections == 0) return a.position[token];
    uint32_t section = 0;
    while (section + 1 < a.sections && pair >= a.section_end[section])
        section++;
    return a.position[token * a.sections + section];
}

__device__ __forceinline__ bool rn_is_aligned(const void *address, uint32_t bytes) {
    return ((uintptr_t)address & (bytes - 1)) == 0;
}

// Places 0 and 1 of element `i` of a walk whose rows have `count` elements (the walk's own, or the
// groups of it that are worked on at once, `width` each).
template <class Index>
__device__ __forceinline__ void rn_walk_find(const rn_walk_args &walk, Index i, Index count,
                                             uint32_t width, uint64_t *at0, uint64_t *at1) {
    Index row = i / count, in_row = i - row * count;
    *at0 = (uint64_t)in_row * width * walk.step[0];
    *at1 = (uint64_t)in_row * width * walk.step[1];
    for (uint32_t axis = 0; axis < walk.rank; axis++) {
        Index dim = (Index)walk.dims[axis], next = row / dim, index = row - next * dim;
        *at0 += index * walk.strides[0][axis];
        *at1 += index * walk.strides[1][axis];
        row = next;
    }
}

#endif

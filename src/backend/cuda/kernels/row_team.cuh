// row_team.cuh — rows of f32, bf16 or f16 in eights: 32 to 1024 lanes of a block have a row each.
//
// Lane l has eights l, l + lanes, l + 2 lanes, ... of its row; they are fetched `Deep` at a time,
// so that several loads are in flight, and rows of up to Deep * lanes eights are kept in registers
// from one pass over the row to the next. Sums are in f32: a lane's elements in order, lanes by xor
// 16, 8, 4, 2, 1, then warps in order (more than 8 of them by xor, too). All of it follows from the
// row's width alone.
#ifndef RN_CUDA_KERNELS_ROW_TEAM_CUH
#define RN_CUDA_KERNELS_ROW_TEAM_CUH

#include "begin.cuh"
#include "half_io.cuh"

template <int Lanes> struct rn_team {
    enum { threads = Lanes > RN_ROWS_THREADS ? Lanes : RN_ROWS_THREADS }; // of a block
    enum { rows = threads / Lanes, warps = Lanes / 32 };                  // at once; of a team

    static __device__ __forceinline__ uint32_t lane() { return threadIdx.x % Lanes; }
    static __device__ __forceinline__ uint32_t number() { return threadIdx.x / Lanes; }

    // Of groups of `Count` lanes.
    template <int Count = 32, class Join>
    static __device__ __forceinline__ float fold_lanes(float value, Join join) {
#pragma unroll
        for (int step = Count / 2; step > 0; step /= 2)
            value = join(value, __shfl_xor_sync(0xffffffffu, value, step));
        return value;
    }
    // The warps' values, which are in shared memory.
    template <class Join>
    static __device__ __forceinline__ float fold_warps(const float *values /* (warps) */,
                                                       Join join) {
        if (warps > 8) return fold_lanes<warps>(values[threadIdx.x % warps], join);
        float value = values[0];
#pragma unroll
        for (int i = 1; i < warps; i++)
            value = join(value, values[i]);
        return value;
    }

    // Joins the lanes' values by `join`; all get the result. All threads of the block call it.
    // `shared` is free again after it.
    template <class Join>
    static __device__ __forceinline__ float fold(float value, float *shared /* (warps) */,
                                                 Join join) {
        value = fold_lanes(value, join);
        if (Lanes == 32) return value;
        if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
        __syncthreads();
        value = fold_warps(shared, join);
        __syncthreads();
        return value;
    }
    static __device__ __forceinline__ float sum(float value, float *shared /* (warps) */) {
        return fold(value, shared, [](float a, float b) { return __fadd_rn(a, b); });
    }
    // Two sums with one barrier. `shared` must not be the last call's.
    static __device__ __forceinline__ void sum_two(float *p, float *q,
                                                   float *shared /* (2, warps) */) {
        auto add = [](float a, float b) { return __fadd_rn(a, b); };
        *p = fold_lanes(*p, add);
        *q = fold_lanes(*q, add);
        if (Lanes == 32) return;
        if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = *p;
        if (threadIdx.x % 32 == 0) shared[warps + threadIdx.x / 32] = *q;
        __syncthreads();
        *p = fold_warps(shared, add);
        *q = fold_warps(shared + warps, add);
    }
};

// A row of a tensor. Whole: rows are in whole eights and the tensor is aligned to 16 bytes, which
// saves the registers of what else could be.
template <bool Whole> struct rn_row {
    const void *data; // of the tensor
    uint64_t at;      // of the row's first element
    uint32_t width, type;
    bool aligned; // all of the tensor's eights

    __device__ __forceinline__ rn_row(uint32_t type, const void *data, uint64_t row, uint32_t width)
        : data(data), at(row * width), width(width), type(type),
          aligned(Whole || (width % 8 == 0 && rn_is_aligned(data, 16))) {}
    // Elements from this eight on.
    __device__ __forceinline__ uint32_t count(uint32_t eight) const {
        return Whole ? 8 : width - 8 * eight;
    }
    __device__ __forceinline__ rn_raw_eight fetch(uint32_t eight) const {
        return rn_fetch_up_to_eight(type, data, at + 8 * eight, count(eight), aligned);
    }
    __device__ __forceinline__ rn_eight load(uint32_t eight) const {
        return rn_widen_eight(type, fetch(eight));
    }
    __device__ __forceinline__ void store(uint32_t eight, const rn_eight &x) const {
        rn_store_up_to_eight(type, (void *)data, at + 8 * eight, count(eight), aligned, x);
    }
};

// What a lane has fetched of a row: chunk c is its eights Deep c .. Deep c + Deep - 1.
template <int Lanes, int Deep> struct rn_held {
    rn_raw_eight raw[Deep];

    static __device__ __forceinline__ uint32_t chunks(uint32_t width) {
        return (width + 8 * Lanes * Deep - 1) / (8 * Lanes * Deep);
    }
    static __device__ __forceinline__ uint32_t place(uint32_t chunk, int k) {
        return (chunk * Deep + k) * Lanes + threadIdx.x % Lanes;
    }
    template <bool Whole>
    __device__ __forceinline__ void fetch(const rn_row<Whole> &row, uint32_t chunk) {
#pragma unroll
        for (int k = 0; k < Deep; k++)
            if (8 * place(chunk, k) < row.width) raw[k] = row.fetch(place(chunk, k));
    }
};

#endif

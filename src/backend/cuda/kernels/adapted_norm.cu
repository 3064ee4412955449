// adapted_norm.cu — the norm of each row of w + scale * up down (graph/op/adapted_norm.c).
//
// A block has RN_ADAPTED_ROWS rows: what it reads of down serves all of them, and a column of them is
// a thread's. Values are the reference's, by fmaf in the order of down's rows; a thread adds up its
// squares in f32, which are few, and threads are joined in double. Everything follows from shapes.
#include "begin.cuh"
#include "plain.cuh"
#include "training_args.h"

namespace {

constexpr int Rows = RN_ADAPTED_ROWS, Warps = RN_ROWS_THREADS / 32;

struct shared_parts {
    float up[RN_ADAPTED_RANK][Rows]; // scale * up of the block's rows
    double sums[Warps][Rows];
};

// Not inlined: the switch over all types once, and not once a row.
__device__ __noinline__ float read_any(const rn_plain_args &w, uint64_t i, uint64_t row) {
    return rn_plain_at(w, i, row);
}

template <uint32_t Type>
__device__ __forceinline__ float read(const rn_plain_args &w, uint64_t i, uint64_t row) {
    if (Type == RN_PLAIN_NONE) return read_any(w, i, row);
    rn_plain_args of = w;
    of.type = Type; // a constant: the switch over types is gone
    return rn_plain_at(of, i, row);
}

__device__ __forceinline__ void load_up(const rn_adapted_norm_args &a, uint64_t first,
                                        shared_parts &s) {
    for (uint32_t i = threadIdx.x; i < a.rank * Rows; i += RN_ROWS_THREADS) {
        uint64_t row = first + i % Rows;
        s.up[i / Rows][i % Rows] =
            row < a.w.rows ? __fmul_rn(a.scale, a.up[row * a.rank + i / Rows]) : 0.0f;
    }
}

// The rows' values of column `c`.
template <uint32_t Type, bool Small>
__device__ __forceinline__ void make_column(const rn_adapted_norm_args &a, uint64_t first,
                                            uint64_t c, const shared_parts &s, float *value) {
#pragma unroll
    for (int i = 0; i < Rows; i++) {
        uint64_t row = first + i;
        value[i] = row < a.w.rows ? read<Type>(a.w, row * a.w.cols + c, row) : 0.0f;
    }
    for (uint32_t r = 0; r < a.rank; r++) {
        float down = a.down[r * a.w.cols + c];
#pragma unroll
        for (int i = 0; i < Rows; i++) {
            uint64_t row = first + i < a.w.rows ? first + i : first;
            float up = Small ? s.up[r][i] : __fmul_rn(a.scale, a.up[row * a.rank + r]);
            value[i] = __fmaf_rn(up, down, value[i]);
        }
    }
}

__device__ __forceinline__ void write(const rn_adapted_norm_args &a, uint64_t first,
                                      const float *sum, shared_parts &s) {
    for (int i = 0; i < Rows; i++) {
        double all = sum[i];
#pragma unroll
        for (int step = 16; step > 0; step /= 2)
            all += __shfl_xor_sync(0xffffffffu, all, step);
        if (threadIdx.x % 32 == 0) s.sums[threadIdx.x / 32][i] = all;
    }
    __syncthreads();
    if (threadIdx.x < Rows && first + threadIdx.x < a.w.rows) {
        double all = 0;
        for (int warp = 0; warp < Warps; warp++)
            all += s.sums[warp][threadIdx.x];
        a.y[first + threadIdx.x] = fmaxf((float)sqrt(all), 0x1p-126f); // FLT_MIN
    }
    __syncthreads();
}

template <uint32_t Type, bool Small>
__device__ __forceinline__ void run(const rn_adapted_norm_args &a, shared_parts &s) {
    for (uint64_t first = (uint64_t)blockIdx.x * Rows; first < a.w.rows;
         first += (uint64_t)gridDim.x * Rows) {
        float sum[Rows] = {};
        if (Small) load_up(a, first, s);
        __syncthreads();
        for (uint64_t c = threadIdx.x; c < a.w.cols; c += RN_ROWS_THREADS) {
            float value[Rows];
            make_column<Type, Small>(a, first, c, s, value);
#pragma unroll
            for (int i = 0; i < Rows; i++)
                sum[i] = __fmaf_rn(value[i], value[i], sum[i]);
        }
        write(a, first, sum, s);
    }
}

} // namespace

#define RN_ADAPTED_NORM(NAME, TYPE)                                                                \
    extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)                                  \
        rn_adapted_norm_##NAME(const __grid_constant__ rn_adapted_norm_args a) {                   \
        __shared__ shared_parts s;                                                                 \
        rn_begin();                                                                                \
        if (a.rank <= RN_ADAPTED_RANK)                                                             \
            run<TYPE, true>(a, s);                                                                 \
        else                                                                                       \
            run<RN_PLAIN_NONE, false>(a, s);                                                       \
    }

RN_ADAPTED_NORM(any, RN_PLAIN_NONE)
RN_ADAPTED_NORM(f32, RN_PLAIN_F32)
RN_ADAPTED_NORM(bf16, RN_PLAIN_BF16)
RN_ADAPTED_NORM(nf4, RN_PLAIN_NF4)

// reduce.cu — sums, maxima and where they are.
//
// Which threads add which elements follows from the size of a group alone, never from how many
// groups there are: a row's sum has the same bits in every batch. Sums are in double, as in the
// reference loops. Three forms:
//
//     reduce_row      the group's elements lie together: 32 or 256 threads a group, or a part of
//     one reduce_column   the groups lie side by side: one thread a group, or a part of one
//     reduce_eights   the same of bf16 and f16, one thread eight groups
//     reduce_parts    where groups were cut into parts: those are folded in order
//     reduce_total    the same for one output of many parts, by a block
//
// The first two for f32, and once more (_any) for bf16 and f16.
#include "begin.cuh"
#include "half_io.cuh"
#include "stride.cuh"
#include "training_args.h"

// NaN counts as larger than everything.
__device__ __forceinline__ bool is_larger(float x, float than) {
    return x > than || (x != x && than == than);
}

__device__ __forceinline__ double start_of(uint32_t fold) {
    return fold == RN_FOLD_MAX ? -INFINITY : 0.0;
}

// Folds what other threads have folded.
__device__ __forceinline__ double join(uint32_t fold, double a, double b) {
    if (fold == RN_FOLD_MAX) return is_larger((float)b, (float)a) ? b : a;
    return __dadd_rn(a, b);
}

__device__ __forceinline__ double take(uint32_t fold, double sum, float x) {
    return join(fold, sum, fold == RN_FOLD_SQUARES ? __dmul_rn(x, x) : x);
}

// Where element `i` of a walk lies. Most groups are one axis.
__device__ __forceinline__ uint64_t place(const rn_walk_args &walk, uint64_t i) {
    uint64_t at, unused;
    if (walk.rank == 0) return i * walk.step[0];
    rn_walk_find<uint64_t>(walk, i, walk.count, 1, &at, &unused);
    return at;
}

__device__ __forceinline__ void put(const rn_reduce_args &a, uint64_t output, double sum) {
    if (a.partial)
        a.partial[output * a.parts + blockIdx.y] = sum;
    else
        rn_store_one(a.y_type, a.y, output, (float)__ddiv_rn(sum, a.divisor));
}

__device__ __forceinline__ uint64_t end_of_part(const rn_reduce_args &a) {
    uint64_t end = (blockIdx.y + 1) * a.part;
    return end < a.elements ? end : a.elements;
}

// Every `Lanes`th element of this block's part of the group that begins at `begin`, from `lane` on,
// several loads in flight at once.
template <int Lanes, bool F32>
__device__ __forceinline__ double fold_part(const rn_reduce_args &a, uint64_t begin,
                                            uint32_t lane) {
    const int deep = 8;
    const uint32_t type = F32 ? (uint32_t)RN_PLAIN_F32 : a.x_type;
    uint64_t end = end_of_part(a), i = blockIdx.y * a.part + lane, step = a.group.step[0];
    double sum = start_of(a.fold);
    for (; a.group.rank == 0 && i + (deep - 1) * Lanes < end; i += deep * Lanes) {
        float v[deep];
#pragma unroll
        for (int j = 0; j < deep; j++)
            v[j] = rn_load_one(type, a.x, begin + (i + j * Lanes) * step);
#pragma unroll
        for (int j = 0; j < deep; j++)
            sum = take(a.fold, sum, v[j]);
    }
    for (; i < end; i += Lanes)
        sum = take(a.fold, sum, rn_load_one(type, a.x, begin + place(a.group, i)));
    return sum;
}

// Eight elements in pairs, in f32: their roundings are small beside those of 16 bits, and what is
// widened to double would be eight times as much.
__device__ __forceinline__ float fold_eight(uint32_t fold, rn_eight x) {
#pragma unroll
    for (int j = 0; fold == RN_FOLD_SQUARES && j < 8; j++)
        x.v[j] = __fmul_rn(x.v[j], x.v[j]);
#pragma unroll
    for (int apart = 4; apart > 0; apart /= 2)
#pragma unroll
        for (int j = 0; j < apart; j++)
            x.v[j] = fold == RN_FOLD_MAX
                         ? (is_larger(x.v[j + apart], x.v[j]) ? x.v[j + apart] : x.v[j])
                         : __fadd_rn(x.v[j], x.v[j + apart]);
    return x.v[0];
}

// The same in eights, where the group lies together: of 16-bit elements single ones would be too
// little at a time.
template <int Lanes>
__device__ __forceinline__ double fold_eights(const rn_reduce_args &a, uint64_t begin,
                                              uint32_t lane) {
    const int deep = 4;
    uint64_t end = end_of_part(a), i = blockIdx.y * a.part + 8 * lane;
    double sum = start_of(a.fold);
    for (; i + (deep - 1) * 8 * Lanes + 8 <= end; i += deep * 8 * Lanes) {
        rn_raw_eight raw[deep];
#pragma unroll
        for (int k = 0; k < deep; k++)
            raw[k] = rn_fetch_eight(a.x_type, a.x, begin + i + k * 8 * Lanes);
#pragma unroll
        for (int k = 0; k < deep; k++) {
            sum = join(a.fold, sum, fold_eight(a.fold, rn_widen_eight(a.x_type, raw[k])));
        }
    }
    for (; i < end; i += 8 * Lanes)
        for (uint64_t j = i; j < i + 8 && j < end; j++)
            sum = take(a.fold, sum, rn_load_one(a.x_type, a.x, begin + j));
    return sum;
}

// Whether all parts of all groups lie together and in whole eights: by shapes, for what is planned
// lies at multiples of 16 bytes.
__device__ __forceinline__ bool is_in_eights(const rn_reduce_args &a) {
    return a.group.rank == 0 && a.group.step[0] == 1 && a.part % 8 == 0 && a.elements % 8 == 0 &&
           rn_is_aligned(a.x, 16);
}

// Warps in order, where a group has more than one: the first thread of the group has the result.
template <int Lanes> __device__ __forceinline__ double join_warps(uint32_t fold, double sum) {
    __shared__ double warps[RN_ROWS_THREADS / 32];
    if (Lanes == 32) return sum;
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    for (int i = 1; threadIdx.x == 0 && i < Lanes / 32; i++)
        sum = join(fold, sum, warps[i]);
    __syncthreads();
    return sum;
}

template <int Lanes, bool F32>
__device__ __forceinline__ void reduce_rows(const rn_reduce_args &a) {
    const uint32_t groups = RN_ROWS_THREADS / Lanes, lane = threadIdx.x % Lanes;
    bool eights = !F32 && is_in_eights(a);
    // All threads of a block go round equally often: warps meet in shared memory.
    for (uint64_t first = (uint64_t)blockIdx.x * groups; first < a.outputs;
         first += (uint64_t)gridDim.x * groups) {
        uint64_t output = first + threadIdx.x / Lanes;
        bool given = output < a.outputs;
        uint64_t begin = given ? place(a.kept, output) : 0;
        double sum = start_of(a.fold);
        if (given && eights)
            sum = fold_eights<Lanes>(a, begin, lane);
        else if (given)
            sum = fold_part<Lanes, F32>(a, begin, lane);
        for (int step = 16; step > 0; step /= 2)
            sum = join(a.fold, sum, __shfl_xor_sync(0xffffffffu, sum, step));
        sum = join_warps<Lanes>(a.fold, sum);
        if (given && lane == 0) put(a, output, sum);
    }
}

// reduce_short: groups that a warp is enough for.
#define RN_REDUCE_ROWS(NAME, LANES, F32)                                                           \
    extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)                                  \
        NAME(const __grid_constant__ rn_reduce_args a) {                                           \
        rn_begin();                                                                                \
        reduce_rows<LANES, F32>(a);                                                                \
    }
RN_REDUCE_ROWS(rn_reduce_row, RN_ROWS_THREADS, true)
RN_REDUCE_ROWS(rn_reduce_row_any, RN_ROWS_THREADS, false)
RN_REDUCE_ROWS(rn_reduce_short, 32, true)
RN_REDUCE_ROWS(rn_reduce_short_any, 32, false)

template <bool F32> __device__ __forceinline__ void reduce_columns(const rn_reduce_args &a) {
    for (uint64_t output = rn_thread(); output < a.outputs; output += rn_threads())
        put(a, output, fold_part<1, F32>(a, place(a.kept, output), 0));
}

extern "C" __global__ void rn_reduce_column(const __grid_constant__ rn_reduce_args a) {
    rn_begin();
    reduce_columns<true>(a);
}

extern "C" __global__ void rn_reduce_column_any(const __grid_constant__ rn_reduce_args a) {
    rn_begin();
    reduce_columns<false>(a);
}

// Columns of 16-bit elements, eight a thread; each is folded as reduce_column_any does.
extern "C" __global__ void __launch_bounds__(128)
    rn_reduce_eights(const __grid_constant__ rn_reduce_args a) {
    const int deep = 4;
    rn_begin();
    uint64_t first = 8 * rn_thread(), step = a.group.step[0];
    uint64_t i = blockIdx.y * a.part, end = end_of_part(a);
    if (first >= a.outputs) return;
    double sums[8];
#pragma unroll
    for (int j = 0; j < 8; j++)
        sums[j] = start_of(a.fold);
    for (; i < end; i += deep) {
        rn_raw_eight raw[deep];
#pragma unroll
        for (int k = 0; k < deep; k++)
            if (i + k < end) raw[k] = rn_fetch_eight(a.x_type, a.x, first + (i + k) * step);
#pragma unroll
        for (int k = 0; k < deep; k++) {
            if (i + k >= end) continue;
            rn_eight x = rn_widen_eight(a.x_type, raw[k]);
#pragma unroll
            for (int j = 0; j < 8; j++)
                sums[j] = take(a.fold, sums[j], x.v[j]);
        }
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
        put(a, first + j, sums[j]);
}

extern "C" __global__ void rn_reduce_parts(const __grid_constant__ rn_reduce_args a) {
    rn_begin();
    for (uint64_t output = rn_thread(); output < a.outputs; output += rn_threads()) {
        const double *parts = a.partial + output * a.parts;
        double sum = parts[0];
        for (uint32_t i = 1; i < a.parts; i++)
            sum = join(a.fold, sum, parts[i]);
        rn_store_one(a.y_type, a.y, output, (float)__ddiv_rn(sum, a.divisor));
    }
}

// One block: thread i folds parts i, i + 256, ... in order, then lanes and warps as in rows.
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_reduce_total(const __grid_constant__ rn_reduce_args a) {
    rn_begin();
    double sum = start_of(a.fold);
    for (uint32_t i = threadIdx.x; i < a.parts; i += RN_ROWS_THREADS)
        sum = join(a.fold, sum, a.partial[i]);
    for (int step = 16; step > 0; step /= 2)
        sum = join(a.fold, sum, __shfl_xor_sync(0xffffffffu, sum, step));
    sum = join_warps<RN_ROWS_THREADS>(a.fold, sum);
    if (threadIdx.x == 0) rn_store_one(a.y_type, a.y, 0, (float)__ddiv_rn(sum, a.divisor));
}

// ---- argmax -------------------------------------------------------------------------------------

// The larger of two places; of equals the first.
__device__ __forceinline__ void keep_larger(float x, uint32_t at, float *best, uint32_t *best_at) {
    bool equal = x == *best || (x != x && *best != *best);
    if (is_larger(x, *best) || (equal && at < *best_at)) *best = x, *best_at = at;
}

// One block a row.
extern "C" __global__ void rn_argmax(const __grid_constant__ rn_argmax_args a) {
    __shared__ float tops[32];
    __shared__ uint32_t places[32];
    rn_begin();
    for (uint64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const float *x = a.x + row * a.width;
        float best = -INFINITY;
        uint32_t at = UINT32_MAX; // of nothing: behind every place
        uint32_t fours = rn_is_aligned(x, 16) ? a.width / 4 : 0;
        rn_stride<8>((const float4 *)x, threadIdx.x, blockDim.x, fours, [&](float4 v, uint32_t i) {
            keep_larger(v.x, 4 * i, &best, &at);
            keep_larger(v.y, 4 * i + 1, &best, &at);
            keep_larger(v.z, 4 * i + 2, &best, &at);
            keep_larger(v.w, 4 * i + 3, &best, &at);
        });
        for (uint32_t i = 4 * fours + threadIdx.x; i < a.width; i += blockDim.x)
            keep_larger(x[i], i, &best, &at);
        for (int step = 16; step > 0; step /= 2)
            keep_larger(__shfl_xor_sync(0xffffffffu, best, step),
                        __shfl_xor_sync(0xffffffffu, at, step), &best, &at);
        if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = best, places[threadIdx.x / 32] = at;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (uint32_t i = 1; i < blockDim.x / 32; i++)
                keep_larger(tops[i], places[i], &best, &at);
            a.y[row] = (int32_t)at;
        }
        __syncthreads();
    }
}

// ---- the gradient of a maximum ------------------------------------------------------------------

// A warp a group. What it needs of x is read before it writes: dx may be x.
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_max_grad(const __grid_constant__ rn_max_grad_args a) {
    rn_begin();
    uint32_t lane = threadIdx.x % 32;
    for (uint64_t group = rn_thread() / 32; group < a.groups; group += rn_threads() / 32) {
        uint64_t begin = place(a.kept, group);
        float best = -INFINITY, dy = rn_load_one(a.dy_type, a.dy, group);
        uint32_t at = UINT32_MAX; // of nothing: behind every place
        for (uint64_t i = lane; i < a.elements; i += 32)
            keep_larger(rn_load_one(a.x_type, a.x, begin + place(a.group, i)), (uint32_t)i, &best,
                        &at);
        for (int step = 16; step > 0; step /= 2)
            keep_larger(__shfl_xor_sync(0xffffffffu, best, step),
                        __shfl_xor_sync(0xffffffffu, at, step), &best, &at);
        for (uint64_t i = lane; i < a.elements; i += 32)
            rn_store_one(a.dx_type, a.dx, begin + place(a.group, i), i == at ? dy : 0.0f);
    }
}

// reduce.cu — sums, maxima and where they are.
//
// Which threads add which elements follows from the size of a group alone, never from how many
// groups there are: a row's sum has the same bits in every batch. Sums are in double, as in the
// reference loops. Three forms:
//
//     reduce_row      the group's elements lie together: 32 or 256 threads a group, or a part of
//     one reduce_column   the groups lie side by side: one thread a group, or a part of one
//     reduce_parts    where groups were cut into parts: those are folded in order
#include "begin.cuh"
#include "stride.cuh"

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
        a.y[output] = (float)__ddiv_rn(sum, a.divisor);
}

__device__ __forceinline__ uint64_t end_of_part(const rn_reduce_args &a) {
    uint64_t end = (blockIdx.y + 1) * a.part;
    return end < a.elements ? end : a.elements;
}

// Every `Lanes`th element of this block's part, from `lane` on, several loads in flight at once.
template <int Lanes>
__device__ __forceinline__ double fold_part(const rn_reduce_args &a, const float *x,
                                            uint32_t lane) {
    const int deep = 8;
    uint64_t end = end_of_part(a), i = blockIdx.y * a.part + lane, step = a.group.step[0];
    double sum = start_of(a.fold);
    for (; a.group.rank == 0 && i + (deep - 1) * Lanes < end; i += deep * Lanes) {
        float v[deep];
#pragma unroll
        for (int j = 0; j < deep; j++)
            v[j] = x[(i + j * Lanes) * step];
#pragma unroll
        for (int j = 0; j < deep; j++)
            sum = take(a.fold, sum, v[j]);
    }
    for (; i < end; i += Lanes)
        sum = take(a.fold, sum, x[place(a.group, i)]);
    return sum;
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

template <int Lanes> __device__ __forceinline__ void reduce_rows(const rn_reduce_args &a) {
    const uint32_t groups = RN_ROWS_THREADS / Lanes, lane = threadIdx.x % Lanes;
    // All threads of a block go round equally often: warps meet in shared memory.
    for (uint64_t first = (uint64_t)blockIdx.x * groups; first < a.outputs;
         first += (uint64_t)gridDim.x * groups) {
        uint64_t output = first + threadIdx.x / Lanes;
        bool given = output < a.outputs;
        const float *x = a.x + (given ? place(a.kept, output) : 0);
        double sum = start_of(a.fold);
        if (given) sum = fold_part<Lanes>(a, x, lane);
        for (int step = 16; step > 0; step /= 2)
            sum = join(a.fold, sum, __shfl_xor_sync(0xffffffffu, sum, step));
        sum = join_warps<Lanes>(a.fold, sum);
        if (given && lane == 0) put(a, output, sum);
    }
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_reduce_row(const __grid_constant__ rn_reduce_args a) {
    rn_begin();
    reduce_rows<RN_ROWS_THREADS>(a);
}

// Groups that a warp is enough for.
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_reduce_short(const __grid_constant__ rn_reduce_args a) {
    rn_begin();
    reduce_rows<32>(a);
}

extern "C" __global__ void rn_reduce_column(const __grid_constant__ rn_reduce_args a) {
    rn_begin();
    for (uint64_t output = rn_thread(); output < a.outputs; output += rn_threads()) {
        const float *x = a.x + place(a.kept, output);
        put(a, output, fold_part<1>(a, x, 0));
    }
}

extern "C" __global__ void rn_reduce_parts(const __grid_constant__ rn_reduce_args a) {
    rn_begin();
    for (uint64_t output = rn_thread(); output < a.outputs; output += rn_threads()) {
        const double *parts = a.partial + output * a.parts;
        double sum = parts[0];
        for (uint32_t i = 1; i < a.parts; i++)
            sum = join(a.fold, sum, parts[i]);
        a.y[output] = (float)__ddiv_rn(sum, a.divisor);
    }
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

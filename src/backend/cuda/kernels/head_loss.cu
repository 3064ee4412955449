// head_loss.cu — from a chunk of logits to losses and d logits, in place.
//
//     loss = log(sum of e^x) - x[target],  dx = (e^(x - log(sum of e^x)) - 1 at the target) weight
//
// A row has a block. Its threads take eights of it in turns, each with a largest value and a sum of
// its own; these are joined in a fixed tree, so that the bits do not depend on who came first. The
// row is read once more for d logits.
#include "begin.cuh"
#include "half_io.cuh"
#include "head_loss_args.h"

namespace {

struct running {
    float largest, sum; // of e^(x - largest)
};

__device__ __forceinline__ running join(running a, running b) {
    running out = {fmaxf(a.largest, b.largest), 0.0f};
    if (out.largest == -INFINITY) return out;
    out.sum = a.sum * __expf(a.largest - out.largest) + b.sum * __expf(b.largest - out.largest);
    return out;
}

__device__ __forceinline__ running take(running r, const rn_eight &x) {
    float most = x.v[0];
#pragma unroll
    for (int j = 1; j < 8; j++)
        most = fmaxf(most, x.v[j]);
    if (most > r.largest) {
        r.sum *= __expf(r.largest - most);
        r.largest = most;
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
        r.sum += __expf(x.v[j] - r.largest);
    return r;
}

__device__ __forceinline__ running join_all(running r, running *shared) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        r = join(r, {__shfl_xor_sync(~0u, r.largest, step), __shfl_xor_sync(~0u, r.sum, step)});
    if (lane == 0) shared[warp] = r;
    __syncthreads();
    r = lane < RN_HEAD_THREADS / 32 ? shared[lane] : running{-INFINITY, 0.0f};
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        r = join(r, {__shfl_xor_sync(~0u, r.largest, step), __shfl_xor_sync(~0u, r.sum, step)});
    return r;
}

__device__ __forceinline__ void *row_of(const rn_head_loss_args &a, uint64_t row) {
    return (uint8_t *)a.logits + row * a.classes * (a.type == RN_PLAIN_F32 ? 4 : 2);
}

// take(i, x[i .. i + 7]) for the thread's eights of a row, several of them on their way at once. What
// the row's last eight lacks is -infinity, which adds nothing.
template <class Take>
__device__ __forceinline__ void each_eight(const rn_head_loss_args &a, const void *x, Take take) {
    constexpr int Flight = 4;
    uint64_t i = threadIdx.x * 8, step = RN_HEAD_THREADS * 8;
    for (; a.is_aligned && i + (Flight - 1) * step + 8 <= a.classes; i += Flight * step) {
        rn_raw_eight raw[Flight];
#pragma unroll
        for (int f = 0; f < Flight; f++)
            raw[f] = rn_fetch_eight(a.type, x, i + f * step);
#pragma unroll
        for (int f = 0; f < Flight; f++)
            take(i + f * step, rn_widen_eight(a.type, raw[f]));
    }
    for (; i < a.classes; i += step) {
        uint64_t left = a.classes - i;
        rn_eight v = rn_load_up_to_eight(a.type, x, i, left < 8 ? (uint32_t)left : 8, a.is_aligned);
        if (left < 8)
#pragma unroll
            for (int j = 0; j < 8; j++)
                if (j >= (int)left) v.v[j] = -INFINITY;
        take(i, v);
    }
}

__device__ __forceinline__ void put(const rn_head_loss_args &a, void *x, uint64_t i,
                                    const rn_eight &v) {
    uint64_t left = a.classes - i;
    rn_store_up_to_eight(a.type, x, i, left < 8 ? (uint32_t)left : 8, a.is_aligned, v);
}

__device__ __forceinline__ void fill(const rn_head_loss_args &a, void *x, float value) {
    rn_eight v;
    for (int j = 0; j < 8; j++)
        v.v[j] = value;
    for (uint64_t i = threadIdx.x * 8; i < a.classes; i += RN_HEAD_THREADS * 8)
        put(a, x, i, v);
}

// A sum over a block of RN_HEAD_SUM_THREADS, the same for all threads.
__device__ __forceinline__ double sum_all(double value, double *shared) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int step = RN_HEAD_SUM_THREADS / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) shared[threadIdx.x] += shared[threadIdx.x + step];
        __syncthreads();
    }
    return shared[0];
}

} // namespace

extern "C" __global__ void __launch_bounds__(RN_HEAD_THREADS)
    rn_head_loss(const __grid_constant__ rn_head_loss_args a) {
    __shared__ running shared[RN_HEAD_THREADS / 32];
    rn_begin();
    for (uint64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        void *x = row_of(a, row);
        int32_t target = a.targets[row];
        bool counts = target != a.ignore, is_class = target >= 0 && target < a.classes;
        if (!counts || !is_class) {
            float value = counts ? __uint_as_float(0x7fc00000) : 0.0f;
            if (threadIdx.x == 0) a.losses[row] = value;
            if (a.differentiates) fill(a, x, value);
            continue;
        }
        running mine = {-INFINITY, 0.0f};
        each_eight(a, x, [&](uint64_t, const rn_eight &v) { mine = take(mine, v); });
        mine = join_all(mine, shared);
        float logsumexp = mine.largest + logf(mine.sum);
        float of_target = rn_load_one(a.type, x, target);
        __syncthreads(); // all have read it, and `shared`
        if (threadIdx.x == 0) a.losses[row] = logsumexp - of_target;
        if (!a.differentiates) continue;
        float weight = *a.weight;
        each_eight(a, x, [&](uint64_t i, rn_eight v) {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                v.v[j] = __expf(v.v[j] - logsumexp);
                if (i + j == target) v.v[j] -= 1.0f;
                v.v[j] *= weight;
            }
            put(a, x, i, v);
        });
    }
}

extern "C" __global__ void __launch_bounds__(RN_HEAD_SUM_THREADS)
    rn_head_begin(const __grid_constant__ rn_head_sum_args a) {
    __shared__ double shared[RN_HEAD_SUM_THREADS];
    double counted = 0;
    rn_begin();
    for (uint64_t i = threadIdx.x; a.is_mean && i < a.rows; i += RN_HEAD_SUM_THREADS)
        counted += a.targets[i] != a.ignore;
    counted = sum_all(counted, shared);
    if (threadIdx.x == 0)
        *a.weight = !a.is_mean ? a.factor : counted > 0 ? (float)(1 / counted) : 0.0f;
}

extern "C" __global__ void __launch_bounds__(RN_HEAD_SUM_THREADS)
    rn_head_end(const __grid_constant__ rn_head_sum_args a) {
    __shared__ double shared[RN_HEAD_SUM_THREADS];
    double sum = 0;
    rn_begin();
    for (uint64_t i = threadIdx.x; i < a.rows; i += RN_HEAD_SUM_THREADS)
        sum += a.losses[i];
    sum = sum_all(sum, shared);
    if (threadIdx.x == 0) *a.loss = (float)(sum * *a.weight);
}

// losses.cu — cross entropy and mean squares, and their gradients. What is summed over rows or over
// all elements is in double, in an order that follows from the shape alone.
#include "begin.cuh"
#include "half_io.cuh"
#include "training_args.h"

// Joins over the block, lanes by xor, then warps in order: all threads get the result. `warps` is
// free again after it.
template <class T, class Join>
__device__ __forceinline__ T join_block(T value, T *warps /* shared, (32) */, Join join) {
    for (int step = 16; step > 0; step /= 2)
        value = join(value, __shfl_xor_sync(0xffffffffu, value, step));
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = warps[0];
    for (uint32_t i = 1; i < blockDim.x / 32; i++)
        value = join(value, warps[i]);
    __syncthreads();
    return value;
}

__device__ __forceinline__ double add_block(double value, double *warps) {
    return join_block(value, warps, [](double a, double b) { return __dadd_rn(a, b); });
}

// ---- cross entropy ------------------------------------------------------------------------------

// 2^x, by the unit for it.
__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The largest so far and the sum of e^(x - it), as powers of two.
struct soft_sum {
    float top, sum;

    // Eight more; what is not there is -infinity.
    __device__ __forceinline__ void take(const rn_eight &x) {
        const float log2e = 1.44269504f;
        float next = top;
#pragma unroll
        for (int j = 0; j < 8; j++)
            next = fmaxf(next, x.v[j]);
        float base = next == -INFINITY ? 0.0f : next; // nothing yet: no difference of infinities
        sum *= power_of_two((top - base) * log2e);
        base *= -log2e;
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum += power_of_two(fmaf(x.v[j], log2e, base));
        top = next;
    }
};

// Elements behind `count` become -infinity.
__device__ __forceinline__ void bury(rn_eight *x, uint32_t count) {
#pragma unroll
    for (int j = 0; j < 8; j++)
        if (j >= (int)count) x->v[j] = -INFINITY;
}

template <uint32_t Type>
__device__ __forceinline__ soft_sum sum_row(const rn_cross_entropy_args &a, uint64_t at) {
    const int deep = 4;
    const uint32_t type = Type ? Type : a.type;
    uint32_t whole = a.width / 8, step = blockDim.x;
    bool aligned = a.width % 8 == 0 && rn_is_aligned(a.logits, 16);
    soft_sum soft = {-INFINITY, 0};
    uint32_t e = threadIdx.x;
    for (; aligned && e + (deep - 1) * step < whole; e += deep * step) {
        rn_raw_eight raw[deep];
#pragma unroll
        for (int k = 0; k < deep; k++)
            raw[k] = rn_fetch_eight(type, a.logits, at + 8 * (e + k * step));
#pragma unroll
        for (int k = 0; k < deep; k++)
            soft.take(rn_widen_eight(type, raw[k]));
    }
    for (; 8 * e < a.width; e += step) {
        uint32_t count = a.width - 8 * e;
        rn_eight x = rn_load_up_to_eight(type, a.logits, at + 8 * e, count, aligned);
        bury(&x, count);
        soft.take(x);
    }
    return soft;
}

extern "C" __global__ void __launch_bounds__(512, 2)
    rn_cross_entropy(const __grid_constant__ rn_cross_entropy_args a) {
    __shared__ float tops[32];
    __shared__ double sums[32];
    rn_begin();
    for (uint64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        int32_t target = a.targets[row];
        if (target == a.ignore && !a.logsumexp) continue;
        soft_sum soft = a.type == RN_PLAIN_BF16 ? sum_row<RN_PLAIN_BF16>(a, row * a.width)
                                                : sum_row<RN_PLAIN_NONE>(a, row * a.width);
        float top = join_block(soft.top, tops, [](float p, float q) { return fmaxf(p, q); });
        double part = soft.top == -INFINITY ? soft.sum // 0, or NaN where the row has one
                                            : soft.sum * exp((double)soft.top - top);
        double lse = top + log(add_block(part, sums));
        if (threadIdx.x > 0) continue;
        bool known = target >= 0 && (uint32_t)target < a.width;
        double at = known ? rn_load_one(a.type, a.logits, row * a.width + target) : NAN;
        if (a.logsumexp) a.logsumexp[row] = (float)lse;
        a.row_loss[row] = lse - at;
    }
}

// One block.
extern "C" __global__ void __launch_bounds__(1024)
    rn_cross_entropy_total(const __grid_constant__ rn_cross_entropy_args a) {
    __shared__ double sums[32];
    rn_begin();
    double sum = 0, counted = 0;
    for (uint64_t row = threadIdx.x; row < a.rows; row += blockDim.x) {
        if (a.targets[row] == a.ignore) continue;
        sum = __dadd_rn(sum, a.row_loss[row]);
        counted += 1;
    }
    sum = add_block(sum, sums);
    counted = add_block(counted, sums);
    if (threadIdx.x > 0) return;
    *a.loss = (float)(a.has_factor ? sum * a.factor : counted > 0 ? sum / counted : 0.0);
    if (a.count) *a.count = (float)counted;
}

// d logits of eight classes from `first` on.
template <bool Quick>
__device__ __forceinline__ void slope_eight(rn_eight *x, float lse, float weight, int32_t target,
                                            uint32_t first) {
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float apart = x->v[j] - lse;
        x->v[j] = (Quick ? __expf(apart) : expf(apart)) * weight;
        if (target == (int32_t)(first + j)) x->v[j] -= weight;
    }
}

template <bool Quick>
__device__ __forceinline__ void slope_row(const rn_cross_entropy_args &a, uint64_t row,
                                          float weight) {
    const int deep = 2;
    int32_t target = a.targets[row];
    uint32_t step = blockDim.x, e = threadIdx.x, whole = a.width / 8;
    uint64_t at = row * a.width;
    bool aligned = a.width % 8 == 0 && rn_is_aligned(a.logits, 16) && rn_is_aligned(a.d_logits, 16);
    float lse = a.row_logsumexp[row];
    if (target < 0 || (uint32_t)target >= a.width) lse = NAN;
    for (; aligned && e + (deep - 1) * step < whole; e += deep * step) {
        rn_raw_eight raw[deep];
#pragma unroll
        for (int k = 0; k < deep; k++)
            raw[k] = rn_fetch_eight(a.type, a.logits, at + 8 * (e + k * step));
#pragma unroll
        for (int k = 0; k < deep; k++) {
            rn_eight x = rn_widen_eight(a.type, raw[k]);
            slope_eight<Quick>(&x, lse, weight, target, 8 * (e + k * step));
            rn_store_eight(a.d_type, a.d_logits, at + 8 * (e + k * step), x);
        }
    }
    for (; 8 * e < a.width; e += step) {
        uint32_t count = a.width - 8 * e;
        rn_eight x = rn_load_up_to_eight(a.type, a.logits, at + 8 * e, count, aligned);
        slope_eight<Quick>(&x, lse, weight, target, 8 * e);
        rn_store_up_to_eight(a.d_type, a.d_logits, at + 8 * e, count, aligned, x);
    }
}

// Rows that do not count are not read.
__device__ __forceinline__ void clear_row(const rn_cross_entropy_args &a, uint64_t row) {
    rn_eight zero = {{0, 0, 0, 0, 0, 0, 0, 0}};
    bool aligned = a.width % 8 == 0 && rn_is_aligned(a.d_logits, 16);
    for (uint32_t e = threadIdx.x; 8 * e < a.width; e += blockDim.x)
        rn_store_up_to_eight(a.d_type, a.d_logits, row * a.width + 8 * e, a.width - 8 * e, aligned,
                             zero);
}

extern "C" __global__ void __launch_bounds__(512, 2)
    rn_cross_entropy_grad(const __grid_constant__ rn_cross_entropy_args a) {
    rn_begin();
    double weight = a.has_factor     ? *a.d_loss * a.factor
                    : *a.counted > 0 ? *a.d_loss / *a.counted
                                     : 0;
    for (uint64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        if (a.targets[row] == a.ignore)
            clear_row(a, row);
        else if (a.d_type == RN_PLAIN_F32)
            slope_row<false>(a, row, (float)weight);
        else
            slope_row<true>(a, row, (float)weight);
    }
}

// ---- mean squares -------------------------------------------------------------------------------

// One block a part.
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_mse(const __grid_constant__ rn_mse_args a) {
    __shared__ double sums[32];
    rn_begin();
    bool aligned = rn_is_aligned(a.a, 16) && rn_is_aligned(a.b, 16);
    for (uint32_t part = blockIdx.x; part < a.parts; part += gridDim.x) {
        uint64_t begin = part * a.part, end = begin + a.part < a.n ? begin + a.part : a.n;
        double sum = 0;
        for (uint64_t i = begin + 8 * threadIdx.x; i < end; i += 8 * blockDim.x) {
            uint32_t count = end - i < 8 ? (uint32_t)(end - i) : 8;
            rn_eight p = rn_load_up_to_eight(a.a_type, a.a, i, count, aligned);
            rn_eight q = rn_load_up_to_eight(a.b_type, a.b, i, count, aligned);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                double apart = __dsub_rn(p.v[j], q.v[j]);
                sum = __dadd_rn(sum, __dmul_rn(apart, apart));
            }
        }
        sum = add_block(sum, sums);
        if (threadIdx.x == 0) a.partial[part] = sum;
    }
}

// One block.
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_mse_total(const __grid_constant__ rn_mse_args a) {
    __shared__ double sums[32];
    rn_begin();
    double sum = 0;
    for (uint32_t part = threadIdx.x; part < a.parts; part += blockDim.x)
        sum = __dadd_rn(sum, a.partial[part]);
    sum = add_block(sum, sums);
    if (threadIdx.x == 0) *a.loss = a.n ? (float)__ddiv_rn(sum, (double)a.n) : 0.0f;
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_mse_grad(const __grid_constant__ rn_mse_args a) {
    rn_begin();
    double factor = __ddiv_rn(__dmul_rn(2.0, *a.d_loss), (double)a.n);
    bool aligned = rn_is_aligned(a.a, 16) && rn_is_aligned(a.b, 16) && rn_is_aligned(a.d_a, 16);
    for (uint64_t i = 8 * rn_thread(); i < a.n; i += 8 * rn_threads()) {
        uint32_t count = a.n - i < 8 ? (uint32_t)(a.n - i) : 8;
        rn_eight p = rn_load_up_to_eight(a.a_type, a.a, i, count, aligned);
        rn_eight q = rn_load_up_to_eight(a.b_type, a.b, i, count, aligned);
#pragma unroll
        for (int j = 0; j < 8; j++)
            p.v[j] = (float)__dmul_rn(__dsub_rn(p.v[j], q.v[j]), factor);
        rn_store_up_to_eight(a.d_type, a.d_a, i, count, aligned, p);
    }
}

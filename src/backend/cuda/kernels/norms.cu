// norms.cu — softmax, layer norm, RMS norm and rope: one block a row, so that a row's bits depend
// on nothing but the row.
//
// The RMS norm's sum is norm.cuh's, in f32; those of softmax and layer norm are in double, as the
// reference loops have them. y may be x: what a row needs of x is read before a barrier, or by the
// thread that writes it.
#include "begin.cuh"
#include "norm.cuh"

// Adds over the block, lanes by xor, then warps in order: all threads get the sum. `warps` is free
// again after the next barrier.
__device__ __forceinline__ double add_block(double sum, double *warps /* shared, (32) */) {
    for (int step = 16; step > 0; step /= 2)
        sum = __dadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, step));
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    double total = warps[0];
    for (uint32_t i = 1; i < blockDim.x / 32; i++)
        total = __dadd_rn(total, warps[i]);
    return total;
}

// The largest of the block that is not NaN.
__device__ __forceinline__ float max_block(float largest, float *warps /* shared, (32) */) {
    for (int step = 16; step > 0; step /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = largest;
    __syncthreads();
    for (uint32_t i = 0; i < blockDim.x / 32; i++)
        largest = fmaxf(largest, warps[i]);
    return largest;
}

extern "C" __global__ void rn_softmax(const __grid_constant__ rn_norm_args a) {
    __shared__ float tops[32];
    __shared__ double sums[32];
    rn_begin();
    for (uint64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const float *x = (const float *)a.x + row * a.width;
        float *y = (float *)a.y + row * a.width;
        float largest = -INFINITY;
        rn_stride<8>(x, threadIdx.x, blockDim.x, a.width,
                     [&](float v, uint32_t) { largest = fmaxf(largest, v); });
        largest = max_block(largest, tops);
        double sum = 0;
        rn_stride<8>(x, threadIdx.x, blockDim.x, a.width, [&](float v, uint32_t i) {
            y[i] = expf(__fsub_rn(v, largest));
            sum = __dadd_rn(sum, y[i]);
        });
        sum = add_block(sum, sums);
        rn_stride<8>(y, threadIdx.x, blockDim.x, a.width,
                     [&](float v, uint32_t i) { y[i] = (float)__ddiv_rn(v, sum); });
        __syncthreads();
    }
}

extern "C" __global__ void rn_layernorm(const __grid_constant__ rn_norm_args a) {
    __shared__ double sums[2][32];
    const float *weight = (const float *)a.weight, *bias = (const float *)a.bias;
    rn_begin();
    for (uint64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const float *x = (const float *)a.x + row * a.width;
        float *y = (float *)a.y + row * a.width;
        double sum = 0, squares = 0;
        rn_stride<8>(x, threadIdx.x, blockDim.x, a.width,
                     [&](float v, uint32_t) { sum = __dadd_rn(sum, v); });
        double mean = __ddiv_rn(add_block(sum, sums[0]), a.width);
        rn_stride<8>(x, threadIdx.x, blockDim.x, a.width, [&](float v, uint32_t) {
            double apart = __dsub_rn(v, mean);
            squares = __dadd_rn(squares, __dmul_rn(apart, apart));
        });
        double variance = __ddiv_rn(add_block(squares, sums[1]), a.width);
        double rstd = __drcp_rn(__dsqrt_rn(__dadd_rn(variance, a.eps)));
        rn_stride<4>(x, threadIdx.x, blockDim.x, a.width, [&](float v, uint32_t i) {
            double normed = __dmul_rn(__dsub_rn(v, mean), rstd);
            normed = __dmul_rn(normed, weight ? weight[i] : 1.0f);
            y[i] = (float)__dadd_rn(normed, bias ? bias[i] : 0.0f);
        });
        if (threadIdx.x == 0 && a.mean) a.mean[row] = (float)mean;
        if (threadIdx.x == 0 && a.rstd) a.rstd[row] = (float)rstd;
        __syncthreads();
    }
}

// y = x scale weight, with 16-byte accesses where they are possible.
__device__ __forceinline__ void scale_row(const rn_norm_args &a, const float *x, float *y,
                                          float scale) {
    const float *weight = (const float *)a.weight;
    bool aligned = rn_is_aligned(x, 16) && rn_is_aligned(y, 16) && rn_is_aligned(weight, 16);
    uint32_t fours = aligned ? a.width / 4 : 0;
    rn_stride<4>((const float4 *)x, threadIdx.x, RN_NORM_THREADS, fours, [&](float4 v, uint32_t i) {
        float4 w = make_float4(1, 1, 1, 1);
        if (weight) w = ((const float4 *)weight)[i];
        ((float4 *)y)[i] =
            make_float4(rn_norm_apply(v.x, scale, w.x), rn_norm_apply(v.y, scale, w.y),
                        rn_norm_apply(v.z, scale, w.z), rn_norm_apply(v.w, scale, w.w));
    });
    for (uint32_t i = 4 * fours + threadIdx.x; i < a.width; i += RN_NORM_THREADS)
        y[i] = rn_norm_apply(x[i], scale, weight ? weight[i] : 1.0f);
}

// Blocks of RN_NORM_THREADS.
extern "C" __global__ void __launch_bounds__(RN_NORM_THREADS)
    rn_rmsnorm(const __grid_constant__ rn_norm_args a) {
    __shared__ float warps[RN_NORM_THREADS / 32];
    rn_begin();
    for (uint64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const float *x = (const float *)a.x + row * a.width;
        float scale = rn_norm_scale(rn_norm_sum(x, a.width, warps), a.width, a.eps);
        scale_row(a, x, (float *)a.y + row * a.width, scale);
        if (threadIdx.x == 0 && a.rstd) a.rstd[row] = scale;
        __syncthreads();
    }
}

// The angle is in double, as in the reference; a token's cosines and sines serve all its heads.
extern "C" __global__ void rn_rope(const __grid_constant__ rn_rope_args a) {
    __shared__ float cosines[RN_ROPE_PAIRS], sines[RN_ROPE_PAIRS];
    rn_begin();
    uint32_t pairs = a.dims / 2, rest = a.head_dim - a.dims;
    for (uint64_t token = blockIdx.x; token < a.tokens; token += gridDim.x) {
        const float *x = (const float *)a.x + token * a.heads * a.head_dim;
        float *y = (float *)a.y + token * a.heads * a.head_dim;
        for (uint32_t i = threadIdx.x; i < pairs; i += blockDim.x) {
            double sine, cosine, frequency = a.frequency[i];
            if (a.divisors) frequency = __ddiv_rn(frequency, a.divisors[i]);
            sincos(__dmul_rn(rn_rope_position(a, token, i), frequency), &sine, &cosine);
            cosines[i] = (float)__dmul_rn(cosine, a.factor);
            sines[i] = (float)__dmul_rn(a.inverse ? -sine : sine, a.factor);
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < a.heads * pairs; i += blockDim.x) {
            uint32_t head = i / pairs, pair = i - head * pairs;
            uint32_t first = head * a.head_dim + (a.neighbours ? 2 * pair : pair);
            uint32_t second = first + (a.neighbours ? 1 : pairs);
            float u = x[first], v = x[second], c = cosines[pair], s = sines[pair];
            y[first] = __fsub_rn(__fmul_rn(u, c), __fmul_rn(v, s));
            y[second] = __fadd_rn(__fmul_rn(v, c), __fmul_rn(u, s));
        }
        for (uint32_t i = threadIdx.x; x != y && i < a.heads * rest; i += blockDim.x) {
            uint32_t at = i / rest * a.head_dim + a.dims + i % rest;
            y[at] = x[at];
        }
        __syncthreads();
    }
}

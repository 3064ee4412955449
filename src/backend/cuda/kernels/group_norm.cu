// group_norm.cu — group norm of images with channels last, with SiLU behind it or without, and its
// gradients.
//
// A thread has eight neighbouring channels of every so many-th pixel, so that what belongs to a
// channel stays in its registers. Sums are of x less the image's first pixel of the group: a mean
// that is large beside the deviation costs no digits.
#include "begin.cuh"
#include "group_norm_args.h"
#include "half_io.cuh"

namespace {

// How a block's threads share rows of channels: `eights` columns, `rows` at a time.
struct share {
    uint32_t eights, columns, rows; // columns at a time
};

__device__ __forceinline__ share share_out(uint32_t channels) {
    uint32_t eights = (channels + 7) / 8, columns = min(eights, blockDim.x);
    return {eights, columns, blockDim.x / columns};
}

struct chunk {
    uint64_t begin, end;
};

__device__ __forceinline__ chunk find_chunk(uint64_t pixels, uint32_t chunks) {
    return {pixels * blockIdx.x / chunks, pixels * (blockIdx.x + 1) / chunks};
}

__device__ __forceinline__ float silu(float z) {
    return z / (1 + __expf(-z));
}

__device__ __forceinline__ float silu_slope(float z) {
    float s = 1 / (1 + __expf(-z));
    return s * (1 + z * (1 - s));
}

// Sums of each channel over the block's rows, in the rows' order: `lanes` has (rows, columns, 8).
__device__ __forceinline__ void add_rows(float *lanes, const share &s, uint32_t column,
                                         uint32_t row, const float (&mine)[8], float (&out)[8]) {
    __syncthreads();
    if (row < s.rows)
#pragma unroll
        for (int j = 0; j < 8; j++)
            lanes[(row * s.columns + column) * 8 + j] = mine[j];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 8; j++) {
        out[j] = 0;
        for (uint32_t r = 0; row == 0 && r < s.rows; r++)
            out[j] += lanes[(r * s.columns + column) * 8 + j];
    }
}

} // namespace

namespace {

// TYPE: of x (and y), where it is known and all is in whole eights; RN_PLAIN_NONE: it is not.
template <uint32_t TYPE>
__device__ __forceinline__ rn_eight take_eight(uint32_t type, const void *x, uint64_t at,
                                               uint32_t count, bool aligned) {
    if constexpr (TYPE == RN_PLAIN_NONE) return rn_load_up_to_eight(type, x, at, count, aligned);
    return rn_load_eight(TYPE, x, at);
}

template <uint32_t TYPE>
__device__ __forceinline__ void measure(const rn_group_norm_args &a, float *lanes,
                                        float (*totals)[RN_GROUP_CHANNELS]) {
    share s = share_out(a.channels);
    chunk c = find_chunk(a.pixels, a.chunks);
    uint32_t row = threadIdx.x / s.columns, each = a.channels / a.groups, n = blockIdx.y;
    bool aligned = a.channels % 8 == 0 && rn_is_aligned(a.x, 16);
    uint64_t base = (uint64_t)n * a.pixels * a.channels;
    for (uint32_t first = 0; first < s.eights; first += s.columns) {
        uint32_t column = threadIdx.x % s.columns, channel = (first + column) * 8;
        uint32_t count = channel < a.channels ? min(a.channels - channel, 8u) : 0;
        float shift[8], sum[8] = {}, squares[8] = {}, total[8];
#pragma unroll
        for (uint32_t j = 0; j < 8; j++)
            shift[j] =
                j < count ? rn_load_one(a.x_type, a.x, base + (channel + j) / each * each) : 0.0f;
        if (row < s.rows && count > 0) {
            uint64_t p = c.begin + row;
            auto add = [&](const rn_eight &x) {
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    float d = x.v[j] - shift[j];
                    sum[j] += d;
                    squares[j] = fmaf(d, d, squares[j]);
                }
            };
            if constexpr (TYPE != RN_PLAIN_NONE)
                for (; p + 3 * (uint64_t)s.rows < c.end; p += 4 * (uint64_t)s.rows) {
                    rn_raw_eight raw[4];
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        raw[k] = rn_fetch_eight(
                            TYPE, a.x, base + (p + k * (uint64_t)s.rows) * a.channels + channel);
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        add(rn_widen_eight(TYPE, raw[k]));
                }
            for (; p < c.end; p += s.rows)
                add(take_eight<TYPE>(a.x_type, a.x, base + p * a.channels + channel, count,
                                     aligned));
        }
#pragma unroll
        for (int which = 0; which < 2; which++) {
            add_rows(lanes, s, column, row, which ? squares : sum, total);
            if (row == 0)
#pragma unroll
                for (uint32_t j = 0; j < 8; j++)
                    if (j < count) totals[which][channel + j] = total[j];
        }
    }
    __syncthreads();
    for (uint32_t g = threadIdx.x; g < a.groups; g += blockDim.x) {
        double sum = 0, squares = 0;
        for (uint32_t j = 0; j < each; j++) {
            sum += totals[0][g * each + j];
            squares += totals[1][g * each + j];
        }
        float *to = a.partial + (((uint64_t)n * a.chunks + blockIdx.x) * a.groups + g) * 3;
        to[0] = (float)sum;
        to[1] = (float)squares;
        to[2] = rn_load_one(a.x_type, a.x, base + g * each);
    }
}

template <uint32_t TYPE> __device__ __forceinline__ void apply(const rn_group_norm_args &a) {
    share s = share_out(a.channels);
    chunk c = {a.pixels * blockIdx.x / gridDim.x, a.pixels * (blockIdx.x + 1) / gridDim.x};
    uint32_t row = threadIdx.x / s.columns, each = a.channels / a.groups, n = blockIdx.y;
    uint64_t base = (uint64_t)n * a.pixels * a.channels;
    bool aligned = a.channels % 8 == 0 && rn_is_aligned(a.x, 16) && rn_is_aligned(a.y, 16);
    for (uint32_t first = 0; first < s.eights; first += s.columns) {
        uint32_t channel = (first + threadIdx.x % s.columns) * 8;
        uint32_t count = channel < a.channels ? min(a.channels - channel, 8u) : 0;
        if (count == 0 || row >= s.rows) continue;
        float mean[8], factor[8], bias[8];
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
            uint32_t at = min(channel + j, a.channels - 1), g = n * a.groups + at / each;
            mean[j] = a.mean[g];
            factor[j] = a.rstd[g] * (a.weight ? rn_load_one(a.weight_type, a.weight, at) : 1.0f);
            bias[j] = a.bias ? rn_load_one(a.bias_type, a.bias, at) : 0.0f;
        }
        auto norm = [&](rn_eight &x) {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                x.v[j] = fmaf(x.v[j] - mean[j], factor[j], bias[j]);
                if (a.silu) x.v[j] = silu(x.v[j]);
            }
        };
        uint64_t p = c.begin + row;
        if constexpr (TYPE != RN_PLAIN_NONE)
            for (; p + 3 * (uint64_t)s.rows < c.end; p += 4 * (uint64_t)s.rows) {
                rn_raw_eight raw[4];
#pragma unroll
                for (int k = 0; k < 4; k++)
                    raw[k] = rn_fetch_eight(
                        TYPE, a.x, base + (p + k * (uint64_t)s.rows) * a.channels + channel);
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    rn_eight x = rn_widen_eight(TYPE, raw[k]);
                    norm(x);
                    rn_store_eight(TYPE, a.y,
                                   base + (p + k * (uint64_t)s.rows) * a.channels + channel, x);
                }
            }
        for (; p < c.end; p += s.rows) {
            uint64_t at = base + p * a.channels + channel;
            rn_eight x = take_eight<TYPE>(a.x_type, a.x, at, count, aligned);
            norm(x);
            if constexpr (TYPE == RN_PLAIN_NONE)
                rn_store_up_to_eight(a.y_type, a.y, at, count, aligned, x);
            else
                rn_store_eight(TYPE, a.y, at, x);
        }
    }
}

} // namespace

// Grid (chunks, N); (blocks, N).
#define RN_GROUP_NORM(name, type)                                                                  \
    extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)                                  \
        rn_group_norm_measure_##name(const __grid_constant__ rn_group_norm_args a) {               \
        __shared__ float lanes[RN_ROWS_THREADS * 8];                                               \
        __shared__ float totals[2][RN_GROUP_CHANNELS];                                             \
        rn_begin();                                                                                \
        measure<type>(a, lanes, totals);                                                           \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)                                  \
        rn_group_norm_apply_##name(const __grid_constant__ rn_group_norm_args a) {                 \
        rn_begin();                                                                                \
        apply<type>(a);                                                                            \
    }
RN_GROUP_NORM(any, RN_PLAIN_NONE)
RN_GROUP_NORM(bf16, RN_PLAIN_BF16)
RN_GROUP_NORM(f16, RN_PLAIN_F16)

// ---- small images -------------------------------------------------------------------------------

namespace {

enum { SMALL_AHEAD = 8, SMALL_THREADS = 1024 };

// Pairs of neighbouring channels of one group, in the order of memory: this thread's every
// `blockDim.x`-th.
struct pairs {
    uint32_t each, count;        // of a pixel; in all
    uint32_t at, pixel, channel; // of the next one; channel: a pair's number
    uint32_t step_pixel, step_channel;

    __device__ __forceinline__ pairs(const rn_group_norm_args &a)
        : each(a.channels / a.groups / 2), count((uint32_t)a.pixels * each), at(threadIdx.x),
          pixel(threadIdx.x / each), channel(threadIdx.x % each), step_pixel(blockDim.x / each),
          step_channel(blockDim.x % each) {}
    __device__ __forceinline__ void go_on() {
        at += blockDim.x;
        pixel += step_pixel;
        channel += step_channel;
        if (channel >= each) channel -= each, pixel++;
    }
};

template <uint32_t TYPE> __device__ __forceinline__ float2 widen_two(uint32_t raw) {
    if constexpr (TYPE == RN_PLAIN_BF16)
        return make_float2(__uint_as_float(raw << 16), __uint_as_float(raw & 0xffff0000));
    return make_float2(rn_widen_f16(raw & 0xffff), rn_widen_f16(raw >> 16));
}

// take(pair, place among the group's channels, place in memory in pairs) for each of the thread's.
template <class Take>
__device__ __forceinline__ void each_pair(const rn_group_norm_args &a, const uint32_t *x,
                                          Take take) {
    pairs p(a);
    uint32_t row = a.channels / 2;
    while (p.at < p.count) {
        uint32_t raw[SMALL_AHEAD], place[SMALL_AHEAD], channel[SMALL_AHEAD];
#pragma unroll
        for (int k = 0; k < SMALL_AHEAD; k++) {
            place[k] = p.at < p.count ? p.pixel * row + p.channel : UINT32_MAX;
            channel[k] = p.channel;
            if (place[k] != UINT32_MAX) raw[k] = x[place[k]];
            p.go_on();
        }
#pragma unroll
        for (int k = 0; k < SMALL_AHEAD; k++)
            if (place[k] != UINT32_MAX) take(raw[k], channel[k], place[k]);
    }
}

// Two sums of the block, the same for all threads: lanes by xor, warps in order.
__device__ __forceinline__ void add_block(float *p, float *q, float (*shared)[2] /* (32) */) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        *p += __shfl_xor_sync(0xffffffffu, *p, step);
        *q += __shfl_xor_sync(0xffffffffu, *q, step);
    }
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32][0] = *p, shared[threadIdx.x / 32][1] = *q;
    __syncthreads();
    *p = *q = 0;
    for (uint32_t i = 0; i < blockDim.x / 32; i++)
        *p += shared[i][0], *q += shared[i][1];
}

template <uint32_t TYPE> __device__ __forceinline__ void norm_small(const rn_group_norm_args &a) {
    __shared__ float shared[32][2];
    uint32_t g = blockIdx.x, n = blockIdx.y, each = a.channels / a.groups, first = g * each;
    uint64_t base = ((uint64_t)n * a.pixels * a.channels + first) / 2;
    const uint32_t *x = (const uint32_t *)a.x + base;
    uint32_t *y = (uint32_t *)a.y + base;
    float shift = widen_two<TYPE>(x[0]).x, sum = 0, squares = 0;
    each_pair(a, x, [&](uint32_t raw, uint32_t, uint32_t) {
        float2 v = widen_two<TYPE>(raw);
        float p = v.x - shift, q = v.y - shift;
        sum += p + q;
        squares = fmaf(p, p, fmaf(q, q, squares));
    });
    add_block(&sum, &squares, shared);
    double count = (double)a.pixels * each, away = sum / count;
    double variance = squares / count - away * away;
    float mean = (float)(shift + away);
    float rstd = (float)(1 / sqrt((variance > 0 ? variance : 0) + a.eps));
    if (threadIdx.x == 0 && a.out_mean) a.out_mean[n * a.groups + g] = mean;
    if (threadIdx.x == 0 && a.out_rstd) a.out_rstd[n * a.groups + g] = rstd;
    if (!a.y) return;
    each_pair(a, x, [&](uint32_t raw, uint32_t channel, uint32_t place) {
        float2 v = widen_two<TYPE>(raw);
        uint32_t at = first + 2 * channel;
        float z[2] = {v.x, v.y};
#pragma unroll
        for (uint32_t j = 0; j < 2; j++) {
            float w = a.weight ? rn_load_one(a.weight_type, a.weight, at + j) : 1.0f;
            float b = a.bias ? rn_load_one(a.bias_type, a.bias, at + j) : 0.0f;
            z[j] = fmaf(z[j] - mean, rstd * w, b);
            if (a.silu) z[j] = silu(z[j]);
        }
        y[place] = rn_narrow_two(TYPE, z[0], z[1]);
    });
}

} // namespace

// Grid (groups, N): all of it in one launch, where a group of an image is small; y may be x.
extern "C" __global__ void __launch_bounds__(SMALL_THREADS)
    rn_group_norm_small_bf16(const __grid_constant__ rn_group_norm_args a) {
    rn_begin();
    norm_small<RN_PLAIN_BF16>(a);
}
extern "C" __global__ void __launch_bounds__(SMALL_THREADS)
    rn_group_norm_small_f16(const __grid_constant__ rn_group_norm_args a) {
    rn_begin();
    norm_small<RN_PLAIN_F16>(a);
}

// Grid (groups, N): the chunks' sums become the mean and rstd.
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_group_norm_total(const __grid_constant__ rn_group_norm_args a) {
    __shared__ double parts[RN_ROWS_THREADS][2];
    rn_begin();
    uint32_t g = blockIdx.x, n = blockIdx.y, at = n * a.groups + g;
    const float *from = a.partial + ((uint64_t)n * a.chunks * a.groups + g) * 3;
    double sum = 0, squares = 0;
    for (uint32_t i = threadIdx.x; i < a.chunks; i += RN_ROWS_THREADS) {
        sum += from[(uint64_t)i * a.groups * 3];
        squares += from[(uint64_t)i * a.groups * 3 + 1];
    }
    parts[threadIdx.x][0] = sum;
    parts[threadIdx.x][1] = squares;
    __syncthreads();
    for (uint32_t half = RN_ROWS_THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            parts[threadIdx.x][0] += parts[threadIdx.x + half][0];
            parts[threadIdx.x][1] += parts[threadIdx.x + half][1];
        }
        __syncthreads();
    }
    if (threadIdx.x > 0) return;
    double count = (double)a.pixels * (a.channels / a.groups), away = parts[0][0] / count;
    double variance = fmax(parts[0][1] / count - away * away, 0.0);
    if (parts[0][1] != parts[0][1]) variance = parts[0][1]; // NaN
    float mean = (float)(away + from[2]), rstd = (float)(1 / sqrt(variance + (double)a.eps));
    a.statistics[at] = mean;
    a.statistics[a.images * a.groups + at] = rstd;
    if (a.out_mean) a.out_mean[at] = mean;
    if (a.out_rstd) a.out_rstd[at] = rstd;
}

// ---- gradients ----------------------------------------------------------------------------------

namespace {

// What a thread knows of its channels.
struct norm_channels {
    float mean[8], rstd[8], weight[8], bias[8];
};

__device__ __forceinline__ norm_channels know(const rn_group_norm_grad_args &a, uint32_t n,
                                              uint32_t channel) {
    norm_channels k;
    uint32_t each = a.channels / a.groups;
#pragma unroll
    for (uint32_t j = 0; j < 8; j++) {
        uint32_t at = min(channel + j, a.channels - 1), g = n * a.groups + at / each;
        k.mean[j] = a.mean[g];
        k.rstd[j] = a.rstd[g];
        k.weight[j] = a.weight ? rn_load_one(a.weight_type, a.weight, at) : 1.0f;
        k.bias[j] = a.bias ? rn_load_one(a.bias_type, a.bias, at) : 0.0f;
    }
    return k;
}

// u, and dy becomes dz.
__device__ __forceinline__ void slopes(const rn_group_norm_grad_args &a, const norm_channels &k,
                                       rn_eight &x, rn_eight &dy) {
#pragma unroll
    for (int j = 0; j < 8; j++) {
        x.v[j] = (x.v[j] - k.mean[j]) * k.rstd[j];
        if (a.silu) dy.v[j] *= silu_slope(fmaf(x.v[j], k.weight[j], k.bias[j]));
    }
}

} // namespace

// Grid (chunks, N).
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_group_norm_grad_measure(const __grid_constant__ rn_group_norm_grad_args a) {
    __shared__ float lanes[RN_ROWS_THREADS * 8];
    rn_begin();
    share s = share_out(a.channels);
    chunk c = find_chunk(a.pixels, a.chunks);
    uint32_t row = threadIdx.x / s.columns, n = blockIdx.y;
    bool aligned = a.channels % 8 == 0 && rn_is_aligned(a.x, 16) && rn_is_aligned(a.dy, 16);
    for (uint32_t first = 0; first < s.eights; first += s.columns) {
        uint32_t column = threadIdx.x % s.columns, channel = (first + column) * 8;
        uint32_t count = channel < a.channels ? min(a.channels - channel, 8u) : 0;
        norm_channels k = know(a, n, channel);
        float sum[8] = {}, dot[8] = {}, total[8];
        if (row < s.rows && count > 0)
#pragma unroll 2
            for (uint64_t p = c.begin + row; p < c.end; p += s.rows) {
                uint64_t at = ((uint64_t)n * a.pixels + p) * a.channels + channel;
                rn_eight x = rn_load_up_to_eight(a.x_type, a.x, at, count, aligned);
                rn_eight dy = rn_load_up_to_eight(a.dy_type, a.dy, at, count, aligned);
                slopes(a, k, x, dy);
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    sum[j] += dy.v[j];
                    dot[j] = fmaf(dy.v[j], x.v[j], dot[j]);
                }
            }
        float *to = a.partial + ((uint64_t)n * a.chunks + blockIdx.x) * a.channels * 2;
#pragma unroll
        for (int which = 0; which < 2; which++) {
            add_rows(lanes, s, column, row, which ? dot : sum, total);
            if (row == 0)
#pragma unroll
                for (uint32_t j = 0; j < 8; j++)
                    if (j < count) to[(channel + j) * 2 + which] = total[j];
        }
    }
}

// Grid (groups, N): the means of a group; and of the first image's blocks the sums of channels over
// all images.
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_group_norm_grad_total(const __grid_constant__ rn_group_norm_grad_args a) {
    __shared__ double parts[RN_ROWS_THREADS][2];
    rn_begin();
    uint32_t each = a.channels / a.groups, g = blockIdx.x, n = blockIdx.y;
    double sum = 0, dot = 0;
    for (uint64_t i = threadIdx.x; i < (uint64_t)a.chunks * each; i += RN_ROWS_THREADS) {
        uint32_t c = g * each + (uint32_t)(i % each);
        const float *from = a.partial + (((uint64_t)n * a.chunks + i / each) * a.channels + c) * 2;
        double w = a.weight ? rn_load_one(a.weight_type, a.weight, c) : 1.0;
        sum += w * from[0];
        dot += w * from[1];
    }
    parts[threadIdx.x][0] = sum;
    parts[threadIdx.x][1] = dot;
    __syncthreads();
    for (uint32_t half = RN_ROWS_THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            parts[threadIdx.x][0] += parts[threadIdx.x + half][0];
            parts[threadIdx.x][1] += parts[threadIdx.x + half][1];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        double count = (double)a.pixels * each;
        a.sums[((uint64_t)n * a.groups + g) * 2] = a.constant ? 0 : (float)(parts[0][0] / count);
        a.sums[((uint64_t)n * a.groups + g) * 2 + 1] =
            a.constant ? 0 : (float)(parts[0][1] / count);
    }
    if (n > 0 || (!a.d_weight && !a.d_bias)) return;
    for (uint32_t j = threadIdx.x; j < each; j += RN_ROWS_THREADS) {
        uint32_t c = g * each + j;
        sum = dot = 0;
        for (uint64_t i = 0; i < (uint64_t)a.images * a.chunks; i++) {
            sum += a.partial[(i * a.channels + c) * 2];
            dot += a.partial[(i * a.channels + c) * 2 + 1];
        }
        if (a.d_weight) rn_store_one(a.d_weight_type, a.d_weight, c, (float)dot);
        if (a.d_bias) rn_store_one(a.d_bias_type, a.d_bias, c, (float)sum);
    }
}

// Grid (blocks, N).
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_group_norm_grad_apply(const __grid_constant__ rn_group_norm_grad_args a) {
    rn_begin();
    share s = share_out(a.channels);
    chunk c = {a.pixels * blockIdx.x / gridDim.x, a.pixels * (blockIdx.x + 1) / gridDim.x};
    uint32_t row = threadIdx.x / s.columns, n = blockIdx.y, each = a.channels / a.groups;
    bool aligned = a.channels % 8 == 0 && rn_is_aligned(a.x, 16) && rn_is_aligned(a.dy, 16) &&
                   rn_is_aligned(a.dx, 16);
    for (uint32_t first = 0; first < s.eights; first += s.columns) {
        uint32_t channel = (first + threadIdx.x % s.columns) * 8;
        uint32_t count = channel < a.channels ? min(a.channels - channel, 8u) : 0;
        if (count == 0 || row >= s.rows) continue;
        norm_channels k = know(a, n, channel);
        float mean[8], dot[8];
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
            uint64_t g = n * a.groups + min(channel + j, a.channels - 1) / each;
            mean[j] = a.sums[g * 2];
            dot[j] = a.sums[g * 2 + 1];
        }
        for (uint64_t p = c.begin + row; p < c.end; p += s.rows) {
            uint64_t at = ((uint64_t)n * a.pixels + p) * a.channels + channel;
            rn_eight x = rn_load_up_to_eight(a.x_type, a.x, at, count, aligned);
            rn_eight dy = rn_load_up_to_eight(a.dy_type, a.dy, at, count, aligned);
            slopes(a, k, x, dy);
#pragma unroll
            for (int j = 0; j < 8; j++)
                x.v[j] = k.rstd[j] * (dy.v[j] * k.weight[j] - mean[j] - x.v[j] * dot[j]);
            rn_store_up_to_eight(a.dx_type, a.dx, at, count, aligned, x);
        }
    }
}

// ---- batch norm ---------------------------------------------------------------------------------

// A thread a channel: the statistics that are used, and what becomes of the running ones.
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_batchnorm_learn(const __grid_constant__ rn_batchnorm_args a) {
    rn_begin();
    for (uint64_t c = rn_thread(); c < a.channels; c += rn_threads()) {
        double mean = a.running_mean[c], variance = a.running_variance[c];
        if (a.partial) {
            double sum = 0, squares = 0, n = (double)a.rows;
            for (uint32_t i = 0; i < a.chunks; i++) {
                sum += a.partial[((uint64_t)i * a.channels + c) * 3];
                squares += a.partial[((uint64_t)i * a.channels + c) * 3 + 1];
            }
            double away = sum / n;
            double real_mean = away + a.partial[c * 3 + 2];
            double real_variance = fmax(squares / n - away * away, 0.0);
            if (squares != squares) real_variance = squares; // NaN
            a.running_mean[c] += (float)(a.momentum * (real_mean - mean));
            a.running_variance[c] += (float)(a.momentum * (real_variance * n / (n - 1) - variance));
            mean = real_mean, variance = real_variance;
        }
        float rstd = (float)(1 / sqrt(variance + (double)a.eps));
        a.statistics[c] = (float)mean;
        a.statistics[a.channels + c] = rstd;
        if (a.out_mean) a.out_mean[c] = (float)mean;
        if (a.out_rstd) a.out_rstd[c] = rstd;
    }
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_batchnorm(const __grid_constant__ rn_batchnorm_args a) {
    rn_begin();
    for (uint64_t i = rn_thread(); i < a.rows * a.channels; i += rn_threads()) {
        uint32_t c = (uint32_t)(i % a.channels);
        float u = (rn_load_one(a.x_type, a.x, i) - a.statistics[c]) * a.statistics[a.channels + c];
        rn_store_one(a.y_type, a.y, i, fmaf(u, a.weight[c], a.bias[c]));
    }
}

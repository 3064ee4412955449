// conv_plain.cu — convolutions and their gradients by f32 multiply-adds: images of f32 or of any
// mix of types, any number of channels, groups, dilation, one to three spatial axes.
//
// A block makes a tile of pixels by outputs; sums go over taps, then channels, in steps of 16, in
// f32, in that order; few pixels with long sums in parts, which conv_total adds.
#include "begin.cuh"
#include "conv_args.h"
#include "half_io.cuh"

namespace {

enum : int { PIXELS = RN_CONV_PLAIN_PIXELS, OUTPUTS = RN_CONV_PLAIN_OUTPUTS };
enum : int { STEP = RN_CONV_PLAIN_STEP, PAD = 4 };

struct pixel_place {
    uint32_t n;
    int32_t at[3];
    bool given;
};

__device__ __forceinline__ pixel_place find_pixel(const uint32_t (&out)[3], uint64_t pixels,
                                                  uint64_t i) {
    pixel_place p;
    p.given = i < pixels;
    if (!p.given) i = 0;
    p.at[2] = (int32_t)(i % out[2]), i /= out[2];
    p.at[1] = (int32_t)(i % out[1]), i /= out[1];
    p.at[0] = (int32_t)(i % out[0]);
    p.n = (uint32_t)(i / out[0]);
    return p;
}

// Eight numbers of a row behind `i`, as many as there are; zeros behind them.
__device__ __forceinline__ void load_row(uint32_t type, const void *data, uint64_t i,
                                         uint32_t count, float (&v)[8]) {
    if (count >= 8 && i % 8 == 0 && rn_is_aligned(data, 16)) {
        rn_eight e = rn_load_eight(type, data, i);
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = e.v[j];
        return;
    }
#pragma unroll
    for (uint32_t j = 0; j < 8; j++)
        v[j] = j < count ? rn_load_one(type, data, i + j) : 0.0f;
}

// Where the channels of a group begin that a pixel reads through a tap.
__device__ __forceinline__ uint64_t find_source(const rn_conv_plain_args &a, const pixel_place &p,
                                                uint32_t tap, uint32_t group, bool *inside) {
    int32_t at[3] = {(int32_t)(tap / (a.size[1] * a.size[2])),
                     (int32_t)(tap / a.size[2] % a.size[1]), (int32_t)(tap % a.size[2])};
    uint64_t from = p.n;
    *inside = p.given;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        int32_t place = p.at[i] * a.times[i] + at[i] * a.dilation[i] - a.before[i];
        *inside &= place >= 0 && place % a.divisor[i] == 0;
        place /= a.divisor[i];
        *inside &= place < (int32_t)a.in[i];
        from = from * a.in[i] + (uint64_t)(*inside ? place : 0);
    }
    return (from * a.groups + group) * a.channels_each;
}

} // namespace

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_conv_plain(const __grid_constant__ rn_conv_plain_args a) {
    __shared__ float xs[STEP][PIXELS + PAD], ws[STEP][OUTPUTS];
    rn_begin();
    uint32_t tiles = (a.outputs_each + OUTPUTS - 1) / OUTPUTS, group = blockIdx.y / tiles;
    uint32_t first_output = blockIdx.y % tiles * OUTPUTS, tid = threadIdx.x;
    uint64_t first_pixel = (uint64_t)blockIdx.x * PIXELS;
    pixel_place mine = find_pixel(a.out, a.pixels, first_pixel + tid / 2);
    uint32_t my_c = tid % 2 * 8, w_k = tid / 16, w_o = tid % 16 * 4;
    uint32_t my_x = tid / 16 * 8, my_o = tid % 16 * 4; // of the results: 8 pixels, 4 outputs
    uint32_t taps = a.size[0] * a.size[1] * a.size[2], steps = (a.channels_each + STEP - 1) / STEP;
    uint32_t begin = (uint32_t)((uint64_t)taps * steps * blockIdx.z / a.splits);
    uint32_t end = (uint32_t)((uint64_t)taps * steps * (blockIdx.z + 1) / a.splits);
    float sum[8][4] = {};
    bool inside = false;
    uint64_t from = 0;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t tap = i / steps, c = i % steps * STEP;
        if (i == begin || c == 0) from = find_source(a, mine, tap, group, &inside);
        float v[8];
        uint32_t left = a.channels_each > c + my_c ? a.channels_each - c - my_c : 0;
        load_row(a.x_type, a.x, from + c + my_c, inside ? left : 0, v);
#pragma unroll
        for (int j = 0; j < 8; j++)
            xs[my_c + j][tid / 2] = v[j];
        uint64_t row = ((uint64_t)group * taps + tap) * a.channels_each + c + w_k;
        uint32_t o = first_output + w_o;
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            ws[w_k][w_o + j] = c + w_k < a.channels_each && o + j < a.outputs_each
                                   ? rn_load_one(a.w_type, a.w, row * a.outputs_each + o + j)
                                   : 0.0f;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < STEP; k++) {
            float x[8], w[4];
#pragma unroll
            for (int j = 0; j < 8; j++)
                x[j] = xs[k][my_x + j];
#pragma unroll
            for (int j = 0; j < 4; j++)
                w[j] = ws[k][my_o + j];
#pragma unroll
            for (int r = 0; r < 8; r++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[r][j] = fmaf(x[r], w[j], sum[r][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            uint64_t pixel = first_pixel + my_x + i, outputs = (uint64_t)a.outputs_each * a.groups;
            uint32_t o = first_output + my_o + j;
            if (pixel >= a.pixels || o >= a.outputs_each) continue;
            o += group * a.outputs_each;
            if (a.partial) {
                a.partial[(blockIdx.z * a.pixels + pixel) * outputs + o] = sum[i][j];
                continue;
            }
            float y = sum[i][j] + (a.bias ? rn_load_one(a.bias_type, a.bias, o) : 0.0f);
            rn_store_one(a.y_type, a.y, pixel * outputs + o, y);
        }
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_conv_plain_grad(const __grid_constant__ rn_conv_plain_grad_args a) {
    __shared__ float xs[STEP][OUTPUTS], ds[STEP][OUTPUTS];
    rn_begin();
    uint32_t wide = (a.channels_each + OUTPUTS - 1) / OUTPUTS, tid = threadIdx.x;
    uint32_t first_c = blockIdx.x % wide * OUTPUTS, first_o = blockIdx.x / wide * OUTPUTS;
    uint32_t taps = a.size[0] * a.size[1] * a.size[2], tap = blockIdx.y % taps;
    uint32_t group = blockIdx.y / taps;
    int32_t shift[3] = {(int32_t)(tap / (a.size[1] * a.size[2])),
                        (int32_t)(tap / a.size[2] % a.size[1]), (int32_t)(tap % a.size[2])};
    uint64_t begin = a.pixels * blockIdx.z / a.splits, end = a.pixels * (blockIdx.z + 1) / a.splits;
    uint32_t row = tid / 16, col = tid % 16 * 4; // of a tile that is brought
    uint32_t my_o = tid / 16 * 4, my_c = tid % 16 * 4;
    float sum[4][4] = {};
    for (uint64_t p = begin; p < end; p += STEP) {
        pixel_place at = find_pixel(a.out, end, p + row);
        bool inside = at.given;
        uint64_t from = at.n;
#pragma unroll
        for (int i = 0; i < 3; i++) {
            int32_t place = at.at[i] * a.times[i] + shift[i] * a.dilation[i] - a.before[i];
            inside &= place >= 0 && place < (int32_t)a.in[i];
            from = from * a.in[i] + (uint64_t)(inside ? place : 0);
        }
        from = (from * a.groups + group) * a.channels_each;
        uint64_t dy_row = ((p + row) * a.groups + group) * a.outputs_each;
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t c = first_c + col + j, o = first_o + col + j;
            xs[row][col + j] =
                inside && c < a.channels_each ? rn_load_one(a.x_type, a.x, from + c) : 0.0f;
            ds[row][col + j] =
                at.given && o < a.outputs_each ? rn_load_one(a.dy_type, a.dy, dy_row + o) : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < STEP; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[i][j] = fmaf(ds[k][my_o + i], xs[k][my_c + j], sum[i][j]);
        __syncthreads();
    }
    uint64_t base = ((uint64_t)blockIdx.z * a.groups + group) * taps + tap;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t o = first_o + my_o + i, c = first_c + my_c + j;
            if (o < a.outputs_each && c < a.channels_each)
                a.partial[(base * a.outputs_each + o) * a.channels_each + c] = sum[i][j];
        }
}

// A thread for each (o, c): its taps, one behind the other.
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_conv_grad_total(const __grid_constant__ rn_conv_grad_total_args a) {
    rn_begin();
    uint64_t matrix = (uint64_t)a.outputs_each * a.channels_each, n = matrix * a.groups;
    for (uint64_t i = rn_thread(); i < n; i += rn_threads()) {
        uint64_t group = i / matrix, at = i % matrix;
        for (uint32_t tap = 0; tap < a.taps; tap++) {
            float sum = 0;
            for (uint32_t s = 0; s < a.splits; s++)
                sum += a.partial[(((uint64_t)s * a.groups + group) * a.taps + tap) * matrix + at];
            rn_store_one(a.type, a.dw, i * a.taps + tap, sum);
        }
    }
}

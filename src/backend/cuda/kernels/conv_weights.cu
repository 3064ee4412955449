// conv_weights.cu — a convolution's weights as its kernels read them (conv_args.h).
#include "begin.cuh"
#include "conv_args.h"
#include "half_io.cuh"

// A thread for each eight channels of an output: it reads them with all their taps, which is one
// piece of memory.
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_conv_weights_along(const __grid_constant__ rn_conv_weights_args a) {
    rn_begin();
    uint32_t eights = (a.row + 7) / 8, outputs = a.outputs_each * a.groups;
    for (uint64_t i = rn_thread(); i < (uint64_t)outputs * eights; i += rn_threads()) {
        uint32_t o = (uint32_t)(i / eights), first = (uint32_t)(i % eights) * 8;
        uint32_t count = first < a.channels_each ? min(a.channels_each - first, 8u) : 0;
        uint32_t step_c = a.channels_last ? 1 : a.kernel;
        uint32_t step_k = a.channels_last ? a.channels_each : 1;
        uint64_t from = (uint64_t)o * a.channels_each * a.kernel + first * step_c;
        uint32_t group = o / a.outputs_each, in_group = o % a.outputs_each;
        for (uint32_t k = 0; k < a.kernel; k++) {
            uint32_t tap = a.plain ? k : a.tap_of[k];
            if (tap == RN_CONV_NO_TAP) continue;
            rn_eight v;
#pragma unroll
            for (uint32_t j = 0; j < 8; j++)
                v.v[j] =
                    j < count ? rn_load_one(a.type, a.w, from + j * step_c + k * step_k) : 0.0f;
            uint64_t row = a.plain ? ((uint64_t)group * a.kernel + k) * a.outputs_each + in_group
                                   : (uint64_t)o * a.taps + tap;
            rn_store_up_to_eight(a.out_type, a.out, row * a.row + first, min(a.row - first, 8u),
                                 a.row % 8 == 0, v);
        }
    }
}

// Tiles of 32 outputs by 32 (channel, tap), turned in shared memory. Grid: (tiles, groups, 1).
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_conv_weights_across(const __grid_constant__ rn_conv_weights_args a) {
    __shared__ float tile[32][33];
    rn_begin();
    uint32_t places = a.channels_each * a.kernel, wide = (places + 31) / 32;
    uint32_t tiles = wide * ((a.outputs_each + 31) / 32), group = blockIdx.y;
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (uint32_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        uint32_t first_o = t / wide * 32, first = t % wide * 32;
        for (uint32_t r = warp; r < 32; r += RN_ROWS_THREADS / 32) {
            uint32_t o = first_o + r, place = first + lane;
            if (o < a.outputs_each && place < places)
                tile[r][lane] = rn_load_one(
                    a.type, a.w, ((uint64_t)group * a.outputs_each + o) * places + place);
        }
        __syncthreads();
        for (uint32_t r = warp; r < 32; r += RN_ROWS_THREADS / 32) {
            uint32_t o = first_o + lane, place = first + r;
            if (o >= a.outputs_each || place >= places) continue;
            uint32_t c = a.channels_last ? place % a.channels_each : place / a.kernel;
            uint32_t k = a.channels_last ? place / a.channels_each : place % a.kernel;
            uint32_t tap = a.plain ? k : a.tap_of[k];
            if (tap == RN_CONV_NO_TAP) continue;
            uint64_t row = a.plain ? ((uint64_t)group * a.kernel + k) * a.channels_each + c
                                   : ((uint64_t)group * a.channels_each + c) * a.taps + tap;
            rn_store_one(a.out_type, a.out, row * a.row + o, tile[lane][r]);
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_conv_pad(const __grid_constant__ rn_conv_pad_args a) {
    rn_begin();
    uint32_t eights = a.row / 8;
    for (uint64_t i = rn_thread(); i < a.pixels * eights; i += rn_threads()) {
        uint64_t from = i / eights * a.channels;
        uint32_t first = (uint32_t)(i % eights) * 8, v[4];
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t c = first + 2 * j, low = c < a.channels ? a.x[from + c] : 0;
            v[j] = low | (uint32_t)(c + 1 < a.channels ? a.x[from + c + 1] : 0) << 16;
        }
        ((uint4 *)a.out)[i] = make_uint4(v[0], v[1], v[2], v[3]);
    }
}

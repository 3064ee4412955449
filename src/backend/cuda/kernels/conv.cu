// conv.cu — convolutions of 16-bit images as products on matrix units: pixels x (taps, channels) x
// outputs, where the left matrix is never written down. For each tap and 64 channels the copy
// engine brings the block's box of pixels, moved by the tap, from x itself; outside the image are
// zeros.
//
// A block has two warpgroups that multiply and a thread that brings boxes into a ring of stages.
// Two blocks with neighbouring pixels and the same outputs are a cluster: each brings half of the
// weights to both. Sums are in f32, in one order; a sum that is split over blocks (for few pixels)
// is written as parts, which conv_total adds in order. So the same call has the same bits.
#include "begin.cuh"
#include "conv_args.h"
#include "half_io.cuh"
#include "panel_pair.cuh"
#include "ring.cuh"
#include "tensor_map.cuh"

namespace rn_conv {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

enum : int { GROUP = 128, FEW_REGISTERS = 40, MANY_REGISTERS = 232, CLUSTER = RN_CONV_CLUSTER };

// HALVES: 64 pixels each, of a warpgroup.
template <int HALVES, int OUTPUTS> struct memory {
    static constexpr int PIXELS = 128 * HALVES;
    static constexpr int X = PIXELS * 128, W = OUTPUTS * 128, STAGE = X + W;
    static constexpr int STAGES = 220 * 1024 / STAGE > 8 ? 8 : 220 * 1024 / STAGE;
    static constexpr int BARRIERS = STAGES * STAGE;
    static constexpr int BIAS = BARRIERS + STAGES * 16; // (OUTPUTS) of f32
    static constexpr int BYTES = BIAS + OUTPUTS * 4 + 1024;
};

struct block_place {
    int n, h, w;       // the box's first pixel, of the output
    int group, output; // the first output, of its group
    int begin, count;  // steps
};

template <int OUTPUTS>
static __device__ __forceinline__ block_place find_place(const rn_conv_args &a) {
    uint32_t rank = blockIdx.x % CLUSTER, rest = blockIdx.x / CLUSTER;
    uint32_t tiles = a.output_tiles * a.groups, tile = rest % tiles;
    uint32_t box = rest / tiles * CLUSTER + rank;
    block_place p;
    p.w = (int)(box % a.tiles_w * a.box_w);
    box /= a.tiles_w;
    p.h = (int)(box % a.tiles_h * a.box_h);
    p.n = (int)(box / a.tiles_h * a.box_n);
    p.group = (int)(tile / a.output_tiles);
    p.output = (int)(tile % a.output_tiles) * OUTPUTS;
    uint32_t steps = a.taps * a.channel_steps;
    p.begin = (int)((uint64_t)steps * blockIdx.z / a.splits);
    p.count = (int)((uint64_t)steps * (blockIdx.z + 1) / a.splits) - p.begin;
    return p;
}

// ---- bringing -----------------------------------------------------------------------------------

template <int HALVES, int OUTPUTS>
static __device__ __forceinline__ void bring(const rn_conv_args &a, uint32_t place,
                                             const block_place &p) {
    using m = memory<HALVES, OUTPUTS>;
    constexpr int SHARE = OUTPUTS / CLUSTER;
    uint32_t rank = blockIdx.x % CLUSTER, bytes = a.box_n * a.box_h * a.box_w * 128 + m::W;
    int tap = p.begin / (int)a.channel_steps, step = p.begin % (int)a.channel_steps;
    int output = p.group * (int)a.outputs_each + p.output + (int)rank * SHARE;
    int h = p.h * (int)a.stride_h, w = p.w * (int)a.stride_w;
    for (int i = 0; i < p.count; i++) {
        int stage = i % m::STAGES;
        uint32_t full = place + m::BARRIERS + 8 * stage, free = full + 8 * m::STAGES;
        uint32_t target = place + stage * m::STAGE;
        rn_barrier_wait_far(free, (i / m::STAGES & 1) ^ 1);
        rn_barrier_expect(full, bytes);
        rn_map_copy(target, &a.x, step * RN_CONV_STEP, p.group, w + a.tap_w[tap], h + a.tap_h[tap],
                    p.n, full);
        rn_map_spread(target + m::X + rank * SHARE * 128, &a.w, step * RN_CONV_STEP, tap, output,
                      full, (1 << CLUSTER) - 1);
        if (++step == (int)a.channel_steps) step = 0, tap++;
    }
}

// ---- multiplying --------------------------------------------------------------------------------

// Both blocks may overwrite this stage.
template <int HALVES, int OUTPUTS>
static __device__ __forceinline__ void free_stage(uint32_t place, int i) {
    using m = memory<HALVES, OUTPUTS>;
    uint32_t lane = threadIdx.x % GROUP;
    if (lane < CLUSTER)
        rn_barrier_arrive_far(
            rn_cluster_map(place + m::BARRIERS + 8 * (m::STAGES + i % m::STAGES), lane));
}

template <bool BF16, int HALVES, int OUTPUTS>
static __device__ __forceinline__ void multiply(float (&d)[HALVES][OUTPUTS / 2], uint32_t place,
                                                int count) {
    using m = memory<HALVES, OUTPUTS>;
    uint32_t mine = threadIdx.x / GROUP * HALVES * 64 * 128;
    if (count == 0) // no tap reaches these pixels
#pragma unroll
        for (int i = 0; i < HALVES * OUTPUTS / 2; i++)
            d[i / (OUTPUTS / 2)][i % (OUTPUTS / 2)] = 0;
    for (int i = 0; i < count; i++) {
        int stage = i % m::STAGES;
        rn_barrier_wait(place + m::BARRIERS + 8 * stage, i / m::STAGES & 1);
        uint64_t x = rn_panel_along(place + stage * m::STAGE + mine);
        uint64_t w = rn_panel_along(place + stage * m::STAGE + m::X);
#pragma unroll
        for (int half = 0; half < HALVES; half++)
            rn_wgmma_hold(d[half]);
        rn_wgmma_begin();
#pragma unroll
        for (int k = 0; k < RN_CONV_STEP / 16; k++)
#pragma unroll
            for (int half = 0; half < HALVES; half++)
                rn_pair_multiply<BF16, false>(d[half], rn_panel_step(x, half * 64 * 128 + k * 32),
                                              rn_panel_step(w, k * 32), (uint32_t)(i + k > 0));
        rn_wgmma_commit();
        rn_wgmma_wait<1>();
        if (i > 0) free_stage<HALVES, OUTPUTS>(place, i - 1);
    }
    rn_wgmma_wait<0>();
#pragma unroll
    for (int half = 0; half < HALVES; half++)
        rn_wgmma_hold(d[half]);
    if (count > 0) free_stage<HALVES, OUTPUTS>(place, count - 1);
}

// ---- results ------------------------------------------------------------------------------------

// Where pixel `row` of the block's box lies in y, or -1.
static __device__ __forceinline__ int64_t find_pixel(const rn_conv_args &a, const block_place &p,
                                                     uint32_t row) {
    uint32_t w = row % a.box_w, rest = row / a.box_w, h = rest % a.box_h, n = rest / a.box_h;
    if (n >= a.box_n) return -1;
    w += p.w, h += p.h, n += p.n;
    if (w >= a.out_w || h >= a.out_h || n >= a.batch) return -1;
    return (int64_t)(n * a.y_n + h * a.y_h + w * a.y_w);
}

// In groups of four lanes, whose lane t has v[j] of columns 8 j + 2 t: lane t gets column group t
// whole, v[j] of columns 2 j.
static __device__ __forceinline__ void turn_four(uint32_t (&v)[4]) {
    uint32_t t = threadIdx.x % 4;
    bool odd = t & 1, high = t & 2;
    uint32_t a = odd ? v[0] : v[1], b = odd ? v[2] : v[3];
    a = __shfl_xor_sync(~0u, a, 1), b = __shfl_xor_sync(~0u, b, 1);
    if (odd)
        v[0] = a, v[2] = b;
    else
        v[1] = a, v[3] = b;
    uint32_t c = high ? v[0] : v[2], d = high ? v[1] : v[3];
    c = __shfl_xor_sync(~0u, c, 2), d = __shfl_xor_sync(~0u, d, 2);
    if (high)
        v[0] = c, v[1] = d;
    else
        v[2] = c, v[3] = d;
}

// Two neighbours of a row.
static __device__ __forceinline__ float addend_at(const rn_conv_args &a, int64_t at) {
    return a.addend ? rn_load_one(a.y_type, a.addend, at) : 0.0f;
}

static __device__ __forceinline__ void put_two(const rn_conv_args &a, int64_t at, int output,
                                               float first, float second, uint8_t *y, bool twos) {
    if (at < 0) return;
    if (a.addend && output < (int)a.outputs_each) first += addend_at(a, at + output);
    if (a.addend && output + 1 < (int)a.outputs_each) second += addend_at(a, at + output + 1);
    if (twos && output + 1 < (int)a.outputs_each) {
        *(float2 *)(y + (at + output) * 4) = make_float2(first, second);
        return;
    }
    if (output < (int)a.outputs_each) rn_store_one(a.y_type, y, at + output, first);
    if (output + 1 < (int)a.outputs_each) rn_store_one(a.y_type, y, at + output + 1, second);
}

// The addend of the eight outputs that this lane will store, turned back to where the lanes of its
// four have their sums: d[4 q + 2 i] and the next.
static __device__ __forceinline__ void add_eights(const rn_conv_args &a, int64_t at, int output,
                                                  float *d, int i) {
    uint32_t v[4] = {0, 0, 0, 0};
    if (at >= 0 && output < (int)a.outputs_each) {
        uint4 from = *(const uint4 *)((const uint16_t *)a.addend + at + output);
        v[0] = from.x, v[1] = from.y, v[2] = from.z, v[3] = from.w;
    }
    turn_four(v);
#pragma unroll
    for (int q = 0; q < 4; q++) {
        bool bf16 = a.y_type == RN_PLAIN_BF16;
        d[4 * q + 2 * i] += bf16 ? rn_widen_bf16(v[q] & 0xffff) : rn_widen_f16(v[q] & 0xffff);
        d[4 * q + 2 * i + 1] += bf16 ? rn_widen_bf16(v[q] >> 16) : rn_widen_f16(v[q] >> 16);
    }
}

// The bias of the block's outputs, to shared memory: by the threads that multiply.
template <int OUTPUTS>
static __device__ __forceinline__ void fetch_bias(const rn_conv_args &a, const block_place &p,
                                                  float *bias) {
    int i = (int)threadIdx.x, output = p.output + i;
    if (i < OUTPUTS)
        bias[i] = a.bias && output < (int)a.outputs_each
                      ? rn_load_one(a.bias_type, a.bias, p.group * (int)a.outputs_each + output)
                      : 0.0f;
    asm volatile("bar.sync 1, %0;" ::"n"(2 * GROUP) : "memory");
}

template <int OUTPUTS>
static __device__ __forceinline__ void write(const rn_conv_args &a, const block_place &p,
                                             float (&d)[OUTPUTS / 2], const float *bias,
                                             uint32_t first_row) {
    uint32_t lane = threadIdx.x % 32, t = lane % 4;
    bool wide = a.y_type == RN_PLAIN_F32;
    uint8_t *y = (uint8_t *)a.y + blockIdx.z * a.y_split * (wide ? 4 : 2);
    int64_t at[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        at[i] = find_pixel(a, p, first_row + lane / 4 + 8 * i);
        if (at[i] >= 0) at[i] += p.group * (int)a.outputs_each;
    }
#pragma unroll
    for (int j = 0; j < OUTPUTS / 8; j++) {
        float2 b = *(const float2 *)(bias + 8 * j + 2 * t);
        d[4 * j] += b.x, d[4 * j + 2] += b.x;
        d[4 * j + 1] += b.y, d[4 * j + 3] += b.y;
    }
    uint64_t steps = a.outputs_each | a.y_w | a.y_h | a.y_n; // all in whole eights, or twos
    if constexpr (OUTPUTS % 32 == 0)
        if (!wide && steps % 8 == 0 && rn_is_aligned(y, 16) && rn_is_aligned(a.addend, 16)) {
#pragma unroll
            for (int j = 0; j < OUTPUTS / 8; j += 4)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    uint32_t v[4];
                    if (a.addend) add_eights(a, at[i], p.output + 8 * (j + (int)t), &d[4 * j], i);
#pragma unroll
                    for (int q = 0; q < 4; q++)
                        v[q] = rn_narrow_two(a.y_type, d[4 * (j + q) + 2 * i],
                                             d[4 * (j + q) + 2 * i + 1]);
                    turn_four(v);
                    int output = p.output + 8 * (j + (int)t);
                    if (at[i] >= 0 && output < (int)a.outputs_each)
                        *(uint4 *)(y + (at[i] + output) * 2) = make_uint4(v[0], v[1], v[2], v[3]);
                }
            return;
        }
    bool twos = wide && steps % 2 == 0 && rn_is_aligned(y, 8);
#pragma unroll
    for (int j = 0; j < OUTPUTS / 8; j++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            put_two(a, at[i], p.output + 8 * j + 2 * (int)t, d[4 * j + 2 * i], d[4 * j + 2 * i + 1],
                    y, twos);
}

// ---- a block ------------------------------------------------------------------------------------

template <bool BF16, int HALVES, int OUTPUTS>
static __device__ __forceinline__ void convolve(const rn_conv_args &a) {
    extern __shared__ __align__(1024) uint8_t conv_memory[];
    using m = memory<HALVES, OUTPUTS>;
    uint32_t place = (rn_shared_address(conv_memory) + 1023) & ~1023u;
    float *bias = (float *)(conv_memory + (place - rn_shared_address(conv_memory)) + m::BIAS);
    block_place p = find_place<OUTPUTS>(a);
    if (threadIdx.x == 0) {
        for (int i = 0; i < m::STAGES; i++) {
            rn_barrier_begin(place + m::BARRIERS + 8 * i, 1);
            rn_barrier_begin(place + m::BARRIERS + 8 * (m::STAGES + i), 2 * CLUSTER);
        }
        rn_barriers_publish();
        rn_map_fetch(&a.x);
        rn_map_fetch(&a.w);
    }
    __syncthreads();
    rn_cluster_arrive();
    rn_cluster_wait();
    rn_begin();
    if (threadIdx.x >= 2 * GROUP) {
        rn_registers_less<FEW_REGISTERS>();
        if (threadIdx.x == 2 * GROUP) {
            rn_bulk_fence();
            bring<HALVES, OUTPUTS>(a, place, p);
        }
    } else {
        rn_registers_more<MANY_REGISTERS>();
        float d[HALVES][OUTPUTS / 2];
        fetch_bias<OUTPUTS>(a, p, bias);
        multiply<BF16, HALVES, OUTPUTS>(d, place, p.count);
        uint32_t warp = threadIdx.x % GROUP / 32;
#pragma unroll
        for (int half = 0; half < HALVES; half++)
            write<OUTPUTS>(a, p, d[half], bias,
                           (threadIdx.x / GROUP * HALVES + half) * 64 + warp * 16);
    }
    __syncwarp();
    rn_cluster_arrive(); // a block stays while the other one may speak to its barriers
    rn_cluster_wait();
}

// As kernels.def says.
static_assert(memory<2, 160>::BYTES == 214720 && memory<2, 128>::BYTES == 198208 &&
                  memory<1, 160>::BYTES == 222944 && memory<1, 128>::BYTES == 198240 &&
                  memory<1, 64>::BYTES == 198016 && memory<1, 16>::BYTES == 148672,
              "");

#endif

} // namespace rn_conv

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define RN_CONV_BODY(is_bf16, halves, outputs) rn_conv::convolve<is_bf16, halves, outputs>(a)
#define RN_CONV_CLUSTERS                       __cluster_dims__(RN_CONV_CLUSTER, 1, 1)
#else
#define RN_CONV_BODY(is_bf16, halves, outputs) (void)a
#define RN_CONV_CLUSTERS                       // there are none before Hopper
#endif
#define RN_CONV(type, is_bf16, halves, pixels, outputs)                                            \
    extern "C" __global__ void RN_CONV_CLUSTERS __launch_bounds__(RN_CONV_THREADS, 1)              \
        rn_conv_##type##_##pixels##_##outputs(const __grid_constant__ rn_conv_args a) {            \
        RN_CONV_BODY(is_bf16, halves, outputs);                                                    \
    }
#define RN_CONV_TYPE(type, is_bf16)                                                                \
    RN_CONV(type, is_bf16, 2, 256, 160)                                                            \
    RN_CONV(type, is_bf16, 2, 256, 128)                                                            \
    RN_CONV(type, is_bf16, 1, 128, 160)                                                            \
    RN_CONV(type, is_bf16, 1, 128, 128)                                                            \
    RN_CONV(type, is_bf16, 1, 128, 64)                                                             \
    RN_CONV(type, is_bf16, 1, 128, 16)
RN_CONV_TYPE(bf16, true)
RN_CONV_TYPE(f16, false)

// A thread for each four of a pixel's outputs.
extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_conv_total(const __grid_constant__ rn_conv_total_args a) {
    rn_begin();
    uint32_t fours = (a.outputs + 3) / 4;
    for (uint64_t i = rn_thread(); i < a.pixels * fours; i += rn_threads()) {
        uint64_t pixel = i / fours;
        uint32_t first = (uint32_t)(i % fours) * 4, left = min(a.outputs - first, 4u);
        float sum[4] = {0, 0, 0, 0};
        for (uint32_t s = 0; s < a.splits; s++) {
            const float *from = a.partial + (s * a.pixels + pixel) * a.outputs + first;
            if (a.outputs % 4 == 0) {
                float4 v = *(const float4 *)from;
                sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
            } else
                for (uint32_t j = 0; j < 4; j++)
                    if (j < left) sum[j] += from[j];
        }
        uint32_t w = (uint32_t)(pixel % a.out_w);
        uint64_t rest = pixel / a.out_w, h = rest % a.out_h, n = rest / a.out_h;
        uint64_t at = n * a.y_n + h * a.y_h + w * a.y_w + first;
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            if (a.bias && j < left) sum[j] += rn_load_one(a.bias_type, a.bias, first + j);
            if (a.addend && j < left) sum[j] += rn_load_one(a.y_type, a.addend, at + j);
        }
        if (left == 4 && a.y_type != RN_PLAIN_F32 && rn_is_aligned((uint16_t *)a.y + at, 8)) {
            *(uint2 *)((uint16_t *)a.y + at) = make_uint2(rn_narrow_two(a.y_type, sum[0], sum[1]),
                                                          rn_narrow_two(a.y_type, sum[2], sum[3]));
            continue;
        }
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            if (j < left) rn_store_one(a.y_type, a.y, at + j, sum[j]);
    }
}

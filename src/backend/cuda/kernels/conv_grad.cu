// conv_grad.cu — the gradient of a convolution by its weights on matrix units: for each tap, dy
// (pixels, O) and x (pixels, C), moved by the tap, summed over pixels to (O, C). Both lie in shared
// memory as the copy engine brings them, boxes of 64 pixels by 64 channels, and are multiplied
// across (panel.cuh). f32 sums; parts of the pixels are added by conv_grad_total, in order.
#include "begin.cuh"
#include "conv_args.h"
#include "panel_pair.cuh"
#include "ring.cuh"
#include "tensor_map.cuh"

namespace rn_conv_grad {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

enum : int {
    GROUP = 128,
    PIXELS = RN_CONV_GRAD_PIXELS,
    PANEL = PIXELS * 128,
    STAGE = 4 * PANEL, // two panels of dy, two of x
    STAGES = 6,
    BARRIERS = STAGES * STAGE,
    BYTES = BARRIERS + STAGES * 16 + 1024
};

struct span {
    uint32_t begin, count; // boxes of pixels
};

static __device__ __forceinline__ void bring(const rn_conv_grad_args &a, uint32_t place, span s,
                                             int first_c, int first_o) {
    uint32_t tap = blockIdx.y % a.taps;
    int group = (int)(blockIdx.y / a.taps);
    for (uint32_t i = 0; i < s.count; i++) {
        uint32_t stage = i % STAGES, box = s.begin + i;
        uint32_t full = place + BARRIERS + 8 * stage, target = place + stage * STAGE;
        int w = (int)(box % a.tiles_w * a.box_w), h = (int)(box / a.tiles_w % a.tiles_h * a.box_h);
        int n = (int)(box / a.tiles_w / a.tiles_h * a.box_n);
        int x_w = w * (int)a.stride_w + a.tap_w[tap], x_h = h * (int)a.stride_h + a.tap_h[tap];
        rn_barrier_wait(full + 8 * STAGES, (i / STAGES & 1) ^ 1);
        rn_barrier_expect(full, STAGE);
#pragma unroll
        for (int p = 0; p < 2; p++) {
            rn_map_copy(target + p * PANEL, &a.dy, first_o + 64 * p, group, w, h, n, full);
            rn_map_copy(target + (2 + p) * PANEL, &a.x, first_c + 64 * p, group, x_w, x_h, n, full);
        }
    }
}

template <bool BF16>
static __device__ __forceinline__ void multiply(float (&d)[64], uint32_t place, uint32_t count) {
    uint32_t mine = threadIdx.x / GROUP * PANEL;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t stage = i % STAGES;
        rn_barrier_wait(place + BARRIERS + 8 * stage, i / STAGES & 1);
        uint64_t dy = rn_panel_across(place + stage * STAGE + mine, PANEL);
        uint64_t x = rn_panel_across(place + stage * STAGE + 2 * PANEL, PANEL);
        rn_wgmma_hold(d);
        rn_wgmma_begin();
#pragma unroll
        for (int k = 0; k < PIXELS / 16; k++)
            rn_pair_multiply<BF16, true>(d, rn_panel_step(dy, k * 2048), rn_panel_step(x, k * 2048),
                                         (uint32_t)(i + k > 0));
        rn_wgmma_commit();
        rn_wgmma_wait<1>();
        if (i > 0 && threadIdx.x % GROUP == 0)
            rn_barrier_arrive(place + BARRIERS + 8 * (STAGES + (i - 1) % STAGES));
    }
    rn_wgmma_wait<0>();
    rn_wgmma_hold(d);
}

template <bool BF16>
static __device__ __forceinline__ void differentiate(const rn_conv_grad_args &a) {
    extern __shared__ __align__(1024) uint8_t grad_memory[];
    uint32_t place = (rn_shared_address(grad_memory) + 1023) & ~1023u;
    uint32_t wide = (a.channels_each + RN_CONV_GRAD_TILE - 1) / RN_CONV_GRAD_TILE;
    int first_c = (int)(blockIdx.x % wide) * RN_CONV_GRAD_TILE;
    int first_o = (int)(blockIdx.x / wide) * RN_CONV_GRAD_TILE;
    uint64_t boxes = (uint64_t)a.tiles_n * a.tiles_h * a.tiles_w;
    span s = {(uint32_t)(boxes * blockIdx.z / a.splits), 0};
    s.count = (uint32_t)(boxes * (blockIdx.z + 1) / a.splits) - s.begin;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            rn_barrier_begin(place + BARRIERS + 8 * i, 1);
            rn_barrier_begin(place + BARRIERS + 8 * (STAGES + i), 2);
        }
        rn_barriers_publish();
    }
    __syncthreads();
    rn_begin();
    if (threadIdx.x >= 2 * GROUP) {
        if (threadIdx.x > 2 * GROUP) return;
        rn_bulk_fence();
        bring(a, place, s, first_c, first_o);
        return;
    }
    float d[64];
    multiply<BF16>(d, place, s.count);
    uint32_t lane = threadIdx.x % 32;
    uint64_t base =
        ((uint64_t)blockIdx.z * a.groups + blockIdx.y / a.taps) * a.taps + blockIdx.y % a.taps;
    int row = first_o + threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 64; i++) {
        int o = row + i / 2 % 2 * 8, c = first_c + i / 4 * 8 + 2 * (lane % 4) + i % 2;
        if (o < (int)a.outputs_each && c < (int)a.channels_each)
            a.partial[(base * a.outputs_each + o) * a.channels_each + c] = s.count ? d[i] : 0;
    }
}

static_assert(BYTES == 197728, "as kernels.def says");

#endif

} // namespace rn_conv_grad

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define RN_CONV_GRAD_BODY(is_bf16) rn_conv_grad::differentiate<is_bf16>(a)
#else
#define RN_CONV_GRAD_BODY(is_bf16) (void)a
#endif
#define RN_CONV_GRAD(type, is_bf16)                                                                \
    extern "C" __global__ void __launch_bounds__(RN_CONV_THREADS, 1)                               \
        rn_conv_grad_##type(const __grid_constant__ rn_conv_grad_args a) {                         \
        RN_CONV_GRAD_BODY(is_bf16);                                                                \
    }
RN_CONV_GRAD(bf16, true)
RN_CONV_GRAD(f16, false)

// forms.cuh — tiles (tensor/tiles.h) on their way into the matrix units.
//
// A lane's share of a tile is VECTORS vectors of 16 bytes of data and EXTRAS of scales (and
// offsets). *Where* they come from is the caller's affair: global memory, or a copy of the tile in
// shared memory; rn_form_offset says at which byte of the tile each lies. *What they become* is
// said here: `widen` makes the A fragment of one step (mma m16n8k16, and each warp's share of
// wgmma's m64): four registers of f16x2, or bf16x2 for BF16.
//
//     uint4 v[form::VECTORS + form::EXTRAS];
//     for (i...) v[i] = *(const uint4 *)(tile + rn_form_offset<form>(i, lane));
//     for (step = 0..7, unrolled) { form::widen(v, v + form::VECTORS, step, a); rn_mma<...>(...); }
//
// Every weight is rounded at most once here: integers are made exactly (an integer in the last bits
// of 1024.0 less an exact constant), then scaled with one rounding. (Scales that a file has as
// products, q4_k's and q6_k's, were rounded when they were laid out.) All kernels widen by these
// functions, so a weight has the same 16 bits in all of them.
#ifndef RN_CUDA_KERNELS_FORMS_CUH
#define RN_CUDA_KERNELS_FORMS_CUH

#include <stdint.h>

extern "C" {
#include "tensor/tiles.h"
}

// ---- pairs of f16 in a word ---------------------------------------------------------------------

#define RN_PAIR_1024    0x64006400u // (1024, 1024): its last ten bits count in ones
#define RN_PAIR_1032    0x64086408u
#define RN_PAIR_1152    0x64806480u
#define RN_PAIR_16TH    0x2c002c00u // 1/16
#define RN_PAIR_LESS_64 0xd400d400u // -64
#define RN_PAIR_LESS_72 0xd480d480u // -72

// .rn keeps ptxas from fusing a product and a sum.
__device__ __forceinline__ uint32_t rn_pair_sub(uint32_t x, uint32_t y) {
    uint32_t out;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(x), "r"(y));
    return out;
}

__device__ __forceinline__ uint32_t rn_pair_mul(uint32_t x, uint32_t y) {
    uint32_t out;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(x), "r"(y));
    return out;
}

__device__ __forceinline__ uint32_t rn_pair_fma(uint32_t x, uint32_t y, uint32_t z) {
    uint32_t out;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(x), "r"(y), "r"(z));
    return out;
}

// (x & mask) | 1024s, in one instruction.
__device__ __forceinline__ uint32_t rn_pair_place(uint32_t x, uint32_t mask) {
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(x), "r"(mask), "r"(RN_PAIR_1024));
    return out;
}

// Word i of a vector; i is a constant once loops are unrolled.
__device__ __forceinline__ uint32_t rn_word(const uint4 &v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// The scales of a step: of row g twice (for a[0], a[2]) and of row g + 8 twice (a[1], a[3]).
struct rn_step_scales {
    uint32_t low, high;
};
__device__ __forceinline__ rn_step_scales rn_scales_of(const uint4 &scales, int step) {
    rn_step_scales out; // written so that ptxas takes the half where it multiplies: no instruction
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; mov.b32 %0, {l, l}; mov.b32 %1, {h, h}; }"
        : "=r"(out.low), "=r"(out.high)
        : "r"(rn_word(scales, step / 2)));
    return out;
}

// ---- forms --------------------------------------------------------------------------------------

template <int FORM> struct rn_form;

struct rn_form_of_halves {
    enum { VECTORS = 8, EXTRAS = 0, TILE_BYTES = 4096 };
    static __device__ __forceinline__ void widen(const uint4 *data, const uint4 *, int step,
                                                 uint32_t a[4]) {
        a[0] = data[step].x;
        a[1] = data[step].y;
        a[2] = data[step].z;
        a[3] = data[step].w;
    }
};

template <> struct rn_form<RN_TILE_F16> : rn_form_of_halves {
    enum { BF16 = 0 };
};

template <> struct rn_form<RN_TILE_BF16> : rn_form_of_halves {
    enum { BF16 = 1 };
};

template <> struct rn_form<RN_TILE_I8> {
    enum { VECTORS = 4, EXTRAS = 0, TILE_BYTES = 2048, BF16 = 0 };
    // The bytes q + 128 of a step, two a word behind 0x64: 1024 + 128 + q.
    static __device__ __forceinline__ void widen(const uint4 *data, const uint4 *, int step,
                                                 uint32_t a[4]) {
        for (int half = 0; half < 2; half++) {
            uint32_t bytes = rn_word(data[step / 2], step % 2 * 2 + half);
            a[2 * half] = rn_pair_sub(__byte_perm(bytes, 0x64646464u, 0x4140), RN_PAIR_1152);
            a[2 * half + 1] = rn_pair_sub(__byte_perm(bytes, 0x64646464u, 0x4342), RN_PAIR_1152);
        }
    }
};

template <> struct rn_form<RN_TILE_Q8> {
    enum { VECTORS = 4, EXTRAS = 1, TILE_BYTES = 2176, BF16 = 0 };
    static __device__ __forceinline__ void widen(const uint4 *data, const uint4 *extra, int step,
                                                 uint32_t a[4]) {
        rn_form<RN_TILE_I8>::widen(data, extra, step, a);
        rn_step_scales scale = rn_scales_of(extra[0], step);
        for (int i = 0; i < 4; i++)
            a[i] = rn_pair_mul(a[i], i % 2 ? scale.high : scale.low);
    }
};

// Scales of 16 columns: of the even steps, of the odd ones.
template <> struct rn_form<RN_TILE_Q6> {
    enum { VECTORS = 4, EXTRAS = 2, TILE_BYTES = 2304, BF16 = 0 };
    static __device__ __forceinline__ void widen(const uint4 *data, const uint4 *extra, int step,
                                                 uint32_t a[4]) {
        rn_form<RN_TILE_Q8>::widen(data, extra + step % 2, step, a);
    }
};

// q less `minus` (8 or 0) of a step's word, exactly. Where a pair lies four bits higher it counts
// in sixteens: 1024 + 16 q, over 16 is 64 + q; that spares a shift.
template <int MINUS> __device__ __forceinline__ void rn_unpack_4(uint32_t word, uint32_t a[4]) {
    const uint32_t less_low = MINUS ? RN_PAIR_1032 : RN_PAIR_1024;
    const uint32_t less_high = MINUS ? RN_PAIR_LESS_72 : RN_PAIR_LESS_64;
    for (int half = 0; half < 2; half++) {
        uint32_t low = rn_pair_place(word, 0x000f000fu);
        uint32_t high = rn_pair_place(word, 0x00f000f0u);
        a[2 * half] = rn_pair_sub(low, less_low);
        a[2 * half + 1] = rn_pair_fma(high, RN_PAIR_16TH, less_high);
        word >>= 8;
    }
}

template <> struct rn_form<RN_TILE_Q4> {
    enum { VECTORS = 2, EXTRAS = 1, TILE_BYTES = 1152, BF16 = 0 };
    static __device__ __forceinline__ void widen(const uint4 *data, const uint4 *extra, int step,
                                                 uint32_t a[4]) {
        rn_unpack_4<8>(rn_word(data[step / 4], step % 4), a);
        rn_step_scales scale = rn_scales_of(extra[0], step);
        for (int i = 0; i < 4; i++)
            a[i] = rn_pair_mul(a[i], i % 2 ? scale.high : scale.low);
    }
};

template <> struct rn_form<RN_TILE_A4> {
    enum { VECTORS = 2, EXTRAS = 2, TILE_BYTES = 1280, BF16 = 0 };
    static __device__ __forceinline__ void widen(const uint4 *data, const uint4 *extra, int step,
                                                 uint32_t a[4]) {
        rn_unpack_4<0>(rn_word(data[step / 4], step % 4), a);
        rn_step_scales scale = rn_scales_of(extra[0], step), offset = rn_scales_of(extra[1], step);
        for (int i = 0; i < 4; i++)
            a[i] =
                rn_pair_fma(a[i], i % 2 ? scale.high : scale.low, i % 2 ? offset.high : offset.low);
    }
};

// One byte (the low or the high one) of the table's f16 for each of four numbers 0..15: `four` has
// their last three bits, in bits 0, 4, 8, 12, by which a permutation of bytes chooses among eight;
// `choice` is 0x3210 and, in the same bits + 2, their fourth ones, for a second permutation.
__device__ __forceinline__ uint32_t rn_nf4_bytes(uint32_t four, uint32_t choice, uint32_t q0,
                                                 uint32_t q4, uint32_t q8, uint32_t q12) {
    return __byte_perm(__byte_perm(q0, q4, four), __byte_perm(q8, q12, four), choice);
}

// table[q] as f16 for numbers in the order 0, 2, 1, 3: the pairs (0, 1) and (2, 3).
__device__ __forceinline__ void rn_nf4_four(uint32_t four, uint32_t choice, uint32_t out[2]) {
    uint32_t low = rn_nf4_bytes(four, choice, 0x52339200u, 0x00d4ea8du, 0x68e02618u, 0x00c9800du);
    uint32_t high = rn_nf4_bytes(four, choice, 0xb6b8b9bcu, 0x00adb1b4u, 0x3533312du, 0x3c393837u);
    out[0] = __byte_perm(low, high, 0x6240);
    out[1] = __byte_perm(low, high, 0x7351);
}

template <> struct rn_form<RN_TILE_N4> {
    enum { VECTORS = 2, EXTRAS = 1, TILE_BYTES = 1152, BF16 = 0 };
    static __device__ __forceinline__ void widen(const uint4 *data, const uint4 *extra, int step,
                                                 uint32_t a[4]) {
        // a[0], a[2], a[1], a[3], then a[4], a[6], a[5], a[7]
        uint32_t numbers = __byte_perm(rn_word(data[step / 4], step % 4), 0, 0x3120);
        uint32_t four = numbers & 0x77777777u;
        uint32_t choice = (numbers >> 1 & 0x44444444u) | 0x32103210u;
        rn_step_scales scale = rn_scales_of(extra[0], step);
        rn_nf4_four(four, choice, a);
        rn_nf4_four(four >> 16, choice >> 16, a + 2);
        for (int i = 0; i < 4; i++)
            a[i] = rn_pair_mul(a[i], i % 2 ? scale.high : scale.low);
    }
};

// ---- where a lane's vectors lie -----------------------------------------------------------------

// Byte of the tile at which vector i of a lane lies: data for i < VECTORS, then scales, offsets.
template <class form> __device__ __forceinline__ uint32_t rn_form_offset(int i, uint32_t lane) {
    return i < form::VECTORS ? 512u * i + 16u * lane
                             : 512u * form::VECTORS + 128u * (i - form::VECTORS) + 16u * (lane / 4);
}

// A vector of a weight, read once a pass: past the L1, by 256 bytes into the L2.
__device__ __forceinline__ uint4 rn_load_stream(const void *address) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address));
    return v;
}

// ---- the matrix instruction ---------------------------------------------------------------------

// c (16 x 8, f32) += a (16 x 16) b (16 x 8). Lane l = 4 g + t holds c of rows g, g, g + 8, g + 8
// and columns 2t, 2t+1, 2t, 2t+1; b of column g and k 2t, 2t+1 (first), 2t+8, 2t+9 (second).
template <bool BF16>
__device__ __forceinline__ void rn_mma(float c[4], const uint32_t a[4], uint32_t first,
                                       uint32_t second) {
    if constexpr (BF16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(first), "r"(second));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(first), "r"(second));
}

// x in 16 bits: bf16 to nearest even, or f16, kept within its range. NaN stays NaN.
template <bool BF16> __device__ __forceinline__ uint16_t rn_round_16(float x) {
    uint16_t out;
    if constexpr (BF16) {
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out) : "f"(x));
    } else {
        x = x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(x));
    }
    return out;
}

#endif

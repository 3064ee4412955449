// forms.cuh — tiles (tensor/tiles.h) on their way into the matrix units.
//
// A lane's share of a tile is VECTORS vectors of data and EXTRAS of scales (and offsets), of 16
// bytes but for some that have less. *Where* they come from is the caller's affair: global memory,
// or a copy of the tile in shared memory; rn_form_offset says at which byte of the tile each lies
// and rn_form_bytes how many bytes it has. *What they become* is said here: `widen` makes the A fragment of one step (mma m16n8k16, and each warp's share of
// wgmma's m64): four registers of f16x2, or bf16x2 for BF16.
//
//     uint4 v[form::VECTORS + form::EXTRAS];
//     for (i...) v[i] = rn_form_read<form>(tile, i, lane);
//     for (step = 0..7, unrolled) { form::widen(v, v + form::VECTORS, step, a); rn_mma<...>(...); }
//
// Every weight is rounded at most once here: integers are made exactly (an integer in the last bits
// of 1024.0 less an exact constant), then scaled with one rounding. (Scales that a file has as
// products were rounded once, too: q4_k's when they were laid out, small ones here.) All kernels widen by these
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
#define RN_PAIR_1028    0x64046404u
#define RN_PAIR_1056    0x64206420u
#define RN_PAIR_1152    0x64806480u
#define RN_PAIR_16TH    0x2c002c00u // 1/16
#define RN_PAIR_8TH     0x30003000u // 1/8
#define RN_PAIR_256TH   0x1c001c00u // 1/256
#define RN_PAIR_LESS_64 0xd400d400u // -64
#define RN_PAIR_LESS_68 0xd440d440u // -68
#define RN_PAIR_LESS_72 0xd480d480u // -72
#define RN_PAIR_LESS_96 0xd600d600u // -96
#define RN_PAIR_LESS_144 0xd880d880u // -144

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

// (x & mask) | y, likewise.
__device__ __forceinline__ uint32_t rn_pair_join(uint32_t x, uint32_t mask, uint32_t y) {
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(x), "r"(mask), "r"(y));
    return out;
}

// x >> by, or << where that is less than nothing.
__device__ __forceinline__ uint32_t rn_shift(uint32_t x, int by) {
    return by < 0 ? x << -by : x >> by;
}

// Word i of a vector; i is a constant once loops are unrolled.
__device__ __forceinline__ uint32_t rn_word(const uint4 &v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// The scales of a step: of row g twice (for a[0], a[2]) and of row g + 8 twice (a[1], a[3]).
struct rn_step_scales {
    uint32_t low, high;
};
__device__ __forceinline__ rn_step_scales rn_scales_split(uint32_t pair) {
    rn_step_scales out; // written so that ptxas takes the half where it multiplies: no instruction
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; mov.b32 %0, {l, l}; mov.b32 %1, {h, h}; }"
        : "=r"(out.low), "=r"(out.high)
        : "r"(pair));
    return out;
}
__device__ __forceinline__ rn_step_scales rn_scales_of(const uint4 &scales, int step) {
    return rn_scales_split(rn_word(scales, step / 2));
}

// Small scales: 1024 + the step's byte, of row g and of row g + 8.
__device__ __forceinline__ uint32_t rn_small_of(const uint4 &bytes, int step) {
    return __byte_perm(rn_word(bytes, step / 2), 0x64646464u, step % 2 ? 0x4342 : 0x4140);
}

// d * (byte - 128).
__device__ __forceinline__ rn_step_scales rn_small_scales(const uint4 &bytes, uint32_t d,
                                                          int step) {
    return rn_scales_split(
        rn_pair_mul(rn_pair_sub(rn_small_of(bytes, step), RN_PAIR_1152), d));
}

__device__ __forceinline__ void rn_scale(uint32_t a[4], const rn_step_scales &scale) {
    for (int i = 0; i < 4; i++)
        a[i] = rn_pair_mul(a[i], i % 2 ? scale.high : scale.low);
}

__device__ __forceinline__ void rn_scale_add(uint32_t a[4], const rn_step_scales &scale,
                                             const rn_step_scales &offset) {
    for (int i = 0; i < 4; i++)
        a[i] = rn_pair_fma(a[i], i % 2 ? scale.high : scale.low, i % 2 ? offset.high : offset.low);
}

// ---- forms --------------------------------------------------------------------------------------

// LOW: the vectors that follow the steps, the rest of VECTORS has what is above them, of which the
// last has 8 bytes where HALF is set. WHOLE: bytes of a last extra for each g; 0: there is none.
template <int FORM> struct rn_form;

struct rn_form_of_halves {
    enum { VECTORS = 8, LOW = 8, HALF = 0, EXTRAS = 0, WHOLE = 0, TILE_BYTES = 4096 };
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
    enum { VECTORS = 4, LOW = 4, HALF = 0, EXTRAS = 0, WHOLE = 0, TILE_BYTES = 2048, BF16 = 0 };
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
    enum { VECTORS = 4, LOW = 4, HALF = 0, EXTRAS = 1, WHOLE = 0, TILE_BYTES = 2176, BF16 = 0 };
    static __device__ __forceinline__ void widen(const uint4 *data, const uint4 *extra, int step,
                                                 uint32_t a[4]) {
        rn_form<RN_TILE_I8>::widen(data, extra, step, a);
        rn_scale(a, rn_scales_of(extra[0], step));
    }
};

// Two numbers of e4m3 over 256, exactly: by the device's conversion, or with their bits in f16's
// places, sign at the top, exponent and fraction one bit lower than the byte has them, for f16's
// exponents begin 8 lower.
__device__ __forceinline__ uint32_t rn_pair_e4m3(uint32_t bytes, int high) {
#if __CUDA_ARCH__ >= 890
    uint32_t out;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; cvt.rn.f16x2.e4m3x2 %0, l; }"
        : "=r"(out)
        : "r"(high ? bytes >> 16 : bytes));
    return rn_pair_mul(out, RN_PAIR_256TH);
#else
    uint32_t top = __byte_perm(bytes, 0, high ? 0x3424 : 0x1404);
    return rn_pair_join(top, 0x80008000u, top >> 1 & 0x3f803f80u);
#endif
}

template <> struct rn_form<RN_TILE_F8> {
    enum { VECTORS = 4, LOW = 4, HALF = 0, EXTRAS = 1, WHOLE = 0, TILE_BYTES = 2176, BF16 = 0 };
    static __device__ __forceinline__ void widen(const uint4 *data, const uint4 *extra, int step,
                                                 uint32_t a[4]) {
        for (int half = 0; half < 2; half++) {
            uint32_t bytes = rn_word(data[step / 2], step % 2 * 2 + half);
            a[2 * half] = rn_pair_e4m3(bytes, 0);
            a[2 * half + 1] = rn_pair_e4m3(bytes, 1);
        }
        rn_scale(a, rn_scales_of(extra[0], step));
    }
};

// q less something of a step's word of nibbles, exactly; `above(half)` has what is above them, in
// bits 4 and 8 of each half word, on 1024. Where a pair lies four bits higher it counts in
// sixteens: 1024 + 16 q, over 16 is 64 + q; that spares a shift.
template <uint32_t LESS_LOW, uint32_t LESS_HIGH, int ABOVE, class lifter>
__device__ __forceinline__ void rn_unpack(uint32_t word, const lifter &above, uint32_t a[4]) {
    for (int half = 0; half < 2; half++) {
        uint32_t up = above(half);
        uint32_t mask = ABOVE == 2 ? 0x00300030u : 0x00100010u;
        uint32_t low = ABOVE ? rn_pair_place(up, mask) : RN_PAIR_1024;
        uint32_t high = ABOVE ? rn_pair_place(up, mask << 4) : RN_PAIR_1024;
        low = rn_pair_join(word, 0x000f000fu, low);
        high = rn_pair_join(word, 0x00f000f0u, high);
        a[2 * half] = rn_pair_sub(low, LESS_LOW);
        a[2 * half + 1] = rn_pair_fma(high, RN_PAIR_16TH, LESS_HIGH);
        word >>= 8;
    }
}

struct rn_nothing_above {
    __device__ __forceinline__ uint32_t operator()(int) const { return 0; }
};

template <> struct rn_form<RN_TILE_Q4> {
    enum { VECTORS = 2, LOW = 2, HALF = 0, EXTRAS = 1, WHOLE = 0, TILE_BYTES = 1152, BF16 = 0 };
    static __device__ __forceinline__ void widen(const uint4 *data, const uint4 *extra, int step,
                                                 uint32_t a[4]) {
        rn_unpack<RN_PAIR_1032, RN_PAIR_LESS_72, 0>(rn_word(data[step / 4], step % 4),
                                                    rn_nothing_above(), a);
        rn_scale(a, rn_scales_of(extra[0], step));
    }
};

template <> struct rn_form<RN_TILE_A4> {
    enum { VECTORS = 2, LOW = 2, HALF = 0, EXTRAS = 2, WHOLE = 0, TILE_BYTES = 1280, BF16 = 0 };
    static __device__ __forceinline__ void widen(const uint4 *data, const uint4 *extra, int step,
                                                 uint32_t a[4]) {
        rn_unpack<RN_PAIR_1024, RN_PAIR_LESS_64, 0>(rn_word(data[step / 4], step % 4),
                                                    rn_nothing_above(), a);
        rn_scale_add(a, rn_scales_of(extra[0], step), rn_scales_of(extra[1], step));
    }
};

// The bits of a word of bits that belong to two pairs of a step, shifted so that the first's is at
// bit `to`.
__device__ __forceinline__ uint32_t rn_bits_of(const uint4 &bits, int step, int half, int to) {
    int n = step % 4 * 2 + half;
    return rn_shift(step < 4 ? bits.x : bits.y, n / 4 * 8 + n % 4 - to);
}
// The same of a word of crumbs.
__device__ __forceinline__ uint32_t rn_crumbs_of(const uint4 &crumbs, int step, int half, int to) {
    return rn_shift(rn_word(crumbs, step / 2), step % 2 * 8 + half * 2 - to);
}

template <> struct rn_form<RN_TILE_A5> {
    enum { VECTORS = 3, LOW = 2, HALF = 1, EXTRAS = 2, WHOLE = 0, TILE_BYTES = 1536, BF16 = 0 };
    static __device__ __forceinline__ void widen(const uint4 *data, const uint4 *extra, int step,
                                                 uint32_t a[4]) {
        auto fifths = [&](int half) { return rn_bits_of(data[2], step, half, 4); };
        rn_unpack<RN_PAIR_1024, RN_PAIR_LESS_64, 1>(rn_word(data[step / 4], step % 4), fifths, a);
        rn_scale_add(a, rn_scales_of(extra[0], step), rn_scales_of(extra[1], step));
    }
};

template <> struct rn_form<RN_TILE_Q6> {
    enum { VECTORS = 3, LOW = 2, HALF = 0, EXTRAS = 2, WHOLE = 4, TILE_BYTES = 1696, BF16 = 0 };
    static __device__ __forceinline__ void widen(const uint4 *data, const uint4 *extra, int step,
                                                 uint32_t a[4]) {
        auto upper = [&](int half) { return rn_crumbs_of(data[2], step, half, 4); };
        rn_unpack<RN_PAIR_1056, RN_PAIR_LESS_96, 2>(rn_word(data[step / 4], step % 4), upper, a);
        rn_scale(a, rn_small_scales(extra[0], extra[1].x, step));
    }
};

template <> struct rn_form<RN_TILE_Q3> {
    enum { VECTORS = 2, LOW = 1, HALF = 1, EXTRAS = 2, WHOLE = 4, TILE_BYTES = 928, BF16 = 0 };
    static __device__ __forceinline__ void widen(const uint4 *data, const uint4 *extra, int step,
                                                 uint32_t a[4]) {
        for (int half = 0; half < 2; half++) {
            uint32_t two = rn_crumbs_of(data[0], step, half, 0);
            uint32_t third = rn_bits_of(data[1], step, half, 2);
            uint32_t low = rn_pair_join(two, 0x00030003u, rn_pair_place(third, 0x00040004u));
            uint32_t high = rn_pair_join(two, 0x00300030u, rn_pair_place(third, 0x00400040u));
            a[2 * half] = rn_pair_sub(low, RN_PAIR_1028);
            a[2 * half + 1] = rn_pair_fma(high, RN_PAIR_16TH, RN_PAIR_LESS_68);
        }
        rn_scale(a, rn_small_scales(extra[0], extra[1].x, step));
    }
};

template <> struct rn_form<RN_TILE_A2> {
    enum { VECTORS = 1, LOW = 1, HALF = 0, EXTRAS = 2, WHOLE = 8, TILE_BYTES = 704, BF16 = 0 };
    static __device__ __forceinline__ void widen(const uint4 *data, const uint4 *extra, int step,
                                                 uint32_t a[4]) {
        for (int half = 0; half < 2; half++) {
            uint32_t two = rn_crumbs_of(data[0], step, half, 0);
            a[2 * half] = rn_pair_sub(rn_pair_place(two, 0x00030003u), RN_PAIR_1024);
            a[2 * half + 1] =
                rn_pair_fma(rn_pair_place(two, 0x00300030u), RN_PAIR_16TH, RN_PAIR_LESS_64);
        }
        uint32_t small = rn_small_of(extra[0], step); // offset's factor in sixteens
        uint32_t scale = rn_pair_sub(rn_pair_place(small, 0x000f000fu), RN_PAIR_1024);
        uint32_t offset =
            rn_pair_fma(rn_pair_place(small, 0x00f000f0u), RN_PAIR_16TH, RN_PAIR_LESS_64);
        rn_scale_add(a, rn_scales_split(rn_pair_mul(scale, extra[1].x)),
                     rn_scales_split(rn_pair_mul(offset, extra[1].y)));
    }
};

// ---- tables -------------------------------------------------------------------------------------

// One byte of a table's entry for each of four numbers 0..15: `four` has their last three bits, in
// bits 0, 4, 8, 12, by which a permutation of bytes chooses among eight; `choice` is 0x3210 and, in
// the same bits + 2, their fourth ones, for a second permutation.
struct rn_table_bytes {
    uint32_t q0, q4, q8, q12; // entries 0..3, ...
    __device__ __forceinline__ uint32_t four(uint32_t four, uint32_t choice) const {
        return __byte_perm(__byte_perm(q0, q4, four), __byte_perm(q8, q12, four), choice);
    }
};

// Values of f16: a table of their low bytes and one of their high bytes.
struct rn_table_nf4 {
    // table[q] for four numbers: the pairs (0, 1) and (2, 3).
    static __device__ __forceinline__ void look_up(uint32_t four, uint32_t choice,
                                                   uint32_t out[2]) {
        const rn_table_bytes low_bytes = {0x52339200u, 0x00d4ea8du, 0x68e02618u, 0x00c9800du};
        const rn_table_bytes high_bytes = {0xb6b8b9bcu, 0x00adb1b4u, 0x3533312du, 0x3c393837u};
        uint32_t low = low_bytes.four(four, choice), high = high_bytes.four(four, choice);
        out[0] = __byte_perm(low, high, 0x5140);
        out[1] = __byte_perm(low, high, 0x7362);
    }
};

// Whole numbers: a table of bytes + 128, put behind 0x64 as 1024 + 128 + value.
template <uint32_t Q0, uint32_t Q4, uint32_t Q8, uint32_t Q12> struct rn_table_of_bytes {
    static __device__ __forceinline__ void look_up(uint32_t four, uint32_t choice,
                                                   uint32_t out[2]) {
        const rn_table_bytes table = {Q0, Q4, Q8, Q12};
        uint32_t bytes = table.four(four, choice);
        out[0] = rn_pair_sub(__byte_perm(bytes, 0x64646464u, 0x4140), RN_PAIR_1152);
        out[1] = rn_pair_sub(__byte_perm(bytes, 0x64646464u, 0x4342), RN_PAIR_1152);
    }
};
typedef rn_table_of_bytes<0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u> rn_table_iq4;
typedef rn_table_of_bytes<0x83828180u, 0x8c888684u, 0x7d7e7f80u, 0x74787a7cu> rn_table_fp4;

// {1, 7, 9, 8, 25, 43} and {4, 12, 20, 28, 36, 44, 52, 62}, then less than nothing.
typedef rn_table_of_bytes<0x88898781u, 0x8080ab99u, 0x7877797fu, 0x80805567u> rn_table_c2;
typedef rn_table_of_bytes<0x9c948c84u, 0xbeb4aca4u, 0x646c747cu, 0x424c545cu> rn_table_c3;

// Scales of 32 columns; of 16; small ones, in eighths.
struct rn_scales_each_32 {
    enum { EXTRAS = 1, WHOLE = 0, BYTES = 128 };
    static __device__ __forceinline__ rn_step_scales of(const uint4 *extra, int step) {
        return rn_scales_of(extra[0], step);
    }
};
struct rn_scales_each_16 {
    enum { EXTRAS = 2, WHOLE = 0, BYTES = 256 };
    static __device__ __forceinline__ rn_step_scales of(const uint4 *extra, int step) {
        return rn_scales_of(extra[step % 2], step);
    }
};
struct rn_scales_eighths {
    enum { EXTRAS = 2, WHOLE = 4, BYTES = 160 };
    static __device__ __forceinline__ rn_step_scales of(const uint4 *extra, int step) {
        uint32_t factor = rn_pair_fma(rn_small_of(extra[0], step), RN_PAIR_8TH, RN_PAIR_LESS_144);
        return rn_scales_split(rn_pair_mul(factor, extra[1].x));
    }
};

template <class table, class scales = rn_scales_each_32> struct rn_form_of_table {
    enum { VECTORS = 2, LOW = 2, HALF = 0, BF16 = 0 };
    enum { EXTRAS = scales::EXTRAS, WHOLE = scales::WHOLE, TILE_BYTES = 1024 + scales::BYTES };
    static __device__ __forceinline__ void widen(const uint4 *data, const uint4 *extra, int step,
                                                 uint32_t a[4]) {
        uint32_t numbers = rn_word(data[step / 4], step % 4);
        uint32_t four = numbers & 0x77777777u;
        uint32_t choice = (numbers >> 1 & 0x44444444u) | 0x32103210u;
        table::look_up(four, choice, a);
        table::look_up(four >> 16, choice >> 16, a + 2);
        rn_scale(a, scales::of(extra, step));
    }
    // The same from a table of all pairs of numbers in shared memory, (256, 32) words: a lane has its
    // own column, in its own bank. `column`: bytes at which that begins.
    static __device__ __forceinline__ void look(const uint4 *data, const uint4 *extra, int step,
                                                const uint8_t *pairs, uint32_t column,
                                                uint32_t a[4]) {
        uint32_t word = rn_word(data[step / 4], step % 4);
        for (int i = 0; i < 4; i++)
            a[i] = *(const uint32_t *)(pairs + ((rn_shift(word, 8 * i - 7) & 0x7f80u) | column));
        rn_scale(a, scales::of(extra, step));
    }
    static __device__ __forceinline__ void fill(uint32_t *pairs, uint32_t thread,
                                                uint32_t threads) {
        for (uint32_t i = thread; i < 256 * 32; i += threads) {
            uint32_t numbers = i / 32, out[2];
            table::look_up(numbers & 0x77u, (numbers >> 1 & 0x44u) | 0x3210u, out);
            pairs[i] = out[0];
        }
    }
};
template <> struct rn_form<RN_TILE_N4> : rn_form_of_table<rn_table_nf4> {};
template <> struct rn_form<RN_TILE_I4> : rn_form_of_table<rn_table_iq4> {};
template <> struct rn_form<RN_TILE_F4> : rn_form_of_table<rn_table_fp4> {};
template <> struct rn_form<RN_TILE_V4> : rn_form_of_table<rn_table_fp4, rn_scales_each_16> {};
template <> struct rn_form<RN_TILE_C2> : rn_form_of_table<rn_table_c2, rn_scales_eighths> {};
template <> struct rn_form<RN_TILE_C3> : rn_form_of_table<rn_table_c3, rn_scales_eighths> {};

// ---- where a lane's vectors lie -----------------------------------------------------------------

// Byte of the tile at which vector i of a lane lies: data for i < VECTORS, then scales, offsets; and
// how many bytes it has.
template <class form> __device__ __forceinline__ uint32_t rn_form_offset(int i, uint32_t lane) {
    const uint32_t data = 512u * form::VECTORS - 256u * form::HALF;
    if (i < form::VECTORS) return 512u * i + (form::HALF && i + 1 == form::VECTORS ? 8u : 16u) * lane;
    uint32_t extra = i - form::VECTORS;
    bool is_whole = form::WHOLE && extra + 1 == form::EXTRAS;
    return data + 128u * extra + (is_whole ? form::WHOLE : 16u) * (lane / 4);
}
template <class form> __device__ __forceinline__ constexpr int rn_form_bytes(int i) {
    return form::HALF && i + 1 == form::VECTORS                          ? 8
           : form::WHOLE && i + 1 == (int)form::VECTORS + (int)form::EXTRAS ? (int)form::WHOLE
                                                                         : 16;
}

// Vector i, of a tile in shared memory.
template <class form>
__device__ __forceinline__ uint4 rn_form_read(const uint8_t *tile, int i, uint32_t lane) {
    const uint8_t *at = tile + rn_form_offset<form>(i, lane);
    uint4 v = {};
    if (rn_form_bytes<form>(i) == 16) return *(const uint4 *)at;
    v.x = *(const uint32_t *)at;
    if (rn_form_bytes<form>(i) == 8) {
        uint2 two = *(const uint2 *)at;
        v.x = two.x, v.y = two.y;
    }
    return v;
}

// A vector of a weight, read once a pass: past the L1, by 256 bytes into the L2.
__device__ __forceinline__ uint4 rn_load_stream(const void *address) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address));
    return v;
}

// The same, by vectors; smaller ones go through the L1, which has the rest of their line.
template <class form>
__device__ __forceinline__ uint4 rn_form_stream(const uint8_t *tile, int i, uint32_t lane) {
    const uint8_t *at = tile + rn_form_offset<form>(i, lane);
    if (rn_form_bytes<form>(i) == 16) return rn_load_stream(at);
    uint4 v = {};
    if (rn_form_bytes<form>(i) == 4) {
        v.x = __ldg((const uint32_t *)at);
    } else {
        uint2 two = __ldg((const uint2 *)at);
        v.x = two.x, v.y = two.y;
    }
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

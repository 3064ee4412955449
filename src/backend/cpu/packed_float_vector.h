// packed_float_vector.h — the vector kernels of packed_floats.h, in the words of
// tensor/vector_avx2.h or tensor/vector_avx512.h and a few more that the including file defines:
//
//     vfma(a, b, c)   a * b + c, rounded once
//     ishift(a, n)    a >> n, zeros coming in
//     number_at(a, m) 2^23 + (a & m), as bits of a float are; m below 2^23
//     vload_some, vstore_some: the first `count` lanes
//
// Eight columns are a step: 8 k's for f16, one 32-bit word of nibbles for int4 and nf4(_dq). Sums
// are acc[vector][row]; a vector is LANES rows of a panel. Rows and vectors are constant where a
// function is inlined, and its loops are unrolled: sums live in registers.
#include "backend/cpu/packed_floats.h"

#include "base/checked.h"
#include "tensor/panels.h"
#include "tensor/quant.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

enum { HALVES = 16 / LANES, STEP = 8, MOST = 16 };

// Bytes of 8 columns of a panel.
INLINE uint64_t step_bytes(rn_float_form form) {
    if (form == RN_FLOAT_E4M3) return 128;
    return form == RN_FLOAT_F32 ? 512 : form == RN_FLOAT_F16 || form == RN_FLOAT_BF16 ? 256 : 64;
}

// Nibbles of int4 become numbers where they stand: one at bit b is q 2^b above 2^23, and
// fma(s 2^-b, 2^23 + q 2^b, -s 2^(23 - b)) is s q, rounded once, since a power of two rounds
// nothing. (Scales below 2^-110 lose bits to it.) Those beyond bit 19 are moved down by 12 first.
enum { PLACES = 5, MOVED = 12 };

// Bytes before the first step of a unit.
INLINE uint64_t steps_at(rn_float_form form) {
    return form == RN_FLOAT_INT4     ? 128
           : form == RN_FLOAT_NF4    ? 64
           : form == RN_FLOAT_NF4_DQ ? 16
                                     : 0;
}

// What the weights of a unit have in common.
typedef struct common {
    vfloat scale, shift;
    vfloat near[PLACES], far[PLACES]; // int4: s 2^-b and -s 2^(23 - b), by b / 4
    vtable table;                     // nf4
} common;

// `absmax`: nf4_dq's, of all lanes.
INLINE common common_of(rn_float_form form, const uint8_t *unit, const float *absmax, int h) {
    common c = {.table = table_load(rn_nf4_table)};
    const float *floats = (const float *)(const void *)unit;
    if (form == RN_FLOAT_NF4_DQ) c.scale = vload(absmax + h * LANES);
    if (form == RN_FLOAT_INT4 || form == RN_FLOAT_NF4) c.scale = vload(floats + h * LANES);
    if (form == RN_FLOAT_INT4) {
        c.shift = vload(floats + 16 + h * LANES);
        UNROLL
        for (int i = 0; i < PLACES; i++) {
            c.near[i] = vmul(c.scale, vset(1 / (float)(1 << 4 * i)));
            c.far[i] = vmul(c.scale, vset(-(float)(1 << (23 - 4 * i))));
        }
    }
    return c;
}

// Byte `at` of each lane. Exponent and fraction go where a float has them; numbers below 2^-6 have
// no leading one, so that one is put there and taken away again.
INLINE vfloat e4m3_at(vint words, int at) {
    vint byte = ishl(words, 24 - 8 * at), rest = ishift(iand(byte, iset(0x7f000000)), 4);
    vmask tiny = mgreater_int(iset(8 << 20), rest), nan = mgreater_int(rest, iset(0x7e << 20));
    vint bits = iadd_where(tiny, iadd(rest, iset(120 << 23)), iset(1 << 23));
    vint one = iadd_where(tiny, iset(0), ifrom(vset(0x1p-6f)));
    bits = iadd_where(nan, ifrom(vsub(vfrom(bits), vfrom(one))), iset(0x3bd00000)); // 480 to NaN
    return vfrom(ior(bits, iand(byte, iset((int)0x80000000))));
}

// Column i of a step, half h of the panel's rows.
INLINE vfloat weight(rn_float_form form, const uint8_t *step, int i, int h, const common *c) {
    static const uint8_t int4_at[8] = {0, 8, 16, 24, 4, 12, 20, 28};
    static const uint8_t nf4_at[8] = {4, 0, 12, 8, 20, 16, 28, 24};
    const float *floats = (const float *)(const void *)step;
    switch (form) {
    case RN_FLOAT_F32:
        return vload(floats + 16 * i + h * LANES);
    case RN_FLOAT_F16:
        return vload_half(step + 32 * i + h * LANES * 2);
    case RN_FLOAT_BF16:
        return vfrom(ishl(iload_u16(step + 32 * i + h * LANES * 2), 16));
    case RN_FLOAT_E4M3:
        return e4m3_at(ifrom(vload(floats + 16 * (i / 4) + h * LANES)), i % 4);
    case RN_FLOAT_INT4: {
        vint q = ifrom(vload(floats + h * LANES));
        int at = int4_at[i];
        if (at > 19) q = ishift(q, MOVED), at -= MOVED;
        vfloat number = number_at(q, 15 << at);
        return vsub(vfma(c->near[at / 4], number, c->far[at / 4]), c->shift);
    }
    default: {
        vint q = ishift(ifrom(vload(floats + h * LANES)), nf4_at[i]);
        return vmul(table_get(c->table, q), c->scale);
    }
    }
}

// ---- rows of x by panels ------------------------------------------------------------------------

// Panels come from memory: each is asked for AHEAD bytes early.
enum { AHEAD = 1024 };

INLINE void add_step(rn_float_form form, int rows, int vectors, const rn_float_job *job,
                     const uint8_t *step, const common *c, const float *x, int count, vfloat *acc) {
    UNROLL
    for (int v = 0; v < vectors; v += HALVES)
        for (uint64_t at = 0; at < step_bytes(form); at += 64)
            __builtin_prefetch(step + (uint64_t)(v / HALVES) * job->panel_bytes + AHEAD + at);
    UNROLL
    for (int i = 0; i < STEP; i++) {
        if (i >= count) break;
        UNROLL
        for (int v = 0; v < vectors; v++) {
            const uint8_t *from = step + (uint64_t)(v / HALVES) * job->panel_bytes;
            vfloat w = weight(form, from, i, v % HALVES, &c[v]);
            UNROLL
            for (int r = 0; r < rows; r++)
                acc[v * rows + r] =
                    vfma(w, vset(x[(uint64_t)r * job->x_row + (uint64_t)i]), acc[v * rows + r]);
        }
    }
}

// Columns of one unit; f32, f16, bf16 and f8_e4m3 are one unit as a whole.
INLINE void add_unit(rn_float_form form, int rows, int vectors, const rn_float_job *job,
                     const uint8_t *unit, uint64_t u, const float *x, uint64_t cols, vfloat *acc) {
    common c[MOST];
    float absmax[MOST][RN_PANEL_ROWS];
    for (int p = 0; form == RN_FLOAT_NF4_DQ && p < vectors / HALVES; p++)
        rn_panels_absmax(job->weights + (uint64_t)p * job->panel_bytes, u, absmax[p]);
    UNROLL
    for (int v = 0; v < vectors; v++)
        c[v] = common_of(form, unit + (uint64_t)(v / HALVES) * job->panel_bytes, absmax[v / HALVES],
                         v % HALVES);
    const uint8_t *step = unit + steps_at(form);
    uint64_t k = 0;
    for (; k + STEP <= cols; k += STEP, step += step_bytes(form))
        add_step(form, rows, vectors, job, step, c, x + k, STEP, acc);
    if (k < cols) add_step(form, rows, vectors, job, step, c, x + k, (int)(cols - k), acc);
}

INLINE void finish(int rows, int vectors, const rn_float_job *job, const vfloat *acc) {
    UNROLL
    for (int v = 0; v < vectors; v++) {
        int left = (int)job->cols - v * LANES;
        unsigned cols = left < 0 ? 0 : left < LANES ? (unsigned)left : LANES;
        vfloat bias = vset(0);
        if (job->bias) bias = vload_some(job->bias + v * LANES, cols);
        UNROLL
        for (int r = 0; r < rows; r++)
            vstore_some(job->y + (uint64_t)r * job->y_row + v * LANES, cols,
                        job->bias ? vadd(acc[v * rows + r], bias) : acc[v * rows + r]);
    }
}

enum { NF4_DQ_UNIT = 528 };

INLINE uint64_t head_bytes(rn_float_form form, const uint8_t *panel) {
    return form == RN_FLOAT_NF4_DQ ? ((const rn_nf4_dq_head *)(const void *)panel)->bytes : 0;
}

INLINE void multiply(const rn_float_job *job, rn_float_form form, int rows, int panels) {
    const int vectors = panels * HALVES;
    vfloat acc[MOST];
    UNROLL
    for (int i = 0; i < vectors * rows; i++)
        acc[i] = vset(0);
    bool nf4 = form == RN_FLOAT_NF4 || form == RN_FLOAT_NF4_DQ;
    uint64_t unit_cols = nf4 ? RN_NF4_BLOCK : form == RN_FLOAT_INT4 ? job->unit_cols : job->depth;
    uint64_t unit_bytes = form == RN_FLOAT_NF4      ? 576
                          : form == RN_FLOAT_NF4_DQ ? NF4_DQ_UNIT
                                                    : job->unit_bytes;
    const uint8_t *unit = job->weights + head_bytes(form, job->weights);
    for (uint64_t k = 0, u = 0; k < job->depth; k += unit_cols, unit += unit_bytes, u++)
        add_unit(form, rows, vectors, job, unit, u, job->x + k, unit_cols, acc);
    finish(rows, vectors, job, acc);
}

// ---- panels of f32 ------------------------------------------------------------------------------

// `count` columns of a step.
INLINE void unpack_step(rn_float_form form, const uint8_t *step, const common *c, int count,
                        float *to) {
    UNROLL
    for (int i = 0; i < STEP; i++) {
        if (i >= count) break;
        UNROLL
        for (int h = 0; h < HALVES; h++)
            vstore(to + i * 16 + h * LANES, weight(form, step, i, h, &c[h]));
    }
}

// Columns [k, end) of one unit; returns the end of what it wrote.
INLINE float *unpack_unit(rn_float_form form, const uint8_t *unit, const float *absmax, uint64_t k,
                          uint64_t end, float *to) {
    common c[HALVES];
    UNROLL
    for (int h = 0; h < HALVES; h++)
        c[h] = common_of(form, unit, absmax, h);
    const uint8_t *step = unit + steps_at(form) + k / STEP * step_bytes(form);
    for (; k + STEP <= end; k += STEP, step += step_bytes(form), to += STEP * 16)
        unpack_step(form, step, c, STEP, to);
    if (k < end) unpack_step(form, step, c, (int)(end - k), to);
    return to + (end - k) * 16;
}

INLINE void unpack_units(rn_float_form form, const uint8_t *panel, uint64_t unit_cols,
                         uint64_t unit_bytes, uint64_t k, uint64_t depth, float *to) {
    for (uint64_t end = k + depth, u; k < end; k = (u + 1) * unit_cols) {
        u = k / unit_cols;
        uint64_t first = u * unit_cols, stop = rn_min_u64(end - first, unit_cols);
        float absmax[RN_PANEL_ROWS];
        if (form == RN_FLOAT_NF4_DQ) rn_panels_absmax(panel, u, absmax);
        to = unpack_unit(form, panel + head_bytes(form, panel) + u * unit_bytes, absmax, k - first,
                         stop, to);
    }
}

static void unpack(rn_float_form form, const uint8_t *panel, uint64_t unit_cols,
                   uint64_t unit_bytes, uint64_t k, uint64_t depth, float *to) {
    switch (form) {
    case RN_FLOAT_F32:
        unpack_unit(RN_FLOAT_F32, panel, NULL, k, k + depth, to);
        break;
    case RN_FLOAT_F16:
        unpack_unit(RN_FLOAT_F16, panel, NULL, k, k + depth, to);
        break;
    case RN_FLOAT_BF16:
        unpack_unit(RN_FLOAT_BF16, panel, NULL, k, k + depth, to);
        break;
    case RN_FLOAT_E4M3:
        unpack_unit(RN_FLOAT_E4M3, panel, NULL, k, k + depth, to);
        break;
    case RN_FLOAT_INT4:
        unpack_units(RN_FLOAT_INT4, panel, unit_cols, unit_bytes, k, depth, to);
        break;
    case RN_FLOAT_NF4_DQ:
        unpack_units(RN_FLOAT_NF4_DQ, panel, RN_NF4_BLOCK, NF4_DQ_UNIT, k, depth, to);
        break;
    default:
        unpack_units(RN_FLOAT_NF4, panel, RN_NF4_BLOCK, 576, k, depth, to);
    }
}

// ---- the table ----------------------------------------------------------------------------------

#define KERNEL(name, form, rows, panels)                                                           \
    static void name(const rn_float_job *job) {                                                    \
        multiply(job, form, rows, panels);                                                         \
    }
#define KERNELS(name, form)                                                                        \
    KERNEL(name##_1, form, 1, 1)                                                                   \
    KERNEL(name##_2, form, 2, 1)                                                                   \
    KERNEL(name##_4, form, 4, 1)                                                                   \
    KERNEL(name##_many_1, form, 1, PANELS)                                                         \
    KERNEL(name##_many_2, form, 2, PANELS)
KERNELS(f32, RN_FLOAT_F32)
KERNELS(f16, RN_FLOAT_F16)
KERNELS(bf16, RN_FLOAT_BF16)
KERNELS(e4m3, RN_FLOAT_E4M3)
KERNELS(int4, RN_FLOAT_INT4)
KERNELS(nf4, RN_FLOAT_NF4)
KERNELS(nf4_dq, RN_FLOAT_NF4_DQ)

#define ONE(name)                                                                                  \
    { name##_4, name##_2, name##_1 }
#define MANY(name)                                                                                 \
    { NULL, name##_many_2, name##_many_1 }

const rn_float_kernels FLOAT_TABLE = {
    .sizes = {4, 2, 1},
    .direct_rows = DIRECT_ROWS,
    .panels = PANELS,
    .direct = {ONE(f32), ONE(f16), ONE(bf16), ONE(e4m3), ONE(int4), ONE(nf4), ONE(nf4_dq)},
    .many = {MANY(f32), MANY(f16), MANY(bf16), MANY(e4m3), MANY(int4), MANY(nf4), MANY(nf4_dq)},
    .unpack = unpack,
};

// packed_int_vector.h — the vector kernels of packed_ints.h, in the words that the including file
// defines: LANES rows of a panel at a time (16, or 8 and each panel is done in two halves).
//
//     vint, vfloat        LANES lanes of 32 bits; words for them begin with i and v
//     idot(sum, w, x)     sum + the products of four unsigned bytes w, at most 127, with four
//                         signed bytes x, in every lane
//     idot_byte           the same for weights of 8 bits + 128; BYTE_OFFSET is what of the 128 is
//                         still in the sum
//
// Every function is inlined with constant rows, panels and form, and its loops are unrolled: sums
// live in registers.
#include "backend/cpu/packed_ints.h"

#include "base/checked.h"
#include "tensor/small_float.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

// The value, in a register: the compiler would load it anew for every use, and loads are what
// limits these loops.
#define KEEP(value)                                                                                \
    ({                                                                                             \
        __typeof__(value) keep_ = (value);                                                         \
        __asm__("" : "+v"(keep_));                                                                 \
        keep_;                                                                                     \
    })

enum { HALVES = 16 / LANES, HALF_BYTES = 4 * LANES, MOST_PANELS = 4, MOST = 16 };

// Panels come from memory: they are asked for AHEAD bytes early, of all that are read at once.
enum { AHEAD = 4096 };

INLINE void prefetch(const uint8_t *from, uint64_t bytes, int panels) {
    for (uint64_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(from + AHEAD / panels + at);
}

// ---- weights ------------------------------------------------------------------------------------

// Word `d` of the lanes of half h.
INLINE vint word(const uint8_t *unit, int d, int h) {
    return iload(unit + 64 * d + h * HALF_BYTES);
}

INLINE vint low_nibbles(vint v) {
    return iand(v, iset(0x0f0f0f0f));
}

INLINE vint high_nibbles(vint v) {
    return iand(ishr(v, 4), iset(0x0f0f0f0f));
}

INLINE vint weight_q6_k(const uint8_t *unit, int part, int g, int h) {
    int half = part / 4, quarter = part % 4;
    vint low = word(unit, half * 16 + quarter % 2 * 8 + g, h);
    vint high = word(unit, 32 + half * 8 + g, h);
    low = quarter < 2 ? low_nibbles(low) : high_nibbles(low);
    if (quarter < 2)
        high = ishl(high, 4 - 2 * quarter);
    else if (quarter == 3)
        high = ishr(high, 2);
    return ior_and(low, high, iset(0x30303030));
}

// Fifth bits lie in front of the nibbles, those of part p in bit p.
INLINE vint weight_q5_k(const uint8_t *unit, int part, int g, int h) {
    vint low = word(unit, 12 + part / 2 * 8 + g, h), high = word(unit, 4 + g, h);
    low = part % 2 ? high_nibbles(low) : low_nibbles(low);
    if (!__builtin_constant_p(part)) // no branch
        high = ishl(ishr(high, part), 4);
    else
        high = part < 4 ? ishl(high, 4 - part) : ishr(high, part - 4);
    return ior_and(low, high, iset(0x10101010));
}

// Columns 4g .. 4g + 3 of block `part` of a unit.
INLINE vint weight(rn_int_form form, const uint8_t *unit, int part, int g, int h) {
    switch (form) {
    case RN_INT_Q8_0:
        return word(unit + 32, g, h);
    case RN_INT_Q4_0:
        return g < 4 ? low_nibbles(word(unit + 32, g, h)) : high_nibbles(word(unit + 32, g - 4, h));
    case RN_INT_Q4_K:
        return part % 2 ? high_nibbles(word(unit, 4 + part / 2 * 8 + g, h))
                        : low_nibbles(word(unit, 4 + part / 2 * 8 + g, h));
    case RN_INT_Q5_K:
        return weight_q5_k(unit, part, g, h);
    case RN_INT_Q6_K:
        return weight_q6_k(unit, part, g, h);
    default:
        return word(unit, g, h);
    }
}

// Byte `at` of each lane, unsigned and signed.
INLINE vfloat byte_float(vint v, int at) {
    return vconvert(iand(ishr(v, 8 * at), iset(0xff)));
}

INLINE vfloat signed_byte_float(vint v, int at) {
    return vconvert(isar(ishl(v, 24 - 8 * at), 24));
}

// q4_k, q5_k: the 6-bit scales, or with mins the mins, of the four parts around `part`, a byte
// each.
INLINE vint six_bits(const uint8_t *unit, int part, bool mins, int h) {
    vint first = word(unit, mins ? 2 : 1, h), third = word(unit, 3, h);
    if (part < 4) return iand(first, iset(0x3f3f3f3f));
    vint low = mins ? high_nibbles(third) : low_nibbles(third);
    return ior_and(low, ishr(first, 2), iset(0x30303030));
}

INLINE vfloat scale_q4_k(const uint8_t *unit, int part, int which, int h) {
    vint both = word(unit, 0, h);
    vfloat super = which ? vload_high_half(both) : vload_low_half(both);
    return vmul(super, byte_float(six_bits(unit, part, which == 1, h), part % 4));
}

INLINE vfloat scale_q6_k(const uint8_t *unit, int part, int which, int h) {
    if (which == 0) return vload_half(unit + 3328 + h * HALF_BYTES / 2);
    return signed_byte_float(word(unit, 48 + part / 2, h), part % 2 * 2 + which - 1);
}

// Scale `which` of block `part`.
INLINE vfloat scale(rn_int_form form, const uint8_t *unit, int part, int which, int h) {
    switch (form) {
    case RN_INT_Q4_K:
    case RN_INT_Q5_K:
        return scale_q4_k(unit, part, which, h);
    case RN_INT_Q6_K:
        return scale_q6_k(unit, part, which, h);
    case RN_INT_TILE:
        return vload((const float *)(const void *)(unit + 512 + 64 * which + h * HALF_BYTES));
    default:
        return vload_half(unit + h * HALF_BYTES / 2);
    }
}

// ---- a block ------------------------------------------------------------------------------------

// Where block `part` of a unit of a few panels is, and what multiplies it.
typedef struct block {
    const uint8_t *unit;  // of the first panel
    uint64_t panel_bytes; // from panel to panel
    const uint8_t *x;     // the strip's block
    int part, h;
} block;

INLINE const uint8_t *unit_of(const block *b, int panel) {
    return b->unit + (uint64_t)panel * b->panel_bytes;
}

// The words behind the bytes of a strip's block: 0 the scales, 1 and 2 the sums.
INLINE const uint8_t *strip_word(const block *b, int rows, int which, int r) {
    return b->x + (32 + 4 * which) * rows + 4 * r;
}

// sums[panel][row] += the products of columns 4 first .. 4 end - 1. A row's bytes are loaded once
// for all panels, a panel's once for all rows.
INLINE void dot(rn_int_kind kind, rn_int_form form, int rows, int panels, const block *b, int first,
                int end, vint *sums) {
    bool bytes = form == RN_INT_TILE ? kind <= RN_INT_SCALED : rn_int_offset(form) == 128;
    UNROLL
    for (int g = first; g < end; g++) {
        vint w[MOST_PANELS];
        UNROLL
        for (int p = 0; p < panels; p++)
            w[p] = KEEP(weight(form, unit_of(b, p), b->part, g, b->h));
        UNROLL
        for (int r = 0; r < rows; r++) {
            vint x = iset_from(b->x + (g * rows + r) * 4);
            UNROLL
            for (int p = 0; p < panels; p++)
                sums[p * rows + r] = bytes ? idot_byte(sums[p * rows + r], w[p], x)
                                           : idot(sums[p * rows + r], w[p], x);
        }
    }
}

// Each row's sum begins at word `which` of the strip, or at zero where that is no correction.
INLINE void begin_sums(rn_int_kind kind, int rows, int panels, const block *b, int which,
                       vint *sums) {
    UNROLL
    for (int r = 0; r < rows; r++) {
        vint first = kind == RN_INT_MINNED ? izero() : iset_from(strip_word(b, rows, which, r));
        UNROLL
        for (int p = 0; p < panels; p++)
            sums[p * rows + r] = first;
    }
}

INLINE void load_scales(rn_int_form form, int panels, const block *b, int which, vfloat *out) {
    UNROLL
    for (int p = 0; p < panels; p++)
        out[p] = KEEP(scale(form, unit_of(b, p), b->part, which, b->h));
}

INLINE void add_parted(rn_int_form form, int rows, int panels, const block *b, vfloat *acc) {
    vint sums[MOST];
    vfloat halves[MOST], s0[MOST_PANELS], s[MOST_PANELS];
    begin_sums(RN_INT_PARTED, rows, panels, b, 1, sums);
    dot(RN_INT_PARTED, form, rows, panels, b, 0, 4, sums);
    load_scales(form, panels, b, 1, s);
    UNROLL
    for (int i = 0; i < rows * panels; i++)
        halves[i] = vmul(s[i / rows], vconvert(sums[i]));
    begin_sums(RN_INT_PARTED, rows, panels, b, 2, sums);
    dot(RN_INT_PARTED, form, rows, panels, b, 4, 8, sums);
    load_scales(form, panels, b, 0, s0);
    load_scales(form, panels, b, 2, s);
    UNROLL
    for (int r = 0; r < rows; r++) {
        vfloat d = vset_from(strip_word(b, rows, 0, r));
        UNROLL
        for (int p = 0; p < panels; p++) {
            int i = p * rows + r;
            // At most 2 * 128 * 16 * 32 * 127 < 2^24: exact in f32.
            vfloat sum = vfma(s[p], vconvert(sums[i]), halves[i]);
            acc[i] = vfma(vmul(d, s0[p]), sum, acc[i]);
        }
    }
}

// acc[panel][row] += the block by the strip's.
INLINE void add_block(rn_int_kind kind, rn_int_form form, int rows, int panels, const block *b,
                      vfloat *acc) {
    vint sums[MOST];
    vfloat s0[MOST_PANELS], s1[MOST_PANELS];
    if (kind == RN_INT_PARTED) {
        add_parted(form, rows, panels, b, acc);
        return;
    }
    begin_sums(kind, rows, panels, b, 1, sums);
    dot(kind, form, rows, panels, b, 0, 8, sums);
    if (kind) load_scales(form, panels, b, 0, s0);
    if (kind == RN_INT_MINNED) load_scales(form, panels, b, 1, s1);
    UNROLL
    for (int r = 0; r < rows; r++) {
        vfloat d = vset_from(strip_word(b, rows, 0, r));
        UNROLL
        for (int p = 0; p < panels; p++) {
            int i = p * rows + r;
            acc[i] = vfma(kind ? vmul(d, s0[p]) : d, vconvert(sums[i]), acc[i]);
            if (kind == RN_INT_MINNED)
                acc[i] = vfnma(vmul(d, s1[p]), vset_from(strip_word(b, rows, 1, r)), acc[i]);
        }
    }
}

// ---- a strip by panels --------------------------------------------------------------------------

INLINE uint32_t cols_of(const rn_int_job *job, int panel, int h) {
    int left = (int)job->cols - panel * 16 - h * LANES;
    return left < 0 ? 0 : left < LANES ? (uint32_t)left : LANES;
}

INLINE void begin(const rn_int_job *job, int rows, int panels, int h, vfloat *acc) {
    UNROLL
    for (int i = 0; i < rows * panels; i++)
        acc[i] = vset(0);
    if (!job->resume) return;
    UNROLL
    for (int p = 0; p < panels; p++) {
        uint32_t cols = cols_of(job, p, h);
        const float *y = job->y + p * 16 + h * LANES;
        UNROLL
        for (int r = 0; r < rows; r++)
            acc[p * rows + r] = vload_some(y + (uint64_t)r * job->y_row, cols);
    }
}

INLINE void end(const rn_int_job *job, int rows, int panels, int h, vfloat *acc) {
    UNROLL
    for (int p = 0; p < panels; p++) {
        uint32_t cols = cols_of(job, p, h);
        float *y = job->y + p * 16 + h * LANES;
        vfloat scales = vset(1), bias = vset(0);
        const uint8_t *heads = (const uint8_t *)job->row_scale;
        if (heads)
            scales = vload((const float *)(const void *)(heads + (uint64_t)p * job->panel_bytes) +
                           h * LANES);
        if (job->bias) bias = vload_some(job->bias + p * 16 + h * LANES, cols);
        UNROLL
        for (int r = 0; r < rows; r++) {
            vfloat sum = acc[p * rows + r];
            if (heads) sum = vmul(sum, scales);
            if (job->bias) sum = vadd(sum, bias);
            vstore_some(y + (uint64_t)r * job->y_row, cols, sum);
        }
    }
}

// Parts of a unit that are written out one by one: as many as differ in how their bits are cut. All
// of them only while that is little code: long loops are not decoded as fast as they are computed.
INLINE int parts_together(rn_int_form form, int sums, int parts) {
    if (sums <= 4) return parts;
    if (form == RN_INT_Q5_K) return sums <= 8 ? parts : 2; // its parts differ in a shift
    return form == RN_INT_Q4_K ? 2 : form == RN_INT_Q6_K ? 4 : 1;
}

INLINE int count_parts(rn_int_form form) {
    return form == RN_INT_TILE ? 1 : (int)rn_int_unit_blocks(form);
}

// acc[panel][row] += the unit by the strip's blocks; both then stand behind it.
INLINE void add_unit(rn_int_kind kind, rn_int_form form, int rows, int panels, uint64_t unit_bytes,
                     block *b, vfloat *acc) {
    const int parts = count_parts(form), together = parts_together(form, rows * panels, parts);
    const uint64_t part_bytes = unit_bytes / (uint64_t)parts;
    for (int first = 0; first < parts; first += together) {
        UNROLL
        for (b->part = first; b->part < first + together; b->part++) {
            if (form != RN_INT_TILE && b->h == 0) {
                UNROLL
                for (int p = 0; p < panels; p++)
                    prefetch(unit_of(b, p) + part_bytes * (uint64_t)b->part, part_bytes, panels);
            }
            add_block(kind, form, rows, panels, b, acc);
            b->x += rn_strip_block_bytes(kind) * (uint64_t)rows;
        }
    }
    b->unit += unit_bytes;
}

INLINE void multiply(const rn_int_job *job, rn_int_kind kind, rn_int_form form, int rows,
                     int panels) {
    const uint64_t tile_bytes = rn_tile_block_bytes(kind);
    const uint64_t unit_bytes =
        form == RN_INT_TILE ? tile_bytes * (uint64_t)panels : rn_int_unit_bytes(form);
    for (int h = 0; h < HALVES; h++) {
        vfloat acc[MOST];
        begin(job, rows, panels, h, acc);
        block b = {.unit = job->weights, .x = job->x, .h = h};
        b.panel_bytes = form == RN_INT_TILE ? tile_bytes : job->panel_bytes;
        for (uint64_t i = 0; i < job->blocks; i += (uint64_t)count_parts(form))
            add_unit(kind, form, rows, panels, unit_bytes, &b, acc);
        end(job, rows, panels, h, acc);
    }
}

// ---- tiles --------------------------------------------------------------------------------------

INLINE void unpack_block(rn_int_form form, rn_int_kind kind, const uint8_t *unit, int part,
                         uint8_t *tile) {
    for (int h = 0; h < HALVES; h++) {
        uint8_t *to = tile + h * HALF_BYTES;
        UNROLL
        for (int g = 0; g < 8; g++) {
            vint w = weight(form, unit, part, g, h);
            if (kind == RN_INT_SCALED && rn_int_offset(form) < 128) // as q8_0 has it: + 128
                w = iadd(w, iset((128 - rn_int_offset(form)) * 0x01010101));
            istore(to + 64 * g, w);
        }
        UNROLL
        for (int s = 0; s < (int)kind; s++)
            vstore((float *)(void *)(to + 512 + 64 * s), scale(form, unit, part, s, h));
    }
}

INLINE void unpack_form(rn_int_form form, rn_int_kind kind, const uint8_t *units, uint64_t first,
                        uint64_t blocks, uint8_t *tile, uint64_t step) {
    const uint64_t parts = rn_int_unit_blocks(form), unit_bytes = rn_int_unit_bytes(form);
    const uint8_t *unit = units + first / parts * unit_bytes;
    for (uint64_t b = 0; b < blocks; b += parts, unit += unit_bytes) {
        prefetch(unit, unit_bytes, MOST_PANELS);
        UNROLL
        for (int part = 0; part < (int)parts; part++, tile += step)
            unpack_block(form, kind, unit, part, tile);
    }
}

static void unpack(rn_int_form form, const uint8_t *units, uint64_t first, uint64_t blocks,
                   uint8_t *tile, uint64_t step) {
    switch (form) {
#define UNPACK(DTYPE, name, sum, ...)                                                              \
    case RN_INT_##DTYPE:                                                                           \
        unpack_form(RN_INT_##DTYPE, RN_INT_##sum, units, first, blocks, tile, step);               \
        break;
        RN_ROUNDED_KINDS(UNPACK)
#undef UNPACK
    default:
        break;
    }
}

// ---- panels of f32 ------------------------------------------------------------------------------

// The first `count` columns of a block.
INLINE void widen_block(rn_int_form form, const uint8_t *unit, const float *row_scale, int part,
                        int count, float *to) {
    for (int h = 0; h < HALVES; h++) {
        const rn_int_kind kind = rn_int_kind_of(form);
        vfloat s[2], shift = vset(-(float)rn_int_offset(form)), low = vset(0);
        s[0] = kind == RN_INT_PLAIN ? vload(row_scale + h * LANES) : scale(form, unit, part, 0, h);
        s[1] = s[0];
        if (kind == RN_INT_MINNED) low = vmul(vset(-1), scale(form, unit, part, 1, h));
        if (kind == RN_INT_PARTED) {
            s[1] = vmul(s[0], scale(form, unit, part, 2, h));
            s[0] = vmul(s[0], scale(form, unit, part, 1, h));
        }
        UNROLL
        for (int g = 0; g < 8; g++) {
            vint w = weight(form, unit, part, g, h);
            UNROLL
            for (int c = 0; c < 4; c++) {
                if (4 * g + c >= count) break;
                vfloat q = byte_float(w, c);
                if (kind != RN_INT_MINNED) q = vadd(q, shift);
                vfloat value = vmul(s[g / 4], q);
                if (kind == RN_INT_MINNED) value = vadd(value, low);
                vstore(to + (4 * g + c) * 16 + h * LANES, value);
            }
        }
    }
}

INLINE void widen_form(rn_int_form form, const uint8_t *units, const float *row_scale, uint64_t k,
                       uint64_t depth, float *to) {
    const uint64_t parts = rn_int_unit_blocks(form), unit_bytes = rn_int_unit_bytes(form);
    for (uint64_t end = k + depth; k < end; k += 32, to += 32 * 16) {
        const uint64_t at = k / 32;
        const uint8_t *unit = units + at / parts * unit_bytes;
        int part = (int)(at % parts);
        prefetch(unit + (uint64_t)part * (unit_bytes / parts), unit_bytes / parts, MOST_PANELS);
        if (end - k >= 32)
            widen_block(form, unit, row_scale, part, 32, to);
        else
            widen_block(form, unit, row_scale, part, (int)(end - k), to);
    }
}

static void widen(rn_int_form form, const uint8_t *units, const float *row_scale, uint64_t k,
                  uint64_t depth, float *to) {
    switch (form) {
#define WIDEN(DTYPE, ...)                                                                          \
    case RN_INT_##DTYPE:                                                                           \
        widen_form(RN_INT_##DTYPE, units, row_scale, k, depth, to);                                \
        break;
        RN_ROUNDED_KINDS(WIDEN)
#undef WIDEN
    default:
        break;
    }
}

// ---- rounding activations -----------------------------------------------------------------------

// 32 values to bytes; returns the scale.
INLINE float round_block(const float *x, int8_t q[32], int32_t sums[2]) {
    vfloat v[32 / LANES];
    vint top = izero();
    UNROLL
    for (int i = 0; i < 32 / LANES; i++) {
        v[i] = vload(x + i * LANES);
        top = imax(top, iand(ibits(v[i]), iset(0x7fffffff)));
    }
    uint32_t absmax = (uint32_t)imax_all(top);
    float d = rn_float_from_bits(absmax) / 127, inverse = 1 / d;
    if (isinf(inverse)) d = inverse = 0;
    if (absmax >= RN_F32_INF_BITS || inverse == 0) {
        memset(q, 0, 32);
        sums[0] = sums[1] = 0;
        return d;
    }
    vint s[2] = {izero(), izero()};
    UNROLL
    for (int i = 0; i < 32 / LANES; i++) {
        vint rounded = iround(vmul(v[i], vset(inverse)));
        istore_bytes(q + i * LANES, rounded);
        s[i * LANES / 16] = iadd(s[i * LANES / 16], rounded);
    }
    sums[0] = isum_all(s[0]);
    sums[1] = isum_all(s[1]);
    return d;
}

INLINE void put_block(const int8_t q[32], float d, const int32_t sums[2], uint32_t rows, uint32_t r,
                      rn_int_kind kind, int offset, uint8_t *to) {
    for (uint32_t g = 0; g < 8; g++)
        memcpy(to + (g * rows + r) * 4, q + 4 * g, 4);
    int32_t both = sums[0] + sums[1], first = -offset * (kind == RN_INT_PARTED ? sums[0] : both);
    int32_t second = -offset * sums[1];
    float plain = (float)both;
    memcpy(to + 32 * rows + 4 * r, &d, 4);
    if (kind == RN_INT_MINNED)
        memcpy(to + 36 * rows + 4 * r, &plain, 4);
    else
        memcpy(to + 36 * rows + 4 * r, &first, 4);
    if (kind == RN_INT_PARTED) memcpy(to + 40 * rows + 4 * r, &second, 4);
}

// One block of every row; x is at its first column.
INLINE void round_rows(const float *x, uint64_t x_row, uint32_t rows, rn_int_kind kind, int offset,
                       uint8_t *to) {
    for (uint32_t r = 0; r < rows; r++) {
        int8_t q[32];
        int32_t sums[2];
        float d = round_block(x + r * x_row, q, sums);
        put_block(q, d, sums, rows, r, kind, offset, to);
    }
}

static void quantize(const float *x, uint64_t x_row, uint32_t rows, uint64_t cols, rn_int_kind kind,
                     int offset, uint8_t *strip) {
    uint64_t k = 0, block_bytes = rn_strip_block_bytes(kind) * rows;
    for (; k + 32 <= cols; k += 32, strip += block_bytes)
        round_rows(x + k, x_row, rows, kind, offset, strip);
    if (k == cols) return;
    float filled[RN_INT_ROWS][32] = {{0}};
    for (uint32_t r = 0; r < rows; r++)
        memcpy(filled[r], x + r * x_row + k, (cols - k) * sizeof *x);
    round_rows(filled[0], 32, rows, kind, offset, strip);
}

// ---- the table ----------------------------------------------------------------------------------

#define KERNEL(name, kind, form, rows, panels)                                                     \
    static void name(const rn_int_job *job) {                                                      \
        multiply(job, kind, form, rows, panels);                                                   \
    }
#define DIRECT(name, kind, form)                                                                   \
    KERNEL(name##_one, kind, form, 1, 1)                                                           \
    KERNEL(name##_1, kind, form, 1, PANELS)                                                        \
    KERNEL(name##_2, kind, form, 2, STRIP_PANELS)                                                  \
    KERNEL(name##_3, kind, form, 3, STRIP_PANELS)                                                  \
    KERNEL(name##_4, kind, form, 4, STRIP_PANELS)                                                  \
    DIRECT_MORE(name, kind, form)
#if STRIP_ROWS > 4
#define DIRECT_MORE(name, kind, form)                                                              \
    KERNEL(name##_5, kind, form, 5, STRIP_PANELS)                                                  \
    KERNEL(name##_6, kind, form, 6, STRIP_PANELS)                                                  \
    KERNEL(name##_7, kind, form, 7, STRIP_PANELS)                                                  \
    KERNEL(name##_8, kind, form, 8, STRIP_PANELS)
#define STRIPS(name)                                                                               \
    { name##_1, name##_2, name##_3, name##_4, name##_5, name##_6, name##_7, name##_8 }
#else
#define DIRECT_MORE(name, kind, form)
#define STRIPS(name)                                                                               \
    { name##_1, name##_2, name##_3, name##_4 }
#endif
#define DIRECT_ROW(DTYPE, name, sum, ...) DIRECT(name, RN_INT_##sum, RN_INT_##DTYPE)
RN_ROUNDED_KINDS(DIRECT_ROW)

#define TILE(name, kind)                                                                           \
    KERNEL(name##_1, kind, RN_INT_TILE, 1, 1)                                                      \
    KERNEL(name##_2, kind, RN_INT_TILE, 2, 1)                                                      \
    KERNEL(name##_3, kind, RN_INT_TILE, 3, 1)                                                      \
    KERNEL(name##_many_1, kind, RN_INT_TILE, 1, PANELS)                                            \
    KERNEL(name##_many_2, kind, RN_INT_TILE, 2, PANELS)                                            \
    KERNEL(name##_many_3, kind, RN_INT_TILE, 3, PANELS)
TILE(plain, RN_INT_PLAIN)
TILE(scaled, RN_INT_SCALED)
TILE(minned, RN_INT_MINNED)
TILE(parted, RN_INT_PARTED)

#define ONE(name)                                                                                  \
    { name##_1, name##_2, name##_3 }
#define MANY(name)                                                                                 \
    { name##_many_1, name##_many_2, name##_many_3 }

#define DIRECT_ONE(DTYPE, name, ...)  [RN_INT_##DTYPE] = name##_one,
#define DIRECT_MANY(DTYPE, name, ...) [RN_INT_##DTYPE] = STRIPS(name),

const rn_int_kernels INT_TABLE = {
    .rows = 3,
    .panels = PANELS,
    .strip_rows = STRIP_ROWS,
    .strip_panels = STRIP_PANELS,
    .direct_rows = DIRECT_ROWS,
    .byte_offset = BYTE_OFFSET,
    .direct = {RN_ROUNDED_KINDS(DIRECT_ONE)},
    .direct_many = {RN_ROUNDED_KINDS(DIRECT_MANY)},
    .tile = {ONE(plain), ONE(scaled), ONE(minned), ONE(parted)},
    .tile_many = {MANY(plain), MANY(scaled), MANY(minned), MANY(parted)},
    .unpack = unpack,
    .widen = widen,
    .quantize = quantize,
};

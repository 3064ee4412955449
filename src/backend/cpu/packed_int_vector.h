// packed_int_vector.h — the vector kernels of packed_ints.h, in the words that the including file
// defines: LANES rows of a panel at a time (16, or 8 and each panel is done in two halves).
//
//     vint, vfloat        LANES lanes of 32 bits; words for them begin with i and v
//     idot(sum, w, x)     sum + the products of four unsigned bytes w, at most 127, with four
//                         signed bytes x, in every lane
//     idot_byte           the same for weights of 8 bits + 128; BYTE_OFFSET is what of the 128 is
//                         still in the sum
//     PAIRED              1: idot is made of ipairs, products added in pairs of 16 bits, and
//                         add_pairs; several pairs are added by iadd_halves before that. Tiles of
//                         bytes are of 16 bits then
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

#include "backend/cpu/packed_int_weights.h"

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

// The words behind the numbers of a strip's block: 0 the scales, 1 and 2 the sums.
INLINE const uint8_t *strip_word(rn_int_kind kind, const block *b, int rows, int which, int r) {
    const int numbers = RN_INT_BLOCK * (int)rn_int_number_bytes(kind);
    return b->x + (numbers + 4 * which) * rows + 4 * r;
}

// Lanes `which` behind the numbers of a tile's block.
INLINE const uint8_t *tile_lanes(rn_int_kind kind, const uint8_t *unit, int which, int h) {
    return unit + 512 * rn_int_number_bytes(kind) + 64 * which + h * HALF_BYTES;
}

// Words whose pairs may be added in 16 bits: 2 * most * 127 each.
INLINE int pair_words(int most, int words) {
    int fit = most <= 16 ? 8 : most <= 32 ? 4 : most <= 64 ? 2 : 1;
    return fit < words ? fit : words;
}

// One word of all panels by that of all rows: sums[panel][row] += the products. A row's bytes are
// loaded once for all panels, a panel's once for all rows. With `paired` sums are in pairs.
INLINE void dot_word(rn_int_form form, int rows, int panels, const block *b, int g, bool bytes,
                     bool paired, vint *sums) {
    vint w[MOST_PANELS];
    UNROLL
    for (int p = 0; p < panels; p++)
        w[p] = KEEP(weight(form, unit_of(b, p), b->part, g, b->h));
    UNROLL
    for (int r = 0; r < rows; r++) {
        vint x = iset_from(b->x + (g * rows + r) * 4);
        UNROLL
        for (int p = 0; p < panels; p++) {
            vint *sum = &sums[p * rows + r];
            if (paired)
                *sum = KEEP(iadd_halves(*sum, ipairs(w[p], x)));
            else
                *sum = bytes ? idot_byte(*sum, w[p], x) : idot(*sum, w[p], x);
        }
    }
}

// The whole block of numbers of 16 bits.
INLINE void dot_wide(int rows, int panels, const block *b, vint *sums) {
    UNROLL
    for (int g = 0; g < 16; g++)
        UNROLL
    for (int p = 0; p < panels; p++) {
        vint w = KEEP(word(unit_of(b, p), g, b->h));
        UNROLL
        for (int r = 0; r < rows; r++)
            sums[p * rows + r] = KEEP(
                iadd(sums[p * rows + r], iadd_products(w, iset_from(b->x + (g * rows + r) * 4))));
    }
}

// sums[panel][row] += the products of columns 4 first .. 4 end - 1.
INLINE void dot(rn_int_kind kind, rn_int_form form, int rows, int panels, const block *b, int first,
                int end, vint *sums) {
    const int most = form == RN_INT_TILE ? rn_tile_most(kind) : rn_int_most(form);
    const int together = PAIRED ? pair_words(most, end - first) : 1;
    UNROLL
    for (int g = first; g < end; g += together) {
        if (together == 1) {
            dot_word(form, rows, panels, b, g, most > 127, false, sums);
            continue;
        }
        vint halves[MOST];
        UNROLL
        for (int i = 0; i < rows * panels; i++)
            halves[i] = izero();
        UNROLL
        for (int i = 0; i < together; i++)
            dot_word(form, rows, panels, b, g + i, false, true, halves);
        UNROLL
        for (int i = 0; i < rows * panels; i++)
            sums[i] = add_pairs(sums[i], halves[i]);
    }
}

// The strip's words are sums for mins, or nothing: no correction.
INLINE bool uncorrected(rn_int_kind kind) {
    return kind == RN_INT_MINNED || kind == RN_INT_PARTED_MINNED || kind >= RN_INT_FOLDED;
}

// Each row's sum begins at word `which` of the strip, or at zero where that is no correction.
INLINE void begin_sums(rn_int_kind kind, int rows, int panels, const block *b, int which,
                       vint *sums) {
    UNROLL
    for (int r = 0; r < rows; r++) {
        vint first = izero();
        if (!uncorrected(kind)) first = iset_from(strip_word(kind, b, rows, which, r));
        UNROLL
        for (int p = 0; p < panels; p++)
            sums[p * rows + r] = first;
    }
}

INLINE void load_scales(rn_int_kind kind, rn_int_form form, int panels, const block *b, int which,
                        vfloat *out) {
    UNROLL
    for (int p = 0; p < panels; p++) {
        const uint8_t *unit = unit_of(b, p);
        if (form == RN_INT_TILE)
            out[p] = KEEP(vload((const float *)(const void *)tile_lanes(kind, unit, which, b->h)));
        else
            out[p] = KEEP(scale(form, unit, b->part, which, b->h));
    }
}

// `which` is the scale of the mins.
INLINE void add_mins(rn_int_kind kind, rn_int_form form, int rows, int panels, const block *b,
                     int which, vfloat *acc) {
    vfloat s[MOST_PANELS];
    vint m[MOST_PANELS];
    load_scales(kind, form, panels, b, which, s);
    UNROLL
    for (int p = 0; p < panels; p++)
        m[p] = form == RN_INT_TILE ? iload(tile_lanes(kind, unit_of(b, p), which + 1, b->h))
                                   : mins(unit_of(b, p), b->part, b->h);
    UNROLL
    for (int r = 0; r < rows; r++) {
        vfloat d = vset_from(strip_word(kind, b, rows, 0, r));
        vint sums = iset_from(strip_word(kind, b, rows, 1, r));
        UNROLL
        for (int p = 0; p < panels; p++) {
            vint both = iadd_products(m[p], sums);
            acc[p * rows + r] = vfnma(vmul(d, s[p]), vconvert(both), acc[p * rows + r]);
        }
    }
}

INLINE void add_parted(rn_int_kind kind, rn_int_form form, int rows, int panels, const block *b,
                       vfloat *acc) {
    vint sums[MOST];
    vfloat halves[MOST], s0[MOST_PANELS], s[MOST_PANELS];
    begin_sums(kind, rows, panels, b, 1, sums);
    dot(kind, form, rows, panels, b, 0, 4, sums);
    load_scales(kind, form, panels, b, 1, s);
    UNROLL
    for (int i = 0; i < rows * panels; i++)
        halves[i] = vmul(s[i / rows], vconvert(sums[i]));
    begin_sums(kind, rows, panels, b, 2, sums);
    dot(kind, form, rows, panels, b, 4, 8, sums);
    load_scales(kind, form, panels, b, 0, s0);
    load_scales(kind, form, panels, b, 2, s);
    UNROLL
    for (int r = 0; r < rows; r++) {
        vfloat d = vset_from(strip_word(kind, b, rows, 0, r));
        UNROLL
        for (int p = 0; p < panels; p++) {
            int i = p * rows + r;
            // q6_k: at most 2 * 128 * 16 * 32 * 127 < 2^24: exact in f32.
            vfloat sum = vfma(s[p], vconvert(sums[i]), halves[i]);
            acc[i] = vfma(vmul(d, s0[p]), sum, acc[i]);
        }
    }
    if (kind == RN_INT_PARTED_MINNED) add_mins(kind, form, rows, panels, b, 3, acc);
}

// acc[panel][row] += the block by the strip's.
INLINE void add_block(rn_int_kind kind, rn_int_form form, int rows, int panels, const block *b,
                      vfloat *acc) {
    vint sums[MOST];
    vfloat s0[MOST_PANELS], s1[MOST_PANELS];
    if (kind == RN_INT_PARTED || kind == RN_INT_PARTED_MINNED) {
        add_parted(kind, form, rows, panels, b, acc);
        return;
    }
    const bool plain = kind == RN_INT_PLAIN || kind == RN_INT_WIDE_PLAIN;
    begin_sums(kind, rows, panels, b, 1, sums);
    if (rn_int_number_bytes(kind) == 2)
        dot_wide(rows, panels, b, sums);
    else
        dot(kind, form, rows, panels, b, 0, 8, sums);
    if (!plain) load_scales(kind, form, panels, b, 0, s0);
    if (kind == RN_INT_MINNED) load_scales(kind, form, panels, b, 1, s1);
    UNROLL
    for (int r = 0; r < rows; r++) {
        vfloat d = vset_from(strip_word(kind, b, rows, 0, r));
        UNROLL
        for (int p = 0; p < panels; p++) {
            int i = p * rows + r;
            acc[i] = vfma(plain ? d : vmul(d, s0[p]), vconvert(sums[i]), acc[i]);
            if (kind == RN_INT_MINNED)
                acc[i] = vfnma(vmul(d, s1[p]), vset_from(strip_word(kind, b, rows, 1, r)), acc[i]);
        }
    }
    if (kind == RN_INT_FOLDED) add_mins(kind, form, rows, panels, b, 1, acc);
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
    switch (form) {
    case RN_INT_Q5_K: // its parts differ in a shift
    case RN_INT_Q3_K:
        return sums <= 8 ? parts : 2;
    case RN_INT_Q4_K:
        return 2;
    case RN_INT_Q2_K:
    case RN_INT_Q6_K:
    case RN_INT_TQ2_0:
        return 4;
    case RN_INT_TQ1_0:
        return parts;
    default:
        return 1;
    }
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

// What tiles of a kind are of.
enum {
    TILE_OF_PLAIN = PAIRED ? RN_INT_WIDE_PLAIN : RN_INT_PLAIN,
    TILE_OF_BYTES = PAIRED ? RN_INT_WIDE : RN_INT_BYTES,
    TILE_OF_SCALED = RN_INT_SCALED,
    TILE_OF_MINNED = RN_INT_MINNED,
    TILE_OF_PARTED = RN_INT_PARTED,
    TILE_OF_PARTED_MINNED = RN_INT_FOLDED,
};

// q2_k: weights by the scales of their halves, at most 3 * 15.
INLINE void unpack_folded(rn_int_form form, const uint8_t *unit, int part, int h, uint8_t *to) {
    UNROLL
    for (int half = 0; half < 2; half++) {
        const vint s = scale_int_q2_k(unit, part * 2 + half, h), both = ior(s, ishl(s, 16));
        UNROLL
        for (int g = half * 4; g < half * 4 + 4; g++)
            istore(to + 64 * g, imul_halves(weight(form, unit, part, g, h), both));
    }
    vstore((float *)(void *)(to + 512), scale(form, unit, part, 0, h));
    vstore((float *)(void *)(to + 576), scale(form, unit, part, 3, h));
    istore(to + 640, mins(unit, part, h));
}

// `kind` is the tile's.
INLINE void unpack_block(rn_int_form form, rn_int_kind kind, const uint8_t *unit, int part,
                         uint8_t *tile) {
    const int bytes = (int)rn_int_number_bytes(kind);
    for (int h = 0; h < HALVES; h++) {
        uint8_t *to = tile + h * HALF_BYTES;
        if (kind == RN_INT_FOLDED) {
            unpack_folded(form, unit, part, h, to);
            continue;
        }
        UNROLL
        for (int g = 0; g < 8; g++) {
            vint w = weight(form, unit, part, g, h);
            if (bytes == 1) {
                istore(to + 64 * g, w);
                continue;
            }
            w = ixor(w, iset((int)0x80808080));
            istore(to + 128 * g, isar_halves(ishl_halves(w, 8), 8));
            istore(to + 128 * g + 64, isar_halves(w, 8));
        }
        UNROLL
        for (int s = 0; s < rn_tile_scales(kind); s++)
            vstore((float *)(void *)(to + 512 * bytes + 64 * s), scale(form, unit, part, s, h));
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
        unpack_form(RN_INT_##DTYPE, (rn_int_kind)TILE_OF_##sum, units, first, blocks, tile, step); \
        break;
        RN_ROUNDED_KINDS(UNPACK)
#undef UNPACK
    default:
        break;
    }
}

// ---- panels of f32 ------------------------------------------------------------------------------

// What multiplies the numbers of each half of a block, and what is added.
INLINE void widen_scales(rn_int_form form, const uint8_t *unit, const float *row_scale, int part,
                         int h, vfloat s[2], vfloat low[2]) {
    const rn_int_kind kind = rn_int_kind_of(form);
    s[0] = kind == RN_INT_PLAIN ? vload(row_scale + h * LANES) : scale(form, unit, part, 0, h);
    s[1] = s[0];
    low[0] = low[1] = vset(0);
    if (kind == RN_INT_MINNED) low[0] = low[1] = vmul(vset(-1), scale(form, unit, part, 1, h));
    if (kind < RN_INT_PARTED) return;
    s[1] = vmul(s[0], scale(form, unit, part, 2, h));
    s[0] = vmul(s[0], scale(form, unit, part, 1, h));
    if (kind == RN_INT_PARTED) return;
    vint both = mins(unit, part, h);
    vfloat super = vmul(vset(-1), scale(form, unit, part, 3, h));
    low[0] = vmul(super, byte_float(both, 0));
    low[1] = vmul(super, byte_float(both, 2));
}

// The first `count` columns of a block.
INLINE void widen_block(rn_int_form form, const uint8_t *unit, const float *row_scale, int part,
                        int count, float *to) {
    const rn_int_kind kind = rn_int_kind_of(form);
    const bool minned = kind == RN_INT_MINNED || kind == RN_INT_PARTED_MINNED;
    const vfloat shift = vset(-(float)rn_int_offset(form));
    for (int h = 0; h < HALVES; h++) {
        vfloat s[2], low[2];
        widen_scales(form, unit, row_scale, part, h, s, low);
        UNROLL
        for (int g = 0; g < 8; g++) {
            vint w = weight(form, unit, part, g, h);
            UNROLL
            for (int c = 0; c < 4; c++) {
                if (4 * g + c >= count) break;
                vfloat q = byte_float(w, c);
                if (!minned) q = vadd(q, shift);
                vfloat value = vmul(s[g / 4], q);
                if (minned) value = vadd(value, low[g / 4]);
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

// Even columns of each four in a word, then odd ones.
INLINE void put_wide(const int8_t q[32], float d, uint32_t rows, uint32_t r, uint8_t *to) {
    for (uint32_t g = 0; g < 16; g++) {
        const int8_t *from = q + g / 2 * 4 + g % 2;
        int16_t two[2] = {from[0], from[2]};
        memcpy(to + (g * rows + r) * 4, two, 4);
    }
    memcpy(to + 64 * rows + 4 * r, &d, 4);
}

INLINE void put_block(const int8_t q[32], float d, const int32_t sums[2], uint32_t rows, uint32_t r,
                      rn_int_kind kind, int offset, uint8_t *to) {
    if (rn_int_number_bytes(kind) == 2) {
        put_wide(q, d, rows, r, to);
        return;
    }
    for (uint32_t g = 0; g < 8; g++)
        memcpy(to + (g * rows + r) * 4, q + 4 * g, 4);
    int32_t both = sums[0] + sums[1], first = -offset * (kind == RN_INT_PARTED ? sums[0] : both);
    int32_t second = -offset * sums[1];
    float plain = (float)both;
    if (kind == RN_INT_MINNED) first = (int32_t)rn_float_bits(plain);
    if (kind == RN_INT_PARTED_MINNED || kind == RN_INT_FOLDED)
        first = (int32_t)((uint32_t)sums[0] & 0xffff) | (int32_t)((uint32_t)sums[1] << 16);
    memcpy(to + 32 * rows + 4 * r, &d, 4);
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
// A strip of so many rows takes one pass over the weights. Compilers need long for each kernel, so
// that kinds have the fewer the rarer they are; the others' rows go by smaller strips.
#define DIRECT_FEW(name, kind, form)                                                               \
    KERNEL(name##_one, kind, form, 1, 1)                                                           \
    KERNEL(name##_1, kind, form, 1, PANELS)
#define DIRECT_4(name, kind, form)                                                                 \
    DIRECT_FEW(name, kind, form)                                                                   \
    KERNEL(name##_2, kind, form, 2, STRIP_PANELS)                                                  \
    KERNEL(name##_3, kind, form, 3, STRIP_PANELS)                                                  \
    KERNEL(name##_4, kind, form, 4, STRIP_PANELS)
#if STRIP_ROWS > 4
#define DIRECT_MANY(name, kind, form)                                                              \
    DIRECT_4(name, kind, form)                                                                     \
    KERNEL(name##_8, kind, form, 8, STRIP_PANELS)
#define DIRECT_MOST(name, kind, form)                                                              \
    DIRECT_MANY(name, kind, form)                                                                  \
    KERNEL(name##_5, kind, form, 5, STRIP_PANELS)                                                  \
    KERNEL(name##_6, kind, form, 6, STRIP_PANELS)                                                  \
    KERNEL(name##_7, kind, form, 7, STRIP_PANELS)
#define STRIPS_MOST(name)                                                                          \
    { name##_1, name##_2, name##_3, name##_4, name##_5, name##_6, name##_7, name##_8 }
#define STRIPS_MANY(name)                                                                          \
    { name##_1, name##_2, name##_3, name##_4, [7] = name##_8 }
#else
#define DIRECT_MANY DIRECT_4
#define DIRECT_MOST DIRECT_4
#define STRIPS_MOST(name)                                                                          \
    { name##_1, name##_2, name##_3, name##_4 }
#define STRIPS_MANY STRIPS_MOST
#endif
#define STRIPS_FEW(name)                                                                           \
    { name##_1 }
#define MOST_KERNELS(DTYPE, name, sum, ...) DIRECT_MOST(name, RN_INT_##sum, RN_INT_##DTYPE)
#define MANY_KERNELS(DTYPE, name, sum, ...) DIRECT_MANY(name, RN_INT_##sum, RN_INT_##DTYPE)
#define FEW_KERNELS(DTYPE, name, sum, ...)  DIRECT_FEW(name, RN_INT_##sum, RN_INT_##DTYPE)
RN_ROUNDED_KINDS_MOST(MOST_KERNELS)
RN_ROUNDED_KINDS_MANY(MANY_KERNELS)
RN_ROUNDED_KINDS_FEW(FEW_KERNELS)

#define TILE_ROWS_3(name, kind, count, panels)                                                     \
    KERNEL(name##_##count##_1, kind, RN_INT_TILE, 1, panels)                                       \
    KERNEL(name##_##count##_2, kind, RN_INT_TILE, 2, panels)                                       \
    KERNEL(name##_##count##_3, kind, RN_INT_TILE, 3, panels)
#if TILE_ROWS > 3
#define TILE_ROWS_ALL(name, kind, count, panels)                                                   \
    TILE_ROWS_3(name, kind, count, panels)                                                         \
    KERNEL(name##_##count##_4, kind, RN_INT_TILE, 4, panels)                                       \
    KERNEL(name##_##count##_5, kind, RN_INT_TILE, 5, panels)                                       \
    KERNEL(name##_##count##_6, kind, RN_INT_TILE, 6, panels)
#define TILES(name, count)                                                                         \
    {                                                                                              \
        name##_##count##_1, name##_##count##_2, name##_##count##_3, name##_##count##_4,            \
            name##_##count##_5, name##_##count##_6                                                 \
    }
#else
#define TILE_ROWS_ALL TILE_ROWS_3
#define TILES(name, count)                                                                         \
    { name##_##count##_1, name##_##count##_2, name##_##count##_3 }
#endif

#if PAIRED
#define TILE_KINDS(ROW)                                                                            \
    ROW(wide_plain, WIDE_PLAIN)                                                                    \
    ROW(wide, WIDE) ROW(scaled, SCALED) ROW(minned, MINNED) ROW(parted, PARTED) ROW(folded, FOLDED)
// One panel is all that kernels take at once.
#define TILE(name, kind)      TILE_ROWS_ALL(name, RN_INT_##kind, one, 1)
#define TILE_MANY(name, kind) [RN_INT_##kind] = TILES(name, one),
#else
#define TILE_KINDS(ROW)                                                                            \
    ROW(plain, PLAIN)                                                                              \
    ROW(bytes, BYTES)                                                                              \
    ROW(scaled, SCALED) ROW(minned, MINNED) ROW(parted, PARTED) ROW(folded, FOLDED)
#define TILE(name, kind)                                                                           \
    TILE_ROWS_ALL(name, RN_INT_##kind, one, 1)                                                     \
    TILE_ROWS_ALL(name, RN_INT_##kind, many, PANELS)
#define TILE_MANY(name, kind) [RN_INT_##kind] = TILES(name, many),
#endif
#define TILE_ONE(name, kind) [RN_INT_##kind] = TILES(name, one),
TILE_KINDS(TILE)

#define ONE_ROW(DTYPE, name, ...)     [RN_INT_##DTYPE] = name##_one,
#define MOST_STRIPS(DTYPE, name, ...) [RN_INT_##DTYPE] = STRIPS_MOST(name),
#define MANY_STRIPS(DTYPE, name, ...) [RN_INT_##DTYPE] = STRIPS_MANY(name),
#define FEW_STRIPS(DTYPE, name, ...)  [RN_INT_##DTYPE] = STRIPS_FEW(name),

const rn_int_kernels INT_TABLE = {
    .rows = TILE_ROWS,
    .panels = PANELS,
    .strip_rows = STRIP_ROWS,
    .strip_panels = STRIP_PANELS,
    .direct_rows = DIRECT_ROWS,
    .byte_offset = BYTE_OFFSET,
    .direct = {RN_ROUNDED_KINDS(ONE_ROW)},
    .direct_many = {RN_ROUNDED_KINDS_MOST(MOST_STRIPS) RN_ROUNDED_KINDS_MANY(MANY_STRIPS)
                        RN_ROUNDED_KINDS_FEW(FEW_STRIPS)},
    .tile_kind = {TILE_OF_PLAIN, TILE_OF_BYTES, TILE_OF_SCALED, TILE_OF_MINNED, TILE_OF_PARTED,
                  TILE_OF_PARTED_MINNED},
    .tile = {TILE_KINDS(TILE_ONE)},
    .tile_many = {TILE_KINDS(TILE_MANY)},
    .unpack = unpack,
    .widen = widen,
    .quantize = quantize,
};

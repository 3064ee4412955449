// ggml_encoders.h — ggml's quantisers, a function a kind: weights of the errors, the search
// (ggml_fit.h), rounding with what was stored of the scales, and the block's layout (drawn in
// ggml_superblocks.c). Included once for each level of base/cpu.h with ENCODERS as the table's
// name.
#include "tensor/ggml_blocks.h"
#include "tensor/ggml_encode.h"
#include "tensor/ggml_fit.h"

#define NAN_HALF 0x7e00

static bool is_finite(const float *x, int n) {
    uint32_t most = 0;
    for (int i = 0; i < n; i++) {
        uint32_t bits = rn_float_bits(x[i]) & 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most < RN_F32_INF_BITS;
}

// A block that is restored as NaN: its scale (two bytes at `at`) is, and so is its offset if it has
// one behind.
static void spoil(uint8_t *block, size_t bytes, size_t at, bool offset) {
    memset(block, 0, bytes);
    rn_store_u16(block + at, NAN_HALF);
    if (offset) rn_store_u16(block + at + 2, NAN_HALF);
}

static float store_half(uint8_t *to, float value) {
    uint16_t half = rn_f16_narrow(value);
    rn_store_u16(to, half);
    return rn_f16_widen(half);
}

static float sum_squares(const float *x, uint64_t n) {
    float sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

// Group g of n values as lane g; lanes beyond `count` are zero.
static void load_groups(fit_group *f, const float *x, int n, int count) {
    for (int i = 0; i < n; i++)
        FOR_LANES f->x[i][g] = g < count ? x[g * n + i] : 0;
}

// How much an error of each value matters, where importances are known.
static void weigh(fit_group *f, const float *importance, int n, int count, float sigma2) {
    for (int i = 0; i < n; i++)
        FOR_LANES {
            float x = f->x[i][g], q = g < count ? importance[g * n + i] : 0;
            f->w[i][g] = q * sqrtf(sigma2 + x * x);
        }
}

static void sum_weights(const fit_group *f, int n, float *out /* (FIT_LANES) */) {
    FOR_LANES out[g] = 0;
    for (int i = 0; i < n; i++)
        FOR_LANES out[g] += f->w[i][g];
}

// ---- blocks of 32 -------------------------------------------------------------------------------

// The value that a cast of ggml's gives on the machines that files are made on: what does not fit
// an int is 0.
static uint8_t cast_u8(float value) {
    return value > -1 && value < 256 ? (uint8_t)value : 0;
}

static void store_nibbles(uint8_t *to, const uint8_t *l) {
    for (int j = 0; j < 16; j++)
        to[j] = (uint8_t)((l[j] & 15) | l[j + 16] << 4);
}

static void store_fifths(uint8_t *to, const uint8_t *l) {
    uint32_t bits = 0;
    for (int j = 0; j < 32; j++)
        bits |= (uint32_t)(l[j] >> 4 & 1) << j;
    memcpy(to, &bits, sizeof bits);
}

// Multiples between the lowest and the highest value. `most` is 15 (q4_1) or 31 (q5_1).
static void range_block(const float *x, int most, uint8_t *block, uint8_t *l) {
    float low = x[0], high = x[0];
    for (int i = 1; i < 32; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    float scale = (high - low) / (float)most, inverse = scale != 0 ? 1.0f / scale : 0.0f;
    store_half(block, scale);
    store_half(block + 2, low);
    for (int i = 0; i < 32; i++) {
        uint8_t k = cast_u8((x[i] - low) * inverse + 0.5f);
        l[i] = k < most ? k : (uint8_t)most;
    }
}

// The value of the greatest size becomes -16.
static void peak_block(const float *x, uint8_t *block, uint8_t *l) {
    float size = 0, peak = 0;
    for (int i = 0; i < 32; i++) {
        peak = size < fabsf(x[i]) ? x[i] : peak;
        size = size < fabsf(x[i]) ? fabsf(x[i]) : size;
    }
    float scale = peak / -16, inverse = scale != 0 ? 1.0f / scale : 0.0f;
    store_half(block, scale);
    for (int i = 0; i < 32; i++) {
        uint8_t k = cast_u8(x[i] * inverse + 16.5f);
        l[i] = k < 31 ? k : 31;
    }
}

// The kinds of one scale, and of scale and offset, for 32 values: their bits.
typedef struct simple_kind {
    int bits;
    bool offset;
} simple_kind;

static size_t simple_bytes(simple_kind kind) {
    return 18u + (kind.offset ? 2u : 0u) + (kind.bits == 5 ? 4u : 0u);
}

static void store_simple(simple_kind kind, uint8_t *block, const uint8_t *l) {
    uint8_t *at = block + (kind.offset ? 4 : 2);
    if (kind.bits == 5) store_fifths(at, l);
    store_nibbles(at + (kind.bits == 5 ? 4 : 0), l);
}

// Eight blocks at a time: the searches go side by side.
static void encode_weighed(simple_kind kind, const float *row, const float *importance,
                           uint64_t blocks, uint8_t *out) {
    fit_group f;
    size_t bytes = simple_bytes(kind);
    float sigma2 = sum_squares(row, blocks * 32) / (float)(blocks * 32);
    for (uint64_t b = 0; b < blocks; b += FIT_LANES) {
        int count = (int)(blocks - b < FIT_LANES ? blocks - b : FIT_LANES);
        load_groups(&f, row + b * 32, 32, count);
        weigh(&f, importance + b * 32, 32, count, sigma2);
        if (kind.offset)
            fit_offset(&f, 32, (1 << kind.bits) - 1, -0.9f, 0.05f, 36, false);
        else
            fit_signed(&f, 32, 1 << (kind.bits - 1));
        for (int g = 0; g < count; g++) {
            uint8_t l[32], *block = out + (b + (uint64_t)g) * bytes;
            for (int i = 0; i < 32; i++)
                l[i] = (uint8_t)f.l[i][g];
            store_half(block, f.scale[g]);
            if (kind.offset) store_half(block + 2, -f.offset[g]);
            store_simple(kind, block, l);
        }
    }
}

static void encode_simple(simple_kind kind, const float *row, const float *importance,
                          uint64_t blocks, uint8_t *out) {
    size_t bytes = simple_bytes(kind);
    if (importance) encode_weighed(kind, row, importance, blocks, out);
    for (uint64_t b = 0; b < blocks; b++) {
        uint8_t l[32], *block = out + b * bytes;
        const float *x = row + b * 32;
        if (!is_finite(x, 32))
            spoil(block, bytes, 0, kind.offset);
        else if (!importance) {
            if (kind.offset)
                range_block(x, (1 << kind.bits) - 1, block, l);
            else
                peak_block(x, block, l);
            store_simple(kind, block, l);
        }
    }
}

static void encode_q4_0(const float *row, const float *importance, uint64_t blocks, uint8_t *out) {
    if (importance)
        encode_simple((simple_kind){4, false}, row, importance, blocks, out);
    else
        rn_ggml_narrow_q4_0(row, out, blocks);
}
static void encode_q4_1(const float *row, const float *importance, uint64_t blocks, uint8_t *out) {
    encode_simple((simple_kind){4, true}, row, importance, blocks, out);
}
static void encode_q5_0(const float *row, const float *importance, uint64_t blocks, uint8_t *out) {
    encode_simple((simple_kind){5, false}, row, importance, blocks, out);
}
static void encode_q5_1(const float *row, const float *importance, uint64_t blocks, uint8_t *out) {
    encode_simple((simple_kind){5, true}, row, importance, blocks, out);
}

// ---- values from a table ------------------------------------------------------------------------

// The entry nearest to x, between neighbours the upper one.
static uint8_t nearest_entry(float x) {
    const int8_t *values = rn_ggml_iq4_values;
    int low = 0, high = 15;
    if (x <= values[0]) return 0;
    if (x >= values[15]) return 15;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (x < values[middle])
            high = middle;
        else
            low = middle;
    }
    return (uint8_t)(x - (float)values[low] < (float)values[high] - x ? low : high);
}

static fit_sums table_sums(const float *x, const float *w, float inverse) {
    fit_sums s = {0};
    for (int i = 0; i < 32; i++) {
        float q = (float)rn_ggml_iq4_values[nearest_entry(inverse * x[i])];
        s.lx += w[i] * q * x[i];
        s.l2 += w[i] * q * q;
    }
    return s;
}

// The scale of 32 values: the one of the greatest size at the table's first entry or its mirror,
// then fifteen entries around.
static float table_scale(const float *x, const float *importance, float sigma2) {
    float w[32], size = 0, peak = 0;
    for (int i = 0; i < 32; i++) {
        w[i] = importance ? importance[i] * sqrtf(sigma2 + x[i] * x[i]) : x[i] * x[i];
        peak = fabsf(x[i]) > size ? x[i] : peak;
        size = fabsf(x[i]) > size ? fabsf(x[i]) : size;
    }
    if (size < FIT_NOTHING) return 0;
    float first = (float)rn_ggml_iq4_values[0], start = -peak / first;
    fit_sums s = table_sums(x, w, 1 / start);
    float scale = s.l2 > 0 ? s.lx / s.l2 : 0, best = scale * s.lx;
    for (int k = -7; k <= 7; k++) {
        s = table_sums(x, w, ((float)k + first) / peak);
        if (!(s.l2 > 0 && s.lx * s.lx > best * s.l2)) continue;
        scale = s.lx / s.l2;
        best = scale * s.lx;
    }
    return scale;
}

static void store_entries(uint8_t *to, const float *x, float scale) {
    uint8_t l[32];
    float inverse = scale != 0 ? 1 / scale : 0;
    for (int i = 0; i < 32; i++)
        l[i] = nearest_entry(inverse * x[i]);
    store_nibbles(to, l);
}

static void encode_iq4_nl(const float *row, const float *importance, uint64_t blocks,
                          uint8_t *out) {
    for (uint64_t b = 0; b < blocks; b++, row += 32, out += 18) {
        if (!is_finite(row, 32)) {
            spoil(out, 18, 0, false);
            continue;
        }
        float sigma2 = sum_squares(row, 32) * (2.f / 32);
        float scale = table_scale(row, importance ? importance + b * 32 : NULL, sigma2);
        store_half(out, scale);
        store_entries(out + 2, row, scale);
    }
}

static void encode_iq4_xs(const float *row, const float *importance, uint64_t blocks,
                          uint8_t *out) {
    for (uint64_t b = 0; b < blocks; b++, row += 256, out += 136) {
        float scales[8], size = 0, peak = 0;
        uint16_t high = 0;
        if (!is_finite(row, 256)) {
            spoil(out, 136, 0, false);
            continue;
        }
        float sigma2 = sum_squares(row, 256) * (2.f / 256);
        for (int g = 0; g < 8; g++) {
            const float *q = importance ? importance + b * 256 + g * 32 : NULL;
            scales[g] = table_scale(row + g * 32, q, sigma2);
            peak = fabsf(scales[g]) > size ? scales[g] : peak;
            size = fabsf(scales[g]) > size ? fabsf(scales[g]) : size;
        }
        float scale = -peak / 32, inverse = scale != 0 ? 1 / scale : 0;
        store_half(out, scale);
        memset(out + 4, 0, 4);
        for (int g = 0; g < 8; g++) {
            int l = fit_clamp(fit_nearest(inverse * scales[g]), -32, 31);
            store_entries(out + 8 + g * 16, row + g * 32, scale * (float)l);
            out[4 + g / 2] |= (uint8_t)(((l + 32) & 15) << g % 2 * 4);
            high |= (uint16_t)((l + 32) >> 4 << 2 * g);
        }
        rn_store_u16(out + 2, high);
    }
}

// The first of the nearest; entries are twice e2m1's values.
static uint8_t nearest_fp4(float x, float scale) {
    static const int8_t values[8] = {0, 1, 2, 3, 4, 6, 8, 12};
    int best = 0;
    float error = fabsf(-x);
    for (int i = 1; i < 16; i++) {
        float value = (float)(i < 8 ? values[i] : -values[i - 8]);
        float other = fabsf(value * scale - x);
        best = other < error ? i : best;
        error = other < error ? other : error;
    }
    return (uint8_t)best;
}

static void encode_mxfp4(const float *row, const float *importance, uint64_t blocks, uint8_t *out) {
    (void)importance;
    for (uint64_t b = 0; b < blocks; b++, row += 32, out += 17) {
        float size = 0;
        uint8_t l[32];
        for (int i = 0; i < 32; i++)
            size = size < fabsf(row[i]) ? fabsf(row[i]) : size;
        if (!is_finite(row, 32)) { // it has no NaN: the largest of all overflows
            memset(out, 0x77, 17);
            out[0] = 0xff;
            continue;
        }
        float exponent = size > 0 ? floorf(log2f(size)) - 2 + 127 : 0;
        out[0] = (uint8_t)(exponent > 0 ? exponent : 0);
        float scale = ldexpf(1, out[0] - 128);
        for (int i = 0; i < 32; i++)
            l[i] = nearest_fp4(row[i], scale);
        store_nibbles(out + 1, l);
    }
}

// ---- blocks of 256: scale and offset a group ----------------------------------------------------

// A superblock of scales and offsets: q2_k has 16 groups of 16 with 4-bit ones, q4_k and q5_k 8
// groups of 32 with 6-bit ones.
typedef struct offset_kind {
    int bits, groups, scale_most;
    float first, step; // of the search without importances
    int steps;
    bool absolute;
} offset_kind;

typedef struct superblock {
    float scales[16], offsets[16], weights[16]; // of groups; weights: summed
    uint8_t scale_l[16], offset_l[16];
    uint8_t l[256];
} superblock;

// Weights of the errors where nothing is known of the columns.
static void weigh_by_size(fit_group *f, int n, bool absolute) {
    float mean[FIT_LANES] = {0};
    if (!absolute) {
        for (int i = 0; i < n; i++)
            FOR_LANES mean[g] += f->x[i][g] * f->x[i][g];
        FOR_LANES mean[g] = sqrtf(mean[g] / (float)n);
    }
    for (int i = 0; i < n; i++)
        FOR_LANES f->w[i][g] = absolute ? fabsf(f->x[i][g]) : mean[g] + fabsf(f->x[i][g]);
}

static void search_offsets(const offset_kind *kind, const float *x, const float *importance,
                           superblock *s) {
    fit_group f;
    int n = 256 / kind->groups, most = (1 << kind->bits) - 1;
    float sigma2 = 0;
    if (importance)
        sigma2 = kind->absolute ? sum_squares(x, 256) / 256 : 2 * sum_squares(x, 256) / 256;
    for (int first = 0; first < kind->groups; first += FIT_LANES) {
        load_groups(&f, x + first * n, n, FIT_LANES);
        if (importance) {
            weigh(&f, importance + first * n, n, FIT_LANES, sigma2);
            sum_weights(&f, n, s->weights + first);
            fit_offset(&f, n, most, -0.9f, 0.05f, 36, false);
        } else {
            weigh_by_size(&f, n, kind->absolute);
            fit_offset(&f, n, most, kind->first, kind->step, kind->steps, kind->absolute);
        }
        for (int g = 0; g < FIT_LANES; g++) {
            s->scales[first + g] = f.scale[g];
            s->offsets[first + g] = f.offset[g];
            for (int i = 0; i < n; i++)
                s->l[(first + g) * n + i] = (uint8_t)f.l[i][g];
        }
    }
}

// Values as multiples of the largest; its own share.
static float divide_by_largest(const float *values, int count, int most, uint8_t *l) {
    float largest = 0;
    for (int i = 0; i < count; i++)
        largest = values[i] > largest ? values[i] : largest;
    float inverse = largest > 0 ? (float)most / largest : 0;
    for (int i = 0; i < count; i++) {
        uint8_t k = (uint8_t)fit_nearest(inverse * values[i]);
        l[i] = k < most ? k : (uint8_t)most;
    }
    return largest > 0 ? largest / (float)most : 0;
}

// Multiples by the scales as they are stored. A group without one keeps what was found.
static void round_offsets(const offset_kind *kind, const float *x, float scale, float offset,
                          superblock *s) {
    int n = 256 / kind->groups, most = (1 << kind->bits) - 1;
    for (int g = 0; g < kind->groups; g++) {
        float d = scale * (float)s->scale_l[g], low = offset * (float)s->offset_l[g];
        if (d == 0) continue;
        for (int i = 0; i < n; i++)
            s->l[g * n + i] = (uint8_t)fit_clamp(fit_nearest((x[g * n + i] + low) / d), 0, most);
    }
}

// Everything but the layout; `halves` is where scale and offset go.
static void fit_offset_block(const offset_kind *kind, const float *x, const float *importance,
                             uint8_t *halves, superblock *s) {
    float scale, offset;
    search_offsets(kind, x, importance, s);
    if (importance) {
        scale = fit_positive(s->scales, s->weights, kind->groups, kind->scale_most, s->scale_l);
        offset = fit_positive(s->offsets, s->weights, kind->groups, kind->scale_most, s->offset_l);
        for (int g = 0; g < kind->groups; g++) {
            s->scale_l[g] &= 63;
            s->offset_l[g] &= 63;
        }
    } else {
        scale = divide_by_largest(s->scales, kind->groups, kind->scale_most, s->scale_l);
        offset = divide_by_largest(s->offsets, kind->groups, kind->scale_most, s->offset_l);
    }
    scale = store_half(halves, scale);
    offset = store_half(halves + 2, offset);
    round_offsets(kind, x, scale, offset, s);
}

// Four 2-bit values a byte, 32 elements apart.
static void store_pairs(uint8_t *to, const uint8_t *l) {
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 32; i++) {
            const uint8_t *at = l + half * 128 + i;
            to[half * 32 + i] =
                (uint8_t)((at[0] & 3) | (at[32] & 3) << 2 | (at[64] & 3) << 4 | (at[96] & 3) << 6);
        }
}

static void encode_q2_k(const float *row, const float *importance, uint64_t blocks, uint8_t *out) {
    static const offset_kind kind = {2, 16, 15, -0.5f, 0.1f, 15, true};
    superblock s;
    for (uint64_t b = 0; b < blocks; b++, row += 256, out += 84) {
        if (!is_finite(row, 256)) {
            spoil(out, 84, 80, true);
            continue;
        }
        fit_offset_block(&kind, row, importance ? importance + b * 256 : NULL, out + 80, &s);
        for (int g = 0; g < 16; g++)
            out[g] = (uint8_t)((s.scale_l[g] & 15) | s.offset_l[g] << 4);
        store_pairs(out + 16, s.l);
    }
}

// Twelve bytes for eight 6-bit scales and offsets: see unpack_scale in ggml_superblocks.c.
static void store_sixes(uint8_t *to, const superblock *s) {
    for (int g = 0; g < 4; g++) {
        const uint8_t *scale = s->scale_l + g, *offset = s->offset_l + g;
        to[g] = (uint8_t)(scale[0] | scale[4] >> 4 << 6);
        to[g + 4] = (uint8_t)(offset[0] | offset[4] >> 4 << 6);
        to[g + 8] = (uint8_t)((scale[4] & 15) | offset[4] << 4);
    }
}

// q4_k, and q5_k with its fifth bits between scales and nibbles.
static void encode_sixes(const offset_kind *kind, const float *row, const float *importance,
                         uint64_t blocks, uint8_t *out) {
    superblock s;
    size_t fifths = kind->bits == 5 ? 32 : 0, bytes = 144 + fifths;
    for (uint64_t b = 0; b < blocks; b++, row += 256, out += bytes) {
        if (!is_finite(row, 256)) {
            spoil(out, bytes, 0, true);
            continue;
        }
        fit_offset_block(kind, row, importance ? importance + b * 256 : NULL, out, &s);
        store_sixes(out + 4, &s);
        memset(out + 16, 0, fifths);
        for (int i = 0; i < 256; i++)
            if (fifths) out[16 + i % 32] |= (uint8_t)((s.l[i] >> 4 & 1) << i / 32);
        for (int i = 0; i < 128; i++) {
            const uint8_t *at = s.l + i / 32 * 64 + i % 32;
            out[16 + fifths + (size_t)i] = (uint8_t)((at[0] & 15) | at[32] << 4);
        }
    }
}

static void encode_q4_k(const float *row, const float *importance, uint64_t blocks, uint8_t *out) {
    static const offset_kind kind = {4, 8, 63, -1.f, 0.1f, 20, false};
    encode_sixes(&kind, row, importance, blocks, out);
}
static void encode_q5_k(const float *row, const float *importance, uint64_t blocks, uint8_t *out) {
    static const offset_kind kind = {5, 8, 63, -0.5f, 0.1f, 15, false};
    encode_sixes(&kind, row, importance, blocks, out);
}

// ---- blocks of 256: a scale a group -------------------------------------------------------------

// Sixteen groups of 16 without offsets.
static void search_signed(const float *x, const float *importance, int half, superblock *s) {
    fit_group f;
    bool q3 = half == 4;
    float sigma2 = importance && q3 ? 2 * sum_squares(x, 256) / 256 : 0;
    for (int first = 0; first < 16; first += FIT_LANES) {
        load_groups(&f, x + first * 16, 16, FIT_LANES);
        if (importance && q3)
            weigh(&f, importance + first * 16, 16, FIT_LANES, sigma2);
        else
            for (int i = 0; i < 16; i++)
                FOR_LANES f.w[i][g] =
                    importance ? importance[(first + g) * 16 + i] : f.x[i][g] * f.x[i][g];
        sum_weights(&f, 16, s->weights + first);
        if (q3 && !importance)
            fit_single(&f, 16, half);
        else
            fit_signed(&f, 16, half);
        for (int g = 0; g < FIT_LANES; g++) {
            s->scales[first + g] = f.scale[g];
            for (int i = 0; i < 16; i++)
                s->l[(first + g) * 16 + i] = (uint8_t)f.l[i][g];
        }
    }
}

// The scale of the greatest size, with its sign.
static float peak_scale(const superblock *s) {
    float peak = 0;
    for (int g = 0; g < 16; g++)
        peak = fabsf(s->scales[g]) > fabsf(peak) ? s->scales[g] : peak;
    return peak;
}

static void round_signed(const float *x, const float *scales, int half, superblock *s) {
    for (int g = 0; g < 16; g++)
        for (int i = 0; i < 16 && scales[g] != 0; i++)
            s->l[g * 16 + i] =
                (uint8_t)(fit_clamp(fit_nearest(x[g * 16 + i] / scales[g]), -half, half - 1) +
                          half);
}

// Sixteen multiples in [0, 64), and the scale of them. Without importances the largest scale is
// -32.
static float scales_of_scales(superblock *s, bool weighed) {
    if (weighed) {
        fit_group f;
        for (int i = 0; i < 16; i++)
            FOR_LANES {
                f.x[i][g] = g ? 0 : s->scales[i];
                f.w[i][g] = g ? 0 : s->weights[i];
            }
        fit_signed(&f, 16, 32);
        for (int i = 0; i < 16; i++)
            s->scale_l[i] = (uint8_t)f.l[i][0];
        return f.scale[0];
    }
    float peak = peak_scale(s), inverse = -32.f / peak;
    memset(s->scale_l, 0, sizeof s->scale_l);
    if (peak == 0) return 0;
    for (int g = 0; g < 16; g++)
        s->scale_l[g] =
            (uint8_t)(fit_clamp((int8_t)fit_nearest(inverse * s->scales[g]), -32, 31) + 32);
    return 1 / inverse;
}

static void encode_q3_k(const float *row, const float *importance, uint64_t blocks, uint8_t *out) {
    superblock s;
    for (uint64_t b = 0; b < blocks; b++, row += 256, out += 110) {
        float scales[16];
        if (!is_finite(row, 256)) {
            spoil(out, 110, 108, false);
            continue;
        }
        search_signed(row, importance ? importance + b * 256 : NULL, 4, &s);
        float scale = store_half(out + 108, scales_of_scales(&s, importance != NULL));
        memset(out, 0, 32);
        memset(out + 96, 0, 12);
        for (int g = 0; g < 16; g++) {
            scales[g] = scale * (float)(s.scale_l[g] - 32);
            out[96 + g % 8] |= (uint8_t)((s.scale_l[g] & 15) << g / 8 * 4);
            out[104 + g % 4] |= (uint8_t)(s.scale_l[g] >> 4 << g / 4 * 2);
        }
        round_signed(row, scales, 4, &s);
        for (int i = 0; i < 256; i++)
            out[i % 32] |= (uint8_t)((s.l[i] >> 2 & 1) << i / 32);
        store_pairs(out + 32, s.l);
    }
}

static void encode_q6_k(const float *row, const float *importance, uint64_t blocks, uint8_t *out) {
    superblock s;
    for (uint64_t b = 0; b < blocks; b++, row += 256, out += 210) {
        float scales[16];
        if (!is_finite(row, 256)) {
            spoil(out, 210, 208, false);
            continue;
        }
        search_signed(row, importance ? importance + b * 256 : NULL, 32, &s);
        float peak = peak_scale(&s), inverse = -128.f / peak;
        memset(out, 0, 210);
        if (fabsf(peak) < FIT_NOTHING) continue;
        float scale = store_half(out + 208, 1 / inverse);
        for (int g = 0; g < 16; g++) {
            int l = fit_nearest(inverse * s.scales[g]);
            int8_t kept = (int8_t)(l < 127 ? l : 127);
            out[192 + g] = (uint8_t)kept;
            scales[g] = scale * (float)kept;
        }
        round_signed(row, scales, 32, &s);
        for (int half = 0; half < 2; half++)
            for (int i = 0; i < 32; i++) {
                const uint8_t *l = s.l + half * 128 + i;
                uint8_t *low = out + half * 64 + i;
                low[0] = (uint8_t)((l[0] & 15) | l[64] << 4);
                low[32] = (uint8_t)((l[32] & 15) | l[96] << 4);
                out[128 + half * 32 + i] =
                    (uint8_t)(l[0] >> 4 | l[32] >> 4 << 2 | l[64] >> 4 << 4 | l[96] >> 4 << 6);
            }
    }
}

const rn_ggml_encoders ENCODERS = {
    .q4_0 = encode_q4_0,
    .q4_1 = encode_q4_1,
    .q5_0 = encode_q5_0,
    .q5_1 = encode_q5_1,
    .iq4_nl = encode_iq4_nl,
    .iq4_xs = encode_iq4_xs,
    .mxfp4 = encode_mxfp4,
    .q2_k = encode_q2_k,
    .q3_k = encode_q3_k,
    .q4_k = encode_q4_k,
    .q5_k = encode_q5_k,
    .q6_k = encode_q6_k,
};

// labels: threads
// tiles_test.c — what goes into tiles is what a warp's lanes take out of them, in whatever pieces
// it came.
//
// The expected numbers come from the plain form's own dequantisation, and from double; the lanes'
// view from the instruction's description, not from the library's places.
#include "support.h"

#include "base/checked.h"
#include "guarded.h"
#include "levels.h"
#include "tensor/ggml_codebooks.h"
#include "tensor/quant.h"
#include "tensor/small_float.h"
#include "tensor/tiles.h"

#include <math.h>

static const rn_dtype all_types[] = {
    RN_DTYPE_F16,     RN_DTYPE_BF16,    RN_DTYPE_INT8,    RN_DTYPE_INT4,    RN_DTYPE_NF4,
    RN_DTYPE_Q8_0,    RN_DTYPE_Q4_0,    RN_DTYPE_Q4_K,    RN_DTYPE_Q6_K,    RN_DTYPE_Q4_1,
    RN_DTYPE_Q5_0,    RN_DTYPE_Q5_1,    RN_DTYPE_Q5_K,    RN_DTYPE_Q3_K,    RN_DTYPE_IQ4_NL,
    RN_DTYPE_Q2_K,    RN_DTYPE_MXFP4,   RN_DTYPE_IQ4_XS,  RN_DTYPE_Q1_0,    RN_DTYPE_Q2_0,
    RN_DTYPE_TQ1_0,   RN_DTYPE_TQ2_0,   RN_DTYPE_NVFP4,   RN_DTYPE_IQ1_S,   RN_DTYPE_IQ1_M,
    RN_DTYPE_IQ2_XXS, RN_DTYPE_IQ2_XS,  RN_DTYPE_IQ2_S,   RN_DTYPE_IQ3_XXS, RN_DTYPE_IQ3_S,
    RN_DTYPE_F8_E4M3, RN_DTYPE_F8_E5M2, RN_DTYPE_F8_B128, RN_DTYPE_F8_B32,  RN_DTYPE_FP4_B64,
    RN_DTYPE_U4_B32,
};
#define COUNT(list) (sizeof(list) / sizeof *(list))
enum { TYPES = COUNT(all_types) };

// Rows that do not fill a tile, columns that do not, blocks over the ends of rows, both of int4's
// ways.
static const uint64_t shapes[][2] = {{1, 1},    {5, 33},   {16, 128}, {3, 32},   {17, 160},
                                     {31, 100}, {33, 256}, {64, 384}, {32, 512}, {96, 96},
                                     {19, 768}, {64, 64},  {16, 1000}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

// ---- a weight as its file has it ----------------------------------------------------------------

typedef struct plain {
    rn_dtype dtype;
    uint64_t rows, cols;
    rn_plain_components parts;
    uint8_t *bytes;
} plain;

// Random bytes for the data (any bytes are some numbers), ordinary numbers for scales and shifts.
static plain make_wild(rn_dtype dtype, uint64_t rows, uint64_t cols, uint64_t seed) {
    plain p = {.dtype = dtype, .rows = rows, .cols = cols};
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    assert_true(rn_plain_components_of(dtype, rows, cols, &p.parts));
    p.bytes = malloc(p.parts.total_bytes + 1);
    for (uint64_t i = 0; i < p.parts.bytes[RN_COMPONENT_DATA]; i++)
        p.bytes[i] = (uint8_t)random_bits(&state);
    for (int part = RN_COMPONENT_SCALE; part < RN_COMPONENT_COUNT; part++)
        fill_weights((float *)(void *)(p.bytes + p.parts.offset[part]), p.parts.bytes[part] / 4,
                     seed + (uint64_t)part);
    return p;
}

// Where blocks have their f16.
enum { NO_OFFSET = 0xffff };
static const struct {
    rn_dtype dtype;
    uint16_t scale, offset;
} scale_places[] = {
    {RN_DTYPE_Q8_0, 0, NO_OFFSET}, {RN_DTYPE_Q4_0, 0, NO_OFFSET},   {RN_DTYPE_Q4_1, 0, 2},
    {RN_DTYPE_Q5_0, 0, NO_OFFSET}, {RN_DTYPE_Q5_1, 0, 2},           {RN_DTYPE_Q4_K, 0, 2},
    {RN_DTYPE_Q5_K, 0, 2},         {RN_DTYPE_Q6_K, 208, NO_OFFSET}, {RN_DTYPE_Q3_K, 108, NO_OFFSET},
    {RN_DTYPE_Q2_K, 80, 82},       {RN_DTYPE_IQ4_NL, 0, NO_OFFSET}, {RN_DTYPE_IQ4_XS, 0, NO_OFFSET},
};
// The same, of kinds whose weights are not asked for with another scale.
static const struct {
    rn_dtype dtype;
    uint16_t scale;
} plain_scales[] = {
    {RN_DTYPE_Q1_0, 0},    {RN_DTYPE_Q2_0, 0},    {RN_DTYPE_TQ1_0, 52}, {RN_DTYPE_TQ2_0, 64},
    {RN_DTYPE_IQ1_S, 0},   {RN_DTYPE_IQ2_XXS, 0}, {RN_DTYPE_IQ2_XS, 0}, {RN_DTYPE_IQ2_S, 0},
    {RN_DTYPE_IQ3_XXS, 0}, {RN_DTYPE_IQ3_S, 0},
};
static const rn_dtype float_scales[] = {RN_DTYPE_F8_B128, RN_DTYPE_F8_B32, RN_DTYPE_FP4_B64,
                                        RN_DTYPE_U4_B32};

// Every `step` bytes an ordinary f16 (bf16).
static void tame(plain *p, uint64_t at, uint64_t step) {
    uint64_t state = at + step;
    for (; at < p->parts.bytes[RN_COMPONENT_DATA]; at += step) {
        float value = random_weight(&state);
        rn_store_u16(p->bytes + at,
                     p->dtype == RN_DTYPE_BF16 ? rn_bf16_narrow(value) : rn_f16_narrow(value));
    }
}

// mxfp4's scales: one of `count` powers of two.
static void tame_powers(plain *p, int first, int count) {
    for (uint64_t at = 0; at < p->parts.total_bytes; at += 17)
        p->bytes[at] = (uint8_t)(first + p->bytes[at] % count);
}

// Blocks that begin with an f32.
static void tame_floats(plain *p) {
    uint64_t step = rn_dtype_get(p->dtype)->block_bytes, state = step;
    for (uint64_t at = 0; at < p->parts.total_bytes; at += step) {
        float value = random_weight(&state);
        memcpy(p->bytes + at, &value, sizeof value);
    }
}

static void tame_scales(plain *p) {
    for (size_t i = 0; i < COUNT(plain_scales); i++)
        if (plain_scales[i].dtype == p->dtype)
            tame(p, plain_scales[i].scale, rn_dtype_get(p->dtype)->block_bytes);
    for (size_t i = 0; i < COUNT(float_scales); i++)
        if (float_scales[i] == p->dtype) tame_floats(p);
}

// No byte that is NaN in e4m3 or e5m2, nor e5m2's infinity; iq1_m's scale, in four upper nibbles.
static void tame_bytes(plain *p) {
    for (uint64_t i = 0; i < p->parts.total_bytes; i++)
        if ((p->bytes[i] & 0x78) == 0x78) p->bytes[i] ^= 0x40;
    for (uint64_t at = 48; p->dtype == RN_DTYPE_IQ1_M && at < p->parts.total_bytes; at += 56)
        p->bytes[at + 7] = (uint8_t)(0x20 | (p->bytes[at + 7] & 15));
}

// Ordinary numbers everywhere, so that sums of products are exact in double.
static plain make_tame(rn_dtype dtype, uint64_t rows, uint64_t cols, uint64_t seed) {
    plain p = make_wild(dtype, rows, cols, seed);
    tame_bytes(&p);
    tame_scales(&p);
    if (dtype == RN_DTYPE_F16 || dtype == RN_DTYPE_BF16) tame(&p, 0, 2);
    for (size_t i = 0; i < COUNT(scale_places); i++) {
        if (scale_places[i].dtype != dtype) continue;
        tame(&p, scale_places[i].scale, rn_dtype_get(dtype)->block_bytes);
        if (scale_places[i].offset != NO_OFFSET)
            tame(&p, scale_places[i].offset, rn_dtype_get(dtype)->block_bytes);
    }
    if (dtype == RN_DTYPE_MXFP4) tame_powers(&p, 116, 12);
    return p;
}

static float float_at(const plain *p, rn_component part, uint64_t index) {
    float value;
    memcpy(&value, p->bytes + p->parts.offset[part] + 4 * index, sizeof value);
    return value;
}

// ---- what a weight is in tiles ------------------------------------------------------------------

// The f16 nearest to a number, the even one of two: by trying.
static double nearest_f16(double value) {
    uint16_t guess = rn_f16_narrow((float)value), best = guess;
    if (value != value || fabs(value) >= 65520) return rn_f16_widen(guess);
    for (int by = -1; by <= 1; by++) {
        uint16_t other = (uint16_t)(guess + by);
        double is = fabs(rn_f16_widen(best) - value), would = fabs(rn_f16_widen(other) - value);
        if ((other & 0x7fff) >= 0x7c00 || (guess & 0x7fff) + by < 0) continue;
        if (would < is || (would == is && other % 2 == 0)) best = other;
    }
    return rn_f16_widen(best);
}

// The small whole number that the scale of an element's part is multiplied with.
static int part_factor(rn_dtype dtype, const uint8_t *block, int element) {
    int part = element / 16, eighth = element / 32;
    switch (dtype) {
    case RN_DTYPE_Q2_K:
        return block[part] & 15;
    case RN_DTYPE_Q3_K:
        return ((block[96 + part % 8] >> part / 8 * 4 & 15) |
                (block[104 + part % 4] >> part / 4 * 2 & 3) << 4) -
               32;
    case RN_DTYPE_Q6_K:
        return (int8_t)block[192 + part];
    case RN_DTYPE_IQ4_XS:
        return ((block[4 + eighth / 2] >> eighth % 2 * 4 & 15) |
                (rn_load_u16(block + 2) >> eighth * 2 & 3) << 4) -
               32;
    case RN_DTYPE_Q4_1:
    case RN_DTYPE_Q5_1:
        return 1;
    default: // q4_k, q5_k
        return eighth < 4 ? block[4 + eighth] & 63
                          : (block[8 + eighth] & 15) | block[eighth] >> 6 << 4;
    }
}

// A weight of a kind whose scales are products: its own dequantisation tells q (times the factor)
// and the offset, asked with the other field set to something simple. The last block is remembered:
// elements are asked for one by one.
static double scaled_weight(rn_dtype dtype, const uint8_t *block, uint64_t element,
                            uint32_t scale_at, uint32_t offset_at) {
    static uint8_t last[256];
    static rn_dtype last_dtype;
    static float q[256], offset[256];
    uint32_t bytes = rn_dtype_get(dtype)->block_bytes,
             elements = rn_dtype_get(dtype)->block_elements;
    uint8_t b[256];
    if (last_dtype != dtype || memcmp(last, block, bytes) != 0) {
        last_dtype = dtype;
        memcpy(last, block, bytes);
        memcpy(b, block, bytes);
        rn_store_u16(b + scale_at, 0);
        assert_ok(rn_dtype_to_f32(dtype, b, offset, elements));
        rn_store_u16(b + scale_at, 0x3c00); // 1
        if (offset_at != NO_OFFSET) rn_store_u16(b + offset_at, 0);
        assert_ok(rn_dtype_to_f32(dtype, b, q, elements));
    }
    double whole = rn_f16_widen(rn_load_u16(block + scale_at));
    int factor = part_factor(dtype, block, (int)element);
    double added = offset_at == NO_OFFSET ? 0 : nearest_f16(offset[element]);
    return nearest_f16(whole * factor) * (factor ? (double)q[element] / factor : 0) + added;
}

static double int4_weight(const plain *p, uint64_t row, uint64_t col) {
    uint64_t group = rn_quant_int4_group(p->cols), half = (p->rows * p->cols / group + 1) / 2;
    uint64_t g = (row * p->cols + col) / group;
    uint8_t byte = p->bytes[g % half * group + col % group];
    double q = g < half ? byte & 15 : byte >> 4;
    return nearest_f16(float_at(p, RN_COMPONENT_SCALE, g)) * q -
           nearest_f16(float_at(p, RN_COMPONENT_SHIFT, g));
}

static double nf4_weight(const plain *p, uint64_t row, uint64_t col) {
    uint64_t at = row * p->cols + col;
    int q = p->bytes[at / 2] >> (at % 2 ? 0 : 4) & 15;
    return nearest_f16(float_at(p, RN_COMPONENT_SCALE, at / RN_NF4_BLOCK)) *
           nearest_f16(rn_nf4_table[q]);
}

// A codebook's numbers are odd multiples of a unit; iq3_s has them as an offset and a factor.
static double codebook_weight(rn_dtype dtype, const uint8_t *block, uint64_t element) {
    rn_codebook_part part;
    double unit = rn_codebook_unit(dtype, block);
    rn_codebook_read(dtype, block, (int)element / 32, &part);
    double scale = unit * part.scales[element % 32 / 16];
    int q = part.q[element % 32];
    if (dtype != RN_DTYPE_IQ3_S) return nearest_f16(scale) * q;
    return nearest_f16(2 * scale) * ((q + 15) / 2) + nearest_f16(-15 * scale);
}

// e4m3 under a scale: NaN spoils its 32 columns.
static double e4m3_weight(const uint8_t *bytes, uint64_t element, float scale) {
    double is_nan = 0;
    for (uint64_t e = element / 32 * 32; e < element / 32 * 32 + 32; e++)
        if (isnan(rn_e4m3_widen(bytes[e]))) is_nan = (double)NAN;
    return is_nan + nearest_f16(256 * scale) * (double)rn_e4m3_widen(bytes[element]) / 256;
}

static double scaled_block_weight(rn_dtype dtype, const uint8_t *block, uint64_t element) {
    float scale, values[128];
    uint8_t one[132];
    memcpy(&scale, block, sizeof scale);
    if (dtype == RN_DTYPE_F8_B128 || dtype == RN_DTYPE_F8_B32)
        return e4m3_weight(block + 4, element, scale);
    if (dtype == RN_DTYPE_FP4_B64) {
        float small = rn_nvfp4_scale(block[4 + element / 16]);
        memcpy(one, block, 40);
        memset(one + 4, 0x38, 4); // 1
        memcpy(one, &(float){1}, sizeof(float));
        assert_ok(rn_dtype_to_f32(dtype, one, values, 64));
        return nearest_f16(small * scale) * (2 * (double)values[element]);
    }
    int q = element < 16 ? block[5 + element] & 15 : block[5 + element - 16] >> 4;
    return nearest_f16(scale) * q - nearest_f16(scale * block[4]);
}

// The exact weight that a tile holds: its scales are rounded to f16, their product with q is not.
static double weight_at(const plain *p, uint64_t row, uint64_t col) {
    static uint8_t last[256]; // elements are asked for one by one
    static rn_dtype last_dtype;
    static float values[256];
    const rn_dtype_info *info = rn_dtype_get(p->dtype);
    if (p->dtype == RN_DTYPE_INT8)
        return (double)float_at(p, RN_COMPONENT_SCALE, row) * (int8_t)p->bytes[row * p->cols + col];
    if (p->dtype == RN_DTYPE_INT4) return int4_weight(p, row, col);
    if (p->dtype == RN_DTYPE_NF4) return nf4_weight(p, row, col);
    uint64_t at = row * p->cols + col, element = at % info->block_elements;
    const uint8_t *block = p->bytes + at / info->block_elements * info->block_bytes;
    if (rn_codebook_is(p->dtype)) return codebook_weight(p->dtype, block, element);
    if (p->dtype == RN_DTYPE_F8_E4M3) return e4m3_weight(p->bytes + row * p->cols, col, 1);
    if (p->dtype >= RN_DTYPE_F8_B128) return scaled_block_weight(p->dtype, block, element);
    for (size_t i = 0; i < COUNT(scale_places); i++)
        if (scale_places[i].dtype == p->dtype &&
            (scale_places[i].offset != NO_OFFSET || info->block_elements == 256))
            return scaled_weight(p->dtype, block, element, scale_places[i].scale,
                                 scale_places[i].offset);
    if (last_dtype != p->dtype || memcmp(last, block, info->block_bytes) != 0) {
        last_dtype = p->dtype;
        memcpy(last, block, info->block_bytes);
        assert_ok(rn_dtype_to_f32(p->dtype, block, values, info->block_elements));
    }
    return (double)values[element];
}

// ---- packing ------------------------------------------------------------------------------------

static rn_workers *helpers; // of the tiler

// With pieces of `piece` bytes; with a seed: of 1 to `piece`. The target is full of `dirt` before.
static test_guard tile_in_pieces(const plain *p, uint64_t piece, uint64_t seed, uint8_t dirt) {
    rn_tiler tiler;
    uint64_t bytes;
    assert_true(rn_tiles_bytes(p->dtype, p->rows, p->cols, &bytes));
    test_guard tiles = test_guard_make(bytes);
    memset(tiles.data, dirt, bytes);
    assert_ok(rn_tiler_begin(&tiler, p->dtype, p->rows, p->cols, tiles.data));
    tiler.workers = helpers;
    for (int part = 0; part < RN_COMPONENT_COUNT; part++)
        for (uint64_t at = 0, take; at < p->parts.bytes[part]; at += take) {
            take = seed ? 1 + random_bits(&seed) % piece : piece;
            if (take > p->parts.bytes[part] - at) take = p->parts.bytes[part] - at;
            uint8_t *copy = malloc(take); // so that a read beyond the piece is found
            memcpy(copy, p->bytes + p->parts.offset[part] + at, take);
            assert_ok(rn_tiler_take(&tiler, (rn_component)part, at, copy, take));
            free(copy);
        }
    assert_true(test_guard_intact(&tiles));
    return tiles;
}

// Runs fn for each dtype and each shape that it has tiles for.
static void for_each_weight(void (*fn)(const plain *)) {
    for (int t = 0; t < TYPES; t++)
        for (int s = 0; s < SHAPES; s++) {
            uint64_t bytes;
            if (!rn_tiles_bytes(all_types[t], shapes[s][0], shapes[s][1], &bytes)) continue;
            plain p = make_wild(all_types[t], shapes[s][0], shapes[s][1], (uint64_t)s + 1);
            if (all_types[t] == RN_DTYPE_Q5_0) tame(&p, 0, 22); // an offset is 16 times a scale
            if (!rn_codebook_is(all_types[t])) tame_scales(&p); // as are those of tq: d q - d
            if (all_types[t] == RN_DTYPE_MXFP4) tame_powers(&p, 104, 40); // all that f16 has
            fn(&p);
            free(p.bytes);
        }
}

// ---- tests --------------------------------------------------------------------------------------

static double round_as_kernels_do(rn_dtype dtype, double weight) {
    if (dtype == RN_DTYPE_BF16) return weight;
    return dtype == RN_DTYPE_INT8 ? (float)weight : nearest_f16(weight);
}

static void check_values(const plain *p) {
    test_guard tiles = tile_in_pieces(p, UINT64_MAX, 0, 0xcc);
    for (uint64_t row = 0; row < p->rows; row++)
        for (uint64_t col = 0; col < p->cols; col++) {
            double expected = round_as_kernels_do(p->dtype, weight_at(p, row, col));
            double got = rn_tiles_at(tiles.data, p->dtype, p->rows, p->cols, row, col);
            if (got != expected && !(got != got && expected != expected))
                fail_msg("%s (%d, %d) at (%d, %d): %a is not %a", rn_dtype_get(p->dtype)->name,
                         (int)p->rows, (int)p->cols, (int)row, (int)col, got, expected);
        }
    test_guard_free(&tiles);
}

static void a_weight_is_the_plain_one_rounded_once(void **unused) {
    (void)unused;
    for_each_level(level) for_each_weight(check_values);
}

// For the widest of the forms there is nothing to round: the bits are the file's, NaN or not.
static void f16_and_bf16_keep_their_bits(void **unused) {
    (void)unused;
    for (int t = 0; t < 2; t++) {
        plain p = make_wild(all_types[t], 33, 100, 5);
        test_guard tiles = tile_in_pieces(&p, UINT64_MAX, 0, 0);
        for (uint64_t i = 0; i < 33 * 100; i++) {
            uint16_t half = rn_load_u16(p.bytes + 2 * i);
            float expected = t ? rn_bf16_widen(half) : rn_f16_widen(half);
            float got = rn_tiles_at(tiles.data, p.dtype, 33, 100, i / 100, i % 100);
            assert_int_equal(bits_of(got), bits_of(expected));
        }
        test_guard_free(&tiles);
        free(p.bytes);
    }
}

// Nothing is left as it was found, and what is behind the last row and column is zero.
static void check_padding(const plain *p) {
    test_guard a = tile_in_pieces(p, UINT64_MAX, 0, 0xff), b = tile_in_pieces(p, 777, 0, 0x55);
    uint64_t rows = (p->rows + 15) / 16 * 16, cols = (p->cols + 127) / 128 * 128;
    assert_memory_equal(a.data, b.data, a.bytes);
    for (uint64_t row = 0; row < rows; row++)
        for (uint64_t col = row < p->rows ? p->cols : 0; col < cols; col++)
            if (rn_tiles_at(a.data, p->dtype, p->rows, p->cols, row, col) != 0)
                fail_msg("%s (%d, %d) at (%d, %d)", rn_dtype_get(p->dtype)->name, (int)p->rows,
                         (int)p->cols, (int)row, (int)col);
    test_guard_free(&a);
    test_guard_free(&b);
}

static void what_lies_behind_the_weight_is_zero(void **unused) {
    (void)unused;
    for_each_weight(check_padding);
}

static void expect_same(const plain *p, const test_guard *whole, uint64_t piece, uint64_t seed) {
    test_guard cut = tile_in_pieces(p, piece, seed, (uint8_t)piece);
    if (memcmp(cut.data, whole->data, whole->bytes) != 0)
        fail_msg("%s (%d, %d) in pieces of %s%d", rn_dtype_get(p->dtype)->name, (int)p->rows,
                 (int)p->cols, seed ? "up to " : "", (int)piece);
    test_guard_free(&cut);
}

static void check_pieces(const plain *p) {
    test_guard whole = tile_in_pieces(p, UINT64_MAX, 0, 0);
    uint64_t strip = p->parts.bytes[RN_COMPONENT_DATA] / p->rows * 16; // of int4: half of one
    const uint64_t pieces[] = {1, 3, 33, 1001, 4096, strip, strip + 1, 2 * strip, 2 * strip + 3};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        uint64_t piece = pieces[i] ? pieces[i] : 1;
        expect_same(p, &whole, piece, 0);
        expect_same(p, &whole, piece, 77 + i);
    }
    test_guard_free(&whole);
}

static void pieces_of_any_length_give_the_same_bytes(void **unused) {
    (void)unused;
    for_each_weight(check_pieces);
    for (int t = 0; t < TYPES; t++) {
        plain p = make_wild(all_types[t], 34, 256, 3);
        test_guard whole = tile_in_pieces(&p, UINT64_MAX, 0, 0);
        // From iq4_xs on all go the same way.
        for (uint64_t piece = 1; piece < 450; piece += t < 18 ? 2 : 11)
            expect_same(&p, &whole, piece, 0);
        test_guard_free(&whole);
        free(p.bytes);
    }
}

// Large enough that a piece is shared out; pieces that begin within a row, too.
static void workers_give_the_same_bytes(void **unused) {
    (void)unused;
    for (int t = 0; t < TYPES; t++) {
        plain p = make_wild(all_types[t], 96, 2304, 1);
        test_guard alone = tile_in_pieces(&p, UINT64_MAX, 0, 0);
        assert_ok(rn_workers_create(3, &rn_system_allocator, &helpers));
        expect_same(&p, &alone, UINT64_MAX, 0);
        expect_same(&p, &alone, 150001, 0);
        rn_workers_destroy(helpers);
        helpers = NULL;
        test_guard_free(&alone);
        free(p.bytes);
    }
}

// ---- a warp's view ------------------------------------------------------------------------------
//
// What a lane loads and how it takes it apart, by tiles.h alone.

typedef struct warp_tile {
    rn_tile_form form;
    const uint8_t *data;
} warp_tile;

static double half_of(const uint8_t *from, uint32_t index) {
    return rn_f16_widen(rn_load_u16(from + 2 * index));
}

// Of a[i] in step s: scales lie as (row g, row g + 8) for each 32 columns, 16 bytes for each g.
static double scale_of(const uint8_t *scales, int lane, int s, int i) {
    return half_of(scales + lane / 4 * 16, (uint32_t)(s / 2 * 2 + (i & 2) / 2));
}

// The word of a lane's vector of `bytes` bytes.
static uint32_t word_of(const uint8_t *plane, int lane, int bytes, int word) {
    uint32_t out;
    memcpy(&out, plane + bytes * lane + 4 * word, sizeof out);
    return out;
}

// Number i of a step, of a word that has pairs: the first in its low half, the second in its high.
static int of_pair(uint32_t word, int shift, int mask, int i) {
    return (int)(word >> (shift + (i % 2 ? 16 : 0))) & mask;
}

static int nibble_of(const uint8_t *plane, int lane, int s, int i) {
    return of_pair(word_of(plane + 512 * (s / 4), lane, 16, s % 4), 4 * (i / 2), 15, i);
}

static int crumb_of(const uint8_t *plane, int lane, int s, int i) {
    static const int places[4] = {0, 4, 2, 6};
    return of_pair(word_of(plane, lane, 16, s / 2), 8 * (s % 2) + places[i / 2], 3, i);
}

static int bit_of(const uint8_t *plane, int lane, int s, int i) {
    static const int places[8] = {0, 1, 2, 3, 8, 9, 10, 11};
    int shift = places[2 * (s % 4) + i / 4] + 4 * (i / 2 % 2);
    return of_pair(word_of(plane, lane, 8, s / 4), shift, 1, i);
}

static double table_of(warp_tile tile, int lane, int s, int i) {
    static const double fp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    static const double iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};
    uint32_t word = word_of(tile.data + 512 * (s / 4), lane, 16, s % 4);
    int q = (int)(word >> (8 * (i / 2) + 4 * (i % 2))) & 15;
    if (tile.form == RN_TILE_N4) return nearest_f16(rn_nf4_table[q]);
    int size = q & 7, sign = q & 8 ? -1 : 1;
    if (tile.form == RN_TILE_C2) return sign * (int[]){1, 7, 9, 8, 25, 43, 0, 0}[size];
    if (tile.form == RN_TILE_C3) return sign * (size == 7 ? 62 : 8 * size + 4);
    return tile.form == RN_TILE_I4 ? iq4[q] : fp4[q];
}

// Small scales: of the row's half (0: g, 1: g + 8), d or m times what a byte has.
static double small_of(const uint8_t *scales, int lane, int s, int i, int wholes, int which,
                       double unit) {
    int half = i / 2 % 2, byte = scales[lane / 4 * 16 + 2 * s + half];
    double factor = wholes == 1 ? byte - 128 : which ? byte >> 4 : byte & 15;
    double d = half_of(scales + 128 + lane / 4 * 4 * wholes, (uint32_t)(2 * which + half));
    return nearest_f16(d * factor * unit);
}

static double operand_of(warp_tile tile, int lane, int s, int i) {
    const uint8_t *data = tile.data, *halves = data + 512 * s + 16 * lane;
    const uint8_t *bytes = data + 512 * (s / 2) + 16 * lane + 8 * (s % 2);
    switch (tile.form) {
    case RN_TILE_F16:
        return half_of(halves, (uint32_t)i);
    case RN_TILE_BF16:
        return rn_bf16_widen(rn_load_u16(halves + 2 * i));
    case RN_TILE_Q8:
        return scale_of(data + 2048, lane, s, i) * (bytes[i] - 128);
    case RN_TILE_I8:
        return bytes[i] - 128;
    case RN_TILE_Q4:
        return scale_of(data + 1024, lane, s, i) * (nibble_of(data, lane, s, i) - 8);
    case RN_TILE_A4:
        return scale_of(data + 1024, lane, s, i) * nibble_of(data, lane, s, i) +
               scale_of(data + 1152, lane, s, i);
    case RN_TILE_A5:
        return scale_of(data + 1280, lane, s, i) *
                   (nibble_of(data, lane, s, i) + 16 * bit_of(data + 1024, lane, s, i)) +
               scale_of(data + 1408, lane, s, i);
    case RN_TILE_Q6:
        return small_of(data + 1536, lane, s, i, 1, 0, 1) *
               (nibble_of(data, lane, s, i) + 16 * crumb_of(data + 1024, lane, s, i) - 32);
    case RN_TILE_Q3:
        return small_of(data + 768, lane, s, i, 1, 0, 1) *
               (crumb_of(data, lane, s, i) + 4 * bit_of(data + 512, lane, s, i) - 4);
    case RN_TILE_A2:
        return small_of(data + 512, lane, s, i, 2, 0, 1) * crumb_of(data, lane, s, i) +
               small_of(data + 512, lane, s, i, 2, 1, 1);
    case RN_TILE_F8:
        return scale_of(data + 2048, lane, s, i) * (double)rn_e4m3_widen(bytes[i]) / 256;
    case RN_TILE_V4:
        return scale_of(data + (s % 2 ? 1152 : 1024), lane, s, i) * table_of(tile, lane, s, i);
    case RN_TILE_C2:
    case RN_TILE_C3:
        return small_of(data + 1024, lane, s, i, 1, 0, 0.125) * table_of(tile, lane, s, i);
    default:
        return scale_of(data + 1024, lane, s, i) * table_of(tile, lane, s, i);
    }
}

// mma m16n8k16 as its description has it, element by element of A's fragment: d (16, 8) += a b.
static void multiply(warp_tile tile, int s, const double *x /* (8, 16) */, double d[16][8]) {
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 8; i++) {
            int row = i < 2 || (i >= 4 && i < 6) ? lane / 4 : lane / 4 + 8;
            int k = lane % 4 * 2 + (i & 1) + (i >= 4 ? 8 : 0);
            for (int n = 0; n < 8; n++)
                d[row][n] += operand_of(tile, lane, s, i) * x[n * 16 + k];
        }
}

// One strip of tiles, along k, as a warp walks it.
static void walk_strip(const plain *p, const uint8_t *tiles, uint64_t strip, const double *x,
                       double d[16][8]) {
    rn_tile_form form = rn_tile_form_of(p->dtype);
    uint64_t tile_cols = (p->cols + 127) / 128;
    memset(d, 0, 16 * sizeof d[0]);
    for (uint64_t c = 0; c < tile_cols; c++)
        for (int s = 0; s < 8; s++) {
            double step[8 * 16] = {0};
            for (uint64_t n = 0; n < 8; n++)
                for (uint64_t k = 0; k < 16; k++) {
                    uint64_t col = c * 128 + (uint64_t)s * 16 + k;
                    if (col < p->cols) step[n * 16 + k] = x[n * p->cols + col];
                }
            warp_tile tile = {form, tiles + (strip * tile_cols + c) * rn_tile_bytes(form)};
            multiply(tile, s, step, d);
        }
}

static void check_product(const plain *p, const uint8_t *tiles, const double *x) {
    const uint8_t *row_scales = tiles + (p->rows + 15) / 16 * ((p->cols + 127) / 128) * 2048;
    for (uint64_t strip = 0; strip * 16 < p->rows; strip++) {
        double d[16][8];
        walk_strip(p, tiles, strip, x, d);
        for (uint64_t row = strip * 16; row < strip * 16 + 16 && row < p->rows; row++) {
            float scale = 1;
            double sum[8] = {0};
            if (p->dtype == RN_DTYPE_INT8) memcpy(&scale, row_scales + 4 * row, sizeof scale);
            for (uint64_t k = 0; k < p->cols; k++) {
                double weight = weight_at(p, row, k);
                for (uint64_t n = 0; n < 8; n++)
                    sum[n] += weight * x[n * p->cols + k];
            }
            for (int n = 0; n < 8; n++)
                if (d[row % 16][n] * (double)scale != sum[n])
                    fail_msg("%s, row %d: %a is not %a", rn_dtype_get(p->dtype)->name, (int)row,
                             d[row % 16][n] * (double)scale, sum[n]);
        }
    }
}

static void a_warp_multiplies_what_the_file_has(void **unused) {
    (void)unused;
    enum { ROWS = 24, COLS = 256, ODD_COLS = 160 };
    double x[8 * COLS];
    uint64_t state = 11;
    for (int i = 0; i < 8 * COLS; i++)
        x[i] = (int)(random_bits(&state) % 9) - 4; // sums of products are exact
    for (int t = 0; t < TYPES; t++) {
        bool odd = ODD_COLS % rn_dtype_get(all_types[t])->block_elements == 0;
        plain p = make_tame(all_types[t], ROWS, odd ? ODD_COLS : COLS, 4);
        test_guard tiles = tile_in_pieces(&p, UINT64_MAX, 0, 0xee);
        check_product(&p, tiles.data, x);
        test_guard_free(&tiles);
        free(p.bytes);
    }
}

// ---- sizes and refusals -------------------------------------------------------------------------

static uint64_t bytes_of(rn_dtype dtype, uint64_t rows, uint64_t cols) {
    uint64_t bytes = 0;
    assert_true(rn_tiles_bytes(dtype, rows, cols, &bytes));
    return bytes;
}

static void sizes_are_those_of_the_table(void **unused) {
    (void)unused;
    assert_int_equal(bytes_of(RN_DTYPE_F16, 17, 129), 4 * 4096);
    assert_int_equal(bytes_of(RN_DTYPE_Q6_K, 16, 256), 2 * 1696);
    assert_int_equal(bytes_of(RN_DTYPE_Q5_K, 16, 256), 2 * 1536);
    assert_int_equal(bytes_of(RN_DTYPE_Q3_K, 16, 256), 2 * 928);
    assert_int_equal(bytes_of(RN_DTYPE_Q2_K, 16, 256), 2 * 704);
    assert_int_equal(bytes_of(RN_DTYPE_MXFP4, 16, 128), 1152);
    assert_int_equal(bytes_of(RN_DTYPE_BF16, 1, 1), 4096);
    assert_int_equal(bytes_of(RN_DTYPE_Q8_0, 16, 160), 2 * 2176);
    assert_int_equal(bytes_of(RN_DTYPE_INT8, 17, 128), 2 * 2048 + 32 * 4);
    assert_int_equal(bytes_of(RN_DTYPE_Q4_0, 16, 128), 1152);
    assert_int_equal(bytes_of(RN_DTYPE_INT4, 16, 128), 1280);
    assert_int_equal(bytes_of(RN_DTYPE_Q4_K, 16, 256), 2 * 1280);
    assert_int_equal(bytes_of(RN_DTYPE_NF4, 16, 128), 1152);
    assert_int_equal(bytes_of(RN_DTYPE_F16, 0, 128), 0);
    assert_int_equal(bytes_of(RN_DTYPE_F8_B128, 16, 128), 2176);
    assert_int_equal(bytes_of(RN_DTYPE_NVFP4, 16, 128), 1280);
    assert_int_equal(bytes_of(RN_DTYPE_IQ1_S, 16, 256), 2 * 1184);
    assert_int_equal(rn_tile_bytes(RN_TILE_NONE), 0);
    assert_int_equal(rn_tile_form_of(RN_DTYPE_F32), RN_TILE_NONE);
    assert_int_equal(rn_tile_form_of((rn_dtype)1000), RN_TILE_NONE);
    for (int t = 0; t < TYPES; t++) {
        uint64_t bytes;
        assert_true(rn_layout_bytes(RN_LAYOUT_TILES, all_types[t], 48, 512, &bytes));
        assert_int_equal(bytes, bytes_of(all_types[t], 48, 512));
        assert_int_equal(bytes % 64, 0);
    }
}

static void what_has_no_tiles_is_refused(void **unused) {
    (void)unused;
    uint64_t bytes;
    rn_tiler tiler;
    uint8_t nowhere[64];
    assert_false(rn_tiles_bytes(RN_DTYPE_F32, 16, 128, &bytes));
    assert_false(rn_tiles_bytes((rn_dtype)1000, 16, 128, &bytes));
    assert_false(rn_tiles_bytes(RN_DTYPE_F16, 16, 0, &bytes));
    assert_false(rn_tiles_bytes(RN_DTYPE_Q4_0, 16, 40, &bytes)); // not in whole blocks
    assert_false(rn_tiles_bytes(RN_DTYPE_Q6_K, 16, 128, &bytes));
    assert_false(rn_tiles_bytes(RN_DTYPE_INT4, 16, 100, &bytes)); // scales are for 32 columns
    assert_false(rn_tiles_bytes(RN_DTYPE_INT4, 16, 200, &bytes));
    assert_false(rn_tiles_bytes(RN_DTYPE_NF4, 16, 48, &bytes));
    assert_false(rn_tiles_bytes(RN_DTYPE_F8_E4M3, 16, 48, &bytes));
    assert_false(rn_tiles_bytes(RN_DTYPE_F16, UINT64_MAX, 128, &bytes)); // too large
    assert_false(rn_tiles_bytes(RN_DTYPE_F16, 16, UINT64_MAX, &bytes));
    assert_false(rn_tiles_bytes(RN_DTYPE_INT8, (uint64_t)1 << 57, 128, &bytes));
    assert_false(rn_tiles_bytes(RN_DTYPE_F16, (uint64_t)1 << 32, (uint64_t)1 << 32, &bytes));
    assert_fails(RN_INVALID, rn_tiler_begin(&tiler, RN_DTYPE_F32, 16, 128, nowhere));
    assert_fails(RN_INVALID, rn_tiler_begin(&tiler, RN_DTYPE_INT4, 16, 100, nowhere));
}

static void a_piece_out_of_turn_is_refused(void **unused) {
    (void)unused;
    plain p = make_wild(RN_DTYPE_INT8, 16, 32, 9);
    test_guard tiles = test_guard_make(bytes_of(RN_DTYPE_INT8, 16, 32));
    rn_tiler tiler;
    assert_ok(rn_tiler_begin(&tiler, RN_DTYPE_INT8, 16, 32, tiles.data));
    assert_fails(RN_INVALID, rn_tiler_take(&tiler, RN_COMPONENT_DATA, 4, p.bytes, 8));
    assert_fails(RN_INVALID, rn_tiler_take(&tiler, RN_COMPONENT_DATA, 0, p.bytes, 16 * 32 + 1));
    assert_fails(RN_INVALID,
                 rn_tiler_take(&tiler, RN_COMPONENT_SCALE, 0, p.bytes, 4)); // data first
    assert_fails(RN_INVALID, rn_tiler_take(&tiler, RN_COMPONENT_COUNT, 0, p.bytes, 4));
    assert_ok(rn_tiler_take(&tiler, RN_COMPONENT_DATA, 0, p.bytes, 16 * 32));
    assert_fails(RN_INVALID, rn_tiler_take(&tiler, RN_COMPONENT_DATA, 0, p.bytes, 1));
    assert_fails(RN_INVALID, rn_tiler_take(&tiler, RN_COMPONENT_SHIFT, 0, p.bytes, 4));
    assert_ok(rn_tiler_take(&tiler, RN_COMPONENT_SCALE, 0, p.bytes, 16 * 4));
    assert_ok(rn_tiler_begin(&tiler, RN_DTYPE_Q8_0, 0, 64, NULL));
    assert_ok(rn_tiler_take(&tiler, RN_COMPONENT_DATA, 0, NULL, 0));
    free(p.bytes);
    test_guard_free(&tiles);
}

// mxfp4's scales go beyond f16's: what cannot be held spoils its block, and is no smaller number.
static void a_scale_beyond_f16_is_not_plausible(void **unused) {
    (void)unused;
    static const uint8_t bytes[] = {144, 200, 254, 255};
    for (size_t i = 0; i < sizeof bytes; i++) {
        plain p = make_wild(RN_DTYPE_MXFP4, 1, 32, 11);
        test_guard tiles = test_guard_make(bytes_of(RN_DTYPE_MXFP4, 1, 32));
        rn_tiler tiler;
        memset(p.bytes, 0x21, 17); // 0.5 and 1
        p.bytes[0] = bytes[i];
        assert_ok(rn_tiler_begin(&tiler, RN_DTYPE_MXFP4, 1, 32, tiles.data));
        assert_ok(rn_tiler_take(&tiler, RN_COMPONENT_DATA, 0, p.bytes, 17));
        for (uint64_t col = 0; col < 32; col++)
            assert_false(isfinite(rn_tiles_at(tiles.data, RN_DTYPE_MXFP4, 1, 32, 0, col)));
        free(p.bytes);
        test_guard_free(&tiles);
    }
}

// The same of f32 scales, and of f16 ones that are infinite: one block of each kind.
static void a_scale_that_is_no_f16_spoils_its_weights(void **unused) {
    (void)unused;
    static const float floats[] = {1e6f, 1e38f, INFINITY, NAN};
    for (int t = 0; t < TYPES; t++) {
        uint32_t cols = (uint32_t)rn_max_u64(rn_dtype_get(all_types[t])->block_elements, 32);
        uint32_t bytes = rn_dtype_get(all_types[t])->block_bytes;
        for (size_t i = 0; i < COUNT(floats); i++) {
            plain p = make_wild(all_types[t], 1, cols, 3);
            uint16_t half = rn_f16_narrow(floats[i]);
            bool found = false;
            memset(p.bytes, 0x21, p.parts.total_bytes);
            for (size_t k = 0; k < COUNT(plain_scales); k++)
                if (plain_scales[k].dtype == p.dtype && bytes >= 18)
                    rn_store_u16(p.bytes + plain_scales[k].scale, half), found = true;
            for (size_t k = 0; k < COUNT(float_scales); k++)
                if (float_scales[k] == p.dtype) memcpy(p.bytes, &floats[i], 4), found = true;
            test_guard tiles = tile_in_pieces(&p, UINT64_MAX, 0, 0);
            for (uint64_t col = 0; found && col < cols; col++)
                assert_false(isfinite(rn_tiles_at(tiles.data, p.dtype, 1, cols, 0, col)));
            test_guard_free(&tiles);
            free(p.bytes);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weight_is_the_plain_one_rounded_once),
        cmocka_unit_test(f16_and_bf16_keep_their_bits),
        cmocka_unit_test(what_lies_behind_the_weight_is_zero),
        cmocka_unit_test(pieces_of_any_length_give_the_same_bytes),
        cmocka_unit_test(workers_give_the_same_bytes),
        cmocka_unit_test(a_warp_multiplies_what_the_file_has),
        cmocka_unit_test(sizes_are_those_of_the_table),
        cmocka_unit_test(what_has_no_tiles_is_refused),
        cmocka_unit_test(a_piece_out_of_turn_is_refused),
        cmocka_unit_test(a_scale_beyond_f16_is_not_plausible),
        cmocka_unit_test(a_scale_that_is_no_f16_spoils_its_weights),
    };
    const struct CMUnitTest threaded[] = {cmocka_unit_test(workers_give_the_same_bytes)};
    if (TEST_THREADS_ONLY) return cmocka_run_group_tests(threaded, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

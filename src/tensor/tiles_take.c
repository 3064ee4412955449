// tiles_take.c — file bytes to tiles, in pieces of any length, beside a disk.
//
// A *strip* is a row of tiles: 16 rows of the weight. Strips that lie whole in a piece go tile by
// tile (tiles_pack.c), shared out to workers; tiles at the edges are filled up with zeros on the
// way. Rows of strips that a piece divides go value by value, alone, for two of them share a byte
// where a weight has 4 bits. A block that a piece divides is kept until its rest comes.
#include "tensor/tiles_internal.h"

#include "base/checked.h"
#include "tensor/convert.h"
#include "tensor/quant.h"
#include "tensor/small_float.h"

// How a dtype's data lies in a file: in units that mean something only whole; and in cells, what a
// packer takes of each of 16 rows.
typedef struct source {
    uint16_t unit_cols, unit_bytes, cell_cols, cell_bytes;
    rn_tile_packer *pack;
    rn_tile_reader *read; // instead: each row's blocks are taken apart first
} source;

static const source sources[RN_DTYPE_COUNT] = {
    [RN_DTYPE_F16] = {1, 2, 128, 256, rn_tile_pack_halves},
    [RN_DTYPE_BF16] = {1, 2, 128, 256, rn_tile_pack_halves},
    [RN_DTYPE_INT8] = {1, 1, 128, 128, rn_tile_pack_int8},
    [RN_DTYPE_Q8_0] = {32, 34, 128, 136, rn_tile_pack_q8_0},
    [RN_DTYPE_Q4_0] = {32, 18, 128, 72, rn_tile_pack_q4_0},
    [RN_DTYPE_Q4_K] = {256, 144, 256, 144, rn_tile_pack_q4_k},
    [RN_DTYPE_NF4] = {2, 1, 128, 64, rn_tile_pack_nf4},
    [RN_DTYPE_INT4] = {1, 1, 128, 128, rn_tile_pack_int4_low},
    [RN_DTYPE_Q4_1] = {32, 20, 128, 80, .read = rn_tile_read_q4_1},
    [RN_DTYPE_Q5_0] = {32, 22, 128, 88, .read = rn_tile_read_q5_0},
    [RN_DTYPE_Q5_1] = {32, 24, 128, 96, .read = rn_tile_read_q5_1},
    [RN_DTYPE_IQ4_NL] = {32, 18, 128, 72, .read = rn_tile_read_iq4_nl},
    [RN_DTYPE_MXFP4] = {32, 17, 128, 68, .read = rn_tile_read_mxfp4},
    [RN_DTYPE_Q5_K] = {256, 176, 256, 176, .read = rn_tile_read_q5_k},
    [RN_DTYPE_IQ4_XS] = {256, 136, 256, 136, .read = rn_tile_read_iq4_xs},
    [RN_DTYPE_Q6_K] = {256, 210, 256, 210, .read = rn_tile_read_q6_k},
    [RN_DTYPE_Q3_K] = {256, 110, 256, 110, .read = rn_tile_read_q3_k},
    [RN_DTYPE_Q2_K] = {256, 84, 256, 84, .read = rn_tile_read_q2_k},
    [RN_DTYPE_TQ1_0] = {256, 54, 256, 54, .read = rn_tile_read_tq1_0},
    [RN_DTYPE_TQ2_0] = {256, 66, 256, 66, .read = rn_tile_read_tq2_0},
    [RN_DTYPE_Q1_0] = {128, 18, 128, 18, .read = rn_tile_read_q1_0},
    [RN_DTYPE_Q2_0] = {64, 18, 128, 36, .read = rn_tile_read_q2_0},
    [RN_DTYPE_IQ1_S] = {256, 50, 256, 50, .read = rn_tile_read_iq1_s},
    [RN_DTYPE_IQ1_M] = {256, 56, 256, 56, .read = rn_tile_read_iq1_m},
    [RN_DTYPE_IQ2_XXS] = {256, 66, 256, 66, .read = rn_tile_read_iq2_xxs},
    [RN_DTYPE_IQ2_XS] = {256, 74, 256, 74, .read = rn_tile_read_iq2_xs},
    [RN_DTYPE_IQ2_S] = {256, 82, 256, 82, .read = rn_tile_read_iq2_s},
    [RN_DTYPE_IQ3_XXS] = {256, 98, 256, 98, .read = rn_tile_read_iq3_xxs},
    [RN_DTYPE_IQ3_S] = {256, 110, 256, 110, .read = rn_tile_read_iq3_s},
    [RN_DTYPE_NVFP4] = {64, 36, 128, 72, .read = rn_tile_read_nvfp4},
    [RN_DTYPE_F8_E5M2] = {1, 1, 128, 128, rn_tile_pack_e5m2},
    [RN_DTYPE_F8_E4M3] = {32, 32, 128, 128, .read = rn_tile_read_e4m3},
    [RN_DTYPE_F8_B128] = {128, 132, 128, 132, .read = rn_tile_read_f8_b128},
    [RN_DTYPE_F8_B32] = {32, 36, 128, 144, .read = rn_tile_read_f8_b32},
    [RN_DTYPE_FP4_B64] = {64, 40, 128, 80, .read = rn_tile_read_fp4_b64},
    [RN_DTYPE_U4_B32] = {32, 21, 128, 84, .read = rn_tile_read_u4_b32},
};
enum { CELL_BYTES_MOST = 256 };

static uint8_t *tile_of(const rn_tiler *t, uint64_t row, uint64_t col) {
    uint64_t number = row / RN_TILE_ROWS * t->tile_cols + col / RN_TILE_COLS;
    return t->target + number * t->tile_bytes;
}

// ---- value by value -----------------------------------------------------------------------------
//
// Each takes some values of one row, from `col` on.

static void put_halves(const rn_tiler *t, uint64_t row, uint64_t col, const uint8_t *from,
                       uint64_t count) {
    for (uint64_t n; count > 0; col += n, from += 2 * n, count -= n) {
        uint8_t *tile = tile_of(t, row, col);
        uint32_t r = row % RN_TILE_ROWS, c = col % RN_TILE_COLS;
        n = rn_min_u64(RN_TILE_COLS - c, count);
        for (uint32_t i = 0; i < n; i++)
            memcpy(tile + rn_tile_half_at(r, c + i), from + 2 * i, 2);
    }
}

// e5m2 is the upper half of f16.
static void put_e5m2(const rn_tiler *t, uint64_t row, uint64_t col, uint8_t byte) {
    uint8_t half[2] = {0, byte};
    put_halves(t, row, col, half, 1);
}

static void put_bytes(const rn_tiler *t, uint64_t row, uint64_t col, const uint8_t *from,
                      uint64_t count) {
    for (uint64_t n; count > 0; col += n, from += n, count -= n) {
        uint8_t *tile = tile_of(t, row, col);
        uint32_t r = row % RN_TILE_ROWS, c = col % RN_TILE_COLS;
        n = rn_min_u64(RN_TILE_COLS - c, count);
        for (uint32_t i = 0; i < n; i++)
            tile[rn_tile_byte_at(r, c + i)] = from[i] ^ 0x80;
    }
}

static void put_nibble(uint8_t *tile, uint32_t row, uint32_t col, int q) {
    uint8_t *byte = tile + rn_tile_nibble_at(row, col);
    int shift = rn_tile_nibble_shift(row);
    *byte = (uint8_t)((*byte & ~(15 << shift)) | q << shift);
}

// The low halves, or with `shift` 4 the high ones, of `count` bytes.
static void put_nibbles(const rn_tiler *t, uint64_t row, uint64_t col, const uint8_t *from,
                        int shift, uint64_t count) {
    for (uint64_t n; count > 0; col += n, from += n, count -= n) {
        uint8_t *tile = tile_of(t, row, col);
        uint32_t r = row % RN_TILE_ROWS, c = col % RN_TILE_COLS;
        n = rn_min_u64(RN_TILE_COLS - c, count);
        for (uint32_t i = 0; i < n; i++)
            put_nibble(tile, r, c + i, from[i] >> shift & 15);
    }
}

// Of the 32 columns that `col` is of. is_second: an offset.
static void put_scale(const rn_tiler *t, uint64_t row, uint64_t col, bool is_second,
                      uint16_t half) {
    uint8_t *scales =
        tile_of(t, row, col) + t->quants_bytes + (is_second ? RN_TILE_SCALES_BYTES : 0);
    rn_store_u16(scales + rn_tile_scale_at(row % RN_TILE_ROWS, col % RN_TILE_COLS), half);
}

static void put_q8_0(const rn_tiler *t, uint64_t row, uint64_t col, const uint8_t *block) {
    put_scale(t, row, col, false, rn_load_u16(block));
    put_bytes(t, row, col, block + 2, 32);
}

static void put_q4_0(const rn_tiler *t, uint64_t row, uint64_t col, const uint8_t *block) {
    put_scale(t, row, col, false, rn_load_u16(block));
    put_nibbles(t, row, col, block + 2, 0, 16);
    put_nibbles(t, row, col + 16, block + 2, 4, 16);
}

static void put_q4_k(const rn_tiler *t, uint64_t row, uint64_t col, const uint8_t *block) {
    float scales[16];
    rn_tile_q4_k_scales(block, scales);
    for (int part = 0; part < 8; part++, col += 32) {
        put_scale(t, row, col, false, rn_f16_narrow(scales[part]));
        put_scale(t, row, col, true, rn_f16_narrow(scales[8 + part]));
        put_nibbles(t, row, col, block + 16 + part / 2 * 32, part % 2 ? 4 : 0, 32);
    }
}

static void put_word(uint8_t *at, uint32_t shift, uint32_t mask, uint32_t bits) {
    uint32_t word;
    memcpy(&word, at, sizeof word);
    word = (word & ~(mask << shift)) | (bits & mask) << shift;
    memcpy(at, &word, sizeof word);
}

static void put_pair(uint8_t *tile, uint32_t row, uint32_t col, int q) {
    uint8_t *byte = tile + rn_tile_pair_at(row, col);
    int shift = rn_tile_pair_shift(col);
    *byte = (uint8_t)((*byte & ~(15 << shift)) | q << shift);
}

static void put_in_plane(rn_tile_plane plane, uint8_t *to, uint32_t r, uint32_t c, uint32_t q) {
    if (plane == RN_PLANE_BYTES) to[rn_tile_byte_at(r, c)] = (uint8_t)q;
    if (plane == RN_PLANE_NIBBLES) put_nibble(to, r, c, (int)(q & 15));
    if (plane == RN_PLANE_PAIRS) put_pair(to, r, c, (int)q);
    if (plane == RN_PLANE_CRUMBS)
        put_word(to + rn_tile_crumb_at(r, c), rn_tile_crumb_shift(r, c), 3, q);
    if (plane == RN_PLANE_BITS) put_word(to + rn_tile_bit_at(r, c), rn_tile_bit_shift(r, c), 1, q);
}

static void put_row_scales(const rn_tiler *t, uint64_t row, uint64_t col, const rn_tile_row *from,
                           uint32_t cols) {
    const rn_tile_planes *planes = rn_tile_planes_of(t->form);
    uint32_t r = row % RN_TILE_ROWS;
    for (uint32_t e = 0; e < cols; e += planes->wholes ? 16 : 32) {
        uint8_t *scales = tile_of(t, row, col + e) + t->quants_bytes;
        uint32_t c = (col + e) % RN_TILE_COLS;
        if (planes->wholes) scales[rn_tile_small_at(r, c)] = from->small[e / 16];
        for (uint32_t i = 0; i < planes->wholes; i++)
            rn_store_u16(scales + rn_tile_whole_at(r, i, planes->wholes), from->whole[i]);
        if (planes->wholes) continue;
        put_scale(t, row, col + e, false, from->scales[e / 32]);
        if (planes->scales > 1) put_scale(t, row, col + e, true, from->offsets[e / 32]);
    }
}

// A block that is taken apart first.
static void put_block(const rn_tiler *t, uint64_t row, uint64_t col, const uint8_t *block) {
    const source *s = &sources[t->dtype];
    const rn_tile_planes *planes = rn_tile_planes_of(t->form);
    uint32_t low = rn_tile_plane_bytes(planes->low), r = row % RN_TILE_ROWS;
    rn_tile_row values;
    s->read(block, 0, &values);
    for (uint32_t e = 0; e < s->unit_cols; e++) {
        uint8_t *tile = tile_of(t, row, col + e);
        uint32_t c = (col + e) % RN_TILE_COLS, q = values.q[e];
        put_in_plane(planes->low, tile, r, c, q);
        put_in_plane(planes->high, tile + low, r, c, q >> planes->high_from);
    }
    put_row_scales(t, row, col, &values, s->unit_cols);
}

static void put_nf4(const rn_tiler *t, uint64_t row, uint64_t col, uint8_t byte) {
    uint8_t *tile = tile_of(t, row, col);
    uint32_t r = row % RN_TILE_ROWS, c = col % RN_TILE_COLS;
    put_pair(tile, r, c, byte >> 4);
    put_pair(tile, r, c + 1, byte & 15);
}

// Byte number `at` of the file has value `at` and, half of all further on, another one.
static void put_int4(const rn_tiler *t, uint64_t at, const uint8_t *from, uint64_t count) {
    uint64_t far = t->parts.bytes[RN_COMPONENT_DATA] + at;
    put_nibbles(t, at / t->cols, at % t->cols, from, 0, count);
    for (uint64_t n; count > 0 && far / t->cols < t->rows; far += n, from += n, count -= n) {
        n = rn_min_u64(t->cols - far % t->cols, count);
        put_nibbles(t, far / t->cols, far % t->cols, from, 4, n);
    }
}

// `count` units of one row (of int4's first half).
static void put_units(const rn_tiler *t, uint64_t row, uint64_t col, const uint8_t *from,
                      uint64_t count) {
    const source *s = &sources[t->dtype];
    for (; s->read && count > 0; count--, from += s->unit_bytes, col += s->unit_cols)
        put_block(t, row, col, from);
    if (s->read) return;
    switch (t->dtype) {
#define EACH(unit_cols, unit_bytes, call)                                                          \
    for (; count > 0; count--, from += (unit_bytes), col += (unit_cols))                           \
        call;                                                                                      \
    break;
    case RN_DTYPE_Q8_0:
        EACH(32, 34, put_q8_0(t, row, col, from))
    case RN_DTYPE_Q4_0:
        EACH(32, 18, put_q4_0(t, row, col, from))
    case RN_DTYPE_Q4_K:
        EACH(256, 144, put_q4_k(t, row, col, from))
    case RN_DTYPE_NF4:
        EACH(2, 1, put_nf4(t, row, col, *from))
    case RN_DTYPE_F8_E5M2:
        EACH(1, 1, put_e5m2(t, row, col, *from))
#undef EACH
    case RN_DTYPE_INT4:
        put_int4(t, row * t->cols + col, from, count);
        break;
    case RN_DTYPE_INT8:
        put_bytes(t, row, col, from, count);
        break;
    default:
        put_halves(t, row, col, from, count);
    }
}

// ---- scales that are parts of their own ---------------------------------------------------------

// int4's are of groups, nf4's of blocks of the flat tensor: of `values` values each. Floats `first`
// to `first` + `count` of the part.
static void put_group_scales(const rn_tiler *t, bool is_offset, uint64_t first,
                             const uint16_t *halves, uint64_t count) {
    uint64_t values = t->dtype == RN_DTYPE_NF4 ? RN_NF4_BLOCK : rn_quant_int4_group(t->cols);
    uint64_t row = first * values / t->cols, col = first * values % t->cols;
    for (uint64_t n = 0; n < count; n++)
        for (uint64_t k = 0; k < values && row < t->rows; k += 32) {
            put_scale(t, row, col, is_offset, halves[n]);
            col += 32;
            if (col == t->cols) row++, col = 0;
        }
}

// Some floats of a part; each has its own places, so that threads may take shares.
typedef struct floats_of {
    const rn_tiler *tiler;
    rn_component part;
    const uint8_t *from;
    uint64_t first, count;
} floats_of;
enum { SHARE_FLOATS = 2048 };

static void put_share(void *arg, size_t index) {
    const floats_of *f = arg;
    uint64_t at = index * SHARE_FLOATS, count = rn_min_u64(SHARE_FLOATS, f->count - at);
    bool is_offset = f->part == RN_COMPONENT_SHIFT;
    float values[SHARE_FLOATS];
    uint16_t halves[SHARE_FLOATS];
    memcpy(values, f->from + 4 * at, 4 * count);
    for (uint64_t i = 0; is_offset && i < count; i++)
        values[i] = 0.0f - values[i];
    rn_convert_kernels_get()->narrow_f16(values, halves, count);
    put_group_scales(f->tiler, is_offset, f->first + at, halves, count);
}

static void run(const rn_tiler *t, uint64_t shares, rn_task share, void *arg) {
    if (t->workers && shares > 1)
        rn_workers_run(t->workers, shares, share, arg);
    else
        for (uint64_t i = 0; i < shares; i++)
            share(arg, i);
}

// int8 has a float a row, which stays one.
static void put_floats(const rn_tiler *t, rn_component part, uint64_t first, const uint8_t *from,
                       uint64_t count) {
    floats_of f = {t, part, from, first, count};
    if (t->dtype == RN_DTYPE_INT8)
        memcpy(tile_of(t, rn_round_up(t->rows, RN_TILE_ROWS), 0) + 4 * first, from, 4 * count);
    else
        run(t, rn_div_up(count, SHARE_FLOATS), put_share, &f);
}

// ---- strips -------------------------------------------------------------------------------------

// Rows that lie whole in a piece.
typedef struct rows_of {
    const rn_tiler *tiler;
    const uint8_t *from;
    uint64_t row, count, row_bytes; // row: a multiple of 16
    uint64_t cells, part_cells;     // of a strip, of a share of it
} rows_of;

// int4's file has two rows in one, whose strips are half of all strips apart.
static bool has_strips(const rn_tiler *t) {
    return t->dtype != RN_DTYPE_INT4 || t->rows % (2 * RN_TILE_ROWS) == 0;
}

static uint64_t row_bytes_of(const rn_tiler *t) {
    const source *s = &sources[t->dtype];
    return t->cols / s->unit_cols * s->unit_bytes;
}

static void pack_blocks(const rn_tiler *t, uint64_t row, uint64_t col, const uint8_t *from,
                        uint64_t step) {
    const source *s = &sources[t->dtype];
    rn_tile_row rows[RN_TILE_ROWS];
    for (uint64_t r = 0; r < RN_TILE_ROWS; r++)
        for (uint32_t part = 0; part < s->cell_cols / s->unit_cols; part++)
            s->read(from + r * step + (uint64_t)part * s->unit_bytes, part, &rows[r]);
    for (uint32_t c = 0; c < s->cell_cols; c += RN_TILE_COLS)
        rn_tile_pack_rows(t->form, rows, c, tile_of(t, row, col + c));
}

static void pack_cell(const rn_tiler *t, uint64_t row, uint64_t cell, const uint8_t *from,
                      uint64_t step) {
    const source *s = &sources[t->dtype];
    uint64_t col = cell * s->cell_cols;
    if (s->read) {
        pack_blocks(t, row, col, from, step);
        return;
    }
    s->pack(from, step, tile_of(t, row, col));
    if (t->dtype == RN_DTYPE_INT4)
        rn_tile_pack_int4_high(from, step, tile_of(t, row + t->rows / 2, col));
}

// A cell without all its rows or columns.
static void pack_edge(const rn_tiler *t, uint64_t row, uint64_t cell, const uint8_t *from,
                      uint64_t step, uint64_t rows, uint64_t bytes) {
    uint64_t cell_bytes = sources[t->dtype].cell_bytes;
    uint8_t whole[RN_TILE_ROWS * CELL_BYTES_MOST] = {0};
    for (uint64_t r = 0; r < rows; r++)
        memcpy(whole + r * cell_bytes, from + r * step, bytes);
    pack_cell(t, row, cell, whole, cell_bytes);
}

// Share `index`: some cells of one strip.
static void pack_share(void *arg, size_t index) {
    const rows_of *r = arg;
    uint64_t parts = rn_div_up(r->cells, r->part_cells), strip = index / parts;
    uint64_t cell = index % parts * r->part_cells, end = rn_min_u64(cell + r->part_cells, r->cells);
    uint64_t first = strip * RN_TILE_ROWS, rows = rn_min_u64(RN_TILE_ROWS, r->count - first);
    uint64_t cell_bytes = sources[r->tiler->dtype].cell_bytes;
    const uint8_t *from = r->from + first * r->row_bytes;
    for (; cell < end; cell++) {
        uint64_t at = cell * cell_bytes, bytes = rn_min_u64(cell_bytes, r->row_bytes - at);
        if (rows == RN_TILE_ROWS && bytes == cell_bytes)
            pack_cell(r->tiler, r->row + first, cell, from + at, r->row_bytes);
        else
            pack_edge(r->tiler, r->row + first, cell, from + at, r->row_bytes, rows, bytes);
    }
    rn_tile_pack_end();
}

// Whole strips from `offset` on; returns how many bytes that were, 0: not at a strip's beginning,
// or not a whole one.
static uint64_t take_strips(const rn_tiler *t, uint64_t offset, const uint8_t *from,
                            uint64_t bytes) {
    enum { LEAST = 32 << 10 }; // worth a thread's while
    const source *s = &sources[t->dtype];
    uint64_t row_bytes = row_bytes_of(t), row = offset / row_bytes;
    uint64_t file_rows = t->parts.bytes[RN_COMPONENT_DATA] / row_bytes, count = bytes / row_bytes;
    if (!has_strips(t) || offset % (row_bytes * RN_TILE_ROWS) != 0) return 0;
    if (row + count < file_rows) count = rn_round_down(count, RN_TILE_ROWS);
    rows_of r = {.tiler = t, .from = from, .row = row, .count = count, .row_bytes = row_bytes};
    r.cells = rn_div_up(t->cols, s->cell_cols);
    r.part_cells = rn_div_up(LEAST, (uint64_t)s->cell_bytes * RN_TILE_ROWS);
    uint64_t shares = rn_div_up(count, RN_TILE_ROWS) * rn_div_up(r.cells, r.part_cells);
    run(t, shares, pack_share, &r);
    return count * row_bytes;
}

// ---- pieces -------------------------------------------------------------------------------------

// Whole units, of the data to the end of a row at most; returns bytes taken.
static uint64_t take_units(const rn_tiler *t, rn_component part, uint64_t offset,
                           const uint8_t *from, uint64_t bytes) {
    const source *s = &sources[t->dtype];
    if (part != RN_COMPONENT_DATA) {
        put_floats(t, part, offset / 4, from, bytes / 4);
        return rn_round_down(bytes, 4);
    }
    uint64_t row_bytes = row_bytes_of(t), row = offset / row_bytes, at = offset % row_bytes;
    uint64_t count = rn_min_u64(row_bytes - at, bytes) / s->unit_bytes;
    put_units(t, row, at / s->unit_bytes * s->unit_cols, from, count);
    return count * s->unit_bytes;
}

static uint32_t unit_bytes_of(const rn_tiler *t, rn_component part) {
    return part == RN_COMPONENT_DATA ? sources[t->dtype].unit_bytes : sizeof(float);
}

// The rest of a unit that was cut, or the beginning of one that will be; returns bytes taken.
static uint64_t keep(rn_tiler *t, rn_component part, uint64_t offset, const uint8_t *from,
                     uint64_t bytes) {
    uint32_t unit = unit_bytes_of(t, part);
    uint64_t take = rn_min_u64(unit - t->kept_bytes, bytes);
    memcpy(t->kept + t->kept_bytes, from, take);
    t->kept_bytes += (uint32_t)take;
    if (t->kept_bytes < unit) return take;
    take_units(t, part, offset + take - unit, t->kept, unit);
    t->kept_bytes = 0;
    return take;
}

static void take(rn_tiler *t, rn_component part, uint64_t offset, const uint8_t *from,
                 uint64_t bytes) {
    for (uint64_t done; bytes > 0; offset += done, from += done, bytes -= done) {
        if (t->kept_bytes > 0 || bytes < unit_bytes_of(t, part)) {
            done = keep(t, part, offset, from, bytes);
            continue;
        }
        done = part == RN_COMPONENT_DATA ? take_strips(t, offset, from, bytes) : 0;
        if (done == 0) done = take_units(t, part, offset, from, bytes);
    }
}

// ---- the tiler ----------------------------------------------------------------------------------

// A weight of zero, where it has no scale: bytes are + 128.
static void clear_tile(const rn_tiler *t, uint8_t *tile) {
    bool bytes = t->form == RN_TILE_Q8 || t->form == RN_TILE_I8;
    memset(tile, bytes ? 0x80 : 0, t->quants_bytes);
    memset(tile + t->quants_bytes, 0, t->tile_bytes - t->quants_bytes);
}

// What no piece writes: the last strip where it lacks rows, the last tile of strips that lack
// columns.
static void clear_edges(const rn_tiler *t) {
    uint64_t col = (t->tile_cols - 1) * RN_TILE_COLS, last = t->rows - t->rows % RN_TILE_ROWS;
    uint64_t strips = rn_div_up(t->rows, RN_TILE_ROWS);
    if (t->cols % RN_TILE_COLS != 0)
        for (uint64_t row = 0; row < last; row += RN_TILE_ROWS)
            clear_tile(t, tile_of(t, row, col));
    if (last == t->rows) return;
    for (uint64_t c = 0; c < t->cols; c += RN_TILE_COLS)
        clear_tile(t, tile_of(t, last, c));
    if (t->form == RN_TILE_I8)
        memset(tile_of(t, strips * RN_TILE_ROWS, 0) + last * sizeof(float), 0,
               RN_TILE_ROWS * sizeof(float));
}

rn_status rn_tiler_begin(rn_tiler *t, rn_dtype dtype, uint64_t rows, uint64_t cols,
                         uint8_t *target) {
    uint64_t bytes = 0;
    rn_tile_form form = rn_tile_form_of(dtype);
    *t = (rn_tiler){.dtype = dtype,
                    .form = form,
                    .tile_bytes = rn_tile_bytes(form),
                    .quants_bytes = rn_tile_quants_bytes(form),
                    .rows = rows,
                    .cols = cols,
                    .tile_cols = rn_div_up(cols, RN_TILE_COLS),
                    .target = target};
    if (!rn_tiles_bytes(dtype, rows, cols, &bytes) ||
        !rn_plain_components_of(dtype, rows, cols, &t->parts))
        return rn_fail(RN_INVALID, "a weight (%llu, %llu) of %s has no tiles",
                       (unsigned long long)rows, (unsigned long long)cols,
                       rn_dtype_get(dtype)->name);
    if (bytes > 0) clear_edges(t);
    return RN_OK;
}

rn_status rn_tiler_take(rn_tiler *t, rn_component part, uint64_t offset, const void *data,
                        uint64_t bytes) {
    bool is_next = (unsigned)part < RN_COMPONENT_COUNT && offset == t->done[part] &&
                   bytes <= t->parts.bytes[part] - offset;
    for (unsigned before = 0; is_next && before < (unsigned)part; before++)
        is_next = t->done[before] == t->parts.bytes[before];
    if (!is_next)
        return rn_fail(RN_INVALID, "%llu bytes at %llu are not the next piece of this weight",
                       (unsigned long long)bytes, (unsigned long long)offset);
    t->done[part] += bytes;
    take(t, part, offset, data, bytes);
    return RN_OK;
}

// ---- the layout ---------------------------------------------------------------------------------

_Static_assert(sizeof(rn_tiler) <= sizeof(rn_packer_room), "a tiler has room");

static rn_tiler *tiler_in(rn_packer_room *room) {
    return (rn_tiler *)(void *)room;
}

static rn_status begin_layout(rn_packer_room *room, rn_dtype dtype, const uint64_t *dims,
                              uint32_t rank, rn_workers *workers, uint8_t *target) {
    rn_tiler *t = tiler_in(room);
    if (rank != 2) return rn_fail(RN_INVALID, "tiles are for matrices");
    RN_TRY(rn_tiler_begin(t, dtype, dims[0], dims[1], target));
    t->workers = workers;
    return RN_OK;
}

static rn_status take_layout(rn_packer_room *room, rn_component part, uint64_t offset,
                             const void *data, uint64_t bytes) {
    return rn_tiler_take(tiler_in(room), part, offset, data, bytes);
}

// A row of int4's file is two of the weight, which go to different tiles.
static uint64_t rows_together(rn_dtype dtype) {
    return RN_TILE_ROWS * (dtype == RN_DTYPE_INT4 ? 2 : 1);
}

const rn_layout_info rn_tiles_layout = {
    .name = "tiles",
    .bytes = rn_tiles_bytes,
    .begin = begin_layout,
    .take = take_layout,
    .rows_together = rows_together,
};

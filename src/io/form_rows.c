// form_rows.c — a form's tensors to rows of what it becomes.
//
//     files ──▶ band: some rows of each tensor ──▶ unit: 16 rows as codes, scales, zeros ──▶ kind
//
// So a form is how codes, scales and zeros are found, a kind how they are put together, and neither
// knows the other. A tensor of a band is in lines: where rows of the weight are rows of the tensor,
// one run of bytes; where they are its columns (gptq, awq), a piece of every line. Pieces are read
// through the page cache, since a line is visited once a band.
#include "io/weight_forms_internal.h"

#include "base/checked.h"
#include "tensor/quant.h"
#include "tensor/small_float.h"

#include <math.h>

enum { UNIT_ROWS = 16, ALIGN = 64, MOST_BAND_ROWS = 4096 };

// A tensor of a form, as memory holds some rows of it.
typedef struct plane {
    const rn_tensor_info *tensor; // NULL: there is none
    bool columns;                 // rows of the weight are columns of the tensor
    uint64_t cell_rows;           // rows of the weight that a cell is for
    uint64_t cell_bytes;
    uint64_t lines; // columns: of the tensor; else 1
    // What is there:
    uint64_t first_cell, cells;
    uint8_t *bytes; // (lines, cells, cell_bytes)
} plane;

typedef struct band {
    uint64_t first, rows;
    plane data, scale, zero;
} band;

// 16 rows, decoded.
typedef struct unit {
    uint8_t *codes; // (16, cols): unsigned numbers, e4m3 or e2m1, one a byte
    float *scales;  // (16, groups)
    int16_t *zeros; // (16, groups)
} unit;

typedef struct reading {
    const rn_checkpoint *checkpoint;
    const rn_weight_form *form;
    band bands[2]; // int4 puts two rows into a byte
    unit units[2];
    uint64_t band_rows;
    int32_t *order; // (cols) where groups are not runs of columns
    float factor;   // nvfp4
    uint8_t *out;   // (out_bytes)
    rn_form_piece piece;
    void *self;
} reading;

// ---- planes -------------------------------------------------------------------------------------

static plane plane_of(const rn_tensor_info *tensor, bool columns, uint64_t cell_rows,
                      uint64_t lines, uint64_t cell_bytes) {
    if (!tensor) return (plane){0};
    return (plane){.tensor = tensor,
                   .columns = columns,
                   .cell_rows = cell_rows,
                   .cell_bytes = cell_bytes,
                   .lines = columns ? lines : 1};
}

static void lay_out_planes(const rn_weight_form *f, band *b) {
    bool columns = f->kind == RN_FORM_GPTQ || f->kind == RN_FORM_AWQ;
    uint64_t each = 32 / f->bits, scale_bytes = rn_dtype_get(f->scale->dtype)->block_bytes;
    if (f->kind == RN_FORM_GPTQ)
        b->data = plane_of(f->data, true, 1, f->cols / each, 4);
    else if (f->kind == RN_FORM_AWQ)
        b->data = plane_of(f->data, true, each, f->cols, 4);
    else
        b->data = plane_of(f->data, false, 1, 1, f->data->bytes / f->rows);
    b->scale = plane_of(f->scale, columns, f->scale_rows, f->group_count,
                        columns ? scale_bytes : scale_bytes * f->group_count);
    if (f->kind == RN_FORM_NBITS)
        b->zero = plane_of(f->zero, false, 1, 1, rn_div_up(f->group_count, 2));
    else if (f->kind == RN_FORM_LINEAR)
        b->zero = plane_of(f->zero, false, f->scale_rows, 1, f->group_count);
    else
        b->zero =
            plane_of(f->zero, columns, each, f->group_count, columns ? 4 : 4 * f->group_count);
}

static uint64_t plane_bytes(const plane *p, uint64_t rows) {
    if (!p->tensor) return 0;
    uint64_t cells = rn_div_up(rows, p->cell_rows) + (p->cell_rows > 1); // may begin within a cell
    return rn_round_up(p->lines * cells * p->cell_bytes, ALIGN);
}

static rn_status read_plane(const rn_checkpoint *checkpoint, plane *p, uint64_t first,
                            uint64_t rows) {
    if (!p->tensor) return RN_OK;
    p->first_cell = first / p->cell_rows;
    p->cells = rn_div_up(first + rows, p->cell_rows) - p->first_cell;
    uint64_t run = p->cells * p->cell_bytes, line_bytes = p->tensor->bytes / p->lines;
    for (uint64_t line = 0; line < p->lines; line++)
        RN_TRY(rn_checkpoint_read(checkpoint, p->tensor,
                                  line * line_bytes + p->first_cell * p->cell_bytes,
                                  p->bytes + line * run, run));
    return RN_OK;
}

static const uint8_t *cell_at(const plane *p, uint64_t line, uint64_t row) {
    return p->bytes + (line * p->cells + row / p->cell_rows - p->first_cell) * p->cell_bytes;
}

static uint32_t word_at(const uint8_t *bytes) {
    uint32_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

// ---- codes --------------------------------------------------------------------------------------

// The place of row r of eight in awq's word, whose nibbles are rows 0 2 4 6 1 3 5 7.
static const uint8_t awq_shift[8] = {0, 16, 4, 20, 8, 24, 12, 28};

static void decode_nibbles(const uint8_t *from, uint64_t cols, uint8_t *codes) {
    for (uint64_t c = 0; c < cols; c++)
        codes[c] = from[c / 2] >> c % 2 * 4 & 15;
}

static void decode_gptq(const rn_weight_form *f, const plane *p, uint64_t row, uint64_t count,
                        uint8_t *codes) {
    uint32_t each = 32 / f->bits, mask = (1u << f->bits) - 1;
    for (uint64_t line = 0; line < p->lines; line++)
        for (uint64_t r = 0; r < count; r++) {
            uint32_t word = word_at(cell_at(p, line, row + r));
            for (uint32_t j = 0; j < each; j++)
                codes[r * f->cols + line * each + j] = (uint8_t)(word >> f->bits * j & mask);
        }
}

static void decode_awq(const rn_weight_form *f, const plane *p, uint64_t row, uint64_t count,
                       uint8_t *codes) {
    for (uint64_t k = 0; k < f->cols; k++)
        for (uint64_t r = 0; r < count; r++)
            codes[r * f->cols + k] =
                word_at(cell_at(p, k, row + r)) >> awq_shift[(row + r) % 8] & 15;
}

static bool is_signed(const rn_weight_form *f) {
    return f->kind == RN_FORM_INT8 || (f->kind == RN_FORM_LINEAR && f->data->dtype == RN_DTYPE_I8);
}

static void decode_codes(const rn_weight_form *f, const plane *p, uint64_t row, uint64_t count,
                         uint8_t *codes) {
    if (f->kind == RN_FORM_GPTQ) {
        decode_gptq(f, p, row, count, codes);
        return;
    }
    if (f->kind == RN_FORM_AWQ) {
        decode_awq(f, p, row, count, codes);
        return;
    }
    for (uint64_t r = 0; r < count; r++, codes += f->cols) {
        const uint8_t *from = cell_at(p, 0, row + r);
        if (f->bits == 4)
            decode_nibbles(from, f->cols, codes);
        else
            memcpy(codes, from, f->cols);
        for (uint64_t c = 0; is_signed(f) && c < f->cols; c++)
            codes[c] ^= 0x80; // from signed to above the middle
    }
}

// ---- scales -------------------------------------------------------------------------------------

static rn_status bad_scale(const reading *r, uint64_t row, double scale) {
    const rn_tensor_info *t = r->form->scale;
    rn_status s = rn_fail(RN_CORRUPT, "tensor '%.*s': the scale of row %llu is %g",
                          RN_STR_ARG(t->name), (unsigned long long)row, scale);
    return rn_hint(rn_form_blame(r->checkpoint, t, s),
                   "the checkpoint is damaged, or its conversion overflowed");
}

// gpt-oss stores e8m0 as u8.
static rn_dtype scale_dtype(const rn_weight_form *f) {
    return f->kind == RN_FORM_MXFP4 ? RN_DTYPE_F8_E8M0 : f->scale->dtype;
}

static rn_status decode_scales(const reading *r, const band *b, uint64_t row, uint64_t count,
                               float *scales) {
    const rn_weight_form *f = r->form;
    const plane *p = &b->scale;
    float some[UNIT_ROWS];
    for (uint64_t i = 0; !p->columns && i < count; i++)
        RN_TRY(rn_dtype_to_f32(scale_dtype(f), cell_at(p, 0, row + i), scales + i * f->group_count,
                               f->group_count));
    for (uint64_t g = 0; p->columns && g < f->group_count; g++) {
        RN_TRY(rn_dtype_to_f32(f->scale->dtype, cell_at(p, g, row), some, count));
        for (uint64_t i = 0; i < count; i++)
            scales[i * f->group_count + g] = some[i];
    }
    for (uint64_t i = 0; i < count * f->group_count; i++)
        if (!isfinite(scales[i]) || (f->kind == RN_FORM_NVFP4 && signbit(scales[i])))
            return bad_scale(r, row + i / f->group_count, (double)scales[i]);
    return RN_OK;
}

// ---- zeros --------------------------------------------------------------------------------------

static int zero_at(const rn_weight_form *f, const plane *p, uint64_t row, uint64_t g) {
    uint32_t each = 32 / f->bits, mask = (1u << f->bits) - 1;
    if (f->kind == RN_FORM_NBITS) return cell_at(p, 0, row)[g / 2] >> g % 2 * 4 & 15;
    if (f->kind == RN_FORM_LINEAR) return cell_at(p, 0, row)[g] ^ (is_signed(f) ? 0x80 : 0);
    const uint8_t *cell = p->columns ? cell_at(p, g, row) : cell_at(p, 0, row) + 4 * g;
    uint32_t shift = f->kind == RN_FORM_AWQ ? awq_shift[row % 8] : f->bits * (row % each);
    return (int)(word_at(cell) >> shift & mask) + f->zero_plus_one;
}

static rn_status decode_zeros(const reading *r, const band *b, uint64_t row, uint64_t count,
                              int16_t *zeros) {
    const rn_weight_form *f = r->form;
    for (uint64_t i = 0; i < count * f->group_count; i++) {
        int middle = f->kind == RN_FORM_LINEAR && !is_signed(f) ? 0 : rn_form_middle(f->bits);
        uint64_t at = row + i / f->group_count;
        zeros[i] = (int16_t)(f->zero ? zero_at(f, &b->zero, at, i % f->group_count) : middle);
        if (!f->symmetric || zeros[i] == middle) continue;
        rn_status s = rn_fail(RN_CORRUPT, "tensor '%.*s': the zero of row %llu is %d, not %d",
                              RN_STR_ARG(f->zero->name), (unsigned long long)at, zeros[i], middle);
        return rn_hint(rn_form_blame(r->checkpoint, f->zero, s),
                       "quantization_config says sym: true; if that is wrong, say false, and if "
                       "zeros are one too high, checkpoint_format: gptq_v2");
    }
    return RN_OK;
}

// ---- bands and units ----------------------------------------------------------------------------

static rn_status read_band(reading *r, band *b, uint64_t first, uint64_t rows, bool with_data) {
    b->first = first;
    b->rows = rows;
    if (with_data) RN_TRY(read_plane(r->checkpoint, &b->data, first, rows));
    RN_TRY(read_plane(r->checkpoint, &b->scale, first, rows));
    return read_plane(r->checkpoint, &b->zero, first, rows);
}

static rn_status decode_unit(const reading *r, const band *b, uint64_t row, uint64_t count,
                             bool with_data, unit *u) {
    if (with_data) decode_codes(r->form, &b->data, row, count, u->codes);
    RN_TRY(decode_scales(r, b, row, count, u->scales));
    return decode_zeros(r, b, row, count, u->zeros);
}

// ---- kinds --------------------------------------------------------------------------------------

// A row of a unit.
typedef struct coded_row {
    const uint8_t *codes;       // (cols)
    const float *scales;        // (groups)
    const int16_t *zeros;       // (groups)
    const uint8_t *file_scales; // fp4: as in the file
} coded_row;

static void put_float(uint8_t *to, float value) {
    memcpy(to, &value, sizeof value);
}

// `count` codes, the first half in low nibbles.
static void put_nibbles(const uint8_t *codes, int count, uint8_t *to) {
    for (int j = 0; j < count / 2; j++)
        to[j] = (uint8_t)(codes[j] | codes[j + count / 2] << 4);
}

// False: the scale is too large for f16.
static bool put_block(const rn_weight_form *f, const coded_row *row, uint64_t c, float factor,
                      uint8_t *to) {
    uint64_t g = c / f->group;
    const uint8_t *codes = row->codes + c;
    uint16_t half = rn_f16_narrow(row->scales[g]);
    switch (f->dtype) {
    case RN_DTYPE_Q4_0:
        rn_store_u16(to, half);
        put_nibbles(codes, 32, to + 2);
        return (half & 0x7c00) != 0x7c00;
    case RN_DTYPE_Q8_0:
        rn_store_u16(to, half);
        for (int j = 0; j < 32; j++)
            to[2 + j] = codes[j] ^ 0x80;
        return (half & 0x7c00) != 0x7c00;
    case RN_DTYPE_U4_B32:
        put_float(to, row->scales[g]);
        to[4] = (uint8_t)row->zeros[g];
        put_nibbles(codes, 32, to + 5);
        return true;
    case RN_DTYPE_F8_B128:
    case RN_DTYPE_F8_B32:
        put_float(to, row->scales[g]);
        memcpy(to + 4, codes, rn_dtype_get(f->dtype)->block_elements);
        return true;
    case RN_DTYPE_FP4_B64:
        put_float(to, factor);
        memcpy(to + 4, row->file_scales + g, 4);
        for (int part = 0; part < 4; part++)
            put_nibbles(codes + part * 16, 16, to + 8 + part * 8);
        return true;
    default: // mxfp4
        to[0] = row->file_scales[g];
        put_nibbles(codes, 32, to + 1);
        return true;
    }
}

static float number_at(const reading *r, const coded_row *row, uint64_t c) {
    static const float e2m1[16] = {0,    0.5f,  1,  1.5f,  2,  3,  4,  6,
                                   -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    const rn_weight_form *f = r->form;
    uint64_t g = r->order ? (uint64_t)r->order[c] : c / f->group;
    float scale = row->scales[g];
    if (f->kind == RN_FORM_FP8) return rn_e4m3_widen(row->codes[c]) * scale;
    if (f->kind == RN_FORM_NVFP4) return e2m1[row->codes[c]] * scale * r->factor;
    return (float)(row->codes[c] - row->zeros[g]) * scale;
}

static rn_status put_row(const reading *r, const coded_row *row, uint64_t number, uint8_t *to) {
    const rn_weight_form *f = r->form;
    const rn_dtype_info *info = rn_dtype_get(f->dtype);
    if (f->dtype == RN_DTYPE_F32 || f->dtype == RN_DTYPE_F16) {
        for (uint64_t c = 0; c < f->cols; c++) {
            float value = number_at(r, row, c);
            if (f->dtype == RN_DTYPE_F32)
                put_float(to + 4 * c, value);
            else
                rn_store_u16(to + 2 * c, rn_f16_narrow(value));
        }
        return RN_OK;
    }
    for (uint64_t c = 0; c < f->cols; c += info->block_elements, to += info->block_bytes)
        if (!put_block(f, row, c, r->factor, to))
            return bad_scale(r, number, (double)row->scales[c / f->group]);
    return RN_OK;
}

// ---- components ---------------------------------------------------------------------------------

// Rows of every kind that has them one behind the other.
static rn_status send_rows(reading *r, uint64_t first, uint64_t rows, uint64_t row_bytes) {
    const rn_weight_form *f = r->form;
    band *b = &r->bands[0];
    unit *u = &r->units[0];
    for (uint64_t at = 0; at < rows; at += UNIT_ROWS) {
        uint64_t row = first + at, count = rn_min_u64(UNIT_ROWS, rows - at);
        if (at % r->band_rows == 0)
            RN_TRY(read_band(r, b, row, rn_min_u64(r->band_rows, rows - at), true));
        RN_TRY(decode_unit(r, b, row, count, true, u));
        for (uint64_t i = 0; i < count; i++) {
            coded_row coded = {u->codes + i * f->cols, u->scales + i * f->group_count,
                               u->zeros + i * f->group_count,
                               b->scale.columns ? NULL : cell_at(&b->scale, 0, row + i)};
            RN_TRY(put_row(r, &coded, row + i, r->out + i * row_bytes));
        }
        RN_TRY(r->piece(r->self, RN_COMPONENT_DATA, at * row_bytes, r->out, count * row_bytes));
    }
    return RN_OK;
}

static rn_status send_int8(reading *r) {
    const rn_weight_form *f = r->form;
    for (uint64_t row = 0; row < f->rows; row += UNIT_ROWS) {
        uint64_t count = rn_min_u64(UNIT_ROWS, f->rows - row);
        if (row % r->band_rows == 0)
            RN_TRY(read_band(r, &r->bands[0], row, rn_min_u64(r->band_rows, f->rows - row), true));
        decode_codes(f, &r->bands[0].data, row, count, r->units[0].codes);
        for (uint64_t i = 0; i < count * f->cols; i++)
            r->out[i] = r->units[0].codes[i] ^ 0x80;
        RN_TRY(r->piece(r->self, RN_COMPONENT_DATA, row * f->cols, r->out, count * f->cols));
    }
    return RN_OK;
}

// int4 has row r in low nibbles and row r + rows / 2 in high ones.
static rn_status send_int4(reading *r) {
    const rn_weight_form *f = r->form;
    uint64_t half = f->rows / 2;
    for (uint64_t row = 0; row < half; row += UNIT_ROWS) {
        uint64_t count = rn_min_u64(UNIT_ROWS, half - row);
        for (int i = 0; i < 2; i++) {
            uint64_t first = row + (uint64_t)i * half;
            if (row % r->band_rows == 0)
                RN_TRY(
                    read_band(r, &r->bands[i], first, rn_min_u64(r->band_rows, half - row), true));
            decode_codes(f, &r->bands[i].data, first, count, r->units[i].codes);
        }
        for (uint64_t i = 0; i < count * f->cols; i++)
            r->out[i] = (uint8_t)(r->units[0].codes[i] | r->units[1].codes[i] << 4);
        RN_TRY(r->piece(r->self, RN_COMPONENT_DATA, row * f->cols, r->out, count * f->cols));
    }
    return RN_OK;
}

// One scale a row for int8, a scale or zero * scale a group of its own for int4.
static rn_status send_scales(reading *r, rn_component component) {
    const rn_weight_form *f = r->form;
    uint64_t own = f->dtype == RN_DTYPE_INT4 ? rn_quant_int4_group(f->cols) : f->cols;
    uint64_t each = f->cols / own;
    unit *u = &r->units[0];
    for (uint64_t row = 0; row < f->rows; row += UNIT_ROWS) {
        uint64_t count = rn_min_u64(UNIT_ROWS, f->rows - row);
        if (row % r->band_rows == 0)
            RN_TRY(read_band(r, &r->bands[0], row, rn_min_u64(r->band_rows, f->rows - row), false));
        RN_TRY(decode_unit(r, &r->bands[0], row, count, false, u));
        for (uint64_t i = 0; i < count * each; i++) {
            uint64_t g = i / each * f->group_count + i % each * own / f->group;
            float scale = u->scales[g];
            put_float(r->out + 4 * i,
                      component == RN_COMPONENT_SHIFT ? (float)u->zeros[g] * scale : scale);
        }
        RN_TRY(r->piece(r->self, component, row * each * 4, r->out, count * each * 4));
    }
    return RN_OK;
}

static rn_status send(reading *r, uint64_t first, uint64_t rows) {
    const rn_weight_form *f = r->form;
    uint64_t row_bytes;
    if (f->dtype == RN_DTYPE_INT8 || f->dtype == RN_DTYPE_INT4) {
        if (first != 0 || rows != f->rows)
            return rn_fail(RN_INTERNAL, "some rows of '%.*s' alone", RN_STR_ARG(f->name));
        RN_TRY(f->dtype == RN_DTYPE_INT8 ? send_int8(r) : send_int4(r));
        RN_TRY(send_scales(r, RN_COMPONENT_SCALE));
        return f->dtype == RN_DTYPE_INT4 ? send_scales(r, RN_COMPONENT_SHIFT) : RN_OK;
    }
    if (!rn_dtype_bytes(f->dtype, f->cols, &row_bytes) || first > f->rows || rows > f->rows - first)
        return rn_fail(RN_INTERNAL, "rows of '%.*s' that are not there", RN_STR_ARG(f->name));
    return send_rows(r, first, rows, row_bytes);
}

// ---- memory -------------------------------------------------------------------------------------

static uint64_t band_bytes(const rn_weight_form *f, uint64_t rows) {
    band b = {0};
    lay_out_planes(f, &b);
    return plane_bytes(&b.data, rows) + plane_bytes(&b.scale, rows) + plane_bytes(&b.zero, rows);
}

static uint64_t unit_bytes(const rn_weight_form *f) {
    uint64_t per_group = sizeof(float) + sizeof(int16_t);
    return rn_round_up(UNIT_ROWS * (f->cols + f->group_count * per_group), ALIGN) + 2 * ALIGN;
}

static uint64_t out_bytes(const rn_weight_form *f) {
    uint64_t row = f->cols, scales = f->group_count;
    if (f->dtype == RN_DTYPE_INT4) scales = f->cols / rn_quant_int4_group(f->cols);
    if (f->dtype != RN_DTYPE_INT8 && f->dtype != RN_DTYPE_INT4)
        (void)rn_dtype_bytes(f->dtype, f->cols, &row);
    return rn_round_up(UNIT_ROWS * rn_max_u64(row, scales * sizeof(float)), ALIGN);
}

static uint64_t sides(const rn_weight_form *f) {
    return f->dtype == RN_DTYPE_INT4 ? 2 : 1;
}

// All but bands.
static uint64_t fixed_bytes(const rn_weight_form *f) {
    uint64_t order = f->order ? rn_round_up(f->cols * sizeof(int32_t), ALIGN) : 0;
    return sides(f) * unit_bytes(f) + out_bytes(f) + order;
}

static uint64_t fit_band_rows(const rn_weight_form *f, uint64_t bytes) {
    uint64_t rows = UNIT_ROWS, most = rn_min_u64(rn_round_up(f->rows, UNIT_ROWS), MOST_BAND_ROWS);
    while (rows * 2 <= most && fixed_bytes(f) + sides(f) * band_bytes(f, rows * 2) <= bytes)
        rows *= 2;
    return rows;
}

uint64_t rn_form_room_bytes(const rn_weight_form *f, uint64_t wanted) {
    return ALIGN + fixed_bytes(f) + sides(f) * band_bytes(f, fit_band_rows(f, wanted));
}

static uint8_t *take(uint8_t **at, uint64_t bytes) {
    uint8_t *block = *at;
    *at += rn_round_up(bytes, ALIGN);
    return block;
}

static void divide_room(reading *r, uint8_t *at, uint64_t bytes) {
    const rn_weight_form *f = r->form;
    r->band_rows = fit_band_rows(f, bytes);
    for (uint64_t i = 0; i < sides(f); i++) {
        unit *u = &r->units[i];
        band *b = &r->bands[i];
        u->codes = take(&at, UNIT_ROWS * f->cols);
        u->scales = (float *)(void *)take(&at, UNIT_ROWS * f->group_count * sizeof(float));
        u->zeros = (int16_t *)(void *)take(&at, UNIT_ROWS * f->group_count * sizeof(int16_t));
        lay_out_planes(f, b);
        b->data.bytes = take(&at, plane_bytes(&b->data, r->band_rows));
        b->scale.bytes = take(&at, plane_bytes(&b->scale, r->band_rows));
        b->zero.bytes = take(&at, plane_bytes(&b->zero, r->band_rows));
    }
    r->out = take(&at, out_bytes(f));
    r->order = f->order ? (int32_t *)(void *)take(&at, f->cols * sizeof(int32_t)) : NULL;
}

// ---- the call -----------------------------------------------------------------------------------

static rn_status read_order(reading *r) {
    const rn_weight_form *f = r->form;
    RN_TRY(rn_checkpoint_read(r->checkpoint, f->order, 0, r->order, f->cols * sizeof(int32_t)));
    for (uint64_t c = 0; c < f->cols; c++)
        if (r->order[c] < 0 || (uint64_t)r->order[c] >= f->group_count)
            return rn_form_blame(r->checkpoint, f->order,
                                 rn_fail(RN_IO, "tensor '%.*s' has changed since it was opened",
                                         RN_STR_ARG(f->order->name)));
    return RN_OK;
}

static rn_status read_factor(reading *r) {
    const rn_weight_form *f = r->form;
    RN_TRY(rn_checkpoint_read(r->checkpoint, f->factor, 0, &r->factor, sizeof r->factor));
    if (f->divides) r->factor = 1 / r->factor;
    if (isfinite(r->factor)) return RN_OK;
    rn_status s =
        rn_fail(RN_CORRUPT, "tensor '%.*s' is not a finite scale", RN_STR_ARG(f->factor->name));
    return rn_hint(rn_form_blame(r->checkpoint, f->factor, s), "the checkpoint is damaged");
}

static rn_status check_files(const rn_checkpoint *checkpoint, const rn_weight_form *form) {
    const rn_tensor_info *tensors[RN_FORM_TENSORS];
    size_t count = rn_weight_form_tensors(form, tensors);
    for (size_t i = 0; i < count; i++) {
        const rn_opened_file *file = &checkpoint->files[tensors[i]->file];
        if (file->fd >= 0) RN_TRY(rn_file_state_check(&file->state, file->fd, file->info.path));
    }
    return RN_OK;
}

rn_status rn_weight_form_read(const rn_checkpoint *checkpoint, const rn_weight_form *form,
                              uint64_t first, uint64_t rows, rn_form_piece piece, void *self) {
    rn_weight_forms *forms = checkpoint->forms;
    if (form->experts) return rn_form_stack_read(checkpoint, form, first, rows, piece, self);
    reading r = {.checkpoint = checkpoint, .form = form, .piece = piece, .self = self};
    pthread_mutex_lock(&forms->mutex);
    uint8_t *room = forms->room + (-(uintptr_t)forms->room & (ALIGN - 1));
    divide_room(&r, room, forms->room_bytes - (size_t)(room - forms->room));
    rn_status s = form->order ? read_order(&r) : RN_OK;
    if (s == RN_OK && form->factor) s = read_factor(&r);
    if (s == RN_OK) s = send(&r, first, rows);
    if (s == RN_OK) s = check_files(checkpoint, form);
    pthread_mutex_unlock(&forms->mutex);
    return s;
}

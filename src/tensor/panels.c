// panels.c — the sizes of panels, and reading a row back: the drawings of panels.h as code.
//
// A row is read unit by unit: first the unit's bytes of that lane are gathered into the form that
// the file had, then the file's own dequantisation runs. So there is one definition of the numbers.
#include "tensor/panels.h"

#include "base/checked.h"
#include "tensor/panel_form.h"
#include "tensor/quant.h"
#include "tensor/small_float.h"

#include <string.h>

enum { NF4_DQ_UNIT = 528 };

#define FORM(DTYPE, name, sum, offset, most, ...) [RN_DTYPE_##DTYPE] = {__VA_ARGS__},
const rn_panel_form rn_panel_forms[RN_DTYPE_COUNT] = {[RN_DTYPE_F32] = RN_PANEL_FORM_F32,
                                                      [RN_DTYPE_F16] = RN_PANEL_FORM_F16,
                                                      [RN_DTYPE_BF16] = RN_PANEL_FORM_BF16,
                                                      [RN_DTYPE_F8_E4M3] = RN_PANEL_FORM_F8_E4M3,
                                                      [RN_DTYPE_NF4] = RN_PANEL_FORM_NF4,
                                                      [RN_DTYPE_NF4_DQ] = RN_PANEL_FORM_NF4_DQ,
                                                      RN_ROUNDED_KINDS(FORM)};
#undef FORM

// ---- sizes --------------------------------------------------------------------------------------

static bool has_panels(rn_dtype dtype, uint64_t cols) {
    if ((unsigned)dtype >= RN_DTYPE_COUNT || cols == 0) return false;
    if (dtype == RN_DTYPE_INT4) return true;
    if (dtype == RN_DTYPE_NF4_DQ && cols > UINT32_MAX) return false;
    if (dtype == RN_DTYPE_NF4 || dtype == RN_DTYPE_NF4_DQ) return cols % RN_NF4_BLOCK == 0;
    return rn_panel_forms[dtype].cols && cols % rn_dtype_get(dtype)->block_elements == 0;
}

// 16 rows' blocks touch one scale more than they could fill, and one more where they begin within.
static uint64_t nf4_dq_head(uint64_t units) {
    uint64_t nested = (RN_PANEL_ROWS * units - 1) / RN_NF4_NESTED + 2;
    return rn_round_up(sizeof(rn_nf4_dq_head) + nested * sizeof(float), 64);
}

bool rn_panels_of(rn_dtype dtype, uint64_t rows, uint64_t cols, rn_panels *out) {
    *out = (rn_panels){.dtype = dtype, .rows = rows, .cols = cols};
    if (!has_panels(dtype, cols) || cols > UINT64_MAX / 1024) return false;
    if (dtype == RN_DTYPE_INT4) {
        out->unit_cols = rn_quant_int4_group(cols);
        out->unit_bytes = RN_INT4_NIBBLES_AT + rn_div_up(out->unit_cols, 8) * 64;
    } else {
        out->unit_cols = rn_panel_forms[dtype].cols;
        out->unit_bytes = rn_panel_forms[dtype].unit_bytes;
    }
    out->units = rn_div_up(cols, out->unit_cols);
    out->head_bytes = dtype == RN_DTYPE_INT8     ? 64
                      : dtype == RN_DTYPE_NF4_DQ ? nf4_dq_head(out->units)
                                                 : 0;
    out->panel_bytes = rn_round_up(out->head_bytes + out->units * out->unit_bytes, 64);
    out->count = rn_div_up(rows, RN_PANEL_ROWS);
    return true;
}

bool rn_panels_bytes(rn_dtype dtype, uint64_t rows, uint64_t cols, uint64_t *out_bytes) {
    rn_panels panels;
    *out_bytes = 0;
    return rn_panels_of(dtype, rows, cols, &panels) &&
           rn_mul_u64(panels.count, panels.panel_bytes, out_bytes);
}

// ---- reading a row ------------------------------------------------------------------------------

static float float_at(const uint8_t *lanes, int lane) {
    float value;
    memcpy(&value, lanes + 4 * lane, sizeof value);
    return value;
}

// The file's bytes of one lane of a unit.
static void gather(const rn_panel_form *form, const uint8_t *unit, int lane, uint8_t *out) {
    for (int d = 0; d < form->dwords; d++) {
        uint32_t dword;
        memcpy(&dword, unit + form->unit_dwords_at + 64 * d + 4 * lane, sizeof dword);
        dword ^= form->flip;
        memcpy(out + form->file_dwords_at + 4 * d, &dword, sizeof dword);
    }
    const uint64_t width = form->scale_bytes;
    memcpy(out + form->file_scale_at, unit + form->unit_scale_at + width * (uint64_t)lane, width);
}

void rn_panels_lane(rn_dtype dtype, const void *unit, int lane, uint8_t *out) {
    gather(&rn_panel_forms[dtype], unit, lane, out);
}

static void gather_halves(const uint8_t *unit, int lane, uint8_t *out) {
    for (int k = 0; k < 8; k++)
        memcpy(out + 2 * k, unit + 32 * k + 2 * lane, 2);
}

static void restore_int4(const uint8_t *unit, int lane, uint64_t cols, float *out) {
    static const uint8_t shifts[8] = {0, 8, 16, 24, 4, 12, 20, 28};
    float scale = float_at(unit, lane), shift = float_at(unit + 64, lane);
    const uint8_t *from = unit + RN_INT4_NIBBLES_AT + 4 * lane;
    for (uint64_t k = 0; k < cols; k += 8, from += 64) {
        uint8_t q[8];
        uint32_t nibbles;
        memcpy(&nibbles, from, sizeof nibbles);
        for (int i = 0; i < 8; i++)
            q[i] = nibbles >> shifts[i] & 15;
        rn_dequant_int4_groups(q, &scale, &shift, 1, rn_min_u64(8, cols - k), out + k);
    }
}

void rn_panels_absmax(const void *panel, uint64_t unit, float out[RN_PANEL_ROWS]) {
    const rn_nf4_dq_head *head = panel;
    const uint8_t *codes = (const uint8_t *)panel + head->bytes + unit * NF4_DQ_UNIT;
    uint64_t block = head->phase + unit;
    for (int lane = 0; lane < RN_PANEL_ROWS; lane++, block += head->units)
        out[lane] =
            rn_dynamic_map[codes[lane]] * head->nested[block / RN_NF4_NESTED] + head->offset;
}

// A whole unit of 8 to 256 columns.
static void restore_unit(rn_dtype dtype, const uint8_t *panel, const uint8_t *unit, int lane,
                         float *out) {
    uint8_t file[256];
    const rn_panel_form *form = &rn_panel_forms[dtype];
    bool halves = dtype == RN_DTYPE_F16 || dtype == RN_DTYPE_BF16;
    float scale = float_at(dtype == RN_DTYPE_INT8 ? panel : unit, lane);
    if (halves)
        gather_halves(unit, lane, file);
    else
        gather(form, unit, lane, file);
    rn_status s = RN_OK;
    if (dtype == RN_DTYPE_INT8)
        rn_dequant_int8_rows((const int8_t *)file, &scale, 1, form->cols, out);
    else if (dtype == RN_DTYPE_NF4)
        rn_dequant_nf4_blocks(file, &scale, form->cols, out);
    else
        s = rn_dtype_to_f32(dtype, file, out, form->cols); // whole blocks of a readable type: works
    (void)s;
}

static void unpack_f32(const uint8_t *panel, int lane, uint64_t cols, float *out) {
    for (uint64_t k = 0; k < cols; k++)
        out[k] = float_at(panel + k * 64, lane);
}

void rn_panels_unpack_row(const rn_panels *p, const void *data, uint64_t row, float *out) {
    const uint8_t *panel = (const uint8_t *)data + row / RN_PANEL_ROWS * p->panel_bytes;
    int lane = (int)(row % RN_PANEL_ROWS);
    float whole[256];
    if (p->dtype == RN_DTYPE_F32) {
        unpack_f32(panel, lane, p->cols, out);
        return;
    }
    for (uint64_t u = 0, k = 0; u < p->units; u++, k += p->unit_cols) {
        const uint8_t *unit = panel + p->head_bytes + u * p->unit_bytes;
        uint64_t cols = rn_min_u64(p->unit_cols, p->cols - k);
        if (p->dtype == RN_DTYPE_NF4_DQ) {
            uint8_t file[32];
            float absmax[RN_PANEL_ROWS];
            gather(&rn_panel_forms[p->dtype], unit, lane, file);
            rn_panels_absmax(panel, u, absmax);
            rn_dequant_nf4_blocks(file, &absmax[lane], cols, out + k);
        } else if (p->dtype == RN_DTYPE_INT4) {
            restore_int4(unit, lane, cols, out + k);
        } else if (cols == p->unit_cols) {
            restore_unit(p->dtype, panel, unit, lane, out + k);
        } else {
            restore_unit(p->dtype, panel, unit, lane, whole);
            memcpy(out + k, whole, cols * sizeof *out);
        }
    }
}

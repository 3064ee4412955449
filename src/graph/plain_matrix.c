// plain_matrix.c — most dtypes have rows of whole bytes. int4's groups and nf4's blocks run over
// the flat tensor (tensor/quant.h), so that a row may begin in the middle of a byte or share one
// with a far row: int4 is read element by element, nf4 in the blocks that the row touches.
#include "graph/plain_matrix.h"

#include "base/checked.h"
#include "tensor/quant.h"

#include <assert.h>

bool rn_plain_in_one_piece(rn_dtype dtype) {
    return dtype != RN_DTYPE_INT8 && dtype != RN_DTYPE_INT4 && dtype != RN_DTYPE_NF4 &&
           dtype != RN_DTYPE_NF4_DQ;
}

bool rn_plain_readable(rn_dtype dtype) {
    const rn_dtype_info *info = rn_dtype_get(dtype);
    return !rn_plain_in_one_piece(dtype) ||
           (info->readable && (info->is_float || info->block_elements > 1));
}

static uint64_t count_groups(const rn_plain_matrix *m) {
    return m->rows * (m->cols / rn_quant_int4_group(m->cols));
}

static const float *find_part(const rn_plain_matrix *m, const rn_plain_components *parts,
                              rn_component part) {
    if (parts->bytes[part] == 0) return NULL;
    return (const float *)(const void *)(m->data + parts->offset[part]);
}

rn_status rn_plain_matrix_of(const rn_tensor *tensor, rn_plain_matrix *out) {
    uint32_t rank = tensor->shape.rank;
    uint64_t cols = rank ? tensor->shape.dims[rank - 1] : 1;
    rn_plain_components parts;
    *out = (rn_plain_matrix){.dtype = tensor->dtype,
                             .rows = rn_tensor_elements(tensor) / cols,
                             .cols = cols,
                             .data = tensor->data};
    if (tensor->layout != RN_LAYOUT_PLAIN)
        return rn_fail(RN_UNSUPPORTED, "the reference loop reads plain weights, not layout %s",
                       rn_layout_name(tensor->layout));
    if (!rn_plain_components_of(tensor->dtype, out->rows, cols, &parts))
        return rn_fail(RN_INVALID, "%s %s is not in whole blocks",
                       rn_shape_format(tensor->shape).text, rn_dtype_get(tensor->dtype)->name);
    const rn_dtype_info *info = rn_dtype_get(tensor->dtype);
    out->row_bytes = cols / info->block_elements * info->block_bytes;
    out->scale = find_part(out, &parts, RN_COMPONENT_SCALE);
    out->shift = find_part(out, &parts, RN_COMPONENT_SHIFT);
    if (tensor->dtype == RN_DTYPE_NF4_DQ) {
        out->codes = (const uint8_t *)out->scale;
        out->scale = NULL;
        out->nested_count = parts.bytes[RN_COMPONENT_SHIFT] / sizeof(float) - 1;
    }
    return RN_OK;
}

static void read_int4(const rn_plain_matrix *m, uint64_t row, float *out) {
    uint64_t group = rn_quant_int4_group(m->cols), half = rn_div_up(count_groups(m), 2);
    for (uint64_t c = 0; c < m->cols; c++) {
        uint64_t g = (row * m->cols + c) / group, e = c % group;
        uint8_t byte = m->data[(g < half ? g : g - half) * group + e];
        out[c] = m->scale[g] * (float)(g < half ? byte & 15 : byte >> 4) - m->shift[g];
    }
}

static float absmax_of(const rn_plain_matrix *m, uint64_t block) {
    if (!m->codes) return m->scale[block];
    return rn_dequant_nf4_absmax(m->codes, m->shift, m->nested_count, block);
}

void rn_plain_nf4_columns(const rn_plain_matrix *m, uint64_t row, uint64_t col, uint64_t count,
                          float *out) {
    uint64_t i = row * m->cols + col, end = i + count;
    while (i < end) {
        float absmax = absmax_of(m, i / RN_NF4_BLOCK);
        uint64_t stop = rn_min_u64(end, (i / RN_NF4_BLOCK + 1) * RN_NF4_BLOCK);
        if (i % 2 == 0) {
            rn_dequant_nf4_blocks(m->data + i / 2, &absmax, stop - i, out);
            out += stop - i;
            i = stop;
        } else { // the second nibble of a byte
            *out++ = rn_nf4_table[m->data[i / 2] & 15] * absmax;
            i++;
        }
    }
}

const float *rn_plain_row(const rn_plain_matrix *m, uint64_t row, float *scratch) {
    const uint8_t *bytes = m->data + row * m->row_bytes;
    switch (m->dtype) {
    case RN_DTYPE_F32:
        return (const float *)(const void *)bytes;
    case RN_DTYPE_INT8:
        rn_dequant_int8_rows((const int8_t *)bytes, &m->scale[row], 1, m->cols, scratch);
        break;
    case RN_DTYPE_INT4:
        read_int4(m, row, scratch);
        break;
    case RN_DTYPE_NF4:
    case RN_DTYPE_NF4_DQ:
        rn_plain_nf4_columns(m, row, 0, m->cols, scratch);
        break;
    default: {
        rn_status s = rn_dtype_to_f32(m->dtype, bytes, scratch, m->cols);
        assert(s == RN_OK); // shape rules let only readable dtypes in, in whole blocks
        (void)s;
    }
    }
    return scratch;
}

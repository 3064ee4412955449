// plain_matrix.c — most dtypes have rows of whole bytes. int4's groups and nf4's blocks run over
// the flat tensor (tensor/quant.h), so that a row may begin in the middle of a byte or share one
// with a far row: these two are read element by element.
#include "graph/plain_matrix.h"

#include "base/checked.h"
#include "tensor/quant.h"

#include <assert.h>

bool rn_plain_readable(rn_dtype dtype) {
    const rn_dtype_info *info = rn_dtype_get(dtype);
    bool own_form = dtype == RN_DTYPE_INT8 || dtype == RN_DTYPE_INT4 || dtype == RN_DTYPE_NF4;
    return own_form || (info->readable && (info->is_float || info->block_elements > 1));
}

bool rn_plain_in_one_piece(rn_dtype dtype) {
    return dtype != RN_DTYPE_INT8 && dtype != RN_DTYPE_INT4 && dtype != RN_DTYPE_NF4;
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

static void read_nf4(const rn_plain_matrix *m, uint64_t row, float *out) {
    for (uint64_t c = 0; c < m->cols; c++) {
        uint64_t i = row * m->cols + c;
        out[c] = rn_nf4_table[m->data[i / 2] >> (i % 2 ? 0 : 4) & 15] * m->scale[i / RN_NF4_BLOCK];
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
        read_nf4(m, row, scratch);
        break;
    default: {
        rn_status s = rn_dtype_to_f32(m->dtype, bytes, scratch, m->cols);
        assert(s == RN_OK); // shape rules let only readable dtypes in, in whole blocks
        (void)s;
    }
    }
    return scratch;
}

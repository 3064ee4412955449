// layout.c — sizes, checked: shapes come from files.
#include "tensor/layout.h"

#include "base/checked.h"
#include "tensor/quant.h"

enum { PART_ALIGN = 64 };

const char *rn_layout_name(rn_layout layout) {
    return layout ? layout->name : "plain";
}

// ---- plain --------------------------------------------------------------------------------------

// Bytes of each part. With `values` and `rows` this far from overflow the rest cannot reach it.
static bool count_parts(rn_dtype dtype, uint64_t rows, uint64_t cols, rn_plain_components *out) {
    uint64_t values = 0, most = UINT64_MAX / 16;
    if (!rn_mul_u64(rows, cols, &values) || values > most || rows > most) return false;
    if (dtype == RN_DTYPE_INT8) {
        out->bytes[RN_COMPONENT_DATA] = values;
        out->bytes[RN_COMPONENT_SCALE] = rows * sizeof(float);
    } else if (dtype == RN_DTYPE_INT4) {
        uint64_t group = rn_quant_int4_group(cols), groups = group ? values / group : 0;
        out->bytes[RN_COMPONENT_DATA] = rn_div_up(groups, 2) * group;
        out->bytes[RN_COMPONENT_SCALE] = out->bytes[RN_COMPONENT_SHIFT] = groups * sizeof(float);
    } else if (dtype == RN_DTYPE_NF4) {
        out->bytes[RN_COMPONENT_DATA] = rn_div_up(values, 2);
        out->bytes[RN_COMPONENT_SCALE] = rn_div_up(values, RN_NF4_BLOCK) * sizeof(float);
    } else if (dtype == RN_DTYPE_NF4_DQ) {
        uint64_t blocks = rn_div_up(values, RN_NF4_BLOCK);
        out->bytes[RN_COMPONENT_DATA] = rn_div_up(values, 2);
        out->bytes[RN_COMPONENT_SCALE] = blocks;
        out->bytes[RN_COMPONENT_SHIFT] = (rn_div_up(blocks, RN_NF4_NESTED) + 1) * sizeof(float);
    } else {
        uint64_t row_bytes;
        return rn_dtype_bytes(dtype, cols, &row_bytes) &&
               rn_mul_u64(rows, row_bytes, &out->bytes[RN_COMPONENT_DATA]);
    }
    return true;
}

bool rn_plain_components_of(rn_dtype dtype, uint64_t rows, uint64_t cols,
                            rn_plain_components *out) {
    *out = (rn_plain_components){0};
    if (!count_parts(dtype, rows, cols, out)) return false;
    for (int part = 0; part < RN_COMPONENT_COUNT && out->bytes[part]; part++) {
        if (!rn_align_u64(out->total_bytes, PART_ALIGN, &out->offset[part])) return false;
        if (!rn_add_u64(out->offset[part], out->bytes[part], &out->total_bytes)) return false;
    }
    return true;
}

// ---- all layouts --------------------------------------------------------------------------------

bool rn_layout_bytes(rn_layout layout, rn_dtype dtype, uint64_t rows, uint64_t cols,
                     uint64_t *out_bytes) {
    rn_plain_components parts;
    *out_bytes = 0;
    if (layout) return layout->bytes(dtype, rows, cols, out_bytes);
    if (!rn_plain_components_of(dtype, rows, cols, &parts)) return false;
    *out_bytes = parts.total_bytes;
    return true;
}

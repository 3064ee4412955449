// quantize.c — matrices in memory, in the plain layout (tensor/layout.h).
#include <ration/quantize.h>

#include "base/checked.h"
#include "graph/plain_matrix.h"
#include "memory/account.h"
#include "tensor/layout.h"
#include "tensor/quant.h"

#include <string.h>

static rn_status find_parts(rn_dtype dtype, uint64_t rows, uint64_t cols,
                            rn_plain_components *out) {
    bool fits = rows && cols && dtype != RN_DTYPE_NONE && (unsigned)dtype < RN_DTYPE_COUNT &&
                rn_plain_components_of(dtype, rows, cols, out);
    if (fits) return RN_OK;
    return rn_fail(RN_INVALID, "there is no matrix (%llu, %llu) of %s", (unsigned long long)rows,
                   (unsigned long long)cols, rn_dtype_get(dtype)->name);
}

static rn_status check_bytes(rn_dtype dtype, uint64_t rows, uint64_t cols, uint64_t bytes,
                             rn_plain_components *out) {
    RN_TRY(find_parts(dtype, rows, cols, out));
    if (bytes == out->total_bytes) return RN_OK;
    return rn_fail(RN_INVALID, "a matrix (%llu, %llu) of %s has %llu bytes, not %llu",
                   (unsigned long long)rows, (unsigned long long)cols, rn_dtype_get(dtype)->name,
                   (unsigned long long)out->total_bytes, (unsigned long long)bytes);
}

rn_status rn_quantize_bytes(rn_dtype dtype, uint64_t rows, uint64_t cols, uint64_t *out_bytes) {
    rn_plain_components parts = {0};
    rn_status s = find_parts(dtype, rows, cols, &parts);
    *out_bytes = s == RN_OK ? parts.total_bytes : 0;
    return s;
}

// The nibbles of a group are spread over bytes first; two groups share a row of bytes.
static rn_status quantize_int4(const float *values, uint64_t elements, uint64_t group, float *scale,
                               float *shift, uint8_t *out) {
    uint64_t groups = elements / group, half = rn_div_up(groups, 2);
    uint8_t *nibbles = NULL;
    RN_TRY(rn_alloc(RN_HOST_OTHER, elements, (void **)&nibbles));
    rn_quant_int4_groups(values, groups, group, nibbles, scale, shift);
    for (uint64_t g = 0; g < half; g++)
        rn_quant_int4_pack(nibbles + g * group,
                           g + half < groups ? nibbles + (g + half) * group : NULL, group,
                           out + g * group);
    rn_free(RN_HOST_OTHER, nibbles, elements);
    return RN_OK;
}

static rn_status quantize_nf4_twice(const float *values, uint64_t elements, uint8_t *codes,
                                    float *nested, uint64_t nested_count, uint8_t *out) {
    uint64_t blocks = rn_div_up(elements, RN_NF4_BLOCK);
    float *absmax = NULL;
    RN_TRY(rn_alloc(RN_HOST_OTHER, blocks * sizeof *absmax, (void **)&absmax));
    rn_quant_nf4_blocks(values, elements, out, absmax);
    nested[nested_count] = rn_quant_nf4_offset(absmax, blocks);
    rn_quant_nf4_absmax(absmax, blocks, nested[nested_count], codes, nested);
    rn_free(RN_HOST_OTHER, absmax, blocks * sizeof *absmax);
    return RN_OK;
}

rn_status rn_quantize(rn_dtype to, const float *values, uint64_t rows, uint64_t cols, void *out,
                      uint64_t bytes) {
    rn_plain_components parts;
    RN_TRY(check_bytes(to, rows, cols, bytes, &parts));
    uint8_t *data = out, *codes = data + parts.offset[RN_COMPONENT_SCALE];
    float *scale = (float *)(void *)codes;
    float *shift = (float *)(void *)(data + parts.offset[RN_COMPONENT_SHIFT]);
    switch (to) {
    case RN_DTYPE_INT8:
        rn_quant_int8_rows(values, rows, cols, (int8_t *)data, scale);
        return RN_OK;
    case RN_DTYPE_INT4:
        return quantize_int4(values, rows * cols, rn_quant_int4_group(cols), scale, shift, data);
    case RN_DTYPE_NF4:
        rn_quant_nf4_blocks(values, rows * cols, data, scale);
        return RN_OK;
    case RN_DTYPE_NF4_DQ:
        return quantize_nf4_twice(values, rows * cols, codes, shift,
                                  parts.bytes[RN_COMPONENT_SHIFT] / sizeof(float) - 1, data);
    default:
        return rn_dtype_from_f32(to, values, data, rows * cols);
    }
}

rn_status rn_dequantize(rn_dtype from, const void *data, uint64_t bytes, uint64_t rows,
                        uint64_t cols, float *out_values) {
    rn_plain_components parts;
    rn_plain_matrix m;
    RN_TRY(check_bytes(from, rows, cols, bytes, &parts));
    if (!rn_plain_readable(from)) return rn_dtype_to_f32(from, data, out_values, rows * cols);
    rn_tensor tensor = {(void *)(uintptr_t)data, from, RN_LAYOUT_PLAIN, RN_SHAPE(rows, cols)};
    RN_TRY(rn_plain_matrix_of(&tensor, &m));
    for (uint64_t row = 0; row < rows; row++) {
        const float *found = rn_plain_row(&m, row, out_values + row * cols);
        if (found != out_values + row * cols)
            memcpy(out_values + row * cols, found, cols * sizeof *found);
    }
    return RN_OK;
}

// row_kinds.c — the definition; backend/cpu/row_product_avx2.c reads the same faster.
#include "tensor/row_kinds.h"

#include "tensor/ggml_blocks.h"
#include "tensor/ggml_codebooks.h"
#include "tensor/small_float.h"

#include <string.h>

bool rn_row_kind(rn_dtype dtype) {
    return dtype == RN_DTYPE_U4_B32 || dtype == RN_DTYPE_FP4_B64 || rn_codebook_is(dtype);
}

static float float_at(const uint8_t *bytes) {
    float value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

// 32 columns, and their scales.
typedef struct block {
    int8_t q[32];
    float scales[2];
} block;

static void read_u4(const uint8_t *bytes, block *out) {
    for (int j = 0; j < 16; j++) {
        out->q[j] = (int8_t)((bytes[5 + j] & 15) - bytes[4]);
        out->q[j + 16] = (int8_t)((bytes[5 + j] >> 4) - bytes[4]);
    }
    out->scales[0] = out->scales[1] = float_at(bytes);
}

// Half of 64 columns: numbers are counted twice, so that they are whole, and scales half.
static void read_fp4(const uint8_t *bytes, int half, block *out) {
    for (int part = 0; part < 2; part++) {
        const uint8_t *nibbles = bytes + 8 + half * 16 + part * 8;
        for (int j = 0; j < 8; j++) {
            out->q[part * 16 + j] = rn_ggml_fp4_values[nibbles[j] & 15];
            out->q[part * 16 + 8 + j] = rn_ggml_fp4_values[nibbles[j] >> 4];
        }
        out->scales[part] = rn_nvfp4_scale(bytes[4 + half * 2 + part]) * float_at(bytes);
    }
}

static void read_codebook(rn_dtype dtype, const uint8_t *superblock, int part, block *out) {
    rn_codebook_part p;
    float unit = rn_codebook_unit(dtype, superblock);
    rn_codebook_read(dtype, superblock, part, &p);
    memcpy(out->q, p.q, sizeof p.q);
    for (int i = 0; i < 2; i++)
        out->scales[i] = unit * (float)p.scales[i];
}

void rn_row_kind_read(rn_dtype dtype, const uint8_t *row, uint64_t first, uint64_t count,
                      rn_row_blocks out) {
    const rn_dtype_info *info = rn_dtype_get(dtype);
    uint64_t parts = info->block_elements / RN_ROW_BLOCK;
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *bytes = row + (first + i) / parts * info->block_bytes;
        int part = (int)((first + i) % parts);
        block b;
        if (dtype == RN_DTYPE_U4_B32)
            read_u4(bytes, &b);
        else if (dtype == RN_DTYPE_FP4_B64)
            read_fp4(bytes, part, &b);
        else
            read_codebook(dtype, bytes, part, &b);
        memcpy(out.q + i * 32, b.q, sizeof b.q);
        out.first[i * out.step] = b.scales[0];
        out.second[i * out.step] = b.scales[1];
    }
}

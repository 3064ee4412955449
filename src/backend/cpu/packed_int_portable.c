// packed_int_portable.c — rounded products in plain C, lane by lane: a lane's bytes are gathered as
// the file has them, and the definition itself (graph/quantized_product.h) reads and adds them.
//
// Strips of this level have their rows one after the other: q [rows][32], then d [rows].
#include "backend/cpu/packed_ints.h"

#include "graph/quantized_product.h"
#include "tensor/panels.h"
#include "tensor/quant.h"

#include <string.h>

enum { LANES = 16, UNIT_FILE_BYTES = 256, UNIT_COLS = 256, STRIP_ROWS = 4 };

// ---- products -----------------------------------------------------------------------------------

// Blocks of one lane of a unit by the strip's; x stands at the first of them.
static void add_unit(rn_dtype dtype, const uint8_t *file, uint64_t parts, int rows,
                     const uint8_t *x, uint64_t strip_bytes, float *acc) {
    rn_quantized_block block;
    for (uint64_t part = 0; part < parts; part++, x += strip_bytes * (uint64_t)rows) {
        rn_quantized_block_read(dtype, file, parts * RN_INT_BLOCK, part, &block);
        for (int r = 0; r < rows; r++) {
            float d;
            memcpy(&d, x + RN_INT_BLOCK * rows + 4 * r, sizeof d);
            acc[r] = rn_quantized_block_add(dtype, &block, (const int8_t *)x + RN_INT_BLOCK * r, d,
                                            acc[r]);
        }
    }
}

static void multiply(const rn_int_job *job, rn_int_form form, rn_dtype dtype, int rows) {
    const uint64_t strip_bytes = rn_strip_block_bytes(rn_int_kind_of(form));
    const uint64_t parts = rn_int_unit_blocks(form), unit_bytes = rn_int_unit_bytes(form);
    for (int lane = 0; lane < (int)job->cols; lane++) {
        const uint8_t *x = job->x, *unit = job->weights;
        float acc[STRIP_ROWS] = {0};
        uint8_t file[UNIT_FILE_BYTES];
        for (uint64_t b = 0; b < job->blocks; b += parts, unit += unit_bytes) {
            rn_panels_lane(dtype, unit, lane, file);
            add_unit(dtype, file, parts, rows, x, strip_bytes, acc);
            x += parts * strip_bytes * (uint64_t)rows;
        }
        for (int r = 0; r < rows; r++) {
            if (job->row_scale) acc[r] *= job->row_scale[lane];
            job->y[(uint64_t)r * job->y_row + (uint64_t)lane] =
                job->bias ? acc[r] + job->bias[lane] : acc[r];
        }
    }
}

#define KERNEL(name, DTYPE, rows)                                                                  \
    static void name##_##rows(const rn_int_job *job) {                                             \
        multiply(job, RN_INT_##DTYPE, RN_DTYPE_##DTYPE, rows);                                     \
    }
#define KERNELS(DTYPE, name, ...)                                                                  \
    KERNEL(name, DTYPE, 1)                                                                         \
    KERNEL(name, DTYPE, 2)                                                                         \
    KERNEL(name, DTYPE, 3)                                                                         \
    KERNEL(name, DTYPE, 4)
RN_ROUNDED_KINDS(KERNELS)

// ---- panels of f32 ------------------------------------------------------------------------------

// One lane of a unit as numbers.
static void widen_lane(rn_dtype dtype, const uint8_t *unit, const float *row_scale, int lane,
                       uint64_t cols, float *out) {
    uint8_t file[UNIT_FILE_BYTES];
    rn_panels_lane(dtype, unit, lane, file);
    rn_status s = RN_OK;
    if (dtype == RN_DTYPE_INT8)
        rn_dequant_int8_rows((const int8_t *)file, &row_scale[lane], 1, cols, out);
    else
        s = rn_dtype_to_f32(dtype, file, out, cols); // whole blocks of a readable type: works
    (void)s;
}

static rn_dtype dtype_of(rn_int_form form) {
#define DTYPE_OF(DTYPE, ...) RN_DTYPE_##DTYPE,
    static const rn_dtype dtypes[] = {RN_ROUNDED_KINDS(DTYPE_OF)};
#undef DTYPE_OF
    return dtypes[form];
}

static void widen(rn_int_form form, const uint8_t *units, const float *row_scale, uint64_t k,
                  uint64_t depth, float *to) {
    const uint64_t cols = rn_int_unit_blocks(form) * RN_INT_BLOCK, end = k + depth;
    for (uint64_t unit = k / cols; unit * cols < end; unit++) {
        const uint64_t first = unit * cols;
        for (int lane = 0; lane < LANES; lane++) {
            float numbers[UNIT_COLS];
            widen_lane(dtype_of(form), units + unit * rn_int_unit_bytes(form), row_scale, lane,
                       cols, numbers);
            for (uint64_t i = first < k ? k : first; i < end && i < first + cols; i++)
                to[(i - k) * LANES + (uint64_t)lane] = numbers[i - first];
        }
    }
}

// ---- rounding activations -----------------------------------------------------------------------

static void quantize(const float *x, uint64_t x_row, uint32_t rows, uint64_t cols, rn_int_kind kind,
                     int offset, uint8_t *strip) {
    (void)offset; // weights are as they are
    for (uint64_t k = 0; k < cols; k += RN_INT_BLOCK, strip += rn_strip_block_bytes(kind) * rows)
        for (uint32_t r = 0; r < rows; r++) {
            float d;
            uint64_t count = cols - k < RN_INT_BLOCK ? cols - k : RN_INT_BLOCK;
            rn_quantize_row(x + r * x_row + k, count,
                            (rn_quantized_row){(int8_t *)strip + RN_INT_BLOCK * r, &d});
            memcpy(strip + RN_INT_BLOCK * rows + 4 * r, &d, sizeof d);
        }
}

#define ALWAYS(DTYPE, ...)       [RN_INT_##DTYPE] = UINT32_MAX,
#define DIRECT(DTYPE, name, ...) [RN_INT_##DTYPE] = name##_1,
#define STRIPS(DTYPE, name, ...) [RN_INT_##DTYPE] = {name##_1, name##_2, name##_3, name##_4},

const rn_int_kernels rn_int_portable = {
    .rows = 1,
    .panels = 1,
    .strip_rows = STRIP_ROWS,
    .strip_panels = 1,
    .direct_rows = {RN_ROUNDED_KINDS(ALWAYS)},
    .direct = {RN_ROUNDED_KINDS(DIRECT)},
    .direct_many = {RN_ROUNDED_KINDS(STRIPS)},
    .widen = widen,
    .quantize = quantize,
};

// quant.h — ration's own quantised forms of a weight, as the libraries that read them define them:
// int8 and int4 as optimum-quanto does (qint8, qint4), nf4 and nf4_dq as bitsandbytes does. The
// results equal theirs byte for byte.
//
//     float scale;
//     rn_quant_int8_rows(row, 1, cols, q, &scale);          // one row of a (rows, cols) weight
//     rn_dequant_int8_rows(q, &scale, 1, cols, restored);
//     rn_quant_error_add(&error, row, restored, cols);
//
// Every function is pure, allocates nothing, may run in any thread, and works on a piece (some
// rows, some groups, some blocks), so that a tensor larger than memory goes through in pieces.
// Inputs and outputs must not overlap. Every level of base/cpu.h gives the same bits. NaN or
// infinity in a row, group or block makes all that is restored of it NaN or infinity: never a
// plausible number.
#ifndef RN_TENSOR_QUANT_H
#define RN_TENSOR_QUANT_H

#include <ration/tensor.h>

// ---- int8: symmetric, one scale an output row ---------------------------------------------------
//
// scale = max|w| / 127; q = round to even(w / scale), in [-128, 127]; w' = scale * q. A row of
// zeros has scale 0 and q 0. A file holds, for a weight of shape (rows, ...):
//
//     NAME._data    I8   (rows, ...)
//     NAME._scale   F32  (rows, 1, ...) with as many dimensions as the weight
//
// and beside them PREFIX.input_scale and PREFIX.output_scale, F32 () = 1, where NAME is
// PREFIX.weight: quanto's modules look for them. (For a weight of one row quanto itself stores the
// scale as ().)
void rn_quant_int8_rows(const float *rows /* (row_count, cols) */, uint64_t row_count,
                        uint64_t cols, int8_t *out_q /* (row_count, cols) */,
                        float *out_scale /* (row_count) */);
void rn_dequant_int8_rows(const int8_t *q, const float *scale, uint64_t row_count, uint64_t cols,
                          float *out_rows);

// ---- int4: affine, one scale and shift a group --------------------------------------------------
//
// A weight of (rows, cols) is cut, along its rows, into groups of rn_quant_int4_group(cols) values;
// group g is values [g * group, (g + 1) * group) of the flat tensor. scale = (max - min) / 15;
// shift = -min; q = round to even((w + shift) / scale), in [0, 15]; w' = scale * q - shift. A group
// of equal values has scale 0 and q 0, and is restored exactly. A file packs group i with group i +
// half, where half = ceil(groups / 2):
//
//     NAME._data._data  U8  (half, group)        low nibble    high nibble
//                            row 0               group 0       group half
//                            row 1               group 1       group half + 1
//                            ...
//                            row half - 1        group half-1  group groups-1, or 0 if there is
//                            none
//     NAME._scale       F32 (groups, 1)
//     NAME._shift       F32 (groups, 1)
//
// and input_scale and output_scale as for int8. Where the group is a whole row (see below) quanto
// keeps the weight's own dimensions: _data._data is (ceil(rows / 2), ...), _scale and _shift (rows,
// 1, ...); the bytes are the same. (For a weight of a single group quanto itself stores one scale a
// value; ration stores one.)

// 128, 96, 64 or 32: the first that divides `cols`, where cols > 128; else cols itself, a group a
// row.
uint64_t rn_quant_int4_group(uint64_t cols);
void rn_quant_int4_groups(const float *groups /* (group_count, group) */, uint64_t group_count,
                          uint64_t group, uint8_t *out_q /* (group_count, group), one a byte */,
                          float *out_scale /* (group_count) */,
                          float *out_shift /* (group_count) */);
void rn_dequant_int4_groups(const uint8_t *q, const float *scale, const float *shift,
                            uint64_t group_count, uint64_t group, float *out_groups);
// out[i] = low[i] | high[i] << 4; `high` is NULL where there is no such group. `out_packed` may be
// `low`.
void rn_quant_int4_pack(const uint8_t *low, const uint8_t *high, uint64_t count,
                        uint8_t *out_packed);
// `out_low` or `out_high` may be NULL where it is not wanted.
void rn_quant_int4_unpack(const uint8_t *packed, uint64_t count, uint8_t *out_low,
                          uint8_t *out_high);

// ---- nf4: 4-bit normal float, one absmax a block of 64 ------------------------------------------
//
// Blocks run over the flat tensor. q is the index of the table entry nearest to w / absmax (on a
// boundary the lower one); w' = table[q] * absmax. Byte i holds value 2i in its high nibble and 2i
// + 1 in its low one. The last block may be shorter (its absmax is then at least 1e-38, as
// bitsandbytes has it); an odd count leaves 7, which means zero, in the last nibble. A file holds,
// for `values` elements:
//
//     NAME                                U8   (ceil(values / 2), 1)
//     NAME.absmax                         F32  (ceil(values / 64))
//     NAME.quant_map                      F32  (16), the table
//     NAME.quant_state.bitsandbytes__nf4  U8   (bytes), what rn_quant_nf4_state writes
//
// With double quantisation (nf4_dq; bitsandbytes' compress_statistics) absmax is quantised, too:
// less the tensor's mean of it, in blocks of 256, as codes of a map of 256 numbers ("dynamic":
// seven decades, each with twice as many steps as the one below) and the largest magnitude of a
// block. absmax = map[code] * nested + offset: 4.127 bits a weight instead of 4.5. Then a file has
//
//     NAME.absmax                         U8   (ceil(values / 64)), codes
//     NAME.nested_absmax                  F32  (ceil(absmax / 256))
//     NAME.nested_quant_map               F32  (256), the map
//
// and nested_blocksize, nested_dtype and nested_offset in quant_state. In memory the offset is one
// more float behind nested_absmax (RN_COMPONENT_SHIFT).
#define RN_NF4_BLOCK  64
#define RN_NF4_NESTED 256

extern const float rn_nf4_table[16];

// A piece that is not the tensor's last has a whole number of blocks.
void rn_quant_nf4_blocks(const float *values, uint64_t count,
                         uint8_t *out_packed /* ceil(count / 2) */,
                         float *out_absmax /* ceil(count / 64) */);
void rn_dequant_nf4_blocks(const uint8_t *packed, const float *absmax, uint64_t count,
                           float *out_values);

// The map of codes, signed and rising; [127] is 0.
extern const float rn_dynamic_map[256];
// What is taken away from absmax before it is coded: its mean. (bitsandbytes' is torch's, whose
// additions are in another order: it may differ in the last bit.)
float rn_quant_nf4_offset(const float *absmax, uint64_t count);
// Codes `count` floats, in place where `out_codes` is `absmax`; a piece that is not the tensor's
// last has whole blocks of 256.
void rn_quant_nf4_absmax(const float *absmax, uint64_t count, float offset, uint8_t *out_codes,
                         float *out_nested /* ceil(count / 256) */);
// absmax of block `block` of the flat tensor; `nested` ends with the offset, and has `nested_count`
// floats before it.
static inline float rn_dequant_nf4_absmax(const uint8_t *codes, const float *nested,
                                          uint64_t nested_count, uint64_t block) {
    return rn_dynamic_map[codes[block]] * nested[block / RN_NF4_NESTED] + nested[nested_count];
}

// Writes bitsandbytes' description of the weight, for example
//     {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [3, 96]}
// `restored` is the type the weight had: f32, f16 or bf16, else RN_INVALID. `offset` is nf4_dq's;
// NULL: nf4's.
RN_MUST_USE rn_status rn_quant_nf4_state(rn_dtype restored, const uint64_t *shape, uint32_t rank,
                                         const float *offset, rn_sink sink);

// ---- what quantising cost -----------------------------------------------------------------------
//
// Mean absolute error: sum_abs / count; relative error: sqrt(sum_square / sum_square_ref). {0} is
// empty. Sums depend on how the tensor was cut into calls, but not on the level of base/cpu.h.
typedef struct rn_quant_error {
    double sum_abs;        // of |reference - restored|
    double max_abs;        // NaN differences do not count here; they show in the sums
    double sum_square;     // of (reference - restored)^2
    double sum_square_ref; // of reference^2
    uint64_t count;
} rn_quant_error;

void rn_quant_error_add(rn_quant_error *error, const float *reference, const float *restored,
                        uint64_t count);
void rn_quant_error_merge(rn_quant_error *error, const rn_quant_error *other);

#endif

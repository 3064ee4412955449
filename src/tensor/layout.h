// layout.h — how a weight's bytes lie in memory: as in the file, or rearranged for a kernel.
//
// There is one kernel layout for each (dtype, device). On the CPU a product's weight (N, K) is kept
// in panels: 16 output rows side by side, so that a vector lane is an output row. Pure functions;
// the formats are drawn in tensor/panels.h.
#ifndef RN_TENSOR_LAYOUT_H
#define RN_TENSOR_LAYOUT_H

#include <ration/tensor.h>

typedef enum rn_layout {
    RN_LAYOUT_PLAIN,  // dense rows, as files have them; int8, int4 and nf4 with their scales behind
                      // the data, each part on a 64-byte boundary
    RN_LAYOUT_PANELS, // (N, K) in panels of 16 rows, tensor/panels.h
    RN_LAYOUT_CONV_PANELS, // f32 (O, C, KH, KW) in panels of 16 outputs, tensor/conv_panels.h; here
                           // rows are O, cols are C * KH * KW
    RN_LAYOUT_TILES,       // (N, K) as the matrix units of GPUs take it, tensor/tiles.h
    RN_LAYOUT_COUNT
} rn_layout;

const char *rn_layout_name(rn_layout layout);
// Bytes of a (rows, cols) matrix (rows = 1 for anything of another rank), scales included; false
// where it overflows, is not in whole blocks, or the dtype has no such layout.
bool rn_layout_bytes(rn_layout layout, rn_dtype dtype, uint64_t rows, uint64_t cols,
                     uint64_t *out_bytes);

// The tensors that a weight is in its file. All but int8, int4 and nf4 have the data alone.
typedef enum rn_part {
    RN_PART_DATA,
    RN_PART_SCALE, // f32: int8 (rows), int4 (groups), nf4 (blocks of 64; absmax)
    RN_PART_SHIFT, // f32: int4 (groups)
    RN_PART_COUNT
} rn_part;

// Where each part lies in the PLAIN form, and how long it is (as in the file, tensor/quant.h).
typedef struct rn_plain_parts {
    uint64_t offset[RN_PART_COUNT]; // each a multiple of 64
    uint64_t bytes[RN_PART_COUNT];  // 0: there is no such part
    uint64_t total_bytes;           // to the end of the last part
} rn_plain_parts;

// False as rn_layout_bytes is.
bool rn_plain_parts_of(rn_dtype dtype, uint64_t rows, uint64_t cols, rn_plain_parts *out);

#endif

// column_panels.h — a product's weight (K, N), as ONNX files have it, for the CPU's kernels: 16
// columns side by side.
//
//     panel 0: columns 0..15     panel 1: columns 16..31     ...  last: filled up with zeros
//
//     f32     a panel: for each k 16 floats, one a column; what tensor/panels.h makes of (N, K)
//     i8, u8  | 16 sums of columns, i32 | k's 0..3 | k's 4..7 | ... |   K rounded up to 64, with 0
//             four k's are 16 lanes of 4 bytes, one a column, as byte-multiplying instructions and
//             matrix units want them; u8 is held as i8, 128 less, and summed so
//
// A weight that is read across is multiplied from here without packing it in every run.
#ifndef RN_TENSOR_COLUMN_PANELS_H
#define RN_TENSOR_COLUMN_PANELS_H

#include "tensor/layout.h"

// Bytes of k that panels of bytes are filled up to.
#define RN_BYTE_DEPTH 64

typedef struct rn_column_panels {
    rn_dtype dtype;
    uint64_t rows, cols;  // K, N
    uint64_t count;       // of panels
    uint64_t panel_bytes; // a multiple of 64
    uint64_t head_bytes;  // the sums, before the first k
} rn_column_panels;

// False where it overflows or the dtype has no such panels.
bool rn_column_panels_of(rn_dtype dtype, uint64_t rows, uint64_t cols, rn_column_panels *out);

// One whole panel of bytes: `count` columns, at most 16, of `rows` rows that are `step` bytes
// apart. `flip` is XORed into each: 0x80 for u8, else 0.
void rn_byte_panel_pack(const uint8_t *from, uint64_t step, uint64_t rows, uint32_t count,
                        uint8_t flip, void *panel);

#endif

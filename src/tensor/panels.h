// panels.h — a product's weight (rows, cols) as the CPU's kernels read it: 16 rows side by side.
//
//     panel 0: rows 0..15        panel 1: rows 16..31      ...  last: filled up with zeros
//     | head | unit 0 | unit 1 | ... |   a panel is a multiple of 64 bytes, read from end to end
//
// A unit is some columns of all 16 rows, scales included, so that products run linearly through
// memory and a vector lane is a row. `lanes` below are 16 values, one a row:
//
//     f32   1 column     [lanes f32]
//     f16   8 columns    8 x [lanes f16]                                          (bf16 too)
//     f8_e4m3  32 columns   8 x [lanes of 4 bytes: columns 4g .. 4g+3]
//     int8  32 columns   8 x [lanes of 4 bytes: columns 4g .. 4g+3, each + 128]   head: scales f32
//     q8_0  32 columns   [scales f16] 8 x [lanes of 4 bytes, each + 128]
//     q4_0  32 columns   [scales f16] 4 x [lanes of 4 bytes]   low nibbles columns 4v.., high
//                        16+4v..
//     others of tensor/kinds.h: a block, or superblock, as the file has it, 4 bytes by 4 bytes
//                        [lanes of 4 bytes]; one scale that leaves the words uneven, or makes
//                        them so, stands apart: [scales f16], mxfp4 [scales of 8 bits]
//     int4  a group      [scales f32] [shifts f32] group/8 x [lanes of 8 nibbles: columns 0 4 1 5 2
//                        6 3 7 from the lowest]
//     nf4   64 columns   [absmax f32] 8 x [lanes of 8 nibbles: columns 1 0 3 2 5 4 7 6 from the
//                        lowest, as in the file]
//     nf4_dq   64 columns   [codes of absmax] 8 x [as nf4]      head: rn_nf4_dq_head
//
// Bytes of 4 neighbouring columns in a 32-bit lane are what byte-multiplying instructions want.
// Bytes + 128 are unsigned, as those instructions want one factor. But for padding and
// the heads of nf4_dq a panel has exactly the file's bytes. nf4 and nf4_dq have panels only where
// cols is a multiple of their block.
#ifndef RN_TENSOR_PANELS_H
#define RN_TENSOR_PANELS_H

#include "base/workers.h"
#include "tensor/layout.h"

#define RN_PANEL_ROWS 16

typedef struct rn_panels {
    rn_dtype dtype;
    uint64_t rows, cols;
    uint64_t count;       // of panels
    uint64_t panel_bytes; // a multiple of 64
    uint64_t head_bytes;  // before the first unit
    uint64_t units;       // in a panel
    uint64_t unit_cols, unit_bytes;
} rn_panels;

// False where it overflows, is not in whole blocks, or the dtype has no panels.
bool rn_panels_of(rn_dtype dtype, uint64_t rows, uint64_t cols, rn_panels *out);
bool rn_panels_bytes(rn_dtype dtype, uint64_t rows, uint64_t cols, uint64_t *out_bytes);

// What absmax of a panel of nf4_dq is made of. Its blocks are numbered row by row, from `phase` on,
// which is the first one's number among 256 that share a scale.
typedef struct rn_nf4_dq_head {
    float offset;
    uint32_t phase, units; // units: of the panel
    uint32_t bytes;        // of the head
    float nested[];        // of all codes of the panel
} rn_nf4_dq_head;
// absmax of the 16 rows' blocks of a unit.
void rn_panels_absmax(const void *panel, uint64_t unit, float out[RN_PANEL_ROWS]);

// ---- from a file's bytes ------------------------------------------------------------------------

// Takes the parts of a weight piece by piece and writes them to their places. Holds no memory.
typedef struct rn_packer {
    rn_panels panels;
    uint8_t *target;                   // (rn_panels_bytes), 64-byte aligned
    rn_plain_components parts;         // what is expected
    uint64_t done[RN_COMPONENT_COUNT]; // bytes taken of each
    rn_workers *workers; // share long pieces out; NULL, as rn_packer_begin sets it: alone
} rn_packer;

// RN_INVALID where there are no such panels. Clears what no piece will write: the padding.
RN_MUST_USE rn_status rn_packer_begin(rn_packer *packer, rn_dtype dtype, uint64_t rows,
                                      uint64_t cols, void *target);
// Pieces of a part come in order and may have any length; parts may come in any order, also mixed.
// RN_INVALID for a piece that is not the next one or goes beyond the part.
RN_MUST_USE rn_status rn_packer_take(rn_packer *packer, rn_component part, uint64_t offset,
                                     const void *data, uint64_t bytes);
// Whether all bytes of all parts were taken.
bool rn_packer_is_done(const rn_packer *packer);

// ---- back to numbers ----------------------------------------------------------------------------

// The file's bytes of one lane (a row) of a unit; the dtype is a row of tensor/kinds.h.
void rn_panels_lane(rn_dtype dtype, const void *unit, int lane, uint8_t *out /* file bytes */);
// One row as f32, exactly as the plain form is dequantised. 0 <= row < rows.
void rn_panels_unpack_row(const rn_panels *panels, const void *data, uint64_t row,
                          float *out /* (cols) */);

#endif

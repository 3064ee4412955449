// tiles.h — weights as a GPU's matrix units take them: RN_LAYOUT_TILES.
//
// A weight (N, K) is cut into tiles of 16 rows by 128 columns; both are filled up with zeros. Tile
// (r, c) is number r * ceil(K / 128) + c, so that a warp that walks along k reads memory from end
// to end. Within a tile a *step* is 16 columns: one matrix instruction m16n8k16. Lane l = 4 g + t
// of a warp holds eight values of a step s, in this order (a[0] .. a[7]):
//
//     row g      g      g+8    g+8    g      g      g+8    g+8
//     k   2t     2t+1   2t     2t+1   2t+8   2t+9   2t+8   2t+9        each + 16 s
//
// What follows is told by the *form* that a dtype gets:
//
//     form   dtypes                   a tile                                                bytes
//     F16    f16, f8_e5m2             steps 0..7: lanes 0..31: a[0..7], f16                  4096
//     BF16   bf16                     the same, bf16                                         4096
//     Q8     q8_0                     pieces 0..3 (two steps): lanes 0..31: a of step 2p, a
//                                     of step 2p+1, as bytes q + 128; then scales            2176
//     I8     int8                     the same without scales                                2048
//     Q4     q4_0, q2_0               nibbles, scales. w = scale * (q - 8)                   1152
//     A4     int4, q4_1, q4_k,
//            u4_b32, iq3_s            nibbles, scales, offsets. w = scale * q + offset       1280
//     N4     nf4                      pairs, scales. w = scale * table[q]                    1152
//     Q6     q6_k                     nibbles, crumbs (the upper two bits), small scales.
//                                     w = scale * (q - 32)                                   1696
//     A5     q5_0, q5_1, q5_k         nibbles, bits (the fifth ones), scales, offsets        1536
//     I4     iq4_nl, iq4_xs           as N4, with iq4's table                                1152
//     F4     mxfp4                    as N4, with fp4's table                                1152
//     Q3     q3_k                     crumbs, bits (the third ones), small scales.
//                                     w = scale * (q - 4)                                     928
//     A2     q2_k, tq1_0, tq2_0, q1_0 crumbs, small scales and offsets. w = scale * q + offset 704
//     F8     f8_e4m3, f8_b128, f8_b32 pieces as Q8's, of e4m3; scales. w = scale * e4m3 / 256 2176
//     V4     nvfp4, fp4_b64           pairs, scales of 16 columns. w = scale * table[q]       1280
//     C2     iq1_s, iq1_m, iq2_xxs,
//            iq2_xs, iq2_s            pairs, small scales in eighths. w = scale * table[q]    1184
//     C3     iq3_xxs                  as C2, with its own table                              1184
//
// Nibbles: pieces 0..1 (four steps): lanes 0..31: four words, one a step, with a[0], a[2], a[4],
// a[6] in bits 0, 4, 8, 12 and a[1], a[3], a[5], a[7] in bits 16, 20, 24, 28: `word >> 4 i &
// 0x000f000f` is the pair a[2i], a[2i+1]. Pairs: the same words, with a[2i] in the low half of byte
// i and a[2i+1] in its high half. Crumbs: lanes 0..31: four words, one for two steps; of step s the
// two bits of pair i at 8 (s % 2) + {0, 4, 2, 6}[i], and 16 higher. Bits: lanes 0..31: two words,
// one for four steps; of step s the bit of pair i at {0, 1, 2, 3, 8, 9, 10, 11}[2 (s % 4) + i / 2]
// + 4 (i % 2), and 16 higher. So one shift brings what two pairs lack to where their nibbles end.
//
// Scales (and offsets) are 128 bytes a tile, f16, one for each row and 32 columns: for g = 0..7,
// for p = 0..3 the pair (row g, row g + 8) of columns 32 p .. 32 p + 31. So a lane reads its eight
// with one load of 16 bytes at 16 g. Products of scales in files (q4_k's) are rounded to f16 once;
// what f16 cannot hold is infinite, never the largest number. V4 has scales twice: those of the
// first 16 of each 32 columns, then, where others have offsets, those of the second 16. F8's are
// 256 times the file's, since e4m3's bits in f16's places count in 256ths; NaN of e4m3, which these
// places do not have, makes its 32 columns' scale NaN.
//
// Small scales are a byte for each row and step: for g = 0..7, for s = 0..7 the pair (row g, row
// g + 8), then for g the pair of f16 d: scale = d * (byte - 128), rounded to f16 once, where it is
// used; in eighths: d * (byte - 128) / 8. A2's byte has the scale's factor in its low half and the
// offset's in its high one; behind the pair of d stands the pair of f16 m: offset = m * factor.
//
// I8 has one f32 scale a row behind all tiles: ceil(N / 16) * 16 of them.
#ifndef RN_TENSOR_TILES_H
#define RN_TENSOR_TILES_H

#include "tensor/layout.h"

#include "base/workers.h"

enum { RN_TILE_ROWS = 16, RN_TILE_COLS = 128 };

typedef enum rn_tile_form {
    RN_TILE_NONE, // the dtype has no tiles
    RN_TILE_F16,
    RN_TILE_BF16,
    RN_TILE_Q8,
    RN_TILE_I8,
    RN_TILE_Q4,
    RN_TILE_A4,
    RN_TILE_N4,
    RN_TILE_Q6,
    RN_TILE_A5,
    RN_TILE_I4,
    RN_TILE_F4,
    RN_TILE_Q3,
    RN_TILE_A2,
    RN_TILE_F8,
    RN_TILE_V4,
    RN_TILE_C2,
    RN_TILE_C3,
    RN_TILE_FORM_COUNT
} rn_tile_form;

rn_tile_form rn_tile_form_of(rn_dtype dtype);
uint32_t rn_tile_bytes(rn_tile_form form); // of one tile
// Bytes of all tiles and row scales, rounded up to 64; false where it overflows, the dtype has no
// tiles, or (blocks) its columns are not in whole blocks.
bool rn_tiles_bytes(rn_dtype dtype, uint64_t rows, uint64_t cols, uint64_t *out_bytes);

// From file bytes to tiles, as they come: pieces of parts in any sizes, each part from its
// beginning to its end, the data first (as tensor/panels.h's packer). What lies behind the last row
// and column is zero from the beginning (a weight of zero: all bytes 0, but Q8's and I8's q + 128).
typedef struct rn_tiler {
    rn_dtype dtype;
    rn_tile_form form;
    uint64_t rows, cols, tile_cols;    // tile_cols: tiles in a row of tiles
    uint32_t tile_bytes, quants_bytes; // of a tile, of its part before the scales
    uint8_t *target;                   // (rn_tiles_bytes), 64-byte aligned
    rn_workers *workers;               // may be set after begin; NULL: alone
    rn_plain_components parts;         // what is expected
    uint64_t done[RN_COMPONENT_COUNT]; // bytes taken of each
    // A unit of the file (an element, a block) that was cut by the end of a piece.
    uint8_t kept[256];
    uint32_t kept_bytes;
} rn_tiler;

// RN_INVALID where there are no such tiles.
RN_MUST_USE rn_status rn_tiler_begin(rn_tiler *tiler, rn_dtype dtype, uint64_t rows, uint64_t cols,
                                     uint8_t *target);
// RN_INVALID for a piece that is not the next one or goes beyond the part.
RN_MUST_USE rn_status rn_tiler_take(rn_tiler *tiler, rn_component part, uint64_t offset,
                                    const void *data, uint64_t bytes);

// One weight as a kernel sees it, as f32: for tests and references. Rounded to the 16 bits that are
// multiplied, once (N4: the table is rounded before); I8: q times the row's scale.
float rn_tiles_at(const uint8_t *tiles, rn_dtype dtype, uint64_t rows, uint64_t cols, uint64_t row,
                  uint64_t col);

#endif

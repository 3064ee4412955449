// tiles_internal.h — places within a tile, and the packers of whole tiles. Private to src/tensor.
#ifndef RN_TENSOR_TILES_INTERNAL_H
#define RN_TENSOR_TILES_INTERNAL_H

#include "tensor/tiles.h"

// ---- places: the drawings of tiles.h as code; rows and columns count from the tile's corner -----

// Which of a[0] .. a[7] it is, and whose.
static inline uint32_t rn_tile_index(uint32_t row, uint32_t col) {
    return col % 16 / 8 * 4 + row / 8 * 2 + col % 2;
}
static inline uint32_t rn_tile_lane(uint32_t row, uint32_t col) {
    return row % 8 * 4 + col % 8 / 2;
}

// Where a value of 16 bits, of 8 bits, and the byte with a value of 4 bits lie.
static inline uint32_t rn_tile_half_at(uint32_t row, uint32_t col) {
    return (col / 16 * 32 + rn_tile_lane(row, col)) * 16 + rn_tile_index(row, col) * 2;
}
static inline uint32_t rn_tile_byte_at(uint32_t row, uint32_t col) {
    return (col / 32 * 32 + rn_tile_lane(row, col)) * 16 + col / 16 % 2 * 8 +
           rn_tile_index(row, col);
}
static inline uint32_t rn_tile_nibble_at(uint32_t row, uint32_t col) {
    uint32_t i = rn_tile_index(row, col);
    return (col / 64 * 32 + rn_tile_lane(row, col)) * 16 + col / 16 % 4 * 4 + i % 2 * 2 + i / 4;
}
static inline int rn_tile_nibble_shift(uint32_t row) {
    return row / 8 ? 4 : 0;
}
// From the beginning of the scales.
static inline uint32_t rn_tile_scale_at(uint32_t row, uint32_t col) {
    return row % 8 * 16 + col / 32 * 4 + row / 8 * 2;
}

enum { RN_TILE_SCALES_BYTES = 128 };

// Whether the column's step is: then Q6's scale is RN_TILE_SCALES_BYTES further on.
static inline bool rn_tile_is_odd(uint32_t col) {
    return col / 16 % 2;
}

uint32_t rn_tile_quants_bytes(rn_tile_form form); // before the scales

// ---- whole tiles --------------------------------------------------------------------------------

// 16 rows of a cell (128 columns, or 256 where a block is so long: two tiles), `step` bytes apart
// in the file's form, to `to`, which is written once, from its beginning to its end. Scales that
// are parts of their own are left alone.
typedef void rn_tile_packer(const uint8_t *from, uint64_t step, uint8_t *to);

rn_tile_packer rn_tile_pack_halves, rn_tile_pack_int8, rn_tile_pack_q8_0, rn_tile_pack_q4_0,
    rn_tile_pack_q4_k, rn_tile_pack_q6_k, rn_tile_pack_nf4;
// int4 has two weights in a byte, whose rows are far from each other.
rn_tile_packer rn_tile_pack_int4_low, rn_tile_pack_int4_high;
// To be called by whoever packed, before others may read.
void rn_tile_pack_end(void);

// A block of q4_k: 8 scales, then 8 offsets, not rounded yet.
void rn_tile_q4_k_scales(const uint8_t *block, float out[16]);
// A block of q6_k: its values, and a scale for each 16 of them.
void rn_tile_q6_k_bytes(const uint8_t *block, int8_t out_q[256], uint16_t out_scales[16]);

#endif

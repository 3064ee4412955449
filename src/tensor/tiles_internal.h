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
// The byte with two values of one row, and where the value is in it.
static inline uint32_t rn_tile_pair_at(uint32_t row, uint32_t col) {
    return (col / 64 * 32 + rn_tile_lane(row, col)) * 16 + col / 16 % 4 * 4 +
           rn_tile_index(row, col) / 2;
}
static inline int rn_tile_pair_shift(uint32_t col) {
    return col % 2 * 4;
}
// The word with two bits or one bit of a value, from the beginning of crumbs or bits; and which.
static inline uint32_t rn_tile_crumb_at(uint32_t row, uint32_t col) {
    return rn_tile_lane(row, col) * 16 + col / 32 * 4;
}
static inline uint32_t rn_tile_crumb_shift(uint32_t row, uint32_t col) {
    uint32_t i = rn_tile_index(row, col);
    return col / 16 % 2 * 8 + i / 2 % 2 * 4 + i / 4 * 2 + i % 2 * 16;
}
static inline uint32_t rn_tile_bit_at(uint32_t row, uint32_t col) {
    return rn_tile_lane(row, col) * 8 + col / 64 * 4;
}
static inline uint32_t rn_tile_bit_shift(uint32_t row, uint32_t col) {
    uint32_t i = rn_tile_index(row, col), n = col / 16 % 4 * 2 + i / 4;
    return n / 4 * 8 + n % 4 + i / 2 % 2 * 4 + i % 2 * 16;
}
// From the beginning of the scales.
static inline uint32_t rn_tile_scale_at(uint32_t row, uint32_t col) {
    return row % 8 * 16 + col / 32 * 4 + row / 8 * 2;
}

enum { RN_TILE_SCALES_BYTES = 128 };

// Small scales: the byte, and what it is multiplied with (`wholes` f16 of a row: d, or d and m).
static inline uint32_t rn_tile_small_at(uint32_t row, uint32_t col) {
    return row % 8 * 16 + col / 16 * 2 + row / 8;
}
static inline uint32_t rn_tile_whole_at(uint32_t row, uint32_t which, uint32_t wholes) {
    return RN_TILE_SCALES_BYTES + (row % 8 * wholes + which) * 4 + row / 8 * 2;
}

// What a tile consists of, in this order.
typedef enum rn_tile_plane {
    RN_PLANE_NONE,
    RN_PLANE_HALVES,  // 4096 bytes
    RN_PLANE_BYTES,   // 2048
    RN_PLANE_NIBBLES, // 1024
    RN_PLANE_PAIRS,   // 1024
    RN_PLANE_CRUMBS,  // 512
    RN_PLANE_BITS,    // 256
    RN_PLANE_COUNT
} rn_tile_plane;
typedef struct rn_tile_planes {
    rn_tile_plane low, high; // high: the bits above those of low
    uint32_t high_from;      // the first of them
    uint32_t scales;         // tables of RN_TILE_SCALES_BYTES
    uint32_t wholes;         // f16 a row behind them: scales are small ones
    bool parted;             // the second table has scales of the second 16 of 32 columns
} rn_tile_planes;
const rn_tile_planes *rn_tile_planes_of(rn_tile_form form);
uint32_t rn_tile_plane_bytes(rn_tile_plane plane);
uint32_t rn_tile_quants_bytes(rn_tile_form form); // before the scales

// ---- whole tiles --------------------------------------------------------------------------------

// 16 rows of a cell (128 columns, or 256 where a block is so long: two tiles), `step` bytes apart
// in the file's form, to `to`, which is written once, from its beginning to its end. Scales that
// are parts of their own are left alone.
typedef void rn_tile_packer(const uint8_t *from, uint64_t step, uint8_t *to);

rn_tile_packer rn_tile_pack_halves, rn_tile_pack_int8, rn_tile_pack_q8_0, rn_tile_pack_q4_0,
    rn_tile_pack_q4_k, rn_tile_pack_nf4, rn_tile_pack_e5m2;
// int4 has two weights in a byte, whose rows are far from each other.
rn_tile_packer rn_tile_pack_int4_low, rn_tile_pack_int4_high;
// To be called by whoever packed, before others may read.
void rn_tile_pack_end(void);

// A block of q4_k: 8 scales, then 8 offsets, not rounded yet.
void rn_tile_q4_k_scales(const uint8_t *block, float out[16]);

// ---- kinds whose blocks are taken apart first ---------------------------------------------------

// 128 or 256 columns of a row: numbers; f16 scales and offsets of 32 columns each (parted: scales
// of their halves), or small ones of 16 columns each and the f16 that they are multiplied with. A
// form uses what it has.
typedef struct rn_tile_row {
    uint8_t q[256];
    uint16_t scales[8], offsets[8];
    uint8_t small[16];
    uint16_t whole[2];
} rn_tile_row;

// A block into its place of `out`: the part-th of its cell, or all of it.
typedef void rn_tile_reader(const uint8_t *block, uint32_t part, rn_tile_row *out);
rn_tile_reader rn_tile_read_q4_1, rn_tile_read_q5_0, rn_tile_read_q5_1, rn_tile_read_iq4_nl,
    rn_tile_read_mxfp4, rn_tile_read_q5_k, rn_tile_read_iq4_xs, rn_tile_read_q6_k,
    rn_tile_read_q3_k, rn_tile_read_q2_k, rn_tile_read_tq1_0, rn_tile_read_tq2_0, rn_tile_read_q1_0,
    rn_tile_read_q2_0, rn_tile_read_nvfp4, rn_tile_read_iq3_s, rn_tile_read_iq3_xxs,
    rn_tile_read_iq2_xxs, rn_tile_read_iq2_xs, rn_tile_read_iq2_s, rn_tile_read_iq1_s,
    rn_tile_read_iq1_m;
// tiles_scaled.c
rn_tile_reader rn_tile_read_e4m3, rn_tile_read_f8_b128, rn_tile_read_f8_b32, rn_tile_read_fp4_b64,
    rn_tile_read_u4_b32;
// A tile from columns `col` .. `col` + 127 of 16 rows.
void rn_tile_pack_rows(rn_tile_form form, const rn_tile_row rows[16], uint32_t col, uint8_t *to);

// The tables of C2 and C3: a codebook's numbers (tensor/ggml_codebooks.h), positive, then negative.
extern const int8_t rn_tile_c2_values[16], rn_tile_c3_values[16];

#endif

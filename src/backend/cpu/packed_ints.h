// packed_ints.h — the kernels of products with rounded activations (graph/quantized_product.h), a
// table for each instruction level. Private to the packed product.
//
// Rounded rows of x stand in strips: a few rows side by side, block after block of 32 columns.
//
//     q    [8][rows][4] int8    four neighbouring columns of each row in a word
//     d    [rows] f32           the block's scale
//     sums [rows]               what q adds up to; as the kind wants it (below)
//     sums [rows]               PARTED: of the second half
//
// Weights are unsigned bytes, w + offset, so sum(w q) = sum((w + offset) q) - offset sum(q): a
// kernel's integer sum begins at `sums` = -offset sum(q). A few strips are multiplied straight from
// the panels (tensor/panels.h); for more, a part of some panels is unpacked into a tile first:
//
//     a block of 32 columns: [8][16 lanes][4] bytes, then some [16 lanes] f32 scales;
//     the same block of the panels that are multiplied together, side by side; the next block
//
// Where both are of 16 bits, the four columns of a word are two words: the even ones, the odd ones.
//
// All levels give the same bits: integer sums are exact, and float operations are those of the
// definition, one by one.
#ifndef RN_BACKEND_CPU_PACKED_INTS_H
#define RN_BACKEND_CPU_PACKED_INTS_H

#include <ration/tensor.h>

#include "tensor/kinds.h"

#define RN_INT_BLOCK 32

// How a block's sum enters the result.
typedef enum rn_int_kind {
    RN_INT_PLAIN,  // d * sum, and the row's scale at the end
    RN_INT_BYTES,  // (d * s0) * sum; weights of 8 bits
    RN_INT_SCALED, // the same, of up to 5 bits
    RN_INT_MINNED, // (d * s0) * sum - (d * s1) * sums; sums is f32 here, offset 0; up to 5 bits
    RN_INT_PARTED, // (d * s0) * (s1 * sum of the first half + s2 * sum of the second); up to 6 bits
    // The same - (d * s3) * (sums of both halves by their mins): two of 16 bits in the strip's
    // word; offset 0, 2 bits.
    RN_INT_PARTED_MINNED,
    // Of tiles alone. Of PARTED_MINNED: weights have been multiplied by the scales of their halves,
    // up to 45: (d * s0) * sum - (d * s1) * (sums by mins, which are in the lanes of s2).
    RN_INT_FOLDED,
    // Of PLAIN and BYTES, for levels without products of four bytes: weights and activations are
    // numbers of 16 bits, as they are.
    RN_INT_WIDE_PLAIN,
    RN_INT_WIDE,
    RN_INT_KINDS
} rn_int_kind;

// A kind of tensor/kinds.h, or a tile that some of it was unpacked into.
#define RN_INT_FORM(DTYPE, ...) RN_INT_##DTYPE,
typedef enum rn_int_form { RN_ROUNDED_KINDS(RN_INT_FORM) RN_INT_TILE, RN_INT_FORMS } rn_int_form;
#undef RN_INT_FORM

// One strip by one panel, or a few side by side.
typedef struct rn_int_job {
    const uint8_t *weights; // the first panel's first unit, or the tile
    uint64_t panel_bytes;   // from panel to panel; 0: one panel in place of all that the kernel
                            // takes. Blocks of a tile know their own
    const uint8_t *x;       // the strip's first block
    uint64_t blocks;        // of 32 columns
    float *y;               // (rows of the strip, cols)
    uint64_t y_row;         // floats from row to row
    uint32_t cols;          // 1 .. 16 a panel
    bool resume;            // go on with the sums in y
    const float *row_scale; // (16) of the first panel, panel_bytes apart; or NULL
    const float *bias;      // (cols), or NULL: added at last
} rn_int_job;

typedef void rn_int_kernel(const rn_int_job *job);

#define RN_INT_ROWS      8 // of a strip, at most
#define RN_INT_TILE_ROWS 6

typedef struct rn_int_kernels {
    uint32_t rows;         // of a whole strip that passes by tiles, at most RN_INT_TILE_ROWS
    uint32_t panels;       // that the `many` kernels take at once
    uint32_t strip_rows;   // of a whole strip of direct products, at most RN_INT_ROWS
    uint32_t strip_panels; // that strips of two rows and more are multiplied with at once
    uint32_t direct_rows[RN_INT_TILE];  // rows of x up to which products are direct, by form
    int byte_offset;                    // of weights of 8 bits, as this level multiplies them
    uint8_t tile_kind[RN_INT_KINDS];    // what tiles are of
    rn_int_kernel *direct[RN_INT_TILE]; // one row by one panel
    // [rows of the strip - 1]: one row by `panels` panels, more by `strip_panels`; NULL: no strip
    // of the form has so many rows
    rn_int_kernel *direct_many[RN_INT_TILE][RN_INT_ROWS];
    // [rows of the strip - 1], by the kind of tile
    rn_int_kernel *tile[RN_INT_KINDS][RN_INT_TILE_ROWS], *tile_many[RN_INT_KINDS][RN_INT_TILE_ROWS];
    // Blocks [first, first + blocks) of a panel, `step` bytes apart in the tile.
    void (*unpack)(rn_int_form form, const uint8_t *units, uint64_t first, uint64_t blocks,
                   uint8_t *tile, uint64_t step);
    // Columns [k, k + depth) of a panel as numbers: to[depth][16]. k is a multiple of 32; row_scale
    // is int8's.
    void (*widen)(rn_int_form form, const uint8_t *units, const float *row_scale, uint64_t k,
                  uint64_t depth, float *to);
    // rows (rows, cols) of x, x_row floats apart, to a strip
    void (*quantize)(const float *x, uint64_t x_row, uint32_t rows, uint64_t cols, rn_int_kind kind,
                     int offset, uint8_t *strip);
} rn_int_kernels;

// Of the level in use (base/cpu.h), and of a dtype whose products round activations.
const rn_int_kernels *rn_int_kernels_get(void);
rn_int_form rn_int_form_of(rn_dtype dtype);

extern const rn_int_kernels rn_int_portable;
extern const rn_int_kernels rn_int_avx2; // x86-64 builds only
extern const rn_int_kernels rn_int_vnni; // x86-64 builds only

// Bytes of a number in strips and tiles.
static inline uint64_t rn_int_number_bytes(rn_int_kind kind) {
    return kind == RN_INT_WIDE || kind == RN_INT_WIDE_PLAIN ? 2 : 1;
}
// Bytes of one row of a strip in a block.
static inline uint64_t rn_strip_block_bytes(rn_int_kind kind) {
    return RN_INT_BLOCK * rn_int_number_bytes(kind) + (kind == RN_INT_PARTED ? 12 : 8);
}
static inline int rn_tile_scales(rn_int_kind kind) {
    static const uint8_t scales[RN_INT_KINDS] = {0, 1, 1, 2, 3, 0, 3, 0, 1};
    return scales[kind];
}
static inline uint64_t rn_tile_block_bytes(rn_int_kind kind) {
    return 512 * rn_int_number_bytes(kind) + 64 * (uint64_t)rn_tile_scales(kind);
}
// The largest number that a tile's weights of bytes have.
static inline int rn_tile_most(rn_int_kind kind) {
    static const uint8_t most[RN_INT_KINDS] = {255, 255, 31, 31, 63, 0, 45, 0, 0};
    return most[kind];
}

// ---- of a form that is no tile ------------------------------------------------------------------

// Of a unit of the panels: its bytes, and its blocks of 32 columns.
static inline uint64_t rn_int_unit_bytes(rn_int_form form) {
#define BYTES(DTYPE, name, sum, offset, most, cols, file_bytes, unit_bytes, ...) unit_bytes,
    static const uint16_t bytes[RN_INT_TILE] = {RN_ROUNDED_KINDS(BYTES)};
#undef BYTES
    return bytes[form];
}
static inline uint64_t rn_int_unit_blocks(rn_int_form form) {
#define BLOCKS(DTYPE, name, sum, offset, most, cols, ...) cols / RN_INT_BLOCK,
    static const uint8_t blocks[RN_INT_TILE] = {RN_ROUNDED_KINDS(BLOCKS)};
#undef BLOCKS
    return blocks[form];
}
static inline rn_int_kind rn_int_kind_of(rn_int_form form) {
#define KIND(DTYPE, name, sum, ...) RN_INT_##sum,
    static const uint8_t kinds[RN_INT_TILE] = {RN_ROUNDED_KINDS(KIND)};
#undef KIND
    return (rn_int_kind)kinds[form];
}
// The largest number that weights have as kernels multiply them.
static inline int rn_int_most(rn_int_form form) {
#define MOST_OF(DTYPE, name, sum, offset, most, ...) most,
    static const uint8_t most[RN_INT_TILE] = {RN_ROUNDED_KINDS(MOST_OF)};
#undef MOST_OF
    return most[form];
}
// By how much it is above the weight that it stands for.
static inline int rn_int_offset(rn_int_form form) {
#define OFFSET(DTYPE, name, sum, offset, ...) offset,
    static const uint8_t offsets[RN_INT_TILE] = {RN_ROUNDED_KINDS(OFFSET)};
#undef OFFSET
    return offsets[form];
}

#endif

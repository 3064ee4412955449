// tile.h — the innermost loop of every f32 product: a few rows of C by one or two panels of B.
//
//     C[i][j] = (C[i][j] or 0) + sum over k of A[i][k] * B[k][j]  (+ bias[j])  (within two ends)
//
// A panel of B is [k][16]: 16 columns side by side, lanes without a column are anything finite.
// Rows of A stand where they stand: two groups of equally spaced rows, each k a step further; so
// packed operands, rows of a matrix and pixels of an image are all read by the same loop. The k's
// come in segments, `outer` times `inner` of them, each `depth` long: the taps of a convolution.
//
// A sum is one chain of fused multiply-adds in the order of k (portable: a product, then a sum). It
// goes on where C holds what came before. Hence no blocking of rows, columns or k changes a bit.
#ifndef RN_BACKEND_CPU_TILE_H
#define RN_BACKEND_CPU_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RN_PANEL      16 // columns of a panel
#define RN_TILE_ROWS  14 // of the largest tile of any level
#define RN_TILE_WIDTH 32

typedef struct rn_tile {
    const float *a[2];     // row 0, and the row after the first group
    size_t a_row, a_k;     // floats from row to row of a group, from k to k
    const float *b;        // panels of [k][16]; all segments of a panel follow each other
    size_t b_panel;        // floats from panel to panel
    float *c[2];           // (rows, cols), grouped like a
    size_t c_row;          // floats from row to row of a group
    const float *bias;     // (cols), added at the end; NULL: none
    uint32_t rows;         // 1 .. rows of the level; the second group has those beyond `group`
    uint32_t cols;         // 1 .. 16 * panels of the level
    uint32_t outer, inner; // segments
    size_t outer_step, inner_step; // floats of A from segment to segment
    size_t depth;                  // k's of a segment
    bool resume;                   // go on with the sums in C
    bool clamped; // C is kept within [low, high] at the end; not of rn_tile_set_gemm's
    float low, high;
    const float *next_c; // where the next tile of C begins: asked for in time; NULL: unknown
} rn_tile;

// What a level brings along.
typedef struct rn_tile_set {
    uint32_t rows;   // of a tile
    uint32_t group;  // rows of the first group; the second has as many
    uint32_t panels; // of a tile: 16 * panels columns
    uint32_t lanes;  // of A's packed panels: [k][lanes], `rows` of them used
    void (*run)(const rn_tile *tile);
    // Packs `count` rows (at most `lanes`) of k contiguous floats: to[k * to_step + row]; lanes
    // beyond count become 0.
    void (*pack_rows)(const float *from, size_t row_step, uint32_t count, size_t depth, float *to,
                      size_t to_step);
    // The same from k rows of contiguous columns: from[k * k_step + column].
    void (*pack_columns)(const float *from, size_t k_step, uint32_t count, size_t depth, float *to,
                         size_t to_step);
} rn_tile_set;

extern const rn_tile_set rn_tile_portable, rn_tile_avx2, rn_tile_avx512, rn_tile_wide_avx512;

// Packs `count` lanes, at most `width`, of `depth` k's: to[k * width + lane] = from[lane *
// lane_step + k * k_step]; lanes beyond count become 0. One of the steps is 1; width is a multiple
// of set->lanes.
void rn_tile_pack(const rn_tile_set *set, const float *from, size_t lane_step, size_t k_step,
                  uint32_t count, size_t depth, float *to, size_t width);

// Of the level in use (base/cpu.h).
const rn_tile_set *rn_tile_set_get(void);
// The one for gemm's blocks: rows are packed (a_row is 1, a_k is lanes) or contiguous (a_k is 1),
// there is one segment, and groups follow each other.
const rn_tile_set *rn_tile_set_gemm(void);

#endif

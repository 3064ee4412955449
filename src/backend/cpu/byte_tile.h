// byte_tile.h — the innermost loop of products of bytes: a few rows of u8 by a few panels of i8
// columns, as exact sums of i32.
//
//     sums[i][j] = sum over k of A[i][k] * B[k][j]
//
// Panels are those of tensor/column_panels.h. Whole numbers have no order of summation, and sums
// wrap: every level gives the same bits. `finish` takes the zero points away.
#ifndef RN_BACKEND_CPU_BYTE_TILE_H
#define RN_BACKEND_CPU_BYTE_TILE_H

#include <stddef.h>
#include <stdint.h>

enum { RN_BYTE_ROWS = 32, RN_BYTE_COLUMNS = 64 }; // of the largest tile of any level

typedef struct rn_byte_tile {
    const uint8_t *a; // (rows, depth): rows are a_row bytes apart
    size_t a_row;
    const uint8_t *b; // the first panel's k 0
    size_t b_panel;   // bytes from panel to panel
    size_t depth;     // k's, a multiple of 64; of B those beyond K are 0
    uint32_t rows, panels;
    uint32_t *sums; // [rows][RN_BYTE_COLUMNS]
} rn_byte_tile;

// What the sums of a tile's row become: (a - a_zero) by (b - b_zero), and where there is a scale
// that times the scale, plus the bias. Arrays are of the tile's columns.
typedef struct rn_byte_finish {
    uint32_t row_sum, a_zero;  // of A's row
    uint32_t k;                // terms of a sum
    const uint32_t *columns;   // sums of B's columns
    const uint32_t *b_zero;    //
    const float *scale, *bias; // NULL: none
    void *y;                   // i32, with a scale f32
    uint32_t count;            // columns of y
} rn_byte_finish;

typedef struct rn_byte_set {
    uint32_t rows, panels; // of a tile
    uint32_t row_unit;     // rows of A that are read together: there is memory for so many
    void (*run)(const rn_byte_tile *tile);
    void (*finish)(const rn_byte_finish *finish, const uint32_t *sums);
    // A row of A (k): to (depth), each byte XORed with flip, 0 behind; returns its sum.
    uint32_t (*pack_row)(const uint8_t *from, size_t k, uint8_t flip, uint8_t *to, size_t depth);
    // Around a thread's tiles; NULL: nothing to do.
    void (*begin)(void);
    void (*end)(void);
} rn_byte_set;

extern const rn_byte_set rn_byte_portable, rn_byte_avx2, rn_byte_avxvnni, rn_byte_vnni, rn_byte_amx;

// The best of the level in use (base/cpu.h) for products of so many rows.
const rn_byte_set *rn_byte_set_get(uint64_t rows);

#endif

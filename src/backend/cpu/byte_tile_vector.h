// byte_tile_vector.h — a tile of bytes by vectors: a lane is a column, sums stay in registers.
//
// A level brings: vint, LANES, ROWS, PANELS; vzero, vstore; operands `left` (four bytes of A in
// every lane) and `right` (four bytes of LANES columns) with their loads; dot(sum, left, right).
#define VECTORS    (16 / LANES) // of a panel's four k's
#define INSIDE     static inline __attribute__((always_inline))
#define BYTE(name) level_##name
#include "backend/cpu/byte_row_body.h"

INSIDE void run_tile(const rn_byte_tile *t, const uint32_t first, const uint32_t rows,
                     const uint32_t panels) {
    vint sums[ROWS][PANELS * VECTORS];
    const uint8_t *a = t->a, *b = t->b + first * t->b_panel;
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < panels * VECTORS; j++)
            sums[i][j] = vzero();
    for (size_t k = 0; k < t->depth; k += 4) {
        right columns[PANELS * VECTORS];
        for (uint32_t j = 0; j < panels * VECTORS; j++)
            columns[j] =
                load_right(b + j / VECTORS * t->b_panel + 16 * k + j % VECTORS * 4 * LANES);
        for (uint32_t i = 0; i < rows; i++) {
            left row = load_left(a + i * t->a_row + k);
            for (uint32_t j = 0; j < panels * VECTORS; j++)
                sums[i][j] = dot(sums[i][j], row, columns[j]);
        }
    }
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < panels * VECTORS; j++)
            vstore(t->sums + i * RN_BYTE_COLUMNS + 16 * first + j * LANES, sums[i][j]);
}

// Loops over rows and panels have constant ends where they are unrolled.
INSIDE void run_rows(const rn_byte_tile *t, const uint32_t rows) {
    if (t->panels == PANELS) {
        run_tile(t, 0, rows, PANELS);
        return;
    }
    for (uint32_t panel = 0; panel < t->panels; panel++)
        run_tile(t, panel, rows, 1);
}

static void run(const rn_byte_tile *t) {
    switch (t->rows) {
    case 1:
        run_rows(t, 1);
        break;
    case 2:
        run_rows(t, 2);
        break;
    case 3:
        run_rows(t, 3);
        break;
#if ROWS > 4
    case 4:
        run_rows(t, 4);
        break;
    case 5:
        run_rows(t, 5);
        break;
#endif
    default:
        run_rows(t, ROWS);
    }
}

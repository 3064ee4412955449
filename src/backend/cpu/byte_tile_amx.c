// byte_tile_amx.c — products of bytes by the matrix unit (AMX): 32 rows by 64 columns,
// 32 at a time.
//
// A tile register has 16 rows of 64 bytes: 16 rows of A by 64 k's, or 16 groups of four k's by 16
// columns of a panel, which is how panels lie. Four of them hold sums.
#include <immintrin.h>
#include <stdint.h>

#define BYTE(name) level_##name
#include "backend/cpu/byte_row_body.h"

enum { SIDE = 16, LINE = 64 };

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

// All eight are of 16 rows of 64 bytes. In memory: compilers see only eight bytes of it being read.
static const tile_config config = {.palette = 1,
                                   .row_bytes = {LINE, LINE, LINE, LINE, LINE, LINE, LINE, LINE},
                                   .rows = {SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE}};

static void begin(void) {
    _tile_loadconfig(&config);
}

static void end(void) {
    _tile_release();
}

// 32 rows by panels `panel` and the next: sums are tiles 0 and 1 (rows 0 to 15), 2 and 3.
static void run_four(const rn_byte_tile *t, uint32_t panel) {
    const uint8_t *a = t->a, *b = t->b + panel * t->b_panel;
    uint32_t *sums = t->sums + panel * SIDE;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (size_t k = 0; k < t->depth; k += LINE, a += LINE, b += SIDE * LINE) {
        _tile_loadd(4, a, t->a_row);
        _tile_loadd(6, b, LINE);
        _tile_dpbusd(0, 4, 6);
        _tile_loadd(7, b + t->b_panel, LINE);
        _tile_dpbusd(1, 4, 7);
        _tile_loadd(5, a + SIDE * t->a_row, t->a_row);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
    }
    const size_t step = RN_BYTE_COLUMNS * sizeof(uint32_t);
    _tile_stored(0, sums, step);
    _tile_stored(1, sums + SIDE, step);
    _tile_stored(2, sums + SIDE * RN_BYTE_COLUMNS, step);
    _tile_stored(3, sums + SIDE * RN_BYTE_COLUMNS + SIDE, step);
}

// 16 rows by one panel.
static void run_one(const rn_byte_tile *t, uint32_t row, uint32_t panel) {
    const uint8_t *a = t->a + row * t->a_row, *b = t->b + panel * t->b_panel;
    _tile_zero(0);
    for (size_t k = 0; k < t->depth; k += LINE, a += LINE, b += SIDE * LINE) {
        _tile_loadd(4, a, t->a_row);
        _tile_loadd(6, b, LINE);
        _tile_dpbusd(0, 4, 6);
    }
    _tile_stored(0, t->sums + row * RN_BYTE_COLUMNS + panel * SIDE,
                 RN_BYTE_COLUMNS * sizeof(uint32_t));
}

static void run(const rn_byte_tile *t) {
    uint32_t panel = 0;
    for (; t->rows > SIDE && panel + 2 <= t->panels; panel += 2)
        run_four(t, panel);
    for (; panel < t->panels; panel++)
        for (uint32_t row = 0; row < t->rows; row += SIDE)
            run_one(t, row, panel);
}

const rn_byte_set rn_byte_amx = {.rows = 2 * SIDE,
                                 .panels = 4,
                                 .row_unit = SIDE,
                                 .run = run,
                                 .finish = level_finish,
                                 .pack_row = level_pack_row,
                                 .begin = begin,
                                 .end = end};

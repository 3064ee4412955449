// tile_portable.c — tiles in plain C: what the other levels must equal but for fused sums.
#include "backend/cpu/tile.h"

#include "base/cpu.h"

#include <string.h>

enum { ROWS = 4, GROUP = 2, LANES = 4 };

static const float *row_of(const rn_tile *t, uint32_t row) {
    return row < GROUP ? t->a[0] + row * t->a_row : t->a[1] + (row - GROUP) * t->a_row;
}

static void run_row(const rn_tile *t, const float *a, float *c) {
    float sums[RN_PANEL] = {0};
    const float *b = t->b;
    if (t->resume) memcpy(sums, c, t->cols * sizeof *c);
    for (uint32_t o = 0; o < t->outer; o++)
        for (uint32_t i = 0; i < t->inner; i++) {
            const float *segment = a + o * t->outer_step + i * t->inner_step;
            for (size_t k = 0; k < t->depth; k++, b += RN_PANEL)
                for (uint32_t j = 0; j < RN_PANEL; j++)
                    sums[j] += segment[k * t->a_k] * b[j];
        }
    for (uint32_t j = 0; j < t->cols; j++)
        c[j] = t->bias ? sums[j] + t->bias[j] : sums[j];
    for (uint32_t j = 0; t->clamped && j < t->cols; j++)
        c[j] = c[j] < t->low ? t->low : c[j] > t->high ? t->high : c[j];
}

static void run(const rn_tile *t) {
    for (uint32_t row = 0; row < t->rows; row++)
        run_row(t, row_of(t, row),
                row < GROUP ? t->c[0] + row * t->c_row : t->c[1] + (row - GROUP) * t->c_row);
}

static void pack_rows(const float *from, size_t row_step, uint32_t count, size_t depth, float *to,
                      size_t to_step) {
    for (size_t k = 0; k < depth; k++)
        for (uint32_t row = 0; row < LANES; row++)
            to[k * to_step + row] = row < count ? from[row * row_step + k] : 0;
}

static void pack_columns(const float *from, size_t k_step, uint32_t count, size_t depth, float *to,
                         size_t to_step) {
    for (size_t k = 0; k < depth; k++)
        for (uint32_t col = 0; col < LANES; col++)
            to[k * to_step + col] = col < count ? from[k * k_step + col] : 0;
}

const rn_tile_set rn_tile_portable = {ROWS, GROUP, 1, LANES, run, pack_rows, pack_columns};

void rn_tile_pack(const rn_tile_set *set, const float *from, size_t lane_step, size_t k_step,
                  uint32_t count, size_t depth, float *to, size_t width) {
    for (uint32_t lane = 0; lane < width; lane += set->lanes) {
        uint32_t some = lane < count ? count - lane : 0;
        if (some > set->lanes) some = set->lanes;
        const float *first = some ? from + lane * lane_step : from;
        if (k_step == 1)
            set->pack_rows(first, lane_step, some, depth, to + lane, width);
        else
            set->pack_columns(first, k_step, some, depth, to + lane, width);
    }
}

const rn_tile_set *rn_tile_set_get(void) {
#if defined(__x86_64__)
    rn_cpu_level level = rn_cpu_level_get();
    if (level == RN_CPU_AVX512) return &rn_tile_avx512;
    if (level == RN_CPU_AVX2) return &rn_tile_avx2;
#endif
    return &rn_tile_portable;
}

const rn_tile_set *rn_tile_set_gemm(void) {
#if defined(__x86_64__)
    if (rn_cpu_level_get() == RN_CPU_AVX512) return &rn_tile_wide_avx512;
#endif
    return rn_tile_set_get();
}

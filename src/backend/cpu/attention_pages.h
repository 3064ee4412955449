// attention_pages.h — keys and values straight from a page, for one row of queries: no f32 copy of
// them is made that the first cache would have to hold. Private to paged attention.
//
// The sums are those of attention_tile.h, one by one; only where their operands come from differs.
#ifndef RN_BACKEND_CPU_ATTENTION_PAGES_H
#define RN_BACKEND_CPU_ATTENTION_PAGES_H

#include <ration/tensor.h>

#define RN_PAGE_KEYS 32 // whose columns are made at once

// Neighbouring tokens of a page: their keys, or their values.
typedef struct rn_page_rows {
    const uint8_t *data;
    const uint8_t *next; // as many bytes that will be wanted soon: asked for on the way
    uint64_t row_bytes;
    uint64_t count; // 1 .. 64
    uint64_t dims;  // a multiple of 16; of 32 for q8_0
    rn_dtype dtype; // f32, f16 or q8_0
} rn_page_rows;

typedef struct rn_page_kernels {
    // columns[d * RN_PAGE_KEYS + first + i] = row i at d; first + count is at most RN_PAGE_KEYS.
    void (*columns)(const rn_page_rows *rows, uint64_t first, float *columns);
    // scores (heads, 64): in the first RN_PAGE_KEYS of each row, sums over d in order of q (heads,
    // dims) times the columns, by fused multiply-adds. Columns of no key give anything.
    void (*scores)(const float *q, uint64_t dims, uint64_t heads, const float *columns,
                   float *scores);
    // y (heads, dims): a fused sum over the rows i in order, from y on, of p[h * p_row + i] times
    // row i at d.
    void (*values)(const rn_page_rows *rows, const float *p, uint64_t p_row, uint64_t heads,
                   float *y);
} rn_page_kernels;

extern const rn_page_kernels rn_page_avx512; // x86-64 builds only

// Of the level in use (base/cpu.h); NULL where it has none.
const rn_page_kernels *rn_page_kernels_get(void);

#endif

// row_product.c — the call, and the portable kernels.
#include "backend/cpu/row_product.h"

#include "backend/cpu/share.h"
#include "base/checked.h"
#include "base/cpu.h"
#include "graph/plain_matrix.h"

#include <math.h>
#include <string.h>

// ---- portable -----------------------------------------------------------------------------------

static int32_t dot(const int8_t *x, const int8_t *w) {
    int32_t sum = 0;
    for (int i = 0; i < 16; i++)
        sum += x[i] * w[i];
    return sum;
}

static void multiply(const rn_row_tile *tile, rn_quantized_row x, uint64_t first,
                     float sums[RN_ROW_LANES]) {
    for (uint64_t r = 0; r < RN_ROW_LANES; r++)
        for (uint64_t b = 0; b < tile->blocks; b++) {
            const int8_t *w = tile->q + (r * tile->blocks + b) * 32, *q = x.q + (first + b) * 32;
            const float *scales = tile->scales + b * 2 * RN_ROW_LANES;
            float sum = scales[r] * (float)dot(q, w);
            sum = fmaf(scales[RN_ROW_LANES + r], (float)dot(q + 16, w + 16), sum);
            sums[r] = fmaf(x.scale[first + b], sum, sums[r]);
        }
}

const rn_row_kernels rn_row_portable = {rn_row_kind_read, multiply};

static const rn_row_kernels *get_kernels(void) {
#if defined(__x86_64__)
    if (rn_cpu_level_get() != RN_CPU_PORTABLE) return &rn_row_avx2;
#endif
    return &rn_row_portable;
}

static rn_row_one *get_one(rn_dtype dtype) {
#if defined(__x86_64__)
    if (rn_cpu_has_vnni()) return rn_row_one_vnni[dtype];
    if (rn_cpu_level_get() != RN_CPU_PORTABLE) return rn_row_one_avx2[dtype];
#endif
    (void)dtype;
    return NULL;
}

// ---- the call -----------------------------------------------------------------------------------

typedef struct product {
    const rn_row_kernels *kernels;
    rn_row_one *one; // NULL: rows of x go by tiles
    rn_dtype dtype;
    const uint8_t *weights;
    uint64_t m, n, k, row_bytes;
    const float *x, *bias; // bias NULL: none
    float *y;
    uint8_t *rounded; // (m) rows of rounded_bytes
    uint64_t rounded_bytes;
    uint8_t *tiles; // (threads) of tile_bytes
    uint64_t tile_bytes;
} product;

// Columns of a tile, in blocks: 16 KiB of bytes. A multiple of every kind's blocks.
enum { TILE_BLOCKS = 64, TILE_SCALES = 2 * RN_ROW_LANES };

static uint64_t tile_bytes(void) {
    return TILE_BLOCKS * (RN_ROW_LANES * 32 + TILE_SCALES * sizeof(float));
}

static product read_call(const rn_call *call) {
    const rn_tensor *x = &call->inputs[0], *w = &call->inputs[1];
    const rn_dtype_info *info = rn_dtype_get(w->dtype);
    bool biased = call->input_count > 2 && rn_tensor_given(&call->inputs[2]);
    uint64_t k = w->shape.dims[1];
    return (product){.dtype = w->dtype,
                     .weights = w->data,
                     .m = k ? rn_tensor_elements(x) / k : 0,
                     .n = w->shape.dims[0],
                     .k = k,
                     .row_bytes = k / info->block_elements * info->block_bytes,
                     .x = x->data,
                     .bias = biased ? call->inputs[2].data : NULL,
                     .y = call->outputs[0].data,
                     .rounded_bytes = rn_quantized_row_bytes(k),
                     .tile_bytes = tile_bytes()};
}

static void round_row(void *arg, size_t row) {
    const product *p = arg;
    rn_quantize_row(p->x + row * p->k, p->k,
                    rn_quantized_row_at(p->rounded + row * p->rounded_bytes, p->k));
}

// Blocks [block, block + tile->blocks) of eight rows from `first` on; behind the last row it is the
// last again.
static void read_tile(const product *p, uint64_t first, uint64_t block, rn_row_tile *tile) {
    for (uint64_t r = 0; r < RN_ROW_LANES; r++) {
        uint64_t row = rn_min_u64(first + r, p->n - 1);
        p->kernels->read(p->dtype, p->weights + row * p->row_bytes, block, tile->blocks,
                         (rn_row_blocks){.q = tile->q + r * tile->blocks * 32,
                                         .first = tile->scales + r,
                                         .second = tile->scales + RN_ROW_LANES + r,
                                         .step = TILE_SCALES});
    }
}

// y holds the sums from tile to tile.
static void multiply_rows(void *arg, uint32_t slot, size_t group) {
    const product *p = arg;
    uint64_t blocks = p->k / RN_ROW_BLOCK, first = group * RN_ROW_LANES;
    uint64_t count = rn_min_u64(RN_ROW_LANES, p->n - first);
    uint8_t *memory = p->tiles + slot * p->tile_bytes;
    rn_row_tile tile = {.scales = (float *)(void *)memory,
                        .q = (int8_t *)memory + TILE_BLOCKS * TILE_SCALES * sizeof(float)};
    for (uint64_t b = 0; b < blocks; b += TILE_BLOCKS) {
        tile.blocks = rn_min_u64(TILE_BLOCKS, blocks - b);
        read_tile(p, first, b, &tile);
        for (uint64_t m = 0; m < p->m; m++) {
            float sums[RN_ROW_LANES] = {0}, *y = p->y + m * p->n + first;
            if (b) memcpy(sums, y, count * sizeof *y);
            p->kernels->multiply(
                &tile, rn_quantized_row_at(p->rounded + m * p->rounded_bytes, p->k), b, sums);
            bool last = b + tile.blocks == blocks && p->bias;
            for (uint64_t r = 0; r < count; r++)
                y[r] = last ? sums[r] + p->bias[first + r] : sums[r];
        }
    }
}

static void multiply_one(void *arg, size_t group) {
    const product *p = arg;
    uint64_t first = group * RN_ROW_LANES, count = rn_min_u64(RN_ROW_LANES, p->n - first);
    const uint8_t *rows[RN_ROW_LANES];
    float sums[RN_ROW_LANES];
    for (uint64_t r = 0; r < RN_ROW_LANES; r++)
        rows[r] = p->weights + rn_min_u64(first + r, p->n - 1) * p->row_bytes;
    p->one(rows, p->row_bytes, p->k / RN_ROW_BLOCK, rn_quantized_row_at(p->rounded, p->k), sums);
    for (uint64_t r = 0; r < count; r++)
        p->y[first + r] = p->bias ? sums[r] + p->bias[first + r] : sums[r];
}

rn_status rn_cpu_row_matmul(const rn_call *call) {
    product p = read_call(call);
    rn_plain_matrix w;
    RN_TRY(rn_plain_matrix_of(&call->inputs[1], &w)); // plain, in whole blocks
    p.kernels = get_kernels();
    p.rounded = call->workspace;
    p.tiles = p.rounded + p.m * p.rounded_bytes;
    p.one = p.m == 1 ? get_one(p.dtype) : NULL;
    rn_call_each(call, p.m, round_row, &p);
    if (p.one)
        rn_call_each(call, (size_t)rn_div_up(p.n, RN_ROW_LANES), multiply_one, &p);
    else
        rn_share(call, rn_div_up(p.n, RN_ROW_LANES), multiply_rows, &p);
    return RN_OK;
}

uint64_t rn_cpu_row_matmul_workspace(const rn_call *call) {
    product p = read_call(call);
    uint64_t threads = call->threads ? call->threads : 1;
    return p.m * p.rounded_bytes + threads * p.tile_bytes;
}

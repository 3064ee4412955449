// product.c — products of i8 and u8 with zero points, exact; of other dtypes the reference loop.
//
//     (a - p) by (b - q), summed over k  =  ab - p * (sum of b's column)
//                                              - q * (sum of a's row - k * p)
//
// So bytes are multiplied as they are, a as u8 and b as i8 (128 more or less, with their zero
// points), and what zero points add is taken away at the end. Rows of A are copied first, with
// their sums; B lies in panels (tensor/column_panels.h), or is packed by the thread that needs it.
#include "backend/cpu/byte_tile.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/share.h"

#include "base/checked.h"
#include "graph/op/move.h"
#include "graph/op/number.h"
#include "tensor/column_panels.h"

#include <string.h>

enum { A, B, A_ZERO, B_ZERO, SCALE, BIAS };
enum { BLOCK_ROWS = 1024, ROW_UNIT = 16, MOST_PANELS = 4 };

// One pair of matrices.
typedef struct bytes {
    const rn_call *call;
    const rn_byte_set *set;
    uint64_t m, n, k, depth;
    uint64_t row_bytes; // from row to row of a block
    rn_column_panels panels;
    const uint8_t *a, *b;    // (M, K); (K, N), or panels of it
    uint8_t *y;              // (M, N), four bytes each
    uint8_t *rows;           // (rows of a block, depth): u8
    uint32_t *row_sums;      // (rows of a block)
    uint8_t *packed;         // (threads, panels of a tile) where B is plain
    uint64_t row, row_count; // of the block
    uint64_t row_parts;      // that a block is cut into for more tasks
    bool zero_each;          // each row of A has its own zero point
    uint32_t a_zero;         // where it has not
} bytes;

static bool is_plain(const bytes *p) {
    return p->call->inputs[B].layout == RN_LAYOUT_PLAIN;
}

static uint32_t byte_at(const rn_tensor *of, uint64_t at) {
    uint8_t byte = ((const uint8_t *)of->data)[at];
    return of->dtype == RN_DTYPE_I8 ? (uint32_t)(int8_t)byte : byte;
}

// Of row or column `at`, as a u8's or an i8's zero point.
static uint32_t zero_of(const rn_call *call, uint32_t zero, uint64_t at) {
    const rn_tensor *z = &call->inputs[zero];
    rn_dtype held_as = zero == A_ZERO ? RN_DTYPE_U8 : RN_DTYPE_I8;
    uint32_t value = 0, shift = zero == A_ZERO ? 128 : (uint32_t)-128;
    if (rn_tensor_given(z)) value = byte_at(z, rn_tensor_elements(z) == 1 ? 0 : at);
    return call->inputs[zero - A_ZERO].dtype == held_as ? value : value + shift;
}

static uint8_t flip_of(const rn_call *call, uint32_t operand, rn_dtype held_as) {
    return call->inputs[operand].dtype == held_as ? 0 : 0x80;
}

// ---- a block of rows ----------------------------------------------------------------------------

static void pack_row(void *arg, size_t index) {
    const bytes *p = arg;
    p->row_sums[index] =
        p->set->pack_row(p->a + (p->row + index) * p->k, p->k, flip_of(p->call, A, RN_DTYPE_U8),
                         p->rows + index * p->row_bytes, p->depth);
}

// What all rows of some columns have in common.
typedef struct columns {
    uint64_t first; // column
    uint32_t count, panels;
    const uint8_t *b; // the first panel
    uint32_t sums[RN_BYTE_COLUMNS], zeros[RN_BYTE_COLUMNS];
    float scale[RN_BYTE_COLUMNS];
    const float *bias;
    bool scaled;
} columns;

static void pack_columns(const bytes *p, const columns *c, uint8_t *to) {
    for (uint32_t i = 0; i < c->panels; i++)
        rn_byte_panel_pack(p->b + c->first + 16 * i, p->n, p->k,
                           (uint32_t)rn_min_u64(16, c->count - 16 * i),
                           flip_of(p->call, B, RN_DTYPE_I8), to + i * p->panels.panel_bytes);
}

static void read_columns(const bytes *p, columns *c) {
    const rn_call *call = p->call;
    const rn_tensor *scale = &call->inputs[SCALE], *bias = &call->inputs[BIAS];
    c->scaled = call->op == RN_OP_PRODUCT_SCALED;
    for (uint32_t i = 0; i < c->panels; i++)
        memcpy(c->sums + 16 * i, c->b + i * p->panels.panel_bytes, 16 * sizeof(uint32_t));
    for (uint32_t j = 0; j < c->count; j++)
        c->zeros[j] = zero_of(call, B_ZERO, c->first + j);
    if (!c->scaled) return;
    const float *from = scale->data;
    for (uint32_t j = 0; j < c->count; j++)
        c->scale[j] = from[rn_tensor_elements(scale) == 1 ? 0 : c->first + j];
    if (rn_tensor_given(bias)) c->bias = (const float *)bias->data + c->first;
}

static void multiply_tile(const bytes *p, const columns *c, uint64_t row, uint32_t rows) {
    uint32_t sums[RN_BYTE_ROWS * RN_BYTE_COLUMNS];
    rn_byte_tile tile = {.a = p->rows + row * p->row_bytes,
                         .a_row = p->row_bytes,
                         .b = c->b + p->panels.head_bytes,
                         .b_panel = p->panels.panel_bytes,
                         .depth = p->depth,
                         .rows = rows,
                         .panels = c->panels,
                         .sums = sums};
    p->set->run(&tile);
    for (uint32_t i = 0; i < rows; i++) {
        uint64_t at = (p->row + row + i) * p->n + c->first;
        rn_byte_finish finish = {.row_sum = p->row_sums[row + i],
                                 .a_zero = p->zero_each ? zero_of(p->call, A_ZERO, p->row + row + i)
                                                        : p->a_zero,
                                 .k = (uint32_t)p->k,
                                 .columns = c->sums,
                                 .b_zero = c->zeros,
                                 .scale = c->scaled ? c->scale : NULL,
                                 .bias = c->bias,
                                 .y = p->y + 4 * at,
                                 .count = c->count};
        p->set->finish(&finish, sums + i * RN_BYTE_COLUMNS);
    }
}

// Some rows by the panels of a tile.
static void multiply_some(void *arg, uint32_t slot, size_t index) {
    const bytes *p = arg;
    const uint64_t width = 16 * p->set->panels, unit = p->set->rows;
    columns c = {.first = index / p->row_parts * width};
    c.count = (uint32_t)rn_min_u64(width, p->n - c.first);
    c.panels = (uint32_t)rn_div_up(c.count, 16);
    uint8_t *packed = p->packed + slot * p->set->panels * p->panels.panel_bytes;
    if (is_plain(p)) pack_columns(p, &c, packed);
    c.b = is_plain(p) ? packed : p->b + c.first / 16 * p->panels.panel_bytes;
    read_columns(p, &c);
    uint64_t step = rn_round_up(rn_div_up(p->row_count, p->row_parts), unit);
    uint64_t begin = index % p->row_parts * step, end = rn_min_u64(begin + step, p->row_count);
    if (p->set->begin) p->set->begin();
    for (uint64_t row = begin; row < end; row += unit)
        multiply_tile(p, &c, row, (uint32_t)rn_min_u64(unit, end - row));
    if (p->set->end) p->set->end();
}

static void run_block(bytes *p) {
    uint64_t across = rn_div_up(p->n, 16 * p->set->panels), enough = 4 * (uint64_t)p->call->threads;
    p->row_parts = 1;
    if (!is_plain(p) && across < enough)
        p->row_parts = rn_min_u64(rn_div_up(enough, across), rn_div_up(p->row_count, p->set->rows));
    rn_call_each(p->call, p->row_count, pack_row, p);
    rn_share(p->call, across * p->row_parts, multiply_some, p);
}

// ---- the call -----------------------------------------------------------------------------------

static bool takes(const rn_call *call) {
    return call->op == RN_OP_PRODUCT_SCALED ||
           (call->outputs[0].dtype == RN_DTYPE_I32 && call->inputs[A].dtype != RN_DTYPE_I32);
}

static bytes read_call(const rn_call *call) {
    rn_shape a = call->inputs[A].shape, b = call->inputs[B].shape;
    bytes p = {.call = call, .m = a.dims[a.rank - 2], .n = b.dims[b.rank - 1]};
    p.k = a.dims[a.rank - 1];
    p.depth = rn_round_up(p.k, RN_BYTE_DEPTH);
    // Rows of a tile in different sets of the first cache: an odd number of lines.
    p.row_bytes = p.depth % 128 ? p.depth : p.depth + 64;
    p.a = call->inputs[A].data;
    p.b = call->inputs[B].data;
    p.y = call->outputs[0].data;
    (void)rn_column_panels_of(RN_DTYPE_I8, p.k, p.n, &p.panels); // as large as what is there
    // One matrix for all batches, and zeros that are the same for all rows: all rows are one
    // matrix.
    const rn_tensor *zero = &call->inputs[A_ZERO];
    p.zero_each = rn_tensor_given(zero) && rn_tensor_elements(zero) != 1;
    if (rn_tensor_elements(&call->inputs[B]) == p.k * p.n && !p.zero_each)
        p.m = rn_tensor_elements(&call->outputs[0]) / rn_max_u64(p.n, 1);
    p.set = rn_byte_set_get(p.m);
    return p;
}

// Of a block: its rows, their sums.
static uint64_t rows_bytes(const bytes *p) {
    return rn_round_up(rn_min_u64(p->m, BLOCK_ROWS), ROW_UNIT) * p->row_bytes;
}

static uint64_t sums_bytes(const bytes *p) {
    return rn_round_up(rn_min_u64(p->m, BLOCK_ROWS) * sizeof(uint32_t), 64);
}

uint64_t rn_cpu_product_workspace(const rn_call *call) {
    if (!takes(call)) return 0;
    bytes p = read_call(call);
    uint64_t packed = is_plain(&p) ? call->threads * MOST_PANELS * p.panels.panel_bytes : 0;
    return rows_bytes(&p) + sums_bytes(&p) + packed;
}

rn_status rn_cpu_product(const rn_call *call) {
    if (!takes(call)) return rn_op_get(call->op)->reference(call);
    bytes p = read_call(call);
    rn_shape y = call->outputs[0].shape, batches = y;
    batches.rank -= 2;
    rn_shape a = call->inputs[A].shape, b = call->inputs[B].shape, inner = batches;
    a.rank -= 2, b.rank -= 2;
    rn_strides as = rn_strides_stretched(a, batches), bs = rn_strides_stretched(b, batches);
    inner.dims[inner.rank++] = 1; // a batch is a row of one element
    if (!p.zero_each) p.a_zero = zero_of(call, A_ZERO, 0);
    p.rows = call->workspace;
    p.row_sums = (uint32_t *)(void *)(p.rows + rows_bytes(&p));
    p.packed = p.rows + rows_bytes(&p) + sums_bytes(&p);
    uint64_t elements = rn_tensor_elements(&call->outputs[0]), pairs = p.m * p.n;
    for (uint64_t i = 0; pairs && i < elements / pairs; i++) {
        bytes pair = p;
        bool all = elements == pairs && inner.rank > 1; // all batches at once
        pair.a += all ? 0 : rn_row_begin(inner, i, &as) * p.m * p.k;
        pair.b += all ? 0 : rn_row_begin(inner, i, &bs) * p.k * p.n;
        pair.y += i * pairs * 4;
        for (pair.row = 0; pair.row < p.m; pair.row += BLOCK_ROWS) {
            pair.row_count = rn_min_u64(BLOCK_ROWS, p.m - pair.row);
            run_block(&pair);
        }
    }
    return RN_OK;
}

// paged_attention.c — attention of rows of any sequences to the keys in their pages.
//
// Rows are cut into blocks by their number; within a block, rows of successive tokens (a prefill
// chunk) share each tile of keys, which is gathered from the pages and widened once for all heads
// that read it.
#include "backend/cpu/attention_tile.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/share.h"
#include "base/checked.h"
#include "graph/kv_pages.h"

#include <string.h>

enum { TILE = RN_ATTENTION_TILE, ROWS = 32 };

typedef struct paged {
    const rn_call *call;
    rn_kv_pages kv;
    uint64_t heads, group; // of q; of them to a key head
    uint64_t rows;         // in a block
    uint64_t slot_bytes;
    float scale;
} paged;

// What a thread works in.
typedef struct desk {
    rn_attention_range *visible; // (rows)
    float *columns;              // (dims, 64)
    float *keys;                 // (64, dims)
    float *values;               // (64, dims)
    float *top, *sum;            // (group, rows)
} desk;

static uint64_t slot_bytes(uint64_t rows, uint64_t group, uint64_t dims) {
    return rn_round_up(rows * sizeof(rn_attention_range), 64) +
           rn_round_up((3 * dims * TILE + 2 * group * rows) * sizeof(float), 64);
}

static uint64_t block_rows(const rn_call *call) {
    uint64_t rows = call->slice_rows ? call->slice_rows : ROWS;
    return rn_min_u64(rows, call->inputs[0].shape.dims[0]);
}

uint64_t rn_cpu_paged_attention_workspace(const rn_call *call) {
    rn_shape q = call->inputs[0].shape, kv = call->inputs[1].shape;
    return call->threads * slot_bytes(block_rows(call), q.dims[1] / kv.dims[2], q.dims[2]);
}

static desk open_desk(const paged *p, uint32_t slot) {
    char *base = (char *)p->call->workspace + slot * p->slot_bytes;
    uint64_t tile = p->kv.dims * TILE;
    desk d = {.visible = (rn_attention_range *)base};
    d.columns = (float *)(base + rn_round_up(p->rows * sizeof *d.visible, 64));
    d.keys = d.columns + tile;
    d.values = d.keys + tile;
    d.top = d.values + tile;
    d.sum = d.top + p->group * p->rows;
    return d;
}

// ---- the keys -----------------------------------------------------------------------------------

static rn_attention_range find_keys(const paged *p, uint64_t row) {
    rn_attention_attrs causal = *(const rn_attention_attrs *)p->call->attrs;
    causal.causal = true;
    return rn_attention_visible(&causal, p->kv.position[row], p->kv.max_pages * p->kv.page_tokens);
}

// Tokens [first, end) as f32 rows of (dims), those of one page at a time; keys before them are 0.
static void gather(const paged *p, uint64_t sequence, uint64_t head, uint64_t tile, uint64_t first,
                   uint64_t end, const desk *d) {
    uint64_t dims = p->kv.dims;
    memset(d->keys, 0, (first - tile) * dims * sizeof(float));
    while (first < end) {
        uint64_t page_end = (first / p->kv.page_tokens + 1) * p->kv.page_tokens;
        uint64_t count = rn_min_u64(page_end, end) - first, at = (first - tile) * dims;
        const void *k = rn_kv_key(&p->kv, sequence, first, head);
        const void *v = rn_kv_value(&p->kv, sequence, first, head);
        (void)!rn_dtype_to_f32(p->kv.dtype, k, d->keys + at,
                               count * dims); // f16 or f32: never fails
        (void)!rn_dtype_to_f32(p->kv.dtype, v, d->values + at, count * dims);
        first += count;
    }
}

// ---- the queries --------------------------------------------------------------------------------

// The rows [row, row + count) of one sequence, for one head of the group.
static rn_query_block open_block(const paged *p, const desk *d, uint64_t row, uint64_t count,
                                 uint64_t kv_head, uint64_t i) {
    uint64_t at = (row * p->heads + kv_head * p->group + i) * p->kv.dims;
    return (rn_query_block){.q = (const float *)p->call->inputs[0].data + at,
                            .y = (float *)p->call->outputs[0].data + at,
                            .stride = p->heads * p->kv.dims,
                            .count = count,
                            .dims = p->kv.dims,
                            .scale = p->scale,
                            .top = d->top + i * p->rows,
                            .sum = d->sum + i * p->rows,
                            .visible = d->visible};
}

static void attend_run(const paged *p, const desk *d, uint64_t row, uint64_t count,
                       uint64_t kv_head) {
    uint64_t sequence = (uint64_t)p->kv.sequence[row], dims = p->kv.dims;
    for (uint64_t r = 0; r < count; r++)
        d->visible[r] = find_keys(p, row + r);
    for (uint64_t i = 0; i < p->group; i++) {
        rn_query_block block = open_block(p, d, row, count, kv_head, i);
        rn_query_block_begin(&block);
    }
    rn_query_block any = open_block(p, d, row, count, kv_head, 0);
    rn_attention_range range = rn_query_block_range(&any);
    for (uint64_t tile = rn_round_down(range.first, TILE); tile < range.end; tile += TILE) {
        uint64_t first = rn_max_u64(tile, range.first), end = rn_min_u64(tile + TILE, range.end);
        gather(p, sequence, kv_head, tile, first, end, d);
        rn_columns_of(d->keys, dims, end - tile, dims, d->columns);
        rn_key_tile keys = {
            .first = tile, .key_columns = d->columns, .values = d->values, .value_stride = dims};
        for (uint64_t i = 0; i < p->group; i++) {
            rn_query_block block = open_block(p, d, row, count, kv_head, i);
            rn_query_block_add(&block, &keys);
        }
    }
    for (uint64_t i = 0; i < p->group; i++) {
        rn_query_block block = open_block(p, d, row, count, kv_head, i);
        rn_query_block_end(&block, NULL);
    }
}

// Rows of no sequence give zeros.
static void blank(const paged *p, uint64_t row, uint64_t kv_head) {
    uint64_t width = p->group * p->kv.dims;
    float *y = (float *)p->call->outputs[0].data + row * p->heads * p->kv.dims + kv_head * width;
    memset(y, 0, width * sizeof(float));
}

// Whether a row is of the token after that of the row before it: then all that lies between the
// keys of the two is there.
static bool follows(const rn_kv_pages *kv, uint64_t row) {
    return kv->sequence[row] == kv->sequence[row - 1] &&
           kv->position[row] == kv->position[row - 1] + 1;
}

// Block `index` of all: (rows, key head).
static void attend(void *arg, uint32_t slot, size_t index) {
    const paged *p = arg;
    desk d = open_desk(p, slot);
    uint64_t kv_head = index % p->kv.heads, row = index / p->kv.heads * p->rows;
    uint64_t end = rn_min_u64(row + p->rows, p->kv.rows);
    while (row < end) {
        uint64_t next = row + 1;
        if (p->kv.sequence[row] == -1) {
            blank(p, row, kv_head);
        } else {
            while (next < end && follows(&p->kv, next))
                next++;
            attend_run(p, &d, row, next - row, kv_head);
        }
        row = next;
    }
}

rn_status rn_cpu_paged_attention(const rn_call *call) {
    const rn_tensor *in = call->inputs;
    paged p = {.call = call, .kv = rn_kv_pages_of(&in[1], &in[2], &in[3], &in[4])};
    p.heads = in[0].shape.dims[1];
    p.group = p.heads / p.kv.heads;
    p.rows = block_rows(call);
    p.slot_bytes = slot_bytes(p.rows, p.group, p.kv.dims);
    p.scale = rn_attention_scale(call->attrs, p.kv.dims);
    for (uint64_t row = 0; row < p.kv.rows; row++)
        if (p.kv.sequence[row] != -1)
            RN_TRY(rn_kv_pages_check(&p.kv, "paged_attention", row, find_keys(&p, row).first));
    rn_share(call, rn_div_up(p.kv.rows, p.rows) * p.kv.heads, attend, &p);
    return RN_OK;
}

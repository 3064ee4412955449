// paged_attention.c — attention of rows of any sequences to the keys in their pages.
//
// Rows are cut into blocks by their number; within a block, rows of successive tokens (a prefill
// chunk) share each tile of keys, which is gathered from the pages and widened once for all heads
// that read it. Of a single row the heads of a group are worked on together; there the kernels of
// attention_pages.h, where the level has them, take keys and values from the pages themselves. A
// group of many heads (latent attention has all in one) is cut into parts, for as many threads.
#include "backend/cpu/attention_pages.h"
#include "backend/cpu/attention_tile.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/share.h"
#include "base/checked.h"
#include "graph/kv_pages.h"

#include <math.h>
#include <string.h>

enum { TILE = RN_ATTENTION_TILE, ROWS = 32, PART = 16 };
enum { Q, KV, SEQUENCE, POSITION, PAGE_TABLE, SINKS };

typedef struct paged {
    const rn_call *call;
    rn_kv_pages kv;
    uint64_t heads, group; // of q; of them to a key head
    uint64_t part;         // of a group that are worked on together
    uint64_t value_dims;
    uint64_t rows; // in a block
    uint64_t slot_bytes;
    float scale, cap;
    const float *sinks; // (heads) or NULL
} paged;

// What a thread works in.
typedef struct desk {
    rn_attention_range *visible; // (rows or group)
    float *columns;              // (dims, 64)
    float *keys;                 // (64, dims)
    float *values;               // (64, dims); the keys, where they begin with the values
    float *top, *sum;            // (part, rows)
    float *scores;               // (part, 64)
} desk;

static uint64_t visible_bytes(uint64_t rows, uint64_t part) {
    return rn_round_up(rn_max_u64(rows, part) * sizeof(rn_attention_range), 64);
}

static uint64_t slot_bytes(uint64_t rows, uint64_t part, uint64_t dims, uint64_t planes) {
    return visible_bytes(rows, part) +
           rn_round_up(((1 + planes) * dims * TILE + part * (2 * rows + TILE)) * sizeof(float), 64);
}

// As even parts as PART allows.
static uint64_t part_of(uint64_t group) {
    return group ? rn_div_up(group, rn_div_up(group, PART)) : 1;
}

static uint64_t block_rows(const rn_call *call) {
    uint64_t rows = call->slice_rows ? call->slice_rows : ROWS;
    return rn_min_u64(rows, call->inputs[0].shape.dims[0]);
}

uint64_t rn_cpu_paged_attention_workspace(const rn_call *call) {
    rn_shape q = call->inputs[Q].shape, kv = call->inputs[KV].shape;
    uint64_t part = part_of(q.dims[1] / kv.dims[2]);
    return call->threads * slot_bytes(block_rows(call), part, q.dims[2], kv.dims[1]);
}

static desk open_desk(const paged *p, uint32_t slot) {
    char *base = (char *)p->call->workspace + slot * p->slot_bytes;
    uint64_t tile = p->kv.dims * TILE;
    desk d = {.visible = (rn_attention_range *)base};
    d.columns = (float *)(base + visible_bytes(p->rows, p->part));
    d.keys = d.columns + tile;
    d.values = p->kv.planes > 1 ? d.keys + tile : d.keys;
    d.top = d.values + tile;
    d.sum = d.top + p->part * p->rows;
    d.scores = d.sum + p->part * p->rows;
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
        // f16, f32 or q8_0 in whole blocks: never fails
        (void)!rn_dtype_to_f32(p->kv.dtype, k, d->keys + at, count * dims);
        if (v != k) (void)!rn_dtype_to_f32(p->kv.dtype, v, d->values + at, count * dims);
        first += count;
    }
}

// ---- the queries --------------------------------------------------------------------------------

// The rows [row, row + count) of one sequence and the heads [head, head + heads), of one group.
typedef struct run {
    const paged *p;
    const desk *d;
    uint64_t row, count, kv_head, head, heads;
} run;

static uint64_t count_blocks(const run *r) {
    return r->count > 1 ? r->heads : 1;
}

// Block i: the rows of head i, or all heads of the only row.
static rn_query_block open_block(const run *r, uint64_t i) {
    const paged *p = r->p;
    bool one = r->count == 1;
    uint64_t at = r->row * p->heads + r->head + i;
    return (rn_query_block){.q = (const float *)p->call->inputs[Q].data + at * p->kv.dims,
                            .y = (float *)p->call->outputs[0].data + at * p->value_dims,
                            .stride = one ? p->kv.dims : p->heads * p->kv.dims,
                            .y_stride = one ? p->value_dims : p->heads * p->value_dims,
                            .count = one ? r->heads : r->count,
                            .dims = p->kv.dims,
                            .value_dims = p->value_dims,
                            .scale = p->scale,
                            .cap = p->cap,
                            .sinks = p->sinks ? p->sinks + r->head + i : NULL,
                            .sink_step = one,
                            .top = r->d->top + i * p->rows,
                            .sum = r->d->sum + i * p->rows,
                            .visible = r->d->visible};
}

static void begin(const run *r) {
    for (uint64_t i = 0; i < (r->count > 1 ? r->count : r->heads); i++)
        r->d->visible[i] = find_keys(r->p, r->count > 1 ? r->row + i : r->row);
    for (uint64_t i = 0; i < count_blocks(r); i++) {
        rn_query_block block = open_block(r, i);
        rn_query_block_begin(&block);
    }
}

// The keys [first, end) of the tile that begins at `tile`.
static void add_tile(const run *r, uint64_t tile, uint64_t first, uint64_t end) {
    const desk *d = r->d;
    uint64_t dims = r->p->kv.dims;
    gather(r->p, (uint64_t)r->p->kv.sequence[r->row], r->kv_head, tile, first, end, d);
    rn_columns_of(d->keys, dims, end - tile, dims, d->columns);
    rn_key_tile keys = {
        .first = tile, .key_columns = d->columns, .values = d->values, .value_stride = dims};
    for (uint64_t i = 0; i < count_blocks(r); i++) {
        rn_query_block block = open_block(r, i);
        rn_query_block_add(&block, &keys);
    }
}

// ---- one row ------------------------------------------------------------------------------------

// The tokens from `first` on that are neighbours in a page, `most` of them at most. After a tile's
// keys its values are wanted, then the keys of the next tile.
static rn_page_rows rows_at(const run *r, uint64_t first, uint64_t most, bool values) {
    const rn_kv_pages *kv = &r->p->kv;
    const rn_dtype_info *info = rn_dtype_get(kv->dtype);
    uint64_t sequence = (uint64_t)kv->sequence[r->row], left = kv->page_tokens;
    uint64_t soon = values ? first + TILE : first;
    rn_page_rows rows = {.row_bytes = kv->dims / info->block_elements * info->block_bytes,
                         .count = rn_min_u64(most, left - first % left),
                         .dims = values ? r->p->value_dims : kv->dims,
                         .dtype = kv->dtype};
    rows.data = (values ? rn_kv_value : rn_kv_key)(kv, sequence, first, r->kv_head);
    rows.next = rows.data;
    if (soon <= (uint64_t)kv->position[r->row])
        rows.next = (values ? rn_kv_key : rn_kv_value)(kv, sequence, soon, r->kv_head);
    return rows;
}

// Keys [first, end) of the RN_PAGE_KEYS from `piece` on.
static void find_scores(const run *r, const rn_query_block *b, uint64_t piece, uint64_t first,
                        uint64_t end) {
    const desk *d = r->d;
    for (uint64_t at = first, count; at < end; at += count) {
        rn_page_rows keys = rows_at(r, at, end - at, false);
        count = keys.count;
        rn_page_kernels_get()->columns(&keys, at - piece, d->columns);
    }
    rn_page_kernels_get()->scores(b->q, b->dims, b->count, d->columns, d->scores + piece % TILE);
}

// Heads [h, h + heads).
static void add_values(const run *r, const rn_query_block *b, uint64_t h, uint64_t heads,
                       uint64_t tile, uint64_t first, uint64_t end) {
    for (uint64_t at = first, count; at < end; at += count) {
        rn_page_rows values = rows_at(r, at, end - at, true);
        count = values.count;
        rn_page_kernels_get()->values(&values, r->d->scores + h * TILE + (at - tile), TILE, heads,
                                      b->y + h * b->y_stride);
    }
}

static void add_tile_from_pages(const run *r, uint64_t tile, uint64_t first, uint64_t end) {
    const rn_spans *spans = rn_spans_get();
    rn_query_block b = open_block(r, 0);
    rn_key_row row = rn_key_row_of(b.visible[0], tile, b.scale, b.cap);
    bool blind = false;
    for (uint64_t piece = rn_round_down(first, RN_PAGE_KEYS); piece < end; piece += RN_PAGE_KEYS)
        find_scores(r, &b, piece, rn_max_u64(first, piece), rn_min_u64(piece + RN_PAGE_KEYS, end));
    for (uint64_t h = 0; h < b.count; h++) {
        float *y = b.y + h * b.y_stride, shrink = 1;
        float more = spans->soften(r->d->scores + h * TILE, &row, b.top + h, &shrink);
        b.sum[h] = b.sum[h] * shrink + more;
        if (shrink != 1) spans->scale(y, y, b.value_dims, shrink, 0);
        blind = blind || b.top[h] == -INFINITY;
    }
    if (!blind) add_values(r, &b, 0, b.count, tile, first, end);
    for (uint64_t h = 0; blind && h < b.count; h++) // no value counts for a head that sees nothing
        if (b.top[h] != -INFINITY) add_values(r, &b, h, 1, tile, first, end);
}

// ---- all of them --------------------------------------------------------------------------------

static void attend_run(const run *r) {
    begin(r);
    rn_query_block any = open_block(r, 0);
    rn_attention_range range = rn_query_block_range(&any);
    bool from_pages = r->count == 1 && r->p->kv.dims % 16 == 0 && r->p->value_dims % 16 == 0 &&
                      rn_page_kernels_get();
    for (uint64_t tile = rn_round_down(range.first, TILE); tile < range.end; tile += TILE)
        (from_pages ? add_tile_from_pages : add_tile)(r, tile, rn_max_u64(tile, range.first),
                                                      rn_min_u64(tile + TILE, range.end));
    for (uint64_t i = 0; i < count_blocks(r); i++) {
        rn_query_block block = open_block(r, i);
        rn_query_block_end(&block, NULL);
    }
}

// Rows of no sequence give zeros.
static void blank(const paged *p, uint64_t row, uint64_t head, uint64_t heads) {
    float *y = (float *)p->call->outputs[0].data + (row * p->heads + head) * p->value_dims;
    memset(y, 0, heads * p->value_dims * sizeof(float));
}

// Whether a row is of the token after that of the row before it: then all that lies between the
// keys of the two is there.
static bool follows(const rn_kv_pages *kv, uint64_t row) {
    return kv->sequence[row] == kv->sequence[row - 1] &&
           kv->position[row] == kv->position[row - 1] + 1;
}

// Block `index` of all: (rows, key head, part of its group).
static void attend(void *arg, uint32_t slot, size_t index) {
    const paged *p = arg;
    desk d = open_desk(p, slot);
    uint64_t parts = rn_div_up(p->group, p->part), part = index % parts;
    uint64_t kv_head = index / parts % p->kv.heads, row = index / parts / p->kv.heads * p->rows;
    uint64_t end = rn_min_u64(row + p->rows, p->kv.rows), head = kv_head * p->group;
    uint64_t heads = rn_min_u64(p->part, p->group - part * p->part);
    head += part * p->part;
    while (row < end) {
        uint64_t next = row + 1;
        if (p->kv.sequence[row] == -1) {
            blank(p, row, head, heads);
        } else {
            while (next < end && follows(&p->kv, next))
                next++;
            attend_run(&(run){p, &d, row, next - row, kv_head, head, heads});
        }
        row = next;
    }
}

rn_status rn_cpu_paged_attention(const rn_call *call) {
    const rn_tensor *in = call->inputs;
    paged p = {.call = call,
               .kv = rn_kv_pages_of(&in[KV], &in[SEQUENCE], &in[POSITION], &in[PAGE_TABLE])};
    p.heads = in[Q].shape.dims[1];
    p.group = p.heads / p.kv.heads;
    p.part = part_of(p.group);
    p.value_dims = call->outputs[0].shape.dims[2];
    p.rows = block_rows(call);
    p.slot_bytes = slot_bytes(p.rows, p.part, p.kv.dims, p.kv.planes);
    p.scale = rn_attention_scale(call->attrs, p.kv.dims);
    p.cap = ((const rn_attention_attrs *)call->attrs)->cap;
    if (call->input_count > SINKS) p.sinks = in[SINKS].data;
    for (uint64_t row = 0; row < p.kv.rows; row++)
        if (p.kv.sequence[row] != -1)
            RN_TRY(rn_kv_pages_check(&p.kv, "paged_attention", row, find_keys(&p, row).first));
    rn_share(call, rn_div_up(p.kv.rows, p.rows) * p.kv.heads * rn_div_up(p.group, p.part), attend,
             &p);
    return RN_OK;
}

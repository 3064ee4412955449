// attention.c — attention and its gradient over dense keys. Threads share out blocks of queries; in
// the gradient, key heads.
#include "backend/cpu/attention_tile.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/share.h"
#include "base/checked.h"
#include "graph/op/attention.h"

#include <math.h>
#include <string.h>

enum { TILE = RN_ATTENTION_TILE, QUERIES = 64 };

// ---- forward ------------------------------------------------------------------------------------

typedef struct forward {
    const rn_call *call;
    rn_attention_sizes of;
    uint64_t rows; // queries in a block
    uint64_t slot_bytes;
    float scale;
} forward;

static uint64_t block_rows(const rn_call *call, uint64_t queries) {
    uint64_t rows = call->slice_rows ? call->slice_rows : QUERIES;
    return rn_min_u64(rows, queries);
}

// What a thread works in: key columns, and a query's top, sum and range.
static uint64_t forward_slot_bytes(uint64_t rows, uint64_t dims) {
    return rn_round_up(rows * sizeof(rn_attention_range), 64) +
           rn_round_up((dims * TILE + 2 * rows) * sizeof(float), 64);
}

uint64_t rn_cpu_attention_workspace(const rn_call *call) {
    rn_shape q = call->inputs[0].shape;
    return call->threads * forward_slot_bytes(block_rows(call, q.dims[1]), q.dims[3]);
}

static void add_tiles(const forward *f, const rn_query_block *block, float *columns, uint64_t b,
                      uint64_t kv_head, const float *mask) {
    const rn_attention_sizes *of = &f->of;
    rn_attention_range range = rn_query_block_range(block);
    uint64_t stride = of->kv_heads * of->dims;
    for (uint64_t first = rn_round_down(range.first, TILE); first < range.end; first += TILE) {
        uint64_t at = rn_attention_at(b, first, kv_head, of->keys, of->kv_heads, of->dims);
        rn_key_tile tile = {.first = first,
                            .key_columns = columns,
                            .values = (const float *)f->call->inputs[2].data + at,
                            .value_stride = stride,
                            .mask = mask ? mask + first : NULL,
                            .mask_stride = of->keys};
        rn_columns_of((const float *)f->call->inputs[1].data + at, stride,
                      rn_min_u64(of->keys - first, TILE), of->dims, columns);
        rn_query_block_add(block, &tile);
    }
}

// Block `index` of all: (b, head, queries).
static void attend(void *arg, uint32_t slot, size_t index) {
    const forward *f = arg;
    const rn_attention_sizes *of = &f->of;
    uint64_t blocks = rn_div_up(of->queries, f->rows), t = index % blocks * f->rows;
    uint64_t head = index / blocks % of->heads, b = index / blocks / of->heads;
    uint64_t at = rn_attention_at(b, t, head, of->queries, of->heads, of->dims);
    char *desk = (char *)f->call->workspace + slot * f->slot_bytes;
    rn_attention_range *visible = (rn_attention_range *)desk;                      // (rows)
    float *columns = (float *)(desk + rn_round_up(f->rows * sizeof *visible, 64)); // (dims, 64)
    float *top = columns + of->dims * TILE, *lse = f->call->outputs[1].data;       // (B, H, T)
    rn_query_block block = {.q = (const float *)f->call->inputs[0].data + at,
                            .y = (float *)f->call->outputs[0].data + at,
                            .stride = of->heads * of->dims,
                            .y_stride = of->heads * of->dims,
                            .count = rn_min_u64(f->rows, of->queries - t),
                            .dims = of->dims,
                            .value_dims = of->dims,
                            .scale = f->scale,
                            .top = top,
                            .sum = top + f->rows,
                            .visible = visible};
    for (uint64_t i = 0; i < block.count; i++)
        visible[i] = rn_attention_keys(f->call->attrs, of, &f->call->inputs[3], b, t + i);
    rn_query_block_begin(&block);
    add_tiles(f, &block, columns, b, head / (of->heads / of->kv_heads),
              rn_attention_mask_row(&f->call->inputs[3], of, b, t));
    rn_query_block_end(&block, lse ? lse + (b * of->heads + head) * of->queries + t : NULL);
}

rn_status rn_cpu_attention(const rn_call *call) {
    forward f = {.call = call,
                 .of = rn_attention_sizes_of(call->inputs[0].shape, call->inputs[1].shape)};
    f.rows = block_rows(call, f.of.queries);
    f.slot_bytes = forward_slot_bytes(f.rows, f.of.dims);
    f.scale = rn_attention_scale(call->attrs, f.of.dims);
    rn_share(call, f.of.batch * f.of.heads * rn_div_up(f.of.queries, f.rows), attend, &f);
    return RN_OK;
}

// ---- backward -----------------------------------------------------------------------------------

// q, k, v, mask, y, logsumexp, dy -> dq, dk, dv, as op/attention_grad.c draws them.
typedef struct backward {
    const rn_call *call;
    rn_attention_sizes of;
    uint64_t slot_bytes;
    float scale;
} backward;

// What a thread works in.
typedef struct desk {
    float *key_columns, *value_columns; // (dims, 64)
    float *p, *ds;                      // (64 queries, 64 keys)
} desk;

static uint64_t backward_slot_bytes(uint64_t dims) {
    return (2 * dims * TILE + 2 * QUERIES * TILE) * sizeof(float);
}

uint64_t rn_cpu_attention_grad_workspace(const rn_call *call) {
    return call->threads * backward_slot_bytes(call->inputs[0].shape.dims[3]);
}

static desk open_desk(const backward *w, uint32_t slot) {
    float *floats = (float *)((char *)w->call->workspace + slot * w->slot_bytes);
    uint64_t columns = w->of.dims * TILE;
    return (desk){floats, floats + columns, floats + 2 * columns,
                  floats + 2 * columns + QUERIES * TILE};
}

// A block of queries against a tile of keys.
typedef struct meeting {
    uint64_t b, head, t, count;        // the queries
    uint64_t kv_head, first, keys;     // the keys
    uint64_t of_query, of_key;         // where both begin in their tensors
    uint64_t query_stride, key_stride; // in elements
} meeting;

static const float *input_at(const backward *w, uint32_t input, uint64_t at) {
    return (const float *)w->call->inputs[input].data + at;
}

static float *output_at(const backward *w, uint32_t output, uint64_t at) {
    float *data = w->call->outputs[output].data;
    return data ? data + at : NULL;
}

// From scores and dy v to p and ds, for one query; 0 for keys that it does not see.
static void slope_row(const backward *w, const meeting *m, const desk *d, uint64_t i) {
    const rn_spans *s = rn_spans_get();
    const rn_attention_sizes *of = &w->of;
    const float *mask = rn_attention_mask_row(&w->call->inputs[3], of, m->b, m->t + i);
    rn_attention_range keys =
        rn_attention_keys(w->call->attrs, of, &w->call->inputs[3], m->b, m->t + i);
    float total = *input_at(w, 5, (m->b * of->heads + m->head) * of->queries + m->t + i);
    if (total == -INFINITY) keys.end = keys.first; // it saw no key
    uint64_t at = m->of_query + i * m->query_stride;
    float delta = s->dot(input_at(w, 6, at), input_at(w, 4, at), of->dims);
    rn_key_row row = rn_key_row_of(keys, m->first, w->scale, 0);
    if (mask) row.mask = mask + m->first;
    s->slope(d->p + i * TILE, d->ds + i * TILE, &row, total, delta);
}

static void meet(const backward *w, const meeting *m, const desk *d) {
    const rn_spans *s = rn_spans_get();
    uint64_t dims = w->of.dims;
    const float *q = input_at(w, 0, m->of_query), *dy = input_at(w, 6, m->of_query);
    const float *k = input_at(w, 1, m->of_key);
    float *dq = output_at(w, 0, m->of_query), *dk = output_at(w, 1, m->of_key);
    float *dv = output_at(w, 2, m->of_key);
    rn_small scores = {q, m->query_stride, 1, d->key_columns, TILE, d->p, TILE};
    rn_small slopes = {dy, m->query_stride, 1, d->value_columns, TILE, d->ds, TILE};
    s->product(&scores, m->count, TILE, dims, false);
    s->product(&slopes, m->count, TILE, dims, false);
    for (uint64_t i = 0; i < m->count; i++)
        slope_row(w, m, d, i);
    rn_small to_dq = {d->ds, TILE, 1, k, m->key_stride, dq, m->query_stride};
    rn_small to_dk = {d->ds, 1, TILE, q, m->query_stride, dk, m->key_stride};
    rn_small to_dv = {d->p, 1, TILE, dy, m->query_stride, dv, m->key_stride};
    if (dq) s->product(&to_dq, m->count, dims, m->keys, true);
    if (dk) s->product(&to_dk, m->keys, dims, m->count, true);
    if (dv) s->product(&to_dv, m->keys, dims, m->count, true);
}

// Whether some query of the block sees some key of the tile.
static bool can_meet(const backward *w, const meeting *m) {
    for (uint64_t i = 0; i < m->count; i++) {
        rn_attention_range keys =
            rn_attention_keys(w->call->attrs, &w->of, &w->call->inputs[3], m->b, m->t + i);
        if (keys.first < m->first + m->keys && keys.end > m->first && keys.first < keys.end)
            return true;
    }
    return false;
}

static void meet_queries(const backward *w, meeting m, const desk *d) {
    const rn_attention_sizes *of = &w->of;
    for (m.t = 0; m.t < of->queries; m.t += QUERIES) {
        m.count = rn_min_u64(QUERIES, of->queries - m.t);
        m.of_query = rn_attention_at(m.b, m.t, m.head, of->queries, of->heads, of->dims);
        if (can_meet(w, &m)) meet(w, &m, d);
    }
}

// A key head and all query heads that read it; nobody else adds to its dk and dv.
static void add_group(void *arg, uint32_t slot, size_t index) {
    const backward *w = arg;
    const rn_attention_sizes *of = &w->of;
    desk d = open_desk(w, slot);
    uint64_t group = of->heads / of->kv_heads, stride = of->kv_heads * of->dims;
    meeting m = {.b = index / of->kv_heads,
                 .kv_head = index % of->kv_heads,
                 .query_stride = of->heads * of->dims,
                 .key_stride = stride};
    for (m.first = 0; m.first < of->keys; m.first += TILE) {
        m.keys = rn_min_u64(TILE, of->keys - m.first);
        m.of_key = rn_attention_at(m.b, m.first, m.kv_head, of->keys, of->kv_heads, of->dims);
        rn_columns_of(input_at(w, 1, m.of_key), stride, m.keys, of->dims, d.key_columns);
        rn_columns_of(input_at(w, 2, m.of_key), stride, m.keys, of->dims, d.value_columns);
        for (uint64_t i = 0; i < group; i++) {
            m.head = m.kv_head * group + i;
            meet_queries(w, m, &d);
        }
    }
}

rn_status rn_cpu_attention_grad(const rn_call *call) {
    backward w = {.call = call,
                  .of = rn_attention_sizes_of(call->inputs[0].shape, call->inputs[1].shape)};
    w.slot_bytes = backward_slot_bytes(w.of.dims);
    w.scale = rn_attention_scale(call->attrs, w.of.dims);
    for (uint32_t i = 0; i < 3; i++)
        if (call->outputs[i].data)
            memset(call->outputs[i].data, 0, rn_tensor_elements(&call->outputs[i]) * sizeof(float));
    rn_share(call, w.of.batch * w.of.kv_heads, add_group, &w);
    return RN_OK;
}

// varlen_attention.c — attention within each of several texts whose rows lie one behind the other.
//
// Rows are cut into blocks by their number, whatever texts they are of; within a block, rows of one
// text share each tile of keys. A short text costs what its own keys cost.
#include "backend/cpu/attention_tile.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/share.h"
#include "base/checked.h"
#include "graph/varlen.h"

#include <string.h>

enum { TILE = RN_ATTENTION_TILE, ROWS = 64 };

typedef struct varlen {
    const rn_call *call;
    rn_varlen texts;
    uint64_t rows; // in a block
    uint64_t slot_bytes;
} varlen;

// What a thread works in.
typedef struct desk {
    rn_attention_range *visible; // (rows)
    float *columns;              // (dims, 64)
    float *top, *sum;            // (rows)
    float *bias;                 // (rows, 64), where the call has one
} desk;

static uint64_t block_rows(const rn_call *call) {
    uint64_t rows = call->slice_rows ? call->slice_rows : ROWS;
    return rn_min_u64(rows, call->inputs[0].shape.dims[0]);
}

static uint64_t slot_bytes(const rn_call *call) {
    uint64_t rows = block_rows(call), dims = call->inputs[0].shape.dims[2];
    uint64_t bias = rn_tensor_given(&call->inputs[4]) ? rows * TILE : 0;
    return rn_round_up(rows * sizeof(rn_attention_range), 64) +
           rn_round_up((dims * TILE + 2 * rows + bias) * sizeof(float), 64);
}

uint64_t rn_cpu_varlen_attention_workspace(const rn_call *call) {
    return call->threads * slot_bytes(call);
}

static desk open_desk(const varlen *w, uint32_t slot) {
    char *base = (char *)w->call->workspace + slot * w->slot_bytes;
    desk d = {.visible = (rn_attention_range *)base};
    d.columns = (float *)(base + rn_round_up(w->rows * sizeof *d.visible, 64));
    d.top = d.columns + w->texts.dims * TILE;
    d.sum = d.top + w->rows;
    d.bias = d.sum + w->rows;
    return d;
}

static void fill_bias(const rn_varlen *t, uint64_t head, uint64_t query, uint64_t count,
                      uint64_t first, float *out) {
    for (uint64_t i = 0; i < count; i++)
        for (uint64_t j = 0; j < TILE; j++)
            out[i * TILE + j] = rn_varlen_bias(t, head, query + i, first + j);
}

// Rows [row, row + count) of one text.
static void attend_run(const varlen *w, const desk *d, uint64_t row, uint64_t count,
                       uint64_t head) {
    const rn_varlen *t = &w->texts;
    uint64_t text = (uint64_t)t->span[2 * row], keys = (uint64_t)t->span[2 * row + 1] - text;
    uint64_t kv_head = head / (t->heads / t->kv_heads), stride = t->kv_heads * t->dims;
    uint64_t at = (row * t->heads + head) * t->dims;
    rn_query_block block = {.q = t->q + at,
                            .y = t->y + at,
                            .stride = t->heads * t->dims,
                            .y_stride = t->heads * t->dims,
                            .count = count,
                            .dims = t->dims,
                            .value_dims = t->dims,
                            .scale = t->scale,
                            .cap = ((const rn_attention_attrs *)w->call->attrs)->cap,
                            .top = d->top,
                            .sum = d->sum,
                            .visible = d->visible};
    for (uint64_t i = 0; i < count; i++)
        d->visible[i] = rn_varlen_keys(t, w->call->attrs, row + i);
    rn_query_block_begin(&block);
    rn_attention_range range = rn_query_block_range(&block);
    for (uint64_t first = rn_round_down(range.first, TILE); first < range.end; first += TILE) {
        uint64_t key = (text + first) * stride + kv_head * t->dims;
        rn_key_tile tile = {.first = first,
                            .key_columns = d->columns,
                            .values = t->v + key,
                            .value_stride = stride,
                            .mask = t->bias ? d->bias : NULL,
                            .mask_stride = TILE};
        rn_columns_of(t->k + key, stride, rn_min_u64(keys - first, TILE), t->dims, d->columns);
        if (t->bias) fill_bias(t, head, row - text, count, first, d->bias);
        rn_query_block_add(&block, &tile);
    }
    rn_query_block_end(&block, NULL);
}

// Block `index` of all: (rows, head).
static void attend(void *arg, uint32_t slot, size_t index) {
    const varlen *w = arg;
    const rn_varlen *t = &w->texts;
    desk d = open_desk(w, slot);
    uint64_t head = index % t->heads, row = index / t->heads * w->rows;
    uint64_t end = rn_min_u64(row + w->rows, t->rows);
    for (uint64_t next; row < end; row = next) {
        // An empty span is a text of this row alone, which sees nothing.
        bool empty = t->span[2 * row] == t->span[2 * row + 1];
        next = empty ? row + 1 : rn_min_u64(end, (uint64_t)t->span[2 * row + 1]);
        if (!empty) attend_run(w, &d, row, next - row, head);
        if (empty) memset(t->y + (row * t->heads + head) * t->dims, 0, t->dims * sizeof(float));
    }
}

rn_status rn_cpu_varlen_attention(const rn_call *call) {
    varlen w = {.call = call,
                .texts = rn_varlen_of(call),
                .rows = block_rows(call),
                .slot_bytes = slot_bytes(call)};
    RN_TRY(rn_varlen_check(&w.texts));
    rn_share(call, rn_div_up(w.texts.rows, w.rows) * w.texts.heads, attend, &w);
    return RN_OK;
}

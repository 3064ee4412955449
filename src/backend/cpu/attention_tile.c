// attention_tile.c — a few queries at a time: their scores, their probabilities, their values.
//
// Within a group of queries a key is for all, or for some only (the edge of a causal triangle or of
// a window). The values of the keys for all are one small product; before and after it, each query
// adds those of its own. So no query ever touches a value that it does not see, not even times 0.
#include "backend/cpu/attention_tile.h"

#include "backend/cpu/tile.h"
#include "base/checked.h"

#include <math.h>
#include <string.h>

enum { TILE = RN_ATTENTION_TILE, GROUP = 6 }; // as many rows as a small product takes at once

void rn_columns_of(const float *rows, uint64_t stride, uint64_t count, uint64_t dims,
                   float *columns) {
    rn_tile_pack(rn_tile_set_get(), rows, stride, 1, (uint32_t)count, dims, columns, TILE);
}

void rn_query_block_begin(const rn_query_block *block) {
    for (uint64_t i = 0; i < block->count; i++) {
        float sink = block->sinks ? block->sinks[i * block->sink_step] : -INFINITY;
        block->top[i] = sink;
        block->sum[i] = sink == -INFINITY ? 0 : 1;
        memset(block->y + i * block->y_stride, 0, block->value_dims * sizeof(float));
    }
}

rn_attention_range rn_query_block_range(const rn_query_block *block) {
    rn_attention_range range = {UINT64_MAX, 0};
    for (uint64_t i = 0; i < block->count; i++) {
        if (block->visible[i].first >= block->visible[i].end) continue;
        range.first = rn_min_u64(range.first, block->visible[i].first);
        range.end = rn_max_u64(range.end, block->visible[i].end);
    }
    return range.end ? range : (rn_attention_range){0, 0};
}

rn_key_row rn_key_row_of(rn_attention_range visible, uint64_t first, float scale, float cap) {
    uint64_t from = rn_max_u64(visible.first, first), to = rn_min_u64(visible.end, first + TILE);
    if (from >= to) return (rn_key_row){.scale = scale};
    return (rn_key_row){(uint32_t)(from - first), (uint32_t)(to - first), scale, cap, NULL};
}

// ---- a group of queries -------------------------------------------------------------------------

typedef struct group {
    const rn_query_block *block;
    const rn_key_tile *tile;
    uint64_t row, count; // of the block
    rn_key_row rows[GROUP];
    float scores[GROUP * TILE];
} group;

static void find_rows(group *g) {
    for (uint64_t i = 0; i < g->count; i++) {
        uint64_t row = g->row + i;
        g->rows[i] =
            rn_key_row_of(g->block->visible[row], g->tile->first, g->block->scale, g->block->cap);
        if (g->tile->mask) g->rows[i].mask = g->tile->mask + row * g->tile->mask_stride;
    }
}

// Only the columns up to the last one that is seen.
static void find_scores(group *g) {
    const rn_query_block *b = g->block;
    uint64_t end = 0;
    for (uint64_t i = 0; i < g->count; i++)
        end = rn_max_u64(end, g->rows[i].end);
    rn_small s = {
        b->q + g->row * b->stride, b->stride, 1, g->tile->key_columns, TILE, g->scores, TILE};
    rn_spans_get()->product(&s, g->count, rn_round_up(end, RN_PANEL), b->dims, false);
}

// Turns the scores into probabilities and brings the accumulators to the new maximum.
static void soften(group *g, uint64_t i) {
    const rn_spans *s = rn_spans_get();
    const rn_query_block *b = g->block;
    float *y = b->y + (g->row + i) * b->y_stride, *sum = b->sum + g->row + i, shrink = 1;
    float more = s->soften(g->scores + i * TILE, &g->rows[i], b->top + g->row + i, &shrink);
    *sum = *sum * shrink + more;
    if (shrink != 1) s->scale(y, y, b->value_dims, shrink, 0);
    if (b->top[g->row + i] == -INFINITY) g->rows[i].end = g->rows[i].first; // no value counts
}

// Queries [i, i + count) of the group and the values of keys [first, end).
static void add_values(const group *g, uint64_t i, uint64_t count, uint64_t first, uint64_t end) {
    const rn_query_block *b = g->block;
    if (first >= end) return;
    rn_small s = {g->scores + i * TILE + first,
                  TILE,
                  1,
                  g->tile->values + first * g->tile->value_stride,
                  g->tile->value_stride,
                  b->y + (g->row + i) * b->y_stride,
                  b->y_stride};
    rn_spans_get()->product(&s, count, b->value_dims, end - first, true);
}

static void add_all_values(const group *g) {
    uint64_t low = 0, high = TILE;
    for (uint64_t i = 0; i < g->count; i++) {
        low = rn_max_u64(low, g->rows[i].first);
        high = rn_min_u64(high, g->rows[i].end);
    }
    if (low >= high) low = high = TILE; // no key is for all
    for (uint64_t i = 0; i < g->count; i++)
        add_values(g, i, 1, g->rows[i].first, rn_min_u64(low, g->rows[i].end));
    add_values(g, 0, g->count, low, high);
    for (uint64_t i = 0; i < g->count; i++)
        add_values(g, i, 1, high, g->rows[i].end);
}

void rn_query_block_add(const rn_query_block *block, const rn_key_tile *tile) {
    group g;
    g.block = block;
    g.tile = tile;
    for (g.row = 0; g.row < block->count; g.row += GROUP) {
        g.count = rn_min_u64(GROUP, block->count - g.row);
        find_rows(&g);
        find_scores(&g);
        for (uint64_t i = 0; i < g.count; i++)
            soften(&g, i);
        add_all_values(&g);
    }
}

void rn_query_block_end(const rn_query_block *block, float *out_logsumexp) {
    const rn_spans *s = rn_spans_get();
    for (uint64_t i = 0; i < block->count; i++) {
        float *y = block->y + i * block->y_stride;
        bool blind = block->top[i] == -INFINITY;
        if (!blind) s->div_one(y, &block->sum[i], y, block->value_dims, 0, 0);
        if (out_logsumexp)
            out_logsumexp[i] = blind ? -INFINITY : block->top[i] + logf(block->sum[i]);
    }
}

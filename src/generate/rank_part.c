// rank_part.c — see rank_part.h: blocks cut out of every graph that the model's recipe makes.
#include "generate/rank_part.h"

#include "base/checked.h"
#include "graph/cut.h"
#include "memory/account.h"

#include <ration/ranks.h>

#include <stdio.h>

#define FROM RN_HOST_OTHER

// ---- a recipe of some blocks --------------------------------------------------------------------

typedef struct part_recipe {
    rn_recipe whole;
    uint32_t first, end;
    uint32_t rank, ranks; // that heads are dealt out to; ranks 0: blocks are
} part_recipe;

static rn_status keep_part(const part_recipe *p, const rn_graph *whole, rn_graph **out) {
    rn_arena scratch;
    bool *keep = NULL;
    uint32_t blocks = rn_graph_block_count(whole);
    rn_arena_init(&scratch, FROM, 0);
    rn_status s = rn_arena_array(&scratch, blocks, sizeof *keep, (void **)&keep);
    for (uint32_t b = 0; s == RN_OK && b < blocks; b++)
        keep[b] = b >= p->first && b < p->end;
    if (s == RN_OK) s = rn_graph_keep_blocks(whole, keep, out);
    rn_arena_free_all(&scratch);
    return s;
}

static rn_status build(void *self, const rn_recipe_options *options, rn_graph **out) {
    const part_recipe *p = self;
    rn_graph *whole = NULL;
    *out = NULL;
    rn_status s = p->whole.build(p->whole.self, options, &whole);
    if (s == RN_OK)
        s = p->ranks ? rn_graph_share_heads(whole, p->rank, p->ranks, out)
                     : keep_part(p, whole, out);
    rn_graph_destroy(whole);
    return s;
}

static void destroy(void *self) {
    part_recipe *p = self;
    rn_recipe_destroy(&p->whole);
    rn_free(FROM, p, sizeof *p);
}

static rn_status make(const void *self, const rn_text_options *text, rn_recipe *out) {
    const rn_rank_part *part = self;
    void *block = NULL;
    rn_recipe whole = {0};
    RN_TRY(part->whole.make(part->whole.self, text, &whole));
    rn_status s = rn_alloc_zeroed(FROM, 1, sizeof(part_recipe), &block);
    if (s != RN_OK) {
        rn_recipe_destroy(&whole);
        return s;
    }
    part_recipe *p = block;
    *p = (part_recipe){.whole = whole, .first = part->first_block, .end = part->end_block};
    if (part->heads) p->rank = part->rank, p->ranks = part->ranks;
    *out = whole;
    out->self = p;
    out->build = build;
    out->destroy = destroy;
    snprintf(out->name, sizeof out->name, "%.36s, rank %u of %u", whole.name, part->rank,
             part->ranks);
    return RN_OK;
}

rn_text_maker rn_rank_part_maker(const rn_rank_part *part) {
    rn_text_maker maker = part->whole;
    maker.self = part;
    maker.make = make;
    return maker;
}

rn_status rn_text_maker_build(const rn_text_maker *maker, const rn_text_options *text,
                              rn_graph **out) {
    rn_recipe recipe = {0};
    *out = NULL;
    RN_TRY(maker->make(maker->self, text, &recipe));
    rn_status s = recipe.build(recipe.self, &(rn_recipe_options){0}, out);
    rn_recipe_destroy(&recipe);
    return s;
}

// ---- which blocks -------------------------------------------------------------------------------

// Of a weight or state; 0 of a weight that is only looked up in: its rows are read as they are
// asked for.
static uint64_t held_bytes(const rn_graph *graph, rn_value value, bool looked_up) {
    const rn_value_info *info = rn_graph_value(graph, value);
    bool held = info->role == RN_ROLE_STATE || (info->role == RN_ROLE_WEIGHT && !looked_up);
    rn_tensor tensor = {.dtype = info->dtype, .layout = RN_LAYOUT_PLAIN, .shape = info->shape};
    return held && info->producer == RN_NO_NODE ? rn_tensor_bytes(&tensor) : 0;
}

// What the blocks read of weights and states, each counted in every block that reads it: a rank
// that has the embedding and another that has the head tied to it both hold it. (blocks)
static rn_status weigh_blocks(const rn_graph *graph, rn_arena *scratch, uint64_t *out) {
    uint32_t *last = NULL; // (values + 1): 1 + the block that counted it last
    RN_TRY(rn_arena_array(scratch, rn_graph_value_count(graph) + 1u, sizeof *last, (void **)&last));
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        for (uint32_t i = 0; i < node->input_count; i++) {
            rn_value v = node->inputs[i];
            bool looked_up = rn_op_is(node->op, RN_TRAIT_LOOKUP) && i == RN_LOOKUP_TABLE;
            if (v == RN_NO_VALUE || last[v] == node->block + 1) continue;
            if (!looked_up) last[v] = node->block + 1;
            if (!rn_add_u64(out[node->block], held_bytes(graph, v, looked_up), &out[node->block]))
                return rn_fail(RN_INVALID, "blocks of more bytes than can be counted");
        }
    }
    return RN_OK;
}

// Layers are what has a state of its own: a KV cache, or one of a fixed size.
static void find_layers(const rn_graph *graph, uint32_t *out_first, uint32_t *out_count) {
    uint32_t first = UINT32_MAX, end = 0;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->role != RN_ROLE_STATE || info->producer != RN_NO_NODE) continue;
        first = (uint32_t)rn_min_u64(first, info->block);
        end = (uint32_t)rn_max_u64(end, info->block + 1u);
    }
    *out_first = first;
    *out_count = end > first ? end - first : 0;
}

static rn_status cut(const rn_graph *whole, const uint64_t *room_bytes, uint32_t ranks,
                     rn_arena *scratch, uint32_t *out_first) {
    uint32_t blocks = rn_graph_block_count(whole), begin = 0, layers = 0;
    uint64_t *bytes = NULL;
    find_layers(whole, &begin, &layers);
    if (ranks > layers)
        return rn_hint(
            rn_fail(RN_INVALID, "%u ranks for %u layers: each has one at least", ranks, layers),
            "take %u ranks or fewer", layers);
    RN_TRY(rn_arena_array(scratch, blocks, sizeof *bytes, (void **)&bytes));
    RN_TRY(weigh_blocks(whole, scratch, bytes));
    for (uint32_t b = 0; b < begin; b++)
        bytes[begin] += bytes[b];
    for (uint32_t b = begin + layers; b < blocks; b++)
        bytes[begin + layers - 1] += bytes[b];
    RN_TRY(rn_ranks_split_within(bytes + begin, layers, room_bytes, ranks, out_first));
    for (uint32_t r = 1; r < ranks; r++)
        out_first[r] += begin;
    out_first[ranks] = blocks;
    return RN_OK;
}

rn_status rn_rank_parts_cut(const rn_graph *whole, const uint64_t *room_bytes, uint32_t ranks,
                            uint32_t *out_first) {
    rn_arena scratch;
    rn_arena_init(&scratch, FROM, 0);
    rn_status s = cut(whole, room_bytes, ranks, &scratch, out_first);
    rn_arena_free_all(&scratch);
    return s;
}

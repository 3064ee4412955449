// keep_blocks.c — a graph of some blocks of another, for whoever computes these and no others.
//
//     graph    0 ─a─ 1 ─b─ 2 ─c─ 3 ─d─ 4 ...
//     kept     0 ─a─ 1 ─b─────── 3 ─d─▶          blocks 0, 1 and 3
//
// A block that is left out between others is stepped over: who reads what it makes (c) reads what
// it read (b) instead, and whoever computes block 2 elsewhere puts c where b was. What comes from
// blocks before all kept ones is an input.
#include "graph/cut.h"

#include "graph/copy.h"
#include "graph/graph_internal.h"
#include "memory/account.h"

#include <string.h>

typedef struct keeper {
    const rn_graph *from;
    rn_graph *to;
    const bool *keep; // (blocks)
    rn_value *enters; // (blocks): the value of other blocks that it reads; RN_NO_VALUE: none
    bool *several;    // (blocks): it reads more than that one
    rn_value *now;    // (values + 1): its number in `to`, or RN_NO_VALUE
    uint32_t first;   // kept block
    rn_value x;       // of blocks before that, what the kept ones read; RN_NO_VALUE: nothing yet
} keeper;

static rn_status refuse(const keeper *k, uint32_t block, const char *why) {
    return rn_fail(RN_UNSUPPORTED, "block '%s' cannot be left out of the graph: %s",
                   rn_graph_block_name(k->from, block), why);
}

static bool is_kept(const keeper *k, uint32_t node) {
    return k->keep[rn_graph_node(k->from, node)->block];
}

// The block of the node that makes it; false: it is there from the beginning.
static bool find_maker(const keeper *k, rn_value value, uint32_t *out_block) {
    if (value == RN_NO_VALUE) return false;
    uint32_t producer = rn_graph_value(k->from, value)->producer;
    if (producer == RN_NO_NODE) return false;
    *out_block = rn_graph_node(k->from, producer)->block;
    return true;
}

static void find_entries(keeper *k) {
    for (uint32_t n = 0; n < rn_graph_node_count(k->from); n++) {
        const rn_node *node = rn_graph_node(k->from, n);
        rn_value *enters = &k->enters[node->block];
        uint32_t maker;
        for (uint32_t i = 0; i < node->input_count && !is_kept(k, n); i++) {
            rn_value in = node->inputs[i];
            if (!find_maker(k, in, &maker) || maker == node->block || in == *enters) continue;
            k->several[node->block] |= *enters != RN_NO_VALUE;
            *enters = in;
        }
    }
}

// What is read in the place of a value: itself, or what the blocks read that are stepped over.
static rn_status resolve(const keeper *k, rn_value value, rn_value *out) {
    const rn_value_info *wanted = rn_graph_value(k->from, value);
    uint32_t block;
    *out = value;
    while (find_maker(k, *out, &block) && !k->keep[block] && block > k->first) {
        *out = k->enters[block];
        if (*out == RN_NO_VALUE || k->several[block])
            return refuse(k, block, "it does not read one value of others");
        const rn_value_info *info = rn_graph_value(k->from, *out);
        if (info->dtype != wanted->dtype || !rn_shape_equal(info->shape, wanted->shape))
            return refuse(k, block, "what it makes is not like what it reads");
    }
    return RN_OK;
}

// A value that is read and not made here: as it is in the graph, or what enters.
static rn_status add_given(keeper *k, rn_value value) {
    uint32_t block;
    if (!find_maker(k, value, &block))
        return rn_graph_copy_value(k->from, k->to, value, &k->now[value]);
    if (k->x != RN_NO_VALUE) return refuse(k, block, "more than one value is read of those before");
    const rn_value_info *info = rn_graph_value(k->from, value);
    k->x = k->now[value] = rn_graph_input(k->to, RN_CROSSING, info->dtype, info->shape);
    return rn_graph_finish(k->to);
}

static rn_status copy_node(keeper *k, const rn_node *like) {
    rn_node *node = NULL;
    uint32_t number = rn_graph_node_count(k->to);
    RN_TRY(rn_graph_copy_node(k->to, like, like->name, &node));
    for (uint32_t i = 0; i < like->input_count; i++) {
        rn_value in = RN_NO_VALUE;
        if (like->inputs[i] == RN_NO_VALUE) continue;
        RN_TRY(resolve(k, like->inputs[i], &in));
        if (k->now[in] == RN_NO_VALUE) RN_TRY(add_given(k, in));
        ((rn_value *)node->inputs)[i] = k->now[in];
    }
    for (uint32_t i = 0; i < like->output_count; i++) {
        rn_value *now = &k->now[like->outputs[i]];
        RN_TRY(rn_graph_copy_value(k->from, k->to, like->outputs[i], now));
        rn_graph_value_edit(k->to, *now)->producer = number;
        node->outputs[i] = *now;
    }
    return RN_OK;
}

// The value that the blocks behind all kept ones read of them becomes an output.
static rn_status mark_output(keeper *k) {
    uint32_t last = 0, maker;
    rn_value out = RN_NO_VALUE;
    for (uint32_t b = 0; b < rn_graph_block_count(k->from); b++)
        if (k->keep[b]) last = b;
    for (uint32_t n = 0; n < rn_graph_node_count(k->from); n++) {
        const rn_node *node = rn_graph_node(k->from, n);
        for (uint32_t i = 0; node->block > last && i < node->input_count; i++) {
            rn_value in = node->inputs[i];
            if (!find_maker(k, in, &maker) || maker > last || in == out) continue;
            if (out != RN_NO_VALUE) return refuse(k, node->block, "it reads more than one value");
            out = in;
        }
    }
    if (out == RN_NO_VALUE) return RN_OK; // all that the graph makes is made by kept blocks
    RN_TRY(resolve(k, out, &out));
    if (k->now[out] == RN_NO_VALUE)
        return refuse(k, last + 1, "it reads what was made before the blocks that are kept");
    rn_graph_output(k->to, k->now[out], RN_CROSSING);
    return RN_OK;
}

static rn_status fill(keeper *k, rn_arena *scratch) {
    void *enters = NULL, *several = NULL, *now = NULL;
    RN_TRY(rn_arena_array(scratch, rn_graph_block_count(k->from), sizeof *k->enters, &enters));
    RN_TRY(rn_arena_array(scratch, rn_graph_block_count(k->from), sizeof *k->several, &several));
    RN_TRY(rn_arena_array(scratch, rn_graph_value_count(k->from) + 1u, sizeof *k->now, &now));
    k->enters = enters;
    k->several = several;
    k->now = now;
    find_entries(k);
    while (k->first < rn_graph_block_count(k->from) && !k->keep[k->first])
        k->first++;
    for (uint32_t n = 0; n < rn_graph_node_count(k->from); n++)
        if (is_kept(k, n)) RN_TRY(copy_node(k, rn_graph_node(k->from, n)));
    RN_TRY(mark_output(k));
    return rn_graph_finish(k->to);
}

rn_status rn_graph_keep_blocks(const rn_graph *graph, const bool *keep, rn_graph **out) {
    keeper k = {.from = graph, .keep = keep};
    rn_arena scratch;
    *out = NULL;
    if (graph->failure != RN_OK) return rn_error_restore(&graph->error);
    RN_TRY(rn_graph_create_like(graph, &k.to));
    rn_arena_init(&scratch, RN_HOST_OTHER, 0);
    rn_status s = fill(&k, &scratch);
    rn_arena_free_all(&scratch);
    if (s == RN_OK)
        *out = k.to;
    else
        rn_graph_destroy(k.to);
    return s;
}

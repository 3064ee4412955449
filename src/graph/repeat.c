// repeat.c — see repeat.h. Values keep their numbers, those of repeated nodes come behind them;
// nodes are copied in their order, each behind what is repeated in front of it.
#include "graph/repeat.h"

#include "graph/graph_internal.h"
#include "graph/copy.h"
#include "memory/account.h"

#include <stdio.h>

typedef struct rewrite {
    const rn_graph *from;
    rn_graph *to;
    const rn_repeats *repeats;
    rn_arena memory;
    bool *stops;     // (nodes): something is repeated in front of it
    rn_value *twins; // (values + 1): what the repeated node makes instead, or RN_NO_VALUE
    uint32_t *moved; // (nodes): the node's number in the copy
} rewrite;

bool rn_node_can_repeat(const rn_graph *graph, const rn_storage *storage, uint32_t number,
                        uint32_t at) {
    const rn_node *node = rn_graph_node(graph, number);
    if (number >= at) return false;
    for (uint32_t i = 0; i < node->input_count; i++)
        if (rn_storage_is_stale(storage, node->inputs[i], at)) return false;
    return true;
}

// ---- copying ------------------------------------------------------------------------------------

// Whether a reader in `block` gets a repeated value in place of this one. Outputs live anyway.
static bool has_twin(const rewrite *r, rn_value value, uint32_t block) {
    if (r->twins[value] == RN_NO_VALUE) return false;
    const rn_value_info *info = rn_graph_value(r->from, value);
    if (info->role != RN_ROLE_INTERMEDIATE) return false;
    return !r->repeats->within_block || rn_graph_node(r->from, info->producer)->block == block;
}

static void set_inputs(const rewrite *r, const rn_node *like, bool later, rn_value *inputs) {
    for (uint32_t i = 0; i < like->input_count; i++)
        inputs[i] = later && has_twin(r, like->inputs[i], like->block) ? r->twins[like->inputs[i]]
                                                                       : like->inputs[i];
}

static rn_status copy_node(rewrite *r, uint32_t number) {
    const rn_node *like = rn_graph_node(r->from, number);
    rn_node *node = NULL;
    r->moved[number] = rn_graph_node_count(r->to);
    RN_TRY(rn_graph_copy_node(r->to, like, like->name, &node));
    set_inputs(r, like, like->phase == RN_PHASE_BACKWARD, (rn_value *)node->inputs);
    for (uint32_t i = 0; i < like->output_count; i++) {
        node->outputs[i] = like->outputs[i];
        rn_graph_value_edit(r->to, like->outputs[i])->producer = r->moved[number];
    }
    if (like->recomputes != RN_NO_NODE) node->recomputes = r->moved[like->recomputes];
    return RN_OK;
}

// ---- repeating ----------------------------------------------------------------------------------

static rn_status repeat_node(rewrite *r, uint32_t number, uint32_t block) {
    const rn_node *like = rn_graph_node(r->from, number);
    uint32_t here = rn_graph_node_count(r->to);
    rn_node *node = NULL;
    char name[320];
    snprintf(name, sizeof name, "%.300s again", like->name);
    RN_TRY(rn_graph_copy_node(r->to, like, name, &node));
    node->phase = RN_PHASE_BACKWARD;
    node->block = block;
    node->recomputes = r->moved[number];
    set_inputs(r, like, true, (rn_value *)node->inputs);
    for (uint32_t i = 0; i < like->output_count; i++) {
        rn_value_info info = *rn_graph_value(r->from, like->outputs[i]);
        info.role = RN_ROLE_INTERMEDIATE;
        info.producer = here;
        info.block = block;
        node->outputs[i] = rn_graph_add_value(r->to, &info, name);
        r->twins[like->outputs[i]] = node->outputs[i];
    }
    return rn_graph_finish(r->to);
}

static rn_status repeat_before(rewrite *r, uint32_t at) {
    for (uint32_t n = 0; r->stops[at] && n < at; n++)
        if (r->repeats->at[n] == at) RN_TRY(repeat_node(r, n, rn_graph_node(r->from, at)->block));
    return RN_OK;
}

// ---- the whole ----------------------------------------------------------------------------------

static rn_status prepare(rewrite *r) {
    uint32_t nodes = rn_graph_node_count(r->from), values = rn_graph_value_count(r->from) + 1;
    void *stops = NULL, *twins = NULL, *moved = NULL;
    RN_TRY(rn_arena_array(&r->memory, nodes, sizeof *r->stops, &stops));
    RN_TRY(rn_arena_array(&r->memory, values, sizeof *r->twins, &twins));
    RN_TRY(rn_arena_array(&r->memory, nodes, sizeof *r->moved, &moved));
    r->stops = stops;
    r->twins = twins;
    r->moved = moved;
    for (uint32_t n = 0; n < nodes; n++)
        if (r->repeats->at[n] != RN_NO_NODE) r->stops[r->repeats->at[n]] = true;
    return RN_OK;
}

static rn_status fill(rewrite *r) {
    RN_TRY(prepare(r));
    RN_TRY(rn_graph_copy_values(r->from, r->to));
    for (uint32_t n = 0; n < rn_graph_node_count(r->from); n++) {
        RN_TRY(repeat_before(r, n));
        RN_TRY(copy_node(r, n));
    }
    rn_graph_set_place(r->to, r->from->block, r->from->phase);
    return rn_graph_finish(r->to);
}

rn_status rn_graph_repeat(const rn_graph *graph, const rn_repeats *repeats, rn_graph **out) {
    rewrite r = {.from = graph, .repeats = repeats};
    *out = NULL;
    if (graph->failure != RN_OK) return rn_error_restore(&graph->error);
    RN_TRY(rn_graph_create_like(graph, &r.to));
    rn_arena_init(&r.memory, RN_HOST_OTHER, 0);
    rn_status s = fill(&r);
    rn_arena_free_all(&r.memory);
    if (s == RN_OK)
        *out = r.to;
    else
        rn_graph_destroy(r.to);
    return s;
}

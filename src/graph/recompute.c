// recompute.c — a copy of a graph in which some blocks are computed twice instead of being kept.
//
//     forward           a ── b ── c ──▶ ...                a block: a, b, c read what enters it
//     backward, plain                  ... ──▶ c' ── b' ── a'            b' reads what b made
//     backward, again         ... ──▶ [a2 ── b2] ── c' ── b' ── a'       b' reads what b2 made
//
// The repeated nodes stand before the block's first backward node. Which ones are needed is one
// walk from the last node to the first: a backward node of the block needs the block's own results
// that it reads, a repeated node needs those that *it* reads. Everything else enters from outside
// and is kept, and so is what must not or need not be made twice:
//   - results of nodes that read bytes which have changed by then; those that change a state
//     themselves (running statistics, a KV cache) are among them, and so nothing changes twice;
//   - outputs, which live to the end anyway.
#include "graph/graph_internal.h"
#include "graph/storage.h"
#include "memory/account.h"

#include <stdio.h>

typedef struct rewrite {
    const rn_graph *from;
    rn_graph *to;
    const bool *recompute; // (blocks)
    rn_arena memory;
    rn_storage storage;
    uint32_t *first; // (blocks): the first backward node, or RN_NO_NODE
    bool *repeated;  // (nodes)
    rn_value *twins; // (values + 1): what the repeated node makes instead, or RN_NO_VALUE
    uint32_t *moved; // (nodes): the node's number in the copy
} rewrite;

// ---- what is repeated ---------------------------------------------------------------------------

static void find_first(rewrite *r) {
    for (uint32_t b = 0; b < rn_graph_block_count(r->from); b++)
        r->first[b] = RN_NO_NODE;
    for (uint32_t n = rn_graph_node_count(r->from); n-- > 0;) {
        const rn_node *node = rn_graph_node(r->from, n);
        if (node->phase == RN_PHASE_BACKWARD) r->first[node->block] = n;
    }
}

static bool can_repeat(const rewrite *r, uint32_t number, uint32_t at) {
    const rn_node *node = rn_graph_node(r->from, number);
    if (node->phase != RN_PHASE_FORWARD || number >= at) return false;
    for (uint32_t i = 0; i < node->input_count; i++)
        if (rn_storage_is_stale(&r->storage, node->inputs[i], at)) return false;
    return true;
}

// Whether a reader in `block` gets a repeated value in place of this one.
static bool is_inner(const rewrite *r, rn_value value, uint32_t block) {
    if (value == RN_NO_VALUE) return false;
    const rn_value_info *info = rn_graph_value(r->from, value);
    return info->role == RN_ROLE_INTERMEDIATE &&
           rn_graph_node(r->from, info->producer)->block == block &&
           can_repeat(r, info->producer, r->first[block]);
}

// Whether the node reads repeated values: the backward nodes of a block that is repeated.
static bool is_client(const rewrite *r, const rn_node *node) {
    return r->recompute[node->block] && node->phase == RN_PHASE_BACKWARD;
}

static void mark_repeated(rewrite *r) {
    for (uint32_t n = rn_graph_node_count(r->from); n-- > 0;) {
        const rn_node *node = rn_graph_node(r->from, n);
        if (!r->repeated[n] && !is_client(r, node)) continue;
        for (uint32_t i = 0; i < node->input_count; i++)
            if (is_inner(r, node->inputs[i], node->block))
                r->repeated[rn_graph_value(r->from, node->inputs[i])->producer] = true;
    }
}

// ---- copying ------------------------------------------------------------------------------------

static rn_status copy_value(rewrite *r, rn_value value) {
    rn_value_info info = *rn_graph_value(r->from, value);
    if (info.role == RN_ROLE_CONSTANT) {
        void *data = NULL;
        uint64_t bytes = 0;
        if (!rn_dtype_bytes(info.dtype, rn_shape_elements(info.shape, 1), &bytes))
            return rn_fail(RN_INTERNAL, "constant '%s' has no size", info.name);
        RN_TRY(rn_arena_copy(&r->to->memory, info.constant, bytes, &data));
        info.constant = data;
    }
    if (rn_graph_add_value(r->to, &info, info.name) == RN_NO_VALUE) return rn_graph_finish(r->to);
    if (info.role == RN_ROLE_INTERMEDIATE) return RN_OK;
    return rn_map_add(&r->to->by_name[info.role], rn_str_from(rn_graph_value(r->to, value)->name),
                      value, NULL);
}

// Puts a copy of the node at the end; its inputs and outputs are the copy's own, still unset.
static rn_status push_node(rewrite *r, const rn_node *like, const char *name, rn_node **out) {
    void *node = NULL, *inputs = NULL, *outputs = NULL, *attrs = NULL, *text = NULL;
    rn_arena *memory = &r->to->memory;
    size_t attrs_bytes = rn_op_get(like->op)->attrs_bytes;
    RN_TRY(rn_arena_copy(memory, like, sizeof *like, &node));
    RN_TRY(rn_arena_array(memory, like->input_count, sizeof(rn_value), &inputs));
    RN_TRY(rn_arena_array(memory, like->output_count, sizeof(rn_value), &outputs));
    if (attrs_bytes) RN_TRY(rn_arena_copy(memory, like->attrs, attrs_bytes, &attrs));
    RN_TRY(rn_arena_copy(memory, name, strlen(name), &text));
    *out = node;
    (*out)->inputs = inputs;
    (*out)->outputs = outputs;
    (*out)->attrs = attrs;
    (*out)->name = text;
    return rn_table_push(&r->to->nodes, node);
}

static void set_inputs(const rewrite *r, const rn_node *like, bool repeated, rn_value *inputs) {
    for (uint32_t i = 0; i < like->input_count; i++)
        inputs[i] = repeated && is_inner(r, like->inputs[i], like->block)
                        ? r->twins[like->inputs[i]]
                        : like->inputs[i];
}

static rn_status copy_node(rewrite *r, uint32_t number) {
    const rn_node *like = rn_graph_node(r->from, number);
    rn_node *node = NULL;
    r->moved[number] = rn_graph_node_count(r->to);
    RN_TRY(push_node(r, like, like->name, &node));
    set_inputs(r, like, is_client(r, like), (rn_value *)node->inputs);
    for (uint32_t i = 0; i < like->output_count; i++) {
        node->outputs[i] = like->outputs[i];
        rn_graph_value_edit(r->to, like->outputs[i])->producer = r->moved[number];
    }
    if (like->recomputes != RN_NO_NODE) node->recomputes = r->moved[like->recomputes];
    return RN_OK;
}

// ---- repeating ----------------------------------------------------------------------------------

static rn_status repeat_node(rewrite *r, uint32_t number) {
    const rn_node *like = rn_graph_node(r->from, number);
    uint32_t here = rn_graph_node_count(r->to);
    rn_node *node = NULL;
    char name[320];
    snprintf(name, sizeof name, "%.300s again", like->name);
    RN_TRY(push_node(r, like, name, &node));
    node->phase = RN_PHASE_BACKWARD;
    node->recomputes = r->moved[number];
    set_inputs(r, like, true, (rn_value *)node->inputs);
    for (uint32_t i = 0; i < like->output_count; i++) {
        rn_value_info info = *rn_graph_value(r->from, like->outputs[i]);
        info.role = RN_ROLE_INTERMEDIATE;
        info.producer = here;
        node->outputs[i] = rn_graph_add_value(r->to, &info, name);
        r->twins[like->outputs[i]] = node->outputs[i];
    }
    return rn_graph_finish(r->to);
}

static rn_status repeat_block(rewrite *r, uint32_t block) {
    for (uint32_t n = 0; n < r->first[block]; n++)
        if (r->repeated[n] && rn_graph_node(r->from, n)->block == block) RN_TRY(repeat_node(r, n));
    return RN_OK;
}

// ---- the whole ----------------------------------------------------------------------------------

static rn_status prepare(rewrite *r) {
    uint32_t nodes = rn_graph_node_count(r->from), values = rn_graph_value_count(r->from) + 1;
    void *first = NULL, *repeated = NULL, *twins = NULL, *moved = NULL;
    RN_TRY(rn_storage_trace(r->from, &r->memory, &r->storage));
    RN_TRY(rn_arena_array(&r->memory, rn_graph_block_count(r->from), sizeof *r->first, &first));
    RN_TRY(rn_arena_array(&r->memory, nodes, sizeof *r->repeated, &repeated));
    RN_TRY(rn_arena_array(&r->memory, values, sizeof *r->twins, &twins));
    RN_TRY(rn_arena_array(&r->memory, nodes, sizeof *r->moved, &moved));
    r->first = first;
    r->repeated = repeated;
    r->twins = twins;
    r->moved = moved;
    find_first(r);
    mark_repeated(r);
    return RN_OK;
}

static rn_status fill(rewrite *r) {
    RN_TRY(prepare(r));
    for (rn_value v = 1; v <= rn_graph_value_count(r->from); v++)
        RN_TRY(copy_value(r, v));
    for (uint32_t n = 0; n < rn_graph_node_count(r->from); n++) {
        uint32_t block = rn_graph_node(r->from, n)->block;
        if (r->first[block] == n) RN_TRY(repeat_block(r, block));
        RN_TRY(copy_node(r, n));
    }
    rn_graph_set_place(r->to, r->from->block, r->from->phase);
    return rn_graph_finish(r->to);
}

rn_status rn_graph_recompute(const rn_graph *graph, const bool *recompute, rn_graph **out) {
    rewrite r = {.from = graph, .recompute = recompute};
    *out = NULL;
    if (graph->failure != RN_OK) return rn_story_restore(&graph->story);
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

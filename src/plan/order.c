// order.c — when each node runs: as built, but for updates, which run as soon as they can.
//
//     built       ... grad c  grad b  grad a | update a  update b  update c
//     executed    ... grad c  update c  grad b  update b  grad a  update a
//
// So a gradient is gone before the next one is made. An update (phase UPDATE, or adding to a sum of
// gradients) follows whatever makes its inputs and every earlier reader of the bytes that it
// changes. Its key is the last node it must follow; ordinary nodes have their own number as key.
// Sorting by (key, number) keeps every dependence: a node never has a smaller key than one it
// follows. Updates that need all gradients (a global norm) get the last one's key: nothing moves.
#include "plan/planner.h"

typedef struct sorter {
    const rn_graph *graph;
    rn_plan_order *order;
    rn_binder binder;
    uint32_t *keys;        // (nodes)
    uint32_t *last_reader; // (values + 1): by root, the largest key of a reader so far
    uint32_t *starts;      // (nodes + 1): of the keys' buckets
} sorter;

static bool is_movable(const rn_node *node) {
    return node->phase == RN_PHASE_UPDATE || rn_op_is(node->op, RN_TRAIT_ACCUMULATE);
}

static uint32_t max_u32(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

// Follows views and updates in place to the root. With one row, a slice of rows is a view if it
// ever is: that only joins more.
static void trace_outputs(sorter *s, uint32_t number) {
    const rn_node *node = rn_graph_node(s->graph, number);
    rn_plan_order *o = s->order;
    for (uint32_t i = 0; i < node->output_count; i++) {
        uint64_t offset = 0;
        rn_alias alias = rn_binder_alias(&s->binder, number, i, &offset);
        rn_value out = node->outputs[i];
        o->roots[out] = out;
        if (alias.kind != RN_ALIAS_KIND_VIEW && alias.kind != RN_ALIAS_KIND_MUST) continue;
        rn_value in = node->inputs[alias.input];
        if (in == RN_NO_VALUE) continue;
        o->roots[out] = o->roots[in];
        o->offsets[out] = o->offsets[in] + offset;
        s->order->changes[number] |= alias.kind == RN_ALIAS_KIND_MUST;
    }
}

static uint32_t find_key(const sorter *s, const rn_node *node) {
    uint32_t key = 0;
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] == RN_NO_VALUE) continue;
        uint32_t producer = rn_graph_value(s->graph, node->inputs[i])->producer;
        if (producer != RN_NO_NODE) key = max_u32(key, s->keys[producer]);
    }
    return key;
}

// After whoever reads what the node changes.
static uint32_t pass_readers(const sorter *s, const rn_node *node, uint32_t key) {
    for (uint32_t i = 0; i < node->output_count; i++)
        if (s->order->roots[node->outputs[i]] != node->outputs[i])
            key = max_u32(key, s->last_reader[s->order->roots[node->outputs[i]]]);
    return key;
}

static void note_reads(sorter *s, const rn_node *node, uint32_t key) {
    for (uint32_t i = 0; i < node->input_count; i++) {
        uint32_t *last = &s->last_reader[s->order->roots[node->inputs[i]]];
        *last = max_u32(*last, key);
    }
}

static rn_status key_nodes(sorter *s) {
    for (uint32_t n = 0; n < s->order->count; n++) {
        RN_TRY(rn_stop_try(RN_STOP_NODE_UNITS));
        const rn_node *node = rn_graph_node(s->graph, n);
        trace_outputs(s, n);
        s->keys[n] = n;
        if (is_movable(node)) s->keys[n] = find_key(s, node);
        if (is_movable(node) && s->order->changes[n])
            s->keys[n] = pass_readers(s, node, s->keys[n]);
        note_reads(s, node, s->keys[n]);
    }
    return RN_OK;
}

// A counting sort: within a bucket by number, the ordinary node, which has the smallest key of all
// that could follow it, first.
static void sort_nodes(sorter *s) {
    rn_plan_order *o = s->order;
    for (uint32_t n = 0; n < o->count; n++)
        s->starts[s->keys[n] + 1]++;
    for (uint32_t k = 0; k < o->count; k++)
        s->starts[k + 1] += s->starts[k];
    for (uint32_t n = 0; n < o->count; n++) {
        uint32_t position = s->starts[s->keys[n]]++;
        o->nodes[position] = n;
        o->positions[n] = position;
    }
}

static void count_updates(sorter *s) {
    rn_plan_order *o = s->order;
    bool backward_follows = false;
    for (uint32_t p = o->count; p-- > 0;) {
        uint32_t n = o->nodes[p];
        rn_phase phase = rn_graph_node(s->graph, n)->phase;
        backward_follows |= phase == RN_PHASE_BACKWARD;
        if (phase != RN_PHASE_UPDATE || !o->changes[n]) continue;
        o->update_count++;
        o->early_count += backward_follows;
    }
}

static rn_status allocate(rn_arena *memory, sorter *s, uint32_t values) {
    rn_plan_order *o = s->order;
    RN_TRY(rn_arena_array(memory, o->count, sizeof *o->nodes, (void **)&o->nodes));
    RN_TRY(rn_arena_array(memory, o->count, sizeof *o->positions, (void **)&o->positions));
    RN_TRY(rn_arena_array(memory, values, sizeof *o->roots, (void **)&o->roots));
    RN_TRY(rn_arena_array(memory, values, sizeof *o->offsets, (void **)&o->offsets));
    RN_TRY(rn_arena_array(memory, o->count, sizeof *o->changes, (void **)&o->changes));
    RN_TRY(rn_arena_array(memory, o->count, sizeof *s->keys, (void **)&s->keys));
    RN_TRY(rn_arena_array(memory, values, sizeof *s->last_reader, (void **)&s->last_reader));
    RN_TRY(rn_arena_array(memory, o->count + 1, sizeof *s->starts, (void **)&s->starts));
    return rn_binder_init(memory, s->graph, &s->binder);
}

rn_status rn_plan_order_make(rn_arena *memory, const rn_graph *graph, rn_plan_order *out) {
    uint32_t values = rn_graph_value_count(graph) + 1;
    *out = (rn_plan_order){.count = rn_graph_node_count(graph)};
    sorter s = {.graph = graph, .order = out};
    RN_TRY(allocate(memory, &s, values));
    for (rn_value v = 0; v < values; v++)
        out->roots[v] = v;
    RN_TRY(key_nodes(&s));
    sort_nodes(&s);
    count_updates(&s);
    return RN_OK;
}

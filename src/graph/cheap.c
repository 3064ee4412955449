// cheap.c — values of the forward pass that are made again for the backward pass because that costs
// next to nothing, instead of being kept until then.
//
//     forward      gate, up ──▶ gated ──▶ product            gated dies here
//     backward     ... [gated again] ──▶ dW of the product ──▶ gated's own gradient reads gate, up
//
// That is so for activations, norms and casts whose own gradient reads what they read. The rules:
//   - the op touches an element of its results a few times at most (CHEAP_FLOPS);
//   - what the clone reads is alive then in any case: a later backward node reads it too. Updates
//     do not count, since a planner moves them;
//   - nothing else keeps the original: it is no output, no view of it is read after the forward
//     pass, no update reads it; and between its last forward reader and the clone something runs.
// In blocks that are repeated already, the repeated nodes are the forward pass.
// So no lifetime grows, at no node more is alive than before, and the bits are the same.
#include "graph/repeat.h"

#include "graph/graph_internal.h"
#include "memory/account.h"

enum { CHEAP_FLOPS = 9 }; // for an element of the results, at most: a window of 3 x 3

typedef struct marker {
    const rn_graph *graph;
    rn_arena memory;
    rn_storage storage;
    uint32_t *first;       // (nodes): the first backward reader of its results, clones included
    bool *held;            // (nodes): its results live beyond the forward pass in any case
    uint32_t *last_early;  // (values + 1), by version: the last forward reader + 1
    uint32_t *last_steady; // (values + 1), by version: the last backward reader + 1, clones not
    rn_repeats repeats;
} marker;

static bool is_view(const marker *m, const rn_node *node) {
    return m->storage.version[node->outputs[0]] != node->outputs[0];
}

// ---- who reads what -----------------------------------------------------------------------------

// The first pass, blocks that are repeated in the second, the second: a value is made early and
// read late where its readers are of a later stage.
static int stage_of(const rn_node *node) {
    if (node->phase == RN_PHASE_FORWARD) return 0;
    return node->phase == RN_PHASE_BACKWARD && node->recomputes != RN_NO_NODE ? 1 : 2;
}

// A view that is made early holds the bytes; one that is made late is made of the clone.
static void note_late(marker *m, rn_value value, uint32_t reader, uint32_t owner) {
    uint32_t producer = rn_graph_value(m->graph, value)->producer;
    if (reader < m->first[producer]) m->first[producer] = reader;
    if (producer != owner && stage_of(rn_graph_node(m->graph, producer)) < 2) m->held[owner] = true;
}

// A node, or the clone of one in front of it, reads the value.
static void note_read(marker *m, rn_value value, uint32_t reader, const rn_node *node) {
    rn_value version = m->storage.version[value];
    uint32_t owner = rn_graph_value(m->graph, version)->producer;
    if (owner == RN_NO_NODE) return;
    if (stage_of(node) <= stage_of(rn_graph_node(m->graph, owner)))
        m->last_early[version] = reader + 1;
    else if (node->phase == RN_PHASE_BACKWARD)
        note_late(m, value, reader, owner);
    else
        m->held[owner] = true;
}

static bool is_steady(const marker *m, const rn_node *node) {
    return node->phase == RN_PHASE_BACKWARD && !rn_op_is(node->op, RN_TRAIT_ACCUMULATE) &&
           !is_view(m, node);
}

static void note_reads(marker *m) {
    for (uint32_t n = 0; n < rn_graph_node_count(m->graph); n++) {
        const rn_node *node = rn_graph_node(m->graph, n);
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (node->inputs[i] == RN_NO_VALUE) continue;
            note_read(m, node->inputs[i], n, node);
            if (is_steady(m, node)) m->last_steady[m->storage.version[node->inputs[i]]] = n + 1;
        }
    }
}

// ---- what is made again -------------------------------------------------------------------------

static rn_status is_cheap(marker *m, uint32_t number, bool *out) {
    const rn_node *node = rn_graph_node(m->graph, number);
    rn_call call;
    rn_cost cost = {0};
    double elements = 0;
    void *tensors = NULL;
    RN_TRY(rn_arena_array(&m->memory, node->input_count + node->output_count, sizeof(rn_tensor),
                          &tensors));
    rn_graph_bind(m->graph, number, 1, tensors, &call);
    rn_op_get(node->op)->cost(&call, &cost);
    for (uint32_t i = 0; i < node->output_count; i++)
        elements += (double)rn_tensor_elements(&call.outputs[i]);
    *out = cost.flops <= CHEAP_FLOPS * elements;
    return RN_OK;
}

static bool is_alive(const marker *m, rn_value value, uint32_t at) {
    if (value == RN_NO_VALUE) return true;
    rn_role role = rn_graph_value(m->graph, value)->role;
    return role == RN_ROLE_STATE || role == RN_ROLE_CONSTANT ||
           m->last_steady[m->storage.version[value]] > at;
}

static bool dies_early(const marker *m, const rn_node *node, uint32_t at) {
    for (uint32_t i = 0; i < node->output_count; i++)
        if (rn_graph_value(m->graph, node->outputs[i])->role == RN_ROLE_OUTPUT ||
            m->last_early[node->outputs[i]] >= at)
            return false;
    return true;
}

static bool saves_bytes(const marker *m, uint32_t number) {
    const rn_node *node = rn_graph_node(m->graph, number);
    uint32_t at = m->first[number];
    if (at == RN_NO_NODE || m->held[number] || is_view(m, node) || stage_of(node) == 2 ||
        !dies_early(m, node, at) || !rn_node_can_repeat(m->graph, &m->storage, number, at))
        return false;
    for (uint32_t i = 0; i < node->input_count; i++)
        if (!is_alive(m, node->inputs[i], at)) return false;
    return true;
}

// From the last to the first: a clone is a reader of what the nodes before it have made.
static rn_status mark_repeated(marker *m) {
    for (uint32_t n = rn_graph_node_count(m->graph); n-- > 0;) {
        const rn_node *node = rn_graph_node(m->graph, n);
        bool cheap = false;
        if (saves_bytes(m, n)) RN_TRY(is_cheap(m, n, &cheap));
        if (!cheap) continue;
        m->repeats.at[n] = m->first[n];
        for (uint32_t i = 0; i < node->input_count; i++)
            if (node->inputs[i] != RN_NO_VALUE)
                note_read(m, node->inputs[i], m->first[n], rn_graph_node(m->graph, m->first[n]));
    }
    return RN_OK;
}

// ---- the whole ----------------------------------------------------------------------------------

static rn_status allocate(marker *m) {
    size_t nodes = rn_graph_node_count(m->graph);
    size_t values = (size_t)rn_graph_value_count(m->graph) + 1;
    rn_arena *memory = &m->memory;
    RN_TRY(rn_arena_array(memory, nodes, sizeof *m->first, (void **)&m->first));
    RN_TRY(rn_arena_array(memory, nodes, sizeof *m->held, (void **)&m->held));
    RN_TRY(rn_arena_array(memory, values, sizeof(uint32_t), (void **)&m->last_early));
    RN_TRY(rn_arena_array(memory, values, sizeof(uint32_t), (void **)&m->last_steady));
    RN_TRY(rn_arena_array(memory, nodes, sizeof(uint32_t), (void **)&m->repeats.at));
    for (size_t n = 0; n < nodes; n++)
        m->first[n] = m->repeats.at[n] = RN_NO_NODE;
    return rn_storage_trace(m->graph, memory, &m->storage);
}

static rn_status mark(marker *m) {
    RN_TRY(allocate(m));
    note_reads(m);
    return mark_repeated(m);
}

rn_status rn_graph_recompute_cheap(const rn_graph *graph, rn_graph **out) {
    marker m = {.graph = graph};
    *out = NULL;
    if (graph->failure != RN_OK) return rn_error_restore(&graph->error);
    rn_arena_init(&m.memory, RN_HOST_OTHER, 0);
    rn_status s = mark(&m);
    if (s == RN_OK) s = rn_graph_repeat(graph, &m.repeats, out);
    rn_arena_free_all(&m.memory);
    return s;
}

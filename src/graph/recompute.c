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
#include "graph/repeat.h"

#include "graph/graph_internal.h"
#include "memory/account.h"

typedef struct marker {
    const rn_graph *graph;
    const bool *recompute; // (blocks)
    rn_storage storage;
    uint32_t *first; // (blocks): the first backward node, or RN_NO_NODE
    rn_repeats repeats;
} marker;

static void find_first(marker *m) {
    for (uint32_t b = 0; b < rn_graph_block_count(m->graph); b++)
        m->first[b] = RN_NO_NODE;
    for (uint32_t n = rn_graph_node_count(m->graph); n-- > 0;) {
        const rn_node *node = rn_graph_node(m->graph, n);
        if (node->phase == RN_PHASE_BACKWARD) m->first[node->block] = n;
    }
}

// Whether a reader in `block` gets a repeated value in place of this one.
static bool is_inner(const marker *m, rn_value value, uint32_t block) {
    if (value == RN_NO_VALUE) return false;
    const rn_value_info *info = rn_graph_value(m->graph, value);
    if (info->role != RN_ROLE_INTERMEDIATE) return false;
    const rn_node *maker = rn_graph_node(m->graph, info->producer);
    return maker->phase == RN_PHASE_FORWARD && maker->block == block &&
           rn_node_can_repeat(m->graph, &m->storage, info->producer, m->first[block]);
}

// Whether the node reads repeated values: the backward nodes of a block that is repeated.
static bool is_client(const marker *m, const rn_node *node) {
    return m->recompute[node->block] && node->phase == RN_PHASE_BACKWARD;
}

static void mark_repeated(marker *m) {
    uint32_t *at = m->repeats.at;
    for (uint32_t n = rn_graph_node_count(m->graph); n-- > 0;) {
        const rn_node *node = rn_graph_node(m->graph, n);
        if (at[n] == RN_NO_NODE && !is_client(m, node)) continue;
        for (uint32_t i = 0; i < node->input_count; i++)
            if (is_inner(m, node->inputs[i], node->block))
                at[rn_graph_value(m->graph, node->inputs[i])->producer] = m->first[node->block];
    }
}

static rn_status mark(marker *m, rn_arena *memory) {
    uint32_t nodes = rn_graph_node_count(m->graph);
    void *first = NULL, *at = NULL;
    RN_TRY(rn_storage_trace(m->graph, memory, &m->storage));
    RN_TRY(rn_arena_array(memory, rn_graph_block_count(m->graph), sizeof *m->first, &first));
    RN_TRY(rn_arena_array(memory, nodes, sizeof *m->repeats.at, &at));
    m->first = first;
    m->repeats.at = at;
    for (uint32_t n = 0; n < nodes; n++)
        m->repeats.at[n] = RN_NO_NODE;
    find_first(m);
    mark_repeated(m);
    return RN_OK;
}

rn_status rn_graph_recompute(const rn_graph *graph, const bool *recompute, rn_graph **out) {
    marker m = {.graph = graph, .recompute = recompute, .repeats.within_block = true};
    rn_arena memory;
    *out = NULL;
    if (graph->failure != RN_OK) return rn_error_restore(&graph->error);
    rn_arena_init(&memory, RN_HOST_OTHER, 0);
    rn_status s = mark(&m, &memory);
    if (s == RN_OK) s = rn_graph_repeat(graph, &m.repeats, out);
    rn_arena_free_all(&memory);
    return s;
}

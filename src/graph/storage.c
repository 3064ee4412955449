// storage.c — see storage.h. One pass over the nodes: a view continues its input's version, an
// update in place ends it.
#include "graph/storage.h"

enum { FEW_TENSORS = 16 };

// Binds the node with one row, where a slice of rows is a view if it ever is.
static rn_status bind(const rn_graph *graph, uint32_t node, rn_arena *memory,
                      rn_tensor few[FEW_TENSORS], rn_call *out) {
    const rn_node *n = rn_graph_node(graph, node);
    void *tensors = few;
    if (n->input_count + n->output_count > FEW_TENSORS)
        RN_TRY(rn_arena_array(memory, n->input_count + n->output_count, sizeof *few, &tensors));
    rn_graph_bind(graph, node, 1, tensors, out);
    return RN_OK;
}

static void trace_output(const rn_node *node, uint32_t number, const rn_call *call, uint32_t output,
                         rn_storage *storage) {
    uint64_t offset = 0;
    rn_alias alias = rn_call_alias(call, output, &offset);
    rn_value from = alias.input < node->input_count ? node->inputs[alias.input] : RN_NO_VALUE;
    if (from == RN_NO_VALUE) return;
    rn_value version = storage->version[from];
    if (alias.kind == RN_ALIAS_KIND_VIEW) storage->version[node->outputs[output]] = version;
    if (alias.kind == RN_ALIAS_KIND_MUST && storage->updater[version] == RN_NO_NODE)
        storage->updater[version] = number;
}

static rn_status trace_node(const rn_graph *graph, uint32_t number, rn_arena *memory,
                            rn_storage *storage) {
    const rn_node *node = rn_graph_node(graph, number);
    rn_tensor few[FEW_TENSORS];
    rn_call call;
    RN_TRY(bind(graph, number, memory, few, &call));
    for (uint32_t i = 0; i < node->output_count; i++)
        trace_output(node, number, &call, i, storage);
    return RN_OK;
}

rn_status rn_storage_trace(const rn_graph *graph, rn_arena *memory, rn_storage *out) {
    uint32_t values = rn_graph_value_count(graph) + 1;
    void *version = NULL, *updater = NULL;
    RN_TRY(rn_arena_array(memory, values, sizeof(rn_value), &version));
    RN_TRY(rn_arena_array(memory, values, sizeof(uint32_t), &updater));
    *out = (rn_storage){version, updater};
    for (rn_value v = 0; v < values; v++) {
        out->version[v] = v;
        out->updater[v] = RN_NO_NODE;
    }
    for (uint32_t i = 0; i < rn_graph_node_count(graph); i++)
        RN_TRY(trace_node(graph, i, memory, out));
    return RN_OK;
}

bool rn_storage_is_stale(const rn_storage *storage, rn_value value, uint32_t at) {
    uint32_t updater = storage->updater[storage->version[value]];
    return updater != RN_NO_NODE && updater < at;
}

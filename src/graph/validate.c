// validate.c — looks at every node once, in the order in which they run.
#include "graph/validate.h"

#include "graph/graph_internal.h"
#include "graph/halves.h"
#include "graph/storage.h"
#include "memory/account.h"

// ---- names and numbers --------------------------------------------------------------------------

static bool is_made(const rn_value_info *info) {
    return info->role == RN_ROLE_INTERMEDIATE || info->role == RN_ROLE_OUTPUT;
}

static rn_status check_value(const rn_graph *graph, rn_value value) {
    const rn_value_info *info = rn_graph_value(graph, value);
    if (!info || !info->name) return rn_fail(RN_INVALID, "value %u has no name", value);
    if (info->block >= rn_graph_block_count(graph))
        return rn_fail(RN_INVALID, "value %u '%s' is in no block", value, info->name);
    if (!is_made(info)) return RN_OK;
    if (info->producer >= rn_graph_node_count(graph))
        return rn_fail(RN_INVALID, "value %u '%s' is made by no node", value, info->name);
    const rn_node *node = rn_graph_node(graph, info->producer);
    if (info->output >= node->output_count || node->outputs[info->output] != value)
        return rn_fail(RN_INVALID, "value %u '%s' is not a result of %s", value, info->name,
                       node->name);
    return RN_OK;
}

static rn_status check_input(const rn_graph *graph, uint32_t number, uint32_t input) {
    const rn_node *node = rn_graph_node(graph, number);
    rn_value value = node->inputs[input];
    if (value > rn_graph_value_count(graph))
        return rn_fail(RN_INVALID, "%s: input %u is no value of this graph", node->name, input);
    if (value == RN_NO_VALUE) {
        if (input < 32 && rn_op_get(node->op)->optional_inputs >> input & 1) return RN_OK;
        return rn_fail(RN_INVALID, "%s: input %u is missing", node->name, input);
    }
    const rn_value_info *info = rn_graph_value(graph, value);
    if (is_made(info) && info->producer >= number)
        return rn_fail(RN_INVALID, "%s reads '%s' before it is made", node->name, info->name);
    return RN_OK;
}

static rn_status check_node(const rn_graph *graph, uint32_t number) {
    const rn_node *node = rn_graph_node(graph, number);
    if (!node || !node->name) return rn_fail(RN_INVALID, "node %u has no name", number);
    if (node->block >= rn_graph_block_count(graph))
        return rn_fail(RN_INVALID, "%s is in no block", node->name);
    for (uint32_t i = 0; i < node->input_count; i++)
        RN_TRY(check_input(graph, number, i));
    for (uint32_t i = 0; i < node->output_count; i++)
        if (node->outputs[i] > rn_graph_value_count(graph) ||
            rn_graph_value(graph, node->outputs[i])->producer != number)
            return rn_fail(RN_INVALID, "output %u of %s says another node made it", i, node->name);
    return RN_OK;
}

// ---- updates in place ---------------------------------------------------------------------------

static rn_status fail_stale(const rn_graph *graph, const rn_storage *storage, rn_value value,
                            const char *reader) {
    uint32_t updater = storage->updater[storage->version[value]];
    return rn_hint(rn_fail(RN_INVALID, "%s reads '%s' after %s has changed it in place", reader,
                           rn_graph_value(graph, value)->name, rn_graph_node(graph, updater)->name),
                   "read the result of the node that changes it, or read before it");
}

static rn_status check_updates(const rn_graph *graph, const rn_storage *storage) {
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        for (uint32_t i = 0; i < node->input_count; i++)
            if (rn_storage_is_stale(storage, node->inputs[i], n))
                return fail_stale(graph, storage, node->inputs[i], node->name);
    }
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++)
        if (rn_graph_value(graph, v)->role == RN_ROLE_OUTPUT &&
            rn_storage_is_stale(storage, v, RN_NO_NODE))
            return fail_stale(graph, storage, v, "the end of the run");
    return RN_OK;
}

rn_status rn_graph_validate_updates(const rn_graph *graph) {
    rn_arena memory;
    rn_storage storage;
    rn_arena_init(&memory, RN_HOST_OTHER, 0);
    rn_status s = rn_storage_trace(graph, &memory, &storage);
    if (s == RN_OK) s = check_updates(graph, &storage);
    rn_arena_free_all(&memory);
    return s;
}

// ---- shapes -------------------------------------------------------------------------------------

typedef struct rn_typed typed;

static typed type_of(const rn_graph *graph, rn_value value) {
    if (value == RN_NO_VALUE) return (typed){.dtype = RN_DTYPE_NONE};
    const rn_value_info *info = rn_graph_value(graph, value);
    return (typed){info->dtype, info->shape, info->role};
}

static rn_status derive(const rn_graph *graph, const rn_node *node, rn_arena *memory,
                        typed out[RN_MAX_OUTPUTS]) {
    void *block = NULL;
    RN_TRY(rn_arena_array(memory, node->input_count, sizeof(typed), &block));
    typed *in = block;
    for (uint32_t i = 0; i < node->input_count; i++) {
        in[i] = type_of(graph, node->inputs[i]);
        if (rn_node_takes_half(graph, node, i)) in[i].dtype = RN_DTYPE_F32;
    }
    for (uint32_t i = 0; i < RN_MAX_OUTPUTS; i++)
        out[i] = (typed){.dtype = RN_DTYPE_F32, .role = RN_ROLE_INTERMEDIATE};
    rn_shaping shaping = {.graph = graph,
                          .node = node,
                          .in = in,
                          .out = out,
                          .input_count = node->input_count,
                          .attrs = node->attrs};
    return rn_op_get(node->op)->shape(&shaping);
}

static rn_status check_shapes(const rn_graph *graph, const rn_node *node, rn_arena *memory) {
    typed out[RN_MAX_OUTPUTS];
    RN_TRY(derive(graph, node, memory, out));
    for (uint32_t i = 0; i < node->output_count; i++) {
        typed is = type_of(graph, node->outputs[i]);
        if (out[i].dtype == RN_DTYPE_F32 && rn_node_makes_half(graph, node, i))
            out[i].dtype = is.dtype;
        if (is.dtype != out[i].dtype || !rn_shape_equal(is.shape, out[i].shape))
            return rn_fail(RN_INVALID, "output %u of %s is %s %s, its rule says %s %s", i,
                           node->name, rn_shape_format(is.shape).text, rn_dtype_get(is.dtype)->name,
                           rn_shape_format(out[i].shape).text, rn_dtype_get(out[i].dtype)->name);
    }
    return RN_OK;
}

static rn_status check_all_shapes(const rn_graph *graph) {
    rn_arena memory;
    rn_status s = RN_OK;
    rn_arena_init(&memory, RN_HOST_OTHER, 0);
    for (uint32_t n = 0; s == RN_OK && n < rn_graph_node_count(graph); n++)
        s = check_shapes(graph, rn_graph_node(graph, n), &memory);
    rn_arena_free_all(&memory);
    return s;
}

// ---- all of it ----------------------------------------------------------------------------------

rn_status rn_graph_validate(const rn_graph *graph) {
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++)
        RN_TRY(check_node(graph, n));
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++)
        RN_TRY(check_value(graph, v));
    RN_TRY(check_all_shapes(graph));
    return rn_graph_validate_updates(graph);
}

bool rn_graph_is_valid(const rn_graph *graph) {
    return rn_graph_validate(graph) == RN_OK;
}

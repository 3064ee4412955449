// eager.c — node by node, each result from a pool.
//
// Values that share bytes (views, updates in place) have one *root*, which owns them: a value that
// was set, or the first of a chain of aliases. A root that a node made is freed after the last node
// that reads any value of its chain.
#include "runtime/eager.h"

#include "base/arena.h"
#include "memory/account.h"

#include <string.h>

typedef struct slot {
    rn_pool_block block; // of a root that is held
    uint64_t bytes;      // plain
    uint64_t offset;     // in the root
    rn_value root;
    uint32_t last_reader; // of a root: the last node that touches its bytes
    bool held;
    bool keep; // to the end: everything but intermediates
} slot;

struct rn_eager {
    const rn_graph *graph;
    const rn_kernel *kernels;
    rn_workers *workers;
    rn_pool *pool;
    rn_arena memory;
    slot *slots;        // (values + 1)
    rn_tensor *tensors; // the widest node's arguments
    uint64_t rows;
    rn_scalar scalars[RN_MAX_SCALARS];
};

static const rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_ACTIVATIONS, NULL};

// ---- who owns which bytes -----------------------------------------------------------------------

static void bind(const rn_eager *e, uint32_t node, rn_call *call) {
    rn_graph_bind(e->graph, node, e->rows, e->tensors, call);
    call->workers = e->workers;
    call->threads = e->workers ? (uint32_t)rn_workers_count(e->workers) : 1;
    call->scalars = e->scalars;
}

static void find_root(rn_eager *e, const rn_node *node, const rn_call *call, uint32_t output) {
    slot *s = &e->slots[node->outputs[output]];
    uint64_t offset = 0;
    rn_alias alias = rn_call_alias(call, output, &offset);
    bool shares = alias.kind == RN_ALIAS_KIND_VIEW || alias.kind == RN_ALIAS_KIND_MUST;
    s->bytes = rn_tensor_bytes(&call->outputs[output]);
    s->root = node->outputs[output];
    if (!shares) return;
    const slot *input = &e->slots[node->inputs[alias.input]];
    s->root = input->root;
    s->offset = input->offset + offset;
}

static void touch(rn_eager *e, rn_value value, uint32_t node) {
    if (value == RN_NO_VALUE) return;
    slot *root = &e->slots[e->slots[value].root];
    root->last_reader = node;
    if (rn_graph_value(e->graph, value)->role == RN_ROLE_OUTPUT) root->keep = true;
}

static void find_lives(rn_eager *e) {
    for (uint32_t i = 0; i < rn_graph_node_count(e->graph); i++) {
        const rn_node *node = rn_graph_node(e->graph, i);
        rn_call call;
        bind(e, i, &call);
        for (uint32_t k = 0; k < node->output_count; k++)
            find_root(e, node, &call, k);
        for (uint32_t k = 0; k < node->input_count; k++)
            touch(e, node->inputs[k], i);
        for (uint32_t k = 0; k < node->output_count; k++)
            touch(e, node->outputs[k], i);
    }
}

// ---- life ---------------------------------------------------------------------------------------

static uint64_t given_bytes(const rn_eager *e, const rn_value_info *info) {
    rn_tensor tensor = {.dtype = info->dtype, .layout = RN_LAYOUT_PLAIN, .shape = info->shape};
    if (tensor.shape.rank && tensor.shape.dims[0] == RN_ROWS) tensor.shape.dims[0] = e->rows;
    return rn_tensor_bytes(&tensor);
}

static rn_status hold(rn_eager *e, slot *s) {
    if (s->held) return RN_OK;
    RN_TRY(rn_pool_alloc(e->pool, s->bytes, 64, &s->block));
    s->held = true;
    return RN_OK;
}

static void drop(rn_eager *e, slot *s) {
    if (!s->held) return;
    rn_pool_free(e->pool, s->block);
    s->held = false;
}

// States are zeros, constants their bytes, from the beginning.
static rn_status hold_given(rn_eager *e, rn_value value) {
    const rn_value_info *info = rn_graph_value(e->graph, value);
    slot *s = &e->slots[value];
    s->root = value;
    if (info->producer != RN_NO_NODE) return RN_OK;
    s->keep = true;
    s->bytes = given_bytes(e, info);
    if (info->role != RN_ROLE_STATE && info->role != RN_ROLE_CONSTANT) return RN_OK;
    RN_TRY(hold(e, s));
    void *data = (void *)(uintptr_t)s->block.address;
    if (info->role == RN_ROLE_STATE)
        memset(data, 0, s->bytes);
    else
        memcpy(data, info->constant, s->bytes);
    return RN_OK;
}

static rn_status prepare(rn_eager *e) {
    uint32_t values = rn_graph_value_count(e->graph), widest = 0;
    void *slots = NULL, *tensors = NULL;
    for (uint32_t i = 0; i < rn_graph_node_count(e->graph); i++) {
        const rn_node *node = rn_graph_node(e->graph, i);
        uint32_t width = node->input_count + node->output_count;
        if (width > widest) widest = width;
    }
    RN_TRY(rn_arena_array(&e->memory, values + 1u, sizeof(slot), &slots));
    RN_TRY(rn_arena_array(&e->memory, widest, sizeof(rn_tensor), &tensors));
    e->slots = slots;
    e->tensors = tensors;
    RN_TRY(rn_pool_create(rn_pool_source_host(&account, false), NULL, &e->pool));
    for (rn_value v = 1; v <= values; v++)
        RN_TRY(hold_given(e, v));
    find_lives(e);
    return RN_OK;
}

rn_status rn_eager_create(const rn_graph *graph, const rn_kernel *kernels, rn_workers *workers,
                          uint64_t rows, rn_eager **out) {
    void *block = NULL;
    *out = NULL;
    if (rows == 0 && rn_graph_has_rows(graph))
        return rn_fail(RN_INVALID, "the graph has the axis rows; say how many there are");
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_eager), &block));
    rn_eager *e = block;
    e->graph = graph;
    e->kernels = kernels;
    e->workers = workers;
    e->rows = rows;
    rn_arena_init(&e->memory, RN_HOST_OTHER, 0);
    rn_status s = prepare(e);
    if (s == RN_OK)
        *out = e;
    else
        rn_eager_destroy(e);
    return s;
}

void rn_eager_destroy(rn_eager *eager) {
    if (!eager) return;
    rn_pool_destroy(eager->pool);
    rn_arena_free_all(&eager->memory);
    rn_free(RN_HOST_OTHER, eager, sizeof *eager);
}

// ---- giving and taking --------------------------------------------------------------------------

static rn_status check_bytes(const rn_eager *e, rn_value value, uint64_t bytes) {
    if (value == RN_NO_VALUE || value > rn_graph_value_count(e->graph))
        return rn_fail(RN_INVALID, "there is no value %u", value);
    if (bytes == e->slots[value].bytes) return RN_OK;
    return rn_fail(RN_INVALID, "'%s' has %llu bytes, not %llu",
                   rn_graph_value(e->graph, value)->name, (unsigned long long)e->slots[value].bytes,
                   (unsigned long long)bytes);
}

rn_status rn_eager_set(rn_eager *eager, rn_value value, const void *data, uint64_t bytes) {
    RN_TRY(check_bytes(eager, value, bytes));
    if (rn_graph_value(eager->graph, value)->producer != RN_NO_NODE)
        return rn_fail(RN_INVALID, "'%s' is a node's result",
                       rn_graph_value(eager->graph, value)->name);
    RN_TRY(hold(eager, &eager->slots[value]));
    memcpy(rn_eager_data(eager, value), data, bytes);
    return RN_OK;
}

void rn_eager_set_scalar(rn_eager *eager, uint32_t scalar, rn_scalar value) {
    if (scalar < RN_MAX_SCALARS) eager->scalars[scalar] = value;
}

void *rn_eager_data(const rn_eager *eager, rn_value value) {
    const slot *s = &eager->slots[value], *root = &eager->slots[s->root];
    return root->held ? (void *)(uintptr_t)(root->block.address + s->offset) : NULL;
}

rn_status rn_eager_get(const rn_eager *eager, rn_value value, void *data, uint64_t bytes) {
    RN_TRY(check_bytes(eager, value, bytes));
    const void *from = rn_eager_data(eager, value);
    if (!from)
        return rn_hint(rn_fail(RN_NOT_FOUND, "'%s' is not held any more",
                               rn_graph_value(eager->graph, value)->name),
                       "make it an output with rn_graph_output");
    memcpy(data, from, bytes);
    return RN_OK;
}

rn_pool_stats rn_eager_stats(const rn_eager *eager) {
    rn_pool_stats stats;
    rn_pool_get_stats(eager->pool, &stats);
    return stats;
}

// ---- running ------------------------------------------------------------------------------------

static rn_status point(rn_eager *e, const rn_node *node) {
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] == RN_NO_VALUE) continue;
        e->tensors[i].data = rn_eager_data(e, node->inputs[i]);
        if (!e->tensors[i].data)
            return rn_fail(RN_INVALID, "'%s' was not set",
                           rn_graph_value(e->graph, node->inputs[i])->name);
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        RN_TRY(hold(e, &e->slots[e->slots[node->outputs[i]].root]));
        e->tensors[node->input_count + i].data = rn_eager_data(e, node->outputs[i]);
    }
    return RN_OK;
}

static rn_status launch(rn_eager *e, const rn_kernel *kernel, rn_call *call) {
    rn_pool_block workspace = {0};
    call->workspace_bytes = kernel->workspace ? kernel->workspace(call) : 0;
    RN_TRY(rn_pool_alloc(e->pool, call->workspace_bytes, 64, &workspace));
    call->workspace = (void *)(uintptr_t)workspace.address;
    rn_status s = kernel->run(call);
    if (call->workspace_bytes) rn_pool_free(e->pool, workspace);
    return s;
}

static bool is_view(const rn_call *call) {
    uint64_t offset = 0;
    return call->output_count == 1 && rn_call_alias(call, 0, &offset).kind == RN_ALIAS_KIND_VIEW;
}

static void drop_dead(rn_eager *e, rn_value value, uint32_t node) {
    if (value == RN_NO_VALUE) return;
    slot *root = &e->slots[e->slots[value].root];
    if (!root->keep && root->last_reader == node) drop(e, root);
}

static rn_status run_node(rn_eager *e, uint32_t index) {
    const rn_node *node = rn_graph_node(e->graph, index);
    const rn_kernel *kernel = &e->kernels[node->op];
    rn_call call;
    bind(e, index, &call);
    RN_TRY(point(e, node));
    if (!is_view(&call)) {
        if (!kernel->run)
            return rn_fail(RN_UNSUPPORTED, "%s: there is no kernel for %s", node->name,
                           rn_op_name(node->op));
        RN_TRY(launch(e, kernel, &call));
    }
    for (uint32_t i = 0; i < node->input_count; i++)
        drop_dead(e, node->inputs[i], index);
    for (uint32_t i = 0; i < node->output_count; i++)
        drop_dead(e, node->outputs[i], index);
    return RN_OK;
}

rn_status rn_eager_run(rn_eager *eager) {
    for (uint32_t i = 0; i < rn_graph_node_count(eager->graph); i++)
        RN_TRY(run_node(eager, i));
    return RN_OK;
}

// onnx_fold.c — computing what depends on constants alone, by the ops' reference loops.
//
// The nodes that a value needs are found backwards from it, then run in their order. Bytes stay in
// the import's arena, so nothing is computed twice. Limits: MOST_BYTES in all, FREE_BYTES for one
// value that nobody asked for (it is then computed in every run instead).
#include "exchange/onnx_importer.h"

#include "base/checked.h"
#include "memory/account.h"

#include <stdlib.h>

enum { MOST_BYTES = 64 << 20, FREE_BYTES = 64 << 10, MOST_NODES = 1 << 12, MOST_TENSORS = 64 };

// ---- what is known ------------------------------------------------------------------------------

static rn_status make_room(rn_import *m, rn_value value) {
    void *data = NULL, *varies = NULL;
    uint32_t room = m->known_room ? m->known_room : 256;
    if (value < m->known_room) return RN_OK;
    while (room <= value)
        room *= 2;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, room, sizeof *m->data, &data));
    rn_status s = rn_alloc_zeroed(RN_HOST_OTHER, room, sizeof *m->varies, &varies);
    if (s != RN_OK) {
        rn_free(RN_HOST_OTHER, data, room * sizeof *m->data);
        return s;
    }
    if (m->known_room) {
        memcpy(data, m->data, m->known_room * sizeof *m->data);
        memcpy(varies, m->varies, m->known_room * sizeof *m->varies);
    }
    rn_import_fold_free(m);
    m->data = data;
    m->varies = varies;
    m->known_room = room;
    return RN_OK;
}

void rn_import_fold_free(rn_import *m) {
    rn_free(RN_HOST_OTHER, m->data, m->known_room * sizeof *m->data);
    rn_free(RN_HOST_OTHER, m->varies, m->known_room * sizeof *m->varies);
    m->data = NULL;
    m->varies = NULL;
    m->known_room = 0;
}

// ---- one evaluation -----------------------------------------------------------------------------

typedef struct evaluation {
    rn_import *m;
    bool with_inputs;
    bool possible;
    uint64_t bytes, most_bytes; // of values that are computed or read
    uint32_t *nodes;            // (count): those that are needed
    uint32_t count, room;
} evaluation;

static uint64_t bytes_of(const rn_import *m, rn_value value) {
    const rn_value_info *info = rn_graph_value(m->graph, value);
    uint64_t bytes = 0;
    if (info->shape.rank && info->shape.dims[0] == RN_ROWS) return UINT64_MAX;
    uint64_t elements = rn_shape_elements(info->shape, 1);
    return rn_dtype_bytes(info->dtype, elements, &bytes) ? bytes : UINT64_MAX;
}

static bool afford(evaluation *e, uint64_t bytes) {
    uint64_t all = 0;
    e->possible = e->possible && rn_add_u64(e->bytes, bytes, &e->bytes) &&
                  rn_add_u64(e->m->folded_bytes, e->bytes, &all) && e->bytes <= e->most_bytes &&
                  all <= MOST_BYTES;
    return e->possible;
}

static rn_status read_weight(evaluation *e, rn_value value) {
    const rn_value_info *info = rn_graph_value(e->m->graph, value);
    const rn_tensor_info *t = e->m->weights ? rn_checkpoint_find(e->m->weights, info->name) : NULL;
    void *data = NULL;
    if (!t || !afford(e, t->bytes)) {
        e->possible = false;
        return RN_OK;
    }
    RN_TRY(rn_arena_alloc(&e->m->memory, t->bytes, &data));
    RN_TRY(rn_checkpoint_read(e->m->weights, t, 0, data, t->bytes));
    e->m->data[value] = data;
    return RN_OK;
}

static void bind_input(evaluation *e, rn_value value) {
    const rn_value_info *info = rn_graph_value(e->m->graph, value);
    const rn_onnx_options *o = &e->m->options;
    for (size_t i = 0; e->with_inputs && i < o->input_count; i++) {
        const rn_onnx_input *in = &o->inputs[i];
        if (strcmp(in->name, info->name) != 0 || !in->data || in->dtype != info->dtype ||
            !rn_shape_equal(in->shape, info->shape))
            continue;
        e->m->data[value] = in->data;
        const rn_onnx_graph_proto *graph = e->m->model->graph;
        for (size_t k = 0; k < graph->input_count; k++)
            if (rn_str_equal(graph->inputs[k].name, rn_str_from(in->name))) e->m->bound[k] = true;
        return;
    }
    e->possible = false;
}

// A value that no node makes.
static rn_status take_given(evaluation *e, rn_value value) {
    const rn_value_info *info = rn_graph_value(e->m->graph, value);
    switch (info->role) {
    case RN_ROLE_CONSTANT:
        e->m->data[value] = info->constant;
        return RN_OK;
    case RN_ROLE_WEIGHT:
        return read_weight(e, value);
    case RN_ROLE_INPUT:
        bind_input(e, value);
        return RN_OK;
    default:
        e->possible = false;
        return RN_OK;
    }
}

static rn_status push_node(evaluation *e, uint32_t node) {
    if (e->count == e->room) {
        void *nodes = NULL;
        uint32_t room = e->room ? 2 * e->room : 64;
        RN_TRY(rn_alloc(RN_HOST_OTHER, room * sizeof *e->nodes, &nodes));
        if (e->count) memcpy(nodes, e->nodes, e->count * sizeof *e->nodes);
        rn_free(RN_HOST_OTHER, e->nodes, e->room * sizeof *e->nodes);
        e->nodes = nodes;
        e->room = room;
    }
    e->nodes[e->count++] = node;
    return RN_OK;
}

static bool is_listed(const evaluation *e, uint32_t node) {
    for (uint32_t i = e->count; i-- > 0;) // a value's own neighbours come last
        if (e->nodes[i] == node) return true;
    return false;
}

static rn_status want(evaluation *e, rn_value value) {
    if (value == RN_NO_VALUE || !e->possible) return RN_OK;
    RN_TRY(make_room(e->m, value));
    if (e->m->data[value]) return RN_OK;
    const rn_value_info *info = rn_graph_value(e->m->graph, value);
    if (!e->with_inputs && e->m->varies[value]) e->possible = false;
    if (!e->possible) return RN_OK;
    if (info->producer == RN_NO_NODE) return take_given(e, value);
    if (is_listed(e, info->producer)) return RN_OK;
    const rn_node *node = rn_graph_node(e->m->graph, info->producer);
    if (rn_op_is(node->op, RN_TRAIT_RANDOM) || e->count == MOST_NODES) {
        e->possible = false;
        return RN_OK;
    }
    for (uint32_t i = 0; i < node->output_count; i++)
        if (!afford(e, bytes_of(e->m, node->outputs[i]))) return RN_OK;
    return push_node(e, info->producer);
}

// Backwards from the value. Nodes are listed behind those that read them.
static rn_status collect(evaluation *e, rn_value value) {
    RN_TRY(want(e, value));
    for (uint32_t at = 0; e->possible && at < e->count; at++) {
        const rn_node *node = rn_graph_node(e->m->graph, e->nodes[at]);
        if (node->input_count + node->output_count > MOST_TENSORS) e->possible = false;
        for (uint32_t i = 0; e->possible && i < node->input_count; i++)
            RN_TRY(want(e, node->inputs[i]));
    }
    return RN_OK;
}

// ---- running ------------------------------------------------------------------------------------

static rn_status place_outputs(rn_import *m, const rn_node *node, const rn_call *call,
                               rn_tensor *tensors) {
    for (uint32_t i = 0; i < node->output_count; i++) {
        uint64_t offset = 0;
        rn_alias alias = rn_call_alias(call, i, &offset);
        rn_tensor *out = &tensors[node->input_count + i];
        if (alias.kind == RN_ALIAS_KIND_MUST)
            return rn_fail(RN_UNSUPPORTED, "%s changes its input in place", node->name);
        if (alias.kind == RN_ALIAS_KIND_VIEW)
            out->data = (uint8_t *)tensors[alias.input].data + offset;
        else
            RN_TRY(rn_arena_alloc(&m->memory, rn_tensor_bytes(out), &out->data));
        RN_TRY(make_room(m, node->outputs[i]));
        m->data[node->outputs[i]] = out->data;
    }
    return RN_OK;
}

static rn_status run_node(rn_import *m, uint32_t number) {
    const rn_node *node = rn_graph_node(m->graph, number);
    const rn_op_info *op = rn_op_get(node->op);
    rn_tensor tensors[MOST_TENSORS];
    rn_call call;
    void *workspace = NULL;
    rn_graph_bind(m->graph, number, 1, tensors, &call);
    for (uint32_t i = 0; i < node->input_count; i++)
        if (node->inputs[i]) tensors[i].data = (void *)m->data[node->inputs[i]];
    RN_TRY(place_outputs(m, node, &call, tensors));
    if (!op->reference) return RN_OK; // a view
    call.workspace_bytes = op->workspace ? op->workspace(&call) : 0;
    if (call.workspace_bytes > MOST_BYTES)
        return rn_fail(RN_UNSUPPORTED, "%s needs too much to be computed here", node->name);
    RN_TRY(rn_alloc(RN_HOST_OTHER, call.workspace_bytes, &workspace));
    call.workspace = workspace;
    rn_status s = op->reference(&call);
    rn_free(RN_HOST_OTHER, workspace, call.workspace_bytes);
    return s;
}

static int compare_numbers(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

const void *rn_import_evaluate(rn_import *m, rn_value value, bool with_inputs,
                               rn_status *out_status) {
    evaluation e = {.m = m,
                    .with_inputs = with_inputs,
                    .possible = true,
                    .most_bytes = with_inputs ? MOST_BYTES : FREE_BYTES};
    rn_status s = collect(&e, value);
    if (s == RN_OK && e.possible) {
        if (e.count) qsort(e.nodes, e.count, sizeof *e.nodes, compare_numbers);
        for (uint32_t i = 0; s == RN_OK && i < e.count; i++)
            s = run_node(m, e.nodes[i]);
        m->folded_bytes += e.bytes;
    }
    if (s == RN_OK && !e.possible && !with_inputs) m->varies[value] = 1;
    rn_free(RN_HOST_OTHER, e.nodes, e.room * sizeof *e.nodes);
    *out_status = s;
    return s == RN_OK && e.possible ? m->data[value] : NULL;
}

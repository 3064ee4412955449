// rewrite.c — see rewrite.h.
#include "graph/rewrite.h"

#include "graph/copy.h"
#include "graph/graph_internal.h"
#include "graph/halves.h"
#include "memory/account.h"

// A value that no node makes: an input, a weight, a state or a constant.
static rn_status copy_given(rn_rewrite *r, rn_value value) {
    const rn_value_info *v = rn_graph_value(r->from, value);
    rn_graph_set_place(r->to, v->block, RN_PHASE_FORWARD);
    switch (v->role) {
    case RN_ROLE_INPUT:
        r->now[value] = rn_graph_input(r->to, v->name, v->dtype, v->shape);
        break;
    case RN_ROLE_STATE:
        r->now[value] = rn_graph_state(r->to, v->name, v->dtype, v->shape, v->purpose);
        break;
    case RN_ROLE_CONSTANT:
        r->now[value] = rn_graph_constant(r->to, v->name, v->dtype, v->shape, v->constant);
        break;
    default:
        return rn_graph_copy_value(r->from, r->to, value, &r->now[value]);
    }
    return rn_graph_finish(r->to);
}

static rn_status copy_missing(rn_rewrite *r, bool inputs_only) {
    for (rn_value v = 1; v <= rn_graph_value_count(r->from); v++) {
        const rn_value_info *info = rn_graph_value(r->from, v);
        if (info->producer != RN_NO_NODE || r->now[v] != RN_NO_VALUE) continue;
        if (!inputs_only || info->role == RN_ROLE_INPUT) RN_TRY(copy_given(r, v));
    }
    return RN_OK;
}

rn_status rn_rewrite_begin(rn_rewrite *r, const rn_graph *graph) {
    void *now = NULL;
    *r = (rn_rewrite){.from = graph};
    rn_arena_init(&r->memory, RN_HOST_OTHER, 0);
    if (graph->failure != RN_OK) return rn_error_restore(&graph->error);
    RN_TRY(rn_graph_create_like(graph, &r->to));
    RN_TRY(
        rn_arena_array(&r->memory, (size_t)rn_graph_value_count(graph) + 1, sizeof *r->now, &now));
    r->now = now;
    return copy_missing(r, true);
}

rn_status rn_rewrite_inputs(rn_rewrite *r, const rn_value *inputs, uint32_t count, rn_value *out) {
    for (uint32_t i = 0; i < count; i++) {
        if (inputs[i] != RN_NO_VALUE && r->now[inputs[i]] == RN_NO_VALUE)
            RN_TRY(copy_given(r, inputs[i]));
        out[i] = inputs[i] == RN_NO_VALUE ? RN_NO_VALUE : r->now[inputs[i]];
    }
    return RN_OK;
}

void rn_rewrite_place(rn_rewrite *r, const rn_node *node) {
    rn_graph_set_place(r->to, node->block, node->phase);
}

void rn_rewrite_output(rn_rewrite *r, rn_value old, rn_value value) {
    const rn_value_info *v = rn_graph_value(r->from, old);
    r->now[old] = value;
    if (value == RN_NO_VALUE) return; // the graph has failed
    rn_graph_value_edit(r->to, value)->purpose = v->purpose;
    if (v->role == RN_ROLE_OUTPUT)
        rn_graph_output(r->to, value, v->name);
    else if (strcmp(v->name, rn_graph_node(r->from, v->producer)->name) != 0)
        rn_graph_name(r->to, value, v->name);
}

rn_status rn_rewrite_node(rn_rewrite *r, const rn_node *node, const rn_value *inputs) {
    void *own = NULL;
    if (!inputs) {
        RN_TRY(rn_arena_array(&r->memory, node->input_count, sizeof(rn_value), &own));
        RN_TRY(rn_rewrite_inputs(r, node->inputs, node->input_count, own));
        inputs = own;
    }
    rn_rewrite_place(r, node);
    rn_value first = rn_graph_add(r->to, node->op, inputs, node->input_count, node->attrs);
    RN_TRY(rn_graph_finish(r->to));
    for (uint32_t i = 0; i < node->output_count; i++) {
        rn_value made = rn_graph_output_of(r->to, first, i);
        rn_dtype dtype = rn_graph_dtype(r->from, node->outputs[i]);
        if (rn_dtype_is_half(dtype) && rn_graph_dtype(r->to, made) == RN_DTYPE_F32)
            rn_graph_make_half(r->to, made, dtype);
        rn_rewrite_output(r, node->outputs[i], made);
    }
    return rn_graph_finish(r->to);
}

rn_status rn_rewrite_end(rn_rewrite *r, rn_status s, rn_graph **out) {
    *out = NULL;
    if (s == RN_OK) s = copy_missing(r, false);
    if (s == RN_OK) {
        rn_graph_set_place(r->to, r->from->block, r->from->phase);
        s = rn_graph_finish(r->to);
    }
    rn_arena_free_all(&r->memory);
    if (s == RN_OK)
        *out = r->to;
    else
        rn_graph_destroy(r->to);
    return s;
}

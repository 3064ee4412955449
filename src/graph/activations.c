// activations.c — see activations.h: which values are held in 16 bits, then the graph anew with the
// casts.
//
// A view of a held value is a view of its 16 bits, so that nobody keeps the f32 bytes behind it:
// what is asked of a value is asked of all its views.
#include "graph/activations.h"

#include "graph/rewrite.h"

typedef struct holder {
    rn_rewrite rewrite;
    const rn_graph *from;
    rn_dtype dtype;
    rn_value *root;   // (values + 1): the value that it is a view of, or itself
    bool *held;       // (values + 1): by root
    bool *refused;    // (values + 1), by root: somebody reads or keeps it as f32
    rn_value *wide;   // (values + 1): the f32 copy that was made last, of `to`; RN_NO_VALUE: none
    uint32_t *reader; // (values + 1): the node that it was made for: others of its block and phase
                      // share it
} holder;

// ---- which --------------------------------------------------------------------------------------

static const rn_node *node_of(const holder *h, uint32_t number) {
    return rn_graph_node(h->from, number);
}

// A result of the forward pass that is its own bytes, and no statistic.
static bool is_activation(const holder *h, rn_value value) {
    const rn_value_info *v = rn_graph_value(h->from, value);
    if (v->producer == RN_NO_NODE || v->role != RN_ROLE_INTERMEDIATE || v->output != 0)
        return false;
    const rn_node *n = node_of(h, v->producer);
    const rn_alias *alias = rn_op_get(n->op)->alias;
    bool own = alias[0].kind != RN_ALIAS_KIND_VIEW && alias[0].kind != RN_ALIAS_KIND_MUST;
    return own && n->phase == RN_PHASE_FORWARD && v->dtype == RN_DTYPE_F32 && v->shape.rank > 1 &&
           !rn_op_is(n->op, RN_TRAIT_EXACT);
}

// What the node does to the roots of its inputs.
static void note_reader(holder *h, const rn_node *n) {
    for (uint32_t i = 0; i < n->input_count; i++) {
        rn_value root = h->root[n->inputs[i]];
        const rn_value_info *v = rn_graph_value(h->from, root);
        if (root == RN_NO_VALUE) continue;
        if (rn_op_is(n->op, RN_TRAIT_VIEW)) {
            h->root[n->outputs[0]] = root;
            h->refused[root] |=
                rn_graph_value(h->from, n->outputs[0])->role != RN_ROLE_INTERMEDIATE;
            continue;
        }
        h->held[root] |= n->phase != RN_PHASE_FORWARD || n->block != v->block;
        h->refused[root] |= rn_op_is(n->op, RN_TRAIT_EXACT);
    }
}

static rn_status find_held(holder *h) {
    size_t values = (size_t)rn_graph_value_count(h->from) + 1;
    rn_arena *m = &h->rewrite.memory;
    RN_TRY(rn_arena_array(m, values, sizeof *h->root, (void **)&h->root));
    RN_TRY(rn_arena_array(m, values, sizeof *h->held, (void **)&h->held));
    RN_TRY(rn_arena_array(m, values, sizeof *h->refused, (void **)&h->refused));
    RN_TRY(rn_arena_array(m, values, sizeof *h->wide, (void **)&h->wide));
    RN_TRY(rn_arena_array(m, values, sizeof *h->reader, (void **)&h->reader));
    for (rn_value v = 0; v < values; v++)
        h->root[v] = v;
    for (uint32_t n = 0; n < rn_graph_node_count(h->from); n++)
        note_reader(h, node_of(h, n));
    for (rn_value v = 1; v < values; v++)
        h->held[v] = h->held[v] && !h->refused[v] && is_activation(h, v);
    return RN_OK;
}

// ---- writing ------------------------------------------------------------------------------------

// The held value as f32, for this reader and those near it.
static rn_value widen(holder *h, rn_value value, uint32_t number) {
    const rn_node *n = node_of(h, number), *last = node_of(h, h->reader[value]);
    bool near = h->wide[value] != RN_NO_VALUE && last->block == n->block && last->phase == n->phase;
    if (near) return h->wide[value];
    rn_rewrite_place(&h->rewrite, n);
    h->wide[value] = rn_op_cast(h->rewrite.to, h->rewrite.now[value], RN_DTYPE_F32);
    h->reader[value] = number;
    return h->wide[value];
}

static rn_status write_node(holder *h, uint32_t number) {
    const rn_node *n = node_of(h, number);
    rn_rewrite *r = &h->rewrite;
    void *block = NULL;
    RN_TRY(rn_arena_array(&r->memory, n->input_count, sizeof(rn_value), &block));
    rn_value *inputs = block;
    RN_TRY(rn_rewrite_inputs(r, n->inputs, n->input_count, inputs));
    for (uint32_t i = 0; i < n->input_count; i++)
        if (h->held[h->root[n->inputs[i]]] && !rn_op_is(n->op, RN_TRAIT_VIEW))
            inputs[i] = widen(h, n->inputs[i], number);
    RN_TRY(rn_rewrite_node(r, n, inputs));
    rn_value y = n->output_count ? n->outputs[0] : RN_NO_VALUE;
    if (h->held[y]) r->now[y] = rn_op_cast(r->to, r->now[y], h->dtype);
    return rn_graph_finish(r->to);
}

static rn_status rewrite(holder *h) {
    if (h->dtype != RN_DTYPE_F32 && h->dtype != RN_DTYPE_BF16 && h->dtype != RN_DTYPE_F16)
        return rn_fail(RN_INVALID, "activations can be held as f32, bf16 or f16, not as %s",
                       rn_dtype_get(h->dtype)->name);
    RN_TRY(find_held(h));
    for (rn_value v = 0; h->dtype == RN_DTYPE_F32 && v <= rn_graph_value_count(h->from); v++)
        h->held[v] = false;
    for (uint32_t n = 0; n < rn_graph_node_count(h->from); n++)
        RN_TRY(write_node(h, n));
    return RN_OK;
}

rn_status rn_graph_hold_activations(const rn_graph *graph, rn_dtype dtype, rn_graph **out) {
    holder h = {.from = graph, .dtype = dtype};
    rn_status s = rn_rewrite_begin(&h.rewrite, graph);
    if (s == RN_OK) s = rewrite(&h);
    return rn_rewrite_end(&h.rewrite, s, out);
}

rn_status rn_graph_hold_activations_in(rn_graph **graph, rn_dtype dtype) {
    rn_graph *held = NULL;
    if (dtype == RN_DTYPE_NONE || dtype == RN_DTYPE_F32) return RN_OK;
    RN_TRY(rn_graph_hold_activations(*graph, dtype, &held));
    rn_graph_destroy(*graph);
    *graph = held;
    return RN_OK;
}

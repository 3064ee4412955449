// activations.c — see activations.h: which values are of 16 bits, then the graph anew.
//
// A view of a held value is a view of its 16 bits, so that nobody keeps the f32 bytes behind it:
// what is asked of a value is asked of all its views.
#include "graph/activations.h"

#include "graph/halves.h"
#include "graph/rewrite.h"

typedef struct holder {
    rn_rewrite rewrite;
    const rn_graph *from;
    rn_dtype dtype;
    bool halves;
    rn_value *root;  // (values + 1): the value that it is a view of, or itself
    bool *held;      // (values + 1): by root
    bool *refused;   // (values + 1), by root: somebody reads or keeps it as f32
    bool *narrow;    // (values + 1), by root: a gradient that is kept in 16 bits
    rn_value *other; // (values + 1): the copy of another dtype that was made last, of `to`, or none
    uint32_t *reader; // (values + 1): the node that it was made for: others of its block and phase
                      // share it
} holder;

static const rn_node *node_of(const holder *h, uint32_t number) {
    return rn_graph_node(h->from, number);
}

// ---- which --------------------------------------------------------------------------------------

// A result that is its own bytes.
static bool is_own(const holder *h, rn_value value) {
    const rn_value_info *v = rn_graph_value(h->from, value);
    if (v->producer == RN_NO_NODE || v->role != RN_ROLE_INTERMEDIATE) return false;
    const rn_alias *alias = rn_op_get(node_of(h, v->producer)->op)->alias;
    return v->dtype == RN_DTYPE_F32 && v->shape.rank > 1 &&
           alias[v->output].kind != RN_ALIAS_KIND_VIEW &&
           alias[v->output].kind != RN_ALIAS_KIND_MUST;
}

// Of the forward pass, and no statistic.
static bool is_activation(const holder *h, rn_value value) {
    const rn_value_info *v = rn_graph_value(h->from, value);
    if (!is_own(h, value) || v->output != 0) return false;
    const rn_node *n = node_of(h, v->producer);
    return n->phase == RN_PHASE_FORWARD && !rn_op_is(n->op, RN_TRAIT_EXACT);
}

// An activation or the gradient of one, of an op that makes 16 bits itself.
static bool is_half(const holder *h, rn_value value) {
    const rn_value_info *v = rn_graph_value(h->from, value);
    if (!h->halves || !is_own(h, value)) return false;
    const rn_node *n = node_of(h, v->producer);
    bool backward = n->phase == RN_PHASE_BACKWARD || h->narrow[value] ||
                    (n->op == RN_OP_LINEAR_CROSS_ENTROPY && v->output > 0); // made on the way
    return (backward || is_activation(h, value)) && rn_op_makes_half(n->op, v->output);
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
        // A gradient is read as it was made: what comes before it is rounded anyway.
        bool gradient = h->halves && n->phase == RN_PHASE_BACKWARD;
        bool exact = !gradient && rn_op_is(n->op, RN_TRAIT_EXACT);
        h->refused[root] |= exact && !h->narrow[root];
    }
}

// Whether the node reads the gradient that is its input `i` as well in 16 bits: to change a weight
// that has no more, to find a norm, or to pass it on to such a reader.
static bool reads_narrow(const holder *h, const rn_node *n, uint32_t i) {
    if (!rn_op_takes_half(n->op, i)) return false;
    if (rn_op_is(n->op, RN_TRAIT_UPDATE))
        return i == 1 && rn_graph_dtype(h->from, n->inputs[0]) == h->dtype;
    if (n->op == RN_OP_SUM_SQUARES) return true;
    return rn_op_is(n->op, RN_TRAIT_ELEMENTWISE) && h->narrow[n->outputs[0]];
}

// What a narrow value in the update's phase is made from is narrow, too: a sum over micro-batches
// is not rounded behind it.
static bool comes_of_narrow(const holder *h, const rn_node *n) {
    for (uint32_t i = 0; i < n->input_count; i++) {
        rn_value input = n->inputs[i];
        if (input == RN_NO_VALUE || h->narrow[input]) continue;
        if (rn_graph_value(h->from, input)->shape.rank > 1) return false;
    }
    return true;
}

// The gradients of weights that are of the policy's 16 bits themselves, where nobody adds them up
// over micro-batches.
static void find_narrow(holder *h) {
    uint32_t nodes = rn_graph_node_count(h->from);
    for (rn_value v = 1; v <= rn_graph_value_count(h->from); v++)
        h->narrow[v] = is_own(h, v);
    for (uint32_t number = nodes; number-- > 0;) {
        const rn_node *n = node_of(h, number);
        for (uint32_t i = 0; i < n->output_count; i++) {
            const rn_value_info *v = rn_graph_value(h->from, n->outputs[i]);
            bool gradient = v->purpose == RN_PURPOSE_GRADIENTS || n->phase == RN_PHASE_UPDATE;
            h->narrow[n->outputs[i]] &= gradient && rn_op_makes_half(n->op, i);
        }
        for (uint32_t i = 0; i < n->input_count; i++)
            h->narrow[n->inputs[i]] &= reads_narrow(h, n, i);
    }
    for (uint32_t number = 0; number < nodes; number++) {
        const rn_node *n = node_of(h, number);
        bool passes = n->phase == RN_PHASE_UPDATE && !comes_of_narrow(h, n);
        for (uint32_t i = 0; passes && i < n->output_count; i++)
            h->narrow[n->outputs[i]] = false;
    }
}

// The gradients of weights, and what is only added up or moved to become one.
static void refuse_gradients(holder *h) {
    for (uint32_t number = rn_graph_node_count(h->from); number-- > 0;) {
        const rn_node *n = node_of(h, number);
        bool passes = rn_op_get(n->op)->traits & (RN_TRAIT_ELEMENTWISE | RN_TRAIT_MOVE);
        bool exact = false;
        for (uint32_t i = 0; i < n->output_count; i++) {
            rn_value root = h->root[n->outputs[i]];
            bool is = rn_graph_value(h->from, n->outputs[i])->purpose == RN_PURPOSE_GRADIENTS;
            h->refused[root] |= is && !h->narrow[root];
            exact |= h->refused[root] && n->phase == RN_PHASE_BACKWARD;
        }
        for (uint32_t i = 0; exact && passes && i < n->input_count; i++)
            if (rn_graph_value(h->from, h->root[n->inputs[i]])->producer != RN_NO_NODE)
                h->refused[h->root[n->inputs[i]]] = true;
    }
}

static rn_status find_held(holder *h) {
    size_t values = (size_t)rn_graph_value_count(h->from) + 1;
    rn_arena *m = &h->rewrite.memory;
    RN_TRY(rn_arena_array(m, values, sizeof *h->root, (void **)&h->root));
    RN_TRY(rn_arena_array(m, values, sizeof *h->held, (void **)&h->held));
    RN_TRY(rn_arena_array(m, values, sizeof *h->refused, (void **)&h->refused));
    RN_TRY(rn_arena_array(m, values, sizeof *h->narrow, (void **)&h->narrow));
    RN_TRY(rn_arena_array(m, values, sizeof *h->other, (void **)&h->other));
    RN_TRY(rn_arena_array(m, values, sizeof *h->reader, (void **)&h->reader));
    for (rn_value v = 0; v < values; v++)
        h->root[v] = v;
    if (h->halves) find_narrow(h);
    for (uint32_t n = 0; n < rn_graph_node_count(h->from); n++)
        note_reader(h, node_of(h, n));
    if (h->halves) refuse_gradients(h);
    for (rn_value v = 1; v < values; v++)
        h->held[v] = !h->refused[v] && (is_half(h, v) || (h->held[v] && is_activation(h, v)));
    return RN_OK;
}

// ---- writing ------------------------------------------------------------------------------------

// The value as another dtype, for this reader and those near it.
static rn_value convert(holder *h, rn_value value, rn_dtype dtype, uint32_t number) {
    const rn_node *n = node_of(h, number), *last = node_of(h, h->reader[value]);
    bool given = rn_graph_value(h->from, value)->role == RN_ROLE_INPUT; // small, and read all over
    bool near = h->other[value] != RN_NO_VALUE &&
                (given || (last->block == n->block && last->phase == n->phase)) &&
                rn_graph_dtype(h->rewrite.to, h->other[value]) == dtype;
    if (near) return h->other[value];
    rn_rewrite_place(&h->rewrite, n);
    h->other[value] = rn_op_cast(h->rewrite.to, h->rewrite.now[value], dtype);
    h->reader[value] = number;
    return h->other[value];
}

// Whether all that the node reads is of 16 bits now, of one type: what is moved together.
static bool reads_halves(const holder *h, const rn_node *n, const rn_value *inputs) {
    for (uint32_t i = 0; i < n->input_count; i++)
        if (rn_graph_dtype(h->rewrite.to, inputs[i]) != h->dtype) return false;
    return true;
}

// Whether the node reads this input in 16 bits.
static bool takes(const holder *h, const rn_node *n, uint32_t input, const rn_product *product,
                  bool all_half) {
    if (rn_op_is(n->op, RN_TRAIT_VIEW)) return true;
    if (!h->halves) return false;
    if (rn_op_is(n->op, RN_TRAIT_MOVE))
        return all_half && !h->refused[n->outputs[0]] &&
               rn_graph_value(h->from, n->outputs[0])->role == RN_ROLE_INTERMEDIATE;
    return rn_op_takes_half(n->op, input) || input == product->weight;
}

// A product that makes 16 bits reads what the graph is given as 16 bits, too.
static void round_given(holder *h, uint32_t number, uint32_t x, rn_value *inputs) {
    const rn_node *n = node_of(h, number);
    if (!h->halves || x == RN_NO_INPUT || !h->held[n->outputs[0]] || !is_half(h, n->outputs[0]))
        return;
    const rn_value_info *v = rn_graph_value(h->from, n->inputs[x]);
    if (v->role == RN_ROLE_INPUT && v->dtype == RN_DTYPE_F32 && rn_op_takes_half(n->op, x))
        inputs[x] = convert(h, n->inputs[x], h->dtype, number);
}

// What the node reads: 16 bits as f32 where it wants that, and the f32 weight of a product that
// reads 16 bits as 16 bits.
static rn_status choose_inputs(holder *h, uint32_t number, rn_value *inputs) {
    const rn_node *n = node_of(h, number);
    const rn_graph *to = h->rewrite.to;
    rn_tensor tensors[32];
    rn_call call;
    rn_product product = {.x = RN_NO_INPUT, .weight = RN_NO_INPUT};
    if (rn_op_is(n->op, RN_TRAIT_PRODUCT) && n->input_count + n->output_count <= 32) {
        rn_graph_bind(h->from, number, 1, tensors, &call);
        if (!rn_call_product(&call, 0, &product)) product.x = product.weight = RN_NO_INPUT;
    }
    bool all_half = reads_halves(h, n, inputs);
    for (uint32_t i = 0; i < n->input_count; i++) {
        bool was_f32 = rn_graph_dtype(h->from, n->inputs[i]) == RN_DTYPE_F32;
        if (was_f32 && rn_dtype_is_half(rn_graph_dtype(to, inputs[i])) &&
            !takes(h, n, i, &product, all_half))
            inputs[i] = convert(h, n->inputs[i], RN_DTYPE_F32, number);
    }
    round_given(h, number, n->op == RN_OP_CONV2D ? 0 : product.x, inputs);
    if (!h->halves || product.x == RN_NO_INPUT || product.weight == RN_NO_INPUT) return RN_OK;
    bool half = rn_dtype_is_half(rn_graph_dtype(to, inputs[product.x]));
    if (half && rn_graph_dtype(to, inputs[product.weight]) == RN_DTYPE_F32)
        inputs[product.weight] = convert(h, n->inputs[product.weight], h->dtype, number);
    return RN_OK;
}

static rn_status write_node(holder *h, uint32_t number) {
    const rn_node *n = node_of(h, number);
    rn_rewrite *r = &h->rewrite;
    void *block = NULL;
    RN_TRY(rn_arena_array(&r->memory, n->input_count, sizeof(rn_value), &block));
    rn_value *inputs = block;
    RN_TRY(rn_rewrite_inputs(r, n->inputs, n->input_count, inputs));
    RN_TRY(choose_inputs(h, number, inputs));
    RN_TRY(rn_rewrite_node(r, n, inputs));
    for (uint32_t i = 0; i < n->output_count; i++) {
        rn_value y = n->outputs[i];
        if (!h->held[y] || rn_graph_dtype(r->to, r->now[y]) != RN_DTYPE_F32) continue;
        if (is_half(h, y))
            rn_graph_make_half(r->to, r->now[y], h->dtype);
        else
            r->now[y] = rn_op_cast(r->to, r->now[y], h->dtype);
    }
    return rn_graph_finish(r->to);
}

static rn_status rewrite(holder *h) {
    if (h->dtype != RN_DTYPE_F32 && h->dtype != RN_DTYPE_BF16 && h->dtype != RN_DTYPE_F16)
        return rn_fail(RN_INVALID, "activations can be held as f32, bf16 or f16, not as %s",
                       rn_dtype_get(h->dtype)->name);
    h->halves = h->halves && h->dtype != RN_DTYPE_F32;
    if (h->halves) rn_graph_allow_halves(h->rewrite.to);
    RN_TRY(find_held(h));
    for (rn_value v = 0; h->dtype == RN_DTYPE_F32 && v <= rn_graph_value_count(h->from); v++)
        h->held[v] = false;
    for (uint32_t n = 0; n < rn_graph_node_count(h->from); n++)
        RN_TRY(write_node(h, n));
    return RN_OK;
}

rn_status rn_graph_hold_activations(const rn_graph *graph, rn_dtype dtype, bool halves,
                                    rn_graph **out) {
    holder h = {.from = graph, .dtype = dtype, .halves = halves};
    rn_status s = rn_rewrite_begin(&h.rewrite, graph);
    if (s == RN_OK) s = rewrite(&h);
    return rn_rewrite_end(&h.rewrite, s, out);
}

rn_status rn_graph_hold_activations_in(rn_graph **graph, rn_dtype dtype, bool halves) {
    rn_graph *held = NULL;
    if (dtype == RN_DTYPE_NONE || dtype == RN_DTYPE_F32) return RN_OK;
    RN_TRY(rn_graph_hold_activations(*graph, dtype, halves, &held));
    rn_graph_destroy(*graph);
    *graph = held;
    return RN_OK;
}

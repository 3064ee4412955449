// gradient.c — reverse mode: from the loss back to what is wanted, and nowhere else.
//
//     wanted w ──▶ matmul ──▶ relu ──▶ loss      forward, marked: a wanted value lies behind it
//     frozen f ──▶ ...   ──▶ ─┘                  not marked: no rule is asked, nothing is read
//
// Nodes are visited from the last to the first, so all consumers of a value come before its
// producer. What they give for it is added as it comes:
//
//     ((last consumer + the one before) + ...) + first consumer
//
// and within one consumer by the order of its inputs. So the sum is fixed by the graph, and one
// buffer holds it, however many consumers there are. Each sum is in the block of the consumer that
// it adds.
#include "graph/graph_internal.h"
#include "graph/validate.h"
#include "memory/account.h"

#include <stdio.h>

typedef struct pass {
    rn_graph *graph;
    rn_arena memory;
    bool *marked;        // (values + 1): it is, or depends on, a wanted value
    rn_value *gradients; // (values + 1): the sum so far
    uint32_t end;        // nodes from here on do not count: they come after the loss
} pass;

// ---- what a gradient may flow through -----------------------------------------------------------

// Whole numbers do not change with what they were made of: nothing flows through them.
static bool is_whole(const rn_graph *graph, rn_value value) {
    rn_dtype dtype = rn_graph_value(graph, value)->dtype;
    return dtype >= RN_DTYPE_I64 && dtype <= RN_DTYPE_BOOL;
}

static rn_status mark_wanted(pass *p, const rn_value *wanted, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (wanted[i] == RN_NO_VALUE || wanted[i] > rn_graph_value_count(p->graph))
            return rn_fail(RN_INVALID, "wanted value %u is no value of this graph", i);
        const rn_value_info *info = rn_graph_value(p->graph, wanted[i]);
        if (!rn_dtype_get(info->dtype)->is_float)
            return rn_hint(rn_fail(RN_INVALID, "%s '%s' is %s: it has no gradient",
                                   rn_role_name(info->role), info->name,
                                   rn_dtype_get(info->dtype)->name),
                           "freeze it, or keep it in a float type");
        p->marked[wanted[i]] = true;
    }
    return RN_OK;
}

static bool reads_marked(const pass *p, const rn_node *node) {
    for (uint32_t i = 0; i < node->input_count; i++)
        if (p->marked[node->inputs[i]]) return true;
    return false;
}

static void mark_dependants(pass *p) {
    for (uint32_t n = 0; n < p->end; n++) {
        const rn_node *node = rn_graph_node(p->graph, n);
        if (!reads_marked(p, node) || rn_op_is(node->op, RN_TRAIT_DETACHED)) continue;
        for (uint32_t i = 0; i < node->output_count; i++)
            if (!is_whole(p->graph, node->outputs[i])) p->marked[node->outputs[i]] = true;
    }
}

// ---- the loss -----------------------------------------------------------------------------------

static rn_status check_loss(const rn_graph *graph, rn_value loss) {
    if (loss == RN_NO_VALUE || loss > rn_graph_value_count(graph))
        return rn_fail(RN_INVALID, "the loss is no value of this graph");
    const rn_value_info *info = rn_graph_value(graph, loss);
    if (info->dtype == RN_DTYPE_F32 && rn_shape_elements(info->shape, UINT64_MAX) == 1)
        return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "the loss '%s' is %s %s, not one f32 number", info->name,
                           rn_shape_format(info->shape).text, rn_dtype_get(info->dtype)->name),
                   "sum it up: rn_op_sum or rn_op_mean over all axes");
}

// d loss / d loss: one constant a loss, whoever asks again.
static rn_value start(rn_graph *graph, rn_value loss) {
    static const float one = 1;
    const rn_value_info *info = rn_graph_value(graph, loss);
    char name[320];
    snprintf(name, sizeof name, "d %.150s / d %.150s", info->name, info->name);
    rn_value known = rn_graph_find(graph, RN_ROLE_CONSTANT, name);
    if (known != RN_NO_VALUE && rn_shape_equal(rn_graph_value(graph, known)->shape, info->shape))
        return known;
    return rn_graph_constant(graph, name, RN_DTYPE_F32, info->shape, &one);
}

// ---- one node -----------------------------------------------------------------------------------

static rn_status check_rule(const pass *p, const rn_node *node, const rn_call *call,
                            const rn_value *out_gradients) {
    for (uint32_t i = 0; i < node->output_count; i++) {
        uint64_t offset = 0;
        if (out_gradients[i] != RN_NO_VALUE &&
            rn_call_alias(call, i, &offset).kind == RN_ALIAS_KIND_MUST)
            return rn_hint(rn_fail(RN_UNSUPPORTED,
                                   "%s changes '%s' in place: no gradient flows through it",
                                   node->name, rn_graph_value(p->graph, node->outputs[i])->name),
                           "a loss must not depend on a wanted value through a state");
    }
    if (rn_op_get(node->op)->gradient) return RN_OK;
    return rn_hint(
        rn_fail(RN_UNSUPPORTED, "%s has no gradient, and the loss depends on it", node->name),
        "the op %s is for inference", rn_op_name(node->op));
}

// Adds what a consumer gives for one of its inputs.
static rn_status add_gradient(pass *p, const rn_node *node, uint32_t input, rn_value gradient) {
    rn_value value = node->inputs[input];
    if (gradient == RN_NO_VALUE)
        return rn_fail(RN_UNSUPPORTED, "%s gives no gradient for its input %u, '%s'", node->name,
                       input, rn_graph_value(p->graph, value)->name);
    rn_shape is = rn_graph_value(p->graph, gradient)->shape;
    rn_shape must = rn_graph_value(p->graph, value)->shape;
    if (!rn_shape_equal(is, must))
        return rn_fail(RN_INTERNAL, "%s: the gradient of input %u is %s, the input %s", node->name,
                       input, rn_shape_format(is).text, rn_shape_format(must).text);
    rn_value *sum = &p->gradients[value];
    *sum = *sum == RN_NO_VALUE ? gradient : rn_op_add(p->graph, *sum, gradient);
    return rn_graph_finish(p->graph);
}

static rn_status call_rule(pass *p, const rn_node *node, const rn_value *out_gradients) {
    void *wanted_block = NULL, *in_block = NULL;
    RN_TRY(rn_arena_array(&p->memory, node->input_count, sizeof(bool), &wanted_block));
    RN_TRY(rn_arena_array(&p->memory, node->input_count, sizeof(rn_value), &in_block));
    bool *wanted = wanted_block;
    rn_value *in_gradients = in_block;
    for (uint32_t i = 0; i < node->input_count; i++)
        wanted[i] = p->marked[node->inputs[i]];
    rn_graph_set_place(p->graph, node->block, RN_PHASE_BACKWARD);
    RN_TRY(rn_op_get(node->op)->gradient(&(rn_backward){.graph = p->graph,
                                                        .node = *node,
                                                        .out_gradients = out_gradients,
                                                        .wanted = wanted,
                                                        .in_gradients = in_gradients}));
    RN_TRY(rn_graph_finish(p->graph));
    for (uint32_t i = 0; i < node->input_count; i++)
        if (wanted[i]) RN_TRY(add_gradient(p, node, i, in_gradients[i]));
    return RN_OK;
}

static rn_status visit(pass *p, uint32_t number) {
    const rn_node *node = rn_graph_node(p->graph, number);
    rn_value out_gradients[RN_MAX_OUTPUTS] = {RN_NO_VALUE};
    void *tensors = NULL;
    rn_call call;
    bool flows = false;
    for (uint32_t i = 0; i < node->output_count; i++) {
        out_gradients[i] = p->gradients[node->outputs[i]];
        flows = flows || out_gradients[i] != RN_NO_VALUE;
    }
    if (!flows || !reads_marked(p, node)) return RN_OK;
    RN_TRY(rn_arena_array(&p->memory, node->input_count + node->output_count, sizeof(rn_tensor),
                          &tensors));
    rn_graph_bind(p->graph, number, 1, tensors, &call);
    RN_TRY(check_rule(p, node, &call, out_gradients));
    return call_rule(p, node, out_gradients);
}

// ---- the pass -----------------------------------------------------------------------------------

static rn_status prepare(pass *p, rn_value loss, const rn_value *wanted, uint32_t wanted_count) {
    void *marked = NULL, *gradients = NULL;
    uint32_t values = rn_graph_value_count(p->graph) + 1;
    RN_TRY(rn_graph_finish(p->graph));
    RN_TRY(check_loss(p->graph, loss));
    RN_TRY(rn_arena_array(&p->memory, values, sizeof(bool), &marked));
    RN_TRY(rn_arena_array(&p->memory, values, sizeof(rn_value), &gradients));
    p->marked = marked;
    p->gradients = gradients;
    uint32_t producer = rn_graph_value(p->graph, loss)->producer;
    p->end = producer == RN_NO_NODE ? 0 : producer + 1;
    RN_TRY(mark_wanted(p, wanted, wanted_count));
    mark_dependants(p);
    return RN_OK;
}

static rn_status walk(pass *p, rn_value loss, const rn_value *wanted, uint32_t wanted_count,
                      rn_value *out_gradients) {
    RN_TRY(prepare(p, loss, wanted, wanted_count));
    if (!p->marked[loss]) return RN_OK; // nothing that is wanted matters to it
    rn_graph_set_place(p->graph, rn_graph_value(p->graph, loss)->block, RN_PHASE_BACKWARD);
    p->gradients[loss] = start(p->graph, loss);
    for (uint32_t n = p->end; n-- > 0;)
        RN_TRY(visit(p, n));
    RN_TRY(rn_graph_finish(p->graph));
    for (uint32_t i = 0; i < wanted_count; i++) {
        out_gradients[i] = p->gradients[wanted[i]];
        if (out_gradients[i] != RN_NO_VALUE)
            rn_graph_value_edit(p->graph, out_gradients[i])->purpose = RN_PURPOSE_GRADIENTS;
    }
    return rn_graph_validate_updates(p->graph);
}

rn_status rn_graph_gradient(rn_graph *graph, rn_value loss, const rn_value *wanted,
                            uint32_t wanted_count, rn_value *out_gradients) {
    pass p = {.graph = graph};
    uint32_t block = graph->block;
    for (uint32_t i = 0; i < wanted_count; i++)
        out_gradients[i] = RN_NO_VALUE;
    rn_arena_init(&p.memory, RN_HOST_OTHER, 0);
    rn_status s = walk(&p, loss, wanted, wanted_count, out_gradients);
    rn_arena_free_all(&p.memory);
    // What is built on gradients is the update; a graph that failed takes no more nodes anyway.
    rn_graph_set_place(graph, block, RN_PHASE_UPDATE);
    if (s == RN_OK) return RN_OK;
    rn_graph_spoil(graph, s);
    for (uint32_t i = 0; i < wanted_count; i++)
        out_gradients[i] = RN_NO_VALUE;
    return s;
}

// node.c — adding a node: its inputs are looked up, the op's shape rule says what comes out.
#include "graph/graph_internal.h"
#include "graph/halves.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct rn_typed typed;

// ---- failures that name the node and the shapes -------------------------------------------------

static void list_inputs(const rn_shaping *s, char *out, size_t bytes) {
    size_t at = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < s->input_count && at < bytes; i++) {
        const typed *in = &s->in[i];
        int n = in->dtype == RN_DTYPE_NONE
                    ? snprintf(out + at, bytes - at, "%snone", i ? ", " : "")
                    : snprintf(out + at, bytes - at, "%s%s %s", i ? ", " : "",
                               rn_shape_format(in->shape).text, rn_dtype_get(in->dtype)->name);
        at += n > 0 ? (size_t)n : 0;
    }
}

rn_status rn_shape_fail(const rn_shaping *s, const char *format, ...) {
    char message[384], inputs[384];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    list_inputs(s, inputs, sizeof inputs);
    return rn_fail(RN_INVALID, "%s: %s; inputs: %s", s->node->name, message, inputs);
}

rn_status rn_shape_want(const rn_shaping *s, uint32_t input, rn_dtype dtype) {
    if (s->in[input].dtype == dtype) return RN_OK;
    return rn_shape_fail(s, "input %u must be %s, it is %s", input, rn_dtype_get(dtype)->name,
                         rn_dtype_get(s->in[input].dtype)->name);
}

// ---- adding -------------------------------------------------------------------------------------

enum { FEW_INPUTS = 8 };

static rn_status look_up(const rn_graph *graph, const rn_op_info *op, const rn_node *node,
                         typed *in /* (input_count) */) {
    for (uint32_t i = 0; i < node->input_count; i++) {
        rn_value value = node->inputs[i];
        if (value >= graph->values.count)
            return rn_fail(RN_INVALID, "%s: input %u is no value of this graph", node->name, i);
        if (value == RN_NO_VALUE) {
            if (i < 32 && op->optional_inputs >> i & 1) continue;
            return rn_fail(RN_INVALID, "%s: input %u is missing", node->name, i);
        }
        const rn_value_info *info = graph->values.items[value];
        bool half = rn_node_takes_half(graph, node, i);
        in[i] = (typed){half ? RN_DTYPE_F32 : info->dtype, info->shape, info->role};
    }
    return RN_OK;
}

static rn_status derive(const rn_graph *graph, const rn_op_info *op, const rn_node *node,
                        typed *in /* (input_count) */, typed out[RN_MAX_OUTPUTS]) {
    RN_TRY(look_up(graph, op, node, in));
    for (uint32_t i = 0; i < op->output_count; i++)
        out[i] = (typed){.dtype = RN_DTYPE_F32, .role = RN_ROLE_INTERMEDIATE};
    rn_shaping shaping = {.graph = graph,
                          .node = node,
                          .in = in,
                          .out = out,
                          .input_count = node->input_count,
                          .attrs = node->attrs};
    return op->shape(&shaping);
}

static rn_status copy_name(rn_graph *graph, const rn_op_info *op, const char **out) {
    char text[256];
    void *copy = NULL;
    const char *block = graph->blocks.items[graph->block];
    int n = snprintf(text, sizeof text, "%.200s%s%s.%u", block, block[0] ? "/" : "", op->name,
                     graph->nodes.count);
    RN_TRY(rn_arena_copy(&graph->memory, text, (size_t)n, &copy));
    *out = copy;
    return RN_OK;
}

static rn_status make_node(rn_graph *graph, const rn_node *like, const rn_op_info *op,
                           rn_node **out) {
    void *node = NULL, *inputs = NULL, *attrs = NULL, *outputs = NULL;
    RN_TRY(rn_arena_copy(&graph->memory, like, sizeof *like, &node));
    RN_TRY(
        rn_arena_copy(&graph->memory, like->inputs, like->input_count * sizeof(rn_value), &inputs));
    RN_TRY(rn_arena_array(&graph->memory, op->output_count, sizeof(rn_value), &outputs));
    if (op->attrs_bytes)
        RN_TRY(rn_arena_copy(&graph->memory, like->attrs, op->attrs_bytes, &attrs));
    *out = node;
    (*out)->inputs = inputs;
    (*out)->outputs = outputs;
    (*out)->attrs = attrs;
    return copy_name(graph, op, &(*out)->name);
}

static rn_status add_outputs(rn_graph *graph, rn_node *node, const typed *out) {
    for (uint32_t i = 0; i < node->output_count; i++) {
        rn_value_info info = {.dtype = out[i].dtype,
                              .shape = out[i].shape,
                              .role = RN_ROLE_INTERMEDIATE,
                              .purpose = RN_PURPOSE_ACTIVATIONS,
                              .block = graph->block,
                              .producer = graph->nodes.count,
                              .output = i};
        node->outputs[i] = rn_graph_add_value(graph, &info, node->name);
        if (node->outputs[i] == RN_NO_VALUE) return rn_graph_finish(graph);
    }
    return rn_table_push(&graph->nodes, node);
}

static rn_status add_node(rn_graph *graph, const rn_node *like, typed *in, rn_value *out_first) {
    const rn_op_info *op = rn_op_get(like->op);
    typed out[RN_MAX_OUTPUTS];
    rn_node *node = NULL;
    if (like->input_count < op->min_inputs || like->input_count > op->max_inputs)
        return rn_fail(RN_INVALID, "%s takes %u to %u inputs, got %u", op->name, op->min_inputs,
                       op->max_inputs, like->input_count);
    RN_TRY(make_node(graph, like, op, &node));
    RN_TRY(derive(graph, op, node, in, out));
    RN_TRY(add_outputs(graph, node, out));
    *out_first = node->output_count ? node->outputs[0] : RN_NO_VALUE;
    return RN_OK;
}

// Whether some required input is missing because of an earlier failure.
static bool is_silent(const rn_graph *graph) {
    return graph->failure != RN_OK;
}

rn_value rn_graph_add(rn_graph *graph, rn_op op, const rn_value *inputs, uint32_t input_count,
                      const void *attrs) {
    if (is_silent(graph)) return RN_NO_VALUE;
    rn_node like = {.op = op,
                    .phase = graph->phase,
                    .block = graph->block,
                    .input_count = input_count,
                    .output_count = rn_op_get(op)->output_count,
                    .inputs = inputs,
                    .attrs = attrs,
                    .recomputes = RN_NO_NODE};
    typed few[FEW_INPUTS] = {{0}};
    void *many = NULL;
    rn_value first = RN_NO_VALUE;
    rn_status s = RN_OK;
    if (input_count > FEW_INPUTS)
        s = rn_arena_array(&graph->memory, input_count, sizeof(typed), &many);
    if (s == RN_OK) s = add_node(graph, &like, many ? many : few, &first);
    if (s != RN_OK) rn_graph_spoil(graph, s);
    return s == RN_OK ? first : RN_NO_VALUE;
}

rn_value rn_graph_output_of(const rn_graph *graph, rn_value first, uint32_t output) {
    if (first == RN_NO_VALUE || graph->failure != RN_OK) return RN_NO_VALUE;
    const rn_value_info *info = rn_graph_value(graph, first);
    if (info->producer == RN_NO_NODE) return RN_NO_VALUE;
    const rn_node *node = graph->nodes.items[info->producer];
    return output < node->output_count ? node->outputs[output] : RN_NO_VALUE;
}

// graph_print.c — a graph for people: as text, and as a picture for graphviz.
#include "graph/op.h"

#include <stdio.h>

static rn_status print_type(const rn_value_info *info, rn_sink sink) {
    return rn_sink_print(sink, "%s %s", rn_dtype_get(info->dtype)->name,
                         rn_shape_format(info->shape).text);
}

// ---- text ---------------------------------------------------------------------------------------

static rn_status print_given(const rn_graph *graph, rn_sink sink) {
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->producer != RN_NO_NODE) continue;
        RN_TRY(rn_sink_print(sink, "%%%u = %s '%s' ", v, rn_role_name(info->role), info->name));
        RN_TRY(print_type(info, sink));
        RN_TRY(rn_sink_print(sink, "\n"));
    }
    return RN_OK;
}

static rn_status print_operands(const rn_value *values, uint32_t count, rn_sink sink) {
    for (uint32_t i = 0; i < count; i++) {
        const char *comma = i ? ", " : "";
        RN_TRY(values[i] ? rn_sink_print(sink, "%s%%%u", comma, values[i])
                         : rn_sink_print(sink, "%snone", comma));
    }
    return RN_OK;
}

static rn_status print_attrs(const rn_node *node, rn_sink sink) {
    char text[256] = "";
    const rn_op_info *op = rn_op_get(node->op);
    if (op->print) op->print(node->attrs, text, sizeof text);
    return text[0] ? rn_sink_print(sink, " [%s]", text) : RN_OK;
}

static rn_status print_results(const rn_graph *graph, const rn_node *node, rn_sink sink) {
    for (uint32_t i = 0; i < node->output_count; i++) {
        const rn_value_info *info = rn_graph_value(graph, node->outputs[i]);
        RN_TRY(rn_sink_print(sink, "%s", i ? ", " : "  # "));
        RN_TRY(print_type(info, sink));
        if (info->role == RN_ROLE_OUTPUT) RN_TRY(rn_sink_print(sink, " = output '%s'", info->name));
    }
    return RN_OK;
}

static rn_status print_node(const rn_graph *graph, const rn_node *node, rn_sink sink) {
    static const char *const phases[] = {"", " (backward)", " (update)"};
    RN_TRY(rn_sink_print(sink, "  "));
    RN_TRY(print_operands(node->outputs, node->output_count, sink));
    RN_TRY(rn_sink_print(sink, " = %s ", rn_op_name(node->op)));
    RN_TRY(print_operands(node->inputs, node->input_count, sink));
    RN_TRY(print_attrs(node, sink));
    RN_TRY(print_results(graph, node, sink));
    return rn_sink_print(sink, "%s%s\n", phases[node->phase],
                         node->recomputes == RN_NO_NODE ? "" : " (again)");
}

rn_status rn_graph_print(const rn_graph *graph, rn_sink sink) {
    uint32_t block = UINT32_MAX;
    RN_TRY(print_given(graph, sink));
    for (uint32_t i = 0; i < rn_graph_node_count(graph); i++) {
        const rn_node *node = rn_graph_node(graph, i);
        if (node->block != block)
            RN_TRY(rn_sink_print(sink, "block %u '%s'\n", node->block,
                                 rn_graph_block_name(graph, node->block)));
        block = node->block;
        RN_TRY(print_node(graph, node, sink));
    }
    return RN_OK;
}

// ---- graphviz -----------------------------------------------------------------------------------

// Text within a quoted label: quotes and backslashes escaped.
static rn_status print_label(const char *text, rn_sink sink) {
    for (; *text; text++) {
        char c = *text;
        if (c == '"' || c == '\\') RN_TRY(rn_sink_write(sink, "\\", 1));
        RN_TRY(rn_sink_write(sink, &c, 1));
    }
    return RN_OK;
}

static rn_status dot_values(const rn_graph *graph, rn_sink sink) {
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->producer != RN_NO_NODE) continue;
        RN_TRY(rn_sink_print(sink, "  v%u [shape=box, label=\"", v));
        RN_TRY(print_label(info->name, sink));
        RN_TRY(rn_sink_print(sink, "\\n"));
        RN_TRY(print_type(info, sink));
        RN_TRY(rn_sink_print(sink, "\"];\n"));
    }
    return RN_OK;
}

static rn_status dot_edges(const rn_graph *graph, uint32_t index, rn_sink sink) {
    const rn_node *node = rn_graph_node(graph, index);
    for (uint32_t i = 0; i < node->input_count; i++) {
        rn_value v = node->inputs[i];
        if (v == RN_NO_VALUE) continue;
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->producer == RN_NO_NODE) {
            RN_TRY(rn_sink_print(sink, "  v%u -> n%u;\n", v, index));
            continue;
        }
        RN_TRY(rn_sink_print(sink, "  n%u -> n%u [label=\"%s\"];\n", info->producer, index,
                             rn_shape_format(info->shape).text));
    }
    return RN_OK;
}

static rn_status dot_block(const rn_graph *graph, uint32_t block, rn_sink sink) {
    RN_TRY(rn_sink_print(sink, "  subgraph cluster_%u {\n    label=\"", block));
    RN_TRY(print_label(rn_graph_block_name(graph, block), sink));
    RN_TRY(rn_sink_print(sink, "\";\n"));
    for (uint32_t i = 0; i < rn_graph_node_count(graph); i++) {
        const rn_node *node = rn_graph_node(graph, i);
        if (node->block == block)
            RN_TRY(rn_sink_print(sink, "    n%u [label=\"%s\"];\n", i, rn_op_name(node->op)));
    }
    return rn_sink_print(sink, "  }\n");
}

rn_status rn_graph_dot(const rn_graph *graph, rn_sink sink) {
    RN_TRY(rn_sink_print(sink, "digraph ration {\n  node [fontname=sans];\n"));
    RN_TRY(dot_values(graph, sink));
    for (uint32_t b = 0; b < rn_graph_block_count(graph); b++)
        RN_TRY(dot_block(graph, b, sink));
    for (uint32_t i = 0; i < rn_graph_node_count(graph); i++)
        RN_TRY(dot_edges(graph, i, sink));
    return rn_sink_print(sink, "}\n");
}

// halves.c — see halves.h. The reference of a call with halves is that of the same call in f32: its
// workspace has the wide copies in front of what the op itself wants.
#include "graph/halves.h"

#include "base/checked.h"
#include "graph/graph_internal.h"

enum { MOST_TENSORS = 16 }; // inputs and outputs of an op that takes halves

bool rn_op_takes_half(rn_op op, uint32_t input) {
    return input < 32 && rn_op_get(op)->half_inputs >> input & 1;
}

bool rn_op_makes_half(rn_op op, uint32_t output) {
    return output < 32 && rn_op_get(op)->half_outputs >> output & 1;
}

void rn_graph_allow_halves(rn_graph *graph) {
    graph->halves = true;
}

bool rn_graph_has_halves(const rn_graph *graph) {
    return graph->halves;
}

bool rn_node_takes_half(const rn_graph *graph, const rn_node *node, uint32_t input) {
    return graph->halves && rn_op_takes_half(node->op, input) &&
           rn_dtype_is_half(rn_graph_dtype(graph, node->inputs[input]));
}

bool rn_node_makes_half(const rn_graph *graph, const rn_node *node, uint32_t output) {
    return graph->halves && rn_op_makes_half(node->op, output) &&
           rn_dtype_is_half(rn_graph_dtype(graph, node->outputs[output]));
}

void rn_graph_make_half(rn_graph *graph, rn_value value, rn_dtype dtype) {
    if (graph->failure != RN_OK) return;
    rn_value_info *info = rn_graph_value_edit(graph, value);
    bool made = graph->halves && info->producer != RN_NO_NODE && info->dtype == RN_DTYPE_F32 &&
                rn_op_makes_half(rn_graph_node(graph, info->producer)->op, info->output);
    if (made && rn_dtype_is_half(dtype))
        info->dtype = dtype;
    else
        rn_graph_spoil(graph, rn_fail(RN_UNSUPPORTED, "'%s' cannot be made as %s", info->name,
                                      rn_dtype_get(dtype)->name));
}

// ---- calls --------------------------------------------------------------------------------------

static bool is_half_input(const rn_call *call, uint32_t i) {
    return rn_dtype_is_half(call->inputs[i].dtype) && rn_op_takes_half(call->op, i);
}

static bool is_half_output(const rn_call *call, uint32_t i) {
    return rn_dtype_is_half(call->outputs[i].dtype) && rn_op_makes_half(call->op, i);
}

bool rn_call_has_halves(const rn_call *call) {
    for (uint32_t i = 0; i < call->input_count; i++)
        if (is_half_input(call, i)) return true;
    for (uint32_t i = 0; i < call->output_count; i++)
        if (is_half_output(call, i)) return true;
    return false;
}

// ---- the reference ------------------------------------------------------------------------------

// The same call in f32; its halves lie one behind the other from *at on, which is moved behind
// them.
static void widen_call(const rn_call *call, rn_tensor tensors[MOST_TENSORS], rn_call *out,
                       uint64_t *at) {
    uint32_t count = call->input_count + call->output_count;
    for (uint32_t i = 0; i < count; i++) {
        bool input = i < call->input_count;
        tensors[i] = input ? call->inputs[i] : call->outputs[i - call->input_count];
        if (!(input ? is_half_input(call, i) : is_half_output(call, i - call->input_count)))
            continue;
        bool unread = !tensors[i].data && call->workspace; // an optional output
        tensors[i].dtype = RN_DTYPE_F32;
        if (call->workspace && !unread) tensors[i].data = (uint8_t *)call->workspace + *at;
        *at += rn_round_up(rn_tensor_bytes(&tensors[i]), 64);
    }
    *out = *call;
    out->inputs = tensors;
    out->outputs = tensors + call->input_count;
}

uint64_t rn_reference_workspace(const rn_call *call) {
    const rn_op_info *op = rn_op_get(call->op);
    rn_tensor tensors[MOST_TENSORS];
    rn_call wide = *call;
    uint64_t bytes = 0;
    if (rn_call_has_halves(call)) {
        wide.workspace = NULL;
        rn_call bare = wide;
        widen_call(&bare, tensors, &wide, &bytes);
    }
    return bytes + (op->workspace ? op->workspace(&wide) : 0);
}

static rn_status convert(const rn_tensor *from, const rn_tensor *to) {
    return rn_dtype_convert(from->dtype, from->data, to->dtype, to->data, rn_tensor_elements(from));
}

static rn_status run_wide(const rn_call *call) {
    rn_tensor tensors[MOST_TENSORS];
    rn_call wide;
    uint64_t at = 0;
    widen_call(call, tensors, &wide, &at);
    wide.workspace = (uint8_t *)call->workspace + at;
    wide.workspace_bytes = call->workspace_bytes - at;
    for (uint32_t i = 0; i < call->input_count; i++)
        if (is_half_input(call, i)) RN_TRY(convert(&call->inputs[i], &wide.inputs[i]));
    RN_TRY(rn_op_get(call->op)->reference(&wide));
    for (uint32_t i = 0; i < call->output_count; i++)
        if (is_half_output(call, i) && call->outputs[i].data)
            RN_TRY(convert(&wide.outputs[i], &call->outputs[i]));
    return RN_OK;
}

rn_status rn_reference_run(const rn_call *call) {
    const rn_op_info *op = rn_op_get(call->op);
    if (!op->reference) return RN_OK; // a pure view: there is nothing to compute
    return rn_call_has_halves(call) ? run_wide(call) : op->reference(call);
}

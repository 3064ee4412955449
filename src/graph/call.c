// call.c — a node bound to shapes: what kernels, costs and the planner look at.
#include "graph/op.h"

#include "tensor/layout.h"

// ---- tensors ------------------------------------------------------------------------------------

uint64_t rn_tensor_elements(const rn_tensor *tensor) {
    return rn_shape_elements(tensor->shape, 1);
}

uint64_t rn_tensor_bytes(const rn_tensor *tensor) {
    if (!rn_tensor_given(tensor)) return 0;
    uint64_t bytes = 0, elements = rn_tensor_elements(tensor);
    uint64_t rows = tensor->shape.rank >= 2 ? tensor->shape.dims[0] : 1;
    if (elements == 0) return 0; // a run without rows
    if (!rn_layout_bytes(tensor->layout, tensor->dtype, rows, elements / rows, &bytes))
        return UINT64_MAX;
    return bytes;
}

// ---- calls --------------------------------------------------------------------------------------

static rn_tensor bind_value(const rn_graph *graph, rn_value value, uint64_t rows) {
    if (value == RN_NO_VALUE) return (rn_tensor){.dtype = RN_DTYPE_NONE};
    const rn_value_info *info = rn_graph_value(graph, value);
    rn_tensor tensor = {.dtype = info->dtype, .layout = RN_LAYOUT_PLAIN, .shape = info->shape};
    if (tensor.shape.rank && tensor.shape.dims[0] == RN_ROWS) tensor.shape.dims[0] = rows;
    return tensor;
}

void rn_graph_bind(const rn_graph *graph, uint32_t node, uint64_t rows, rn_tensor *tensors,
                   rn_call *out) {
    const rn_node *n = rn_graph_node(graph, node);
    for (uint32_t i = 0; i < n->input_count; i++)
        tensors[i] = bind_value(graph, n->inputs[i], rows);
    for (uint32_t i = 0; i < n->output_count; i++)
        tensors[n->input_count + i] = bind_value(graph, n->outputs[i], rows);
    *out = (rn_call){.op = n->op,
                     .attrs = n->attrs,
                     .inputs = tensors,
                     .outputs = tensors + n->input_count,
                     .input_count = n->input_count,
                     .output_count = n->output_count,
                     .threads = 1};
}

rn_alias rn_call_alias(const rn_call *call, uint32_t output, uint64_t *out_offset_bytes) {
    const rn_op_info *op = rn_op_get(call->op);
    *out_offset_bytes = 0;
    rn_alias alias =
        op->alias_of ? op->alias_of(call, output, out_offset_bytes) : op->alias[output];
    if (alias.kind == RN_ALIAS_KIND_MAY &&
        call->inputs[alias.input].dtype != call->outputs[output].dtype)
        return (rn_alias){RN_ALIAS_KIND_NONE, 0};
    return alias;
}

// ---- traits -------------------------------------------------------------------------------------

bool rn_call_product(const rn_call *call, uint32_t index, rn_product *out) {
    const rn_op_info *op = rn_op_get(call->op);
    return op->product && op->product(call, index, out);
}

bool rn_call_product_of(const rn_call *call, uint32_t input, rn_product *out) {
    for (uint32_t i = 0; rn_call_product(call, i, out); i++)
        if (out->weight == input) return true;
    return false;
}

_Static_assert(offsetof(rn_attend_attrs, attention) == 0, "attributes of attention come first");
const rn_attention_attrs *rn_call_attention(const rn_call *call) {
    return rn_op_is(call->op, RN_TRAIT_ATTENTION) ? call->attrs : NULL;
}

void rn_call_each(const rn_call *call, size_t count, rn_task fn, void *arg) {
    if (call->workers && count > 1) {
        rn_workers_run(call->workers, count, fn, arg);
        return;
    }
    for (size_t i = 0; i < count; i++)
        fn(arg, i);
}

// ---- costs --------------------------------------------------------------------------------------

void rn_cost_bytes(const rn_call *call, rn_cost *out) {
    for (uint32_t i = 0; i < call->input_count; i++)
        out->read_bytes += (double)rn_tensor_bytes(&call->inputs[i]);
    for (uint32_t i = 0; i < call->output_count; i++)
        out->write_bytes += (double)rn_tensor_bytes(&call->outputs[i]);
}

void rn_cost_elementwise(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += (double)rn_tensor_elements(&call->outputs[0]);
}

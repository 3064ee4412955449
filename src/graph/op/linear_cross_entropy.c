// linear_cross_entropy.c — cross_entropy of x wᵀ, whose logits are never held as a whole.
//
// Outputs: the loss; for the gradient d loss / d x and d loss / d w, made on the way, so that
// logits are computed once. An output that nobody reads is not computed. The meaning is that of
// matmul (with activations as they are), cross_entropy and their gradients, for the rows that
// count.
#include "graph/linear_loss.h"
#include "graph/op/rows.h"
#include "graph/plain_matrix.h"

#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    const rn_cross_entropy_attrs *attrs = s->attrs;
    rn_shape x = s->in[RN_LCE_X].shape, w = s->in[RN_LCE_W].shape;
    RN_TRY(rn_shape_want(s, RN_LCE_X, RN_DTYPE_F32));
    RN_TRY(rn_shape_want(s, RN_LCE_TARGETS, RN_DTYPE_I32));
    if (!rn_plain_readable(s->in[RN_LCE_W].dtype))
        return rn_shape_fail(s, "products with %s weights are not possible",
                             rn_dtype_get(s->in[RN_LCE_W].dtype)->name);
    if (x.rank != 2 || w.rank != 2 || x.dims[1] != w.dims[1])
        return rn_shape_fail(s, "x must be (N, D) and w (V, D)");
    if (x.dims[0] > INT32_MAX && x.dims[0] != RN_ROWS)
        return rn_shape_fail(s, "x has too many rows");
    if (!rn_shape_equal(s->in[RN_LCE_TARGETS].shape, RN_SHAPE(x.dims[0])))
        return rn_shape_fail(s, "the targets must be (N)");
    if (attrs->normalizer != RN_NO_SCALAR && attrs->normalizer >= rn_graph_scalar_count(s->graph))
        return rn_shape_fail(s, "the graph has no scalar %u", attrs->normalizer);
    s->out[RN_LCE_DX].shape = x;
    s->out[RN_LCE_DW].shape = w;
    return RN_OK;
}

// The logits and d x; that of w is not counted, for most heads are frozen.
static void cost(const rn_call *call, rn_cost *out) {
    const rn_tensor *x = &call->inputs[RN_LCE_X], *w = &call->inputs[RN_LCE_W];
    rn_cost_bytes(call, out);
    out->flops += 4.0 * (double)rn_tensor_elements(x) * (double)w->shape.dims[0];
}

static rn_status run_reference(const rn_call *part) {
    return rn_op_get(part->op)->reference(part);
}

static uint64_t reference_workspace(const rn_call *part) {
    const rn_op_info *op = rn_op_get(part->op);
    return op->workspace ? op->workspace(part) : 0;
}

static rn_status reference(const rn_call *call) {
    return rn_linear_loss_run(call, run_reference);
}

static uint64_t workspace(const rn_call *call) {
    return rn_linear_loss_workspace(call, reference_workspace);
}

// Of the loss itself it is 1: then nothing is left to do.
static bool is_one(const rn_graph *graph, rn_value value) {
    const rn_value_info *info = rn_graph_value(graph, value);
    return info->role == RN_ROLE_CONSTANT && info->dtype == RN_DTYPE_F32 &&
           *(const float *)info->constant == 1;
}

static rn_value times(rn_backward *b, rn_value gradient) {
    rn_value dloss = b->out_gradients[RN_LCE_LOSS];
    return is_one(b->graph, dloss) ? gradient : rn_op_mul(b->graph, gradient, dloss);
}

static rn_status gradient(rn_backward *b) {
    const rn_node *n = &b->node;
    if (b->wanted[RN_LCE_X]) b->in_gradients[RN_LCE_X] = times(b, n->outputs[RN_LCE_DX]);
    if (b->wanted[RN_LCE_W]) b->in_gradients[RN_LCE_W] = times(b, n->outputs[RN_LCE_DW]);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    rn_op_get(RN_OP_CROSS_ENTROPY)->print(attrs, out, bytes);
}

extern const rn_op_info rn_linear_cross_entropy_op;
const rn_op_info rn_linear_cross_entropy_op = {
    .name = "linear_cross_entropy",
    .min_inputs = RN_LCE_INPUTS,
    .max_inputs = RN_LCE_INPUTS,
    .output_count = RN_LCE_OUTPUTS,
    .optional_outputs = 1u << RN_LCE_DX | 1u << RN_LCE_DW,
    .half_inputs = 1u << RN_LCE_X,
    .half_outputs = 1u << RN_LCE_DX | 1u << RN_LCE_DW,
    .attrs_bytes = sizeof(rn_cross_entropy_attrs),
    .shape = shape,
    .cost = cost,
    .workspace = workspace,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_linear_cross_entropy(rn_graph *g, rn_value x, rn_value w, rn_value targets,
                                    rn_cross_entropy_attrs attrs) {
    return rn_graph_add(g, RN_OP_LINEAR_CROSS_ENTROPY, (rn_value[]){x, w, targets}, RN_LCE_INPUTS,
                        &attrs);
}

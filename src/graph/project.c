// project.c — rules of the ops that multiply the same rows with one weight or several.
#include "graph/project.h"

#include <stdio.h>

// ---- shapes -------------------------------------------------------------------------------------

static rn_matmul_attrs product_attrs(const rn_project_attrs *a) {
    return (rn_matmul_attrs){.unquantised_activations = a->unquantised_activations};
}

rn_status rn_project_shape_rows(const rn_shaping *s) {
    const rn_project_attrs *a = s->attrs;
    struct rn_typed normed;
    if (s->in[0].shape.rank != 2) return rn_shape_fail(s, "x must be (rows, K)");
    if (s->in[1].dtype == RN_DTYPE_NONE) return RN_OK;
    return rn_fused_shape(s, RN_OP_RMSNORM, &(rn_norm_attrs){a->eps}, s->in, 2, &normed);
}

rn_status rn_project_shape_product(const rn_shaping *s, uint32_t weight, struct rn_typed *out) {
    const struct rn_typed in[3] = {s->in[0], s->in[weight], s->in[weight + 1]};
    const rn_matmul_attrs attrs = product_attrs(s->attrs);
    if (in[1].shape.rank != 2) return rn_shape_fail(s, "input %u must be (N, K)", weight);
    return rn_fused_shape(s, RN_OP_MATMUL, &attrs, in, 3, out);
}

// ---- building -----------------------------------------------------------------------------------

rn_project_attrs rn_project_note_norm(const rn_graph *g, rn_value norm, rn_project_attrs attrs) {
    attrs.steady_norm = rn_fused_is(g, norm, RN_ROLE_WEIGHT);
    return attrs;
}

// ---- calls --------------------------------------------------------------------------------------

rn_tensor rn_project_begin(rn_fused *fused) {
    const rn_project_attrs *a = fused->whole->attrs;
    const rn_tensor *in = fused->whole->inputs, nobody_reads = {.dtype = RN_DTYPE_F32};
    fused->norm = (rn_norm_attrs){a->eps};
    fused->product = product_attrs(a);
    fused->gated = (rn_gated_attrs){a->activation};
    if (!rn_tensor_given(&in[1])) return in[0];
    rn_tensor normed = rn_fused_hand(fused, in[0].shape); // (rows, K)
    rn_fused_add(fused, RN_OP_RMSNORM, &fused->norm, in, 2, (rn_tensor[]){normed, nobody_reads}, 2);
    return normed;
}

void rn_project_multiply(rn_fused *fused, rn_tensor x, uint32_t weight, rn_tensor out) {
    const rn_tensor *in = fused->whole->inputs;
    rn_fused_add(fused, RN_OP_MATMUL, &fused->product, (rn_tensor[]){x, in[weight], in[weight + 1]},
                 3, &out, 1);
}

// Behind x and norm there are pairs of a weight and its bias; a residual has no partner.
bool rn_project_product(const rn_call *call, uint32_t index, rn_product *out) {
    const rn_project_attrs *a = call->attrs;
    const rn_tensor *in = call->inputs;
    uint32_t pairs = (call->input_count - 2) / 2, weight = 2 + 2 * index, last = 2 + 2 * pairs;
    if (index >= pairs) return false;
    bool has_residual = last < call->input_count && rn_tensor_given(&in[last]);
    *out = (rn_product){.x = 0,
                        .weight = weight,
                        .bias = rn_tensor_given(&in[weight + 1]) ? weight + 1 : RN_NO_INPUT,
                        .norm = rn_tensor_given(&in[1]) ? 1 : RN_NO_INPUT,
                        .residual = has_residual ? last : RN_NO_INPUT,
                        .unquantised_activations = a->unquantised_activations};
    return true;
}

void rn_project_cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    rn_fused_flops(call, out);
}

void rn_project_print(const void *attrs, char *out, size_t bytes) {
    const rn_project_attrs *a = attrs;
    snprintf(out, bytes, "eps %g%s", (double)a->eps,
             a->unquantised_activations ? ", x as it is" : "");
}

// attend.c — rope of queries and keys, keys and values into their pages, attention to the pages.
//
// Outputs: the updated state, which is input 3, and the result.
#include "graph/attention_row.h"
#include "graph/fused.h"

#include <stdio.h>

enum { Q, K, V, KV, SEQUENCE, POSITION, PAGE_TABLE, INPUTS };

static rn_status shape(rn_shaping *s) {
    const rn_attend_attrs *a = s->attrs;
    const struct rn_typed *in = s->in;
    const struct rn_typed q[] = {in[Q], in[POSITION]}, k[] = {in[K], in[POSITION]};
    const struct rn_typed append[] = {in[KV],       in[K],        in[V],
                                      in[SEQUENCE], in[POSITION], in[PAGE_TABLE]};
    struct rn_typed turned;
    RN_TRY(rn_fused_shape(s, RN_OP_ROPE, &a->rope, q, 2, &turned));
    RN_TRY(rn_fused_shape(s, RN_OP_ROPE, &a->rope, k, 2, &turned));
    RN_TRY(rn_fused_shape(s, RN_OP_KV_APPEND, NULL, append, 6, &s->out[0]));
    const struct rn_typed look[] = {in[Q], in[KV], in[SEQUENCE], in[POSITION], in[PAGE_TABLE]};
    return rn_fused_shape(s, RN_OP_PAGED_ATTENTION, &a->attention, look, 5, &s->out[1]);
}

static void unfold(const rn_call *call, rn_fused *out) {
    const rn_attend_attrs *a = call->attrs;
    const rn_tensor *in = call->inputs;
    rn_tensor q = rn_fused_hand(out, in[Q].shape), k = rn_fused_hand(out, in[K].shape);
    rn_tensor kv = call->outputs[0]; // the same memory as input KV
    rn_fused_add(out, RN_OP_ROPE, &a->rope, (rn_tensor[]){in[Q], in[POSITION]}, 2, &q, 1);
    rn_fused_add(out, RN_OP_ROPE, &a->rope, (rn_tensor[]){in[K], in[POSITION]}, 2, &k, 1);
    rn_fused_add(out, RN_OP_KV_APPEND, NULL,
                 (rn_tensor[]){in[KV], k, in[V], in[SEQUENCE], in[POSITION], in[PAGE_TABLE]}, 6,
                 &kv, 1);
    rn_fused_add(out, RN_OP_PAGED_ATTENTION, &a->attention,
                 (rn_tensor[]){q, kv, in[SEQUENCE], in[POSITION], in[PAGE_TABLE]}, 5,
                 &call->outputs[1], 1);
}

// The pages are read, as if every sequence were full; of them only the new rows are written.
static void cost(const rn_call *call, rn_cost *out) {
    const rn_dtype_info *info = rn_dtype_get(call->inputs[KV].dtype);
    double written = 2.0 * (double)rn_tensor_elements(&call->inputs[K]);
    rn_cost_bytes(call, out);
    out->write_bytes -= (double)rn_tensor_bytes(&call->outputs[0]);
    out->write_bytes += written / info->block_elements * info->block_bytes;
    rn_fused_flops(call, out);
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_attend_attrs *a = attrs;
    char rope[64];
    rn_op_get(RN_OP_ROPE)->print(&a->rope, rope, sizeof rope);
    int at = snprintf(out, bytes, "%s; ", rope);
    if (at > 0 && (size_t)at < bytes)
        rn_attention_print(&a->attention, out + at, bytes - (size_t)at);
}

extern const rn_op_info rn_attend_op;
const rn_op_info rn_attend_op = {
    .name = "attend",
    .min_inputs = INPUTS,
    .max_inputs = INPUTS,
    .output_count = 2,
    .attrs_bytes = sizeof(rn_attend_attrs),
    .traits = RN_TRAIT_ATTENTION | RN_TRAIT_APPEND,
    .pages = {.state = KV, .sequence = SEQUENCE, .position = POSITION, .page_table = PAGE_TABLE},
    .alias = {RN_ALIAS_MUST(KV)},
    .shape = shape,
    .cost = cost,
    .workspace = rn_fused_reference_workspace,
    .reference = rn_fused_reference,
    .unfold = unfold,
    .print = print,
};

static bool is_brought(const rn_graph *g, rn_value value) {
    return rn_fused_is(g, value, RN_ROLE_INPUT) || rn_fused_is(g, value, RN_ROLE_CONSTANT);
}

rn_value rn_op_attend(rn_graph *g, rn_value q, rn_value k, rn_value v, rn_value kv,
                      rn_value sequence, rn_value position, rn_value page_table,
                      rn_attend_attrs attrs) {
    attrs.steady_places = rn_fused_is(g, kv, RN_ROLE_STATE) && is_brought(g, sequence) &&
                          is_brought(g, position) && is_brought(g, page_table);
    return rn_graph_add(g, RN_OP_ATTEND, (rn_value[]){q, k, v, kv, sequence, position, page_table},
                        INPUTS, &attrs);
}

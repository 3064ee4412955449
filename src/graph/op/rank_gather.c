// rank_gather.c — a weight becomes whole again: each rank has updated its row of the elements, and
// gets those of all others.
#include "graph/op/rank_sum.h"

#include <stdio.h>

enum { WEIGHT, UPDATED, AFTER }; // inputs

static rn_status shape(rn_shaping *s) {
    const rn_rank_gather_attrs *a = s->attrs;
    if (a->rank >= a->ranks)
        return rn_shape_fail(s, "there is no rank %u of %u", a->rank, a->ranks);
    if (s->in[WEIGHT].dtype != RN_DTYPE_BF16) RN_TRY(rn_shape_want(s, WEIGHT, RN_DTYPE_F32));
    s->out[0].shape = s->in[WEIGHT].shape;
    s->out[0].dtype = s->in[WEIGHT].dtype;
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    double bytes = (double)rn_tensor_bytes(&call->inputs[WEIGHT]);
    out->read_bytes += bytes;
    out->write_bytes += bytes;
}

static rn_status reference(const rn_call *call) {
    const rn_rank_gather_attrs *a = call->attrs;
    const rn_tensor *weight = &call->outputs[0];
    if (weight->data != call->inputs[WEIGHT].data)
        return rn_fail(RN_INTERNAL, "a weight is gathered where it lies");
    if (a->ranks == 1) return RN_OK;
    if (!call->ranks || call->ranks->ranks != a->ranks || call->ranks->rank != a->rank)
        return rn_hint(rn_fail(RN_INVALID,
                               "a weight of %u ranks, of which this is rank %u, has no "
                               "communicator of that many",
                               a->ranks, a->rank),
                       "give the session one: rn_session_options.comm");
    uint64_t count = rn_tensor_elements(weight);
    return call->ranks->gather(call->ranks->self, weight->data, count, rn_rank_row(count, a->ranks),
                               rn_dtype_get(weight->dtype)->block_bytes);
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_rank_gather_attrs *a = attrs;
    snprintf(out, bytes, "rank %u of %u", a->rank, a->ranks);
}

extern const rn_op_info rn_rank_gather_op;
const rn_op_info rn_rank_gather_op = {
    .name = "rank_gather",
    .min_inputs = 3,
    .max_inputs = 3,
    .optional_inputs = 1u << AFTER,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_rank_gather_attrs),
    .traits = RN_TRAIT_COLLECTIVE,
    .alias = {RN_ALIAS_MUST(WEIGHT)},
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_rank_gather(rn_graph *g, rn_value weight, rn_value updated, rn_value after,
                           rn_rank_gather_attrs attrs) {
    return rn_graph_add(g, RN_OP_RANK_GATHER, (rn_value[]){weight, updated, after}, 3, &attrs);
}

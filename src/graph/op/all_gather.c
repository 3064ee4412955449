// all_gather.c — the parts of axis 1 that several ranks have, one behind the other, on all of them.
//
//     rank 0  (rows, n) ─┬─▶ (rows, ranks * n) on every rank
//     rank 1  (rows, n) ─┘
//
// Without a communicator (call->ranks NULL) it is as if all ranks had this one's part: what plans,
// tests and back ends mean by it where there is one process.
#include "graph/op/move.h"

#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    const rn_all_gather_attrs *attrs = s->attrs;
    rn_shape x = s->in[0].shape;
    RN_TRY(rn_shape_want_plain(s, 0));
    if (x.rank < 2) return rn_shape_fail(s, "there is no axis 1");
    if (attrs->ranks == 0 || x.dims[1] > UINT64_MAX / 2 / attrs->ranks)
        return rn_shape_fail(s, "the parts of %u ranks", attrs->ranks);
    s->out[0].dtype = s->in[0].dtype;
    s->out[0].shape = x;
    s->out[0].shape.dims[1] *= attrs->ranks;
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const rn_all_gather_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0];
    rn_runs part = rn_runs_of(x->shape, 1);
    uint64_t bytes = part.elements * rn_element_bytes(x);
    for (uint64_t row = 0; row < part.count; row++)
        for (uint32_t rank = 0; rank < attrs->ranks; rank++)
            memcpy((char *)call->outputs[0].data + (row * attrs->ranks + rank) * bytes,
                   (const char *)x->data + row * bytes, bytes);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    snprintf(out, bytes, "%u ranks", ((const rn_all_gather_attrs *)attrs)->ranks);
}

extern const rn_op_info rn_all_gather_op;
const rn_op_info rn_all_gather_op = {
    .name = "all_gather",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_all_gather_attrs),
    .traits = RN_TRAIT_COLLECTIVE | RN_TRAIT_MOVE,
    .shape = shape,
    .cost = rn_move_cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_all_gather(rn_graph *g, rn_value x, uint32_t ranks) {
    return rn_graph_add(g, RN_OP_ALL_GATHER, &x, 1, &(rn_all_gather_attrs){ranks});
}

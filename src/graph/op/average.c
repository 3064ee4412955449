// average.c — state = keep * state + (1 - keep) * x, in place: a mean that forgets. Where the guard
// (input 2, optional) is not finite, the state stays.
#include "graph/op/update.h"

#include <stdio.h>

enum { GUARD = 2 };

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_F32));
    return rn_shape_update(s, GUARD);
}

static rn_status reference(const rn_call *call) {
    const rn_average_attrs *a = call->attrs;
    const float *state = call->inputs[0].data, *x = call->inputs[1].data;
    float *out = call->outputs[0].data, take = 1 - a->keep;
    uint64_t n = rn_tensor_elements(&call->outputs[0]);
    rn_update_keep(call, (uint32_t[]){0});
    if (rn_update_skips(call, GUARD)) return RN_OK;
    for (uint64_t i = 0; i < n; i++)
        out[i] = state[i] * a->keep + take * x[i];
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    snprintf(out, bytes, "keep %g", (double)((const rn_average_attrs *)attrs)->keep);
}

extern const rn_op_info rn_average_op;
const rn_op_info rn_average_op = {
    .name = "average",
    .min_inputs = 2,
    .max_inputs = 3,
    .optional_inputs = 1u << GUARD,
    .output_count = 1,
    .half_inputs = 2,
    .attrs_bytes = sizeof(rn_average_attrs),
    .traits = RN_TRAIT_UPDATE,
    .alias = {RN_ALIAS_MUST(0)},
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
    .print = print,
};

rn_value rn_op_average(rn_graph *g, rn_value state, rn_value x, rn_value guard,
                       rn_average_attrs attrs) {
    return rn_graph_add(g, RN_OP_AVERAGE, (rn_value[]){state, x, guard},
                        guard == RN_NO_VALUE ? 2 : 3, &attrs);
}

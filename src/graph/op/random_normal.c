// random_normal.c — element i is mean + deviation * z_i, z_i by Box-Muller (graph/philox.h).
#include "graph/op/random.h"

static rn_status shape(rn_shaping *s) {
    const rn_random_shape_attrs *a = s->attrs;
    if (!(a->random.high >= 0))
        return rn_shape_fail(s, "the deviation must not be negative, it is %g", a->random.high);
    s->out[0].shape = a->shape;
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const rn_random_attrs *a = &((const rn_random_shape_attrs *)call->attrs)->random;
    float *y = call->outputs[0].data;
    uint64_t n = rn_tensor_elements(&call->outputs[0]), seed = 0;
    RN_TRY(rn_random_seed(call, a->seed, &seed));
    for (uint64_t i = 0; i < n; i++)
        y[i] = a->low + a->high * rn_philox_normal(seed, a->stream, i);
    return RN_OK;
}

extern const rn_op_info rn_random_normal_op;
const rn_op_info rn_random_normal_op = {
    .name = "random_normal",
    .output_count = 1,
    .attrs_bytes = sizeof(rn_random_shape_attrs),
    .traits = RN_TRAIT_RANDOM,
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
    .print = rn_random_print,
};

rn_value rn_op_random_normal(rn_graph *g, rn_shape of, rn_random_attrs attrs) {
    return rn_graph_add(g, RN_OP_RANDOM_NORMAL, NULL, 0, &(rn_random_shape_attrs){attrs, of});
}

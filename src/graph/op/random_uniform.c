// random_uniform.c — element i is low + (high - low) * u_i, u_i of 24 random bits (graph/philox.h).
#include "graph/op/random.h"

#include <math.h>

static rn_status shape(rn_shaping *s) {
    const rn_random_shape_attrs *a = s->attrs;
    if (!(a->random.low < a->random.high))
        return rn_shape_fail(s, "low must be below high, they are %g and %g", a->random.low,
                             a->random.high);
    s->out[0].shape = a->shape;
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const rn_random_attrs *a = &((const rn_random_shape_attrs *)call->attrs)->random;
    float *y = call->outputs[0].data;
    uint64_t n = rn_tensor_elements(&call->outputs[0]), seed = 0;
    RN_TRY(rn_random_seed(call, a->seed, &seed));
    for (uint64_t i = 0; i < n; i++) {
        float unit = rn_philox_unit(rn_philox_word(seed, a->stream, i));
        y[i] = a->low + (a->high - a->low) * unit;
        if (y[i] >= a->high) y[i] = nextafterf(a->high, a->low); // the sum was rounded up
    }
    return RN_OK;
}

extern const rn_op_info rn_random_uniform_op;
const rn_op_info rn_random_uniform_op = {
    .name = "random_uniform",
    .output_count = 1,
    .attrs_bytes = sizeof(rn_random_shape_attrs),
    .traits = RN_TRAIT_RANDOM,
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
    .print = rn_random_print,
};

rn_value rn_op_random_uniform(rn_graph *g, rn_shape of, rn_random_attrs attrs) {
    return rn_graph_add(g, RN_OP_RANDOM_UNIFORM, NULL, 0, &(rn_random_shape_attrs){attrs, of});
}

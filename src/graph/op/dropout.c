// dropout.c — element i becomes 0 where its u_i (graph/philox.h) is below p, else x / (1 - p). The
// gradient is the same op over dy: the same places fall out.
#include "graph/op/random.h"

static rn_status shape(rn_shaping *s) {
    const rn_dropout_attrs *a = s->attrs;
    if (!(a->probability >= 0 && a->probability <= 1))
        return rn_shape_fail(s, "the probability %g is not within 0 .. 1", a->probability);
    return rn_shape_like_first(s);
}

static rn_status gradient(rn_backward *b) {
    b->in_gradients[0] =
        rn_op_dropout(b->graph, b->out_gradients[0], *(const rn_dropout_attrs *)b->node.attrs);
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const rn_dropout_attrs *a = call->attrs;
    const float *x = call->inputs[0].data;
    float *y = call->outputs[0].data, kept = 1 - a->probability;
    uint64_t n = rn_tensor_elements(&call->outputs[0]), seed = 0;
    RN_TRY(rn_random_seed(call, a->seed, &seed));
    for (uint64_t i = 0; i < n; i++) {
        float unit = rn_philox_unit(rn_philox_word(seed, a->stream, i));
        y[i] = unit < a->probability ? 0 : x[i] / kept;
    }
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_dropout_attrs *a = attrs;
    snprintf(out, bytes, "p %g, stream %u", a->probability, a->stream);
}

extern const rn_op_info rn_dropout_op;
const rn_op_info rn_dropout_op = {
    .name = "dropout",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .half_inputs = 1,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_dropout_attrs),
    .traits = RN_TRAIT_ELEMENTWISE | RN_TRAIT_RANDOM,
    .alias = {RN_ALIAS_MAY(0)},
    .shape = shape,
    .cost = rn_cost_elementwise,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_dropout(rn_graph *g, rn_value x, rn_dropout_attrs attrs) {
    return rn_graph_add(g, RN_OP_DROPOUT, &x, 1, &attrs);
}

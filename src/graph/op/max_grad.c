// max_grad.c — x, dy -> dx: dy at the first of the largest elements of each group, 0 elsewhere.
#include "graph/op/grads.h"
#include "graph/op/reduce.h"

// dy has the shape that max made of x.
static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_reduce_shape(s));
    if (!rn_shape_equal(s->out[0].shape, s->in[1].shape))
        return rn_shape_fail(s, "dy must be %s", rn_shape_format(s->out[0].shape).text);
    s->out[0].shape = s->in[0].shape;
    return RN_OK;
}

// Where the first of the largest elements is.
static uint64_t find_largest(const float *x, rn_walk group) {
    uint64_t best = group.at[0];
    do
        for (uint64_t i = 0; i < group.count; i++) {
            uint64_t at = group.at[0] + i * group.step[0];
            if (rn_is_larger(x[at], x[best])) best = at;
        }
    while (rn_walk_next(&group));
    return best;
}

static void clear(float *dx, rn_walk group) {
    do
        for (uint64_t i = 0; i < group.count; i++)
            dx[group.at[0] + i * group.step[0]] = 0.0f;
    while (rn_walk_next(&group));
}

// dx may lie in x: a group is read before it is written, and groups do not meet.
static rn_status reference(const rn_call *call) {
    const rn_reduce_attrs *attrs = call->attrs;
    const float *x = call->inputs[0].data, *dy = call->inputs[1].data;
    float *dx = call->outputs[0].data;
    rn_shape shape = call->inputs[0].shape;
    rn_strides strides = rn_strides_of(shape);
    rn_walk group = rn_walk_begin(rn_reduce_axes(shape, attrs->axes), strides, strides);
    rn_walk kept = rn_walk_begin(rn_reduce_axes(shape, ~attrs->axes), strides, strides);
    if (group.count == 0) return RN_OK;
    do
        for (uint64_t i = 0; i < kept.count; i++) {
            uint64_t begin = kept.at[0] + i * kept.step[0];
            uint64_t largest = find_largest(x + begin, group);
            clear(dx + begin, group);
            dx[begin + largest] = *dy++;
        }
    while (rn_walk_next(&kept));
    return RN_OK;
}

extern const rn_op_info rn_max_grad_op;
const rn_op_info rn_max_grad_op = {
    .name = "max_grad",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_reduce_attrs),
    .traits = RN_TRAIT_EXACT,
    .alias = {RN_ALIAS_MAY(0)},
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
    .print = rn_reduce_print,
};

rn_value rn_op_max_grad(rn_graph *g, rn_value x, rn_value dy, const rn_reduce_attrs *attrs) {
    return rn_graph_add(g, RN_OP_MAX_GRAD, (rn_value[]){x, dy}, 2, attrs);
}

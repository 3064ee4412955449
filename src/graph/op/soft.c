// soft.c — softmax, its logarithm and hardmax along any axis of floats.
//
// The largest element is taken away first, so that nothing overflows; sums are in double. f32 along
// the last axis has an op of its own: rn_op_soft makes that.
#include "graph/op/number.h"

#include <math.h>
#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    const rn_soft_attrs *attrs = s->attrs;
    RN_TRY(rn_shape_want_float(s, 0));
    RN_TRY(rn_shape_want_axis(s, 0, attrs->axis));
    if ((unsigned)attrs->function > RN_SOFT_HARD_MAX)
        return rn_shape_fail(s, "there is no function %d", (int)attrs->function);
    s->out[0].dtype = s->in[0].dtype;
    s->out[0].shape = s->in[0].shape;
    return RN_OK;
}

// `length` elements from `at` on, `step` apart.
static void soften(const rn_call *call, uint64_t at, uint64_t length, uint64_t step) {
    const rn_soft_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    double largest = -INFINITY, sum = 0;
    uint64_t where = 0;
    for (uint64_t i = 0; i < length; i++) {
        double value = rn_real_at(x, at + i * step);
        if (value > largest) largest = value, where = i;
    }
    for (uint64_t i = 0; i < length && attrs->function != RN_SOFT_HARD_MAX; i++)
        sum += exp(rn_real_at(x, at + i * step) - largest);
    for (uint64_t i = 0; i < length; i++) {
        double below = rn_real_at(x, at + i * step) - largest;
        rn_real_put(y, at + i * step,
                    attrs->function == RN_SOFT_MAX       ? exp(below) / sum
                    : attrs->function == RN_SOFT_LOG_MAX ? below - log(sum)
                                                         : i == where);
    }
}

static rn_status reference(const rn_call *call) {
    const rn_soft_attrs *attrs = call->attrs;
    rn_axis_cut cut = rn_axis_cut_of(call->inputs[0].shape, attrs->axis);
    for (uint64_t o = 0; o < cut.outer; o++)
        for (uint64_t i = 0; i < cut.inner; i++)
            soften(call, o * cut.length * cut.inner + i, cut.length, cut.inner);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    static const char *const names[] = {"softmax", "log_softmax", "hardmax"};
    const rn_soft_attrs *a = attrs;
    snprintf(out, bytes, "%s, axis %u", names[a->function], a->axis);
}

extern const rn_op_info rn_soft_op;
const rn_op_info rn_soft_op = {
    .name = "soft",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_soft_attrs),
    .traits = RN_TRAIT_EXACT,
    .alias = {RN_ALIAS_MAY(0)},
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
    .print = print,
};

rn_value rn_op_soft(rn_graph *g, rn_soft_function function, rn_value x, uint32_t axis) {
    bool f32 = function == RN_SOFT_MAX && rn_graph_dtype(g, x) == RN_DTYPE_F32;
    if (f32 && axis + 1 == rn_graph_value(g, x)->shape.rank) return rn_op_softmax(g, x);
    return rn_graph_add(g, RN_OP_SOFT, &x, 1, &(rn_soft_attrs){function, axis});
}

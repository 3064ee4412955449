// cumulate.c — running sums or products along an axis; floats in double, each rounded once.
#include "graph/op/number.h"

#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    const rn_cumulate_attrs *attrs = s->attrs;
    RN_TRY(rn_shape_want_number(s, 0));
    RN_TRY(rn_shape_want_axis(s, 0, attrs->axis));
    s->out[0].dtype = s->in[0].dtype;
    s->out[0].shape = s->in[0].shape;
    return RN_OK;
}

// `length` elements, `step` apart, from `at` on (from its end: reverse).
static void run(const rn_call *call, uint64_t at, uint64_t length, uint64_t step) {
    const rn_cumulate_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    bool real = rn_number_is_float(rn_number_of(x->dtype));
    double sum = attrs->product ? 1 : 0;
    uint64_t whole = attrs->product ? 1 : 0;
    for (uint64_t i = 0; i < length; i++) {
        uint64_t place = at + (attrs->reverse ? length - 1 - i : i) * step;
        double before = sum, value = real ? rn_real_at(x, place) : 0;
        uint64_t whole_before = whole, element = real ? 0 : (uint64_t)rn_integer_at(x, place);
        sum = attrs->product ? sum * value : sum + value;
        whole = attrs->product ? whole * element : whole + element;
        if (real)
            rn_real_put(y, place, attrs->exclusive ? before : sum);
        else
            rn_numbers_store(y, place, 1,
                             &(rn_numbers){.u64 = {attrs->exclusive ? whole_before : whole}});
    }
}

static rn_status reference(const rn_call *call) {
    const rn_cumulate_attrs *attrs = call->attrs;
    rn_axis_cut cut = rn_axis_cut_of(call->inputs[0].shape, attrs->axis);
    for (uint64_t o = 0; o < cut.outer; o++)
        for (uint64_t i = 0; i < cut.inner; i++)
            run(call, o * cut.length * cut.inner + i, cut.length, cut.inner);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_cumulate_attrs *a = attrs;
    snprintf(out, bytes, "%s, axis %u%s%s", a->product ? "products" : "sums", a->axis,
             a->exclusive ? ", exclusive" : "", a->reverse ? ", from the end" : "");
}

extern const rn_op_info rn_cumulate_op;
const rn_op_info rn_cumulate_op = {
    .name = "cumulate",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_cumulate_attrs),
    .traits = RN_TRAIT_EXACT,
    .alias = {RN_ALIAS_MAY(0)},
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
    .print = print,
};

rn_value rn_op_cumulate(rn_graph *g, rn_value x, rn_cumulate_attrs attrs) {
    return rn_graph_add(g, RN_OP_CUMULATE, &x, 1, &attrs);
}

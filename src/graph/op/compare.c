// compare.c — how two elements of one dtype lie to each other, as a bool; stretched by NumPy's
// rule.
#include "graph/op/number.h"

#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    const rn_compare_attrs *attrs = s->attrs;
    RN_TRY(rn_shape_want_number(s, 0));
    RN_TRY(rn_shape_want(s, 1, s->in[0].dtype));
    if ((unsigned)attrs->function >= RN_COMPARE_COUNT)
        return rn_shape_fail(s, "there is no comparison %d", (int)attrs->function);
    if (!rn_shape_join(s->in[0].shape, s->in[1].shape, &s->out[0].shape))
        return rn_shape_fail(s, "the shapes do not broadcast");
    s->out[0].dtype = RN_DTYPE_BOOL;
    return RN_OK;
}

// NaN is unequal to everything, itself included, and neither less nor greater.
#define COMPARE(field)                                                                             \
    for (uint64_t i = 0; i < n; i++) {                                                             \
        bool less =                                                                                \
            a->field[i]<b->field[i], equal = a->field[i] == b->field[i], greater = a->field[i]> b  \
                ->field[i];                                                                        \
        out->i64[i] = function == RN_COMPARE_EQUAL        ? equal                                  \
                      : function == RN_COMPARE_NOT_EQUAL  ? !equal                                 \
                      : function == RN_COMPARE_LESS       ? less                                   \
                      : function == RN_COMPARE_LESS_EQUAL ? less || equal                          \
                      : function == RN_COMPARE_GREATER    ? greater                                \
                                                          : greater || equal;                         \
    }

static void apply(const rn_call *call, const rn_numbers *a, const rn_numbers *b, uint64_t n,
                  rn_numbers *out) {
    rn_compare_function function = ((const rn_compare_attrs *)call->attrs)->function;
    switch (rn_number_of(call->inputs[0].dtype)) {
    case RN_NUMBER_F32:
        COMPARE(f32)
        break;
    case RN_NUMBER_F64:
        COMPARE(f64)
        break;
    case RN_NUMBER_I64:
        COMPARE(i64)
        break;
    default:
        COMPARE(u64)
        break;
    }
}

static rn_status reference(const rn_call *call) {
    const rn_tensor *a = &call->inputs[0], *b = &call->inputs[1], *y = &call->outputs[0];
    rn_walk w = rn_walk_begin(y->shape, rn_strides_stretched(a->shape, y->shape),
                              rn_strides_stretched(b->shape, y->shape));
    uint64_t at = 0;
    do {
        for (uint64_t i = 0; i < w.count; i += RN_NUMBERS) {
            rn_numbers p, q, truth;
            uint64_t n = w.count - i < RN_NUMBERS ? w.count - i : RN_NUMBERS;
            rn_numbers_load(a, w.at[0] + i * w.step[0], w.step[0], n, &p);
            rn_numbers_load(b, w.at[1] + i * w.step[1], w.step[1], n, &q);
            apply(call, &p, &q, n, &truth);
            rn_numbers_store(y, at, n, &truth);
            at += n;
        }
    } while (rn_walk_next(&w));
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    static const char *const names[RN_COMPARE_COUNT] = {"==", "!=", "<", "<=", ">", ">="};
    snprintf(out, bytes, "%s", names[((const rn_compare_attrs *)attrs)->function]);
}

extern const rn_op_info rn_compare_op;
const rn_op_info rn_compare_op = {
    .name = "compare",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_compare_attrs),
    .traits = RN_TRAIT_ELEMENTWISE,
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
    .print = print,
};

rn_value rn_op_compare(rn_graph *g, rn_compare_function function, rn_value a, rn_value b) {
    return rn_graph_add(g, RN_OP_COMPARE, (rn_value[]){a, b}, 2, &(rn_compare_attrs){function});
}

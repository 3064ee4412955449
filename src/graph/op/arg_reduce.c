// arg_reduce.c — where the largest or smallest element along an axis lies, of any plain dtype.
#include "graph/op/number.h"
#include "graph/op/reduce.h"

#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    const rn_arg_reduce_attrs *attrs = s->attrs;
    rn_shape x = s->in[0].shape, *out = &s->out[0].shape;
    RN_TRY(rn_shape_want_number(s, 0));
    RN_TRY(rn_shape_want_axis(s, 0, attrs->axis));
    for (uint32_t i = 0; i < x.rank; i++)
        if (i != attrs->axis || attrs->keep)
            out->dims[out->rank++] = i == attrs->axis ? 1 : x.dims[i];
    s->out[0].dtype = RN_DTYPE_I64;
    return RN_OK;
}

// Whether element i of v is to be taken instead of `best`, which came before it.
#define BEATS(field)                                                                               \
    ((attrs->smallest ? v->field[i] < best->field[0] : v->field[i] > best->field[0]) ||            \
     (attrs->last && v->field[i] == best->field[0]) ||                                             \
     (v->field[i] != v->field[i] && best->field[0] == best->field[0]))

static bool beats(const rn_arg_reduce_attrs *attrs, rn_number number, const rn_numbers *v,
                  uint64_t i, const rn_numbers *best) {
    switch (number) {
    case RN_NUMBER_F32:
        return BEATS(f32);
    case RN_NUMBER_F64:
        return BEATS(f64);
    case RN_NUMBER_I64:
        return BEATS(i64);
    default:
        return BEATS(u64);
    }
}

static int64_t find(const rn_call *call, uint64_t at, uint64_t length, uint64_t step) {
    const rn_arg_reduce_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0];
    rn_number number = rn_number_of(x->dtype);
    rn_numbers v, best;
    uint64_t found = 0;
    rn_numbers_load(x, at, 1, 1, &best);
    for (uint64_t from = 0; from < length; from += RN_NUMBERS) {
        uint64_t n = length - from < RN_NUMBERS ? length - from : RN_NUMBERS;
        rn_numbers_load(x, at + from * step, step, n, &v);
        for (uint64_t i = from ? 0 : 1; i < n; i++) {
            if (!beats(attrs, number, &v, i, &best)) continue;
            found = from + i;
            rn_numbers_load(x, at + found * step, 1, 1, &best);
        }
    }
    return (int64_t)found;
}

static rn_status reference(const rn_call *call) {
    const rn_arg_reduce_attrs *attrs = call->attrs;
    rn_axis_cut cut = rn_axis_cut_of(call->inputs[0].shape, attrs->axis);
    int64_t *y = call->outputs[0].data; // (outer, inner)
    for (uint64_t o = 0; o < cut.outer; o++)
        for (uint64_t i = 0; i < cut.inner; i++)
            *y++ = find(call, o * cut.length * cut.inner + i, cut.length, cut.inner);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_arg_reduce_attrs *a = attrs;
    snprintf(out, bytes, "%s, axis %u%s%s", a->smallest ? "min" : "max", a->axis,
             a->keep ? ", kept" : "", a->last ? ", the last" : "");
}

extern const rn_op_info rn_arg_reduce_op;
const rn_op_info rn_arg_reduce_op = {
    .name = "arg_reduce",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_arg_reduce_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = rn_reduce_cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_arg_reduce(rn_graph *g, rn_value x, rn_arg_reduce_attrs attrs) {
    return rn_graph_add(g, RN_OP_ARG_REDUCE, &x, 1, &attrs);
}

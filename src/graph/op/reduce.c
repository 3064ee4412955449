// reduce.c — shapes, costs and gradients of the reductions, and the op that has all their functions
// for any plain dtype. f32 has ops of its own for sum, mean and max: rn_op_reduce makes those.
#include "graph/op/reduce.h"
#include "graph/op/number.h"
#include "graph/op/print.h"

#include <math.h>

rn_shape rn_reduce_axes(rn_shape x, uint32_t axes) {
    for (uint32_t i = 0; i < x.rank; i++)
        if (!(axes >> i & 1)) x.dims[i] = 1;
    return x;
}

static rn_status fold_axes(rn_shaping *s, rn_reduce_attrs over) {
    rn_shape x = s->in[0].shape, *out = &s->out[0].shape;
    if (over.axes >> x.rank)
        return rn_shape_fail(s, "axes 0x%x are more than the %u of the input", over.axes, x.rank);
    for (uint32_t i = 0; i < x.rank; i++) {
        bool reduced = over.axes >> i & 1;
        if (!reduced || over.keep) out->dims[out->rank++] = reduced ? 1 : x.dims[i];
    }
    return RN_OK;
}

rn_status rn_reduce_shape(rn_shaping *s) {
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_F32));
    return fold_axes(s, *(const rn_reduce_attrs *)s->attrs);
}

void rn_reduce_cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += (double)rn_tensor_elements(&call->inputs[0]);
}

void rn_reduce_print(const void *attrs, char *out, size_t bytes) {
    const rn_reduce_attrs *a = attrs;
    snprintf(out, bytes, "axes");
    for (uint32_t i = 0; i < RN_MAX_RANK; i++)
        if (a->axes >> i & 1) rn_print_more(out, bytes, " %u", i);
    if (a->keep) rn_print_more(out, bytes, ", kept");
}

rn_value rn_reduce_spread(rn_backward *b) {
    const rn_reduce_attrs *attrs = b->node.attrs;
    rn_shape x = rn_graph_value(b->graph, b->node.inputs[0])->shape;
    rn_value dy = b->out_gradients[0];
    if (!attrs->keep) dy = rn_op_reshape(b->graph, dy, rn_reduce_axes(x, ~attrs->axes));
    return rn_op_broadcast(b->graph, dy, x);
}

// ---- any function of any dtype ------------------------------------------------------------------

static const char *const names[RN_REDUCE_COUNT] = {
    [RN_REDUCE_SUM] = "sum",
    [RN_REDUCE_MEAN] = "mean",
    [RN_REDUCE_MAX] = "max",
    [RN_REDUCE_MIN] = "min",
    [RN_REDUCE_PROD] = "prod",
    [RN_REDUCE_L1] = "l1",
    [RN_REDUCE_L2] = "l2",
    [RN_REDUCE_LOG_SUM] = "log_sum",
    [RN_REDUCE_LOG_SUM_EXP] = "log_sum_exp",
    [RN_REDUCE_SUM_SQUARE] = "sum_square",
};

static rn_status shape(rn_shaping *s) {
    const rn_reduce_as_attrs *attrs = s->attrs;
    RN_TRY(rn_shape_want_number(s, 0));
    if ((unsigned)attrs->function >= RN_REDUCE_COUNT)
        return rn_shape_fail(s, "there is no function %d", (int)attrs->function);
    RN_TRY(fold_axes(s, attrs->over));
    s->out[0].dtype = s->in[0].dtype;
    return RN_OK;
}

// What is folded so far. Floats are summed in double and rounded once.
typedef struct folded {
    double real, largest; // `largest`: of LOG_SUM_EXP, whose sum is e^(x - largest)
    int64_t whole;
    uint64_t count;
} folded;

static void fold_real(rn_reduce_function function, double x, folded *f) {
    switch (function) {
    case RN_REDUCE_MAX:
        if (f->count == 0 || x > f->real || isnan(x)) f->real = x;
        break;
    case RN_REDUCE_MIN:
        if (f->count == 0 || x < f->real || isnan(x)) f->real = x;
        break;
    case RN_REDUCE_PROD:
        f->real *= x;
        break;
    case RN_REDUCE_L1:
        f->real += fabs(x);
        break;
    case RN_REDUCE_L2:
    case RN_REDUCE_SUM_SQUARE:
        f->real += x * x;
        break;
    case RN_REDUCE_LOG_SUM_EXP: // what was summed is scaled down where a larger one comes
        if (x > f->largest) {
            f->real = f->real * exp(f->largest - x);
            f->largest = x;
        }
        f->real += isinf(x) && x == f->largest ? 1 : exp(x - f->largest);
        break;
    default:
        f->real += x;
        break;
    }
    f->count++;
}

static void fold_whole(rn_reduce_function function, int64_t x, bool is_signed, folded *f) {
    uint64_t sum = (uint64_t)f->whole, u = (uint64_t)x;
    bool larger = is_signed ? x > f->whole : u > sum, less = is_signed ? x < f->whole : u < sum;
    switch (function) {
    case RN_REDUCE_MAX:
        if (f->count == 0 || larger) sum = u;
        break;
    case RN_REDUCE_MIN:
        if (f->count == 0 || less) sum = u;
        break;
    case RN_REDUCE_PROD:
        sum *= u;
        break;
    case RN_REDUCE_L1:
        sum += is_signed && x < 0 ? 0 - u : u;
        break;
    case RN_REDUCE_SUM_SQUARE:
        sum += u * u;
        break;
    default:
        sum += u;
        break;
    }
    f->whole = (int64_t)sum;
    f->count++;
}

static folded begin(rn_reduce_function function) {
    folded f = {.largest = -INFINITY};
    if (function == RN_REDUCE_PROD) f.real = 1, f.whole = 1;
    if (function == RN_REDUCE_MAX) f.real = -INFINITY;
    if (function == RN_REDUCE_MIN) f.real = INFINITY;
    return f;
}

static double end_real(rn_reduce_function function, const folded *f) {
    switch (function) {
    case RN_REDUCE_MEAN:
        return f->real / (double)f->count;
    case RN_REDUCE_L2:
        return sqrt(f->real);
    case RN_REDUCE_LOG_SUM:
        return log(f->real);
    case RN_REDUCE_LOG_SUM_EXP:
        return isinf(f->largest) ? f->largest : f->largest + log(f->real);
    default:
        return f->real;
    }
}

// Roots and logarithms of whole numbers are taken in double and cut off.
static bool needs_real(rn_reduce_function function) {
    return function == RN_REDUCE_L2 || function == RN_REDUCE_LOG_SUM ||
           function == RN_REDUCE_LOG_SUM_EXP;
}

static void fold_group(rn_reduce_function function, const rn_tensor *x, uint64_t at, rn_walk group,
                       folded *f) {
    rn_number number = rn_number_of(x->dtype);
    bool whole = !rn_number_is_float(number) && !needs_real(function);
    do {
        for (uint64_t i = 0; i < group.count; i += RN_NUMBERS) {
            rn_numbers v;
            uint64_t n = group.count - i < RN_NUMBERS ? group.count - i : RN_NUMBERS;
            rn_numbers_load(x, at + group.at[0] + i * group.step[0], group.step[0], n, &v);
            for (uint64_t j = 0; j < n; j++)
                if (whole)
                    fold_whole(function, v.i64[j], number == RN_NUMBER_I64, f);
                else
                    fold_real(function,
                              number == RN_NUMBER_F32   ? (double)v.f32[j]
                              : number == RN_NUMBER_F64 ? v.f64[j]
                              : number == RN_NUMBER_I64 ? (double)v.i64[j]
                                                        : (double)v.u64[j],
                              f);
        }
    } while (rn_walk_next(&group));
}

static void store_folded(rn_reduce_function function, const folded *f, const rn_tensor *y,
                         uint64_t at) {
    rn_number number = rn_number_of(y->dtype);
    rn_numbers one;
    if (number == RN_NUMBER_F64)
        one.f64[0] = end_real(function, f);
    else if (number == RN_NUMBER_F32)
        one.f32[0] = (float)end_real(function, f);
    else if (needs_real(function))
        one.i64[0] = (int64_t)fmin(fmax(end_real(function, f), -0x1p62), 0x1p62);
    else if (function != RN_REDUCE_MEAN || f->count == 0)
        one.i64[0] = f->whole;
    else if (number == RN_NUMBER_I64)
        one.i64[0] = f->whole / (int64_t)f->count;
    else
        one.u64[0] = (uint64_t)f->whole / f->count;
    rn_numbers_store(y, at, 1, &one);
}

static rn_status reference(const rn_call *call) {
    const rn_reduce_as_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    rn_strides strides = rn_strides_of(x->shape);
    rn_walk group = rn_walk_begin(rn_reduce_axes(x->shape, attrs->over.axes), strides, strides);
    rn_walk kept = rn_walk_begin(rn_reduce_axes(x->shape, ~attrs->over.axes), strides, strides);
    uint64_t at = 0;
    do {
        for (uint64_t i = 0; i < kept.count; i++) {
            folded f = begin(attrs->function);
            fold_group(attrs->function, x, kept.at[0] + i * kept.step[0], group, &f);
            store_folded(attrs->function, &f, y, at++);
        }
    } while (rn_walk_next(&kept));
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_reduce_as_attrs *a = attrs;
    char axes[64];
    rn_reduce_print(&a->over, axes, sizeof axes);
    snprintf(out, bytes, "%s, %s", names[a->function], axes);
}

extern const rn_op_info rn_reduce_op;
const rn_op_info rn_reduce_op = {
    .name = "reduce",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_reduce_as_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = rn_reduce_cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_reduce(rn_graph *g, rn_reduce_function function, rn_value x, uint32_t axes,
                      bool keep) {
    static const rn_op f32[] = {
        [RN_REDUCE_SUM] = RN_OP_SUM, [RN_REDUCE_MEAN] = RN_OP_MEAN, [RN_REDUCE_MAX] = RN_OP_MAX};
    rn_reduce_as_attrs attrs = {function, {axes, keep}};
    if ((unsigned)function < sizeof f32 / sizeof *f32 && rn_graph_dtype(g, x) == RN_DTYPE_F32)
        return rn_graph_add(g, f32[function], &x, 1, &attrs.over);
    return rn_graph_add(g, RN_OP_REDUCE, &x, 1, &attrs);
}

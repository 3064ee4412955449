// stablehlo_rows.c — softmax, norms, reductions, losses. Sums are f32, in whatever order the
// compiler chooses.
#include "exchange/stablehlo_ops.h"
#include "graph/op/group_norm.h"

#include <math.h>
#include <stdio.h>

static uint32_t last_axis(rn_hlo_value x) {
    return 1u << (x.shape.rank - 1);
}

static rn_hlo_value mean(rn_hlo *h, rn_hlo_value x, uint32_t axes, bool keep) {
    uint64_t count = 1;
    for (uint32_t i = 0; i < x.shape.rank; i++)
        if (axes >> i & 1) count *= x.shape.dims[i];
    rn_hlo_value sum = rn_hlo_reduce(h, "add", x, axes, keep);
    return rn_hlo_binary(h, "divide", sum, rn_hlo_like(h, sum, (double)count));
}

static rn_hlo_value square(rn_hlo *h, rn_hlo_value x) {
    return rn_hlo_binary(h, "multiply", x, x);
}

// By an operand that is broadcast to x.
static rn_hlo_value combine(rn_hlo *h, const char *name, rn_hlo_value x, rn_hlo_value by) {
    return rn_hlo_binary(h, name, x, rn_hlo_expand(h, rn_hlo_widen(h, by), x.shape));
}

static rn_hlo_value without_last(rn_hlo *h, rn_hlo_value x) {
    rn_shape shape = x.shape;
    shape.rank--;
    return rn_hlo_reshape(h, x, shape);
}

// 1 / sqrt(x + eps)
static rn_hlo_value invert_root(rn_hlo *h, rn_hlo_value x, float eps) {
    return rn_hlo_unary(h, "rsqrt", rn_hlo_binary(h, "add", x, rn_hlo_like(h, x, (double)eps)));
}

// ---- rows ---------------------------------------------------------------------------------------

RN_HLO_EMITTER(softmax) {
    rn_hlo_value x = rn_hlo_widen(h, in[0]);
    x = combine(h, "subtract", x, rn_hlo_reduce(h, "maximum", x, last_axis(x), true));
    x = rn_hlo_unary(h, "exponential", x);
    x = combine(h, "divide", x, rn_hlo_reduce(h, "add", x, last_axis(x), true));
    out[0] = rn_hlo_result(h, call, x);
}

RN_HLO_EMITTER(layernorm) {
    const rn_norm_attrs *attrs = call->attrs;
    rn_hlo_value x = rn_hlo_widen(h, in[0]);
    rn_hlo_value middle = mean(h, x, last_axis(x), true);
    x = combine(h, "subtract", x, middle);
    rn_hlo_value rstd = invert_root(h, mean(h, square(h, x), last_axis(x), true), attrs->eps);
    x = combine(h, "multiply", x, rstd);
    if (in[1].id) x = combine(h, "multiply", x, in[1]);
    if (in[2].id) x = combine(h, "add", x, in[2]);
    out[0] = rn_hlo_result(h, call, x);
    if (call->outputs[1].data) out[1] = without_last(h, middle);
    if (call->outputs[2].data) out[2] = without_last(h, rstd);
}

RN_HLO_EMITTER(rmsnorm) {
    const rn_norm_attrs *attrs = call->attrs;
    rn_hlo_value x = rn_hlo_widen(h, in[0]);
    rn_hlo_value rstd = invert_root(h, mean(h, square(h, x), last_axis(x), true), attrs->eps);
    x = combine(h, "multiply", x, rstd);
    if (in[1].id) x = combine(h, "multiply", x, in[1]);
    out[0] = rn_hlo_result(h, call, x);
    if (call->output_count > 1 && call->outputs[1].data) out[1] = without_last(h, rstd);
}

// running + momentum (batch - running)
static rn_hlo_value move_running(rn_hlo *h, rn_hlo_value running, rn_hlo_value batch,
                                 float momentum) {
    rn_hlo_value away = rn_hlo_binary(h, "subtract", batch, running);
    away = rn_hlo_binary(h, "multiply", away, rn_hlo_like(h, away, (double)momentum));
    return rn_hlo_binary(h, "add", running, away);
}

RN_HLO_EMITTER(batchnorm) {
    const rn_batchnorm_attrs *attrs = call->attrs;
    rn_hlo_value x = rn_hlo_widen(h, in[0]), middle = in[3], variance = in[4];
    out[3] = in[3];
    out[4] = in[4];
    if (attrs->training) {
        uint32_t others = last_axis(x) - 1;
        double rows = 1;
        for (uint32_t i = 0; i + 1 < x.shape.rank; i++)
            rows *= (double)x.shape.dims[i];
        middle = mean(h, x, others, false);
        variance = mean(h, square(h, combine(h, "subtract", x, middle)), others, false);
        rn_hlo_value unbiased =
            rn_hlo_binary(h, "multiply", variance, rn_hlo_like(h, variance, rows / (rows - 1)));
        out[3] = move_running(h, in[3], middle, attrs->momentum);
        out[4] = move_running(h, in[4], unbiased, attrs->momentum);
    }
    rn_hlo_value rstd = invert_root(h, variance, attrs->eps);
    x = combine(h, "multiply", combine(h, "subtract", x, middle), rstd);
    x = combine(h, "add", combine(h, "multiply", x, in[1]), in[2]);
    out[0] = rn_hlo_result(h, call, x);
    out[1] = middle;
    out[2] = rstd;
}

// As (N, pixels, groups, each): statistics go over pixels and a group's channels.
RN_HLO_EMITTER(group_norm) {
    const rn_group_norm_attrs *attrs = call->attrs;
    rn_group_sizes of = rn_group_sizes_of(call->inputs[0].shape, attrs);
    rn_shape given = in[0].shape, kept = RN_SHAPE(of.images, 1, of.groups, 1);
    rn_hlo_value x = rn_hlo_reshape(h, rn_hlo_widen(h, in[0]),
                                    RN_SHAPE(of.images, of.pixels, of.groups, of.each));
    rn_hlo_value middle, rstd;
    if (in[3].id) {
        middle = rn_hlo_reshape(h, in[3], kept);
        rstd = rn_hlo_reshape(h, in[4], kept);
        x = combine(h, "subtract", x, middle);
    } else {
        uint32_t axes = 1u << 1 | 1u << 3;
        middle = mean(h, x, axes, true);
        x = combine(h, "subtract", x, middle);
        rstd = invert_root(h, mean(h, square(h, x), axes, true), attrs->eps);
    }
    x = rn_hlo_reshape(h, combine(h, "multiply", x, rstd), given);
    if (in[1].id) x = combine(h, "multiply", x, in[1]);
    if (in[2].id) x = combine(h, "add", x, in[2]);
    if (attrs->silu) x = rn_hlo_binary(h, "multiply", x, rn_hlo_unary(h, "logistic", x));
    out[0] = rn_hlo_result(h, call, x);
    out[1] = rn_hlo_reshape(h, middle, RN_SHAPE(of.images, of.groups));
    out[2] = rn_hlo_reshape(h, rstd, RN_SHAPE(of.images, of.groups));
}

// ---- reductions ---------------------------------------------------------------------------------

RN_HLO_EMITTER(reduce) {
    const rn_reduce_attrs *attrs = call->attrs;
    rn_hlo_value x = rn_hlo_widen(h, in[0]), y;
    if (call->op == RN_OP_MEAN)
        y = mean(h, x, attrs->axes, attrs->keep);
    else
        y = rn_hlo_reduce(h, call->op == RN_OP_MAX ? "maximum" : "add", x, attrs->axes,
                          attrs->keep);
    out[0] = rn_hlo_result(h, call, y);
}

RN_HLO_EMITTER(sum_squares) {
    rn_hlo_value x = square(h, rn_hlo_widen(h, in[0]));
    out[0] = rn_hlo_result(h, call, rn_hlo_reduce(h, "add", x, (1u << x.shape.rank) - 1, false));
}

void rn_hlo_print_beats(rn_hlo *h, rn_dtype dtype, rn_dtype index, bool smallest, bool last) {
    const char *e = rn_hlo_element(dtype), *i = rn_hlo_element(index);
    static const struct {
        const char *name, *a, *b, *how;
    } compares[] = {{"na", "a", "a", "NE"},
                    {"nb", "b", "b", "NE"},
                    {"eq", "a", "b", "EQ"},
                    {"gt", "a", "b", "GT"},
                    {"lt", "a", "b", "LT"}};
    static const struct {
        const char *name, *how, *a, *b;
    } joins[] = {{"oa", "xor", "na", "nb"}, // then either is NaN, and it is a:
                 {"fa", "and", "oa", "na"}, {"nn", "and", "na", "nb"}, {"te", "and", "eq", "ti"},
                 {"tn", "and", "nn", "ii"}, {"tt", "or", "te", "tn"},  {"lg", "or", "be", "fa"},
                 {"st", "or", "lg", "tt"}};
    const char *compare = "%%%s = \"stablehlo.compare\"(%%%s, %%%s) {comparison_direction = "
                          "#stablehlo<comparison_direction %s>} : (tensor<%s>, tensor<%s>) -> "
                          "tensor<i1>\n";
    rn_hlo_print(h,
                 "({\n^bb0(%%a: tensor<%s>, %%i: tensor<%s>, %%b: tensor<%s>, %%j: "
                 "tensor<%s>):\n",
                 e, i, e, i);
    for (size_t c = 0; c < 3; c++)
        rn_hlo_print(h, compare, compares[c].name, compares[c].a, compares[c].b, compares[c].how, e,
                     e);
    rn_hlo_print(h, compare, "be", "a", "b", compares[smallest ? 4 : 3].how, e, e);
    rn_hlo_print(h, compare, "ii", "i", "j", "LT", i, i);
    rn_hlo_print(h, compare, "ti", "i", "j", last ? "GT" : "LT", i, i);
    for (size_t c = 0; c < sizeof joins / sizeof *joins; c++)
        rn_hlo_print(h,
                     "%%%s = \"stablehlo.%s\"(%%%s, %%%s) : (tensor<i1>, tensor<i1>) -> "
                     "tensor<i1>\n",
                     joins[c].name, joins[c].how, joins[c].a, joins[c].b);
    const char *select = "%%%s = \"stablehlo.select\"(%%st, %%%s, %%%s) : (tensor<i1>, tensor<%s>, "
                         "tensor<%s>) -> tensor<%s>\n";
    rn_hlo_print(h, select, "x", "a", "b", e, e, e);
    rn_hlo_print(h, select, "k", "i", "j", i, i, i);
    rn_hlo_print(h, "\"stablehlo.return\"(%%x, %%k) : (tensor<%s>, tensor<%s>) -> () })", e, i);
}

// Where the largest (smallest) of an axis lies, without the axis.
static rn_hlo_value find_best(rn_hlo *h, rn_hlo_value x, uint32_t axis, rn_dtype index,
                              bool smallest, bool last) {
    const char *element = rn_hlo_element(x.dtype), *of_index = rn_hlo_element(index);
    rn_hlo_value places = rn_hlo_iota(h, index, x.shape, axis);
    rn_hlo_value first = rn_hlo_neutral(h, smallest ? "minimum" : "maximum", x.dtype);
    rn_hlo_value none = rn_hlo_whole(h, index, last ? -1 : INT32_MAX, RN_SCALAR);
    rn_shape shape = {0};
    for (uint32_t i = 0; i < x.shape.rank; i++)
        if (i != axis) shape.dims[shape.rank++] = x.shape.dims[i];
    rn_hlo_value best = rn_hlo_new(h, index, shape);
    best.part = 2;
    rn_hlo_print(h, "    %%v%u:2 = \"stablehlo.reduce\"(%s, %s, %s, %s) ", best.id,
                 rn_hlo_name(x).text, rn_hlo_name(places).text, rn_hlo_name(first).text,
                 rn_hlo_name(none).text);
    rn_hlo_print_beats(h, x.dtype, index, smallest, last);
    rn_hlo_print(h, " {dimensions = array<i64: %u>} : (%s, %s, tensor<%s>, tensor<%s>) -> ", axis,
                 rn_hlo_type(x.dtype, x.shape).text, rn_hlo_type(index, x.shape).text, element,
                 of_index);
    rn_hlo_print(h, "(%s, %s)\n", rn_hlo_type(x.dtype, shape).text, rn_hlo_type(index, shape).text);
    return best;
}

// The first that is the largest, which is NaN where any is. Two plain reductions: who asks for the
// largest itself as well shares one of them.
RN_HLO_EMITTER(argmax) {
    rn_hlo_value x = rn_hlo_widen(h, in[0]);
    uint32_t last = x.shape.rank - 1;
    rn_hlo_value top = rn_hlo_reduce(h, "maximum", x, 1u << last, true);
    rn_hlo_value here = rn_hlo_compare(h, "EQ", x, rn_hlo_expand(h, top, x.shape));
    here = rn_hlo_binary(h, "or", here, rn_hlo_compare(h, "NE", x, x));
    rn_hlo_value at = rn_hlo_iota(h, RN_DTYPE_I32, x.shape, last);
    at = rn_hlo_select(h, here, at, rn_hlo_like(h, at, INT32_MAX));
    out[0] = rn_hlo_result(h, call, rn_hlo_reduce(h, "minimum", at, 1u << last, false));
}

RN_HLO_EMITTER(arg_reduce) {
    const rn_arg_reduce_attrs *attrs = call->attrs;
    rn_hlo_value x = rn_hlo_widen(h, in[0]);
    if (h->status != RN_OK) return;
    rn_hlo_value y = find_best(h, x, attrs->axis, RN_DTYPE_I64, attrs->smallest, attrs->last);
    out[0] = rn_hlo_result(h, call, rn_hlo_reshape(h, y, call->outputs[0].shape));
}

// ---- functions of axes --------------------------------------------------------------------------

static bool needs_real(rn_reduce_function function) {
    return function == RN_REDUCE_L2 || function == RN_REDUCE_LOG_SUM ||
           function == RN_REDUCE_LOG_SUM_EXP;
}

// What it is computed in: floats of 32 bits or more, whole numbers of 64.
static rn_hlo_value widen_for(rn_hlo *h, rn_hlo_value x, rn_reduce_function function) {
    if (rn_dtype_get(x.dtype)->is_float) return rn_hlo_widen(h, x);
    if (needs_real(function)) return rn_hlo_convert(h, x, RN_DTYPE_F64);
    bool below_0 = rn_hlo_element(x.dtype)[0] == 'i' && x.dtype != RN_DTYPE_BOOL;
    return rn_hlo_convert(h, x, below_0 ? RN_DTYPE_I64 : RN_DTYPE_U64);
}

// The largest is taken away first; where it is infinite, it is the result.
static rn_hlo_value log_sum_exp(rn_hlo *h, rn_hlo_value x, const rn_reduce_attrs *over) {
    rn_hlo_value top = rn_hlo_reduce(h, "maximum", x, over->axes, true);
    rn_hlo_value finite =
        rn_hlo_compare(h, "LT", rn_hlo_unary(h, "abs", top), rn_hlo_like(h, top, INFINITY));
    rn_hlo_value from = rn_hlo_select(h, finite, top, rn_hlo_like(h, top, 0));
    x = rn_hlo_unary(h, "exponential", combine(h, "subtract", x, from));
    x = rn_hlo_unary(h, "log", rn_hlo_reduce(h, "add", x, over->axes, true));
    x = rn_hlo_select(h, finite, rn_hlo_binary(h, "add", x, from), top);
    return over->keep ? x : rn_hlo_reduce(h, "add", x, over->axes, false);
}

RN_HLO_EMITTER(reduce_as) {
    const rn_reduce_as_attrs *attrs = call->attrs;
    const rn_reduce_attrs *over = &attrs->over;
    rn_dtype to = call->outputs[0].dtype;
    rn_hlo_value x = widen_for(h, in[0], attrs->function);
    switch (attrs->function) {
    case RN_REDUCE_MEAN:
        x = mean(h, x, over->axes, over->keep);
        break;
    case RN_REDUCE_MAX:
        x = rn_hlo_reduce(h, "maximum", x, over->axes, over->keep);
        break;
    case RN_REDUCE_MIN:
        x = rn_hlo_reduce(h, "minimum", x, over->axes, over->keep);
        break;
    case RN_REDUCE_PROD:
        x = rn_hlo_reduce(h, "multiply", x, over->axes, over->keep);
        break;
    case RN_REDUCE_L1:
        if (x.dtype != RN_DTYPE_U64) x = rn_hlo_unary(h, "abs", x);
        x = rn_hlo_reduce(h, "add", x, over->axes, over->keep);
        break;
    case RN_REDUCE_L2:
    case RN_REDUCE_SUM_SQUARE:
        x = rn_hlo_reduce(h, "add", square(h, x), over->axes, over->keep);
        if (attrs->function == RN_REDUCE_L2) x = rn_hlo_unary(h, "sqrt", x);
        break;
    case RN_REDUCE_LOG_SUM_EXP:
        x = log_sum_exp(h, x, over);
        break;
    default:
        x = rn_hlo_reduce(h, "add", x, over->axes, over->keep);
        if (attrs->function == RN_REDUCE_LOG_SUM) x = rn_hlo_unary(h, "log", x);
        break;
    }
    if (rn_dtype_get(x.dtype)->is_float && !rn_dtype_get(to)->is_float) { // NaN is the lower end
        rn_hlo_value low = rn_hlo_like(h, x, -0x1p62), number = rn_hlo_compare(h, "EQ", x, x);
        x = rn_hlo_binary(h, "minimum", rn_hlo_select(h, number, x, low),
                          rn_hlo_like(h, x, 0x1p62));
        x = rn_hlo_truncate(h, rn_hlo_binary(h, "maximum", x, low), RN_DTYPE_I64);
    }
    out[0] = rn_hlo_result(h, call, x);
}

RN_HLO_EMITTER(soft) {
    const rn_soft_attrs *attrs = call->attrs;
    uint32_t axis = 1u << attrs->axis;
    rn_hlo_value x = rn_hlo_widen(h, in[0]);
    if (h->status != RN_OK) return;
    if (attrs->function == RN_SOFT_HARD_MAX) {
        rn_shape kept = x.shape;
        kept.dims[attrs->axis] = 1;
        rn_hlo_value at = find_best(h, x, attrs->axis, RN_DTYPE_I32, false, false);
        at = rn_hlo_expand(h, rn_hlo_reshape(h, at, kept), x.shape);
        rn_hlo_value place = rn_hlo_iota(h, RN_DTYPE_I32, x.shape, attrs->axis);
        out[0] = rn_hlo_result(h, call, rn_hlo_compare(h, "EQ", place, at));
        return;
    }
    x = combine(h, "subtract", x, rn_hlo_reduce(h, "maximum", x, axis, true));
    rn_hlo_value e = rn_hlo_unary(h, "exponential", x);
    rn_hlo_value sum = rn_hlo_reduce(h, "add", e, axis, true);
    if (attrs->function == RN_SOFT_LOG_MAX)
        x = combine(h, "subtract", x, rn_hlo_unary(h, "log", sum));
    else
        x = combine(h, "divide", e, sum);
    out[0] = rn_hlo_result(h, call, x);
}

// ---- losses -------------------------------------------------------------------------------------

RN_HLO_EMITTER(cross_entropy) {
    const rn_cross_entropy_attrs *attrs = call->attrs;
    rn_hlo_value x = rn_hlo_widen(h, in[0]), targets = in[1];
    uint32_t last = last_axis(x), all = (1u << targets.shape.rank) - 1;
    rn_hlo_value top = rn_hlo_reduce(h, "maximum", x, last, true);
    rn_hlo_value sum = rn_hlo_reduce(
        h, "add", rn_hlo_unary(h, "exponential", combine(h, "subtract", x, top)), last, true);
    rn_hlo_value lse = without_last(h, rn_hlo_binary(h, "add", top, rn_hlo_unary(h, "log", sum)));
    // The target's logit: all others are 0 in the sum.
    uint64_t axes[RN_MAX_RANK];
    for (uint32_t i = 0; i < targets.shape.rank; i++)
        axes[i] = i;
    rn_hlo_value is_target =
        rn_hlo_compare(h, "EQ", rn_hlo_iota(h, RN_DTYPE_I32, x.shape, x.shape.rank - 1),
                       rn_hlo_broadcast(h, targets, x.shape, axes));
    rn_hlo_value logit =
        rn_hlo_reduce(h, "add", rn_hlo_select(h, is_target, x, rn_hlo_like(h, x, 0)), last, false);
    rn_hlo_value counts =
        rn_hlo_compare(h, "NE", targets, rn_hlo_like(h, targets, (double)attrs->ignore));
    rn_hlo_value loss = rn_hlo_binary(h, "subtract", lse, logit);
    loss = rn_hlo_select(h, counts, loss, rn_hlo_like(h, loss, 0));
    loss = rn_hlo_reduce(h, "add", loss, all, false);
    rn_hlo_value count =
        rn_hlo_reduce(h, "add", rn_hlo_convert(h, counts, RN_DTYPE_F32), all, false);
    if (attrs->normalizer != RN_NO_SCALAR) {
        rn_hlo_value by = rn_hlo_convert(h, h->scalars[attrs->normalizer], RN_DTYPE_F32);
        loss = rn_hlo_binary(h, "multiply", loss, by);
    } else { // without rows that count the sum is 0, and so is the loss
        rn_hlo_value by = rn_hlo_binary(h, "maximum", count, rn_hlo_like(h, count, 1));
        loss = rn_hlo_binary(h, "divide", loss, by);
    }
    out[0] = rn_hlo_result(h, call, loss);
    out[1] = lse;
    out[2] = count;
}

RN_HLO_EMITTER(mse) {
    rn_hlo_value x = rn_hlo_binary(h, "subtract", rn_hlo_widen(h, in[0]), rn_hlo_widen(h, in[1]));
    out[0] = rn_hlo_result(h, call, mean(h, square(h, x), (1u << x.shape.rank) - 1, false));
}

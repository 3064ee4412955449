// stablehlo_rows.c — softmax, norms, reductions, losses. Sums are f32, in whatever order the
// compiler chooses.
#include "exchange/stablehlo_ops.h"

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

// The first of the largest; NaN is larger than any number. Pairs (number, index) are combined: a
// stays where it is larger, or where b is not larger and comes later.
RN_HLO_EMITTER(argmax) {
    static const char regions[] =
        "({ ^bb0(%a: tensor<f32>, %i: tensor<i32>, %b: tensor<f32>, %j: tensor<i32>): "
        "%na = \"stablehlo.compare\"(%a, %a) {comparison_direction = "
        "#stablehlo<comparison_direction NE>} : (tensor<f32>, tensor<f32>) -> tensor<i1> "
        "%nb = \"stablehlo.compare\"(%b, %b) {comparison_direction = "
        "#stablehlo<comparison_direction NE>} : (tensor<f32>, tensor<f32>) -> tensor<i1> "
        "%gt = \"stablehlo.compare\"(%a, %b) {comparison_direction = "
        "#stablehlo<comparison_direction GT>} : (tensor<f32>, tensor<f32>) -> tensor<i1> "
        "%eq = \"stablehlo.compare\"(%a, %b) {comparison_direction = "
        "#stablehlo<comparison_direction EQ>} : (tensor<f32>, tensor<f32>) -> tensor<i1> "
        "%lt = \"stablehlo.compare\"(%i, %j) {comparison_direction = "
        "#stablehlo<comparison_direction LT>} : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "      %fb = \"stablehlo.not\"(%nb) : (tensor<i1>) -> tensor<i1> "
        "%oa = \"stablehlo.and\"(%na, %fb) : (tensor<i1>, tensor<i1>) -> tensor<i1> "
        "%nn = \"stablehlo.and\"(%na, %nb) : (tensor<i1>, tensor<i1>) -> tensor<i1> "
        "%ee = \"stablehlo.or\"(%eq, %nn) : (tensor<i1>, tensor<i1>) -> tensor<i1> "
        "%tt = \"stablehlo.and\"(%ee, %lt) : (tensor<i1>, tensor<i1>) -> tensor<i1> "
        "%lg = \"stablehlo.or\"(%gt, %oa) : (tensor<i1>, tensor<i1>) -> tensor<i1> "
        "%st = \"stablehlo.or\"(%lg, %tt) : (tensor<i1>, tensor<i1>) -> tensor<i1> "
        "%x = \"stablehlo.select\"(%st, %a, %b) : (tensor<i1>, tensor<f32>, tensor<f32>) -> "
        "tensor<f32> %k = \"stablehlo.select\"(%st, %i, %j) : (tensor<i1>, tensor<i32>, "
        "tensor<i32>) -> tensor<i32> \"stablehlo.return\"(%x, %k) : (tensor<f32>, tensor<i32>) "
        "-> () })";
    rn_hlo_value x = rn_hlo_convert(h, in[0], RN_DTYPE_F32);
    uint32_t axis = x.shape.rank - 1;
    rn_hlo_value places = rn_hlo_iota(h, RN_DTYPE_I32, x.shape, axis);
    rn_hlo_value first = rn_hlo_float(h, RN_DTYPE_F32, -INFINITY, RN_SCALAR);
    rn_hlo_value none = rn_hlo_whole(h, RN_DTYPE_I32, INT32_MAX, RN_SCALAR);
    rn_shape shape = x.shape;
    shape.rank--;
    rn_hlo_value best = rn_hlo_new(h, RN_DTYPE_I32, shape);
    best.part = 2;
    rn_hlo_print(h, "    %%v%u:2 = \"stablehlo.reduce\"(%s, %s, %s, %s) ", best.id,
                 rn_hlo_name(x).text, rn_hlo_name(places).text, rn_hlo_name(first).text,
                 rn_hlo_name(none).text);
    if (h->status == RN_OK) h->status = rn_sink_write(h->sink, regions, sizeof regions - 1);
    rn_hlo_print(h, " {dimensions = array<i64: %u>} : (%s, %s, tensor<f32>, tensor<i32>) -> ", axis,
                 rn_hlo_type(RN_DTYPE_F32, x.shape).text, rn_hlo_type(RN_DTYPE_I32, x.shape).text);
    rn_hlo_print(h, "(%s, %s)\n", rn_hlo_type(RN_DTYPE_F32, shape).text,
                 rn_hlo_type(RN_DTYPE_I32, shape).text);
    out[0] = rn_hlo_result(h, call, best);
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

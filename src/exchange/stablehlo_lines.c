// stablehlo_lines.c — ops along one axis: running sums, the k largest, reversed sequences, another
// length, Fourier transforms; and numbers quantised by a scale an index of an axis.
#include "exchange/stablehlo_ops.h"
#include "graph/op/linear.h"
#include "graph/op/resize.h"

#include <math.h>
#include <stdio.h>

// ---- running sums -------------------------------------------------------------------------------

// A window over everything up to an element.
static rn_hlo_value cumulate(rn_hlo *h, const char *name, rn_hlo_value x, uint32_t axis) {
    uint64_t size[RN_MAX_RANK], ones[RN_MAX_RANK];
    uint64_t length = x.shape.dims[axis];
    char attributes[1600], padding[300] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < x.shape.rank; i++) {
        size[i] = i == axis ? length : 1;
        ones[i] = 1;
        at += (size_t)snprintf(padding + at, sizeof padding - at, "%s[%llu, 0]", i ? ", " : "",
                               (unsigned long long)size[i] - 1);
    }
    snprintf(attributes, sizeof attributes,
             "window_dimensions = %s, window_strides = %s, base_dilations = %s, "
             "window_dilations = %s, padding = dense<[%s]> : tensor<%ux2xi64>",
             rn_hlo_array(size, x.shape.rank).text, rn_hlo_array(ones, x.shape.rank).text,
             rn_hlo_array(ones, x.shape.rank).text, rn_hlo_array(ones, x.shape.rank).text, padding,
             x.shape.rank);
    rn_hlo_value first = rn_hlo_neutral(h, name, x.dtype);
    if (h->status != RN_OK) return x;
    return rn_hlo_op(h, "stablehlo.reduce_window", (rn_hlo_value[]){x, first}, 2,
                     rn_hlo_combine(name, x.dtype).text, attributes, x.dtype, x.shape);
}

RN_HLO_EMITTER(cumulate) {
    const rn_cumulate_attrs *a = call->attrs;
    rn_hlo_value x = rn_hlo_widen(h, in[0]);
    uint64_t length = x.shape.dims[a->axis];
    if (a->reverse) x = rn_hlo_reverse(h, x, a->axis);
    x = cumulate(h, a->product ? "multiply" : "add", x, a->axis);
    if (a->exclusive && length > 0) { // all of them one further on
        rn_shape one = x.shape;
        one.dims[a->axis] = 1;
        rn_hlo_value first = {.dtype = x.dtype, .shape = one};
        rn_hlo_value parts[2] = {rn_hlo_like(h, first, a->product),
                                 rn_hlo_slice(h, x, a->axis, 0, length - 1)};
        x = length == 1 ? parts[0] : rn_hlo_concat(h, parts, 2, a->axis);
    }
    if (a->reverse) x = rn_hlo_reverse(h, x, a->axis);
    out[0] = rn_hlo_result(h, call, x);
}

// ---- the k largest ------------------------------------------------------------------------------

// Whether a comes before b; NaN is larger than everything. A stable sort leaves equals in order.
static void print_before(rn_hlo *h, const char *e, bool smallest) {
    const char *compare = "%%%s = \"stablehlo.compare\"(%%%s, %%%s) {comparison_direction = "
                          "#stablehlo<comparison_direction %s>} : (tensor<%s>, tensor<%s>) -> "
                          "tensor<i1>\n";
    rn_hlo_print(h,
                 "({\n^bb0(%%a: tensor<%s>, %%b: tensor<%s>, %%i: tensor<i64>, %%j: "
                 "tensor<i64>):\n",
                 e, e);
    rn_hlo_print(h, compare, "na", "a", "a", smallest ? "EQ" : "NE", e, e);
    rn_hlo_print(h, compare, "nb", "b", "b", smallest ? "NE" : "EQ", e, e);
    rn_hlo_print(h, compare, "be", "a", "b", smallest ? "LT" : "GT", e, e);
    rn_hlo_print(h, "%%nn = \"stablehlo.and\"(%%na, %%nb) : (tensor<i1>, tensor<i1>) -> "
                    "tensor<i1>\n%%st = \"stablehlo.or\"(%%be, %%nn) : (tensor<i1>, tensor<i1>) -> "
                    "tensor<i1>\n\"stablehlo.return\"(%%st) : (tensor<i1>) -> () })");
}

void rn_hlo_sort(rn_hlo *h, rn_hlo_value x, uint32_t axis, bool smallest, rn_hlo_value *out_sorted,
                 rn_hlo_value *out_order) {
    rn_hlo_value places = rn_hlo_iota(h, RN_DTYPE_I64, x.shape, axis);
    rn_hlo_value sorted = rn_hlo_new(h, x.dtype, x.shape), order = places;
    rn_hlo_text type = rn_hlo_type(x.dtype, x.shape), of_places;
    of_places = rn_hlo_type(RN_DTYPE_I64, x.shape);
    sorted.part = 1;
    order.id = sorted.id;
    order.part = 2;
    *out_sorted = sorted;
    *out_order = order;
    if (h->status != RN_OK) return;
    rn_hlo_print(h, "    %%v%u:2 = \"stablehlo.sort\"(%s, %s) ", sorted.id, rn_hlo_name(x).text,
                 rn_hlo_name(places).text);
    print_before(h, rn_hlo_element(x.dtype), smallest);
    rn_hlo_print(h, " {dimension = %u : i64, is_stable = true} : (%s, %s) -> (%s, %s)\n", axis,
                 type.text, of_places.text, type.text, of_places.text);
}

RN_HLO_EMITTER(top_k) {
    const rn_top_k_attrs *a = call->attrs;
    rn_hlo_value sorted, order;
    rn_hlo_sort(h, in[0], a->axis, a->smallest, &sorted, &order);
    out[0] = rn_hlo_slice(h, sorted, a->axis, 0, a->count);
    out[1] = rn_hlo_slice(h, order, a->axis, 0, a->count);
}

// ---- reversed sequences -------------------------------------------------------------------------

rn_hlo_value rn_hlo_reverse_sequence(rn_hlo *h, rn_hlo_value x, rn_hlo_value lengths,
                                     uint32_t batch_axis, uint32_t time_axis) {
    rn_hlo_value time = rn_hlo_iota(h, RN_DTYPE_I64, x.shape, time_axis);
    rn_hlo_value length = rn_hlo_broadcast(h, rn_hlo_convert(h, lengths, RN_DTYPE_I64), x.shape,
                                           (uint64_t[]){batch_axis});
    rn_hlo_value turned = rn_hlo_binary(h, "subtract", length, time);
    turned = rn_hlo_binary(h, "subtract", turned, rn_hlo_like(h, turned, 1));
    rn_hlo_value within = rn_hlo_compare(h, "LT", time, length);
    return rn_hlo_take_elements(h, x, rn_hlo_select(h, within, turned, time), time_axis);
}

RN_HLO_EMITTER(reverse_sequence) {
    const rn_reverse_sequence_attrs *a = call->attrs;
    (void)call;
    out[0] = rn_hlo_reverse_sequence(h, in[0], in[1], a->batch_axis, a->time_axis);
}

// ---- another length -----------------------------------------------------------------------------

enum { RESIZE_MOST = 16384 }; // elements of the resized axis

// Which element of x tap number `tap` of every element of the result is, and its weight; 0 where it
// has no such tap, or is filled.
static void find_taps(const rn_resize_attrs *a, uint64_t length, int64_t tap, int32_t *ids,
                      double *weights) {
    for (uint64_t i = 0; i < a->length; i++) {
        rn_resize_taps t = rn_resize_taps_of(a, i, length);
        bool has = tap < t.count && !t.filled;
        ids[i] = has ? (int32_t)rn_resize_tap(&t, tap) : 0;
        weights[i] = has ? rn_resize_weight(&t, tap) / t.total : 0;
    }
}

// A number for each index of an axis.
static rn_hlo_value along(rn_hlo *h, const double *numbers, rn_dtype dtype, rn_shape shape,
                          uint32_t axis) {
    rn_hlo_value x = rn_hlo_bytes(h, RN_DTYPE_F64, RN_SHAPE(shape.dims[axis]), numbers);
    return rn_hlo_broadcast(h, rn_hlo_convert(h, x, dtype), shape, (uint64_t[]){axis});
}

// Element by tap: each is taken for the whole axis at once, weighed and added.
RN_HLO_EMITTER(resize) {
    const rn_resize_attrs *a = call->attrs;
    int32_t *ids;
    double *weights; // (length) each
    rn_shape shape = call->outputs[0].shape;
    uint64_t length = in[0].shape.dims[a->axis];
    bool nearest = a->function == RN_RESIZE_NEAREST, filled = false;
    rn_hlo_value x = nearest ? in[0] : rn_hlo_widen(h, in[0]), sum = {0};
    int64_t taps = 1;
    if (a->length > RESIZE_MOST || length > INT32_MAX) {
        rn_hlo_refuse(h, "an axis of more than %d", (int)RESIZE_MOST);
        return;
    }
    if (h->status == RN_OK)
        h->status = rn_arena_array(h->memory, a->length, sizeof *ids, (void **)&ids);
    if (h->status == RN_OK)
        h->status = rn_arena_array(h->memory, a->length, sizeof *weights, (void **)&weights);
    if (h->status != RN_OK) return;
    for (uint64_t i = 0; i < a->length; i++) {
        rn_resize_taps t = rn_resize_taps_of(a, i, length);
        taps = t.count > taps ? t.count : taps;
        filled |= t.filled;
    }
    for (int64_t tap = 0; tap < taps && h->status == RN_OK; tap++) {
        find_taps(a, length, tap, ids, weights);
        rn_hlo_value at = rn_hlo_bytes(h, RN_DTYPE_I32, RN_SHAPE(a->length), ids);
        rn_hlo_value one = rn_hlo_take(h, x, at, a->axis);
        if (!nearest)
            one = rn_hlo_binary(h, "multiply", one, along(h, weights, x.dtype, shape, a->axis));
        sum = sum.id ? rn_hlo_binary(h, "add", sum, one) : one;
    }
    if (filled && h->status == RN_OK) {
        for (uint64_t i = 0; i < a->length; i++)
            weights[i] = rn_resize_taps_of(a, i, length).filled;
        rn_hlo_value which = along(h, weights, RN_DTYPE_BOOL, shape, a->axis);
        sum = rn_hlo_select(h, which, rn_hlo_like(h, sum, a->fill), sum);
    }
    out[0] = rn_hlo_result(h, call, sum);
}

// ---- Fourier transforms -------------------------------------------------------------------------

// x along the axis as it goes into the transform of n: cut, filled with zeros, or made whole of a
// half, whose other half is its mirror (with `sign`).
static rn_hlo_value make_whole(rn_hlo *h, const rn_dft_attrs *a, rn_hlo_value x, uint64_t n,
                               double sign) {
    uint64_t length = x.shape.dims[a->axis], half = n / 2 + 1, taken = a->from_half ? half : n;
    if (length > taken) x = rn_hlo_slice(h, x, a->axis, 0, taken), length = taken;
    rn_shape gap = x.shape;
    gap.dims[a->axis] = taken - length;
    rn_hlo_value zeros = {.dtype = x.dtype, .shape = gap};
    if (length < taken)
        x = rn_hlo_concat(h, (rn_hlo_value[]){x, rn_hlo_like(h, zeros, 0)}, 2, a->axis);
    if (!a->from_half || n < 3) return x;
    // Elements 1 .. n - half, backwards.
    rn_hlo_value mirror = rn_hlo_reverse(h, rn_hlo_slice(h, x, a->axis, 1, n - half), a->axis);
    mirror = rn_hlo_binary(h, "multiply", mirror, rn_hlo_like(h, mirror, sign));
    return rn_hlo_concat(h, (rn_hlo_value[]){x, mirror}, 2, a->axis);
}

// cos or sin of +-2 pi j k / n: (n, k), in f64 and rounded once.
static rn_hlo_value find_waves(rn_hlo *h, const char *name, uint64_t n, uint64_t count,
                               bool inverse, rn_dtype dtype) {
    rn_shape shape = RN_SHAPE(n, count);
    rn_hlo_value turn = rn_hlo_binary(h, "multiply", rn_hlo_iota(h, RN_DTYPE_I64, shape, 0),
                                      rn_hlo_iota(h, RN_DTYPE_I64, shape, 1));
    turn = rn_hlo_binary(h, "remainder", turn, rn_hlo_like(h, turn, (double)n));
    turn = rn_hlo_convert(h, turn, RN_DTYPE_F64);
    turn = rn_hlo_binary(h, "multiply", turn,
                         rn_hlo_like(h, turn, (inverse ? 2 : -2) * M_PI / (double)n));
    return rn_hlo_convert(h, rn_hlo_unary(h, name, turn), dtype);
}

// Sums over the axis, which a product leaves last, and its place again.
static rn_hlo_value sum_waves(rn_hlo *h, rn_hlo_value x, rn_hlo_value waves, uint32_t axis) {
    uint64_t axes[RN_MAX_RANK];
    rn_hlo_dot dot = {.sum_a = {axis}, .sum_b = {0}, .sum_count = 1};
    rn_hlo_value y = rn_hlo_product(h, x, waves, &dot);
    for (uint32_t i = 0; i < y.shape.rank; i++)
        axes[i] = i < axis ? i : i == axis ? y.shape.rank - 1 : i - 1;
    return rn_hlo_transpose(h, y, axes);
}

RN_HLO_EMITTER(dft) {
    const rn_dft_attrs *a = call->attrs;
    rn_hlo_value x = rn_hlo_widen(h, in[0]), re, im = {0}, parts[2];
    uint32_t last = x.shape.rank - 1;
    uint64_t n = a->length ? a->length : x.shape.dims[a->axis];
    uint64_t count = call->outputs[0].shape.dims[a->axis];
    rn_hlo_value cosines = find_waves(h, "cosine", n, count, a->inverse, x.dtype);
    rn_hlo_value sines = find_waves(h, "sine", n, count, a->inverse, x.dtype);
    re = make_whole(h, a, rn_hlo_slice(h, x, last, 0, 1), n, 1);
    if (x.shape.dims[last] == 2) im = make_whole(h, a, rn_hlo_slice(h, x, last, 1, 1), n, -1);
    parts[0] = sum_waves(h, re, cosines, a->axis);
    parts[1] = sum_waves(h, re, sines, a->axis);
    if (im.id) {
        parts[0] = rn_hlo_binary(h, "subtract", parts[0], sum_waves(h, im, sines, a->axis));
        parts[1] = rn_hlo_binary(h, "add", parts[1], sum_waves(h, im, cosines, a->axis));
    }
    rn_hlo_value y = a->from_half ? parts[0] : rn_hlo_concat(h, parts, 2, last);
    if (a->inverse) y = rn_hlo_binary(h, "divide", y, rn_hlo_like(h, y, (double)n));
    out[0] = rn_hlo_result(h, call, y);
}

// ---- quantised by scales ------------------------------------------------------------------------

// Scales or zeros as x has elements.
static rn_hlo_value stretch(rn_hlo *h, const rn_linear_attrs *a, rn_hlo_value s, rn_shape x) {
    rn_shape split = {0}, joined = x;
    uint64_t axes[RN_MAX_RANK];
    if (rn_shape_elements(s.shape, 0) == 1)
        return rn_hlo_expand(h, rn_hlo_reshape(h, s, RN_SCALAR), x);
    if (a->block == 0) return rn_hlo_broadcast(h, s, x, (uint64_t[]){a->axis});
    if (s.shape.rank == RN_MAX_RANK) {
        rn_hlo_refuse(h, "blocks of too many axes");
        return s;
    }
    for (uint32_t i = 0; i < x.rank; i++) {
        axes[i] = split.rank;
        split.dims[split.rank++] = s.shape.dims[i];
        if (i == a->axis) split.dims[split.rank++] = a->block;
    }
    joined.dims[a->axis] = s.shape.dims[a->axis] * a->block;
    s = rn_hlo_reshape(h, rn_hlo_broadcast(h, s, split, axes), joined);
    return rn_hlo_slice(h, s, a->axis, 0, x.dims[a->axis]);
}

RN_HLO_EMITTER(quantize_linear) {
    const rn_linear_attrs *a = call->attrs;
    rn_dtype to = call->outputs[0].dtype;
    if (!rn_hlo_element(to)) {
        rn_hlo_refuse(h, "StableHLO has no %s", rn_dtype_get(to)->name);
        return;
    }
    rn_hlo_value x = rn_hlo_convert(h, in[RN_LINEAR_X], RN_DTYPE_F32);
    rn_hlo_value scale = rn_hlo_convert(h, in[RN_LINEAR_SCALE], RN_DTYPE_F32);
    x = rn_hlo_binary(h, "divide", x, stretch(h, a, scale, x.shape));
    // 24 bits hold every range but that of i32.
    x = rn_hlo_unary(h, "round_nearest_even", x);
    if (to == RN_DTYPE_I32) x = rn_hlo_convert(h, x, RN_DTYPE_F64);
    if (in[RN_LINEAR_ZERO].id) {
        rn_hlo_value zero = rn_hlo_convert(h, in[RN_LINEAR_ZERO], x.dtype);
        x = rn_hlo_binary(h, "add", x, stretch(h, a, zero, x.shape));
    }
    if (a->low != a->high) {
        x = rn_hlo_binary(h, "maximum", x, rn_hlo_like(h, x, a->low));
        x = rn_hlo_binary(h, "minimum", x, rn_hlo_like(h, x, a->high));
    }
    out[0] = rn_hlo_truncate(h, x, to);
}

RN_HLO_EMITTER(dequantize_linear) {
    const rn_linear_attrs *a = call->attrs;
    rn_dtype exact = in[RN_LINEAR_X].dtype == RN_DTYPE_I32 ? RN_DTYPE_F64 : RN_DTYPE_F32;
    rn_hlo_value x = rn_hlo_convert(h, in[RN_LINEAR_X], exact);
    rn_hlo_value scale = rn_hlo_convert(h, in[RN_LINEAR_SCALE], RN_DTYPE_F32);
    if (in[RN_LINEAR_ZERO].id) {
        rn_hlo_value zero = rn_hlo_convert(h, in[RN_LINEAR_ZERO], exact);
        x = rn_hlo_binary(h, "subtract", x, stretch(h, a, zero, x.shape));
    }
    x = rn_hlo_convert(h, x, RN_DTYPE_F32);
    out[0] = rn_hlo_result(h, call, rn_hlo_binary(h, "multiply", x, stretch(h, a, scale, x.shape)));
}

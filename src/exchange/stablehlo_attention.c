// stablehlo_attention.c — rope and attention; stablehlo_pages.c has the KV cache.
//
// Scores are held as a whole, keys last; what a query may not see is -infinity before the softmax.
// Heads that share a key head stand beside each other: H heads are (HK, G).
#include "exchange/stablehlo_attention.h"
#include "graph/attention_row.h"
#include "graph/rope_frequencies.h"

#include <math.h>
#include <stdio.h>

// ---- rope ---------------------------------------------------------------------------------------

// cos and sin of position * frequency, f32 (..., T, 1, pairs), from angles in f64: in f32 those of
// a long context would have lost their fraction.
static void find_turns(rn_hlo *h, const rn_call *call, const rn_hlo_value *in, uint64_t pairs,
                       rn_hlo_value *out_cos, rn_hlo_value *out_sin) {
    const rn_rope_attrs *attrs = call->attrs;
    rn_shape angles = call->inputs[0].shape;
    uint64_t axes[RN_MAX_RANK], last = angles.rank - 1;
    double frequencies[4096], factor = 1;
    if (pairs > 4096) {
        rn_hlo_refuse(h, "a head of more than 8192 dims");
        return;
    }
    rn_rope_frequencies(attrs, angles.dims[last], frequencies, &factor);
    angles.dims[last - 1] = 1;
    angles.dims[last] = pairs;
    for (uint32_t i = 0; i + 2 < angles.rank; i++)
        axes[i] = i;
    rn_hlo_value speed = rn_hlo_bytes(h, RN_DTYPE_F64, RN_SHAPE(pairs), frequencies);
    if (call->input_count > 2 && in[2].id)
        speed = rn_hlo_binary(h, "divide", speed, rn_hlo_convert(h, in[2], RN_DTYPE_F64));
    rn_hlo_value at = rn_hlo_convert(h, in[1], RN_DTYPE_F64);
    if (rn_rope_section_count(attrs)) { // a position a pair
        int32_t sections[4096], first[RN_ROPE_SECTIONS] = {0, 1, 2, 3};
        for (uint64_t i = 0; i < pairs; i++)
            sections[i] = rn_rope_place(&(rn_rope_places){attrs, first}, i);
        rn_hlo_value ids = rn_hlo_bytes(h, RN_DTYPE_I32, RN_SHAPE(pairs), sections);
        at = rn_hlo_take(h, at, ids, at.shape.rank - 1);
        axes[angles.rank - 2] = last;
    }
    rn_hlo_value angle = rn_hlo_binary(h, "multiply", rn_hlo_broadcast(h, at, angles, axes),
                                       rn_hlo_expand(h, speed, angles));
    rn_hlo_value turns[2] = {rn_hlo_unary(h, "cosine", angle), rn_hlo_unary(h, "sine", angle)};
    for (int i = 0; i < 2; i++) {
        if (factor != 1)
            turns[i] = rn_hlo_binary(h, "multiply", turns[i], rn_hlo_like(h, turns[i], factor));
        turns[i] = rn_hlo_convert(h, turns[i], RN_DTYPE_F32);
    }
    *out_cos = turns[0];
    *out_sin = attrs->inverse ? rn_hlo_unary(h, "negate", turns[1]) : turns[1];
}

// The first or the second elements of all pairs: (..., heads, pairs).
static rn_hlo_value half_of(rn_hlo *h, rn_hlo_value x, uint64_t pairs, bool halves,
                            uint32_t which) {
    uint32_t last = x.shape.rank - 1;
    rn_shape split = x.shape, half = x.shape;
    half.dims[last] = pairs;
    if (halves) return rn_hlo_slice(h, x, last, which * pairs, pairs);
    if (split.rank == RN_MAX_RANK) {
        rn_hlo_refuse(h, "x of too many axes");
        return x;
    }
    split.dims[last] = pairs;
    split.dims[split.rank++] = 2;
    x = rn_hlo_slice(h, rn_hlo_reshape(h, x, split), last + 1, which, 1);
    return rn_hlo_reshape(h, x, half);
}

static rn_hlo_value join_halves(rn_hlo *h, rn_hlo_value a, rn_hlo_value b, bool halves) {
    uint32_t last = a.shape.rank - 1;
    if (halves) return rn_hlo_concat(h, (rn_hlo_value[]){a, b}, 2, last);
    rn_shape split = a.shape, joined = a.shape;
    split.dims[split.rank++] = 1;
    joined.dims[last] *= 2;
    a = rn_hlo_reshape(h, a, split);
    b = rn_hlo_reshape(h, b, split);
    return rn_hlo_reshape(h, rn_hlo_concat(h, (rn_hlo_value[]){a, b}, 2, last + 1), joined);
}

RN_HLO_EMITTER(rope) {
    const rn_rope_attrs *attrs = call->attrs;
    rn_hlo_value x = rn_hlo_widen(h, in[0]), cosine = {0}, sine = {0}, rest = {0};
    uint32_t last = x.shape.rank - 1;
    uint64_t head_dim = x.shape.dims[last], dims = rn_rope_dims(attrs, head_dim);
    bool halves = attrs->pairing == RN_ROPE_HALVES;
    find_turns(h, call, in, dims / 2, &cosine, &sine);
    if (h->status != RN_OK) return;
    if (dims < head_dim) {
        rest = rn_hlo_slice(h, x, last, dims, head_dim - dims);
        x = rn_hlo_slice(h, x, last, 0, dims);
    }
    rn_hlo_value u = half_of(h, x, dims / 2, halves, 0), v = half_of(h, x, dims / 2, halves, 1);
    cosine = rn_hlo_expand(h, cosine, u.shape);
    sine = rn_hlo_expand(h, sine, u.shape);
    rn_hlo_value a = rn_hlo_binary(h, "subtract", rn_hlo_binary(h, "multiply", u, cosine),
                                   rn_hlo_binary(h, "multiply", v, sine));
    rn_hlo_value b = rn_hlo_binary(h, "add", rn_hlo_binary(h, "multiply", v, cosine),
                                   rn_hlo_binary(h, "multiply", u, sine));
    rn_hlo_value y = join_halves(h, a, b, halves);
    if (rest.id) y = rn_hlo_concat(h, (rn_hlo_value[]){y, rest}, 2, last);
    out[0] = rn_hlo_result(h, call, y);
}

// ---- scores -------------------------------------------------------------------------------------

rn_hlo_softmax rn_hlo_soften(rn_hlo *h, const rn_attention_attrs *attrs, uint64_t dims,
                             rn_hlo_value scores, rn_hlo_value visible, rn_hlo_value bias,
                             rn_hlo_value sinks) {
    uint32_t last = 1u << (scores.shape.rank - 1);
    double scale = (double)rn_attention_scale(attrs, dims);
    rn_hlo_value x = rn_hlo_binary(h, "multiply", scores, rn_hlo_like(h, scores, scale));
    if (attrs->cap > 0) {
        rn_hlo_value cap = rn_hlo_like(h, x, (double)attrs->cap);
        x = rn_hlo_unary(h, "tanh", rn_hlo_binary(h, "divide", x, cap));
        x = rn_hlo_binary(h, "multiply", x, cap);
    }
    if (bias.id) x = rn_hlo_binary(h, "add", x, bias);
    if (visible.id) x = rn_hlo_select(h, visible, x, rn_hlo_like(h, x, -INFINITY));
    rn_hlo_softmax out = {.top = rn_hlo_reduce(h, "maximum", x, last, true)};
    if (sinks.id) out.top = rn_hlo_binary(h, "maximum", out.top, sinks);
    rn_hlo_value none = rn_hlo_compare(h, "EQ", out.top, rn_hlo_like(h, out.top, -INFINITY));
    rn_hlo_value from = rn_hlo_select(h, none, rn_hlo_like(h, out.top, 0), out.top);
    x = rn_hlo_binary(h, "subtract", x, rn_hlo_expand(h, from, x.shape));
    out.weights = rn_hlo_unary(h, "exponential", x);
    out.sum = rn_hlo_reduce(h, "add", out.weights, last, true);
    if (!sinks.id) return out;
    sinks = rn_hlo_unary(h, "exponential", rn_hlo_binary(h, "subtract", sinks, from));
    out.sum = rn_hlo_binary(h, "add", out.sum, sinks);
    return out;
}

rn_hlo_value rn_hlo_divide_by_sum(rn_hlo *h, rn_hlo_value acc, rn_hlo_value sum) {
    rn_hlo_value none = rn_hlo_compare(h, "EQ", sum, rn_hlo_like(h, sum, 0));
    sum = rn_hlo_select(h, none, rn_hlo_like(h, sum, 1), sum);
    return rn_hlo_binary(h, "divide", acc, rn_hlo_expand(h, sum, acc.shape));
}

static rn_hlo_value both(rn_hlo *h, rn_hlo_value a, rn_hlo_value b) {
    return a.id ? rn_hlo_binary(h, "and", a, b) : b;
}

// ---- attention ----------------------------------------------------------------------------------

// (T, S): whether query t sees key s. None where every query sees every key.
static rn_hlo_value find_visible(rn_hlo *h, const rn_attention_attrs *attrs, uint64_t queries,
                                 uint64_t keys) {
    rn_shape shape = RN_SHAPE(queries, keys);
    rn_hlo_value visible = {0};
    if (!attrs->causal && attrs->window == 0) return visible;
    rn_hlo_value key = rn_hlo_iota(h, RN_DTYPE_I32, shape, 1);
    rn_hlo_value at = rn_hlo_iota(h, RN_DTYPE_I32, shape, 0);
    at = rn_hlo_binary(h, "add", at, rn_hlo_like(h, at, (double)keys - (double)queries));
    visible = rn_hlo_compare(h, "LE", key, at); // a window bounds the keys from above, too
    if (attrs->window) {
        rn_hlo_value before =
            rn_hlo_binary(h, "subtract", at, rn_hlo_like(h, at, (double)attrs->window));
        visible = both(h, visible, rn_hlo_compare(h, "GT", key, before));
    }
    return visible;
}

RN_HLO_EMITTER(attention) {
    const rn_attention_attrs *attrs = call->attrs;
    const uint64_t *q = in[0].shape.dims, *k = in[1].shape.dims; // (B, T, H, D), (B, S, HK, D)
    uint64_t batch = q[0], queries = q[1], heads = q[2], dims = q[3], keys = k[1], shared = k[2];
    rn_shape all = RN_SHAPE(batch, shared, queries, heads / shared, keys);
    rn_hlo_value grouped = rn_hlo_reshape(h, rn_hlo_widen(h, in[0]),
                                          RN_SHAPE(batch, queries, shared, heads / shared, dims));
    rn_hlo_value scores =
        rn_hlo_product(h, grouped, in[1],
                       &(rn_hlo_dot){{0, 2}, {0, 2}, {4}, {3}, .batch_count = 2, .sum_count = 1});
    rn_hlo_value visible = find_visible(h, attrs, queries, keys), bias = {0};
    if (visible.id) visible = rn_hlo_broadcast(h, visible, all, (uint64_t[]){2, 4});
    if (in[3].id && in[3].dtype == RN_DTYPE_I32) { // no key before the query's document
        rn_hlo_value begin = rn_hlo_broadcast(h, in[3], all, (uint64_t[]){0, 2});
        rn_hlo_value key = rn_hlo_iota(h, RN_DTYPE_I32, all, 4);
        visible = both(h, visible, rn_hlo_compare(h, "GE", key, begin));
    } else if (in[3].id)
        bias = rn_hlo_broadcast(h, rn_hlo_widen(h, in[3]), all,
                                in[3].shape.rank == 2 ? (uint64_t[]){2, 4} : (uint64_t[]){0, 2, 4});
    rn_hlo_softmax s = rn_hlo_soften(h, attrs, dims, scores, visible, bias, (rn_hlo_value){0});
    rn_hlo_value acc =
        rn_hlo_product(h, s.weights, in[2],
                       &(rn_hlo_dot){{0, 1}, {0, 2}, {4}, {1}, .batch_count = 2, .sum_count = 1});
    acc = rn_hlo_transpose(h, rn_hlo_divide_by_sum(h, acc, s.sum), (uint64_t[]){0, 2, 1, 3, 4});
    out[0] = rn_hlo_result(h, call, rn_hlo_reshape(h, acc, call->outputs[0].shape));
    if (!call->outputs[1].data) return;
    rn_hlo_value lse = rn_hlo_binary(h, "add", s.top, rn_hlo_unary(h, "log", s.sum));
    lse = rn_hlo_reshape(h, lse, RN_SHAPE(batch, shared, queries, heads / shared));
    lse = rn_hlo_transpose(h, lse, (uint64_t[]){0, 1, 3, 2});
    out[1] = rn_hlo_reshape(h, lse, call->outputs[1].shape);
}

// ---- texts side by side -------------------------------------------------------------------------

// (R, R): whether a row sees another as a key, which is in its span.
static rn_hlo_value find_in_span(rn_hlo *h, const rn_attention_attrs *attrs, rn_hlo_value span,
                                 rn_hlo_value row, rn_hlo_value key) {
    uint64_t rows = span.shape.dims[0];
    rn_hlo_value ends[2];
    for (uint32_t i = 0; i < 2; i++) {
        ends[i] = rn_hlo_reshape(h, rn_hlo_slice(h, span, 1, i, 1), RN_SHAPE(rows));
        ends[i] = rn_hlo_broadcast(h, ends[i], key.shape, (uint64_t[]){0});
    }
    rn_hlo_value visible = rn_hlo_compare(h, "GE", key, ends[0]);
    visible = both(h, visible, rn_hlo_compare(h, "LT", key, ends[1]));
    if (attrs->causal) visible = both(h, visible, rn_hlo_compare(h, "LE", key, row));
    if (attrs->window) {
        rn_hlo_value away = rn_hlo_unary(h, "abs", rn_hlo_binary(h, "subtract", key, row));
        rn_hlo_value window = rn_hlo_like(h, away, (double)attrs->window);
        visible = both(h, visible, rn_hlo_compare(h, "LT", away, window));
    }
    return visible;
}

// (HK, R, G, R): the bias of a head (H, 2 * reach + 1) by the distance from query to key.
static rn_hlo_value find_bias(rn_hlo *h, rn_hlo_value bias, rn_hlo_value row, rn_hlo_value key,
                              uint64_t shared) {
    uint64_t heads = bias.shape.dims[0], reach = bias.shape.dims[1] / 2, rows = row.shape.dims[0];
    rn_hlo_value away = rn_hlo_binary(h, "subtract", key, row);
    away = rn_hlo_binary(h, "maximum", away, rn_hlo_like(h, away, -(double)reach));
    away = rn_hlo_binary(h, "minimum", away, rn_hlo_like(h, away, (double)reach));
    away = rn_hlo_binary(h, "add", away, rn_hlo_like(h, away, (double)reach));
    bias = rn_hlo_transpose(h, rn_hlo_widen(h, bias), (uint64_t[]){1, 0});
    bias = rn_hlo_take(h, bias, away, 0); // (R, R, H)
    bias = rn_hlo_reshape(h, bias, RN_SHAPE(rows, rows, shared, heads / shared));
    return rn_hlo_transpose(h, bias, (uint64_t[]){2, 0, 3, 1});
}

RN_HLO_EMITTER(varlen_attention) {
    const rn_attention_attrs *attrs = call->attrs;
    const uint64_t *q = in[0].shape.dims; // (R, H, D)
    uint64_t rows = q[0], heads = q[1], dims = q[2], shared = in[1].shape.dims[1];
    rn_shape square = RN_SHAPE(rows, rows), all = RN_SHAPE(shared, rows, heads / shared, rows);
    rn_hlo_value row = rn_hlo_iota(h, RN_DTYPE_I32, square, 0);
    rn_hlo_value key = rn_hlo_iota(h, RN_DTYPE_I32, square, 1), bias = {0};
    rn_hlo_value grouped =
        rn_hlo_reshape(h, rn_hlo_widen(h, in[0]), RN_SHAPE(rows, shared, heads / shared, dims));
    rn_hlo_value scores = rn_hlo_product(
        h, grouped, in[1], &(rn_hlo_dot){{1}, {1}, {3}, {2}, .batch_count = 1, .sum_count = 1});
    rn_hlo_value visible =
        rn_hlo_broadcast(h, find_in_span(h, attrs, in[3], row, key), all, (uint64_t[]){1, 3});
    if (in[4].id) bias = find_bias(h, in[4], row, key, shared);
    rn_hlo_softmax s = rn_hlo_soften(h, attrs, dims, scores, visible, bias, (rn_hlo_value){0});
    rn_hlo_value acc = rn_hlo_product(
        h, s.weights, in[2], &(rn_hlo_dot){{0}, {1}, {3}, {0}, .batch_count = 1, .sum_count = 1});
    acc = rn_hlo_transpose(h, rn_hlo_divide_by_sum(h, acc, s.sum), (uint64_t[]){1, 0, 2, 3});
    out[0] = rn_hlo_result(h, call, rn_hlo_reshape(h, acc, call->outputs[0].shape));
}

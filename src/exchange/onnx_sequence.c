// onnx_sequence.c — ONNX's ops along an axis: running sums, sorting, recurrent layers, spectra,
// attention.
#include "exchange/onnx_importer.h"

#include <math.h>
#include <stdio.h>

// ---- along an axis ------------------------------------------------------------------------------

static void cumulate(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0);
    uint32_t rank = rn_import_shape_of(c->import, x).rank;
    int64_t axis = 0;
    size_t count = 0;
    if (!x || !rn_import_ints(c, 1, &axis, 1, &count)) return;
    rn_cumulate_attrs attrs = {.axis = rn_import_axis(c, axis, rank),
                               .product = c->op->argument != 0,
                               .exclusive = rn_import_int(c, "exclusive", 0) != 0,
                               .reverse = rn_import_int(c, "reverse", 0) != 0};
    rn_import_out(c, 0, rn_op_cumulate(c->graph, x, attrs));
}

static void top_k(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0);
    uint32_t rank = rn_import_shape_of(c->import, x).rank;
    int64_t k = rn_import_int(c, "k", 0);
    size_t count = 0;
    if (!x || (c->version >= 10 && !rn_import_ints(c, 1, &k, 1, &count))) return;
    if (k < 1) {
        rn_import_refuse(c, "the largest %lld", (long long)k);
        return;
    }
    rn_top_k_attrs attrs = {.axis = rn_import_axis(c, rn_import_int(c, "axis", -1), rank),
                            .count = (uint64_t)k,
                            .smallest = rn_import_int(c, "largest", 1) == 0};
    rn_value y = rn_op_top_k(c->graph, x, attrs);
    rn_import_out(c, 0, y);
    rn_import_out(c, 1, rn_graph_output_of(c->graph, y, 1));
}

static void reverse_sequence(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0), lengths = rn_import_in(c, 1);
    rn_reverse_sequence_attrs attrs = {.batch_axis = (uint32_t)rn_import_int(c, "batch_axis", 1),
                                       .time_axis = (uint32_t)rn_import_int(c, "time_axis", 0)};
    if (x && lengths) rn_import_out(c, 0, rn_op_reverse_sequence(c->graph, x, lengths, attrs));
}

// 0, 1, ... as a constant of that dtype along `axis` of `rank`.
static rn_value counting(rn_import_call *c, rn_dtype dtype, uint64_t count, uint32_t axis,
                         uint32_t rank) {
    void *block = NULL;
    rn_shape shape = {.rank = rank};
    if (count > 1 << 22) {
        rn_import_refuse(c, "an axis of %llu", (unsigned long long)count);
        return RN_NO_VALUE;
    }
    rn_status s = rn_arena_array(&c->import->memory, (size_t)count, sizeof(int64_t), &block);
    if (s != RN_OK) {
        rn_graph_spoil(c->graph, s);
        return RN_NO_VALUE;
    }
    for (uint64_t i = 0; i < count; i++)
        ((int64_t *)block)[i] = (int64_t)i;
    for (uint32_t i = 0; i < rank; i++)
        shape.dims[i] = i == axis ? count : 1;
    return rn_import_cast(c->import, rn_import_constant(c->import, RN_DTYPE_I64, shape, block),
                          dtype);
}

// Indices below 0 count from the end; those outside are nowhere.
static void one_hot(rn_import_call *c) {
    rn_graph *g = c->graph;
    rn_import *m = c->import;
    rn_value indices = rn_import_in(c, 0), values = rn_import_in(c, 2);
    rn_shape shape = rn_import_shape_of(m, indices), wide = {.rank = shape.rank + 1};
    int64_t depth = (int64_t)rn_import_number(c, 1, 0);
    if (!indices || !values) return;
    if (depth < 1 || wide.rank > RN_MAX_RANK) {
        rn_import_refuse(c, "a depth of %lld", (long long)depth);
        return;
    }
    uint32_t axis = rn_import_axis(c, rn_import_int(c, "axis", -1), wide.rank);
    for (uint32_t i = 0, at = 0; i < wide.rank; i++)
        wide.dims[i] = i == axis ? 1 : shape.dims[at++];
    rn_value ids = rn_import_reshape(
        m, rn_op_convert(g, indices, (rn_convert_attrs){.dtype = RN_DTYPE_I64}), wide);
    rn_value below = rn_op_compare(g, RN_COMPARE_LESS, ids, rn_import_scalar(m, RN_DTYPE_I64, 0));
    rn_value turned = rn_op_add(g, ids, rn_import_scalar(m, RN_DTYPE_I64, (double)depth));
    ids = rn_op_select(g, below, turned, ids);
    rn_value places = counting(c, RN_DTYPE_I64, (uint64_t)depth, axis, wide.rank);
    rn_value hot = rn_op_compare(g, RN_COMPARE_EQUAL, ids, places);
    rn_value off = rn_import_reshape(m, rn_op_slice(g, values, 0, 0, 1), RN_SCALAR),
             on = rn_import_reshape(m, rn_op_slice(g, values, 0, 1, 1), RN_SCALAR);
    rn_import_out(c, 0, rn_op_select(g, hot, on, off));
}

static void trilu(rn_import_call *c) {
    rn_graph *g = c->graph;
    if (rn_import_is_empty(c, 0)) {
        rn_import_out_empty(c, 0, rn_import_dtype(c, 0), rn_import_shape(c, 0));
        return;
    }
    rn_value x = rn_import_in(c, 0);
    rn_shape s = rn_import_shape_of(c->import, x);
    double k = rn_import_number(c, 1, 0);
    if (!x) return;
    if (s.rank < 2 || (s.rank == 2 && s.dims[0] == RN_ROWS)) {
        rn_import_refuse(c, "of %s", rn_shape_format(s).text);
        return;
    }
    k = fmin(fmax(k, -(double)(1 << 30)), 1 << 30);
    rn_value rows = counting(c, RN_DTYPE_I64, s.dims[s.rank - 2], 0, 2),
             columns = counting(c, RN_DTYPE_I64, s.dims[s.rank - 1], 1, 2);
    rn_value edge = rn_op_add(g, rows, rn_import_scalar(c->import, RN_DTYPE_I64, k));
    bool upper = rn_import_int(c, "upper", 1) != 0;
    rn_value kept =
        rn_op_compare(g, upper ? RN_COMPARE_GREATER_EQUAL : RN_COMPARE_LESS_EQUAL, columns, edge);
    rn_value zero = rn_import_scalar(c->import, rn_import_dtype_of(c->import, x), 0);
    rn_import_out(c, 0, rn_op_select(g, kept, x, zero));
}

// ---- recurrent layers ---------------------------------------------------------------------------

static bool read_functions(rn_import_call *c, rn_rnn_attrs *out, uint32_t each) {
    static const char *const functions[] = {
        "",           "sigmoid",     "tanh", "relu",     "affine",  "leakyrelu", "thresholdedrelu",
        "scaledtanh", "hardsigmoid", "elu",  "softsign", "softplus"};
    static const struct {
        rn_rnn_function function;
        double a, b;
    } usual[] = {{RN_RNN_LEAKY_RELU, 0.01, 0},    {RN_RNN_THRESHOLDED_RELU, 1, 0},
                 {RN_RNN_HARD_SIGMOID, 0.2, 0.5}, {RN_RNN_ELU, 1, 0},
                 {RN_RNN_AFFINE, 1, 0},           {RN_RNN_SCALED_TANH, 1, 1}};
    const rn_onnx_attribute *names = rn_import_attribute(c, "activations"),
                            *a = rn_import_attribute(c, "activation_alpha"),
                            *b = rn_import_attribute(c, "activation_beta");
    size_t count = names && names->type == RN_ONNX_TEXTS ? names->count : 0;
    for (size_t i = 0; i < count && i < (out->both ? 2 : 1) * each; i++) {
        size_t place = i / each * 3 + i % each;
        int found = -1;
        for (int k = 1; k < (int)(sizeof functions / sizeof *functions); k++)
            if (rn_str_equal_ignoring_case(names->texts[i], rn_str_from(functions[k]))) found = k;
        if (found < 0) {
            rn_import_refuse(c, "the activation %.*s", RN_STR_ARG(names->texts[i]));
            return false;
        }
        out->functions[place] = (rn_rnn_function)found;
        for (size_t k = 0; k < sizeof usual / sizeof *usual; k++)
            if ((int)usual[k].function == found)
                out->a[place] = usual[k].a, out->b[place] = usual[k].b;
        if (a && i < a->count) out->a[place] = a->floats[i];
        if (b && i < b->count) out->b[place] = b->floats[i];
    }
    return true;
}

static void recurrent(rn_import_call *c) {
    static const uint32_t activations[] = {1, 3, 2};
    rn_rnn_kind kind = (rn_rnn_kind)c->op->argument;
    rn_rnn_attrs attrs = {.kind = kind,
                          .reverse = rn_import_text_is(c, "direction", "forward", "reverse"),
                          .both = rn_import_text_is(c, "direction", "forward", "bidirectional"),
                          .batch_first = rn_import_int(c, "layout", 0) != 0,
                          .reset_after = rn_import_int(c, "linear_before_reset", 0) != 0,
                          .coupled = rn_import_int(c, "input_forget", 0) != 0,
                          .clip = rn_import_float(c, "clip", 0)};
    rn_rnn_inputs in = {.x = rn_import_in(c, 0),
                        .w = rn_import_in(c, 1),
                        .r = rn_import_in(c, 2),
                        .bias = rn_import_optional(c, 3),
                        .lengths = rn_import_optional(c, 4),
                        .h = rn_import_optional(c, 5)};
    if (kind == RN_RNN_LSTM) {
        in.c = rn_import_optional(c, 6);
        in.peepholes = rn_import_optional(c, 7);
    }
    rn_shape r = rn_import_shape_of(c->import, in.r);
    if (!in.x || !in.w || !in.r || r.rank != 3) return;
    attrs.hidden = (uint32_t)r.dims[2];
    if (!read_functions(c, &attrs, activations[kind])) return;
    rn_value y = rn_op_rnn(c->graph, in, attrs);
    rn_import_out(c, 0, y);
    rn_import_out(c, 1, rn_graph_output_of(c->graph, y, 1));
    if (kind == RN_RNN_LSTM) rn_import_out(c, 2, rn_graph_output_of(c->graph, y, 2));
}

// ---- spectra ------------------------------------------------------------------------------------

static void dft(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0);
    rn_shape shape = rn_import_shape_of(c->import, x);
    int64_t length = 0, axis = c->version >= 20 ? -2 : rn_import_int(c, "axis", 1);
    size_t count = 0;
    bool inverse = rn_import_int(c, "inverse", 0) != 0, half = rn_import_int(c, "onesided", 0) != 0;
    if (!x || !rn_import_ints(c, 1, &length, 1, &count)) return;
    if (c->version >= 20 && rn_import_has(c, 2) && !rn_import_ints(c, 2, &axis, 1, &count)) return;
    rn_dft_attrs attrs = {.axis = rn_import_axis(c, axis, shape.rank),
                          .length = (uint64_t)length,
                          .inverse = inverse,
                          .half = half && !inverse,
                          .from_half = half && inverse};
    if (attrs.from_half && length == 0 && shape.rank)
        attrs.length = 2 * (shape.dims[attrs.axis] - 1);
    rn_import_out(c, 0, rn_op_dft(c->graph, x, attrs));
}

// Frames that overlap, each times a window, each transformed.
static void stft(rn_import_call *c) {
    rn_graph *g = c->graph;
    rn_import *m = c->import;
    rn_value x = rn_import_in(c, 0), window = rn_import_optional(c, 2);
    rn_shape s = rn_import_shape_of(m, x), of_window = rn_import_shape_of(m, window);
    int64_t step = (int64_t)rn_import_number(c, 1, 0), length = (int64_t)rn_import_number(c, 3, 0);
    if (!x) return;
    if (length == 0 && window) length = (int64_t)of_window.dims[0];
    if (s.rank < 2 || s.rank > 3 || step < 1 || length < 1 || s.dims[1] < (uint64_t)length ||
        s.dims[0] == RN_ROWS) {
        rn_import_refuse(c, "frames of %lld every %lld of %s", (long long)length, (long long)step,
                         rn_shape_format(s).text);
        return;
    }
    uint64_t parts = s.rank == 3 ? s.dims[2] : 1;
    uint64_t frames = (s.dims[1] - (uint64_t)length) / (uint64_t)step + 1;
    x = rn_import_reshape(m, x, RN_SHAPE(s.dims[0], s.dims[1], parts));
    rn_value starts = rn_op_mul(g, counting(c, RN_DTYPE_I64, frames, 0, 2),
                                rn_import_scalar(m, RN_DTYPE_I64, (double)step));
    rn_value places = rn_op_add(g, starts, counting(c, RN_DTYPE_I64, (uint64_t)length, 1, 2));
    rn_value cut = rn_op_gather(g, x, places, 1); // (B, frames, length, parts)
    if (window)
        cut = rn_op_mul(g, cut, rn_import_reshape(m, window, RN_SHAPE((uint64_t)length, 1)));
    rn_dft_attrs attrs = {.axis = 2, .half = rn_import_int(c, "onesided", 1) != 0};
    rn_import_out(c, 0, cut ? rn_op_dft(g, cut, attrs) : RN_NO_VALUE);
}

// ---- attention ----------------------------------------------------------------------------------

static const uint8_t heads_out[] = {0, 2, 1, 3};

// (B, T, heads * D) as (B, heads, T, D); four axes stay.
static rn_value split_heads(rn_import_call *c, rn_value x, uint64_t heads) {
    rn_shape s = rn_import_shape_of(c->import, x);
    if (!x || s.rank == 4) return x;
    if (s.rank != 3 || heads == 0 || s.dims[2] % heads) {
        rn_import_refuse(c, "%llu heads of %s", (unsigned long long)heads, rn_shape_format(s).text);
        return RN_NO_VALUE;
    }
    rn_shape to = RN_SHAPE(s.dims[0], s.dims[1], heads, s.dims[2] / heads);
    return rn_import_permute(c->import, rn_import_reshape(c->import, x, to), heads_out);
}

rn_value rn_import_repeat_heads(rn_import_call *c, rn_value x, uint64_t times) {
    rn_shape s = rn_import_shape_of(c->import, x);
    if (!x || times == 1) return x;
    x = rn_import_reshape(c->import, x, RN_SHAPE(s.dims[0], s.dims[1], 1, s.dims[2], s.dims[3]));
    x = rn_op_broadcast(c->graph, x, RN_SHAPE(s.dims[0], s.dims[1], times, s.dims[2], s.dims[3]));
    s.dims[1] *= times;
    return rn_import_reshape(c->import, x, s);
}

typedef struct attending {
    rn_value q, k, v; // (B, H, T, D), heads repeated
    uint64_t queries, keys, past;
    rn_dtype dtype;
} attending;

// What is added to the scores: the mask's numbers, -inf where it or the order forbids a key.
static rn_value attention_bias(rn_import_call *c, const attending *a) {
    rn_graph *g = c->graph;
    rn_import *m = c->import;
    rn_value mask = rn_import_optional(c, 3), bias = RN_NO_VALUE,
             lengths = rn_import_optional(c, 6);
    rn_value none = rn_import_scalar(m, RN_DTYPE_F32, -INFINITY),
             zero = rn_import_scalar(m, RN_DTYPE_F32, 0);
    if (mask) {
        bias = rn_import_dtype_of(m, mask) == RN_DTYPE_BOOL ? rn_op_select(g, mask, zero, none)
                                                            : rn_import_cast(m, mask, RN_DTYPE_F32);
        rn_shape s = rn_import_shape_of(m, bias);
        uint64_t there = s.rank ? s.dims[s.rank - 1] : 0;
        if (bias && s.rank && there < a->keys && there != 1) { // keys behind it are not seen
            s.dims[s.rank - 1] = a->keys - there;
            rn_value rest = rn_op_broadcast(g, none, s);
            bias = rn_op_concat(g, (rn_value[]){bias, rest}, 2, s.rank - 1);
        }
    }
    if (lengths) {
        rn_shape s = rn_import_shape_of(m, lengths);
        rn_value end = rn_import_reshape(m, rn_import_cast(m, lengths, RN_DTYPE_I64),
                                         RN_SHAPE(s.dims[0], 1, 1, 1));
        rn_value seen =
            rn_op_compare(g, RN_COMPARE_LESS, counting(c, RN_DTYPE_I64, a->keys, 3, 4), end);
        rn_value more = rn_op_select(g, seen, zero, none);
        bias = bias ? rn_op_add(g, bias, more) : more;
    }
    if (rn_import_int(c, "is_causal", 0)) {
        rn_value row = rn_op_add(g, counting(c, RN_DTYPE_I64, a->queries, 0, 2),
                                 rn_import_scalar(m, RN_DTYPE_I64, (double)a->past));
        rn_value column = counting(c, RN_DTYPE_I64, a->keys, 1, 2);
        rn_value more = rn_op_select(g, rn_op_compare(g, RN_COMPARE_LESS, row, column), none, zero);
        bias = bias ? rn_op_add(g, bias, more) : more;
    }
    return bias;
}

static bool open_attention(rn_import_call *c, attending *a) {
    rn_graph *g = c->graph;
    rn_import *m = c->import;
    uint64_t heads = (uint64_t)rn_import_int(c, "q_num_heads", 0),
             kv_heads = (uint64_t)rn_import_int(c, "kv_num_heads", 0);
    rn_value past_k = rn_import_optional(c, 4), past_v = rn_import_optional(c, 5);
    a->q = split_heads(c, rn_import_in(c, 0), heads);
    a->k = split_heads(c, rn_import_in(c, 1), kv_heads);
    a->v = split_heads(c, rn_import_in(c, 2), kv_heads);
    if (!a->q || !a->k || !a->v) return false;
    a->dtype = rn_import_dtype_of(m, a->q);
    if (past_k) {
        a->past = rn_import_shape_of(m, past_k).dims[2];
        a->k = rn_op_concat(g, (rn_value[]){past_k, a->k}, 2, 2);
        a->v = rn_op_concat(g, (rn_value[]){past_v, a->v}, 2, 2);
    }
    rn_import_out(c, 1, a->k);
    rn_import_out(c, 2, a->v);
    rn_shape q = rn_import_shape_of(m, a->q), k = rn_import_shape_of(m, a->k);
    if (!a->k || !a->v || k.dims[1] == 0 || q.dims[1] % k.dims[1]) {
        rn_import_refuse(c, "%llu heads over %llu", (unsigned long long)q.dims[1],
                         (unsigned long long)k.dims[1]);
        return false;
    }
    a->queries = q.dims[2], a->keys = k.dims[2];
    a->k = rn_import_repeat_heads(c, a->k, q.dims[1] / k.dims[1]);
    a->v = rn_import_repeat_heads(c, a->v, q.dims[1] / k.dims[1]);
    return a->k && a->v;
}

// (B, H, T, D) in the form that the queries have.
static void finish_attention(rn_import_call *c, rn_value y, rn_dtype dtype) {
    rn_shape s = rn_import_shape_of(c->import, y);
    if (rn_import_rank(c, 0) == 3)
        y = rn_import_reshape(c->import, rn_import_permute(c->import, y, heads_out),
                              RN_SHAPE(s.dims[0], s.dims[2], s.dims[1] * s.dims[3]));
    rn_import_out(c, 0, rn_import_cast(c->import, y, dtype));
}

static void attention(rn_import_call *c) {
    rn_graph *g = c->graph;
    rn_import *m = c->import;
    attending a = {0};
    if (!open_attention(c, &a)) return;
    rn_shape q = rn_import_shape_of(m, a.q);
    double scale = rn_import_float(c, "scale", 0);
    if (scale == 0) scale = 1 / sqrt((double)q.dims[3]);
    float cap = rn_import_float(c, "softcap", 0);
    int64_t shown = rn_import_int(c, "qk_matmul_output_mode", 0);
    rn_value bias = attention_bias(c, &a), y = RN_NO_VALUE;
    if (cap <= 0 && !rn_import_wants(c, 3))
        y = rn_import_attend(c, a.q, a.k, a.v, (float)scale, bias);
    if (y) {
        finish_attention(c, y, a.dtype);
        return;
    }
    rn_value x = rn_import_cast(m, a.q, RN_DTYPE_F32), k = rn_import_cast(m, a.k, RN_DTYPE_F32);
    rn_value scores = rn_op_matmul(g, rn_op_scale(g, x, (float)scale, 0), k, RN_NO_VALUE);
    rn_value looked_at = shown == 0 ? scores : RN_NO_VALUE;
    if (cap > 0) scores = rn_op_scale(g, rn_op_tanh(g, rn_op_scale(g, scores, 1 / cap, 0)), cap, 0);
    if (shown == 1) looked_at = scores;
    if (bias) scores = rn_op_add(g, scores, bias);
    if (shown == 2) looked_at = scores;
    rn_value chances = rn_op_soft(g, RN_SOFT_MAX, scores, 3);
    if (shown == 3) looked_at = chances;
    y = rn_op_matmul_as(g, chances, rn_import_cast(m, a.v, RN_DTYPE_F32), RN_NO_VALUE,
                        (rn_matmul_attrs){.transpose_w = true});
    finish_attention(c, y, a.dtype);
    rn_import_out(c, 3, rn_import_cast(m, looked_at, a.dtype));
}

// Pairs (halves, or neighbours) turned by cos and sin; the rest of a head stays.
static rn_value turn(rn_import_call *c, rn_value x, rn_value cosine, rn_value sine,
                     bool neighbours) {
    rn_graph *g = c->graph;
    rn_import *m = c->import;
    rn_shape s = rn_import_shape_of(m, x), pairs = s;
    uint64_t half = s.dims[s.rank - 1] / 2;
    uint32_t axis = s.rank - 1;
    rn_value a, b;
    pairs.rank++;
    pairs.dims[axis] = half, pairs.dims[axis + 1] = 2;
    rn_shape one = s;
    one.dims[axis] = half;
    if (neighbours) {
        rn_value split = rn_import_reshape(m, x, pairs);
        a = rn_import_reshape(m, rn_op_slice(g, split, axis + 1, 0, 1), one);
        b = rn_import_reshape(m, rn_op_slice(g, split, axis + 1, 1, 1), one);
    } else {
        a = rn_op_slice(g, x, axis, 0, half);
        b = rn_op_slice(g, x, axis, half, half);
    }
    rn_value real = rn_op_sub(g, rn_op_mul(g, cosine, a), rn_op_mul(g, sine, b));
    rn_value imaginary = rn_op_add(g, rn_op_mul(g, sine, a), rn_op_mul(g, cosine, b));
    if (!neighbours) return rn_op_concat(g, (rn_value[]){real, imaginary}, 2, axis);
    pairs.dims[axis + 1] = 1;
    rn_value both[] = {rn_import_reshape(m, real, pairs), rn_import_reshape(m, imaginary, pairs)};
    return rn_import_reshape(m, rn_op_concat(g, both, 2, axis + 1), s);
}

static void rotary(rn_import_call *c) {
    rn_graph *g = c->graph;
    rn_import *m = c->import;
    rn_value x = rn_import_in(c, 0), cosine = rn_import_in(c, 1), sine = rn_import_in(c, 2),
             positions = rn_import_optional(c, 3);
    rn_shape given = rn_import_shape_of(m, x);
    uint64_t heads = (uint64_t)rn_import_int(c, "num_heads", 0),
             turned = (uint64_t)rn_import_int(c, "rotary_embedding_dim", 0);
    if (!x || !cosine || !sine) return;
    x = given.rank == 4 ? rn_import_permute(m, x, heads_out) : x; // (B, T, H, D)
    if (given.rank == 3 && heads && given.dims[2] % heads == 0)
        x = rn_import_reshape(m, x,
                              RN_SHAPE(given.dims[0], given.dims[1], heads, given.dims[2] / heads));
    rn_shape s = rn_import_shape_of(m, x);
    if (!x || s.rank != 4 || turned > s.dims[3] || (turned ? turned : s.dims[3]) % 2) {
        rn_import_refuse(c, "%llu heads of %s", (unsigned long long)heads,
                         rn_shape_format(given).text);
        return;
    }
    if (positions) {
        cosine = rn_op_gather(g, cosine, positions, 0);
        sine = rn_op_gather(g, sine, positions, 0);
    }
    uint64_t size = turned ? turned : s.dims[3];
    rn_shape table = rn_import_shape_of(m, cosine);
    if (table.rank != 3 || table.dims[2] != size / 2) {
        rn_import_refuse(c, "a table of %s", rn_shape_format(table).text);
        return;
    }
    rn_shape to = RN_SHAPE(table.dims[0], table.dims[1], 1, table.dims[2]);
    rn_value part = size == s.dims[3] ? x : rn_op_slice(g, x, 3, 0, size);
    rn_value y = turn(c, part, rn_import_reshape(m, cosine, to), rn_import_reshape(m, sine, to),
                      rn_import_int(c, "interleaved", 0) != 0);
    if (y && size < s.dims[3]) {
        rn_value rest = rn_op_slice(g, x, 3, size, s.dims[3] - size);
        y = rn_op_concat(g, (rn_value[]){y, rest}, 2, 3);
    }
    rn_import_out(c, 0,
                  given.rank == 4 ? rn_import_permute(m, y, heads_out)
                                  : rn_import_reshape(m, y, given));
}

const rn_import_op rn_onnx_sequence_ops[] = {
    {"CumSum", cumulate, 0},
    {"CumProd", cumulate, 1},
    {"TopK", top_k, 0},
    {"ReverseSequence", reverse_sequence, 0},
    {"OneHot", one_hot, 0},
    {"Trilu", trilu, 0},
    {"RNN", recurrent, RN_RNN_PLAIN},
    {"LSTM", recurrent, RN_RNN_LSTM},
    {"GRU", recurrent, RN_RNN_GRU},
    {"DFT", dft, 0},
    {"STFT", stft, 0},
    {"Attention", attention, 0},
    {"RotaryEmbedding", rotary, 0},
    {NULL, NULL, 0},
};

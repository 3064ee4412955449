// onnx_export_attention.c — rope, attention and the KV cache.
//
// Heads that share a key head stand beside each other: H heads are (HK, G). Queries of all rows and
// heads of a group are the rows of one product, (HK, R G, D) by (HK, D, keys), so that no shape has
// two sizes that are not known.
//
//     kv (pages, 2, HK, page_tokens, D)     page_table (sequences, max_pages)
//
// Attention gathers the pages of all sequences up to the largest position of the run, and masks
// what is another sequence's or lies behind a row.
#include "exchange/onnx_export_ops.h"
#include "graph/attention_row.h"
#include "graph/rope_frequencies.h"

#include <math.h>

#define PI     3.14159265358979323846
#define HIDDEN (-3e38) // a score that weighs nothing; infinite ones would make NaN of a row of them

// ---- rope ---------------------------------------------------------------------------------------

// cos and sin of position * frequency, f32 (..., T, 1, pairs). Angles are f64, where those of a
// long context keep their fraction, and become f32 within a turn.
static void find_turns(rn_export *h, const rn_call *call, const rn_export_value *in, uint64_t pairs,
                       rn_export_value out[2]) {
    const rn_rope_attrs *attrs = call->attrs;
    rn_shape angles = call->inputs[0].shape;
    uint32_t last = angles.rank - 1;
    double frequencies[4096], factor = 1;
    if (pairs > 4096) {
        rn_export_refuse(h, "a head of more than 8192 dims");
        return;
    }
    rn_rope_frequencies(attrs, angles.dims[last], frequencies, &factor);
    angles.dims[last] = angles.dims[last - 1] = 1;
    rn_export_value speed = rn_export_data(h, RN_DTYPE_F64, RN_SHAPE(pairs), frequencies);
    if (call->input_count > 2 && in[2].id)
        speed = rn_export_binary(h, "Div", speed, rn_export_cast(h, in[2], RN_DTYPE_F64));
    rn_export_value at = rn_export_cast(h, in[1], RN_DTYPE_F64);
    if (rn_rope_section_count(attrs)) { // a position a pair
        int64_t sections[4096];
        int32_t first[RN_ROPE_SECTIONS] = {0, 1, 2, 3};
        for (uint64_t i = 0; i < pairs; i++)
            sections[i] = rn_rope_place(&(rn_rope_places){attrs, first}, i);
        rn_export_value ids = rn_export_data(h, RN_DTYPE_I64, RN_SHAPE(pairs), sections);
        at = rn_export_gather(h, at, ids, at.shape.rank - 1);
        angles.dims[last] = pairs;
    }
    at = rn_export_reshape(h, at, angles);
    rn_export_value angle = rn_export_binary(h, "Mul", at, speed);
    rn_export_value turns = rn_export_unary(h, "Floor", rn_export_with(h, "Mul", angle, 0.5 / PI));
    angle = rn_export_binary(h, "Sub", angle, rn_export_with(h, "Mul", turns, 2 * PI));
    angle = rn_export_cast(h, angle, RN_DTYPE_F32);
    out[0] = rn_export_unary(h, "Cos", angle);
    out[1] = rn_export_unary(h, "Sin", angle);
    for (int i = 0; i < 2; i++)
        if (factor != 1) out[i] = rn_export_with(h, "Mul", out[i], factor);
    if (attrs->inverse) out[1] = rn_export_unary(h, "Neg", out[1]);
}

// The first or the second elements of all pairs: (..., heads, pairs).
static rn_export_value half_of(rn_export *h, rn_export_value x, uint64_t pairs, bool halves,
                               uint32_t which) {
    uint32_t last = x.shape.rank - 1;
    rn_shape split = x.shape, half = x.shape;
    half.dims[last] = pairs;
    if (halves) return rn_export_slice(h, x, last, which * pairs, pairs);
    if (split.rank == RN_MAX_RANK) {
        rn_export_refuse(h, "x of too many axes");
        return x;
    }
    split.dims[last] = pairs;
    split.dims[split.rank++] = 2;
    x = rn_export_slice(h, rn_export_reshape(h, x, split), last + 1, which, 1);
    return rn_export_reshape(h, x, half);
}

static rn_export_value join_halves(rn_export *h, rn_export_value a, rn_export_value b,
                                   bool halves) {
    uint32_t last = a.shape.rank - 1;
    if (halves) return rn_export_concat(h, (rn_export_value[]){a, b}, 2, last);
    rn_shape split = a.shape, joined = a.shape;
    split.dims[split.rank++] = 1;
    joined.dims[last] *= 2;
    a = rn_export_reshape(h, a, split);
    b = rn_export_reshape(h, b, split);
    return rn_export_reshape(h, rn_export_concat(h, (rn_export_value[]){a, b}, 2, last + 1),
                             joined);
}

RN_EXPORTER(rope) {
    const rn_rope_attrs *attrs = call->attrs;
    rn_export_value x = rn_export_widen(h, in[0]), turn[2] = {0}, rest = {0};
    uint32_t last = x.shape.rank - 1;
    uint64_t head_dim = x.shape.dims[last], dims = rn_rope_dims(attrs, head_dim);
    bool halves = attrs->pairing == RN_ROPE_HALVES;
    find_turns(h, call, in, dims / 2, turn);
    if (h->status != RN_OK) return;
    if (dims < head_dim) {
        rest = rn_export_slice(h, x, last, dims, head_dim - dims);
        x = rn_export_slice(h, x, last, 0, dims);
    }
    rn_export_value u = half_of(h, x, dims / 2, halves, 0), v = half_of(h, x, dims / 2, halves, 1);
    rn_export_value a = rn_export_binary(h, "Sub", rn_export_binary(h, "Mul", u, turn[0]),
                                         rn_export_binary(h, "Mul", v, turn[1]));
    rn_export_value b = rn_export_binary(h, "Add", rn_export_binary(h, "Mul", v, turn[0]),
                                         rn_export_binary(h, "Mul", u, turn[1]));
    rn_export_value y = join_halves(h, a, b, halves);
    if (rest.id) y = rn_export_concat(h, (rn_export_value[]){y, rest}, 2, last);
    out[0] = rn_export_result(h, call, y);
}

// ---- scores -------------------------------------------------------------------------------------

static rn_export_value both(rn_export *h, rn_export_value a, rn_export_value b) {
    return a.id ? rn_export_compare(h, "And", a, b) : b;
}

static rn_export_value multiply(rn_export *h, rn_export_value a, rn_export_value b,
                                rn_shape shape) {
    return rn_export_node(h, "MatMul", (rn_export_value[]){a, b}, 2, NULL, 0, RN_DTYPE_F32, shape);
}

// Weights of scores (..., queries, keys); `visible` and `bias` broadcast, each may be none. A row
// that sees nothing weighs nothing.
static rn_export_value soften(rn_export *h, const rn_attention_attrs *attrs, uint64_t dims,
                              rn_export_value scores, rn_export_value visible,
                              rn_export_value bias) {
    rn_export_value x = rn_export_with(h, "Mul", scores, (double)rn_attention_scale(attrs, dims));
    rn_export_attr last = RN_EXPORT_INT("axis", -1);
    if (attrs->cap > 0) {
        x = rn_export_unary(h, "Tanh", rn_export_with(h, "Div", x, (double)attrs->cap));
        x = rn_export_with(h, "Mul", x, (double)attrs->cap);
    }
    if (bias.id) x = rn_export_binary(h, "Add", x, bias);
    if (visible.id) x = rn_export_where(h, visible, x, rn_export_scalar(h, RN_DTYPE_F32, HIDDEN));
    x = rn_export_node(h, "Softmax", &x, 1, &last, 1, RN_DTYPE_F32, x.shape);
    if (visible.id) x = rn_export_where(h, visible, x, rn_export_scalar(h, RN_DTYPE_F32, 0));
    return x;
}

// (R, H, D) as (HK, R G, D), and back.
static rn_export_value group_heads(rn_export *h, rn_export_value q, uint64_t shared) {
    uint64_t heads = q.shape.dims[1], dims = q.shape.dims[2];
    q = rn_export_reshape(h, rn_export_widen(h, q),
                          RN_SHAPE(q.shape.dims[0], shared, heads / shared, dims));
    q = rn_export_transpose(h, q, (uint8_t[]){1, 0, 2, 3});
    return rn_export_reshape(h, q, RN_SHAPE(shared, RN_ROWS, dims));
}

static rn_export_value ungroup_heads(rn_export *h, rn_export_value y, rn_shape shape,
                                     uint64_t shared) {
    const uint64_t *d = shape.dims; // (R, H, D)
    y = rn_export_reshape(h, y, RN_SHAPE(shared, RN_ROWS, d[1] / shared, d[2]));
    y = rn_export_transpose(h, y, (uint8_t[]){1, 0, 2, 3});
    return rn_export_reshape(h, y, shape);
}

// A number of each row, i64 (R), as one of each query: (R G, 1).
static rn_export_value repeat(rn_export *h, rn_export_value x, uint64_t group) {
    int64_t dims[] = {1, (int64_t)group};
    x = rn_export_reshape(h, rn_export_cast(h, x, RN_DTYPE_I64), RN_SHAPE(RN_ROWS, 1));
    if (group == 1) return x;
    x = rn_export_node(h, "Expand", (rn_export_value[]){x, rn_export_ints(h, dims, 2)}, 2, NULL, 0,
                       RN_DTYPE_I64, RN_SHAPE(RN_ROWS, group));
    return rn_export_reshape(h, x, RN_SHAPE(RN_ROWS, 1));
}

// ---- attention ----------------------------------------------------------------------------------

// (T, S): whether query t sees key s. None where every query sees every key.
static rn_export_value find_visible(rn_export *h, const rn_attention_attrs *attrs, uint64_t queries,
                                    uint64_t keys) {
    rn_export_value visible = {0};
    if (!attrs->causal && attrs->window == 0) return visible;
    rn_export_value key = rn_export_range(h, rn_export_int(h, (int64_t)keys));
    rn_export_value at = rn_export_range(h, rn_export_int(h, (int64_t)queries));
    at = rn_export_with(h, "Add", at, (double)keys - (double)queries);
    at = rn_export_reshape(h, at, RN_SHAPE(queries, 1));
    visible = rn_export_compare(h, "LessOrEqual", key, at); // a window bounds keys from above, too
    if (attrs->window)
        visible = both(h, visible,
                       rn_export_compare(h, "Greater", key,
                                         rn_export_with(h, "Sub", at, (double)attrs->window)));
    return visible;
}

RN_EXPORTER(attention) {
    const rn_attention_attrs *attrs = call->attrs;
    const uint64_t *q = in[0].shape.dims, *k = in[1].shape.dims; // (B, T, H, D), (B, S, HK, D)
    uint64_t batch = q[0], queries = q[1], heads = q[2], dims = q[3], keys = k[1], shared = k[2];
    uint64_t group = heads / shared;
    rn_shape flat = RN_SHAPE(batch, shared, group * queries, dims);
    rn_shape all = RN_SHAPE(batch, shared, group, queries, keys);
    if (call->outputs[1].data) rn_export_refuse(h, "sums of attention are for training");
    rn_export_value grouped = rn_export_reshape(h, rn_export_widen(h, in[0]),
                                                RN_SHAPE(batch, queries, shared, group, dims));
    grouped = rn_export_transpose(h, grouped, (uint8_t[]){0, 2, 3, 1, 4});
    grouped = rn_export_reshape(h, grouped, flat);
    rn_export_value key =
        rn_export_transpose(h, rn_export_widen(h, in[1]), (uint8_t[]){0, 2, 3, 1});
    rn_export_value value =
        rn_export_transpose(h, rn_export_widen(h, in[2]), (uint8_t[]){0, 2, 1, 3});
    rn_export_value scores =
        multiply(h, grouped, key, RN_SHAPE(batch, shared, group * queries, keys));
    rn_export_value visible = find_visible(h, attrs, queries, keys), bias = {0};
    if (in[3].id && in[3].dtype == RN_DTYPE_I32) { // no key before the query's document
        rn_export_value begin = rn_export_reshape(h, rn_export_cast(h, in[3], RN_DTYPE_I64),
                                                  RN_SHAPE(batch, 1, 1, queries, 1));
        rn_export_value at = rn_export_range(h, rn_export_int(h, (int64_t)keys));
        visible = both(h, visible, rn_export_compare(h, "GreaterOrEqual", at, begin));
    } else if (in[3].id)
        bias = rn_export_reshape(h, rn_export_widen(h, in[3]),
                                 in[3].shape.rank == 2
                                     ? RN_SHAPE(1, 1, 1, queries, keys)
                                     : RN_SHAPE(in[3].shape.dims[0], 1, 1, queries, keys));
    scores = soften(h, attrs, dims, rn_export_reshape(h, scores, all), visible, bias);
    scores = rn_export_reshape(h, scores, RN_SHAPE(batch, shared, group * queries, keys));
    rn_export_value y = multiply(h, scores, value, flat);
    y = rn_export_reshape(h, y, RN_SHAPE(batch, shared, group, queries, dims));
    y = rn_export_transpose(h, y, (uint8_t[]){0, 3, 1, 2, 4});
    out[0] = rn_export_result(h, call, rn_export_reshape(h, y, call->outputs[0].shape));
}

// ---- texts side by side -------------------------------------------------------------------------

static rn_export_value reshape_to(rn_export *h, rn_export_value x, const rn_export_value *sizes,
                                  uint32_t count, rn_shape shape) {
    rn_export_value pair[] = {x, rn_export_concat(h, sizes, count, 0)};
    return rn_export_node(h, "Reshape", pair, 2, NULL, 0, x.dtype, shape);
}

// (HK, R G, R): the bias of a head (H, 2 reach + 1) by the distance from query to key.
static rn_export_value find_bias(rn_export *h, rn_export_value bias, rn_export_value q,
                                 rn_export_value rows, uint64_t shared) {
    uint64_t reach = bias.shape.dims[1] / 2, group = bias.shape.dims[0] / shared;
    rn_export_value key = rn_export_reshape(h, rows, RN_SHAPE(1, RN_ROWS));
    rn_export_value away =
        rn_export_binary(h, "Sub", key, rn_export_reshape(h, rows, RN_SHAPE(RN_ROWS, 1)));
    away = rn_export_with(h, "Max", away, -(double)reach);
    away = rn_export_with(h, "Min", away, (double)reach);
    away = rn_export_with(h, "Add", away, (double)reach);
    bias = rn_export_gather(h, rn_export_widen(h, bias), away, 1); // (H, R, R)
    int64_t split[] = {(int64_t)shared, (int64_t)group};
    rn_export_value size = rn_export_size(h, q, 0);
    rn_export_value sizes[] = {rn_export_ints(h, split, 2), size, size};
    bias = reshape_to(h, bias, sizes, 3, RN_SHAPE(shared, group, RN_ROWS, RN_ROWS));
    bias = rn_export_transpose(h, bias, (uint8_t[]){0, 2, 1, 3});
    sizes[0] = rn_export_int(h, (int64_t)shared);
    sizes[1] = rn_export_int(h, -1);
    return reshape_to(h, bias, sizes, 3, RN_SHAPE(shared, RN_ROWS, RN_ROWS));
}

RN_EXPORTER(varlen_attention) {
    const rn_attention_attrs *attrs = call->attrs;
    const uint64_t *q = in[0].shape.dims; // (R, H, D)
    uint64_t heads = q[1], dims = q[2], shared = in[1].shape.dims[1], group = heads / shared;
    rn_export_value rows = rn_export_range(h, rn_export_size(h, in[0], 0));
    rn_export_value key = rn_export_reshape(h, rows, RN_SHAPE(1, RN_ROWS));
    rn_export_value row = repeat(h, rows, group), ends[2], bias = {0};
    for (uint32_t i = 0; i < 2; i++)
        ends[i] = repeat(h, rn_export_slice(h, in[3], 1, i, 1), group);
    rn_export_value visible = rn_export_compare(h, "GreaterOrEqual", key, ends[0]);
    visible = both(h, visible, rn_export_compare(h, "Less", key, ends[1]));
    if (attrs->causal) visible = both(h, visible, rn_export_compare(h, "LessOrEqual", key, row));
    rn_export_value away = rn_export_binary(h, "Sub", key, row); // (R G, R)
    if (attrs->window) {
        rn_export_value far = rn_export_scalar(h, RN_DTYPE_I64, attrs->window);
        visible =
            both(h, visible, rn_export_compare(h, "Less", rn_export_unary(h, "Abs", away), far));
    }
    if (in[4].id) bias = find_bias(h, in[4], in[0], rows, shared);
    rn_export_value k = rn_export_transpose(h, rn_export_widen(h, in[1]), (uint8_t[]){1, 2, 0});
    rn_export_value v = rn_export_transpose(h, rn_export_widen(h, in[2]), (uint8_t[]){1, 0, 2});
    rn_export_value scores =
        multiply(h, group_heads(h, in[0], shared), k, RN_SHAPE(shared, RN_ROWS, RN_ROWS));
    scores = soften(h, attrs, dims, scores, visible, bias);
    rn_export_value y = multiply(h, scores, v, RN_SHAPE(shared, RN_ROWS, dims));
    y = ungroup_heads(h, y, call->outputs[0].shape, shared);
    out[0] = rn_export_result(h, call, y);
}

// ---- the KV cache -------------------------------------------------------------------------------

static rn_export_value within(rn_export *h, rn_export_value x, uint64_t count) {
    x = rn_export_with(h, "Max", x, 0);
    return rn_export_with(h, "Min", x, (double)count - 1);
}

// Where the rows of a run write.
typedef struct places {
    rn_export_value row;     // i64 (R): the row that a row writes
    rn_export_value live;    // bool (R): whether that one writes at all
    rn_export_value indices; // i64 (R, 2 HK, 4): page, which of keys and values, head, slot
} places;

// A row that writes nothing writes what the first row that does writes, in the same place; where
// there is none, what is there already.
static void choose_rows(rn_export *h, rn_export_value *sequence, rn_export_value *position,
                        places *out) {
    rn_export_value zero = rn_export_scalar(h, RN_DTYPE_I64, 0);
    rn_export_attr first[] = {RN_EXPORT_INT("axis", 0), RN_EXPORT_INT("keepdims", 1)};
    *position = rn_export_cast(h, *position, RN_DTYPE_I64);
    *sequence = rn_export_cast(h, *sequence, RN_DTYPE_I64);
    rn_export_value live = both(h, rn_export_compare(h, "GreaterOrEqual", *sequence, zero),
                                rn_export_compare(h, "GreaterOrEqual", *position, zero));
    rn_export_value as_int = rn_export_cast(h, live, RN_DTYPE_I32);
    rn_export_value other =
        rn_export_node(h, "ArgMax", &as_int, 1, first, 2, RN_DTYPE_I64, RN_SHAPE(1));
    rn_export_value row = rn_export_range(h, rn_export_size(h, *sequence, 0));
    out->row = rn_export_where(h, live, row, other);
    out->live = rn_export_gather(h, live, out->row, 0);
    *position = rn_export_with(h, "Max", rn_export_gather(h, *position, out->row, 0), 0);
    *sequence = rn_export_with(h, "Max", rn_export_gather(h, *sequence, out->row, 0), 0);
}

// (R) as (R, lines, 1).
static rn_export_value stretch(rn_export *h, rn_export_value x, uint64_t lines) {
    int64_t dims[] = {1, (int64_t)lines, 1};
    rn_export_value pair[] = {rn_export_reshape(h, x, RN_SHAPE(RN_ROWS, 1, 1)),
                              rn_export_ints(h, dims, 3)};
    return rn_export_node(h, "Expand", pair, 2, NULL, 0, RN_DTYPE_I64, RN_SHAPE(RN_ROWS, lines, 1));
}

static places find_places(rn_export *h, const rn_export_value *in) {
    enum { MOST_LINES = 4096 };
    const uint64_t *dims = in[0].shape.dims; // (pages, 2, HK, page_tokens, D)
    uint64_t max_pages = in[5].shape.dims[1], tokens = dims[3], lines = 2 * dims[2];
    rn_export_value sequence = in[3], position = in[4], parts[4];
    places out = {0};
    int64_t which[MOST_LINES], head[MOST_LINES];
    if (lines > MOST_LINES) {
        rn_export_refuse(h, "a KV cache of more than %d heads", MOST_LINES / 2);
        return out;
    }
    choose_rows(h, &sequence, &position, &out);
    // page = table[sequence, position / page_tokens]
    rn_export_value number =
        within(h, rn_export_with(h, "Div", position, (double)tokens), max_pages);
    sequence = rn_export_with(h, "Mul", sequence, (double)max_pages);
    number = rn_export_binary(h, "Add", sequence, number);
    rn_export_value table = rn_export_reshape(h, in[5], RN_SHAPE(in[5].shape.dims[0] * max_pages));
    rn_export_value page = rn_export_gather(h, rn_export_cast(h, table, RN_DTYPE_I64), number, 0);
    rn_export_value none = rn_export_with(h, "Mul", position, 0);
    none = rn_export_reshape(h, none, RN_SHAPE(RN_ROWS, 1, 1));
    for (uint64_t i = 0; i < lines; i++) {
        which[i] = (int64_t)(i / dims[2]);
        head[i] = (int64_t)(i % dims[2]);
    }
    rn_shape line = RN_SHAPE(1, lines, 1);
    parts[0] = stretch(h, within(h, page, dims[0]), lines);
    parts[1] = rn_export_binary(h, "Add", rn_export_data(h, RN_DTYPE_I64, line, which), none);
    parts[2] = rn_export_binary(h, "Add", rn_export_data(h, RN_DTYPE_I64, line, head), none);
    parts[3] = stretch(h, rn_export_with(h, "Mod", position, (double)tokens), lines);
    out.indices = rn_export_concat(h, parts, 4, 2);
    return out;
}

RN_EXPORTER(kv_append) {
    rn_export_value kv = in[0], update[2];
    if (kv.shape.dims[1] != 2) {
        rn_export_refuse(h, "a KV cache of keys only");
        return;
    }
    const uint64_t *dims = kv.shape.dims; // (pages, 2, HK, page_tokens, D)
    rn_shape made = RN_SHAPE(RN_ROWS, 2 * dims[2], dims[4]);
    places at = find_places(h, in);
    for (int i = 0; i < 2; i++)
        update[i] = rn_export_reshape(h, rn_export_cast(h, in[1 + i], kv.dtype),
                                      RN_SHAPE(RN_ROWS, dims[2], dims[4]));
    rn_export_value updates = rn_export_gather(h, rn_export_concat(h, update, 2, 1), at.row, 0);
    rn_export_value pair[] = {kv, at.indices};
    rn_export_value old = rn_export_node(h, "GatherND", pair, 2, NULL, 0, kv.dtype, made);
    // Where is not there for f16 in every runtime: it is chosen in f32.
    rn_export_value live = rn_export_reshape(h, at.live, RN_SHAPE(RN_ROWS, 1, 1));
    updates = rn_export_where(h, live, rn_export_widen(h, updates), rn_export_widen(h, old));
    rn_export_value all[] = {kv, at.indices, rn_export_cast(h, updates, kv.dtype)};
    out[0] = rn_export_node(h, "ScatterND", all, 3, NULL, 0, kv.dtype, kv.shape);
    (void)call;
}

// Keys or values of gathered pages (n, 2, HK, page_tokens, D): (HK, keys, D).
static rn_export_value part_of(rn_export *h, rn_export_value pages, uint32_t which) {
    const uint64_t *d = pages.shape.dims;
    rn_export_value x = rn_export_gather(h, pages, rn_export_scalar(h, RN_DTYPE_I64, which), 1);
    x = rn_export_transpose(h, rn_export_widen(h, x), (uint8_t[]){1, 0, 2, 3});
    return rn_export_reshape(h, x, RN_SHAPE(d[2], RN_ROWS, d[4]));
}

RN_EXPORTER(paged_attention) {
    const rn_attention_attrs *attrs = call->attrs;
    const uint64_t *q = in[0].shape.dims, *kv = in[1].shape.dims;
    if (attrs->value_dims || call->input_count > 5) {
        rn_export_refuse(h, attrs->value_dims ? "a KV cache of keys only" : "attention sinks");
        return;
    }
    uint64_t shared = kv[2], group = q[1] / shared, dims = q[2], tokens = kv[3];
    uint64_t sequences = in[4].shape.dims[0], max_pages = in[4].shape.dims[1];
    // Pages that a row of this run may see: those up to the largest position.
    rn_export_value position = rn_export_cast(h, in[3], RN_DTYPE_I64);
    rn_export_value used = rn_export_reduce(h, "ReduceMax", position, 1, true); // (1)
    used = rn_export_with(h, "Add", rn_export_with(h, "Div", used, (double)tokens), 1);
    used = rn_export_with(h, "Min", rn_export_with(h, "Max", used, 1), (double)max_pages);
    rn_export_value cut[] = {in[4], rn_export_int(h, 0), used, rn_export_int(h, 1)};
    rn_export_value table =
        rn_export_node(h, "Slice", cut, 4, NULL, 0, in[4].dtype, RN_SHAPE(sequences, RN_ROWS));
    table = rn_export_reshape(h, rn_export_cast(h, table, RN_DTYPE_I64), RN_SHAPE(RN_ROWS));
    rn_export_value pages = rn_export_gather(h, in[1], within(h, table, kv[0]), 0);
    rn_export_value keys = part_of(h, pages, 0), values = part_of(h, pages, 1);
    keys = rn_export_transpose(h, keys, (uint8_t[]){0, 2, 1});
    // Position and sequence of every key: (1, keys).
    rn_export_value count = rn_export_with(h, "Mul", used, (double)tokens);
    rn_export_value key = rn_export_range(h, count), whose = {0};
    rn_export_value own = repeat(h, in[2], group), at = repeat(h, position, group);
    rn_export_value zero = rn_export_scalar(h, RN_DTYPE_I64, 0);
    if (sequences > 1) {
        rn_export_value all =
            rn_export_range(h, rn_export_with(h, "Mul", count, (double)sequences));
        whose = rn_export_reshape(h, rn_export_binary(h, "Div", all, count), RN_SHAPE(1, RN_ROWS));
        key = rn_export_binary(h, "Mod", all, count);
    }
    key = rn_export_reshape(h, key, RN_SHAPE(1, RN_ROWS));
    rn_export_value visible = rn_export_compare(h, "LessOrEqual", key, at);
    visible = both(h, visible,
                   whose.id ? rn_export_compare(h, "Equal", whose, own)
                            : rn_export_compare(h, "GreaterOrEqual", own, zero));
    if (attrs->window)
        visible = both(h, visible,
                       rn_export_compare(h, "Greater", key,
                                         rn_export_with(h, "Sub", at, (double)attrs->window)));
    rn_export_value scores =
        multiply(h, group_heads(h, in[0], shared), keys, RN_SHAPE(shared, RN_ROWS, RN_ROWS));
    scores = soften(h, attrs, dims, scores, visible, (rn_export_value){0});
    rn_export_value y = multiply(h, scores, values, RN_SHAPE(shared, RN_ROWS, dims));
    y = ungroup_heads(h, y, call->outputs[0].shape, shared);
    out[0] = rn_export_result(h, call, y);
}

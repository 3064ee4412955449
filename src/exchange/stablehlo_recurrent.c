// stablehlo_recurrent.c — layers with a state of a fixed size a sequence: rows one after the other,
// in a loop that carries the results and the state.
#include "exchange/stablehlo_ops.h"
#include "graph/op/delta_rule.h"

// One row: what its sequence is, whether it has any, and the state of that sequence (1, ...).
typedef struct row {
    rn_hlo_value index;              // i32
    rn_hlo_value sequence, position; // i32 (1)
    rn_hlo_value live;               // i1 (1)
    rn_hlo_value place;              // i32: the sequence, 0 where there is none
    rn_hlo_value state;
} row;

static row open_row(rn_hlo *h, rn_hlo_value index, rn_hlo_value sequence, rn_hlo_value position,
                    rn_hlo_value state) {
    row r = {.index = index};
    r.sequence = rn_hlo_pick(h, sequence, index);
    r.position = rn_hlo_pick(h, position, index);
    r.live = rn_hlo_compare(h, "GE", r.sequence, rn_hlo_like(h, r.sequence, 0));
    r.place = rn_hlo_reshape(
        h, rn_hlo_binary(h, "maximum", r.sequence, rn_hlo_like(h, r.sequence, 0)), RN_SCALAR);
    r.state = rn_hlo_pick(h, state, r.place);
    return r;
}

static rn_hlo_value spread(rn_hlo *h, rn_hlo_value x /* (1) */, rn_shape shape) {
    return rn_hlo_broadcast(h, x, shape, (uint64_t[]){0});
}

// Puts the row's result and its sequence's state where they belong; a row of none gives zeros and
// leaves the state as it is.
static void close_row(rn_hlo *h, const row *r, rn_hlo_value y, rn_hlo_value state,
                      rn_hlo_value *carried) {
    y = rn_hlo_select(h, spread(h, r->live, y.shape), y, rn_hlo_like(h, y, 0));
    state = rn_hlo_select(h, spread(h, r->live, state.shape), state, r->state);
    carried[0] = rn_hlo_place(h, carried[0], y, r->index);
    carried[1] = rn_hlo_place(h, carried[1], state, r->place);
}

// ---- short_conv ---------------------------------------------------------------------------------

// y of one row (1, C). The state (1, K - 1, C) is a ring: position p is in slot p % (K - 1).
static rn_hlo_value convolve(rn_hlo *h, const row *r, rn_hlo_value x, rn_hlo_value weight,
                             rn_hlo_value *out_state) {
    uint64_t slots = r->state.shape.dims[1], channels = r->state.shape.dims[2];
    rn_shape line = RN_SHAPE(1, channels);
    rn_hlo_value ring = rn_hlo_reshape(h, r->state, RN_SHAPE(slots, channels)), sum = {0};
    for (uint64_t t = 0; t <= slots; t++) {
        rn_hlo_value tap = rn_hlo_reshape(h, rn_hlo_slice(h, weight, 1, t, 1), line), from = x;
        if (t < slots) {
            rn_hlo_value at =
                rn_hlo_binary(h, "add", r->position, rn_hlo_like(h, r->position, (double)t));
            rn_hlo_value begun = rn_hlo_compare(h, "GE", at, rn_hlo_like(h, at, (double)slots));
            rn_hlo_value slot =
                rn_hlo_binary(h, "remainder", at, rn_hlo_like(h, at, (double)slots));
            from = rn_hlo_pick(h, ring, rn_hlo_reshape(h, slot, RN_SCALAR));
            from = rn_hlo_select(h, spread(h, begun, line), from, rn_hlo_like(h, from, 0));
        }
        rn_hlo_value term = rn_hlo_binary(h, "multiply", tap, from);
        sum = sum.id ? rn_hlo_binary(h, "add", sum, term) : term;
    }
    rn_hlo_value slot =
        rn_hlo_binary(h, "remainder", r->position, rn_hlo_like(h, r->position, (double)slots));
    ring = rn_hlo_place(h, ring, x, rn_hlo_reshape(h, slot, RN_SCALAR));
    *out_state = rn_hlo_reshape(h, ring, r->state.shape);
    return sum;
}

RN_HLO_EMITTER(short_conv) {
    uint64_t rows = in[0].shape.dims[0], channels = in[0].shape.dims[1];
    rn_hlo_value x = rn_hlo_widen(h, in[0]), state;
    uint64_t taps = in[2].shape.dims[1] + 1;
    rn_hlo_value weight = rn_hlo_reshape(h, rn_hlo_widen(h, in[1]), RN_SHAPE(channels, taps));
    rn_hlo_value start[2] = {rn_hlo_like(h, x, 0), in[2]};
    (void)call;
    rn_hlo_loop loop = rn_hlo_loop_begin(h, rows, start, 2);
    row r = open_row(h, loop.index, in[3], in[4], loop.carried[1]);
    rn_hlo_value next[2] = {loop.carried[0], loop.carried[1]};
    rn_hlo_value y = convolve(h, &r, rn_hlo_pick(h, x, loop.index), weight, &state);
    close_row(h, &r, y, state, next);
    rn_hlo_loop_end(h, &loop, next, out);
}

// ---- delta_rule ---------------------------------------------------------------------------------

// Columns [start, start + heads * dims) of qkv as (R, heads, dims).
static rn_hlo_value cut(rn_hlo *h, rn_hlo_value qkv, uint64_t start, uint64_t heads,
                        uint64_t dims) {
    rn_hlo_value x = rn_hlo_slice(h, qkv, 1, start, heads * dims);
    return rn_hlo_reshape(h, x, RN_SHAPE(qkv.shape.dims[0], heads, dims));
}

// Made 1 long and times `factor`; then a copy for each value head: (R, H, DK).
static rn_hlo_value make_unit(rn_hlo *h, rn_hlo_value x, const rn_delta_sizes *n, float eps,
                              double factor) {
    uint64_t copies = n->value_heads / n->key_heads;
    rn_hlo_value squares = rn_hlo_reduce(h, "add", rn_hlo_binary(h, "multiply", x, x), 4, true);
    squares = rn_hlo_binary(h, "add", squares, rn_hlo_like(h, squares, (double)eps));
    rn_hlo_value length = rn_hlo_unary(h, "rsqrt", squares);
    length = rn_hlo_binary(h, "multiply", length, rn_hlo_like(h, length, factor));
    x = rn_hlo_binary(h, "multiply", x, rn_hlo_expand(h, length, x.shape));
    if (n->keys_in_turn)
        x = rn_hlo_broadcast(h, x, RN_SHAPE(n->rows, copies, n->key_heads, n->key_dim),
                             (uint64_t[]){0, 2, 3});
    else
        x = rn_hlo_broadcast(h, x, RN_SHAPE(n->rows, n->key_heads, copies, n->key_dim),
                             (uint64_t[]){0, 1, 3});
    return rn_hlo_reshape(h, x, RN_SHAPE(n->rows, n->value_heads, n->key_dim));
}

// e^(rate softplus(a + bias)): (R, H).
static rn_hlo_value find_decay(rn_hlo *h, const rn_hlo_value *in) {
    rn_hlo_value a = rn_hlo_widen(h, in[RN_DELTA_A]);
    rn_hlo_value rate = rn_hlo_expand(h, rn_hlo_widen(h, in[RN_DELTA_RATE]), a.shape);
    a = rn_hlo_binary(h, "add", a, rn_hlo_expand(h, rn_hlo_widen(h, in[RN_DELTA_BIAS]), a.shape));
    rn_hlo_value soft = rn_hlo_unary(h, "log_plus_one", rn_hlo_unary(h, "exponential", a));
    rn_hlo_value large = rn_hlo_compare(h, "GT", a, rn_hlo_like(h, a, 20));
    soft = rn_hlo_select(h, large, a, soft);
    return rn_hlo_unary(h, "exponential", rn_hlo_binary(h, "multiply", rate, soft));
}

// S *= decay; S += k (beta (v - Sᵀ k))ᵀ; y = Sᵀ q, for all heads of one row: S (1, H, DK, DV).
static rn_hlo_value follow(rn_hlo *h, const row *r, const rn_hlo_value *vectors,
                           rn_hlo_value *out_state) {
    rn_hlo_value s = r->state, q, k, v, decay, beta;
    rn_shape all = s.shape, values = RN_SHAPE(1, all.dims[1], all.dims[3]);
    rn_hlo_value first = rn_hlo_compare(h, "EQ", r->position, rn_hlo_like(h, r->position, 0));
    s = rn_hlo_select(h, spread(h, first, all), rn_hlo_like(h, s, 0), s);
    q = rn_hlo_broadcast(h, rn_hlo_pick(h, vectors[0], r->index), all, (uint64_t[]){0, 1, 2});
    k = rn_hlo_broadcast(h, rn_hlo_pick(h, vectors[1], r->index), all, (uint64_t[]){0, 1, 2});
    v = rn_hlo_pick(h, vectors[2], r->index);
    decay = rn_hlo_broadcast(h, rn_hlo_pick(h, vectors[3], r->index), all, (uint64_t[]){0, 1});
    beta = rn_hlo_broadcast(h, rn_hlo_pick(h, vectors[4], r->index), values, (uint64_t[]){0, 1});
    s = rn_hlo_binary(h, "multiply", s, decay);
    rn_hlo_value known = rn_hlo_reduce(h, "add", rn_hlo_binary(h, "multiply", s, k), 4, false);
    rn_hlo_value change =
        rn_hlo_binary(h, "multiply", beta, rn_hlo_binary(h, "subtract", v, known));
    change = rn_hlo_broadcast(h, change, all, (uint64_t[]){0, 1, 3});
    s = rn_hlo_binary(h, "add", s, rn_hlo_binary(h, "multiply", k, change));
    rn_hlo_value y = rn_hlo_reduce(h, "add", rn_hlo_binary(h, "multiply", s, q), 4, false);
    *out_state = s;
    return rn_hlo_reshape(h, y, RN_SHAPE(1, values.dims[1] * values.dims[2]));
}

RN_HLO_EMITTER(delta_rule) {
    const rn_delta_rule_attrs *attrs = call->attrs;
    rn_delta_sizes n = rn_delta_sizes_of(call);
    rn_hlo_value qkv = rn_hlo_widen(h, in[RN_DELTA_QKV]), state;
    uint64_t keys = n.key_heads * n.key_dim;
    double root = sqrt((double)n.key_dim);
    rn_hlo_value vectors[5] = {
        make_unit(h, cut(h, qkv, 0, n.key_heads, n.key_dim), &n, attrs->eps, 1 / root),
        make_unit(h, cut(h, qkv, keys, n.key_heads, n.key_dim), &n, attrs->eps, 1),
        cut(h, qkv, 2 * keys, n.value_heads, n.value_dim), find_decay(h, in),
        rn_hlo_unary(h, "logistic", rn_hlo_widen(h, in[RN_DELTA_B]))};
    rn_hlo_value start[2] = {rn_hlo_float(h, RN_DTYPE_F32, 0, call->outputs[0].shape),
                             in[RN_DELTA_STATE]};
    rn_hlo_loop loop = rn_hlo_loop_begin(h, n.rows, start, 2);
    row r = open_row(h, loop.index, in[RN_DELTA_SEQUENCE], in[RN_DELTA_POSITION], loop.carried[1]);
    rn_hlo_value next[2] = {loop.carried[0], loop.carried[1]};
    rn_hlo_value y = follow(h, &r, vectors, &state);
    close_row(h, &r, y, state, next);
    rn_hlo_loop_end(h, &loop, next, out);
}

// stablehlo_rnn.c — plain RNN, LSTM and GRU layers: a loop over time for each direction. What the
// inputs give to all gates is one product before the loop. Backwards is the same over the reversed
// sequences, whose results are reversed again.
#include "exchange/stablehlo_ops.h"

enum { X, W, R, BIAS, LENGTHS, H0, C0, PEEPHOLES };
enum { Y, LAST_H, LAST_C };

typedef struct layer {
    const rn_rnn_attrs *attrs;
    uint64_t times, batches, hidden, gates, directions, direction;
    rn_hlo_value r;       // (gates * hidden, hidden)
    rn_hlo_value r_bias;  // (gates * hidden), or none
    rn_hlo_value peep[3]; // (hidden), or none: of i, o, f
} layer;

static rn_hlo_value multiply(rn_hlo *h, rn_hlo_value a, rn_hlo_value b) {
    return rn_hlo_binary(h, "multiply", a, b);
}

static rn_hlo_value add(rn_hlo *h, rn_hlo_value a, rn_hlo_value b) {
    return rn_hlo_binary(h, "add", a, b);
}

// 1 - x
static rn_hlo_value rest(rn_hlo *h, rn_hlo_value x) {
    return rn_hlo_binary(h, "subtract", rn_hlo_like(h, x, 1), x);
}

// The unary function of the same name.
static rn_hlo_value apply(rn_hlo *h, const layer *l, int which, bool gate, rn_hlo_value x) {
    static const rn_unary_function functions[] = {
        [RN_RNN_SIGMOID] = RN_UNARY_SIGMOID,
        [RN_RNN_TANH] = RN_UNARY_TANH,
        [RN_RNN_RELU] = RN_UNARY_RELU,
        [RN_RNN_LEAKY_RELU] = RN_UNARY_LEAKY_RELU,
        [RN_RNN_THRESHOLDED_RELU] = RN_UNARY_THRESHOLDED_RELU,
        [RN_RNN_HARD_SIGMOID] = RN_UNARY_HARD_SIGMOID,
        [RN_RNN_ELU] = RN_UNARY_ELU,
        [RN_RNN_SOFTSIGN] = RN_UNARY_SOFTSIGN,
        [RN_RNN_SOFTPLUS] = RN_UNARY_SOFTPLUS,
    };
    const rn_rnn_attrs *at = l->attrs;
    which += (int)l->direction * 3;
    double a = at->a[which], b = at->b[which];
    rn_rnn_function function = at->functions[which];
    if (at->clip > 0) {
        x = rn_hlo_binary(h, "minimum", x, rn_hlo_like(h, x, at->clip));
        x = rn_hlo_binary(h, "maximum", x, rn_hlo_like(h, x, -at->clip));
    }
    if (function == RN_RNN_DEFAULT) function = gate ? RN_RNN_SIGMOID : RN_RNN_TANH;
    if (function == RN_RNN_AFFINE)
        return add(h, multiply(h, x, rn_hlo_like(h, x, a)), rn_hlo_like(h, x, b));
    if (function == RN_RNN_SCALED_TANH) {
        x = rn_hlo_unary(h, "tanh", multiply(h, x, rn_hlo_like(h, x, b)));
        return multiply(h, x, rn_hlo_like(h, x, a));
    }
    return rn_hlo_function(h, &(rn_unary_attrs){functions[function], a, b}, x);
}

// Gate number `gate` of (B, gates * hidden).
static rn_hlo_value gate_of(rn_hlo *h, const layer *l, rn_hlo_value sums, uint64_t gate) {
    return rn_hlo_slice(h, sums, 1, gate * l->hidden, l->hidden);
}

// h (B, hidden) by gates [first, first + count) of R, with their bias: (B, count * hidden).
static rn_hlo_value look_back(rn_hlo *h, const layer *l, rn_hlo_value state, uint64_t first,
                              uint64_t count) {
    rn_hlo_dot axes = {.sum_a = {1}, .sum_b = {1}, .sum_count = 1};
    uint64_t start = first * l->hidden, n = count * l->hidden;
    rn_hlo_value y = rn_hlo_product(h, state, rn_hlo_slice(h, l->r, 0, start, n), &axes);
    if (!l->r_bias.id) return y;
    return add(h, y, rn_hlo_expand(h, rn_hlo_slice(h, l->r_bias, 0, start, n), y.shape));
}

static rn_hlo_value peep(rn_hlo *h, const layer *l, int which, rn_hlo_value sum, rn_hlo_value c) {
    if (!l->peep[which].id) return sum;
    return add(h, sum, multiply(h, rn_hlo_expand(h, l->peep[which], c.shape), c));
}

static rn_hlo_value step_lstm(rn_hlo *h, const layer *l, rn_hlo_value x, rn_hlo_value state,
                              rn_hlo_value *c) {
    rn_hlo_value sums = add(h, x, look_back(h, l, state, 0, 4));
    rn_hlo_value in = apply(h, l, 0, true, peep(h, l, 0, gate_of(h, l, sums, 0), *c));
    rn_hlo_value forget = l->attrs->coupled
                              ? rest(h, in)
                              : apply(h, l, 0, true, peep(h, l, 2, gate_of(h, l, sums, 2), *c));
    rn_hlo_value new = apply(h, l, 1, false, gate_of(h, l, sums, 3));
    *c = add(h, multiply(h, forget, *c), multiply(h, in, new));
    rn_hlo_value out = apply(h, l, 0, true, peep(h, l, 1, gate_of(h, l, sums, 1), *c));
    return multiply(h, out, apply(h, l, 2, false, *c));
}

static rn_hlo_value step_gru(rn_hlo *h, const layer *l, rn_hlo_value x, rn_hlo_value state) {
    rn_hlo_value sums =
        add(h, rn_hlo_slice(h, x, 1, 0, 2 * l->hidden), look_back(h, l, state, 0, 2));
    rn_hlo_value update = apply(h, l, 0, true, gate_of(h, l, sums, 0));
    rn_hlo_value reset = apply(h, l, 0, true, gate_of(h, l, sums, 1)), back;
    if (l->attrs->reset_after)
        back = multiply(h, reset, look_back(h, l, state, 2, 1));
    else
        back = look_back(h, l, multiply(h, reset, state), 2, 1);
    rn_hlo_value new = apply(h, l, 1, false, add(h, gate_of(h, l, x, 2), back));
    return add(h, multiply(h, rest(h, update), new), multiply(h, update, state));
}

static rn_hlo_value step(rn_hlo *h, const layer *l, rn_hlo_value x, rn_hlo_value state,
                         rn_hlo_value *c) {
    if (l->attrs->kind == RN_RNN_LSTM) return step_lstm(h, l, x, state, c);
    if (l->attrs->kind == RN_RNN_GRU) return step_gru(h, l, x, state);
    return apply(h, l, 0, false, add(h, x, look_back(h, l, state, 0, 1)));
}

// Direction `l->direction` of an input that has them as its first axis.
static rn_hlo_value side(rn_hlo *h, const layer *l, rn_hlo_value x) {
    rn_shape shape = {.rank = x.shape.rank - 1};
    for (uint32_t i = 0; i < shape.rank; i++)
        shape.dims[i] = x.shape.dims[i + 1];
    return rn_hlo_reshape(h, rn_hlo_slice(h, x, 0, l->direction, 1), shape);
}

// What h or c is at first: (B, hidden).
static rn_hlo_value begin(rn_hlo *h, const layer *l, rn_hlo_value given) {
    rn_shape shape = RN_SHAPE(l->batches, l->hidden);
    if (!given.id) return rn_hlo_float(h, RN_DTYPE_F32, 0, shape);
    uint32_t axis = l->attrs->batch_first ? 1 : 0;
    return rn_hlo_reshape(h, rn_hlo_slice(h, given, axis, l->direction, 1), shape);
}

// x (T, B, C) -> y (T, B, hidden); states[0] and [1] become the last h and c.
static rn_hlo_value run(rn_hlo *h, layer *l, rn_hlo_value x, const rn_hlo_value *in,
                        rn_hlo_value states[2]) {
    uint64_t rows = l->gates * l->hidden;
    rn_hlo_dot axes = {.sum_a = {2}, .sum_b = {1}, .sum_count = 1};
    rn_hlo_value sums = rn_hlo_product(h, x, side(h, l, in[W]), &axes); // (T, B, rows)
    l->r = side(h, l, in[R]);
    if (in[BIAS].id) {
        rn_hlo_value bias = side(h, l, in[BIAS]);
        sums = add(h, sums, rn_hlo_expand(h, rn_hlo_slice(h, bias, 0, 0, rows), sums.shape));
        l->r_bias = rn_hlo_slice(h, bias, 0, rows, rows);
    }
    for (int i = 0; in[PEEPHOLES].id && i < 3; i++)
        l->peep[i] =
            rn_hlo_slice(h, side(h, l, in[PEEPHOLES]), 0, (uint64_t)i * l->hidden, l->hidden);
    rn_shape all = RN_SHAPE(l->times, l->batches, l->hidden);
    rn_hlo_value start[3] = {rn_hlo_float(h, RN_DTYPE_F32, 0, all), begin(h, l, in[H0]),
                             begin(h, l, in[C0])};
    rn_hlo_loop loop = rn_hlo_loop_begin(h, l->times, start, 3);
    rn_hlo_value now =
        rn_hlo_reshape(h, rn_hlo_pick(h, sums, loop.index), RN_SHAPE(l->batches, rows));
    rn_hlo_value c = loop.carried[2], state = step(h, l, now, loop.carried[1], &c), shown = state;
    if (in[LENGTHS].id) { // sequences that have ended keep their state and give zeros
        rn_hlo_value at = rn_hlo_expand(h, loop.index, in[LENGTHS].shape);
        rn_hlo_value on = rn_hlo_broadcast(h, rn_hlo_compare(h, "LT", at, in[LENGTHS]), state.shape,
                                           (uint64_t[]){0});
        shown = rn_hlo_select(h, on, state, rn_hlo_like(h, state, 0));
        state = rn_hlo_select(h, on, state, loop.carried[1]);
        c = rn_hlo_select(h, on, c, loop.carried[2]);
    }
    shown = rn_hlo_reshape(h, shown, RN_SHAPE(1, l->batches, l->hidden));
    rn_hlo_value next[3] = {rn_hlo_place(h, loop.carried[0], shown, loop.index), state, c}, end[3];
    rn_hlo_loop_end(h, &loop, next, end);
    states[0] = end[1];
    states[1] = end[2];
    return end[0];
}

static rn_hlo_value turn_round(rn_hlo *h, rn_hlo_value x, rn_hlo_value lengths) {
    return lengths.id ? rn_hlo_reverse_sequence(h, x, lengths, 1, 0) : rn_hlo_reverse(h, x, 0);
}

RN_HLO_EMITTER(rnn) {
    const rn_rnn_attrs *a = call->attrs;
    rn_hlo_value x = in[X], y[2], h_end[2], c_end[2];
    uint64_t swap[3] = {1, 0, 2};
    if (a->batch_first) x = rn_hlo_transpose(h, x, swap);
    layer l = {.attrs = a,
               .times = x.shape.dims[0],
               .batches = x.shape.dims[1],
               .hidden = a->hidden,
               .gates = a->kind == RN_RNN_LSTM  ? 4
                        : a->kind == RN_RNN_GRU ? 3
                                                : 1,
               .directions = a->both ? 2 : 1};
    rn_shape of_y = RN_SHAPE(l.times, 1, l.batches, l.hidden);
    rn_shape of_state = RN_SHAPE(1, l.batches, l.hidden);
    for (uint32_t d = 0; d < l.directions; d++) {
        bool backwards = d == 1 || (a->reverse && !a->both);
        rn_hlo_value states[2];
        l.direction = d;
        y[d] = run(h, &l, backwards ? turn_round(h, x, in[LENGTHS]) : x, in, states);
        if (backwards) y[d] = turn_round(h, y[d], in[LENGTHS]);
        y[d] = rn_hlo_reshape(h, y[d], of_y);
        h_end[d] = rn_hlo_reshape(h, states[0], of_state);
        c_end[d] = rn_hlo_reshape(h, states[1], of_state);
    }
    uint32_t count = (uint32_t)l.directions;
    out[Y] = rn_hlo_concat(h, y, count, 1); // (T, D, B, hidden)
    out[LAST_H] = rn_hlo_concat(h, h_end, count, 0);
    out[LAST_C] = rn_hlo_concat(h, c_end, count, 0);
    if (!a->batch_first) return;
    out[Y] = rn_hlo_transpose(h, out[Y], (uint64_t[]){2, 0, 1, 3});
    out[LAST_H] = rn_hlo_transpose(h, out[LAST_H], swap);
    out[LAST_C] = rn_hlo_transpose(h, out[LAST_C], swap);
}

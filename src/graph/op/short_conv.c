// short_conv.c — a causal convolution of each channel with its own few taps, over the rows of a
// sequence:
//
//     y[p][c] = sum of w[c][t] x[p - (K - 1) + t][c], t = 0 .. K - 1       in f32, in this order
//
// The state keeps the last K - 1 rows of x: that of position p in slot p % (K - 1). So nothing is
// moved as the text goes on, and what lies before position 0 is not read but zero.
#include "graph/recurrent.h"

#include <string.h>

enum { X, WEIGHT, STATE, SEQUENCE, POSITION, INPUTS };

static rn_status shape(rn_shaping *s) {
    rn_shape x = s->in[X].shape, w = s->in[WEIGHT].shape, state = s->in[STATE].shape;
    RN_TRY(rn_shape_want(s, X, RN_DTYPE_F32));
    RN_TRY(rn_shape_want(s, WEIGHT, RN_DTYPE_F32));
    RN_TRY(rn_recurrent_shape(s, STATE, 3));
    uint64_t taps = w.rank ? w.dims[w.rank - 1] : 0;
    if (x.rank != 2) return rn_shape_fail(s, "x must be (rows, C)");
    if ((w.rank != 2 && (w.rank != 3 || w.dims[1] != 1)) || w.dims[0] != x.dims[1] || taps < 2)
        return rn_shape_fail(s, "the weight must be (C, K) or (C, 1, K), K at least 2");
    if (state.dims[1] != taps - 1 || state.dims[2] != x.dims[1])
        return rn_shape_fail(s, "the state must be (sequences, K - 1, C)");
    s->out[0].shape = x;
    s->out[1].shape = state;
    return RN_OK;
}

// Of the state only the rows' sequences move.
static void cost(const rn_call *call, rn_cost *out) {
    double x = (double)rn_tensor_bytes(&call->inputs[X]);
    uint64_t taps = call->inputs[STATE].shape.dims[1] + 1;
    out->read_bytes += x * (double)taps + (double)rn_tensor_bytes(&call->inputs[WEIGHT]);
    out->write_bytes += 2 * x;
    out->flops += 2.0 * (double)taps * (double)rn_tensor_elements(&call->inputs[X]);
}

static void convolve(const rn_call *call, uint64_t row) {
    uint64_t channels = call->inputs[X].shape.dims[1], slots = call->inputs[STATE].shape.dims[1];
    uint64_t sequence = (uint64_t)rn_recurrent_sequence(call)[row];
    uint64_t position = (uint64_t)rn_recurrent_position(call)[row];
    const float *x = (const float *)call->inputs[X].data + row * channels;
    const float *weight = call->inputs[WEIGHT].data;                             // (C, K)
    float *state = (float *)call->outputs[1].data + sequence * slots * channels; // (K - 1, C)
    float *y = (float *)call->outputs[0].data + row * channels;
    for (uint64_t c = 0; c < channels; c++, weight += slots + 1) {
        float sum = 0, last = x[c]; // y may be x
        for (uint64_t t = 0; t < slots; t++)
            if (position + t >= slots)
                sum += weight[t] * state[(position + t) % slots * channels + c];
        y[c] = sum + weight[slots] * last;
        state[position % slots * channels + c] = last;
    }
}

static rn_status reference(const rn_call *call) {
    uint64_t rows = call->inputs[X].shape.dims[0], channels = call->inputs[X].shape.dims[1];
    RN_TRY(rn_recurrent_check(call, STATE, "short_conv"));
    for (uint64_t row = 0; row < rows; row++)
        if (rn_recurrent_sequence(call)[row] != -1)
            convolve(call, row);
        else
            memset((float *)call->outputs[0].data + row * channels, 0, channels * sizeof(float));
    return RN_OK;
}

extern const rn_op_info rn_short_conv_op;
const rn_op_info rn_short_conv_op = {
    .name = "short_conv",
    .min_inputs = INPUTS,
    .max_inputs = INPUTS,
    .output_count = 2,
    .traits = RN_TRAIT_RECURRENT,
    .pages = {.state = STATE, .sequence = SEQUENCE, .position = POSITION},
    .alias = {RN_ALIAS_MAY(X), RN_ALIAS_MUST(STATE)},
    .shape = shape,
    .cost = cost,
    .reference = reference,
};

rn_value rn_op_short_conv(rn_graph *g, rn_value x, rn_value weight, rn_value state,
                          rn_value sequence, rn_value position) {
    return rn_graph_add(g, RN_OP_SHORT_CONV, (rn_value[]){x, weight, state, sequence, position},
                        INPUTS, NULL);
}

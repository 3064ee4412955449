// rnn.c — a plain RNN, LSTM or GRU layer over whole sequences, in one or both directions, as ONNX
// defines them. A task is one sequence in one direction; states and sums are in double.
#include "graph/op.h"

#include <math.h>
#include <stdio.h>

enum { X, W, R, BIAS, LENGTHS, H0, C0, PEEPHOLES, INPUTS };
enum { Y, LAST_H, LAST_C };

static uint64_t gates_of(const rn_rnn_attrs *a) {
    return a->kind == RN_RNN_LSTM ? 4 : a->kind == RN_RNN_GRU ? 3 : 1;
}

// ---- shapes -------------------------------------------------------------------------------------

static rn_status want(const rn_shaping *s, uint32_t input, rn_shape shape) {
    if (s->in[input].dtype == RN_DTYPE_NONE) return RN_OK;
    RN_TRY(rn_shape_want(s, input, input == LENGTHS ? RN_DTYPE_I32 : RN_DTYPE_F32));
    if (rn_shape_equal(s->in[input].shape, shape)) return RN_OK;
    return rn_shape_fail(s, "input %u must be %s", input, rn_shape_format(shape).text);
}

static rn_status shape(rn_shaping *s) {
    const rn_rnn_attrs *a = s->attrs;
    rn_shape x = s->in[X].shape;
    uint64_t d = a->both ? 2 : 1, h = a->hidden, g = gates_of(a);
    if (x.rank != 3 || (unsigned)a->kind > RN_RNN_GRU || h == 0)
        return rn_shape_fail(s, "x is (T, B, C)");
    for (int i = 0; i < 6; i++)
        if ((unsigned)a->functions[i] > RN_RNN_SOFTPLUS)
            return rn_shape_fail(s, "there is no function %d", (int)a->functions[i]);
    uint64_t t = x.dims[a->batch_first ? 1 : 0], b = x.dims[a->batch_first ? 0 : 1];
    if (t == RN_ROWS) return rn_shape_fail(s, "the rows cannot be time");
    rn_shape state = a->batch_first ? RN_SHAPE(b, d, h) : RN_SHAPE(d, b, h);
    RN_TRY(want(s, X, x));
    RN_TRY(want(s, W, RN_SHAPE(d, g * h, x.dims[2])));
    RN_TRY(want(s, R, RN_SHAPE(d, g * h, h)));
    RN_TRY(want(s, BIAS, RN_SHAPE(d, 2 * g * h)));
    RN_TRY(want(s, LENGTHS, RN_SHAPE(b)));
    RN_TRY(want(s, H0, state));
    RN_TRY(want(s, C0, state));
    RN_TRY(want(s, PEEPHOLES, RN_SHAPE(d, 3 * h)));
    s->out[Y].shape = a->batch_first ? RN_SHAPE(b, t, d, h) : RN_SHAPE(t, d, b, h);
    s->out[LAST_H].shape = s->out[LAST_C].shape = state;
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_shape x = call->inputs[X].shape, w = call->inputs[W].shape;
    rn_cost_bytes(call, out);
    out->flops += 2.0 * (double)x.dims[0] * (double)x.dims[1] * (double)w.dims[0] *
                  (double)w.dims[1] * (double)(w.dims[2] + call->inputs[R].shape.dims[2]);
}

// ---- functions ----------------------------------------------------------------------------------

static double apply(const rn_rnn_attrs *at, int which, bool gate, double x) {
    double a = at->a[which], b = at->b[which];
    if (at->clip > 0) x = x > at->clip ? at->clip : x < -at->clip ? -at->clip : x;
    switch (at->functions[which]) {
    case RN_RNN_DEFAULT:
        return gate ? 1 / (1 + exp(-x)) : tanh(x);
    case RN_RNN_SIGMOID:
        return 1 / (1 + exp(-x));
    case RN_RNN_TANH:
        return tanh(x);
    case RN_RNN_RELU:
        return x < 0 ? 0 : x;
    case RN_RNN_AFFINE:
        return a * x + b;
    case RN_RNN_LEAKY_RELU:
        return x < 0 ? a * x : x;
    case RN_RNN_THRESHOLDED_RELU:
        return x > a ? x : 0;
    case RN_RNN_SCALED_TANH:
        return a * tanh(b * x);
    case RN_RNN_HARD_SIGMOID:
        return fmin(1, fmax(0, a * x + b));
    case RN_RNN_ELU:
        return x < 0 ? a * expm1(x) : x;
    case RN_RNN_SOFTSIGN:
        return x / (1 + fabs(x));
    case RN_RNN_SOFTPLUS:
        break;
    }
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

// ---- one sequence -------------------------------------------------------------------------------

typedef struct sequence {
    const rn_call *call;
    const rn_rnn_attrs *attrs;
    uint64_t direction, hidden, width, gates;
    const float *w, *r;          // (gates * hidden, width), (gates * hidden, hidden)
    const float *bias, *peep;    // (2, gates * hidden), (3, hidden), or NULL
    double *h, *c, *sums, *next; // (hidden), (hidden), (gates * hidden), (hidden)
} sequence;

static double dot(const float *row, const double *v, uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)row[i] * v[i];
    return sum;
}

static double dot_input(const float *row, const float *v, uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)row[i] * (double)v[i];
    return sum;
}

// W x + its bias for all gates; R h + its bias beside it but for the last gate of a GRU, which has
// that apart.
static void sum_gates(const sequence *s, const float *x) {
    uint64_t rows = s->gates * s->hidden;
    uint64_t apart = s->attrs->kind == RN_RNN_GRU ? 2 * s->hidden : rows;
    for (uint64_t i = 0; i < rows; i++) {
        double sum = dot_input(s->w + i * s->width, x, s->width);
        if (s->bias) sum += s->bias[i];
        if (i < apart) {
            sum += dot(s->r + i * s->hidden, s->h, s->hidden);
            if (s->bias) sum += s->bias[rows + i];
        }
        s->sums[i] = sum;
    }
}

static void step_plain(const sequence *s) {
    for (uint64_t i = 0; i < s->hidden; i++)
        s->h[i] = apply(s->attrs, (int)s->direction * 3, false, s->sums[i]);
}

static void step_lstm(const sequence *s) {
    int f = (int)s->direction * 3;
    uint64_t n = s->hidden;
    for (uint64_t i = 0; i < n; i++) {
        double in = s->sums[i], out = s->sums[n + i], forget = s->sums[2 * n + i];
        if (s->peep) in += s->peep[i] * s->c[i], forget += s->peep[2 * n + i] * s->c[i];
        in = apply(s->attrs, f, true, in);
        forget = s->attrs->coupled ? 1 - in : apply(s->attrs, f, true, forget);
        s->c[i] = forget * s->c[i] + in * apply(s->attrs, f + 1, false, s->sums[3 * n + i]);
        if (s->peep) out += s->peep[n + i] * s->c[i];
        s->h[i] = apply(s->attrs, f, true, out) * apply(s->attrs, f + 2, false, s->c[i]);
    }
}

static void step_gru(const sequence *s) {
    int f = (int)s->direction * 3;
    uint64_t n = s->hidden, rows = 3 * n;
    for (uint64_t i = 0; i < 2 * n; i++)
        s->sums[i] = apply(s->attrs, f, true, s->sums[i]); // z, r
    for (uint64_t i = 0; i < n; i++)
        s->next[i] = s->attrs->reset_after ? s->h[i] : s->sums[n + i] * s->h[i];
    for (uint64_t i = 0; i < n; i++) {
        double back = dot(s->r + (2 * n + i) * n, s->next, n);
        if (s->bias) back += s->bias[rows + 2 * n + i];
        if (s->attrs->reset_after) back *= s->sums[n + i];
        s->sums[2 * n + i] = apply(s->attrs, f + 1, false, s->sums[2 * n + i] + back);
    }
    for (uint64_t i = 0; i < n; i++)
        s->h[i] = (1 - s->sums[i]) * s->sums[2 * n + i] + s->sums[i] * s->h[i];
}

static void put(float *to, const double *from, uint64_t n) {
    for (uint64_t i = 0; to && i < n; i++)
        to[i] = from ? (float)from[i] : 0;
}

static void take(double *to, const float *from, uint64_t at, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        to[i] = from ? from[at + i] : 0;
}

static float *output_at(const rn_call *call, uint32_t output, uint64_t at) {
    float *data = call->outputs[output].data;
    return data ? data + at : NULL;
}

static void run_sequence(void *arg, size_t index) {
    const rn_call *call = arg;
    const rn_rnn_attrs *a = call->attrs;
    rn_shape x = call->inputs[X].shape;
    uint64_t times = x.dims[a->batch_first ? 1 : 0], batches = x.dims[a->batch_first ? 0 : 1];
    uint64_t directions = a->both ? 2 : 1, d = index / batches, b = index % batches, n = a->hidden;
    sequence s = {.call = call,
                  .attrs = a,
                  .direction = d,
                  .hidden = n,
                  .width = x.dims[2],
                  .gates = gates_of(a)};
    uint64_t rows = s.gates * n;
    const float *bias = call->inputs[BIAS].data, *peep = call->inputs[PEEPHOLES].data;
    s.w = (const float *)call->inputs[W].data + d * rows * s.width;
    s.r = (const float *)call->inputs[R].data + d * rows * n;
    s.bias = bias ? bias + d * 2 * rows : NULL;
    s.peep = peep ? peep + d * 3 * n : NULL;
    s.h = (double *)call->workspace + index * (3 + s.gates) * n;
    s.c = s.h + n;
    s.next = s.c + n;
    s.sums = s.next + n;
    uint64_t state = (a->batch_first ? b * directions + d : d * batches + b) * n;
    const int32_t *lengths = call->inputs[LENGTHS].data;
    uint64_t length = lengths ? (uint64_t)lengths[b] : times;
    take(s.h, call->inputs[H0].data, state, n);
    take(s.c, call->inputs[C0].data, state, n);
    for (uint64_t i = 0; i < times; i++) {
        bool real = i < length;
        uint64_t t = real && (d == 1 || (a->reverse && !a->both)) ? length - 1 - i : i;
        uint64_t row = a->batch_first ? b * times + t : t * batches + b;
        uint64_t to = a->batch_first ? row * directions + d : (t * directions + d) * batches + b;
        if (real) {
            sum_gates(&s, (const float *)call->inputs[X].data + row * s.width);
            (a->kind == RN_RNN_LSTM  ? step_lstm
             : a->kind == RN_RNN_GRU ? step_gru
                                     : step_plain)(&s);
        }
        put(output_at(call, Y, to * n), real ? s.h : NULL, n);
    }
    put(output_at(call, LAST_H, state), s.h, n);
    put(output_at(call, LAST_C, state), s.c, n);
}

static uint64_t sequences_of(const rn_call *call) {
    const rn_rnn_attrs *a = call->attrs;
    return (a->both ? 2 : 1) * call->inputs[X].shape.dims[a->batch_first ? 0 : 1];
}

static uint64_t workspace(const rn_call *call) {
    const rn_rnn_attrs *a = call->attrs;
    return sequences_of(call) * (3 + gates_of(a)) * a->hidden * sizeof(double);
}

static rn_status reference(const rn_call *call) {
    const rn_rnn_attrs *a = call->attrs;
    const int32_t *lengths = call->inputs[LENGTHS].data;
    rn_shape x = call->inputs[X].shape;
    for (uint64_t b = 0; lengths && b < x.dims[a->batch_first ? 0 : 1]; b++)
        if (lengths[b] < 0 || (uint64_t)lengths[b] > x.dims[a->batch_first ? 1 : 0])
            return rn_fail(RN_INVALID, "rnn: sequence %llu cannot be %d long",
                           (unsigned long long)b, (int)lengths[b]);
    rn_call_each(call, sequences_of(call), run_sequence, (void *)(uintptr_t)call);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    static const char *const names[] = {"rnn", "lstm", "gru"};
    const rn_rnn_attrs *a = attrs;
    snprintf(out, bytes, "%s, %u hidden%s", names[a->kind], a->hidden,
             a->both      ? ", both ways"
             : a->reverse ? ", backwards"
                          : "");
}

extern const rn_op_info rn_rnn_op;
const rn_op_info rn_rnn_op = {
    .name = "rnn",
    .min_inputs = INPUTS,
    .max_inputs = INPUTS,
    .optional_inputs = 1u << BIAS | 1u << LENGTHS | 1u << H0 | 1u << C0 | 1u << PEEPHOLES,
    .output_count = 3,
    .optional_outputs = 1u << Y | 1u << LAST_H | 1u << LAST_C,
    .attrs_bytes = sizeof(rn_rnn_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = cost,
    .workspace = workspace,
    .reference = reference,
    .print = print,
};

rn_value rn_op_rnn(rn_graph *g, rn_rnn_inputs in, rn_rnn_attrs attrs) {
    return rn_graph_add(
        g, RN_OP_RNN, (rn_value[]){in.x, in.w, in.r, in.bias, in.lengths, in.h, in.c, in.peepholes},
        INPUTS, &attrs);
}

// dft.c — the discrete Fourier transform along an axis, term by term: y[k] = sum of x[j]
// e^(-+2 pi i j k / n). Complex numbers are pairs along the last axis.
#include "graph/op/number.h"

#include <math.h>
#include <stdio.h>

static uint64_t length_of(const rn_dft_attrs *a, rn_shape x) {
    return a->length ? a->length : x.dims[a->axis];
}

static rn_status shape(rn_shaping *s) {
    const rn_dft_attrs *a = s->attrs;
    rn_shape x = s->in[0].shape;
    RN_TRY(rn_shape_want_float(s, 0));
    if (x.rank < 2 || a->axis + 1 >= x.rank || x.dims[a->axis] == RN_ROWS || x.dims[x.rank - 1] > 2)
        return rn_shape_fail(s, "x is (..., 1 or 2), and the axis is one before the last");
    if (a->from_half && !a->inverse) return rn_shape_fail(s, "only an inverse is from a half");
    uint64_t n = length_of(a, x);
    if (n == 0 || n > UINT32_MAX) return rn_shape_fail(s, "a transform of that length");
    s->out[0].dtype = s->in[0].dtype;
    s->out[0].shape = x;
    s->out[0].shape.dims[a->axis] = a->half ? n / 2 + 1 : n;
    s->out[0].shape.dims[x.rank - 1] = a->from_half ? 1 : 2;
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_shape x = call->inputs[0].shape;
    rn_cost_bytes(call, out);
    out->flops +=
        4.0 * (double)rn_tensor_elements(&call->outputs[0]) * (double)length_of(call->attrs, x);
}

typedef struct line {
    const rn_call *call;
    rn_axis_cut in; // of x; inner counts numbers of 1 or 2 parts
    uint64_t parts, n, first;
} line;

// Number j of the line as it goes into the transform: 0 beyond x's end; of a half the other half is
// its mirror.
static void number_at(const line *l, uint64_t j, double *re, double *im) {
    const rn_dft_attrs *a = l->call->attrs;
    bool mirrored = a->from_half && j >= l->n / 2 + 1;
    uint64_t from = mirrored ? l->n - j : j;
    *re = *im = 0;
    if (from >= l->in.length) return;
    uint64_t at = (l->first + from * l->in.inner) * l->parts;
    *re = rn_real_at(&l->call->inputs[0], at);
    if (l->parts == 2) *im = rn_real_at(&l->call->inputs[0], at + 1);
    if (mirrored) *im = -*im;
    if (a->from_half && (from == 0 || 2 * from == l->n)) *im = 0;
}

static void sum_terms(const line *l, uint64_t k, double *out_re, double *out_im) {
    const rn_dft_attrs *a = l->call->attrs;
    double turn = (a->inverse ? 2 : -2) * 3.14159265358979323846 / (double)l->n;
    *out_re = *out_im = 0;
    for (uint64_t j = 0; j < l->n; j++) {
        double re, im, angle = turn * (double)(j * k % l->n), c = cos(angle), s = sin(angle);
        number_at(l, j, &re, &im);
        *out_re += re * c - im * s;
        *out_im += re * s + im * c;
    }
    if (a->inverse) *out_re /= (double)l->n, *out_im /= (double)l->n;
}

// Line `index` of all lines of numbers.
static void transform(void *arg, size_t index) {
    const rn_call *call = arg;
    const rn_dft_attrs *a = call->attrs;
    const rn_tensor *y = &call->outputs[0];
    rn_shape x = call->inputs[0].shape;
    line l = {.call = call, .parts = x.dims[x.rank - 1], .n = length_of(a, x)};
    uint64_t out_parts = a->from_half ? 1 : 2, length = y->shape.dims[a->axis];
    l.in = rn_axis_cut_of(x, a->axis);
    l.in.inner /= l.parts;
    uint64_t outer = index / l.in.inner, inner = index % l.in.inner;
    l.first = outer * l.in.length * l.in.inner + inner;
    for (uint64_t k = 0; k < length; k++) {
        double re, im;
        uint64_t to = ((outer * length + k) * l.in.inner + inner) * out_parts;
        sum_terms(&l, k, &re, &im);
        rn_real_put(y, to, re);
        if (out_parts == 2) rn_real_put(y, to + 1, im);
    }
}

static rn_status reference(const rn_call *call) {
    const rn_dft_attrs *a = call->attrs;
    rn_shape x = call->inputs[0].shape;
    rn_axis_cut cut = rn_axis_cut_of(x, a->axis);
    rn_call_each(call, cut.outer * cut.inner / x.dims[x.rank - 1], transform,
                 (void *)(uintptr_t)call);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_dft_attrs *a = attrs;
    snprintf(out, bytes, "axis %u%s%s", a->axis, a->inverse ? ", inverse" : "",
             a->half || a->from_half ? ", a half" : "");
}

extern const rn_op_info rn_dft_op;
const rn_op_info rn_dft_op = {
    .name = "dft",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_dft_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_dft(rn_graph *g, rn_value x, rn_dft_attrs attrs) {
    return rn_graph_add(g, RN_OP_DFT, &x, 1, &attrs);
}

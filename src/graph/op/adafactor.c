// adafactor.c — one step of Adafactor (Shazeer and Stern 2018) as transformers' class of that name
// does it with scale_parameter and without a relative step, in place, computed in f32:
//
//     b = 1 - t^-0.8
//     R = b R + (1 - b) mean over columns of (g g + 1e-30)        C likewise over rows
//     u = g sqrt(mean(R)) / (sqrt(R) sqrt(C))                     a vector: v = b v + ..., u = g /
//     u /= max(1, rms(u))                                                                  sqrt(v)
//     r = rate max(1e-3, rms(w))        w -= r decay w, then w -= r u
//
// A matrix has a number a row and one a column beside it, in the place of two a weight. Sums are of
// double, in the order of the elements.
//
// Inputs: weight, gradient, R (rows) and C (columns) of a matrix; of any other shape v, of that
// shape, and nothing; guard. Outputs: the new weight and states, which are inputs 0, 2 and 3.
#include "graph/op/update.h"

#include <stdio.h>

enum { GUARD = 4 };

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_shape_update(s, GUARD));
    rn_shape of = s->in[0].shape;
    RN_TRY(rn_shape_want(s, 2, RN_DTYPE_F32));
    if (of.rank == 2) {
        RN_TRY(rn_shape_want(s, 3, RN_DTYPE_F32));
        if (!rn_shape_equal(s->in[2].shape, RN_SHAPE(of.dims[0])) ||
            !rn_shape_equal(s->in[3].shape, RN_SHAPE(of.dims[1])))
            return rn_shape_fail(s, "a matrix has a state a row and one a column");
        s->out[2].shape = s->in[3].shape;
    } else if (!rn_shape_equal(s->in[2].shape, of) || s->in[3].dtype != RN_DTYPE_NONE) {
        return rn_shape_fail(s, "what is no matrix has one state of its own shape");
    }
    s->out[1].shape = s->in[2].shape;
    return RN_OK;
}

static rn_alias alias_of(const rn_call *call, uint32_t output, uint64_t *out_offset_bytes) {
    *out_offset_bytes = 0;
    if (output == 0) return (rn_alias)RN_ALIAS_MUST(0);
    if (output == 1) return (rn_alias)RN_ALIAS_MUST(2);
    if (rn_tensor_given(&call->inputs[3])) return (rn_alias)RN_ALIAS_MUST(3);
    return (rn_alias){RN_ALIAS_KIND_NONE, 0};
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out); // the weight and the gradient are read twice
    out->read_bytes += (double)rn_tensor_bytes(&call->inputs[0]);
    out->read_bytes += (double)rn_tensor_bytes(&call->inputs[1]);
    out->flops += 16.0 * (double)rn_tensor_elements(&call->outputs[0]);
}

// Sums of a column.
static uint64_t workspace(const rn_call *call) {
    const rn_shape *of = &call->inputs[0].shape;
    return of->rank == 2 ? of->dims[1] * sizeof(double) : 0;
}

// New means of the squares of rows and columns. Returns the mean of the rows'.
static double average_matrix(const rn_call *call, double keep) {
    const float *g = call->inputs[1].data;
    float *rows = call->outputs[1].data, *cols = call->outputs[2].data;
    uint64_t m = call->inputs[0].shape.dims[0], n = call->inputs[0].shape.dims[1];
    double *sums = call->workspace, total = 0;
    memset(sums, 0, n * sizeof *sums);
    for (uint64_t r = 0; r < m; r++) {
        double sum = 0;
        for (uint64_t c = 0; c < n; c++) {
            double square = (double)(g[r * n + c] * g[r * n + c]) + 1e-30;
            sum += square;
            sums[c] += square;
        }
        rows[r] = (float)(keep * rows[r] + (1 - keep) * (sum / (double)n));
        total += rows[r];
    }
    for (uint64_t c = 0; c < n; c++)
        cols[c] = (float)(keep * cols[c] + (1 - keep) * (sums[c] / (double)m));
    return total / (double)m;
}

static void average_others(const rn_call *call, double keep) {
    const float *g = call->inputs[1].data;
    float *v = call->outputs[1].data;
    uint64_t n = rn_tensor_elements(&call->outputs[0]);
    for (uint64_t i = 0; i < n; i++)
        v[i] = (float)(keep * v[i] + (1 - keep) * ((double)(g[i] * g[i]) + 1e-30));
}

// What becomes of a gradient: element i of u, before it is clipped.
typedef struct direction {
    const float *g, *rows, *cols; // cols NULL: `rows` is v
    uint64_t n;                   // columns
    float root;                   // of the mean of the rows
} direction;

static float look(const direction *d, uint64_t i) {
    if (!d->cols) return d->g[i] / sqrtf(d->rows[i]);
    return d->g[i] * (d->root / sqrtf(d->rows[i / d->n])) / sqrtf(d->cols[i % d->n]);
}

static float element(const rn_tensor *w, uint64_t i) {
    float value;
    rn_update_get(w, i, 1, &value);
    return value;
}

static rn_status reference(const rn_call *call) {
    const rn_adafactor_attrs *a = call->attrs;
    double rate = call->scalars[a->rate].f64, step = call->scalars[a->step].f64;
    if (!(step >= 1))
        return rn_fail(RN_INVALID, "adafactor: steps count from 1, this one is %g", step);
    rn_update_keep(call, (uint32_t[]){0, 2, 3});
    if (rn_update_skips(call, GUARD)) return RN_OK;
    const rn_tensor *w = &call->outputs[0];
    uint64_t n = rn_tensor_elements(w);
    double keep = 1 - pow(step, -0.8), squares = 0, sizes = 0;
    direction d = {.g = call->inputs[1].data, .rows = call->outputs[1].data};
    if (w->shape.rank == 2) {
        d.root = (float)sqrt(average_matrix(call, keep));
        d.cols = call->outputs[2].data;
        d.n = w->shape.dims[1];
    } else {
        average_others(call, keep);
    }
    for (uint64_t i = 0; i < n; i++) {
        double u = (double)look(&d, i), of = (double)element(w, i);
        squares += u * u;
        sizes += of * of;
    }
    double clip = fmax(1, sqrt(squares / (double)n)), size = fmax(1e-3, sqrt(sizes / (double)n));
    float pace = (float)(rate * size / clip), rest = (float)(1 - rate * size * a->weight_decay);
    rn_noise noise = rn_update_noise(call, a->seed, a->step, a->stream);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t word = 0;
        float value = element(w, i) * rest - pace * look(&d, i);
        if (rn_is_bf16(w)) rn_noise_words(&noise, i, 1, &word);
        rn_update_put(w, i, 1, &value, &word, RN_NOISE_WEIGHT);
    }
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    snprintf(out, bytes, "decay %g", ((const rn_adafactor_attrs *)attrs)->weight_decay);
}

extern const rn_op_info rn_adafactor_op;
const rn_op_info rn_adafactor_op = {
    .name = "adafactor",
    .min_inputs = 4,
    .max_inputs = 5,
    .optional_inputs = 1u << 3 | 1u << GUARD,
    .output_count = 3,
    .optional_outputs = 1u << 2,
    .half_inputs = 2,
    .attrs_bytes = sizeof(rn_adafactor_attrs),
    .traits = RN_TRAIT_UPDATE,
    .alias_of = alias_of,
    .shape = shape,
    .cost = cost,
    .workspace = workspace,
    .reference = reference,
    .print = print,
};

rn_value rn_op_adafactor(rn_graph *g, rn_value weight, rn_value gradient, const rn_value states[2],
                         rn_value guard, rn_adafactor_attrs attrs) {
    return rn_graph_add(g, RN_OP_ADAFACTOR,
                        (rn_value[]){weight, gradient, states[0], states[1], guard},
                        guard == RN_NO_VALUE ? 4 : 5, &attrs);
}

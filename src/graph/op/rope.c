// rope.c — turns each pair (a, b) of a head by position * frequency:
//
//     a' = a * cos - b * sin       b' = b * cos + a * sin       in f32
//
// With sections, which divide the dims, a pair's position is that of its section, and its frequency
// is that of a head of the section's dims (halves pair within the head, neighbours within
// sections). With a third input each frequency is divided by that of its pair. The angle is in
// double; cos and sin are multiplied by the attention factor and rounded to f32. Dims beyond `dims`
// pass through. `inverse` turns the other way, with the same factor: it is the transpose, and so
// the gradient.
#include "graph/op.h"

#include "graph/rope_frequencies.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- shape --------------------------------------------------------------------------------------

static rn_status check_scaling(const rn_shaping *s, const rn_rope_attrs *a, uint64_t dims) {
    if (a->scaling == RN_ROPE_UNSCALED) return RN_OK;
    if (a->scaling > RN_ROPE_YARN) return rn_shape_fail(s, "rope has no scaling %d", a->scaling);
    if (!(a->factor > 0)) return rn_shape_fail(s, "the scaling factor must be above 0");
    if (a->scaling == RN_ROPE_NTK && dims <= 2)
        return rn_shape_fail(s, "NTK scaling needs more than 2 dims");
    bool by_context = a->scaling == RN_ROPE_LLAMA3 || a->scaling == RN_ROPE_YARN;
    if (by_context && a->original_context == 0)
        return rn_shape_fail(s, "this scaling needs the original context length");
    if (a->scaling == RN_ROPE_LLAMA3 && !(a->high_frequency > a->low_frequency))
        return rn_shape_fail(s, "high_frequency must be above low_frequency");
    return RN_OK;
}

static rn_status check_sections(const rn_shaping *s, const rn_rope_attrs *a, uint64_t dims) {
    uint64_t sum = 0;
    bool even = true;
    for (uint32_t i = 0; i < RN_ROPE_SECTIONS; i++) {
        sum += a->sections[i];
        even = even && a->sections[i] % 2 == 0;
    }
    if (sum == 0) return RN_OK;
    if (a->scaling != RN_ROPE_UNSCALED || s->input_count > 2)
        return rn_shape_fail(s, "sections are neither scaled nor divided");
    if (!even || sum != dims || a->sections[0] == 0)
        return rn_shape_fail(s, "the sections must be even and %llu dims together",
                             (unsigned long long)dims);
    return RN_OK;
}

static rn_status shape(rn_shaping *s) {
    const rn_rope_attrs *a = s->attrs;
    rn_shape x = s->in[0].shape, tokens = x;
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_F32));
    RN_TRY(rn_shape_want(s, 1, RN_DTYPE_I32));
    if (x.rank < 2) return rn_shape_fail(s, "x is (..., T, heads, head_dim)");
    tokens.rank -= 2;
    uint32_t sections = rn_rope_section_count(a);
    if (sections) tokens.dims[tokens.rank++] = sections;
    if (!rn_shape_equal(tokens, s->in[1].shape))
        return rn_shape_fail(s, "positions must be %s: one for each token%s",
                             rn_shape_format(tokens).text, sections ? " and section" : "");
    uint64_t head_dim = x.dims[x.rank - 1], dims = rn_rope_dims(a, head_dim);
    if (dims % 2 || dims > head_dim)
        return rn_shape_fail(s, "%llu dims of %llu cannot be rotated in pairs",
                             (unsigned long long)dims, (unsigned long long)head_dim);
    if (!(a->base > 0)) return rn_shape_fail(s, "the base must be above 0");
    RN_TRY(check_scaling(s, a, dims));
    RN_TRY(check_sections(s, a, dims));
    if (s->input_count > 2) {
        RN_TRY(rn_shape_want(s, 2, RN_DTYPE_F32));
        if (!rn_shape_equal(s->in[2].shape, RN_SHAPE(dims / 2)))
            return rn_shape_fail(s, "divisors must be (%llu): one for each pair",
                                 (unsigned long long)dims / 2);
    }
    s->out[0].shape = x;
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += 3.0 * (double)rn_tensor_elements(&call->outputs[0]);
}

static rn_status gradient(rn_backward *b) {
    rn_rope_attrs back = *(const rn_rope_attrs *)b->node.attrs;
    back.inverse = !back.inverse;
    rn_value in[] = {b->out_gradients[0], b->node.inputs[1], RN_NO_VALUE};
    if (b->node.input_count > 2) in[2] = b->node.inputs[2];
    b->in_gradients[0] = rn_graph_add(b->graph, RN_OP_ROPE, in, b->node.input_count, &back);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    static const char *const scalings[] = {"", ", linear", ", ntk", ", llama3", ", yarn"};
    const rn_rope_attrs *a = attrs;
    snprintf(out, bytes, "%s, base %g%s%s", a->pairing == RN_ROPE_HALVES ? "halves" : "neighbours",
             a->base, scalings[a->scaling], a->inverse ? ", inverse" : "");
}

// ---- reference ----------------------------------------------------------------------------------

typedef struct rotation {
    const rn_call *call;
    uint64_t heads, head_dim, dims;
    const double *frequencies; // (dims / 2)
    double attention_factor;
} rotation;

static uint64_t workspace(const rn_call *call) {
    rn_shape x = call->inputs[0].shape;
    return rn_rope_dims(call->attrs, x.dims[x.rank - 1]) / 2 * sizeof(double);
}

// Pair i of each of a token's heads.
static void turn(const rotation *r, uint64_t i, double angle, const float *x, float *y) {
    const rn_rope_attrs *a = r->call->attrs;
    bool halves = a->pairing == RN_ROPE_HALVES;
    uint64_t first = halves ? i : 2 * i, second = halves ? i + r->dims / 2 : 2 * i + 1;
    float cosine = (float)(cos(angle) * r->attention_factor);
    float sine = (float)(sin(angle) * r->attention_factor);
    if (a->inverse) sine = -sine;
    for (uint64_t h = 0; h < r->heads; h++, x += r->head_dim, y += r->head_dim) {
        float u = x[first], v = x[second];
        y[first] = u * cosine - v * sine;
        y[second] = v * cosine + u * sine;
    }
}

static void rotate_token(void *arg, size_t token) {
    const rotation *r = arg;
    uint64_t at = token * r->heads * r->head_dim;
    const float *x = (const float *)r->call->inputs[0].data + at; // (heads, head_dim)
    float *y = (float *)r->call->outputs[0].data + at;
    rn_rope_places places = rn_rope_places_of(r->call->attrs, r->call->inputs[1].data, token);
    if (r->dims < r->head_dim && x != y) memcpy(y, x, r->heads * r->head_dim * sizeof *y);
    for (uint64_t i = 0; i < r->dims / 2; i++)
        turn(r, i, rn_rope_place(&places, i) * r->frequencies[i], x, y);
}

static rn_status reference(const rn_call *call) {
    rn_shape x = call->inputs[0].shape;
    rotation r = {.call = call,
                  .heads = x.dims[x.rank - 2],
                  .head_dim = x.dims[x.rank - 1],
                  .frequencies = call->workspace};
    r.dims = rn_rope_dims(call->attrs, r.head_dim);
    rn_rope_frequencies(call->attrs, r.head_dim, call->workspace, &r.attention_factor);
    if (call->input_count > 2) rn_rope_divide(&call->inputs[2], r.dims, call->workspace);
    rn_call_each(call, rn_tensor_elements(&call->inputs[0]) / (r.heads * r.head_dim), rotate_token,
                 &r);
    return RN_OK;
}

extern const rn_op_info rn_rope_op;
const rn_op_info rn_rope_op = {
    .name = "rope",
    .min_inputs = 2,
    .max_inputs = 3,
    .output_count = 1,
    .half_inputs = 1,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_rope_attrs),
    .alias = {RN_ALIAS_MAY(0)},
    .shape = shape,
    .cost = cost,
    .workspace = workspace,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_rope(rn_graph *g, rn_value x, rn_value positions, rn_rope_attrs attrs) {
    return rn_graph_add(g, RN_OP_ROPE, (rn_value[]){x, positions}, 2, &attrs);
}

rn_value rn_op_rope_divided(rn_graph *g, rn_value x, rn_value positions, rn_value divisors,
                            rn_rope_attrs attrs) {
    return rn_graph_add(g, RN_OP_ROPE, (rn_value[]){x, positions, divisors}, 3, &attrs);
}

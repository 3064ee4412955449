// attention_grad.c — the gradients of attention, with each probability made again from the
// logsumexp instead of being kept:
//
//     p_j = expf(score_j - logsumexp)        delta = sum over d of dy * y
//     dv_j += p_j * dy                       ds_j = p_j * (sum over d of dy * v_j - delta)
//     dq   += scale * ds_j * k_j             dk_j += scale * ds_j * q
//
// In f32. Queries are taken in order (head, t), keys in order: that is the order of every sum.
#include "graph/op/attention.h"
#include "graph/op/grads.h"

#include <math.h>
#include <string.h>

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_attention_check(s));
    rn_shape q = s->in[0].shape;
    for (uint32_t i = 4; i < 7; i++) {
        rn_shape expected = i == 5 ? RN_SHAPE(q.dims[0], q.dims[2], q.dims[1]) : q;
        RN_TRY(rn_shape_want(s, i, RN_DTYPE_F32));
        if (!rn_shape_equal(s->in[i].shape, expected))
            return rn_shape_fail(s, "input %u must be %s", i, rn_shape_format(expected).text);
    }
    for (uint32_t i = 0; i < 3; i++)
        s->out[i].shape = s->in[i].shape;
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += rn_attention_flops(call, 5);
}

typedef struct backward {
    const rn_call *call;
    rn_attention_sizes of;
    float scale;
    const float *q, *k, *v, *y, *logsumexp, *dy;
    float *dq, *dk, *dv; // each may be NULL
} backward;

static float dot(const float *a, const float *b, uint64_t n) {
    float sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum = fmaf(a[i], b[i], sum);
    return sum;
}

static void add(float *to, float factor, const float *x, uint64_t n) {
    for (uint64_t i = 0; to && i < n; i++)
        to[i] = fmaf(factor, x[i], to[i]);
}

static float *part(float *gradient, uint64_t at) {
    return gradient ? gradient + at : NULL;
}

// One query: (b, t, head), which begins at element `at` of q, y and dy.
static void add_query(const backward *w, uint64_t b, uint64_t t, uint64_t head, uint64_t at) {
    const rn_attention_sizes *of = &w->of;
    const float *mask = rn_attention_mask_row(&w->call->inputs[3], of, b, t);
    const float *q = w->q + at, *dy = w->dy + at;
    float total = w->logsumexp[(b * of->heads + head) * of->queries + t];
    float delta = dot(dy, w->y + at, of->dims);
    rn_attention_range keys = rn_attention_keys(w->call->attrs, of, &w->call->inputs[3], b, t);
    if (total == -INFINITY) return; // it saw no key
    for (uint64_t s = keys.first; s < keys.end; s++) {
        uint64_t of_key = rn_attention_at(b, s, head / (of->heads / of->kv_heads), of->keys,
                                          of->kv_heads, of->dims);
        const float *k = w->k + of_key;
        float score = dot(q, k, of->dims) * w->scale;
        if (mask) score += mask[s];
        float p = expf(score - total);
        float ds = w->scale * (p * (dot(dy, w->v + of_key, of->dims) - delta));
        add(part(w->dv, of_key), p, dy, of->dims);
        add(part(w->dq, at), ds, k, of->dims);
        add(part(w->dk, of_key), ds, q, of->dims);
    }
}

// A key head and all query heads that read it; nobody else adds to its dk and dv.
static void add_group(void *arg, size_t index) {
    const backward *w = arg;
    const rn_attention_sizes *of = &w->of;
    uint64_t b = index / of->kv_heads, group = of->heads / of->kv_heads;
    uint64_t first = index % of->kv_heads * group;
    for (uint64_t head = first; head < first + group; head++)
        for (uint64_t t = 0; t < of->queries; t++)
            add_query(w, b, t, head, rn_attention_at(b, t, head, of->queries, of->heads, of->dims));
}

static rn_status reference(const rn_call *call) {
    const rn_tensor *in = call->inputs, *out = call->outputs;
    backward w = {.call = call,
                  .of = rn_attention_sizes_of(in[0].shape, in[1].shape),
                  .q = in[0].data,
                  .k = in[1].data,
                  .v = in[2].data,
                  .y = in[4].data,
                  .logsumexp = in[5].data,
                  .dy = in[6].data,
                  .dq = out[0].data,
                  .dk = out[1].data,
                  .dv = out[2].data};
    w.scale = rn_attention_scale(call->attrs, w.of.dims);
    for (uint32_t i = 0; i < 3; i++)
        if (out[i].data) memset(out[i].data, 0, rn_tensor_elements(&out[i]) * sizeof(float));
    rn_call_each(call, w.of.batch * w.of.kv_heads, add_group, &w);
    return RN_OK;
}

extern const rn_op_info rn_attention_grad_op;
const rn_op_info rn_attention_grad_op = {
    .name = "attention_grad",
    .min_inputs = 7,
    .max_inputs = 7,
    .optional_inputs = 1u << 3,
    .output_count = 3,
    .optional_outputs = 7,
    .half_inputs = 0x57,
    .half_outputs = 7,
    .attrs_bytes = sizeof(rn_attention_attrs),
    .traits = RN_TRAIT_ATTENTION,
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = rn_attention_print,
};

rn_value rn_op_attention_grad(rn_graph *g, rn_value q, rn_value k, rn_value v, rn_value mask,
                              rn_value y, rn_value logsumexp, rn_value dy,
                              const rn_attention_attrs *attrs) {
    return rn_graph_add(g, RN_OP_ATTENTION_GRAD, (rn_value[]){q, k, v, mask, y, logsumexp, dy}, 7,
                        attrs);
}

// adamw.c — one step of PyTorch's AdamW, in place, in f32:
//
//     w *= 1 - rate * decay                    decay does not go through the moments
//     m += (1 - beta1) * (g - m)
//     v  = beta2 * v + (1 - beta2) * g * g
//     w -= rate / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
//
// What is the same for all elements is computed in double and rounded to f32 once.
//
// Outputs: the new w, m and v, which are inputs 0, 2 and 3.
#include "graph/op.h"

#include <math.h>
#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_shape_like_first(s));
    s->out[1].shape = s->out[2].shape = s->in[0].shape;
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += 14.0 * (double)rn_tensor_elements(&call->outputs[0]);
}

static rn_status reference(const rn_call *call) {
    const rn_adamw_attrs *a = call->attrs;
    double rate = call->scalars[a->rate].f64, step = call->scalars[a->step].f64;
    if (!(step >= 1)) return rn_fail(RN_INVALID, "adamw: steps count from 1, this one is %g", step);
    float keep = (float)(1 - rate * a->weight_decay);
    float beta2 = (float)a->beta2, take1 = (float)(1 - a->beta1), eps = (float)a->eps;
    float take2 = (float)(1 - a->beta2);
    float pace = (float)(rate / (1 - pow(a->beta1, step)));
    float spread = (float)sqrt(1 - pow(a->beta2, step));
    const float *w = call->inputs[0].data, *g = call->inputs[1].data;
    const float *m = call->inputs[2].data, *v = call->inputs[3].data;
    float *new_w = call->outputs[0].data, *new_m = call->outputs[1].data;
    float *new_v = call->outputs[2].data;
    uint64_t n = rn_tensor_elements(&call->outputs[0]);
    for (uint64_t i = 0; i < n; i++) {
        float mean = m[i] + take1 * (g[i] - m[i]);
        float square = v[i] * beta2 + take2 * (g[i] * g[i]);
        float size = sqrtf(square) / spread + eps;
        new_w[i] = w[i] * keep - pace * mean / size;
        new_m[i] = mean;
        new_v[i] = square;
    }
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_adamw_attrs *a = attrs;
    snprintf(out, bytes, "betas %g %g, eps %g, decay %g", a->beta1, a->beta2, a->eps,
             a->weight_decay);
}

extern const rn_op_info rn_adamw_op;
const rn_op_info rn_adamw_op = {
    .name = "adamw",
    .min_inputs = 4,
    .max_inputs = 4,
    .output_count = 3,
    .half_inputs = 2,
    .attrs_bytes = sizeof(rn_adamw_attrs),
    .traits = RN_TRAIT_UPDATE,
    .alias = {RN_ALIAS_MUST(0), RN_ALIAS_MUST(2), RN_ALIAS_MUST(3)},
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_adamw(rn_graph *g, rn_value weight, rn_value gradient, rn_value m, rn_value v,
                     rn_adamw_attrs attrs) {
    return rn_graph_add(g, RN_OP_ADAMW, (rn_value[]){weight, gradient, m, v}, 4, &attrs);
}

// sgd.c — one step of PyTorch's SGD, in place, in f32:
//
//     d = g + decay * w          velocity = momentum * velocity + d          w -= rate * velocity
//
// Without momentum there is no velocity, and w -= rate * d.
//
// Outputs: the new w and velocity, which are inputs 0 and 2; without momentum the second is nothing
// (one element that nobody reads). Input 3 is the guard (update.h).
#include "graph/op/update.h"

#include <stdio.h>

enum { GUARD = 3, PIECE = 64 };

static rn_status shape(rn_shaping *s) {
    const rn_sgd_attrs *a = s->attrs;
    bool has_velocity = s->in[2].dtype != RN_DTYPE_NONE;
    RN_TRY(rn_shape_update(s, GUARD));
    if (has_velocity != (a->momentum != 0))
        return rn_shape_fail(s,
                             has_velocity ? "without momentum there is no velocity"
                                          : "momentum %g needs a velocity",
                             a->momentum);
    return has_velocity ? rn_shape_update_state(s, 2, 1, false) : RN_OK;
}

static rn_alias alias_of(const rn_call *call, uint32_t output, uint64_t *out_offset_bytes) {
    *out_offset_bytes = 0;
    if (output == 0) return (rn_alias)RN_ALIAS_MUST(0);
    if (rn_tensor_given(&call->inputs[2])) return (rn_alias)RN_ALIAS_MUST(2);
    return (rn_alias){RN_ALIAS_KIND_NONE, 0};
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += 6.0 * (double)rn_tensor_elements(&call->outputs[0]);
}

static rn_status reference(const rn_call *call) {
    const rn_sgd_attrs *a = call->attrs;
    const float *g = call->inputs[1].data;
    const float *velocity = call->inputs[2].data; // or NULL
    float *new_velocity = call->outputs[1].data;
    float rate = (float)call->scalars[a->rate].f64;
    if (rn_update_skips(call, GUARD)) {
        rn_update_keep(call, (uint32_t[]){0, 2});
        return RN_OK;
    }
    rn_noise noise = rn_update_noise(call, a->seed, a->step, a->stream);
    uint64_t n = rn_tensor_elements(&call->outputs[0]), count = 0;
    for (uint64_t at = 0; at < n; at += count) {
        float w[PIECE];
        uint32_t words[PIECE];
        count = n - at < PIECE ? n - at : PIECE;
        rn_noise_words(&noise, at, count, words);
        rn_update_get(&call->inputs[0], at, count, w);
        for (uint64_t i = 0; i < count; i++) {
            float d = g[at + i] + a->weight_decay * w[i];
            if (velocity) new_velocity[at + i] = d = velocity[at + i] * a->momentum + d;
            w[i] = w[i] - rate * d;
        }
        rn_update_put(&call->outputs[0], at, count, w, words, RN_NOISE_WEIGHT);
    }
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_sgd_attrs *a = attrs;
    snprintf(out, bytes, "momentum %g, decay %g", a->momentum, a->weight_decay);
}

extern const rn_op_info rn_sgd_op;
const rn_op_info rn_sgd_op = {
    .name = "sgd",
    .min_inputs = 3,
    .max_inputs = 4,
    .optional_inputs = 1u << 2 | 1u << GUARD,
    .output_count = 2,
    .optional_outputs = 1u << 1,
    .half_inputs = 2,
    .attrs_bytes = sizeof(rn_sgd_attrs),
    .traits = RN_TRAIT_UPDATE,
    .alias_of = alias_of,
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_sgd_guarded(rn_graph *g, rn_value weight, rn_value gradient, rn_value velocity,
                           rn_value guard, rn_sgd_attrs attrs) {
    return rn_graph_add(g, RN_OP_SGD, (rn_value[]){weight, gradient, velocity, guard},
                        guard == RN_NO_VALUE ? 3 : 4, &attrs);
}

rn_value rn_op_sgd(rn_graph *g, rn_value weight, rn_value gradient, rn_value velocity,
                   rn_sgd_attrs attrs) {
    return rn_op_sgd_guarded(g, weight, gradient, velocity, RN_NO_VALUE, attrs);
}

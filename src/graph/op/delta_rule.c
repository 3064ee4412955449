// delta_rule.c — the gated delta rule: what a layer of linear attention does instead of looking at
// all keys. Each value head has a matrix S (key_dim, value_dim) of what it remembers; a row changes
// it and reads from it:
//
//     q, k   of unit length: q / sqrt(sum(q q) + eps), then q / sqrt(key_dim)
//     S      *= e^(rate softplus(a + bias))          what fades
//     d       = sigmoid(b) (v - Sᵀ k)                what S says of k, against what it should say
//     S      += k dᵀ
//     y       = Sᵀ q                                 sums over key_dim in f32, in order
//
// A row of qkv is all queries, all keys, all values. The recurrence runs row by row, never in
// chunks that would regroup its sums: so neither a prompt's chunks nor the rows beside it change a
// bit.
#include "graph/op/delta_rule.h"

#include <stdio.h>
#include <string.h>

static rn_status want(const rn_shaping *s, uint32_t input, const char *name, rn_shape shape) {
    RN_TRY(rn_shape_want(s, input, RN_DTYPE_F32));
    if (rn_shape_equal(s->in[input].shape, shape)) return RN_OK;
    return rn_shape_fail(s, "%s must be %s", name, rn_shape_format(shape).text);
}

static rn_status shape(rn_shaping *s) {
    const rn_delta_rule_attrs *a = s->attrs;
    rn_shape state = s->in[RN_DELTA_STATE].shape;
    uint64_t rows = s->in[RN_DELTA_QKV].shape.dims[0];
    RN_TRY(rn_recurrent_shape(s, RN_DELTA_STATE, 4));
    uint64_t heads = state.dims[1], values = heads * state.dims[3];
    if (a->key_heads == 0 || heads % a->key_heads)
        return rn_shape_fail(s, "%u key heads do not divide %llu value heads", a->key_heads,
                             (unsigned long long)heads);
    RN_TRY(want(s, RN_DELTA_QKV, "qkv", RN_SHAPE(rows, 2 * a->key_heads * state.dims[2] + values)));
    RN_TRY(want(s, RN_DELTA_A, "a", RN_SHAPE(rows, heads)));
    RN_TRY(want(s, RN_DELTA_B, "b", RN_SHAPE(rows, heads)));
    RN_TRY(want(s, RN_DELTA_RATE, "the rate", RN_SHAPE(heads)));
    RN_TRY(want(s, RN_DELTA_BIAS, "the bias", RN_SHAPE(heads)));
    s->out[0].shape = RN_SHAPE(rows, values);
    s->out[1].shape = state;
    return RN_OK;
}

// As if each row were of another sequence, whose state is read and written once.
static void cost(const rn_call *call, rn_cost *out) {
    rn_shape state = call->inputs[RN_DELTA_STATE].shape;
    double rows = (double)call->inputs[RN_DELTA_QKV].shape.dims[0];
    double elements = (double)rn_shape_elements(state, 1) / (double)state.dims[0];
    double moved = rows < (double)state.dims[0] ? rows : (double)state.dims[0];
    for (uint32_t i = 0; i < RN_DELTA_STATE; i++)
        out->read_bytes += (double)rn_tensor_bytes(&call->inputs[i]);
    out->read_bytes += moved * elements * sizeof(float);
    out->write_bytes +=
        moved * elements * sizeof(float) + (double)rn_tensor_bytes(&call->outputs[0]);
    out->flops += 8 * rows * elements;
}

static float inverse_length(const float *x /* (n) */, uint64_t n, float eps) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return (float)(1.0 / sqrt(sum + (double)eps));
}

// Column j of a head's state: S and y of one value.
static float follow(float *column, const rn_delta_sizes *n, const float *q, float q_scale,
                    const float *k, float k_scale, float v, rn_delta_gates gates) {
    float known = 0, y = 0;
    for (uint64_t i = 0; i < n->key_dim; i++)
        known += gates.decay * column[i * n->value_dim] * (k[i] * k_scale);
    float change = gates.beta * (v - known);
    for (uint64_t i = 0; i < n->key_dim; i++) {
        float *s = &column[i * n->value_dim];
        *s = gates.decay * *s + k[i] * k_scale * change;
        y += *s * (q[i] * q_scale);
    }
    return y;
}

static void run_head(const rn_call *call, const rn_delta_sizes *n, uint64_t row, uint64_t head) {
    const rn_delta_rule_attrs *a = call->attrs;
    uint64_t sequence = (uint64_t)rn_recurrent_sequence(call)[row];
    const float *qkv = (const float *)call->inputs[RN_DELTA_QKV].data + row * n->width;
    const float *q = qkv + rn_delta_query(n, head), *k = q + n->key_heads * n->key_dim;
    const float *v = qkv + rn_delta_value(n, head);
    float *y = (float *)call->outputs[0].data + (row * n->value_heads + head) * n->value_dim;
    float *state = (float *)call->outputs[1].data +
                   (sequence * n->value_heads + head) * n->key_dim * n->value_dim;
    rn_delta_gates gates = rn_delta_gates_of(call, row, head);
    float q_scale = inverse_length(q, n->key_dim, a->eps) / sqrtf((float)n->key_dim);
    float k_scale = inverse_length(k, n->key_dim, a->eps);
    if (rn_recurrent_position(call)[row] == 0)
        memset(state, 0, n->key_dim * n->value_dim * sizeof(float));
    for (uint64_t j = 0; j < n->value_dim; j++)
        y[j] = follow(state + j, n, q, q_scale, k, k_scale, v[j], gates);
}

static rn_status reference(const rn_call *call) {
    rn_delta_sizes n = rn_delta_sizes_of(call);
    uint64_t values = n.value_heads * n.value_dim;
    RN_TRY(rn_recurrent_check(call, RN_DELTA_STATE, "delta_rule"));
    for (uint64_t row = 0; row < n.rows; row++) {
        if (rn_recurrent_sequence(call)[row] == -1)
            memset((float *)call->outputs[0].data + row * values, 0, values * sizeof(float));
        for (uint64_t h = 0; rn_recurrent_sequence(call)[row] != -1 && h < n.value_heads; h++)
            run_head(call, &n, row, h);
    }
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_delta_rule_attrs *a = attrs;
    snprintf(out, bytes, "%u key heads%s, eps %g", a->key_heads, a->keys_in_turn ? " in turn" : "",
             (double)a->eps);
}

extern const rn_op_info rn_delta_rule_op;
const rn_op_info rn_delta_rule_op = {
    .name = "delta_rule",
    .min_inputs = RN_DELTA_INPUTS,
    .max_inputs = RN_DELTA_INPUTS,
    .output_count = 2,
    .attrs_bytes = sizeof(rn_delta_rule_attrs),
    .traits = RN_TRAIT_RECURRENT,
    .pages = {.state = RN_DELTA_STATE,
              .sequence = RN_DELTA_SEQUENCE,
              .position = RN_DELTA_POSITION},
    .alias = {{0}, RN_ALIAS_MUST(RN_DELTA_STATE)},
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_delta_rule(rn_graph *g, rn_value qkv, rn_value a, rn_value b, rn_value rate,
                          rn_value bias, rn_value state, rn_value sequence, rn_value position,
                          rn_delta_rule_attrs attrs) {
    return rn_graph_add(g, RN_OP_DELTA_RULE,
                        (rn_value[]){qkv, a, b, rate, bias, state, sequence, position},
                        RN_DELTA_INPUTS, &attrs);
}

// delta_rule.h — the sizes of a gated delta rule's call, for the reference and for back ends.
#ifndef RN_GRAPH_OP_DELTA_RULE_H
#define RN_GRAPH_OP_DELTA_RULE_H

#include "graph/recurrent.h"

#include <math.h>

enum {
    RN_DELTA_QKV,
    RN_DELTA_A,
    RN_DELTA_B,
    RN_DELTA_RATE,
    RN_DELTA_BIAS,
    RN_DELTA_STATE,
    RN_DELTA_SEQUENCE,
    RN_DELTA_POSITION,
    RN_DELTA_INPUTS
};

// Of a call: a state is (value_heads, key_dim, value_dim).
typedef struct rn_delta_sizes {
    uint64_t rows, key_heads, value_heads, key_dim, value_dim, width; // width: of a row of qkv
    bool keys_in_turn;
} rn_delta_sizes;

static inline rn_delta_sizes rn_delta_sizes_of(const rn_call *call) {
    const rn_delta_rule_attrs *attrs = call->attrs;
    rn_shape qkv = call->inputs[RN_DELTA_QKV].shape, state = call->inputs[RN_DELTA_STATE].shape;
    return (rn_delta_sizes){.rows = qkv.dims[0],
                            .key_heads = attrs->key_heads,
                            .value_heads = state.dims[1],
                            .key_dim = state.dims[2],
                            .value_dim = state.dims[3],
                            .width = qkv.dims[1],
                            .keys_in_turn = attrs->keys_in_turn};
}

// Where a value head's query begins in a row of qkv; its key is key_heads * key_dim further on.
static inline uint64_t rn_delta_query(const rn_delta_sizes *n, uint64_t head) {
    uint64_t key = n->keys_in_turn ? head % n->key_heads : head / (n->value_heads / n->key_heads);
    return key * n->key_dim;
}

static inline uint64_t rn_delta_value(const rn_delta_sizes *n, uint64_t head) {
    return 2 * n->key_heads * n->key_dim + head * n->value_dim;
}

// What a head keeps of its state, and how much of the difference it takes, in one row.
typedef struct rn_delta_gates {
    float decay, beta;
} rn_delta_gates;

static inline rn_delta_gates rn_delta_gates_of(const rn_call *call, uint64_t row, uint64_t head) {
    uint64_t at = row * call->inputs[RN_DELTA_STATE].shape.dims[1] + head;
    float a = ((const float *)call->inputs[RN_DELTA_A].data)[at];
    float b = ((const float *)call->inputs[RN_DELTA_B].data)[at];
    float rate = ((const float *)call->inputs[RN_DELTA_RATE].data)[head];
    float x = a + ((const float *)call->inputs[RN_DELTA_BIAS].data)[head];
    float softplus = x > 20.0f ? x : log1pf(expf(x));
    return (rn_delta_gates){expf(rate * softplus), 1.0f / (1.0f + expf(-b))};
}

#endif

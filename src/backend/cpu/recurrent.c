// recurrent.c — short convolutions and the gated delta rule. Rows of a sequence follow one another,
// so threads share out what does not mix: channels of a convolution, columns of the heads' states.
// A task takes all rows in their order, and its part of a state stays in the cache meanwhile.
#include "backend/cpu/cpu.h"
#include "backend/cpu/spans.h"
#include "base/checked.h"
#include "graph/op/delta_rule.h"

#include <math.h>
#include <string.h>

// ---- short convolutions -------------------------------------------------------------------------

enum { X, WEIGHT, STATE, MOST_TAPS = 8 };

// The rows that a row's taps meet: those of the state, then its own; NULL before position 0.
static void find_rows(const float *rows[MOST_TAPS], const float *state /* (slots, C) */,
                      uint64_t slots, uint64_t channels, uint64_t position, const float *own) {
    for (uint64_t t = 0; t < slots; t++)
        rows[t] = position + t >= slots ? state + (position + t) % slots * channels : NULL;
    rows[slots] = own;
}

// Channels [block * 64, ...) of all rows.
static void convolve_block(void *arg, size_t block) {
    const rn_call *call = arg;
    const rn_spans *s = rn_spans_get();
    uint64_t channels = call->inputs[X].shape.dims[1], slots = call->inputs[STATE].shape.dims[1];
    uint64_t first = block * RN_CONV_BLOCK, count = rn_min_u64(RN_CONV_BLOCK, channels - first);
    const float *weight = (const float *)call->inputs[WEIGHT].data + first * (slots + 1); // (C, K)
    const int32_t *sequence = rn_recurrent_sequence(call), *position = rn_recurrent_position(call);
    float taps[MOST_TAPS * RN_CONV_BLOCK]; // (K, 64)
    for (uint64_t c = 0; c < count; c++)
        for (uint64_t t = 0; t <= slots; t++)
            taps[t * RN_CONV_BLOCK + c] = weight[c * (slots + 1) + t];
    for (uint64_t row = 0; row < call->inputs[X].shape.dims[0]; row++) {
        float *y = (float *)call->outputs[0].data + row * channels + first;
        if (sequence[row] == -1) {
            memset(y, 0, count * sizeof *y);
            continue;
        }
        const float *rows[MOST_TAPS];
        float *state =
            (float *)call->outputs[1].data + (uint64_t)sequence[row] * slots * channels + first;
        uint64_t at = (uint64_t)position[row];
        find_rows(rows, state, slots, channels, at,
                  (const float *)call->inputs[X].data + row * channels + first);
        s->convolve(rows, taps, (uint32_t)slots + 1, state + at % slots * channels, y, count);
    }
}

rn_status rn_cpu_short_conv(const rn_call *call) {
    uint64_t channels = call->inputs[X].shape.dims[1];
    if (call->inputs[STATE].shape.dims[1] >= MOST_TAPS) return rn_op_get(call->op)->reference(call);
    RN_TRY(rn_recurrent_check(call, STATE, "short_conv"));
    rn_call_each(call, (size_t)rn_div_up(channels, RN_CONV_BLOCK), convolve_block, (void *)call);
    return RN_OK;
}

// ---- the gated delta rule -----------------------------------------------------------------------

enum { DELTA_COLUMNS = 64 }; // of a task: 32 KiB of a state of 128 x 128

static float inverse_length(const rn_spans *s, const float *x, uint64_t n, float eps) {
    return (float)(1.0 / sqrt(s->squares_wide(x, n) + (double)eps));
}

static rn_delta_step step_of(const rn_call *call, const rn_delta_sizes *n, uint64_t row,
                             uint64_t head) {
    const rn_delta_rule_attrs *attrs = call->attrs;
    const rn_spans *s = rn_spans_get();
    const float *q =
        (const float *)call->inputs[RN_DELTA_QKV].data + row * n->width + rn_delta_query(n, head);
    const float *k = q + n->key_heads * n->key_dim;
    rn_delta_gates gates = rn_delta_gates_of(call, row, head);
    return (rn_delta_step){.q = q,
                           .k = k,
                           .q_scale = inverse_length(s, q, n->key_dim, attrs->eps) /
                                      sqrtf((float)n->key_dim),
                           .k_scale = inverse_length(s, k, n->key_dim, attrs->eps),
                           .decay = gates.decay,
                           .beta = gates.beta,
                           .key_dim = n->key_dim};
}

// Columns of one head, through all rows.
static void delta_block(void *arg, size_t index) {
    const rn_call *call = arg;
    const rn_spans *s = rn_spans_get();
    rn_delta_sizes n = rn_delta_sizes_of(call);
    uint64_t blocks = rn_div_up(n.value_dim, DELTA_COLUMNS), head = index / blocks;
    uint64_t first = index % blocks * DELTA_COLUMNS;
    uint64_t count = rn_min_u64(DELTA_COLUMNS, n.value_dim - first);
    for (uint64_t row = 0; row < n.rows; row++) {
        int32_t sequence = rn_recurrent_sequence(call)[row];
        float *y = (float *)call->outputs[0].data + (row * n.value_heads + head) * n.value_dim;
        if (sequence == -1) {
            memset(y + first, 0, count * sizeof *y);
            continue;
        }
        float *state = (float *)call->outputs[1].data + first +
                       ((uint64_t)sequence * n.value_heads + head) * n.key_dim * n.value_dim;
        const float *v = (const float *)call->inputs[RN_DELTA_QKV].data + row * n.width +
                         rn_delta_value(&n, head);
        for (uint64_t i = 0; rn_recurrent_position(call)[row] == 0 && i < n.key_dim; i++)
            memset(state + i * n.value_dim, 0, count * sizeof *state);
        rn_delta_step step = step_of(call, &n, row, head);
        s->delta_step(state, n.value_dim, &step, v + first, y + first, count);
    }
}

rn_status rn_cpu_delta_rule(const rn_call *call) {
    rn_delta_sizes n = rn_delta_sizes_of(call);
    RN_TRY(rn_recurrent_check(call, RN_DELTA_STATE, "delta_rule"));
    rn_call_each(call, (size_t)(n.value_heads * rn_div_up(n.value_dim, DELTA_COLUMNS)), delta_block,
                 (void *)call);
    return RN_OK;
}

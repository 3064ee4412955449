// recurrent.c — short convolutions and the gated delta rule.
//
// Rows are on the device and are not looked at here: the kernels give NaN for one that cannot be.
#include "backend/cuda/elements.h"
#include "backend/cuda/kernels/recurrent_args.h"
#include "backend/cuda/rows.h"

#include "base/checked.h"
#include "graph/op/delta_rule.h"

enum { X, WEIGHT, STATE, MOST_SHARED = 48 << 10 };

static rn_rows_args run_of(const rn_call *call, uint32_t state) {
    return (rn_rows_args){.sequence = rn_recurrent_sequence(call),
                          .position = rn_recurrent_position(call),
                          .rows = call->inputs[0].shape.dims[0],
                          .sequences = call->inputs[state].shape.dims[0]};
}

rn_status rn_cuda_short_conv(const rn_call *call) {
    rn_shape state = call->inputs[STATE].shape;
    rn_short_conv_args args = {.run = run_of(call, STATE),
                               .x = call->inputs[X].data,
                               .weight = call->inputs[WEIGHT].data,
                               .state = call->outputs[1].data,
                               .y = call->outputs[0].data,
                               .channels = state.dims[2],
                               .slots = (uint32_t)state.dims[1]};
    if (state.dims[1] > INT32_MAX || args.channels > INT32_MAX)
        return rn_fail(RN_UNSUPPORTED, "CUDA: a convolution of %llu channels and %llu rows",
                       (unsigned long long)state.dims[2], (unsigned long long)state.dims[1]);
    if (args.run.rows == 0 || args.channels == 0) return RN_OK;
    return rn_cuda_launch(call, RN_CUDA_SHORT_CONV, rn_cuda_spread(call, args.channels), &args);
}

rn_status rn_cuda_delta_rule(const rn_call *call) {
    const rn_delta_rule_attrs *attrs = call->attrs;
    rn_delta_sizes n = rn_delta_sizes_of(call);
    uint64_t shared = 2 * n.key_dim * sizeof(float),
             blocks = rn_div_up(n.value_dim, RN_DELTA_THREADS);
    if (shared > MOST_SHARED || n.value_heads > INT32_MAX || blocks > UINT16_MAX)
        return rn_fail(RN_UNSUPPORTED, "CUDA: a delta rule of %llu heads of %llu by %llu",
                       (unsigned long long)n.value_heads, (unsigned long long)n.key_dim,
                       (unsigned long long)n.value_dim);
    rn_delta_args args = {.run = run_of(call, RN_DELTA_STATE),
                          .qkv = call->inputs[RN_DELTA_QKV].data,
                          .a = call->inputs[RN_DELTA_A].data,
                          .b = call->inputs[RN_DELTA_B].data,
                          .rate = call->inputs[RN_DELTA_RATE].data,
                          .bias = call->inputs[RN_DELTA_BIAS].data,
                          .state = call->outputs[1].data,
                          .y = call->outputs[0].data,
                          .width = n.width,
                          .heads = (uint32_t)n.value_heads,
                          .key_heads = (uint32_t)n.key_heads,
                          .key_dim = (uint32_t)n.key_dim,
                          .value_dim = (uint32_t)n.value_dim,
                          .keys_in_turn = n.keys_in_turn,
                          .eps = attrs->eps,
                          .q_scale = sqrtf((float)n.key_dim)};
    if (n.rows == 0 || n.value_heads == 0 || n.value_dim == 0) return RN_OK;
    rn_cuda_grid grid = {.x = (uint32_t)n.value_heads,
                         .y = (uint32_t)blocks,
                         .z = 1,
                         .threads = RN_DELTA_THREADS,
                         .shared_bytes = (uint32_t)shared,
                         .early = true};
    return rn_cuda_launch(call, RN_CUDA_DELTA_RULE, grid, &args);
}

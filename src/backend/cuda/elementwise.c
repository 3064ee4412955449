// elementwise.c — functions of one and of two inputs.
#include "backend/cuda/elements.h"
#include "backend/cuda/rows.h"

#include "base/checked.h"

// ---- one input ----------------------------------------------------------------------------------

static rn_status map(const rn_call *call, rn_map_fn fn, float p, float q) {
    rn_map_args args = {.x = call->inputs[0].data,
                        .y = call->outputs[0].data,
                        .n = rn_tensor_elements(&call->outputs[0]),
                        .p = p,
                        .q = q,
                        .fn = fn};
    if (args.n == 0) return RN_OK;
    return rn_cuda_launch(call, RN_CUDA_MAP, rn_cuda_spread(call, rn_div_up(args.n, 4)), &args);
}

rn_status rn_cuda_map(const rn_call *call) {
    static const uint8_t functions[RN_OP_COUNT] = {
        [RN_OP_NEG] = RN_MAP_NEG,
        [RN_OP_EXP] = RN_MAP_EXP,
        [RN_OP_LOG] = RN_MAP_LOG,
        [RN_OP_SQRT] = RN_MAP_SQRT,
        [RN_OP_RSQRT] = RN_MAP_RSQRT,
        [RN_OP_RELU] = RN_MAP_RELU,
        [RN_OP_TANH] = RN_MAP_TANH,
        [RN_OP_SIGMOID] = RN_MAP_SIGMOID,
        [RN_OP_SILU] = RN_MAP_SILU,
        [RN_OP_GELU] = RN_MAP_GELU,
        [RN_OP_GELU_TANH] = RN_MAP_GELU_TANH,
    };
    return map(call, functions[call->op], 0, 0);
}

rn_status rn_cuda_pow(const rn_call *call) {
    const rn_pow_attrs *attrs = call->attrs;
    return map(call, RN_MAP_POW, attrs->exponent, 0);
}

rn_status rn_cuda_clamp(const rn_call *call) {
    const rn_clamp_attrs *attrs = call->attrs;
    return map(call, RN_MAP_CLAMP, attrs->low, attrs->high);
}

rn_status rn_cuda_scale(const rn_call *call) {
    const rn_scale_attrs *attrs = call->attrs;
    return map(call, RN_MAP_SCALE, attrs->factor, attrs->offset);
}

// ---- two inputs ---------------------------------------------------------------------------------

static rn_pair_args pair_of(const rn_call *call) {
    return (rn_pair_args){.a = call->inputs[0].data,
                          .b = call->inputs[1].data,
                          .y = call->outputs[0].data,
                          .n = rn_tensor_elements(&call->outputs[0])};
}

// Whether all rows of a stretched pair can be worked on in fours: nothing begins within one.
static bool is_in_fours(const rn_pair_args *args) {
    uint64_t places = args->walk.count;
    for (uint32_t i = 0; i < args->walk.rank; i++)
        places |= args->walk.strides[0][i] * args->walk.step[0] |
                  args->walk.strides[1][i] * args->walk.step[1];
    return places % 4 == 0 && args->walk.step[0] <= 1 && args->walk.step[1] <= 1 &&
           rn_cuda_is_aligned(args->a, 16) && rn_cuda_is_aligned(args->b, 16) &&
           rn_cuda_is_aligned(args->y, 16);
}

static rn_status stretch(const rn_call *call, rn_pair_args *args) {
    rn_shape a = call->inputs[0].shape, b = call->inputs[1].shape, y = call->outputs[0].shape;
    rn_walk walk = rn_walk_begin(y, rn_strides_stretched(a, y), rn_strides_stretched(b, y));
    args->walk = rn_cuda_walk(&walk);
    args->fours = is_in_fours(args);
    uint64_t threads = args->fours ? args->n / 4 : args->n;
    return rn_cuda_launch(call, RN_CUDA_PAIR_WALK, rn_cuda_spread(call, threads), args);
}

rn_status rn_cuda_pair(const rn_call *call) {
    static const uint8_t functions[RN_OP_COUNT] = {[RN_OP_ADD] = RN_PAIR_ADD,
                                                   [RN_OP_SUB] = RN_PAIR_SUB,
                                                   [RN_OP_MUL] = RN_PAIR_MUL,
                                                   [RN_OP_DIV] = RN_PAIR_DIV};
    rn_pair_args args = pair_of(call);
    args.fn = functions[call->op];
    if (args.n == 0) return RN_OK;
    if (!rn_shape_equal(call->inputs[0].shape, call->inputs[1].shape)) return stretch(call, &args);
    return rn_cuda_launch(call, RN_CUDA_PAIR, rn_cuda_spread(call, rn_div_up(args.n, 4)), &args);
}

rn_status rn_cuda_gated(const rn_call *call) {
    const rn_gated_attrs *attrs = call->attrs;
    rn_pair_args args = pair_of(call);
    args.activation = attrs->activation;
    if (args.n == 0) return RN_OK;
    return rn_cuda_launch(call, RN_CUDA_GATED, rn_cuda_spread(call, rn_div_up(args.n, 4)), &args);
}

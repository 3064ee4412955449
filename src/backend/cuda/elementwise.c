// elementwise.c — functions of one and of two inputs.
#include "backend/cuda/elements.h"
#include "backend/cuda/rows.h"

#include "base/checked.h"
#include "graph/op/tree_sum.h"

// ---- one input ----------------------------------------------------------------------------------

static rn_status map(const rn_call *call, rn_map_fn fn, float p, float q) {
    rn_map_args args = {.x = call->inputs[0].data,
                        .y = call->outputs[0].data,
                        .n = rn_tensor_elements(&call->outputs[0]),
                        .p = p,
                        .q = q,
                        .fn = fn};
    RN_TRY(rn_cuda_value_type(call, &call->inputs[0], &args.x_type));
    RN_TRY(rn_cuda_value_type(call, &call->outputs[0], &args.y_type));
    if (args.n == 0) return RN_OK;
    if (rn_cuda_all_f32(call))
        return rn_cuda_launch(call, RN_CUDA_MAP, rn_cuda_spread(call, rn_div_up(args.n, 4)), &args);
    return rn_cuda_launch(call, rn_cuda_all_bf16(call) ? RN_CUDA_MAP_BF16 : RN_CUDA_MAP_ANY,
                          rn_cuda_cover(rn_div_up(args.n, 16)), &args);
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

static rn_status pair_of(const rn_call *call, rn_pair_fn fn, rn_pair_args *out) {
    *out = (rn_pair_args){.a = call->inputs[0].data,
                          .b = call->inputs[1].data,
                          .y = call->outputs[0].data,
                          .n = rn_tensor_elements(&call->outputs[0]),
                          .fn = fn};
    RN_TRY(rn_cuda_value_type(call, &call->inputs[0], &out->a_type));
    RN_TRY(rn_cuda_value_type(call, &call->inputs[1], &out->b_type));
    return rn_cuda_value_type(call, &call->outputs[0], &out->y_type);
}

// Two inputs of the result's shape.
static rn_status launch_pair(const rn_call *call, const rn_pair_args *args) {
    if (args->n == 0) return RN_OK;
    return rn_cuda_launch(call, rn_cuda_all_bf16(call) ? RN_CUDA_PAIR_BF16 : RN_CUDA_PAIR_ANY,
                          rn_cuda_cover(rn_div_up(args->n, 16)), args);
}

// How many elements of all rows of a stretched pair can be worked on at once, `most` of them or
// one: nothing begins within a group.
static uint32_t find_width(const rn_pair_args *args, uint32_t most) {
    uint64_t places = args->walk.count;
    for (uint32_t i = 0; i < args->walk.rank; i++)
        places |= args->walk.strides[0][i] * args->walk.step[0] |
                  args->walk.strides[1][i] * args->walk.step[1];
    bool whole = places % most == 0 && args->walk.step[0] <= 1 && args->walk.step[1] <= 1 &&
                 rn_cuda_is_aligned(args->a, 16) && rn_cuda_is_aligned(args->b, 16) &&
                 rn_cuda_is_aligned(args->y, 16);
    return whole ? most : 1;
}

static rn_status stretch(const rn_call *call, rn_pair_args *args) {
    rn_shape a = call->inputs[0].shape, b = call->inputs[1].shape, y = call->outputs[0].shape;
    rn_walk walk = rn_walk_begin(y, rn_strides_stretched(a, y), rn_strides_stretched(b, y));
    bool f32 = rn_cuda_all_f32(call);
    args->walk = rn_cuda_walk(&walk);
    args->width = find_width(args, f32 ? 4 : 8);
    rn_cuda_kernel half = rn_cuda_all_bf16(call) ? RN_CUDA_PAIR_WALK_BF16 : RN_CUDA_PAIR_WALK_ANY;
    return rn_cuda_launch(call, f32 ? RN_CUDA_PAIR_WALK : half,
                          rn_cuda_spread(call, args->n / args->width), args);
}

rn_status rn_cuda_pair(const rn_call *call) {
    static const uint8_t functions[RN_OP_COUNT] = {[RN_OP_ADD] = RN_PAIR_ADD,
                                                   [RN_OP_SUB] = RN_PAIR_SUB,
                                                   [RN_OP_MUL] = RN_PAIR_MUL,
                                                   [RN_OP_DIV] = RN_PAIR_DIV};
    rn_pair_args args;
    RN_TRY(pair_of(call, functions[call->op], &args));
    if (args.n == 0) return RN_OK;
    if (!rn_shape_equal(call->inputs[0].shape, call->inputs[1].shape)) return stretch(call, &args);
    if (!rn_cuda_all_f32(call)) return launch_pair(call, &args);
    return rn_cuda_launch(call, RN_CUDA_PAIR, rn_cuda_spread(call, rn_div_up(args.n, 4)), &args);
}

rn_status rn_cuda_gated(const rn_call *call) {
    const rn_gated_attrs *attrs = call->attrs;
    rn_pair_args args;
    RN_TRY(pair_of(call, RN_PAIR_GATED, &args));
    args.activation = attrs->activation;
    if (args.n == 0) return RN_OK;
    if (!rn_cuda_all_f32(call)) return launch_pair(call, &args);
    return rn_cuda_launch(call, RN_CUDA_GATED, rn_cuda_spread(call, rn_div_up(args.n, 4)), &args);
}

// ---- gradients ----------------------------------------------------------------------------------

rn_status rn_cuda_slope(const rn_call *call) {
    static const uint8_t functions[RN_OP_COUNT] = {
        [RN_OP_RELU_GRAD] = RN_PAIR_RELU_GRAD,
        [RN_OP_SILU_GRAD] = RN_PAIR_SILU_GRAD,
        [RN_OP_GELU_GRAD] = RN_PAIR_GELU_GRAD,
        [RN_OP_GELU_TANH_GRAD] = RN_PAIR_GELU_TANH_GRAD,
    };
    rn_pair_args args;
    RN_TRY(pair_of(call, functions[call->op], &args));
    return launch_pair(call, &args);
}

rn_status rn_cuda_clamp_grad(const rn_call *call) {
    const rn_clamp_attrs *attrs = call->attrs;
    rn_pair_args args;
    RN_TRY(pair_of(call, RN_PAIR_CLAMP_GRAD, &args));
    args.p = attrs->low;
    args.q = attrs->high;
    return launch_pair(call, &args);
}

rn_status rn_cuda_accumulate(const rn_call *call) {
    rn_pair_args args;
    RN_TRY(pair_of(call, RN_PAIR_ADD, &args));
    return launch_pair(call, &args);
}

rn_status rn_cuda_tree_sum(const rn_call *call) {
    rn_sum_step step;
    RN_TRY(rn_tree_sum_step(call, &step));
    rn_tree_sum_args args = {.g = call->inputs[RN_TREE_GRADIENT].data,
                             .sum = call->outputs[0].data,
                             .parts = call->outputs[1].data,
                             .n = rn_tensor_elements(&call->outputs[0]),
                             .into = step.into,
                             .adds = step.adds};
    RN_TRY(rn_cuda_value_type(call, &call->inputs[RN_TREE_GRADIENT], &args.g_type));
    RN_TRY(rn_cuda_value_type(call, &call->outputs[0], &args.type));
    if (args.n == 0) return RN_OK;
    return rn_cuda_launch(call, RN_CUDA_TREE_SUM, rn_cuda_cover(rn_div_up(args.n, 8)), &args);
}

rn_status rn_cuda_gated_grad(const rn_call *call) {
    const rn_gated_attrs *attrs = call->attrs;
    rn_gated_grad_args args = {.gate = call->inputs[0].data,
                               .up = call->inputs[1].data,
                               .dy = call->inputs[2].data,
                               .d_gate = call->outputs[0].data,
                               .d_up = call->outputs[1].data,
                               .n = rn_tensor_elements(&call->inputs[0]),
                               .activation = attrs->activation};
    RN_TRY(rn_cuda_value_type(call, &call->inputs[0], &args.gate_type));
    RN_TRY(rn_cuda_value_type(call, &call->inputs[1], &args.up_type));
    RN_TRY(rn_cuda_value_type(call, &call->inputs[2], &args.dy_type));
    RN_TRY(rn_cuda_value_type(call, &call->outputs[0], &args.d_gate_type));
    RN_TRY(rn_cuda_value_type(call, &call->outputs[1], &args.d_up_type));
    if (args.n == 0 || (!args.d_gate && !args.d_up)) return RN_OK;
    return rn_cuda_launch(call,
                          rn_cuda_all_bf16(call) ? RN_CUDA_GATED_GRAD_BF16 : RN_CUDA_GATED_GRAD_ANY,
                          rn_cuda_cover(rn_div_up(args.n, 8)), &args);
}

// conform_training.c — rows of the ops that change weights and states in place.
#include "conform.h"

#include "graph/op/rank_sum.h"
#include "graph/op/tree_sum.h"
#include "graph/op/update.h"

static void adamw(conform_case *c) {
    rn_adamw_attrs attrs = {.beta1 = 0.9,
                            .beta2 = 0.99,
                            .eps = 1e-6f,
                            .weight_decay = c->row->low,
                            .rate = conform_scalar(c, "rate", (rn_scalar){.f64 = 1e-2}),
                            .step = conform_scalar(c, "step", (rn_scalar){.f64 = 3})};
    rn_shape shape = c->row->shapes[0];
    rn_value weight = conform_weight(c, RN_DTYPE_F32, shape, -1, 1);
    rn_value gradient = conform_fixed(c, RN_DTYPE_F32, shape, -1, 1);
    rn_value m = conform_state(c, RN_DTYPE_F32, shape, -0.5f, 0.5f);
    rn_value v = conform_state(c, RN_DTYPE_F32, shape, 0.1f, 0.5f);
    rn_op_adamw(c->graph, weight, gradient, m, v, attrs);
}

static void sgd(conform_case *c) {
    rn_sgd_attrs attrs = {.momentum = c->row->variant ? 0.9f : 0,
                          .weight_decay = c->row->low,
                          .rate = conform_scalar(c, "rate", (rn_scalar){.f64 = 1e-2})};
    rn_shape shape = c->row->shapes[0];
    rn_value weight = conform_weight(c, RN_DTYPE_F32, shape, -1, 1);
    rn_value gradient = conform_fixed(c, RN_DTYPE_F32, shape, -1, 1);
    rn_value velocity =
        c->row->variant ? conform_state(c, RN_DTYPE_F32, shape, -1, 1) : RN_NO_VALUE;
    rn_op_sgd(c->graph, weight, gradient, velocity, attrs);
}

static void lion(conform_case *c) {
    rn_lion_attrs attrs = {.beta1 = 0.9,
                           .beta2 = 0.99,
                           .weight_decay = c->row->low,
                           .rate = conform_scalar(c, "rate", (rn_scalar){.f64 = 1e-2})};
    rn_shape shape = c->row->shapes[0];
    rn_value weight = conform_weight(c, RN_DTYPE_F32, shape, -1, 1);
    rn_value gradient = conform_fixed(c, RN_DTYPE_F32, shape, -1, 1);
    rn_value m = conform_state(c, RN_DTYPE_F32, shape, -0.5f, 0.5f);
    rn_op_lion(c->graph, weight, gradient, m, attrs);
}

static void adamw_bf16(conform_case *c) {
    rn_adamw_attrs attrs = {.beta1 = 0.9,
                            .beta2 = 0.99,
                            .eps = 1e-6f,
                            .weight_decay = c->row->low,
                            .rate = conform_scalar(c, "rate", (rn_scalar){.f64 = 1e-2}),
                            .step = conform_scalar(c, "step", (rn_scalar){.f64 = 3}),
                            .seed = conform_scalar(c, "seed", (rn_scalar){.f64 = 11}),
                            .stream = 5};
    rn_shape shape = c->row->shapes[0];
    rn_dtype states = c->row->variant ? RN_DTYPE_BF16 : RN_DTYPE_F32;
    rn_value weight = conform_weight(c, RN_DTYPE_BF16, shape, -1, 1);
    rn_value gradient = conform_fixed(c, RN_DTYPE_F32, shape, -1, 1);
    rn_value m = conform_state(c, states, shape, -0.5f, 0.5f);
    rn_value v = conform_state(c, states, shape, 0.1f, 0.5f);
    rn_op_adamw(c->graph, weight, gradient, m, v, attrs);
}

static rn_shape blocks_of(rn_shape shape) {
    return RN_SHAPE((rn_shape_elements(shape, 1) + RN_STATE_BLOCK - 1) / RN_STATE_BLOCK);
}

static void adamw8(conform_case *c) {
    rn_adamw_attrs attrs = {.beta1 = 0.9,
                            .beta2 = 0.99,
                            .eps = 1e-6f,
                            .weight_decay = c->row->low,
                            .rate = conform_scalar(c, "rate", (rn_scalar){.f64 = 1e-2}),
                            .step = conform_scalar(c, "step", (rn_scalar){.f64 = 3}),
                            .seed = conform_scalar(c, "seed", (rn_scalar){.f64 = 11}),
                            .stream = 5};
    rn_shape shape = c->row->shapes[0];
    rn_value weight =
        conform_weight(c, c->row->variant ? RN_DTYPE_BF16 : RN_DTYPE_F32, shape, -1, 1);
    rn_value gradient = conform_fixed(c, RN_DTYPE_F32, shape, -1, 1);
    rn_value states[] = {conform_state(c, RN_DTYPE_U8, shape, 0, 255),
                         conform_state(c, RN_DTYPE_U8, shape, 60, 255),
                         conform_state(c, RN_DTYPE_F32, blocks_of(shape), 0.1f, 0.5f),
                         conform_state(c, RN_DTYPE_F32, blocks_of(shape), 0.1f, 0.5f)};
    rn_op_adamw8(c->graph, weight, gradient, states, RN_NO_VALUE, attrs);
}

static void lion8(conform_case *c) {
    rn_lion_attrs attrs = {.beta1 = 0.9,
                           .beta2 = 0.99,
                           .weight_decay = c->row->low,
                           .rate = conform_scalar(c, "rate", (rn_scalar){.f64 = 1e-2})};
    rn_shape shape = c->row->shapes[0];
    rn_value weight = conform_weight(c, RN_DTYPE_F32, shape, -1, 1);
    rn_value gradient = conform_fixed(c, RN_DTYPE_F32, shape, -1, 1);
    rn_value states[] = {conform_state(c, RN_DTYPE_U8, shape, 0, 255),
                         conform_state(c, RN_DTYPE_F32, blocks_of(shape), 0.1f, 0.5f)};
    rn_op_lion8(c->graph, weight, gradient, states, RN_NO_VALUE, attrs);
}

static void adafactor(conform_case *c) {
    rn_adafactor_attrs attrs = {.weight_decay = c->row->low,
                                .rate = conform_scalar(c, "rate", (rn_scalar){.f64 = 1e-2}),
                                .step = conform_scalar(c, "step", (rn_scalar){.f64 = 3})};
    rn_shape shape = c->row->shapes[0];
    bool matrix = shape.rank == 2;
    rn_value weight = conform_weight(c, RN_DTYPE_F32, shape, -1, 1);
    rn_value gradient = conform_fixed(c, RN_DTYPE_F32, shape, -1, 1);
    rn_value states[] = {
        conform_state(c, RN_DTYPE_F32, matrix ? RN_SHAPE(shape.dims[0]) : shape, 0.1f, 0.5f),
        matrix ? conform_state(c, RN_DTYPE_F32, RN_SHAPE(shape.dims[1]), 0.1f, 0.5f) : RN_NO_VALUE};
    rn_op_adafactor(c->graph, weight, gradient, states, RN_NO_VALUE, attrs);
}

// The guard is finite here: what is not, the ops' own tests show.
static void average(conform_case *c) {
    rn_value state = conform_state(c, RN_DTYPE_F32, c->row->shapes[0], -1, 1);
    rn_value x = conform_fixed(c, RN_DTYPE_F32, c->row->shapes[0], -1, 1);
    rn_value guard = conform_fixed(c, RN_DTYPE_F32, RN_SHAPE(1), -1, 1);
    rn_op_average(c->graph, state, x, guard, (rn_average_attrs){0.95f});
}

static void accumulate(conform_case *c) {
    rn_value sum = conform_state(c, RN_DTYPE_F32, c->row->shapes[0], -1, 1);
    rn_value gradient = conform_fixed(c, RN_DTYPE_F32, c->row->shapes[0], -1, 1);
    rn_op_accumulate(c->graph, sum, gradient);
}

// w (N, K), down (R, K)
static void adapted_norm(conform_case *c) {
    rn_shape w = c->row->shapes[0], down = c->row->shapes[1];
    rn_value values[] = {conform_weight(c, c->row->dtype, w, -1, 1),
                         conform_weight(c, RN_DTYPE_F32, down, -1, 1),
                         conform_weight(c, RN_DTYPE_F32, RN_SHAPE(w.dims[0], down.dims[0]), -1, 1)};
    conform_result(c, rn_op_adapted_norm(c->graph, values[0], values[1], values[2],
                                         (rn_adapted_norm_attrs){0.25f}));
}

// The variant's sample of eight; from 8 on in bf16.
static void tree_sum(conform_case *c) {
    rn_shape shape = c->row->shapes[0];
    rn_dtype dtype = c->row->variant < 8 ? RN_DTYPE_F32 : RN_DTYPE_BF16;
    rn_tree_sum_attrs attrs = {
        .tree = {0, 8, 8},
        .micro_batch = conform_scalar(c, "micro_batch", (rn_scalar){.f64 = c->row->variant % 8})};
    rn_value sum = conform_state(c, dtype, shape, -1, 1);
    rn_value gradient = conform_fixed(c, RN_DTYPE_F32, shape, -1, 1);
    rn_value parts = conform_state(c, dtype, RN_SHAPE(2, rn_shape_elements(shape, 1)), -1, 1);
    rn_op_tree_sum(c->graph, sum, gradient, parts, attrs);
}

// Of one rank the first part is the sum. Several are tests/unit/train/ranks_test.c's.
static void rank_sum(conform_case *c) {
    rn_dtype dtype = c->row->variant ? RN_DTYPE_BF16 : RN_DTYPE_F32;
    rn_value first = conform_state(c, dtype, c->row->shapes[0], -1, 1);
    rn_rank_sum_attrs attrs = {.ranks = 1, .in_place = true};
    rn_op_rank_sum(c->graph, first, RN_NO_VALUE, RN_NO_VALUE, attrs);
}

static void rank_gather(conform_case *c) {
    rn_value weight = conform_weight(c, RN_DTYPE_F32, c->row->shapes[0], -1, 1);
    rn_op_rank_gather(c->graph, weight, weight, RN_NO_VALUE, (rn_rank_gather_attrs){.ranks = 1});
}

#define STEP(OP, WHAT, BUILD, X, DECAY, VARIANT)                                                   \
    {                                                                                              \
        .op = RN_OP_##OP, .what = WHAT, .build = BUILD, .shapes = {X}, .low = DECAY,               \
        .variant = VARIANT                                                                         \
    }
#define EACH_SHAPE(OP, BUILD, VARIANT)                                                             \
    STEP(OP, "one element", BUILD, RN_SHAPE(1), 0, VARIANT),                                       \
        STEP(OP, "odd axes, decay", BUILD, RN_SHAPE(3, 5, 7), 0.1f, VARIANT),                      \
        STEP(OP, "many, decay", BUILD, RN_SHAPE(1031), 0.01f, VARIANT)
#define ADAPTED(WHAT, DTYPE, N, K, RANK)                                                           \
    {                                                                                              \
        .op = RN_OP_ADAPTED_NORM, .what = WHAT, .build = adapted_norm,                             \
        .shapes = {RN_SHAPE(N, K), RN_SHAPE(RANK, K)}, .dtype = DTYPE                              \
    }

static const conform_row rows[] = {
    EACH_SHAPE(ADAMW, adamw, 0),
    EACH_SHAPE(SGD, sgd, 0),
    EACH_SHAPE(SGD, sgd, 1),
    EACH_SHAPE(LION, lion, 0),
    STEP(LION, "several spans", lion, RN_SHAPE(70001), 0.01f, 0),
    EACH_SHAPE(ADAMW, adamw_bf16, 0),
    EACH_SHAPE(ADAMW, adamw_bf16, 1),
    STEP(ADAMW, "bf16, several spans", adamw_bf16, RN_SHAPE(40001), 0.01f, 1),
    EACH_SHAPE(ADAMW8, adamw8, 0),
    STEP(ADAMW8, "several spans", adamw8, RN_SHAPE(40001), 0.01f, 0),
    STEP(ADAMW8, "several spans, bf16", adamw8, RN_SHAPE(40001), 0.01f, 1),
    EACH_SHAPE(LION8, lion8, 0),
    EACH_SHAPE(ADAFACTOR, adafactor, 0),
    STEP(ADAFACTOR, "a matrix", adafactor, RN_SHAPE(67, 1300), 0.01f, 0),
    EACH_SHAPE(AVERAGE, average, 0),
    EACH_SHAPE(ACCUMULATE, accumulate, 0),
    ADAPTED("one element", RN_DTYPE_F32, 1, 1, 1),
    ADAPTED("odd", RN_DTYPE_F32, 37, 71, 5),
    ADAPTED("long rows", RN_DTYPE_BF16, 19, 1300, 16),
    ADAPTED("a large rank", RN_DTYPE_F16, 35, 65, 300),
    ADAPTED("int8", RN_DTYPE_INT8, 33, 96, 4),
    ADAPTED("nf4", RN_DTYPE_NF4, 33, 128, 8),
    ADAPTED("nf4_dq", RN_DTYPE_NF4_DQ, 33, 128, 8),
    ADAPTED("q4_0", RN_DTYPE_Q4_0, 18, 96, 3),
    ADAPTED("q6_k", RN_DTYPE_Q6_K, 18, 512, 3),
    EACH_SHAPE(RANK_SUM, rank_sum, 0),
    EACH_SHAPE(RANK_SUM, rank_sum, 1),
    EACH_SHAPE(RANK_GATHER, rank_gather, 0),
    EACH_SHAPE(TREE_SUM, tree_sum, 0),
    EACH_SHAPE(TREE_SUM, tree_sum, 3),
    EACH_SHAPE(TREE_SUM, tree_sum, 4),
    EACH_SHAPE(TREE_SUM, tree_sum, 7),
    EACH_SHAPE(TREE_SUM, tree_sum, 8 + 7),
    STEP(TREE_SUM, "several spans", tree_sum, RN_SHAPE(40001), 0, 5),
    STEP(TREE_SUM, "several spans, bf16", tree_sum, RN_SHAPE(5, 8000), 0, 8 + 5),
};

const conform_table conform_training = {rows, sizeof rows / sizeof *rows};

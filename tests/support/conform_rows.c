// conform_rows.c — rows of the ops that look at one row of channels at a time, and of batchnorm,
// which looks at one channel.
#include "conform.h"

static void softmax(conform_case *c) {
    conform_result(c, rn_op_softmax(c->graph, conform_x(c, c->row->shapes[0])));
}

enum { WITH_WEIGHT = 1, WITH_BIAS = 2 };

// (C) in a range away from 0, or left out.
static rn_value channels(conform_case *c, bool given) {
    rn_shape x = c->row->shapes[0];
    return given ? conform_weight(c, RN_DTYPE_F32, RN_SHAPE(x.dims[x.rank - 1]), 0.5f, 1.5f)
                 : RN_NO_VALUE;
}

static void layernorm(conform_case *c) {
    rn_value x = conform_x(c, c->row->shapes[0]);
    rn_value weight = channels(c, c->row->variant & WITH_WEIGHT);
    rn_value bias = channels(c, c->row->variant & WITH_BIAS);
    conform_result(c, rn_op_layernorm(c->graph, x, weight, bias, 1e-2f));
}

static void rmsnorm(conform_case *c) {
    rn_value x = conform_x(c, c->row->shapes[0]);
    rn_value weight = channels(c, c->row->variant & WITH_WEIGHT);
    conform_result(c, rn_op_rmsnorm(c->graph, x, weight, 1e-2f));
}

static void batchnorm(conform_case *c) {
    rn_batchnorm_attrs attrs = {.eps = 1e-2f, .momentum = 0.25f, .training = c->row->variant};
    rn_shape shape = c->row->shapes[0], per_channel = RN_SHAPE(shape.dims[shape.rank - 1]);
    rn_value x = conform_x(c, shape), weight = channels(c, true), bias = channels(c, true);
    rn_value mean = conform_state(c, RN_DTYPE_F32, per_channel, -0.5f, 0.5f);
    rn_value variance = conform_state(c, RN_DTYPE_F32, per_channel, 0.5f, 1.5f);
    conform_result(c, rn_op_batchnorm(c->graph, x, weight, bias, mean, variance, attrs));
}

#define ROW(OP, WHAT, BUILD, ...)                                                                  \
    { .op = RN_OP_##OP, .what = WHAT, .build = BUILD, .low = -2, .high = 2, __VA_ARGS__ }

#define EACH_SHAPE(OP, BUILD, VARIANT)                                                             \
    ROW(OP, "one row", BUILD, .shapes = {RN_SHAPE(5)}, .variant = VARIANT),                        \
        ROW(OP, "one channel", BUILD, .shapes = {RN_SHAPE(3, 1)}, .variant = VARIANT),             \
        ROW(OP, "many axes", BUILD, .shapes = {RN_SHAPE(2, 3, 17)}, .variant = VARIANT),           \
        ROW(OP, "a wide row", BUILD, .shapes = {RN_SHAPE(2, 259)}, .variant = VARIANT),            \
        ROW(OP, "a row alone", BUILD, .shapes = {RN_SHAPE(RN_ROWS, 64)}, .rows = 1,                \
            .variant = VARIANT),                                                                   \
        ROW(OP, "rows", BUILD, .shapes = {RN_SHAPE(RN_ROWS, 33)}, .rows = 7, .variant = VARIANT)

static const conform_row rows[] = {
    EACH_SHAPE(SOFTMAX, softmax, 0),
    EACH_SHAPE(LAYERNORM, layernorm, 0),
    EACH_SHAPE(LAYERNORM, layernorm, WITH_WEIGHT),
    EACH_SHAPE(LAYERNORM, layernorm, WITH_WEIGHT | WITH_BIAS),
    EACH_SHAPE(RMSNORM, rmsnorm, 0),
    EACH_SHAPE(RMSNORM, rmsnorm, WITH_WEIGHT),
    EACH_SHAPE(BATCHNORM, batchnorm, false),
    ROW(BATCHNORM, "training, two values", batchnorm, .shapes = {RN_SHAPE(2, 3)}, .variant = true,
        .mixed = true),
    ROW(BATCHNORM, "training, an image", batchnorm, .shapes = {RN_SHAPE(2, 3, 5, 17)},
        .variant = true, .mixed = true),
    ROW(BATCHNORM, "training, rows", batchnorm, .shapes = {RN_SHAPE(RN_ROWS, 33)}, .rows = 9,
        .variant = true, .mixed = true),
};

const conform_table conform_rows = {rows, sizeof rows / sizeof *rows};

// conform_elementwise.c — rows of the ops that look at one element at a time.
#include "conform.h"

static void unary(conform_case *c) {
    conform_result(c, c->row->unary(c->graph, conform_x(c, c->row->shapes[0])));
}

static void unary_apart(conform_case *c) {
    conform_result(c, c->row->unary(c->graph, conform_apart(c, c->row->shapes[0])));
}

static void binary(conform_case *c) {
    rn_value a = conform_x(c, c->row->shapes[0]), b = conform_x(c, c->row->shapes[1]);
    conform_result(c, c->row->binary(c->graph, a, b));
}

static void power(conform_case *c) {
    static const float exponents[] = {2, 3, 0.5f, -1, 0};
    rn_value x = conform_x(c, c->row->shapes[0]);
    conform_result(c, rn_op_pow(c->graph, x, exponents[c->row->variant]));
}

static void clamp(conform_case *c) {
    conform_result(c, rn_op_clamp(c->graph, conform_apart(c, c->row->shapes[0]), -1, 1));
}

static void scale(conform_case *c) {
    conform_result(c, rn_op_scale(c->graph, conform_x(c, c->row->shapes[0]), -1.75f, 0.3f));
}

static void gated(conform_case *c) {
    bool kink = c->row->variant == RN_ACTIVATION_RELU;
    rn_shape shape = c->row->shapes[0];
    rn_value gate = kink ? conform_apart(c, shape) : conform_in(c, shape, -3, 3);
    rn_value up = conform_in(c, shape, -2, 2);
    conform_result(c, rn_op_gated(c->graph, gate, up, (rn_activation)c->row->variant));
}

#define ONE(OP, WHAT, BUILD, ...)                                                                  \
    { .op = RN_OP_##OP, .what = WHAT, .build = BUILD, __VA_ARGS__ }

#define EACH_SHAPE(OP, BUILD, ...)                                                                 \
    ONE(OP, "a scalar", BUILD, .shapes = {{0}}, __VA_ARGS__),                                      \
        ONE(OP, "one element", BUILD, .shapes = {RN_SHAPE(1)}, __VA_ARGS__),                       \
        ONE(OP, "odd axes", BUILD, .shapes = {RN_SHAPE(3, 5, 7)}, __VA_ARGS__),                    \
        ONE(OP, "whole vectors", BUILD, .shapes = {RN_SHAPE(4, 64)}, __VA_ARGS__),                 \
        ONE(OP, "many, and some left over", BUILD, .shapes = {RN_SHAPE(1031)}, __VA_ARGS__),       \
        ONE(OP, "one row", BUILD, .shapes = {RN_SHAPE(RN_ROWS, 33)}, .rows = 1, __VA_ARGS__),      \
        ONE(OP, "rows", BUILD, .shapes = {RN_SHAPE(RN_ROWS, 33)}, .rows = 6, __VA_ARGS__)

#define UNARY(OP, FUNCTION, LOW, HIGH)                                                             \
    EACH_SHAPE(OP, unary, .unary = FUNCTION, .low = LOW, .high = HIGH)

#define PAIR(OP, WHAT, FUNCTION, LOW, HIGH, A, B, ROWS)                                            \
    ONE(OP, WHAT, binary, .binary = FUNCTION, .low = LOW, .high = HIGH, .shapes = {A, B},          \
        .rows = ROWS)

#define BINARY(OP, FN, LOW, HIGH)                                                                  \
    PAIR(OP, "scalars", FN, LOW, HIGH, {0}, {0}, 0),                                               \
        PAIR(OP, "the same shape", FN, LOW, HIGH, RN_SHAPE(3, 5), RN_SHAPE(3, 5), 0),              \
        PAIR(OP, "many", FN, LOW, HIGH, RN_SHAPE(1031), RN_SHAPE(1031), 0),                        \
        PAIR(OP, "a row for all", FN, LOW, HIGH, RN_SHAPE(2, 3, 17), RN_SHAPE(17), 0),             \
        PAIR(OP, "all for a row", FN, LOW, HIGH, RN_SHAPE(17), RN_SHAPE(2, 3, 17), 0),             \
        PAIR(OP, "outer", FN, LOW, HIGH, RN_SHAPE(5, 1), RN_SHAPE(1, 9), 0),                       \
        PAIR(OP, "a middle axis", FN, LOW, HIGH, RN_SHAPE(2, 1, 19), RN_SHAPE(2, 4, 1), 0),        \
        PAIR(OP, "a number for all", FN, LOW, HIGH, RN_SHAPE(4, 7), {0}, 0),                       \
        PAIR(OP, "rows", FN, LOW, HIGH, RN_SHAPE(RN_ROWS, 33), RN_SHAPE(RN_ROWS, 33), 5),          \
        PAIR(OP, "rows and a row", FN, LOW, HIGH, RN_SHAPE(RN_ROWS, 33), RN_SHAPE(33), 5),         \
        PAIR(OP, "rows and a column", FN, LOW, HIGH, RN_SHAPE(RN_ROWS, 33), RN_SHAPE(RN_ROWS, 1),  \
             5)

static const conform_row rows[] = {
    BINARY(ADD, rn_op_add, -2, 2),
    BINARY(SUB, rn_op_sub, -2, 2),
    BINARY(MUL, rn_op_mul, -2, 2),
    BINARY(DIV, rn_op_div, 0.7f, 2.5f),
    UNARY(NEG, rn_op_neg, -3, 3),
    UNARY(EXP, rn_op_exp, -3, 3),
    UNARY(LOG, rn_op_log, 0.4f, 4),
    UNARY(SQRT, rn_op_sqrt, 0.4f, 4),
    UNARY(RSQRT, rn_op_rsqrt, 0.4f, 4),
    UNARY(SIGMOID, rn_op_sigmoid, -5, 5),
    UNARY(TANH, rn_op_tanh, -4, 4),
    UNARY(SILU, rn_op_silu, -5, 5),
    UNARY(GELU, rn_op_gelu, -4, 4),
    UNARY(GELU_TANH, rn_op_gelu_tanh, -4, 4),
    EACH_SHAPE(RELU, unary_apart, .unary = rn_op_relu),
    EACH_SHAPE(CLAMP, clamp, .variant = 0),
    EACH_SHAPE(SCALE, scale, .low = -3, .high = 3),
    EACH_SHAPE(POW, power, .low = 0.6f, .high = 2, .variant = 0),
    EACH_SHAPE(POW, power, .low = 0.6f, .high = 2, .variant = 1),
    EACH_SHAPE(POW, power, .low = 0.6f, .high = 2, .variant = 2),
    EACH_SHAPE(POW, power, .low = 0.6f, .high = 2, .variant = 3),
    EACH_SHAPE(GATED, gated, .variant = RN_ACTIVATION_SILU),
    EACH_SHAPE(GATED, gated, .variant = RN_ACTIVATION_GELU),
    EACH_SHAPE(GATED, gated, .variant = RN_ACTIVATION_GELU_TANH),
    EACH_SHAPE(GATED, gated, .variant = RN_ACTIVATION_RELU),
    EACH_SHAPE(GATED, gated, .variant = RN_ACTIVATION_SIGMOID),
};

const conform_table conform_elementwise = {rows, sizeof rows / sizeof *rows};

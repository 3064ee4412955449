// conform_moves.c — rows of the ops that move elements, change their type, or make random ones.
#include "conform.h"

// ---- shapes -------------------------------------------------------------------------------------

static void reshape(conform_case *c) {
    rn_value x = conform_in(c, c->row->shapes[0], -2, 2);
    // A view alone has no kernel: something must read it.
    conform_result(c, rn_op_neg(c->graph, rn_op_reshape(c->graph, x, c->row->shapes[1])));
}

static void permute(conform_case *c) {
    rn_value x = conform_in(c, c->row->shapes[0], -2, 2);
    conform_result(c, rn_op_permute(c->graph, x, c->row->attrs));
}

static void slice(conform_case *c) {
    const rn_slice_attrs *attrs = c->row->attrs;
    rn_value x = conform_in(c, c->row->shapes[0], -2, 2);
    conform_result(c, rn_op_slice(c->graph, x, attrs->axis, attrs->start, attrs->count));
}

static void concat(conform_case *c) {
    rn_value parts[3];
    uint32_t count = 0;
    for (; count < 3 && c->row->shapes[count].rank; count++)
        parts[count] = conform_in(c, c->row->shapes[count], -2, 2);
    conform_result(c, rn_op_concat(c->graph, parts, count, (uint32_t)c->row->variant));
}

static void pad(conform_case *c) {
    const rn_pad_attrs *attrs = c->row->attrs;
    conform_result(c, rn_op_pad(c->graph, conform_in(c, c->row->shapes[0], -2, 2), *attrs));
}

static void broadcast(conform_case *c) {
    rn_value x = conform_in(c, c->row->shapes[0], -2, 2);
    conform_result(c, rn_op_broadcast(c->graph, x, c->row->shapes[1]));
}

static const uint8_t swap[] = {1, 0}, turn[] = {2, 0, 1}, heads[] = {0, 2, 1, 3},
                     stay[] = {0, 1, 2}, inner[] = {0, 2, 1};
// Of one process: its own part, as often as there are ranks.
static void all_gather(conform_case *c) {
    const rn_all_gather_attrs *attrs = c->row->attrs;
    rn_value x = conform_in(c, c->row->shapes[0], -2, 2);
    conform_result(c, rn_op_all_gather(c->graph, x, attrs->ranks));
}

static const rn_all_gather_attrs two_ranks = {2}, five_ranks = {5};
static const rn_slice_attrs first_rows = {0, 1, 2}, middle = {1, 2, 3}, last = {2, 6, 1},
                            columns = {1, 5, 17};
static const rn_pad_attrs around = {{1, 2}, {3, 1}, 0.5f}, behind = {{0, 0, 0}, {0, 0, 5}, 0},
                          rows_right = {{0, 2}, {0, 1}, -1};

#define MOVE(OP, WHAT, BUILD, A, B, ATTRS, ROWS)                                                   \
    {                                                                                              \
        .op = RN_OP_##OP, .what = WHAT, .build = BUILD, .shapes = {A, B}, .attrs = ATTRS,          \
        .rows = ROWS                                                                               \
    }

// ---- types --------------------------------------------------------------------------------------

// From f32 to the row's type and back, or (variant) from the row's type to f32.
static void cast(conform_case *c) {
    if (c->row->variant) {
        rn_value x = conform_fixed(c, c->row->dtype, c->row->shapes[0], -20, 20);
        conform_result(c, rn_op_cast(c->graph, x, RN_DTYPE_F32));
        return;
    }
    rn_value x = conform_fixed(c, RN_DTYPE_F32, c->row->shapes[0], -20, 20);
    conform_result(c, rn_op_cast(c->graph, rn_op_cast(c->graph, x, c->row->dtype), RN_DTYPE_F32));
}

// The identity, so that slopes mean something: rounding to f16 and back would not.
static void cast_same(conform_case *c) {
    rn_value x = conform_in(c, c->row->shapes[0], -2, 2);
    conform_result(c, rn_op_cast(c->graph, x, RN_DTYPE_F32));
}

static void cast_wide(conform_case *c) {
    rn_value x = conform_in(c, c->row->shapes[0], -2, 2);
    conform_result(c, rn_op_cast(c->graph, rn_op_cast(c->graph, x, RN_DTYPE_F64), RN_DTYPE_F32));
}

static void quantize(conform_case *c) {
    rn_value x = conform_fixed(c, RN_DTYPE_F32, c->row->shapes[0], -2, 2);
    conform_result(c, rn_op_dequantize(c->graph, rn_op_quantize(c->graph, x, c->row->dtype)));
}

static void dequantize(conform_case *c) {
    rn_value x = conform_weight(c, c->row->dtype, c->row->shapes[0], -2, 2);
    conform_result(c, rn_op_dequantize(c->graph, x));
}

#define TYPED(OP, WHAT, BUILD, DTYPE, X, VARIANT, ROWS)                                            \
    {                                                                                              \
        .op = RN_OP_##OP, .what = WHAT, .build = BUILD, .dtype = DTYPE, .shapes = {X},             \
        .variant = VARIANT, .rows = ROWS                                                           \
    }

// ---- random numbers -----------------------------------------------------------------------------

#define SEED ((rn_scalar){.f64 = 123456789})

static void uniform(conform_case *c) {
    rn_random_attrs attrs = {conform_scalar(c, "seed", SEED), (uint32_t)c->row->variant, -1, 3};
    conform_result(c, rn_op_random_uniform(c->graph, c->row->shapes[0], attrs));
}

static void normal(conform_case *c) {
    rn_random_attrs attrs = {conform_scalar(c, "seed", SEED), (uint32_t)c->row->variant, 0.5f, 2};
    conform_result(c, rn_op_random_normal(c->graph, c->row->shapes[0], attrs));
}

static void dropout(conform_case *c) {
    static const float probabilities[] = {0, 0.3f, 0.9f};
    rn_dropout_attrs attrs = {conform_scalar(c, "seed", SEED), 7, probabilities[c->row->variant]};
    rn_value x = conform_in(c, c->row->shapes[0], -2, 2);
    conform_result(c, rn_op_dropout(c->graph, x, attrs));
}

#define RANDOM(OP, WHAT, BUILD, X, VARIANT, ROWS)                                                  \
    {                                                                                              \
        .op = RN_OP_##OP, .what = WHAT, .build = BUILD, .shapes = {X}, .variant = VARIANT,         \
        .rows = ROWS                                                                               \
    }
#define EACH_RANDOM(OP, BUILD)                                                                     \
    RANDOM(OP, "one element", BUILD, RN_SHAPE(1), 0, 0),                                           \
        RANDOM(OP, "odd axes", BUILD, RN_SHAPE(3, 5, 7), 1, 0),                                    \
        RANDOM(OP, "many", BUILD, RN_SHAPE(1031), 2, 0)

static const conform_row rows[] = {
    MOVE(RESHAPE, "flat", reshape, RN_SHAPE(3, 5, 7), RN_SHAPE(105), NULL, 0),
    MOVE(RESHAPE, "what is left", reshape, RN_SHAPE(3, 4, 5), RN_SHAPE(2, 0, 5), NULL, 0),
    MOVE(RESHAPE, "to a scalar", reshape, RN_SHAPE(1, 1), {0}, NULL, 0),
    MOVE(RESHAPE, "rows", reshape, RN_SHAPE(RN_ROWS, 12), RN_SHAPE(RN_ROWS, 3, 4), NULL, 5),
    MOVE(PERMUTE, "a matrix", permute, RN_SHAPE(5, 19), {0}, swap, 0),
    MOVE(PERMUTE, "a large matrix", permute, RN_SHAPE(67, 35), {0}, swap, 0),
    MOVE(PERMUTE, "three axes", permute, RN_SHAPE(3, 5, 7), {0}, turn, 0),
    MOVE(PERMUTE, "heads", permute, RN_SHAPE(2, 3, 4, 5), {0}, heads, 0),
    MOVE(PERMUTE, "nothing", permute, RN_SHAPE(3, 5, 7), {0}, stay, 0),
    MOVE(PERMUTE, "rows", permute, RN_SHAPE(RN_ROWS, 3, 5), {0}, inner, 4),
    MOVE(ALL_GATHER, "columns", all_gather, RN_SHAPE(RN_ROWS, 7), {0}, &two_ranks, 4),
    MOVE(ALL_GATHER, "one row", all_gather, RN_SHAPE(RN_ROWS, 7), {0}, &five_ranks, 1),
    MOVE(ALL_GATHER, "heads", all_gather, RN_SHAPE(3, 2, 5), {0}, &five_ranks, 0),
    MOVE(SLICE, "a view", slice, RN_SHAPE(5, 7), {0}, &first_rows, 0),
    MOVE(SLICE, "the middle", slice, RN_SHAPE(3, 6, 5), {0}, &middle, 0),
    MOVE(SLICE, "the last", slice, RN_SHAPE(3, 2, 7), {0}, &last, 0),
    MOVE(SLICE, "rows", slice, RN_SHAPE(RN_ROWS, 33), {0}, &columns, 4),
    MOVE(SLICE, "one row", slice, RN_SHAPE(RN_ROWS, 33), {0}, &columns, 1),
    MOVE(PAD, "around", pad, RN_SHAPE(3, 5), {0}, &around, 0),
    MOVE(PAD, "behind", pad, RN_SHAPE(2, 3, 4), {0}, &behind, 0),
    MOVE(PAD, "rows", pad, RN_SHAPE(RN_ROWS, 5), {0}, &rows_right, 3),
    MOVE(BROADCAST, "a number", broadcast, {0}, RN_SHAPE(3, 5), NULL, 0),
    MOVE(BROADCAST, "a row", broadcast, RN_SHAPE(17), RN_SHAPE(3, 17), NULL, 0),
    MOVE(BROADCAST, "a column", broadcast, RN_SHAPE(2, 3, 1), RN_SHAPE(2, 3, 5), NULL, 0),
    MOVE(BROADCAST, "the same", broadcast, RN_SHAPE(2, 3), RN_SHAPE(2, 3), NULL, 0),
    MOVE(BROADCAST, "rows", broadcast, RN_SHAPE(RN_ROWS, 1), RN_SHAPE(RN_ROWS, 33), NULL, 4),

    {.op = RN_OP_CONCAT,
     .what = "one part",
     .build = concat,
     .shapes = {RN_SHAPE(3, 5)},
     .variant = 1},
    {.op = RN_OP_CONCAT,
     .what = "the outer axis",
     .build = concat,
     .shapes = {RN_SHAPE(1, 5), RN_SHAPE(3, 5), RN_SHAPE(2, 5)},
     .variant = 0},
    {.op = RN_OP_CONCAT,
     .what = "the last axis",
     .build = concat,
     .shapes = {RN_SHAPE(2, 3, 1), RN_SHAPE(2, 3, 7), RN_SHAPE(2, 3, 4)},
     .variant = 2},
    {.op = RN_OP_CONCAT,
     .what = "rows",
     .build = concat,
     .shapes = {RN_SHAPE(RN_ROWS, 9), RN_SHAPE(RN_ROWS, 17)},
     .rows = 4,
     .variant = 1},

    TYPED(CAST, "to f16", cast, RN_DTYPE_F16, RN_SHAPE(3, 17), 0, 0),
    TYPED(CAST, "to bf16, rows", cast, RN_DTYPE_BF16, RN_SHAPE(RN_ROWS, 33), 0, 3),
    TYPED(CAST, "to bf16, several runs", cast, RN_DTYPE_BF16, RN_SHAPE(3, 50001), 0, 0),
    TYPED(CAST, "to i32", cast, RN_DTYPE_I32, RN_SHAPE(3, 17), 0, 0),
    TYPED(CAST, "to f8", cast, RN_DTYPE_F8_E4M3, RN_SHAPE(67), 0, 0),
    TYPED(CAST, "from f16", cast, RN_DTYPE_F16, RN_SHAPE(3, 17), 1, 0),
    TYPED(CAST, "from i64", cast, RN_DTYPE_I64, RN_SHAPE(5), 1, 0),
    TYPED(CAST, "to itself", cast_same, RN_DTYPE_F32, RN_SHAPE(3, 17), 0, 0),
    TYPED(CAST, "to f64 and back", cast_wide, RN_DTYPE_F32, RN_SHAPE(3, 17), 0, 0),
    TYPED(QUANTIZE, "q8_0", quantize, RN_DTYPE_Q8_0, RN_SHAPE(3, 64), 0, 0),
    TYPED(QUANTIZE, "q4_0", quantize, RN_DTYPE_Q4_0, RN_SHAPE(3, 32), 0, 0),
    TYPED(QUANTIZE, "rows", quantize, RN_DTYPE_Q8_0, RN_SHAPE(RN_ROWS, 96), 0, 5),
    TYPED(DEQUANTIZE, "q8_0", dequantize, RN_DTYPE_Q8_0, RN_SHAPE(3, 64), 0, 0),
    TYPED(DEQUANTIZE, "q4_0", dequantize, RN_DTYPE_Q4_0, RN_SHAPE(5, 32), 0, 0),

    EACH_RANDOM(RANDOM_UNIFORM, uniform),
    EACH_RANDOM(RANDOM_NORMAL, normal),
    RANDOM(DROPOUT, "one element", dropout, RN_SHAPE(1), 1, 0),
    RANDOM(DROPOUT, "odd axes", dropout, RN_SHAPE(3, 5, 7), 1, 0),
    RANDOM(DROPOUT, "most of them", dropout, RN_SHAPE(1031), 2, 0),
    RANDOM(DROPOUT, "none", dropout, RN_SHAPE(3, 17), 0, 0),
    RANDOM(DROPOUT, "rows", dropout, RN_SHAPE(RN_ROWS, 33), 1, 4),
};

const conform_table conform_moves = {rows, sizeof rows / sizeof *rows};

// conform_reductions.c — rows of the ops that make many elements one: sums, pools, losses.
#include "conform.h"

// ---- over axes ----------------------------------------------------------------------------------

enum { KEEP = 1 << 16 }; // beside the axes, in `variant`

static void reduce(conform_case *c) {
    uint32_t axes = (uint32_t)c->row->variant & 0xffff;
    bool keep = c->row->variant & KEEP;
    rn_shape shape = c->row->shapes[0];
    if (c->row->op == RN_OP_SUM)
        conform_result(c, rn_op_sum(c->graph, conform_in(c, shape, -1, 1), axes, keep));
    else if (c->row->op == RN_OP_MEAN)
        conform_result(c, rn_op_mean(c->graph, conform_in(c, shape, -1, 1), axes, keep));
    else
        conform_result(c, rn_op_max(c->graph, conform_apart(c, shape), axes, keep));
}

#define REDUCE(OP, WHAT, X, VARIANT, ROWS)                                                         \
    {                                                                                              \
        .op = RN_OP_##OP, .what = WHAT, .build = reduce, .shapes = {X}, .variant = VARIANT,        \
        .rows = ROWS                                                                               \
    }

#define EACH_AXIS(OP)                                                                              \
    REDUCE(OP, "one element", RN_SHAPE(1), 1, 0), REDUCE(OP, "all", RN_SHAPE(3, 5, 7), 7, 0),      \
        REDUCE(OP, "all, kept", RN_SHAPE(3, 5, 7), 7 | KEEP, 0),                                   \
        REDUCE(OP, "the last", RN_SHAPE(3, 5, 17), 4, 0),                                          \
        REDUCE(OP, "the last, kept", RN_SHAPE(3, 5, 17), 4 | KEEP, 0),                             \
        REDUCE(OP, "the first", RN_SHAPE(5, 33), 1, 0),                                            \
        REDUCE(OP, "the middle", RN_SHAPE(3, 5, 7), 2, 0),                                         \
        REDUCE(OP, "the outer two", RN_SHAPE(3, 4, 19), 3, 0),                                     \
        REDUCE(OP, "not neighbours", RN_SHAPE(3, 4, 5), 5, 0),                                     \
        REDUCE(OP, "many", RN_SHAPE(1031), 1, 0),                                                  \
        REDUCE(OP, "rows, the last", RN_SHAPE(RN_ROWS, 33), 2, 5),                                 \
        REDUCE(OP, "over rows", RN_SHAPE(RN_ROWS, 33), 1, 5)

static void sum_squares(conform_case *c) {
    conform_result(c, rn_op_sum_squares(c->graph, conform_in(c, c->row->shapes[0], -2, 2)));
}

// A loss over whole numbers would have no meaning: argmax has no result that is a float.
static void argmax(conform_case *c) {
    rn_op_argmax(c->graph, conform_apart(c, c->row->shapes[0]));
}

#define SIMPLE(OP, WHAT, BUILD, X, ROWS)                                                           \
    { .op = RN_OP_##OP, .what = WHAT, .build = BUILD, .shapes = {X}, .rows = ROWS }

// ---- pools --------------------------------------------------------------------------------------

static void avg_pool(conform_case *c) {
    const rn_pool2d_attrs *attrs = c->row->attrs;
    conform_result(c, rn_op_avg_pool(c->graph, conform_in(c, c->row->shapes[0], -2, 2), *attrs));
}

static void max_pool(conform_case *c) {
    const rn_pool2d_attrs *attrs = c->row->attrs;
    conform_result(c, rn_op_max_pool(c->graph, conform_apart(c, c->row->shapes[0]), *attrs));
}

static const rn_pool2d_attrs pairs = {2, 2, 2, 2, 0, 0, 0, 0}, stem = {3, 3, 2, 2, 1, 1, 1, 1},
                             uneven = {3, 2, 1, 2, 1, 0, 0, 1}, global = {4, 5, 1, 1, 0, 0, 0, 0};

#define POOL(OP, BUILD, WHAT, X, ATTRS, ROWS)                                                      \
    {                                                                                              \
        .op = RN_OP_##OP, .what = WHAT, .build = BUILD, .shapes = {X}, .attrs = &(ATTRS),          \
        .rows = ROWS                                                                               \
    }
#define EACH_POOL(OP, BUILD)                                                                       \
    POOL(OP, BUILD, "pairs", RN_SHAPE(2, 4, 6, 3), pairs, 0),                                      \
        POOL(OP, BUILD, "pairs, some left over", RN_SHAPE(1, 5, 7, 17), pairs, 0),                 \
        POOL(OP, BUILD, "3x3, halving", RN_SHAPE(1, 7, 6, 5), stem, 0),                            \
        POOL(OP, BUILD, "uneven", RN_SHAPE(1, 5, 6, 2), uneven, 0),                                \
        POOL(OP, BUILD, "all of it", RN_SHAPE(2, 4, 5, 16), global, 0),                            \
        POOL(OP, BUILD, "rows", RN_SHAPE(RN_ROWS, 4, 5, 3), stem, 3)

// ---- losses -------------------------------------------------------------------------------------

enum { SCALED = 1, IGNORING = 2, IGNORING_ALL = 4 };
static const int32_t targets[] = {3, 0, -100, 2, -100, 1}, none[] = {-100, -100, -100};

static void cross_entropy(conform_case *c) {
    rn_cross_entropy_attrs attrs = {.ignore = -100, .normalizer = RN_NO_SCALAR};
    rn_shape logits = c->row->shapes[0], n = RN_SHAPE(logits.dims[0]);
    if (c->row->variant & SCALED)
        attrs.normalizer = conform_scalar(c, "normalizer", (rn_scalar){.f64 = 0.35});
    rn_value x = conform_in(c, logits, -2, 2), t;
    if (c->row->variant & IGNORING_ALL)
        t = conform_list(c, n, none);
    else if (c->row->variant & IGNORING)
        t = conform_list(c, n, targets);
    else
        t = conform_whole(c, n, 0, (int32_t)logits.dims[1]);
    conform_result(c, rn_op_cross_entropy(c->graph, x, t, attrs));
}

// x (N, D), w (V, D)
static void linear_cross_entropy(conform_case *c) {
    rn_cross_entropy_attrs attrs = {.ignore = -100, .normalizer = RN_NO_SCALAR};
    rn_shape shape = c->row->shapes[0], n = RN_SHAPE(shape.dims[0]);
    if (c->row->variant & SCALED)
        attrs.normalizer = conform_scalar(c, "normalizer", (rn_scalar){.f64 = 0.35});
    rn_value x = conform_in(c, shape, -1, 1), w = conform_in(c, c->row->shapes[1], -1, 1), t;
    if (c->row->variant & IGNORING_ALL)
        t = conform_list(c, n, none);
    else if (c->row->variant & IGNORING)
        t = conform_list(c, n, targets);
    else
        t = conform_whole(c, n, 0, (int32_t)c->row->shapes[1].dims[0]);
    conform_result(c, rn_op_linear_cross_entropy(c->graph, x, w, t, attrs));
}

static void mse(conform_case *c) {
    rn_value a = conform_in(c, c->row->shapes[0], -2, 2);
    rn_value b = conform_in(c, c->row->shapes[0], -2, 2);
    conform_result(c, rn_op_mse(c->graph, a, b));
}

#define ENTROPY(WHAT, X, VARIANT, ROWS)                                                            \
    {                                                                                              \
        .op = RN_OP_CROSS_ENTROPY, .what = WHAT, .build = cross_entropy, .shapes = {X},            \
        .variant = VARIANT, .rows = ROWS                                                           \
    }

#define LINEAR(WHAT, X, W, VARIANT, ROWS)                                                          \
    {                                                                                              \
        .op = RN_OP_LINEAR_CROSS_ENTROPY, .what = WHAT, .build = linear_cross_entropy,             \
        .shapes = {X, W}, .variant = VARIANT, .rows = ROWS                                         \
    }

static const conform_row rows[] = {
    EACH_AXIS(SUM),
    EACH_AXIS(MEAN),
    EACH_AXIS(MAX),

    SIMPLE(SUM_SQUARES, "a scalar", sum_squares, {0}, 0),
    SIMPLE(SUM_SQUARES, "odd axes", sum_squares, RN_SHAPE(3, 5, 7), 0),
    SIMPLE(SUM_SQUARES, "many", sum_squares, RN_SHAPE(1031), 0),
    SIMPLE(SUM_SQUARES, "rows", sum_squares, RN_SHAPE(RN_ROWS, 33), 5),
    SIMPLE(ARGMAX, "one element", argmax, RN_SHAPE(1), 0),
    SIMPLE(ARGMAX, "odd axes", argmax, RN_SHAPE(3, 5, 17), 0),
    SIMPLE(ARGMAX, "rows", argmax, RN_SHAPE(RN_ROWS, 67), 5),

    EACH_POOL(AVG_POOL, avg_pool),
    EACH_POOL(MAX_POOL, max_pool),

    ENTROPY("one row", RN_SHAPE(1, 3), 0, 0),
    ENTROPY("the mean", RN_SHAPE(5, 17), 0, 0),
    ENTROPY("some ignored", RN_SHAPE(6, 4), IGNORING, 0),
    ENTROPY("all ignored", RN_SHAPE(3, 4), IGNORING_ALL, 0),
    ENTROPY("a scalar of the run", RN_SHAPE(6, 33), SCALED | IGNORING, 0),
    ENTROPY("rows", RN_SHAPE(RN_ROWS, 9), 0, 7),
    LINEAR("one row", RN_SHAPE(1, 4), RN_SHAPE(3, 4), 0, 0),
    LINEAR("the mean", RN_SHAPE(5, 7), RN_SHAPE(17, 7), 0, 0),
    LINEAR("some ignored", RN_SHAPE(6, 8), RN_SHAPE(4, 8), IGNORING, 0),
    LINEAR("all ignored", RN_SHAPE(3, 4), RN_SHAPE(5, 4), IGNORING_ALL, 0),
    LINEAR("a scalar of the run", RN_SHAPE(6, 16), RN_SHAPE(33, 16), SCALED | IGNORING, 0),
    LINEAR("rows", RN_SHAPE(RN_ROWS, 9), RN_SHAPE(11, 9), 0, 7),
    SIMPLE(MSE, "a scalar", mse, {0}, 0),
    SIMPLE(MSE, "odd axes", mse, RN_SHAPE(3, 5, 7), 0),
    SIMPLE(MSE, "rows", mse, RN_SHAPE(RN_ROWS, 33), 5),
};

const conform_table conform_reductions = {rows, sizeof rows / sizeof *rows};

// conform_products.c — rows of products, convolutions and table look-ups.
#include "conform.h"

// ---- matmul -------------------------------------------------------------------------------------

enum { BIAS = 1, TRANSPOSE_X = 2, TRANSPOSE_W = 4, RANK_MANY = 8, PLAIN_X = 16 };

static void matmul(conform_case *c) {
    const conform_row *row = c->row;
    rn_shape w_shape = row->shapes[1];
    bool transpose_w = row->variant & TRANSPOSE_W;
    rn_matmul_attrs attrs = {.transpose_x = row->variant & TRANSPOSE_X,
                             .transpose_w = transpose_w,
                             .unquantised_activations = row->variant & PLAIN_X};
    rn_value x = conform_in(c, row->shapes[0], -1, 1), bias = RN_NO_VALUE;
    rn_value w = row->variant & RANK_MANY ? conform_in(c, w_shape, -1, 1)
                                          : conform_weight(c, row->dtype, w_shape, -1, 1);
    uint64_t n = w_shape.dims[w_shape.rank - (transpose_w ? 1 : 2)];
    if (row->variant & BIAS) bias = conform_weight(c, RN_DTYPE_F32, RN_SHAPE(n), -1, 1);
    conform_result(c, rn_op_matmul_as(c->graph, x, w, bias, attrs));
}

#define MATMUL(WHAT, X, W, VARIANT, ...)                                                           \
    {                                                                                              \
        .op = RN_OP_MATMUL, .what = WHAT, .build = matmul, .shapes = {X, W}, .variant = VARIANT,   \
        __VA_ARGS__                                                                                \
    }

#define ROWS_OF(K) RN_SHAPE(RN_ROWS, K)

// A weight of a type: one row, a few, more than a tile (of MANY columns); N and K that no tile
// divides where the type allows it.
#define WEIGHT(NAME, DTYPE, K, MANY, ...)                                                          \
    MATMUL(NAME " weight, one row", ROWS_OF(K), RN_SHAPE(16, K), 0, .rows = 1, .dtype = DTYPE,     \
           __VA_ARGS__),                                                                           \
        MATMUL(NAME " weight, bias, three rows", ROWS_OF(K), RN_SHAPE(5, K), BIAS, .rows = 3,      \
               .dtype = DTYPE, __VA_ARGS__),                                                       \
        MATMUL(NAME " weight, many rows", ROWS_OF(MANY), RN_SHAPE(35, MANY), BIAS, .rows = 19,     \
               .dtype = DTYPE, __VA_ARGS__)

// Products that round activations: the same bits everywhere.
#define ROUNDED(NAME, DTYPE, K) WEIGHT(NAME, DTYPE, K, 2 * (K), .bits = true, .stairs = true)
#define RARE(NAME, DTYPE, K)    WEIGHT(NAME, DTYPE, K, K, .bits = true, .stairs = true)
#define WIDENED(NAME, DTYPE, K) WEIGHT(NAME, DTYPE, K, 2 * (K), .low = -1)
// The same dtypes where activations are to stay as they are.
#define PLAIN(NAME, DTYPE, K)                                                                      \
    MATMUL(NAME " weight, one plain row", ROWS_OF(K), RN_SHAPE(35, K), BIAS | PLAIN_X, .rows = 1,  \
           .dtype = DTYPE, .low = -1),                                                             \
        MATMUL(NAME " weight, many plain rows", ROWS_OF(2 * K), RN_SHAPE(35, 2 * K), PLAIN_X,      \
               .rows = 19, .dtype = DTYPE, .low = -1)

// ---- conv2d -------------------------------------------------------------------------------------

static void conv2d(conform_case *c) {
    const rn_conv2d_attrs *attrs = c->row->attrs;
    rn_shape w_shape = c->row->shapes[1];
    rn_value x = conform_in(c, c->row->shapes[0], -1, 1), bias = RN_NO_VALUE;
    rn_value w = conform_weight(c, RN_DTYPE_F32, w_shape, -1, 1);
    if (c->row->variant & BIAS)
        bias = conform_weight(c, RN_DTYPE_F32, RN_SHAPE(w_shape.dims[0]), -1, 1);
    conform_result(c, rn_op_conv2d(c->graph, x, w, bias, *attrs));
}

static const rn_conv2d_attrs plain = {1, 1, 0, 0, 0, 0}, same = {1, 1, 1, 1, 1, 1},
                             halving = {2, 2, 1, 1, 1, 1}, stem = {2, 2, 3, 3, 3, 3},
                             uneven = {1, 2, 2, 0, 1, 3}, downsample = {2, 2, 0, 0, 0, 0};

#define CONV(WHAT, X, W, ATTRS, VARIANT, ROWS)                                                     \
    {                                                                                              \
        .op = RN_OP_CONV2D, .what = WHAT, .build = conv2d, .shapes = {X, W}, .attrs = &(ATTRS),    \
        .variant = VARIANT, .rows = ROWS                                                           \
    }

// ---- embedding ----------------------------------------------------------------------------------

static void embedding(conform_case *c) {
    rn_shape table = c->row->shapes[0];
    rn_value t = conform_weight(c, c->row->dtype, table, -1, 1);
    rn_value ids = conform_whole(c, c->row->shapes[1], 0, (int32_t)table.dims[0]);
    conform_result(c, rn_op_embedding(c->graph, t, ids));
}

#define EMBEDDING(WHAT, DTYPE, TABLE, IDS, ROWS)                                                   \
    {                                                                                              \
        .op = RN_OP_EMBEDDING, .what = WHAT, .build = embedding, .dtype = DTYPE,                   \
        .shapes = {TABLE, IDS}, .rows = ROWS                                                       \
    }

// ---- mixture of experts -------------------------------------------------------------------------

// shapes: logits; variant: bias and scale of the experts
enum { ROUTE_BIAS = 1, ROUTE_SCALE = 2 };

static void route(conform_case *c) {
    const rn_route_attrs *attrs = c->row->attrs;
    uint64_t experts = c->row->shapes[0].dims[1];
    rn_value logits = conform_fixed(c, RN_DTYPE_F32, c->row->shapes[0], -3, 3);
    rn_value bias = RN_NO_VALUE, scale = RN_NO_VALUE;
    if (c->row->variant & ROUTE_BIAS)
        bias = conform_fixed(c, RN_DTYPE_F32, RN_SHAPE(experts), -0.5f, 0.5f);
    if (c->row->variant & ROUTE_SCALE)
        scale = conform_fixed(c, RN_DTYPE_F32, RN_SHAPE(experts), 0.5f, 2);
    rn_value ids = rn_op_route(c->graph, logits, bias, scale, *attrs);
    conform_result(c, ids);
    conform_result(c, rn_graph_output_of(c->graph, ids, 1));
}

static const rn_route_attrs plain_route = {.chosen = 2},
                            mixtral_route = {.chosen = 2, .norm = true},
                            gpt_oss_route = {.chosen = 4, .gating = RN_GATING_SOFTMAX_CHOSEN},
                            deepseek_route = {.chosen = 4,
                                              .gating = RN_GATING_SIGMOID,
                                              .groups = 4,
                                              .groups_chosen = 2,
                                              .norm = true,
                                              .scale = 2.5f},
                            deepseek2_route = {.chosen = 3,
                                               .groups = 4,
                                               .groups_chosen = 2,
                                               .group_by_max = true,
                                               .scale = 16},
                            softplus_route = {.chosen = 16, .gating = RN_GATING_SQRT_SOFTPLUS};

#define ROUTE(WHAT, EXPERTS, ATTRS, VARIANT, ROWS)                                                 \
    {                                                                                              \
        .op = RN_OP_ROUTE, .what = WHAT, .build = route, .shapes = {RN_SHAPE(RN_ROWS, EXPERTS)},   \
        .attrs = &(ATTRS), .variant = VARIANT, .rows = ROWS                                        \
    }

// shapes: x, ids, w; `attrs`: the product's; variant: BIAS
static void expert_product(conform_case *c) {
    const conform_row *row = c->row;
    const rn_expert_product_attrs *attrs = row->attrs;
    rn_value x = conform_fixed(c, RN_DTYPE_F32, row->shapes[0], -1, 1), bias = RN_NO_VALUE;
    rn_value ids = conform_whole(c, row->shapes[1], -1, (int32_t)attrs->experts);
    rn_value w = conform_weight(c, row->dtype, row->shapes[2], -1, 1);
    uint64_t record = row->shapes[2].dims[0] / attrs->experts;
    if (row->variant & BIAS)
        bias = conform_fixed(c, RN_DTYPE_F32, RN_SHAPE(attrs->experts, record), -1, 1);
    conform_result(c, rn_op_expert_product(c->graph, x, ids, w, bias, *attrs));
}

static const rn_expert_product_attrs four = {.experts = 4}, upper = {.experts = 4, .first = 16},
                                     lower = {.experts = 4, .count = 16},
                                     odd_rows = {.experts = 3, .first = 2, .count = 4},
                                     plain_x = {.experts = 4, .unquantised_activations = true};

#define EXPERTS(WHAT, X, CHOICES, W, ATTRS, ROWS, ...)                                             \
    {                                                                                              \
        .op = RN_OP_EXPERT_PRODUCT, .what = WHAT, .build = expert_product,                         \
        .shapes = {X, RN_SHAPE(RN_ROWS, CHOICES), W}, .attrs = &(ATTRS), .rows = ROWS, __VA_ARGS__ \
    }
// One row, some, more than a batch of one expert; in panels of the matrix, and not.
#define EXPERTS_OF(NAME, DTYPE, K, ...)                                                            \
    EXPERTS(NAME " experts, one row", ROWS_OF(K), 3, RN_SHAPE(128, K), four, 1, .dtype = DTYPE,    \
            __VA_ARGS__),                                                                          \
        EXPERTS(NAME " experts, a row a choice", RN_SHAPE(RN_ROWS, 2, K), 2, RN_SHAPE(128, K),     \
                upper, 7, .dtype = DTYPE, .variant = BIAS, __VA_ARGS__),                           \
        EXPERTS(NAME " experts of odd rows", ROWS_OF(K), 2, RN_SHAPE(21, K), odd_rows, 40,         \
                .dtype = DTYPE, .variant = BIAS, __VA_ARGS__)

static void expert_sum(conform_case *c) {
    rn_value y = conform_fixed(c, RN_DTYPE_F32, c->row->shapes[0], -1, 1);
    rn_value w = conform_fixed(c, RN_DTYPE_F32, c->row->shapes[1], 0, 1);
    conform_result(c, rn_op_expert_sum(c->graph, y, w));
}

#define EXPERT_SUM(WHAT, K, N, ROWS)                                                               \
    {                                                                                              \
        .op = RN_OP_EXPERT_SUM, .what = WHAT, .build = expert_sum,                                 \
        .shapes = {RN_SHAPE(RN_ROWS, K, N), RN_SHAPE(RN_ROWS, K)}, .rows = ROWS                    \
    }

// shapes: x, w
static void head_product(conform_case *c) {
    rn_value x = conform_fixed(c, RN_DTYPE_F32, c->row->shapes[0], -1, 1);
    rn_value w = conform_weight(c, c->row->dtype, c->row->shapes[1], -1, 1);
    const rn_head_product_attrs *attrs = c->row->attrs;
    conform_result(c, rn_op_head_product(c->graph, x, w, *attrs));
}

static const rn_head_product_attrs of_all = {0}, of_some = {.first = 3, .count = 5},
                                   across = {.count = 6, .transposed = true},
                                   as_it_is = {.first = 1, .unquantised_activations = true};

#define HEAD_PRODUCT(WHAT, X, W, ATTRS, ROWS, ...)                                                 \
    {                                                                                              \
        .op = RN_OP_HEAD_PRODUCT, .what = WHAT, .build = head_product, .shapes = {X, W},           \
        .attrs = &(ATTRS), .rows = ROWS, __VA_ARGS__                                               \
    }
// Three heads with matrices of 8 rows: all of them; some; as (K, N); more rows than a task takes.
#define HEAD_PRODUCTS(NAME, DTYPE, K, ...)                                                         \
    HEAD_PRODUCT(NAME " heads, one row", RN_SHAPE(RN_ROWS, 3, K), RN_SHAPE(24, K), of_all, 1,      \
                 .dtype = DTYPE, __VA_ARGS__),                                                     \
        HEAD_PRODUCT(NAME " heads, some of their rows", RN_SHAPE(RN_ROWS, 3, K), RN_SHAPE(24, K),  \
                     of_some, 70, .dtype = DTYPE, __VA_ARGS__),                                    \
        HEAD_PRODUCT(NAME " heads, transposed", RN_SHAPE(RN_ROWS, 3, 6), RN_SHAPE(24, K), across,  \
                     5, .dtype = DTYPE),                                                           \
        HEAD_PRODUCT(NAME " heads, x as it is", RN_SHAPE(RN_ROWS, 3, K), RN_SHAPE(24, K),          \
                     as_it_is, 2, .dtype = DTYPE)

static const conform_row rows[] = {
    ROUTE("softmax", 16, plain_route, 0, 5),
    ROUTE("softmax, norm", 8, mixtral_route, 0, 3),
    ROUTE("softmax of the chosen", 32, gpt_oss_route, 0, 3),
    ROUTE("sigmoid, bias, groups", 32, deepseek_route, ROUTE_BIAS, 7),
    ROUTE("groups by their best", 32, deepseek2_route, 0, 7),
    ROUTE("all of them, scaled one by one", 16, softplus_route, ROUTE_SCALE, 2),
    EXPERTS("experts, many rows", ROWS_OF(64), 2, RN_SHAPE(128, 64), lower, 300,
            .dtype = RN_DTYPE_Q8_0, .bits = true),
    EXPERTS("experts, x as it is", ROWS_OF(256), 2, RN_SHAPE(128, 256), plain_x, 5,
            .dtype = RN_DTYPE_Q4_K),
    EXPERTS_OF("f32", RN_DTYPE_F32, 67),
    EXPERTS_OF("bf16", RN_DTYPE_BF16, 67),
    EXPERTS_OF("f8_b128", RN_DTYPE_F8_B128, 128),
    EXPERTS_OF("q4_0", RN_DTYPE_Q4_0, 64, .bits = true),
    EXPERTS_OF("q4_k", RN_DTYPE_Q4_K, 256, .bits = true),
    EXPERTS_OF("q6_k", RN_DTYPE_Q6_K, 256, .bits = true),
    EXPERTS_OF("mxfp4", RN_DTYPE_MXFP4, 64, .bits = true),
    EXPERTS_OF("iq2_xxs", RN_DTYPE_IQ2_XXS, 256, .bits = true),
    EXPERT_SUM("one choice", 1, 5, 2),
    EXPERT_SUM("several", 8, 67, 3),
    HEAD_PRODUCTS("f32", RN_DTYPE_F32, 67),
    HEAD_PRODUCTS("f16", RN_DTYPE_F16, 67),
    HEAD_PRODUCTS("f8_b128", RN_DTYPE_F8_B128, 128),
    HEAD_PRODUCTS("q8_0", RN_DTYPE_Q8_0, 64, .bits = true),
    HEAD_PRODUCTS("q6_k", RN_DTYPE_Q6_K, 256, .bits = true),
    MATMUL("one by one", RN_SHAPE(1, 1), RN_SHAPE(1, 1), 0),
    MATMUL("odd", RN_SHAPE(7, 13), RN_SHAPE(11, 13), 0),
    MATMUL("odd, bias", RN_SHAPE(7, 13), RN_SHAPE(11, 13), BIAS),
    MATMUL("a weight as (K, N)", RN_SHAPE(5, 13), RN_SHAPE(13, 18), TRANSPOSE_W | BIAS),
    MATMUL("x as (K, M)", RN_SHAPE(13, 5), RN_SHAPE(18, 13), TRANSPOSE_X),
    MATMUL("both transposed", RN_SHAPE(13, 5), RN_SHAPE(13, 18), TRANSPOSE_X | TRANSPOSE_W),
    MATMUL("a weight for all batches", RN_SHAPE(2, 3, 5, 7), RN_SHAPE(11, 7), BIAS),
    MATMUL("batches", RN_SHAPE(2, 3, 5, 7), RN_SHAPE(2, 3, 11, 7), RANK_MANY),
    MATMUL("batches broadcast", RN_SHAPE(2, 3, 5, 7), RN_SHAPE(1, 3, 11, 7), RANK_MANY),
    MATMUL("batches, w as (K, N)", RN_SHAPE(3, 5, 7), RN_SHAPE(3, 7, 11), RANK_MANY | TRANSPOSE_W),
    MATMUL("batches, x as (K, M)", RN_SHAPE(3, 7, 5), RN_SHAPE(3, 11, 7), RANK_MANY | TRANSPOSE_X),
    MATMUL("a batch of rows", RN_SHAPE(RN_ROWS, 3, 7), RN_SHAPE(RN_ROWS, 5, 7), RANK_MANY,
           .rows = 4),
    MATMUL("odd rows", ROWS_OF(67), RN_SHAPE(33, 67), BIAS, .rows = 5),
    MATMUL("x as (K, M), f16", RN_SHAPE(13, 5), RN_SHAPE(18, 13), TRANSPOSE_X,
           .dtype = RN_DTYPE_F16),
    MATMUL("a weight as (K, N), bf16", RN_SHAPE(5, 13), RN_SHAPE(13, 18), TRANSPOSE_W,
           .dtype = RN_DTYPE_BF16),
    WIDENED("f32", RN_DTYPE_F32, 64),
    WIDENED("f16", RN_DTYPE_F16, 67),
    WIDENED("bf16", RN_DTYPE_BF16, 67),
    WIDENED("f8_e4m3", RN_DTYPE_F8_E4M3, 67),
    WIDENED("f8_e4m3 in tiles", RN_DTYPE_F8_E4M3, 32),
    WIDENED("f8_e5m2", RN_DTYPE_F8_E5M2, 19),
    WIDENED("f8_b128", RN_DTYPE_F8_B128, 128),
    WIDENED("f8_b32", RN_DTYPE_F8_B32, 32),
    WIDENED("int4", RN_DTYPE_INT4, 128),
    WIDENED("nf4", RN_DTYPE_NF4, 128),
    WIDENED("nf4_dq", RN_DTYPE_NF4_DQ, 128),
    WIDENED("nf4_dq, blocks over rows' ends", RN_DTYPE_NF4_DQ, 100),
    ROUNDED("q4_1", RN_DTYPE_Q4_1, 64),
    ROUNDED("q5_0", RN_DTYPE_Q5_0, 64),
    ROUNDED("q5_1", RN_DTYPE_Q5_1, 64),
    ROUNDED("q2_k", RN_DTYPE_Q2_K, 256),
    ROUNDED("q3_k", RN_DTYPE_Q3_K, 256),
    ROUNDED("iq4_nl", RN_DTYPE_IQ4_NL, 160),
    ROUNDED("iq4_xs", RN_DTYPE_IQ4_XS, 256),
    ROUNDED("mxfp4", RN_DTYPE_MXFP4, 160),
    RARE("nvfp4", RN_DTYPE_NVFP4, 64),
    RARE("fp4_b64", RN_DTYPE_FP4_B64, 192),
    RARE("u4_b32", RN_DTYPE_U4_B32, 160),
    RARE("q1_0", RN_DTYPE_Q1_0, 128),
    RARE("q2_0", RN_DTYPE_Q2_0, 64),
    RARE("tq1_0", RN_DTYPE_TQ1_0, 256),
    RARE("tq2_0", RN_DTYPE_TQ2_0, 256),
    RARE("iq1_s", RN_DTYPE_IQ1_S, 256),
    RARE("iq1_m", RN_DTYPE_IQ1_M, 256),
    RARE("iq2_xxs", RN_DTYPE_IQ2_XXS, 256),
    RARE("iq2_xs", RN_DTYPE_IQ2_XS, 256),
    RARE("iq2_s", RN_DTYPE_IQ2_S, 256),
    RARE("iq3_xxs", RN_DTYPE_IQ3_XXS, 256),
    RARE("iq3_s", RN_DTYPE_IQ3_S, 256),
    ROUNDED("int8", RN_DTYPE_INT8, 96),
    ROUNDED("q8_0", RN_DTYPE_Q8_0, 96),
    ROUNDED("q4_0", RN_DTYPE_Q4_0, 96),
    ROUNDED("q4_k", RN_DTYPE_Q4_K, 256),
    ROUNDED("q5_k", RN_DTYPE_Q5_K, 256),
    ROUNDED("q6_k", RN_DTYPE_Q6_K, 256),
    PLAIN("int8", RN_DTYPE_INT8, 97),
    PLAIN("q8_0", RN_DTYPE_Q8_0, 96),
    PLAIN("q4_0", RN_DTYPE_Q4_0, 96),
    PLAIN("q4_k", RN_DTYPE_Q4_K, 256),
    PLAIN("q5_k", RN_DTYPE_Q5_K, 256),
    PLAIN("q6_k", RN_DTYPE_Q6_K, 256),
    PLAIN("q5_0", RN_DTYPE_Q5_0, 64),
    PLAIN("q3_k", RN_DTYPE_Q3_K, 256),
    PLAIN("mxfp4", RN_DTYPE_MXFP4, 160),

    CONV("one pixel", RN_SHAPE(1, 1, 1, 1), RN_SHAPE(1, 1, 1, 1), plain, BIAS, 0),
    CONV("1x1", RN_SHAPE(2, 3, 5, 7), RN_SHAPE(6, 7, 1, 1), plain, 0, 0),
    CONV("3x3, same", RN_SHAPE(2, 5, 4, 3), RN_SHAPE(5, 3, 3, 3), same, BIAS, 0),
    CONV("3x3, halving", RN_SHAPE(1, 7, 6, 16), RN_SHAPE(17, 16, 3, 3), halving, 0, 0),
    CONV("7x7, halving", RN_SHAPE(1, 9, 11, 3), RN_SHAPE(4, 3, 7, 7), stem, 0, 0),
    CONV("1x1, halving", RN_SHAPE(2, 5, 6, 3), RN_SHAPE(4, 3, 1, 1), downsample, 0, 0),
    CONV("uneven", RN_SHAPE(1, 5, 6, 2), RN_SHAPE(3, 2, 2, 4), uneven, BIAS, 0),
    CONV("rows", RN_SHAPE(RN_ROWS, 4, 5, 3), RN_SHAPE(18, 3, 3, 3), same, BIAS, 3),

    EMBEDDING("f32", RN_DTYPE_F32, RN_SHAPE(7, 5), RN_SHAPE(2, 6), 0),
    EMBEDDING("one row", RN_DTYPE_F32, RN_SHAPE(1, 1), RN_SHAPE(1), 0),
    EMBEDDING("rows, f32", RN_DTYPE_F32, RN_SHAPE(11, 33), RN_SHAPE(RN_ROWS), 5),
    EMBEDDING("rows, f16", RN_DTYPE_F16, RN_SHAPE(11, 33), RN_SHAPE(RN_ROWS), 5),
    EMBEDDING("rows, bf16", RN_DTYPE_BF16, RN_SHAPE(11, 33), RN_SHAPE(RN_ROWS), 5),
    EMBEDDING("rows, q8_0", RN_DTYPE_Q8_0, RN_SHAPE(11, 64), RN_SHAPE(RN_ROWS), 5),
    EMBEDDING("rows, q4_k", RN_DTYPE_Q4_K, RN_SHAPE(5, 256), RN_SHAPE(RN_ROWS), 3),
    EMBEDDING("rows, int8", RN_DTYPE_INT8, RN_SHAPE(11, 33), RN_SHAPE(RN_ROWS), 5),
};

const conform_table conform_products = {rows, sizeof rows / sizeof *rows};

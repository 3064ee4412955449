// conform_fused.c — rows of the fused ops: products with what is around them, attention with rope
// and pages.
#include "conform.h"

// ---- products -----------------------------------------------------------------------------------

enum { NORM = 1, BIAS = 2, RESIDUAL = 4, PLAIN_X = 8 };

static rn_value vector(conform_case *c, int wanted, uint64_t n) {
    if (!(c->row->variant & wanted)) return RN_NO_VALUE;
    return conform_weight(c, RN_DTYPE_F32, RN_SHAPE(n), 0.5f, 1.5f);
}

static rn_project_attrs attrs_of(const conform_row *row) {
    return (rn_project_attrs){.eps = 1e-5f,
                              .activation = RN_ACTIVATION_SILU,
                              .unquantised_activations = row->variant & PLAIN_X};
}

// shapes: x, w.
static void project(conform_case *c) {
    rn_shape x = c->row->shapes[0], w = c->row->shapes[1], y = RN_SHAPE(x.dims[0], w.dims[0]);
    rn_value rows = conform_in(c, x, -1, 1), norm = vector(c, NORM, x.dims[1]);
    rn_value weight = conform_weight(c, c->row->dtype, w, -1, 1);
    rn_value bias = vector(c, BIAS, w.dims[0]), residual = RN_NO_VALUE;
    if (c->row->variant & RESIDUAL) residual = conform_in(c, y, -1, 1);
    conform_result(c,
                   rn_op_project(c->graph, rows, norm, weight, bias, residual, attrs_of(c->row)));
}

// shapes: x, the three weights.
static void project_three(conform_case *c) {
    const rn_shape *shapes = c->row->shapes;
    rn_value rows = conform_in(c, shapes[0], -1, 1), norm = vector(c, NORM, shapes[0].dims[1]);
    rn_value w[3], bias[3];
    for (int i = 0; i < 3; i++) {
        w[i] = conform_weight(c, c->row->dtype, shapes[i + 1], -1, 1);
        bias[i] = vector(c, BIAS, shapes[i + 1].dims[0]);
    }
    rn_value first = rn_op_project_three(c->graph, rows, norm, w, bias, attrs_of(c->row));
    for (uint32_t i = 0; i < 3; i++)
        conform_result(c, rn_graph_output_of(c->graph, first, i));
}

// shapes: x, gate and up.
static void project_gated(conform_case *c) {
    rn_shape x = c->row->shapes[0], w = c->row->shapes[1];
    rn_value rows = conform_in(c, x, -1, 1), norm = vector(c, NORM, x.dims[1]);
    rn_value gate = conform_weight(c, c->row->dtype, w, -1, 1),
             gate_bias = vector(c, BIAS, w.dims[0]);
    rn_value up = conform_weight(c, c->row->dtype, w, -1, 1), up_bias = vector(c, BIAS, w.dims[0]);
    conform_result(c, rn_op_project_gated(c->graph, rows, norm, gate, gate_bias, up, up_bias,
                                          attrs_of(c->row)));
}

// shapes: x, w, y.
static void matmul_add(conform_case *c) {
    rn_matmul_attrs attrs = {.transpose_x = c->row->variant & 1,
                             .transpose_w = c->row->variant & 2};
    rn_value x = conform_in(c, c->row->shapes[0], -1, 1);
    rn_value w = conform_weight(c, c->row->dtype, c->row->shapes[1], -1, 1);
    rn_value addend = conform_in(c, c->row->shapes[2], -1, 1);
    rn_value in[] = {x, w, addend, RN_NO_VALUE};
    if (c->row->variant & 4) {
        in[3] = conform_weight(c, RN_DTYPE_F32, RN_SHAPE(c->row->shapes[2].dims[1]), 0.5f, 1.5f);
        conform_result(c, rn_graph_add(c->graph, RN_OP_MATMUL_ADD, in, 4, &attrs));
        return;
    }
    conform_result(c, rn_op_matmul_add(c->graph, x, w, addend, attrs));
}

#define ROWS_OF(K) RN_SHAPE(RN_ROWS, K)
#define PROJECT(WHAT, DTYPE, N, K, VARIANT, ROWS)                                                  \
    {                                                                                              \
        .op = RN_OP_PROJECT, .what = WHAT, .build = project, .dtype = DTYPE, .variant = VARIANT,   \
        .shapes = {ROWS_OF(K), RN_SHAPE(N, K)}, .rows = ROWS                                       \
    }
#define THREE(WHAT, DTYPE, K, VARIANT, ROWS)                                                       \
    {                                                                                              \
        .op = RN_OP_PROJECT_THREE, .what = WHAT, .build = project_three, .dtype = DTYPE,           \
        .shapes = {ROWS_OF(K), RN_SHAPE(35, K), RN_SHAPE(16, K), RN_SHAPE(5, K)},                  \
        .variant = VARIANT, .rows = ROWS                                                           \
    }
#define GATED(WHAT, DTYPE, N, K, VARIANT, ROWS)                                                    \
    {                                                                                              \
        .op = RN_OP_PROJECT_GATED, .what = WHAT, .build = project_gated, .dtype = DTYPE,           \
        .variant = VARIANT, .shapes = {ROWS_OF(K), RN_SHAPE(N, K)}, .rows = ROWS                   \
    }

// ---- attention ----------------------------------------------------------------------------------

// Three sequences on pages of 4 tokens. The first and the last row are alone with their sequences,
// so that they come out the same without the others; two successive rows share theirs.
enum { PAGES = 5, PAGE_TOKENS = 4, SEQUENCES = 3, MAX_PAGES = 2, ROWS = 5 };
static const int32_t page_table[SEQUENCES * MAX_PAGES] = {3, 0, 1, -1, 4, -1};
static const int32_t sequences[ROWS] = {0, 2, 2, -1, 1};
static const int32_t positions[ROWS] = {5, 0, 1, 0, 3};

// shapes: q, k and v.
static void attend(conform_case *c) {
    const rn_attend_attrs *attrs = c->row->attrs;
    rn_shape q = c->row->shapes[0], k = c->row->shapes[1];
    rn_shape pages = RN_SHAPE(PAGES, 2, k.dims[1], PAGE_TOKENS, k.dims[2]);
    rn_value query = conform_in(c, q, -1, 1), key = conform_in(c, k, -1, 1);
    rn_value value = conform_in(c, k, -1, 1);
    rn_value state = conform_state(c, c->row->dtype, pages, -1, 1);
    rn_value sequence = conform_list(c, RN_SHAPE(RN_ROWS), sequences);
    rn_value position = conform_list(c, RN_SHAPE(RN_ROWS), positions);
    rn_value table = conform_list(c, RN_SHAPE(SEQUENCES, MAX_PAGES), page_table);
    rn_value kv =
        rn_op_attend(c->graph, query, key, value, state, sequence, position, table, *attrs);
    conform_result(c, rn_graph_output_of(c->graph, kv, 1));
}

#define TURNED(...) .rope = {.base = 10000, __VA_ARGS__}
static const rn_attend_attrs halves = {TURNED(.pairing = RN_ROPE_HALVES)},
                             neighbours = {TURNED(.pairing = RN_ROPE_NEIGHBOURS),
                                           .attention = {.scale = 0.7f}},
                             window = {TURNED(.pairing = RN_ROPE_HALVES),
                                       .attention = {.causal = true, .window = 3}},
                             partial = {TURNED(.dims = 6)},
                             yarn = {TURNED(.scaling = RN_ROPE_YARN, .factor = 4, .beta_fast = 32,
                                            .beta_slow = 1, .attention_factor = 1.25f,
                                            .original_context = 64)};

#define HEADS(H, D) RN_SHAPE(RN_ROWS, H, D)
#define ATTEND(WHAT, DTYPE, Q, K, ATTRS, COUNT)                                                    \
    {                                                                                              \
        .op = RN_OP_ATTEND, .what = WHAT, .build = attend, .dtype = DTYPE, .shapes = {Q, K},       \
        .attrs = &(ATTRS), .rows = COUNT                                                           \
    }

static const conform_row rows[] = {
    {.op = RN_OP_MATMUL_ADD,
     .what = "w (N, K)",
     .build = matmul_add,
     .dtype = RN_DTYPE_F32,
     .shapes = {RN_SHAPE(7, 13), RN_SHAPE(11, 13), RN_SHAPE(7, 11)}},
    {.op = RN_OP_MATMUL_ADD,
     .what = "w bf16 (K, N)",
     .build = matmul_add,
     .dtype = RN_DTYPE_BF16,
     .variant = 2,
     .shapes = {RN_SHAPE(5, 13), RN_SHAPE(13, 9), RN_SHAPE(5, 9)}},
    {.op = RN_OP_MATMUL_ADD,
     .what = "x transposed",
     .build = matmul_add,
     .dtype = RN_DTYPE_F32,
     .variant = 1,
     .shapes = {RN_SHAPE(13, 6), RN_SHAPE(10, 13), RN_SHAPE(6, 10)}},
    {.op = RN_OP_MATMUL_ADD,
     .what = "a bias",
     .build = matmul_add,
     .dtype = RN_DTYPE_F32,
     .variant = 4,
     .shapes = {RN_SHAPE(7, 13), RN_SHAPE(11, 13), RN_SHAPE(7, 11)}},
    PROJECT("f32, the product alone", RN_DTYPE_F32, 11, 13, 0, 7),
    PROJECT("f32, one row of all", RN_DTYPE_F32, 33, 67, NORM | BIAS | RESIDUAL, 1),
    PROJECT("f32, rows of all", RN_DTYPE_F32, 33, 67, NORM | BIAS | RESIDUAL, 5),
    PROJECT("f16, norm", RN_DTYPE_F16, 35, 67, NORM, 3),
    PROJECT("bf16, residual", RN_DTYPE_BF16, 35, 67, RESIDUAL, 19),
    PROJECT("nf4, norm and bias", RN_DTYPE_NF4, 35, 128, NORM | BIAS, 3),
    PROJECT("int4 in groups of 96, norm", RN_DTYPE_INT4, 35, 288, NORM, 3),
    PROJECT("int8, bias", RN_DTYPE_INT8, 35, 96, BIAS, 3),
    PROJECT("q8_0, residual", RN_DTYPE_Q8_0, 35, 96, RESIDUAL, 19),
    PROJECT("q4_0, bias and residual", RN_DTYPE_Q4_0, 16, 96, BIAS | RESIDUAL, 1),
    PROJECT("q4_k, residual", RN_DTYPE_Q4_K, 35, 256, RESIDUAL, 3),
    PROJECT("q8_0, norm, plain rows", RN_DTYPE_Q8_0, 35, 96, NORM | PLAIN_X, 3),
    THREE("f32, one row", RN_DTYPE_F32, 67, NORM | BIAS, 1),
    THREE("f16, rows", RN_DTYPE_F16, 67, NORM, 5),
    THREE("q4_0, rows", RN_DTYPE_Q4_0, 96, BIAS, 19),
    THREE("nf4 in blocks that end within rows", RN_DTYPE_NF4, 96, NORM, 5),
    GATED("f32, one row", RN_DTYPE_F32, 33, 67, NORM, 1),
    GATED("bf16, rows", RN_DTYPE_BF16, 33, 67, NORM | BIAS, 5),
    GATED("q8_0, rows", RN_DTYPE_Q8_0, 35, 96, 0, 19),
    GATED("int8, one row", RN_DTYPE_INT8, 35, 96, NORM, 1),
    GATED("int4 in groups of 32, rows", RN_DTYPE_INT4, 35, 160, 0, 19),

    ATTEND("f32", RN_DTYPE_F32, HEADS(2, 10), HEADS(2, 10), neighbours, ROWS),
    ATTEND("f16, grouped heads", RN_DTYPE_F16, HEADS(6, 16), HEADS(2, 16), halves, ROWS),
    ATTEND("q8_0, grouped heads", RN_DTYPE_Q8_0, HEADS(6, 32), HEADS(2, 32), halves, ROWS),
    ATTEND("a window", RN_DTYPE_F16, HEADS(2, 8), HEADS(1, 8), window, ROWS),
    ATTEND("a part of the head", RN_DTYPE_F32, HEADS(2, 10), HEADS(1, 10), partial, ROWS),
    ATTEND("yarn", RN_DTYPE_F32, HEADS(2, 16), HEADS(2, 16), yarn, ROWS),
    ATTEND("one row", RN_DTYPE_F16, HEADS(4, 8), HEADS(2, 8), halves, 1),
};

const conform_table conform_fused = {rows, sizeof rows / sizeof *rows};

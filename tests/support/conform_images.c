// conform_images.c — rows of what networks of images are made of: group norm, upsampling, grouped
// convolutions with gradients, attention between pixels and texts, rope of several axes.
#include "conform.h"

// ---- group norm ---------------------------------------------------------------------------------

enum { AFFINE = 1, SILU = 2, GIVEN = 4, STATISTICS = 8 };

static void group_norm(conform_case *c) {
    rn_shape shape = c->row->shapes[0], groups = c->row->shapes[1]; // groups: (N, groups)
    int variant = c->row->variant;
    rn_group_norm_attrs attrs = {
        .groups = (uint32_t)groups.dims[1], .eps = 1e-2f, .silu = variant & SILU};
    rn_shape channels = RN_SHAPE(shape.dims[shape.rank - 1]);
    bool fixed = variant & (GIVEN | STATISTICS); // no gradient flows through statistics
    rn_value x = fixed ? conform_fixed(c, RN_DTYPE_F32, shape, -2, 2) : conform_x(c, shape);
    rn_value weight = RN_NO_VALUE, bias = RN_NO_VALUE, mean = RN_NO_VALUE, rstd = RN_NO_VALUE;
    if (variant & AFFINE) {
        weight = (fixed ? conform_fixed : conform_weight)(c, RN_DTYPE_F32, channels, 0.5f, 1.5f);
        bias = (fixed ? conform_fixed : conform_weight)(c, RN_DTYPE_F32, channels, -0.5f, 0.5f);
    }
    if (variant & GIVEN) {
        mean = conform_fixed(c, RN_DTYPE_F32, groups, -1, 1);
        rstd = conform_fixed(c, RN_DTYPE_F32, groups, 0.5f, 2);
    }
    rn_value y = rn_op_group_norm_by(c->graph, x, weight, bias, mean, rstd, attrs);
    if (!(variant & STATISTICS)) conform_result(c, y);
    if (variant & (STATISTICS | GIVEN)) {
        conform_result(c, rn_graph_output_of(c->graph, y, 1));
        conform_result(c, rn_graph_output_of(c->graph, y, 2));
    }
}

#define GROUP_NORM(WHAT, X, GROUPS, VARIANT, ...)                                                  \
    {                                                                                              \
        .op = RN_OP_GROUP_NORM, .what = WHAT, .build = group_norm, .shapes = {X, GROUPS},          \
        .low = -2, .high = 2, .variant = VARIANT, __VA_ARGS__                                      \
    }

// ---- images -------------------------------------------------------------------------------------

static void resize(conform_case *c) {
    rn_resize_attrs attrs = *(const rn_resize_attrs *)c->row->attrs;
    conform_result(c, rn_op_resize(c->graph, conform_x(c, c->row->shapes[0]), attrs));
}

static void upsample(conform_case *c) {
    rn_value x = conform_x(c, c->row->shapes[0]);
    conform_result(c, rn_graph_upsample(c->graph, x, (uint32_t)c->row->variant));
}

static void conv(conform_case *c) {
    const rn_shape *shapes = c->row->shapes;
    rn_value x = conform_x(c, shapes[0]), w = conform_weight(c, RN_DTYPE_F32, shapes[1], -1, 1);
    rn_value bias = conform_weight(c, RN_DTYPE_F32, RN_SHAPE(shapes[1].dims[0]), -1, 1);
    conform_result(c, rn_op_conv(c->graph, x, w, bias, *(const rn_conv_attrs *)c->row->attrs));
}

static void conv_transpose(conform_case *c) {
    const rn_shape *shapes = c->row->shapes;
    const rn_conv_transpose_attrs *attrs = c->row->attrs;
    uint64_t groups = attrs->conv.groups ? attrs->conv.groups : 1;
    rn_value x = conform_x(c, shapes[0]), w = conform_weight(c, RN_DTYPE_F32, shapes[1], -1, 1);
    rn_value bias = conform_weight(c, RN_DTYPE_F32, RN_SHAPE(shapes[1].dims[1] * groups), -1, 1);
    conform_result(c, rn_op_conv_transpose(c->graph, x, w, bias, *attrs));
}

#define IMAGE(OP, WHAT, BUILD, ...)                                                                \
    { .op = RN_OP_##OP, .what = WHAT, .build = BUILD, .low = -2, .high = 2, __VA_ARGS__ }

static const rn_resize_attrs twice = {.axis = 1, .length = 10, .function = RN_RESIZE_LINEAR},
                             corners = {.axis = 2,
                                        .length = 7,
                                        .function = RN_RESIZE_LINEAR,
                                        .coordinates = RN_RESIZE_ALIGN_CORNERS},
                             nearest = {.axis = 1,
                                        .length = 9,
                                        .function = RN_RESIZE_NEAREST,
                                        .coordinates = RN_RESIZE_ASYMMETRIC,
                                        .nearest = RN_RESIZE_FLOOR},
                             smaller = {.axis = 1,
                                        .length = 3,
                                        .function = RN_RESIZE_CUBIC,
                                        .cubic = -0.75,
                                        .antialias = true};
static const rn_conv_attrs depthwise = {.groups = 6, .pad_before = {1, 1}, .pad_after = {1, 1}},
                           strided = {.groups = 2,
                                      .stride = {2, 2},
                                      .pad_after = {1, 1}}, // as an encoder pads
    dilated = {.dilation = {2, 2}, .pad_before = {2, 1}},
                           line = {.groups = 2, .stride = {2}, .pad_before = {1}};
static const rn_conv_transpose_attrs back = {.conv = {.groups = 2, .stride = {2, 1}}},
                                     back_sized = {.conv = {.groups = 2,
                                                            .stride = {2, 2},
                                                            .pad_before = {1, 0}},
                                                   .size = {8, 7}};

// ---- attention ----------------------------------------------------------------------------------

static void attention(conform_case *c) {
    rn_value q = conform_in(c, c->row->shapes[0], -1, 1),
             k = conform_in(c, c->row->shapes[1], -1, 1);
    rn_value v = conform_in(c, c->row->shapes[1], -1, 1);
    conform_result(c, rn_op_attention(c->graph, q, k, v, RN_NO_VALUE, (rn_attention_attrs){0}));
}

#define ATTENTION(WHAT, Q, K)                                                                      \
    {                                                                                              \
        .op = RN_OP_ATTENTION, .what = WHAT, .build = attention, .shapes = { Q, K }                \
    }

static void rope(conform_case *c) {
    const rn_rope_attrs *attrs = c->row->attrs;
    rn_shape tokens = c->row->shapes[0];
    tokens.rank -= 2;
    for (uint32_t i = 0; i < RN_ROPE_SECTIONS && attrs->sections[i]; i++)
        tokens.dims[tokens.rank] = i + 1;
    tokens.rank++;
    rn_value positions = conform_whole(c, tokens, 0, 40);
    conform_result(c, rn_op_rope(c->graph, conform_x(c, c->row->shapes[0]), positions, *attrs));
}

static const rn_rope_attrs flux = {.pairing = RN_ROPE_NEIGHBOURS,
                                   .base = 10000,
                                   .sections = {4, 6, 6}},
                           two = {.pairing = RN_ROPE_HALVES, .base = 100, .sections = {6, 4}};

static const conform_row rows[] = {
    GROUP_NORM("plain", RN_SHAPE(2, 3, 5, 12), RN_SHAPE(2, 4), 0),
    GROUP_NORM("one group", RN_SHAPE(1, 7, 6), RN_SHAPE(1, 1), AFFINE),
    GROUP_NORM("a group a channel", RN_SHAPE(2, 4, 4, 5), RN_SHAPE(2, 5), AFFINE),
    GROUP_NORM("without pixels", RN_SHAPE(3, 8), RN_SHAPE(3, 2), AFFINE),
    GROUP_NORM("rows", RN_SHAPE(RN_ROWS, 5, 7, 64), RN_SHAPE(RN_ROWS, 32), AFFINE, .rows = 3),
    GROUP_NORM("many pixels", RN_SHAPE(1, 33, 31, 20), RN_SHAPE(1, 5), AFFINE),
    GROUP_NORM("silu", RN_SHAPE(2, 3, 5, 12), RN_SHAPE(2, 4), AFFINE | SILU),
    GROUP_NORM("silu, no weight", RN_SHAPE(1, 9, 8), RN_SHAPE(1, 2), SILU),
    GROUP_NORM("silu, rows", RN_SHAPE(RN_ROWS, 6, 5, 32), RN_SHAPE(RN_ROWS, 8), AFFINE | SILU,
               .rows = 2),
    GROUP_NORM("statistics are given", RN_SHAPE(2, 3, 5, 12), RN_SHAPE(2, 4),
               AFFINE | SILU | GIVEN),
    GROUP_NORM("statistics alone", RN_SHAPE(2, 20, 3, 16), RN_SHAPE(2, 4), AFFINE | STATISTICS),

    IMAGE(RESIZE, "linear, twice as high", resize, .shapes = {RN_SHAPE(2, 5, 3, 4)},
          .attrs = &twice),
    IMAGE(RESIZE, "linear, corners", resize, .shapes = {RN_SHAPE(1, 2, 4, 70)}, .attrs = &corners),
    IMAGE(RESIZE, "nearest, with gradient", resize, .shapes = {RN_SHAPE(RN_ROWS, 4, 5)}, .rows = 3,
          .attrs = &nearest),
    IMAGE(RESIZE, "cubic, smaller", resize, .shapes = {RN_SHAPE(2, 8, 5)}, .attrs = &smaller),
    IMAGE(BROADCAST, "upsampled", upsample, .shapes = {RN_SHAPE(2, 3, 4, 5)}, .variant = 2),
    IMAGE(BROADCAST, "upsampled rows", upsample, .shapes = {RN_SHAPE(RN_ROWS, 3, 2, 7)}, .rows = 2,
          .variant = 3),
    IMAGE(CONV, "depthwise, with gradient", conv,
          .shapes = {RN_SHAPE(2, 5, 4, 6), RN_SHAPE(6, 1, 3, 3)}, .attrs = &depthwise),
    IMAGE(CONV, "groups, strided, padded behind", conv,
          .shapes = {RN_SHAPE(RN_ROWS, 6, 8, 4), RN_SHAPE(6, 2, 3, 3)}, .rows = 2,
          .attrs = &strided),
    IMAGE(CONV, "dilated, with gradient", conv,
          .shapes = {RN_SHAPE(1, 7, 8, 3), RN_SHAPE(4, 3, 3, 3)}, .attrs = &dilated),
    IMAGE(CONV, "a line, with gradient", conv, .shapes = {RN_SHAPE(2, 9, 4), RN_SHAPE(6, 2, 3)},
          .attrs = &line),
    IMAGE(CONV_TRANSPOSE, "with gradient", conv_transpose,
          .shapes = {RN_SHAPE(2, 4, 3, 4), RN_SHAPE(4, 3, 3, 2)}, .attrs = &back),
    IMAGE(CONV_TRANSPOSE, "with a size and gradient", conv_transpose,
          .shapes = {RN_SHAPE(1, 4, 3, 4), RN_SHAPE(4, 2, 3, 3)}, .attrs = &back_sized),

    ATTENTION("pixels to a text, heads of 40", RN_SHAPE(2, 9, 2, 40), RN_SHAPE(2, 77, 2, 40)),
    ATTENTION("heads of 80", RN_SHAPE(1, 5, 2, 80), RN_SHAPE(1, 5, 2, 80)),
    ATTENTION("heads of 160", RN_SHAPE(1, 70, 1, 160), RN_SHAPE(1, 70, 1, 160)),
    ATTENTION("a head of 512", RN_SHAPE(1, 6, 1, 512), RN_SHAPE(1, 6, 1, 512)),

    IMAGE(ROPE, "three sections", rope, .shapes = {RN_SHAPE(2, 5, 3, 16)}, .attrs = &flux),
    IMAGE(ROPE, "two sections of a batch, halves", rope, .shapes = {RN_SHAPE(RN_ROWS, 2, 10)},
          .rows = 4, .attrs = &two),
};

const conform_table conform_images = {rows, sizeof rows / sizeof *rows};

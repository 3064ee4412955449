// onnx_norm.c — ONNX's normalisations. Where our own op means the same it is used; the others are
// written out, in f32 or wider, as ONNX's function bodies say.
#include "exchange/onnx_importer.h"

static rn_value as_float(rn_import_call *c, rn_value x) {
    rn_dtype dtype = rn_import_dtype_of(c->import, x);
    return dtype == RN_DTYPE_F64 ? x : rn_import_cast(c->import, x, RN_DTYPE_F32);
}

static rn_value scalar_like(rn_import_call *c, rn_value like, double number) {
    return rn_import_scalar(c->import, rn_import_dtype_of(c->import, like), number);
}

// Mean and variance over some axes, and x brought to mean 0 and deviation 1.
typedef struct moments {
    rn_value mean, inverse, normed;
} moments;

static moments norm_over(rn_import_call *c, rn_value x, uint32_t axes, double eps) {
    rn_graph *g = c->graph;
    moments m = {.mean = rn_op_reduce(g, RN_REDUCE_MEAN, x, axes, true)};
    rn_value centred = rn_op_sub(g, x, m.mean);
    rn_value variance = rn_op_reduce(g, RN_REDUCE_MEAN, rn_op_mul(g, centred, centred), axes, true);
    rn_value shifted = rn_op_add(g, variance, scalar_like(c, x, eps));
    m.inverse = rn_op_unary(g, RN_UNARY_RECIPROCAL, rn_op_unary(g, RN_UNARY_SQRT, shifted));
    m.normed = rn_op_mul(g, centred, m.inverse);
    return m;
}

// Bits of the axes from `axis` on.
static uint32_t axes_from(uint32_t axis, uint32_t rank) {
    return (uint32_t)((1ull << rank) - (1ull << axis));
}

static bool is_vector(rn_import_call *c, rn_value v, uint64_t length) {
    return !v || (rn_shape_equal(rn_import_shape_of(c->import, v), RN_SHAPE(length)) &&
                  rn_import_dtype_of(c->import, v) == RN_DTYPE_F32);
}

// (C) as (C, 1, ...): along axis 1 of a value of that rank.
static rn_value along_channels(rn_import_call *c, rn_value v, uint32_t rank) {
    rn_shape from = rn_import_shape_of(c->import, v), to = {.rank = rank - 1};
    if (!v) return v;
    to.dims[0] = from.dims[0];
    for (uint32_t i = 1; i < to.rank; i++)
        to.dims[i] = 1;
    return rn_import_reshape(c->import, v, to);
}

// ---- over the last axes -------------------------------------------------------------------------

static void layer_norm(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0), scale = rn_import_in(c, 1), bias = rn_import_optional(c, 2);
    rn_shape shape = rn_import_shape_of(c->import, x);
    rn_dtype dtype = rn_import_dtype_of(c->import, x);
    float eps = rn_import_float(c, "epsilon", 1e-5f);
    if (!x || !scale) return;
    uint32_t axis = rn_import_axis(c, rn_import_int(c, "axis", -1), shape.rank);
    uint64_t last = shape.rank ? shape.dims[shape.rank - 1] : 0;
    bool own = axis + 1 == shape.rank && dtype == RN_DTYPE_F32 && is_vector(c, scale, last) &&
               is_vector(c, bias, last) && !rn_import_wants(c, 1) && !rn_import_wants(c, 2);
    if (own) {
        rn_import_out(c, 0, rn_op_layernorm(c->graph, x, scale, bias, eps));
        return;
    }
    moments m = norm_over(c, as_float(c, x), axes_from(axis, shape.rank), eps);
    rn_value y = rn_op_mul(c->graph, rn_import_cast(c->import, m.normed, dtype), scale);
    if (bias) y = rn_op_add(c->graph, y, bias);
    rn_import_out(c, 0, y);
    rn_import_out(c, 1, m.mean);
    rn_import_out(c, 2, m.inverse);
}

static void rms_norm(rn_import_call *c) {
    rn_graph *g = c->graph;
    rn_value x = rn_import_in(c, 0), scale = rn_import_in(c, 1);
    rn_shape shape = rn_import_shape_of(c->import, x);
    rn_dtype dtype = rn_import_dtype_of(c->import, x);
    float eps = rn_import_float(c, "epsilon", 1e-5f);
    if (!x || !scale) return;
    uint32_t axis = rn_import_axis(c, rn_import_int(c, "axis", -1), shape.rank);
    if (axis + 1 == shape.rank && dtype == RN_DTYPE_F32 &&
        is_vector(c, scale, shape.dims[shape.rank - 1])) {
        rn_import_out(c, 0, rn_op_rmsnorm(g, x, scale, eps));
        return;
    }
    rn_value f = as_float(c, x), squares = rn_op_mul(g, f, f);
    rn_value mean = rn_op_reduce(g, RN_REDUCE_MEAN, squares, axes_from(axis, shape.rank), true);
    rn_value root = rn_op_unary(g, RN_UNARY_SQRT, rn_op_add(g, mean, scalar_like(c, f, eps)));
    rn_value normed = rn_import_cast(c->import, rn_op_div(g, f, root), dtype);
    rn_import_out(c, 0, rn_op_mul(g, normed, rn_import_cast(c->import, scale, dtype)));
}

// ---- over channels ------------------------------------------------------------------------------

static void batch_norm(rn_import_call *c) {
    rn_value x = rn_import_image(c, 0), weight = rn_import_in(c, 1), bias = rn_import_in(c, 2),
             mean = rn_import_in(c, 3), variance = rn_import_in(c, 4);
    rn_dtype dtype = rn_import_dtype_of(c->import, x);
    rn_batchnorm_attrs attrs = {.eps = rn_import_float(c, "epsilon", 1e-5f)};
    if (!x || !variance) return;
    if (rn_import_int(c, "training_mode", 0) ||
        (rn_import_wants(c, 1) && c->version < 14 && c->node->output_count > 1)) {
        rn_import_refuse(c, "training");
        return;
    }
    rn_value y = rn_op_batchnorm(c->graph, as_float(c, x), as_float(c, weight), as_float(c, bias),
                                 as_float(c, mean), as_float(c, variance), attrs);
    rn_import_out_as(c, 0, rn_import_cast(c->import, y, dtype), true);
}

static void instance_norm(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0), scale = rn_import_in(c, 1), bias = rn_import_in(c, 2);
    rn_shape shape = rn_import_shape_of(c->import, x);
    rn_dtype dtype = rn_import_dtype_of(c->import, x);
    if (!x || !bias) return;
    if (shape.rank < 3) {
        rn_import_refuse(c, "of %s", rn_shape_format(shape).text);
        return;
    }
    moments m = norm_over(c, as_float(c, x), axes_from(2, shape.rank),
                          rn_import_float(c, "epsilon", 1e-5f));
    rn_value y = rn_op_mul(c->graph, m.normed, along_channels(c, as_float(c, scale), shape.rank));
    y = rn_op_add(c->graph, y, along_channels(c, as_float(c, bias), shape.rank));
    rn_import_out(c, 0, rn_import_cast(c->import, y, dtype));
}

// (N, C, ...) as (N, groups, the rest).
static void group_norm(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0), scale = rn_import_in(c, 1), bias = rn_import_in(c, 2);
    rn_shape shape = rn_import_shape_of(c->import, x), grouped = shape;
    rn_dtype dtype = rn_import_dtype_of(c->import, x);
    uint64_t groups = (uint64_t)rn_import_int(c, "num_groups", 1), rest = 1;
    if (!x || !bias) return;
    if (shape.rank < 2 || groups == 0 || shape.dims[1] % groups || c->version < 21) {
        rn_import_refuse(c, "%llu groups of %s, opset %lld", (unsigned long long)groups,
                         rn_shape_format(shape).text, (long long)c->version);
        return;
    }
    for (uint32_t i = 1; i < shape.rank; i++)
        rest *= shape.dims[i];
    grouped.rank = 3;
    grouped.dims[1] = groups;
    grouped.dims[2] = rest / groups;
    rn_value wide = rn_import_reshape(c->import, as_float(c, x), grouped);
    moments m = norm_over(c, wide, 4, rn_import_float(c, "epsilon", 1e-5f));
    rn_value y = rn_import_reshape(c->import, m.normed, shape);
    y = rn_op_mul(c->graph, y, along_channels(c, as_float(c, scale), shape.rank));
    y = rn_op_add(c->graph, y, along_channels(c, as_float(c, bias), shape.rank));
    rn_import_out(c, 0, rn_import_cast(c->import, y, dtype));
}

static void mean_variance_norm(rn_import_call *c) {
    rn_graph *g = c->graph;
    rn_value x = rn_import_in(c, 0);
    uint32_t rank = rn_import_shape_of(c->import, x).rank, bits = 0;
    const int64_t *axes = NULL;
    size_t count = rn_import_int_list(c, "axes", &axes);
    static const int64_t usual[] = {0, 2, 3};
    if (!x) return;
    if (!axes) axes = usual, count = 3;
    for (size_t i = 0; i < count; i++)
        bits |= 1u << rn_import_axis(c, axes[i], rank);
    rn_value centred = rn_op_sub(g, x, rn_op_reduce(g, RN_REDUCE_MEAN, x, bits, true));
    rn_value squares = rn_op_mul(g, centred, centred);
    rn_value deviation =
        rn_op_unary(g, RN_UNARY_SQRT, rn_op_reduce(g, RN_REDUCE_MEAN, squares, bits, true));
    rn_import_out(c, 0, rn_op_div(g, centred, rn_op_add(g, deviation, scalar_like(c, x, 1e-9))));
}

static void lp_norm(rn_import_call *c) {
    rn_graph *g = c->graph;
    rn_value x = rn_import_in(c, 0);
    uint32_t rank = rn_import_shape_of(c->import, x).rank;
    bool first = rn_import_int(c, "p", 2) == 1;
    if (!x) return;
    uint32_t axis = rn_import_axis(c, rn_import_int(c, "axis", -1), rank);
    rn_value length = rn_op_reduce(g, first ? RN_REDUCE_L1 : RN_REDUCE_L2, x, 1u << axis, true);
    rn_value zero = scalar_like(c, x, 0);
    rn_value is_zero = rn_op_compare(g, RN_COMPARE_EQUAL, length, zero);
    rn_value safe = rn_op_select(g, is_zero, scalar_like(c, x, 1), length);
    rn_import_out(c, 0, rn_op_select(g, is_zero, zero, rn_op_div(g, x, safe)));
}

// Sums of squares over neighbouring channels: an average over windows of a padded axis.
static void lrn(rn_import_call *c) {
    rn_graph *g = c->graph;
    rn_value x = rn_import_in(c, 0);
    rn_shape shape = rn_import_shape_of(c->import, x);
    int64_t size = rn_import_int(c, "size", 1);
    float alpha = rn_import_float(c, "alpha", 1e-4f), beta = rn_import_float(c, "beta", 0.75f),
          bias = rn_import_float(c, "bias", 1);
    if (!x) return;
    if (shape.rank < 2 || size < 1 || (uint64_t)size > 64) {
        rn_import_refuse(c, "over %lld channels of %s", (long long)size,
                         rn_shape_format(shape).text);
        return;
    }
    rn_value squares = rn_op_mul(g, x, x), sum = squares;
    uint64_t channels = shape.dims[1], before = (uint64_t)(size - 1) / 2,
             after = (uint64_t)size - 1 - before;
    rn_value zero = scalar_like(c, x, 0);
    for (uint64_t k = 1; k <= (before > after ? before : after) && k < channels; k++) {
        rn_shape gap = shape;
        gap.dims[1] = k;
        rn_value blank = rn_op_broadcast(g, zero, gap);
        rn_value low = rn_op_slice(g, squares, 1, 0, channels - k),
                 high = rn_op_slice(g, squares, 1, k, channels - k);
        if (k <= before) sum = rn_op_add(g, sum, rn_op_concat(g, (rn_value[]){blank, low}, 2, 1));
        if (k <= after) sum = rn_op_add(g, sum, rn_op_concat(g, (rn_value[]){high, blank}, 2, 1));
    }
    rn_value scaled = rn_op_mul(g, sum, scalar_like(c, x, (double)alpha / (double)size));
    rn_value base = rn_op_add(g, scaled, scalar_like(c, x, bias));
    rn_value power = rn_op_binary(g, RN_BINARY_POW, base, scalar_like(c, x, beta));
    rn_import_out(c, 0, rn_op_div(g, x, power));
}

const rn_import_op rn_onnx_norm_ops[] = {
    {"LayerNormalization", layer_norm, 0},
    {"RMSNormalization", rms_norm, 0},
    {"SimplifiedLayerNormalization", rms_norm, 0},
    {"com.microsoft.SimplifiedLayerNormalization", rms_norm, 0},
    {"BatchNormalization", batch_norm, 0},
    {"InstanceNormalization", instance_norm, 0},
    {"GroupNormalization", group_norm, 0},
    {"MeanVarianceNormalization", mean_variance_norm, 0},
    {"LpNormalization", lp_norm, 0},
    {"LRN", lrn, 0},
    {NULL, NULL, 0},
};

// image_bands.c — see image_bands.h.
#include "model/image/image_bands.h"

typedef struct range {
    uint64_t from, to; // rows
} range;

uint32_t rn_banding_count(const rn_banding *banding, uint64_t high) {
    if (banding->rows == 0 || high < 2 * (uint64_t)banding->rows) return 1;
    uint64_t count = high / banding->rows; // the last one takes what is left
    return count <= RN_MOST_BANDS ? (uint32_t)count : 1;
}

static range band_of(const rn_banding *banding, uint64_t high, uint32_t count, uint32_t index) {
    if (count == 1) return (range){0, high};
    uint64_t from = index * (uint64_t)banding->rows;
    return (range){from, index + 1 < count ? from + banding->rows : high};
}

rn_bands rn_bands_of(const rn_image_builder *b, rn_value whole) {
    return (rn_bands){.values = {whole}, .count = 1, .high = rn_image_shape(b, whole).dims[1]};
}

rn_value rn_bands_join(rn_image_builder *b, const rn_bands *x) {
    return x->count == 1 ? x->values[0] : rn_op_concat(b->g, x->values, x->count, 1);
}

// Rows [rows.from - 1, rows.to + 1) as far as there are such, and what is left to pad.
static range with_halo(range rows, uint64_t high, rn_conv2d_attrs *attrs) {
    *attrs = (rn_conv2d_attrs){.stride_h = 1, .stride_w = 1, .pad_left = 1, .pad_right = 1};
    attrs->pad_top = rows.from == 0;
    attrs->pad_bottom = rows.to == high;
    return (range){rows.from - !attrs->pad_top, rows.to + !attrs->pad_bottom};
}

// Rows of the picture, from whichever bands have them.
static rn_value take_held(rn_image_builder *b, const rn_bands *x, range rows) {
    rn_value parts[RN_MOST_BANDS];
    uint32_t count = 0;
    uint64_t at = 0;
    for (uint32_t i = 0; i < x->count; i++) {
        uint64_t high = rn_image_shape(b, x->values[i]).dims[1];
        uint64_t from = rows.from > at ? rows.from - at : 0;
        uint64_t to = rows.to < at + high ? (rows.to > at ? rows.to - at : 0) : high;
        at += high;
        if (from >= to) continue;
        parts[count++] =
            to - from == high ? x->values[i] : rn_op_slice(b->g, x->values[i], 1, from, to - from);
    }
    return count == 1 ? parts[0] : rn_op_concat(b->g, parts, count, 1);
}

// Rows of x doubled and convolved, `high` of them in all.
static rn_value double_rows(rn_image_builder *b, const rn_bands *x, rn_value weight, rn_value bias,
                            range out, uint64_t high) {
    rn_conv2d_attrs window;
    range rows = with_halo(out, high, &window), half = {rows.from / 2, (rows.to + 1) / 2};
    rn_value part = rn_graph_upsample(b->g, take_held(b, x, half), 2);
    uint64_t skip = rows.from - 2 * half.from, count = rows.to - rows.from;
    if (count != 2 * (half.to - half.from)) part = rn_op_slice(b->g, part, 1, skip, count);
    return rn_op_conv2d(b->g, part, weight, bias, window);
}

// Held, or made now: in whole squares of 4 rows, as the whole picture is convolved (with the same
// roundings, then).
static rn_value take_rows(rn_image_builder *b, const rn_bands *x, range rows) {
    if (!x->half) return take_held(b, x, rows);
    range whole = {rows.from / 4 * 4, (rows.to + 3) / 4 * 4};
    if (whole.to > x->high) whole.to = x->high;
    rn_value made = double_rows(b, x->half, x->weight, x->bias, whole, x->high);
    if (whole.from == rows.from && whole.to == rows.to) return made;
    return rn_op_slice(b->g, made, 1, rows.from - whole.from, rows.to - rows.from);
}

// ---- group norm ---------------------------------------------------------------------------------

typedef struct statistics {
    rn_value mean, rstd; // (N, groups); RN_NO_VALUE: the op measures them
} statistics;

static rn_value one_over_square(rn_image_builder *b, rn_value one, rn_value x) {
    return rn_op_div(b->g, one, rn_op_mul(b->g, x, x));
}

// Of the whole, from the bands': the mean of their means, and of their variances and the squares of
// their means' distances from it, each by its share of the rows.
static statistics measure(rn_image_builder *b, const rn_banding *banding, const rn_bands *x,
                          rn_group_norm_attrs attrs) {
    uint32_t count = rn_banding_count(banding, x->high);
    rn_graph *g = b->g;
    if (count == 1) return (statistics){RN_NO_VALUE, RN_NO_VALUE};
    rn_value means[RN_MOST_BANDS], rstds[RN_MOST_BANDS], mean = RN_NO_VALUE, sum = RN_NO_VALUE;
    static const float number = 1;
    rn_value one = rn_graph_find(g, RN_ROLE_CONSTANT, "one");
    if (one == RN_NO_VALUE)
        one = rn_graph_constant(g, "one", RN_DTYPE_F32, RN_SHAPE(1, 1), &number);
    attrs.silu = false;
    for (uint32_t i = 0; i < count; i++) {
        range rows = band_of(banding, x->high, count, i);
        float share = (float)(rows.to - rows.from) / (float)x->high;
        rn_value first =
            rn_op_group_norm(g, take_rows(b, x, rows), RN_NO_VALUE, RN_NO_VALUE, attrs);
        means[i] = rn_graph_output_of(g, first, 1);
        rstds[i] = rn_graph_output_of(g, first, 2);
        rn_value part = rn_op_scale(g, means[i], share, 0);
        mean = i ? rn_op_add(g, mean, part) : part;
    }
    for (uint32_t i = 0; i < count; i++) {
        range rows = band_of(banding, x->high, count, i);
        float share = (float)(rows.to - rows.from) / (float)x->high;
        rn_value away = rn_op_sub(g, means[i], mean);
        rn_value part = rn_op_add(g, one_over_square(b, one, rstds[i]), rn_op_mul(g, away, away));
        part = rn_op_scale(g, part, share, 0); // with eps in it
        sum = i ? rn_op_add(g, sum, part) : part;
    }
    return (statistics){mean, rn_op_rsqrt(g, sum)};
}

// ---- convolutions -------------------------------------------------------------------------------

typedef struct kernel {
    rn_value weight, bias;
} kernel;

static kernel read_kernel(rn_image_builder *b, const char *name, uint64_t in, uint64_t out,
                          uint64_t size) {
    kernel k;
    k.weight =
        rn_image_kernel(b, rn_image_named("%s.weight", name).text, RN_SHAPE(out, in, size, size));
    k.bias = rn_image_vector(b, name, "bias", RN_SHAPE(out));
    return k;
}

rn_bands rn_bands_norm_conv(rn_image_builder *b, const rn_banding *banding, const rn_bands *x,
                            const char *norm, rn_group_norm_attrs attrs, const char *conv,
                            uint64_t in, uint64_t out) {
    rn_value weight = rn_image_vector(b, norm, "weight", RN_SHAPE(in));
    rn_value bias = rn_image_vector(b, norm, "bias", RN_SHAPE(in));
    kernel k = read_kernel(b, conv, in, out, 3);
    statistics of = measure(b, banding, x, attrs);
    rn_bands y = {.count = banding->cut ? rn_banding_count(banding, x->high) : 1, .high = x->high};
    for (uint32_t i = 0; i < y.count; i++) {
        rn_conv2d_attrs window;
        range rows = with_halo(band_of(banding, x->high, y.count, i), x->high, &window);
        rn_value part = take_rows(b, x, rows);
        part = rn_op_group_norm_by(b->g, part, weight, bias, of.mean, of.rstd, attrs);
        y.values[i] = rn_op_conv2d(b->g, part, k.weight, k.bias, window);
    }
    return y;
}

rn_bands rn_bands_double(rn_image_builder *b, const rn_banding *banding, const rn_bands *x,
                         const char *conv, uint64_t channels) {
    kernel k = read_kernel(b, conv, channels, channels, 3);
    rn_bands y = {.high = 2 * x->high};
    y.count = banding->cut ? rn_banding_count(banding, y.high) : 1;
    if (y.count > 1 && banding->again)
        return (rn_bands){.high = y.high, .half = x, .weight = k.weight, .bias = k.bias};
    for (uint32_t i = 0; i < y.count; i++)
        y.values[i] =
            double_rows(b, x, k.weight, k.bias, band_of(banding, y.high, y.count, i), y.high);
    return y;
}

rn_bands rn_bands_halve(rn_image_builder *b, const rn_banding *banding, const rn_bands *x,
                        const char *conv, uint64_t channels) {
    kernel k = read_kernel(b, conv, channels, channels, 3);
    rn_bands y = {.high = x->high / 2};
    y.count = banding->cut ? rn_banding_count(banding, y.high) : 1;
    for (uint32_t i = 0; i < y.count; i++) {
        range rows = band_of(banding, y.high, y.count, i);
        range seen = {2 * rows.from, 2 * rows.to + 1};
        rn_conv2d_attrs window = {.stride_h = 2, .stride_w = 2, .pad_right = 1};
        if (seen.to > x->high) seen.to = x->high, window.pad_bottom = 1;
        y.values[i] = rn_op_conv2d(b->g, take_rows(b, x, seen), k.weight, k.bias, window);
    }
    return y;
}

rn_bands rn_bands_add(rn_image_builder *b, const rn_bands *x, const rn_bands *y,
                      const char *shortcut, uint64_t in, uint64_t out) {
    rn_bands z = {.count = y->count, .high = y->high};
    kernel k = {0};
    if (shortcut) k = read_kernel(b, shortcut, in, out, 1);
    uint64_t at = 0;
    for (uint32_t i = 0; i < z.count; i++) {
        uint64_t high = rn_image_shape(b, y->values[i]).dims[1];
        rn_value part = take_rows(b, x, (range){at, at + high});
        at += high;
        if (shortcut)
            part = rn_op_conv2d(b->g, part, k.weight, k.bias,
                                (rn_conv2d_attrs){.stride_h = 1, .stride_w = 1});
        z.values[i] = rn_op_add(b->g, part, y->values[i]);
    }
    return z;
}

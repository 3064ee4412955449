// onnx_image.c — ONNX's convolutions, pools and resampling: images with channels last.
#include "exchange/onnx_importer.h"

#include "base/checked.h"

#include <math.h>

// ---- windows ------------------------------------------------------------------------------------

// What convolutions and pools share, for up to RN_MAX_SPATIAL axes.
typedef struct windows {
    uint32_t rank;
    uint64_t in[RN_MAX_SPATIAL], size[RN_MAX_SPATIAL];
    uint32_t stride[RN_MAX_SPATIAL], dilation[RN_MAX_SPATIAL];
    uint32_t before[RN_MAX_SPATIAL], after[RN_MAX_SPATIAL];
} windows;

static bool read_list(rn_import_call *c, const char *name, uint32_t rank, uint32_t otherwise,
                      uint32_t *out) {
    const int64_t *items = NULL;
    size_t count = rn_import_int_list(c, name, &items);
    for (uint32_t i = 0; i < rank; i++) {
        if (items && (count != rank || items[i] < 0 || items[i] > INT32_MAX)) {
            rn_import_refuse(c, "its attribute %s does not suit %u axes", name, rank);
            return false;
        }
        out[i] = items ? (uint32_t)items[i] : otherwise;
    }
    return true;
}

static uint64_t reach(const windows *w, uint32_t i) {
    return (w->size[i] - 1) * w->dilation[i] + 1;
}

// auto_pad: as many outputs as steps fit into the input, the padding around them halved.
static bool pad_windows(rn_import_call *c, windows *w, bool ceil_same) {
    uint32_t pads[2 * RN_MAX_SPATIAL];
    rn_str mode = rn_import_text(c, "auto_pad", "NOTSET");
    if (mode.bytes == 0 || rn_str_equal(mode, RN_STR("NOTSET"))) {
        if (!read_list(c, "pads", 2 * w->rank, 0, pads)) return false;
        for (uint32_t i = 0; i < w->rank; i++)
            w->before[i] = pads[i], w->after[i] = pads[w->rank + i];
        return true;
    }
    if (rn_str_equal(mode, RN_STR("VALID")) || !ceil_same) return true;
    for (uint32_t i = 0; i < w->rank; i++) {
        uint64_t steps = rn_div_up(w->in[i], w->stride[i]),
                 need = (steps - 1) * w->stride[i] + reach(w, i);
        uint64_t all = need > w->in[i] ? need - w->in[i] : 0;
        w->before[i] = (uint32_t)(all / 2), w->after[i] = (uint32_t)(all - all / 2);
        if (rn_str_equal(mode, RN_STR("SAME_LOWER")))
            w->before[i] = (uint32_t)(all - all / 2), w->after[i] = (uint32_t)(all / 2);
    }
    return true;
}

// Sizes of windows are those of `kernel` (its axes from 2 on), or the attribute's.
static bool read_windows(rn_import_call *c, uint32_t kernel, bool same, windows *out) {
    rn_shape x = rn_import_shape(c, 0);
    uint32_t sizes[RN_MAX_SPATIAL];
    *out = (windows){.rank = x.rank - 2};
    if (x.rank < 3 || x.rank > 2 + RN_MAX_SPATIAL) {
        rn_import_refuse(c, "an image of %s", rn_shape_format(x).text);
        return false;
    }
    rn_shape k = kernel ? rn_import_shape(c, kernel) : x;
    if (k.rank != x.rank || !read_list(c, "kernel_shape", out->rank, 1, sizes) ||
        !read_list(c, "strides", out->rank, 1, out->stride) ||
        !read_list(c, "dilations", out->rank, 1, out->dilation))
        return false;
    for (uint32_t i = 0; i < out->rank; i++) {
        out->in[i] = x.dims[2 + i];
        out->size[i] = kernel ? k.dims[2 + i] : sizes[i];
        if (out->size[i] && out->stride[i] && out->dilation[i] && out->size[i] < INT32_MAX)
            continue;
        rn_import_refuse(c, "windows of no size");
        return false;
    }
    return pad_windows(c, out, same);
}

static rn_conv_attrs conv_attrs(rn_import_call *c, const windows *w) {
    rn_conv_attrs attrs = {.groups = (uint32_t)rn_import_int(c, "group", 1)};
    memcpy(attrs.stride, w->stride, sizeof attrs.stride);
    memcpy(attrs.dilation, w->dilation, sizeof attrs.dilation);
    memcpy(attrs.pad_before, w->before, sizeof attrs.pad_before);
    memcpy(attrs.pad_after, w->after, sizeof attrs.pad_after);
    return attrs;
}

// ---- convolutions -------------------------------------------------------------------------------

static rn_value widen(rn_import_call *c, rn_value x) {
    rn_dtype dtype = rn_import_dtype_of(c->import, x);
    bool narrow = dtype == RN_DTYPE_F16 || dtype == RN_DTYPE_BF16;
    return x && narrow ? rn_op_cast(c->graph, x, RN_DTYPE_F32) : x;
}

static void conv(rn_import_call *c) {
    rn_value x = rn_import_image(c, 0), w = rn_import_in(c, 1), bias = rn_import_optional(c, 2);
    rn_dtype dtype = rn_import_dtype_of(c->import, x);
    windows at;
    if (!x || !w || !read_windows(c, 1, true, &at)) return;
    rn_value y = rn_op_conv(c->graph, widen(c, x), widen(c, w), widen(c, bias), conv_attrs(c, &at));
    if (y) rn_import_out_as(c, 0, rn_import_cast(c->import, y, dtype), true);
}

// The result's size: given, or what steps, windows and padding make it.
static bool size_transposed(rn_import_call *c, windows *w, uint64_t *out) {
    uint32_t more[RN_MAX_SPATIAL], given[RN_MAX_SPATIAL];
    if (!read_list(c, "output_padding", w->rank, 0, more) ||
        !read_list(c, "output_shape", w->rank, 0, given))
        return false;
    bool upper = rn_import_text_is(c, "auto_pad", "NOTSET", "SAME_UPPER"),
         lower = rn_import_text_is(c, "auto_pad", "NOTSET", "SAME_LOWER");
    for (uint32_t i = 0; i < w->rank; i++) {
        uint64_t whole = w->stride[i] * (w->in[i] - 1) + more[i] + reach(w, i);
        if (given[i] || upper || lower) {
            out[i] = given[i] ? given[i] : w->in[i] * w->stride[i];
            uint64_t all = whole > out[i] ? whole - out[i] : 0;
            w->before[i] = (uint32_t)(upper ? all / 2 : all - all / 2);
            w->after[i] = (uint32_t)(all - w->before[i]);
            continue;
        }
        if (whole <= (uint64_t)w->before[i] + w->after[i]) {
            rn_import_refuse(c, "nothing is left of axis %u", i);
            return false;
        }
        out[i] = whole - w->before[i] - w->after[i];
    }
    return true;
}

static void conv_transpose(rn_import_call *c) {
    rn_value x = rn_import_image(c, 0), w = rn_import_in(c, 1), bias = rn_import_optional(c, 2);
    rn_dtype dtype = rn_import_dtype_of(c->import, x);
    rn_conv_transpose_attrs attrs = {0};
    windows at;
    if (!x || !w || !read_windows(c, 1, false, &at)) return;
    if (!size_transposed(c, &at, attrs.size)) return;
    attrs.conv = conv_attrs(c, &at);
    rn_value y = rn_op_conv_transpose(c->graph, widen(c, x), widen(c, w), widen(c, bias), attrs);
    if (y) rn_import_out_as(c, 0, rn_import_cast(c->import, y, dtype), true);
}

// What stands before the rows of a causal convolution: the state, or zeros.
static rn_value past_of(rn_import_call *c, rn_shape x, uint64_t length, rn_dtype dtype) {
    void *zeros = NULL;
    uint64_t bytes = 0;
    if (rn_import_has(c, 3)) return rn_import_in(c, 3);
    x.dims[2] = length;
    if (x.dims[0] == RN_ROWS || !rn_dtype_bytes(dtype, rn_shape_elements(x, 1), &bytes) ||
        rn_arena_alloc(&c->import->memory, bytes, &zeros) != RN_OK) {
        rn_import_refuse(c, "a batch of unknown size has no past_state");
        return RN_NO_VALUE;
    }
    return rn_import_constant(c->import, dtype, x, zeros);
}

// Depthwise over (B, C, T) behind the last K - 1 rows of the run before, which are a result, too.
static void causal_conv(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0), w = rn_import_in(c, 1), bias = rn_import_optional(c, 2);
    rn_shape shape = rn_import_shape_of(c->import, x), kernel = rn_import_shape_of(c->import, w);
    rn_dtype dtype = rn_import_dtype_of(c->import, x);
    if (!x || !w) return;
    if (shape.rank != 3 || kernel.rank != 3 || kernel.dims[2] == 0 || shape.dims[1] > UINT32_MAX) {
        rn_import_refuse(c, "its input and weight have other axes");
        return;
    }
    rn_shape state = {.rank = 3, .dims = {shape.dims[0], shape.dims[1], kernel.dims[2] - 1}};
    if (state.dims[2]) {
        rn_value past = past_of(c, shape, state.dims[2], dtype);
        x = past ? rn_op_concat(c->graph, (rn_value[]){past, x}, 2, 2) : RN_NO_VALUE;
    }
    if (!x) return;
    rn_value y = rn_op_conv(c->graph, widen(c, rn_import_to_image(c->import, x)), widen(c, w),
                            widen(c, bias), (rn_conv_attrs){.groups = (uint32_t)shape.dims[1]});
    if (!rn_import_text_is(c, "activation", "none", "none")) y = rn_op_silu(c->graph, y);
    if (y) rn_import_out_as(c, 0, rn_import_cast(c->import, y, dtype), true);
    if (!rn_import_wants(c, 1)) return;
    if (state.dims[2] == 0)
        rn_import_out_empty(c, 1, dtype, state);
    else
        rn_import_out(c, 1, rn_op_slice(c->graph, x, 2, shape.dims[2], state.dims[2]));
}

// ---- pools --------------------------------------------------------------------------------------

static void pool(rn_import_call *c) {
    rn_value x = rn_import_image(c, 0);
    rn_pool_attrs attrs = {.function = (rn_pool_function)c->op->argument,
                           .ceil = rn_import_int(c, "ceil_mode", 0) != 0,
                           .count_pad = rn_import_int(c, "count_include_pad", 0) != 0,
                           .column_major = rn_import_int(c, "storage_order", 0) != 0,
                           .p = (uint32_t)rn_import_int(c, "p", 2)};
    windows w;
    if (!x || !read_windows(c, 0, true, &w)) return;
    for (uint32_t i = 0; i < w.rank; i++)
        attrs.size[i] = (uint32_t)w.size[i];
    memcpy(attrs.stride, w.stride, sizeof attrs.stride);
    memcpy(attrs.dilation, w.dilation, sizeof attrs.dilation);
    memcpy(attrs.pad_before, w.before, sizeof attrs.pad_before);
    memcpy(attrs.pad_after, w.after, sizeof attrs.pad_after);
    if (!rn_import_wants(c, 1)) {
        rn_import_out_as(c, 0, rn_op_pool_values(c->graph, x, attrs), true);
        return;
    }
    rn_value y = rn_op_pool(c->graph, x, attrs);
    rn_import_out_as(c, 0, y, true);
    rn_import_out_as(c, 1, rn_graph_output_of(c->graph, y, 1), true);
}

static void global_pool(rn_import_call *c) {
    rn_value x = rn_import_image(c, 0);
    uint32_t rank = rn_import_shape_of(c->import, x).rank;
    rn_reduce_function function = (rn_reduce_function)c->op->argument;
    int64_t p = rn_import_int(c, "p", 2);
    if (!x) return;
    if (rank < 3 || (function == RN_REDUCE_L2 && p != 1 && p != 2)) {
        rn_import_refuse(c, "p = %lld of %u axes", (long long)p, rank);
        return;
    }
    if (function == RN_REDUCE_L2 && p == 1) function = RN_REDUCE_L1;
    uint32_t axes = ((1u << (rank - 1)) - 1) & ~1u; // all between the first and the last
    rn_import_out_as(c, 0, rn_op_reduce(c->graph, function, x, axes, true), true);
}

// Elements go back to the places that MaxPool named.
static void max_unpool(rn_import_call *c) {
    rn_graph *g = c->graph;
    rn_value x = rn_import_in(c, 0), places = rn_import_in(c, 1);
    rn_shape from = rn_import_shape_of(c->import, x), to = from;
    int64_t sizes[RN_MAX_RANK];
    size_t count = 0;
    windows w;
    if (!x || !places || !read_windows(c, 0, false, &w) ||
        !rn_import_ints(c, 2, sizes, RN_MAX_RANK, &count))
        return;
    for (uint32_t i = 0; i < w.rank; i++)
        to.dims[2 + i] = (w.in[i] - 1) * w.stride[i] + w.size[i] - w.before[i] - w.after[i];
    uint64_t few = rn_shape_elements(from, 1), all = rn_shape_elements(to, 1);
    rn_value zero = rn_import_scalar(c->import, rn_import_dtype_of(c->import, x), 0);
    rn_value flat = rn_op_scatter(g, rn_op_broadcast(g, zero, RN_SHAPE(all)),
                                  rn_import_reshape(c->import, places, RN_SHAPE(few)),
                                  rn_import_reshape(c->import, x, RN_SHAPE(few)),
                                  (rn_scatter_attrs){.function = RN_SCATTER_SET});
    rn_pad_attrs pad = {0}; // places are those of the image without what output_shape adds
    for (uint32_t i = 0; count == from.rank && i < count; i++)
        pad.after[i] = (uint64_t)sizes[i] > to.dims[i] ? (uint64_t)sizes[i] - to.dims[i] : 0;
    rn_value y = rn_import_reshape(c->import, flat, to);
    rn_import_out(c, 0, count == from.rank && y ? rn_op_pad(g, y, pad) : y);
}

// ---- resampling ---------------------------------------------------------------------------------

static bool read_resize_modes(rn_import_call *c, rn_resize_attrs *out) {
    static const char *const functions[] = {"nearest", "linear", "cubic"};
    static const char *const coordinates[] = {"half_pixel",         "half_pixel_symmetric",
                                              "pytorch_half_pixel", "align_corners",
                                              "asymmetric",         "tf_crop_and_resize"};
    static const char *const rounding[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                           "ceil"};
    bool old = c->version < 11 || rn_str_equal(c->node->op, RN_STR("Upsample"));
    int function = -1, coordinate = old ? RN_RESIZE_ASYMMETRIC : -1, round = old ? 2 : -1;
    for (int i = 0; i < 3; i++)
        if (rn_import_text_is(c, "mode", "nearest", functions[i])) function = i;
    if (rn_import_text_is(c, "mode", "nearest", "bilinear")) function = 1;
    for (int i = 0; !old && i < 6; i++)
        if (rn_import_text_is(c, "coordinate_transformation_mode", "half_pixel", coordinates[i]))
            coordinate = i;
    for (int i = 0; !old && i < 4; i++)
        if (rn_import_text_is(c, "nearest_mode", "round_prefer_floor", rounding[i])) round = i;
    if (function < 0 || coordinate < 0 || round < 0) {
        rn_import_refuse(c, "a mode that is not known");
        return false;
    }
    *out = (rn_resize_attrs){.function = (rn_resize_function)function,
                             .coordinates = (rn_resize_coordinates)coordinate,
                             .nearest = (rn_resize_nearest)round,
                             .fill = rn_import_float(c, "extrapolation_value", 0),
                             .cubic = rn_import_float(c, "cubic_coeff_a", -0.75f),
                             .exclude_outside = rn_import_int(c, "exclude_outside", 0) != 0,
                             .antialias = rn_import_int(c, "antialias", 0) != 0};
    return true;
}

typedef struct resizing {
    uint32_t axes[RN_MAX_RANK];
    double scales[RN_MAX_RANK];
    uint64_t lengths[RN_MAX_RANK];
    double roi[2 * RN_MAX_RANK];
    uint32_t count;
} resizing;

// Lengths of the result from sizes; with an aspect ratio to keep, all by one scale.
static void use_sizes(rn_import_call *c, rn_shape x, const int64_t *sizes, resizing *r) {
    bool larger = rn_import_text_is(c, "keep_aspect_ratio_policy", "stretch", "not_larger"),
         smaller = rn_import_text_is(c, "keep_aspect_ratio_policy", "stretch", "not_smaller");
    double common = larger ? INFINITY : 0;
    for (uint32_t i = 0; i < r->count; i++) {
        double scale = (double)sizes[i] / (double)x.dims[r->axes[i]];
        common = larger ? fmin(common, scale) : fmax(common, scale);
    }
    for (uint32_t i = 0; i < r->count; i++) {
        double length = (double)x.dims[r->axes[i]];
        bool kept = larger || smaller;
        r->lengths[i] = kept ? (uint64_t)floor(common * length + 0.5) : (uint64_t)sizes[i];
        r->scales[i] = kept ? common : (double)sizes[i] / length;
    }
}

static bool read_resizing(rn_import_call *c, rn_shape x, resizing *r) {
    const int64_t *axes = NULL;
    const rn_onnx_attribute *fixed = rn_import_attribute(c, "scales");
    bool old = c->version < 11 || rn_str_equal(c->node->op, RN_STR("Upsample"));
    double scales[RN_MAX_RANK];
    int64_t sizes[RN_MAX_RANK];
    size_t axis_count = rn_import_int_list(c, "axes", &axes), scale_count = 0, size_count = 0,
           roi = 0;
    r->count = axes ? (uint32_t)axis_count : x.rank;
    if (r->count > RN_MAX_RANK) return false;
    for (uint32_t i = 0; i < r->count; i++)
        r->axes[i] = axes ? rn_import_axis(c, axes[i], x.rank) : i;
    if (fixed && fixed->type == RN_ONNX_FLOATS && fixed->count <= RN_MAX_RANK) {
        for (size_t i = 0; i < fixed->count; i++)
            scales[i] = fixed->floats[i];
        scale_count = fixed->count;
    } else if (!rn_import_floats(c, old ? 1 : 2, scales, RN_MAX_RANK, &scale_count)) {
        return false;
    }
    if (!old && (!rn_import_ints(c, 3, sizes, RN_MAX_RANK, &size_count))) return false;
    if (!old && rn_import_text_is(c, "coordinate_transformation_mode", "", "tf_crop_and_resize") &&
        !rn_import_floats(c, 1, r->roi, 2 * RN_MAX_RANK, &roi))
        return false;
    if (scale_count != r->count && size_count != r->count) {
        rn_import_refuse(c, "%zu scales and %zu sizes for %u axes", scale_count, size_count,
                         r->count);
        return false;
    }
    for (size_t i = 0; i < r->count; i++) {
        bool bad = size_count == r->count ? sizes[i] < 1 || sizes[i] > INT32_MAX
                                          : !(scales[i] > 0 && scales[i] < 1 << 20);
        if (!bad && x.dims[r->axes[i]] < INT32_MAX) continue;
        if (!bad && x.dims[r->axes[i]] == RN_ROWS && scale_count && scales[i] == 1) continue;
        rn_import_refuse(c, "axis %u cannot be resized", r->axes[i]);
        return false;
    }
    if (size_count == r->count) use_sizes(c, x, sizes, r);
    for (uint32_t i = 0; size_count != r->count && i < r->count; i++) {
        r->scales[i] = scales[i];
        r->lengths[i] = x.dims[r->axes[i]];
        if (scales[i] != 1) r->lengths[i] = (uint64_t)floor((double)r->lengths[i] * scales[i]);
    }
    return true;
}

static void resize(rn_import_call *c) {
    bool channels_last;
    rn_value x = rn_import_any(c, 0, &channels_last);
    rn_shape shape = rn_import_shape(c, 0);
    rn_resize_attrs attrs;
    resizing r = {.count = 0};
    if (!x || !read_resize_modes(c, &attrs) || !read_resizing(c, shape, &r)) return;
    bool crop = attrs.coordinates == RN_RESIZE_CROP;
    for (uint32_t i = 0; x && i < r.count; i++) {
        uint32_t axis = r.axes[i];
        attrs.from = r.roi[i], attrs.to = r.roi[r.count + i];
        bool whole = !crop || (attrs.from == 0 && attrs.to == 1);
        if (whole && r.lengths[i] == shape.dims[axis] && r.scales[i] == 1) continue;
        if (shape.dims[axis] == RN_ROWS || r.lengths[i] == 0) {
            rn_import_refuse(c, "axis %u becomes %llu long", axis,
                             (unsigned long long)r.lengths[i]);
            return;
        }
        attrs.axis = !channels_last || axis == 0 ? axis : axis == 1 ? shape.rank - 1 : axis - 1;
        attrs.length = r.lengths[i];
        attrs.scale = r.scales[i];
        x = rn_op_resize(c->graph, x, attrs);
    }
    rn_import_out_as(c, 0, x, channels_last);
}

static void roi_align(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0), regions = rn_import_in(c, 1), batch = rn_import_in(c, 2);
    bool old = c->version < 16;
    rn_roi_align_attrs attrs = {
        .height = (uint32_t)rn_import_int(c, "output_height", 1),
        .width = (uint32_t)rn_import_int(c, "output_width", 1),
        .sampling = (uint32_t)rn_import_int(c, "sampling_ratio", 0),
        .scale = rn_import_float(c, "spatial_scale", 1),
        .max = rn_import_text_is(c, "mode", "avg", "max"),
        .half_pixel = rn_import_text_is(c, "coordinate_transformation_mode",
                                        old ? "output_half_pixel" : "half_pixel", "half_pixel")};
    if (x && regions && batch)
        rn_import_out(c, 0, rn_op_roi_align(c->graph, x, regions, batch, attrs));
}

static void col2im(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0);
    int64_t image[RN_MAX_SPATIAL], block[RN_MAX_SPATIAL];
    uint32_t pads[2 * RN_MAX_SPATIAL];
    size_t rank = 0, block_rank = 0;
    rn_col2im_attrs attrs = {0};
    if (!x || !rn_import_ints(c, 1, image, RN_MAX_SPATIAL, &rank) ||
        !rn_import_ints(c, 2, block, RN_MAX_SPATIAL, &block_rank))
        return;
    attrs.rank = (uint32_t)rank;
    if (block_rank != rank || !read_list(c, "strides", attrs.rank, 1, attrs.stride) ||
        !read_list(c, "dilations", attrs.rank, 1, attrs.dilation) ||
        !read_list(c, "pads", 2 * attrs.rank, 0, pads))
        return;
    for (uint32_t i = 0; i < attrs.rank; i++) {
        attrs.image[i] = (uint64_t)image[i], attrs.block[i] = (uint64_t)block[i];
        attrs.pad_before[i] = pads[i], attrs.pad_after[i] = pads[attrs.rank + i];
    }
    rn_import_out(c, 0, rn_op_col2im(c->graph, x, attrs));
}

const rn_import_op rn_onnx_image_ops[] = {
    {"Conv", conv, 0},
    {"CausalConvWithState", causal_conv, 0},
    {"ConvTranspose", conv_transpose, 0},
    {"MaxPool", pool, RN_POOL_MAX},
    {"AveragePool", pool, RN_POOL_AVERAGE},
    {"LpPool", pool, RN_POOL_LP},
    {"GlobalAveragePool", global_pool, RN_REDUCE_MEAN},
    {"GlobalMaxPool", global_pool, RN_REDUCE_MAX},
    {"GlobalLpPool", global_pool, RN_REDUCE_L2},
    {"MaxUnpool", max_unpool, 0},
    {"Resize", resize, 0},
    {"Upsample", resize, 0},
    {"RoiAlign", roi_align, 0},
    {"Col2Im", col2im, 0},
    {NULL, NULL, 0},
};

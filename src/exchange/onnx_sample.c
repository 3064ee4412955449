// onnx_sample.c — ONNX's ops that read an image at places which are computed: GridSample, the grids
// of AffineGrid, and DeformConv.
#include "exchange/onnx_importer.h"

#include "base/checked.h"

enum { MOST_PLACES = 1 << 22 }; // that are constants

// ---- grids --------------------------------------------------------------------------------------

static void grid_sample(rn_import_call *c) {
    rn_value x = rn_import_image(c, 0), grid = rn_import_in(c, 1);
    rn_grid_sample_attrs attrs = {.align_corners = rn_import_int(c, "align_corners", 0) != 0};
    rn_str mode = rn_import_text(c, "mode", "linear");
    if (!x || !grid) return;
    attrs.function = rn_str_equal(mode, RN_STR("nearest")) ? RN_RESIZE_NEAREST
                     : rn_str_ends(mode, RN_STR("cubic"))  ? RN_RESIZE_CUBIC
                                                           : RN_RESIZE_LINEAR;
    attrs.padding = rn_import_text_is(c, "padding_mode", "zeros", "border") ? RN_GRID_BORDER
                    : rn_import_text_is(c, "padding_mode", "zeros", "reflection")
                        ? RN_GRID_REFLECTION
                        : RN_GRID_ZEROS;
    rn_import_out_as(c, 0, rn_op_grid_sample(c->graph, x, grid, attrs), true);
}

// Places from -1 to 1 by the last spatial axis first, with a 1 behind them: (points, rank + 1).
static rn_value base_grid(rn_import_call *c, const int64_t *sizes, uint32_t rank, bool corners) {
    uint64_t points = 1;
    for (uint32_t i = 0; i < rank; i++)
        if (sizes[i] < 1 || !rn_mul_u64(points, (uint64_t)sizes[i], &points) ||
            points > MOST_PLACES) {
            rn_import_refuse(c, "a grid of this size");
            return RN_NO_VALUE;
        }
    void *block = NULL;
    rn_status s = rn_arena_array(&c->import->memory, points * (rank + 1), sizeof(float), &block);
    if (s != RN_OK) {
        rn_graph_spoil(c->graph, s);
        return RN_NO_VALUE;
    }
    float *grid = block;
    for (uint64_t p = 0; p < points; p++) {
        uint64_t rest = p;
        for (uint32_t i = rank; i-- > 0; rest /= (uint64_t)sizes[i]) {
            double at = (double)(rest % (uint64_t)sizes[i]), n = (double)sizes[i];
            double place = !corners ? (2 * at + 1) / n - 1 : n > 1 ? 2 * at / (n - 1) - 1 : 0;
            grid[p * (rank + 1) + (rank - 1 - i)] = (float)place;
        }
        grid[p * (rank + 1) + rank] = 1;
    }
    return rn_import_constant(c->import, RN_DTYPE_F32, RN_SHAPE(points, rank + 1), grid);
}

static void affine_grid(rn_import_call *c) {
    rn_value theta = rn_import_in(c, 0);
    rn_dtype dtype = rn_import_dtype_of(c->import, theta);
    int64_t sizes[5];
    size_t count = 0;
    if (!theta || !rn_import_ints(c, 1, sizes, 5, &count)) return;
    if (count < 4) {
        rn_import_refuse(c, "%zu sizes", count);
        return;
    }
    uint32_t rank = (uint32_t)count - 2;
    rn_value grid = base_grid(c, sizes + 2, rank, rn_import_int(c, "align_corners", 0) != 0);
    rn_shape points = rn_import_shape_of(c->import, grid), to = {.rank = rank + 2};
    if (!grid) return;
    to.dims[0] = (uint64_t)sizes[0];
    for (uint32_t i = 0; i < rank; i++)
        to.dims[1 + i] = (uint64_t)sizes[2 + i];
    to.dims[rank + 1] = rank;
    grid = rn_op_broadcast(c->graph, grid, RN_SHAPE((uint64_t)sizes[0], points.dims[0], rank + 1));
    rn_value y =
        rn_op_matmul(c->graph, grid, rn_import_cast(c->import, theta, RN_DTYPE_F32), RN_NO_VALUE);
    rn_import_out(c, 0, rn_import_cast(c->import, rn_import_reshape(c->import, y, to), dtype));
}

// ---- DeformConv ---------------------------------------------------------------------------------

// Every tap of every window is read at its own place, into an image of (OH * KH, OW * KW) taps; a
// convolution whose windows lie side by side does the rest.
typedef struct deform {
    rn_import_call *call;
    uint64_t height, width;          // of the image
    uint64_t kh, kw, oh, ow, groups; // of windows, of the result; of offsets
    uint32_t stride[2], dilation[2], pad[4];
} deform;

static bool read_pair(rn_import_call *c, const char *name, uint32_t count, uint32_t *out) {
    const int64_t *items = NULL;
    size_t there = rn_import_int_list(c, name, &items);
    for (uint32_t i = 0; i < count && items; i++) {
        if (there != count || items[i] < 0 || items[i] > INT32_MAX) {
            rn_import_refuse(c, "its attribute %s does not suit two axes", name);
            return false;
        }
        out[i] = (uint32_t)items[i];
    }
    return true;
}

static bool open_deform(rn_import_call *c, deform *d) {
    rn_shape x = rn_import_shape(c, 0), w = rn_import_shape(c, 1), offset = rn_import_shape(c, 2);
    int64_t groups = rn_import_int(c, "offset_group", 1);
    *d = (deform){.call = c, .stride = {1, 1}, .dilation = {1, 1}};
    if (!read_pair(c, "strides", 2, d->stride) || !read_pair(c, "dilations", 2, d->dilation) ||
        !read_pair(c, "pads", 4, d->pad))
        return false;
    bool fits = x.rank == 4 && w.rank == 4 && offset.rank == 4 && groups > 0 &&
                x.dims[1] % (uint64_t)groups == 0 &&
                offset.dims[1] == 2 * (uint64_t)groups * w.dims[2] * w.dims[3];
    if (!fits) {
        rn_import_refuse(c, "%lld groups of offsets %s for %s and %s", (long long)groups,
                         rn_shape_format(offset).text, rn_shape_format(x).text,
                         rn_shape_format(w).text);
        return false;
    }
    d->height = x.dims[2], d->width = x.dims[3];
    d->kh = w.dims[2], d->kw = w.dims[3];
    d->oh = offset.dims[2], d->ow = offset.dims[3];
    d->groups = (uint64_t)groups;
    return true;
}

// Where taps lie without offsets, along one axis: (steps, taps).
static rn_value tap_places(const deform *d, uint32_t axis, uint64_t steps, uint64_t taps) {
    rn_import *m = d->call->import;
    void *block = NULL;
    uint64_t all = 0;
    if (!rn_mul_u64(steps, taps, &all) || all > MOST_PLACES) {
        rn_import_refuse(d->call, "a result of this size");
        return RN_NO_VALUE;
    }
    rn_status s = rn_arena_array(&m->memory, all, sizeof(float), &block);
    if (s != RN_OK) {
        rn_graph_spoil(d->call->graph, s);
        return RN_NO_VALUE;
    }
    float *places = block;
    for (uint64_t i = 0; i < all; i++)
        places[i] = (float)(i / taps * d->stride[axis] + i % taps * d->dilation[axis]) -
                    (float)d->pad[axis];
    rn_shape shape = axis == 0 ? RN_SHAPE(steps, taps, 1, 1, 1) : RN_SHAPE(steps, taps, 1);
    return rn_import_constant(m, RN_DTYPE_F32, shape, places);
}

// Sizes are rounded up to powers of two, by zeros, which lie outside of the image anyway: so a
// place that is a whole number is one after it was brought to -1 .. 1 and back.
static uint64_t round_size(uint64_t size) {
    uint64_t power = 1;
    while (power < size)
        power *= 2;
    return power;
}

static rn_value round_image(const deform *d, rn_value x) {
    rn_pad_attrs attrs = {
        .after = {0, round_size(d->height) - d->height, round_size(d->width) - d->width, 0}};
    if (!x || (attrs.after[1] == 0 && attrs.after[2] == 0)) return x;
    return rn_op_pad(d->call->graph, x, attrs);
}

// Places from -1 to 1, the outer edges of pixels: (N, groups, OH * KH, OW * KW, 2).
static rn_value deform_grid(const deform *d) {
    static const uint8_t order[] = {0, 1, 5, 2, 6, 3, 4};
    rn_graph *g = d->call->graph;
    rn_import *m = d->call->import;
    rn_value x = rn_import_cast(m, rn_import_in(d->call, 2), RN_DTYPE_F32), part[2];
    uint64_t n = rn_import_shape_of(m, x).dims[0];
    if (!x) return x;
    x = rn_import_reshape(m, x, RN_SHAPE(n, d->groups, d->kh, d->kw, 2, d->oh, d->ow));
    x = rn_import_permute(m, x, order); // (N, groups, OH, KH, OW, KW, 2)
    for (uint32_t axis = 0; axis < 2; axis++) {
        uint64_t size = round_size(axis ? d->width : d->height);
        rn_value at = axis ? tap_places(d, 1, d->ow, d->kw) : tap_places(d, 0, d->oh, d->kh);
        rn_value place = rn_op_add(g, rn_op_slice(g, x, 6, axis, 1), at);
        part[1 - axis] = rn_op_scale(g, place, 2 / (float)size, 1 / (float)size - 1);
    }
    return rn_import_reshape(m, rn_op_concat(g, part, 2, 6),
                             RN_SHAPE(n, d->groups, d->oh * d->kh, d->ow * d->kw, 2));
}

// What a tap is multiplied by: (N, groups, OH * KH, OW * KW, 1).
static rn_value deform_mask(const deform *d) {
    static const uint8_t order[] = {0, 1, 4, 2, 5, 3};
    rn_import *m = d->call->import;
    rn_value x = rn_import_cast(m, rn_import_in(d->call, 4), RN_DTYPE_F32);
    uint64_t n = rn_import_shape_of(m, x).dims[0];
    if (!x) return x;
    x = rn_import_reshape(m, x, RN_SHAPE(n, d->groups, d->kh, d->kw, d->oh, d->ow));
    return rn_import_reshape(m, rn_import_permute(m, x, order),
                             RN_SHAPE(n, d->groups, d->oh * d->kh, d->ow * d->kw, 1));
}

// Of one group of offsets, without that axis.
static rn_value of_group(const deform *d, rn_value x, uint64_t group) {
    rn_shape s = rn_import_shape_of(d->call->import, x);
    if (!x) return x;
    return rn_import_reshape(d->call->import, rn_op_slice(d->call->graph, x, 1, group, 1),
                             RN_SHAPE(s.dims[0], s.dims[2], s.dims[3], s.dims[4]));
}

static void deform_conv(rn_import_call *c) {
    enum { MOST_GROUPS = 64 };
    rn_graph *g = c->graph;
    rn_import *m = c->import;
    deform d;
    rn_value x = rn_import_image(c, 0), w = rn_import_in(c, 1), bias = rn_import_optional(c, 3);
    rn_dtype dtype = rn_import_dtype_of(m, x);
    rn_value taps[MOST_GROUPS];
    if (!x || !w || !open_deform(c, &d)) return;
    if (d.groups > MOST_GROUPS) rn_import_refuse(c, "more than %d groups of offsets", MOST_GROUPS);
    x = round_image(&d, rn_import_cast(m, x, RN_DTYPE_F32));
    rn_value grid = deform_grid(&d), mask = rn_import_has(c, 4) ? deform_mask(&d) : RN_NO_VALUE;
    uint64_t channels = rn_import_shape_of(m, x).dims[3] / d.groups;
    for (uint64_t i = 0; i < d.groups && rn_graph_finish(g) == RN_OK; i++) {
        rn_value part = d.groups == 1 ? x : rn_op_slice(g, x, 3, i * channels, channels);
        rn_grid_sample_attrs attrs = {.function = RN_RESIZE_LINEAR, .padding = RN_GRID_ZEROS};
        taps[i] = rn_op_grid_sample(g, part, of_group(&d, grid, i), attrs);
        if (mask) taps[i] = rn_op_mul(g, taps[i], of_group(&d, mask, i));
    }
    if (rn_graph_finish(g) != RN_OK) return;
    rn_value image = d.groups == 1 ? taps[0] : rn_op_concat(g, taps, (uint32_t)d.groups, 3);
    rn_conv_attrs attrs = {.groups = (uint32_t)rn_import_int(c, "group", 1),
                           .stride = {(uint32_t)d.kh, (uint32_t)d.kw}};
    rn_value y = rn_op_conv(g, image, rn_import_cast(m, w, RN_DTYPE_F32),
                            rn_import_cast(m, bias, RN_DTYPE_F32), attrs);
    if (y) rn_import_out_as(c, 0, rn_import_cast(m, y, dtype), true);
}

const rn_import_op rn_onnx_sample_ops[] = {
    {"GridSample", grid_sample, 0},
    {"AffineGrid", affine_grid, 0},
    {"DeformConv", deform_conv, 0},
    {NULL, NULL, 0},
};

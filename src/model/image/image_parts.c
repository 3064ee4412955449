// image_parts.c — see image_parts.h.
#include "model/image/image_parts.h"

#include "graph/weight_rows.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

rn_image_name rn_image_named(const char *format, ...) {
    rn_image_name name;
    va_list args;
    va_start(args, format);
    vsnprintf(name.text, sizeof name.text, format, args);
    va_end(args);
    return name;
}

rn_shape rn_image_shape(const rn_image_builder *b, rn_value value) {
    const rn_shape none = {0};
    return value == RN_NO_VALUE ? none : rn_graph_value(b->g, value)->shape;
}

// ---- weights ------------------------------------------------------------------------------------

static bool find_place(const rn_image_builder *b, const char *name, rn_image_place *out) {
    *out = (rn_image_place){.dtype = RN_DTYPE_F32};
    if (b->files) return b->files->place(b->files->self, name, out);
    return true;
}

bool rn_image_has(const rn_image_builder *b, const char *name) {
    rn_image_place place;
    return find_place(b, name, &place);
}

// A weight, or rows [first, first + count) of one with `rows` of them in all, which has a name of
// its own.
static rn_value add_rows(rn_image_builder *b, const char *name, const rn_image_place *place,
                         rn_shape shape, uint64_t first, uint64_t rows) {
    uint64_t count = shape.rank ? shape.dims[0] : 1;
    bool whole = place->tensor_rows == 0 && count == rows;
    bool renamed = place->tensor[0] && strcmp(place->tensor, name) != 0;
    if (whole && !renamed) return rn_graph_weight(b->g, name, place->dtype, shape);
    rn_image_name part = rn_image_named("%s", name);
    if (count != rows)
        part = rn_image_named("%s[%llu:%llu]", name, (unsigned long long)first,
                              (unsigned long long)(first + count));
    uint64_t from = place->swapped ? (first + rows / 2) % rows : first;
    return rn_graph_weight_rows(b->g, part.text, place->dtype, shape,
                                place->tensor[0] ? place->tensor : name, place->first_row + from,
                                place->tensor_rows ? place->tensor_rows : rows);
}

// Rows of a weight that is trained, which is one value in the graph.
static rn_value cut_rows(rn_image_builder *b, const char *name, const rn_image_place *place,
                         rn_shape shape, uint64_t first, uint64_t rows) {
    rn_value whole = rn_graph_find(b->g, RN_ROLE_WEIGHT, name);
    uint64_t count = shape.dims[0];
    shape.dims[0] = rows;
    if (whole == RN_NO_VALUE) whole = add_rows(b, name, place, shape, 0, rows);
    return rn_op_slice(b->g, whole, 0, first, count);
}

static rn_value add_weight(rn_image_builder *b, const char *name, rn_shape shape, uint64_t first,
                           uint64_t rows) {
    rn_image_place place;
    if (!find_place(b, name, &place)) snprintf(place.tensor, sizeof place.tensor, "%s", name);
    bool trained = !b->files || b->files->trained, cut = shape.rank && shape.dims[0] != rows;
    rn_image_name full = rn_image_named("%s%s", b->prefix ? b->prefix : "", name);
    return trained && cut ? cut_rows(b, full.text, &place, shape, first, rows)
                          : add_rows(b, full.text, &place, shape, first, rows);
}

rn_value rn_image_weight(rn_image_builder *b, const char *name, rn_shape shape) {
    return add_weight(b, name, shape, 0, shape.rank ? shape.dims[0] : 1);
}

static rn_value widen(rn_image_builder *b, rn_value w) {
    rn_dtype dtype = w == RN_NO_VALUE ? RN_DTYPE_F32 : rn_graph_value(b->g, w)->dtype;
    if (dtype == RN_DTYPE_F32) return w;
    return rn_dtype_get(dtype)->block_elements > 1 ? rn_op_dequantize(b->g, w)
                                                   : rn_op_cast(b->g, w, RN_DTYPE_F32);
}

// stable-diffusion.cpp quantises vectors, too: those are one row of blocks.
static rn_value add_vector(rn_image_builder *b, const char *name, rn_shape shape, uint64_t first,
                           uint64_t rows) {
    rn_image_place place;
    bool blocks = find_place(b, name, &place) && rn_dtype_get(place.dtype)->block_elements > 1;
    if (!blocks || shape.rank != 1 || shape.dims[0] != rows)
        return widen(b, add_weight(b, name, shape, first, rows));
    rn_value row = add_weight(b, name, RN_SHAPE(1, rows), 0, 1);
    return rn_op_reshape(b->g, rn_op_dequantize(b->g, row), shape);
}

rn_value rn_image_vector(rn_image_builder *b, const char *name, const char *part, rn_shape shape) {
    return add_vector(b, rn_image_named("%s.%s", name, part).text, shape, 0,
                      shape.rank ? shape.dims[0] : 1);
}

static rn_value add_bias(rn_image_builder *b, const char *name, uint64_t first, uint64_t count,
                         uint64_t rows, rn_image_bias bias) {
    if (bias == RN_IMAGE_NO_BIAS) return RN_NO_VALUE;
    rn_image_name text = rn_image_named("%s.bias", name);
    return add_vector(b, text.text, RN_SHAPE(count), first, rows);
}

static const rn_low_rank *addition_of(const rn_image_builder *b, const char *weight,
                                      uint32_t index) {
    return b->files && b->files->addition ? b->files->addition(b->files->self, weight, index)
                                          : NULL;
}

// An addition's scale; 0 and 1: none.
static rn_value scale_by(rn_image_builder *b, rn_value x, float scale) {
    return scale == 0 || scale == 1 ? x : rn_op_scale(b->g, x, scale, 0);
}

// ---- convolutions -------------------------------------------------------------------------------

static rn_conv2d_attrs conv_attrs(rn_image_conv_kind kind) {
    static const rn_conv2d_attrs attrs[] = {
        [RN_CONV_1] = {1, 1, 0, 0, 0, 0},
        [RN_CONV_3] = {1, 1, 1, 1, 1, 1},
        [RN_CONV_7] = {1, 1, 3, 3, 3, 3},
        [RN_CONV_HALVE] = {2, 2, 1, 1, 1, 1},
        [RN_CONV_HALVE_BEHIND] = {2, 2, 0, 0, 1, 1},
    };
    return attrs[kind];
}

static uint64_t conv_size(rn_image_conv_kind kind) {
    return kind == RN_CONV_1 ? 1 : kind == RN_CONV_7 ? 7 : 3;
}

// Kernels of a convolution are f32, f16 or bf16; quantised ones are widened as a whole.
static rn_value as_kernel(rn_image_builder *b, rn_value w) {
    if (w == RN_NO_VALUE) return w;
    rn_dtype dtype = rn_graph_value(b->g, w)->dtype;
    return dtype == RN_DTYPE_F16 || dtype == RN_DTYPE_BF16 ? w : widen(b, w);
}

rn_value rn_image_kernel(rn_image_builder *b, const char *name, rn_shape shape) {
    return as_kernel(b, rn_image_weight(b, name, shape));
}

rn_value rn_image_conv_as(rn_image_builder *b, rn_value x, const char *name, uint64_t in,
                          uint64_t out, rn_image_conv_kind kind, rn_image_bias bias) {
    uint64_t size = conv_size(kind);
    rn_image_name text = rn_image_named("%s.weight", name);
    rn_value w = rn_image_weight(b, text.text, RN_SHAPE(out, in, size, size));
    w = as_kernel(b, w);
    rn_value y = rn_op_conv2d(b->g, x, w, add_bias(b, name, 0, out, out, bias), conv_attrs(kind));
    const rn_low_rank *more;
    for (uint32_t i = 0; (more = addition_of(b, text.text, i)); i++) {
        rn_value down =
            rn_graph_weight(b->g, more->down, RN_DTYPE_F32, RN_SHAPE(more->rank, in, size, size));
        rn_value up =
            rn_graph_weight(b->g, more->up, RN_DTYPE_F32, RN_SHAPE(out, more->rank, 1, 1));
        rn_value z = rn_op_conv2d(b->g, x, down, RN_NO_VALUE, conv_attrs(kind));
        z = scale_by(b, z, more->scale);
        y = rn_op_add(b->g, y, rn_op_conv2d(b->g, z, up, RN_NO_VALUE, conv_attrs(RN_CONV_1)));
    }
    return y;
}

rn_value rn_image_conv(rn_image_builder *b, rn_value x, const char *name, uint64_t in, uint64_t out,
                       rn_image_conv_kind kind) {
    return rn_image_conv_as(b, x, name, in, out, kind, RN_IMAGE_BIAS);
}

// ---- linear layers ------------------------------------------------------------------------------

// Rows of an addition's second matrix. In training it is one value, of which rows are cut.
static rn_value add_up(rn_image_builder *b, const rn_low_rank *more, uint64_t first, uint64_t count,
                       uint64_t out) {
    rn_shape all = RN_SHAPE(out, more->rank);
    if (count == out) return rn_graph_weight(b->g, more->up, RN_DTYPE_F32, all);
    if (b->trains)
        return cut_rows(b, more->up, &(rn_image_place){.dtype = RN_DTYPE_F32},
                        RN_SHAPE(count, more->rank), first, out);
    rn_image_name rows = rn_image_named("%s[%llu:%llu]", more->up, (unsigned long long)first,
                                        (unsigned long long)(first + count));
    return rn_graph_weight_rows(b->g, rows.text, RN_DTYPE_F32, RN_SHAPE(count, more->rank),
                                more->up, first, out);
}

rn_value rn_image_linear_part(rn_image_builder *b, rn_value x, const char *name, uint64_t in,
                              uint64_t out, uint64_t first, uint64_t count, rn_image_bias bias) {
    rn_image_name text = rn_image_named("%s.weight", name);
    rn_image_place place;
    bool turned = find_place(b, text.text, &place) && place.turned;
    rn_value w = turned ? add_weight(b, text.text, RN_SHAPE(in, count), 0, in)
                        : add_weight(b, text.text, RN_SHAPE(count, in), first, out);
    rn_matmul_attrs attrs = {.transpose_w = turned, .unquantised_activations = b->trains};
    rn_value y = rn_op_matmul_as(b->g, x, w, add_bias(b, name, first, count, out, bias), attrs);
    const rn_low_rank *more;
    for (uint32_t i = 0; (more = addition_of(b, text.text, i)); i++) {
        // Parts of one layer share the product by `down`, which has one name.
        rn_value down = rn_graph_find(b->g, RN_ROLE_WEIGHT, more->down);
        if (down == RN_NO_VALUE)
            down = rn_graph_weight(b->g, more->down, RN_DTYPE_F32, RN_SHAPE(more->rank, in));
        rn_value z = rn_op_matmul(b->g, x, down, RN_NO_VALUE);
        z = scale_by(b, z, more->scale);
        rn_value up = add_up(b, more, first, count, out);
        y = rn_op_add(b->g, y, rn_op_matmul(b->g, z, up, RN_NO_VALUE));
    }
    return y;
}

rn_value rn_image_linear(rn_image_builder *b, rn_value x, const char *name, uint64_t in,
                         uint64_t out, rn_image_bias bias) {
    return rn_image_linear_part(b, x, name, in, out, 0, out, bias);
}

rn_value rn_image_embed(rn_image_builder *b, rn_value x, const char *name, const char *first,
                        const char *second, uint64_t in, uint64_t out) {
    x = rn_image_linear(b, x, rn_image_named("%s.%s", name, first).text, in, out, RN_IMAGE_BIAS);
    return rn_image_linear(b, rn_op_silu(b->g, x), rn_image_named("%s.%s", name, second).text, out,
                           out, RN_IMAGE_BIAS);
}

// ---- norms --------------------------------------------------------------------------------------

rn_value rn_image_group_norm(rn_image_builder *b, rn_value x, const char *name, uint64_t channels,
                             rn_group_norm_attrs attrs) {
    rn_value weight = rn_image_vector(b, name, "weight", RN_SHAPE(channels));
    rn_value bias = rn_image_vector(b, name, "bias", RN_SHAPE(channels));
    return rn_op_group_norm(b->g, x, weight, bias, attrs);
}

rn_value rn_image_layer_norm(rn_image_builder *b, rn_value x, const char *name, uint64_t channels,
                             float eps) {
    rn_value weight = rn_image_vector(b, name, "weight", RN_SHAPE(channels));
    rn_value bias = rn_image_vector(b, name, "bias", RN_SHAPE(channels));
    return rn_op_layernorm(b->g, x, weight, bias, eps);
}

rn_value rn_image_rms_norm(rn_image_builder *b, rn_value x, const char *name, uint64_t channels,
                           float eps) {
    return rn_op_rmsnorm(b->g, x, rn_image_vector(b, name, "weight", RN_SHAPE(channels)), eps);
}

// ---- attention ----------------------------------------------------------------------------------

rn_value rn_image_split_heads(rn_image_builder *b, rn_value x, uint64_t heads) {
    rn_shape s = rn_image_shape(b, x);
    return rn_op_reshape(b->g, x, RN_SHAPE(s.dims[0], s.dims[1], heads, s.dims[2] / heads));
}

rn_value rn_image_join_heads(rn_image_builder *b, rn_value x) {
    rn_shape s = rn_image_shape(b, x);
    return rn_op_reshape(b->g, x, RN_SHAPE(s.dims[0], s.dims[1], s.dims[2] * s.dims[3]));
}

rn_value rn_image_attend(rn_image_builder *b, rn_value q, rn_value k, rn_value v, uint64_t heads,
                         rn_attention_attrs attrs) {
    q = rn_image_split_heads(b, q, heads);
    k = rn_image_split_heads(b, k, heads);
    v = rn_image_split_heads(b, v, heads);
    return rn_image_join_heads(b, rn_op_attention(b->g, q, k, v, RN_NO_VALUE, attrs));
}

// ---- times --------------------------------------------------------------------------------------

void rn_sinusoid(float t, uint32_t dim, float *out) {
    uint32_t half = dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        float frequency = expf(-logf(10000.0f) * (float)i / (float)half);
        out[i] = cosf(t * frequency);
        out[half + i] = sinf(t * frequency);
    }
    if (dim % 2) out[dim - 1] = 0;
}

// ---- policies -----------------------------------------------------------------------------------

rn_dtype rn_image_halves(const rn_image_files *files, const char *weight) {
    rn_image_place place;
    bool f16 = files && files->place(files->self, weight, &place) && place.dtype == RN_DTYPE_F16;
    return f16 ? RN_DTYPE_F16 : RN_DTYPE_BF16;
}

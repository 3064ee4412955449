// onnx_quantized.c — ONNX's quantised ops. Products of whole numbers are computed as whole numbers
// and scaled once.
#include "exchange/onnx_importer.h"

#include <stdio.h>

// ---- weights of several tensors -----------------------------------------------------------------

// An initializer of the model's own file, that no node has read as it is.
static const rn_tensor_info *own_tensor(rn_import_call *c, uint32_t input) {
    rn_import_slot *slot = rn_import_slot_of(c, input);
    const rn_import *m = c->import;
    char name[512];
    bool own = slot && slot->is_initializer && m->checkpoint && m->weights == m->checkpoint;
    if (!own || slot->name.bytes >= sizeof name) return NULL;
    snprintf(name, sizeof name, "%.*s", RN_STR_ARG(slot->name));
    return rn_checkpoint_find(m->checkpoint, name);
}

static rn_status keep_form(rn_import *m, const rn_weight_form *form) {
    if (m->form_count == m->form_room) {
        size_t room = m->form_room ? 2 * m->form_room : 64;
        void *items = NULL;
        RN_TRY(rn_arena_array(&m->memory, room, sizeof *form, &items));
        if (m->form_count) memcpy(items, m->forms, m->form_count * sizeof *form);
        m->forms = items;
        m->form_room = room;
    }
    m->forms[m->form_count++] = *form;
    return RN_OK;
}

// An 8-bit weight whose numbers are made when it is read, not in every run: with a scale for all, a
// row or a column. RN_NO_VALUE: it is none, or so small that it is folded.
static rn_value weight_of_bytes(rn_import_call *c) {
    const rn_tensor_info *data = own_tensor(c, 0), *scale = own_tensor(c, 1),
                         *zero = rn_import_has(c, 2) ? own_tensor(c, 2) : NULL;
    char name[512];
    if (!data || !scale || (rn_import_has(c, 2) && !zero) || data->rank < 2 ||
        data->rank > RN_MAX_RANK || data->bytes <= RN_ONNX_CONSTANT_BYTES ||
        scale->dtype != RN_DTYPE_F32 || (zero && zero->dtype != data->dtype) ||
        (data->dtype != RN_DTYPE_I8 && data->dtype != RN_DTYPE_U8) ||
        (zero && zero->elements != scale->elements) || rn_import_int(c, "block_size", 0) ||
        rn_import_int(c, "output_dtype", 0) ||
        rn_onnx_dtype(rn_import_slot_of(c, 0)->data_type) != data->dtype ||
        rn_import_slot_of(c, 0)->data_type >= RN_ONNX_UINT4 ||
        c->node->outputs[0].bytes >= sizeof name)
        return RN_NO_VALUE;
    uint64_t rows = data->dims[0], cols = data->elements / rows, axis = 1;
    int64_t given = rn_import_int(c, "axis", 1);
    axis = (uint64_t)(given < 0 ? given + data->rank : given);
    bool one = scale->elements == 1, by_row = axis == 0 && scale->elements == rows,
         by_column = axis == 1 && data->rank == 2 && scale->elements == cols;
    if (!one && !by_row && !by_column) return RN_NO_VALUE;
    bool columns = !one && !by_row;
    rn_weight_form form = {.name = c->node->outputs[0],
                           .kind = RN_FORM_LINEAR,
                           .dtype = RN_DTYPE_F32,
                           .rows = rows,
                           .cols = cols,
                           .group = columns ? 1 : cols,
                           .group_count = columns ? cols : 1,
                           .scale_rows = by_row ? 1 : rows,
                           .bits = 8,
                           .symmetric = false,
                           .data = data,
                           .scale = scale,
                           .zero = zero};
    rn_shape shape = {.rank = data->rank};
    memcpy(shape.dims, data->dims, data->rank * sizeof *shape.dims);
    snprintf(name, sizeof name, "%.*s", RN_STR_ARG(form.name));
    if (rn_graph_find(c->graph, RN_ROLE_WEIGHT, name)) return RN_NO_VALUE;
    if (keep_form(c->import, &form) != RN_OK) return RN_NO_VALUE;
    return rn_graph_weight(c->graph, name, form.dtype, shape);
}

// ---- to and from whole numbers ------------------------------------------------------------------

// The element type of the result: the zero point's, or the attribute's; uint8 otherwise.
static uint32_t quantized_type(rn_import_call *c, uint32_t zero_input) {
    rn_import_slot *zero = rn_import_slot_of(c, zero_input);
    int64_t asked = rn_import_int(c, "output_dtype", 0);
    if (zero && zero->data_type) return zero->data_type;
    rn_dtype dtype = zero ? rn_import_dtype(c, zero_input) : RN_DTYPE_NONE;
    for (uint32_t i = 1; zero && i < RN_ONNX_UINT4; i++)
        if (rn_onnx_dtype(i) == dtype) return i;
    return asked > 0 ? (uint32_t)asked : 2;
}

static void set_range(uint32_t type, rn_linear_attrs *out) {
    uint32_t bits = type == RN_ONNX_UINT4 || type == RN_ONNX_INT4 ? 4 : 2;
    if (type == RN_ONNX_UINT4 || type == RN_ONNX_UINT2) out->high = (1 << bits) - 1;
    if (type == RN_ONNX_INT4 || type == RN_ONNX_INT2) {
        out->low = -(1 << (bits - 1));
        out->high = (1 << (bits - 1)) - 1;
    }
}

// One zero point for all may be () where the scale is (1), and the other way round.
static rn_value shaped_zero(rn_import_call *c, rn_value scale, rn_value zero) {
    rn_shape of_scale = rn_import_shape_of(c->import, scale);
    bool one = zero && rn_shape_elements(of_scale, 1) == 1 &&
               rn_shape_elements(rn_import_shape_of(c->import, zero), 1) == 1;
    return one ? rn_import_reshape(c->import, zero, of_scale) : zero;
}

static rn_linear_attrs linear_attrs(rn_import_call *c, rn_value x) {
    rn_linear_attrs attrs = {.block = (uint64_t)rn_import_int(c, "block_size", 0)};
    uint32_t rank = rn_import_shape_of(c->import, x).rank;
    int64_t axis = rn_import_int(c, "axis", 1);
    if (axis < 0) axis += rank;
    attrs.axis = axis >= 0 && axis < (int64_t)rank ? (uint32_t)axis : 0;
    return attrs;
}

// One scale serves an image in either layout.
static rn_value scaled_input(rn_import_call *c, rn_value scale, bool *out_channels_last) {
    *out_channels_last = false;
    if (rn_shape_elements(rn_import_shape_of(c->import, scale), 1) != 1) return rn_import_in(c, 0);
    return rn_import_any(c, 0, out_channels_last);
}

static void quantize(rn_import_call *c) {
    rn_value scale = rn_import_in(c, 1), zero = rn_import_optional(c, 2);
    bool channels_last;
    rn_value x = scaled_input(c, scale, &channels_last);
    uint32_t type = quantized_type(c, 2);
    if (!x || !scale) return;
    zero = shaped_zero(c, scale, zero);
    rn_linear_attrs attrs = linear_attrs(c, x);
    attrs.dtype = rn_onnx_dtype(type);
    set_range(type, &attrs);
    if (attrs.dtype == RN_DTYPE_NONE) {
        rn_import_refuse(c, "to %s", rn_onnx_type_name(type));
        return;
    }
    rn_import_out_as(c, 0, rn_op_quantize_linear(c->graph, x, scale, zero, attrs), channels_last);
}

static void dequantize(rn_import_call *c) {
    rn_value held = weight_of_bytes(c);
    if (held) {
        rn_import_out(c, 0, held);
        return;
    }
    rn_value scale = rn_import_in(c, 1), zero = rn_import_optional(c, 2);
    bool channels_last;
    rn_value x = scaled_input(c, scale, &channels_last);
    int64_t asked = rn_import_int(c, "output_dtype", 0);
    if (!x || !scale) return;
    zero = shaped_zero(c, scale, zero);
    rn_linear_attrs attrs = linear_attrs(c, x);
    attrs.dtype = asked ? rn_onnx_dtype((uint32_t)asked) : rn_import_dtype_of(c->import, scale);
    rn_import_out_as(c, 0, rn_op_dequantize_linear(c->graph, x, scale, zero, attrs), channels_last);
}

static void dynamic_quantize(rn_import_call *c) {
    rn_graph *g = c->graph;
    rn_import *m = c->import;
    rn_value x = rn_import_in(c, 0);
    rn_shape shape = rn_import_shape_of(m, x);
    if (!x) return;
    uint32_t all = (uint32_t)((1ull << shape.rank) - 1);
    rn_value zero = rn_import_scalar(m, RN_DTYPE_F32, 0),
             most = rn_import_scalar(m, RN_DTYPE_F32, 255);
    rn_value low =
        rn_op_binary(g, RN_BINARY_MIN, rn_op_reduce(g, RN_REDUCE_MIN, x, all, false), zero);
    rn_value high =
        rn_op_binary(g, RN_BINARY_MAX, rn_op_reduce(g, RN_REDUCE_MAX, x, all, false), zero);
    rn_value scale = rn_op_div(g, rn_op_sub(g, high, low), most);
    rn_value place = rn_op_div(g, rn_op_neg(g, low), scale);
    rn_value rounded = rn_op_unary(g, RN_UNARY_ROUND, rn_op_clamp(g, place, 0, 255));
    rn_value zero_point = rn_op_convert(g, rounded, (rn_convert_attrs){.dtype = RN_DTYPE_U8});
    rn_linear_attrs attrs = {.dtype = RN_DTYPE_U8};
    rn_import_out(c, 0, rn_op_quantize_linear(g, x, scale, zero_point, attrs));
    rn_import_out(c, 1, scale);
    rn_import_out(c, 2, zero_point);
}

// ---- products -----------------------------------------------------------------------------------

// x - zero, whole numbers of 9 bits at most, in f32. A zero point a row or a column of a matrix is
// shaped so: `axis` is the one that it is along.
static rn_value centred(rn_import_call *c, rn_value x, rn_value zero, uint32_t axis) {
    rn_import *m = c->import;
    rn_shape shape = rn_import_shape_of(m, x), of_zero = rn_import_shape_of(m, zero);
    rn_value wide = rn_import_cast(m, x, RN_DTYPE_F32);
    if (!zero || !x) return wide;
    if (of_zero.rank == 1 && of_zero.dims[0] > 1 && axis < shape.rank) {
        rn_shape to = {.rank = shape.rank - axis};
        for (uint32_t i = 0; i < to.rank; i++)
            to.dims[i] = i ? 1 : of_zero.dims[0];
        zero = rn_import_reshape(m, zero, to);
    } else if (of_zero.rank == 1) {
        zero = rn_import_reshape(m, zero, RN_SCALAR);
    }
    return rn_op_sub(c->graph, wide, rn_import_cast(m, zero, RN_DTYPE_F32));
}

// Sums of so many products of two such numbers are exact in f32: 2^8 * 255^2 < 2^24.
enum { EXACT_TERMS = 256 };

static rn_value as_whole(rn_import_call *c, rn_value x) {
    return x ? rn_op_convert(c->graph, x, (rn_convert_attrs){.dtype = RN_DTYPE_I32}) : x;
}

static bool is_byte(rn_import_call *c, rn_value x) {
    rn_dtype dtype = rn_import_dtype_of(c->import, x);
    return dtype == RN_DTYPE_I8 || dtype == RN_DTYPE_U8;
}

// x (..., M, K) by w (..., K, N), bytes with their zero points, as i32.
static rn_value whole_product(rn_import_call *c, rn_value x, rn_value w, rn_value x_zero,
                              rn_value w_zero) {
    rn_import *m = c->import;
    rn_shape a = rn_import_shape_of(m, x), b = rn_import_shape_of(m, w);
    bool zeros = rn_import_shape_of(m, x_zero).rank <= 1 && rn_import_shape_of(m, w_zero).rank <= 1;
    if (a.rank >= 2 && b.rank >= 2 && zeros && is_byte(c, x) && is_byte(c, w))
        return rn_op_product_integer(c->graph, x, w, x_zero, w_zero);
    rn_import_refuse(c, "products of %s %s and %s %s%s",
                     rn_dtype_get(rn_import_dtype_of(m, x))->name, rn_shape_format(a).text,
                     rn_dtype_get(rn_import_dtype_of(m, w))->name, rn_shape_format(b).text,
                     zeros ? "" : " with zero points of several axes");
    return RN_NO_VALUE;
}

// Convolutions are of f32 over pieces of the channels, each of them exact.
static rn_value whole_conv(rn_import_call *c, rn_value x, rn_value w, rn_conv_attrs attrs) {
    rn_import *m = c->import;
    rn_shape a = rn_import_shape_of(m, x), b = rn_import_shape_of(m, w);
    uint64_t window = 1, channels = b.dims[1];
    if (!x || !w) return RN_NO_VALUE;
    for (uint32_t i = 2; i < b.rank; i++)
        window *= b.dims[i];
    uint64_t step = window && window <= EXACT_TERMS ? EXACT_TERMS / window : 1;
    if (window > EXACT_TERMS || (attrs.groups > 1 && step < channels)) // few models have such
        return rn_op_conv(c->graph, as_whole(c, x), as_whole(c, w), RN_NO_VALUE, attrs);
    rn_value sum = RN_NO_VALUE;
    for (uint64_t at = 0; at < channels; at += step) {
        uint64_t count = channels - at < step ? channels - at : step;
        bool all = count == channels;
        rn_value part_x = all ? x : rn_op_slice(c->graph, x, a.rank - 1, at, count);
        rn_value part_w = all ? w : rn_op_slice(c->graph, w, 1, at, count);
        rn_value part = as_whole(c, rn_op_conv(c->graph, part_x, part_w, RN_NO_VALUE, attrs));
        sum = sum ? rn_op_add(c->graph, sum, part) : part;
        if (!sum) return sum;
    }
    return sum;
}

static void matmul_integer(rn_import_call *c) {
    rn_value a = rn_import_in(c, 0), b = rn_import_in(c, 1);
    if (!a || !b) return;
    rn_value a_zero = rn_import_optional(c, 2), b_zero = rn_import_optional(c, 3);
    rn_import_out(c, 0, whole_product(c, a, b, a_zero, b_zero));
}

// A scale a row (axis 0 of `rank`) or for all.
static rn_value shaped_scale(rn_import_call *c, rn_value scale, uint32_t axes_behind) {
    rn_shape from = rn_import_shape_of(c->import, scale), to = {.rank = 1 + axes_behind};
    if (from.rank == 0) return scale;
    if (from.rank != 1) return scale;
    if (from.dims[0] == 1) return rn_import_reshape(c->import, scale, RN_SCALAR);
    for (uint32_t i = 0; i < to.rank; i++)
        to.dims[i] = i ? 1 : from.dims[0];
    return rn_import_reshape(c->import, scale, to);
}

// Sums of whole numbers times both scales, as the result's type.
static rn_value requantize(rn_import_call *c, rn_value sums, rn_value scales, uint32_t scale_input,
                           uint32_t zero_input) {
    rn_graph *g = c->graph;
    rn_value scale = rn_import_in(c, scale_input), zero = rn_import_optional(c, zero_input);
    uint32_t type = quantized_type(c, zero_input);
    rn_linear_attrs attrs = {.dtype = rn_onnx_dtype(type)};
    if (!sums || !scales || !scale) return RN_NO_VALUE;
    rn_dtype wide = RN_DTYPE_F32;
    rn_value real = rn_op_mul(g, rn_op_convert(g, sums, (rn_convert_attrs){.dtype = wide}),
                              rn_import_cast(c->import, scales, wide));
    if (zero) zero = rn_import_reshape(c->import, zero, RN_SCALAR);
    scale = rn_import_reshape(c->import, scale, RN_SCALAR);
    return rn_op_quantize_linear(g, real, rn_import_cast(c->import, scale, wide), zero, attrs);
}

static void qlinear_matmul(rn_import_call *c) {
    rn_value a = rn_import_in(c, 0), b = rn_import_in(c, 3), a_scale = rn_import_in(c, 1),
             b_scale = rn_import_in(c, 4);
    if (!a || !b || !a_scale || !b_scale) return;
    rn_value a_zero = rn_import_optional(c, 2), b_zero = rn_import_optional(c, 5);
    rn_value scales =
        rn_op_mul(c->graph, rn_import_cast(c->import, shaped_scale(c, a_scale, 1), RN_DTYPE_F32),
                  rn_import_cast(c->import, shaped_scale(c, b_scale, 0), RN_DTYPE_F32));
    rn_import_out(c, 0, requantize(c, whole_product(c, a, b, a_zero, b_zero), scales, 6, 7));
}

static bool read_conv(rn_import_call *c, uint32_t kernel, rn_conv_attrs *out) {
    rn_shape x = rn_import_shape(c, 0), w = rn_import_shape(c, kernel);
    const int64_t *items = NULL;
    uint32_t rank = x.rank - 2;
    *out = (rn_conv_attrs){.groups = (uint32_t)rn_import_int(c, "group", 1)};
    if (x.rank < 3 || rank > RN_MAX_SPATIAL || w.rank != x.rank ||
        !(rn_import_text_is(c, "auto_pad", "NOTSET", "NOTSET") ||
          rn_import_text_is(c, "auto_pad", "NOTSET", "VALID"))) {
        rn_import_refuse(c, "a convolution of %s", rn_shape_format(x).text);
        return false;
    }
    if (rn_import_int_list(c, "strides", &items) == rank)
        for (uint32_t i = 0; i < rank; i++)
            out->stride[i] = (uint32_t)items[i];
    if (rn_import_int_list(c, "dilations", &items) == rank)
        for (uint32_t i = 0; i < rank; i++)
            out->dilation[i] = (uint32_t)items[i];
    if (rn_import_int_list(c, "pads", &items) == 2 * (size_t)rank)
        for (uint32_t i = 0; i < rank; i++)
            out->pad_before[i] = (uint32_t)items[i], out->pad_after[i] = (uint32_t)items[rank + i];
    return true;
}

static void conv_integer(rn_import_call *c) {
    rn_conv_attrs attrs;
    rn_value x = rn_import_image(c, 0), w = rn_import_in(c, 1);
    if (!x || !w || !read_conv(c, 1, &attrs)) return;
    rn_value y = whole_conv(c, centred(c, x, rn_import_optional(c, 2), UINT32_MAX),
                            centred(c, w, rn_import_optional(c, 3), 0), attrs);
    rn_import_out_as(c, 0, y, true);
}

static void qlinear_conv(rn_import_call *c) {
    rn_conv_attrs attrs;
    rn_value x = rn_import_image(c, 0), w = rn_import_in(c, 3), x_scale = rn_import_in(c, 1),
             w_scale = rn_import_in(c, 4), bias = rn_import_optional(c, 8);
    if (!x || !w || !x_scale || !w_scale || !read_conv(c, 3, &attrs)) return;
    rn_value sums = whole_conv(c, centred(c, x, rn_import_optional(c, 2), UINT32_MAX),
                               centred(c, w, rn_import_optional(c, 5), 0), attrs);
    if (bias && sums) sums = rn_op_add(c->graph, sums, bias);
    rn_value scales = rn_op_mul(c->graph, rn_import_reshape(c->import, x_scale, RN_SCALAR),
                                shaped_scale(c, w_scale, 0));
    rn_import_out_as(c, 0, requantize(c, sums, scales, 6, 7), true);
}

// (N, blocks, bytes) of codes, the low bits of a byte first, as (N, blocks * codes a block) u8.
static rn_value unpack_codes(rn_import_call *c, rn_value packed, uint32_t bits, uint64_t rows) {
    rn_graph *g = c->graph;
    rn_import *m = c->import;
    uint64_t bytes = rn_shape_elements(rn_import_shape_of(m, packed), 1) / rows;
    packed = rn_import_reshape(m, packed, RN_SHAPE(rows, bytes, 1));
    if (bits == 8) return rn_import_reshape(m, packed, RN_SHAPE(rows, bytes));
    rn_value low = rn_op_binary(g, RN_BINARY_AND, packed, rn_import_scalar(m, RN_DTYPE_U8, 15));
    rn_value high =
        rn_op_binary(g, RN_BINARY_SHIFT_RIGHT, packed, rn_import_scalar(m, RN_DTYPE_U8, 4));
    rn_value both = rn_op_concat(g, (rn_value[]){low, high}, 2, 2);
    return rn_import_reshape(m, both, RN_SHAPE(rows, 2 * bytes));
}

// Weights that stay as they are in the file, 4 bits each: blocks of 32 columns with a scale and a
// whole zero. RN_NO_VALUE: they cannot.
static rn_value weight_of_nibbles(rn_import_call *c, uint64_t n, uint64_t k, uint64_t block) {
    const rn_tensor_info *data = own_tensor(c, 1), *scale = own_tensor(c, 2),
                         *zero = rn_import_has(c, 3) ? own_tensor(c, 3) : NULL;
    uint64_t blocks = (k + block - 1) / block;
    char name[512];
    if (!data || !scale || rn_import_slot_of(c, 1)->value || k % 32 || block % 32 ||
        data->dtype != RN_DTYPE_U8 || data->bytes != n * blocks * (block / 2) ||
        (scale->dtype != RN_DTYPE_F32 && scale->dtype != RN_DTYPE_F16) ||
        scale->elements != n * blocks)
        return RN_NO_VALUE;
    if (rn_import_has(c, 3) &&
        (!zero || zero->dtype != RN_DTYPE_U8 || zero->bytes != n * ((blocks + 1) / 2)))
        return RN_NO_VALUE;
    rn_weight_form form = {.name = data->name,
                           .kind = RN_FORM_NBITS,
                           .rows = n,
                           .cols = k,
                           .group = block,
                           .group_count = blocks,
                           .scale_rows = 1,
                           .bits = 4,
                           .symmetric = !zero,
                           .data = data,
                           .scale = scale,
                           .zero = zero};
    form.dtype = !zero && scale->dtype == RN_DTYPE_F16 ? RN_DTYPE_Q4_0 : RN_DTYPE_U4_B32;
    snprintf(name, sizeof name, "%.*s", RN_STR_ARG(data->name));
    rn_value there = rn_graph_find(c->graph, RN_ROLE_WEIGHT, name);
    if (there) // of another node, which must mean the same
        return rn_import_dtype_of(c->import, there) == form.dtype &&
                       rn_shape_equal(rn_import_shape_of(c->import, there), RN_SHAPE(n, k))
                   ? there
                   : RN_NO_VALUE;
    if (keep_form(c->import, &form) != RN_OK) return RN_NO_VALUE;
    return rn_graph_weight(c->graph, name, form.dtype, RN_SHAPE(n, k));
}

// ONNX Runtime's products with weights of 4 or 8 bits, a scale and a zero point a block of K.
static void matmul_nbits(rn_import_call *c) {
    rn_graph *g = c->graph;
    rn_import *m = c->import;
    uint64_t k = (uint64_t)rn_import_int(c, "K", 0), n = (uint64_t)rn_import_int(c, "N", 0),
             block = (uint64_t)rn_import_int(c, "block_size", 32);
    uint32_t bits = (uint32_t)rn_import_int(c, "bits", 4);
    bool known = k && n && block >= 16 && block <= 1 << 16 && k < 1u << 30 && n < 1u << 30 &&
                 (bits == 4 || bits == 8) && !rn_import_has(c, 4);
    rn_value x = rn_import_in(c, 0), bias = rn_import_optional(c, 5);
    rn_value held = known && bits == 4 ? weight_of_nibbles(c, n, k, block) : RN_NO_VALUE;
    rn_dtype dtype = rn_import_dtype_of(m, x);
    if (held && x) {
        rn_matmul_attrs attrs = {.unquantised_activations =
                                     rn_import_int(c, "accuracy_level", 0) != 4};
        rn_value y = rn_op_matmul_as(g, rn_import_cast(m, x, RN_DTYPE_F32), held,
                                     rn_import_cast(m, bias, RN_DTYPE_F32), attrs);
        if (y) rn_import_out(c, 0, rn_import_cast(m, y, dtype));
        return;
    }
    rn_value codes = rn_import_in(c, 1), scales = rn_import_in(c, 2),
             zeros = rn_import_optional(c, 3);
    if (!x || !codes || !scales) return;
    uint64_t blocks = block ? (k + block - 1) / block : 0, all = blocks * block;
    bool fits = known && rn_shape_elements(rn_import_shape_of(m, codes), 1) == n * all * bits / 8 &&
                rn_shape_elements(rn_import_shape_of(m, scales), 1) == n * blocks;
    if (!fits) {
        rn_import_refuse(c, "%u bits in blocks of %llu", bits, (unsigned long long)block);
        return;
    }
    rn_value wide = rn_op_convert(g, unpack_codes(c, codes, bits, n),
                                  (rn_convert_attrs){.dtype = RN_DTYPE_F32});
    wide = rn_import_reshape(m, wide, RN_SHAPE(n, blocks, block));
    rn_value zero = rn_import_scalar(m, RN_DTYPE_F32, bits == 4 ? 8 : 128);
    if (zeros && rn_import_dtype_of(m, zeros) == RN_DTYPE_U8) {
        zeros = unpack_codes(c, zeros, bits, n);
        rn_shape there = rn_import_shape_of(m, zeros);
        if (zeros && there.dims[1] > blocks) zeros = rn_op_slice(g, zeros, 1, 0, blocks);
    }
    if (zeros)
        zero = rn_import_reshape(m, rn_import_cast(m, zeros, RN_DTYPE_F32), RN_SHAPE(n, blocks, 1));
    rn_value scale =
        rn_import_reshape(m, rn_import_cast(m, scales, RN_DTYPE_F32), RN_SHAPE(n, blocks, 1));
    rn_value w =
        rn_import_reshape(m, rn_op_mul(g, rn_op_sub(g, wide, zero), scale), RN_SHAPE(n, all));
    if (w && all > k) w = rn_op_slice(g, w, 1, 0, k);
    rn_value y = rn_op_matmul(g, rn_import_cast(m, x, RN_DTYPE_F32), w,
                              rn_import_cast(m, bias, RN_DTYPE_F32));
    if (y) rn_import_out(c, 0, rn_import_cast(m, y, dtype));
}

const rn_import_op rn_onnx_quantized_ops[] = {
    {"QuantizeLinear", quantize, 0},
    {"DequantizeLinear", dequantize, 0},
    {"DynamicQuantizeLinear", dynamic_quantize, 0},
    {"MatMulInteger", matmul_integer, 0},
    {"ConvInteger", conv_integer, 0},
    {"QLinearMatMul", qlinear_matmul, 0},
    {"QLinearConv", qlinear_conv, 0},
    {"com.microsoft.MatMulNBits", matmul_nbits, 0},
    {NULL, NULL, 0},
};

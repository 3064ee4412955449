// stablehlo_build.c — names, types, numbers and plain operations; stablehlo_sums.c has those with
// regions.
#include "exchange/stablehlo_build.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// ---- text ---------------------------------------------------------------------------------------

void rn_hlo_print(rn_hlo *h, const char *format, ...) {
    char text[2048];
    va_list args;
    if (h->status != RN_OK) return;
    va_start(args, format);
    int bytes = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (bytes < 0 || (size_t)bytes >= sizeof text)
        h->status = rn_fail(RN_INTERNAL, "%s: a line of StableHLO is too long", h->name);
    else
        h->status = rn_sink_write(h->sink, text, (size_t)bytes);
}

void rn_hlo_refuse(rn_hlo *h, const char *format, ...) {
    char text[512];
    va_list args;
    if (h->status != RN_OK) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    h->status = rn_fail(RN_UNSUPPORTED, "%s: %s", h->name, text);
}

const char *rn_hlo_element(rn_dtype dtype) {
    switch (dtype) {
    case RN_DTYPE_F64:
        return "f64";
    case RN_DTYPE_F32:
        return "f32";
    case RN_DTYPE_F16:
        return "f16";
    case RN_DTYPE_BF16:
        return "bf16";
    case RN_DTYPE_I64:
        return "i64";
    case RN_DTYPE_I32:
        return "i32";
    case RN_DTYPE_I16:
        return "i16";
    case RN_DTYPE_I8:
        return "i8";
    case RN_DTYPE_U64:
        return "ui64";
    case RN_DTYPE_U32:
        return "ui32";
    case RN_DTYPE_U16:
        return "ui16";
    case RN_DTYPE_U8:
        return "ui8";
    case RN_DTYPE_BOOL:
        return "i1";
    default:
        return NULL;
    }
}

rn_hlo_text rn_hlo_type(rn_dtype dtype, rn_shape shape) {
    rn_hlo_text out;
    size_t at = (size_t)snprintf(out.text, sizeof out.text, "tensor<");
    for (uint32_t i = 0; i < shape.rank; i++)
        at += (size_t)snprintf(out.text + at, sizeof out.text - at, "%llux",
                               (unsigned long long)shape.dims[i]);
    snprintf(out.text + at, sizeof out.text - at, "%s>", rn_hlo_element(dtype));
    return out;
}

static rn_hlo_text type_of(rn_hlo_value value) {
    return rn_hlo_type(value.dtype, value.shape);
}

rn_hlo_text rn_hlo_name(rn_hlo_value value) {
    rn_hlo_text out;
    if (value.part)
        snprintf(out.text, sizeof out.text, "%%v%u#%u", value.id, value.part - 1);
    else
        snprintf(out.text, sizeof out.text, "%%v%u", value.id);
    return out;
}

static rn_hlo_text list(const char *open, const uint64_t *numbers, uint32_t count,
                        const char *close) {
    rn_hlo_text out;
    size_t at = (size_t)snprintf(out.text, sizeof out.text, "%s", open);
    for (uint32_t i = 0; i < count; i++)
        at += (size_t)snprintf(out.text + at, sizeof out.text - at, "%s%llu", i ? ", " : "",
                               (unsigned long long)numbers[i]);
    snprintf(out.text + at, sizeof out.text - at, "%s", close);
    return out;
}

rn_hlo_text rn_hlo_numbers(const uint64_t *numbers, uint32_t count) {
    return list("[", numbers, count, "]");
}

rn_hlo_text rn_hlo_array(const uint64_t *numbers, uint32_t count) {
    return list(count ? "array<i64: " : "array<i64", numbers, count, ">");
}

// ---- any operation ------------------------------------------------------------------------------

rn_hlo_value rn_hlo_new(rn_hlo *h, rn_dtype dtype, rn_shape shape) {
    if (!rn_hlo_element(dtype)) rn_hlo_refuse(h, "StableHLO has no %s", rn_dtype_get(dtype)->name);
    return (rn_hlo_value){.id = ++h->last_id, .dtype = dtype, .shape = shape};
}

rn_hlo_value rn_hlo_op(rn_hlo *h, const char *name, const rn_hlo_value *operands, uint32_t count,
                       const char *regions, const char *attributes, rn_dtype dtype,
                       rn_shape shape) {
    rn_hlo_value out = rn_hlo_new(h, dtype, shape);
    if (h->status != RN_OK) return out;
    rn_hlo_print(h, "%*s%s = \"%s\"(", (int)(4 + 2 * h->depth), "", rn_hlo_name(out).text, name);
    for (uint32_t i = 0; i < count; i++)
        rn_hlo_print(h, "%s%s", i ? ", " : "", rn_hlo_name(operands[i]).text);
    rn_hlo_print(h, ")%s%s", regions ? " " : "", regions ? regions : "");
    if (attributes) rn_hlo_print(h, " {%s}", attributes);
    rn_hlo_print(h, " : (");
    for (uint32_t i = 0; i < count; i++)
        rn_hlo_print(h, "%s%s", i ? ", " : "", type_of(operands[i]).text);
    rn_hlo_print(h, ") -> %s\n", type_of(out).text);
    return out;
}

// ---- numbers ------------------------------------------------------------------------------------

static rn_hlo_value constant(rn_hlo *h, rn_dtype dtype, rn_shape shape, const char *number) {
    char attributes[400];
    if (!rn_hlo_element(dtype)) return rn_hlo_new(h, dtype, shape); // which refuses
    snprintf(attributes, sizeof attributes, "value = dense<%s> : %s", number,
             rn_hlo_type(dtype, shape).text);
    return rn_hlo_op(h, "stablehlo.constant", NULL, 0, NULL, attributes, dtype, shape);
}

// By their bits, so that no digit is lost, and infinity and NaN have a spelling.
rn_hlo_value rn_hlo_float(rn_hlo *h, rn_dtype dtype, double number, rn_shape shape) {
    char text[32];
    float narrow = (float)number;
    uint64_t wide = 0;
    uint32_t bits = 0;
    uint16_t half = 0;
    if (dtype == RN_DTYPE_F64) {
        memcpy(&wide, &number, sizeof wide);
        snprintf(text, sizeof text, "0x%016llX", (unsigned long long)wide);
    } else if (dtype == RN_DTYPE_F32) {
        memcpy(&bits, &narrow, sizeof bits);
        snprintf(text, sizeof text, "0x%08X", bits);
    } else {
        rn_status s = rn_dtype_from_f32(dtype, &narrow, &half, 1);
        if (s != RN_OK && h->status == RN_OK) h->status = s;
        snprintf(text, sizeof text, "0x%04X", half);
    }
    return constant(h, dtype, shape, text);
}

rn_hlo_value rn_hlo_whole(rn_hlo *h, rn_dtype dtype, int64_t number, rn_shape shape) {
    char text[32];
    if (dtype == RN_DTYPE_BOOL)
        snprintf(text, sizeof text, "%s", number ? "true" : "false");
    else if (dtype == RN_DTYPE_U64)
        snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    else
        snprintf(text, sizeof text, "%lld", (long long)number);
    return constant(h, dtype, shape, text);
}

rn_hlo_value rn_hlo_like(rn_hlo *h, rn_hlo_value x, double number) {
    if (rn_dtype_get(x.dtype)->is_float) return rn_hlo_float(h, x.dtype, number, x.shape);
    return rn_hlo_whole(h, x.dtype, (int64_t)number, x.shape);
}

rn_hlo_value rn_hlo_bytes(rn_hlo *h, rn_dtype dtype, rn_shape shape, const void *data) {
    static const char digits[] = "0123456789ABCDEF";
    // Bits of i1 would be packed: a byte each, then.
    rn_dtype held = dtype == RN_DTYPE_BOOL ? RN_DTYPE_U8 : dtype;
    rn_hlo_value out = rn_hlo_new(h, held, shape);
    uint64_t bytes = 0;
    const uint8_t *from = data;
    if (h->status != RN_OK) return out;
    if (!rn_dtype_bytes(held, rn_shape_elements(shape, 0), &bytes))
        h->status = rn_fail(RN_INTERNAL, "a constant that is larger than memory");
    rn_hlo_print(h, "%*s%s = \"stablehlo.constant\"() {value = dense<%s", (int)(4 + 2 * h->depth),
                 "", rn_hlo_name(out).text, bytes ? "\"0x" : "");
    for (uint64_t i = 0; i < bytes;) {
        char text[512];
        size_t at = 0;
        for (; i < bytes && at < sizeof text - 2; i++) {
            text[at++] = digits[from[i] >> 4];
            text[at++] = digits[from[i] & 15];
        }
        if (h->status == RN_OK) h->status = rn_sink_write(h->sink, text, at);
    }
    rn_hlo_text type = type_of(out);
    rn_hlo_print(h, "%s> : %s} : () -> %s\n", bytes ? "\"" : "", type.text, type.text);
    return rn_hlo_convert(h, out, dtype);
}

rn_hlo_value rn_hlo_iota(rn_hlo *h, rn_dtype dtype, rn_shape shape, uint32_t axis) {
    char attributes[64];
    snprintf(attributes, sizeof attributes, "iota_dimension = %u : i64", axis);
    return rn_hlo_op(h, "stablehlo.iota", NULL, 0, NULL, attributes, dtype, shape);
}

// ---- element by element -------------------------------------------------------------------------

static const char *full_name(const char *name, char *out, size_t bytes) {
    snprintf(out, bytes, strchr(name, '.') ? "%s" : "stablehlo.%s", name);
    return out;
}

rn_hlo_value rn_hlo_unary(rn_hlo *h, const char *name, rn_hlo_value x) {
    char full[64];
    return rn_hlo_op(h, full_name(name, full, sizeof full), &x, 1, NULL, NULL, x.dtype, x.shape);
}

rn_hlo_value rn_hlo_binary(rn_hlo *h, const char *name, rn_hlo_value a, rn_hlo_value b) {
    char full[64];
    return rn_hlo_op(h, full_name(name, full, sizeof full), (rn_hlo_value[]){a, b}, 2, NULL, NULL,
                     a.dtype, a.shape);
}

rn_hlo_value rn_hlo_compare(rn_hlo *h, const char *how, rn_hlo_value a, rn_hlo_value b) {
    char attributes[160];
    const char *type = "SIGNED", *element = rn_hlo_element(a.dtype);
    if (rn_dtype_get(a.dtype)->is_float)
        type = "FLOAT";
    else if (a.dtype == RN_DTYPE_BOOL || (element && element[0] == 'u'))
        type = "UNSIGNED";
    snprintf(attributes, sizeof attributes,
             "comparison_direction = #stablehlo<comparison_direction %s>, "
             "compare_type = #stablehlo<comparison_type %s>",
             how, type);
    return rn_hlo_op(h, "stablehlo.compare", (rn_hlo_value[]){a, b}, 2, NULL, attributes,
                     RN_DTYPE_BOOL, a.shape);
}

rn_hlo_value rn_hlo_select(rn_hlo *h, rn_hlo_value which, rn_hlo_value yes, rn_hlo_value no) {
    return rn_hlo_op(h, "stablehlo.select", (rn_hlo_value[]){which, yes, no}, 3, NULL, NULL,
                     yes.dtype, yes.shape);
}

rn_hlo_value rn_hlo_convert(rn_hlo *h, rn_hlo_value x, rn_dtype dtype) {
    if (x.dtype == dtype) return x;
    return rn_hlo_op(h, "stablehlo.convert", &x, 1, NULL, NULL, dtype, x.shape);
}

rn_hlo_value rn_hlo_widen(rn_hlo *h, rn_hlo_value x) {
    bool narrow = x.dtype == RN_DTYPE_F16 || x.dtype == RN_DTYPE_BF16;
    return narrow ? rn_hlo_convert(h, x, RN_DTYPE_F32) : x;
}

// ---- moving -------------------------------------------------------------------------------------

rn_hlo_value rn_hlo_reshape(rn_hlo *h, rn_hlo_value x, rn_shape shape) {
    if (rn_shape_equal(x.shape, shape)) return x;
    return rn_hlo_op(h, "stablehlo.reshape", &x, 1, NULL, NULL, x.dtype, shape);
}

rn_hlo_value rn_hlo_broadcast(rn_hlo *h, rn_hlo_value x, rn_shape shape, const uint64_t *axes) {
    char attributes[300];
    if (rn_shape_equal(x.shape, shape)) return x;
    snprintf(attributes, sizeof attributes, "broadcast_dimensions = %s",
             rn_hlo_array(axes, x.shape.rank).text);
    return rn_hlo_op(h, "stablehlo.broadcast_in_dim", &x, 1, NULL, attributes, x.dtype, shape);
}

rn_hlo_value rn_hlo_expand(rn_hlo *h, rn_hlo_value x, rn_shape shape) {
    uint64_t axes[RN_MAX_RANK];
    for (uint32_t i = 0; i < x.shape.rank; i++)
        axes[i] = shape.rank - x.shape.rank + i;
    return rn_hlo_broadcast(h, x, shape, axes);
}

rn_hlo_value rn_hlo_transpose(rn_hlo *h, rn_hlo_value x, const uint64_t *axes) {
    char attributes[300];
    rn_shape shape = {.rank = x.shape.rank};
    for (uint32_t i = 0; i < shape.rank; i++)
        shape.dims[i] = x.shape.dims[axes[i]];
    snprintf(attributes, sizeof attributes, "permutation = %s",
             rn_hlo_array(axes, shape.rank).text);
    return rn_hlo_op(h, "stablehlo.transpose", &x, 1, NULL, attributes, x.dtype, shape);
}

rn_hlo_value rn_hlo_slice(rn_hlo *h, rn_hlo_value x, uint32_t axis, uint64_t start,
                          uint64_t count) {
    char attributes[800];
    uint64_t first[RN_MAX_RANK] = {0}, end[RN_MAX_RANK], step[RN_MAX_RANK];
    rn_shape shape = x.shape;
    for (uint32_t i = 0; i < shape.rank; i++) {
        end[i] = shape.dims[i];
        step[i] = 1;
    }
    first[axis] = start;
    end[axis] = start + count;
    shape.dims[axis] = count;
    snprintf(attributes, sizeof attributes, "start_indices = %s, limit_indices = %s, strides = %s",
             rn_hlo_array(first, shape.rank).text, rn_hlo_array(end, shape.rank).text,
             rn_hlo_array(step, shape.rank).text);
    return rn_hlo_op(h, "stablehlo.slice", &x, 1, NULL, attributes, x.dtype, shape);
}

rn_hlo_value rn_hlo_concat(rn_hlo *h, const rn_hlo_value *parts, uint32_t count, uint32_t axis) {
    char attributes[64];
    rn_shape shape = parts[0].shape;
    for (uint32_t i = 1; i < count; i++)
        shape.dims[axis] += parts[i].shape.dims[axis];
    snprintf(attributes, sizeof attributes, "dimension = %u : i64", axis);
    return rn_hlo_op(h, "stablehlo.concatenate", parts, count, NULL, attributes, parts[0].dtype,
                     shape);
}

rn_hlo_value rn_hlo_take(rn_hlo *h, rn_hlo_value x, rn_hlo_value ids, uint32_t axis) {
    char attributes[1000];
    rn_shape shape = {0};
    uint64_t offsets[RN_MAX_RANK], sizes[RN_MAX_RANK];
    uint32_t kept = 0;
    if (x.shape.rank - 1 + ids.shape.rank > RN_MAX_RANK) {
        rn_hlo_refuse(h, "a result of too many axes");
        return x;
    }
    for (uint32_t i = 0; i < x.shape.rank; i++) {
        sizes[i] = i == axis ? 1 : x.shape.dims[i];
        for (uint32_t j = 0; i == axis && j < ids.shape.rank; j++)
            shape.dims[shape.rank++] = ids.shape.dims[j];
        if (i == axis) continue;
        offsets[kept++] = shape.rank;
        shape.dims[shape.rank++] = x.shape.dims[i];
    }
    snprintf(attributes, sizeof attributes,
             "dimension_numbers = #stablehlo.gather<offset_dims = %s, collapsed_slice_dims = [%u], "
             "start_index_map = [%u], index_vector_dim = %u>, indices_are_sorted = false, "
             "slice_sizes = %s",
             rn_hlo_numbers(offsets, kept).text, axis, axis, ids.shape.rank,
             rn_hlo_array(sizes, x.shape.rank).text);
    return rn_hlo_op(h, "stablehlo.gather", (rn_hlo_value[]){x, ids}, 2, NULL, attributes, x.dtype,
                     shape);
}

rn_hlo_value rn_hlo_reverse(rn_hlo *h, rn_hlo_value x, uint32_t axis) {
    char attributes[64];
    snprintf(attributes, sizeof attributes, "dimensions = array<i64: %u>", axis);
    return rn_hlo_op(h, "stablehlo.reverse", &x, 1, NULL, attributes, x.dtype, x.shape);
}

// Operands of a dynamic slice: `index` along axis 0, 0 along the others.
static uint32_t add_starts(rn_hlo *h, rn_hlo_value *operands, uint32_t count, rn_hlo_value index,
                           uint32_t rank) {
    rn_hlo_value zero = {0};
    if (rank > 1) zero = rn_hlo_whole(h, index.dtype, 0, RN_SCALAR);
    for (uint32_t i = 0; i < rank; i++)
        operands[count++] = i ? zero : index;
    return count;
}

rn_hlo_value rn_hlo_pick(rn_hlo *h, rn_hlo_value x, rn_hlo_value index) {
    char attributes[300];
    rn_hlo_value operands[RN_MAX_RANK + 1] = {x};
    rn_shape shape = x.shape;
    shape.dims[0] = 1;
    uint32_t count = add_starts(h, operands, 1, index, shape.rank);
    snprintf(attributes, sizeof attributes, "slice_sizes = %s",
             rn_hlo_array(shape.dims, shape.rank).text);
    return rn_hlo_op(h, "stablehlo.dynamic_slice", operands, count, NULL, attributes, x.dtype,
                     shape);
}

rn_hlo_value rn_hlo_place(rn_hlo *h, rn_hlo_value x, rn_hlo_value update, rn_hlo_value index) {
    rn_hlo_value operands[RN_MAX_RANK + 2] = {x, update};
    uint32_t count = add_starts(h, operands, 2, index, x.shape.rank);
    return rn_hlo_op(h, "stablehlo.dynamic_update_slice", operands, count, NULL, NULL, x.dtype,
                     x.shape);
}

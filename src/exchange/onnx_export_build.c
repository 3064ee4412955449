// onnx_export_build.c — protobuf, nodes, numbers and what most ops are made of.
#include "exchange/onnx_export_build.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// ---- protobuf -----------------------------------------------------------------------------------

static void append(rn_export *h, rn_buffer *to, const void *data, size_t bytes) {
    if (h->status == RN_OK && bytes) h->status = rn_buffer_append(to, data, bytes);
}

static void append_number(rn_export *h, rn_buffer *to, uint64_t value) {
    uint8_t text[10];
    size_t count = 0;
    do {
        text[count] = (uint8_t)((value & 127) | (value > 127 ? 128 : 0));
        value >>= 7;
        count++;
    } while (value);
    append(h, to, text, count);
}

void rn_export_varint(rn_export *h, rn_buffer *to, uint32_t field, uint64_t value) {
    append_number(h, to, (uint64_t)field << 3);
    append_number(h, to, value);
}

void rn_export_bytes(rn_export *h, rn_buffer *to, uint32_t field, const void *data, size_t bytes) {
    append_number(h, to, (uint64_t)field << 3 | 2);
    append_number(h, to, bytes);
    append(h, to, data, bytes);
}

void rn_export_string(rn_export *h, rn_buffer *to, uint32_t field, const char *text) {
    rn_export_bytes(h, to, field, text, strlen(text));
}

// ---- nodes --------------------------------------------------------------------------------------

void rn_export_refuse(rn_export *h, const char *format, ...) {
    char text[400];
    va_list args;
    if (h->status != RN_OK) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    h->status = rn_fail(RN_UNSUPPORTED, "%s: %s", h->name, text);
}

rn_export_value rn_export_new(rn_export *h, rn_dtype dtype, rn_shape shape) {
    if (!rn_onnx_data_type(dtype)) rn_export_refuse(h, "ONNX has no %s", rn_dtype_get(dtype)->name);
    return (rn_export_value){.id = ++h->last_id, .dtype = dtype, .shape = shape};
}

const char *rn_export_name_of(const rn_export *h, uint32_t id, rn_export_name_text *room) {
    if (id == 0) return "";
    if (id < h->name_count && h->names[id]) return h->names[id];
    snprintf(room->text, sizeof room->text, "#%u", id);
    return room->text;
}

// AttributeProto: 1 name, 2 f, 3 i, 4 s, 8 ints, 20 type.
static void write_attribute(rn_export *h, const rn_export_attr *attr) {
    enum { FLOAT = 1, INT = 2, STRING = 3, INTS = 7 };
    rn_buffer *to = &h->inner;
    to->bytes = 0;
    rn_export_string(h, to, 1, attr->name);
    if (attr->text) {
        rn_export_string(h, to, 4, attr->text);
    } else if (attr->ints) {
        for (uint32_t i = 0; i < attr->count; i++)
            rn_export_varint(h, to, 8, (uint64_t)attr->ints[i]);
    } else if (attr->is_float) {
        append_number(h, to, 2 << 3 | 5);
        append(h, to, &attr->number, sizeof attr->number);
    } else {
        rn_export_varint(h, to, 3, (uint64_t)attr->whole);
    }
    int type = attr->text ? STRING : attr->ints ? INTS : attr->is_float ? FLOAT : INT;
    rn_export_varint(h, to, 20, (uint64_t)type);
    rn_export_bytes(h, &h->node, 5, to->data, to->bytes);
}

// NodeProto: 1 input, 2 output, 3 name, 4 op_type, 5 attribute. Its name tells a reader (and an
// error of a runtime) which of the graph's nodes it belongs to; the number makes it unique.
void rn_export_write(rn_export *h, const char *op, const rn_export_value *in, uint32_t in_count,
                     const rn_export_attr *attrs, uint32_t attr_count, const rn_export_value *out,
                     uint32_t out_count) {
    rn_export_name_text room;
    char name[400];
    while (in_count && in[in_count - 1].id == 0)
        in_count--;
    h->node.bytes = 0;
    for (uint32_t i = 0; i < in_count; i++)
        rn_export_string(h, &h->node, 1, rn_export_name_of(h, in[i].id, &room));
    for (uint32_t i = 0; i < out_count; i++)
        rn_export_string(h, &h->node, 2, rn_export_name_of(h, out[i].id, &room));
    snprintf(name, sizeof name, "%.380s#%u", h->name, h->last_id);
    rn_export_string(h, &h->node, 3, name);
    rn_export_string(h, &h->node, 4, op);
    for (uint32_t i = 0; i < attr_count; i++)
        write_attribute(h, &attrs[i]);
    rn_export_bytes(h, &h->graph, 1, h->node.data, h->node.bytes);
}

void rn_export_write_named(rn_export *h, const char *op, const char *const *in, uint32_t in_count,
                           const rn_export_attr *attr, rn_export_value out) {
    rn_export_name_text room;
    h->node.bytes = 0;
    for (uint32_t i = 0; i < in_count; i++)
        rn_export_string(h, &h->node, 1, in[i]);
    rn_export_string(h, &h->node, 2, rn_export_name_of(h, out.id, &room));
    rn_export_string(h, &h->node, 3, rn_export_name_of(h, out.id, &room));
    rn_export_string(h, &h->node, 4, op);
    write_attribute(h, attr);
    rn_export_bytes(h, &h->graph, 1, h->node.data, h->node.bytes);
}

rn_export_value rn_export_node(rn_export *h, const char *op, const rn_export_value *in,
                               uint32_t in_count, const rn_export_attr *attrs, uint32_t attr_count,
                               rn_dtype dtype, rn_shape shape) {
    rn_export_value out = rn_export_new(h, dtype, shape);
    rn_export_write(h, op, in, in_count, attrs, attr_count, &out, 1);
    return out;
}

// ---- numbers ------------------------------------------------------------------------------------

// TensorProto: 1 dims, 2 data_type, 8 name, 9 raw_data.
rn_export_value rn_export_data(rn_export *h, rn_dtype dtype, rn_shape shape, const void *data) {
    rn_export_value out = rn_export_new(h, dtype, shape);
    rn_export_name_text room;
    uint64_t bytes = 0;
    rn_buffer *to = &h->node;
    if (h->status != RN_OK) return out;
    if (!rn_dtype_bytes(dtype, rn_shape_elements(shape, 0), &bytes))
        h->status = rn_fail(RN_INTERNAL, "a constant that is larger than memory");
    to->bytes = 0;
    for (uint32_t i = 0; i < shape.rank; i++)
        rn_export_varint(h, to, 1, shape.dims[i]);
    rn_export_varint(h, to, 2, (uint64_t)rn_onnx_data_type(dtype));
    rn_export_string(h, to, 8, rn_export_name_of(h, out.id, &room));
    rn_export_bytes(h, to, 9, data, bytes);
    rn_export_bytes(h, &h->graph, 5, to->data, to->bytes);
    return out;
}

rn_export_value rn_export_ints(rn_export *h, const int64_t *items, uint32_t count) {
    return rn_export_data(h, RN_DTYPE_I64, RN_SHAPE(count), items);
}

rn_export_value rn_export_int(rn_export *h, int64_t number) {
    return rn_export_ints(h, &number, 1);
}

rn_export_value rn_export_scalar(rn_export *h, rn_dtype dtype, double number) {
    uint64_t room = 0;
    if (rn_dtype_get(dtype)->is_float && dtype != RN_DTYPE_F64) {
        float narrow = (float)number;
        rn_status s = rn_dtype_from_f32(dtype, &narrow, &room, 1);
        if (s != RN_OK && h->status == RN_OK) h->status = s;
    } else if (dtype == RN_DTYPE_F64) {
        memcpy(&room, &number, sizeof room);
    } else { // little-endian: the low bytes come first
        room = number < 0 ? (uint64_t)(int64_t)number : (uint64_t)number;
    }
    return rn_export_data(h, dtype, RN_SCALAR, &room);
}

rn_export_value rn_export_size(rn_export *h, rn_export_value x, uint32_t axis) {
    rn_export_attr attrs[] = {RN_EXPORT_INT("start", axis), RN_EXPORT_INT("end", axis + 1)};
    return rn_export_node(h, "Shape", &x, 1, attrs, 2, RN_DTYPE_I64, RN_SHAPE(1));
}

rn_export_value rn_export_range(rn_export *h, rn_export_value count) {
    rn_export_value end = rn_export_reshape(h, count, RN_SCALAR);
    rn_export_value in[] = {rn_export_scalar(h, RN_DTYPE_I64, 0), end,
                            rn_export_scalar(h, RN_DTYPE_I64, 1)};
    return rn_export_node(h, "Range", in, 3, NULL, 0, RN_DTYPE_I64, RN_SHAPE(RN_ROWS));
}

// ---- element by element -------------------------------------------------------------------------

// NumPy's rule; a size that is not known fits every other.
static rn_shape join(rn_shape a, rn_shape b) {
    rn_shape out = a.rank < b.rank ? b : a, less = a.rank < b.rank ? a : b;
    for (uint32_t i = 0; i < less.rank; i++) {
        uint64_t *dim = &out.dims[out.rank - less.rank + i];
        if (*dim == 1 || less.dims[i] == RN_ROWS) *dim = less.dims[i];
    }
    return out;
}

rn_export_value rn_export_unary(rn_export *h, const char *op, rn_export_value x) {
    return rn_export_node(h, op, &x, 1, NULL, 0, x.dtype, x.shape);
}

rn_export_value rn_export_binary(rn_export *h, const char *op, rn_export_value a,
                                 rn_export_value b) {
    return rn_export_node(h, op, (rn_export_value[]){a, b}, 2, NULL, 0, a.dtype,
                          join(a.shape, b.shape));
}

rn_export_value rn_export_with(rn_export *h, const char *op, rn_export_value x, double number) {
    return rn_export_binary(h, op, x, rn_export_scalar(h, x.dtype, number));
}

rn_export_value rn_export_compare(rn_export *h, const char *op, rn_export_value a,
                                  rn_export_value b) {
    rn_export_value out = rn_export_binary(h, op, a, b);
    out.dtype = RN_DTYPE_BOOL;
    return out;
}

rn_export_value rn_export_where(rn_export *h, rn_export_value which, rn_export_value yes,
                                rn_export_value no) {
    rn_shape shape = join(which.shape, join(yes.shape, no.shape));
    return rn_export_node(h, "Where", (rn_export_value[]){which, yes, no}, 3, NULL, 0, yes.dtype,
                          shape);
}

rn_export_value rn_export_cast(rn_export *h, rn_export_value x, rn_dtype dtype) {
    if (x.dtype == dtype) return x;
    rn_export_attr to = RN_EXPORT_INT("to", rn_onnx_data_type(dtype));
    return rn_export_node(h, "Cast", &x, 1, &to, 1, dtype, x.shape);
}

rn_export_value rn_export_widen(rn_export *h, rn_export_value x) {
    bool narrow = x.dtype == RN_DTYPE_F16 || x.dtype == RN_DTYPE_BF16;
    return narrow ? rn_export_cast(h, x, RN_DTYPE_F32) : x;
}

// ---- moving -------------------------------------------------------------------------------------

rn_export_value rn_export_reshape(rn_export *h, rn_export_value x, rn_shape shape) {
    int64_t dims[RN_MAX_RANK];
    if (rn_shape_equal(x.shape, shape)) return x;
    for (uint32_t i = 0; i < shape.rank; i++)
        dims[i] = shape.dims[i] == RN_ROWS ? -1 : (int64_t)shape.dims[i];
    return rn_export_node(h, "Reshape", (rn_export_value[]){x, rn_export_ints(h, dims, shape.rank)},
                          2, NULL, 0, x.dtype, shape);
}

rn_export_value rn_export_transpose(rn_export *h, rn_export_value x, const uint8_t *axes) {
    int64_t order[RN_MAX_RANK];
    rn_shape shape = {.rank = x.shape.rank};
    for (uint32_t i = 0; i < shape.rank; i++) {
        order[i] = axes[i];
        shape.dims[i] = x.shape.dims[axes[i]];
    }
    rn_export_attr perm = RN_EXPORT_INTS("perm", order, shape.rank);
    return rn_export_node(h, "Transpose", &x, 1, &perm, 1, x.dtype, shape);
}

rn_export_value rn_export_slice(rn_export *h, rn_export_value x, uint32_t axis, uint64_t start,
                                uint64_t count) {
    rn_export_value in[] = {x, rn_export_int(h, (int64_t)start),
                            rn_export_int(h, (int64_t)(start + count)), rn_export_int(h, axis)};
    rn_shape shape = x.shape;
    shape.dims[axis] = count;
    return rn_export_node(h, "Slice", in, 4, NULL, 0, x.dtype, shape);
}

rn_export_value rn_export_concat(rn_export *h, const rn_export_value *parts, uint32_t count,
                                 uint32_t axis) {
    rn_shape shape = parts[0].shape;
    for (uint32_t i = 1; i < count; i++)
        shape.dims[axis] += parts[i].shape.dims[axis];
    rn_export_attr at = RN_EXPORT_INT("axis", axis);
    return rn_export_node(h, "Concat", parts, count, &at, 1, parts[0].dtype, shape);
}

rn_export_value rn_export_gather(rn_export *h, rn_export_value x, rn_export_value ids,
                                 uint32_t axis) {
    rn_shape shape = {0};
    rn_export_attr at = RN_EXPORT_INT("axis", axis);
    if (x.shape.rank - 1 + ids.shape.rank > RN_MAX_RANK) {
        rn_export_refuse(h, "a result of too many axes");
        return x;
    }
    for (uint32_t i = 0; i < x.shape.rank; i++) {
        for (uint32_t j = 0; i == axis && j < ids.shape.rank; j++)
            shape.dims[shape.rank++] = ids.shape.dims[j];
        if (i != axis) shape.dims[shape.rank++] = x.shape.dims[i];
    }
    return rn_export_node(h, "Gather", (rn_export_value[]){x, ids}, 2, &at, 1, x.dtype, shape);
}

rn_export_value rn_export_reduce(rn_export *h, const char *op, rn_export_value x, uint32_t axes,
                                 bool keep) {
    int64_t list[RN_MAX_RANK];
    uint32_t count = 0;
    rn_shape shape = {0};
    rn_export_attr keepdims = RN_EXPORT_INT("keepdims", keep);
    for (uint32_t i = 0; i < x.shape.rank; i++) {
        bool away = axes >> i & 1;
        if (away) list[count++] = i;
        if (!away || keep) shape.dims[shape.rank++] = away ? 1 : x.shape.dims[i];
    }
    if (count == 0) { // no axes would mean all of them
        rn_export_attr nothing[] = {keepdims, RN_EXPORT_INT("noop_with_empty_axes", 1)};
        return rn_export_node(h, op, &x, 1, nothing, 2, x.dtype, shape);
    }
    return rn_export_node(h, op, (rn_export_value[]){x, rn_export_ints(h, list, count)}, 2,
                          &keepdims, 1, x.dtype, shape);
}

rn_export_value rn_export_to_channels_first(rn_export *h, rn_export_value x) {
    uint8_t axes[RN_MAX_RANK] = {0};
    uint32_t rank = x.shape.rank;
    for (uint32_t i = 1; i < rank; i++)
        axes[i] = (uint8_t)(i == 1 ? rank - 1 : i - 1);
    return rn_export_transpose(h, x, axes);
}

rn_export_value rn_export_to_channels_last(rn_export *h, rn_export_value x) {
    uint8_t axes[RN_MAX_RANK] = {0};
    uint32_t rank = x.shape.rank;
    for (uint32_t i = 1; i < rank; i++)
        axes[i] = (uint8_t)(i == rank - 1 ? 1 : i + 1);
    return rn_export_transpose(h, x, axes);
}

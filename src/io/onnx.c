// onnx.c — ModelProto and what is in it, message by message. Every repeated field is counted before
// its array is taken, so what a file can make us hold is a small multiple of its own bytes.
#include "io/onnx.h"

#include "base/checked.h"
#include "base/str.h"
#include "io/protobuf.h"
#include "memory/account.h"

#include <string.h>

enum { MAX_DEPTH = 12, MAX_RANK = 32, MAX_ITEMS = 1 << 24 };

typedef struct parser {
    rn_arena *memory;
    uint32_t depth; // of graphs inside of attributes
} parser;

// How often a field is there. A packed field of numbers counts by its elements.
static rn_status count_field(rn_protobuf message, uint32_t number, size_t *out) {
    rn_protobuf_field field;
    for (*out = 0;;) {
        RN_TRY(rn_protobuf_next(&message, &field));
        if (field.number == 0) break;
        *out += field.number == number;
    }
    if (*out <= MAX_ITEMS) return RN_OK;
    return rn_fail(RN_CORRUPT, "field %u is there %zu times, more than %d are refused", number,
                   *out, MAX_ITEMS);
}

static rn_status take_array(parser *p, rn_protobuf message, uint32_t number, size_t item_bytes,
                            void *out_items) {
    size_t count = 0;
    void *items = NULL;
    RN_TRY(count_field(message, number, &count));
    RN_TRY(rn_arena_array(p->memory, count, item_bytes, &items));
    memcpy(out_items, &items, sizeof items);
    return RN_OK;
}

static rn_status take_int(const rn_protobuf_field *field, int64_t *out) {
    uint64_t value = 0;
    RN_TRY(rn_protobuf_uint(field, &value));
    *out = (int64_t)value;
    return RN_OK;
}

static rn_status take_u32(const rn_protobuf_field *field, uint32_t *out) {
    uint64_t value = 0;
    RN_TRY(rn_protobuf_uint(field, &value));
    *out = value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
    return RN_OK;
}

// A name is printed and becomes one of the graph's: no controls, nothing that is not UTF-8.
static rn_status read_name(const rn_protobuf_field *field, rn_str *out) {
    RN_TRY(rn_protobuf_bytes(field, out));
    bool printable = rn_utf8_valid(*out);
    for (size_t i = 0; printable && i < out->bytes; i++)
        printable = (unsigned char)out->data[i] >= ' ' && out->data[i] != 0x7f;
    return printable ? RN_OK
                     : rn_fail(RN_CORRUPT, "a name with bytes that are no text (field %u)",
                               field->number);
}

// ---- numbers, packed or one by one --------------------------------------------------------------

// Calls of next_number give the numbers of one field of a message in their order.
typedef struct number_reader {
    rn_protobuf message;
    uint32_t number;
    rn_protobuf_wire wire; // of one element
    const char *at, *end;  // within a packed field
} number_reader;

static number_reader read_numbers(rn_protobuf message, uint32_t number, rn_protobuf_wire wire) {
    return (number_reader){.message = message, .number = number, .wire = wire};
}

static size_t wire_bytes(rn_protobuf_wire wire) {
    return wire == RN_PROTOBUF_FIXED32 ? 4 : 8;
}

static rn_status next_packed(number_reader *r, uint64_t *out) {
    *out = 0;
    if (r->wire != RN_PROTOBUF_VARINT) {
        size_t bytes = wire_bytes(r->wire);
        if ((size_t)(r->end - r->at) < bytes)
            return rn_fail(RN_CORRUPT, "field %u is not whole numbers", r->number);
        memcpy(out, r->at, bytes);
        r->at += bytes;
        return RN_OK;
    }
    for (int shift = 0; r->at < r->end && shift < 70; shift += 7) {
        uint8_t byte = (uint8_t)*r->at++;
        if (shift < 64) *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return RN_OK;
    }
    return rn_fail(RN_CORRUPT, "a number of field %u is cut short", r->number);
}

// False, with RN_OK, at the end.
static rn_status next_number(number_reader *r, uint64_t *out, bool *out_more) {
    rn_protobuf_field field;
    *out_more = true;
    while (r->at == r->end) {
        RN_TRY(rn_protobuf_next(&r->message, &field));
        *out_more = field.number != 0;
        if (!*out_more) return RN_OK;
        if (field.number != r->number) continue;
        if (field.wire == r->wire) {
            *out = field.value;
            return RN_OK;
        }
        rn_str bytes = {0};
        RN_TRY(rn_protobuf_bytes(&field, &bytes));
        r->at = bytes.data;
        r->end = bytes.data + bytes.bytes;
    }
    return next_packed(r, out);
}

static rn_status count_numbers(number_reader r, size_t *out) {
    uint64_t value;
    bool more = true;
    for (*out = 0;; ++*out) {
        RN_TRY(next_number(&r, &value, &more));
        if (!more) break;
    }
    if (*out <= MAX_ITEMS) return RN_OK;
    return rn_fail(RN_CORRUPT, "field %u has %zu numbers, more than %d are refused", r.number, *out,
                   MAX_ITEMS);
}

static rn_status take_ints(parser *p, number_reader r, const int64_t **out, size_t *out_count) {
    void *items = NULL;
    bool more = true;
    RN_TRY(count_numbers(r, out_count));
    RN_TRY(rn_arena_array(p->memory, *out_count, sizeof(int64_t), &items));
    for (size_t i = 0; i < *out_count; i++) {
        uint64_t value = 0;
        RN_TRY(next_number(&r, &value, &more));
        ((int64_t *)items)[i] = (int64_t)value;
    }
    *out = items;
    return RN_OK;
}

static rn_status take_floats(parser *p, number_reader r, const float **out, size_t *out_count) {
    void *items = NULL;
    bool more = true;
    RN_TRY(count_numbers(r, out_count));
    RN_TRY(rn_arena_array(p->memory, *out_count, sizeof(float), &items));
    for (size_t i = 0; i < *out_count; i++) {
        uint64_t value = 0;
        RN_TRY(next_number(&r, &value, &more));
        uint32_t bits = (uint32_t)value;
        memcpy((float *)items + i, &bits, 4);
    }
    *out = items;
    return RN_OK;
}

// ---- element types ------------------------------------------------------------------------------

static const struct data_type {
    const char *name;
    rn_dtype dtype;
    uint8_t bits; // in a file
} data_types[RN_ONNX_DATA_TYPES] = {
    [0] = {"undefined", RN_DTYPE_NONE, 0},
    [1] = {"float", RN_DTYPE_F32, 32},
    [2] = {"uint8", RN_DTYPE_U8, 8},
    [3] = {"int8", RN_DTYPE_I8, 8},
    [4] = {"uint16", RN_DTYPE_U16, 16},
    [5] = {"int16", RN_DTYPE_I16, 16},
    [6] = {"int32", RN_DTYPE_I32, 32},
    [7] = {"int64", RN_DTYPE_I64, 64},
    [RN_ONNX_STRING] = {"string", RN_DTYPE_NONE, 0},
    [9] = {"bool", RN_DTYPE_BOOL, 8},
    [10] = {"float16", RN_DTYPE_F16, 16},
    [11] = {"double", RN_DTYPE_F64, 64},
    [12] = {"uint32", RN_DTYPE_U32, 32},
    [13] = {"uint64", RN_DTYPE_U64, 64},
    [14] = {"complex64", RN_DTYPE_C64, 64},
    [15] = {"complex128", RN_DTYPE_NONE, 0},
    [16] = {"bfloat16", RN_DTYPE_BF16, 16},
    [17] = {"float8e4m3fn", RN_DTYPE_F8_E4M3, 8},
    [18] = {"float8e4m3fnuz", RN_DTYPE_F8_E4M3FNUZ, 8},
    [19] = {"float8e5m2", RN_DTYPE_F8_E5M2, 8},
    [20] = {"float8e5m2fnuz", RN_DTYPE_F8_E5M2FNUZ, 8},
    [RN_ONNX_UINT4] = {"uint4", RN_DTYPE_U8, 4},
    [RN_ONNX_INT4] = {"int4", RN_DTYPE_I8, 4},
    [RN_ONNX_FLOAT4] = {"float4e2m1", RN_DTYPE_NONE, 4},
    [24] = {"float8e8m0", RN_DTYPE_F8_E8M0, 8},
    [RN_ONNX_UINT2] = {"uint2", RN_DTYPE_U8, 2},
    [RN_ONNX_INT2] = {"int2", RN_DTYPE_I8, 2},
};

static const struct data_type *find_type(uint32_t data_type) {
    return &data_types[data_type < RN_ONNX_DATA_TYPES ? data_type : 0];
}

rn_dtype rn_onnx_dtype(uint32_t data_type) {
    return find_type(data_type)->dtype;
}

const char *rn_onnx_type_name(uint32_t data_type) {
    return find_type(data_type)->name;
}

// ---- tensors ------------------------------------------------------------------------------------

enum {
    TENSOR_DIMS = 1,
    TENSOR_TYPE = 2,
    TENSOR_FLOATS = 4,
    TENSOR_INTS = 5,
    TENSOR_LONGS = 7,
    TENSOR_NAME = 8,
    TENSOR_RAW = 9,
    TENSOR_DOUBLES = 10,
    TENSOR_UNSIGNED = 11,
    TENSOR_EXTERNAL = 13,
    TENSOR_LOCATION = 14
};

static bool parse_decimal(rn_str text, uint64_t *out) {
    *out = 0;
    for (size_t i = 0; i < text.bytes; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') return false;
        if (!rn_mul_u64(*out, 10, out) || !rn_add_u64(*out, (uint64_t)(text.data[i] - '0'), out))
            return false;
    }
    return text.bytes > 0;
}

// StringStringEntryProto {1 key, 2 value}.
static rn_status parse_external(rn_protobuf entry, rn_onnx_tensor *out) {
    rn_protobuf_field field;
    rn_str key = {0}, value = {0};
    for (;;) {
        RN_TRY(rn_protobuf_next(&entry, &field));
        if (field.number == 0) break;
        if (field.number == 1) RN_TRY(rn_protobuf_bytes(&field, &key));
        if (field.number == 2) RN_TRY(rn_protobuf_bytes(&field, &value));
    }
    uint64_t *number = rn_str_equal(key, RN_STR("offset"))   ? &out->offset
                       : rn_str_equal(key, RN_STR("length")) ? &out->length
                                                             : NULL;
    if (rn_str_equal(key, RN_STR("location"))) out->location = value;
    if (!number || parse_decimal(value, number)) return RN_OK;
    return rn_fail(RN_CORRUPT, "tensor '%.*s': its external %.*s is no number",
                   RN_STR_ARG(out->name), RN_STR_ARG(key));
}

static rn_status check_dims(const int64_t *dims, size_t rank, rn_onnx_tensor *out) {
    out->rank = (uint32_t)rank;
    out->dims = (const uint64_t *)dims;
    out->elements = 1;
    if (rank > MAX_RANK)
        return rn_fail(RN_CORRUPT, "tensor '%.*s' has %zu axes, more than %d are refused",
                       RN_STR_ARG(out->name), rank, MAX_RANK);
    bool fits = true;
    for (size_t i = 0; i < rank && fits; i++)
        fits = dims[i] >= 0 && rn_mul_u64(out->elements, (uint64_t)dims[i], &out->elements);
    if (fits && out->elements <= UINT64_MAX / 64) return RN_OK;
    return rn_fail(RN_CORRUPT, "tensor '%.*s': its size overflows", RN_STR_ARG(out->name));
}

// Of a typed field of fixed width the bytes are the raw ones, where it is packed and in one piece.
static rn_status find_packed(rn_protobuf message, uint32_t number, uint64_t want, rn_str *out) {
    rn_protobuf_field field;
    for (;;) {
        RN_TRY(rn_protobuf_next(&message, &field));
        if (field.number == 0) return RN_OK;
        if (field.number == number && field.wire == RN_PROTOBUF_BYTES && field.bytes.bytes == want)
            *out = field.bytes;
    }
}

static uint64_t file_bytes(const rn_onnx_tensor *t) {
    return (t->elements * find_type(t->data_type)->bits + 7) / 8; // checked: elements < 2^58
}

// Elements of a typed field have a byte at least: a tensor larger than its message is a lie.
static rn_status check_stored(rn_onnx_tensor *t, bool has_raw) {
    rn_protobuf message = rn_protobuf_of(t->message);
    uint64_t bytes = file_bytes(t);
    if (t->external || find_type(t->data_type)->dtype == RN_DTYPE_NONE) return RN_OK;
    if (has_raw && t->raw.bytes != bytes)
        return rn_fail(RN_CORRUPT, "tensor '%.*s' has %zu bytes, its shape needs %llu",
                       RN_STR_ARG(t->name), t->raw.bytes, (unsigned long long)bytes);
    if (has_raw || t->elements == 0) return RN_OK;
    if (bytes / 8 > t->message.bytes)
        return rn_fail(RN_CORRUPT, "tensor '%.*s' has %llu elements in a message of %zu bytes",
                       RN_STR_ARG(t->name), (unsigned long long)t->elements, t->message.bytes);
    uint32_t packed = t->data_type == 1 ? TENSOR_FLOATS : t->data_type == 11 ? TENSOR_DOUBLES : 0;
    return packed ? find_packed(message, packed, bytes, &t->raw) : RN_OK;
}

static rn_status parse_tensor(parser *p, rn_protobuf message, rn_onnx_tensor *out) {
    rn_protobuf rest = message, entry;
    rn_protobuf_field field;
    const int64_t *dims = NULL;
    size_t rank = 0;
    bool has_raw = false;
    uint64_t location = 0;
    *out = (rn_onnx_tensor){.length = UINT64_MAX,
                            .message = {message.at, (size_t)(message.end - message.at)}};
    for (;;) {
        RN_TRY(rn_protobuf_next(&rest, &field));
        if (field.number == 0) break;
        if (field.number == TENSOR_TYPE) RN_TRY(take_u32(&field, &out->data_type));
        if (field.number == TENSOR_NAME) RN_TRY(read_name(&field, &out->name));
        if (field.number == TENSOR_RAW) RN_TRY(rn_protobuf_bytes(&field, &out->raw));
        if (field.number == TENSOR_LOCATION) RN_TRY(rn_protobuf_uint(&field, &location));
        has_raw = has_raw || field.number == TENSOR_RAW;
        if (field.number != TENSOR_EXTERNAL) continue;
        RN_TRY(rn_protobuf_message(&field, &entry));
        RN_TRY(parse_external(entry, out));
    }
    out->external = location == 1;
    RN_TRY(take_ints(p, read_numbers(message, TENSOR_DIMS, RN_PROTOBUF_VARINT), &dims, &rank));
    RN_TRY(check_dims(dims, rank, out));
    return check_stored(out, has_raw);
}

rn_status rn_onnx_parse_tensor(rn_str bytes, rn_arena *memory, rn_onnx_tensor *out) {
    parser p = {.memory = memory};
    return parse_tensor(&p, rn_protobuf_of(bytes), out);
}

bool rn_onnx_tensor_bytes(const rn_onnx_tensor *tensor, uint64_t *out) {
    return rn_dtype_bytes(rn_onnx_dtype(tensor->data_type), tensor->elements, out);
}

bool rn_onnx_tensor_is_plain(const rn_onnx_tensor *tensor) {
    const struct data_type *type = find_type(tensor->data_type);
    return type->bits >= 8 && (tensor->raw.data || tensor->elements == 0) && !tensor->external;
}

// Two or four elements a byte, the first in the low bits.
static void unpack_bits(const rn_onnx_tensor *t, const uint8_t *raw, uint8_t *target) {
    uint32_t bits = find_type(t->data_type)->bits, each = 8 / bits;
    bool is_signed = t->data_type == RN_ONNX_INT4 || t->data_type == RN_ONNX_INT2;
    for (uint64_t i = 0; i < t->elements; i++) {
        uint32_t value = raw[i / each] >> (i % each * bits) & ((1u << bits) - 1);
        uint32_t sign = 1u << (bits - 1);
        target[i] = (uint8_t)(is_signed ? (value ^ sign) - sign : value);
    }
}

// int32_data holds a number an element; of packed bits, a number a byte.
static rn_status decode_typed(const rn_onnx_tensor *t, size_t width, uint64_t count,
                              uint8_t *target) {
    rn_dtype dtype = rn_onnx_dtype(t->data_type);
    uint32_t number = dtype == RN_DTYPE_F32 || dtype == RN_DTYPE_C64   ? TENSOR_FLOATS
                      : dtype == RN_DTYPE_F64                          ? TENSOR_DOUBLES
                      : dtype == RN_DTYPE_I64                          ? TENSOR_LONGS
                      : dtype == RN_DTYPE_U64 || dtype == RN_DTYPE_U32 ? TENSOR_UNSIGNED
                                                                       : TENSOR_INTS;
    rn_protobuf_wire wire = number == TENSOR_FLOATS    ? RN_PROTOBUF_FIXED32
                            : number == TENSOR_DOUBLES ? RN_PROTOBUF_FIXED64
                                                       : RN_PROTOBUF_VARINT;
    number_reader r = read_numbers(rn_protobuf_of(t->message), number, wire);
    size_t there = 0;
    if (dtype == RN_DTYPE_C64) width /= 2, count *= 2;
    RN_TRY(count_numbers(r, &there));
    if (there != count)
        return rn_fail(RN_CORRUPT, "tensor '%.*s' has %zu numbers, its shape needs %llu",
                       RN_STR_ARG(t->name), there, (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t value = 0;
        bool more = true;
        RN_TRY(next_number(&r, &value, &more));
        memcpy(target + i * width, &value, width); // little endian: the low bytes
    }
    return RN_OK;
}

static rn_status decode_bits(const rn_onnx_tensor *t, uint8_t *target) {
    uint64_t bytes = file_bytes(t);
    void *packed = NULL;
    if (t->raw.data) {
        unpack_bits(t, (const uint8_t *)t->raw.data, target);
        return RN_OK;
    }
    RN_TRY(rn_alloc(RN_HOST_IO, bytes, &packed));
    rn_status s = decode_typed(t, 1, bytes, packed);
    if (s == RN_OK) unpack_bits(t, packed, target);
    rn_free(RN_HOST_IO, packed, bytes);
    return s;
}

rn_status rn_onnx_tensor_decode(const rn_onnx_tensor *t, void *target, size_t bytes) {
    uint64_t want = 0;
    const struct data_type *type = find_type(t->data_type);
    if (t->external)
        return rn_fail(RN_UNSUPPORTED, "tensor '%.*s' lies in another file", RN_STR_ARG(t->name));
    if (!rn_onnx_tensor_bytes(t, &want))
        return rn_fail(RN_UNSUPPORTED, "tensor '%.*s' has the element type %s", RN_STR_ARG(t->name),
                       type->name);
    if (want != bytes)
        return rn_fail(RN_INVALID, "tensor '%.*s' has %llu bytes, not %zu", RN_STR_ARG(t->name),
                       (unsigned long long)want, bytes);
    if (bytes == 0) return RN_OK;
    if (type->bits < 8) return decode_bits(t, target);
    if (!t->raw.data) return decode_typed(t, (size_t)type->bits / 8, t->elements, target);
    memcpy(target, t->raw.data, bytes);
    return RN_OK;
}

// ---- values -------------------------------------------------------------------------------------

static rn_status parse_dim(rn_protobuf message, rn_onnx_axis *out) {
    rn_protobuf_field field;
    for (;;) {
        RN_TRY(rn_protobuf_next(&message, &field));
        if (field.number == 0) return RN_OK;
        if (field.number == 2) RN_TRY(read_name(&field, &out->param));
        if (field.number != 1) continue;
        RN_TRY(take_int(&field, &out->value));
        out->has_value = true;
    }
}

static rn_status parse_shape(parser *p, rn_protobuf message, rn_onnx_value *out) {
    rn_onnx_axis *dims = NULL;
    rn_protobuf_field field;
    rn_protobuf inner;
    RN_TRY(take_array(p, message, 1, sizeof *dims, &dims));
    out->has_shape = true;
    out->rank = 0;
    out->dims = dims;
    for (;;) {
        RN_TRY(rn_protobuf_next(&message, &field));
        if (field.number == 0) return RN_OK;
        if (field.number != 1) continue;
        RN_TRY(rn_protobuf_message(&field, &inner));
        RN_TRY(parse_dim(inner, &dims[out->rank++]));
    }
}

// TypeProto: 1 a tensor {1 elem_type, 2 shape}; anything else is another kind of value.
static rn_status parse_type(parser *p, rn_protobuf message, rn_onnx_value *out) {
    rn_protobuf_field field;
    rn_protobuf tensor, shape;
    for (;;) {
        RN_TRY(rn_protobuf_next(&message, &field));
        if (field.number == 0) return RN_OK;
        if (field.number == 6) continue; // denotation
        out->kind = field.number == 1 ? RN_ONNX_TENSOR_VALUE : RN_ONNX_OTHER_VALUE;
        if (field.number != 1) continue;
        RN_TRY(rn_protobuf_message(&field, &tensor));
        for (;;) {
            RN_TRY(rn_protobuf_next(&tensor, &field));
            if (field.number == 0) break;
            if (field.number == 1) RN_TRY(take_u32(&field, &out->data_type));
            if (field.number != 2) continue;
            RN_TRY(rn_protobuf_message(&field, &shape));
            RN_TRY(parse_shape(p, shape, out));
        }
    }
}

static rn_status parse_value(parser *p, rn_protobuf message, rn_onnx_value *out) {
    rn_protobuf_field field;
    rn_protobuf type;
    *out = (rn_onnx_value){.kind = RN_ONNX_UNTYPED_VALUE};
    for (;;) {
        RN_TRY(rn_protobuf_next(&message, &field));
        if (field.number == 0) return RN_OK;
        if (field.number == 1) RN_TRY(read_name(&field, &out->name));
        if (field.number != 2) continue;
        RN_TRY(rn_protobuf_message(&field, &type));
        RN_TRY(parse_type(p, type, out));
    }
}

// ---- nodes --------------------------------------------------------------------------------------

static rn_status parse_graph(parser *p, rn_protobuf message, const rn_onnx_graph_proto **out);

static rn_status take_texts(parser *p, rn_protobuf message, uint32_t number, const rn_str **out,
                            size_t *out_count) {
    rn_str *items = NULL;
    rn_protobuf_field field;
    RN_TRY(take_array(p, message, number, sizeof *items, &items));
    for (*out_count = 0, *out = items;;) {
        RN_TRY(rn_protobuf_next(&message, &field));
        if (field.number == 0) return RN_OK;
        if (field.number == number) RN_TRY(read_name(&field, &items[(*out_count)++]));
    }
}

static rn_status parse_attribute_tensor(parser *p, const rn_protobuf_field *field,
                                        rn_onnx_attribute *out) {
    void *tensor = NULL;
    rn_protobuf inner;
    RN_TRY(rn_arena_alloc(p->memory, sizeof(rn_onnx_tensor), &tensor));
    RN_TRY(rn_protobuf_message(field, &inner));
    out->tensor = tensor;
    return parse_tensor(p, inner, tensor);
}

// Files from before the type was required have none: it follows from the field that is there.
static void infer_type(rn_onnx_attribute *a, uint32_t seen) {
    static const uint8_t types[][2] = {{2, RN_ONNX_FLOAT},  {3, RN_ONNX_INT},   {4, RN_ONNX_TEXT},
                                       {5, RN_ONNX_TENSOR}, {6, RN_ONNX_GRAPH}, {7, RN_ONNX_FLOATS},
                                       {8, RN_ONNX_INTS},   {9, RN_ONNX_TEXTS}};
    for (size_t i = 0; a->type == 0 && i < sizeof types / sizeof *types; i++)
        if (seen >> types[i][0] & 1) a->type = types[i][1];
}

static rn_status parse_attribute(parser *p, rn_protobuf message, rn_onnx_attribute *out) {
    rn_protobuf rest = message, inner;
    rn_protobuf_field field;
    uint32_t seen = 0;
    *out = (rn_onnx_attribute){0};
    for (;;) {
        RN_TRY(rn_protobuf_next(&rest, &field));
        if (field.number == 0) break;
        if (field.number < 32) seen |= 1u << field.number;
        if (field.number == 1) RN_TRY(read_name(&field, &out->name));
        if (field.number == 2) RN_TRY(rn_protobuf_float(&field, &out->f));
        if (field.number == 3) RN_TRY(take_int(&field, &out->i));
        if (field.number == 4) RN_TRY(rn_protobuf_bytes(&field, &out->s));
        if (field.number == 5) RN_TRY(parse_attribute_tensor(p, &field, out));
        if (field.number == 20) RN_TRY(take_u32(&field, &out->type));
        if (field.number == 21) RN_TRY(read_name(&field, &out->reference));
        if (field.number != 6) continue;
        RN_TRY(rn_protobuf_message(&field, &inner));
        RN_TRY(parse_graph(p, inner, &out->graph));
    }
    infer_type(out, seen);
    if (out->type == RN_ONNX_FLOATS)
        return take_floats(p, read_numbers(message, 7, RN_PROTOBUF_FIXED32), &out->floats,
                           &out->count);
    if (out->type == RN_ONNX_INTS)
        return take_ints(p, read_numbers(message, 8, RN_PROTOBUF_VARINT), &out->ints, &out->count);
    if (out->type == RN_ONNX_TEXTS) return take_texts(p, message, 9, &out->texts, &out->count);
    return RN_OK;
}

static rn_status parse_attributes(parser *p, rn_protobuf message, uint32_t number,
                                  const rn_onnx_attribute **out, size_t *out_count) {
    rn_onnx_attribute *items = NULL;
    rn_protobuf_field field;
    rn_protobuf inner;
    RN_TRY(take_array(p, message, number, sizeof *items, &items));
    for (*out_count = 0, *out = items;;) {
        RN_TRY(rn_protobuf_next(&message, &field));
        if (field.number == 0) return RN_OK;
        if (field.number != number) continue;
        RN_TRY(rn_protobuf_message(&field, &inner));
        RN_TRY(parse_attribute(p, inner, &items[(*out_count)++]));
    }
}

static rn_status parse_node(parser *p, rn_protobuf message, rn_onnx_node *out) {
    rn_protobuf rest = message;
    rn_protobuf_field field;
    *out = (rn_onnx_node){.offset = (uint64_t)(message.at - message.origin)};
    for (;;) {
        RN_TRY(rn_protobuf_next(&rest, &field));
        if (field.number == 0) break;
        rn_str *text = field.number == 3   ? &out->name
                       : field.number == 4 ? &out->op
                       : field.number == 7 ? &out->domain
                       : field.number == 8 ? &out->overload
                                           : NULL;
        if (text) RN_TRY(read_name(&field, text));
    }
    RN_TRY(take_texts(p, message, 1, &out->inputs, &out->input_count));
    RN_TRY(take_texts(p, message, 2, &out->outputs, &out->output_count));
    return parse_attributes(p, message, 5, &out->attributes, &out->attribute_count);
}

static rn_status parse_nodes(parser *p, rn_protobuf message, uint32_t number,
                             const rn_onnx_node **out, size_t *out_count) {
    rn_onnx_node *items = NULL;
    rn_protobuf_field field;
    rn_protobuf inner;
    RN_TRY(take_array(p, message, number, sizeof *items, &items));
    for (*out_count = 0, *out = items;;) {
        RN_TRY(rn_protobuf_next(&message, &field));
        if (field.number == 0) return RN_OK;
        if (field.number != number) continue;
        RN_TRY(rn_protobuf_message(&field, &inner));
        RN_TRY(parse_node(p, inner, &items[(*out_count)++]));
    }
}

// ---- graphs, functions, the model ---------------------------------------------------------------

static rn_status parse_values(parser *p, rn_protobuf message, uint32_t number,
                              const rn_onnx_value **out, size_t *out_count) {
    rn_onnx_value *items = NULL;
    rn_protobuf_field field;
    rn_protobuf inner;
    RN_TRY(take_array(p, message, number, sizeof *items, &items));
    for (*out_count = 0, *out = items;;) {
        RN_TRY(rn_protobuf_next(&message, &field));
        if (field.number == 0) return RN_OK;
        if (field.number != number) continue;
        RN_TRY(rn_protobuf_message(&field, &inner));
        RN_TRY(parse_value(p, inner, &items[(*out_count)++]));
    }
}

static rn_status parse_initializers(parser *p, rn_protobuf message, rn_onnx_graph_proto *out) {
    rn_onnx_tensor *items = NULL;
    rn_protobuf_field field;
    rn_protobuf inner;
    RN_TRY(take_array(p, message, 5, sizeof *items, &items));
    for (out->initializers = items;;) {
        RN_TRY(rn_protobuf_next(&message, &field));
        if (field.number == 0) return RN_OK;
        out->sparse = out->sparse || field.number == 15;
        if (field.number == 2) RN_TRY(read_name(&field, &out->name));
        if (field.number != 5) continue;
        RN_TRY(rn_protobuf_message(&field, &inner));
        RN_TRY(parse_tensor(p, inner, &items[out->initializer_count++]));
    }
}

static rn_status parse_graph(parser *p, rn_protobuf message, const rn_onnx_graph_proto **out) {
    void *block = NULL;
    if (p->depth == MAX_DEPTH)
        return rn_fail(RN_CORRUPT, "graphs inside of graphs, more than %d deep, are refused",
                       MAX_DEPTH);
    p->depth++;
    RN_TRY(rn_arena_alloc(p->memory, sizeof(rn_onnx_graph_proto), &block));
    rn_onnx_graph_proto *graph = block;
    RN_TRY(parse_initializers(p, message, graph));
    RN_TRY(parse_nodes(p, message, 1, &graph->nodes, &graph->node_count));
    RN_TRY(parse_values(p, message, 11, &graph->inputs, &graph->input_count));
    RN_TRY(parse_values(p, message, 12, &graph->outputs, &graph->output_count));
    p->depth--;
    *out = graph;
    return RN_OK;
}

static rn_status parse_opset(rn_protobuf message, rn_onnx_opset *out) {
    rn_protobuf_field field;
    for (;;) {
        RN_TRY(rn_protobuf_next(&message, &field));
        if (field.number == 0) return RN_OK;
        if (field.number == 1) RN_TRY(read_name(&field, &out->domain));
        if (field.number == 2) RN_TRY(take_int(&field, &out->version));
    }
}

static rn_status parse_opsets(parser *p, rn_protobuf message, uint32_t number,
                              const rn_onnx_opset **out, size_t *out_count) {
    rn_onnx_opset *items = NULL;
    rn_protobuf_field field;
    rn_protobuf inner;
    RN_TRY(take_array(p, message, number, sizeof *items, &items));
    for (*out_count = 0, *out = items;;) {
        RN_TRY(rn_protobuf_next(&message, &field));
        if (field.number == 0) return RN_OK;
        if (field.number != number) continue;
        RN_TRY(rn_protobuf_message(&field, &inner));
        RN_TRY(parse_opset(inner, &items[(*out_count)++]));
    }
}

static rn_status parse_function(parser *p, rn_protobuf message, rn_onnx_function *out) {
    rn_protobuf rest = message;
    rn_protobuf_field field;
    for (;;) {
        RN_TRY(rn_protobuf_next(&rest, &field));
        if (field.number == 0) break;
        rn_str *text = field.number == 1    ? &out->name
                       : field.number == 10 ? &out->domain
                       : field.number == 13 ? &out->overload
                                            : NULL;
        if (text) RN_TRY(read_name(&field, text));
    }
    RN_TRY(take_texts(p, message, 4, &out->inputs, &out->input_count));
    RN_TRY(take_texts(p, message, 5, &out->outputs, &out->output_count));
    RN_TRY(parse_attributes(p, message, 11, &out->defaults, &out->default_count));
    RN_TRY(parse_nodes(p, message, 7, &out->nodes, &out->node_count));
    return parse_opsets(p, message, 9, &out->opsets, &out->opset_count);
}

static rn_status parse_functions(parser *p, rn_protobuf message, rn_onnx_model *model) {
    rn_onnx_function *items = NULL;
    rn_protobuf_field field;
    rn_protobuf inner;
    RN_TRY(take_array(p, message, 25, sizeof *items, &items));
    for (model->functions = items;;) {
        RN_TRY(rn_protobuf_next(&message, &field));
        if (field.number == 0) return RN_OK;
        if (field.number != 25) continue;
        RN_TRY(rn_protobuf_message(&field, &inner));
        RN_TRY(parse_function(p, inner, &items[model->function_count++]));
    }
}

static rn_status parse_model(parser *p, rn_protobuf message, rn_onnx_model *model) {
    rn_protobuf rest = message, inner;
    rn_protobuf_field field;
    for (;;) {
        RN_TRY(rn_protobuf_next(&rest, &field));
        if (field.number == 0) break;
        if (field.number == 1) RN_TRY(take_int(&field, &model->ir_version));
        if (field.number == 2) RN_TRY(read_name(&field, &model->producer));
        if (field.number != 7 || model->graph) continue;
        RN_TRY(rn_protobuf_message(&field, &inner));
        RN_TRY(parse_graph(p, inner, &model->graph));
    }
    if (!model->graph)
        return rn_hint(rn_fail(RN_CORRUPT, "there is no graph in it"), "is it an ONNX model?");
    RN_TRY(parse_opsets(p, message, 8, &model->opsets, &model->opset_count));
    return parse_functions(p, message, model);
}

rn_status rn_onnx_parse(rn_str bytes, rn_onnx_model **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_IO, 1, sizeof **out, &block));
    rn_onnx_model *model = block;
    rn_arena_init(&model->memory, RN_HOST_IO, 0);
    model->origin = bytes.data;
    parser p = {.memory = &model->memory};
    rn_status s = parse_model(&p, rn_protobuf_of(bytes), model);
    if (s == RN_OK)
        *out = model;
    else
        rn_onnx_free(model);
    return s;
}

void rn_onnx_free(rn_onnx_model *model) {
    if (!model) return;
    rn_arena_free_all(&model->memory);
    rn_free(RN_HOST_IO, model, sizeof *model);
}

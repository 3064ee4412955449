// protobuf.c — tag, value, tag, value; every length is held against the bytes that are left.
#include "io/protobuf.h"

#include <string.h>

rn_protobuf rn_protobuf_of(rn_str message) {
    const char *data = message.data ? message.data : "";
    return (rn_protobuf){data, data, data + message.bytes};
}

static uint64_t offset_of(const rn_protobuf *message) {
    return (uint64_t)(message->at - message->origin);
}

static rn_status read_varint(rn_protobuf *message, uint64_t *out) {
    uint64_t start = offset_of(message);
    *out = 0;
    for (int shift = 0; message->at < message->end; shift += 7) {
        uint8_t byte = (uint8_t)*message->at++;
        if (shift == 63 && byte > 1)
            return rn_fail(RN_CORRUPT, "the number at byte %llu has more than 64 bits",
                           (unsigned long long)start);
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return RN_OK;
    }
    return rn_fail(RN_CORRUPT, "the number at byte %llu is cut short", (unsigned long long)start);
}

static rn_status read_bytes(rn_protobuf *message, uint64_t count, rn_str *out) {
    uint64_t left = (uint64_t)(message->end - message->at);
    if (count > left)
        return rn_fail(RN_CORRUPT, "%llu bytes are announced at byte %llu, %llu are left",
                       (unsigned long long)count, (unsigned long long)offset_of(message),
                       (unsigned long long)left);
    *out = (rn_str){message->at, (size_t)count};
    message->at += count;
    return RN_OK;
}

static rn_status read_fixed(rn_protobuf *message, size_t count, uint64_t *out) {
    rn_str bytes = {0};
    RN_TRY(read_bytes(message, count, &bytes));
    *out = 0;
    memcpy(out, bytes.data, count);
    return RN_OK;
}

static rn_status read_value(rn_protobuf *message, uint64_t wire, rn_protobuf_field *out) {
    uint64_t count;
    switch (wire) {
    case RN_PROTOBUF_VARINT:
        return read_varint(message, &out->value);
    case RN_PROTOBUF_FIXED64:
        return read_fixed(message, 8, &out->value);
    case RN_PROTOBUF_FIXED32:
        return read_fixed(message, 4, &out->value);
    case RN_PROTOBUF_BYTES:
        RN_TRY(read_varint(message, &count));
        return read_bytes(message, count, &out->bytes);
    default:
        return rn_fail(RN_CORRUPT, "the field at byte %llu has wire type %u",
                       (unsigned long long)out->offset, (unsigned)wire);
    }
}

rn_status rn_protobuf_next(rn_protobuf *message, rn_protobuf_field *out) {
    uint64_t tag;
    *out = (rn_protobuf_field){.origin = message->origin};
    if (message->at == message->end) return RN_OK;
    out->offset = offset_of(message);
    RN_TRY(read_varint(message, &tag));
    if (tag < 8 || tag > UINT32_MAX)
        return rn_fail(RN_CORRUPT, "the field at byte %llu has no valid number",
                       (unsigned long long)out->offset);
    out->number = (uint32_t)(tag >> 3);
    out->wire = (rn_protobuf_wire)(tag & 7);
    return read_value(message, tag & 7, out);
}

static rn_status expect(const rn_protobuf_field *field, rn_protobuf_wire wire) {
    if (field->wire == wire) return RN_OK;
    return rn_fail(RN_CORRUPT, "field %u at byte %llu has wire type %d instead of %d",
                   field->number, (unsigned long long)field->offset, (int)field->wire, (int)wire);
}

rn_status rn_protobuf_bytes(const rn_protobuf_field *field, rn_str *out) {
    RN_TRY(expect(field, RN_PROTOBUF_BYTES));
    *out = field->bytes;
    return RN_OK;
}

rn_status rn_protobuf_message(const rn_protobuf_field *field, rn_protobuf *out) {
    RN_TRY(expect(field, RN_PROTOBUF_BYTES));
    *out = rn_protobuf_of(field->bytes);
    out->origin = field->origin;
    return RN_OK;
}

rn_status rn_protobuf_uint(const rn_protobuf_field *field, uint64_t *out) {
    RN_TRY(expect(field, RN_PROTOBUF_VARINT));
    *out = field->value;
    return RN_OK;
}

rn_status rn_protobuf_bool(const rn_protobuf_field *field, bool *out) {
    RN_TRY(expect(field, RN_PROTOBUF_VARINT));
    *out = field->value != 0;
    return RN_OK;
}

rn_status rn_protobuf_float(const rn_protobuf_field *field, float *out) {
    RN_TRY(expect(field, RN_PROTOBUF_FIXED32));
    uint32_t bits = (uint32_t)field->value;
    memcpy(out, &bits, 4);
    return RN_OK;
}

// protobuf.h — the fields of a protobuf message, one after the other, straight from its bytes.
//
//     rn_protobuf message = rn_protobuf_of(bytes);
//     rn_protobuf_field field;
//     while (true) {
//         RN_TRY(rn_protobuf_next(&message, &field));
//         if (field.number == 0) break;
//         ...
//     }
//
// Nothing is allocated and nothing nests by itself: a message inside is bytes until somebody asks
// for its fields. RN_CORRUPT says at which byte of the outermost message a rule was broken. Groups
// (wire types 3 and 4), which no format here uses, are refused.
#ifndef RN_TEXT_PROTOBUF_H
#define RN_TEXT_PROTOBUF_H

#include <ration/text.h>

typedef struct rn_protobuf {
    const char *origin; // of the outermost message: for places in messages
    const char *at, *end;
} rn_protobuf;

typedef enum rn_protobuf_wire {
    RN_PROTOBUF_VARINT = 0,
    RN_PROTOBUF_FIXED64 = 1,
    RN_PROTOBUF_BYTES = 2,
    RN_PROTOBUF_FIXED32 = 5
} rn_protobuf_wire;

typedef struct rn_protobuf_field {
    uint32_t number; // 0: the message is over
    rn_protobuf_wire wire;
    uint64_t value;     // all but bytes
    rn_str bytes;       // bytes; borrowed
    const char *origin; // the message's
    uint64_t offset;    // where the field begins, from there
} rn_protobuf_field;

rn_protobuf rn_protobuf_of(rn_str message);
RN_MUST_USE rn_status rn_protobuf_next(rn_protobuf *message, rn_protobuf_field *out);

// What the field holds; RN_CORRUPT where its wire type is another one.
RN_MUST_USE rn_status rn_protobuf_bytes(const rn_protobuf_field *field, rn_str *out);
RN_MUST_USE rn_status rn_protobuf_message(const rn_protobuf_field *field, rn_protobuf *out);
RN_MUST_USE rn_status rn_protobuf_uint(const rn_protobuf_field *field, uint64_t *out);
RN_MUST_USE rn_status rn_protobuf_bool(const rn_protobuf_field *field, bool *out);
RN_MUST_USE rn_status rn_protobuf_float(const rn_protobuf_field *field, float *out);

#endif

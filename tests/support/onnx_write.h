// onnx_write.h — protobuf messages for tests: fields appended to a buffer on the stack.
//
//     message node = {0};
//     put_text(&node, 4, "Relu");
//     put_message(&graph, 1, &node);
#ifndef RN_TEST_ONNX_WRITE_H
#define RN_TEST_ONNX_WRITE_H

#include "support.h"

typedef struct message {
    size_t bytes;
    uint8_t data[16384];
} message;

static inline void put_varint(message *m, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        m->data[m->bytes++] = (uint8_t)(value | 0x80);
    m->data[m->bytes++] = (uint8_t)value;
}

static inline void put_int(message *m, uint32_t field, int64_t value) {
    put_varint(m, (uint64_t)field << 3);
    put_varint(m, (uint64_t)value);
}

static inline void put_bytes(message *m, uint32_t field, const void *data, size_t bytes) {
    put_varint(m, (uint64_t)field << 3 | 2);
    put_varint(m, bytes);
    assert_true(m->bytes + bytes <= sizeof m->data);
    if (bytes) memcpy(m->data + m->bytes, data, bytes);
    m->bytes += bytes;
}

static inline void put_text(message *m, uint32_t field, const char *text) {
    put_bytes(m, field, text, strlen(text));
}

static inline void put_message(message *m, uint32_t field, const message *inner) {
    put_bytes(m, field, inner->data, inner->bytes);
}

static inline void put_float(message *m, uint32_t field, float value) {
    put_varint(m, (uint64_t)field << 3 | 5);
    memcpy(m->data + m->bytes, &value, 4);
    m->bytes += 4;
}

// TensorProto with raw bytes.
static inline message tensor_message(const char *name, int type, const int64_t *dims, size_t rank,
                                     const void *data, size_t bytes) {
    message t = {0};
    for (size_t i = 0; i < rank; i++)
        put_int(&t, 1, dims[i]);
    put_int(&t, 2, type);
    put_text(&t, 8, name);
    put_bytes(&t, 9, data, bytes);
    return t;
}

// ValueInfoProto of a tensor; a dim below 0 is the symbol "batch".
static inline message value_message(const char *name, int type, const int64_t *dims, size_t rank) {
    message value = {0}, proto = {0}, tensor = {0}, shape = {0};
    for (size_t i = 0; i < rank; i++) {
        message dim = {0};
        if (dims[i] < 0)
            put_text(&dim, 2, "batch");
        else
            put_int(&dim, 1, dims[i]);
        put_message(&shape, 1, &dim);
    }
    put_int(&tensor, 1, type);
    put_message(&tensor, 2, &shape);
    put_message(&proto, 1, &tensor);
    put_text(&value, 1, name);
    put_message(&value, 2, &proto);
    return value;
}

// NodeProto with up to three inputs and one output; NULL: none.
static inline message node_message(const char *op, const char *a, const char *b, const char *c,
                                   const char *out) {
    message node = {0};
    const char *const inputs[] = {a, b, c};
    for (int i = 0; i < 3; i++)
        if (inputs[i]) put_text(&node, 1, inputs[i]);
    put_text(&node, 2, out);
    put_text(&node, 3, op);
    put_text(&node, 4, op);
    return node;
}

// ModelProto of a graph, opset 17.
static inline message model_message(const message *graph) {
    message model = {0}, opset = {0};
    put_int(&model, 1, 8);
    put_message(&model, 7, graph);
    put_int(&opset, 2, 17);
    put_message(&model, 8, &opset);
    return model;
}

#endif

// onnx_export_build.h — writes ONNX nodes one at a time, and knows the dtype and shape of every
// value that it has written.
//
//     rn_export_value y = rn_export_unary(h, "Exp", x);
//     rn_export_value sum = rn_export_reduce(h, "ReduceSum", y, 1u << axis, true);
//     y = rn_export_binary(h, "Div", y, sum);
//
// The first failure is kept in `status`; what is written behind it does not matter. Axis 0 of a
// shape may be RN_ROWS. So may any axis whose size is not known: a shape is a number where a number
// is needed (Reshape), and elsewhere nobody reads it.
#ifndef RN_EXCHANGE_ONNX_EXPORT_BUILD_H
#define RN_EXCHANGE_ONNX_EXPORT_BUILD_H

#include "exchange/onnx_export.h"
#include "graph/op.h"

typedef struct rn_export_value {
    uint32_t id; // 0: none
    rn_dtype dtype;
    rn_shape shape;
} rn_export_value;

typedef struct rn_export {
    rn_buffer graph; // fields of a GraphProto
    rn_buffer node, inner;
    rn_status status; // the first failure
    uint32_t opset;
    const rn_export_value *scalars; // (scalars of the graph)
    const char *name;               // of the node that is being written
    const char **names;             // (name_count): of values, by id; NULL: "#7"
    uint32_t name_count, last_id;
} rn_export;

// An attribute of a node.
typedef struct rn_export_attr {
    const char *name;
    const char *text;    // a text; or
    const int64_t *ints; // (count): whole numbers; or
    uint32_t count;
    bool is_float; // `number`, else `whole`
    float number;
    int64_t whole;
} rn_export_attr;
#define RN_EXPORT_INT(key, value) ((rn_export_attr){.name = (key), .whole = (int64_t)(value)})
#define RN_EXPORT_FLOAT(key, value)                                                                \
    ((rn_export_attr){.name = (key), .is_float = true, .number = (value)})
#define RN_EXPORT_TEXT(key, value) ((rn_export_attr){.name = (key), .text = (value)})
#define RN_EXPORT_INTS(key, list, size)                                                            \
    ((rn_export_attr){.name = (key), .ints = (list), .count = (uint32_t)(size)})

// ---- protobuf -----------------------------------------------------------------------------------

void rn_export_varint(rn_export *h, rn_buffer *to, uint32_t field, uint64_t value);
void rn_export_bytes(rn_export *h, rn_buffer *to, uint32_t field, const void *data, size_t bytes);
void rn_export_string(rn_export *h, rn_buffer *to, uint32_t field, const char *text);

// ---- nodes --------------------------------------------------------------------------------------

// RN_UNSUPPORTED: "<node>: <message>".
void rn_export_refuse(rn_export *h, const char *format, ...) RN_PRINTF(2, 3);
// A value that nothing makes yet.
rn_export_value rn_export_new(rn_export *h, rn_dtype dtype, rn_shape shape);
typedef struct rn_export_name_text {
    char text[16];
} rn_export_name_text;
const char *rn_export_name_of(const rn_export *h, uint32_t id, rn_export_name_text *room);
// Appends a node; operands with id 0 are left out. Outputs with id 0 are, too.
void rn_export_write(rn_export *h, const char *op, const rn_export_value *in, uint32_t in_count,
                     const rn_export_attr *attrs, uint32_t attr_count, const rn_export_value *out,
                     uint32_t out_count);
// The same with operands by their names, one result, and an attribute.
void rn_export_write_named(rn_export *h, const char *op, const char *const *in, uint32_t in_count,
                           const rn_export_attr *attr, rn_export_value out);
// The same with one new result.
rn_export_value rn_export_node(rn_export *h, const char *op, const rn_export_value *in,
                               uint32_t in_count, const rn_export_attr *attrs, uint32_t attr_count,
                               rn_dtype dtype, rn_shape shape);

// ---- numbers ------------------------------------------------------------------------------------

rn_export_value rn_export_data(rn_export *h, rn_dtype dtype, rn_shape shape, const void *data);
rn_export_value rn_export_ints(rn_export *h, const int64_t *items, uint32_t count); // i64 (count)
rn_export_value rn_export_int(rn_export *h, int64_t number);                        // i64 (1)
// One element of any plain dtype, of rank 0.
rn_export_value rn_export_scalar(rn_export *h, rn_dtype dtype, double number);
// 0 .. count - 1, i64, where `count` is i64 (1).
rn_export_value rn_export_range(rn_export *h, rn_export_value count);
// The size of an axis, i64 (1).
rn_export_value rn_export_size(rn_export *h, rn_export_value x, uint32_t axis);

// ---- element by element, NumPy's rule -----------------------------------------------------------

rn_export_value rn_export_unary(rn_export *h, const char *op, rn_export_value x);
rn_export_value rn_export_binary(rn_export *h, const char *op, rn_export_value a,
                                 rn_export_value b);
// With a number in x's dtype.
rn_export_value rn_export_with(rn_export *h, const char *op, rn_export_value x, double number);
rn_export_value rn_export_compare(rn_export *h, const char *op, rn_export_value a,
                                  rn_export_value b); // -> bool
rn_export_value rn_export_where(rn_export *h, rn_export_value which, rn_export_value yes,
                                rn_export_value no);
rn_export_value rn_export_cast(rn_export *h, rn_export_value x, rn_dtype dtype);
// f16 and bf16 as f32: what ops compute in.
rn_export_value rn_export_widen(rn_export *h, rn_export_value x);

// ---- moving -------------------------------------------------------------------------------------

// At most one axis of `shape` may be RN_ROWS.
rn_export_value rn_export_reshape(rn_export *h, rn_export_value x, rn_shape shape);
rn_export_value rn_export_transpose(rn_export *h, rn_export_value x, const uint8_t *axes);
rn_export_value rn_export_slice(rn_export *h, rn_export_value x, uint32_t axis, uint64_t start,
                                uint64_t count);
rn_export_value rn_export_concat(rn_export *h, const rn_export_value *parts, uint32_t count,
                                 uint32_t axis);
rn_export_value rn_export_gather(rn_export *h, rn_export_value x, rn_export_value ids,
                                 uint32_t axis);
// Over the axes of the mask.
rn_export_value rn_export_reduce(rn_export *h, const char *op, rn_export_value x, uint32_t axes,
                                 bool keep);
// Channels to the front of the others, and back.
rn_export_value rn_export_to_channels_first(rn_export *h, rn_export_value x);
rn_export_value rn_export_to_channels_last(rn_export *h, rn_export_value x);

// ---- ops ----------------------------------------------------------------------------------------

// As rn_hlo_emitter (stablehlo_ops.h): `call` has shapes, RN_ROWS in axis 0 among them, and no
// data; an output's data is NULL where nobody reads it.
typedef void (*rn_exporter)(rn_export *h, const rn_call *call, const rn_export_value *in,
                            rn_export_value *out);
// NULL: refused.
extern const rn_exporter rn_exporters[RN_OP_COUNT];
#define RN_EXPORTER(name)                                                                          \
    void rn_export_op_##name(rn_export *h, const rn_call *call, const rn_export_value *in,         \
                             rn_export_value *out)

// A result in the dtype and shape that the op's output has.
static inline rn_export_value rn_export_result(rn_export *h, const rn_call *call,
                                               rn_export_value y) {
    return rn_export_cast(h, y, call->outputs[0].dtype);
}

#endif

// onnx.h — an ONNX file (ModelProto) as structures that borrow from its bytes.
//
//     rn_onnx_model *model;
//     RN_TRY(rn_onnx_parse(bytes, &model));       // bytes: the file's (io/onnx_bytes.h); they must
//     stay for each model->graph->nodes: ... rn_onnx_free(model);
//
// The file is not trusted: counts are held against the bytes there are, graphs inside of attributes
// against a depth, a tensor's elements against the bytes that hold them. What was parsed is well
// formed, not meaningful: names may be missing, cycles possible. Bytes of tensors are not touched.
#ifndef RN_IO_ONNX_H
#define RN_IO_ONNX_H

#include <ration/tensor.h>

#include "base/arena.h"

// TensorProto.DataType: ONNX's numbers of element types.
enum {
    RN_ONNX_STRING = 8,
    RN_ONNX_UINT4 = 21,
    RN_ONNX_INT4 = 22,
    RN_ONNX_FLOAT4 = 23,
    RN_ONNX_UINT2 = 25,
    RN_ONNX_INT2 = 26,
    RN_ONNX_DATA_TYPES
};
// What an element becomes in memory: 4-bit and 2-bit integers a byte each (u8 or i8). NONE: it has
// no type of ours (strings, complex128).
rn_dtype rn_onnx_dtype(uint32_t data_type);
// "float16"; "type 99" for one that is not known.
const char *rn_onnx_type_name(uint32_t data_type);

typedef struct rn_onnx_tensor {
    rn_str name;
    uint32_t data_type;
    uint32_t rank;
    const uint64_t *dims; // (rank), outermost first
    uint64_t elements;
    rn_str raw;     // its bytes as a file has them (little endian), or {0}: typed or external
    rn_str message; // the TensorProto itself, for rn_onnx_tensor_decode
    bool external;  // in another file of the model's folder:
    rn_str location;
    uint64_t offset, length; // length UINT64_MAX: not given
} rn_onnx_tensor;

typedef struct rn_onnx_axis {
    int64_t value;  // where it is given
    rn_str param;   // a symbol's name
    bool has_value; // neither: unknown
} rn_onnx_axis;

typedef enum rn_onnx_value_kind {
    RN_ONNX_TENSOR_VALUE,
    RN_ONNX_UNTYPED_VALUE,
    RN_ONNX_OTHER_VALUE // a sequence, a map, an optional, a sparse tensor
} rn_onnx_value_kind;

typedef struct rn_onnx_value {
    rn_str name;
    rn_onnx_value_kind kind;
    uint32_t data_type;
    bool has_shape;
    uint32_t rank;
    const rn_onnx_axis *dims; // (rank)
} rn_onnx_value;

typedef struct rn_onnx_graph_proto rn_onnx_graph_proto;

typedef enum rn_onnx_attribute_type {
    RN_ONNX_FLOAT = 1,
    RN_ONNX_INT,
    RN_ONNX_TEXT,
    RN_ONNX_TENSOR,
    RN_ONNX_GRAPH,
    RN_ONNX_FLOATS,
    RN_ONNX_INTS,
    RN_ONNX_TEXTS
} rn_onnx_attribute_type;

typedef struct rn_onnx_attribute {
    rn_str name;
    rn_str reference; // in a function: the caller's attribute of that name
    uint32_t type;    // rn_onnx_attribute_type, or a number that nothing here uses
    float f;
    int64_t i;
    rn_str s;
    const rn_onnx_tensor *tensor;
    const rn_onnx_graph_proto *graph;
    size_t count;        // of
    const float *floats; // these,
    const int64_t *ints; // or these,
    const rn_str *texts; // or these
} rn_onnx_attribute;

typedef struct rn_onnx_node {
    rn_str name, op, domain, overload;
    const rn_str *inputs, *outputs; // an empty name: left out
    size_t input_count, output_count;
    const rn_onnx_attribute *attributes;
    size_t attribute_count;
    uint64_t offset; // in the file
} rn_onnx_node;

struct rn_onnx_graph_proto {
    rn_str name;
    const rn_onnx_node *nodes;
    size_t node_count;
    const rn_onnx_tensor *initializers;
    size_t initializer_count;
    const rn_onnx_value *inputs, *outputs;
    size_t input_count, output_count;
    bool sparse; // it has sparse initializers
};

typedef struct rn_onnx_opset {
    rn_str domain;
    int64_t version;
} rn_onnx_opset;

typedef struct rn_onnx_function {
    rn_str name, domain, overload;
    const rn_str *inputs, *outputs;
    size_t input_count, output_count;
    const rn_onnx_attribute *defaults; // of attributes
    size_t default_count;
    const rn_onnx_node *nodes;
    size_t node_count;
    const rn_onnx_opset *opsets;
    size_t opset_count;
} rn_onnx_function;

typedef struct rn_onnx_model {
    rn_arena memory;
    const char *origin; // of the file's bytes
    int64_t ir_version;
    rn_str producer;
    const rn_onnx_opset *opsets;
    size_t opset_count;
    const rn_onnx_graph_proto *graph;
    const rn_onnx_function *functions;
    size_t function_count;
} rn_onnx_model;

// RN_CORRUPT names the byte; RN_INVALID: there is no graph in it.
RN_MUST_USE rn_status rn_onnx_parse(rn_str bytes, rn_onnx_model **out);
void rn_onnx_free(rn_onnx_model *model); // NULL-safe

// A single TensorProto, as the files of test data are. `memory` is for its dims.
RN_MUST_USE rn_status rn_onnx_parse_tensor(rn_str bytes, rn_arena *memory, rn_onnx_tensor *out);

// The bytes of a tensor in memory: elements of rn_onnx_dtype. False: it has no type of ours.
bool rn_onnx_tensor_bytes(const rn_onnx_tensor *tensor, uint64_t *out);
// Whether `raw` is what it is in memory: not typed field by field, external or packed in bits.
bool rn_onnx_tensor_is_plain(const rn_onnx_tensor *tensor);
// Its elements, from raw bytes or typed fields; not of one that is external. bytes: as above.
RN_MUST_USE rn_status rn_onnx_tensor_decode(const rn_onnx_tensor *tensor, void *target,
                                            size_t bytes);

#endif

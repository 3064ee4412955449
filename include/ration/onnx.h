// onnx.h — an ONNX model: its graph as ours, its initializers as weights.
//
//     rn_onnx *onnx;
//     RN_TRY(rn_onnx_open("model.onnx", NULL, &onnx));
//     rn_recipe recipe;
//     RN_TRY(rn_onnx_make_recipe(onnx, 0, &recipe));
//     RN_TRY(rn_plan_make(&recipe, caps, &options, &plan));
//     rn_weight_source weights = rn_onnx_weights(onnx);
//     RN_TRY(rn_session_create(plan, &weights, NULL, &session));
//
// Opsets 7 to 27. What depends on constants alone is computed while the model is opened, within
// limits. Sizes must be known then: an input's symbolic axis 0 becomes RN_ROWS where nothing is
// known of it; other symbols need a size (dims), or the input itself (inputs). An op that ration
// does not have is RN_UNSUPPORTED, naming op and node: control flow whose condition is not
// constant, sequences, strings, and results whose shape depends on values.
#ifndef RATION_ONNX_H
#define RATION_ONNX_H

#include <ration/plan.h>
#include <ration/session.h>

RN_BEGIN_DECLS

typedef struct rn_onnx rn_onnx;

// An input that is known when the model is opened. Its shape fills in symbolic axes; its values are
// looked at where a shape depends on them (Reshape's second input), and then the graph is for these
// values only.
typedef struct rn_onnx_input {
    const char *name;
    rn_dtype dtype;
    rn_shape shape;
    const void *data; // its dense bytes, or NULL: only the shape is known
} rn_onnx_input;

typedef struct rn_onnx_dim {
    const char *name; // a symbol of the file
    uint64_t size;
} rn_onnx_dim;

typedef struct rn_onnx_options {
    const rn_onnx_input *inputs; // (input_count), borrowed while the model is opened
    size_t input_count;
    const rn_onnx_dim *dims; // (dim_count)
    size_t dim_count;
    // A safetensors or GGUF file that has the model's initializers, by their names, in other types,
    // as rn_convert writes it: 16-bit floats, blocks (q8_0, ...), int8 with a scale a row. NULL:
    // the model's own.
    const char *weights;
    uint64_t reserved[4]; // zero
} rn_onnx_options;

// options may be NULL. External data is read from the model's folder only.
RN_API RN_MUST_USE rn_status rn_onnx_open(const char *path, const rn_onnx_options *options,
                                          rn_onnx **out);
RN_API void rn_onnx_close(rn_onnx *onnx);

// Finished. Its inputs and outputs have the file's names.
RN_API const rn_graph *rn_onnx_graph(const rn_onnx *onnx);
RN_API const rn_checkpoint *rn_onnx_checkpoint(const rn_onnx *onnx); // what rn_onnx_weights reads
// rows: of a run, where the graph has RN_ROWS; 0: 1. The model must outlive the recipe.
RN_API RN_MUST_USE rn_status rn_onnx_make_recipe(const rn_onnx *onnx, uint64_t rows,
                                                 rn_recipe *out);
RN_API rn_weight_source rn_onnx_weights(const rn_onnx *onnx);

typedef struct rn_onnx_info {
    const char *producer;
    int64_t opset;         // of ONNX's own domain
    uint64_t nodes;        // of the file, those inside of functions not counted
    uint64_t folded_bytes; // of constants that were computed while it was opened
    uint32_t bound_inputs; // inputs whose values the graph depends on
    uint64_t parameters, weight_bytes;
} rn_onnx_info;
RN_API const rn_onnx_info *rn_onnx_get_info(const rn_onnx *onnx);
// Inputs of the file in order (those that are initializers left out), also those that no node of
// the graph reads. NULL behind the last.
RN_API const char *rn_onnx_input_name(const rn_onnx *onnx, size_t index);
// Whether the graph depends on its value.
RN_API bool rn_onnx_input_is_bound(const rn_onnx *onnx, size_t index);
// Outputs in the file's order. NULL behind the last.
RN_API const char *rn_onnx_output_name(const rn_onnx *onnx, size_t index);

// ---- writing ------------------------------------------------------------------------------------

typedef struct rn_onnx_write_options {
    uint32_t opset;              // 18 to 27; 0: 21
    bool int8;                   // weights of products and convolutions: 8 bits, a scale a row
    const volatile bool *cancel; // set to true by anybody to stop with RN_CANCELLED; may be NULL
    uint64_t reserved[4];        // zero
} rn_onnx_write_options;

// Writes the recipe's graph as `path`, and its weights, widened to f32 where they are floats of
// another type (or rounded to 8 bits, a DequantizeLinear behind each), as PATH.data beside it; a
// band of a weight is held at a time. Inputs and outputs have the graph's names; a state (the KV
// cache) is an input and, with ".next" behind its name, an output. RN_ROWS is the symbol "rows".
// RN_UNSUPPORTED names a node or a weight that ONNX cannot express. options and out_bytes (of both
// files) may be NULL.
RN_API RN_MUST_USE rn_status rn_onnx_write(const rn_recipe *recipe, const rn_weight_source *weights,
                                           const char *path, const rn_onnx_write_options *options,
                                           uint64_t *out_bytes);

RN_END_DECLS

#endif

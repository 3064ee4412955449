// onnx_importer.h — what functions that write one ONNX op as graph nodes see.
//
//     static void relu(rn_import_call *c) {
//         rn_import_out(c, 0, rn_op_relu(c->graph, rn_import_in(c, 0)));
//     }
//
// Such a function never fails in the middle: as in graph building, the first failure is remembered
// by the graph and whatever follows is RN_NO_VALUE in silence.
//
// Images. ONNX has (N, C, spatial...), our ops have channels last. A value keeps a mark that its
// graph value is (N, spatial..., C); ops that do not care keep it as it is, others ask for the
// layout that they need (rn_import_in: ONNX's own; rn_import_image: channels last), and a permute
// is added only there. Shapes that functions see (rn_import_shape) are always ONNX's.
#ifndef RN_EXCHANGE_ONNX_IMPORTER_H
#define RN_EXCHANGE_ONNX_IMPORTER_H

#include "base/map.h"
#include "base/str.h"
#include "exchange/onnx_import.h"
#include "graph/op.h"

enum { RN_ONNX_CONSTANT_BYTES = 1024 }; // of an initializer: larger ones are weights

// A value of the file by its name.
typedef struct rn_import_slot {
    rn_str name;
    rn_value value;               // RN_NO_VALUE until somebody needs it
    rn_value other;               // the same in the other layout, once made
    bool channels_last;           // `value` is
    bool is_initializer;          // of the model's graph: a weight of the checkpoint
    const rn_onnx_tensor *tensor; // its bytes, of an initializer or a Constant; or NULL
    uint32_t data_type;           // where it was declared; else 0
    bool is_empty;                // it has no elements, and no value of the graph:
    rn_dtype empty_dtype;
    rn_shape empty_shape;
} rn_import_slot;

// Names that are seen together: of a graph (a subgraph also sees those around it) or a function.
typedef struct rn_import_scope {
    struct rn_import_scope *parent; // whose names are seen, too; or NULL
    rn_map names;                   // -> rn_import_slot *
    // Inside a function: whose attributes it may name.
    const rn_onnx_function *function;
    const rn_onnx_node *caller;
    const struct rn_import_scope *caller_scope;
    const rn_onnx_opset *opsets; // (opset_count)
    size_t opset_count;
} rn_import_scope;

typedef struct rn_import {
    const rn_onnx_model *model;
    const rn_checkpoint *checkpoint; // the model's initializers
    const rn_checkpoint *weights;    // the same, or a file that has them in other types
    rn_onnx_options options;
    rn_graph *graph;
    rn_arena memory;
    bool *bound, *given; // (inputs of the model's graph): as rn_imported
    uint64_t serial;     // of constants, for their names
    uint32_t depth;      // of functions and subgraphs
    uint64_t expanded;   // nodes, with those inside of functions
    // What is known of values: fold.
    uint64_t folded_bytes;
    const void **data; // (known_room): bytes of values that were computed, or NULL
    uint8_t *varies;   // (known_room): it is known that it depends on an input
    uint32_t known_room;
    rn_weight_form *forms; // (form_count) of form_room
    size_t form_count, form_room;
    rn_value mask_of, mask; // the last that attention read, and what of it is added to scores
} rn_import;

typedef struct rn_import_call {
    rn_import *import;
    rn_graph *graph; // import->graph
    const rn_onnx_node *node;
    rn_import_scope *scope;
    int64_t version; // of the node's domain
    const struct rn_import_op *op;
} rn_import_call;

typedef struct rn_import_op {
    const char *name; // "Relu", "com.microsoft.MatMulNBits"
    void (*write)(rn_import_call *c);
    uint32_t argument; // of functions that serve several ops
} rn_import_op;
// The rows of one file of ops; ended by a row without a name.
extern const rn_import_op rn_onnx_math_ops[], rn_onnx_move_ops[], rn_onnx_reduce_ops[],
    rn_onnx_image_ops[], rn_onnx_norm_ops[], rn_onnx_quantized_ops[], rn_onnx_sequence_ops[],
    rn_onnx_loss_ops[], rn_onnx_constant_ops[], rn_onnx_loop_ops[], rn_onnx_linear_attention_ops[],
    rn_onnx_sample_ops[];
const rn_import_op *rn_import_find_op(rn_str domain, rn_str name);

// ---- failing ------------------------------------------------------------------------------------

// RN_UNSUPPORTED: "node 'x' (Resize): ...". The graph is spoilt with it.
void rn_import_refuse(rn_import_call *c, const char *format, ...) RN_PRINTF(2, 3);

// Counts what one node is written as, beyond itself, among the nodes that a file may have. False:
// they are too many, and the graph is spoilt.
bool rn_import_spend(rn_import_call *c, uint64_t nodes);

// ---- inputs -------------------------------------------------------------------------------------

// NULL: left out.
rn_import_slot *rn_import_slot_of(rn_import_call *c, uint32_t input);
// Of a slot, in ONNX's layout.
rn_value rn_import_slot_value(rn_import_call *c, rn_import_slot *slot);
bool rn_import_has(rn_import_call *c, uint32_t input);
// In ONNX's layout. One that is missing spoils the graph.
rn_value rn_import_in(rn_import_call *c, uint32_t input);
// The same; RN_NO_VALUE where it is left out.
rn_value rn_import_optional(rn_import_call *c, uint32_t input);
// Whether it has no elements.
bool rn_import_is_empty(rn_import_call *c, uint32_t input);
// Channels last; of rank 2 at least.
rn_value rn_import_image(rn_import_call *c, uint32_t input);
// As it is, with its mark.
rn_value rn_import_any(rn_import_call *c, uint32_t input, bool *out_channels_last);
// Inputs [first, first + count) in one layout that they can be broadcast in.
void rn_import_joined(rn_import_call *c, uint32_t first, uint32_t count, rn_value *out,
                      bool *out_channels_last);
// In ONNX's layout. Rank 0 where it failed.
rn_shape rn_import_shape(rn_import_call *c, uint32_t input);
rn_dtype rn_import_dtype(rn_import_call *c, uint32_t input);
uint32_t rn_import_rank(rn_import_call *c, uint32_t input);

// The bytes of an input, which must depend on constants or known inputs alone; NULL: it failed.
const void *rn_import_bytes(rn_import_call *c, uint32_t input);
// The same as whole numbers, at most `room`; false: it failed. None where it is left out.
bool rn_import_ints(rn_import_call *c, uint32_t input, int64_t *out, size_t room,
                    size_t *out_count);
bool rn_import_floats(rn_import_call *c, uint32_t input, double *out, size_t room,
                      size_t *out_count);
// Of one element; `otherwise` where it is left out.
double rn_import_number(rn_import_call *c, uint32_t input, double otherwise);
// Whether its value is known without asking for inputs: a constant.
bool rn_import_is_constant(rn_import_call *c, uint32_t input);

// ---- attributes ---------------------------------------------------------------------------------

const rn_onnx_attribute *rn_import_attribute(const rn_import_call *c, const char *name);
int64_t rn_import_int(const rn_import_call *c, const char *name, int64_t otherwise);
float rn_import_float(const rn_import_call *c, const char *name, float otherwise);
rn_str rn_import_text(const rn_import_call *c, const char *name, const char *otherwise);
bool rn_import_text_is(const rn_import_call *c, const char *name, const char *otherwise,
                       const char *text);
// How many there are.
size_t rn_import_int_list(const rn_import_call *c, const char *name, const int64_t **out);
// Whole numbers that were an attribute up to some opset and are input `input` since.
bool rn_import_ints_either(rn_import_call *c, const char *name, uint32_t input, int64_t *out,
                           size_t room, size_t *out_count);
// 0 .. rank - 1, negative ones from the end; one that is none spoils the graph.
uint32_t rn_import_axis(rn_import_call *c, int64_t axis, uint32_t rank);

// ---- results ------------------------------------------------------------------------------------

void rn_import_out(rn_import_call *c, uint32_t output, rn_value value);
void rn_import_out_as(rn_import_call *c, uint32_t output, rn_value value, bool channels_last);
// What a slot of another scope has.
void rn_import_out_slot(rn_import_call *c, uint32_t output, const rn_import_slot *slot);
// A result without elements.
void rn_import_out_empty(rn_import_call *c, uint32_t output, rn_dtype dtype, rn_shape shape);
bool rn_import_wants(const rn_import_call *c, uint32_t output); // it has a name

// ---- values -------------------------------------------------------------------------------------

// The node of that op that makes a value; NULL: another does, or none.
const rn_node *rn_import_maker(const rn_import_call *c, rn_value value, rn_op op);
// Whether it is one f32 for all, and known without asking for inputs.
bool rn_import_known_number(rn_import_call *c, rn_value value, float *out);

// softmax(q kᵀ * scale + mask) v as one op: q (B, H, T, D), k and v (B, HK, S, D) -> (B, H, T, D);
// the mask, which may be RN_NO_VALUE, is broadcast to (B, H, T, S). RN_NO_VALUE: the op has no such
// form.
rn_value rn_import_attend(rn_import_call *c, rn_value q, rn_value k, rn_value v, float scale,
                          rn_value mask);
// The same for chances v, where the chances were made by a product, a scale, a mask and a softmax.
rn_value rn_import_find_attention(rn_import_call *c, rn_value chances, rn_value v);
// Each head `times` times: (B, HK, T, D) as (B, HK * times, T, D).
rn_value rn_import_repeat_heads(rn_import_call *c, rn_value x, uint64_t times);

rn_value rn_import_constant(rn_import *m, rn_dtype dtype, rn_shape shape, const void *data);
// One element of that dtype, of rank 0.
rn_value rn_import_scalar(rn_import *m, rn_dtype dtype, double number);
rn_value rn_import_int_vector(rn_import *m, const int64_t *items, size_t count);
rn_shape rn_import_shape_of(const rn_import *m, rn_value value);
rn_dtype rn_import_dtype_of(const rn_import *m, rn_value value);
// Permutes; a reshape where only axes of 1 change places.
rn_value rn_import_permute(rn_import *m, rn_value value, const uint8_t *axes);
rn_value rn_import_to_image(rn_import *m, rn_value value);
rn_value rn_import_from_image(rn_import *m, rn_value value);
rn_value rn_import_reshape(rn_import *m, rn_value value, rn_shape shape);
rn_value rn_import_cast(rn_import *m, rn_value value, rn_dtype dtype);
// a (..., M, K) by b (..., K, N), NumPy's broadcasting in front (onnx_math.c).
rn_value rn_import_matmul(rn_import_call *c, rn_value a, rn_value b);

// ---- folding (onnx_fold.c) ----------------------------------------------------------------------

// The bytes of a value, where it depends on constants alone (with_inputs: or on inputs that are
// known). NULL where it does not, or where that is more than may be computed here. `*out_status` is
// a failure only of memory or of a reference loop.
const void *rn_import_evaluate(rn_import *m, rn_value value, bool with_inputs,
                               rn_status *out_status);
void rn_import_fold_free(rn_import *m);

// ---- subgraphs (onnx_import.c) ------------------------------------------------------------------

// Writes the nodes of a subgraph (If's branch) in a scope of its own and gives its outputs to the
// node's.
void rn_import_inline_graph(rn_import_call *c, const rn_onnx_graph_proto *graph);
// The same with inputs of its own, as often as it is called (a loop's body): slots in, slots out.
void rn_import_call_graph(rn_import_call *c, const rn_onnx_graph_proto *graph,
                          const rn_import_slot *inputs, size_t input_count, rn_import_slot *outputs,
                          size_t output_count);
rn_import_slot *rn_import_lookup(const rn_import_scope *scope, rn_str name);

#endif

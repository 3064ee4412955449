// op.h — what an op is: everything the graph knows about it, in one struct, in one file
// op/<name>.c.
//
//     const rn_op_info rn_relu_op = {
//         .name = "relu", .min_inputs = 1, .max_inputs = 1, .output_count = 1,
//         .alias = {RN_ALIAS_MAY(0)}, .shape = rn_shape_like_first, .cost = rn_cost_elementwise,
//         .gradient = gradient, .reference = reference,
//     };
//
// A back end does not know this struct's functions but for `reference`, which it may use as its
// kernel: both get the same rn_call.
#ifndef RN_GRAPH_OP_H
#define RN_GRAPH_OP_H

#include <ration/graph.h>

#include "base/workers.h"
#include "tensor/layout.h"

// ---- a call -------------------------------------------------------------------------------------

// A tensor as kernels see it: its shape is concrete (rows bound), its bytes are dense in `layout`.
// dtype RN_DTYPE_NONE: an optional argument that was left out; data is NULL.
typedef struct rn_tensor {
    void *data; // NULL while planning
    rn_dtype dtype;
    rn_layout layout; // PLAIN but for weights that the device has packed
    rn_shape shape;
} rn_tensor;

// Learning rates, steps, seeds (whole numbers below 2^53).
typedef struct rn_scalar {
    double f64;
} rn_scalar;

// Which experts of a stacked weight are in memory, and where: for runs that hold some of them only.
// The weight's own address means nothing then.
typedef struct rn_expert_slots {
    // (experts): where row `first` of the call's rows of the expert's matrix lies, in the weight's
    // layout; NULL: nowhere.
    const uint8_t *const *matrix;
    // Experts whose bytes are still on their way; NULL: none is. The kernel multiplies with all
    // others first, then asks `wait` for each of these, in rising order, from the thread that
    // called it: matrix[expert] is right from then on, and up to the next `wait`. A failure of it
    // ends the call.
    const bool *pending; // (experts)
    rn_status (*wait)(void *self, uint32_t expert);
    void *self;
} rn_expert_slots;

// The other ranks of a job, for ops with RN_TRAIT_COLLECTIVE (graph/op/rank_sum.h).
typedef struct rn_call_ranks rn_call_ranks;

// One node, bound to shapes (planning) and to memory (running).
typedef struct rn_call {
    rn_op op;
    const void *attrs;
    const rn_tensor *inputs;  // (input_count)
    const rn_tensor *outputs; // (output_count); one that nobody reads may have data NULL
    uint32_t input_count, output_count;
    const rn_scalar *scalars; // (scalars of the graph); NULL while planning
    void *workspace;          // (workspace_bytes), 64-byte aligned
    uint64_t workspace_bytes;
    rn_workers *workers; // NULL: work alone
    uint32_t threads;    // that will work on it; workspace is planned for this many
    uint32_t slice_rows; // attention: query rows worked on at once by a thread; 0: its own choice
    void *stream;        // where kernels of a device of its own go (backend/cuda); else NULL
    const rn_expert_slots *slots; // EXPERTS; NULL: record e is expert e's
    const rn_call_ranks *ranks;   // COLLECTIVE; NULL: there is one rank
} rn_call;

uint64_t rn_tensor_elements(const rn_tensor *tensor);
// Bytes of its layout; 0 for an argument that was left out.
uint64_t rn_tensor_bytes(const rn_tensor *tensor);
static inline bool rn_tensor_given(const rn_tensor *tensor) {
    return tensor->dtype != RN_DTYPE_NONE;
}
// Runs fn(arg, 0 .. count - 1) on the call's workers, or here where there are none.
void rn_call_each(const rn_call *call, size_t count, rn_task fn, void *arg);

// The tensor of the model's files that a weight is, or of whose rows it is some.
static inline const char *rn_weight_tensor(const rn_value_info *info) {
    return info->tensor ? info->tensor : info->name;
}

// ---- what a node costs --------------------------------------------------------------------------

typedef struct rn_cost {
    double flops;      // multiplications and additions, one each
    double read_bytes; // that must come from memory at least once
    double write_bytes;
} rn_cost;

// ---- shapes -------------------------------------------------------------------------------------

// A node while it is being added. The rule checks `in` and sets `out`; on a misfit it returns
// rn_shape_fail(s, "...").
typedef struct rn_shaping {
    const rn_graph *graph;
    const rn_node *node;
    struct rn_typed {
        rn_dtype dtype; // NONE: left out
        rn_shape shape; // may hold RN_ROWS in axis 0
        rn_role role;
    } const *in;          // (input_count)
    struct rn_typed *out; // (output_count), dtype F32 and rank 0 at first
    uint32_t input_count;
    const void *attrs;
} rn_shaping;

// RN_INVALID: "layer 0/matmul.3: <message>; inputs (rows, 64) f32, (32, 128) q4_0".
rn_status rn_shape_fail(const rn_shaping *s, const char *format, ...) RN_PRINTF(2, 3);
// Refuses unless input i has one of the dtypes.
rn_status rn_shape_want(const rn_shaping *s, uint32_t input, rn_dtype dtype);
// Common rules. The first: f32 input, output 0 of the same shape; further inputs, if given, must
// have its shape too.
rn_status rn_shape_like_first(rn_shaping *s);
rn_status rn_shape_broadcast(rn_shaping *s); // two f32 inputs, NumPy's rule
// NumPy's rule for two shapes; false where they do not fit.
bool rn_shape_join(rn_shape a, rn_shape b, rn_shape *out);

// ---- aliases ------------------------------------------------------------------------------------

// How an output lies to the inputs.
typedef struct rn_alias {
    enum {
        RN_ALIAS_KIND_NONE,
        RN_ALIAS_KIND_MAY,  // may overwrite that input where nobody reads it later
        RN_ALIAS_KIND_MUST, // is that input, updated in place: states, weights in training
        RN_ALIAS_KIND_VIEW  // is (a part of) that input's bytes; nothing is computed
    } kind;
    uint32_t input;
} rn_alias;
#define RN_ALIAS_MAY(i)                                                                            \
    { RN_ALIAS_KIND_MAY, (i) }
#define RN_ALIAS_MUST(i)                                                                           \
    { RN_ALIAS_KIND_MUST, (i) }
#define RN_ALIAS_VIEW(i)                                                                           \
    { RN_ALIAS_KIND_VIEW, (i) }
#define RN_MAX_OUTPUTS 5

// ---- gradients ----------------------------------------------------------------------------------

// The rule adds nodes (rn_op_...) to `graph` and sets in_gradients[i] for the inputs with
// wanted[i]; one it cannot give stays RN_NO_VALUE. They are in the phase and block of the backward
// pass already. Operands are the node's own values.
typedef struct rn_backward {
    rn_graph *graph;
    rn_node node;                  // a copy: the graph's arrays move while it grows
    const rn_value *out_gradients; // (output_count); RN_NO_VALUE where none flows
    const bool *wanted;            // (input_count)
    rn_value *in_gradients;        // (input_count)
} rn_backward;

// ---- traits -------------------------------------------------------------------------------------

// What kind of op it is, for planners, sessions and back ends: they ask for traits and never list
// ops by name (scripts/check/ops holds them to that).
typedef enum rn_trait {
    RN_TRAIT_VIEW = 1u << 0,        // its output always is its input's bytes: nothing to compute
    RN_TRAIT_ELEMENTWISE = 1u << 1, // element i of the output depends on elements i of the inputs
    RN_TRAIT_PRODUCT = 1u << 2,     // rows by weight matrices: rn_call_product
    RN_TRAIT_ATTENTION = 1u << 3,   // its attributes begin with rn_attention_attrs
    RN_TRAIT_LOOKUP = 1u << 4,      // reads the rows of input 0, a table, that input 1 names
    RN_TRAIT_UPDATE = 1u << 5,      // an optimiser's step: changes a weight (input 0) in place
    RN_TRAIT_ACCUMULATE = 1u << 6,  // adds to input 0 in place: a sum that begins as zero
    RN_TRAIT_APPEND = 1u << 7,      // writes rows into a state of pages: `pages`
    RN_TRAIT_RANDOM = 1u << 8,      // its numbers depend on a seed
    RN_TRAIT_EXACT = 1u << 9,       // what it reads and makes is f32 under every policy
    RN_TRAIT_RECURRENT = 1u << 10,  // takes the rows of a sequence in order, through a state
    RN_TRAIT_MOVE =
        1u << 11, // moves elements of any plain dtype, which is its inputs' and output's
    RN_TRAIT_DETACHED = 1u << 12,  // its results count as constants: no gradient flows through them
    RN_TRAIT_EXPERTS = 1u << 13,   // rows by matrices of a stack that they chose: rn_call_experts
    RN_TRAIT_COLLECTIVE = 1u << 14 // all ranks of a job call it together, in the same order
} rn_trait;

enum { RN_LOOKUP_TABLE, RN_LOOKUP_IDS }; // the inputs of every LOOKUP
typedef enum rn_lookup {
    RN_LOOKUP_NONE,
    RN_LOOKUP_ROWS,   // ids are rows of the table
    RN_LOOKUP_WRAPPED // those below zero count from its end
} rn_lookup;
#define RN_NO_INPUT UINT32_MAX

// One product of a call: x (rows, K) by a weight (N, K). The numbers are those of the call's
// inputs; RN_NO_INPUT where the call has none of that kind.
typedef struct rn_product {
    uint32_t x, weight, bias;
    uint32_t norm;                // the RMS norm's weight that x is normed with first
    uint32_t residual;            // added to the result
    bool transposed;              // x or the weight is (K, ...) instead
    bool unquantised_activations; // a quantised weight is widened, x is never rounded
} rn_product;

// The product of a call with RN_TRAIT_EXPERTS: x by a weight (experts * record_rows, K), of each
// matrix the rows [first, first + count). A record is a matrix as it lies in the weight's layout,
// the same bytes for each: the layout's bytes / experts.
//
// An expert that call->slots has no matrix of is left out: its rows of the result stay as they are.
// So one call can be run several times, each time with other experts in memory; when all have been,
// the result is to the bit what it is with all of them at once.
typedef struct rn_expert_call {
    uint32_t x, ids, weight, bias; // numbers of inputs; bias RN_NO_INPUT: none
    uint32_t experts;
    uint64_t record_rows, first, count;
    bool unquantised_activations;
} rn_expert_call;

// ---- the op -------------------------------------------------------------------------------------

typedef struct rn_fused rn_fused;
typedef struct rn_op_info {
    const char *name;
    uint32_t min_inputs, max_inputs; // max UINT32_MAX: any number
    uint32_t optional_inputs;        // bit i: input i may be RN_NO_VALUE
    uint32_t output_count;
    uint32_t optional_outputs; // bit i: output i may have data NULL where nobody reads it
    // Bit i: that one may be bf16 or f16 where the shape rule says f32 (graph/halves.h).
    uint32_t half_inputs, half_outputs;
    size_t attrs_bytes;
    uint32_t traits; // rn_trait, any number of them
    struct {
        uint8_t state, sequence, position, page_table;
    } pages; // APPEND, attention to pages, RECURRENT (no table): which inputs these are
    // PRODUCT: product number `index` of the call; false where it has no more.
    bool (*product)(const rn_call *call, uint32_t index, rn_product *out);
    // LOOKUP, where it depends on the attributes; NULL: RN_LOOKUP_ROWS.
    rn_lookup (*lookup)(const void *attrs);
    rn_alias alias[RN_MAX_OUTPUTS];
    // An alias that depends on shapes (slice); NULL: the table above. Also gives a view's offset.
    rn_alias (*alias_of)(const rn_call *call, uint32_t output, uint64_t *out_offset_bytes);
    rn_status (*shape)(rn_shaping *s);
    void (*cost)(const rn_call *call, rn_cost *out);
    // Of the reference loop; NULL: none.
    uint64_t (*workspace)(const rn_call *call);
    // NULL: not differentiable; a gradient that must flow through it is an error naming the node.
    rn_status (*gradient)(rn_backward *b);
    // The meaning of the op, written to be read: plain loops, double or f32 sums in the order of
    // the axes. NULL only for pure views.
    rn_status (*reference)(const rn_call *call);
    // A fused op: the calls that it means (graph/fused.h); NULL: it is none.
    void (*unfold)(const rn_call *call, rn_fused *out);
    // Attributes for printing, "stride 2, pad 1"; NULL: none.
    void (*print)(const void *attrs, char *out, size_t bytes);
    // For tests: whether random inputs make finite differences meaningful is the tests' own table.
} rn_op_info;

// Never NULL.
const rn_op_info *rn_op_get(rn_op op);
static inline bool rn_op_is(rn_op op, rn_trait trait) {
    return (rn_op_get(op)->traits & trait) != 0;
}

rn_lookup rn_node_lookup(const rn_node *node);
// Product number `index` of a call; false where it has no more, as any call of another kind.
bool rn_call_product(const rn_call *call, uint32_t index, rn_product *out);
// The product whose weight input `input` is; false where it is none.
bool rn_call_product_of(const rn_call *call, uint32_t input, rn_product *out);
// What a call with RN_TRAIT_EXPERTS multiplies; false for any other.
bool rn_call_experts(const rn_call *call, rn_expert_call *out);
// An attention's attributes, alone or as a part of a fused op; NULL for any other call.
const rn_attention_attrs *rn_call_attention(const rn_call *call);

// Reads and writes each tensor once, `flops` operations an element of output 0.
void rn_cost_elementwise(const rn_call *call, rn_cost *out);
// Bytes of all tensors of the call, added to *out.
void rn_cost_bytes(const rn_call *call, rn_cost *out);

// ---- adding nodes -------------------------------------------------------------------------------

// Adds a node; attrs are copied. Returns its first output (RN_NO_VALUE where it failed); the others
// are rn_graph_output_of(graph, first, i).
rn_value rn_graph_add(rn_graph *graph, rn_op op, const rn_value *inputs, uint32_t input_count,
                      const void *attrs);
// A value's dtype; NONE for RN_NO_VALUE and for what is no value of the graph.
rn_dtype rn_graph_dtype(const rn_graph *graph, rn_value value);
// Whether a value is of a plain dtype other than f32: builders of ops of f32 alone then make the
// same function's op of any dtype (unary, binary, reduce).
bool rn_graph_takes_any(const rn_graph *graph, rn_value value);
// Remembers a failure that happened outside of a shape rule.
void rn_graph_spoil(rn_graph *graph, rn_status status);
// The gradient of a broadcast: sums `gradient` down to the shape of `like`.
rn_value rn_graph_unbroadcast(rn_graph *graph, rn_value gradient, rn_value like);

// Binds a node of a finished graph: fills concrete shapes with RN_ROWS = rows. `tensors` has room
// for input_count + output_count; layouts are PLAIN and data NULL.
void rn_graph_bind(const rn_graph *graph, uint32_t node, uint64_t rows, rn_tensor *tensors,
                   rn_call *out);
// How output `output` of a bound call lies to its inputs. One of another dtype than its input's
// never overwrites it.
rn_alias rn_call_alias(const rn_call *call, uint32_t output, uint64_t *out_offset_bytes);

#endif

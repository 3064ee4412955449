// stablehlo.h — a graph as StableHLO text, one module with @main for one number of rows, for
// compilers behind PJRT (XLA, Neuron).
//
//     rn_stablehlo_options options = {.rows = 8};
//     rn_stablehlo_signature signature;
//     RN_TRY(rn_stablehlo_signature_make(graph, &options, &memory, &signature));
//     RN_TRY(rn_stablehlo_emit(graph, &options, rn_buffer_sink(&text)));
//
// Pure: the same graph and options give the same text, byte for byte, so it can be a cache's key.
// Numbers are exact: floats are written as their bits.
//
// Arguments, in this order: inputs that some node reads, the runtime scalars, and of what some node
// reads the weights, constants that are too large for the text, states. Within a kind they are in
// the order of their numbers. Results: the graph's outputs, then every state that a node updates,
// as it is after the run. A state's argument is donated to that result (tf.aliasing_output).
//
// All buckets of a graph have the same arguments and results but for the rows, so weights and
// states may be shared between their programs.
//
// With several partitions the program is one for all of them, and says of its arguments and results
// who has what part: weights of products by their outputs, KV pages by heads. The compiler divides
// the rest by that, and adds what cores must tell each other. No sum is divided.
//
// What it means is what the ops' reference loops mean, computed in f32 but where `products` says
// otherwise. Two things differ and are the back end's to know: a quantised weight is widened
// (x is never rounded to its kind), and an index out of range is clamped instead of refused.
//
// Refused with RN_UNSUPPORTED and the node's name: gradients and optimisers, weights that are
// changed in place, KV pages of q8_0, dtypes that StableHLO does not have.
#ifndef RN_EXCHANGE_STABLEHLO_H
#define RN_EXCHANGE_STABLEHLO_H

#include "base/arena.h"

#include <ration/graph.h>

typedef struct rn_stablehlo_options {
    uint64_t rows; // what RN_ROWS stands for; without meaning where the graph has none
    // Operands of products and of attention: NONE or F32: as they are, at the highest precision;
    // BF16 or F16: rounded to it. Sums are f32 in any case.
    rn_dtype products;
    // What weights of dtypes that StableHLO does not have (blocks, fp8) are widened to before they
    // are given: NONE or F32, BF16, F16.
    rn_dtype widened;
    // Weights of f16 and bf16 are widened, too: for compilers that would convert all of them anew
    // in every run.
    bool widen_all;
    uint64_t constant_bytes; // constants of more bytes are arguments; 0: 4096
    uint32_t partitions;     // cores that run the program together (see split); 0: 1
    // Weights that the same value is multiplied by are one argument (see parts), where there is one
    // partition.
    bool merge;
    // Kernels of convolutions are given as (K..., I, O), see turned: for compilers that would turn
    // all of them anew in every run.
    bool turn_kernels;
} rn_stablehlo_options;

#define RN_STABLEHLO_NONE UINT32_MAX

// What an argument or a result is.
typedef enum rn_stablehlo_kind {
    RN_STABLEHLO_INPUT,    // of every run
    RN_STABLEHLO_SCALAR,   // a runtime scalar of every run: f64, rank 0
    RN_STABLEHLO_WEIGHT,   // given once
    RN_STABLEHLO_CONSTANT, // given once: rn_value_info.constant
    RN_STABLEHLO_STATE,    // argument: donated; result: the state after the run
    RN_STABLEHLO_OUTPUT
} rn_stablehlo_kind;

typedef struct rn_stablehlo_entry {
    rn_stablehlo_kind kind;
    rn_value value; // of the graph: a state's is the state itself on both sides; SCALAR: its number
    rn_dtype dtype; // as the program takes or gives it; a plain type (BOOL: a byte each, 0 or 1)
    rn_shape shape; // rows bound
    uint64_t bytes; // dense, in that dtype
    // A state's argument: the number of the result that is its update; that result: the number of
    // the argument. RN_STABLEHLO_NONE for any other, and for a state that is only read.
    uint32_t alias;
    // The axis of which every partition has an equal part, in their order; RN_STABLEHLO_NONE: each
    // has all of it. Shape and bytes are of the whole.
    uint32_t split;
    // Of weights that lie one behind the other along axis 0, which is all their rows: their values,
    // in this order, `value` the first of them. NULL: it is one value.
    const rn_value *parts; // (part_count)
    uint32_t part_count;
    bool turned; // (O, I, K...) of the value is (K..., I, O) here
} rn_stablehlo_entry;

// Whether every run brings it.
static inline bool rn_stablehlo_is_of_run(const rn_stablehlo_entry *entry) {
    return entry->kind == RN_STABLEHLO_INPUT || entry->kind == RN_STABLEHLO_SCALAR;
}

typedef struct rn_stablehlo_signature {
    const rn_stablehlo_entry *arguments; // (argument_count)
    const rn_stablehlo_entry *results;   // (result_count)
    uint32_t argument_count, result_count;
} rn_stablehlo_signature;

// The program's arguments and results; `memory` owns them. RN_UNSUPPORTED as above, for what shows
// in the signature alone.
RN_MUST_USE rn_status rn_stablehlo_signature_make(const rn_graph *graph,
                                                  const rn_stablehlo_options *options,
                                                  rn_arena *memory, rn_stablehlo_signature *out);

// Whether the weight is such a kernel, and read by nothing else.
bool rn_stablehlo_is_turned(const rn_graph *graph, const rn_stablehlo_options *options,
                            rn_value weight);

// A weight's, constant's or input's plain bytes as the program takes them: copied, turned, or
// widened where the argument's dtype is not the value's. `out` has argument->bytes.
RN_MUST_USE rn_status rn_stablehlo_convert(const rn_graph *graph,
                                           const rn_stablehlo_entry *argument, const void *data,
                                           void *out);

// Writes the module. Every node's lines stand behind a comment with its name.
RN_MUST_USE rn_status rn_stablehlo_emit(const rn_graph *graph, const rn_stablehlo_options *options,
                                        rn_sink sink);

// Whether every node can be emitted; else RN_UNSUPPORTED, naming the first that cannot. For
// planners: nothing is written.
RN_MUST_USE rn_status rn_stablehlo_check(const rn_graph *graph,
                                         const rn_stablehlo_options *options);

// The node that line `line` (from 1, as compilers count) of an emitted text belongs to: its name
// and op, as in "layer 0/matmul.3 (matmul)"; empty where it belongs to none. Borrowed from `text`.
rn_str rn_stablehlo_node_at(rn_str text, uint64_t line);

#endif

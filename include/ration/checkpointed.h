// checkpointed.h — gradient checkpointing of any C function: what its backward pass needs is made
// again when it is needed, instead of being kept from the forward pass on.
//
//     rn_function layer = {.self = &weights, .forward = forward, .backward = backward,
//                          .input_count = 1, .output_count = 1, .saved_bytes = hidden_bytes};
//     rn_checkpointed *c;
//     RN_TRY(rn_checkpointed_create(&layer, &c));
//     RN_TRY(rn_checkpointed_forward(c, &x, &y));    // holds nothing but where x is
//     ...                                            // the layers behind it, and their backward
//     pass RN_TRY(rn_checkpointed_backward(c, &dy, &dx)); // forward again, then backward
//     rn_checkpointed_destroy(c);
//
// Gradients are those of the function itself, bit for bit, where it is deterministic: numbers that
// it draws must come from a seed that is its own. Memory is on the ledger (host, activations). One
// thread at a time a handle; handles are independent of each other. A graph's blocks are recomputed
// by the planner instead (rn_graph_recompute): this is for what is no graph.
#ifndef RATION_CHECKPOINTED_H
#define RATION_CHECKPOINTED_H

#include <ration/tensor.h>

RN_BEGIN_DECLS

// Dense bytes of the caller's, on the host. What they are is between him and his function.
typedef struct rn_array {
    void *data;
    uint64_t bytes;
} rn_array;

// A function with a backward pass of its own.
typedef struct rn_function {
    void *self;
    // Makes the outputs of the inputs, and fills `saved` (saved_bytes, 64-byte aligned) with what
    // the backward pass wants to find. Either may not be wanted: outputs whose data is NULL, saved
    // NULL.
    rn_status (*forward)(void *self, const rn_array *inputs /* (input_count) */,
                         const rn_array *outputs /* (output_count) */, void *saved);
    // Makes the gradients of the inputs; one whose data is NULL is not wanted.
    rn_status (*backward)(void *self, const rn_array *inputs /* (input_count) */,
                          const rn_array *out_gradients /* (output_count) */,
                          const rn_array *in_gradients /* (input_count) */, const void *saved);
    uint32_t input_count, output_count; // up to RN_FUNCTION_ARRAYS each
    uint64_t saved_bytes;               // may be 0
    uint64_t reserved[4];               // zero
} rn_function;
enum { RN_FUNCTION_ARRAYS = 16 };

typedef struct rn_checkpointed rn_checkpointed;

// A call of the function, to be used again and again. `function` is copied; its self must live on.
RN_API RN_MUST_USE rn_status rn_checkpointed_create(const rn_function *function,
                                                    rn_checkpointed **out);
// NULL-safe.
RN_API void rn_checkpointed_destroy(rn_checkpointed *call);
// From the next forward pass on. Enabled, as it is at first: nothing is saved, the backward pass
// runs forward again. Disabled: `saved` is kept from one to the other.
RN_API void rn_checkpointed_set_enabled(rn_checkpointed *call, bool enabled);
RN_API bool rn_checkpointed_enabled(const rn_checkpointed *call);
// Bytes that are held for the backward pass now.
RN_API uint64_t rn_checkpointed_held_bytes(const rn_checkpointed *call);

// The inputs' bytes must stay as they are until the backward pass; a second forward pass forgets
// the first. RN_OVER_BUDGET, RN_NO_MEMORY: there is no room for what is saved; or the function's
// own status.
RN_API RN_MUST_USE rn_status rn_checkpointed_forward(rn_checkpointed *call, const rn_array *inputs,
                                                     const rn_array *outputs);
// Once for each forward pass. RN_INVALID: there was none; else as rn_checkpointed_forward.
RN_API RN_MUST_USE rn_status rn_checkpointed_backward(rn_checkpointed *call,
                                                      const rn_array *out_gradients,
                                                      const rn_array *in_gradients);

RN_END_DECLS

#endif

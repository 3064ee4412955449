// update.h — what the ops of optimisers have in common.
//
// The last input of each is an optional number, the guard: where it is not finite, the step changes
// nothing. The norm of all gradients is such a number.
//
// Weights and states of bf16 are rounded stochastically (graph/stochastic.h): the attributes name
// the runtime scalar "seed" and the tensor's stream.
#ifndef RN_GRAPH_OP_UPDATE_H
#define RN_GRAPH_OP_UPDATE_H

#include "graph/op.h"
#include "graph/stochastic.h"

#include <math.h>
#include <string.h>

// Input 0 (f32 or bf16) and the gradient, input 1, are of one shape; the guard, if given, has one
// element. Sets output 0.
RN_MUST_USE rn_status rn_shape_update(rn_shaping *s, uint32_t guard);
// Input `input` is a state, f32 or (where `half` says so) bf16, of the weight's shape: output
// `output`.
RN_MUST_USE rn_status rn_shape_update_state(rn_shaping *s, uint32_t input, uint32_t output,
                                            bool half);

// Whether the guard, which is input `input` where there is one, forbids the step. Then the outputs
// are what the inputs were (from[i]: the input that output i is).
bool rn_update_skips(const rn_call *call, uint32_t input);
void rn_update_keep(const rn_call *call, const uint32_t *from);

// Elements [first, first + count) of a tensor of f32 or bf16, as f32; and back, bf16 with noise.
// `which` is the number's place in the noise. `words` may be NULL where the tensor is f32.
void rn_update_get(const rn_tensor *tensor, uint64_t first, uint64_t count, float *out);
void rn_update_put(const rn_tensor *tensor, uint64_t first, uint64_t count, const float *values,
                   const uint32_t *words, int which);
static inline bool rn_is_bf16(const rn_tensor *tensor) {
    return tensor->dtype == RN_DTYPE_BF16;
}
// Of the call's scalars; whole numbers.
rn_noise rn_update_noise(const rn_call *call, uint32_t seed, uint32_t step, uint32_t stream);

// The ops of <ration/graph.h> with a guard, or RN_NO_VALUE.
rn_value rn_op_adamw_guarded(rn_graph *g, rn_value weight, rn_value gradient, rn_value m,
                             rn_value v, rn_value guard, rn_adamw_attrs attrs);
rn_value rn_op_sgd_guarded(rn_graph *g, rn_value weight, rn_value gradient, rn_value velocity,
                           rn_value guard, rn_sgd_attrs attrs);
rn_value rn_op_lion_guarded(rn_graph *g, rn_value weight, rn_value gradient, rn_value m,
                            rn_value guard, rn_lion_attrs attrs);

// ---- 8-bit states -------------------------------------------------------------------------------

// bitsandbytes' block-wise optimisers: states are u8 codes of a dynamic map, with the largest
// magnitude of every 256 elements as f32 beside them (m_scale, v_scale: (blocks)).
enum { RN_STATE_BLOCK = 256 };
rn_value rn_op_adamw8(rn_graph *g, rn_value weight, rn_value gradient, const rn_value states[4],
                      rn_value guard, rn_adamw_attrs attrs);
rn_value rn_op_lion8(rn_graph *g, rn_value weight, rn_value gradient, const rn_value states[2],
                     rn_value guard, rn_lion_attrs attrs);

// ---- Adafactor, Muon ----------------------------------------------------------------------------

typedef struct rn_adafactor_attrs {
    double weight_decay;
    uint32_t rate, step; // runtime scalars
    uint32_t seed, stream;
} rn_adafactor_attrs;
// states: of a matrix (rows) and (columns); else the whole shape and RN_NO_VALUE.
rn_value rn_op_adafactor(rn_graph *g, rn_value weight, rn_value gradient, const rn_value states[2],
                         rn_value guard, rn_adafactor_attrs attrs);

typedef struct rn_average_attrs {
    float keep;
} rn_average_attrs;
// state = keep * state + (1 - keep) * x, in place; where the guard is not finite: as it was.
rn_value rn_op_average(rn_graph *g, rn_value state, rn_value x, rn_value guard,
                       rn_average_attrs attrs);

#endif

// recurrent.h — states of a fixed size a sequence, instead of keys and values a token.
//
//     state (sequences, ...) f32            rows of a run:  sequence  0  0  0  2  1  1
//     sequence 0: [ after position 41 ]                     position 42 43 44  0  7  8
//
// A row makes the state of its sequence what it is after the row's position; so the rows of one
// sequence must stand in the order of their positions, each one behind the one before, in this run
// or the last. Position 0 begins with zeros, whatever the state holds: nobody has to clear it. Rows
// of sequence -1 give zeros and change nothing.
#ifndef RN_GRAPH_RECURRENT_H
#define RN_GRAPH_RECURRENT_H

#include "graph/op.h"

// Shape rule: input `state` is an f32 state of `rank` axes; sequence and position, the last two
// inputs, have a number for each row of input 0.
RN_MUST_USE rn_status rn_recurrent_shape(const rn_shaping *s, uint32_t state, uint32_t rank);
// Whether all rows of a call may be used; RN_INVALID names `op`, the row and what is wrong with it.
RN_MUST_USE rn_status rn_recurrent_check(const rn_call *call, uint32_t state, const char *op);

// (rows) each, of a call whose last two inputs they are.
static inline const int32_t *rn_recurrent_sequence(const rn_call *call) {
    return call->inputs[call->input_count - 2].data;
}
static inline const int32_t *rn_recurrent_position(const rn_call *call) {
    return call->inputs[call->input_count - 1].data;
}

#endif

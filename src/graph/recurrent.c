// recurrent.c — checks of recurrent states.
#include "graph/recurrent.h"

rn_status rn_recurrent_shape(const rn_shaping *s, uint32_t state, uint32_t rank) {
    rn_shape rows = RN_SHAPE(s->in[0].shape.dims[0]);
    uint32_t sequence = s->input_count - 2, position = s->input_count - 1;
    RN_TRY(rn_shape_want(s, state, RN_DTYPE_F32));
    RN_TRY(rn_shape_want(s, sequence, RN_DTYPE_I32));
    RN_TRY(rn_shape_want(s, position, RN_DTYPE_I32));
    if (s->in[state].shape.rank != rank)
        return rn_shape_fail(s, "the state must have %u axes, sequences first", rank);
    if (!rn_shape_equal(s->in[sequence].shape, rows) ||
        !rn_shape_equal(s->in[position].shape, rows))
        return rn_shape_fail(s, "sequence and position must be %s", rn_shape_format(rows).text);
    return RN_OK;
}

rn_status rn_recurrent_check(const rn_call *call, uint32_t state, const char *op) {
    const int32_t *sequence = rn_recurrent_sequence(call), *position = rn_recurrent_position(call);
    uint64_t rows = call->inputs[0].shape.dims[0], most = call->inputs[state].shape.dims[0];
    for (uint64_t row = 0; row < rows; row++) {
        unsigned long long at = row;
        if (sequence[row] == -1) continue;
        if (sequence[row] < 0 || (uint64_t)sequence[row] >= most)
            return rn_fail(RN_INVALID, "%s: row %llu: sequence %d is not in 0 .. %llu", op, at,
                           sequence[row], (unsigned long long)most - 1);
        if (position[row] < 0)
            return rn_fail(RN_INVALID, "%s: row %llu: position %d is below 0", op, at,
                           position[row]);
        if (row && sequence[row - 1] == sequence[row] && position[row - 1] + 1 != position[row])
            return rn_fail(RN_INVALID, "%s: row %llu: position %d of sequence %d comes behind %d",
                           op, at, position[row], sequence[row], position[row - 1]);
    }
    return RN_OK;
}

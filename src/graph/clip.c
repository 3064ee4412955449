// clip.c — gradients within a norm, composed of ops: nothing that a planner or a back end must
// know.
#include "graph/op.h"

#include <math.h>

rn_value rn_graph_global_norm(rn_graph *g, const rn_value *gradients, uint32_t count) {
    rn_value total = RN_NO_VALUE;
    if (count == 0) {
        rn_graph_spoil(g, rn_fail(RN_INVALID, "the norm of no gradients was asked for"));
        return RN_NO_VALUE;
    }
    for (uint32_t i = 0; i < count; i++) {
        rn_value square = rn_op_sum_squares(g, gradients[i]);
        total = i == 0 ? square : rn_op_add(g, total, square);
    }
    return rn_op_sqrt(g, total);
}

rn_value rn_graph_clip(rn_graph *g, rn_value gradient, rn_value norm, float max_norm) {
    if (norm == RN_NO_VALUE) norm = rn_graph_global_norm(g, &gradient, 1);
    rn_value inverse = rn_op_pow(g, rn_op_scale(g, norm, 1, 1e-6f), -1);
    rn_value factor = rn_op_clamp(g, rn_op_scale(g, inverse, max_norm, 0), -INFINITY, 1);
    return rn_op_mul(g, gradient, factor);
}

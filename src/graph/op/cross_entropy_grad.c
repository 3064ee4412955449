// cross_entropy_grad.c — logits, targets, logsumexp, count, dloss -> d logits.
//
//     d logits = (e^(logits - logsumexp) - 1 at the target) dloss / count
// or times the run's scalar instead of / count; 0 in rows that do not count.
#include "graph/op/grads.h"
#include "graph/op/rows.h"
#include "graph/op/targets.h"

#include <math.h>

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_shape_want_rows(s));
    RN_TRY(rn_shape_want(s, 1, RN_DTYPE_I32));
    RN_TRY(rn_shape_want_shape(s, 2, "logsumexp", s->in[1].shape));
    RN_TRY(rn_shape_want_shape(s, 3, "the count", RN_SCALAR));
    RN_TRY(rn_shape_want_shape(s, 4, "dloss", RN_SCALAR));
    s->out[0].shape = s->in[0].shape;
    return RN_OK;
}

// What a row's part of the loss counts in the whole, times dloss.
static double weigh(const rn_call *call) {
    const rn_cross_entropy_attrs *attrs = call->attrs;
    const float *count = call->inputs[3].data, *dloss = call->inputs[4].data; // ()
    if (attrs->normalizer != RN_NO_SCALAR) return *dloss * call->scalars[attrs->normalizer].f64;
    return *count > 0 ? *dloss / *count : 0;
}

static rn_status reference(const rn_call *call) {
    const rn_cross_entropy_attrs *attrs = call->attrs;
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    const float *x = call->inputs[0].data;         // (rows, width)
    const int32_t *targets = call->inputs[1].data; // (rows)
    const float *logsumexp = call->inputs[2].data; // (rows)
    float *dx = call->outputs[0].data;             // (rows, width)
    double weight = weigh(call);
    for (uint64_t row = 0; row < n.rows; row++, x += n.width, dx += n.width) {
        bool counts = false;
        RN_TRY(rn_target_check(row, targets[row], attrs->ignore, n.width, &counts));
        for (uint64_t i = 0; i < n.width; i++)
            dx[i] = counts ? (float)(expf(x[i] - logsumexp[row]) * weight) : 0.0f;
        if (counts) dx[targets[row]] -= (float)weight;
    }
    return RN_OK;
}

extern const rn_op_info rn_cross_entropy_grad_op;
const rn_op_info rn_cross_entropy_grad_op = {
    .name = "cross_entropy_grad",
    .min_inputs = 5,
    .max_inputs = 5,
    .output_count = 1,
    .half_inputs = 1,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_cross_entropy_attrs),
    .traits = RN_TRAIT_EXACT,
    .alias = {RN_ALIAS_MAY(0)},
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
};

rn_value rn_op_cross_entropy_grad(rn_graph *g, rn_value logits, rn_value targets,
                                  rn_value logsumexp, rn_value count, rn_value dloss,
                                  const rn_cross_entropy_attrs *attrs) {
    return rn_graph_add(g, RN_OP_CROSS_ENTROPY_GRAD,
                        (rn_value[]){logits, targets, logsumexp, count, dloss}, 5, attrs);
}

// cross_entropy.c — how surprised the logits are by the targets: the sum over the rows of
// log(sum of e^logits) - logits[target], as a mean or times a scalar of the run.
//
// Outputs: the loss; for the gradient each row's log(sum of e^logits) and how many rows count. A
// row whose target is `ignore` does not; where none does, the loss is 0.
#include "graph/op/grads.h"
#include "graph/op/reduce.h"
#include "graph/op/rows.h"
#include "graph/op/targets.h"

#include <math.h>
#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    const rn_cross_entropy_attrs *attrs = s->attrs;
    RN_TRY(rn_shape_want_rows(s));
    RN_TRY(rn_shape_want(s, 1, RN_DTYPE_I32));
    rn_shape rows = rn_shape_without_last(s->in[0].shape);
    if (!rn_shape_equal(s->in[1].shape, rows))
        return rn_shape_fail(s, "the targets must be %s", rn_shape_format(rows).text);
    if (attrs->normalizer != RN_NO_SCALAR && attrs->normalizer >= rn_graph_scalar_count(s->graph))
        return rn_shape_fail(s, "the graph has no scalar %u", attrs->normalizer);
    s->out[1].shape = rows;
    return RN_OK;
}

static double log_sum_exp(const float *x /* (n) */, uint64_t n) {
    float largest = -INFINITY;
    double sum = 0;
    if (n == 0) return -INFINITY;
    for (uint64_t i = 0; i < n; i++)
        largest = x[i] > largest ? x[i] : largest;
    for (uint64_t i = 0; i < n; i++)
        sum += expf(x[i] - largest);
    return largest + log(sum);
}

static rn_status reference(const rn_call *call) {
    const rn_cross_entropy_attrs *attrs = call->attrs;
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    const float *logits = call->inputs[0].data;    // (rows, width)
    const int32_t *targets = call->inputs[1].data; // (rows)
    float *loss = call->outputs[0].data;           // ()
    float *logsumexp = call->outputs[1].data;      // (rows) or NULL
    float *count = call->outputs[2].data;          // () or NULL
    double sum = 0, counted = 0;
    for (uint64_t row = 0; row < n.rows; row++, logits += n.width) {
        bool counts = false;
        RN_TRY(rn_target_check(row, targets[row], attrs->ignore, n.width, &counts));
        double lse = log_sum_exp(logits, n.width);
        if (logsumexp) logsumexp[row] = (float)lse;
        if (!counts) continue;
        sum += lse - logits[targets[row]];
        counted++;
    }
    if (attrs->normalizer != RN_NO_SCALAR)
        *loss = (float)(sum * call->scalars[attrs->normalizer].f64);
    else
        *loss = counted > 0 ? (float)(sum / counted) : 0.0f;
    if (count) *count = (float)counted;
    return RN_OK;
}

static rn_status gradient(rn_backward *b) {
    const rn_node *n = &b->node;
    b->in_gradients[0] =
        rn_op_cross_entropy_grad(b->graph, n->inputs[0], n->inputs[1], n->outputs[1], n->outputs[2],
                                 b->out_gradients[0], n->attrs);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_cross_entropy_attrs *a = attrs;
    if (a->normalizer == RN_NO_SCALAR)
        snprintf(out, bytes, "mean, ignore %d", (int)a->ignore);
    else
        snprintf(out, bytes, "sum times scalar %u, ignore %d", a->normalizer, (int)a->ignore);
}

extern const rn_op_info rn_cross_entropy_op;
const rn_op_info rn_cross_entropy_op = {
    .name = "cross_entropy",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 3,
    .optional_outputs = 0x6,
    .half_inputs = 1,
    .attrs_bytes = sizeof(rn_cross_entropy_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = rn_reduce_cost,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_cross_entropy(rn_graph *g, rn_value logits, rn_value targets,
                             rn_cross_entropy_attrs attrs) {
    return rn_graph_add(g, RN_OP_CROSS_ENTROPY, (rn_value[]){logits, targets}, 2, &attrs);
}

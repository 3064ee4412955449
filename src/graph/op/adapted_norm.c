// adapted_norm.c — y (N): the norm of each row of w + scale * up down, which is never held: w (N,
// K) of any readable dtype, down (R, K), up (N, R).
//
// What DoRA divides by. It counts as a constant: no gradient flows through it, as the paper says
// (section 4.3) and PEFT does. A row is widened to f32; scale * up is multiplied by the rows of
// down in order, by fmaf; squares are summed in double. A row of zeros has the norm FLT_MIN, so
// that it can be divided by.
#include "graph/op.h"

#include "base/checked.h"
#include "graph/plain_matrix.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

enum { W, DOWN, UP };

static rn_status shape(rn_shaping *s) {
    rn_shape w = s->in[W].shape, down = s->in[DOWN].shape, up = s->in[UP].shape;
    if (!rn_plain_readable(s->in[W].dtype))
        return rn_shape_fail(s, "there is no reading %s", rn_dtype_get(s->in[W].dtype)->name);
    RN_TRY(rn_shape_want(s, DOWN, RN_DTYPE_F32));
    RN_TRY(rn_shape_want(s, UP, RN_DTYPE_F32));
    if (w.rank != 2 || down.rank != 2 || up.rank != 2 || w.dims[0] != up.dims[0] ||
        w.dims[1] != down.dims[1] || up.dims[1] != down.dims[0])
        return rn_shape_fail(s, "w must be (N, K), down (R, K), up (N, R)");
    s->out[0].shape = RN_SHAPE(w.dims[0]);
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += 2.0 * (double)rn_tensor_elements(&call->inputs[W]) *
                  (1 + (double)call->inputs[DOWN].shape.dims[0]);
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_adapted_norm_attrs *a = attrs;
    snprintf(out, bytes, "scale %g", (double)a->scale);
}

// A widened row.
static uint64_t workspace(const rn_call *call) {
    return call->inputs[W].shape.dims[1] * sizeof(float);
}

static rn_status reference(const rn_call *call) {
    const rn_adapted_norm_attrs *a = call->attrs;
    const float *down = call->inputs[DOWN].data, *up = call->inputs[UP].data;
    uint64_t rank = call->inputs[DOWN].shape.dims[0];
    float *y = call->outputs[0].data;
    rn_plain_matrix w;
    RN_TRY(rn_plain_matrix_of(&call->inputs[W], &w));
    for (uint64_t n = 0; n < w.rows; n++) {
        const float *row = rn_plain_row(&w, n, call->workspace);
        double sum = 0;
        for (uint64_t k = 0; k < w.cols; k++) {
            float value = row[k];
            for (uint64_t r = 0; r < rank; r++)
                value = fmaf(a->scale * up[n * rank + r], down[r * w.cols + k], value);
            sum += (double)value * (double)value;
        }
        y[n] = fmaxf((float)sqrt(sum), FLT_MIN);
    }
    return RN_OK;
}

extern const rn_op_info rn_adapted_norm_op;
const rn_op_info rn_adapted_norm_op = {
    .name = "adapted_norm",
    .min_inputs = 3,
    .max_inputs = 3,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_adapted_norm_attrs),
    .traits = RN_TRAIT_EXACT | RN_TRAIT_DETACHED,
    .shape = shape,
    .cost = cost,
    .workspace = workspace,
    .reference = reference,
    .print = print,
};

rn_value rn_op_adapted_norm(rn_graph *g, rn_value w, rn_value down, rn_value up,
                            rn_adapted_norm_attrs attrs) {
    return rn_graph_add(g, RN_OP_ADAPTED_NORM, (rn_value[]){w, down, up}, 3, &attrs);
}

// resize_grad.c — dy -> dx of a resized axis: each element of dy gives its taps in x their weights'
// share. Sums over dy's elements in their order, in double.
#include "graph/op/grads.h"
#include "graph/op/move.h"
#include "graph/op/number.h"
#include "graph/op/resize.h"

#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    const rn_resize_grad_attrs *attrs = s->attrs;
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_F32));
    RN_TRY(rn_shape_want_axis(s, 0, attrs->resize.axis));
    if (s->in[0].shape.dims[attrs->resize.axis] != attrs->resize.length || attrs->length == 0)
        return rn_shape_fail(s, "dy's axis %u is not the resized one", attrs->resize.axis);
    s->out[0].shape = s->in[0].shape;
    s->out[0].shape.dims[attrs->resize.axis] = attrs->length;
    return RN_OK;
}

// Each element of dy is read by its taps: a multiply-add each.
static void cost(const rn_call *call, rn_cost *out) {
    const rn_resize_grad_attrs *attrs = call->attrs;
    double taps = attrs->resize.function == RN_RESIZE_NEAREST  ? 1
                  : attrs->resize.function == RN_RESIZE_LINEAR ? 2
                                                               : 4;
    rn_cost_bytes(call, out);
    out->flops += 2 * taps * (double)rn_tensor_elements(&call->inputs[0]);
}

enum { SOME = 64 };

// Up to SOME neighbours of x behind the axis: run `index` of all.
static void spread(void *arg, size_t index) {
    const rn_call *call = arg;
    const rn_resize_grad_attrs *attrs = call->attrs;
    rn_axis_cut cut = rn_axis_cut_of(call->outputs[0].shape, attrs->resize.axis); // of dx
    uint64_t runs = (cut.inner + SOME - 1) / SOME, first = index % runs * SOME;
    uint64_t n = cut.inner - first < SOME ? cut.inner - first : SOME, outer = index / runs;
    const float *dy =
        (const float *)call->inputs[0].data + outer * attrs->resize.length * cut.inner + first;
    float *dx = (float *)call->outputs[0].data + outer * cut.length * cut.inner + first;
    // A place of x is summed while elements of dy that have it as a tap go by; they are neighbours.
    uint64_t from = 0;
    for (uint64_t at = 0; at < cut.length; at++) {
        double sums[SOME] = {0};
        bool seen = false;
        for (uint64_t i = from; i < attrs->resize.length; i++) {
            rn_resize_taps t = rn_resize_taps_of(&attrs->resize, i, cut.length);
            bool mine = false;
            for (int64_t tap = 0; !t.filled && tap < t.count; tap++) {
                if (rn_resize_tap(&t, tap) != at) continue;
                double weight = rn_resize_weight(&t, tap) / t.total;
                mine = true;
                for (uint64_t j = 0; j < n; j++)
                    sums[j] += weight * (double)dy[i * cut.inner + j];
            }
            if (mine && !seen) seen = true, from = i;
            bool beyond = !t.filled && rn_resize_tap(&t, 0) > at;
            if (beyond) break;
        }
        for (uint64_t j = 0; j < n; j++)
            dx[at * cut.inner + j] = (float)sums[j];
    }
}

static rn_status reference(const rn_call *call) {
    const rn_resize_grad_attrs *attrs = call->attrs;
    rn_axis_cut cut = rn_axis_cut_of(call->outputs[0].shape, attrs->resize.axis);
    rn_call_each(call, cut.outer * ((cut.inner + SOME - 1) / SOME), spread,
                 (void *)(uintptr_t)call);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_resize_grad_attrs *a = attrs;
    snprintf(out, bytes, "axis %u of %llu to %llu", a->resize.axis, (unsigned long long)a->length,
             (unsigned long long)a->resize.length);
}

extern const rn_op_info rn_resize_grad_op;
const rn_op_info rn_resize_grad_op = {
    .name = "resize_grad",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_resize_grad_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_resize_grad(rn_graph *g, rn_value dy, const rn_resize_grad_attrs *attrs) {
    return rn_graph_add(g, RN_OP_RESIZE_GRAD, &dy, 1, attrs);
}

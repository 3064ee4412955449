// max_pool_grad.c — dy goes to the pixel that max_pool took, found again from x; windows that take
// the same pixel add up in their order.
#include "graph/op/grads.h"
#include "graph/op/max_pool.h"

#include <string.h>

static rn_status shape(rn_shaping *s) {
    rn_shape expected = RN_SCALAR;
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_F32));
    RN_TRY(rn_shape_want(s, 1, RN_DTYPE_F32));
    RN_TRY(rn_window_pool_shape(s, s->attrs, s->in[0].shape, &expected));
    if (!rn_shape_equal(expected, s->in[1].shape))
        return rn_shape_fail(s, "dy must be %s", rn_shape_format(expected).text);
    s->out[0].shape = s->in[0].shape;
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    const rn_pool2d_attrs *a = call->attrs;
    rn_cost_bytes(call, out);
    out->flops += (double)rn_tensor_elements(&call->inputs[1]) * a->size_h * a->size_w;
}

static void spread_image(void *arg, size_t n) {
    const rn_call *call = arg;
    const rn_pool2d_attrs *a = call->attrs;
    rn_shape x = call->inputs[0].shape, y = call->inputs[1].shape;
    uint64_t pixels = x.dims[1] * x.dims[2] * x.dims[3];
    const float *image = (const float *)call->inputs[0].data + n * pixels;
    const float *dy = (const float *)call->inputs[1].data + n * y.dims[1] * y.dims[2] * y.dims[3];
    float *dx = (float *)call->outputs[0].data + n * pixels;
    memset(dx, 0, pixels * sizeof *dx);
    for (uint64_t oh = 0; oh < y.dims[1]; oh++) {
        rn_window_range high = rn_window_at(oh, a->stride_h, a->size_h, a->pad_top, x.dims[1]);
        for (uint64_t ow = 0; ow < y.dims[2]; ow++) {
            rn_window_range wide = rn_window_at(ow, a->stride_w, a->size_w, a->pad_left, x.dims[2]);
            for (uint64_t c = 0; c < x.dims[3]; c++)
                dx[rn_max_pool_pick(image, x, high, wide, c)] += *dy++;
        }
    }
}

static rn_status reference(const rn_call *call) {
    rn_call_each(call, call->outputs[0].shape.dims[0], spread_image, (void *)call);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    rn_window window = rn_window_of_pool2d(attrs);
    rn_window_print(&window, out, bytes);
}

extern const rn_op_info rn_max_pool_grad_op;
const rn_op_info rn_max_pool_grad_op = {
    .name = "max_pool_grad",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .half_inputs = 3,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_pool2d_attrs),
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_max_pool_grad(rn_graph *g, rn_value x, rn_value dy, const rn_pool2d_attrs *attrs) {
    return rn_graph_add(g, RN_OP_MAX_POOL_GRAD, (rn_value[]){x, dy}, 2, attrs);
}

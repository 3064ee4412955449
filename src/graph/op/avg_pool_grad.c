// avg_pool_grad.c — each window hands dy / size to its pixels; windows that overlap add up in their
// order.
#include "graph/op/grads.h"
#include "graph/window.h"

#include <string.h>

static rn_status shape(rn_shaping *s) {
    const rn_avg_pool_grad_attrs *a = s->attrs;
    rn_shape expected = RN_SCALAR;
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_F32));
    RN_TRY(rn_window_pool_shape(s, &a->pool, a->shape, &expected));
    if (!rn_shape_equal(expected, s->in[0].shape))
        return rn_shape_fail(s, "dy must be %s", rn_shape_format(expected).text);
    s->out[0].shape = a->shape;
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    const rn_avg_pool_grad_attrs *a = call->attrs;
    rn_cost_bytes(call, out);
    out->flops += (double)rn_tensor_elements(&call->inputs[0]) * a->pool.size_h * a->pool.size_w;
}

// One window: dy (C) goes to the pixels of dx (H, W, C).
static void spread(const rn_call *call, uint64_t oh, uint64_t ow, const float *dy, float *dx) {
    const rn_pool2d_attrs *a = &((const rn_avg_pool_grad_attrs *)call->attrs)->pool;
    rn_shape x = call->outputs[0].shape;
    float size = (float)a->size_h * (float)a->size_w;
    rn_window_range high = rn_window_at(oh, a->stride_h, a->size_h, a->pad_top, x.dims[1]);
    rn_window_range wide = rn_window_at(ow, a->stride_w, a->size_w, a->pad_left, x.dims[2]);
    for (uint64_t h = high.first; h < high.end; h++)
        for (uint64_t w = wide.first; w < wide.end; w++)
            for (uint64_t c = 0; c < x.dims[3]; c++)
                dx[(h * x.dims[2] + w) * x.dims[3] + c] += dy[c] / size;
}

static void spread_image(void *arg, size_t n) {
    const rn_call *call = arg;
    rn_shape x = call->outputs[0].shape, y = call->inputs[0].shape;
    uint64_t pixels = x.dims[1] * x.dims[2] * x.dims[3];
    const float *dy = (const float *)call->inputs[0].data + n * y.dims[1] * y.dims[2] * y.dims[3];
    float *dx = (float *)call->outputs[0].data + n * pixels;
    memset(dx, 0, pixels * sizeof *dx);
    for (uint64_t oh = 0; oh < y.dims[1]; oh++)
        for (uint64_t ow = 0; ow < y.dims[2]; ow++, dy += y.dims[3])
            spread(call, oh, ow, dy, dx);
}

static rn_status reference(const rn_call *call) {
    rn_call_each(call, call->outputs[0].shape.dims[0], spread_image, (void *)call);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    rn_window window = rn_window_of_pool2d(&((const rn_avg_pool_grad_attrs *)attrs)->pool);
    rn_window_print(&window, out, bytes);
}

extern const rn_op_info rn_avg_pool_grad_op;
const rn_op_info rn_avg_pool_grad_op = {
    .name = "avg_pool_grad",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .half_inputs = 1,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_avg_pool_grad_attrs),
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_avg_pool_grad(rn_graph *g, rn_value dy, const rn_avg_pool_grad_attrs *attrs) {
    return rn_graph_add(g, RN_OP_AVG_POOL_GRAD, &dy, 1, attrs);
}

// conv2d_grad_weight.c — every element of a kernel gets the sum over (n, oh, ow) of x * dy, in
// double, in that order.
#include "graph/op/conv2d.h"
#include "graph/op/grads.h"

static rn_status shape(rn_shaping *s) {
    const rn_conv2d_grad_weight_attrs *a = s->attrs;
    rn_shape x = s->in[0].shape, dy = s->in[1].shape, expected = RN_SCALAR;
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_F32));
    RN_TRY(rn_shape_want(s, 1, RN_DTYPE_F32));
    rn_window window = rn_window_of_conv2d(&a->conv, a->kernel_h, a->kernel_w);
    RN_TRY(rn_window_shape(s, &window, x, dy.dims[3], &expected));
    if (!rn_shape_equal(expected, dy))
        return rn_shape_fail(s, "dy must be %s", rn_shape_format(expected).text);
    s->out[0].shape = RN_SHAPE(dy.dims[3], x.dims[3], a->kernel_h, a->kernel_w);
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_conv2d_cost(call, &call->outputs[0].shape, rn_tensor_elements(&call->inputs[1]), out);
}

typedef struct backward {
    rn_conv2d conv;  // its image is x
    const float *dy; // (N, OH, OW, O)
    float *dw;       // (O, C, KH, KW)
} backward;

// dw[o, i, kh, kw]: one product for each window in which (kh, kw) lies within the image.
static double add_windows(const backward *b, uint64_t o, uint64_t i, uint64_t kh, uint64_t kw) {
    const rn_conv2d *c = &b->conv;
    const rn_window *v = &c->window;
    double sum = 0;
    for (uint64_t n = 0; n < c->y.dims[0]; n++)
        for (uint64_t oh = 0; oh < c->y.dims[1]; oh++) {
            uint64_t h = oh * v->stride_h + kh - v->pad_top; // above the image it wraps: too large
            if (h >= c->x.dims[1]) continue;
            for (uint64_t ow = 0; ow < c->y.dims[2]; ow++) {
                uint64_t w = ow * v->stride_w + kw - v->pad_left;
                if (w >= c->x.dims[2]) continue;
                sum += (double)c->image[rn_image_at(c->x, n, h, w, i)] *
                       b->dy[rn_image_at(c->y, n, oh, ow, o)];
            }
        }
    return sum;
}

static void fill_kernel(void *arg, size_t o) {
    const backward *b = arg;
    const rn_window *v = &b->conv.window;
    uint64_t channels = b->conv.x.dims[3];
    float *dw = b->dw + o * channels * v->size_h * v->size_w;
    for (uint64_t i = 0; i < channels; i++)
        for (uint64_t kh = 0; kh < v->size_h; kh++)
            for (uint64_t kw = 0; kw < v->size_w; kw++)
                *dw++ = (float)add_windows(b, o, i, kh, kw);
}

static rn_status reference(const rn_call *call) {
    const rn_conv2d_grad_weight_attrs *a = call->attrs;
    const rn_tensor *x = &call->inputs[0], *dy = &call->inputs[1];
    backward b = {.conv = {.window = rn_window_of_conv2d(&a->conv, a->kernel_h, a->kernel_w),
                           .x = x->shape,
                           .y = dy->shape,
                           .image = x->data},
                  .dy = dy->data,
                  .dw = call->outputs[0].data};
    rn_call_each(call, dy->shape.dims[3], fill_kernel, &b);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    rn_conv2d_print(&((const rn_conv2d_grad_weight_attrs *)attrs)->conv, out, bytes);
}

extern const rn_op_info rn_conv2d_grad_weight_op;
const rn_op_info rn_conv2d_grad_weight_op = {
    .name = "conv2d_grad_weight",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .half_inputs = 3,
    .attrs_bytes = sizeof(rn_conv2d_grad_weight_attrs),
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_conv2d_grad_weight(rn_graph *g, rn_value x, rn_value dy,
                                  const rn_conv2d_grad_weight_attrs *attrs) {
    return rn_graph_add(g, RN_OP_CONV2D_GRAD_WEIGHT, (rn_value[]){x, dy}, 2, attrs);
}

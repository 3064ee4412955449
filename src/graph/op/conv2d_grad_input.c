// conv2d_grad_input.c — every pixel of x gets the sum, over the windows that hold it, of dy * w.
// For each pixel the sum over (oh, ow, o) is in double, in that order.
#include "graph/op/conv2d.h"
#include "graph/op/grads.h"

static rn_status shape(rn_shaping *s) {
    const rn_conv2d_grad_input_attrs *a = s->attrs;
    rn_shape w = s->in[0].shape, expected = RN_SCALAR;
    RN_TRY(rn_conv2d_check_weight(s, 0));
    RN_TRY(rn_shape_want(s, 1, RN_DTYPE_F32));
    rn_window window = rn_window_of_conv2d(&a->conv, w.dims[2], w.dims[3]);
    RN_TRY(rn_window_shape(s, &window, a->shape, w.dims[0], &expected));
    if (a->shape.dims[3] != w.dims[1] || !rn_shape_equal(expected, s->in[1].shape))
        return rn_shape_fail(s, "dy of x %s must be %s", rn_shape_format(a->shape).text,
                             rn_shape_format(expected).text);
    s->out[0].shape = a->shape;
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_conv2d_cost(call, &call->inputs[0].shape, rn_tensor_elements(&call->inputs[1]), out);
}

// The windows [first, end) along an axis that hold element `at` of the image.
typedef struct places {
    uint64_t first, end;
} places;

static places holding(uint64_t at, uint64_t stride, uint64_t size, uint64_t pad, uint64_t count) {
    uint64_t padded = at + pad;
    uint64_t first = padded < size ? 0 : (padded - size) / stride + 1;
    uint64_t end = padded / stride + 1;
    return (places){first, end < count ? end : count};
}

typedef struct backward {
    rn_conv2d conv; // its image is dy
    float *dx;      // (N, H, W, C)
} backward;

static double add_pixel(const rn_conv2d *c, uint64_t n, uint64_t h, uint64_t w, uint64_t i) {
    const rn_window *v = &c->window;
    places high = holding(h, v->stride_h, v->size_h, v->pad_top, c->y.dims[1]);
    places wide = holding(w, v->stride_w, v->size_w, v->pad_left, c->y.dims[2]);
    double sum = 0;
    for (uint64_t oh = high.first; oh < high.end; oh++)
        for (uint64_t ow = wide.first; ow < wide.end; ow++) {
            uint64_t kh = h + v->pad_top - oh * v->stride_h;
            uint64_t kw = w + v->pad_left - ow * v->stride_w;
            for (uint64_t o = 0; o < c->y.dims[3]; o++)
                sum += (double)c->image[rn_image_at(c->y, n, oh, ow, o)] *
                       rn_conv2d_weight_at(c, o, i, kh, kw);
        }
    return sum;
}

// Row `index` of all rows of dx: (n, h).
static void fill_row(void *arg, size_t index) {
    const backward *b = arg;
    rn_shape x = b->conv.x;
    uint64_t n = index / x.dims[1], h = index % x.dims[1];
    for (uint64_t w = 0; w < x.dims[2]; w++)
        for (uint64_t i = 0; i < x.dims[3]; i++)
            b->dx[rn_image_at(x, n, h, w, i)] = (float)add_pixel(&b->conv, n, h, w, i);
}

static rn_status reference(const rn_call *call) {
    const rn_conv2d_grad_input_attrs *a = call->attrs;
    const rn_tensor *w = &call->inputs[0], *dy = &call->inputs[1], *dx = &call->outputs[0];
    backward b = {
        .conv = {.window = rn_window_of_conv2d(&a->conv, w->shape.dims[2], w->shape.dims[3]),
                 .x = dx->shape,
                 .y = dy->shape,
                 .image = dy->data,
                 .weight = *w},
        .dx = dx->data};
    rn_call_each(call, dx->shape.dims[0] * dx->shape.dims[1], fill_row, &b);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    rn_conv2d_print(&((const rn_conv2d_grad_input_attrs *)attrs)->conv, out, bytes);
}

extern const rn_op_info rn_conv2d_grad_input_op;
const rn_op_info rn_conv2d_grad_input_op = {
    .name = "conv2d_grad_input",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .half_inputs = 2,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_conv2d_grad_input_attrs),
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_conv2d_grad_input(rn_graph *g, rn_value w, rn_value dy,
                                 const rn_conv2d_grad_input_attrs *attrs) {
    return rn_graph_add(g, RN_OP_CONV2D_GRAD_INPUT, (rn_value[]){w, dy}, 2, attrs);
}

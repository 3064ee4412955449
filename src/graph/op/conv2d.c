// conv2d.c — y[n, oh, ow, o] = bias[o] + sum over (kh, kw, c) of x[n, h, w, c] * w[o, c, kh, kw],
// where h = oh * stride - pad + kh. The sum is in double, in that order, rounded to f32 at the end.
#include "graph/op/conv2d.h"
#include "graph/op/grads.h"

static rn_status shape(rn_shaping *s) {
    rn_shape x = s->in[0].shape, w = s->in[1].shape;
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_F32));
    RN_TRY(rn_conv2d_check_weight(s, 1));
    rn_window window = rn_window_of_conv2d(s->attrs, w.dims[2], w.dims[3]);
    RN_TRY(rn_window_shape(s, &window, x, w.dims[0], &s->out[0].shape));
    if (x.dims[3] != w.dims[1])
        return rn_shape_fail(s, "x has %llu channels, the kernels have %llu",
                             (unsigned long long)x.dims[3], (unsigned long long)w.dims[1]);
    if (s->in[2].dtype == RN_DTYPE_NONE) return RN_OK;
    RN_TRY(rn_shape_want(s, 2, RN_DTYPE_F32));
    if (!rn_shape_equal(s->in[2].shape, RN_SHAPE(w.dims[0])))
        return rn_shape_fail(s, "bias must be (O), O is %llu", (unsigned long long)w.dims[0]);
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_conv2d_cost(call, &call->inputs[1].shape, rn_tensor_elements(&call->outputs[0]), out);
}

static rn_status gradient(rn_backward *b) {
    rn_graph *g = b->graph;
    rn_value x = b->node.inputs[0], w = b->node.inputs[1], dy = b->out_gradients[0];
    const rn_conv2d_attrs *a = b->node.attrs;
    rn_shape kernel = rn_graph_value(g, w)->shape;
    if (b->wanted[0])
        b->in_gradients[0] = rn_op_conv2d_grad_input(
            g, w, dy, &(rn_conv2d_grad_input_attrs){*a, rn_graph_value(g, x)->shape});
    if (b->wanted[1])
        b->in_gradients[1] = rn_op_conv2d_grad_weight(
            g, x, dy, &(rn_conv2d_grad_weight_attrs){*a, kernel.dims[2], kernel.dims[3]});
    if (b->wanted[2]) b->in_gradients[2] = rn_op_sum(g, dy, 7, false);
    return RN_OK;
}

static double add_window(const rn_conv2d *c, uint64_t n, uint64_t o, rn_window_range high,
                         rn_window_range wide) {
    double sum = 0;
    for (uint64_t h = high.first; h < high.end; h++)
        for (uint64_t w = wide.first; w < wide.end; w++) {
            uint64_t kh = h - high.first + high.skipped, kw = w - wide.first + wide.skipped;
            for (uint64_t i = 0; i < c->x.dims[3]; i++)
                sum += (double)c->image[rn_image_at(c->x, n, h, w, i)] *
                       rn_conv2d_weight_at(c, o, i, kh, kw);
        }
    return sum;
}

typedef struct forward {
    rn_conv2d conv;
    const float *bias; // (O) or NULL
    float *y;          // (N, OH, OW, O)
} forward;

// Row `index` of all rows of y: (n, oh).
static void convolve_row(void *arg, size_t index) {
    const forward *f = arg;
    const rn_conv2d *c = &f->conv;
    uint64_t n = index / c->y.dims[1], oh = index % c->y.dims[1];
    rn_window_range high = rn_conv2d_rows(c, oh);
    for (uint64_t ow = 0; ow < c->y.dims[2]; ow++)
        for (uint64_t o = 0; o < c->y.dims[3]; o++) {
            double sum = add_window(c, n, o, high, rn_conv2d_cols(c, ow));
            f->y[rn_image_at(c->y, n, oh, ow, o)] = (float)(f->bias ? sum + f->bias[o] : sum);
        }
}

static rn_status reference(const rn_call *call) {
    const rn_tensor *x = &call->inputs[0], *w = &call->inputs[1], *y = &call->outputs[0];
    forward f = {
        .conv = {.window = rn_window_of_conv2d(call->attrs, w->shape.dims[2], w->shape.dims[3]),
                 .x = x->shape,
                 .y = y->shape,
                 .image = x->data,
                 .weight = *w},
        .bias = call->inputs[2].data,
        .y = y->data};
    rn_call_each(call, y->shape.dims[0] * y->shape.dims[1], convolve_row, &f);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    rn_conv2d_print(attrs, out, bytes);
}

extern const rn_op_info rn_conv2d_op;
const rn_op_info rn_conv2d_op = {
    .name = "conv2d",
    .min_inputs = 3,
    .max_inputs = 3,
    .optional_inputs = 1u << 2,
    .output_count = 1,
    .half_inputs = 1,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_conv2d_attrs),
    .shape = shape,
    .cost = cost,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_conv2d(rn_graph *g, rn_value x, rn_value w, rn_value bias, rn_conv2d_attrs attrs) {
    return rn_graph_add(g, RN_OP_CONV2D, (rn_value[]){x, w, bias}, 3, &attrs);
}

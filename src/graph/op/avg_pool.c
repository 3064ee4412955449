// avg_pool.c — the sum of a window over its size, padding counted as zeros. In double, row by row.
#include "graph/op/grads.h"
#include "graph/window.h"

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_F32));
    return rn_window_pool_shape(s, s->attrs, s->in[0].shape, &s->out[0].shape);
}

static void cost(const rn_call *call, rn_cost *out) {
    const rn_pool2d_attrs *a = call->attrs;
    rn_cost_bytes(call, out);
    out->flops += (double)rn_tensor_elements(&call->outputs[0]) * a->size_h * a->size_w;
}

static rn_status gradient(rn_backward *b) {
    const rn_pool2d_attrs *a = b->node.attrs;
    rn_shape x = rn_graph_value(b->graph, b->node.inputs[0])->shape;
    b->in_gradients[0] =
        rn_op_avg_pool_grad(b->graph, b->out_gradients[0], &(rn_avg_pool_grad_attrs){*a, x});
    return RN_OK;
}

// Row `index` of all rows of y: (n, oh).
static void pool_row(void *arg, size_t index) {
    const rn_call *call = arg;
    const rn_pool2d_attrs *a = call->attrs;
    rn_shape x = call->inputs[0].shape, y = call->outputs[0].shape;
    uint64_t n = index / y.dims[1], oh = index % y.dims[1], channels = x.dims[3];
    const float *image = (const float *)call->inputs[0].data + n * x.dims[1] * x.dims[2] * channels;
    float *out = (float *)call->outputs[0].data + index * y.dims[2] * channels; // (OW, C)
    rn_window_range high = rn_window_at(oh, a->stride_h, a->size_h, a->pad_top, x.dims[1]);
    for (uint64_t ow = 0; ow < y.dims[2]; ow++) {
        rn_window_range wide = rn_window_at(ow, a->stride_w, a->size_w, a->pad_left, x.dims[2]);
        for (uint64_t c = 0; c < channels; c++) {
            double sum = 0;
            for (uint64_t h = high.first; h < high.end; h++)
                for (uint64_t w = wide.first; w < wide.end; w++)
                    sum += image[(h * x.dims[2] + w) * channels + c];
            *out++ = (float)(sum / ((double)a->size_h * a->size_w));
        }
    }
}

static rn_status reference(const rn_call *call) {
    rn_shape y = call->outputs[0].shape;
    rn_call_each(call, y.dims[0] * y.dims[1], pool_row, (void *)call);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    rn_window window = rn_window_of_pool2d(attrs);
    rn_window_print(&window, out, bytes);
}

extern const rn_op_info rn_avg_pool_op;
const rn_op_info rn_avg_pool_op = {
    .name = "avg_pool",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .half_inputs = 1,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_pool2d_attrs),
    .shape = shape,
    .cost = cost,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_avg_pool(rn_graph *g, rn_value x, rn_pool2d_attrs attrs) {
    return rn_graph_add(g, RN_OP_AVG_POOL, &x, 1, &attrs);
}

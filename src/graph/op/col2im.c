// col2im.c — windows that were laid out as columns, added up where they overlap: x (N, C * block,
// windows) -> (N, C, image...).
#include "graph/op/spatial.h"

#include <string.h>

static rn_spatial_windows windows_of(const rn_col2im_attrs *a) {
    return (rn_spatial_windows){a->stride,
                                a->dilation,
                                a->pad_before,
                                a->pad_after,
                                {a->block[0], a->block[1], a->block[2]},
                                false};
}

// The image as (N, S..., C), as windows are counted.
static rn_shape image_of(const rn_col2im_attrs *a, uint64_t n, uint64_t channels) {
    rn_shape image = {.rank = a->rank + 2, .dims = {n}};
    for (uint32_t i = 0; i < a->rank; i++)
        image.dims[1 + i] = a->image[i];
    image.dims[1 + a->rank] = channels;
    return image;
}

static rn_status shape(rn_shaping *s) {
    const rn_col2im_attrs *a = s->attrs;
    rn_shape x = s->in[0].shape, made, *out = &s->out[0].shape;
    RN_TRY(rn_shape_want_float(s, 0));
    if (x.rank != 3 || a->rank == 0 || a->rank > RN_MAX_SPATIAL)
        return rn_shape_fail(s, "x is (N, C * block, windows), the image has 1 to 3 axes");
    uint64_t block = 1, windows = 1;
    for (uint32_t i = 0; i < a->rank; i++) {
        if (a->block[i] == 0 || a->block[i] > UINT16_MAX) return rn_shape_fail(s, "the block");
        block *= a->block[i];
    }
    if (x.dims[1] % block) return rn_shape_fail(s, "the channels are not in whole blocks");
    rn_shape image = image_of(a, x.dims[0], x.dims[1] / block);
    rn_spatial_windows w = windows_of(a);
    RN_TRY(rn_spatial_shape(s, image, &w, 1, &made));
    made.dims[0] = 1;
    windows = rn_shape_elements(made, 1);
    if (windows != x.dims[2])
        return rn_shape_fail(s, "the image has %llu windows", (unsigned long long)windows);
    *out = image;
    out->dims[1] = x.dims[1] / block;
    for (uint32_t i = 0; i < a->rank; i++)
        out->dims[2 + i] = a->image[i];
    s->out[0].dtype = s->in[0].dtype;
    return RN_OK;
}

// Element `at` of one channel's image: the windows that have it, in order.
static double sum_windows(const rn_call *call, const rn_spatial *s, uint64_t channel, uint64_t at) {
    uint64_t elements = rn_spatial_pixels(s->size), windows = rn_spatial_pixels(s->out);
    double sum = 0;
    for (uint64_t w = 0; w < windows; w++) {
        uint64_t place[RN_MAX_SPATIAL], pixel;
        rn_spatial_place(s, w, place);
        for (uint64_t e = 0; e < elements; e++)
            if (rn_spatial_find(s, place, e, &pixel) && pixel == at)
                sum += rn_real_at(&call->inputs[0], (channel * elements + e) * windows + w);
    }
    return sum;
}

static void make_channel(void *arg, size_t channel) {
    const rn_call *call = arg;
    const rn_col2im_attrs *a = call->attrs;
    rn_shape y = call->outputs[0].shape, image = image_of(a, y.dims[0], y.dims[1]), made = image;
    rn_spatial_windows w = windows_of(a);
    for (uint32_t i = 0; i < a->rank; i++) {
        uint64_t d = a->dilation[i] ? a->dilation[i] : 1, stride = a->stride[i] ? a->stride[i] : 1;
        uint64_t padded = a->image[i] + a->pad_before[i] + a->pad_after[i];
        made.dims[1 + i] = (padded - d * (a->block[i] - 1) - 1) / stride + 1;
    }
    rn_spatial s = rn_spatial_of(image, made, &w);
    uint64_t pixels = rn_spatial_pixels(s.in);
    for (uint64_t at = 0; at < pixels; at++)
        rn_real_put(&call->outputs[0], channel * pixels + at, sum_windows(call, &s, channel, at));
}

static rn_status reference(const rn_call *call) {
    rn_shape y = call->outputs[0].shape;
    rn_call_each(call, y.dims[0] * y.dims[1], make_channel, (void *)(uintptr_t)call);
    return RN_OK;
}

extern const rn_op_info rn_col2im_op;
const rn_op_info rn_col2im_op = {
    .name = "col2im",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_col2im_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
};

rn_value rn_op_col2im(rn_graph *g, rn_value x, rn_col2im_attrs attrs) {
    return rn_graph_add(g, RN_OP_COL2IM, &x, 1, &attrs);
}

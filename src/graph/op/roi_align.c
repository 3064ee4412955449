// roi_align.c — regions of images (N, C, H, W) as grids of one size: each place is the mean or the
// largest of points between pixels.
#include "graph/op/number.h"

#include <math.h>
#include <stdio.h>

enum { X, REGIONS, BATCH };

static rn_status shape(rn_shaping *s) {
    const rn_roi_align_attrs *a = s->attrs;
    rn_shape x = s->in[X].shape, regions = s->in[REGIONS].shape;
    RN_TRY(rn_shape_want(s, X, RN_DTYPE_F32));
    RN_TRY(rn_shape_want(s, REGIONS, RN_DTYPE_F32));
    RN_TRY(rn_shape_want_index(s, BATCH));
    if (x.rank != 4 || regions.rank != 2 || regions.dims[1] != 4)
        return rn_shape_fail(s, "x is (N, C, H, W), regions are (R, 4)");
    if (!rn_shape_equal(s->in[BATCH].shape, RN_SHAPE(regions.dims[0])))
        return rn_shape_fail(s, "there is one image a region");
    if (a->height == 0 || a->width == 0) return rn_shape_fail(s, "regions of no size");
    s->out[0].shape = RN_SHAPE(regions.dims[0], x.dims[1], a->height, a->width);
    return RN_OK;
}

// One region: where it begins in x, how large a place of the result is, points a side.
typedef struct region {
    double top, left, high, wide;
    double points_h, points_w;
} region;

static region region_at(const rn_roi_align_attrs *a, const float *r /* (4) */) {
    double half = a->half_pixel ? 0.5 : 0;
    double left = r[0] * a->scale - half, top = r[1] * a->scale - half;
    double wide = r[2] * a->scale - half - left, high = r[3] * a->scale - half - top;
    if (!a->half_pixel) wide = fmax(wide, 1), high = fmax(high, 1);
    region g = {top, left, high / a->height, wide / a->width, a->sampling, a->sampling};
    if (a->sampling == 0) g.points_h = ceil(g.high), g.points_w = ceil(g.wide);
    g.points_h = fmin(g.points_h, 4096); // a region of any size ends
    g.points_w = fmin(g.points_w, 4096);
    return g;
}

// Between its four pixels: the weighted ones, and their sum and largest. False: outside of x.
static void sample(const float *image, uint64_t height, uint64_t width, double y, double x,
                   double out[4]) {
    out[0] = out[1] = out[2] = out[3] = 0;
    if (!(y >= -1 && y <= (double)height && x >= -1 && x <= (double)width)) return;
    y = fmax(y, 0), x = fmax(x, 0);
    uint64_t y0 = (uint64_t)y, x0 = (uint64_t)x, y1 = y0 + 1, x1 = x0 + 1;
    if (y0 >= height - 1) y0 = y1 = height - 1, y = (double)y0;
    if (x0 >= width - 1) x0 = x1 = width - 1, x = (double)x0;
    double ly = y - (double)y0, lx = x - (double)x0;
    out[0] = (1 - ly) * (1 - lx) * (double)image[y0 * width + x0];
    out[1] = (1 - ly) * lx * (double)image[y0 * width + x1];
    out[2] = ly * (1 - lx) * (double)image[y1 * width + x0];
    out[3] = ly * lx * (double)image[y1 * width + x1];
}

static float fold(const rn_call *call, const region *g, const float *image, uint64_t row,
                  uint64_t column) {
    const rn_roi_align_attrs *a = call->attrs;
    rn_shape x = call->inputs[X].shape;
    double sum = 0, largest = -INFINITY, count = fmax(g->points_h * g->points_w, 1);
    for (double i = 0; i < g->points_h; i++)
        for (double j = 0; j < g->points_w; j++) {
            double four[4],
                at_y = g->top + (double)row * g->high + (i + 0.5) * g->high / g->points_h;
            double at_x = g->left + (double)column * g->wide + (j + 0.5) * g->wide / g->points_w;
            sample(image, x.dims[2], x.dims[3], at_y, at_x, four);
            for (int k = 0; k < 4; k++) {
                sum += four[k];
                largest = fmax(largest, four[k]);
            }
        }
    if (a->max) return isfinite(largest) ? (float)largest : 0;
    return (float)(sum / count);
}

static rn_status reference(const rn_call *call) {
    const rn_roi_align_attrs *a = call->attrs;
    rn_shape x = call->inputs[X].shape;
    uint64_t count = call->inputs[REGIONS].shape.dims[0], image = x.dims[2] * x.dims[3];
    float *y = call->outputs[0].data; // (R, C, height, width)
    for (uint64_t r = 0; r < count; r++) {
        uint64_t n;
        region g = region_at(a, (const float *)call->inputs[REGIONS].data + 4 * r);
        RN_TRY(rn_index_at(call, BATCH, r, x.dims[0], &n));
        for (uint64_t c = 0; c < x.dims[1]; c++)
            for (uint64_t row = 0; row < a->height; row++)
                for (uint64_t column = 0; column < a->width; column++)
                    *y++ = fold(call, &g,
                                (const float *)call->inputs[X].data + (n * x.dims[1] + c) * image,
                                row, column);
    }
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += 64.0 * (double)rn_tensor_elements(&call->outputs[0]);
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_roi_align_attrs *a = attrs;
    snprintf(out, bytes, "%s, %ux%u", a->max ? "max" : "mean", a->height, a->width);
}

extern const rn_op_info rn_roi_align_op;
const rn_op_info rn_roi_align_op = {
    .name = "roi_align",
    .min_inputs = 3,
    .max_inputs = 3,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_roi_align_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_roi_align(rn_graph *g, rn_value x, rn_value regions, rn_value batch,
                         rn_roi_align_attrs attrs) {
    return rn_graph_add(g, RN_OP_ROI_ALIGN, (rn_value[]){x, regions, batch}, 3, &attrs);
}

// conv.c — convolutions: which kernels, and what they need beside their operands.
//
//     x of 16 bits ─ (channels in whole eights) ─▶ boxes on matrix units (conv_boxes.c)
//     w ─ conv_weights, channels last, x's type ──▶ workspace ──▶
//     else: f32 multiply-adds (kernels/conv_plain.cu)
//
// The workspace is the weights in another order, x with its channels filled up to whole eights
// where they are not, and the sums of splits.
#include "backend/cuda/conv.h"
#include "backend/cuda/rows.h"

#include "base/checked.h"
#include "graph/op/conv.h"
#include "graph/op/grads.h"

#include <string.h>

enum { PART_ALIGN = 256, SIDE_MOST = 1 << 14 };

// ---- what is asked ------------------------------------------------------------------------------

static void read_axes(const rn_conv_attrs *attrs, rn_shape image, rn_shape made,
                      const uint64_t *kernel, rn_conv_sizes *out) {
    uint32_t axes = image.rank - 2;
    out->batch = image.dims[0];
    for (uint32_t i = 0; i < RN_CONV_AXES; i++) {
        out->in[i] = out->out[i] = out->size[i] = 1;
        out->stride[i] = out->dilation[i] = 1;
        out->before[i] = 0;
    }
    for (uint32_t i = 0; i < axes; i++) {
        uint32_t to = RN_CONV_AXES - axes + i;
        out->in[to] = image.dims[1 + i];
        out->out[to] = made.dims[1 + i];
        out->size[to] = kernel[i];
        out->stride[to] = attrs->stride[i] ? (int32_t)attrs->stride[i] : 1;
        out->dilation[to] = attrs->dilation[i] ? (int32_t)attrs->dilation[i] : 1;
        out->before[to] = (int32_t)attrs->pad_before[i];
    }
}

static bool is_countable(const rn_conv_sizes *of) {
    bool fine = of->batch <= INT32_MAX && of->channels_each <= 1 << 24 &&
                of->outputs_each <= 1 << 24 && of->groups <= 1 << 24;
    for (uint32_t i = 0; i < RN_CONV_AXES; i++)
        fine = fine && of->in[i] <= 1 << 24 && of->out[i] <= 1 << 24 && of->size[i] <= 1 << 10 &&
               of->stride[i] <= 1 << 10 && of->dilation[i] <= 1 << 10 && of->before[i] <= 1 << 20;
    return fine && rn_div_up(rn_conv_pixels(of), RN_CONV_PLAIN_PIXELS) <= INT32_MAX;
}

rn_status rn_conv_read(const rn_call *call, rn_conv_sizes *out) {
    const rn_conv2d_grad_input_attrs *by_x = call->attrs;
    const rn_conv2d_grad_weight_attrs *by_w = call->attrs;
    rn_conv_attrs attrs;
    rn_shape image = call->inputs[0].shape, made = call->outputs[0].shape, w;
    if (call->op == RN_OP_CONV2D_GRAD_INPUT) {
        attrs = rn_conv_from_conv2d(&by_x->conv);
        w = call->inputs[0].shape, image = call->outputs[0].shape, made = call->inputs[1].shape;
    } else if (call->op == RN_OP_CONV_TRANSPOSE) {
        attrs = ((const rn_conv_transpose_attrs *)call->attrs)->conv;
        w = call->inputs[1].shape, image = call->outputs[0].shape, made = call->inputs[0].shape;
    } else if (call->op == RN_OP_CONV2D_GRAD_WEIGHT || call->op == RN_OP_CONV_GRAD_WEIGHT) {
        attrs = call->op == RN_OP_CONV_GRAD_WEIGHT
                    ? ((const rn_conv_grad_weight_attrs *)call->attrs)->conv
                    : rn_conv_from_conv2d(&by_w->conv);
        w = call->outputs[0].shape, made = call->inputs[1].shape;
    } else {
        attrs = call->op == RN_OP_CONV2D ? rn_conv_from_conv2d(call->attrs)
                                         : *(const rn_conv_attrs *)call->attrs;
        w = call->inputs[1].shape;
    }
    *out = (rn_conv_sizes){.groups = attrs.groups ? attrs.groups : 1};
    out->channels_each = image.dims[image.rank - 1] / out->groups;
    out->outputs_each = w.dims[0] / out->groups;
    read_axes(&attrs, image, made, &w.dims[2], out);
    if (!is_countable(out))
        return rn_fail(RN_UNSUPPORTED, "CUDA: %s of %s is too large", rn_op_name(call->op),
                       rn_shape_format(image).text);
    return RN_OK;
}

uint64_t rn_conv_kernel(const rn_conv_sizes *of) {
    return of->size[0] * of->size[1] * of->size[2];
}

uint64_t rn_conv_pixels(const rn_conv_sizes *of) {
    return of->batch * of->out[0] * of->out[1] * of->out[2];
}

bool rn_conv_suits_boxes(const rn_conv_sizes *of) {
    bool flat = of->in[0] == 1 && of->out[0] == 1 && of->size[0] == 1 && of->before[0] == 0;
    bool small = of->in[1] <= SIDE_MOST && of->in[2] <= SIDE_MOST && of->out[1] <= SIDE_MOST &&
                 of->out[2] <= SIDE_MOST && of->before[1] <= SIDE_MOST &&
                 of->before[2] <= SIDE_MOST;
    return flat && small && rn_conv_kernel(of) <= RN_CONV_TAPS && of->stride[1] <= 8 &&
           of->stride[2] <= 8;
}

rn_status rn_conv_order_weights(const rn_call *call, const rn_tensor *w, const rn_conv_sizes *of,
                                rn_conv_weights_args *args) {
    RN_TRY(rn_cuda_value_type(call, w, &args->type));
    args->w = w->data;
    args->channels_last = w->layout == RN_LAYOUT_CONV_CHANNELS;
    args->outputs_each = (uint32_t)of->outputs_each;
    args->channels_each = (uint32_t)of->channels_each;
    args->kernel = (uint32_t)rn_conv_kernel(of);
    args->groups = (uint32_t)of->groups;
    bool along = args->turned == args->plain;
    if (args->row == 0) args->row = (uint32_t)(along ? of->channels_each : of->outputs_each);
    if (along)
        return rn_cuda_launch(
            call, RN_CUDA_CONV_WEIGHTS_ALONG,
            rn_cuda_spread(call, of->outputs_each * of->groups * rn_div_up(args->row, 8)), args);
    uint64_t tiles =
        rn_div_up(of->outputs_each, 32) * rn_div_up(of->channels_each * args->kernel, 32);
    rn_cuda_grid grid = {(uint32_t)rn_min_u64(tiles, 1 << 16),
                         (uint32_t)rn_min_u64(of->groups, 65535), 1, .threads = RN_ROWS_THREADS,
                         .early = true};
    if (of->groups > 65535)
        return rn_fail(RN_UNSUPPORTED, "CUDA: a convolution of %llu groups is too large",
                       (unsigned long long)of->groups);
    return rn_cuda_launch(call, RN_CUDA_CONV_WEIGHTS_ACROSS, grid, args);
}

// ---- plain sums in parts ------------------------------------------------------------------------

// By the sizes of an image alone, so that its bits do not depend on the others.
static uint32_t count_splits(const rn_conv_sizes *of, bool turned) {
    enum { IMAGES = 2, BLOCKS_WANTED = 264, STEPS_LEAST = 8, SPLITS_MOST = 16 };
    const uint64_t *made = turned ? of->in : of->out;
    uint64_t channels = turned ? of->outputs_each : of->channels_each;
    uint64_t outputs = turned ? of->channels_each : of->outputs_each;
    uint64_t pixels = IMAGES * made[0] * made[1] * made[2];
    uint64_t blocks = rn_div_up(pixels, RN_CONV_PLAIN_PIXELS) *
                      rn_div_up(outputs, RN_CONV_PLAIN_OUTPUTS) * of->groups;
    uint64_t steps = rn_conv_kernel(of) * rn_div_up(channels, RN_CONV_PLAIN_STEP);
    uint64_t splits = rn_min_u64(BLOCKS_WANTED / rn_max_u64(blocks, 1), steps / STEPS_LEAST);
    return (uint32_t)rn_max_u64(rn_min_u64(splits, SPLITS_MOST), 1);
}

static uint64_t plain_partial_bytes(const rn_conv_sizes *of, bool turned) {
    const uint64_t *made = turned ? of->in : of->out;
    uint64_t outputs = (turned ? of->channels_each : of->outputs_each) * of->groups;
    uint32_t splits = count_splits(of, turned);
    if (splits == 1) return 0;
    return of->batch * made[0] * made[1] * made[2] * outputs * splits * sizeof(float);
}

// ---- forward ------------------------------------------------------------------------------------

// What a forward convolution has in its workspace, in this order.
typedef struct forward_parts {
    bool boxes;        // on matrix units, where the device has them
    bool orders;       // the weights are not as they should be
    uint64_t channels; // of a group, in whole eights
    uint64_t weight_bytes, image_bytes, partial_bytes;
} forward_parts;

static void describe(const rn_call *call, const rn_conv_sizes *of, uint64_t channels,
                     rn_conv_product *out) {
    *out = (rn_conv_product){.type = call->inputs[0].dtype,
                             .x = call->inputs[0].data,
                             .w = call->inputs[1].data,
                             .batch = of->batch,
                             .in_h = of->in[1],
                             .in_w = of->in[2],
                             .out_h = of->out[1],
                             .out_w = of->out[2],
                             .channels = channels,
                             .outputs = of->outputs_each,
                             .groups = of->groups,
                             .stride_h = (uint32_t)of->stride[1],
                             .stride_w = (uint32_t)of->stride[2],
                             .taps = (uint32_t)rn_conv_kernel(of),
                             .bias = &call->inputs[2],
                             .y_type = call->outputs[0].dtype,
                             .y = call->outputs[0].data};
    out->y_w = of->outputs_each * of->groups;
    out->y_h = out->y_w * of->out[2];
    out->y_n = out->y_h * of->out[1];
    for (uint32_t i = 0; i < out->taps; i++) {
        int32_t h = (int32_t)(i / of->size[2]), w = (int32_t)(i % of->size[2]);
        out->tap_h[i] = (int16_t)(h * of->dilation[1] - of->before[1]);
        out->tap_w[i] = (int16_t)(w * of->dilation[2] - of->before[2]);
    }
}

static forward_parts divide(const rn_call *call, const rn_conv_sizes *of) {
    const rn_tensor *x = &call->inputs[0], *w = &call->inputs[1];
    bool half = rn_cuda_is_half(x->dtype);
    uint64_t width = half ? sizeof(uint16_t) : sizeof(float);
    forward_parts parts = {.channels = rn_round_up(of->channels_each, 8)};
    bool fills = parts.channels != of->channels_each;
    parts.boxes = half && rn_conv_suits_boxes(of) && (!fills || of->groups == 1);
    if (!parts.boxes) parts.channels = of->channels_each, fills = false;
    bool ordered = rn_conv_kernel(of) == 1 || w->layout == RN_LAYOUT_CONV_CHANNELS;
    parts.orders = !parts.boxes || fills || !ordered || w->dtype != x->dtype;
    uint64_t outputs = of->outputs_each * of->groups;
    if (parts.orders)
        parts.weight_bytes =
            rn_round_up(outputs * rn_conv_kernel(of) * parts.channels * width, PART_ALIGN);
    if (fills)
        parts.image_bytes =
            rn_round_up(of->batch * of->in[1] * of->in[2] * parts.channels * width, PART_ALIGN);
    if (!parts.boxes) {
        parts.partial_bytes = half ? 0 : plain_partial_bytes(of, false);
        return parts;
    }
    rn_conv_product p;
    describe(call, of, parts.channels, &p);
    parts.partial_bytes = rn_conv_product_workspace(&p);
    return parts;
}

// Also of the gradient by x, which orders them anew either way: so both read one copy.
bool rn_cuda_conv_wants_channels(const rn_call *call, uint32_t input) {
    rn_conv_sizes of;
    bool back = call->op == RN_OP_CONV2D_GRAD_INPUT;
    if ((call->op != RN_OP_CONV2D && !back) || input != (back ? 0 : 1)) return false;
    const rn_tensor *w = &call->inputs[input], *x = &call->inputs[1 - input];
    return rn_cuda_is_half(x->dtype) && w->dtype == x->dtype && rn_conv_read(call, &of) == RN_OK &&
           rn_conv_suits_boxes(&of) && rn_conv_kernel(&of) > 1 && of.channels_each % 8 == 0;
}

uint64_t rn_cuda_conv_workspace(const rn_call *call) {
    rn_conv_sizes of;
    if (rn_conv_read(call, &of) != RN_OK) return 0;
    forward_parts parts = divide(call, &of);
    return parts.weight_bytes + parts.image_bytes + parts.partial_bytes;
}

static rn_status run_boxes(const rn_call *call, const rn_conv_sizes *of,
                           const forward_parts *parts) {
    uint8_t *workspace = call->workspace;
    rn_conv_product p;
    describe(call, of, parts->channels, &p);
    if (parts->orders) {
        rn_conv_weights_args order = {.out = workspace,
                                      .taps = p.taps,
                                      .row = (uint32_t)parts->channels,
                                      .out_type = rn_cuda_plain_type(p.type)};
        for (uint32_t i = 0; i < p.taps; i++)
            order.tap_of[i] = (uint16_t)i;
        RN_TRY(rn_conv_order_weights(call, &call->inputs[1], of, &order));
        p.w = workspace;
    }
    if (parts->image_bytes > 0) {
        rn_conv_pad_args pad = {.x = p.x,
                                .out = (uint16_t *)(workspace + parts->weight_bytes),
                                .pixels = of->batch * of->in[1] * of->in[2],
                                .channels = (uint32_t)of->channels_each,
                                .row = (uint32_t)parts->channels};
        RN_TRY(rn_cuda_launch(call, RN_CUDA_CONV_PAD,
                              rn_cuda_spread(call, pad.pixels * parts->channels / 8), &pad));
        p.x = pad.out;
    }
    p.partial = (float *)(workspace + parts->weight_bytes + parts->image_bytes);
    return rn_conv_product_run(call, &p);
}

// ---- plainly ------------------------------------------------------------------------------------

static rn_status add_splits(const rn_call *call, const rn_conv_plain_args *a) {
    uint32_t outputs = a->outputs_each * a->groups;
    rn_conv_total_args total = {.partial = a->partial,
                                .bias = a->bias,
                                .y = a->y,
                                .y_w = outputs,
                                .pixels = a->pixels,
                                .out_h = 1,
                                .out_w = (uint32_t)a->pixels,
                                .outputs = outputs,
                                .splits = a->splits,
                                .y_type = a->y_type,
                                .bias_type = a->bias_type};
    if (a->pixels > UINT32_MAX)
        return rn_fail(RN_UNSUPPORTED, "CUDA: a convolution of so many pixels is too large");
    return rn_cuda_launch(call, RN_CUDA_CONV_TOTAL,
                          rn_cuda_spread(call, a->pixels * rn_div_up(outputs, 4)), &total);
}

// x and y may be exchanged by the caller: `from` and `to` are what is read and made.
static rn_status run_plain(const rn_call *call, const rn_conv_sizes *of, bool turned,
                           const rn_tensor *from, const rn_tensor *weight, const rn_tensor *bias,
                           const rn_tensor *to) {
    rn_conv_plain_args a = {.x = from->data,
                            .w = call->workspace,
                            .y = to->data,
                            .groups = (uint32_t)of->groups,
                            .splits = rn_cuda_is_half(from->dtype) ? 1 : count_splits(of, turned)};
    rn_conv_weights_args order = {.out = call->workspace,
                                  .plain = 1,
                                  .turned = turned,
                                  .out_type = rn_cuda_plain_type(from->dtype)};
    RN_TRY(rn_cuda_value_type(call, from, &a.x_type));
    RN_TRY(rn_cuda_value_type(call, to, &a.y_type));
    if (bias) RN_TRY(rn_cuda_value_type(call, bias, &a.bias_type));
    a.bias = bias ? bias->data : NULL;
    a.w_type = a.x_type;
    a.pixels = of->batch;
    a.channels_each = (uint32_t)(turned ? of->outputs_each : of->channels_each);
    a.outputs_each = (uint32_t)(turned ? of->channels_each : of->outputs_each);
    for (uint32_t i = 0; i < RN_CONV_AXES; i++) {
        a.in[i] = (uint32_t)(turned ? of->out[i] : of->in[i]);
        a.out[i] = (uint32_t)(turned ? of->in[i] : of->out[i]);
        a.size[i] = (uint32_t)of->size[i];
        a.times[i] = turned ? 1 : of->stride[i];
        a.divisor[i] = turned ? of->stride[i] : 1;
        a.dilation[i] = turned ? -of->dilation[i] : of->dilation[i];
        a.before[i] = turned ? -of->before[i] : of->before[i];
        a.pixels *= a.out[i];
    }
    uint64_t tiles = rn_div_up(a.outputs_each, RN_CONV_PLAIN_OUTPUTS) * of->groups;
    if (a.pixels == 0 || tiles == 0) return RN_OK;
    if (tiles > 65535)
        return rn_fail(RN_UNSUPPORTED, "CUDA: a convolution of %llu groups is too large",
                       (unsigned long long)of->groups);
    uint64_t numbers = of->outputs_each * of->channels_each * of->groups * rn_conv_kernel(of);
    uint64_t bytes = rn_round_up(numbers * rn_dtype_get(from->dtype)->block_bytes, PART_ALIGN);
    if (call->workspace_bytes < bytes + (a.splits > 1 ? plain_partial_bytes(of, turned) : 0))
        return rn_fail(RN_UNSUPPORTED, "CUDA: weights with channels last are for sm_90a");
    RN_TRY(rn_conv_order_weights(call, weight, of, &order));
    if (a.splits > 1) a.partial = (float *)((uint8_t *)call->workspace + bytes);
    rn_cuda_grid grid = {(uint32_t)rn_div_up(a.pixels, RN_CONV_PLAIN_PIXELS), (uint32_t)tiles,
                         a.splits, .threads = RN_ROWS_THREADS, .early = true};
    RN_TRY(rn_cuda_launch(call, RN_CUDA_CONV_PLAIN, grid, &a));
    return a.splits > 1 ? add_splits(call, &a) : RN_OK;
}

static bool has_boxes(const rn_call *call, const rn_tensor *x, const rn_tensor *y) {
    return rn_cuda_traits_of(call)->has_wgmma && rn_cuda_is_aligned(x->data, 16) &&
           rn_cuda_is_aligned(y->data, 16);
}

rn_status rn_cuda_conv(const rn_call *call) {
    const rn_tensor *in = call->inputs, *y = &call->outputs[0];
    uint32_t type;
    rn_conv_sizes of;
    RN_TRY(rn_cuda_value_type(call, &in[0], &type));
    RN_TRY(rn_cuda_value_type(call, &in[1], &type));
    RN_TRY(rn_cuda_value_type(call, &in[2], &type));
    RN_TRY(rn_cuda_value_type(call, y, &type));
    RN_TRY(rn_conv_read(call, &of));
    forward_parts parts = divide(call, &of);
    if (parts.boxes && has_boxes(call, &in[0], &in[1])) return run_boxes(call, &of, &parts);
    return run_plain(call, &of, false, &in[0], &in[1], &in[2], y);
}

// ---- the gradient by x --------------------------------------------------------------------------

// Of stride s, pixels p, p + s, ... of x make a convolution of their own, of some of the taps.
typedef struct phase {
    rn_conv_product product;
    uint16_t tap_of[RN_CONV_TAPS];
} phase;

static const rn_tensor *dy_of(const rn_call *call) {
    return &call->inputs[call->op == RN_OP_CONV_TRANSPOSE ? 0 : 1];
}

static const rn_tensor *bias_of(const rn_call *call) {
    return call->op == RN_OP_CONV_TRANSPOSE ? &call->inputs[2] : NULL;
}

static void describe_phase(const rn_call *call, const rn_conv_sizes *of, int32_t phase_h,
                           int32_t phase_w, phase *out) {
    const rn_tensor *dy = dy_of(call), *dx = &call->outputs[0];
    uint64_t width = rn_dtype_get(dx->dtype)->block_bytes;
    uint64_t channels = of->channels_each * of->groups;
    int32_t sh = of->stride[1], sw = of->stride[2];
    rn_conv_product *p = &out->product;
    *out = (phase){0};
    *p = (rn_conv_product){.type = dy->dtype,
                           .x = dy->data,
                           .batch = of->batch,
                           .in_h = of->out[1],
                           .in_w = of->out[2],
                           .channels = of->outputs_each,
                           .outputs = of->channels_each,
                           .groups = of->groups,
                           .stride_h = 1,
                           .stride_w = 1,
                           .bias = bias_of(call),
                           .y_type = dx->dtype};
    p->out_h =
        of->in[1] > (uint64_t)phase_h ? rn_div_up(of->in[1] - (uint64_t)phase_h, (uint64_t)sh) : 0;
    p->out_w =
        of->in[2] > (uint64_t)phase_w ? rn_div_up(of->in[2] - (uint64_t)phase_w, (uint64_t)sw) : 0;
    p->y_w = channels * (uint64_t)sw;
    p->y_h = channels * of->in[2] * (uint64_t)sh;
    p->y_n = channels * of->in[2] * of->in[1];
    if (dx->data)
        p->y = (uint8_t *)dx->data +
               ((uint64_t)phase_h * of->in[2] + (uint64_t)phase_w) * channels * width;
    for (uint32_t i = 0; i < rn_conv_kernel(of); i++) {
        int32_t h = phase_h + of->before[1] - (int32_t)(i / of->size[2]) * of->dilation[1];
        int32_t w = phase_w + of->before[2] - (int32_t)(i % of->size[2]) * of->dilation[2];
        out->tap_of[i] = RN_CONV_NO_TAP;
        if (h % sh || w % sw) continue;
        out->tap_of[i] = (uint16_t)p->taps;
        p->tap_h[p->taps] = (int16_t)(h / sh);
        p->tap_w[p->taps++] = (int16_t)(w / sw);
    }
}

static bool turns_boxes(const rn_call *call, const rn_conv_sizes *of) {
    return rn_cuda_is_half(dy_of(call)->dtype) && rn_conv_suits_boxes(of) &&
           of->outputs_each % 8 == 0;
}

static uint64_t turned_bytes(const rn_call *call, const rn_conv_sizes *of) {
    uint64_t width = rn_cuda_is_half(dy_of(call)->dtype) ? sizeof(uint16_t) : sizeof(float);
    return rn_round_up(
        of->outputs_each * of->groups * of->channels_each * rn_conv_kernel(of) * width, PART_ALIGN);
}

uint64_t rn_cuda_conv_grad_input_workspace(const rn_call *call) {
    rn_conv_sizes of;
    uint64_t partial = 0;
    if (rn_conv_read(call, &of) != RN_OK) return 0;
    for (int32_t i = 0; turns_boxes(call, &of) && i < of.stride[1] * of.stride[2]; i++) {
        phase at;
        describe_phase(call, &of, i / of.stride[2], i % of.stride[2], &at);
        if (at.product.out_h * at.product.out_w > 0)
            partial = rn_max_u64(partial, rn_conv_product_workspace(&at.product));
    }
    if (!rn_cuda_is_half(dy_of(call)->dtype)) partial = plain_partial_bytes(&of, true);
    return turned_bytes(call, &of) + partial;
}

rn_status rn_cuda_conv_grad_input(const rn_call *call) {
    const rn_tensor *dy = dy_of(call), *dx = &call->outputs[0];
    const rn_tensor *w = &call->inputs[call->op == RN_OP_CONV_TRANSPOSE ? 1 : 0];
    uint32_t type;
    rn_conv_sizes of;
    RN_TRY(rn_cuda_value_type(call, dy, &type));
    RN_TRY(rn_cuda_value_type(call, w, &type));
    RN_TRY(rn_cuda_value_type(call, dx, &type));
    RN_TRY(rn_conv_read(call, &of));
    if (!turns_boxes(call, &of) || !has_boxes(call, dy, dy))
        return run_plain(call, &of, true, dy, w, bias_of(call), dx);
    for (int32_t i = 0; i < of.stride[1] * of.stride[2]; i++) {
        phase at;
        describe_phase(call, &of, i / of.stride[2], i % of.stride[2], &at);
        rn_conv_weights_args order = {.out = call->workspace,
                                      .turned = 1,
                                      .taps = at.product.taps,
                                      .out_type = rn_cuda_plain_type(dy->dtype)};
        memcpy(order.tap_of, at.tap_of, sizeof order.tap_of);
        if (at.product.out_h * at.product.out_w == 0) continue;
        if (at.product.taps > 0) RN_TRY(rn_conv_order_weights(call, w, &of, &order));
        at.product.w = call->workspace;
        at.product.partial = (float *)((uint8_t *)call->workspace + turned_bytes(call, &of));
        RN_TRY(rn_conv_product_run(call, &at.product));
    }
    return RN_OK;
}

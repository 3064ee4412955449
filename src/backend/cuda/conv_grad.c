// conv_grad.c — the gradient of a convolution by its weights: for each tap a product over all
// pixels, in parts that are added in order.
//
// Both x and dy of one 16-bit type, with channels in whole eights, go to the matrix units; all else
// to f32 multiply-adds.
#include "backend/cuda/conv.h"
#include "backend/cuda/rows.h"
#include "backend/cuda/tensor_map.h"

#include "base/checked.h"

enum { BLOCKS_WANTED = 264, SPLITS_MOST = 64, GRID_MOST = 65535, PIXELS_LEAST = 256 };

typedef struct grad_parts {
    bool boxes;
    rn_conv_box box;
    uint64_t tiles; // of one tap
    uint32_t splits;
    uint64_t partial_bytes;
} grad_parts;

// 64 pixels of neighbouring rows: all of them are multiplied, so the box is full.
static rn_conv_box choose_full_box(const rn_conv_sizes *of) {
    rn_conv_box best = {0};
    uint64_t fewest = UINT64_MAX;
    for (uint32_t w = 1; w <= RN_CONV_GRAD_PIXELS; w *= 2)
        for (uint32_t h = 1; h * w <= RN_CONV_GRAD_PIXELS; h *= 2) {
            uint32_t n = RN_CONV_GRAD_PIXELS / (h * w);
            rn_conv_box box = {n,
                               h,
                               w,
                               rn_div_up(of->batch, n),
                               rn_div_up(of->out[1], h),
                               rn_div_up(of->out[2], w)};
            uint64_t count = box.tiles_n * box.tiles_h * box.tiles_w;
            bool sides = w * (uint32_t)of->stride[2] <= 256 && h * (uint32_t)of->stride[1] <= 256;
            if (sides && count < fewest) best = box, fewest = count;
        }
    return best;
}

static grad_parts divide(const rn_call *call, const rn_conv_sizes *of) {
    const rn_tensor *x = &call->inputs[0], *dy = &call->inputs[1];
    grad_parts parts = {.boxes = rn_cuda_is_half(x->dtype) && x->dtype == dy->dtype &&
                                 rn_conv_suits_boxes(of) && of->channels_each % 8 == 0 &&
                                 of->outputs_each % 8 == 0};
    uint64_t side = parts.boxes ? RN_CONV_GRAD_TILE : RN_CONV_PLAIN_OUTPUTS;
    uint64_t kernel = rn_conv_kernel(of), pieces = rn_conv_pixels(of) / PIXELS_LEAST;
    if (parts.boxes) parts.box = choose_full_box(of);
    parts.tiles = rn_div_up(of->channels_each, side) * rn_div_up(of->outputs_each, side);
    uint64_t blocks = rn_max_u64(parts.tiles * kernel * of->groups, 1);
    uint64_t splits = rn_min_u64(rn_min_u64(BLOCKS_WANTED / blocks, SPLITS_MOST), pieces);
    parts.splits = (uint32_t)rn_max_u64(splits, 1);
    parts.partial_bytes =
        kernel * of->groups * of->channels_each * of->outputs_each * parts.splits * sizeof(float);
    return parts;
}

uint64_t rn_cuda_conv_grad_weight_workspace(const rn_call *call) {
    rn_conv_sizes of;
    if (rn_conv_read(call, &of) != RN_OK) return 0;
    return divide(call, &of).partial_bytes;
}

static rn_boxed describe(const rn_tensor *tensor, const uint64_t *axes, uint64_t batch,
                         uint64_t each, uint64_t groups, const rn_conv_box *box, uint32_t stride_h,
                         uint32_t stride_w) {
    uint64_t all = each * groups;
    return (rn_boxed){.data = tensor->data,
                      .dtype = tensor->dtype,
                      .rank = 5,
                      .dims = {each, groups, axes[2], axes[1], batch},
                      .strides = {1, each, all, all * axes[2], all * axes[2] * axes[1]},
                      .box = {RN_CONV_STEP, 1, box->w * stride_w, box->h * stride_h, box->n},
                      .steps = {1, 1, stride_w, stride_h, 1}};
}

static rn_status run_boxes(const rn_call *call, const rn_conv_sizes *of, const grad_parts *parts) {
    const rn_conv_box *box = &parts->box;
    rn_conv_grad_args a = {.partial = call->workspace,
                           .tiles_n = (uint32_t)box->tiles_n,
                           .tiles_h = (uint32_t)box->tiles_h,
                           .tiles_w = (uint32_t)box->tiles_w,
                           .box_n = box->n,
                           .box_h = box->h,
                           .box_w = box->w,
                           .channels_each = (uint32_t)of->channels_each,
                           .outputs_each = (uint32_t)of->outputs_each,
                           .groups = (uint32_t)of->groups,
                           .splits = parts->splits,
                           .stride_h = (uint32_t)of->stride[1],
                           .stride_w = (uint32_t)of->stride[2],
                           .taps = (uint32_t)rn_conv_kernel(of)};
    for (uint32_t i = 0; i < a.taps; i++) {
        a.tap_h[i] = (int16_t)((int32_t)(i / of->size[2]) * of->dilation[1] - of->before[1]);
        a.tap_w[i] = (int16_t)((int32_t)(i % of->size[2]) * of->dilation[2] - of->before[2]);
    }
    rn_boxed x = describe(&call->inputs[0], of->in, of->batch, of->channels_each, of->groups, box,
                          a.stride_h, a.stride_w);
    rn_boxed dy =
        describe(&call->inputs[1], of->out, of->batch, of->outputs_each, of->groups, box, 1, 1);
    RN_TRY(rn_tensor_map_draw(call, &x, &a.x));
    RN_TRY(rn_tensor_map_draw(call, &dy, &a.dy));
    bool bf16 = call->inputs[0].dtype == RN_DTYPE_BF16;
    rn_cuda_grid grid = {(uint32_t)parts->tiles,     a.taps * a.groups,      a.splits,
                         .threads = RN_CONV_THREADS, .shared_bytes = 197728, .early = true};
    return rn_cuda_launch(call, bf16 ? RN_CUDA_CONV_GRAD_BF16 : RN_CUDA_CONV_GRAD_F16, grid, &a);
}

static rn_status run_plain(const rn_call *call, const rn_conv_sizes *of, const grad_parts *parts) {
    rn_conv_plain_grad_args a = {.x = call->inputs[0].data,
                                 .dy = call->inputs[1].data,
                                 .partial = call->workspace,
                                 .pixels = rn_conv_pixels(of),
                                 .channels_each = (uint32_t)of->channels_each,
                                 .outputs_each = (uint32_t)of->outputs_each,
                                 .groups = (uint32_t)of->groups,
                                 .splits = parts->splits};
    RN_TRY(rn_cuda_value_type(call, &call->inputs[0], &a.x_type));
    RN_TRY(rn_cuda_value_type(call, &call->inputs[1], &a.dy_type));
    for (uint32_t i = 0; i < RN_CONV_AXES; i++) {
        a.in[i] = (uint32_t)of->in[i];
        a.out[i] = (uint32_t)of->out[i];
        a.size[i] = (uint32_t)of->size[i];
        a.times[i] = of->stride[i];
        a.dilation[i] = of->dilation[i];
        a.before[i] = of->before[i];
    }
    rn_cuda_grid grid = {(uint32_t)parts->tiles, (uint32_t)(rn_conv_kernel(of) * of->groups),
                         parts->splits, .threads = RN_ROWS_THREADS, .early = true};
    return rn_cuda_launch(call, RN_CUDA_CONV_PLAIN_GRAD, grid, &a);
}

rn_status rn_cuda_conv_grad_weight(const rn_call *call) {
    const rn_tensor *x = &call->inputs[0], *dy = &call->inputs[1], *dw = &call->outputs[0];
    rn_conv_sizes of;
    RN_TRY(rn_conv_read(call, &of));
    grad_parts parts = divide(call, &of);
    if (rn_tensor_elements(dw) == 0) return RN_OK;
    if (parts.tiles > INT32_MAX || rn_conv_kernel(&of) * of.groups > GRID_MOST)
        return rn_fail(RN_UNSUPPORTED, "CUDA: %s of %llu groups is too large", rn_op_name(call->op),
                       (unsigned long long)of.groups);
    bool boxes = parts.boxes && rn_cuda_traits_of(call)->has_wgmma &&
                 rn_cuda_is_aligned(x->data, 16) && rn_cuda_is_aligned(dy->data, 16);
    RN_TRY(boxes ? run_boxes(call, &of, &parts) : run_plain(call, &of, &parts));
    rn_conv_grad_total_args total = {.partial = call->workspace,
                                     .dw = dw->data,
                                     .channels_each = (uint32_t)of.channels_each,
                                     .outputs_each = (uint32_t)of.outputs_each,
                                     .groups = (uint32_t)of.groups,
                                     .taps = (uint32_t)rn_conv_kernel(&of),
                                     .splits = parts.splits};
    RN_TRY(rn_cuda_value_type(call, dw, &total.type));
    return rn_cuda_launch(call, RN_CUDA_CONV_GRAD_TOTAL,
                          rn_cuda_spread(call, of.channels_each * of.outputs_each * of.groups),
                          &total);
}

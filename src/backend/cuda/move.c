// move.c — elements to other places and into other types.
//
// Everything that moves is a walk through two tensors at once; where a walk's rows are dense in
// both, elements are moved in units of up to 16 bytes. Where they are dense in one and some other
// axis is in the other, matrices are turned round tile by tile.
#include "backend/cuda/elements.h"
#include "backend/cuda/rows.h"

#include "base/checked.h"
#include "graph/op/move.h"

// ---- places -------------------------------------------------------------------------------------

// The largest unit in which the walk's places can be counted, given elements of `size` bytes.
static uint64_t find_unit(const rn_move_args *args, uint64_t size) {
    uint64_t places = (uintptr_t)args->from | (uintptr_t)args->to | args->walk.count * size | 16;
    if (args->walk.step[0] != 1 || args->walk.step[1] != 1) return size;
    for (uint32_t i = 0; i < args->walk.rank; i++)
        places |= (args->walk.strides[0][i] | args->walk.strides[1][i]) * size;
    return places & -places;
}

static void count_in_units(rn_move_args *args, uint64_t size) {
    uint64_t unit = find_unit(args, size);
    args->unit = (uint32_t)unit;
    if (unit == size) return;
    args->walk.count = args->walk.count * size / unit;
    args->n = args->n * size / unit;
    for (uint32_t i = 0; i < args->walk.rank; i++)
        for (int t = 0; t < 2; t++)
            args->walk.strides[t][i] = args->walk.strides[t][i] * size / unit;
}

enum { TILE_LEAST = 8 }; // an axis that is shorter wastes most of a tile

// The walk's axis that lies together in the source while its rows do so in the target, or its rank.
static uint32_t find_turned(const rn_move_args *args) {
    const rn_walk_args *walk = &args->walk;
    if (walk->step[0] == 1 || walk->step[1] != 1 || walk->count < TILE_LEAST) return walk->rank;
    for (uint32_t i = 0; i < walk->rank; i++)
        if (walk->strides[0][i] == 1 && walk->dims[i] >= TILE_LEAST) return i;
    return walk->rank;
}

static rn_status transpose(const rn_call *call, const rn_move_args *args, uint32_t axis) {
    const rn_walk_args *walk = &args->walk;
    rn_transpose_args turn = {.from = args->from,
                              .to = args->to,
                              .a = walk->dims[axis],
                              .b = walk->count,
                              .from_stride = walk->step[0],
                              .to_stride = walk->strides[1][axis],
                              .matrices = args->n / walk->dims[axis] / walk->count,
                              .walk = {.count = 1},
                              .unit = args->unit};
    for (uint32_t i = 0; i < walk->rank; i++) {
        if (i == axis) continue;
        uint32_t at = turn.walk.rank++;
        turn.walk.dims[at] = walk->dims[i];
        turn.walk.strides[0][at] = walk->strides[0][i];
        turn.walk.strides[1][at] = walk->strides[1][i];
    }
    return rn_cuda_launch(call, RN_CUDA_TRANSPOSE, rn_cuda_spread(call, args->n / 4), &turn);
}

// The elements of `shape`: strides are in elements of `size` bytes. A view moves nothing.
static rn_status move(const rn_call *call, const char *from, rn_strides from_strides, char *to,
                      rn_strides to_strides, rn_shape shape, uint64_t size) {
    rn_walk walk = rn_walk_begin(shape, from_strides, to_strides);
    rn_move_args args = {.from = (const uint8_t *)from,
                         .to = (uint8_t *)to,
                         .n = rn_cuda_walk_elements(&walk),
                         .walk = rn_cuda_walk(&walk)};
    if (args.n == 0 || from == to) return RN_OK;
    count_in_units(&args, size);
    uint32_t turned = find_turned(&args);
    if (turned < args.walk.rank) return transpose(call, &args, turned);
    return rn_cuda_launch(call, RN_CUDA_MOVE, rn_cuda_spread(call, args.n), &args);
}

static rn_status fill_from(const rn_call *call, rn_strides strides) {
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    return move(call, x->data, strides, y->data, rn_strides_of(y->shape), y->shape,
                rn_element_bytes(y));
}

rn_status rn_cuda_permute(const rn_call *call) {
    const rn_permute_attrs *attrs = call->attrs;
    rn_shape x = call->inputs[0].shape;
    rn_strides strides = rn_strides_of(x), moved = {{0}};
    for (uint32_t i = 0; i < x.rank; i++)
        moved.by[i] = strides.by[attrs->axes[i]];
    return fill_from(call, moved);
}

rn_status rn_cuda_broadcast(const rn_call *call) {
    return fill_from(call, rn_strides_stretched(call->inputs[0].shape, call->outputs[0].shape));
}

rn_status rn_cuda_slice(const rn_call *call) {
    const rn_slice_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    uint64_t size = rn_element_bytes(x);
    rn_strides strides = rn_strides_of(x->shape);
    const char *from = (const char *)x->data + attrs->start * strides.by[attrs->axis] * size;
    return move(call, from, strides, y->data, rn_strides_of(y->shape), y->shape, size);
}

rn_status rn_cuda_concat(const rn_call *call) {
    const rn_concat_attrs *attrs = call->attrs;
    const rn_tensor *y = &call->outputs[0];
    uint64_t size = rn_element_bytes(y);
    rn_strides strides = rn_strides_of(y->shape);
    char *to = y->data;
    for (uint32_t i = 0; i < call->input_count; i++) {
        rn_shape part = call->inputs[i].shape;
        RN_TRY(move(call, call->inputs[i].data, rn_strides_of(part), to, strides, part, size));
        to += part.dims[attrs->axis] * strides.by[attrs->axis] * size;
    }
    return RN_OK;
}

// The element, repeated to 8 bytes.
static rn_status make_pattern(rn_dtype dtype, float value, uint64_t *out) {
    uint8_t element[sizeof(double)] = {0}, all[8];
    uint64_t size = rn_dtype_get(dtype)->block_bytes;
    RN_TRY(rn_dtype_convert(RN_DTYPE_F32, &value, dtype, element, 1));
    for (uint64_t i = 0; i < sizeof all; i++)
        all[i] = element[i % size];
    memcpy(out, all, sizeof all);
    return RN_OK;
}

rn_status rn_cuda_pad(const rn_call *call) {
    const rn_pad_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    rn_strides inner = rn_strides_of(x->shape), outer = rn_strides_of(y->shape);
    rn_fill_args fill = {.to = y->data, .bytes = rn_tensor_bytes(y)};
    char *to = y->data;
    for (uint32_t i = 0; i < x->shape.rank; i++)
        to += attrs->before[i] * outer.by[i] * rn_element_bytes(y);
    RN_TRY(make_pattern(y->dtype, attrs->fill, &fill.pattern));
    if (fill.bytes == 0) return RN_OK;
    RN_TRY(
        rn_cuda_launch(call, RN_CUDA_FILL, rn_cuda_spread(call, rn_div_up(fill.bytes, 16)), &fill));
    return move(call, x->data, inner, to, outer, x->shape, rn_element_bytes(x));
}

// ---- types --------------------------------------------------------------------------------------

// Cast and dequantize. A cast to the type itself keeps every bit.
rn_status rn_cuda_cast(const rn_call *call) {
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    rn_cast_args args = {.x = x->data,
                         .y = y->data,
                         .n = rn_tensor_elements(y),
                         .from = rn_cuda_plain_type(x->dtype),
                         .to = rn_cuda_plain_type(y->dtype)};
    if (x->dtype == y->dtype) return fill_from(call, rn_strides_of(x->shape));
    bool readable = args.from != RN_PLAIN_NONE && args.from < RN_PLAIN_INT8;
    bool writable =
        args.to != RN_PLAIN_NONE && args.to <= RN_PLAIN_BOOL && args.to != RN_PLAIN_E8M0;
    if (!readable || !writable || x->layout != RN_LAYOUT_PLAIN)
        return rn_fail(RN_UNSUPPORTED, "CUDA: there is no way from %s to %s",
                       rn_dtype_get(x->dtype)->name, rn_dtype_get(y->dtype)->name);
    if (args.n == 0) return RN_OK;
    return rn_cuda_launch(call, RN_CUDA_CAST, rn_cuda_spread(call, rn_div_up(args.n, 4)), &args);
}

rn_status rn_cuda_quantize(const rn_call *call) {
    const rn_tensor *y = &call->outputs[0];
    rn_quantize_args args = {.x = call->inputs[0].data,
                             .y = y->data,
                             .blocks = rn_tensor_elements(y) / 32,
                             .to = rn_cuda_plain_type(y->dtype)};
    if (args.blocks == 0) return RN_OK;
    return rn_cuda_launch(call, RN_CUDA_QUANTIZE, rn_cuda_spread(call, args.blocks * 32), &args);
}

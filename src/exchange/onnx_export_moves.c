// onnx_export_moves.c — ops that move elements or change their dtype.
#include "exchange/onnx_export_ops.h"

#include <math.h>

RN_EXPORTER(reshape) {
    out[0] = rn_export_reshape(h, in[0], call->outputs[0].shape);
}

RN_EXPORTER(permute) {
    const rn_permute_attrs *attrs = call->attrs;
    out[0] = rn_export_transpose(h, in[0], attrs->axes);
}

RN_EXPORTER(slice) {
    const rn_slice_attrs *attrs = call->attrs;
    if (attrs->count == RN_ROWS)
        out[0] = in[0]; // rows are taken whole
    else
        out[0] = rn_export_slice(h, in[0], attrs->axis, attrs->start, attrs->count);
}

RN_EXPORTER(strided_slice) {
    const rn_strided_slice_attrs *attrs = call->attrs;
    int64_t first[RN_MAX_RANK], end[RN_MAX_RANK], step[RN_MAX_RANK], axes[RN_MAX_RANK];
    uint32_t count = 0;
    for (uint32_t i = 0; i < in[0].shape.rank; i++) {
        if (attrs->count[i] == RN_ROWS) continue;
        int64_t begin = (int64_t)attrs->start[i], by = attrs->step[i];
        int64_t last = begin + by * (int64_t)attrs->count[i];
        first[count] = begin;
        end[count] = last < 0 ? INT64_MIN + 1 : last; // below 0 would count from the end
        step[count] = by;
        axes[count++] = i;
    }
    if (count == 0) {
        out[0] = in[0];
        return;
    }
    rn_export_value all[] = {in[0], rn_export_ints(h, first, count), rn_export_ints(h, end, count),
                             rn_export_ints(h, axes, count), rn_export_ints(h, step, count)};
    out[0] = rn_export_node(h, "Slice", all, 5, NULL, 0, in[0].dtype, call->outputs[0].shape);
}

RN_EXPORTER(concat) {
    const rn_concat_attrs *attrs = call->attrs;
    out[0] = rn_export_concat(h, in, call->input_count, attrs->axis);
}

RN_EXPORTER(pad) {
    const rn_pad_attrs *attrs = call->attrs;
    int64_t pads[2 * RN_MAX_RANK];
    uint32_t rank = in[0].shape.rank;
    for (uint32_t i = 0; i < rank; i++) {
        pads[i] = (int64_t)attrs->before[i];
        pads[rank + i] = (int64_t)attrs->after[i];
    }
    rn_export_value all[] = {in[0], rn_export_ints(h, pads, 2 * rank),
                             rn_export_scalar(h, in[0].dtype, (double)attrs->fill)};
    out[0] = rn_export_node(h, "Pad", all, 3, NULL, 0, in[0].dtype, call->outputs[0].shape);
}

// A size of 1 keeps the axis of x.
RN_EXPORTER(broadcast) {
    rn_shape shape = call->outputs[0].shape, from = in[0].shape;
    int64_t dims[RN_MAX_RANK];
    for (uint32_t i = 0; i < shape.rank; i++) {
        uint32_t before = shape.rank - from.rank;
        bool whole = i >= before && from.dims[i - before] == RN_ROWS;
        if (shape.dims[i] == RN_ROWS && !whole)
            rn_export_refuse(h, "an axis that is stretched to the rows of a run");
        dims[i] = shape.dims[i] == RN_ROWS ? 1 : (int64_t)shape.dims[i];
    }
    rn_export_value pair[] = {in[0], rn_export_ints(h, dims, shape.rank)};
    out[0] = rn_export_node(h, "Expand", pair, 2, NULL, 0, in[0].dtype, shape);
}

// ---- dtypes -------------------------------------------------------------------------------------

static bool is_signed(rn_dtype dtype) {
    return dtype == RN_DTYPE_I8 || dtype == RN_DTYPE_I16 || dtype == RN_DTYPE_I32 ||
           dtype == RN_DTYPE_I64;
}

// To the nearest, an even one where there are two; within what the dtype holds. f64 has every end
// of up to 32 bits.
static rn_export_value round_to(rn_export *h, rn_export_value x, rn_dtype to) {
    int bits = 8 * (int)rn_dtype_get(to)->block_bytes - is_signed(to);
    double end = ldexp(1, bits) - 1, low = is_signed(to) ? -ldexp(1, bits) : 0;
    x = rn_export_cast(h, x, RN_DTYPE_F64);
    if (rn_dtype_get(x.dtype)->is_float) x = rn_export_unary(h, "Round", x);
    if (bits < 63) {
        x = rn_export_with(h, "Max", x, low);
        x = rn_export_with(h, "Min", x, end);
    }
    return rn_export_cast(h, x, to);
}

RN_EXPORTER(cast) {
    rn_dtype to = call->outputs[0].dtype, from = in[0].dtype;
    bool plain = rn_dtype_get(to)->is_float || from == RN_DTYPE_BOOL || to == RN_DTYPE_BOOL;
    out[0] = plain || from == to ? rn_export_cast(h, in[0], to) : round_to(h, in[0], to);
}

// By C's rules, which are those of Cast where a number fits.
RN_EXPORTER(convert) {
    out[0] = rn_export_cast(h, in[0], call->outputs[0].dtype);
}

RN_EXPORTER(quantize_linear) {
    const rn_linear_attrs *own = call->attrs;
    rn_export_attr attrs[] = {RN_EXPORT_INT("axis", own->axis),
                              RN_EXPORT_INT("block_size", own->block)};
    rn_export_value all[] = {in[0], in[1], in[2]};
    if (own->low || own->high) rn_export_refuse(h, "whole numbers kept within a part of a dtype");
    if (!in[2].id) { // its dtype is the result's
        uint8_t zeros[8] = {0};
        if (rn_shape_elements(in[1].shape, 0) != 1) rn_export_refuse(h, "scales without zeros");
        all[2] = rn_export_data(h, call->outputs[0].dtype,
                                in[1].shape.rank ? RN_SHAPE(1) : RN_SCALAR, zeros);
    }
    out[0] = rn_export_node(h, "QuantizeLinear", all, 3, attrs, own->block ? 2 : 1,
                            call->outputs[0].dtype, call->outputs[0].shape);
}

RN_EXPORTER(dequantize_linear) {
    const rn_linear_attrs *own = call->attrs;
    rn_export_attr attrs[] = {RN_EXPORT_INT("axis", own->axis),
                              RN_EXPORT_INT("block_size", own->block)};
    rn_export_value y = rn_export_node(h, "DequantizeLinear", in, call->input_count, attrs,
                                       own->block ? 2 : 1, in[1].dtype, call->outputs[0].shape);
    out[0] = rn_export_result(h, call, y);
}

// ---- places -------------------------------------------------------------------------------------

RN_EXPORTER(gather) {
    const rn_gather_attrs *own = call->attrs;
    rn_export_attr axis = RN_EXPORT_INT("axis", own->axis);
    rn_export_attr batch = RN_EXPORT_INT("batch_dims", own->batch);
    rn_shape shape = call->outputs[0].shape;
    if (own->kind == RN_GATHER_AXIS)
        out[0] = rn_export_node(h, "Gather", in, 2, &axis, 1, in[0].dtype, shape);
    else if (own->kind == RN_GATHER_ELEMENTS)
        out[0] = rn_export_node(h, "GatherElements", in, 2, &axis, 1, in[0].dtype, shape);
    else
        out[0] = rn_export_node(h, "GatherND",
                                (rn_export_value[]){in[0], rn_export_cast(h, in[1], RN_DTYPE_I64)},
                                2, &batch, 1, in[0].dtype, shape);
}

RN_EXPORTER(scatter) {
    static const char *const names[RN_SCATTER_COUNT] = {[RN_SCATTER_SET] = "none",
                                                        [RN_SCATTER_ADD] = "add",
                                                        [RN_SCATTER_MUL] = "mul",
                                                        [RN_SCATTER_MAX] = "max",
                                                        [RN_SCATTER_MIN] = "min"};
    const rn_scatter_attrs *own = call->attrs;
    rn_export_attr attrs[] = {RN_EXPORT_TEXT("reduction", names[own->function]),
                              RN_EXPORT_INT("axis", own->axis)};
    rn_export_value all[] = {in[0], own->nd ? rn_export_cast(h, in[1], RN_DTYPE_I64) : in[1],
                             in[2]};
    out[0] = rn_export_node(h, own->nd ? "ScatterND" : "ScatterElements", all, 3, attrs,
                            own->nd ? 1 : 2, in[0].dtype, call->outputs[0].shape);
}

RN_EXPORTER(reverse_sequence) {
    const rn_reverse_sequence_attrs *own = call->attrs;
    rn_export_attr attrs[] = {RN_EXPORT_INT("batch_axis", own->batch_axis),
                              RN_EXPORT_INT("time_axis", own->time_axis)};
    rn_export_value pair[] = {in[0], rn_export_cast(h, in[1], RN_DTYPE_I64)};
    out[0] = rn_export_node(h, "ReverseSequence", pair, 2, attrs, 2, in[0].dtype,
                            call->outputs[0].shape);
}

// stablehlo_moves.c — ops that move elements or change their dtype.
#include "exchange/stablehlo_ops.h"

#include <math.h>
#include <stdio.h>

RN_HLO_EMITTER(reshape) {
    out[0] = rn_hlo_reshape(h, in[0], call->outputs[0].shape);
}

RN_HLO_EMITTER(permute) {
    const rn_permute_attrs *attrs = call->attrs;
    uint64_t axes[RN_MAX_RANK];
    for (uint32_t i = 0; i < in[0].shape.rank; i++)
        axes[i] = attrs->axes[i];
    out[0] = rn_hlo_transpose(h, in[0], axes);
}

RN_HLO_EMITTER(slice) {
    const rn_slice_attrs *attrs = call->attrs;
    out[0] = rn_hlo_slice(h, in[0], attrs->axis, attrs->start, attrs->count);
}

RN_HLO_EMITTER(concat) {
    const rn_concat_attrs *attrs = call->attrs;
    out[0] = rn_hlo_concat(h, in, call->input_count, attrs->axis);
}

RN_HLO_EMITTER(pad) {
    const rn_pad_attrs *attrs = call->attrs;
    uint64_t between[RN_MAX_RANK] = {0};
    uint32_t rank = in[0].shape.rank;
    char attributes[800];
    bool is_float = rn_dtype_get(in[0].dtype)->is_float;
    rn_hlo_value fill = is_float ? rn_hlo_float(h, in[0].dtype, (double)attrs->fill, RN_SCALAR)
                                 : rn_hlo_whole(h, in[0].dtype, (int64_t)attrs->fill, RN_SCALAR);
    snprintf(attributes, sizeof attributes,
             "edge_padding_low = %s, edge_padding_high = %s, interior_padding = %s",
             rn_hlo_array(attrs->before, rank).text, rn_hlo_array(attrs->after, rank).text,
             rn_hlo_array(between, rank).text);
    out[0] = rn_hlo_op(h, "stablehlo.pad", (rn_hlo_value[]){in[0], fill}, 2, NULL, attributes,
                       in[0].dtype, call->outputs[0].shape);
}

RN_HLO_EMITTER(broadcast) {
    out[0] = rn_hlo_expand(h, in[0], call->outputs[0].shape);
}

// ---- dtypes -------------------------------------------------------------------------------------

static bool is_signed(rn_dtype dtype) {
    return rn_hlo_element(dtype) && rn_hlo_element(dtype)[0] == 'i' && dtype != RN_DTYPE_BOOL;
}

static uint32_t bits_of(rn_dtype dtype) {
    return 8u * rn_dtype_get(dtype)->block_bytes;
}

// The ends of wide types are no floats, so they are taken by comparison.
rn_hlo_value rn_hlo_truncate(rn_hlo *h, rn_hlo_value x, rn_dtype to) {
    uint32_t bits = bits_of(to) - is_signed(to);
    double end = ldexp(1, (int)bits), low = is_signed(to) ? -end : 0;
    int64_t most = bits == 64 ? -1 : bits == 63 ? INT64_MAX : ((int64_t)1 << bits) - 1;
    int64_t least = !is_signed(to) ? 0 : bits == 63 ? INT64_MIN : -((int64_t)1 << bits);
    x = rn_hlo_widen(h, x);
    rn_hlo_value y = rn_hlo_convert(h, x, to);
    rn_hlo_value above = rn_hlo_compare(h, "GE", x, rn_hlo_like(h, x, end));
    rn_hlo_value below = rn_hlo_compare(h, "LE", x, rn_hlo_like(h, x, low));
    y = rn_hlo_select(h, above, rn_hlo_whole(h, to, most, x.shape), y);
    y = rn_hlo_select(h, below, rn_hlo_whole(h, to, least, x.shape), y);
    rn_hlo_value number = rn_hlo_compare(h, "EQ", x, x);
    return rn_hlo_select(h, number, y, rn_hlo_whole(h, to, 0, x.shape));
}

// Clamped to what both types hold, which is then the same number in both.
static rn_hlo_value saturate(rn_hlo *h, rn_hlo_value x, rn_dtype to) {
    uint32_t from_bits = bits_of(x.dtype) - is_signed(x.dtype), bits = bits_of(to) - is_signed(to);
    if (is_signed(x.dtype) && !is_signed(to))
        x = rn_hlo_binary(h, "maximum", x, rn_hlo_like(h, x, 0));
    else if (is_signed(x.dtype) && bits < from_bits)
        x = rn_hlo_binary(h, "maximum", x,
                          rn_hlo_whole(h, x.dtype, -((int64_t)1 << bits), x.shape));
    if (bits < from_bits)
        x = rn_hlo_binary(
            h, "minimum", x,
            rn_hlo_whole(h, x.dtype, bits == 63 ? INT64_MAX : ((int64_t)1 << bits) - 1, x.shape));
    return rn_hlo_convert(h, x, to);
}

// To the nearest, an even one where there are two.
RN_HLO_EMITTER(cast) {
    rn_dtype to = call->outputs[0].dtype, from = in[0].dtype;
    if (!rn_hlo_element(to))
        rn_hlo_refuse(h, "StableHLO has no %s", rn_dtype_get(to)->name);
    else if (from == to)
        out[0] = in[0];
    else if (to == RN_DTYPE_BOOL)
        out[0] = rn_hlo_compare(h, "NE", in[0], rn_hlo_like(h, in[0], 0));
    else if (rn_dtype_get(to)->is_float || from == RN_DTYPE_BOOL)
        out[0] = rn_hlo_convert(h, in[0], to);
    else if (rn_dtype_get(from)->is_float)
        out[0] =
            rn_hlo_truncate(h, rn_hlo_unary(h, "round_nearest_even", rn_hlo_widen(h, in[0])), to);
    else
        out[0] = saturate(h, in[0], to);
}

// By C's rules: what a float or a whole number is in 64 bits, of which the low ones stay.
RN_HLO_EMITTER(convert) {
    rn_dtype to = call->outputs[0].dtype, from = in[0].dtype;
    rn_hlo_value x = in[0];
    if (!rn_hlo_element(to))
        rn_hlo_refuse(h, "StableHLO has no %s", rn_dtype_get(to)->name);
    else if (to == RN_DTYPE_BOOL && from != to)
        x = rn_hlo_compare(h, "NE", x, rn_hlo_like(h, x, 0));
    else if (rn_dtype_get(from)->is_float && !rn_dtype_get(to)->is_float) {
        rn_hlo_value wide = rn_hlo_widen(h, x);
        x = rn_hlo_convert(h, rn_hlo_truncate(h, wide, RN_DTYPE_I64), to);
        if (to == RN_DTYPE_U64) {
            rn_hlo_value below = rn_hlo_compare(h, "LT", wide, rn_hlo_like(h, wide, 0));
            x = rn_hlo_select(h, below, x, rn_hlo_truncate(h, wide, to));
        }
    }
    out[0] = rn_hlo_result(h, call, x);
}

// A quantised weight has been widened before.
RN_HLO_EMITTER(dequantize) {
    out[0] = rn_hlo_convert(h, in[0], call->outputs[0].dtype);
}

// ---- steps --------------------------------------------------------------------------------------

// Backwards is forwards, then turned round.
RN_HLO_EMITTER(strided_slice) {
    const rn_strided_slice_attrs *attrs = call->attrs;
    uint64_t first[RN_MAX_RANK] = {0}, end[RN_MAX_RANK] = {0}, step[RN_MAX_RANK] = {0};
    uint64_t turned[RN_MAX_RANK];
    rn_shape shape = call->outputs[0].shape;
    uint32_t turns = 0;
    char attributes[800];
    for (uint32_t i = 0; i < shape.rank; i++) {
        uint64_t count = shape.dims[i];
        step[i] = attrs->step[i] < 0 ? 0 - (uint64_t)attrs->step[i] : (uint64_t)attrs->step[i];
        uint64_t span = count ? (count - 1) * step[i] : 0;
        first[i] = attrs->step[i] < 0 && count ? attrs->start[i] - span : attrs->start[i];
        end[i] = count ? first[i] + span + 1 : first[i];
        if (attrs->step[i] < 0) turned[turns++] = i;
    }
    snprintf(attributes, sizeof attributes, "start_indices = %s, limit_indices = %s, strides = %s",
             rn_hlo_array(first, shape.rank).text, rn_hlo_array(end, shape.rank).text,
             rn_hlo_array(step, shape.rank).text);
    out[0] = rn_hlo_op(h, "stablehlo.slice", in, 1, NULL, attributes, in[0].dtype, shape);
    if (turns == 0) return;
    snprintf(attributes, sizeof attributes, "dimensions = %s", rn_hlo_array(turned, turns).text);
    out[0] = rn_hlo_op(h, "stablehlo.reverse", out, 1, NULL, attributes, in[0].dtype, shape);
}

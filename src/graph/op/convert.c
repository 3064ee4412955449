// convert.c — the elements as another plain type by C's rules: floats towards 0, whole numbers
// wrap, bool is whether it is not 0. (cast rounds to nearest and saturates.)
//
// A float beyond the target's whole numbers becomes the nearest end of 64 bits and then wraps.
// NaN becomes 0. To fp8 it saturates, or not: then too large is NaN (e4m3) or infinity (e5m2).
#include "graph/op/move.h"
#include "graph/op/number.h"

#include <math.h>
#include <stdio.h>

// The largest of an fp8 type; 0: it is none.
static float most_of(rn_dtype dtype) {
    switch (dtype) {
    case RN_DTYPE_F8_E4M3:
        return 448.0f;
    case RN_DTYPE_F8_E4M3FNUZ:
        return 240.0f;
    case RN_DTYPE_F8_E5M2:
    case RN_DTYPE_F8_E5M2FNUZ:
        return 57344.0f;
    default:
        return 0;
    }
}

static rn_status shape(rn_shaping *s) {
    const rn_convert_attrs *attrs = s->attrs;
    RN_TRY(rn_shape_want_number(s, 0));
    if (rn_number_of(attrs->dtype) == RN_NUMBER_NONE)
        return rn_shape_fail(s, "%s has no plain numbers", rn_dtype_get(attrs->dtype)->name);
    s->out[0].dtype = attrs->dtype;
    s->out[0].shape = s->in[0].shape;
    return RN_OK;
}

static int64_t truncate_signed(double x) {
    if (isnan(x)) return 0;
    return x >= 0x1p63 ? INT64_MAX : x < -0x1p63 ? INT64_MIN : (int64_t)x;
}

static uint64_t truncate_unsigned(double x) {
    if (x < 0) return (uint64_t)truncate_signed(x);
    return x >= 0x1p64 ? UINT64_MAX : x >= 0 ? (uint64_t)x : 0;
}

// From a number of one kind to one of another.
static void change(rn_number from, const rn_numbers *x, uint64_t i, rn_dtype dtype,
                   rn_numbers *out) {
    rn_number to = rn_number_of(dtype);
    bool real = rn_number_is_float(from);
    double d = from == RN_NUMBER_F32   ? (double)x->f32[i]
               : from == RN_NUMBER_F64 ? x->f64[i]
               : from == RN_NUMBER_I64 ? (double)x->i64[i]
                                       : (double)x->u64[i];
    if (dtype == RN_DTYPE_BOOL)
        out->i64[i] = real ? d != 0 : x->u64[i] != 0;
    else if (to == RN_NUMBER_F32) // straight from 64 bits: rounded once
        out->f32[i] = from == RN_NUMBER_I64   ? (float)x->i64[i]
                      : from == RN_NUMBER_U64 ? (float)x->u64[i]
                                              : (float)d;
    else if (to == RN_NUMBER_F64)
        out->f64[i] = d;
    else if (!real)
        out->u64[i] = x->u64[i];
    else if (to == RN_NUMBER_I64)
        out->i64[i] = truncate_signed(d);
    else
        out->u64[i] = truncate_unsigned(d);
}

// What is beyond fp8's largest is made what a conversion that saturates leaves alone: infinity in
// e5m2, NaN in e4m3. The largest that still rounds to it is half a step above. (The fnuz kinds are
// NaN there by themselves.)
static void overflow_fp8(rn_dtype dtype, float *x /* (n) */, uint64_t n) {
    if (dtype != RN_DTYPE_F8_E4M3 && dtype != RN_DTYPE_F8_E5M2) return;
    float most = dtype == RN_DTYPE_F8_E4M3 ? 464.0f : 61440.0f;
    for (uint64_t i = 0; i < n; i++)
        if (fabsf(x[i]) > most || (fabsf(x[i]) == most && dtype == RN_DTYPE_F8_E5M2))
            x[i] = dtype == RN_DTYPE_F8_E5M2 ? copysignf(INFINITY, x[i]) : NAN;
}

static void saturate_fp8(rn_dtype dtype, float *x /* (n) */, uint64_t n) {
    float most = most_of(dtype);
    for (uint64_t i = 0; i < n; i++)
        if (fabsf(x[i]) > most) x[i] = copysignf(most, x[i]);
}

static rn_status reference(const rn_call *call) {
    const rn_convert_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    rn_number from = rn_number_of(x->dtype);
    uint64_t n = rn_tensor_elements(y);
    for (uint64_t at = 0; at < n; at += RN_NUMBERS) {
        rn_numbers v, out;
        uint64_t count = n - at < RN_NUMBERS ? n - at : RN_NUMBERS;
        rn_numbers_load(x, at, 1, count, &v);
        for (uint64_t i = 0; i < count; i++)
            change(from, &v, i, y->dtype, &out);
        if (most_of(y->dtype) > 0)
            (attrs->saturate ? saturate_fp8 : overflow_fp8)(y->dtype, out.f32, count);
        rn_numbers_store(y, at, count, &out);
    }
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_convert_attrs *a = attrs;
    snprintf(out, bytes, "to %s%s", rn_dtype_get(a->dtype)->name,
             most_of(a->dtype) > 0 && a->saturate ? ", saturating" : "");
}

extern const rn_op_info rn_convert_op;
const rn_op_info rn_convert_op = {
    .name = "convert",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_convert_attrs),
    .traits = RN_TRAIT_ELEMENTWISE,
    .shape = shape,
    .cost = rn_move_cost,
    .reference = reference,
    .print = print,
};

// Both rules are one between f32, f16 and bf16, and from whole numbers to f32: cast has kernels for
// those.
static bool is_common(rn_dtype dtype) {
    return dtype == RN_DTYPE_F32 || dtype == RN_DTYPE_F16 || dtype == RN_DTYPE_BF16;
}

static bool suits_cast(rn_dtype from, rn_dtype to) {
    rn_number number = rn_number_of(from);
    bool whole = number == RN_NUMBER_I64 || number == RN_NUMBER_U64;
    return (is_common(to) && is_common(from)) || (to == RN_DTYPE_F32 && whole);
}

rn_value rn_op_convert(rn_graph *g, rn_value x, rn_convert_attrs attrs) {
    if (suits_cast(rn_graph_dtype(g, x), attrs.dtype)) return rn_op_cast(g, x, attrs.dtype);
    return rn_graph_add(g, RN_OP_CONVERT, &x, 1, &attrs);
}

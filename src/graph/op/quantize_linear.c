// quantize_linear.c — round(x / scale) to even, + zero, within a range: ONNX's QuantizeLinear. The
// quotient is one of f32.
#include "graph/op/linear.h"

#include <math.h>
#include <stdio.h>

static bool range_of(rn_dtype dtype, int64_t *low, int64_t *high) {
    switch (dtype) {
    case RN_DTYPE_I8:
        return *low = INT8_MIN, *high = INT8_MAX, true;
    case RN_DTYPE_U8:
        return *low = 0, *high = UINT8_MAX, true;
    case RN_DTYPE_I16:
        return *low = INT16_MIN, *high = INT16_MAX, true;
    case RN_DTYPE_U16:
        return *low = 0, *high = UINT16_MAX, true;
    case RN_DTYPE_I32:
        return *low = INT32_MIN, *high = INT32_MAX, true;
    default:
        return false;
    }
}

static rn_status shape(rn_shaping *s) {
    const rn_linear_attrs *a = s->attrs;
    int64_t low, high;
    bool fp8 = a->dtype == RN_DTYPE_F8_E4M3 || a->dtype == RN_DTYPE_F8_E5M2;
    RN_TRY(rn_shape_want_number(s, RN_LINEAR_X));
    if (!fp8 && !range_of(a->dtype, &low, &high))
        return rn_shape_fail(s, "%s is not quantised to", rn_dtype_get(a->dtype)->name);
    if (s->in[RN_LINEAR_ZERO].dtype != RN_DTYPE_NONE)
        RN_TRY(rn_shape_want(s, RN_LINEAR_ZERO, a->dtype));
    return rn_linear_shape(s);
}

static rn_status reference(const rn_call *call) {
    const rn_linear_attrs *a = call->attrs;
    const rn_tensor *zero = &call->inputs[RN_LINEAR_ZERO], *y = &call->outputs[0];
    int64_t low = 0, high = 0;
    bool whole = range_of(y->dtype, &low, &high);
    if (a->low != a->high) low = a->low, high = a->high;
    uint64_t n = rn_tensor_elements(y);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = rn_linear_scale_at(call, i);
        float x = (float)rn_real_at(&call->inputs[RN_LINEAR_X], i);
        float q = x / (float)rn_real_at(&call->inputs[RN_LINEAR_SCALE], at);
        if (!whole) { // fp8 saturates; its zero is 0
            float most = y->dtype == RN_DTYPE_F8_E4M3 ? 448.0f : 57344.0f;
            rn_real_put(y, i, (double)(fabsf(q) > most ? copysignf(most, q) : q));
            continue;
        }
        double r = nearbyint((double)q) + (rn_tensor_given(zero) ? rn_real_at(zero, at) : 0);
        r = isnan(r) ? 0 : r < (double)low ? (double)low : r > (double)high ? (double)high : r;
        rn_real_put(y, i, r);
    }
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_linear_attrs *a = attrs;
    snprintf(out, bytes, "to %s, axis %u, block %llu", rn_dtype_get(a->dtype)->name, a->axis,
             (unsigned long long)a->block);
}

extern const rn_op_info rn_quantize_linear_op;
const rn_op_info rn_quantize_linear_op = {
    .name = "quantize_linear",
    .min_inputs = 3,
    .max_inputs = 3,
    .optional_inputs = 1u << RN_LINEAR_ZERO,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_linear_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
    .print = print,
};

rn_value rn_op_quantize_linear(rn_graph *g, rn_value x, rn_value scale, rn_value zero,
                               rn_linear_attrs attrs) {
    return rn_graph_add(g, RN_OP_QUANTIZE_LINEAR, (rn_value[]){x, scale, zero}, 3, &attrs);
}

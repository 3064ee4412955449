// number.c — see number.h.
#include "graph/op/number.h"
#include "graph/op/move.h"

#include <math.h>

rn_number rn_number_of(rn_dtype dtype) {
    static const uint8_t numbers[RN_DTYPE_COUNT] = {
        [RN_DTYPE_F64] = RN_NUMBER_F64,         [RN_DTYPE_F32] = RN_NUMBER_F32,
        [RN_DTYPE_F16] = RN_NUMBER_F32,         [RN_DTYPE_BF16] = RN_NUMBER_F32,
        [RN_DTYPE_F8_E4M3] = RN_NUMBER_F32,     [RN_DTYPE_F8_E5M2] = RN_NUMBER_F32,
        [RN_DTYPE_F8_E8M0] = RN_NUMBER_F32,     [RN_DTYPE_I64] = RN_NUMBER_I64,
        [RN_DTYPE_F8_E4M3FNUZ] = RN_NUMBER_F32, [RN_DTYPE_F8_E5M2FNUZ] = RN_NUMBER_F32,
        [RN_DTYPE_I32] = RN_NUMBER_I64,         [RN_DTYPE_I16] = RN_NUMBER_I64,
        [RN_DTYPE_I8] = RN_NUMBER_I64,          [RN_DTYPE_BOOL] = RN_NUMBER_I64,
        [RN_DTYPE_U64] = RN_NUMBER_U64,         [RN_DTYPE_U32] = RN_NUMBER_U64,
        [RN_DTYPE_U16] = RN_NUMBER_U64,         [RN_DTYPE_U8] = RN_NUMBER_U64,
    };
    return (unsigned)dtype < RN_DTYPE_COUNT ? (rn_number)numbers[dtype] : RN_NUMBER_NONE;
}

rn_dtype rn_graph_dtype(const rn_graph *graph, rn_value value) {
    if (value == RN_NO_VALUE || value > rn_graph_value_count(graph)) return RN_DTYPE_NONE;
    return rn_graph_value(graph, value)->dtype;
}

bool rn_graph_takes_any(const rn_graph *graph, rn_value value) {
    rn_dtype dtype = rn_graph_dtype(graph, value);
    return dtype != RN_DTYPE_F32 && rn_number_of(dtype) != RN_NUMBER_NONE;
}

// ---- loading and storing ------------------------------------------------------------------------

// The fnuz kinds of fp8: no infinities, no -0; a lone sign is NaN. `mantissa` bits, and a bias of
// 8 (e4m3) or 16 (e5m2).
static bool is_fnuz(rn_dtype dtype) {
    return dtype == RN_DTYPE_F8_E4M3FNUZ || dtype == RN_DTYPE_F8_E5M2FNUZ;
}

static float widen_fnuz(rn_dtype dtype, uint8_t bits) {
    int mantissa = dtype == RN_DTYPE_F8_E4M3FNUZ ? 3 : 2, bias = mantissa == 3 ? 8 : 16;
    int exponent = (bits & 127) >> mantissa, fraction = bits & ((1 << mantissa) - 1);
    if (bits == 0x80) return NAN;
    if (exponent) fraction |= 1 << mantissa;
    float size = ldexpf((float)fraction, (exponent ? exponent : 1) - bias - mantissa);
    return bits & 0x80 ? -size : size;
}

// To nearest even; what is beyond the largest is NaN, as its neighbours do not exist.
static uint8_t narrow_fnuz(rn_dtype dtype, float x) {
    int mantissa = dtype == RN_DTYPE_F8_E4M3FNUZ ? 3 : 2, bias = mantissa == 3 ? 8 : 16, exponent;
    float size = fabsf(x);
    if (!isfinite(x)) return 0x80;
    (void)frexpf(size, &exponent); // size is 0.5 to 1 times 2^exponent
    int least = 1 - bias, at = exponent - 1 > least ? exponent - 1 : least;
    float steps = nearbyintf(ldexpf(size, mantissa - at)); // of the last place
    long code = (long)steps + ((long)(at - least) << mantissa);
    if (steps == 0) return 0;
    if (code > 127) return 0x80;
    return (uint8_t)(code | (signbit(x) ? 0x80 : 0));
}

#define WIDEN(type, field)                                                                         \
    for (uint64_t i = 0; i < n; i++)                                                               \
    out->field[i] = ((const type *)raw)[i]

static void widen(rn_dtype dtype, const void *raw, uint64_t n, rn_numbers *out) {
    switch (dtype) {
    case RN_DTYPE_F32:
    case RN_DTYPE_F64:
    case RN_DTYPE_I64:
    case RN_DTYPE_U64:
        memcpy(out, raw, n * rn_dtype_get(dtype)->block_bytes);
        break;
    case RN_DTYPE_I32:
        WIDEN(int32_t, i64);
        break;
    case RN_DTYPE_I16:
        WIDEN(int16_t, i64);
        break;
    case RN_DTYPE_I8:
        WIDEN(int8_t, i64);
        break;
    case RN_DTYPE_U32:
        WIDEN(uint32_t, u64);
        break;
    case RN_DTYPE_U16:
        WIDEN(uint16_t, u64);
        break;
    case RN_DTYPE_U8:
        WIDEN(uint8_t, u64);
        break;
    case RN_DTYPE_BOOL:
        for (uint64_t i = 0; i < n; i++)
            out->i64[i] = ((const uint8_t *)raw)[i] != 0;
        break;
    case RN_DTYPE_F8_E4M3FNUZ:
    case RN_DTYPE_F8_E5M2FNUZ:
        for (uint64_t i = 0; i < n; i++)
            out->f32[i] = widen_fnuz(dtype, ((const uint8_t *)raw)[i]);
        break;
    default:
        (void)!rn_dtype_to_f32(dtype, raw, out->f32, n); // one element a block: cannot fail
        break;
    }
}

void rn_numbers_load(const rn_tensor *from, uint64_t at, uint64_t step, uint64_t n,
                     rn_numbers *out) {
    uint64_t size = rn_element_bytes(from);
    const char *data = (const char *)from->data + at * size;
    if (step == 1) {
        widen(from->dtype, data, n, out);
        return;
    }
    rn_numbers raw;
    rn_move_row((char *)&raw, 1, data, step, n, size);
    widen(from->dtype, &raw, n, out);
}

#define NARROW(type)                                                                               \
    for (uint64_t i = 0; i < n; i++)                                                               \
    ((type *)data)[i] = (type)from->u64[i]

void rn_numbers_store(const rn_tensor *to, uint64_t at, uint64_t n, const rn_numbers *from) {
    uint64_t size = rn_element_bytes(to);
    void *data = (char *)to->data + at * size;
    if (to->dtype == RN_DTYPE_BOOL)
        for (uint64_t i = 0; i < n; i++)
            ((uint8_t *)data)[i] = from->i64[i] != 0;
    else if (to->dtype == RN_DTYPE_F32 || size == 8)
        memcpy(data, from, n * size);
    else if (is_fnuz(to->dtype))
        for (uint64_t i = 0; i < n; i++)
            ((uint8_t *)data)[i] = narrow_fnuz(to->dtype, from->f32[i]);
    else if (rn_number_of(to->dtype) == RN_NUMBER_F32)
        (void)!rn_dtype_from_f32(to->dtype, from->f32, data, n); // cannot fail
    else if (size == 4)
        NARROW(uint32_t);
    else if (size == 2)
        NARROW(uint16_t);
    else
        NARROW(uint8_t);
}

double rn_number_at(const rn_tensor *from, uint64_t at) {
    rn_numbers one;
    rn_numbers_load(from, at, 1, 1, &one);
    switch (rn_number_of(from->dtype)) {
    case RN_NUMBER_F64:
        return one.f64[0];
    case RN_NUMBER_I64:
        return (double)one.i64[0];
    case RN_NUMBER_U64:
        return (double)one.u64[0];
    default:
        return one.f32[0];
    }
}

void rn_real_put(const rn_tensor *to, uint64_t at, double value) {
    rn_numbers one;
    if (to->dtype == RN_DTYPE_F32)
        ((float *)to->data)[at] = (float)value;
    else {
        switch (rn_number_of(to->dtype)) {
        case RN_NUMBER_F64:
            one.f64[0] = value;
            break;
        case RN_NUMBER_F32:
            one.f32[0] = (float)value;
            break;
        default:
            one.i64[0] = value >= 0x1p63 ? INT64_MAX : value > -0x1p63 ? (int64_t)value : INT64_MIN;
            break;
        }
        rn_numbers_store(to, at, 1, &one);
    }
}

int64_t rn_integer_at(const rn_tensor *from, uint64_t at) {
    rn_numbers one;
    rn_numbers_load(from, at, 1, 1, &one);
    return one.i64[0];
}

// ---- shapes -------------------------------------------------------------------------------------

rn_status rn_shape_want_number(const rn_shaping *s, uint32_t input) {
    if (rn_number_of(s->in[input].dtype) != RN_NUMBER_NONE) return RN_OK;
    return rn_shape_fail(s, "input %u, %s, has no plain numbers", input,
                         rn_dtype_get(s->in[input].dtype)->name);
}

rn_status rn_shape_want_float(const rn_shaping *s, uint32_t input) {
    if (rn_number_is_float(rn_number_of(s->in[input].dtype))) return RN_OK;
    return rn_shape_fail(s, "input %u must have floats, it has %s", input,
                         rn_dtype_get(s->in[input].dtype)->name);
}

rn_status rn_shape_want_index(const rn_shaping *s, uint32_t input) {
    rn_dtype dtype = s->in[input].dtype;
    if (dtype == RN_DTYPE_I32 || dtype == RN_DTYPE_I64) return RN_OK;
    return rn_shape_fail(s, "input %u, indices, must be i32 or i64, it is %s", input,
                         rn_dtype_get(dtype)->name);
}

rn_status rn_shape_want_axis(const rn_shaping *s, uint32_t input, uint32_t axis) {
    if (axis < s->in[input].shape.rank) return RN_OK;
    return rn_shape_fail(s, "input %u has no axis %u", input, axis);
}

rn_status rn_index_at(const rn_call *call, uint32_t input, uint64_t at, uint64_t length,
                      uint64_t *out) {
    int64_t index = rn_integer_at(&call->inputs[input], at);
    int64_t place = index < 0 ? index + (int64_t)length : index;
    *out = (uint64_t)place;
    if (place >= 0 && (uint64_t)place < length) return RN_OK;
    return rn_fail(RN_INVALID, "%s: index %lld is outside of an axis of %llu", rn_op_name(call->op),
                   (long long)index, (unsigned long long)length);
}

uint64_t rn_row_begin(rn_shape shape, uint64_t row, const rn_strides *strides) {
    uint64_t at = 0;
    for (uint32_t axis = shape.rank ? shape.rank - 1 : 0; axis-- > 0;) {
        at += row % shape.dims[axis] * strides->by[axis];
        row /= shape.dims[axis];
    }
    return at;
}

rn_axis_cut rn_axis_cut_of(rn_shape shape, uint32_t axis) {
    rn_axis_cut cut = {1, 1, 1};
    for (uint32_t i = 0; i < shape.rank; i++)
        *(i < axis ? &cut.outer : i > axis ? &cut.inner : &cut.length) *= shape.dims[i];
    return cut;
}

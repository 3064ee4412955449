// cast.c — from any type to any other, tile by tile.
//
// f32 holds integers up to 2^24 only, so integers and f64 take a wide path of their own: through
// int64 or double, one element at a time (they are never a model's bulk).
#include <ration/tensor.h>

#include <math.h>
#include <string.h>

enum { TILE = 2048 }; // a multiple of every block

typedef struct wide {
    bool is_float, is_unsigned64;
    double f64;
    int64_t i64;
    uint64_t u64; // when is_unsigned64
} wide;

static bool is_wide(rn_dtype dtype) {
    return dtype == RN_DTYPE_F64 || (dtype >= RN_DTYPE_I64 && dtype <= RN_DTYPE_BOOL);
}

#define LOAD(type, field)                                                                          \
    do {                                                                                           \
        type value;                                                                                \
        memcpy(&value, at, sizeof value);                                                          \
        out.field = value;                                                                         \
    } while (0)

static wide load(rn_dtype dtype, const char *at) {
    wide out = {.is_float = dtype == RN_DTYPE_F64, .is_unsigned64 = dtype == RN_DTYPE_U64};
    switch (dtype) {
    case RN_DTYPE_F64:
        LOAD(double, f64);
        break;
    case RN_DTYPE_I64:
        LOAD(int64_t, i64);
        break;
    case RN_DTYPE_I32:
        LOAD(int32_t, i64);
        break;
    case RN_DTYPE_I16:
        LOAD(int16_t, i64);
        break;
    case RN_DTYPE_I8:
        LOAD(int8_t, i64);
        break;
    case RN_DTYPE_U64:
        LOAD(uint64_t, u64);
        break;
    case RN_DTYPE_U32:
        LOAD(uint32_t, i64);
        break;
    case RN_DTYPE_U16:
        LOAD(uint16_t, i64);
        break;
    case RN_DTYPE_U8:
        LOAD(uint8_t, i64);
        break;
    default:
        out.i64 = *at != 0;
        break;
    }
    return out;
}

static double as_double(wide value) {
    if (value.is_float) return value.f64;
    return value.is_unsigned64 ? (double)value.u64 : (double)value.i64;
}

// Nearest integer within [low, high]; NaN is 0. `high` may be 2^63 - 1.
static int64_t clamp_signed(wide value, int64_t low, int64_t high) {
    if (value.is_unsigned64) return value.u64 > (uint64_t)high ? high : (int64_t)value.u64;
    if (!value.is_float) return value.i64 < low ? low : value.i64 > high ? high : value.i64;
    if (isnan(value.f64)) return 0;
    double rounded = nearbyint(value.f64);
    if (rounded <= (double)low) return low;
    return rounded >= (double)high ? high : (int64_t)rounded;
}

static uint64_t clamp_unsigned(wide value) {
    if (value.is_unsigned64) return value.u64;
    if (!value.is_float) return value.i64 < 0 ? 0 : (uint64_t)value.i64;
    if (!(value.f64 > 0)) return 0;
    double rounded = nearbyint(value.f64);
    return rounded >= 0x1p64 ? UINT64_MAX : (uint64_t)rounded;
}

static void store(rn_dtype dtype, wide value, char *at) {
    static const struct {
        int64_t low, high;
    } ranges[] = {
        [RN_DTYPE_I64] = {INT64_MIN, INT64_MAX}, [RN_DTYPE_I32] = {INT32_MIN, INT32_MAX},
        [RN_DTYPE_I16] = {INT16_MIN, INT16_MAX}, [RN_DTYPE_I8] = {INT8_MIN, INT8_MAX},
        [RN_DTYPE_U32] = {0, UINT32_MAX},        [RN_DTYPE_U16] = {0, UINT16_MAX},
        [RN_DTYPE_U8] = {0, UINT8_MAX},
    };
    double f64 = as_double(value);
    uint64_t bits;
    if (dtype == RN_DTYPE_F64)
        memcpy(&bits, &f64, sizeof bits);
    else if (dtype == RN_DTYPE_U64)
        bits = clamp_unsigned(value);
    else if (dtype == RN_DTYPE_BOOL)
        bits = f64 != 0;
    else
        bits = (uint64_t)clamp_signed(value, ranges[dtype].low, ranges[dtype].high);
    memcpy(at, &bits, rn_dtype_get(dtype)->block_bytes); // little-endian: the low bytes
}

static void convert_wide(rn_dtype from, const char *source, rn_dtype to, char *target,
                         uint64_t elements) {
    size_t step_in = rn_dtype_get(from)->block_bytes, step_out = rn_dtype_get(to)->block_bytes;
    for (uint64_t i = 0; i < elements; i++)
        store(to, load(from, source + i * step_in), target + i * step_out);
}

static bool is_aligned(const void *address) {
    return (uintptr_t)address % _Alignof(float) == 0;
}

rn_status rn_dtype_convert(rn_dtype from, const void *source, rn_dtype to, void *target,
                           uint64_t elements) {
    const char *in = source;
    char *out = target;
    uint64_t in_bytes, out_bytes;
    float tile[TILE];
    if (!rn_dtype_bytes(from, elements, &in_bytes) || !rn_dtype_bytes(to, elements, &out_bytes))
        return rn_fail(RN_INVALID, "%llu elements are not whole blocks of %s and %s",
                       (unsigned long long)elements, rn_dtype_get(from)->name,
                       rn_dtype_get(to)->name);
    if (from == to) {
        memcpy(target, source, in_bytes);
        return RN_OK;
    }
    if (is_wide(from) && is_wide(to)) {
        convert_wide(from, in, to, out, elements);
        return RN_OK;
    }
    // A file may hold floats at any offset: only aligned ones are worked on in place.
    if (to == RN_DTYPE_F32 && is_aligned(target))
        return rn_dtype_to_f32(from, source, target, elements);
    if (from == RN_DTYPE_F32 && is_aligned(source))
        return rn_dtype_from_f32(to, source, target, elements);
    for (uint64_t left = elements; left > 0;) {
        uint64_t now = left < TILE ? left : TILE;
        RN_TRY(rn_dtype_to_f32(from, in, tile, now));
        RN_TRY(rn_dtype_from_f32(to, tile, out, now));
        if (!rn_dtype_bytes(from, now, &in_bytes) || !rn_dtype_bytes(to, now, &out_bytes))
            return rn_fail(RN_INTERNAL, "a tile is not whole blocks");
        in += in_bytes;
        out += out_bytes;
        left -= now;
    }
    return RN_OK;
}

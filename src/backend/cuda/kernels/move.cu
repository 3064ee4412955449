// move.cu — elements to other places, into other types: what permute, slice, concat, pad,
// broadcast, cast, quantize and dequantize are made of.
#include "begin.cuh"
#include "plain.cuh"

// ---- places -------------------------------------------------------------------------------------

template <class Unit, class Index> __device__ __forceinline__ void move_all(const rn_move_args &a) {
    Index count = (Index)a.walk.count;
    for (uint64_t i = rn_thread(); i < a.n; i += rn_threads()) {
        uint64_t from, to;
        rn_walk_find<Index>(a.walk, (Index)i, count, 1, &from, &to);
        ((Unit *)a.to)[to] = ((const Unit *)a.from)[from];
    }
}

template <class Unit> __device__ __forceinline__ void move_units(const rn_move_args &a) {
    if (a.n <= UINT32_MAX)
        move_all<Unit, uint32_t>(a);
    else
        move_all<Unit, uint64_t>(a);
}

extern "C" __global__ void rn_move(const __grid_constant__ rn_move_args a) {
    rn_begin();
    switch (a.unit) {
    case 1:
        return move_units<uint8_t>(a);
    case 2:
        return move_units<uint16_t>(a);
    case 4:
        return move_units<uint32_t>(a);
    case 8:
        return move_units<uint2>(a);
    case 16:
        return move_units<uint4>(a);
    }
}

// A tile is read along a and written along b. Blocks of 32 by 8 threads, counted through.
template <class Unit> __device__ __forceinline__ void transpose_all(const rn_transpose_args &t) {
    __shared__ Unit tile[32][33];
    uint32_t x = threadIdx.x % 32, y = threadIdx.x / 32;
    uint64_t wide = (t.a + 31) / 32, tiles = wide * ((t.b + 31) / 32);
    for (uint64_t i = blockIdx.x; i < t.matrices * tiles; i += gridDim.x) {
        uint64_t matrix = i / tiles, at = i % tiles, a0 = at % wide * 32, b0 = at / wide * 32;
        uint64_t from, to;
        rn_walk_find<uint64_t>(t.walk, matrix, t.walk.count, 1, &from, &to);
        for (uint32_t r = y; r < 32; r += 8)
            if (a0 + x < t.a && b0 + r < t.b)
                tile[r][x] = ((const Unit *)t.from)[from + a0 + x + (b0 + r) * t.from_stride];
        __syncthreads();
        for (uint32_t r = y; r < 32; r += 8)
            if (a0 + r < t.a && b0 + x < t.b)
                ((Unit *)t.to)[to + (a0 + r) * t.to_stride + b0 + x] = tile[x][r];
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_transpose(const __grid_constant__ rn_transpose_args t) {
    rn_begin();
    switch (t.unit) {
    case 1:
        return transpose_all<uint8_t>(t);
    case 2:
        return transpose_all<uint16_t>(t);
    case 4:
        return transpose_all<uint32_t>(t);
    case 8:
        return transpose_all<uint64_t>(t);
    }
}

extern "C" __global__ void rn_fill(const __grid_constant__ rn_fill_args a) {
    rn_begin();
    uint32_t low = (uint32_t)a.pattern, high = (uint32_t)(a.pattern >> 32);
    uint64_t wide = rn_is_aligned(a.to, 16) ? a.bytes / 16 : 0;
    for (uint64_t i = rn_thread(); i < wide; i += rn_threads())
        ((uint4 *)a.to)[i] = make_uint4(low, high, low, high);
    for (uint64_t i = 16 * wide + rn_thread(); i < a.bytes; i += rn_threads())
        a.to[i] = (uint8_t)(a.pattern >> i % 8 * 8);
}

// ---- types --------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t narrow_f16(float value) {
    uint32_t bits = __float_as_uint(value), rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return (bits >> 16 & 0x8000) | 0x7e00 | (rest >> 13 & 0x3ff);
    return __half_as_ushort(__float2half_rn(value));
}

__device__ __forceinline__ uint32_t narrow_bf16(float value) {
    uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16 | 0x40;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

__device__ __forceinline__ uint32_t narrow_e4m3(float value) {
    uint32_t bits = __float_as_uint(value), rest = bits & 0x7fffffff, byte;
    if (rest >= 0x7f800000)
        byte = 0x7f;
    else if (rest >= 0x43e00000) // 448
        byte = 0x7e;
    else if (rest < 0x3c800000) // below 2^-6
        byte = __float_as_uint(__fadd_rn(__uint_as_float(rest), 0x1p14f)) - 0x46800000;
    else
        byte = ((rest + 0x7ffff + (rest >> 20 & 1)) >> 20) - (120u << 3);
    return (bits >> 24 & 0x80) | byte;
}

__device__ __forceinline__ uint32_t narrow_e5m2(float value) {
    uint32_t bits = __float_as_uint(value), rest = bits & 0x7fffffff, byte;
    if (rest > 0x7f800000)
        byte = 0x7f;
    else if (rest == 0x7f800000)
        byte = 0x7c;
    else if (rest >= 0x47600000) // 57344
        byte = 0x7b;
    else if (rest < 0x38800000) // below 2^-14
        byte = __float_as_uint(__fadd_rn(__uint_as_float(rest), 0x1p7f)) - 0x43000000;
    else
        byte = ((rest + 0xfffff + (rest >> 21 & 1)) >> 21) - (112u << 2);
    return (bits >> 24 & 0x80) | byte;
}

// A number of the wide types: f64 and all integers convert among each other without f32.
struct wide {
    bool is_float, is_unsigned; // u64 is valid where is_unsigned
    double f64;
    int64_t i64;
    uint64_t u64;
};

__device__ __forceinline__ bool is_wide(uint32_t type) {
    return type == RN_PLAIN_F64 || (type >= RN_PLAIN_I64 && type <= RN_PLAIN_BOOL);
}

__device__ wide load_wide(uint32_t type, const uint8_t *data, uint64_t i) {
    wide v = {type == RN_PLAIN_F64, type == RN_PLAIN_U64, 0, 0, 0};
    switch (type) {
    case RN_PLAIN_F64:
        v.f64 = ((const double *)data)[i];
        break;
    case RN_PLAIN_I64:
        v.i64 = ((const int64_t *)data)[i];
        break;
    case RN_PLAIN_I32:
        v.i64 = ((const int32_t *)data)[i];
        break;
    case RN_PLAIN_I16:
        v.i64 = ((const int16_t *)data)[i];
        break;
    case RN_PLAIN_I8:
        v.i64 = ((const int8_t *)data)[i];
        break;
    case RN_PLAIN_U64:
        v.u64 = ((const uint64_t *)data)[i];
        break;
    case RN_PLAIN_U32:
        v.i64 = ((const uint32_t *)data)[i];
        break;
    case RN_PLAIN_U16:
        v.i64 = ((const uint16_t *)data)[i];
        break;
    case RN_PLAIN_U8:
        v.i64 = data[i];
        break;
    default:
        v.i64 = data[i] != 0;
        break;
    }
    return v;
}

__device__ __forceinline__ double as_double(const wide &v) {
    if (v.is_float) return v.f64;
    return v.is_unsigned ? (double)v.u64 : (double)v.i64;
}

// Nearest within [low, high]; NaN is 0.
__device__ __forceinline__ int64_t clamp_wide(const wide &v, int64_t low, int64_t high) {
    if (v.is_unsigned) return v.u64 > (uint64_t)high ? high : (int64_t)v.u64;
    if (!v.is_float) return v.i64 < low ? low : v.i64 > high ? high : v.i64;
    if (v.f64 != v.f64) return 0;
    double rounded = rint(v.f64);
    if (rounded <= (double)low) return low;
    return rounded >= (double)high ? high : (int64_t)rounded;
}

__device__ __forceinline__ uint64_t clamp_unsigned(const wide &v) {
    if (v.is_unsigned) return v.u64;
    if (!v.is_float) return v.i64 < 0 ? 0 : (uint64_t)v.i64;
    if (!(v.f64 > 0)) return 0;
    double rounded = rint(v.f64);
    return rounded >= 0x1p64 ? UINT64_MAX : (uint64_t)rounded;
}

__device__ void store_wide(uint32_t type, const wide &v, uint8_t *data, uint64_t i) {
    switch (type) {
    case RN_PLAIN_F64:
        ((double *)data)[i] = as_double(v);
        break;
    case RN_PLAIN_I64:
        ((int64_t *)data)[i] = clamp_wide(v, INT64_MIN, INT64_MAX);
        break;
    case RN_PLAIN_I32:
        ((int32_t *)data)[i] = (int32_t)clamp_wide(v, INT32_MIN, INT32_MAX);
        break;
    case RN_PLAIN_I16:
        ((int16_t *)data)[i] = (int16_t)clamp_wide(v, INT16_MIN, INT16_MAX);
        break;
    case RN_PLAIN_I8:
        ((int8_t *)data)[i] = (int8_t)clamp_wide(v, INT8_MIN, INT8_MAX);
        break;
    case RN_PLAIN_U64:
        ((uint64_t *)data)[i] = clamp_unsigned(v);
        break;
    case RN_PLAIN_U32:
        ((uint32_t *)data)[i] = (uint32_t)clamp_wide(v, 0, UINT32_MAX);
        break;
    case RN_PLAIN_U16:
        ((uint16_t *)data)[i] = (uint16_t)clamp_wide(v, 0, UINT16_MAX);
        break;
    case RN_PLAIN_U8:
        data[i] = (uint8_t)clamp_wide(v, 0, UINT8_MAX);
        break;
    default:
        data[i] = as_double(v) != 0;
        break;
    }
}

__device__ __forceinline__ void store_float(uint32_t type, float value, uint8_t *data, uint64_t i) {
    switch (type) {
    case RN_PLAIN_F32:
        ((float *)data)[i] = value;
        break;
    case RN_PLAIN_F16:
        ((uint16_t *)data)[i] = (uint16_t)narrow_f16(value);
        break;
    case RN_PLAIN_BF16:
        ((uint16_t *)data)[i] = (uint16_t)narrow_bf16(value);
        break;
    case RN_PLAIN_E4M3:
        data[i] = (uint8_t)narrow_e4m3(value);
        break;
    case RN_PLAIN_E5M2:
        data[i] = (uint8_t)narrow_e5m2(value);
        break;
    default: {
        wide v = {true, false, value, 0, 0};
        store_wide(type, v, data, i);
    }
    }
}

// The pairs that models are made of, four elements at once.
__device__ __forceinline__ float4 load_halves(uint32_t type, uint2 two) {
    if (type == RN_PLAIN_BF16)
        return make_float4(rn_widen_bf16(two.x & 0xffff), rn_widen_bf16(two.x >> 16),
                           rn_widen_bf16(two.y & 0xffff), rn_widen_bf16(two.y >> 16));
    return make_float4(rn_widen_f16(two.x & 0xffff), rn_widen_f16(two.x >> 16),
                       rn_widen_f16(two.y & 0xffff), rn_widen_f16(two.y >> 16));
}

__device__ __forceinline__ uint2 pack_halves(uint32_t type, float4 v) {
    if (type == RN_PLAIN_BF16)
        return make_uint2(narrow_bf16(v.x) | narrow_bf16(v.y) << 16,
                          narrow_bf16(v.z) | narrow_bf16(v.w) << 16);
    return make_uint2(narrow_f16(v.x) | narrow_f16(v.y) << 16, narrow_f16(v.z) | narrow_f16(v.w)
                                                                                     << 16);
}

__device__ __forceinline__ bool is_half(uint32_t type) {
    return type == RN_PLAIN_F16 || type == RN_PLAIN_BF16;
}

extern "C" __global__ void rn_cast(const __grid_constant__ rn_cast_args a) {
    rn_begin();
    bool aligned = rn_is_aligned(a.x, 16) && rn_is_aligned(a.y, 16), both = is_wide(a.from);
    bool widens = aligned && is_half(a.from) && a.to == RN_PLAIN_F32;
    bool narrows = aligned && a.from == RN_PLAIN_F32 && is_half(a.to);
    uint64_t fours = widens || narrows ? a.n / 4 : 0;
    both = both && is_wide(a.to);
    for (uint64_t i = rn_thread(); i < fours; i += rn_threads()) {
        if (widens)
            ((float4 *)a.y)[i] = load_halves(a.from, ((const uint2 *)a.x)[i]);
        else
            ((uint2 *)a.y)[i] = pack_halves(a.to, ((const float4 *)a.x)[i]);
    }
    for (uint64_t i = 4 * fours + rn_thread(); i < a.n; i += rn_threads()) {
        if (both)
            store_wide(a.to, load_wide(a.from, a.x, i), a.y, i);
        else
            store_float(a.to, rn_plain_value(a.from, a.x, i), a.y, i);
    }
}

// ---- quantize -----------------------------------------------------------------------------------

// Half away from zero, as the host rounds (tensor/quant_portable.c).
__device__ __forceinline__ int round_away(float value) {
    return fabsf(value) < 256.0f ? (int)__fadd_rn(value, copysignf(0x1.fffffep-2f, value)) : 0;
}

__device__ __forceinline__ int q4_0_index(float scaled) {
    float moved = __fadd_rn(scaled, 8.5f);
    if (!(moved >= 0 && moved < 256)) return 0;
    return moved < 16 ? (int)moved : 15;
}

__device__ __forceinline__ void store_scale(uint8_t *block, float scale) {
    uint32_t half = narrow_f16(scale);
    block[0] = (uint8_t)half;
    block[1] = (uint8_t)(half >> 8);
}

__device__ __forceinline__ void quantize_q8_0(float x, uint8_t *block, uint32_t lane) {
    uint32_t top = __reduce_max_sync(0xffffffffu, __float_as_uint(x) & 0x7fffffff);
    float scale = __fdiv_rn(__uint_as_float(top), 127.0f);
    float inverse = scale != 0 ? __frcp_rn(scale) : 0.0f;
    if (lane == 0) store_scale(block, scale);
    block[2 + lane] = (uint8_t)round_away(__fmul_rn(x, inverse));
}

// The first of the greatest size becomes -8; a NaN anywhere makes the scale NaN.
__device__ __forceinline__ void quantize_q4_0(float x, uint8_t *block, uint32_t lane) {
    uint32_t size = __float_as_uint(x) & 0x7fffffff;
    uint32_t top = __reduce_max_sync(0xffffffffu, size);
    uint32_t first = __ffs(__ballot_sync(0xffffffffu, size == top)) - 1;
    float peak = __shfl_sync(0xffffffffu, x, first);
    if (peak == 0) peak = 0; // a block of zeros: never -0
    if (top > 0x7f800000) peak = __uint_as_float(0x7fc00000);
    float scale = __fdiv_rn(peak, -8.0f);
    float inverse = scale != 0 ? __frcp_rn(scale) : 0.0f;
    int q = q4_0_index(__fmul_rn(x, inverse)), high = __shfl_down_sync(0xffffffffu, q, 16);
    if (lane == 0) store_scale(block, scale);
    if (lane < 16) block[2 + lane] = (uint8_t)(q | high << 4);
}

extern "C" __global__ void rn_quantize(const __grid_constant__ rn_quantize_args a) {
    rn_begin();
    uint32_t lane = threadIdx.x % 32;
    for (uint64_t i = rn_thread() / 32; i < a.blocks; i += rn_threads() / 32) {
        float x = a.x[i * 32 + lane];
        if (a.to == RN_PLAIN_Q8_0)
            quantize_q8_0(x, a.y + i * 34, lane);
        else
            quantize_q4_0(x, a.y + i * 18, lane);
    }
}

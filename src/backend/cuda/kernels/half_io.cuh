// half_io.cuh — elements of f32, bf16 or f16 as f32, eight at a time, by accesses of 16 bytes.
//
//     rn_eight x = rn_load_eight(a.x_type, a.x, 8 * i);          // elements 8 i .. 8 i + 7
//     rn_store_eight(a.y_type, a.y, 8 * i, y);
//
// A type is RN_PLAIN_F32, RN_PLAIN_BF16 or RN_PLAIN_F16 (rows_args.h). It is the same for all
// threads, so a test of it costs next to nothing beside the access; where it is a constant the test
// is gone. Kernels that need many loads in flight fetch first and widen later: rn_fetch_eight waits
// for nothing. Stores round to nearest even.
#ifndef RN_CUDA_KERNELS_HALF_IO_CUH
#define RN_CUDA_KERNELS_HALF_IO_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "rows_args.h"

// ---- one element --------------------------------------------------------------------------------

__device__ __forceinline__ float rn_widen_f16(uint32_t bits) {
    return __half2float(__ushort_as_half((uint16_t)bits));
}

__device__ __forceinline__ float rn_widen_bf16(uint32_t bits) {
    return __uint_as_float(bits << 16);
}

// Of two neighbours, the first in the lower bits. A NaN becomes the type's canonical one.
__device__ __forceinline__ uint32_t rn_narrow_two(uint32_t type, float first, float second) {
    if (type == RN_PLAIN_BF16) {
        __nv_bfloat162 two = __floats2bfloat162_rn(first, second);
        return *(const uint32_t *)&two;
    }
    __half2 two = __floats2half2_rn(first, second);
    return *(const uint32_t *)&two;
}

__device__ __forceinline__ float rn_load_one(uint32_t type, const void *data, uint64_t i) {
    if (type == RN_PLAIN_F32) return ((const float *)data)[i];
    uint32_t bits = ((const uint16_t *)data)[i];
    return type == RN_PLAIN_BF16 ? rn_widen_bf16(bits) : rn_widen_f16(bits);
}

__device__ __forceinline__ void rn_store_one(uint32_t type, void *data, uint64_t i, float value) {
    if (type == RN_PLAIN_F32)
        ((float *)data)[i] = value;
    else
        ((uint16_t *)data)[i] = (uint16_t)rn_narrow_two(type, value, 0.0f);
}

// ---- eight elements -----------------------------------------------------------------------------

struct rn_eight {
    float v[8];
};

// As they lie in memory; `high` is used by f32 alone.
struct rn_raw_eight {
    uint4 low, high;
};

// Where elements from `i` on lie.
__device__ __forceinline__ const uint4 *rn_place_of(uint32_t type, const void *data, uint64_t i) {
    return (const uint4 *)((const uint8_t *)data + (i << (type == RN_PLAIN_F32 ? 2 : 1)));
}

// Elements i .. i + 7 of `data`; their address is a multiple of 16.
__device__ __forceinline__ rn_raw_eight rn_fetch_eight(uint32_t type, const void *data,
                                                       uint64_t i) {
    const uint4 *from = rn_place_of(type, data, i);
    rn_raw_eight raw = {from[0], make_uint4(0, 0, 0, 0)};
    if (type == RN_PLAIN_F32) raw.high = from[1];
    return raw;
}

__device__ __forceinline__ rn_eight rn_widen_eight(uint32_t type, const rn_raw_eight &raw) {
    const uint32_t low[4] = {raw.low.x, raw.low.y, raw.low.z, raw.low.w};
    const uint32_t high[4] = {raw.high.x, raw.high.y, raw.high.z, raw.high.w};
    rn_eight x;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (type == RN_PLAIN_F32) {
            x.v[j] = __uint_as_float(low[j]);
            x.v[j + 4] = __uint_as_float(high[j]);
        } else if (type == RN_PLAIN_BF16) {
            x.v[2 * j] = __uint_as_float(low[j] << 16);
            x.v[2 * j + 1] = __uint_as_float(low[j] & 0xffff0000);
        } else {
            x.v[2 * j] = rn_widen_f16(low[j] & 0xffff);
            x.v[2 * j + 1] = rn_widen_f16(low[j] >> 16);
        }
    }
    return x;
}

__device__ __forceinline__ rn_eight rn_load_eight(uint32_t type, const void *data, uint64_t i) {
    return rn_widen_eight(type, rn_fetch_eight(type, data, i));
}

__device__ __forceinline__ void rn_store_eight(uint32_t type, void *data, uint64_t i,
                                               const rn_eight &x) {
    uint4 *to = (uint4 *)rn_place_of(type, data, i);
    if (type == RN_PLAIN_F32) {
        to[0] = make_uint4(__float_as_uint(x.v[0]), __float_as_uint(x.v[1]),
                           __float_as_uint(x.v[2]), __float_as_uint(x.v[3]));
        to[1] = make_uint4(__float_as_uint(x.v[4]), __float_as_uint(x.v[5]),
                           __float_as_uint(x.v[6]), __float_as_uint(x.v[7]));
        return;
    }
    *to = make_uint4(rn_narrow_two(type, x.v[0], x.v[1]), rn_narrow_two(type, x.v[2], x.v[3]),
                     rn_narrow_two(type, x.v[4], x.v[5]), rn_narrow_two(type, x.v[6], x.v[7]));
}

// ---- eights at any address, whole or not --------------------------------------------------------

// The first `count` of eight elements; what a row's last eight lacks is 0. `aligned`: the row lies
// at a multiple of 16 bytes and so do all its eights. So which thread has which elements follows
// from the row's length alone.
__device__ __forceinline__ rn_raw_eight rn_fetch_up_to_eight(uint32_t type, const void *data,
                                                             uint64_t i, uint32_t count,
                                                             bool aligned) {
    if (aligned && count >= 8) return rn_fetch_eight(type, data, i);
    rn_raw_eight raw = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
#pragma unroll 1 // rare: it must not take the registers of what is not
    for (uint32_t j = 0; j < 8 && j < count; j++) {
        bool f32 = type == RN_PLAIN_F32;
        uint32_t word = f32 ? j : j / 2, bits;
        bits = f32 ? ((const uint32_t *)data)[i + j]
                   : (uint32_t)((const uint16_t *)data)[i + j] << j % 2 * 16;
        raw.low.x |= word == 0 ? bits : 0, raw.low.y |= word == 1 ? bits : 0;
        raw.low.z |= word == 2 ? bits : 0, raw.low.w |= word == 3 ? bits : 0;
        raw.high.x |= word == 4 ? bits : 0, raw.high.y |= word == 5 ? bits : 0;
        raw.high.z |= word == 6 ? bits : 0, raw.high.w |= word == 7 ? bits : 0;
    }
    return raw;
}

__device__ __forceinline__ rn_eight rn_load_up_to_eight(uint32_t type, const void *data, uint64_t i,
                                                        uint32_t count, bool aligned) {
    return rn_widen_eight(type, rn_fetch_up_to_eight(type, data, i, count, aligned));
}

__device__ __forceinline__ void rn_store_up_to_eight(uint32_t type, void *data, uint64_t i,
                                                     uint32_t count, bool aligned,
                                                     const rn_eight &x) {
    if (aligned && count >= 8) return rn_store_eight(type, data, i, x);
    float v0 = x.v[0], v1 = x.v[1], v2 = x.v[2], v3 = x.v[3];
    float v4 = x.v[4], v5 = x.v[5], v6 = x.v[6], v7 = x.v[7];
#pragma unroll 1
    for (uint32_t j = 0; j < 8 && j < count; j++) {
        rn_store_one(type, data, i + j, v0);
        v0 = v1, v1 = v2, v2 = v3, v3 = v4, v4 = v5, v5 = v6, v6 = v7;
    }
}

#endif

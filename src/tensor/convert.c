// convert.c — the portable kernels, which are small_float.h in a loop, and the choice between
// versions.
#include "tensor/convert.h"

#include "base/cpu.h"
#include "tensor/small_float.h"

static void widen_f16(const void *source, float *target, uint64_t count) {
    const uint8_t *from = source;
    for (uint64_t i = 0; i < count; i++)
        target[i] = rn_f16_widen(rn_load_u16(from + 2 * i));
}

static void widen_bf16(const void *source, float *target, uint64_t count) {
    const uint8_t *from = source;
    for (uint64_t i = 0; i < count; i++)
        target[i] = rn_bf16_widen(rn_load_u16(from + 2 * i));
}

static void widen_e4m3(const void *source, float *target, uint64_t count) {
    const uint8_t *from = source;
    for (uint64_t i = 0; i < count; i++)
        target[i] = rn_e4m3_widen(from[i]);
}

static void widen_e5m2(const void *source, float *target, uint64_t count) {
    const uint8_t *from = source;
    for (uint64_t i = 0; i < count; i++)
        target[i] = rn_e5m2_widen(from[i]);
}

static void widen_i8(const void *source, float *target, uint64_t count) {
    const int8_t *from = source;
    for (uint64_t i = 0; i < count; i++)
        target[i] = from[i];
}

static void narrow_f16(const float *source, void *target, uint64_t count) {
    uint8_t *to = target;
    for (uint64_t i = 0; i < count; i++)
        rn_store_u16(to + 2 * i, rn_f16_narrow(source[i]));
}

static void narrow_bf16(const float *source, void *target, uint64_t count) {
    uint8_t *to = target;
    for (uint64_t i = 0; i < count; i++)
        rn_store_u16(to + 2 * i, rn_bf16_narrow(source[i]));
}

static void narrow_e4m3(const float *source, void *target, uint64_t count) {
    uint8_t *to = target;
    for (uint64_t i = 0; i < count; i++)
        to[i] = rn_e4m3_narrow(source[i]);
}

static void narrow_e5m2(const float *source, void *target, uint64_t count) {
    uint8_t *to = target;
    for (uint64_t i = 0; i < count; i++)
        to[i] = rn_e5m2_narrow(source[i]);
}

const rn_convert_kernels rn_convert_portable = {
    .widen_f16 = widen_f16,
    .widen_bf16 = widen_bf16,
    .widen_e4m3 = widen_e4m3,
    .widen_e5m2 = widen_e5m2,
    .widen_i8 = widen_i8,
    .narrow_f16 = narrow_f16,
    .narrow_bf16 = narrow_bf16,
    .narrow_e4m3 = narrow_e4m3,
    .narrow_e5m2 = narrow_e5m2,
};

const rn_convert_kernels *rn_convert_kernels_get(void) {
#if defined(__x86_64__)
    switch (rn_cpu_level_get()) {
    case RN_CPU_AVX512:
        return &rn_convert_avx512;
    case RN_CPU_AVX2:
        return &rn_convert_avx2;
    default:
        break;
    }
#endif
    return &rn_convert_portable;
}

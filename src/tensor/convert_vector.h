// convert_vector.h — the vector versions of convert.h's kernels, in the words of vector_avx2.h or
// vector_avx512.h. The including file has included one of those, and defines CONVERT_TABLE, the
// table's name.
//
// Each kernel takes whole vectors and leaves the rest to the portable kernel. The branches of
// small_float.h become picks: all cases are computed, one is kept.
#include "tensor/convert.h"
#include "tensor/small_float.h"

// The elements that fill whole vectors.
static uint64_t whole(uint64_t count) {
    return count & ~(uint64_t)(LANES - 1);
}

static void widen_f16(const void *source, float *target, uint64_t count) {
    const uint8_t *from = source;
    uint64_t end = whole(count);
    for (uint64_t i = 0; i < end; i += LANES)
        vstore(target + i, vload_half(from + 2 * i));
    rn_convert_portable.widen_f16(from + 2 * end, target + end, count - end);
}

static void widen_bf16(const void *source, float *target, uint64_t count) {
    const uint8_t *from = source;
    uint64_t end = whole(count);
    for (uint64_t i = 0; i < end; i += LANES)
        vstore(target + i, vfrom(ishl(iload_u16(from + 2 * i), 16)));
    rn_convert_portable.widen_bf16(from + 2 * end, target + end, count - end);
}

static vfloat widen_e4m3_vector(vint byte) {
    vint rest = iand(byte, iset(0x7f)), sign = ishl(iand(byte, iset(0x80)), 24);
    vint normal = iadd(ishl(rest, 20), iset(120 << 23));
    vint denormal = ifrom(vmul(vconvert(rest), vset(0x1p-9f)));
    vint bits = ipick(mgreater_int(rest, iset(7)), normal, denormal);
    return vfrom(ior(sign, ipick(mgreater_int(rest, iset(0x7e)), iset(0x7fc00000), bits)));
}

static void widen_e4m3(const void *source, float *target, uint64_t count) {
    const uint8_t *from = source;
    uint64_t end = whole(count);
    for (uint64_t i = 0; i < end; i += LANES)
        vstore(target + i, widen_e4m3_vector(iload_u8(from + i)));
    rn_convert_portable.widen_e4m3(from + end, target + end, count - end);
}

static void widen_e5m2(const void *source, float *target, uint64_t count) {
    const uint8_t *from = source;
    uint64_t end = whole(count);
    for (uint64_t i = 0; i < end; i += LANES)
        vstore(target + i, vload_e5m2(from + i));
    rn_convert_portable.widen_e5m2(from + end, target + end, count - end);
}

static void widen_i8(const void *source, float *target, uint64_t count) {
    const int8_t *from = source;
    uint64_t end = whole(count);
    for (uint64_t i = 0; i < end; i += LANES)
        vstore(target + i, vconvert(iload_i8(from + i)));
    rn_convert_portable.widen_i8(from + end, target + end, count - end);
}

static void narrow_f16(const float *source, void *target, uint64_t count) {
    uint8_t *to = target;
    uint64_t end = whole(count);
    for (uint64_t i = 0; i < end; i += LANES)
        vstore_half(to + 2 * i, vload(source + i));
    rn_convert_portable.narrow_f16(source + end, to + 2 * end, count - end);
}

static vint narrow_bf16_vector(vint bits) {
    vint rest = iand(bits, iset(0x7fffffff)), high = ishr(bits, 16);
    vint odd = iand(high, iset(1));
    vint rounded = ishr(iadd(bits, iadd(odd, iset(0x7fff))), 16);
    return ipick(mgreater_int(rest, iset(RN_F32_INF_BITS)), ior(high, iset(0x40)), rounded);
}

static void narrow_bf16(const float *source, void *target, uint64_t count) {
    uint8_t *to = target;
    uint64_t end = whole(count);
    for (uint64_t i = 0; i < end; i += LANES)
        istore_16(to + 2 * i, narrow_bf16_vector(ifrom(vload(source + i))));
    rn_convert_portable.narrow_bf16(source + end, to + 2 * end, count - end);
}

static vint narrow_e4m3_vector(vint bits) {
    vint rest = iand(bits, iset(0x7fffffff)), sign = iand(ishr(bits, 24), iset(0x80));
    vint kept = imin(rest, iset(0x43e00000)), odd = iand(ishr(kept, 20), iset(1));
    vint normal = isub(ishr(iadd(kept, iadd(odd, iset(0x7ffff))), 20), iset(120 << 3));
    vint denormal = isub(ifrom(vadd(vfrom(kept), vset(0x1p14f))), iset(0x46800000));
    vint byte = ipick(mgreater_int(iset(0x3c800000), kept), denormal, normal);
    vint nan = iset(0x7f);
    return ior(sign, ipick(mgreater_int(rest, iset(RN_F32_INF_BITS - 1)), nan, byte));
}

static void narrow_e4m3(const float *source, void *target, uint64_t count) {
    uint8_t *to = target;
    uint64_t end = whole(count);
    for (uint64_t i = 0; i < end; i += LANES)
        istore_8(to + i, narrow_e4m3_vector(ifrom(vload(source + i))));
    rn_convert_portable.narrow_e4m3(source + end, to + end, count - end);
}

static vint narrow_e5m2_vector(vint bits) {
    vint rest = iand(bits, iset(0x7fffffff)), sign = iand(ishr(bits, 24), iset(0x80));
    vint kept = imin(rest, iset(0x47600000)), odd = iand(ishr(kept, 21), iset(1));
    vint normal = isub(ishr(iadd(kept, iadd(odd, iset(0xfffff))), 21), iset(112 << 2));
    vint denormal = isub(ifrom(vadd(vfrom(kept), vset(0x1p7f))), iset(0x43000000));
    vint byte = ipick(mgreater_int(iset(0x38800000), kept), denormal, normal);
    byte = ipick(mgreater_int(rest, iset(RN_F32_INF_BITS - 1)), iset(0x7c), byte);
    return ior(sign, ipick(mgreater_int(rest, iset(RN_F32_INF_BITS)), iset(0x7f), byte));
}

static void narrow_e5m2(const float *source, void *target, uint64_t count) {
    uint8_t *to = target;
    uint64_t end = whole(count);
    for (uint64_t i = 0; i < end; i += LANES)
        istore_8(to + i, narrow_e5m2_vector(ifrom(vload(source + i))));
    rn_convert_portable.narrow_e5m2(source + end, to + end, count - end);
}

const rn_convert_kernels CONVERT_TABLE = {
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

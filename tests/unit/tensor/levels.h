// levels.h — for the tests of src/tensor: every instruction level that this processor has, and
// random floats that do not spare the awkward ones.
#ifndef RN_TEST_LEVELS_H
#define RN_TEST_LEVELS_H

#include "base/cpu.h"

#include <stdint.h>
#include <string.h>

// for_each_level(level) { ... } runs the body with that level in force; levels that are missing are
// left out.
#define for_each_level(level)                                                                      \
    for (rn_cpu_level level = RN_CPU_PORTABLE; level < RN_CPU_LEVEL_COUNT; level++)                \
        if (rn_cpu_level_force(level), rn_cpu_level_get() == level)

static inline uint32_t random_bits(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 32);
}

static inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// About a bell curve, as weights are.
static inline float random_weight(uint64_t *state) {
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (float)(random_bits(state) >> 8) * 0x1p-23f - 1.0f;
    return sum;
}

static inline void fill_weights(float *values, size_t count, uint64_t seed) {
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < count; i++)
        values[i] = random_weight(&state);
}

// NaN of both signs and kinds, infinities, zeros, denormals, the largest and the smallest.
static const uint32_t awkward_bits[] = {
    0x7fc00000, 0xffc00000, 0x7f800001, 0xffa00001, 0x7fffffff, 0x7f800000, 0xff800000,
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00400000, 0x00800000,
    0x80800000, 0x7f7fffff, 0xff7fffff, 0x3f800000, 0xbf800000, 0x00000005, 0x80000003,
};
#define AWKWARD_COUNT (sizeof awkward_bits / sizeof awkward_bits[0])

#endif

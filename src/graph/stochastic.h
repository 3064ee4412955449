// stochastic.h — f32 to bf16, rounded up or down at random: the nearer neighbour is the likelier,
// so that the mean of many roundings is the number itself and updates below half a step are not
// lost.
//
// The bits are a function of (seed, stream, step, element), never of who computes an element: 16
// uniform bits are added below the bf16's last one, and what is below it is cut off.
#ifndef RN_GRAPH_STOCHASTIC_H
#define RN_GRAPH_STOCHASTIC_H

#include <stdint.h>
#include <string.h>

// What a tensor's numbers of one step are drawn from.
typedef struct rn_noise {
    uint64_t seed;
    uint32_t stream, step; // of the tensor; of the training
} rn_noise;

// Words of elements [first, first + count): element i has word i % 4 of philox block (i / 4 low,
// i / 4 high, stream, step).
void rn_noise_words(const rn_noise *noise, uint64_t first, uint64_t count, uint32_t *out);

// The 16 bits of a word for each of three numbers that an element may have.
enum { RN_NOISE_WEIGHT, RN_NOISE_FIRST, RN_NOISE_SECOND };
static inline uint32_t rn_noise_bits(uint32_t word, int which) {
    if (which == RN_NOISE_WEIGHT) return word & 0xFFFF;
    return which == RN_NOISE_FIRST ? word >> 16 : (word * 0x9E3779B1u) >> 16;
}

// Infinity and NaN stay.
static inline uint16_t rn_bf16_stochastic(float value, uint32_t bits16) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7F800000u) == 0x7F800000u)
        return (uint16_t)(bits >> 16 | ((bits & 0x007FFFFFu) ? 0x40 : 0));
    return (uint16_t)((bits + bits16) >> 16);
}

static inline float rn_bf16_to_f32(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

#endif

// philox.h — random numbers by place: a pure function of (seed, stream, counter), so that any
// element can be made anywhere, in any order, again.
//
// Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
#ifndef RN_GRAPH_PHILOX_H
#define RN_GRAPH_PHILOX_H

#include <stdint.h>

// Ten rounds over the counter: four words of 32 random bits.
void rn_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);
// The block `counter` of a stream: key = seed, counter words (counter low, counter high, stream,
// 0).
void rn_philox_block(uint64_t seed, uint32_t stream, uint64_t counter, uint32_t out[4]);
// Element i of a stream takes word i % 4 of block i / 4.
uint32_t rn_philox_word(uint64_t seed, uint32_t stream, uint64_t element);

// In [0, 1), of the upper 24 bits: every result is exact.
static inline float rn_philox_unit(uint32_t word) {
    return (float)(word >> 8) * 0x1p-24f;
}
// Element i of the standard normal distribution. Box-Muller over words 2j and 2j + 1 of block i /
// 4, j = i % 4 / 2: with a in (0, 1] and b in [0, 1) of their upper 24 bits, sqrt(-2 ln a) times
// cos(2 pi b) for an even i, sin(2 pi b) for an odd one. In double, rounded to f32 at the end.
float rn_philox_normal(uint64_t seed, uint32_t stream, uint64_t element);

#endif

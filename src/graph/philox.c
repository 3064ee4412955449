// philox.c — each round multiplies two words to 64 bits and lets the halves change places; the key
// is advanced by two odd constants (the golden ratio and sqrt(3) - 1) between rounds.
#include "graph/philox.h"

#include <math.h>

enum { ROUNDS = 10 };

void rn_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]) {
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t a = (uint64_t)0xD2511F53 * c0, b = (uint64_t)0xCD9E8D57 * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void rn_philox_block(uint64_t seed, uint32_t stream, uint64_t counter, uint32_t out[4]) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t words[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), stream, 0};
    rn_philox(key, words, out);
}

uint32_t rn_philox_word(uint64_t seed, uint32_t stream, uint64_t element) {
    uint32_t words[4];
    rn_philox_block(seed, stream, element / 4, words);
    return words[element % 4];
}

float rn_philox_normal(uint64_t seed, uint32_t stream, uint64_t element) {
    uint32_t words[4];
    rn_philox_block(seed, stream, element / 4, words);
    const uint32_t *pair = words + element % 4 / 2 * 2;
    double a = ((double)(pair[0] >> 8) + 1) * 0x1p-24, b = (double)(pair[1] >> 8) * 0x1p-24;
    double radius = sqrt(-2 * log(a)), angle = 2 * M_PI * b;
    return (float)(radius * (element % 2 ? sin(angle) : cos(angle)));
}

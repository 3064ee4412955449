// stochastic.c — see stochastic.h.
#include "graph/stochastic.h"

#include "graph/philox.h"

void rn_noise_words(const rn_noise *noise, uint64_t first, uint64_t count, uint32_t *out) {
    uint32_t key[2] = {(uint32_t)noise->seed, (uint32_t)(noise->seed >> 32)};
    for (uint64_t i = 0; i < count;) {
        uint64_t element = first + i, block = element / 4;
        uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), noise->stream,
                               noise->step};
        uint32_t words[4];
        rn_philox(key, counter, words);
        for (uint64_t n = element % 4; n < 4 && i < count; n++)
            out[i++] = words[n];
    }
}

// noise.c — see noise.h. torch.randn fills a tensor of 16 or more with uniform numbers, then makes
// normal ones of every 16: the first eight are radii, the other eight angles (Box and Muller). What
// is left at the end is made with the 15 before it from fresh numbers. Fewer than 16 are made one
// by one, in double, two at a time.
#include "diffuse/noise.h"

#include <math.h>

void rn_torch_generator_seed(rn_torch_generator *g, uint64_t seed) {
    g->state[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < 624; i++)
        g->state[i] = 1812433253u * (g->state[i - 1] ^ g->state[i - 1] >> 30) + i;
    g->at = 624;
}

static void refill(rn_torch_generator *g) {
    for (uint32_t i = 0; i < 624; i++) {
        uint32_t y = (g->state[i] & 0x80000000u) | (g->state[(i + 1) % 624] & 0x7fffffffu);
        g->state[i] = g->state[(i + 397) % 624] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    g->at = 0;
}

uint32_t rn_torch_generator_next(rn_torch_generator *g) {
    if (g->at == 624) refill(g);
    uint32_t y = g->state[g->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

static float uniform(rn_torch_generator *g) {
    return (float)(rn_torch_generator_next(g) & 0xffffff) * 0x1p-24f;
}

static double uniform_double(rn_torch_generator *g) {
    uint64_t high = rn_torch_generator_next(g), low = rn_torch_generator_next(g);
    return (double)((high << 32 | low) & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}

static void make_sixteen(float *x) {
    for (int i = 0; i < 8; i++) {
        float radius = sqrtf(-2 * logf(1 - x[i])), angle = 2 * (float)M_PI * x[i + 8];
        x[i] = radius * cosf(angle);
        x[i + 8] = radius * sinf(angle);
    }
}

void rn_torch_randn(rn_torch_generator *g, float *out, uint64_t n) {
    if (n < 16) {
        for (uint64_t i = 0; i < n; i += 2) {
            double angle = 2 * M_PI * uniform_double(g);
            double radius = sqrt(-2 * log1p(-uniform_double(g)));
            out[i] = (float)(radius * cos(angle));
            if (i + 1 < n) out[i + 1] = (float)(radius * sin(angle));
        }
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        out[i] = uniform(g);
    for (uint64_t i = 0; i + 16 <= n; i += 16)
        make_sixteen(out + i);
    if (n % 16 == 0) return;
    for (uint64_t i = n - 16; i < n; i++)
        out[i] = uniform(g);
    make_sixteen(out + n - 16);
}

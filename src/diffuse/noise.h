// noise.h — standard normal numbers: by seed and place (philox), or as PyTorch's generator on the
// CPU gives them one after the other (mt19937), so that a seed draws the picture that it draws with
// diffusers.
#ifndef RN_DIFFUSE_NOISE_H
#define RN_DIFFUSE_NOISE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct rn_torch_generator {
    uint32_t state[624];
    uint32_t at;
} rn_torch_generator;

void rn_torch_generator_seed(rn_torch_generator *g, uint64_t seed);
uint32_t rn_torch_generator_next(rn_torch_generator *g);
// torch.randn of n elements (f32).
void rn_torch_randn(rn_torch_generator *g, float *out, uint64_t n);

#endif

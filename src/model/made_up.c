// made_up.c — numbers for a model that no file has any for: the same on every machine and at every
// budget.
#include <ration/plan.h>

#include <math.h>
#include <string.h>

// Evenly between -most and most.
static float next_float(uint64_t *state, float most) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return ((float)(*state >> 33) / (float)(1u << 30) - 1) * most;
}

void rn_builtin_weight(const rn_value_info *weight, uint64_t elements, float *out) {
    uint64_t state = 1469598103934665603ull, fan = 1;
    for (const char *at = weight->name; *at; at++)
        state = (state ^ (unsigned char)*at) * 1099511628211ull;
    for (uint32_t i = 1; i < weight->shape.rank; i++)
        fan *= weight->shape.dims[i];
    bool variance = strstr(weight->name, "running_var") != NULL;
    float most = weight->shape.rank > 1 ? sqrtf(3 / (float)fan) : 0.1f;
    for (uint64_t i = 0; i < elements; i++)
        out[i] = variance ? 1 : next_float(&state, most);
}

void rn_builtin_input(uint64_t seed, uint64_t elements, float *out) {
    for (uint64_t i = 0; i < elements; i++)
        out[i] = 0.5f + 0.5f * next_float(&seed, 1);
}

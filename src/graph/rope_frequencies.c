// rope_frequencies.c — pair i of `dims` turns by base^(-2i / dims) a position; the scalings slow
// the slow pairs down, so that a longer context looks like the one that was trained on.
#include "graph/rope_frequencies.h"

#include <math.h>

// Pairs that turn more often than `high_frequency` times within the original context stay, those
// that turn less often than `low_frequency` times are slowed by `factor`, between them it is mixed.
static double scale_llama3(const rn_rope_attrs *a, double frequency) {
    double turns = a->original_context * frequency / (2 * M_PI);
    if (turns > a->high_frequency) return frequency;
    if (turns < a->low_frequency) return frequency / a->factor;
    double smooth = (turns - a->low_frequency) / (a->high_frequency - a->low_frequency);
    return (1 - smooth) * frequency / a->factor + smooth * frequency;
}

// The pair (a fraction) that turns `turns` times within the original context.
static double find_pair(const rn_rope_attrs *a, double dims, double turns) {
    return dims * log(a->original_context / (turns * 2 * M_PI)) / (2 * log(a->base));
}

// YARN: from pair `low` to pair `high` the share of the slowed frequency rises from 0 to 1.
static double scale_yarn(const rn_rope_attrs *a, double dims, double pair, double frequency) {
    double low = find_pair(a, dims, a->beta_fast > 0 ? a->beta_fast : 32);
    double high = find_pair(a, dims, a->beta_slow > 0 ? a->beta_slow : 1);
    low = fmax(a->untruncated ? low : floor(low), 0);
    high = fmin(a->untruncated ? high : ceil(high), dims - 1);
    if (low == high) high += 0.001;
    double slowed = fmin(fmax((pair - low) / (high - low), 0), 1);
    return frequency / a->factor * slowed + frequency * (1 - slowed);
}

static double scale(const rn_rope_attrs *a, double dims, double pair, double frequency) {
    switch (a->scaling) {
    case RN_ROPE_LINEAR:
        return frequency / a->factor;
    case RN_ROPE_LLAMA3:
        return scale_llama3(a, frequency);
    case RN_ROPE_YARN:
        return scale_yarn(a, dims, pair, frequency);
    default: // NTK has changed the base
        return frequency;
    }
}

static double choose_attention_factor(const rn_rope_attrs *a) {
    if (a->attention_factor > 0) return a->attention_factor;
    if (a->scaling != RN_ROPE_YARN) return 1;
    return a->factor > 1 ? 0.1 * log(a->factor) + 1 : 1;
}

void rn_rope_divide(const rn_tensor *divisors, uint64_t dims, double *frequencies) {
    const float *by = divisors->data; // (dims / 2)
    for (uint64_t i = 0; i < dims / 2; i++)
        frequencies[i] /= (double)by[i];
}

void rn_rope_frequencies(const rn_rope_attrs *attrs, uint64_t head_dim, double *out,
                         double *out_attention_factor) {
    double dims = (double)rn_rope_dims(attrs, head_dim), base = attrs->base;
    if (attrs->scaling == RN_ROPE_NTK) base *= pow(attrs->factor, dims / (dims - 2));
    uint64_t first = 0;
    for (uint32_t n = 0; n < rn_rope_section_count(attrs); first += attrs->sections[n++] / 2)
        for (uint64_t i = 0; 2 * i < attrs->sections[n]; i++)
            out[first + i] = pow(base, -2.0 * (double)i / attrs->sections[n]);
    for (uint64_t i = 0; first == 0 && 2 * i < (uint64_t)dims; i++)
        out[i] = scale(attrs, dims, (double)i, pow(base, -2.0 * (double)i / dims));
    *out_attention_factor = choose_attention_factor(attrs);
}

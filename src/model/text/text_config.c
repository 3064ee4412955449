// text_config.c — numbers that no model has, and rope from a table of divisors.
#include "model/text/text_config.h"

#include <math.h>

// A count or a width, from the files.
static rn_status check_range(const char *what, uint64_t value, uint64_t most) {
    if (value >= 1 && value <= most) return RN_OK;
    return rn_fail(RN_CORRUPT, "%s cannot be %llu", what, (unsigned long long)value);
}

enum {
    MOST_WIDE = 1 << 24,
    MOST_WORDS = 1 << 28,
    LEAST_TENSORS = 6, // of a layer
};

rn_status rn_text_config_check(const rn_text_config *config, size_t tensor_count) {
    const rn_llama_config *c = &config->llama;
    RN_TRY(check_range("the width", c->dim, MOST_WIDE));
    RN_TRY(check_range("the width of the feed-forward", c->ffn, MOST_WIDE));
    RN_TRY(check_range("the number of heads", c->heads, MOST_WIDE));
    RN_TRY(check_range("the number of kv heads", c->kv_heads, MOST_WIDE));
    RN_TRY(check_range("the width of a head", c->head_dim, MOST_WIDE));
    RN_TRY(check_range("the width of all heads", (uint64_t)c->heads * c->head_dim, MOST_WIDE));
    if (c->full_head_dim) {
        uint64_t wide = (uint64_t)c->heads * c->full_head_dim;
        RN_TRY(check_range("the width of a head", c->full_head_dim, MOST_WIDE));
        RN_TRY(check_range("the width of all heads", wide, MOST_WIDE));
        RN_TRY(check_range("the number of kv heads", c->full_kv_heads, c->heads));
    }
    if (c->head_dim % 2 || c->heads % c->kv_heads)
        return rn_fail(RN_CORRUPT, "%u heads of width %u cannot share %u kv heads in even widths",
                       c->heads, c->head_dim, c->kv_heads);
    RN_TRY(check_range("the size of the vocabulary", c->vocab, MOST_WORDS));
    RN_TRY(check_range("the context", config->context, INT32_MAX));
    if (!(c->norm_eps > 0)) return rn_fail(RN_CORRUPT, "the norms' epsilon must be above 0");
    RN_TRY(check_range("the number of layers", c->layers, UINT32_MAX));
    if (c->layers <= tensor_count / LEAST_TENSORS) return RN_OK;
    return rn_fail(RN_CORRUPT, "%u layers cannot be made of the %zu tensors of the file", c->layers,
                   tensor_count);
}

// ---- divisors of rope ---------------------------------------------------------------------------

// What turns less than once within the original context is slowed by `factor`, what turns more than
// four times is not, as in all of Meta's models; the context follows from a pair between the two,
// or, where none is, lies anywhere between the last that is not slowed and the first that is.
static double find_context(const float *divisors, uint32_t dims, const rn_rope_attrs *rope) {
    const double low = 1, high = 4;
    double last = 0;
    for (uint32_t i = 0; i < dims / 2; i++) {
        double frequency = pow((double)rope->base, -2.0 * i / dims), d = (double)divisors[i];
        if (d >= (double)rope->factor)
            return last > 0 ? 2 * M_PI * sqrt(low * high / (last * frequency)) : low;
        if (d > 1) {
            double smooth = (1 / d - 1 / (double)rope->factor) / (1 - 1 / (double)rope->factor);
            return 2 * M_PI * (low + smooth * (high - low)) / frequency;
        }
        last = frequency;
    }
    return 0;
}

static double expected_divisor(const rn_rope_attrs *rope, double frequency) {
    double turns = rope->original_context * frequency / (2 * M_PI);
    double smooth = (turns - (double)rope->low_frequency) /
                    (double)(rope->high_frequency - rope->low_frequency);
    smooth = fmin(fmax(smooth, 0), 1);
    return 1 / ((1 - smooth) / (double)rope->factor + smooth);
}

rn_status rn_rope_from_divisors(const float *divisors, uint32_t dims, rn_rope_attrs *rope) {
    float largest = 1;
    for (uint32_t i = 0; i < dims / 2; i++)
        largest = fmaxf(largest, divisors[i]);
    if (largest > 1) {
        rope->scaling = RN_ROPE_LLAMA3;
        rope->factor = largest;
        rope->low_frequency = 1;
        rope->high_frequency = 4;
        double context = find_context(divisors, dims, rope);
        rope->original_context = context < 1 << 30 ? (uint32_t)lround(context) : 1 << 30;
    }
    for (uint32_t i = 0; i < dims / 2; i++) {
        double frequency = pow((double)rope->base, -2.0 * i / dims);
        double expected = largest > 1 ? expected_divisor(rope, frequency) : 1;
        if (!(fabs((double)divisors[i] - expected) <= 1e-4 * expected))
            return rn_fail(RN_UNSUPPORTED,
                           "rope_freqs.weight is not of Llama 3's kind: pair %u is %g, not %g", i,
                           (double)divisors[i], expected);
    }
    return RN_OK;
}

void rn_rope_to_divisors(const rn_rope_attrs *rope, uint32_t dims, float *divisors) {
    for (uint32_t i = 0; i < dims / 2; i++)
        divisors[i] =
            (float)expected_divisor(rope, pow((double)rope->base, -2.0 * i / (double)dims));
}

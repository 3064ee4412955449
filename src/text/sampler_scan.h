// sampler_scan.h — passes over the logits of a whole vocabulary: the largest, the k best, softmax.
#ifndef RN_TEXT_SAMPLER_SCAN_H
#define RN_TEXT_SAMPLER_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rn_candidate_token {
    uint32_t token;
    float value; // a logit, or a weight made from it
} rn_candidate_token;

typedef struct rn_logits_peak {
    float value;    // the largest
    uint32_t token; // the first that has it
    bool has_nan;   // then the others mean nothing
} rn_logits_peak;
// count > 0.
rn_logits_peak rn_logits_find_peak(const float *logits, size_t count);

// weights[i] = exp((logits[i] - peak) * scale), where no logit is above `peak`; exactly 1 at the
// peak, 0 for -INFINITY and whatever is below 1e-37. weights may be logits, or NULL. Returns their
// sum.
double rn_logits_weigh(const float *logits, size_t count, float peak, float scale, float *weights);

// The k best (k <= count), best first; of equals the lower token is better. out has room for k.
void rn_logits_select(const float *logits, size_t count, size_t k, rn_candidate_token *out);

#endif

// sampler.h — a sampler from the inside: several that draw in turn share one scratch.
#ifndef RN_TEXT_SAMPLER_H
#define RN_TEXT_SAMPLER_H

#include <ration/sampler.h>

#include "text/sampler_scan.h"

// Of one vocabulary; nothing in it lives from draw to draw.
typedef struct rn_sampler_scratch {
    float *logits;                  // (vocab_size): with bias and penalties; weights
    rn_candidate_token *candidates; // (vocab_size); at other times counts of tokens
    rn_candidate_token *spare;      // (vocab_size): for sorting
} rn_sampler_scratch;
#define RN_SAMPLER_SCRATCH_BYTES (sizeof(float) + 2 * sizeof(rn_candidate_token)) // a token

struct rn_sampler {
    rn_sampling sampling;
    uint32_t vocab_size;
    rn_sampler_scratch scratch; // empty where the draw is greedy and nothing is added
    void *block;                // the scratch's memory where it is the sampler's own
};

// Whether a draw needs scratch.
bool rn_sampling_is_plain(const rn_sampling *sampling);
// Whether a draw needs nothing but the largest logit; and such a draw.
bool rn_sampling_is_greedy(const rn_sampling *sampling);
RN_MUST_USE rn_status rn_sampler_take_largest(uint32_t token, float logit, rn_sample *out);
// A sampler in place that borrows its scratch. RN_INVALID as rn_sampling_check says.
RN_MUST_USE rn_status rn_sampler_init(rn_sampler *sampler, const rn_sampling *sampling,
                                      uint32_t vocab_size, rn_sampler_scratch scratch);
// Cuts a block of RN_SAMPLER_SCRATCH_BYTES * vocab_size bytes.
rn_sampler_scratch rn_sampler_scratch_cut(void *block, uint32_t vocab_size);

#endif

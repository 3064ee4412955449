// sampler.h — from logits to the next token.
//
// The random number of a draw is a function of (seed, position) alone: the same seed gives the same
// text on one device at every budget, whether tokens are made one by one or checked several a pass.
#ifndef RATION_SAMPLER_H
#define RATION_SAMPLER_H

#include <ration/constraint.h>

RN_BEGIN_DECLS

typedef struct rn_logit_bias {
    uint32_t token;
    float bias; // added to the logit; -INFINITY forbids the token
} rn_logit_bias;

// {0} is greedy. In this order: constraint, bias, penalties, temperature, top_k, top_p, min_p,
// draw.
typedef struct rn_sampling {
    float temperature;        // 0: greedy, the first of the largest
    uint32_t top_k;           // 0: all
    float top_p;              // 0 or 1: all; else the smallest set that reaches it
    float min_p;              // 0: all; else those of at least min_p times the largest probability
    float repetition_penalty; // 0 or 1: none; divides positive logits, multiplies negative ones
    float presence_penalty, frequency_penalty;
    uint32_t penalty_window; // tokens back that count, prompt included; 0: all
    uint64_t seed;
    const rn_logit_bias *bias; // (bias_count), borrowed while the sampler lives
    size_t bias_count;
    uint32_t logprobs;         // how many of the best to report besides the chosen one; at most 20
    rn_constraint *constraint; // NULL, or which tokens may come at all; borrowed while the sampler
                               // lives, and led on by its draws: of one text only
    bool without_logprob; // nor the chosen one's, which is 0 then: a sum over the vocabulary less
    uint64_t reserved[4]; // zero
} rn_sampling;
// RN_INVALID names the field and its limits.
RN_API RN_MUST_USE rn_status rn_sampling_check(const rn_sampling *sampling, uint32_t vocab_size);

#define RN_LOGPROBS_MAX 20

typedef struct rn_token_logprob {
    uint32_t token;
    float logprob; // of the model itself: log softmax of the raw logits
} rn_token_logprob;

typedef struct rn_sample {
    uint32_t token;
    float logprob;
    rn_token_logprob top[RN_LOGPROBS_MAX]; // (top_count), best first
    uint32_t top_count;
} rn_sample;

typedef struct rn_sampler rn_sampler;
// Takes what it will ever need: (vocab_size) candidates, or nothing where {0} will do.
RN_API RN_MUST_USE rn_status rn_sampler_create(const rn_sampling *sampling, uint32_t vocab_size,
                                               rn_sampler **out);
RN_API void rn_sampler_destroy(rn_sampler *sampler);
// logits (vocab_size) are left as they are; history (count): the tokens before, the newest last.
// position: of the token that is drawn. RN_CORRUPT: the logits are not numbers. RN_INVALID: no
// token is left, or a token of the history is not in the vocabulary.
RN_API RN_MUST_USE rn_status rn_sampler_draw(rn_sampler *sampler, const float *logits,
                                             const uint32_t *history, size_t count,
                                             uint64_t position, rn_sample *out);

RN_END_DECLS

#endif

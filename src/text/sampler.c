// sampler.c — bias, penalties, temperature, top_k, top_p, min_p, draw; and what the model itself
// thought of the result.
//
// Two shapes of the same draw. Where top_k or top_p is asked for, candidates are sorted, the best
// first, and cut; else all tokens stay in their own order. Either way a draw walks the weights
// until their sum passes u * total, with u in [0, 1) a function of (seed, position).
#include "text/sampler.h"

#include "base/checked.h"
#include "base/reserved.h"
#include "graph/philox.h"
#include "memory/account.h"
#include "text/sampler_sort.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define FROM      RN_HOST_OTHER
#define MOST      100.0f // of temperatures and penalties
#define MOST_BIAS 1e6f

enum { STREAM = 0x5a3b, FIRST_SORTED = 256 }; // of philox; how many top_p looks at first

// ---- options ------------------------------------------------------------------------------------

static rn_status check_range(const char *name, float value, float least, float most) {
    if (value >= least && value <= most) return RN_OK;
    return rn_fail(RN_INVALID, "%s is %g: it must be from %g to %g", name, (double)value,
                   (double)least, (double)most);
}

static rn_status check_bias(const rn_sampling *s, uint32_t vocab_size) {
    for (size_t i = 0; i < s->bias_count; i++) {
        if (s->bias[i].token >= vocab_size)
            return rn_fail(RN_INVALID, "bias of token %u: the vocabulary has %u", s->bias[i].token,
                           vocab_size);
        if (!(s->bias[i].bias <= MOST_BIAS))
            return rn_fail(RN_INVALID, "bias of token %u is %g: it must be at most %g",
                           s->bias[i].token, (double)s->bias[i].bias, (double)MOST_BIAS);
    }
    return RN_OK;
}

rn_status rn_sampling_check(const rn_sampling *s, uint32_t vocab_size) {
    if (vocab_size == 0) return rn_fail(RN_INVALID, "an empty vocabulary");
    RN_TRY(rn_check_reserved(s->reserved, "rn_sampling"));
    RN_TRY(check_range("temperature", s->temperature, 0, MOST));
    RN_TRY(check_range("top_p", s->top_p, 0, 1));
    RN_TRY(check_range("min_p", s->min_p, 0, 1));
    if (s->repetition_penalty != 0)
        RN_TRY(check_range("repetition_penalty", s->repetition_penalty, 1 / MOST, MOST));
    RN_TRY(check_range("presence_penalty", s->presence_penalty, -MOST, MOST));
    RN_TRY(check_range("frequency_penalty", s->frequency_penalty, -MOST, MOST));
    if (s->logprobs > RN_LOGPROBS_MAX)
        return rn_fail(RN_INVALID, "logprobs is %u: it must be at most %d", s->logprobs,
                       RN_LOGPROBS_MAX);
    return check_bias(s, vocab_size);
}

static bool repeats_cost(const rn_sampling *s) {
    return s->repetition_penalty != 0 && s->repetition_penalty != 1;
}

static bool has_penalties(const rn_sampling *s) {
    return repeats_cost(s) || s->presence_penalty != 0 || s->frequency_penalty != 0;
}

bool rn_sampling_is_plain(const rn_sampling *s) {
    return s->temperature == 0 && s->bias_count == 0 && !has_penalties(s) && !s->constraint;
}

bool rn_sampling_is_greedy(const rn_sampling *s) {
    return rn_sampling_is_plain(s) && s->without_logprob && s->logprobs == 0;
}

// ---- life ---------------------------------------------------------------------------------------

rn_sampler_scratch rn_sampler_scratch_cut(void *block, uint32_t vocab_size) {
    rn_candidate_token *candidates = block; // the wider ones first
    return (rn_sampler_scratch){.logits = (float *)(candidates + 2 * (size_t)vocab_size),
                                .candidates = candidates,
                                .spare = candidates + vocab_size};
}

rn_status rn_sampler_init(rn_sampler *sampler, const rn_sampling *sampling, uint32_t vocab_size,
                          rn_sampler_scratch scratch) {
    RN_TRY(rn_sampling_check(sampling, vocab_size));
    *sampler = (rn_sampler){.sampling = *sampling, .vocab_size = vocab_size, .scratch = scratch};
    return RN_OK;
}

static rn_status open_sampler(rn_sampler *sampler, const rn_sampling *sampling,
                              uint32_t vocab_size) {
    RN_TRY(rn_sampler_init(sampler, sampling, vocab_size, (rn_sampler_scratch){0}));
    if (rn_sampling_is_plain(sampling)) return RN_OK;
    RN_TRY(rn_alloc(FROM, vocab_size * RN_SAMPLER_SCRATCH_BYTES, &sampler->block));
    sampler->scratch = rn_sampler_scratch_cut(sampler->block, vocab_size);
    return RN_OK;
}

rn_status rn_sampler_create(const rn_sampling *sampling, uint32_t vocab_size, rn_sampler **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(rn_sampler), &block));
    rn_sampler *sampler = block;
    rn_status s = open_sampler(sampler, sampling, vocab_size);
    if (s == RN_OK)
        *out = sampler;
    else
        rn_sampler_destroy(sampler);
    return s;
}

void rn_sampler_destroy(rn_sampler *sampler) {
    if (!sampler) return;
    rn_free(FROM, sampler->block, sampler->vocab_size * RN_SAMPLER_SCRATCH_BYTES);
    rn_free(FROM, sampler, sizeof *sampler);
}

// ---- bias and penalties -------------------------------------------------------------------------

static void penalize(const rn_sampling *s, uint32_t count, float *logit) {
    if (repeats_cost(s))
        *logit = *logit > 0 ? *logit / s->repetition_penalty : *logit * s->repetition_penalty;
    *logit -= (float)count * s->frequency_penalty + s->presence_penalty;
}

// Each token that occurs is penalised once, at its first place; only its own count is touched.
static rn_status penalize_history(const rn_sampler *sampler, const uint32_t *history,
                                  size_t count) {
    const rn_sampling *s = &sampler->sampling;
    uint32_t *counts = (uint32_t *)(void *)sampler->scratch.candidates; // (vocab_size)
    size_t window = s->penalty_window ? rn_min_u64(s->penalty_window, count) : count;
    const uint32_t *recent = history + (count - window);
    for (size_t i = 0; i < window; i++) {
        if (recent[i] >= sampler->vocab_size)
            return rn_fail(RN_INVALID, "token %u in the history: the vocabulary has %u", recent[i],
                           sampler->vocab_size);
        counts[recent[i]] = 0;
    }
    for (size_t i = 0; i < window; i++)
        counts[recent[i]]++;
    for (size_t i = 0; i < window; i++) {
        uint32_t *times = &counts[recent[i]];
        if (*times) penalize(s, *times, &sampler->scratch.logits[recent[i]]);
        *times = 0;
    }
    return RN_OK;
}

// Copies the logits of the tokens that may come; all others are forbidden.
static rn_status copy_allowed(const rn_sampler *sampler, const float *logits, float *out) {
    const uint32_t *mask = rn_constraint_mask(sampler->sampling.constraint);
    if (!mask)
        return rn_hint(rn_fail(RN_INVALID, "no token can go on a text of this schema"),
                       "the tokenizer lacks a byte that must come: change the schema");
    for (uint32_t i = 0; i < sampler->vocab_size; i += 32) {
        uint32_t count = (uint32_t)rn_min_u64(32, sampler->vocab_size - i), word = mask[i / 32];
        if (word == UINT32_MAX && count == 32)
            memcpy(out + i, logits + i, 32 * sizeof *out);
        else
            for (uint32_t bit = 0; bit < count; bit++)
                out[i + bit] = word >> bit & 1 ? logits[i + bit] : -INFINITY;
    }
    return RN_OK;
}

// *out: the logits themselves where nothing is added, else a copy.
static rn_status adjust(const rn_sampler *sampler, const float *logits, const uint32_t *history,
                        size_t count, const float **out) {
    const rn_sampling *s = &sampler->sampling;
    float *own = sampler->scratch.logits; // (vocab_size)
    *out = logits;
    if (s->bias_count == 0 && !has_penalties(s) && !s->constraint) return RN_OK;
    if (s->constraint)
        RN_TRY(copy_allowed(sampler, logits, own));
    else
        memcpy(own, logits, sampler->vocab_size * sizeof *own);
    for (size_t i = 0; i < s->bias_count; i++)
        own[s->bias[i].token] += s->bias[i].bias;
    *out = own;
    return has_penalties(s) ? penalize_history(sampler, history, count) : RN_OK;
}

// ---- drawing ------------------------------------------------------------------------------------

static double random_unit(uint64_t seed, uint64_t position) {
    uint32_t words[4];
    rn_philox_block(seed, STREAM, position, words);
    return (double)((uint64_t)words[0] << 21 | words[1] >> 11) * 0x1p-53;
}

// Of a temperature next to 0, too, the scale is a number: 0 times infinity is none.
static float scale_of(const rn_sampling *s) {
    return fminf(1 / s->temperature, FLT_MAX);
}

// From all tokens, in their own order.
static uint32_t draw_from_all(const rn_sampler *sampler, const float *logits, float peak,
                              double unit) {
    const rn_sampling *s = &sampler->sampling;
    float *weights = sampler->scratch.logits; // (vocab_size)
    double total = 0, passed = 0;
    uint32_t last = 0;
    (void)rn_logits_weigh(logits, sampler->vocab_size, peak, scale_of(s), weights);
    for (uint32_t i = 0; i < sampler->vocab_size; i++) {
        if (weights[i] < s->min_p) weights[i] = 0;
        total += weights[i];
    }
    for (uint32_t i = 0; i < sampler->vocab_size; i++) {
        if (weights[i] == 0) continue;
        last = i;
        passed += weights[i];
        if (passed > unit * total) break;
    }
    return last;
}

// Logits of candidates become weights; returns their sum.
static double weigh_candidates(rn_candidate_token *candidates, size_t count, float peak,
                               float scale) {
    float values[64];
    double sum = 0;
    for (size_t begin = 0; begin < count; begin += 64) {
        size_t part = rn_min_u64(64, count - begin);
        for (size_t i = 0; i < part; i++)
            values[i] = candidates[begin + i].value;
        (void)rn_logits_weigh(values, part, peak, scale, values);
        for (size_t i = 0; i < part; i++)
            sum += candidates[begin + i].value = values[i];
    }
    return sum;
}

// How many of the best reach top_p of `total`; count + 1: not even all of these.
static size_t count_nucleus(const rn_candidate_token *candidates, size_t count, double wanted) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += candidates[i].value;
        if (sum >= wanted) return i + 1;
    }
    return count + 1;
}

// Without top_k: where the first few do not reach top_p, all are sorted.
static size_t select_nucleus(const rn_sampler *sampler, const float *logits, float peak) {
    const rn_sampling *s = &sampler->sampling;
    rn_candidate_token *candidates = sampler->scratch.candidates; // (vocab_size)
    size_t vocab = sampler->vocab_size, few = rn_min_u64(FIRST_SORTED, vocab);
    double total = rn_logits_weigh(logits, vocab, peak, scale_of(s), NULL);
    rn_logits_select(logits, vocab, few, candidates);
    (void)weigh_candidates(candidates, few, peak, scale_of(s));
    size_t count = count_nucleus(candidates, few, (double)s->top_p * total);
    if (count <= few) return count;
    rn_logits_sort(logits, vocab, candidates, sampler->scratch.spare);
    (void)weigh_candidates(candidates, vocab, peak, scale_of(s));
    return rn_min_u64(count_nucleus(candidates, vocab, (double)s->top_p * total), vocab);
}

static bool has_top_p(const rn_sampling *s) {
    return s->top_p > 0 && s->top_p < 1;
}

static bool has_top_k(const rn_sampler *sampler) {
    return sampler->sampling.top_k && sampler->sampling.top_k < sampler->vocab_size;
}

// The candidates that top_k and top_p leave, the best first, with their weights.
static size_t select_best(const rn_sampler *sampler, const float *logits, float peak) {
    const rn_sampling *s = &sampler->sampling;
    rn_candidate_token *candidates = sampler->scratch.candidates;
    if (!has_top_k(sampler)) return select_nucleus(sampler, logits, peak);
    rn_logits_select(logits, sampler->vocab_size, s->top_k, candidates);
    double total = weigh_candidates(candidates, s->top_k, peak, scale_of(s));
    if (!has_top_p(s)) return s->top_k;
    return rn_min_u64(count_nucleus(candidates, s->top_k, (double)s->top_p * total), s->top_k);
}

static uint32_t draw_from_best(const rn_sampler *sampler, const float *logits, float peak,
                               double unit) {
    const rn_candidate_token *candidates = sampler->scratch.candidates;
    size_t count = select_best(sampler, logits, peak), last = 0;
    double total = 0, passed = 0;
    while (count > 1 && (candidates[count - 1].value < sampler->sampling.min_p ||
                         candidates[count - 1].value == 0))
        count--;
    for (size_t i = 0; i < count; i++)
        total += candidates[i].value;
    for (last = 0; last + 1 < count; last++) {
        passed += candidates[last].value;
        if (passed > unit * total) break;
    }
    return candidates[last].token;
}

static rn_status choose(const rn_sampler *sampler, const float *logits, uint64_t position,
                        uint32_t *out) {
    const rn_sampling *s = &sampler->sampling;
    rn_logits_peak peak = rn_logits_find_peak(logits, sampler->vocab_size);
    double unit = random_unit(s->seed, position);
    if (peak.value == -INFINITY)
        return rn_hint(rn_fail(RN_INVALID, "no token is left to draw: all are forbidden"),
                       "forbid fewer tokens");
    if (peak.has_nan || peak.value == INFINITY)
        return rn_fail(RN_INVALID, "bias and penalties make logits that are not finite");
    if (s->temperature == 0)
        *out = peak.token;
    else if (has_top_k(sampler) || has_top_p(s))
        *out = draw_from_best(sampler, logits, peak.value, unit);
    else
        *out = draw_from_all(sampler, logits, peak.value, unit);
    return RN_OK;
}

// ---- what the model thought ---------------------------------------------------------------------

static rn_status check_logits(const rn_logits_peak *peak) {
    if (!peak->has_nan && isfinite(peak->value)) return RN_OK;
    return rn_hint(rn_fail(RN_CORRUPT, "the model's logits are not finite numbers"),
                   "a weight of the model is damaged, or its values overflow in this dtype");
}

static void report(const rn_sampler *sampler, const float *logits, float peak, rn_sample *out) {
    rn_candidate_token best[RN_LOGPROBS_MAX];
    double below = log(rn_logits_weigh(logits, sampler->vocab_size, peak, 1, NULL));
    out->logprob = (float)((double)logits[out->token] - peak - below);
    out->top_count = (uint32_t)rn_min_u64(sampler->sampling.logprobs, sampler->vocab_size);
    rn_logits_select(logits, sampler->vocab_size, out->top_count, best);
    for (uint32_t i = 0; i < out->top_count; i++)
        out->top[i] =
            (rn_token_logprob){best[i].token, (float)((double)best[i].value - peak - below)};
}

rn_status rn_sampler_take_largest(uint32_t token, float logit, rn_sample *out) {
    *out = (rn_sample){.token = token};
    return check_logits(&(rn_logits_peak){.value = logit, .has_nan = isnan(logit)});
}

rn_status rn_sampler_draw(rn_sampler *sampler, const float *logits, const uint32_t *history,
                          size_t count, uint64_t position, rn_sample *out) {
    const float *adjusted = NULL;
    rn_logits_peak peak = rn_logits_find_peak(logits, sampler->vocab_size);
    *out = (rn_sample){0};
    RN_TRY(check_logits(&peak));
    if (rn_sampling_is_plain(&sampler->sampling)) {
        out->token = peak.token;
    } else {
        RN_TRY(adjust(sampler, logits, history, count, &adjusted));
        RN_TRY(choose(sampler, adjusted, position, &out->token));
        if (sampler->sampling.constraint)
            RN_TRY(rn_constraint_advance(sampler->sampling.constraint, out->token));
    }
    if (!sampler->sampling.without_logprob) report(sampler, logits, peak.value, out);
    return RN_OK;
}

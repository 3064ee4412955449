// sampler_sort.h — a whole vocabulary in order, for distributions so flat that a few do not do.
#ifndef RN_TEXT_SAMPLER_SORT_H
#define RN_TEXT_SAMPLER_SORT_H

#include "text/sampler_scan.h"

// All tokens, best first, as rn_logits_select orders them. No logit is NaN.
void rn_logits_sort(const float *logits, size_t count, rn_candidate_token *out /* (count) */,
                    rn_candidate_token *spare /* (count) */);

#endif

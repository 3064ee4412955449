// stablehlo_attention.h — the softmax that all attention ops share.
#ifndef RN_EXCHANGE_STABLEHLO_ATTENTION_H
#define RN_EXCHANGE_STABLEHLO_ATTENTION_H

#include "exchange/stablehlo_ops.h"

typedef struct rn_hlo_softmax {
    rn_hlo_value weights;  // e^(score - top), keys last
    rn_hlo_value top, sum; // an axis of 1 for the keys
} rn_hlo_softmax;

// Of scale * score, capped, with the bias (of the scores' shape, or none); what `visible` (the
// same) says no to counts for nothing. A query that sees nothing has weights of 0 and a sum of 0,
// or of its sink's part: `sinks` has the shape of the sum, or there are none.
rn_hlo_softmax rn_hlo_soften(rn_hlo *h, const rn_attention_attrs *attrs, uint64_t dims,
                             rn_hlo_value scores, rn_hlo_value visible, rn_hlo_value bias,
                             rn_hlo_value sinks);
// acc / sum, and 0 where the sum is 0. acc has the axes of the sum, with D in the keys' place.
rn_hlo_value rn_hlo_divide_by_sum(rn_hlo *h, rn_hlo_value acc, rn_hlo_value sum);

#endif

// varlen.c — see varlen.h.
#include "graph/varlen.h"

#include "base/checked.h"

rn_varlen rn_varlen_of(const rn_call *call) {
    const rn_tensor *in = call->inputs;
    const uint64_t *q = in[0].shape.dims;
    rn_varlen texts = {.q = in[0].data,
                       .k = in[1].data,
                       .v = in[2].data,
                       .span = in[3].data,
                       .bias = in[4].data,
                       .y = call->outputs[0].data,
                       .rows = q[0],
                       .heads = q[1],
                       .kv_heads = in[1].shape.dims[1],
                       .dims = q[2],
                       .scale = rn_attention_scale(call->attrs, q[2])};
    if (rn_tensor_given(&in[4])) texts.reach = in[4].shape.dims[1] / 2;
    return texts;
}

rn_status rn_varlen_check(const rn_varlen *texts) {
    for (uint64_t row = 0; row < texts->rows; row++) {
        int64_t first = texts->span[2 * row], end = texts->span[2 * row + 1], at = (int64_t)row;
        if (first == end || (first >= 0 && first <= at && at < end && end <= (int64_t)texts->rows))
            continue;
        return rn_fail(
            RN_INVALID,
            "varlen_attention: row %llu of %llu cannot be in a text of rows %lld to %lld",
            (unsigned long long)row, (unsigned long long)texts->rows, (long long)first,
            (long long)end);
    }
    return RN_OK;
}

rn_attention_range rn_varlen_keys(const rn_varlen *texts, const rn_attention_attrs *attrs,
                                  uint64_t row) {
    int64_t begin = texts->span[2 * row], stop = texts->span[2 * row + 1];
    if (begin == stop) return (rn_attention_range){0, 0};
    uint64_t keys = (uint64_t)(stop - begin), at = row - (uint64_t)begin, window = attrs->window;
    rn_attention_range range = {0, attrs->causal ? at + 1 : keys};
    if (window == 0) return range;
    if (at + 1 > window) range.first = at + 1 - window;
    range.end = rn_min_u64(range.end, at + window);
    return range;
}

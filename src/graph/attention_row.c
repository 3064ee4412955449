// attention_row.c — online softmax: the running maximum may rise, then what was summed is scaled
// down.
#include "graph/attention_row.h"

#include "base/checked.h"
#include "tensor/small_float.h"

#include <math.h>
#include <stdio.h>

rn_attention_row rn_attention_begin(const float *q, float *y, uint64_t dims, uint64_t value_dims,
                                    float scale) {
    if (value_dims == 0) value_dims = dims;
    memset(y, 0, value_dims * sizeof *y);
    return (rn_attention_row){
        .q = q, .y = y, .dims = dims, .value_dims = value_dims, .scale = scale, .top = -INFINITY};
}

void rn_attention_sink(rn_attention_row *row, float sink) {
    row->top = sink;
    row->sum = sink == -INFINITY ? 0 : 1;
}

// A q8_0 block is an f16 scale and 32 bytes.
static float element_q8_0(const uint8_t *row, uint64_t d) {
    const uint8_t *block = row + d / 32 * 34;
    return rn_f16_widen(rn_load_u16(block)) * (float)(int8_t)block[2 + d % 32];
}

static float element(const void *row, rn_dtype dtype, uint64_t d) {
    if (dtype == RN_DTYPE_Q8_0) return element_q8_0(row, d);
    return dtype == RN_DTYPE_F16 ? rn_f16_widen(((const uint16_t *)row)[d])
                                 : ((const float *)row)[d];
}

static float score(const rn_attention_row *row, const rn_attention_tile *tile, uint32_t j) {
    float sum = 0;
    for (uint64_t d = 0; d < row->dims; d++)
        sum = fmaf(row->q[d], element(tile->keys[j], tile->dtype, d), sum);
    sum *= row->scale;
    if (row->cap != 0) sum = row->cap * tanhf(sum / row->cap);
    return tile->mask ? sum + tile->mask[j] : sum;
}

void rn_attention_add(rn_attention_row *row, const rn_attention_tile *tile) {
    float scores[RN_ATTENTION_TILE], top = row->top;
    for (uint32_t j = 0; j < tile->count; j++) {
        scores[j] = score(row, tile, j);
        if (scores[j] > top || isnan(scores[j])) top = scores[j]; // a NaN must show in the result
    }
    if (top == -INFINITY) return;
    float shrink = expf(row->top - top);
    row->top = top;
    row->sum *= shrink;
    for (uint64_t d = 0; d < row->value_dims; d++)
        row->y[d] *= shrink;
    for (uint32_t j = 0; j < tile->count; j++) {
        float p = expf(scores[j] - top);
        row->sum += p;
        for (uint64_t d = 0; d < row->value_dims; d++)
            row->y[d] = fmaf(p, element(tile->values[j], tile->dtype, d), row->y[d]);
    }
}

float rn_attention_end(rn_attention_row *row) {
    if (row->top == -INFINITY) return -INFINITY;
    for (uint64_t d = 0; d < row->value_dims; d++)
        row->y[d] /= row->sum;
    return row->top + logf(row->sum);
}

float rn_attention_scale(const rn_attention_attrs *attrs, uint64_t dims) {
    return attrs->scale != 0 ? attrs->scale : (float)(1 / sqrt((double)dims));
}

rn_attention_range rn_attention_visible(const rn_attention_attrs *attrs, int64_t at,
                                        uint64_t keys) {
    if (!attrs->causal && attrs->window == 0) return (rn_attention_range){0, keys};
    if (at < 0) return (rn_attention_range){0, 0};
    uint64_t end = rn_min_u64((uint64_t)at + 1, keys), first = 0;
    if (attrs->window && (uint64_t)at + 1 > attrs->window) first = (uint64_t)at + 1 - attrs->window;
    return (rn_attention_range){rn_min_u64(first, end), end};
}

void rn_attention_print(const void *attrs, char *out, size_t bytes) {
    const rn_attention_attrs *a = attrs;
    int n = snprintf(out, bytes, "%s", a->causal ? "causal" : "all keys");
    if (a->window && n >= 0 && (size_t)n < bytes)
        n += snprintf(out + n, bytes - (size_t)n, ", window %u", a->window);
    if (a->cap != 0 && n >= 0 && (size_t)n < bytes)
        n += snprintf(out + n, bytes - (size_t)n, ", cap %g", (double)a->cap);
    if (a->value_dims && n >= 0 && (size_t)n < bytes)
        snprintf(out + n, bytes - (size_t)n, ", values of %u", a->value_dims);
}

// stablehlo_experts.c — a mixture of experts: the router, products by the chosen, and their sum; a
// product of each head.
#include "exchange/stablehlo_ops.h"

#include <math.h>

static rn_hlo_value binary(rn_hlo *h, const char *name, rn_hlo_value a, rn_hlo_value b) {
    return rn_hlo_binary(h, name, a, rn_hlo_expand(h, b, a.shape));
}

static rn_hlo_value negate(rn_hlo *h, rn_hlo_value x) {
    return rn_hlo_unary(h, "negate", x);
}

// ---- router -------------------------------------------------------------------------------------

// Of axis 1.
static rn_hlo_value softmax(rn_hlo *h, rn_hlo_value x) {
    rn_hlo_value most = rn_hlo_reduce(h, "maximum", x, 1u << 1, true);
    x = rn_hlo_unary(h, "exponential", binary(h, "subtract", x, most));
    return binary(h, "divide", x, rn_hlo_reduce(h, "add", x, 1u << 1, true));
}

static rn_hlo_value gate(rn_hlo *h, rn_gating gating, rn_hlo_value logits) {
    const rn_unary_attrs softplus = {.function = RN_UNARY_SOFTPLUS};
    if (gating == RN_GATING_SOFTMAX) return softmax(h, logits);
    if (gating == RN_GATING_SIGMOID) return rn_hlo_unary(h, "logistic", logits);
    if (gating == RN_GATING_SQRT_SOFTPLUS)
        return rn_hlo_unary(h, "sqrt", rn_hlo_function(h, &softplus, logits));
    return logits;
}

// The places (rows, count) of the largest of axis 1, NaN last.
static rn_hlo_value find_largest(rn_hlo *h, rn_hlo_value x, uint64_t count) {
    rn_hlo_value sorted, order;
    rn_hlo_sort(h, negate(h, x), 1, true, &sorted, &order);
    return rn_hlo_slice(h, order, 1, 0, count);
}

// c (rows, experts) with -inf for those of all groups but the best.
static rn_hlo_value keep_groups(rn_hlo *h, const rn_route_attrs *a, rn_hlo_value c) {
    uint64_t rows = c.shape.dims[0], groups = a->groups, each = c.shape.dims[1] / groups;
    rn_shape apart = RN_SHAPE(rows, groups, each), met = RN_SHAPE(rows, a->groups_chosen, groups);
    rn_hlo_value sorted, order, best;
    uint64_t counted = a->group_by_max || each < 2 ? 1 : 2;
    rn_hlo_sort(h, negate(h, rn_hlo_reshape(h, c, apart)), 2, true, &sorted, &order);
    best = rn_hlo_reduce(h, "add", rn_hlo_slice(h, sorted, 2, 0, counted), 1u << 2, false);
    order = find_largest(h, negate(h, best), a->groups_chosen);
    order = rn_hlo_broadcast(h, order, met, (uint64_t[]){0, 1});
    rn_hlo_value is = rn_hlo_compare(h, "EQ", order, rn_hlo_iota(h, RN_DTYPE_I64, met, 2));
    rn_hlo_value kept = rn_hlo_reduce(h, "or", is, 1u << 1, false); // (rows, groups)
    kept = rn_hlo_reshape(h, rn_hlo_broadcast(h, kept, apart, (uint64_t[]){0, 1}), c.shape);
    return rn_hlo_select(h, kept, c, rn_hlo_like(h, c, -INFINITY));
}

RN_HLO_EMITTER(route) {
    const rn_route_attrs *a = call->attrs;
    rn_hlo_value p = gate(h, a->gating, in[0]), c = p;
    if (in[1].id) c = binary(h, "add", c, in[1]);
    if (a->groups > 1) c = keep_groups(h, a, c);
    rn_hlo_value ids = find_largest(h, c, a->chosen), w = rn_hlo_take_elements(h, p, ids, 1);
    if (a->gating == RN_GATING_SOFTMAX_CHOSEN) w = softmax(h, w);
    if (a->norm) {
        rn_hlo_value sum = rn_hlo_reduce(h, "add", w, 1u << 1, true);
        sum = rn_hlo_binary(h, "maximum", sum, rn_hlo_like(h, sum, 0x1p-14));
        w = binary(h, "divide", w, sum);
    }
    if (a->scale != 0) w = rn_hlo_binary(h, "multiply", w, rn_hlo_like(h, w, (double)a->scale));
    if (in[2].id) w = rn_hlo_binary(h, "multiply", w, rn_hlo_take(h, in[2], ids, 0));
    out[0] = rn_hlo_convert(h, ids, RN_DTYPE_I32);
    out[1] = w;
}

// ---- products -----------------------------------------------------------------------------------

// One product a choice with the matrices that were chosen: w (E, N, K) -> (rows, k, N).
static rn_hlo_value multiply_chosen(rn_hlo *h, rn_hlo_value x, rn_hlo_value w, rn_hlo_value ids) {
    rn_shape each = RN_SHAPE(ids.shape.dims[0], ids.shape.dims[1], w.shape.dims[2]);
    if (x.shape.rank == 2) x = rn_hlo_broadcast(h, x, each, (uint64_t[]){0, 2});
    return rn_hlo_product(h, x, rn_hlo_take(h, w, ids, 0),
                          &(rn_hlo_dot){.batch_a = {0, 1},
                                        .batch_b = {0, 1},
                                        .batch_count = 2,
                                        .sum_a = {2},
                                        .sum_b = {3},
                                        .sum_count = 1});
}

// Products with every matrix, of which the chosen are taken.
static rn_hlo_value multiply_all(rn_hlo *h, rn_hlo_value x, rn_hlo_value w, rn_hlo_value ids) {
    uint32_t rank = x.shape.rank;
    rn_hlo_value places[3];
    for (uint32_t i = 0; i + 1 < rank; i++)
        places[i] = rn_hlo_iota(h, RN_DTYPE_I64, ids.shape, i);
    places[rank - 1] = ids;
    rn_hlo_value y =
        rn_hlo_product(h, x, w, &(rn_hlo_dot){.sum_a = {rank - 1}, .sum_b = {2}, .sum_count = 1});
    return rn_hlo_take_places(h, y, places, rank);
}

// Where there are fewer choices than matrices, only those that are chosen are read.
RN_HLO_EMITTER(expert_product) {
    rn_expert_call e;
    if (!rn_call_experts(call, &e)) {
        rn_hlo_refuse(h, "the matrices are not E of one size");
        return;
    }
    rn_hlo_value x = in[e.x], ids = rn_hlo_convert(h, in[e.ids], RN_DTYPE_I64);
    rn_hlo_value someone = rn_hlo_compare(h, "GE", ids, rn_hlo_like(h, ids, 0));
    ids = rn_hlo_binary(h, "maximum", ids, rn_hlo_like(h, ids, 0));
    rn_hlo_value w = in[e.weight];
    w = rn_hlo_reshape(h, w, RN_SHAPE(e.experts, e.record_rows, w.shape.dims[1]));
    w = rn_hlo_slice(h, w, 1, e.first, e.count);
    bool few = ids.shape.dims[0] * ids.shape.dims[1] <= e.experts;
    rn_hlo_value y = (few ? multiply_chosen : multiply_all)(h, x, w, ids);
    if (e.bias != RN_NO_INPUT) {
        rn_hlo_value bias = rn_hlo_slice(h, in[e.bias], 1, e.first, e.count);
        y = rn_hlo_binary(h, "add", y, rn_hlo_take(h, bias, ids, 0));
    }
    someone = rn_hlo_broadcast(h, someone, y.shape, (uint64_t[]){0, 1});
    out[0] = rn_hlo_select(h, someone, y, rn_hlo_like(h, y, 0));
}

RN_HLO_EMITTER(expert_sum) {
    rn_hlo_value w = rn_hlo_broadcast(h, in[1], in[0].shape, (uint64_t[]){0, 1});
    (void)call;
    out[0] = rn_hlo_reduce(h, "add", rn_hlo_binary(h, "multiply", in[0], w), 1u << 1, false);
}

RN_HLO_EMITTER(head_product) {
    const rn_head_product_attrs *a = call->attrs;
    uint64_t heads = in[0].shape.dims[1], record = in[1].shape.dims[0] / heads;
    rn_hlo_value w = rn_hlo_reshape(h, in[1], RN_SHAPE(heads, record, in[1].shape.dims[1]));
    w = rn_hlo_slice(h, w, 1, a->first, a->count ? a->count : record - a->first);
    rn_hlo_value y = rn_hlo_product(h, in[0], w,
                                    &(rn_hlo_dot){.batch_a = {1},
                                                  .batch_b = {0},
                                                  .batch_count = 1,
                                                  .sum_a = {2},
                                                  .sum_b = {a->transposed ? 1 : 2},
                                                  .sum_count = 1});
    out[0] = rn_hlo_transpose(h, y, (uint64_t[]){1, 0, 2});
}

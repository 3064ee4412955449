// onnx_reduce.c — ONNX's reductions.
#include "exchange/onnx_importer.h"

#include <math.h>

// Bits of axes as they lie in a value whose channels are last.
static uint32_t image_axes(uint32_t axes, uint32_t rank) {
    uint32_t out = axes & 1;
    for (uint32_t i = 1; i < rank; i++)
        if (axes >> i & 1) out |= 1u << (i == 1 ? rank - 1 : i - 1);
    return out;
}

// All axes but the first two: the result is the same in both layouts.
static bool is_spatial(uint32_t axes, uint32_t rank) {
    return rank > 2 && axes == ((1u << rank) - 1u) - 3u;
}

// Of no elements: what an empty sum, product or maximum is.
static void reduce_nothing(rn_import_call *c, const int64_t *list, size_t count, bool keep) {
    static const double nothing[RN_REDUCE_COUNT] = {
        [RN_REDUCE_MEAN] = NAN,          [RN_REDUCE_MAX] = -INFINITY,
        [RN_REDUCE_MIN] = INFINITY,      [RN_REDUCE_PROD] = 1,
        [RN_REDUCE_LOG_SUM] = -INFINITY, [RN_REDUCE_LOG_SUM_EXP] = -INFINITY};
    rn_shape from = rn_import_shape(c, 0), to = {.rank = 0};
    rn_dtype dtype = rn_import_dtype(c, 0);
    uint32_t axes = count ? 0 : UINT32_MAX;
    for (size_t i = 0; i < count; i++)
        axes |= 1u << rn_import_axis(c, list[i], from.rank);
    for (uint32_t i = 0; i < from.rank; i++)
        if (keep || !(axes >> i & 1)) to.dims[to.rank++] = axes >> i & 1 ? 1 : from.dims[i];
    rn_value one = rn_import_scalar(c->import, dtype, nothing[c->op->argument]);
    if (rn_shape_elements(to, 1) == 0)
        rn_import_out_empty(c, 0, dtype, to);
    else
        rn_import_out(c, 0, to.rank ? rn_op_broadcast(c->graph, one, to) : one);
}

static void reduce(rn_import_call *c) {
    rn_import_slot *slot = rn_import_slot_of(c, 0);
    uint32_t rank = rn_import_rank(c, 0), axes = 0;
    int64_t list[RN_MAX_RANK];
    size_t count = 0;
    bool keep = rn_import_int(c, "keepdims", 1) != 0;
    rn_reduce_function function = (rn_reduce_function)c->op->argument;
    if (!rn_import_ints_either(c, "axes", 1, list, RN_MAX_RANK, &count)) return;
    if (count == 0 && rn_import_int(c, "noop_with_empty_axes", 0)) {
        // Nothing is summed, but what is done to each element is.
        rn_value x = rn_import_in(c, 0);
        bool changes =
            function == RN_REDUCE_L1 || function == RN_REDUCE_L2 || function >= RN_REDUCE_LOG_SUM;
        rn_import_out(c, 0, changes && x ? rn_op_reduce(c->graph, function, x, 0, true) : x);
        return;
    }
    if (rn_import_is_empty(c, 0)) {
        reduce_nothing(c, list, count, keep);
        return;
    }
    for (size_t i = 0; i < count; i++)
        axes |= 1u << rn_import_axis(c, list[i], rank);
    if (count == 0) axes = (uint32_t)((1ull << rank) - 1);
    bool image = slot && slot->channels_last && (keep || is_spatial(axes, rank));
    rn_value x = image ? rn_import_image(c, 0) : rn_import_in(c, 0);
    if (!x) return;
    rn_value y = rn_op_reduce(c->graph, function, x, image ? image_axes(axes, rank) : axes, keep);
    rn_import_out_as(c, 0, y, image && keep);
}

static void arg_reduce(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0);
    rn_arg_reduce_attrs attrs = {.keep = rn_import_int(c, "keepdims", 1) != 0,
                                 .smallest = c->op->argument != 0,
                                 .last = rn_import_int(c, "select_last_index", 0) != 0};
    if (!x) return;
    attrs.axis =
        rn_import_axis(c, rn_import_int(c, "axis", 0), rn_import_shape_of(c->import, x).rank);
    rn_import_out(c, 0, rn_op_arg_reduce(c->graph, x, attrs));
}

const rn_import_op rn_onnx_reduce_ops[] = {
    {"ReduceSum", reduce, RN_REDUCE_SUM},
    {"ReduceMean", reduce, RN_REDUCE_MEAN},
    {"ReduceMax", reduce, RN_REDUCE_MAX},
    {"ReduceMin", reduce, RN_REDUCE_MIN},
    {"ReduceProd", reduce, RN_REDUCE_PROD},
    {"ReduceL1", reduce, RN_REDUCE_L1},
    {"ReduceL2", reduce, RN_REDUCE_L2},
    {"ReduceLogSum", reduce, RN_REDUCE_LOG_SUM},
    {"ReduceLogSumExp", reduce, RN_REDUCE_LOG_SUM_EXP},
    {"ReduceSumSquare", reduce, RN_REDUCE_SUM_SQUARE},
    {"ArgMax", arg_reduce, 0},
    {"ArgMin", arg_reduce, 1},
    {NULL, NULL, 0},
};

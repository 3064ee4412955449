// rank_sum.c — a sum over all ranks of what each has summed up of its own samples.
#include "graph/op/rank_sum.h"

#include "base/checked.h"
#include "graph/op/update.h"

#include <stdio.h>

// ---- what ranks have ----------------------------------------------------------------------------

uint32_t rn_rank_parts_of(uint64_t samples, uint32_t rank, uint32_t ranks) {
    rn_sum_node nodes[RN_SUM_PARTS];
    return samples ? rn_sum_tree_parts(rn_sum_tree_share(samples, rank, ranks), nodes) : 1;
}

uint32_t rn_rank_parts_count(uint64_t samples, uint32_t ranks) {
    uint32_t count = 0;
    for (uint32_t r = 0; r < ranks; r++)
        count += rn_rank_parts_of(samples, r, ranks);
    return count;
}

uint64_t rn_rank_row(uint64_t count, uint32_t ranks) {
    return rn_round_up(rn_div_up(count, ranks), RN_STATE_BLOCK);
}

rn_rank_range rn_rank_range_of(uint64_t count, uint64_t row, uint32_t rank) {
    uint64_t begin = rn_min_u64(rank * row, count);
    return (rn_rank_range){begin, rn_min_u64(begin + row, count)};
}

uint64_t rn_rank_parts_bytes(rn_dtype dtype, uint64_t count, uint64_t samples, uint32_t ranks) {
    uint64_t size = rn_dtype_get(dtype)->block_bytes, elements = count;
    if (ranks < 2) return 0;
    if (count * size > RN_RANK_SMALL_BYTES)
        elements = rn_min_u64(rn_rank_row(count, ranks), RN_RANK_PIECE_BYTES / size);
    return rn_rank_parts_count(samples, ranks) * elements * size;
}

// ---- the op -------------------------------------------------------------------------------------

static rn_status shape(rn_shaping *s) {
    const rn_rank_sum_attrs *a = s->attrs;
    const struct rn_typed *first = &s->in[RN_RANK_SUM_FIRST], *rest = &s->in[RN_RANK_SUM_REST];
    if (a->rank >= a->ranks || (a->samples && a->samples < a->ranks))
        return rn_shape_fail(s, "there is no rank %u of %u with any of %llu samples", a->rank,
                             a->ranks, (unsigned long long)a->samples);
    uint32_t parts = rn_rank_parts_of(a->samples, a->rank, a->ranks);
    if (first->dtype != RN_DTYPE_BF16) RN_TRY(rn_shape_want(s, RN_RANK_SUM_FIRST, RN_DTYPE_F32));
    if (parts > 1 &&
        (rest->dtype != first->dtype || rest->shape.rank != 2 || rest->shape.dims[0] < parts - 1 ||
         rest->shape.dims[1] != rn_shape_elements(first->shape, 1)))
        return rn_shape_fail(s, "rank %u of %u has %u parts of the sum", a->rank, a->ranks, parts);
    s->out[0].shape = first->shape;
    s->out[0].dtype = first->dtype;
    return RN_OK;
}

static rn_alias alias_of(const rn_call *call, uint32_t output, uint64_t *out_offset_bytes) {
    const rn_rank_sum_attrs *a = call->attrs;
    (void)output;
    *out_offset_bytes = 0;
    return a->in_place ? (rn_alias)RN_ALIAS_MUST(0) : (rn_alias)RN_ALIAS_MAY(0);
}

// What a rank sends and adds up, as if memory were all that stands between ranks.
static void cost(const rn_call *call, rn_cost *out) {
    const rn_rank_sum_attrs *a = call->attrs;
    double bytes = (double)rn_tensor_bytes(&call->inputs[RN_RANK_SUM_FIRST]);
    double parts = rn_rank_parts_count(a->samples, a->ranks);
    out->read_bytes += 2 * bytes;
    out->write_bytes += 2 * bytes;
    out->flops += (double)rn_tensor_elements(&call->inputs[RN_RANK_SUM_FIRST]) *
                  (parts > 1 ? (parts - 1) / a->ranks : 0);
}

static uint64_t workspace(const rn_call *call) {
    const rn_rank_sum_attrs *a = call->attrs;
    const rn_tensor *first = &call->inputs[RN_RANK_SUM_FIRST];
    return rn_rank_parts_bytes(first->dtype, rn_tensor_elements(first), a->samples, a->ranks);
}

static rn_status reference(const rn_call *call) {
    const rn_rank_sum_attrs *a = call->attrs;
    const rn_tensor *first = &call->inputs[RN_RANK_SUM_FIRST];
    rn_rank_parts parts = {.dtype = first->dtype,
                           .count = rn_tensor_elements(first),
                           .first = call->outputs[0].data,
                           .rest = call->inputs[RN_RANK_SUM_REST].data,
                           .samples = a->samples,
                           .workspace = call->workspace};
    if (call->outputs[0].data != first->data)
        memcpy(call->outputs[0].data, first->data, rn_tensor_bytes(first));
    if (a->ranks == 1) return RN_OK; // all samples are here: the first part is the sum
    if (!call->ranks || call->ranks->ranks != a->ranks || call->ranks->rank != a->rank)
        return rn_hint(rn_fail(RN_INVALID,
                               "a sum over %u ranks, of which this is rank %u, has no "
                               "communicator of that many",
                               a->ranks, a->rank),
                       "give the session one: rn_session_options.comm");
    return call->ranks->sum(call->ranks->self, &parts);
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_rank_sum_attrs *a = attrs;
    snprintf(out, bytes, "rank %u of %u, %s", a->rank, a->ranks,
             a->samples ? "in the tree of samples" : "in the order of ranks");
}

extern const rn_op_info rn_rank_sum_op;
const rn_op_info rn_rank_sum_op = {
    .name = "rank_sum",
    .min_inputs = 3,
    .max_inputs = 3,
    .optional_inputs = 1u << RN_RANK_SUM_REST | 1u << RN_RANK_SUM_AFTER,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_rank_sum_attrs),
    .traits = RN_TRAIT_COLLECTIVE,
    .alias_of = alias_of,
    .shape = shape,
    .cost = cost,
    .workspace = workspace,
    .reference = reference,
    .print = print,
};

rn_value rn_op_rank_sum(rn_graph *g, rn_value first, rn_value rest, rn_value after,
                        rn_rank_sum_attrs attrs) {
    return rn_graph_add(g, RN_OP_RANK_SUM, (rn_value[]){first, rest, after}, 3, &attrs);
}

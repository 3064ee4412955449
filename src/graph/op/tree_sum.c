// tree_sum.c — one sample's gradient and the sums that it completes become one sum:
//
//     slot[into] = slot[into] + (... + (slot[into + adds - 1] + gradient))
#include "graph/op/tree_sum.h"

#include "graph/op/update.h"

#include <stdio.h>

enum { PIECE = 64 };

static rn_status shape_parts(rn_shaping *s, uint32_t slots) {
    const struct rn_typed *parts = &s->in[RN_TREE_PARTS];
    uint64_t elements = rn_shape_elements(s->in[RN_TREE_SUM].shape, 1);
    bool given = parts->dtype != RN_DTYPE_NONE;
    if (given != (slots > 1) ||
        (given && !rn_shape_equal(parts->shape, RN_SHAPE(slots - 1, elements))))
        return rn_shape_fail(s, "a tree with %u slots has %u parts beside the sum", slots,
                             slots - 1);
    if (!given) return RN_OK;
    RN_TRY(rn_shape_want(s, RN_TREE_PARTS, s->in[RN_TREE_SUM].dtype));
    s->out[1].shape = parts->shape;
    s->out[1].dtype = parts->dtype;
    return RN_OK;
}

static rn_status shape(rn_shaping *s) {
    const rn_tree_sum_attrs *a = s->attrs;
    rn_dtype dtype = s->in[RN_TREE_SUM].dtype;
    if (a->tree.begin >= a->tree.end || a->tree.end > a->tree.count)
        return rn_shape_fail(s, "samples %llu to %llu of %llu are no part of a tree",
                             (unsigned long long)a->tree.begin, (unsigned long long)a->tree.end,
                             (unsigned long long)a->tree.count);
    if (dtype != RN_DTYPE_BF16) RN_TRY(rn_shape_want(s, RN_TREE_SUM, RN_DTYPE_F32));
    RN_TRY(rn_shape_want(s, RN_TREE_GRADIENT, RN_DTYPE_F32));
    if (!rn_shape_equal(s->in[RN_TREE_SUM].shape, s->in[RN_TREE_GRADIENT].shape))
        return rn_shape_fail(s, "the gradient must have the shape of the sum");
    s->out[0].shape = s->in[RN_TREE_SUM].shape;
    s->out[0].dtype = dtype;
    return shape_parts(s, rn_sum_tree_slots(a->tree));
}

static rn_alias alias_of(const rn_call *call, uint32_t output, uint64_t *out_offset_bytes) {
    *out_offset_bytes = 0;
    if (output == 0) return (rn_alias)RN_ALIAS_MUST(RN_TREE_SUM);
    if (rn_tensor_given(&call->inputs[RN_TREE_PARTS]))
        return (rn_alias)RN_ALIAS_MUST(RN_TREE_PARTS);
    return (rn_alias){RN_ALIAS_KIND_NONE, 0};
}

// A tree of n samples has n - 1 additions: about one a sample, whatever the slots.
static void cost(const rn_call *call, rn_cost *out) {
    double slot = (double)rn_tensor_bytes(&call->inputs[RN_TREE_SUM]);
    out->read_bytes += (double)rn_tensor_bytes(&call->inputs[RN_TREE_GRADIENT]) + slot;
    out->write_bytes += slot;
    out->flops += (double)rn_tensor_elements(&call->inputs[RN_TREE_SUM]);
}

rn_status rn_tree_sum_step(const rn_call *call, rn_sum_step *out) {
    const rn_tree_sum_attrs *a = call->attrs;
    double number = call->scalars[a->micro_batch].f64;
    *out = (rn_sum_step){0};
    if (!(number >= 0 && number < (double)(a->tree.end - a->tree.begin)))
        return rn_fail(RN_INVALID, "tree_sum: there is no sample %g among samples %llu to %llu",
                       number, (unsigned long long)a->tree.begin, (unsigned long long)a->tree.end);
    *out = rn_sum_tree_add(a->tree, a->tree.begin + (uint64_t)number);
    return RN_OK;
}

void *rn_tree_sum_slot(const rn_call *call, uint32_t slot) {
    uint64_t bytes = rn_tensor_bytes(&call->outputs[0]);
    if (slot == 0) return call->outputs[0].data;
    return (uint8_t *)call->outputs[1].data + (slot - 1) * bytes;
}

// Each sum is what its slot would hold.
static rn_status add_piece(const rn_call *call, rn_sum_step step, uint64_t at, uint64_t count) {
    rn_dtype dtype = call->outputs[0].dtype;
    uint64_t size = rn_dtype_get(dtype)->block_bytes;
    const float *gradient = call->inputs[RN_TREE_GRADIENT].data;
    uint8_t *into = (uint8_t *)rn_tree_sum_slot(call, step.into) + at * size, sum[4 * PIECE];
    RN_TRY(rn_dtype_from_f32(dtype, gradient + at, sum, count));
    for (uint32_t i = step.adds; i-- > 0;) {
        const uint8_t *slot = (uint8_t *)rn_tree_sum_slot(call, step.into + i) + at * size;
        float left[PIECE], right[PIECE];
        RN_TRY(rn_dtype_to_f32(dtype, slot, left, count));
        RN_TRY(rn_dtype_to_f32(dtype, sum, right, count));
        for (uint64_t n = 0; n < count; n++)
            left[n] += right[n];
        RN_TRY(rn_dtype_from_f32(dtype, left, sum, count));
    }
    memcpy(into, sum, count * size);
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    uint64_t n = rn_tensor_elements(&call->outputs[0]);
    rn_sum_step step;
    RN_TRY(rn_tree_sum_step(call, &step));
    rn_update_keep(call, (uint32_t[]){RN_TREE_SUM, RN_TREE_PARTS});
    for (uint64_t at = 0; at < n; at += PIECE)
        RN_TRY(add_piece(call, step, at, n - at < PIECE ? n - at : PIECE));
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_tree_sum_attrs *a = attrs;
    snprintf(out, bytes, "samples %llu..%llu of %llu", (unsigned long long)a->tree.begin,
             (unsigned long long)a->tree.end - 1, (unsigned long long)a->tree.count);
}

extern const rn_op_info rn_tree_sum_op;
const rn_op_info rn_tree_sum_op = {
    .name = "tree_sum",
    .min_inputs = 3,
    .max_inputs = 3,
    .optional_inputs = 1u << RN_TREE_PARTS,
    .output_count = 2,
    .optional_outputs = 1u << 1,
    .half_inputs = 1u << RN_TREE_GRADIENT,
    .attrs_bytes = sizeof(rn_tree_sum_attrs),
    .traits = RN_TRAIT_ACCUMULATE,
    .alias_of = alias_of,
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_tree_sum(rn_graph *g, rn_value sum, rn_value gradient, rn_value parts,
                        rn_tree_sum_attrs attrs) {
    return rn_graph_add(g, RN_OP_TREE_SUM, (rn_value[]){sum, gradient, parts}, 3, &attrs);
}

// gather.c — elements of x at the places that indices name: slices of an axis, single elements, or
// places in several axes.
#include "graph/op/move.h"
#include "graph/op/number.h"

#include <stdio.h>

// ---- shapes -------------------------------------------------------------------------------------

static rn_status shape_axis(rn_shaping *s, uint32_t axis) {
    rn_shape x = s->in[0].shape, indices = s->in[1].shape, *out = &s->out[0].shape;
    RN_TRY(rn_shape_want_axis(s, 0, axis));
    if (x.rank - 1 + indices.rank > RN_MAX_RANK)
        return rn_shape_fail(s, "the result has too many axes");
    if (x.dims[axis] == RN_ROWS) return rn_shape_fail(s, "the rows cannot be gathered");
    for (uint32_t i = 0; i < axis; i++)
        out->dims[out->rank++] = x.dims[i];
    for (uint32_t i = 0; i < indices.rank; i++)
        out->dims[out->rank++] = indices.dims[i];
    for (uint32_t i = axis + 1; i < x.rank; i++)
        out->dims[out->rank++] = x.dims[i];
    return RN_OK;
}

static rn_status shape_elements(rn_shaping *s, uint32_t axis) {
    rn_shape x = s->in[0].shape, indices = s->in[1].shape;
    RN_TRY(rn_shape_want_axis(s, 0, axis));
    if (indices.rank != x.rank) return rn_shape_fail(s, "the indices must have x's axes");
    if (axis != 0 && x.dims[0] != indices.dims[0] &&
        (x.dims[0] == RN_ROWS || indices.dims[0] == RN_ROWS))
        return rn_shape_fail(s, "x and the indices must both have rows");
    for (uint32_t i = 0; i < x.rank; i++)
        if (i != axis ? indices.dims[i] > x.dims[i] : x.dims[i] == RN_ROWS)
            return rn_shape_fail(s, "axis %u of the indices does not fit", i);
    s->out[0].shape = indices;
    return RN_OK;
}

static rn_status shape_nd(rn_shaping *s, uint32_t batch) {
    rn_shape x = s->in[0].shape, indices = s->in[1].shape, *out = &s->out[0].shape;
    if (indices.rank == 0 || batch >= indices.rank || batch >= x.rank)
        return rn_shape_fail(s, "there are no %u axes of batches", batch);
    uint64_t depth = indices.dims[indices.rank - 1];
    if (depth == 0 || depth > x.rank - batch)
        return rn_shape_fail(s, "%llu axes are not behind the batches", (unsigned long long)depth);
    if (indices.rank - 1 + x.rank - batch - depth > RN_MAX_RANK)
        return rn_shape_fail(s, "the result has too many axes");
    for (uint32_t i = 0; i < batch; i++)
        if (x.dims[i] != indices.dims[i]) return rn_shape_fail(s, "the batches differ");
    if (batch == 0 && x.dims[0] == RN_ROWS) return rn_shape_fail(s, "the rows cannot be gathered");
    for (uint32_t i = 0; i + 1 < indices.rank; i++)
        out->dims[out->rank++] = indices.dims[i];
    for (uint32_t i = batch + (uint32_t)depth; i < x.rank; i++)
        out->dims[out->rank++] = x.dims[i];
    return RN_OK;
}

static rn_status shape(rn_shaping *s) {
    const rn_gather_attrs *attrs = s->attrs;
    RN_TRY(rn_shape_want_plain(s, 0));
    RN_TRY(rn_shape_want_index(s, 1));
    s->out[0].dtype = s->in[0].dtype;
    switch (attrs->kind) {
    case RN_GATHER_AXIS:
        return shape_axis(s, attrs->axis);
    case RN_GATHER_ELEMENTS:
        return shape_elements(s, attrs->axis);
    case RN_GATHER_ND:
        return shape_nd(s, attrs->batch);
    }
    return rn_shape_fail(s, "there is no kind %d", (int)attrs->kind);
}

// ---- the loops ----------------------------------------------------------------------------------

static rn_status gather_axis(const rn_call *call, uint32_t axis) {
    const rn_tensor *x = &call->inputs[0];
    rn_axis_cut cut = rn_axis_cut_of(x->shape, axis);
    uint64_t count = rn_tensor_elements(&call->inputs[1]), bytes = cut.inner * rn_element_bytes(x);
    char *to = call->outputs[0].data;
    for (uint64_t o = 0; o < cut.outer; o++)
        for (uint64_t i = 0; i < count; i++, to += bytes) {
            uint64_t place;
            RN_TRY(rn_index_at(call, 1, i, cut.length, &place));
            memcpy(to, (const char *)x->data + (o * cut.length + place) * bytes, bytes);
        }
    return RN_OK;
}

static rn_status gather_elements(const rn_call *call, uint32_t axis) {
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    rn_strides strides = rn_strides_of(x->shape), own = rn_strides_of(y->shape);
    uint64_t size = rn_element_bytes(x), n = rn_tensor_elements(y);
    for (uint64_t e = 0; e < n; e++) {
        uint64_t place, at = 0;
        RN_TRY(rn_index_at(call, 1, e, x->shape.dims[axis], &place));
        for (uint32_t i = 0; i < y->shape.rank; i++)
            at += strides.by[i] * (i == axis ? place : e / own.by[i] % y->shape.dims[i]);
        memcpy((char *)y->data + e * size, (const char *)x->data + at * size, size);
    }
    return RN_OK;
}

static rn_status gather_nd(const rn_call *call, uint32_t batch) {
    const rn_tensor *x = &call->inputs[0], *indices = &call->inputs[1];
    rn_strides strides = rn_strides_of(x->shape);
    uint64_t depth = indices->shape.dims[indices->shape.rank - 1];
    uint64_t count = rn_tensor_elements(indices) / depth;
    uint64_t batches = rn_runs_of(x->shape, batch).count,
             each = rn_runs_of(x->shape, batch).elements;
    uint64_t bytes = strides.by[batch + depth - 1] * rn_element_bytes(x);
    char *to = call->outputs[0].data;
    for (uint64_t i = 0; i < count; i++, to += bytes) {
        uint64_t at = i / (count / batches) * each;
        for (uint64_t k = 0; k < depth; k++) {
            uint64_t place;
            RN_TRY(rn_index_at(call, 1, i * depth + k, x->shape.dims[batch + k], &place));
            at += place * strides.by[batch + k];
        }
        memcpy(to, (const char *)x->data + at * rn_element_bytes(x), bytes);
    }
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const rn_gather_attrs *attrs = call->attrs;
    if (attrs->kind == RN_GATHER_AXIS) return gather_axis(call, attrs->axis);
    if (attrs->kind == RN_GATHER_ELEMENTS) return gather_elements(call, attrs->axis);
    return gather_nd(call, attrs->batch);
}

// Only what is asked for is read.
static void cost(const rn_call *call, rn_cost *out) {
    double bytes = (double)rn_tensor_bytes(&call->outputs[0]);
    out->read_bytes += bytes + (double)rn_tensor_bytes(&call->inputs[1]);
    out->write_bytes += bytes;
}

static rn_lookup lookup(const void *attrs) {
    const rn_gather_attrs *a = attrs;
    return a->kind == RN_GATHER_AXIS && a->axis == 0 ? RN_LOOKUP_WRAPPED : RN_LOOKUP_NONE;
}

static void print(const void *attrs, char *out, size_t bytes) {
    static const char *const names[] = {"axis", "elements of axis", "places behind axes"};
    const rn_gather_attrs *a = attrs;
    snprintf(out, bytes, "%s %u", names[a->kind], a->kind == RN_GATHER_ND ? a->batch : a->axis);
}

extern const rn_op_info rn_gather_op;
const rn_op_info rn_gather_op = {
    .name = "gather",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_gather_attrs),
    .traits = RN_TRAIT_LOOKUP,
    .lookup = lookup,
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_gather_as(rn_graph *g, rn_value x, rn_value indices, rn_gather_attrs attrs) {
    return rn_graph_add(g, RN_OP_GATHER, (rn_value[]){x, indices}, 2, &attrs);
}

rn_value rn_op_gather(rn_graph *g, rn_value x, rn_value indices, uint32_t axis) {
    return rn_op_gather_as(g, x, indices, (rn_gather_attrs){.axis = axis});
}

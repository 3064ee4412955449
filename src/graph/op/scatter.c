// scatter.c — x with updates put, added, multiplied or compared in at the places that indices name.
//
// Updates come in their order: of two that are put at one place the later one stays.
#include "graph/op/move.h"
#include "graph/op/number.h"

#include <math.h>
#include <stdio.h>

enum { X, INDICES, UPDATES };

// ---- shapes -------------------------------------------------------------------------------------

static rn_status shape_elements(rn_shaping *s, uint32_t axis) {
    rn_shape x = s->in[X].shape, updates = s->in[UPDATES].shape;
    RN_TRY(rn_shape_want_axis(s, X, axis));
    if (!rn_shape_equal(s->in[INDICES].shape, updates) || updates.rank != x.rank)
        return rn_shape_fail(s, "indices and updates must have one shape, of x's axes");
    for (uint32_t i = 0; i < x.rank; i++)
        if (i != axis && updates.dims[i] > x.dims[i])
            return rn_shape_fail(s, "axis %u of the updates is longer than x's", i);
    return RN_OK;
}

static rn_status shape_nd(rn_shaping *s) {
    rn_shape x = s->in[X].shape, indices = s->in[INDICES].shape, want = {0};
    if (indices.rank == 0) return rn_shape_fail(s, "the indices have no axis of places");
    uint64_t depth = indices.dims[indices.rank - 1];
    if (depth == 0 || depth > x.rank || indices.rank - 1 + x.rank - depth > RN_MAX_RANK)
        return rn_shape_fail(s, "x has no places of %llu axes", (unsigned long long)depth);
    for (uint32_t i = 0; i + 1 < indices.rank; i++)
        want.dims[want.rank++] = indices.dims[i];
    for (uint32_t i = (uint32_t)depth; i < x.rank; i++)
        want.dims[want.rank++] = x.dims[i];
    if (!rn_shape_equal(s->in[UPDATES].shape, want))
        return rn_shape_fail(s, "the updates must be %s", rn_shape_format(want).text);
    return RN_OK;
}

static rn_status shape(rn_shaping *s) {
    const rn_scatter_attrs *attrs = s->attrs;
    RN_TRY(rn_shape_want_number(s, X));
    RN_TRY(rn_shape_want_index(s, INDICES));
    RN_TRY(rn_shape_want(s, UPDATES, s->in[X].dtype));
    if ((unsigned)attrs->function >= RN_SCATTER_COUNT)
        return rn_shape_fail(s, "there is no function %d", (int)attrs->function);
    if (s->in[X].shape.rank && s->in[X].shape.dims[0] == RN_ROWS)
        return rn_shape_fail(s, "rows cannot be scattered into");
    s->out[0].dtype = s->in[X].dtype;
    s->out[0].shape = s->in[X].shape;
    return attrs->nd ? shape_nd(s) : shape_elements(s, attrs->axis);
}

// ---- joining ------------------------------------------------------------------------------------

#define JOIN(field, one)                                                                           \
    switch (function) {                                                                            \
    case RN_SCATTER_ADD:                                                                           \
        a->field[0] += b->field[0];                                                                \
        break;                                                                                     \
    case RN_SCATTER_MUL:                                                                           \
        a->field[0] *= b->field[0];                                                                \
        break;                                                                                     \
    case RN_SCATTER_MAX:                                                                           \
        if (b->one[0] > a->one[0] || b->one[0] != b->one[0]) a->one[0] = b->one[0];                \
        break;                                                                                     \
    default:                                                                                       \
        if (b->one[0] < a->one[0] || b->one[0] != b->one[0]) a->one[0] = b->one[0];                \
        break;                                                                                     \
    }

// Whole numbers are added and multiplied as unsigned ones, which wrap.
static void join(rn_scatter_function function, rn_number number, rn_numbers *a,
                 const rn_numbers *b) {
    switch (number) {
    case RN_NUMBER_F32:
        JOIN(f32, f32)
        break;
    case RN_NUMBER_F64:
        JOIN(f64, f64)
        break;
    case RN_NUMBER_I64:
        JOIN(u64, i64)
        break;
    default:
        JOIN(u64, u64)
        break;
    }
}

// Update `from` of `count` neighbours at element `at`.
static void put(const rn_call *call, uint64_t at, uint64_t from, uint64_t count) {
    const rn_scatter_attrs *attrs = call->attrs;
    const rn_tensor *updates = &call->inputs[UPDATES], *y = &call->outputs[0];
    uint64_t size = rn_element_bytes(y);
    if (attrs->function == RN_SCATTER_SET) {
        memcpy((char *)y->data + at * size, (const char *)updates->data + from * size,
               count * size);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        rn_numbers a, b;
        rn_numbers_load(y, at + i, 1, 1, &a);
        rn_numbers_load(updates, from + i, 1, 1, &b);
        join(attrs->function, rn_number_of(y->dtype), &a, &b);
        rn_numbers_store(y, at + i, 1, &a);
    }
}

// ---- the loops ----------------------------------------------------------------------------------

static rn_status scatter_elements(const rn_call *call, uint32_t axis) {
    rn_shape x = call->inputs[X].shape, updates = call->inputs[UPDATES].shape;
    rn_strides strides = rn_strides_of(x), own = rn_strides_of(updates);
    uint64_t n = rn_tensor_elements(&call->inputs[UPDATES]);
    for (uint64_t e = 0; e < n; e++) {
        uint64_t place, at = 0;
        RN_TRY(rn_index_at(call, INDICES, e, x.dims[axis], &place));
        for (uint32_t i = 0; i < x.rank; i++)
            at += strides.by[i] * (i == axis ? place : e / own.by[i] % updates.dims[i]);
        put(call, at, e, 1);
    }
    return RN_OK;
}

static rn_status scatter_nd(const rn_call *call) {
    rn_shape x = call->inputs[X].shape, indices = call->inputs[INDICES].shape;
    rn_strides strides = rn_strides_of(x);
    uint64_t depth = indices.dims[indices.rank - 1], each = strides.by[depth - 1];
    uint64_t count = rn_tensor_elements(&call->inputs[INDICES]) / depth;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = 0;
        for (uint64_t k = 0; k < depth; k++) {
            uint64_t place;
            RN_TRY(rn_index_at(call, INDICES, i * depth + k, x.dims[k], &place));
            at += place * strides.by[k];
        }
        put(call, at, i * each, each);
    }
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const rn_scatter_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[X], *y = &call->outputs[0];
    if (y->data != x->data) memcpy(y->data, x->data, rn_tensor_bytes(x));
    return attrs->nd ? scatter_nd(call) : scatter_elements(call, attrs->axis);
}

static void print(const void *attrs, char *out, size_t bytes) {
    static const char *const names[RN_SCATTER_COUNT] = {"set", "add", "mul", "max", "min"};
    const rn_scatter_attrs *a = attrs;
    if (a->nd)
        snprintf(out, bytes, "%s, places", names[a->function]);
    else
        snprintf(out, bytes, "%s, axis %u", names[a->function], a->axis);
}

extern const rn_op_info rn_scatter_op;
const rn_op_info rn_scatter_op = {
    .name = "scatter",
    .min_inputs = 3,
    .max_inputs = 3,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_scatter_attrs),
    .alias = {RN_ALIAS_MAY(X)},
    .shape = shape,
    .cost = rn_move_cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_scatter(rn_graph *g, rn_value x, rn_value indices, rn_value updates,
                       rn_scatter_attrs attrs) {
    return rn_graph_add(g, RN_OP_SCATTER, (rn_value[]){x, indices, updates}, 3, &attrs);
}

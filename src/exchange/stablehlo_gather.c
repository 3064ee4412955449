// stablehlo_gather.c — elements at the places that indices name, read and written.
//
// A place is a vector of indices into the first axes of x: (..., depth). Indices of the ops become
// places by putting the missing ones beside them.
#include "exchange/stablehlo_ops.h"

#include <stdio.h>

// Negative ones count from the end of an axis of `length`. i64.
static rn_hlo_value wrap(rn_hlo *h, rn_hlo_value indices, uint64_t length) {
    indices = rn_hlo_convert(h, indices, RN_DTYPE_I64);
    rn_hlo_value from_end =
        rn_hlo_binary(h, "add", indices, rn_hlo_like(h, indices, (double)length));
    rn_hlo_value below = rn_hlo_compare(h, "LT", indices, rn_hlo_like(h, indices, 0));
    return rn_hlo_select(h, below, from_end, indices);
}

static rn_shape with_axis(rn_shape shape, uint64_t length) {
    if (shape.rank < RN_MAX_RANK) shape.dims[shape.rank++] = length;
    return shape;
}

// One index of each place, as a column.
static rn_hlo_value column(rn_hlo *h, rn_hlo_value indices) {
    return rn_hlo_reshape(h, indices, with_axis(indices.shape, 1));
}

// indices (i64, as the result) along `axis`, and each element's own place along the others.
static rn_hlo_value places_of_elements(rn_hlo *h, rn_hlo_value indices, rn_shape x, uint32_t axis) {
    rn_hlo_value columns[RN_MAX_RANK];
    if (x.rank == RN_MAX_RANK) rn_hlo_refuse(h, "elements of too many axes");
    for (uint32_t i = 0; i < x.rank; i++)
        columns[i] =
            column(h, i == axis ? indices : rn_hlo_iota(h, RN_DTYPE_I64, indices.shape, i));
    return rn_hlo_concat(h, columns, x.rank, indices.shape.rank);
}

// indices (batches, ..., depth), behind the places of their batches.
static rn_hlo_value places_behind(rn_hlo *h, rn_hlo_value indices, rn_shape x, uint32_t batch) {
    rn_hlo_value columns[RN_MAX_RANK];
    uint32_t last = indices.shape.rank - 1, depth = (uint32_t)indices.shape.dims[last];
    rn_shape each = indices.shape;
    each.dims[last] = 1;
    for (uint32_t i = 0; i < batch; i++)
        columns[i] = rn_hlo_iota(h, RN_DTYPE_I64, each, i);
    for (uint32_t i = 0; i < depth; i++)
        columns[batch + i] = wrap(h, rn_hlo_slice(h, indices, last, i, 1), x.dims[batch + i]);
    return rn_hlo_concat(h, columns, batch + depth, last);
}

// Numbers from .. from + count - 1.
static rn_hlo_text count_up(uint64_t from, uint32_t count) {
    uint64_t numbers[RN_MAX_RANK];
    for (uint32_t i = 0; i < count; i++)
        numbers[i] = from + i;
    return rn_hlo_numbers(numbers, count);
}

static rn_hlo_value gather_places(rn_hlo *h, rn_hlo_value x, rn_hlo_value places) {
    uint32_t last = places.shape.rank - 1, depth = (uint32_t)places.shape.dims[last];
    rn_shape shape = places.shape;
    uint64_t sizes[RN_MAX_RANK];
    char attributes[1200];
    shape.rank--;
    for (uint32_t i = 0; i < x.shape.rank; i++) {
        sizes[i] = i < depth ? 1 : x.shape.dims[i];
        if (i >= depth && shape.rank < RN_MAX_RANK) shape.dims[shape.rank++] = x.shape.dims[i];
    }
    snprintf(attributes, sizeof attributes,
             "dimension_numbers = #stablehlo.gather<offset_dims = %s, collapsed_slice_dims = %s, "
             "start_index_map = %s, index_vector_dim = %u>, indices_are_sorted = false, "
             "slice_sizes = %s",
             count_up(last, x.shape.rank - depth).text, count_up(0, depth).text,
             count_up(0, depth).text, last, rn_hlo_array(sizes, x.shape.rank).text);
    return rn_hlo_op(h, "stablehlo.gather", (rn_hlo_value[]){x, places}, 2, NULL, attributes,
                     x.dtype, shape);
}

rn_hlo_value rn_hlo_take_places(rn_hlo *h, rn_hlo_value x, const rn_hlo_value *indices,
                                uint32_t count) {
    rn_hlo_value columns[RN_MAX_RANK];
    for (uint32_t i = 0; i < count; i++)
        columns[i] = column(h, indices[i]);
    return gather_places(h, x, rn_hlo_concat(h, columns, count, indices[0].shape.rank));
}

rn_hlo_value rn_hlo_take_elements(rn_hlo *h, rn_hlo_value x, rn_hlo_value indices, uint32_t axis) {
    return gather_places(h, x, places_of_elements(h, indices, x.shape, axis));
}

RN_HLO_EMITTER(gather) {
    const rn_gather_attrs *attrs = call->attrs;
    rn_hlo_value x = in[0];
    (void)call;
    if (attrs->kind == RN_GATHER_AXIS)
        out[0] = rn_hlo_take(h, x, wrap(h, in[1], x.shape.dims[attrs->axis]), attrs->axis);
    else if (attrs->kind == RN_GATHER_ELEMENTS)
        out[0] = rn_hlo_take_elements(h, x, wrap(h, in[1], x.shape.dims[attrs->axis]), attrs->axis);
    else
        out[0] = gather_places(h, x, places_behind(h, in[1], x.shape, attrs->batch));
}

// Of two that are put at one place it is the compiler's choice which one stays.
RN_HLO_EMITTER(scatter) {
    static const char *const names[RN_SCATTER_COUNT] = {[RN_SCATTER_ADD] = "add",
                                                        [RN_SCATTER_MUL] = "multiply",
                                                        [RN_SCATTER_MAX] = "maximum",
                                                        [RN_SCATTER_MIN] = "minimum"};
    const rn_scatter_attrs *attrs = call->attrs;
    rn_hlo_value x = in[0], updates = in[2];
    rn_hlo_value places = attrs->nd
                              ? places_behind(h, in[1], x.shape, 0)
                              : places_of_elements(h, wrap(h, in[1], x.shape.dims[attrs->axis]),
                                                   x.shape, attrs->axis);
    uint32_t last = places.shape.rank - 1, depth = (uint32_t)places.shape.dims[last];
    char attributes[1000], region[300];
    const char *e = rn_hlo_element(x.dtype);
    if (attrs->function == RN_SCATTER_SET)
        snprintf(region, sizeof region,
                 "({ ^bb0(%%a: tensor<%s>, %%b: tensor<%s>): \"stablehlo.return\"(%%b) : "
                 "(tensor<%s>) -> () })",
                 e, e, e);
    else
        snprintf(region, sizeof region, "%s", rn_hlo_combine(names[attrs->function], x.dtype).text);
    snprintf(attributes, sizeof attributes,
             "indices_are_sorted = false, unique_indices = false, scatter_dimension_numbers = "
             "#stablehlo.scatter<update_window_dims = %s, inserted_window_dims = %s, "
             "scatter_dims_to_operand_dims = %s, index_vector_dim = %u>",
             count_up(last, x.shape.rank - depth).text, count_up(0, depth).text,
             count_up(0, depth).text, last);
    out[0] = rn_hlo_op(h, "stablehlo.scatter", (rn_hlo_value[]){x, places, updates}, 3, region,
                       attributes, x.dtype, x.shape);
}

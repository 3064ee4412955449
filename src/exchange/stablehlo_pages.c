// stablehlo_pages.c — the KV cache: rows are scattered into pages, pages are gathered for
// attention.
//
//     kv (pages, 2, HK, page_tokens, D)     page_table (sequences, max_pages)
//
// With 1 in the place of 2, values are the beginnings of keys.
//
// Attention has four forms. With one sequence that has all pages, nothing is gathered: the order of
// keys does not matter, and the page table says what position each has. With one sequence of fewer
// pages those are gathered once for all rows. With as many sequences as rows, or more (a token
// each), every row gathers its own. Else a loop takes the sequences in turn: rows of others see
// nothing in it, and it holds the pages of one at a time.
#include "exchange/stablehlo_attention.h"

#include <math.h>
#include <stdio.h>

static rn_hlo_value both(rn_hlo *h, rn_hlo_value a, rn_hlo_value b) {
    return rn_hlo_binary(h, "and", a, b);
}

static rn_hlo_value at_least_0(rn_hlo *h, rn_hlo_value x) {
    return rn_hlo_compare(h, "GE", x, rn_hlo_like(h, x, 0));
}

// ---- append -------------------------------------------------------------------------------------

// The page of each row: i32 (R), where a row that writes nothing has one beyond the last, another
// for each row. A scatter leaves those out.
static rn_hlo_value find_page(rn_hlo *h, rn_hlo_value sequence, rn_hlo_value position,
                              rn_hlo_value table, uint64_t page_tokens, uint64_t page_count) {
    uint64_t rows = sequence.shape.dims[0], max_pages = table.shape.dims[1];
    rn_hlo_value number =
        rn_hlo_binary(h, "divide", position, rn_hlo_like(h, position, (double)page_tokens));
    rn_hlo_value flat = rn_hlo_reshape(h, table, RN_SHAPE(table.shape.dims[0] * max_pages));
    rn_hlo_value at =
        rn_hlo_binary(h, "multiply", sequence, rn_hlo_like(h, sequence, (double)max_pages));
    rn_hlo_value page = rn_hlo_take(h, flat, rn_hlo_binary(h, "add", at, number), 0);
    rn_hlo_value good = both(h, at_least_0(h, sequence), at_least_0(h, position));
    good = both(h, good, at_least_0(h, page));
    good =
        both(h, good, rn_hlo_compare(h, "LT", number, rn_hlo_like(h, number, (double)max_pages)));
    rn_hlo_value beyond = rn_hlo_iota(h, RN_DTYPE_I32, RN_SHAPE(rows), 0);
    beyond = rn_hlo_binary(h, "add", beyond, rn_hlo_like(h, beyond, (double)page_count));
    return rn_hlo_select(h, good, page, beyond);
}

RN_HLO_EMITTER(kv_append) {
    rn_hlo_value kv = in[0];
    const uint64_t *dims = kv.shape.dims; // (pages, 2, HK, page_tokens, D)
    uint64_t rows = in[1].shape.dims[0];
    uint32_t planes = (uint32_t)dims[1];
    rn_shape one = RN_SHAPE(rows, 1, dims[2], dims[4]), number = RN_SHAPE(rows, 1);
    rn_hlo_value update[2] = {0}, index[2];
    char region[300], attributes[400];
    (void)call;
    for (uint32_t i = 0; i < planes; i++)
        update[i] = rn_hlo_reshape(h, rn_hlo_convert(h, in[1 + i], kv.dtype), one);
    rn_hlo_value updates = update[0]; // (R, 2, HK, D)
    if (planes > 1) updates = rn_hlo_concat(h, update, planes, 1);
    index[0] = find_page(h, in[3], in[4], in[5], dims[3], dims[0]);
    index[1] = rn_hlo_binary(h, "remainder", in[4], rn_hlo_like(h, in[4], (double)dims[3]));
    for (int i = 0; i < 2; i++)
        index[i] = rn_hlo_reshape(h, index[i], number);
    rn_hlo_value indices = rn_hlo_concat(h, index, 2, 1); // (R, 2): page, slot
    const char *e = rn_hlo_element(kv.dtype);
    snprintf(region, sizeof region,
             "({ ^bb0(%%a: tensor<%s>, %%b: tensor<%s>): \"stablehlo.return\"(%%b) : "
             "(tensor<%s>) -> () })",
             e, e, e);
    snprintf(attributes, sizeof attributes,
             "indices_are_sorted = false, unique_indices = true, scatter_dimension_numbers = "
             "#stablehlo.scatter<update_window_dims = [1, 2, 3], inserted_window_dims = [0, 3], "
             "scatter_dims_to_operand_dims = [0, 3], index_vector_dim = 1>");
    out[0] = rn_hlo_op(h, "stablehlo.scatter", (rn_hlo_value[]){kv, indices, updates}, 3, region,
                       attributes, kv.dtype, kv.shape);
}

// ---- attention ----------------------------------------------------------------------------------

typedef struct pages {
    const rn_attention_attrs *attrs;
    rn_hlo_value q;  // (R, HK, G, D)
    rn_hlo_value kv; // (pages, 2, HK, page_tokens, D)
    rn_hlo_value sequence, position, table;
    rn_hlo_value sinks;                                         // (HK, G), or none
    uint64_t rows, shared, group, dims, page_tokens, max_pages; // shared: HK
} pages;

// Keys or values of gathered pages: axis `axis` of 2 goes. Of pages of keys, values are as many of
// their dims.
static rn_hlo_value part_of(rn_hlo *h, const pages *p, rn_hlo_value gathered, uint32_t axis,
                            uint64_t which) {
    uint64_t values = p->attrs->value_dims;
    if (which && values) {
        gathered = rn_hlo_slice(h, gathered, gathered.shape.rank - 1, 0, values);
        which = 0;
    }
    rn_shape shape = gathered.shape;
    for (uint32_t i = axis; i + 1 < shape.rank; i++)
        shape.dims[i] = shape.dims[i + 1];
    shape.rank--;
    return rn_hlo_reshape(h, rn_hlo_slice(h, gathered, axis, which, 1), shape);
}

// (R, keys): whether a row sees each key, of these positions (keys); `live`: of the rows that see
// any.
static rn_hlo_value find_visible(rn_hlo *h, const pages *p, rn_hlo_value positions,
                                 rn_hlo_value live) {
    rn_shape shape = RN_SHAPE(p->rows, p->max_pages * p->page_tokens);
    rn_hlo_value key = rn_hlo_broadcast(h, positions, shape, (uint64_t[]){1});
    rn_hlo_value at = rn_hlo_broadcast(h, p->position, shape, (uint64_t[]){0});
    rn_hlo_value visible = rn_hlo_compare(h, "LE", key, at);
    visible = both(h, visible, rn_hlo_broadcast(h, live, shape, (uint64_t[]){0}));
    if (!p->attrs->window) return visible;
    rn_hlo_value before =
        rn_hlo_binary(h, "subtract", at, rn_hlo_like(h, at, (double)p->attrs->window));
    return both(h, visible, rn_hlo_compare(h, "GT", key, before));
}

// Of gathered pages: 0, 1, 2 ...
static rn_hlo_value positions_in_order(rn_hlo *h, const pages *p) {
    return rn_hlo_iota(h, RN_DTYPE_I32, RN_SHAPE(p->max_pages * p->page_tokens), 0);
}

// Of all pages as they lie in the pool, which are as many as `ids` (max_pages) has: where in the
// sequence a page stands, the table says. One that does not stand there is behind every position.
static rn_hlo_value positions_by_page(rn_hlo *h, const pages *p, rn_hlo_value ids) {
    uint64_t count = p->max_pages;
    rn_shape square = RN_SHAPE(count, count), grid = RN_SHAPE(count, p->page_tokens);
    rn_hlo_value page = rn_hlo_iota(h, RN_DTYPE_I32, square, 0);
    rn_hlo_value number = rn_hlo_iota(h, RN_DTYPE_I32, square, 1);
    rn_hlo_value here =
        rn_hlo_compare(h, "EQ", page, rn_hlo_broadcast(h, ids, square, (uint64_t[]){1}));
    double last = (double)(INT32_MAX / (int64_t)p->page_tokens - 1);
    number = rn_hlo_select(h, here, number, rn_hlo_like(h, number, last));
    number = rn_hlo_reduce(h, "minimum", number, 1u << 1, false);
    rn_hlo_value at = rn_hlo_broadcast(h, number, grid, (uint64_t[]){0});
    at = rn_hlo_binary(h, "multiply", at, rn_hlo_like(h, at, (double)p->page_tokens));
    at = rn_hlo_binary(h, "add", at, rn_hlo_iota(h, RN_DTYPE_I32, grid, 1));
    return rn_hlo_reshape(h, at, RN_SHAPE(count * p->page_tokens));
}

// Those of each head as a sum has them.
static rn_hlo_value spread_sinks(rn_hlo *h, const pages *p, rn_shape shape, const uint64_t *axes) {
    return p->sinks.id ? rn_hlo_broadcast(h, p->sinks, shape, axes) : p->sinks;
}

// All rows to the keys of these pages (max_pages, 2, HK, page_tokens, D): (R, HK, G, D).
static rn_hlo_value attend_to_one(rn_hlo *h, const pages *p, rn_hlo_value own,
                                  rn_hlo_value positions, rn_hlo_value live) {
    rn_shape flat = RN_SHAPE(p->shared, p->rows, p->group, p->max_pages * p->page_tokens);
    rn_hlo_value keys = part_of(h, p, own, 1, 0), values = part_of(h, p, own, 1, 1);
    rn_hlo_value scores = rn_hlo_product(
        h, p->q, keys, &(rn_hlo_dot){{1}, {1}, {3}, {3}, .batch_count = 1, .sum_count = 1});
    rn_shape paged = scores.shape; // (HK, R, G, max_pages, page_tokens)
    rn_hlo_value visible =
        rn_hlo_broadcast(h, find_visible(h, p, positions, live), flat, (uint64_t[]){1, 3});
    rn_shape each = flat; // of the sums
    each.dims[3] = 1;
    rn_hlo_value sinks = spread_sinks(h, p, each, (uint64_t[]){0, 2});
    rn_hlo_softmax s = rn_hlo_soften(h, p->attrs, p->dims, rn_hlo_reshape(h, scores, flat), visible,
                                     (rn_hlo_value){0}, sinks);
    rn_hlo_value acc =
        rn_hlo_product(h, rn_hlo_reshape(h, s.weights, paged), values,
                       &(rn_hlo_dot){{0}, {1}, {3, 4}, {0, 2}, .batch_count = 1, .sum_count = 2});
    return rn_hlo_transpose(h, rn_hlo_divide_by_sum(h, acc, s.sum), (uint64_t[]){1, 0, 2, 3});
}

// There is one sequence, and what it does not see is masked.
static rn_hlo_value attend_alone(rn_hlo *h, const pages *p) {
    rn_hlo_value ids = rn_hlo_reshape(h, p->table, RN_SHAPE(p->max_pages));
    rn_hlo_value live = at_least_0(h, p->sequence);
    if (p->kv.shape.dims[0] == p->max_pages)
        return attend_to_one(h, p, p->kv, positions_by_page(h, p, ids), live);
    return attend_to_one(h, p, rn_hlo_take(h, p->kv, ids, 0), positions_in_order(h, p), live);
}

// Every row to the pages of its own sequence.
static rn_hlo_value attend_by_row(rn_hlo *h, const pages *p) {
    rn_shape flat = RN_SHAPE(p->rows, p->shared, p->group, p->max_pages * p->page_tokens);
    rn_hlo_value ids = rn_hlo_take(h, p->table, p->sequence, 0); // (R, max_pages)
    rn_hlo_value gathered = rn_hlo_take(h, p->kv, ids, 0);       // (R, max_pages, 2, HK, ...)
    rn_hlo_value keys = part_of(h, p, gathered, 2, 0), values = part_of(h, p, gathered, 2, 1);
    rn_hlo_value scores = rn_hlo_product(
        h, p->q, keys, &(rn_hlo_dot){{0, 1}, {0, 2}, {3}, {4}, .batch_count = 2, .sum_count = 1});
    rn_shape paged = scores.shape; // (R, HK, G, max_pages, page_tokens)
    rn_hlo_value visible = rn_hlo_broadcast(
        h, find_visible(h, p, positions_in_order(h, p), at_least_0(h, p->sequence)), flat,
        (uint64_t[]){0, 3});
    rn_shape each = flat; // of the sums
    each.dims[3] = 1;
    rn_hlo_value sinks = spread_sinks(h, p, each, (uint64_t[]){1, 2});
    rn_hlo_softmax s = rn_hlo_soften(h, p->attrs, p->dims, rn_hlo_reshape(h, scores, flat), visible,
                                     (rn_hlo_value){0}, sinks);
    rn_hlo_value acc = rn_hlo_product(
        h, rn_hlo_reshape(h, s.weights, paged), values,
        &(rn_hlo_dot){{0, 1}, {0, 2}, {3, 4}, {1, 3}, .batch_count = 2, .sum_count = 2});
    return rn_hlo_divide_by_sum(h, acc, s.sum);
}

// Sequence after sequence; a row takes what its own gives.
static rn_hlo_value attend_in_turn(rn_hlo *h, const pages *p) {
    rn_shape shape = p->q.shape;
    if (p->attrs->value_dims) shape.dims[3] = p->attrs->value_dims;
    rn_hlo_value y = rn_hlo_float(h, RN_DTYPE_F32, 0, shape);
    rn_hlo_loop loop = rn_hlo_loop_begin(h, p->table.shape.dims[0], &y, 1);
    rn_hlo_value ids =
        rn_hlo_reshape(h, rn_hlo_pick(h, p->table, loop.index), RN_SHAPE(p->max_pages));
    rn_hlo_value live =
        rn_hlo_compare(h, "EQ", p->sequence, rn_hlo_expand(h, loop.index, p->sequence.shape));
    rn_hlo_value own =
        attend_to_one(h, p, rn_hlo_take(h, p->kv, ids, 0), positions_in_order(h, p), live);
    rn_hlo_value which = rn_hlo_broadcast(h, live, own.shape, (uint64_t[]){0});
    rn_hlo_value next = rn_hlo_select(h, which, own, loop.carried[0]);
    rn_hlo_loop_end(h, &loop, &next, &y);
    return y;
}

RN_HLO_EMITTER(paged_attention) {
    const uint64_t *q = in[0].shape.dims, *kv = in[1].shape.dims;
    pages p = {.attrs = call->attrs,
               .kv = in[1],
               .sequence = in[2],
               .position = in[3],
               .table = in[4],
               .rows = q[0],
               .shared = kv[2],
               .group = q[1] / kv[2],
               .dims = q[2],
               .page_tokens = kv[3],
               .max_pages = in[4].shape.dims[1]};
    uint64_t sequences = p.table.shape.dims[0];
    rn_hlo_value y;
    p.q = rn_hlo_reshape(h, rn_hlo_widen(h, in[0]), RN_SHAPE(p.rows, p.shared, p.group, p.dims));
    if (call->input_count > 5) p.sinks = rn_hlo_reshape(h, in[5], RN_SHAPE(p.shared, p.group));
    if (sequences == 1)
        y = attend_alone(h, &p);
    else if (p.rows <= sequences)
        y = attend_by_row(h, &p);
    else
        y = attend_in_turn(h, &p);
    out[0] = rn_hlo_result(h, call, rn_hlo_reshape(h, y, call->outputs[0].shape));
}

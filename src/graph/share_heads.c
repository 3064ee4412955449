// share_heads.c — tensor parallelism: what one of several ranks computes of a model whose products
// and heads are dealt out to all of them.
//
//     x ─┬─ product(wq, rank's rows) ── this rank's heads ──────┐
//        ├─ product(wk, rank's rows) ── KV pages of its heads ──┴─ attention ── all_gather ─┐
//        └─ ...                                                                             │
//     ┌───────────────────────────────────────────────────────────────────────────────────────┘
//     └─ product(wo, rank's rows) ── all_gather ── ...
//
// A value is whole on all ranks, or a part of its axis 1: this rank's of as many equal ones as
// there are ranks. A product takes x whole and a part of its weight's rows (rn_value_info.tensor:
// only these are ever read) and makes a part. What is done for each head or each element alone goes
// on with parts; whatever else reads one gathers it first. Every number is made by one rank in the
// way one process makes it, and none is a sum over ranks: the bits are those of one process.
#include "graph/cut.h"

#include "base/checked.h"
#include "graph/copy.h"
#include "graph/graph_internal.h"
#include "memory/account.h"

#include <stdio.h>
#include <string.h>

typedef struct sharer {
    const rn_graph *from;
    rn_graph *to;
    uint32_t rank, ranks;
    rn_value *whole, *part; // (values + 1): their numbers in `to`; RN_NO_VALUE: not there (yet)
    rn_value *inputs;       // (the most that a node has): scratch
    uint32_t shared;        // products and caches that are dealt out
} sharer;

static const rn_value_info *info_of(const sharer *s, rn_value value) {
    return rn_graph_value(s->from, value);
}

static bool divides(const sharer *s, uint64_t count) {
    return count >= s->ranks && count % s->ranks == 0;
}

// ---- values -------------------------------------------------------------------------------------

static rn_status get_whole(sharer *s, rn_value value, rn_value *out) {
    *out = s->whole[value];
    if (value == RN_NO_VALUE || *out != RN_NO_VALUE) return RN_OK;
    bool made = info_of(s, value)->producer != RN_NO_NODE; // else it is there on every rank
    if (made && s->part[value] != RN_NO_VALUE)
        s->whole[value] = rn_op_all_gather(s->to, s->part[value], s->ranks);
    else
        RN_TRY(rn_graph_copy_value(s->from, s->to, value, &s->whole[value]));
    *out = s->whole[value];
    return *out == RN_NO_VALUE ? rn_graph_finish(s->to) : RN_OK;
}

static rn_status get_part(sharer *s, rn_value value, rn_value *out) {
    rn_value whole;
    uint64_t count = info_of(s, value)->shape.dims[1] / s->ranks;
    *out = s->part[value];
    if (*out != RN_NO_VALUE) return RN_OK;
    RN_TRY(get_whole(s, value, &whole));
    *out = s->part[value] = rn_op_slice(s->to, whole, 1, s->rank * count, count);
    return *out == RN_NO_VALUE ? rn_graph_finish(s->to) : RN_OK;
}

// A value of the files that a part of is read: rows of a tensor that has them one behind the other.
static bool has_rows(const rn_value_info *info) {
    rn_plain_components parts;
    uint64_t bytes = 0, cols = info->shape.rank == 2 ? info->shape.dims[1] : 1;
    if (info->role != RN_ROLE_WEIGHT || info->shape.rank > 2 || info->shape.rank == 0 ||
        info->tensor || info->experts)
        return false;
    if (!rn_plain_components_of(info->dtype, info->shape.dims[0], cols, &parts) ||
        parts.bytes[RN_COMPONENT_SCALE])
        return false;
    return rn_dtype_bytes(info->dtype, cols, &bytes) &&
           bytes * info->shape.dims[0] == parts.total_bytes;
}

// This rank's rows of a weight, once for each weight.
static rn_status get_weight_part(sharer *s, rn_value value, rn_value *out) {
    rn_value_info info = *info_of(s, value);
    uint64_t rows = info.shape.dims[0] / s->ranks, first = s->rank * rows;
    char name[320];
    void *tensor = NULL;
    *out = s->part[value];
    if (*out != RN_NO_VALUE) return RN_OK;
    RN_TRY(rn_arena_copy(&s->to->memory, info.name, strlen(info.name) + 1, &tensor));
    snprintf(name, sizeof name, "%.250s[%llu:%llu]", info.name, (unsigned long long)first,
             (unsigned long long)(first + rows));
    info.tensor = tensor;
    info.first_row = first;
    info.tensor_rows = info.shape.dims[0];
    info.shape.dims[0] = rows;
    *out = s->part[value] = rn_graph_add_value(s->to, &info, name);
    return *out == RN_NO_VALUE ? rn_graph_finish(s->to) : RN_OK;
}

// The part of a vector with an element for each column of a product, or each head.
static rn_status get_vector_part(sharer *s, rn_value value, rn_value *out) {
    rn_value whole;
    *out = RN_NO_VALUE;
    if (value == RN_NO_VALUE) return RN_OK;
    if (has_rows(info_of(s, value))) return get_weight_part(s, value, out);
    uint64_t count = info_of(s, value)->shape.dims[0] / s->ranks;
    RN_TRY(get_whole(s, value, &whole));
    *out = rn_op_slice(s->to, whole, 0, s->rank * count, count);
    return *out == RN_NO_VALUE ? rn_graph_finish(s->to) : RN_OK;
}

// ---- nodes --------------------------------------------------------------------------------------

// Adds a node like `like` with s->inputs; its outputs become the parts, or the whole.
static rn_status add_node(sharer *s, const rn_node *like, const void *attrs, bool parts) {
    rn_value first = rn_graph_add(s->to, like->op, s->inputs, like->input_count, attrs);
    if (first == RN_NO_VALUE) return rn_graph_finish(s->to);
    for (uint32_t i = 0; i < like->output_count; i++)
        (parts ? s->part : s->whole)[like->outputs[i]] =
            i ? rn_graph_output_of(s->to, first, i) : first;
    return RN_OK;
}

static rn_status add_whole(sharer *s, const rn_node *node) {
    for (uint32_t i = 0; i < node->input_count; i++)
        RN_TRY(get_whole(s, node->inputs[i], &s->inputs[i]));
    return add_node(s, node, node->attrs, false);
}

// Input 0 is a part, the others are whole.
static rn_status add_first(sharer *s, const rn_node *node) {
    for (uint32_t i = 1; i < node->input_count; i++)
        RN_TRY(get_whole(s, node->inputs[i], &s->inputs[i]));
    RN_TRY(get_part(s, node->inputs[0], &s->inputs[0]));
    return add_node(s, node, node->attrs, true);
}

// (rows, K) by (N, K), of whose rows each rank takes as many.
static bool is_dealt_product(const sharer *s, const rn_node *node) {
    const rn_matmul_attrs *a = node->attrs;
    if (node->op != RN_OP_MATMUL || (a && (a->transpose_x || a->transpose_w))) return false;
    const rn_value_info *w = info_of(s, node->inputs[1]), *y = info_of(s, node->outputs[0]);
    return y->shape.rank == 2 && w->shape.rank == 2 && has_rows(w) && divides(s, w->shape.dims[0]);
}

static rn_status add_product(sharer *s, const rn_node *node) {
    enum { X, W, BIAS };
    for (uint32_t i = 0; i < node->input_count; i++)
        s->inputs[i] = RN_NO_VALUE;
    RN_TRY(get_whole(s, node->inputs[X], &s->inputs[X]));
    RN_TRY(get_weight_part(s, node->inputs[W], &s->inputs[W]));
    if (node->input_count > BIAS) RN_TRY(get_vector_part(s, node->inputs[BIAS], &s->inputs[BIAS]));
    s->shared++;
    return add_node(s, node, node->attrs, true);
}

static bool has_part(const sharer *s, rn_value value) {
    return value != RN_NO_VALUE && s->part[value] != RN_NO_VALUE;
}

// Heads as an axis of their own, or no longer.
static bool is_dealt_reshape(const sharer *s, const rn_node *node) {
    rn_shape x = info_of(s, node->inputs[0])->shape, y = info_of(s, node->outputs[0])->shape;
    bool heads = (x.rank == 2 && y.rank == 3) || (x.rank == 3 && y.rank == 2);
    return heads && x.dims[0] == y.dims[0] && has_part(s, node->inputs[0]) &&
           divides(s, x.dims[1]) && divides(s, y.dims[1]);
}

static rn_status add_reshape(sharer *s, const rn_node *node) {
    rn_shape y = info_of(s, node->outputs[0])->shape;
    rn_value x;
    y.dims[1] /= s->ranks;
    RN_TRY(get_part(s, node->inputs[0], &x));
    s->part[node->outputs[0]] = rn_op_reshape(s->to, x, y);
    return s->part[node->outputs[0]] == RN_NO_VALUE ? rn_graph_finish(s->to) : RN_OK;
}

// Done for each head alone: (rows, heads, dims) by its last axis.
static bool is_by_heads(const sharer *s, const rn_node *node) {
    bool known = node->op == RN_OP_ROPE || node->op == RN_OP_RMSNORM || node->op == RN_OP_LAYERNORM;
    return known && info_of(s, node->inputs[0])->shape.rank == 3 && has_part(s, node->inputs[0]);
}

// Every operand is a part already, or has one element for all of axis 1.
static bool is_dealt_elementwise(const sharer *s, const rn_node *node) {
    rn_shape y = info_of(s, node->outputs[0])->shape;
    bool any = false;
    if (!rn_op_is(node->op, RN_TRAIT_ELEMENTWISE) || node->output_count != 1) return false;
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] == RN_NO_VALUE) continue;
        rn_shape x = info_of(s, node->inputs[i])->shape;
        bool one = x.rank == 0 || (x.rank == y.rank && x.dims[1] == 1);
        if (!one && !(rn_shape_equal(x, y) && has_part(s, node->inputs[i]))) return false;
        any = any || !one;
    }
    return any;
}

static rn_status add_elementwise(sharer *s, const rn_node *node) {
    for (uint32_t i = 0; i < node->input_count; i++) {
        rn_value in = node->inputs[i];
        RN_TRY(has_part(s, in) ? get_part(s, in, &s->inputs[i]) : get_whole(s, in, &s->inputs[i]));
    }
    return add_node(s, node, node->attrs, true);
}

// ---- the cache of keys and values ---------------------------------------------------------------

enum { STATE, KEYS, VALUES, HEADS_AXIS = 2 };

static rn_status refuse(const sharer *s, uint64_t heads) {
    return rn_hint(rn_fail(RN_INVALID, "%u ranks for %llu key-value heads: each must have as many",
                           s->ranks, (unsigned long long)heads),
                   "take a number of ranks that divides them, or --split layers");
}

// Pages of this rank's heads.
static rn_status get_state_part(sharer *s, rn_value state, rn_value *out) {
    rn_value_info info = *info_of(s, state);
    info.shape.dims[HEADS_AXIS] /= s->ranks;
    *out = s->part[state];
    if (*out != RN_NO_VALUE) return RN_OK;
    *out = s->part[state] = rn_graph_state(s->to, info.name, info.dtype, info.shape, info.purpose);
    return *out == RN_NO_VALUE ? rn_graph_finish(s->to) : RN_OK;
}

static rn_status add_append(sharer *s, const rn_node *node) {
    uint64_t heads = info_of(s, node->inputs[STATE])->shape.dims[HEADS_AXIS];
    if (!divides(s, heads)) return refuse(s, heads);
    for (uint32_t i = VALUES + 1; i < node->input_count; i++)
        RN_TRY(get_whole(s, node->inputs[i], &s->inputs[i]));
    RN_TRY(get_state_part(s, node->inputs[STATE], &s->inputs[STATE]));
    RN_TRY(get_part(s, node->inputs[KEYS], &s->inputs[KEYS]));
    s->inputs[VALUES] = RN_NO_VALUE;
    if (node->inputs[VALUES] != RN_NO_VALUE)
        RN_TRY(get_part(s, node->inputs[VALUES], &s->inputs[VALUES]));
    s->shared++;
    return add_node(s, node, node->attrs, true);
}

static rn_status add_attention(sharer *s, const rn_node *node) {
    enum { Q, KV, SEQUENCE, POSITION, PAGE_TABLE, SINKS };
    for (uint32_t i = SEQUENCE; i <= PAGE_TABLE; i++)
        RN_TRY(get_whole(s, node->inputs[i], &s->inputs[i]));
    RN_TRY(get_part(s, node->inputs[Q], &s->inputs[Q]));
    s->inputs[KV] = s->part[node->inputs[KV]];
    if (node->input_count > SINKS)
        RN_TRY(get_vector_part(s, node->inputs[SINKS], &s->inputs[SINKS]));
    return add_node(s, node, node->attrs, true);
}

// ---- all of it ----------------------------------------------------------------------------------

static rn_status share_node(sharer *s, const rn_node *node) {
    rn_graph_set_place(s->to, node->block, node->phase);
    if (node->op == RN_OP_KV_APPEND) return add_append(s, node);
    if (node->op == RN_OP_PAGED_ATTENTION && has_part(s, node->inputs[1]))
        return add_attention(s, node);
    if (node->op == RN_OP_RESHAPE && is_dealt_reshape(s, node)) return add_reshape(s, node);
    if (is_dealt_product(s, node)) return add_product(s, node);
    if (is_by_heads(s, node)) return add_first(s, node);
    if (is_dealt_elementwise(s, node)) return add_elementwise(s, node);
    return add_whole(s, node);
}

static rn_status mark_outputs(sharer *s) {
    for (rn_value v = 1; v <= rn_graph_value_count(s->from); v++) {
        rn_value whole;
        if (info_of(s, v)->role != RN_ROLE_OUTPUT) continue;
        RN_TRY(get_whole(s, v, &whole));
        rn_graph_output(s->to, whole, info_of(s, v)->name);
    }
    return rn_graph_finish(s->to);
}

static rn_status fill(sharer *s, rn_arena *scratch) {
    uint32_t most = 1;
    size_t values = rn_graph_value_count(s->from) + 1u;
    for (uint32_t n = 0; n < rn_graph_node_count(s->from); n++)
        most = (uint32_t)rn_max_u64(most, rn_graph_node(s->from, n)->input_count);
    RN_TRY(rn_arena_array(scratch, values, sizeof *s->whole, (void **)&s->whole));
    RN_TRY(rn_arena_array(scratch, values, sizeof *s->part, (void **)&s->part));
    RN_TRY(rn_arena_array(scratch, most, sizeof *s->inputs, (void **)&s->inputs));
    for (uint32_t n = 0; n < rn_graph_node_count(s->from); n++)
        RN_TRY(share_node(s, rn_graph_node(s->from, n)));
    if (s->shared == 0)
        return rn_fail(RN_UNSUPPORTED, "none of its products has rows that ranks could share");
    return mark_outputs(s);
}

rn_status rn_graph_share_heads(const rn_graph *graph, uint32_t rank, uint32_t ranks,
                               rn_graph **out) {
    sharer s = {.from = graph, .rank = rank, .ranks = ranks};
    rn_arena scratch;
    *out = NULL;
    if (graph->failure != RN_OK) return rn_error_restore(&graph->error);
    RN_TRY(rn_graph_create_like(graph, &s.to));
    rn_arena_init(&scratch, RN_HOST_OTHER, 0);
    rn_status status = fill(&s, &scratch);
    rn_arena_free_all(&scratch);
    if (status == RN_OK)
        *out = s.to;
    else
        rn_graph_destroy(s.to);
    return status;
}

// row_slices.c — a product with a large weight becomes several, each with some of its rows.
//
//     x ── product(w) ── y      x ┬─ product(w[0:n]) ──┬ concat ── y
//                                 ├─ product(w[n:2n]) ─┤
//                                 └─ ...              ─┘
//
// A weight must be in memory as a whole while its product runs, so the largest one (the head of a
// large vocabulary) decides how small a budget can be. Its slices come one after the other. Every
// column of a product is a sum of its own, so the numbers are the same; but for products of 16-bit
// values (graph/halves.h), whose sums a library orders by the sizes: those are not cut.
#include "graph/cut.h"

#include "base/checked.h"
#include "graph/copy.h"
#include "graph/graph_internal.h"
#include "graph/halves.h"
#include "memory/account.h"

#include <stdio.h>

// Slices begin at multiples of this many rows: whole panels and tiles of every back end, and whole
// pairs of rows where a format has them.
enum { GRAIN_ROWS = 256 };

typedef struct slicer {
    const rn_graph *from;
    rn_graph *to;
    uint64_t most_bytes;
    bool *whole;        // (values + 1): weights that are not cut
    rn_tensor *tensors; // (the most that a node has): scratch
} slicer;

// ---- which --------------------------------------------------------------------------------------

// Bytes of a row, where the file has the rows one after the other and nothing else; else 0.
static uint64_t row_bytes_of(const rn_value_info *info) {
    rn_plain_components parts;
    uint64_t bytes = 0;
    if (info->role != RN_ROLE_WEIGHT || info->shape.rank > 2 || info->shape.rank == 0 ||
        info->tensor)
        return 0;
    uint64_t rows = info->shape.dims[0], cols = info->shape.rank == 2 ? info->shape.dims[1] : 1;
    if (!rn_plain_components_of(info->dtype, rows, cols, &parts) || parts.bytes[RN_COMPONENT_SCALE])
        return 0;
    return rn_dtype_bytes(info->dtype, cols, &bytes) && bytes * rows == parts.total_bytes ? bytes
                                                                                          : 0;
}

// Rows of a slice; 0: the weight is no larger than that.
static uint64_t slice_rows(const slicer *s, const rn_value_info *info) {
    uint64_t row_bytes = row_bytes_of(info), rows = info->shape.dims[0];
    if (row_bytes == 0 || info->shape.rank != 2 || rows * row_bytes <= s->most_bytes) return 0;
    uint64_t most = rn_max_u64(rn_round_down(s->most_bytes / row_bytes, GRAIN_ROWS), GRAIN_ROWS);
    uint64_t even = rn_round_up(rn_div_up(rows, rn_div_up(rows, most)), GRAIN_ROWS);
    return even < rows ? even : 0;
}

// The node's only product, whose weight and bias are cut; false where the node stays as it is.
static bool is_cut(const slicer *s, uint32_t number, rn_product *out) {
    const rn_node *node = rn_graph_node(s->from, number);
    rn_call call;
    rn_product second;
    if (!rn_op_is(node->op, RN_TRAIT_PRODUCT) || node->phase != RN_PHASE_FORWARD) return false;
    rn_graph_bind(s->from, number, 1, s->tensors, &call);
    if (!rn_call_product(&call, 0, out) || rn_call_product(&call, 1, &second)) return false;
    if (out->transposed || out->residual != RN_NO_INPUT || node->output_count != 1) return false;
    if (rn_dtype_is_half(s->tensors[out->x].dtype)) return false;
    rn_value weight = node->inputs[out->weight];
    rn_value bias = out->bias == RN_NO_INPUT ? RN_NO_VALUE : node->inputs[out->bias];
    if (s->whole[weight] || slice_rows(s, rn_graph_value(s->from, weight)) == 0) return false;
    return bias == RN_NO_VALUE || (!s->whole[bias] && row_bytes_of(rn_graph_value(s->from, bias)));
}

// A weight that a node changes, or reads in any other way than as a product or by rows: tied
// weights of two products would be brought twice.
static void find_whole(slicer *s) {
    for (uint32_t n = 0; n < rn_graph_node_count(s->from); n++) {
        const rn_node *node = rn_graph_node(s->from, n);
        bool by_rows = rn_op_is(node->op, RN_TRAIT_PRODUCT) || rn_node_lookup(node);
        for (uint32_t i = 0; i < node->input_count && !by_rows; i++)
            s->whole[node->inputs[i]] = true;
    }
    s->whole[RN_NO_VALUE] = false;
}

// ---- cutting ------------------------------------------------------------------------------------

// Rows [first, first + rows) of a weight, under a name of their own.
static rn_value add_slice(slicer *s, rn_value weight, uint64_t first, uint64_t rows) {
    rn_value_info info = *rn_graph_value(s->to, weight);
    char name[320];
    snprintf(name, sizeof name, "%.250s[%llu:%llu]", info.name, (unsigned long long)first,
             (unsigned long long)(first + rows));
    info.tensor = rn_graph_value(s->to, weight)->name;
    info.first_row = first;
    info.tensor_rows = info.shape.dims[0];
    info.shape.dims[0] = rows;
    return rn_graph_add_value(s->to, &info, name);
}

static rn_status add_product(slicer *s, const rn_node *like, const rn_product *product,
                             uint64_t first, uint64_t rows, rn_value *out) {
    rn_node *node = NULL;
    char name[320];
    snprintf(name, sizeof name, "%.250s[%llu:%llu]", like->name, (unsigned long long)first,
             (unsigned long long)(first + rows));
    uint32_t number = rn_graph_node_count(s->to);
    RN_TRY(rn_graph_copy_node(s->to, like, name, &node));
    rn_value *inputs = (rn_value *)node->inputs;
    for (uint32_t i = 0; i < like->input_count; i++) {
        bool cut = i == product->weight || i == product->bias;
        inputs[i] = cut ? add_slice(s, like->inputs[i], first, rows) : like->inputs[i];
    }
    rn_value_info info = *rn_graph_value(s->from, like->outputs[0]);
    info.role = RN_ROLE_INTERMEDIATE;
    info.producer = number;
    info.shape.dims[info.shape.rank - 1] = rows;
    node->outputs[0] = *out = rn_graph_add_value(s->to, &info, name);
    return rn_graph_finish(s->to);
}

static rn_status cut_node(slicer *s, const rn_node *like, const rn_product *product,
                          rn_arena *scratch) {
    const rn_value_info *info = rn_graph_value(s->from, like->inputs[product->weight]);
    uint64_t rows = info->shape.dims[0], each = slice_rows(s, info), count = rn_div_up(rows, each);
    rn_value *slices; // (count)
    rn_node *join = NULL;
    RN_TRY(rn_arena_array(scratch, count, sizeof *slices, (void **)&slices));
    for (uint64_t i = 0; i < count; i++)
        RN_TRY(
            add_product(s, like, product, i * each, rn_min_u64(each, rows - i * each), &slices[i]));
    rn_concat_attrs attrs = {.axis = rn_graph_value(s->from, like->outputs[0])->shape.rank - 1};
    rn_node concat = *like;
    concat.op = RN_OP_CONCAT;
    concat.attrs = &attrs;
    concat.input_count = (uint32_t)count;
    uint32_t number = rn_graph_node_count(s->to);
    RN_TRY(rn_graph_copy_node(s->to, &concat, like->name, &join));
    memcpy((rn_value *)join->inputs, slices, count * sizeof *slices);
    join->outputs[0] = like->outputs[0];
    rn_graph_value_edit(s->to, like->outputs[0])->producer = number;
    return RN_OK;
}

static rn_status copy_node(slicer *s, const rn_node *like) {
    rn_node *node = NULL;
    uint32_t number = rn_graph_node_count(s->to);
    RN_TRY(rn_graph_copy_node(s->to, like, like->name, &node));
    memcpy((rn_value *)node->inputs, like->inputs, like->input_count * sizeof(rn_value));
    for (uint32_t i = 0; i < like->output_count; i++) {
        node->outputs[i] = like->outputs[i];
        rn_graph_value_edit(s->to, like->outputs[i])->producer = number;
    }
    return RN_OK;
}

static rn_status fill(slicer *s, rn_arena *scratch) {
    RN_TRY(rn_graph_copy_values(s->from, s->to));
    for (uint32_t n = 0; n < rn_graph_node_count(s->from); n++) {
        const rn_node *node = rn_graph_node(s->from, n);
        rn_product product;
        if (is_cut(s, n, &product))
            RN_TRY(cut_node(s, node, &product, scratch));
        else
            RN_TRY(copy_node(s, node));
    }
    return rn_graph_finish(s->to);
}

// Bytes of the largest weight that is cut; 0: none is.
static uint64_t find_largest(const slicer *s) {
    uint64_t largest = 0;
    rn_product product;
    for (uint32_t n = 0; n < rn_graph_node_count(s->from); n++) {
        if (!is_cut(s, n, &product)) continue;
        const rn_node *node = rn_graph_node(s->from, n);
        const rn_value_info *info = rn_graph_value(s->from, node->inputs[product.weight]);
        largest = rn_max_u64(largest, info->shape.dims[0] * row_bytes_of(info));
    }
    return largest;
}

static rn_status begin(const rn_graph *graph, uint64_t most_bytes, rn_arena *scratch, slicer *out) {
    void *whole = NULL, *tensors = NULL;
    uint32_t most = 0;
    *out = (slicer){.from = graph, .most_bytes = most_bytes};
    if (graph->failure != RN_OK) return rn_error_restore(&graph->error);
    RN_TRY(rn_arena_array(scratch, rn_graph_value_count(graph) + 1u, sizeof(bool), &whole));
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        most = (uint32_t)rn_max_u64(most, (uint64_t)node->input_count + node->output_count);
    }
    RN_TRY(rn_arena_array(scratch, most, sizeof *out->tensors, &tensors));
    out->whole = whole;
    out->tensors = tensors;
    find_whole(out);
    return RN_OK;
}

static rn_status slice(slicer *s, rn_arena *scratch) {
    if (find_largest(s) == 0) return RN_OK;
    RN_TRY(rn_graph_create_like(s->from, &s->to));
    return fill(s, scratch);
}

rn_status rn_graph_slice_rows(const rn_graph *graph, uint64_t most_bytes, rn_graph **out) {
    slicer s;
    rn_arena scratch;
    *out = NULL;
    rn_arena_init(&scratch, RN_HOST_OTHER, 0);
    rn_status status = begin(graph, most_bytes, &scratch, &s);
    if (status == RN_OK) status = slice(&s, &scratch);
    rn_arena_free_all(&scratch);
    if (status == RN_OK)
        *out = s.to;
    else
        rn_graph_destroy(s.to);
    return status;
}

rn_status rn_graph_find_sliceable(const rn_graph *graph, uint64_t *out_bytes) {
    slicer s;
    rn_arena scratch;
    rn_arena_init(&scratch, RN_HOST_OTHER, 0);
    rn_status status = begin(graph, 0, &scratch, &s);
    *out_bytes = status == RN_OK ? find_largest(&s) : 0;
    rn_arena_free_all(&scratch);
    return status;
}

// retype.c — see retype.h: how each weight is held, then the graph anew.
#include "graph/retype.h"

#include "graph/rewrite.h"

typedef struct retyping {
    rn_rewrite rewrite;
    const rn_graph *from;
    rn_dtype dtype;
    bool unquantised;
    bool *by_products, *by_convs; // (values + 1): all its readers are
    bool used[RN_DTYPE_COUNT];    // by matrices
} retyping;

static bool is_half(rn_dtype dtype) {
    return dtype == RN_DTYPE_F16 || dtype == RN_DTYPE_BF16;
}

static void find_readers(retyping *t) {
    for (uint32_t n = 0; n < rn_graph_node_count(t->from); n++) {
        const rn_node *node = rn_graph_node(t->from, n);
        for (uint32_t i = 0; i < node->input_count; i++) {
            rn_value v = node->inputs[i];
            bool product = node->op == RN_OP_MATMUL && i == 1;
            bool conv = node->op == RN_OP_CONV2D && i == 1;
            t->by_products[v] &= product;
            t->by_convs[v] &= product || conv;
        }
    }
}

// How a weight is held.
typedef struct holding {
    rn_dtype dtype;
    bool widened; // by a node in front of its readers
    bool as_rows; // as a matrix of its first axis' rows: blocks are within a row
} holding;

// What a matrix is held as that is no product's: a node can widen it.
static rn_dtype kind_of_blocks(rn_dtype dtype) {
    switch (dtype) {
    case RN_DTYPE_INT8:
        return RN_DTYPE_Q8_0;
    case RN_DTYPE_INT4: // affine, as that is
        return RN_DTYPE_Q4_1;
    case RN_DTYPE_NF4: // without a shift, as that is
        return RN_DTYPE_Q4_0;
    default:
        return dtype;
    }
}

static holding choose_holding(const retyping *t, rn_value v) {
    const rn_value_info *info = rn_graph_value(t->from, v);
    uint64_t rows = info->shape.rank ? info->shape.dims[0] : 1;
    uint64_t cols = rows ? rn_shape_elements(info->shape, 1) / rows : 0;
    if (info->dtype != RN_DTYPE_F32 || info->shape.rank < 2) return (holding){.dtype = info->dtype};
    bool product = t->by_products[v] && info->shape.rank == 2;
    if (is_half(t->dtype))
        return (holding){.dtype = t->dtype, .widened = !(product || t->by_convs[v])};
    if (product && cols % rn_dtype_get(t->dtype)->block_elements == 0)
        return (holding){.dtype = t->dtype};
    rn_dtype other = kind_of_blocks(t->dtype);
    const rn_dtype_info *kind = rn_dtype_get(other);
    if (!kind->readable || cols % kind->block_elements) return (holding){.dtype = RN_DTYPE_F32};
    return (holding){.dtype = other, .widened = true, .as_rows = info->shape.rank > 2};
}

static void take_weights(retyping *t, const rn_node *node) {
    rn_rewrite *r = &t->rewrite;
    for (uint32_t i = 0; i < node->input_count; i++) {
        rn_value v = node->inputs[i];
        if (v == RN_NO_VALUE || r->now[v] != RN_NO_VALUE) continue;
        const rn_value_info *info = rn_graph_value(t->from, v);
        if (info->role != RN_ROLE_WEIGHT) continue;
        holding held = choose_holding(t, v);
        if (info->shape.rank >= 2) t->used[held.dtype] = true;
        if (held.dtype == info->dtype) continue;
        rn_shape shape = info->shape;
        if (held.as_rows)
            shape = RN_SHAPE(shape.dims[0], rn_shape_elements(shape, 1) / shape.dims[0]);
        rn_rewrite_place(r, node);
        r->now[v] = rn_graph_weight(r->to, info->name, held.dtype, shape);
        if (held.widened) r->now[v] = rn_op_dequantize(r->to, r->now[v]);
        if (held.as_rows) r->now[v] = rn_op_reshape(r->to, r->now[v], info->shape);
    }
}

static rn_status retype_node(retyping *t, const rn_node *node) {
    rn_value in[3] = {RN_NO_VALUE, RN_NO_VALUE, RN_NO_VALUE};
    take_weights(t, node);
    if (node->op != RN_OP_MATMUL || !t->unquantised)
        return rn_rewrite_node(&t->rewrite, node, NULL);
    rn_matmul_attrs attrs = node->attrs ? *(const rn_matmul_attrs *)node->attrs
                                        : (rn_matmul_attrs){.transpose_x = false};
    attrs.unquantised_activations = true;
    RN_TRY(rn_rewrite_inputs(&t->rewrite, node->inputs, node->input_count, in));
    rn_rewrite_place(&t->rewrite, node);
    rn_rewrite_output(&t->rewrite, node->outputs[0],
                      rn_op_matmul_as(t->rewrite.to, in[0], in[1], in[2], attrs));
    return RN_OK;
}

static rn_status retype_all(retyping *t) {
    size_t values = (size_t)rn_graph_value_count(t->from) + 1;
    rn_arena *m = &t->rewrite.memory;
    RN_TRY(rn_arena_array(m, values, sizeof(bool), (void **)&t->by_products));
    RN_TRY(rn_arena_array(m, values, sizeof(bool), (void **)&t->by_convs));
    for (size_t v = 0; v < values; v++)
        t->by_products[v] = t->by_convs[v] = true;
    find_readers(t);
    for (uint32_t n = 0; n < rn_graph_node_count(t->from); n++)
        RN_TRY(retype_node(t, rn_graph_node(t->from, n)));
    return rn_graph_finish(t->rewrite.to);
}

rn_status rn_graph_retype_weights(const rn_graph *graph, rn_dtype dtype,
                                  bool unquantised_activations, rn_graph **out) {
    retyping t = {.from = graph, .dtype = dtype, .unquantised = unquantised_activations};
    *out = NULL;
    rn_status s = rn_rewrite_begin(&t.rewrite, graph);
    if (s == RN_OK) s = retype_all(&t);
    if (s == RN_OK && !t.used[dtype] && !t.used[kind_of_blocks(dtype)])
        s = rn_fail(RN_UNSUPPORTED, "no weight of the model can be %s", rn_dtype_get(dtype)->name);
    return rn_rewrite_end(&t.rewrite, s, out);
}

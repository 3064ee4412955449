// fold_sums.c — see fold_sums.h. Sums are looked at in their order: what one became may be a term
// of the next. A product that is folded is written where its sum stood.
#include "graph/fold_sums.h"

#include "graph/halves.h"
#include "graph/rewrite.h"

typedef struct folder {
    rn_rewrite rewrite;
    const rn_graph *from;
    uint32_t *readers; // (values + 1)
    uint32_t *product; // (nodes): of a sum, the product that is folded into it, or RN_NO_NODE
    bool *folded;      // (nodes): a product, or a sum of two, that is written with a later sum
} folder;

static const rn_node *maker_of(const folder *f, rn_value value, uint32_t *out) {
    *out = rn_graph_value(f->from, value)->producer;
    return *out == RN_NO_NODE ? NULL : rn_graph_node(f->from, *out);
}

// Whether the value is made for this node alone, and beside it.
static bool is_for(const folder *f, rn_value value, const rn_node *sum) {
    uint32_t number;
    const rn_value_info *info = rn_graph_value(f->from, value);
    const rn_node *by = maker_of(f, value, &number);
    return by && info->role == RN_ROLE_INTERMEDIATE && f->readers[value] == 1 &&
           by->block == sum->block && by->phase == sum->phase && !f->folded[number];
}

static bool is_product(const folder *f, rn_value value, const rn_node *sum) {
    uint32_t number;
    const rn_node *by = maker_of(f, value, &number);
    return by && by->op == RN_OP_MATMUL && is_for(f, value, sum) &&
           rn_dtype_is_half(rn_graph_dtype(f->from, by->inputs[0]));
}

static bool are_alike(const folder *f, const rn_node *sum) {
    rn_value y = sum->outputs[0];
    for (uint32_t i = 0; i < 2; i++)
        if (rn_graph_dtype(f->from, sum->inputs[i]) != rn_graph_dtype(f->from, y) ||
            !rn_shape_equal(rn_graph_value(f->from, sum->inputs[i])->shape,
                            rn_graph_value(f->from, y)->shape))
            return false;
    return rn_dtype_is_half(rn_graph_dtype(f->from, y));
}

// The product of a sum's that comes last: the other term is there when it runs.
static void find_product(folder *f, uint32_t number) {
    const rn_node *sum = rn_graph_node(f->from, number);
    f->product[number] = RN_NO_NODE;
    if (sum->op != RN_OP_ADD || !are_alike(f, sum)) return;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t by;
        maker_of(f, sum->inputs[i], &by);
        bool later = f->product[number] == RN_NO_NODE || by > f->product[number];
        if (is_product(f, sum->inputs[i], sum) && later) f->product[number] = by;
    }
    if (f->product[number] != RN_NO_NODE) f->folded[f->product[number]] = true;
}

// a + (x w + u v), where the inner sum is u v's: it becomes (a + x w) + u v, if x w can be folded.
static void find_inner(folder *f, uint32_t number) {
    const rn_node *sum = rn_graph_node(f->from, number);
    if (sum->op != RN_OP_ADD || f->product[number] != RN_NO_NODE || !are_alike(f, sum)) return;
    for (uint32_t i = 0; i < 2 && f->product[number] == RN_NO_NODE; i++) {
        uint32_t inner, first;
        const rn_node *by = maker_of(f, sum->inputs[i], &inner);
        if (!by || by->op != RN_OP_ADD || f->product[inner] == RN_NO_NODE ||
            !is_for(f, sum->inputs[i], sum))
            continue;
        uint32_t other = rn_graph_value(f->from, by->inputs[0])->producer == f->product[inner];
        if (!is_product(f, by->inputs[other], sum)) continue;
        maker_of(f, by->inputs[other], &first);
        f->product[number] = inner;
        f->folded[inner] = f->folded[first] = true;
    }
}

static rn_status find_all(folder *f) {
    uint32_t nodes = rn_graph_node_count(f->from);
    size_t values = (size_t)rn_graph_value_count(f->from) + 1;
    rn_arena *m = &f->rewrite.memory;
    RN_TRY(rn_arena_array(m, values, sizeof *f->readers, (void **)&f->readers));
    RN_TRY(rn_arena_array(m, nodes, sizeof *f->product, (void **)&f->product));
    RN_TRY(rn_arena_array(m, nodes, sizeof *f->folded, (void **)&f->folded));
    for (uint32_t n = 0; n < nodes; n++)
        for (uint32_t i = 0; i < rn_graph_node(f->from, n)->input_count; i++)
            f->readers[rn_graph_node(f->from, n)->inputs[i]]++;
    for (uint32_t n = 0; n < nodes; n++) {
        find_product(f, n);
        find_inner(f, n);
    }
    return RN_OK;
}

// product + addend, of `to`.
static rn_status add_to(folder *f, uint32_t product, rn_value addend, rn_dtype dtype,
                        rn_value *out) {
    const rn_node *by = rn_graph_node(f->from, product);
    bool biased = by->inputs[2] != RN_NO_VALUE;
    rn_value in[3];
    RN_TRY(rn_rewrite_inputs(&f->rewrite, by->inputs, 3, in));
    rn_rewrite_place(&f->rewrite, by);
    *out = rn_graph_add(f->rewrite.to, RN_OP_MATMUL_ADD, (rn_value[]){in[0], in[1], addend, in[2]},
                        biased ? 4 : 3, by->attrs);
    if (*out != RN_NO_VALUE) rn_graph_make_half(f->rewrite.to, *out, dtype);
    return rn_graph_finish(f->rewrite.to);
}

// The term of a sum that is not made by `product`.
static rn_value other_term(const folder *f, const rn_node *sum, uint32_t product) {
    bool first = rn_graph_value(f->from, sum->inputs[0])->producer == product;
    return sum->inputs[first ? 1 : 0];
}

static rn_status write_sum(folder *f, uint32_t number) {
    const rn_node *sum = rn_graph_node(f->from, number);
    rn_dtype dtype = rn_graph_dtype(f->from, sum->outputs[0]);
    uint32_t product = f->product[number];
    rn_value y;
    rn_value term = other_term(f, sum, product);
    RN_TRY(rn_rewrite_inputs(&f->rewrite, &term, 1, &y));
    const rn_node *by = rn_graph_node(f->from, product);
    if (by->op == RN_OP_ADD) { // an inner sum of two products
        uint32_t last = f->product[product];
        rn_value first = other_term(f, by, last);
        RN_TRY(add_to(f, rn_graph_value(f->from, first)->producer, y, dtype, &y));
        product = last;
    }
    RN_TRY(add_to(f, product, y, dtype, &y));
    rn_rewrite_output(&f->rewrite, sum->outputs[0], y);
    return rn_graph_finish(f->rewrite.to);
}

static rn_status fold(folder *f) {
    RN_TRY(find_all(f));
    for (uint32_t n = 0; n < rn_graph_node_count(f->from); n++) {
        if (f->folded[n]) continue;
        if (f->product[n] == RN_NO_NODE)
            RN_TRY(rn_rewrite_node(&f->rewrite, rn_graph_node(f->from, n), NULL));
        else
            RN_TRY(write_sum(f, n));
    }
    return RN_OK;
}

rn_status rn_graph_fold_sums(const rn_graph *graph, rn_graph **out) {
    folder f = {.from = graph};
    rn_status s = rn_rewrite_begin(&f.rewrite, graph);
    if (s == RN_OK) s = fold(&f);
    return rn_rewrite_end(&f.rewrite, s, out);
}

// fuse.c — see fuse.h. Two acts: patterns are found (groups of nodes, none in two groups), then
// the graph is written anew in its own order, a group where its first node stood.
//
// A group may need what comes later in the old order, but for its own nodes: the bias of a third
// product, say, behind a cast. So writing a node first writes what it reads. No node depends on
// itself by that: of a group's values only the last ones have readers outside, and its weights are
// given, not made.
#include "graph/fuse.h"

#include "graph/graph_internal.h"
#include "graph/op/conv.h"
#include "graph/project.h"
#include "graph/rewrite.h"

#include <math.h>
#include <string.h>

enum { NO_GROUP = UINT32_MAX, GROUP_NODES = 4, GROUP_INPUTS = 8, GROUP_OUTPUTS = 3 };

// Nodes that become one. Values are those of the old graph.
typedef struct group {
    rn_op op;
    uint32_t nodes[GROUP_NODES], node_count;
    rn_value inputs[GROUP_INPUTS];
    uint32_t input_count;
    rn_value outputs[GROUP_OUTPUTS]; // what the fused op's outputs stand for
    rn_project_attrs project;
    rn_attend_attrs attend;
    rn_conv_clamp_attrs conv;
    rn_matmul_attrs matmul;
} group;

typedef struct fuser {
    rn_rewrite rewrite;
    const rn_graph *from;
    uint32_t fusions;
    uint32_t *reader_starts; // (values + 2): readers of v are readers[starts[v] .. starts[v + 1])
    uint32_t *readers;       // (inputs of all nodes): node numbers, upwards
    group *groups;           // (group_count), room for one for every two nodes
    uint32_t group_count;
    uint32_t *group_of; // (nodes), or NO_GROUP
    rn_value *widened;  // (values + 1): of a cast that goes away its weight, else RN_NO_VALUE
    bool *written;      // (nodes)
    uint32_t *stack;    // (nodes): being written, each for the sake of the one below it
} fuser;

// ---- what patterns ask --------------------------------------------------------------------------

static const rn_node *node_of(const fuser *f, uint32_t number) {
    return rn_graph_node(f->from, number);
}

static const rn_value_info *info_of(const fuser *f, rn_value value) {
    return rn_graph_value(f->from, value);
}

static uint32_t count_readers(const fuser *f, rn_value value) {
    return f->reader_starts[value + 1] - f->reader_starts[value];
}

static uint32_t reader_of(const fuser *f, rn_value value, uint32_t index) {
    return f->readers[f->reader_starts[value] + index];
}

// The number of the node of that op that makes the value; RN_NO_NODE: another makes it, or none.
static uint32_t maker_of(const fuser *f, rn_value value, rn_op op) {
    if (value == RN_NO_VALUE) return RN_NO_NODE;
    uint32_t producer = info_of(f, value)->producer;
    return producer != RN_NO_NODE && node_of(f, producer)->op == op ? producer : RN_NO_NODE;
}

// Not made of anything that the run brings: a given value, or casts and scalings of one. What is
// left out is fine, too.
static bool is_given(const fuser *f, rn_value value) {
    while (value != RN_NO_VALUE && info_of(f, value)->producer != RN_NO_NODE) {
        const rn_node *n = node_of(f, info_of(f, value)->producer);
        if (n->input_count != 1 || !rn_op_is(n->op, RN_TRAIT_ELEMENTWISE)) return false;
        value = n->inputs[0];
    }
    return value == RN_NO_VALUE || info_of(f, value)->role != RN_ROLE_INPUT;
}

// Whether nobody but its one reader, in the same block, would miss the value. *out_reader is that.
static bool passes_on(const fuser *f, rn_value value, uint32_t *out_reader) {
    if (count_readers(f, value) != 1 || info_of(f, value)->role != RN_ROLE_INTERMEDIATE)
        return false;
    *out_reader = reader_of(f, value, 0);
    return node_of(f, *out_reader)->block == info_of(f, value)->block;
}

static bool is_rows(const fuser *f, rn_value value) {
    return info_of(f, value)->shape.rank == 2;
}

// One half of an adapter: a product of a product.
static bool is_half(const fuser *f, const rn_node *product) {
    rn_value y = product->outputs[0];
    for (uint32_t i = 0; i < count_readers(f, y); i++)
        if (node_of(f, reader_of(f, y, i))->op == RN_OP_MATMUL) return true;
    return maker_of(f, product->inputs[0], RN_OP_MATMUL) != RN_NO_NODE;
}

// A matmul of rows x by a given weight (N, K) that no group has.
static bool is_product(const fuser *f, uint32_t number, rn_value x) {
    const rn_node *n = node_of(f, number);
    const rn_matmul_attrs *a = n->attrs;
    return n->op == RN_OP_MATMUL && f->group_of[number] == NO_GROUP && n->inputs[0] == x &&
           is_rows(f, x) && is_rows(f, n->inputs[1]) && !a->transpose_x && !a->transpose_w &&
           info_of(f, n->inputs[1])->producer == RN_NO_NODE && is_given(f, n->inputs[2]) &&
           !is_half(f, n);
}

// The add that puts the product onto a residual of the same shape, or RN_NO_NODE.
static uint32_t find_residual(const fuser *f, const rn_node *product) {
    rn_value y = product->outputs[0];
    uint32_t number = RN_NO_NODE;
    if (!passes_on(f, y, &number)) return RN_NO_NODE;
    const rn_node *add = node_of(f, number);
    bool fits = add->op == RN_OP_ADD && add->inputs[1] == y &&
                rn_shape_equal(info_of(f, add->inputs[0])->shape, info_of(f, y)->shape);
    return fits ? number : RN_NO_NODE;
}

// ---- groups -------------------------------------------------------------------------------------

static void put_input(group *g, rn_value value) {
    g->inputs[g->input_count++] = value;
}

static void put_node(group *g, uint32_t number) {
    g->nodes[g->node_count++] = number;
}

// The weight and its bias.
static void put_product(const fuser *f, group *g, uint32_t number) {
    const rn_node *n = node_of(f, number);
    g->project.unquantised_activations =
        ((const rn_matmul_attrs *)n->attrs)->unquantised_activations;
    put_node(g, number);
    put_input(g, n->inputs[1]);
    put_input(g, n->inputs[2]);
}

static bool have_same_attrs(const fuser *f, uint32_t a, uint32_t b) {
    const rn_matmul_attrs *x = node_of(f, a)->attrs, *y = node_of(f, b)->attrs;
    return x->unquantised_activations == y->unquantised_activations;
}

static void keep(fuser *f, const group *g) {
    for (uint32_t i = 0; i < g->node_count; i++)
        f->group_of[g->nodes[i]] = f->group_count;
    f->groups[f->group_count++] = *g;
}

// x and the norm's weight, from the norm.
static group begin_normed(const fuser *f, rn_op op, uint32_t norm) {
    const rn_node *n = node_of(f, norm);
    group g = {.op = op, .project = {.eps = ((const rn_norm_attrs *)n->attrs)->eps}};
    put_node(&g, norm);
    put_input(&g, n->inputs[0]);
    put_input(&g, n->inputs[1]);
    return g;
}

static void match_three(fuser *f, uint32_t norm, const uint32_t products[3]) {
    group g = begin_normed(f, RN_OP_PROJECT_THREE, norm);
    if (!have_same_attrs(f, products[0], products[1]) ||
        !have_same_attrs(f, products[0], products[2]))
        return;
    for (uint32_t i = 0; i < 3; i++) {
        put_product(f, &g, products[i]);
        g.outputs[i] = node_of(f, products[i])->outputs[0];
    }
    keep(f, &g);
}

static void match_gated(fuser *f, uint32_t norm, const uint32_t products[2]) {
    group g = begin_normed(f, RN_OP_PROJECT_GATED, norm);
    uint32_t number = RN_NO_NODE, other = RN_NO_NODE;
    if (!passes_on(f, node_of(f, products[0])->outputs[0], &number) ||
        !passes_on(f, node_of(f, products[1])->outputs[0], &other) || number != other)
        return;
    const rn_node *gated = node_of(f, number);
    if (gated->op != RN_OP_GATED || !have_same_attrs(f, products[0], products[1])) return;
    bool gate_first = gated->inputs[0] == node_of(f, products[0])->outputs[0];
    put_product(f, &g, products[gate_first ? 0 : 1]);
    put_product(f, &g, products[gate_first ? 1 : 0]);
    put_node(&g, number);
    g.project.activation = ((const rn_gated_attrs *)gated->attrs)->activation;
    g.outputs[0] = gated->outputs[0];
    keep(f, &g);
}

// `g` has the norm, or x and nothing in its place.
static void finish_project(fuser *f, group *g, uint32_t product) {
    uint32_t add = find_residual(f, node_of(f, product));
    put_product(f, g, product);
    put_input(g, add == RN_NO_NODE ? RN_NO_VALUE : node_of(f, add)->inputs[0]);
    if (add != RN_NO_NODE) put_node(g, add);
    g->outputs[0] = node_of(f, add == RN_NO_NODE ? product : add)->outputs[0];
    if (g->node_count > 1) keep(f, g); // a product alone stays one
}

// A norm of rows that one to three products, and nobody else, read.
static void match_norm(fuser *f, uint32_t number) {
    static const uint32_t fusions[] = {0, RN_FUSE_PROJECT, RN_FUSE_PROJECT_GATED,
                                       RN_FUSE_PROJECT_THREE};
    const rn_node *n = node_of(f, number);
    rn_value y = n->outputs[0];
    uint32_t count = count_readers(f, y), products[3] = {0};
    if (n->inputs[1] == RN_NO_VALUE || !is_given(f, n->inputs[1]) || !is_rows(f, y) ||
        info_of(f, y)->role != RN_ROLE_INTERMEDIATE || count_readers(f, n->outputs[1]) > 0 ||
        info_of(f, n->outputs[1])->role != RN_ROLE_INTERMEDIATE)
        return;
    if (count == 0 || count > 3 || !(f->fusions & fusions[count])) return;
    for (uint32_t i = 0; i < count; i++) {
        products[i] = reader_of(f, y, i);
        if (!is_product(f, products[i], y) || node_of(f, products[i])->block != n->block) return;
    }
    if (count == 3) match_three(f, number, products);
    if (count == 2) match_gated(f, number, products);
    group g = begin_normed(f, RN_OP_PROJECT, number);
    if (count == 1) finish_project(f, &g, products[0]);
}

static void match_product(fuser *f, uint32_t number) {
    const rn_node *n = node_of(f, number);
    group g = {.op = RN_OP_PROJECT};
    if (!(f->fusions & RN_FUSE_PROJECT) || !is_product(f, number, n->inputs[0])) return;
    put_input(&g, n->inputs[0]);
    put_input(&g, RN_NO_VALUE);
    finish_project(f, &g, number);
}

static bool is_same_rope(const rn_rope_attrs *a, const rn_rope_attrs *b) {
    return memcmp(a, b, offsetof(rn_rope_attrs, inverse)) == 0 && a->inverse == b->inverse &&
           a->untruncated == b->untruncated;
}

// Whether input `input` of `reader` is the rope of something, for that reader alone.
static bool find_rope(const fuser *f, uint32_t reader, uint32_t input, uint32_t *out) {
    rn_value value = node_of(f, reader)->inputs[input];
    uint32_t only = RN_NO_NODE;
    *out = maker_of(f, value, RN_OP_ROPE);
    return *out != RN_NO_NODE && node_of(f, *out)->input_count == 2 && passes_on(f, value, &only) &&
           only == reader;
}

static void match_attention(fuser *f, uint32_t number) {
    enum { KV, K, V, SEQUENCE, POSITION, PAGE_TABLE }; // of kv_append
    const rn_node *look = node_of(f, number);          // q, kv, sequence, position, page_table
    uint32_t append = maker_of(f, look->inputs[1], RN_OP_KV_APPEND), q = 0, k = 0, only = 0;
    bool plain = look->input_count == 5 && append != RN_NO_NODE &&
                 node_of(f, append)->inputs[V] != RN_NO_VALUE; // no sinks, and values of their own
    if (!(f->fusions & RN_FUSE_ATTEND) || !plain || !passes_on(f, look->inputs[1], &only) ||
        !find_rope(f, number, 0, &q) || !find_rope(f, append, K, &k))
        return;
    const rn_node *turn_q = node_of(f, q), *turn_k = node_of(f, k), *put = node_of(f, append);
    bool same_places = memcmp(&look->inputs[2], &put->inputs[SEQUENCE], 3 * sizeof(rn_value)) == 0;
    if (!same_places || turn_q->inputs[1] != put->inputs[POSITION] ||
        turn_k->inputs[1] != put->inputs[POSITION] || !is_same_rope(turn_q->attrs, turn_k->attrs) ||
        count_readers(f, put->inputs[KV]) != 1)
        return;
    group g = {.op = RN_OP_ATTEND,
               .nodes = {q, k, append, number},
               .node_count = 4,
               .inputs = {turn_q->inputs[0], turn_k->inputs[0], put->inputs[V], put->inputs[KV],
                          put->inputs[SEQUENCE], put->inputs[POSITION], put->inputs[PAGE_TABLE]},
               .input_count = 7,
               .outputs = {put->outputs[0], look->outputs[0]}};
    memcpy(&g.attend.rope, turn_q->attrs, sizeof g.attend.rope);
    memcpy(&g.attend.attention, look->attrs, sizeof g.attend.attention);
    keep(f, &g);
}

static bool is_conv(rn_op op) {
    return op == RN_OP_CONV2D || op == RN_OP_CONV;
}

static bool keeps_within(rn_op op) {
    return op == RN_OP_RELU || op == RN_OP_CLAMP;
}

static void match_conv(fuser *f, uint32_t number) {
    const rn_node *conv = node_of(f, number);
    uint32_t reader = RN_NO_NODE;
    if (!(f->fusions & RN_FUSE_CONV) || info_of(f, conv->outputs[0])->dtype != RN_DTYPE_F32 ||
        !passes_on(f, conv->outputs[0], &reader) || !keeps_within(node_of(f, reader)->op))
        return;
    const rn_node *clamp = node_of(f, reader);
    group g = {.op = RN_OP_CONV_CLAMP,
               .nodes = {number, reader},
               .node_count = 2,
               .inputs = {conv->inputs[0], conv->inputs[1], conv->inputs[2]},
               .input_count = 3,
               .outputs = {clamp->outputs[0]}};
    g.conv.conv = conv->op == RN_OP_CONV ? *(const rn_conv_attrs *)conv->attrs
                                         : rn_conv_from_conv2d(conv->attrs);
    g.conv.clamp = clamp->op == RN_OP_CLAMP ? *(const rn_clamp_attrs *)clamp->attrs
                                            : (rn_clamp_attrs){0, INFINITY};
    keep(f, &g);
}

// The operand of `node` beside `value`, of one number or (columns); RN_NO_VALUE: there is none.
static rn_value find_factor(const fuser *f, const rn_node *node, rn_value value, rn_shape columns,
                            bool one_for_all) {
    rn_value other = node->inputs[node->inputs[0] == value ? 1 : 0];
    const rn_value_info *info = info_of(f, other);
    bool fits = rn_shape_equal(info->shape, columns) ||
                (one_for_all && rn_shape_elements(info->shape, 2) == 1 &&
                 info->shape.rank <= info_of(f, value)->shape.rank);
    return other != value && info->dtype == RN_DTYPE_F32 && fits ? other : RN_NO_VALUE;
}

static void match_bytes(fuser *f, uint32_t number) {
    const rn_node *product = node_of(f, number), *last;
    uint32_t cast = RN_NO_NODE, mul = RN_NO_NODE, add = RN_NO_NODE;
    rn_value sums = product->outputs[0], scale, bias = RN_NO_VALUE;
    rn_dtype a = info_of(f, product->inputs[0])->dtype;
    rn_shape shape = info_of(f, sums)->shape, columns = RN_SHAPE(shape.dims[shape.rank - 1]);
    if (!(f->fusions & RN_FUSE_BYTES) || info_of(f, sums)->dtype != RN_DTYPE_I32 ||
        a == RN_DTYPE_I32 || !passes_on(f, sums, &cast) || node_of(f, cast)->op != RN_OP_CAST)
        return;
    rn_value real = node_of(f, cast)->outputs[0];
    if (info_of(f, real)->dtype != RN_DTYPE_F32 || !passes_on(f, real, &mul) ||
        node_of(f, mul)->op != RN_OP_MUL)
        return;
    last = node_of(f, mul);
    scale = find_factor(f, last, real, columns, true);
    if (scale == RN_NO_VALUE) return;
    group g = {.op = RN_OP_PRODUCT_SCALED, .nodes = {number, cast, mul}, .node_count = 3};
    if (passes_on(f, last->outputs[0], &add) && node_of(f, add)->op == RN_OP_ADD)
        bias = find_factor(f, node_of(f, add), last->outputs[0], columns, false);
    if (bias != RN_NO_VALUE) {
        put_node(&g, add);
        last = node_of(f, add);
    }
    for (uint32_t i = 0; i < 4; i++)
        put_input(&g, product->inputs[i]);
    put_input(&g, scale);
    put_input(&g, bias);
    g.outputs[0] = last->outputs[0];
    keep(f, &g);
}

// The vector (N) of f32 that the add puts onto a product's rows `y`, given, or RN_NO_VALUE.
static rn_value bias_of(const rn_graph *graph, const rn_node *add, rn_value y) {
    const rn_value_info *product = rn_graph_value(graph, y);
    if (add->op != RN_OP_ADD || product->dtype != RN_DTYPE_F32) return RN_NO_VALUE;
    rn_value other = add->inputs[add->inputs[0] == y];
    const rn_value_info *info = rn_graph_value(graph, other);
    bool given = info->role == RN_ROLE_WEIGHT || info->role == RN_ROLE_CONSTANT;
    bool fits = info->dtype == RN_DTYPE_F32 && info->shape.rank == 1 &&
                info->shape.dims[0] == product->shape.dims[product->shape.rank - 1];
    return given && fits ? other : RN_NO_VALUE;
}

// A matmul by one matrix, and without a bias so far.
static bool lacks_bias(const rn_graph *graph, const rn_node *node) {
    return node->op == RN_OP_MATMUL && node->inputs[2] == RN_NO_VALUE &&
           rn_graph_value(graph, node->inputs[1])->shape.rank == 2;
}

static void match_bias(fuser *f, uint32_t number) {
    const rn_node *product = node_of(f, number);
    uint32_t reader = RN_NO_NODE;
    if (!(f->fusions & RN_FUSE_BIAS) || !lacks_bias(f->from, product) ||
        !passes_on(f, product->outputs[0], &reader))
        return;
    rn_value bias = bias_of(f->from, node_of(f, reader), product->outputs[0]);
    if (bias == RN_NO_VALUE) return;
    group g = {.op = RN_OP_MATMUL,
               .nodes = {number, reader},
               .node_count = 2,
               .inputs = {product->inputs[0], product->inputs[1], bias},
               .input_count = 3,
               .outputs = {node_of(f, reader)->outputs[0]},
               .matmul = *(const rn_matmul_attrs *)product->attrs};
    keep(f, &g);
}

static void find_groups(fuser *f) {
    for (uint32_t n = 0; n < rn_graph_node_count(f->from); n++) {
        rn_op op = node_of(f, n)->op;
        if (op == RN_OP_RMSNORM) match_norm(f, n);
        if (op == RN_OP_MATMUL && f->group_of[n] == NO_GROUP) match_product(f, n);
        if (op == RN_OP_MATMUL && f->group_of[n] == NO_GROUP) match_bias(f, n);
        if (op == RN_OP_PAGED_ATTENTION) match_attention(f, n);
        if (is_conv(op)) match_conv(f, n);
        if (op == RN_OP_PRODUCT) match_bytes(f, n);
    }
}

// ---- vectors of 16 bits -------------------------------------------------------------------------

// A matrix that is widened as a whole in each run is a small one: biases of experts.
static bool is_narrow_vector(const rn_value_info *info) {
    return info->role == RN_ROLE_WEIGHT && info->shape.rank <= 2 &&
           (info->dtype == RN_DTYPE_F16 || info->dtype == RN_DTYPE_BF16);
}

// The value as f32, nobody's output.
static bool is_widening(const fuser *f, const rn_node *node) {
    const rn_value_info *made = info_of(f, node->outputs[0]);
    return node->op == RN_OP_CAST && made->dtype == RN_DTYPE_F32 &&
           made->role == RN_ROLE_INTERMEDIATE;
}

// Weights that all their readers cast to f32 need no casts. Their nodes count as written.
static void find_widened(fuser *f) {
    for (rn_value v = 1; v <= rn_graph_value_count(f->from); v++) {
        bool all = is_narrow_vector(info_of(f, v));
        for (uint32_t i = 0; all && i < count_readers(f, v); i++)
            all = is_widening(f, node_of(f, reader_of(f, v, i)));
        for (uint32_t i = 0; all && i < count_readers(f, v); i++) {
            uint32_t cast = reader_of(f, v, i);
            f->widened[node_of(f, cast)->outputs[0]] = v;
            f->written[cast] = true;
        }
    }
}

// The numbers in the new graph of values that are written by now, or given. A vector comes into
// being with the first reader of its cast, as every weight does with its own.
static rn_status find_inputs(fuser *f, const rn_value *inputs, uint32_t count, rn_value *out) {
    rn_rewrite *r = &f->rewrite;
    for (uint32_t i = 0; i < count; i++) {
        rn_value weight = inputs[i] == RN_NO_VALUE ? RN_NO_VALUE : f->widened[inputs[i]];
        RN_TRY(rn_rewrite_inputs(r, weight == RN_NO_VALUE ? &inputs[i] : &weight, 1, &out[i]));
        if (weight != RN_NO_VALUE) rn_graph_value_edit(r->to, out[i])->dtype = RN_DTYPE_F32;
    }
    return RN_OK;
}

// ---- writing ------------------------------------------------------------------------------------

static rn_status write_node(fuser *f, const rn_node *node) {
    void *inputs = NULL;
    RN_TRY(rn_arena_array(&f->rewrite.memory, node->input_count, sizeof(rn_value), &inputs));
    RN_TRY(find_inputs(f, node->inputs, node->input_count, inputs));
    return rn_rewrite_node(&f->rewrite, node, inputs);
}

static rn_status write_group(fuser *f, const group *g) {
    rn_value in[GROUP_INPUTS], first = RN_NO_VALUE;
    rn_graph *to = f->rewrite.to;
    RN_TRY(find_inputs(f, g->inputs, g->input_count, in));
    rn_rewrite_place(&f->rewrite, node_of(f, g->nodes[0]));
    if (g->op == RN_OP_CONV_CLAMP) {
        first = rn_op_conv_clamp(to, in[0], in[1], in[2], g->conv);
    } else if (g->op == RN_OP_PRODUCT_SCALED) {
        first = rn_op_product_scaled(to, in[0], in[1], in[2], in[3], in[4], in[5]);
    } else if (g->op == RN_OP_MATMUL) {
        first = rn_graph_add(to, g->op, in, g->input_count, &g->matmul);
    } else if (g->op == RN_OP_ATTEND) {
        first = rn_op_attend(to, in[0], in[1], in[2], in[3], in[4], in[5], in[6], g->attend);
    } else {
        rn_project_attrs attrs = rn_project_note_norm(to, in[1], g->project);
        first = rn_graph_add(to, g->op, in, g->input_count, &attrs);
    }
    RN_TRY(rn_graph_finish(to));
    for (uint32_t i = 0; i < rn_op_get(g->op)->output_count; i++)
        rn_rewrite_output(&f->rewrite, g->outputs[i], rn_graph_output_of(to, first, i));
    return rn_graph_finish(to);
}

static const group *group_at(const fuser *f, uint32_t number) {
    return f->group_of[number] == NO_GROUP ? NULL : &f->groups[f->group_of[number]];
}

// A node that must be written before this one, or its group, can be; RN_NO_NODE: none.
static uint32_t find_missing(const fuser *f, uint32_t number) {
    const group *g = group_at(f, number);
    const rn_value *inputs = g ? g->inputs : node_of(f, number)->inputs;
    uint32_t count = g ? g->input_count : node_of(f, number)->input_count;
    for (uint32_t i = 0; i < count; i++) {
        if (inputs[i] == RN_NO_VALUE) continue;
        uint32_t producer = info_of(f, inputs[i])->producer;
        if (producer != RN_NO_NODE && !f->written[producer]) return producer;
    }
    return RN_NO_NODE;
}

static rn_status write_one(fuser *f, uint32_t number) {
    const group *g = group_at(f, number);
    f->written[number] = true;
    for (uint32_t i = 0; g && i < g->node_count; i++)
        f->written[g->nodes[i]] = true;
    return g ? write_group(f, g) : write_node(f, node_of(f, number));
}

// The node and, before it, what it reads.
static rn_status write_with_inputs(fuser *f, uint32_t number) {
    uint32_t depth = 0;
    f->stack[depth++] = number;
    while (depth > 0) {
        uint32_t top = f->stack[depth - 1], missing = find_missing(f, top);
        if (missing == RN_NO_NODE) {
            RN_TRY(write_one(f, top));
            depth--;
        } else if (depth < rn_graph_node_count(f->from)) {
            f->stack[depth++] = missing;
        } else {
            return rn_fail(RN_INTERNAL, "%s depends on itself when fused", node_of(f, top)->name);
        }
    }
    return RN_OK;
}

// ---- the whole ----------------------------------------------------------------------------------

static void index_readers(fuser *f) {
    uint32_t values = rn_graph_value_count(f->from), nodes = rn_graph_node_count(f->from);
    uint32_t *starts = f->reader_starts;
    for (uint32_t n = 0; n < nodes; n++)
        for (uint32_t i = 0; i < node_of(f, n)->input_count; i++)
            starts[node_of(f, n)->inputs[i] + 1]++;
    for (uint32_t v = 0; v <= values; v++)
        starts[v + 1] += starts[v];
    // starts[v] goes up to the end of v's readers, and is put back behind them.
    for (uint32_t n = 0; n < nodes; n++)
        for (uint32_t i = 0; i < node_of(f, n)->input_count; i++)
            f->readers[starts[node_of(f, n)->inputs[i]]++] = n;
    for (uint32_t v = values + 1; v > 0; v--)
        starts[v] = starts[v - 1];
    starts[0] = 0;
}

static rn_status prepare(fuser *f) {
    uint32_t nodes = rn_graph_node_count(f->from), reads = 0;
    size_t values = (size_t)rn_graph_value_count(f->from) + 1;
    rn_arena *m = &f->rewrite.memory;
    for (uint32_t n = 0; n < nodes; n++) {
        reads += node_of(f, n)->input_count;
        if (node_of(f, n)->phase != RN_PHASE_FORWARD)
            return rn_fail(RN_INVALID, "only graphs of inference can be fused: %s trains",
                           node_of(f, n)->name);
    }
    RN_TRY(rn_arena_array(m, values + 1, sizeof *f->reader_starts, (void **)&f->reader_starts));
    RN_TRY(rn_arena_array(m, reads, sizeof *f->readers, (void **)&f->readers));
    RN_TRY(rn_arena_array(m, nodes / 2, sizeof *f->groups, (void **)&f->groups));
    RN_TRY(rn_arena_array(m, nodes, sizeof *f->group_of, (void **)&f->group_of));
    RN_TRY(rn_arena_array(m, values, sizeof *f->widened, (void **)&f->widened));
    RN_TRY(rn_arena_array(m, nodes, sizeof *f->written, (void **)&f->written));
    RN_TRY(rn_arena_array(m, nodes, sizeof *f->stack, (void **)&f->stack));
    for (uint32_t n = 0; n < nodes; n++)
        f->group_of[n] = NO_GROUP;
    index_readers(f);
    return RN_OK;
}

static rn_status rewrite(fuser *f) {
    RN_TRY(prepare(f));
    find_groups(f);
    if (f->fusions & RN_FUSE_WIDEN) find_widened(f);
    for (uint32_t n = 0; n < rn_graph_node_count(f->from); n++)
        if (!f->written[n]) RN_TRY(write_with_inputs(f, n));
    return RN_OK;
}

// Whether the node stands behind a convolution or a product that may take it in.
static bool may_end(const rn_graph *graph, const rn_node *node, uint32_t fusions) {
    bool within = fusions & RN_FUSE_CONV && keeps_within(node->op);
    bool bytes = fusions & RN_FUSE_BYTES && node->op == RN_OP_CAST;
    bool bias = fusions & RN_FUSE_BIAS && node->op == RN_OP_ADD;
    for (uint32_t i = 0; (within || bytes || bias) && i < node->input_count; i++) {
        uint32_t producer = rn_graph_value(graph, node->inputs[i])->producer;
        if (producer == RN_NO_NODE) continue;
        const rn_node *before = rn_graph_node(graph, producer);
        if (within && is_conv(before->op)) return true;
        if (bytes && before->op == RN_OP_PRODUCT) return true;
        if (bias && lacks_bias(graph, before) && bias_of(graph, node, node->inputs[i])) return true;
    }
    return false;
}

bool rn_graph_may_fuse(const rn_graph *graph, uint32_t fusions) {
    if (fusions & ~(uint32_t)(RN_FUSE_CONV | RN_FUSE_BYTES | RN_FUSE_BIAS | RN_FUSE_HALVES))
        return true;
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++)
        if (may_end(graph, rn_graph_node(graph, n), fusions)) return true;
    return false;
}

rn_status rn_graph_fuse(const rn_graph *graph, uint32_t fusions, rn_graph **out) {
    fuser f = {.from = graph, .fusions = fusions};
    rn_status s = rn_rewrite_begin(&f.rewrite, graph);
    if (s == RN_OK) s = rewrite(&f);
    return rn_rewrite_end(&f.rewrite, s, out);
}

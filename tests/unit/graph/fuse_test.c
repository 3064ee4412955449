// Fusion as a rewrite: one layer of plain ops becomes five nodes that give the same bits, and every
// pattern with something in between is left as it is.
#include "fused_check.h"
#include "op_run.h"

#include "graph/fuse.h"
#include "graph/validate.h"

enum { DIM = 32, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 8, FFN = 48, ROWS = 3, PAGES = 2, PAGE = 4 };

// What stands in the way of a pattern.
typedef enum obstacle {
    NOTHING,
    NORM_IS_READ,       // by an op that is no product
    NORM_IS_OUTPUT,     //
    Q_HAS_ADAPTER,      // q + up (down x)
    GATE_HAS_ADAPTER,   // gate, up and the adapter's half are three products of one norm
    O_HAS_ADAPTER,      // x + (o + up (down y))
    O_IS_OUTPUT,        //
    GATE_IS_READ,       //
    ROPES_DIFFER,       // q and k
    Q_IS_READ,          // the turned q
    PAGES_ARE_READ,     // the updated state
    OTHER_BLOCK,        // the residual's add
    MADE_WEIGHT,        // o's weight is made in the run
    RESIDUAL_IS_SECOND, // o + x, not x + o
    NORM_IS_SCALED,     // 1 + its weight, which is no obstacle
    NORM_IS_MADE        // of an input
} obstacle;

typedef struct layer {
    rn_graph *g;
    obstacle obstacle;
    rn_value sequence, position, page_table;
    bool bias;
} layer;

static rn_value weight(const layer *l, const char *name, uint64_t out, uint64_t in) {
    return rn_graph_weight(l->g, name, RN_DTYPE_F32, RN_SHAPE(out, in));
}

// A vector of f16, cast, as a file has it.
static rn_value vector(const layer *l, const char *name, uint64_t width) {
    return rn_op_cast(l->g, rn_graph_weight(l->g, name, RN_DTYPE_F16, RN_SHAPE(width)),
                      RN_DTYPE_F32);
}

static rn_value watch(const layer *l, obstacle at, rn_value value, const char *name) {
    if (l->obstacle == at) rn_graph_output(l->g, rn_op_scale(l->g, value, 2, 0), name);
    return value;
}

static rn_value adapt(const layer *l, rn_value x, rn_value y, uint64_t in, uint64_t out) {
    rn_value low = rn_op_matmul(l->g, x, weight(l, "adapter down", 2, in), RN_NO_VALUE);
    return rn_op_add(l->g, y,
                     rn_op_matmul(l->g, low, weight(l, "adapter up", out, 2), RN_NO_VALUE));
}

static rn_value product(const layer *l, rn_value x, const char *name, uint64_t out, uint64_t in) {
    char bias[32];
    snprintf(bias, sizeof bias, "%s bias", name);
    return rn_op_matmul(l->g, x, weight(l, name, out, in),
                        l->bias ? vector(l, bias, out) : RN_NO_VALUE);
}

static rn_value heads_of(const layer *l, rn_value x, uint64_t heads) {
    return rn_op_reshape(l->g, x, RN_SHAPE(RN_ROWS, heads, HEAD_DIM));
}

static rn_value attend(const layer *l, rn_value x) {
    rn_graph *g = l->g;
    rn_rope_attrs rope = {.base = 10000}, other = rope;
    if (l->obstacle == ROPES_DIFFER) other.base = 500;
    rn_value q = product(l, x, "q", HEADS * HEAD_DIM, DIM);
    if (l->obstacle == Q_HAS_ADAPTER) q = adapt(l, x, q, DIM, HEADS * HEAD_DIM);
    q = rn_op_rope(g, heads_of(l, q, HEADS), l->position, rope);
    watch(l, Q_IS_READ, q, "watched");
    rn_value k = heads_of(l, product(l, x, "k", KV_HEADS * HEAD_DIM, DIM), KV_HEADS);
    k = rn_op_rope(g, k, l->position, other);
    rn_value v = heads_of(l, product(l, x, "v", KV_HEADS * HEAD_DIM, DIM), KV_HEADS);
    rn_value kv = rn_graph_state(g, "kv", RN_DTYPE_F32,
                                 RN_SHAPE(PAGES, 2, KV_HEADS, PAGE, HEAD_DIM), RN_PURPOSE_KV);
    kv = rn_op_kv_append(g, kv, k, v, l->sequence, l->position, l->page_table);
    rn_value y = rn_op_paged_attention(g, q, kv, l->sequence, l->position, l->page_table,
                                       (rn_attention_attrs){.causal = true});
    watch(l, PAGES_ARE_READ, kv, "watched");
    return rn_op_reshape(g, y, RN_SHAPE(RN_ROWS, HEADS * HEAD_DIM));
}

static rn_value onto(const layer *l, rn_value x, rn_value y) {
    rn_value w = weight(l, "o", DIM, HEADS * HEAD_DIM);
    if (l->obstacle == MADE_WEIGHT) w = rn_op_scale(l->g, w, 0.5f, 0);
    rn_value o = rn_op_matmul(l->g, y, w, RN_NO_VALUE);
    if (l->obstacle == O_IS_OUTPUT) rn_graph_output(l->g, o, "watched");
    if (l->obstacle == O_HAS_ADAPTER) o = adapt(l, y, o, HEADS * HEAD_DIM, DIM);
    if (l->obstacle == OTHER_BLOCK) rn_graph_block(l->g, "other");
    if (l->obstacle == RESIDUAL_IS_SECOND) return rn_op_add(l->g, o, x);
    return rn_op_add(l->g, x, o);
}

static rn_value feed_forward(const layer *l, rn_value x) {
    rn_value gate = product(l, x, "gate", FFN, DIM);
    watch(l, GATE_IS_READ, gate, "watched");
    if (l->obstacle == GATE_HAS_ADAPTER) gate = adapt(l, x, gate, DIM, FFN);
    rn_value up = product(l, x, "up", FFN, DIM);
    return product(l, rn_op_gated(l->g, gate, up, RN_ACTIVATION_GELU_TANH), "down", DIM, FFN);
}

static rn_graph *build(obstacle what, bool bias) {
    layer l = {.g = make_graph(), .obstacle = what, .bias = bias};
    rn_value x = rn_graph_input(l.g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, DIM));
    l.sequence = rn_graph_input(l.g, "sequence", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    l.position = rn_graph_input(l.g, "position", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    l.page_table = rn_graph_input(l.g, "page_table", RN_DTYPE_I32, RN_SHAPE(1, PAGES));
    rn_graph_input(l.g, "nobody reads it", RN_DTYPE_F32, RN_SHAPE(1));
    rn_graph_block(l.g, "layer 0");
    rn_value norm = vector(&l, "norm", DIM);
    if (what == NORM_IS_SCALED) norm = rn_op_scale(l.g, norm, 1, 1);
    if (what == NORM_IS_MADE)
        norm = rn_op_add(l.g, norm, rn_graph_input(l.g, "more", RN_DTYPE_F32, RN_SHAPE(DIM)));
    rn_value normed = rn_op_rmsnorm(l.g, x, norm, 1e-5f);
    watch(&l, NORM_IS_READ, normed, "watched");
    if (what == NORM_IS_OUTPUT) rn_graph_output(l.g, normed, "watched");
    x = onto(&l, x, attend(&l, normed));
    rn_graph_block(l.g, "layer 0");
    x = rn_op_add(l.g, x,
                  feed_forward(&l, rn_op_rmsnorm(l.g, x, vector(&l, "norm 2", DIM), 1e-6f)));
    rn_graph_block(l.g, "head");
    rn_value head = rn_graph_weight(l.g, "head", RN_DTYPE_F32, RN_SHAPE(DIM, DIM));
    rn_graph_weight(l.g, "spare", RN_DTYPE_F32, RN_SHAPE(4));
    x = rn_op_rmsnorm(l.g, x, vector(&l, "norm 3", DIM), 1e-5f);
    rn_graph_output(l.g, rn_op_matmul(l.g, x, head, RN_NO_VALUE), "logits");
    assert_ok(rn_graph_finish(l.g));
    return l.g;
}

// ---- the same bits ------------------------------------------------------------------------------

// Every given value gets numbers by its name, so that two graphs of one model have the same.
static void fill_given(test_run *run) {
    for (rn_value v = 1; v <= rn_graph_value_count(run->graph); v++) {
        const rn_value_info *info = rn_graph_value(run->graph, v);
        uint64_t count = rn_tensor_elements(&run->values[v]);
        int32_t *ids = test_run_data(run, v);
        float numbers[4096];
        if (info->producer != RN_NO_NODE || info->role == RN_ROLE_STATE) continue;
        assert_true(count <= sizeof numbers / sizeof *numbers);
        if (info->dtype == RN_DTYPE_I32) {
            for (uint64_t i = 0; i < count; i++)
                ids[i] = strcmp(info->name, "sequence") == 0 ? 0 : (int32_t)i;
            continue;
        }
        uint32_t seed = 0;
        for (const char *c = info->name; *c; c++)
            seed = seed * 31 + (uint8_t)*c;
        fill(numbers, count, seed);
        assert_ok(rn_dtype_from_f32(info->dtype, numbers, ids, count));
    }
}

static void compare(const rn_graph *plain, const rn_graph *fused, const rn_kernel *kernels) {
    test_run a, b;
    test_run_open(&a, plain, ROWS);
    test_run_open(&b, fused, ROWS);
    fill_given(&a);
    fill_given(&b);
    assert_ok(run_by(&a, kernels));
    assert_ok(run_by(&b, kernels));
    for (rn_value v = 1; v <= rn_graph_value_count(plain); v++) {
        const rn_value_info *info = rn_graph_value(plain, v);
        if (info->role != RN_ROLE_OUTPUT && info->role != RN_ROLE_STATE) continue;
        rn_value w = rn_graph_find(fused, info->role, info->name);
        assert_true(w != RN_NO_VALUE);
        assert_memory_equal(test_run_data(&a, v), test_run_data(&b, w),
                            rn_tensor_bytes(&a.values[v]));
    }
    test_run_close(&a);
    test_run_close(&b);
}

static uint32_t count_ops(const rn_graph *graph, rn_op op) {
    uint32_t count = 0;
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++)
        count += rn_graph_node(graph, n)->op == op;
    return count;
}

typedef struct counts {
    uint32_t three, gated, project, attend;
} counts;

// Fuses, sees that there are so many fused nodes, and that the meaning is the same.
static void check(obstacle what, bool bias, uint32_t fusions, counts want) {
    rn_graph *plain = build(what, bias), *fused = NULL;
    assert_ok(rn_graph_fuse(plain, fusions, &fused));
    assert_ok(rn_graph_validate(fused));
    counts got = {count_ops(fused, RN_OP_PROJECT_THREE), count_ops(fused, RN_OP_PROJECT_GATED),
                  count_ops(fused, RN_OP_PROJECT), count_ops(fused, RN_OP_ATTEND)};
    if (memcmp(&got, &want, sizeof got) != 0)
        fail_msg("obstacle %d: %u three, %u gated, %u project, %u attend", (int)what, got.three,
                 got.gated, got.project, got.attend);
    compare(plain, fused, rn_reference_kernels);
    compare(plain, fused, rn_cpu_kernels);
    rn_graph_destroy(plain);
    rn_graph_destroy(fused);
}

static void a_layer_becomes_five_nodes(void **state) {
    (void)state;
    const counts all = {1, 1, 3, 1};
    check(NOTHING, false, RN_FUSE_ALL, all);
    check(NOTHING, true, RN_FUSE_ALL, all);
    rn_graph *plain = build(NOTHING, true), *fused = NULL;
    assert_ok(rn_graph_fuse(plain, RN_FUSE_ALL, &fused));
    // Five and the head; four views; casts of three norms and six biases.
    assert_int_equal(rn_graph_node_count(fused), 5 + 1 + 4 + 3 + 6);
    rn_graph_destroy(plain);
    rn_graph_destroy(fused);
}

static void a_device_gets_the_fused_ops_that_it_has(void **state) {
    (void)state;
    check(NOTHING, true, 0, (counts){0, 0, 0, 0});
    check(NOTHING, true, RN_FUSE_PROJECT, (counts){0, 0, 3, 0});
    check(NOTHING, true, RN_FUSE_PROJECT_THREE, (counts){1, 0, 0, 0});
    check(NOTHING, true, RN_FUSE_PROJECT_GATED, (counts){0, 1, 0, 0});
    check(NOTHING, true, RN_FUSE_ATTEND, (counts){0, 0, 0, 1});
}

static void what_somebody_else_reads_is_not_fused(void **state) {
    (void)state;
    check(NORM_IS_READ, true, RN_FUSE_ALL, (counts){0, 1, 3, 1});
    check(NORM_IS_OUTPUT, true, RN_FUSE_ALL, (counts){0, 1, 3, 1});
    check(O_IS_OUTPUT, true, RN_FUSE_ALL, (counts){1, 1, 2, 1});
    check(GATE_IS_READ, true, RN_FUSE_ALL, (counts){1, 0, 3, 1});
    check(Q_IS_READ, true, RN_FUSE_ALL, (counts){1, 1, 3, 0});
    check(PAGES_ARE_READ, true, RN_FUSE_ALL, (counts){1, 1, 3, 0});
}

static void adapters_stay_plain_ops(void **state) {
    (void)state;
    check(Q_HAS_ADAPTER, true, RN_FUSE_ALL, (counts){0, 1, 3, 1});
    check(GATE_HAS_ADAPTER, true, RN_FUSE_ALL, (counts){1, 0, 3, 1});
    check(O_HAS_ADAPTER, true, RN_FUSE_ALL, (counts){1, 1, 2, 1});
}

static void what_means_something_else_is_not_fused(void **state) {
    (void)state;
    check(ROPES_DIFFER, true, RN_FUSE_ALL, (counts){1, 1, 3, 0});
    check(OTHER_BLOCK, true, RN_FUSE_ALL, (counts){1, 1, 2, 1});
    check(MADE_WEIGHT, true, RN_FUSE_ALL, (counts){1, 1, 2, 1});
    check(RESIDUAL_IS_SECOND, true, RN_FUSE_ALL, (counts){1, 1, 2, 1});
    check(NORM_IS_MADE, true, RN_FUSE_ALL, (counts){0, 1, 3, 1});
    check(NORM_IS_SCALED, true, RN_FUSE_ALL, (counts){1, 1, 3, 1});
}

// ---- the rest of the graph ----------------------------------------------------------------------

static void names_blocks_and_unread_values_are_kept(void **state) {
    (void)state;
    rn_graph *plain = build(NOTHING, true), *fused = NULL;
    assert_ok(rn_graph_fuse(plain, RN_FUSE_ALL, &fused));
    assert_int_equal(rn_graph_block_count(plain), rn_graph_block_count(fused));
    for (rn_value v = 1; v <= rn_graph_value_count(plain); v++) {
        const rn_value_info *was = rn_graph_value(plain, v), *is;
        if (was->role == RN_ROLE_INTERMEDIATE) continue;
        rn_value w = rn_graph_find(fused, was->role, was->name);
        assert_true(w != RN_NO_VALUE);
        is = rn_graph_value(fused, w);
        assert_true(is->dtype == was->dtype && rn_shape_equal(is->shape, was->shape));
        assert_string_equal(rn_graph_block_name(fused, is->block),
                            rn_graph_block_name(plain, was->block));
    }
    rn_graph_destroy(plain);
    rn_graph_destroy(fused);
}

static void a_graph_that_trains_is_refused(void **state) {
    (void)state;
    rn_graph *g = make_graph(), *fused = NULL;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(2, 4)), gradient;
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(4, 4));
    rn_value loss = rn_op_mse(g, rn_op_matmul(g, x, w, RN_NO_VALUE), x);
    assert_ok(rn_graph_gradient(g, loss, &w, 1, &gradient));
    assert_ok(rn_graph_finish(g));
    assert_fails(RN_INVALID, rn_graph_fuse(g, RN_FUSE_ALL, &fused));
    assert_null(fused);
    rn_graph_destroy(g);
}

// The norm, whose only reader casts it, and a vector that is also read as it is.
static void vectors_that_are_only_cast_are_declared_as_f32(void **state) {
    (void)state;
    rn_graph *g = build(NOTHING, true), *fused = NULL, *narrow = NULL;
    rn_value both = rn_graph_weight(g, "both", RN_DTYPE_BF16, RN_SHAPE(4));
    rn_graph_output(g, rn_op_scale(g, rn_op_cast(g, both, RN_DTYPE_F32), 2, 0), "as f32");
    rn_graph_output(g, rn_op_cast(g, both, RN_DTYPE_F16), "as f16");
    assert_ok(rn_graph_finish(g));
    assert_ok(rn_graph_fuse(g, RN_FUSE_ALL | RN_FUSE_WIDEN, &fused));
    assert_ok(rn_graph_fuse(g, RN_FUSE_ALL, &narrow));
    assert_ok(rn_graph_validate(fused));
    for (rn_value v = 1; v <= rn_graph_value_count(g); v++) {
        const rn_value_info *info = rn_graph_value(g, v);
        if (info->role != RN_ROLE_WEIGHT) continue;
        rn_value now = rn_graph_find(fused, RN_ROLE_WEIGHT, info->name);
        bool kept = info->dtype == RN_DTYPE_F32 || v == both;
        assert_int_equal(rn_graph_value(fused, now)->dtype, kept ? info->dtype : RN_DTYPE_F32);
        now = rn_graph_find(narrow, RN_ROLE_WEIGHT, info->name);
        assert_int_equal(rn_graph_value(narrow, now)->dtype, info->dtype);
    }
    assert_int_equal(count_ops(fused, RN_OP_CAST), 2);
    rn_graph_destroy(g);
    rn_graph_destroy(fused);
    rn_graph_destroy(narrow);
}

// A product of bytes takes the cast, the scale and the bias behind it, but for a scale that is not
// one a column, and sums that are read twice.
static void what_scales_a_product_of_bytes_goes_into_it(void **state) {
    (void)state;
    rn_graph *g = make_graph(), *fused = NULL;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_I8, RN_SHAPE(2, 3, 20));
    rn_value w = rn_graph_input(g, "w", RN_DTYPE_I8, RN_SHAPE(20, 17));
    rn_value one = rn_graph_input(g, "one", RN_DTYPE_F32, RN_SHAPE(1));
    rn_value each = rn_graph_input(g, "each", RN_DTYPE_F32, RN_SHAPE(17));
    rn_value rows = rn_graph_input(g, "rows", RN_DTYPE_F32, RN_SHAPE(3, 1));
    rn_value twice = rn_op_product_integer(g, x, w, RN_NO_VALUE, RN_NO_VALUE), y[4];
    for (int i = 0; i < 4; i++) {
        rn_value sums = rn_op_product_integer(g, x, w, RN_NO_VALUE, RN_NO_VALUE);
        y[i] = rn_op_cast(g, i == 3 ? twice : sums, RN_DTYPE_F32);
    }
    rn_value sum = rn_op_add(g, each, rn_op_mul(g, y[0], rn_op_scale(g, one, 2, 0)));
    sum = rn_op_add(g, rn_op_mul(g, each, y[1]), sum);
    sum = rn_op_add(g, rn_op_mul(g, y[2], rows), sum);
    sum = rn_op_add(g, rn_op_mul(g, y[3], one), sum);
    rn_graph_output(g, rn_op_add(g, sum, rn_op_cast(g, twice, RN_DTYPE_F32)), "y");
    assert_ok(rn_graph_finish(g));
    assert_true(rn_graph_may_fuse(g, RN_FUSE_BYTES));
    assert_false(rn_graph_may_fuse(g, RN_FUSE_CONV));
    assert_ok(rn_graph_fuse(g, RN_FUSE_BYTES, &fused));
    assert_ok(rn_graph_validate(fused));
    assert_int_equal(count_ops(fused, RN_OP_PRODUCT_SCALED), 2);
    compare(g, fused, rn_reference_kernels);
    compare(g, fused, rn_cpu_kernels);
    rn_graph_destroy(g);
    rn_graph_destroy(fused);
}

// A relu and a clamp go into the convolution before them, but not into one that is read twice; the
// bits are those of the parts, by the reference loops and by the CPU's kernels.
static void what_bounds_a_convolution_goes_into_it(void **state) {
    (void)state;
    rn_graph *g = make_graph(), *fused = NULL;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(2, 4, 5, 3));
    rn_value w = rn_graph_input(g, "w", RN_DTYPE_F32, RN_SHAPE(17, 3, 3, 3));
    rn_value each = rn_graph_input(g, "each", RN_DTYPE_F32, RN_SHAPE(17, 1, 3, 3));
    rn_value bias = rn_graph_input(g, "bias", RN_DTYPE_F32, RN_SHAPE(17));
    rn_conv_attrs padded = {.pad_before = {1, 1}, .pad_after = {1, 1}}, depthwise = padded;
    depthwise.groups = 17;
    x = rn_op_relu(g, rn_op_conv(g, x, w, bias, padded));
    x = rn_op_clamp(g, rn_op_conv(g, x, each, RN_NO_VALUE, depthwise), -0.5f, 0.5f);
    x = rn_op_conv(g, x, each, bias, depthwise);
    rn_graph_output(g, rn_op_add(g, rn_op_relu(g, x), x), "y");
    assert_ok(rn_graph_finish(g));
    assert_true(rn_graph_may_fuse(g, RN_FUSE_CONV));
    assert_ok(rn_graph_fuse(g, RN_FUSE_CONV, &fused));
    assert_ok(rn_graph_validate(fused));
    assert_int_equal(count_ops(fused, RN_OP_CONV_CLAMP), 2);
    assert_int_equal(count_ops(fused, RN_OP_CONV), 1);
    compare(g, fused, rn_reference_kernels);
    compare(g, fused, rn_cpu_kernels);
    rn_graph_destroy(g);
    rn_graph_destroy(fused);
    g = build(NOTHING, true);
    assert_false(rn_graph_may_fuse(g, RN_FUSE_CONV));
    assert_true(rn_graph_may_fuse(g, RN_FUSE_ALL | RN_FUSE_CONV));
    rn_graph_destroy(g);
}

// Two products take their vectors in; one is read twice, one's vector comes with the run, and one's
// is as long as its rows are many.
static void a_vector_behind_a_product_is_its_bias(void **state) {
    (void)state;
    static const float numbers[4] = {0.5f, -1, 2, 0.1f};
    rn_graph *g = make_graph(), *fused = NULL;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(2, 4, 5));
    rn_value w = rn_graph_input(g, "w", RN_DTYPE_F32, RN_SHAPE(4, 5));
    rn_value square = rn_graph_input(g, "square", RN_DTYPE_F32, RN_SHAPE(4, 4));
    rn_value late = rn_graph_input(g, "late", RN_DTYPE_F32, RN_SHAPE(4));
    rn_value bias = rn_graph_constant(g, "bias", RN_DTYPE_F32, RN_SHAPE(4), numbers);
    rn_value column = rn_graph_constant(g, "column", RN_DTYPE_F32, RN_SHAPE(4, 1), numbers);
    x = rn_op_add(g, rn_op_matmul(g, x, w, RN_NO_VALUE), bias);
    x = rn_op_add(g, bias, rn_op_matmul(g, x, square, RN_NO_VALUE));
    x = rn_op_matmul(g, x, square, RN_NO_VALUE);
    x = rn_op_mul(g, rn_op_add(g, x, bias), x);
    x = rn_op_add(g, rn_op_matmul(g, x, square, RN_NO_VALUE), late);
    x = rn_op_add(g, rn_op_matmul(g, x, square, RN_NO_VALUE), column);
    rn_graph_output(g, x, "y");
    assert_ok(rn_graph_finish(g));
    assert_true(rn_graph_may_fuse(g, RN_FUSE_CONV | RN_FUSE_BIAS));
    assert_false(rn_graph_may_fuse(g, RN_FUSE_CONV));
    assert_ok(rn_graph_fuse(g, RN_FUSE_CONV | RN_FUSE_BIAS, &fused));
    assert_ok(rn_graph_validate(fused));
    assert_int_equal(count_ops(fused, RN_OP_MATMUL), 5);
    assert_int_equal(count_ops(fused, RN_OP_ADD), 3);
    compare(g, fused, rn_reference_kernels);
    compare(g, fused, rn_cpu_kernels);
    rn_graph_destroy(g);
    rn_graph_destroy(fused);
    g = build(NOTHING, true);
    assert_false(rn_graph_may_fuse(g, RN_FUSE_CONV | RN_FUSE_BIAS));
    rn_graph_destroy(g);
}

static rn_graph *to_fuse;
static rn_status fuse_again(void) {
    rn_graph *fused = NULL;
    rn_status s = rn_graph_fuse(to_fuse, RN_FUSE_ALL | RN_FUSE_WIDEN, &fused);
    rn_graph_destroy(fused);
    return s;
}

static void fusing_survives_refused_memory(void **state) {
    (void)state;
    to_fuse = build(NOTHING, true);
    assert_true(survive_refusals(fuse_again) > 5);
    rn_graph_destroy(to_fuse);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_becomes_five_nodes),
        cmocka_unit_test(a_device_gets_the_fused_ops_that_it_has),
        cmocka_unit_test(what_somebody_else_reads_is_not_fused),
        cmocka_unit_test(adapters_stay_plain_ops),
        cmocka_unit_test(what_means_something_else_is_not_fused),
        cmocka_unit_test(names_blocks_and_unread_values_are_kept),
        cmocka_unit_test(vectors_that_are_only_cast_are_declared_as_f32),
        cmocka_unit_test(a_graph_that_trains_is_refused),
        cmocka_unit_test(what_bounds_a_convolution_goes_into_it),
        cmocka_unit_test(what_scales_a_product_of_bytes_goes_into_it),
        cmocka_unit_test(a_vector_behind_a_product_is_its_bias),
        cmocka_unit_test(fusing_survives_refused_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

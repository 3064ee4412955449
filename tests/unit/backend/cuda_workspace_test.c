// cuda_workspace_test.c — what CUDA's kernels say they need, without a GPU: a plan binds the most
// rows, a run may bring any number below, and the workspace must do for all of them.
#include "support.h"

#include "backend/cuda/rows.h"
#include "graph/fuse.h"
#include "model/model.h"
#include "plan/plan.h"

enum { MOST_ROWS = 700, TENSORS = 16 };

static rn_graph *build(rn_dtype weights, rn_dtype kv, uint32_t context, bool fused) {
    rn_llama_config c = {.layers = 1,
                         .dim = 1024,
                         .heads = 16,
                         .kv_heads = 4,
                         .ffn = 1536,
                         .vocab = 640,
                         .weight_dtype = weights,
                         .context = context,
                         .page_tokens = 64,
                         .sequences = 4,
                         .logit_rows = 1,
                         .kv_dtype = kv,
                         .rows = MOST_ROWS};
    rn_recipe recipe;
    rn_graph *graph = NULL;
    assert_ok(rn_llama_recipe(&c, &recipe));
    assert_ok(rn_recipe_build(&recipe, fused ? RN_FUSE_ALL : 0, NULL, &graph));
    rn_recipe_destroy(&recipe);
    return graph;
}

static uint64_t ask(const rn_graph *graph, uint32_t node, uint64_t rows) {
    rn_tensor tensors[TENSORS];
    rn_call call;
    rn_graph_bind(graph, node, rows, tensors, &call);
    for (uint32_t i = 0; i < call.input_count; i++)
        if (rn_tensor_given(&tensors[i])) tensors[i].layout = rn_cuda_weight_layout(&call, i);
    const rn_kernel *kernel = &rn_cuda_kernels[call.op];
    return kernel->workspace ? kernel->workspace(&call) : 0;
}

static void check_node(const rn_graph *graph, uint32_t node) {
    uint64_t most = 0;
    for (uint64_t rows = 1; rows <= MOST_ROWS; rows++) {
        uint64_t now = ask(graph, node, rows);
        if (now < most)
            fail_msg("%s: %llu bytes with %llu rows, more with fewer",
                     rn_graph_node(graph, node)->name, (unsigned long long)now,
                     (unsigned long long)rows);
        most = now;
    }
}

static void more_rows_never_need_less(void **state) {
    static const rn_dtype weights[] = {RN_DTYPE_F16, RN_DTYPE_BF16, RN_DTYPE_Q8_0, RN_DTYPE_Q4_0};
    (void)state;
    for (int i = 0; i < 16; i++) {
        rn_graph *graph =
            build(weights[i % 4], i & 4 ? RN_DTYPE_Q8_0 : RN_DTYPE_F16, i & 8 ? 9000 : 256, i & 1);
        for (uint32_t n = 0; n < rn_graph_node_count(graph); n++)
            check_node(graph, n);
        rn_graph_destroy(graph);
    }
}

// Forward and backward: sums over rows go through the workspace.
static rn_graph *build_training(void) {
    rn_graph *g = NULL;
    assert_ok(rn_graph_create(&g));
    rn_value ids = rn_graph_input(g, "ids", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    rn_value weights[] = {rn_graph_weight(g, "table", RN_DTYPE_F32, RN_SHAPE(70, 1024)),
                          rn_graph_weight(g, "scale", RN_DTYPE_F32, RN_SHAPE(1024)),
                          rn_graph_weight(g, "level", RN_DTYPE_F32, RN_SHAPE(1024)),
                          rn_graph_weight(g, "gain", RN_DTYPE_F32, RN_SHAPE(1024))};
    rn_value gradients[4];
    rn_value x = rn_op_embedding(g, weights[0], ids);
    x = rn_op_layernorm(g, x, weights[1], weights[2], 1e-5f);
    x = rn_op_rmsnorm(g, x, weights[3], 1e-5f);
    rn_cross_entropy_attrs attrs = {.ignore = -100, .normalizer = RN_NO_SCALAR};
    rn_value loss = rn_op_cross_entropy(g, x, ids, attrs);
    assert_ok(rn_graph_gradient(g, loss, weights, 4, gradients));
    assert_ok(rn_graph_finish(g));
    return g;
}

static void more_rows_of_a_training_step_never_need_less(void **state) {
    (void)state;
    rn_graph *graph = build_training();
    uint64_t most = 0;
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        check_node(graph, n);
        assert_non_null(rn_cuda_kernels[rn_graph_node(graph, n)->op].run);
        if (ask(graph, n, MOST_ROWS) > most) most = ask(graph, n, MOST_ROWS);
    }
    // Sums of parts of the rows, for two vectors: not of every row.
    assert_in_range(most, 1, (uint64_t)MOST_ROWS * 2 * 1024 * sizeof(float) - 1);
    rn_graph_destroy(graph);
}

// A node's weight is asked for in the form that its kernels read.
static void every_product_of_a_model_has_tiles(void **state) {
    (void)state;
    rn_graph *graph = build(RN_DTYPE_Q4_0, RN_DTYPE_F16, 256, true);
    uint32_t tiled = 0;
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        rn_tensor tensors[TENSORS];
        rn_call call;
        rn_graph_bind(graph, n, 1, tensors, &call);
        for (uint32_t i = 0; i < call.input_count; i++)
            tiled += rn_cuda_weight_layout(&call, i) == RN_LAYOUT_TILES;
    }
    assert_int_equal(tiled, 8); // q k v, o, gate up, down, head
    rn_graph_destroy(graph);
}

// Kernels for tiles deal out rows of tiles: there must be some. The plain ones take whatever comes.
static void weight_without_rows_stays_plain(void **state) {
    (void)state;
    const rn_matmul_attrs attrs = {0};
    rn_tensor in[3] = {{NULL, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(40, 64)},
                       {NULL, RN_DTYPE_F16, RN_LAYOUT_PLAIN, RN_SHAPE(0, 64)}};
    rn_tensor out = {NULL, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(40, 0)};
    rn_call call = {.op = RN_OP_MATMUL,
                    .attrs = &attrs,
                    .inputs = in,
                    .outputs = &out,
                    .input_count = 3,
                    .output_count = 1};
    assert_int_equal(RN_LAYOUT_PLAIN, rn_cuda_weight_layout(&call, 1));
    assert_int_equal(0, rn_cuda_matmul_workspace(&call));
    in[1].shape.dims[0] = 1;
    assert_int_equal(RN_LAYOUT_TILES, rn_cuda_weight_layout(&call, 1));
    in[1].shape.dims[0] = (uint64_t)1 << 33;
    assert_int_equal(RN_LAYOUT_PLAIN, rn_cuda_weight_layout(&call, 1));
}

static uint64_t ask_sum(uint64_t height, uint64_t columns) {
    rn_graph *g = NULL;
    assert_ok(rn_graph_create(&g));
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(height, columns));
    rn_graph_output(g, rn_op_sum(g, x, 1, false), "y");
    assert_ok(rn_graph_finish(g));
    uint64_t bytes = ask(g, 0, 0);
    rn_graph_destroy(g);
    return bytes;
}

// A sum over the first axis is one of parts, of which each column has the same number: else its
// bits would tell how many columns there are.
static void a_sum_is_cut_alike_alone_and_among_others(void **state) {
    static const uint64_t heights[] = {1, 256, 257, 5000, 100000};
    (void)state;
    for (size_t i = 0; i < sizeof heights / sizeof *heights; i++) {
        uint64_t each = ask_sum(heights[i], 8) / 8;
        assert_int_equal(each > 0, heights[i] > 256);
        assert_int_equal(ask_sum(heights[i], 1), (each + 63) / 64 * 64);
        assert_int_equal(ask_sum(heights[i], 64), each * 64);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weight_without_rows_stays_plain),
        cmocka_unit_test(more_rows_never_need_less),
        cmocka_unit_test(more_rows_of_a_training_step_never_need_less),
        cmocka_unit_test(every_product_of_a_model_has_tiles),
        cmocka_unit_test(a_sum_is_cut_alike_alone_and_among_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

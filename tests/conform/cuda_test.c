// labels: gpu
// cuda_test.c — every op that has a CUDA kernel, on the first GPU, against the reference loops.
//
// Tests skip where there is no GPU, or the library was built without kernels. Results are measured
// as a whole, |result - reference| / |reference|: products round their inputs to 16 bits, so that
// single elements that cancel may be far off. A quantised weight is compared with its product by
// activations as they are.
#include "support.h"

#include "backend/cuda/rows.h"
#include "conform_trial.h"
#include "graph/project.h"
#include "offload_run.h"

#include <ration/cuda.h>

#include <math.h>

static rn_device *gpu; // NULL: none
static test_offload offload;
static rn_error_info reason; // why there is none
static rn_kernel kernels[RN_OP_COUNT];

// ---- the device ---------------------------------------------------------------------------------

static rn_status run_there(const rn_call *call) {
    return test_offload_run(&offload, &rn_cuda_kernels[call->op], call);
}

static int open_gpu(void **state) {
    (void)state;
    rn_status s = rn_cuda_device_create(0, 1, &gpu);
    for (int op = 0; op < RN_OP_COUNT; op++)
        if (rn_cuda_kernels[op].run)
            kernels[op] = (rn_kernel){run_there, rn_cuda_kernels[op].workspace};
    if (s == RN_OK) return test_offload_open(gpu, 64 << 20, &offload) != RN_OK;
    gpu = NULL;
    reason = *rn_last_error();
    // Anything else than "there is none" is a fault.
    return s != RN_UNSUPPORTED && s != RN_NOT_FOUND;
}

static int close_gpu(void **state) {
    (void)state;
    if (!gpu) return 0;
    test_offload_close(&offload);
    rn_device_destroy(gpu);
    return 0;
}

static void want_gpu(void) {
    if (gpu) return;
    skip_because("no GPU: %s", reason.message);
}

static void each_row(bool (*check)(const conform_row *row, conform_why *why)) {
    uint32_t wrong = 0;
    conform_why why;
    for (const conform_table *const *t = conform_tables; *t; t++)
        for (size_t i = 0; i < (*t)->count; i++)
            if (!check(&(*t)->rows[i], &why)) {
                print_error("%s\n", why.text);
                wrong++;
            }
    assert_int_equal(wrong, 0);
}

static conform_target make_target(bool tiles) {
    return (conform_target){
        .kernels = kernels, .weight_layout = tiles ? rn_cuda_weight_layout : NULL, .threads = 1};
}

// ---- how near -----------------------------------------------------------------------------------

static bool is_product(rn_op op) {
    return op == RN_OP_MATMUL || op == RN_OP_PROJECT || op == RN_OP_PROJECT_THREE ||
           op == RN_OP_PROJECT_GATED;
}

static bool is_attention(rn_op op) {
    return op == RN_OP_ATTENTION || op == RN_OP_PAGED_ATTENTION || op == RN_OP_ATTEND;
}

// The largest error: by 16-bit rounding where a product reads tiles, and in attention. What the
// facts call exact must be so here, too: moves, sums of two, products of two.
static double limit_of(const conform_trial *t) {
    rn_op op = t->node->op;
    double limit = conform_facts[op].tolerance > 0 ? 1e-6 : 0;
    if (op == RN_OP_CONV_TRANSPOSE || op == RN_OP_CONV_GRAD_WEIGHT) return 1e-6; // in f32 here
    if (is_attention(op)) return 2e-3;
    if (op == RN_OP_VARLEN_ATTENTION || op == RN_OP_ATTENTION_GRAD) return 1e-5; // f32 throughout
    // f32 throughout, too; of one channel all but the last bits cancel.
    if (op == RN_OP_RMSNORM_GRAD || op == RN_OP_LAYERNORM_GRAD || op == RN_OP_GROUP_NORM_GRAD ||
        op == RN_OP_BATCHNORM_GRAD)
        return 1e-5;
    for (uint32_t i = 0; is_product(op) && i < t->node->input_count; i++)
        if (t->tensors[i].layout == RN_LAYOUT_TILES)
            limit = fmax(limit, t->tensors[i].dtype == RN_DTYPE_BF16 ? 1e-2 : 2e-3);
    return limit;
}

static double distance(const float *is, const float *must, uint64_t n) {
    double apart = 0, size = 0;
    for (uint64_t i = 0; i < n; i++) {
        bool same = is[i] == must[i] || (isnan(is[i]) && isnan(must[i]));
        double d = same ? 0 : (double)is[i] - (double)must[i];
        apart += d * d;
        size += isfinite(must[i]) ? (double)must[i] * (double)must[i] : 0;
    }
    return apart == 0 ? 0 : sqrt(apart / size);
}

static bool is_near(const rn_tensor *must, const void *is, double limit, conform_why *why) {
    uint64_t n = rn_tensor_elements(must), bytes = rn_tensor_bytes(must);
    if (memcmp(must->data, is, bytes) == 0) return true;
    const rn_dtype_info *type = rn_dtype_get(must->dtype);
    snprintf(why->text, sizeof why->text, "the bytes differ");
    if (limit == 0 || (!type->is_float && type->block_elements == 1)) return false;
    float *wide = malloc(2 * n * sizeof *wide);
    assert_ok(rn_dtype_to_f32(must->dtype, is, wide, n));
    assert_ok(rn_dtype_to_f32(must->dtype, must->data, wide + n, n));
    double error = distance(wide, wide + n, n);
    free(wide);
    snprintf(why->text, sizeof why->text, "the error is %.3g, not below %.3g", error, limit);
    return error <= limit;
}

static bool outputs_near(const conform_trial *t, const rn_tensor *must, conform_why *why) {
    for (uint32_t i = 0; i < t->node->output_count; i++) {
        uint32_t at = t->node->input_count + i;
        bool optional = rn_op_get(t->node->op)->optional_outputs >> i & 1;
        if (!must[at].data ||
            (optional && test_guard_fresh(must[at].data, rn_tensor_bytes(&must[at]))))
            continue; // the reference has no such result
        if (!is_near(&must[at], t->tensors[at].data, limit_of(t), why)) return false;
    }
    return true;
}

// ---- every node of every row --------------------------------------------------------------------

static conform_trial repeat(const conform_trial *first) {
    return conform_trial_make(first->run, first->number, first->before, first->target);
}

static bool may_overwrite(const conform_trial *t, uint32_t output) {
    const rn_tensor *to = &t->tensors[t->node->input_count + output];
    const rn_tensor *from = &t->tensors[t->aliases[output].input];
    return t->aliases[output].kind == RN_ALIAS_KIND_MAY && rn_tensor_given(from) &&
           from->layout == RN_LAYOUT_PLAIN && rn_tensor_bytes(from) == rn_tensor_bytes(to);
}

// The same bits again where a result lies in an input's place.
static bool try_in_place(const conform_trial *first, conform_why *why) {
    for (uint32_t i = 0; i < first->node->output_count; i++) {
        if (!may_overwrite(first, i)) continue;
        conform_trial again = repeat(first);
        again.in_place = i;
        bool same = conform_try(&again, first->tensors, conform_same, why);
        conform_trial_close(&again);
        if (!same) return false;
    }
    return true;
}

static bool check_node(test_run *run, uint32_t number, conform_target *target, conform_why *why) {
    test_guard before[TEST_MAX_TENSORS];
    rn_tensor must[TEST_MAX_TENSORS], nothing[TEST_MAX_TENSORS] = {{0}};
    rn_call call;
    bool good = true;
    conform_snapshot(run, number, before);
    test_run_node(run, number);
    test_run_bind(run, number, must, &call);
    // Convolutions of whole numbers are refused by name.
    bool whole = (call.op == RN_OP_CONV || call.op == RN_OP_CONV_TRANSPOSE) &&
                 call.inputs[0].dtype == RN_DTYPE_I32;
    if (kernels[call.op].run && !whole && !conform_is_view(run, number)) {
        conform_trial first = conform_trial_make(run, number, before, target);
        good = conform_try(&first, nothing, conform_same, why) && outputs_near(&first, must, why) &&
               try_in_place(&first, why);
        conform_trial_close(&first);
    }
    conform_snapshot_free(before);
    return good;
}

// The graph's own copies of the attributes: activations are not rounded to 8 bits here.
static void keep_activations(const rn_graph *graph) {
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        if (node->op == RN_OP_MATMUL)
            ((rn_matmul_attrs *)node->attrs)->unquantised_activations = true;
        else if (is_product(node->op))
            ((rn_project_attrs *)node->attrs)->unquantised_activations = true;
    }
}

static bool check_nodes(const conform_row *row, bool tiles, conform_why *why) {
    conform_target target = make_target(tiles);
    conform_why what = {{0}};
    conform_case c;
    test_run run;
    bool good = true;
    conform_open(&c, row, true);
    keep_activations(c.graph);
    conform_run_open(&c, row->rows, &run);
    for (uint32_t n = 0; good && n < rn_graph_node_count(c.graph); n++) {
        good = check_node(&run, n, &target, &what);
        if (!good)
            snprintf(why->text, sizeof why->text, "%s, %s: %s: %.300s", rn_op_name(row->op),
                     row->what, rn_graph_node(c.graph, n)->name, what.text);
    }
    test_run_close(&run);
    conform_close(&c);
    return good;
}

static bool check_tiles(const conform_row *row, conform_why *why) {
    return check_nodes(row, true, why);
}

static bool check_plain(const conform_row *row, conform_why *why) {
    return row->op != RN_OP_MATMUL || check_nodes(row, false, why);
}

static void every_kernel_means_what_the_reference_means(void **state) {
    (void)state;
    want_gpu();
    each_row(check_tiles);
}

static void plain_weights_are_multiplied_too(void **state) {
    (void)state;
    want_gpu();
    each_row(check_plain);
}

static bool check_alone(const conform_row *row, conform_why *why) {
    conform_target target = make_target(true);
    return conform_alone(row, &target, why);
}

static void a_row_alone_has_the_bits_it_has_among_others(void **state) {
    (void)state;
    want_gpu();
    each_row(check_alone);
}

// ---- what is not in the table -------------------------------------------------------------------

static void ids_that_are_no_row_give_nan(void **state) {
    (void)state;
    want_gpu();
    float table[3][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}}, y[5][4];
    int32_t ids[5] = {2, -1, 3, INT32_MIN, 0};
    rn_tensor tensors[] = {{table, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(3, 4)},
                           {ids, RN_DTYPE_I32, RN_LAYOUT_PLAIN, RN_SHAPE(5)},
                           {y, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(5, 4)}};
    rn_call call = {.op = RN_OP_EMBEDDING,
                    .inputs = tensors,
                    .outputs = tensors + 2,
                    .input_count = 2,
                    .output_count = 1,
                    .threads = 1};
    assert_ok(run_there(&call));
    assert_memory_equal(y[0], table[2], sizeof y[0]);
    assert_memory_equal(y[4], table[0], sizeof y[4]);
    for (int i = 1; i < 4; i++)
        for (int j = 0; j < 4; j++)
            assert_true(isnan(y[i][j]));
}

// Weights of 16 bits in tiles are any halves: of 0.06 to 0.12 here, of either sign. x, likewise.
static void *make_halves(size_t count, uint32_t *seed) {
    uint16_t *halves = malloc(count * sizeof *halves);
    assert_non_null(halves);
    for (size_t i = 0; i < count; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        halves[i] = (uint16_t)(0x2c00u | (*seed >> 16 & 0x83ffu));
    }
    return halves;
}

// x (rows, cols) by `outputs` rows of weights; of two, a gate and its up.
static float *multiply(uint32_t count, uint64_t rows, uint64_t cols, uint64_t outputs, float *x,
                       void *const *weights /* (count) */) {
    rn_project_attrs attrs = {.activation = RN_ACTIVATION_SILU, .eps = 1e-5f};
    float *y = malloc(rows * outputs * sizeof *y);
    assert_non_null(y);
    rn_tensor tensors[7] = {{x, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(rows, cols)}};
    for (uint32_t i = 0; i < count; i++)
        tensors[2 + 2 * i] =
            (rn_tensor){weights[i], RN_DTYPE_F16, RN_LAYOUT_TILES, RN_SHAPE(outputs, cols)};
    uint32_t inputs = count == 2 ? 6 : 5;
    tensors[inputs] = (rn_tensor){y, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(rows, outputs)};
    rn_call call = {.op = count == 2 ? RN_OP_PROJECT_GATED : RN_OP_PROJECT,
                    .attrs = &attrs,
                    .inputs = tensors,
                    .outputs = tensors + inputs,
                    .input_count = inputs,
                    .output_count = 1,
                    .threads = 1};
    call.workspace_bytes = rn_cuda_project_workspace(&call);
    call.workspace = malloc(call.workspace_bytes);
    assert_non_null(call.workspace);
    assert_ok(run_there(&call));
    free(call.workspace);
    return y;
}

static void compare_outputs(uint32_t count, uint64_t rows, uint64_t cols, uint64_t outputs) {
    enum { FEW = 320 };
    uint32_t seed = (uint32_t)(count + rows);
    void *weights[2] = {make_halves(outputs * ((cols + 127) / 128 * 128), &seed),
                        make_halves(outputs * ((cols + 127) / 128 * 128), &seed)};
    float *x = malloc(rows * cols * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < rows * cols; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) * 0x1p-24f - 0.5f;
    }
    float *all = multiply(count, rows, cols, outputs, x, weights);
    float *few = multiply(count, rows, cols, FEW, x, weights);
    for (uint64_t row = 0; row < rows; row++)
        assert_memory_equal(all + row * outputs, few + row * FEW, FEW * sizeof *few);
    free(all), free(few), free(x), free(weights[0]), free(weights[1]);
}

// An output's bits do not tell how many others there are: products of many have other kernels.
static void products_of_many_outputs_have_the_bits_of_few(void **state) {
    (void)state;
    want_gpu();
    compare_outputs(1, 100, 700, 17072);
    compare_outputs(1, 200, 1100, 16896);
    compare_outputs(2, 128, 640, 8528);
    compare_outputs(2, 256, 512, 8448);
    compare_outputs(2, 300, 1024, 4224);
}

// Without a GPU: which weights are asked for in tiles.
static void weights_of_products_are_wanted_in_tiles(void **state) {
    (void)state;
    static const struct {
        rn_dtype dtype;
        rn_matmul_attrs attrs;
        rn_layout layout;
    } cases[] = {
        {RN_DTYPE_F16, {0}, RN_LAYOUT_TILES},
        {RN_DTYPE_BF16, {0}, RN_LAYOUT_TILES},
        {RN_DTYPE_Q4_0, {0}, RN_LAYOUT_TILES},
        {RN_DTYPE_F8_E4M3, {0}, RN_LAYOUT_TILES},
        {RN_DTYPE_F8_B128, {0}, RN_LAYOUT_TILES},
        {RN_DTYPE_U4_B32, {0}, RN_LAYOUT_TILES},
        {RN_DTYPE_F32, {0}, RN_LAYOUT_PLAIN},
        {RN_DTYPE_F16, {.transpose_w = true}, RN_LAYOUT_PLAIN},
        {RN_DTYPE_F16, {.transpose_x = true}, RN_LAYOUT_PLAIN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_tensor inputs[3] = {{NULL, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(128, 128)},
                               {NULL, cases[i].dtype, RN_LAYOUT_PLAIN, RN_SHAPE(128, 128)}};
        rn_call call = {
            .op = RN_OP_MATMUL, .attrs = &cases[i].attrs, .inputs = inputs, .input_count = 3};
        assert_int_equal(rn_cuda_weight_layout(&call, 1), cases[i].layout);
        assert_int_equal(rn_cuda_weight_layout(&call, 0), RN_LAYOUT_PLAIN);
        call.op = RN_OP_EMBEDDING;
        assert_int_equal(rn_cuda_weight_layout(&call, 1), RN_LAYOUT_PLAIN);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_many_outputs_have_the_bits_of_few),
        cmocka_unit_test(weights_of_products_are_wanted_in_tiles),
        cmocka_unit_test(every_kernel_means_what_the_reference_means),
        cmocka_unit_test(plain_weights_are_multiplied_too),
        cmocka_unit_test(a_row_alone_has_the_bits_it_has_among_others),
        cmocka_unit_test(ids_that_are_no_row_give_nan),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}

// Small ONNX models give what ONNX Runtime gives, at every budget from the roomiest to the
// smallest, with what is planned being what is used.
#include "support.h"

#include <ration/device.h>
#include <ration/onnx.h>

#include <math.h>

typedef struct fixture {
    rn_onnx *onnx;
    rn_plan *plan;
    rn_session *session;
    rn_checkpoint *golden;
} fixture;

static float *load(const fixture *f, const char *name, uint64_t *out_bytes) {
    const rn_tensor_info *t = rn_checkpoint_find(f->golden, name);
    assert_non_null(t);
    float *data = malloc(t->bytes);
    assert_ok(rn_checkpoint_load(f->golden, t, RN_DTYPE_F32, data, t->bytes));
    *out_bytes = t->bytes;
    return data;
}

static void open_model(fixture *f, const char *path, const rn_onnx_options *options) {
    *f = (fixture){0};
    assert_ok(rn_checkpoint_open("tests/golden/onnx/golden.safetensors", &f->golden));
    assert_ok(rn_onnx_open(path, options, &f->onnx));
}

static void start(fixture *f, uint64_t rows, uint64_t budget) {
    rn_recipe recipe;
    rn_weight_source weights = rn_onnx_weights(f->onnx);
    rn_plan_options options = {.budget_bytes = budget};
    assert_ok(rn_onnx_make_recipe(f->onnx, rows, &recipe));
    assert_ok(rn_plan_make(&recipe, rn_cpu_caps(), &options, &f->plan));
    rn_recipe_destroy(&recipe);
    rn_session_options session = {.audit = true, .guard = true};
    assert_ok(rn_session_create(f->plan, &weights, &session, &f->session));
}

static void stop(fixture *f) {
    rn_session_facts facts = rn_session_get_facts(f->session);
    assert_int_equal(facts.live_peak_bytes, rn_plan_get_summary(f->plan)->live_peak_bytes);
    assert_int_equal(facts.live_mismatch_step, UINT64_MAX);
    rn_session_destroy(f->session);
    rn_plan_destroy(f->plan);
    f->session = NULL;
    f->plan = NULL;
}

static void close_model(fixture *f) {
    rn_onnx_close(f->onnx);
    rn_checkpoint_close(f->golden);
}

static void assert_close(const float *got, const float *want, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes / sizeof(float); i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-5f + 1e-4f * fabsf(want[i])))
            fail_msg("element %llu is %g instead of %g", (unsigned long long)i, (double)got[i],
                     (double)want[i]);
}

// The output of a run at a budget; freed by the caller.
static float *run(fixture *f, const char *input, const char *output, uint64_t rows, uint64_t budget,
                  uint64_t output_bytes) {
    uint64_t bytes = 0;
    float *x = load(f, input, &bytes), *y = malloc(output_bytes);
    start(f, rows, budget);
    assert_ok(rn_session_set(f->session, "x", x, bytes));
    assert_ok(rn_session_run(f->session, rows));
    assert_ok(rn_session_get(f->session, output, y, output_bytes));
    free(x);
    return y;
}

static void an_image_network_is_the_same_at_every_budget(void **state) {
    (void)state;
    fixture f;
    uint64_t bytes = 0;
    open_model(&f, "tests/golden/onnx/conv.onnx", NULL);
    float *want = load(&f, "conv.y", &bytes), *first = run(&f, "conv.x", "y", 3, 0, bytes);
    assert_close(first, want, bytes);
    rn_plan_summary roomy = *rn_plan_get_summary(f.plan);
    stop(&f);
    assert_int_equal(roomy.streamed_bytes, 0);
    for (int i = 0; i <= 2; i++) {
        uint64_t room = roomy.planned_bytes - roomy.smallest_bytes;
        uint64_t budget = roomy.smallest_bytes + room * (uint64_t)i / 3;
        float *y = run(&f, "conv.x", "y", 3, budget, bytes);
        assert_memory_equal(y, first, bytes);
        assert_true(rn_plan_get_summary(f.plan)->planned_bytes <= budget);
        stop(&f);
        free(y);
    }
    free(first);
    free(want);
    close_model(&f);
}

// Convolutions, their norms and what lies between them stay in one layout.
static void images_are_permuted_at_the_borders_only(void **state) {
    (void)state;
    fixture f;
    uint32_t permutes = 0;
    open_model(&f, "tests/golden/onnx/conv.onnx", NULL);
    const rn_graph *g = rn_onnx_graph(f.onnx);
    for (uint32_t n = 0; n < rn_graph_node_count(g); n++)
        permutes += rn_graph_node(g, n)->op == RN_OP_PERMUTE;
    assert_int_equal(permutes, 1);
    assert_true(rn_graph_has_rows(g));
    assert_int_equal(rn_onnx_get_info(f.onnx)->opset, 17);
    close_model(&f);
}

static void external_data_and_computed_shapes(void **state) {
    (void)state;
    fixture f;
    uint64_t bytes = 0;
    rn_onnx_dim tokens = {.name = "tokens", .size = 4};
    rn_onnx_options options = {.dims = &tokens, .dim_count = 1};
    open_model(&f, "tests/golden/onnx/external.onnx", &options);
    assert_int_equal(rn_checkpoint_file_count(rn_onnx_checkpoint(f.onnx)), 3);
    float *want = load(&f, "external.y", &bytes);
    float *y = run(&f, "external.x", "y", 0, 0, bytes);
    assert_close(y, want, bytes);
    stop(&f);
    free(y);
    free(want);
    close_model(&f);
}

static rn_dtype weight_dtype(const fixture *f, const char *name) {
    const rn_graph *g = rn_onnx_graph(f->onnx);
    rn_value v = rn_graph_find(g, RN_ROLE_WEIGHT, name);
    return v ? rn_graph_value(g, v)->dtype : RN_DTYPE_NONE;
}

// What was expected with all the memory that it wants, and the same bits with the least.
static void same_at_the_least(fixture *f, uint64_t rows) {
    uint64_t bytes = 0;
    float *want = load(f, "y", &bytes), *first = run(f, "x", "y", rows, 0, bytes);
    assert_close(first, want, bytes);
    rn_plan_summary roomy = *rn_plan_get_summary(f->plan);
    stop(f);
    float *least = run(f, "x", "y", rows, roomy.smallest_bytes, bytes);
    assert_memory_equal(least, first, bytes);
    stop(f);
    free(least);
    free(first);
    free(want);
    close_model(f);
}

// Four bits in the file, four bits in memory: codes, scales and zeros are one weight, also where it
// is streamed. Blocks of 16 are widened by nodes.
static void weights_of_four_bits_stay_so(void **state) {
    (void)state;
    fixture f = {0};
    assert_ok(rn_checkpoint_open("tests/golden/onnx/nbits.safetensors", &f.golden));
    assert_ok(rn_onnx_open("tests/golden/onnx/nbits.onnx", NULL, &f.onnx));
    assert_int_equal(weight_dtype(&f, "b0"), RN_DTYPE_U4_B32);
    assert_int_equal(weight_dtype(&f, "b1"), RN_DTYPE_U4_B32);
    assert_int_equal(weight_dtype(&f, "b2"), RN_DTYPE_U8);
    assert_int_equal(weight_dtype(&f, "s0"), RN_DTYPE_NONE);
    same_at_the_least(&f, 5);
}

// Weights of 8 bits behind DequantizeLinear are f32 weights that are made when they are read, also
// where they are streamed; a scale along an axis in the middle is left to a node. The Scan is
// written once a step.
static void quantised_weights_are_made_once(void **state) {
    (void)state;
    fixture f = {0};
    uint32_t left = 0;
    assert_ok(rn_checkpoint_open("tests/golden/onnx/qdq.safetensors", &f.golden));
    assert_ok(rn_onnx_open("tests/golden/onnx/qdq.onnx", NULL, &f.onnx));
    const rn_graph *g = rn_onnx_graph(f.onnx);
    for (uint32_t n = 0; n < rn_graph_node_count(g); n++)
        left += rn_graph_node(g, n)->op == RN_OP_DEQUANTIZE_LINEAR;
    assert_int_equal(left, 1);
    assert_int_equal(weight_dtype(&f, "w0"), RN_DTYPE_F32);
    assert_int_equal(weight_dtype(&f, "w1"), RN_DTYPE_F32);
    assert_int_equal(weight_dtype(&f, "w2"), RN_DTYPE_F32);
    assert_int_equal(weight_dtype(&f, "q3"), RN_DTYPE_I8);
    same_at_the_least(&f, 0);
}

static void sizes_that_are_not_known_are_asked_for(void **state) {
    (void)state;
    rn_onnx *onnx = NULL;
    assert_int_not_equal(rn_onnx_open("tests/golden/onnx/external.onnx", NULL, &onnx), RN_OK);
    assert_null(onnx);
    assert_non_null(strstr(rn_last_error()->message, "Shape"));
    rn_onnx_input wrong = {.name = "x", .dtype = RN_DTYPE_F32, .shape = RN_SHAPE(4, 31)};
    rn_onnx_options options = {.inputs = &wrong, .input_count = 1};
    assert_fails(RN_INVALID, rn_onnx_open("tests/golden/onnx/external.onnx", &options, &onnx));
    wrong.shape = RN_SHAPE(4, 32); // its shape is enough
    assert_ok(rn_onnx_open("tests/golden/onnx/external.onnx", &options, &onnx));
    assert_false(rn_graph_has_rows(rn_onnx_graph(onnx)));
    rn_onnx_close(onnx);
}

static rn_status open_once(void) {
    rn_onnx *onnx = NULL;
    rn_onnx_dim tokens = {.name = "tokens", .size = 4};
    rn_onnx_options options = {.dims = &tokens, .dim_count = 1};
    RN_TRY(rn_onnx_open("tests/golden/onnx/external.onnx", &options, &onnx));
    rn_onnx_close(onnx);
    return RN_OK;
}

static void memory_that_is_refused_comes_back(void **state) {
    (void)state;
    assert_true(survive_refusals(open_once) > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_image_network_is_the_same_at_every_budget),
        cmocka_unit_test(images_are_permuted_at_the_borders_only),
        cmocka_unit_test(external_data_and_computed_shapes),
        cmocka_unit_test(weights_of_four_bits_stay_so),
        cmocka_unit_test(quantised_weights_are_made_once),
        cmocka_unit_test(sizes_that_are_not_known_are_asked_for),
        cmocka_unit_test(memory_that_is_refused_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

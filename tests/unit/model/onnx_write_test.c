// onnx_write_test.c — graphs written as ONNX files and read again: the same numbers.
#include "support.h"

#include <ration/device.h>
#include <ration/onnx.h>

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 3, SIZE = 6, CHANNELS = 4, CLASSES = 5 };

static uint16_t kernel[CHANNELS * 2 * 9]; // f16
static float bias[CHANNELS], head[CLASSES * CHANNELS];

static const void *find(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    (void)self;
    (void)dtype;
    const void *data = !strcmp(name, "kernel") ? (const void *)kernel
                       : !strcmp(name, "bias") ? (const void *)bias
                                               : (const void *)head;
    assert_int_equal(bytes, !strcmp(name, "kernel") ? sizeof kernel
                            : !strcmp(name, "bias") ? sizeof bias
                                                    : sizeof head);
    return data;
}

// A convolution of half weights, a norm, a pool, a product: images of `rows`.
static rn_graph *make_graph(void) {
    rn_graph *g = NULL;
    assert_ok(rn_graph_create(&g));
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, SIZE, SIZE, 2));
    rn_value w = rn_graph_weight(g, "kernel", RN_DTYPE_F16, RN_SHAPE(CHANNELS, 2, 3, 3));
    rn_value b = rn_graph_weight(g, "bias", RN_DTYPE_F32, RN_SHAPE(CHANNELS));
    rn_value y =
        rn_op_conv2d(g, x, rn_op_cast(g, w, RN_DTYPE_F32), b, (rn_conv2d_attrs){1, 1, 1, 1, 1, 1});
    y = rn_op_gelu(g, rn_op_rmsnorm(g, y, RN_NO_VALUE, 1e-5f));
    y = rn_op_mean(g, rn_op_max_pool(g, y, (rn_pool2d_attrs){2, 2, 2, 2, 0, 0, 0, 0}), 6, false);
    rn_value h = rn_graph_weight(g, "head", RN_DTYPE_F32, RN_SHAPE(CLASSES, CHANNELS));
    rn_graph_output(g, rn_op_softmax(g, rn_op_matmul(g, y, h, RN_NO_VALUE)), "y");
    assert_ok(rn_graph_finish(g));
    return g;
}

static void fill(void) {
    float wide[CHANNELS * 2 * 9];
    for (int i = 0; i < CHANNELS * 2 * 9; i++)
        wide[i] = (float)(i * 37 % 23 - 11) / 16;
    assert_ok(rn_dtype_from_f32(RN_DTYPE_F16, wide, kernel, CHANNELS * 2 * 9));
    for (int i = 0; i < CHANNELS; i++)
        bias[i] = (float)i / 8;
    for (int i = 0; i < CLASSES * CHANNELS; i++)
        head[i] = (float)(i * 29 % 19 - 9) / 8;
}

static void run(const rn_recipe *recipe, const rn_weight_source *weights, float *out) {
    float x[ROWS * SIZE * SIZE * 2];
    rn_plan *plan = NULL;
    rn_session *session = NULL;
    for (int i = 0; i < ROWS * SIZE * SIZE * 2; i++)
        x[i] = (float)(i * 53 % 31 - 15) / 8;
    assert_ok(rn_plan_make(recipe, rn_cpu_caps(), &(rn_plan_options){0}, &plan));
    assert_ok(rn_session_create(plan, weights, NULL, &session));
    assert_ok(rn_session_set(session, "x", x, sizeof x));
    assert_ok(rn_session_run(session, ROWS));
    assert_ok(rn_session_get(session, "y", out, ROWS * CLASSES * sizeof *out));
    rn_session_destroy(session);
    rn_plan_destroy(plan);
}

static void what_is_written_is_read_as_the_same_model(void **state) {
    float expected[ROWS * CLASSES], y[ROWS * CLASSES];
    rn_recipe recipe, read;
    rn_onnx *onnx = NULL;
    uint64_t bytes = 0;
    rn_weight_source weights = {.find = find};
    struct stat model, data;
    (void)state;
    fill();
    rn_graph *graph = make_graph();
    assert_ok(rn_recipe_from_graph(graph, ROWS, &recipe));
    recipe.weights_in_memory = true;
    run(&recipe, &weights, expected);
    for (uint32_t opset = 18; opset <= 22; opset++) {
        rn_onnx_write_options options = {.opset = opset};
        assert_ok(rn_onnx_write(&recipe, &weights, test_path("m.onnx"), &options, &bytes));
        assert_int_equal(0, stat(test_path("m.onnx"), &model));
        assert_int_equal(0, stat(test_path("m.onnx.data"), &data));
        assert_int_equal(bytes, model.st_size + data.st_size);
        assert_ok(rn_onnx_open(test_path("m.onnx"), NULL, &onnx));
        assert_int_equal(rn_onnx_get_info(onnx)->opset, opset);
        assert_ok(rn_onnx_make_recipe(onnx, ROWS, &read));
        rn_weight_source files = rn_onnx_weights(onnx);
        run(&read, &files, y);
        for (int i = 0; i < ROWS * CLASSES; i++)
            assert_true(fabsf(y[i] - expected[i]) <= 1e-6f);
        rn_recipe_destroy(&read);
        rn_onnx_close(onnx);
    }
    rn_recipe_destroy(&recipe);
    rn_graph_destroy(graph);
}

static void what_cannot_be_written_leaves_nothing(void **state) {
    rn_recipe recipe;
    rn_weight_source weights = {.find = find};
    bool cancel = true;
    (void)state;
    fill();
    rn_graph *graph = make_graph();
    assert_ok(rn_recipe_from_graph(graph, ROWS, &recipe));
    const char *path = test_path("none.onnx");
    assert_fails(RN_INVALID, rn_onnx_write(&recipe, &weights, path,
                                           &(rn_onnx_write_options){.opset = 17}, NULL));
    assert_fails(RN_CANCELLED, rn_onnx_write(&recipe, &weights, path,
                                             &(rn_onnx_write_options){.cancel = &cancel}, NULL));
    weights.find = NULL;
    assert_fails(RN_NOT_FOUND, rn_onnx_write(&recipe, &weights, path, NULL, NULL));
    assert_int_not_equal(0, access(path, F_OK));
    assert_int_not_equal(0, access(test_path("none.onnx.data"), F_OK));
    rn_recipe_destroy(&recipe);
    rn_graph_destroy(graph);
}

static void a_graph_without_an_onnx_form_is_refused_by_name(void **state) {
    rn_graph *g = NULL;
    rn_recipe recipe;
    rn_weight_source weights = {.find = find};
    (void)state;
    assert_ok(rn_graph_create(&g));
    rn_graph_block(g, "layer 0");
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(4, 4));
    rn_value y = rn_op_dropout(
        g, x, (rn_dropout_attrs){.seed = rn_graph_scalar(g, "seed"), .probability = 0.5f});
    rn_graph_output(g, y, "y");
    assert_ok(rn_graph_finish(g));
    assert_ok(rn_recipe_from_graph(g, 0, &recipe));
    assert_fails(RN_UNSUPPORTED, rn_onnx_write(&recipe, &weights, test_path("d.onnx"), NULL, NULL));
    assert_non_null(strstr(rn_last_error()->message, "layer 0/dropout"));
    rn_recipe_destroy(&recipe);
    rn_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_as_the_same_model),
        cmocka_unit_test(what_cannot_be_written_leaves_nothing),
        cmocka_unit_test(a_graph_without_an_onnx_form_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

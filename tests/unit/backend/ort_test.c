// ort_test.c — ONNX Runtime as a device: rows, states, budgets, refusals. Skipped where it is
// absent.
#include "support.h"

#include "backend/ort/ort.h"

#include <stdlib.h>

static rn_device *open_ort(void) {
    rn_device *device = NULL;
    rn_target target = {.backend = &rn_ort_backend};
    assert_ok(rn_ort_backend.parse((rn_str){0}, &target));
    if (rn_ort_open(&target, 1, &device) != RN_OK) skip_because("no ONNX Runtime");
    return device;
}

// y = relu(relu(x wᵀ) wᵀ): w is 2 times the identity.
static rn_graph *make_graph(rn_value *x, rn_value *w, rn_value *y) {
    rn_graph *graph = NULL;
    assert_ok(rn_graph_create(&graph));
    *x = rn_graph_input(graph, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 4));
    *w = rn_graph_weight(graph, "w", RN_DTYPE_F16, RN_SHAPE(4, 4));
    rn_value h = rn_op_relu(graph, rn_op_matmul(graph, *x, *w, RN_NO_VALUE));
    *y = rn_op_relu(graph, rn_op_matmul(graph, h, *w, RN_NO_VALUE));
    rn_graph_output(graph, *y, "y");
    assert_ok(rn_graph_finish(graph));
    return graph;
}

static rn_status run_rows(rn_executable *e, rn_value x, rn_value y, uint64_t rows, float *in,
                          float *out) {
    rn_argument input = {x, in, rows * 16}, output = {y, out, rows * 16};
    rn_execution run = {
        .rows = rows, .inputs = &input, .outputs = &output, .input_count = 1, .output_count = 1};
    return e->run(e, &run);
}

static rn_executable *compile(rn_device *device, const rn_graph *graph, uint64_t rows, rn_value w) {
    rn_executable *e = NULL;
    rn_compile_request request = {
        .graph = graph, .buckets = &rows, .bucket_count = 1, .budget_bytes = RN_NO_LIMIT};
    uint16_t two[16] = {0};
    assert_ok(device->compile(device, &request, &e));
    for (int i = 0; i < 4; i++)
        two[5 * i] = 0x4000;
    assert_ok(e->put(e, w, two, sizeof two));
    return e;
}

static void one_session_serves_any_number_of_rows(void **state) {
    rn_value x, w, y;
    float in[32], out[32];
    (void)state;
    rn_device *device = open_ort();
    rn_graph *graph = make_graph(&x, &w, &y);
    rn_executable *e = compile(device, graph, 8, w);
    for (int i = 0; i < 32; i++)
        in[i] = (float)(i % 2 ? i : -i);
    for (uint64_t rows = 1; rows <= 8; rows++) {
        memset(out, 0xff, sizeof out);
        assert_ok(run_rows(e, x, y, rows, in, out));
        for (uint64_t i = 0; i < rows * 4; i++)
            assert_true(out[i] == (i % 2 ? 4 * in[i] : 0));
    }
    rn_argument less = {x, in, 12}, output = {y, out, 16};
    rn_execution run = {
        .rows = 1, .inputs = &less, .outputs = &output, .input_count = 1, .output_count = 1};
    assert_int_equal(e->run(e, &run), RN_INVALID);
    e->destroy(e);
    rn_graph_destroy(graph);
    device->destroy(device);
    assert_int_equal(rn_ort_held_bytes(), 0);
}

static void what_was_not_planned_is_refused(void **state) {
    enum { ROWS = 4096 };
    rn_value x, w, y;
    (void)state;
    rn_device *device = open_ort(); // or the test is skipped here
    float *in = calloc(ROWS * 4, sizeof *in), *out = calloc(ROWS * 4, sizeof *out);
    rn_graph *graph = make_graph(&x, &w, &y);
    rn_executable *e = compile(device, graph, ROWS, w);
    uint64_t planned = e->purpose_bytes[RN_PURPOSE_WORKSPACE];
    assert_ok(run_rows(e, x, y, ROWS, in, out));
    uint64_t needed = rn_ort_take_peak();
    assert_true(needed <= planned);
    rn_ort_disallow(planned - 1024);
    assert_int_equal(run_rows(e, x, y, ROWS, in, out), RN_OVER_BUDGET);
    assert_true(rn_ort_take_peak() <= 1024);
    rn_ort_allow(planned - 1024);
    assert_ok(run_rows(e, x, y, ROWS, in, out));
    e->destroy(e);
    rn_graph_destroy(graph);
    device->destroy(device);
    free(in);
    free(out);
}

static void a_library_that_is_none_is_refused(void **state) {
    (void)state;
    const rn_ort_api *api;
    if (rn_ort_version()) skip_because("another test loaded it");
    assert_int_equal(rn_ort_load("/no/such/libonnxruntime.so", &api), RN_NOT_FOUND);
    assert_non_null(strstr(rn_last_error()->hint, "RATION_ORT"));
    assert_int_equal(rn_ort_load("libm.so.6", &api), RN_UNSUPPORTED);
}

static void targets_have_options(void **state) {
    rn_target target = {.backend = &rn_ort_backend};
    rn_ort_target own;
    (void)state;
    assert_ok(rn_ort_backend.parse(RN_STR("?opt=O3&threads=2"), &target));
    memcpy(&own, target.own, sizeof own);
    assert_int_equal(own.level, 3);
    assert_int_equal(own.threads, 2);
    assert_string_equal(target.name, "ort?opt=O3&threads=2");
    assert_ptr_equal(rn_backend_of("ort?opt=O3"), &rn_ort_backend);
    assert_int_equal(rn_ort_backend.parse(RN_STR("?opt=4"), &target), RN_INVALID);
    assert_int_equal(rn_ort_backend.parse(RN_STR("?turbo=1"), &target), RN_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_library_that_is_none_is_refused),
        cmocka_unit_test(targets_have_options),
        cmocka_unit_test(one_session_serves_any_number_of_rows),
        cmocka_unit_test(what_was_not_planned_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

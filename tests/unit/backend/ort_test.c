// ort_test.c — ONNX Runtime as a device: rows, states, budgets, refusals. Skipped where it is
// absent.
#include "support.h"

#include "backend/ort/ort.h"
#include "exchange/onnx_export.h"
#include "memory/account.h"

#include <pthread.h>
#include <stdatomic.h>
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

// ---- cancelling ---------------------------------------------------------------------------------

// y = x wᵀ wᵀ ...: a run that takes a while.
static rn_graph *make_chain(uint32_t length, rn_value *x, rn_value *w, rn_value *y) {
    enum { WIDTH = 128 };
    rn_graph *graph = NULL;
    assert_ok(rn_graph_create(&graph));
    *x = rn_graph_input(graph, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, WIDTH));
    *w = rn_graph_weight(graph, "w", RN_DTYPE_F32, RN_SHAPE(WIDTH, WIDTH));
    *y = *x;
    for (uint32_t i = 0; i < length; i++)
        *y = rn_op_matmul(graph, *y, *w, RN_NO_VALUE);
    rn_graph_output(graph, *y, "y");
    assert_ok(rn_graph_finish(graph));
    return graph;
}

static _Atomic bool cancelled;

// As soon as the run holds something, it is under way.
static void *cancel_soon(void *unused) {
    while (rn_ort_held_bytes() == 0)
        ;
    atomic_store(&cancelled, true);
    return unused;
}

static void a_run_ends_where_it_is_when_it_is_cancelled(void **state) {
    enum { ROWS = 512, BYTES = ROWS * 128 * 4 };
    rn_value x, w, y;
    (void)state;
    rn_device *device = open_ort();
    float *in = calloc(1, BYTES), *out = calloc(1, BYTES);
    rn_graph *graph = make_chain(400, &x, &w, &y);
    uint64_t rows = ROWS;
    rn_executable *e = NULL;
    rn_compile_request request = {
        .graph = graph, .buckets = &rows, .bucket_count = 1, .budget_bytes = RN_NO_LIMIT};
    assert_ok(device->compile(device, &request, &e));
    assert_ok(e->put(e, w, in, 128 * 128 * 4));
    rn_argument input = {x, in, BYTES}, output = {y, out, BYTES};
    rn_execution run = {.rows = rows,
                        .inputs = &input,
                        .outputs = &output,
                        .input_count = 1,
                        .output_count = 1,
                        .cancel = &cancelled};
    assert_ok(e->run(e, &run));
    rn_status s = RN_OK;
    for (int attempt = 0; attempt < 20 && s == RN_OK; attempt++) { // or the run was faster
        pthread_t other;
        atomic_store(&cancelled, false);
        assert_int_equal(pthread_create(&other, NULL, cancel_soon, NULL), 0);
        s = e->run(e, &run);
        while (s == RN_OK && !atomic_load(&cancelled)) // it still looks for a run
            (void)e->run(e, &run);
        pthread_join(other, NULL);
    }
    assert_int_equal(s, RN_CANCELLED);
    assert_string_equal(rn_error_classify(rn_last_error())->name, "cancelled");
    assert_int_equal(e->run(e, &run), RN_CANCELLED); // before it began
    atomic_store(&cancelled, false);
    assert_ok(e->run(e, &run)); // the next is not disturbed
    e->destroy(e);
    rn_graph_destroy(graph);
    device->destroy(device);
    assert_int_equal(rn_ort_held_bytes(), 0);
    free(in);
    free(out);
}

// ---- errors -------------------------------------------------------------------------------------

static void replace(rn_buffer *model, const char *from, const char *to) {
    size_t bytes = strlen(from);
    uint32_t count = 0;
    for (size_t i = 0; i + bytes <= model->bytes; i++)
        if (memcmp(model->data + i, from, bytes) == 0) {
            memcpy(model->data + i, to, bytes);
            count++;
        }
    assert_true(count > 0);
}

static rn_status make_session(const rn_ort_api *api, const void *data, size_t bytes) {
    void *options = NULL, *session = NULL;
    assert_ok(rn_ort_check(api->create_options(&options), "setting options"));
    assert_ok(rn_ort_check(api->set_log_level(options, 4), "setting options"));
    rn_status s = rn_ort_check(api->create_session(rn_ort_env(), data, bytes, options, &session),
                               "making a session");
    if (session) api->release_session(session);
    api->release_options(options);
    return s;
}

// Each is an error that ONNX Runtime really returns.
static void errors_have_a_class_a_meaning_and_a_hint(void **state) {
    static const struct {
        const char *from, *to; // in the model's bytes; NULL: the model is cut
        rn_status status;
        const char *name;
    } cases[] = {
        {NULL, NULL, RN_CORRUPT, "ort_invalid_protobuf"},
        {"Relu", "Rexu", RN_UNSUPPORTED, "ort_unknown_op"},
        {"\x08\x0a\x12\x06", "\x08\x7f\x12\x06", RN_UNSUPPORTED, "ort_model_version"},
        {"\x42\x02\x10\x15", "\x42\x02\x10\x7e", RN_DEVICE, "ort_model_version"},
    };
    rn_value x, w, y;
    rn_onnx_export_options how = {0};
    (void)state;
    rn_device *device = open_ort();
    const rn_ort_api *api = ((rn_ort_device *)device)->api;
    rn_graph *graph = make_graph(&x, &w, &y);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_buffer model;
        rn_buffer_init(&model, RN_HOST_OTHER, SIZE_MAX);
        assert_ok(rn_onnx_export(graph, &how, &model));
        if (cases[i].from) replace(&model, cases[i].from, cases[i].to);
        rn_status s = make_session(api, model.data, cases[i].from ? model.bytes : model.bytes / 2);
        const rn_error_class *class = rn_error_classify(rn_last_error());
        if (s != cases[i].status || strcmp(class->name, cases[i].name) != 0)
            fail_msg("%s: %d, %s: %s", cases[i].name, (int)s, class->name,
                     rn_last_error()->message);
        assert_true(class->meaning[0] && class->hint[0]);
        rn_buffer_free(&model);
    }
    // A tensor whose memory is too small.
    void *value = NULL;
    int64_t dims[] = {4};
    assert_int_equal(
        rn_ort_check(api->create_tensor(rn_ort_cpu_memory(), &value, 8, dims, 1, 1, &value), "x"),
        RN_DEVICE);
    assert_string_equal(rn_error_classify(rn_last_error())->name, "ort_shape");
    rn_graph_destroy(graph);
    device->destroy(device);
}

// A table of two rows, asked for its 9th.
static void a_node_that_fails_is_told_by_its_class(void **state) {
    rn_graph *graph = NULL;
    uint64_t rows = 1;
    int32_t id = 8;
    float table[4] = {0}, out[2];
    rn_executable *e = NULL;
    (void)state;
    rn_device *device = open_ort();
    assert_ok(rn_graph_create(&graph));
    rn_value ids = rn_graph_input(graph, "ids", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    rn_value w = rn_graph_weight(graph, "w", RN_DTYPE_F32, RN_SHAPE(2, 2));
    rn_value y = rn_op_embedding(graph, w, ids);
    rn_graph_output(graph, y, "y");
    assert_ok(rn_graph_finish(graph));
    rn_compile_request request = {
        .graph = graph, .buckets = &rows, .bucket_count = 1, .budget_bytes = RN_NO_LIMIT};
    assert_ok(device->compile(device, &request, &e));
    assert_ok(e->put(e, w, table, sizeof table));
    rn_argument input = {ids, &id, 4}, output = {y, out, 8};
    rn_execution run = {
        .rows = 1, .inputs = &input, .outputs = &output, .input_count = 1, .output_count = 1};
    assert_int_equal(e->run(e, &run), RN_DEVICE);
    assert_string_equal(rn_error_classify(rn_last_error())->name, "ort_index");
    id = 1;
    assert_ok(e->run(e, &run));
    e->destroy(e);
    rn_graph_destroy(graph);
    device->destroy(device);
}

static void a_library_that_is_none_is_refused(void **state) {
    (void)state;
    const rn_ort_api *api;
    if (rn_ort_version()) skip_because("another test loaded it");
    assert_int_equal(rn_ort_load("/no/such/libonnxruntime.so", &api), RN_NOT_FOUND);
    assert_non_null(strstr(rn_last_error()->hint, "RATION_ORT"));
    assert_int_equal(rn_ort_load("libm.so.6", &api), RN_UNSUPPORTED);
}

// A weight of which products keep a copy can be put anew; a frugal executable keeps none.
static void weights_are_packed_unless_it_is_frugal(void **state) {
    enum { WIDTH = 128, BYTES = WIDTH * WIDTH * 4 };
    rn_value x, w, y;
    uint64_t rows = 2, held[2];
    (void)state;
    rn_device *device = open_ort();
    if (!rn_ort_shares_initializers()) skip_because("an old ONNX Runtime");
    rn_graph *graph = make_chain(1, &x, &w, &y);
    float *weight = calloc(1, BYTES), in[2 * WIDTH], out[2 * WIDTH];
    for (int i = 0; i < 2 * WIDTH; i++)
        in[i] = (float)i;
    for (int frugal = 0; frugal < 2; frugal++) {
        rn_executable *e = NULL;
        rn_compile_request request = {.graph = graph,
                                      .buckets = &rows,
                                      .bucket_count = 1,
                                      .budget_bytes = RN_NO_LIMIT,
                                      .frugal = frugal};
        rn_argument input = {x, in, sizeof in}, output = {y, out, sizeof out};
        rn_execution run = {
            .rows = 2, .inputs = &input, .outputs = &output, .input_count = 1, .output_count = 1};
        assert_ok(device->compile(device, &request, &e));
        for (int factor = 3; factor < 5; factor++) {
            for (int i = 0; i < WIDTH; i++)
                weight[i * WIDTH + i] = (float)factor;
            assert_ok(e->put(e, w, weight, BYTES));
            assert_ok(e->run(e, &run));
            for (int i = 0; i < 2 * WIDTH; i++)
                assert_true(out[i] == (float)factor * in[i]);
        }
        held[frugal] = rn_ort_held_bytes();
        e->destroy(e);
    }
    assert_true(held[0] >= BYTES && held[1] == 0);
    assert_int_equal(rn_ort_held_bytes(), 0);
    free(weight);
    rn_graph_destroy(graph);
    device->destroy(device);
}

// What packing takes beyond the plan is refused, and the executable does without it.
static void packing_that_was_not_planned_is_left_out(void **state) {
    rn_value x, w, y;
    uint64_t rows = 1;
    float in[128] = {1}, out[128];
    (void)state;
    rn_device *device = open_ort();
    if (!rn_ort_shares_initializers()) skip_because("an old ONNX Runtime");
    rn_graph *graph = make_chain(1, &x, &w, &y);
    float *weight = calloc(1, 128 * 128 * 4);
    weight[0] = 5;
    rn_executable *e = NULL;
    rn_compile_request request = {
        .graph = graph, .buckets = &rows, .bucket_count = 1, .budget_bytes = RN_NO_LIMIT};
    assert_ok(device->compile(device, &request, &e));
    uint64_t taken = e->purpose_bytes[RN_PURPOSE_WORKSPACE] + 128 * 128 * 4;
    rn_ort_disallow(taken);
    assert_ok(e->put(e, w, weight, 128 * 128 * 4));
    assert_int_equal(rn_ort_held_bytes(), 0);
    rn_ort_allow(taken);
    rn_argument input = {x, in, sizeof in}, output = {y, out, sizeof out};
    rn_execution run = {
        .rows = 1, .inputs = &input, .outputs = &output, .input_count = 1, .output_count = 1};
    assert_ok(e->run(e, &run));
    assert_true(out[0] == 5);
    e->destroy(e);
    free(weight);
    rn_graph_destroy(graph);
    device->destroy(device);
}

static void targets_have_options(void **state) {
    rn_target target = {.backend = &rn_ort_backend};
    rn_ort_target own;
    (void)state;
    assert_ok(rn_ort_backend.parse(RN_STR("?pack=0"), &target));
    memcpy(&own, target.own, sizeof own);
    assert_false(own.packs);
    assert_int_equal(rn_ort_backend.parse(RN_STR("?pack=2"), &target), RN_INVALID);
    assert_ok(rn_ort_backend.parse(RN_STR("?opt=O3&threads=2"), &target));
    memcpy(&own, target.own, sizeof own);
    assert_true(own.packs);
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
        cmocka_unit_test(weights_are_packed_unless_it_is_frugal),
        cmocka_unit_test(packing_that_was_not_planned_is_left_out),
        cmocka_unit_test(a_run_ends_where_it_is_when_it_is_cancelled),
        cmocka_unit_test(errors_have_a_class_a_meaning_and_a_hint),
        cmocka_unit_test(a_node_that_fails_is_told_by_its_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

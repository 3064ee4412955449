// linear_loss_test.c — the loss of a linear layer without its logits, beside matmul and
// cross_entropy: the same numbers, in one chunk to the bit, in several within rounding.
#include "support.h"

#include "evaluate.h"
#include "graph/linear_loss.h"

#include <math.h>

typedef struct made {
    rn_graph *graph;
    rn_value x, w, targets, loss, dx, dw;
    test_run run;
} made;

static void make(made *m, rn_shape x, rn_shape w, bool linear, bool differentiates) {
    rn_cross_entropy_attrs attrs = {.ignore = -100};
    assert_ok(rn_graph_create(&m->graph));
    rn_graph *g = m->graph;
    attrs.normalizer = rn_graph_scalar(g, "loss_scale");
    m->x = rn_graph_input(g, "x", RN_DTYPE_F32, x);
    m->w = rn_graph_weight(g, "w", RN_DTYPE_F32, w);
    m->targets = rn_graph_input(g, "targets", RN_DTYPE_I32, RN_SHAPE(x.dims[0]));
    m->loss = linear ? rn_op_linear_cross_entropy(g, m->x, m->w, m->targets, attrs)
                     : rn_op_cross_entropy(g, rn_op_matmul(g, m->x, m->w, RN_NO_VALUE), m->targets,
                                           attrs);
    rn_value wanted[] = {m->x, m->w}, gradients[2];
    if (differentiates) {
        assert_ok(rn_graph_gradient(g, m->loss, wanted, 2, gradients));
        m->dx = gradients[0];
        m->dw = gradients[1];
    }
    rn_graph_output(g, m->loss, "loss");
    assert_ok(rn_graph_finish(g));
    test_run_open(&m->run, g, 0);
    m->run.scalars[0].f64 = 0.01;
}

static float number(uint64_t i) {
    return (float)((int)(i * 2654435761u % 2039) - 1019) / 1024;
}

// Every `ignored`-th row does not count; 0: all do.
static void fill(made *m, uint64_t ignored) {
    uint64_t rows = m->run.values[m->x].shape.dims[0], classes = m->run.values[m->w].shape.dims[0];
    float *x = test_run_data(&m->run, m->x), *w = test_run_data(&m->run, m->w);
    int32_t *targets = test_run_data(&m->run, m->targets);
    for (uint64_t i = 0; i < rn_tensor_elements(&m->run.values[m->x]); i++)
        x[i] = number(i);
    for (uint64_t i = 0; i < rn_tensor_elements(&m->run.values[m->w]); i++)
        w[i] = number(i + 77);
    for (uint64_t i = 0; i < rows; i++)
        targets[i] = ignored && i % ignored == 0 ? -100 : (int32_t)(i * 31 % classes);
    test_run_all(&m->run);
}

static void close(made *m) {
    test_run_close(&m->run);
    rn_graph_destroy(m->graph);
}

static void one_chunk_has_the_bits_of_the_plain_way(void **state) {
    (void)state;
    for (uint64_t ignored = 0; ignored < 4; ignored += 3) {
        made a = {0}, b = {0};
        make(&a, RN_SHAPE(10, 12), RN_SHAPE(33, 12), true, true);
        make(&b, RN_SHAPE(10, 12), RN_SHAPE(33, 12), false, true);
        fill(&a, ignored);
        fill(&b, ignored);
        assert_memory_equal(test_run_data(&a.run, a.loss), test_run_data(&b.run, b.loss), 4);
        assert_memory_equal(test_run_data(&a.run, a.dx), test_run_data(&b.run, b.dx), 10 * 12 * 4);
        assert_memory_equal(test_run_data(&a.run, a.dw), test_run_data(&b.run, b.dw), 33 * 12 * 4);
        close(&a);
        close(&b);
    }
}

static double difference(const float *a, const float *b, uint64_t count) {
    double off = 0, all = 0;
    for (uint64_t i = 0; i < count; i++) {
        off += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        all += (double)b[i] * b[i];
    }
    return sqrt(off / all);
}

static void several_chunks_agree_with_the_plain_way(void **state) {
    (void)state;
    enum { ROWS = 70, CLASSES = 400001 }; // two chunks
    made a = {0}, b = {0};
    make(&a, RN_SHAPE(ROWS, 1), RN_SHAPE(CLASSES, 1), true, true);
    make(&b, RN_SHAPE(ROWS, 1), RN_SHAPE(CLASSES, 1), false, true);
    fill(&a, 0);
    fill(&b, 0);
    const float *of_a = test_run_data(&a.run, a.loss), *of_b = test_run_data(&b.run, b.loss);
    assert_true(fabsf(*of_a - *of_b) <= 1e-6f * fabsf(*of_b));
    assert_true(difference(test_run_data(&a.run, a.dx), test_run_data(&b.run, b.dx), ROWS) < 1e-5);
    assert_true(difference(test_run_data(&a.run, a.dw), test_run_data(&b.run, b.dw), CLASSES) <
                1e-5);
    close(&a);
    close(&b);
}

// The workspace is that of a chunk, however many rows there are.
static void workspace_does_not_grow_with_the_logits(void **state) {
    (void)state;
    rn_tensor tensors[6] = {
        {NULL, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(16384, 64)},
        {NULL, RN_DTYPE_BF16, RN_LAYOUT_PLAIN, RN_SHAPE(248320, 64)},
        {NULL, RN_DTYPE_I32, RN_LAYOUT_PLAIN, RN_SHAPE(16384)},
        {NULL, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SCALAR},
        {NULL, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(16384, 64)},
        {NULL, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(248320, 64)},
    };
    rn_cross_entropy_attrs attrs = {.ignore = -100, .normalizer = RN_NO_SCALAR};
    rn_call call = {.op = RN_OP_LINEAR_CROSS_ENTROPY,
                    .attrs = &attrs,
                    .inputs = tensors,
                    .outputs = tensors + 3,
                    .input_count = 3,
                    .output_count = 3,
                    .threads = 1};
    uint64_t bytes = rn_op_get(call.op)->workspace(&call);
    assert_true(bytes < RN_LINEAR_LOSS_BYTES * 5 / 4);
    assert_true(bytes >= RN_LINEAR_LOSS_BYTES * 3 / 4);
}

static void target_that_is_no_class_is_refused(void **state) {
    (void)state;
    made a = {0};
    make(&a, RN_SHAPE(3, 2), RN_SHAPE(5, 2), true, false);
    ((int32_t *)test_run_data(&a.run, a.targets))[0] = 0;
    ((int32_t *)test_run_data(&a.run, a.targets))[1] = 5;
    ((int32_t *)test_run_data(&a.run, a.targets))[2] = 0;
    rn_tensor tensors[TEST_MAX_TENSORS];
    rn_call call;
    test_run_bind(&a.run, 0, tensors, &call);
    call.workspace_bytes = rn_op_get(call.op)->workspace(&call);
    call.workspace = malloc(call.workspace_bytes);
    assert_fails(RN_INVALID, rn_op_get(call.op)->reference(&call));
    assert_non_null(strstr(rn_last_error()->message, "row 1 has target 5 of 5 classes"));
    free(call.workspace);
    close(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_chunk_has_the_bits_of_the_plain_way),
        cmocka_unit_test(several_chunks_agree_with_the_plain_way),
        cmocka_unit_test(workspace_does_not_grow_with_the_logits),
        cmocka_unit_test(target_that_is_no_class_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

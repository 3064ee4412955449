// op_check.h — ops on numbers that are written down in the test, by their reference loops.
//
//     op_check t = begin();
//     rn_value x = floats(&t, RN_SHAPE(2, 2)), y = rn_op_neg(t.graph, x);
//     ready(&t, 0);
//     SET(&t, x, 1, 2, 3, 4);
//     test_run_all(&t.run);
//     WANT(&t, y, -1, -2, -3, -4);
//     end(&t);
#ifndef RN_TEST_OP_CHECK_H
#define RN_TEST_OP_CHECK_H

#include "support.h"

#include "evaluate.h"
#include "graph/op/grads.h"

#include <math.h>

typedef struct op_check {
    rn_graph *graph;
    test_run run;
} op_check;

static inline op_check begin(void) {
    op_check t = {0};
    assert_ok(rn_graph_create(&t.graph));
    return t;
}

static inline rn_value input(op_check *t, rn_dtype dtype, rn_shape shape) {
    char name[32];
    snprintf(name, sizeof name, "in %u", rn_graph_value_count(t->graph));
    return rn_graph_input(t->graph, name, dtype, shape);
}

static inline rn_value floats(op_check *t, rn_shape shape) {
    return input(t, RN_DTYPE_F32, shape);
}

static inline void ready(op_check *t, uint64_t rows) {
    assert_ok(rn_graph_finish(t->graph));
    test_run_open(&t->run, t->graph, rows);
}

static inline void end(op_check *t) {
    if (t->run.graph) test_run_close(&t->run);
    rn_graph_destroy(t->graph);
}

static inline uint64_t count_of(const op_check *t, rn_value value) {
    return rn_tensor_elements(&t->run.values[value]);
}

static inline void set(const op_check *t, rn_value value, const void *data, size_t bytes) {
    assert_int_equal(bytes, rn_tensor_bytes(&t->run.values[value]));
    memcpy(test_run_data(&t->run, value), data, bytes);
}
#define SET(t, value, ...) set(t, value, (float[]){__VA_ARGS__}, sizeof((float[]){__VA_ARGS__}))
#define SET_WHOLE(t, value, ...)                                                                   \
    set(t, value, (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}))

// Within a few roundings of f32; NaN where NaN is wanted.
static inline void want(const op_check *t, rn_value value, const double *data, size_t count) {
    const float *is = test_run_data(&t->run, value);
    assert_int_equal(count, count_of(t, value));
    for (size_t i = 0; i < count; i++) {
        bool near = fabs(is[i] - data[i]) <= 1e-6 + 1e-6 * fabs(data[i]) || is[i] == data[i] ||
                    (isnan(is[i]) && isnan(data[i]));
        if (!near) fail_msg("element %zu is %.9g, not %.9g", i, (double)is[i], data[i]);
    }
}
#define WANT(t, value, ...)                                                                        \
    want(t, value, (double[]){__VA_ARGS__}, sizeof((double[]){__VA_ARGS__}) / sizeof(double))

static inline void want_whole(const op_check *t, rn_value value, const int32_t *data,
                              size_t count) {
    assert_int_equal(count, count_of(t, value));
    assert_int_equal(t->run.values[value].dtype, RN_DTYPE_I32);
    assert_memory_equal(test_run_data(&t->run, value), data, count * sizeof *data);
}
#define WANT_WHOLE(t, value, ...)                                                                  \
    want_whole(t, value, (int32_t[]){__VA_ARGS__},                                                 \
               sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

#define WANT_SHAPE(t, value, ...)                                                                  \
    assert_string_equal(rn_shape_format(rn_graph_value((t)->graph, value)->shape).text,            \
                        rn_shape_format(RN_SHAPE(__VA_ARGS__)).text)

// The graph has failed with these words; ends the check.
static inline void refuse(op_check *t, const char *words) {
    assert_fails(RN_INVALID, rn_graph_finish(t->graph));
    if (!strstr(rn_last_error()->message, words))
        fail_msg("'%s' is not in '%s'", words, rn_last_error()->message);
    end(t);
}

// The alias of output `output` of the node that made `value`.
static inline rn_alias alias_at(const op_check *t, rn_value value, uint32_t output, uint64_t rows,
                                uint64_t *out_offset_bytes) {
    rn_tensor tensors[TEST_MAX_TENSORS];
    rn_call call;
    rn_graph_bind(t->graph, rn_graph_value(t->graph, value)->producer, rows, tensors, &call);
    return rn_call_alias(&call, output, out_offset_bytes);
}

// Runs the node of `value` with the outputs whose bits are set in `unread` left out.
static inline rn_status run_without(op_check *t, rn_value value, uint32_t unread) {
    rn_tensor tensors[TEST_MAX_TENSORS];
    rn_call call;
    test_run_bind(&t->run, rn_graph_value(t->graph, value)->producer, tensors, &call);
    const rn_op_info *op = rn_op_get(call.op);
    for (uint32_t i = 0; i < call.output_count; i++)
        if (unread >> i & 1) tensors[call.input_count + i].data = NULL;
    call.workspace_bytes = op->workspace ? op->workspace(&call) : 0;
    test_guard workspace = test_guard_make(call.workspace_bytes);
    call.workspace = workspace.data;
    rn_status status = op->reference(&call);
    assert_true(test_guard_intact(&workspace));
    test_guard_free(&workspace);
    return status;
}

// Runs the node of `value` for a run of no rows; what it still makes is in `out`.
static inline void run_no_rows(const op_check *t, rn_value value, float *out) {
    rn_tensor tensors[TEST_MAX_TENSORS];
    rn_call call;
    float nothing[1] = {NAN};
    rn_graph_bind(t->graph, rn_graph_value(t->graph, value)->producer, 0, tensors, &call);
    for (uint32_t i = 0; i < call.input_count; i++)
        tensors[i].data = nothing;
    tensors[call.input_count].data = out;
    assert_ok(rn_op_get(call.op)->reference(&call));
}

// What the op of `value` prints of its attributes.
static inline const char *printed(const op_check *t, rn_value value) {
    static char text[128];
    const rn_node *node = rn_graph_node(t->graph, rn_graph_value(t->graph, value)->producer);
    rn_op_get(node->op)->print(node->attrs, text, sizeof text);
    return text;
}

#endif

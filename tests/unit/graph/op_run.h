// op_run.h — runs an op's reference loop on tensors that a test made by hand.
//
// Every run is done twice: alone, and on three threads with the workspace planned for three. The
// bits must be the same, and the workspace is exactly as long as the op said (ASan watches).
#ifndef RN_TEST_OP_RUN_H
#define RN_TEST_OP_RUN_H

#include "evaluate.h"
#include "support.h"

#include <math.h>

static inline rn_tensor f32_tensor(float *data, rn_shape shape) {
    return (rn_tensor){.data = data, .dtype = RN_DTYPE_F32, .shape = shape};
}
static inline rn_tensor i32_tensor(int32_t *data, rn_shape shape) {
    return (rn_tensor){.data = data, .dtype = RN_DTYPE_I32, .shape = shape};
}
static inline rn_tensor no_tensor(void) {
    return (rn_tensor){.dtype = RN_DTYPE_NONE};
}

static inline rn_status run_call(rn_call call, uint32_t threads) {
    const rn_op_info *op = rn_op_get(call.op);
    call.threads = threads;
    if (threads > 1) assert_ok(rn_workers_create(threads, &rn_system_allocator, &call.workers));
    call.workspace_bytes = op->workspace ? op->workspace(&call) : 0;
    if (call.workspace_bytes)
        assert_int_equal(0, posix_memalign(&call.workspace, 64, call.workspace_bytes));
    rn_status s = op->reference(&call);
    free(call.workspace);
    rn_workers_destroy(call.workers);
    return s;
}

// `in` and `out` are arrays; outputs must not be inputs, for the op runs twice. The attributes come
// last.
#define run_op(op, in, out, scalars, ...)                                                          \
    run_op_on((rn_call){(op), (__VA_ARGS__), (in), (out), sizeof(in) / sizeof *(in),               \
                        sizeof(out) / sizeof *(out), (scalars), NULL, 0, NULL, 1, 0})

static inline rn_status run_op_on(rn_call call) {
    void *first[RN_MAX_OUTPUTS] = {NULL};
    rn_status s = run_call(call, 1);
    for (uint32_t i = 0; i < call.output_count; i++) {
        if (!call.outputs[i].data) continue;
        uint64_t bytes = rn_tensor_bytes(&call.outputs[i]);
        first[i] = malloc(bytes);
        memcpy(first[i], call.outputs[i].data, bytes);
    }
    if (s == RN_OK) assert_ok(run_call(call, 3));
    for (uint32_t i = 0; i < call.output_count; i++) {
        if (first[i])
            assert_memory_equal(first[i], call.outputs[i].data, rn_tensor_bytes(&call.outputs[i]));
        free(first[i]);
    }
    return s;
}

// Numbers that look random, in (-1, 1), the same for the same seed.
static inline void fill(float *out, size_t count, uint32_t seed) {
    uint32_t state = seed * 2654435761u + 12345;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        out[i] = (float)(int32_t)state * 0x1p-31f;
    }
}

static inline double inner(const float *a, const float *b, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

// |is - expected| within `tolerance` times (1 + |expected|).
static inline void assert_close(double expected, double is, double tolerance) {
    if (!(fabs(is - expected) <= tolerance * (1 + fabs(expected))))
        fail_msg("%.9g is not %.9g within %g", is, expected, tolerance);
}

// Fails to finish with all of the words (a NULL ends them) in the message; destroys the graph.
static inline void assert_spoilt(rn_graph *g, const char *const words[]) {
    assert_fails(RN_INVALID, rn_graph_finish(g));
    for (size_t i = 0; words[i]; i++)
        if (!strstr(rn_last_error()->message, words[i]))
            fail_msg("'%s' is not in: %s", words[i], rn_last_error()->message);
    rn_graph_destroy(g);
}
#define assert_refused(g, ...) assert_spoilt((g), (const char *const[]){__VA_ARGS__, NULL})

static inline rn_graph *make_graph(void) {
    rn_graph *g = NULL;
    assert_ok(rn_graph_create(&g));
    return g;
}

#endif

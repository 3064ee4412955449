// Gradient checkpointing of C functions: gradients are those of the function itself, nothing is
// held in between, and what goes wrong leaves nothing behind.
#include "support.h"

#include <ration/checkpointed.h>
#include <ration/memory.h>

#include <math.h>

enum { WIDTH = 300, LAYERS = 4 };

// y = tanh(a x) elementwise; saved: the tanh. Counts its calls, and fails when told to.
typedef struct layer {
    float a, d_a;
    int forwards, backwards;
    rn_status fails;
} layer;

static rn_status forward(void *self, const rn_array *inputs, const rn_array *outputs, void *saved) {
    layer *l = self;
    const float *x = inputs[0].data;
    float *y = outputs[0].data, *tanhs = saved;
    l->forwards++;
    if (l->fails) return rn_fail(l->fails, "told to");
    for (int i = 0; i < WIDTH; i++) {
        float t = tanhf(l->a * x[i]);
        if (y) y[i] = t;
        if (tanhs) tanhs[i] = t;
    }
    return RN_OK;
}

static rn_status backward(void *self, const rn_array *inputs, const rn_array *out_gradients,
                          const rn_array *in_gradients, const void *saved) {
    layer *l = self;
    const float *x = inputs[0].data, *dy = out_gradients[0].data, *t = saved;
    float *dx = in_gradients[0].data;
    l->backwards++;
    for (int i = 0; i < WIDTH; i++) {
        float slope = dy[i] * (1 - t[i] * t[i]);
        l->d_a += slope * x[i];
        if (dx) dx[i] = slope * l->a;
    }
    return RN_OK;
}

static rn_function function_of(layer *l) {
    return (rn_function){.self = l,
                         .forward = forward,
                         .backward = backward,
                         .input_count = 1,
                         .output_count = 1,
                         .saved_bytes = WIDTH * sizeof(float)};
}

static uint64_t held(void) {
    return rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_ACTIVATIONS).now_bytes;
}

typedef struct run_result {
    float dx[WIDTH], d_a[LAYERS];
    uint64_t held_bytes; // between the passes, for all layers
    int forwards;
} run_result;

// Several layers one behind the other, forward and back.
static run_result run(bool enabled) {
    layer layers[LAYERS];
    rn_checkpointed *calls[LAYERS];
    static float values[LAYERS + 1][WIDTH], gradients[LAYERS + 1][WIDTH];
    run_result out = {0};
    uint64_t before = held();
    for (int i = 0; i < WIDTH; i++) {
        values[0][i] = sinf((float)i);
        gradients[LAYERS][i] = cosf((float)i);
    }
    for (int n = 0; n < LAYERS; n++) {
        layers[n] = (layer){.a = 0.5f + 0.3f * (float)n};
        rn_function f = function_of(&layers[n]);
        assert_ok(rn_checkpointed_create(&f, &calls[n]));
        assert_true(rn_checkpointed_enabled(calls[n]));
        rn_checkpointed_set_enabled(calls[n], enabled);
        assert_ok(rn_checkpointed_forward(calls[n], &(rn_array){values[n], sizeof values[n]},
                                          &(rn_array){values[n + 1], sizeof values[n]}));
        out.held_bytes += rn_checkpointed_held_bytes(calls[n]);
    }
    assert_int_equal(held() - before, out.held_bytes);
    for (int n = LAYERS; n-- > 0;) {
        assert_ok(rn_checkpointed_backward(calls[n],
                                           &(rn_array){gradients[n + 1], sizeof gradients[n]},
                                           &(rn_array){gradients[n], sizeof gradients[n]}));
        assert_int_equal(rn_checkpointed_held_bytes(calls[n]), 0);
        rn_array none = {0};
        assert_fails(RN_INVALID, rn_checkpointed_backward(calls[n], &none, &none));
        assert_int_equal(layers[n].backwards, 1);
        out.d_a[n] = layers[n].d_a;
        out.forwards += layers[n].forwards;
        rn_checkpointed_destroy(calls[n]);
    }
    assert_int_equal(held(), before);
    memcpy(out.dx, gradients[0], sizeof out.dx);
    return out;
}

static void gradients_are_those_of_the_function_itself(void **state) {
    (void)state;
    run_result kept = run(false), again = run(true);
    assert_memory_equal(kept.dx, again.dx, sizeof kept.dx);
    assert_memory_equal(kept.d_a, again.d_a, sizeof kept.d_a);
    assert_int_equal(kept.forwards, LAYERS);
    assert_int_equal(again.forwards, 2 * LAYERS);
    assert_int_equal(kept.held_bytes, LAYERS * WIDTH * sizeof(float));
    assert_int_equal(again.held_bytes, 0);
}

// They are right, too: against differences.
static void gradients_are_slopes(void **state) {
    (void)state;
    run_result r = run(true);
    double sums[2];
    for (int side = 0; side < 2; side++) {
        sums[side] = 0;
        for (int i = 0; i < WIDTH; i++) {
            double x = sin((double)i) + (i == 7 ? (side ? 1e-4 : -1e-4) : 0);
            for (int n = 0; n < LAYERS; n++)
                x = tanh((0.5 + 0.3 * n) * x);
            sums[side] += x * cos((double)i);
        }
    }
    assert_true(fabs((sums[1] - sums[0]) / 2e-4 - (double)r.dx[7]) < 1e-5);
}

static void failures_leave_nothing_behind(void **state) {
    (void)state;
    layer l = {.a = 1};
    rn_function f = function_of(&l), half = f;
    rn_checkpointed *call = NULL;
    static float x[WIDTH], y[WIDTH];
    rn_array in = {x, sizeof x}, out = {y, sizeof y};
    uint64_t before = held();
    half.backward = NULL;
    assert_fails(RN_INVALID, rn_checkpointed_create(&half, &call));
    half = f;
    half.input_count = RN_FUNCTION_ARRAYS + 1;
    assert_fails(RN_UNSUPPORTED, rn_checkpointed_create(&half, &call));
    assert_ok(rn_checkpointed_create(&f, &call));
    assert_fails(RN_INVALID, rn_checkpointed_backward(call, &out, &in));
    rn_checkpointed_set_enabled(call, false);
    l.fails = RN_IO;
    assert_fails(RN_IO, rn_checkpointed_forward(call, &in, &out));
    assert_int_equal(held(), before);
    assert_fails(RN_INVALID, rn_checkpointed_backward(call, &out, &in));
    l.fails = RN_OK;
    rn_checkpointed_set_enabled(call, true);
    assert_ok(rn_checkpointed_forward(call, &in, &out));
    l.fails = RN_CANCELLED; // the second time
    assert_fails(RN_CANCELLED, rn_checkpointed_backward(call, &out, &in));
    assert_int_equal(held(), before);
    rn_checkpointed_destroy(call);
    rn_checkpointed_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_the_function_itself),
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(failures_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

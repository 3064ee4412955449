// Optimisers with states of 8 bits, Adafactor and Muon against golden numbers
// (scripts/reference/optimizer_golden.py): codes, scales and weights of the 8-bit ones bit by bit.
// And what a guard and stochastic rounding do.
#include "support.h"

#include <ration/checkpoint.h>
#include <ration/train.h>

#include "evaluate.h"
#include "graph/op/update.h"
#include "graph/state_codes.h"
#include "train/optimizer.h"

enum { SIZE = 600, STEPS = 4, BLOCKS = 3 };

static rn_graph *make_graph(void) {
    rn_graph *g = NULL;
    assert_ok(rn_graph_create(&g));
    return g;
}

static float first[SIZE], gradients[STEPS][SIZE];

static void load(const rn_checkpoint *c, const char *name, void *out, size_t bytes) {
    const rn_tensor_info *info = rn_checkpoint_find(c, name);
    assert_non_null(info);
    assert_int_equal(info->bytes, bytes);
    assert_ok(rn_checkpoint_read(c, info, 0, out, bytes));
}

static rn_checkpoint *open_golden(void) {
    rn_checkpoint *c = NULL;
    assert_ok(rn_checkpoint_open("tests/golden/optimizers_golden.safetensors", &c));
    load(c, "w", first, sizeof first);
    load(c, "gradients", gradients, sizeof gradients);
    return c;
}

// A weight with an optimiser's update: what the row makes of it.
typedef struct bench {
    rn_graph *g;
    rn_value weight, gradient, guard, states[RN_OPTIMIZER_STATES];
    uint32_t rate, step, seed;
    test_run run;
} bench;

static void begin(bench *b, const char *optimizer, rn_dtype dtype, rn_shape shape, double decay,
                  bool guarded) {
    const rn_optimizer *row = NULL;
    assert_ok(rn_optimizer_find(optimizer, &row));
    *b = (bench){.g = make_graph()};
    b->weight = rn_graph_weight(b->g, "w", dtype, shape);
    b->gradient = rn_graph_input(b->g, "g", RN_DTYPE_F32, shape);
    b->guard = guarded ? rn_graph_input(b->g, "guard", RN_DTYPE_F32, RN_SHAPE(1)) : RN_NO_VALUE;
    b->rate = rn_graph_scalar(b->g, "rate");
    b->step = rn_graph_scalar(b->g, "step");
    b->seed = rn_graph_scalar(b->g, "seed");
    rn_update with = {.graph = b->g,
                      .weight = b->weight,
                      .gradient = b->gradient,
                      .guard = b->guard,
                      .beta1 = row->beta1,
                      .beta2 = row->beta2,
                      .eps = row->eps,
                      .momentum = row->momentum,
                      .weight_decay = decay,
                      .rate = b->rate,
                      .step = b->step,
                      .seed = b->seed,
                      .stream = 9};
    rn_optimizer_state states[RN_OPTIMIZER_STATES];
    rn_value_info info = *rn_graph_value(b->g, b->weight);
    // The golden weights are small: the row's states of a large one, cut to their size.
    bool coded = strstr(optimizer, "_8bit") != NULL;
    rn_shape own = info.shape;
    if (coded) info.shape = RN_SHAPE(4096);
    with.state_count = row->states(&info, states);
    for (uint32_t i = 0; i < RN_OPTIMIZER_STATES; i++) {
        with.states[i] = RN_NO_VALUE;
        if (i >= with.state_count) continue;
        rn_shape of = states[i].shape;
        if (coded) of = states[i].dtype == RN_DTYPE_U8 ? own : RN_SHAPE(BLOCKS);
        b->states[i] = with.states[i] =
            rn_graph_state(b->g, states[i].suffix, states[i].dtype, of, RN_PURPOSE_OPTIMIZER);
    }
    row->update(&with);
    assert_ok(rn_graph_finish(b->g));
    test_run_open(&b->run, b->g, 1);
    b->run.scalars[b->rate].f64 = 1e-2;
}

static void take(bench *b, int steps) {
    for (int i = 0; i < steps; i++) {
        b->run.scalars[b->step].f64 = i + 1;
        memcpy(test_run_data(&b->run, b->gradient), gradients[i], sizeof gradients[i]);
        test_run_all(&b->run);
    }
}

static void end(bench *b) {
    test_run_close(&b->run);
    rn_graph_destroy(b->g);
}

static void assert_equal(bench *b, rn_value value, const rn_checkpoint *golden, const char *name) {
    static uint8_t must[SIZE * sizeof(float)];
    const rn_tensor_info *info = rn_checkpoint_find(golden, name);
    assert_non_null(info);
    load(golden, name, must, info->bytes);
    if (memcmp(must, test_run_data(&b->run, value), info->bytes) != 0) fail_msg("%s differs", name);
}

static void eight_bit_states_are_those_of_bitsandbytes(void **state) {
    (void)state;
    rn_checkpoint *golden = open_golden();
    bench b;
    begin(&b, "adamw_8bit", RN_DTYPE_F32, RN_SHAPE(SIZE), 0.1, false);
    memcpy(test_run_data(&b.run, b.weight), first, sizeof first);
    take(&b, STEPS);
    assert_equal(&b, b.states[0], golden, "adamw8.m");
    assert_equal(&b, b.states[1], golden, "adamw8.v");
    assert_equal(&b, b.states[2], golden, "adamw8.m_scale");
    assert_equal(&b, b.states[3], golden, "adamw8.v_scale");
    assert_equal(&b, b.weight, golden, "adamw8.w");
    end(&b);
    begin(&b, "lion_8bit", RN_DTYPE_F32, RN_SHAPE(SIZE), 0.1, false);
    memcpy(test_run_data(&b.run, b.weight), first, sizeof first);
    take(&b, STEPS);
    assert_equal(&b, b.states[0], golden, "lion8.m");
    assert_equal(&b, b.states[1], golden, "lion8.m_scale");
    assert_equal(&b, b.weight, golden, "lion8.w");
    end(&b);
    rn_checkpoint_close(golden);
}

// Every entry of a map is its own code, and all that is nearer to it than to its neighbours.
static void codes_are_the_nearest_entries(void **state) {
    (void)state;
    for (int i = 0; i < RN_STATE_CODES; i++) {
        assert_int_equal(rn_state_code(rn_state_signed, -1, rn_state_signed[i]), i);
        assert_int_equal(rn_state_code(rn_state_unsigned, 0, rn_state_unsigned[i]), i);
        if (i == 255) break;
        float here = rn_state_unsigned[i], next = rn_state_unsigned[i + 1];
        assert_int_equal(rn_state_code(rn_state_unsigned, 0, here + 0.49f * (next - here)), i);
        assert_int_equal(rn_state_code(rn_state_unsigned, 0, here + 0.51f * (next - here)), i + 1);
    }
}

// Both ways to a code agree where codes change, and from there to the next change.
static void tables_have_the_codes_of_the_search(void **state) {
    (void)state;
    const rn_state_steps *steps = rn_state_steps_get();
    for (uint32_t at = 0; at <= 0x3F800000u; at += at < 0x33000000u ? 99991 : 251)
        for (uint32_t bits = at; bits <= at + 1; bits++) {
            rn_float_bits x = {.bits = bits < 0x3F800000u ? bits : 0x3F800000u};
            uint32_t of = rn_state_look(steps->with_sign, x.bits) >> 16;
            assert_int_equal(rn_state_mirror(of, false), rn_state_code_signed(x.value, 1));
            assert_int_equal(rn_state_mirror(of, true), rn_state_code_signed(-x.value, 1));
            of = rn_state_look(steps->without, x.bits) >> 16;
            assert_int_equal(of, rn_state_code_unsigned(x.value, 1));
        }
    for (uint32_t code = 0; code < 255; code++)
        for (uint32_t near = 0; near < 3; near++) { // the last that has it, its neighbours
            rn_float_bits x = {.bits = rn_state_middle(rn_state_unsigned, code) - 1 + near};
            uint32_t of = rn_state_look(steps->without, x.bits) >> 16;
            assert_int_equal(of, rn_state_code_unsigned(x.value, 1));
            if (code < 127) continue;
            x.bits = rn_state_middle(rn_state_signed, code) - 1 + near;
            of = rn_state_look(steps->with_sign, x.bits) >> 16;
            assert_int_equal(rn_state_mirror(of, false), rn_state_code_signed(x.value, 1));
            assert_int_equal(rn_state_mirror(of, true), rn_state_code_signed(-x.value, 1));
        }
}

static void check_close(const char *optimizer, rn_shape shape, const char *name, double most) {
    rn_checkpoint *golden = open_golden();
    static float must[SIZE];
    bench b;
    double apart = 0, way = 0;
    begin(&b, optimizer, RN_DTYPE_F32, shape, 0.1, false);
    memcpy(test_run_data(&b.run, b.weight), first, sizeof first);
    take(&b, STEPS);
    load(golden, name, must, sizeof must);
    const float *is = test_run_data(&b.run, b.weight);
    for (int i = 0; i < SIZE; i++) {
        apart += (double)(is[i] - must[i]) * (double)(is[i] - must[i]);
        way += (double)(first[i] - must[i]) * (double)(first[i] - must[i]);
    }
    if (!(sqrt(apart / way) < most)) fail_msg("%s is off by %g", name, sqrt(apart / way));
    end(&b);
    rn_checkpoint_close(golden);
}

static void adafactor_follows_transformers(void **state) {
    (void)state;
    check_close("adafactor", RN_SHAPE(20, 30), "adafactor.matrix", 1e-5);
    check_close("adafactor", RN_SHAPE(SIZE), "adafactor.vector", 1e-5);
}

static void muon_follows_its_formula(void **state) {
    (void)state;
    check_close("muon", RN_SHAPE(20, 30), "muon.wide", 1e-4);
    check_close("muon", RN_SHAPE(30, 20), "muon.high", 1e-4);
}

// ---- guards -------------------------------------------------------------------------------------

static void a_guard_that_is_not_finite_keeps_everything(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static uint8_t before[RN_OPTIMIZER_STATES + 1][SIZE * sizeof(float)];
    rn_checkpoint_close(open_golden());
    for (size_t i = 0; rn_optimizer_name(i); i++) {
        bench b;
        begin(&b, rn_optimizer_name(i), RN_DTYPE_F32, RN_SHAPE(SIZE), 0.1, true);
        rn_value all[RN_OPTIMIZER_STATES + 1] = {b.weight};
        memcpy(all + 1, b.states, sizeof b.states);
        memcpy(test_run_data(&b.run, b.weight), first, sizeof first);
        *(float *)test_run_data(&b.run, b.guard) = 1;
        take(&b, 2);
        for (int n = 0; n < 3; n++) {
            uint64_t bytes[RN_OPTIMIZER_STATES + 1] = {0};
            for (int v = 0; v <= RN_OPTIMIZER_STATES; v++) {
                if (all[v] == RN_NO_VALUE) continue;
                const rn_value_info *info = rn_graph_value(b.g, all[v]);
                rn_dtype_bytes(info->dtype, rn_shape_elements(info->shape, 1), &bytes[v]);
                memcpy(before[v], test_run_data(&b.run, all[v]), bytes[v]);
            }
            *(float *)test_run_data(&b.run, b.guard) = bad[n];
            take(&b, 1);
            for (int v = 0; v <= RN_OPTIMIZER_STATES; v++)
                if (bytes[v] && memcmp(before[v], test_run_data(&b.run, all[v]), bytes[v]) != 0)
                    fail_msg("%s changes value %d", rn_optimizer_name(i), v);
        }
        *(float *)test_run_data(&b.run, b.guard) = 2;
        take(&b, 1);
        assert_memory_not_equal(before[0], test_run_data(&b.run, b.weight), sizeof first);
        end(&b);
    }
}

// ---- stochastic rounding ------------------------------------------------------------------------

// Updates far below half a step of bf16: rounded to the nearest, nothing would ever move.
static void small_updates_count_in_the_mean(void **state) {
    (void)state;
    enum { COUNT = 4096, TIMES = 64 };
    rn_graph *g = make_graph();
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_BF16, RN_SHAPE(COUNT));
    rn_value gradient = rn_graph_input(g, "g", RN_DTYPE_F32, RN_SHAPE(COUNT));
    rn_sgd_attrs attrs = {.rate = rn_graph_scalar(g, "rate"),
                          .step = rn_graph_scalar(g, "step"),
                          .seed = rn_graph_scalar(g, "seed"),
                          .stream = 3};
    rn_op_sgd(g, w, gradient, RN_NO_VALUE, attrs);
    assert_ok(rn_graph_finish(g));
    test_run run;
    test_run_open(&run, g, 1);
    uint16_t *data = test_run_data(&run, w);
    float *slope = test_run_data(&run, gradient);
    for (int i = 0; i < COUNT; i++) {
        data[i] = 0x3F80; // 1; the next one below is 1 - 2^-8
        slope[i] = 1;
    }
    run.scalars[attrs.rate].f64 = 0x1p-14;
    run.scalars[attrs.seed].f64 = 77;
    for (int n = 0; n < TIMES; n++) {
        run.scalars[attrs.step].f64 = n + 1;
        test_run_all(&run);
    }
    double sum = 0;
    for (int i = 0; i < COUNT; i++)
        sum += (double)rn_bf16_to_f32(data[i]);
    // 64 times 2^-14 below 1; the mean of 4096 has a deviation of about 2^-8 / 64 / 2
    assert_true(fabs(sum / COUNT - (1 - TIMES * 0x1p-14)) < 5 * 0x1p-15);
    test_run_close(&run);
    rn_graph_destroy(g);
}

static void noise_depends_on_the_place_alone(void **state) {
    (void)state;
    uint32_t all[100], part[37];
    rn_noise noise = {.seed = 0x123456789ull, .stream = 4, .step = 6};
    rn_noise_words(&noise, 0, 100, all);
    rn_noise_words(&noise, 21, 37, part);
    assert_memory_equal(all + 21, part, sizeof part);
    noise.step = 7;
    rn_noise_words(&noise, 21, 37, part);
    assert_memory_not_equal(all + 21, part, sizeof part);
    assert_int_equal(rn_bf16_stochastic(1.5f, 0xFFFF), 0x3FC0); // what bf16 has stays
    assert_int_equal(rn_bf16_stochastic(INFINITY, 0xFFFF), 0x7F80);
    assert_true(isnan(rn_bf16_to_f32(rn_bf16_stochastic(NAN, 0xFFFF))));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_bit_states_are_those_of_bitsandbytes),
        cmocka_unit_test(codes_are_the_nearest_entries),
        cmocka_unit_test(tables_have_the_codes_of_the_search),
        cmocka_unit_test(adafactor_follows_transformers),
        cmocka_unit_test(muon_follows_its_formula),
        cmocka_unit_test(a_guard_that_is_not_finite_keeps_everything),
        cmocka_unit_test(small_updates_count_in_the_mean),
        cmocka_unit_test(noise_depends_on_the_place_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

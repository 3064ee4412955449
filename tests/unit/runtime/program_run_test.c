// Phases of a program in one arena: each says what it says alone, at every budget and in any order;
// what they share outlasts them all, and is held once.
#include "chain.h"

#include <ration/memory.h>
#include <ration/program.h>
#include <ration/train.h>

#include "backend/sim/sim.h"
#include "base/checked.h"
#include "base/fault.h"
#include "plan/program.h"

enum { ROWS = 4, WIDTH = 128, LAYERS = 6, MORE = 9, BUDGETS = 7 };

// The longer chain begins as the shorter one does, with the same weights.
static chain longer = {.layers = MORE, .width = WIDTH, .rows = ROWS}, shorter;
static rn_checkpoint *checkpoint;
static float expected[2][ROWS * WIDTH]; // of each phase's session alone

static int open_all(void **state) {
    (void)state;
    chain_open(&longer);
    shorter = longer;
    shorter.layers = LAYERS;
    const char *path = test_own_path("chain.safetensors");
    chain_write(&longer, path);
    assert_ok(rn_checkpoint_open(path, &checkpoint));
    chain *chains[] = {&shorter, &longer};
    for (int i = 0; i < 2; i++) {
        rn_plan *plan = chain_plan(chains[i], rn_cpu_caps(), 0);
        rn_weight_source source = chain_memory(&longer);
        rn_session *session;
        assert_ok(rn_session_create(plan, &source, NULL, &session));
        assert_ok(chain_run(chains[i], session, ROWS, 3, expected[i]));
        rn_session_destroy(session);
        rn_plan_destroy(plan);
    }
    return 0;
}

static int close_all(void **state) {
    (void)state;
    rn_checkpoint_close(checkpoint);
    chain_close(&longer);
    return 0;
}

static rn_program *make(const rn_device_caps *caps, uint64_t budget_bytes) {
    rn_recipe a = chain_recipe(&shorter), b = chain_recipe(&longer);
    rn_program_phase phases[] = {{.name = "shorter", .recipe = &a},
                                 {.name = "longer", .recipe = &b},
                                 {.name = "save", .bytes = 5000}};
    rn_program *program;
    rn_plan_options options = {.budget_bytes = budget_bytes};
    assert_ok(rn_program_make(phases, 3, caps, &options, &program));
    for (uint32_t i = 0; i < 2; i++)
        assert_true(rn_plan_is_valid(rn_program_plan(program, i)));
    return program;
}

static void run_phase(rn_program_run *run, uint32_t phase) {
    float y[ROWS * WIDTH];
    rn_session *session = rn_program_session(run, phase);
    assert_ok(chain_run(phase ? &longer : &shorter, session, ROWS, 3, y));
    assert_memory_equal(y, expected[phase], sizeof y);
}

static void check_audit(const rn_program *program, const rn_program_run *run) {
    for (uint32_t i = 0; i < 2; i++) {
        rn_session_facts facts = rn_session_get_facts(rn_program_session(run, i));
        assert_true(facts.live_mismatch_step == UINT64_MAX);
        assert_int_equal(facts.live_peak_bytes,
                         rn_program_plan(program, i)->summary.live_peak_bytes);
    }
}

// From the smallest budget, where nearly all is streamed, to one that holds everything.
static void run_at_all_budgets(rn_device *device, const rn_device_caps *caps,
                               rn_weight_source source) {
    rn_weight_source sources[] = {source, source, {0}};
    rn_program *roomy = make(caps, 0);
    uint64_t high = rn_program_get_summary(roomy)->planned_bytes;
    rn_program_destroy(roomy);
    rn_program *none = NULL;
    rn_recipe a = chain_recipe(&shorter), b = chain_recipe(&longer);
    rn_program_phase phases[] = {{.name = "shorter", .recipe = &a}, {.name = "b", .recipe = &b}};
    assert_fails(RN_OVER_BUDGET,
                 rn_program_make(phases, 2, caps, &(rn_plan_options){.budget_bytes = 1}, &none));
    uint64_t low = rn_last_refusal()->smallest_budget_bytes;
    bool streamed = false, loaded = false;
    for (uint32_t i = 0; i < BUDGETS; i++) {
        uint64_t budget = low + (high - low) * i / (BUDGETS - 1);
        rn_program *program = make(caps, budget);
        const rn_program_summary *s = rn_program_get_summary(program);
        rn_session_options options = {.device = device, .audit = true};
        rn_program_run *run;
        rn_device_id id = caps->own_memory ? caps->device : RN_DEVICE_HOST;
        uint64_t before = rn_ledger_read(id, RN_PURPOSE_WEIGHTS).now_bytes;
        uint64_t staging = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_STAGING).now_bytes;
        assert_true(s->planned_bytes <= budget);
        assert_ok(rn_program_open(program, sources, &options, &run));
        // One arena on the ledger, and of a program at rest no staging but a device's own.
        if (caps->own_memory)
            assert_int_equal(rn_ledger_total(id).now_bytes, s->arena_bytes);
        else
            assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_STAGING).now_bytes, staging);
        assert_true(rn_ledger_read(id, RN_PURPOSE_WEIGHTS).now_bytes - before <= s->arena_bytes);
        static const uint32_t order[] = {0, 1, 0, 1, 1, 0, 0, 1};
        for (size_t k = 0; k < sizeof order / sizeof *order; k++)
            run_phase(run, order[k]);
        void *scratch = rn_program_scratch(run, 2);
        assert_true((scratch == NULL) == caps->own_memory);
        if (scratch) memset(scratch, 0xff, 5000);
        run_phase(run, 1);
        run_phase(run, 0);
        check_audit(program, run);
        for (uint32_t p = 0; p < 2; p++) {
            streamed |= rn_program_get_phase(program, p).streamed_bytes > 0;
            loaded |= rn_program_get_phase(program, p).load_bytes > 0;
        }
        rn_program_close(run);
        rn_program_destroy(program);
    }
    assert_true(streamed && loaded);
}

static void phases_say_what_they_say_alone_with_weights_from_files(void **state) {
    (void)state;
    run_at_all_budgets(NULL, rn_cpu_caps(), (rn_weight_source){.checkpoint = checkpoint});
}

// Streamed weights that are not packed come straight into their slots.
static void phases_say_what_they_say_alone_with_weights_as_files_have_them(void **state) {
    (void)state;
    rn_device_caps caps = *rn_cpu_caps();
    caps.file_layout_bytes = 4096;
    run_at_all_budgets(NULL, &caps, (rn_weight_source){.checkpoint = checkpoint});
}

static void phases_say_what_they_say_alone_with_weights_in_memory(void **state) {
    (void)state;
    run_at_all_budgets(NULL, rn_cpu_caps(), chain_memory(&longer));
}

static void phases_say_what_they_say_alone_on_a_device_of_its_own_memory(void **state) {
    (void)state;
    rn_device *sim;
    assert_ok(rn_sim_device_create(NULL, &sim));
    run_at_all_budgets(sim, &sim->caps, (rn_weight_source){.checkpoint = checkpoint});
    assert_int_equal(rn_ledger_total(sim->caps.device).now_bytes, 0);
    rn_device_destroy(sim);
}

// ---- what is shared -----------------------------------------------------------------------------

// x + state, where the state is the phase's own.
static rn_status build_adder(void *self, const rn_recipe_options *options, rn_graph **out) {
    (void)options;
    RN_TRY(rn_graph_create(out));
    rn_value x = rn_graph_input(*out, "x", RN_DTYPE_F32, RN_SHAPE(WIDTH));
    rn_value own = rn_graph_state(*out, self, RN_DTYPE_F32, RN_SHAPE(WIDTH), RN_PURPOSE_KV);
    rn_value all = rn_graph_state(*out, "all", RN_DTYPE_F32, RN_SHAPE(WIDTH), RN_PURPOSE_KV);
    rn_value sum = rn_op_add(*out, rn_op_add(*out, x, own), all);
    rn_graph_output(*out, sum, "y");
    return rn_graph_finish(*out);
}

static void put_state(rn_session *session, const char *name, float value) {
    float values[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        values[i] = value;
    assert_ok(rn_session_put(session, name, values, sizeof values));
}

static float add_up(rn_session *session) {
    float x[WIDTH], y[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        x[i] = 1;
    assert_ok(rn_session_set(session, "x", x, sizeof x));
    assert_ok(rn_session_run(session, 0));
    assert_ok(rn_session_get(session, "y", y, sizeof y));
    for (int i = 1; i < WIDTH; i++)
        assert_true(y[i] == y[0]);
    return y[0];
}

static void states_outlast_the_other_phases(void **state) {
    (void)state;
    static char of_a[] = "of a", of_b[] = "of b";
    rn_recipe recipes[] = {{.name = "a", .self = of_a, .build = build_adder},
                           {.name = "b", .self = of_b, .build = build_adder}};
    rn_program_phase phases[] = {{.name = "a", .recipe = &recipes[0]},
                                 {.name = "b", .recipe = &recipes[1]}};
    rn_program *program;
    rn_program_run *run;
    assert_ok(rn_program_make(phases, 2, rn_cpu_caps(), NULL, &program));
    assert_ok(rn_program_open(program, NULL, &(rn_session_options){.audit = true}, &run));
    rn_session *a = rn_program_session(run, 0), *b = rn_program_session(run, 1);
    assert_null(rn_program_session(run, 2));
    assert_true(add_up(a) == 1 && add_up(b) == 1); // zero at first
    put_state(a, "of a", 10);
    put_state(b, "of b", 20);
    put_state(b, "all", 100);
    assert_true(add_up(a) == 111 && add_up(b) == 121 && add_up(a) == 111);
    put_state(a, "all", 200);
    assert_true(add_up(b) == 221);
    check_audit(program, run);
    rn_program_close(run);
    rn_program_destroy(program);
}

// ---- training -----------------------------------------------------------------------------------

enum { SIDE = 32, STEPS = 3 };

// Three steps: of g behind a frozen d, of d before a frozen g, and of e, which only they have.
static const struct {
    const char *name, *frozen;
    bool alone;
} steps[] = {{"g", "d", false}, {"d", "g", false}, {"e", "", true}};

static rn_status build_step(void *self, const rn_recipe_options *options, rn_graph **out) {
    size_t i = (size_t)((char *)self - (char *)steps) / sizeof *steps;
    (void)options;
    RN_TRY(rn_graph_create(out));
    rn_graph *g = *out;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(ROWS, SIDE));
    rn_value t = rn_graph_input(g, "t", RN_DTYPE_F32, RN_SHAPE(ROWS, SIDE));
    for (int k = 0; k < (steps[i].alone ? 1 : 2); k++) {
        const char *name = steps[i].alone ? "e" : k ? "d" : "g";
        rn_value w = rn_graph_weight(g, name, RN_DTYPE_F32, RN_SHAPE(SIDE, SIDE));
        x = rn_op_matmul(g, x, w, RN_NO_VALUE);
    }
    rn_train_options train = {.optimizer = "momentum", .frozen = steps[i].frozen};
    return rn_graph_train(g, rn_graph_loss(g, "mse", x, t, 1), &train);
}

static float first_weights[SIDE * SIDE];

static const void *find_first_weights(void *self, const char *name, rn_dtype dtype,
                                      uint64_t bytes) {
    (void)self;
    (void)name;
    return dtype == RN_DTYPE_F32 && bytes == sizeof first_weights ? first_weights : NULL;
}

static float take_step(rn_session *session, uint32_t seed) {
    float x[ROWS * SIDE], t[ROWS * SIDE], loss;
    for (int i = 0; i < ROWS * SIDE; i++) {
        x[i] = chain_random(&seed);
        t[i] = chain_random(&seed);
    }
    assert_ok(rn_session_set(session, "x", x, sizeof x));
    assert_ok(rn_session_set(session, "t", t, sizeof t));
    assert_ok(rn_session_set_scalar(session, "rate", 0.1));
    assert_ok(rn_session_run(session, 0));
    assert_ok(rn_session_get(session, "loss", &loss, sizeof loss));
    return loss;
}

// Each of them alone, weights handed on by hand; then as phases, which have them in common.
static void phases_train_what_others_read(void **state) {
    (void)state;
    uint32_t seed = 5;
    float losses[STEPS][3], w[SIDE * SIDE], e[SIDE * SIDE];
    rn_weight_source source = {.find = find_first_weights}, sources[] = {source, source, source};
    rn_recipe recipes[3];
    rn_program_phase phases[3];
    rn_plan *plans[3];
    rn_session *alone[3];
    for (int i = 0; i < SIDE * SIDE; i++)
        first_weights[i] = chain_random(&seed) / 8;
    for (int i = 0; i < 3; i++) {
        recipes[i] =
            (rn_recipe){.self = (void *)&steps[i], .build = build_step, .weights_in_memory = true};
        phases[i] = (rn_program_phase){.name = steps[i].name, .recipe = &recipes[i]};
        assert_ok(rn_plan_make(&recipes[i], rn_cpu_caps(), NULL, &plans[i]));
        assert_ok(rn_session_create(plans[i], &source, NULL, &alone[i]));
    }
    for (uint32_t n = 0; n < STEPS; n++) {
        for (int i = 0; i < 3; i++) {
            losses[n][i] = take_step(alone[i], n);
            if (i == 2) continue;
            assert_ok(rn_session_get(alone[i], steps[i].name, w, sizeof w));
            assert_ok(rn_session_put(alone[1 - i], steps[i].name, w, sizeof w));
        }
    }
    assert_ok(rn_session_get(alone[2], "e", e, sizeof e));
    rn_program *program;
    rn_program_run *run;
    assert_ok(rn_program_make(phases, 3, rn_cpu_caps(), NULL, &program));
    // Three weights, each with its velocity: whoever trains it, it is held once.
    assert_int_equal(rn_program_get_summary(program)->shared_bytes, 6 * sizeof w);
    assert_ok(rn_program_open(program, sources, &(rn_session_options){.audit = true}, &run));
    for (uint32_t n = 0; n < STEPS; n++)
        for (uint32_t i = 0; i < 3; i++)
            assert_true(take_step(rn_program_session(run, i), n) == losses[n][i]);
    assert_ok(rn_session_get(rn_program_session(run, 2), "e", w, sizeof w));
    assert_memory_equal(w, e, sizeof w);
    check_audit(program, run);
    rn_program_close(run);
    rn_program_destroy(program);
    for (int i = 0; i < 3; i++) {
        rn_session_destroy(alone[i]);
        rn_plan_destroy(plans[i]);
    }
}

static void outputs_and_inputs_of_a_phase_that_rests_are_gone(void **state) {
    (void)state;
    float y[ROWS * WIDTH];
    rn_program *program = make(rn_cpu_caps(), 0);
    rn_weight_source source = chain_memory(&longer), sources[] = {source, source, source};
    rn_program_run *run;
    rn_session *session;
    assert_fails(RN_INVALID,
                 rn_session_create(rn_program_plan(program, 0), &source, NULL, &session));
    assert_fails(RN_UNSUPPORTED,
                 rn_program_open(program, sources, &(rn_session_options){.guard = true}, &run));
    assert_ok(rn_program_open(program, sources, NULL, &run));
    run_phase(run, 0);
    run_phase(run, 1);
    session = rn_program_session(run, 0);
    assert_fails(RN_INVALID, rn_session_get(session, "y", y, sizeof y));
    float *x = chain_input(&shorter, ROWS, 3);
    assert_ok(rn_session_set(session, "x", x, sizeof y));
    run_phase(run, 1);
    assert_fails(RN_INVALID, rn_session_run(session, ROWS));
    run_phase(run, 0);
    free(x);
    rn_program_close(run);
    rn_program_destroy(program);
}

// ---- failing ------------------------------------------------------------------------------------

// A read of one phase fails, wherever: the other one goes on, and this one after a reset.
static void a_phase_that_failed_leaves_the_others_alone(void **state) {
    (void)state;
    float y[ROWS * WIDTH];
    rn_program *roomy = make(rn_cpu_caps(), 0);
    rn_program *tight = make(rn_cpu_caps(), roomy->summary.planned_bytes - (300 << 10));
    rn_weight_source source = {.checkpoint = checkpoint}, sources[] = {source, source, {0}};
    uint32_t failures = 0;
    rn_program_run *run;
    assert_true(rn_program_get_phase(tight, 1).streamed_bytes > 0);
    assert_ok(rn_program_open(tight, sources, NULL, &run));
    for (uint64_t n = 1; n <= 12; n++) {
        run_phase(run, 0);
        rn_fault_arm(RN_FAULT_READ, n);
        rn_status s = chain_run(&longer, rn_program_session(run, 1), ROWS, 3, y);
        rn_fault_arm(RN_FAULT_READ, 0);
        failures += s != RN_OK;
        run_phase(run, 0);
        assert_ok(rn_session_reset(rn_program_session(run, 1)));
        run_phase(run, 1);
    }
    assert_true(failures > 0);
    rn_program_close(run);
    rn_program_destroy(tight);
    rn_program_destroy(roomy);
}

static rn_status open_and_run(const rn_program *program, const rn_weight_source *sources) {
    float y[ROWS * WIDTH];
    rn_program_run *run = NULL;
    rn_status s = rn_program_open(program, sources, NULL, &run);
    if (s == RN_OK) s = chain_run(&shorter, rn_program_session(run, 0), ROWS, 3, y);
    if (s == RN_OK) s = chain_run(&longer, rn_program_session(run, 1), ROWS, 3, y);
    if (s == RN_OK) assert_memory_equal(y, expected[1], sizeof y);
    rn_program_close(run);
    return s;
}

static void what_fails_leaves_nothing_behind(void **state) {
    (void)state;
    rn_program *roomy = make(rn_cpu_caps(), 0);
    uint64_t tight = rn_program_get_summary(roomy)->planned_bytes - (128 << 10);
    rn_program *programs[] = {roomy, make(rn_cpu_caps(), tight)};
    rn_weight_source source = {.checkpoint = checkpoint}, sources[] = {source, source, {0}};
    for (int i = 0; i < 2; i++) {
        uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
        for (uint64_t n = 1;; n++) {
            rn_fault_arm(RN_FAULT_ALLOC, n);
            rn_status s = open_and_run(programs[i], sources);
            bool fired = rn_fault_fired(RN_FAULT_ALLOC);
            rn_fault_arm(RN_FAULT_ALLOC, 0);
            assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
            if (!fired) {
                assert_int_equal(s, RN_OK);
                break;
            }
        }
        rn_program_destroy(programs[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phases_say_what_they_say_alone_with_weights_from_files),
        cmocka_unit_test(phases_say_what_they_say_alone_with_weights_as_files_have_them),
        cmocka_unit_test(phases_say_what_they_say_alone_with_weights_in_memory),
        cmocka_unit_test(phases_say_what_they_say_alone_on_a_device_of_its_own_memory),
        cmocka_unit_test(states_outlast_the_other_phases),
        cmocka_unit_test(phases_train_what_others_read),
        cmocka_unit_test(outputs_and_inputs_of_a_phase_that_rests_are_gone),
        cmocka_unit_test(a_phase_that_failed_leaves_the_others_alone),
        cmocka_unit_test(what_fails_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}

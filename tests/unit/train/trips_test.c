// A trainer on a device with too little memory, with a host behind it: weights and checkpoints are
// the same files as those of one that has room for everything.
#include "support.h"

#include <ration/memory.h>
#include <ration/train.h>

#include "backend/sim/sim.h"

enum { BATCH = 8, TOKENS = 16, ROWS = BATCH * TOKENS, VOCAB = 64 };

static rn_trainer_options small(rn_device *device, uint64_t budget_bytes) {
    return (rn_trainer_options){.layers = 2,
                                .dim = 64,
                                .heads = 4,
                                .kv_heads = 2,
                                .ffn = 128,
                                .vocab_size = VOCAB,
                                .tokens = TOKENS,
                                .batch = BATCH,
                                .max_norm = 1,
                                .seed = 3,
                                .plan = {.exact = true, .budget_bytes = budget_bytes},
                                .device = device};
}

static rn_trainer *open_trainer(rn_device *device, uint64_t budget_bytes) {
    rn_trainer_options options = small(device, budget_bytes);
    rn_trainer *trainer;
    assert_ok(rn_trainer_create(&options, &trainer));
    return trainer;
}

static const rn_plan_summary *summary_of(const rn_trainer *trainer) {
    return rn_plan_get_summary(rn_trainer_plan(trainer));
}

static uint64_t smallest(rn_device *device, uint64_t *out_roomy) {
    rn_trainer *trainer = open_trainer(device, 0);
    uint64_t bytes = summary_of(trainer)->smallest_bytes;
    *out_roomy = summary_of(trainer)->planned_bytes;
    rn_trainer_destroy(trainer);
    return bytes;
}

static rn_device *open_sim(uint64_t memory_bytes) {
    rn_device *sim;
    assert_ok(rn_sim_device_create(&(rn_sim_options){.memory_bytes = memory_bytes}, &sim));
    sim->caps.link_bytes_second = 1e10; // the plan's; copies take no time here
    return sim;
}

static void take_steps(rn_trainer *trainer, uint64_t count) {
    int32_t tokens[ROWS], targets[ROWS];
    float loss;
    for (uint64_t i = 0; i < count; i++) {
        for (uint64_t k = 0; k < ROWS; k++) {
            tokens[k] = (int32_t)((k * 7 + rn_trainer_steps(trainer)) % VOCAB);
            targets[k] = (tokens[k] + 1) % VOCAB;
        }
        assert_ok(rn_trainer_step(trainer, tokens, targets, 0.01, &loss));
    }
}

static void assert_same_files(const char *a, const char *b) {
    size_t a_bytes = 0, b_bytes = 0;
    void *x = test_read(a, &a_bytes), *y = test_read(b, &b_bytes);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(x, y, a_bytes);
    free(x);
    free(y);
}

static void expect_on_host(const rn_trainer *trainer) {
    assert_true(summary_of(trainer)->host_states > 0);
    assert_true(summary_of(trainer)->host_saved > 0);
}

// A checkpoint holds every weight and both its moments.
static void checkpoints_and_exports_see_the_states_that_are_on_the_host(void **state) {
    (void)state;
    rn_device *sim = open_sim(0);
    uint64_t roomy;
    rn_trainer *tight = open_trainer(sim, smallest(sim, &roomy)), *cpu = open_trainer(NULL, 0);
    expect_on_host(tight);
    take_steps(tight, 3);
    take_steps(cpu, 3);
    assert_ok(rn_trainer_save(tight, test_own_path("tight")));
    assert_ok(rn_trainer_save(cpu, test_own_path("cpu")));
    assert_same_files(test_own_path("tight"), test_own_path("cpu"));
    assert_ok(rn_trainer_export(tight, RN_DTYPE_F16, test_own_path("tight.f16")));
    assert_ok(rn_trainer_export(cpu, RN_DTYPE_F16, test_own_path("cpu.f16")));
    assert_same_files(test_own_path("tight.f16"), test_own_path("cpu.f16"));
    rn_trainer_destroy(cpu);
    rn_trainer_destroy(tight);
    rn_device_destroy(sim);
}

// Evaluating between steps, where weights are on the device and some states are not: from the
// smallest budget for both phases on, every larger one works, and the weights are the same.
static void evaluations_leave_states_on_the_host_alone(void **state) {
    (void)state;
    rn_device *sim = open_sim(0);
    rn_trainer *cpu = open_trainer(NULL, 0), *trainer;
    rn_trainer_options options = small(sim, 1);
    bool on_host = false;
    take_steps(cpu, 3);
    assert_ok(rn_trainer_save(cpu, test_own_path("cpu")));
    rn_trainer_destroy(cpu);
    options.evaluate_every = 1;
    assert_fails(RN_OVER_BUDGET, rn_trainer_create(&options, &trainer));
    uint64_t low = rn_last_refusal()->smallest_budget_bytes;
    for (uint64_t i = 0; i < 5; i++) {
        int32_t tokens[ROWS] = {0}, targets[ROWS] = {0};
        float loss;
        options.plan.budget_bytes = low + low * i / 4;
        assert_ok(rn_trainer_create(&options, &trainer));
        on_host |= summary_of(trainer)->host_states > 0;
        for (int k = 0; k < 3; k++) {
            assert_ok(rn_trainer_evaluate(trainer, tokens, targets, &loss));
            take_steps(trainer, 1);
        }
        assert_ok(rn_trainer_save(trainer, test_own_path("evaluated")));
        rn_trainer_destroy(trainer);
        assert_same_files(test_own_path("cpu"), test_own_path("evaluated"));
    }
    assert_true(on_host);
    options.plan.budget_bytes = low - 1;
    assert_fails(RN_OVER_BUDGET, rn_trainer_create(&options, &trainer));
    rn_device_destroy(sim);
}

// Both ways: from where there was no room to where there is, and back.
static void a_training_is_resumed_wherever_its_states_were(void **state) {
    (void)state;
    rn_device *sim = open_sim(0);
    uint64_t roomy, low = smallest(sim, &roomy);
    rn_trainer *through = open_trainer(sim, roomy);
    take_steps(through, 4);
    assert_ok(rn_trainer_save(through, test_own_path("through")));
    rn_trainer_destroy(through);
    for (int tight_first = 0; tight_first < 2; tight_first++) {
        rn_trainer *first = open_trainer(sim, tight_first ? low : roomy);
        take_steps(first, 2);
        assert_ok(rn_trainer_save(first, test_own_path("half")));
        rn_trainer_destroy(first);
        rn_trainer *rest = open_trainer(sim, tight_first ? roomy : low);
        if (!tight_first) expect_on_host(rest);
        assert_ok(rn_trainer_resume(rest, test_own_path("half")));
        take_steps(rest, 2);
        assert_ok(rn_trainer_save(rest, test_own_path("rest")));
        rn_trainer_destroy(rest);
        assert_same_files(test_own_path("rest"), test_own_path("through"));
    }
    rn_device_destroy(sim);
}

// Somebody took memory between the plan and its arena: the second plan has less on the device.
static void a_device_that_is_fuller_than_it_was_gets_states_on_the_host(void **state) {
    (void)state;
    rn_device *probe = open_sim(0);
    uint64_t roomy, low = smallest(probe, &roomy);
    rn_device_destroy(probe);
    rn_device *sim = open_sim(roomy);
    rn_sim_device_take_away(sim, (roomy - low) * 3 / 4);
    rn_trainer *trainer = open_trainer(sim, 0);
    assert_true(summary_of(trainer)->host_states > 0);
    take_steps(trainer, 1);
    rn_trainer_destroy(trainer);
    rn_device_destroy(sim);
}

static void a_host_that_refuses_leaves_nothing_behind(void **state) {
    (void)state;
    rn_device *sim = open_sim(0);
    uint64_t roomy, low = smallest(sim, &roomy);
    rn_trainer_options options = small(sim, low);
    rn_trainer *trainer = open_trainer(sim, low);
    uint64_t host = summary_of(trainer)->host_bytes;
    rn_trainer_destroy(trainer);
    uint64_t held = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, held + host)); // there is more beside the plan
    assert_fails(RN_OVER_BUDGET, rn_trainer_create(&options, &trainer));
    assert_null(trainer);
    assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, held);
    assert_int_equal(rn_ledger_total(rn_device_number(sim)).now_bytes, 0);
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, RN_NO_LIMIT));
    options.plan.host_budget_bytes = host - 1; // of the plan: it says so
    assert_fails(RN_OVER_BUDGET, rn_trainer_create(&options, &trainer));
    assert_non_null(strstr(rn_last_error()->message, "of the host's"));
    rn_device_destroy(sim);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(evaluations_leave_states_on_the_host_alone, test_make_folder),
        cmocka_unit_test_setup(checkpoints_and_exports_see_the_states_that_are_on_the_host,
                               test_make_folder),
        cmocka_unit_test_setup(a_training_is_resumed_wherever_its_states_were, test_make_folder),
        cmocka_unit_test(a_device_that_is_fuller_than_it_was_gets_states_on_the_host),
        cmocka_unit_test(a_host_that_refuses_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// labels: threads
// A device that is fuller than the plan knew: a smaller plan that gives the same, or a refusal with
// the numbers of each try.
#include "recover_attempt.h"
#include "tiny_text.h"

#include <ration/log.h>
#include <ration/memory.h>
#include <ration/train.h>

#include "backend/sim/sim.h"
#include "base/fault.h"
#include "device/device.h"

#define ROWS 3
#define ROOM ((uint64_t)64 << 20)

static chain small = {.layers = 9, .width = 96, .rows = ROWS};
static float *expected;

// ---- a plan and a session of it -----------------------------------------------------------------

// On a device of which somebody else takes something away.
static attempt attempt_on(rn_device *device) {
    return (attempt){.model = &small, .device = device, .change = rn_sim_device_take_away};
}

static rn_device *make_sim(const rn_sim_options *options) {
    rn_device *sim;
    assert_ok(rn_sim_device_create(options, &sim));
    return sim;
}

static uint64_t on_device(const rn_device *device) {
    return rn_ledger_total(device->caps.device).now_bytes;
}

static void expect_y(attempt *a) {
    float y[ROWS * 96];
    assert_ok(chain_run(&small, a->session, ROWS, 0, y));
    assert_memory_equal(y, expected, sizeof y);
}

static void finish(attempt *a) {
    attempt_close(a);
    assert_int_equal(on_device(a->device), 0);
    rn_device_destroy(a->device);
}

static rn_plan_summary summary_of(const rn_device *device, uint64_t budget) {
    rn_plan *plan = chain_plan(&small, rn_device_get_caps(device), budget);
    rn_plan_summary summary = *rn_plan_get_summary(plan);
    rn_plan_destroy(plan);
    return summary;
}

static int open_all(void **state) {
    (void)state;
    rn_weight_source source = chain_memory(&small);
    rn_session *session;
    chain_open(&small);
    rn_plan *plan = chain_plan(&small, rn_cpu_caps(), 0);
    assert_ok(rn_session_create(plan, &source, NULL, &session));
    expected = malloc(ROWS * 96 * sizeof *expected);
    assert_ok(chain_run(&small, session, ROWS, 0, expected));
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    free(expected);
    chain_close(&small);
    return 0;
}

// ---- budgets ------------------------------------------------------------------------------------

static void what_is_free_is_the_plans_whatever_is_held_beside_it(void **state) {
    (void)state;
    rn_device *sim = make_sim(&(rn_sim_options){.memory_bytes = ROOM});
    uint64_t other[RN_PURPOSE_COUNT] = {[RN_PURPOSE_OTHER] = ROOM / 4};
    rn_device_memory memory;
    rn_sim_device_take_away(sim, 0); // from here on it knows what is free
    assert_ok(rn_device_memory_take(sim, other, &memory));
    uint64_t most = (ROOM - ROOM / 4) / 10 * 9;
    for (int planned_only = 0; planned_only < 2; planned_only++) {
        rn_device_budget budget = {.planned_only = planned_only};
        rn_plan_options options = {0};
        assert_ok(rn_plan_options_for(sim, &budget, &options));
        assert_true(options.budget_bytes - options.reserved_bytes <= most);
        assert_int_equal(options.budget_bytes, most + (planned_only ? 0 : ROOM / 4));
    }
    rn_device_memory_release(&memory);
    rn_device_destroy(sim);
}

// ---- it works after all -------------------------------------------------------------------------

static void memory_that_went_after_the_plan_makes_it_smaller(void **state) {
    (void)state;
    attempt a = attempt_on(make_sim(&(rn_sim_options){.memory_bytes = ROOM}));
    rn_plan_summary roomy = summary_of(a.device, 0);
    uint64_t left = (roomy.planned_bytes + roomy.smallest_bytes) / 2;
    a.changes[0] = ROOM - left;
    assert_ok(attempt_recover(&a));
    const rn_plan_summary *s = rn_plan_get_summary(a.plan);
    assert_int_equal(roomy.streamed_bytes, 0);
    assert_true(s->streamed_bytes > 0 && s->planned_bytes <= left);
    assert_int_equal(a.plans, 2);
    assert_int_equal(a.undone, 1);
    assert_int_equal(a.lowered[0], left);
    assert_int_equal(on_device(a.device), s->planned_bytes);
    expect_y(&a);
    finish(&a);
}

// Somebody is faster, once: the second plan leaves an eighth for such people.
static void memory_that_goes_on_going_makes_it_smaller_again(void **state) {
    (void)state;
    attempt a = attempt_on(make_sim(&(rn_sim_options){.memory_bytes = ROOM}));
    rn_plan_summary roomy = summary_of(a.device, 0);
    uint64_t span = roomy.planned_bytes - roomy.smallest_bytes;
    uint64_t left[] = {roomy.smallest_bytes + span / 4 * 3, roomy.smallest_bytes + span / 2};
    a.changes[0] = ROOM - left[0];
    a.changes[1] = ROOM - left[1];
    assert_ok(attempt_recover(&a));
    assert_int_equal(a.plans, 3);
    assert_int_equal(a.lowered[0], left[0]);
    assert_int_equal(a.lowered[1], left[1] - left[1] / 8);
    assert_true(rn_plan_get_summary(a.plan)->planned_bytes <= a.lowered[1]);
    expect_y(&a);
    finish(&a);
}

static void a_refusal_of_the_moment_changes_nothing(void **state) {
    (void)state;
    attempt a = attempt_on(make_sim(&(rn_sim_options){.fail_alloc = 1}));
    rn_plan_summary roomy = summary_of(a.device, 0);
    assert_ok(attempt_recover(&a));
    assert_int_equal(a.plans, 2);
    assert_int_equal(rn_plan_get_summary(a.plan)->planned_bytes, roomy.planned_bytes);
    expect_y(&a);
    finish(&a);
}

static void the_devices_budget_counts_as_its_memory(void **state) {
    (void)state;
    attempt a = attempt_on(make_sim(&(rn_sim_options){0}));
    rn_plan_summary roomy = summary_of(a.device, 0);
    uint64_t left = (roomy.planned_bytes + roomy.smallest_bytes) / 2;
    assert_ok(rn_budget_set(a.device->caps.device, 0, left));
    assert_ok(attempt_recover(&a));
    assert_int_equal(a.plans, 2);
    assert_int_equal(a.lowered[0], left);
    expect_y(&a);
    assert_ok(rn_budget_set(a.device->caps.device, 0, RN_NO_LIMIT));
    finish(&a);
}

static uint64_t cached;
static uint64_t release_cached(rn_device *device) {
    uint64_t bytes = cached;
    cached = 0;
    rn_sim_device_take_away(device, 0);
    return bytes;
}

static void caches_are_given_back_before_it_is_asked(void **state) {
    (void)state;
    attempt a = attempt_on(make_sim(&(rn_sim_options){.memory_bytes = ROOM}));
    rn_plan_summary roomy = summary_of(a.device, 0);
    a.device->release_caches = release_cached;
    cached = a.changes[0] = ROOM - roomy.smallest_bytes;
    assert_ok(attempt_recover(&a));
    assert_int_equal(cached, 0);
    assert_int_equal(a.plans, 2);
    assert_int_equal(rn_plan_get_summary(a.plan)->streamed_bytes, 0);
    finish(&a);
}

// ---- it does not --------------------------------------------------------------------------------

static uint32_t count_asked(const char *text) {
    uint32_t count = 0;
    for (; (text = strstr(text, " asked, ")); text++)
        count++;
    return count;
}

static void three_refusals_are_the_end_with_all_numbers(void **state) {
    (void)state;
    attempt a = attempt_on(make_sim(&(rn_sim_options){.fail_alloc = 1, .fail_allocs = 9}));
    rn_plan_summary roomy = summary_of(a.device, 0);
    assert_fails(RN_OVER_BUDGET, attempt_recover(&a));
    const rn_refusal *refusal = rn_last_refusal();
    assert_int_equal(a.plans, RN_RECOVER_TRIES);
    assert_int_equal(a.undone, RN_RECOVER_TRIES);
    assert_non_null(strstr(rn_last_error()->message, "sim had no room in 3 tries: "));
    assert_non_null(strstr(rn_last_error()->message, "(injected_fault)"));
    assert_int_equal(count_asked(rn_last_error()->message), 3);
    assert_non_null(strstr(rn_last_error()->hint, "the smallest plan takes"));
    assert_int_equal(refusal->device, a.device->caps.device);
    assert_int_equal(refusal->smallest_budget_bytes, roomy.smallest_bytes);
    assert_true(refusal->requested_bytes >= roomy.smallest_bytes &&
                refusal->requested_bytes <= roomy.planned_bytes - roomy.planned_bytes / 8);
    finish(&a);
}

static void too_little_for_any_plan_is_told_with_what_led_to_it(void **state) {
    (void)state;
    attempt a = attempt_on(make_sim(&(rn_sim_options){.memory_bytes = ROOM}));
    rn_plan_summary roomy = summary_of(a.device, 0);
    a.changes[0] = ROOM - roomy.smallest_bytes + 1;
    assert_fails(RN_OVER_BUDGET, attempt_recover(&a));
    assert_int_equal(a.plans, 1);
    assert_int_equal(count_asked(rn_last_error()->message), 1);
    assert_non_null(strstr(rn_last_error()->message, "then 'chain' does not fit"));
    assert_non_null(strstr(rn_last_error()->hint, "the smallest budget that works is"));
    assert_int_equal(rn_last_refusal()->smallest_budget_bytes, roomy.smallest_bytes);
    assert_int_equal(rn_last_refusal()->free_bytes, roomy.smallest_bytes - 1);
    finish(&a);
}

static void other_failures_are_left_alone(void **state) {
    (void)state;
    attempt a = attempt_on(make_sim(&(rn_sim_options){.fail_copy = 1}));
    assert_fails(RN_DEVICE, attempt_recover(&a));
    assert_int_equal(a.plans, 1);
    assert_int_equal(a.undone, 0);
    finish(&a);
    a = attempt_on(make_sim(NULL));
    a.options.budget_bytes = 1; // a plan's own refusal
    assert_fails(RN_OVER_BUDGET, attempt_recover(&a));
    assert_int_equal(a.plans, 0);
    assert_null(strstr(rn_last_error()->message, "had no room"));
    finish(&a);
}

static rn_device *tortured;

static rn_status live(void) {
    attempt a = attempt_on(tortured);
    rn_sim_device_arm(tortured, 1, 0, 0);
    rn_status s = attempt_recover(&a);
    rn_sim_device_arm(tortured, 0, 0, 0);
    attempt_close(&a);
    return s;
}

// Also in the second try.
static void no_refused_allocation_of_the_host_is_fatal(void **state) {
    (void)state;
    tortured = make_sim(NULL);
    assert_true(survive_refusals(live) > 20);
    rn_device_destroy(tortured);
}

// ---- generators ---------------------------------------------------------------------------------

typedef struct thief {
    rn_device *device;
    uint64_t take_away;
    uint32_t plans;
} thief;

static void steal(void *self, const rn_plan *plan) {
    thief *t = self;
    (void)plan;
    if (t->plans++ == 0) rn_sim_device_take_away(t->device, t->take_away);
}

static void a_generator_says_the_same_from_what_is_left(void **state) {
    (void)state;
    static tiny_text tiny = {.layers = 5, .dim = 64, .vocab = 96};
    const rn_sampling greedy = {.logprobs = 20};
    tiny_text_open(&tiny, test_path("tiny.safetensors"));
    rn_device *sim = make_sim(&(rn_sim_options){.memory_bytes = ROOM});
    rn_generator_options options = {.text = {.context = 96, .page_tokens = 8, .rows = 16},
                                    .session.device = sim};
    story wanted, got;
    rn_generator *generator = tiny_text_generator(&tiny, &options);
    rn_plan_summary roomy = *rn_plan_get_summary(generator->plan);
    assert_ok(story_tell(generator, &greedy, 1, 20, 40, &wanted));
    rn_generator_destroy(generator);
    uint64_t left = roomy.smallest_bytes + (roomy.planned_bytes - roomy.smallest_bytes) / 3;
    thief t = {.device = sim, .take_away = ROOM - left};
    options.planned = steal;
    options.planned_self = &t;
    options.device_budget = (rn_device_budget){.bytes = ROOM, .planned_only = true};
    generator = tiny_text_generator(&tiny, &options);
    const rn_plan_summary *s = rn_plan_get_summary(generator->plan);
    assert_int_equal(t.plans, 2);
    assert_true(s->streamed_bytes > 0 && s->planned_bytes <= left);
    assert_int_equal(on_device(sim), s->planned_bytes);
    assert_ok(story_tell(generator, &greedy, 1, 20, 40, &got));
    story_expect(&got, &wanted);
    rn_generator_destroy(generator);
    assert_int_equal(on_device(sim), 0);
    rn_device_destroy(sim);
    tiny_text_close(&tiny);
}

// What is refused from here on is not asked for: prompts, passes, rows that differ.
static void a_generator_takes_nothing_of_the_device_later(void **state) {
    (void)state;
    static tiny_text tiny = {.layers = 5, .dim = 64, .vocab = 96};
    const rn_sampling greedy = {.logprobs = 20};
    uint64_t other[RN_PURPOSE_COUNT] = {[RN_PURPOSE_OTHER] = 64};
    rn_device_memory memory;
    tiny_text_open(&tiny, test_path("tiny.safetensors"));
    rn_device *sim = make_sim(&(rn_sim_options){.memory_bytes = ROOM});
    rn_generator_options options = {.text = {.context = 96, .page_tokens = 8, .rows = 16},
                                    .session.device = sim};
    for (int tight = 0; tight < 2; tight++) {
        story got;
        rn_generator *generator = tiny_text_generator(&tiny, &options);
        const rn_plan_summary *s = rn_plan_get_summary(generator->plan);
        assert_int_equal(s->streamed_bytes > 0, tight);
        options.device_budget.planned_only = true;
        options.device_budget.bytes = (s->smallest_bytes + s->planned_bytes) / 2;
        rn_sim_device_arm(sim, 1, 0, 0);
        assert_ok(story_tell(generator, &greedy, 1, 20, 40, &got));
        assert_fails(RN_NO_MEMORY, rn_device_memory_take(sim, other, &memory)); // armed to the end
        rn_generator_destroy(generator);
    }
    rn_device_destroy(sim);
    tiny_text_close(&tiny);
}

// Budgets for all of the device keep a reserve, which this one does not have any more.
static void a_generator_without_room_tells_what_was_free(void **state) {
    (void)state;
    static const rn_device_budget budgets[] = {{0}, {.bytes = ROOM}};
    static tiny_text tiny = {.layers = 3, .dim = 32, .vocab = 64};
    tiny_text_open(&tiny, test_path("tiny.safetensors"));
    rn_device *sim = make_sim(&(rn_sim_options){.memory_bytes = ROOM});
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (int i = 0; i < 2; i++) {
        thief t = {.device = sim, .take_away = ROOM - 5000};
        rn_generator_options options = {.text = {.context = 96, .page_tokens = 8, .rows = 16},
                                        .device_budget = budgets[i],
                                        .session.device = sim,
                                        .planned = steal,
                                        .planned_self = &t};
        rn_generator *generator;
        rn_sim_device_take_away(sim, 0);
        assert_fails(RN_OVER_BUDGET, rn_generator_create_from(&tiny.maker, &options, &generator));
        assert_non_null(strstr(rn_last_error()->message, "asked, 4.88 KiB free (over_budget)"));
        assert_int_equal(on_device(sim), 0);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
    }
    rn_device_destroy(sim);
    tiny_text_close(&tiny);
}

// ---- training -----------------------------------------------------------------------------------

enum { BATCH = 8, TOKENS = 16, VOCAB = 24 };

static rn_trainer_options trainer_options(rn_device *device) {
    return (rn_trainer_options){.layers = 2,
                                .dim = 16,
                                .heads = 4,
                                .kv_heads = 2,
                                .ffn = 64,
                                .vocab_size = VOCAB,
                                .tokens = TOKENS,
                                .batch = BATCH,
                                .seed = 3,
                                .device = device};
}

static float train(rn_trainer *trainer) {
    int32_t tokens[BATCH * TOKENS], targets[BATCH * TOKENS];
    float loss = 0;
    for (int i = 0; i < BATCH * TOKENS; i++) {
        tokens[i] = i * 7 % VOCAB;
        targets[i] = (i * 7 + 1) % VOCAB;
    }
    for (int step = 0; step < 20; step++)
        assert_ok(rn_trainer_step(trainer, tokens, targets, 0.01, &loss));
    return loss;
}

// The batch is cut, and really is: the arena is of a part of it.
static void a_training_step_is_cut_into_micro_batches(void **state) {
    (void)state;
    rn_device *sim = make_sim(&(rn_sim_options){.memory_bytes = ROOM});
    rn_trainer_options options = trainer_options(sim);
    rn_trainer *trainer;
    assert_ok(rn_trainer_create(&options, &trainer));
    rn_plan_summary roomy = *rn_plan_get_summary(rn_trainer_plan(trainer));
    float whole = train(trainer);
    rn_trainer_destroy(trainer);
    assert_int_equal(roomy.micro_batches, 1);

    rn_sim_device_take_away(sim, ROOM - roomy.smallest_bytes - 64);
    assert_ok(rn_trainer_create(&options, &trainer));
    const rn_plan_summary *s = rn_plan_get_summary(rn_trainer_plan(trainer));
    assert_true(s->micro_batches > 1);
    assert_int_equal(on_device(sim), s->planned_bytes);
    assert_true(s->planned_bytes <= roomy.smallest_bytes + 64);
    float cut = train(trainer);
    assert_true(fabsf(cut - whole) < 1e-3f * whole);
    rn_trainer_destroy(trainer);

    rn_sim_device_take_away(sim, 0);
    options.plan.exact = true; // single sequences, added in a tree that holds more sums than one
    assert_ok(rn_trainer_create(&options, &trainer));
    assert_int_equal(rn_plan_get_summary(rn_trainer_plan(trainer))->micro_batches, BATCH);
    cut = train(trainer);
    assert_true(fabsf(cut - whole) < 1e-3f * whole);
    rn_trainer_destroy(trainer);
    assert_int_equal(on_device(sim), 0);
    rn_device_destroy(sim);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_free_is_the_plans_whatever_is_held_beside_it),
        cmocka_unit_test(memory_that_went_after_the_plan_makes_it_smaller),
        cmocka_unit_test(memory_that_goes_on_going_makes_it_smaller_again),
        cmocka_unit_test(a_refusal_of_the_moment_changes_nothing),
        cmocka_unit_test(the_devices_budget_counts_as_its_memory),
        cmocka_unit_test(caches_are_given_back_before_it_is_asked),
        cmocka_unit_test(three_refusals_are_the_end_with_all_numbers),
        cmocka_unit_test(too_little_for_any_plan_is_told_with_what_led_to_it),
        cmocka_unit_test(other_failures_are_left_alone),
        cmocka_unit_test(no_refused_allocation_of_the_host_is_fatal),
        cmocka_unit_test(a_generator_says_the_same_from_what_is_left),
        cmocka_unit_test(a_generator_takes_nothing_of_the_device_later),
        cmocka_unit_test(a_generator_without_room_tells_what_was_free),
        cmocka_unit_test(a_training_step_is_cut_into_micro_batches),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}

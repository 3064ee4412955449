// Text at every budget, from roomy down to the floor, with guesses and without, alone or in
// company: the same tokens and the same logprobs to the bit, within what was planned; below the
// floor there is a refusal.
#include "support.h"
#include "tiny_text.h"

#include <ration/memory.h>

enum { PROMPT = 37, TOLD = 20, BUDGETS = 4 };

static tiny_text tiny = {.layers = 5, .dim = 64, .vocab = 160};
static const rn_sampling samplings[2] = {
    {.logprobs = 20}, {.temperature = 0.7f, .top_p = 0.9f, .seed = 3, .logprobs = 20}};
static story expected[2];
static uint64_t floor_bytes, roomy_bytes; // budgets, the generator's own bytes included

static rn_generator_options make_options(uint64_t budget) {
    return (rn_generator_options){
        .text = {.context = 96, .page_tokens = 16, .sequences = 2, .rows = 32},
        .plan = {.budget_bytes = budget},
        .session = {.audit = true}};
}

static rn_generator *create(const rn_generator_options *options) {
    return tiny_text_generator(&tiny, options);
}

static int open_tiny(void **state) {
    (void)state;
    tiny_text_open(&tiny, test_path("tiny.safetensors"));
    rn_generator_options options = make_options(0);
    rn_generator *generator = create(&options);
    const rn_plan_summary *s = rn_plan_get_summary(generator->plan);
    uint64_t own = generator->memory.held_bytes + sizeof *generator;
    floor_bytes = own + s->smallest_bytes;
    roomy_bytes = own + s->planned_bytes;
    for (int i = 0; i < 2; i++)
        assert_ok(story_tell(generator, &samplings[i], 5, PROMPT, TOLD, &expected[i]));
    rn_generator_destroy(generator);
    return 0;
}

static int close_tiny(void **state) {
    (void)state;
    tiny_text_close(&tiny);
    return 0;
}

static uint64_t budget_at(uint32_t i) {
    return floor_bytes + (roomy_bytes - floor_bytes) * i / (BUDGETS - 1);
}

// The two stories side by side: greedy and drawn.
static void tell_both(rn_generator *generator) {
    rn_sequence *sequences[2];
    story got[2] = {{0}};
    uint32_t ids[PROMPT];
    story_prompt(5, tiny.vocab, PROMPT, ids);
    for (int i = 0; i < 2; i++) {
        assert_ok(rn_sequence_create(generator, &samplings[i], &sequences[i]));
        assert_ok(rn_sequence_feed(sequences[i], ids, PROMPT));
    }
    while (got[0].count < TOLD || got[1].count < TOLD) {
        assert_ok(rn_generator_step(generator));
        for (int i = 0; i < 2; i++)
            story_take(&got[i], sequences[i], TOLD);
    }
    for (int i = 0; i < 2; i++) {
        story_expect(&got[i], &expected[i]);
        rn_sequence_destroy(sequences[i]);
    }
}

static void check_facts(const rn_generator *generator) {
    const rn_plan_summary *s = rn_plan_get_summary(generator->plan);
    rn_generator_facts facts = rn_generator_get_facts(generator);
    assert_int_equal(facts.session.live_mismatch_step, UINT64_MAX);
    assert_int_equal(facts.session.live_peak_bytes, s->live_peak_bytes);
    assert_true(facts.session.read_bytes >= s->streamed_bytes * facts.steps);
}

static void tell_at(uint64_t budget, rn_speculation speculation, uint64_t *out_streamed) {
    rn_generator_options options = make_options(budget);
    uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes;
    options.speculation = speculation;
    rn_generator *generator = create(&options);
    const rn_plan_summary *s = rn_plan_get_summary(generator->plan);
    assert_true(s->planned_bytes + generator->memory.held_bytes <= budget);
    story got;
    for (int i = 0; i < 2; i++) {
        assert_ok(story_tell(generator, &samplings[i], 5, PROMPT, TOLD, &got));
        story_expect(&got, &expected[i]);
    }
    tell_both(generator);
    check_facts(generator);
    *out_streamed = s->streamed_bytes;
    rn_generator_destroy(generator);
    assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes, before);
}

static void every_budget_tells_the_same_story(void **state) {
    (void)state;
    uint64_t streamed = 0, last = 0;
    for (uint32_t i = 0; i < BUDGETS; i++) {
        tell_at(budget_at(i), RN_SPECULATE_NEVER, &streamed);
        if (i) assert_true(streamed <= last);
        last = streamed;
    }
    assert_int_equal(last, 0);
    tell_at(floor_bytes, RN_SPECULATE_NEVER, &streamed);
    assert_true(streamed > 0);
}

static void guesses_change_no_budget_s_story(void **state) {
    (void)state;
    uint64_t streamed;
    for (uint32_t i = 0; i < BUDGETS; i++) {
        tell_at(budget_at(i), RN_SPECULATE_AUTO, &streamed);
        tell_at(budget_at(i), RN_SPECULATE_ALWAYS, &streamed);
    }
}

static void below_the_floor_there_is_a_refusal(void **state) {
    (void)state;
    rn_generator_options options = make_options(floor_bytes - 1);
    rn_generator *generator;
    assert_fails(RN_OVER_BUDGET, rn_generator_create_from(&tiny.maker, &options, &generator));
    assert_null(generator);
    assert_int_equal(rn_last_refusal()->smallest_budget_bytes, floor_bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_budget_tells_the_same_story),
        cmocka_unit_test(guesses_change_no_budget_s_story),
        cmocka_unit_test(below_the_floor_there_is_a_refusal),
    };
    return cmocka_run_group_tests(tests, open_tiny, close_tiny);
}

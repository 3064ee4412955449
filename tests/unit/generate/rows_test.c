// Who gets the rows of a step: those that make tokens, then the shortest prompts; nobody for ever.
#include "support.h"
#include "tiny_text.h"

static tiny_text tiny = {.layers = 1, .dim = 64, .vocab = 96};

static int open_tiny(void **state) {
    (void)state;
    tiny_text_open(&tiny, test_path("tiny.safetensors"));
    return 0;
}

static int close_tiny(void **state) {
    (void)state;
    tiny_text_close(&tiny);
    return 0;
}

static rn_generator_options base_options(void) {
    return (rn_generator_options){
        .text = {.context = 128, .page_tokens = 8, .sequences = 8, .rows = 16},
        .speculation = RN_SPECULATE_NEVER};
}

static rn_generator *create(const rn_generator_options *options) {
    return tiny_text_generator(&tiny, options);
}

static rn_sequence *begin(rn_generator *generator, uint32_t seed, uint32_t prompt) {
    rn_sequence *sequence;
    uint32_t ids[STORY_MOST];
    story_prompt(seed, tiny.vocab, prompt, ids);
    assert_ok(rn_sequence_create(generator, NULL, &sequence));
    assert_ok(rn_sequence_feed(sequence, ids, prompt));
    return sequence;
}

static uint64_t step(rn_generator *generator) {
    uint64_t before = rn_generator_get_facts(generator).prompt_tokens;
    assert_ok(rn_generator_step(generator));
    return rn_generator_get_facts(generator).prompt_tokens - before;
}

static bool take(rn_sequence *sequence) {
    rn_sample sample;
    return rn_sequence_take(sequence, &sample);
}

static void a_short_prompt_does_not_wait_behind_a_long_one(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    rn_generator *generator = create(&options);
    rn_sequence *slow = begin(generator, 1, 100), *quick = begin(generator, 2, 5);
    assert_int_equal(step(generator), 16);
    assert_true(take(quick));
    assert_int_equal(slow->read, 11);
    rn_generator_destroy(generator);
}

static void among_equals_the_first_comes_first(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    rn_generator *generator = create(&options);
    rn_sequence *first = begin(generator, 1, 14), *second = begin(generator, 2, 15);
    rn_sequence *third = begin(generator, 3, 12);
    step(generator);
    assert_true(take(first) && !take(second));
    assert_int_equal(second->read, 2);
    assert_int_equal(third->read, 0);
    rn_generator_destroy(generator);
}

// Short ones fill every step, and more come than are ever served.
static void a_long_prompt_does_not_starve(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    rn_generator *generator = create(&options);
    rn_sequence *slow = begin(generator, 1, 100);
    int steps = 0;
    for (; !take(slow) && steps < 100; steps++) {
        rn_sequence *quick = begin(generator, 2 + (uint32_t)steps, 16);
        step(generator);
        rn_sequence_destroy(quick);
    }
    assert_true(steps > 7); // seven chunks, and others before them
    assert_true(steps < 35);
    rn_generator_destroy(generator);
}

static void whoever_makes_tokens_gets_a_row_of_every_pass(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    rn_generator *generator = create(&options);
    rn_sequence *makers[3];
    for (uint32_t i = 0; i < 3; i++)
        makers[i] = begin(generator, i, 5);
    step(generator);
    rn_sequence *slow = begin(generator, 9, 100);
    while (!take(slow)) {
        for (int i = 0; i < 3; i++)
            assert_true(take(makers[i]));
        uint64_t read = step(generator);
        assert_true(read == 13 || slow->count > 100);
    }
    rn_generator_destroy(generator);
}

static void beside_makers_prompts_get_no_more_rows_than_allowed(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    options.prompt_rows = 4;
    rn_generator *generator = create(&options);
    (void)begin(generator, 1, 100), (void)begin(generator, 2, 100);
    assert_int_equal(step(generator), 16); // nobody makes tokens yet
    rn_sequence *maker = begin(generator, 3, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(step(generator), i == 0 ? 5 : 4); // its own token first
        assert_true(take(maker));
    }
    rn_sequence_pause(maker);
    assert_int_equal(step(generator), 16);
    rn_generator_destroy(generator);
}

// Times are set here, not measured: 1 ms a row, of 10 ms (an eighth less) 3 are the answers' own.
static void beside_makers_prompts_get_the_rows_that_fit_the_gap(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    options.max_gap_ms = 10;
    rn_generator *generator = create(&options);
    (void)begin(generator, 1, 100), (void)begin(generator, 2, 100);
    assert_int_equal(generator->pace.gap_ns, 10000000);
    const rn_pace known = {.gap_ns = 10000000, .token_ns = 3e6, .row_ns = 1e6};
    generator->pace = known;
    assert_int_equal(step(generator), 16); // nobody makes tokens yet
    rn_sequence *maker = begin(generator, 3, 1);
    for (int i = 0; i < 3; i++) {
        generator->pace = known;
        assert_int_equal(step(generator), i == 0 ? 6 : 5); // its own token first
        assert_true(take(maker));
    }
    rn_generator_destroy(generator);
}

// A prompt that gets no page does not keep the only row from those that could use it.
static void a_row_goes_to_whoever_can_use_it(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    options.text.rows = 1;
    options.text.pages = 2;
    rn_generator *generator = create(&options);
    rn_sequence *maker = begin(generator, 1, 3);
    for (int i = 0; i < 3; i++)
        step(generator);
    assert_true(take(maker));
    assert_true(rn_sequence_reserve(maker, 16));
    rn_sequence *waiting = begin(generator, 2, 5);
    for (int i = 0; i < 10; i++) {
        step(generator);
        assert_true(take(maker));
        assert_int_equal(rn_sequence_is_waiting(waiting), i > 0); // the maker was in front
    }
    rn_generator_destroy(generator);
}

// With one row a step, too: there is always a prompt that is not yet read.
static void prompts_do_not_starve_the_makers(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    options.text.rows = 1;
    rn_generator *generator = create(&options);
    rn_sequence *maker = begin(generator, 1, 1), *prompts[3];
    for (uint32_t i = 0; i < 3; i++)
        prompts[i] = begin(generator, 2 + i, 6);
    uint32_t made = 0;
    for (uint32_t i = 0; i < 96; i++) {
        step(generator);
        made += take(maker);
        if (i % 4) continue;
        rn_sequence **oldest = &prompts[i / 4 % 3];
        rn_sequence_destroy(*oldest);
        *oldest = begin(generator, 5 + i, 6);
    }
    assert_true(made >= 5);
    rn_generator_destroy(generator);
}

// It would find the page that the other reads; but the other has none to read it to.
static void nobody_waits_for_one_that_waits(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    options.text.pages = 5;
    options.prefix_caching = true;
    rn_generator *generator = create(&options);
    rn_sequence *first = begin(generator, 1, 20), *promised = begin(generator, 1, 25);
    rn_sequence *owner = begin(generator, 2, 3);
    assert_true(rn_sequence_reserve(owner, 8));
    assert_true(rn_sequence_reserve(promised, 32));
    for (int i = 0; i < 2; i++)
        step(generator);
    assert_true(take(owner) && take(promised));
    assert_false(rn_sequence_is_waiting(promised));
    assert_true(rn_sequence_is_waiting(first));
    rn_generator_destroy(generator);
}

static void many_sequences_are_all_served(void **state) {
    (void)state;
    enum { MANY = 256 };
    rn_generator_options options = base_options();
    options.text.sequences = MANY;
    options.text.context = 24;
    options.text.rows = 300;
    options.prefix_caching = true;
    rn_generator *generator = create(&options);
    rn_sequence *sequences[MANY];
    for (uint32_t i = 0; i < MANY; i++)
        sequences[i] = begin(generator, i % 50, 10 + i % 3);
    uint32_t steps = 0, made[MANY] = {0}, done = 0;
    for (; done < MANY; steps++) {
        step(generator);
        for (int i = 0; i < MANY; i++)
            while (take(sequences[i]))
                if (++made[i] == 3) done++;
    }
    assert_true(steps < 20);
    rn_generator_destroy(generator);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_prompt_does_not_wait_behind_a_long_one),
        cmocka_unit_test(among_equals_the_first_comes_first),
        cmocka_unit_test(a_long_prompt_does_not_starve),
        cmocka_unit_test(whoever_makes_tokens_gets_a_row_of_every_pass),
        cmocka_unit_test(beside_makers_prompts_get_no_more_rows_than_allowed),
        cmocka_unit_test(beside_makers_prompts_get_the_rows_that_fit_the_gap),
        cmocka_unit_test(a_row_goes_to_whoever_can_use_it),
        cmocka_unit_test(prompts_do_not_starve_the_makers),
        cmocka_unit_test(nobody_waits_for_one_that_waits),
        cmocka_unit_test(many_sequences_are_all_served),
    };
    return cmocka_run_group_tests(tests, open_tiny, close_tiny);
}

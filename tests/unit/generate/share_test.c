// Beginnings that sequences share, pages that were promised, failures of one: whatever happens
// among them, what each says is what it says alone.
#include "support.h"
#include "tiny_text.h"

#include <ration/memory.h>

#include "base/fault.h"

#include <math.h>

enum { TEXTS = 4, COMMON = 29, PROMPT = 43, TOLD = 24, CONTEXT = 96, BAD = 7 };

static tiny_text tiny = {.layers = 2, .dim = 128, .vocab = 96, .bad_token = BAD};
static const rn_logit_bias never_bad = {BAD, -INFINITY};
static const rn_sampling samplings[2] = {{.bias = &never_bad, .bias_count = 1, .logprobs = 20},
                                         {.temperature = 0.8f,
                                          .top_k = 40,
                                          .top_p = 0.95f,
                                          .seed = 9,
                                          .bias = &never_bad,
                                          .bias_count = 1,
                                          .logprobs = 20}};
static uint32_t prompts[TEXTS][PROMPT]; // the first COMMON tokens are those of all
static story expected[TEXTS][2];

static rn_generator_options base_options(void) {
    return (rn_generator_options){
        .text = {.context = CONTEXT, .page_tokens = 8, .sequences = 2 * TEXTS, .rows = 16},
        .speculation = RN_SPECULATE_NEVER,
        .prefix_caching = true};
}

static rn_generator *create(const rn_generator_options *options) {
    return tiny_text_generator(&tiny, options);
}

static rn_sequence *begin(rn_generator *generator, const rn_sampling *sampling, const uint32_t *ids,
                          uint32_t count) {
    rn_sequence *sequence;
    assert_ok(rn_sequence_create(generator, sampling, &sequence));
    assert_ok(rn_sequence_feed(sequence, ids, count));
    return sequence;
}

// Steps until it has said so much.
static void tell(rn_generator *generator, rn_sequence *sequence, uint32_t count, story *out) {
    out->count = 0;
    while (out->count < count) {
        assert_ok(rn_generator_step(generator));
        assert_null(rn_sequence_failure(sequence));
        story_take(out, sequence, count);
    }
}

static void expect_alone(rn_generator *generator, int which, int taste) {
    story got;
    rn_sequence *sequence = begin(generator, &samplings[taste], prompts[which], PROMPT);
    tell(generator, sequence, TOLD, &got);
    rn_sequence_destroy(sequence);
    story_expect(&got, &expected[which][taste]);
}

// All texts in both tastes at once.
static void expect_together(rn_generator *generator) {
    rn_sequence *sequences[2 * TEXTS];
    static story got[2 * TEXTS];
    uint32_t done = 0;
    for (int i = 0; i < 2 * TEXTS; i++) {
        sequences[i] = begin(generator, &samplings[i % 2], prompts[i / 2], PROMPT);
        got[i].count = 0;
    }
    while (done < 2 * TEXTS) {
        assert_ok(rn_generator_step(generator));
        for (int i = 0; i < 2 * TEXTS; i++) {
            if (!sequences[i]) continue;
            story_take(&got[i], sequences[i], TOLD);
            if (got[i].count < TOLD) continue;
            rn_sequence_destroy(sequences[i]);
            sequences[i] = NULL;
            done++;
        }
    }
    for (int i = 0; i < 2 * TEXTS; i++)
        story_expect(&got[i], &expected[i / 2][i % 2]);
}

static void find_expected(void) {
    rn_generator_options options = base_options();
    options.prefix_caching = false;
    rn_generator *generator = create(&options);
    for (int i = 0; i < 2 * TEXTS; i++) {
        rn_sequence *sequence = begin(generator, &samplings[i % 2], prompts[i / 2], PROMPT);
        tell(generator, sequence, TOLD, &expected[i / 2][i % 2]);
        rn_sequence_destroy(sequence);
    }
    assert_int_equal(rn_generator_get_facts(generator).kv_pages_kept, 0);
    assert_int_equal(rn_generator_get_facts(generator).shared_tokens, 0);
    rn_generator_destroy(generator);
}

static void make_prompts(void) {
    for (uint32_t i = 0; i < TEXTS; i++) {
        story_prompt(20 + i, tiny.vocab, PROMPT, prompts[i]);
        memcpy(prompts[i], prompts[0], COMMON * sizeof prompts[0][0]);
        for (int j = 0; j < PROMPT; j++)
            prompts[i][j] += prompts[i][j] == BAD;
    }
}

static int open_tiny(void **state) {
    (void)state;
    make_prompts();
    tiny_text_open(&tiny, test_path("tiny.safetensors"));
    find_expected();
    return 0;
}

static int close_tiny(void **state) {
    (void)state;
    tiny_text_close(&tiny);
    return 0;
}

// ---- equal beginnings ---------------------------------------------------------------------------

static void sharing_changes_no_bit(void **state) {
    (void)state;
    static const uint32_t rows[] = {3, 16, 80}, pages[] = {4, 8, 13};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rn_generator_options options = base_options();
        options.text.rows = rows[i];
        options.text.page_tokens = pages[i];
        options.speculation = i == 1 ? RN_SPECULATE_ALWAYS : RN_SPECULATE_NEVER;
        rn_generator *generator = create(&options);
        expect_together(generator);
        for (int j = 0; j < TEXTS; j++)
            expect_alone(generator, j, j % 2);
        rn_generator_facts facts = rn_generator_get_facts(generator);
        assert_int_equal(facts.prompt_tokens + facts.shared_tokens, 3 * TEXTS * PROMPT);
        assert_true(facts.shared_tokens > (3 * TEXTS - 1) * (COMMON - pages[i]));
        assert_int_equal(facts.kv_pages, 0);
        assert_true(facts.kv_pages_kept > 0);
        rn_generator_destroy(generator);
    }
}

static void keys_and_values_of_any_dtype_are_shared(void **state) {
    (void)state;
    static const rn_dtype dtypes[] = {RN_DTYPE_F16, RN_DTYPE_Q8_0, RN_DTYPE_F32};
    for (int i = 0; i < 3; i++) {
        tiny.kv_dtype = dtypes[i];
        find_expected();
        rn_generator_options options = base_options();
        rn_generator *generator = create(&options);
        expect_together(generator);
        expect_together(generator);
        assert_true(rn_generator_get_facts(generator).shared_tokens > 0);
        rn_generator_destroy(generator);
    }
}

// Pages for two texts and a bit: what is kept has to go again and again.
static void little_room_changes_no_bit(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    options.text.pages = 20;
    rn_generator *generator = create(&options);
    for (int i = 0; i < 4 * TEXTS; i++) {
        rn_sequence *other =
            begin(generator, &samplings[0], prompts[(i * 3 + 1) % TEXTS], PROMPT - i);
        expect_alone(generator, i % TEXTS, i % 2);
        rn_sequence_destroy(other);
    }
    rn_generator_facts facts = rn_generator_get_facts(generator);
    assert_true(facts.shared_tokens > 0);
    assert_int_equal(facts.kv_pages_total, 20);
    assert_int_equal(facts.kv_pages, 0);
    assert_true(facts.kv_pages_kept > 10 && facts.kv_pages_kept <= 20);
    rn_generator_destroy(generator);
}

// The n of one request: all were fed before any was read, and yet it is read once.
static void siblings_read_their_prompt_once(void **state) {
    (void)state;
    for (uint32_t rows = 7; rows <= 200; rows += 64) {
        rn_generator_options options = base_options();
        options.text.rows = rows;
        rn_generator *generator = create(&options);
        rn_sequence *siblings[5];
        story got[5] = {{0}};
        for (int i = 0; i < 5; i++)
            siblings[i] = begin(generator, &samplings[1], prompts[2], PROMPT);
        while (got[4].count < TOLD) {
            assert_ok(rn_generator_step(generator));
            for (int i = 0; i < 5; i++)
                story_take(&got[i], siblings[i], TOLD);
        }
        uint32_t tail = PROMPT % 8;
        assert_int_equal(rn_generator_get_facts(generator).prompt_tokens, PROMPT + 4 * tail);
        assert_int_equal(rn_sequence_shared(siblings[0]), 0);
        assert_int_equal(rn_sequence_shared(siblings[4]), PROMPT - tail);
        for (int i = 0; i < 5; i++)
            story_expect(&got[i], &expected[2][1]);
        rn_generator_destroy(generator);
    }
}

static rn_sequence *begin_for(rn_generator *generator, uint32_t owner) {
    rn_sequence *sequence;
    assert_ok(rn_sequence_create(generator, &samplings[1], &sequence));
    rn_sequence_set_owner(sequence, owner);
    assert_ok(rn_sequence_feed(sequence, prompts[2], PROMPT));
    return sequence;
}

// At the same time, and of what is kept: two owners' pages are never the same.
static void owners_share_among_themselves_only(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    rn_generator *generator = create(&options);
    const uint32_t tail = PROMPT % 8;
    for (int round = 0; round < 2; round++) {
        rn_sequence *sequences[4];
        story got[4] = {{0}};
        uint64_t before = rn_generator_get_facts(generator).prompt_tokens;
        for (uint32_t i = 0; i < 4; i++)
            sequences[i] = begin_for(generator, 5 + i / 2);
        while (got[1].count < TOLD || got[3].count < TOLD) {
            assert_ok(rn_generator_step(generator));
            for (int i = 0; i < 4; i++)
                story_take(&got[i], sequences[i], TOLD);
        }
        uint64_t read = rn_generator_get_facts(generator).prompt_tokens - before;
        assert_int_equal(read, round ? 4 * tail : 2 * (PROMPT + tail));
        for (int i = 0; i < 4; i++) {
            bool shares = round > 0 || i % 2 == 1;
            assert_int_equal(rn_sequence_shared(sequences[i]), shares ? PROMPT - tail : 0);
            story_expect(&got[i], &expected[2][1]);
            rn_sequence_destroy(sequences[i]);
        }
    }
    rn_sequence *stranger = begin_for(generator, 4);
    assert_int_equal(rn_sequence_shared(stranger), 0);
    rn_generator_destroy(generator);
}

// The last token is always read: without its row there are no logits.
static void a_prompt_of_whole_pages_is_shared_but_for_the_last(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    rn_generator *generator = create(&options);
    story got[2];
    for (int i = 0; i < 2; i++) {
        rn_sequence *sequence = begin(generator, &samplings[0], prompts[0], 40);
        assert_int_equal(rn_sequence_shared(sequence), i ? 32 : 0);
        tell(generator, sequence, TOLD, &got[i]);
        rn_sequence_destroy(sequence);
    }
    story_expect(&got[1], &got[0]);
    rn_generator_destroy(generator);
}

// An answer is part of the next question, to whichever sequence it is put.
static void what_was_said_is_found_again(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    options.text.sequences = 1;
    rn_generator *generator = create(&options);
    uint32_t history[PROMPT + TOLD];
    size_t count;
    story first, second;
    rn_sequence *sequence = begin(generator, &samplings[0], prompts[1], PROMPT);
    tell(generator, sequence, TOLD, &first);
    memcpy(history, rn_sequence_tokens(sequence, &count), sizeof history);
    assert_int_equal(count, PROMPT + TOLD);
    rn_sequence_destroy(sequence);
    sequence = begin(generator, &samplings[0], history, PROMPT + TOLD - 6);
    assert_int_equal(rn_sequence_shared(sequence), (PROMPT + TOLD - 7) / 8 * 8);
    tell(generator, sequence, 6, &second);
    for (int i = 0; i < 6; i++)
        assert_int_equal(second.samples[i].token, first.samples[TOLD - 6 + i].token);
    assert_ok(rn_sequence_feed(sequence, NULL, 0)); // nothing was found since
    assert_int_equal(rn_sequence_shared(sequence), 0);
    rn_generator_destroy(generator);
}

static void going_back_into_a_shared_page_spoils_nobody(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    rn_generator *generator = create(&options);
    story got, other;
    rn_sequence *first = begin(generator, &samplings[0], prompts[0], PROMPT);
    tell(generator, first, TOLD / 2, &got);
    rn_sequence *second = begin(generator, &samplings[1], prompts[0], PROMPT);
    assert_int_equal(rn_sequence_shared(second), PROMPT / 8 * 8);
    rn_sequence_rewind(second, 20); // within the third page
    assert_ok(rn_sequence_feed(second, prompts[0] + 21, 9));
    tell(generator, second, 5, &other);
    rn_sequence_rewind(second, 20);
    assert_ok(rn_sequence_feed(second, prompts[3] + 20, PROMPT - 20));
    tell(generator, second, TOLD, &other);
    story_expect(&other, &expected[3][1]);
    story_take(&got, first, TOLD);
    while (got.count < TOLD) {
        assert_ok(rn_generator_step(generator));
        story_take(&got, first, TOLD);
    }
    story_expect(&got, &expected[0][0]);
    rn_generator_destroy(generator);
}

// ---- promises -----------------------------------------------------------------------------------

static void a_promised_sequence_never_waits(void **state) {
    (void)state;
    for (int shares = 0; shares < 2; shares++) {
        rn_generator_options options = base_options();
        options.text.pages = 20;
        options.prefix_caching = shares;
        rn_generator *generator = create(&options);
        rn_sequence *promised = begin(generator, &samplings[0], prompts[0], PROMPT);
        assert_true(rn_sequence_reserve(promised, PROMPT + TOLD)); // 9 pages
        assert_true(rn_sequence_reserve(promised, PROMPT + TOLD));
        rn_sequence *greedy[3];
        for (int i = 0; i < 3; i++) // 18 pages
            greedy[i] = begin(generator, &samplings[0], prompts[1 + i], PROMPT);
        assert_false(rn_sequence_reserve(greedy[0], CONTEXT));
        story got = {0}, rest;
        while (got.count < TOLD) {
            assert_ok(rn_generator_step(generator));
            assert_false(rn_sequence_is_waiting(promised));
            story_take(&got, promised, TOLD);
            for (int i = 0; i < 3; i++) {
                rest.count = 0;
                story_take(&rest, greedy[i], STORY_MOST);
            }
        }
        story_expect(&got, &expected[0][0]);
        assert_int_equal(rn_generator_get_facts(generator).kv_pages, 20);
        rn_sequence_destroy(promised);
        assert_int_equal(generator->pool.owed, 0);
        rn_generator_destroy(generator);
    }
}

// Guesses run ahead and are forgotten by each pause; the twin says the same and shares all of it.
static void a_pause_keeps_the_promise(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    options.speculation = RN_SPECULATE_ALWAYS;
    options.text.page_tokens = 2;
    options.text.pages = 2 * (PROMPT + TOLD + 1) / 2;
    rn_generator *generator = create(&options);
    rn_sequence *twins[2];
    story got[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        twins[i] = begin(generator, &samplings[0], prompts[2], PROMPT);
        assert_true(rn_sequence_reserve(twins[i], PROMPT + TOLD));
    }
    while (got[0].count < TOLD || got[1].count < TOLD) {
        assert_ok(rn_generator_step(generator));
        for (int i = 0; i < 2; i++) {
            assert_false(rn_sequence_is_waiting(twins[i]));
            story_take(&got[i], twins[i], got[i].count + 1);
            assert_ok(rn_sequence_feed(twins[i], NULL, 0));
        }
    }
    for (int i = 0; i < 2; i++) {
        got[i].count = TOLD;
        story_expect(&got[i], &expected[2][0]);
    }
    assert_true(rn_generator_get_facts(generator).accepted_tokens > 0);
    rn_generator_destroy(generator);
}

static void pages_that_are_there_already_need_no_promise(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    options.text.pages = 12;
    rn_generator *generator = create(&options);
    rn_sequence *first = begin(generator, &samplings[0], prompts[0], PROMPT);
    story got;
    assert_true(rn_sequence_reserve(first, CONTEXT + 100)); // it cannot be longer than the context
    assert_true(rn_sequence_reserve(first, PROMPT + 5));    // 6 pages
    tell(generator, first, 1, &got);
    rn_sequence *second = begin(generator, &samplings[1], prompts[0], PROMPT); // shares 5
    assert_true(rn_sequence_reserve(second, 11 * 8));
    assert_false(rn_sequence_reserve(second, 12 * 8));
    assert_true(rn_sequence_reserve(first, 0));
    rn_sequence_rewind(second, 0); // takes the promise back
    assert_int_equal(generator->pool.owed, 0);
    rn_generator_destroy(generator);
}

// ---- failures of one ----------------------------------------------------------------------------

static void the_failure_of_one_ends_that_one(void **state) {
    (void)state;
    rn_logit_bias none[96];
    for (uint32_t i = 0; i < 96; i++)
        none[i] = (rn_logit_bias){i, -INFINITY};
    rn_sampling silent = {.bias = none, .bias_count = 96};
    rn_generator_options options = base_options();
    rn_generator *generator = create(&options);
    rn_sequence *good = begin(generator, &samplings[1], prompts[0], PROMPT);
    rn_sequence *bad = begin(generator, &silent, prompts[0], 12);
    rn_sample sample;
    story got = {0};
    size_t count;
    while (got.count < TOLD) {
        assert_ok(rn_generator_step(generator));
        story_take(&got, good, TOLD);
        assert_false(rn_sequence_take(bad, &sample));
        if (got.count == TOLD / 2) {
            assert_int_equal(rn_sequence_failure(bad)->status, RN_INVALID);
            assert_ok(rn_sequence_feed(bad, prompts[3], 5));
            assert_null(rn_sequence_failure(bad));
        }
    }
    story_expect(&got, &expected[0][1]);
    assert_null(rn_sequence_failure(good));
    assert_non_null(strstr(rn_sequence_failure(bad)->message, "forbidden"));
    (void)rn_sequence_tokens(bad, &count);
    assert_int_equal(count, 17);
    rn_sequence_pause(good);
    assert_false(rn_generator_has_work(generator));
    rn_generator_destroy(generator);
}

// What is no number stays with the one that has it, and in no page that another one gets.
static void a_poisoned_sequence_poisons_nobody(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    options.text.pages = 16;
    rn_generator *generator = create(&options);
    uint32_t ids[PROMPT];
    for (int i = 0; i < 3; i++) {
        memcpy(ids, prompts[0], sizeof ids);
        ids[i * 17] = BAD;
        rn_sequence *bad = begin(generator, &samplings[0], ids, PROMPT);
        expect_alone(generator, i, 0);
        assert_int_equal(rn_sequence_failure(bad)->status, RN_CORRUPT);
        rn_sequence_destroy(bad);
        expect_alone(generator, i, 1);
    }
    rn_generator_destroy(generator);
}

// ---- memory -------------------------------------------------------------------------------------

static rn_status live_twice(rn_generator *generator) {
    rn_sequence *sequence;
    for (int i = 0; i < 2; i++) {
        RN_TRY(rn_sequence_create(generator, &samplings[1], &sequence));
        RN_TRY(rn_sequence_feed(sequence, prompts[i], PROMPT));
        assert_true(rn_sequence_reserve(sequence, PROMPT + TOLD));
        while (sequence->count == PROMPT)
            RN_TRY(rn_generator_step(generator));
        rn_sequence_destroy(sequence);
    }
    return RN_OK;
}

static rn_status live(void) {
    rn_generator_options options = base_options();
    rn_generator *generator;
    RN_TRY(rn_generator_create_from(&tiny.maker, &options, &generator));
    rn_status s = live_twice(generator);
    rn_generator_destroy(generator);
    return s;
}

static void every_refused_allocation_is_a_clear_failure(void **state) {
    (void)state;
    assert_true(survive_refusals(live) > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sharing_changes_no_bit),
        cmocka_unit_test(keys_and_values_of_any_dtype_are_shared),
        cmocka_unit_test(little_room_changes_no_bit),
        cmocka_unit_test(siblings_read_their_prompt_once),
        cmocka_unit_test(owners_share_among_themselves_only),
        cmocka_unit_test(a_prompt_of_whole_pages_is_shared_but_for_the_last),
        cmocka_unit_test(what_was_said_is_found_again),
        cmocka_unit_test(going_back_into_a_shared_page_spoils_nobody),
        cmocka_unit_test(a_promised_sequence_never_waits),
        cmocka_unit_test(a_pause_keeps_the_promise),
        cmocka_unit_test(pages_that_are_there_already_need_no_promise),
        cmocka_unit_test(the_failure_of_one_ends_that_one),
        cmocka_unit_test(a_poisoned_sequence_poisons_nobody),
        cmocka_unit_test(every_refused_allocation_is_a_clear_failure),
    };
    return cmocka_run_group_tests(tests, open_tiny, close_tiny);
}

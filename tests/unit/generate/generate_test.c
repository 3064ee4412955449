// Sequences that share a generator: what one says depends on nobody else, on no chunk and no draft;
// and whatever fails leaves them as they were.
#include "support.h"
#include "tiny_text.h"

#include <ration/memory.h>

#include "backend/sim/sim.h"
#include "base/fault.h"
#include "runtime/session.h"

enum { PROMPT = 19, TOLD = 60 };

static tiny_text tiny = {.layers = 3, .dim = 64, .vocab = 96};
static const rn_sampling greedy = {.logprobs = 20};
static const rn_sampling drawn = {.temperature = 0.6f,
                                  .top_k = 50,
                                  .top_p = 0.95f,
                                  .repetition_penalty = 1.05f,
                                  .seed = 42,
                                  .logprobs = 20};
static story expected[2]; // greedy and drawn, of seed 1

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
        .text = {.context = 128, .page_tokens = 8, .sequences = 4, .rows = 16},
        .speculation = RN_SPECULATE_NEVER};
}

static rn_generator *create(const rn_generator_options *options) {
    return tiny_text_generator(&tiny, options);
}

static void find_expected(void) {
    rn_generator_options options = base_options();
    options.text.sequences = 1;
    rn_generator *generator = create(&options);
    assert_ok(story_tell(generator, &greedy, 1, PROMPT, TOLD, &expected[0]));
    assert_ok(story_tell(generator, &drawn, 1, PROMPT, TOLD, &expected[1]));
    rn_generator_destroy(generator);
}

static void expect_stories(rn_generator *generator) {
    story got;
    assert_ok(story_tell(generator, &greedy, 1, PROMPT, TOLD, &got));
    story_expect(&got, &expected[0]);
    assert_ok(story_tell(generator, &drawn, 1, PROMPT, TOLD, &got));
    story_expect(&got, &expected[1]);
}

static rn_sequence *begin(rn_generator *generator, const rn_sampling *sampling, uint32_t seed,
                          uint32_t prompt) {
    rn_sequence *sequence;
    uint32_t ids[STORY_MOST];
    story_prompt(seed, tiny.vocab, prompt, ids);
    assert_ok(rn_sequence_create(generator, sampling, &sequence));
    assert_ok(rn_sequence_feed(sequence, ids, prompt));
    return sequence;
}

// ---- the same text ------------------------------------------------------------------------------

static void chunks_of_any_size_give_the_same_text(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 2, 3, 5, 7, 16, 19, 20, 64};
    find_expected();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rn_generator_options options = base_options();
        options.text.rows = rows[i];
        options.text.page_tokens = 1 + (uint32_t)i * 5;
        rn_generator *generator = create(&options);
        expect_stories(generator);
        rn_generator_facts facts = rn_generator_get_facts(generator);
        assert_int_equal(facts.prompt_tokens, 2 * PROMPT);
        assert_int_equal(facts.new_tokens, 2 * TOLD);
        assert_int_equal(facts.steps, 2 * ((PROMPT + rows[i] - 1) / rows[i] + TOLD - 1));
        assert_int_equal(facts.prefill_steps, 2 * ((PROMPT + rows[i] - 1) / rows[i]));
        assert_int_equal(facts.decoded_tokens, 2 * (TOLD - 1));
        assert_int_equal(facts.kv_pages, 0);
        assert_true(facts.prefill_seconds > 0 && facts.new_seconds > 0);
        rn_generator_destroy(generator);
    }
}

// Others come and go, of other lengths and tastes.
static void company_does_not_change_what_a_sequence_says(void **state) {
    (void)state;
    for (uint32_t rows = 1; rows <= 40; rows += rows < 4 ? 1 : 12) {
        rn_generator_options options = base_options();
        options.text.rows = rows;
        options.speculation = rows % 2 ? RN_SPECULATE_NEVER : RN_SPECULATE_ALWAYS;
        rn_generator *generator = create(&options);
        rn_sequence *others[2] = {begin(generator, &drawn, 7, 33), begin(generator, NULL, 8, 2)};
        rn_sequence *first = begin(generator, &greedy, 1, PROMPT);
        rn_sequence *second = begin(generator, &drawn, 1, PROMPT);
        story got[2] = {{0}}, rest = {0};
        while (got[0].count < TOLD || got[1].count < TOLD) {
            assert_ok(rn_generator_step(generator));
            story_take(&got[0], first, TOLD);
            story_take(&got[1], second, TOLD);
            rest.count = 0;
            story_take(&rest, others[0], STORY_MOST);
            if (others[1]) story_take(&rest, others[1], STORY_MOST);
            if (got[0].count == TOLD / 2 && others[1]) {
                rn_sequence_destroy(others[1]);
                others[1] = NULL;
            }
        }
        story_expect(&got[0], &expected[0]);
        story_expect(&got[1], &expected[1]);
        rn_generator_destroy(generator);
    }
}

static void guesses_save_passes_and_change_nothing(void **state) {
    (void)state;
    for (uint32_t most = 1; most <= 16; most *= 2) {
        rn_generator_options options = base_options();
        options.speculation = RN_SPECULATE_ALWAYS;
        options.speculated_tokens = most;
        options.text.rows = most == 4 ? 3 : 32; // fewer than drafts
        rn_generator *generator = create(&options);
        expect_stories(generator);
        rn_generator_facts facts = rn_generator_get_facts(generator);
        assert_true(facts.accepted_tokens > 0);
        assert_true(facts.speculated_tokens > facts.accepted_tokens); // some were wrong
        assert_true(facts.steps < 2 * TOLD);
        rn_generator_destroy(generator);
    }
}

// A budget halfway between the roomiest plan and the most frugal one, so that weights are streamed.
static uint64_t find_streaming_budget(const rn_generator_options *options) {
    rn_generator *generator = create(options);
    const rn_plan_summary *s = rn_plan_get_summary(generator->plan);
    assert_int_equal(s->streamed_bytes, 0);
    uint64_t own = generator->memory.held_bytes + sizeof *generator;
    uint64_t budget = own + s->smallest_bytes + (s->planned_bytes - s->smallest_bytes) / 2;
    rn_generator_destroy(generator);
    return budget;
}

// All that the ledger gets to see, tables included, is within a budget that counts the process.
static void what_is_held_beside_the_plan_is_within_the_budget(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    options.plan.reserved_bytes = 1;
    rn_generator *generator = create(&options);
    uint64_t own = generator->memory.held_bytes + sizeof *generator;
    uint64_t tables = rn_plan_table_bytes(rn_plan_graph(generator->plan));
    uint64_t planned = rn_plan_get_summary(generator->plan)->planned_bytes;
    uint64_t held = rn_ledger_total(RN_DEVICE_HOST).now_bytes - before;
    assert_true(held <= planned + own + tables);
    assert_int_equal(rn_plan_get_summary(generator->plan)->streamed_bytes, 0);
    rn_generator_destroy(generator);
}

static void only_where_weights_are_streamed_is_there_guessing(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    options.speculation = RN_SPECULATE_AUTO;
    rn_generator *generator = create(&options);
    assert_int_equal(generator->draft_most, 0);
    assert_int_equal(generator->text.logit_rows, 4);
    assert_int_equal(rn_generator_context(generator), 128);
    rn_generator_destroy(generator);
    options.plan.budget_bytes = find_streaming_budget(&options);
    generator = create(&options);
    assert_true(rn_plan_get_summary(generator->plan)->streamed_bytes > 0);
    assert_true(generator->draft_most > 0);
    assert_int_equal(generator->text.logit_rows, 4 + generator->draft_most); // each draft is judged
    expect_stories(generator);
    assert_true(rn_generator_get_facts(generator).accepted_tokens > 0);
    rn_generator_destroy(generator);
}

static void a_device_with_its_own_memory_says_the_same(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    rn_device *sim;
    assert_ok(rn_sim_device_create(&(rn_sim_options){0}, &sim));
    options.session.device = sim;
    options.session.audit = true;
    options.speculation = RN_SPECULATE_ALWAYS;
    rn_generator *generator = create(&options);
    story got;
    assert_ok(story_tell(generator, &greedy, 1, PROMPT, TOLD, &got));
    for (uint32_t i = 0; i < TOLD; i++) // its kernels are the reference: equal but for rounding
        assert_int_equal(got.samples[i].token, expected[0].samples[i].token);
    assert_int_equal(rn_generator_get_facts(generator).session.live_mismatch_step, UINT64_MAX);
    rn_generator_destroy(generator);
    rn_device_destroy(sim);
}

// Many that take the largest logit do not have theirs brought to the host, unless another one of
// the step wants to see them.
static void many_take_the_largest_logit_where_it_is_found(void **state) {
    (void)state;
    enum { MANY = 16 };
    const rn_sampling quiet = {.without_logprob = true};
    rn_generator_options options = base_options();
    rn_device *sim;
    story got;
    assert_ok(rn_sim_device_create(&(rn_sim_options){0}, &sim));
    options.session.device = sim;
    options.session.audit = true;
    options.text.sequences = MANY;
    rn_generator *generator = create(&options);
    assert_true(generator->text.largest);
    assert_ok(story_tell(generator, &quiet, 1, PROMPT, TOLD, &got));
    assert_true(generator->session->unwanted != RN_NO_VALUE);
    for (uint32_t i = 0; i < TOLD; i++)
        assert_int_equal(got.samples[i].token, expected[0].samples[i].token);
    assert_ok(story_tell(generator, &greedy, 1, PROMPT, TOLD, &got)); // with logprobs
    assert_true(generator->session->unwanted == RN_NO_VALUE);
    for (uint32_t i = 0; i < TOLD; i++) {
        assert_int_equal(got.samples[i].token, expected[0].samples[i].token);
        assert_true(got.samples[i].logprob < 0);
    }
    rn_generator_destroy(generator);
    rn_device_destroy(sim);
}

// On a device with its own memory it is the host's: beside the bytes that are on their way.
static void all_of_its_own_memory_is_planned_for(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    rn_device *sim;
    assert_ok(rn_sim_device_create(&(rn_sim_options){0}, &sim));
    options.text.logit_rows = 200; // more than what an arena has left over
    for (int i = 0; i < 2; i++) {
        options.session.device = i ? sim : NULL;
        options.plan.budget_bytes = 0;
        rn_generator *generator = create(&options), *none = NULL;
        uint64_t own = generator->memory.held_bytes + sizeof *generator;
        uint64_t needed = rn_plan_get_summary(generator->plan)->smallest_bytes + own;
        rn_generator_destroy(generator);
        options.plan.budget_bytes = 1;
        assert_fails(RN_OVER_BUDGET, rn_generator_create_from(&tiny.maker, &options, &none));
        if (i == 0) assert_int_equal(rn_last_refusal()->smallest_budget_bytes, needed);
        if (i == 0) continue;
        assert_int_equal(rn_last_refusal()->device, RN_DEVICE_HOST);
        assert_null(strstr(rn_last_error()->hint, "context")); // which is the device's affair
        options.plan.budget_bytes = rn_last_refusal()->smallest_budget_bytes - 1;
        assert_fails(RN_OVER_BUDGET, rn_generator_create_from(&tiny.maker, &options, &none));
        options.plan.budget_bytes++;
        generator = create(&options);
        assert_true(rn_plan_get_summary(generator->plan)->host_bytes + own <=
                    options.plan.budget_bytes);
        rn_generator_destroy(generator);
    }
    rn_device_destroy(sim);
}

// ---- conversations ------------------------------------------------------------------------------

// Tells `count` more tokens.
static void tell(rn_generator *generator, rn_sequence *sequence, uint32_t count, story *out) {
    out->count = 0;
    while (out->count < count) {
        assert_ok(rn_generator_step(generator));
        story_take(out, sequence, count);
    }
}

static void a_paused_sequence_goes_on_from_what_was_taken(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    options.speculation = RN_SPECULATE_ALWAYS;
    rn_generator *generator = create(&options);
    rn_sequence *sequence = begin(generator, &greedy, 1, PROMPT);
    story got;
    tell(generator, sequence, 30, &got);
    rn_sequence_pause(sequence);
    assert_false(rn_generator_has_work(generator));
    assert_ok(rn_generator_step(generator));
    assert_false(rn_sequence_take(sequence, &got.samples[30]));
    assert_ok(rn_sequence_feed(sequence, NULL, 0));
    story rest;
    tell(generator, sequence, TOLD - 30, &rest);
    memcpy(got.samples + 30, rest.samples, (TOLD - 30) * sizeof rest.samples[0]);
    got.count = TOLD;
    story_expect(&got, &expected[0]);
    rn_generator_destroy(generator);
}

// A question, an answer, another question: as if all of it had been one prompt.
static void a_conversation_keeps_its_history(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    options.speculation = RN_SPECULATE_ALWAYS;
    rn_generator *generator = create(&options);
    rn_sequence *sequence = begin(generator, &drawn, 1, PROMPT), *fresh;
    story got, wanted;
    uint32_t more[] = {3, 1, 4, 1, 5};
    size_t count;
    tell(generator, sequence, 21, &got);
    assert_ok(rn_sequence_feed(sequence, more, 5));
    const uint32_t *tokens = rn_sequence_tokens(sequence, &count);
    assert_int_equal(count, PROMPT + 21 + 5);
    assert_int_equal(tokens[PROMPT + 20], got.samples[20].token);
    assert_int_equal(tokens[count - 1], 5);
    assert_ok(rn_sequence_create(generator, &drawn, &fresh));
    assert_ok(rn_sequence_feed(fresh, tokens, count));
    tell(generator, sequence, 30, &got);
    tell(generator, fresh, 30, &wanted);
    story_expect(&got, &wanted);
    rn_generator_destroy(generator);
}

static void rewinding_gives_pages_back_and_forgets(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    rn_generator *generator = create(&options);
    rn_sequence *sequence = begin(generator, &greedy, 1, PROMPT);
    story got;
    size_t count;
    tell(generator, sequence, TOLD, &got);
    assert_int_equal(rn_generator_get_facts(generator).kv_pages, (PROMPT + TOLD - 1 + 7) / 8);
    rn_sequence_rewind(sequence, PROMPT);
    (void)rn_sequence_tokens(sequence, &count);
    assert_int_equal(count, PROMPT);
    assert_int_equal(rn_generator_get_facts(generator).kv_pages, (PROMPT + 7) / 8);
    assert_ok(rn_sequence_feed(sequence, NULL, 0));
    tell(generator, sequence, TOLD, &got);
    story_expect(&got, &expected[0]);
    rn_sequence_rewind(sequence, 1000); // nothing to forget
    (void)rn_sequence_tokens(sequence, &count);
    assert_int_equal(count, PROMPT + TOLD);
    rn_sequence_rewind(sequence, 0);
    assert_int_equal(rn_generator_get_facts(generator).kv_pages, 0);
    assert_int_equal(rn_generator_get_facts(generator).kv_pages_peak, (PROMPT + TOLD - 1 + 7) / 8);
    assert_fails(RN_INVALID, rn_sequence_feed(sequence, NULL, 0));
    rn_generator_destroy(generator);
}

static void a_full_context_is_the_end(void **state) {
    (void)state;
    for (int speculates = 0; speculates < 2; speculates++) {
        rn_generator_options options = base_options();
        options.text.context = 61; // not whole pages
        options.speculation = speculates ? RN_SPECULATE_ALWAYS : RN_SPECULATE_NEVER;
        rn_generator *generator = create(&options);
        rn_sequence *sequence = begin(generator, &greedy, 1, PROMPT);
        story got = {0};
        while (rn_generator_has_work(generator)) {
            assert_ok(rn_generator_step(generator));
            story_take(&got, sequence, STORY_MOST);
        }
        assert_true(rn_sequence_is_full(sequence));
        assert_int_equal(got.count, 61 - PROMPT);
        story wanted = expected[0];
        wanted.count = got.count;
        story_expect(&got, &wanted);
        assert_fails(RN_INVALID, rn_sequence_feed(sequence, (uint32_t[]){1}, 1));
        assert_non_null(strstr(rn_last_error()->message, "61"));
        assert_ok(rn_sequence_feed(sequence, NULL, 0));
        assert_false(rn_generator_has_work(generator));
        rn_sequence_rewind(sequence, 60);
        assert_ok(rn_sequence_feed(sequence, NULL, 0));
        tell(generator, sequence, 1, &got);
        assert_int_equal(got.samples[0].token, wanted.samples[60 - PROMPT].token);
        rn_generator_destroy(generator);
    }
}

static uint64_t kv_now(void) {
    return rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_KV).now_bytes;
}

// Pages are charged as the text reaches them, and what it says is the same.
static void a_kv_cache_grows_by_pages(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    options.text.sequences = 1;
    options.grow_kv = true;
    uint64_t before = kv_now();
    rn_generator *generator = create(&options);
    uint64_t page = rn_generator_get_facts(generator).kv_page_bytes;
    uint64_t planned =
        rn_plan_get_summary(rn_generator_plan(generator))->purpose_bytes[RN_PURPOSE_KV];
    assert_int_equal(kv_now() - before, planned - 16 * page);
    rn_sequence *sequence = begin(generator, &greedy, 1, PROMPT);
    story got = {0};
    for (uint32_t made = 1; made <= TOLD; made++) {
        tell(generator, sequence, 1, &got);
        assert_int_equal(got.samples[0].token, expected[0].samples[made - 1].token);
        uint64_t pages = (PROMPT + made - 1 + 7) / 8; // the last token is not read yet
        assert_int_equal(kv_now() - before, planned - (16 - pages) * page);
    }
    rn_sequence_rewind(sequence, PROMPT); // pages that are there stay
    assert_int_equal(kv_now() - before, planned - (16 - (PROMPT + TOLD - 1 + 7) / 8) * page);
    rn_generator_destroy(generator);
    assert_int_equal(kv_now(), before);
}

// With fewer pages than the context would take, the pages are the context.
static void a_growing_context_ends_with_its_pages(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    options.text.sequences = 1;
    options.grow_kv = true;
    options.text.pages = 5;
    rn_generator *generator = create(&options);
    assert_int_equal(rn_generator_context(generator), 40);
    rn_sequence *sequence = begin(generator, &greedy, 1, PROMPT);
    story got = {0};
    while (rn_generator_has_work(generator)) {
        assert_ok(rn_generator_step(generator));
        story_take(&got, sequence, STORY_MOST);
    }
    assert_true(rn_sequence_is_full(sequence));
    assert_int_equal(got.count, 40 - PROMPT);
    rn_generator_destroy(generator);
}

static void what_makes_no_sense_is_refused(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    options.text.sequences = 1;
    rn_generator *generator = create(&options);
    rn_sequence *sequence = begin(generator, &greedy, 1, PROMPT), *another;
    uint32_t ids[130] = {0};
    size_t count;
    assert_fails(RN_INVALID, rn_sequence_create(generator, &greedy, &another));
    assert_null(another);
    assert_fails(RN_INVALID, rn_sequence_feed(sequence, ids, 130));
    assert_non_null(strstr(rn_last_error()->message, "130"));
    assert_non_null(strstr(rn_last_error()->message, "128"));
    assert_fails(RN_INVALID, rn_sequence_feed(sequence, (uint32_t[]){1, 96}, 2));
    assert_non_null(strstr(rn_last_error()->message, "96"));
    (void)rn_sequence_tokens(sequence, &count);
    assert_int_equal(count, PROMPT);
    rn_sequence_destroy(sequence);
    assert_fails(RN_INVALID,
                 rn_sequence_create(generator, &(rn_sampling){.temperature = -1}, &sequence));
    assert_ok(rn_sequence_create(generator, NULL, &sequence)); // the place is not lost
    rn_generator_destroy(generator);
    options.text.sequences = UINT32_MAX;
    assert_fails(RN_INVALID, rn_generator_create_from(&tiny.maker, &options, &generator));
    assert_null(generator);
}

// ---- too little ---------------------------------------------------------------------------------

static void one_row_a_pass_is_shared_fairly(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    options.text.rows = 1;
    rn_generator *generator = create(&options);
    rn_sequence *sequences[3];
    story stories[3] = {{0}};
    for (uint32_t i = 0; i < 3; i++)
        sequences[i] = begin(generator, &greedy, i, 5);
    for (uint32_t step = 0; step < 15 + 27; step++) {
        assert_ok(rn_generator_step(generator));
        for (int i = 0; i < 3; i++)
            story_take(&stories[i], sequences[i], STORY_MOST);
    }
    for (int i = 0; i < 3; i++) // 3 of the 30 tokens came with the prompts' last rows
        assert_int_equal(stories[i].count, 10);
    rn_generator_destroy(generator);
}

static void a_sequence_without_a_page_waits_for_the_others(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    options.text.pages = 6; // 48 tokens
    rn_generator *generator = create(&options);
    rn_sequence *first = begin(generator, &greedy, 1, PROMPT);
    rn_sequence *second = begin(generator, &drawn, 1, PROMPT);
    story got[2] = {{0}};
    rn_status s;
    while ((s = rn_generator_step(generator)) == RN_OK) {
        story_take(&got[0], first, TOLD);
        story_take(&got[1], second, TOLD);
    }
    assert_int_equal(s, RN_OVER_BUDGET);
    assert_int_equal(rn_last_refusal()->budget_bytes,
                     6 * rn_generator_get_facts(generator).kv_page_bytes);
    assert_int_equal(rn_generator_get_facts(generator).kv_page_bytes, 3 * 2 * 2 * 8 * 16 * 4);
    assert_int_equal(rn_generator_get_facts(generator).kv_pages, 6);
    assert_true(rn_sequence_is_waiting(first) && rn_sequence_is_waiting(second));
    assert_int_equal(got[0].count + got[1].count, 2 * (24 - PROMPT + 1));
    rn_sequence_destroy(second);
    tell(generator, first, 24, &got[1]); // up to 48
    memcpy(got[0].samples + got[0].count, got[1].samples, 24 * sizeof got[1].samples[0]);
    got[0].count += 24;
    story wanted = expected[0];
    wanted.count = got[0].count;
    story_expect(&got[0], &wanted);
    assert_fails(RN_OVER_BUDGET, rn_generator_step(generator));
    assert_fails(RN_OVER_BUDGET, rn_generator_step(generator)); // and again
    rn_sequence_rewind(first, PROMPT);
    assert_ok(rn_sequence_feed(first, NULL, 0));
    tell(generator, first, 5, &got[1]);
    assert_int_equal(got[1].samples[4].token, wanted.samples[4].token);
    rn_generator_destroy(generator);
}

static void a_refusal_names_the_largest_context_that_fits(void **state) {
    (void)state;
    static const char words[] = "the largest context that fits is ";
    rn_generator_options options = base_options();
    options.text.context = 512;
    options.text.sequences = 1;
    rn_generator *generator = create(&options);
    options.plan.budget_bytes = rn_plan_get_summary(generator->plan)->smallest_bytes + 40000;
    rn_generator_destroy(generator);
    options.text.context = 4096;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    assert_fails(RN_OVER_BUDGET, rn_generator_create_from(&tiny.maker, &options, &generator));
    assert_null(generator);
    assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
    const char *hint = strstr(rn_last_error()->hint, words);
    assert_non_null(hint);
    uint32_t context = (uint32_t)atoi(hint + sizeof words - 1);
    assert_true(context > 400 && context < 640 && context % 8 == 0);
    assert_true(rn_last_refusal()->smallest_budget_bytes > options.plan.budget_bytes);
    options.text.context = context;
    assert_ok(rn_generator_create_from(&tiny.maker, &options, &generator));
    rn_generator_destroy(generator);
    options.text.context = context + 64; // the tables of a longer text were counted, too
    assert_fails(RN_OVER_BUDGET, rn_generator_create_from(&tiny.maker, &options, &generator));
    options.plan.budget_bytes = 1 << 10;
    assert_fails(RN_OVER_BUDGET, rn_generator_create_from(&tiny.maker, &options, &generator));
    assert_non_null(strstr(rn_last_error()->hint, "no context"));
}

static rn_generator *create_with_pages(uint64_t budget, uint32_t least) {
    rn_generator_options options = base_options(); // 4 sequences of 16 pages
    options.plan.budget_bytes = budget;
    options.least_pages = least;
    return create(&options);
}

// What a plan with so many pages holds, the generator's own included.
static uint64_t find_roomy_budget(uint32_t pages, uint64_t *out_page_bytes) {
    rn_generator_options options = base_options();
    rn_generator *roomy = create(&options); // as much of its own as with all pages
    uint64_t own = roomy->memory.held_bytes + sizeof *roomy;
    rn_generator_destroy(roomy);
    options.text.pages = pages;
    roomy = create(&options);
    *out_page_bytes = rn_generator_get_facts(roomy).kv_page_bytes;
    uint64_t planned = rn_plan_get_summary(roomy->plan)->planned_bytes;
    rn_generator_destroy(roomy);
    return own + planned;
}

static void there_are_as_many_pages_as_fit_beside_the_weights(void **state) {
    (void)state;
    uint64_t page;
    for (uint32_t wanted = 16; wanted <= 64; wanted += 12) {
        uint64_t budget = find_roomy_budget(wanted, &page);
        for (uint32_t least = 3; least <= wanted; least += wanted - 3) {
            rn_generator *generator = create_with_pages(budget + page / 2, least);
            assert_int_equal(rn_generator_get_facts(generator).kv_pages_total, wanted);
            assert_int_equal(generator->text.pages, wanted);
            assert_int_equal(rn_plan_get_summary(generator->plan)->streamed_bytes, 0);
            expect_stories(generator);
            rn_generator_destroy(generator);
        }
    }
}

// Where weights are streamed in any case, pages take no more of their places.
static void pages_beyond_the_fewest_cost_no_weight_its_place(void **state) {
    (void)state;
    uint64_t page, budget = find_roomy_budget(16, &page);
    rn_generator *generator = create_with_pages(budget - 20 * page, 16);
    uint64_t streamed = rn_plan_get_summary(generator->plan)->streamed_bytes;
    uint64_t pages = rn_generator_get_facts(generator).kv_pages_total;
    assert_true(streamed > 0 && pages >= 16 && pages < 64);
    rn_generator_destroy(generator);
    rn_generator_options options = base_options();
    options.text.pages = 16;
    options.plan.budget_bytes = budget - 20 * page;
    generator = create(&options);
    assert_int_equal(rn_plan_get_summary(generator->plan)->streamed_bytes, streamed);
    rn_generator_destroy(generator);
}

static void a_refusal_is_that_of_the_fewest_pages(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    rn_generator *generator = NULL;
    options.text.pages = 20;
    options.plan.budget_bytes = 1 << 16;
    assert_fails(RN_OVER_BUDGET, rn_generator_create_from(&tiny.maker, &options, &generator));
    uint64_t many = rn_last_refusal()->smallest_budget_bytes;
    options.least_pages = 16;
    assert_fails(RN_OVER_BUDGET, rn_generator_create_from(&tiny.maker, &options, &generator));
    uint64_t few = rn_last_refusal()->smallest_budget_bytes;
    assert_true(few < many);
    options.plan.budget_bytes = few;
    assert_ok(rn_generator_create_from(&tiny.maker, &options, &generator));
    rn_generator_destroy(generator);
}

// ---- failures -----------------------------------------------------------------------------------

static rn_generator *create_streaming(rn_generator_options options) {
    options.plan.budget_bytes = find_streaming_budget(&options);
    rn_generator *generator = create(&options);
    assert_true(rn_plan_get_summary(generator->plan)->streamed_bytes > 0);
    return generator;
}

static void a_failed_read_can_be_tried_again(void **state) {
    (void)state;
    for (uint32_t when = 0; when < 40; when += 7) {
        rn_generator *generator = create_streaming(base_options());
        rn_sequence *sequence = begin(generator, &greedy, 1, PROMPT);
        story got = {0};
        uint32_t failures = 0;
        while (got.count < TOLD) {
            uint64_t pages = rn_generator_get_facts(generator).kv_pages;
            if (got.count >= when && failures < 3) rn_fault_arm(RN_FAULT_READ, 1 + failures);
            rn_status s = rn_generator_step(generator);
            rn_fault_arm(RN_FAULT_READ, 0);
            if (s == RN_OK) {
                story_take(&got, sequence, TOLD);
                continue;
            }
            assert_int_equal(s, RN_IO);
            assert_int_equal(rn_generator_get_facts(generator).kv_pages, pages);
            failures++;
        }
        assert_true(failures > 0);
        story_expect(&got, &expected[0]);
        rn_generator_destroy(generator);
    }
}

static void cancelling_ends_the_step_and_nothing_else(void **state) {
    (void)state;
    rn_flag cancel = false;
    rn_generator_options options = base_options();
    options.session.cancel = &cancel;
    rn_generator *generator = create_streaming(options);
    rn_sequence *sequence = begin(generator, &greedy, 1, PROMPT);
    story got = {0};
    while (got.count < TOLD) {
        cancel = true;
        assert_fails(RN_CANCELLED, rn_generator_step(generator));
        assert_fails(RN_CANCELLED, rn_generator_step(generator));
        cancel = false;
        assert_ok(rn_generator_step(generator));
        story_take(&got, sequence, TOLD);
    }
    story_expect(&got, &expected[0]);
    rn_generator_destroy(generator);
}

static void logits_that_are_no_numbers_end_the_sequence(void **state) {
    (void)state;
    tiny_text bad = {.layers = 1, .dim = 64, .vocab = 96, .damaged = true};
    rn_generator_options options = base_options();
    rn_generator *generator;
    size_t count;
    tiny_text_open(&bad, test_path("bad.safetensors"));
    assert_ok(rn_generator_create_from(&bad.maker, &options, &generator));
    rn_sequence *sequence = begin(generator, &greedy, 1, PROMPT);
    assert_ok(rn_generator_step(generator)); // a chunk of the prompt
    assert_null(rn_sequence_failure(sequence));
    assert_ok(rn_generator_step(generator));
    assert_int_equal(rn_sequence_failure(sequence)->status, RN_CORRUPT);
    assert_false(rn_generator_has_work(generator));
    (void)rn_sequence_tokens(sequence, &count);
    assert_int_equal(count, PROMPT);
    rn_generator_destroy(generator);
    tiny_text_close(&bad);
}

static rn_status live(void) {
    rn_generator_options options = base_options();
    rn_generator *generator;
    story got;
    RN_TRY(rn_generator_create_from(&tiny.maker, &options, &generator));
    rn_status s = story_tell(generator, &drawn, 1, PROMPT, 3, &got);
    rn_generator_destroy(generator);
    return s;
}

static void every_refused_allocation_is_a_clear_failure(void **state) {
    (void)state;
    assert_true(survive_refusals(live) > 20);
}

static void making_tokens_takes_no_memory(void **state) {
    (void)state;
    rn_generator_options options = base_options();
    rn_generator *generator = create(&options);
    rn_sequence *sequence = begin(generator, &drawn, 1, PROMPT);
    rn_scope scope;
    story got = {0};
    tell(generator, sequence, 2, &got); // the session binds one row a step
    rn_scope_begin(&scope, "steps", RN_DEVICE_ANY);
    tell(generator, sequence, TOLD, &got);
    assert_int_equal(rn_scope_end(&scope).num_allocations, 0);
    rn_generator_destroy(generator);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_of_any_size_give_the_same_text),
        cmocka_unit_test(company_does_not_change_what_a_sequence_says),
        cmocka_unit_test(guesses_save_passes_and_change_nothing),
        cmocka_unit_test(what_is_held_beside_the_plan_is_within_the_budget),
        cmocka_unit_test(only_where_weights_are_streamed_is_there_guessing),
        cmocka_unit_test(a_device_with_its_own_memory_says_the_same),
        cmocka_unit_test(many_take_the_largest_logit_where_it_is_found),
        cmocka_unit_test(all_of_its_own_memory_is_planned_for),
        cmocka_unit_test(a_paused_sequence_goes_on_from_what_was_taken),
        cmocka_unit_test(a_conversation_keeps_its_history),
        cmocka_unit_test(rewinding_gives_pages_back_and_forgets),
        cmocka_unit_test(a_full_context_is_the_end),
        cmocka_unit_test(a_kv_cache_grows_by_pages),
        cmocka_unit_test(a_growing_context_ends_with_its_pages),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(one_row_a_pass_is_shared_fairly),
        cmocka_unit_test(a_sequence_without_a_page_waits_for_the_others),
        cmocka_unit_test(a_refusal_names_the_largest_context_that_fits),
        cmocka_unit_test(there_are_as_many_pages_as_fit_beside_the_weights),
        cmocka_unit_test(pages_beyond_the_fewest_cost_no_weight_its_place),
        cmocka_unit_test(a_refusal_is_that_of_the_fewest_pages),
        cmocka_unit_test(a_failed_read_can_be_tried_again),
        cmocka_unit_test(cancelling_ends_the_step_and_nothing_else),
        cmocka_unit_test(logits_that_are_no_numbers_end_the_sequence),
        cmocka_unit_test(every_refused_allocation_is_a_clear_failure),
        cmocka_unit_test(making_tokens_takes_no_memory),
    };
    return cmocka_run_group_tests(tests, open_tiny, close_tiny);
}

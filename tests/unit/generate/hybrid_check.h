// hybrid_check.h — steps of which the CPU computes first layers and a device the others, with none
// of the first ones brought to the device meanwhile (hybrid_test.c) or some (interleaved_test.c):
// the same text as from the device alone, and what it takes on both sides.
//
// Whoever includes it defines HYBRID_LAYERS, the tiny model's; HYBRID_PERCENT, how much of what it
// could use the device has; BESIDE_LINK, of the CPU's rates; and expect_kind(generator).
#ifndef RN_TEST_HYBRID_CHECK_H
#define RN_TEST_HYBRID_CHECK_H

#include "support.h"
#include "tiny_text.h"

#include <ration/device.h>
#include <ration/memory.h>

#include "backend/sim/sim.h"
#include "base/fault.h"
#include "runtime/session.h"

#include <stdatomic.h>

enum { PROMPT = 36, TOLD = 60, CONTEXT = 160 };

// The CPU reads a weight for one row somewhat faster than the slow link brings it, and for 32 rows
// slower; the device itself takes no time to speak of.
#define SLOW_LINK 1.6e9
#define FAST_LINK 1e12
static const rn_device_rates cpu_rates = {.flops = 20e9,
                                          .quantized_flops = 20e9,
                                          .memory_bytes_second = 6e9,
                                          .disk_bytes_second = 1e9,
                                          .link_bytes_second = 1e9,
                                          .step_seconds = 1e-9,
                                          .beside_link = BESIDE_LINK};
static const rn_device_rates sim_rates = {.flops = 1e14,
                                          .quantized_flops = 1e14,
                                          .memory_bytes_second = 1e13,
                                          .disk_bytes_second = 1e9,
                                          .link_bytes_second = 1e9,
                                          .step_seconds = 1e-9};

static tiny_text tiny = {.layers = HYBRID_LAYERS, .dim = 64, .vocab = 96};
static const rn_sampling greedy = {.logprobs = 20};
static const rn_sampling drawn = {.temperature = 0.6f, .seed = 42, .logprobs = 20};
static rn_device *slow, *fast;
static story expected[2]; // greedy and drawn, of seed 1

static rn_generator_options base_options(rn_device *device) {
    return (rn_generator_options){.text = {.context = CONTEXT,
                                           .page_tokens = 8,
                                           .sequences = 4,
                                           .rows = 32,
                                           .prompt_tokens = 32,
                                           .new_tokens = 64},
                                  .session.device = device,
                                  .speculation = RN_SPECULATE_NEVER};
}

static rn_generator *create(const rn_generator_options *options) {
    return tiny_text_generator(&tiny, options);
}

// So much of what lies between the most frugal plan and the roomiest, for the device.
static void limit_device(rn_generator_options *options, uint32_t percent) {
    rn_generator *generator = create(options);
    const rn_plan_summary *s = rn_plan_get_summary(generator->plan);
    assert_int_equal(s->streamed_bytes, 0);
    options->device_budget.bytes =
        s->smallest_bytes + (s->planned_bytes - s->smallest_bytes) * percent / 100;
    options->device_budget.planned_only = true;
    rn_generator_destroy(generator);
}

static rn_generator_options hybrid_options(void) {
    rn_generator_options options = base_options(slow);
    limit_device(&options, HYBRID_PERCENT);
    return options;
}

static void expect_kind(const rn_generator *generator);

static rn_generator *create_hybrid(const rn_generator_options *options) {
    rn_generator *generator = create(options);
    assert_non_null(generator->session->host);
    expect_kind(generator);
    return generator;
}

static int open_all(void **state) {
    (void)state;
    tiny_text_open(&tiny, test_path("tiny.safetensors"));
    rn_cpu_set_rates(&sim_rates); // from which the others take theirs
    assert_ok(rn_sim_device_create(&(rn_sim_options){.link_bytes_second = SLOW_LINK}, &slow));
    assert_ok(rn_sim_device_create(&(rn_sim_options){.link_bytes_second = FAST_LINK}, &fast));
    rn_cpu_set_rates(&cpu_rates);
    rn_generator_options options = base_options(fast);
    rn_generator *generator = create(&options);
    assert_ok(story_tell(generator, &greedy, 1, PROMPT, TOLD, &expected[0]));
    assert_ok(story_tell(generator, &drawn, 1, PROMPT, TOLD, &expected[1]));
    rn_generator_destroy(generator);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    rn_device_destroy(slow);
    rn_device_destroy(fast);
    tiny_text_close(&tiny);
    return 0;
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

static void tell(rn_generator *generator, rn_sequence *sequence, uint32_t count, story *out) {
    out->count = 0;
    while (out->count < count) {
        assert_ok(rn_generator_step(generator));
        story_take(out, sequence, count);
    }
}

static void expect_stories(rn_generator *generator) {
    story got;
    assert_ok(story_tell(generator, &greedy, 1, PROMPT, TOLD, &got));
    story_expect(&got, &expected[0]);
    assert_ok(story_tell(generator, &drawn, 1, PROMPT, TOLD, &got));
    story_expect(&got, &expected[1]);
}

// ---- the same text ------------------------------------------------------------------------------

static void the_same_text_at_every_budget(void **state) {
    (void)state;
    uint32_t seen = 0; // layers on the host, a bit each
    for (uint32_t percent = 0; percent < 100; percent += 16) {
        rn_generator_options options = base_options(slow);
        limit_device(&options, percent);
        rn_generator *generator = create(&options);
        expect_stories(generator);
        rn_generator_facts facts = rn_generator_get_facts(generator);
        if (rn_plan_get_summary(generator->plan)->rows == 32 && generator->session->host) {
            seen |= 1u << rn_plan_get_summary(generator->plan)->host_blocks;
            // The prompt's first 32 tokens are brought to the host, once; the rest is short.
            assert_int_equal(facts.hybrid_steps, facts.steps - 2);
            assert_int_equal(facts.moved_pages, 2 * 32 / 8);
        }
        rn_generator_destroy(generator);
    }
    assert_true(__builtin_popcount(seen) >= 3);
}

static void guesses_and_shared_beginnings_change_nothing(void **state) {
    (void)state;
    rn_generator_options options = hybrid_options();
    options.speculation = RN_SPECULATE_ALWAYS;
    options.prefix_caching = true;
    rn_generator *generator = create_hybrid(&options);
    for (int i = 0; i < 3; i++)
        expect_stories(generator);
    rn_generator_facts facts = rn_generator_get_facts(generator);
    assert_true(facts.accepted_tokens > 0);
    assert_int_equal(facts.steps - facts.hybrid_steps, 1); // the first prompt's first 32 tokens
    assert_true(facts.shared_tokens >= 3 * PROMPT / 8 * 8);
    rn_generator_destroy(generator);
}

// Others come and go: long prompts among steps of single rows.
static void company_does_not_change_what_a_sequence_says(void **state) {
    (void)state;
    rn_generator_options options = hybrid_options();
    for (int shares = 0; shares < 2; shares++) {
        options.prefix_caching = shares;
        rn_generator *generator = create_hybrid(&options);
        rn_sequence *first = begin(generator, &greedy, 1, PROMPT), *other = NULL;
        rn_sequence *second = begin(generator, &drawn, 1, PROMPT);
        story got[2] = {{0}}, rest = {0};
        for (uint32_t step = 0; got[0].count < TOLD || got[1].count < TOLD; step++) {
            if (step % 10 == 4) other = begin(generator, NULL, step % 4, 20 + step % 60);
            assert_ok(rn_generator_step(generator));
            story_take(&got[0], first, TOLD);
            story_take(&got[1], second, TOLD);
            rest.count = 0;
            if (other) story_take(&rest, other, STORY_MOST);
            if (step % 10 == 9) {
                rn_sequence_destroy(other);
                other = NULL;
            }
        }
        story_expect(&got[0], &expected[0]);
        story_expect(&got[1], &expected[1]);
        rn_generator_facts facts = rn_generator_get_facts(generator);
        assert_true(facts.hybrid_steps > 0 && facts.hybrid_steps < facts.steps);
        rn_generator_destroy(generator);
    }
}

// A question, an answer, another question, and back again: pages go to and fro.
static void a_conversation_goes_on_on_either_side(void **state) {
    (void)state;
    rn_generator_options options = hybrid_options(), roomy = base_options(fast);
    rn_generator *both[2] = {create_hybrid(&options), create(&roomy)};
    story got[2][4];
    for (int i = 0; i < 2; i++) {
        uint32_t more[30];
        rn_sequence *sequence = begin(both[i], &drawn, 1, PROMPT);
        story_prompt(9, tiny.vocab, 30, more);
        tell(both[i], sequence, 21, &got[i][0]);
        assert_ok(rn_sequence_feed(sequence, more, 30)); // a whole step behind short ones
        tell(both[i], sequence, 13, &got[i][1]);
        rn_sequence_rewind(sequence, PROMPT + 17);
        assert_ok(rn_sequence_feed(sequence, more + 3, 2)); // short
        tell(both[i], sequence, 9, &got[i][2]);
        rn_sequence_rewind(sequence, PROMPT - 3);
        assert_ok(rn_sequence_feed(sequence, more, 27));
        tell(both[i], sequence, 30, &got[i][3]);
    }
    for (int k = 0; k < 4; k++)
        story_expect(&got[0][k], &got[1][k]);
    rn_generator_facts facts = rn_generator_get_facts(both[0]);
    assert_true(facts.moved_pages > (PROMPT + 21 + 30) / 8);
    rn_generator_destroy(both[0]);
    rn_generator_destroy(both[1]);
}

// Three sequences live by chance: begun, fed, rewound, ended; each tells some tokens and pauses.
enum { LIVES = 3, ROUNDS = 24 };

typedef struct world {
    rn_generator *generator;
    rn_sequence *sequences[LIVES];
    story told[LIVES];
} world;

static uint32_t chance(uint32_t *seed, uint32_t most) {
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % most;
}

// Few different beginnings, so that they are shared.
static void change(world *w, uint32_t i, uint32_t *seed) {
    uint32_t what = chance(seed, 6), ids[STORY_MOST], tokens = 1 + chance(seed, 40);
    size_t count = 0;
    story_prompt(chance(seed, 3), tiny.vocab, tokens, ids);
    uint32_t back = chance(seed, CONTEXT);
    if (!w->sequences[i]) {
        assert_ok(rn_sequence_create(w->generator, i ? &drawn : &greedy, &w->sequences[i]));
        assert_ok(rn_sequence_feed(w->sequences[i], ids, tokens));
        return;
    }
    (void)rn_sequence_tokens(w->sequences[i], &count);
    if (what == 0) {
        rn_sequence_destroy(w->sequences[i]);
        w->sequences[i] = NULL;
    } else if (what < 3 || count + tokens + 20 > CONTEXT) {
        rn_sequence_rewind(w->sequences[i], back % (count - count / 3));
        assert_ok(rn_sequence_feed(w->sequences[i], ids, tokens));
    } else if (what < 5) {
        assert_ok(rn_sequence_feed(w->sequences[i], ids, tokens));
    }
}

static void live_on(world *w, const uint32_t wanted[LIVES]) {
    memset(w->told, 0, sizeof w->told);
    while (rn_generator_has_work(w->generator)) {
        assert_ok(rn_generator_step(w->generator));
        for (uint32_t i = 0; i < LIVES; i++) {
            if (!w->sequences[i]) continue;
            story_take(&w->told[i], w->sequences[i], wanted[i]);
            if (w->told[i].count == wanted[i]) rn_sequence_pause(w->sequences[i]);
        }
    }
}

static void whatever_happens_the_text_is_the_same(void **state) {
    (void)state;
    rn_generator_options options = hybrid_options(), roomy = base_options(fast);
    options.prefix_caching = true;
    world worlds[2] = {{.generator = create_hybrid(&options)}, {.generator = create(&roomy)}};
    uint32_t seed = 5;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t seeds[LIVES], wanted[LIVES];
        for (uint32_t i = 0; i < LIVES; i++) {
            seeds[i] = chance(&seed, 1 << 20);
            wanted[i] = 1 + chance(&seed, 8);
        }
        for (int k = 0; k < 2; k++) {
            for (uint32_t i = 0; i < LIVES; i++) {
                uint32_t own = seeds[i];
                change(&worlds[k], i, &own);
            }
            live_on(&worlds[k], wanted);
        }
        for (uint32_t i = 0; i < LIVES; i++)
            story_expect(&worlds[0].told[i], &worlds[1].told[i]);
    }
    rn_generator_facts facts = rn_generator_get_facts(worlds[0].generator);
    assert_true(facts.moved_pages > ROUNDS && facts.shared_tokens > 0);
    assert_true(facts.hybrid_steps > ROUNDS && facts.steps - facts.hybrid_steps > ROUNDS / 2);
    rn_generator_destroy(worlds[0].generator);
    rn_generator_destroy(worlds[1].generator);
}

// ---- bytes --------------------------------------------------------------------------------------

static uint64_t held(rn_device_id device) {
    return rn_ledger_total(device).now_bytes;
}

static void what_both_sides_hold_was_planned(void **state) {
    (void)state;
    rn_generator_options options = hybrid_options();
    rn_device_id device = rn_device_get_caps(slow)->device;
    uint64_t before[2] = {held(RN_DEVICE_HOST), held(device)};
    uint64_t weights = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS).now_bytes;
    rn_generator *generator = create_hybrid(&options);
    const rn_plan_summary *s = rn_plan_get_summary(generator->plan);
    uint64_t tables = rn_plan_table_bytes(generator->plan->graph) +
                      rn_plan_table_bytes(generator->plan->host->graph);
    uint64_t own = generator->memory.held_bytes + sizeof *generator;
    expect_stories(generator);
    assert_int_equal(held(device) - before[1], s->planned_bytes);
    assert_true(s->planned_bytes <= options.device_budget.bytes);
    assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS).now_bytes - weights,
                     s->host_weight_bytes);
    assert_true(held(RN_DEVICE_HOST) - before[0] >= s->host_bytes);
    assert_true(held(RN_DEVICE_HOST) - before[0] <= s->host_bytes + own + tables);
    rn_generator_destroy(generator);
    assert_int_equal(held(RN_DEVICE_HOST), before[0]);
    assert_int_equal(held(device), before[1]);
}

// ---- failing ------------------------------------------------------------------------------------

// The n-th copy or launch from a step's beginning fails, in every second one: when pages are moved,
// on the way to the device, behind the entry, on the way back.
static void faults_are_told_and_survived(void **state) {
    (void)state;
    rn_generator_options options = hybrid_options();
    rn_generator *generator = create_hybrid(&options);
    uint32_t failed = 0;
    for (uint32_t n = 1; n < 40; n += 5) {
        rn_sequence *sequence = begin(generator, &drawn, 1, PROMPT);
        story got = {0};
        for (uint32_t step = 0; got.count < TOLD; step++) {
            bool armed = step % 2 == 0, copies = n % 2;
            if (armed) rn_sim_device_arm(slow, 0, copies ? 0 : n, copies ? 1 + n / 2 : 0);
            rn_status s = rn_generator_step(generator);
            rn_sim_device_arm(slow, 0, 0, 0);
            if (s != RN_OK) assert_fails(RN_DEVICE, s);
            failed += s != RN_OK;
            story_take(&got, sequence, TOLD);
        }
        story_expect(&got, &expected[1]);
        rn_sequence_destroy(sequence);
    }
    assert_true(failed > 60);
    rn_generator_destroy(generator);
}

static void a_cancelled_pass_can_be_tried_again(void **state) {
    (void)state;
    static rn_flag cancel;
    rn_generator_options options = hybrid_options();
    options.session.cancel = &cancel;
    rn_generator *generator = create_hybrid(&options);
    rn_sequence *sequence = begin(generator, &greedy, 1, PROMPT);
    story got = {0};
    for (uint32_t step = 0; got.count < TOLD; step++) {
        atomic_store(&cancel, step % 3 == 1);
        rn_status s = rn_generator_step(generator);
        assert_int_equal(s, step % 3 == 1 ? RN_CANCELLED : RN_OK);
        story_take(&got, sequence, TOLD);
    }
    story_expect(&got, &expected[0]);
    atomic_store(&cancel, false);
    rn_generator_destroy(generator);
}

static rn_generator_options refused_options;

static rn_status live(void) {
    rn_generator *generator;
    story got;
    RN_TRY(rn_generator_create_from(&tiny.maker, &refused_options, &generator));
    rn_status s = story_tell(generator, &greedy, 1, 12, 3, &got);
    rn_generator_destroy(generator);
    return s;
}

static void no_refused_allocation_is_fatal(void **state) {
    (void)state;
    refused_options = base_options(slow);
    refused_options.text.context = 32; // with less, the device has no room to bring a block to
    refused_options.text.rows = 16;
    limit_device(&refused_options, HYBRID_PERCENT);
    rn_generator_destroy(create_hybrid(&refused_options));
    assert_true(survive_refusals(live) > 100);
}

#define HYBRID_TESTS                                                                               \
    cmocka_unit_test(the_same_text_at_every_budget),                                               \
        cmocka_unit_test(guesses_and_shared_beginnings_change_nothing),                            \
        cmocka_unit_test(company_does_not_change_what_a_sequence_says),                            \
        cmocka_unit_test(a_conversation_goes_on_on_either_side),                                   \
        cmocka_unit_test(whatever_happens_the_text_is_the_same),                                   \
        cmocka_unit_test(what_both_sides_hold_was_planned),                                        \
        cmocka_unit_test(faults_are_told_and_survived),                                            \
        cmocka_unit_test(a_cancelled_pass_can_be_tried_again),                                     \
        cmocka_unit_test(no_refused_allocation_is_fatal)

#endif

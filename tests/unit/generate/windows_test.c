// Windows that roll: layers with a window hold its last tokens and those of a step. Fewer bytes in
// the plan, the same text as with the full cache, which generators of shared beginnings have.
#include "support.h"
#include "tiny_text.h"

#include <ration/memory.h>

#include "runtime/session.h"

enum { WINDOW = 11, PROMPT = 37, TOLD = 60 };

static tiny_text tiny = {.layers = 3, .dim = 64, .vocab = 96, .window = WINDOW, .period = 3};
static const rn_sampling greedy = {.logprobs = 20};
static const rn_sampling drawn = {
    .temperature = 0.6f, .top_k = 50, .top_p = 0.95f, .seed = 42, .logprobs = 20};

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

static rn_generator *create(uint32_t rows, uint32_t page_tokens, bool full, bool drafts) {
    return tiny_text_generator(
        &tiny,
        &(rn_generator_options){
            .text = {.context = 128, .page_tokens = page_tokens, .sequences = 2, .rows = rows},
            .prefix_caching = full,
            .speculation = drafts ? RN_SPECULATE_ALWAYS : RN_SPECULATE_NEVER});
}

static uint64_t count_kv(const rn_generator *generator) {
    const rn_graph *graph = rn_plan_graph(rn_generator_plan(generator));
    uint64_t elements = 0;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->role == RN_ROLE_STATE && info->producer == RN_NO_NODE)
            elements += rn_shape_elements(info->shape, 1);
    }
    return elements;
}

static void find_expected(story expected[2]) {
    rn_generator *full = create(16, 8, true, false);
    assert_ok(story_tell(full, &greedy, 1, PROMPT, TOLD, &expected[0]));
    assert_ok(story_tell(full, &drawn, 1, PROMPT, TOLD, &expected[1]));
    rn_generator_destroy(full);
}

static void a_rolling_window_says_what_the_full_cache_says(void **state) {
    (void)state;
    static const struct {
        uint32_t rows, page_tokens, period;
        bool drafts;
    } cases[] = {{1, 8, 3, false}, {3, 1, 3, false},   {16, 8, 3, true},
                 {5, 7, 0, true},  {40, 16, 0, false}, {16, 5, 2, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        story expected[2], got;
        tiny.period = cases[i].period;
        find_expected(expected);
        rn_generator *rolls = create(cases[i].rows, cases[i].page_tokens, false, cases[i].drafts);
        assert_true(rolls->held >= WINDOW + cases[i].rows - 1 && rolls->held < 128);
        assert_ok(story_tell(rolls, &greedy, 1, PROMPT, TOLD, &got));
        story_expect(&got, &expected[0]);
        assert_ok(story_tell(rolls, &drawn, 1, PROMPT, TOLD, &got));
        story_expect(&got, &expected[1]);
        rn_generator_destroy(rolls);
    }
    tiny.period = 3;
}

static void the_plan_has_fewer_bytes(void **state) {
    (void)state;
    rn_generator *full = create(16, 8, true, false), *rolls = create(16, 8, false, false);
    // Two of three layers hold 32 of 128 tokens.
    assert_int_equal(count_kv(rolls) * 2, count_kv(full));
    assert_true(rn_plan_get_summary(rn_generator_plan(rolls))->planned_bytes <
                rn_plan_get_summary(rn_generator_plan(full))->planned_bytes);
    assert_int_equal(full->held, 0);
    rn_generator_destroy(full);
    rn_generator_destroy(rolls);
    // Where a window and a step are as long as the context, pages are as good.
    rn_generator *wide = create(120, 8, false, false);
    assert_int_equal(wide->held, 0);
    rn_generator_destroy(wide);
}

static void step_until(rn_generator *generator, rn_sequence *sequence, uint32_t tokens,
                       story *out) {
    *out = (story){0};
    while (out->count < tokens) {
        assert_ok(rn_generator_step(generator));
        story_take(out, sequence, tokens);
    }
}

// Two sequences that go back to anywhere and on with another text, again and again, beside those of
// a full cache.
static void rewinds_of_any_length_are_forgotten(void **state) {
    (void)state;
    rn_generator *generators[2] = {create(16, 8, true, false), create(16, 8, false, true)};
    rn_sequence *sequences[2];
    for (int i = 0; i < 2; i++)
        assert_ok(rn_sequence_create(generators[i], &greedy, &sequences[i]));
    for (uint32_t turn = 0; turn < 24; turn++) {
        story told[2];
        uint32_t ids[STORY_MOST], fed = 1 + turn * 7 % 20, made = 1 + turn * 5 % 9;
        story_prompt(turn + 1, tiny.vocab, fed, ids);
        for (int i = 0; i < 2; i++) {
            size_t count = 0;
            rn_sequence_tokens(sequences[i], &count);
            // A little, far, or nothing at all.
            size_t back = turn % 4 == 3 || count + fed + made > 120 ? count / 2 + turn : turn % 4;
            rn_sequence_rewind(sequences[i], count > back ? count - back : 0);
            assert_ok(rn_sequence_feed(sequences[i], ids, fed));
            step_until(generators[i], sequences[i], made, &told[i]);
        }
        story_expect(&told[1], &told[0]);
    }
    for (int i = 0; i < 2; i++) {
        rn_sequence_destroy(sequences[i]);
        rn_generator_destroy(generators[i]);
    }
}

// What a window has lost is read again, what it still has is not.
static void only_a_rewind_beyond_the_window_reads_again(void **state) {
    (void)state;
    rn_generator *generator = create(16, 8, false, false);
    uint32_t ids[STORY_MOST];
    rn_sequence *sequence;
    story told;
    story_prompt(5, tiny.vocab, 90, ids);
    assert_ok(rn_sequence_create(generator, &greedy, &sequence));
    assert_ok(rn_sequence_feed(sequence, ids, 90));
    step_until(generator, sequence, 4, &told);
    rn_sequence_rewind(sequence, 90);
    assert_int_equal(sequence->read, 90);
    rn_sequence_rewind(sequence, 60);
    assert_int_equal(sequence->read, 0);
    rn_sequence_destroy(sequence);
    rn_generator_destroy(generator);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rolling_window_says_what_the_full_cache_says),
        cmocka_unit_test(the_plan_has_fewer_bytes),
        cmocka_unit_test(rewinds_of_any_length_are_forgotten),
        cmocka_unit_test(only_a_rewind_beyond_the_window_reads_again),
    };
    return cmocka_run_group_tests(tests, open_tiny, close_tiny);
}

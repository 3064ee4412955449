// Adapters that sequences choose: each says what it says with a model that has this adapter alone.
#include "support.h"
#include "tiny_text.h"

#include <ration/model.h>

#include <string.h>

#define TEXT "tests/golden/text/"
enum { MOST = 2, PROMPT = 20, TOLD = 16 };

typedef struct adapted {
    const char *model;
    uint32_t count;
    rn_adapter files[MOST];
} adapted;

static const adapted layers = {TEXT "llama3",
                               2,
                               {{.path = TEXT "lora/one", .scale = 1, .name = "one"},
                                {.path = TEXT "lora/two", .scale = 1, .name = "two"}}};
static const adapted head = {
    TEXT "qwen2/model.gguf", 1, {{.path = TEXT "lora/head", .scale = 4, .name = "head"}}};

static uint32_t prompt[PROMPT];

static rn_model *open_model(const adapted *of, const rn_adapter *adapters, size_t count) {
    rn_model *model;
    rn_model_options options = {
        .adapters = adapters, .adapter_count = count, .without_tokenizer = true};
    assert_ok(rn_model_open(of->model, &options, &model));
    return model;
}

static rn_generator *create(const rn_model *model) {
    rn_generator *generator;
    rn_generator_options options = {
        .text = {.context = 64, .page_tokens = 4, .sequences = 2 * (MOST + 1), .rows = 12},
        .speculation = RN_SPECULATE_NEVER,
        .prefix_caching = true};
    assert_ok(rn_generator_create(model, &options, &generator));
    return generator;
}

static rn_sequence *begin(rn_generator *generator, uint32_t adapter) {
    static const rn_sampling greedy = {.logprobs = 5};
    rn_sequence *sequence;
    assert_ok(rn_sequence_create(generator, &greedy, &sequence));
    assert_ok(rn_sequence_set_adapter(sequence, adapter));
    assert_ok(rn_sequence_feed(sequence, prompt, PROMPT));
    return sequence;
}

// What a model with this adapter for all says; 0: with none.
static void tell_alone(const adapted *of, uint32_t adapter, story *out) {
    rn_adapter file = of->files[adapter ? adapter - 1 : 0];
    file.name = NULL;
    rn_model *model = open_model(of, &file, adapter != 0);
    rn_generator *generator = create(model);
    rn_sequence *sequence = begin(generator, 0);
    out->count = 0;
    while (out->count < TOLD) {
        assert_ok(rn_generator_step(generator));
        story_take(out, sequence, TOLD);
    }
    rn_generator_destroy(generator);
    rn_model_close(model);
}

static void step_all(rn_generator *generator, rn_sequence *const *sequences, story *got,
                     uint32_t count) {
    for (bool done = false; !done;) {
        assert_ok(rn_generator_step(generator));
        done = true;
        for (uint32_t i = 0; i < count; i++) {
            story_take(&got[i], sequences[i], TOLD);
            done &= got[i].count == TOLD;
        }
    }
}

// Twice each, so that the second of a kind finds pages, and none finds another's.
static void check(const adapted *of) {
    static story expected[MOST + 1], got[2 * (MOST + 1)];
    rn_sequence *sequences[2 * (MOST + 1)];
    uint32_t kinds = of->count + 1;
    rn_model *model = open_model(of, of->files, of->count);
    rn_generator *generator = create(model);
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = 3 + i * 7 % 50;
    for (uint32_t i = 0; i < kinds; i++)
        tell_alone(of, i, &expected[i]);
    for (uint32_t i = 1; i < kinds; i++) // the test would not see a choice without effect
        assert_memory_not_equal(expected[i].samples, expected[0].samples, sizeof(rn_sample));
    for (uint32_t i = 0; i < 2 * kinds; i++) {
        sequences[i] = begin(generator, i % kinds);
        got[i].count = 0;
    }
    step_all(generator, sequences, got, 2 * kinds);
    for (uint32_t i = 0; i < 2 * kinds; i++)
        story_expect(&got[i], &expected[i % kinds]);
    assert_true(rn_generator_get_facts(generator).shared_tokens > 0);
    rn_generator_destroy(generator);
    rn_model_close(model);
}

static void sequences_of_one_step_may_differ(void **state) {
    (void)state;
    check(&layers);
}

static void the_head_may_differ(void **state) {
    (void)state;
    check(&head);
}

static void names_are_checked(void **state) {
    (void)state;
    static const char *const bad[] = {"", "a b", "a/b", "a=b"};
    rn_model *model = open_model(&layers, layers.files, layers.count);
    assert_string_equal(rn_model_adapter_name(model, 0), "one");
    assert_string_equal(rn_model_adapter_name(model, 1), "two");
    assert_null(rn_model_adapter_name(model, 2));
    rn_generator *generator = create(model);
    rn_sequence *sequence;
    assert_ok(rn_sequence_create(generator, NULL, &sequence));
    assert_fails(RN_INVALID, rn_sequence_set_adapter(sequence, MOST + 1));
    rn_generator_destroy(generator);
    rn_model_close(model);
    rn_adapter twice[2] = {layers.files[0], layers.files[0]};
    rn_model_options options = {.adapters = twice, .adapter_count = 2, .without_tokenizer = true};
    assert_fails(RN_INVALID, rn_model_open(TEXT "llama3", &options, &model));
    options.adapter_count = 1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        twice[0].name = bad[i];
        assert_fails(RN_INVALID, rn_model_open(TEXT "llama3", &options, &model));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_of_one_step_may_differ),
        cmocka_unit_test(the_head_may_differ),
        cmocka_unit_test(names_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// A model with layers that add zero says what the small one says, token for token and bit for bit,
// whether it is held or streamed.
#include "support.h"

#include <ration/generate.h>

#include <unistd.h>

#define SMALL   "models/default"
#define INFLATE RN_BIN_DIR "/../examples/inflate_model"

enum { TOLD = 24 };

typedef struct told {
    uint32_t tokens[TOLD];
    float logprobs[TOLD];
    uint64_t streamed_bytes;
} told;

static void tell(const char *path, uint64_t budget_bytes, told *out) {
    rn_model *model = NULL;
    rn_generator *generator = NULL;
    rn_sequence *sequence = NULL;
    rn_tokens prompt = {0};
    rn_sampling greedy = {.logprobs = 1};
    rn_generator_options options = {.text = {.context = 128},
                                    .plan = {.budget_bytes = budget_bytes}};
    size_t count = 0;
    assert_ok(rn_model_open(path, NULL, &model));
    assert_ok(rn_generator_create(model, &options, &generator));
    assert_ok(rn_tokenizer_encode(rn_model_tokenizer(model), (rn_str){"Once upon a time", 16},
                                  RN_ENCODE_BEGIN, &prompt));
    assert_ok(rn_sequence_create(generator, &greedy, &sequence));
    assert_ok(rn_sequence_feed(sequence, prompt.ids, prompt.count));
    while (count < TOLD) {
        rn_sample sample;
        assert_ok(rn_generator_step(generator));
        for (; count < TOLD && rn_sequence_take(sequence, &sample); count++) {
            out->tokens[count] = sample.token;
            out->logprobs[count] = sample.logprob;
        }
    }
    out->streamed_bytes = rn_plan_get_summary(rn_generator_plan(generator))->streamed_bytes;
    rn_tokens_free(&prompt);
    rn_sequence_destroy(sequence);
    rn_generator_destroy(generator);
    rn_model_close(model);
}

static void an_inflated_model_says_the_same_held_or_streamed(void **state) {
    (void)state;
    static told small, large;
    char command[1024];
    assert_int_equal(access(SMALL "/model.safetensors", R_OK), 0);
    assert_int_equal(access(INFLATE, X_OK), 0);
    snprintf(command, sizeof command, INFLATE " " SMALL " %s 32MiB > %s 2>&1", test_path("large"),
             test_path("log"));
    assert_int_equal(system(command), 0);
    tell(SMALL, 0, &small);
    assert_int_equal(small.streamed_bytes, 0);
    tell(test_path("large"), 0, &large);
    assert_int_equal(large.streamed_bytes, 0);
    assert_memory_equal(small.tokens, large.tokens, sizeof small.tokens);
    assert_memory_equal(small.logprobs, large.logprobs, sizeof small.logprobs);
    tell(test_path("large"), 20 << 20, &large);
    assert_true(large.streamed_bytes > 0);
    assert_memory_equal(small.tokens, large.tokens, sizeof small.tokens);
    assert_memory_equal(small.logprobs, large.logprobs, sizeof small.logprobs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_inflated_model_says_the_same_held_or_streamed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

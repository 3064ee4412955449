// stories_test.c — the trained model stories260K against what was computed for it in numpy: from
// safetensors and GGUF, f32, f16 and quantised.
#include "text_run.h"

enum { COUNT = 200, VOCAB = 512 };

typedef struct expected {
    int32_t tokens[COUNT + 1];
    float logits[COUNT * VOCAB];
} expected;

static void load(const rn_checkpoint *c, const char *name, rn_dtype dtype, void *out, size_t most) {
    const rn_tensor_info *t = rn_checkpoint_find(c, name);
    assert_non_null(t);
    assert_true(t->bytes <= most);
    assert_ok(rn_checkpoint_load(c, t, dtype, out, t->bytes));
}

static expected *read_expected(const char *file) {
    const char *path = test_data_or_skip(file);
    rn_checkpoint *c;
    expected *e = malloc(sizeof *e);
    assert_non_null(e);
    assert_ok(rn_checkpoint_open(path, &c));
    load(c, "tokens", RN_DTYPE_I32, e->tokens, sizeof e->tokens);
    load(c, "logits", RN_DTYPE_F32, e->logits, sizeof e->logits);
    rn_checkpoint_close(c);
    return e;
}

// The logits behind each of the expected tokens.
static float *compute(const char *file, const expected *e, bool plain) {
    const char *path = test_data_or_skip(file);
    float *logits = malloc(sizeof e->logits);
    assert_non_null(logits);
    text_run *run = text_run_open(
        path, NULL,
        &(rn_text_options){.context = 256, .rows = 32, .unquantised_activations = plain});
    text_run_logits(run, e->tokens, COUNT, logits);
    text_run_close(run);
    return logits;
}

static void check(const char *file, const char *golden, bool plain, double most) {
    expected *e = read_expected(golden);
    float *logits = compute(file, e, plain);
    double difference = text_run_difference(logits, e->logits, COUNT * VOCAB);
    if (!(difference <= most)) fail_msg("%s: off by %g", file, difference);
    free(logits);
    free(e);
}

#define STORIES "llama/stories260K/"

static void f32_logits_are_those_of_numpy(void **state) {
    (void)state;
    check(STORIES "hf", STORIES "golden_greedy200.safetensors", false, 1e-4);
    check(STORIES "hf/model.safetensors", STORIES "golden_greedy200.safetensors", false, 1e-4);
    check(STORIES "stories260K.ctx512.gguf", STORIES "golden_greedy200.safetensors", false, 1e-4);
}

static void quantised_weights_with_unquantised_activations_give_the_logits_of_numpy(void **state) {
    (void)state;
    check(STORIES "stories260K.q8_0.gguf", STORIES "stories260K.q8_0.golden.safetensors", true,
          1e-4);
    check(STORIES "stories260K.q4_0.gguf", STORIES "stories260K.q4_0.golden.safetensors", true,
          1e-4);
}

// How far rounding goes, of weights to f16 or of activations to int8, and how often the most likely
// token is another one. The bounds are there to catch mistakes, which are far larger.
static void rounding_changes_little(void **state) {
    (void)state;
    static const struct {
        const char *file, *golden;
        double most;
        int least;
    } cases[] = {
        {STORIES "hf/model.f16.safetensors", STORIES "golden_greedy200.safetensors", 0.05, 198},
        {STORIES "stories260K.q8_0.gguf", STORIES "stories260K.q8_0.golden.safetensors", 1, 190},
        {STORIES "stories260K.q4_0.gguf", STORIES "stories260K.q4_0.golden.safetensors", 1, 190},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expected *e = read_expected(cases[i].golden);
        float *logits = compute(cases[i].file, e, false);
        double difference = text_run_difference(logits, e->logits, COUNT * VOCAB);
        int same = 0;
        for (size_t t = 0; t < COUNT; t++)
            same += text_run_best(logits + t * VOCAB, VOCAB) ==
                    text_run_best(e->logits + t * VOCAB, VOCAB);
        print_message("%s: logits off by %.2g, the same best token %d of %d times\n", cases[i].file,
                      difference, same, COUNT);
        assert_true(difference <= cases[i].most && same >= cases[i].least);
        free(logits);
        free(e);
    }
}

static void two_hundred_greedy_tokens_are_those_of_numpy(void **state) {
    (void)state;
    static const char *const files[] = {STORIES "hf", STORIES "stories260K.ctx512.gguf"};
    expected *e = read_expected(STORIES "golden_greedy200.safetensors");
    for (size_t i = 0; i < 2; i++) {
        float logits[VOCAB];
        int32_t token = e->tokens[0];
        text_run *run =
            text_run_open(test_data(files[i]), NULL, &(rn_text_options){.context = 256, .rows = 1});
        for (size_t t = 0; t < COUNT; t++) {
            assert_int_equal(token, e->tokens[t]);
            text_run_logits(run, &token, 1, logits);
            token = text_run_best(logits, VOCAB);
        }
        assert_int_equal(token, e->tokens[COUNT]);
        text_run_close(run);
    }
    free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_logits_are_those_of_numpy),
        cmocka_unit_test(quantised_weights_with_unquantised_activations_give_the_logits_of_numpy),
        cmocka_unit_test(rounding_changes_little),
        cmocka_unit_test(two_hundred_greedy_tokens_are_those_of_numpy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

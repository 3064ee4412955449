// labels: long
// xla_models_test.c — text models compiled by XLA for the CPU: the logits of architectures that
// have between them every op of inference against Hugging Face's transformers, and 200 greedy
// tokens of stories260K against our own CPU.
#include "text_run.h"

#include <ration/device.h>

enum { COUNT = 40, VOCAB = 128, STORY = 200 };

static rn_device *device;

static int open_device(void **state) {
    (void)state;
    device = NULL;
    return 0;
}

static int close_device(void **state) {
    (void)state;
    rn_device_destroy(device);
    return 0;
}

static void want_device(void) {
    if (!device && rn_device_open("xla:cpu", 1, &device) != RN_OK)
        skip_because("xla:cpu cannot be opened: %s", rn_last_error()->message);
}

// ---- architectures ------------------------------------------------------------------------------

static double measure(const char *folder) {
    static int32_t tokens[COUNT];
    static float expected[COUNT * VOCAB], logits[COUNT * VOCAB];
    char golden[512];
    rn_checkpoint *c;
    snprintf(golden, sizeof golden, "%s/golden.safetensors", folder);
    assert_ok(rn_checkpoint_open(golden, &c));
    assert_ok(rn_checkpoint_load(c, rn_checkpoint_find(c, "tokens"), RN_DTYPE_I32, tokens,
                                 sizeof tokens));
    assert_ok(rn_checkpoint_load(c, rn_checkpoint_find(c, "logits"), RN_DTYPE_F32, expected,
                                 sizeof expected));
    rn_checkpoint_close(c);
    text_run *run = text_run_open_on(
        device, folder, NULL, &(rn_text_options){.context = 64, .page_tokens = 8, .rows = 16}, 0);
    text_run_logits(run, tokens, COUNT, logits);
    text_run_close(run);
    return text_run_difference(logits, expected, COUNT * VOCAB);
}

static void architectures_give_the_logits_of_transformers(void **state) {
    static const char *const names[] = {"gemma2",      // caps of scores, windows
                                        "phi3",        // rope with divisors, of a part of a head
                                        "cohere2",     // rope of neighbours, layer norms
                                        "gpt2",        // learned positions, gelu
                                        "lfm2",        // short convolutions
                                        "qwen3_next"}; // the delta rule
    uint32_t wrong = 0;
    (void)state;
    want_device();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char folder[64];
        snprintf(folder, sizeof folder, "tests/golden/text/%s", names[i]);
        double difference = measure(folder);
        print_message("%-14s %.1e\n", names[i], difference);
        wrong += !(difference <= 1e-4);
    }
    assert_int_equal(wrong, 0);
}

// ---- a story ------------------------------------------------------------------------------------

// A token at a time, the likeliest next; logits (STORY, vocab).
static void tell(rn_device *on, const char *path, int32_t *tokens, float *logits, uint32_t vocab) {
    text_run *run =
        text_run_open_on(on, path, NULL, &(rn_text_options){.context = 256, .rows = 8}, 0);
    assert_int_equal(run->vocab, vocab);
    tokens[0] = 1;
    for (int i = 0; i < STORY; i++) {
        text_run_logits(run, &tokens[i], 1, logits + (size_t)i * vocab);
        tokens[i + 1] = text_run_best(logits + (size_t)i * vocab, vocab);
    }
    text_run_close(run);
}

static void stories_are_told_in_the_same_words(void **state) {
    enum { STORIES_VOCAB = 512 };
    static int32_t there[STORY + 1], here[STORY + 1];
    static float logits[2][STORY * STORIES_VOCAB];
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", test_data_or_skip("llama/stories260K/hf"));
    want_device();
    tell(device, path, there, logits[0], STORIES_VOCAB);
    tell(NULL, path, here, logits[1], STORIES_VOCAB);
    assert_memory_equal(there, here, sizeof here);
    double difference = text_run_difference(logits[0], logits[1], STORY * STORIES_VOCAB);
    print_message("logits off by %.1e\n", difference);
    assert_true(difference <= 1e-3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(architectures_give_the_logits_of_transformers, open_device,
                                        close_device),
        cmocka_unit_test_setup_teardown(stories_are_told_in_the_same_words, open_device,
                                        close_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// ort_models_test.c — text models by ONNX Runtime: the logits of architectures against Hugging
// Face's transformers, and 200 greedy tokens of stories260K against our own CPU.
#include "text_run.h"

#include <ration/device.h>

static rn_device *device;

static void want_device(void) {
    if (!device && rn_device_open("ort", 1, &device) != RN_OK)
        skip_because("ort cannot be opened: %s", rn_last_error()->message);
}

static int close_device(void **state) {
    (void)state;
    rn_device_destroy(device);
    return 0;
}

static void architectures_give_the_logits_of_transformers(void **state) {
    static const char *const names[] = {"gemma2",  // caps of scores, windows
                                        "phi3",    // rope with divisors, of a part of a head
                                        "cohere2", // rope of neighbours, layer norms
                                        "gpt2",    // learned positions, gelu
                                        "qwen3"};  // norms of heads
    uint32_t wrong = 0;
    (void)state;
    want_device();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char folder[64];
        snprintf(folder, sizeof folder, "tests/golden/text/%s", names[i]);
        double difference = text_run_measure_on(device, folder);
        print_message("%-14s %.1e\n", names[i], difference);
        wrong += !(difference <= 1e-4);
    }
    assert_int_equal(wrong, 0);
}

static void stories_are_told_in_the_same_words(void **state) {
    char path[512];
    (void)state;
    snprintf(path, sizeof path, "%s", test_data_or_skip("llama/stories260K/hf"));
    want_device();
    double difference = text_run_story(device, path);
    print_message("logits off by %.1e\n", difference);
    assert_true(difference <= 1e-3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(architectures_give_the_logits_of_transformers),
        cmocka_unit_test(stories_are_told_in_the_same_words),
    };
    return cmocka_run_group_tests(tests, NULL, close_device);
}

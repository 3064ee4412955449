// text_models_test.c — small random models of every architecture against Hugging Face's
// transformers, from safetensors and from GGUF, and with adapters against weights they were added
// to. The files are made by scripts/reference/text_models.py.
#include "text_run.h"

enum { COUNT = 40, VOCAB = 128 };

#define TEXT "tests/golden/text/"

// Within 1e-4 of the tensor `which` of `folder`'s golden.safetensors.
static void check(const char *file, const char *folder, const char *which,
                  const rn_model_options *options) {
    static int32_t tokens[COUNT];
    static float expected[COUNT * VOCAB], logits[COUNT * VOCAB];
    char golden[128];
    rn_checkpoint *c;
    snprintf(golden, sizeof golden, "%s/golden.safetensors", folder);
    assert_ok(rn_checkpoint_open(golden, &c));
    assert_ok(rn_checkpoint_load(c, rn_checkpoint_find(c, "tokens"), RN_DTYPE_I32, tokens,
                                 sizeof tokens));
    assert_ok(rn_checkpoint_load(c, rn_checkpoint_find(c, which), RN_DTYPE_F32, expected,
                                 sizeof expected));
    rn_checkpoint_close(c);
    text_run *run = text_run_open(file, options,
                                  &(rn_text_options){.context = 64, .page_tokens = 8, .rows = 16});
    text_run_logits(run, tokens, COUNT, logits);
    text_run_close(run);
    double difference = text_run_difference(logits, expected, COUNT * VOCAB);
    if (!(difference <= 1e-4)) fail_msg("%s: off by %g", file, difference);
}

static void llama_with_llama3_rope(void **state) {
    (void)state;
    check(TEXT "llama3", TEXT "llama3", "logits", NULL);
    check(TEXT "llama3/model.gguf", TEXT "llama3", "logits", NULL);
}

static void llama_with_linear_rope_and_biases_and_a_tied_head(void **state) {
    (void)state;
    check(TEXT "llama_linear", TEXT "llama_linear", "logits", NULL);
}

static void mistral_with_a_window(void **state) {
    (void)state;
    check(TEXT "mistral", TEXT "mistral", "logits", NULL);
    check(TEXT "mistral/model.gguf", TEXT "mistral", "logits", NULL);
}

static void qwen2_with_yarn_and_a_window_in_its_last_layer(void **state) {
    (void)state;
    check(TEXT "qwen2", TEXT "qwen2", "logits", NULL);
    check(TEXT "qwen2/model.gguf", TEXT "qwen2", "logits.gguf", NULL);
}

static void qwen3_with_norms_of_q_and_k(void **state) {
    (void)state;
    check(TEXT "qwen3", TEXT "qwen3", "logits", NULL);
    check(TEXT "qwen3/model.gguf", TEXT "qwen3", "logits", NULL);
}

static void gpt2_with_learned_positions_and_transposed_weights(void **state) {
    (void)state;
    check(TEXT "gpt2", TEXT "gpt2", "logits", NULL);
    check(TEXT "gpt2/model.gguf", TEXT "gpt2", "logits", NULL);
}

static void gemma3_with_windows_in_two_of_three_layers(void **state) {
    (void)state;
    check(TEXT "gemma3", TEXT "gemma3", "logits", NULL);
    check(TEXT "gemma3/model.gguf", TEXT "gemma3", "logits.gguf", NULL);
}

static void adapters_are_as_if_added_to_the_weights(void **state) {
    (void)state;
    const rn_adapter both[] = {{TEXT "lora/one", 1}, {TEXT "lora/two", 1}};
    rn_model_options options = {.adapters = both, .adapter_count = 1};
    check(TEXT "llama3", TEXT "llama3", "logits.one", &options);
    check(TEXT "llama3/model.gguf", TEXT "llama3", "logits.one", &options);
    options.adapter_count = 2;
    check(TEXT "llama3", TEXT "llama3", "logits.both", &options);
    check(TEXT "llama3/model.gguf", TEXT "llama3", "logits.both", &options);
}

// Tied: the head's adapter leaves the embedding alone. GGUF files of Qwen do not permute.
static void adapters_reach_a_tied_head(void **state) {
    (void)state;
    const rn_adapter head[] = {{TEXT "lora/head", 1}};
    check(TEXT "qwen2/model.gguf", TEXT "qwen2", "logits.head",
          &(rn_model_options){.adapters = head, .adapter_count = 1});
}

// Its weights are (in, out) in the first file.
static void adapters_reach_transposed_weights(void **state) {
    (void)state;
    const rn_adapter conv[] = {{TEXT "lora/conv", 1}};
    rn_model_options options = {.adapters = conv, .adapter_count = 1};
    check(TEXT "gpt2", TEXT "gpt2", "logits.conv", &options);
    check(TEXT "gpt2/model.gguf", TEXT "gpt2", "logits.conv", &options);
}

static void an_adapter_at_scale_0_changes_nothing(void **state) {
    (void)state;
    const rn_adapter none[] = {{TEXT "lora/one", 0}};
    check(TEXT "llama3", TEXT "llama3", "logits",
          &(rn_model_options){.adapters = none, .adapter_count = 1});
}

static void check_budgets(const char *path, const rn_model_options *options) {
    static float roomy[COUNT * VOCAB], tight[COUNT * VOCAB];
    rn_text_options text = {.context = 64, .page_tokens = 8, .rows = 16};
    int32_t tokens[COUNT];
    for (int i = 0; i < COUNT; i++)
        tokens[i] = (i * 29 + 3) % VOCAB;
    text_run *run = text_run_open(path, options, &text);
    uint64_t most = rn_plan_get_summary(run->plan)->planned_bytes;
    uint64_t least = rn_plan_get_summary(run->plan)->smallest_bytes;
    text_run_logits(run, tokens, COUNT, roomy);
    text_run_close(run);
    assert_true(least < most);
    for (int i = 0; i < 4; i++) {
        run = text_run_open_within(path, options, &text, most - (most - least) * i / 3);
        text_run_logits(run, tokens, COUNT, tight);
        assert_true(i < 3 || rn_plan_get_summary(run->plan)->streamed_bytes > 0);
        text_run_close(run);
        assert_memory_equal(roomy, tight, sizeof roomy);
    }
}

// From the roomiest to the smallest budget that works, weights from files and from memory.
static void every_budget_gives_the_same_bits(void **state) {
    (void)state;
    const rn_adapter one[] = {{TEXT "lora/one", 1}};
    check_budgets(TEXT "llama3", &(rn_model_options){.adapters = one, .adapter_count = 1});
    check_budgets(TEXT "gpt2", NULL);
    check_budgets(TEXT "gpt2/model.gguf", NULL);
    check_budgets(TEXT "gemma3", NULL);
    check_budgets(TEXT "gemma3/model.gguf", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_with_llama3_rope),
        cmocka_unit_test(llama_with_linear_rope_and_biases_and_a_tied_head),
        cmocka_unit_test(mistral_with_a_window),
        cmocka_unit_test(qwen2_with_yarn_and_a_window_in_its_last_layer),
        cmocka_unit_test(qwen3_with_norms_of_q_and_k),
        cmocka_unit_test(gpt2_with_learned_positions_and_transposed_weights),
        cmocka_unit_test(gemma3_with_windows_in_two_of_three_layers),
        cmocka_unit_test(adapters_are_as_if_added_to_the_weights),
        cmocka_unit_test(adapters_reach_a_tied_head),
        cmocka_unit_test(adapters_reach_transposed_weights),
        cmocka_unit_test(an_adapter_at_scale_0_changes_nothing),
        cmocka_unit_test(every_budget_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

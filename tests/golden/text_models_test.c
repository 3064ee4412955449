// text_models_test.c — small random models of every architecture against Hugging Face's
// transformers, from safetensors and from GGUF, and with adapters against weights they were added
// to. The files are made by scripts/reference/text_models.py.
#include <ration/plan.h>

#include "text_run.h"

enum { COUNT = 40, VOCAB = 128 };

#define TEXT "tests/golden/text/"

// Within 1e-4; the largest logits are between 1.5 and 12.
static double check(const char *file, const char *folder, const char *which,
                    const rn_model_options *options) {
    double difference = text_run_measure(file, folder, which, options);
    if (!(difference <= 1e-4)) fail_msg("%s: off by %g", file, difference);
    return difference;
}

// A row for each architecture, and for what else changes a layer's meaning.
static const struct {
    const char *name, *what;
    const char *gguf; // the tensor with the logits of model.gguf; NULL: there is no such file
} models[] = {
    {"llama3", "Llama 3's rope", "logits"},
    {"llama_linear", "linear rope, biases, a tied head", NULL},
    {"mistral", "a window", "logits"},
    {"qwen2", "YARN, a window in the last layer", "logits.gguf"},
    {"qwen3", "norms of q and k", "logits"},
    {"gpt2", "learned positions, transposed weights", "logits"},
    {"gemma3", "windows in two of three layers, two ropes", "logits.gguf"},
    {"ministral3", "queries that grow with positions", "logits"},
    {"gemma3_seeing", "the text of a model that sees", NULL},
    {"mistral3_seeing", "another one", NULL},
    {"phi3", "long rope of six dims of eight, fused products, a window", "logits"},
    {"phi3_short", "the short form of the same rope, a tied head", "logits"},
    {"gemma2", "caps of scores and logits, windows in every other layer", "logits.gguf"},
    {"gemma4", "heads of two widths, keys that are values", "logits"},
    {"smollm3", "no rope in the last of four layers", "logits"},
    {"granite", "four scales", "logits"},
    {"olmo2", "norms behind branches, of all heads as one", "logits"},
    {"olmo3", "windows in three of four layers, YARN in the fourth", "logits"},
    {"starcoder2", "layer norms, a window", "logits.gguf"},
    {"cohere2", "parallel branches, neighbours, no rope in the fourth", "logits"},
    {"gptneox", "grouped q, k, v, a rope of half a head", "logits"},
    {"falcon", "two norms, four heads of q to one of k", "logits"},
    {"falcon_one", "one norm, one head of k", "logits"},
    {"mixtral", "experts, weights by their sum", "logits"},
    {"qwen2_moe", "experts, and a shared one with a gate", "logits"},
    {"qwen3_moe", "experts, norms of q and k", "logits"},
    {"qwen3_moe_fused", "all experts of a layer in one tensor", "logits"},
    {"olmoe", "experts, norms of all heads as one", "logits"},
    {"glm4_moe", "a bias of the choice, shared experts, a dense layer", "logits"},
    {"deepseek_v2", "latent attention, groups by their best expert, YARN's scale of scores",
     "logits"},
    {"deepseek_v3", "latent queries, groups by their best two, a bias of the choice", "logits"},
    {"glm4_moe_lite", "latent attention with values wider than keys", "logits"},
    {"gemma4_moe", "experts beside a dense branch, each with norms of its own", "logits"},
    {"gpt_oss", "sinks, experts of mxfp4 with biases, YARN within pairs", "logits.gguf"},
};

static void every_architecture_gives_the_logits_of_transformers(void **state) {
    (void)state;
    print_message("%-14s %-10s %-10s\n", "architecture", "HF", "GGUF");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char folder[64], file[96], form[16] = "-";
        snprintf(folder, sizeof folder, TEXT "%s", models[i].name);
        snprintf(file, sizeof file, "%s/model.gguf", folder);
        double from_folder = check(folder, folder, "logits", NULL);
        if (models[i].gguf)
            snprintf(form, sizeof form, "%.1e", check(file, folder, models[i].gguf, NULL));
        print_message("%-14s %-10.1e %-10s %s\n", models[i].name, from_folder, form,
                      models[i].what);
    }
}

static void adapters_are_as_if_added_to_the_weights(void **state) {
    (void)state;
    const rn_adapter both[] = {{.path = TEXT "lora/one", .scale = 1},
                               {.path = TEXT "lora/two", .scale = 1}};
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
    const rn_adapter head[] = {{.path = TEXT "lora/head", .scale = 1}};
    check(TEXT "qwen2/model.gguf", TEXT "qwen2", "logits.head",
          &(rn_model_options){.adapters = head, .adapter_count = 1});
}

// Its weights are (in, out) in the first file.
static void adapters_reach_transposed_weights(void **state) {
    (void)state;
    const rn_adapter conv[] = {{.path = TEXT "lora/conv", .scale = 1}};
    rn_model_options options = {.adapters = conv, .adapter_count = 1};
    check(TEXT "gpt2", TEXT "gpt2", "logits.conv", &options);
    check(TEXT "gpt2/model.gguf", TEXT "gpt2", "logits.conv", &options);
}

static void an_adapter_at_scale_0_changes_nothing(void **state) {
    (void)state;
    const rn_adapter none[] = {{.path = TEXT "lora/one", .scale = 0}};
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
    const rn_adapter one[] = {{.path = TEXT "lora/one", .scale = 1}};
    check_budgets(TEXT "llama3", &(rn_model_options){.adapters = one, .adapter_count = 1});
    check_budgets(TEXT "gpt2", NULL);
    check_budgets(TEXT "gpt2/model.gguf", NULL);
    check_budgets(TEXT "gemma3", NULL);
    check_budgets(TEXT "gemma3/model.gguf", NULL);
    check_budgets(TEXT "cohere2", NULL);
    check_budgets(TEXT "falcon", NULL);
    check_budgets(TEXT "phi3", NULL);
    check_budgets(TEXT "gemma2", NULL);
    check_budgets(TEXT "gemma4", NULL);
    check_budgets(TEXT "ministral3", NULL);
    check_budgets(TEXT "mixtral", NULL);
    check_budgets(TEXT "qwen3_moe_fused/model.gguf", NULL);
    check_budgets(TEXT "gpt_oss", NULL);
    check_budgets(TEXT "deepseek_v3", NULL);
    check_budgets(TEXT "deepseek_v3/model.gguf", NULL);
    check_budgets(TEXT "gpt_oss/model.gguf", NULL);
}

// Of a token and a layer the latent and the turned key of 40 numbers, not 4 heads of 24 and 12.
static void latent_attention_keeps_one_plane(void **state) {
    (void)state;
    rn_text_options text = {.context = 64, .page_tokens = 8, .rows = 16};
    text_run *run = text_run_open(TEXT "deepseek_v3", NULL, &text);
    uint64_t kv = rn_plan_get_summary(run->plan)->purpose_bytes[RN_PURPOSE_KV];
    text_run_close(run);
    assert_int_equal(kv, 3 * 64 * 40 * sizeof(float));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture_gives_the_logits_of_transformers),
        cmocka_unit_test(adapters_are_as_if_added_to_the_weights),
        cmocka_unit_test(adapters_reach_a_tied_head),
        cmocka_unit_test(adapters_reach_transposed_weights),
        cmocka_unit_test(an_adapter_at_scale_0_changes_nothing),
        cmocka_unit_test(every_budget_gives_the_same_bits),
        cmocka_unit_test(latent_attention_keeps_one_plane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

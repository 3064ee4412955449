// quantized_models_test.c — small models whose weights are quantised as Hugging Face checkpoints
// have them, against transformers with the dequantised weights; from the roomiest to the smallest
// budget. The files are made by scripts/reference/quantized_models.py.
#include "text_run.h"

#include <ration/convert.h>

enum { COUNT = 16, VOCAB = 64 };

#define FORMS "tests/golden/forms/"

static const struct {
    const char *name, *weights; // what the plan is told
} forms[] = {
    {"gptq_sym_g32", "q4_0"},  {"gptq_g128", "int4"},        {"gptq_v2_g32", "u4_b32"},
    {"gptq_act_order", "f16"}, {"gptq_8bit", "q8_0"},        {"awq_g128", "int4"},
    {"awq_g32", "u4_b32"},     {"fp8_block", "f8_b128"},     {"ct_fp8", "f8_b32"},
    {"ct_int8", "int8"},       {"ct_int4", "q4_0"},          {"ct_int4_asym", "u4_b32"},
    {"ct_nvfp4", "fp4_b64"},   {"ct_mxfp4", "mxfp4"},        {"modelopt_nvfp4", "fp4_b64"},
    {"mxfp4", "mxfp4"},        {"moe_fp8_block", "f8_b128"}, {"moe_gptq", "q4_0"},
    {"moe_awq", "u4_b32"},     {"moe_fp8_stack", "f8_b32"},  {"moe_ct_int4", "q4_0"},
};
enum { FORM_COUNT = sizeof forms / sizeof *forms };

static void read_golden(const char *folder, int32_t *tokens, float *logits) {
    char path[128];
    rn_checkpoint *c;
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    assert_ok(rn_checkpoint_open(path, &c));
    assert_ok(rn_checkpoint_load(c, rn_checkpoint_find(c, "tokens"), RN_DTYPE_I32, tokens,
                                 COUNT * sizeof *tokens));
    assert_ok(rn_checkpoint_load(c, rn_checkpoint_find(c, "logits"), RN_DTYPE_F32, logits,
                                 COUNT * VOCAB * sizeof *logits));
    rn_checkpoint_close(c);
}

// Activations are not rounded, so that the weights alone can differ.
static const rn_text_options text = {
    .context = 64, .page_tokens = 8, .rows = 8, .unquantised_activations = true};

// The largest difference of the logits of the model at `path` from those of the folder's golden
// file. weights: what the plan must say, or NULL.
static double measure(const char *path, const char *folder, const char *weights) {
    int32_t tokens[COUNT];
    float expected[COUNT * VOCAB], logits[COUNT * VOCAB];
    read_golden(folder, tokens, expected);
    text_run *run = text_run_open(path, NULL, &text);
    if (weights && !strstr(rn_model_get_info(run->model)->weights, weights))
        fail_msg("%s: %s instead of %s", path, rn_model_get_info(run->model)->weights, weights);
    text_run_logits(run, tokens, COUNT, logits);
    text_run_close(run);
    double difference = text_run_difference(logits, expected, COUNT * VOCAB);
    if (!(difference <= 1e-4)) fail_msg("%s: off by %g", path, difference);
    return difference;
}

static void every_form_has_the_logits_of_the_dequantised_model(void **state) {
    (void)state;
    for (size_t i = 0; i < FORM_COUNT; i++) {
        char folder[64];
        snprintf(folder, sizeof folder, FORMS "%s", forms[i].name);
        print_message("%-16s %-8s %.0e\n", forms[i].name, forms[i].weights,
                      measure(folder, folder, forms[i].weights));
    }
}

// As the same kinds where GGUF has them, else in f32. Scales behind all rows (int4, int8) are not
// converted.
static void a_gguf_file_of_every_form_has_the_same_logits(void **state) {
    (void)state;
    for (size_t i = 0; i < FORM_COUNT; i++) {
        char folder[64], file[300];
        rn_convert_result result;
        rn_convert_options options = {0};
        const char *weights = forms[i].weights;
        bool refused = strcmp(weights, "int4") == 0 || strcmp(weights, "int8") == 0 ||
                       strcmp(forms[i].name, "moe_awq") == 0; // some of its weights
        bool stays = strcmp(weights, "q4_0") == 0 || strcmp(weights, "q8_0") == 0 ||
                     strcmp(weights, "mxfp4") == 0;
        snprintf(folder, sizeof folder, FORMS "%s", forms[i].name);
        snprintf(file, sizeof file, "%s/%s.gguf", test_folder(), forms[i].name);
        if (refused) {
            assert_fails(RN_UNSUPPORTED, rn_convert(folder, file, &options, &result));
            assert_non_null(strstr(rn_last_error()->message, "quantised already"));
            continue;
        }
        assert_ok(rn_convert(folder, file, &options, &result));
        assert_false(result.tensors_only);
        (void)measure(file, folder, stays ? weights : "f");
    }
}

// With rounded activations, as models are run.
static void every_budget_gives_the_same_bits(void **state) {
    (void)state;
    static const char *const names[] = {"gptq_sym_g32", "gptq_g128", "awq_g32",
                                        "ct_int8",      "ct_nvfp4",  "moe_gptq"};
    rn_text_options rounded = text;
    rounded.unquantised_activations = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char folder[64];
        int32_t tokens[COUNT];
        float expected[COUNT * VOCAB], roomy[COUNT * VOCAB], tight[COUNT * VOCAB];
        snprintf(folder, sizeof folder, FORMS "%s", names[i]);
        read_golden(folder, tokens, expected);
        text_run *run = text_run_open(folder, NULL, &rounded);
        uint64_t most = rn_plan_get_summary(run->plan)->planned_bytes;
        uint64_t least = rn_plan_get_summary(run->plan)->smallest_bytes;
        text_run_logits(run, tokens, COUNT, roomy);
        text_run_close(run);
        for (int step = 1; step < 3; step++) {
            run = text_run_open_within(folder, NULL, &rounded, most - (most - least) * step / 2);
            text_run_logits(run, tokens, COUNT, tight);
            assert_true(step < 2 || rn_plan_get_summary(run->plan)->streamed_bytes > 0);
            text_run_close(run);
            assert_memory_equal(roomy, tight, sizeof roomy);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_has_the_logits_of_the_dequantised_model),
        cmocka_unit_test(a_gguf_file_of_every_form_has_the_same_logits),
        cmocka_unit_test(every_budget_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// convert_models_test.c — a converted model is the same model: the golden logits of transformers
// from files that were turned from one container into the other, and tokenizers that give the same
// tokens.
#include "text_run.h"

#include <ration/convert.h>

#include "base/str.h"

#include <sys/stat.h>
#include <unistd.h>

enum { COUNT = 40, VOCAB = 128 };

#define TEXT "tests/golden/text/"

static double measure(const char *path, const char *golden_folder, const char *which) {
    static int32_t tokens[COUNT];
    static float expected[COUNT * VOCAB], logits[COUNT * VOCAB];
    char golden[128];
    rn_checkpoint *c;
    snprintf(golden, sizeof golden, "%s/golden.safetensors", golden_folder);
    assert_ok(rn_checkpoint_open(golden, &c));
    assert_ok(rn_checkpoint_load(c, rn_checkpoint_find(c, "tokens"), RN_DTYPE_I32, tokens,
                                 sizeof tokens));
    assert_ok(rn_checkpoint_load(c, rn_checkpoint_find(c, which), RN_DTYPE_F32, expected,
                                 sizeof expected));
    rn_checkpoint_close(c);
    text_run *run =
        text_run_open(path, NULL, &(rn_text_options){.context = 64, .page_tokens = 8, .rows = 16});
    text_run_logits(run, tokens, COUNT, logits);
    text_run_close(run);
    return text_run_difference(logits, expected, COUNT * VOCAB);
}

static void convert(const char *in, const char *out) {
    rn_convert_result result;
    rn_convert_options options = {0};
    assert_ok(rn_convert(in, out, &options, &result));
    assert_false(result.tensors_only);
}

static const struct {
    const char *name;
    const char *from_folder; // golden logits of what config.json and safetensors say; NULL: refused
    const char *from_gguf;   // of model.gguf; NULL: there is none
} models[] = {
    {"llama3", "logits", "logits"},  {"llama_linear", "logits", NULL},
    {"mistral", "logits", "logits"}, {"qwen2", NULL, "logits.gguf"},
    {"qwen3", "logits", "logits"},   {"gpt2", "logits", "logits"},
    {"gemma3", NULL, "logits.gguf"},
};

// There and back again: names, permuted and transposed weights, norms less one, keys.
static void models_survive_the_other_container(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char folder[64], file[96], gguf[300], back[300];
        snprintf(folder, sizeof folder, TEXT "%s", models[i].name);
        snprintf(file, sizeof file, "%s/model.gguf", folder);
        snprintf(gguf, sizeof gguf, "%s/%s.gguf", test_folder(), models[i].name);
        snprintf(back, sizeof back, "%s/%s", test_folder(), models[i].name);
        const char *steps[][3] = {{folder, gguf, models[i].from_folder},
                                  {gguf, back, models[i].from_folder},
                                  {file, back, models[i].from_gguf},
                                  {back, gguf, models[i].from_gguf}};
        for (int step = 0; step < 4; step++) {
            if (!steps[step][2]) continue;
            convert(steps[step][0], steps[step][1]);
            double difference = measure(steps[step][1], folder, steps[step][2]);
            if (!(difference <= 1e-4))
                fail_msg("%s to %s: off by %g", steps[step][0], steps[step][1], difference);
        }
    }
}

// What GGUF has no words for is refused, and no file is left.
static void what_cannot_be_said_is_refused(void **state) {
    (void)state;
    rn_convert_result result;
    rn_convert_options options = {0};
    const char *out = test_path("refused.gguf");
    assert_fails(RN_UNSUPPORTED, rn_convert(TEXT "qwen2", out, &options, &result));
    assert_non_null(strstr(rn_last_error()->message, "GGUF cannot say"));
    assert_fails(RN_UNSUPPORTED, rn_convert(TEXT "olmo2", out, &options, &result));
    assert_non_null(strstr(rn_last_error()->message, "olmo2"));
    assert_int_not_equal(access(out, F_OK), 0);
    assert_fails(RN_UNSUPPORTED,
                 rn_convert(TEXT "olmo2/model.gguf", test_path("refused"), &options, &result));
    assert_int_not_equal(access(test_path("refused"), F_OK), 0);
}

static void encode(const char *path, const char *text, rn_tokens *out) {
    rn_model *model;
    assert_ok(rn_model_open(path, NULL, &model));
    assert_non_null(rn_model_tokenizer(model));
    assert_ok(rn_tokenizer_encode(rn_model_tokenizer(model), rn_str_from(text),
                                  RN_ENCODE_BEGIN | RN_ENCODE_SPECIAL, out));
    rn_model_close(model);
}

// The default model's byte-level BPE.
static void tokenizers_give_the_same_tokens(void **state) {
    (void)state;
    static const char text[] = "Once upon a time, it's 1234 naïve cats\n\n  in 日本 — fine!";
    char gguf[300], back[300];
    snprintf(gguf, sizeof gguf, "%s", test_path("default.gguf"));
    snprintf(back, sizeof back, "%s", test_path("default"));
    convert("models/default", gguf);
    convert(gguf, back);
    rn_tokens expected = {0};
    encode("models/default", text, &expected);
    assert_true(expected.count > 10);
    for (int i = 0; i < 2; i++) {
        rn_tokens got = {0};
        encode(i ? back : gguf, text, &got);
        assert_int_equal(got.count, expected.count);
        assert_memory_equal(got.ids, expected.ids, expected.count * sizeof *got.ids);
        rn_tokens_free(&got);
    }
    rn_tokens_free(&expected);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_survive_the_other_container),
        cmocka_unit_test(what_cannot_be_said_is_refused),
        cmocka_unit_test(tokenizers_give_the_same_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

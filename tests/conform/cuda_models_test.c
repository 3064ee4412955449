// labels: gpu
// cuda_models_test.c — small models from files on the first GPU: weights quantised as Hugging
// Face checkpoints have them, and encoders; nearly what the CPU says, and what transformers say
// (tests/golden/forms, tests/golden/embed).
#include "support.h"

#include "gpu.h"

#include "text_run.h"

#include <ration/embed.h>

#include <math.h>

enum { COUNT = 16, VOCAB = 64, DIM = 32, TEXTS = 4, MOST_TOKENS = 256 };

static test_gpu gpu;

static int open_gpu(void **state) {
    (void)state;
    return test_gpu_open(&gpu, 0);
}

static int close_gpu(void **state) {
    (void)state;
    return test_gpu_close(&gpu);
}

// |is - must| / |must|
static double distance(const float *is, const float *must, size_t count) {
    double apart = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        double d = (double)is[i] - (double)must[i];
        apart += d * d;
        size += (double)must[i] * (double)must[i];
    }
    return sqrt(apart / size);
}

// ---- quantised weights --------------------------------------------------------------------------

// out_least: the smallest budget; NULL: nobody asks.
static void compute(rn_device *device, const char *folder, uint32_t rows, uint64_t budget,
                    float *logits, uint64_t *out_least) {
    rn_text_options text = {
        .context = 64, .page_tokens = 8, .rows = rows, .unquantised_activations = true};
    int32_t tokens[COUNT];
    for (int i = 0; i < COUNT; i++)
        tokens[i] = (i * 37 + 5) % VOCAB;
    text_run *run = text_run_open_on(device, folder, NULL, &text, budget);
    if (out_least) *out_least = rn_plan_get_summary(run->plan)->smallest_bytes;
    assert_int_equal(run->vocab, VOCAB);
    text_run_logits(run, tokens, COUNT, logits);
    text_run_close(run);
}

static void every_form_of_weights_says_what_the_cpu_says(void **state) {
    static const char *const forms[] = {
        "gptq_sym_g32", "gptq_g128", "gptq_v2_g32",  "gptq_act_order", "gptq_8bit", "awq_g128",
        "awq_g32",      "fp8_block", "ct_fp8",       "ct_int8",        "ct_int4",   "ct_nvfp4",
        "ct_mxfp4",     "mxfp4",     "ct_int4_asym", "modelopt_nvfp4",
    };
    uint32_t wrong = 0;
    (void)state;
    test_gpu_want(&gpu);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        float must[COUNT * VOCAB], is[COUNT * VOCAB], one[COUNT * VOCAB], tight[COUNT * VOCAB];
        uint64_t least = 0;
        char folder[64];
        snprintf(folder, sizeof folder, "tests/golden/forms/%s", forms[i]);
        compute(NULL, folder, 8, 0, must, NULL);
        compute(gpu.device, folder, 8, 0, is, &least);
        compute(gpu.device, folder, 1, 0, one, NULL);
        compute(gpu.device, folder, 8, least, tight, NULL);
        double error = distance(is, must, COUNT * VOCAB);
        print_message("%s: the logits are off by %.2g\n", forms[i], error);
        bool same = memcmp(is, one, sizeof is) == 0 && memcmp(is, tight, sizeof is) == 0;
        if (!same) print_error("one by one or while weights stream the bits are others\n");
        wrong += !(error <= 5e-3) || !same;
    }
    assert_int_equal(wrong, 0);
}

// ---- encoders -----------------------------------------------------------------------------------

static void load(const rn_checkpoint *file, const char *name, rn_dtype dtype, void *out,
                 size_t bytes) {
    const rn_tensor_info *tensor = rn_checkpoint_find(file, name);
    assert_true(tensor && tensor->elements * 4 <= bytes);
    assert_ok(rn_checkpoint_load(file, tensor, dtype, out, tensor->elements * 4));
}

static double check_encoder(const char *folder) {
    int32_t lengths[TEXTS], ids[MOST_TOKENS] = {0};
    uint32_t words[MOST_TOKENS];
    float must[TEXTS * DIM], is[TEXTS * DIM];
    rn_tokens texts[TEXTS];
    char path[96];
    rn_checkpoint *file = NULL;
    rn_model *model = NULL;
    rn_embedder *e = NULL;
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    assert_ok(rn_checkpoint_open(path, &file));
    load(file, "lengths", RN_DTYPE_I32, lengths, sizeof lengths);
    load(file, "tokens", RN_DTYPE_I32, ids, sizeof ids);
    load(file, "mean", RN_DTYPE_F32, must, sizeof must);
    for (int i = 0, at = 0; i < TEXTS; at += lengths[i++])
        texts[i] = (rn_tokens){words + at, (size_t)lengths[i], 0};
    for (int i = 0; i < MOST_TOKENS; i++)
        words[i] = (uint32_t)ids[i];
    assert_ok(rn_model_open(folder, &(rn_model_options){.without_tokenizer = true}, &model));
    rn_embedder_options options = {.text = {.text_tokens = 48, .rows = 100},
                                   .form = {.pooling = RN_POOLING_MEAN},
                                   .session.device = gpu.device};
    if (rn_model_get_info(model)->embedding.text_tokens > 150) options.text.text_tokens = 150;
    assert_ok(rn_embedder_create(model, &options, &e));
    assert_ok(rn_embedder_embed_tokens(e, texts, TEXTS, is));
    rn_embedder_destroy(e);
    rn_model_close(model);
    rn_checkpoint_close(file);
    return distance(is, must, TEXTS * DIM);
}

static void encoders_say_what_transformers_say(void **state) {
    static const char *const encoders[] = {"bert",       "mpnet",      "xlm_roberta",
                                           "nomic_bert", "modernbert", "qwen3"};
    uint32_t wrong = 0;
    (void)state;
    test_gpu_want(&gpu);
    for (size_t i = 0; i < sizeof encoders / sizeof *encoders; i++) {
        char folder[64];
        snprintf(folder, sizeof folder, "tests/golden/embed/%s", encoders[i]);
        double error = check_encoder(folder);
        print_message("%s: off by %.2g\n", encoders[i], error);
        wrong += !(error <= 2e-3); // products round their rows to f16
    }
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_weights_says_what_the_cpu_says),
        cmocka_unit_test(encoders_say_what_transformers_say),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}

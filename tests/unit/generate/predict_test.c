// predict_test.c — what plans say that text models take on a GPU, beside what they took.
//
// Rates and facts are an H200's, of one call of bench/gpu (bench/results/2026-11-16-h200.md).
#include "support.h"

#include "backend/cuda/cost.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/rows.h"
#include "graph/fuse.h"
#include "model/model.h"
#include "plan/plan.h"

static rn_device_caps h200(void) {
    return (rn_device_caps){.name = "cuda:0",
                            .device = RN_DEVICE_HOST + 1,
                            .threads = 16,
                            .kernels = rn_cuda_kernels,
                            .weight_layout = rn_cuda_weight_layout,
                            .own_memory = true,
                            .group_bytes = 64 << 20,
                            .row_table_bytes = 1 << 20,
                            .fusions = RN_FUSE_ALL,
                            .backend = &rn_cuda_backend,
                            .flops = 637.3e12,
                            .quantized_flops = 616.7e12,
                            .memory_bytes_second = 4768.7e9,
                            .disk_bytes_second = 5.9e9,
                            .link_bytes_second = 55.3e9,
                            .step_seconds = 1.825e-6,
                            .product_rows = 16,
                            .run_seconds = 14.8e-6,
                            .own = {[RN_CUDA_UNPACK_WEIGHTS] = 6504.6e9,
                                    [RN_CUDA_UNPACK_BYTES] = 4336.8e9,
                                    [RN_CUDA_ATTEND_FLOPS] = 221.2e12,
                                    [RN_CUDA_ATTEND_SECONDS] = 22.2e-6,
                                    [RN_CUDA_MULTIPROCESSORS] = 132}};
}

typedef struct fact {
    const char *name;
    rn_dtype dtype;
    uint32_t layers, dim, kv_heads, ffn, vocab;
    bool tied;
    double tokens, prompt; // a second: made one by one, read 512 at once
} fact;

static const fact facts[] = {
    {"7B f16", RN_DTYPE_F16, 32, 4096, 8, 14336, 32000, false, 281.7, 31295},
    {"7B bf16", RN_DTYPE_BF16, 32, 4096, 8, 14336, 32000, false, 283.7, 32209},
    {"7B q8_0", RN_DTYPE_Q8_0, 32, 4096, 8, 14336, 32000, false, 471.9, 31308},
    {"7B int8", RN_DTYPE_INT8, 32, 4096, 8, 14336, 32000, false, 489.3, 33262},
    {"7B q4_0", RN_DTYPE_Q4_0, 32, 4096, 8, 14336, 32000, false, 630.3, 33022},
    {"7B int4", RN_DTYPE_INT4, 32, 4096, 8, 14336, 32000, false, 604.8, 31447},
    {"7B nf4", RN_DTYPE_NF4, 32, 4096, 8, 14336, 32000, false, 512.5, 25862},
    {"7B q4_1", RN_DTYPE_Q4_1, 32, 4096, 8, 14336, 32000, false, 586.2, 33866},
    {"7B q5_k", RN_DTYPE_Q5_K, 32, 4096, 8, 14336, 32000, false, 534.9, 31738},
    {"7B q6_k", RN_DTYPE_Q6_K, 32, 4096, 8, 14336, 32000, false, 494.8, 29504},
    {"7B q3_k", RN_DTYPE_Q3_K, 32, 4096, 8, 14336, 32000, false, 550.6, 29681},
    {"7B q2_k", RN_DTYPE_Q2_K, 32, 4096, 8, 14336, 32000, false, 562.9, 29902},
    {"7B iq4_xs", RN_DTYPE_IQ4_XS, 32, 4096, 8, 14336, 32000, false, 520.2, 28076},
    {"7B mxfp4", RN_DTYPE_MXFP4, 32, 4096, 8, 14336, 32000, false, 519.9, 28507},
    {"1.1B f16", RN_DTYPE_F16, 22, 2048, 4, 5632, 32000, false, 1295.6, 120078},
    {"1B bf16", RN_DTYPE_BF16, 16, 2048, 8, 8192, 128256, true, 1215.5, 130116},
};

static rn_llama_config config_of(const fact *f) {
    return (rn_llama_config){.layers = f->layers,
                             .dim = f->dim,
                             .heads = 32,
                             .kv_heads = f->kv_heads,
                             .ffn = f->ffn,
                             .vocab = f->vocab,
                             .tied = f->tied,
                             .weight_dtype = f->dtype,
                             .kv_dtype = RN_DTYPE_F16,
                             .page_tokens = 64};
}

static rn_plan_summary plan_for(const rn_llama_config *config, uint32_t prompt, uint32_t tokens) {
    rn_device_caps caps = h200();
    rn_recipe recipe;
    rn_plan *made;
    assert_ok(rn_llama_recipe(config, &recipe));
    recipe.workload_rows = (uint64_t)config->sequences * prompt;
    recipe.decode_steps = tokens;
    recipe.decode_rows = config->sequences;
    assert_ok(rn_plan_make(&recipe, &caps, NULL, &made));
    rn_plan_summary summary = made->summary;
    rn_plan_destroy(made);
    rn_recipe_destroy(&recipe);
    assert_int_equal(0, summary.streamed_bytes);
    return summary;
}

static rn_plan_summary plan(const fact *f, uint32_t prompt, uint32_t tokens) {
    rn_llama_config config = config_of(f);
    config.context = prompt + tokens + 16;
    config.sequences = config.logit_rows = 1;
    config.rows = prompt;
    return plan_for(&config, prompt, tokens);
}

static rn_plan_summary plan_many(const fact *f, uint32_t sequences) {
    rn_llama_config config = config_of(f);
    config.context = 256;
    config.sequences = config.logit_rows = sequences;
    config.rows = 512;
    return plan_for(&config, 128, 32);
}

static void assert_foretold(const char *name, const char *what, double said, double took) {
    if (said < 0.85 * took || said > 1.15 * took)
        fail_msg("%s: %s takes %.1f us, not %.1f", name, what, took * 1e6, said * 1e6);
}

static void a_token_takes_what_it_took(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        assert_foretold(facts[i].name, "a token", plan(&facts[i], 8, 128).decode_seconds,
                        1 / facts[i].tokens);
}

static void a_prompt_takes_what_it_took(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        assert_foretold(facts[i].name, "a prompt", plan(&facts[i], 512, 2).prefill_seconds,
                        512 / facts[i].prompt);
}

// Steps of many sequences with 128 tokens and up to 32 more, microseconds, with logits on the host.
static void a_step_of_many_takes_what_it_took(void **state) {
    (void)state;
    static const struct {
        uint32_t fact, sequences;
        double took;
    } steps[] = {{0, 32, 5274}, {0, 64, 6304},  {0, 128, 9193}, {0, 256, 13932}, {2, 32, 3981},
                 {2, 64, 5155}, {2, 128, 8262}, {4, 32, 3528},  {4, 64, 4749},   {4, 128, 7757}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const fact *f = &facts[steps[i].fact];
        char name[60];
        snprintf(name, sizeof name, "%s, %u sequences", f->name, steps[i].sequences);
        assert_foretold(name, "a step", plan_many(f, steps[i].sequences).decode_seconds,
                        steps[i].took * 1e-6);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_takes_what_it_took),
        cmocka_unit_test(a_prompt_takes_what_it_took),
        cmocka_unit_test(a_step_of_many_takes_what_it_took),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// convert_models_test.c — a converted model is the same model: the golden logits of transformers
// from files that were turned from one container into the other, and tokenizers that give the same
// tokens.
#include "text_run.h"

#include <ration/convert.h>
#include <ration/embed.h>

#include "base/str.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT  "tests/golden/text/"
#define EMBED "tests/golden/embed/"

static void convert(const char *in, const char *out) {
    rn_convert_result result;
    rn_convert_options options = {0};
    assert_ok(rn_convert(in, out, &options, &result));
    assert_false(result.tensors_only);
}

// ---- weights ------------------------------------------------------------------------------------

// What a model of images and text has its names in front of.
static rn_str strip(rn_str name) {
    static const char *const prefixes[] = {"language_model.", "model.language_model."};
    static char text[160];
    for (int i = 0; i < 2; i++) {
        size_t bytes = strlen(prefixes[i]);
        if (!rn_str_starts(name, rn_str_from(prefixes[i]))) continue;
        snprintf(text, sizeof text, "%s%.*s", i ? "model." : "", (int)(name.bytes - bytes),
                 name.data + bytes);
        return rn_str_from(text);
    }
    return name;
}

static void check_tensor(const rn_checkpoint *from, const rn_tensor_info *t,
                         const rn_checkpoint *to) {
    char name[160];
    static float is[1 << 16], must[1 << 16];
    snprintf(name, sizeof name, "%.*s", RN_STR_ARG(strip(t->name)));
    const rn_tensor_info *other = rn_checkpoint_find(to, name);
    if (!other) fail_msg("there is no '%s'", name);
    assert_true(t->elements <= 1 << 16);
    assert_int_equal(other->rank, t->rank);
    assert_memory_equal(other->dims, t->dims, t->rank * sizeof *t->dims);
    if (t->dtype == RN_DTYPE_U8) { // codes of a quantised weight
        assert_int_equal(other->dtype, RN_DTYPE_U8);
        assert_ok(rn_checkpoint_read(from, t, 0, must, t->bytes));
        assert_ok(rn_checkpoint_read(to, other, 0, is, t->bytes));
        assert_memory_equal(is, must, t->bytes);
        return;
    }
    assert_ok(rn_checkpoint_load(from, t, RN_DTYPE_F32, must, t->elements * sizeof *must));
    assert_ok(rn_checkpoint_load(to, other, RN_DTYPE_F32, is, t->elements * sizeof *is));
    // Rates of forgetting are a logarithm in one container, sums of norms are rounded.
    bool exact = !strstr(name, "A_log") && !strstr(name, "norm");
    for (size_t i = 0; i < t->elements; i++)
        if (fabsf(is[i] - must[i]) > (exact ? 0 : 1e-6f))
            fail_msg("'%s' %zu is %g, not %g", name, i, (double)is[i], (double)must[i]);
}

// Every weight came back with its name, its shape and its values.
static void check_equal(const char *folder, const char *back) {
    static const char *const not_of_text[] = {
        "vision_tower.*", "multi_modal_projector.*", "*.visual.*", "mtp.*",
        "pooler.*",       "*position_ids",           "*eh_proj*"};
    rn_checkpoint *from, *to;
    assert_ok(rn_checkpoint_open(folder, &from));
    assert_ok(rn_checkpoint_open(back, &to));
    for (size_t i = 0; i < rn_checkpoint_count(from); i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(from, i);
        bool unused = false;
        for (size_t k = 0; k < sizeof not_of_text / sizeof *not_of_text; k++)
            unused |= rn_str_matches(t->name, rn_str_from(not_of_text[k]));
        if (!unused) check_tensor(from, t, to);
    }
    rn_checkpoint_close(to);
    rn_checkpoint_close(from);
}

// ---- models -------------------------------------------------------------------------------------

static const struct {
    const char *name;
    const char *from_folder; // golden logits of what config.json and safetensors say; NULL: refused
    const char *from_gguf;   // of model.gguf; NULL: there is none
    bool other_names;        // it comes back with experts in tensors of their own
} models[] = {
    {"llama3", "logits", "logits"},
    {"llama_linear", "logits", NULL},
    {"mistral", "logits", "logits"},
    {"qwen2", NULL, "logits.gguf"},
    {"qwen3", "logits", "logits"},
    {"gpt2", "logits", "logits"},
    {"gemma3", NULL, "logits.gguf"},
    {"gemma2", NULL, "logits.gguf"},
    {"gemma4", "logits", "logits"},
    {"phi3", "logits", "logits"},
    {"phi3_short", "logits", "logits"},
    {"smollm3", "logits", "logits"},
    {"granite", "logits", "logits"},
    {"olmo2", "logits", "logits"},
    {"olmo3", "logits", "logits"},
    {"starcoder2", "logits", "logits.gguf"},
    {"cohere2", "logits", "logits"},
    {"ministral3", "logits", "logits"},
    {"mistral3_seeing", "logits", NULL},
    {"gptneox", "logits", "logits"},
    {"falcon", "logits", "logits"},
    {"falcon_one", "logits", "logits"},
    {"lfm2", "logits", "logits"},
    {"qwen35", "logits", "logits"},
    {"qwen35_seeing", "logits", NULL},
    // Mixtures of experts: in tensors of their own, all in one, gate and up in turn as mxfp4.
    {"mixtral", "logits", "logits"},
    {"qwen2_moe", "logits", "logits"},
    {"qwen3_moe", "logits", "logits"},
    {"qwen3_moe_fused", "logits", "logits", true},
    {"olmoe", "logits", "logits"},
    {"glm4_moe", "logits", "logits"},
    {"deepseek_v2", "logits", "logits"},
    {"deepseek_v3", "logits", "logits"},
    {"glm4_moe_lite", "logits", "logits"},
    {"gemma4_moe", "logits", "logits"},
    {"qwen35_moe", "logits", "logits", true},
    {"gpt_oss", "logits.gguf", "logits.gguf"},
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
            // What the first step has shown need not be shown again.
            if (!steps[step][2] || (step == 3 && models[i].from_folder)) continue;
            convert(steps[step][0], steps[step][1]);
            double difference = text_run_measure(steps[step][1], folder, steps[step][2], NULL);
            if (!(difference <= 1e-4))
                fail_msg("%s to %s: off by %g", steps[step][0], steps[step][1], difference);
            if (step == 1 && !models[i].other_names) check_equal(folder, back);
        }
    }
}

// ---- quantised experts
// ---------------------------------------------------------------------------

static rn_dtype dtype_of(const char *path, const char *name) {
    rn_checkpoint *c;
    assert_ok(rn_checkpoint_open(path, &c));
    const rn_tensor_info *t = rn_checkpoint_find(c, name);
    if (!t) fail_msg("%s has no '%s'", path, name);
    rn_dtype dtype = t->dtype;
    rn_checkpoint_close(c);
    return dtype;
}

static void assert_files_equal(const char *path, const char *other) {
    static char bytes[2][1 << 20];
    size_t count[2];
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(i ? other : path, "rb");
        assert_non_null(file);
        count[i] = fread(bytes[i], 1, sizeof bytes[i], file);
        fclose(file);
    }
    assert_true(count[0] > 0 && count[0] < sizeof bytes[0]);
    assert_int_equal(count[0], count[1]);
    assert_memory_equal(bytes[0], bytes[1], count[0]);
}

// Experts are quantised, the router is not; within a small budget the file is the same.
static void experts_are_quantised_from_a_folder(void **state) {
    (void)state;
    static const struct {
        const char *model, *to;
        rn_dtype experts, attention;
        double most; // that logits differ by: about twice what was measured
    } cases[] = {{"qwen2_moe", "q8_0", RN_DTYPE_Q8_0, RN_DTYPE_Q8_0, 0.5},
                 {"qwen2_moe", "mxfp4_moe", RN_DTYPE_MXFP4, RN_DTYPE_Q8_0, 1.5},
                 {"gpt_oss", "mxfp4_moe", RN_DTYPE_MXFP4, RN_DTYPE_Q8_0, 1.2},
                 // Rows of 32 and 64 are no superblocks.
                 {"gpt_oss", "q4_k_m", RN_DTYPE_MXFP4, RN_DTYPE_Q5_0, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[64], file[300], small[300];
        rn_convert_result result;
        rn_convert_options options = {0}, tight = {0};
        snprintf(folder, sizeof folder, TEXT "%s", cases[i].model);
        snprintf(file, sizeof file, "%s/quantised.gguf", test_folder());
        snprintf(small, sizeof small, "%s/small.gguf", test_folder());
        assert_true(rn_convert_parse_target(rn_str_from(cases[i].to), &options));
        assert_ok(rn_convert(folder, file, &options, &result));
        assert_int_equal(dtype_of(file, "blk.0.ffn_gate_exps.weight"), cases[i].experts);
        assert_int_equal(dtype_of(file, "blk.1.ffn_down_exps.weight"), cases[i].experts);
        assert_int_equal(dtype_of(file, "blk.0.ffn_gate_inp.weight"), RN_DTYPE_F32);
        assert_int_equal(dtype_of(file, "blk.0.attn_k.weight"), cases[i].attention);
        const char *which = strcmp(cases[i].model, "gpt_oss") == 0 ? "logits.gguf" : "logits";
        double difference = text_run_measure(file, folder, which, NULL);
        if (!(difference <= cases[i].most) || difference == 0)
            fail_msg("%s as %s: off by %g", folder, cases[i].to, difference);
        tight = options;
        tight.thread_count = 1;
        tight.budget_bytes = (uint64_t)64 << 20;
        assert_ok(rn_convert(folder, small, &tight, &result));
        assert_files_equal(file, small);
    }
}

// ---- records ------------------------------------------------------------------------------------

// Matrices of an expert lie side by side, each at the beginning of a page, in the order in which
// they are used.
static void check_records(const char *path, uint32_t experts) {
    static const char *const matrices[] = {"gate", "up", "down", "gate_up"};
    rn_checkpoint *c;
    uint64_t end = 0;
    size_t found = 0;
    assert_ok(rn_checkpoint_open(path, &c));
    for (uint32_t e = 0; e < experts; e++)
        for (size_t i = 0; i < 4; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.1.ffn_%s.%u.weight",
                     matrices[i == 3   ? 2
                              : i == 2 ? 3
                                       : i],
                     e);
            const rn_tensor_info *t = rn_checkpoint_find(c, name);
            if (!t) continue;
            assert_int_equal(t->offset % 4096, 0);
            if (found++) assert_int_equal(t->offset, (end + 4095) / 4096 * 4096);
            end = t->offset + t->bytes;
        }
    assert_true(found == 3 * (size_t)experts || found == 2 * (size_t)experts);
    rn_checkpoint_close(c);
}

// The one at its roomiest, the other within its smallest budget.
static void check_bits(const char *path, const char *other) {
    enum { TOKENS = 16, VOCAB = 128 };
    static float logits[2][TOKENS * VOCAB];
    int32_t tokens[TOKENS];
    const rn_text_options text = {.context = 64, .page_tokens = 8, .rows = 8};
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = i * 7 % VOCAB;
    text_run *roomy = text_run_open(other, NULL, &text);
    uint64_t least = rn_plan_get_summary(roomy->plan)->smallest_bytes;
    text_run_close(roomy);
    for (int i = 0; i < 2; i++) {
        text_run *run = text_run_open_within(i ? other : path, NULL, &text, i ? least : 0);
        text_run_logits(run, tokens, TOKENS, logits[i]);
        text_run_close(run);
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
}

static void an_expert_is_a_record_of_a_packed_file(void **state) {
    (void)state;
    static const struct {
        const char *model, *which;
        uint32_t experts;
    } cases[] = {{"mixtral", "logits", 4},
                 {"gemma4_moe", "logits", 6},
                 {"gpt_oss", "logits.gguf", 6},
                 {"deepseek_v3", "logits", 16}};
    rn_convert_result result;
    rn_convert_options packed = {.packed = true}, plain = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[64], stacks[300], records[300], again[300];
        snprintf(folder, sizeof folder, TEXT "%s", cases[i].model);
        snprintf(stacks, sizeof stacks, "%s/stacks.gguf", test_folder());
        snprintf(records, sizeof records, "%s/records.gguf", test_folder());
        snprintf(again, sizeof again, "%s/again.gguf", test_folder());
        assert_ok(rn_convert(folder, stacks, &plain, &result));
        assert_ok(rn_convert(stacks, records, &packed, &result));
        check_records(records, cases[i].experts);
        double difference = text_run_measure(records, folder, cases[i].which, NULL);
        if (!(difference <= 1e-4)) fail_msg("%s: off by %g", records, difference);
        // From the folder at once it is the same file; and there is a way back.
        assert_ok(rn_convert(folder, again, &packed, &result));
        assert_files_equal(records, again);
        assert_ok(rn_convert(records, again, &plain, &result));
        (void)dtype_of(again, "blk.1.ffn_down_exps.weight");
        check_bits(stacks, records);
        check_bits(records, again);
    }
    const char *out = test_path("refused.gguf");
    assert_fails(RN_UNSUPPORTED, rn_convert(TEXT "qwen3", out, &packed, &result));
    assert_fails(RN_UNSUPPORTED, rn_convert(TEXT "qwen3/model.gguf", out, &packed, &result));
    assert_fails(RN_UNSUPPORTED, rn_convert(TEXT "mixtral", test_path("x"), &packed, &result));
    assert_int_not_equal(access(out, F_OK), 0);
}

// ---- encoders -----------------------------------------------------------------------------------

// The golden texts' vectors, as the model's files say they are made.
static double measure_vectors(const char *path, const char *folder, const char *pooling) {
    enum { DIM = 32, TEXTS = 4, MOST_TOKENS = 256 };
    static float expected[TEXTS * DIM], vectors[TEXTS * DIM];
    int32_t lengths[TEXTS], ids[MOST_TOKENS];
    rn_tokens texts[TEXTS];
    rn_embedder *e;
    rn_model *model;
    rn_checkpoint *c;
    char golden[128];
    snprintf(golden, sizeof golden, "%s/golden.safetensors", folder);
    assert_ok(rn_checkpoint_open(golden, &c));
    const rn_tensor_info *tokens = rn_checkpoint_find(c, "tokens");
    assert_true(tokens->elements <= MOST_TOKENS);
    assert_ok(rn_checkpoint_load(c, tokens, RN_DTYPE_I32, ids, tokens->bytes));
    assert_ok(rn_checkpoint_load(c, rn_checkpoint_find(c, "lengths"), RN_DTYPE_I32, lengths,
                                 sizeof lengths));
    assert_ok(rn_checkpoint_load(c, rn_checkpoint_find(c, pooling), RN_DTYPE_F32, expected,
                                 sizeof expected));
    rn_checkpoint_close(c);
    uint32_t *at = (uint32_t *)ids;
    for (int i = 0; i < TEXTS; at += lengths[i++])
        texts[i] = (rn_tokens){at, (size_t)lengths[i], 0};
    assert_ok(rn_model_open(path, &(rn_model_options){.without_tokenizer = true}, &model));
    uint32_t most = rn_model_get_info(model)->embedding.text_tokens > 150 ? 150 : 48;
    rn_embedder_options options = {.text = {.text_tokens = most, .rows = most}};
    assert_ok(rn_embedder_create(model, &options, &e));
    assert_ok(rn_embedder_embed_tokens(e, texts, TEXTS, vectors));
    rn_embedder_destroy(e);
    rn_model_close(model);
    return text_run_difference(vectors, expected, TEXTS * DIM);
}

// How rows are pooled goes with them. RoBERTa's becomes a BERT without the positions before the
// first.
static void encoders_survive_the_other_container(void **state) {
    (void)state;
    static const struct {
        const char *name, *pooling;
        bool has_gguf, is_equal;
    } encoders[] = {{"bert", "cls", true, true},        {"xlm_roberta", "mean", false, false},
                    {"nomic_bert", "mean", true, true}, {"modernbert", "mean", true, true},
                    {"gemma", "mean", true, true},      {"qwen3", "last", true, false}};
    for (size_t i = 0; i < sizeof encoders / sizeof *encoders; i++) {
        char folder[64], file[96], gguf[300], back[300];
        snprintf(folder, sizeof folder, EMBED "%s", encoders[i].name);
        snprintf(file, sizeof file, "%s/model.gguf", folder);
        snprintf(gguf, sizeof gguf, "%s/%s.gguf", test_folder(), encoders[i].name);
        snprintf(back, sizeof back, "%s/embed_%s", test_folder(), encoders[i].name);
        const char *steps[][2] = {{folder, gguf}, {gguf, back}, {file, back}};
        for (int step = 0; step < (encoders[i].has_gguf ? 3 : 2); step++) {
            convert(steps[step][0], steps[step][1]);
            double difference = measure_vectors(steps[step][1], folder, encoders[i].pooling);
            if (!(difference <= 1e-4))
                fail_msg("%s to %s: off by %g", steps[step][0], steps[step][1], difference);
            if (step == 1 && encoders[i].is_equal) check_equal(folder, back);
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
    assert_fails(RN_UNSUPPORTED, rn_convert(TEXT "gemma2", out, &options, &result));
    assert_non_null(strstr(rn_last_error()->message, "query_pre_attn_scalar"));
    assert_fails(RN_UNSUPPORTED, rn_convert(TEXT "qwen3_next", out, &options, &result));
    assert_non_null(strstr(rn_last_error()->message, "qwen3next"));
    assert_fails(RN_UNSUPPORTED, rn_convert(EMBED "mpnet", out, &options, &result));
    assert_non_null(strstr(rn_last_error()->message, "mpnet"));
    assert_int_not_equal(access(out, F_OK), 0);
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
        cmocka_unit_test(experts_are_quantised_from_a_folder),
        cmocka_unit_test(an_expert_is_a_record_of_a_packed_file),
        cmocka_unit_test(encoders_survive_the_other_container),
        cmocka_unit_test(what_cannot_be_said_is_refused),
        cmocka_unit_test(tokenizers_give_the_same_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// embed_test.c — small random embedding models against Hugging Face's transformers: from
// safetensors and from GGUF, every kind of pooling, at every level of the CPU, in any company and
// at any budget. The files are made by scripts/reference/embedders.py.
#include <ration/embed.h>
#include <ration/device.h>

#include "base/cpu.h"
#include "support.h"

#include <math.h>

enum { DIM = 32, TEXTS = 4, MOST_TOKENS = 256 };

#define EMBED "tests/golden/embed/"

typedef struct golden_texts {
    int32_t lengths[TEXTS], ids[MOST_TOKENS];
    rn_tokens texts[TEXTS]; // of `words`
    uint32_t words[MOST_TOKENS];
    rn_checkpoint *file;
} golden_texts;

static void open_golden(const char *folder, golden_texts *g) {
    char path[128];
    size_t at = 0;
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    assert_ok(rn_checkpoint_open(path, &g->file));
    const rn_tensor_info *ids = rn_checkpoint_find(g->file, "tokens");
    assert_true(ids->elements <= MOST_TOKENS);
    assert_ok(rn_checkpoint_load(g->file, rn_checkpoint_find(g->file, "lengths"), RN_DTYPE_I32,
                                 g->lengths, sizeof g->lengths));
    assert_ok(rn_checkpoint_load(g->file, ids, RN_DTYPE_I32, g->ids, ids->bytes));
    for (size_t i = 0; i < ids->elements; i++)
        g->words[i] = (uint32_t)g->ids[i];
    for (int i = 0; i < TEXTS; at += (size_t)g->lengths[i++])
        g->texts[i] = (rn_tokens){g->words + at, (size_t)g->lengths[i], 0};
}

static float largest; // of all differences since a model was opened

static void check_near(const golden_texts *g, const char *which, const float *is, size_t count) {
    float must[TEXTS * DIM];
    assert_ok(rn_checkpoint_load(g->file, rn_checkpoint_find(g->file, which), RN_DTYPE_F32, must,
                                 count * sizeof *must));
    for (size_t i = 0; i < count; i++) {
        float off = fabsf(is[i] - must[i]);
        if (!(off <= 1e-4f))
            fail_msg("'%s' %zu is %g, not %g", which, i, (double)is[i], (double)must[i]);
        if (off > largest) largest = off;
    }
}

static rn_embedder *open_embedder(const rn_model *model, rn_embedding_form form,
                                  uint64_t budget_bytes) {
    rn_embedder *e = NULL;
    rn_embedder_options options = {
        .text = {.text_tokens = 48, .rows = 100}, .form = form, .plan.budget_bytes = budget_bytes};
    if (rn_model_get_info(model)->embedding.text_tokens > 150) options.text.text_tokens = 150;
    assert_ok(rn_embedder_create(model, &options, &e));
    return e;
}

static void check_form(const rn_model *model, const golden_texts *g, rn_embedding_form form,
                       const char *which) {
    static float out[TEXTS * DIM];
    rn_embedder *e = open_embedder(model, form, 0);
    uint32_t dimensions = rn_embedder_dimensions(e);
    assert_ok(rn_embedder_embed_tokens(e, g->texts, TEXTS, out));
    check_near(g, which, out, TEXTS * dimensions);
    rn_embedder_destroy(e);
}

static void check_model(const char *path, const char *folder, rn_pooling own) {
    golden_texts g;
    rn_model *model = NULL;
    largest = 0;
    open_golden(folder, &g);
    assert_ok(rn_model_open(path, &(rn_model_options){.without_tokenizer = true}, &model));
    assert_int_equal(rn_model_get_info(model)->embedding.pooling, own);
    check_form(model, &g, (rn_embedding_form){0}, rn_pooling_name(own));
    check_form(model, &g, (rn_embedding_form){.pooling = RN_POOLING_MEAN}, "mean");
    check_form(model, &g, (rn_embedding_form){.pooling = RN_POOLING_CLS}, "cls");
    check_form(model, &g, (rn_embedding_form){.pooling = RN_POOLING_LAST}, "last");
    check_form(model, &g,
               (rn_embedding_form){.pooling = RN_POOLING_MEAN, .norm = RN_EMBEDDING_NORM_NONE},
               "plain");
    check_form(model, &g, (rn_embedding_form){.pooling = RN_POOLING_MEAN, .dimensions = DIM / 2},
               "half");
    print_message("%s: off by %.0e at most\n", path, (double)largest);
    rn_model_close(model);
    rn_checkpoint_close(g.file);
}

static void bert_is_transformers(void **state) {
    (void)state;
    check_model(EMBED "bert", EMBED "bert", RN_POOLING_CLS);
    check_model(EMBED "bert/model.gguf", EMBED "bert", RN_POOLING_CLS);
}

static void mpnet_is_transformers(void **state) {
    (void)state;
    check_model(EMBED "mpnet", EMBED "mpnet", RN_POOLING_MEAN);
}

static void xlm_roberta_is_transformers(void **state) {
    (void)state;
    check_model(EMBED "xlm_roberta", EMBED "xlm_roberta", RN_POOLING_MEAN);
}

static void nomic_bert_is_transformers(void **state) {
    (void)state;
    check_model(EMBED "nomic_bert", EMBED "nomic_bert", RN_POOLING_MEAN);
    check_model(EMBED "nomic_bert/model.gguf", EMBED "nomic_bert", RN_POOLING_MEAN);
}

static void modernbert_is_transformers(void **state) {
    (void)state;
    check_model(EMBED "modernbert", EMBED "modernbert", RN_POOLING_MEAN);
    check_model(EMBED "modernbert/model.gguf", EMBED "modernbert", RN_POOLING_MEAN);
}

// With products behind pooling.
static void embedding_gemma_is_transformers(void **state) {
    (void)state;
    check_model(EMBED "gemma", EMBED "gemma", RN_POOLING_MEAN);
    check_model(EMBED "gemma/model.gguf", EMBED "gemma", RN_POOLING_MEAN);
}

static void qwen3_without_its_head_is_transformers(void **state) {
    (void)state;
    check_model(EMBED "qwen3", EMBED "qwen3", RN_POOLING_LAST);
    check_model(EMBED "qwen3/model.gguf", EMBED "qwen3", RN_POOLING_LAST);
}

static void every_level_of_the_cpu_is_near(void **state) {
    (void)state;
    for (int level = 0; level < RN_CPU_LEVEL_COUNT; level++) {
        rn_cpu_level_force((rn_cpu_level)level);
        check_model(EMBED "mpnet", EMBED "mpnet", RN_POOLING_MEAN);
    }
    rn_cpu_level_force(RN_CPU_LEVEL_COUNT - 1);
}

// ---- company and budgets ------------------------------------------------------------------------

static uint64_t smallest_budget(const rn_model *model) {
    rn_plan *plan = NULL;
    rn_embedder_options options = {.text = {.text_tokens = 48, .rows = 100}};
    assert_ok(rn_embedder_predict(model, &options, &plan));
    uint64_t bytes = rn_plan_get_summary(plan)->smallest_budget_bytes;
    rn_plan_destroy(plan);
    return bytes;
}

// The same bits alone, in another order, and within the smallest budget, which is exact.
static void company_and_budget_do_not_change_a_bit(void **state) {
    static float all[TEXTS * DIM], some[DIM];
    golden_texts g;
    rn_model *model = NULL;
    (void)state;
    open_golden(EMBED "modernbert", &g);
    assert_ok(
        rn_model_open(EMBED "modernbert", &(rn_model_options){.without_tokenizer = true}, &model));
    rn_embedder *e = open_embedder(model, (rn_embedding_form){0}, 0);
    assert_ok(rn_embedder_embed_tokens(e, g.texts, TEXTS, all));
    for (int i = TEXTS - 1; i >= 0; i--) {
        assert_ok(rn_embedder_embed_tokens(e, &g.texts[i], 1, some));
        assert_memory_equal(some, all + i * DIM, sizeof some);
    }
    assert_int_equal(rn_embedder_get_facts(e).texts, 2 * TEXTS);
    rn_embedder_destroy(e);
    uint64_t least = smallest_budget(model);
    static float again[TEXTS * DIM];
    e = open_embedder(model, (rn_embedding_form){0}, least);
    const rn_plan_summary *s = rn_plan_get_summary(rn_embedder_plan(e));
    assert_true(s->planned_bytes <= least && s->rows >= 48);
    assert_ok(rn_embedder_embed_tokens(e, g.texts, TEXTS, again));
    assert_memory_equal(again, all, sizeof all);
    assert_true(rn_embedder_get_facts(e).runs > 1); // fewer rows: more runs
    rn_embedder_destroy(e);
    rn_embedder_options options = {.text = {.text_tokens = 48, .rows = 100},
                                   .plan.budget_bytes = least - 1};
    assert_fails(RN_OVER_BUDGET, rn_embedder_create(model, &options, &e));
    assert_int_equal(rn_last_refusal()->smallest_budget_bytes, least);
    rn_model_close(model);
    rn_checkpoint_close(g.file);
}

static void what_is_planned_is_what_is_held(void **state) {
    static float out[TEXTS * DIM];
    golden_texts g;
    rn_model *model = NULL;
    rn_embedder *e = NULL;
    (void)state;
    open_golden(EMBED "bert", &g);
    assert_ok(rn_model_open(EMBED "bert", &(rn_model_options){.without_tokenizer = true}, &model));
    rn_embedder_options options = {.text = {.text_tokens = 48}, .session.audit = true};
    assert_ok(rn_embedder_create(model, &options, &e));
    assert_ok(rn_embedder_embed_tokens(e, g.texts, TEXTS, out));
    rn_session_facts facts = rn_embedder_get_facts(e).session;
    assert_int_equal(facts.live_mismatch_step, UINT64_MAX);
    assert_true(facts.live_peak_bytes > 0);
    rn_embedder_destroy(e);
    rn_model_close(model);
    rn_checkpoint_close(g.file);
}

// ---- what is refused ----------------------------------------------------------------------------

static void long_texts_are_cut_or_refused(void **state) {
    static float cut[DIM], first[DIM];
    golden_texts g;
    rn_model *model = NULL;
    rn_embedder *e = NULL;
    (void)state;
    open_golden(EMBED "bert", &g);
    assert_ok(rn_model_open(EMBED "bert", &(rn_model_options){.without_tokenizer = true}, &model));
    rn_embedder_options options = {.text = {.text_tokens = 10}};
    rn_tokens beginning = {g.texts[1].ids, 10, 0};
    assert_ok(rn_embedder_create(model, &options, &e));
    assert_ok(rn_embedder_embed_tokens(e, &g.texts[1], 1, cut));
    assert_int_equal(rn_embedder_get_facts(e).cut_texts, 1);
    assert_ok(rn_embedder_embed_tokens(e, &beginning, 1, first));
    assert_memory_equal(cut, first, sizeof cut);
    assert_int_equal(rn_embedder_get_facts(e).cut_texts, 1);
    rn_embedder_destroy(e);
    options.form.refuse_long = true;
    assert_ok(rn_embedder_create(model, &options, &e));
    assert_fails(RN_INVALID, rn_embedder_embed_tokens(e, &g.texts[1], 1, cut));
    assert_fails(RN_INVALID, rn_embedder_embed_tokens(e, &(rn_tokens){0}, 1, cut));
    rn_tokens strange = {(uint32_t[]){96}, 1, 0};
    assert_fails(RN_INVALID, rn_embedder_embed_tokens(e, &strange, 1, cut));
    assert_ok(rn_embedder_embed_tokens(e, &g.texts[0], 1, cut));
    rn_embedder_destroy(e);
    options = (rn_embedder_options){.text = {.text_tokens = 49}};
    assert_fails(RN_INVALID, rn_embedder_create(model, &options, &e));
    options = (rn_embedder_options){.form.dimensions = DIM + 1};
    assert_fails(RN_INVALID, rn_embedder_create(model, &options, &e));
    rn_model_close(model);
    rn_checkpoint_close(g.file);
}

static void encoders_make_no_text(void **state) {
    rn_model *model = NULL;
    rn_recipe recipe;
    (void)state;
    assert_ok(rn_model_open(EMBED "bert", &(rn_model_options){.without_tokenizer = true}, &model));
    assert_true(rn_model_get_info(model)->encoder);
    assert_fails(RN_UNSUPPORTED, rn_model_make_recipe(model, NULL, &recipe));
    assert_non_null(strstr(rn_last_error()->hint, "ration embed"));
    rn_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bert_is_transformers),
        cmocka_unit_test(mpnet_is_transformers),
        cmocka_unit_test(xlm_roberta_is_transformers),
        cmocka_unit_test(nomic_bert_is_transformers),
        cmocka_unit_test(modernbert_is_transformers),
        cmocka_unit_test(embedding_gemma_is_transformers),
        cmocka_unit_test(qwen3_without_its_head_is_transformers),
        cmocka_unit_test(every_level_of_the_cpu_is_near),
        cmocka_unit_test(company_and_budget_do_not_change_a_bit),
        cmocka_unit_test(what_is_planned_is_what_is_held),
        cmocka_unit_test(long_texts_are_cut_or_refused),
        cmocka_unit_test(encoders_make_no_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// rerank_test.c — small random rerankers against Hugging Face's transformers: from texts and from
// tokens, from safetensors and from GGUF, at any budget. The files are made by
// scripts/reference/rerankers.py.
#include <ration/embed.h>

#include "base/str.h"
#include "support.h"

#include <math.h>

enum { TEXTS = 4, MOST_TOKENS = 256 };

#define RERANK "tests/golden/rerank/"

static const rn_str query = RN_STR("the quick brown fox");
static const rn_str texts[TEXTS] = {
    RN_STR("the lazy dog jumped over the fox."), RN_STR("hello world!"), RN_STR("a"),
    RN_STR("cat, kitten, car? the quick fox jumps over the lazy dog")};

typedef struct golden_pairs {
    int32_t lengths[TEXTS], second_at[TEXTS], ids[MOST_TOKENS];
    uint32_t words[MOST_TOKENS];
    rn_token_pair pairs[TEXTS]; // of `words`
    float scores[TEXTS];
} golden_pairs;

static void load(const rn_checkpoint *file, const char *name, rn_dtype dtype, void *out) {
    const rn_tensor_info *t = rn_checkpoint_find(file, name);
    assert_true(t && t->elements <= MOST_TOKENS);
    assert_ok(rn_checkpoint_load(file, t, dtype, out, t->bytes));
}

static void open_golden(const char *folder, golden_pairs *g) {
    char path[128];
    rn_checkpoint *file = NULL;
    size_t at = 0;
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    assert_ok(rn_checkpoint_open(path, &file));
    load(file, "lengths", RN_DTYPE_I32, g->lengths);
    load(file, "second_at", RN_DTYPE_I32, g->second_at);
    load(file, "tokens", RN_DTYPE_I32, g->ids);
    load(file, "scores", RN_DTYPE_F32, g->scores);
    for (int i = 0; i < TEXTS; at += (size_t)g->lengths[i++]) {
        size_t count = (size_t)g->lengths[i];
        for (size_t k = 0; k < count; k++)
            g->words[at + k] = (uint32_t)g->ids[at + k];
        g->pairs[i] = (rn_token_pair){{g->words + at, count, 0}, (size_t)g->second_at[i]};
    }
    rn_checkpoint_close(file);
}

static float largest;

static void check_near(const float *is, const float *must) {
    for (int i = 0; i < TEXTS; i++) {
        float off = fabsf(is[i] - must[i]);
        if (!(off <= 1e-4f)) fail_msg("score %d is %g, not %g", i, (double)is[i], (double)must[i]);
        if (off > largest) largest = off;
    }
}

static rn_embedder *open_reranker(const rn_model *model, uint64_t budget_bytes) {
    rn_embedder *e = NULL;
    rn_embedder_options options = {.text = {.text_tokens = 40, .rows = 80, .scores = true},
                                   .plan.budget_bytes = budget_bytes};
    assert_ok(rn_embedder_create(model, &options, &e));
    assert_int_equal(rn_embedder_dimensions(e), 1);
    return e;
}

static void check_model(const char *path, const char *folder, bool with_texts) {
    golden_pairs g;
    rn_model *model = NULL;
    float out[TEXTS], again[TEXTS];
    largest = 0;
    open_golden(folder, &g);
    assert_ok(rn_model_open(path, &(rn_model_options){.without_tokenizer = !with_texts}, &model));
    assert_true(rn_model_get_info(model)->ranks);
    rn_embedder *e = open_reranker(model, 0);
    assert_ok(rn_embedder_score_pairs(e, g.pairs, TEXTS, out));
    check_near(out, g.scores);
    if (with_texts) {
        assert_ok(rn_embedder_score(e, query, texts, TEXTS, again));
        assert_memory_equal(again, out, sizeof out); // the same tokens, so the same bits
    }
    uint64_t smallest = rn_plan_get_summary(rn_embedder_plan(e))->smallest_budget_bytes;
    rn_embedder_destroy(e);
    e = open_reranker(model, smallest);
    assert_ok(rn_embedder_score_pairs(e, g.pairs, TEXTS, again));
    assert_memory_equal(again, out, sizeof out);
    rn_embedder_destroy(e);
    rn_model_close(model);
    print_message("%s: off by %.0e at most\n", path, (double)largest);
}

static void bert_is_transformers(void **state) {
    (void)state;
    check_model(RERANK "bert", RERANK "bert", true);
}

static void xlm_roberta_is_transformers(void **state) {
    (void)state;
    check_model(RERANK "xlm_roberta", RERANK "xlm_roberta", true);
    check_model(RERANK "xlm_roberta/model.gguf", RERANK "xlm_roberta", false);
}

static void scores_and_embeddings_are_kept_apart(void **state) {
    (void)state;
    rn_model *model = NULL, *other = NULL;
    rn_embedder *e = NULL;
    float out[64];
    rn_embedder_options scores = {.text.scores = true};
    assert_ok(rn_model_open(RERANK "bert", NULL, &model));
    e = open_reranker(model, 0);
    assert_int_equal(rn_embedder_embed(e, texts, 1, out), RN_INVALID);
    rn_embedder_destroy(e);
    assert_ok(rn_embedder_create(model, NULL, &e)); // a reranker can be asked for its rows, too
    assert_int_equal(rn_embedder_dimensions(e), 32);
    assert_ok(rn_embedder_embed(e, texts, 1, out));
    assert_int_equal(rn_embedder_score(e, query, texts, 1, out), RN_INVALID);
    rn_embedder_destroy(e);
    assert_ok(rn_model_open("tests/golden/embed/bert", NULL, &other));
    assert_false(rn_model_get_info(other)->ranks);
    assert_int_equal(rn_embedder_create(other, &scores, &e), RN_UNSUPPORTED);
    rn_model_close(other);
    rn_model_close(model);
}

// A long text loses its end; a query that leaves no room is refused, and so is a pair without one.
static void lengths_have_limits(void **state) {
    (void)state;
    rn_model *model = NULL;
    static char words[4096];
    float out[1];
    for (size_t i = 0; i + 4 < sizeof words; i += 4)
        memcpy(words + i, "fox ", 4);
    rn_str much = {words, sizeof words - 4};
    assert_ok(rn_model_open(RERANK "bert", NULL, &model));
    rn_embedder *e = open_reranker(model, 0);
    assert_ok(rn_embedder_score(e, query, &much, 1, out));
    assert_int_equal(rn_embedder_get_facts(e).cut_texts, 1);
    assert_int_equal(rn_embedder_score(e, much, texts, 1, out), RN_INVALID);
    uint32_t ids[] = {2, 5, 3};
    rn_token_pair alone = {{ids, 3, 0}, 3};
    assert_int_equal(rn_embedder_score_pairs(e, &alone, 1, out), RN_INVALID);
    assert_ok(rn_embedder_score(e, query, texts, 1, out)); // and it goes on
    rn_embedder_destroy(e);
    rn_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bert_is_transformers),
        cmocka_unit_test(xlm_roberta_is_transformers),
        cmocka_unit_test(scores_and_embeddings_are_kept_apart),
        cmocka_unit_test(lengths_have_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

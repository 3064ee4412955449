// Embeddings in one call, of a decoder too: within a budget, with nothing left behind, whatever is
// refused on the way.
#include "support.h"

#include <ration/embed.h>
#include <ration/memory.h>

#include <math.h>

enum { MOST = 1024, TEXTS = 3 };

static const rn_str texts[TEXTS] = {{"Once upon a time", 16}, {"a small mouse", 13}, {"a", 1}};

typedef struct kept {
    float rows[TEXTS][MOST];
    size_t count, dimensions, most; // most: then it is enough; 0: never
} kept;

static bool keep(void *user, size_t index, const float *embedding, size_t dimensions) {
    kept *k = user;
    assert_true(index == k->count && dimensions <= MOST);
    memcpy(k->rows[index], embedding, dimensions * sizeof *embedding);
    k->dimensions = dimensions;
    return ++k->count != k->most;
}

static uint64_t held(void) {
    return rn_ledger_total(RN_DEVICE_HOST).now_bytes -
           rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED).now_bytes;
}

// The model that is part of the library is a decoder: its last token counts.
static void a_decoder_gives_embeddings_of_length_1(void **state) {
    static kept k;
    rn_embedder_facts facts;
    (void)state;
    uint64_t before = held();
    assert_ok(rn_embed_texts(NULL, &(rn_embed_options){.threads = 1, .facts = &facts}, texts, TEXTS,
                             keep, &k));
    assert_int_equal(held(), before);
    assert_int_equal(k.count, TEXTS);
    assert_int_equal(facts.texts, TEXTS);
    assert_int_equal(facts.runs, 1);
    for (int i = 0; i < TEXTS; i++) {
        double same = rn_embedding_cosine(k.rows[i], k.rows[i], k.dimensions), length = 0;
        for (size_t d = 0; d < k.dimensions; d++)
            length += (double)k.rows[i][d] * (double)k.rows[i][d];
        assert_true(fabs(same - 1) < 1e-12 && fabs(length - 1) < 1e-5);
    }
    assert_true(rn_embedding_cosine(k.rows[0], k.rows[1], k.dimensions) < 0.9999);
}

// What is said of the plan before anything is loaded holds, down to a budget that streams weights.
static void a_budget_changes_no_bit(void **state) {
    static kept roomy, tight;
    rn_plan_summary plan = {0};
    (void)state;
    roomy = tight = (kept){0};
    assert_ok(rn_embed_texts(NULL, &(rn_embed_options){.threads = 1, .plan = &plan}, texts, TEXTS,
                             keep, &roomy));
    assert_true(plan.smallest_budget_bytes > 0);
    rn_embed_options options = {.threads = 1, .budget_bytes = plan.smallest_budget_bytes};
    rn_status s = rn_embed_texts(NULL, &options, texts, TEXTS, keep, &tight);
    if (s == RN_OVER_BUDGET) { // the process has grown since
        options.budget_bytes = rn_last_refusal()->smallest_budget_bytes;
        s = rn_embed_texts(NULL, &options, texts, TEXTS, keep, &tight);
    }
    assert_ok(s);
    assert_memory_equal(roomy.rows, tight.rows, sizeof roomy.rows);
    options.budget_bytes = 1 << 20;
    assert_fails(RN_OVER_BUDGET, rn_embed_texts(NULL, &options, texts, TEXTS, keep, &tight));
}

static void the_caller_may_have_enough(void **state) {
    static kept k;
    (void)state;
    k = (kept){.most = 2};
    assert_ok(rn_embed_texts(NULL, &(rn_embed_options){.threads = 1}, texts, TEXTS, keep, &k));
    assert_int_equal(k.count, 2);
}

static void options_that_cannot_be_are_refused(void **state) {
    static kept k;
    rn_embed_options reserved = {.reserved = {1}},
                     wide = {.threads = 1, .form.dimensions = 1 << 20};
    rn_embed_options strict = {.threads = 1, .text_tokens = 2, .form.refuse_long = true};
    (void)state;
    k = (kept){0};
    assert_fails(RN_INVALID, rn_embed_texts(NULL, &reserved, texts, TEXTS, keep, &k));
    assert_fails(RN_INVALID, rn_embed_texts(NULL, &wide, texts, TEXTS, keep, &k));
    assert_fails(RN_INVALID, rn_embed_texts(NULL, &strict, texts, TEXTS, keep, &k));
    assert_int_equal(k.count, 0);
    assert_fails(RN_NOT_FOUND, rn_embed_texts("nothing", NULL, texts, TEXTS, keep, &k));
}

// ---- refused allocations ------------------------------------------------------------------------

static rn_model *model;

static rn_status live(void) {
    float out[MOST];
    rn_embedder *e = NULL;
    rn_embedder_options options = {.text = {.text_tokens = 8, .rows = 8}};
    RN_TRY(rn_embedder_create(model, &options, &e));
    assert_true(rn_embedder_dimensions(e) <= MOST);
    rn_status s = rn_embedder_embed(e, texts, 1, out);
    rn_embedder_destroy(e);
    return s;
}

static void a_refused_allocation_leaks_nothing(void **state) {
    (void)state;
    assert_ok(rn_model_open(NULL, NULL, &model));
    assert_true(survive_refusals(live) > 10);
    rn_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_decoder_gives_embeddings_of_length_1),
        cmocka_unit_test(a_budget_changes_no_bit),
        cmocka_unit_test(the_caller_may_have_enough),
        cmocka_unit_test(options_that_cannot_be_are_refused),
        cmocka_unit_test(a_refused_allocation_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

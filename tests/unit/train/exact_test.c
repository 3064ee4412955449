// Micro-batches: a batch at once and one by one give the same loss to rounding; with `exact` the
// same bits, whatever the cut and the budget, for gradients are summed in one tree over single
// sequences. Of additions and of a model's own weights; planned bytes are those that are held.
#include "support.h"

#include <ration/memory.h>
#include <ration/train.h>

#include "base/sum_tree.h"
#include "train/trainer.h"

#include <math.h>

#define TEXT "tests/golden/text/"

enum { SEQUENCES = 8, TOKENS = 12, COUNT = SEQUENCES * TOKENS, VOCAB = 96, MOST = 128 * 64 };

static const rn_lora_options additions = {.rank = 4};

static rn_trainer_options eight(void) {
    return (rn_trainer_options){.tokens = TOKENS,
                                .batch = SEQUENCES,
                                .seed = 5,
                                .optimizer = "adamw",
                                .max_norm = 1,
                                .plan.exact = true};
}

static rn_trainer *open_trainer(const rn_model *model, bool full, const rn_trainer_options *o) {
    rn_trainer *trainer = NULL;
    assert_ok(rn_trainer_finetune(model, o, full ? NULL : &additions, &trainer));
    return trainer;
}

static rn_model *open_model(void) {
    rn_model *model = NULL;
    assert_ok(rn_model_open(TEXT "llama3", &(rn_model_options){.without_tokenizer = true}, &model));
    return model;
}

// Sequences have different numbers of targets that count, unless they are to be `even`.
static void fill(int32_t *tokens, int32_t *targets, bool even) {
    for (int32_t i = 0; i < COUNT; i++) {
        bool ignored = even ? i % TOKENS == 5 : i % 5 == i / TOKENS % 3;
        tokens[i] = (i * 37 + i / TOKENS) % VOCAB;
        targets[i] = ignored ? -100 : (i * 11 + 5) % VOCAB;
    }
}

// Twenty steps, then the checkpoint: all weights and moments.
static float train(rn_trainer *trainer, const char *path) {
    int32_t tokens[COUNT], targets[COUNT];
    float loss = NAN;
    fill(tokens, targets, false);
    for (int i = 0; i < 20; i++)
        assert_ok(rn_trainer_step(trainer, tokens, targets, 0.001, &loss));
    assert_ok(rn_trainer_save(trainer, path));
    return loss;
}

static void assert_same_files(const char *a, const char *b) {
    size_t a_bytes = 0, b_bytes = 0;
    void *x = test_read(a, &a_bytes), *y = test_read(b, &b_bytes);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(x, y, a_bytes);
    free(x);
    free(y);
}

// What the ledger's peaks are of a trainer that takes steps, against its plan.
static void assert_planned(const rn_trainer *trainer, const uint64_t *before) {
    static const rn_purpose planned[] = {RN_PURPOSE_GRADIENTS, RN_PURPOSE_OPTIMIZER,
                                         RN_PURPOSE_WORKSPACE};
    const rn_plan_summary *step = rn_plan_get_summary(rn_trainer_plan(trainer));
    for (size_t i = 0; i < sizeof planned / sizeof *planned; i++)
        assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, planned[i]).peak_bytes - before[planned[i]],
                         step->purpose_bytes[planned[i]]);
}

static void take_ledger(uint64_t *out) {
    rn_ledger_reset_peaks();
    for (uint32_t i = 0; i < RN_PURPOSE_COUNT; i++)
        out[i] = rn_ledger_read(RN_DEVICE_HOST, (rn_purpose)i).now_bytes;
}

// (8, 1) = (4, 2) = (2, 4) = (1, 8), roomy and at the smallest budget.
static void every_cut_gives_the_same_bits(void **state) {
    (void)state;
    rn_model *model = open_model();
    for (int full = 0; full < 2; full++) {
        rn_trainer_options options = eight();
        uint64_t smallest = 0, before[RN_PURPOSE_COUNT];
        float first = NAN;
        for (uint32_t cut = 1; cut <= 2 * SEQUENCES; cut *= 2) {
            bool tight = cut > SEQUENCES;
            options.plan.micro_batches = tight ? 0 : cut;
            options.plan.budget_bytes = tight ? smallest : 0;
            take_ledger(before);
            rn_trainer *trainer = open_trainer(model, full, &options);
            smallest = rn_program_get_summary(rn_trainer_program(trainer))->smallest_budget_bytes;
            float loss = train(trainer, test_own_path(cut == 1 ? "first" : "other"));
            if (cut == 1) first = loss;
            assert_true(loss == first);
            assert_planned(trainer, before);
            rn_trainer_destroy(trainer);
            if (cut > 1) assert_same_files(test_own_path("first"), test_own_path("other"));
        }
    }
    rn_model_close(model);
}

static void without_exact_cuts_agree_to_rounding(void **state) {
    (void)state;
    rn_model *model = open_model();
    float first = NAN;
    for (uint32_t cut = 1; cut <= SEQUENCES; cut *= 2) {
        rn_trainer_options options = eight();
        options.plan.exact = false;
        options.plan.micro_batches = cut;
        rn_trainer *trainer = open_trainer(model, true, &options);
        assert_int_equal(rn_plan_get_summary(rn_trainer_plan(trainer))->micro_batches, cut);
        float loss = train(trainer, test_own_path("any"));
        if (cut == 1) first = loss;
        if (!(fabsf(loss - first) <= 1e-6f * first))
            fail_msg("%u: %.9g and %.9g", cut, (double)loss, (double)first);
        rn_trainer_destroy(trainer);
    }
    rn_model_close(model);
}

// ---- the tree -----------------------------------------------------------------------------------

static const char weight[] = "model.layers.0.self_attn.q_proj.weight";

// The gradient of a batch of `count` sequences from `from` on, where rates of 0 change nothing.
static uint64_t gradient_of(const rn_model *model, uint32_t from, uint32_t count, float *out) {
    int32_t tokens[COUNT], targets[COUNT];
    rn_trainer_options options = eight();
    uint64_t elements = 0;
    float loss;
    fill(tokens, targets, true);
    options.batch = count;
    options.max_norm = 0;
    rn_trainer *trainer = open_trainer(model, true, &options);
    for (uint32_t i = 0; i < trainer->weight_count; i++)
        if (strcmp(trainer->tensors[i].name, weight) == 0) elements = trainer->tensors[i].count;
    assert_true(elements > 0 && elements <= MOST);
    assert_ok(rn_trainer_step(trainer, tokens + (size_t)from * TOKENS,
                              targets + (size_t)from * TOKENS, 0, &loss));
    char name[256];
    snprintf(name, sizeof name, "%s.gradient", weight);
    assert_ok(rn_session_get(trainer->session, name, out, elements * sizeof *out));
    rn_trainer_destroy(trainer);
    return elements;
}

// The sum of eight is that of the two halves, which are those of their halves: as ranks would have
// them. Factors of the loss are powers of two apart and round nothing.
static void gradients_of_halves_are_halves_of_the_tree(void **state) {
    (void)state;
    static float whole[MOST], part[4][MOST];
    rn_model *model = open_model();
    uint64_t n = gradient_of(model, 0, SEQUENCES, whole);
    for (uint32_t halves = 2; halves <= 4; halves *= 2) {
        uint32_t each = SEQUENCES / halves;
        for (uint32_t i = 0; i < halves; i++)
            assert_int_equal(n, gradient_of(model, i * each, each, part[i]));
        for (uint64_t i = 0; i < n; i++) {
            float sum = part[0][i] + part[1][i];
            if (halves == 4) sum += part[2][i] + part[3][i];
            assert_true(whole[i] == sum / (float)halves);
        }
    }
    rn_model_close(model);
}

// Additions in the order of the sequences would have other bits: the test above can fail.
static void the_tree_is_no_chain(void **state) {
    (void)state;
    static float whole[MOST], two[MOST], four[MOST];
    rn_model *model = open_model();
    uint64_t n = gradient_of(model, 0, SEQUENCES, whole), differ = 0;
    memset(four, 0, sizeof four);
    for (uint32_t i = 0; i < 4; i++) {
        (void)gradient_of(model, i * 2, 2, two);
        for (uint64_t k = 0; k < n; k++)
            four[k] += two[k];
    }
    for (uint64_t k = 0; k < n; k++)
        differ += whole[k] != four[k] / 4;
    assert_true(differ > 0);
    rn_model_close(model);
}

static void cuts_that_do_not_divide_are_refused(void **state) {
    (void)state;
    rn_model *model = open_model();
    rn_trainer *trainer = NULL;
    for (int exact = 0; exact < 2; exact++) {
        rn_trainer_options options = eight();
        options.plan.exact = exact;
        options.plan.micro_batches = 3;
        assert_fails(RN_INVALID, rn_trainer_finetune(model, &options, NULL, &trainer));
        assert_non_null(strstr(rn_last_error()->message, "3 micro-batches"));
    }
    rn_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_cut_gives_the_same_bits, test_make_folder),
        cmocka_unit_test_setup(without_exact_cuts_agree_to_rounding, test_make_folder),
        cmocka_unit_test(gradients_of_halves_are_halves_of_the_tree),
        cmocka_unit_test(the_tree_is_no_chain),
        cmocka_unit_test(cuts_that_do_not_divide_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

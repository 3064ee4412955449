// A trainer: it learns, the same steps give the same weights however they are run, and what fails
// leaves nothing behind.
#include "support.h"

#include <ration/memory.h>
#include <ration/program.h>
#include <ration/train.h>

#include <math.h>

enum { BATCH = 4, TOKENS = 12, ROWS = BATCH * TOKENS, VOCAB = 24 };

static rn_trainer_options small(void) {
    return (rn_trainer_options){.layers = 2,
                                .dim = 16,
                                .heads = 4,
                                .kv_heads = 2,
                                .ffn = 32,
                                .vocab_size = VOCAB,
                                .tokens = TOKENS,
                                .batch = BATCH,
                                .max_norm = 1,
                                .seed = 3};
}

// Rows that count: where one begins is all that must be guessed.
static void make_batch(uint64_t step, int32_t *tokens, int32_t *targets) {
    for (int row = 0; row < BATCH; row++)
        for (int t = 0; t < TOKENS; t++) {
            int32_t first = (int32_t)((step * BATCH + (uint64_t)row) * 7 % VOCAB);
            tokens[row * TOKENS + t] = (first + t) % VOCAB;
            targets[row * TOKENS + t] = (first + t + 1) % VOCAB;
        }
}

// The loss of the last step.
static float take_steps(rn_trainer *trainer, uint64_t count) {
    int32_t tokens[ROWS], targets[ROWS];
    float loss = NAN;
    for (uint64_t i = 0; i < count; i++) {
        make_batch(rn_trainer_steps(trainer), tokens, targets);
        assert_ok(rn_trainer_step(trainer, tokens, targets, 0.01, &loss));
    }
    return loss;
}

static rn_trainer *open_trainer(const rn_trainer_options *options) {
    rn_trainer *trainer = NULL;
    assert_ok(rn_trainer_create(options, &trainer));
    return trainer;
}

static void assert_same_files(const char *a, const char *b) {
    size_t a_bytes = 0, b_bytes = 0;
    void *x = test_read(a, &a_bytes), *y = test_read(b, &b_bytes);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(x, y, a_bytes);
    free(x);
    free(y);
}

// ---- learning -----------------------------------------------------------------------------------

static void a_trainer_learns_to_count(void **state) {
    (void)state;
    rn_trainer_options options = small();
    rn_trainer *trainer = open_trainer(&options);
    float first = take_steps(trainer, 1);
    assert_true(fabsf(first - logf(VOCAB)) < 0.1f); // it knows nothing yet
    assert_true(take_steps(trainer, 99) < 0.1f);
    assert_int_equal(rn_trainer_steps(trainer), 100);
    rn_trainer_destroy(trainer);
}

// Held in 16 bits they take less, and it learns as well.
static void activations_of_16_bits_take_less(void **state) {
    (void)state;
    rn_trainer_options options = small();
    rn_trainer *trainer = open_trainer(&options);
    uint64_t wide = rn_plan_get_summary(rn_trainer_plan(trainer))->planned_bytes;
    float before = take_steps(trainer, 1);
    rn_trainer_destroy(trainer);
    static const rn_dtype dtypes[] = {RN_DTYPE_BF16, RN_DTYPE_F16};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        options.activations = dtypes[i];
        trainer = open_trainer(&options);
        assert_true(rn_plan_get_summary(rn_trainer_plan(trainer))->planned_bytes < wide);
        assert_true(fabsf(take_steps(trainer, 1) - before) < 0.02f);
        assert_true(take_steps(trainer, 99) < 0.1f);
        rn_trainer_destroy(trainer);
    }
    options.activations = RN_DTYPE_Q8_0;
    assert_fails(RN_INVALID, rn_trainer_create(&options, &trainer));
}

static void targets_of_minus_100_do_not_count(void **state) {
    (void)state;
    rn_trainer_options options = small();
    int32_t tokens[ROWS], targets[ROWS];
    float loss[2];
    for (int i = 0; i < 2; i++) {
        rn_trainer *trainer = open_trainer(&options);
        make_batch(0, tokens, targets);
        for (int t = TOKENS; t < ROWS; t++) {
            targets[t] = -100;
            tokens[t] = i; // seen by nobody who counts
        }
        assert_ok(rn_trainer_step(trainer, tokens, targets, 0.01, &loss[i]));
        rn_trainer_destroy(trainer);
    }
    assert_true(loss[0] == loss[1] && loss[0] > 2);
}

static void a_batch_without_targets_is_skipped(void **state) {
    (void)state;
    rn_trainer_options options = small();
    rn_trainer *trainer = open_trainer(&options);
    int32_t tokens[ROWS] = {0}, targets[ROWS];
    float loss;
    for (int i = 0; i < ROWS; i++)
        targets[i] = -100;
    assert_ok(rn_trainer_step(trainer, tokens, targets, 0.01, &loss));
    assert_int_equal(rn_trainer_last_step(trainer)->effect, RN_STEP_NO_TARGETS);
    assert_int_equal(rn_trainer_steps(trainer), 0);
    rn_trainer_destroy(trainer);
}

// ---- the same weights ---------------------------------------------------------------------------

static void export_after(rn_trainer *trainer, uint64_t steps, const char *path) {
    take_steps(trainer, steps);
    assert_ok(rn_trainer_export(trainer, RN_DTYPE_F32, path));
    rn_trainer_destroy(trainer);
}

static void a_resumed_training_ends_where_one_that_ran_through_does(void **state) {
    (void)state;
    rn_trainer_options options = small();
    export_after(open_trainer(&options), 7, test_own_path("through"));
    rn_trainer *half = open_trainer(&options);
    take_steps(half, 3);
    assert_ok(rn_trainer_save(half, test_own_path("checkpoint")));
    take_steps(half, 1); // what a kill would lose
    rn_trainer_destroy(half);
    options.seed++; // first weights do not matter any more
    rn_trainer *rest = open_trainer(&options);
    assert_ok(rn_trainer_resume(rest, test_own_path("checkpoint")));
    assert_int_equal(rn_trainer_steps(rest), 3);
    export_after(rest, 4, test_own_path("resumed"));
    assert_same_files(test_own_path("through"), test_own_path("resumed"));
}

static void threads_do_not_change_the_weights(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        rn_trainer_options options = small();
        assert_ok(rn_cpu_device_create(threads, &options.device));
        export_after(open_trainer(&options), 4, test_own_path(threads == 1 ? "one" : "three"));
        rn_device_destroy(options.device);
    }
    assert_same_files(test_own_path("one"), test_own_path("three"));
}

static void an_export_holds_the_weights_by_their_names(void **state) {
    (void)state;
    rn_trainer_options options = small();
    rn_checkpoint *file = NULL;
    rn_trainer *trainer = open_trainer(&options);
    assert_ok(rn_trainer_export(trainer, RN_DTYPE_F16, test_own_path("model.safetensors")));
    assert_fails(RN_UNSUPPORTED,
                 rn_trainer_export(trainer, RN_DTYPE_Q4_0, test_own_path("q.safetensors")));
    rn_trainer_destroy(trainer);
    assert_ok(rn_checkpoint_open(test_own_path("model.safetensors"), &file));
    assert_int_equal(rn_checkpoint_count(file), 3 + 9 * options.layers);
    const rn_tensor_info *k = rn_checkpoint_find(file, "model.layers.1.self_attn.k_proj.weight");
    assert_non_null(k);
    assert_int_equal(k->dtype, RN_DTYPE_F16);
    assert_int_equal(k->dims[0], 8);
    assert_int_equal(k->dims[1], 16);
    rn_checkpoint_close(file);
}

// ---- evaluating ---------------------------------------------------------------------------------

// Evaluates, takes a step and saves, again and again, beside a trainer that only takes steps.
static void train_and_evaluate(const rn_trainer_options *options) {
    int32_t tokens[ROWS], targets[ROWS], others[ROWS], their_targets[ROWS];
    rn_trainer_options plain = *options;
    plain.evaluate_every = 0;
    rn_trainer *trainer = open_trainer(options), *without = open_trainer(&plain);
    const rn_plan *evaluate = rn_program_plan(rn_trainer_program(trainer), 2);
    bool same = rn_plan_get_summary(rn_trainer_plan(trainer))->micro_batches ==
                rn_plan_get_summary(evaluate)->micro_batches;
    make_batch(77, others, their_targets);
    for (uint64_t step = 0; step < 5; step++) {
        float said = NAN, loss = NAN, expected = NAN, other = NAN;
        make_batch(step, tokens, targets);
        assert_ok(rn_trainer_evaluate(trainer, tokens, targets, &said));
        assert_ok(rn_trainer_step(trainer, tokens, targets, 0.01, &loss));
        assert_ok(rn_trainer_evaluate(trainer, others, their_targets, &other));
        assert_ok(rn_trainer_save(trainer, test_own_path("checkpoint")));
        assert_ok(rn_trainer_step(without, tokens, targets, 0.01, &expected));
        assert_true(same ? said == loss : fabsf(said - loss) < 1e-5f * loss);
        assert_true(loss == expected && isfinite(other));
    }
    export_after(trainer, 0, test_own_path("evaluated"));
    export_after(without, 0, test_own_path("not evaluated"));
    assert_same_files(test_own_path("evaluated"), test_own_path("not evaluated"));
}

// From the smallest budget, with micro-batches, to one that holds everything.
static void an_evaluation_says_what_a_step_would_and_changes_nothing(void **state) {
    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        rn_trainer_options options = small();
        options.evaluate_every = 1;
        options.plan.exact = exact;
        rn_trainer *trainer = open_trainer(&options);
        const rn_program_summary s = *rn_program_get_summary(rn_trainer_program(trainer));
        assert_int_equal(s.phase_count, 3);
        rn_trainer_destroy(trainer);
        for (uint64_t i = 0; i < 4; i++) {
            options.plan.budget_bytes =
                s.smallest_budget_bytes + (s.planned_bytes - s.smallest_budget_bytes) * i / 3;
            train_and_evaluate(&options);
        }
    }
}

static void evaluations_are_planned_or_refused(void **state) {
    (void)state;
    rn_trainer_options options = small();
    rn_trainer *trainer = open_trainer(&options);
    int32_t tokens[ROWS], targets[ROWS];
    float loss;
    make_batch(0, tokens, targets);
    assert_int_equal(rn_program_get_summary(rn_trainer_program(trainer))->phase_count, 2);
    assert_fails(RN_INVALID, rn_trainer_evaluate(trainer, tokens, targets, &loss));
    rn_trainer_destroy(trainer);
    options.evaluate_every = 10;
    options.plan.budget_bytes = 1000;
    assert_fails(RN_OVER_BUDGET, rn_trainer_create(&options, &trainer));
    assert_non_null(strstr(rn_last_error()->message, "phase 'step'"));
}

static uint64_t on_ledger(rn_purpose purpose) {
    return rn_ledger_read(RN_DEVICE_HOST, purpose).now_bytes;
}

// One arena for all phases: what is on the ledger is not their sum.
static void phases_of_a_trainer_overlap(void **state) {
    (void)state;
    static const rn_purpose planned[] = {RN_PURPOSE_WEIGHTS, RN_PURPOSE_OPTIMIZER,
                                         RN_PURPOSE_GRADIENTS, RN_PURPOSE_ACTIVATIONS,
                                         RN_PURPOSE_WORKSPACE};
    enum { COUNT = sizeof planned / sizeof *planned };
    rn_trainer_options options = small();
    options.evaluate_every = 1;
    uint64_t before[COUNT], sum = 0;
    for (int i = 0; i < COUNT; i++)
        before[i] = on_ledger(planned[i]);
    rn_trainer *trainer = open_trainer(&options);
    const rn_program *program = rn_trainer_program(trainer);
    const rn_program_summary *s = rn_program_get_summary(program);
    const rn_plan_summary *step = rn_plan_get_summary(rn_trainer_plan(trainer));
    assert_int_equal(s->largest_phase, 0);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(on_ledger(planned[i]) - before[i], step->purpose_bytes[planned[i]]);
    for (uint32_t i = 0; i < 3; i++)
        sum += rn_program_get_phase(program, i).own_bytes;
    assert_true(s->arena_bytes < s->shared_bytes + sum);
    assert_int_equal(s->planned_bytes, step->planned_bytes);
    rn_trainer_destroy(trainer);
}

// ---- what is refused ----------------------------------------------------------------------------

static void a_checkpoint_of_another_model_is_refused(void **state) {
    (void)state;
    rn_trainer_options options = small();
    rn_trainer *trainer = open_trainer(&options);
    assert_ok(rn_trainer_save(trainer, test_own_path("checkpoint")));
    assert_ok(rn_trainer_export(trainer, RN_DTYPE_F32, test_own_path("weights")));
    assert_fails(RN_INVALID, rn_trainer_resume(trainer, test_own_path("weights"))); // no step
    assert_fails(RN_NOT_FOUND, rn_trainer_resume(trainer, test_own_path("nothing")));
    rn_trainer_destroy(trainer);
    options.ffn = 48;
    trainer = open_trainer(&options);
    assert_fails(RN_INVALID, rn_trainer_resume(trainer, test_own_path("checkpoint")));
    assert_non_null(strstr(rn_last_error()->message, "another size"));
    rn_trainer_destroy(trainer);
    options = small();
    options.batch = 0;
    assert_fails(RN_INVALID, rn_trainer_create(&options, &trainer));
    assert_null(trainer);
}

static rn_trainer_options refused_options;

static rn_status make_and_save(void) {
    rn_trainer *trainer = NULL;
    RN_TRY(rn_trainer_create(&refused_options, &trainer));
    rn_status s = rn_trainer_save(trainer, test_own_path("checkpoint"));
    if (s == RN_OK) s = rn_trainer_resume(trainer, test_own_path("checkpoint"));
    rn_trainer_destroy(trainer);
    return s;
}

static void a_refused_allocation_leaves_nothing_behind(void **state) {
    (void)state;
    refused_options = small();
    refused_options.layers = 1;
    refused_options.evaluate_every = 2;
    assert_ok(rn_cpu_device_create(1, &refused_options.device));
    assert_true(survive_refusals(make_and_save) > 100);
    rn_device_destroy(refused_options.device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trainer_learns_to_count),
        cmocka_unit_test(activations_of_16_bits_take_less),
        cmocka_unit_test(targets_of_minus_100_do_not_count),
        cmocka_unit_test(a_batch_without_targets_is_skipped),
        cmocka_unit_test_setup(a_resumed_training_ends_where_one_that_ran_through_does,
                               test_make_folder),
        cmocka_unit_test_setup(threads_do_not_change_the_weights, test_make_folder),
        cmocka_unit_test_setup(an_export_holds_the_weights_by_their_names, test_make_folder),
        cmocka_unit_test_setup(a_checkpoint_of_another_model_is_refused, test_make_folder),
        cmocka_unit_test_setup(an_evaluation_says_what_a_step_would_and_changes_nothing,
                               test_make_folder),
        cmocka_unit_test(evaluations_are_planned_or_refused),
        cmocka_unit_test(phases_of_a_trainer_overlap),
        cmocka_unit_test_setup(a_refused_allocation_leaves_nothing_behind, test_make_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

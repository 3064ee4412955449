// labels: threads
// Ranks that train together, as threads of this process: with `exact` the bits of one rank,
// whatever their number and whether they divide the optimiser's states; without it the same to
// rounding. Checkpoints are of whole tensors; what differs or fails on one rank is named on all.
#include "support.h"

#include <ration/comm.h>
#include <ration/memory.h>
#include <ration/train.h>

#include "base/sum_tree.h"
#include "train/trainer.h"

#include <math.h>
#include <pthread.h>

#define TEXT "tests/golden/text/"

enum { SEQUENCES = 9, TOKENS = 12, COUNT = SEQUENCES * TOKENS, VOCAB = 96, MOST = 8 };

static const rn_lora_options additions = {.rank = 4};

typedef struct job_info {
    rn_model *model;
    rn_trainer_options options;
    bool full;
    uint32_t steps;
    const char *resume, *save; // or NULL
    uint32_t odd;              // the rank with another seed; MOST: none
    uint32_t poor;             // the rank with a small budget; MOST: none
} job_info;

typedef struct worker {
    const job_info *job;
    rn_comm *comm;
    rn_status status;
    rn_error_info error;
    float loss, norm, evaluated;
    uint64_t planned, states;
} worker;

// Sequences have different numbers of targets that count; the fourth has none.
static void fill(int32_t *tokens, int32_t *targets, uint64_t step) {
    for (int32_t i = 0; i < COUNT; i++) {
        bool ignored = i % 5 == i / TOKENS % 3 || i / TOKENS == 3;
        tokens[i] = (i * 37 + i / TOKENS + (int32_t)step * 7) % VOCAB;
        targets[i] = ignored ? -100 : (i * 11 + 5) % VOCAB;
    }
}

static rn_status take_steps(worker *w, rn_trainer *trainer) {
    int32_t tokens[COUNT], targets[COUNT];
    while (rn_trainer_steps(trainer) < w->job->steps) {
        fill(tokens, targets, rn_trainer_steps(trainer));
        RN_TRY(rn_trainer_step(trainer, tokens, targets, 0.003, &w->loss));
    }
    w->norm = rn_trainer_last_step(trainer)->gradient_norm;
    if (w->job->options.evaluate_every)
        RN_TRY(rn_trainer_evaluate(trainer, tokens, targets, &w->evaluated));
    return w->job->save ? rn_trainer_save(trainer, w->job->save) : RN_OK;
}

static rn_status work(worker *w) {
    rn_trainer *trainer = NULL;
    rn_trainer_options options = w->job->options;
    options.comm = w->comm;
    if (rn_comm_rank(w->comm) == w->job->odd) options.seed++;
    if (rn_comm_rank(w->comm) == w->job->poor) options.plan.budget_bytes = 64 << 10;
    RN_TRY(
        rn_trainer_finetune(w->job->model, &options, w->job->full ? NULL : &additions, &trainer));
    rn_status s = w->job->resume ? rn_trainer_resume(trainer, w->job->resume) : RN_OK;
    if (s == RN_OK) s = take_steps(w, trainer);
    w->planned = rn_program_get_summary(rn_trainer_program(trainer))->planned_bytes;
    w->states =
        rn_train_get_phase(rn_trainer_program(trainer), RN_TRAIN_STEP).bytes[RN_PURPOSE_OPTIMIZER];
    rn_trainer_destroy(trainer);
    return s;
}

static void *run_worker(void *self) {
    worker *w = self;
    w->status = work(w);
    w->error = *rn_last_error();
    if (w->status == RN_OK)
        rn_comm_close(w->comm);
    else
        rn_comm_abort(w->comm, w->error.message);
    return NULL;
}

static void run_ranks(uint32_t ranks, const job_info *job, worker workers[MOST]) {
    rn_comm *comms[MOST];
    pthread_t threads[MOST];
    assert_ok(rn_comm_open_threads(ranks, 60, comms));
    for (uint32_t r = 0; r < ranks; r++) {
        workers[r] = (worker){.job = job, .comm = comms[r]};
        assert_int_equal(pthread_create(&threads[r], NULL, run_worker, &workers[r]), 0);
    }
    for (uint32_t r = 0; r < ranks; r++)
        pthread_join(threads[r], NULL);
}

static void run_well(uint32_t ranks, const job_info *job, worker workers[MOST]) {
    run_ranks(ranks, job, workers);
    for (uint32_t r = 0; r < ranks; r++)
        if (workers[r].status != RN_OK)
            fail_msg("rank %u of %u: %s", r, ranks, workers[r].error.message);
}

static job_info job_of(rn_model *model, const char *optimizer) {
    return (job_info){.model = model,
                      .options = {.tokens = TOKENS,
                                  .batch = SEQUENCES,
                                  .seed = 5,
                                  .optimizer = optimizer,
                                  .max_norm = 1,
                                  .evaluate_every = 10,
                                  .plan.exact = true},
                      .steps = 20,
                      .odd = MOST,
                      .poor = MOST};
}

static rn_model *open_model(void) {
    rn_model *model = NULL;
    assert_ok(rn_model_open(TEXT "llama3", &(rn_model_options){.without_tokenizer = true}, &model));
    return model;
}

static char *read_all(const char *path, size_t *out_bytes) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *out_bytes = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(*out_bytes);
    assert_int_equal(fread(text, 1, *out_bytes, file), *out_bytes);
    fclose(file);
    return text;
}

static void assert_same_files(const char *a, const char *b) {
    size_t a_bytes, b_bytes;
    char *x = read_all(a, &a_bytes), *y = read_all(b, &b_bytes);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(x, y, a_bytes);
    free(x);
    free(y);
}

static void path_of(const char *name, char out[256]) {
    snprintf(out, 256, "%s", test_own_path(name));
}

// ---- the same bits ------------------------------------------------------------------------------

// Twenty steps of 1, 2, 3, 4 and 8 ranks end in the same file.
static void compare_counts(const char *optimizer, bool full, rn_zero zero, rn_dtype gradients) {
    static const uint32_t counts[] = {1, 2, 3, 4, 8};
    rn_model *model = open_model();
    worker workers[MOST];
    char first[256], other[256];
    float losses[3] = {0};
    path_of("one", first);
    path_of("several", other);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        job_info job = job_of(model, optimizer);
        job.full = full;
        job.options.zero = zero;
        job.options.gradients = gradients;
        job.save = i == 0 ? first : other;
        run_well(counts[i], &job, workers);
        for (uint32_t r = 0; r < counts[i]; r++) {
            if (i + r == 0) {
                losses[0] = workers[0].loss;
                losses[1] = workers[0].norm;
                losses[2] = workers[0].evaluated;
            }
            assert_true(workers[r].loss == losses[0] && workers[r].norm == losses[1]);
            assert_true(workers[r].evaluated == losses[2]);
        }
        if (i) assert_same_files(first, other);
    }
    assert_true(isfinite(losses[0]) && losses[0] > 0 && losses[1] > 0);
    rn_model_close(model);
}

static void every_number_of_ranks_gives_the_same_bits(void **state) {
    (void)state;
    compare_counts("adamw", false, RN_ZERO_NONE, RN_DTYPE_F32);
}

static void weights_of_a_model_and_sums_in_bf16_too(void **state) {
    (void)state;
    compare_counts("adamw", true, RN_ZERO_NONE, RN_DTYPE_BF16);
}

static void divided_states_change_no_bit(void **state) {
    if (TEST_THREADS_ONLY) skip_because("left to builds without ThreadSanitizer");
    (void)state;
    compare_counts("adamw", true, RN_ZERO_STATES, RN_DTYPE_F32);
    compare_counts("adamw_8bit", true, RN_ZERO_STATES, RN_DTYPE_F32);
    compare_counts("lion_8bit", true, RN_ZERO_STATES, RN_DTYPE_F32);
    compare_counts("momentum", true, RN_ZERO_STATES, RN_DTYPE_F32);
}

// Divided or not: the checkpoint of one rank.
static void divided_states_are_saved_whole(void **state) {
    (void)state;
    rn_model *model = open_model();
    worker workers[MOST];
    char whole[256], divided[256];
    path_of("whole", whole);
    path_of("divided", divided);
    for (int i = 0; i < 2; i++) {
        job_info job = job_of(model, "adamw_8bit");
        job.full = true;
        job.options.zero = i ? RN_ZERO_STATES : RN_ZERO_NONE;
        job.save = i ? divided : whole;
        run_well(3, &job, workers);
    }
    assert_same_files(whole, divided);
    rn_model_close(model);
}

static void without_exact_ranks_agree_to_rounding(void **state) {
    (void)state;
    rn_model *model = open_model();
    worker workers[MOST];
    float first = 0;
    for (uint32_t ranks = 1; ranks <= 4; ranks++) {
        job_info job = job_of(model, "adamw");
        job.options.plan.exact = false;
        run_well(ranks, &job, workers);
        if (ranks == 1) first = workers[0].loss;
        for (uint32_t r = 0; r < ranks; r++) {
            assert_true(workers[r].loss == workers[0].loss);
            if (!(fabsf(workers[r].loss - first) <= 1e-5f * first))
                fail_msg("%u ranks: %.9g and %.9g", ranks, (double)workers[r].loss, (double)first);
        }
    }
    rn_model_close(model);
}

// Updates that wait for nothing but the loss.
static void without_a_norm_the_loss_guards(void **state) {
    (void)state;
    rn_model *model = open_model();
    worker workers[MOST];
    char one[256], three[256];
    path_of("guard_one", one);
    path_of("guard_three", three);
    for (uint32_t ranks = 1; ranks <= 3; ranks += 2) {
        job_info job = job_of(model, "adamw");
        job.full = true;
        job.options.max_norm = 0;
        job.options.zero = ranks == 3 ? RN_ZERO_STATES : RN_ZERO_NONE;
        job.save = ranks == 1 ? one : three;
        run_well(ranks, &job, workers);
    }
    assert_same_files(one, three);
    rn_model_close(model);
}

// ---- checkpoints --------------------------------------------------------------------------------

static void another_number_of_ranks_goes_on(void **state) {
    (void)state;
    static const uint32_t counts[] = {3, 1, 2, 8};
    rn_model *model = open_model();
    worker workers[MOST];
    char through[256], paths[4][256];
    job_info job = job_of(model, "adamw_8bit");
    job.full = true;
    path_of("through", through);
    job.save = through;
    run_well(1, &job, workers);
    for (uint32_t i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "leg%u", i);
        path_of(name, paths[i]);
        job.options.zero = i % 2 ? RN_ZERO_NONE : RN_ZERO_STATES;
        job.resume = i ? paths[i - 1] : NULL;
        job.save = paths[i];
        job.steps = 5 * (i + 1);
        run_well(counts[i], &job, workers);
    }
    assert_same_files(through, paths[3]);
    rn_model_close(model);
}

static void a_damaged_checkpoint_is_refused_by_all(void **state) {
    (void)state;
    rn_model *model = open_model();
    worker workers[MOST];
    char path[256];
    path_of("damaged", path);
    job_info job = job_of(model, "adamw");
    job.save = path;
    job.steps = 2;
    run_well(2, &job, workers);
    FILE *file = fopen(path, "r+b");
    fseek(file, -5, SEEK_END);
    fputc(0x5a, file);
    fclose(file);
    job.resume = path;
    run_ranks(2, &job, workers);
    for (uint32_t r = 0; r < 2; r++)
        assert_int_equal(workers[r].status, RN_CORRUPT);
    assert_non_null(strstr(workers[1].error.message, "rank 0 of 2"));
    rn_model_close(model);
}

// ---- budgets ------------------------------------------------------------------------------------

static void states_are_divided_to_the_block(void **state) {
    (void)state;
    rn_model *model = open_model();
    worker whole[MOST], divided[MOST];
    job_info job = job_of(model, "adamw");
    job.full = true;
    job.steps = 1;
    job.options.zero = RN_ZERO_NONE;
    run_well(4, &job, whole);
    job.options.zero = RN_ZERO_STATES;
    run_well(4, &job, divided);
    uint64_t sum = 0;
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(whole[r].states, whole[0].states);
        assert_true(divided[r].states < whole[r].states);
        sum += divided[r].states;
    }
    // Vectors of fewer than four blocks stay on all ranks.
    assert_true(sum >= whole[0].states && sum < whole[0].states + whole[0].states / 4);
    rn_model_close(model);
}

// As little is divided as fits: at a budget between the two, all of them do.
static void the_budget_decides_what_is_divided(void **state) {
    (void)state;
    rn_model *model = open_model();
    worker none[MOST], divided[MOST], chosen[MOST];
    job_info job = job_of(model, "adamw");
    job.full = true;
    job.steps = 1;
    job.options.evaluate_every = 0;
    job.options.zero = RN_ZERO_NONE;
    run_well(2, &job, none);
    job.options.zero = RN_ZERO_STATES;
    run_well(2, &job, divided);
    assert_true(divided[0].planned < none[0].planned);
    job.options.zero = RN_ZERO_AUTO;
    run_well(2, &job, chosen);
    assert_int_equal(chosen[0].states, none[0].states);
    job.options.plan.budget_bytes = (divided[0].planned + none[0].planned) / 2;
    job.options.zero = RN_ZERO_NONE;
    run_ranks(2, &job, chosen);
    if (chosen[0].status == RN_OK) // a tighter plan of all states fits there: go below it
        job.options.plan.budget_bytes = divided[0].planned;
    job.options.zero = RN_ZERO_AUTO;
    run_well(2, &job, chosen);
    assert_true(chosen[0].states == none[0].states || chosen[0].states == divided[0].states);
    assert_true(chosen[0].planned <= job.options.plan.budget_bytes);
    rn_model_close(model);
}

static void a_rank_over_its_budget_refuses_the_job(void **state) {
    (void)state;
    rn_model *model = open_model();
    worker workers[MOST];
    job_info job = job_of(model, "adamw");
    job.poor = 1;
    run_ranks(3, &job, workers);
    for (uint32_t r = 0; r < 3; r++)
        assert_int_equal(workers[r].status, RN_OVER_BUDGET);
    assert_non_null(strstr(workers[0].error.message, "rank 1 of 3"));
    assert_non_null(strstr(workers[2].error.message, "rank 1 of 3"));
    rn_model_close(model);
}

static void ranks_with_other_options_are_named(void **state) {
    (void)state;
    rn_model *model = open_model();
    worker workers[MOST];
    job_info job = job_of(model, "adamw");
    job.odd = 2;
    run_ranks(3, &job, workers);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(workers[r].status, RN_INVALID);
        assert_non_null(strstr(workers[r].error.message, "rank 2 of 3 differs"));
    }
    rn_model_close(model);
}

static void more_ranks_than_sequences_are_refused(void **state) {
    (void)state;
    rn_model *model = open_model();
    worker workers[MOST];
    job_info job = job_of(model, "adamw");
    job.options.batch = 2;
    run_ranks(3, &job, workers);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(workers[r].status, RN_INVALID);
        assert_non_null(strstr(workers[r].error.message, "2 sequences cannot be divided"));
    }
    rn_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_number_of_ranks_gives_the_same_bits, test_make_folder),
        cmocka_unit_test_setup(weights_of_a_model_and_sums_in_bf16_too, test_make_folder),
        cmocka_unit_test_setup(divided_states_change_no_bit, test_make_folder),
        cmocka_unit_test_setup(divided_states_are_saved_whole, test_make_folder),
        cmocka_unit_test(without_exact_ranks_agree_to_rounding),
        cmocka_unit_test_setup(without_a_norm_the_loss_guards, test_make_folder),
        cmocka_unit_test_setup(another_number_of_ranks_goes_on, test_make_folder),
        cmocka_unit_test_setup(a_damaged_checkpoint_is_refused_by_all, test_make_folder),
        cmocka_unit_test(states_are_divided_to_the_block),
        cmocka_unit_test(the_budget_decides_what_is_divided),
        cmocka_unit_test(a_rank_over_its_budget_refuses_the_job),
        cmocka_unit_test(ranks_with_other_options_are_named),
        cmocka_unit_test(more_ranks_than_sequences_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

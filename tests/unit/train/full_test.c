// Full fine-tuning: gradients of all weights are PyTorch's, what is frozen stays, budgets and
// resuming change nothing, and the model that is written is opened again as it was left.
#include "support.h"

#include <ration/convert.h>
#include <ration/memory.h>
#include <ration/train.h>

#include "train/trainer.h"

#include <math.h>
#include <sys/stat.h>

#define TEXT "tests/golden/text/"

enum { BATCH = 2, TOKENS = 12, ROWS = BATCH * TOKENS, VOCAB = 96, MOST = 128 * 64 };

static rn_trainer_options small(const char *optimizer) {
    return (rn_trainer_options){
        .tokens = TOKENS, .batch = BATCH, .seed = 5, .evaluate_every = 10, .optimizer = optimizer};
}

static rn_model *open_model(const char *path) {
    rn_model *model = NULL;
    assert_ok(rn_model_open(path, &(rn_model_options){.without_tokenizer = true}, &model));
    return model;
}

static rn_trainer *open_trainer(const rn_model *model, const rn_trainer_options *options) {
    rn_trainer *trainer = NULL;
    assert_ok(rn_trainer_finetune(model, options, NULL, &trainer));
    return trainer;
}

static void load(const rn_checkpoint *c, const char *name, void *out, size_t bytes) {
    const rn_tensor_info *info = rn_checkpoint_find(c, name);
    assert_non_null(info);
    assert_int_equal(info->bytes, bytes);
    assert_ok(rn_checkpoint_read(c, info, 0, out, bytes));
}

typedef struct packed {
    int32_t tokens[ROWS], targets[ROWS], documents[ROWS];
} packed;

static rn_batch batch_of(const packed *p) {
    return (rn_batch){p->tokens, p->targets, p->documents};
}

static packed make_batch(void) {
    packed p;
    for (int32_t i = 0; i < ROWS; i++) {
        p.tokens[i] = (i * 37 + 11) % VOCAB;
        p.targets[i] = i % TOKENS == 4 || i % TOKENS == 11 ? -100 : ((i + 1) * 37 + 11) % VOCAB;
        p.documents[i] = i % TOKENS > 4 ? 5 : 0;
    }
    return p;
}

static float evaluate(rn_trainer *trainer) {
    packed p = make_batch();
    rn_batch batch = batch_of(&p);
    float loss = NAN;
    assert_ok(rn_trainer_evaluate_packed(trainer, &batch, &loss));
    return loss;
}

static float learn(rn_trainer *trainer, int steps, double rate) {
    packed p = make_batch();
    rn_batch batch = batch_of(&p);
    float loss = NAN;
    for (int i = 0; i < steps; i++)
        assert_ok(rn_trainer_step_packed(trainer, &batch, rate, &loss));
    return loss;
}

// ---- gradients ----------------------------------------------------------------------------------

static void assert_gradient(const rn_checkpoint *golden, const rn_checkpoint *before,
                            const rn_checkpoint *after, const rn_tensor_info *t, double rate) {
    static float first[MOST], last[MOST], must[MOST];
    double apart = 0, size = 0;
    char name[128];
    snprintf(name, sizeof name, "%.*s", RN_STR_ARG(t->name));
    const char *weight = name + strlen("gradient.");
    assert_true(t->bytes <= sizeof must);
    load(golden, name, must, t->bytes);
    const rn_tensor_info *own = rn_checkpoint_find(before, weight);
    assert_non_null(own);
    assert_ok(rn_checkpoint_load(before, own, RN_DTYPE_F32, first, t->bytes));
    load(after, weight, last, t->bytes);
    for (uint64_t i = 0; i < t->elements; i++) {
        double is = ((double)first[i] - (double)last[i]) / rate;
        apart += (is - (double)must[i]) * (is - (double)must[i]);
        size += (double)must[i] * (double)must[i];
    }
    if (sqrt(apart / size) > 1e-5) fail_msg("%s is off by %g", name, sqrt(apart / size));
}

// One step of SGD at a large rate: what it changes is the gradient.
static void check_gradients(const char *path, const char *golden_path) {
    const double rate = 4096;
    rn_checkpoint *golden, *before, *after;
    packed p;
    float loss = 0, must = 0;
    rn_trainer_options options = small("sgd");
    rn_model *model = open_model(path);
    rn_trainer *trainer = open_trainer(model, &options);
    assert_ok(rn_checkpoint_open(golden_path, &golden));
    assert_ok(rn_checkpoint_open(path, &before));
    load(golden, "tokens", p.tokens, sizeof p.tokens);
    load(golden, "targets", p.targets, sizeof p.targets);
    load(golden, "documents", p.documents, sizeof p.documents);
    load(golden, "loss", &must, sizeof must);
    rn_batch batch = batch_of(&p);
    assert_ok(rn_trainer_step_packed(trainer, &batch, rate, &loss));
    assert_true(fabsf(loss - must) < 1e-5f * must);
    assert_ok(rn_trainer_save(trainer, test_own_path("after.safetensors")));
    assert_ok(rn_checkpoint_open(test_own_path("after.safetensors"), &after));
    size_t gradients = 0;
    for (size_t i = 0; i < rn_checkpoint_count(golden); i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(golden, i);
        if (strncmp(t->name.data, "gradient.", 9) != 0) continue;
        assert_gradient(golden, before, after, t, rate);
        gradients++;
    }
    assert_int_equal(gradients, rn_checkpoint_count(after)); // every weight, and a tied head once
    rn_checkpoint_close(after);
    rn_checkpoint_close(before);
    rn_checkpoint_close(golden);
    rn_trainer_destroy(trainer);
    rn_model_close(model);
}

static void gradients_are_those_of_pytorch(void **state) {
    (void)state;
    check_gradients(TEXT "llama3", "tests/golden/full_llama3_golden.safetensors");
    check_gradients(TEXT "qwen2", "tests/golden/full_qwen2_golden.safetensors");
}

// ---- files --------------------------------------------------------------------------------------

static float loss_of(const char *path) {
    rn_trainer_options options = small("sgd");
    rn_model *model = open_model(path);
    rn_trainer *trainer = open_trainer(model, &options);
    float loss = evaluate(trainer);
    rn_trainer_destroy(trainer);
    rn_model_close(model);
    return loss;
}

// The files are f16, the trained weights f32: what is written is rounded to the files' type.
static void a_trained_model_is_written_as_its_files_were(void **state) {
    (void)state;
    static const char *const models[] = {TEXT "llama3", TEXT "llama3/model.gguf", TEXT "qwen2"};
    static const char *const outs[] = {"model", "model.gguf", "tied"};
    for (int i = 0; i < 3; i++) {
        rn_trainer_options options = small("adamw");
        rn_model *model = open_model(models[i]);
        rn_trainer *trainer = open_trainer(model, &options);
        rn_checkpoint *from, *to;
        float first = evaluate(trainer);
        learn(trainer, 8, 0.003);
        float last = evaluate(trainer);
        assert_true(last < 0.9f * first);
        assert_ok(rn_trainer_export_model(trainer, test_own_path(outs[i])));
        float again = loss_of(test_own_path(outs[i]));
        if (fabsf(again - last) > 2e-3f * last)
            fail_msg("%s: %g, not %g", models[i], (double)again, (double)last);
        assert_ok(rn_checkpoint_open(models[i], &from));
        assert_ok(rn_checkpoint_open(test_own_path(outs[i]), &to));
        assert_int_equal(rn_checkpoint_count(from), rn_checkpoint_count(to));
        for (size_t n = 0; n < rn_checkpoint_count(from); n++) {
            const rn_tensor_info *a = rn_checkpoint_tensor(from, n);
            const rn_tensor_info *b = rn_checkpoint_find(to, a->name.data);
            assert_true(b && b->dtype == a->dtype && b->elements == a->elements);
        }
        rn_checkpoint_close(from);
        rn_checkpoint_close(to);
        assert_fails(RN_UNSUPPORTED,
                     rn_trainer_export_model(trainer, test_own_path(outs[i == 1 ? 0 : 1])));
        rn_trainer_destroy(trainer);
        rn_model_close(model);
    }
}

static void a_resumed_training_ends_with_the_same_bytes(void **state) {
    (void)state;
    rn_trainer_options options = small("adamw");
    rn_model *model = open_model(TEXT "qwen2");
    options.max_norm = 1;
    rn_trainer *trainer = open_trainer(model, &options);
    learn(trainer, 3, 0.01);
    assert_ok(rn_trainer_save(trainer, test_own_path("half.safetensors")));
    float through = learn(trainer, 3, 0.01);
    rn_trainer_destroy(trainer);
    trainer = open_trainer(model, &options);
    assert_ok(rn_trainer_resume(trainer, test_own_path("half.safetensors")));
    assert_true(learn(trainer, 3, 0.01) == through);
    rn_trainer_destroy(trainer);
    rn_model_close(model);
}

// ---- what is trained ----------------------------------------------------------------------------

// Frozen weights are in the export to the bit, as the files have them; the others have changed.
static void frozen_weights_stay_as_they_are(void **state) {
    (void)state;
    rn_trainer_options options = small("adamw");
    options.trained = "*self_attn*,*norm*";
    options.frozen = "*k_proj*,model.norm.weight";
    rn_model *model = open_model(TEXT "llama3");
    rn_trainer *trainer = open_trainer(model, &options);
    rn_checkpoint *from, *to;
    static uint8_t a[MOST], b[MOST];
    size_t changed = 0;
    learn(trainer, 4, 0.01);
    assert_ok(rn_trainer_export_model(trainer, test_own_path("model")));
    assert_ok(rn_checkpoint_open(TEXT "llama3", &from));
    assert_ok(rn_checkpoint_open(test_own_path("model"), &to));
    for (size_t i = 0; i < rn_checkpoint_count(from); i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(from, i);
        const char *name = t->name.data;
        bool trained =
            (strstr(name, "self_attn") || strstr(name, "layernorm")) && !strstr(name, "k_proj");
        assert_true(t->bytes <= sizeof a);
        load(from, name, a, t->bytes);
        load(to, name, b, t->bytes);
        if ((memcmp(a, b, t->bytes) != 0) != trained) fail_msg("%s", name);
        changed += trained;
    }
    assert_int_equal(changed, 2 * 5);
    rn_checkpoint_close(from);
    rn_checkpoint_close(to);
    rn_trainer_destroy(trainer);
    rn_model_close(model);
}

// ---- steps without an effect --------------------------------------------------------------------

static void assert_same_files(const char *a, const char *b) {
    rn_checkpoint *from, *to;
    static uint8_t one[4 * MOST], other[4 * MOST];
    assert_ok(rn_checkpoint_open(a, &from));
    assert_ok(rn_checkpoint_open(b, &to));
    for (size_t i = 0; i < rn_checkpoint_count(from); i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(from, i);
        load(from, t->name.data, one, t->bytes);
        load(to, t->name.data, other, t->bytes);
        if (memcmp(one, other, t->bytes) != 0) fail_msg("%s has changed", t->name.data);
    }
    rn_checkpoint_close(from);
    rn_checkpoint_close(to);
}

// A weight that is not finite makes gradients so: nothing changes, and a weight is named.
static void a_step_that_is_not_finite_changes_nothing(void **state) {
    (void)state;
    for (int clips = 0; clips < 2; clips++) {
        rn_trainer_options options = small("adamw");
        options.max_norm = clips ? 1 : 0;
        rn_model *model = open_model(TEXT "llama3");
        rn_trainer *trainer = open_trainer(model, &options);
        learn(trainer, 2, 0.01);
        assert_int_equal(rn_trainer_last_step(trainer)->effect, RN_STEP_TAKEN);
        assert_true(!clips || rn_trainer_last_step(trainer)->gradient_norm > 0);
        float norm[32];
        for (int i = 0; i < 32; i++)
            norm[i] = 1;
        norm[3] = INFINITY;
        rn_session *session = trainer->session;
        assert_ok(
            rn_session_put(session, "model.layers.1.input_layernorm.weight", norm, sizeof norm));
        assert_ok(rn_trainer_save(trainer, test_own_path("before.safetensors")));
        float loss = learn(trainer, 1, 0.01);
        assert_false(isfinite(loss));
        const rn_step_info *last = rn_trainer_last_step(trainer);
        assert_int_equal(last->effect, RN_STEP_NOT_FINITE);
        assert_int_equal(last->weight[0] != 0, clips);
        assert_int_equal(rn_trainer_steps(trainer), 2);
        assert_ok(rn_trainer_save(trainer, test_own_path("after.safetensors")));
        assert_same_files(test_own_path("before.safetensors"), test_own_path("after.safetensors"));
        norm[3] = 1; // and it goes on
        assert_ok(
            rn_session_put(session, "model.layers.1.input_layernorm.weight", norm, sizeof norm));
        assert_true(isfinite(learn(trainer, 1, 0.01)));
        assert_int_equal(rn_trainer_steps(trainer), 3);
        rn_trainer_destroy(trainer);
        rn_model_close(model);
    }
}

static void a_step_without_targets_is_skipped(void **state) {
    (void)state;
    rn_trainer_options options = small("adamw");
    rn_model *model = open_model(TEXT "llama3");
    rn_trainer *trainer = open_trainer(model, &options);
    packed p = make_batch();
    for (int i = 0; i < ROWS; i++)
        p.targets[i] = -100;
    rn_batch batch = batch_of(&p);
    float loss = 1;
    assert_ok(rn_trainer_step_packed(trainer, &batch, 0.01, &loss));
    assert_true(loss == 0 && rn_trainer_steps(trainer) == 0);
    assert_int_equal(rn_trainer_last_step(trainer)->effect, RN_STEP_NO_TARGETS);
    rn_trainer_destroy(trainer);
    rn_model_close(model);
}

// ---- budgets ------------------------------------------------------------------------------------

static void budgets_change_nothing(void **state) {
    (void)state;
    rn_model *model = open_model(TEXT "llama3");
    rn_trainer_options options = small("adamw");
    options.plan.exact = true;
    rn_trainer *trainer = open_trainer(model, &options);
    uint64_t roomy = rn_program_get_summary(rn_trainer_program(trainer))->planned_bytes;
    float must = learn(trainer, 3, 0.01);
    rn_trainer_destroy(trainer);
    options.plan.budget_bytes = 1;
    assert_fails(RN_OVER_BUDGET, rn_trainer_finetune(model, &options, NULL, &trainer));
    options.plan.budget_bytes = rn_last_refusal()->smallest_budget_bytes;
    assert_true(options.plan.budget_bytes < roomy);
    trainer = open_trainer(model, &options);
    assert_true(learn(trainer, 3, 0.01) == must);
    rn_trainer_destroy(trainer);
    rn_model_close(model);
}

// ---- weights of bf16 ----------------------------------------------------------------------------

// A model of bf16 in a folder of its own.
static const char *make_bf16(void) {
    static char folder[512];
    char path[600];
    size_t bytes = 0;
    snprintf(folder, sizeof folder, "%s", test_own_path("bf16"));
    assert_int_equal(mkdir(folder, 0777), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    rn_convert_result result;
    assert_ok(rn_convert(TEXT "llama3", path,
                         &(rn_convert_options){.to = RN_DTYPE_BF16, .no_default_excludes = true},
                         &result));
    char *config = test_read(TEXT "llama3/config.json", &bytes);
    snprintf(path, sizeof path, "%s/config.json", folder);
    test_write(path, config, bytes);
    free(config);
    return folder;
}

// No master copy: matrices are bf16 in the checkpoint, norms f32. Rounded at random, small steps
// count; the same seed gives the same bits, resumed or not, another one gives others.
static void weights_of_bf16_learn_without_a_master_copy(void **state) {
    (void)state;
    rn_model *model = open_model(make_bf16());
    float last[3];
    for (int n = 0; n < 3; n++) {
        rn_trainer_options options = small("adamw_bf16");
        options.weights = RN_DTYPE_BF16;
        options.seed = n == 2 ? 6 : 5;
        rn_trainer *trainer = open_trainer(model, &options);
        rn_checkpoint *saved;
        float first = evaluate(trainer);
        if (n == 1)
            assert_ok(rn_trainer_resume(trainer, test_own_path("half.safetensors")));
        else
            learn(trainer, 10, 0.0005);
        if (n == 0) {
            assert_ok(rn_trainer_save(trainer, test_own_path("half.safetensors")));
            assert_ok(rn_checkpoint_open(test_own_path("half.safetensors"), &saved));
            assert_int_equal(rn_checkpoint_find(saved, "lm_head.weight")->dtype, RN_DTYPE_BF16);
            assert_int_equal(rn_checkpoint_find(saved, "lm_head.weight.v")->dtype, RN_DTYPE_BF16);
            assert_int_equal(rn_checkpoint_find(saved, "model.norm.weight")->dtype, RN_DTYPE_F32);
            rn_checkpoint_close(saved);
        }
        learn(trainer, 10, 0.0005);
        last[n] = evaluate(trainer);
        assert_true(last[n] < 0.98f * first);
        rn_trainer_destroy(trainer);
    }
    assert_true(last[0] == last[1] && last[0] != last[2]);
    rn_model_close(model);
}

static void misfits_are_named(void **state) {
    (void)state;
    rn_trainer_options options = small("sgd");
    rn_trainer *trainer;
    rn_model *model = open_model(TEXT "llama3");
    options.trained = "nobody";
    assert_fails(RN_INVALID, rn_trainer_finetune(model, &options, NULL, &trainer));
    options.trained = "*";
    rn_lora_options lora = {0};
    assert_fails(RN_INVALID, rn_trainer_finetune(model, &options, &lora, &trainer));
    options = small("sgd");
    options.weights = RN_DTYPE_Q4_0;
    assert_fails(RN_UNSUPPORTED, rn_trainer_finetune(model, &options, NULL, &trainer));
    rn_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(gradients_are_those_of_pytorch, test_make_folder),
        cmocka_unit_test_setup(a_trained_model_is_written_as_its_files_were, test_make_folder),
        cmocka_unit_test_setup(a_resumed_training_ends_with_the_same_bytes, test_make_folder),
        cmocka_unit_test_setup(frozen_weights_stay_as_they_are, test_make_folder),
        cmocka_unit_test_setup(a_step_that_is_not_finite_changes_nothing, test_make_folder),
        cmocka_unit_test(a_step_without_targets_is_skipped),
        cmocka_unit_test(budgets_change_nothing),
        cmocka_unit_test_setup(weights_of_bf16_learn_without_a_master_copy, test_make_folder),
        cmocka_unit_test(misfits_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Fine-tuning: gradients are peft's, documents do not see each other, the base stays as it is, and
// what is written is read again by whoever has the same model.
#include "support.h"

#include <ration/convert.h>
#include <ration/memory.h>
#include <ration/train.h>

#include <math.h>

#define TEXT   "tests/golden/text/"
#define GOLDEN "tests/golden/lora_golden.safetensors"
#define DORA   "tests/golden/dora_golden.safetensors"

enum { BATCH = 2, TOKENS = 12, ROWS = BATCH * TOKENS, VOCAB = 128 };

static const char *const targets[] = {"q_proj", "v_proj", "down_proj", "gate_proj"};

static rn_lora_options golden_lora(void) {
    return (rn_lora_options){
        .rank = 4, .alpha = 6, .by_root = true, .targets = targets, .target_count = 4};
}

static const rn_lora_options all_linears = {.rank = 16};

static rn_trainer_options small(void) {
    return (rn_trainer_options){
        .tokens = TOKENS, .batch = BATCH, .seed = 5, .evaluate_every = 10, .optimizer = "sgd"};
}

static rn_model *open_model(const char *path, const rn_adapter *adapter) {
    rn_model *model = NULL;
    assert_ok(rn_model_open(path,
                            &(rn_model_options){.adapters = adapter,
                                                .adapter_count = adapter != NULL,
                                                .without_tokenizer = true},
                            &model));
    return model;
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

static void load_batch(const rn_checkpoint *c, packed *out) {
    load(c, "tokens", out->tokens, sizeof out->tokens);
    load(c, "targets", out->targets, sizeof out->targets);
    load(c, "documents", out->documents, sizeof out->documents);
}

static void make_batch(packed *out) {
    for (int32_t i = 0; i < ROWS; i++) {
        out->tokens[i] = (i * 37 + 11) % VOCAB;
        out->targets[i] = i % TOKENS == 4 || i % TOKENS == 11 ? -100 : ((i + 1) * 37 + 11) % VOCAB;
        out->documents[i] = i % TOKENS > 4 ? 5 : 0;
    }
}

// ---- gradients ----------------------------------------------------------------------------------

static void assert_gradient(const rn_checkpoint *golden, const rn_checkpoint *after,
                            const rn_tensor_info *t, double rate) {
    enum { MOST = 4 * 64 };
    float first[MOST], last[MOST], must[MOST];
    double apart = 0, size = 0;
    char name[128];
    snprintf(name, sizeof name, "%.*s", RN_STR_ARG(t->name));
    assert_true(t->bytes <= sizeof must);
    load(golden, name, must, t->bytes);
    load(golden, name + strlen("gradient."), first, t->bytes);
    load(after, name + strlen("gradient."), last, t->bytes);
    for (uint64_t i = 0; i < t->elements; i++) {
        double is = ((double)first[i] - (double)last[i]) / rate;
        apart += (is - (double)must[i]) * (is - (double)must[i]);
        size += (double)must[i] * (double)must[i];
    }
    if (sqrt(apart / size) > 1e-5) fail_msg("%s is off by %g", name, sqrt(apart / size));
}

// One step of SGD at a large rate: what it changes is the gradient.
static void expect_gradients(const char *model_path, const char *golden_path, bool dora) {
    const double rate = 4096;
    rn_checkpoint *golden, *after;
    rn_trainer *trainer;
    packed p;
    float loss = 0, must = 0;
    rn_trainer_options options = small();
    rn_lora_options lora = golden_lora();
    lora.dora = dora;
    rn_model *model = open_model(model_path, NULL);
    assert_ok(rn_checkpoint_open(golden_path, &golden));
    load_batch(golden, &p);
    load(golden, "loss", &must, sizeof must);
    rn_batch batch = batch_of(&p);
    assert_ok(rn_trainer_finetune(model, &options, &lora, &trainer));
    assert_ok(rn_trainer_resume(trainer, golden_path));
    assert_ok(rn_trainer_step_packed(trainer, &batch, rate, &loss));
    assert_true(fabsf(loss - must) < 1e-5f * must);
    assert_ok(rn_trainer_save(trainer, test_own_path("after.safetensors")));
    assert_ok(rn_checkpoint_open(test_own_path("after.safetensors"), &after));
    size_t gradients = 0;
    for (size_t i = 0; i < rn_checkpoint_count(golden); i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(golden, i);
        if (strncmp(t->name.data, "gradient.", 9) != 0) continue;
        assert_gradient(golden, after, t, rate);
        gradients++;
    }
    assert_int_equal(gradients, 2 * (dora ? 3 : 2) * 4); // layers, factors, targets
    rn_checkpoint_close(after);
    rn_checkpoint_close(golden);
    rn_trainer_destroy(trainer);
    rn_model_close(model);
}

static void gradients_are_those_of_peft(void **state) {
    (void)state;
    expect_gradients(TEXT "llama3", GOLDEN, false);
}

// ---- DoRA ---------------------------------------------------------------------------------------

// Of a model whose projections have biases, which magnitudes leave alone.
static void gradients_of_dora_are_those_of_peft(void **state) {
    (void)state;
    expect_gradients(TEXT "qwen2", DORA, true);
}

static void first_magnitudes_are_the_norms_of_rows(void **state) {
    (void)state;
    rn_checkpoint *golden, *saved;
    rn_trainer *trainer;
    rn_trainer_options options = small();
    rn_lora_options lora = golden_lora();
    size_t compared = 0;
    lora.dora = true;
    rn_model *model = open_model(TEXT "qwen2", NULL);
    assert_ok(rn_trainer_finetune(model, &options, &lora, &trainer));
    assert_ok(rn_trainer_save(trainer, test_own_path("first.safetensors")));
    assert_ok(rn_checkpoint_open(DORA, &golden));
    assert_ok(rn_checkpoint_open(test_own_path("first.safetensors"), &saved));
    for (size_t i = 0; i < rn_checkpoint_count(golden); i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(golden, i);
        float must[128], is[128];
        char name[128];
        if (strncmp(t->name.data, "first.", 6) != 0) continue;
        snprintf(name, sizeof name, "%.*s", RN_STR_ARG(t->name));
        assert_true(t->bytes <= sizeof must);
        load(golden, name, must, t->bytes);
        load(saved, name + 6, is, t->bytes);
        for (uint64_t k = 0; k < t->elements; k++)
            assert_true(fabsf(is[k] - must[k]) <= 1e-6f * must[k]);
        compared++;
    }
    assert_int_equal(compared, 2 * 4);
    rn_checkpoint_close(saved);
    rn_checkpoint_close(golden);
    rn_trainer_destroy(trainer);
    rn_model_close(model);
}

// ---- documents ----------------------------------------------------------------------------------

// The loss of the second document does not depend on the first.
static void documents_do_not_see_each_other(void **state) {
    (void)state;
    rn_trainer_options options = small();
    rn_model *model = open_model(TEXT "qwen3", NULL);
    rn_trainer *trainer;
    float loss[2];
    packed p;
    make_batch(&p);
    for (int i = 0; i < ROWS; i++)
        if (i % TOKENS < 5) p.targets[i] = -100;
    assert_ok(rn_trainer_finetune(model, &options, &all_linears, &trainer));
    for (int i = 0; i < 2; i++) {
        for (int t = 0; t < ROWS; t++)
            if (t % TOKENS < 5) p.tokens[t] = (t + 50 * i) % 100;
        rn_batch batch = batch_of(&p);
        assert_ok(rn_trainer_evaluate_packed(trainer, &batch, &loss[i]));
    }
    assert_true(loss[0] == loss[1]);
    p.documents[7] = 8;
    assert_fails(RN_INVALID, rn_trainer_evaluate_packed(
                                 trainer, &(rn_batch){p.tokens, p.targets, p.documents}, &loss[0]));
    rn_trainer_destroy(trainer);
    rn_model_close(model);
}

// ---- learning, and files ------------------------------------------------------------------------

static float learn(rn_trainer *trainer, int steps) {
    packed p;
    float loss = 0, before = 0;
    make_batch(&p);
    rn_batch batch = batch_of(&p);
    assert_ok(rn_trainer_evaluate_packed(trainer, &batch, &before));
    for (int i = 0; i < steps; i++)
        assert_ok(rn_trainer_step_packed(trainer, &batch, 0.02, &loss));
    assert_ok(rn_trainer_evaluate_packed(trainer, &batch, &loss));
    assert_true(loss < before);
    return loss;
}

// With the adapter that was written, and no steps, the loss is what it was there; with the
// additions in matrices of f16, each rounded by up to 2^-11, nearly that.
static void expect_loss(const char *model_path, const char *adapter_path, float must) {
    rn_adapter adapter = {.path = adapter_path, .scale = 1};
    rn_model *model = open_model(model_path, adapter_path ? &adapter : NULL);
    rn_trainer_options options = small();
    rn_trainer *trainer;
    packed p;
    float loss = 0;
    make_batch(&p);
    rn_batch batch = batch_of(&p);
    assert_ok(rn_trainer_finetune(model, &options, &all_linears, &trainer));
    assert_ok(rn_trainer_evaluate_packed(trainer, &batch, &loss));
    if (fabsf(loss - must) > (adapter_path ? 2e-5f : 2e-4f) * must)
        fail_msg("%s with %s: %.7g, not %.7g", model_path, adapter_path ? adapter_path : "nothing",
                 (double)loss, (double)must);
    rn_trainer_destroy(trainer);
    rn_model_close(model);
}

// Hugging Face's files and GGUF differ in the names of weights and in the order of rows.
static void adapters_are_read_where_they_belong(void **state) {
    (void)state;
    static const char *const models[] = {TEXT "llama3", TEXT "llama3/model.gguf"};
    for (int i = 0; i < 2; i++) {
        rn_trainer_options options = small();
        rn_lora_options lora = golden_lora();
        rn_trainer *trainer;
        options.optimizer = "adamw";
        rn_model *model = open_model(models[i], NULL);
        assert_ok(rn_trainer_finetune(model, &options, &lora, &trainer));
        float loss = learn(trainer, 10);
        assert_ok(rn_trainer_export_adapter(trainer, "base", test_own_path("peft")));
        assert_ok(rn_trainer_export_adapter(trainer, NULL, test_own_path("lora.gguf")));
        rn_trainer_destroy(trainer);
        rn_model_close(model);
        expect_loss(models[0], test_own_path("peft"), loss);
        expect_loss(models[1], test_own_path("peft"), loss);
        expect_loss(models[1], test_own_path("lora.gguf"), loss);
    }
}

// Ranks and alphas of their own, other first values; then all of it in the matrices themselves.
static void patterns_are_kept_and_merged(void **state) {
    (void)state;
    static const char *const models[] = {TEXT "llama3", TEXT "llama3/model.gguf"};
    static const rn_lora_pattern patterns[] = {{"layers.1.*", 2, 0},
                                               {"down_proj", 6, 24},
                                               {"*.q_proj", 0, 9},
                                               {"layers.0.self_attn.q_proj", 3, 0}};
    for (int i = 0; i < 2; i++)
        for (int by_root = 0; by_root < 2; by_root++) {
            rn_trainer_options options = small();
            rn_lora_options lora = golden_lora();
            rn_adapter adapter = {.path = test_own_path("peft"), .scale = 1};
            rn_trainer *trainer;
            lora.by_root = by_root;
            lora.patterns = patterns;
            lora.pattern_count = 4;
            lora.init = "gaussian";
            options.optimizer = "adamw";
            rn_model *model = open_model(models[i], NULL);
            assert_ok(rn_trainer_finetune(model, &options, &lora, &trainer));
            float loss = learn(trainer, 10);
            assert_ok(rn_trainer_export_adapter(trainer, "base", test_own_path("peft")));
            assert_ok(rn_trainer_export_adapter(trainer, NULL, test_own_path("lora.gguf")));
            rn_trainer_destroy(trainer);
            rn_model_close(model);
            expect_loss(models[0], test_own_path("peft"), loss);
            expect_loss(models[1], test_own_path("peft"), loss);
            expect_loss(models[1], test_own_path("lora.gguf"), loss);
            const char *merged = test_own_path(i ? "merged.gguf" : "merged");
            model = open_model(models[i], &adapter);
            assert_ok(rn_model_merge(model, merged));
            rn_model_close(model);
            expect_loss(merged, NULL, loss);
        }
    rn_model *model = open_model(models[0], NULL);
    assert_fails(RN_INVALID, rn_model_merge(model, test_own_path("nothing")));
    rn_model_close(model);
}

// GPT-2's folders have their matrices as (in, out): magnitudes are of the rows of (out, in). Its
// GGUF files have those.
static void dora_of_transposed_matrices_is_refused_by_name(void **state) {
    (void)state;
    rn_trainer_options options = small();
    rn_lora_options lora = {.rank = 2, .dora = true};
    rn_program *program = NULL;
    options.optimizer = "adamw";
    rn_model *model = open_model(TEXT "gpt2", NULL);
    assert_fails(RN_UNSUPPORTED, rn_finetune_plan(model, &options, &lora, &program));
    assert_non_null(strstr(rn_last_error()->message, "c_attn"));
    assert_non_null(strstr(rn_last_error()->hint, "GGUF"));
    lora.dora = false;
    assert_ok(rn_finetune_plan(model, &options, &lora, &program));
    rn_program_destroy(program);
    rn_model_close(model);
    lora.dora = true;
    model = open_model(TEXT "gpt2/model.gguf", NULL);
    assert_ok(rn_finetune_plan(model, &options, &lora, &program));
    rn_program_destroy(program);
    rn_model_close(model);
}

// Over plain, GGUF's and quantised weights; the matrices with it are what was trained. llama.cpp's
// adapters have no magnitudes, and what generates wants it merged.
static void dora_is_written_read_and_merged(void **state) {
    (void)state;
    rn_convert_options to_nf4 = {.to = RN_DTYPE_NF4};
    rn_convert_result result;
    char nf4[512], peft[512], merged[512]; // the paths of tests are few
    snprintf(nf4, sizeof nf4, "%s", test_own_path("nf4"));
    snprintf(peft, sizeof peft, "%s", test_own_path("peft"));
    assert_ok(rn_convert(TEXT "llama3", nf4, &to_nf4, &result));
    const char *const models[] = {TEXT "llama3", TEXT "llama3/model.gguf", TEXT "qwen2", nf4};
    for (int i = 0; i < 4; i++) {
        rn_trainer_options options = small();
        rn_lora_options lora = golden_lora();
        rn_adapter adapter = {.path = peft, .scale = 1};
        rn_trainer *trainer;
        rn_recipe recipe;
        lora.dora = true;
        options.optimizer = "adamw";
        rn_model *model = open_model(models[i], NULL);
        assert_ok(rn_trainer_finetune(model, &options, &lora, &trainer));
        float loss = learn(trainer, 10);
        assert_ok(rn_trainer_export_adapter(trainer, "base", adapter.path));
        assert_fails(RN_UNSUPPORTED,
                     rn_trainer_export_adapter(trainer, NULL, test_own_path("lora.gguf")));
        rn_trainer_destroy(trainer);
        rn_model_close(model);
        expect_loss(models[i], adapter.path, loss);
        if (i == 1) expect_loss(models[0], adapter.path, loss);
        model = open_model(models[i], &adapter);
        assert_fails(RN_UNSUPPORTED, rn_model_make_recipe(model, NULL, &recipe));
        assert_non_null(strstr(rn_last_error()->hint, "ration convert"));
        assert_fails(RN_UNSUPPORTED, rn_trainer_finetune(model, &options, &lora, &trainer));
        snprintf(merged, sizeof merged, "%s%d%s", test_own_path("merged"), i,
                 i == 1 ? ".gguf" : "");
        if (i < 3) assert_ok(rn_model_merge(model, merged));
        rn_model_close(model);
        if (i < 3) expect_loss(merged, NULL, loss);
    }
}

static void a_resumed_training_ends_with_the_same_bytes(void **state) {
    (void)state;
    rn_trainer_options options = small();
    rn_model *model = open_model(TEXT "llama3/model.gguf", NULL);
    rn_trainer *trainer;
    options.optimizer = "adamw";
    options.max_norm = 1;
    float through = 0, resumed = 0;
    assert_ok(rn_trainer_finetune(model, &options, &all_linears, &trainer));
    (void)learn(trainer, 3);
    assert_ok(rn_trainer_save(trainer, test_own_path("half.safetensors")));
    through = learn(trainer, 3);
    rn_trainer_destroy(trainer);
    assert_ok(rn_trainer_finetune(model, &options, &all_linears, &trainer));
    assert_ok(rn_trainer_resume(trainer, test_own_path("half.safetensors")));
    resumed = learn(trainer, 3);
    assert_true(through == resumed);
    rn_trainer_destroy(trainer);
    rn_model_close(model);
}

// ---- budgets ------------------------------------------------------------------------------------

// The same losses from plenty down to the smallest budget that works, frozen weights streamed.
static void expect_one_loss(const rn_lora_options *lora) {
    rn_model *model = open_model(TEXT "llama3", NULL);
    rn_trainer_options options = small();
    rn_trainer *trainer;
    options.plan.exact = true;
    assert_ok(rn_trainer_finetune(model, &options, lora, &trainer));
    const rn_program_summary *s = rn_program_get_summary(rn_trainer_program(trainer));
    uint64_t roomy = s->planned_bytes;
    float must = learn(trainer, 2);
    rn_trainer_destroy(trainer);
    options.plan.budget_bytes = 1;
    assert_fails(RN_OVER_BUDGET, rn_trainer_finetune(model, &options, lora, &trainer));
    options.plan.budget_bytes = rn_last_refusal()->smallest_budget_bytes;
    assert_true(options.plan.budget_bytes < roomy);
    assert_ok(rn_trainer_finetune(model, &options, lora, &trainer));
    assert_true(learn(trainer, 2) == must);
    rn_trainer_destroy(trainer);
    rn_model_close(model);
}

static void budgets_change_nothing(void **state) {
    (void)state;
    expect_one_loss(&all_linears);
    expect_one_loss(&(rn_lora_options){.rank = 4, .dora = true});
}

// The document's FluxTrainingConfig: gradient_checkpointing and cpu_offload_optimizer are moves
// that a small budget takes, quantize_base_model a conversion, mixed_precision a dtype.
static void the_settings_of_a_training_are_moves_and_types(void **state) {
    (void)state;
    rn_model *model = open_model(TEXT "llama3", NULL);
    rn_trainer_options options = small();
    rn_program *program = NULL;
    rn_trainer *trainer;
    assert_ok(rn_device_open("sim:memory=64MiB", 1, &options.device));
    options.optimizer = "adamw";
    options.plan.budget_bytes = 1;
    assert_fails(RN_OVER_BUDGET, rn_finetune_plan(model, &options, &all_linears, &program));
    options.plan.budget_bytes = rn_last_refusal()->smallest_budget_bytes;
    assert_ok(rn_finetune_plan(model, &options, &all_linears, &program));
    const rn_plan_summary *plan = rn_plan_get_summary(rn_program_plan(program, 0));
    assert_true(plan->recomputed_blocks > 0 || plan->micro_batches == BATCH);
    assert_true(plan->host_state_bytes > 0);
    rn_program_destroy(program);
    rn_device_destroy(options.device);
    rn_model_close(model);
    rn_convert_options to_nf4 = {.to = RN_DTYPE_NF4_DQ};
    rn_convert_result result;
    assert_ok(rn_convert(TEXT "llama3", test_own_path("quantised"), &to_nf4, &result));
    assert_true(result.converted_count > 0);
    model = open_model(test_own_path("quantised"), NULL);
    options = small();
    options.activations = RN_DTYPE_BF16;
    assert_ok(rn_trainer_finetune(model, &options, &all_linears, &trainer));
    (void)learn(trainer, 4);
    rn_trainer_destroy(trainer);
    rn_model_close(model);
}

// Each move can be asked for without a budget, and forbidden; none changes the loss but by
// rounding.
static void moves_can_be_forced(void **state) {
    (void)state;
    rn_model *model = open_model(TEXT "llama3", NULL);
    rn_trainer_options options = small();
    rn_trainer *trainer;
    assert_ok(rn_device_open("sim:memory=64MiB", 1, &options.device));
    options.optimizer = "adamw";
    float losses[2];
    for (int forced = 0; forced < 2; forced++) {
        if (forced) {
            options.plan.micro_batches = BATCH;
            options.plan.recompute = options.plan.host_states = RN_MOVE_ALWAYS;
            options.plan.host_activations = RN_MOVE_ALWAYS;
        }
        assert_ok(rn_trainer_finetune(model, &options, &all_linears, &trainer));
        const rn_plan_summary *plan = rn_plan_get_summary(rn_trainer_plan(trainer));
        assert_int_equal(plan->micro_batches, forced ? BATCH : 1);
        assert_true((plan->recomputed_blocks > 0) == forced);
        assert_true((plan->host_state_bytes > 0) == forced);
        losses[forced] = learn(trainer, 4);
        rn_trainer_destroy(trainer);
    }
    assert_true(fabsf(losses[0] - losses[1]) <= 1e-5f * losses[0]);
    options.plan.micro_batches = BATCH + 1;
    assert_fails(RN_INVALID, rn_trainer_finetune(model, &options, &all_linears, &trainer));
    options.plan.micro_batches = 1; // exact sums are of single samples, whatever was asked for
    options.plan.exact = true;
    assert_ok(rn_trainer_finetune(model, &options, &all_linears, &trainer));
    assert_int_equal(rn_plan_get_summary(rn_trainer_plan(trainer))->micro_batches, BATCH);
    rn_trainer_destroy(trainer);
    // Forbidden, a budget that would need them is too small.
    options.plan = (rn_plan_options){.budget_bytes = 1};
    assert_fails(RN_OVER_BUDGET, rn_trainer_finetune(model, &options, &all_linears, &trainer));
    uint64_t least = rn_last_refusal()->smallest_budget_bytes;
    options.plan.micro_batches = 1;
    options.plan.recompute = options.plan.host_states = options.plan.host_activations =
        RN_MOVE_NEVER;
    assert_fails(RN_OVER_BUDGET, rn_trainer_finetune(model, &options, &all_linears, &trainer));
    assert_true(rn_last_refusal()->smallest_budget_bytes > least);
    rn_device_destroy(options.device);
    options = small();
    options.plan.host_states = RN_MOVE_ALWAYS;
    assert_fails(RN_INVALID, rn_trainer_finetune(model, &options, &all_linears, &trainer));
    rn_model_close(model);
}

static void misfits_are_named(void **state) {
    (void)state;
    static const char *const nobody[] = {"q_proj", "query"};
    rn_model *model = open_model(TEXT "llama3", NULL);
    rn_trainer_options options = small();
    rn_trainer *trainer;
    rn_lora_options lora = {.targets = nobody, .target_count = 2};
    assert_fails(RN_INVALID, rn_trainer_finetune(model, &options, &lora, &trainer));
    assert_non_null(strstr(rn_last_error()->message, "'query'"));
    lora =
        (rn_lora_options){.patterns = &(rn_lora_pattern){"layers.9.*", 4, 0}, .pattern_count = 1};
    assert_fails(RN_INVALID, rn_trainer_finetune(model, &options, &lora, &trainer));
    assert_non_null(strstr(rn_last_error()->message, "'layers.9.*'"));
    lora = (rn_lora_options){.init = "pissa_niter_4"};
    assert_fails(RN_UNSUPPORTED, rn_trainer_finetune(model, &options, &lora, &trainer));
    assert_non_null(strstr(rn_last_error()->message, "'pissa_niter_4'"));
    rn_model *other = open_model(TEXT "gpt2", NULL);
    assert_fails(RN_UNSUPPORTED,
                 rn_trainer_finetune(other, &options, &(rn_lora_options){.dora = true}, &trainer));
    assert_non_null(strstr(rn_last_error()->message, "the other way round"));
    rn_model_close(other);
    lora.init = "loftq";
    assert_fails(RN_UNSUPPORTED, rn_trainer_finetune(model, &options, &lora, &trainer));
    options.layers = 2;
    assert_fails(RN_INVALID, rn_trainer_finetune(model, &options, &all_linears, &trainer));
    rn_model_close(model);
    options = small();
    model = open_model(TEXT "lfm2", NULL);
    assert_fails(RN_UNSUPPORTED, rn_trainer_finetune(model, &options, &all_linears, &trainer));
    rn_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(gradients_are_those_of_peft, test_make_folder),
        cmocka_unit_test_setup(gradients_of_dora_are_those_of_peft, test_make_folder),
        cmocka_unit_test_setup(first_magnitudes_are_the_norms_of_rows, test_make_folder),
        cmocka_unit_test(documents_do_not_see_each_other),
        cmocka_unit_test_setup(adapters_are_read_where_they_belong, test_make_folder),
        cmocka_unit_test_setup(patterns_are_kept_and_merged, test_make_folder),
        cmocka_unit_test_setup(dora_is_written_read_and_merged, test_make_folder),
        cmocka_unit_test(dora_of_transposed_matrices_is_refused_by_name),
        cmocka_unit_test_setup(a_resumed_training_ends_with_the_same_bytes, test_make_folder),
        cmocka_unit_test(budgets_change_nothing),
        cmocka_unit_test_setup(the_settings_of_a_training_are_moves_and_types, test_make_folder),
        cmocka_unit_test(moves_can_be_forced),
        cmocka_unit_test(misfits_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

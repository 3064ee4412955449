// llama_golden_test.c — a 2-layer Llama with grouped heads against PyTorch. Sizes as in
// scripts/reference/llama_golden.py.
#include "golden.h"

#include <math.h>

#include "train/train_recipe.h"

enum { BATCH = 3, TOKENS = 20, ROWS = BATCH * TOKENS, PAGES = 3 };

static rn_llama_config config(void) {
    return (rn_llama_config){.layers = 2,
                             .dim = 48,
                             .heads = 6,
                             .kv_heads = 2,
                             .ffn = 96,
                             .vocab = 80,
                             .weight_dtype = RN_DTYPE_F32};
}

// ---- inference ----------------------------------------------------------------------------------

static rn_llama_config paged_config(void) {
    rn_llama_config c = config();
    c.kv_dtype = RN_DTYPE_F32;
    c.context = 24;
    c.page_tokens = 8;
    c.sequences = BATCH;
    c.rows = c.logit_rows = ROWS;
    return c;
}

// The rows go round the sequences, and the pages lie anywhere: nothing may depend on either.
static void infer(const golden_runner *runner) {
    static const int32_t pages[BATCH][PAGES] = {{7, 2, 5}, {0, 8, 3}, {6, 1, 4}};
    golden *g = golden_open("llama");
    const int32_t *all = golden_tensor(g, "tokens", ROWS * sizeof *all); // (BATCH, TOKENS)
    int32_t tokens[ROWS], sequence[ROWS], position[ROWS], wanted[ROWS];
    for (int t = 0; t < TOKENS; t++)
        for (int b = 0; b < BATCH; b++) {
            int row = t * BATCH + b;
            tokens[row] = all[b * TOKENS + t];
            sequence[row] = b;
            position[row] = t;
            wanted[b * TOKENS + t] = row;
        }
    const golden_input inputs[] = {{"tokens", tokens, sizeof tokens},
                                   {"sequence", sequence, sizeof sequence},
                                   {"position", position, sizeof position},
                                   {"rows", wanted, sizeof wanted},
                                   {"page_table", pages, sizeof pages}};
    rn_llama_config c = paged_config();
    rn_recipe recipe;
    assert_ok(rn_llama_recipe(&c, &recipe));
    golden_check_inference(g, &recipe, runner, ROWS, inputs, sizeof inputs / sizeof *inputs);
    rn_recipe_destroy(&recipe);
    golden_close(g);
}

static void paged_inference_gives_the_logits_of_pytorch(void **state) {
    (void)state;
    infer(&golden_eager);
}

static void a_plan_gives_the_logits_of_pytorch(void **state) {
    (void)state;
    infer(&golden_roomy);
}

// ---- training -----------------------------------------------------------------------------------

static rn_train_options train_options(golden *g) {
    golden_adamw adamw = golden_get_adamw(g);
    return (rn_train_options){.eps = adamw.eps, .weight_decay = adamw.weight_decay, .watch = true};
}

static rn_recipe train_recipe(const rn_train_options *options) {
    rn_llama_config c = config();
    rn_recipe recipe;
    c.tokens = TOKENS;
    assert_ok(rn_train_recipe(rn_llama_forward(&c), BATCH, options, &recipe));
    return recipe;
}

static void train(const golden_runner *runner) {
    golden *g = golden_open("llama");
    rn_train_options options = train_options(g);
    rn_recipe recipe = train_recipe(&options);
    golden_check_training(g, &recipe, runner);
    rn_recipe_destroy(&recipe);
    golden_close(g);
}

static void three_steps_train_as_pytorch_does(void **state) {
    (void)state;
    train(&golden_eager);
}

static void plans_train_as_pytorch_does(void **state) {
    (void)state;
    train(&golden_roomy);
    train(&golden_tight);
}

// The sequences have different numbers of targets that count: micro-batches must not weigh alike.
static void micro_batches_train_as_pytorch_does(void **state) {
    (void)state;
    train(&golden_cut);
}

// ---- what reaches the optimiser -----------------------------------------------------------------

static const golden_runner *const runner = &golden_eager;

// One step of the golden batch; the caller looks at it and ends it.
static void *step(golden *g, const rn_recipe *recipe) {
    rn_weight_source weights = golden_weights(g);
    void *run = NULL;
    int counted = 0;
    const int32_t *targets = golden_tensor(g, "targets", ROWS * sizeof *targets);
    for (int i = 0; i < ROWS; i++)
        counted += targets[i] != -100;
    assert_ok(runner->begin(runner, recipe, &weights, 0, &run));
    assert_ok(runner->set(run, "tokens", golden_tensor(g, "tokens", ROWS * sizeof(int32_t)),
                          ROWS * sizeof(int32_t)));
    assert_ok(runner->set(run, "targets", targets, ROWS * sizeof *targets));
    assert_ok(runner->set_scalar(run, "rate", golden_get_adamw(g).rate));
    assert_ok(runner->set_scalar(run, "step", 1));
    assert_ok(runner->set_scalar(run, "loss_scale", 1.0 / counted));
    assert_ok(runner->run(run));
    return run;
}

enum { MANY = 8192 }; // elements of any one weight, at most

// After one step m is a tenth of what reached the optimiser: returns its size against the raw
// gradient's, which it must be a multiple of.
static double share_that_reached(void *run, const rn_value_info *weight, double *squares) {
    static float m[MANY], gradient[MANY];
    char name[128];
    uint64_t count = rn_shape_elements(weight->shape, 1);
    double dot = 0, size = 0;
    assert_true(count <= MANY);
    snprintf(name, sizeof name, "%s.m", weight->name);
    assert_ok(runner->get(run, name, m, count * sizeof *m));
    snprintf(name, sizeof name, "%s.gradient", weight->name);
    assert_ok(runner->get(run, name, gradient, count * sizeof *gradient));
    for (uint64_t i = 0; i < count; i++) {
        dot += 10 * (double)m[i] * (double)gradient[i];
        size += (double)gradient[i] * (double)gradient[i];
    }
    for (uint64_t i = 0; i < count; i++)
        assert_true(fabs(10 * (double)m[i] - dot / size * (double)gradient[i]) <=
                    1e-6 * sqrt(size));
    *squares = size;
    return dot / size;
}

typedef struct shares {
    double share[64], norm[64], global_norm;
    int count;
} shares;

static void measure_shares(rn_clip clip, float max_norm, shares *out) {
    golden *g = golden_open("llama");
    rn_train_options options = train_options(g);
    options.clip = clip;
    options.max_norm = max_norm;
    rn_recipe recipe = train_recipe(&options);
    rn_graph *graph = NULL;
    assert_ok(recipe.build(recipe.self, NULL, &graph));
    void *run = step(g, &recipe);
    *out = (shares){.count = 0};
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        double squares = 0;
        if (info->role != RN_ROLE_WEIGHT) continue;
        out->share[out->count] = share_that_reached(run, info, &squares);
        out->norm[out->count++] = sqrt(squares);
        out->global_norm += squares;
    }
    out->global_norm = sqrt(out->global_norm);
    runner->end(run);
    rn_graph_destroy(graph);
    rn_recipe_destroy(&recipe);
    golden_close(g);
}

// PyTorch's clip_grad_norm_: min(1, max / (norm + 1e-6)).
static double expected_share(double norm, double max_norm) {
    return fmin(1, max_norm / (norm + 1e-6));
}

static void clipping_by_tensor_scales_each_gradient_by_its_own_norm(void **state) {
    (void)state;
    shares s;
    int clipped = 0;
    measure_shares(RN_CLIP_TENSOR, 0.2f, &s);
    for (int i = 0; i < s.count; i++) {
        double expected = expected_share(s.norm[i], (double)0.2f);
        assert_true(fabs(s.share[i] - expected) <= 1e-5);
        clipped += expected < 1;
    }
    assert_true(clipped > 0 && clipped < s.count);
}

static void clipping_by_the_global_norm_scales_all_alike(void **state) {
    (void)state;
    shares s;
    measure_shares(RN_CLIP_GLOBAL, 0.5f, &s);
    assert_true(s.global_norm > 0.5);
    for (int i = 0; i < s.count; i++)
        assert_true(fabs(s.share[i] - expected_share(s.global_norm, 0.5)) <= 1e-5);
}

static void frozen_weights_stay_and_the_others_move(void **state) {
    (void)state;
    static float after[MANY];
    golden *g = golden_open("llama");
    rn_train_options options = train_options(g);
    options.frozen = "model.*";
    rn_recipe recipe = train_recipe(&options);
    void *run = step(g, &recipe);
    const char *names[] = {"model.embed_tokens.weight", "lm_head.weight"};
    for (int i = 0; i < 2; i++) {
        size_t bytes = 80 * 48 * sizeof *after;
        assert_ok(runner->get(run, names[i], after, bytes));
        assert_int_equal(memcmp(after, golden_tensor(g, names[i], bytes), bytes) == 0, i == 0);
    }
    runner->end(run);
    rn_recipe_destroy(&recipe);
    golden_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paged_inference_gives_the_logits_of_pytorch),
        cmocka_unit_test(a_plan_gives_the_logits_of_pytorch),
        cmocka_unit_test(three_steps_train_as_pytorch_does),
        cmocka_unit_test(plans_train_as_pytorch_does),
        cmocka_unit_test(micro_batches_train_as_pytorch_does),
        cmocka_unit_test(clipping_by_tensor_scales_each_gradient_by_its_own_norm),
        cmocka_unit_test(clipping_by_the_global_norm_scales_all_alike),
        cmocka_unit_test(frozen_weights_stay_and_the_others_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// mlp_golden_test.c — the MLP against PyTorch. Sizes as in scripts/reference/mlp_golden.py.
#include "golden.h"

#include "train/train_recipe.h"

static rn_mlp_config config(void) {
    return (rn_mlp_config){.in = 24, .hidden = 40, .out = 10, .rows = 16};
}

static void infer(const golden_runner *runner) {
    golden *g = golden_open("mlp");
    rn_mlp_config c = config();
    rn_recipe recipe;
    assert_ok(rn_mlp_recipe(&c, &recipe));
    golden_check_inference(g, &recipe, runner, c.rows, NULL, 0);
    rn_recipe_destroy(&recipe);
    golden_close(g);
}

static void train(const golden_runner *runner) {
    golden *g = golden_open("mlp");
    golden_adamw adamw = golden_get_adamw(g);
    rn_mlp_config c = config();
    rn_train_options options = {
        .eps = adamw.eps, .weight_decay = adamw.weight_decay, .watch = true};
    rn_recipe recipe;
    assert_ok(rn_train_recipe(rn_mlp_forward(&c), 16, &options, &recipe));
    golden_check_training(g, &recipe, runner);
    rn_recipe_destroy(&recipe);
    golden_close(g);
}

static void inference_gives_the_logits_of_pytorch(void **state) {
    (void)state;
    infer(&golden_eager);
}

static void three_steps_train_as_pytorch_does(void **state) {
    (void)state;
    train(&golden_eager);
}

static void a_roomy_plan_gives_the_same(void **state) {
    (void)state;
    infer(&golden_roomy);
    train(&golden_roomy);
}

static void the_tightest_plan_gives_the_same(void **state) {
    (void)state;
    infer(&golden_tight);
    train(&golden_tight);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inference_gives_the_logits_of_pytorch),
        cmocka_unit_test(three_steps_train_as_pytorch_does),
        cmocka_unit_test(a_roomy_plan_gives_the_same),
        cmocka_unit_test(the_tightest_plan_gives_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// resnet18_golden_test.c — ResNet-18 on 64x64 images against PyTorch. Sizes as in
// scripts/reference/resnet18_golden.py.
#include "golden.h"

#include "train/train_recipe.h"

static rn_resnet_config config(void) {
    return (rn_resnet_config){.size = 64, .classes = 1000, .rows = 2};
}

static void infer(const golden_runner *runner) {
    golden *g = golden_open("resnet18");
    rn_resnet_config c = config();
    rn_recipe recipe;
    assert_ok(rn_resnet_recipe(&c, &recipe));
    golden_check_inference(g, &recipe, runner, c.rows, NULL, 0);
    rn_recipe_destroy(&recipe);
    golden_close(g);
}

static void train(const golden_runner *runner) {
    golden *g = golden_open("resnet18");
    golden_adamw adamw = golden_get_adamw(g);
    rn_resnet_config c = config();
    rn_train_options options = {
        .eps = adamw.eps, .weight_decay = adamw.weight_decay, .watch = true};
    rn_recipe recipe;
    assert_ok(rn_train_recipe(rn_resnet_forward(&c), 2, &options, &recipe));
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

static void the_tightest_plan_gives_the_same(void **state) {
    (void)state;
    infer(&golden_tight);
    train(&golden_tight);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inference_gives_the_logits_of_pytorch),
        cmocka_unit_test(three_steps_train_as_pytorch_does),
        cmocka_unit_test(the_tightest_plan_gives_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

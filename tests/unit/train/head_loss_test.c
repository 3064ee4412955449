// head_loss_test.c — a training step whose logits would be many does without them, and says the
// same loss and makes the same weights as one that holds them.
#include "support.h"

#include "evaluate.h"
#include "train/train_recipe.h"

#include <math.h>

enum { TOKENS = 512, VOCAB = 8208, DIM = 4 };

static rn_graph *build(bool watch, bool evaluates) {
    rn_llama_config c = {.layers = 1,
                         .dim = DIM,
                         .heads = 1,
                         .kv_heads = 1,
                         .ffn = 8,
                         .vocab = VOCAB,
                         .tokens = TOKENS,
                         .weight_dtype = RN_DTYPE_F32};
    rn_train_options options = {.optimizer = "sgd", .watch = watch};
    rn_recipe recipe;
    rn_graph *graph = NULL;
    if (evaluates)
        assert_ok(rn_evaluate_recipe(rn_llama_forward(&c), 1, &(rn_train_share){0}, &recipe));
    else
        assert_ok(rn_train_recipe(rn_llama_forward(&c), 1, &options, &recipe));
    assert_ok(recipe.build(recipe.self, NULL, &graph));
    rn_recipe_destroy(&recipe);
    return graph;
}

static bool has_logits(const rn_graph *graph) {
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++)
        if (rn_shape_equal(rn_graph_value(graph, v)->shape, RN_SHAPE(TOKENS, VOCAB))) return true;
    return false;
}

static void fill(test_run *run, rn_value v) {
    const rn_value_info *info = rn_graph_value(run->graph, v);
    uint64_t count = rn_tensor_elements(&run->values[v]);
    void *data = test_run_data(run, v);
    for (uint64_t i = 0; i < count; i++) {
        if (info->dtype == RN_DTYPE_I32)
            ((int32_t *)data)[i] = i % 7 == 2 ? -100 : (int32_t)(i * 31 % VOCAB);
        else
            ((float *)data)[i] = (float)((int)(i * 2654435761u % 2039) - 1019) / 2048;
    }
}

static void run_step(rn_graph *graph, test_run *run) {
    test_run_open(run, graph, 0);
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->role == RN_ROLE_WEIGHT || info->role == RN_ROLE_INPUT) fill(run, v);
    }
    int32_t *tokens = test_run_data(run, rn_graph_find(graph, RN_ROLE_INPUT, "tokens"));
    for (uint64_t i = 0; i < TOKENS; i++)
        tokens[i] = (int32_t)(i * 13 % VOCAB);
    for (int i = 0; i < RN_MAX_SCALARS; i++)
        run->scalars[i].f64 = 1.0 / 512; // loss_scale and rate
    test_run_all(run);
}

static float loss_of(const test_run *run) {
    rn_value loss = rn_graph_find(run->graph, RN_ROLE_OUTPUT, "loss");
    return *(const float *)test_run_data(run, loss);
}

static void step_without_logits_is_that_with_them(void **state) {
    (void)state;
    test_run a, b;
    rn_graph *with = build(true, false), *without = build(false, false);
    assert_true(has_logits(with));
    assert_false(has_logits(without));
    run_step(with, &a);
    run_step(without, &b);
    assert_true(fabsf(loss_of(&a) - loss_of(&b)) <= 1e-6f * fabsf(loss_of(&a)));
    for (rn_value v = 1; v <= rn_graph_value_count(without); v++) {
        const rn_value_info *info = rn_graph_value(without, v);
        if (info->role != RN_ROLE_WEIGHT) continue;
        const float *x = test_run_data(&b, v);
        const float *y = test_run_data(&a, rn_graph_find(with, RN_ROLE_WEIGHT, info->name));
        for (uint64_t i = 0; i < rn_tensor_elements(&b.values[v]); i++)
            assert_true(fabsf(x[i] - y[i]) <= 1e-6f);
    }
    test_run_close(&a);
    test_run_close(&b);
    rn_graph_destroy(with);
    rn_graph_destroy(without);
}

static void evaluation_has_no_logits_either(void **state) {
    (void)state;
    rn_graph *graph = build(false, true);
    assert_false(has_logits(graph));
    rn_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_without_logits_is_that_with_them),
        cmocka_unit_test(evaluation_has_no_logits_either),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Builtin models: every name builds a sound graph, wrong names are refused, weights have the shapes
// of torchvision and Hugging Face, training reaches every weight.
#include "support.h"

#include "base/fault.h"
#include "graph/validate.h"
#include "train/train_recipe.h"

static rn_graph *build(const char *name, uint32_t micro_batches) {
    rn_recipe recipe;
    rn_graph *graph = NULL;
    assert_ok(rn_builtin_recipe(name, &recipe));
    assert_string_equal(recipe.name, name);
    assert_ok(recipe.build(recipe.self, &(rn_recipe_options){micro_batches}, &graph));
    assert_non_null(graph);
    rn_recipe_destroy(&recipe);
    return graph;
}

static void assert_shape(const rn_graph *graph, rn_role role, const char *name, rn_dtype dtype,
                         rn_shape shape) {
    rn_value value = rn_graph_find(graph, role, name);
    if (value == RN_NO_VALUE) fail_msg("no %s '%s'", rn_role_name(role), name);
    const rn_value_info *info = rn_graph_value(graph, value);
    if (!rn_shape_equal(info->shape, shape))
        fail_msg("%s is %s, not %s", name, rn_shape_format(info->shape).text,
                 rn_shape_format(shape).text);
    assert_int_equal(info->dtype, dtype);
}

static void assert_weight(const rn_graph *graph, const char *name, rn_shape shape) {
    assert_shape(graph, RN_ROLE_WEIGHT, name, RN_DTYPE_F32, shape);
}

static uint64_t count_weights(const rn_graph *graph, uint64_t *out_elements) {
    uint64_t count = 0;
    *out_elements = 0;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->role != RN_ROLE_WEIGHT) continue;
        *out_elements += rn_shape_elements(info->shape, 1);
        count++;
    }
    return count;
}

// ---- names --------------------------------------------------------------------------------------

static const char *const names[] = {
    "mlp",        "simple",          "resnet18",       "llama:2x64",       "llama:2x64:f16",
    "mlp:train",  "simple:train",    "resnet18:train", "llama:2x64:train", "llama:2x256:q4_0",
    "llama:1x96", "llama:2x256:q6_k"};

static void every_builtin_builds_a_sound_graph(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        rn_graph *graph = build(names[i], 0);
        assert_ok(rn_graph_validate(graph));
        rn_graph_destroy(graph);
    }
}

static void unknown_names_are_refused_with_the_list(void **state) {
    (void)state;
    static const char *const wrong[] = {"",      "resnet50", "mlp:f16",   "mlp:train:train",
                                        "llama", "train",    ":train",    "llama2:2x64",
                                        "mlp ",  "MLP",      "resnet18x", "simple:"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        rn_recipe recipe;
        assert_fails(RN_NOT_FOUND, rn_builtin_recipe(wrong[i], &recipe));
        assert_null(recipe.build);
        const char *hint = rn_last_error()->hint;
        assert_true(strstr(hint, "mlp") && strstr(hint, "simple") && strstr(hint, "resnet18") &&
                    strstr(hint, "llama:LAYERSxDIM") && strstr(hint, ":train"));
    }
}

static void llamas_of_impossible_sizes_are_refused(void **state) {
    (void)state;
    static const char *const wrong[] = {"llama:",
                                        "llama:2",
                                        "llama:2x",
                                        "llama:x64",
                                        "llama:0x64",
                                        "llama:2x0",
                                        "llama:2x64x",
                                        "llama:2x63",
                                        "llama:2x64:",
                                        "llama:2x64:f17",
                                        "llama:-2x64",
                                        "llama:2 x64",
                                        "llama:1001x64",
                                        "llama:2x65537",
                                        "llama:2x1100",
                                        "llama:2x64:f16x",
                                        "llama:99999999999999999999x64"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        rn_recipe recipe;
        if (rn_builtin_recipe(wrong[i], &recipe) != RN_INVALID) fail_msg("%s", wrong[i]);
        assert_non_null(strstr(rn_last_error()->message, "llama"));
    }
}

static void rows_that_are_not_whole_blocks_are_refused_by_the_graph(void **state) {
    (void)state;
    rn_recipe recipe;
    rn_graph *graph = NULL;
    assert_ok(rn_builtin_recipe("llama:1x192:q4_k", &recipe)); // blocks of 256
    assert_fails(RN_INVALID, recipe.build(recipe.self, NULL, &graph));
    assert_null(graph);
    assert_non_null(strstr(rn_last_error()->message, "model.embed_tokens.weight"));
    rn_recipe_destroy(&recipe);
}

static void only_f32_is_trained(void **state) {
    (void)state;
    rn_recipe recipe;
    assert_fails(RN_UNSUPPORTED, rn_builtin_recipe("llama:2x64:f16:train", &recipe));
}

static void a_destroyed_recipe_is_empty(void **state) {
    (void)state;
    rn_recipe recipe;
    assert_ok(rn_builtin_recipe("mlp", &recipe));
    rn_recipe_destroy(&recipe);
    assert_null(recipe.self);
    rn_recipe_destroy(&recipe);
}

// ---- shapes -------------------------------------------------------------------------------------

static void resnet18_has_the_weights_of_torchvision(void **state) {
    (void)state;
    rn_graph *graph = build("resnet18", 0);
    uint64_t elements = 0, statistics = 2 * (5 * 64 + 5 * 128 + 5 * 256 + 5 * 512);
    assert_weight(graph, "conv1.weight", RN_SHAPE(64, 3, 7, 7));
    assert_weight(graph, "bn1.running_var", RN_SHAPE(64));
    assert_weight(graph, "layer1.1.conv2.weight", RN_SHAPE(64, 64, 3, 3));
    assert_weight(graph, "layer2.0.conv1.weight", RN_SHAPE(128, 64, 3, 3));
    assert_weight(graph, "layer3.0.downsample.0.weight", RN_SHAPE(256, 128, 1, 1));
    assert_weight(graph, "layer4.0.downsample.1.running_mean", RN_SHAPE(512));
    assert_weight(graph, "layer4.1.bn2.bias", RN_SHAPE(512));
    assert_weight(graph, "fc.weight", RN_SHAPE(1000, 512));
    assert_int_equal(rn_graph_find(graph, RN_ROLE_WEIGHT, "layer1.0.downsample.0.weight"),
                     RN_NO_VALUE);
    // torchvision: 62 parameters with 11,689,512 elements, 20 batchnorms.
    assert_int_equal(count_weights(graph, &elements), 62 + 40);
    assert_int_equal(elements, 11689512 + statistics);
    assert_shape(graph, RN_ROLE_INPUT, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 224, 224, 3));
    assert_shape(graph, RN_ROLE_OUTPUT, "logits", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 1000));
    assert_int_equal(rn_graph_block_count(graph), 1 + 1 + 8 + 1);
    rn_graph_destroy(graph);
}

static void llama_has_the_weights_of_hugging_face(void **state) {
    (void)state;
    rn_graph *graph = build("llama:2x4096", 0);
    uint64_t elements = 0;
    assert_weight(graph, "model.embed_tokens.weight", RN_SHAPE(32000, 4096));
    assert_weight(graph, "model.layers.1.input_layernorm.weight", RN_SHAPE(4096));
    assert_weight(graph, "model.layers.0.self_attn.q_proj.weight", RN_SHAPE(4096, 4096));
    assert_weight(graph, "model.layers.0.self_attn.k_proj.weight", RN_SHAPE(1024, 4096));
    assert_weight(graph, "model.layers.1.self_attn.v_proj.weight", RN_SHAPE(1024, 4096));
    assert_weight(graph, "model.layers.1.self_attn.o_proj.weight", RN_SHAPE(4096, 4096));
    assert_weight(graph, "model.layers.1.mlp.gate_proj.weight", RN_SHAPE(11008, 4096));
    assert_weight(graph, "model.layers.1.mlp.down_proj.weight", RN_SHAPE(4096, 11008));
    assert_weight(graph, "model.norm.weight", RN_SHAPE(4096));
    assert_weight(graph, "lm_head.weight", RN_SHAPE(32000, 4096));
    assert_int_equal(count_weights(graph, &elements), 2 * 9 + 3);
    assert_shape(graph, RN_ROLE_STATE, "layers.1.kv", RN_DTYPE_F32, RN_SHAPE(32, 2, 8, 64, 128));
    assert_shape(graph, RN_ROLE_INPUT, "tokens", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    assert_shape(graph, RN_ROLE_INPUT, "page_table", RN_DTYPE_I32, RN_SHAPE(1, 32));
    assert_shape(graph, RN_ROLE_OUTPUT, "logits", RN_DTYPE_F32, RN_SHAPE(1, 32000));
    assert_string_equal(rn_graph_block_name(graph, 1), "embedding");
    assert_string_equal(rn_graph_block_name(graph, 2), "layer 0");
    assert_string_equal(rn_graph_block_name(graph, 4), "head");
    rn_graph_destroy(graph);
}

static void a_narrow_llama_has_few_heads_and_words(void **state) {
    (void)state;
    rn_graph *graph = build("llama:1x128", 0);
    assert_weight(graph, "lm_head.weight", RN_SHAPE(512, 128));
    assert_weight(graph, "model.layers.0.mlp.up_proj.weight", RN_SHAPE(512, 128));
    assert_shape(graph, RN_ROLE_STATE, "layers.0.kv", RN_DTYPE_F32, RN_SHAPE(32, 2, 2, 64, 64));
    rn_graph_destroy(graph);
}

static void the_dtype_is_of_matrices_and_pages(void **state) {
    (void)state;
    rn_graph *graph = build("llama:1x256:q4_0", 0);
    assert_shape(graph, RN_ROLE_WEIGHT, "model.layers.0.mlp.up_proj.weight", RN_DTYPE_Q4_0,
                 RN_SHAPE(768, 256));
    assert_shape(graph, RN_ROLE_WEIGHT, "model.embed_tokens.weight", RN_DTYPE_Q4_0,
                 RN_SHAPE(32000, 256));
    assert_weight(graph, "model.norm.weight", RN_SHAPE(256));
    assert_shape(graph, RN_ROLE_STATE, "layers.0.kv", RN_DTYPE_F16, RN_SHAPE(32, 2, 4, 64, 64));
    rn_graph_destroy(graph);
}

static void a_large_graph_holds_few_bytes(void **state) {
    (void)state;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    rn_graph *graph = build("llama:32x4096", 0);
    uint64_t held = rn_ledger_total(RN_DEVICE_HOST).now_bytes - before;
    assert_true(held > 0 && held < 1 << 20); // of a model with 26 GiB of weights
    rn_graph_destroy(graph);
    assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
}

// ---- training -----------------------------------------------------------------------------------

static const char *const trained[] = {"mlp:train", "simple:train", "resnet18:train",
                                      "llama:2x64:train"};

static bool has_update(const rn_graph *graph, rn_value weight) {
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        if (node->op == RN_OP_ADAMW && node->inputs[0] == weight)
            return node->phase == RN_PHASE_UPDATE &&
                   node->block == rn_graph_value(graph, weight)->block;
    }
    return false;
}

static void every_weight_is_updated_in_its_own_block(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof trained / sizeof *trained; i++) {
        rn_graph *graph = build(trained[i], 0);
        assert_false(rn_graph_has_rows(graph));
        assert_shape(graph, RN_ROLE_OUTPUT, "loss", RN_DTYPE_F32, RN_SCALAR);
        for (rn_value v = 1; v <= rn_graph_value_count(graph); v++)
            if (rn_graph_value(graph, v)->role == RN_ROLE_WEIGHT && !has_update(graph, v))
                fail_msg("%s: %s is not updated", trained[i], rn_graph_value(graph, v)->name);
        rn_graph_destroy(graph);
    }
}

static void statistics_and_moments_are_states(void **state) {
    (void)state;
    rn_graph *graph = build("resnet18:train", 0);
    uint64_t elements = 0;
    assert_int_equal(count_weights(graph, &elements), 62);
    assert_int_equal(elements, 11689512);
    assert_shape(graph, RN_ROLE_STATE, "bn1.running_mean", RN_DTYPE_F32, RN_SHAPE(64));
    assert_shape(graph, RN_ROLE_STATE, "fc.bias.m", RN_DTYPE_F32, RN_SHAPE(1000));
    assert_shape(graph, RN_ROLE_STATE, "conv1.weight.v", RN_DTYPE_F32, RN_SHAPE(64, 3, 7, 7));
    assert_int_equal(rn_graph_find(graph, RN_ROLE_STATE, "fc.bias.gradient"), RN_NO_VALUE);
    rn_graph_destroy(graph);
}

static void micro_batches_divide_the_batch_and_add_up_gradients(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof trained / sizeof *trained; i++) {
        rn_graph *whole = build(trained[i], 1), *half = build(trained[i], 2);
        assert_ok(rn_graph_validate(half));
        rn_value a = rn_graph_find(whole, RN_ROLE_INPUT, "targets");
        rn_value b = rn_graph_find(half, RN_ROLE_INPUT, "targets");
        assert_int_equal(rn_graph_value(whole, a)->shape.dims[0],
                         2 * rn_graph_value(half, b)->shape.dims[0]);
        assert_shape(half, RN_ROLE_STATE, "loss.sum", RN_DTYPE_F32, RN_SCALAR);
        rn_graph_destroy(whole);
        rn_graph_destroy(half);
    }
}

static void sums_of_gradients_belong_to_the_backward_pass(void **state) {
    (void)state;
    rn_graph *graph = build("mlp:train", 4);
    uint32_t sums = 0;
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        if (node->op != RN_OP_ACCUMULATE) continue;
        assert_int_equal(node->phase, RN_PHASE_BACKWARD);
        sums++;
    }
    assert_int_equal(sums, 6 + 1); // weights and biases, and the loss
    rn_value sum = rn_graph_find(graph, RN_ROLE_STATE, "head.weight.gradient");
    assert_int_not_equal(sum, RN_NO_VALUE);
    assert_int_equal(rn_graph_value(graph, sum)->purpose, RN_PURPOSE_GRADIENTS);
    rn_graph_destroy(graph);
}

static void a_batch_is_cut_evenly_or_not_at_all(void **state) {
    (void)state;
    rn_recipe recipe;
    rn_graph *graph = NULL;
    assert_ok(rn_builtin_recipe("llama:1x64:train", &recipe));
    assert_int_equal(recipe.max_micro_batches, 4);
    assert_false(recipe.batch_statistics);
    assert_fails(RN_INVALID, recipe.build(recipe.self, &(rn_recipe_options){3}, &graph));
    assert_fails(RN_INVALID, recipe.build(recipe.self, &(rn_recipe_options){8}, &graph));
    rn_recipe_destroy(&recipe);
    assert_ok(rn_builtin_recipe("mlp", &recipe));
    assert_int_equal(recipe.max_micro_batches, 0);
    assert_fails(RN_INVALID, recipe.build(recipe.self, &(rn_recipe_options){2}, &graph));
    rn_recipe_destroy(&recipe);
}

static void recipes_say_what_may_be_chosen(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bool rows, statistics;
    } expected[] = {{"mlp", true, false},
                    {"mlp:train", false, false},
                    {"simple", true, false},
                    {"simple:train", false, true},
                    {"resnet18:train", false, true},
                    {"llama:1x64", true, false}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        rn_recipe recipe;
        assert_ok(rn_builtin_recipe(expected[i].name, &recipe));
        assert_int_equal(recipe.rows > 0, expected[i].rows);
        assert_int_equal(recipe.batch_statistics, expected[i].statistics);
        rn_recipe_destroy(&recipe);
    }
}

// ---- configurations -----------------------------------------------------------------------------

static const rn_mlp_config small = {.in = 4, .hidden = 8, .out = 3};

static void frozen_weights_get_no_gradient_and_no_moments(void **state) {
    (void)state;
    rn_train_options options = {.frozen = "layers.*"};
    rn_recipe recipe;
    rn_graph *graph = NULL;
    assert_ok(rn_train_recipe(rn_mlp_forward(&small), 2, &options, &recipe));
    assert_ok(recipe.build(recipe.self, NULL, &graph));
    assert_int_equal(rn_graph_find(graph, RN_ROLE_STATE, "layers.0.weight.m"), RN_NO_VALUE);
    assert_int_not_equal(rn_graph_find(graph, RN_ROLE_STATE, "head.bias.m"), RN_NO_VALUE);
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        if (node->phase == RN_PHASE_BACKWARD)
            assert_string_equal(rn_graph_block_name(graph, node->block), "head");
    }
    rn_graph_destroy(graph);
    rn_recipe_destroy(&recipe);
}

static void freezing_everything_is_refused(void **state) {
    (void)state;
    rn_train_options options = {.frozen = "*"};
    rn_recipe recipe;
    rn_graph *graph = NULL;
    assert_ok(rn_train_recipe(rn_mlp_forward(&small), 2, &options, &recipe));
    assert_fails(RN_INVALID, recipe.build(recipe.self, NULL, &graph));
    assert_null(graph);
    rn_recipe_destroy(&recipe);
}

static void every_way_of_clipping_builds_with_micro_batches(void **state) {
    (void)state;
    for (int clip = RN_CLIP_NONE; clip <= RN_CLIP_GLOBAL; clip++)
        for (uint32_t pieces = 1; pieces <= 2; pieces++) {
            rn_train_options options = {.clip = (rn_clip)clip, .max_norm = 1, .watch = true};
            rn_recipe recipe;
            rn_graph *graph = NULL;
            assert_ok(rn_train_recipe(rn_mlp_forward(&small), 2, &options, &recipe));
            assert_ok(recipe.build(recipe.self, &(rn_recipe_options){pieces}, &graph));
            assert_ok(rn_graph_validate(graph));
            rn_graph_destroy(graph);
            rn_recipe_destroy(&recipe);
        }
}

static rn_status try_building(rn_graph **out) {
    rn_recipe recipe;
    rn_train_options options = {.clip = RN_CLIP_GLOBAL, .max_norm = 1};
    *out = NULL;
    RN_TRY(rn_train_recipe(rn_mlp_forward(&small), 2, &options, &recipe));
    rn_status s = recipe.build(recipe.self, &(rn_recipe_options){2}, out);
    rn_recipe_destroy(&recipe);
    return s;
}

static void a_failing_allocation_leaves_nothing_behind(void **state) {
    (void)state;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    bool fired = true;
    for (uint64_t n = 1; fired; n++) {
        rn_graph *graph = NULL;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = try_building(&graph);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        assert_int_equal(graph == NULL, fired);
        rn_graph_destroy(graph);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_builtin_builds_a_sound_graph),
        cmocka_unit_test(unknown_names_are_refused_with_the_list),
        cmocka_unit_test(llamas_of_impossible_sizes_are_refused),
        cmocka_unit_test(rows_that_are_not_whole_blocks_are_refused_by_the_graph),
        cmocka_unit_test(only_f32_is_trained),
        cmocka_unit_test(a_destroyed_recipe_is_empty),
        cmocka_unit_test(resnet18_has_the_weights_of_torchvision),
        cmocka_unit_test(llama_has_the_weights_of_hugging_face),
        cmocka_unit_test(a_narrow_llama_has_few_heads_and_words),
        cmocka_unit_test(the_dtype_is_of_matrices_and_pages),
        cmocka_unit_test(a_large_graph_holds_few_bytes),
        cmocka_unit_test(every_weight_is_updated_in_its_own_block),
        cmocka_unit_test(statistics_and_moments_are_states),
        cmocka_unit_test(micro_batches_divide_the_batch_and_add_up_gradients),
        cmocka_unit_test(sums_of_gradients_belong_to_the_backward_pass),
        cmocka_unit_test(a_batch_is_cut_evenly_or_not_at_all),
        cmocka_unit_test(recipes_say_what_may_be_chosen),
        cmocka_unit_test(frozen_weights_get_no_gradient_and_no_moments),
        cmocka_unit_test(freezing_everything_is_refused),
        cmocka_unit_test(every_way_of_clipping_builds_with_micro_batches),
        cmocka_unit_test(a_failing_allocation_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

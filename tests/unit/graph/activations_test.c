// Activations in 16 bits: what is held so, that its readers get just the rounded numbers, that
// gradients stay near, and that less is kept.
#include "support.h"

#include "evaluate.h"
#include "graph/activations.h"
#include "graph/op.h"
#include "graph/validate.h"
#include "train/train_recipe.h"
#include "op_run.h"

#include <ration/memory.h>
#include <ration/device.h>
#include <ration/plan.h>

enum { DIM = 8, HIDDEN = 12, ROWS = 6 };

// Two layers and a loss: h0 = relu(x w0), h1 = silu(h0 w1) as (3, 2, 8) and back, mse(h1, target).
typedef struct net {
    rn_graph *g;
    rn_value w[2], gradients[2], loss;
} net;

static net build(bool train, bool by_hand, rn_dtype dtype) {
    net n = {.g = make_graph()};
    rn_value x = rn_graph_input(n.g, "x", RN_DTYPE_F32, RN_SHAPE(ROWS, DIM));
    rn_value target = rn_graph_input(n.g, "target", RN_DTYPE_F32, RN_SHAPE(ROWS, DIM));
    rn_graph_block(n.g, "one");
    n.w[0] = rn_graph_weight(n.g, "w0", RN_DTYPE_F32, RN_SHAPE(HIDDEN, DIM));
    rn_value h = rn_op_relu(n.g, rn_op_matmul(n.g, x, n.w[0], RN_NO_VALUE));
    if (by_hand) h = rn_op_cast(n.g, h, dtype);
    rn_graph_block(n.g, "two");
    if (by_hand) h = rn_op_cast(n.g, h, RN_DTYPE_F32);
    n.w[1] = rn_graph_weight(n.g, "w1", RN_DTYPE_F32, RN_SHAPE(DIM, HIDDEN));
    h = rn_op_reshape(n.g, rn_op_matmul(n.g, h, n.w[1], RN_NO_VALUE), RN_SHAPE(3, 2, DIM));
    h = rn_op_reshape(n.g, rn_op_silu(n.g, h), RN_SHAPE(ROWS, DIM));
    rn_graph_block(n.g, "head");
    n.loss = rn_graph_output(n.g, rn_op_mse(n.g, h, target), "loss");
    if (train) {
        assert_ok(rn_graph_gradient(n.g, n.loss, n.w, 2, n.gradients));
        rn_graph_output(n.g, n.gradients[0], "g0");
        rn_graph_output(n.g, n.gradients[1], "g1");
    }
    assert_ok(rn_graph_finish(n.g));
    return n;
}

static rn_graph *hold(const rn_graph *g, rn_dtype dtype) {
    rn_graph *out = NULL;
    assert_ok(rn_graph_hold_activations(g, dtype, false, &out));
    assert_ok(rn_graph_validate(out));
    return out;
}

static uint32_t count_casts(const rn_graph *g, rn_dtype to) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < rn_graph_node_count(g); i++) {
        const rn_node *n = rn_graph_node(g, i);
        count += n->op == RN_OP_CAST && ((const rn_cast_attrs *)n->attrs)->dtype == to;
    }
    return count;
}

// The outputs `names` of a run with numbers that depend on names alone, one after the other.
static size_t compute(const rn_graph *g, const char *const *names, float *out) {
    test_run run;
    size_t count = 0;
    test_run_open(&run, g, 1);
    for (rn_value v = 1; v <= rn_graph_value_count(g); v++) {
        const rn_value_info *info = rn_graph_value(g, v);
        if (info->role != RN_ROLE_INPUT && info->role != RN_ROLE_WEIGHT) continue;
        fill(test_run_data(&run, v), rn_tensor_elements(&run.values[v]), (uint32_t)info->name[0]);
    }
    test_run_all(&run);
    for (; *names; names++) {
        rn_value v = rn_graph_find(g, RN_ROLE_OUTPUT, *names);
        assert_true(v != RN_NO_VALUE);
        uint64_t elements = rn_tensor_elements(&run.values[v]);
        memcpy(out + count, test_run_data(&run, v), elements * sizeof(float));
        count += elements;
    }
    test_run_close(&run);
    return count;
}

static const char *const loss_only[] = {"loss", NULL};
static const char *const all_outputs[] = {"loss", "g0", "g1", NULL};

static void f32_is_the_same_graph(void **state) {
    (void)state;
    net n = build(true, false, RN_DTYPE_F32);
    rn_graph *same = hold(n.g, RN_DTYPE_F32);
    assert_int_equal(rn_graph_node_count(n.g), rn_graph_node_count(same));
    for (uint32_t i = 0; i < rn_graph_node_count(same); i++)
        assert_string_equal(rn_graph_node(n.g, i)->name, rn_graph_node(same, i)->name);
    rn_graph_destroy(n.g);
    rn_graph_destroy(same);
}

// Without a backward pass: relu's result goes to another block, all else stays within its own, and
// what the loss reads is f32.
static void readers_get_the_rounded_numbers(void **state) {
    (void)state;
    static const rn_dtype dtypes[] = {RN_DTYPE_BF16, RN_DTYPE_F16};
    for (int i = 0; i < 2; i++) {
        float is = 0, want = 0, exact = 0;
        net n = build(false, false, RN_DTYPE_F32), by_hand = build(false, true, dtypes[i]);
        rn_graph *held = hold(n.g, dtypes[i]);
        assert_int_equal(count_casts(held, dtypes[i]), 1);
        assert_int_equal(rn_graph_node_count(held), rn_graph_node_count(by_hand.g));
        compute(held, loss_only, &is);
        compute(by_hand.g, loss_only, &want);
        compute(n.g, loss_only, &exact);
        assert_true(is == want && is != exact);
        rn_graph_destroy(n.g);
        rn_graph_destroy(by_hand.g);
        rn_graph_destroy(held);
    }
}

static void gradients_stay_near(void **state) {
    (void)state;
    float exact[256], is[256];
    net n = build(true, false, RN_DTYPE_F32);
    rn_graph *held = hold(n.g, RN_DTYPE_BF16);
    size_t count = compute(n.g, all_outputs, exact);
    assert_int_equal(compute(held, all_outputs, is), count);
    double error = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        error += (is[i] - exact[i]) * (double)(is[i] - exact[i]);
        size += exact[i] * (double)exact[i];
    }
    assert_true(error > 0 && sqrt(error / size) < 0.01);
    rn_graph_destroy(n.g);
    rn_graph_destroy(held);
}

// Every f32 value of the forward pass that a backward node reads is a widened copy, a statistic, or
// what an exact op reads or makes.
static void the_backward_pass_reads_16_bits(void **state) {
    (void)state;
    rn_llama_config config = {.layers = 2,
                              .dim = 32,
                              .heads = 2,
                              .kv_heads = 2,
                              .ffn = 64,
                              .vocab = 32,
                              .weight_dtype = RN_DTYPE_F32,
                              .tokens = 8,
                              .activations = RN_DTYPE_BF16};
    rn_recipe recipe;
    rn_graph *g;
    uint32_t halves = 0;
    assert_ok(rn_train_recipe(rn_llama_forward(&config), 2, NULL, &recipe));
    assert_ok(recipe.build(recipe.self, NULL, &g));
    assert_ok(rn_graph_validate(g));
    for (uint32_t i = 0; i < rn_graph_node_count(g); i++) {
        const rn_node *n = rn_graph_node(g, i);
        for (uint32_t k = 0; n->phase == RN_PHASE_BACKWARD && k < n->input_count; k++) {
            const rn_value_info *v = rn_graph_value(g, n->inputs[k]);
            if (n->inputs[k] == RN_NO_VALUE || v->producer == RN_NO_NODE) continue;
            const rn_node *by = rn_graph_node(g, v->producer);
            if (by->phase != RN_PHASE_FORWARD) continue;
            halves += v->dtype == RN_DTYPE_BF16;
            bool fine = v->dtype != RN_DTYPE_F32 || v->output > 0 ||
                        rn_op_is(n->op, RN_TRAIT_EXACT) || rn_op_is(by->op, RN_TRAIT_EXACT);
            if (!fine) fail_msg("%s reads %s as f32", n->name, v->name);
        }
    }
    assert_true(halves > 10);
    rn_graph_destroy(g);
    rn_recipe_destroy(&recipe);
}

// ---- 16 bits between ops ------------------------------------------------------------------------

static rn_graph *build_step(rn_dtype activations, bool halves) {
    rn_llama_config config = {.layers = 2,
                              .dim = 32,
                              .heads = 4,
                              .kv_heads = 2,
                              .ffn = 64,
                              .vocab = 40,
                              .weight_dtype = RN_DTYPE_F32,
                              .tokens = 8,
                              .activations = activations};
    rn_recipe recipe;
    rn_graph *g;
    rn_train_options watch = {.watch = true};
    assert_ok(rn_train_recipe(rn_llama_forward(&config), 2, &watch, &recipe));
    assert_ok(recipe.build(recipe.self, &(rn_recipe_options){.halves = halves}, &g));
    assert_ok(rn_graph_validate(g));
    rn_recipe_destroy(&recipe);
    return g;
}

static void fill_given(const test_run *run, rn_value v) {
    const rn_value_info *info = rn_graph_value(run->graph, v);
    uint64_t elements = rn_tensor_elements(&run->values[v]);
    float *floats = test_run_data(run, v);
    int32_t *ids = test_run_data(run, v);
    if (info->role == RN_ROLE_INPUT)
        for (uint64_t i = 0; i < elements; i++)
            ids[i] = (int32_t)((i * 7 + (uint64_t)info->name[1]) % 40);
    if (info->role != RN_ROLE_WEIGHT) return;
    uint32_t seed = 0;
    for (const char *c = info->name; *c; c++)
        seed = seed * 31 + (uint32_t)*c;
    fill(floats, elements, seed);
    for (uint64_t i = 0; i < elements; i++)
        floats[i] = info->shape.rank == 1 ? 1 + floats[i] / 8 : floats[i] / 8;
}

static void run_step(const rn_graph *g, test_run *run) {
    test_run_open(run, g, 1);
    for (rn_value v = 1; v <= rn_graph_value_count(g); v++)
        if (rn_graph_value(g, v)->producer == RN_NO_NODE) fill_given(run, v);
    for (int i = 0; i < RN_MAX_SCALARS; i++)
        run->scalars[i].f64 = 0.0625; // of 16 targets
    test_run_phase(run, RN_PHASE_FORWARD);
    test_run_phase(run, RN_PHASE_BACKWARD);
}

// Each gradient against that of f32: |d| / |g| of a tensor, as rounding to 8 bits allows.
static void gradients_of_halves_stay_near(void **state) {
    (void)state;
    static const struct {
        rn_dtype dtype;
        double most;
    } rows[] = {{RN_DTYPE_BF16, 2e-2}, {RN_DTYPE_F16, 2.5e-3}};
    for (int r = 0; r < 2; r++) {
        rn_graph *plain = build_step(0, false), *halves = build_step(rows[r].dtype, true);
        test_run a, b;
        uint32_t gradients = 0;
        run_step(plain, &a);
        run_step(halves, &b);
        for (rn_value v = 1; v <= rn_graph_value_count(plain); v++) {
            const rn_value_info *info = rn_graph_value(plain, v);
            if (info->role != RN_ROLE_OUTPUT || !strstr(info->name, ".gradient")) continue;
            rn_value other = rn_graph_find(halves, RN_ROLE_OUTPUT, info->name);
            assert_true(other != RN_NO_VALUE);
            const float *want = test_run_data(&a, v), *is = test_run_data(&b, other);
            double error = 0, size = 0;
            for (uint64_t i = 0; i < rn_tensor_elements(&a.values[v]); i++) {
                error += (is[i] - want[i]) * (double)(is[i] - want[i]);
                size += want[i] * (double)want[i];
            }
            if (!(sqrt(error / size) < rows[r].most))
                fail_msg("%s differs by %g", info->name, sqrt(error / size));
            gradients++;
        }
        assert_true(gradients > 10);
        test_run_close(&a);
        test_run_close(&b);
        rn_graph_destroy(plain);
        rn_graph_destroy(halves);
    }
}

// No activation, and no gradient of one, is f32: casts are of weights alone, and what is left is
// what the loss reads, weights' gradients, statistics and vectors.
static void halves_leave_no_f32_between_ops(void **state) {
    (void)state;
    rn_graph *g = build_step(RN_DTYPE_BF16, true);
    assert_int_equal(count_casts(g, RN_DTYPE_F32), 0);
    for (rn_value v = 1; v <= rn_graph_value_count(g); v++) {
        const rn_value_info *info = rn_graph_value(g, v);
        if (info->producer == RN_NO_NODE) continue;
        const rn_node *n = rn_graph_node(g, info->producer);
        if (n->op == RN_OP_CAST)
            assert_int_equal(rn_graph_value(g, n->inputs[0])->role, RN_ROLE_WEIGHT);
        if (n->phase == RN_PHASE_UPDATE || info->dtype != RN_DTYPE_F32 || info->shape.rank < 2 ||
            info->purpose == RN_PURPOSE_GRADIENTS || info->role == RN_ROLE_OUTPUT)
            continue;
        // Statistics: an op's further results, which have no half.
        if (info->output == 0) fail_msg("%s is f32", info->name);
    }
    rn_graph_destroy(g);
}

static rn_dtype dtype_of(const void *self, const char *weight) {
    return strstr(weight, "norm") || strstr(weight, "down_proj") ? RN_DTYPE_F32
                                                                 : *(const rn_dtype *)self;
}

static const rn_low_rank *no_addition(const void *self, const char *weight, uint32_t index) {
    (void)self, (void)weight, (void)index;
    return NULL;
}

// What the updates of bf16 weights, one of them a table and a head, read: bf16, unless it was added
// up over micro-batches. Those of f32 weights, and where the policy has other 16 bits: f32.
static void check_gradients(const char *optimizer, rn_dtype activations, rn_clip clip,
                            uint32_t micro_batches) {
    rn_dtype narrow = RN_DTYPE_BF16;
    rn_llama_files files = {.self = &narrow, .dtype = dtype_of, .addition = no_addition};
    rn_llama_config config = {.layers = 1,
                              .dim = 32,
                              .heads = 4,
                              .kv_heads = 2,
                              .ffn = 64,
                              .vocab = 40,
                              .tied = true,
                              .files = &files,
                              .tokens = 8,
                              .activations = activations};
    rn_train_options options = {.optimizer = optimizer, .clip = clip, .max_norm = 1};
    rn_recipe_options how = {.halves = true, .micro_batches = micro_batches};
    rn_recipe recipe;
    rn_graph *g;
    uint32_t updates = 0;
    assert_ok(rn_train_recipe(rn_llama_forward(&config), 2, &options, &recipe));
    assert_ok(recipe.build(recipe.self, &how, &g));
    assert_ok(rn_graph_validate(g));
    for (uint32_t i = 0; i < rn_graph_node_count(g); i++) {
        const rn_node *n = rn_graph_node(g, i);
        if (!rn_op_is(n->op, RN_TRAIT_UPDATE)) continue;
        bool is_narrow = rn_graph_dtype(g, n->inputs[0]) == activations && micro_batches == 1;
        assert_int_equal(rn_graph_dtype(g, n->inputs[1]), is_narrow ? activations : RN_DTYPE_F32);
        updates++;
    }
    assert_true(updates > 8);
    rn_graph_destroy(g);
    rn_recipe_destroy(&recipe);
}

// What an optimiser computes from a gradient of f32 stays f32.
static void steps_of_optimizers_are_f32(void **state) {
    (void)state;
    rn_dtype narrow = RN_DTYPE_BF16;
    rn_llama_files files = {.self = &narrow, .dtype = dtype_of, .addition = no_addition};
    rn_llama_config config = {.layers = 1,
                              .dim = 32,
                              .heads = 4,
                              .kv_heads = 2,
                              .ffn = 64,
                              .vocab = 40,
                              .files = &files,
                              .tokens = 8,
                              .activations = RN_DTYPE_BF16};
    rn_train_options options = {.optimizer = "muon"};
    rn_recipe recipe;
    rn_graph *g;
    uint32_t products = 0;
    assert_ok(rn_train_recipe(rn_llama_forward(&config), 2, &options, &recipe));
    assert_ok(recipe.build(recipe.self, &(rn_recipe_options){.halves = true}, &g));
    for (uint32_t i = 0; i < rn_graph_node_count(g); i++) {
        const rn_node *n = rn_graph_node(g, i);
        if (n->phase != RN_PHASE_UPDATE || n->op != RN_OP_MATMUL) continue;
        assert_int_equal(rn_graph_dtype(g, n->outputs[0]), RN_DTYPE_F32);
        products++;
    }
    assert_true(products > 20);
    rn_graph_destroy(g);
    rn_recipe_destroy(&recipe);
}

static void gradients_of_16_bit_weights_have_16_bits(void **state) {
    (void)state;
    static const char *const optimizers[] = {"adamw_8bit", "sgd", "adafactor"};
    for (int i = 0; i < 3; i++) {
        check_gradients(optimizers[i], RN_DTYPE_BF16, RN_CLIP_NONE, 1);
        check_gradients(optimizers[i], RN_DTYPE_BF16, RN_CLIP_GLOBAL, 1);
        check_gradients(optimizers[i], RN_DTYPE_BF16, RN_CLIP_GLOBAL, 2);
        check_gradients(optimizers[i], RN_DTYPE_F16, RN_CLIP_NONE, 1);
    }
}

static void a_training_step_needs_less(void **state) {
    (void)state;
    uint64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        rn_llama_config config = {.layers = 4,
                                  .dim = 64,
                                  .heads = 4,
                                  .kv_heads = 4,
                                  .ffn = 192,
                                  .vocab = 64,
                                  .weight_dtype = RN_DTYPE_F32,
                                  .tokens = 64,
                                  .activations = i ? RN_DTYPE_BF16 : 0};
        rn_recipe recipe;
        rn_plan *plan;
        assert_ok(rn_train_recipe(rn_llama_forward(&config), 4, NULL, &recipe));
        assert_ok(rn_plan_make(&recipe, rn_cpu_caps(), NULL, &plan));
        bytes[i] = rn_plan_get_summary(plan)->purpose_bytes[RN_PURPOSE_ACTIVATIONS];
        rn_plan_destroy(plan);
        rn_recipe_destroy(&recipe);
    }
    print_message("activations: %llu bytes as f32, %llu as bf16\n", (unsigned long long)bytes[0],
                  (unsigned long long)bytes[1]);
    assert_true(bytes[1] < bytes[0] * 3 / 4);
}

static void other_types_are_refused(void **state) {
    (void)state;
    net n = build(true, false, RN_DTYPE_F32);
    rn_graph *out = NULL;
    assert_fails(RN_INVALID, rn_graph_hold_activations(n.g, RN_DTYPE_Q8_0, false, &out));
    assert_null(out);
    rn_graph_destroy(n.g);
}

static rn_graph *to_hold;
static rn_status hold_again(void) {
    rn_graph *out = NULL;
    rn_status s = rn_graph_hold_activations(to_hold, RN_DTYPE_BF16, false, &out);
    rn_graph_destroy(out);
    return s;
}

static void holding_survives_refused_memory(void **state) {
    (void)state;
    to_hold = build(true, false, RN_DTYPE_F32).g;
    assert_true(survive_refusals(hold_again) > 5);
    rn_graph_destroy(to_hold);
}

// What is given is rounded once for all its products; what is moved together stays in 16 bits.
static void images_are_halves_throughout(void **state) {
    (void)state;
    rn_graph *g = make_graph(), *out = NULL;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(1, 4, 4, DIM));
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_BF16, RN_SHAPE(DIM, DIM, 3, 3));
    rn_value last = rn_graph_weight(g, "last", RN_DTYPE_BF16, RN_SHAPE(DIM, 2 * DIM, 1, 1));
    rn_conv2d_attrs attrs = {1, 1, 1, 1, 1, 1};
    rn_graph_block(g, "one");
    rn_value a = rn_op_conv2d(g, x, w, RN_NO_VALUE, attrs);
    rn_graph_block(g, "two");
    rn_value b = rn_op_conv2d(g, x, w, RN_NO_VALUE, attrs);
    rn_value both = rn_op_concat(g, (rn_value[]){a, b}, 2, 3);
    rn_value y = rn_op_conv2d(g, both, last, RN_NO_VALUE, (rn_conv2d_attrs){1, 1, 0, 0, 0, 0});
    rn_graph_output(g, y, "y");
    assert_ok(rn_graph_finish(g));
    assert_ok(rn_graph_hold_activations(g, RN_DTYPE_BF16, true, &out));
    assert_ok(rn_graph_validate(out));
    assert_int_equal(count_casts(out, RN_DTYPE_BF16), 1); // x
    assert_int_equal(count_casts(out, RN_DTYPE_F32), 0);
    rn_graph_destroy(g);
    rn_graph_destroy(out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_is_the_same_graph),
        cmocka_unit_test(readers_get_the_rounded_numbers),
        cmocka_unit_test(gradients_stay_near),
        cmocka_unit_test(the_backward_pass_reads_16_bits),
        cmocka_unit_test(gradients_of_halves_stay_near),
        cmocka_unit_test(halves_leave_no_f32_between_ops),
        cmocka_unit_test(images_are_halves_throughout),
        cmocka_unit_test(gradients_of_16_bit_weights_have_16_bits),
        cmocka_unit_test(steps_of_optimizers_are_f32),
        cmocka_unit_test(a_training_step_needs_less),
        cmocka_unit_test(other_types_are_refused),
        cmocka_unit_test(holding_survives_refused_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

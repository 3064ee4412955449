// The tables of optimisers and objectives: every row trains, by its name, a graph of one's own and
// a model; names that are not there are refused with the list.
#include "support.h"

#include <ration/memory.h>
#include <ration/train.h>

#include "evaluate.h"
#include "graph/validate.h"
#include "printed.h"
#include "train/optimizer.h"

#include <math.h>

enum { SAMPLES = 8, IN = 3 };

// ---- a graph of one's own -----------------------------------------------------------------------

// y = x wᵀ + b towards targets, with a loss that is the mean of squares.
static rn_graph *line(const rn_train_options *options, uint32_t micro_batches) {
    rn_graph *g = NULL;
    uint64_t samples = SAMPLES / micro_batches;
    assert_ok(rn_graph_create(&g));
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(samples, IN));
    rn_value t = rn_graph_input(g, "targets", RN_DTYPE_F32, RN_SHAPE(samples, 1));
    rn_graph_block(g, "line");
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(1, IN));
    rn_value b = rn_graph_weight(g, "b", RN_DTYPE_F32, RN_SHAPE(1));
    rn_value loss = rn_graph_loss(g, "mse", rn_op_matmul(g, x, w, b), t, micro_batches);
    rn_train_options o = options ? *options : (rn_train_options){0};
    o.micro_batches = micro_batches;
    assert_ok(rn_graph_train(g, loss, &o));
    assert_ok(rn_graph_validate(g));
    return g;
}

static const void *zeros(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    static const float zero[IN];
    (void)self, (void)name, (void)dtype;
    return bytes <= sizeof zero ? zero : NULL;
}

static rn_session *open_session(const rn_recipe *like, rn_plan **plan) {
    rn_weight_source weights = {.find = zeros};
    rn_session *session = NULL;
    rn_recipe recipe = *like;
    recipe.weights_in_memory = true;
    assert_ok(rn_plan_make(&recipe, rn_cpu_caps(), NULL, plan));
    assert_ok(rn_session_create(*plan, &weights, NULL, &session));
    return session;
}

typedef struct samples {
    float x[SAMPLES][IN], targets[SAMPLES];
} samples;

// targets = x (1, -2, 0.5)ᵀ + 0.25
static samples make_samples(void) {
    samples s;
    for (int i = 0; i < SAMPLES; i++) {
        for (int j = 0; j < IN; j++)
            s.x[i][j] = (float)((i * 5 + j * 3 + i * j) % 7 - 3) / 3;
        s.targets[i] = s.x[i][0] - 2 * s.x[i][1] + 0.5f * s.x[i][2] + 0.25f;
    }
    return s;
}

static void give_samples(rn_session *session) {
    samples s = make_samples();
    assert_ok(rn_session_set(session, "x", s.x, sizeof s.x));
    assert_ok(rn_session_set(session, "targets", s.targets, sizeof s.targets));
}

// The loss of the last step.
static float take_steps(rn_session *session, const rn_graph *graph, int count, double rate) {
    float loss = NAN;
    for (int i = 1; i <= count; i++) {
        give_samples(session);
        assert_ok(rn_session_set_scalar(session, "rate", rate));
        for (uint32_t n = 0; n < rn_graph_scalar_count(graph); n++)
            if (strcmp(rn_graph_scalar_name(graph, n), "step") == 0)
                assert_ok(rn_session_set_scalar(session, "step", i));
        assert_ok(rn_session_run(session, 0));
        assert_ok(rn_session_get(session, "loss", &loss, sizeof loss));
    }
    return loss;
}

// Adafactor's steps are in proportion to the weights, which are 0 at first; Muon's are of one
// length.
static double rate_of(const char *optimizer) {
    if (strcmp(optimizer, "adafactor") == 0) return 0.1;
    return strcmp(optimizer, "muon") == 0 ? 0.05 : 0.02;
}

static void every_optimizer_trains_a_graph_of_ones_own(void **state) {
    (void)state;
    for (size_t i = 0; rn_optimizer_name(i); i++) {
        rn_graph *g = line(&(rn_train_options){.optimizer = rn_optimizer_name(i)}, 1);
        rn_plan *plan = NULL;
        rn_recipe recipe;
        assert_ok(rn_recipe_from_graph(g, 0, &recipe));
        rn_session *session = open_session(&recipe, &plan);
        double rate = rate_of(rn_optimizer_name(i));
        float first = take_steps(session, g, 1, rate);
        if (!(take_steps(session, g, 300, rate) < 0.01f * first))
            fail_msg("%s does not learn", rn_optimizer_name(i));
        rn_session_destroy(session);
        rn_plan_destroy(plan);
        rn_recipe_destroy(&recipe);
        rn_graph_destroy(g);
    }
}

// The row says what there is beside a weight, and the graph has just that.
static void states_are_the_rows(void **state) {
    (void)state;
    for (size_t i = 0; rn_optimizer_name(i); i++) {
        const rn_optimizer *row = NULL;
        uint32_t states = 0;
        assert_ok(rn_optimizer_find(rn_optimizer_name(i), &row));
        rn_graph *g = line(&(rn_train_options){.optimizer = row->name}, 1);
        static const char *const weights[] = {"w", "b"};
        uint32_t must = 0;
        for (int weight = 0; weight < 2; weight++) {
            rn_value of = rn_graph_find(g, RN_ROLE_WEIGHT, weights[weight]);
            rn_optimizer_state list[RN_OPTIMIZER_STATES];
            uint32_t count = row->states(rn_graph_value(g, of), list);
            for (uint32_t n = 0; n < count; n++) {
                char name[64];
                snprintf(name, sizeof name, "%s.%s", weights[weight], list[n].suffix);
                rn_value value = rn_graph_find(g, RN_ROLE_STATE, name);
                assert_int_not_equal(value, RN_NO_VALUE);
                assert_int_equal(rn_graph_value(g, value)->purpose, RN_PURPOSE_OPTIMIZER);
                assert_int_equal(rn_graph_value(g, value)->dtype, list[n].dtype);
            }
            must += count;
        }
        for (rn_value v = 1; v <= rn_graph_value_count(g); v++)
            states += rn_graph_value(g, v)->role == RN_ROLE_STATE;
        assert_int_equal(states, must);
        rn_graph_destroy(g);
    }
}

// One step by the reference loops, micro-batch by micro-batch.
static float step_in_pieces(uint32_t pieces, float *w) {
    rn_graph *g = line(&(rn_train_options){.optimizer = "sgd"}, pieces);
    samples all = make_samples();
    test_run run;
    float loss;
    test_run_open(&run, g, 1);
    memset(test_run_data(&run, rn_graph_find(g, RN_ROLE_WEIGHT, "w")), 0, sizeof(float) * IN);
    memset(test_run_data(&run, rn_graph_find(g, RN_ROLE_WEIGHT, "b")), 0, sizeof(float));
    run.scalars[rn_graph_scalar(g, "rate")].f64 = 0.1;
    for (uint32_t i = 0; i < pieces; i++) {
        uint32_t count = SAMPLES / pieces;
        memcpy(test_run_data(&run, rn_graph_find(g, RN_ROLE_INPUT, "x")), all.x[i * count],
               count * sizeof all.x[0]);
        memcpy(test_run_data(&run, rn_graph_find(g, RN_ROLE_INPUT, "targets")),
               &all.targets[i * count], count * sizeof all.targets[0]);
        test_run_phase(&run, RN_PHASE_FORWARD);
        test_run_phase(&run, RN_PHASE_BACKWARD);
    }
    test_run_phase(&run, RN_PHASE_UPDATE);
    memcpy(&loss, test_run_data(&run, rn_graph_find(g, RN_ROLE_OUTPUT, "loss")), sizeof loss);
    memcpy(w, test_run_data(&run, rn_graph_find(g, RN_ROLE_WEIGHT, "w")), sizeof(float) * IN);
    test_run_close(&run);
    rn_graph_destroy(g);
    return loss;
}

// Squared errors are a mean over the batch: micro-batches add up to it.
static void micro_batches_have_the_loss_of_the_batch(void **state) {
    (void)state;
    float whole[IN], cut[IN];
    float loss = step_in_pieces(1, whole);
    assert_true(loss > 0.1f);
    assert_true(fabsf(step_in_pieces(4, cut) - loss) < 1e-5f);
    for (int i = 0; i < IN; i++)
        assert_true(fabsf(whole[i] - cut[i]) < 1e-6f && fabsf(cut[i]) > 1e-3f);
}

static void a_recipe_of_a_graph_hands_out_copies(void **state) {
    (void)state;
    rn_graph *g = line(NULL, 1), *copies[2] = {NULL, NULL};
    rn_recipe recipe;
    assert_ok(rn_recipe_from_graph(g, 0, &recipe));
    for (int i = 0; i < 2; i++)
        assert_ok(recipe.build(recipe.self, NULL, &copies[i]));
    rn_graph_destroy(copies[0]);
    assert_ok(rn_graph_print(g, printed_sink()));
    printed_end();
    char *want = strdup(printed.data);
    assert_ok(rn_graph_print(copies[1], printed_sink()));
    printed_end();
    assert_string_equal(want, printed.data);
    free(want);
    assert_fails(RN_INVALID, recipe.build(recipe.self, &(rn_recipe_options){2}, &copies[0]));
    rn_recipe_destroy(&recipe);
    assert_fails(RN_INVALID, rn_recipe_from_graph(g, 5, &recipe)); // it has no rows
    rn_graph_destroy(copies[1]);
    rn_graph_destroy(g);
}

// ---- a model ------------------------------------------------------------------------------------

enum { BATCH = 2, TOKENS = 8, VOCAB = 256 }; // tables of 4096: large enough for 8-bit states

static rn_trainer *open_trainer(const char *optimizer) {
    rn_trainer_options options = {.layers = 1,
                                  .dim = 16,
                                  .heads = 2,
                                  .kv_heads = 2,
                                  .ffn = 32,
                                  .vocab_size = VOCAB,
                                  .tokens = TOKENS,
                                  .batch = BATCH,
                                  .optimizer = optimizer,
                                  .seed = 3};
    rn_trainer *trainer = NULL;
    assert_ok(rn_trainer_create(&options, &trainer));
    return trainer;
}

static float count_on(rn_trainer *trainer, int steps) {
    int32_t tokens[BATCH * TOKENS], targets[BATCH * TOKENS];
    float loss = NAN;
    for (int i = 0; i < BATCH * TOKENS; i++) {
        tokens[i] = i * 3 % VOCAB;
        targets[i] = (i + 1) * 3 % VOCAB;
    }
    for (int i = 0; i < steps; i++)
        assert_ok(rn_trainer_step(trainer, tokens, targets, 0.01, &loss));
    return loss;
}

static void every_optimizer_trains_a_model_and_is_resumed(void **state) {
    (void)state;
    for (size_t i = 0; rn_optimizer_name(i); i++) {
        rn_trainer *through = open_trainer(rn_optimizer_name(i));
        float first = count_on(through, 1);
        assert_ok(rn_trainer_save(through, test_own_path("checkpoint")));
        float last = count_on(through, 20);
        if (!(last < first)) fail_msg("%s does not learn", rn_optimizer_name(i));
        rn_trainer *resumed = open_trainer(rn_optimizer_name(i));
        assert_ok(rn_trainer_resume(resumed, test_own_path("checkpoint")));
        assert_true(count_on(resumed, 20) == last);
        rn_trainer_destroy(resumed);
        rn_trainer_destroy(through);
    }
}

static void a_checkpoint_of_another_optimizer_is_refused(void **state) {
    (void)state;
    rn_trainer *trainer = open_trainer("adamw");
    assert_ok(rn_trainer_save(trainer, test_own_path("checkpoint")));
    rn_trainer_destroy(trainer);
    trainer = open_trainer("sgd");
    assert_fails(RN_INVALID, rn_trainer_resume(trainer, test_own_path("checkpoint")));
    assert_non_null(strstr(rn_last_error()->message, "'adamw', not 'sgd'"));
    rn_trainer_destroy(trainer);
}

// ---- names --------------------------------------------------------------------------------------

static void assert_lists_all(void) {
    for (size_t i = 0; rn_optimizer_name(i); i++)
        assert_non_null(strstr(rn_last_error()->hint, rn_optimizer_name(i)));
}

static void unknown_names_are_refused_with_the_list(void **state) {
    (void)state;
    rn_trainer_options options = {.layers = 1, .optimizer = "adam"};
    rn_trainer *trainer = NULL;
    rn_recipe recipe;
    rn_graph *g = NULL;
    assert_fails(RN_INVALID, rn_trainer_create(&options, &trainer));
    assert_lists_all();
    assert_fails(RN_INVALID, rn_builtin_recipe("mlp:train=adam", &recipe));
    assert_lists_all();
    assert_fails(RN_INVALID, rn_builtin_recipe("mlp:train=", &recipe));
    assert_fails(RN_NOT_FOUND, rn_builtin_recipe("mlp:trained", &recipe));
    assert_ok(rn_graph_create(&g));
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(2));
    rn_value loss = rn_graph_loss(g, "hinge", x, x, 1);
    assert_fails(RN_INVALID, rn_graph_train(g, loss, NULL));
    for (size_t i = 0; rn_objective_name(i); i++)
        assert_non_null(strstr(rn_last_error()->hint, rn_objective_name(i)));
    rn_graph_destroy(g);
}

static void builtin_models_are_trained_by_any_optimizer(void **state) {
    (void)state;
    for (size_t i = 0; rn_optimizer_name(i); i++) {
        char name[64];
        rn_recipe recipe;
        rn_graph *g = NULL;
        snprintf(name, sizeof name, "llama:1x64:train=%s", rn_optimizer_name(i));
        assert_ok(rn_builtin_recipe(name, &recipe));
        assert_string_equal(recipe.name, name);
        assert_ok(recipe.build(recipe.self, &(rn_recipe_options){2}, &g));
        assert_ok(rn_graph_validate(g));
        rn_graph_destroy(g);
        rn_recipe_destroy(&recipe);
    }
}

// What makes no sense together is refused before a node is added.
static void impossible_options_are_refused(void **state) {
    (void)state;
    static const rn_train_options wrong[] = {{.clip = RN_CLIP_GLOBAL},
                                             {.clip = (rn_clip)7, .max_norm = 1},
                                             {.optimizer = "sgd", .momentum = 0.9},
                                             {.frozen = "*"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        rn_graph *g = NULL;
        assert_ok(rn_graph_create(&g));
        rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(2));
        rn_value t = rn_graph_input(g, "t", RN_DTYPE_F32, RN_SHAPE(2));
        rn_value loss = rn_graph_loss(g, "mse", w, t, 1);
        uint32_t nodes = rn_graph_node_count(g);
        assert_fails(RN_INVALID, rn_graph_train(g, loss, &wrong[i]));
        assert_int_equal(rn_graph_node_count(g), nodes);
        rn_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_optimizer_trains_a_graph_of_ones_own),
        cmocka_unit_test(states_are_the_rows),
        cmocka_unit_test(micro_batches_have_the_loss_of_the_batch),
        cmocka_unit_test_setup_teardown(a_recipe_of_a_graph_hands_out_copies, printed_begin,
                                        printed_free),
        cmocka_unit_test_setup(every_optimizer_trains_a_model_and_is_resumed, test_make_folder),
        cmocka_unit_test_setup(a_checkpoint_of_another_optimizer_is_refused, test_make_folder),
        cmocka_unit_test(unknown_names_are_refused_with_the_list),
        cmocka_unit_test(builtin_models_are_trained_by_any_optimizer),
        cmocka_unit_test(impossible_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

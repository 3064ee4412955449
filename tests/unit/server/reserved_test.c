// Every option struct has reserved fields, and whoever takes the struct refuses those that are not
// zero.
#include "support.h"

#include <ration/ration.h>

#include "base/reserved.h"

#define SET .reserved = {[3] = 1}

static void assert_refused(rn_status status, const char *type) {
    assert_int_equal(status, RN_INVALID);
    if (!strstr(rn_last_error()->message, type))
        fail_msg("%s is not named: %s", type, rn_last_error()->message);
}

static void any_of_the_fields_counts(void **state) {
    (void)state;
    uint64_t fields[4] = {0};
    assert_ok(rn_check_reserved(fields, "a struct"));
    for (int i = 0; i < 4; i++) {
        fields[i] = UINT64_MAX << 63;
        assert_refused(rn_check_reserved(fields, "a struct"), "a struct");
        fields[i] = 0;
    }
}

static void files_refuse_them(void **state) {
    (void)state;
    rn_checkpoint *checkpoint = NULL;
    rn_writer *writer = NULL;
    rn_convert_result result;
    assert_refused(rn_writer_create("x", NULL, 0, &(rn_writer_options){SET}, &writer),
                   "rn_writer_options");
    assert_refused(rn_convert("a", "b.gguf", &(rn_convert_options){SET}, &result),
                   "rn_convert_options");
    assert_ok(rn_checkpoint_open("models/default/model.safetensors", &checkpoint));
    assert_refused(rn_checkpoint_stream(checkpoint, &(rn_stream_options){SET}, NULL, NULL),
                   "rn_stream_options");
    rn_checkpoint_close(checkpoint);
}

static void planning_and_running_refuse_them(void **state) {
    (void)state;
    rn_recipe recipe;
    rn_plan *plan = NULL;
    rn_session *session = NULL;
    rn_sweep_row row;
    rn_placement placement;
    rn_ladder *ladder = NULL;
    rn_ladder_target target;
    rn_rates rates;
    rn_pool *pool = NULL;
    assert_ok(rn_builtin_recipe("mlp", &recipe));
    assert_refused(rn_plan_make(&recipe, rn_cpu_caps(), &(rn_plan_options){SET}, &plan),
                   "rn_plan_options");
    assert_refused(rn_plan_sweep(&recipe, rn_cpu_caps(), &(rn_plan_options){SET}, &row, 1),
                   "rn_plan_options");
    assert_ok(rn_plan_make(&recipe, rn_cpu_caps(), NULL, &plan));
    assert_refused(
        rn_session_create(plan, &(rn_weight_source){0}, &(rn_session_options){SET}, &session),
        "rn_session_options");
    assert_null(session);
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
    assert_refused(rn_place(NULL, 0, &(rn_place_options){SET}, NULL, &placement),
                   "rn_place_options");
    assert_refused(rn_pool_create((rn_pool_source){0}, &(rn_pool_options){SET}, &pool),
                   "rn_pool_options");
    assert_refused(rn_rates_measure(&(rn_rates_options){SET}, &rates), "rn_rates_options");
    assert_ok(rn_ladder_parse((rn_str){"cpu", 3}, &ladder));
    assert_refused(
        rn_ladder_start(ladder, &(rn_ladder_options){SET}, &(rn_ladder_load){0}, &target),
        "rn_ladder_options");
    rn_ladder_destroy(ladder);
    assert_refused(rn_profile_start(&(rn_profile_options){.path = "", SET}), "rn_profile_options");
}

static void text_refuses_them(void **state) {
    (void)state;
    rn_model *model = NULL;
    rn_recipe recipe;
    rn_plan *plan = NULL;
    rn_generator *generator = NULL;
    rn_sequence *sequence = NULL;
    rn_answer answer;
    uint32_t token = 1;
    const rn_generator_options wrong[] = {
        {SET}, {.text = {SET}}, {.plan = {SET}}, {.session = {SET}}};
    static const char *const types[] = {"rn_generator_options", "rn_text_options",
                                        "rn_plan_options", "rn_session_options"};
    assert_refused(rn_model_open(NULL, &(rn_model_options){SET}, &model), "rn_model_options");
    assert_ok(rn_model_open(NULL, NULL, &model));
    assert_refused(rn_model_make_recipe(model, &(rn_text_options){SET}, &recipe),
                   "rn_text_options");
    for (int i = 0; i < 4; i++) {
        assert_refused(rn_generator_predict(model, &wrong[i], &plan), types[i]);
        assert_refused(rn_generator_create(model, &wrong[i], &generator), types[i]);
    }
    assert_ok(rn_generator_create(model, &(rn_generator_options){0}, &generator));
    assert_refused(rn_sequence_create(generator, &(rn_sampling){SET}, &sequence), "rn_sampling");
    assert_ok(rn_sequence_create(generator, NULL, &sequence));
    assert_refused(rn_sequence_answer(sequence, rn_model_tokenizer(model), &token, 1,
                                      &(rn_answer_options){SET}, rn_sink_file(stdout), &answer),
                   "rn_answer_options");
    rn_generator_destroy(generator);
    rn_model_close(model);
    assert_refused(rn_generate_text(NULL, &(rn_easy_options){SET}, "x", NULL, NULL),
                   "rn_easy_options");
}

static void training_and_serving_refuse_them(void **state) {
    (void)state;
    rn_graph *graph = NULL;
    rn_trainer *trainer = NULL;
    rn_server *server = NULL;
    assert_ok(rn_graph_create(&graph));
    assert_refused(rn_graph_train(graph, RN_NO_VALUE, &(rn_train_options){SET}),
                   "rn_train_options");
    rn_graph_destroy(graph);
    assert_refused(rn_trainer_create(&(rn_trainer_options){SET}, &trainer), "rn_trainer_options");
    assert_refused(rn_server_create(&(rn_server_options){SET}, &server), "rn_server_options");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_of_the_fields_counts),         cmocka_unit_test(files_refuse_them),
        cmocka_unit_test(planning_and_running_refuse_them), cmocka_unit_test(text_refuses_them),
        cmocka_unit_test(training_and_serving_refuse_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

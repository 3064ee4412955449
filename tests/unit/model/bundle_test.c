// Models of several networks: each is found by its name, plans and runs as it does alone, and the
// model's sizes are those of all.
#include "altered.h"

#include <ration/memory.h>

#include "model/bundle.h"
#include "text_run.h"

enum { COUNT = 12, VOCAB = 128 };

static const rn_model_options quiet = {.without_tokenizer = true};
static const rn_text_options text = {.context = 32, .page_tokens = 8, .rows = 5};
static const rn_network_files pair[] = {{"decoder", TEXT "llama3"},
                                        {"draft", TEXT "qwen2/model.gguf"}};

static rn_model *open_pair(const rn_model_options *options) {
    rn_model *model;
    assert_ok(rn_model_open_networks(pair, 2, options, &model));
    return model;
}

static rn_model_info info_alone(const char *path) {
    rn_model *model;
    assert_ok(rn_model_open(path, &quiet, &model));
    rn_model_info info = *rn_model_get_info(model);
    rn_model_close(model);
    return info;
}

static void networks_are_found_by_name(void **state) {
    (void)state;
    rn_model *model = open_pair(&quiet);
    const rn_network *target = rn_model_network(model, "decoder");
    const rn_network *draft = rn_model_network(model, "draft");
    assert_non_null(target);
    assert_non_null(draft);
    assert_null(rn_model_network(model, "vae"));
    assert_string_equal(target->kind->name, "text decoder");
    assert_string_equal(target->info.architecture, "llama");
    assert_string_equal(draft->info.architecture, "qwen2");
    assert_true(target->checkpoint != draft->checkpoint);
    rn_model_close(model);
    assert_ok(rn_model_open(TEXT "llama3", &quiet, &model)); // a bundle of one
    assert_non_null(rn_model_network(model, "decoder"));
    assert_null(rn_model_network(model, "draft"));
    rn_model_close(model);
}

static void a_model_has_the_sizes_of_all_networks(void **state) {
    (void)state;
    rn_model_info target = info_alone(pair[0].path), draft = info_alone(pair[1].path);
    rn_model *model = open_pair(&quiet);
    const rn_model_info *info = rn_model_get_info(model);
    assert_int_equal(info->parameters, target.parameters + draft.parameters);
    assert_int_equal(info->weight_bytes, target.weight_bytes + draft.weight_bytes);
    assert_string_equal(info->architecture, "llama"); // what else is said is of the first
    assert_int_equal(info->layers, target.layers);
    assert_int_equal(rn_model_network(model, "draft")->info.parameters, draft.parameters);
    rn_model_close(model);
}

// ---- running ------------------------------------------------------------------------------------

static void make_tokens(int32_t tokens[COUNT]) {
    for (int32_t i = 0; i < COUNT; i++)
        tokens[i] = (i * 37 + 5) % VOCAB;
}

static rn_status make(const void *self, const rn_text_options *options, rn_recipe *out) {
    const rn_network *network = self;
    return network->kind->make_recipe(network, options, out);
}

static void expect_as_alone(const rn_network *network, const char *path,
                            const rn_model_options *options) {
    rn_text_maker maker = {.self = network,
                           .make = make,
                           .weights = rn_network_weights(network),
                           .vocab_size = network->info.vocab_size};
    int32_t tokens[COUNT];
    float got[COUNT * VOCAB], want[COUNT * VOCAB];
    make_tokens(tokens);
    text_run *run = text_run_open_made(NULL, &maker, &text, 0);
    text_run_logits(run, tokens, COUNT, got);
    text_run_close(run);
    run = text_run_open(path, options, &text);
    text_run_logits(run, tokens, COUNT, want);
    text_run_close(run);
    assert_memory_equal(got, want, sizeof want);
}

// Adapters are the first network's.
static void each_network_computes_what_it_does_alone(void **state) {
    (void)state;
    const rn_adapter adapter = {.path = TEXT "lora/one", .scale = 1};
    rn_model_options adapted = {
        .without_tokenizer = true, .adapters = &adapter, .adapter_count = 1};
    rn_model *model = open_pair(&adapted);
    expect_as_alone(rn_model_network(model, "decoder"), pair[0].path, &adapted);
    expect_as_alone(rn_model_network(model, "draft"), pair[1].path, &quiet);
    rn_model_close(model);
}

// ---- failures -----------------------------------------------------------------------------------

static void what_is_wrong_is_named(void **state) {
    (void)state;
    rn_model *model;
    const rn_network_files twice[] = {{"decoder", TEXT "llama3"}, {"decoder", TEXT "qwen3"}};
    const rn_network_files missing[] = {{"decoder", TEXT "llama3"}, {"draft", TEXT "nowhere"}};
    const rn_network_files longer = {"a name that is longer than anybody would want",
                                     TEXT "llama3"};
    assert_fails(RN_INVALID, rn_model_open_networks(twice, 2, &quiet, &model));
    assert_non_null(strstr(rn_last_error()->message, "'decoder' is there twice"));
    assert_fails(RN_INVALID, rn_model_open_networks(&longer, 1, &quiet, &model));
    assert_fails(RN_INVALID, rn_model_open_networks(twice, 0, &quiet, &model));
    assert_fails(RN_NOT_FOUND, rn_model_open_networks(missing, 2, &quiet, &model));
    assert_non_null(strstr(rn_last_error()->path, "nowhere"));
    assert_null(model);
}

static rn_status open_and_close(void) {
    rn_model *model;
    rn_status s = rn_model_open_networks(pair, 2, &quiet, &model);
    rn_model_close(model);
    return s;
}

static void opening_survives_refused_memory(void **state) {
    (void)state;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    assert_true(survive_refusals(open_and_close) > 5);
    assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_are_found_by_name),
        cmocka_unit_test(a_model_has_the_sizes_of_all_networks),
        cmocka_unit_test(each_network_computes_what_it_does_alone),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(opening_survives_refused_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// labels: threads
// Models of fused ops: the logits of the plain graph to the bit, whatever the model, the rows, the
// budget and the device; and no more memory.
#include "altered.h"

#include <ration/convert.h>
#include <ration/memory.h>

#include "backend/sim/sim.h"
#include "graph/fuse.h"
#include "graph/validate.h"
#include "model/text/default_model.h"
#include "train/train_recipe.h"
#include "text_run.h"
#include "tiny_kinds.h"

enum { COUNT = 40, VOCAB = 128, BUDGETS = 4 };
// Of models and of forms of weights ThreadSanitizer gets every other one: threads share their work
// alike.
enum { EACH = TEST_THREADS_ONLY ? 2 : 1 };

static rn_device *fusing; // the CPU, for which plans have fused ops

// ---- the same logits ----------------------------------------------------------------------------

static void make_tokens(int32_t tokens[COUNT], uint32_t vocab) {
    for (uint32_t i = 0; i < COUNT; i++)
        tokens[i] = (int32_t)((i * 37 + 5) % vocab);
}

// (COUNT, vocab); the caller frees.
static float *compute(rn_device *device, const char *path, const rn_model_options *options,
                      rn_text_options text) {
    int32_t tokens[COUNT];
    text_run *run = text_run_open_on(device, path, options, &text, 0);
    float *logits = malloc((size_t)COUNT * run->vocab * sizeof *logits);
    make_tokens(tokens, run->vocab);
    text_run_logits(run, tokens, COUNT, logits);
    text_run_close(run);
    return logits;
}

static uint32_t vocab_of(const char *path) {
    rn_model *model;
    assert_ok(rn_model_open(path, &(rn_model_options){.without_tokenizer = true}, &model));
    uint32_t vocab = rn_model_get_info(model)->vocab_size;
    rn_model_close(model);
    return vocab;
}

// In chunks of a prompt, and row by row.
static void check(const char *path, const rn_model_options *options, rn_text_options text) {
    size_t bytes = (size_t)COUNT * vocab_of(path) * sizeof(float);
    for (text.rows = 1; text.rows <= 13; text.rows += 12) {
        float *plain = compute(NULL, path, options, text);
        float *fused = compute(fusing, path, options, text);
        if (memcmp(plain, fused, bytes) != 0)
            fail_msg("%s, %u rows: fused, the logits are others", path, text.rows);
        free(plain);
        free(fused);
    }
}

static const rn_text_options short_text = {.context = 64, .page_tokens = 8};

static void every_kind_of_model_gives_the_same_logits(void **state) {
    (void)state;
    static const char *const models[] = {
        TEXT "llama3",            // rope by wavelength
        TEXT "llama3/model.gguf", // rope of neighbours
        TEXT "llama_linear",      // biases everywhere, a tied head
        TEXT "mistral",           // a window
        TEXT "qwen2",             // biases of q, k and v; yarn; a window in the last layer
        TEXT "qwen2/model.gguf",  // a tied head
        TEXT "qwen3",             // norms of q and k
        TEXT "qwen3/model.gguf",
        TEXT "gpt2", // transposed weights, layer norms
        TEXT "gpt2/model.gguf",
        TEXT "gemma3", // norms behind products, two ropes
        TEXT "gemma3/model.gguf",
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i += EACH)
        check(models[i], NULL, short_text);
}

static void every_kind_of_cache_gives_the_same_logits(void **state) {
    (void)state;
    rn_text_options text = short_text;
    text.kv_dtype = RN_DTYPE_F16;
    check(TEXT "llama3", NULL, text);
    check(TEXT "mistral", NULL, text);
}

static void every_form_of_weights_gives_the_same_logits(void **state) {
    (void)state;
    static const rn_dtype forms[] = {RN_DTYPE_INT8, RN_DTYPE_INT4, RN_DTYPE_NF4, RN_DTYPE_BF16,
                                     RN_DTYPE_F32};
    rn_convert_result result;
    size_t bytes;
    char *config = test_read(TEXT "llama3/config.json", &bytes);
    test_write(test_own_path("config.json"), config, bytes);
    free(config);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i += EACH) {
        rn_text_options text = short_text;
        assert_ok(rn_convert(TEXT "llama3/model.safetensors", test_own_path("model.safetensors"),
                             &(rn_convert_options){.to = forms[i]}, &result));
        check(test_own_folder, NULL, text);
        text.unquantised_activations = true;
        check(test_own_folder, NULL, text);
    }
}

static void the_default_model_gives_the_same_logits(void **state) {
    (void)state;
    rn_default_model own;
    if (rn_default_model_get(&own) != RN_OK)
        skip_because("the library was built without its model");
    check(NULL, NULL, short_text);
}

// ---- adapters -----------------------------------------------------------------------------------

static uint32_t count_ops(const rn_graph *graph, rn_op op) {
    uint32_t count = 0;
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++)
        count += rn_graph_node(graph, n)->op == op;
    return count;
}

static rn_graph *build(const char *path, const rn_model_options *options) {
    rn_model_options quiet = *options;
    rn_text_options text = short_text;
    rn_model *model;
    rn_recipe recipe;
    rn_graph *graph;
    quiet.without_tokenizer = true;
    assert_ok(rn_model_open(path, &quiet, &model));
    assert_ok(rn_model_make_recipe(model, &text, &recipe));
    assert_ok(rn_recipe_build(&recipe, RN_FUSE_ALL, NULL, &graph));
    assert_ok(rn_graph_validate(graph));
    rn_recipe_destroy(&recipe);
    rn_model_close(model);
    return graph;
}

// llama3 has two layers, and f16 norms, which are not cast: the loader widens them.
static void a_layer_is_five_nodes(void **state) {
    (void)state;
    rn_graph *graph = build(TEXT "llama3", &(rn_model_options){0});
    assert_int_equal(count_ops(graph, RN_OP_PROJECT_THREE), 2);
    assert_int_equal(count_ops(graph, RN_OP_ATTEND), 2);
    assert_int_equal(count_ops(graph, RN_OP_PROJECT_GATED), 2);
    assert_int_equal(count_ops(graph, RN_OP_PROJECT), 2 * 2 + 1); // the head
    uint32_t views = count_ops(graph, RN_OP_RESHAPE);
    assert_int_equal(count_ops(graph, RN_OP_CAST), 0);
    assert_int_equal(rn_graph_node_count(graph), 2 * 5 + 1 + 2 + views); // two look-ups
    rn_graph_destroy(graph);
}

// lora/one adds to q, k and down: these groups are of single ops, the others are not.
static void products_with_additions_stand_alone(void **state) {
    (void)state;
    const rn_adapter both[] = {{.path = TEXT "lora/one", .scale = 1},
                               {.path = TEXT "lora/two", .scale = 1}};
    rn_model_options options = {.adapters = both, .adapter_count = 1};
    rn_graph *graph = build(TEXT "llama3", &options);
    assert_int_equal(count_ops(graph, RN_OP_PROJECT_THREE), 0);
    assert_int_equal(count_ops(graph, RN_OP_ATTEND), 2);
    assert_int_equal(count_ops(graph, RN_OP_PROJECT_GATED), 2);
    assert_int_equal(count_ops(graph, RN_OP_PROJECT), 2 + 1);
    rn_graph_destroy(graph);
    check(TEXT "llama3", &options, short_text);
    options.adapter_count = 2;
    check(TEXT "llama3", &options, short_text);
    const rn_adapter head[] = {{.path = TEXT "lora/head", .scale = 1}};
    check(TEXT "qwen2/model.gguf", &(rn_model_options){.adapters = head, .adapter_count = 1},
          short_text);
}

// ---- plans --------------------------------------------------------------------------------------

// With everything resident, that is. Where weights stream, those of a node must be there at once,
// and a fused node has more of them.
static void a_fused_graph_needs_no_more_memory(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        rn_plan *plans[2];
        for (int fused = 0; fused < 2; fused++) {
            rn_llama_config config = {.layers = 3,
                                      .dim = 128u << i,
                                      .heads = 4,
                                      .kv_heads = 2,
                                      .ffn = 352u << i,
                                      .vocab = 512,
                                      .weight_dtype = RN_DTYPE_F16,
                                      .kv_dtype = RN_DTYPE_F16,
                                      .context = 256,
                                      .page_tokens = 32,
                                      .sequences = 2,
                                      .logit_rows = 2,
                                      .rows = 64};
            const rn_device_caps *caps = fused ? &fusing->caps : rn_cpu_caps();
            rn_recipe recipe;
            assert_ok(rn_llama_recipe(&config, &recipe));
            assert_ok(rn_plan_make(&recipe, caps, NULL, &plans[fused]));
            rn_recipe_destroy(&recipe);
        }
        const rn_plan_summary *plain = rn_plan_get_summary(plans[0]);
        const rn_plan_summary *fused = rn_plan_get_summary(plans[1]);
        assert_true(fused->planned_bytes <= plain->planned_bytes);
        assert_true(fused->streamed_bytes == 0 && plain->streamed_bytes == 0);
        rn_plan_destroy(plans[0]);
        rn_plan_destroy(plans[1]);
    }
}

static rn_status make_tiny(rn_graph **out) {
    rn_llama_config config = {.layers = 2,
                              .dim = 32,
                              .heads = 2,
                              .kv_heads = 1,
                              .ffn = 64,
                              .vocab = 32,
                              .weight_dtype = RN_DTYPE_F16,
                              .kv_dtype = RN_DTYPE_F16,
                              .qkv_bias = true,
                              .qk_norm = true,
                              .context = 16,
                              .page_tokens = 8,
                              .sequences = 1,
                              .logit_rows = 1,
                              .rows = 4};
    rn_recipe recipe;
    *out = NULL;
    RN_TRY(rn_llama_recipe(&config, &recipe));
    rn_status s = rn_recipe_build(&recipe, RN_FUSE_ALL, NULL, out);
    rn_recipe_destroy(&recipe);
    return s;
}

static rn_status build_tiny(void) {
    rn_graph *graph;
    rn_status s = make_tiny(&graph);
    rn_graph_destroy(graph);
    return s;
}

// What a GPU needs to look ahead: see rn_attend_attrs and rn_project_attrs.
static void places_and_norms_of_a_model_are_steady(void **state) {
    uint32_t attends = 0, normed = 0;
    rn_graph *graph;
    (void)state;
    assert_ok(make_tiny(&graph));
    for (uint32_t i = 0; i < rn_graph_node_count(graph); i++) {
        const rn_node *node = rn_graph_node(graph, i);
        bool three = node->op == RN_OP_PROJECT_THREE, gated = node->op == RN_OP_PROJECT_GATED;
        if (node->op == RN_OP_ATTEND)
            attends += ((const rn_attend_attrs *)node->attrs)->steady_places;
        if (three || gated) normed += ((const rn_project_attrs *)node->attrs)->steady_norm;
    }
    assert_int_equal(2, attends);
    assert_int_equal(4, normed);
    rn_graph_destroy(graph);
}

static void building_survives_refused_memory(void **state) {
    (void)state;
    assert_true(survive_refusals(build_tiny) > 5);
}

static void training_is_never_fused(void **state) {
    (void)state;
    rn_llama_config config = {.layers = 1,
                              .dim = 32,
                              .heads = 2,
                              .kv_heads = 2,
                              .ffn = 64,
                              .vocab = 32,
                              .weight_dtype = RN_DTYPE_F32,
                              .tokens = 8};
    rn_recipe recipe;
    rn_graph *graph;
    assert_ok(rn_train_recipe(rn_llama_forward(&config), 2, NULL, &recipe));
    assert_ok(rn_recipe_build(&recipe, RN_FUSE_ALL, &(rn_recipe_options){1}, &graph));
    assert_int_equal(count_ops(graph, RN_OP_ATTEND) + count_ops(graph, RN_OP_PROJECT), 0);
    rn_graph_destroy(graph);
    rn_recipe_destroy(&recipe);
}

// ---- budgets and devices ------------------------------------------------------------------------

static tiny_text tiny = {.layers = 5, .dim = 64, .vocab = 160};
static story expected;

// The budget is the device's, if that has memory of its own.
static rn_generator_options make_options(rn_device *device, uint64_t budget) {
    rn_generator_options options = {
        .text = {.context = 96, .page_tokens = 16, .sequences = 2, .rows = 32},
        .session = {.device = device, .audit = true}};
    if (device && device->caps.own_memory)
        options.device_budget = (rn_device_budget){.bytes = budget, .planned_only = true};
    else
        options.plan.budget_bytes = budget;
    return options;
}

static int open_tiny(void **state) {
    (void)state;
    assert_ok(rn_cpu_device_create(0, &fusing));
    fusing->caps.fusions = RN_FUSE_ALL;
    tiny_text_open(&tiny, test_path("tiny.safetensors"));
    rn_generator_options options = make_options(NULL, 0);
    rn_generator *plain = tiny_text_generator(&tiny, &options);
    assert_int_equal(count_ops(rn_plan_graph(plain->plan), RN_OP_ATTEND), 0);
    assert_ok(story_tell(plain, &(rn_sampling){.logprobs = 20}, 5, 37, 20, &expected));
    rn_generator_destroy(plain);
    return 0;
}

static int close_tiny(void **state) {
    (void)state;
    tiny_text_close(&tiny);
    rn_device_destroy(fusing);
    return 0;
}

// Tells the story and sees that memory was what was planned. Returns the bytes that stream.
static uint64_t tell(rn_device *device, uint64_t budget) {
    rn_generator_options options = make_options(device, budget);
    rn_generator *g = tiny_text_generator(&tiny, &options);
    story got;
    assert_int_equal(count_ops(rn_plan_graph(g->plan), RN_OP_ATTEND), tiny.layers);
    assert_ok(story_tell(g, &(rn_sampling){.logprobs = 20}, 5, 37, 20, &got));
    story_expect(&got, &expected);
    rn_session_facts facts = rn_session_get_facts(g->session);
    assert_int_equal(facts.live_mismatch_step, UINT64_MAX);
    uint64_t streamed = rn_plan_get_summary(g->plan)->streamed_bytes;
    rn_generator_destroy(g);
    return streamed;
}

static void tell_at_all_budgets(rn_device *device) {
    rn_generator_options options = make_options(device, 0);
    rn_generator *g = tiny_text_generator(&tiny, &options);
    uint64_t own = device->caps.own_memory ? 0 : g->memory.held_bytes + sizeof *g;
    uint64_t most = own + rn_plan_get_summary(g->plan)->planned_bytes;
    uint64_t least = own + rn_plan_get_summary(g->plan)->smallest_bytes;
    rn_generator_destroy(g);
    for (uint32_t i = 0; i < BUDGETS; i++) {
        uint64_t streamed = tell(device, most - (most - least) * i / (BUDGETS - 1));
        assert_int_equal(streamed > 0, i > 0);
    }
}

static void every_budget_tells_the_same_story(void **state) {
    (void)state;
    tell_at_all_budgets(fusing);
}

static void a_device_that_fuses_tells_the_same_story(void **state) {
    (void)state;
    rn_device *sim;
    assert_ok(rn_sim_device_create(NULL, &sim));
    sim->caps.fusions = RN_FUSE_ALL;
    tell_at_all_budgets(sim);
    assert_int_equal(rn_ledger_total(sim->caps.device).now_bytes, 0);
    rn_device_destroy(sim);
}

static void stream_to_device(rn_device *device, const char *path) {
    rn_text_options text = short_text;
    int32_t tokens[COUNT];
    float logits[COUNT * VOCAB], *plain;
    text.rows = 8;
    plain = compute(NULL, path, NULL, text);
    text_run *run = text_run_open_on(device, path, NULL, &text, 0);
    uint64_t least = rn_plan_get_summary(run->plan)->smallest_bytes;
    text_run_close(run);
    run = text_run_open_on(device, path, NULL, &text, least);
    assert_true(rn_plan_get_summary(run->plan)->streamed_bytes > 0);
    make_tokens(tokens, VOCAB);
    text_run_logits(run, tokens, COUNT, logits);
    assert_memory_equal(logits, plain, sizeof logits);
    text_run_close(run);
    free(plain);
}

static void models_from_files_stream_to_a_device(void **state) {
    (void)state;
    static const char *const models[] = {TEXT "qwen2", TEXT "gpt2", TEXT "gpt2/model.gguf",
                                         TEXT "gemma3", TEXT "gemma3/model.gguf"};
    rn_device *sim;
    assert_ok(rn_sim_device_create(NULL, &sim));
    sim->caps.fusions = RN_FUSE_ALL;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        stream_to_device(sim, models[i]);
    rn_device_destroy(sim);
}

// (COUNT, vocab); the caller frees. out_least: the smallest budget.
static float *compute_kind(const tiny_text *kind, rn_device *device, uint64_t budget,
                           uint64_t *out_least) {
    rn_text_options text = tiny_kind_options(13);
    int32_t tokens[COUNT];
    text.unquantised_activations = false;
    text_run *run = text_run_open_made(device, &kind->maker, &text, budget);
    const rn_plan_summary *plan = rn_plan_get_summary(run->plan);
    float *logits = malloc((size_t)COUNT * run->vocab * sizeof *logits);
    assert_true((budget != 0) == (plan->streamed_bytes > 0));
    *out_least = plan->smallest_bytes;
    make_tokens(tokens, run->vocab);
    text_run_logits(run, tokens, COUNT, logits);
    text_run_close(run);
    return logits;
}

static void quantised_models_say_the_same_on_a_device(void **state) {
    (void)state;
    rn_device *sim;
    assert_ok(rn_sim_device_create(NULL, &sim));
    sim->caps.fusions = RN_FUSE_ALL;
    for (size_t i = 0; i < TINY_KINDS; i += EACH) {
        tiny_text kind;
        uint64_t least;
        tiny_kind_open(&tiny_kinds[i], test_path(tiny_kinds[i].file), &kind);
        size_t bytes = (size_t)COUNT * kind.vocab * sizeof(float);
        float *plain = compute_kind(&kind, NULL, 0, &least);
        float *there = compute_kind(&kind, sim, 0, &least);
        float *streamed = compute_kind(&kind, sim, least, &least);
        if (memcmp(there, plain, bytes) != 0 || memcmp(streamed, plain, bytes) != 0)
            fail_msg("%s: the logits are others", tiny_kinds[i].file);
        free(plain);
        free(there);
        free(streamed);
        tiny_text_close(&kind);
    }
    rn_device_destroy(sim);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_model_gives_the_same_logits),
        cmocka_unit_test(every_kind_of_cache_gives_the_same_logits),
        cmocka_unit_test_setup(every_form_of_weights_gives_the_same_logits, test_make_folder),
        cmocka_unit_test(the_default_model_gives_the_same_logits),
        cmocka_unit_test(a_layer_is_five_nodes),
        cmocka_unit_test(products_with_additions_stand_alone),
        cmocka_unit_test(a_fused_graph_needs_no_more_memory),
        cmocka_unit_test(building_survives_refused_memory),
        cmocka_unit_test(places_and_norms_of_a_model_are_steady),
        cmocka_unit_test(training_is_never_fused),
        cmocka_unit_test(every_budget_tells_the_same_story),
        cmocka_unit_test(a_device_that_fuses_tells_the_same_story),
        cmocka_unit_test(models_from_files_stream_to_a_device),
        cmocka_unit_test(quantised_models_say_the_same_on_a_device),
    };
    return cmocka_run_group_tests(tests, open_tiny, close_tiny);
}

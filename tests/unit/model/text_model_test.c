// Opening text models: what they are, and what is wrong with them, by name.
#include "altered.h"

#include <ration/convert.h>
#include <ration/memory.h>
#include <ration/model.h>

#include "base/fault.h"
#include "text_run.h"

#include <math.h>
#include <unistd.h>

static const rn_model_options quiet = {.without_tokenizer = true};

static rn_status try_open(const char *path) {
    rn_model *model;
    rn_status s = rn_model_open(path, &quiet, &model);
    rn_model_close(model);
    return s;
}

// ---- what a model is ----------------------------------------------------------------------------

static void a_folder_tells_what_it_is(void **state) {
    (void)state;
    rn_model *model;
    assert_ok(rn_model_open(TEXT "llama3/", &quiet, &model));
    const rn_model_info *info = rn_model_get_info(model);
    assert_string_equal(info->name, "llama3");
    assert_string_equal(info->architecture, "llama");
    assert_string_equal(info->weights, "f16");
    assert_true(info->layers == 2 && info->dim == 32 && info->heads == 4 && info->kv_heads == 2);
    assert_true(info->head_dim == 16 && info->ffn == 64 && info->vocab_size == 128);
    assert_true(info->context == 64 && info->window == 0 && !info->tied_head);
    uint64_t layer = 32 * (64 + 32 + 32) + 64 * 32 + 3 * 64 * 32 + 2 * 32;
    assert_int_equal(info->parameters, 2 * 128 * 32 + 2 * layer + 32);
    assert_int_equal(info->weight_bytes, 2 * info->parameters);
    assert_null(rn_model_tokenizer(model));
    assert_int_equal(rn_model_chat_template(model).bytes, 0);
    rn_model_close(model);
}

static void a_gguf_file_tells_what_it_is(void **state) {
    (void)state;
    rn_model *model;
    assert_ok(rn_model_open(TEXT "mistral/model.gguf", &quiet, &model));
    const rn_model_info *info = rn_model_get_info(model);
    assert_string_equal(info->architecture, "llama");
    assert_true(info->head_dim == 12 && info->window == 11 && !info->tied_head);
    rn_model_close(model);
    assert_ok(rn_model_open(TEXT "qwen2/model.gguf", &quiet, &model));
    assert_true(rn_model_get_info(model)->tied_head);
    assert_string_equal(rn_model_get_info(model)->architecture, "qwen2");
    rn_model_close(model);
}

static void dtypes_are_named_by_their_bytes(void **state) {
    (void)state;
    const char *path = test_data_or_skip("llama/stories260K/stories260K.q4_0.gguf");
    rn_model *model;
    assert_ok(rn_model_open(path, &quiet, &model));
    // 172 is no multiple of 32: ffn_down stays f16
    assert_string_equal(rn_model_get_info(model)->weights, "q4_0 + f16");
    rn_model_close(model);
}

// ---- recipes ------------------------------------------------------------------------------------

static rn_graph *build(const rn_model *model, const rn_text_options *options, rn_recipe *recipe) {
    rn_graph *graph;
    assert_ok(rn_model_make_recipe(model, options, recipe));
    assert_ok(recipe->build(recipe->self, NULL, &graph));
    return graph;
}

static rn_shape shape_of(const rn_graph *graph, rn_role role, const char *name) {
    rn_value value = rn_graph_find(graph, role, name);
    assert_int_not_equal(value, RN_NO_VALUE);
    return rn_graph_value(graph, value)->shape;
}

static void a_recipe_has_the_defaults_that_the_header_names(void **state) {
    (void)state;
    rn_model *model;
    rn_recipe recipe;
    assert_ok(rn_model_open(TEXT "llama3", &quiet, &model));
    rn_graph *graph = build(model, NULL, &recipe);
    assert_string_equal(recipe.name, "llama3");
    assert_int_equal(recipe.rows, 64); // of a context of 64
    assert_int_equal(recipe.workload_rows, 64);
    assert_int_equal(recipe.decode_steps, 128);
    rn_shape kv = RN_SHAPE(1, 2, 2, 64, 16);
    assert_true(rn_shape_equal(shape_of(graph, RN_ROLE_STATE, "layers.1.kv"), kv));
    rn_value value = rn_graph_find(graph, RN_ROLE_STATE, "layers.0.kv");
    assert_int_equal(rn_graph_value(graph, value)->dtype, RN_DTYPE_F16);
    assert_true(rn_shape_equal(shape_of(graph, RN_ROLE_OUTPUT, "logits"), RN_SHAPE(1, 128)));
    rn_graph_destroy(graph);
    rn_recipe_destroy(&recipe);
    rn_model_close(model);
}

static void options_shape_the_graph(void **state) {
    (void)state;
    rn_model *model;
    rn_recipe recipe;
    assert_ok(rn_model_open(TEXT "llama3", &quiet, &model));
    rn_graph *graph = build(model,
                            &(rn_text_options){.context = 1000,
                                               .page_tokens = 16,
                                               .sequences = 3,
                                               .pages = 70,
                                               .kv_dtype = RN_DTYPE_F32,
                                               .rows = 100,
                                               .logit_rows = 5,
                                               .prompt_tokens = 7,
                                               .new_tokens = 9},
                            &recipe);
    assert_int_equal(recipe.rows, 100);
    assert_int_equal(recipe.workload_rows, 21);
    assert_int_equal(recipe.decode_steps, 9);
    assert_true(
        rn_shape_equal(shape_of(graph, RN_ROLE_STATE, "layers.0.kv"), RN_SHAPE(70, 2, 2, 16, 16)));
    assert_true(rn_shape_equal(shape_of(graph, RN_ROLE_INPUT, "page_table"), RN_SHAPE(3, 63)));
    assert_true(rn_shape_equal(shape_of(graph, RN_ROLE_OUTPUT, "logits"), RN_SHAPE(5, 128)));
    rn_graph_destroy(graph);
    rn_recipe_destroy(&recipe);
    rn_model_close(model);
}

static void options_that_make_no_sense_are_refused(void **state) {
    (void)state;
    rn_model *model;
    rn_recipe recipe;
    assert_ok(rn_model_open(TEXT "llama3", &quiet, &model));
    assert_fails(RN_INVALID,
                 rn_model_make_recipe(model, &(rn_text_options){.context = UINT32_MAX}, &recipe));
    assert_fails(RN_UNSUPPORTED,
                 rn_model_make_recipe(model, &(rn_text_options){.kv_dtype = RN_DTYPE_I8}, &recipe));
    assert_fails(RN_UNSUPPORTED,
                 rn_model_make_recipe(model, &(rn_text_options){.kv_dtype = RN_DTYPE_Q8_0},
                                      &recipe)); // heads of 16
    assert_null(recipe.self);
    rn_model_close(model);
}

static const rn_rope_attrs *find_rope(const rn_graph *graph) {
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++)
        if (rn_graph_node(graph, n)->op == RN_OP_ROPE) return rn_graph_node(graph, n)->attrs;
    fail_msg("no rope");
    return NULL;
}

// ---- files that are wrong -----------------------------------------------------------------------

#define WEIGHTS TEXT "llama3/model.safetensors"

// A folder with an altered copy of the model and its config.json.
static const char *altered_folder(const alteration *a) {
    alter(WEIGHTS, test_own_path("model.safetensors"), a);
    copy_file(TEXT "llama3/config.json", test_own_path("config.json"));
    return test_own_folder;
}

static void missing_and_misshaped_tensors_are_named(void **state) {
    (void)state;
    const char *q = "model.layers.1.self_attn.q_proj.weight";
    assert_fails(RN_NOT_FOUND, try_open(altered_folder(&(alteration){.drop = q})));
    assert_story(q);
    assert_fails(RN_NOT_FOUND, try_open(altered_folder(&(alteration){.drop = "lm_head.weight"})));
    assert_story("'lm_head.weight'");
    assert_fails(
        RN_NOT_FOUND,
        try_open(altered_folder(&(alteration){.rename = q, .as = "model.layers.1.self_attn.qq"})));
    assert_fails(RN_CORRUPT, try_open(altered_folder(&(alteration){.flatten = q})));
    assert_story(q);
    assert_story("(64, 32)");
    assert_string_equal(rn_last_error()->path, test_own_folder);
}

// llama3's configuration with one setting replaced.
static void write_config(const char *key, const char *value) {
    size_t bytes;
    char quoted[64], text[4096];
    char *good = test_read(TEXT "llama3/config.json", &bytes);
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    char *at = strstr(good, quoted);
    assert_non_null(at);
    char *end = at + strcspn(at, ",\n");
    snprintf(text, sizeof text, "%.*s%s %s%.*s", (int)(at - good), good, quoted, value,
             (int)(good + bytes - end), end);
    write_text(test_own_path("config.json"), text);
    free(good);
}

static void superfluous_tensors_are_named_unless_they_are_harmless(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bool harmless;
    } cases[] = {{"lm_head.weight", true}, // of a tied head
                 {"model.layers.0.self_attn.rotary_emb.inv_freq", true},
                 {"model.layers.0.self_attn.q_proj.bias", false},
                 {"model.layers.0.self_attn.rotary", false},
                 {"model.layers.2.mlp.up_proj.weight", false}};
    write_config("tie_word_embeddings", "true");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        alter(WEIGHTS, test_own_path("model.safetensors"),
              &(alteration){.rename = "lm_head.weight", .as = cases[i].name});
        assert_fails(cases[i].harmless ? RN_OK : RN_CORRUPT, try_open(test_own_folder));
        if (!cases[i].harmless) assert_story(cases[i].name);
    }
}

static void configurations_of_other_models_are_refused(void **state) {
    (void)state;
    copy_file(WEIGHTS, test_own_path("model.safetensors"));
    copy_file(TEXT "qwen3/config.json", test_own_path("config.json"));
    assert_fails(RN_NOT_FOUND, try_open(test_own_folder));
    assert_story("self_attn.q_norm.weight");
    copy_file(TEXT "mistral/config.json", test_own_path("config.json"));
    assert_fails(RN_CORRUPT, try_open(test_own_folder)); // head_dim 12
    assert_story("self_attn.q_proj.weight");
    unlink(test_own_path("config.json"));
    assert_fails(RN_NOT_FOUND, try_open(test_own_folder));
    assert_non_null(strstr(rn_last_error()->hint, "config.json"));
}

// One setting replaced by hostile values.
static void hostile_settings_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *key, *value, *part;
    } cases[] = {
        {"num_hidden_layers", "0", "layers"},
        {"num_hidden_layers", "1000000000", "1000000000 layers"},
        {"num_hidden_layers", "1", "model.layers.1."},
        {"num_hidden_layers", "-2", "num_hidden_layers"},
        {"num_hidden_layers", "\"2\"", "num_hidden_layers"},
        {"num_attention_heads", "0", "heads"},
        {"num_attention_heads", "3", "heads"},
        {"num_attention_heads", "4294967295", "heads"},
        {"num_key_value_heads", "0", "kv heads"},
        {"num_key_value_heads", "3", "kv heads"},
        {"num_key_value_heads", "4", "k_proj"},
        {"hidden_size", "4294967295", "width"},
        {"hidden_size", "64", "embed_tokens"},
        {"head_dim", "0", "head"},
        {"head_dim", "15", "15"},
        {"intermediate_size", "63", "gate_proj"},
        {"intermediate_size", "0", "feed-forward"},
        {"vocab_size", "129", "embed_tokens"},
        {"vocab_size", "0", "vocabulary"},
        {"rms_norm_eps", "0", "epsilon"},
        {"rms_norm_eps", "1e999", "rms_norm_eps"},
        {"max_position_embeddings", "0", "context"},
        {"attention_bias", "true", "q_proj.bias"},
        {"attention_bias", "1", "attention_bias"},
    };
    copy_file(WEIGHTS, test_own_path("model.safetensors"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_config(cases[i].key, cases[i].value);
        rn_status s = try_open(test_own_folder);
        if (s == RN_OK) fail_msg("%s may be %s", cases[i].key, cases[i].value);
        if (s != RN_CORRUPT && s != RN_NOT_FOUND)
            fail_msg("%s: %s: %s", cases[i].key, rn_status_name(s), rn_last_error()->message);
        assert_story(cases[i].part);
    }
}

static void hostile_metadata_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint64_t value;
        const char *part;
    } cases[] = {
        {"llama.block_count", 0, "layers"},
        {"llama.block_count", 1000000000, "layers"},
        {"llama.attention.head_count", 0, "heads"},
        {"llama.embedding_length", UINT32_MAX, "width"},
        {"llama.attention.key_length", 18, "values of 16"},
        {"llama.rope.dimension_count", 8, "turns 8"},
        {"llama.expert_count", 8, "expert_used_count"},
        {"split.count", 3, "3 parts"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        alter(TEXT "llama3/model.gguf", test_own_path("m.gguf"),
              &(alteration){.metadata_key = cases[i].key,
                            .metadata = {.kind = RN_METADATA_U64,
                                         .gguf_type = 4,
                                         .value.u64 = cases[i].value}});
        rn_status s = try_open(test_own_path("m.gguf"));
        assert_true(s == RN_CORRUPT || s == RN_UNSUPPORTED);
        assert_story(cases[i].part);
    }
    alter(TEXT "llama3/model.gguf", test_own_path("m.gguf"),
          &(alteration){.drop = "blk.1.ffn_up.weight"});
    assert_fails(RN_NOT_FOUND, try_open(test_own_path("m.gguf")));
    assert_story("'blk.1.ffn_up.weight'");
    alter(TEXT "llama3/model.gguf", test_own_path("m.gguf"),
          &(alteration){.drop = "token_embd.weight"});
    assert_fails(RN_CORRUPT, try_open(test_own_path("m.gguf")));
    assert_story("token_embd.weight");
}

// Keys that make a whole configuration, of another model than the tensors are.
static void keys_that_contradict_tensors_are_named(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint64_t value;
        const char *tensor;
    } cases[] = {
        {"llama.block_count", 1, "'blk.1."},
        {"llama.feed_forward_length", 96, "'blk.0.ffn_gate.weight'"},
        {"llama.attention.head_count_kv", 4, "'blk.0.attn_k.weight'"},
        {"llama.attention.head_count", 2, "'blk.0.attn_q.weight'"},
        {"llama.embedding_length", 64, "'token_embd.weight'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        alter(TEXT "llama3/model.gguf", test_own_path("m.gguf"),
              &(alteration){.metadata_key = cases[i].key,
                            .metadata = {.kind = RN_METADATA_U64,
                                         .gguf_type = 4,
                                         .value.u64 = cases[i].value}});
        assert_fails(RN_CORRUPT, try_open(test_own_path("m.gguf")));
        assert_story(cases[i].tensor);
        assert_string_equal(rn_last_error()->path, test_own_path("m.gguf"));
        assert_true(rn_last_error()->offset > 0);
        if (!strstr(rn_last_error()->hint, "keys (llama.*) contradict its tensors"))
            fail_msg("%s: the hint is '%s'", cases[i].key, rn_last_error()->hint);
    }
}

static void put_metadata(const char *key, rn_metadata value) {
    alter(TEXT "qwen3/model.gguf", test_own_path("m.gguf"),
          &(alteration){.metadata_key = key, .metadata = value});
}

// A factor without a type is linear.
static void the_scaling_of_rope_is_read_from_metadata(void **state) {
    (void)state;
    static const char *const keys[] = {"qwen3.rope.scaling.factor", "qwen3.rope.scale_linear"};
    for (int i = 0; i < 2; i++) {
        rn_model *model;
        rn_recipe recipe;
        put_metadata(keys[i],
                     (rn_metadata){.kind = RN_METADATA_F64, .gguf_type = 6, .value.f64 = 4});
        assert_ok(rn_model_open(test_own_path("m.gguf"), &quiet, &model));
        rn_graph *graph = build(model, NULL, &recipe);
        assert_int_equal(find_rope(graph)->scaling, RN_ROPE_LINEAR);
        assert_true(find_rope(graph)->factor == 4);
        assert_int_equal(find_rope(graph)->pairing, RN_ROPE_HALVES);
        rn_graph_destroy(graph);
        rn_recipe_destroy(&recipe);
        rn_model_close(model);
    }
    put_metadata(
        "qwen3.rope.scaling.type",
        (rn_metadata){.kind = RN_METADATA_TEXT, .gguf_type = 8, .text = RN_STR("longrope")});
    assert_fails(RN_UNSUPPORTED, try_open(test_own_path("m.gguf")));
    assert_story("'longrope'");
    put_metadata("general.architecture",
                 (rn_metadata){.kind = RN_METADATA_TEXT, .gguf_type = 8, .text = RN_STR("gemma")});
    assert_fails(RN_UNSUPPORTED, try_open(test_own_path("m.gguf")));
    assert_story("'gemma'");
    assert_string_equal(rn_last_error()->path, test_own_path("m.gguf"));
}

static void truncated_files_are_refused(void **state) {
    (void)state;
    static const char *const files[] = {WEIGHTS, TEXT "llama3/model.gguf"};
    static const char *const names[] = {"model.safetensors", "m.gguf"};
    copy_file(TEXT "llama3/config.json", test_own_path("config.json"));
    for (int i = 0; i < 2; i++) {
        size_t bytes;
        char *data = test_read(files[i], &bytes);
        for (size_t part = 0; part < 16; part++) {
            test_write(test_own_path(names[i]), data, bytes * part / 16);
            rn_status s = try_open(test_own_path(names[i]));
            assert_true(s == RN_CORRUPT);
        }
        free(data);
    }
    write_text(test_own_path("config.json"), "{\"model_type\": \"lla");
    copy_file(WEIGHTS, test_own_path("model.safetensors"));
    assert_fails(RN_CORRUPT, try_open(test_own_folder));
    assert_non_null(strstr(rn_last_error()->path, "config.json"));
}

// ---- other forms --------------------------------------------------------------------------------

enum { COUNT = 40, VOCAB = 128 };

static void compute(const char *path, float *logits, bool plain) {
    int32_t tokens[COUNT];
    for (int i = 0; i < COUNT; i++)
        tokens[i] = (i * 37 + 5) % VOCAB;
    text_run *run = text_run_open(
        path, NULL,
        &(rn_text_options){.context = 64, .page_tokens = 8, .unquantised_activations = plain});
    text_run_logits(run, tokens, COUNT, logits);
    text_run_close(run);
}

static void shards_and_other_file_names_are_the_same_model(void **state) {
    (void)state;
    static float whole[COUNT * VOCAB], other[COUNT * VOCAB];
    const char *index = "{\"metadata\": {}, \"weight_map\": {";
    compute(TEXT "llama3", whole, false);
    alter(WEIGHTS, test_own_path("model-00001-of-00002.safetensors"),
          &(alteration){.only = "model.layers.*"});
    alter(WEIGHTS, test_own_path("model-00002-of-00002.safetensors"),
          &(alteration){.and_not = "model.layers.*"});
    rn_checkpoint *c;
    char text[8192];
    int length = snprintf(text, sizeof text, "%s", index);
    assert_ok(rn_checkpoint_open(WEIGHTS, &c));
    for (size_t i = 0; i < rn_checkpoint_count(c); i++) {
        rn_str name = rn_checkpoint_tensor(c, i)->name;
        length += snprintf(text + length, sizeof text - (size_t)length,
                           "%s\"%.*s\": \"model-0000%d-of-00002.safetensors\"", i ? ", " : "",
                           RN_STR_ARG(name), rn_str_starts(name, RN_STR("model.layers.")) ? 1 : 2);
    }
    rn_checkpoint_close(c);
    snprintf(text + length, sizeof text - (size_t)length, "}}");
    write_text(test_own_path("model.safetensors.index.json"), text);
    copy_file(TEXT "llama3/config.json", test_own_path("config.json"));
    compute(test_own_folder, other, false);
    assert_memory_equal(whole, other, sizeof whole);
    copy_file(WEIGHTS, test_own_path("another.safetensors"));
    compute(test_own_path("another.safetensors"), other, false);
    assert_memory_equal(whole, other, sizeof whole);
}

// As GPT-2 was first published: without the outer module's name, and with its causal mask.
static void gpt2_files_may_lack_the_outer_name(void **state) {
    (void)state;
    static float whole[COUNT * VOCAB], bare[COUNT * VOCAB];
    compute(TEXT "gpt2", whole, false);
    copy_file(TEXT "gpt2/config.json", test_own_path("config.json"));
    alter(TEXT "gpt2/model.safetensors", test_own_path("model.safetensors"),
          &(alteration){.strip = "transformer.",
                        .copy = "transformer.wpe.weight",
                        .copy_as = "h.0.attn.bias"});
    compute(test_own_folder, bare, false);
    assert_memory_equal(whole, bare, sizeof whole);
}

static void learned_positions_cannot_be_stretched(void **state) {
    (void)state;
    rn_model *model;
    rn_recipe recipe;
    assert_ok(rn_model_open(TEXT "gpt2", &quiet, &model));
    assert_fails(RN_INVALID,
                 rn_model_make_recipe(model, &(rn_text_options){.context = 65}, &recipe));
    assert_story("64 positions");
    rn_model_close(model);
}

// |a - b| / |a|, 2-norms.
static double share_of_error(const float *a, const float *b, size_t count) {
    double error = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)a[i] * (double)a[i];
    }
    return sqrt(error / size);
}

// As `ration convert` writes them. The bounds are of rounding: nonsense is off by more than 1.
static void quantised_safetensors_are_read(void **state) {
    (void)state;
    static float whole[COUNT * VOCAB], rounded[COUNT * VOCAB];
    static const struct {
        rn_dtype dtype;
        const char *name;
        double most;
    } forms[] = {{RN_DTYPE_INT8, "int8 + f16", 0.03}, {RN_DTYPE_INT4, "int4 + f16", 0.5},
                 {RN_DTYPE_NF4, "nf4 + f16", 0.5},    {RN_DTYPE_NF4_DQ, "nf4_dq + f16", 0.5},
                 {RN_DTYPE_BF16, "bf16", 0.02},       {RN_DTYPE_F8_E4M3, "f8_e4m3", 0.3}};
    compute(TEXT "llama3", whole, false);
    copy_file(TEXT "llama3/config.json", test_own_path("config.json"));
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const char *path = test_own_path("model.safetensors");
        rn_convert_result result;
        rn_model *model;
        assert_ok(rn_convert(WEIGHTS, path, &(rn_convert_options){.to = forms[i].dtype}, &result));
        assert_ok(rn_model_open(test_own_folder, &quiet, &model));
        assert_string_equal(rn_model_get_info(model)->weights, forms[i].name);
        rn_model_close(model);
        compute(test_own_folder, rounded, true);
        double difference = share_of_error(whole, rounded, COUNT * VOCAB);
        print_message("%s: off by %.2g of the logits\n", forms[i].name, difference);
        if (!(difference > 0 && difference <= forms[i].most))
            fail_msg("%s: off by %g", forms[i].name, difference);
    }
}

// Up to the trained context "dynamic" rope is the plain one; beyond it, that of the whole context.
static void dynamic_rope_depends_on_the_context(void **state) {
    (void)state;
    char *end, text[4096];
    size_t bytes;
    char *good = test_read(TEXT "llama3/config.json", &bytes);
    char *at = strstr(good, "\"rope_parameters\":");
    assert_non_null(at);
    end = strchr(at, '}') + 1;
    snprintf(text, sizeof text,
             "%.*s\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2.0}%.*s", (int)(at - good),
             good, (int)(good + bytes - end), end);
    free(good);
    write_text(test_own_path("config.json"), text);
    copy_file(WEIGHTS, test_own_path("model.safetensors"));
    rn_model *model;
    assert_ok(rn_model_open(test_own_folder, &quiet, &model));
    for (uint32_t context = 64; context <= 128; context += 64) {
        rn_recipe recipe;
        rn_graph *graph = build(model, &(rn_text_options){.context = context}, &recipe);
        const rn_rope_attrs *rope = find_rope(graph);
        assert_int_equal(rope->scaling, context == 64 ? RN_ROPE_UNSCALED : RN_ROPE_NTK);
        if (context == 128) assert_true(rope->factor == 3); // 2 * 128 / 64 - 1
        rn_graph_destroy(graph);
        rn_recipe_destroy(&recipe);
    }
    rn_model_close(model);
}

// ---- chat templates -----------------------------------------------------------------------------

static void assert_template(const char *expected) {
    rn_model *model;
    assert_ok(rn_model_open(test_own_folder, NULL, &model));
    rn_str text = rn_model_chat_template(model);
    assert_int_equal(text.bytes, strlen(expected));
    if (text.bytes) assert_memory_equal(text.data, expected, text.bytes);
    rn_model_close(model);
}

static void the_chat_template_is_found_in_every_place(void **state) {
    (void)state;
    altered_folder(&(alteration){0});
    assert_template("");
    write_text(test_own_path("tokenizer_config.json"), "{\"a\": [1], \"chat_template\": null}");
    assert_template("");
    write_text(test_own_path("tokenizer_config.json"),
               "{\"a\": {\"chat_template\": \"no\"}, \"chat_template\": \"{{ x }}\\n\"}");
    assert_template("{{ x }}\n");
    write_text(test_own_path("tokenizer_config.json"),
               "{\"chat_template\": [{\"template\": \"tools\", \"name\": \"tool_use\"}, "
               "{\"template\": \"plain\", \"name\": \"default\"}, {\"name\": \"rag\", "
               "\"template\": \"rag\"}]}");
    assert_template("plain");
    write_text(test_own_path("chat_template.jinja"), "of a file");
    assert_template("of a file");
    unlink(test_own_path("chat_template.jinja"));
    write_text(test_own_path("tokenizer_config.json"), "{\"chat_template\": 7}");
    rn_model *model;
    assert_fails(RN_CORRUPT, rn_model_open(test_own_folder, NULL, &model));
    assert_non_null(strstr(rn_last_error()->path, "tokenizer_config.json"));
}

static void a_gguf_file_brings_its_chat_template(void **state) {
    (void)state;
    rn_model *model;
    alter(TEXT "llama3/model.gguf", test_own_path("m.gguf"),
          &(alteration){
              .metadata_key = "tokenizer.chat_template",
              .metadata = {.kind = RN_METADATA_TEXT, .gguf_type = 8, .text = RN_STR("{{ y }}")}});
    assert_ok(rn_model_open(test_own_path("m.gguf"), NULL, &model));
    rn_str text = rn_model_chat_template(model);
    assert_true(rn_str_equal(text, RN_STR("{{ y }}")));
    rn_model_close(model);
}

// ---- tokenizers ---------------------------------------------------------------------------------

#define TOKENIZER(more)                                                                            \
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1" more "}, \"merges\": []}}"

static void a_tokenizer_comes_along_and_must_fit_the_vocabulary(void **state) {
    (void)state;
    rn_model *model;
    altered_folder(&(alteration){0});
    write_text(test_own_path("tokenizer.json"), TOKENIZER(""));
    assert_ok(rn_model_open(test_own_folder, NULL, &model));
    assert_int_equal(rn_tokenizer_get_info(rn_model_tokenizer(model))->vocab_size, 2);
    rn_model_close(model);
    assert_ok(rn_model_open(test_own_folder, &quiet, &model));
    assert_null(rn_model_tokenizer(model));
    rn_model_close(model);
    write_text(test_own_path("tokenizer.json"), TOKENIZER(", \"c\": 128"));
    assert_fails(RN_CORRUPT, rn_model_open(test_own_folder, NULL, &model));
    assert_story("129");
    assert_story("128");
    write_text(test_own_path("tokenizer.json"), "{");
    assert_fails(RN_CORRUPT, rn_model_open(test_own_folder, NULL, &model));
    assert_null(model);
}

static void another_tokenizer_may_be_named(void **state) {
    (void)state;
    rn_model *model;
    write_text(test_own_path("tokenizer.json"), TOKENIZER(""));
    assert_ok(rn_model_open(TEXT "llama3/model.gguf",
                            &(rn_model_options){.tokenizer_path = test_own_path("tokenizer.json")},
                            &model));
    assert_non_null(rn_model_tokenizer(model));
    rn_model_close(model);
    assert_fails(
        RN_NOT_FOUND,
        rn_model_open(TEXT "llama3", &(rn_model_options){.tokenizer_path = "nowhere"}, &model));
}

// ---- failing ------------------------------------------------------------------------------------

static void walk_faults(rn_fault kind, rn_status expected, const char *path) {
    const rn_adapter adapters[] = {{.path = TEXT "lora/one", .scale = 1},
                                   {.path = TEXT "lora/two", .scale = 1}};
    rn_model_options options = {.adapters = adapters, .adapter_count = 2};
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    bool fired = true;
    for (uint64_t n = 1; fired; n++) {
        rn_model *model;
        rn_fault_arm(kind, n);
        rn_status s = rn_model_open(path, &options, &model);
        fired = rn_fault_fired(kind);
        rn_fault_arm(kind, 0);
        assert_int_equal(s, fired ? expected : RN_OK);
        assert_int_equal(model == NULL, fired);
        rn_model_close(model);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
    }
}

static void a_failing_allocation_or_read_leaves_nothing(void **state) {
    (void)state;
    altered_folder(&(alteration){0});
    write_text(test_own_path("tokenizer_config.json"),
               "{\"chat_template\": [{\"name\": \"default\", \"template\": \"x\"}]}");
    walk_faults(RN_FAULT_ALLOC, RN_NO_MEMORY, test_own_folder);
    walk_faults(RN_FAULT_READ, RN_IO, test_own_folder);
    walk_faults(RN_FAULT_ALLOC, RN_NO_MEMORY, TEXT "llama3/model.gguf");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_tells_what_it_is),
        cmocka_unit_test(a_gguf_file_tells_what_it_is),
        cmocka_unit_test(dtypes_are_named_by_their_bytes),
        cmocka_unit_test(a_recipe_has_the_defaults_that_the_header_names),
        cmocka_unit_test(options_shape_the_graph),
        cmocka_unit_test(options_that_make_no_sense_are_refused),
        cmocka_unit_test_setup(missing_and_misshaped_tensors_are_named, test_make_folder),
        cmocka_unit_test_setup(superfluous_tensors_are_named_unless_they_are_harmless,
                               test_make_folder),
        cmocka_unit_test_setup(configurations_of_other_models_are_refused, test_make_folder),
        cmocka_unit_test_setup(hostile_settings_are_refused, test_make_folder),
        cmocka_unit_test_setup(hostile_metadata_is_refused, test_make_folder),
        cmocka_unit_test_setup(keys_that_contradict_tensors_are_named, test_make_folder),
        cmocka_unit_test_setup(the_scaling_of_rope_is_read_from_metadata, test_make_folder),
        cmocka_unit_test_setup(truncated_files_are_refused, test_make_folder),
        cmocka_unit_test_setup(shards_and_other_file_names_are_the_same_model, test_make_folder),
        cmocka_unit_test_setup(gpt2_files_may_lack_the_outer_name, test_make_folder),
        cmocka_unit_test(learned_positions_cannot_be_stretched),
        cmocka_unit_test_setup(quantised_safetensors_are_read, test_make_folder),
        cmocka_unit_test_setup(dynamic_rope_depends_on_the_context, test_make_folder),
        cmocka_unit_test_setup(the_chat_template_is_found_in_every_place, test_make_folder),
        cmocka_unit_test_setup(a_gguf_file_brings_its_chat_template, test_make_folder),
        cmocka_unit_test_setup(a_tokenizer_comes_along_and_must_fit_the_vocabulary,
                               test_make_folder),
        cmocka_unit_test_setup(another_tokenizer_may_be_named, test_make_folder),
        cmocka_unit_test_setup(a_failing_allocation_or_read_leaves_nothing, test_make_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

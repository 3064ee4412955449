// LoRA files: what they add to which weight, and what is wrong with them, by name.
#include "altered.h"

#include <ration/memory.h>
#include <ration/model.h>

#include "text_run.h"

#include <math.h>
#include <unistd.h>

#define ONE TEXT "lora/one/adapter_model.safetensors"
#define Q   "base_model.model.model.layers.0.self_attn.q_proj.lora_"

static rn_status open_with(const char *model_path, const char *adapter, float scale,
                           rn_model **out) {
    const rn_adapter adapters[] = {{.path = adapter, .scale = scale}};
    return rn_model_open(
        model_path,
        &(rn_model_options){.adapters = adapters, .adapter_count = 1, .without_tokenizer = true},
        out);
}

static rn_status try_adapter(const char *adapter) {
    rn_model *model;
    rn_status s = open_with(TEXT "llama3", adapter, 1, &model);
    rn_model_close(model);
    return s;
}

static const float *find(const rn_model *model, const char *name, size_t count) {
    rn_weight_source source = rn_model_weights(model);
    const float *found =
        source.find(source.self, name, RN_DTYPE_F32, (uint64_t)count * sizeof(float));
    assert_non_null(found);
    return found;
}

static void load(const char *path, const char *name, float *out, size_t count) {
    rn_checkpoint *c;
    assert_ok(rn_checkpoint_open(path, &c));
    assert_ok(
        rn_checkpoint_load(c, rn_checkpoint_find(c, name), RN_DTYPE_F32, out, count * sizeof *out));
    rn_checkpoint_close(c);
}

enum { RANK = 4, WIDE = 64, DIM = 32, HEAD = 16 };

// alpha / r is 2; what is not an adapter's tensor is not found.
static void the_scale_is_in_up(void **state) {
    (void)state;
    rn_model *model;
    float a[RANK * DIM], b[WIDE * RANK];
    load(ONE, Q "A.weight", a, RANK * DIM);
    load(ONE, Q "B.weight", b, WIDE * RANK);
    assert_ok(open_with(TEXT "llama3", TEXT "lora/one", 0.5f, &model));
    const char *weight = "lora.0.model.layers.0.self_attn.q_proj.weight";
    char name[96];
    snprintf(name, sizeof name, "%s.down", weight);
    assert_memory_equal(find(model, name, RANK * DIM), a, sizeof a);
    snprintf(name, sizeof name, "%s.up", weight);
    assert_memory_equal(find(model, name, WIDE * RANK), b, sizeof b); // 0.5 * 2
    rn_weight_source source = rn_model_weights(model);
    assert_null(source.find(source.self, name, RN_DTYPE_F32, 4));
    assert_null(source.find(source.self, "model.norm.weight", RN_DTYPE_F16, 2 * DIM));
    assert_non_null(source.checkpoint);
    rn_model_close(model);
}

static void rows_follow_the_order_of_a_gguf_file(void **state) {
    (void)state;
    rn_model *model;
    float b[WIDE * RANK];
    load(ONE, Q "B.weight", b, WIDE * RANK);
    assert_ok(open_with(TEXT "llama3/model.gguf", TEXT "lora/one", 0.5f, &model));
    const float *up = find(model, "lora.0.blk.0.attn_q.weight.up", WIDE * RANK);
    for (int head = 0; head < WIDE / HEAD; head++)
        for (int i = 0; i < HEAD; i++) { // pairs (i, i + 8) lie side by side
            int to = head * HEAD + 2 * (i % (HEAD / 2)) + i / (HEAD / 2);
            assert_memory_equal(up + to * RANK, b + (head * HEAD + i) * RANK, RANK * sizeof *b);
        }
    rn_model_close(model);
}

static void memory_is_charged_to_weights_and_given_back(void **state) {
    (void)state;
    uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS).now_bytes;
    rn_model *model;
    assert_ok(open_with(TEXT "llama3", TEXT "lora/one", 1, &model));
    // q (64, 32), k (32, 32) and down (32, 64) of two layers
    uint64_t expected = 2 * RANK * ((64 + 32) + (32 + 32) + (32 + 64)) * sizeof(float);
    assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS).now_bytes - before,
                     expected);
    rn_model_close(model);
    assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS).now_bytes, before);
}

// A file on its own has no alpha: its rank is taken, so that the scale is the caller's.
static void a_file_without_settings_has_the_scale_1(void **state) {
    (void)state;
    rn_model *model;
    float b[WIDE * RANK];
    load(ONE, Q "B.weight", b, WIDE * RANK);
    copy_file(ONE, test_own_path("adapter.safetensors"));
    assert_ok(open_with(TEXT "llama3", test_own_path("adapter.safetensors"), 1, &model));
    const float *up = find(model, "lora.0.model.layers.0.self_attn.q_proj.weight.up", WIDE * RANK);
    assert_memory_equal(up, b, sizeof b);
    rn_model_close(model);
}

static void what_is_wrong_is_named(void **state) {
    (void)state;
    static const struct {
        alteration what;
        rn_status status;
        const char *part;
    } cases[] = {
        {{.drop = Q "A.weight"}, RN_UNSUPPORTED, Q "B.weight' has no counterpart"},
        {{.flatten = Q "A.weight"}, RN_UNSUPPORTED, Q "A.weight' is no float matrix"},
        {{.rename = Q "A.weight", .as = "base_model.model.score.weight"},
         RN_UNSUPPORTED,
         "'base_model.model.score.weight' is not part of a LoRA"},
        {{.rename = Q "A.weight",
          .as = "base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight"},
         RN_UNSUPPORTED,
         "layers.7"},
        {{.rename = Q "A.weight", .as = "model.embed_tokens.lora_A.weight"},
         RN_UNSUPPORTED,
         "embed_tokens"},
        {{.rename = Q "B.weight", .as = "model.layers.0.mlp.up_proj.lora_A.weight"},
         RN_CORRUPT,
         "mlp.up_proj.lora_A.weight' is 64 x 4"},
        {{.only = "nothing"}, RN_CORRUPT, "no tensors"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        alter(ONE, test_own_path("adapter_model.safetensors"), &cases[i].what);
        assert_fails(cases[i].status, try_adapter(test_own_folder));
        assert_story(cases[i].part);
    }
    assert_fails(RN_NOT_FOUND, try_adapter(test_own_path("none")));
    rn_model *model;
    assert_fails(RN_INVALID, open_with(TEXT "llama3", ONE, NAN, &model));
}

static void settings_that_are_not_built_are_named(void **state) {
    (void)state;
    static const struct {
        const char *text;
        rn_status status;
        const char *part;
    } cases[] = {
        {"{\"peft_type\": \"IA3\"}", RN_UNSUPPORTED, "IA3"},
        {"{\"bias\": \"all\"}", RN_UNSUPPORTED, "'all'"},
        {"{\"use_dora\": true}", RN_UNSUPPORTED, "use_dora"},
        {"{\"fan_in_fan_out\": true}", RN_UNSUPPORTED, "fan_in_fan_out"},
        {"{\"alpha_pattern\": {\"q_proj(\": 3}}", RN_UNSUPPORTED, "q_proj("},
        {"{\"init_lora_weights\": \"pissa_niter_16\"}", RN_UNSUPPORTED, "pissa_niter_16"},
        {"{\"init_lora_weights\": \"loftq\"}", RN_UNSUPPORTED, "loftq"},
        {"{\"r\": 8}", RN_CORRUPT, "rank 4"},
        {"{\"r\": \"4\"}", RN_CORRUPT, "'r'"},
        {"{", RN_CORRUPT, "JSON"},
    };
    copy_file(ONE, test_own_path("adapter_model.safetensors"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(test_own_path("adapter_config.json"), cases[i].text);
        assert_fails(cases[i].status, try_adapter(test_own_folder));
        assert_story(cases[i].part);
    }
    write_text(test_own_path("adapter_config.json"), "{\"r\": 8, \"rank_pattern\": {\"q\": 4}}");
    assert_ok(try_adapter(test_own_folder));
}

// ---- a public adapter ---------------------------------------------------------------------------

// A file with the shapes of Llama 3 8B, of which only the header takes room.
static void write_8b(const char *folder) {
    static const struct {
        const char *name;
        uint64_t out, in;
    } parts[] = {{"input_layernorm", 4096, 0},     {"post_attention_layernorm", 4096, 0},
                 {"self_attn.q_proj", 4096, 4096}, {"self_attn.k_proj", 1024, 4096},
                 {"self_attn.v_proj", 1024, 4096}, {"self_attn.o_proj", 4096, 4096},
                 {"mlp.gate_proj", 14336, 4096},   {"mlp.up_proj", 14336, 4096},
                 {"mlp.down_proj", 4096, 14336}};
    size_t room = 1 << 17, length = 0;
    char *text = malloc(room), path[512];
    uint64_t at = 0, embedding = 128256ull * 4096 * 2;
    assert_non_null(text);
#define PUT(...) length += (size_t)snprintf(text + length, room - length, __VA_ARGS__)
    PUT("{\"model.norm.weight\": {\"dtype\": \"F16\", \"shape\": [4096], \"data_offsets\": [0, "
        "8192]}");
    at = 8192;
    for (int i = 0; i < 2; i++, at += embedding)
        PUT(", \"%s.weight\": {\"dtype\": \"F16\", \"shape\": [128256, 4096], \"data_offsets\": "
            "[%llu, %llu]}",
            i ? "lm_head" : "model.embed_tokens", (unsigned long long)at,
            (unsigned long long)(at + embedding));
    for (int layer = 0; layer < 32; layer++)
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            uint64_t in = parts[i].in, end = at + 2 * parts[i].out * (in ? in : 1);
            PUT(", \"model.layers.%d.%s.weight\": {\"dtype\": \"F16\", \"shape\": [%llu", layer,
                parts[i].name, (unsigned long long)parts[i].out);
            if (in) PUT(", %llu", (unsigned long long)in);
            PUT("], \"data_offsets\": [%llu, %llu]}", (unsigned long long)at,
                (unsigned long long)end);
            at = end;
        }
    PUT("}");
#undef PUT
    assert_true(length < room);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    FILE *file = fopen(path, "wb");
    uint64_t header = length;
    assert_non_null(file);
    assert_true(fwrite(&header, 8, 1, file) == 1 && fwrite(text, length, 1, file) == 1);
    fclose(file);
    assert_int_equal(truncate(path, (off_t)(8 + length + at)), 0);
    free(text);
    snprintf(path, sizeof path, "%s/config.json", folder);
    write_text(path, "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"intermediate_size\": "
                     "14336, \"num_hidden_layers\": 32, \"num_attention_heads\": 32, "
                     "\"num_key_value_heads\": 8, \"vocab_size\": 128256}");
}

static void a_public_adapter_in_mlx_form_is_read(void **state) {
    (void)state;
    const char *path = test_data_or_skip("llama/lora/discollama_lora_adapters.safetensors");
    enum { R = 8, IN = 4096, OUT = 1024 };
    static float a[IN * R], b[R * OUT];
    rn_model *model;
    write_8b(test_own_folder);
    load(path, "model.layers.30.self_attn.v_proj.lora_a", a, IN * R);
    load(path, "model.layers.30.self_attn.v_proj.lora_b", b, R * OUT);
    assert_ok(open_with(test_own_folder, path, 2, &model));
    const char *weight = "lora.0.model.layers.30.self_attn.v_proj.weight";
    char name[96];
    snprintf(name, sizeof name, "%s.down", weight);
    const float *down = find(model, name, R * IN); // (R, IN), (IN, R) in the file
    for (int r = 0; r < R; r++)
        for (int i = 0; i < IN; i++)
            assert_true(down[r * IN + i] == a[i * R + r]);
    snprintf(name, sizeof name, "%s.up", weight);
    const float *up = find(model, name, OUT * R);
    for (int o = 0; o < OUT; o++)
        for (int r = 0; r < R; r++)
            assert_true(up[o * R + r] == 2 * b[r * OUT + o]);
    rn_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_scale_is_in_up),
        cmocka_unit_test(rows_follow_the_order_of_a_gguf_file),
        cmocka_unit_test(memory_is_charged_to_weights_and_given_back),
        cmocka_unit_test_setup(a_file_without_settings_has_the_scale_1, test_make_folder),
        cmocka_unit_test_setup(what_is_wrong_is_named, test_make_folder),
        cmocka_unit_test_setup(settings_that_are_not_built_are_named, test_make_folder),
        cmocka_unit_test_setup(a_public_adapter_in_mlx_form_is_read, test_make_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

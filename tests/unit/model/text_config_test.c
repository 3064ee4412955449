// What config.json says: architectures, rope, windows, and what is refused by name.
#include "support.h"

#include "graph/rope_frequencies.h"
#include "model/text/text_config.h"

#include <math.h>

#define SIZES                                                                                      \
    "\"num_hidden_layers\": 4, \"hidden_size\": 64, \"intermediate_size\": 128, \"vocab_size\": "  \
    "100, \"num_attention_heads\": 4, \"max_position_embeddings\": 4096"

// {"model_type": type, sizes, more}
static rn_status read_config(const char *type, const char *more, rn_text_config *out) {
    char text[2048];
    rn_fields f;
    snprintf(text, sizeof text, "{\"model_type\": \"%s\", " SIZES "%s%s}", type,
             more[0] ? ", " : "", more);
    rn_fields_init(&f, "config.json");
    assert_ok(rn_fields_read_json(&f, rn_str_from(text)));
    rn_status s = rn_text_config_from_json(&f, out);
    rn_fields_free(&f);
    return s;
}

static void assert_story(const char *part) {
    if (!strstr(rn_last_error()->message, part))
        fail_msg("'%s' is not in '%s'", part, rn_last_error()->message);
}

static void what_is_not_said_has_defaults(void **state) {
    (void)state;
    rn_text_config c;
    assert_ok(read_config("llama", "", &c));
    assert_string_equal(c.architecture, "llama");
    assert_int_equal(c.llama.kv_heads, 4);
    assert_int_equal(c.llama.head_dim, 16);
    assert_int_equal(c.llama.window, 0);
    assert_int_equal(c.context, 4096);
    assert_true(c.llama.norm_eps == 1e-6f && c.llama.rope.base == 10000);
    assert_false(c.llama.tied || c.llama.qkv_bias || c.llama.output_bias || c.llama.qk_norm);
    assert_int_equal(c.llama.rope.scaling, RN_ROPE_UNSCALED);
}

static void architectures_differ_in_biases_and_norms(void **state) {
    (void)state;
    rn_text_config c;
    assert_ok(read_config("qwen2", "", &c));
    assert_true(c.llama.qkv_bias && !c.llama.output_bias && !c.llama.qk_norm);
    assert_ok(read_config("qwen3", "\"head_dim\": 128", &c));
    assert_true(!c.llama.qkv_bias && c.llama.qk_norm && c.llama.head_dim == 128);
    assert_ok(read_config("llama", "\"attention_bias\": true, \"mlp_bias\": true", &c));
    assert_true(c.llama.qkv_bias && c.llama.output_bias && c.llama.ffn_bias);
}

static void windows_are_where_the_model_has_them(void **state) {
    (void)state;
    rn_text_config c;
    assert_ok(read_config("mistral", "\"sliding_window\": 11", &c));
    assert_true(c.llama.window == 11 && c.llama.window_from == 0);
    assert_ok(read_config("mistral", "\"sliding_window\": null", &c));
    assert_int_equal(c.llama.window, 0);
    assert_ok(read_config("llama", "\"sliding_window\": 11", &c));
    assert_int_equal(c.llama.window, 0);
    assert_ok(read_config("qwen2", "\"sliding_window\": 11, \"use_sliding_window\": false", &c));
    assert_int_equal(c.llama.window, 0);
    assert_ok(read_config("qwen2",
                          "\"sliding_window\": 11, \"use_sliding_window\": true, "
                          "\"max_window_layers\": 3",
                          &c));
    assert_true(c.llama.window == 11 && c.llama.window_from == 3);
#define TYPES(a, b, c, d)                                                                          \
    "\"sliding_window\": 11, \"use_sliding_window\": true, \"layer_types\": [\"" a                 \
    "_attention\", \"" b "_attention\", \"" c "_attention\", \"" d "_attention\"]"
    assert_ok(read_config("qwen3", TYPES("full", "full", "sliding", "sliding"), &c));
    assert_int_equal(c.llama.window_from, 2);
    assert_ok(read_config("qwen3", TYPES("full", "full", "full", "full"), &c));
    assert_int_equal(c.llama.window_from, 4);
    assert_fails(RN_UNSUPPORTED,
                 read_config("qwen3", TYPES("sliding", "full", "sliding", "full"), &c));
    assert_story("layer 1");
}

#define GPT2 "\"n_layer\": 3, \"n_embd\": 48, \"n_head\": 6, \"n_positions\": 128"

static void gpt2_has_settings_of_its_own(void **state) {
    (void)state;
    rn_text_config c;
    assert_ok(read_config("gpt2", GPT2 ", \"n_inner\": null", &c));
    assert_string_equal(c.architecture, "gpt2");
    assert_true(c.llama.layers == 3 && c.llama.dim == 48 && c.llama.head_dim == 8);
    assert_true(c.llama.ffn == 4 * 48 && c.context == 128 && c.llama.positions == 128);
    assert_true(c.llama.tied && c.llama.kv_heads == 6 && c.llama.norm_eps == 1e-5f);
    assert_ok(read_config("gpt2", GPT2 ", \"n_inner\": 100, \"tie_word_embeddings\": false", &c));
    assert_true(c.llama.ffn == 100 && !c.llama.tied);
    assert_fails(RN_CORRUPT, read_config("gpt2", "", &c));
    assert_story("n_layer");
}

// The first spelling is transformers 4's.
static void gemma3_has_two_ropes_and_a_period_of_windows(void **state) {
    (void)state;
    rn_text_config c;
    assert_ok(read_config("gemma3_text",
                          "\"sliding_window\": 512, \"rope_theta\": 1000000, \"head_dim\": 256, "
                          "\"rope_local_base_freq\": 20000, \"query_pre_attn_scalar\": 100, "
                          "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8}",
                          &c));
    assert_string_equal(c.architecture, "gemma3");
    assert_true(c.llama.window == 512 && c.llama.window_period == 6 && c.llama.tied);
    assert_true(c.llama.rope.base == 1e6f && c.llama.rope.scaling == RN_ROPE_LINEAR);
    assert_true(c.llama.local_rope.base == 20000 && c.llama.local_rope.scaling == RN_ROPE_UNSCALED);
    assert_true(c.llama.embedding_scale == 8 && c.llama.attention_scale == 0.1f);
    assert_true(c.llama.norm_offset == 1 && c.llama.qk_norm);
    assert_int_equal(c.llama.activation, RN_ACTIVATION_GELU_TANH);
    assert_ok(read_config(
        "gemma3_text",
        TYPES("sliding", "full", "sliding",
              "full") ", \"rope_parameters\": "
                      "{\"full_attention\": {\"rope_type\": \"default\", \"rope_theta\": 500}, "
                      "\"sliding_attention\": {\"rope_theta\": 600}}",
        &c));
    assert_true(c.llama.window_period == 2 && c.llama.rope.base == 500 &&
                c.llama.local_rope.base == 600 && c.llama.attention_scale == 0);
    assert_ok(read_config("gemma3_text", TYPES("sliding", "sliding", "sliding", "sliding"), &c));
    assert_int_equal(c.llama.window_period, 0);
}

// null is no cap.
static void gemma2_has_caps_and_windows_in_every_other_layer(void **state) {
    (void)state;
    rn_text_config c;
    assert_ok(read_config("gemma2",
                          "\"sliding_window\": 4096, \"attn_logit_softcapping\": 50.0, "
                          "\"final_logit_softcapping\": 30.0, \"rope_theta\": 10000",
                          &c));
    assert_true(c.llama.score_cap == 50 && c.llama.logit_cap == 30 && !c.llama.qk_norm);
    assert_true(c.llama.window_period == 2 && c.llama.local_rope.base == 0 && c.llama.tied);
    assert_ok(read_config("gemma2", "\"sliding_window\": 8, \"attn_logit_softcapping\": null", &c));
    assert_true(c.llama.score_cap == 0 && c.llama.logit_cap == 0);
}

// As transformers 4 wrote them.
static void older_spellings_are_read(void **state) {
    (void)state;
    rn_text_config c;
    assert_ok(read_config("gpt_neox",
                          "\"rotary_pct\": 0.25, \"rotary_emb_base\": 20000, "
                          "\"layer_norm_eps\": 0.001, \"use_parallel_residual\": false",
                          &c));
    assert_true(c.llama.rope.dims == 4 && c.llama.rope.base == 20000 && !c.llama.parallel);
    assert_true(c.llama.qkv_bias && c.llama.ffn_bias && c.llama.norm_eps == 0.001f);
    assert_ok(read_config("cohere2", "\"sliding_window\": 64, \"sliding_window_pattern\": 3", &c));
    assert_true(c.llama.window_period == 3 && c.llama.unturned_period == 3 && c.llama.tied);
    assert_true(c.llama.logit_scale == 0.0625f && c.llama.rope.pairing == RN_ROPE_NEIGHBOURS);
    assert_ok(read_config("smollm3", "\"no_rope_layer_interval\": 2", &c));
    assert_int_equal(c.llama.unturned_period, 2);
    assert_ok(read_config("smollm3", "\"no_rope_layers\": [1, 1, 1, 1]", &c));
    assert_int_equal(c.llama.unturned_period, 0);
    assert_ok(read_config("olmo3", "\"sliding_window\": 8, \"rope_theta\": 500000", &c));
    assert_true(c.llama.window_period == 4 && c.llama.local_rope.base == 500000);
}

// The file of the 4B says no more than this.
static void gemma3_of_images_has_its_text_within(void **state) {
    (void)state;
    rn_text_config c;
    assert_ok(read_config("gemma3",
                          "\"text_config\": {\"hidden_size\": 2560, \"intermediate_size\": 10240, "
                          "\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 34, "
                          "\"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"linear\"}, "
                          "\"sliding_window\": 1024}, \"vision_config\": {\"hidden_size\": 1152}",
                          &c));
    const rn_llama_config *l = &c.llama;
    assert_true(l->layers == 34 && l->dim == 2560 && l->heads == 8 && l->kv_heads == 4);
    assert_true(l->head_dim == 256 && l->vocab == 262208 && c.context == 131072 && l->tied);
    assert_true(l->rope.base == 1e6f && l->rope.factor == 8 && l->local_rope.base == 1e4f);
    assert_true(l->window == 1024 && l->window_period == 6 && l->norm_offset == 1);
}

static void the_whole_says_whether_the_head_is_tied(void **state) {
    (void)state;
    rn_text_config c;
#define TEXT_CONFIG "\"text_config\": {" SIZES ", \"tie_word_embeddings\": false}"
    assert_ok(read_config("mistral3", TEXT_CONFIG, &c));
    assert_false(c.llama.tied);
    assert_ok(read_config("mistral3", TEXT_CONFIG ", \"tie_word_embeddings\": true", &c));
    assert_true(c.llama.tied);
}

static void falcon_has_few_heads_of_k(void **state) {
    (void)state;
    rn_text_config c;
    assert_ok(read_config("falcon", "", &c));
    assert_true(c.llama.kv_heads == 1 && !c.llama.two_norms && c.llama.ffn == 4 * 64);
    assert_ok(read_config("falcon", "\"multi_query\": false", &c));
    assert_int_equal(c.llama.kv_heads, 4);
    assert_ok(read_config("falcon", "\"new_decoder_architecture\": true, \"num_kv_heads\": 2", &c));
    assert_true(c.llama.kv_heads == 2 && c.llama.two_norms);
    assert_ok(read_config("falcon",
                          "\"new_decoder_architecture\": true, \"num_kv_heads\": 2, "
                          "\"num_ln_in_parallel_attn\": 1",
                          &c));
    assert_false(c.llama.two_norms);
}

static void scales_that_cannot_be_are_refused(void **state) {
    (void)state;
    rn_text_config c;
    assert_ok(read_config("granite", "\"logits_scaling\": 8, \"residual_multiplier\": 0.5", &c));
    assert_true(c.llama.logit_scale == 0.125f && c.llama.residual_scale == 0.5f);
    assert_true(c.llama.attention_scale == 1); // as GraniteConfig has it
    assert_fails(RN_CORRUPT, read_config("granite", "\"logits_scaling\": 0", &c));
    assert_story("logits_scaling");
    assert_fails(RN_CORRUPT, read_config("gpt_neox", "\"rotary_pct\": 1.5", &c));
    assert_story("rotary_pct");
    assert_fails(RN_UNSUPPORTED, read_config("phi3", "\"partial_rotary_factor\": 0", &c));
    assert_story("partial_rotary_factor");
    assert_fails(
        RN_CORRUPT,
        read_config("ministral3", "\"rope_parameters\": {\"llama_4_scaling_beta\": -1}", &c));
    assert_story("-1");
}

#define FACTORS(n) "\"" n "_factor\": [1, 1, 1, 1, 1.5, 1.5, 2, 2]"

// As transformers 4 wrote them: Phi-3's "su", and the original context beside the object.
static void longrope_has_two_tables(void **state) {
    (void)state;
    rn_text_config c;
    const char *original = "\"original_max_position_embeddings\": 1024";
    char text[512];
    snprintf(text, sizeof text, "%s, \"rope_scaling\": {\"type\": \"su\", %s, %s}", original,
             FACTORS("short"), FACTORS("long"));
    assert_ok(read_config("phi3", text, &c));
    assert_int_equal(c.long_from, 1024);
    assert_true(c.short_divisors[7] == 2 && c.long_divisors[4] == 1.5f);
    double expected = sqrt(1 + log(4) / log(1024));
    assert_true(fabs((double)c.llama.rope.attention_factor - expected) < 1e-6);
    snprintf(text, sizeof text, "%s, \"rope_scaling\": {\"type\": \"longrope\", %s}", original,
             FACTORS("short"));
    assert_fails(RN_CORRUPT, read_config("phi3", text, &c));
    assert_story("long_factor.0");
    snprintf(text, sizeof text, "\"rope_scaling\": {\"type\": \"longrope\", %s, %s}",
             FACTORS("short"), FACTORS("long"));
    assert_fails(RN_CORRUPT, read_config("phi3", text, &c));
    assert_story("original_max_position_embeddings");
}

static void rope_is_read_in_both_spellings(void **state) {
    (void)state;
    static const char *const texts[] = {
        "\"rope_theta\": 500000.0, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, "
        "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
        "\"original_max_position_embeddings\": 8192}",
        "\"rope_parameters\": {\"rope_theta\": 500000.0, \"rope_type\": \"llama3\", \"factor\": "
        "8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
        "\"original_max_position_embeddings\": 8192}"};
    for (int i = 0; i < 2; i++) {
        rn_text_config c;
        assert_ok(read_config("llama", texts[i], &c));
        const rn_rope_attrs *r = &c.llama.rope;
        assert_int_equal(r->scaling, RN_ROPE_LLAMA3);
        assert_true(r->base == 500000 && r->factor == 8 && r->low_frequency == 1 &&
                    r->high_frequency == 4 && r->original_context == 8192);
    }
}

static void every_scaling_of_rope_that_is_built_is_read(void **state) {
    (void)state;
    rn_text_config c;
    assert_ok(read_config("llama", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}", &c));
    assert_true(c.llama.rope.scaling == RN_ROPE_LINEAR && c.llama.rope.factor == 4);
    assert_ok(read_config("llama", "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}", &c));
    assert_true(c.llama.rope.scaling == RN_ROPE_UNSCALED && c.stretch == 2);
    assert_ok(read_config("qwen2",
                          "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, "
                          "\"original_max_position_embeddings\": 1024}",
                          &c));
    assert_true(c.llama.rope.scaling == RN_ROPE_YARN && c.llama.rope.factor == 4 &&
                c.llama.rope.original_context == 1024);
    assert_ok(read_config("llama",
                          "\"rope_scaling\": {\"type\": \"yarn\", "
                          "\"original_max_position_embeddings\": 512, \"mscale\": 1.0, "
                          "\"mscale_all_dim\": 0.5}",
                          &c));
    assert_true(c.llama.rope.factor == 8); // 4096 / 512
    double expected = (0.1 * log(8) + 1) / (0.05 * log(8) + 1);
    assert_true(fabs((double)c.llama.rope.attention_factor - expected) < 1e-6);
    assert_ok(read_config("llama", "\"rope_scaling\": {\"rope_type\": \"default\"}", &c));
    assert_int_equal(c.llama.rope.scaling, RN_ROPE_UNSCALED);
}

#define QUANTIZED(method, more)                                                                    \
    "\"quantization_config\": {\"quant_method\": \"" method "\", " more "}"

static void quantisation_is_read(void **state) {
    (void)state;
    rn_text_config c;
    assert_ok(read_config("llama", "", &c));
    assert_int_equal(c.quantization.method, RN_FORMS_NONE);
    assert_ok(read_config("llama",
                          QUANTIZED("gptq", "\"bits\": 8, \"group_size\": -1, \"sym\": true, "
                                            "\"checkpoint_format\": \"gptq_v2\""),
                          &c));
    assert_true(c.quantization.method == RN_FORMS_GPTQ && c.quantization.bits == 8);
    assert_true(c.quantization.group == 0 && c.quantization.symmetric);
    assert_true(c.quantization.zeros_are_true);
    assert_ok(read_config("llama", QUANTIZED("fp8", "\"weight_block_size\": [64, 32]"), &c));
    assert_true(c.quantization.tile[0] == 64 && c.quantization.tile[1] == 32);
    assert_fails(RN_CORRUPT, read_config("llama", QUANTIZED("awq", "\"group_size\": 0"), &c));
    assert_story("group_size cannot be 0");
    assert_fails(RN_CORRUPT, read_config("llama", "\"quantization_config\": {\"bits\": 4}", &c));
    assert_story("quant_method");
}

// EmbeddingGemma: files say the tokens to both sides of a row.
static void a_gemma_that_sees_both_ways_is_an_encoder(void **state) {
    (void)state;
    rn_text_config c;
    assert_ok(read_config("gemma3_text",
                          "\"use_bidirectional_attention\": true, \"sliding_window\": 12", &c));
    assert_string_equal(c.architecture, "gemma-embedding");
    assert_true(c.llama.both_ways && c.llama.window == 7);
}

#define GEMMA4(more) "\"hidden_size_per_layer_input\": 0, \"sliding_window\": 9, " more

// Heads of the layers that see all, where transformers and where older files say them.
static void gemma_4_has_heads_of_two_widths(void **state) {
    (void)state;
    rn_text_config c;
    assert_ok(read_config("gemma4_text",
                          GEMMA4("\"head_dim\": 8, \"global_head_dim\": 32, "
                                 "\"attention_k_eq_v\": true, \"num_global_key_value_heads\": 1"),
                          &c));
    assert_true(c.llama.head_dim == 8 && c.llama.full_head_dim == 32);
    assert_true(c.llama.full_kv_heads == 1 && c.llama.full_k_is_v);
    assert_true(c.llama.rope_divided && c.llama.rope_divisors[3] == 1);
    assert_true(c.llama.rope_divisors[4] > 1e29f && c.llama.rope_divisors[15] > 1e29f);
    assert_ok(read_config("gemma4_text",
                          GEMMA4("\"sliding_window_pattern\": 2, "
                                 "\"per_layer_config\": {\"1\": {\"head_dim\": 64}}"),
                          &c));
    assert_true(c.llama.full_head_dim == 64 && !c.llama.full_k_is_v);
    assert_fails(RN_CORRUPT, read_config("gemma4_text", GEMMA4("\"global_head_dim\": 0"), &c));
    assert_fails(RN_UNSUPPORTED,
                 read_config("gemma4_text", GEMMA4("\"global_head_dim\": 4096"), &c));
}

#define LATENT                                                                                     \
    "\"kv_lora_rank\": 32, \"qk_nope_head_dim\": 16, \"qk_rope_head_dim\": 8, "                    \
    "\"n_routed_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 16, "         \
    "\"v_head_dim\": "

// DeepSeek: one plane of keys, scores by whole heads and YARN's scale.
static void latent_attention_has_the_scale_of_whole_heads(void **state) {
    (void)state;
    rn_text_config c;
    assert_ok(read_config("deepseek_v3",
                          LATENT
                          "12, \"first_k_dense_replace\": 1, \"n_group\": 4, \"topk_group\": 2, "
                          "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40, "
                          "\"mscale\": 1, \"mscale_all_dim\": 1}",
                          &c));
    assert_true(c.llama.latent.kv_rank == 32 && c.llama.latent.q_rank == 0);
    assert_true(c.llama.kv_heads == 1 && c.llama.moe.choice_bias && c.llama.moe.route.groups == 4);
    assert_float_equal(c.llama.attention_scale, 1.3689 * 1.3689 / sqrt(24), 1e-4);
    assert_float_equal(c.llama.rope.attention_factor, 1, 1e-6);
    assert_true(c.llama.rope.pairing == RN_ROPE_NEIGHBOURS);
    assert_ok(read_config("glm4_moe_lite",
                          LATENT "12, \"rope_interleave\": false, \"mlp_layer_types\": [\"dense\", "
                                 "\"sparse\", \"sparse\", \"sparse\"]",
                          &c));
    assert_true(c.llama.rope.pairing == RN_ROPE_HALVES && c.llama.moe.dense_layers == 1);
    assert_fails(RN_CORRUPT, read_config("deepseek_v3", LATENT "0", &c));
    assert_fails(RN_UNSUPPORTED,
                 read_config("deepseek_v3", LATENT "12, \"moe_layer_freq\": 2", &c));
    assert_fails(RN_UNSUPPORTED,
                 read_config("deepseek_v2", LATENT "12, \"topk_method\": \"noaux\"", &c));
    assert_fails(RN_UNSUPPORTED,
                 read_config("glm4_moe_lite",
                             LATENT "12, \"mlp_layer_types\": [\"sparse\", \"dense\", \"sparse\", "
                                    "\"sparse\"]",
                             &c));
}

#define EXPERTS "\"num_local_experts\": 4, \"num_experts_per_tok\": 2"

static void gpt_oss_has_sinks_and_a_clamped_gate(void **state) {
    (void)state;
    rn_text_config c;
    assert_ok(read_config("gpt_oss",
                          EXPERTS ", \"sliding_window\": 9, \"swiglu_limit\": 3, \"rope_scaling\": "
                                  "{\"rope_type\": \"yarn\", \"factor\": 32, \"truncate\": false}",
                          &c));
    assert_true(c.llama.sinks && c.llama.rope.untruncated && c.llama.qkv_bias);
    assert_true(c.llama.window == 9 && c.llama.window_period == 2);
    assert_true(c.llama.glu_limit == 3 && c.llama.glu_slope > 1.7f);
    assert_true(c.llama.moe.route.gating == RN_GATING_SOFTMAX_CHOSEN);
    assert_fails(RN_CORRUPT, read_config("gpt_oss", EXPERTS ", \"swiglu_alpha\": 0", &c));
    assert_story("SwiGLU");
}

static void what_is_not_built_is_named(void **state) {
    (void)state;
    static const struct {
        const char *type, *more, *part;
    } cases[] = {
        {"bloom", "", "'bloom'"},
        {"dbrx", "", "'dbrx'"},
        {"llama", "\"hidden_act\": \"gelu\"", "'gelu'"},
        {"llama", "\"num_local_experts\": 8", "num_local_experts"},
        {"llama", "\"partial_rotary_factor\": 0.5", "partial_rotary_factor"},
        {"llama", "\"rope_scaling\": {\"type\": \"longrope\"}", "'longrope'"},
        {"llama", "\"rope_parameters\": {\"full_attention\": {}}", "layer to layer"},
        {"gpt_neox", "\"hidden_act\": \"mish\"", "'mish'"},
        {"falcon", "\"alibi\": true", "alibi"},
        {"falcon", "\"parallel_attn\": false", "parallel_attn"},
        {"cohere2", TYPES("sliding", "full", "full", "sliding"), "layer 2"},
        {"smollm3", "\"no_rope_layers\": [1, 0, 0, 1]", "layer 2"},
        {"gpt2", "\"activation_function\": \"relu\"", "'relu'"},
        {"gpt2", "\"scale_attn_by_inverse_layer_idx\": true", "scale_attn_by_inverse_layer_idx"},
        {"gpt2", "\"scale_attn_weights\": false", "scale_attn_weights"},
        {"gemma3_text", TYPES("sliding", "full", "full", "sliding"), "layer 2"},
        {"gemma4_text", "", "embeddings of each layer"},
        {"gemma4_text", GEMMA4("\"num_kv_shared_layers\": 2"), "share keys"},
        {"gemma4_text", GEMMA4("\"use_bidirectional_attention\": \"all\""), "comes later"},
        {"gemma4_text", GEMMA4("\"sliding_window_pattern\": 0"), "both kinds"},
        {"gemma4_text",
         GEMMA4("\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"yarn\"}}"), "'yarn'"},
        {"llama", QUANTIZED("hqq", "\"nbits\": 4"), "'hqq'"},
        {"llama", QUANTIZED("gptq", "\"checkpoint_format\": \"marlin\""), "'marlin'"},
        {"llama", QUANTIZED("awq", "\"version\": \"gemv\""), "'gemv'"},
        {"llama", QUANTIZED("fp8", "\"fmt\": \"e5m2\""), "'e5m2'"},
        {"llama", QUANTIZED("compressed-tensors", "\"format\": \"marlin-24\""), "'marlin-24'"},
        {"llama", QUANTIZED("compressed-tensors", "\"transform_config\": {\"u\": 1}"), "rotations"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_text_config c;
        assert_fails(RN_UNSUPPORTED, read_config(cases[i].type, cases[i].more, &c));
        assert_story(cases[i].part);
    }
    rn_text_config c;
    assert_fails(RN_CORRUPT, read_config("llama", "\"rope_scaling\": {\"type\": \"linear\"}", &c));
    assert_story("rope_scaling.factor");
}

// The list is the table's own.
static void an_unknown_architecture_has_a_nearest_one(void **state) {
    (void)state;
    static const struct {
        const char *name, *hint;
        rn_naming naming;
    } cases[] = {
        {"qwen3vl", "the nearest is qwen3;", RN_NAMES_GGUF},
        {"gemma3n", "the nearest is gemma3;", RN_NAMES_HUGGING_FACE},
        {"gpt-neox", "the nearest is gpt_neox;", RN_NAMES_HUGGING_FACE},
        {"", "known are llama (TinyLlama, SmolLM), mistral, ", RN_NAMES_GGUF},
        {"a name that is longer than all names of architectures are", "falcon", RN_NAMES_GGUF},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const rn_text_architecture *found = NULL;
        assert_fails(RN_UNSUPPORTED, rn_text_architecture_find(rn_str_from(cases[i].name),
                                                               cases[i].naming, &found));
        if (!strstr(rn_last_error()->hint, cases[i].hint))
            fail_msg("'%s' is not in '%s'", cases[i].hint, rn_last_error()->hint);
    }
}

static void impossible_numbers_are_refused(void **state) {
    (void)state;
    rn_text_config good, c;
    assert_ok(read_config("llama", "", &good));
    assert_ok(rn_text_config_check(&good, 4 * 9 + 3));
    assert_fails(RN_CORRUPT, rn_text_config_check(&good, 4 * 6 - 1));
#define REFUSES(field, value)                                                                      \
    do {                                                                                           \
        c = good;                                                                                  \
        c.field = value;                                                                           \
        assert_fails(RN_CORRUPT, rn_text_config_check(&c, 1000));                                  \
    } while (0)
    REFUSES(llama.layers, 0);
    REFUSES(llama.layers, 1000000000);
    REFUSES(llama.dim, 0);
    REFUSES(llama.dim, UINT32_MAX);
    REFUSES(llama.ffn, UINT32_MAX);
    REFUSES(llama.heads, UINT32_MAX);
    REFUSES(llama.kv_heads, 0);
    REFUSES(llama.head_dim, 0);
    REFUSES(llama.head_dim, 1 << 23);
    REFUSES(llama.vocab, 0);
    REFUSES(llama.vocab, UINT32_MAX);
    REFUSES(llama.norm_eps, 0);
    REFUSES(llama.norm_eps, NAN);
    REFUSES(context, 0);
}

// ---- GGUF's divisors ----------------------------------------------------------------------------

static void divide(const rn_rope_attrs *rope, uint32_t dims, float *out /* (dims / 2) */) {
    double scaled[64], plain[64], factor = 0;
    rn_rope_attrs unscaled = {.base = rope->base};
    rn_rope_frequencies(rope, dims, scaled, &factor);
    rn_rope_frequencies(&unscaled, dims, plain, &factor);
    for (uint32_t i = 0; i < dims / 2; i++)
        out[i] = (float)(plain[i] / scaled[i]);
}

static void divisors_release_the_scaling_that_made_them(void **state) {
    (void)state;
    static const struct {
        float base, factor;
        uint32_t dims, context;
    } cases[] = {{500000, 8, 128, 8192},  // Llama 3.1
                 {500000, 32, 64, 8192},  // Llama 3.2
                 {500000, 32, 128, 8192}, //
                 {10000, 4, 32, 2048}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_rope_attrs made = {.scaling = RN_ROPE_LLAMA3,
                              .base = cases[i].base,
                              .factor = cases[i].factor,
                              .low_frequency = 1,
                              .high_frequency = 4,
                              .original_context = cases[i].context};
        rn_rope_attrs found = {.base = cases[i].base};
        float divisors[64];
        divide(&made, cases[i].dims, divisors);
        assert_ok(rn_rope_from_divisors(divisors, cases[i].dims, &found));
        assert_int_equal(found.scaling, RN_ROPE_LLAMA3);
        assert_int_equal(found.original_context, cases[i].context);
        assert_true(fabsf(found.factor - cases[i].factor) < 1e-4f);
    }
}

static void divisors_of_one_and_of_no_kind(void **state) {
    (void)state;
    float ones[4] = {1, 1, 1, 1}, all[4] = {8, 8, 8, 8}, step[4] = {1, 1, 8, 8},
          odd[4] = {1, 5, 2, 8}, below[4] = {1, 1, 0.5f, 1}, nan[4] = {1, NAN, 1, 1};
    rn_rope_attrs r = {.base = 10000};
    assert_ok(rn_rope_from_divisors(ones, 8, &r));
    assert_int_equal(r.scaling, RN_ROPE_UNSCALED);
    assert_ok(rn_rope_from_divisors(all, 8, &r));
    assert_ok(rn_rope_from_divisors(step, 8, &r));
    assert_fails(RN_UNSUPPORTED, rn_rope_from_divisors(odd, 8, &r));
    assert_story("rope_freqs.weight");
    assert_fails(RN_UNSUPPORTED, rn_rope_from_divisors(below, 8, &r));
    assert_fails(RN_UNSUPPORTED, rn_rope_from_divisors(nan, 8, &r));
}

// Published files of nomic-embed-text have GPT-2's spelling, those of ModernBERT a few names of
// before transformers 5; BERT's relatives count positions from behind the padding.
static void encoders_have_older_spellings(void **state) {
    static const char nomic[] =
        "\"n_embd\": 48, \"n_head\": 3, \"n_inner\": 80, \"n_layer\": 2, \"n_positions\": 8192, "
        "\"max_trained_positions\": 2048, \"rotary_emb_base\": 1000, \"prenorm\": false, "
        "\"activation_function\": \"swiglu\", \"rotary_emb_fraction\": 1.0";
    rn_text_config c;
    (void)state;
    assert_ok(read_config("nomic_bert", nomic, &c));
    assert_true(c.llama.dim == 48 && c.llama.heads == 3 && c.llama.ffn == 80);
    assert_true(c.llama.layers == 2 && c.context == 2048 && c.llama.rope.base == 1000);
    assert_true(c.llama.both_ways && c.llama.token_types == 2 && c.llama.positions == 0);
    assert_fails(RN_UNSUPPORTED,
                 read_config("nomic_bert", "\"n_embd\": 48, \"prenorm\": true", &c));
    assert_story("prenorm");
    assert_ok(read_config("modernbert",
                          "\"global_rope_theta\": 160000, \"local_rope_theta\": 10000, "
                          "\"local_attention\": 128, \"global_attn_every_n_layers\": 3",
                          &c));
    assert_true(c.llama.rope.base == 160000 && c.llama.local_rope.base == 10000);
    assert_true(c.llama.window == 65 && c.llama.window_period == 3 && c.llama.window_behind);
    assert_ok(read_config("xlm-roberta", "\"pad_token_id\": 1", &c));
    assert_true(c.llama.positions == 4096 && c.llama.first_position == 2 && c.context == 4094);
    assert_fails(RN_CORRUPT, read_config("mpnet", "\"pad_token_id\": 4095", &c));
    assert_fails(RN_CORRUPT, read_config("mpnet", "\"relative_attention_num_buckets\": 30", &c));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_said_has_defaults),
        cmocka_unit_test(architectures_differ_in_biases_and_norms),
        cmocka_unit_test(windows_are_where_the_model_has_them),
        cmocka_unit_test(gpt2_has_settings_of_its_own),
        cmocka_unit_test(gemma3_has_two_ropes_and_a_period_of_windows),
        cmocka_unit_test(gemma2_has_caps_and_windows_in_every_other_layer),
        cmocka_unit_test(older_spellings_are_read),
        cmocka_unit_test(gemma3_of_images_has_its_text_within),
        cmocka_unit_test(the_whole_says_whether_the_head_is_tied),
        cmocka_unit_test(falcon_has_few_heads_of_k),
        cmocka_unit_test(scales_that_cannot_be_are_refused),
        cmocka_unit_test(longrope_has_two_tables),
        cmocka_unit_test(rope_is_read_in_both_spellings),
        cmocka_unit_test(every_scaling_of_rope_that_is_built_is_read),
        cmocka_unit_test(quantisation_is_read),
        cmocka_unit_test(a_gemma_that_sees_both_ways_is_an_encoder),
        cmocka_unit_test(gemma_4_has_heads_of_two_widths),
        cmocka_unit_test(gpt_oss_has_sinks_and_a_clamped_gate),
        cmocka_unit_test(latent_attention_has_the_scale_of_whole_heads),
        cmocka_unit_test(what_is_not_built_is_named),
        cmocka_unit_test(an_unknown_architecture_has_a_nearest_one),
        cmocka_unit_test(impossible_numbers_are_refused),
        cmocka_unit_test(divisors_release_the_scaling_that_made_them),
        cmocka_unit_test(divisors_of_one_and_of_no_kind),
        cmocka_unit_test(encoders_have_older_spellings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

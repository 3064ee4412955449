// What config.json says of models with states: which layers have them, their sizes, and what is
// refused by name.
#include "support.h"

#include "model/text/text_config.h"

static rn_status read_config(const char *text, rn_text_config *out) {
    rn_fields f;
    rn_fields_init(&f, "config.json");
    assert_ok(rn_fields_read_json(&f, rn_str_from(text)));
    rn_status s = rn_text_config_from_json(&f, out);
    rn_fields_free(&f);
    return s;
}

// Those of LFM2-1.2B and -350M: the width of the feed-forward is found from another number, and
// the layers that attend are listed.
#define LFM2(dim, ffn, more)                                                                       \
    "{\"model_type\": \"lfm2\", \"num_hidden_layers\": 16, \"hidden_size\": " dim                  \
    ", \"intermediate_size\": 1, \"block_ff_dim\": " ffn ", \"block_auto_adjust_ff_dim\": true, "  \
    "\"block_ffn_dim_multiplier\": 1.0, \"block_multiple_of\": 256, \"vocab_size\": 65536, "       \
    "\"num_attention_heads\": 16, \"num_key_value_heads\": 8, \"conv_L_cache\": 3, "               \
    "\"norm_eps\": 1e-05, \"rope_theta\": 1000000.0, " more "}"
#define ATTEND "\"full_attn_idxs\": [2, 5, 8, 10, 12, 14]"

static void lfm2_lists_the_layers_that_attend(void **state) {
    (void)state;
    rn_text_config c;
    assert_ok(read_config(LFM2("2048", "12288", ATTEND), &c));
    assert_int_equal(8192, c.llama.ffn);
    assert_int_equal(3, c.llama.recurrent.taps);
    assert_int_equal(0xffff & ~(1 << 2 | 1 << 5 | 1 << 8 | 1 << 10 | 1 << 12 | 1 << 14),
                     c.llama.recurrent.layers[0]);
    assert_true(c.llama.tied && c.llama.qk_norm && c.llama.rope.base == 1e6f);
    assert_ok(read_config(LFM2("1024", "6656", ATTEND), &c));
    assert_int_equal(4608, c.llama.ffn);
}

#define QWEN                                                                                       \
    "\"num_hidden_layers\": 8, \"hidden_size\": 64, \"intermediate_size\": 128, "                  \
    "\"vocab_size\": 100, \"num_attention_heads\": 4, \"head_dim\": 64"

static void qwen35_attends_in_every_fourth_layer(void **state) {
    (void)state;
    rn_text_config c;
    assert_ok(read_config("{\"model_type\": \"qwen3_5_text\", " QWEN "}", &c));
    assert_int_equal(0x77, c.llama.recurrent.layers[0]);
    assert_int_equal(16, c.llama.rope.dims);
    assert_false(c.llama.recurrent.keys_in_turn);
    assert_true(c.llama.norm_offset == 1);
    assert_ok(
        read_config("{\"model_type\": \"qwen3_5\", \"hidden_size\": 7, \"text_config\": {" QWEN
                    ", \"full_attention_interval\": 2, \"rope_parameters\": "
                    "{\"partial_rotary_factor\": 0.5, \"rope_theta\": 1e7}}}",
                    &c));
    assert_int_equal(0x55, c.llama.recurrent.layers[0]);
    assert_int_equal(64, c.llama.dim);
    assert_int_equal(32, c.llama.rope.dims);
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *words;
        rn_status status;
    } cases[] = {
        {LFM2("2048", "12288", "\"full_attn_idxs\": [2, 16]"), "cannot be 16", RN_CORRUPT},
        {LFM2("2048", "12288", "\"x\": 1"), "layer_types.0", RN_CORRUPT},
        {LFM2("2048", "12288", "\"conv_bias\": true, " ATTEND), "conv_bias", RN_UNSUPPORTED},
        {LFM2("2048", "1", ATTEND), "feed-forward of 0", RN_CORRUPT},
        {"{\"model_type\": \"qwen3_5_text\", " QWEN ", \"linear_num_key_heads\": 3}",
         "3 key heads of 128 and 32 value heads", RN_CORRUPT},
        {"{\"model_type\": \"qwen3_5_text\", " QWEN ", \"linear_conv_kernel_dim\": 1}",
         "convolutions of 1 rows", RN_CORRUPT},
        {"{\"model_type\": \"qwen3_5_text\", " QWEN ", \"full_attention_interval\": 0}",
         "cannot be 0", RN_CORRUPT},
        {"{\"model_type\": \"qwen3_5_text\", " QWEN ", \"layer_types\": [\"mamba\"]}", "'mamba'",
         RN_UNSUPPORTED},
        {"{\"model_type\": \"qwen3_5\", " QWEN "}", "lacks 'num_hidden_layers'", RN_CORRUPT},
        {"{\"model_type\": \"qwen3_5\", \"text_config\": {\"num_experts\": 8}}", "num_experts",
         RN_UNSUPPORTED},
        {"{\"model_type\": \"qwen3_5_text\", \"num_hidden_layers\": 4000000000, \"hidden_size\": "
         "64, "
         "\"intermediate_size\": 128, \"vocab_size\": 100, \"num_attention_heads\": 4}",
         "more than 512 layers", RN_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_text_config c;
        assert_fails(cases[i].status, read_config(cases[i].text, &c));
        if (!strstr(rn_last_error()->message, cases[i].words))
            fail_msg("'%s' is not in '%s'", cases[i].words, rn_last_error()->message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lfm2_lists_the_layers_that_attend),
        cmocka_unit_test(qwen35_attends_in_every_fourth_layer),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

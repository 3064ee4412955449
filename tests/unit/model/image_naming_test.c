// image_naming_test.c — what files call the weights of image networks. (All names of the published
// models were also run through diffusers' converters once: docs/images.md.)
#include "support.h"

#include "model/image/image_naming.h"

typedef struct named {
    const char *ours, *theirs;
    uint64_t first_row, rows;
} named;

static void check(const rn_image_names *names, const named *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        rn_image_place place;
        if (!rn_image_rename(names, list[i].ours, &place)) fail_msg("%s has no name", list[i].ours);
        assert_string_equal(place.tensor, list[i].theirs);
        assert_int_equal(place.first_row, list[i].first_row);
        assert_int_equal(place.tensor_rows, list[i].rows);
    }
}
#define CHECK(names, list) check(names, list, sizeof list / sizeof *list)

static void unets_in_stabilitys_files(void **state) {
    (void)state;
    rn_image_names names = {.kind = RN_IMAGE_UNET,
                            .naming = RN_IMAGE_SGM,
                            .levels = 4,
                            .layers = 2,
                            .depth = {1, 1, 1, 0}};
    static const named sd15[] = {
        {"conv_in.weight", "input_blocks.0.0.weight", 0, 0},
        {"time_embedding.linear_2.bias", "time_embed.2.bias", 0, 0},
        {"down_blocks.1.attentions.0.transformer_blocks.0.attn2.to_k.weight",
         "input_blocks.4.1.transformer_blocks.0.attn2.to_k.weight", 0, 0},
        {"down_blocks.2.downsamplers.0.conv.weight", "input_blocks.9.0.op.weight", 0, 0},
        {"mid_block.resnets.1.time_emb_proj.weight", "middle_block.2.emb_layers.1.weight", 0, 0},
        {"up_blocks.0.upsamplers.0.conv.bias", "output_blocks.2.1.conv.bias", 0, 0},
        {"up_blocks.1.upsamplers.0.conv.bias", "output_blocks.5.2.conv.bias", 0, 0},
        {"up_blocks.3.resnets.2.conv_shortcut.weight", "output_blocks.11.0.skip_connection.weight",
         0, 0},
        {"conv_norm_out.weight", "out.0.weight", 0, 0}};
    CHECK(&names, sd15);
}

static void autoencoders_in_stabilitys_files(void **state) {
    (void)state;
    rn_image_names names = {.kind = RN_IMAGE_VAE, .naming = RN_IMAGE_SGM, .levels = 4, .layers = 2};
    static const named vae[] = {
        {"decoder.up_blocks.0.resnets.1.conv1.weight", "decoder.up.3.block.1.conv1.weight", 0, 0},
        {"decoder.up_blocks.2.resnets.0.conv_shortcut.bias",
         "decoder.up.1.block.0.nin_shortcut.bias", 0, 0},
        {"encoder.mid_block.attentions.0.to_out.0.weight", "encoder.mid.attn_1.proj_out.weight", 0,
         0},
        {"encoder.conv_norm_out.bias", "encoder.norm_out.bias", 0, 0},
        {"quant_conv.weight", "quant_conv.weight", 0, 0}};
    CHECK(&names, vae);
    names.naming = RN_IMAGE_DIFFUSERS_OLD;
    static const named old[] = {{"decoder.mid_block.attentions.0.to_q.weight",
                                 "decoder.mid_block.attentions.0.query.weight", 0, 0}};
    CHECK(&names, old);
}

static void flux_in_its_makers_files(void **state) {
    (void)state;
    rn_image_names names = {.kind = RN_IMAGE_FLUX, .naming = RN_IMAGE_BFL, .dim = 3072};
    static const named flux[] = {{"transformer_blocks.3.attn.to_k.weight",
                                  "double_blocks.3.img_attn.qkv.weight", 3072, 9216},
                                 {"transformer_blocks.3.attn.add_v_proj.bias",
                                  "double_blocks.3.txt_attn.qkv.bias", 6144, 9216},
                                 {"transformer_blocks.0.attn.norm_added_q.weight",
                                  "double_blocks.0.txt_attn.norm.query_norm.scale", 0, 0},
                                 {"single_transformer_blocks.37.proj_mlp.weight",
                                  "single_blocks.37.linear1.weight", 9216, 21504},
                                 {"single_transformer_blocks.0.attn.norm_k.weight",
                                  "single_blocks.0.norm.key_norm.scale", 0, 0},
                                 {"context_embedder.weight", "txt_in.weight", 0, 0},
                                 {"proj_out.bias", "final_layer.linear.bias", 0, 0}};
    rn_image_place place;
    CHECK(&names, flux);
    assert_true(rn_image_rename(&names, "norm_out.linear.weight", &place));
    assert_string_equal(place.tensor, "final_layer.adaLN_modulation.1.weight");
    assert_true(place.swapped);
    assert_false(rn_image_rename(&names, "transformer_blocks.0.nothing.weight", &place));
}

static void text_encoders(void **state) {
    (void)state;
    rn_image_names names = {.kind = RN_IMAGE_CLIP, .naming = RN_IMAGE_OPEN_CLIP, .dim = 1280};
    static const named clip[] = {
        {"text_model.encoder.layers.31.self_attn.v_proj.bias",
         "transformer.resblocks.31.attn.in_proj_bias", 2560, 3840},
        {"text_model.encoder.layers.2.mlp.fc1.weight", "transformer.resblocks.2.mlp.c_fc.weight", 0,
         0},
        {"text_model.embeddings.position_embedding.weight", "positional_embedding", 0, 0}};
    rn_image_place place;
    CHECK(&names, clip);
    assert_true(rn_image_rename(&names, "text_projection.weight", &place));
    assert_string_equal(place.tensor, "text_projection");
    assert_true(place.turned);
    names = (rn_image_names){.kind = RN_IMAGE_T5, .naming = RN_IMAGE_GGUF};
    static const named t5[] = {
        {"shared.weight", "token_embd.weight", 0, 0},
        {"encoder.block.7.layer.1.DenseReluDense.wi_0.weight", "enc.blk.7.ffn_gate.weight", 0, 0},
        {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
         "enc.blk.0.attn_rel_b.weight", 0, 0}};
    CHECK(&names, t5);
    names = (rn_image_names){.kind = RN_IMAGE_TINY_VAE, .naming = RN_IMAGE_TAESD};
    static const named taesd[] = {{"decoder.layers.2.conv.0.weight", "3.conv.0.weight", 0, 0},
                                  {"encoder.layers.14.bias", "14.bias", 0, 0}};
    CHECK(&names, taesd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unets_in_stabilitys_files),
        cmocka_unit_test(autoencoders_in_stabilitys_files),
        cmocka_unit_test(flux_in_its_makers_files),
        cmocka_unit_test(text_encoders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// vae.c — AutoencoderKL: a convolutional encoder and decoder around latents 8 times smaller.
//
//     decoder   z ─ [post_quant] ─ conv ─ mid ─ level n ─ 2x ─ ... ─ level 0 ─ norm ─ silu ─ conv
//     encoder   x ─ conv ─ level 0 ─ 1/2 ─ ... ─ level n ─ mid ─ norm ─ silu ─ conv ─ [quant]
//
// The middle is a resnet, one head of attention over all pixels, a resnet. A level has `layers`
// resnets in the encoder and one more in the decoder.
#include "model/image/image_networks.h"

#include <stdio.h>

typedef struct vae {
    rn_image_builder b;
    const rn_vae_config *c;
    rn_group_norm_attrs norm, norm_silu;
} vae;

static vae open_vae(rn_graph *g, const rn_vae_config *c) {
    vae v = {.b = {.g = g, .files = c->files}, .c = c, .norm = {.groups = c->groups, .eps = 1e-6f}};
    v.norm_silu = v.norm;
    v.norm_silu.silu = true;
    return v;
}

static rn_bands resnet(vae *v, const rn_bands *x, const char *name, uint64_t in, uint64_t out) {
    rn_image_builder *b = &v->b;
    rn_image_name norm = rn_image_named("%s.norm1", name), conv = rn_image_named("%s.conv1", name);
    rn_bands y =
        rn_bands_norm_conv(b, &v->c->banding, x, norm.text, v->norm_silu, conv.text, in, out);
    norm = rn_image_named("%s.norm2", name);
    conv = rn_image_named("%s.conv2", name);
    y = rn_bands_norm_conv(b, &v->c->banding, &y, norm.text, v->norm_silu, conv.text, out, out);
    conv = rn_image_named("%s.conv_shortcut", name);
    return rn_bands_add(b, x, &y, in != out ? conv.text : NULL, in, out);
}

static rn_value attention(vae *v, rn_value x, const char *name, uint64_t channels) {
    rn_image_builder *b = &v->b;
    rn_shape s = rn_image_shape(b, x);
    rn_value y =
        rn_image_group_norm(b, x, rn_image_named("%s.group_norm", name).text, channels, v->norm);
    y = rn_op_reshape(b->g, y, RN_SHAPE(s.dims[0], s.dims[1] * s.dims[2], channels));
    rn_value qkv[3];
    static const char *const parts[] = {"to_q", "to_k", "to_v"};
    for (int i = 0; i < 3; i++)
        qkv[i] = rn_image_linear(b, y, rn_image_named("%s.%s", name, parts[i]).text, channels,
                                 channels, RN_IMAGE_BIAS);
    y = rn_image_attend(b, qkv[0], qkv[1], qkv[2], 1, (rn_attention_attrs){0});
    y = rn_image_linear(b, y, rn_image_named("%s.to_out.0", name).text, channels, channels,
                        RN_IMAGE_BIAS);
    return rn_op_add(b->g, x, rn_op_reshape(b->g, y, s));
}

static rn_bands middle(vae *v, const rn_bands *x, const char *side, uint64_t channels) {
    rn_graph_block(v->b.g, "mid.0");
    rn_bands y =
        resnet(v, x, rn_image_named("%s.mid_block.resnets.0", side).text, channels, channels);
    rn_graph_block(v->b.g, "mid.attention");
    if (v->c->mid_attention) {
        rn_value whole = rn_bands_join(&v->b, &y);
        whole =
            attention(v, whole, rn_image_named("%s.mid_block.attentions.0", side).text, channels);
        y = rn_bands_of(&v->b, whole);
    }
    rn_graph_block(v->b.g, "mid.1");
    return resnet(v, &y, rn_image_named("%s.mid_block.resnets.1", side).text, channels, channels);
}

static rn_value end(vae *v, const rn_bands *x, const char *side, uint64_t in, uint64_t out) {
    rn_graph_block(v->b.g, "end");
    rn_image_name norm = rn_image_named("%s.conv_norm_out", side);
    rn_image_name conv = rn_image_named("%s.conv_out", side);
    rn_bands y =
        rn_bands_norm_conv(&v->b, &v->c->banding, x, norm.text, v->norm_silu, conv.text, in, out);
    return rn_bands_join(&v->b, &y);
}

rn_value rn_vae_decode(rn_graph *g, const rn_vae_config *c, rn_value x) {
    vae v = open_vae(g, c);
    uint64_t wide = c->channels[c->levels - 1];
    rn_graph_block(g, "begin");
    if (c->post_quant_conv)
        x = rn_image_conv(&v.b, x, "post_quant_conv", c->latent_channels, c->latent_channels,
                          RN_CONV_1);
    x = rn_image_conv(&v.b, x, "decoder.conv_in", c->latent_channels, wide, RN_CONV_3);
    rn_bands y = rn_bands_of(&v.b, x), half;
    y = middle(&v, &y, "decoder", wide);
    for (uint32_t up = 0; up < c->levels; up++) {
        uint64_t channels = c->channels[c->levels - 1 - up];
        for (uint32_t i = 0; i <= c->layers; i++) {
            rn_image_name name = rn_image_named("decoder.up_blocks.%u.resnets.%u", up, i);
            rn_graph_block(g, name.text);
            y = resnet(&v, &y, name.text, i ? channels : wide, channels);
        }
        wide = channels;
        if (up + 1 == c->levels) continue;
        rn_image_name name = rn_image_named("decoder.up_blocks.%u.upsamplers.0.conv", up);
        rn_graph_block(g, name.text);
        half = y;
        y = rn_bands_double(&v.b, &c->banding, &half, name.text, wide);
    }
    return end(&v, &y, "decoder", wide, c->image_channels);
}

static rn_status write_decoder(rn_graph *g, const void *config, uint32_t batch,
                               rn_forward_values *out) {
    const rn_vae_config *c = config;
    uint64_t rows = batch ? batch : RN_ROWS;
    rn_value x = rn_graph_input(g, "latent", RN_DTYPE_F32,
                                RN_SHAPE(rows, c->height, c->width, c->latent_channels));
    x = rn_vae_decode(g, c, x);
    *out = (rn_forward_values){.logits = x};
    if (!batch) rn_graph_output(g, x, "image");
    return RN_OK;
}

rn_value rn_vae_encode(rn_graph *g, const rn_vae_config *c, rn_value x) {
    vae v = open_vae(g, c);
    uint64_t wide = c->channels[0];
    rn_graph_block(g, "begin");
    x = rn_image_conv(&v.b, x, "encoder.conv_in", c->image_channels, wide, RN_CONV_3);
    rn_bands y = rn_bands_of(&v.b, x);
    for (uint32_t down = 0; down < c->levels; down++) {
        for (uint32_t i = 0; i < c->layers; i++) {
            rn_image_name name = rn_image_named("encoder.down_blocks.%u.resnets.%u", down, i);
            rn_graph_block(g, name.text);
            y = resnet(&v, &y, name.text, wide, c->channels[down]);
            wide = c->channels[down];
        }
        if (down + 1 == c->levels) continue;
        rn_image_name name = rn_image_named("encoder.down_blocks.%u.downsamplers.0.conv", down);
        rn_graph_block(g, name.text);
        y = rn_bands_halve(&v.b, &c->banding, &y, name.text, wide);
    }
    y = middle(&v, &y, "encoder", wide);
    x = end(&v, &y, "encoder", wide, 2 * (uint64_t)c->latent_channels);
    if (c->quant_conv)
        x = rn_image_conv(&v.b, x, "quant_conv", 2 * (uint64_t)c->latent_channels,
                          2 * (uint64_t)c->latent_channels, RN_CONV_1);
    return x;
}

static rn_status write_encoder(rn_graph *g, const void *config, uint32_t batch,
                               rn_forward_values *out) {
    const rn_vae_config *c = config;
    uint64_t rows = batch ? batch : RN_ROWS, factor = rn_vae_factor(c);
    rn_value x =
        rn_graph_input(g, "image", RN_DTYPE_F32,
                       RN_SHAPE(rows, c->height * factor, c->width * factor, c->image_channels));
    x = rn_vae_encode(g, c, x);
    *out = (rn_forward_values){.logits = x};
    if (!batch) rn_graph_output(g, x, "moments");
    return RN_OK;
}

// ---- configuration ------------------------------------------------------------------------------

uint32_t rn_vae_factor(const rn_vae_config *config) {
    return 1u << (config->levels - 1);
}

static rn_status check(const void *config, bool training) {
    const rn_vae_config *c = config;
    (void)training;
    bool sound = c->levels > 0 && c->levels <= RN_IMAGE_LEVELS && c->layers > 0 && c->groups > 0 &&
                 c->latent_channels > 0 && c->height > 0 && c->width > 0;
    for (uint32_t i = 0; sound && i < c->levels; i++)
        sound = c->channels[i] > 0 && c->channels[i] % c->groups == 0;
    if (!sound) return rn_fail(RN_INVALID, "an autoencoder cannot have these sizes");
    return RN_OK;
}

static rn_status make(const rn_vae_config *config, rn_model_writer write, const char *name,
                      rn_recipe *out) {
    rn_forward forward = {.write = write,
                          .check = check,
                          .config = config,
                          .config_bytes = sizeof *config,
                          .rows = config->rows ? config->rows : 1,
                          .halves = RN_DTYPE_BF16}; // f16 overflows
    RN_TRY(rn_model_recipe(forward, out));
    snprintf(out->name, sizeof out->name, "%s", name);
    return RN_OK;
}

rn_status rn_vae_decoder_recipe(const rn_vae_config *config, rn_recipe *out) {
    return make(config, write_decoder, "decode", out);
}

rn_status rn_vae_encoder_recipe(const rn_vae_config *config, rn_recipe *out) {
    return make(config, write_encoder, "encode", out);
}

rn_status rn_vae_config_read(const rn_fields *f, rn_vae_config *out) {
    rn_vae_config c = {.layers = 1,
                       .latent_channels = 4,
                       .image_channels = 3,
                       .groups = 32,
                       .quant_conv = true,
                       .post_quant_conv = true,
                       .mid_attention = true,
                       .scaling = 0.18215f};
    RN_TRY(rn_image_read_levels(f, "block_out_channels", c.channels, &c.levels));
    RN_TRY(rn_fields_u32(f, "layers_per_block", &c.layers));
    RN_TRY(rn_fields_u32(f, "latent_channels", &c.latent_channels));
    RN_TRY(rn_fields_u32(f, "out_channels", &c.image_channels));
    RN_TRY(rn_fields_u32(f, "norm_num_groups", &c.groups));
    RN_TRY(rn_fields_bool(f, "use_quant_conv", &c.quant_conv));
    RN_TRY(rn_fields_bool(f, "use_post_quant_conv", &c.post_quant_conv));
    RN_TRY(rn_fields_bool(f, "mid_block_add_attention", &c.mid_attention));
    RN_TRY(rn_fields_number(f, "scaling_factor", &c.scaling));
    RN_TRY(rn_fields_number(f, "shift_factor", &c.shift));
    c.height = c.width = 64;
    RN_TRY(check(&c, false));
    *out = c;
    return RN_OK;
}

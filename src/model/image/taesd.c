// taesd.c — TAESD: 64 channels, blocks of three convolutions with a shortcut, no norms.
//
//     block     relu(x + conv ─ relu ─ conv ─ relu ─ conv)
//     decoder   3 tanh(z / 3) ─ conv ─ relu ─ 3 x (3 blocks ─ 2x ─ conv) ─ block ─ conv
//     encoder   conv ─ block ─ 3 x (conv/2 ─ 3 blocks) ─ conv
//
// Names are diffusers' (AutoencoderTiny). The files of the original count the same layers, the
// decoder's from 1 on; rn_image_files knows.
#include "model/image/image_networks.h"

#include <stdio.h>

enum { WIDE = 64, LEVELS = 3, BLOCKS = 3 };

static rn_value block(rn_image_builder *b, rn_value x, const char *side, uint32_t layer) {
    rn_value y = x;
    for (int i = 0; i <= 4; i += 2) {
        rn_image_name name = rn_image_named("%s.layers.%u.conv.%d", side, layer, i);
        y = rn_image_conv(b, y, name.text, WIDE, WIDE, RN_CONV_3);
        if (i < 4) y = rn_op_relu(b->g, y);
    }
    return rn_op_relu(b->g, rn_op_add(b->g, y, x));
}

static rn_status write_decoder(rn_graph *g, const void *config, uint32_t batch,
                               rn_forward_values *out) {
    const rn_taesd_config *c = config;
    rn_image_builder b = {.g = g, .files = c->files};
    rn_value x =
        rn_graph_input(g, "latent", RN_DTYPE_F32,
                       RN_SHAPE(batch ? batch : RN_ROWS, c->height, c->width, c->latent_channels));
    uint32_t layer = 0;
    x = rn_op_scale(g, rn_op_tanh(g, rn_op_scale(g, x, 1.0f / 3, 0)), 3, 0);
    x = rn_image_conv(&b, x, "decoder.layers.0", c->latent_channels, WIDE, RN_CONV_3);
    x = rn_op_relu(g, x);
    layer = 2;
    for (uint32_t level = 0; level < LEVELS; level++) {
        for (uint32_t i = 0; i < BLOCKS; i++, layer++) {
            rn_graph_block(g, rn_image_named("decoder.layers.%u", layer).text);
            x = block(&b, x, "decoder", layer);
        }
        layer++; // the upsampling
        x = rn_image_conv_as(&b, rn_graph_upsample(g, x, 2),
                             rn_image_named("decoder.layers.%u", layer).text, WIDE, WIDE, RN_CONV_3,
                             RN_IMAGE_NO_BIAS);
        layer++;
    }
    rn_graph_block(g, "end");
    x = block(&b, x, "decoder", layer++);
    x = rn_image_conv(&b, x, rn_image_named("decoder.layers.%u", layer).text, WIDE, 3, RN_CONV_3);
    *out = (rn_forward_values){.logits = x};
    if (!batch) rn_graph_output(g, x, "image");
    return RN_OK;
}

static rn_status write_encoder(rn_graph *g, const void *config, uint32_t batch,
                               rn_forward_values *out) {
    const rn_taesd_config *c = config;
    rn_image_builder b = {.g = g, .files = c->files};
    rn_value x = rn_graph_input(
        g, "image", RN_DTYPE_F32,
        RN_SHAPE(batch ? batch : RN_ROWS, c->height << LEVELS, c->width << LEVELS, 3));
    x = rn_image_conv(&b, x, "encoder.layers.0", 3, WIDE, RN_CONV_3);
    x = block(&b, x, "encoder", 1);
    uint32_t layer = 2;
    for (uint32_t level = 0; level < LEVELS; level++) {
        rn_graph_block(g, rn_image_named("encoder.layers.%u", layer).text);
        x = rn_image_conv_as(&b, x, rn_image_named("encoder.layers.%u", layer++).text, WIDE, WIDE,
                             RN_CONV_HALVE, RN_IMAGE_NO_BIAS);
        for (uint32_t i = 0; i < BLOCKS; i++)
            x = block(&b, x, "encoder", layer++);
    }
    rn_graph_block(g, "end");
    x = rn_image_conv(&b, x, rn_image_named("encoder.layers.%u", layer).text, WIDE,
                      c->latent_channels, RN_CONV_3);
    *out = (rn_forward_values){.logits = x};
    if (!batch) rn_graph_output(g, x, "latent");
    return RN_OK;
}

static rn_status check(const void *config, bool training) {
    const rn_taesd_config *c = config;
    (void)training;
    if (c->latent_channels == 0 || c->height == 0 || c->width == 0 || c->height > 1u << 16 ||
        c->width > 1u << 16)
        return rn_fail(RN_INVALID, "TAESD cannot have these sizes");
    return RN_OK;
}

static rn_status make(const rn_taesd_config *config, rn_model_writer write, const char *name,
                      rn_recipe *out) {
    rn_forward forward = {.write = write,
                          .check = check,
                          .config = config,
                          .config_bytes = sizeof *config,
                          .rows = config->rows ? config->rows : 1};
    RN_TRY(rn_model_recipe(forward, out));
    snprintf(out->name, sizeof out->name, "%s", name);
    return RN_OK;
}

rn_status rn_taesd_decoder_recipe(const rn_taesd_config *config, rn_recipe *out) {
    return make(config, write_decoder, "decode", out);
}

rn_status rn_taesd_encoder_recipe(const rn_taesd_config *config, rn_recipe *out) {
    return make(config, write_encoder, "encode", out);
}

rn_status rn_taesd_config_read(const rn_fields *f, rn_taesd_config *out) {
    *out = (rn_taesd_config){.latent_channels = 4, .height = 64, .width = 64};
    return rn_fields_u32(f, "latent_channels", &out->latent_channels);
}

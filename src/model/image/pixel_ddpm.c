// pixel_ddpm.c — a noise predictor of pixels: convolutions of 7x7, each normed over the whole
// picture (a weight for every pixel and channel) and through gelu; the time's embedding is added
// behind the first.
#include "model/image/image_networks.h"

#include <stdio.h>

// A weight (C, H, W) of the file, as (H, W, C).
static rn_value by_pixel(rn_image_builder *b, const char *name, const char *part, uint64_t channels,
                         uint64_t size) {
    rn_value w = rn_image_vector(b, name, part, RN_SHAPE(channels, size, size));
    return rn_op_permute(b->g, w, (const uint8_t[]){1, 2, 0});
}

static rn_value block(rn_image_builder *b, rn_value x, uint32_t number, uint64_t in, uint64_t out,
                      uint64_t size) {
    rn_image_name conv = rn_image_named("gt.blocks.%u.net.0", number);
    rn_image_name norm = rn_image_named("gt.blocks.%u.net.1", number);
    rn_graph_block(b->g, rn_image_named("gt.blocks.%u", number).text);
    x = rn_image_conv(b, x, conv.text, in, out, RN_CONV_7);
    x = rn_op_group_norm(b->g, x, RN_NO_VALUE, RN_NO_VALUE,
                         (rn_group_norm_attrs){.groups = 1, .eps = 1e-5f});
    x = rn_op_mul(b->g, x, by_pixel(b, norm.text, "weight", out, size));
    x = rn_op_add(b->g, x, by_pixel(b, norm.text, "bias", out, size));
    return rn_op_gelu(b->g, x);
}

static rn_value embed_time(rn_image_builder *b, const rn_pixel_ddpm_config *c, uint64_t rows) {
    rn_value t =
        rn_graph_input(b->g, "time", RN_DTYPE_F32, RN_SHAPE(rows, 2 * (uint64_t)c->frequencies));
    uint64_t in = 2 * (uint64_t)c->frequencies;
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t out = i < 3 ? c->time_hidden : c->hidden[0];
        t = rn_image_linear(b, t, rn_image_named("gt.time_embed.%u", 2 * i).text, in, out,
                            RN_IMAGE_BIAS);
        if (i < 3) t = rn_op_gelu(b->g, t);
        in = out;
    }
    return rn_op_reshape(b->g, t, RN_SHAPE(rows, 1, 1, c->hidden[0]));
}

static rn_status write(rn_graph *g, const void *config, uint32_t batch, rn_forward_values *out) {
    const rn_pixel_ddpm_config *c = config;
    rn_image_builder b = {.g = g, .files = c->files};
    uint64_t rows = batch ? batch : RN_ROWS, wide = c->channels;
    rn_value x =
        rn_graph_input(g, "sample", RN_DTYPE_F32, RN_SHAPE(rows, c->size, c->size, c->channels));
    for (uint32_t i = 0; i < c->hidden_count; i++) {
        x = block(&b, x, i, wide, c->hidden[i], c->size);
        if (i == 0) x = rn_op_add(g, x, embed_time(&b, c, rows));
        wide = c->hidden[i];
    }
    x = rn_image_conv(&b, x, rn_image_named("gt.blocks.%u", c->hidden_count).text, wide,
                      c->channels, RN_CONV_3);
    *out = (rn_forward_values){.logits = x};
    if (!batch) rn_graph_output(g, x, "noise");
    return RN_OK;
}

static rn_status check(const void *config, bool training) {
    const rn_pixel_ddpm_config *c = config;
    (void)training;
    bool sound = c->size > 0 && c->channels > 0 && c->hidden_count > 0 &&
                 c->hidden_count <= RN_IMAGE_LEVELS && c->frequencies > 0 && c->time_hidden > 0;
    for (uint32_t i = 0; sound && i < c->hidden_count; i++)
        sound = c->hidden[i] > 0;
    return sound ? RN_OK : rn_fail(RN_INVALID, "a noise predictor cannot have these sizes");
}

rn_status rn_pixel_ddpm_recipe(const rn_pixel_ddpm_config *config, rn_recipe *out) {
    rn_forward forward = {.write = write,
                          .check = check,
                          .config = config,
                          .config_bytes = sizeof *config,
                          .rows = config->rows ? config->rows : 1};
    RN_TRY(rn_model_recipe(forward, out));
    snprintf(out->name, sizeof out->name, "denoise");
    return RN_OK;
}

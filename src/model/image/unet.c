// unet.c — UNet2DConditionModel: levels of resnets and transformers, going down and up again, with
// what each step down made handed to the same step up.
//
//     sample ─ conv ─ level 0 ─ 1/2 ─ level 1 ─ ... ─ mid ─ ... ─ 2x ─ level 0 ─ norm ─ conv ─▶
//     noise
//                └────────────── concatenated, the last first ────────┘
//     time ─ linear ─ silu ─ linear [+ added text and sizes] ─ silu ─▶ into every resnet
//     context ─▶ keys and values of every second attention
#include "model/image/image_networks.h"

#include "base/str.h"
#include "graph/halves.h"

#include <stdio.h>
#include <string.h>

enum { MOST_SKIPS = 64 };

typedef struct unet {
    rn_image_builder b;
    const rn_unet_config *c;
    rn_value time;    // (N, 4 channels[0]), behind SiLU
    rn_value context; // (N, T, context_channels)
    uint64_t time_channels;
    struct {
        rn_value value;
        uint64_t channels;
    } skips[MOST_SKIPS];
    uint32_t skip_count;
} unet;

// ---- parts --------------------------------------------------------------------------------------

static rn_value resnet(unet *u, rn_value x, const char *name, uint64_t in, uint64_t out) {
    rn_image_builder *b = &u->b;
    rn_group_norm_attrs norm = {.groups = u->c->groups, .eps = u->c->eps, .silu = true};
    rn_value y = rn_image_group_norm(b, x, rn_image_named("%s.norm1", name).text, in, norm);
    y = rn_image_conv(b, y, rn_image_named("%s.conv1", name).text, in, out, RN_CONV_3);
    rn_value time = rn_image_linear(b, u->time, rn_image_named("%s.time_emb_proj", name).text,
                                    u->time_channels, out, RN_IMAGE_BIAS);
    rn_shape s = rn_image_shape(b, time);
    y = rn_op_add(b->g, y, rn_op_reshape(b->g, time, RN_SHAPE(s.dims[0], 1, 1, out)));
    y = rn_image_group_norm(b, y, rn_image_named("%s.norm2", name).text, out, norm);
    y = rn_image_conv(b, y, rn_image_named("%s.conv2", name).text, out, out, RN_CONV_3);
    if (in != out)
        x = rn_image_conv(b, x, rn_image_named("%s.conv_shortcut", name).text, in, out, RN_CONV_1);
    return rn_op_add(b->g, x, y);
}

// Of the text, a state where it was made before: k or v (N, T, channels).
static rn_value read_text(unet *u, const char *name, const char *part, uint64_t channels) {
    const rn_unet_config *c = u->c;
    rn_image_builder *b = &u->b;
    if (c->text_type == RN_DTYPE_NONE)
        return rn_image_linear(b, u->context, rn_image_named("%s.to_%s", name, part).text,
                               c->context_channels, channels, RN_IMAGE_NO_BIAS);
    return rn_graph_state(b->g, rn_image_named("%s.%s", name, part).text, c->text_type,
                          RN_SHAPE(c->rows ? c->rows : 1, c->context_tokens, channels),
                          RN_PURPOSE_OTHER);
}

// x (N, T, C) asks itself, or the text.
static rn_value attention(unet *u, rn_value x, bool text, const char *name, uint64_t channels,
                          uint32_t heads) {
    rn_image_builder *b = &u->b;
    rn_value q = rn_image_linear(b, x, rn_image_named("%s.to_q", name).text, channels, channels,
                                 RN_IMAGE_NO_BIAS);
    rn_value k = text ? read_text(u, name, "k", channels)
                      : rn_image_linear(b, x, rn_image_named("%s.to_k", name).text, channels,
                                        channels, RN_IMAGE_NO_BIAS);
    rn_value v = text ? read_text(u, name, "v", channels)
                      : rn_image_linear(b, x, rn_image_named("%s.to_v", name).text, channels,
                                        channels, RN_IMAGE_NO_BIAS);
    rn_value y = rn_image_attend(b, q, k, v, heads, (rn_attention_attrs){0});
    return rn_image_linear(b, y, rn_image_named("%s.to_out.0", name).text, channels, channels,
                           RN_IMAGE_BIAS);
}

// GEGLU: the first half of the product times gelu of the second.
static rn_value feed_forward(unet *u, rn_value x, const char *name, uint64_t channels) {
    rn_image_builder *b = &u->b;
    rn_image_name proj = rn_image_named("%s.net.0.proj", name);
    uint64_t wide = 4 * channels;
    rn_value up = rn_image_linear_part(b, x, proj.text, channels, 2 * wide, 0, wide, RN_IMAGE_BIAS);
    rn_value gate =
        rn_image_linear_part(b, x, proj.text, channels, 2 * wide, wide, wide, RN_IMAGE_BIAS);
    rn_value y = rn_op_gated(b->g, gate, up, RN_ACTIVATION_GELU);
    return rn_image_linear(b, y, rn_image_named("%s.net.2", name).text, wide, channels,
                           RN_IMAGE_BIAS);
}

static rn_value transformer_block(unet *u, rn_value x, const char *name, uint64_t channels,
                                  uint32_t heads) {
    rn_image_builder *b = &u->b;
    rn_graph *g = b->g;
    rn_value y = rn_image_layer_norm(b, x, rn_image_named("%s.norm1", name).text, channels, 1e-5f);
    y = attention(u, y, false, rn_image_named("%s.attn1", name).text, channels, heads);
    x = rn_op_add(g, x, y);
    y = rn_image_layer_norm(b, x, rn_image_named("%s.norm2", name).text, channels, 1e-5f);
    y = attention(u, y, true, rn_image_named("%s.attn2", name).text, channels, heads);
    x = rn_op_add(g, x, y);
    y = rn_image_layer_norm(b, x, rn_image_named("%s.norm3", name).text, channels, 1e-5f);
    return rn_op_add(g, x, feed_forward(u, y, rn_image_named("%s.ff", name).text, channels));
}

// A matrix over the pixels' channels, whether files have it as a matrix or as a 1x1 kernel.
static rn_value transformer(unet *u, rn_value x, const char *name, uint64_t channels,
                            uint32_t heads, uint32_t depth) {
    rn_image_builder *b = &u->b;
    rn_shape s = rn_image_shape(b, x);
    rn_group_norm_attrs norm = {.groups = u->c->groups, .eps = 1e-6f};
    rn_value y = rn_image_group_norm(b, x, rn_image_named("%s.norm", name).text, channels, norm);
    y = rn_op_reshape(b->g, y, RN_SHAPE(s.dims[0], s.dims[1] * s.dims[2], channels));
    y = rn_image_linear(b, y, rn_image_named("%s.proj_in", name).text, channels, channels,
                        RN_IMAGE_BIAS);
    for (uint32_t i = 0; i < depth; i++) {
        rn_image_name block = rn_image_named("%s.transformer_blocks.%u", name, i);
        rn_graph_block(b->g, block.text);
        y = transformer_block(u, y, block.text, channels, heads);
    }
    y = rn_image_linear(b, y, rn_image_named("%s.proj_out", name).text, channels, channels,
                        RN_IMAGE_BIAS);
    return rn_op_add(b->g, x, rn_op_reshape(b->g, y, s));
}

// ---- down, middle, up ---------------------------------------------------------------------------

static void keep(unet *u, rn_value value, uint64_t channels) {
    if (u->skip_count == MOST_SKIPS) return; // check() has refused it
    u->skips[u->skip_count].value = value;
    u->skips[u->skip_count++].channels = channels;
}

static rn_value go_down(unet *u, rn_value x) {
    const rn_unet_config *c = u->c;
    uint64_t wide = c->channels[0];
    for (uint32_t level = 0; level < c->levels; level++) {
        for (uint32_t i = 0; i < c->layers; i++) {
            rn_image_name name = rn_image_named("down_blocks.%u.resnets.%u", level, i);
            rn_graph_block(u->b.g, name.text);
            x = resnet(u, x, name.text, wide, c->channels[level]);
            wide = c->channels[level];
            name = rn_image_named("down_blocks.%u.attentions.%u", level, i);
            if (c->depth[level])
                x = transformer(u, x, name.text, wide, c->heads[level], c->depth[level]);
            keep(u, x, wide);
        }
        if (level + 1 == c->levels) continue;
        rn_image_name name = rn_image_named("down_blocks.%u.downsamplers.0.conv", level);
        rn_graph_block(u->b.g, name.text);
        x = rn_image_conv(&u->b, x, name.text, wide, wide, RN_CONV_HALVE);
        keep(u, x, wide);
    }
    return x;
}

static rn_value go_through(unet *u, rn_value x) {
    const rn_unet_config *c = u->c;
    uint64_t wide = c->channels[c->levels - 1];
    if (c->no_mid) return x;
    rn_graph_block(u->b.g, "mid_block.resnets.0");
    x = resnet(u, x, "mid_block.resnets.0", wide, wide);
    if (c->mid_depth)
        x = transformer(u, x, "mid_block.attentions.0", wide, c->heads[c->levels - 1],
                        c->mid_depth);
    rn_graph_block(u->b.g, "mid_block.resnets.1");
    return resnet(u, x, "mid_block.resnets.1", wide, wide);
}

static rn_value go_up(unet *u, rn_value x) {
    const rn_unet_config *c = u->c;
    rn_graph *g = u->b.g;
    uint64_t wide = c->channels[c->levels - 1];
    for (uint32_t up = 0; up < c->levels; up++) {
        uint32_t level = c->levels - 1 - up;
        for (uint32_t i = 0; i <= c->layers; i++) {
            rn_image_name name = rn_image_named("up_blocks.%u.resnets.%u", up, i);
            rn_graph_block(g, name.text);
            rn_value skip = u->skips[--u->skip_count].value;
            uint64_t more = u->skips[u->skip_count].channels;
            x = rn_op_concat(g, (rn_value[]){x, skip}, 2, 3);
            x = resnet(u, x, name.text, wide + more, c->channels[level]);
            wide = c->channels[level];
            name = rn_image_named("up_blocks.%u.attentions.%u", up, i);
            if (c->depth[level])
                x = transformer(u, x, name.text, wide, c->heads[level], c->depth[level]);
        }
        if (level == 0) continue;
        rn_image_name name = rn_image_named("up_blocks.%u.upsamplers.0.conv", up);
        rn_graph_block(g, name.text);
        x = rn_image_conv(&u->b, rn_graph_upsample(g, x, 2), name.text, wide, wide, RN_CONV_3);
    }
    return x;
}

// ---- the whole ----------------------------------------------------------------------------------

static void embed_time(unet *u, uint64_t rows) {
    const rn_unet_config *c = u->c;
    rn_image_builder *b = &u->b;
    rn_value t = rn_graph_input(b->g, "time", RN_DTYPE_F32, RN_SHAPE(rows, c->channels[0]));
    u->time_channels = 4 * (uint64_t)c->channels[0];
    if (c->guidance_channels) {
        rn_value guidance =
            rn_graph_input(b->g, "guidance", RN_DTYPE_F32, RN_SHAPE(rows, c->guidance_channels));
        t = rn_op_add(b->g, t,
                      rn_image_linear(b, guidance, "time_embedding.cond_proj", c->guidance_channels,
                                      c->channels[0], RN_IMAGE_NO_BIAS));
    }
    u->time = rn_image_embed(b, t, "time_embedding", "linear_1", "linear_2", c->channels[0],
                             u->time_channels);
    if (c->added_channels) {
        rn_value added = c->added;
        if (added == RN_NO_VALUE)
            added = rn_graph_input(b->g, "added", RN_DTYPE_F32, RN_SHAPE(rows, c->added_channels));
        added = rn_image_embed(b, added, "add_embedding", "linear_1", "linear_2", c->added_channels,
                               u->time_channels);
        u->time = rn_op_add(b->g, u->time, added);
    }
    u->time = rn_op_silu(b->g, u->time);
}

static bool has_attention(const rn_unet_config *c) {
    bool any = c->mid_depth > 0;
    for (uint32_t i = 0; i < c->levels; i++)
        any = any || c->depth[i];
    return any;
}

static rn_status write(rn_graph *g, const void *config, uint32_t batch, rn_forward_values *out) {
    const rn_unet_config *c = config;
    unet u = {.b = {.g = g, .files = c->files, .trains = batch > 0}, .c = c};
    bool given = c->text_type != RN_DTYPE_NONE;
    uint64_t rows = batch ? batch : given ? (c->rows ? c->rows : 1) : RN_ROWS;
    if (rn_dtype_is_half(c->text_type)) rn_graph_allow_halves(g);
    rn_value x = rn_graph_input(g, "sample", RN_DTYPE_F32,
                                RN_SHAPE(rows, c->height, c->width, c->in_channels));
    rn_graph_block(g, "begin");
    embed_time(&u, rows);
    u.context = c->context;
    if (has_attention(c) && !given && u.context == RN_NO_VALUE)
        u.context = rn_graph_input(g, "context", RN_DTYPE_F32,
                                   RN_SHAPE(rows, c->context_tokens, c->context_channels));
    x = rn_image_conv(&u.b, x, "conv_in", c->in_channels, c->channels[0], RN_CONV_3);
    keep(&u, x, c->channels[0]);
    x = go_up(&u, go_through(&u, go_down(&u, x)));
    rn_graph_block(g, "end");
    rn_group_norm_attrs norm = {.groups = c->groups, .eps = c->eps, .silu = true};
    x = rn_image_group_norm(&u.b, x, "conv_norm_out", c->channels[0], norm);
    x = rn_image_conv(&u.b, x, "conv_out", c->channels[0], c->out_channels, RN_CONV_3);
    *out = (rn_forward_values){.logits = x};
    if (!batch) rn_graph_output(g, x, "noise");
    return RN_OK;
}

static rn_status check(const void *config, bool training) {
    const rn_unet_config *c = config;
    (void)training;
    bool sound = c->levels > 0 && c->levels <= RN_IMAGE_LEVELS && c->layers > 0 && c->groups > 0 &&
                 c->in_channels > 0 && c->out_channels > 0 && c->height > 0 && c->width > 0 &&
                 c->levels * (c->layers + 1) < MOST_SKIPS;
    for (uint32_t i = 0; sound && i < c->levels; i++)
        sound = c->channels[i] > 0 && c->channels[i] % c->groups == 0 &&
                (!c->depth[i] || (c->heads[i] && c->channels[i] % c->heads[i] == 0));
    if (!sound) return rn_fail(RN_INVALID, "a UNet cannot have these sizes");
    uint32_t factor = 1u << (c->levels - 1);
    if (c->height % factor || c->width % factor)
        return rn_fail(RN_INVALID, "latents of %ux%u cannot be halved %u times", c->height,
                       c->width, c->levels - 1);
    return RN_OK;
}

rn_forward rn_unet_forward(const rn_unet_config *config) {
    return (rn_forward){.write = write,
                        .check = check,
                        .config = config,
                        .config_bytes = sizeof *config,
                        .rows = config->rows ? config->rows : 1,
                        .halves = rn_image_halves(config->files, "conv_in.weight")};
}

rn_status rn_unet_recipe(const rn_unet_config *config, rn_recipe *out) {
    RN_TRY(rn_model_recipe(rn_unet_forward(config), out));
    snprintf(out->name, sizeof out->name, "denoise");
    if (config->text_type != RN_DTYPE_NONE) out->rows = 0;
    return RN_OK;
}

// ---- the text's keys and values -----------------------------------------------------------------

bool rn_unet_text_layer(const rn_unet_config *c, uint32_t index, rn_image_name *out_name,
                        uint64_t *out_channels) {
    for (uint32_t way = 0; way < 3; way++) // down, through the middle, up
        for (uint32_t i = 0; i < (way == 1 ? 1 : c->levels); i++) {
            static const char *const sides[] = {"down_blocks", "mid_block", "up_blocks"};
            uint32_t level = way == 0 ? i : way == 1 ? c->levels - 1 : c->levels - 1 - i;
            uint32_t depth = way == 1 ? (c->no_mid ? 0 : c->mid_depth) : c->depth[level];
            uint32_t layers = way == 1 ? 1 : way == 0 ? c->layers : c->layers + 1;
            if (index >= layers * depth) {
                index -= layers * depth;
                continue;
            }
            rn_image_name side = way == 1 ? rn_image_named("%s", sides[way])
                                          : rn_image_named("%s.%u", sides[way], i);
            *out_name = rn_image_named("%s.attentions.%u.transformer_blocks.%u.attn2", side.text,
                                       index / depth, index % depth);
            *out_channels = c->channels[level];
            return true;
        }
    return false;
}

static rn_status write_text(rn_graph *g, const void *config, uint32_t batch,
                            rn_forward_values *out) {
    const rn_unet_config *c = config;
    unet u = {.b = {.g = g, .files = c->files}, .c = c};
    rn_image_name name;
    uint64_t channels;
    u.context =
        rn_graph_input(g, "context", RN_DTYPE_F32,
                       RN_SHAPE(batch ? batch : RN_ROWS, c->context_tokens, c->context_channels));
    for (uint32_t i = 0; rn_unet_text_layer(c, i, &name, &channels); i++) {
        rn_graph_block(g, name.text);
        rn_value k = read_text(&u, name.text, "k", channels);
        rn_value v = read_text(&u, name.text, "v", channels);
        rn_graph_output(g, k, rn_image_named("%s.k", name.text).text);
        rn_graph_output(g, v, rn_image_named("%s.v", name.text).text);
        *out = (rn_forward_values){.logits = v};
    }
    return RN_OK;
}

rn_status rn_unet_text_recipe(const rn_unet_config *config, rn_recipe *out) {
    rn_unet_config made = *config;
    made.text_type = RN_DTYPE_NONE;
    rn_forward forward = rn_unet_forward(&made);
    forward.write = write_text;
    RN_TRY(rn_model_recipe(forward, out));
    snprintf(out->name, sizeof out->name, "prepare");
    return RN_OK;
}

// ---- configuration ------------------------------------------------------------------------------

static bool is_attending(const rn_fields *f, const char *list, uint32_t i) {
    const rn_field *type = rn_fields_find(f, rn_image_named("%s.%u", list, i).text);
    return type && type->kind == RN_FIELD_TEXT && strstr(type->text.data, "CrossAttn");
}

// What is not built, by name: most of it is of other models than Stable Diffusion's.
static rn_status refuse_others(const rn_fields *f) {
    static const char *const absent[] = {"class_embed_type", "encoder_hid_dim_type",
                                         "time_embedding_act_fn", "timestep_post_act",
                                         "conv_in_kernel_x"};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (rn_fields_find(f, absent[i]))
            return rn_fail(RN_UNSUPPORTED, "%s: a UNet with %s is not built", f->source, absent[i]);
    static const struct {
        const char *name, *value;
    } only[] = {{"resnet_time_scale_shift", "default"},
                {"time_embedding_type", "positional"},
                {"act_fn", "silu"}};
    for (size_t i = 0; i < sizeof only / sizeof *only; i++) {
        rn_str text = rn_str_from(only[i].value);
        RN_TRY(rn_fields_text(f, only[i].name, &text));
        if (!rn_str_equal(text, rn_str_from(only[i].value)))
            return rn_fail(RN_UNSUPPORTED, "%s: %s %.*s is not built", f->source, only[i].name,
                           RN_STR_ARG(text));
    }
    return RN_OK;
}

rn_status rn_unet_config_read(const rn_fields *f, rn_unet_config *out) {
    rn_unet_config c = {.in_channels = 4,
                        .out_channels = 4,
                        .layers = 2,
                        .context_channels = 1280,
                        .context_tokens = 77,
                        .groups = 32,
                        .eps = 1e-5f,
                        .added_time_dim = 256};
    uint32_t depth[RN_IMAGE_LEVELS], heads[RN_IMAGE_LEVELS];
    RN_TRY(refuse_others(f));
    RN_TRY(rn_image_read_levels(f, "block_out_channels", c.channels, &c.levels));
    RN_TRY(rn_image_read_each(f, "transformer_layers_per_block", c.levels, 1, depth));
    // Their name is a mistake that files keep: without num_attention_heads it counts heads.
    RN_TRY(rn_image_read_each(f, "attention_head_dim", c.levels, 8, heads));
    if (rn_fields_find(f, "num_attention_heads"))
        RN_TRY(rn_image_read_each(f, "num_attention_heads", c.levels, 8, heads));
    for (uint32_t i = 0; i < c.levels; i++) {
        c.depth[i] = is_attending(f, "down_block_types", i) ? depth[i] : 0;
        c.heads[i] = heads[i];
    }
    RN_TRY(rn_fields_u32(f, "in_channels", &c.in_channels));
    RN_TRY(rn_fields_u32(f, "out_channels", &c.out_channels));
    RN_TRY(rn_fields_u32(f, "layers_per_block", &c.layers));
    RN_TRY(rn_fields_u32(f, "cross_attention_dim", &c.context_channels));
    RN_TRY(rn_fields_u32(f, "norm_num_groups", &c.groups));
    RN_TRY(rn_fields_number(f, "norm_eps", &c.eps));
    RN_TRY(rn_fields_bool(f, "use_linear_projection", &c.linear_projection));
    RN_TRY(rn_fields_u32(f, "time_cond_proj_dim", &c.guidance_channels));
    rn_str text = RN_STR("UNetMidBlock2DCrossAttn");
    RN_TRY(rn_fields_text(f, "mid_block_type", &text));
    c.no_mid = rn_fields_find(f, "block_out_channels") && !rn_fields_find(f, "mid_block_type") &&
               rn_fields_find(f, "down_block_types");
    c.mid_depth = !c.no_mid && rn_str_equal(text, RN_STR("UNetMidBlock2DCrossAttn"))
                      ? depth[c.levels - 1]
                      : 0;
    text = (rn_str){0};
    RN_TRY(rn_fields_text(f, "addition_embed_type", &text));
    if (text.bytes && !rn_str_equal(text, RN_STR("text_time")))
        return rn_fail(RN_UNSUPPORTED, "%s: addition_embed_type %.*s is not built", f->source,
                       RN_STR_ARG(text));
    if (text.bytes) {
        RN_TRY(rn_fields_need_u32(f, "projection_class_embeddings_input_dim", &c.added_channels));
        RN_TRY(rn_fields_u32(f, "addition_time_embed_dim", &c.added_time_dim));
    }
    c.height = c.width = 64;
    RN_TRY(rn_fields_u32(f, "sample_size", &c.height));
    c.width = c.height;
    RN_TRY(check(&c, false));
    *out = c;
    return RN_OK;
}

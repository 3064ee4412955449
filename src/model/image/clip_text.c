// clip_text.c — CLIP's text transformer. One layer, causal:
//
//     x ─ norm ─ q, k, v ─ attention ─ out ─ + ─ norm ─ fc1 ─ gelu ─ fc2 ─ + ─▶
//
// Stable Diffusion reads the rows behind the last norm (1.x), of the layer before the last (2.x:
// normed; XL: not), and XL and Flux the row of the end token.
#include "model/image/image_networks.h"

#include "base/str.h"

#include <stdio.h>

typedef struct clip {
    rn_image_builder b;
    const rn_clip_config *c;
} clip;

// x sigmoid(1.702 x), or by erf.
static rn_value activate(clip *t, rn_value x) {
    rn_graph *g = t->b.g;
    if (t->c->activation == RN_CLIP_GELU) return rn_op_gelu(g, x);
    return rn_op_mul(g, x, rn_op_sigmoid(g, rn_op_scale(g, x, 1.702f, 0)));
}

static void begin_block(clip *t, const char *name) {
    rn_graph_block(t->b.g, rn_image_named("%s%s", t->b.prefix, name).text);
}

static rn_value input(clip *t, const char *name, rn_dtype dtype, rn_shape shape) {
    return rn_graph_input(t->b.g, rn_image_named("%s%s", t->b.prefix, name).text, dtype, shape);
}

static rn_value layer(clip *t, rn_value x, uint32_t number) {
    rn_image_builder *b = &t->b;
    const rn_clip_config *c = t->c;
    rn_image_name name = rn_image_named("text_model.encoder.layers.%u", number);
    begin_block(t, name.text);
    rn_value y =
        rn_image_layer_norm(b, x, rn_image_named("%s.layer_norm1", name.text).text, c->dim, c->eps);
    rn_value qkv[3];
    static const char *const parts[] = {"q_proj", "k_proj", "v_proj"};
    for (int i = 0; i < 3; i++)
        qkv[i] = rn_image_linear(b, y, rn_image_named("%s.self_attn.%s", name.text, parts[i]).text,
                                 c->dim, c->dim, RN_IMAGE_BIAS);
    y = rn_image_attend(b, qkv[0], qkv[1], qkv[2], c->heads, (rn_attention_attrs){.causal = true});
    y = rn_image_linear(b, y, rn_image_named("%s.self_attn.out_proj", name.text).text, c->dim,
                        c->dim, RN_IMAGE_BIAS);
    x = rn_op_add(b->g, x, y);
    y = rn_image_layer_norm(b, x, rn_image_named("%s.layer_norm2", name.text).text, c->dim, c->eps);
    y = rn_image_linear(b, y, rn_image_named("%s.mlp.fc1", name.text).text, c->dim, c->ffn,
                        RN_IMAGE_BIAS);
    y = rn_image_linear(b, activate(t, y), rn_image_named("%s.mlp.fc2", name.text).text, c->ffn,
                        c->dim, RN_IMAGE_BIAS);
    return rn_op_add(b->g, x, y);
}

static rn_value embed(clip *t, uint64_t rows) {
    const rn_clip_config *c = t->c;
    rn_value tokens = input(t, "tokens", RN_DTYPE_I32, RN_SHAPE(rows, c->tokens));
    begin_block(t, "begin");
    rn_value table = rn_image_weight(&t->b, "text_model.embeddings.token_embedding.weight",
                                     RN_SHAPE(c->vocab, c->dim));
    rn_value places = rn_image_vector(&t->b, "text_model.embeddings.position_embedding", "weight",
                                      RN_SHAPE(c->tokens, c->dim));
    return rn_op_add(t->b.g, rn_op_embedding(t->b.g, table, tokens), places);
}

// The row of the end token: one times it, and nothing of the others.
static rn_value pool(clip *t, rn_value last, uint64_t rows) {
    const rn_clip_config *c = t->c;
    rn_value which = input(t, "pool", RN_DTYPE_F32, RN_SHAPE(rows, 1, c->tokens));
    rn_value pooled =
        rn_op_matmul_as(t->b.g, which, last, RN_NO_VALUE, (rn_matmul_attrs){.transpose_w = true});
    if (!c->projection) return pooled;
    return rn_image_linear(&t->b, pooled, "text_projection", c->dim, c->projection,
                           RN_IMAGE_NO_BIAS);
}

static rn_clip_answer answer(clip *t, uint64_t rows, bool hidden, bool pooled) {
    const rn_clip_config *c = t->c;
    rn_graph *g = t->b.g;
    rn_value x = embed(t, rows), before = RN_NO_VALUE, weight = RN_NO_VALUE, bias = RN_NO_VALUE;
    for (uint32_t i = 0; i < c->layers - (pooled ? 0 : c->skip); i++) {
        if (i + c->skip == c->layers) before = x;
        x = layer(t, x, i);
    }
    begin_block(t, "end");
    if (before == RN_NO_VALUE) before = x;
    if (pooled || c->final_norm) {
        weight = rn_image_vector(&t->b, "text_model.final_layer_norm", "weight", RN_SHAPE(c->dim));
        bias = rn_image_vector(&t->b, "text_model.final_layer_norm", "bias", RN_SHAPE(c->dim));
        x = rn_op_layernorm(g, x, weight, bias, c->eps);
    }
    if (hidden && c->final_norm)
        before = c->skip && pooled ? rn_op_layernorm(g, before, weight, bias, c->eps) : x;
    return (rn_clip_answer){hidden ? before : RN_NO_VALUE, pooled ? pool(t, x, rows) : RN_NO_VALUE};
}

rn_clip_answer rn_clip_within(rn_graph *g, const rn_clip_config *c, uint32_t batch,
                              const char *prefix, bool hidden, bool pooled) {
    clip t = {.b = {.g = g, .files = c->files, .prefix = prefix, .trains = true}, .c = c};
    return answer(&t, batch, hidden, pooled);
}

static rn_status write(rn_graph *g, const void *config, uint32_t batch, rn_forward_values *out) {
    const rn_clip_config *c = config;
    clip t = {.b = {.g = g, .files = c->files, .prefix = ""}, .c = c};
    rn_clip_answer all = answer(&t, batch ? batch : RN_ROWS, true, true);
    *out = (rn_forward_values){.hidden = all.hidden, .logits = all.pooled};
    if (batch) return RN_OK;
    rn_graph_output(g, all.hidden, "hidden");
    rn_graph_output(g, all.pooled, "pooled");
    return RN_OK;
}

static rn_status check(const void *config, bool training) {
    const rn_clip_config *c = config;
    (void)training;
    bool sound = c->layers > 0 && c->layers <= 256 && c->dim > 0 && c->heads > 0 &&
                 c->dim % c->heads == 0 && c->ffn > 0 && c->vocab > 0 && c->tokens > 0 &&
                 c->skip < c->layers;
    return sound ? RN_OK : rn_fail(RN_INVALID, "a text encoder cannot have these sizes");
}

rn_status rn_clip_recipe(const rn_clip_config *config, rn_recipe *out) {
    rn_forward forward = {.write = write,
                          .check = check,
                          .config = config,
                          .config_bytes = sizeof *config,
                          .rows = config->rows ? config->rows : 1};
    RN_TRY(rn_model_recipe(forward, out));
    snprintf(out->name, sizeof out->name, "clip");
    return RN_OK;
}

rn_status rn_clip_config_read(const rn_fields *f, rn_clip_config *out) {
    rn_clip_config c = {.layers = 12,
                        .dim = 768,
                        .heads = 12,
                        .ffn = 3072,
                        .vocab = 49408,
                        .tokens = 77,
                        .eps = 1e-5f,
                        .end_token = 49407,
                        .final_norm = true};
    RN_TRY(rn_fields_u32(f, "num_hidden_layers", &c.layers));
    RN_TRY(rn_fields_u32(f, "hidden_size", &c.dim));
    RN_TRY(rn_fields_u32(f, "num_attention_heads", &c.heads));
    RN_TRY(rn_fields_u32(f, "intermediate_size", &c.ffn));
    RN_TRY(rn_fields_u32(f, "vocab_size", &c.vocab));
    RN_TRY(rn_fields_u32(f, "max_position_embeddings", &c.tokens));
    RN_TRY(rn_fields_number(f, "layer_norm_eps", &c.eps));
    RN_TRY(rn_fields_u32(f, "eos_token_id", &c.end_token));
    rn_str text = RN_STR("quick_gelu"), architecture = {0};
    RN_TRY(rn_fields_text(f, "hidden_act", &text));
    if (rn_str_equal(text, RN_STR("gelu")))
        c.activation = RN_CLIP_GELU;
    else if (!rn_str_equal(text, RN_STR("quick_gelu")))
        return rn_fail(RN_UNSUPPORTED, "%s: hidden_act %.*s is not built", f->source,
                       RN_STR_ARG(text));
    RN_TRY(rn_fields_text(f, "architectures.0", &architecture));
    if (rn_str_equal(architecture, RN_STR("CLIPTextModelWithProjection")))
        RN_TRY(rn_fields_need_u32(f, "projection_dim", &c.projection));
    // Old files say 2, which is no end token: transformers then takes the largest id's first row.
    if (c.end_token == 2) c.end_token = c.vocab - 1;
    RN_TRY(check(&c, false));
    *out = c;
    return RN_OK;
}

// t5.c — T5 v1.1's encoder. One layer, every token sees all of its text:
//
//     x ─ norm ─ q, k, v ─ attention (+ bias by distance, no scale) ─ o ─ + ─ norm ─ gelu(wi_0)
//     wi_1 ─ wo ─ + ─▶
//
// The bias is the first layer's, for all of them.
#include "model/image/image_networks.h"

#include "base/str.h"

#include <math.h>
#include <stdio.h>

typedef struct t5 {
    rn_image_builder b;
    const rn_t5_config *c;
    rn_value span, distances;
} t5;

enum { MOST_DISTANCE = 4096 };

// Half of the buckets are for keys behind the query; of each half the first half for one distance
// each, the others for ranges that grow by a factor up to the farthest.
static int32_t bucket_of(int32_t distance, const rn_t5_config *c) {
    int32_t half = (int32_t)c->buckets / 2, near = half / 2, base = distance > 0 ? half : 0;
    int32_t n = distance > 0 ? distance : -distance;
    if (n < near) return base + n;
    float range = logf((float)n / (float)near) / logf((float)c->farthest / (float)near);
    int32_t far = near + (int32_t)(range * (float)(half - near));
    return base + (far < half ? far : half - 1);
}

// (heads, 2 * farthest + 1): of each distance.
static rn_value spread_distances(t5 *t) {
    const rn_t5_config *c = t->c;
    static const char *const name =
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight";
    int32_t ids[2 * MOST_DISTANCE + 1];
    uint64_t count = 2 * (uint64_t)c->farthest + 1;
    for (uint64_t i = 0; i < count; i++)
        ids[i] = bucket_of((int32_t)i - (int32_t)c->farthest, c);
    rn_value buckets = rn_graph_constant(t->b.g, "buckets", RN_DTYPE_I32, RN_SHAPE(count), ids);
    rn_value table = rn_image_weight(&t->b, name, RN_SHAPE(c->buckets, c->heads));
    return rn_op_permute(t->b.g, rn_op_embedding(t->b.g, table, buckets), (const uint8_t[]){1, 0});
}

static rn_value layer(t5 *t, rn_value x, uint32_t number) {
    rn_image_builder *b = &t->b;
    const rn_t5_config *c = t->c;
    uint64_t wide = (uint64_t)c->heads * c->head_dim;
    rn_image_name name = rn_image_named("encoder.block.%u.layer", number);
    rn_graph_block(b->g, rn_image_named("encoder.block.%u", number).text);
    rn_value y =
        rn_image_rms_norm(b, x, rn_image_named("%s.0.layer_norm", name.text).text, c->dim, c->eps);
    rn_value qkv[3];
    static const char *const parts[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) {
        qkv[i] =
            rn_image_linear(b, y, rn_image_named("%s.0.SelfAttention.%s", name.text, parts[i]).text,
                            c->dim, wide, RN_IMAGE_NO_BIAS);
        qkv[i] = rn_op_reshape(b->g, qkv[i], RN_SHAPE(RN_ROWS, c->heads, c->head_dim));
    }
    y = rn_op_varlen_attention(b->g, qkv[0], qkv[1], qkv[2], t->span, t->distances,
                               (rn_attention_attrs){.scale = 1});
    y = rn_op_reshape(b->g, y, RN_SHAPE(RN_ROWS, wide));
    y = rn_image_linear(b, y, rn_image_named("%s.0.SelfAttention.o", name.text).text, wide, c->dim,
                        RN_IMAGE_NO_BIAS);
    x = rn_op_add(b->g, x, y);
    y = rn_image_rms_norm(b, x, rn_image_named("%s.1.layer_norm", name.text).text, c->dim, c->eps);
    rn_value gate =
        rn_image_linear(b, y, rn_image_named("%s.1.DenseReluDense.wi_0", name.text).text, c->dim,
                        c->ffn, RN_IMAGE_NO_BIAS);
    rn_value up = rn_image_linear(b, y, rn_image_named("%s.1.DenseReluDense.wi_1", name.text).text,
                                  c->dim, c->ffn, RN_IMAGE_NO_BIAS);
    y = rn_op_gated(b->g, gate, up, RN_ACTIVATION_GELU_TANH);
    y = rn_image_linear(b, y, rn_image_named("%s.1.DenseReluDense.wo", name.text).text, c->ffn,
                        c->dim, RN_IMAGE_NO_BIAS);
    return rn_op_add(b->g, x, y);
}

static rn_status write(rn_graph *g, const void *config, uint32_t batch, rn_forward_values *out) {
    const rn_t5_config *c = config;
    t5 t = {.b = {.g = g, .files = c->files}, .c = c};
    if (batch) return rn_fail(RN_UNSUPPORTED, "T5 is not trained");
    rn_value tokens = rn_graph_input(g, "tokens", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    t.span = rn_graph_input(g, "span", RN_DTYPE_I32, RN_SHAPE(RN_ROWS, 2));
    rn_graph_block(g, "begin");
    rn_value x = rn_op_embedding(
        g, rn_image_weight(&t.b, "shared.weight", RN_SHAPE(c->vocab, c->dim)), tokens);
    t.distances = spread_distances(&t);
    for (uint32_t i = 0; i < c->layers; i++)
        x = layer(&t, x, i);
    rn_graph_block(g, "end");
    x = rn_image_rms_norm(&t.b, x, "encoder.final_layer_norm", c->dim, c->eps);
    *out = (rn_forward_values){.hidden = x};
    rn_graph_output(g, x, "hidden");
    return RN_OK;
}

static rn_status check(const void *config, bool training) {
    const rn_t5_config *c = config;
    (void)training;
    bool sound = c->layers > 0 && c->layers <= 256 && c->dim > 0 && c->heads > 0 && c->ffn > 0 &&
                 c->head_dim > 0 && c->vocab > 0 && c->buckets >= 4 && c->buckets % 4 == 0 &&
                 c->buckets <= 1024 && c->farthest <= MOST_DISTANCE && c->farthest > c->buckets / 4;
    return sound ? RN_OK : rn_fail(RN_INVALID, "a T5 encoder cannot have these sizes");
}

rn_status rn_t5_recipe(const rn_t5_config *config, rn_recipe *out) {
    rn_forward forward = {.write = write,
                          .check = check,
                          .config = config,
                          .config_bytes = sizeof *config,
                          .rows = config->rows ? config->rows : 512};
    RN_TRY(rn_model_recipe(forward, out));
    out->least_rows = out->rows; // a text is not cut
    snprintf(out->name, sizeof out->name, "t5");
    return RN_OK;
}

rn_status rn_t5_config_read(const rn_fields *f, rn_t5_config *out) {
    rn_t5_config c = {.buckets = 32, .farthest = 128, .eps = 1e-6f, .rows = 512};
    RN_TRY(rn_fields_need_u32(f, "num_layers", &c.layers));
    RN_TRY(rn_fields_need_u32(f, "d_model", &c.dim));
    RN_TRY(rn_fields_need_u32(f, "num_heads", &c.heads));
    RN_TRY(rn_fields_need_u32(f, "d_kv", &c.head_dim));
    RN_TRY(rn_fields_need_u32(f, "d_ff", &c.ffn));
    RN_TRY(rn_fields_need_u32(f, "vocab_size", &c.vocab));
    RN_TRY(rn_fields_u32(f, "relative_attention_num_buckets", &c.buckets));
    RN_TRY(rn_fields_u32(f, "relative_attention_max_distance", &c.farthest));
    RN_TRY(rn_fields_number(f, "layer_norm_epsilon", &c.eps));
    rn_str text = RN_STR("relu");
    RN_TRY(rn_fields_text(f, "feed_forward_proj", &text));
    if (!rn_str_equal(text, RN_STR("gated-gelu")))
        return rn_fail(RN_UNSUPPORTED, "%s: feed_forward_proj %.*s is not built, gated-gelu is",
                       f->source, RN_STR_ARG(text));
    RN_TRY(check(&c, false));
    *out = c;
    return RN_OK;
}

// llama.c — the Llama decoder: embedding, layers of attention and a gated feed-forward, head.
//
// Activations are rows (rows, dim): in inference the ROWS of a step, whichever sequences they
// belong to, with keys and values in pages; in training batch * tokens, with attention over each
// sequence.
#include "model/model.h"

#include "memory/account.h"

#include <stdio.h>

typedef struct decoder {
    rn_graph *g;
    const rn_llama_config *c;
    uint32_t batch; // 0: inference
    uint64_t rows;  // RN_ROWS, or batch * tokens
    uint64_t head_dim;
    rn_value positions;            // (ROWS), or (batch, tokens)
    rn_value sequence, page_table; // inference
    char prefix[48];               // "model.layers.0"
} decoder;

// A weight (out, in) of the layer.
static rn_value matrix(decoder *d, const char *part, uint64_t out, uint64_t in) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s.weight", d->prefix, part);
    return rn_graph_weight(d->g, name, d->c->weight_dtype, RN_SHAPE(out, in));
}

static rn_value project(decoder *d, rn_value x, const char *part, uint64_t out, uint64_t in) {
    return rn_op_matmul(d->g, x, matrix(d, part, out, in), RN_NO_VALUE);
}

static rn_value norm(decoder *d, rn_value x, const char *part) {
    char name[64];
    snprintf(name, sizeof name, "%s.%s", d->prefix, part);
    rn_value weight = rn_model_weight(d->g, name, "weight", RN_SHAPE(d->c->dim));
    return rn_op_rmsnorm(d->g, x, weight, d->c->norm_eps != 0 ? d->c->norm_eps : 1e-5f);
}

// x (rows, heads * head_dim) as (ROWS, heads, head_dim) or (batch, tokens, heads, head_dim).
static rn_value split(decoder *d, rn_value x, uint64_t heads) {
    return rn_op_reshape(d->g, x,
                         d->batch ? RN_SHAPE(d->batch, d->c->tokens, heads, d->head_dim)
                                  : RN_SHAPE(d->rows, heads, d->head_dim));
}

static rn_value rotate(decoder *d, rn_value x) {
    float base = d->c->rope_base != 0 ? d->c->rope_base : 10000;
    return rn_op_rope(d->g, x, d->positions,
                      (rn_rope_attrs){.pairing = RN_ROPE_HALVES, .base = base});
}

// Keys and values go into the sequences' pages; a row sees those of its own sequence.
static rn_value paged(decoder *d, rn_value q, rn_value k, rn_value v) {
    const rn_llama_config *c = d->c;
    char name[64];
    uint64_t pages = (c->context + c->page_tokens - 1) / c->page_tokens * (uint64_t)c->sequences;
    snprintf(name, sizeof name, "%s.kv", d->prefix + sizeof "model." - 1);
    rn_value kv =
        rn_graph_state(d->g, name, c->kv_dtype,
                       RN_SHAPE(pages, 2, c->kv_heads, c->page_tokens, d->head_dim), RN_PURPOSE_KV);
    kv = rn_op_kv_append(d->g, kv, k, v, d->sequence, d->positions, d->page_table);
    return rn_op_paged_attention(d->g, q, kv, d->sequence, d->positions, d->page_table,
                                 (rn_attention_attrs){.causal = true});
}

static rn_value attend(decoder *d, rn_value x) {
    const rn_llama_config *c = d->c;
    uint64_t wide = c->heads * d->head_dim, narrow = c->kv_heads * d->head_dim;
    rn_value q = split(d, project(d, x, "self_attn.q_proj", wide, c->dim), c->heads);
    rn_value k = split(d, project(d, x, "self_attn.k_proj", narrow, c->dim), c->kv_heads);
    rn_value v = split(d, project(d, x, "self_attn.v_proj", narrow, c->dim), c->kv_heads);
    q = rotate(d, q);
    k = rotate(d, k);
    rn_value y =
        d->batch ? rn_op_attention(d->g, q, k, v, RN_NO_VALUE, (rn_attention_attrs){.causal = true})
                 : paged(d, q, k, v);
    y = rn_op_reshape(d->g, y, RN_SHAPE(d->rows, wide));
    return project(d, y, "self_attn.o_proj", c->dim, wide);
}

static rn_value feed_forward(decoder *d, rn_value x) {
    const rn_llama_config *c = d->c;
    rn_value gate = project(d, x, "mlp.gate_proj", c->ffn, c->dim);
    rn_value up = project(d, x, "mlp.up_proj", c->ffn, c->dim);
    rn_value y = rn_op_gated(d->g, gate, up, RN_ACTIVATION_SILU);
    return project(d, y, "mlp.down_proj", c->dim, c->ffn);
}

static rn_value layer(decoder *d, rn_value x, uint32_t number) {
    char block[32];
    snprintf(block, sizeof block, "layer %u", number);
    snprintf(d->prefix, sizeof d->prefix, "model.layers.%u", number);
    rn_graph_block(d->g, block);
    x = rn_op_add(d->g, x, attend(d, norm(d, x, "input_layernorm")));
    return rn_op_add(d->g, x, feed_forward(d, norm(d, x, "post_attention_layernorm")));
}

// 0, 1, 2, ... for each sequence.
static rn_status count_positions(decoder *d) {
    size_t count = d->rows;
    void *block = NULL;
    RN_TRY(rn_alloc(RN_HOST_OTHER, count * sizeof(int32_t), &block));
    int32_t *positions = block; // (batch, tokens)
    for (size_t i = 0; i < count; i++)
        positions[i] = (int32_t)(i % d->c->tokens);
    d->positions = rn_graph_constant(d->g, "positions", RN_DTYPE_I32,
                                     RN_SHAPE(d->batch, d->c->tokens), positions);
    rn_free(RN_HOST_OTHER, block, count * sizeof(int32_t));
    return RN_OK;
}

static rn_status inputs(decoder *d, rn_value *out_tokens, rn_value *out_last) {
    const rn_llama_config *c = d->c;
    rn_graph *g = d->g;
    if (d->batch) {
        rn_shape shape = RN_SHAPE(d->batch, c->tokens);
        *out_tokens = rn_graph_input(g, "tokens", RN_DTYPE_I32, shape);
        *out_last = rn_graph_input(g, "targets", RN_DTYPE_I32, shape);
        return count_positions(d);
    }
    uint64_t pages = (c->context + c->page_tokens - 1) / c->page_tokens;
    *out_tokens = rn_graph_input(g, "tokens", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    *out_last = rn_graph_input(g, "rows", RN_DTYPE_I32, RN_SHAPE(c->logit_rows));
    d->sequence = rn_graph_input(g, "sequence", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    d->positions = rn_graph_input(g, "position", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    d->page_table = rn_graph_input(g, "page_table", RN_DTYPE_I32, RN_SHAPE(c->sequences, pages));
    return RN_OK;
}

static rn_status write(rn_graph *g, const void *config, uint32_t batch, uint32_t micro_batches) {
    const rn_llama_config *c = config;
    decoder d = {.g = g,
                 .c = c,
                 .batch = batch,
                 .rows = batch ? (uint64_t)batch * c->tokens : RN_ROWS,
                 .head_dim = c->dim / c->heads,
                 .prefix = "model"};
    rn_value tokens = RN_NO_VALUE, last = RN_NO_VALUE; // last: targets, or which rows are wanted
    RN_TRY(inputs(&d, &tokens, &last));
    rn_graph_block(g, "embedding");
    rn_value x = rn_op_embedding(g, matrix(&d, "embed_tokens", c->vocab, c->dim), tokens);
    if (batch) x = rn_op_reshape(g, x, RN_SHAPE(d.rows, c->dim));
    for (uint32_t i = 0; i < c->layers; i++)
        x = layer(&d, x, i);
    rn_graph_block(g, "head");
    snprintf(d.prefix, sizeof d.prefix, "model");
    if (!batch) x = rn_op_embedding(g, x, last);
    x = norm(&d, x, "norm");
    rn_value head =
        rn_graph_weight(g, "lm_head.weight", c->weight_dtype, RN_SHAPE(c->vocab, c->dim));
    x = rn_op_matmul(g, x, head, RN_NO_VALUE);
    if (batch)
        return rn_model_train(g, x, rn_op_reshape(g, last, RN_SHAPE(d.rows)), &c->train,
                              micro_batches);
    rn_graph_output(g, x, "logits");
    return RN_OK;
}

static rn_status check(const rn_llama_config *c) {
    if (c->layers == 0 || c->heads == 0 || c->kv_heads == 0 || c->dim == 0)
        return rn_fail(RN_INVALID, "llama: layers, heads and width must be at least 1");
    if (c->dim % c->heads || c->dim / c->heads % 2)
        return rn_fail(RN_INVALID, "llama: %u wide cannot be %u heads of an even width", c->dim,
                       c->heads);
    if (c->heads % c->kv_heads)
        return rn_fail(RN_INVALID, "llama: %u kv heads do not divide %u heads", c->kv_heads,
                       c->heads);
    if (c->train.batch == 0 && (c->page_tokens == 0 || c->context == 0))
        return rn_fail(RN_INVALID, "llama: inference needs a context and pages");
    if (c->train.batch && c->tokens == 0)
        return rn_fail(RN_INVALID, "llama: training needs sequences of at least one token");
    if (c->train.batch && c->weight_dtype != RN_DTYPE_F32)
        return rn_fail(RN_UNSUPPORTED, "llama: only f32 weights can be trained, not %s",
                       rn_dtype_get(c->weight_dtype)->name);
    return RN_OK;
}

rn_status rn_llama_recipe(const rn_llama_config *config, rn_recipe *out) {
    RN_TRY(check(config));
    RN_TRY(rn_model_recipe(write, config, sizeof *config, &config->train, out));
    out->rows = config->train.batch ? 0 : config->rows;
    return RN_OK;
}

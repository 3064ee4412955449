// decoder.c — see decoder.h: weights by name, the parts of a layer, and the whole around layers.
//
//     tokens ─ embedding [+ positions] ─ layer 0 ─ layer 1 ─ ... ─ norm ─ head ─▶ logits
//                                                                      └▶ hidden, where packed
//
// Activations are rows (rows, dim): in inference the ROWS of a step, whichever sequences they
// belong to, with keys and values in pages; for embeddings the rows of texts packed one behind the
// other, each with all of its rows in the run; in training batch * tokens, with attention over each
// sequence.
#include "model/text/decoder.h"

#include "base/str.h"
#include "graph/rope_frequencies.h"
#include "memory/account.h"

#include <math.h>
#include <stdio.h>

// ---- weights ------------------------------------------------------------------------------------

enum { NAME_BYTES = 96 };

static const rn_text_part *part_of(const rn_llama_config *c, rn_text_part_id p) {
    return &rn_text_architecture_of(c)->parts[p];
}

void rn_text_weight_name(const rn_llama_config *c, rn_text_part_id p, uint32_t layer,
                         const char *what, char *out, size_t capacity) {
    const rn_text_architecture *a = rn_text_architecture_of(c);
    const char *name = c->naming == RN_NAMES_GGUF ? a->parts[p].gguf : a->parts[p].hugging_face;
    bool bare = c->naming == RN_NAMES_BARE && a->outer;
    size_t outer = bare && strncmp(name, a->outer, strlen(a->outer)) == 0 ? strlen(a->outer) : 0;
    const char *dot = *what ? "." : "";
    const char *before = c->naming != RN_NAMES_GGUF && a->prefix ? a->prefix : "";
    if (p >= RN_TEXT_IN_LAYER)
        snprintf(out, capacity, "%s%s.%u.%s%s%s", before, a->layers[c->naming], layer, name, dot,
                 what);
    else
        snprintf(out, capacity, "%s%s%s%s", before, name + outer, dot, what);
}

bool rn_text_packed_name(const char *stack, char *out, size_t capacity) {
    const char *mark = strstr(stack, "_exps.");
    if (!mark) return false;
    int length =
        snprintf(out, capacity, "%.*s.*.%s", (int)(mark - stack), stack, mark + strlen("_exps."));
    return length > 0 && (size_t)length < capacity;
}

static bool is_transposed(const rn_llama_config *c, rn_text_part_id p) {
    return part_of(c, p)->transposed && c->naming != RN_NAMES_GGUF;
}

// "model.layers.7.mlp.up_proj" -> 7 and "mlp.up_proj"; false: it is in no layer.
static bool parse_layer(const char *text, const char *layers, unsigned *out_layer,
                        const char **out_rest) {
    int rest = 0;
    size_t bytes = strlen(layers);
    if (strncmp(text, layers, bytes) != 0) return false;
    if (sscanf(text + bytes, ".%5u.%n", out_layer, &rest) != 1 || rest == 0) return false;
    *out_rest = text + bytes + rest;
    return true;
}

bool rn_llama_weight_name(const rn_llama_config *config, rn_str module, char *out, size_t capacity,
                          bool *out_transposed) {
    const rn_text_architecture *a = rn_text_architecture_of(config);
    char text[NAME_BYTES];
    const char *rest = text;
    unsigned layer = 0;
    if (module.bytes >= sizeof text) return false;
    memcpy(text, module.data, module.bytes);
    text[module.bytes] = '\0';
    bool in_layer = parse_layer(text, a->layers[RN_NAMES_HUGGING_FACE], &layer, &rest);
    rn_text_part_id end = in_layer ? RN_TEXT_PARTS : RN_TEXT_IN_LAYER;
    for (rn_text_part_id p = in_layer ? RN_TEXT_IN_LAYER : 0; p < end; p++) {
        const char *name = a->parts[p].hugging_face;
        if (!name || strcmp(rest, name) != 0) continue;
        rn_text_weight_name(config, p, layer, "weight", out, capacity);
        *out_transposed = is_transposed(config, p);
        return true;
    }
    return false;
}

uint64_t rn_build_size(const rn_text_builder *d, rn_text_size size) {
    const rn_llama_config *c = d->c;
    const rn_recurrent_config *r = &c->recurrent;
    uint64_t wide = c->heads * d->head_dim, narrow = d->kv_heads * d->head_dim;
    uint64_t keys = (uint64_t)r->key_heads * r->key_dim;
    uint64_t values = (uint64_t)r->value_heads * r->value_dim;
    const uint64_t sizes[] = {[RN_SIZE_NONE] = 1,
                              [RN_SIZE_DIM] = c->dim,
                              [RN_SIZE_WIDE] = wide,
                              [RN_SIZE_NARROW] = narrow,
                              [RN_SIZE_QKV] = wide + 2 * narrow,
                              [RN_SIZE_FFN] = c->ffn,
                              [RN_SIZE_TWO_FFN] = 2 * (uint64_t)c->ffn,
                              [RN_SIZE_VOCAB] = c->vocab,
                              [RN_SIZE_HEAD_DIM] = d->head_dim,
                              [RN_SIZE_POSITIONS] = c->positions,
                              [RN_SIZE_THREE_DIM] = 3 * (uint64_t)c->dim,
                              [RN_SIZE_TWO_WIDE] = 2 * wide,
                              [RN_SIZE_MIXED] = 2 * keys + values,
                              [RN_SIZE_VALUES] = values,
                              [RN_SIZE_VALUE_HEADS] = r->value_heads,
                              [RN_SIZE_VALUE_DIM] = r->value_dim,
                              [RN_SIZE_TYPES] = c->token_types,
                              [RN_SIZE_BUCKETS] = c->distance_buckets,
                              [RN_SIZE_HEADS] = c->heads,
                              [RN_SIZE_DENSE] = c->dense,
                              [RN_SIZE_SCORE] = 1,
                              [RN_SIZE_MIXED_GATED] = 2 * (keys + values),
                              [RN_SIZE_TWO_VALUE_HEADS] = 2 * (uint64_t)r->value_heads,
                              [RN_SIZE_EXPERTS] = c->moe.experts,
                              [RN_SIZE_EXPERT_FFN] = c->moe.ffn,
                              [RN_SIZE_TWO_EXPERT_FFN] = 2 * (uint64_t)c->moe.ffn,
                              [RN_SIZE_SHARED_FFN] = c->moe.shared_ffn,
                              [RN_SIZE_ONE] = 1,
                              [RN_SIZE_Q_RANK] = c->latent.q_rank,
                              [RN_SIZE_KV_RANK] = c->latent.kv_rank,
                              [RN_SIZE_LATENT] = (uint64_t)c->latent.kv_rank + c->latent.turned,
                              [RN_SIZE_STILL] = c->latent.still,
                              [RN_SIZE_HEAD_KEYS_VALUES] =
                                  c->heads * ((uint64_t)c->latent.still + c->latent.value),
                              [RN_SIZE_HEAD_VALUES] = (uint64_t)c->heads * c->latent.value,
                              [RN_SIZE_HEAD_LATENTS] = (uint64_t)c->heads * c->latent.kv_rank};
    return sizes[size];
}

static rn_value weight(rn_text_builder *d, rn_text_part_id p, const char *what, rn_shape shape) {
    const rn_llama_files *files = d->c->files;
    rn_dtype dtype = shape.rank > 1 ? d->c->weight_dtype : RN_DTYPE_F32;
    char name[NAME_BYTES];
    rn_text_weight_name(d->c, p, d->layer, what, name, sizeof name);
    if (files) dtype = files->dtype(files->self, name);
    return rn_graph_weight(d->g, name, dtype, shape);
}

// Tensors of Hugging Face's with all experts have no ".weight".
static const char *stack_suffix(const rn_text_builder *d, rn_text_part_id p) {
    return part_of(d->c, p)->alone && d->c->naming != RN_NAMES_GGUF ? "" : "weight";
}

// The name that the files have: of a stack, or of its matrices as tensors of their own. False:
// they have neither.
static bool find_stack_name(const rn_text_builder *d, rn_text_part_id p, const char *what,
                            char name[NAME_BYTES]) {
    const rn_llama_files *files = d->c->files;
    char packed[NAME_BYTES];
    rn_text_weight_name(d->c, p, d->layer, what, name, NAME_BYTES);
    if (!files || !files->exists || files->exists(files->self, name)) return files != NULL;
    if (!rn_text_packed_name(name, packed, sizeof packed) || !files->exists(files->self, packed))
        return false;
    memcpy(name, packed, sizeof packed);
    return true;
}

rn_value rn_build_stack(rn_text_builder *d, rn_text_part_id p) {
    const rn_text_part *part = part_of(d->c, p);
    const rn_llama_files *files = d->c->files;
    char name[NAME_BYTES];
    find_stack_name(d, p, stack_suffix(d, p), name);
    rn_dtype dtype = files ? files->dtype(files->self, name) : d->c->weight_dtype;
    return rn_graph_weight_stack(d->g, name, dtype, d->c->moe.experts, rn_build_size(d, part->out),
                                 rn_build_size(d, part->in));
}

bool rn_build_has(const rn_text_builder *d, rn_text_part_id p, const char *what) {
    const rn_llama_files *files = d->c->files;
    const rn_text_part *part = part_of(d->c, p);
    char name[NAME_BYTES];
    bool named = d->c->naming == RN_NAMES_GGUF ? part->gguf != NULL : part->hugging_face != NULL;
    if (!files || !files->exists || !named) return false;
    return find_stack_name(d, p, what, name);
}

rn_value rn_build_f32(rn_text_builder *d, rn_text_part_id p, const char *what, rn_shape shape) {
    rn_value w = weight(d, p, what, shape);
    bool is_f32 = w == RN_NO_VALUE || rn_graph_value(d->g, w)->dtype == RN_DTYPE_F32;
    return is_f32 ? w : rn_op_cast(d->g, w, RN_DTYPE_F32);
}

rn_value rn_build_matrix(rn_text_builder *d, rn_text_part_id p) {
    const rn_text_part *part = part_of(d->c, p);
    uint64_t out = rn_build_size(d, part->out), in = rn_build_size(d, part->in);
    return weight(d, p, "weight", is_transposed(d->c, p) ? RN_SHAPE(in, out) : RN_SHAPE(out, in));
}

rn_value rn_build_vector(rn_text_builder *d, rn_text_part_id p, const char *what) {
    return rn_build_f32(d, p, what, RN_SHAPE(rn_build_size(d, part_of(d->c, p)->out)));
}

// ---- parts of a layer ---------------------------------------------------------------------------

rn_value rn_build_norm(rn_text_builder *d, rn_value x, rn_text_part_id p) {
    float eps = d->c->norm_eps != 0 ? d->c->norm_eps : 1e-5f;
    rn_value w = rn_build_vector(d, p, "weight");
    if (d->c->norm_offset != 0) w = rn_op_scale(d->g, w, 1, d->c->norm_offset);
    if (!d->architecture->layernorm) return rn_op_rmsnorm(d->g, x, w, eps);
    rn_value bias = d->architecture->no_norm_bias ? RN_NO_VALUE : rn_build_vector(d, p, "bias");
    return rn_op_layernorm(d->g, x, w, bias, eps);
}

// Addition number `index` to a weight, or NULL.
static const rn_low_rank *addition(const rn_text_builder *d, rn_text_part_id p, uint32_t index) {
    const rn_llama_files *files = d->c->files;
    char name[NAME_BYTES];
    if (!files || !files->addition) return NULL;
    rn_text_weight_name(d->c, p, d->layer, "weight", name, sizeof name);
    return files->addition(files->self, name, index);
}

// (rows of x, 1): 1 where the row chose the adapter, else 0. The head's rows are the wanted ones.
static rn_value choice_of(rn_text_builder *d, uint32_t number, rn_text_part_id p) {
    char name[32];
    snprintf(name, sizeof name, "adapter.%u", number);
    rn_value chosen = rn_graph_find(d->g, RN_ROLE_INPUT, name);
    if (chosen == RN_NO_VALUE)
        chosen = rn_graph_input(d->g, name, RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 1));
    if (p != RN_TEXT_HEAD) return chosen;
    return rn_op_embedding(d->g, chosen, rn_graph_find(d->g, RN_ROLE_INPUT, "rows"));
}

// y = w x with an addition: y + up (down x), and that times magnitude / norms, where it has one.
static rn_value add_low_rank(rn_text_builder *d, rn_value x, rn_value w, rn_value y,
                             rn_text_part_id p, const rn_low_rank *more) {
    const rn_text_part *part = part_of(d->c, p);
    uint64_t in = rn_build_size(d, part->in), out = rn_build_size(d, part->out);
    rn_value down = rn_graph_weight(d->g, more->down, RN_DTYPE_F32, RN_SHAPE(more->rank, in));
    rn_value up = rn_graph_weight(d->g, more->up, RN_DTYPE_F32, RN_SHAPE(out, more->rank));
    rn_value low = rn_op_matmul(d->g, x, down, RN_NO_VALUE);
    if (more->scale != 0) low = rn_op_scale(d->g, low, more->scale, 0);
    if (more->choice) low = rn_op_mul(d->g, low, choice_of(d, more->choice, p));
    rn_value sum = rn_op_add(d->g, y, rn_op_matmul(d->g, low, up, RN_NO_VALUE));
    if (!more->magnitude) return sum;
    rn_adapted_norm_attrs attrs = {more->scale != 0 ? more->scale : 1};
    rn_value norms = rn_op_adapted_norm(d->g, w, down, up, attrs);
    rn_value magnitude = rn_graph_weight(d->g, more->magnitude, RN_DTYPE_F32, RN_SHAPE(out));
    return rn_op_mul(d->g, sum, rn_op_div(d->g, magnitude, norms));
}

rn_value rn_build_project(rn_text_builder *d, rn_value x, rn_text_part_id p, bool has_bias) {
    rn_matmul_attrs attrs = {.unquantised_activations = d->c->unquantised_activations,
                             .transpose_w = is_transposed(d->c, p)};
    rn_value w = p == RN_TEXT_HEAD && d->c->tied ? d->embedding : rn_build_matrix(d, p);
    rn_value bias = has_bias ? rn_build_vector(d, p, "bias") : RN_NO_VALUE;
    const rn_low_rank *more = addition(d, p, 0);
    bool late = more && more->magnitude && has_bias; // a magnitude is not the bias's
    rn_value y = rn_op_matmul_as(d->g, x, w, late ? RN_NO_VALUE : bias, attrs);
    for (uint32_t i = 0; (more = addition(d, p, i)); i++) {
        y = add_low_rank(d, x, w, y, p, more);
        if (late && i == 0) y = rn_op_add(d->g, y, bias);
    }
    return y;
}

// Logits of a training step from here on are not written: its loss does without them.
#define MANY_LOGITS ((uint64_t)4 << 20)

// Whether the logits are x wᵀ and nothing else, and many.
static bool can_leave_logits(const rn_text_builder *d) {
    const rn_llama_config *c = d->c;
    return d->batch && c->logit_scale == 0 && c->logit_cap == 0 &&
           !is_transposed(c, RN_TEXT_HEAD) && !addition(d, RN_TEXT_HEAD, 0) &&
           (uint64_t)d->rows * c->vocab > MANY_LOGITS;
}

rn_value rn_build_split(rn_text_builder *d, rn_value x, uint64_t heads) {
    return rn_op_reshape(d->g, x,
                         d->batch ? RN_SHAPE(d->batch, d->c->tokens, heads, d->head_dim)
                                  : RN_SHAPE(d->rows, heads, d->head_dim));
}

// Whether the layer sees its window only.
bool rn_build_is_local(const rn_text_builder *d) {
    const rn_llama_config *c = d->c;
    if (c->window == 0 || d->layer < c->window_from) return false;
    return c->window_period == 0 || (d->layer + !c->window_behind) % c->window_period != 0;
}

static rn_rope_attrs rope_attrs(const rn_text_builder *d) {
    if (d->c->local_rope.base != 0 && rn_build_is_local(d)) return d->c->local_rope;
    if (d->c->rope.base != 0) return d->c->rope;
    return (rn_rope_attrs){.pairing = RN_ROPE_HALVES,
                           .base = d->c->rope_base != 0 ? d->c->rope_base : 10000};
}

static uint64_t pages_of_context(const rn_llama_config *c) {
    return ((uint64_t)c->context + c->page_tokens - 1) / c->page_tokens;
}

static uint64_t count_pages(const rn_llama_config *c) {
    return c->pages ? c->pages : pages_of_context(c) * c->sequences;
}

// Pages that a sequence needs for a window and a step, used in turn: a row at position p sees keys
// from p - window + 1 on, while the step writes up to rows - 1 further. 0: that would save nothing.
static uint64_t window_pages(const rn_llama_config *c) {
    if (!c->rolling_windows || c->window == 0) return 0;
    uint64_t tokens = (uint64_t)c->window + c->rows - 1;
    uint64_t pages = (tokens + c->page_tokens - 1) / c->page_tokens;
    return pages * c->sequences < count_pages(c) ? pages : 0;
}

// Page i of sequence s, as (sequences, pages of a context).
static rn_status write_window_table(rn_text_builder *d) {
    const rn_llama_config *c = d->c;
    void *block = NULL;
    if (d->batch || window_pages(c) == 0) return RN_OK;
    uint64_t own = window_pages(c), of_context = pages_of_context(c);
    uint64_t count = of_context * c->sequences;
    RN_TRY(rn_alloc(RN_HOST_OTHER, count * sizeof(int32_t), &block));
    int32_t *table = block; // (sequences, pages of a context)
    for (uint64_t i = 0; i < count; i++)
        table[i] = (int32_t)(i / of_context * own + i % of_context % own);
    d->window_table = rn_graph_constant(d->g, "window_table", RN_DTYPE_I32,
                                        RN_SHAPE(c->sequences, of_context), table);
    rn_free(RN_HOST_OTHER, block, count * sizeof(int32_t));
    return RN_OK;
}

// What the query of a row is multiplied by, for all positions. Up to query_step it is 1: then there
// is no table.
static rn_status write_query_scales(rn_text_builder *d) {
    const rn_llama_config *c = d->c;
    void *block = NULL;
    if (c->query_growth == 0 || d->batch || c->packed || c->context <= c->query_step) return RN_OK;
    RN_TRY(rn_alloc(RN_HOST_OTHER, c->context * sizeof(float), &block));
    float *scales = block; // (context)
    for (uint32_t p = 0; p < c->context; p++)
        scales[p] = 1 + c->query_growth * (float)log1p(p / c->query_step);
    d->query_scales =
        rn_graph_constant(d->g, "query_scales", RN_DTYPE_F32, RN_SHAPE(c->context, 1), scales);
    rn_free(RN_HOST_OTHER, block, c->context * sizeof(float));
    return RN_OK;
}

// In each layer anew, so that no value but its rows goes from layer to layer.
static rn_value grow_queries(rn_text_builder *d, rn_value q) {
    if (d->query_scales == RN_NO_VALUE) return q;
    rn_value scales = rn_op_embedding(d->g, d->query_scales, d->positions);
    return rn_op_mul(d->g, q, rn_op_reshape(d->g, scales, RN_SHAPE(d->rows, 1, 1)));
}

static rn_value pages_of_layer(rn_text_builder *d, bool rolls) {
    const rn_llama_config *c = d->c;
    char name[48];
    uint64_t pages = rolls ? window_pages(c) * c->sequences : count_pages(c);
    rn_shape shape = RN_SHAPE(pages, 2, d->kv_heads, c->page_tokens, d->head_dim);
    snprintf(name, sizeof name, "layers.%u%s", d->layer, rolls ? RN_WINDOW_STATE : ".kv");
    if (c->latent.kv_rank)
        shape = RN_SHAPE(pages, 1, 1, c->page_tokens, rn_build_size(d, RN_SIZE_LATENT));
    return rn_graph_state(d->g, name, c->kv_dtype, shape, RN_PURPOSE_KV);
}

static rn_value paged(rn_text_builder *d, rn_value q, rn_value k, rn_value v,
                      rn_attention_attrs attrs) {
    bool rolls = attrs.window && d->window_table != RN_NO_VALUE;
    rn_value table = rolls ? d->window_table : d->page_table, pages = pages_of_layer(d, rolls);
    rn_value kv = rn_op_kv_append(d->g, pages, k, v, d->sequence, d->positions, table);
    if (!d->c->sinks)
        return rn_op_paged_attention(d->g, q, kv, d->sequence, d->positions, table, attrs);
    rn_value sinks = rn_build_vector(d, RN_TEXT_SINKS, "");
    return rn_op_paged_attention_sinks(d->g, q, kv, d->sequence, d->positions, table, sinks, attrs);
}

rn_value rn_build_attention(rn_text_builder *d, rn_value q, rn_value k, rn_value v) {
    rn_attention_attrs attrs = {.scale = d->c->attention_scale,
                                .causal = !d->c->both_ways,
                                .window = rn_build_is_local(d) ? d->c->window : 0,
                                .cap = d->c->score_cap};
    rn_value y;
    if (d->batch)
        y = rn_op_attention(d->g, q, k, v, d->documents, attrs);
    else if (d->c->packed)
        y = rn_op_varlen_attention(d->g, q, k, v, d->span, d->distances, attrs);
    else
        y = paged(d, q, k, v, attrs);
    return rn_op_reshape(d->g, y, RN_SHAPE(d->rows, rn_build_size(d, RN_SIZE_WIDE)));
}

rn_value rn_build_latent_attention(rn_text_builder *d, rn_value q, rn_value k) {
    rn_attention_attrs attrs = {
        .scale = d->c->attention_scale, .causal = true, .value_dims = d->c->latent.kv_rank};
    return paged(d, q, k, RN_NO_VALUE, attrs);
}

// Heads, turned where the layer has a rope.
rn_value rn_build_turn(rn_text_builder *d, rn_value heads) {
    uint32_t period = d->c->unturned_period;
    bool has_rope = d->c->positions == 0 && (period == 0 || (d->layer + 1) % period != 0);
    if (!has_rope) return heads;
    bool own = d->c->local_rope.base != 0 && rn_build_is_local(d);
    if (!d->c->rope_divided || own) return rn_op_rope(d->g, heads, d->positions, rope_attrs(d));
    return rn_op_rope_divided(d->g, heads, d->positions, d->divisors, rope_attrs(d));
}

// Queries or keys, split into heads, normed where the model does (all heads as one, or each), and
// turned.
static rn_value turned(rn_text_builder *d, rn_value x, rn_text_part_id p, rn_text_part_id normed,
                       uint64_t heads) {
    rn_value y = rn_build_project(d, x, p, d->c->qkv_bias);
    bool as_one = d->c->qk_norm && part_of(d->c, normed)->out != RN_SIZE_HEAD_DIM;
    if (as_one) y = rn_build_norm(d, y, normed);
    y = rn_build_split(d, y, heads);
    if (d->c->qk_norm && !as_one) y = rn_build_norm(d, y, normed);
    return rn_build_turn(d, y);
}

rn_value rn_build_attend(rn_text_builder *d, rn_value x) {
    const rn_llama_config *c = d->c;
    rn_value q = turned(d, x, RN_TEXT_Q, RN_TEXT_Q_NORM, c->heads);
    q = grow_queries(d, q);
    rn_value k = turned(d, x, RN_TEXT_K, RN_TEXT_K_NORM, c->kv_heads);
    rn_value v = rn_build_project(d, x, RN_TEXT_V, c->qkv_bias);
    rn_value y = rn_build_attention(d, q, k, rn_build_split(d, v, c->kv_heads));
    return rn_build_project(d, y, RN_TEXT_O, c->output_bias);
}

rn_value rn_build_attend_qkv(rn_text_builder *d, rn_value x) {
    const rn_llama_config *c = d->c;
    bool grouped = d->architecture->grouped_qkv && c->naming != RN_NAMES_GGUF;
    uint64_t groups = grouped ? c->kv_heads : 1, heads = c->heads / groups,
             kv_heads = c->kv_heads / groups, size = d->head_dim;
    rn_value y = rn_build_project(d, x, RN_TEXT_QKV, c->qkv_bias);
    uint32_t axis = grouped ? 2 : 1;
    if (grouped)
        y = rn_op_reshape(d->g, y, RN_SHAPE(d->rows, groups, (heads + 2 * kv_heads) * size));
    rn_value q = rn_op_slice(d->g, y, axis, 0, heads * size);
    rn_value k = rn_op_slice(d->g, y, axis, heads * size, kv_heads * size);
    rn_value v = rn_op_slice(d->g, y, axis, (heads + kv_heads) * size, kv_heads * size);
    q = rn_build_turn(d, rn_build_split(d, q, c->heads));
    k = rn_build_turn(d, rn_build_split(d, k, c->kv_heads));
    y = rn_build_attention(d, q, k, rn_build_split(d, v, c->kv_heads));
    return rn_build_project(d, y, RN_TEXT_O, c->output_bias);
}

rn_value rn_build_gated(rn_text_builder *d, rn_value x) {
    bool bias = d->c->ffn_bias;
    rn_value gate = rn_build_project(d, x, RN_TEXT_GATE, bias);
    rn_value up = rn_build_project(d, x, RN_TEXT_UP, bias);
    return rn_build_project(d, rn_op_gated(d->g, gate, up, d->c->activation), RN_TEXT_DOWN, bias);
}

rn_value rn_build_ffn(rn_text_builder *d, rn_value x) {
    rn_value up = rn_build_project(d, x, RN_TEXT_UP, d->c->ffn_bias);
    rn_value y =
        d->c->activation == RN_ACTIVATION_GELU ? rn_op_gelu(d->g, up) : rn_op_gelu_tanh(d->g, up);
    return rn_build_project(d, y, RN_TEXT_DOWN, d->c->ffn_bias);
}

rn_value rn_build_add(rn_text_builder *d, rn_value x, rn_value y) {
    if (d->c->residual_scale != 0) y = rn_op_scale(d->g, y, d->c->residual_scale, 0);
    return rn_op_add(d->g, x, y);
}

// ---- the whole ----------------------------------------------------------------------------------

// 0, 1, 2, ... for each sequence.
static rn_status count_positions(rn_text_builder *d) {
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

static rn_status inputs(rn_text_builder *d, rn_value *out_tokens, rn_value *out_last) {
    const rn_llama_config *c = d->c;
    rn_graph *g = d->g;
    if (d->batch) {
        rn_shape shape = RN_SHAPE(d->batch, c->tokens);
        *out_tokens = rn_graph_input(g, "tokens", RN_DTYPE_I32, shape);
        *out_last = rn_graph_input(g, "targets", RN_DTYPE_I32, shape);
        if (!c->documents) return count_positions(d);
        d->positions = rn_graph_input(g, "position", RN_DTYPE_I32, shape);
        d->documents = rn_graph_input(g, "document", RN_DTYPE_I32, shape);
        return RN_OK;
    }
    *out_tokens = rn_graph_input(g, "tokens", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    if (c->packed) {
        d->positions = rn_graph_input(g, "position", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
        d->span = rn_graph_input(g, "span", RN_DTYPE_I32, RN_SHAPE(RN_ROWS, 2));
        if (c->scores && c->token_types > 1)
            d->types = rn_graph_input(g, "type", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
        return RN_OK;
    }
    rn_shape pages = RN_SHAPE(c->sequences, pages_of_context(c));
    *out_last = rn_graph_input(g, "rows", RN_DTYPE_I32, RN_SHAPE(c->logit_rows));
    d->sequence = rn_graph_input(g, "sequence", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    d->positions = rn_graph_input(g, "position", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    d->page_table = rn_graph_input(g, "page_table", RN_DTYPE_I32, pages);
    return RN_OK;
}

static bool has_part(const rn_text_builder *d, rn_text_part_id p) {
    return part_of(d->c, p)->hugging_face != NULL;
}

// Of one text all tokens are of the first type.
static rn_value add_type(rn_text_builder *d, rn_value x) {
    static const int32_t first[] = {0};
    rn_value id = d->types;
    if (id == RN_NO_VALUE) id = rn_graph_constant(d->g, "type", RN_DTYPE_I32, RN_SHAPE(1), first);
    return rn_op_add(d->g, x, rn_op_embedding(d->g, rn_build_matrix(d, RN_TEXT_TYPES), id));
}

enum { FARTHEST = 128 }; // distances from here on share a bucket

// T5's buckets: half of them for keys behind the query; of each half the first half for one
// distance each, the others for ranges that grow by a factor up to FARTHEST.
static int32_t bucket_of(int32_t distance, int32_t buckets) {
    int32_t half = buckets / 2, near = half / 2, base = distance > 0 ? half : 0;
    int32_t n = distance > 0 ? distance : -distance;
    if (n < near) return base + n;
    float range = logf((float)n / (float)near) / logf((float)FARTHEST / (float)near);
    int32_t far = near + (int32_t)(range * (float)(half - near));
    return base + (far < half ? far : half - 1);
}

// The bias of each distance from -FARTHEST to FARTHEST: (heads, 2 * FARTHEST + 1).
static rn_value spread_distances(rn_text_builder *d) {
    int32_t ids[2 * FARTHEST + 1];
    for (int32_t i = 0; i < 2 * FARTHEST + 1; i++)
        ids[i] = bucket_of(i - FARTHEST, (int32_t)d->c->distance_buckets);
    rn_value buckets =
        rn_graph_constant(d->g, "buckets", RN_DTYPE_I32, RN_SHAPE(2 * FARTHEST + 1), ids);
    rn_value table = rn_op_embedding(d->g, rn_build_matrix(d, RN_TEXT_DISTANCES), buckets);
    return rn_op_permute(d->g, table, (const uint8_t[]){1, 0});
}

// The rows of tokens, as the first layer reads them.
static rn_value embed(rn_text_builder *d, rn_value tokens) {
    rn_graph *g = d->g;
    d->embedding = rn_build_matrix(d, RN_TEXT_EMBEDDING);
    rn_value x = rn_op_embedding(g, d->embedding, tokens);
    if (d->c->embedding_scale != 0) x = rn_op_scale(g, x, d->c->embedding_scale, 0);
    if (d->c->positions)
        x = rn_op_add(g, x,
                      rn_op_embedding(g, rn_build_matrix(d, RN_TEXT_POSITIONS), d->positions));
    if (d->c->token_types) x = add_type(d, x);
    if (has_part(d, RN_TEXT_EMBEDDING_NORM)) x = rn_build_norm(d, x, RN_TEXT_EMBEDDING_NORM);
    if (d->c->distance_buckets) d->distances = spread_distances(d);
    return d->batch ? rn_op_reshape(g, x, RN_SHAPE(d->rows, d->c->dim)) : x;
}

static uint32_t head_dim_of(const rn_llama_config *c) {
    return c->head_dim ? c->head_dim : c->dim / c->heads;
}

static rn_value layer(rn_text_builder *d, rn_value x, uint32_t number) {
    char block[32];
    snprintf(block, sizeof block, "layer %u", number);
    rn_graph_block(d->g, block);
    d->layer = number;
    bool full = d->c->full_head_dim && !rn_build_is_local(d);
    d->head_dim = full ? d->c->full_head_dim : head_dim_of(d->c);
    d->kv_heads = full ? d->c->full_kv_heads : d->c->kv_heads;
    return d->architecture->layer(d, x);
}

// Of a head, as rope turns them.
static uint64_t count_pairs(const rn_llama_config *c) {
    return rn_rope_dims(&c->rope, c->full_head_dim ? c->full_head_dim : head_dim_of(c)) / 2;
}

static rn_value cap(rn_graph *g, rn_value x, float most) {
    return rn_op_scale(g, rn_op_tanh(g, rn_op_scale(g, x, 1 / most, 0)), most, 0);
}

// x (rows, dim) -> (rows, 1). Only a text's first row counts; the others' cost one product of the
// model's width, less than a tenth of a layer.
static rn_value score(rn_text_builder *d, rn_value x) {
    x = rn_op_tanh(d->g, rn_build_project(d, x, RN_TEXT_RANK_IN, true));
    return rn_build_project(d, x, RN_TEXT_RANK_OUT, true);
}

static rn_status write(rn_graph *g, const void *config, uint32_t batch, rn_forward_values *out) {
    const rn_llama_config *c = config;
    rn_text_builder d = {.g = g,
                         .c = c,
                         .architecture = rn_text_architecture_of(c),
                         .batch = batch,
                         .rows = batch ? (uint64_t)batch * c->tokens : RN_ROWS,
                         .head_dim = head_dim_of(c),
                         .kv_heads = c->kv_heads};
    rn_value tokens = RN_NO_VALUE, last = RN_NO_VALUE; // last: targets, or which rows are wanted
    RN_TRY(inputs(&d, &tokens, &last));
    RN_TRY(write_window_table(&d));
    RN_TRY(write_query_scales(&d));
    if (c->rope_divided)
        d.divisors = rn_graph_constant(g, "rope_divisors", RN_DTYPE_F32, RN_SHAPE(count_pairs(c)),
                                       c->rope_divisors);
    rn_graph_block(g, "embedding");
    rn_value x = embed(&d, tokens);
    for (uint32_t i = 0; i < c->layers; i++)
        x = layer(&d, x, i);
    rn_graph_block(g, "head");
    if (c->packed) {
        if (has_part(&d, RN_TEXT_NORM)) x = rn_build_norm(&d, x, RN_TEXT_NORM);
        // Pooling is linear: what is behind it can as well be done with each row, within the plan.
        if (c->dense) x = rn_build_project(&d, x, RN_TEXT_DENSE_IN, false);
        if (c->dense) x = rn_build_project(&d, x, RN_TEXT_DENSE_OUT, false);
        if (c->scores) x = score(&d, x);
        rn_graph_output(g, x, "hidden");
        return RN_OK;
    }
    if (!batch) x = rn_op_embedding(g, x, last);
    x = rn_build_norm(&d, x, RN_TEXT_NORM);
    if (can_leave_logits(&d)) {
        out->hidden = x;
        out->head = c->tied ? d.embedding : rn_build_matrix(&d, RN_TEXT_HEAD);
        out->targets = rn_op_reshape(g, last, RN_SHAPE(d.rows));
        return RN_OK;
    }
    out->logits = rn_build_project(&d, x, RN_TEXT_HEAD, false);
    if (c->logit_scale != 0) out->logits = rn_op_scale(g, out->logits, c->logit_scale, 0);
    if (c->logit_cap != 0) out->logits = cap(g, out->logits, c->logit_cap);
    if (batch)
        out->targets = rn_op_reshape(g, last, RN_SHAPE(d.rows));
    else
        rn_graph_output(g, out->logits, "logits");
    if (c->largest && !batch) {
        rn_graph_output(g, rn_op_argmax(g, out->logits), "largest");
        rn_graph_output(g, rn_op_max(g, out->logits, 2, false), "peak");
    }
    return RN_OK;
}

static rn_status check_heads(const rn_llama_config *c) {
    if (c->layers == 0 || c->heads == 0 || c->kv_heads == 0 || c->dim == 0)
        return rn_fail(RN_INVALID, "llama: layers, heads and width must be at least 1");
    if (c->head_dim == 0 && (c->dim % c->heads || c->dim / c->heads % 2))
        return rn_fail(RN_INVALID, "llama: %u wide cannot be %u heads of an even width", c->dim,
                       c->heads);
    if (c->head_dim % 2)
        return rn_fail(RN_INVALID, "llama: heads of %u cannot be turned in pairs", c->head_dim);
    if (c->full_head_dim % 2 ||
        (c->full_head_dim && (c->full_kv_heads == 0 || c->heads % c->full_kv_heads)))
        return rn_fail(RN_INVALID, "llama: %u kv heads of %u cannot be shared by %u heads",
                       c->full_kv_heads, c->full_head_dim, c->heads);
    if (c->heads % c->kv_heads)
        return rn_fail(RN_INVALID, "llama: %u kv heads do not divide %u heads", c->kv_heads,
                       c->heads);
    return RN_OK;
}

static rn_status check(const void *config, bool training) {
    const rn_llama_config *c = config;
    RN_TRY(check_heads(c));
    uint32_t context = training ? c->tokens : c->context;
    if (c->positions && (uint64_t)context + c->first_position > c->positions)
        return rn_hint(rn_fail(RN_INVALID,
                               "a context of %u is longer than the model's %u positions", context,
                               c->positions),
                       "its positions are learned: it cannot be stretched");
    if (c->rope_divided && count_pairs(c) > RN_ROPE_DIVISORS)
        return rn_fail(RN_UNSUPPORTED, "divisors for %llu pairs of a head are not built, up to %d",
                       (unsigned long long)count_pairs(c), RN_ROPE_DIVISORS);
    if (c->packed && c->recurrent.taps)
        return rn_fail(RN_UNSUPPORTED, "%s: embeddings of layers with states are not built",
                       rn_text_architecture_of(c)->name);
    if (c->packed && (c->sinks || c->latent.kv_rank))
        return rn_fail(RN_UNSUPPORTED, "%s: embeddings by attention with %s are not built",
                       rn_text_architecture_of(c)->name, c->sinks ? "sinks" : "latents");
    if (c->packed && c->distance_buckets % 4)
        return rn_fail(RN_INVALID, "%u buckets of distances cannot be quartered",
                       c->distance_buckets);
    if (!training && !c->packed && (c->page_tokens == 0 || c->context == 0))
        return rn_fail(RN_INVALID, "llama: inference needs a context and pages");
    if (training && c->tokens == 0)
        return rn_fail(RN_INVALID, "llama: training needs sequences of at least one token");
    if (training && c->moe.experts)
        return rn_fail(RN_UNSUPPORTED, "%s: mixtures of experts cannot be trained",
                       rn_text_architecture_of(c)->name);
    if (training && c->recurrent.taps)
        return rn_fail(RN_UNSUPPORTED, "%s: layers with states cannot be trained",
                       rn_text_architecture_of(c)->name);
    if (training && !c->files && c->weight_dtype != RN_DTYPE_F32)
        return rn_fail(RN_UNSUPPORTED, "llama: only f32 weights can be trained, not %s",
                       rn_dtype_get(c->weight_dtype)->name);
    return RN_OK;
}

rn_forward rn_llama_forward(const rn_llama_config *config) {
    return (rn_forward){.write = write,
                        .check = check,
                        .config = config,
                        .config_bytes = sizeof *config,
                        .rows = config->rows,
                        .activations = config->activations};
}

rn_status rn_llama_recipe(const rn_llama_config *config, rn_recipe *out) {
    return rn_model_recipe(rn_llama_forward(config), out);
}

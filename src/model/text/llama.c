// llama.c — the Llama decoder: embedding, layers of attention and a gated feed-forward, head.
//
//     x ─ norm ─ q, k, v ─ [norm q, k] ─ rope ─ attention ─ o ─ + ─ norm ─ gate, up ─ down ─ + ─▶
//     └────────────────────────────────────────────────────────┘└──────────────────────────┘
//
// Activations are rows (rows, dim): in inference the ROWS of a step, whichever sequences they
// belong to, with keys and values in pages; in training batch * tokens, with attention over each
// sequence.
//
// For devices with fused ops the graph is rewritten (graph/fuse.h); a layer is then five nodes:
//
//     x ─ three ─ [norm q, k] ─ attend ─ project (+ x) ─ gated ─ project (+) ─▶
#include "model/model.h"

#include "base/str.h"
#include "graph/fuse.h"
#include "memory/account.h"

#include <stdio.h>

// ---- weights ------------------------------------------------------------------------------------

typedef enum size { VECTOR, DIM, WIDE, NARROW, FFN, VOCAB, HEAD_DIM } size;

typedef enum part {
    EMBEDDING,
    NORM,
    HEAD,
    IN_LAYER, // from here on: once a layer
    ATTENTION_NORM = IN_LAYER,
    Q,
    K,
    V,
    O,
    Q_NORM,
    K_NORM,
    FFN_NORM,
    GATE,
    UP,
    DOWN,
    PART_COUNT
} part;

static const struct row {
    const char *names[RN_NAMINGS]; // behind the layer's prefix, before ".weight" or ".bias"
    size out, in;                  // (out, in), a VECTOR (out)
} table[PART_COUNT] = {
    [EMBEDDING] = {{"model.embed_tokens", "token_embd"}, VOCAB, DIM},
    [NORM] = {{"model.norm", "output_norm"}, DIM, VECTOR},
    [HEAD] = {{"lm_head", "output"}, VOCAB, DIM},
    [ATTENTION_NORM] = {{"input_layernorm", "attn_norm"}, DIM, VECTOR},
    [Q] = {{"self_attn.q_proj", "attn_q"}, WIDE, DIM},
    [K] = {{"self_attn.k_proj", "attn_k"}, NARROW, DIM},
    [V] = {{"self_attn.v_proj", "attn_v"}, NARROW, DIM},
    [O] = {{"self_attn.o_proj", "attn_output"}, DIM, WIDE},
    [Q_NORM] = {{"self_attn.q_norm", "attn_q_norm"}, HEAD_DIM, VECTOR},
    [K_NORM] = {{"self_attn.k_norm", "attn_k_norm"}, HEAD_DIM, VECTOR},
    [FFN_NORM] = {{"post_attention_layernorm", "ffn_norm"}, DIM, VECTOR},
    [GATE] = {{"mlp.gate_proj", "ffn_gate"}, FFN, DIM},
    [UP] = {{"mlp.up_proj", "ffn_up"}, FFN, DIM},
    [DOWN] = {{"mlp.down_proj", "ffn_down"}, DIM, FFN},
};

enum { NAME_BYTES = 96 };

static void name_weight(rn_naming naming, part p, uint32_t layer, const char *what, char *out,
                        size_t capacity) {
    static const char *const layers[RN_NAMINGS] = {"model.layers", "blk"};
    const char *name = table[p].names[naming];
    if (p < IN_LAYER)
        snprintf(out, capacity, "%s.%s", name, what);
    else
        snprintf(out, capacity, "%s.%u.%s.%s", layers[naming], layer, name, what);
}

bool rn_llama_weight_name(rn_str module, rn_naming naming, char *out, size_t capacity) {
    char text[NAME_BYTES];
    unsigned layer = 0;
    int rest = 0;
    if (module.bytes >= sizeof text) return false;
    memcpy(text, module.data, module.bytes);
    text[module.bytes] = '\0';
    bool in_layer = sscanf(text, "model.layers.%5u.%n", &layer, &rest) == 1 && rest > 0;
    for (part p = in_layer ? IN_LAYER : EMBEDDING; p < (in_layer ? PART_COUNT : IN_LAYER); p++)
        if (strcmp(text + rest, table[p].names[RN_NAMES_HUGGING_FACE]) == 0) {
            name_weight(naming, p, layer, "weight", out, capacity);
            return true;
        }
    return false;
}

// ---- parts of the graph -------------------------------------------------------------------------

typedef struct decoder {
    rn_graph *g;
    const rn_llama_config *c;
    uint32_t batch; // 0: inference
    uint64_t rows;  // RN_ROWS, or batch * tokens
    uint64_t head_dim;
    rn_value positions;            // (ROWS), or (batch, tokens)
    rn_value sequence, page_table; // inference
    rn_value embedding;            // the table
    uint32_t layer;
} decoder;

static uint64_t measure(const decoder *d, size s) {
    const rn_llama_config *c = d->c;
    const uint64_t sizes[] = {
        1,        c->dim,     c->heads * d->head_dim, c->kv_heads * d->head_dim, c->ffn,
        c->vocab, d->head_dim};
    return sizes[s];
}

static rn_value weight(decoder *d, part p, const char *what, rn_shape shape) {
    const rn_llama_files *files = d->c->files;
    rn_dtype dtype = shape.rank > 1 ? d->c->weight_dtype : RN_DTYPE_F32;
    char name[NAME_BYTES];
    name_weight(d->c->naming, p, d->layer, what, name, sizeof name);
    if (files) dtype = files->dtype(files->self, name);
    // On a device of launches a cast of a norm costs as much as the norm.
    if (shape.rank == 1 && d->c->fused && files && files->widens) dtype = RN_DTYPE_F32;
    rn_value w = rn_graph_weight(d->g, name, dtype, shape);
    return shape.rank > 1 || dtype == RN_DTYPE_F32 ? w : rn_op_cast(d->g, w, RN_DTYPE_F32);
}

static rn_value matrix(decoder *d, part p) {
    return weight(d, p, "weight", RN_SHAPE(measure(d, table[p].out), measure(d, table[p].in)));
}

static rn_value vector(decoder *d, part p, const char *what) {
    return weight(d, p, what, RN_SHAPE(measure(d, table[p].out)));
}

static float norm_eps(const decoder *d) {
    return d->c->norm_eps != 0 ? d->c->norm_eps : 1e-5f;
}

static rn_value norm(decoder *d, rn_value x, part p) {
    return rn_op_rmsnorm(d->g, x, vector(d, p, "weight"), norm_eps(d));
}

// Addition number `index` to a weight, or NULL.
static const rn_low_rank *addition(const decoder *d, part p, uint32_t index) {
    const rn_llama_files *files = d->c->files;
    char name[NAME_BYTES];
    if (!files || !files->addition) return NULL;
    name_weight(d->c->naming, p, d->layer, "weight", name, sizeof name);
    return files->addition(files->self, name, index);
}

// y + up (down x) for each of the weight's additions.
static rn_value adapt(decoder *d, rn_value x, rn_value y, part p) {
    const rn_low_rank *more = NULL;
    for (uint32_t i = 0; (more = addition(d, p, i)); i++) {
        rn_value down = rn_graph_weight(d->g, more->down, RN_DTYPE_F32,
                                        RN_SHAPE(more->rank, measure(d, table[p].in)));
        rn_value up = rn_graph_weight(d->g, more->up, RN_DTYPE_F32,
                                      RN_SHAPE(measure(d, table[p].out), more->rank));
        rn_value low = rn_op_matmul(d->g, x, down, RN_NO_VALUE);
        y = rn_op_add(d->g, y, rn_op_matmul(d->g, low, up, RN_NO_VALUE));
    }
    return y;
}

static rn_value project(decoder *d, rn_value x, part p, bool has_bias) {
    rn_matmul_attrs attrs = {.plain_activations = d->c->plain_activations};
    rn_value w = p == HEAD && d->c->tied ? d->embedding : matrix(d, p);
    rn_value bias = has_bias ? vector(d, p, "bias") : RN_NO_VALUE;
    return adapt(d, x, rn_op_matmul_as(d->g, x, w, bias, attrs), p);
}

// x (rows, heads * head_dim) as (ROWS, heads, head_dim) or (batch, tokens, heads, head_dim).
static rn_value split(decoder *d, rn_value x, uint64_t heads) {
    return rn_op_reshape(d->g, x,
                         d->batch ? RN_SHAPE(d->batch, d->c->tokens, heads, d->head_dim)
                                  : RN_SHAPE(d->rows, heads, d->head_dim));
}

static rn_rope_attrs rope_attrs(const decoder *d) {
    if (d->c->rope.base != 0) return d->c->rope;
    return (rn_rope_attrs){.pairing = RN_ROPE_HALVES,
                           .base = d->c->rope_base != 0 ? d->c->rope_base : 10000};
}

static rn_attention_attrs attention_attrs(const decoder *d) {
    return (rn_attention_attrs){.causal = true,
                                .window = d->layer >= d->c->window_from ? d->c->window : 0};
}

// Queries or keys, split into heads, normed where the model does, and turned.
static rn_value turned(decoder *d, rn_value x, part p, part normed, uint64_t heads) {
    rn_value y = split(d, project(d, x, p, d->c->qkv_bias), heads);
    if (d->c->qk_norm) y = norm(d, y, normed);
    return rn_op_rope(d->g, y, d->positions, rope_attrs(d));
}

static uint64_t pages_of_context(const rn_llama_config *c) {
    return ((uint64_t)c->context + c->page_tokens - 1) / c->page_tokens;
}

static rn_value pages_of_layer(decoder *d) {
    const rn_llama_config *c = d->c;
    char name[32];
    uint64_t pages = c->pages ? c->pages : pages_of_context(c) * c->sequences;
    snprintf(name, sizeof name, "layers.%u.kv", d->layer);
    return rn_graph_state(d->g, name, c->kv_dtype,
                          RN_SHAPE(pages, 2, c->kv_heads, c->page_tokens, d->head_dim),
                          RN_PURPOSE_KV);
}

// Keys and values go into the sequences' pages; a row sees those of its own sequence.
static rn_value paged(decoder *d, rn_value q, rn_value k, rn_value v, rn_attention_attrs attrs) {
    rn_value kv =
        rn_op_kv_append(d->g, pages_of_layer(d), k, v, d->sequence, d->positions, d->page_table);
    return rn_op_paged_attention(d->g, q, kv, d->sequence, d->positions, d->page_table, attrs);
}

static rn_value attend(decoder *d, rn_value x) {
    const rn_llama_config *c = d->c;
    rn_attention_attrs attrs = attention_attrs(d);
    rn_value q = turned(d, x, Q, Q_NORM, c->heads);
    rn_value k = turned(d, x, K, K_NORM, c->kv_heads);
    rn_value v = split(d, project(d, x, V, c->qkv_bias), c->kv_heads);
    rn_value y =
        d->batch ? rn_op_attention(d->g, q, k, v, RN_NO_VALUE, attrs) : paged(d, q, k, v, attrs);
    y = rn_op_reshape(d->g, y, RN_SHAPE(d->rows, measure(d, WIDE)));
    return project(d, y, O, c->output_bias);
}

static rn_value feed_forward(decoder *d, rn_value x) {
    rn_value gate = project(d, x, GATE, d->c->ffn_bias);
    rn_value up = project(d, x, UP, d->c->ffn_bias);
    return project(d, rn_op_gated(d->g, gate, up, RN_ACTIVATION_SILU), DOWN, d->c->ffn_bias);
}

// ---- the whole ----------------------------------------------------------------------------------

static rn_value layer(decoder *d, rn_value x, uint32_t number) {
    char block[32];
    snprintf(block, sizeof block, "layer %u", number);
    rn_graph_block(d->g, block);
    d->layer = number;
    x = rn_op_add(d->g, x, attend(d, norm(d, x, ATTENTION_NORM)));
    return rn_op_add(d->g, x, feed_forward(d, norm(d, x, FFN_NORM)));
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
    rn_shape pages = RN_SHAPE(c->sequences, pages_of_context(c));
    *out_tokens = rn_graph_input(g, "tokens", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    *out_last = rn_graph_input(g, "rows", RN_DTYPE_I32, RN_SHAPE(c->logit_rows));
    d->sequence = rn_graph_input(g, "sequence", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    d->positions = rn_graph_input(g, "position", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    d->page_table = rn_graph_input(g, "page_table", RN_DTYPE_I32, pages);
    return RN_OK;
}

static rn_status write(rn_graph *g, const void *config, uint32_t batch, rn_forward_values *out) {
    const rn_llama_config *c = config;
    decoder d = {.g = g,
                 .c = c,
                 .batch = batch,
                 .rows = batch ? (uint64_t)batch * c->tokens : RN_ROWS,
                 .head_dim = c->head_dim ? c->head_dim : c->dim / c->heads};
    rn_value tokens = RN_NO_VALUE, last = RN_NO_VALUE; // last: targets, or which rows are wanted
    RN_TRY(inputs(&d, &tokens, &last));
    rn_graph_block(g, "embedding");
    d.embedding = matrix(&d, EMBEDDING);
    rn_value x = rn_op_embedding(g, d.embedding, tokens);
    if (batch) x = rn_op_reshape(g, x, RN_SHAPE(d.rows, c->dim));
    for (uint32_t i = 0; i < c->layers; i++)
        x = layer(&d, x, i);
    rn_graph_block(g, "head");
    if (!batch) x = rn_op_embedding(g, x, last);
    out->logits = project(&d, norm(&d, x, NORM), HEAD, false);
    if (batch)
        out->targets = rn_op_reshape(g, last, RN_SHAPE(d.rows));
    else
        rn_graph_output(g, out->logits, "logits");
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
    if (c->heads % c->kv_heads)
        return rn_fail(RN_INVALID, "llama: %u kv heads do not divide %u heads", c->kv_heads,
                       c->heads);
    return RN_OK;
}

static rn_status check(const void *config, bool training) {
    const rn_llama_config *c = config;
    RN_TRY(check_heads(c));
    if (!training && (c->page_tokens == 0 || c->context == 0))
        return rn_fail(RN_INVALID, "llama: inference needs a context and pages");
    if (training && c->tokens == 0)
        return rn_fail(RN_INVALID, "llama: training needs sequences of at least one token");
    if (training && c->weight_dtype != RN_DTYPE_F32)
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
                        .fusions = config->fused ? RN_FUSE_ALL : 0};
}

rn_status rn_llama_recipe(const rn_llama_config *config, rn_recipe *out) {
    return rn_model_recipe(rn_llama_forward(config), out);
}

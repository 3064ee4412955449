// flux.c — Flux.1: a transformer over the tokens of the text and the patches of the picture.
//
//     double block   text and picture have weights of their own and attend together
//     single block   one sequence, text first; attention and feed-forward side by side
//
// Every block is modulated by the time, the guidance and the pooled text: its norms, which have no
// weights, are scaled and shifted, and what it adds is gated. q and k are normed and turned by
// three axes: nothing, the patch's row, its column.
#include "model/image/image_networks.h"

#include <stdio.h>

enum { TIME = 256 }; // of a sinusoid

typedef struct flux {
    rn_image_builder b;
    const rn_flux_config *c;
    uint64_t dim, text, picture; // tokens and patches
    rn_value modulation;         // (N, dim), behind SiLU; or all chunks (chunks, dim)
    rn_value positions;          // i32 (N, text + picture, 3)
} flux;

// A linear layer of the modulation, whose answer is so many chunks of `dim`; number `first` and on
// of all. Bit i of `scales`: chunk i scales.
typedef struct modulator {
    char name[RN_IMAGE_NAME];
    uint32_t first, count, scales;
} modulator;

enum { DOUBLE_CHUNKS = 6, SINGLE_CHUNKS = 3, END_CHUNKS = 2 };

// Of the text's stream (0) or the picture's (1).
static modulator of_double(uint32_t block, uint32_t stream) {
    modulator m = {.first = (2 * block + stream) * DOUBLE_CHUNKS,
                   .count = DOUBLE_CHUNKS,
                   .scales = 1 << 1 | 1 << 4};
    snprintf(m.name, sizeof m.name, "transformer_blocks.%u.%s.linear", block,
             stream ? "norm1" : "norm1_context");
    return m;
}

static modulator of_single(const rn_flux_config *c, uint32_t block) {
    modulator m = {.first = 2 * c->double_blocks * DOUBLE_CHUNKS + block * SINGLE_CHUNKS,
                   .count = SINGLE_CHUNKS,
                   .scales = 1 << 1};
    snprintf(m.name, sizeof m.name, "single_transformer_blocks.%u.norm.linear", block);
    return m;
}

// The scale is first here.
static modulator of_end(const rn_flux_config *c) {
    return (modulator){"norm_out.linear", of_single(c, c->single_blocks).first, END_CHUNKS,
                       .scales = 1};
}

uint32_t rn_flux_chunks(const rn_flux_config *config) {
    return of_end(config).first + END_CHUNKS;
}

// Chunk `index`: (N, dim), with 1 added where it scales.
static rn_value make_chunk(flux *f, const modulator *by, uint32_t index) {
    rn_value m = rn_image_linear_part(&f->b, f->modulation, by->name, f->dim, by->count * f->dim,
                                      index * f->dim, f->dim, RN_IMAGE_BIAS);
    return by->scales >> index & 1 ? rn_op_scale(f->b.g, m, 1, 1) : m;
}

// The same as (N, 1, dim).
static rn_value modulate(flux *f, const modulator *by, uint32_t index) {
    rn_graph *g = f->b.g;
    if (f->c->modulated)
        return rn_op_reshape(g, rn_op_slice(g, f->modulation, 0, by->first + index, 1),
                             RN_SHAPE(1, 1, f->dim));
    rn_value m = make_chunk(f, by, index);
    return rn_op_reshape(g, m, RN_SHAPE(rn_image_shape(&f->b, m).dims[0], 1, f->dim));
}

// norm(x) (1 + scale) + shift, of chunks `shift` and `scale`.
static rn_value norm(flux *f, rn_value x, const modulator *by, uint32_t shift, uint32_t scale) {
    rn_graph *g = f->b.g;
    rn_value factor = modulate(f, by, scale), offset = modulate(f, by, shift);
    if (f->c->modulated)
        return rn_op_layernorm(g, x, rn_op_reshape(g, factor, RN_SHAPE(f->dim)),
                               rn_op_reshape(g, offset, RN_SHAPE(f->dim)), 1e-6f);
    x = rn_op_layernorm(g, x, RN_NO_VALUE, RN_NO_VALUE, 1e-6f);
    return rn_op_add(g, rn_op_mul(g, x, factor), offset);
}

static rn_value add_gated(flux *f, rn_value x, rn_value y, const modulator *by, uint32_t gate) {
    return rn_op_add(f->b.g, x, rn_op_mul(f->b.g, y, modulate(f, by, gate)));
}

// q, k or v of a stream: (N, T, heads, head_dim), normed where `norm_name` says.
static rn_value head_values(flux *f, rn_value x, const char *name, const char *norm_name) {
    rn_image_builder *b = &f->b;
    x = rn_image_linear(b, x, name, f->dim, f->dim, RN_IMAGE_BIAS);
    x = rn_image_split_heads(b, x, f->c->heads);
    return norm_name ? rn_image_rms_norm(b, x, norm_name, f->c->head_dim, 1e-6f) : x;
}

// (N, T, dim) of q, k, v (N, T, heads, head_dim) of all tokens.
static rn_value attend(flux *f, rn_value q, rn_value k, rn_value v) {
    rn_rope_attrs turn = {.pairing = RN_ROPE_NEIGHBOURS,
                          .base = 10000,
                          .sections = {f->c->axes[0], f->c->axes[1], f->c->axes[2]}};
    q = rn_op_rope(f->b.g, q, f->positions, turn);
    k = rn_op_rope(f->b.g, k, f->positions, turn);
    rn_value y = rn_op_attention(f->b.g, q, k, v, RN_NO_VALUE, (rn_attention_attrs){0});
    return rn_image_join_heads(&f->b, y);
}

static rn_value join(flux *f, rn_value text, rn_value picture) {
    return rn_op_concat(f->b.g, (rn_value[]){text, picture}, 2, 1);
}

static rn_value feed_forward(flux *f, rn_value x, const char *name) {
    rn_image_builder *b = &f->b;
    x = rn_image_linear(b, x, rn_image_named("%s.net.0.proj", name).text, f->dim, 4 * f->dim,
                        RN_IMAGE_BIAS);
    return rn_image_linear(b, rn_op_gelu_tanh(b->g, x), rn_image_named("%s.net.2", name).text,
                           4 * f->dim, f->dim, RN_IMAGE_BIAS);
}

typedef struct stream {
    const char *q, *k, *v, *norm_q, *norm_k, *out, *ff;
} stream;

static void double_block(flux *f, rn_value *text, rn_value *picture, uint32_t number) {
    static const stream streams[] = {{"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj",
                                      "attn.norm_added_q", "attn.norm_added_k", "attn.to_add_out",
                                      "ff_context"},
                                     {"attn.to_q", "attn.to_k", "attn.to_v", "attn.norm_q",
                                      "attn.norm_k", "attn.to_out.0", "ff"}};
    rn_image_builder *b = &f->b;
    rn_value x[2] = {*text, *picture}, q[2], k[2], v[2];
    modulator by[2] = {of_double(number, 0), of_double(number, 1)};
    rn_image_name block = rn_image_named("transformer_blocks.%u", number);
    uint64_t tokens[2] = {f->text, f->picture}, first = 0;
    rn_graph_block(b->g, block.text);
    for (int i = 0; i < 2; i++) {
        const stream *s = &streams[i];
        rn_value y = norm(f, x[i], &by[i], 0, 1);
        q[i] = head_values(f, y, rn_image_named("%s.%s", block.text, s->q).text,
                           rn_image_named("%s.%s", block.text, s->norm_q).text);
        k[i] = head_values(f, y, rn_image_named("%s.%s", block.text, s->k).text,
                           rn_image_named("%s.%s", block.text, s->norm_k).text);
        v[i] = head_values(f, y, rn_image_named("%s.%s", block.text, s->v).text, NULL);
    }
    rn_value all = attend(f, join(f, q[0], q[1]), join(f, k[0], k[1]), join(f, v[0], v[1]));
    for (int i = 0; i < 2; i++) {
        const stream *s = &streams[i];
        rn_value y = rn_op_slice(b->g, all, 1, first, tokens[i]);
        first += tokens[i];
        y = rn_image_linear(b, y, rn_image_named("%s.%s", block.text, s->out).text, f->dim, f->dim,
                            RN_IMAGE_BIAS);
        x[i] = add_gated(f, x[i], y, &by[i], 2);
        y = norm(f, x[i], &by[i], 3, 4);
        y = feed_forward(f, y, rn_image_named("%s.%s", block.text, s->ff).text);
        x[i] = add_gated(f, x[i], y, &by[i], 5);
    }
    *text = x[0];
    *picture = x[1];
}

static rn_value single_block(flux *f, rn_value x, uint32_t number) {
    rn_image_builder *b = &f->b;
    rn_image_name block = rn_image_named("single_transformer_blocks.%u", number);
    modulator by = of_single(f->c, number);
    rn_graph_block(b->g, block.text);
    rn_value y = norm(f, x, &by, 0, 1);
    rn_value mlp = rn_image_linear(b, y, rn_image_named("%s.proj_mlp", block.text).text, f->dim,
                                   4 * f->dim, RN_IMAGE_BIAS);
    rn_value q = head_values(f, y, rn_image_named("%s.attn.to_q", block.text).text,
                             rn_image_named("%s.attn.norm_q", block.text).text);
    rn_value k = head_values(f, y, rn_image_named("%s.attn.to_k", block.text).text,
                             rn_image_named("%s.attn.norm_k", block.text).text);
    rn_value v = head_values(f, y, rn_image_named("%s.attn.to_v", block.text).text, NULL);
    rn_value parts[2] = {attend(f, q, k, v), rn_op_gelu_tanh(b->g, mlp)};
    y = rn_op_concat(b->g, parts, 2, 2);
    y = rn_image_linear(b, y, rn_image_named("%s.proj_out", block.text).text, 5 * f->dim, f->dim,
                        RN_IMAGE_BIAS);
    return add_gated(f, x, y, &by, 2);
}

static void embed_times(flux *f, uint64_t rows) {
    const rn_flux_config *c = f->c;
    rn_graph *g = f->b.g;
    rn_value t = rn_graph_input(g, "time", RN_DTYPE_F32, RN_SHAPE(rows, TIME));
    rn_value pooled = c->pooled;
    if (pooled == RN_NO_VALUE)
        pooled = rn_graph_input(g, "pooled", RN_DTYPE_F32, RN_SHAPE(rows, c->pooled_channels));
    rn_value m = rn_image_embed(&f->b, t, "time_text_embed.timestep_embedder", "linear_1",
                                "linear_2", TIME, f->dim);
    if (c->guidance) {
        rn_value guidance = rn_graph_input(g, "guidance", RN_DTYPE_F32, RN_SHAPE(rows, TIME));
        m = rn_op_add(g, m,
                      rn_image_embed(&f->b, guidance, "time_text_embed.guidance_embedder",
                                     "linear_1", "linear_2", TIME, f->dim));
    }
    m = rn_op_add(g, m,
                  rn_image_embed(&f->b, pooled, "time_text_embed.text_embedder", "linear_1",
                                 "linear_2", c->pooled_channels, f->dim));
    f->modulation = rn_op_silu(g, m);
}

static rn_status write(rn_graph *g, const void *config, uint32_t batch, rn_forward_values *out) {
    const rn_flux_config *c = config;
    uint64_t rows = batch ? batch : c->modulated ? 1 : RN_ROWS;
    flux f = {.b = {.g = g, .files = c->files, .trains = batch > 0},
              .c = c,
              .dim = (uint64_t)c->heads * c->head_dim,
              .text = c->context_tokens,
              .picture = (uint64_t)c->height * c->width};
    rn_value x =
        rn_graph_input(g, "sample", RN_DTYPE_F32, RN_SHAPE(rows, f.picture, c->in_channels));
    rn_value text =
        rn_graph_input(g, "context", RN_DTYPE_F32, RN_SHAPE(rows, f.text, c->context_channels));
    f.positions =
        rn_graph_input(g, "positions", RN_DTYPE_I32, RN_SHAPE(rows, f.text + f.picture, 3));
    rn_graph_block(g, "begin");
    if (c->modulated)
        f.modulation =
            rn_graph_input(g, "modulation", RN_DTYPE_F32, RN_SHAPE(rn_flux_chunks(c), f.dim));
    else
        embed_times(&f, rows);
    x = rn_image_linear(&f.b, x, "x_embedder", c->in_channels, f.dim, RN_IMAGE_BIAS);
    text =
        rn_image_linear(&f.b, text, "context_embedder", c->context_channels, f.dim, RN_IMAGE_BIAS);
    for (uint32_t i = 0; i < c->double_blocks; i++)
        double_block(&f, &text, &x, i);
    x = join(&f, text, x);
    for (uint32_t i = 0; i < c->single_blocks; i++)
        x = single_block(&f, x, i);
    rn_graph_block(g, "end");
    x = rn_op_slice(g, x, 1, f.text, f.picture);
    modulator end = of_end(c);
    x = norm(&f, x, &end, 1, 0);
    x = rn_image_linear(&f.b, x, "proj_out", f.dim, c->out_channels, RN_IMAGE_BIAS);
    *out = (rn_forward_values){.logits = x};
    if (!batch) rn_graph_output(g, x, "velocity");
    return RN_OK;
}

static rn_status check(const void *config, bool training) {
    const rn_flux_config *c = config;
    (void)training;
    bool sound = c->in_channels > 0 && c->out_channels > 0 && c->heads > 0 && c->head_dim > 0 &&
                 c->double_blocks + c->single_blocks > 0 && c->double_blocks <= 512 &&
                 c->single_blocks <= 512 && c->context_tokens > 0 && c->height > 0 &&
                 c->width > 0 && c->height <= 1u << 14 && c->width <= 1u << 14 &&
                 (uint64_t)c->axes[0] + c->axes[1] + c->axes[2] == c->head_dim;
    sound = sound && (!c->modulated || c->rows <= 1);
    return sound ? RN_OK : rn_fail(RN_INVALID, "a Flux transformer cannot have these sizes");
}

rn_forward rn_flux_forward(const rn_flux_config *config) {
    return (rn_forward){.write = write,
                        .check = check,
                        .config = config,
                        .config_bytes = sizeof *config,
                        .rows = config->rows ? config->rows : 1,
                        .halves = RN_DTYPE_BF16}; // f16 overflows
}

rn_status rn_flux_recipe(const rn_flux_config *config, rn_recipe *out) {
    RN_TRY(rn_model_recipe(rn_flux_forward(config), out));
    snprintf(out->name, sizeof out->name, "denoise");
    if (config->modulated) out->rows = 0;
    return RN_OK;
}

// ---- modulation for all steps -------------------------------------------------------------------

static void output_chunks(flux *f, const modulator *by) {
    rn_graph_block(f->b.g, by->name);
    for (uint32_t i = 0; i < by->count; i++)
        rn_graph_output(f->b.g, make_chunk(f, by, i),
                        rn_image_named("modulation.%u", by->first + i).text);
}

static rn_status write_modulation(rn_graph *g, const void *config, uint32_t batch,
                                  rn_forward_values *out) {
    const rn_flux_config *c = config;
    flux f = {.b = {.g = g, .files = c->files}, .c = c, .dim = (uint64_t)c->heads * c->head_dim};
    rn_graph_block(g, "begin");
    embed_times(&f, batch ? batch : RN_ROWS);
    for (uint32_t i = 0; i < 2 * c->double_blocks; i++) {
        modulator by = of_double(i / 2, i % 2);
        output_chunks(&f, &by);
    }
    for (uint32_t i = 0; i < c->single_blocks; i++) {
        modulator by = of_single(c, i);
        output_chunks(&f, &by);
    }
    modulator end = of_end(c);
    output_chunks(&f, &end);
    *out = (rn_forward_values){0};
    return RN_OK;
}

rn_status rn_flux_modulation_recipe(const rn_flux_config *config, rn_recipe *out) {
    rn_flux_config made = *config;
    made.modulated = false;
    rn_forward forward = {.write = write_modulation,
                          .check = check,
                          .config = &made,
                          .config_bytes = sizeof made,
                          .rows = made.rows ? made.rows : 1,
                          .halves = RN_DTYPE_BF16};
    RN_TRY(rn_model_recipe(forward, out));
    snprintf(out->name, sizeof out->name, "prepare");
    return RN_OK;
}

rn_status rn_flux_config_read(const rn_fields *f, rn_flux_config *out) {
    rn_flux_config c = {.in_channels = 64,
                        .double_blocks = 19,
                        .single_blocks = 38,
                        .heads = 24,
                        .head_dim = 128,
                        .context_channels = 4096,
                        .context_tokens = 512,
                        .pooled_channels = 768,
                        .axes = {16, 56, 56},
                        .height = 64,
                        .width = 64};
    uint32_t patch = 1, axes[RN_IMAGE_LEVELS], count = 0;
    RN_TRY(rn_fields_u32(f, "in_channels", &c.in_channels));
    c.out_channels = c.in_channels;
    RN_TRY(rn_fields_u32(f, "out_channels", &c.out_channels));
    RN_TRY(rn_fields_u32(f, "num_layers", &c.double_blocks));
    RN_TRY(rn_fields_u32(f, "num_single_layers", &c.single_blocks));
    RN_TRY(rn_fields_u32(f, "num_attention_heads", &c.heads));
    RN_TRY(rn_fields_u32(f, "attention_head_dim", &c.head_dim));
    RN_TRY(rn_fields_u32(f, "joint_attention_dim", &c.context_channels));
    RN_TRY(rn_fields_u32(f, "pooled_projection_dim", &c.pooled_channels));
    RN_TRY(rn_fields_bool(f, "guidance_embeds", &c.guidance));
    RN_TRY(rn_fields_u32(f, "patch_size", &patch));
    if (patch != 1)
        return rn_fail(RN_UNSUPPORTED, "%s: patch_size %u is not built", f->source, patch);
    if (rn_fields_find(f, "axes_dims_rope")) {
        RN_TRY(rn_image_read_levels(f, "axes_dims_rope", axes, &count));
        if (count != 3)
            return rn_fail(RN_UNSUPPORTED, "%s: rope of %u axes is not built", f->source, count);
        for (int i = 0; i < 3; i++)
            c.axes[i] = axes[i];
    }
    RN_TRY(check(&c, false));
    *out = c;
    return RN_OK;
}

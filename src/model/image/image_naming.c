// image_naming.c — see image_naming.h. Each naming is a list of rules: a pattern of diffusers' name
// with numbers in it, and what it becomes; what no rule changes goes on as it is.
#include "model/image/image_naming.h"

#include <stdio.h>
#include <string.h>

// "transformer_blocks.3.attn.to_q.weight" by pattern "transformer_blocks.#.attn.to_q": the numbers
// and what is behind it.
static bool match(const char *name, const char *pattern, uint32_t numbers[3], const char **rest) {
    uint32_t count = 0;
    for (; *pattern; pattern++) {
        if (*pattern != '#') {
            if (*name++ != *pattern) return false;
            continue;
        }
        uint32_t number = 0, digits = 0;
        for (; *name >= '0' && *name <= '9' && digits < 6; name++, digits++)
            number = number * 10 + (uint32_t)(*name - '0');
        if (digits == 0) return false;
        numbers[count++] = number;
    }
    *rest = name;
    return *name == '\0' || *name == '.';
}

typedef struct pair {
    const char *ours, *theirs;
} pair;

// The first pair whose beginning fits is exchanged at the name's beginning.
static void exchange(char *name, size_t capacity, const pair *pairs, size_t count) {
    char text[RN_IMAGE_NAME];
    uint32_t numbers[3];
    const char *rest;
    for (size_t i = 0; i < count; i++)
        if (match(name, pairs[i].ours, numbers, &rest)) {
            snprintf(text, sizeof text, "%s%s", pairs[i].theirs, rest);
            snprintf(name, capacity, "%s", text);
            return;
        }
}
#define EXCHANGE(name, pairs) exchange(name, RN_IMAGE_NAME, pairs, sizeof pairs / sizeof *pairs)

// A name that is too long becomes none, which no file has.
static void put(rn_image_place *out, const char *before, const char *rest) {
    int length = snprintf(out->tensor, sizeof out->tensor, "%s%s", before, rest);
    if (length < 0 || (size_t)length >= sizeof out->tensor) out->tensor[0] = '\0';
}

// ---- SGM: UNet ----------------------------------------------------------------------------------

static const pair sgm_resnet[] = {
    {".norm1", ".in_layers.0"},          {".conv1", ".in_layers.2"},
    {".norm2", ".out_layers.0"},         {".conv2", ".out_layers.3"},
    {".time_emb_proj", ".emb_layers.1"}, {".conv_shortcut", ".skip_connection"}};
static const pair sgm_outside[] = {{"conv_in", "input_blocks.0.0"},
                                   {"time_embedding.linear_1", "time_embed.0"},
                                   {"time_embedding.linear_2", "time_embed.2"},
                                   {"time_embedding.cond_proj", "time_embed.cond_proj"},
                                   {"add_embedding.linear_1", "label_emb.0.0"},
                                   {"add_embedding.linear_2", "label_emb.0.2"},
                                   {"conv_norm_out", "out.0"},
                                   {"conv_out", "out.2"}};

static void rename_resnet(rn_image_place *out, const char *block, const char *rest) {
    char inner[RN_IMAGE_NAME];
    snprintf(inner, sizeof inner, "%s", rest);
    EXCHANGE(inner, sgm_resnet);
    put(out, block, inner);
}

static bool rename_sgm_unet(const rn_image_names *names, const char *weight, rn_image_place *out) {
    uint32_t n[3], each = names->layers + 1;
    const char *rest;
    char block[64];
    if (match(weight, "down_blocks.#.resnets.#", n, &rest)) {
        snprintf(block, sizeof block, "input_blocks.%u.0", 1 + n[0] * each + n[1]);
        rename_resnet(out, block, rest);
    } else if (match(weight, "down_blocks.#.attentions.#", n, &rest)) {
        snprintf(block, sizeof block, "input_blocks.%u.1", 1 + n[0] * each + n[1]);
        put(out, block, rest);
    } else if (match(weight, "down_blocks.#.downsamplers.0.conv", n, &rest)) {
        snprintf(block, sizeof block, "input_blocks.%u.0.op", (n[0] + 1) * each);
        put(out, block, rest);
    } else if (match(weight, "mid_block.resnets.#", n, &rest)) {
        snprintf(block, sizeof block, "middle_block.%u", 2 * n[0]);
        rename_resnet(out, block, rest);
    } else if (match(weight, "mid_block.attentions.0", n, &rest)) {
        put(out, "middle_block.1", rest);
    } else if (match(weight, "up_blocks.#.resnets.#", n, &rest)) {
        snprintf(block, sizeof block, "output_blocks.%u.0", n[0] * each + n[1]);
        rename_resnet(out, block, rest);
    } else if (match(weight, "up_blocks.#.attentions.#", n, &rest)) {
        snprintf(block, sizeof block, "output_blocks.%u.1", n[0] * each + n[1]);
        put(out, block, rest);
    } else if (match(weight, "up_blocks.#.upsamplers.0.conv", n, &rest)) {
        uint32_t level = names->levels > n[0] ? names->levels - 1 - n[0] : 0;
        snprintf(block, sizeof block, "output_blocks.%u.%d.conv", n[0] * each + names->layers,
                 names->depth[level] ? 2 : 1);
        put(out, block, rest);
    } else {
        put(out, weight, "");
        EXCHANGE(out->tensor, sgm_outside);
    }
    return true;
}

// ---- SGM: VAE -----------------------------------------------------------------------------------

static const pair old_attention[] = {
    {".to_q", ".query"}, {".to_k", ".key"}, {".to_v", ".value"}, {".to_out.0", ".proj_attn"}};
static const pair sgm_attention[] = {{".group_norm", ".norm"},
                                     {".to_q", ".q"},
                                     {".to_k", ".k"},
                                     {".to_v", ".v"},
                                     {".to_out.0", ".proj_out"}};
static const pair sgm_shortcut[] = {{".conv_shortcut", ".nin_shortcut"}};
static const pair sgm_ends[] = {{"encoder.conv_norm_out", "encoder.norm_out"},
                                {"decoder.conv_norm_out", "decoder.norm_out"}};

static void put_inner(rn_image_place *out, const char *block, const char *rest, const pair *pairs,
                      size_t count) {
    char inner[RN_IMAGE_NAME];
    snprintf(inner, sizeof inner, "%s", rest);
    exchange(inner, sizeof inner, pairs, count);
    put(out, block, inner);
}
#define PUT_INNER(out, block, rest, pairs)                                                         \
    put_inner(out, block, rest, pairs, sizeof pairs / sizeof *pairs)

static bool rename_sgm_vae(const rn_image_names *names, const char *weight, rn_image_place *out) {
    uint32_t n[3];
    const char *rest;
    char block[64];
    for (int side = 0; side < 2; side++) {
        const char *name = side ? "decoder" : "encoder";
        rn_image_name resnet = rn_image_named("%s.mid_block.resnets.#", name);
        if (match(weight, resnet.text, n, &rest)) {
            snprintf(block, sizeof block, "%s.mid.block_%u", name, n[0] + 1);
            PUT_INNER(out, block, rest, sgm_shortcut);
            return true;
        }
        if (match(weight, rn_image_named("%s.mid_block.attentions.0", name).text, n, &rest)) {
            snprintf(block, sizeof block, "%s.mid.attn_1", name);
            PUT_INNER(out, block, rest, sgm_attention);
            return true;
        }
    }
    if (match(weight, "encoder.down_blocks.#.resnets.#", n, &rest)) {
        snprintf(block, sizeof block, "encoder.down.%u.block.%u", n[0], n[1]);
        PUT_INNER(out, block, rest, sgm_shortcut);
    } else if (match(weight, "encoder.down_blocks.#.downsamplers.0.conv", n, &rest)) {
        snprintf(block, sizeof block, "encoder.down.%u.downsample.conv", n[0]);
        put(out, block, rest);
    } else if (match(weight, "decoder.up_blocks.#.resnets.#", n, &rest)) {
        snprintf(block, sizeof block, "decoder.up.%u.block.%u", names->levels - 1 - n[0], n[1]);
        PUT_INNER(out, block, rest, sgm_shortcut);
    } else if (match(weight, "decoder.up_blocks.#.upsamplers.0.conv", n, &rest)) {
        snprintf(block, sizeof block, "decoder.up.%u.upsample.conv", names->levels - 1 - n[0]);
        put(out, block, rest);
    } else {
        put(out, weight, "");
        EXCHANGE(out->tensor, sgm_ends);
    }
    return true;
}

static bool rename_old_vae(const char *weight, rn_image_place *out) {
    for (int side = 0; side < 2; side++) {
        uint32_t n[3];
        const char *rest;
        rn_image_name name =
            rn_image_named("%s.mid_block.attentions.0", side ? "decoder" : "encoder");
        if (!match(weight, name.text, n, &rest)) continue;
        PUT_INNER(out, name.text, rest, old_attention);
        return true;
    }
    put(out, weight, "");
    return true;
}

// ---- OpenCLIP -----------------------------------------------------------------------------------

static bool rename_open_clip(const rn_image_names *names, const char *weight, rn_image_place *out) {
    static const pair outside[] = {
        {"text_model.embeddings.token_embedding.weight", "token_embedding.weight"},
        {"text_model.embeddings.position_embedding.weight", "positional_embedding"},
        {"text_model.final_layer_norm", "ln_final"},
        {"text_projection.weight", "text_projection"}};
    static const pair inside[] = {{".layer_norm1", ".ln_1"},
                                  {".layer_norm2", ".ln_2"},
                                  {".self_attn.out_proj", ".attn.out_proj"},
                                  {".mlp.fc1", ".mlp.c_fc"},
                                  {".mlp.fc2", ".mlp.c_proj"}};
    uint32_t n[3], inner[3];
    const char *rest, *part;
    char block[96];
    if (match(weight, "text_model.encoder.layers.#", n, &rest)) {
        static const char *const qkv[] = {".self_attn.q_proj", ".self_attn.k_proj",
                                          ".self_attn.v_proj"};
        for (uint64_t i = 0; i < 3; i++)
            if (match(rest, qkv[i], inner, &part)) {
                snprintf(block, sizeof block, "transformer.resblocks.%u.attn.in_proj_%s", n[0],
                         *part ? part + 1 : "weight");
                put(out, block, "");
                out->first_row = i * names->dim;
                out->tensor_rows = 3 * names->dim;
                return true;
            }
        snprintf(block, sizeof block, "transformer.resblocks.%u", n[0]);
        PUT_INNER(out, block, rest, inside);
        return true;
    }
    put(out, weight, "");
    EXCHANGE(out->tensor, outside);
    out->turned = strcmp(out->tensor, "text_projection") == 0;
    return true;
}

// ---- BFL ----------------------------------------------------------------------------------------

// Rows of a fused tensor: `index` of parts that are dim high each; the tensor has `all` rows.
typedef struct fused {
    const char *ours, *theirs;
    uint32_t first, all; // in multiples of dim; all 0: the whole tensor
} fused;

static bool rename_fused(const rn_image_names *names, const char *block, const char *rest,
                         const fused *table, size_t count, rn_image_place *out) {
    uint32_t n[3];
    const char *part;
    for (size_t i = 0; i < count; i++) {
        if (!match(rest, table[i].ours, n, &part)) continue;
        // Their norms have a "scale" where ours have a "weight".
        bool norm = strstr(table[i].theirs, "_norm.scale") != NULL;
        snprintf(out->tensor, sizeof out->tensor, "%s%s%s", block, table[i].theirs,
                 norm ? "" : part);
        out->first_row = table[i].first * names->dim;
        out->tensor_rows = table[i].all * names->dim;
        return true;
    }
    return false;
}
#define FUSED(names, block, rest, table, out)                                                      \
    rename_fused(names, block, rest, table, sizeof table / sizeof *table, out)

static bool rename_bfl(const rn_image_names *names, const char *weight, rn_image_place *out) {
    static const fused in_double[] = {
        {".norm1.linear", ".img_mod.lin", 0, 0},
        {".norm1_context.linear", ".txt_mod.lin", 0, 0},
        {".attn.to_q", ".img_attn.qkv", 0, 3},
        {".attn.to_k", ".img_attn.qkv", 1, 3},
        {".attn.to_v", ".img_attn.qkv", 2, 3},
        {".attn.add_q_proj", ".txt_attn.qkv", 0, 3},
        {".attn.add_k_proj", ".txt_attn.qkv", 1, 3},
        {".attn.add_v_proj", ".txt_attn.qkv", 2, 3},
        {".attn.norm_q", ".img_attn.norm.query_norm.scale", 0, 0},
        {".attn.norm_k", ".img_attn.norm.key_norm.scale", 0, 0},
        {".attn.norm_added_q", ".txt_attn.norm.query_norm.scale", 0, 0},
        {".attn.norm_added_k", ".txt_attn.norm.key_norm.scale", 0, 0},
        {".attn.to_out.0", ".img_attn.proj", 0, 0},
        {".attn.to_add_out", ".txt_attn.proj", 0, 0},
        {".ff.net.0.proj", ".img_mlp.0", 0, 0},
        {".ff.net.2", ".img_mlp.2", 0, 0},
        {".ff_context.net.0.proj", ".txt_mlp.0", 0, 0},
        {".ff_context.net.2", ".txt_mlp.2", 0, 0}};
    static const fused in_single[] = {{".norm.linear", ".modulation.lin", 0, 0},
                                      {".attn.to_q", ".linear1", 0, 7},
                                      {".attn.to_k", ".linear1", 1, 7},
                                      {".attn.to_v", ".linear1", 2, 7},
                                      {".proj_mlp", ".linear1", 3, 7},
                                      {".proj_out", ".linear2", 0, 0},
                                      {".attn.norm_q", ".norm.query_norm.scale", 0, 0},
                                      {".attn.norm_k", ".norm.key_norm.scale", 0, 0}};
    static const pair outside[] = {
        {"time_text_embed.timestep_embedder.linear_1", "time_in.in_layer"},
        {"time_text_embed.timestep_embedder.linear_2", "time_in.out_layer"},
        {"time_text_embed.guidance_embedder.linear_1", "guidance_in.in_layer"},
        {"time_text_embed.guidance_embedder.linear_2", "guidance_in.out_layer"},
        {"time_text_embed.text_embedder.linear_1", "vector_in.in_layer"},
        {"time_text_embed.text_embedder.linear_2", "vector_in.out_layer"},
        {"x_embedder", "img_in"},
        {"context_embedder", "txt_in"},
        {"norm_out.linear", "final_layer.adaLN_modulation.1"},
        {"proj_out", "final_layer.linear"}};
    uint32_t n[3];
    const char *rest;
    char block[64];
    if (match(weight, "transformer_blocks.#", n, &rest)) {
        snprintf(block, sizeof block, "double_blocks.%u", n[0]);
        return FUSED(names, block, rest, in_double, out);
    }
    if (match(weight, "single_transformer_blocks.#", n, &rest)) {
        snprintf(block, sizeof block, "single_blocks.%u", n[0]);
        return FUSED(names, block, rest, in_single, out);
    }
    put(out, weight, "");
    EXCHANGE(out->tensor, outside);
    out->swapped = strncmp(weight, "norm_out.linear", 15) == 0; // their shift comes first
    return true;
}

// ---- TAESD, T5 of GGUF --------------------------------------------------------------------------

static bool rename_taesd(const char *weight, rn_image_place *out) {
    uint32_t n[3];
    const char *rest;
    bool decoder = match(weight, "decoder.layers.#", n, &rest);
    if (!decoder && !match(weight, "encoder.layers.#", n, &rest)) return false;
    snprintf(out->tensor, sizeof out->tensor, "%u%s", n[0] + (decoder ? 1 : 0), rest);
    return true;
}

static bool rename_t5_gguf(const char *weight, rn_image_place *out) {
    static const pair outside[] = {
        {"shared", "token_embd"},
        {"encoder.final_layer_norm", "enc.output_norm"},
        {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias", "enc.blk.0.attn_rel_b"}};
    static const pair inside[] = {
        {".layer.0.SelfAttention.q", ".attn_q"},       {".layer.0.SelfAttention.k", ".attn_k"},
        {".layer.0.SelfAttention.v", ".attn_v"},       {".layer.0.SelfAttention.o", ".attn_o"},
        {".layer.0.layer_norm", ".attn_norm"},         {".layer.1.layer_norm", ".ffn_norm"},
        {".layer.1.DenseReluDense.wi_0", ".ffn_gate"}, {".layer.1.DenseReluDense.wi_1", ".ffn_up"},
        {".layer.1.DenseReluDense.wo", ".ffn_down"}};
    uint32_t n[3];
    const char *rest;
    char block[64];
    put(out, weight, "");
    EXCHANGE(out->tensor, outside);
    if (strcmp(out->tensor, weight) != 0) return true;
    if (!match(weight, "encoder.block.#", n, &rest)) return false;
    snprintf(block, sizeof block, "enc.blk.%u", n[0]);
    PUT_INNER(out, block, rest, inside);
    return true;
}

// ---- all ----------------------------------------------------------------------------------------

bool rn_image_rename(const rn_image_names *names, const char *weight, rn_image_place *out) {
    *out = (rn_image_place){.dtype = RN_DTYPE_F32};
    switch (names->naming) {
    case RN_IMAGE_DIFFUSERS_OLD:
        return rename_old_vae(weight, out);
    case RN_IMAGE_BARE:
        put(out, strncmp(weight, "text_model.", 11) == 0 ? weight + 11 : weight, "");
        return true;
    case RN_IMAGE_SGM:
        if (names->kind == RN_IMAGE_UNET) return rename_sgm_unet(names, weight, out);
        if (names->kind == RN_IMAGE_VAE) return rename_sgm_vae(names, weight, out);
        break;
    case RN_IMAGE_OPEN_CLIP:
        return rename_open_clip(names, weight, out);
    case RN_IMAGE_BFL:
        return rename_bfl(names, weight, out);
    case RN_IMAGE_TAESD:
        return rename_taesd(weight, out);
    case RN_IMAGE_GGUF:
        return rename_t5_gguf(weight, out);
    default:
        break;
    }
    put(out, weight, "");
    return true;
}

// make_llm.c — makes a model with the shapes of a real one and random weights.
//
//     make_llm tinyllama-1.1b q4_k_m OUT.gguf        a file that ration and llama.cpp read alike
//     make_llm mistral-7b int4 OUT                   a folder: model.safetensors, config.json
//     make_llm olmoe-1b-7b q8_0 OUT.gguf             with experts: GGUF only
//
// GGUF's types as llama.cpp's quantiser mixes them: q4_0 with a q6_k head, q4_k_m with q6_k for the
// head and for some of the values' and down projections. int8, int4 and nf4 as `ration convert`
// has them: all products, the head included; the embedding stays bf16, beside f8_e4m3 too. Random
// blocks have sane scales, so that activations stay finite.
#include <ration/ration.h>

#include "tensor/layout.h"
#include "tensor/quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct shape {
    const char *name;
    uint64_t layers, dim, heads, kv_heads, head_dim, ffn, vocab;
    double rope_base;
    bool tied;
    const char *architecture; // GGUF's; NULL: llama
    uint64_t experts, chosen; // ffn is of one expert then
    bool head_norms;          // of q and k, of a head; else, with experts, of all heads as one
} shape;

static const shape shapes[] = {
    {"tinyllama-1.1b", 22, 2048, 32, 4, 64, 5632, 32000, 10000, false},
    {"llama-3.2-1b", 16, 2048, 32, 8, 64, 8192, 128256, 500000, true},
    {"mistral-7b", 32, 4096, 32, 8, 128, 14336, 32000, 10000, false},
    {"mistral-7b-4", 4, 4096, 32, 8, 128, 14336, 32000, 10000, false}, // 4 of its layers
    {"olmoe-1b-7b", 16, 2048, 16, 16, 128, 1024, 50304, 10000, false, "olmoe", 64, 8},
    {"olmoe-1b-7b-3", 3, 2048, 16, 16, 128, 1024, 50304, 10000, false, "olmoe", 64, 8}, // 3 layers
    {"qwen3-30b-a3b", 48, 2048, 32, 4, 128, 768, 151936, 1e6, false, "qwen3moe", 128, 8, true},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, MAX_TENSORS = 800, CHUNK_BYTES = 1 << 20 };

typedef struct maker {
    const shape *s;
    const char *type;
    bool is_folder; // safetensors, Hugging Face's names
    rn_write_tensor tensors[MAX_TENSORS];
    char names[MAX_TENSORS][80];
    uint64_t dims[MAX_TENSORS][3];
    float values[MAX_TENSORS]; // of those in f32: norms, scales, shifts; 0: any, around 0
    size_t count;
    uint64_t random;
} maker;

// ---- which type ---------------------------------------------------------------------------------

static rn_dtype base_type(const char *type) {
    bool is_mixed = strcmp(type, "q4_k_m") == 0;
    return is_mixed ? RN_DTYPE_Q4_K : rn_dtype_parse((rn_str){type, strlen(type)});
}

static bool is_four_bits(const maker *m) {
    return strncmp(m->type, "q4", 2) == 0;
}

static bool gets_more_bits(uint64_t layer, uint64_t layers) {
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

static rn_dtype type_of(const maker *m, const char *part, uint64_t layer) {
    bool more = strcmp(part, "attn_v") == 0 || strcmp(part, "ffn_down") == 0;
    if (strcmp(m->type, "q4_k_m") == 0 && more && gets_more_bits(layer, m->s->layers))
        return RN_DTYPE_Q6_K;
    return base_type(m->type);
}

// ---- which tensors ------------------------------------------------------------------------------

static void add(maker *m, const char *name, const char *suffix, rn_write_tensor tensor,
                float value) {
    size_t i = m->count++;
    int length = snprintf(m->names[i], sizeof m->names[i], "%s%s", name, suffix);
    memcpy(m->dims[i], tensor.dims, tensor.rank * sizeof *tensor.dims);
    m->values[i] = value;
    m->tensors[i] = tensor;
    m->tensors[i].name = (rn_str){m->names[i], (size_t)length};
    m->tensors[i].dims = m->dims[i];
}

static void add_vector(maker *m, const char *name, uint64_t size) {
    add(m, name, "", (rn_write_tensor){.dtype = RN_DTYPE_F32, .rank = 1, .dims = &size}, 1);
}

// The tensors of a form that is ration's own (tensor/quant.h), so that weights are around 0.02.
typedef struct own_part {
    rn_dtype dtype; // of the weight
    const char *suffix;
    rn_dtype part_dtype;
    float value;
} own_part;

static void add_parts(maker *m, const char *name, rn_dtype dtype, uint64_t rows, uint64_t cols) {
    static const own_part parts[] = {{RN_DTYPE_INT8, "._data", RN_DTYPE_I8, 0},
                                     {RN_DTYPE_INT8, "._scale", RN_DTYPE_F32, 0.0003f},
                                     {RN_DTYPE_INT4, "._data._data", RN_DTYPE_U8, 0},
                                     {RN_DTYPE_INT4, "._scale", RN_DTYPE_F32, 0.005f},
                                     {RN_DTYPE_INT4, "._shift", RN_DTYPE_F32, 7.5f * 0.005f},
                                     {RN_DTYPE_NF4, "", RN_DTYPE_U8, 0},
                                     {RN_DTYPE_NF4, ".absmax", RN_DTYPE_F32, 0.04f}};
    uint64_t wide = dtype == RN_DTYPE_INT8 ? cols : rn_quant_int4_group(cols); // of the data
    rn_plain_components plain;
    if (!rn_plain_components_of(dtype, rows, cols, &plain)) abort();
    for (size_t i = 0, part = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].dtype != dtype) continue;
        bool is_data = parts[i].part_dtype != RN_DTYPE_F32, is_flat = dtype == RN_DTYPE_NF4;
        uint64_t second = is_data && !is_flat ? wide : 1;
        uint64_t elements = plain.bytes[part++] / (is_data ? 1 : sizeof(float));
        rn_write_tensor tensor = {.dtype = parts[i].part_dtype,
                                  .rank = is_flat && !is_data ? 1 : 2,
                                  .dims = (uint64_t[]){elements / second, second}};
        add(m, name, parts[i].suffix, tensor, parts[i].value);
    }
}

static void add_matrix(maker *m, const char *name, rn_dtype dtype, uint64_t rows, uint64_t cols) {
    bool is_own = dtype == RN_DTYPE_INT8 || dtype == RN_DTYPE_INT4 || dtype == RN_DTYPE_NF4;
    rn_write_tensor whole = {.dtype = dtype, .rank = 2, .dims = (uint64_t[]){rows, cols}};
    if (is_own)
        add_parts(m, name, dtype, rows, cols);
    else
        add(m, name, "", whole, 0);
}

// GGUF's names: the router, and three stacks of matrices.
static void add_experts(maker *m, uint64_t layer) {
    const shape *s = m->s;
    const struct {
        const char *part;
        uint64_t rows, cols;
    } parts[] = {{"ffn_gate_exps", s->ffn, s->dim},
                 {"ffn_up_exps", s->ffn, s->dim},
                 {"ffn_down_exps", s->dim, s->ffn}};
    char name[64];
    snprintf(name, sizeof name, "blk.%llu.ffn_gate_inp.weight", (unsigned long long)layer);
    add(m, name, "",
        (rn_write_tensor){
            .dtype = RN_DTYPE_F32, .rank = 2, .dims = (uint64_t[]){s->experts, s->dim}},
        0);
    for (size_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "blk.%llu.%s.weight", (unsigned long long)layer, parts[i].part);
        const char *like = i == 2 ? "ffn_down" : parts[i].part;
        add(m, name, "",
            (rn_write_tensor){.dtype = type_of(m, like, layer),
                              .rank = 3,
                              .dims = (uint64_t[]){s->experts, parts[i].rows, parts[i].cols}},
            0);
    }
    snprintf(name, sizeof name, "blk.%llu.attn_q_norm.weight", (unsigned long long)layer);
    add_vector(m, name, s->head_norms ? s->head_dim : s->heads * s->head_dim);
    snprintf(name, sizeof name, "blk.%llu.attn_k_norm.weight", (unsigned long long)layer);
    add_vector(m, name, s->head_norms ? s->head_dim : s->kv_heads * s->head_dim);
}

static void add_layer(maker *m, uint64_t layer) {
    const shape *s = m->s;
    uint64_t wide = s->heads * s->head_dim, narrow = s->kv_heads * s->head_dim;
    const struct {
        const char *part, *other; // GGUF's name and Hugging Face's
        uint64_t rows, cols;      // no rows: a norm
    } parts[] = {{"attn_norm", "input_layernorm", 0, s->dim},
                 {"attn_q", "self_attn.q_proj", wide, s->dim},
                 {"attn_k", "self_attn.k_proj", narrow, s->dim},
                 {"attn_v", "self_attn.v_proj", narrow, s->dim},
                 {"attn_output", "self_attn.o_proj", s->dim, wide},
                 {"ffn_norm", "post_attention_layernorm", 0, s->dim},
                 {"ffn_gate", "mlp.gate_proj", s->ffn, s->dim},
                 {"ffn_up", "mlp.up_proj", s->ffn, s->dim},
                 {"ffn_down", "mlp.down_proj", s->dim, s->ffn}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[64];
        if (s->experts && strncmp(parts[i].part, "ffn_", 4) == 0 && parts[i].rows) continue;
        snprintf(name, sizeof name, "%s.%llu.%s.weight", m->is_folder ? "model.layers" : "blk",
                 (unsigned long long)layer, m->is_folder ? parts[i].other : parts[i].part);
        if (parts[i].rows)
            add_matrix(m, name, type_of(m, parts[i].part, layer), parts[i].rows, parts[i].cols);
        else
            add_vector(m, name, parts[i].cols);
    }
    if (s->experts) add_experts(m, layer);
}

static void add_tensors(maker *m) {
    const shape *s = m->s;
    bool hf = m->is_folder;
    rn_dtype head = is_four_bits(m) ? RN_DTYPE_Q6_K : base_type(m->type);
    rn_dtype table = hf ? RN_DTYPE_BF16 : s->tied ? head : base_type(m->type);
    add_matrix(m, hf ? "model.embed_tokens.weight" : "token_embd.weight", table, s->vocab, s->dim);
    for (uint64_t i = 0; i < s->layers; i++)
        add_layer(m, i);
    add_vector(m, hf ? "model.norm.weight" : "output_norm.weight", s->dim);
    if (!s->tied) add_matrix(m, hf ? "lm_head.weight" : "output.weight", head, s->vocab, s->dim);
}

// ---- their bytes --------------------------------------------------------------------------------

static uint64_t next_random(maker *m) {
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return m->random;
}

static void put_f16(uint8_t *at, float value) {
    uint16_t half;
    (void)!rn_dtype_from_f32(RN_DTYPE_F16, &value, &half, 1);
    memcpy(at, &half, sizeof half);
}

// Where a block's f16 scales stand, and how large they are so that weights are around 0.02.
static void set_scales(rn_dtype dtype, uint8_t *block) {
    static const struct {
        rn_dtype dtype;
        uint32_t at;
        float scale;
    } scales[] = {
        {RN_DTYPE_Q8_0, 0, 0.0003f},    {RN_DTYPE_Q4_0, 0, 0.005f},
        {RN_DTYPE_Q4_1, 0, 0.005f},     {RN_DTYPE_Q4_1, 2, -0.04f},
        {RN_DTYPE_Q5_0, 0, 0.0025f},    {RN_DTYPE_Q5_1, 0, 0.0025f},
        {RN_DTYPE_Q5_1, 2, -0.04f},     {RN_DTYPE_IQ4_NL, 0, 0.0003f},
        {RN_DTYPE_Q2_K, 80, 0.0016f},   {RN_DTYPE_Q2_K, 82, 0.0024f},
        {RN_DTYPE_Q3_K, 108, 0.0006f},  {RN_DTYPE_Q4_K, 0, 0.0001f},
        {RN_DTYPE_Q4_K, 2, 0.0007f},    {RN_DTYPE_Q5_K, 0, 0.00005f},
        {RN_DTYPE_Q5_K, 2, 0.0007f},    {RN_DTYPE_Q6_K, 208, 0.00002f},
        {RN_DTYPE_IQ4_XS, 0, 0.00002f}, {RN_DTYPE_TQ2_0, 64, 0.02f},
        {RN_DTYPE_IQ1_S, 0, 0.002f},    {RN_DTYPE_IQ2_XXS, 0, 0.0005f},
        {RN_DTYPE_IQ2_XS, 0, 0.0005f},  {RN_DTYPE_IQ2_S, 0, 0.0005f},
        {RN_DTYPE_IQ3_XXS, 0, 0.0001f}, {RN_DTYPE_IQ3_S, 0, 0.0001f},
    };
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        if (scales[i].dtype == dtype) put_f16(block + scales[i].at, scales[i].scale);
    if (dtype == RN_DTYPE_MXFP4) block[0] = 128 - 8;     // times 12 at most
    if (dtype == RN_DTYPE_NVFP4) memset(block, 0x04, 4); // 2^-7
    if (dtype != RN_DTYPE_IQ1_M) return;
    uint8_t half[2]; // four bits of it above each of four words
    put_f16(half, 0.0025f);
    for (int i = 0; i < 4; i++)
        block[49 + 2 * i] =
            (uint8_t)((block[49 + 2 * i] & 15) | (half[i / 2] >> i % 2 * 4 & 15) << 4);
}

// value: of f32.
static void fill(maker *m, rn_dtype dtype, float value, uint8_t *out, size_t bytes) {
    const rn_dtype_info *info = rn_dtype_get(dtype);
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t bits = next_random(m);
        memcpy(out + i, &bits, sizeof bits);
    }
    if (dtype == RN_DTYPE_F16) // sign, an exponent for 0.008 to 0.03, any mantissa
        for (size_t i = 0; i < bytes; i += 2)
            out[i + 1] = (uint8_t)((out[i + 1] & 0x87) | 0x20);
    else if (dtype == RN_DTYPE_BF16) // the same
        for (size_t i = 0; i < bytes; i += 2)
            out[i + 1] = (uint8_t)((out[i + 1] & 0x80) | 0x3c);
    else if (dtype == RN_DTYPE_F8_E4M3) // 0.016 to 0.03
        for (size_t i = 0; i < bytes; i++)
            out[i] = (uint8_t)((out[i] & 0x87) | 0x08);
    else if (dtype == RN_DTYPE_F32)
        for (size_t i = 0; i < bytes; i += 4) {
            float any = (float)(out[i] - 128) * 0.0004f;
            memcpy(out + i, value == 0 ? &any : &value, 4);
        }
    else if (info->block_elements > 1)
        for (size_t i = 0; i + info->block_bytes <= bytes; i += info->block_bytes)
            set_scales(dtype, out + i);
}

static rn_status write_tensor(maker *m, rn_writer *writer, size_t number) {
    static uint8_t chunk[CHUNK_BYTES];
    const rn_write_tensor *t = &m->tensors[number];
    const rn_dtype_info *info = rn_dtype_get(t->dtype);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < t->rank; i++)
        elements *= t->dims[i];
    uint64_t left = elements / info->block_elements * info->block_bytes;
    uint64_t most = CHUNK_BYTES / info->block_bytes * info->block_bytes;
    while (left > 0) {
        size_t bytes = left < most ? left : most;
        fill(m, t->dtype, m->values[number], chunk, bytes);
        RN_TRY(rn_writer_append(writer, chunk, bytes));
        left -= bytes;
    }
    return RN_OK;
}

// ---- the file -----------------------------------------------------------------------------------

enum { GGUF_U32 = 4, GGUF_F32 = 6, GGUF_STRING = 8 };

static rn_str str(const char *text) {
    return (rn_str){text, strlen(text)};
}
static rn_metadata text_pair(const char *key, const char *text) {
    return (rn_metadata){
        .key = str(key), .kind = RN_METADATA_TEXT, .gguf_type = GGUF_STRING, .text = str(text)};
}
static rn_metadata count_pair(const char *key, uint64_t value) {
    return (rn_metadata){
        .key = str(key), .kind = RN_METADATA_U64, .gguf_type = GGUF_U32, .value.u64 = value};
}
static rn_metadata real_pair(const char *key, double value) {
    return (rn_metadata){
        .key = str(key), .kind = RN_METADATA_F64, .gguf_type = GGUF_F32, .value.f64 = value};
}

static rn_status write_tensors(maker *m, const char *path, const rn_writer_options *options) {
    rn_writer *writer = NULL;
    RN_TRY(rn_writer_create(path, m->tensors, m->count, options, &writer));
    rn_status status = RN_OK;
    for (size_t i = 0; status == RN_OK && i < m->count; i++)
        status = write_tensor(m, writer, i);
    if (status == RN_OK) status = rn_writer_commit(writer);
    rn_writer_destroy(writer);
    return status;
}

// "llama.block_count" of the shape's own architecture.
static const char *key_of(const shape *s, const char *name, char out[80]) {
    snprintf(out, 80, "%s.%s", s->architecture ? s->architecture : "llama", name);
    return out;
}

static rn_status write_gguf(maker *m, const char *path) {
    const shape *s = m->s;
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {{"block_count", s->layers},
                  {"context_length", 8192},
                  {"embedding_length", s->dim},
                  {"feed_forward_length", s->ffn},
                  {"attention.head_count", s->heads},
                  {"attention.head_count_kv", s->kv_heads},
                  {"attention.key_length", s->head_dim},
                  {"attention.value_length", s->head_dim},
                  {"rope.dimension_count", s->head_dim},
                  {"vocab_size", s->vocab},
                  {"expert_feed_forward_length", s->ffn}, // with experts
                  {"expert_count", s->experts},
                  {"expert_used_count", s->chosen}};
    enum { COUNTS = sizeof counts / sizeof *counts, OF_EXPERTS = 3 };
    char keys[COUNTS + 2][80];
    rn_metadata pairs[COUNTS + 5];
    size_t count = 0, most = s->experts ? COUNTS : COUNTS - OF_EXPERTS;
    pairs[count++] = text_pair("general.architecture", s->architecture ? s->architecture : "llama");
    pairs[count++] = text_pair("general.name", s->name);
    pairs[count++] = text_pair("tokenizer.ggml.model", "no_vocab");
    for (size_t i = 0; i < most; i++)
        pairs[count++] = count_pair(key_of(s, counts[i].name, keys[i]), counts[i].value);
    pairs[count++] = real_pair(key_of(s, "rope.freq_base", keys[COUNTS]), s->rope_base);
    pairs[count++] =
        real_pair(key_of(s, "attention.layer_norm_rms_epsilon", keys[COUNTS + 1]), 1e-5);
    rn_writer_options options = {.metadata = pairs, .metadata_count = count};
    return write_tensors(m, path, &options);
}

// The configuration first: what has weights is whole.
static rn_status write_folder(maker *m, const char *folder) {
    const shape *s = m->s;
    char path[4096];
    mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *file = fopen(path, "w");
    if (!file) return rn_fail(RN_IO, "cannot write %s", path);
    fprintf(file,
            "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
            "\"hidden_act\": \"silu\", \"num_hidden_layers\": %llu, \"hidden_size\": %llu, "
            "\"intermediate_size\": %llu, \"num_attention_heads\": %llu, "
            "\"num_key_value_heads\": %llu, \"head_dim\": %llu, \"vocab_size\": %llu, "
            "\"rope_theta\": %.1f, \"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 8192, "
            "\"tie_word_embeddings\": %s}\n",
            (unsigned long long)s->layers, (unsigned long long)s->dim, (unsigned long long)s->ffn,
            (unsigned long long)s->heads, (unsigned long long)s->kv_heads,
            (unsigned long long)s->head_dim, (unsigned long long)s->vocab, s->rope_base,
            s->tied ? "true" : "false");
    if (fclose(file)) return rn_fail(RN_IO, "cannot write %s", path);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    return write_tensors(m, path, NULL);
}

static const shape *find_shape(const char *name) {
    for (size_t i = 0; i < SHAPES; i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    return NULL;
}

int main(int argc, char **argv) {
    enum { FOLDERS = 4 };
    static const char *const types[] = {
        "int8",  "int4",  "nf4",   "f8_e4m3", // folders
        "nvfp4", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s",  "iq3_xxs", "iq3_s",  "tq2_0",
        "f16",   "bf16",  "q8_0",  "q4_0",    "q4_1",   "q5_0",   "q5_1",    "q4_k_m", "q2_k",
        "q3_k",  "q4_k",  "q5_k",  "q6_k",    "iq4_nl", "iq4_xs", "mxfp4"};
    static maker m = {.random = 88172645463325252u};
    m.s = argc == 4 ? find_shape(argv[1]) : NULL;
    for (size_t i = 0; m.s && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i], argv[2]) == 0) m.type = types[i], m.is_folder = i < FOLDERS;
    if (!m.type || (m.is_folder && m.s->experts)) {
        fprintf(stderr, "usage: make_llm tinyllama-1.1b|llama-3.2-1b|mistral-7b|mistral-7b-4|"
                        "olmoe-1b-7b|olmoe-1b-7b-3|qwen3-30b-a3b "
                        "f16|bf16|q8_0|q4_0|q4_1|q5_0|q5_1|q4_k_m|q2_k|q3_k|q4_k|q5_k|q6_k|iq4_nl|"
                        "iq4_xs|mxfp4|nvfp4|iq1_s|iq1_m|iq2_xxs|iq2_xs|iq2_s|iq3_xxs|iq3_s|tq2_0 "
                        "OUT.gguf, or int8|int4|nf4|f8_e4m3 FOLDER\n");
        return 2;
    }
    add_tensors(&m);
    rn_status status = m.is_folder ? write_folder(&m, argv[3]) : write_gguf(&m, argv[3]);
    if (status == RN_OK) return 0;
    fprintf(stderr, "make_llm: %s\n", rn_last_error()->message);
    return 1;
}

// make_llm.c — makes a GGUF file with the shapes of a real model and random weights, which
// ration and llama.cpp read alike.
//
//     make_llm tinyllama-1.1b q4_k_m OUT.gguf
//
// Types as llama.cpp's quantiser mixes them: q4_0 with a q6_k head, q4_k_m with q6_k for the head
// and for some of the values' and down projections. Random blocks have sane scales, so that
// activations stay finite.
#include <ration/ration.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    const char *name;
    uint64_t layers, dim, heads, kv_heads, head_dim, ffn, vocab;
    double rope_base;
    bool tied;
} shape;

static const shape shapes[] = {
    {"tinyllama-1.1b", 22, 2048, 32, 4, 64, 5632, 32000, 10000, false},
    {"llama-3.2-1b", 16, 2048, 32, 8, 64, 8192, 128256, 500000, true},
    {"mistral-7b", 32, 4096, 32, 8, 128, 14336, 32000, 10000, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, MAX_TENSORS = 400, CHUNK_BYTES = 1 << 20 };

typedef struct maker {
    const shape *s;
    const char *type;
    rn_write_tensor tensors[MAX_TENSORS];
    char names[MAX_TENSORS][64];
    uint64_t dims[MAX_TENSORS][2];
    size_t count;
    uint64_t random;
} maker;

// ---- which type ---------------------------------------------------------------------------------

static rn_dtype base_type(const char *type) {
    if (strcmp(type, "f16") == 0) return RN_DTYPE_F16;
    if (strcmp(type, "bf16") == 0) return RN_DTYPE_BF16;
    if (strcmp(type, "q8_0") == 0) return RN_DTYPE_Q8_0;
    return strcmp(type, "q4_0") == 0 ? RN_DTYPE_Q4_0 : RN_DTYPE_Q4_K;
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

static void add(maker *m, const char *name, rn_dtype dtype, uint64_t rows, uint64_t cols) {
    size_t i = m->count++;
    snprintf(m->names[i], sizeof m->names[i], "%s", name);
    m->dims[i][0] = rows ? rows : cols;
    m->dims[i][1] = cols;
    m->tensors[i] = (rn_write_tensor){.name = {m->names[i], strlen(name)},
                                      .dtype = dtype,
                                      .rank = rows ? 2 : 1,
                                      .dims = m->dims[i]};
}

static void add_layer(maker *m, uint64_t layer) {
    const shape *s = m->s;
    uint64_t wide = s->heads * s->head_dim, narrow = s->kv_heads * s->head_dim;
    const struct {
        const char *part;
        uint64_t rows, cols;
    } parts[] = {
        {"attn_norm", 0, s->dim},     {"attn_q", wide, s->dim},      {"attn_k", narrow, s->dim},
        {"attn_v", narrow, s->dim},   {"attn_output", s->dim, wide}, {"ffn_norm", 0, s->dim},
        {"ffn_gate", s->ffn, s->dim}, {"ffn_up", s->ffn, s->dim},    {"ffn_down", s->dim, s->ffn}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%llu.%s.weight", (unsigned long long)layer, parts[i].part);
        rn_dtype type = parts[i].rows ? type_of(m, parts[i].part, layer) : RN_DTYPE_F32;
        add(m, name, type, parts[i].rows, parts[i].cols);
    }
}

static void add_tensors(maker *m) {
    const shape *s = m->s;
    rn_dtype head = is_four_bits(m) ? RN_DTYPE_Q6_K : base_type(m->type);
    add(m, "token_embd.weight", s->tied ? head : base_type(m->type), s->vocab, s->dim);
    for (uint64_t i = 0; i < s->layers; i++)
        add_layer(m, i);
    add(m, "output_norm.weight", RN_DTYPE_F32, 0, s->dim);
    if (!s->tied) add(m, "output.weight", head, s->vocab, s->dim);
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
    if (dtype == RN_DTYPE_Q8_0) put_f16(block, 0.0003f);
    if (dtype == RN_DTYPE_Q4_0) put_f16(block, 0.005f);
    if (dtype == RN_DTYPE_Q6_K) put_f16(block + 208, 0.00002f);
    if (dtype != RN_DTYPE_Q4_K) return;
    put_f16(block, 0.0001f);
    put_f16(block + 2, 0.0007f);
}

static void fill(maker *m, rn_dtype dtype, uint8_t *out, size_t bytes) {
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
    else if (dtype == RN_DTYPE_F32)
        for (size_t i = 0; i < bytes; i += 4)
            memcpy(out + i, &(float){1}, 4);
    else
        for (size_t i = 0; i + info->block_bytes <= bytes; i += info->block_bytes)
            set_scales(dtype, out + i);
}

static rn_status write_tensor(maker *m, rn_writer *writer, const rn_write_tensor *t) {
    static uint8_t chunk[CHUNK_BYTES];
    const rn_dtype_info *info = rn_dtype_get(t->dtype);
    uint64_t elements = t->dims[0] * (t->rank == 2 ? t->dims[1] : 1);
    uint64_t left = elements / info->block_elements * info->block_bytes;
    uint64_t most = CHUNK_BYTES / info->block_bytes * info->block_bytes;
    while (left > 0) {
        size_t bytes = left < most ? left : most;
        fill(m, t->dtype, chunk, bytes);
        RN_TRY(rn_writer_append(writer, chunk, bytes));
        left -= bytes;
    }
    return RN_OK;
}

// ---- the file -----------------------------------------------------------------------------------

enum { GGUF_U32 = 4, GGUF_F32 = 6, GGUF_STRING = 8, MAX_PAIRS = 16 };

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

static rn_status write_file(maker *m, const char *path) {
    const shape *s = m->s;
    const rn_metadata pairs[] = {
        text_pair("general.architecture", "llama"),
        text_pair("general.name", s->name),
        count_pair("llama.block_count", s->layers),
        count_pair("llama.context_length", 8192),
        count_pair("llama.embedding_length", s->dim),
        count_pair("llama.feed_forward_length", s->ffn),
        count_pair("llama.attention.head_count", s->heads),
        count_pair("llama.attention.head_count_kv", s->kv_heads),
        count_pair("llama.rope.dimension_count", s->head_dim),
        real_pair("llama.rope.freq_base", s->rope_base),
        real_pair("llama.attention.layer_norm_rms_epsilon", 1e-5),
        count_pair("llama.vocab_size", s->vocab),
        text_pair("tokenizer.ggml.model", "no_vocab"),
    };
    rn_writer_options options = {.metadata = pairs, .metadata_count = sizeof pairs / sizeof *pairs};
    rn_writer *writer = NULL;
    RN_TRY(rn_writer_create(path, m->tensors, m->count, &options, &writer));
    rn_status status = RN_OK;
    for (size_t i = 0; status == RN_OK && i < m->count; i++)
        status = write_tensor(m, writer, &m->tensors[i]);
    if (status == RN_OK) status = rn_writer_commit(writer);
    rn_writer_destroy(writer);
    return status;
}

static const shape *find_shape(const char *name) {
    for (size_t i = 0; i < SHAPES; i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    return NULL;
}

int main(int argc, char **argv) {
    static maker m = {.random = 88172645463325252u};
    m.s = argc == 4 ? find_shape(argv[1]) : NULL;
    bool known = argc == 4 && strstr("bf16 q8_0 q4_0 q4_k_m", argv[2]);
    if (!m.s || !known) {
        fprintf(stderr, "usage: make_llm tinyllama-1.1b|llama-3.2-1b|mistral-7b "
                        "f16|bf16|q8_0|q4_0|q4_k_m OUT.gguf\n");
        return 2;
    }
    m.type = argv[2];
    add_tensors(&m);
    if (write_file(&m, argv[3]) == RN_OK) return 0;
    fprintf(stderr, "make_llm: %s\n", rn_last_story()->message);
    return 1;
}

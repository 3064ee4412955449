// make_model.c — introduces the streaming writer: declares the tensors of a Llama-like model of
// about the size that is asked for, and streams random bf16 weights into it. Memory stays at a few
// MiB whatever the size.
//
//     make_model OUT.safetensors 512MiB
#include <ration/ration.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 2048, HIDDEN = 5632, KV = 256, PER_LAYER = 9, MAX_LAYERS = 4096, VOCAB = 8192 };

typedef struct shape {
    const char *suffix;
    uint32_t rank;
    uint64_t dims[2];
} shape;

static const shape layer_shapes[PER_LAYER] = {
    {"input_layernorm.weight", 1, {WIDTH, 0}},
    {"self_attn.q_proj.weight", 2, {WIDTH, WIDTH}},
    {"self_attn.k_proj.weight", 2, {KV, WIDTH}},
    {"self_attn.v_proj.weight", 2, {KV, WIDTH}},
    {"self_attn.o_proj.weight", 2, {WIDTH, WIDTH}},
    {"post_attention_layernorm.weight", 1, {WIDTH, 0}},
    {"mlp.gate_proj.weight", 2, {HIDDEN, WIDTH}},
    {"mlp.up_proj.weight", 2, {HIDDEN, WIDTH}},
    {"mlp.down_proj.weight", 2, {WIDTH, HIDDEN}},
};

static uint64_t random_state = 88172645463325252u;

static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

// Four numbers from one draw, each a sum of two uniform ones around 0 (a triangle), scaled like
// trained weights.
static void fill(uint16_t *out, size_t count) {
    for (size_t i = 0; i + 4 <= count; i += 4) {
        uint64_t bits = next_random();
        for (size_t k = 0; k < 4; k++, bits >>= 16) {
            float value = ((float)(bits & 255) + (float)(bits >> 8 & 255) - 255.0f) * (0.05f / 255);
            uint32_t word;
            memcpy(&word, &value, sizeof word);
            out[i + k] = (uint16_t)(word >> 16);
        }
    }
}

static uint64_t elements_of(const rn_write_tensor *tensor) {
    return tensor->dims[0] * (tensor->rank == 2 ? tensor->dims[1] : 1);
}

static size_t declare(rn_write_tensor *tensors, char (*names)[64], size_t layers) {
    static const uint64_t embedding[2] = {VOCAB, WIDTH};
    size_t count = 0;
    snprintf(names[count], sizeof names[0], "model.embed_tokens.weight");
    tensors[count] = (rn_write_tensor){.dtype = RN_DTYPE_BF16, .rank = 2, .dims = embedding};
    count++;
    for (size_t l = 0; l < layers; l++)
        for (size_t i = 0; i < PER_LAYER; i++, count++) {
            const shape *s = &layer_shapes[i];
            snprintf(names[count], sizeof names[0], "model.layers.%zu.%s", l, s->suffix);
            tensors[count] =
                (rn_write_tensor){.dtype = RN_DTYPE_BF16, .rank = s->rank, .dims = s->dims};
        }
    for (size_t i = 0; i < count; i++)
        tensors[i].name = (rn_str){names[i], strlen(names[i])};
    return count;
}

static rn_status write_tensors(rn_writer *writer, const rn_write_tensor *tensors, size_t count) {
    static uint16_t values[1 << 18];
    const size_t most = sizeof values / sizeof *values;
    for (size_t i = 0; i < count; i++)
        for (uint64_t left = elements_of(&tensors[i]); left > 0;) {
            size_t now = left < most ? (size_t)left : most;
            fill(values, now);
            RN_TRY(rn_writer_append(writer, values, now * sizeof *values));
            left -= now;
        }
    return rn_writer_commit(writer);
}

static rn_status make_model(const char *path, uint64_t bytes) {
    static rn_write_tensor tensors[MAX_LAYERS * PER_LAYER + 1];
    static char names[MAX_LAYERS * PER_LAYER + 1][64];
    uint64_t layer_elements = 0;
    for (size_t i = 0; i < PER_LAYER; i++)
        layer_elements +=
            layer_shapes[i].dims[0] * (layer_shapes[i].rank == 2 ? layer_shapes[i].dims[1] : 1);
    uint64_t layers = bytes / (layer_elements * 2);
    if (layers < 1) layers = 1;
    if (layers > MAX_LAYERS) return rn_fail(RN_INVALID, "at most %d layers", MAX_LAYERS);
    size_t count = declare(tensors, names, (size_t)layers);
    rn_writer *writer;
    RN_TRY(rn_writer_create(path, tensors, count, NULL, &writer));
    rn_status s = write_tensors(writer, tensors, count);
    if (s == RN_OK)
        printf("%s: %llu layers, %s\n", path, (unsigned long long)layers,
               rn_size_format(rn_writer_file_bytes(writer)).text);
    rn_writer_destroy(writer);
    return s;
}

int main(int argc, char **argv) {
    uint64_t bytes;
    if (argc != 3) {
        fprintf(stderr, "usage: make_model OUT.safetensors SIZE\n");
        return 2;
    }
    rn_status s = rn_size_parse((rn_str){argv[2], strlen(argv[2])}, 0, &bytes);
    if (s == RN_OK) s = make_model(argv[1], bytes);
    if (s == RN_OK) return 0;
    fprintf(stderr, "make_model: %s\n", rn_last_error()->message);
    return 1;
}

// embed_bench.c — sentence embeddings of a batch of texts of one length on the CPU.
//
//     embed_bench MODEL [THREADS [TEXTS [TOKENS [SECONDS]]]]     2 threads, 32 x 128 tokens, 3 s
//
// The best of many batches: tokens in, pooled and normed vectors out. bench/embed_ort.py has ONNX
// Runtime do the same, in turns with this.
#include "model_bench.h"

#include <ration/embed.h>

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    if (argc > 2) threads = (uint32_t)atoi(argv[2]);
    uint32_t texts = argc > 3 ? (uint32_t)atoi(argv[3]) : 32;
    uint32_t tokens = argc > 4 ? (uint32_t)atoi(argv[4]) : 128;
    double seconds = argc > 5 ? atof(argv[5]) : 3, best = 1e9;
    rn_model *model;
    rn_device *device;
    rn_embedder *embedder;
    must(rn_model_open(argv[1], NULL, &model));
    must(rn_cpu_device_create(threads, &device));
    rn_embedder_options options = {.text = {.text_tokens = tokens}, .session.device = device};
    must(rn_embedder_create(model, &options, &embedder));
    uint32_t *ids = calloc((size_t)texts * tokens, sizeof *ids);
    rn_tokens *list = calloc(texts, sizeof *list);
    float *out = calloc((size_t)texts * rn_embedder_dimensions(embedder), sizeof *out);
    if (!ids || !list || !out) return 1;
    for (uint32_t i = 0; i < texts * tokens; i++)
        ids[i] = i * 7919 % rn_model_get_info(model)->vocab_size;
    for (uint32_t i = 0; i < texts; i++)
        list[i] = (rn_tokens){ids + (size_t)i * tokens, tokens, tokens};
    for (double begin = wall_seconds(); wall_seconds() - begin < seconds;) {
        double start = step_seconds();
        must(rn_embedder_embed_tokens(embedder, list, texts, out));
        double passed = step_seconds() - start;
        best = passed < best ? passed : best;
    }
    printf("%s, %u threads, %u x %u tokens: %9.3f ms\n", argv[1], threads, texts, tokens,
           best * 1e3);
    rn_embedder_destroy(embedder);
    rn_device_destroy(device);
    rn_model_close(model);
    free(ids);
    free(list);
    free(out);
}

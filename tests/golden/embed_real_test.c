// embed_real_test.c — real embedding models against transformers, where they are there: MiniLM and
// MPNet from their folders, nomic-embed-text from GGUF. scripts/reference/embedders_real.py made
// what is expected.
#include <ration/embed.h>

#include "support.h"

#include <math.h>

enum { TEXTS = 6, MOST_DIM = 768 };

static char many_words[12 * 60 + 1];

static void list_texts(rn_str texts[TEXTS]) {
    static const char *const plain[TEXTS] = {"The quick brown fox jumps over the lazy dog.",
                                             "",
                                             "Café naïve 日本東京 😀",
                                             many_words,
                                             "What is the capital of France?",
                                             "Paris."};
    for (int i = 0; i < 60; i++)
        memcpy(many_words + 12 * i, "hello world ", 12);
    for (int i = 0; i < TEXTS; i++)
        texts[i] = (rn_str){plain[i], strlen(plain[i])};
}

static bool keep(void *user, size_t index, const float *embedding, size_t dimensions) {
    memcpy((float *)user + index * dimensions, embedding, dimensions * sizeof *embedding);
    return true;
}

static void check_model(const char *name, const char *which, size_t dim) {
    static float is[TEXTS * MOST_DIM], must[TEXTS * MOST_DIM];
    const char *path = test_model_or_skip(name);
    rn_str texts[TEXTS];
    rn_checkpoint *golden = NULL;
    float largest = 0;
    list_texts(texts);
    assert_ok(rn_checkpoint_open("tests/golden/embed_real.safetensors", &golden));
    assert_ok(rn_checkpoint_load(golden, rn_checkpoint_find(golden, which), RN_DTYPE_F32, must,
                                 TEXTS * dim * sizeof *must));
    rn_checkpoint_close(golden);
    assert_ok(rn_embed_texts(path, NULL, texts, TEXTS, keep, is));
    for (size_t i = 0; i < TEXTS * dim; i++)
        largest = fmaxf(largest, fabsf(is[i] - must[i]));
    print_message("%s: off by %.0e at most\n", name, (double)largest);
    assert_true(largest <= 1e-4f);
}

static void minilm_is_transformers(void **state) {
    (void)state;
    check_model("minilm", "minilm", 384);
}

static void mpnet_is_transformers(void **state) {
    (void)state;
    check_model("mpnet", "mpnet", 768);
}

static void nomic_is_transformers(void **state) {
    (void)state;
    check_model("nomic-embed-f16.gguf", "nomic", 768);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(minilm_is_transformers),
        cmocka_unit_test(mpnet_is_transformers),
        cmocka_unit_test(nomic_is_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

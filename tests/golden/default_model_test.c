// default_model_test.c — the model that is part of the library is the one in models/default.
#include "text_run.h"

#include "model/text/default_model.h"

enum { COUNT = 24 };

// A library that was built before its model was trained has none, and says so.
static void require_own_model(void) {
    rn_default_model own;
    if (rn_default_model_get(&own) == RN_OK) return;
    rn_model *model;
    assert_fails(RN_NOT_FOUND, rn_model_open(NULL, NULL, &model));
    skip_because("the library was built without its model");
}

static void it_has_a_tokenizer_and_its_parameters(void **state) {
    (void)state;
    rn_model *own, *folder;
    require_own_model();
    assert_ok(rn_model_open(NULL, NULL, &own));
    assert_ok(rn_model_open("models/default", NULL, &folder));
    const rn_model_info *a = rn_model_get_info(own), *b = rn_model_get_info(folder);
    assert_int_equal(a->parameters, b->parameters);
    assert_int_equal(a->vocab_size, b->vocab_size);
    assert_true(a->parameters >= 1000000 && a->weight_bytes <= 4 << 20);
    const rn_tokenizer_info *words = rn_tokenizer_get_info(rn_model_tokenizer(own));
    const rn_tokenizer_info *same = rn_tokenizer_get_info(rn_model_tokenizer(folder));
    assert_true(words->begin == same->begin && words->end == same->end);
    assert_int_not_equal(words->begin, RN_NO_TOKEN);
    rn_model_close(folder);
    rn_model_close(own);
}

static float *compute(const char *path) {
    int32_t tokens[COUNT];
    text_run *run = text_run_open(path, NULL, &(rn_text_options){.context = 64, .rows = 8});
    float *logits = malloc((size_t)COUNT * run->vocab * sizeof *logits);
    assert_non_null(logits);
    for (int i = 0; i < COUNT; i++)
        tokens[i] = (int32_t)((uint32_t)i * 31 % run->vocab);
    text_run_logits(run, tokens, COUNT, logits);
    text_run_close(run);
    return logits;
}

static void it_gives_the_logits_of_the_folder(void **state) {
    (void)state;
    rn_model *model;
    require_own_model();
    assert_ok(rn_model_open(NULL, NULL, &model));
    size_t vocab = rn_model_get_info(model)->vocab_size;
    rn_model_close(model);
    float *own = compute(NULL), *folder = compute("models/default");
    assert_memory_equal(own, folder, COUNT * vocab * sizeof *own);
    free(own);
    free(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_has_a_tokenizer_and_its_parameters),
        cmocka_unit_test(it_gives_the_logits_of_the_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

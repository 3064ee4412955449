// What Sentence Transformers' folders say of embeddings, and what is refused by name.
#include "support.h"

#include "model/text/pooling.h"

#include <sys/stat.h>

#define MODULE(path, type)                                                                         \
    "{\"path\": \"" path "\", \"type\": \"sentence_transformers.models." type "\"}"
#define FIRST MODULE("", "Transformer")

static void put(const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    if (!text) {
        remove(path);
        return;
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

// NULL: there is no such file.
static rn_status read_folder(const char *modules, const char *pooling, const char *sizes,
                             rn_embedding_info *out) {
    char path[512];
    snprintf(path, sizeof path, "%s/1_Pooling", test_folder());
    mkdir(path, 0755);
    put("modules.json", modules);
    put("1_Pooling/config.json", pooling);
    put("sentence_bert_config.json", sizes);
    *out = (rn_embedding_info){.normalizes = true};
    uint32_t dense = 7;
    rn_status s = rn_pooling_from_folder(test_folder(), out, &dense);
    if (s == RN_OK) assert_int_equal(dense, 0);
    return s;
}

static void a_folder_without_modules_says_nothing(void **state) {
    rn_embedding_info e;
    (void)state;
    assert_ok(read_folder(NULL, NULL, NULL, &e));
    assert_true(e.pooling == RN_POOLING_MODEL && e.normalizes && e.text_tokens == 0);
    assert_ok(read_folder(NULL, NULL, "{\"max_seq_length\": 256}", &e));
    assert_int_equal(e.text_tokens, 256);
}

static void modules_say_pooling_and_norm(void **state) {
    static const struct {
        const char *config;
        rn_pooling pooling;
    } rows[] = {
        {"{\"pooling_mode_mean_tokens\": true, \"pooling_mode_cls_token\": false}",
         RN_POOLING_MEAN},
        {"{\"pooling_mode_cls_token\": true}", RN_POOLING_CLS},
        {"{\"pooling_mode_lasttoken\": true}", RN_POOLING_LAST},
        {"{\"pooling_mode\": \"cls\"}", RN_POOLING_CLS},
    };
    rn_embedding_info e;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_ok(read_folder("[" FIRST ", " MODULE("1_Pooling", "Pooling") "]", rows[i].config,
                              NULL, &e));
        assert_int_equal(e.pooling, rows[i].pooling);
        assert_false(e.normalizes);
    }
    assert_ok(read_folder(
        "[" FIRST ", " MODULE("1_Pooling", "Pooling") ", " MODULE("2_Normalize", "Normalize") "]",
        rows[0].config, NULL, &e));
    assert_true(e.normalizes);
}

static void what_is_not_built_is_named(void **state) {
    static const struct {
        const char *modules, *pooling;
        rn_status status;
        const char *part; // of the message
    } rows[] = {
        {"[" FIRST ", " MODULE("4_Dense", "Dense") "]", NULL, RN_UNSUPPORTED, "Dense"},
        {"[" MODULE("0_Transformer", "Transformer") "]", NULL, RN_UNSUPPORTED, "Transformer"},
        {"[" MODULE("1_Pooling", "Pooling") "]", "{\"pooling_mode_max_tokens\": true}",
         RN_UNSUPPORTED, "pooling"},
        {"[" MODULE("1_Pooling", "Pooling") "]", "{\"pooling_mode\": \"max\"}", RN_UNSUPPORTED,
         "pooling"},
        {"[" MODULE("1_Pooling", "Pooling") "]", "{}", RN_UNSUPPORTED, "pooling"},
        {"[" MODULE("1_Pooling", "Pooling") "]", "[1]", RN_CORRUPT, ""},
        {"[" MODULE("1_Pooling", "Pooling") "]", NULL, RN_NOT_FOUND, ""},
        {"[" MODULE("../x", "Pooling") "]", NULL, RN_CORRUPT, "no folder's name"},
        {"[" MODULE("", "Pooling") "]", NULL, RN_CORRUPT, "no folder's name"},
        {"[{\"type\": \"a.Pooling\"}]", NULL, RN_CORRUPT, "no folder's name"},
        {"[{}]", NULL, RN_CORRUPT, "type"},
        {"7", NULL, RN_CORRUPT, "no list"},
        {"[" FIRST, NULL, RN_CORRUPT, ""},
    };
    rn_embedding_info e;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_fails(rows[i].status, read_folder(rows[i].modules, rows[i].pooling, NULL, &e));
        if (!strstr(rn_last_error()->message, rows[i].part))
            fail_msg("'%s' is not in '%s'", rows[i].part, rn_last_error()->message);
    }
}

#define DENSE(in, out, bias, activation)                                                           \
    "{\"in_features\": " #in ", \"out_features\": " #out ", \"bias\": " #bias                      \
    ", \"activation_function\": \"torch.nn.modules." activation "\"}"

static rn_status read_dense(const char *modules, const char *first, const char *second,
                            uint32_t *out) {
    char path[512];
    rn_embedding_info e = {0};
    for (int i = 2; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%d_Dense", test_folder(), i);
        mkdir(path, 0755);
    }
    put("modules.json", modules);
    put("2_Dense/config.json", first);
    put("3_Dense/config.json", second);
    return rn_pooling_from_folder(test_folder(), &e, out);
}

// EmbeddingGemma's pair of products behind pooling.
static void products_behind_pooling_are_a_pair(void **state) {
    static const char both[] =
        "[" FIRST ", " MODULE("2_Dense", "Dense") ", " MODULE("3_Dense", "Dense") "]";
    static const char good[] = DENSE(8, 32, false, "linear.Identity");
    uint32_t dense = 0;
    (void)state;
    assert_ok(read_dense(both, good, DENSE(32, 8, false, "linear.Identity"), &dense));
    assert_int_equal(dense, 32);
    assert_fails(RN_CORRUPT,
                 read_dense(both, good, DENSE(16, 8, false, "linear.Identity"), &dense));
    assert_fails(RN_UNSUPPORTED,
                 read_dense(both, good, DENSE(32, 8, true, "linear.Identity"), &dense));
    assert_fails(RN_UNSUPPORTED,
                 read_dense(both, good, DENSE(32, 8, false, "activation.Tanh"), &dense));
    assert_fails(RN_UNSUPPORTED,
                 read_dense("[" FIRST ", " MODULE("2_Dense", "Dense") "]", good, good, &dense));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_without_modules_says_nothing),
        cmocka_unit_test(modules_say_pooling_and_norm),
        cmocka_unit_test(what_is_not_built_is_named),
        cmocka_unit_test(products_behind_pooling_are_a_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

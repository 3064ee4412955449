// The other files: tiktoken's lines, vocab.json with merges.txt, GGUF's metadata, and what stands
// beside them.
#include "base/fault.h"
#include "text/gguf_pre.h"
#include "text/scan.h"
#include "tiny_tokenizer.h"

static void write_text(const char *name, const char *text) {
    test_write(test_own_path(name), text, strlen(text));
}

static void expect_open_fails(const char *name, rn_status status, const char *named) {
    rn_tokenizer *tokenizer;
    uint64_t before = tiny_held();
    rn_status s = rn_tokenizer_open(test_own_path(name), &tokenizer);
    if (s != status || !strstr(rn_last_error()->message, named))
        fail_msg("%s: %s: %s", name, rn_status_name(s), s ? rn_last_error()->message : "");
    assert_null(tokenizer);
    assert_int_equal(tiny_held(), before);
}

// ---- tiktoken ---------------------------------------------------------------------------

// a 0, b 1, c 2, ab 3, abc 4, bc 5
#define TIKTOKEN "YQ== 0\nYg== 1\nYw== 2\nYWI= 3\nYWJj 4\nYmM= 5\n"

static void ranks_join_in_their_order(void **state) {
    (void)state;
    rn_tokenizer *tokenizer;
    write_text("tokenizer.model", TIKTOKEN);
    assert_ok(rn_tokenizer_open(test_own_folder, &tokenizer));
    tiny_expect(tokenizer, RN_STR("abc"), 0, (int[]){4, -1});
    tiny_expect(tokenizer, RN_STR("abbc"), 0, (int[]){3, 5, -1});
    tiny_expect(tokenizer, RN_STR("cabca"), 0, (int[]){2, 4, 0, -1});
    rn_tokenizer_close(tokenizer);
}

static void a_configuration_beside_it_adds_tokens(void **state) {
    (void)state;
    rn_tokenizer *tokenizer;
    write_text("tokenizer.model", TIKTOKEN);
    write_text("tokenizer_config.json",
               "{\"added_tokens_decoder\": {\"6\": {\"content\": \"<s>\", \"special\": true}, "
               "\"7\": {\"content\": \"</s>\", \"special\": true}}, \"bos_token\": {\"content\": "
               "\"<s>\"}, \"eos_token\": \"</s>\", \"pad_token\": null, \"add_bos_token\": true, "
               "\"add_eos_token\": true, \"chat_template\": \"{{ x }}\"}");
    assert_ok(rn_tokenizer_open(test_own_folder, &tokenizer));
    const rn_tokenizer_info *info = rn_tokenizer_get_info(tokenizer);
    assert_int_equal(info->begin, 6);
    assert_int_equal(info->end, 7);
    assert_int_equal(info->pad, RN_NO_TOKEN);
    assert_int_equal(info->vocab_size, 8);
    assert_true(rn_tokenizer_is_end(tokenizer, 7));
    tiny_expect(tokenizer, RN_STR("ab</s>"), RN_ENCODE_BEGIN | RN_ENCODE_SPECIAL,
                (int[]){6, 3, 7, 7, -1});
    rn_tokenizer_close(tokenizer);
    write_text("tokenizer_config.json",
               "{\"added_tokens_decoder\": {\"5\": {\"content\": \"x\"}}}");
    expect_open_fails("", RN_CORRUPT, "added token 5");
    assert_non_null(strstr(rn_last_error()->path, "tokenizer_config.json"));
}

static void damaged_ranks_are_refused(void **state) {
    (void)state;
    write_text("a.model", "YQ== 0\nYg==\n");
    expect_open_fails("a.model", RN_CORRUPT, "line 2");
    write_text("b.model", "YQ== 0\nY!== 1\n");
    expect_open_fails("b.model", RN_CORRUPT, "line 2");
    write_text("c.model", "YQ== 0\nYg== 0\n");
    expect_open_fails("c.model", RN_CORRUPT, "twice");
    write_text("d.model", "YQ== 0\nYQ== 1\n");
    expect_open_fails("d.model", RN_CORRUPT, "same text");
    write_text("e.model", "YQ== 0\nYg== 99999999999999999999\n");
    expect_open_fails("e.model", RN_CORRUPT, "line 2");
    write_text("f.tiktoken", TIKTOKEN); // whose expression is it?
    expect_open_fails("f.tiktoken", RN_UNSUPPORTED, "6 ranks");
    expect_open_fails("nothing.model", RN_NOT_FOUND, "");
    expect_open_fails("", RN_NOT_FOUND, "no tokenizer");
}

// ---- vocab.json and merges.txt ----------------------------------------------------------

static void a_vocabulary_with_merges_is_read_as_gpt2(void **state) {
    (void)state;
    rn_tokenizer *tokenizer;
    write_text("vocab.json", "{\"a\": 0, \"b\": 1, \"ab\": 2, \"\\u0120\": 3, \"\\u0120ab\": 4, "
                             "\"<|endoftext|>\": 5}");
    write_text("merges.txt", "#version: 0.2\na b\n\xC4\xA0 ab\n");
    assert_ok(rn_tokenizer_open(test_own_folder, &tokenizer));
    tiny_expect(tokenizer, RN_STR("ab ab<|endoftext|>"), RN_ENCODE_SPECIAL, (int[]){2, 4, 5, -1});
    assert_int_equal(rn_tokenizer_get_info(tokenizer)->end, 5);
    rn_tokenizer_close(tokenizer);
    write_text("merges.txt", "#version: 0.2\na b\nb a\n");
    expect_open_fails("vocab.json", RN_CORRUPT, "merge 1");
    assert_non_null(strstr(rn_last_error()->path, "merges.txt"));
    write_text("vocab.json", "{\"a\": 0, ");
    expect_open_fails("vocab.json", RN_CORRUPT, "JSON");
    assert_non_null(strstr(rn_last_error()->path, "vocab.json"));
}

static void tokens_that_end_words_are_read_as_clip(void **state) {
    (void)state;
    rn_tokenizer *tokenizer;
    write_text("vocab.json", "{\"a\": 0, \"b\": 1, \"a</w>\": 2, \"b</w>\": 3, \"ab</w>\": 4, "
                             "\"<|startoftext|>\": 5, \"<|endoftext|>\": 6}");
    write_text("merges.txt", "a b</w>\n");
    assert_ok(rn_tokenizer_open(test_own_folder, &tokenizer));
    tiny_expect(tokenizer, RN_STR("AB  a\nba"), RN_ENCODE_BEGIN, (int[]){5, 4, 2, 1, 2, 6, -1});
    assert_true(rn_str_equal(rn_tokenizer_bytes(tokenizer, 4, false), RN_STR("ab ")));
    rn_tokenizer_close(tokenizer);
}

// ---- GGUF -------------------------------------------------------------------------------

static void put(rn_buffer *file, const void *data, size_t bytes) {
    assert_ok(rn_buffer_append(file, data, bytes));
}
static void put_u32(rn_buffer *file, uint32_t value) {
    put(file, &value, 4);
}
static void put_u64(rn_buffer *file, uint64_t value) {
    put(file, &value, 8);
}
static void put_text(rn_buffer *file, const char *text) {
    put_u64(file, strlen(text));
    put(file, text, strlen(text));
}
static void put_key(rn_buffer *file, const char *name, uint32_t type) {
    char key[64];
    snprintf(key, sizeof key, "tokenizer.ggml.%s", name);
    put_text(file, key);
    put_u32(file, type);
}
static void put_texts(rn_buffer *file, const char *name, const char *const *texts, size_t count) {
    put_key(file, name, 9);
    put_u32(file, 8);
    put_u64(file, count);
    for (size_t i = 0; i < count; i++)
        put_text(file, texts[i]);
}

typedef struct gguf_case {
    const char *model, *pre;
    const char *const *merges; // (merge_count)
    size_t merge_count;
    uint32_t end;
    uint32_t type_count;
} gguf_case;

static const char *const good_merges[] = {"a b", "\xC4\xA0 ab"};

static void write_gguf(const gguf_case *c) {
    static const char *const tokens[] = {"a",
                                         "b",
                                         "ab",
                                         "\xC4\xA0",
                                         "\xC4\xA0"
                                         "ab",
                                         "<end>",
                                         "[u]"};
    static const int32_t types[] = {1, 1, 1, 1, 1, 3, 4};
    rn_buffer file;
    rn_buffer_init(&file, &rn_system_allocator, 1 << 16);
    put(&file, "GGUF", 4);
    put_u32(&file, 3);
    put_u64(&file, 0); // tensors
    put_u64(&file, 7); // entries
    put_key(&file, "model", 8);
    put_text(&file, c->model);
    put_key(&file, "pre", 8);
    put_text(&file, c->pre);
    put_texts(&file, "tokens", tokens, 7);
    put_key(&file, "token_type", 9);
    put_u32(&file, 5);
    put_u64(&file, c->type_count);
    put(&file, types, c->type_count * 4);
    put_texts(&file, "merges", c->merges, c->merge_count);
    put_key(&file, "eos_token_id", 4);
    put_u32(&file, c->end);
    put_key(&file, "add_eos_token", 7);
    put(&file, (char[]){1}, 1);
    test_write(test_own_path("v.gguf"), file.data, file.bytes);
    rn_buffer_free(&file);
}

static void a_vocabulary_in_gguf_is_read(void **state) {
    (void)state;
    rn_tokenizer *tokenizer;
    write_gguf(&(gguf_case){"gpt2", "gpt-2", good_merges, 2, 5, 7});
    assert_ok(rn_tokenizer_open(test_own_path("v.gguf"), &tokenizer));
    tiny_expect(tokenizer, RN_STR("ab ab[u]<end>"), RN_ENCODE_SPECIAL | RN_ENCODE_BEGIN,
                (int[]){2, 4, 6, 5, 5, -1});
    tiny_expect(tokenizer, RN_STR("[u]b"), 0, (int[]){6, 1, -1});
    assert_true(rn_tokenizer_is_end(tokenizer, 5));
    rn_tokenizer_close(tokenizer);
    write_gguf(&(gguf_case){"gpt2", "gpt-2", good_merges, 2, 500, 7}); // an end that is no token
    assert_ok(rn_tokenizer_open(test_own_path("v.gguf"), &tokenizer));
    assert_int_equal(rn_tokenizer_get_info(tokenizer)->end, RN_NO_TOKEN);
    assert_false(rn_tokenizer_get_info(tokenizer)->adds_end);
    rn_tokenizer_close(tokenizer);
}

static void what_gguf_names_and_is_not_known_is_refused(void **state) {
    (void)state;
    write_gguf(&(gguf_case){"gpt2", "brand-new", good_merges, 2, 5, 7});
    expect_open_fails("v.gguf", RN_UNSUPPORTED, "brand-new");
    write_gguf(&(gguf_case){"rwkv", "gpt-2", good_merges, 2, 5, 7});
    expect_open_fails("v.gguf", RN_UNSUPPORTED, "rwkv");
    write_gguf(&(gguf_case){"gpt2", "gpt-2", (const char *const[]){"a c"}, 1, 5, 7});
    expect_open_fails("v.gguf", RN_CORRUPT, "merge 0");
    write_gguf(&(gguf_case){"gpt2", "gpt-2", good_merges, 2, 5, 3});
    expect_open_fails("v.gguf", RN_CORRUPT, "types");
}

static void every_known_pre_tokenizer_compiles(void **state) {
    (void)state;
    static const char *const names[] = {"default",
                                        "llama-bpe",
                                        "dbrx",
                                        "gpt-2",
                                        "qwen2",
                                        "starcoder",
                                        "smollm",
                                        "falcon",
                                        "tekken",
                                        "gpt-4o",
                                        "deepseek-llm",
                                        "deepseek-coder",
                                        "deepseek-v3",
                                        "youtu",
                                        "jais-2",
                                        "qwen35",
                                        "minicpm5",
                                        "seed-coder",
                                        "bailingmoe",
                                        "exaone-moe",
                                        "laguna",
                                        "bloom",
                                        "viking",
                                        "superbpe",
                                        "tiny_aya",
                                        "olmo",
                                        "command-r",
                                        "chatglm-bpe",
                                        "granite-embed-multi-97m"};
    rn_tokenizer *tokenizer;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        rn_tokens tokens = {0};
        write_gguf(&(gguf_case){"gpt2", names[i], good_merges, 2, 5, 7});
        assert_ok(rn_tokenizer_open(test_own_path("v.gguf"), &tokenizer));
        assert_ok(
            rn_tokenizer_encode(tokenizer, RN_STR("ab ab  a\nb \xC3\xA9 12345 's"), 0, &tokens));
        assert_true(tokens.count >= 4);
        rn_tokens_free(&tokens);
        rn_tokenizer_close(tokenizer);
    }
    assert_null(rn_gguf_pre_find(RN_STR("")));
    assert_null(rn_gguf_pre_find(RN_STR("gpt-2 phi-2")));
    assert_null(rn_gguf_pre_find(RN_STR("gpt")));
}

// ---- memory -----------------------------------------------------------------------------

static void check_torture(const char *name) {
    uint64_t before = tiny_held(), nth = 1;
    for (;; nth++) {
        rn_tokenizer *tokenizer = NULL;
        rn_fault_arm(RN_FAULT_ALLOC, nth);
        rn_status s = rn_tokenizer_open(test_own_path(name), &tokenizer);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        rn_tokenizer_close(tokenizer);
        assert_int_equal(tiny_held(), before);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        if (!fired) break;
    }
    assert_true(nth > 8);
}

static void a_refused_allocation_leaks_nothing_in_any_loader(void **state) {
    (void)state;
    write_gguf(&(gguf_case){"gpt2", "starcoder", good_merges, 2, 5, 7});
    check_torture("v.gguf");
    write_text("vocab.json", "{\"a\": 0, \"b\": 1, \"a</w>\": 2, \"b</w>\": 3, \"ab</w>\": 4}");
    write_text("merges.txt", "a b</w>\n");
    check_torture("vocab.json");
    write_text(
        "tokenizer_config.json",
        "{\"added_tokens_decoder\": {\"6\": {\"content\": \"<s>\"}}, \"eos_token\": \"<s>\"}");
    write_text("t.model", TIKTOKEN);
    check_torture("t.model");
}

static void a_failing_read_is_told(void **state) {
    (void)state;
    rn_tokenizer *tokenizer;
    write_text("t.model", TIKTOKEN);
    rn_fault_arm(RN_FAULT_READ, 1);
    rn_status s = rn_tokenizer_open(test_own_path("t.model"), &tokenizer);
    rn_fault_arm(RN_FAULT_READ, 0);
    assert_int_equal(s, RN_IO);
    assert_null(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(ranks_join_in_their_order, test_make_folder),
        cmocka_unit_test_setup(a_configuration_beside_it_adds_tokens, test_make_folder),
        cmocka_unit_test_setup(damaged_ranks_are_refused, test_make_folder),
        cmocka_unit_test_setup(a_vocabulary_with_merges_is_read_as_gpt2, test_make_folder),
        cmocka_unit_test_setup(tokens_that_end_words_are_read_as_clip, test_make_folder),
        cmocka_unit_test_setup(a_vocabulary_in_gguf_is_read, test_make_folder),
        cmocka_unit_test_setup(what_gguf_names_and_is_not_known_is_refused, test_make_folder),
        cmocka_unit_test_setup(every_known_pre_tokenizer_compiles, test_make_folder),
        cmocka_unit_test_setup(a_refused_allocation_leaks_nothing_in_any_loader, test_make_folder),
        cmocka_unit_test_setup(a_failing_read_is_told, test_make_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// wordpiece_test.c — WordPiece against Hugging Face's tokenizers on awkward texts: accents,
// Chinese, emoji, controls, words that are too long. The files are made by
// scripts/reference/wordpiece_vectors.py.
#include <ration/tokenizer.h>

#include "io/json_read.h"
#include "support.h"

#define FILES "tests/golden/wordpiece/"

static rn_tokenizer *open_file(const char *path) {
    rn_tokenizer *tokenizer = NULL;
    assert_ok(rn_tokenizer_open(path, &tokenizer));
    assert_string_equal(rn_tokenizer_get_info(tokenizer)->kind, "WordPiece");
    return tokenizer;
}

static void read_ids(rn_json_reader *reader, rn_tokens *out) {
    rn_json_item item;
    out->count = 0;
    assert_ok(rn_json_expect(reader, RN_JSON_ARRAY, NULL));
    for (uint64_t id;;) {
        assert_ok(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_ARRAY_END) return;
        assert_ok(rn_json_u64_of(&item, &id));
        assert_ok(rn_tokens_push(out, (uint32_t)id));
    }
}

static void check_text(const rn_tokenizer *tokenizer, rn_str text, const rn_tokens *want) {
    rn_tokens got = {0};
    assert_ok(rn_tokenizer_encode(tokenizer, text, RN_ENCODE_BEGIN | RN_ENCODE_SPECIAL, &got));
    for (size_t i = 0; i < got.count || i < want->count; i++)
        if (i >= got.count || i >= want->count || got.ids[i] != want->ids[i])
            fail_msg("\"%.*s\": token %zu is %ld of %zu, not %ld of %zu", RN_STR_ARG(text), i,
                     i < got.count ? (long)got.ids[i] : -1, got.count,
                     i < want->count ? (long)want->ids[i] : -1, want->count);
    rn_tokens_free(&got);
}

// All texts with the ids of column `cased`.
static void check_all(const char *path, bool cased) {
    rn_tokenizer *tokenizer = open_file(path);
    size_t bytes, count = 0;
    char *json = test_read(FILES "vectors.json", &bytes), text[1024];
    rn_json_reader reader;
    rn_json_item item;
    rn_tokens uncased_ids = {0}, cased_ids = {0};
    rn_json_reader_init(&reader, (rn_str){json, bytes}, &rn_system_allocator);
    assert_ok(rn_json_expect(&reader, RN_JSON_ARRAY, NULL));
    for (;; count++) {
        assert_ok(rn_json_next(&reader, &item));
        if (item.kind == RN_JSON_ARRAY_END) break;
        size_t length = item.text.bytes;
        assert_true(item.kind == RN_JSON_STRING && length <= sizeof text);
        memcpy(text, item.text.data, length);
        read_ids(&reader, &uncased_ids);
        read_ids(&reader, &cased_ids);
        check_text(tokenizer, (rn_str){text, length}, cased ? &cased_ids : &uncased_ids);
    }
    assert_true(count > 40);
    rn_json_reader_free(&reader);
    rn_tokens_free(&uncased_ids);
    rn_tokens_free(&cased_ids);
    free(json);
    rn_tokenizer_close(tokenizer);
}

static void tokenizer_json_equals_tokenizers(void **state) {
    (void)state;
    check_all(FILES "tokenizer.json", false);
    check_all(FILES "cased.json", true);
}

static void vocab_txt_and_gguf_give_the_same(void **state) {
    (void)state;
    check_all(FILES "vocab.txt", false);
    check_all(FILES "model.gguf", false);
}

// Text stays text: without RN_ENCODE_SPECIAL "[SEP]" is spelled out.
static void special_tokens_of_a_text_are_spelled_out(void **state) {
    (void)state;
    rn_tokenizer *tokenizer = open_file(FILES "tokenizer.json");
    uint32_t end = rn_tokenizer_get_info(tokenizer)->end;
    rn_tokens ids = {0};
    assert_ok(rn_tokenizer_encode(tokenizer, RN_STR("hello[SEP]world"), RN_ENCODE_BEGIN, &ids));
    for (size_t i = 0; i + 1 < ids.count; i++)
        assert_int_not_equal(ids.ids[i], end);
    assert_int_equal(ids.ids[ids.count - 1], end);
    rn_tokens_free(&ids);
    rn_tokenizer_close(tokenizer);
}

static void bytes_that_are_no_utf8_are_unknown(void **state) {
    (void)state;
    rn_tokenizer *tokenizer = open_file(FILES "tokenizer.json");
    rn_tokens ids = {0};
    assert_ok(rn_tokenizer_encode(tokenizer, RN_STR("fox \xff"), RN_ENCODE_PLAIN, &ids));
    assert_int_equal(ids.count, 2);
    assert_int_equal(ids.ids[1], rn_tokenizer_get_info(tokenizer)->unknown);
    rn_tokens_free(&ids);
    rn_tokenizer_close(tokenizer);
}

static void tokens_show_their_words(void **state) {
    static const char *const files[] = {FILES "tokenizer.json", FILES "model.gguf"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        rn_tokenizer *tokenizer = open_file(files[i]);
        rn_tokens ids = {0};
        char text[64] = "";
        assert_ok(rn_tokenizer_encode(tokenizer, RN_STR("Embedding fox"), RN_ENCODE_PLAIN, &ids));
        for (size_t at = 0; at < ids.count; at++) {
            rn_str bytes = rn_tokenizer_bytes(tokenizer, ids.ids[at], false);
            strncat(text, bytes.data, bytes.bytes);
        }
        assert_string_equal(text, " embedding fox");
        rn_tokens_free(&ids);
        rn_tokenizer_close(tokenizer);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokenizer_json_equals_tokenizers),
        cmocka_unit_test(vocab_txt_and_gguf_give_the_same),
        cmocka_unit_test(special_tokens_of_a_text_are_spelled_out),
        cmocka_unit_test(bytes_that_are_no_utf8_are_unknown),
        cmocka_unit_test(tokens_show_their_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

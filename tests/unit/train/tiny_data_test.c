// The stories and the tokenizer of examples/train_tiny: what the default model is made of.
#include "support.h"

#include "../../../examples/train_tiny_bpe.h"
#include "../../../examples/train_tiny_stories.h"

enum { STORIES = 1500, CONTEXT = 288, VOCAB = 1536 };

static story one;
static bpe tokens;

static int learn(void **state) {
    (void)state;
    bpe_begin(&tokens);
    for (uint64_t i = 0; i < STORIES; i++) {
        story_make(&one, 0, i);
        bpe_count(&tokens, one.text);
    }
    bpe_learn(&tokens, VOCAB);
    return 0;
}

// ---- stories ------------------------------------------------------------------------------------

static void a_story_is_a_function_of_its_number(void **state) {
    (void)state;
    static story again, next, other;
    story_make(&one, 4, 17);
    story_make(&again, 4, 17);
    story_make(&next, 4, 18);
    story_make(&other, 5, 17);
    assert_string_equal(one.text, again.text);
    assert_string_not_equal(one.text, next.text);
    assert_string_not_equal(one.text, other.text);
}

static bool has_wrong_article(const char *text) {
    for (const char *at = text; (at = strpbrk(at, "aA")); at++) {
        bool begins = at == text || !isalpha((unsigned char)at[-1]);
        if (begins && at[1] == ' ' && strchr("aeiou", at[2])) return true;
        if (begins && strncmp(at + 1, "n ", 2) == 0 && !strchr("aeiou", at[3])) return true;
    }
    return false;
}

static void stories_are_plain_text_with_the_right_articles(void **state) {
    (void)state;
    for (uint64_t i = 0; i < STORIES; i++) {
        story_make(&one, 2, i);
        assert_null(strpbrk(one.text, "[]{}|<>#^"));
        assert_null(strstr(one.text, "  "));
        assert_false(has_wrong_article(one.text));
        assert_true(isupper((unsigned char)one.text[0]) &&
                    ispunct((unsigned char)one.text[one.bytes - 1]));
    }
}

static void a_story_fits_the_context(void **state) {
    (void)state;
    int32_t ids[2 * CONTEXT];
    for (uint64_t i = 0; i < STORIES; i++) {
        story_make(&one, 2, i);
        assert_in_range(bpe_encode(&tokens, one.text, ids, 2 * CONTEXT), 100, CONTEXT - 2);
    }
}

// ---- the tokenizer ------------------------------------------------------------------------------

typedef struct text {
    char data[1 << 17];
    size_t bytes;
} text;

static rn_status append(void *self, const char *data, size_t bytes) {
    text *t = self;
    assert_true(t->bytes + bytes <= sizeof t->data);
    memcpy(t->data + t->bytes, data, bytes);
    t->bytes += bytes;
    return RN_OK;
}

static void assert_encodes_alike(const rn_tokenizer *tokenizer, const char *what) {
    static int32_t own[4096];
    rn_tokens theirs = {0};
    size_t count = bpe_encode(&tokens, what, own, 4096);
    assert_ok(
        rn_tokenizer_encode(tokenizer, (rn_str){what, strlen(what)}, RN_ENCODE_BEGIN, &theirs));
    assert_int_equal(theirs.count, count + 1);
    assert_int_equal(theirs.ids[0], BPE_END); // a text begins with <|endoftext|>
    assert_memory_equal(theirs.ids + 1, own, count * sizeof *own);
    rn_tokens_free(&theirs);
}

static void the_library_reads_the_tokenizer_and_encodes_as_it_was_trained(void **state) {
    (void)state;
    static text json;
    rn_tokenizer *tokenizer = NULL;
    json.bytes = 0;
    assert_ok(bpe_write(&tokens, (rn_sink){.self = &json, .write = append}));
    assert_ok(
        rn_tokenizer_from_json("tokenizer.json", (rn_str){json.data, json.bytes}, &tokenizer));
    const rn_tokenizer_info *info = rn_tokenizer_get_info(tokenizer);
    assert_int_equal(info->vocab_size, VOCAB);
    assert_true(rn_tokenizer_is_end(tokenizer, BPE_END));
    for (uint64_t i = 0; i < STORIES; i += 5) {
        story_make(&one, 3, i);
        assert_encodes_alike(tokenizer, one.text);
    }
    assert_encodes_alike(tokenizer, "It's 12 o'clock,  don't\n\n\nyou   know?  ");
    rn_tokenizer_close(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_story_is_a_function_of_its_number),
        cmocka_unit_test(stories_are_plain_text_with_the_right_articles),
        cmocka_unit_test(a_story_fits_the_context),
        cmocka_unit_test(the_library_reads_the_tokenizer_and_encodes_as_it_was_trained),
    };
    return cmocka_run_group_tests(tests, learn, NULL);
}

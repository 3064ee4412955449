// vocab_convert_test.c — a tokenizer as GGUF's metadata, and that as a tokenizer.json again, give
// the same tokens.
#include "support.h"

#include <ration/writer.h>

#include "base/json.h"
#include "memory/account.h"
#include "text/tokenizer_parts.h"
#include "text/vocab_to_gguf.h"
#include "text/vocab_to_json.h"

static const char *const words[] = {"t", "h", "e", "▁", "th", "he", "the", "▁the", "▁t", "▁th"};
// "th" before "he": the order decides what becomes of "the".
static const char *const merges[][2] = {{"t", "h"},   {"h", "e"}, {"th", "e"},
                                        {"▁", "the"}, {"▁", "t"}, {"▁t", "h"}};

// BPE with byte fallback, as a SentencePiece model's tokenizer.json is.
static void write_tokenizer(rn_buffer *out) {
    rn_json json;
    uint64_t id = 0;
    rn_json_begin(&json, rn_buffer_sink(out), false);
    rn_json_object(&json, NULL);
    rn_json_array(&json, "added_tokens");
    for (int i = 0; i < 3; i++) {
        rn_json_object(&json, NULL);
        rn_json_u64(&json, "id", (uint64_t)i);
        rn_json_string(&json, "content", i == 0 ? "<unk>" : i == 1 ? "<s>" : "</s>");
        rn_json_bool(&json, "special", true);
        rn_json_bool(&json, "normalized", false);
        rn_json_end(&json);
    }
    rn_json_end(&json);
    rn_json_object(&json, "normalizer");
    rn_json_string(&json, "type", "Replace");
    rn_json_object(&json, "pattern");
    rn_json_string(&json, "String", " ");
    rn_json_end(&json);
    rn_json_string(&json, "content", "▁");
    rn_json_end(&json);
    rn_json_object(&json, "model");
    rn_json_string(&json, "type", "BPE");
    rn_json_string(&json, "unk_token", "<unk>");
    rn_json_bool(&json, "fuse_unk", true);
    rn_json_bool(&json, "byte_fallback", true);
    rn_json_object(&json, "vocab");
    rn_json_u64(&json, "<unk>", id++);
    rn_json_u64(&json, "<s>", id++);
    rn_json_u64(&json, "</s>", id++);
    for (int i = 0; i < 256; i++) {
        char byte[8];
        snprintf(byte, sizeof byte, "<0x%02X>", (unsigned)i);
        rn_json_u64(&json, byte, id++);
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        rn_json_u64(&json, words[i], id++);
    rn_json_end(&json);
    rn_json_array(&json, "merges");
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        rn_json_array(&json, NULL);
        rn_json_string(&json, NULL, merges[i][0]);
        rn_json_string(&json, NULL, merges[i][1]);
        rn_json_end(&json);
    }
    rn_json_end(&json);
    rn_json_end(&json);
    rn_json_end(&json);
    assert_ok(rn_json_finish(&json));
}

static void assert_same_tokens(const rn_tokenizer *a, const rn_tokenizer *b) {
    static const char *const texts[] = {
        "the",        " the the", "thé het",    "",         "é  t",
        "<s>the</s>", "[MASK]",   "The 日 cat", "a  b  c ", "unaffable Ünïcode, words!"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        rn_tokens one = {0}, other = {0};
        assert_ok(rn_tokenizer_encode(a, rn_str_from(texts[i]), 3, &one));
        assert_ok(rn_tokenizer_encode(b, rn_str_from(texts[i]), 3, &other));
        assert_int_equal(one.count, other.count);
        if (one.count) assert_memory_equal(one.ids, other.ids, one.count * sizeof *one.ids);
        rn_tokens_free(&one);
        rn_tokens_free(&other);
    }
}

// Closes it.
static void check_both_ways(rn_tokenizer *first) {
    rn_tokenizer *second, *third;
    rn_buffer text, config;
    rn_pairs pairs;
    rn_writer *writer;
    rn_checkpoint *gguf;
    rn_buffer_init(&text, RN_HOST_OTHER, 1 << 20);
    rn_buffer_init(&config, RN_HOST_OTHER, 1 << 20);
    rn_pairs_init(&pairs, RN_HOST_OTHER);
    uint32_t size = rn_tokenizer_get_info(first)->vocab_size + 5; // the embedding has more rows
    assert_ok(rn_vocab_to_gguf(first, size, &pairs));
    rn_writer_options options = {.metadata = pairs.items, .metadata_count = pairs.count};
    assert_ok(rn_writer_create(test_path("vocab.gguf"), NULL, 0, &options, &writer));
    assert_ok(rn_writer_commit(writer));
    rn_writer_destroy(writer);
    rn_pairs_free(&pairs);
    assert_ok(rn_checkpoint_open(test_path("vocab.gguf"), &gguf));
    assert_ok(rn_tokenizer_from_gguf(gguf, &second));
    assert_same_tokens(first, second);
    assert_ok(rn_vocab_to_json(gguf, &text, &config));
    assert_ok(rn_tokenizer_from_json("back", (rn_str){text.data, text.bytes}, &third));
    assert_same_tokens(first, third);
    rn_checkpoint_close(gguf);
    rn_tokenizer_close(first);
    rn_tokenizer_close(second);
    rn_tokenizer_close(third);
    rn_buffer_free(&text);
    rn_buffer_free(&config);
}

static void merges_and_scores_lead_to_the_same_tokens(void **unused) {
    (void)unused;
    rn_tokenizer *tokenizer;
    rn_buffer text;
    rn_buffer_init(&text, RN_HOST_OTHER, 1 << 20);
    write_tokenizer(&text);
    assert_ok(rn_tokenizer_from_json("made up", (rn_str){text.data, text.bytes}, &tokenizer));
    rn_buffer_free(&text);
    check_both_ways(tokenizer);
}

// Puts a list of texts into the metadata.
static void put_texts(rn_pairs *pairs, const char *key, const char *const *texts, size_t count) {
    rn_buffer raw;
    rn_buffer_init(&raw, RN_HOST_OTHER, 1 << 20);
    for (size_t i = 0; i < count; i++)
        assert_ok(rn_pairs_put_text(&raw, rn_str_from(texts[i])));
    assert_ok(rn_pairs_array(pairs, key, RN_GGUF_STRING, count, &raw));
}

// Gemma 4's GGUF files: merges over characters.
static void merges_over_characters_lead_to_the_same_tokens(void **unused) {
    (void)unused;
    enum { COUNT = 3 + 256 + sizeof words / sizeof *words };
    static char bytes[256][8];
    const char *tokens[COUNT] = {"<unk>", "<s>", "</s>"}, *lines[8];
    char spelled[8][32];
    int32_t kinds[COUNT] = {3, 3, 3};
    rn_tokenizer *first, *second, *third;
    rn_buffer text, back, config, raw;
    rn_pairs pairs;
    rn_writer *writer;
    rn_checkpoint *gguf;
    size_t merge_count = sizeof merges / sizeof *merges;
    for (int i = 0; i < 256; i++) {
        snprintf(bytes[i], sizeof bytes[i], "<0x%02X>", (unsigned)i);
        tokens[3 + i] = bytes[i];
        kinds[3 + i] = 6;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        tokens[259 + i] = words[i];
        kinds[259 + i] = 1;
    }
    for (size_t i = 0; i < merge_count; i++) {
        snprintf(spelled[i], sizeof spelled[i], "%s %s", merges[i][0], merges[i][1]);
        lines[i] = spelled[i];
    }
    rn_buffer_init(&text, RN_HOST_OTHER, 1 << 20);
    rn_buffer_init(&back, RN_HOST_OTHER, 1 << 20);
    rn_buffer_init(&config, RN_HOST_OTHER, 1 << 20);
    rn_buffer_init(&raw, RN_HOST_OTHER, 1 << 20);
    write_tokenizer(&text);
    assert_ok(rn_tokenizer_from_json("made up", (rn_str){text.data, text.bytes}, &first));
    rn_pairs_init(&pairs, RN_HOST_OTHER);
    assert_ok(rn_pairs_text(&pairs, "tokenizer.ggml.model", RN_STR("gemma4")));
    put_texts(&pairs, "tokenizer.ggml.tokens", tokens, COUNT);
    put_texts(&pairs, "tokenizer.ggml.merges", lines, merge_count);
    assert_ok(rn_buffer_append(&raw, kinds, sizeof kinds));
    assert_ok(rn_pairs_array(&pairs, "tokenizer.ggml.token_type", RN_GGUF_I32, COUNT, &raw));
    assert_ok(rn_pairs_u32(&pairs, "tokenizer.ggml.unknown_token_id", 0));
    assert_ok(rn_pairs_bool(&pairs, "tokenizer.ggml.add_bos_token", false));
    rn_writer_options options = {.metadata = pairs.items, .metadata_count = pairs.count};
    assert_ok(rn_writer_create(test_path("characters.gguf"), NULL, 0, &options, &writer));
    assert_ok(rn_writer_commit(writer));
    rn_writer_destroy(writer);
    rn_pairs_free(&pairs);
    assert_ok(rn_checkpoint_open(test_path("characters.gguf"), &gguf));
    assert_ok(rn_tokenizer_from_gguf(gguf, &second));
    assert_same_tokens(first, second);
    assert_ok(rn_vocab_to_json(gguf, &back, &config));
    assert_ok(rn_tokenizer_from_json("back", (rn_str){back.data, back.bytes}, &third));
    assert_same_tokens(first, third);
    rn_checkpoint_close(gguf);
    rn_tokenizer_close(first);
    rn_tokenizer_close(second);
    rn_tokenizer_close(third);
    rn_buffer_free(&text);
    rn_buffer_free(&back);
    rn_buffer_free(&config);
}

static void words_and_their_ends_lead_to_the_same_tokens(void **unused) {
    (void)unused;
    static const char *const files[] = {"tests/golden/wordpiece/tokenizer.json",
                                        "tests/golden/wordpiece/cased.json",
                                        "tests/golden/wordpiece/vocab.txt"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        rn_tokenizer *tokenizer;
        assert_ok(rn_tokenizer_open(files[i], &tokenizer));
        check_both_ways(tokenizer);
    }
}

// XLM-RoBERTa's form: what is around a text, and blanks that are squeezed.
static void unigrams_lead_to_the_same_tokens(void **unused) {
    (void)unused;
    static const char json[] =
        "{\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true},"
        "{\"id\":1,\"content\":\"</s>\",\"special\":true},"
        "{\"id\":2,\"content\":\"<unk>\",\"special\":true}],"
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Precompiled\","
        "\"precompiled_charsmap\":\"\"}]},"
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
        "\"WhitespaceSplit\"},{\"type\":\"Metaspace\",\"replacement\":\"▁\","
        "\"prepend_scheme\":\"always\"}]},"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
        "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\","
        "\"type_id\":0}},{\"SpecialToken\":{\"id\":\"</s>\",\"type_id\":0}}],\"special_tokens\":{"
        "\"<s>\":{\"id\":\"<s>\",\"ids\":[0],\"tokens\":[\"<s>\"]},"
        "\"</s>\":{\"id\":\"</s>\",\"ids\":[1],\"tokens\":[\"</s>\"]}}},"
        "\"model\":{\"type\":\"Unigram\",\"unk_id\":2,\"vocab\":[[\"<s>\",0],[\"</s>\",0],"
        "[\"<unk>\",0],[\"▁\",-3.5],[\"▁the\",-2.25],[\"t\",-4],[\"h\",-4.5],[\"e\",-4.125],"
        "[\"he\",-5],[\"é\",-6]]}}";
    rn_tokenizer *tokenizer;
    assert_ok(rn_tokenizer_from_json("made up", RN_STR(json), &tokenizer));
    check_both_ways(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_and_scores_lead_to_the_same_tokens),
        cmocka_unit_test(merges_over_characters_lead_to_the_same_tokens),
        cmocka_unit_test(words_and_their_ends_lead_to_the_same_tokens),
        cmocka_unit_test(unigrams_lead_to_the_same_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

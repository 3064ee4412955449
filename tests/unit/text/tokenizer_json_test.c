// A tokenizer.json from end to end: encoding, decoding, round trips of any bytes, files that are
// damaged on purpose, refusals that name what is not known, memory.
#include "base/fault.h"
#include "tiny_tokenizer.h"

// ---- encoding ---------------------------------------------------------------------------

static rn_tokenizer *open_tiny(void) {
    rn_tokenizer *tokenizer;
    assert_ok(tiny_open(TINY_STEPS, "", &tokenizer));
    return tokenizer;
}

static void words_become_tokens(void **state) {
    (void)state;
    rn_tokenizer *tokenizer = open_tiny();
    tiny_expect(tokenizer, RN_STR("hello"), 0, (int[]){TINY_HELLO, -1});
    tiny_expect(tokenizer, RN_STR("hell he"), 0, (int[]){TINY_HELL, ' ', TINY_HE, -1});
    tiny_expect(tokenizer, RN_STR(""), RN_ENCODE_BEGIN, (int[]){-1});
    assert_string_equal(rn_tokenizer_get_info(tokenizer)->kind, "byte-level BPE");
    assert_int_equal(rn_tokenizer_get_info(tokenizer)->vocab_size, TINY_COUNT);
    rn_tokenizer_close(tokenizer);
}

static void special_tokens_are_spelled_out_unless_they_are_allowed(void **state) {
    (void)state;
    rn_tokenizer *tokenizer = open_tiny();
    tiny_expect(tokenizer, RN_STR("<|end|>he"), RN_ENCODE_SPECIAL, (int[]){TINY_END, TINY_HE, -1});
    tiny_expect(tokenizer, RN_STR("<|end|>"), 0, (int[]){'<', '|', 'e', 'n', 'd', '|', '>', -1});
    // One that is added but not special is always itself.
    tiny_expect(tokenizer, RN_STR("<tool>"), 0, (int[]){TINY_TOOL, -1});
    assert_true(rn_tokenizer_is_special(tokenizer, TINY_END));
    assert_false(rn_tokenizer_is_special(tokenizer, TINY_TOOL));
    assert_true(rn_tokenizer_is_end(tokenizer, TINY_END));
    assert_false(rn_tokenizer_is_end(tokenizer, TINY_TOOL));
    assert_false(rn_tokenizer_is_end(tokenizer, 100000));
    rn_tokenizer_close(tokenizer);
}

static void tokens_are_found_as_the_vocabulary_spells_them(void **state) {
    (void)state;
    rn_tokenizer *tokenizer = open_tiny();
    assert_int_equal(rn_tokenizer_find(tokenizer, RN_STR("hello")), TINY_HELLO);
    assert_int_equal(rn_tokenizer_find(tokenizer, RN_STR("\xC4\xA0")), ' ');
    assert_int_equal(rn_tokenizer_find(tokenizer, RN_STR("<|end|>")), TINY_END);
    assert_int_equal(rn_tokenizer_find(tokenizer, RN_STR(" ")), RN_NO_TOKEN);
    assert_int_equal(rn_tokenizer_find(tokenizer, RN_STR("nothing")), RN_NO_TOKEN);
    assert_int_equal(rn_tokenizer_bytes(tokenizer, TINY_HELL, false).bytes, 4);
    assert_int_equal(rn_tokenizer_bytes(tokenizer, TINY_END, false).bytes, 0);
    assert_int_equal(rn_tokenizer_bytes(tokenizer, TINY_END, true).bytes, 7);
    assert_int_equal(rn_tokenizer_bytes(tokenizer, 1u << 30, true).bytes, 0);
    rn_tokenizer_close(tokenizer);
}

static void a_template_puts_tokens_around(void **state) {
    (void)state;
    rn_tokenizer *tokenizer;
    assert_ok(tiny_open(TINY_STEPS "\"post_processor\": {\"single\": [{\"SpecialToken\": {\"id\": "
                                   "\"<tool>\"}}, {\"Sequence\": {\"id\": \"A\"}}, "
                                   "{\"SpecialToken\": {\"id\": \"<|end|>\"}}], \"type\": "
                                   "\"TemplateProcessing\"}, ",
                        "", &tokenizer));
    tiny_expect(tokenizer, RN_STR("he"), RN_ENCODE_BEGIN,
                (int[]){TINY_TOOL, TINY_HE, TINY_END, -1});
    tiny_expect(tokenizer, RN_STR("he"), RN_ENCODE_PLAIN, (int[]){TINY_HE, -1});
    assert_true(rn_tokenizer_get_info(tokenizer)->adds_begin);
    assert_int_equal(rn_tokenizer_get_info(tokenizer)->end, TINY_END);
    rn_tokenizer_close(tokenizer);
}

static void a_template_says_what_stands_between_two_texts(void **state) {
    (void)state;
    rn_tokenizer *tokenizer;
#define TOOL "{\"SpecialToken\": {\"id\": \"<tool>\", \"type_id\": 0}}"
#define END  "{\"SpecialToken\": {\"id\": \"<|end|>\", \"type_id\": 1}}"
#define PAIR(first, second)                                                                        \
    TINY_STEPS                                                                                     \
    "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [" TOOL                    \
    ", {\"Sequence\": {\"id\": \"A\"}}, " END "], \"pair\": [" TOOL                                \
    ", {\"Sequence\": {\"id\": \"" first "\"}}, " END ", " END                                     \
    ", {\"Sequence\": {\"id\": \"" second "\"}}, " END "]}, "
    assert_ok(tiny_open(PAIR("A", "B"), "", &tokenizer));
    assert_true(rn_tokenizer_get_info(tokenizer)->joins_pairs);
    tiny_expect(tokenizer, RN_STR("he"), RN_ENCODE_FIRST,
                (int[]){TINY_TOOL, TINY_HE, TINY_END, TINY_END, -1});
    tiny_expect(tokenizer, RN_STR("he"), RN_ENCODE_SECOND, (int[]){TINY_HE, TINY_END, -1});
    tiny_expect(tokenizer, RN_STR("he"), RN_ENCODE_BEGIN,
                (int[]){TINY_TOOL, TINY_HE, TINY_END, -1});
    rn_tokenizer_close(tokenizer);
    assert_int_equal(tiny_open(PAIR("B", "A"), "", &tokenizer), RN_UNSUPPORTED);
    assert_int_equal(tiny_open(PAIR("A", "A"), "", &tokenizer), RN_UNSUPPORTED);
}

// ---- decoding ---------------------------------------------------------------------------

typedef struct pieces {
    char text[4096];
    size_t bytes;
} pieces;

// Whatever goes out is valid by itself.
static rn_status collect(void *self, const char *text, size_t bytes) {
    pieces *p = self;
    assert_true(rn_utf8_valid((rn_str){text, bytes}));
    assert_true(p->bytes + bytes < sizeof p->text);
    memcpy(p->text + p->bytes, text, bytes);
    p->bytes += bytes;
    p->text[p->bytes] = 0;
    return RN_OK;
}

static void decode_bytes(const rn_tokenizer *tokenizer, rn_str bytes, pieces *out) {
    rn_decoder decoder;
    rn_sink sink = {out, collect};
    *out = (pieces){0};
    rn_decoder_begin(&decoder, tokenizer, false);
    for (size_t i = 0; i < bytes.bytes; i++)
        assert_ok(rn_decoder_put(&decoder, (uint8_t)bytes.data[i], sink));
    assert_ok(rn_decoder_end(&decoder, sink));
}

static void sequences_go_out_when_they_are_whole(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"\xF0\x9F\x98\x80!", "\xF0\x9F\x98\x80!"},
        {"a\xE2\x82", "a\xEF\xBF\xBD"},
        {"\xE2\x82z", "\xEF\xBF\xBDz"},
        {"\xFF\xC3\xA9", "\xEF\xBF\xBD\xC3\xA9"},
        {"\xC3\xC3\xA9", "\xEF\xBF\xBD\xC3\xA9"},
        {"\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"}, // a surrogate
        {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF0\x9F\x98", "\xEF\xBF\xBD"},
    };
    rn_tokenizer *tokenizer = open_tiny();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pieces out;
        decode_bytes(tokenizer, rn_str_from(cases[i][0]), &out);
        assert_string_equal(out.text, cases[i][1]);
    }
    rn_tokenizer_close(tokenizer);
}

static void a_blank_at_either_end_is_dropped_where_the_tokenizer_put_it(void **state) {
    (void)state;
    rn_tokenizer *tokenizer;
    pieces out;
    assert_ok(tiny_open("\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"decoder\": {\"type\": "
                        "\"BPEDecoder\", \"suffix\": \"o\"}, ",
                        "", &tokenizer));
    decode_bytes(tokenizer, RN_STR("aobo"), &out);
    assert_string_equal(out.text, "a b");
    decode_bytes(tokenizer, RN_STR("aooooooooooooob"), &out); // blanks do not pile up
    assert_string_equal(out.text, "a             b");
    rn_tokenizer_close(tokenizer);
}

// ---- any bytes --------------------------------------------------------------------------

static void any_bytes_come_back(void **state) {
    (void)state;
    rn_tokenizer *tokenizer = open_tiny();
    uint32_t random = 11;
    for (int round = 0; round < 300; round++) {
        char text[64];
        rn_tokens tokens = {0};
        size_t bytes = 0, at = 0;
        for (; bytes < (size_t)(round % 64); bytes++) {
            random = random * 1664525u + 1013904223u;
            text[bytes] = round % 3 ? (char)(random >> 24) : "hello \xC3\xA9"[random >> 24 & 7];
        }
        assert_ok(rn_tokenizer_encode(tokenizer, (rn_str){text, bytes}, 0, &tokens));
        for (size_t i = 0; i < tokens.count; i++) {
            rn_str piece = rn_tokenizer_bytes(tokenizer, tokens.ids[i], true);
            assert_true(at + piece.bytes <= bytes);
            assert_memory_equal(text + at, piece.data, piece.bytes);
            at += piece.bytes;
        }
        assert_int_equal(at, bytes);
        rn_tokens_free(&tokens);
    }
    rn_tokenizer_close(tokenizer);
}

// ---- Llama 2's way ----------------------------------------------------------------------

#define BLANK "\xE2\x96\x81"
#define LLAMA_JSON                                                                                 \
    "{\"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\", \"special\": true}], "                \
    "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", "          \
    "\"prepend\": \"" BLANK "\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "      \
    "\"content\": \"" BLANK "\"}]}, \"decoder\": {\"type\": \"Sequence\", \"decoders\": ["         \
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \"" BLANK "\"}, \"content\": \" \"}, "      \
    "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": \"Strip\", \"content\": "      \
    "\" \", \"start\": 1, \"stop\": 0}]}, \"model\": {\"type\": \"BPE\", \"unk_token\": "          \
    "\"<unk>\", \"fuse_unk\": true, \"byte_fallback\": true, \"vocab\": {\"<unk>\": 0, "           \
    "\"<0xC3>\": 1, \"<0xA9>\": 2, \"" BLANK "\": 3, \"a\": 4, \"b\": 5, \"ab\": 6, "              \
    "\"" BLANK "a\": 7, \"" BLANK "ab\": 8}, \"merges\": [\"a b\", \"" BLANK " a\", "              \
    "\"" BLANK " ab\"]}}"

static void characters_fall_back_to_bytes_and_then_to_unknown(void **state) {
    (void)state;
    rn_tokenizer *tokenizer;
    pieces out = {0};
    rn_decoder decoder;
    assert_ok(rn_tokenizer_from_json("llama", RN_STR(LLAMA_JSON), &tokenizer));
    tiny_expect(tokenizer, RN_STR("ab a"), 0, (int[]){8, 7, -1});
    tiny_expect(tokenizer, RN_STR("\xC3\xA9"), 0, (int[]){3, 1, 2, -1});
    tiny_expect(tokenizer, RN_STR("azzb"), 0, (int[]){7, 0, 5, -1});
    tiny_expect(tokenizer, RN_STR("\xC3"), 0, (int[]){1, -1}); // not UTF-8, and yet a byte
    rn_decoder_begin(&decoder, tokenizer, false);
    for (const int *id = (int[]){8, 7, 1, 2, -1}; *id >= 0; id++)
        assert_ok(rn_decoder_put(&decoder, (uint32_t)*id, (rn_sink){&out, collect}));
    assert_ok(rn_decoder_end(&decoder, (rn_sink){&out, collect}));
    assert_string_equal(out.text, "ab a\xC3\xA9");
    rn_tokenizer_close(tokenizer);
}

// ---- Unigram ----------------------------------------------------------------------------

#define UNIGRAM_JSON                                                                               \
    "{\"added_tokens\": [{\"id\": 1, \"content\": \"</s>\", \"special\": true}, {\"id\": 6, "      \
    "\"content\": \"tool\", \"normalized\": true}], \"normalizer\": {\"type\": \"Lowercase\"}, "   \
    "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"" BLANK "\", "                \
    "\"prepend_scheme\": \"first\"}, \"decoder\": {\"type\": \"Metaspace\", \"replacement\": "     \
    "\"" BLANK "\"}, \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": ["         \
    "{\"Sequence\": {\"id\": \"A\"}}, {\"SpecialToken\": {\"id\": \"</s>\"}}]}, \"model\": "       \
    "{\"unk_id\": 0, \"vocab\": [[\"<unk>\", 0], [\"</s>\", 0], [\"" BLANK "\", -2.5], "           \
    "[\"a\", -3.5], [\"b\", -3.25], [\"" BLANK "ab\", -1.5e0]]}}"

static void a_unigram_model_is_cut_by_its_scores(void **state) {
    (void)state;
    rn_tokenizer *tokenizer;
    assert_ok(rn_tokenizer_from_json("unigram", RN_STR(UNIGRAM_JSON), &tokenizer));
    assert_string_equal(rn_tokenizer_get_info(tokenizer)->kind, "SentencePiece unigram");
    tiny_expect(tokenizer, RN_STR("AB ba"), RN_ENCODE_BEGIN, (int[]){5, 2, 4, 3, 1, -1});
    // Behind a special token there is no blank in front, and what is normalised is found in
    // capitals.
    tiny_expect(tokenizer, RN_STR("ab</s>aTOOLb"), RN_ENCODE_SPECIAL, (int[]){5, 1, 3, 6, 4, -1});
    rn_tokens tokens = {0};
    assert_ok(rn_tokenizer_encode(tokenizer,
                                  RN_STR("\xFF"
                                         "a\xC3"),
                                  0, &tokens)); // not UTF-8
    rn_tokens_free(&tokens);
    rn_tokenizer_close(tokenizer);
}

// ---- special tokens that the model itself could make ----------------------------------------

// Files have them among the pieces, or the merges, of the model. They are found before its turn.
static void no_model_makes_a_special_token_of_text(void **state) {
    (void)state;
    static const char *const files[] = {
        // a piece of Unigram
        "{\"added_tokens\": [{\"id\": 1, \"content\": \"<x>\", \"special\": true}], \"model\": "
        "{\"unk_id\": 0, \"vocab\": [[\"<unk>\", -9], [\"<x>\", -1], [\"<\", -3], [\"x\", -3], "
        "[\">\", -3]]}}",
        // a word of BPE
        "{\"added_tokens\": [{\"id\": 1, \"content\": \"<x>\", \"special\": true}], \"model\": "
        "{\"type\": \"BPE\", \"ignore_merges\": true, \"unk_token\": \"<unk>\", \"vocab\": "
        "{\"<unk>\": 0, \"<x>\": 1, \"<\": 2, \"x\": 3, \">\": 4}, \"merges\": []}}",
        // what merges end with
        "{\"added_tokens\": [{\"id\": 1, \"content\": \"<x>\", \"special\": true}], \"model\": "
        "{\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"vocab\": {\"<unk>\": 0, \"<x>\": 1, "
        "\"<\": 2, \"x\": 3, \">\": 4, \"x>\": 5}, \"merges\": [\"x >\", \"< x>\"]}}",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        rn_tokenizer *tokenizer;
        assert_ok(rn_tokenizer_from_json("model", rn_str_from(files[i]), &tokenizer));
        tiny_expect(tokenizer, RN_STR("<x>"), RN_ENCODE_SPECIAL, (int[]){1, -1});
        tiny_expect(tokenizer, RN_STR("<x>"), 0, i == 2 ? (int[]){2, 5, -1} : (int[]){2, 3, 4, -1});
        rn_tokenizer_close(tokenizer);
    }
}

static void what_ends_a_turn_is_special_also_where_the_file_forgets_it(void **state) {
    (void)state;
    rn_tokenizer *tokenizer;
    assert_ok(rn_tokenizer_from_json(
        "end",
        RN_STR("{\"added_tokens\": [{\"id\": 1, \"content\": \"<|im_end|>\", \"special\": false}], "
               "\"model\": {\"type\": \"BPE\", \"unk_token\": \"?\", \"fuse_unk\": true, "
               "\"vocab\": {\"?\": 0}, \"merges\": []}}"),
        &tokenizer));
    assert_true(rn_tokenizer_is_special(tokenizer, 1));
    tiny_expect(tokenizer, RN_STR("<|im_end|>"), RN_ENCODE_SPECIAL, (int[]){1, -1});
    tiny_expect(tokenizer, RN_STR("<|im_end|>"), 0, (int[]){0, -1});
    rn_tokenizer_close(tokenizer);
}

// ---- refusals ---------------------------------------------------------------------------

static void expect_refusal(const char *steps, const char *model, rn_status status,
                           const char *named) {
    rn_tokenizer *tokenizer;
    uint64_t before = tiny_held();
    assert_fails(status, tiny_open(steps, model, &tokenizer));
    assert_null(tokenizer);
    assert_int_equal(tiny_held(), before);
    if (!strstr(rn_last_error()->message, named))
        fail_msg("\"%s\" does not name %s", rn_last_error()->message, named);
    assert_string_equal(rn_last_error()->path, "tiny");
}

static void what_is_not_known_is_refused_by_name(void **state) {
    (void)state;
    expect_refusal("\"normalizer\": {\"type\": \"Nmt\"}, ", "", RN_UNSUPPORTED, "Nmt");
    expect_refusal("\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
                   "\"UnicodeScripts\"}]}, ",
                   "", RN_UNSUPPORTED, "UnicodeScripts");
    expect_refusal("\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": "
                   "\"[a&&b]\"}, \"behavior\": \"Isolated\"}, ",
                   "", RN_UNSUPPORTED, "&&");
    expect_refusal("\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}, "
                   "\"behavior\": \"Sideways\"}, ",
                   "", RN_UNSUPPORTED, "Sideways");
    expect_refusal(TINY_STEPS "\"post_processor\": {\"type\": \"Strange\"}, ", "", RN_UNSUPPORTED,
                   "Strange");
    expect_refusal("\"decoder\": {\"type\": \"CTC\"}, ", "", RN_UNSUPPORTED, "CTC");
    expect_refusal(TINY_STEPS, "\"type\": \"WordLevel\", ", RN_UNSUPPORTED, "WordLevel");
    expect_refusal(TINY_STEPS, "\"continuing_subword_prefix\": \"##\", ", RN_UNSUPPORTED,
                   "continuing_subword_prefix");
    expect_refusal(TINY_STEPS, "\"dropout\": 0.1, ", RN_UNSUPPORTED, "dropout");
    expect_refusal(TINY_STEPS "\"post_processor\": {\"type\": \"RobertaProcessing\", \"sep\": "
                              "[\"</s>\", 2], \"cls\": [\"<s>\", 0]}, ",
                   "", RN_CORRUPT, "<s>");
}

static void expect_corrupt(const char *json) {
    rn_tokenizer *tokenizer;
    uint64_t before = tiny_held();
    rn_status s = rn_tokenizer_from_json("bad", rn_str_from(json), &tokenizer);
    if (s != RN_CORRUPT) fail_msg("%s: %s", json, rn_status_name(s));
    assert_null(tokenizer);
    assert_int_equal(tiny_held(), before);
}

#define MODEL(vocab, merges)                                                                       \
    "{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"vocab\": "    \
    "{" vocab "}, \"merges\": [" merges "]}}"

static void damaged_files_are_refused(void **state) {
    (void)state;
    expect_corrupt("");
    expect_corrupt("{}");
    expect_corrupt("[1]");
    expect_corrupt("{\"model\": null}");
    expect_corrupt("{\"model\": {\"vocab\": [}}");
    expect_corrupt(MODEL("\"a\": 0, \"b\": 0", "")); // an id twice
    expect_corrupt(MODEL("\"a\": 0, \"a\": 1", "")); // a text twice
    expect_corrupt(MODEL("\"a\": -1", ""));
    expect_corrupt(MODEL("\"a\": 1.5", ""));
    expect_corrupt(MODEL("\"a\": \"0\"", ""));
    expect_corrupt(MODEL("\"a\": 4294967296", "")); // beyond range
    expect_corrupt(MODEL("\"a\": 2097152", ""));
    expect_corrupt(MODEL("\"a\": 0, \"b\": 1", "\"a b\"")); // "ab" is no token
    expect_corrupt(MODEL("\"a\": 0, \"aa\": 1", "\"a c\""));
    expect_corrupt(MODEL("\"a\": 0, \"aa\": 1", "\"aa\""));
    expect_corrupt(MODEL("\"a\": 0, \"aa\": 1", "\"a \""));
    expect_corrupt(MODEL("\"a\": 0, \"aa\": 1", "[\"a\"]"));
    expect_corrupt(MODEL("\"a\": 0, \"aa\": 1", "[\"a\", \"\"]"));
    expect_corrupt(MODEL("\"a\": 0, \"aa\": 1", "7"));
    expect_corrupt("{\"added_tokens\": [{\"id\": 0, \"content\": \"b\"}], \"model\": {\"type\": "
                   "\"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}");
    expect_corrupt("{\"added_tokens\": [{\"id\": 5, \"content\": \"a\"}], \"model\": {\"type\": "
                   "\"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}");
    expect_corrupt("{\"added_tokens\": [{\"id\": 0, \"content\": \"\"}], \"model\": {\"type\": "
                   "\"BPE\", \"vocab\": {\"a\": 1}, \"merges\": []}}");
    expect_corrupt("{\"added_tokens\": [{\"id\": 0}], \"model\": {\"type\": \"BPE\", \"vocab\": "
                   "{\"a\": 1}, \"merges\": []}}");
    expect_corrupt("{\"added_tokens\": [{\"content\": \"x\"}], \"model\": {\"type\": \"BPE\", "
                   "\"vocab\": {\"a\": 1}, \"merges\": []}}");
}

// Cut off anywhere, a file is refused or (behind the last brace) the same.
static void truncated_files_are_refused(void **state) {
    (void)state;
    rn_buffer json;
    rn_buffer_init(&json, &rn_system_allocator, 1 << 20);
    tiny_json(&json, TINY_STEPS, "");
    for (size_t bytes = 0; bytes < json.bytes; bytes += 1 + bytes / 50) {
        rn_tokenizer *tokenizer;
        assert_fails(RN_CORRUPT,
                     rn_tokenizer_from_json("cut", (rn_str){json.data, bytes}, &tokenizer));
        assert_null(tokenizer);
    }
    rn_buffer_free(&json);
}

// Merges that make each other cannot loop: every join shortens the word.
static void merges_in_a_circle_end(void **state) {
    (void)state;
    rn_tokenizer *tokenizer;
    rn_tokens tokens = {0};
    assert_ok(rn_tokenizer_from_json(
        "circle",
        RN_STR(MODEL("\"a\": 0, \"aa\": 1, \"aaa\": 2, \"aaaa\": 3",
                     "\"a aaa\", \"aaa a\", \"a aa\", \"aa aa\", \"a a\", \"a a\"")),
        &tokenizer));
    char text[1000];
    memset(text, 'a', sizeof text);
    assert_ok(rn_tokenizer_encode(tokenizer, (rn_str){text, sizeof text}, 0, &tokens));
    assert_true(tokens.count >= sizeof text / 4 && tokens.count < sizeof text);
    rn_tokens_free(&tokens);
    rn_tokenizer_close(tokenizer);
}

// ---- memory -----------------------------------------------------------------------------

#define NORMALIZED_STEPS                                                                           \
    "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, "             \
    "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"q+\"}, \"content\": \"k\"}]}, " TINY_STEPS

static rn_status use(rn_str json) {
    rn_tokenizer *tokenizer;
    rn_tokens tokens = {0};
    char text[5000];
    memset(text, 'h', sizeof text);
    text[2] = '\xC3';
    text[3] = '\xA9';
    RN_TRY(rn_tokenizer_from_json("tiny", json, &tokenizer));
    rn_status s = rn_tokenizer_encode(tokenizer, (rn_str){text, sizeof text}, 0, &tokens);
    rn_tokens_free(&tokens);
    rn_tokenizer_close(tokenizer);
    return s;
}

static void check_torture(rn_str json) {
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes, nth = 1;
    for (;; nth++) {
        rn_fault_arm(RN_FAULT_ALLOC, nth);
        rn_status s = use(json);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        if (!fired) break;
    }
    assert_true(nth > 20);
}

static void a_refused_allocation_leaks_nothing(void **state) {
    (void)state;
    rn_buffer json;
    rn_buffer_init(&json, &rn_system_allocator, 1 << 20);
    tiny_json(&json, NORMALIZED_STEPS, "");
    check_torture((rn_str){json.data, json.bytes});
    check_torture(RN_STR(LLAMA_JSON));
    check_torture(RN_STR(UNIGRAM_JSON));
    rn_buffer_free(&json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_become_tokens),
        cmocka_unit_test(special_tokens_are_spelled_out_unless_they_are_allowed),
        cmocka_unit_test(tokens_are_found_as_the_vocabulary_spells_them),
        cmocka_unit_test(a_template_puts_tokens_around),
        cmocka_unit_test(a_template_says_what_stands_between_two_texts),
        cmocka_unit_test(sequences_go_out_when_they_are_whole),
        cmocka_unit_test(a_blank_at_either_end_is_dropped_where_the_tokenizer_put_it),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(characters_fall_back_to_bytes_and_then_to_unknown),
        cmocka_unit_test(a_unigram_model_is_cut_by_its_scores),
        cmocka_unit_test(no_model_makes_a_special_token_of_text),
        cmocka_unit_test(what_ends_a_turn_is_special_also_where_the_file_forgets_it),
        cmocka_unit_test(what_is_not_known_is_refused_by_name),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(truncated_files_are_refused),
        cmocka_unit_test(merges_in_a_circle_end),
        cmocka_unit_test(a_refused_allocation_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

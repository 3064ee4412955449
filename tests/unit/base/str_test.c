// Borrowed text: comparing, patterns against a slow matcher, UTF-8 against the definition.
#include "support.h"
#include "base/str.h"

static void empty_texts_may_have_no_data(void **state) {
    (void)state;
    const rn_str none = {NULL, 0};
    assert_true(rn_str_equal(none, RN_STR("")));
    assert_true(rn_str_equal(rn_str_from(NULL), none));
    assert_true(rn_str_starts(none, none));
    assert_true(rn_str_starts(RN_STR("a"), none));
    assert_true(rn_str_ends(none, none));
    assert_true(rn_str_ends(RN_STR("a"), none));
    assert_false(rn_str_starts(none, RN_STR("a")));
    assert_false(rn_str_ends(none, RN_STR("a")));
    assert_true(rn_str_equal_ignoring_case(none, none));
    assert_true(rn_str_matches(none, none));
    assert_true(rn_utf8_valid(none));
    assert_int_equal(0, rn_utf8_sequence("", 0));
}

static void comparing_looks_at_every_byte(void **state) {
    (void)state;
    assert_true(rn_str_equal((rn_str){"a\0b", 3}, (rn_str){"a\0b", 3}));
    assert_false(rn_str_equal((rn_str){"a\0b", 3}, (rn_str){"a\0c", 3}));
    assert_false(rn_str_equal(RN_STR("ab"), RN_STR("abc")));
    assert_true(rn_str_starts(RN_STR("weights.bin"), RN_STR("weights")));
    assert_false(rn_str_starts(RN_STR("weight"), RN_STR("weights")));
    assert_true(rn_str_ends(RN_STR("model.gguf"), RN_STR(".gguf")));
    assert_false(rn_str_ends(RN_STR("gguf"), RN_STR(".gguf")));
}

static void only_ascii_letters_ignore_case(void **state) {
    (void)state;
    assert_true(rn_str_equal_ignoring_case(RN_STR("GiB"), RN_STR("gIb")));
    assert_false(rn_str_equal_ignoring_case(RN_STR("GiB"), RN_STR("GiBs")));
    assert_false(rn_str_equal_ignoring_case(RN_STR("@["), RN_STR("`{"))); // 32 apart, no letters
    assert_false(rn_str_equal_ignoring_case(RN_STR("\xc3\x84"), RN_STR("\xc3\xa4")));
}

static void cleaning_leaves_no_control_characters(void **state) {
    (void)state;
    char text[600], *at = text;
    for (int c = 1; c < 0x80; c++)
        *at++ = (char)c;
    for (uint32_t code = 0x80; code < 0x100; code++)
        at += rn_utf8_encode(code, at);
    *at++ = '\xC2'; // cut short: nothing after it may be touched
    *at = '\0';
    size_t bytes = strlen(text);
    rn_str_clean(text);
    assert_int_equal(bytes, strlen(text));
    for (int c = 1; c < 0x80; c++) {
        bool control = (c < 0x20 && c != '\n') || c == 0x7F;
        assert_int_equal(control ? '?' : c, text[c - 1]);
    }
    for (uint32_t code = 0x80; code < 0x100; code++) {
        char expected[4] = {'?', '?'};
        if (code >= 0xA0) rn_utf8_encode(code, expected);
        assert_memory_equal(expected, text + 0x7F + 2 * (code - 0x80), 2);
    }
}

// ---- patterns --------------------------------------------------------------------------

static void patterns_match_whole_texts(void **state) {
    (void)state;
    static const struct {
        const char *text, *pattern;
        bool matches;
    } cases[] = {
        {"", "", true},
        {"", "*", true},
        {"", "**", true},
        {"", "?", false},
        {"a", "", false},
        {"a", "?", true},
        {"a", "*", true},
        {"a", "*?", true},
        {"a", "?*", true},
        {"a", "??", false},
        {"abc", "abc", true},
        {"abc", "ab", false},
        {"ab", "abc", false},
        {"abc", "a*c", true},
        {"ac", "a*c", true},
        {"abcd", "a*c", false},
        {"abcbc", "a*bc", true},
        {"model.embed_tokens.weight", "*embed*", true},
        {"model.layers.0.input_layernorm.weight", "*norm.weight", true},
        {"model.layers.0.input_layernorm.bias", "*norm.weight", false},
        {"model.layers.10.mlp", "model.layers.?.mlp", false},
        {"model.layers.1.mlp", "model.layers.?.mlp", true},
        {"*", "*", true},
        {"a*b", "a?b", true},
        {"mississippi", "*iss*pi", true},
        {"mississippi", "*iss*ip?i", true},
        {"mississippi", "m*iss*iss*iss*", false},
        {"ABC", "abc", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (rn_str_matches(rn_str_from(cases[i].text), rn_str_from(cases[i].pattern)) !=
            cases[i].matches)
            fail_msg("'%s' against '%s'", cases[i].text, cases[i].pattern);
    assert_true(rn_str_matches((rn_str){"a\0b", 3}, RN_STR("a?b")));
    assert_true(rn_str_matches((rn_str){"a\0b", 3}, (rn_str){"*\0*", 3}));
    assert_false(rn_str_matches((rn_str){"a\0b", 3}, RN_STR("a")));
}

// By the definition, with every choice of every star.
static bool matches_slowly(const char *text, const char *pattern) {
    if (*pattern == '\0') return *text == '\0';
    if (*pattern == '*')
        return matches_slowly(text, pattern + 1) || (*text && matches_slowly(text + 1, pattern));
    return *text && (*pattern == '?' || *pattern == *text) && matches_slowly(text + 1, pattern + 1);
}

static void patterns_agree_with_a_slow_matcher(void **state) {
    (void)state;
    uint32_t random = 7;
    int matched = 0;
    for (int round = 0; round < 200000; round++) {
        char text[10] = "", pattern[8] = "";
        random = random * 1664525u + 1013904223u;
        size_t text_bytes = (random >> 8) % 10, pattern_bytes = (random >> 20) % 8;
        for (size_t i = 0; i < text_bytes; i++) {
            random = random * 1664525u + 1013904223u;
            text[i] = "ab"[random >> 31];
        }
        for (size_t i = 0; i < pattern_bytes; i++) {
            random = random * 1664525u + 1013904223u;
            pattern[i] = "ab?*"[random >> 30];
        }
        text[text_bytes < 9 ? text_bytes : 9] = pattern[pattern_bytes < 7 ? pattern_bytes : 7] = 0;
        bool expected = matches_slowly(text, pattern);
        matched += expected;
        if (rn_str_matches(rn_str_from(text), rn_str_from(pattern)) != expected)
            fail_msg("'%s' against '%s'", text, pattern);
    }
    assert_in_range(matched, 10000, 190000); // both answers were exercised
}

// What makes a backtracking matcher take longer than anybody waits.
static void patterns_with_many_stars_end(void **state) {
    (void)state;
    enum { TEXT = 20000, STARS = 40 };
    static char text[TEXT], pattern[2 * STARS + 1];
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < STARS; i++)
        memcpy(pattern + 2 * i, "*a", 2);
    pattern[2 * STARS] = 'b';
    assert_false(rn_str_matches((rn_str){text, TEXT}, (rn_str){pattern, sizeof pattern}));
    text[TEXT - 1] = 'b';
    assert_true(rn_str_matches((rn_str){text, TEXT}, (rn_str){pattern, sizeof pattern}));
    memset(pattern, '*', sizeof pattern);
    assert_true(rn_str_matches((rn_str){text, TEXT}, (rn_str){pattern, sizeof pattern}));
}

// ---- UTF-8 -----------------------------------------------------------------------------

static void every_code_point_is_encoded_and_recognised(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 0x110000; code++) {
        char text[4];
        if (code >= 0xD800 && code < 0xE000) continue;
        size_t bytes = rn_utf8_encode(code, text);
        assert_int_equal(code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4, bytes);
        assert_int_equal(bytes, rn_utf8_sequence(text, bytes));
        assert_int_equal(0, rn_utf8_sequence(text, bytes - 1)); // cut short
    }
}

// By the definition: the bits make a code point that needed this length.
static size_t sequence_slowly(const unsigned char *c, size_t bytes) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (bytes == 0) return 0;
    if (c[0] < 0x80) return 1;
    size_t length = (c[0] & 0xE0) == 0xC0   ? 2
                    : (c[0] & 0xF0) == 0xE0 ? 3
                    : (c[0] & 0xF8) == 0xF0 ? 4
                                            : 0;
    if (length == 0 || length > bytes) return 0;
    uint32_t code = c[0] & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((c[i] & 0xC0) != 0x80) return 0;
        code = code << 6 | (c[i] & 0x3Fu);
    }
    bool good = code >= least[length] && code < 0x110000 && (code < 0xD800 || code >= 0xE000);
    return good ? length : 0;
}

static void sequences_agree_with_the_definition(void **state) {
    (void)state;
    static const unsigned char tails[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90,
                                          0x9F, 0xA0, 0xBF, 0xC0, 0xE0, 0xFF};
    enum { TAILS = sizeof tails };
    for (unsigned lead = 0; lead < 256; lead++)
        for (int i = 0; i < TAILS * TAILS * TAILS; i++) {
            unsigned char text[4] = {(unsigned char)lead, tails[i % TAILS],
                                     tails[i / TAILS % TAILS], tails[i / TAILS / TAILS]};
            for (size_t bytes = 0; bytes <= 4; bytes++)
                assert_int_equal(sequence_slowly(text, bytes),
                                 rn_utf8_sequence((const char *)text, bytes));
        }
}

static void invalid_texts_are_recognised(void **state) {
    (void)state;
    static const char *const bad[] = {
        "\x80",             // a tail alone
        "a\xbf",            //
        "\xc0\x80",         // NUL in two bytes
        "\xc1\xbf",         // DEL in two bytes
        "\xe0\x80\x80",     // NUL in three
        "\xe0\x9f\xbf",     // U+07FF in three
        "\xf0\x80\x80\x80", // NUL in four
        "\xf0\x8f\xbf\xbf", // U+FFFF in four
        "\xed\xa0\x80",     // the first surrogate
        "\xed\xbf\xbf",     // the last one
        "\xf4\x90\x80\x80", // U+110000
        "\xf5\x80\x80\x80", // beyond
        "\xf8\x88\x80\x80\x80",
        "\xfe",
        "\xff",
        "\xc3",         // cut short
        "\xe2\x82",     //
        "\xf0\x9f\x98", //
        "\xc3(",        // a lead without its tail
        "ok \xe2\x82 ok",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (rn_utf8_valid(rn_str_from(bad[i]))) fail_msg("number %zu was taken for valid", i);
    static const char *const good[] = {
        "",
        "plain",
        "\x7f",
        "\xc2\x80",
        "\xdf\xbf",
        "\xe0\xa0\x80",
        "\xed\x9f\xbf",
        "\xee\x80\x80",
        "\xef\xbf\xbf",
        "\xf0\x90\x80\x80",
        "\xf4\x8f\xbf\xbf",
        "Gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!rn_utf8_valid(rn_str_from(good[i]))) fail_msg("number %zu was refused", i);
    assert_true(rn_utf8_valid((rn_str){"a\0b", 3}));
    assert_false(rn_utf8_valid((rn_str){"a\0\xff", 3}));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_texts_may_have_no_data),
        cmocka_unit_test(comparing_looks_at_every_byte),
        cmocka_unit_test(only_ascii_letters_ignore_case),
        cmocka_unit_test(cleaning_leaves_no_control_characters),
        cmocka_unit_test(patterns_match_whole_texts),
        cmocka_unit_test(patterns_agree_with_a_slow_matcher),
        cmocka_unit_test(patterns_with_many_stars_end),
        cmocka_unit_test(every_code_point_is_encoded_and_recognised),
        cmocka_unit_test(sequences_agree_with_the_definition),
        cmocka_unit_test(invalid_texts_are_recognised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

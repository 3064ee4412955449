// spm_test.c — vocabularies of a few pieces, where each rule can be seen at work.
#include "support.h"

#include <ration/memory.h>

#include "base/fault.h"
#include "base/str.h"
#include "text/spm.h"

#define BLANK "\xe2\x96\x81"

static const rn_spm_options plain_bpe = {.algorithm = RN_SPM_BPE,
                                         .escape_whitespaces = true,
                                         .unknown = RN_NO_TOKEN,
                                         .begin = RN_NO_TOKEN,
                                         .end = RN_NO_TOKEN,
                                         .pad = RN_NO_TOKEN};

typedef struct entry {
    const char *text;
    float score;
    rn_spm_kind kind; // 0: normal
} entry;

// Piece 0 is the unknown one, then the entries; with byte fallback the 256 bytes come last.
static rn_spm *make(rn_spm_options options, const entry *entries, size_t count) {
    static rn_spm_piece pieces[512];
    static char bytes[256][8];
    rn_spm *spm;
    size_t made = 1;
    pieces[0] = (rn_spm_piece){RN_STR("<unk>"), 0, RN_SPM_UNKNOWN};
    for (size_t i = 0; i < count; i++)
        pieces[made++] = (rn_spm_piece){rn_str_from(entries[i].text), entries[i].score,
                                        entries[i].kind ? entries[i].kind : RN_SPM_NORMAL};
    for (unsigned i = 0; i < 256 && options.byte_fallback; i++) {
        snprintf(bytes[i], sizeof bytes[i], "<0x%02X>", i);
        pieces[made++] = (rn_spm_piece){rn_str_from(bytes[i]), 0, RN_SPM_BYTE};
    }
    assert_ok(rn_spm_create(&options, pieces, made, &spm));
    return spm;
}

// The pieces of the text, as it is cut, with '|' between them.
static void check(const rn_spm *spm, rn_str text, const char *expected) {
    char shown[512] = "";
    rn_tokens tokens = {0};
    assert_ok(rn_spm_encode(spm, text, true, &tokens));
    for (size_t i = 0; i < tokens.count; i++) {
        rn_str piece = rn_spm_get(spm, tokens.ids[i]).text;
        size_t used = strlen(shown);
        snprintf(shown + used, sizeof shown - used, "%s%.*s", i ? "|" : "", RN_STR_ARG(piece));
    }
    assert_string_equal(shown, expected);
    rn_tokens_free(&tokens);
}
#define CHECK(spm, text, expected) check(spm, RN_STR(text), expected)

// ---- BPE ----------------------------------------------------------------------------------------

static void the_best_pair_is_joined_first_and_of_equals_the_leftmost(void **state) {
    (void)state;
    const entry entries[] = {{"a", 0, 0},   {"b", 0, 0},   {"c", 0, 0},   {"ab", -2, 0},
                             {"bc", -1, 0}, {"aa", -3, 0}, {"abc", -9, 0}};
    rn_spm *spm = make(plain_bpe, entries, 7);
    CHECK(spm, "abc", "abc"); // b with c first, then a with bc
    CHECK(spm, "aaa", "aa|a");
    CHECK(spm, "aaaa", "aa|aa");
    CHECK(spm, "abab", "ab|ab");
    CHECK(spm, "aabc", "aa|bc"); // a with bc would be worse
    CHECK(spm, "", "");
    rn_spm_destroy(spm);
}

static void a_piece_that_no_pair_makes_is_not_found(void **state) {
    (void)state;
    const entry entries[] = {{"a", 0, 0}, {"b", 0, 0}, {"c", 0, 0}, {"abc", 0, 0}};
    rn_spm *spm = make(plain_bpe, entries, 4);
    CHECK(spm, "abc", "a|b|c");
    rn_spm_destroy(spm);
}

static void unused_pieces_are_taken_apart_again(void **state) {
    (void)state;
    const entry entries[] = {{"a", 0, 0},    {"b", 0, 0},
                             {"c", 0, 0},    {"ab", -1, RN_SPM_UNUSED},
                             {"abc", -2, 0}, {"ca", -3, RN_SPM_UNUSED}};
    rn_spm *spm = make(plain_bpe, entries, 6);
    CHECK(spm, "ab", "a|b");
    CHECK(spm, "abc", "abc"); // by way of the unused one
    CHECK(spm, "cab ca", "c|a|b|<unk>|c|a");
    rn_spm_destroy(spm);
}

static void user_defined_pieces_come_first_and_are_never_joined(void **state) {
    (void)state;
    const entry entries[] = {{"a", 0, 0},
                             {"b", 0, 0},
                             {"ab", -1, 0},
                             {"ba", 0, RN_SPM_USER_DEFINED},
                             {"bab", 0, RN_SPM_USER_DEFINED},
                             {"aba", -1, 0}};
    rn_spm *spm = make(plain_bpe, entries, 6);
    CHECK(spm, "aba", "a|ba");
    CHECK(spm, "abab", "a|bab");
    CHECK(spm, "aab", "a|ab");
    rn_spm_destroy(spm);
}

// ---- unknown text -------------------------------------------------------------------------------

static void a_run_of_unknown_characters_is_one_piece(void **state) {
    (void)state;
    const entry entries[] = {{"a", 0, 0}, {BLANK, 0, 0}};
    rn_spm *spm = make(plain_bpe, entries, 2);
    CHECK(spm, "axya\xc3\xa9z a", "a|<unk>|a|<unk>|" BLANK "|a");
    CHECK(spm, "<unk>", "<unk>"); // its letters, not its name
    rn_spm_destroy(spm);
}

static void bytes_spell_what_no_piece_has(void **state) {
    (void)state;
    rn_spm_options options = plain_bpe;
    const entry entries[] = {{"a", 0, 0}};
    options.byte_fallback = true;
    rn_spm *spm = make(options, entries, 1);
    CHECK(spm, "a\xc3\xa9z", "a|<0xC3>|<0xA9>|<0x7A>");
    CHECK(spm, "a\xff", "a|<0xEF>|<0xBF>|<0xBD>"); // U+FFFD
    rn_spm_destroy(spm);
    options.keep_invalid = true;
    spm = make(options, entries, 1);
    CHECK(spm, "a\xff", "a|<0xFF>");
    CHECK(spm, "\xe2\x96", "<0xE2>|<0x96>");
    rn_spm_destroy(spm);
}

// ---- blanks -------------------------------------------------------------------------------------

static void blanks_are_shown_added_and_dropped_as_asked(void **state) {
    (void)state;
    const entry entries[] = {{"a", 0, 0}, {BLANK, 0, 0}, {" ", 0, 0}};
    rn_spm_options options = plain_bpe;
    rn_spm *spm = make(options, entries, 3);
    CHECK(spm, " a  a ", BLANK "|a|" BLANK "|" BLANK "|a|" BLANK);
    rn_spm_destroy(spm);
    options.add_dummy_prefix = true;
    spm = make(options, entries, 3);
    CHECK(spm, " a", BLANK "|" BLANK "|a");
    CHECK(spm, "", "");
    rn_spm_destroy(spm);
    options.remove_extra_whitespaces = true;
    spm = make(options, entries, 3);
    CHECK(spm, "  a   a " BLANK, BLANK "|a|" BLANK "|a");
    CHECK(spm, "   ", "");
    rn_spm_destroy(spm);
    options.treat_whitespace_as_suffix = true;
    spm = make(options, entries, 3);
    CHECK(spm, " a  a ", "a|" BLANK "|a|" BLANK);
    rn_spm_destroy(spm);
    options.escape_whitespaces = false;
    spm = make(options, entries, 3);
    CHECK(spm, " a  a ", "a| |a| ");
    rn_spm_destroy(spm);
}

static void the_dummy_blank_is_for_the_first_text_only(void **state) {
    (void)state;
    const entry entries[] = {{"a", 0, 0}, {BLANK, 0, 0}};
    rn_spm_options options = plain_bpe;
    rn_tokens tokens = {0};
    options.add_dummy_prefix = true;
    rn_spm *spm = make(options, entries, 2);
    assert_ok(rn_spm_encode(spm, RN_STR("a"), true, &tokens));
    assert_ok(rn_spm_encode(spm, RN_STR("a"), false, &tokens));
    const uint32_t want[] = {2, 1, 1};
    assert_int_equal(tokens.count, 3);
    assert_memory_equal(tokens.ids, want, sizeof want);
    rn_tokens_free(&tokens);
    rn_spm_destroy(spm);
}

// ---- the other algorithms -----------------------------------------------------------------------

static void unigram_takes_the_best_path(void **state) {
    (void)state;
    rn_spm_options options = plain_bpe;
    options.algorithm = RN_SPM_UNIGRAM;
    const entry entries[] = {{"a", -4, 0},
                             {"b", -4, 0},
                             {"ab", -5, 0},
                             {"abc", -30, 0},
                             {"bc", -4.5f, RN_SPM_UNUSED},
                             {"aa", -8, 0},
                             {"bb", -3, RN_SPM_USER_DEFINED}};
    rn_spm *spm = make(options, entries, 7);
    CHECK(spm, "ab", "ab");
    CHECK(spm, "abc", "abc"); // -30; unknown is -30 - 10
    CHECK(spm, "aa", "aa");   // a tie: the first offer came from the start
    CHECK(spm, "bc", "b|<unk>");
    CHECK(spm, "abb", "a|bb");
    rn_spm_destroy(spm);
}

static void words_and_characters_are_looked_up_whole(void **state) {
    (void)state;
    rn_spm_options options = plain_bpe;
    const entry entries[] = {{"a", 0, 0}, {BLANK "bc", 0, 0}, {"bc", 0, RN_SPM_USER_DEFINED}};
    options.algorithm = RN_SPM_WORD;
    rn_spm *spm = make(options, entries, 3);
    CHECK(spm, "a bc", "a|" BLANK "bc");
    CHECK(spm, "a bcd", "a|<unk>");
    CHECK(spm, "<unk>", "<unk>");
    rn_spm_destroy(spm);
    options.algorithm = RN_SPM_CHAR;
    spm = make(options, entries, 3);
    CHECK(spm, "abca", "a|bc|a");
    CHECK(spm, "abxa", "a|<unk>|a");
    rn_spm_destroy(spm);
}

// ---- long texts ---------------------------------------------------------------------------------

static void check_repeats(const rn_spm *spm, const char *word, size_t times) {
    rn_str one = rn_str_from(word);
    char *text = malloc(one.bytes * times);
    rn_tokens once = {0}, all = {0};
    for (size_t i = 0; i < times; i++)
        memcpy(text + i * one.bytes, word, one.bytes);
    assert_ok(rn_spm_encode(spm, one, true, &once));
    assert_ok(rn_spm_encode(spm, (rn_str){text, one.bytes * times}, true, &all));
    assert_int_equal(all.count, once.count * times);
    for (size_t i = 0; i < all.count; i++)
        assert_int_equal(all.ids[i], once.ids[i % once.count]);
    rn_tokens_free(&once);
    rn_tokens_free(&all);
    free(text);
}

// Stretches that come again are remembered, long ones are not cut: both give what short texts give.
static void long_texts_give_what_short_ones_give(void **state) {
    (void)state;
    const entry entries[] = {{"a", 0, 0},   {"b", 0, 0},        {"ab", -1, 0}, {"abab", -2, 0},
                             {BLANK, 0, 0}, {BLANK "a", -3, 0}, {"ba", -9, 0}, {BLANK "ab", -4, 0}};
    rn_spm_options options = plain_bpe;
    rn_spm *spm = make(options, entries, 8);
    check_repeats(spm, " abaxb a", 5000);
    check_repeats(spm, "abab", 50000);
    rn_spm_destroy(spm);
    options.algorithm = RN_SPM_UNIGRAM;
    spm = make(options, entries, 8);
    check_repeats(spm, " abaxb a", 20000);
    rn_spm_destroy(spm);
}

// ---- failing ------------------------------------------------------------------------------------

// The same pieces, with one more that is unused and occurs nowhere: then nothing is cut.
static void assert_cutting_changes_nothing(const entry *entries, size_t count, rn_str text) {
    entry more[16];
    rn_tokens cut = {0}, whole = {0};
    rn_spm_options options = plain_bpe;
    options.byte_fallback = options.keep_invalid = true;
    memcpy(more, entries, count * sizeof *entries);
    more[count] = (entry){"\xfe\xfe\xfe\xfe\xfe\xfe", 0, RN_SPM_UNUSED};
    rn_spm *a = make(options, entries, count), *b = make(options, more, count + 1);
    assert_ok(rn_spm_encode(a, text, true, &cut));
    assert_ok(rn_spm_encode(b, text, true, &whole));
    assert_int_equal(cut.count, whole.count);
    for (size_t i = 0; i < cut.count; i++) { // the bytes' ids are one higher in the other
        rn_str one = rn_spm_get(a, cut.ids[i]).text, other = rn_spm_get(b, whole.ids[i]).text;
        if (!rn_str_equal(one, other)) fail_msg("piece %zu of %zu differs", i, cut.count);
    }
    rn_tokens_free(&cut);
    rn_tokens_free(&whole);
    rn_spm_destroy(a);
    rn_spm_destroy(b);
}

// Bytes that are not UTF-8 claim more than they are: f9 is the first of four, and two of them are a
// piece. A fuzzer's finding (the end of a repeated text), and neighbours of it.
static void cutting_heeds_user_defined_pieces(void **state) {
    (void)state;
    static const entry entries[] = {{"\xf9\xf9", 0, RN_SPM_USER_DEFINED},
                                    {"ab", -1, 0},
                                    {"a", -2, 0},
                                    {"b\xf9", -3, 0},
                                    {"\xe1", -3, 0}};
    static const char bytes[] = {'\xf9', '\xf9', '\xf9', '\xb4', 'a', 'b', '\xe1', ' '};
    enum { COUNT = sizeof entries / sizeof *entries };
    uint64_t draw = 1;
    assert_cutting_changes_nothing(entries, COUNT,
                                   RN_STR("\xf9\xf9"
                                          "a\xf1\xb4\xf9\xf9\xf9\xf9\xf9\xf9"
                                          "ba\xf9\xf9"
                                          "a\xf1\xb4\xf9\xf9\xf9\xf9\xf9\xf9"
                                          "ba"));
    for (size_t round = 0; round < 400; round++) {
        char text[64];
        for (size_t i = 0; i < sizeof text; i++) {
            draw = draw * 6364136223846793005u + 1442695040888963407u;
            text[i] = bytes[draw >> 61];
        }
        assert_cutting_changes_nothing(entries, COUNT, (rn_str){text, sizeof text});
    }
}

static void vocabularies_that_cannot_work_are_refused(void **state) {
    (void)state;
    rn_spm *spm;
    rn_spm_piece piece = {RN_STR("a"), 0, RN_SPM_NORMAL};
    rn_spm_options options = plain_bpe;
    assert_fails(RN_CORRUPT, rn_spm_create(&options, &piece, 0, &spm));
    assert_fails(RN_CORRUPT, rn_spm_create(&options, &piece, 1, &spm)); // nothing for unknown text
    options.unknown = 1;
    assert_fails(RN_CORRUPT, rn_spm_create(&options, &piece, 1, &spm));
    options.unknown = 0;
    options.byte_fallback = true;
    assert_fails(RN_CORRUPT, rn_spm_create(&options, &piece, 1, &spm));
    options.byte_fallback = false;
    options.algorithm = 5;
    assert_fails(RN_UNSUPPORTED, rn_spm_create(&options, &piece, 1, &spm));
    assert_null(spm);
}

static void torture(const rn_spm *spm, rn_str text) {
    rn_ledger_line before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER);
    bool fired = true;
    for (uint64_t n = 1; fired; n++) {
        rn_tokens out = {0};
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_spm_encode(spm, text, true, &out);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        assert_int_equal(out.count == 0, fired);
        rn_tokens_free(&out);
        assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes,
                         before.now_bytes);
    }
}

static void every_failed_allocation_leaves_nothing_behind(void **state) {
    (void)state;
    const entry entries[] = {{"a", 0, 0}, {"b", 0, 0}, {"ab", -1, 0}, {"abab", -1, RN_SPM_UNUSED}};
    char text[6000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "abab "[i % 5];
    memset(text, 'a', 3000);
    rn_spm_options options = plain_bpe;
    for (int algorithm = RN_SPM_UNIGRAM; algorithm <= RN_SPM_CHAR; algorithm++) {
        options.algorithm = (rn_spm_algorithm)algorithm;
        rn_spm *spm = make(options, entries, 3);
        torture(spm, (rn_str){text, sizeof text});
        rn_spm_destroy(spm);
        spm = make(options, entries, 4);
        torture(spm, (rn_str){text, sizeof text});
        rn_spm_destroy(spm);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_pair_is_joined_first_and_of_equals_the_leftmost),
        cmocka_unit_test(a_piece_that_no_pair_makes_is_not_found),
        cmocka_unit_test(unused_pieces_are_taken_apart_again),
        cmocka_unit_test(user_defined_pieces_come_first_and_are_never_joined),
        cmocka_unit_test(a_run_of_unknown_characters_is_one_piece),
        cmocka_unit_test(bytes_spell_what_no_piece_has),
        cmocka_unit_test(blanks_are_shown_added_and_dropped_as_asked),
        cmocka_unit_test(the_dummy_blank_is_for_the_first_text_only),
        cmocka_unit_test(unigram_takes_the_best_path),
        cmocka_unit_test(words_and_characters_are_looked_up_whole),
        cmocka_unit_test(long_texts_give_what_short_ones_give),
        cmocka_unit_test(cutting_heeds_user_defined_pieces),
        cmocka_unit_test(vocabularies_that_cannot_work_are_refused),
        cmocka_unit_test(every_failed_allocation_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

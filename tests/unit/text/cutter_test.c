// Normalizer and cutter, step by step.
#include "support.h"
#include "text/cutter.h"
#include "text/normalizer.h"

#include "base/str.h"

#define BLANK "\xE2\x96\x81"

static rn_pattern *compile(const char *expression, bool literal) {
    rn_pattern *pattern = NULL;
    if (expression)
        assert_ok(
            rn_pattern_compile(&rn_system_allocator, rn_str_from(expression), literal, &pattern));
    return pattern;
}

// ---- cutting ----------------------------------------------------------------------------

static rn_status join_word(void *self, rn_str word) {
    RN_TRY(rn_buffer_append(self, word.data, word.bytes));
    return rn_buffer_append(self, "/", 1);
}

static void expect_words(rn_cutter *cutter, const char *text, const char *want) {
    rn_buffer got;
    rn_cutting cutting;
    rn_buffer_init(&got, &rn_system_allocator, 1 << 16);
    rn_cutting_init(&cutting, cutter, &rn_system_allocator);
    cutting.word = join_word;
    cutting.self = &got;
    assert_ok(rn_cut(&cutting, rn_str_from(text), true));
    assert_ok(rn_buffer_append(&got, "", 1));
    assert_string_equal(got.data, want);
    rn_cutting_free(&cutting);
    rn_buffer_free(&got);
    rn_cutter_free(cutter);
    *cutter = (rn_cutter){0};
}

static void expect_split(const char *expression, rn_cut_behavior behavior, bool inverted,
                         const char *text, const char *want) {
    rn_cutter cutter = {0};
    rn_cut_step step = {.kind = RN_CUT_SPLIT,
                        .pattern = compile(expression, false),
                        .behavior = behavior,
                        .inverted = inverted};
    assert_ok(rn_cutter_add(&cutter, step));
    expect_words(&cutter, text, want);
}

static void each_behavior_keeps_its_matches_where_it_says(void **state) {
    (void)state;
    const char *text = "the-final--countdown";
    expect_split("-", RN_CUT_ISOLATED, false, text, "the/-/final/-/-/countdown/");
    expect_split("-", RN_CUT_REMOVED, false, text, "the/final/countdown/");
    expect_split("-", RN_CUT_WITH_PREVIOUS, false, text, "the-/final-/-/countdown/");
    expect_split("-", RN_CUT_WITH_NEXT, false, text, "the/-final/-/-countdown/");
    expect_split("-", RN_CUT_CONTIGUOUS, false, text, "the/-/final/--/countdown/");
    expect_split("\\w+", RN_CUT_REMOVED, true, text, "the/final/countdown/");
    expect_split("x", RN_CUT_ISOLATED, false, text, "the-final--countdown/");
}

static void empty_matches_cut_without_taking_anything(void **state) {
    (void)state;
    expect_split("(?=(\\d{3})+(?!\\d))", RN_CUT_ISOLATED, false, "1234567", "1/234/567/");
    expect_split("x*", RN_CUT_ISOLATED, false, "axxb", "a/xx/b/");
}

static void metaspace_shows_blanks_and_puts_one_in_front(void **state) {
    (void)state;
    rn_cutter cutter = {0};
    rn_cut_step shown = {.kind = RN_CUT_METASPACE, .blank = RN_STR("_"), .prefix = RN_PREFIX_FIRST};
    rn_cut_step split = {
        .kind = RN_CUT_SPLIT, .pattern = compile("_", true), .behavior = RN_CUT_WITH_NEXT};
    assert_ok(rn_cutter_add(&cutter, shown));
    assert_ok(rn_cutter_add(&cutter, split));
    expect_words(&cutter, "Hey  you", "_Hey/_/_you/");
}

static void steps_behind_letters_see_letters(void **state) {
    (void)state;
    // U+00B2 is the bytes C2 B2; the letter of byte B2 is U+00B2, which is a number.
    rn_cutter cutter = {0};
    assert_ok(rn_cutter_add(&cutter, (rn_cut_step){.kind = RN_CUT_SPACE}));
    assert_ok(rn_cutter_add(&cutter, (rn_cut_step){.kind = RN_CUT_LETTERS}));
    rn_cut_step digits = {.kind = RN_CUT_SPLIT, .pattern = compile("\\p{N}", false)};
    assert_ok(rn_cutter_add(&cutter, digits));
    expect_words(&cutter, "a1\xC2\xB2", " a/1/\xC2/\xB2/");
}

// ---- normalising ------------------------------------------------------------------------

static void expect_normal(rn_normalize_step step, const char *text, const char *want) {
    rn_normalizer normalizer = {0};
    rn_normalizing normalizing;
    rn_str out;
    rn_normalizing_init(&normalizing, &rn_system_allocator);
    assert_ok(rn_normalizer_add(&normalizer, step));
    assert_ok(rn_normalize(&normalizer, &normalizing, rn_str_from(text), true, &out));
    if (!rn_str_equal(out, rn_str_from(want)))
        fail_msg("\"%s\" became \"%.*s\", not \"%s\"", text, RN_STR_ARG(out), want);
    rn_normalizing_free(&normalizing);
    rn_normalizer_free(&normalizer);
}

static void forms_compose_and_decompose(void **state) {
    (void)state;
    expect_normal((rn_normalize_step){.kind = RN_NORMALIZE_NFC}, "e\xCC\x81 plain",
                  "\xC3\xA9 plain");
    expect_normal((rn_normalize_step){.kind = RN_NORMALIZE_NFD}, "\xC3\xA9", "e\xCC\x81");
    expect_normal((rn_normalize_step){.kind = RN_NORMALIZE_NFKC}, "\xEF\xAC\x81\xC2\xB2", "fi2");
    expect_normal((rn_normalize_step){.kind = RN_NORMALIZE_NFKD}, "\xEF\xAC\x81\xC3\xA9",
                  "fie\xCC\x81");
    expect_normal((rn_normalize_step){.kind = RN_NORMALIZE_NFC}, "", "");
}

static void letters_become_small_and_lose_accents(void **state) {
    (void)state;
    expect_normal((rn_normalize_step){.kind = RN_NORMALIZE_LOWERCASE},
                  "ABC \xC3\x89 \xCE\xA3 \xC4\xB0", "abc \xC3\xA9 \xCF\x83 i\xCC\x87");
    expect_normal((rn_normalize_step){.kind = RN_NORMALIZE_STRIP_ACCENTS}, "e\xCC\x81x", "ex");
}

static void text_is_stripped_prepended_and_replaced(void **state) {
    (void)state;
    expect_normal((rn_normalize_step){.kind = RN_NORMALIZE_STRIP, .left = true, .right = true},
                  " \t a b\xC2\xA0\n", "a b");
    expect_normal((rn_normalize_step){.kind = RN_NORMALIZE_STRIP, .right = true}, " a ", " a");
    expect_normal((rn_normalize_step){.kind = RN_NORMALIZE_PREPEND, .content = RN_STR(BLANK)}, "a",
                  BLANK "a");
    expect_normal((rn_normalize_step){.kind = RN_NORMALIZE_PREPEND, .content = RN_STR(BLANK)}, "",
                  "");
    expect_normal((rn_normalize_step){.kind = RN_NORMALIZE_REPLACE,
                                      .pattern = compile(" {2,}", false),
                                      .content = RN_STR("-")},
                  "a   b c  ", "a-b c-");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_behavior_keeps_its_matches_where_it_says),
        cmocka_unit_test(empty_matches_cut_without_taking_anything),
        cmocka_unit_test(metaspace_shows_blanks_and_puts_one_in_front),
        cmocka_unit_test(steps_behind_letters_see_letters),
        cmocka_unit_test(forms_compose_and_decompose),
        cmocka_unit_test(letters_become_small_and_lose_accents),
        cmocka_unit_test(text_is_stripped_prepended_and_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

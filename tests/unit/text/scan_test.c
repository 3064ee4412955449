// The hand-written scanners cut as PCRE2 does with the same expressions.
#include "support.h"
#include "text/pattern.h"
#include "text/utf8_step.h"

enum { TEXTS = 6000, LETTERS_MOST = 40 };

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

// Characters that expressions tell apart, and anything. U+180E is left out: PCRE2 still counts it
// as white space, which Unicode no longer does.
static uint32_t random_letter(uint32_t *state) {
    static const uint32_t known[] = {
        ' ',   ' ',    ' ',    '\n',   '\r',   '\t', '\'', 's',    'T',    'l',   'L',    'v',
        'e',   'R',    'E',    'm',    'D',    'a',  'Z',  '0',    '7',    '.',   '!',    '-',
        '_',   0xE9,   0x17F,  0xB2,   0xBD,   0xA0, 0x85, 0x2028, 0x3000, 0x301, 0x4E2D, 0x1F600,
        0x661, 0x2160, 0x2026, 0x200B, 0xFEFF, 0x00, 0x1C, 0xC0,   0x3A3};
    uint32_t pick = next_random(state);
    if (pick % 8) return known[pick / 8 % (sizeof known / sizeof *known)];
    uint32_t letter = next_random(state) % 0x3100;
    return letter == 0x180E ? 'x' : letter;
}

static rn_str random_text(uint32_t *state, char *out) {
    size_t bytes = 0, letters = next_random(state) % LETTERS_MOST;
    for (size_t i = 0; i < letters; i++)
        bytes += rn_utf8_encode(random_letter(state), out + bytes);
    return (rn_str){out, bytes};
}

static void check_text(rn_scan scan, const rn_pattern *pattern, rn_matching *matching,
                       rn_str text) {
    for (size_t at = 0, end; at < text.bytes; at = end) {
        rn_match match;
        end = rn_scan_next(scan, text, at);
        assert_ok(rn_pattern_next(pattern, matching, text, at, false, &match));
        assert_true(match.found);
        if (match.start == at && match.end == end) continue;
        fail_msg("\"%.*s\" at %zu: [%zu, %zu), not up to %zu", RN_STR_ARG(text), at, match.start,
                 match.end, end);
    }
}

static void check_scan(rn_scan scan, const char *expression) {
    char around[512], text[4 * LETTERS_MOST];
    rn_pattern *pattern;
    rn_matching matching = {0};
    assert_int_equal(rn_scan_for(rn_str_from(expression)), scan);
    // In brackets it is not recognised, so PCRE2 does the work.
    snprintf(around, sizeof around, "(?:%s)", expression);
    assert_ok(rn_pattern_compile(&rn_system_allocator, rn_str_from(around), false, &pattern));
    assert_int_equal(rn_pattern_scan(pattern), RN_SCAN_NONE);
    uint32_t state = 7;
    for (int i = 0; i < TEXTS; i++)
        check_text(scan, pattern, &matching, random_text(&state, text));
    rn_matching_free(&matching);
    rn_pattern_destroy(pattern);
}

static void gpt2_is_cut_as_pcre2_cuts_it(void **state) {
    (void)state;
    check_scan(RN_SCAN_GPT2, RN_EXPRESSION_GPT2);
}
static void llama3_is_cut_as_pcre2_cuts_it(void **state) {
    (void)state;
    check_scan(RN_SCAN_LLAMA3, RN_EXPRESSION_LLAMA3);
}
static void qwen2_is_cut_as_pcre2_cuts_it(void **state) {
    (void)state;
    check_scan(RN_SCAN_QWEN2, RN_EXPRESSION_QWEN2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_is_cut_as_pcre2_cuts_it),
        cmocka_unit_test(llama3_is_cut_as_pcre2_cuts_it),
        cmocka_unit_test(qwen2_is_cut_as_pcre2_cuts_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

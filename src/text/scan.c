// scan.c — a character is a letter, a number, white space or something else; a piece is mostly a
// run of one kind with a blank in front. ASCII by table, the rest by Unicode's categories.
#include "text/scan.h"

#include "text/utf8_step.h"

enum { OTHER, LETTER, NUMBER, SPACE, END };

static const uint8_t ascii_kind[128] = {
    ['\t'] = SPACE, ['\n'] = SPACE, ['\v'] = SPACE, ['\f'] = SPACE, ['\r'] = SPACE, [' '] = SPACE,
    ['0'] = NUMBER, ['1'] = NUMBER, ['2'] = NUMBER, ['3'] = NUMBER, ['4'] = NUMBER, ['5'] = NUMBER,
    ['6'] = NUMBER, ['7'] = NUMBER, ['8'] = NUMBER, ['9'] = NUMBER, ['A'] = LETTER, ['B'] = LETTER,
    ['C'] = LETTER, ['D'] = LETTER, ['E'] = LETTER, ['F'] = LETTER, ['G'] = LETTER, ['H'] = LETTER,
    ['I'] = LETTER, ['J'] = LETTER, ['K'] = LETTER, ['L'] = LETTER, ['M'] = LETTER, ['N'] = LETTER,
    ['O'] = LETTER, ['P'] = LETTER, ['Q'] = LETTER, ['R'] = LETTER, ['S'] = LETTER, ['T'] = LETTER,
    ['U'] = LETTER, ['V'] = LETTER, ['W'] = LETTER, ['X'] = LETTER, ['Y'] = LETTER, ['Z'] = LETTER,
    ['a'] = LETTER, ['b'] = LETTER, ['c'] = LETTER, ['d'] = LETTER, ['e'] = LETTER, ['f'] = LETTER,
    ['g'] = LETTER, ['h'] = LETTER, ['i'] = LETTER, ['j'] = LETTER, ['k'] = LETTER, ['l'] = LETTER,
    ['m'] = LETTER, ['n'] = LETTER, ['o'] = LETTER, ['p'] = LETTER, ['q'] = LETTER, ['r'] = LETTER,
    ['s'] = LETTER, ['t'] = LETTER, ['u'] = LETTER, ['v'] = LETTER, ['w'] = LETTER, ['x'] = LETTER,
    ['y'] = LETTER, ['z'] = LETTER,
};

static int wide_kind(uint32_t letter) {
    switch (utf8proc_category((utf8proc_int32_t)letter)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return NUMBER;
    default:
        return rn_is_space(letter) ? SPACE : OTHER;
    }
}

// The kind of the character at `at`, and where the next one begins.
static inline int kind_at(rn_str text, size_t at, size_t *next) {
    if (at >= text.bytes) return END;
    uint8_t lead = (uint8_t)text.data[at];
    if (lead < 128) {
        *next = at + 1;
        return ascii_kind[lead];
    }
    size_t bytes;
    uint32_t letter = rn_utf8_decode(text.data + at, &bytes);
    *next = at + bytes;
    return wide_kind(letter);
}

static size_t run_end(rn_str text, size_t at, int kind) {
    size_t next = at;
    while (kind_at(text, at, &next) == kind)
        at = next;
    return at;
}

// ---- contractions -----------------------------------------------------------------------

// One letter behind the apostrophe, in small letters; 0 where it is none of those that matter. The
// long s is a form of s (U+017F) for expressions that ignore case.
static char small(rn_str text, size_t at, bool any_case, size_t *next) {
    *next = at + 1;
    if (at >= text.bytes) return 0;
    char c = text.data[at];
    if (!any_case) return c;
    if (c >= 'A' && c <= 'Z') return (char)(c + 32);
    if (at + 1 < text.bytes && c == '\xC5' && text.data[at + 1] == '\xBF') {
        *next = at + 2;
        return 's';
    }
    return c;
}

// Where 's, 't, 're, 've, 'm, 'll or 'd ends that begins at `at`, or 0.
static size_t contraction_end(rn_str text, size_t at, bool any_case) {
    size_t next, last;
    if (text.data[at] != '\'') return 0;
    char first = small(text, at + 1, any_case, &next);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return next;
    if (first != 'r' && first != 'v' && first != 'l') return 0;
    return small(text, next, any_case, &last) == (first == 'l' ? 'l' : 'e') ? last : 0;
}

// ---- white space ------------------------------------------------------------------------

// \s+(?!\S)|\s+ : a run, but its last character belongs to what follows, unless it is the only one.
static size_t space_end(rn_str text, size_t at) {
    size_t end = run_end(text, at, SPACE), last = end - 1;
    if (end == text.bytes) return end;
    while (((uint8_t)text.data[last] & 0xC0) == 0x80)
        last--;
    return last > at ? last : end;
}

static bool is_line_break(char c) {
    return c == '\n' || c == '\r';
}

// \s*[\r\n]+ : up to the last line break of the run; 0 where it has none.
static size_t line_end(rn_str text, size_t at) {
    size_t end = run_end(text, at, SPACE);
    while (end > at && !is_line_break(text.data[end - 1]))
        end--;
    return end > at ? end : 0;
}

// ---- the expressions --------------------------------------------------------------------

static size_t next_gpt2(rn_str text, size_t at) {
    size_t end = contraction_end(text, at, false), next = at;
    if (end) return end;
    int kind = kind_at(text, at, &next);
    if (text.data[at] == ' ') {
        size_t ignored;
        int behind = kind_at(text, next, &ignored);
        if (behind != SPACE && behind != END) return run_end(text, next, behind);
    }
    return kind == SPACE ? space_end(text, at) : run_end(text, next, kind);
}

static size_t some_numbers(rn_str text, size_t at, int most) {
    size_t next = at;
    for (; most > 0 && kind_at(text, at, &next) == NUMBER; most--)
        at = next;
    return at;
}

static size_t symbols_end(rn_str text, size_t at) {
    at = run_end(text, at, OTHER);
    while (at < text.bytes && is_line_break(text.data[at]))
        at++;
    return at;
}

static size_t next_llama3(rn_str text, size_t at, int most_numbers) {
    size_t end = contraction_end(text, at, true), next = at, ignored;
    if (end) return end;
    int kind = kind_at(text, at, &next);
    if (kind == LETTER) return run_end(text, next, LETTER);
    if (kind == NUMBER) return some_numbers(text, at, most_numbers);
    int behind = kind_at(text, next, &ignored);
    if (behind == LETTER && !is_line_break(text.data[at])) return run_end(text, next, LETTER);
    if (kind == OTHER) return symbols_end(text, at);
    if (behind == OTHER && text.data[at] == ' ') return symbols_end(text, next);
    end = line_end(text, at);
    return end ? end : space_end(text, at);
}

rn_scan rn_scan_for(rn_str expression) {
    if (rn_str_equal(expression, RN_STR(RN_EXPRESSION_GPT2))) return RN_SCAN_GPT2;
    if (rn_str_equal(expression, RN_STR(RN_EXPRESSION_LLAMA3))) return RN_SCAN_LLAMA3;
    if (rn_str_equal(expression, RN_STR(RN_EXPRESSION_QWEN2))) return RN_SCAN_QWEN2;
    return RN_SCAN_NONE;
}

size_t rn_scan_next(rn_scan scan, rn_str text, size_t at) {
    if (scan == RN_SCAN_GPT2) return next_gpt2(text, at);
    return next_llama3(text, at, scan == RN_SCAN_LLAMA3 ? 3 : 1);
}

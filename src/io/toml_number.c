// toml_number.c — integers and floats.
//
// The grammar is checked character by character, so that a mistake is reported where it stands;
// only then is the value computed: integers here with a range check, floats by the C library in the
// "C" locale.
#include "io/toml_parser.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>

static bool is_digit(char c, int base) {
    if (base == 16 && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))) return true;
    return c >= '0' && c <= '9' && c - '0' < base;
}

// Digits with single underscores between them; *at passes them.
static rn_status scan_digits(rn_toml_parser *p, size_t *at, int base) {
    if (p->text[*at] == '_')
        return rn_toml_fail_at(p, *at, "an underscore must stand between digits");
    if (!is_digit(p->text[*at], base))
        return rn_toml_fail_at(p, *at, "expected a digit in this number");
    while (is_digit(p->text[*at], base)) {
        ++*at;
        if (p->text[*at] != '_') continue;
        if (!is_digit(p->text[*at + 1], base))
            return rn_toml_fail_at(p, *at, "an underscore must stand between digits");
        ++*at;
    }
    return RN_OK;
}

static int digit_value(char c) {
    return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
}

// Digits and underscores in [at, end), already checked.
static rn_status read_integer(rn_toml_parser *p, size_t at, size_t end, int base, bool negative,
                              int64_t *out) {
    int64_t total = 0;
    for (; at < end; at++) {
        if (p->text[at] == '_') continue;
        int digit = digit_value(p->text[at]);
        if (__builtin_mul_overflow(total, base, &total) ||
            __builtin_sub_overflow(total, digit, &total)) // negative: its range is the larger one
            return rn_toml_fail_at(p, p->at, "this integer does not fit 64 bits");
    }
    if (!negative && total == INT64_MIN)
        return rn_toml_fail_at(p, p->at, "this integer does not fit 64 bits");
    *out = negative ? total : -total;
    return RN_OK;
}

static rn_status refuse_rest(rn_toml_parser *p, size_t at) {
    return rn_toml_fail_at(p, at, "'%c' does not belong in this number", p->text[at]);
}

static rn_status parse_based(rn_toml_parser *p, size_t end, rn_toml_value *value) {
    char kind = p->text[p->at + 1];
    int base = kind == 'x' ? 16 : kind == 'o' ? 8 : 2;
    size_t at = p->at + 2;
    RN_TRY(scan_digits(p, &at, base));
    if (at != end) return refuse_rest(p, at);
    value->type = RN_TOML_INTEGER;
    RN_TRY(read_integer(p, p->at + 2, end, base, false, &value->integer));
    p->at = end;
    return RN_OK;
}

// The token is a float by grammar: what follows it in the text cannot continue one.
static rn_status read_float(rn_toml_parser *p, size_t end, double *out) {
    const char *digits = p->text + p->at;
    size_t bytes = end - p->at;
    if (memchr(digits, '_', bytes)) {
        void *block;
        size_t used = 0;
        RN_TRY(rn_arena_alloc(&p->doc->arena, bytes, &block));
        for (size_t i = 0; i < bytes;
             i++) // at least one underscore is left out: its byte ends the number
            if (digits[i] != '_') ((char *)block)[used++] = digits[i];
        digits = block;
    }
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!plain) return rn_fail(RN_NO_MEMORY, "the system has no memory for the C locale");
    *out = strtod_l(digits, NULL, plain);
    freelocale(plain);
    return RN_OK;
}

// Fraction and exponent; *at passes them.
static rn_status scan_float_tail(rn_toml_parser *p, size_t *at) {
    if (p->text[*at] == '.') {
        ++*at;
        RN_TRY(scan_digits(p, at, 10));
    }
    if (p->text[*at] == 'e' || p->text[*at] == 'E') {
        ++*at;
        if (p->text[*at] == '+' || p->text[*at] == '-') ++*at;
        RN_TRY(scan_digits(p, at, 10));
    }
    return RN_OK;
}

static rn_status parse_decimal(rn_toml_parser *p, size_t first, size_t end, rn_toml_value *value) {
    size_t at = first;
    RN_TRY(scan_digits(p, &at, 10));
    if (p->text[first] == '0' && at > first + 1) {
        rn_status s = rn_toml_fail_at(p, first, "a number cannot start with 0");
        return rn_hint(s, "octal numbers start with 0o");
    }
    size_t whole_end = at;
    RN_TRY(scan_float_tail(p, &at));
    if (at != end) return refuse_rest(p, at);
    if (at == whole_end) {
        value->type = RN_TOML_INTEGER;
        RN_TRY(read_integer(p, first, end, 10, p->text[p->at] == '-', &value->integer));
    } else {
        value->type = RN_TOML_FLOAT;
        RN_TRY(read_float(p, end, &value->number));
    }
    p->at = end;
    return RN_OK;
}

rn_status rn_toml_parse_number(rn_toml_parser *p, size_t end, rn_toml_value *value) {
    bool is_signed = p->text[p->at] == '+' || p->text[p->at] == '-';
    size_t first = p->at + is_signed;
    rn_str word = {p->text + first, end - first};
    char second = word.bytes > 1 && word.data[0] == '0' ? word.data[1] : '\0';
    if (rn_str_equal(word, RN_STR("inf")) || rn_str_equal(word, RN_STR("nan"))) {
        double size = word.data[0] == 'i' ? (double)INFINITY : (double)NAN;
        value->type = RN_TOML_FLOAT;
        value->number = copysign(size, p->text[p->at] == '-' ? -1.0 : 1.0);
        p->at = end;
        return RN_OK;
    }
    if (second != 'x' && second != 'o' && second != 'b') return parse_decimal(p, first, end, value);
    if (!is_signed) return parse_based(p, end, value);
    return rn_toml_fail_at(p, p->at, "hexadecimal, octal and binary numbers have no sign");
}

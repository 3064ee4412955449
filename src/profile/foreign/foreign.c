// foreign.c — words, numbers, texts and times as other profilers write them.
#include "profile/foreign/foreign.h"

#include "base/checked.h"

#include <stdarg.h>
#include <stdio.h>

// ---- purposes -----------------------------------------------------------------------------------

static const struct {
    const char *word;
    rn_purpose purpose;
} words[] = {
    {"weight", RN_PURPOSE_WEIGHTS},
    {"parameter", RN_PURPOSE_WEIGHTS},
    {"parameters", RN_PURPOSE_WEIGHTS},
    {"param", RN_PURPOSE_WEIGHTS},
    {"embedding", RN_PURPOSE_WEIGHTS},
    {"kv_cache", RN_PURPOSE_KV},
    {"activation", RN_PURPOSE_ACTIVATIONS},
    {"input", RN_PURPOSE_ACTIVATIONS},
    {"output", RN_PURPOSE_ACTIVATIONS},
    {"intermediate", RN_PURPOSE_ACTIVATIONS},
    {"gradient", RN_PURPOSE_GRADIENTS},
    {"grad", RN_PURPOSE_GRADIENTS},
    {"optimizer_state", RN_PURPOSE_OPTIMIZER},
    {"temporary", RN_PURPOSE_WORKSPACE},
    {"temp", RN_PURPOSE_WORKSPACE},
    {"autograd_detail", RN_PURPOSE_WORKSPACE},
};

rn_purpose rn_foreign_purpose(rn_str word) {
    if (!word.bytes) return RN_PURPOSE_OTHER;
    for (int i = 0; i < RN_PURPOSE_COUNT; i++)
        if (rn_str_equal_ignoring_case(word, rn_str_from(rn_purpose_name((rn_purpose)i))))
            return (rn_purpose)i;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (rn_str_equal_ignoring_case(word, rn_str_from(words[i].word))) return words[i].purpose;
    return RN_PURPOSE_OTHER;
}

// ---- numbers ------------------------------------------------------------------------------------

static bool is_digit(rn_str text, size_t at) {
    return at < text.bytes && text.data[at] >= '0' && text.data[at] <= '9';
}

// Digits from *at on into *mantissa; those that no longer fit only count. Returns how many.
static size_t scan_digits(rn_str text, size_t *at, uint64_t *mantissa, int *dropped) {
    size_t from = *at;
    for (; is_digit(text, *at); ++*at) {
        if (*mantissa < UINT64_MAX / 10 - 1)
            *mantissa = *mantissa * 10 + (uint64_t)(text.data[*at] - '0');
        else
            ++*dropped;
    }
    return *at - from;
}

static bool scan_exponent(rn_str text, size_t *at, int *out) {
    uint64_t digits = 0;
    int dropped = 0;
    *out = 0;
    if (*at == text.bytes || (text.data[*at] | 0x20) != 'e') return true;
    ++*at;
    bool negative = *at < text.bytes && text.data[*at] == '-';
    if (negative || (*at < text.bytes && text.data[*at] == '+')) ++*at;
    if (!scan_digits(text, at, &digits, &dropped)) return false;
    int size = (int)rn_min_u64(dropped ? 9999 : digits, 9999);
    *out = negative ? -size : size;
    return true;
}

// 10^exponent, or as much of it as a double has exactly; *exponent is what is left.
static double take_power(int *exponent) {
    double power = 1;
    for (int i = 0; i < 22 && *exponent > 0; i++, --*exponent)
        power *= 10;
    return power;
}

static double scale(double number, int exponent) {
    int up = exponent > 0 ? exponent : 0, down = exponent < 0 ? -exponent : 0;
    while (up && number > 0 && number - number == 0) // not infinite yet
        number *= take_power(&up);
    while (down && number > 0)
        number /= take_power(&down);
    return number;
}

bool rn_foreign_number(rn_str text, double *out) {
    bool negative = text.bytes && text.data[0] == '-';
    size_t at = negative, digits;
    uint64_t mantissa = 0;
    int dropped = 0, exponent = 0;
    *out = 0;
    digits = scan_digits(text, &at, &mantissa, &dropped);
    if (at < text.bytes && text.data[at] == '.') {
        int whole = dropped;
        at++;
        size_t fraction = scan_digits(text, &at, &mantissa, &dropped);
        digits += fraction;
        if (fraction > INT32_MAX / 2) return false;
        dropped = whole - (int)fraction + (dropped - whole);
    }
    if (!digits || !scan_exponent(text, &at, &exponent) || at != text.bytes) return false;
    *out = scale((double)mantissa, exponent + dropped);
    if (negative) *out = -*out;
    return *out - *out == 0; // not infinite
}

// ---- times --------------------------------------------------------------------------------------

// `count` digits exactly.
static bool take_digits(rn_str *text, size_t count, int64_t *out) {
    *out = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_digit(*text, i)) return false;
        *out = *out * 10 + (text->data[i] - '0');
    }
    *text = (rn_str){text->data + count, text->bytes - count};
    return true;
}

static bool take_char(rn_str *text, const char *any_of) {
    if (!text->bytes || !text->data[0] || !strchr(any_of, text->data[0])) return false;
    *text = (rn_str){text->data + 1, text->bytes - 1};
    return true;
}

// Days from 1970-01-01 in the calendar that has always been Gregorian.
static int64_t days_since_epoch(int64_t year, int64_t month, int64_t day) {
    year -= month <= 2;
    int64_t era = year / 400, of_era = year - era * 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static bool take_date(rn_str *text, int64_t *out_days) {
    int64_t year, month, day;
    if (!take_digits(text, 4, &year) || !take_char(text, "-") || !take_digits(text, 2, &month) ||
        !take_char(text, "-") || !take_digits(text, 2, &day))
        return false;
    *out_days = days_since_epoch(year, month, day);
    return year >= 1970 && year <= 2200 && month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

// ".123456": up to nine digits count.
static bool take_fraction(rn_str *text, int64_t *out_ns) {
    int64_t unit = 1000000000;
    *out_ns = 0;
    if (!take_char(text, ".,")) return true;
    if (!is_digit(*text, 0)) return false;
    for (int64_t digit; is_digit(*text, 0);) {
        take_digits(text, 1, &digit);
        unit /= 10;
        *out_ns += digit * unit;
    }
    return true;
}

static bool take_clock(rn_str *text, int64_t *out_ns) {
    int64_t hour, minute, second = 0, ns = 0;
    if (!take_digits(text, 2, &hour) || !take_char(text, ":") || !take_digits(text, 2, &minute))
        return false;
    if (take_char(text, ":") && (!take_digits(text, 2, &second) || !take_fraction(text, &ns)))
        return false;
    *out_ns = ((hour * 60 + minute) * 60 + second) * 1000000000 + ns;
    return hour < 24 && minute < 60 && second <= 60;
}

static bool take_offset(rn_str *text, int64_t *out_ns) {
    int64_t hour, minute = 0;
    *out_ns = 0;
    if (!text->bytes || take_char(text, "Zz")) return true;
    bool west = text->data[0] == '-';
    if (!take_char(text, "+-") || !take_digits(text, 2, &hour)) return false;
    take_char(text, ":");
    if (text->bytes && !take_digits(text, 2, &minute)) return false;
    *out_ns = (hour * 60 + minute) * 60 * 1000000000;
    if (west) *out_ns = -*out_ns;
    return hour < 24 && minute < 60;
}

// "1736764185.123456": digit by digit, because a double has only 200 ns there.
static bool parse_seconds(rn_str text, int64_t *out_ns) {
    double number;
    rn_str rest = text;
    int64_t seconds = 0, ns, digit;
    if (!rn_foreign_number(text, &number) || number < 0 || number > 9e9) return false;
    while (seconds < (int64_t)1e10 && take_digits(&rest, 1, &digit))
        seconds = seconds * 10 + digit;
    bool plain = take_fraction(&rest, &ns) && !rest.bytes;
    *out_ns = plain ? seconds * 1000000000 + ns : (int64_t)(number * 1e9);
    return true;
}

bool rn_foreign_time(rn_str text, int64_t *out_ns) {
    int64_t days, clock_ns, offset_ns;
    rn_str rest = text;
    *out_ns = 0;
    if (!take_date(&rest, &days)) return parse_seconds(text, out_ns);
    if (!take_char(&rest, "T t") || !take_clock(&rest, &clock_ns) ||
        !take_offset(&rest, &offset_ns) || rest.bytes)
        return false;
    *out_ns = days * 86400 * 1000000000 + clock_ns - offset_ns;
    return true;
}

// ---- texts and arrays ---------------------------------------------------------------------------

static bool is_control(rn_str text, size_t at, size_t bytes) {
    unsigned char c = (unsigned char)text.data[at];
    return c < 0x20 || c == 0x7f || (bytes == 2 && c == 0xc2 && (text.data[at + 1] & 0xe0) == 0x80);
}

void rn_foreign_append(rn_foreign_text *text, rn_str more) {
    size_t step;
    for (size_t at = 0; at < more.bytes; at += step) {
        size_t bytes = rn_utf8_sequence(more.data + at, more.bytes - at);
        step = bytes ? bytes : 1;
        bool safe = bytes && !is_control(more, at, bytes);
        size_t put = safe ? bytes : 1;
        if (text->bytes + put > sizeof text->data) return;
        memcpy(text->data + text->bytes, safe ? more.data + at : "?", put);
        text->bytes += put;
    }
}

void rn_foreign_print(rn_foreign_text *text, const char *format, ...) {
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    rn_foreign_append(text, rn_str_from(line));
}

rn_status rn_foreign_grow(const rn_allocator *from, void *items, size_t count, size_t *capacity,
                          size_t item_bytes) {
    void *old, *more = NULL;
    size_t wanted = *capacity ? *capacity * 2 : 64;
    if (count < *capacity) return RN_OK;
    RN_TRY(rn_alloc(from, wanted * item_bytes, &more));
    memcpy(&old, items, sizeof old);
    if (count) memcpy(more, old, count * item_bytes);
    rn_free(from, old, *capacity * item_bytes);
    memcpy(items, &more, sizeof more);
    *capacity = wanted;
    return RN_OK;
}

// str.c — comparing, matching, UTF-8.
#include "base/str.h"

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

bool rn_str_equal_ignoring_case(rn_str a, rn_str b) {
    if (a.bytes != b.bytes) return false;
    for (size_t i = 0; i < a.bytes; i++)
        if (lower(a.data[i]) != lower(b.data[i])) return false;
    return true;
}

void rn_str_clean(char *text) {
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        bool wide = *c == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0; // U+0080..U+009F in UTF-8
        if (wide) *c++ = '?';
        if (wide || (*c < 0x20 && *c != '\n') || *c == 0x7F) *c = '?';
    }
}

// Greedy with one remembered star: on a mismatch the last star swallows one character more.
bool rn_str_matches(rn_str text, rn_str pattern) {
    size_t t = 0, p = 0, star = SIZE_MAX, star_text = 0;
    while (t < text.bytes) {
        if (p < pattern.bytes && pattern.data[p] == '*') {
            star = p++;
            star_text = t;
        } else if (p < pattern.bytes &&
                   (pattern.data[p] == '?' || pattern.data[p] == text.data[t])) {
            p++, t++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            t = ++star_text;
        } else {
            return false;
        }
    }
    while (p < pattern.bytes && pattern.data[p] == '*')
        p++;
    return p == pattern.bytes;
}

bool rn_str_matches_any(rn_str text, rn_str patterns) {
    while (patterns.bytes) {
        const char *comma = memchr(patterns.data, ',', patterns.bytes);
        size_t bytes = comma ? (size_t)(comma - patterns.data) : patterns.bytes;
        if (rn_str_matches(text, (rn_str){patterns.data, bytes})) return true;
        if (!comma) return false;
        patterns = (rn_str){comma + 1, patterns.bytes - bytes - 1};
    }
    return false;
}

static bool is_tail(unsigned char c) {
    return (c & 0xC0) == 0x80;
}

size_t rn_utf8_sequence(const char *text, size_t bytes) {
    const unsigned char *c = (const unsigned char *)text;
    if (bytes == 0) return 0;
    if (c[0] < 0x80) return 1;
    if (c[0] < 0xC2 || c[0] > 0xF4) return 0;
    size_t length = c[0] < 0xE0 ? 2 : c[0] < 0xF0 ? 3 : 4;
    if (bytes < length) return 0;
    for (size_t i = 1; i < length; i++)
        if (!is_tail(c[i])) return 0;
    if (c[0] == 0xE0 && c[1] < 0xA0) return 0; // overlong
    if (c[0] == 0xED && c[1] > 0x9F) return 0; // surrogate
    if (c[0] == 0xF0 && c[1] < 0x90) return 0; // overlong
    if (c[0] == 0xF4 && c[1] > 0x8F) return 0; // above U+10FFFF
    return length;
}

bool rn_utf8_valid(rn_str text) {
    for (size_t i = 0; i < text.bytes;) {
        size_t length = rn_utf8_sequence(text.data + i, text.bytes - i);
        if (length == 0) return false;
        i += length;
    }
    return true;
}

size_t rn_utf8_encode(uint32_t code, char out[4]) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = length - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(lead[length] | code);
    return length;
}

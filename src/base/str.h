// str.h — helpers for borrowed text.
#ifndef RN_BASE_STR_H
#define RN_BASE_STR_H

#include <ration/text.h>

#include <string.h>

#define RN_STR(literal) ((rn_str){(literal), sizeof(literal) - 1})

static inline rn_str rn_str_from(const char *text) {
    return (rn_str){text, text ? strlen(text) : 0};
}
static inline bool rn_str_equal(rn_str a, rn_str b) {
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.data, b.data, a.bytes) == 0);
}
static inline bool rn_str_starts(rn_str text, rn_str prefix) {
    return prefix.bytes == 0 ||
           (text.bytes >= prefix.bytes && memcmp(text.data, prefix.data, prefix.bytes) == 0);
}
static inline bool rn_str_ends(rn_str text, rn_str suffix) {
    return suffix.bytes == 0 ||
           (text.bytes >= suffix.bytes &&
            memcmp(text.data + text.bytes - suffix.bytes, suffix.data, suffix.bytes) == 0);
}

// Makes a terminated text safe to show: control characters (C0 but the line break, DEL, C1) become
// '?'.
void rn_str_clean(char *text);
// ASCII letters only.
bool rn_str_equal_ignoring_case(rn_str a, rn_str b);
bool rn_utf8_valid(rn_str text);
// Writes a code point (< 0x110000, not a surrogate) and returns its 1..4 bytes.
size_t rn_utf8_encode(uint32_t code_point, char out[4]);

// One of several patterns of rn_str_matches, with commas between them; an empty list matches
// nothing.
bool rn_str_matches_any(rn_str text, rn_str patterns);

#endif

// utf8_step.h — one character at a time through text that is known to be UTF-8.
#ifndef RN_TEXT_UTF8_STEP_H
#define RN_TEXT_UTF8_STEP_H

#include "base/str.h"

#include <utf8proc.h>

// Bytes of the character that begins with `lead`.
static inline size_t rn_utf8_length(char lead) {
    uint8_t c = (uint8_t)lead;
    return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

// The character at text[0], whose length is *out_bytes.
static inline uint32_t rn_utf8_decode(const char *text, size_t *out_bytes) {
    const uint8_t *t = (const uint8_t *)text;
    size_t bytes = *out_bytes = rn_utf8_length(text[0]);
    if (bytes == 1) return t[0];
    if (bytes == 2) return (t[0] & 0x1Fu) << 6 | (t[1] & 0x3Fu);
    if (bytes == 3) return (t[0] & 0xFu) << 12 | (t[1] & 0x3Fu) << 6 | (t[2] & 0x3Fu);
    return (t[0] & 7u) << 18 | (t[1] & 0x3Fu) << 12 | (t[2] & 0x3Fu) << 6 | (t[3] & 0x3Fu);
}

// Unicode's White_Space.
static inline bool rn_is_space(uint32_t letter) {
    if (letter < 128) return letter == ' ' || (letter >= 9 && letter <= 13);
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)letter);
    return letter == 0x85 || category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
           category == UTF8PROC_CATEGORY_ZP;
}

// How many bytes at the front are valid.
static inline size_t rn_utf8_valid_run(rn_str text) {
    size_t at = 0, step;
    while (at < text.bytes) {
        uint64_t word;
        if (text.bytes - at >= 8) {
            memcpy(&word, text.data + at, 8);
            if (!(word & 0x8080808080808080u)) {
                at += 8;
                continue;
            }
        }
        if (!(step = rn_utf8_sequence(text.data + at, text.bytes - at))) break;
        at += step;
    }
    return at;
}

#endif

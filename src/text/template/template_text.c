// template_text.c — code points, white space and searching, as Python sees them. A search for valid
// UTF-8 in valid UTF-8 may go byte by byte: a match never begins inside a code point.
#include "text/template/template_text.h"

#include <utf8proc.h>

uint32_t rn_jinja_decode(rn_str text, size_t at, size_t *out_bytes) {
    const unsigned char *c = (const unsigned char *)text.data + at;
    if (c[0] < 0x80) {
        *out_bytes = 1;
        return c[0];
    }
    size_t bytes = c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;
    uint32_t code_point = c[0] & (0xffu >> (bytes + 1));
    for (size_t i = 1; i < bytes; i++)
        code_point = code_point << 6 | (c[i] & 0x3f);
    *out_bytes = bytes;
    return code_point;
}

static bool begins_code_point(char c) {
    return ((unsigned char)c & 0xc0) != 0x80;
}

size_t rn_jinja_text_length(rn_str text) {
    size_t count = 0;
    for (size_t i = 0; i < text.bytes; i++)
        count += begins_code_point(text.data[i]);
    return count;
}

bool rn_jinja_text_is_ascii(rn_str text) {
    for (size_t i = 0; i < text.bytes; i++)
        if ((unsigned char)text.data[i] >= 0x80) return false;
    return true;
}

size_t rn_jinja_text_offset(rn_str text, size_t index) {
    for (size_t i = 0; i < text.bytes; i++)
        if (begins_code_point(text.data[i]) && index-- == 0) return i;
    return text.bytes;
}

rn_str rn_jinja_text_part(rn_str text, size_t begin, size_t end) {
    return begin < end ? (rn_str){text.data + begin, end - begin} : (rn_str){"", 0};
}

bool rn_jinja_is_space(uint32_t c) {
    if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool rn_jinja_is_printable(uint32_t c) {
    if (c < 0x80) return c >= 0x20 && c < 0x7f;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

static bool is_stripped(rn_str text, size_t at, size_t bytes, const rn_str *set) {
    size_t unused;
    if (!set) return rn_jinja_is_space(rn_jinja_decode(text, at, &unused));
    return rn_jinja_find(*set, (rn_str){text.data + at, bytes}, 0) != RN_JINJA_NOT_FOUND;
}

rn_str rn_jinja_strip(rn_str text, const rn_str *set, bool left, bool right) {
    size_t begin = 0, end = text.bytes, bytes;
    while (left && begin < end) {
        rn_jinja_decode(text, begin, &bytes);
        if (!is_stripped(text, begin, bytes, set)) break;
        begin += bytes;
    }
    while (right && begin < end) {
        size_t last = end - 1;
        while (!begins_code_point(text.data[last]))
            last--;
        if (!is_stripped(text, last, end - last, set)) break;
        end = last;
    }
    return rn_jinja_text_part(text, begin, end);
}

size_t rn_jinja_find(rn_str text, rn_str part, size_t from) {
    if (from > text.bytes) return RN_JINJA_NOT_FOUND;
    if (part.bytes == 0) return from;
    if (from == text.bytes) return RN_JINJA_NOT_FOUND;
    const char *hit = memmem(text.data + from, text.bytes - from, part.data, part.bytes);
    return hit ? (size_t)(hit - text.data) : RN_JINJA_NOT_FOUND;
}

size_t rn_jinja_find_last(rn_str text, rn_str part, size_t until) {
    for (size_t at = until + 1; at-- > 0;)
        if (part.bytes <= until - at &&
            rn_str_starts(rn_jinja_text_part(text, at, text.bytes), part))
            return at;
    return RN_JINJA_NOT_FOUND;
}

// What Python's splitlines takes for a line break.
static bool is_break(uint32_t c) {
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

size_t rn_jinja_line_end(rn_str text, size_t from, size_t *out_next) {
    size_t at = from, bytes;
    while (at < text.bytes) {
        uint32_t c = rn_jinja_decode(text, at, &bytes);
        if (is_break(c)) {
            bool pair = c == '\r' && at + 1 < text.bytes && text.data[at + 1] == '\n';
            *out_next = at + bytes + pair;
            return at;
        }
        at += bytes;
    }
    *out_next = text.bytes;
    return text.bytes;
}

// template_text.h — Python's str methods for valid UTF-8: pure functions on borrowed text.
#ifndef RN_TEXT_TEMPLATE_TEXT_H
#define RN_TEXT_TEMPLATE_TEXT_H

#include "base/str.h"

#define RN_JINJA_NOT_FOUND SIZE_MAX

// The code point at text[at], and how many bytes it takes.
uint32_t rn_jinja_decode(rn_str text, size_t at, size_t *out_bytes);
// Code points.
size_t rn_jinja_text_length(rn_str text);
bool rn_jinja_text_is_ascii(rn_str text);
// The byte where code point `index` begins; text.bytes where there are fewer.
size_t rn_jinja_text_offset(rn_str text, size_t index);
rn_str rn_jinja_text_part(rn_str text, size_t begin, size_t end); // bytes

bool rn_jinja_is_space(uint32_t code_point);
bool rn_jinja_is_printable(uint32_t code_point);

// Without leading or trailing code points that are white space, or in `set` where it is not NULL.
rn_str rn_jinja_strip(rn_str text, const rn_str *set, bool left, bool right);
// The first byte of `part` at or after `from`, or of the last that ends at or before `until`.
size_t rn_jinja_find(rn_str text, rn_str part, size_t from);
size_t rn_jinja_find_last(rn_str text, rn_str part, size_t until);
// The end of the line that begins at `from` (without its break), and of its break.
size_t rn_jinja_line_end(rn_str text, size_t from, size_t *out_next);

#endif

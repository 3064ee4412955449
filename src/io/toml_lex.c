// toml_lex.c — the characters of TOML: what may stand in the text at all, where it is, white space
// and names.
//
// Lines and columns are not counted while reading. They are counted when a place is asked for, from
// the last such place on: each byte is looked at once more in all, and nothing else has to keep
// count.
#include "io/toml_parser.h"

#include <stdarg.h>
#include <stdio.h>

static bool is_control(unsigned char c) {
    return (c < 0x20 && c != '\t' && c != '\n') || c == 0x7F;
}

static rn_status refuse_utf8(rn_toml_parser *p, size_t at) {
    rn_status s = rn_toml_fail_at(p, at, "byte 0x%02X is not UTF-8 here", (uint8_t)p->text[at]);
    return rn_hint(s, "TOML files are UTF-8 text");
}

static rn_status refuse_control(rn_toml_parser *p, size_t at) {
    unsigned c = (unsigned char)p->text[at];
    if (c == '\r') return rn_toml_fail_at(p, at, "a carriage return without a line feed");
    rn_status s = rn_toml_fail_at(p, at, "control character U+%04X", c);
    if (c == 0) return rn_hint(s, "the file is binary or UTF-16; TOML files are UTF-8 text");
    return rn_hint(s, "in a string in double quotes, write it \\u%04X", c);
}

rn_status rn_toml_check_text(rn_toml_parser *p) {
    for (size_t at = 0; at < p->bytes;) {
        unsigned char c = (unsigned char)p->text[at];
        size_t length = c < 0x80 ? 1 : rn_utf8_sequence(p->text + at, p->bytes - at);
        if (length == 0) return refuse_utf8(p, at);
        if (is_control(c) && !(c == '\r' && p->text[at + 1] == '\n')) return refuse_control(p, at);
        at += length;
    }
    return RN_OK;
}

static void count_to(rn_toml_parser *p, size_t offset) {
    if (offset < p->counted) { // only an error looks back
        p->counted = rn_str_starts(p->doc->text, RN_STR("\xEF\xBB\xBF")) ? 3 : 0;
        p->line = p->column = 1;
    }
    for (; p->counted < offset; p->counted++) {
        unsigned char c = (unsigned char)p->text[p->counted];
        if (c == '\n') {
            p->line++;
            p->column = 1;
        } else if ((c & 0xC0) != 0x80) { // a character is counted at its first byte
            p->column++;
        }
    }
}

rn_status rn_toml_fail_at(rn_toml_parser *p, size_t offset, const char *format, ...) {
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    count_to(p, offset);
    return rn_fail(RN_CORRUPT, "line %u, column %u: %s", p->line, p->column, message);
}

rn_status rn_toml_fail_expected(rn_toml_parser *p, const char *what) {
    if (p->at >= p->bytes)
        return rn_toml_fail_at(p, p->at, "expected %s, found the end of the file", what);
    if (rn_toml_at_newline(p))
        return rn_toml_fail_at(p, p->at, "expected %s, found the end of the line", what);
    int length = (int)rn_utf8_sequence(p->text + p->at, p->bytes - p->at);
    return rn_toml_fail_at(p, p->at, "expected %s, found '%.*s'", what, length, p->text + p->at);
}

void rn_toml_mark(rn_toml_parser *p, rn_toml_value *value, size_t offset) {
    count_to(p, offset);
    value->line = p->line;
    value->column = p->column;
    value->begin = (uint32_t)offset;
}

bool rn_toml_at_newline(const rn_toml_parser *p) {
    return p->text[p->at] == '\n' || p->text[p->at] == '\r'; // a CR has its LF
}

void rn_toml_skip_space(rn_toml_parser *p) {
    while (p->text[p->at] == ' ' || p->text[p->at] == '\t')
        p->at++;
}

void rn_toml_skip_comment(rn_toml_parser *p) {
    if (p->text[p->at] != '#') return;
    while (p->at < p->bytes && !rn_toml_at_newline(p))
        p->at++;
}

void rn_toml_skip_lines(rn_toml_parser *p) {
    for (;;) {
        rn_toml_skip_space(p);
        rn_toml_skip_comment(p);
        if (!rn_toml_at_newline(p)) return;
        p->at++;
    }
}

rn_status rn_toml_end_line(rn_toml_parser *p, const char *after_what) {
    rn_toml_skip_space(p);
    rn_toml_skip_comment(p);
    if (p->at < p->bytes && !rn_toml_at_newline(p)) {
        char what[64];
        snprintf(what, sizeof what, "the end of the line after %s", after_what);
        return rn_toml_fail_expected(p, what);
    }
    rn_toml_skip_lines(p);
    return RN_OK;
}

static bool is_bare(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

rn_status rn_toml_parse_name(rn_toml_parser *p, rn_str *out) {
    char c = p->text[p->at];
    if (c == '"' || c == '\'') return rn_toml_parse_string(p, true, out);
    size_t begin = p->at;
    while (is_bare(p->text[p->at]))
        p->at++;
    if (p->at == begin) {
        rn_status s = rn_toml_fail_expected(p, "a key");
        if (strchr(".,=[]{}\r\n", c)) return s; // the key is missing, not misspelt
        return rn_hint(s, "keys of other characters than A-Z a-z 0-9 _ - need quotes");
    }
    *out = (rn_str){p->text + begin, p->at - begin};
    return RN_OK;
}

rn_str rn_toml_clip(rn_str name) {
    if (name.bytes <= 40) return name;
    name.bytes = 40;
    while (name.bytes > 0 && ((unsigned char)name.data[name.bytes] & 0xC0) == 0x80)
        name.bytes--;
    return name;
}

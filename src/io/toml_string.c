// toml_string.c — the four string forms.
//
// First the closing quotes are found, then the content is decoded. Content that needs no decoding
// (most of it) stays where it is in the document's copy of the text; decoding never makes it
// longer.
#include "io/toml_parser.h"

typedef struct quotes {
    size_t open;        // of the first quote
    size_t begin, end;  // the content
    char quote;         // '"' or '\''
    bool is_multi_line; // three quotes
    bool is_plain;      // nothing to decode
} quotes;

static rn_status refuse_unclosed(rn_toml_parser *p, const quotes *s) {
    if (s->is_multi_line)
        return rn_toml_fail_at(p, s->open, "this string is not closed with %c%c%c", s->quote,
                               s->quote, s->quote);
    rn_status status = rn_toml_fail_at(p, s->open, "this string is not closed on its line");
    return rn_hint(status, "close it with %c, or use three quotes for a string of several lines",
                   s->quote);
}

static bool is_escape(const rn_toml_parser *p, const quotes *s) {
    return s->quote == '"' && p->text[p->at] == '\\';
}

static bool at_triple(const rn_toml_parser *p, char quote) {
    const char *c = p->text + p->at;
    return c[0] == quote && c[1] == quote && c[2] == quote;
}

// Up to two quotes may stand right before the closing three: they are content.
static void close_triple(rn_toml_parser *p, quotes *s) {
    s->end = p->at;
    for (int extra = 0; extra < 2 && p->text[s->end + 3] == s->quote; extra++)
        s->end++;
    p->at = s->end + 3;
}

static rn_status find_close(rn_toml_parser *p, quotes *s) {
    while (p->at < p->bytes) {
        if (s->is_multi_line && at_triple(p, s->quote)) {
            close_triple(p, s);
            return RN_OK;
        }
        if (!s->is_multi_line && p->text[p->at] == s->quote) {
            s->end = p->at++;
            return RN_OK;
        }
        if (!s->is_multi_line && rn_toml_at_newline(p)) break;
        if (is_escape(p, s) || p->text[p->at] == '\r') s->is_plain = false;
        // What follows a backslash closes nothing; a line end still does.
        if (is_escape(p, s) && (p->text[p->at + 1] == '"' || p->text[p->at + 1] == '\\')) p->at++;
        p->at++;
    }
    return refuse_unclosed(p, s);
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// \uXXXX or \UXXXXXXXX at `at`; passes it and appends the character.
static rn_status decode_code_point(rn_toml_parser *p, size_t *at, char *out, size_t *used) {
    size_t digits = p->text[*at + 1] == 'u' ? 4 : 8;
    uint32_t code = 0;
    for (size_t i = 0; i < digits; i++) {
        int digit = hex_digit(p->text[*at + 2 + i]);
        if (digit < 0)
            return rn_toml_fail_at(p, *at, "\\%c needs %zu hexadecimal digits", p->text[*at + 1],
                                   digits);
        code = code << 4 | (uint32_t)digit;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        return rn_toml_fail_at(p, *at, "U+%04X is not a Unicode character", code);
    *used += rn_utf8_encode(code, out + *used);
    *at += 2 + digits;
    return RN_OK;
}

// A backslash at the end of a line swallows the line end and all white space after it.
static bool skip_line_end(const rn_toml_parser *p, const quotes *s, size_t *at) {
    const char *c = p->text + *at + 1;
    while (*c == ' ' || *c == '\t')
        c++;
    if (!s->is_multi_line || (*c != '\n' && *c != '\r')) return false;
    while (*c == ' ' || *c == '\t' || *c == '\n' || *c == '\r')
        c++;
    *at = (size_t)(c - p->text);
    return true;
}

static rn_status decode_escape(rn_toml_parser *p, const quotes *s, size_t *at, char *out,
                               size_t *used) {
    static const char names[] = "btnfr\"\\", meanings[] = "\b\t\n\f\r\"\\";
    char name = p->text[*at + 1];
    if (name == 'u' || name == 'U') return decode_code_point(p, at, out, used);
    const char *found = name ? strchr(names, name) : NULL;
    if (found) {
        out[(*used)++] = meanings[found - names];
        *at += 2;
        return RN_OK;
    }
    if (skip_line_end(p, s, at)) return RN_OK;
    rn_status status = rn_toml_fail_at(p, *at, "unknown escape in a string");
    return rn_hint(status,
                   "write \\\\ for a backslash, or use single quotes, where it means itself");
}

static rn_status decode(rn_toml_parser *p, const quotes *s, rn_str *out) {
    void *block;
    size_t used = 0;
    RN_TRY(rn_arena_alloc(&p->doc->arena, s->end - s->begin, &block));
    char *to = block;
    for (size_t at = s->begin; at < s->end;) {
        if (s->quote == '"' && p->text[at] == '\\')
            RN_TRY(decode_escape(p, s, &at, to, &used));
        else if (p->text[at] == '\r') // its LF follows
            at++;
        else
            to[used++] = p->text[at++];
    }
    *out = (rn_str){to, used};
    return RN_OK;
}

rn_status rn_toml_parse_string(rn_toml_parser *p, bool is_key, rn_str *out) {
    quotes s = {.open = p->at, .quote = p->text[p->at], .is_plain = true};
    s.is_multi_line = at_triple(p, s.quote);
    if (s.is_multi_line && is_key)
        return rn_toml_fail_at(p, p->at, "a key cannot be a multi-line string");
    p->at += s.is_multi_line ? 3 : 1;
    if (s.is_multi_line && p->text[p->at] == '\r') p->at++;
    if (s.is_multi_line && p->text[p->at] == '\n') p->at++; // right after the quotes: not content
    s.begin = p->at;
    RN_TRY(find_close(p, &s));
    if (!s.is_plain) return decode(p, &s, out);
    *out = (rn_str){p->text + s.begin, s.end - s.begin};
    return RN_OK;
}

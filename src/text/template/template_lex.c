// template_lex.c — the white space rules, the strings and the numbers of Jinja's lexer.
//
//     text {%- if x %}\n  text {{ y }} text {# note #} text
//          └─ '-': the text before loses its trailing white space
//                    └─ trim_blocks: one line break after a block or comment goes
//     lstrip_blocks: blanks between the line's beginning and a block or comment go, unless it
//     begins with '+'. The end tags "-%}", "-}}", "-#}" take the white space behind them.
#include "text/template/template_lex.h"

#include "base/str.h"
#include "text/template/template_text.h"
#include "text/template/template_value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

typedef struct lexing {
    const rn_jinja_source *source;
    rn_str text;
    size_t at;
    rn_arena *arena;
    rn_jinja_token **end;                // where the next token is hung up
    char brackets[RN_JINJA_MAX_NESTING]; // the closing ones that are due
    size_t bracket_count;
} lexing;

rn_status rn_jinja_complain(const rn_jinja_source *source, uint32_t at, rn_status status,
                            const char *format, ...) {
    char message[768];
    unsigned line = 1, column = 1;
    va_list args;
    for (size_t i = 0; i < at && i < source->text.bytes; i++) {
        unsigned char c = (unsigned char)source->text.data[i];
        if (c == '\n') {
            line++;
            column = 1;
        } else if ((c & 0xc0) != 0x80) {
            column++;
        }
    }
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    rn_str_clean(message);
    return rn_fail(status, "%s:%u:%u: %s", source->name, line, column, message);
}

rn_status rn_jinja_source_make(rn_arena *arena, const char *name, rn_str text,
                               rn_jinja_source *out) {
    void *copied_name, *copy;
    if (text.bytes > RN_JINJA_MAX_SOURCE_BYTES)
        return rn_fail(RN_UNSUPPORTED, "%s: the template has %zu bytes, the limit is %zu", name,
                       text.bytes, RN_JINJA_MAX_SOURCE_BYTES);
    if (!rn_utf8_valid(text)) return rn_fail(RN_CORRUPT, "%s: the template is not UTF-8", name);
    RN_TRY(rn_arena_copy(arena, name, strlen(name), &copied_name));
    RN_TRY(rn_arena_copy(arena, text.data, text.bytes, &copy));
    char *data = copy;
    size_t bytes = 0;
    for (size_t i = 0; i < text.bytes; i++) {
        if (data[i] == '\r' && i + 1 < text.bytes && data[i + 1] == '\n') continue;
        data[bytes++] = (char)(data[i] == '\r' ? '\n' : data[i]);
    }
    if (bytes > 0 && data[bytes - 1] == '\n') bytes--;
    *out = (rn_jinja_source){copied_name, {data, bytes}};
    return RN_OK;
}

static rn_status add(lexing *lexer, rn_jinja_token_kind kind, size_t at, rn_str text,
                     rn_jinja_token **out) {
    void *block;
    RN_TRY(rn_arena_alloc(lexer->arena, sizeof(rn_jinja_token), &block));
    rn_jinja_token *token = block;
    *token = (rn_jinja_token){.kind = kind, .at = (uint32_t)at, .text = text};
    *lexer->end = token;
    lexer->end = &token->next;
    if (out) *out = token;
    return RN_OK;
}

static bool starts(const lexing *lexer, size_t at, const char *what) {
    size_t bytes = strlen(what);
    return at + bytes <= lexer->text.bytes && memcmp(lexer->text.data + at, what, bytes) == 0;
}

static size_t skip_space(const lexing *lexer, size_t at) {
    size_t bytes;
    while (at < lexer->text.bytes && rn_jinja_is_space(rn_jinja_decode(lexer->text, at, &bytes)))
        at += bytes;
    return at;
}

static char byte_at(const lexing *lexer, size_t at) {
    return at < lexer->text.bytes ? lexer->text.data[at] : '\0';
}

// ---- text between tags -------------------------------------------------------------------

// Cuts what a tag's sign takes from the text [begin, end) before it; '\0' stands for no sign.
static size_t cut_before(const lexing *lexer, size_t begin, size_t end, char sign, bool is_print) {
    rn_str part = rn_jinja_text_part(lexer->text, begin, end);
    if (sign == '-') return begin + rn_jinja_strip(part, NULL, false, true).bytes;
    if (sign == '+' || is_print) return end;
    size_t line = end;
    while (line > begin && lexer->text.data[line - 1] != '\n')
        line--;
    bool at_line_start = line == 0 || lexer->text.data[line - 1] == '\n';
    return at_line_start && skip_space(lexer, line) >= end ? line : end;
}

static rn_status add_data(lexing *lexer, size_t begin, size_t end) {
    if (begin >= end) return RN_OK;
    return add(lexer, RN_TOKEN_DATA, begin, rn_jinja_text_part(lexer->text, begin, end), NULL);
}

static size_t skip_sign(const lexing *lexer, size_t at, char *out_sign) {
    char sign = byte_at(lexer, at);
    *out_sign = (char)(sign == '-' || sign == '+' ? sign : '\0');
    return at + (*out_sign != '\0');
}

// The end tag `close` at `at`, with the white space that belongs to it; 0 where it is none.
static size_t close_tag(const lexing *lexer, size_t at, const char *close) {
    char sign;
    size_t inner = skip_sign(lexer, at, &sign);
    if (sign == '+' && close[0] == '}') return 0;
    if (!starts(lexer, inner, close)) return 0;
    inner += 2;
    if (sign == '-') return skip_space(lexer, inner);
    if (sign == '\0' && close[0] != '}' && byte_at(lexer, inner) == '\n') inner++;
    return inner;
}

static rn_status skip_comment(lexing *lexer, size_t begin) {
    for (size_t at = begin; at < lexer->text.bytes; at++) {
        size_t end = close_tag(lexer, at, "#}");
        if (end) {
            lexer->at = end;
            return RN_OK;
        }
    }
    return rn_jinja_complain(lexer->source, (uint32_t)begin, RN_CORRUPT, "this comment has no end");
}

// Whether "{%" at `at` begins a raw block; *out is where its text begins.
static bool opens_raw(const lexing *lexer, size_t at, size_t *out) {
    char sign;
    at = skip_space(lexer, skip_sign(lexer, at + 2, &sign));
    if (!starts(lexer, at, "raw")) return false;
    at = skip_space(lexer, at + 3);
    if (starts(lexer, at, "-%}")) {
        *out = skip_space(lexer, at + 3);
        return true;
    }
    *out = at + 2;
    return starts(lexer, at, "%}");
}

static rn_status lex_raw(lexing *lexer, size_t begin) {
    for (size_t at = begin; at < lexer->text.bytes; at++) {
        char sign;
        if (!starts(lexer, at, "{%")) continue;
        size_t inner = skip_space(lexer, skip_sign(lexer, at + 2, &sign));
        if (!starts(lexer, inner, "endraw")) continue;
        size_t end = close_tag(lexer, skip_space(lexer, inner + 6), "%}");
        if (!end) continue;
        lexer->at = end;
        return add_data(lexer, begin, cut_before(lexer, begin, at, sign, false));
    }
    return rn_jinja_complain(lexer->source, (uint32_t)begin, RN_CORRUPT,
                             "this raw block has no end");
}

// ---- strings -----------------------------------------------------------------------------

static int digit_of(char c, int base) {
    int digit = c >= '0' && c <= '9'                 ? c - '0'
                : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 87
                                                     : 99;
    return digit < base ? digit : -1;
}

// Up to `most` digits at `at`; returns their count.
static size_t read_digits(const lexing *lexer, size_t at, size_t most, int base, uint32_t *out) {
    size_t count = 0;
    *out = 0;
    while (count < most && digit_of(byte_at(lexer, at + count), base) >= 0)
        *out = *out * (uint32_t)base + (uint32_t)digit_of(byte_at(lexer, at + count++), base);
    return count;
}

static rn_status bad_escape(lexing *lexer, size_t at, rn_status status) {
    return rn_jinja_complain(lexer->source, (uint32_t)at, status,
                             status == RN_CORRUPT ? "this escape is cut short or too large"
                                                  : "this escape in a string is not supported");
}

// \x, \u, \U and octal escapes at the backslash `at`; advances *io_at behind them.
static rn_status decode_number(lexing *lexer, size_t *io_at, char *out, size_t *io_bytes) {
    size_t at = *io_at;
    char kind = byte_at(lexer, at + 1);
    size_t most = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 3;
    bool is_octal = most == 3;
    uint32_t code_point;
    size_t begin = at + (is_octal ? 1 : 2);
    size_t count = read_digits(lexer, begin, most, is_octal ? 8 : 16, &code_point);
    if ((!is_octal && count < most) || code_point > 0x10ffff)
        return bad_escape(lexer, at, RN_CORRUPT);
    if (code_point >= 0xd800 && code_point < 0xe000) return bad_escape(lexer, at, RN_UNSUPPORTED);
    *io_bytes += rn_utf8_encode(code_point, out + *io_bytes);
    *io_at = begin + count;
    return RN_OK;
}

static rn_status decode_escape(lexing *lexer, size_t *io_at, char *out, size_t *io_bytes) {
    static const char plain[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    char c = byte_at(lexer, *io_at + 1);
    if (c == 'x' || c == 'u' || c == 'U' || digit_of(c, 8) >= 0)
        return decode_number(lexer, io_at, out, io_bytes);
    // Jinja reads these two by way of Python's "unicode-escape", with surprising results.
    if (c == 'N' || (unsigned char)c >= 0x80) return bad_escape(lexer, *io_at, RN_UNSUPPORTED);
    *io_at += 2;
    if (c == '\n') return RN_OK;
    for (size_t i = 0; plain[i]; i += 2)
        if (plain[i] == c) {
            out[(*io_bytes)++] = plain[i + 1];
            return RN_OK;
        }
    out[(*io_bytes)++] = '\\';
    out[(*io_bytes)++] = c;
    return RN_OK;
}

static rn_status lex_string(lexing *lexer) {
    size_t begin = lexer->at, end = begin + 1, bytes = 0;
    char quote = lexer->text.data[begin];
    while (end < lexer->text.bytes && lexer->text.data[end] != quote)
        end += lexer->text.data[end] == '\\' ? 2 : 1;
    if (end >= lexer->text.bytes)
        return rn_jinja_complain(lexer->source, (uint32_t)begin, RN_CORRUPT,
                                 "this string has no end");
    void *block;
    RN_TRY(rn_arena_alloc(lexer->arena, end - begin, &block)); // escapes are never shorter
    char *decoded = block;
    for (size_t at = begin + 1; at < end;) {
        if (lexer->text.data[at] == '\\')
            RN_TRY(decode_escape(lexer, &at, decoded, &bytes));
        else
            decoded[bytes++] = lexer->text.data[at++];
    }
    lexer->at = end + 1;
    return add(lexer, RN_TOKEN_STRING, begin, (rn_str){decoded, bytes}, NULL);
}

// ---- numbers, names, operators -------------------------------------------------------------

// Digits of `base` with single underscores between them (one may come first where `lead`); returns
// the end.
static size_t scan_digits(const lexing *lexer, size_t at, int base, bool lead) {
    size_t end = at;
    for (;;) {
        size_t next = end + (byte_at(lexer, end) == '_' && (lead || end > at));
        if (digit_of(byte_at(lexer, next), base) < 0) return end;
        end = next + 1;
    }
}

static rn_status lex_whole(lexing *lexer, size_t begin, size_t digits, size_t end, int base) {
    int64_t whole = 0;
    rn_jinja_token *token;
    for (size_t i = digits; i < end; i++) {
        char c = lexer->text.data[i];
        if (c != '_' && (__builtin_mul_overflow(whole, (int64_t)base, &whole) ||
                         __builtin_add_overflow(whole, (int64_t)digit_of(c, base), &whole)))
            return rn_jinja_complain(lexer->source, (uint32_t)begin, RN_UNSUPPORTED,
                                     "numbers beyond 64 bits are not supported");
    }
    lexer->at = end;
    RN_TRY(add(lexer, RN_TOKEN_INT, begin, (rn_str){"", 0}, &token));
    token->whole = whole;
    return RN_OK;
}

static rn_status lex_real(lexing *lexer, size_t begin, size_t end) {
    char digits[64];
    size_t bytes = 0;
    bool good = false;
    double real = 0;
    rn_jinja_token *token;
    for (size_t i = begin; i < end && bytes < sizeof digits; i++)
        if (lexer->text.data[i] != '_') digits[bytes++] = lexer->text.data[i];
    if (bytes < sizeof digits) RN_TRY(rn_jinja_parse_float((rn_str){digits, bytes}, &good, &real));
    if (!good || !isfinite(real))
        return rn_jinja_complain(lexer->source, (uint32_t)begin, RN_UNSUPPORTED,
                                 "numbers of this size are not supported");
    lexer->at = end;
    RN_TRY(add(lexer, RN_TOKEN_FLOAT, begin, (rn_str){"", 0}, &token));
    token->real = real;
    return RN_OK;
}

static rn_status lex_number(lexing *lexer) {
    size_t begin = lexer->at, end = scan_digits(lexer, begin, 10, false);
    size_t whole_end = end;
    bool after_dot = begin > 0 && lexer->text.data[begin - 1] == '.'; // x.1.5 is x[1][5]
    if (!after_dot && byte_at(lexer, end) == '.') {
        size_t fraction = scan_digits(lexer, end + 1, 10, false);
        if (fraction > end + 1) end = fraction;
    }
    if (!after_dot && (byte_at(lexer, end) | 32) == 'e') {
        char sign;
        size_t digits = skip_sign(lexer, end + 1, &sign);
        size_t exponent = scan_digits(lexer, digits, 10, false);
        if (exponent > digits) end = exponent;
    }
    if (end > whole_end) return lex_real(lexer, begin, end);
    if (lexer->text.data[begin] != '0') return lex_whole(lexer, begin, begin, end, 10);
    char kind = (char)(byte_at(lexer, begin + 1) | 32);
    int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    size_t other = base == 10 ? 0 : scan_digits(lexer, begin + 2, base, true);
    if (base != 10 && other > begin + 2) return lex_whole(lexer, begin, begin + 2, other, base);
    return lex_whole(lexer, begin, begin, scan_digits(lexer, begin, 1, false), 10);
}

static bool is_name_char(char c) {
    return c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

static rn_status lex_name(lexing *lexer) {
    size_t begin = lexer->at, end = begin;
    while (is_name_char(byte_at(lexer, end)))
        end++;
    lexer->at = end;
    return add(lexer, RN_TOKEN_NAME, begin, rn_jinja_text_part(lexer->text, begin, end), NULL);
}

static rn_status match_bracket(lexing *lexer, char c) {
    char due = (char)(c == '(' ? ')' : c == '[' ? ']' : c == '{' ? '}' : '\0');
    if (due) {
        if (lexer->bracket_count == RN_JINJA_MAX_NESTING)
            return rn_jinja_complain(lexer->source, (uint32_t)lexer->at, RN_UNSUPPORTED,
                                     "more than %d brackets in each other", RN_JINJA_MAX_NESTING);
        lexer->brackets[lexer->bracket_count++] = due;
        return RN_OK;
    }
    if (c != ')' && c != ']' && c != '}') return RN_OK;
    if (lexer->bracket_count > 0 && lexer->brackets[--lexer->bracket_count] == c) return RN_OK;
    return rn_jinja_complain(lexer->source, (uint32_t)lexer->at, RN_CORRUPT, "unexpected '%c'", c);
}

static rn_status lex_operator(lexing *lexer) {
    static const struct {
        const char *text;
        rn_jinja_token_kind kind;
    } operators[] = {
        // the longer ones first
        {"//", RN_TOKEN_FLOORDIV}, {"**", RN_TOKEN_POW},      {"==", RN_TOKEN_EQ},
        {"!=", RN_TOKEN_NE},       {">=", RN_TOKEN_GE},       {"<=", RN_TOKEN_LE},
        {"+", RN_TOKEN_ADD},       {"-", RN_TOKEN_SUB},       {"/", RN_TOKEN_DIV},
        {"*", RN_TOKEN_MUL},       {"%", RN_TOKEN_MOD},       {"~", RN_TOKEN_TILDE},
        {"[", RN_TOKEN_LBRACKET},  {"]", RN_TOKEN_RBRACKET},  {"(", RN_TOKEN_LPAREN},
        {")", RN_TOKEN_RPAREN},    {"{", RN_TOKEN_LBRACE},    {"}", RN_TOKEN_RBRACE},
        {">", RN_TOKEN_GT},        {"<", RN_TOKEN_LT},        {"=", RN_TOKEN_ASSIGN},
        {".", RN_TOKEN_DOT},       {":", RN_TOKEN_COLON},     {"|", RN_TOKEN_PIPE},
        {",", RN_TOKEN_COMMA},     {";", RN_TOKEN_SEMICOLON},
    };
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        if (!starts(lexer, lexer->at, operators[i].text)) continue;
        RN_TRY(match_bracket(lexer, operators[i].text[0]));
        RN_TRY(add(lexer, operators[i].kind, lexer->at, (rn_str){"", 0}, NULL));
        lexer->at += strlen(operators[i].text);
        return RN_OK;
    }
    bool is_ascii = (unsigned char)byte_at(lexer, lexer->at) < 0x80;
    return rn_jinja_complain(lexer->source, (uint32_t)lexer->at,
                             is_ascii ? RN_CORRUPT : RN_UNSUPPORTED,
                             is_ascii ? "unexpected character '%c'"
                                      : "names of other than ASCII letters are not supported",
                             byte_at(lexer, lexer->at));
}

static rn_status lex_item(lexing *lexer) {
    char c = byte_at(lexer, lexer->at);
    if (c >= '0' && c <= '9') return lex_number(lexer);
    if (is_name_char(c)) return lex_name(lexer);
    if (c == '"' || c == '\'') return lex_string(lexer);
    return lex_operator(lexer);
}

// The tokens of a tag up to its end, which counts only where all brackets are closed.
static rn_status lex_tag(lexing *lexer, const char *close, rn_jinja_token_kind end_kind) {
    for (;;) {
        size_t end = lexer->bracket_count == 0 ? close_tag(lexer, lexer->at, close) : 0;
        if (end) {
            RN_TRY(add(lexer, end_kind, lexer->at, (rn_str){"", 0}, NULL));
            lexer->at = end;
            return RN_OK;
        }
        size_t next = skip_space(lexer, lexer->at);
        if (next > lexer->at) {
            lexer->at = next;
            continue;
        }
        if (lexer->at >= lexer->text.bytes)
            return rn_jinja_complain(lexer->source, (uint32_t)lexer->at, RN_CORRUPT,
                                     "the template ends inside a tag: expected '%s'", close);
        RN_TRY(lex_item(lexer));
    }
}

// The tag at `open`, with the text before it.
static rn_status lex_open(lexing *lexer, size_t open) {
    char kind = lexer->text.data[open + 1], sign;
    size_t begin = lexer->at, inner = skip_sign(lexer, open + 2, &sign), raw;
    RN_TRY(add_data(lexer, begin, cut_before(lexer, begin, open, sign, kind == '{')));
    lexer->at = inner;
    if (kind == '#') return skip_comment(lexer, inner);
    if (kind == '%' && opens_raw(lexer, open, &raw)) return lex_raw(lexer, raw);
    RN_TRY(add(lexer, kind == '{' ? RN_TOKEN_PRINT_BEGIN : RN_TOKEN_BLOCK_BEGIN, open,
               (rn_str){"", 0}, NULL));
    return kind == '{' ? lex_tag(lexer, "}}", RN_TOKEN_PRINT_END)
                       : lex_tag(lexer, "%}", RN_TOKEN_BLOCK_END);
}

static size_t find_open(const lexing *lexer, size_t at) {
    while (at + 1 < lexer->text.bytes) {
        char next = lexer->text.data[at + 1];
        if (lexer->text.data[at] == '{' && (next == '{' || next == '%' || next == '#')) return at;
        at++;
    }
    return lexer->text.bytes;
}

rn_status rn_jinja_lex(const rn_jinja_source *source, rn_arena *arena, rn_jinja_token **out) {
    lexing lexer = {.source = source, .text = source->text, .arena = arena, .end = out};
    while (lexer.at < lexer.text.bytes) {
        size_t open = find_open(&lexer, lexer.at);
        if (open == lexer.text.bytes) {
            RN_TRY(add_data(&lexer, lexer.at, open));
            break;
        }
        RN_TRY(lex_open(&lexer, open));
    }
    return add(&lexer, RN_TOKEN_END, lexer.text.bytes, (rn_str){"", 0}, NULL);
}

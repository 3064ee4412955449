// json_read.c — one pass over the text with a bit for each open level.
#include "io/json_read.h"

#include "base/checked.h"

static rn_status fail_at(const rn_json_reader *reader, const char *what) {
    uint64_t at = reader->base + reader->at;
    return rn_error_locate(
        rn_fail(RN_CORRUPT, "JSON: %s at byte %llu", what, (unsigned long long)at), "", at);
}

void rn_json_reader_init(rn_json_reader *reader, rn_str text, const rn_allocator *from) {
    *reader = (rn_json_reader){.text = text};
    rn_buffer_init(&reader->unescaped, from, text.bytes);
}

void rn_json_reader_free(rn_json_reader *reader) {
    rn_buffer_free(&reader->unescaped);
}

const char *rn_json_kind_name(rn_json_kind kind) {
    static const char *const names[] = {"an object",
                                        "the end of an object",
                                        "an array",
                                        "the end of an array",
                                        "a key",
                                        "a string",
                                        "a number",
                                        "true",
                                        "false",
                                        "null",
                                        "the end of the text"};
    return names[kind];
}

static int peek(const rn_json_reader *reader) {
    return reader->at < reader->text.bytes ? (unsigned char)reader->text.data[reader->at] : -1;
}

static void skip_space(rn_json_reader *reader) {
    for (int c; (c = peek(reader)) == ' ' || c == '\t' || c == '\n' || c == '\r';)
        reader->at++;
}

// ---- strings --------------------------------------------------------------------------

static rn_status read_hex4(rn_json_reader *reader, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 4; i++, reader->at++) {
        int c = peek(reader), digit;
        if (c >= '0' && c <= '9')
            digit = c - '0';
        else if (c >= 'a' && c <= 'f')
            digit = c - 'a' + 10;
        else if (c >= 'A' && c <= 'F')
            digit = c - 'A' + 10;
        else
            return fail_at(reader, "bad \\u escape");
        *out = *out << 4 | (uint32_t)digit;
    }
    return RN_OK;
}

static rn_status read_unicode(rn_json_reader *reader) {
    uint32_t code, low;
    char utf8[4];
    RN_TRY(read_hex4(reader, &code));
    if (code >= 0xDC00 && code <= 0xDFFF) return fail_at(reader, "lone surrogate");
    if (code >= 0xD800 && code <= 0xDBFF) {
        if (peek(reader) != '\\') return fail_at(reader, "lone surrogate");
        reader->at++;
        if (peek(reader) != 'u') return fail_at(reader, "lone surrogate");
        reader->at++;
        RN_TRY(read_hex4(reader, &low));
        if (low < 0xDC00 || low > 0xDFFF) return fail_at(reader, "lone surrogate");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    return rn_buffer_append(&reader->unescaped, utf8, rn_utf8_encode(code, utf8));
}

static rn_status read_escape(rn_json_reader *reader) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    reader->at++; // the backslash
    int c = peek(reader);
    if (c == 'u') {
        reader->at++;
        return read_unicode(reader);
    }
    const char *found = c > 0 ? strchr(from, c) : NULL;
    if (!found) return fail_at(reader, "bad escape");
    reader->at++;
    return rn_buffer_append(&reader->unescaped, &to[found - from], 1);
}

// Without escapes the result is a view of the text itself.
static rn_status read_string(rn_json_reader *reader, rn_str *out) {
    size_t run = ++reader->at; // start of the bytes not yet copied
    bool copied = false;
    reader->unescaped.bytes = 0;
    while (true) {
        int c = peek(reader);
        if (c < 0) return fail_at(reader, "a string does not end");
        if (c == '"') break;
        if (c < 0x20) return fail_at(reader, "a control character in a string");
        if (c == '\\') {
            copied = true;
            RN_TRY(rn_buffer_append(&reader->unescaped, reader->text.data + run, reader->at - run));
            RN_TRY(read_escape(reader));
            run = reader->at;
            continue;
        }
        size_t length =
            rn_utf8_sequence(reader->text.data + reader->at, reader->text.bytes - reader->at);
        if (length == 0) return fail_at(reader, "text that is not UTF-8");
        reader->at += length;
    }
    *out = (rn_str){reader->text.data + run, reader->at - run};
    if (copied) {
        RN_TRY(rn_buffer_append(&reader->unescaped, out->data, out->bytes));
        *out = (rn_str){reader->unescaped.data, reader->unescaped.bytes};
    }
    reader->at++;
    return RN_OK;
}

// ---- numbers and words ----------------------------------------------------------------

static bool skip_digits(rn_json_reader *reader) {
    size_t from = reader->at;
    for (int c; (c = peek(reader)) >= '0' && c <= '9';)
        reader->at++;
    return reader->at > from;
}

static rn_status read_number(rn_json_reader *reader, rn_str *out) {
    size_t from = reader->at;
    if (peek(reader) == '-') reader->at++;
    if (peek(reader) == '0')
        reader->at++;
    else if (!skip_digits(reader))
        return fail_at(reader, "bad number");
    int c = peek(reader);
    if (c >= '0' && c <= '9') return fail_at(reader, "a number with a leading zero");
    if (c == '.') {
        reader->at++;
        if (!skip_digits(reader)) return fail_at(reader, "bad number");
    }
    if ((c = peek(reader)) == 'e' || c == 'E') {
        reader->at++;
        if ((c = peek(reader)) == '+' || c == '-') reader->at++;
        if (!skip_digits(reader)) return fail_at(reader, "bad number");
    }
    *out = (rn_str){reader->text.data + from, reader->at - from};
    return RN_OK;
}

static rn_status read_word(rn_json_reader *reader, rn_str word) {
    rn_str rest = {reader->text.data + reader->at, reader->text.bytes - reader->at};
    if (!rn_str_starts(rest, word)) return fail_at(reader, "bad value");
    reader->at += word.bytes;
    return RN_OK;
}

// ---- structure ------------------------------------------------------------------------

static bool in_array(const rn_json_reader *reader) {
    return reader->depth > 0 && (reader->arrays >> (reader->depth - 1) & 1);
}

static void value_done(rn_json_reader *reader) {
    reader->after_key = false;
    reader->need_comma = true;
    if (reader->depth == 0) reader->done = true;
}

static rn_status open_level(rn_json_reader *reader, bool array) {
    if (reader->depth == RN_JSON_READ_DEPTH) return fail_at(reader, "nesting too deep");
    reader->at++;
    if (array)
        reader->arrays |= (uint64_t)1 << reader->depth;
    else
        reader->arrays &= ~((uint64_t)1 << reader->depth);
    reader->depth++;
    reader->need_comma = reader->after_key = false;
    reader->just_opened = true;
    return RN_OK;
}

static rn_status read_value(rn_json_reader *reader, rn_json_item *out) {
    int c = peek(reader);
    if (c == '{' || c == '[') {
        out->kind = c == '{' ? RN_JSON_OBJECT : RN_JSON_ARRAY;
        return open_level(reader, c == '[');
    }
    rn_status s;
    if (c == '"')
        out->kind = RN_JSON_STRING, s = read_string(reader, &out->text);
    else if (c == 't')
        out->kind = RN_JSON_TRUE, s = read_word(reader, RN_STR("true"));
    else if (c == 'f')
        out->kind = RN_JSON_FALSE, s = read_word(reader, RN_STR("false"));
    else if (c == 'n')
        out->kind = RN_JSON_NULL, s = read_word(reader, RN_STR("null"));
    else if (c == '-' || (c >= '0' && c <= '9'))
        out->kind = RN_JSON_NUMBER, s = read_number(reader, &out->text);
    else
        s = fail_at(reader, "a value is expected");
    value_done(reader);
    return s;
}

static rn_status read_key(rn_json_reader *reader, rn_json_item *out) {
    if (peek(reader) != '"') return fail_at(reader, "a key must be a string");
    out->kind = RN_JSON_KEY;
    RN_TRY(read_string(reader, &out->text));
    skip_space(reader);
    if (peek(reader) != ':') return fail_at(reader, "missing ':'");
    reader->at++;
    reader->after_key = true;
    return RN_OK;
}

static rn_status read_end(rn_json_reader *reader, rn_json_item *out) {
    if (peek(reader) >= 0) return fail_at(reader, "text after the end");
    out->kind = RN_JSON_END;
    return RN_OK;
}

static rn_status close_level(rn_json_reader *reader, rn_json_item *out) {
    out->kind = in_array(reader) ? RN_JSON_ARRAY_END : RN_JSON_OBJECT_END;
    reader->at++;
    reader->depth--;
    value_done(reader);
    return RN_OK;
}

rn_status rn_json_next(rn_json_reader *reader, rn_json_item *out) {
    skip_space(reader);
    *out = (rn_json_item){.offset = reader->base + reader->at};
    if (reader->done) return read_end(reader, out);
    bool opened = reader->just_opened;
    reader->just_opened = false;
    if (reader->depth == 0 || reader->after_key) return read_value(reader, out);
    int close = in_array(reader) ? ']' : '}';
    if (peek(reader) == close && (opened || reader->need_comma)) return close_level(reader, out);
    if (reader->need_comma) {
        if (peek(reader) != ',') return fail_at(reader, "missing ','");
        reader->at++;
        reader->need_comma = false;
        skip_space(reader);
        out->offset = reader->base + reader->at;
    }
    return in_array(reader) ? read_value(reader, out) : read_key(reader, out);
}

rn_status rn_json_expect(rn_json_reader *reader, rn_json_kind kind, rn_json_item *out) {
    rn_json_item item;
    RN_TRY(rn_json_next(reader, &item));
    if (item.kind != kind) {
        rn_status s = rn_fail(RN_CORRUPT, "JSON: %s where %s is expected, at byte %llu",
                              rn_json_kind_name(item.kind), rn_json_kind_name(kind),
                              (unsigned long long)item.offset);
        return rn_error_locate(s, "", item.offset);
    }
    if (out) *out = item;
    return RN_OK;
}

rn_status rn_json_skip(rn_json_reader *reader) {
    rn_json_item item;
    int level = reader->depth;
    do {
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_END) return fail_at(reader, "a value is missing");
    } while (reader->depth > level || item.kind == RN_JSON_KEY);
    return RN_OK;
}

rn_status rn_json_skip_rest(rn_json_reader *reader, const rn_json_item *first) {
    rn_json_item item = *first;
    if (item.kind == RN_JSON_KEY) return rn_json_skip(reader);
    if (item.kind != RN_JSON_OBJECT && item.kind != RN_JSON_ARRAY) return RN_OK;
    for (int level = reader->depth; reader->depth >= level;)
        RN_TRY(rn_json_next(reader, &item));
    return RN_OK;
}

rn_status rn_json_u64_of(const rn_json_item *item, uint64_t *out) {
    *out = 0;
    bool whole = item->kind == RN_JSON_NUMBER;
    for (size_t i = 0; whole && i < item->text.bytes; i++) {
        char c = item->text.data[i];
        whole = c >= '0' && c <= '9' && rn_mul_u64(*out, 10, out) &&
                rn_add_u64(*out, (uint64_t)(c - '0'), out);
    }
    if (whole) return RN_OK;
    rn_status s = rn_fail(RN_CORRUPT, "JSON: %s where a whole number is expected, at byte %llu",
                          rn_json_kind_name(item->kind), (unsigned long long)item->offset);
    return rn_error_locate(s, "", item->offset);
}

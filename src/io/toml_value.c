// toml_value.c — values: which kind begins here, and the two kinds that hold others.
#include "io/toml_parser.h"

static bool is_word(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '+' || c == '-' || c == '.' || c == ':';
}

static rn_status refuse_word(rn_toml_parser *p, rn_str word) {
    static const char *const known[] = {"true", "false", "inf", "nan"};
    rn_str shown = rn_toml_clip(word);
    if (word.bytes == 0) return rn_toml_fail_expected(p, "a value");
    rn_status s = rn_toml_fail_at(p, p->at, "'%.*s' is not a value", RN_STR_ARG(shown));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (rn_str_equal_ignoring_case(word, rn_str_from(known[i])))
            return rn_hint(s, "it is written %s", known[i]);
    return rn_hint(s, "strings need quotes");
}

// Booleans, numbers, dates and times: what has no opening character of its own.
static rn_status parse_word(rn_toml_parser *p, rn_toml_value *value) {
    if (rn_toml_at_time(p)) return rn_toml_parse_time(p, value);
    size_t end = p->at;
    while (is_word(p->text[end]))
        end++;
    rn_str word = {p->text + p->at, end - p->at};
    bool is_true = rn_str_equal(word, RN_STR("true"));
    if (is_true || rn_str_equal(word, RN_STR("false"))) {
        value->type = RN_TOML_BOOL;
        value->boolean = is_true;
        p->at = end;
        return RN_OK;
    }
    bool numeric =
        word.bytes > 0 && (strchr("+-.0123456789", word.data[0]) ||
                           rn_str_equal(word, RN_STR("inf")) || rn_str_equal(word, RN_STR("nan")));
    return numeric ? rn_toml_parse_number(p, end, value) : refuse_word(p, word);
}

static rn_status refuse_end(rn_toml_parser *p, const rn_toml_value *value, const char *expected) {
    bool is_array = value->type == RN_TOML_ARRAY;
    if (p->at >= p->bytes)
        return rn_toml_fail_at(p, value->begin, "this %s is not closed",
                               is_array ? "array" : "inline table");
    rn_status s = rn_toml_fail_expected(p, expected);
    bool breaks_line = !is_array && (rn_toml_at_newline(p) || p->text[p->at] == '#');
    return breaks_line ? rn_hint(s, "an inline table stands on one line, without comments") : s;
}

static rn_status parse_array(rn_toml_parser *p, rn_toml_value *array) {
    p->at++;
    for (rn_toml_skip_lines(p); p->text[p->at] != ']'; rn_toml_skip_lines(p)) {
        if (p->at >= p->bytes) return refuse_end(p, array, "");
        RN_TRY(rn_toml_parse_value(p, array, (rn_str){NULL, 0}));
        rn_toml_skip_lines(p);
        if (p->text[p->at] == ']') break;
        if (p->text[p->at] != ',') return refuse_end(p, array, "',' or ']' in this array");
        p->at++;
    }
    p->at++;
    return RN_OK;
}

static rn_status parse_inline_entries(rn_toml_parser *p, rn_toml_value *table) {
    rn_toml_skip_space(p);
    if (p->text[p->at] == '}') return RN_OK;
    for (;; p->at++) {
        rn_toml_skip_space(p);
        if (table->items.count > 0 && p->text[p->at] == '}')
            return rn_toml_fail_at(p, p->at, "an inline table cannot end with a comma");
        if (p->at >= p->bytes || rn_toml_at_newline(p)) return refuse_end(p, table, "a key");
        RN_TRY(rn_toml_parse_entry(p, table));
        rn_toml_skip_space(p);
        if (p->text[p->at] == '}') return RN_OK;
        if (p->text[p->at] != ',') return refuse_end(p, table, "',' or '}' in this inline table");
    }
}

static rn_status parse_inline_table(rn_toml_parser *p, rn_toml_value *table) {
    p->at++;
    table->items.last_begin = table->begin;
    table->items.last_end = table->begin + 1;
    RN_TRY(parse_inline_entries(p, table));
    p->at++;
    return RN_OK;
}

static rn_status parse_content(rn_toml_parser *p, rn_toml_value *value) {
    switch (p->text[p->at]) {
    case '"':
    case '\'':
        value->type = RN_TOML_STRING;
        return rn_toml_parse_string(p, false, &value->string);
    case '[':
        value->type = RN_TOML_ARRAY;
        return parse_array(p, value);
    case '{':
        value->type = RN_TOML_TABLE;
        value->form = RN_TOML_INLINE;
        return parse_inline_table(p, value);
    default:
        return parse_word(p, value);
    }
}

rn_status rn_toml_parse_value(rn_toml_parser *p, rn_toml_value *parent, rn_str key) {
    rn_toml_value *value;
    RN_TRY(rn_toml_check_depth(p, parent, p->at));
    RN_TRY(rn_toml_add(p->doc, parent, key, RN_TOML_BOOL, RN_TOML_PLAIN, &value));
    rn_toml_mark(p, value, p->at);
    RN_TRY(parse_content(p, value));
    value->end = (uint32_t)p->at;
    return RN_OK;
}

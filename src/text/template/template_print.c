// template_print.c — str() and repr(): how Python writes each value.
#include "text/template/template_run.h"
#include "text/template/template_text.h"

#include "base/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// ---- floats ------------------------------------------------------------------------------

// "d.ddde+xx" with as few digits as read back the same. The decimal point is the locale's: it is
// written and read by the same rules here, and dropped afterwards.
static void find_digits(double value, char out[RN_JINJA_FLOAT_TEXT]) {
    for (int precision = 0; precision < 17; precision++) {
        snprintf(out, RN_JINJA_FLOAT_TEXT, "%.*e", precision, value);
        if (strtod(out, NULL) == value) return;
    }
}

size_t rn_jinja_format_float(double value, char out[RN_JINJA_FLOAT_TEXT]) {
    char shortest[RN_JINJA_FLOAT_TEXT], digits[RN_JINJA_FLOAT_TEXT] = "";
    int count = 0;
    size_t bytes = 0;
    find_digits(fabs(value), shortest);
    char *e = strchr(shortest, 'e');
    int exponent = atoi(e + 1);
    for (const char *c = shortest; c < e; c++)
        if (*c >= '0' && *c <= '9') digits[count++] = *c;
    if (signbit(value)) out[bytes++] = '-';
    bool scientific = exponent < -4 || exponent >= 16;
    int point = scientific ? 1 : exponent + 1; // digits before the point
    for (int i = point; i <= 0; i++) {
        out[bytes++] = '0';
        if (i == point) out[bytes++] = '.';
    }
    for (int i = 0; i < count || i < point; i++) {
        if (i == point && i > 0) out[bytes++] = '.';
        out[bytes++] = (char)(i < count ? digits[i] : '0');
    }
    if (!scientific && count <= point) {
        out[bytes++] = '.';
        out[bytes++] = '0';
    }
    if (scientific)
        bytes +=
            (size_t)snprintf(out + bytes, 8, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    return bytes;
}

static bool is_float_syntax(rn_str text) {
    size_t at = 0, digits = 0;
    if (at < text.bytes && (text.data[at] == '-' || text.data[at] == '+')) at++;
    for (bool point = false; at < text.bytes; at++) {
        if (text.data[at] == '.' && !point)
            point = true;
        else if (text.data[at] >= '0' && text.data[at] <= '9')
            digits++;
        else
            break;
    }
    if (digits == 0 || at == text.bytes) return digits > 0;
    if ((text.data[at++] | 32) != 'e') return false;
    if (at < text.bytes && (text.data[at] == '-' || text.data[at] == '+')) at++;
    digits = at;
    while (at < text.bytes && text.data[at] >= '0' && text.data[at] <= '9')
        at++;
    return at > digits && at == text.bytes;
}

rn_status rn_jinja_parse_float(rn_str text, bool *out_good, double *out) {
    *out_good = text.bytes < 64 && is_float_syntax(text);
    return *out_good ? rn_number_read(text, out) : RN_OK;
}

// ---- text --------------------------------------------------------------------------------

// One code point inside quotes that cannot stand there as it is.
static rn_status write_escaped(rn_jinja_run *run, uint32_t c) {
    char text[16];
    const char *format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
    if (c == '\n') return rn_jinja_write(run, RN_STR("\\n"));
    if (c == '\r') return rn_jinja_write(run, RN_STR("\\r"));
    if (c == '\t') return rn_jinja_write(run, RN_STR("\\t"));
    if (c == '\\') return rn_jinja_write(run, RN_STR("\\\\"));
    if (c == '\'') return rn_jinja_write(run, RN_STR("\\'"));
    int bytes = snprintf(text, sizeof text, format, (unsigned)c);
    return rn_jinja_write(run, (rn_str){text, (size_t)bytes});
}

// Double quotes only around text that has single quotes, and no double ones.
static rn_status print_quoted(rn_jinja_run *run, rn_str text) {
    bool has_single = text.bytes && memchr(text.data, '\'', text.bytes);
    bool has_double = text.bytes && memchr(text.data, '"', text.bytes);
    char quote = (char)(has_single && !has_double ? '"' : '\'');
    size_t done = 0;
    RN_TRY(rn_jinja_write(run, (rn_str){&quote, 1}));
    for (size_t at = 0, bytes; at < text.bytes; at += bytes) {
        uint32_t c = rn_jinja_decode(text, at, &bytes);
        bool plain = rn_jinja_is_printable(c) && c != '\\' && (c != '\'' || quote == '"');
        if (plain) continue;
        RN_TRY(rn_jinja_write(run, rn_jinja_text_part(text, done, at)));
        RN_TRY(write_escaped(run, c));
        done = at + bytes;
    }
    RN_TRY(rn_jinja_write(run, rn_jinja_text_part(text, done, text.bytes)));
    return rn_jinja_write(run, (rn_str){&quote, 1});
}

// ---- containers --------------------------------------------------------------------------

static rn_status print_items(rn_jinja_run *run, rn_jinja_value over) {
    rn_jinja_iterator walk;
    rn_jinja_value item = rn_jinja_none();
    bool more = false;
    RN_TRY(rn_jinja_iterate(run, over, &walk));
    for (bool first = true;; first = false) {
        RN_TRY(rn_jinja_next(run, &walk, &more, &item));
        if (!more) return RN_OK;
        if (!first) RN_TRY(rn_jinja_write(run, RN_STR(", ")));
        RN_TRY(rn_jinja_print_repr(run, item));
    }
}

static rn_status print_dict(rn_jinja_run *run, const rn_jinja_dict *dict) {
    RN_TRY(rn_jinja_write(run, RN_STR("{")));
    for (size_t i = 0; i < dict->count; i++) {
        if (i > 0) RN_TRY(rn_jinja_write(run, RN_STR(", ")));
        RN_TRY(rn_jinja_print_repr(run, dict->keys[i]));
        RN_TRY(rn_jinja_write(run, RN_STR(": ")));
        RN_TRY(rn_jinja_print_repr(run, dict->values[i]));
    }
    return rn_jinja_write(run, RN_STR("}"));
}

static rn_status print_sequence(rn_jinja_run *run, rn_jinja_value value) {
    bool is_tuple = value.type == RN_JINJA_TUPLE;
    RN_TRY(rn_jinja_write(run, is_tuple ? RN_STR("(") : RN_STR("[")));
    RN_TRY(print_items(run, value));
    if (!is_tuple) return rn_jinja_write(run, RN_STR("]"));
    return rn_jinja_write(run, value.list->count == 1 ? RN_STR(",)") : RN_STR(")"));
}

static rn_status print_view(rn_jinja_run *run, rn_jinja_value value) {
    const char *name = rn_jinja_type_name(value.type);
    RN_TRY(rn_jinja_write(run, RN_STR("dict_")));
    RN_TRY(rn_jinja_write(run, rn_str_from(name)));
    RN_TRY(rn_jinja_write(run, RN_STR("([")));
    RN_TRY(print_items(run, value));
    return rn_jinja_write(run, RN_STR("])"));
}

static rn_status print_range(rn_jinja_run *run, const rn_jinja_range *range) {
    char text[80];
    int bytes =
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64, range->start, range->stop);
    RN_TRY(rn_jinja_write(run, (rn_str){text, (size_t)bytes}));
    bytes = range->step == 1 ? 0 : snprintf(text, sizeof text, ", %" PRId64, range->step);
    RN_TRY(rn_jinja_write(run, (rn_str){text, (size_t)bytes}));
    return rn_jinja_write(run, RN_STR(")"));
}

static rn_status print_number(rn_jinja_run *run, rn_jinja_value value) {
    char text[RN_JINJA_FLOAT_TEXT];
    if (value.type == RN_JINJA_BOOL)
        return rn_jinja_write(run, value.truth ? RN_STR("True") : RN_STR("False"));
    size_t bytes = value.type == RN_JINJA_FLOAT
                       ? rn_jinja_format_float(value.real, text)
                       : (size_t)snprintf(text, sizeof text, "%" PRId64, value.whole);
    return rn_jinja_write(run, (rn_str){text, bytes});
}

static rn_status print_any(rn_jinja_run *run, rn_jinja_value value) {
    switch (value.type) {
    case RN_JINJA_UNDEFINED:
        return rn_jinja_write(run, RN_STR("Undefined"));
    case RN_JINJA_NONE:
        return rn_jinja_write(run, RN_STR("None"));
    case RN_JINJA_BOOL:
    case RN_JINJA_INT:
    case RN_JINJA_FLOAT:
        return print_number(run, value);
    case RN_JINJA_TEXT:
        if (value.is_markup) break;
        return print_quoted(run, value.text);
    case RN_JINJA_LIST:
    case RN_JINJA_TUPLE:
        return print_sequence(run, value);
    case RN_JINJA_DICT:
        return print_dict(run, value.dict);
    case RN_JINJA_RANGE:
        return print_range(run, value.range);
    case RN_JINJA_KEYS:
    case RN_JINJA_VALUES:
    case RN_JINJA_ITEMS:
        return print_view(run, value);
    default:
        break;
    }
    return rn_hint(rn_jinja_fail(run, RN_UNSUPPORTED, "printing a %s is not supported",
                                 value.is_markup ? "markup" : rn_jinja_type_name(value.type)),
                   "what map, select and the like give becomes printable with |list or |join");
}

rn_status rn_jinja_print_repr(rn_jinja_run *run, rn_jinja_value value) {
    RN_TRY(rn_jinja_enter(run));
    RN_TRY(print_any(run, value));
    run->depth--;
    return RN_OK;
}

rn_status rn_jinja_print(rn_jinja_run *run, rn_jinja_value value) {
    if (value.type == RN_JINJA_TEXT) return rn_jinja_write(run, value.text);
    if (value.type == RN_JINJA_UNDEFINED) return RN_OK;
    return rn_jinja_print_repr(run, value);
}

rn_status rn_jinja_to_text(rn_jinja_run *run, rn_jinja_value value, rn_str *out) {
    size_t mark = run->out.bytes;
    *out = value.text;
    if (value.type == RN_JINJA_TEXT) return RN_OK;
    RN_TRY(rn_jinja_print(run, value));
    return rn_jinja_take(run, mark, out);
}

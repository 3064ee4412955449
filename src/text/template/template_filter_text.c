// template_filter_text.c — filters that make text, numbers and JSON. Most take anything, and work
// on str() of it, as Jinja's do.
#include "text/template/template_builtin.h"
#include "text/template/template_case.h"
#include "text/template/template_text.h"

#include <math.h>

typedef const rn_jinja_value *arguments;

static bool is_given(rn_jinja_value value) {
    return value.type != RN_JINJA_MISSING && value.type != RN_JINJA_NONE;
}

// str(value), where markup would stay markup.
static rn_status soft_text(rn_jinja_run *run, const char *what, rn_jinja_value value, rn_str *out) {
    if (value.is_markup)
        return rn_jinja_fail(run, RN_UNSUPPORTED, "%s of markup is not supported", what);
    return rn_jinja_to_text(run, value, out);
}

// ---- case and blanks ---------------------------------------------------------------------

static rn_status upper(rn_jinja_run *run, rn_jinja_value self, arguments args,
                       rn_jinja_value *out) {
    rn_str text = {"", 0};
    (void)args;
    RN_TRY(soft_text(run, "upper", self, &text));
    *out = rn_jinja_text(text);
    return rn_jinja_upper(run, text, &out->text);
}

static rn_status lower(rn_jinja_run *run, rn_jinja_value self, arguments args,
                       rn_jinja_value *out) {
    rn_str text = {"", 0};
    (void)args;
    RN_TRY(soft_text(run, "lower", self, &text));
    *out = rn_jinja_text(text);
    return rn_jinja_lower(run, text, &out->text);
}

static rn_status capitalize(rn_jinja_run *run, rn_jinja_value self, arguments args,
                            rn_jinja_value *out) {
    rn_str text = {"", 0};
    (void)args;
    RN_TRY(soft_text(run, "capitalize", self, &text));
    *out = rn_jinja_text(text);
    return rn_jinja_capitalize(run, text, &out->text);
}

static rn_status title(rn_jinja_run *run, rn_jinja_value self, arguments args,
                       rn_jinja_value *out) {
    rn_str text = {"", 0};
    (void)args;
    RN_TRY(soft_text(run, "title", self, &text));
    *out = rn_jinja_text(text);
    return rn_jinja_title(run, text, "-({[< \t\n\v\f\r\x1c\x1d\x1e\x1f", &out->text);
}

static rn_status trim(rn_jinja_run *run, rn_jinja_value self, arguments args, rn_jinja_value *out) {
    rn_str text = {"", 0}, set = {"", 0};
    RN_TRY(soft_text(run, "trim", self, &text));
    if (is_given(args[0])) RN_TRY(rn_jinja_need_text(run, "trim", args[0], &set));
    RN_TRY(rn_jinja_work(run, text.bytes * set.bytes));
    *out = rn_jinja_text(rn_jinja_strip(text, is_given(args[0]) ? &set : NULL, true, true));
    return RN_OK;
}

static rn_status replace(rn_jinja_run *run, rn_jinja_value self, arguments args,
                         rn_jinja_value *out) {
    rn_str text = {"", 0}, old = {"", 0}, new = {"", 0};
    int64_t most = -1;
    RN_TRY(rn_jinja_to_text(run, self, &text));
    RN_TRY(rn_jinja_to_text(run, args[0], &old));
    RN_TRY(rn_jinja_to_text(run, args[1], &new));
    if (is_given(args[2])) RN_TRY(rn_jinja_need_int(run, "replace", args[2], &most));
    return rn_jinja_replace(run, text, old, new, most, out);
}

// `width` blanks, or the text `width`, before each line but the first.
static rn_status indent(rn_jinja_run *run, rn_jinja_value self, arguments args,
                        rn_jinja_value *out) {
    rn_str text = {"", 0};
    rn_jinja_value width = args[0], blanks = rn_jinja_none();
    if (width.type == RN_JINJA_MISSING) width = rn_jinja_int(4);
    RN_TRY(rn_jinja_need_text(run, "indent", self, &text));
    if (width.type != RN_JINJA_TEXT) {
        RN_TRY(rn_jinja_calculate(run, RN_TOKEN_MUL, rn_jinja_text(RN_STR(" ")), width, &blanks));
        width = blanks;
    }
    size_t mark = run->out.bytes;
    if (rn_jinja_truth(args[1])) RN_TRY(rn_jinja_write(run, width.text));
    // Jinja adds a line break before it cuts the text into lines: an empty text has one.
    for (size_t begin = 0, next = 0; begin == 0 || begin < text.bytes; begin = next) {
        size_t end = rn_jinja_line_end(text, begin, &next);
        bool fill = begin > 0 && (end > begin || rn_jinja_truth(args[2]));
        if (begin > 0) RN_TRY(rn_jinja_write(run, RN_STR("\n")));
        if (fill) RN_TRY(rn_jinja_write(run, width.text));
        RN_TRY(rn_jinja_write(run, rn_jinja_text_part(text, begin, end)));
        if (next == 0) break;
        if (next == text.bytes && end < next) {
            RN_TRY(rn_jinja_write(run, RN_STR("\n")));
            if (rn_jinja_truth(args[2])) RN_TRY(rn_jinja_write(run, width.text));
        }
    }
    *out = rn_jinja_text((rn_str){"", 0});
    return rn_jinja_take(run, mark, &out->text);
}

static rn_status string(rn_jinja_run *run, rn_jinja_value self, arguments args,
                        rn_jinja_value *out) {
    (void)args;
    *out = self;
    if (self.type == RN_JINJA_TEXT) return RN_OK;
    *out = rn_jinja_text((rn_str){"", 0});
    return rn_jinja_to_text(run, self, &out->text);
}

static rn_status safe(rn_jinja_run *run, rn_jinja_value self, arguments args, rn_jinja_value *out) {
    RN_TRY(string(run, self, args, out));
    out->is_markup = true;
    return RN_OK;
}

// ---- numbers -----------------------------------------------------------------------------

static rn_status abs_of(rn_jinja_run *run, rn_jinja_value self, arguments args,
                        rn_jinja_value *out) {
    int64_t whole;
    (void)args;
    if (rn_jinja_as_int(self, &whole))
        return rn_jinja_calculate(run, whole < 0 ? RN_TOKEN_SUB : RN_TOKEN_ADD, rn_jinja_int(0),
                                  self, out);
    if (self.type != RN_JINJA_FLOAT)
        return rn_jinja_fail(run, RN_INVALID, "abs takes a number, not a %s",
                             rn_jinja_type_name(self.type));
    *out = rn_jinja_float(fabs(self.real));
    return RN_OK;
}

// int("..."): digits with single underscores between them.
static rn_status read_int(rn_jinja_run *run, rn_str text, bool *out_good, int64_t *out) {
    size_t at = text.bytes > 0 && (text.data[0] == '-' || text.data[0] == '+');
    bool negative = at && text.data[0] == '-', digit = false;
    *out_good = at < text.bytes;
    *out = 0;
    for (; at < text.bytes && *out_good; at++) {
        char c = text.data[at];
        bool was = digit;
        digit = c >= '0' && c <= '9';
        *out_good = digit || (c == '_' && was);
        if (digit && (__builtin_mul_overflow(*out, (int64_t)10, out) ||
                      __builtin_sub_overflow(*out, (int64_t)(c - '0'), out)))
            return rn_jinja_fail(run, RN_UNSUPPORTED, "numbers beyond 64 bits are not supported");
    }
    *out_good = *out_good && digit;
    if (!negative && *out == INT64_MIN)
        return rn_jinja_fail(run, RN_UNSUPPORTED, "numbers beyond 64 bits are not supported");
    *out = negative ? *out : -*out;
    return RN_OK;
}

// What Python takes for a number, and rn_jinja_parse_float does not: its words for infinity and the
// like, underscores, digits of other scripts, and very many digits.
static bool is_odd_number(rn_str text) {
    static const char *const words[] = {"inf", "infinity", "nan"};
    size_t sign = text.bytes > 0 && (text.data[0] == '-' || text.data[0] == '+');
    rn_str word = rn_jinja_text_part(text, sign, text.bytes);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (rn_str_equal_ignoring_case(word, rn_str_from(words[i]))) return true;
    if (!rn_jinja_text_is_ascii(text)) return true;
    bool long_or_joined = text.bytes >= 64 || (text.bytes && memchr(text.data, '_', text.bytes));
    rn_str numeric = RN_STR("0123456789_+-.eE");
    return long_or_joined && rn_jinja_strip(text, &numeric, true, false).bytes == 0;
}

// float("...").
static rn_status read_float(rn_jinja_run *run, rn_jinja_value value, bool *out_good, double *out) {
    *out_good = rn_jinja_is_number(value);
    if (*out_good) *out = rn_jinja_as_float(value);
    if (value.type == RN_JINJA_UNDEFINED) return rn_jinja_fail_undefined(run, value);
    if (value.type != RN_JINJA_TEXT) return RN_OK;
    rn_str text = rn_jinja_strip(value.text, NULL, true, true);
    bool is_odd = is_odd_number(text);
    if (!is_odd) RN_TRY(rn_jinja_parse_float(text, out_good, out));
    if (is_odd || (*out_good && !isfinite(*out)))
        return rn_jinja_fail(run, RN_UNSUPPORTED, "this text as a number is not supported");
    return RN_OK;
}

// int(float(value)), towards zero.
static rn_status truncate(rn_jinja_run *run, rn_jinja_value self, rn_jinja_value fallback,
                          rn_jinja_value *out) {
    bool good = false;
    double real = 0;
    RN_TRY(read_float(run, self, &good, &real));
    *out = fallback;
    if (!good) return RN_OK;
    if (real >= 9223372036854775808.0 || real < -9223372036854775808.0)
        return rn_jinja_fail(run, RN_UNSUPPORTED, "numbers beyond 64 bits are not supported");
    *out = rn_jinja_int((int64_t)real);
    return RN_OK;
}

static rn_status int_of(rn_jinja_run *run, rn_jinja_value self, arguments args,
                        rn_jinja_value *out) {
    bool good = false;
    int64_t whole = 0;
    rn_jinja_value fallback = args[0].type == RN_JINJA_MISSING ? rn_jinja_int(0) : args[0];
    if (args[1].type != RN_JINJA_MISSING)
        return rn_jinja_fail(run, RN_UNSUPPORTED, "int with a base is not supported");
    if (self.type == RN_JINJA_TEXT)
        RN_TRY(read_int(run, rn_jinja_strip(self.text, NULL, true, true), &good, &whole));
    else
        good = rn_jinja_as_int(self, &whole);
    *out = rn_jinja_int(whole);
    return good ? RN_OK : truncate(run, self, fallback, out);
}

static rn_status float_of(rn_jinja_run *run, rn_jinja_value self, arguments args,
                          rn_jinja_value *out) {
    bool good = false;
    double real = 0;
    RN_TRY(read_float(run, self, &good, &real));
    *out = good                               ? rn_jinja_float(real)
           : args[0].type == RN_JINJA_MISSING ? rn_jinja_float(0)
                                              : args[0];
    return RN_OK;
}

// ---- others ------------------------------------------------------------------------------

static rn_status default_of(rn_jinja_run *run, rn_jinja_value self, arguments args,
                            rn_jinja_value *out) {
    bool replace_false = rn_jinja_truth(args[1]);
    (void)run;
    *out = self;
    if (self.type == RN_JINJA_UNDEFINED || (replace_false && !rn_jinja_truth(self)))
        *out = args[0].type == RN_JINJA_MISSING ? rn_jinja_text((rn_str){"", 0}) : args[0];
    return RN_OK;
}

static rn_status read_indent(rn_jinja_run *run, rn_jinja_value indent, rn_jinja_json *how) {
    rn_jinja_value blanks = rn_jinja_none();
    if (!is_given(indent)) return RN_OK;
    how->has_indent = true;
    how->item_separator = RN_STR(",");
    if (indent.type != RN_JINJA_TEXT) {
        RN_TRY(rn_jinja_calculate(run, RN_TOKEN_MUL, rn_jinja_text(RN_STR(" ")), indent, &blanks));
        indent = blanks;
    }
    how->indent = indent.text;
    return RN_OK;
}

static rn_status read_separators(rn_jinja_run *run, rn_jinja_value pair, rn_jinja_json *how) {
    if (!is_given(pair)) return RN_OK;
    if ((pair.type != RN_JINJA_TUPLE && pair.type != RN_JINJA_LIST) || pair.list->count != 2)
        return rn_jinja_fail(run, RN_INVALID, "tojson's separators are a pair");
    RN_TRY(rn_jinja_need_text(run, "tojson", pair.list->items[0], &how->item_separator));
    return rn_jinja_need_text(run, "tojson", pair.list->items[1], &how->key_separator);
}

static rn_status tojson(rn_jinja_run *run, rn_jinja_value self, arguments args,
                        rn_jinja_value *out) {
    rn_jinja_json how = {.ensure_ascii = rn_jinja_truth(args[0]),
                         .sort_keys = rn_jinja_truth(args[3]),
                         .item_separator = RN_STR(", "),
                         .key_separator = RN_STR(": ")};
    RN_TRY(read_indent(run, args[1], &how));
    RN_TRY(read_separators(run, args[2], &how));
    size_t mark = run->out.bytes;
    RN_TRY(rn_jinja_print_json(run, self, &how));
    *out = rn_jinja_text((rn_str){"", 0});
    return rn_jinja_take(run, mark, &out->text);
}

const rn_jinja_builtin rn_jinja_text_filters[] = {
    {.name = "abs", .call = abs_of},
    {.name = "capitalize", .call = capitalize},
    {.name = "d", .call = default_of, .params = {"default_value", "boolean"}},
    {.name = "default", .call = default_of, .params = {"default_value", "boolean"}},
    {.name = "float", .call = float_of, .params = {"default"}},
    {.name = "indent", .call = indent, .params = {"width", "first", "blank"}},
    {.name = "int", .call = int_of, .params = {"default", "base"}},
    {.name = "lower", .call = lower},
    {.name = "replace", .call = replace, .params = {"old", "new", "count"}, .required = 2},
    {.name = "safe", .call = safe},
    {.name = "string", .call = string},
    {.name = "title", .call = title},
    {.name = "tojson",
     .call = tojson,
     .params = {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {.name = "trim", .call = trim, .params = {"chars"}},
    {.name = "upper", .call = upper},
    {.name = NULL},
};

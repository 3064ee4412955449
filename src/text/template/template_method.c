// template_method.c — methods of text, dicts and lists. The tables name all that Python has: what
// templates were not seen to use is refused, and what changes its object is undefined, as in
// Jinja's sandbox.
#include "text/template/template_builtin.h"
#include "text/template/template_case.h"
#include "text/template/template_text.h"

typedef const rn_jinja_value *arguments;

static rn_status give(rn_str text, rn_jinja_value *out) {
    *out = rn_jinja_text(text);
    return RN_OK;
}

static bool is_given(rn_jinja_value value) {
    return value.type != RN_JINJA_MISSING && value.type != RN_JINJA_NONE;
}

static rn_status refuse_bounds(rn_jinja_run *run, const char *what) {
    return rn_jinja_fail(run, RN_UNSUPPORTED, "%s with bounds is not supported", what);
}

// ---- strip -------------------------------------------------------------------------------

static rn_status strip_sides(rn_jinja_run *run, rn_jinja_value self, rn_jinja_value set, bool left,
                             bool right, rn_jinja_value *out) {
    rn_str chars = {"", 0};
    if (is_given(set)) RN_TRY(rn_jinja_need_text(run, "strip", set, &chars));
    RN_TRY(rn_jinja_work(run, self.text.bytes * chars.bytes));
    return give(rn_jinja_strip(self.text, is_given(set) ? &chars : NULL, left, right), out);
}

static rn_status strip(rn_jinja_run *run, rn_jinja_value self, arguments args,
                       rn_jinja_value *out) {
    return strip_sides(run, self, args[0], true, true, out);
}

static rn_status lstrip(rn_jinja_run *run, rn_jinja_value self, arguments args,
                        rn_jinja_value *out) {
    return strip_sides(run, self, args[0], true, false, out);
}

static rn_status rstrip(rn_jinja_run *run, rn_jinja_value self, arguments args,
                        rn_jinja_value *out) {
    return strip_sides(run, self, args[0], false, true, out);
}

static rn_status removeprefix(rn_jinja_run *run, rn_jinja_value self, arguments args,
                              rn_jinja_value *out) {
    rn_str prefix = {"", 0};
    RN_TRY(rn_jinja_need_text(run, "removeprefix", args[0], &prefix));
    size_t cut = rn_str_starts(self.text, prefix) ? prefix.bytes : 0;
    return give(rn_jinja_text_part(self.text, cut, self.text.bytes), out);
}

static rn_status removesuffix(rn_jinja_run *run, rn_jinja_value self, arguments args,
                              rn_jinja_value *out) {
    rn_str suffix = {"", 0};
    RN_TRY(rn_jinja_need_text(run, "removesuffix", args[0], &suffix));
    size_t cut = rn_str_ends(self.text, suffix) ? suffix.bytes : 0;
    return give(rn_jinja_text_part(self.text, 0, self.text.bytes - cut), out);
}

// ---- split -------------------------------------------------------------------------------

static rn_status add_part(rn_jinja_run *run, rn_jinja_list *list, rn_str text, size_t begin,
                          size_t end) {
    return rn_jinja_list_add(run, list, rn_jinja_text(rn_jinja_text_part(text, begin, end)));
}

static rn_status split_at(rn_jinja_run *run, rn_str text, rn_str separator, int64_t most,
                          rn_jinja_list *out) {
    size_t begin = 0;
    for (; most != 0; most--) {
        size_t hit = rn_jinja_find(text, separator, begin);
        if (hit == RN_JINJA_NOT_FOUND) break;
        RN_TRY(add_part(run, out, text, begin, hit));
        begin = hit + separator.bytes;
    }
    return add_part(run, out, text, begin, text.bytes);
}

// By runs of white space; what is left at the limit keeps its own at the end.
static rn_status split_blanks(rn_jinja_run *run, rn_str text, int64_t most, rn_jinja_list *out) {
    text = rn_jinja_strip(text, NULL, true, false);
    while (text.bytes > 0) {
        size_t end = 0, bytes = 0;
        while (end < text.bytes && !rn_jinja_is_space(rn_jinja_decode(text, end, &bytes)))
            end += bytes;
        if (most-- == 0) end = text.bytes;
        RN_TRY(add_part(run, out, text, 0, end));
        text = rn_jinja_strip(rn_jinja_text_part(text, end, text.bytes), NULL, true, false);
    }
    return RN_OK;
}

static void reverse(rn_jinja_list *list) {
    for (size_t i = 0; i < list->count / 2; i++) {
        rn_jinja_value first = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = first;
    }
}

static rn_status rsplit_at(rn_jinja_run *run, rn_str text, rn_str separator, int64_t most,
                           rn_jinja_list *out) {
    size_t end = text.bytes;
    for (; most != 0; most--) {
        RN_TRY(rn_jinja_work(run, end * separator.bytes));
        size_t hit = rn_jinja_find_last(text, separator, end);
        if (hit == RN_JINJA_NOT_FOUND) break;
        RN_TRY(add_part(run, out, text, hit + separator.bytes, end));
        end = hit;
    }
    RN_TRY(add_part(run, out, text, 0, end));
    reverse(out);
    return RN_OK;
}

static rn_status split_with(rn_jinja_run *run, rn_jinja_value self, arguments args, bool from_right,
                            rn_jinja_value *out) {
    rn_str separator = {"", 0};
    int64_t most = -1;
    rn_jinja_list *list = NULL;
    if (args[1].type != RN_JINJA_MISSING) RN_TRY(rn_jinja_need_int(run, "split", args[1], &most));
    RN_TRY(rn_jinja_list_new(run, &list));
    *out = rn_jinja_sequence(RN_JINJA_LIST, list);
    if (!is_given(args[0])) {
        if (from_right && most >= 0)
            return rn_jinja_fail(run, RN_UNSUPPORTED,
                                 "rsplit by blanks with a limit is not "
                                 "supported");
        return split_blanks(run, self.text, most, list);
    }
    RN_TRY(rn_jinja_need_text(run, "split", args[0], &separator));
    if (separator.bytes == 0) return rn_jinja_fail(run, RN_INVALID, "the separator is empty");
    return from_right ? rsplit_at(run, self.text, separator, most, list)
                      : split_at(run, self.text, separator, most, list);
}

static rn_status split(rn_jinja_run *run, rn_jinja_value self, arguments args,
                       rn_jinja_value *out) {
    return split_with(run, self, args, false, out);
}

static rn_status rsplit(rn_jinja_run *run, rn_jinja_value self, arguments args,
                        rn_jinja_value *out) {
    return split_with(run, self, args, true, out);
}

static rn_status splitlines(rn_jinja_run *run, rn_jinja_value self, arguments args,
                            rn_jinja_value *out) {
    rn_jinja_list *list = NULL;
    bool keep = false;
    RN_TRY(rn_jinja_need_flag(run, "splitlines", args[0], &keep));
    RN_TRY(rn_jinja_list_new(run, &list));
    for (size_t begin = 0, next; begin < self.text.bytes; begin = next) {
        size_t end = rn_jinja_line_end(self.text, begin, &next);
        RN_TRY(add_part(run, list, self.text, begin, keep ? next : end));
    }
    *out = rn_jinja_sequence(RN_JINJA_LIST, list);
    return RN_OK;
}

static rn_status join(rn_jinja_run *run, rn_jinja_value self, arguments args, rn_jinja_value *out) {
    rn_jinja_iterator walk;
    rn_jinja_list *items = NULL;
    rn_str text = {"", 0};
    RN_TRY(rn_jinja_iterate(run, args[0], &walk));
    RN_TRY(rn_jinja_collect(run, &walk, &items));
    size_t mark = run->out.bytes;
    for (size_t i = 0; i < items->count; i++) {
        RN_TRY(rn_jinja_need_text(run, "join", items->items[i], &text));
        if (i > 0) RN_TRY(rn_jinja_write(run, self.text));
        RN_TRY(rn_jinja_write(run, text));
    }
    *out = rn_jinja_text((rn_str){"", 0});
    return rn_jinja_take(run, mark, &out->text);
}

// ---- finding -----------------------------------------------------------------------------

// Whether the text starts (or ends) with args[0], or with one of a tuple.
static rn_status match_end(rn_jinja_run *run, rn_jinja_value self, arguments args, bool at_start,
                           rn_jinja_value *out) {
    const rn_jinja_value *options = &args[0];
    size_t count = 1;
    bool matches = false;
    if (args[1].type != RN_JINJA_MISSING) return refuse_bounds(run, "startswith or endswith");
    if (args[0].type == RN_JINJA_TUPLE) {
        options = args[0].list->items;
        count = args[0].list->count;
    }
    for (size_t i = 0; i < count && !matches; i++) {
        rn_str part = {"", 0};
        RN_TRY(rn_jinja_need_text(run, "startswith or endswith", options[i], &part));
        matches = at_start ? rn_str_starts(self.text, part) : rn_str_ends(self.text, part);
    }
    *out = rn_jinja_bool(matches);
    return RN_OK;
}

static rn_status startswith(rn_jinja_run *run, rn_jinja_value self, arguments args,
                            rn_jinja_value *out) {
    return match_end(run, self, args, true, out);
}

static rn_status endswith(rn_jinja_run *run, rn_jinja_value self, arguments args,
                          rn_jinja_value *out) {
    return match_end(run, self, args, false, out);
}

// A byte as the index of its code point; -1 for not found.
static rn_status give_index(rn_str text, size_t hit, rn_jinja_value *out) {
    bool found = hit != RN_JINJA_NOT_FOUND;
    *out = rn_jinja_int(found ? (int64_t)rn_jinja_text_length((rn_str){text.data, hit}) : -1);
    return RN_OK;
}

static rn_status find(rn_jinja_run *run, rn_jinja_value self, arguments args, rn_jinja_value *out) {
    rn_str part = {"", 0};
    if (args[1].type != RN_JINJA_MISSING) return refuse_bounds(run, "find");
    RN_TRY(rn_jinja_need_text(run, "find", args[0], &part));
    return give_index(self.text, rn_jinja_find(self.text, part, 0), out);
}

static rn_status rfind(rn_jinja_run *run, rn_jinja_value self, arguments args,
                       rn_jinja_value *out) {
    rn_str part = {"", 0};
    if (args[1].type != RN_JINJA_MISSING) return refuse_bounds(run, "rfind");
    RN_TRY(rn_jinja_need_text(run, "rfind", args[0], &part));
    RN_TRY(rn_jinja_work(run, self.text.bytes * part.bytes));
    return give_index(self.text, rn_jinja_find_last(self.text, part, self.text.bytes), out);
}

static rn_status count(rn_jinja_run *run, rn_jinja_value self, arguments args,
                       rn_jinja_value *out) {
    rn_str part = {"", 0};
    int64_t times = 0;
    if (args[1].type != RN_JINJA_MISSING) return refuse_bounds(run, "count");
    RN_TRY(rn_jinja_need_text(run, "count", args[0], &part));
    if (part.bytes == 0) {
        *out = rn_jinja_int((int64_t)rn_jinja_text_length(self.text) + 1);
        return RN_OK;
    }
    for (size_t at = 0; (at = rn_jinja_find(self.text, part, at)) != RN_JINJA_NOT_FOUND;
         at += part.bytes)
        times++;
    *out = rn_jinja_int(times);
    return RN_OK;
}

// Before each code point, and at the end.
static rn_status insert_between(rn_jinja_run *run, rn_str text, rn_str new, int64_t most) {
    for (size_t at = 0, bytes = 0;; at += bytes) {
        if (most-- == 0) return rn_jinja_write(run, rn_jinja_text_part(text, at, text.bytes));
        RN_TRY(rn_jinja_write(run, new));
        if (at == text.bytes) return RN_OK;
        rn_jinja_decode(text, at, &bytes);
        RN_TRY(rn_jinja_write(run, rn_jinja_text_part(text, at, at + bytes)));
    }
}

static rn_status exchange(rn_jinja_run *run, rn_str text, rn_str old, rn_str new, int64_t most) {
    size_t begin = 0;
    for (; most != 0; most--) {
        size_t hit = rn_jinja_find(text, old, begin);
        if (hit == RN_JINJA_NOT_FOUND) break;
        RN_TRY(rn_jinja_write(run, rn_jinja_text_part(text, begin, hit)));
        RN_TRY(rn_jinja_write(run, new));
        begin = hit + old.bytes;
    }
    return rn_jinja_write(run, rn_jinja_text_part(text, begin, text.bytes));
}

rn_status rn_jinja_replace(rn_jinja_run *run, rn_str text, rn_str old, rn_str new, int64_t most,
                           rn_jinja_value *out) {
    size_t mark = run->out.bytes;
    RN_TRY(old.bytes == 0 ? insert_between(run, text, new, most)
                          : exchange(run, text, old, new, most));
    *out = rn_jinja_text((rn_str){"", 0});
    return rn_jinja_take(run, mark, &out->text);
}

static rn_status replace(rn_jinja_run *run, rn_jinja_value self, arguments args,
                         rn_jinja_value *out) {
    rn_str old = {"", 0}, new = {"", 0};
    int64_t most = -1;
    RN_TRY(rn_jinja_need_text(run, "replace", args[0], &old));
    RN_TRY(rn_jinja_need_text(run, "replace", args[1], &new));
    if (args[2].type != RN_JINJA_MISSING) RN_TRY(rn_jinja_need_int(run, "replace", args[2], &most));
    return rn_jinja_replace(run, self.text, old, new, most, out);
}

// ---- case and kind -----------------------------------------------------------------------

static rn_status upper(rn_jinja_run *run, rn_jinja_value self, arguments args,
                       rn_jinja_value *out) {
    (void)args;
    *out = rn_jinja_text(self.text);
    return rn_jinja_upper(run, self.text, &out->text);
}

static rn_status lower(rn_jinja_run *run, rn_jinja_value self, arguments args,
                       rn_jinja_value *out) {
    (void)args;
    *out = rn_jinja_text(self.text);
    return rn_jinja_lower(run, self.text, &out->text);
}

static rn_status capitalize(rn_jinja_run *run, rn_jinja_value self, arguments args,
                            rn_jinja_value *out) {
    (void)args;
    *out = rn_jinja_text(self.text);
    return rn_jinja_capitalize(run, self.text, &out->text);
}

static rn_status title(rn_jinja_run *run, rn_jinja_value self, arguments args,
                       rn_jinja_value *out) {
    (void)args;
    *out = rn_jinja_text(self.text);
    return rn_jinja_title(run, self.text, NULL, &out->text);
}

// Whether there is text, and all of it is of these ASCII kinds.
static rn_status consists_of(rn_jinja_run *run, rn_str text, bool digits, bool letters,
                             rn_jinja_value *out) {
    bool all = text.bytes > 0;
    if (!rn_jinja_text_is_ascii(text))
        return rn_jinja_fail(run, RN_UNSUPPORTED,
                             "the kind of other than ASCII characters is not "
                             "supported");
    for (size_t i = 0; i < text.bytes && all; i++) {
        char c = text.data[i];
        all = (digits && c >= '0' && c <= '9') || (letters && (c | 32) >= 'a' && (c | 32) <= 'z');
    }
    *out = rn_jinja_bool(all);
    return RN_OK;
}

static rn_status isdigit_of(rn_jinja_run *run, rn_jinja_value self, arguments args,
                            rn_jinja_value *out) {
    (void)args;
    return consists_of(run, self.text, true, false, out);
}

static rn_status isalpha_of(rn_jinja_run *run, rn_jinja_value self, arguments args,
                            rn_jinja_value *out) {
    (void)args;
    return consists_of(run, self.text, false, true, out);
}

static rn_status isalnum_of(rn_jinja_run *run, rn_jinja_value self, arguments args,
                            rn_jinja_value *out) {
    (void)args;
    return consists_of(run, self.text, true, true, out);
}

static rn_status isspace_of(rn_jinja_run *run, rn_jinja_value self, arguments args,
                            rn_jinja_value *out) {
    (void)run;
    (void)args;
    rn_str rest = rn_jinja_strip(self.text, NULL, true, false);
    *out = rn_jinja_bool(self.text.bytes > 0 && rest.bytes == 0);
    return RN_OK;
}

// ---- dicts -------------------------------------------------------------------------------

static rn_status get(rn_jinja_run *run, rn_jinja_value self, arguments args, rn_jinja_value *out) {
    bool found = false;
    *out = args[1].type == RN_JINJA_MISSING ? rn_jinja_none() : args[1];
    return rn_jinja_dict_find(run, self.dict, args[0], &found, out);
}

static rn_status keys(rn_jinja_run *run, rn_jinja_value self, arguments args, rn_jinja_value *out) {
    (void)run;
    (void)args;
    *out = (rn_jinja_value){.type = RN_JINJA_KEYS, .dict = self.dict};
    return RN_OK;
}

static rn_status values(rn_jinja_run *run, rn_jinja_value self, arguments args,
                        rn_jinja_value *out) {
    (void)run;
    (void)args;
    *out = (rn_jinja_value){.type = RN_JINJA_VALUES, .dict = self.dict};
    return RN_OK;
}

static rn_status items(rn_jinja_run *run, rn_jinja_value self, arguments args,
                       rn_jinja_value *out) {
    (void)run;
    (void)args;
    *out = (rn_jinja_value){.type = RN_JINJA_ITEMS, .dict = self.dict};
    return RN_OK;
}

// ---- tables ------------------------------------------------------------------------------

static const rn_jinja_builtin text_methods[] = {
    {.name = "capitalize", .call = capitalize},
    {.name = "count",
     .call = count,
     .params = {"sub", "start", "end"},
     .required = 1,
     .no_names = true},
    {.name = "endswith",
     .call = endswith,
     .params = {"suffix", "start", "end"},
     .required = 1,
     .no_names = true},
    {.name = "find",
     .call = find,
     .params = {"sub", "start", "end"},
     .required = 1,
     .no_names = true},
    {.name = "isalnum", .call = isalnum_of},
    {.name = "isalpha", .call = isalpha_of},
    {.name = "isdigit", .call = isdigit_of},
    {.name = "isspace", .call = isspace_of},
    {.name = "join", .call = join, .params = {"iterable"}, .required = 1, .no_names = true},
    {.name = "lower", .call = lower},
    {.name = "lstrip", .call = lstrip, .params = {"chars"}, .no_names = true},
    {.name = "removeprefix",
     .call = removeprefix,
     .params = {"prefix"},
     .required = 1,
     .no_names = true},
    {.name = "removesuffix",
     .call = removesuffix,
     .params = {"suffix"},
     .required = 1,
     .no_names = true},
    {.name = "replace",
     .call = replace,
     .params = {"old", "new", "count"},
     .required = 2,
     .no_names = true},
    {.name = "rfind",
     .call = rfind,
     .params = {"sub", "start", "end"},
     .required = 1,
     .no_names = true},
    {.name = "rsplit", .call = rsplit, .params = {"sep", "maxsplit"}},
    {.name = "rstrip", .call = rstrip, .params = {"chars"}, .no_names = true},
    {.name = "split", .call = split, .params = {"sep", "maxsplit"}},
    {.name = "splitlines", .call = splitlines, .params = {"keepends"}},
    {.name = "startswith",
     .call = startswith,
     .params = {"prefix", "start", "end"},
     .required = 1,
     .no_names = true},
    {.name = "strip", .call = strip, .params = {"chars"}, .no_names = true},
    {.name = "title", .call = title},
    {.name = "upper", .call = upper},
    {.name = "casefold"},
    {.name = "center"},
    {.name = "encode"},
    {.name = "expandtabs"},
    {.name = "format"},
    {.name = "format_map"},
    {.name = "index"},
    {.name = "isascii"},
    {.name = "isdecimal"},
    {.name = "isidentifier"},
    {.name = "islower"},
    {.name = "isnumeric"},
    {.name = "isprintable"},
    {.name = "istitle"},
    {.name = "isupper"},
    {.name = "ljust"},
    {.name = "maketrans"},
    {.name = "partition"},
    {.name = "rindex"},
    {.name = "rjust"},
    {.name = "rpartition"},
    {.name = "swapcase"},
    {.name = "translate"},
    {.name = "zfill"},
    {.name = NULL},
};

static const rn_jinja_builtin dict_methods[] = {
    {.name = "get", .call = get, .params = {"key", "default"}, .required = 1, .no_names = true},
    {.name = "items", .call = items},
    {.name = "keys", .call = keys},
    {.name = "values", .call = values},
    {.name = "copy"},
    {.name = "fromkeys"},
    {.name = "clear", .forbidden = true},
    {.name = "pop", .forbidden = true},
    {.name = "popitem", .forbidden = true},
    {.name = "setdefault", .forbidden = true},
    {.name = "update", .forbidden = true},
    {.name = NULL},
};

static const rn_jinja_builtin list_methods[] = {
    {.name = "copy"},
    {.name = "count"},
    {.name = "index"},
    {.name = "append", .forbidden = true},
    {.name = "clear", .forbidden = true},
    {.name = "extend", .forbidden = true},
    {.name = "insert", .forbidden = true},
    {.name = "pop", .forbidden = true},
    {.name = "remove", .forbidden = true},
    {.name = "reverse", .forbidden = true},
    {.name = "sort", .forbidden = true},
    {.name = NULL},
};

static const rn_jinja_builtin tuple_methods[] = {
    {.name = "count"},
    {.name = "index"},
    {.name = NULL},
};

static const rn_jinja_builtin number_methods[] = {
    {.name = "as_integer_ratio"}, {.name = "bit_count"},   {.name = "bit_length"},
    {.name = "conjugate"},        {.name = "denominator"}, {.name = "from_bytes"},
    {.name = "fromhex"},          {.name = "hex"},         {.name = "imag"},
    {.name = "is_integer"},       {.name = "numerator"},   {.name = "real"},
    {.name = "to_bytes"},         {.name = NULL},
};

const rn_jinja_builtin *rn_jinja_method_find(rn_jinja_type type, rn_str name) {
    static const rn_jinja_builtin *const tables[RN_JINJA_TYPE_COUNT] = {
        [RN_JINJA_TEXT] = text_methods,    [RN_JINJA_DICT] = dict_methods,
        [RN_JINJA_LIST] = list_methods,    [RN_JINJA_TUPLE] = tuple_methods,
        [RN_JINJA_BOOL] = number_methods,  [RN_JINJA_INT] = number_methods,
        [RN_JINJA_FLOAT] = number_methods,
    };
    return tables[type] ? rn_jinja_row_find(tables[type], name) : NULL;
}

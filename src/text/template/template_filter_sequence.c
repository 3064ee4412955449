// template_filter_sequence.c — filters that walk over things. What Jinja gives as a generator is
// an iterator here, that can be walked once; its items are made at once, though, so an error in one
// of them shows even where nobody would have come to it.
#include "text/template/template_builtin.h"
#include "text/template/template_case.h"
#include "text/template/template_text.h"

typedef const rn_jinja_value *arguments;

static rn_status collect(rn_jinja_run *run, rn_jinja_value over, rn_jinja_list **out) {
    rn_jinja_iterator walk;
    RN_TRY(rn_jinja_iterate(run, over, &walk));
    return rn_jinja_collect(run, &walk, out);
}

// ---- paths -------------------------------------------------------------------------------

// A part of a path: digits are an index.
static rn_jinja_value read_part(rn_str part) {
    int64_t index = 0;
    for (size_t i = 0; i < part.bytes; i++) {
        if (part.data[i] < '0' || part.data[i] > '9' || i > 9) return rn_jinja_text(part);
        index = index * 10 + (part.data[i] - '0');
    }
    return part.bytes ? rn_jinja_int(index) : rn_jinja_text(part);
}

// item.part.part for a dotted path; item[path] for anything else but none.
static rn_status follow(rn_jinja_run *run, rn_jinja_value item, rn_jinja_value path,
                        rn_jinja_value *out) {
    *out = item;
    if (path.type == RN_JINJA_NONE || path.type == RN_JINJA_MISSING) return RN_OK;
    if (path.type != RN_JINJA_TEXT) return rn_jinja_get_item(run, item, path, out);
    for (size_t begin = 0, end; begin <= path.text.bytes; begin = end + 1) {
        end = rn_jinja_find(path.text, RN_STR("."), begin);
        if (end == RN_JINJA_NOT_FOUND) end = path.text.bytes;
        item = *out;
        RN_TRY(rn_jinja_get_item(run, item, read_part(rn_jinja_text_part(path.text, begin, end)),
                                 out));
    }
    return RN_OK;
}

// What items are ordered by: lower case, unless told otherwise.
static rn_status get_key(rn_jinja_run *run, rn_jinja_value item, rn_jinja_value path,
                         bool case_sensitive, rn_jinja_value *out) {
    RN_TRY(follow(run, item, path, out));
    if (case_sensitive || out->type != RN_JINJA_TEXT) return RN_OK;
    rn_str text = out->text;
    return rn_jinja_lower(run, text, &out->text);
}

static rn_status get_keys(rn_jinja_run *run, const rn_jinja_list *items, rn_jinja_value path,
                          bool case_sensitive, rn_jinja_list **out) {
    RN_TRY(rn_jinja_list_new(run, out));
    for (size_t i = 0; i < items->count; i++) {
        rn_jinja_value key = rn_jinja_none();
        RN_TRY(get_key(run, items->items[i], path, case_sensitive, &key));
        RN_TRY(rn_jinja_list_add(run, *out, key));
    }
    return RN_OK;
}

// ---- ends and lengths --------------------------------------------------------------------

static rn_status length(rn_jinja_run *run, rn_jinja_value self, arguments args,
                        rn_jinja_value *out) {
    size_t count = 0;
    (void)args;
    if (self.type == RN_JINJA_LOOP)
        return rn_jinja_loop_attribute(run, self.loop, RN_STR("length"), out);
    if (!rn_jinja_length(self, &count))
        return rn_jinja_fail(run, RN_INVALID, "a %s has no length", rn_jinja_type_name(self.type));
    *out = rn_jinja_int((int64_t)count);
    return RN_OK;
}

static rn_status first(rn_jinja_run *run, rn_jinja_value self, arguments args,
                       rn_jinja_value *out) {
    rn_jinja_iterator walk;
    bool more = false;
    (void)args;
    RN_TRY(rn_jinja_iterate(run, self, &walk));
    RN_TRY(rn_jinja_next(run, &walk, &more, out));
    if (!more) *out = rn_jinja_undefined(RN_STR("the first item of nothing"));
    return RN_OK;
}

static rn_status last(rn_jinja_run *run, rn_jinja_value self, arguments args, rn_jinja_value *out) {
    rn_jinja_list *items = NULL;
    (void)args;
    if (self.type == RN_JINJA_ITERATOR)
        return rn_jinja_fail(run, RN_INVALID, "an iterator has no last item");
    RN_TRY(collect(run, self, &items));
    *out = items->count ? items->items[items->count - 1]
                        : rn_jinja_undefined(RN_STR("the last item of nothing"));
    return RN_OK;
}

static rn_status list(rn_jinja_run *run, rn_jinja_value self, arguments args, rn_jinja_value *out) {
    rn_jinja_list *items = NULL;
    (void)args;
    RN_TRY(collect(run, self, &items));
    *out = rn_jinja_sequence(RN_JINJA_LIST, items);
    return RN_OK;
}

static rn_status reverse(rn_jinja_run *run, rn_jinja_value self, arguments args,
                         rn_jinja_value *out) {
    rn_jinja_list *items = NULL, *turned = NULL;
    (void)args;
    if (self.type == RN_JINJA_TEXT) {
        const rn_jinja_value all[3] = {rn_jinja_none(), rn_jinja_none(), rn_jinja_int(-1)};
        return rn_jinja_get_slice(run, self, all, out);
    }
    RN_TRY(collect(run, self, &items));
    RN_TRY(rn_jinja_list_new(run, &turned));
    for (size_t i = items->count; i-- > 0;)
        RN_TRY(rn_jinja_list_add(run, turned, items->items[i]));
    *out = rn_jinja_sequence(RN_JINJA_LIST, turned);
    return self.type == RN_JINJA_ITERATOR ? RN_OK : rn_jinja_iterator_new(run, turned, out);
}

static rn_status items_of(rn_jinja_run *run, rn_jinja_value self, arguments args,
                          rn_jinja_value *out) {
    rn_jinja_list *pairs = NULL;
    (void)args;
    if (self.type != RN_JINJA_DICT && self.type != RN_JINJA_UNDEFINED)
        return rn_jinja_fail(run, RN_INVALID, "items takes a dict, not a %s",
                             rn_jinja_type_name(self.type));
    if (self.type == RN_JINJA_DICT) self.type = RN_JINJA_ITEMS;
    RN_TRY(collect(run, self, &pairs));
    return rn_jinja_iterator_new(run, pairs, out);
}

static rn_status join(rn_jinja_run *run, rn_jinja_value self, arguments args, rn_jinja_value *out) {
    rn_jinja_list *items = NULL;
    rn_str separator = {"", 0};
    if (args[0].type != RN_JINJA_MISSING) RN_TRY(rn_jinja_to_text(run, args[0], &separator));
    RN_TRY(collect(run, self, &items));
    size_t mark = run->out.bytes;
    for (size_t i = 0; i < items->count; i++) {
        rn_jinja_value item = rn_jinja_none();
        RN_TRY(follow(run, items->items[i], args[1], &item));
        if (i > 0) RN_TRY(rn_jinja_write(run, separator));
        RN_TRY(rn_jinja_print(run, item));
    }
    *out = rn_jinja_text((rn_str){"", 0});
    return rn_jinja_take(run, mark, &out->text);
}

// ---- map, select, reject -----------------------------------------------------------------

// The arguments behind the first `skip`.
static rn_jinja_args rest_of(const rn_jinja_args *args, size_t skip) {
    rn_jinja_args rest = *args;
    if (skip > 0) rest.items += skip; // without arguments there is no array
    rest.count -= skip;
    return rest;
}

static rn_status find_row(rn_jinja_run *run, bool is_filter, rn_jinja_value name,
                          const rn_jinja_builtin **out) {
    *out = NULL;
    if (name.type == RN_JINJA_TEXT)
        *out = is_filter ? rn_jinja_filter_find(name.text) : rn_jinja_test_find(name.text);
    if (*out) return RN_OK;
    rn_str shown = name.type == RN_JINJA_TEXT ? name.text : RN_STR("?");
    return rn_jinja_fail(run, RN_UNSUPPORTED, "the %s '%.*s' is not supported",
                         is_filter ? "filter" : "test", RN_STR_ARG(shown));
}

// map(attribute='name', default=...): its two arguments, where it is called so.
static rn_status read_map_names(rn_jinja_run *run, const rn_jinja_args *args,
                                rn_jinja_value *out_path, rn_jinja_value *out_default) {
    *out_path = *out_default = (rn_jinja_value){.type = RN_JINJA_MISSING};
    for (size_t i = 0; i < args->named_count; i++) {
        if (rn_str_equal(args->names[i], RN_STR("attribute")))
            *out_path = args->named[i];
        else if (rn_str_equal(args->names[i], RN_STR("default")))
            *out_default = args->named[i];
        else
            return rn_jinja_fail(run, RN_INVALID, "map does not take '%.*s'",
                                 RN_STR_ARG(args->names[i]));
    }
    if (out_path->type == RN_JINJA_MISSING || out_default->type == RN_JINJA_TEXT ||
        out_default->type == RN_JINJA_MISSING || out_default->type == RN_JINJA_NONE)
        return RN_OK;
    return rn_jinja_fail(run, RN_UNSUPPORTED, "map's default is only supported as text");
}

static rn_status map_attribute(rn_jinja_run *run, const rn_jinja_list *items,
                               const rn_jinja_args *args, rn_jinja_list *out) {
    rn_jinja_value path = rn_jinja_none(), fallback = rn_jinja_none(), value = rn_jinja_none();
    RN_TRY(read_map_names(run, args, &path, &fallback));
    if (path.type == RN_JINJA_MISSING)
        return rn_jinja_fail(run, RN_INVALID, "map needs a filter or an attribute");
    if (fallback.type == RN_JINJA_TEXT && path.type == RN_JINJA_TEXT &&
        rn_jinja_find(path.text, RN_STR("."), 0) != RN_JINJA_NOT_FOUND)
        return rn_jinja_fail(run, RN_UNSUPPORTED, "map's default with a path is not supported");
    for (size_t i = 0; i < items->count; i++) {
        RN_TRY(follow(run, items->items[i], path, &value));
        if (value.type == RN_JINJA_UNDEFINED && fallback.type == RN_JINJA_TEXT) value = fallback;
        RN_TRY(rn_jinja_list_add(run, out, value));
    }
    return RN_OK;
}

static rn_status map_filter(rn_jinja_run *run, const rn_jinja_list *items,
                            const rn_jinja_args *args, rn_jinja_list *out) {
    const rn_jinja_builtin *row;
    rn_jinja_args rest = rest_of(args, 1);
    RN_TRY(find_row(run, true, args->items[0], &row));
    RN_TRY(rn_jinja_enter(run));
    for (size_t i = 0; i < items->count; i++) {
        rn_jinja_value value = rn_jinja_none();
        RN_TRY(rn_jinja_builtin_call(run, row, items->items[i], &rest, &value));
        RN_TRY(rn_jinja_list_add(run, out, value));
    }
    run->depth--;
    return RN_OK;
}

static rn_status map(rn_jinja_run *run, rn_jinja_value self, const rn_jinja_args *args,
                     rn_jinja_value *out) {
    rn_jinja_list *items = NULL, *mapped = NULL;
    RN_TRY(rn_jinja_list_new(run, &mapped));
    if (rn_jinja_truth(self)) {
        RN_TRY(collect(run, self, &items));
        RN_TRY(args->count > 0 ? map_filter(run, items, args, mapped)
                               : map_attribute(run, items, args, mapped));
    }
    return rn_jinja_iterator_new(run, mapped, out);
}

// The items for which a test (or, without one, the item itself) is `wanted`.
static rn_status choose(rn_jinja_run *run, const rn_jinja_list *items, const rn_jinja_args *args,
                        bool by_attribute, bool wanted, rn_jinja_list *out) {
    const rn_jinja_builtin *row = NULL;
    size_t skip = by_attribute;
    rn_jinja_value path = by_attribute ? args->items[0] : rn_jinja_none(), value = rn_jinja_none();
    if (args->count > skip) RN_TRY(find_row(run, false, args->items[skip], &row));
    rn_jinja_args rest = rest_of(args, row ? skip + 1 : skip);
    for (size_t i = 0; i < items->count; i++) {
        RN_TRY(follow(run, items->items[i], path, &value));
        bool holds = rn_jinja_truth(value);
        if (row) RN_TRY(rn_jinja_test_ask(run, row, value, &rest, &holds));
        if (holds == wanted) RN_TRY(rn_jinja_list_add(run, out, items->items[i]));
    }
    return RN_OK;
}

static rn_status filter_items(rn_jinja_run *run, rn_jinja_value self, const rn_jinja_args *args,
                              bool by_attribute, bool wanted, rn_jinja_value *out) {
    rn_jinja_list *items = NULL, *chosen = NULL;
    RN_TRY(rn_jinja_list_new(run, &chosen));
    if (rn_jinja_truth(self)) {
        if (by_attribute && args->count == 0)
            return rn_jinja_fail(run, RN_INVALID, "the name of an attribute is missing");
        RN_TRY(collect(run, self, &items));
        RN_TRY(choose(run, items, args, by_attribute, wanted, chosen));
    }
    return rn_jinja_iterator_new(run, chosen, out);
}

static rn_status select_items(rn_jinja_run *run, rn_jinja_value self, const rn_jinja_args *args,
                              rn_jinja_value *out) {
    return filter_items(run, self, args, false, true, out);
}

static rn_status reject_items(rn_jinja_run *run, rn_jinja_value self, const rn_jinja_args *args,
                              rn_jinja_value *out) {
    return filter_items(run, self, args, false, false, out);
}

static rn_status selectattr(rn_jinja_run *run, rn_jinja_value self, const rn_jinja_args *args,
                            rn_jinja_value *out) {
    return filter_items(run, self, args, true, true, out);
}

static rn_status rejectattr(rn_jinja_run *run, rn_jinja_value self, const rn_jinja_args *args,
                            rn_jinja_value *out) {
    return filter_items(run, self, args, true, false, out);
}

// ---- order -------------------------------------------------------------------------------

// By insertion, so that equal items keep their order, in either direction.
static rn_status sort_by(rn_jinja_run *run, rn_jinja_list *items, rn_jinja_list *keys,
                         bool downwards) {
    for (size_t i = 1; i < items->count; i++) {
        rn_jinja_value item = items->items[i], key = keys->items[i];
        size_t at = i;
        for (; at > 0; at--) {
            bool before = false;
            rn_jinja_value other = keys->items[at - 1];
            RN_TRY(downwards ? rn_jinja_less(run, other, key, &before)
                             : rn_jinja_less(run, key, other, &before));
            if (!before) break;
            items->items[at] = items->items[at - 1];
            keys->items[at] = other;
        }
        items->items[at] = item;
        keys->items[at] = key;
    }
    return RN_OK;
}

static rn_status sort(rn_jinja_run *run, rn_jinja_value self, arguments args, rn_jinja_value *out) {
    rn_jinja_list *items = NULL, *keys = NULL;
    bool downwards = false;
    RN_TRY(rn_jinja_need_flag(run, "sort", args[0], &downwards));
    if (args[2].type == RN_JINJA_TEXT &&
        rn_jinja_find(args[2].text, RN_STR(","), 0) != RN_JINJA_NOT_FOUND)
        return rn_jinja_fail(run, RN_UNSUPPORTED, "sort by several attributes is not supported");
    RN_TRY(collect(run, self, &items));
    RN_TRY(get_keys(run, items, args[2], rn_jinja_truth(args[1]), &keys));
    // Jinja compares lists of one key each: those that are equal are not asked for their order.
    for (size_t i = 0; i < keys->count; i++) {
        rn_jinja_list *one = NULL;
        RN_TRY(rn_jinja_list_new(run, &one));
        RN_TRY(rn_jinja_list_add(run, one, keys->items[i]));
        keys->items[i] = rn_jinja_sequence(RN_JINJA_LIST, one);
    }
    *out = rn_jinja_sequence(RN_JINJA_LIST, items);
    return sort_by(run, items, keys, downwards);
}

static rn_status dictsort(rn_jinja_run *run, rn_jinja_value self, arguments args,
                          rn_jinja_value *out) {
    rn_jinja_list *items = NULL, *keys = NULL;
    rn_str by = RN_STR("key");
    bool downwards = false;
    RN_TRY(rn_jinja_need_flag(run, "dictsort", args[2], &downwards));
    if (args[1].type != RN_JINJA_MISSING) RN_TRY(rn_jinja_need_text(run, "dictsort", args[1], &by));
    bool by_value = rn_str_equal(by, RN_STR("value"));
    if (self.type != RN_JINJA_DICT || (!by_value && !rn_str_equal(by, RN_STR("key"))))
        return rn_jinja_fail(run, RN_INVALID, "dictsort takes a dict, and 'key' or 'value'");
    self.type = RN_JINJA_ITEMS;
    RN_TRY(collect(run, self, &items));
    RN_TRY(get_keys(run, items, rn_jinja_int(by_value), rn_jinja_truth(args[0]), &keys));
    *out = rn_jinja_sequence(RN_JINJA_LIST, items);
    return sort_by(run, items, keys, downwards);
}

static rn_status extreme(rn_jinja_run *run, rn_jinja_value self, arguments args, bool largest,
                         rn_jinja_value *out) {
    rn_jinja_list *items = NULL, *keys = NULL;
    size_t best = 0;
    RN_TRY(collect(run, self, &items));
    RN_TRY(get_keys(run, items, args[1], rn_jinja_truth(args[0]), &keys));
    for (size_t i = 1; i < items->count; i++) {
        bool better = false;
        RN_TRY(largest ? rn_jinja_less(run, keys->items[best], keys->items[i], &better)
                       : rn_jinja_less(run, keys->items[i], keys->items[best], &better));
        if (better) best = i;
    }
    *out = items->count ? items->items[best]
                        : rn_jinja_undefined(RN_STR("the least or greatest of nothing"));
    return RN_OK;
}

static rn_status min(rn_jinja_run *run, rn_jinja_value self, arguments args, rn_jinja_value *out) {
    return extreme(run, self, args, false, out);
}

static rn_status max(rn_jinja_run *run, rn_jinja_value self, arguments args, rn_jinja_value *out) {
    return extreme(run, self, args, true, out);
}

static rn_status unique(rn_jinja_run *run, rn_jinja_value self, arguments args,
                        rn_jinja_value *out) {
    rn_jinja_list *items = NULL, *keys = NULL, *kept = NULL;
    rn_jinja_dict *seen = NULL;
    RN_TRY(collect(run, self, &items));
    RN_TRY(get_keys(run, items, args[1], rn_jinja_truth(args[0]), &keys));
    RN_TRY(rn_jinja_list_new(run, &kept));
    RN_TRY(rn_jinja_dict_new(run, &seen));
    for (size_t i = 0; i < items->count; i++) {
        size_t before = seen->count;
        RN_TRY(rn_jinja_dict_set(run, seen, keys->items[i], rn_jinja_none()));
        if (seen->count > before) RN_TRY(rn_jinja_list_add(run, kept, items->items[i]));
    }
    return rn_jinja_iterator_new(run, kept, out);
}

const rn_jinja_builtin rn_jinja_sequence_filters[] = {
    {.name = "count", .call = length},
    {.name = "dictsort", .call = dictsort, .params = {"case_sensitive", "by", "reverse"}},
    {.name = "first", .call = first},
    {.name = "items", .call = items_of},
    {.name = "join", .call = join, .params = {"d", "attribute"}},
    {.name = "last", .call = last},
    {.name = "length", .call = length},
    {.name = "list", .call = list},
    {.name = "max", .call = max, .params = {"case_sensitive", "attribute"}},
    {.name = "min", .call = min, .params = {"case_sensitive", "attribute"}},
    {.name = "reverse", .call = reverse},
    {.name = "sort", .call = sort, .params = {"reverse", "case_sensitive", "attribute"}},
    {.name = "unique", .call = unique, .params = {"case_sensitive", "attribute"}},
    {.name = "map", .call_raw = map},
    {.name = "reject", .call_raw = reject_items},
    {.name = "rejectattr", .call_raw = rejectattr},
    {.name = "select", .call_raw = select_items},
    {.name = "selectattr", .call_raw = selectattr},
    {.name = NULL},
};

const rn_jinja_builtin *rn_jinja_filter_find(rn_str name) {
    const rn_jinja_builtin *row = rn_jinja_row_find(rn_jinja_text_filters, name);
    return row ? row : rn_jinja_row_find(rn_jinja_sequence_filters, name);
}

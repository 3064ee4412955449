// template_value.c — lists, dicts and walks: making them and asking them, by Python's rules.
#include "text/template/template_value.h"

#include "text/template/template_run.h"
#include "text/template/template_text.h"

const char *rn_jinja_type_name(rn_jinja_type type) {
    static const char *const names[RN_JINJA_TYPE_COUNT] = {
        "missing",  "undefined", "none", "bool",  "int",      "float",  "text",
        "list",     "tuple",     "dict", "range", "keys",     "values", "items",
        "iterator", "namespace", "loop", "macro", "function", "method"};
    return names[type];
}

// ---- making ------------------------------------------------------------------------------

rn_status rn_jinja_list_new(rn_jinja_run *run, rn_jinja_list **out) {
    void *block;
    RN_TRY(rn_jinja_alloc(run, 1, sizeof(rn_jinja_list), &block));
    *out = block;
    return RN_OK;
}

// Room for one more of `count` values.
static rn_status grow(rn_jinja_run *run, size_t count, size_t capacity, rn_jinja_value **io) {
    void *block;
    RN_TRY(rn_jinja_alloc(run, capacity, sizeof(rn_jinja_value), &block));
    if (count) memcpy(block, *io, count * sizeof(rn_jinja_value));
    *io = block;
    return RN_OK;
}

rn_status rn_jinja_list_add(rn_jinja_run *run, rn_jinja_list *list, rn_jinja_value item) {
    RN_TRY(rn_jinja_work(run, 0));
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 4;
        RN_TRY(grow(run, list->count, capacity, &list->items));
        list->capacity = capacity;
    }
    list->items[list->count++] = item;
    return RN_OK;
}

rn_status rn_jinja_pair(rn_jinja_run *run, rn_jinja_value first, rn_jinja_value second,
                        rn_jinja_value *out) {
    rn_jinja_list *pair;
    RN_TRY(rn_jinja_list_new(run, &pair));
    RN_TRY(rn_jinja_list_add(run, pair, first));
    RN_TRY(rn_jinja_list_add(run, pair, second));
    *out = rn_jinja_sequence(RN_JINJA_TUPLE, pair);
    return RN_OK;
}

rn_status rn_jinja_dict_new(rn_jinja_run *run, rn_jinja_dict **out) {
    void *block;
    RN_TRY(rn_jinja_alloc(run, 1, sizeof(rn_jinja_dict), &block));
    *out = block;
    return RN_OK;
}

static bool is_hashable(rn_jinja_value value) {
    return value.type != RN_JINJA_LIST && value.type != RN_JINJA_DICT &&
           value.type != RN_JINJA_KEYS && value.type != RN_JINJA_ITEMS;
}

static rn_status locate(rn_jinja_run *run, const rn_jinja_dict *dict, rn_jinja_value key,
                        size_t *out) {
    if (key.type == RN_JINJA_TUPLE)
        return rn_jinja_fail(run, RN_UNSUPPORTED, "tuples as keys of a dict are not supported");
    if (!is_hashable(key))
        return rn_jinja_fail(run, RN_INVALID, "a %s cannot be a key of a dict",
                             rn_jinja_type_name(key.type));
    for (*out = 0; *out < dict->count; ++*out) {
        bool same = false;
        RN_TRY(rn_jinja_equal(run, dict->keys[*out], key, &same));
        if (same) return RN_OK;
    }
    return RN_OK;
}

rn_status rn_jinja_dict_find(rn_jinja_run *run, const rn_jinja_dict *dict, rn_jinja_value key,
                             bool *out_found, rn_jinja_value *out) {
    size_t at = 0;
    *out_found = false;
    RN_TRY(locate(run, dict, key, &at));
    *out_found = at < dict->count;
    if (*out_found) *out = dict->values[at];
    return RN_OK;
}

rn_status rn_jinja_dict_set(rn_jinja_run *run, rn_jinja_dict *dict, rn_jinja_value key,
                            rn_jinja_value value) {
    size_t at = 0;
    RN_TRY(locate(run, dict, key, &at));
    if (at == dict->capacity) {
        size_t capacity = at ? 2 * at : 4;
        RN_TRY(grow(run, at, capacity, &dict->keys));
        RN_TRY(grow(run, at, capacity, &dict->values));
        dict->capacity = capacity;
    }
    if (at == dict->count) dict->keys[dict->count++] = key;
    dict->values[at] = value;
    return RN_OK;
}

rn_status rn_jinja_iterator_new(rn_jinja_run *run, const rn_jinja_list *items,
                                rn_jinja_value *out) {
    void *block;
    RN_TRY(rn_jinja_alloc(run, 1, sizeof(rn_jinja_iterator), &block));
    *out = (rn_jinja_value){.type = RN_JINJA_ITERATOR, .iterator = block};
    out->iterator->of = rn_jinja_sequence(RN_JINJA_LIST, items);
    return RN_OK;
}

// ---- asking ------------------------------------------------------------------------------

bool rn_jinja_truth(rn_jinja_value value) {
    size_t length;
    switch (value.type) {
    case RN_JINJA_BOOL:
        return value.truth;
    case RN_JINJA_INT:
        return value.whole != 0;
    case RN_JINJA_FLOAT:
        return value.real != 0;
    case RN_JINJA_MISSING:
    case RN_JINJA_NONE:
        return false;
    case RN_JINJA_TEXT:
        return value.text.bytes > 0;
    default:
        return !rn_jinja_length(value, &length) || length > 0;
    }
}

bool rn_jinja_is_number(rn_jinja_value value) {
    return value.type == RN_JINJA_BOOL || value.type == RN_JINJA_INT ||
           value.type == RN_JINJA_FLOAT;
}

bool rn_jinja_as_int(rn_jinja_value value, int64_t *out) {
    *out = value.type == RN_JINJA_INT ? value.whole : value.type == RN_JINJA_BOOL && value.truth;
    return value.type == RN_JINJA_INT || value.type == RN_JINJA_BOOL;
}

double rn_jinja_as_float(rn_jinja_value number) {
    int64_t whole;
    return rn_jinja_as_int(number, &whole) ? (double)whole : number.real;
}

bool rn_jinja_length(rn_jinja_value value, size_t *out) {
    switch (value.type) {
    case RN_JINJA_UNDEFINED:
        *out = 0;
        return true;
    case RN_JINJA_TEXT:
        *out = rn_jinja_text_length(value.text);
        return true;
    case RN_JINJA_LIST:
    case RN_JINJA_TUPLE:
        *out = value.list->count;
        return true;
    case RN_JINJA_RANGE:
        *out = value.range->count;
        return true;
    case RN_JINJA_DICT:
    case RN_JINJA_KEYS:
    case RN_JINJA_VALUES:
    case RN_JINJA_ITEMS:
        *out = value.dict->count;
        return true;
    default:
        return false;
    }
}

bool rn_jinja_is_iterable(rn_jinja_value value) {
    size_t length;
    return value.type == RN_JINJA_ITERATOR || rn_jinja_length(value, &length);
}

// ---- walking -----------------------------------------------------------------------------

rn_status rn_jinja_iterate(rn_jinja_run *run, rn_jinja_value over, rn_jinja_iterator *out) {
    *out = (rn_jinja_iterator){.of = over};
    if (rn_jinja_is_iterable(over)) return RN_OK;
    if (over.type == RN_JINJA_LOOP)
        return rn_jinja_fail(run, RN_UNSUPPORTED, "walking over 'loop' is not supported");
    return rn_jinja_fail(run, RN_INVALID, "a %s has no items to walk over",
                         rn_jinja_type_name(over.type));
}

// The item of a dict's view that `type` says.
static rn_status view(rn_jinja_run *run, rn_jinja_type type, const rn_jinja_dict *dict, size_t at,
                      rn_jinja_value *out) {
    if (type == RN_JINJA_ITEMS) return rn_jinja_pair(run, dict->keys[at], dict->values[at], out);
    *out = type == RN_JINJA_VALUES ? dict->values[at] : dict->keys[at];
    return RN_OK;
}

rn_status rn_jinja_next(rn_jinja_run *run, rn_jinja_iterator *walk, bool *out_more,
                        rn_jinja_value *out) {
    rn_jinja_value of = walk->of;
    size_t length = 0, bytes = 1;
    RN_TRY(rn_jinja_work(run, 0));
    if (of.type == RN_JINJA_ITERATOR) return rn_jinja_next(run, of.iterator, out_more, out);
    if (of.type == RN_JINJA_TEXT)
        length = of.text.bytes;
    else
        rn_jinja_length(of, &length);
    *out_more = walk->at < length;
    if (!*out_more) return RN_OK;
    size_t at = walk->at;
    if (of.type == RN_JINJA_TEXT) {
        rn_jinja_decode(of.text, at, &bytes);
        *out = rn_jinja_text((rn_str){of.text.data + at, bytes});
    } else if (of.type == RN_JINJA_RANGE) {
        *out = rn_jinja_int(of.range->start + (int64_t)at * of.range->step);
    } else if (of.type == RN_JINJA_LIST || of.type == RN_JINJA_TUPLE) {
        *out = of.list->items[at];
    } else {
        RN_TRY(view(run, of.type, of.dict, at, out));
    }
    walk->at += bytes;
    return RN_OK;
}

rn_status rn_jinja_collect(rn_jinja_run *run, rn_jinja_iterator *walk, rn_jinja_list **out) {
    rn_jinja_value item = rn_jinja_none();
    bool more = false;
    RN_TRY(rn_jinja_list_new(run, out));
    for (;;) {
        RN_TRY(rn_jinja_next(run, walk, &more, &item));
        if (!more) return RN_OK;
        RN_TRY(rn_jinja_list_add(run, *out, item));
    }
}

// template_json.c — json.dumps as transformers' tojson calls it: Python's separators, Python's
// numbers, and no HTML escapes.
#include "text/template/template_run.h"
#include "text/template/template_text.h"

#include <stdio.h>

static rn_status print_value(rn_jinja_run *run, rn_jinja_value value, const rn_jinja_json *how,
                             size_t level);

static rn_status write_unit(rn_jinja_run *run, uint32_t unit) {
    char text[8];
    snprintf(text, sizeof text, "\\u%04x", (unsigned)(unit & 0xffff));
    return rn_jinja_write(run, (rn_str){text, 6});
}

static rn_status write_escaped(rn_jinja_run *run, uint32_t c) {
    static const char plain[] = "\"\"\\\\\nn\rr\tt\ff\bb";
    for (size_t i = 0; plain[i]; i += 2)
        if (c == (unsigned char)plain[i]) {
            char escape[2] = {'\\', plain[i + 1]};
            return rn_jinja_write(run, (rn_str){escape, 2});
        }
    if (c < 0x10000) return write_unit(run, c);
    RN_TRY(write_unit(run, 0xd800 + ((c - 0x10000) >> 10)));
    return write_unit(run, 0xdc00 + ((c - 0x10000) & 0x3ff));
}

static rn_status print_string(rn_jinja_run *run, rn_str text, const rn_jinja_json *how) {
    size_t done = 0;
    RN_TRY(rn_jinja_write(run, RN_STR("\"")));
    for (size_t at = 0, bytes; at < text.bytes; at += bytes) {
        uint32_t c = rn_jinja_decode(text, at, &bytes);
        if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x7f || !how->ensure_ascii)) continue;
        RN_TRY(rn_jinja_write(run, rn_jinja_text_part(text, done, at)));
        RN_TRY(write_escaped(run, c));
        done = at + bytes;
    }
    RN_TRY(rn_jinja_write(run, rn_jinja_text_part(text, done, text.bytes)));
    return rn_jinja_write(run, RN_STR("\""));
}

static rn_status print_scalar(rn_jinja_run *run, rn_jinja_value value) {
    if (value.type == RN_JINJA_NONE) return rn_jinja_write(run, RN_STR("null"));
    if (value.type == RN_JINJA_BOOL)
        return rn_jinja_write(run, value.truth ? RN_STR("true") : RN_STR("false"));
    return rn_jinja_print_repr(run, value);
}

static rn_status break_line(rn_jinja_run *run, const rn_jinja_json *how, size_t level) {
    if (!how->has_indent) return RN_OK;
    RN_TRY(rn_jinja_write(run, RN_STR("\n")));
    for (size_t i = 0; i < level; i++)
        RN_TRY(rn_jinja_write(run, how->indent));
    return RN_OK;
}

// What comes before item `index`.
static rn_status begin_item(rn_jinja_run *run, const rn_jinja_json *how, size_t level,
                            size_t index) {
    if (index > 0) RN_TRY(rn_jinja_write(run, how->item_separator));
    return break_line(run, how, level);
}

static rn_status print_list(rn_jinja_run *run, const rn_jinja_list *list, const rn_jinja_json *how,
                            size_t level) {
    if (list->count == 0) return rn_jinja_write(run, RN_STR("[]"));
    RN_TRY(rn_jinja_write(run, RN_STR("[")));
    for (size_t i = 0; i < list->count; i++) {
        RN_TRY(begin_item(run, how, level + 1, i));
        RN_TRY(print_value(run, list->items[i], how, level + 1));
    }
    RN_TRY(break_line(run, how, level));
    return rn_jinja_write(run, RN_STR("]"));
}

static rn_status print_key(rn_jinja_run *run, rn_jinja_value key, const rn_jinja_json *how) {
    if (key.type == RN_JINJA_TEXT) return print_string(run, key.text, how);
    if (key.type != RN_JINJA_NONE && !rn_jinja_is_number(key))
        return rn_jinja_fail(run, RN_INVALID, "a %s cannot be a key in JSON",
                             rn_jinja_type_name(key.type));
    RN_TRY(rn_jinja_write(run, RN_STR("\"")));
    RN_TRY(print_scalar(run, key));
    return rn_jinja_write(run, RN_STR("\""));
}

// The places of the dict's entries, in the order of their keys where that is asked for.
static rn_status order_keys(rn_jinja_run *run, const rn_jinja_dict *dict, bool sorted,
                            size_t **out) {
    void *block;
    RN_TRY(rn_jinja_alloc(run, dict->count, sizeof(size_t), &block));
    *out = block;
    for (size_t i = 0; i < dict->count; i++) {
        size_t at = i;
        for (; sorted && at > 0; at--) {
            bool less = false;
            RN_TRY(rn_jinja_less(run, dict->keys[i], dict->keys[(*out)[at - 1]], &less));
            if (!less) break;
            (*out)[at] = (*out)[at - 1];
        }
        (*out)[at] = i;
    }
    return RN_OK;
}

static rn_status print_dict(rn_jinja_run *run, const rn_jinja_dict *dict, const rn_jinja_json *how,
                            size_t level) {
    size_t *order = NULL;
    if (dict->count == 0) return rn_jinja_write(run, RN_STR("{}"));
    RN_TRY(order_keys(run, dict, how->sort_keys, &order));
    RN_TRY(rn_jinja_write(run, RN_STR("{")));
    for (size_t i = 0; i < dict->count; i++) {
        RN_TRY(begin_item(run, how, level + 1, i));
        RN_TRY(print_key(run, dict->keys[order[i]], how));
        RN_TRY(rn_jinja_write(run, how->key_separator));
        RN_TRY(print_value(run, dict->values[order[i]], how, level + 1));
    }
    RN_TRY(break_line(run, how, level));
    return rn_jinja_write(run, RN_STR("}"));
}

static rn_status print_value(rn_jinja_run *run, rn_jinja_value value, const rn_jinja_json *how,
                             size_t level) {
    RN_TRY(rn_jinja_enter(run));
    switch (value.type) {
    case RN_JINJA_TEXT:
        RN_TRY(print_string(run, value.text, how));
        break;
    case RN_JINJA_NONE:
    case RN_JINJA_BOOL:
    case RN_JINJA_INT:
    case RN_JINJA_FLOAT:
        RN_TRY(print_scalar(run, value));
        break;
    case RN_JINJA_LIST:
    case RN_JINJA_TUPLE:
        RN_TRY(print_list(run, value.list, how, level));
        break;
    case RN_JINJA_DICT:
        RN_TRY(print_dict(run, value.dict, how, level));
        break;
    default:
        return rn_jinja_fail(run, RN_INVALID, "a %s cannot be written as JSON",
                             rn_jinja_type_name(value.type));
    }
    run->depth--;
    return RN_OK;
}

rn_status rn_jinja_print_json(rn_jinja_run *run, rn_jinja_value value, const rn_jinja_json *how) {
    return print_value(run, value, how, 0);
}

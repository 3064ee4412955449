// template_from_json.c — JSON that a client wrote (tools, calls of them) as values of a template.
// All of its texts are a stranger's: none of them becomes a special token.
#include "text/template/template_run.h"

#include "base/number.h"
#include "io/json_read.h"
#include "memory/account.h"

#include <stdlib.h>
#include <string.h>

static rn_status make_value(rn_jinja_run *run, rn_json_reader *reader, const rn_json_item *first,
                            rn_jinja_value *out);

static rn_status make_text(rn_jinja_run *run, rn_str text, rn_jinja_value *out) {
    rn_str own;
    RN_TRY(rn_jinja_copy_foreign(run, text, &own));
    *out = rn_jinja_text(own);
    return RN_OK;
}

static rn_status make_number(rn_str digits, rn_jinja_value *out) {
    char text[64], *end = NULL;
    if (digits.bytes >= sizeof text)
        return rn_fail(RN_INVALID, "a number of %zu characters", digits.bytes);
    memcpy(text, digits.data, digits.bytes);
    text[digits.bytes] = 0;
    long long whole = strtoll(text, &end, 10);
    bool is_whole = !*end && whole != INT64_MAX && whole != INT64_MIN;
    double number = 0;
    if (!is_whole) RN_TRY(rn_number_read(digits, &number));
    *out = is_whole ? rn_jinja_int(whole) : rn_jinja_float(number);
    return RN_OK;
}

// "arguments" of a call: clients send them as a text that is JSON, templates expect an object.
static rn_status make_arguments(rn_jinja_run *run, rn_str text, rn_jinja_value *out) {
    rn_json_reader reader;
    rn_json_item item;
    rn_json_reader_init(&reader, text, RN_HOST_OTHER);
    rn_status s = rn_json_next(&reader, &item);
    if (s == RN_OK) s = make_value(run, &reader, &item, out);
    if (s == RN_OK) s = rn_json_expect(&reader, RN_JSON_END, NULL);
    rn_json_reader_free(&reader);
    if (s == RN_CORRUPT)
        s = rn_fail(RN_INVALID, "the arguments of a tool call are no JSON: %.*s",
                    (int)(text.bytes < 40 ? text.bytes : 40), text.data);
    return s;
}

static rn_status make_dict(rn_jinja_run *run, rn_json_reader *reader, rn_jinja_value *out) {
    rn_jinja_dict *dict = NULL;
    rn_json_item item;
    RN_TRY(rn_jinja_dict_new(run, &dict));
    for (;;) {
        rn_jinja_value key, value;
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) break;
        bool arguments = rn_str_equal(item.text, RN_STR("arguments"));
        RN_TRY(make_text(run, item.text, &key));
        RN_TRY(rn_json_next(reader, &item));
        if (arguments && item.kind == RN_JSON_STRING) {
            rn_jinja_value text;
            RN_TRY(make_text(run, item.text, &text)); // terminated, and stays while it is read
            RN_TRY(make_arguments(run, text.text, &value));
        } else {
            RN_TRY(make_value(run, reader, &item, &value));
        }
        RN_TRY(rn_jinja_dict_set(run, dict, key, value));
    }
    *out = (rn_jinja_value){.type = RN_JINJA_DICT, .dict = dict};
    return RN_OK;
}

static rn_status make_list(rn_jinja_run *run, rn_json_reader *reader, rn_jinja_value *out) {
    rn_jinja_list *list = NULL;
    rn_json_item item;
    RN_TRY(rn_jinja_list_new(run, &list));
    for (;;) {
        rn_jinja_value value;
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_ARRAY_END) break;
        RN_TRY(make_value(run, reader, &item, &value));
        RN_TRY(rn_jinja_list_add(run, list, value));
    }
    *out = rn_jinja_sequence(RN_JINJA_LIST, list);
    return RN_OK;
}

static rn_status make_value(rn_jinja_run *run, rn_json_reader *reader, const rn_json_item *first,
                            rn_jinja_value *out) {
    rn_status s = RN_OK;
    RN_TRY(rn_jinja_work(run, first->text.bytes));
    RN_TRY(rn_jinja_enter(run));
    switch (first->kind) {
    case RN_JSON_OBJECT:
        s = make_dict(run, reader, out);
        break;
    case RN_JSON_ARRAY:
        s = make_list(run, reader, out);
        break;
    case RN_JSON_STRING:
        s = make_text(run, first->text, out);
        break;
    case RN_JSON_NUMBER:
        s = make_number(first->text, out);
        break;
    case RN_JSON_NULL:
        *out = rn_jinja_none();
        break;
    default:
        *out = rn_jinja_bool(first->kind == RN_JSON_TRUE);
    }
    run->depth--;
    return s;
}

rn_status rn_jinja_from_json(rn_jinja_run *run, rn_str text, rn_jinja_value *out) {
    rn_json_reader reader;
    rn_json_item item;
    rn_json_reader_init(&reader, text, RN_HOST_OTHER);
    rn_status s = rn_json_next(&reader, &item);
    if (s == RN_OK) s = make_value(run, &reader, &item, out);
    rn_json_reader_free(&reader);
    return s;
}

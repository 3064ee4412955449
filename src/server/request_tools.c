// request_tools.c — what the model may call, which of it it must, and calls that were made before.
// Tools stay as they were written: the chat template gets them so.
#include "server/request_reader.h"

#include "base/checked.h"

#include <stdio.h>

enum { TOOLS = 128, NAME_BYTES = 64 };

bool rn_request_is_tool_name(rn_str name) {
    for (size_t i = 0; i < name.bytes; i++) {
        char c = name.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && c != '_' && c != '-' && c != '.') return false;
    }
    return name.bytes > 0 && name.bytes <= NAME_BYTES;
}

static bool refuse_name(rn_request_reader *reader, const char *field) {
    return rn_problem_set(reader->problem, 400, "invalid_value", field,
                          "%s is '%s': letters, digits, '_', '-' and '.', at most %d", field,
                          rn_request_show(reader->item.text).text, NAME_BYTES);
}

// {"name": ..., "description": ..., "parameters": {...}}; *out_name stays where it is wanted.
static bool read_function(rn_request_reader *reader, const char *field, rn_str *out_name) {
    bool more, named = false;
    if (reader->item.kind != RN_JSON_OBJECT)
        return rn_request_wrong_type(reader, field, "an object");
    for (rn_str key; rn_request_next_key(reader, &key, &more);) {
        if (!more) return named || rn_request_missing(reader, field);
        bool name = rn_str_equal(key, RN_STR("name"));
        bool object = rn_str_equal(key, RN_STR("parameters"));
        if (!rn_request_next(reader)) return false;
        if (name &&
            (!rn_request_string(reader, field) || !rn_request_is_tool_name(reader->item.text)))
            return reader->item.kind == RN_JSON_STRING && refuse_name(reader, field);
        if (name && out_name) *out_name = rn_request_keep(reader);
        if (object && reader->item.kind != RN_JSON_OBJECT && reader->item.kind != RN_JSON_NULL)
            return rn_request_wrong_type(reader, field, "an object");
        named |= name;
        if (!rn_request_skip_rest(reader)) return false;
    }
    return false;
}

// {"type": "function", "function": {...}}
static bool read_tool(rn_request_reader *reader, const char *field, rn_str *out_name) {
    bool more, seen = false;
    if (reader->item.kind != RN_JSON_OBJECT)
        return rn_request_wrong_type(reader, field, "an object");
    for (rn_str key; rn_request_next_key(reader, &key, &more);) {
        if (!more) return seen || rn_request_missing(reader, field);
        bool function = rn_str_equal(key, RN_STR("function"));
        bool type = rn_str_equal(key, RN_STR("type"));
        seen |= function;
        if (!rn_request_next(reader)) return false;
        if (type && (reader->item.kind != RN_JSON_STRING ||
                     !rn_str_equal(reader->item.text, RN_STR("function"))))
            return rn_request_unsupported(reader, field, "tools of the type function");
        if (!(function ? read_function(reader, field, out_name) : rn_request_skip_rest(reader)))
            return false;
    }
    return false;
}

bool rn_request_read_tools(rn_request_state *state, const char *field) {
    rn_request_reader *reader = &state->reader;
    size_t begin = (size_t)reader->item.offset;
    uint32_t count = 0;
    if (reader->item.kind != RN_JSON_ARRAY) return rn_request_wrong_type(reader, field, "a list");
    while (rn_request_next(reader)) {
        if (reader->item.kind == RN_JSON_ARRAY_END) {
            if (count) rn_request_keep_from(reader, begin, &state->request->tools);
            return true;
        }
        if (++count > TOOLS)
            return rn_problem_set(reader->problem, 400, "out_of_range", field,
                                  "there are more than %d tools", TOOLS);
        if (!read_tool(reader, field, NULL)) return false;
    }
    return false;
}

bool rn_request_read_tool_choice(rn_request_state *state, const char *field) {
    rn_request_reader *reader = &state->reader;
    rn_request *request = state->request;
    if (reader->item.kind == RN_JSON_OBJECT) {
        request->tool_choice = RN_TOOL_CHOICE_REQUIRED;
        return read_tool(reader, field, &request->tool_name);
    }
    static const struct {
        const char *name;
        rn_tool_choice choice;
    } words[] = {{"auto", RN_TOOL_CHOICE_AUTO},
                 {"none", RN_TOOL_CHOICE_NONE},
                 {"required", RN_TOOL_CHOICE_REQUIRED},
                 {"any", RN_TOOL_CHOICE_REQUIRED}};
    if (!rn_request_string(reader, field)) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (rn_str_equal(reader->item.text, rn_str_from(words[i].name))) {
            request->tool_choice = words[i].choice;
            return true;
        }
    return rn_request_unsupported(reader, field, "none, auto, required, or a function");
}

// Calls that an assistant made: [{"id", "type", "function": {"name", "arguments"}}, ...].
bool rn_request_read_calls(rn_request_reader *reader, const char *field, rn_str *out) {
    size_t begin = (size_t)reader->item.offset;
    uint32_t count = 0;
    if (reader->item.kind != RN_JSON_ARRAY) return rn_request_wrong_type(reader, field, "a list");
    while (rn_request_next(reader)) {
        if (reader->item.kind == RN_JSON_ARRAY_END) {
            if (count) rn_request_keep_from(reader, begin, out);
            return true;
        }
        if (++count > TOOLS)
            return rn_problem_set(reader->problem, 400, "out_of_range", field,
                                  "there are more than %d calls", TOOLS);
        if (!read_tool(reader, field, NULL)) return false;
    }
    return false;
}

// ---- a call that must come ----------------------------------------------------------------------

// Parts of the tools' text.
typedef struct written_tool {
    rn_str name, parameters;
} written_tool;

// The members "name" and "parameters" of one tool's "function", as they are written.
static rn_status find_tool(rn_json_reader *reader, rn_str text, written_tool *out) {
    rn_json_item item;
    int depth = 1;
    *out = (written_tool){.parameters = RN_STR("{\"type\":\"object\"}")};
    while (depth > 0) {
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) depth--;
        if (item.kind != RN_JSON_KEY) continue;
        bool function = depth == 1 && rn_str_equal(item.text, RN_STR("function"));
        bool name = depth == 2 && rn_str_equal(item.text, RN_STR("name"));
        bool parameters = depth == 2 && rn_str_equal(item.text, RN_STR("parameters"));
        RN_TRY(rn_json_next(reader, &item));
        if (function) {
            depth = 2;
            continue;
        }
        size_t begin = (size_t)item.offset;
        RN_TRY(rn_json_skip_rest(reader, &item));
        rn_str value = {text.data + begin, reader->at - begin};
        if (name) out->name = value;
        if (parameters && item.kind == RN_JSON_OBJECT) out->parameters = value;
    }
    return RN_OK;
}

static rn_status add_schema(rn_buffer *out, const written_tool *tool, const char *arguments,
                            bool first) {
    char key[128];
    int bytes = snprintf(key, sizeof key, "},\"%s\":", arguments);
    const rn_str parts[] = {first ? RN_STR("") : RN_STR(","),
                            RN_STR("{\"type\":\"object\",\"properties\":{\"name\":{\"const\":"),
                            tool->name,
                            {key, (size_t)bytes},
                            tool->parameters,
                            RN_STR("},\"additionalProperties\":false,\"required\":[\"name\",\"")};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].bytes) RN_TRY(rn_buffer_append(out, parts[i].data, parts[i].bytes));
    RN_TRY(rn_buffer_append(out, arguments, strlen(arguments)));
    return rn_buffer_append(out, "\"]}", 3);
}

// Quotes around a name of letters only.
static bool is_called(const written_tool *tool, rn_str name) {
    return !name.bytes || (tool->name.bytes == name.bytes + 2 &&
                           memcmp(tool->name.data + 1, name.data, name.bytes) == 0);
}

rn_status rn_request_tool_schema(rn_str tools, rn_str name, const char *arguments, bool list,
                                 rn_buffer *out) {
    rn_json_reader reader;
    rn_json_item item;
    uint32_t count = 0;
    const char *open =
        list ? "{\"type\":\"array\",\"minItems\":1,\"maxItems\":8,\"items\":{\"anyOf\":["
             : "{\"anyOf\":[";
    RN_TRY(rn_buffer_append(out, open, strlen(open)));
    rn_json_reader_init(&reader, tools, out->from);
    rn_status s = rn_json_next(&reader, &item);
    while (s == RN_OK) {
        written_tool found;
        s = rn_json_next(&reader, &item);
        if (s != RN_OK || item.kind == RN_JSON_ARRAY_END) break;
        s = find_tool(&reader, tools, &found);
        if (s == RN_OK && is_called(&found, name)) s = add_schema(out, &found, arguments, !count++);
    }
    rn_json_reader_free(&reader);
    RN_TRY(s);
    if (count == 0)
        return rn_fail(RN_INVALID, "tool_choice names a function that is not among the tools");
    return rn_buffer_append(out, list ? "]}}" : "]}", list ? 3 : 2);
}

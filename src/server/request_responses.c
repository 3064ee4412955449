// request_responses.c — /v1/responses as a chat: a conversation as a list of items, tools without a
// "function" around them, the format of the answer under "text".
#include "server/request_reader.h"

enum { ITEMS = 1024, TOOLS = 128 };

// Parts of the body, as they are written; {0}: not there.
typedef struct written {
    rn_str type, role, call_id, name, arguments, output;
} written;

static bool append(rn_request_reader *reader, rn_str text) {
    if (text.bytes) memcpy(rn_request_take(reader, text.bytes, 1), text.data, text.bytes);
    return true;
}

// The value that is the item, as it stands in the body, which stays while the request is read.
static bool take_value(rn_request_reader *reader, rn_str *out) {
    size_t begin = (size_t)reader->item.offset;
    if (!rn_request_skip_rest(reader)) return false;
    *out = (rn_str){reader->json.text.data + begin, reader->json.at - begin};
    return true;
}

static bool is_written(rn_str value, const char *word) {
    size_t bytes = strlen(word);
    return value.bytes == bytes + 2 && memcmp(value.data + 1, word, bytes) == 0;
}

// ---- messages -----------------------------------------------------------------------------------

// {"type": "input_text", "text": "..."}; its text goes behind that of the parts before.
static bool read_part(rn_request_reader *reader) {
    static const char *const types[] = {"input_text", "output_text", "text"};
    bool more, typed = false, said = false;
    if (reader->item.kind != RN_JSON_OBJECT)
        return rn_request_wrong_type(reader, "input.content", "a list of objects");
    for (rn_str key; rn_request_next_key(reader, &key, &more);) {
        if (!more)
            return (typed && said) ||
                   rn_request_missing(reader, typed ? "input.content.text" : "input.content.type");
        bool is_type = rn_str_equal(key, RN_STR("type")), known = false;
        bool is_text = rn_str_equal(key, RN_STR("text"));
        if (!rn_request_next(reader)) return false;
        if (!is_type && !is_text) { // annotations, logprobs, ... of answers that come back
            if (!rn_request_skip_rest(reader)) return false;
            continue;
        }
        if (is_type ? typed : said) return rn_request_twice(reader, "input.content");
        if (!rn_request_string(reader, "input.content")) return false;
        for (size_t i = 0; is_type && i < sizeof types / sizeof *types; i++)
            known |= rn_str_equal(reader->item.text, rn_str_from(types[i]));
        if (is_type && !known)
            return rn_request_unsupported(reader, "input.content.type", "parts of text");
        if (is_text) rn_request_keep(reader);
        *(is_type ? &typed : &said) = true;
    }
    return false;
}

static bool read_content(rn_request_reader *reader, rn_str *out) {
    const char *begin = reader->at;
    if (reader->item.kind == RN_JSON_STRING) {
        *out = rn_request_keep(reader);
        return true;
    }
    if (reader->item.kind != RN_JSON_ARRAY)
        return rn_request_wrong_type(reader, "input.content", "a string or a list of parts");
    while (rn_request_next(reader)) {
        *out = (rn_str){begin, (size_t)(reader->at - begin)};
        if (reader->item.kind == RN_JSON_ARRAY_END) return true;
        if (!read_part(reader)) return false;
    }
    return false;
}

static bool add_message(rn_request_state *state, rn_str role, rn_str content) {
    static const rn_str roles[] = {RN_STR("user"), RN_STR("assistant"), RN_STR("system"),
                                   RN_STR("developer")};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (is_written(role, roles[i].data)) {
            rn_request_push_message(state, i == 3 ? roles[2] : roles[i], content);
            return true;
        }
    return role.data ? rn_problem_set(state->reader.problem, 400, "invalid_value", "input.role",
                                      "input.role must be user, assistant, system or developer")
                     : rn_request_missing(&state->reader, "input.role");
}

// ---- calls of tools -----------------------------------------------------------------------------

static rn_chat_tool_use *add_tool_use(rn_request_state *state, const char *role, rn_str content) {
    rn_chat_tool_use *use =
        rn_request_take(&state->reader, sizeof *use, _Alignof(rn_chat_tool_use));
    *use = (rn_chat_tool_use){0};
    rn_request_push_message(state, rn_str_from(role), content);
    state->request->messages[0].tools = use;
    return use;
}

// As a chat has it: [{"id": ..., "type": "function", "function": {"name": ..., "arguments": ...}}].
static bool add_call(rn_request_state *state, const written *w) {
    rn_request_reader *reader = &state->reader;
    if (!w->name.data || !w->arguments.data || !w->call_id.data)
        return rn_request_missing(reader, !w->name.data        ? "input.name"
                                          : !w->arguments.data ? "input.arguments"
                                                               : "input.call_id");
    rn_chat_tool_use *use = add_tool_use(state, "assistant", RN_STR(""));
    const char *begin = reader->at;
    append(reader, RN_STR("[{\"id\":"));
    append(reader, w->call_id);
    append(reader, RN_STR(",\"type\":\"function\",\"function\":{\"name\":"));
    append(reader, w->name);
    append(reader, RN_STR(",\"arguments\":"));
    append(reader, w->arguments);
    append(reader, RN_STR("}}]"));
    use->calls = (rn_str){begin, (size_t)(reader->at - begin)};
    return true;
}

// ---- items --------------------------------------------------------------------------------------

static rn_str *place_of(written *w, rn_str key) {
    const struct {
        const char *name;
        rn_str *place;
    } places[] = {{"type", &w->type}, {"role", &w->role},           {"call_id", &w->call_id},
                  {"name", &w->name}, {"arguments", &w->arguments}, {"output", &w->output}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (rn_str_equal(key, rn_str_from(places[i].name))) return places[i].place;
    return NULL;
}

static bool read_member(rn_request_reader *reader, rn_str key, written *w, rn_str *content,
                        rn_str *call_id) {
    rn_str *place = place_of(w, key);
    bool said = rn_str_equal(key, RN_STR("content"));
    bool output = place == &w->output;
    if (!rn_request_next(reader)) return false;
    if (reader->item.kind == RN_JSON_NULL && !place) return true;
    if ((said && content->data) || (place && place->data)) return rn_request_twice(reader, "input");
    if (said) return read_content(reader, content);
    if (!place) return rn_request_skip_rest(reader); // id, status, summary, ...
    if (output) {
        *place = RN_STR("output");
        return read_content(reader, content);
    }
    if (!rn_request_string(reader, "input")) return false;
    if (place == &w->call_id) *call_id = rn_request_keep(reader);
    return take_value(reader, place);
}

static bool add_item(rn_request_state *state, const written *w, rn_str content, rn_str call_id) {
    rn_request_reader *reader = &state->reader;
    if (is_written(w->type, "function_call")) return add_call(state, w);
    if (is_written(w->type, "reasoning")) return true; // a model's own notes: not for its template
    if (is_written(w->type, "function_call_output")) {
        if (!w->output.data || !call_id.data)
            return rn_request_missing(reader, w->output.data ? "input.call_id" : "input.output");
        add_tool_use(state, "tool", content)->call_id = call_id;
        return true;
    }
    if (w->type.data && !is_written(w->type, "message"))
        return rn_request_unsupported(reader, "input.type",
                                      "message, function_call or function_call_output");
    if (!content.data) return rn_request_missing(reader, "input.content");
    return add_message(state, w->role, content);
}

static bool read_item(rn_request_state *state) {
    rn_request_reader *reader = &state->reader;
    written w = {.type = {0}};
    rn_str content = {0}, call_id = {0};
    bool more;
    if (reader->item.kind != RN_JSON_OBJECT)
        return rn_request_wrong_type(reader, "input", "a string or a list of objects");
    for (rn_str key; rn_request_next_key(reader, &key, &more);) {
        if (!more) return add_item(state, &w, content, call_id);
        if (!read_member(reader, key, &w, &content, &call_id)) return false;
    }
    return false;
}

bool rn_request_read_items(rn_request_state *state, const char *field) {
    rn_request_reader *reader = &state->reader;
    if (reader->item.kind == RN_JSON_STRING) {
        rn_request_push_message(state, RN_STR("user"), rn_request_keep(reader));
        return true;
    }
    if (reader->item.kind != RN_JSON_ARRAY)
        return rn_request_wrong_type(reader, field, "a string or a list of items");
    for (uint32_t count = 0; rn_request_next(reader); count++) {
        if (reader->item.kind == RN_JSON_ARRAY_END) {
            rn_request_reverse_messages(state->request);
            return true;
        }
        if (count == ITEMS)
            return rn_problem_set(reader->problem, 400, "out_of_range", field,
                                  "there are more than %d items", ITEMS);
        if (!read_item(state)) return false;
    }
    return false;
}

// ---- tools --------------------------------------------------------------------------------------

typedef struct flat_tool {
    rn_str type, name, description, parameters;
} flat_tool;

static bool read_flat_tool(rn_request_reader *reader, const char *field, flat_tool *out) {
    bool more;
    *out = (flat_tool){.type = {0}};
    if (reader->item.kind != RN_JSON_OBJECT)
        return rn_request_wrong_type(reader, field, "a list of objects");
    for (rn_str key; rn_request_next_key(reader, &key, &more);) {
        if (!more) return out->name.data || rn_request_missing(reader, "tools.name");
        bool name = rn_str_equal(key, RN_STR("name")), type = rn_str_equal(key, RN_STR("type"));
        bool parameters = rn_str_equal(key, RN_STR("parameters"));
        rn_str other = {0};
        rn_str *place = name                                       ? &out->name
                        : type                                     ? &out->type
                        : parameters                               ? &out->parameters
                        : rn_str_equal(key, RN_STR("description")) ? &out->description
                                                                   : &other;
        if (!rn_request_next(reader)) return false;
        bool null = reader->item.kind == RN_JSON_NULL;
        if (place != &other && place->data) return rn_request_twice(reader, field);
        if (name && !rn_request_string(reader, "tools.name")) return false;
        if (name && !rn_request_is_tool_name(reader->item.text))
            return rn_problem_set(reader->problem, 400, "invalid_value", "tools.name",
                                  "tools.name is '%s': letters, digits, '_', '-' and '.', at most "
                                  "64",
                                  rn_request_show(reader->item.text).text);
        if (type && (reader->item.kind != RN_JSON_STRING ||
                     !rn_str_equal(reader->item.text, RN_STR("function"))))
            return rn_request_unsupported(reader, "tools.type", "function");
        if (parameters && !null && reader->item.kind != RN_JSON_OBJECT)
            return rn_request_wrong_type(reader, "tools.parameters", "an object");
        if (!take_value(reader, place)) return false;
        if (null) *place = (rn_str){0};
    }
    return false;
}

static void append_tool(rn_request_reader *reader, const flat_tool *tool, bool first) {
    append(reader, first ? RN_STR("[") : RN_STR(","));
    append(reader, RN_STR("{\"type\":\"function\",\"function\":{\"name\":"));
    append(reader, tool->name);
    if (tool->description.data) append(reader, RN_STR(",\"description\":"));
    append(reader, tool->description);
    if (tool->parameters.data) append(reader, RN_STR(",\"parameters\":"));
    append(reader, tool->parameters);
    append(reader, RN_STR("}}"));
}

// What a chat template gets; and what the answer repeats. Nothing else is kept meanwhile: names are
// looked at where they stand.
bool rn_request_read_flat_tools(rn_request_state *state, const char *field) {
    rn_request_reader *reader = &state->reader;
    rn_request *request = state->request;
    size_t begin = (size_t)reader->item.offset;
    const char *kept = reader->at;
    uint32_t count = 0;
    if (reader->item.kind != RN_JSON_ARRAY) return rn_request_wrong_type(reader, field, "a list");
    while (rn_request_next(reader)) {
        flat_tool tool;
        if (reader->item.kind == RN_JSON_ARRAY_END) {
            if (count == 0) return true;
            append(reader, RN_STR("]"));
            request->tools = (rn_str){kept, (size_t)(reader->at - kept)};
            rn_request_keep_from(reader, begin, &request->asked_tools);
            return true;
        }
        if (++count > TOOLS)
            return rn_problem_set(reader->problem, 400, "out_of_range", field,
                                  "there are more than %d tools", TOOLS);
        if (!read_flat_tool(reader, field, &tool)) return false;
        append_tool(reader, &tool, count == 1);
    }
    return false;
}

bool rn_request_read_flat_choice(rn_request_state *state, const char *field) {
    rn_request_reader *reader = &state->reader;
    flat_tool tool;
    if (reader->item.kind != RN_JSON_OBJECT) return rn_request_read_tool_choice(state, field);
    if (!read_flat_tool(reader, field, &tool)) return false;
    state->request->tool_choice = RN_TOOL_CHOICE_REQUIRED;
    const char *kept = reader->at;
    append(reader, (rn_str){tool.name.data + 1, tool.name.bytes - 2}); // letters only
    state->request->tool_name = (rn_str){kept, tool.name.bytes - 2};
    return true;
}

// ---- the answer's format ------------------------------------------------------------------------

// {"type": "json_schema", "name": ..., "schema": {...}, "strict": ...}
static bool read_format(rn_request_state *state) {
    rn_request_reader *reader = &state->reader;
    rn_request *request = state->request;
    bool more, typed = false, wants_schema = false;
    if (reader->item.kind != RN_JSON_OBJECT)
        return rn_request_wrong_type(reader, "text.format", "an object");
    for (rn_str key; rn_request_next_key(reader, &key, &more);) {
        if (!more) break;
        bool type = rn_str_equal(key, RN_STR("type")), schema = rn_str_equal(key, RN_STR("schema"));
        if (!rn_request_next(reader)) return false;
        if ((type && typed) || (schema && request->schema.data))
            return rn_request_twice(reader, "text.format");
        if (type) {
            if (!rn_request_string(reader, "text.format.type")) return false;
            typed = true;
            wants_schema = rn_str_equal(reader->item.text, RN_STR("json_schema"));
            request->json = !rn_str_equal(reader->item.text, RN_STR("text"));
            if (request->json && !wants_schema &&
                !rn_str_equal(reader->item.text, RN_STR("json_object")))
                return rn_request_unsupported(reader, "text.format.type",
                                              "text, json_object or json_schema");
        } else if (!(schema ? rn_request_keep_value(reader, &request->schema)
                            : rn_request_skip_rest(reader))) {
            return false;
        }
    }
    if (more) return false;
    if (!typed) return rn_request_missing(reader, "text.format.type");
    if (wants_schema && !request->schema.data)
        return rn_request_missing(reader, "text.format.schema");
    if (!wants_schema) request->schema = (rn_str){0};
    return true;
}

bool rn_request_read_text_settings(rn_request_state *state, const char *field) {
    rn_request_reader *reader = &state->reader;
    bool more, seen = false;
    if (reader->item.kind != RN_JSON_OBJECT)
        return rn_request_wrong_type(reader, field, "an object");
    for (rn_str key; rn_request_next_key(reader, &key, &more);) {
        if (!more) return true;
        bool format = rn_str_equal(key, RN_STR("format"));
        if (!rn_request_next(reader)) return false;
        if (format && seen) return rn_request_twice(reader, "text.format");
        seen |= format;
        if (format && reader->item.kind != RN_JSON_NULL ? !read_format(state)
                                                        : !rn_request_skip_rest(reader))
            return false; // verbosity has no effect
    }
    return false;
}

// ---- what it comes to ---------------------------------------------------------------------------

bool rn_request_finish_response(rn_request_state *state) {
    rn_request *request = state->request;
    request->kind = RN_REQUEST_CHAT;
    request->dialect = RN_DIALECT_RESPONSES;
    request->keeps_pieces = request->stream;
    if (request->message_count && request->instructions.bytes)
        rn_request_push_message(state, RN_STR("system"), request->instructions);
    return true;
}

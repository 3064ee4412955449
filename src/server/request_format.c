// request_format.c — "response_format": text, any JSON object, or JSON by a schema.
#include "server/request_reader.h"

// {"name": ..., "schema": {...}, "strict": ...}; only the schema matters.
static bool read_json_schema(rn_request_state *state) {
    rn_request_reader *reader = &state->reader;
    bool more, seen = false;
    if (reader->item.kind != RN_JSON_OBJECT)
        return rn_request_wrong_type(reader, "response_format.json_schema", "an object");
    for (rn_str key; rn_request_next_key(reader, &key, &more);) {
        if (!more) return seen || rn_request_missing(reader, "response_format.json_schema.schema");
        bool is_schema = rn_str_equal(key, RN_STR("schema"));
        if (!rn_request_next(reader)) return false;
        if (is_schema && seen)
            return rn_request_twice(reader, "response_format.json_schema.schema");
        if (!(is_schema ? rn_request_keep_value(reader, &state->request->schema)
                        : rn_request_skip_rest(reader)))
            return false;
        seen |= is_schema;
    }
    return false;
}

static bool read_type(rn_request_state *state, bool *out_wants_schema) {
    rn_request_reader *reader = &state->reader;
    if (!rn_request_next(reader) || !rn_request_string(reader, "response_format.type"))
        return false;
    bool text = rn_str_equal(reader->item.text, RN_STR("text"));
    bool object = rn_str_equal(reader->item.text, RN_STR("json_object"));
    *out_wants_schema = rn_str_equal(reader->item.text, RN_STR("json_schema"));
    state->request->json = !text;
    return text || object || *out_wants_schema ||
           rn_request_unsupported(reader, "response_format.type",
                                  "text, json_object or json_schema");
}

bool rn_request_read_format(rn_request_state *state, const char *field) {
    rn_request_reader *reader = &state->reader;
    bool more, type = false, schema = false, wants_schema = false;
    if (reader->item.kind != RN_JSON_OBJECT)
        return rn_request_wrong_type(reader, field, "an object");
    for (rn_str key; rn_request_next_key(reader, &key, &more);) {
        if (!more) break;
        bool is_type = rn_str_equal(key, RN_STR("type"));
        bool is_schema = rn_str_equal(key, RN_STR("json_schema"));
        if ((is_type && type) || (is_schema && schema))
            return rn_request_twice(reader, is_type ? "response_format.type"
                                                    : "response_format.json_schema");
        type |= is_type;
        schema |= is_schema;
        bool good = is_type     ? read_type(state, &wants_schema)
                    : is_schema ? rn_request_next(reader) && read_json_schema(state)
                                : rn_request_pass_over(reader, key);
        if (!good) return false;
    }
    if (more) return false;
    if (!type) return rn_request_missing(reader, "response_format.type");
    if (wants_schema && !schema) return rn_request_missing(reader, "response_format.json_schema");
    if (!wants_schema) state->request->schema = (rn_str){0};
    return true;
}

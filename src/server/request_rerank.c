// request_rerank.c — texts to be ranked by how well they answer a query: /v1/rerank, as Jina's,
// Cohere's and llama-server's clients send it.
//
//     {"query": "...", "documents": ["...", {"text": "..."}], "top_n": 3, "return_documents": true}
#include "server/request_reader.h"

typedef enum field {
    MODEL,
    QUERY,
    DOCUMENTS,
    TOP_N,
    RETURN_DOCUMENTS,
    RAW_SCORES,
    TRUNCATE,
    FIELDS
} field;

static const char *const names[FIELDS] = {
    "model", "query", "documents", "top_n", "return_documents", "raw_scores", "truncate"};

static field find(rn_str key) {
    int i = 0;
    while (i < FIELDS && !rn_str_equal(key, rn_str_from(names[i])))
        i++;
    return (field)i;
}

// {"text": "..."}; what else it has is the client's own.
static bool read_object(rn_request_state *state, rn_str *out) {
    rn_request_reader *reader = &state->reader;
    bool more = true, said = false;
    for (rn_str key; rn_request_next_key(reader, &key, &more);) {
        if (!more) return said || rn_request_missing(reader, "documents.text");
        if (!rn_str_equal(key, RN_STR("text"))) {
            if (!rn_request_next(reader) || !rn_request_skip_rest(reader)) return false;
            continue;
        }
        if (said) return rn_request_twice(reader, "documents.text");
        said = true;
        if (!rn_request_next(reader) || !rn_request_string(reader, "documents.text")) return false;
        *out = rn_request_keep(reader);
    }
    return false;
}

static bool read_documents(rn_request_state *state) {
    rn_request_reader *reader = &state->reader;
    rn_request *request = state->request;
    if (reader->item.kind != RN_JSON_ARRAY)
        return rn_request_wrong_type(reader, "documents", "a list");
    while (rn_request_next(reader)) {
        if (reader->item.kind == RN_JSON_ARRAY_END) return true;
        if (request->prompt_count == RN_REQUEST_INPUTS)
            return rn_problem_set(reader->problem, 400, "out_of_range", "documents",
                                  "there are more than %d documents", RN_REQUEST_INPUTS);
        rn_request_prompt *prompt = &request->prompts[request->prompt_count++];
        *prompt = (rn_request_prompt){0};
        if (reader->item.kind == RN_JSON_OBJECT) {
            if (!read_object(state, &prompt->text)) return false;
            continue;
        }
        if (!rn_request_string(reader, "documents")) return false;
        prompt->text = rn_request_keep(reader);
    }
    return false;
}

static bool read_value(rn_request_state *state, field f) {
    rn_request_reader *reader = &state->reader;
    rn_request *request = state->request;
    int64_t count = 0;
    switch (f) {
    case MODEL:
    case QUERY:
        if (!rn_request_string(reader, names[f])) return false;
        *(f == MODEL ? &request->model : &request->query) = rn_request_keep(reader);
        return true;
    case DOCUMENTS:
        return read_documents(state);
    case TOP_N: // more than there are: all
        if (!rn_request_integer(reader, names[f], 1, INT32_MAX, &count)) return false;
        request->top_n = (uint32_t)count;
        return true;
    case RETURN_DOCUMENTS:
        return rn_request_flag(reader, names[f], &request->returns_documents);
    case RAW_SCORES:
        return rn_request_flag(reader, names[f], &request->raw_scores);
    default:
        return rn_request_flag(reader, names[f], &request->truncates);
    }
}

bool rn_request_read_rerank_field(rn_request_state *state, rn_str key) {
    rn_request_reader *reader = &state->reader;
    field f = find(key);
    if (f == FIELDS) return rn_request_pass_over(reader, key);
    if (state->seen & 1u << f) return rn_request_twice(reader, names[f]);
    state->seen |= 1u << f;
    if (!rn_request_next(reader)) return false;
    return reader->item.kind == RN_JSON_NULL || read_value(state, f);
}

bool rn_request_finish_rerank(rn_request_state *state) {
    rn_request *request = state->request;
    if (!request->query.data) return rn_request_missing(&state->reader, "query");
    if (request->prompt_count == 0) return rn_request_missing(&state->reader, "documents");
    request->dialect = RN_DIALECT_RERANK;
    request->kind = RN_REQUEST_EMBED;
    return true;
}

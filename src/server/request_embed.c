// request_embed.c — texts to embed: OpenAI's /v1/embeddings, Ollama's /api/embed and
// /api/embeddings. The list of texts is a block of its own: there may be more of them than their
// JSON has room for.
#include "server/request_reader.h"

typedef enum field {
    MODEL,
    INPUT,
    PROMPT,
    FORMAT,
    DIMENSIONS,
    TRUNCATE,
    USER,
    OPTIONS,
    FIELDS
} field;

enum {
    OPENAI = 1 << RN_REQUEST_EMBED,
    OLLAMA = 1 << RN_REQUEST_OLLAMA_EMBED,
    SINGLE = 1 << RN_REQUEST_OLLAMA_EMBEDDINGS,
};

static const struct {
    const char *name;
    int kinds;
} fields[FIELDS] = {
    [MODEL] = {"model", OPENAI | OLLAMA | SINGLE},
    [INPUT] = {"input", OPENAI | OLLAMA},
    [PROMPT] = {"prompt", SINGLE},
    [FORMAT] = {"encoding_format", OPENAI},
    [DIMENSIONS] = {"dimensions", OPENAI | OLLAMA},
    [TRUNCATE] = {"truncate", OPENAI | OLLAMA},
    [USER] = {"user", OPENAI},
    [OPTIONS] = {"options", OLLAMA | SINGLE}, // of the server: temperature, num_ctx, ...
};

static field find(rn_request_kind kind, rn_str key) {
    for (int i = 0; i < FIELDS; i++)
        if ((fields[i].kinds & 1 << kind) && rn_str_equal(key, rn_str_from(fields[i].name)))
            return (field)i;
    return FIELDS;
}

static bool read_format(rn_request_state *state) {
    rn_request_reader *reader = &state->reader;
    if (!rn_request_string(reader, "encoding_format")) return false;
    state->request->base64 = rn_str_equal(reader->item.text, RN_STR("base64"));
    return state->request->base64 || rn_str_equal(reader->item.text, RN_STR("float")) ||
           rn_request_unsupported(reader, "encoding_format", "float or base64");
}

static bool read_dimensions(rn_request_state *state) {
    int64_t value;
    uint32_t most = state->limits->dimensions;
    if (!rn_request_integer(&state->reader, "dimensions", 1, most, &value)) return false;
    state->request->dimensions = (uint32_t)value;
    return true;
}

static bool read_value(rn_request_state *state, field f) {
    rn_request_reader *reader = &state->reader;
    switch (f) {
    case MODEL:
        if (!rn_request_string(reader, "model")) return false;
        state->request->model = rn_request_keep(reader);
        return true;
    case INPUT:
    case PROMPT:
        return rn_request_read_prompt(state, fields[f].name);
    case FORMAT:
        return read_format(state);
    case DIMENSIONS:
        return read_dimensions(state);
    case TRUNCATE:
        return rn_request_flag(reader, "truncate", &state->request->truncates);
    case USER:
        return rn_request_string(reader, "user");
    default:
        if (reader->item.kind != RN_JSON_OBJECT)
            return rn_request_wrong_type(reader, fields[f].name, "an object");
        return rn_request_skip_rest(reader);
    }
}

static bool read_field(rn_request_state *state, rn_str key) {
    rn_request_reader *reader = &state->reader;
    field f = find(state->request->kind, key);
    if (f == FIELDS) return rn_request_pass_over(reader, key);
    if (state->seen & 1u << f) return rn_request_twice(reader, fields[f].name);
    state->seen |= 1u << f;
    if (!rn_request_next(reader)) return false;
    return reader->item.kind == RN_JSON_NULL || read_value(state, f);
}

// As if it had come to /v1/embeddings.
static bool finish(rn_request_state *state) {
    rn_request *request = state->request;
    bool single = request->kind == RN_REQUEST_OLLAMA_EMBEDDINGS;
    if (request->prompt_count == 0)
        return rn_request_missing(&state->reader, single ? "prompt" : "input");
    if (request->kind == RN_REQUEST_EMBED) return true;
    request->dialect = single ? RN_DIALECT_OLLAMA_EMBEDDINGS : RN_DIALECT_OLLAMA_EMBED;
    request->kind = RN_REQUEST_EMBED;
    rn_request_drop_tag(&request->model);
    return true;
}

static bool take_list(rn_request *request, rn_problem *problem) {
    void *block = NULL;
    size_t bytes = RN_REQUEST_INPUTS * sizeof *request->prompts;
    if (rn_arena_alloc(&request->memory, bytes, &block) != RN_OK) {
        rn_problem_from_error(problem, rn_last_error());
        return false;
    }
    request->prompts = block;
    return true;
}

bool rn_request_read_embedding(rn_request_state *state, rn_str body) {
    rn_request_reader *reader = &state->reader;
    rn_request *request = state->request;
    bool more = true, ranks = request->kind == RN_REQUEST_RERANK;
    request->stream = false;
    request->truncates = request->kind != RN_REQUEST_EMBED; // Ollama's default, and Jina's
    if (!rn_request_reader_begin(reader, body, &request->memory, reader->problem) ||
        !take_list(request, reader->problem) || !rn_request_open(reader))
        return false;
    for (rn_str key; rn_request_next_key(reader, &key, &more);) {
        if (!more)
            return rn_request_close(reader) &&
                   (ranks ? rn_request_finish_rerank(state) : finish(state));
        if (!(ranks ? rn_request_read_rerank_field(state, key) : read_field(state, key)))
            return false;
    }
    return false;
}

// request_fields.c — the table of a request's fields: where each is allowed, what is done with it,
// which values it takes.
#include "server/request_reader.h"

#include <ration/generate.h>

#include <math.h>

enum {
    GENERATE = 1 << RN_REQUEST_GENERATE,
    COMPLETION = 1 << RN_REQUEST_COMPLETION,
    CHAT = 1 << RN_REQUEST_CHAT,
    RESPONSE = 1 << RN_REQUEST_RESPONSE,
    OPENAI = COMPLETION | CHAT,
    TALK = CHAT | RESPONSE,
    TEXT = GENERATE | COMPLETION,
    ALL = GENERATE | OPENAI,
    STOP_BYTES = 256 // of one stop string: rn_stopper_create
};

typedef struct field {
    const char *name;
    int kinds;
    bool (*read)(rn_request_state *state, const struct field *field);
    size_t offset;      // in rn_request, for plain values
    double least, most; // of numbers
    const char *values; // of neutral texts: "none|auto"
} field;

// ---- plain values -------------------------------------------------------------------------------

static void *place(const rn_request_state *state, const field *f) {
    return (char *)state->request + f->offset;
}

static bool read_float(rn_request_state *state, const field *f) {
    double value;
    if (!rn_request_number(&state->reader, f->name, f->least, f->most, &value)) return false;
    *(float *)place(state, f) = (float)value;
    return true;
}

static bool read_count(rn_request_state *state, const field *f) {
    int64_t value;
    if (!rn_request_integer(&state->reader, f->name, (int64_t)f->least, (int64_t)f->most, &value))
        return false;
    *(uint32_t *)place(state, f) = (uint32_t)value;
    return true;
}

static bool read_flag(rn_request_state *state, const field *f) {
    return rn_request_flag(&state->reader, f->name, place(state, f));
}

static bool read_text(rn_request_state *state, const field *f) {
    if (!rn_request_string(&state->reader, f->name)) return false;
    *(rn_str *)place(state, f) = rn_request_keep(&state->reader);
    return true;
}

// ---- values of their own ------------------------------------------------------------------------

static bool read_prompt(rn_request_state *state, const field *f) {
    return rn_request_read_prompt(state, f->name);
}

static bool read_messages(rn_request_state *state, const field *f) {
    return rn_request_read_messages(state, f->name);
}

static bool read_max_tokens(rn_request_state *state, const field *f) {
    int64_t value;
    if (!rn_request_integer(&state->reader, f->name, 1, UINT32_MAX, &value)) return false;
    uint32_t before = state->request->max_tokens;
    if (before && before != value)
        return rn_problem_set(
            state->reader.problem, 400, "invalid_value", f->name,
            "max_tokens and max_completion_tokens are %u and %u: give one of them", before,
            (unsigned)value);
    state->request->max_tokens = (uint32_t)value;
    return true;
}

static bool read_n(rn_request_state *state, const field *f) {
    int64_t value;
    if (!rn_request_integer(&state->reader, f->name, 1, state->limits->choices, &value))
        return false;
    state->request->n = (uint32_t)value;
    return true;
}

static bool read_best_of(rn_request_state *state, const field *f) {
    return rn_request_integer(&state->reader, f->name, 1, INT32_MAX, &state->best_of);
}

static bool read_seed(rn_request_state *state, const field *f) {
    int64_t value;
    if (!rn_request_integer(&state->reader, f->name, INT64_MIN, INT64_MAX, &value)) return false;
    state->request->sampling.seed = (uint64_t)value;
    state->request->has_seed = true;
    return true;
}

// Completions say how many; 0 stands for the chosen token's alone.
static bool read_logprobs(rn_request_state *state, const field *f) {
    state->request->logprobs = true;
    return read_count(state, f);
}

static bool read_top_logprobs(rn_request_state *state, const field *f) {
    return rn_request_integer(&state->reader, f->name, 0, RN_LOGPROBS_MAX, &state->top_logprobs);
}

static bool read_one_stop(rn_request_state *state, const field *f) {
    rn_request *request = state->request;
    if (!rn_request_string(&state->reader, f->name)) return false;
    if (request->stop_count == RN_REQUEST_STOPS)
        return rn_problem_set(state->reader.problem, 400, "out_of_range", f->name,
                              "stop has more than %d strings", RN_REQUEST_STOPS);
    size_t bytes = state->reader.item.text.bytes;
    if (bytes < 1 || bytes > STOP_BYTES)
        return rn_problem_set(state->reader.problem, 400, "out_of_range", f->name,
                              "a stop string has %zu bytes: it must have from 1 to %d", bytes,
                              STOP_BYTES);
    request->stops[request->stop_count++] = rn_request_keep(&state->reader);
    return true;
}

static bool read_stop(rn_request_state *state, const field *f) {
    rn_json_kind kind = state->reader.item.kind;
    if (kind == RN_JSON_STRING) return read_one_stop(state, f);
    if (kind != RN_JSON_ARRAY)
        return rn_request_wrong_type(&state->reader, f->name, "a string or a list of strings");
    while (rn_request_next(&state->reader)) {
        if (state->reader.item.kind == RN_JSON_ARRAY_END) return true;
        if (!read_one_stop(state, f)) return false;
    }
    return false;
}

static bool read_option(rn_request_reader *reader, const char *name, bool *seen, bool *out) {
    if (*seen) return rn_request_twice(reader, name);
    *seen = true;
    return rn_request_next(reader) &&
           (reader->item.kind == RN_JSON_NULL || rn_request_flag(reader, name, out));
}

// include_obfuscation pads events against listeners on the line; that is what TLS is for.
static bool read_stream_options(rn_request_state *state, const field *f) {
    static const char usage[] = "stream_options.include_usage";
    static const char padding[] = "stream_options.include_obfuscation";
    rn_request_reader *reader = &state->reader;
    if (reader->item.kind != RN_JSON_OBJECT)
        return rn_request_wrong_type(reader, f->name, "an object");
    bool more, pad = false, seen_usage = false, seen_padding = false, good = true;
    for (rn_str key; good && rn_request_next_key(reader, &key, &more);) {
        if (!more) return !pad || rn_request_unsupported(reader, padding, "false");
        if (rn_str_equal(key, RN_STR("include_usage")))
            good = read_option(reader, usage, &seen_usage, &state->request->stream_usage);
        else if (rn_str_equal(key, RN_STR("include_obfuscation")))
            good = read_option(reader, padding, &seen_padding, &pad);
        else
            good = rn_request_pass_over(reader, key);
    }
    return false;
}

static bool read_one_bias(rn_request_state *state, const field *f, rn_str key, rn_logit_bias *out) {
    rn_request_reader *reader = &state->reader;
    rn_json_item digits = {.kind = RN_JSON_NUMBER, .text = key};
    uint64_t token = 0;
    double bias;
    if (key.bytes == 0 || rn_json_u64_of(&digits, &token) != RN_OK ||
        token >= state->limits->vocab_size)
        return rn_problem_set(reader->problem, 400, "invalid_value", f->name,
                              "logit_bias has the key '%.40s': it must be a token from 0 to %u",
                              rn_request_show(key).text, state->limits->vocab_size - 1);
    if (!rn_request_next(reader) || !rn_request_number(reader, f->name, -100, 100, &bias))
        return false;
    *out = (rn_logit_bias){(uint32_t)token, bias == -100 ? -INFINITY : (float)bias};
    return true;
}

// Biases of -100 forbid a token, as they are meant to.
static bool read_bias(rn_request_state *state, const field *f) {
    rn_request_reader *reader = &state->reader;
    if (reader->item.kind != RN_JSON_OBJECT)
        return rn_request_wrong_type(reader, f->name, "an object");
    rn_logit_bias *all = rn_request_take(reader, 0, sizeof(float)); // (count), growing
    size_t count = 0;
    bool more;
    for (rn_str key; rn_request_next_key(reader, &key, &more); count++) {
        rn_logit_bias bias;
        state->request->sampling.bias = count ? all : NULL;
        state->request->sampling.bias_count = count;
        if (!more) return true;
        if (count == RN_REQUEST_BIASES)
            return rn_problem_set(reader->problem, 400, "out_of_range", f->name,
                                  "logit_bias has more than %d tokens", RN_REQUEST_BIASES);
        if (!read_one_bias(state, f, key, &bias)) return false;
        for (size_t i = 0; i < count; i++)
            if (all[i].token == bias.token) return rn_request_twice(reader, f->name);
        *(rn_logit_bias *)rn_request_take(reader, sizeof bias, sizeof(float)) = bias;
    }
    return false;
}

// ---- what changes nothing -----------------------------------------------------------------------

static bool ignore_text(rn_request_state *state, const field *f) {
    return rn_request_string(&state->reader, f->name);
}

static bool ignore_flag(rn_request_state *state, const field *f) {
    bool value;
    return rn_request_flag(&state->reader, f->name, &value);
}

static bool ignore_object(rn_request_state *state, const field *f) {
    if (state->reader.item.kind != RN_JSON_OBJECT)
        return rn_request_wrong_type(&state->reader, f->name, "an object");
    return rn_request_skip_rest(&state->reader);
}

static bool neutral_null(rn_request_state *state, const field *f) {
    return rn_request_unsupported(&state->reader, f->name, "null");
}

static bool neutral_flag(rn_request_state *state, const field *f) {
    bool value;
    if (!rn_request_flag(&state->reader, f->name, &value)) return false;
    return !value || rn_request_unsupported(&state->reader, f->name, "false");
}

static bool is_one_of(rn_str text, const char *values) {
    for (const char *at = values;; at++) {
        size_t bytes = strcspn(at, "|");
        if (rn_str_equal(text, (rn_str){at, bytes})) return true;
        at += bytes;
        if (!*at) return false;
    }
}

static bool neutral_text(rn_request_state *state, const field *f) {
    rn_request_reader *reader = &state->reader;
    if (reader->item.kind == RN_JSON_STRING && is_one_of(reader->item.text, f->values)) return true;
    return rn_request_unsupported(reader, f->name, *f->values ? f->values : "an empty string");
}

// Empty, or of the values that may stand in it.
static bool neutral_list(rn_request_state *state, const field *f) {
    rn_request_reader *reader = &state->reader;
    if (reader->item.kind != RN_JSON_ARRAY) return rn_request_wrong_type(reader, f->name, "a list");
    while (rn_request_next(reader)) {
        if (reader->item.kind == RN_JSON_ARRAY_END) return true;
        if (reader->item.kind != RN_JSON_STRING || !f->values ||
            !is_one_of(reader->item.text, f->values))
            return rn_request_unsupported(reader, f->name, f->values ? f->values : "an empty list");
    }
    return false;
}

static bool read_tools(rn_request_state *state, const field *f) {
    return rn_request_read_tools(state, f->name);
}

static bool read_tool_choice(rn_request_state *state, const field *f) {
    return rn_request_read_tool_choice(state, f->name);
}

static bool read_format(rn_request_state *state, const field *f) {
    return rn_request_read_format(state, f->name);
}

static bool read_items(rn_request_state *state, const field *f) {
    return rn_request_read_items(state, f->name);
}

static bool read_text_settings(rn_request_state *state, const field *f) {
    return rn_request_read_text_settings(state, f->name);
}

static bool read_flat_tools(rn_request_state *state, const field *f) {
    return rn_request_read_flat_tools(state, f->name);
}

static bool read_flat_choice(rn_request_state *state, const field *f) {
    return rn_request_read_flat_choice(state, f->name);
}

static bool refuse_stored(rn_request_state *state, const field *f) {
    return rn_problem_set(state->reader.problem, 400, "unsupported_value", f->name,
                          "%s: this server keeps no conversations; send all of it as input",
                          f->name);
}

// ---- the table ----------------------------------------------------------------------------------

#define AT(member)        .offset = offsetof(rn_request, member)
#define FROM_TO(from, to) .least = (from), .most = (to)
#define ROW(n, k, ...)                                                                             \
    { .name = (n), .kinds = (k), .read = __VA_ARGS__ }

// clang-format off
static const field fields[] = {
    // Honoured.
    ROW("model",                   ALL | RESPONSE, read_text, AT(model)),
    ROW("prompt",                  TEXT,       read_prompt),
    ROW("messages",                CHAT,       read_messages),
    ROW("max_tokens",              ALL,        read_max_tokens),
    ROW("max_completion_tokens",   CHAT,       read_max_tokens),
    ROW("temperature",             ALL | RESPONSE, read_float, AT(sampling.temperature), FROM_TO(0, 2)),
    ROW("top_p",                   ALL | RESPONSE, read_float, AT(sampling.top_p), FROM_TO(0, 1)),
    ROW("top_k",                   ALL | RESPONSE, read_count, AT(sampling.top_k), FROM_TO(0, INT32_MAX)),
    ROW("min_p",                   ALL | RESPONSE, read_float, AT(sampling.min_p), FROM_TO(0, 1)),
    ROW("repetition_penalty",      ALL | RESPONSE, read_float, AT(sampling.repetition_penalty), FROM_TO(0.1, 10)),
    ROW("presence_penalty",        ALL | RESPONSE, read_float, AT(sampling.presence_penalty), FROM_TO(-2, 2)),
    ROW("frequency_penalty",       ALL | RESPONSE, read_float, AT(sampling.frequency_penalty), FROM_TO(-2, 2)),
    ROW("logit_bias",              OPENAI,     read_bias),
    ROW("seed",                    ALL | RESPONSE, read_seed),
    ROW("stop",                    ALL | RESPONSE, read_stop),
    ROW("n",                       ALL,        read_n),
    ROW("stream",                  ALL | RESPONSE, read_flag, AT(stream)),
    ROW("stream_options",          OPENAI,     read_stream_options),
    ROW("logprobs",                TEXT,       read_logprobs, AT(sampling.logprobs), FROM_TO(0, RN_LOGPROBS_MAX)),
    ROW("logprobs",                CHAT,       read_flag, AT(logprobs)),
    ROW("top_logprobs",            CHAT,       read_top_logprobs),
    ROW("echo",                    COMPLETION, read_flag, AT(echo)),
    ROW("response_format",         OPENAI,     read_format),
    ROW("tools",                   CHAT,       read_tools),
    ROW("tool_choice",             CHAT,       read_tool_choice),
    ROW("input",                   RESPONSE,   read_items),
    ROW("instructions",            RESPONSE,   read_text, AT(instructions)),
    ROW("max_output_tokens",       RESPONSE,   read_max_tokens),
    ROW("text",                    RESPONSE,   read_text_settings),
    ROW("tools",                   RESPONSE,   read_flat_tools),
    ROW("tool_choice",             RESPONSE,   read_flat_choice),

    // Ignored: they cannot change the answer.
    ROW("store",                   RESPONSE,   ignore_flag), // nothing is, and the answer says so
    ROW("reasoning",               RESPONSE,   ignore_object),
    ROW("stream_options",          RESPONSE,   ignore_object),
    ROW("user",                    OPENAI | RESPONSE, ignore_text),
    ROW("safety_identifier",       TALK,       ignore_text),
    ROW("metadata",                TALK,       ignore_object), // of what is stored: nothing is
    ROW("service_tier",            TALK,       ignore_text),
    ROW("prompt_cache_key",        TALK,       ignore_text), // equal beginnings are found anyway
    ROW("prompt_cache_retention",  TALK,       ignore_text),
    ROW("prompt_cache_options",    TALK,       ignore_object),
    ROW("parallel_tool_calls",     TALK,       ignore_flag), // a model calls as many as it likes
    ROW("prediction",              CHAT,       ignore_object), // would only be faster

    // Refused, but for values that change nothing.
    ROW("best_of",                 COMPLETION, read_best_of), // n, see request.c
    ROW("suffix",                  COMPLETION, neutral_text, .values = ""),
    ROW("functions",               CHAT,       neutral_list),
    ROW("function_call",           CHAT,       neutral_text, .values = "none|auto"),
    ROW("modalities",              CHAT,       neutral_list, .values = "text"),
    ROW("reasoning_effort",        CHAT,       neutral_text, .values = "none"),
    ROW("verbosity",               CHAT,       neutral_text, .values = "medium"),
    ROW("store",                   CHAT,       neutral_flag),
    ROW("audio",                   CHAT,       neutral_null),
    ROW("moderation",              CHAT,       neutral_null),
    ROW("web_search_options",      CHAT,       neutral_null),
    ROW("previous_response_id",    RESPONSE,   refuse_stored),
    ROW("conversation",            RESPONSE,   refuse_stored),
    ROW("prompt",                  RESPONSE,   refuse_stored),
    ROW("background",              RESPONSE,   neutral_flag),
    ROW("include",                 RESPONSE,   neutral_list),
    ROW("truncation",              RESPONSE,   neutral_text, .values = "disabled"),
    ROW("max_tool_calls",          RESPONSE,   neutral_null),
    ROW("top_logprobs",            RESPONSE,   neutral_null),
};
// clang-format on
enum { FIELD_COUNT = sizeof fields / sizeof *fields };
_Static_assert(FIELD_COUNT <= 64, "a bit each in rn_request_state.seen");

static size_t find(rn_request_kind kind, rn_str name) {
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if ((fields[i].kinds & 1 << kind) && rn_str_equal(name, rn_str_from(fields[i].name)))
            return i;
    return FIELD_COUNT;
}

bool rn_request_read_as(rn_request_state *state, rn_request_kind kind, const char *name) {
    const field *f = &fields[find(kind, rn_str_from(name))];
    return f->read(state, f);
}

bool rn_request_read_field(rn_request_state *state, rn_str key) {
    size_t index = find(state->request->kind, key);
    if (index == FIELD_COUNT) return rn_request_pass_over(&state->reader, key);
    const field *f = &fields[index];
    uint64_t bit = (uint64_t)1 << index;
    if (state->seen & bit) return rn_request_twice(&state->reader, f->name);
    state->seen |= bit;
    if (!rn_request_next(&state->reader)) return false;
    return state->reader.item.kind == RN_JSON_NULL || f->read(state, f); // null: not given
}

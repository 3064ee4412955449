// request_ollama.c — what Ollama's clients ask for, as a request like any other: /api/chat is a
// chat, /api/generate a chat of one message (or a plain prompt where it is "raw" or there is no
// template).
#include "server/request_reader.h"

// ---- options ------------------------------------------------------------------------------------

static bool read_num_predict(rn_request_state *state) {
    int64_t value;
    if (!rn_request_integer(&state->reader, "options.num_predict", -2, UINT32_MAX, &value))
        return false;
    state->request->max_tokens = value > 0 ? (uint32_t)value : UINT32_MAX; // -1, -2: as many as fit
    return true;
}

static bool read_options(rn_request_state *state) {
    static const struct {
        const char *name, *ours;
    } names[] = {{"temperature", "temperature"},
                 {"top_p", "top_p"},
                 {"top_k", "top_k"},
                 {"min_p", "min_p"},
                 {"seed", "seed"},
                 {"stop", "stop"},
                 {"repeat_penalty", "repetition_penalty"},
                 {"presence_penalty", "presence_penalty"},
                 {"frequency_penalty", "frequency_penalty"}};
    rn_request_reader *reader = &state->reader;
    bool more;
    if (reader->item.kind != RN_JSON_OBJECT)
        return rn_request_wrong_type(reader, "options", "an object");
    for (rn_str key; rn_request_next_key(reader, &key, &more);) {
        if (!more) return true;
        const char *ours = NULL;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (rn_str_equal(key, rn_str_from(names[i].name))) ours = names[i].ours;
        bool count = rn_str_equal(key, RN_STR("num_predict"));
        if (!ours && !count) { // num_ctx, num_thread, ...: the server's own settings
            if (!rn_request_pass_over(reader, key)) return false;
            continue;
        }
        if (!rn_request_next(reader)) return false;
        if (reader->item.kind == RN_JSON_NULL) continue;
        if (!(count ? read_num_predict(state)
                    : rn_request_read_as(state, RN_REQUEST_COMPLETION, ours)))
            return false;
    }
    return false;
}

// "json", a schema, or "".
static bool read_format(rn_request_state *state) {
    rn_request_reader *reader = &state->reader;
    rn_request *request = state->request;
    request->json = true;
    if (reader->item.kind == RN_JSON_OBJECT) return rn_request_keep_value(reader, &request->schema);
    if (!rn_request_string(reader, "format")) return false;
    request->json = rn_str_equal(reader->item.text, RN_STR("json"));
    return request->json || reader->item.text.bytes == 0 ||
           rn_request_unsupported(reader, "format", "\"json\" or a schema");
}

// ---- fields -------------------------------------------------------------------------------------

// A list without an item.
static bool read_no_images(rn_request_reader *reader) {
    if (reader->item.kind != RN_JSON_ARRAY)
        return rn_request_wrong_type(reader, "images", "a list");
    return (rn_request_next(reader) && reader->item.kind == RN_JSON_ARRAY_END) ||
           rn_request_unsupported(reader, "images", "none");
}

static bool read_text(rn_request_reader *reader, const char *name, rn_str *out) {
    if (!rn_request_string(reader, name)) return false;
    *out = rn_request_keep(reader);
    return true;
}

bool rn_request_read_ollama_field(rn_request_state *state, rn_str key) {
    rn_request_reader *reader = &state->reader;
    rn_request *request = state->request;
    rn_ollama_request *ollama = &state->ollama;
    bool chat = request->kind == RN_REQUEST_OLLAMA_CHAT;
    static const char *const names[] = {"model",  "messages", "prompt",  "system",
                                        "stream", "format",   "options", "tools",
                                        "raw",    "images",   "logprobs"};
    enum {
        MODEL,
        MESSAGES,
        PROMPT,
        SYSTEM,
        STREAM,
        FORMAT,
        OPTIONS,
        TOOLS,
        RAW,
        IMAGES,
        COUNT = 11
    };
    uint32_t i = 0;
    while (i < COUNT && !rn_str_equal(key, rn_str_from(names[i])))
        i++;
    bool other = i >= IMAGES + 1 ||
                 (chat ? i == PROMPT || i == SYSTEM || i == RAW : i == MESSAGES || i == TOOLS);
    if (other) return rn_request_pass_over(reader, key);
    if (state->seen & 1u << i) return rn_request_twice(reader, names[i]);
    state->seen |= 1u << i;
    if (!rn_request_next(reader)) return false;
    if (reader->item.kind == RN_JSON_NULL) return true;
    switch (i) {
    case MODEL:
        return read_text(reader, names[i], &request->model);
    case MESSAGES:
        return rn_request_read_messages(state, names[i]);
    case PROMPT:
        return read_text(reader, names[i], &ollama->prompt);
    case SYSTEM:
        return read_text(reader, names[i], &ollama->system);
    case STREAM:
        return rn_request_flag(reader, names[i], &request->stream);
    case FORMAT:
        return read_format(state);
    case OPTIONS:
        return read_options(state);
    case TOOLS:
        return rn_request_read_tools(state, names[i]);
    case RAW:
        return rn_request_flag(reader, names[i], &ollama->raw);
    default:
        return read_no_images(reader);
    }
}

// ---- what it comes to ---------------------------------------------------------------------------

void rn_request_drop_tag(rn_str *model) {
    const rn_str tag = RN_STR(":latest");
    if (rn_str_ends(*model, tag)) model->bytes -= tag.bytes;
}

bool rn_request_finish_ollama(rn_request_state *state) {
    rn_request *request = state->request;
    const rn_ollama_request *ollama = &state->ollama;
    bool chat = request->kind == RN_REQUEST_OLLAMA_CHAT;
    bool plain = !chat && (ollama->raw || !state->limits->has_chat);
    request->dialect = chat ? RN_DIALECT_OLLAMA_CHAT : RN_DIALECT_OLLAMA_GENERATE;
    request->kind = plain ? RN_REQUEST_COMPLETION : RN_REQUEST_CHAT;
    if (!request->max_tokens) request->max_tokens = UINT32_MAX; // as many as fit
    rn_request_drop_tag(&request->model);
    if (chat) return true;
    if (!ollama->prompt.data) return rn_request_missing(&state->reader, "prompt");
    if (plain) {
        request->prompts[request->prompt_count++].text = ollama->prompt;
        return true;
    }
    // The last one first.
    rn_request_push_message(state, RN_STR("user"), ollama->prompt);
    if (ollama->system.bytes) rn_request_push_message(state, RN_STR("system"), ollama->system);
    return true;
}

// request_prompt.c — what a model is to go on from: texts, tokens, or a conversation.
#include "server/request_reader.h"

#include <stdio.h>

enum { MESSAGES = 1024 };

// ---- prompts ------------------------------------------------------------------------------------

static bool add_text(rn_request_state *state, const char *field) {
    if (!rn_request_string(&state->reader, field)) return false;
    state->request->prompts[state->request->prompt_count++].text = rn_request_keep(&state->reader);
    return true;
}

static bool add_tokens(rn_request_state *state, const char *field, bool begun) {
    rn_request_prompt *prompt = &state->request->prompts[state->request->prompt_count++];
    return rn_request_tokens(&state->reader, field, begun, state->limits->vocab_size, &prompt->ids,
                             &prompt->id_count) &&
           (prompt->id_count > 0 || rn_problem_set(state->reader.problem, 400, "invalid_value",
                                                   field, "%s has an empty list of tokens", field));
}

// A list of texts, or of lists of tokens: all of the kind of the first, which is the item.
static bool add_list(rn_request_state *state, const char *field) {
    rn_request_reader *reader = &state->reader;
    bool embeds = rn_request_embeds(state->request->kind);
    size_t most = embeds ? RN_REQUEST_INPUTS : RN_REQUEST_PROMPTS;
    for (rn_json_kind kind = reader->item.kind; reader->item.kind != RN_JSON_ARRAY_END;) {
        if (state->request->prompt_count == most)
            return rn_problem_set(reader->problem, 400, "out_of_range", field,
                                  "%s has more than %zu %s", field, most,
                                  embeds ? "texts" : "prompts");
        if (reader->item.kind != kind)
            return rn_request_wrong_type(reader, field, "like the others: all text, or all tokens");
        if (!(kind == RN_JSON_ARRAY ? add_tokens(state, field, false) : add_text(state, field)) ||
            !rn_request_next(reader))
            return false;
    }
    return true;
}

bool rn_request_read_prompt(rn_request_state *state, const char *field) {
    rn_request_reader *reader = &state->reader;
    rn_request_kind kind = state->request->kind;
    bool lists = kind == RN_REQUEST_COMPLETION || kind == RN_REQUEST_EMBED ||
                 kind == RN_REQUEST_OLLAMA_EMBED;
    if (reader->item.kind == RN_JSON_STRING) return add_text(state, field);
    if (reader->item.kind != RN_JSON_ARRAY || !lists)
        return rn_request_wrong_type(
            reader, field, lists ? "a string, or a list of strings or of tokens" : "a string");
    if (!rn_request_next(reader)) return false;
    switch (reader->item.kind) {
    case RN_JSON_NUMBER:
        return add_tokens(state, field, true);
    case RN_JSON_STRING:
    case RN_JSON_ARRAY:
        return add_list(state, field);
    case RN_JSON_ARRAY_END:
        return rn_problem_set(reader->problem, 400, "invalid_value", field, "%s is an empty list",
                              field);
    default:
        return rn_request_wrong_type(reader, field, "a list of strings or of tokens");
    }
}

// ---- messages -----------------------------------------------------------------------------------

// Where in the request: "messages[3].content[0].type".
typedef struct place {
    char name[64];
} place;

static place part_of(const place *whole, const char *part) {
    place p;
    snprintf(p.name, sizeof p.name, "%.39s%.24s", whole->name, part);
    return p;
}

static place item_of(const place *list, size_t index) {
    place p;
    snprintf(p.name, sizeof p.name, "%.40s[%zu]", list->name, index);
    return p;
}

static bool read_role(rn_request_reader *reader, const place *at, rn_str *out) {
    static const rn_str roles[] = {RN_STR("system"), RN_STR("user"), RN_STR("assistant"),
                                   RN_STR("tool"), RN_STR("developer")};
    place role = part_of(at, ".role");
    if (!rn_request_string(reader, role.name)) return false;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (rn_str_equal(reader->item.text, roles[i])) {
            *out = i == 4 ? roles[0] : roles[i]; // "developer" is the newer word for "system"
            return true;
        }
    return rn_problem_set(reader->problem, 400, "invalid_value", role.name,
                          "%s is '%s': it must be system, developer, user, assistant or tool",
                          role.name, rn_request_show(reader->item.text).text);
}

// It changes nothing: equal beginnings are found anyway.
static bool ignore_breakpoint(rn_request_reader *reader, const place *at) {
    if (!rn_request_next(reader)) return false;
    if (reader->item.kind == RN_JSON_OBJECT || reader->item.kind == RN_JSON_NULL)
        return rn_request_skip_rest(reader);
    return rn_request_wrong_type(reader, part_of(at, ".prompt_cache_breakpoint").name, "an object");
}

// {"type": "text", "text": "..."} in any order; its text goes behind that of the parts before.
static bool read_part(rn_request_reader *reader, const place *at) {
    bool more, type = false, text = false;
    if (reader->item.kind != RN_JSON_OBJECT)
        return rn_request_wrong_type(reader, at->name, "an object");
    for (rn_str key; rn_request_next_key(reader, &key, &more);) {
        if (!more)
            return (type && text) ||
                   rn_request_missing(reader, part_of(at, type ? ".text" : ".type").name);
        bool is_type = rn_str_equal(key, RN_STR("type")),
             is_text = rn_str_equal(key, RN_STR("text"));
        place here = part_of(at, is_type ? ".type" : ".text");
        if (rn_str_equal(key, RN_STR("prompt_cache_breakpoint"))) {
            if (!ignore_breakpoint(reader, at)) return false;
            continue;
        }
        if (!is_type && !is_text)
            return rn_problem_set(reader->problem, 400, "unsupported_value", at->name,
                                  "%s has '%s': only parts of text are read", at->name,
                                  rn_request_show(key).text);
        if (is_type ? type : text) return rn_request_twice(reader, here.name);
        if (!rn_request_next(reader) || !rn_request_string(reader, here.name)) return false;
        if (is_type && !rn_str_equal(reader->item.text, RN_STR("text")))
            return rn_problem_set(reader->problem, 400, "unsupported_value", here.name,
                                  "%s is '%s': only parts of text are read", here.name,
                                  rn_request_show(reader->item.text).text);
        if (is_text) rn_request_keep(reader);
        *(is_type ? &type : &text) = true;
    }
    return false;
}

static bool read_content(rn_request_reader *reader, const place *at, rn_str *out) {
    place content = part_of(at, ".content");
    const char *begin = reader->at;
    if (reader->item.kind == RN_JSON_STRING) {
        *out = rn_request_keep(reader);
        return true;
    }
    if (reader->item.kind != RN_JSON_ARRAY)
        return rn_request_wrong_type(reader, content.name, "a string or a list of parts");
    for (size_t i = 0; rn_request_next(reader); i++) {
        *out = (rn_str){begin, (size_t)(reader->at - begin)};
        if (reader->item.kind == RN_JSON_ARRAY_END)
            return i > 0 || rn_request_missing(reader, content.name);
        place part = item_of(&content, i);
        if (!read_part(reader, &part)) return false;
    }
    return false;
}

// Room for what a message has beside its content, once.
static rn_chat_tool_use *tool_use(rn_request_reader *reader, rn_chat_message *message) {
    if (!message->tools) {
        rn_chat_tool_use *room = rn_request_take(reader, sizeof *room, _Alignof(rn_str));
        *room = (rn_chat_tool_use){0};
        message->tools = room;
    }
    return (rn_chat_tool_use *)(uintptr_t)message->tools;
}

// What answers of OpenAI's clients carry along when they become messages: calls of tools, nothing,
// or it is refused.
static bool read_other(rn_request_reader *reader, const place *at, rn_str key,
                       rn_chat_message *message) {
    static const char *const neutral[] = {"function_call", "refusal", "audio", "annotations"};
    bool ignored = rn_str_equal(key, RN_STR("name"));
    bool calls = rn_str_equal(key, RN_STR("tool_calls"));
    bool id = rn_str_equal(key, RN_STR("tool_call_id"));
    rn_request_excerpt name = rn_request_show(key);
    place here = part_of(at, ".");
    here = part_of(&here, name.text);
    bool known = ignored || calls || id;
    for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++)
        known |= rn_str_equal(key, rn_str_from(neutral[i]));
    if (!known) return rn_request_pass_over(reader, key);
    if (!rn_request_next(reader)) return false;
    if (reader->item.kind == RN_JSON_NULL) return true;
    if (calls) {
        rn_str kept = {0};
        if (!rn_request_read_calls(reader, here.name, &kept)) return false;
        if (kept.bytes) tool_use(reader, message)->calls = kept;
        return true;
    }
    if (ignored || id) {
        if (!rn_request_string(reader, here.name)) return false;
        if (id) {
            rn_str kept = rn_request_keep(reader);
            tool_use(reader, message)->call_id = kept;
        }
        return true;
    }
    bool empty = reader->item.kind == RN_JSON_ARRAY && rn_request_next(reader) &&
                 reader->item.kind == RN_JSON_ARRAY_END;
    return empty || rn_request_unsupported(reader, here.name, "null");
}

// Who calls a tool need not say anything beside.
static bool end_message(rn_request_reader *reader, const place *at, bool role, bool content,
                        const rn_chat_message *message) {
    if (role && (content || (message->tools && message->tools->calls.bytes))) return true;
    return rn_request_missing(reader, part_of(at, role ? ".content" : ".role").name);
}

static bool read_message(rn_request_reader *reader, const place *at, rn_chat_message *out) {
    bool more, role = false, content = false, said = false, good = true;
    if (reader->item.kind != RN_JSON_OBJECT)
        return rn_request_wrong_type(reader, at->name, "an object");
    for (rn_str key; good && rn_request_next_key(reader, &key, &more);) {
        if (!more) return end_message(reader, at, role, said, out);
        bool is_role = rn_str_equal(key, RN_STR("role"));
        bool is_content = rn_str_equal(key, RN_STR("content"));
        if ((is_role && role) || (is_content && content))
            return rn_request_twice(reader, part_of(at, is_role ? ".role" : ".content").name);
        role |= is_role;
        content |= is_content;
        if (is_role) {
            good = rn_request_next(reader) && read_role(reader, at, &out->role);
        } else if (is_content) {
            good = rn_request_next(reader);
            said = good && reader->item.kind != RN_JSON_NULL;
            good = good && (!said || read_content(reader, at, &out->content));
        } else {
            good = read_other(reader, at, key, out);
        }
    }
    return false;
}

void rn_request_push_message(rn_request_state *state, rn_str role, rn_str content) {
    rn_request *request = state->request;
    state->reader.top -= sizeof *request->messages;
    request->messages = (rn_chat_message *)(void *)state->reader.top;
    *request->messages = (rn_chat_message){.role = role, .content = content};
    request->message_count++;
}

void rn_request_reverse_messages(rn_request *request) {
    rn_chat_message *messages = request->messages;
    size_t count = request->message_count;
    for (size_t i = 0; i < count / 2; i++) {
        rn_chat_message last = messages[count - 1 - i];
        messages[count - 1 - i] = messages[i];
        messages[i] = last;
    }
}

// They are put at the far end of the block, each in front of the one before.
bool rn_request_read_messages(rn_request_state *state, const char *field) {
    rn_request_reader *reader = &state->reader;
    rn_request *request = state->request;
    place list = {""};
    snprintf(list.name, sizeof list.name, "%s", field);
    if (reader->item.kind != RN_JSON_ARRAY) return rn_request_wrong_type(reader, field, "a list");
    while (rn_request_next(reader)) {
        if (reader->item.kind == RN_JSON_ARRAY_END) {
            rn_request_reverse_messages(request);
            return true;
        }
        if (request->message_count == MESSAGES)
            return rn_problem_set(reader->problem, 400, "out_of_range", field,
                                  "there are more than %d messages", MESSAGES);
        rn_chat_message message = {.content = RN_STR("")};
        place at = item_of(&list, request->message_count);
        if (!read_message(reader, &at, &message)) return false;
        reader->top -= sizeof message;
        request->messages = (rn_chat_message *)(void *)reader->top;
        *request->messages = message;
        request->message_count++;
    }
    return false;
}

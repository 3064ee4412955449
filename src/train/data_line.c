// data_line.c — a line of JSON to a sample.
//
// What of a chat is learned is what its template marks by {% generation %}. Where it has no marks,
// it is found by rendering it up to each answer: the tokens before an answer
// (with the beginning of a turn that asks for one) must begin the tokens up to its end, and those
// the whole. Between the two lies the answer; what the template writes behind the token that ends a
// turn is not learned. A template that rewrites earlier turns is refused: there the question has no
// answer.
#include "train/data.h"

#include "base/str.h"
#include "io/json_read.h"
#include "memory/account.h"
#include "text/chat_text.h"

enum { MOST_MESSAGES = 4096 };

typedef struct line {
    rn_data_maker *maker;
    rn_json_reader reader;
    rn_chat_message *messages; // (count)
    size_t count, prompt_count;
    rn_str prompt, completion, text, instruction, input, output, system;
    bool has_prompt, has_completion, has_text, has_output, has_messages;
} line;

// ---- reading ------------------------------------------------------------------------------------

static rn_status keep(line *l, rn_str text, rn_str *out) {
    void *copy = NULL;
    RN_TRY(rn_arena_copy(&l->maker->memory, text.data ? text.data : "", text.bytes, &copy));
    *out = (rn_str){copy, text.bytes};
    return RN_OK;
}

static rn_status read_text(line *l, const char *what, rn_str *out) {
    rn_json_item item;
    RN_TRY(rn_json_next(&l->reader, &item));
    if (item.kind == RN_JSON_NULL) return RN_OK;
    if (item.kind != RN_JSON_STRING)
        return rn_fail(RN_INVALID, "'%s' is no text but %s", what, rn_json_kind_name(item.kind));
    return keep(l, item.text, out);
}

// ShareGPT's words.
static rn_str role_of(rn_str from) {
    static const struct {
        const char *from, *role;
    } words[] = {{"human", "user"},        {"gpt", "assistant"},           {"observation", "tool"},
                 {"chatgpt", "assistant"}, {"function_call", "assistant"}, {"bot", "assistant"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (rn_str_equal(from, rn_str_from(words[i].from))) return rn_str_from(words[i].role);
    return from;
}

static rn_status read_message(line *l, rn_chat_message *out) {
    rn_json_item item;
    bool spoken = false;
    *out = (rn_chat_message){0};
    for (;;) {
        RN_TRY(rn_json_next(&l->reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) break;
        bool role = rn_str_equal(item.text, RN_STR("role")),
             from = rn_str_equal(item.text, RN_STR("from"));
        bool content =
            rn_str_equal(item.text, RN_STR("content")) || rn_str_equal(item.text, RN_STR("value"));
        if (role || from)
            RN_TRY(read_text(l, "role", &out->role));
        else if (content)
            RN_TRY(read_text(l, "content", &out->content));
        else
            RN_TRY(rn_json_skip(&l->reader));
        if (content) spoken = out->content.data != NULL;
    }
    out->role = role_of(out->role);
    if (out->role.bytes == 0) return rn_fail(RN_INVALID, "message %zu has no role", l->count + 1);
    if (!spoken) return rn_fail(RN_INVALID, "message %zu has no content", l->count + 1);
    return RN_OK;
}

static rn_status add_message(line *l, rn_str role, rn_str content) {
    void *block = NULL;
    if (!l->messages) {
        RN_TRY(rn_arena_array(&l->maker->memory, MOST_MESSAGES, sizeof *l->messages, &block));
        l->messages = block;
    }
    if (l->count == MOST_MESSAGES)
        return rn_fail(RN_INVALID, "more than %d messages in a chat", MOST_MESSAGES);
    l->messages[l->count++] = (rn_chat_message){.role = role, .content = content};
    return RN_OK;
}

// Behind the array's beginning.
static rn_status read_messages(line *l) {
    rn_json_item item;
    rn_chat_message message;
    l->has_messages = true;
    for (;;) {
        RN_TRY(rn_json_next(&l->reader, &item));
        if (item.kind == RN_JSON_ARRAY_END) return RN_OK;
        if (item.kind != RN_JSON_OBJECT)
            return rn_fail(RN_INVALID, "message %zu is no object but %s", l->count + 1,
                           rn_json_kind_name(item.kind));
        RN_TRY(read_message(l, &message));
        RN_TRY(add_message(l, message.role, message.content));
    }
}

// A text, or a list of messages.
static rn_status read_either(line *l, const char *what, rn_str *out, bool *out_given) {
    rn_json_item item;
    RN_TRY(rn_json_next(&l->reader, &item));
    *out_given = item.kind == RN_JSON_STRING;
    if (item.kind == RN_JSON_STRING) return keep(l, item.text, out);
    if (item.kind == RN_JSON_ARRAY) return read_messages(l);
    return rn_fail(RN_INVALID, "'%s' is neither a text nor messages but %s", what,
                   rn_json_kind_name(item.kind));
}

static rn_status read_key(line *l, rn_str key) {
    bool prompt = rn_str_equal(key, RN_STR("prompt"));
    if (prompt || rn_str_equal(key, RN_STR("completion")))
        return prompt ? read_either(l, "prompt", &l->prompt, &l->has_prompt)
                      : read_either(l, "completion", &l->completion, &l->has_completion);
    if (rn_str_equal(key, RN_STR("messages")) || rn_str_equal(key, RN_STR("conversations"))) {
        RN_TRY(rn_json_expect(&l->reader, RN_JSON_ARRAY, NULL));
        return read_messages(l);
    }
    const struct {
        const char *key;
        rn_str *out;
        bool *given;
    } texts[] = {{"text", &l->text, &l->has_text},
                 {"output", &l->output, &l->has_output},
                 {"instruction", &l->instruction, NULL},
                 {"input", &l->input, NULL},
                 {"system", &l->system, NULL}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (rn_str_equal(key, rn_str_from(texts[i].key))) {
            RN_TRY(read_text(l, texts[i].key, texts[i].out));
            if (texts[i].given) *texts[i].given = texts[i].out->data != NULL;
            return RN_OK;
        }
    return rn_json_skip(&l->reader);
}

static rn_status read_line(line *l) {
    rn_json_item item;
    RN_TRY(rn_json_expect(&l->reader, RN_JSON_OBJECT, NULL));
    for (;;) {
        RN_TRY(rn_json_next(&l->reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) return rn_json_expect(&l->reader, RN_JSON_END, NULL);
        RN_TRY(read_key(l, item.text));
    }
}

// ---- chats --------------------------------------------------------------------------------------

static rn_status refuse_turn(size_t index, const char *why) {
    return rn_hint(rn_fail(RN_INVALID, "message %zu: %s", index + 1, why),
                   "a system message if there is one, then questions and answers in turns, each "
                   "answer with words; other lines are to be left out");
}

// Nobody answers: the first role that is none of the usual ones may be why.
static rn_status refuse_silence(const line *l) {
    static const char *const usual[] = {"system", "user", "tool"};
    for (size_t i = 0; i < l->count; i++) {
        bool known = false;
        for (size_t k = 0; k < sizeof usual / sizeof *usual; k++)
            known |= rn_str_equal(l->messages[i].role, rn_str_from(usual[k]));
        if (!known)
            return rn_hint(rn_fail(RN_INVALID,
                                   "the assistant says nothing in this chat: message %zu is of "
                                   "'%.*s'",
                                   i + 1, RN_STR_ARG(l->messages[i].role)),
                           "what is learned are messages of 'assistant'");
    }
    return rn_hint(rn_fail(RN_INVALID, "the assistant says nothing in this chat"),
                   "what is learned are messages of 'assistant': leave the line out");
}

static rn_status check_roles(const line *l) {
    bool answered = false;
    for (size_t i = 0; i < l->count; i++) {
        const rn_chat_message *m = &l->messages[i];
        bool answer = rn_str_equal(m->role, RN_STR("assistant"));
        bool system = rn_str_equal(m->role, RN_STR("system"));
        if (system && i > 0) return refuse_turn(i, "a system message stands first");
        if (answer && (i == 0 || (i == 1 && rn_str_equal(l->messages[0].role, RN_STR("system")))))
            return refuse_turn(i, "the assistant answers nobody");
        if (answer && rn_str_equal(l->messages[i - 1].role, RN_STR("assistant")))
            return refuse_turn(i, "the assistant speaks twice");
        if (answer && m->content.bytes == 0) return refuse_turn(i, "the assistant says nothing");
        answered = answered || answer;
    }
    return answered ? RN_OK : refuse_silence(l);
}

static rn_status encode_chat(const line *l, size_t count, bool ask, rn_tokens *out) {
    rn_chat chat = {.messages = l->messages, .count = count, .add_generation_prompt = ask};
    return rn_chat_encode(l->maker->chat_template, l->maker->tokenizer, &chat, out);
}

static bool begins(const rn_tokens *text, const rn_tokens *part) {
    return part->count <= text->count &&
           memcmp(text->ids, part->ids, part->count * sizeof *part->ids) == 0;
}

// Marks the tokens of answer number `message` in `all`.
static rn_status mark_answer(const line *l, size_t message, const rn_tokens *all, bool *learned) {
    rn_tokens before = {0}, with = {0};
    rn_status s = encode_chat(l, message, true, &before);
    if (s == RN_OK) s = encode_chat(l, message + 1, false, &with);
    if (s == RN_OK && (!begins(&with, &before) || !begins(all, &with)))
        s = rn_hint(rn_fail(RN_UNSUPPORTED,
                            "the chat template rewrites what stands before message %zu",
                            message + 1),
                    "then nobody can tell which tokens the assistant said: use another template");
    size_t end = with.count;
    while (s == RN_OK && end > before.count &&
           !rn_tokenizer_is_end(l->maker->tokenizer, with.ids[end - 1]))
        end--;
    if (end == before.count) end = with.count; // no token ends the turn
    for (size_t i = before.count; s == RN_OK && i < end; i++)
        learned[i] = true;
    rn_tokens_free(&before);
    rn_tokens_free(&with);
    return s;
}

// As the template marks them by {% generation %}; where it does not, answer by answer.
static rn_status mark(const line *l, const rn_tokens *all, const rn_buffer *spans, bool *learned) {
    const rn_chat_span *list = (const void *)spans->data;
    size_t count = spans->bytes / sizeof *list;
    for (size_t s = 0; s < count; s++)
        for (size_t i = list[s].begin; i < list[s].end; i++)
            learned[i] = true;
    for (size_t i = 0; count == 0 && i < l->count; i++)
        if (rn_str_equal(l->messages[i].role, RN_STR("assistant")))
            RN_TRY(mark_answer(l, i, all, learned));
    return RN_OK;
}

static rn_status make_chat(line *l, rn_tokens *out) {
    rn_tokens all = {0};
    rn_buffer spans = {0};
    void *learned = NULL;
    if (!l->maker->chat_template)
        return rn_hint(
            rn_fail(RN_UNSUPPORTED, "this is a chat, and the model has no chat template"),
            "use prompt and completion, or text");
    RN_TRY(check_roles(l));
    rn_chat chat = {.messages = l->messages, .count = l->count};
    rn_status s =
        rn_chat_encode_spans(l->maker->chat_template, l->maker->tokenizer, &chat, &all, &spans);
    if (s == RN_OK) s = rn_arena_array(&l->maker->memory, all.count, sizeof(bool), &learned);
    if (s == RN_OK) s = mark(l, &all, &spans, learned);
    rn_buffer_free(&spans);
    for (size_t i = 0; s == RN_OK && i < all.count; i++)
        s = rn_tokens_push(out, all.ids[i] | (((bool *)learned)[i] ? RN_DATA_LEARNED : 0));
    rn_tokens_free(&all);
    return s;
}

// ---- texts --------------------------------------------------------------------------------------

static rn_status encode(const line *l, rn_str text, uint32_t flags, bool learned, rn_tokens *out) {
    size_t first = out->count;
    RN_TRY(rn_tokenizer_encode(l->maker->tokenizer, text, flags, out));
    for (size_t i = first; learned && i < out->count; i++)
        out->ids[i] |= RN_DATA_LEARNED;
    return RN_OK;
}

// The tokenizer may end a text by itself; each has one end.
static rn_status end_text(const line *l, rn_tokens *out) {
    uint32_t end = rn_tokenizer_get_info(l->maker->tokenizer)->end;
    bool ended = out->count && (out->ids[out->count - 1] & ~RN_DATA_LEARNED) == end;
    if (end == RN_NO_TOKEN || ended) return RN_OK;
    return rn_tokens_push(out, end | RN_DATA_LEARNED);
}

static rn_status make_completion(const line *l, rn_tokens *out) {
    uint32_t end = rn_tokenizer_get_info(l->maker->tokenizer)->end;
    if (l->completion.bytes == 0) return rn_fail(RN_INVALID, "the completion is empty");
    RN_TRY(encode(l, l->prompt, RN_ENCODE_BEGIN, false, out));
    if (out->count && out->ids[out->count - 1] == end) out->count--; // it goes on
    RN_TRY(encode(l, l->completion, RN_ENCODE_PLAIN, true, out));
    return end_text(l, out);
}

static rn_status make_alpaca(line *l, rn_tokens *out) {
    rn_str user = l->instruction;
    void *joined = NULL;
    if (l->input.bytes) {
        size_t bytes = user.bytes + 1 + l->input.bytes;
        RN_TRY(rn_arena_array(&l->maker->memory, bytes, 1, &joined));
        if (user.bytes) memcpy(joined, user.data, user.bytes);
        ((char *)joined)[user.bytes] = '\n';
        memcpy((char *)joined + user.bytes + 1, l->input.data, l->input.bytes);
        user = (rn_str){joined, bytes};
    }
    if (l->system.bytes) RN_TRY(add_message(l, RN_STR("system"), l->system));
    RN_TRY(add_message(l, RN_STR("user"), user));
    RN_TRY(add_message(l, RN_STR("assistant"), l->output));
    return make_chat(l, out);
}

static rn_status make_sample(line *l, rn_tokens *out) {
    if (l->has_messages) return make_chat(l, out);
    if (l->has_prompt && l->has_completion) return make_completion(l, out);
    if (l->has_output && l->instruction.data) return make_alpaca(l, out);
    if (!l->has_text)
        return rn_hint(
            rn_fail(RN_INVALID, "the line has no sample"),
            "there are messages, conversations, prompt with completion, instruction with "
            "output, and text");
    RN_TRY(encode(l, l->text, RN_ENCODE_BEGIN, true, out));
    return end_text(l, out);
}

rn_status rn_data_make(rn_data_maker *maker, rn_str text, rn_tokens *out) {
    line l = {.maker = maker};
    rn_json_reader_init(&l.reader, text, RN_HOST_OTHER);
    rn_status s = read_line(&l);
    if (s == RN_OK) s = make_sample(&l, out);
    rn_json_reader_free(&l.reader);
    return s;
}

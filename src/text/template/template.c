// template.c — chat.h: a template's text becomes a tree once, and each rendering walks that tree
// with memory of its own. Nothing is written to the caller's sink before all of it is rendered.
#include "text/chat_text.h"

#include "memory/account.h"
#include "text/template/template_run.h"

struct rn_chat_template {
    rn_arena arena; // the source and the tree
    rn_jinja_source source;
    rn_jinja_node *body;
};

// The tokens are needed for as long as the tree is made of them.
static rn_status parse(rn_chat_template *chat_template, const char *name, rn_str source) {
    rn_arena tokens;
    rn_jinja_token *first = NULL;
    RN_TRY(rn_jinja_source_make(&chat_template->arena, name, source, &chat_template->source));
    rn_arena_init(&tokens, RN_HOST_OTHER, 0);
    rn_status s = rn_jinja_lex(&chat_template->source, &tokens, &first);
    rn_jinja_parser parser = {
        .source = &chat_template->source, .arena = &chat_template->arena, .token = first};
    if (s == RN_OK) s = rn_jinja_parse(&parser, &chat_template->body);
    rn_arena_free_all(&tokens);
    return s;
}

rn_status rn_chat_template_parse(const char *name, rn_str source, rn_chat_template **out) {
    void *block;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_chat_template), &block));
    rn_chat_template *chat_template = block;
    rn_arena_init(&chat_template->arena, RN_HOST_OTHER, 0);
    rn_status s = parse(chat_template, name, source);
    if (s == RN_OK)
        *out = chat_template;
    else
        rn_chat_template_free(chat_template);
    return s;
}

void rn_chat_template_free(rn_chat_template *chat_template) {
    if (!chat_template) return;
    rn_arena_free_all(&chat_template->arena);
    rn_free(RN_HOST_OTHER, chat_template, sizeof *chat_template);
}

// ---- the conversation as values ----------------------------------------------------------

// Templates write '<|' + role + '|>' and mean a special token. A role that nobody has heard of may
// be anything: "end" would be <|end|>.
static bool is_known_role(rn_str role) {
    static const rn_str known[] = {RN_STR("system"), RN_STR("user"),      RN_STR("assistant"),
                                   RN_STR("tool"),   RN_STR("developer"), RN_STR("function")};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (rn_str_equal(role, known[i])) return true;
    return false;
}

static rn_status add_tool_use(rn_jinja_run *run, const rn_chat_tool_use *use, rn_jinja_dict *dict) {
    rn_jinja_value value;
    rn_str id;
    if (use->calls.bytes) {
        RN_TRY(rn_jinja_from_json(run, use->calls, &value));
        RN_TRY(rn_jinja_dict_set(run, dict, rn_jinja_text(RN_STR("tool_calls")), value));
    }
    if (!use->call_id.data) return RN_OK;
    RN_TRY(rn_jinja_copy_foreign(run, use->call_id, &id));
    return rn_jinja_dict_set(run, dict, rn_jinja_text(RN_STR("tool_call_id")), rn_jinja_text(id));
}

static rn_status make_message(rn_jinja_run *run, const rn_chat_message *message,
                              rn_jinja_value *out) {
    rn_jinja_dict *dict = NULL;
    rn_str role = message->role, content = {"", 0};
    if (!is_known_role(role)) RN_TRY(rn_jinja_copy_foreign(run, message->role, &role));
    RN_TRY(rn_jinja_copy_foreign(run, message->content, &content));
    RN_TRY(rn_jinja_dict_new(run, &dict));
    RN_TRY(rn_jinja_dict_set(run, dict, rn_jinja_text(RN_STR("role")), rn_jinja_text(role)));
    RN_TRY(rn_jinja_dict_set(run, dict, rn_jinja_text(RN_STR("content")), rn_jinja_text(content)));
    if (message->tools) RN_TRY(add_tool_use(run, message->tools, dict));
    *out = (rn_jinja_value){.type = RN_JINJA_DICT, .dict = dict};
    return RN_OK;
}

static rn_status set_messages(rn_jinja_run *run, const rn_chat *chat) {
    rn_jinja_list *list = NULL;
    RN_TRY(rn_jinja_list_new(run, &list));
    for (size_t i = 0; i < chat->count; i++) {
        const rn_chat_message *message = &chat->messages[i];
        rn_jinja_value value = rn_jinja_none();
        if (!rn_utf8_valid(message->role) || !rn_utf8_valid(message->content))
            return rn_fail(RN_INVALID, "message %zu is not UTF-8", i + 1);
        RN_TRY(make_message(run, message, &value));
        RN_TRY(rn_jinja_list_add(run, list, value));
    }
    return rn_jinja_scope_set(run, RN_STR("messages"), rn_jinja_sequence(RN_JINJA_LIST, list));
}

// A token that the tokenizer does not have stays undefined.
static rn_status set_token(rn_jinja_run *run, rn_str name, rn_str token) {
    if (!token.data) return RN_OK;
    if (!rn_utf8_valid(token)) return rn_fail(RN_INVALID, "%.*s is not UTF-8", RN_STR_ARG(name));
    return rn_jinja_scope_set(run, name, rn_jinja_text(token));
}

static rn_status set_variables(rn_jinja_run *run, const rn_chat *chat) {
    RN_TRY(rn_jinja_scope_push(run, NULL));
    RN_TRY(set_messages(run, chat));
    RN_TRY(rn_jinja_scope_set(run, RN_STR("add_generation_prompt"),
                              rn_jinja_bool(chat->add_generation_prompt)));
    rn_jinja_value tools = rn_jinja_none();
    if (chat->tools.bytes) RN_TRY(rn_jinja_from_json(run, chat->tools, &tools));
    RN_TRY(rn_jinja_scope_set(run, RN_STR("tools"), tools));
    RN_TRY(rn_jinja_scope_set(run, RN_STR("documents"), rn_jinja_none()));
    RN_TRY(set_token(run, RN_STR("bos_token"), chat->bos_token));
    return set_token(run, RN_STR("eos_token"), chat->eos_token);
}

rn_status rn_chat_text_make(const rn_chat_template *chat_template, const rn_chat *chat,
                            rn_chat_text *out) {
    rn_jinja_run run = {
        .source = &chat_template->source, .most_bytes = chat->most_bytes, .now = chat->now};
    rn_arena_init(&run.arena, RN_HOST_OTHER, 0);
    rn_buffer_init(&run.out, RN_HOST_OTHER, RN_JINJA_MAX_OUTPUT_BYTES);
    rn_buffer_init(&run.taint, RN_HOST_OTHER, rn_taint_bytes(RN_JINJA_MAX_OUTPUT_BYTES));
    rn_buffer_init(&run.spans, RN_HOST_OTHER, RN_JINJA_MAX_OUTPUT_BYTES);
    rn_status s = set_variables(&run, chat);
    if (s == RN_OK) s = rn_jinja_execute(&run, chat_template->body);
    rn_arena_free_all(&run.arena);
    *out = (rn_chat_text){run.out, run.taint, run.spans, run.spans_lost};
    if (s != RN_OK) rn_chat_text_free(out);
    return s;
}

void rn_chat_text_free(rn_chat_text *text) {
    rn_buffer_free(&text->text);
    rn_buffer_free(&text->taint);
    rn_buffer_free(&text->spans);
}

rn_status rn_chat_template_render(const rn_chat_template *chat_template, const rn_chat *chat,
                                  rn_sink sink) {
    rn_chat_text made;
    RN_TRY(rn_chat_text_make(chat_template, chat, &made));
    rn_status s = RN_OK;
    if (made.text.bytes > 0) s = rn_sink_write(sink, made.text.data, made.text.bytes);
    rn_chat_text_free(&made);
    return s;
}

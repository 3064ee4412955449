// run_chat.c — a conversation on the terminal: a line, an answer, and so on.
//
// Each turn the whole conversation is written with the model's template and encoded; what the
// sequence has already read of it stays, the rest is fed. Where it outgrows the context, the oldest
// turns are left out, never the system message.
#include "run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_MESSAGES = 4096 };

typedef struct chat {
    runner *r;
    rn_chat_template *form;
    text_buffer form_source;
    rn_chat_message messages[MAX_MESSAGES]; // contents are in `texts`
    text_buffer texts[MAX_MESSAGES];
    size_t count, first; // first: the oldest turn that is still told
    bool has_system;
    text_buffer said;
    rn_tokens tokens;
} chat;

// ---- the form -----------------------------------------------------------------------------------

static rn_status open_form(chat *c) {
    const char *path = rn_settings_text(c->r->in->settings, "template");
    rn_str source = rn_model_chat_template(c->r->model);
    if (path[0]) {
        RN_TRY(read_text(path, &c->form_source));
        source = (rn_str){c->form_source.data, c->form_source.bytes};
    }
    if (source.bytes == 0)
        return rn_hint(rn_fail(RN_NOT_FOUND, "the model has no chat template"),
                       "give one with --template FILE, or use -p TEXT without --chat");
    return rn_chat_template_parse(path[0] ? path : "the model's chat template", source, &c->form);
}

// ---- the conversation ---------------------------------------------------------------------------

static rn_status add_message(chat *c, const char *role, const char *content, size_t bytes) {
    if (c->count == MAX_MESSAGES)
        return rn_fail(RN_INVALID, "a conversation has at most %d messages", MAX_MESSAGES);
    rn_chat_message *message = &c->messages[c->count];
    text_buffer *copy = &c->texts[c->count];
    RN_TRY(append_text(copy, content, bytes));
    message->role = (rn_str){role, strlen(role)};
    message->content = (rn_str){copy->data, bytes};
    c->count++;
    return RN_OK;
}

// The system message and the turns from `first` on, as tokens.
static rn_status encode(chat *c) {
    rn_chat_message told[MAX_MESSAGES];
    size_t count = 0;
    if (c->has_system) told[count++] = c->messages[0];
    for (size_t i = c->first; i < c->count; i++)
        told[count++] = c->messages[i];
    rn_chat form = {
        .messages = told, .count = count, .add_generation_prompt = true, .now = time(NULL)};
    c->tokens.count = 0;
    return rn_chat_encode(c->form, c->r->tokenizer, &form, &c->tokens);
}

// Leaves out the oldest question and answer until a quarter of the context is free.
static rn_status fit(chat *c) {
    size_t context = rn_generator_context(c->r->generator);
    for (;;) {
        RN_TRY(encode(c));
        if (c->tokens.count + context / 4 <= context) return RN_OK;
        if (c->first + 2 >= c->count) break;
        c->first += 2;
    }
    if (c->tokens.count < context) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "the message has %zu tokens, the context %zu",
                           c->tokens.count, context),
                   "a larger --ctx, or a shorter message");
}

static rn_status put_answer(void *self, const char *piece, size_t bytes) {
    chat *c = self;
    RN_TRY(append_text(&c->said, piece, bytes));
    if (fwrite(piece, 1, bytes, stdout) == bytes && fflush(stdout) == 0) return RN_OK;
    return rn_fail(RN_IO, "cannot write to standard output: %s", strerror(errno));
}

// What the sequence knows already stays, but for the last token, whose logits are wanted.
static size_t rewind_to_known(chat *c) {
    size_t count, known = 0;
    const uint32_t *ids = rn_sequence_tokens(c->r->sequence, &count);
    while (known < count && known + 1 < c->tokens.count && ids[known] == c->tokens.ids[known])
        known++;
    rn_sequence_rewind(c->r->sequence, known);
    return known;
}

static rn_status reply(chat *c) {
    rn_answer a;
    RN_TRY(fit(c));
    size_t known = rewind_to_known(c);
    c->said.bytes = 0;
    rn_sink sink = {c, put_answer};
    RN_TRY(speak(c->r, c->tokens.ids + known, c->tokens.count - known, sink, &a));
    printf(a.reason == RN_END_TOKEN || a.reason == RN_END_STOP ? "\n" : "\n(%s)\n",
           rn_end_reason_name(a.reason));
    forget_interrupt();
    return add_message(c, "assistant", c->said.data ? c->said.data : "", c->said.bytes);
}

static rn_status converse(chat *c) {
    const char *first = rn_settings_text(c->r->in->settings, "prompt");
    bool terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    text_buffer line = {0};
    bool more = true;
    rn_status s = RN_OK;
    if (first[0]) {
        s = add_message(c, "user", first, strlen(first));
        if (s == RN_OK) s = reply(c);
    }
    while (s == RN_OK) { // until the end of the input, or Ctrl-C
        if (terminal) fprintf(stderr, "> ");
        s = read_line(stdin, &line, &more);
        if (s != RN_OK || !more || interrupted) break;
        if (line.bytes == 0) continue;
        s = add_message(c, "user", line.data, line.bytes);
        if (s == RN_OK) s = reply(c);
    }
    if (terminal) fprintf(stderr, "\n");
    free_text(&line);
    return s;
}

static rn_status open_chat(chat *c) {
    const char *system = rn_settings_text(c->r->in->settings, "system");
    RN_TRY(open_form(c));
    if (!system[0]) return RN_OK;
    RN_TRY(add_message(c, "system", system, strlen(system)));
    c->has_system = true;
    c->first = 1;
    return RN_OK;
}

rn_status run_chat(runner *r) {
    chat *c = calloc(1, sizeof *c); // many messages: too large for the stack
    if (!c) return rn_fail(RN_NO_MEMORY, "no memory for the conversation");
    c->r = r;
    bool quiet = rn_settings_bool(r->in->settings, "quiet");
    rn_status s = open_chat(c);
    if (s == RN_OK && !quiet) print_opening(r);
    if (s == RN_OK) s = converse(c);
    if (s == RN_OK && !quiet) print_report(r);
    for (size_t i = 0; i < MAX_MESSAGES; i++)
        free_text(&c->texts[i]);
    rn_chat_template_free(c->form);
    rn_tokens_free(&c->tokens);
    free_text(&c->form_source);
    free_text(&c->said);
    free(c);
    return s;
}

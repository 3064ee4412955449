// run_chat.c — a conversation on the terminal: a line, an answer, and so on; commands begin with
// '/', a text of several lines is pasted, has Alt-Enter between them, or stands between lines of
// """.
//
// Each turn the whole conversation is written with the model's template and encoded; what the
// sequence has already read of it stays, the rest is fed. Where it outgrows the context, the oldest
// turns are left out, never the system message, and it is said.
#include "line_edit.h"

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
    rn_chat_message messages[MAX_MESSAGES]; // contents are in `texts`
    text_buffer texts[MAX_MESSAGES];
    size_t count, first; // first: the oldest turn that is still told
    size_t dropped;      // messages that were left out since that was said last
    bool terminal;       // somebody reads along
    bool edits;          // and types on one that can move its cursor
    line_editor editor;
    bool has_system;
    text_buffer said;
    rn_tokens tokens;
} chat;

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
        c->dropped += 2;
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

static void tell_dropped(chat *c) {
    if (c->dropped && c->terminal)
        fprintf(stderr,
                "(the context of %zu tokens is full: the oldest %zu messages are no longer told to "
                "the model; /clear begins anew%s)\n",
                rn_generator_context(c->r->generator), c->dropped,
                c->r->grows ? ", a larger --budget has room for more"
                            : ", --ctx N makes it larger");
    c->dropped = 0;
}

// Why an answer ended, unless the model ended it. To whoever reads along: the answer is the text.
static void tell_end(const chat *c, const rn_answer *a) {
    printf("\n");
    fflush(stdout);
    if (a->reason == RN_END_TOKEN || a->reason == RN_END_STOP) return;
    if (a->reason == RN_END_CONTEXT)
        fprintf(stderr,
                "(the context of %zu tokens is full: the answer ends here, and the oldest messages "
                "make room for the next)\n",
                rn_generator_context(c->r->generator));
    else if (a->reason == RN_END_LIMIT)
        fprintf(stderr, "(token limit: --tokens N sets it)\n");
    else
        fprintf(stderr, "(%s)\n", rn_end_reason_name(a->reason));
}

static rn_status reply(chat *c) {
    rn_answer a;
    RN_TRY(fit(c));
    size_t known = rewind_to_known(c);
    c->said.bytes = 0;
    rn_sink sink = {c, put_answer};
    if (c->edits) hide_typing(&c->editor);
    rn_status s = speak(c->r, c->tokens.ids + known, c->tokens.count - known, sink, &a);
    show_typing(&c->editor);
    if (s != RN_OK) return s;
    tell_end(c, &a);
    tell_dropped(c);
    forget_interrupt();
    return add_message(c, "assistant", c->said.data ? c->said.data : "", c->said.bytes);
}

// ---- commands -----------------------------------------------------------------------------------

// Everything but the system message.
static void clear(chat *c) {
    for (size_t i = c->has_system; i < c->count; i++)
        free_text(&c->texts[i]);
    c->count = c->first = c->has_system;
}

static rn_status set_system(chat *c, const char *text) {
    for (size_t i = 0; i < c->count; i++)
        free_text(&c->texts[i]);
    c->count = c->first = 0;
    c->has_system = false;
    if (!*text) return RN_OK;
    RN_TRY(add_message(c, "system", text, strlen(text)));
    c->has_system = true;
    c->first = 1;
    return RN_OK;
}

// As the lines of a file of training data: {"messages": [...]}.
static rn_status save(const chat *c, const char *path) {
    rn_json json;
    FILE *file = *path ? fopen(path, "w") : NULL;
    if (!file)
        return rn_fail(RN_INVALID, "/save: %s", *path ? strerror(errno) : "give it a file's name");
    rn_json_begin(&json, rn_sink_file(file), false);
    rn_json_object(&json, NULL);
    rn_json_array(&json, "messages");
    for (size_t i = 0; i < c->count; i++) {
        rn_json_object(&json, NULL);
        rn_json_text(&json, "role", c->messages[i].role);
        rn_json_text(&json, "content", c->messages[i].content);
        rn_json_end(&json);
    }
    rn_json_end(&json);
    rn_json_end(&json);
    rn_status s = rn_json_finish(&json);
    if (fclose(file) != 0 && s == RN_OK) s = rn_fail(RN_IO, "/save %s: %s", path, strerror(errno));
    if (s == RN_OK) fprintf(stderr, "saved %zu messages to %s\n", c->count, path);
    return s;
}

static const struct {
    const char *key, *text;
} help[] = {
    {"/system TEXT", "begin anew with another system message (none without TEXT)"},
    {"/clear", "forget the conversation, but for the system message"},
    {"/save FILE", "write the conversation as a line of JSON"},
    {"/bye", "end (so does Ctrl-D); Ctrl-C stops an answer, or empties the line"},
    {"\"\"\"", "before and behind a text of several lines (or Alt-Enter, or paste)"},
    {"arrow keys", "move in the line, and to earlier ones"},
};

// `text` in lines of `columns`, broken at blanks, each behind `indent` blanks but the first.
static void write_wrapped(const char *text, size_t indent, size_t columns) {
    while (*text) {
        size_t most = columns > indent + 1 ? columns - indent - 1 : 1;
        size_t bytes = strlen(text) <= most ? strlen(text) : most;
        if (text[bytes])
            while (bytes > 0 && text[bytes] != ' ')
                bytes--;
        if (bytes == 0) bytes = strcspn(text, " "); // a word that is wider
        fprintf(stderr, "%.*s\n", (int)bytes, text);
        text += bytes + strspn(text + bytes, " ");
        if (*text) fprintf(stderr, "%*s", (int)indent, "");
    }
}

// What a key does stands beside it, on narrow terminals below it.
static void write_help(void) {
    enum { KEY_COLUMNS = 15, NARROW = 50 };
    size_t columns = terminal_columns();
    for (size_t i = 0; i < sizeof help / sizeof *help; i++) {
        size_t indent = columns < NARROW ? 2 : KEY_COLUMNS;
        fprintf(stderr, columns < NARROW ? "%s\n  " : "%-15s", help[i].key);
        write_wrapped(help[i].text, indent, columns);
    }
}

// What a command is called with; NULL: it is not this one.
static const char *behind(const char *line, const char *name) {
    size_t bytes = strlen(name);
    if (strncmp(line, name, bytes) != 0 || (line[bytes] && line[bytes] != ' ')) return NULL;
    return line + bytes + strspn(line + bytes, " ");
}

// *out_end: the conversation is over. A command that fails says why, and it goes on.
static rn_status obey(chat *c, const char *line, bool *out_end) {
    const char *rest = NULL;
    *out_end = behind(line, "/bye") || behind(line, "/exit") || behind(line, "/quit");
    if (*out_end) return RN_OK;
    if ((rest = behind(line, "/system"))) {
        RN_TRY(set_system(c, rest));
        fprintf(stderr, "(a new conversation%s)\n", *rest ? "" : ", without a system message");
        return RN_OK;
    }
    if (behind(line, "/clear")) {
        clear(c);
        fprintf(stderr, "(a new conversation)\n");
        return RN_OK;
    }
    rn_status s = RN_OK;
    if ((rest = behind(line, "/save")))
        s = save(c, rest);
    else if (behind(line, "/help") || behind(line, "/?"))
        write_help();
    else
        s = rn_fail(RN_INVALID, "there is no command %.40s; /help lists them", line);
    if (s != RN_OK) fprintf(stderr, "%s\n", rn_last_error()->message);
    return RN_OK;
}

// ---- lines --------------------------------------------------------------------------------------

// How full the context is, where somebody looks; in few columns, in per cent.
static void write_mark(const chat *c, bool inside, char *out, size_t room) {
    enum { NARROW = 50 };
    size_t used = 0, context = rn_generator_context(c->r->generator);
    (void)rn_sequence_tokens(c->r->sequence, &used);
    if (inside)
        snprintf(out, room, ". ");
    else if (used == 0 || c->count == c->has_system) // nothing is told yet
        snprintf(out, room, "> ");
    else if (terminal_columns() < NARROW)
        snprintf(out, room, "[%zu%%] > ", 100 * used / context);
    else
        snprintf(out, room, "[%zu of %zu tokens] > ", used, context);
}

static rn_status next_line(chat *c, bool inside, text_buffer *out, bool *out_more) {
    char mark[80];
    write_mark(c, inside, mark, sizeof mark);
    if (!c->edits) {
        if (c->terminal) fprintf(stderr, "%s", mark);
        return read_line(stdin, out, out_more);
    }
    c->editor.nested = inside;
    RN_TRY(edit_line(&c->editor, mark, out, out_more));
    return *out_more && out->bytes ? remember_line(&c->editor, out) : RN_OK;
}

// A line, or the lines between two of """. *out_text: it is not a command, whatever it begins with.
static rn_status read_message(chat *c, text_buffer *out, bool *out_more, bool *out_text) {
    text_buffer line = {0};
    RN_TRY(next_line(c, false, out, out_more));
    *out_text = *out_more && memchr(out->data ? out->data : "", '\n', out->bytes) != NULL;
    if (!*out_more || strncmp(out->data ? out->data : "", "\"\"\"", 3) != 0) return RN_OK;
    *out_text = true;
    memmove(out->data, out->data + 3, out->bytes -= 3);
    out->data[out->bytes] = 0;
    rn_status s = RN_OK;
    for (bool ended = false, more = true; s == RN_OK && !ended;) {
        size_t bytes = out->bytes;
        ended = bytes >= 3 && memcmp(out->data + bytes - 3, "\"\"\"", 3) == 0;
        if (ended) out->data[out->bytes -= 3] = 0;
        if (ended) break;
        s = next_line(c, true, &line, &more);
        if (c->editor.broken) out->bytes = 0;
        if (s != RN_OK || !more || interrupted) break;
        if (bytes) s = append_text(out, "\n", 1);
        if (s == RN_OK) s = append_text(out, line.data ? line.data : "", line.bytes);
    }
    free_text(&line);
    return s;
}

// A message that cannot be told to the model is forgotten: the others go on without it.
static rn_status answer_line(chat *c, const text_buffer *line) {
    RN_TRY(add_message(c, "user", line->data, line->bytes));
    rn_status s = reply(c);
    if (s != RN_INVALID || !c->terminal) return s;
    const rn_error_info *error = rn_last_error();
    fprintf(stderr, "%s%s%s\n", error->message, error->hint[0] ? "; " : "", error->hint);
    c->count--;
    free_text(&c->texts[c->count]);
    return RN_OK;
}

static rn_status converse(chat *c) {
    const char *first = given_prompt(c->r->in);
    text_buffer line = {0};
    bool more = true, text = false, end = false;
    rn_status s = RN_OK;
    c->terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    c->edits = can_edit_lines();
    if (c->terminal) fprintf(stderr, "A chat. /help lists commands; Ctrl-D ends.\n");
    if (first[0]) {
        s = add_message(c, "user", first, strlen(first));
        if (s == RN_OK) s = reply(c);
    }
    while (s == RN_OK && !end) { // until the end of the input, or Ctrl-C
        s = read_message(c, &line, &more, &text);
        if (s != RN_OK || !more || interrupted) break;
        if (line.bytes == 0 || strspn(line.data, " \t\n") == line.bytes) continue;
        bool obeys = c->terminal && !text && line.data[0] == '/';
        s = obeys ? obey(c, line.data, &end) : answer_line(c, &line);
    }
    if (c->terminal) fprintf(stderr, "\n");
    free_text(&line);
    return s;
}

static rn_status open_chat(chat *c) {
    const char *system = rn_settings_text(c->r->in->settings, "system");
    RN_TRY(open_form(c->r, &c->form));
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
    free_line_editor(&c->editor);
    rn_chat_template_free(c->form);
    rn_tokens_free(&c->tokens);
    free_text(&c->said);
    free(c);
    return s;
}

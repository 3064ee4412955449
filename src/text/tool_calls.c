// tool_calls.c — see tool_calls.h.
#include "text/tool_calls.h"

#include "base/checked.h"
#include "base/str.h"
#include "io/json_read.h"
#include "memory/account.h"

#include <ctype.h>
#include <string.h>

#define FROM RN_HOST_IO

static const rn_str hermes_begin = {"<tool_call>", 11}, hermes_end = {"</tool_call>", 12};

// ---- forms --------------------------------------------------------------------------------------

static bool has(rn_str text, const char *part) {
    return memmem(text.data, text.bytes, part, strlen(part)) != NULL;
}

rn_tool_form rn_tool_form_of(rn_str source) {
    if (source.bytes == 0 || !has(source, "tools")) return RN_TOOLS_NONE;
    if (has(source, "<tool_call>")) return RN_TOOLS_HERMES;
    if (has(source, "[TOOL_CALLS]")) return RN_TOOLS_MISTRAL;
    return RN_TOOLS_LLAMA;
}

// ---- life ---------------------------------------------------------------------------------------

rn_status rn_tool_reader_init(rn_tool_reader *r, rn_tool_form form, bool inside) {
    void *block = NULL;
    *r = (rn_tool_reader){.form = form, .inside = inside, .decided = inside};
    RN_TRY(rn_alloc(FROM, RN_TOOL_HELD_BYTES, &block));
    rn_buffer_init(&r->held, FROM, RN_TOOL_HELD_BYTES);
    r->held.data = block;
    r->held.capacity = RN_TOOL_HELD_BYTES;
    return RN_OK;
}

void rn_tool_reader_free(rn_tool_reader *r) {
    if (r->held.from) rn_buffer_free(&r->held);
}

// ---- calls --------------------------------------------------------------------------------------

typedef struct call {
    rn_str name, arguments;
} call;

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static rn_str trim(rn_str text) {
    while (text.bytes && is_space(text.data[0])) {
        text.data++;
        text.bytes--;
    }
    while (text.bytes && is_space(text.data[text.bytes - 1]))
        text.bytes--;
    return text;
}

// An object at the reader, whose '{' has been read. Names and arguments are parts of `text`: a name
// with escapes is none that anybody has given to a tool.
static bool read_call(rn_json_reader *reader, rn_str text, call *out) {
    rn_json_item item;
    *out = (call){0};
    for (;;) {
        if (rn_json_next(reader, &item) != RN_OK) return false;
        if (item.kind == RN_JSON_OBJECT_END)
            return out->name.bytes > 0 && (out->arguments.bytes > 0);
        bool name = rn_str_equal(item.text, RN_STR("name"));
        bool arguments = rn_str_equal(item.text, RN_STR("arguments")) ||
                         rn_str_equal(item.text, RN_STR("parameters"));
        if (rn_json_next(reader, &item) != RN_OK) return false;
        size_t begin = (size_t)item.offset;
        if (name && item.kind != RN_JSON_STRING) return false;
        if (arguments && item.kind != RN_JSON_OBJECT) return false;
        if (rn_json_skip_rest(reader, &item) != RN_OK) return false;
        rn_str value = {text.data + begin, reader->at - begin};
        if (name) out->name = (rn_str){value.data + 1, value.bytes - 2};
        if (arguments) out->arguments = value;
        if (name && memchr(out->name.data, '\\', out->name.bytes)) return false;
    }
}

// An object, a list of them, or several with white space or ';' between them. *out_count: 0 where
// the text is anything else.
static void read_calls(rn_str text, call out[RN_TOOL_CALLS], uint32_t *out_count) {
    uint32_t count = 0;
    bool good = true;
    *out_count = 0;
    while (good && text.bytes && count < RN_TOOL_CALLS) {
        rn_json_reader reader;
        rn_json_item item;
        rn_json_reader_init(&reader, text, FROM);
        good = rn_json_next(&reader, &item) == RN_OK;
        bool list = good && item.kind == RN_JSON_ARRAY;
        if (list) good = rn_json_next(&reader, &item) == RN_OK;
        do {
            good = good && item.kind == RN_JSON_OBJECT && count < RN_TOOL_CALLS &&
                   read_call(&reader, text, &out[count]);
            count += good;
            if (good && list) good = rn_json_next(&reader, &item) == RN_OK;
        } while (good && list && item.kind != RN_JSON_ARRAY_END);
        size_t read = reader.at;
        rn_json_reader_free(&reader);
        while (good && read < text.bytes && (is_space(text.data[read]) || text.data[read] == ';'))
            read++;
        text = (rn_str){text.data + read, text.bytes - read};
    }
    if (good && text.bytes == 0) *out_count = count;
}

// False: there is none in it.
static rn_status put_calls(rn_tool_reader *r, rn_str text, rn_tool_sink sink, bool *out_any) {
    call calls[RN_TOOL_CALLS];
    uint32_t count = 0;
    rn_str inner = trim(text);
    if (r->form == RN_TOOLS_MISTRAL && rn_str_starts(inner, RN_STR("[TOOL_CALLS]")))
        inner = trim((rn_str){inner.data + 12, inner.bytes - 12});
    read_calls(inner, calls, &count);
    *out_any = count > 0 && count <= RN_TOOL_CALLS - r->calls;
    for (uint32_t i = 0; *out_any && i < count; i++, r->calls++)
        RN_TRY(sink.put_call(sink.self, calls[i].name, calls[i].arguments));
    return RN_OK;
}

// ---- text that is held --------------------------------------------------------------------------

static void drop(rn_tool_reader *r, size_t bytes) {
    memmove(r->held.data, r->held.data + bytes, r->held.bytes - bytes);
    r->held.bytes -= bytes;
}

static rn_status release(rn_tool_reader *r, size_t bytes, rn_tool_sink sink) {
    if (bytes) RN_TRY(sink.put_text(sink.self, (rn_str){r->held.data, bytes}));
    drop(r, bytes);
    return RN_OK;
}

// How many of the last bytes may be the beginning of the mark.
static size_t count_beginning(rn_str text, rn_str mark) {
    size_t most = rn_min_u64(text.bytes, mark.bytes - 1);
    for (size_t bytes = most; bytes > 0; bytes--)
        if (memcmp(text.data + text.bytes - bytes, mark.data, bytes) == 0) return bytes;
    return 0;
}

// Text before a call, without the line breaks that lead to it.
static rn_status begin_call(rn_tool_reader *r, size_t at, rn_tool_sink sink) {
    rn_str before = {r->held.data, at};
    while (before.bytes && is_space(before.data[before.bytes - 1]))
        before.bytes--;
    if (before.bytes) RN_TRY(sink.put_text(sink.self, before));
    drop(r, at + hermes_begin.bytes);
    r->inside = true;
    return RN_OK;
}

static rn_status end_call(rn_tool_reader *r, size_t bytes, size_t mark_bytes, rn_tool_sink sink) {
    bool any = false;
    RN_TRY(put_calls(r, (rn_str){r->held.data, bytes}, sink, &any));
    if (!any) { // as it was written
        RN_TRY(sink.put_text(sink.self, hermes_begin));
        RN_TRY(sink.put_text(sink.self, (rn_str){r->held.data, bytes + mark_bytes}));
    }
    drop(r, bytes + mark_bytes);
    r->inside = false;
    return RN_OK;
}

// Small models forget the marks: the whole answer is a call, often between fences.
//
//     ```json
//     {"name": "f", "arguments": {...}}
//     ```
//
// NO and YES as soon as that is certain, so that other text is not held for long.
typedef enum verdict { NO, MAYBE, YES } verdict;

static verdict match(rn_str *text, const char *wanted) {
    size_t all = strlen(wanted), bytes = rn_min_u64(text->bytes, all);
    if (memcmp(text->data, wanted, bytes) != 0) return NO;
    *text = (rn_str){text->data + bytes, text->bytes - bytes};
    return bytes == all ? YES : MAYBE;
}

static rn_str behind_fence(rn_str text) {
    while (text.bytes && (islower((unsigned char)text.data[0]) || text.data[0] == '_')) {
        text.data++;
        text.bytes--;
    }
    return trim(text);
}

static verdict is_bare_call(rn_str held) {
    rn_str text = trim(held);
    if (text.bytes && text.data[0] == '`') {
        verdict fence = match(&text, "```");
        if (fence != YES) return fence;
        text = behind_fence(text);
    }
    verdict object = match(&text, "{");
    text = trim(text);
    return object == YES ? match(&text, "\"name\"") : object;
}

static rn_str without_fences(rn_str held) {
    rn_str text = trim(held);
    if (match(&text, "```") != YES) return text;
    if (rn_str_ends(text, RN_STR("```"))) text.bytes -= 3;
    return behind_fence(text);
}

static rn_status read_hermes(rn_tool_reader *r, rn_tool_sink sink) {
    if (!r->decided) {
        verdict bare = is_bare_call((rn_str){r->held.data, r->held.bytes});
        r->bare = bare == YES;
        r->decided = bare != MAYBE;
    }
    if (!r->decided || r->bare) return RN_OK;
    for (;;) {
        rn_str held = {r->held.data, r->held.bytes};
        rn_str mark = r->inside ? hermes_end : hermes_begin;
        const char *found = memmem(held.data, held.bytes, mark.data, mark.bytes);
        if (!found && r->inside) return RN_OK;
        if (!found) {
            size_t kept = count_beginning(held, mark);
            // Blanks before a call are not text, so it is waited what comes behind them.
            while (kept < held.bytes && is_space(held.data[held.bytes - kept - 1]))
                kept++;
            return release(r, held.bytes - kept, sink);
        }
        size_t at = (size_t)(found - held.data);
        RN_TRY(r->inside ? end_call(r, at, mark.bytes, sink) : begin_call(r, at, sink));
    }
}

// The first character decides for the whole answer.
static rn_status read_whole(rn_tool_reader *r, rn_tool_sink sink) {
    rn_str held = trim((rn_str){r->held.data, r->held.bytes});
    if (!r->decided && held.bytes) {
        char first = held.data[0];
        r->decided = true;
        r->inside = first == '{' || (first == '[' && r->form == RN_TOOLS_MISTRAL);
    }
    return r->decided && !r->inside ? release(r, r->held.bytes, sink) : RN_OK;
}

static rn_status give_up(rn_tool_reader *r, rn_tool_sink sink) {
    if (r->inside && r->form == RN_TOOLS_HERMES) RN_TRY(sink.put_text(sink.self, hermes_begin));
    r->form = RN_TOOLS_NONE;
    r->inside = r->bare = false;
    return release(r, r->held.bytes, sink);
}

rn_status rn_tool_reader_put(rn_tool_reader *r, rn_str text, rn_tool_sink sink) {
    if (text.bytes > RN_TOOL_HELD_BYTES - r->held.bytes) RN_TRY(give_up(r, sink));
    if (r->form == RN_TOOLS_NONE) return text.bytes ? sink.put_text(sink.self, text) : RN_OK;
    RN_TRY(rn_buffer_append(&r->held, text.data, text.bytes));
    return r->form == RN_TOOLS_HERMES ? read_hermes(r, sink) : read_whole(r, sink);
}

rn_status rn_tool_reader_end(rn_tool_reader *r, rn_tool_sink sink) {
    bool any = false;
    if (r->form == RN_TOOLS_HERMES && r->inside) return end_call(r, r->held.bytes, 0, sink);
    rn_str held = {r->held.data, r->held.bytes};
    if (r->inside || r->bare)
        RN_TRY(put_calls(r, r->bare ? without_fences(held) : held, sink, &any));
    rn_str rest = {r->held.data, any ? 0 : r->held.bytes};
    if (r->calls) rest = trim(rest);
    return rest.bytes ? sink.put_text(sink.self, rest) : RN_OK;
}

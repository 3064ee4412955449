// serve_reply.h — what a server answers, read piece by piece as it arrives: the head, a body by
// length, in chunks or to the end of the connection, and in it server-sent events or one JSON text.
// Of the JSON only what a load generator asks is kept: was there text, why did it end, how many
// tokens. For serve_bench.c.
#ifndef RN_BENCH_SERVE_REPLY_H
#define RN_BENCH_SERVE_REPLY_H

#include "base/buffer.h"
#include "io/json_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { REPLY_CAP_BYTES = 1 << 20 };

typedef enum reply_part {
    REPLY_HEAD,
    REPLY_LENGTH,     // the rest of a body of known length
    REPLY_SIZE,       // the line before a chunk
    REPLY_CHUNK,      // the rest of a chunk
    REPLY_CHUNK_LINE, // the empty line behind it
    REPLY_TRAILER,    // lines behind the last chunk
    REPLY_TO_CLOSE,   // a body that the end of the connection ends
    REPLY_END,
    REPLY_BROKEN
} reply_part;

typedef struct reply {
    reply_part part;
    rn_buffer line; // the head, a chunk's line, an event's line or the JSON text, as far as it came
    rn_buffer body; // apart from `line`, because an event may begin in one chunk and end in another
    uint64_t left;  // bytes of the length or the chunk
    int status;
    bool is_events, closes;
    bool has_retry_after; // says when to come again
    // ---- from the JSON texts
    bool is_done;                   // data: [DONE]
    bool is_stopped;                // a finish_reason
    bool is_error;                  // an error object inside an answer of status 200
    bool is_bad;                    // JSON that is none
    uint64_t texts;                 // events (or answers) with text
    uint64_t tokens, prompt_tokens; // by `usage`; 0: none came
    char note[120];                 // the beginning of the JSON text that was wrong, or said so
} reply;

static inline void reply_begin(reply *r) {
    rn_buffer line = r->line, body = r->body;
    if (!line.from) {
        rn_buffer_init(&line, &rn_system_allocator, REPLY_CAP_BYTES);
        rn_buffer_init(&body, &rn_system_allocator, REPLY_CAP_BYTES);
    }
    line.bytes = body.bytes = 0;
    *r = (reply){.line = line, .body = body};
}

static inline void reply_free(reply *r) {
    if (r->line.from) rn_buffer_free(&r->line);
    if (r->body.from) rn_buffer_free(&r->body);
}

// ---- JSON ---------------------------------------------------------------------------------------

static inline bool is_key(rn_str key, const char *name) {
    return key.bytes == strlen(name) && memcmp(key.data, name, key.bytes) == 0;
}

// The keys that matter have these names at one place only, so the path to them does not matter.
static inline void reply_take(reply *r, const char *key, const rn_json_item *value) {
    bool is_text = value->kind == RN_JSON_STRING && value->text.bytes > 0;
    if (strcmp(key, "text") == 0 || strcmp(key, "content") == 0) r->texts += is_text;
    if (strcmp(key, "finish_reason") == 0 && is_text) r->is_stopped = true;
    if (strcmp(key, "error") == 0 && value->kind != RN_JSON_NULL) r->is_error = true;
    if (value->kind != RN_JSON_NUMBER) return;
    uint64_t number = strtoull(value->text.data, NULL, 10);
    if (strcmp(key, "completion_tokens") == 0) r->tokens = number;
    if (strcmp(key, "prompt_tokens") == 0) r->prompt_tokens = number;
}

static inline void reply_json(reply *r, rn_str text) {
    rn_json_reader reader;
    rn_json_item item = {0};
    char key[32] = "";
    rn_json_reader_init(&reader, text, &rn_system_allocator);
    rn_status s = RN_OK;
    while ((s = rn_json_next(&reader, &item)) == RN_OK && item.kind != RN_JSON_END) {
        if (item.kind != RN_JSON_KEY) reply_take(r, key, &item);
        bool fits = item.kind == RN_JSON_KEY && item.text.bytes < sizeof key;
        snprintf(key, sizeof key, "%.*s", fits ? (int)item.text.bytes : 0,
                 fits ? item.text.data : "");
    }
    if (s != RN_OK) r->is_bad = true;
    if ((r->is_bad || r->is_error) && !r->note[0])
        snprintf(r->note, sizeof r->note, "%.*s", (int)(text.bytes < 119 ? text.bytes : 119),
                 text.data);
    rn_json_reader_free(&reader);
}

// ---- the body -----------------------------------------------------------------------------------

static inline void reply_event_line(reply *r, rn_str line) {
    if (line.bytes > 0 && line.data[line.bytes - 1] == '\r') line.bytes--;
    if (line.bytes < 5 || memcmp(line.data, "data:", 5) != 0)
        return; // a comment, or between events
    line = (rn_str){line.data + 5, line.bytes - 5};
    if (line.bytes > 0 && *line.data == ' ') line = (rn_str){line.data + 1, line.bytes - 1};
    if (is_key(line, "[DONE]"))
        r->is_done = true;
    else
        reply_json(r, line);
}

// Adds to a buffer up to and with the next line feed; true where there was one.
static inline bool take_line(rn_buffer *line, const char **data, size_t *bytes) {
    const char *end = memchr(*data, '\n', *bytes);
    size_t take = end ? (size_t)(end - *data) + 1 : *bytes;
    if (rn_buffer_append(line, *data, take) != RN_OK) return false;
    *data += take, *bytes -= take;
    return end != NULL;
}

static inline void reply_body(reply *r, const char *data, size_t bytes) {
    while (r->is_events && bytes > 0 && take_line(&r->body, &data, &bytes)) {
        reply_event_line(r, (rn_str){r->body.data, r->body.bytes - 1});
        r->body.bytes = 0;
    }
    bool fits = r->is_events ? bytes == 0 : rn_buffer_append(&r->body, data, bytes) == RN_OK;
    if (!fits) r->part = REPLY_BROKEN;
}

static inline void reply_end(reply *r) {
    if (!r->is_events && r->body.bytes > 0) reply_json(r, (rn_str){r->body.data, r->body.bytes});
    r->part = REPLY_END;
}

// ---- the head -----------------------------------------------------------------------------------

// A field's value in the head, which ends with a NUL; NULL without one.
static inline const char *head_field(const char *head, const char *name) {
    size_t bytes = strlen(name);
    for (const char *at = strchr(head, '\n'); at; at = strchr(at + 1, '\n'))
        if (strncasecmp(at + 1, name, bytes) == 0 && at[1 + bytes] == ':')
            return at + 2 + bytes + strspn(at + 2 + bytes, " \t");
    return NULL;
}

static inline bool field_is(const char *head, const char *name, const char *value) {
    const char *field = head_field(head, name);
    return field && strncasecmp(field, value, strlen(value)) == 0;
}

static inline void reply_head(reply *r) {
    const char *head = r->line.data, *length = head_field(head, "content-length");
    if (sscanf(head, "HTTP/1.%*d %d", &r->status) != 1) {
        r->part = REPLY_BROKEN;
        return;
    }
    r->is_events = field_is(head, "content-type", "text/event-stream");
    r->closes = field_is(head, "connection", "close");
    r->has_retry_after = head_field(head, "retry-after") != NULL;
    r->left = length ? strtoull(length, NULL, 10) : 0;
    bool is_chunked = field_is(head, "transfer-encoding", "chunked");
    r->part = is_chunked ? REPLY_SIZE : length ? REPLY_LENGTH : REPLY_TO_CLOSE;
    r->line.bytes = 0;
    if (r->part == REPLY_LENGTH && r->left == 0) reply_end(r);
}

static inline bool reply_head_line(reply *r, const char **data, size_t *bytes) {
    size_t before = r->line.bytes;
    if (!take_line(&r->line, data, bytes)) return *bytes > 0; // bytes left: the head is too long
    size_t line_bytes = r->line.bytes - before;
    bool is_empty = line_bytes == 2 && before > 0 && r->line.data[before] == '\r';
    if (!is_empty) return false;
    if (rn_buffer_append(&r->line, "", 1) != RN_OK) return true;
    reply_head(r);
    return false;
}

// ---- all of it ----------------------------------------------------------------------------------

static inline void reply_size_line(reply *r) {
    char *end = NULL;
    if (rn_buffer_append(&r->line, "", 1) != RN_OK) return;
    r->left = strtoull(r->line.data, &end, 16);
    bool is_number = end != r->line.data;
    r->part = !is_number ? REPLY_BROKEN : r->left ? REPLY_CHUNK : REPLY_TRAILER;
    r->line.bytes = 0;
}

static inline void reply_lines(reply *r, const char **data, size_t *bytes) {
    if (!take_line(&r->line, data, bytes)) {
        if (*bytes > 0) r->part = REPLY_BROKEN; // a line without end
        return;
    }
    bool is_empty = r->line.bytes <= 2;
    if (r->part == REPLY_SIZE) {
        reply_size_line(r);
        return;
    }
    r->line.bytes = 0;
    if (r->part == REPLY_CHUNK_LINE) r->part = is_empty ? REPLY_SIZE : REPLY_BROKEN;
    if (r->part == REPLY_TRAILER && is_empty) reply_end(r);
}

static inline void reply_bytes(reply *r, const char **data, size_t *bytes) {
    size_t take = r->part == REPLY_TO_CLOSE || *bytes < r->left ? *bytes : (size_t)r->left;
    reply_body(r, *data, take);
    *data += take, *bytes -= take;
    if (r->part == REPLY_TO_CLOSE || r->part == REPLY_BROKEN) return;
    r->left -= take;
    if (r->left > 0) return;
    if (r->part == REPLY_CHUNK)
        r->part = REPLY_CHUNK_LINE;
    else
        reply_end(r);
}

// Takes bytes in; afterwards `part` may be REPLY_END or REPLY_BROKEN. Bytes behind the end are an
// answer to nothing and break it, too.
static inline void reply_feed(reply *r, const char *data, size_t bytes) {
    while (bytes > 0 && r->part != REPLY_BROKEN) {
        if (r->part == REPLY_END)
            r->part = REPLY_BROKEN;
        else if (r->part == REPLY_HEAD)
            r->part = reply_head_line(r, &data, &bytes) ? REPLY_BROKEN : r->part;
        else if (r->part == REPLY_LENGTH || r->part == REPLY_CHUNK || r->part == REPLY_TO_CLOSE)
            reply_bytes(r, &data, &bytes);
        else
            reply_lines(r, &data, &bytes);
    }
}

// The server closed the connection.
static inline void reply_close(reply *r) {
    if (r->part == REPLY_TO_CLOSE)
        reply_end(r);
    else if (r->part != REPLY_END)
        r->part = REPLY_BROKEN;
}

// Everything that was promised has come.
static inline bool reply_is_complete(const reply *r) {
    return r->part == REPLY_END && r->status == 200 && !r->is_error && !r->is_bad &&
           r->is_stopped && (r->is_done || !r->is_events);
}

#endif

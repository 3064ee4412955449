// json.c — the JSON writer.
#include "base/json.h"

#include "base/str.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static void put(rn_json *json, const char *text, size_t bytes) {
    if (json->status == RN_OK) json->status = rn_sink_write(json->sink, text, bytes);
}

static void put_text(rn_json *json, const char *text) {
    put(json, text, strlen(text));
}

static void put_line_break(rn_json *json) {
    static const char spaces[] = "                                                                ";
    put(json, "\n", 1);
    put(json, spaces, (size_t)json->depth * 2);
}

static void put_escaped(rn_json *json, rn_str text) {
    if (!text.data) text.data = "";
    put(json, "\"", 1);
    size_t run = 0; // start of the bytes not yet written
    for (size_t i = 0; i < text.bytes;) {
        unsigned char c = (unsigned char)text.data[i];
        size_t length = rn_utf8_sequence(text.data + i, text.bytes - i);
        if (length > 0 && c >= 0x20 && c != '"' && c != '\\' && c != 0x7F) {
            i += length;
            continue;
        }
        put(json, text.data + run, i - run);
        char escape[8];
        if (length == 0)
            put_text(json, "\\ufffd");
        else if (c == '"' || c == '\\')
            put(json, (char[]){'\\', (char)c}, 2);
        else if (c == '\n')
            put_text(json, "\\n");
        else if (snprintf(escape, sizeof escape, "\\u%04x", c) > 0)
            put_text(json, escape);
        run = ++i;
    }
    put(json, text.data + run, text.bytes - run);
    put(json, "\"", 1);
}

// What stands before a value: comma, line break, key.
static void begin_item(rn_json *json) {
    if (json->depth == 0) return;
    if (json->level[json->depth - 1].has_items) put(json, ",", 1);
    json->level[json->depth - 1].has_items = true;
    if (json->pretty) put_line_break(json);
}

static void begin_value(rn_json *json, const char *key) {
    bool after_key = json->depth > 0 && !json->level[json->depth - 1].is_array && !key;
    if (after_key) return; // rn_json_key has written it
    begin_item(json);
    if (!key) return;
    put_escaped(json, rn_str_from(key));
    put_text(json, json->pretty ? ": " : ":");
}

void rn_json_begin(rn_json *json, rn_sink sink, bool pretty) {
    *json = (rn_json){.sink = sink, .pretty = pretty};
}

void rn_json_key(rn_json *json, rn_str key) {
    begin_item(json);
    put_escaped(json, key);
    put_text(json, json->pretty ? ": " : ":");
}

static void open_level(rn_json *json, const char *key, bool is_array) {
    if (json->status != RN_OK) return;
    begin_value(json, key);
    put(json, is_array ? "[" : "{", 1);
    if (json->depth == RN_JSON_DEPTH) {
        json->status = rn_fail(RN_INTERNAL, "JSON nests too deep");
        return;
    }
    json->level[json->depth].is_array = is_array;
    json->level[json->depth].has_items = false;
    json->depth++;
}

void rn_json_object(rn_json *json, const char *key) {
    open_level(json, key, false);
}

void rn_json_array(rn_json *json, const char *key) {
    open_level(json, key, true);
}

void rn_json_end(rn_json *json) {
    if (json->status != RN_OK) return; // levels opened after a failure were not counted
    assert(json->depth > 0);
    json->depth--;
    if (json->pretty && json->level[json->depth].has_items) put_line_break(json);
    put(json, json->level[json->depth].is_array ? "]" : "}", 1);
}

void rn_json_text(rn_json *json, const char *key, rn_str value) {
    begin_value(json, key);
    put_escaped(json, value);
}

void rn_json_string(rn_json *json, const char *key, const char *value) {
    rn_json_text(json, key, rn_str_from(value));
}

void rn_json_u64(rn_json *json, const char *key, uint64_t value) {
    char text[24];
    begin_value(json, key);
    snprintf(text, sizeof text, "%" PRIu64, value);
    put_text(json, text);
}

void rn_json_i64(rn_json *json, const char *key, int64_t value) {
    char text[24];
    begin_value(json, key);
    snprintf(text, sizeof text, "%" PRId64, value);
    put_text(json, text);
}

void rn_json_f64(rn_json *json, const char *key, double value) {
    char text[40];
    if (!isfinite(value)) {
        rn_json_null(json, key);
        return;
    }
    snprintf(text, sizeof text, "%.9g", value);
    char *comma = strchr(text, ','); // in locales that a program around us may have set
    if (comma) *comma = '.';
    begin_value(json, key);
    put_text(json, text);
}

void rn_json_bool(rn_json *json, const char *key, bool value) {
    begin_value(json, key);
    put_text(json, value ? "true" : "false");
}

void rn_json_null(rn_json *json, const char *key) {
    begin_value(json, key);
    put_text(json, "null");
}

// The text's last line break is not written: what follows the value begins its own line.
static rn_status write_embedded(void *self, const char *text, size_t bytes) {
    rn_json *json = self;
    for (size_t at = 0; at < bytes;) {
        const char *line = text + at, *end = memchr(line, '\n', bytes - at);
        size_t length = end ? (size_t)(end - line) : bytes - at;
        if (json->line_ended && length + (end != NULL) > 0) put_line_break(json);
        json->line_ended = end != NULL;
        put(json, line, length);
        at += length + (end != NULL);
    }
    return json->status;
}

rn_sink rn_json_embed(rn_json *json, const char *key) {
    begin_value(json, key);
    json->line_ended = false;
    return (rn_sink){json, write_embedded};
}

void rn_json_check(rn_json *json, rn_status status) {
    if (json->status == RN_OK) json->status = status;
}

rn_status rn_json_finish(rn_json *json) {
    assert(json->depth == 0 || json->status != RN_OK);
    put(json, "\n", 1);
    return json->status;
}

// log.c — one sink, one lock, whole lines.
#include "base/json.h"
#include <ration/log.h>

#include "base/clock.h"
#include "base/str.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rn_sink log_sink;                   // under lock
static _Atomic int log_least = RN_LOG_OFF; // RN_LOG_OFF: no sink
static _Atomic int log_form = RN_LOG_TEXT;
static const char *const level_names[] = {"debug", "info", "warning", "error"};
static const char *const level_symbols[] = {"🔍", "💬", "⚠️", "❌"};

void rn_log_set(rn_sink sink, rn_log_form form, rn_log_level least) {
    pthread_mutex_lock(&lock);
    log_sink = sink;
    atomic_store(&log_form, form);
    atomic_store(&log_least, sink.write ? (int)least : RN_LOG_OFF);
    pthread_mutex_unlock(&lock);
}

bool rn_log_wants(rn_log_level level) {
    return (int)level >= atomic_load_explicit(&log_least, memory_order_relaxed) &&
           level < RN_LOG_OFF;
}

rn_log_form rn_log_form_get(void) {
    return (rn_log_form)atomic_load(&log_form);
}

const char *rn_log_level_name(rn_log_level level) {
    return level_names[level];
}

const char *rn_log_symbol(rn_log_level level) {
    return level_symbols[level];
}

// A log that cannot be written has nobody to tell: the failure is dropped, and the caller's error
// kept.
void rn_log_line(rn_log_level level, rn_str line) {
    if (!rn_log_wants(level)) return;
    rn_error_info error = *rn_last_error();
    pthread_mutex_lock(&lock);
    if (log_sink.write && rn_sink_write(log_sink, line.data, line.bytes) == RN_OK)
        (void)!rn_sink_write(log_sink, "\n", 1);
    pthread_mutex_unlock(&lock);
    rn_error_restore(&error);
}

enum { MAX_MESSAGE_BYTES = 1024, MAX_PART_BYTES = 64 };

typedef struct line_buffer {
    char text[6 * (MAX_MESSAGE_BYTES + MAX_PART_BYTES) + 256]; // JSON writes a byte as up to six
    size_t bytes;
} line_buffer;

static rn_status append_line(void *self, const char *text, size_t bytes) {
    line_buffer *line = self;
    size_t room = sizeof line->text - line->bytes;
    if (bytes > room) bytes = room;
    memcpy(line->text + line->bytes, text, bytes);
    line->bytes += bytes;
    return RN_OK;
}

static void form_json(line_buffer *line, rn_log_level level, const char *part,
                      const char *message) {
    rn_json json;
    char time_text[40];
    rn_clock_text(time_text, true);
    rn_json_begin(&json, (rn_sink){line, append_line}, false);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "time", time_text);
    rn_json_string(&json, "level", level_names[level]);
    rn_json_text(&json, "part", (rn_str){part, strnlen(part, MAX_PART_BYTES)});
    rn_json_string(&json, "message", message);
    rn_json_end(&json);
}

// One line, whatever the message holds.
static void form_text(line_buffer *line, rn_log_level level, const char *part,
                      const char *message) {
    char time_text[40];
    bool symbols = rn_log_form_get() == RN_LOG_SYMBOLS;
    rn_clock_text(time_text, false);
    int bytes = snprintf(line->text, sizeof line->text, "%s%s%s %s %.*s: %s",
                         symbols ? level_symbols[level] : "", symbols ? " " : "", time_text,
                         level_names[level], MAX_PART_BYTES, part, message);
    if (bytes <= 0) return;
    rn_str_clean(line->text);
    for (char *at = line->text; (at = strchr(at, '\n'));)
        *at = ' ';
    line->bytes = (size_t)bytes;
}

void rn_log(rn_log_level level, const char *part, const char *format, ...) {
    if (!rn_log_wants(level)) return;
    char message[MAX_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    line_buffer line;
    line.bytes = 0;
    if (rn_log_form_get() == RN_LOG_JSON)
        form_json(&line, level, part, message);
    else
        form_text(&line, level, part, message);
    rn_log_line(level, (rn_str){line.text, line.bytes});
}

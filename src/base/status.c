// status.c — the thread's story.
#include <ration/status.h>

#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local rn_story thread_story = {.source_file = "", .offset = RN_NO_OFFSET};

static const char *const status_names[RN_STATUS_COUNT] = {
    [RN_OK] = "RN_OK",
    [RN_INVALID] = "RN_INVALID",
    [RN_NOT_FOUND] = "RN_NOT_FOUND",
    [RN_UNSUPPORTED] = "RN_UNSUPPORTED",
    [RN_OVER_BUDGET] = "RN_OVER_BUDGET",
    [RN_NO_MEMORY] = "RN_NO_MEMORY",
    [RN_IO] = "RN_IO",
    [RN_CORRUPT] = "RN_CORRUPT",
    [RN_DEVICE] = "RN_DEVICE",
    [RN_CANCELLED] = "RN_CANCELLED",
    [RN_INTERNAL] = "RN_INTERNAL",
};

const char *rn_status_name(rn_status status) {
    if ((unsigned)status >= RN_STATUS_COUNT) return "RN_UNKNOWN";
    return status_names[status];
}

const rn_story *rn_last_story(void) {
    return &thread_story;
}

rn_status rn_story_restore(const rn_story *story) {
    thread_story = *story;
    return story->status;
}

// Control characters from hostile names would reach a terminal or a log line.
static void print_clean(char *out, size_t capacity, const char *format, va_list args) {
    if (vsnprintf(out, capacity, format, args) < 0) out[0] = '\0';
    rn_str_clean(out);
}

rn_status rn_fail_at(const char *source_file, int source_line, rn_status status, const char *format,
                     ...) {
    rn_story *story = &thread_story;
    story->status = status;
    story->source_file = source_file;
    story->source_line = source_line;
    story->offset = RN_NO_OFFSET;
    story->path[0] = '\0';
    story->hint[0] = '\0';
    va_list args;
    va_start(args, format);
    print_clean(story->message, sizeof story->message, format, args);
    va_end(args);
    return status;
}

rn_status rn_hint(rn_status status, const char *format, ...) {
    if (status == RN_OK) return RN_OK;
    va_list args;
    va_start(args, format);
    print_clean(thread_story.hint, sizeof thread_story.hint, format, args);
    va_end(args);
    return status;
}

rn_status rn_blame(rn_status status, const char *path, uint64_t offset) {
    if (status == RN_OK) return RN_OK;
    snprintf(thread_story.path, sizeof thread_story.path, "%s", path ? path : "");
    rn_str_clean(thread_story.path);
    thread_story.offset = offset;
    return status;
}

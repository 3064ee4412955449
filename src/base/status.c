// status.c — the thread's error.
#include <ration/status.h>

#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local rn_error_info thread_error = {.source_file = "", .offset = RN_NO_OFFSET};

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

const rn_error_info *rn_last_error(void) {
    return &thread_error;
}

rn_status rn_error_restore(const rn_error_info *error) {
    thread_error = *error;
    return error->status;
}

// Control characters from hostile names would reach a terminal or a log line.
static void print_clean(char *out, size_t capacity, const char *format, va_list args) {
    if (vsnprintf(out, capacity, format, args) < 0) out[0] = '\0';
    rn_str_clean(out);
}

rn_status rn_fail_at(const char *source_file, int source_line, rn_status status, const char *format,
                     ...) {
    rn_error_info *error = &thread_error;
    error->status = status;
    error->source_file = source_file;
    error->source_line = source_line;
    error->offset = RN_NO_OFFSET;
    error->path[0] = '\0';
    error->hint[0] = '\0';
    va_list args;
    va_start(args, format);
    print_clean(error->message, sizeof error->message, format, args);
    va_end(args);
    return status;
}

rn_status rn_hint(rn_status status, const char *format, ...) {
    if (status == RN_OK) return RN_OK;
    va_list args;
    va_start(args, format);
    print_clean(thread_error.hint, sizeof thread_error.hint, format, args);
    va_end(args);
    return status;
}

rn_status rn_error_locate(rn_status status, const char *path, uint64_t offset) {
    if (status == RN_OK) return RN_OK;
    snprintf(thread_error.path, sizeof thread_error.path, "%s", path ? path : "");
    rn_str_clean(thread_error.path);
    thread_error.offset = offset;
    return status;
}

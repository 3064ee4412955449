// problem.c — a refusal's text, and what a failure of ours may tell a stranger: the reason, never
// where on this machine.
#include "server/problem.h"

#include "base/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool rn_problem_set(rn_problem *out, uint16_t http, const char *code, const char *field,
                    const char *format, ...) {
    va_list arguments;
    *out = (rn_problem){.http = http, .code = code};
    snprintf(out->field, sizeof out->field, "%s", field);
    va_start(arguments, format);
    vsnprintf(out->message, sizeof out->message, format, arguments);
    va_end(arguments);
    return false;
}

const char *rn_problem_type(uint16_t http) {
    if (http == 401) return "authentication_error";
    if (http == 403) return "permission_error";
    if (http == 429) return "rate_limit_error";
    if (http == 503) return "unavailable_error";
    return http >= 500 ? "server_error" : "invalid_request_error";
}

// ---- from a failure -----------------------------------------------------------------------------

static bool begins_word(const char *text, const char *at) {
    return at == text || strchr(" '\"(=:,", at[-1]) != NULL;
}

static size_t word_length(const char *at) {
    return strcspn(at, " '\"),;");
}

// "/models/a.gguf" and "../a/b" are paths; "tokens/s", "1/2" and "/" are not.
static bool is_path(const char *text, const char *at) {
    size_t bytes = word_length(at);
    if (!begins_word(text, at) || bytes < 2) return false;
    return *at == '/' || strncmp(at, "./", 2) == 0 || strncmp(at, "../", 3) == 0 ||
           strncmp(at, "~/", 2) == 0;
}

static bool is_known_path(const rn_error_info *error, const char *at) {
    return error->path[0] && strncmp(at, error->path, strlen(error->path)) == 0;
}

static void copy_without_paths(const rn_error_info *error, char *out, size_t capacity) {
    static const char instead[] = "a file";
    const char *from = error->message;
    size_t filled = 0;
    while (*from && filled + sizeof instead < capacity) {
        bool known = is_known_path(error, from);
        if (!known && !is_path(error->message, from)) {
            out[filled++] = *from++;
            continue;
        }
        memcpy(out + filled, instead, sizeof instead - 1);
        filled += sizeof instead - 1;
        from += known ? strlen(error->path) : word_length(from);
    }
    out[filled] = 0;
}

bool rn_problem_set_full(rn_problem *out) {
    (void)rn_problem_set(out, 429, "requests_full", "",
                         "the bytes for all requests together are taken");
    out->retry_seconds = 1;
    return false;
}

void rn_problem_from_error(rn_problem *out, const rn_error_info *error) {
    bool invalid = error->status == RN_INVALID;
    bool full = error->status == RN_OVER_BUDGET || error->status == RN_NO_MEMORY;
    *out = (rn_problem){
        .http = invalid ? 400
                : full  ? 503
                        : 500,
        .code = invalid ? "invalid_value"
                : full  ? "no_memory"
                        : "internal_error",
        .retry_seconds = full ? 1 : 0,
    };
    copy_without_paths(error, out->message, sizeof out->message);
}

// ---- as JSON ------------------------------------------------------------------------------------

rn_status rn_problem_write(const rn_problem *problem, rn_sink sink) {
    rn_json json;
    rn_json_begin(&json, sink, false);
    rn_json_object(&json, NULL);
    rn_json_object(&json, "error");
    rn_json_string(&json, "message", problem->message);
    rn_json_string(&json, "type", rn_problem_type(problem->http));
    if (problem->field[0])
        rn_json_string(&json, "param", problem->field);
    else
        rn_json_null(&json, "param");
    rn_json_string(&json, "code", problem->code ? problem->code : "");
    rn_json_end(&json);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

// json.h — writing JSON: calls in order, commas and escapes by themselves, the first failure
// remembered.
//
//     rn_json json;
//     rn_json_begin(&json, rn_sink_file(stdout), true);
//     rn_json_object(&json, NULL);
//     rn_json_u64(&json, "peak_bytes", 4096);
//     rn_json_array(&json, "names");
//     rn_json_text(&json, NULL, name);
//     rn_json_end(&json);
//     rn_json_end(&json);
//     RN_TRY(rn_json_finish(&json));
//
// `key` is NULL inside arrays and for the outermost value.
#ifndef RATION_JSON_H
#define RATION_JSON_H

#include <ration/text.h>

RN_BEGIN_DECLS

#define RN_JSON_DEPTH 32

typedef struct rn_json {
    rn_sink sink;
    rn_status status; // of the first call that failed; later ones do nothing
    bool pretty;      // one item a line
    int depth;
    struct {
        bool is_array, has_items;
    } level[RN_JSON_DEPTH];
} rn_json;

RN_API void rn_json_begin(rn_json *json, rn_sink sink, bool pretty);
RN_API void rn_json_object(rn_json *json, const char *key);
RN_API void rn_json_array(rn_json *json, const char *key);
// Closes the innermost object or array.
RN_API void rn_json_end(rn_json *json);
// Bytes that are not UTF-8 become U+FFFD, so the output is always valid.
RN_API void rn_json_text(rn_json *json, const char *key, rn_str value);
RN_API void rn_json_string(rn_json *json, const char *key, const char *value);
RN_API void rn_json_u64(rn_json *json, const char *key, uint64_t value);
RN_API void rn_json_i64(rn_json *json, const char *key, int64_t value);
// Not-a-number and infinities become null.
RN_API void rn_json_f64(rn_json *json, const char *key, double value);
RN_API void rn_json_bool(rn_json *json, const char *key, bool value);
RN_API void rn_json_null(rn_json *json, const char *key);
// A key that is not a C string; the next value call passes key NULL.
RN_API void rn_json_key(rn_json *json, rn_str key);
// The status of it all, after a final newline.
RN_API RN_MUST_USE rn_status rn_json_finish(rn_json *json);

RN_END_DECLS

#endif

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
#ifndef RN_BASE_JSON_H
#define RN_BASE_JSON_H

#include <ration/text.h>

#define RN_JSON_DEPTH 32

typedef struct rn_json {
    rn_sink sink;
    rn_status status; // of the first call that failed; later ones do nothing
    bool pretty;      // one item a line
    bool line_ended;  // of embedded text: its next line is to be begun
    int depth;
    struct {
        bool is_array, has_items;
    } level[RN_JSON_DEPTH];
} rn_json;

void rn_json_begin(rn_json *json, rn_sink sink, bool pretty);
void rn_json_object(rn_json *json, const char *key);
void rn_json_array(rn_json *json, const char *key);
// Closes the innermost object or array.
void rn_json_end(rn_json *json);
// Bytes that are not UTF-8 become U+FFFD, so the output is always valid.
void rn_json_text(rn_json *json, const char *key, rn_str value);
void rn_json_string(rn_json *json, const char *key, const char *value);
void rn_json_u64(rn_json *json, const char *key, uint64_t value);
void rn_json_i64(rn_json *json, const char *key, int64_t value);
// Not-a-number and infinities become null.
void rn_json_f64(rn_json *json, const char *key, double value);
void rn_json_bool(rn_json *json, const char *key, bool value);
void rn_json_null(rn_json *json, const char *key);
// A key that is not a C string; the next value call passes key NULL.
void rn_json_key(rn_json *json, rn_str key);
// A sink for the JSON text of a whole value, which becomes that of `key` and is indented as this
// writer's own (a writer that is pretty, text that is). To be written at once.
rn_sink rn_json_embed(rn_json *json, const char *key);
// Keeps a failure of whoever wrote to the sink.
void rn_json_check(rn_json *json, rn_status status);
// The status of it all, after a final newline.
RN_MUST_USE rn_status rn_json_finish(rn_json *json);

#endif

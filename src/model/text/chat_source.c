// chat_source.c — tokenizer_config.json is read past everything but its template.
#include "model/text/chat_source.h"

#include "base/file.h"
#include "io/json_read.h"
#include "memory/account.h"

#include <sys/param.h>

enum { MAX_CONFIG_BYTES = 64 << 20 };

static rn_status take_text(rn_json_reader *json, rn_buffer *out) {
    rn_json_item item;
    RN_TRY(rn_json_expect(json, RN_JSON_STRING, &item));
    out->bytes = 0;
    return rn_buffer_append(out, item.text.data, item.text.bytes);
}

// {"name": "default", "template": "..."}: kept where it is the default.
static rn_status read_entry(rn_json_reader *json, rn_buffer *out) {
    rn_buffer text;
    rn_json_item item;
    bool is_default = false;
    rn_status s = RN_OK;
    rn_buffer_init(&text, out->from, out->cap_bytes);
    while ((s = rn_json_next(json, &item)) == RN_OK && item.kind != RN_JSON_OBJECT_END) {
        if (rn_str_equal(item.text, RN_STR("name"))) {
            s = rn_json_expect(json, RN_JSON_STRING, &item);
            is_default = s == RN_OK && rn_str_equal(item.text, RN_STR("default"));
        } else {
            bool is_text = rn_str_equal(item.text, RN_STR("template"));
            s = is_text ? take_text(json, &text) : rn_json_skip(json);
        }
        if (s != RN_OK) break;
    }
    if (s == RN_OK && is_default) {
        out->bytes = 0;
        s = rn_buffer_append(out, text.data, text.bytes);
    }
    rn_buffer_free(&text);
    return s;
}

static rn_status read_template(rn_json_reader *json, rn_buffer *out) {
    rn_json_item item;
    RN_TRY(rn_json_next(json, &item));
    if (item.kind == RN_JSON_NULL) return RN_OK;
    if (item.kind == RN_JSON_STRING) return rn_buffer_append(out, item.text.data, item.text.bytes);
    if (item.kind != RN_JSON_ARRAY)
        return rn_fail(RN_CORRUPT, "chat_template is neither text nor a list");
    while (true) {
        RN_TRY(rn_json_next(json, &item));
        if (item.kind == RN_JSON_ARRAY_END) return RN_OK;
        if (item.kind != RN_JSON_OBJECT)
            return rn_fail(RN_CORRUPT, "chat_template is a list of something else than objects");
        RN_TRY(read_entry(json, out));
    }
}

static rn_status read_config(rn_json_reader *json, rn_buffer *out) {
    rn_json_item item;
    RN_TRY(rn_json_expect(json, RN_JSON_OBJECT, NULL));
    while (true) {
        RN_TRY(rn_json_next(json, &item));
        if (item.kind == RN_JSON_OBJECT_END) return RN_OK;
        bool is_template = rn_str_equal(item.text, RN_STR("chat_template"));
        RN_TRY(is_template ? read_template(json, out) : rn_json_skip(json));
    }
}

rn_status rn_chat_source_read(const char *folder, rn_buffer *out) {
    char path[PATH_MAX];
    rn_buffer config;
    rn_json_reader json;
    RN_TRY(rn_path_join(folder, "chat_template.jinja", path, sizeof path));
    if (rn_file_exists(path)) return rn_file_read_all(path, out);
    RN_TRY(rn_path_join(folder, "tokenizer_config.json", path, sizeof path));
    if (!rn_file_exists(path)) return RN_OK;
    rn_buffer_init(&config, RN_HOST_OTHER, MAX_CONFIG_BYTES);
    rn_status s = rn_file_read_all(path, &config);
    rn_json_reader_init(&json, (rn_str){config.data, config.bytes}, RN_HOST_OTHER);
    if (s == RN_OK) s = read_config(&json, out);
    rn_json_reader_free(&json);
    rn_buffer_free(&config);
    if (s == RN_OK || rn_last_error()->path[0]) return s;
    return rn_error_locate(s, path, rn_last_error()->offset);
}

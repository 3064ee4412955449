// config_file.c — the TOML side of the options table: reading files into settings, and changing one
// value in one.
#include "support/options.h"

#include "io/toml.h"
#include "io/toml_edit.h"

#include "base/buffer.h"
#include "base/file.h"
#include "support/settings.h"
#include "base/str.h"
#include "memory/account.h"

#include <ration/convert.h>
#include <ration/memory.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/param.h>
#include <sys/stat.h>

enum { MAX_KEY_BYTES = 128, MAX_KEY_PARTS = 4 };

typedef struct file_loader {
    rn_settings *settings;
    const char *path;
} file_loader;

// ---- reading --------------------------------------------------------------------------

static rn_status fail_at(const file_loader *loader, const rn_toml_value *value, const char *what,
                         const char *key) {
    rn_toml_place place = rn_toml_place_of(value);
    rn_status s = rn_fail(RN_INVALID, "%s, line %zu, column %zu: %s '%s'", loader->path, place.line,
                          place.column, what, key);
    return rn_error_locate(s, loader->path, place.begin);
}

static rn_status set_value(const file_loader *loader, const rn_option *option,
                           const rn_toml_value *value, const char *key) {
    char number[32];
    rn_str text;
    int64_t integer;
    double real;
    bool boolean;
    switch (rn_toml_type_of(value)) {
    case RN_TOML_STRING:
        RN_TRY(rn_toml_get_string(value, &text));
        break;
    case RN_TOML_INTEGER:
        RN_TRY(rn_toml_get_integer(value, &integer));
        snprintf(number, sizeof number, "%lld", (long long)integer);
        text = rn_str_from(number);
        break;
    case RN_TOML_FLOAT:
        if (option->type != RN_OPTION_NUMBER)
            return fail_at(loader, value, "a value of the wrong kind for", key);
        RN_TRY(rn_toml_get_float(value, &real));
        snprintf(number, sizeof number, "%.17g", real);
        text = rn_str_from(number);
        break;
    case RN_TOML_BOOL:
        RN_TRY(rn_toml_get_bool(value, &boolean));
        text = boolean ? RN_STR("true") : RN_STR("false");
        break;
    default:
        return fail_at(loader, value, "a value of the wrong kind for", key);
    }
    return rn_settings_set(loader->settings, option, text, loader->path);
}

// [[backend]] is a table that another program's configuration may share with ours: keys there that
// are not ours are that program's.
static bool is_shared(const char *key) {
    size_t bytes = strcspn(key, ".") + 1; // with the dot
    for (size_t i = 0; i < rn_option_count(); i++) {
        const rn_option *option = rn_option_at(i);
        if (option->in_array && key[bytes - 1] && strncmp(option->key, key, bytes) == 0)
            return true;
    }
    return false;
}

static rn_status load_value(const file_loader *loader, const rn_toml_value *value,
                            const char *key) {
    const rn_option *option = rn_option_find(rn_str_from(key));
    if (!option || strcmp(option->key, key) != 0) {
        const char *near = rn_option_suggest(rn_str_from(key), NULL);
        bool is_misspelt = near && is_shared(near); // else it would be ignored without a word
        if (is_shared(key) && !is_misspelt) return RN_OK;
        rn_status s = fail_at(loader, value, "unknown key", key);
        return near ? rn_hint(s, "did you mean '%s'?", near) : rn_hint(s, "see ration config list");
    }
    if (rn_toml_type_of(value) != RN_TOML_ARRAY || option->type != RN_OPTION_LIST)
        return set_value(loader, option, value, key);
    if (!rn_toml_first(value)) // an empty list wins over a fuller one of a file before
        return rn_settings_set(loader->settings, option, RN_STR(""), loader->path);
    for (const rn_toml_value *item = rn_toml_first(value); item; item = rn_toml_next(item))
        RN_TRY(set_value(loader, option, item, key));
    return RN_OK;
}

// `prefix` is the path of the table so far, dots between. An array of tables counts as its last
// item, as in a sequence of assignments.
static rn_status load_table(const file_loader *loader, const rn_toml_value *table,
                            const char *prefix) {
    for (const rn_toml_value *v = rn_toml_first(table); v; v = rn_toml_next(v)) {
        char key[MAX_KEY_BYTES];
        rn_str name = rn_toml_key_of(v);
        int bytes =
            snprintf(key, sizeof key, "%s%s%.*s", prefix, *prefix ? "." : "", RN_STR_ARG(name));
        bool whole = bytes >= 0 && (size_t)bytes < sizeof key;
        if (!whole || (name.bytes && memchr(name.data, '\0', name.bytes))) {
            if (is_shared(key)) continue;
            return fail_at(loader, v, "unknown key", key);
        }
        rn_toml_type type = rn_toml_type_of(v);
        const rn_toml_value *first = rn_toml_first(v);
        if (type == RN_TOML_TABLE) {
            RN_TRY(load_table(loader, v, key));
        } else if (type == RN_TOML_ARRAY && first && rn_toml_type_of(first) == RN_TOML_TABLE) {
            for (; first; first = rn_toml_next(first))
                RN_TRY(load_table(loader, first, key));
        } else {
            RN_TRY(load_value(loader, v, key));
        }
    }
    return RN_OK;
}

static rn_status load_file(rn_settings *settings, const char *path) {
    rn_buffer text;
    rn_toml *doc = NULL;
    file_loader loader = {settings, path};
    rn_buffer_init(&text, RN_HOST_OTHER, RN_TOML_MAX_BYTES);
    rn_status s = rn_file_read_all(path, &text);
    if (s == RN_OK) s = rn_toml_parse((rn_str){text.data, text.bytes}, RN_HOST_OTHER, &doc);
    if (s == RN_CORRUPT) {
        rn_error_info error = *rn_last_error();
        s = rn_error_locate(rn_fail(s, "%s, %s", path, error.message), path, error.offset);
        if (error.hint[0]) s = rn_hint(s, "%s", error.hint);
    }
    if (s == RN_OK) s = load_table(&loader, rn_toml_root(doc), "");
    rn_toml_free(doc);
    rn_buffer_free(&text);
    return s;
}

static rn_status user_path(char *out, size_t capacity) {
    const char *base = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int bytes = base && *base   ? snprintf(out, capacity, "%s/ration/config.toml", base)
                : home && *home ? snprintf(out, capacity, "%s/.config/ration/config.toml", home)
                                : -1;
    if (bytes > 0 && (size_t)bytes < capacity) return RN_OK;
    return rn_hint(rn_fail(RN_NOT_FOUND, "there is no home folder to keep a configuration in"),
                   "set HOME or use --config FILE");
}

rn_status rn_settings_load_files(rn_settings *settings, const char *path) {
    char user[PATH_MAX];
    if (path && *path) return load_file(settings, path);
    if (user_path(user, sizeof user) == RN_OK && rn_file_exists(user))
        RN_TRY(load_file(settings, user));
    return rn_file_exists("ration.toml") ? load_file(settings, "ration.toml") : RN_OK;
}

// ---- changing -------------------------------------------------------------------------

rn_status rn_config_path(const char *given, char *out, size_t capacity) {
    if (!given || !*given) {
        if (!rn_file_exists("ration.toml")) return user_path(out, capacity);
        given = "ration.toml";
    }
    if ((size_t)snprintf(out, capacity, "%s", given) < capacity) return RN_OK;
    return rn_fail(RN_INVALID, "the path is too long");
}

// What base cannot know.
static rn_status check_meaning(const rn_option *option, rn_str value) {
    rn_budget_spec spec;
    rn_convert_options target = {0};
    if (option->type == RN_OPTION_BUDGET) return rn_budget_parse(value, &spec);
    if (option->type != RN_OPTION_TARGET || rn_convert_parse_target(value, &target)) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "there is no type '%.*s'", RN_STR_ARG(value)), "%s",
                   option->help);
}

static rn_status check_value(const rn_option *option, rn_str value) {
    if (option->key[0] == '\0')
        return rn_fail(RN_INVALID, "%s is not kept in a file", option->name);
    RN_TRY(check_meaning(option, value));
    return rn_option_check(option, value);
}

rn_status rn_settings_check(const rn_settings *settings) {
    for (size_t i = 0; i < rn_option_count(); i++) {
        const rn_option *option = rn_option_at(i);
        rn_str text = rn_str_from(rn_settings_text(settings, option->name));
        if (text.bytes == 0 || check_meaning(option, text) == RN_OK) continue;
        rn_error_info error = *rn_last_error();
        rn_status s = rn_fail(RN_INVALID, "%s: %s", rn_settings_origin(settings, option->name),
                              error.message);
        return rn_hint(s, "%s", error.hint);
    }
    return RN_OK;
}

// The value as TOML writes it, appended to `out`: bare, quoted, or a list of one.
static rn_status write_value(const rn_option *option, rn_str value, rn_buffer *out) {
    bool yes;
    char *quoted;
    size_t quoted_bytes;
    if (option->type == RN_OPTION_COUNT) return rn_buffer_append(out, value.data, value.bytes);
    if (option->type == RN_OPTION_BOOL && rn_option_parse_bool(value, &yes))
        return rn_buffer_append(out, yes ? "true" : "false", yes ? 4 : 5);
    bool list = option->type == RN_OPTION_LIST;
    RN_TRY(rn_toml_quote(value, RN_HOST_OTHER, &quoted, &quoted_bytes));
    rn_status s = list ? rn_buffer_append(out, "[", 1) : RN_OK;
    if (s == RN_OK) s = rn_buffer_append(out, quoted, quoted_bytes);
    if (s == RN_OK && list) s = rn_buffer_append(out, "]", 1);
    rn_free(RN_HOST_OTHER, quoted, quoted_bytes);
    return s;
}

static size_t split_key(const char *key, rn_str *out) {
    size_t count = 0;
    for (const char *at = key; count < MAX_KEY_PARTS;) {
        size_t length = strcspn(at, ".");
        out[count++] = (rn_str){at, length};
        if (at[length] == '\0') break;
        at += length + 1;
    }
    return count;
}

// Makes the folders above a file that is about to be created.
static void make_folders(const char *path) {
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)!mkdir(part, 0755); // what matters is whether the file can be written afterwards
        *slash = '/';
    }
}

static rn_status edit_text(rn_str text, const rn_option *option, rn_str value, const char *path) {
    rn_str parts[MAX_KEY_PARTS];
    char *edited = NULL;
    size_t edited_bytes = 0;
    rn_toml_change change = {.path = parts,
                             .path_count = split_key(option->key, parts),
                             .value = value,
                             .make_array = option->in_array};
    RN_TRY(rn_toml_set(text, &change, RN_HOST_OTHER, &edited, &edited_bytes));
    make_folders(path);
    rn_status s = rn_file_replace(path, edited, edited_bytes);
    rn_free(RN_HOST_OTHER, edited, edited_bytes);
    return s;
}

rn_status rn_config_write(const char *path, const rn_option *option, rn_str value) {
    rn_buffer text, written;
    RN_TRY(check_value(option, value));
    rn_buffer_init(&text, RN_HOST_OTHER, RN_TOML_MAX_BYTES);
    rn_buffer_init(&written, RN_HOST_OTHER, RN_TOML_MAX_BYTES);
    rn_status s = write_value(option, value, &written);
    if (s == RN_OK && rn_file_exists(path)) s = rn_file_read_all(path, &text);
    rn_str old = {text.data ? text.data : "", text.bytes};
    if (s == RN_OK) s = edit_text(old, option, (rn_str){written.data, written.bytes}, path);
    rn_buffer_free(&written);
    rn_buffer_free(&text);
    return s == RN_OK || rn_last_error()->path[0]
               ? s
               : rn_error_locate(s, path, rn_last_error()->offset);
}

// toml_fuzz.c — any bytes: the parser answers or refuses; what it answers holds together; an edit
// of it changes one value and can be repeated without effect.
#include "base/str.h"
#include "io/toml_edit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) __builtin_trap();
}

static void check_value(const rn_toml *doc, const rn_toml_value *value) {
    rn_toml_place place = rn_toml_place_of(value);
    rn_str string;
    size_t count = 0;
    require(place.begin <= place.end && place.end <= rn_toml_text(doc).bytes);
    require(place.line >= 1 && place.column >= 1 && rn_utf8_valid(rn_toml_key_of(value)));
    if (rn_toml_type_of(value) == RN_TOML_STRING)
        require(rn_toml_get_string(value, &string) == RN_OK && rn_utf8_valid(string));
    for (const rn_toml_value *item = rn_toml_first(value); item; item = rn_toml_next(item)) {
        if (rn_toml_type_of(value) == RN_TOML_TABLE)
            require(rn_toml_find(value, rn_toml_key_of(item)) == item);
        check_value(doc, item);
        count++;
    }
    require(count == rn_toml_count(value));
}

// What may refuse an edit of a good document: a step that is no table, a table as the target, the
// depth. A result that is wrong, and was caught by the check of it, is a bug.
static void check_refusal(rn_status s) {
    const char *message = rn_last_error()->message;
    require(s == RN_UNSUPPORTED);
    require(strstr(message, "the path leads to") || strstr(message, "nested more than"));
}

static rn_status set(rn_str text, const rn_toml_change *change, rn_str *out) {
    char *edited;
    size_t bytes;
    rn_status s = rn_toml_set(text, change, &rn_system_allocator, &edited, &bytes);
    *out = (rn_str){edited, bytes};
    return s;
}

static void check_edit(rn_str text, const rn_toml_change *change) {
    rn_str once, twice;
    rn_status s = set(text, change, &once);
    if (s != RN_OK) {
        check_refusal(s);
        return;
    }
    require(set(once, change, &twice) == RN_OK && rn_str_equal(once, twice));
    rn_free(&rn_system_allocator, (void *)(uintptr_t)once.data, once.bytes);
    rn_free(&rn_system_allocator, (void *)(uintptr_t)twice.data, twice.bytes);
}

// Follows `turns` (its remainders choose the entries) to some value: its path, without the items of
// arrays.
static size_t choose_path(const rn_toml *doc, uint64_t turns, rn_str path[RN_TOML_MAX_DEPTH + 2]) {
    const rn_toml_value *value = rn_toml_root(doc);
    size_t count = 0;
    while (rn_toml_count(value) > 0) {
        size_t index = turns % (rn_toml_count(value) + 1);
        turns = turns / 3 + 1;
        if (index == rn_toml_count(value)) break;
        bool is_table = rn_toml_type_of(value) == RN_TOML_TABLE;
        value = rn_toml_first(value);
        while (index-- > 0)
            value = rn_toml_next(value);
        if (is_table) path[count++] = rn_toml_key_of(value);
    }
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rn_str text = {(const char *)data, size}, path[RN_TOML_MAX_DEPTH + 2];
    rn_toml *doc;
    rn_status s = rn_toml_parse(text, &rn_system_allocator, &doc);
    if (s != RN_OK) {
        require(s == RN_CORRUPT && !doc && strncmp(rn_last_error()->message, "line ", 5) == 0);
        return 0;
    }
    check_value(doc, rn_toml_root(doc));
    uint64_t turns = size;
    for (size_t i = 0; i < size; i++)
        turns = turns * 31 + data[i];
    size_t count = choose_path(doc, turns, path);
    rn_toml_change change = {path, count, RN_STR("[1, 'x']"), size % 2 == 1};
    if (count > 0) check_edit(text, &change);
    path[count] = RN_STR("new key");
    path[count + 1] = RN_STR("b");
    change.path_count = count + 1;
    check_edit(text, &change);
    change.path_count = count + 2;
    check_edit(text, &change);
    rn_toml_free(doc);
    return 0;
}

// toml_verify.c — proves that an edit did what it should and nothing else.
//
// Both trees are walked together. Off the path they must be equal to the last value and in the same
// order; on the path a table may have one entry more, the one that leads to the new value.
#include "io/toml_editor.h"

static bool equal(const rn_toml_value *a, const rn_toml_value *b);

static bool equal_items(const rn_toml_value *a, const rn_toml_value *b) {
    if (a->items.count != b->items.count) return false;
    a = a->items.first;
    for (b = b->items.first; b; a = a->next, b = b->next)
        if (!rn_str_equal(a->key, b->key) || !equal(a, b)) return false;
    return true;
}

static bool equal(const rn_toml_value *a, const rn_toml_value *b) {
    if (a->type != b->type) return false;
    switch (rn_toml_type_of(a)) {
    case RN_TOML_STRING:
        return rn_str_equal(a->string, b->string);
    case RN_TOML_INTEGER:
        return a->integer == b->integer;
    case RN_TOML_FLOAT: // by its bits: NaN equals itself, and -0 is not 0
        return memcmp(&a->number, &b->number, sizeof a->number) == 0;
    case RN_TOML_BOOL:
        return a->boolean == b->boolean;
    case RN_TOML_ARRAY:
    case RN_TOML_TABLE:
        return equal_items(a, b);
    default:
        return memcmp(&a->time, &b->time, sizeof a->time) == 0;
    }
}

// `made` holds path[at] and the names after it, down to the value, and nothing else.
static bool is_made(const rn_toml_change *change, const rn_toml_value *made, size_t at,
                    const rn_toml_value *value) {
    if (at == change->path_count) return equal(made, value);
    if (made->type == RN_TOML_ARRAY && made->items.count == 1) made = made->items.first;
    if (made->type != RN_TOML_TABLE || made->items.count != 1) return false;
    const rn_toml_value *entry = made->items.first;
    return rn_str_equal(entry->key, change->path[at]) && is_made(change, entry, at + 1, value);
}

// Both stand at path[0, at).
static bool is_changed(const rn_toml_change *change, const rn_toml_value *before,
                       const rn_toml_value *after, size_t at, const rn_toml_value *value);

static bool is_changed_table(const rn_toml_change *change, const rn_toml_value *before,
                             const rn_toml_value *after, size_t at, const rn_toml_value *value) {
    rn_str name = change->path[at];
    const rn_toml_value *entry_before = rn_toml_find(before, name);
    const rn_toml_value *entry_after = rn_toml_find(after, name);
    if (!entry_after || after->items.count != before->items.count + !entry_before) return false;
    for (const rn_toml_value *entry = before->items.first; entry; entry = entry->next) {
        if (rn_str_equal(entry->key, name)) continue;
        const rn_toml_value *same = rn_toml_find(after, entry->key);
        if (!same || !equal(entry, same)) return false;
    }
    return entry_before ? is_changed(change, entry_before, entry_after, at + 1, value)
                        : is_made(change, entry_after, at + 1, value);
}

static bool is_changed(const rn_toml_change *change, const rn_toml_value *before,
                       const rn_toml_value *after, size_t at, const rn_toml_value *value) {
    if (at == change->path_count) return equal(after, value);
    if (before->type != after->type) return false;
    if (before->type == RN_TOML_TABLE) return is_changed_table(change, before, after, at, value);
    if (before->type != RN_TOML_ARRAY || before->items.count != after->items.count) return false;
    after = after->items.first;
    for (before = before->items.first; before; before = before->next, after = after->next)
        if (!is_changed(change, before, after, at, value)) return false;
    return true;
}

bool rn_toml_verify(const rn_toml_change *change, const rn_toml_value *before,
                    const rn_toml_value *after, const rn_toml_value *value) {
    return is_changed(change, before, after, 0, value);
}

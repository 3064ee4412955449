// toml_edit.c — an edit is a list of patches to the text: found in the tree, applied to the bytes,
// proved on the tree of the result.
#include "io/toml_edit.h"
#include "io/toml_editor.h"

#include <assert.h>

enum { CHUNK_BYTES = 4 << 10 };

rn_status rn_toml_patch_add(rn_toml_editor *e, size_t begin, size_t end) {
    void *block, *text;
    // Before any copy is made: a large value may be meant for a million items.
    e->result_bytes = e->result_bytes - (end - begin) + e->draft.bytes;
    if (e->result_bytes > RN_TOML_MAX_BYTES)
        return rn_fail(RN_UNSUPPORTED, "the file would grow past %zu bytes", RN_TOML_MAX_BYTES);
    RN_TRY(rn_arena_alloc(&e->arena, sizeof(rn_toml_patch), &block));
    RN_TRY(rn_arena_copy(&e->arena, e->draft.data, e->draft.bytes, &text));
    rn_toml_patch *patch = block;
    *patch = (rn_toml_patch){.begin = begin, .end = end, .text = {text, e->draft.bytes}};
    if (e->last)
        e->last->next = patch;
    else
        e->first = patch;
    e->last = patch;
    e->draft.bytes = 0;
    return RN_OK;
}

static rn_str shown(rn_str text) {
    return (rn_str){text.data, text.bytes < 60 ? text.bytes : 60};
}

static rn_status refuse_value(const rn_toml_editor *e) {
    rn_str value = shown(e->change->value);
    return rn_fail(RN_INVALID, "'%.*s' is not one TOML value", RN_STR_ARG(value));
}

// The value as a document of its own, which holds it and nothing else.
static rn_status parse_new_value(rn_toml_editor *e) {
    rn_str value = e->change->value;
    RN_TRY(rn_buffer_append(&e->draft, "v=", 2));
    RN_TRY(rn_buffer_append(&e->draft, value.data, value.bytes));
    rn_status s = rn_toml_parse((rn_str){e->draft.data, e->draft.bytes}, e->draft.from, &e->value);
    e->draft.bytes = 0;
    if (s == RN_CORRUPT) {
        rn_error_info why = *rn_last_error();
        return rn_hint(refuse_value(e), "%s", why.hint);
    }
    RN_TRY(s);
    const rn_toml_value *only = rn_toml_first(rn_toml_root(e->value));
    if (only->next || only->begin != 2 || only->end != 2 + value.bytes) return refuse_value(e);
    return RN_OK;
}

static rn_status refuse_step(const rn_toml_value *value, const char *why) {
    return rn_fail(RN_UNSUPPORTED, "line %u, column %u: the path leads to a value of type %s %s",
                   value->line, value->column, rn_toml_type_name(rn_toml_type_of(value)), why);
}

static rn_status replace(rn_toml_editor *e, const rn_toml_value *value) {
    if (value->form != RN_TOML_PLAIN && value->form != RN_TOML_INLINE)
        return refuse_step(value, "that has lines of its own and cannot be set as a whole");
    RN_TRY(rn_buffer_append(&e->draft, e->change->value.data, e->change->value.bytes));
    return rn_toml_patch_add(e, value->begin, value->end);
}

// From `table`, which stands at path[0, at), to the patches.
static rn_status change_table(rn_toml_editor *e, const rn_toml_value *table, size_t at);

static rn_status change_items(rn_toml_editor *e, const rn_toml_value *array, size_t at) {
    if (array->items.count == 0) return refuse_step(array, "that has no tables in it");
    for (const rn_toml_value *item = array->items.first; item; item = item->next)
        RN_TRY(change_table(e, item, at));
    return RN_OK;
}

static rn_status change_table(rn_toml_editor *e, const rn_toml_value *table, size_t at) {
    if (table->type != RN_TOML_TABLE) return refuse_step(table, "where a table is needed");
    const rn_toml_value *entry = rn_toml_find(table, e->change->path[at]);
    if (!entry) return rn_toml_insert(e, table, at);
    if (at + 1 == e->change->path_count) return replace(e, entry);
    return entry->type == RN_TOML_ARRAY ? change_items(e, entry, at + 1)
                                        : change_table(e, entry, at + 1);
}

static rn_status apply(const rn_toml_editor *e, char **out_text) {
    size_t at = 0;
    void *block;
    RN_TRY(rn_alloc(e->draft.from, e->result_bytes, &block));
    char *to = block;
    for (const rn_toml_patch *patch = e->first; patch; patch = patch->next) {
        assert(patch->begin >= at);
        memcpy(to, e->text.data + at, patch->begin - at);
        to += patch->begin - at;
        memcpy(to, patch->text.data, patch->text.bytes);
        to += patch->text.bytes;
        at = patch->end;
    }
    memcpy(to, e->text.data + at, e->text.bytes - at);
    *out_text = block;
    return RN_OK;
}

static rn_status verify(const rn_toml_editor *e, rn_str edited) {
    rn_toml *after;
    rn_status s = rn_toml_parse(edited, e->draft.from, &after);
    if (s == RN_CORRUPT) {
        rn_error_info why = *rn_last_error();
        return rn_fail(RN_UNSUPPORTED, "the file cannot take this value: %s", why.message);
    }
    RN_TRY(s);
    bool good = rn_toml_verify(e->change, rn_toml_root(e->before), rn_toml_root(after),
                               rn_toml_first(rn_toml_root(e->value)));
    rn_toml_free(after);
    return good ? RN_OK
                : rn_fail(RN_UNSUPPORTED, "the value cannot be set without changing others");
}

static rn_status edit(rn_toml_editor *e, rn_str text, char **out_text) {
    RN_TRY(rn_toml_parse(text, e->draft.from, &e->before));
    RN_TRY(parse_new_value(e));
    e->text = rn_toml_text(e->before);
    e->result_bytes = e->text.bytes;
    RN_TRY(change_table(e, rn_toml_root(e->before), 0));
    RN_TRY(apply(e, out_text));
    return verify(e, (rn_str){*out_text, e->result_bytes});
}

rn_status rn_toml_set(rn_str text, const rn_toml_change *change, const rn_allocator *from,
                      char **out_text, size_t *out_bytes) {
    rn_toml_editor e = {.change = change};
    *out_text = NULL;
    *out_bytes = 0;
    if (change->path_count == 0) return rn_fail(RN_INVALID, "the path of a value is empty");
    rn_arena_init(&e.arena, from, CHUNK_BYTES);
    rn_buffer_init(&e.draft, from, RN_TOML_MAX_BYTES);
    char *edited = NULL;
    rn_status s = edit(&e, text, &edited);
    if (s == RN_OK) {
        *out_text = edited;
        *out_bytes = e.result_bytes;
    } else {
        rn_free(from, edited, e.result_bytes);
    }
    rn_toml_free(e.before);
    rn_toml_free(e.value);
    rn_arena_free_all(&e.arena);
    rn_buffer_free(&e.draft);
    return s;
}

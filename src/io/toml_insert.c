// toml_insert.c — where a new key goes, and how it is written there.
//
// That depends on how its table was written:
//
//     {...}                        the last entry in the braces
//     made by a.b = 1              a line (in braces, an entry) a.c = 2 after the last one of a
//     root, [table], [[table]]     a line after its last line
//     missing, or made by [a.b]    a section [a] at the end of the file, or of the item it is in
#include "io/toml_editor.h"

static size_t text_begin(const rn_toml_editor *e) {
    return e->before->root->begin; // after a byte order mark
}

// The offset after the line that `at` is in.
static size_t line_end(rn_str text, size_t at) {
    const char *found = at < text.bytes ? memchr(text.data + at, '\n', text.bytes - at) : NULL;
    return found ? (size_t)(found - text.data) + 1 : text.bytes;
}

// The first character of the line at `at` that is no white space; '\n' for a blank line or the end
// of the text.
static char line_mark(rn_str text, size_t at) {
    while (at < text.bytes && strchr(" \t\r", text.data[at]))
        at++;
    return at < text.bytes ? text.data[at] : '\n';
}

static size_t line_begin(const rn_toml_editor *e, size_t at) {
    while (at > text_begin(e) && e->text.data[at - 1] != '\n')
        at--;
    return at;
}

// Comment lines at `at` belong to what is above when a blank line or the end of the text follows
// them.
static size_t pass_comments(const rn_toml_editor *e, size_t at) {
    size_t end = at;
    while (line_mark(e->text, end) == '#')
        end = line_end(e->text, end);
    return line_mark(e->text, end) == '\n' ? end : at;
}

static bool is_empty_root(const rn_toml_value *table) {
    return table->form == RN_TOML_ROOT && table->items.last_begin == table->items.last_end;
}

// The offset after the last of the table's own lines.
static size_t body_end(const rn_toml_editor *e, const rn_toml_value *table) {
    size_t at = table->items.last_end;
    return pass_comments(e, is_empty_root(table) ? at : line_end(e->text, at));
}

static rn_status put(rn_toml_editor *e, rn_str text) {
    return rn_buffer_append(&e->draft, text.data, text.bytes);
}

// As the file's first line ends.
static rn_status write_newline(rn_toml_editor *e) {
    size_t end = line_end(e->text, 0);
    bool crlf = end >= 2 && e->text.data[end - 1] == '\n' && e->text.data[end - 2] == '\r';
    return put(e, crlf ? RN_STR("\r\n") : RN_STR("\n"));
}

// Names of the tables below `base` (not itself) down to `table`, each followed by a dot. An array
// of tables has the name, its items have none.
static rn_status write_way(rn_toml_editor *e, const rn_toml_value *base,
                           const rn_toml_value *table) {
    if (table == base) return RN_OK;
    RN_TRY(write_way(e, base, table->parent));
    if (table->parent->type == RN_TOML_ARRAY) return RN_OK;
    RN_TRY(rn_toml_write_name(&e->draft, table->key));
    return put(e, RN_STR("."));
}

// path[at, end) with dots between.
static rn_status write_path(rn_toml_editor *e, size_t at, size_t end) {
    for (size_t i = at; i < end; i++) {
        if (i > at) RN_TRY(put(e, RN_STR(".")));
        RN_TRY(rn_toml_write_name(&e->draft, e->change->path[i]));
    }
    return RN_OK;
}

// "a.b.c = value", as it is seen from `base`.
static rn_status write_entry(rn_toml_editor *e, const rn_toml_value *base,
                             const rn_toml_value *table, size_t at) {
    RN_TRY(write_way(e, base, table));
    RN_TRY(write_path(e, at, e->change->path_count));
    RN_TRY(put(e, RN_STR(" = ")));
    return put(e, e->change->value);
}

static rn_status insert_inline(rn_toml_editor *e, const rn_toml_value *base,
                               const rn_toml_value *table, size_t at) {
    size_t offset = table->items.last_end;
    bool is_first = table->items.count == 0;
    RN_TRY(put(e, is_first ? RN_STR(" ") : RN_STR(", ")));
    RN_TRY(write_entry(e, base, table, at));
    if (is_first && e->text.data[offset] == '}') RN_TRY(put(e, RN_STR(" ")));
    return rn_toml_patch_add(e, offset, offset);
}

// The white space before the last line of the table, or before its header.
static rn_str indent_of(const rn_toml_editor *e, const rn_toml_value *table) {
    size_t end = table->items.last_begin, begin = line_begin(e, end);
    return (rn_str){e->text.data + begin, end - begin};
}

static rn_status insert_line(rn_toml_editor *e, const rn_toml_value *base,
                             const rn_toml_value *table, size_t at) {
    size_t offset = body_end(e, table);
    if (line_begin(e, offset) != offset) RN_TRY(write_newline(e)); // the text ends within a line
    RN_TRY(put(e, indent_of(e, table)));
    RN_TRY(write_entry(e, base, table, at));
    RN_TRY(write_newline(e));
    // The first key of the root keeps its distance from what it is put before.
    if (is_empty_root(table) && line_mark(e->text, offset) != '\n') RN_TRY(write_newline(e));
    return rn_toml_patch_add(e, offset, offset);
}

static bool is_within(const rn_toml_value *table, const rn_toml_value *ancestor) {
    while (table && table != ancestor)
        table = table->parent;
    return table != NULL;
}

// Whether `section` begins another item of an array that `item` is in: what follows no longer
// belongs to `item`.
static bool ends_item(const rn_toml_value *section, const rn_toml_value *item) {
    return section != item && section->form == RN_TOML_ITEM && is_within(item, section->parent);
}

// Where a section that belongs below `table` can stand. Headers name the last item of an array, so
// in an item it has to be after the sections of that item.
static size_t section_offset(const rn_toml_editor *e, const rn_toml_value *table) {
    while (table && table->form != RN_TOML_ITEM)
        table = table->parent;
    if (!table) return e->text.bytes;
    const rn_toml_value *last = table, *section = table;
    for (; section && !ends_item(section, table); section = section->items.next_section)
        if (is_within(section, table)) last = section;
    return body_end(e, last);
}

static rn_status insert_section(rn_toml_editor *e, const rn_toml_value *table, size_t at) {
    size_t last = e->change->path_count - 1, offset = section_offset(e, table);
    size_t line = line_begin(e, offset);
    bool is_item = e->change->make_array && at < last;
    if (line != offset) RN_TRY(write_newline(e));
    if (line == offset && line > text_begin(e)) line = line_begin(e, line - 1);
    if (line_mark(e->text, line) != '\n') RN_TRY(write_newline(e));
    RN_TRY(put(e, is_item ? RN_STR("[[") : RN_STR("[")));
    RN_TRY(write_way(e, e->before->root, table));
    RN_TRY(write_path(e, at, last));
    if (at == last) e->draft.bytes--; // the way ended with a dot
    RN_TRY(put(e, is_item ? RN_STR("]]") : RN_STR("]")));
    RN_TRY(write_newline(e));
    RN_TRY(write_entry(e, table, table, last));
    RN_TRY(write_newline(e));
    if (line_mark(e->text, offset) != '\n') RN_TRY(write_newline(e));
    return rn_toml_patch_add(e, offset, offset);
}

rn_status rn_toml_insert(rn_toml_editor *e, const rn_toml_value *table, size_t at) {
    const rn_toml_value *base = table; // the section or braces that its dotted keys are written in
    while (base->form == RN_TOML_DOTTED)
        base = base->parent;
    if (base->form == RN_TOML_INLINE) return insert_inline(e, base, table, at);
    bool is_own_line = table->form != RN_TOML_IMPLICIT && at + 1 == e->change->path_count;
    if (table->form == RN_TOML_DOTTED || is_own_line) return insert_line(e, base, table, at);
    return insert_section(e, table, at);
}

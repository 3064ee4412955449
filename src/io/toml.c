// toml.c — a document from its text, and reading the tree.
//
// The parser proper is in toml_lex.c (characters), toml_string.c, toml_number.c, toml_time.c,
// toml_value.c (values) and toml_define.c (keys, headers, and which of them may go together). It is
// recursive only where arrays and inline tables nest, which RN_TOML_MAX_DEPTH bounds.
#include "io/toml.h"
#include "io/toml_parser.h"

enum { CHUNK_BYTES = 8 << 10 };

static rn_status parse_lines(rn_toml_parser *p) {
    for (rn_toml_skip_lines(p); p->at < p->bytes; rn_toml_skip_lines(p)) {
        if (p->text[p->at] == '[') {
            RN_TRY(rn_toml_parse_header(p));
            RN_TRY(rn_toml_end_line(p, "the header"));
        } else {
            RN_TRY(rn_toml_parse_entry(p, p->section));
            RN_TRY(rn_toml_end_line(p, "the value"));
        }
    }
    return RN_OK;
}

static rn_status parse_document(rn_toml *doc) {
    rn_toml_parser p = {.doc = doc, .text = doc->text.data, .bytes = doc->text.bytes};
    p.line = p.column = 1;
    RN_TRY(rn_toml_check_text(&p));
    if (rn_str_starts(doc->text, RN_STR("\xEF\xBB\xBF"))) p.at = p.counted = 3;
    RN_TRY(rn_toml_add(doc, NULL, (rn_str){NULL, 0}, RN_TOML_TABLE, RN_TOML_ROOT, &doc->root));
    rn_toml_mark(&p, doc->root, p.at);
    doc->root->items.last_begin = doc->root->items.last_end = (uint32_t)p.at;
    p.section = doc->root;
    RN_TRY(parse_lines(&p));
    doc->root->end = (uint32_t)p.bytes;
    return RN_OK;
}

rn_status rn_toml_parse(rn_str text, const rn_allocator *from, rn_toml **out) {
    void *block;
    *out = NULL;
    if (text.bytes > RN_TOML_MAX_BYTES)
        return rn_fail(RN_UNSUPPORTED, "the TOML text has %zu bytes, more than %zu", text.bytes,
                       RN_TOML_MAX_BYTES);
    RN_TRY(rn_alloc_zeroed(from, 1, sizeof(rn_toml), &block));
    rn_toml *doc = block;
    doc->from = from;
    rn_arena_init(&doc->arena, from, CHUNK_BYTES);
    void *copy;
    rn_status s = rn_arena_copy(&doc->arena, text.data, text.bytes, &copy);
    if (s == RN_OK) {
        doc->text = (rn_str){copy, text.bytes};
        s = parse_document(doc);
    }
    if (s == RN_OK)
        *out = doc;
    else
        rn_toml_free(doc);
    return s;
}

void rn_toml_free(rn_toml *doc) {
    if (!doc) return;
    for (rn_toml_index *index = doc->indexes; index; index = index->next)
        rn_map_free(&index->map);
    rn_arena_free_all(&doc->arena);
    rn_free(doc->from, doc, sizeof *doc);
}

const rn_toml_value *rn_toml_root(const rn_toml *doc) {
    return doc->root;
}

rn_str rn_toml_text(const rn_toml *doc) {
    return doc->text;
}

rn_toml_type rn_toml_type_of(const rn_toml_value *value) {
    return (rn_toml_type)value->type;
}

const char *rn_toml_type_name(rn_toml_type type) {
    static const char *const names[RN_TOML_TYPE_COUNT] = {
        "string",          "integer",    "float",      "boolean", "offset date-time",
        "local date-time", "local date", "local time", "array",   "table"};
    return (unsigned)type < RN_TOML_TYPE_COUNT ? names[type] : "unknown";
}

rn_toml_place rn_toml_place_of(const rn_toml_value *value) {
    return (rn_toml_place){value->line, value->column, value->begin, value->end};
}

rn_str rn_toml_key_of(const rn_toml_value *value) {
    return value->key;
}

static bool holds_items(const rn_toml_value *value) {
    return value->type == RN_TOML_ARRAY || value->type == RN_TOML_TABLE;
}

size_t rn_toml_count(const rn_toml_value *value) {
    return holds_items(value) ? value->items.count : 0;
}

const rn_toml_value *rn_toml_first(const rn_toml_value *value) {
    return holds_items(value) ? value->items.first : NULL;
}

const rn_toml_value *rn_toml_next(const rn_toml_value *value) {
    return value->next;
}

const rn_toml_value *rn_toml_at(const rn_toml_value *array, size_t index) {
    if (array->type != RN_TOML_ARRAY || index >= array->items.count) return NULL;
    const rn_toml_value *item = array->items.first;
    while (index-- > 0)
        item = item->next;
    return item;
}

// Decimal digits as an index; SIZE_MAX for anything else.
static size_t read_index(rn_str name) {
    size_t index = 0;
    if (name.bytes == 0 || name.bytes > 9) return SIZE_MAX;
    for (size_t i = 0; i < name.bytes; i++) {
        if (name.data[i] < '0' || name.data[i] > '9') return SIZE_MAX;
        index = index * 10 + (size_t)(name.data[i] - '0');
    }
    return index;
}

const rn_toml_value *rn_toml_find_path(const rn_toml_value *from, const char *path) {
    while (from) {
        rn_str name = {path, strcspn(path, ".")};
        from = from->type == RN_TOML_ARRAY ? rn_toml_at(from, read_index(name))
                                           : rn_toml_find(from, name);
        path += name.bytes;
        if (*path == '\0') return from;
        path++;
    }
    return NULL;
}

static rn_status wrong_type(const rn_toml_value *value, const char *wanted) {
    rn_str name = rn_toml_clip(value->key);
    if (name.bytes == 0) name = RN_STR("this value");
    return rn_fail(RN_INVALID, "line %u, column %u: %.*s is of type %s, expected %s", value->line,
                   value->column, RN_STR_ARG(name), rn_toml_type_name(rn_toml_type_of(value)),
                   wanted);
}

rn_status rn_toml_expect(const rn_toml_value *value, rn_toml_type type) {
    return value->type == type ? RN_OK : wrong_type(value, rn_toml_type_name(type));
}

rn_status rn_toml_get_string(const rn_toml_value *value, rn_str *out) {
    RN_TRY(rn_toml_expect(value, RN_TOML_STRING));
    *out = value->string;
    return RN_OK;
}

rn_status rn_toml_get_integer(const rn_toml_value *value, int64_t *out) {
    RN_TRY(rn_toml_expect(value, RN_TOML_INTEGER));
    *out = value->integer;
    return RN_OK;
}

rn_status rn_toml_get_float(const rn_toml_value *value, double *out) {
    if (value->type == RN_TOML_INTEGER) {
        *out = (double)value->integer;
        return RN_OK;
    }
    RN_TRY(rn_toml_expect(value, RN_TOML_FLOAT));
    *out = value->number;
    return RN_OK;
}

rn_status rn_toml_get_bool(const rn_toml_value *value, bool *out) {
    RN_TRY(rn_toml_expect(value, RN_TOML_BOOL));
    *out = value->boolean;
    return RN_OK;
}

rn_status rn_toml_get_time(const rn_toml_value *value, rn_toml_time *out) {
    if (value->type < RN_TOML_OFFSET_DATETIME || value->type > RN_TOML_LOCAL_TIME)
        return wrong_type(value, "a date or time");
    *out = value->time;
    return RN_OK;
}

// fields.c — JSON and GGUF metadata as one flat table, and typed looks into it.
#include "model/text/fields.h"

#include "base/file.h"
#include "base/number.h"
#include "io/json_read.h"
#include "memory/account.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

// More than any model's configuration has: what is beyond is no configuration.
enum { MAX_JSON_BYTES = 4 << 20, MAX_FIELDS = 1 << 14, MAX_NAME_BYTES = 256 };
enum { MAX_LISTED = 512 }; // elements of an array of GGUF: one a layer, but not one a token

void rn_fields_init(rn_fields *fields, const char *source) {
    fields->source = source;
    fields->within = NULL;
    rn_arena_init(&fields->memory, RN_HOST_OTHER, 0);
    rn_map_init(&fields->by_name, RN_HOST_OTHER);
}

void rn_fields_free(rn_fields *fields) {
    rn_map_free(&fields->by_name);
    rn_arena_free_all(&fields->memory);
}

static rn_status add(rn_fields *fields, rn_str name, const rn_field *field, rn_field **out) {
    void *key = NULL, *copy = NULL;
    bool existing = false;
    if (fields->by_name.count == MAX_FIELDS)
        return rn_fail(RN_UNSUPPORTED, "%s has more than %d settings", fields->source, MAX_FIELDS);
    RN_TRY(rn_arena_copy(&fields->memory, name.data, name.bytes, &key));
    RN_TRY(rn_arena_copy(&fields->memory, field, sizeof *field, &copy));
    RN_TRY(rn_map_add(&fields->by_name, (rn_str){key, name.bytes}, (uint64_t)(uintptr_t)copy,
                      &existing));
    if (existing)
        return rn_fail(RN_CORRUPT, "%s: '%.*s' is there twice", fields->source, RN_STR_ARG(name));
    ((rn_field *)copy)->order = fields->by_name.count;
    if (out) *out = copy;
    return RN_OK;
}

// ---- JSON ---------------------------------------------------------------------------------------

typedef struct flattener {
    rn_fields *fields;
    rn_json_reader json;
    char name[MAX_NAME_BYTES]; // of the value that comes next
} flattener;

static rn_status read_value(flattener *f, size_t length);

// "name.key"; false where it is too long to be of interest.
static bool append(flattener *f, size_t length, rn_str key, size_t *out_length) {
    size_t dot = length > 0;
    if (length + dot + key.bytes >= sizeof f->name) return false;
    if (dot) f->name[length] = '.';
    if (key.bytes) memcpy(f->name + length + dot, key.data, key.bytes);
    *out_length = length + dot + key.bytes;
    return true;
}

static rn_status read_member(flattener *f, size_t length, rn_str key) {
    size_t longer = 0;
    if (!append(f, length, key, &longer)) return rn_json_skip(&f->json);
    return read_value(f, longer);
}

static rn_status read_object(flattener *f, size_t length, rn_field *list) {
    for (;; list->count++) {
        rn_json_item item;
        RN_TRY(rn_json_next(&f->json, &item));
        if (item.kind == RN_JSON_OBJECT_END) return RN_OK;
        RN_TRY(read_member(f, length, item.text));
    }
}

static rn_status add_scalar(flattener *f, size_t length, const rn_json_item *item);

static rn_status read_item(flattener *f, size_t length, const rn_json_item *item) {
    rn_field list = {.kind = RN_FIELD_LIST}, *kept = NULL;
    if (item->kind != RN_JSON_OBJECT && item->kind != RN_JSON_ARRAY)
        return add_scalar(f, length, item);
    RN_TRY(add(f->fields, (rn_str){f->name, length}, &list, &kept));
    if (item->kind == RN_JSON_OBJECT) return read_object(f, length, kept);
    for (;; kept->count++) {
        rn_json_item next;
        char number[24];
        size_t longer = 0;
        RN_TRY(rn_json_next(&f->json, &next));
        if (next.kind == RN_JSON_ARRAY_END) return RN_OK;
        snprintf(number, sizeof number, "%llu", (unsigned long long)kept->count);
        if (!append(f, length, rn_str_from(number), &longer))
            return rn_fail(RN_UNSUPPORTED, "%s: the settings are nested too deep",
                           f->fields->source);
        RN_TRY(read_item(f, longer, &next));
    }
}

static rn_status add_scalar(flattener *f, size_t length, const rn_json_item *item) {
    rn_field field = {.kind = RN_FIELD_BOOL, .boolean = item->kind == RN_JSON_TRUE};
    void *copy = NULL;
    if (item->kind == RN_JSON_NULL) return RN_OK;
    if (item->kind == RN_JSON_STRING) {
        RN_TRY(rn_arena_copy(&f->fields->memory, item->text.data, item->text.bytes, &copy));
        field = (rn_field){.kind = RN_FIELD_TEXT, .text = {copy, item->text.bytes}};
    } else if (item->kind == RN_JSON_NUMBER) {
        if (item->text.bytes >= RN_NUMBER_BYTES)
            return rn_fail(RN_UNSUPPORTED, "%s: '%.*s' has %zu digits", f->fields->source,
                           (int)length, f->name, item->text.bytes);
        field.kind = RN_FIELD_NUMBER;
        RN_TRY(rn_number_read(item->text, &field.number));
    }
    return add(f->fields, (rn_str){f->name, length}, &field, NULL);
}

static rn_status read_value(flattener *f, size_t length) {
    rn_json_item item;
    RN_TRY(rn_json_next(&f->json, &item));
    return read_item(f, length, &item);
}

rn_status rn_fields_read_json(rn_fields *fields, rn_str text) {
    flattener f = {.fields = fields};
    rn_field whole = {.kind = RN_FIELD_LIST};
    rn_json_reader_init(&f.json, text, RN_HOST_OTHER);
    rn_status s = rn_json_expect(&f.json, RN_JSON_OBJECT, NULL);
    if (s == RN_OK) s = read_object(&f, 0, &whole);
    if (s == RN_OK) s = rn_json_expect(&f.json, RN_JSON_END, NULL);
    rn_json_reader_free(&f.json);
    if (s == RN_OK || rn_last_error()->path[0]) return s;
    return rn_error_locate(s, fields->source, rn_last_error()->offset);
}

rn_status rn_fields_read_file(rn_fields *fields, const char *path) {
    rn_buffer text;
    rn_buffer_init(&text, RN_HOST_OTHER, MAX_JSON_BYTES);
    rn_status s = rn_file_read_all(path, &text);
    if (s == RN_OK) s = rn_fields_read_json(fields, (rn_str){text.data, text.bytes});
    rn_buffer_free(&text);
    return s;
}

// ---- GGUF ---------------------------------------------------------------------------------------

static rn_field convert(const rn_metadata *m) {
    switch (m->kind) {
    case RN_METADATA_TEXT:
        return (rn_field){.kind = RN_FIELD_TEXT, .text = m->text};
    case RN_METADATA_U64:
        return (rn_field){.kind = RN_FIELD_NUMBER, .number = (double)m->value.u64};
    case RN_METADATA_I64:
        return (rn_field){.kind = RN_FIELD_NUMBER, .number = (double)m->value.i64};
    case RN_METADATA_F64:
        return (rn_field){.kind = RN_FIELD_NUMBER, .number = m->value.f64};
    case RN_METADATA_BOOL:
        return (rn_field){.kind = RN_FIELD_BOOL, .boolean = m->value.boolean};
    default:
        return (rn_field){.kind = RN_FIELD_LIST, .count = m->count};
    }
}

// "key.0", "key.1", ... of an array of numbers or flags.
static rn_status add_elements(rn_fields *fields, const rn_metadata *array) {
    rn_metadata element;
    uint64_t cursor = 0;
    for (uint64_t i = 0; rn_metadata_next(array, &cursor, &element); i++) {
        char name[MAX_NAME_BYTES];
        rn_field field = convert(&element);
        int length =
            snprintf(name, sizeof name, "%.*s.%llu", RN_STR_ARG(array->key), (unsigned long long)i);
        if (field.kind == RN_FIELD_LIST || field.kind == RN_FIELD_TEXT ||
            length >= (int)sizeof name)
            return RN_OK;
        RN_TRY(add(fields, (rn_str){name, (size_t)length}, &field, NULL));
    }
    return RN_OK;
}

rn_status rn_fields_read_metadata(rn_fields *fields, const rn_checkpoint *checkpoint) {
    for (size_t i = 0; i < rn_checkpoint_metadata_count(checkpoint); i++) {
        const rn_metadata *m = rn_checkpoint_metadata(checkpoint, i);
        rn_field field = convert(m);
        RN_TRY(add(fields, m->key, &field, NULL));
        if (m->kind == RN_METADATA_ARRAY && m->count <= MAX_LISTED) RN_TRY(add_elements(fields, m));
    }
    return RN_OK;
}

// ---- looking ------------------------------------------------------------------------------------

const rn_field *rn_fields_find(const rn_fields *fields, const char *name) {
    char inner[MAX_NAME_BYTES];
    uint64_t at = 0;
    if (fields->within) {
        int length = snprintf(inner, sizeof inner, "%s.%s", fields->within, name);
        if (length < 0 || length >= (int)sizeof inner) return NULL;
        name = inner;
    }
    if (!rn_map_find(&fields->by_name, rn_str_from(name), &at)) return NULL;
    return (const rn_field *)(uintptr_t)at;
}

// *out is NULL where the field is absent.
static rn_status look(const rn_fields *fields, const char *name, rn_field_kind kind,
                      const rn_field **out) {
    static const char *const kinds[] = {"text", "a number", "true or false", "a list"};
    *out = rn_fields_find(fields, name);
    if (!*out || (*out)->kind == kind) return RN_OK;
    return rn_fail(RN_CORRUPT, "%s: '%s' is %s, not %s", fields->source, name, kinds[(*out)->kind],
                   kinds[kind]);
}

static rn_status need(const rn_fields *fields, const char *name) {
    if (rn_fields_find(fields, name)) return RN_OK;
    return rn_fail(RN_CORRUPT, "%s lacks '%s'", fields->source, name);
}

rn_status rn_fields_u32(const rn_fields *fields, const char *name, uint32_t *out) {
    const rn_field *field = NULL;
    RN_TRY(look(fields, name, RN_FIELD_NUMBER, &field));
    if (!field) return RN_OK;
    double x = field->number;
    if (!(x >= 0 && x <= UINT32_MAX) || x != floor(x))
        return rn_fail(RN_CORRUPT, "%s: '%s' cannot be %g", fields->source, name, x);
    *out = (uint32_t)x;
    return RN_OK;
}

rn_status rn_fields_number(const rn_fields *fields, const char *name, float *out) {
    const rn_field *field = NULL;
    RN_TRY(look(fields, name, RN_FIELD_NUMBER, &field));
    if (!field) return RN_OK;
    if (!(fabs(field->number) <= (double)FLT_MAX))
        return rn_fail(RN_CORRUPT, "%s: '%s' cannot be %g", fields->source, name, field->number);
    *out = (float)field->number;
    return RN_OK;
}

rn_status rn_fields_bool(const rn_fields *fields, const char *name, bool *out) {
    const rn_field *field = NULL;
    RN_TRY(look(fields, name, RN_FIELD_BOOL, &field));
    if (field) *out = field->boolean;
    return RN_OK;
}

rn_status rn_fields_text(const rn_fields *fields, const char *name, rn_str *out) {
    const rn_field *field = NULL;
    RN_TRY(look(fields, name, RN_FIELD_TEXT, &field));
    if (field) *out = field->text;
    return RN_OK;
}

rn_status rn_fields_need_u32(const rn_fields *fields, const char *name, uint32_t *out) {
    RN_TRY(need(fields, name));
    return rn_fields_u32(fields, name, out);
}

rn_status rn_fields_need_number(const rn_fields *fields, const char *name, float *out) {
    RN_TRY(need(fields, name));
    return rn_fields_number(fields, name, out);
}

rn_status rn_fields_need_text(const rn_fields *fields, const char *name, rn_str *out) {
    RN_TRY(need(fields, name));
    return rn_fields_text(fields, name, out);
}

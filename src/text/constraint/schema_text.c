// schema_text.c — a JSON schema where it stands: keywords, numbers, what a reference points to.
#include "text/constraint/schema_parts.h"

#include "base/checked.h"
#include "base/number.h"
#include "base/str.h"
#include "memory/account.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const keywords[] = {
    "type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf", "properties", "required",
    "additionalProperties", "items", "prefixItems", "minItems", "maxItems", "minLength",
    "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    // Refused:
    "pattern", "not", "if", "then", "else", "patternProperties", "propertyNames",
    "dependentSchemas", "dependentRequired", "unevaluatedProperties", "unevaluatedItems",
    "contains", "minContains", "maxContains", "uniqueItems", "multipleOf", "minProperties",
    "maxProperties", "$dynamicRef", "$recursiveRef", "additionalItems"};
_Static_assert(sizeof keywords / sizeof *keywords == RN_KEY_COUNT, "a name for each");

const char *rn_schema_key_name(rn_schema_key key) {
    return keywords[key];
}

// ---- what is wrong ------------------------------------------------------------------------------

rn_status rn_schema_refuse(uint32_t at, rn_status status, const char *what) {
    return rn_fail(status, "the schema, at byte %u: %s", at, what);
}

rn_status rn_schema_refuse_type(uint32_t at, rn_schema_key k, const char *wanted) {
    return rn_fail(RN_INVALID, "the schema, at byte %u: \"%s\" must be %s", at, keywords[k],
                   wanted);
}

// ---- reading ------------------------------------------------------------------------------------

void rn_schema_read_from(const rn_schema_compiler *c, uint32_t at, rn_json_reader *out) {
    rn_str rest = {c->text.data + at, c->text.bytes - at};
    rn_json_reader_init(out, rest, RN_HOST_IO);
    out->base = at;
}

// The first item of the value at `at`. Texts are of `reader`, which the caller frees.
rn_status rn_schema_open(const rn_schema_compiler *c, uint32_t at, rn_json_reader *reader,
                         rn_json_item *out) {
    rn_schema_read_from(c, at, reader);
    return rn_json_next(reader, out);
}

rn_status rn_schema_number(const rn_schema_compiler *c, uint32_t at, rn_schema_key k, double *out) {
    rn_json_reader reader;
    rn_json_item item;
    rn_status s = rn_schema_open(c, at, &reader, &item);
    if (s == RN_OK && (item.kind != RN_JSON_NUMBER || item.text.bytes >= RN_NUMBER_BYTES))
        s = rn_schema_refuse_type(at, k, "a number of at most 127 characters");
    if (s == RN_OK) s = rn_number_read(item.text, out);
    if (s == RN_OK && !isfinite(*out)) s = rn_schema_refuse_type(at, k, "a finite number");
    rn_json_reader_free(&reader);
    return s;
}

// Whole numbers; what is not given stays.
rn_status rn_schema_count(const rn_schema_compiler *c, const rn_schema_demands *schema,
                          rn_schema_key k, uint32_t *out) {
    double value = 0;
    if (!schema->values[k]) return RN_OK;
    RN_TRY(rn_schema_number(c, schema->values[k], k, &value));
    if (value < 0 || value != floor(value))
        return rn_schema_refuse_type(schema->values[k], k, "0 or more");
    *out = value > 1 << 20 ? 1 << 20 : (uint32_t)value; // longer than any answer
    return RN_OK;
}

static rn_schema_key find_keyword(rn_str name) {
    int k = 0;
    while (k < RN_KEY_COUNT && !rn_str_equal(name, rn_str_from(keywords[k])))
        k++;
    return (rn_schema_key)k;
}

// The keywords of an object whose '{' has been read.
rn_status rn_schema_read_keywords(rn_json_reader *reader, rn_schema_demands *out) {
    rn_json_item item;
    for (;;) {
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) return RN_OK;
        int k = (int)find_keyword(item.text);
        RN_TRY(rn_json_next(reader, &item));
        if (k >= RN_KEY_FIRST_REFUSED && k < RN_KEY_COUNT && item.kind != RN_JSON_FALSE)
            return rn_hint(rn_fail(RN_UNSUPPORTED,
                                   "the schema, at byte %u: \"%s\" is not supported", out->at,
                                   keywords[k]),
                           "leave it out, and check the answer for it");
        if (k < RN_KEY_COUNT) out->values[k] = (uint32_t)item.offset;
        RN_TRY(rn_json_skip_rest(reader, &item));
    }
}

// ---- references ---------------------------------------------------------------------------------

// One step of a pointer, "~1" and "~0" being '/' and '~': in an object by name, in a list by
// number.
static rn_status find_member(const rn_schema_compiler *c, uint32_t *at, rn_str name) {
    rn_json_reader reader;
    rn_json_item item;
    char number[24];
    uint64_t index = 0;
    bool found = false;
    rn_status s = rn_schema_open(c, *at, &reader, &item);
    bool list = s == RN_OK && item.kind == RN_JSON_ARRAY;
    bool object = s == RN_OK && item.kind == RN_JSON_OBJECT;
    for (; s == RN_OK && (list || object) && !found; index++) {
        s = rn_json_next(&reader, &item);
        if (s != RN_OK || item.kind == RN_JSON_ARRAY_END || item.kind == RN_JSON_OBJECT_END) break;
        snprintf(number, sizeof number, "%llu", (unsigned long long)index);
        found = rn_str_equal(name, list ? rn_str_from(number) : item.text);
        if (object) s = rn_json_next(&reader, &item);
        if (s == RN_OK && found) *at = (uint32_t)item.offset;
        if (s == RN_OK && !found) s = rn_json_skip_rest(&reader, &item);
    }
    rn_json_reader_free(&reader);
    if (s == RN_OK && !found)
        s = rn_fail(RN_INVALID, "the schema refers to '%.*s', which is not there",
                    (int)rn_min_u64(name.bytes, 60), name.data);
    return s;
}

rn_status rn_schema_find(const rn_schema_compiler *c, rn_str pointer, uint32_t *out) {
    char name[256];
    *out = 0;
    if (pointer.bytes == 0 || pointer.data[0] != '#')
        return rn_hint(rn_fail(RN_UNSUPPORTED, "the schema refers to '%.*s'",
                               (int)rn_min_u64(pointer.bytes, 60), pointer.data),
                       "only references into the schema itself (\"#/$defs/...\") are followed");
    while (*out < c->text.bytes && strchr(" \t\r\n", c->text.data[*out]))
        ++*out;
    for (size_t i = 1; i < pointer.bytes;) {
        size_t bytes = 0;
        for (i++; i < pointer.bytes && pointer.data[i] != '/' && bytes < sizeof name; i++) {
            bool escape = pointer.data[i] == '~' && i + 1 < pointer.bytes;
            if (escape) i++;
            name[bytes++] = !escape ? pointer.data[i] : pointer.data[i] == '1' ? '/' : '~';
        }
        RN_TRY(find_member(c, out, (rn_str){name, bytes}));
    }
    return RN_OK;
}

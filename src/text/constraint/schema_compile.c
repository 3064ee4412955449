// schema_compile.c — a JSON schema becomes rules.
//
// A schema is read where it stands: each object of it is walked once for its keywords, whose values
// are compiled in turn. What a reference names is found by walking from the schema's beginning, and
// compiled once: rules remember where they came from, so references may go round in circles.
//
// A keyword either is obeyed, or says nothing about the text (titles, examples), or is refused by
// name: nothing that the schema demands is passed over in silence. Unknown keywords say nothing, as
// JSON Schema has it.
#include "text/constraint/json_rules.h"

#include "base/checked.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/str.h"
#include "io/json_read.h"
#include "memory/account.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CALLS = 128, MOST_REFERENCES = 512, RULES_AT_LEAST = 32 };

typedef enum keyword {
    TYPE,
    ENUM,
    CONST,
    REF,
    ANY_OF,
    ONE_OF,
    ALL_OF,
    PROPERTIES,
    REQUIRED,
    ADDITIONAL,
    ITEMS,
    PREFIX_ITEMS,
    MIN_ITEMS,
    MAX_ITEMS,
    MIN_LENGTH,
    MAX_LENGTH,
    MINIMUM,
    MAXIMUM,
    ABOVE,
    BELOW,
    FIRST_REFUSED
} keyword;

static const char *const keywords[] = {
    "type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf", "properties", "required",
    "additionalProperties", "items", "prefixItems", "minItems", "maxItems", "minLength",
    "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    // Refused:
    "pattern", "not", "if", "then", "else", "patternProperties", "propertyNames",
    "dependentSchemas", "dependentRequired", "unevaluatedProperties", "unevaluatedItems",
    "contains", "minContains", "maxContains", "uniqueItems", "multipleOf", "minProperties",
    "maxProperties", "$dynamicRef", "$recursiveRef", "additionalItems"};
enum { KEYWORD_COUNT = sizeof keywords / sizeof *keywords };

// A schema that is an object: where the values of its keywords stand; 0: it has none.
typedef struct demands {
    uint32_t at;
    uint32_t values[KEYWORD_COUNT];
} demands;

typedef struct compiler {
    rn_json_rules *out;
    rn_str text;
    uint32_t rules_most, list_most, properties_most, texts_most;
    char *bytes; // for names and literals
    size_t bytes_left;
    uint32_t calls, references;
} compiler;

// ---- what is wrong ------------------------------------------------------------------------------

static rn_status refuse(uint32_t at, rn_status status, const char *what) {
    return rn_fail(status, "the schema, at byte %u: %s", at, what);
}

static rn_status refuse_type(uint32_t at, keyword k, const char *wanted) {
    return rn_fail(RN_INVALID, "the schema, at byte %u: \"%s\" must be %s", at, keywords[k],
                   wanted);
}

// ---- reading ------------------------------------------------------------------------------------

static void read_from(const compiler *c, uint32_t at, rn_json_reader *out) {
    rn_str rest = {c->text.data + at, c->text.bytes - at};
    rn_json_reader_init(out, rest, RN_HOST_IO);
    out->base = at;
}

// The first item of the value at `at`. Texts are of `reader`, which the caller frees.
static rn_status open_value(const compiler *c, uint32_t at, rn_json_reader *reader,
                            rn_json_item *out) {
    read_from(c, at, reader);
    return rn_json_next(reader, out);
}

static rn_status read_number_at(const compiler *c, uint32_t at, keyword k, double *out) {
    rn_json_reader reader;
    rn_json_item item;
    char digits[64];
    rn_status s = open_value(c, at, &reader, &item);
    if (s == RN_OK && (item.kind != RN_JSON_NUMBER || item.text.bytes >= sizeof digits))
        s = refuse_type(at, k, "a number of at most 63 characters");
    if (s == RN_OK) {
        memcpy(digits, item.text.data, item.text.bytes);
        digits[item.text.bytes] = 0;
        *out = strtod(digits, NULL);
        if (!isfinite(*out)) s = refuse_type(at, k, "a finite number");
    }
    rn_json_reader_free(&reader);
    return s;
}

// Whole numbers; what is not given stays.
static rn_status read_count(const compiler *c, const demands *schema, keyword k, uint32_t *out) {
    double value = 0;
    if (!schema->values[k]) return RN_OK;
    RN_TRY(read_number_at(c, schema->values[k], k, &value));
    if (value < 0 || value != floor(value)) return refuse_type(schema->values[k], k, "0 or more");
    *out = value > 1 << 20 ? 1 << 20 : (uint32_t)value; // longer than any answer
    return RN_OK;
}

// A value in the reader has begun with `item`: reads to its end.
static rn_status skip_value(rn_json_reader *reader, const rn_json_item *first) {
    rn_json_item item = *first;
    int depth = 0;
    for (;;) {
        if (item.kind == RN_JSON_OBJECT || item.kind == RN_JSON_ARRAY) depth++;
        if (item.kind == RN_JSON_OBJECT_END || item.kind == RN_JSON_ARRAY_END) depth--;
        if (depth <= 0 && item.kind != RN_JSON_KEY) return RN_OK;
        RN_TRY(rn_json_next(reader, &item));
    }
}

static keyword find_keyword(rn_str name) {
    int k = 0;
    while (k < KEYWORD_COUNT && !rn_str_equal(name, rn_str_from(keywords[k])))
        k++;
    return (keyword)k;
}

// The keywords of an object whose '{' has been read.
static rn_status read_keywords(rn_json_reader *reader, demands *out) {
    rn_json_item item;
    for (;;) {
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) return RN_OK;
        int k = (int)find_keyword(item.text);
        RN_TRY(rn_json_next(reader, &item));
        if (k >= FIRST_REFUSED && k < KEYWORD_COUNT && item.kind != RN_JSON_FALSE)
            return rn_hint(rn_fail(RN_UNSUPPORTED,
                                   "the schema, at byte %u: \"%s\" is not supported", out->at,
                                   keywords[k]),
                           "leave it out, and check the answer for it");
        if (k < KEYWORD_COUNT) out->values[k] = (uint32_t)item.offset;
        RN_TRY(skip_value(reader, &item));
    }
}

// ---- parts of rules -----------------------------------------------------------------------------

static rn_status take_rule(compiler *c, uint32_t at, uint32_t *out) {
    if (c->out->rule_count == c->rules_most) return refuse(at, RN_INVALID, "too many parts");
    *out = c->out->rule_count++;
    c->out->rules[*out] = (rn_json_rule){
        .form = RN_FORM_NEVER, .rest = RN_NO_RULE, .most = RN_UNLIMITED, .source = at};
    return RN_OK;
}

// Rules of a list stand side by side, so they are reserved before any of them is compiled.
static rn_status take_list(compiler *c, uint32_t at, uint32_t count, uint32_t *out) {
    if (count > c->list_most - c->out->list_count)
        return refuse(at, RN_INVALID, "too many alternatives");
    *out = c->out->list_count;
    c->out->list_count += count;
    return RN_OK;
}

static rn_status keep_bytes(compiler *c, uint32_t at, rn_str text, rn_str *out) {
    if (text.bytes > c->bytes_left) return refuse(at, RN_INVALID, "too many names and values");
    if (text.bytes) memcpy(c->bytes, text.data, text.bytes);
    *out = (rn_str){c->bytes, text.bytes};
    c->bytes += text.bytes;
    c->bytes_left -= text.bytes;
    return RN_OK;
}

// As JSON writes it, with quotes.
static rn_status keep_string(compiler *c, uint32_t at, rn_str text, rn_str *out) {
    rn_buffer written;
    rn_json json;
    rn_buffer_init(&written, RN_HOST_IO, 6 * text.bytes + 16);
    rn_json_begin(&json, rn_buffer_sink(&written), false);
    rn_json_text(&json, NULL, text);
    rn_status s = rn_json_finish(&json);
    size_t bytes = written.bytes;
    while (bytes && written.data[bytes - 1] == '\n')
        bytes--;
    if (s == RN_OK) s = keep_bytes(c, at, (rn_str){written.data, bytes}, out);
    rn_buffer_free(&written);
    return s;
}

// A value without white space between its parts.
static rn_status keep_value(compiler *c, uint32_t at, rn_str *out) {
    rn_json_reader reader;
    rn_json_item item;
    char *begin = c->bytes;
    rn_status s = open_value(c, at, &reader, &item);
    if (s == RN_OK && item.kind == RN_JSON_STRING) {
        s = keep_string(c, at, item.text, out);
    } else if (s == RN_OK) {
        s = skip_value(&reader, &item);
        bool in_string = false, escaped = false;
        for (size_t i = 0; s == RN_OK && i < reader.at; i++) {
            char b = c->text.data[at + i];
            bool space = !in_string && (b == ' ' || b == '\t' || b == '\n' || b == '\r');
            rn_str kept;
            if (!space) s = keep_bytes(c, at, (rn_str){&b, 1}, &kept);
            if (b == '"' && !escaped) in_string = !in_string;
            escaped = in_string && b == '\\' && !escaped;
        }
        *out = (rn_str){begin, (size_t)(c->bytes - begin)};
    }
    rn_json_reader_free(&reader);
    return s;
}

static rn_status compile_at(compiler *c, uint32_t at, uint32_t *out);

// ---- literals -----------------------------------------------------------------------------------

static int compare_texts(const void *a, const void *b) {
    const rn_str *x = a, *y = b;
    size_t common = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(x->data, y->data, common);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

// A type's name; -1: none.
static int type_rule(rn_str name) {
    static const struct {
        const char *name;
        int rule;
    } types[] = {{"object", RN_RULE_ANY_OBJECT}, {"array", RN_RULE_ANY_ARRAY},
                 {"string", RN_RULE_STRING},     {"number", RN_RULE_NUMBER},
                 {"integer", RN_RULE_INTEGER},   {"boolean", RN_RULE_BOOLEAN},
                 {"null", RN_RULE_NULL}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (rn_str_equal(name, rn_str_from(types[i].name))) return types[i].rule;
    return -1;
}

// Which of the types a text of JSON has.
static uint32_t types_of_text(rn_str text) {
    uint8_t b = (uint8_t)text.data[0];
    if (b == '{') return 1u << RN_RULE_ANY_OBJECT;
    if (b == '[') return 1u << RN_RULE_ANY_ARRAY;
    if (b == '"') return 1u << RN_RULE_STRING;
    if (b == 't' || b == 'f') return 1u << RN_RULE_BOOLEAN;
    if (b == 'n') return 1u << RN_RULE_NULL;
    bool whole = true;
    for (size_t i = 0; i < text.bytes; i++)
        whole &= text.data[i] == '-' || (text.data[i] >= '0' && text.data[i] <= '9');
    return 1u << RN_RULE_NUMBER | (whole ? 1u << RN_RULE_INTEGER : 0);
}

static rn_status add_text(compiler *c, uint32_t rule, uint32_t at, uint32_t types) {
    rn_str text;
    RN_TRY(keep_value(c, at, &text));
    if (types && !(types & types_of_text(text))) return RN_OK; // "type" forbids it
    if (c->out->text_count == c->texts_most) return refuse(at, RN_INVALID, "too many values");
    c->out->texts[c->out->text_count++] = text;
    c->out->rules[rule].count++;
    return RN_OK;
}

static rn_status compile_enum(compiler *c, const demands *schema, uint32_t rule, uint32_t types) {
    rn_json_reader reader;
    rn_json_item item;
    uint32_t at = schema->values[ENUM];
    rn_status s = open_value(c, at, &reader, &item);
    if (s == RN_OK && item.kind != RN_JSON_ARRAY) s = refuse_type(at, ENUM, "a list");
    if (s == RN_OK) s = rn_json_next(&reader, &item);
    while (s == RN_OK && item.kind != RN_JSON_ARRAY_END) {
        s = add_text(c, rule, (uint32_t)item.offset, types);
        if (s == RN_OK) s = skip_value(&reader, &item);
        if (s == RN_OK) s = rn_json_next(&reader, &item);
    }
    rn_json_reader_free(&reader);
    return s;
}

static rn_status compile_literals(compiler *c, const demands *schema, uint32_t rule,
                                  uint32_t types) {
    rn_json_rule *r = &c->out->rules[rule];
    if (schema->values[ENUM] && schema->values[CONST])
        return refuse(schema->at, RN_UNSUPPORTED, "\"enum\" beside \"const\"");
    r->form = RN_FORM_LITERALS;
    r->first = c->out->text_count;
    RN_TRY(schema->values[CONST] ? add_text(c, rule, schema->values[CONST], types)
                                 : compile_enum(c, schema, rule, types));
    qsort(&c->out->texts[r->first], r->count, sizeof(rn_str), compare_texts);
    return RN_OK;
}

// ---- lists of schemas ---------------------------------------------------------------------------

static rn_status count_items(const compiler *c, uint32_t at, keyword k, uint32_t *out) {
    rn_json_reader reader;
    rn_json_item item;
    *out = 0;
    rn_status s = open_value(c, at, &reader, &item);
    if (s == RN_OK && item.kind != RN_JSON_ARRAY) s = refuse_type(at, k, "a list of schemas");
    if (s == RN_OK) s = rn_json_next(&reader, &item);
    while (s == RN_OK && item.kind != RN_JSON_ARRAY_END) {
        ++*out;
        s = skip_value(&reader, &item);
        if (s == RN_OK) s = rn_json_next(&reader, &item);
    }
    rn_json_reader_free(&reader);
    return s;
}

// The schemas of a list, side by side.
static rn_status compile_list(compiler *c, uint32_t at, keyword k, uint32_t *out_first,
                              uint32_t *out_count) {
    rn_json_reader reader;
    rn_json_item item;
    RN_TRY(count_items(c, at, k, out_count));
    RN_TRY(take_list(c, at, *out_count, out_first));
    read_from(c, at, &reader);
    rn_status s = rn_json_next(&reader, &item);
    for (uint32_t i = 0; s == RN_OK && i < *out_count; i++) {
        s = rn_json_next(&reader, &item);
        if (s == RN_OK) s = compile_at(c, (uint32_t)item.offset, &c->out->list[*out_first + i]);
        if (s == RN_OK) s = skip_value(&reader, &item);
    }
    rn_json_reader_free(&reader);
    return s;
}

// ---- objects ------------------------------------------------------------------------------------

static rn_status add_property(compiler *c, uint32_t at, rn_str name) {
    rn_str quoted;
    if (c->out->property_count == c->properties_most)
        return refuse(at, RN_INVALID, "too many properties");
    RN_TRY(keep_string(c, at, name, &quoted));
    c->out->properties[c->out->property_count++] =
        (rn_json_property){.name = {quoted.data + 1, quoted.bytes - 2}, .rule = RN_NO_RULE};
    return RN_OK;
}

// Two walks: the names, so that they stand side by side; then their schemas.
static rn_status compile_properties(compiler *c, const demands *schema, uint32_t rule, bool names) {
    rn_json_reader reader;
    rn_json_item item;
    uint32_t at = schema->values[PROPERTIES], i = c->out->rules[rule].first;
    rn_status s = open_value(c, at, &reader, &item);
    if (s == RN_OK && item.kind != RN_JSON_OBJECT) s = refuse_type(at, PROPERTIES, "an object");
    if (s == RN_OK) s = rn_json_next(&reader, &item);
    for (; s == RN_OK && item.kind != RN_JSON_OBJECT_END; i++) {
        if (names) s = add_property(c, (uint32_t)item.offset, item.text);
        if (s == RN_OK) s = rn_json_next(&reader, &item);
        if (s == RN_OK && !names)
            s = compile_at(c, (uint32_t)item.offset, &c->out->properties[i].rule);
        if (s == RN_OK) s = skip_value(&reader, &item);
        if (s == RN_OK) s = rn_json_next(&reader, &item);
    }
    rn_json_reader_free(&reader);
    return s;
}

// A name that is required but has no schema of its own gets one, behind the others: any value.
static rn_status require(compiler *c, uint32_t rule, uint32_t at, rn_str name) {
    rn_json_rule *r = &c->out->rules[rule];
    uint32_t before = c->out->property_count;
    RN_TRY(add_property(c, at, name));
    rn_json_property *added = &c->out->properties[before];
    for (uint32_t i = r->first; i < before; i++)
        if (rn_str_equal(c->out->properties[i].name, added->name)) {
            c->out->properties[i].required = true;
            c->out->property_count = before;
            return RN_OK;
        }
    added->required = true;
    added->rule = RN_RULE_ANY;
    return RN_OK;
}

static rn_status compile_required(compiler *c, const demands *schema, uint32_t rule) {
    rn_json_reader reader;
    rn_json_item item;
    uint32_t at = schema->values[REQUIRED];
    if (!at) return RN_OK;
    rn_status s = open_value(c, at, &reader, &item);
    if (s == RN_OK && item.kind != RN_JSON_ARRAY) s = refuse_type(at, REQUIRED, "a list of names");
    while (s == RN_OK) {
        s = rn_json_next(&reader, &item);
        if (s != RN_OK || item.kind == RN_JSON_ARRAY_END) break;
        s = item.kind == RN_JSON_STRING ? require(c, rule, (uint32_t)item.offset, item.text)
                                        : refuse_type(at, REQUIRED, "a list of names");
    }
    rn_json_reader_free(&reader);
    return s;
}

static rn_status sort_names(compiler *c, const rn_json_rule *r) {
    rn_json_property *p = &c->out->properties[r->first];
    for (uint32_t i = 0; i < r->count; i++) { // few, and mostly in some order: insertion
        uint32_t at = i;
        for (; at && compare_texts(&p[i].name, &p[p[at - 1].sorted].name) < 0; at--)
            p[at].sorted = p[at - 1].sorted;
        p[at].sorted = i;
    }
    for (uint32_t i = 1; i < r->count; i++)
        if (rn_str_equal(p[p[i].sorted].name, p[p[i - 1].sorted].name))
            return refuse(r->source, RN_INVALID, "a property is there twice");
    return RN_OK;
}

// Further properties: where the schema says so, or where none is named at all.
static rn_status compile_additional(compiler *c, const demands *schema, uint32_t rule) {
    rn_json_reader reader;
    rn_json_item item;
    uint32_t at = schema->values[ADDITIONAL], rest = RN_NO_RULE;
    if (!at) {
        c->out->rules[rule].rest = schema->values[PROPERTIES] ? RN_NO_RULE : RN_RULE_ANY;
        return RN_OK;
    }
    rn_status s = open_value(c, at, &reader, &item);
    if (s == RN_OK && item.kind != RN_JSON_FALSE) s = compile_at(c, at, &rest);
    c->out->rules[rule].rest = rest;
    rn_json_reader_free(&reader);
    return s;
}

static rn_status compile_object(compiler *c, const demands *schema, uint32_t rule) {
    rn_json_rule *r = &c->out->rules[rule];
    r->form = RN_FORM_OBJECT;
    r->first = c->out->property_count;
    if (schema->values[PROPERTIES]) RN_TRY(compile_properties(c, schema, rule, true));
    RN_TRY(compile_required(c, schema, rule));
    r->count = c->out->property_count - r->first;
    if (r->count > UINT16_MAX) return refuse(schema->at, RN_INVALID, "too many properties");
    RN_TRY(sort_names(c, r));
    if (schema->values[PROPERTIES]) RN_TRY(compile_properties(c, schema, rule, false));
    return compile_additional(c, schema, rule);
}

// ---- arrays, strings, numbers -------------------------------------------------------------------

static rn_status compile_array(compiler *c, const demands *schema, uint32_t rule) {
    rn_json_rule *r = &c->out->rules[rule];
    rn_json_reader reader;
    rn_json_item item = {0};
    uint32_t rest = RN_RULE_ANY;
    r->form = RN_FORM_ARRAY;
    r->least = 0;
    RN_TRY(read_count(c, schema, MIN_ITEMS, &r->least));
    RN_TRY(read_count(c, schema, MAX_ITEMS, &r->most));
    if (schema->values[PREFIX_ITEMS])
        RN_TRY(compile_list(c, schema->values[PREFIX_ITEMS], PREFIX_ITEMS, &r->first, &r->count));
    if (schema->values[ITEMS]) {
        rn_status s = open_value(c, schema->values[ITEMS], &reader, &item);
        rn_json_reader_free(&reader);
        RN_TRY(s);
        rest = RN_NO_RULE;
        if (item.kind != RN_JSON_FALSE) RN_TRY(compile_at(c, schema->values[ITEMS], &rest));
    }
    c->out->rules[rule].rest = rest;
    return RN_OK;
}

static rn_status compile_string(compiler *c, const demands *schema, uint32_t rule) {
    rn_json_rule *r = &c->out->rules[rule];
    r->form = RN_FORM_STRING;
    RN_TRY(read_count(c, schema, MIN_LENGTH, &r->least));
    return read_count(c, schema, MAX_LENGTH, &r->most);
}

// A limit, and the one that excludes its own value: the narrower counts.
static rn_status read_limit(const compiler *c, const demands *schema, keyword with, keyword without,
                            double sign, bool *out_has, bool *out_without, double *out) {
    double limit = 0;
    for (int i = 0; i < 2; i++) {
        keyword k = i ? without : with;
        if (!schema->values[k]) continue;
        RN_TRY(read_number_at(c, schema->values[k], k, &limit));
        if (*out_has && (sign * limit < sign * *out || (sign * limit == sign * *out && !i)))
            continue;
        *out_has = true;
        *out_without = i;
        *out = limit;
    }
    return RN_OK;
}

static rn_status compile_number(compiler *c, const demands *schema, uint32_t rule, bool whole) {
    rn_json_rule *r = &c->out->rules[rule];
    r->form = RN_FORM_NUMBER;
    r->whole = whole;
    RN_TRY(read_limit(c, schema, MINIMUM, ABOVE, 1, &r->has_low, &r->without_low, &r->low));
    RN_TRY(read_limit(c, schema, MAXIMUM, BELOW, -1, &r->has_high, &r->without_high, &r->high));
    if (!whole) return RN_OK;
    if (r->has_low) r->low = r->without_low ? floor(r->low) + 1 : ceil(r->low);
    if (r->has_high) r->high = r->without_high ? ceil(r->high) - 1 : floor(r->high);
    r->without_low = r->without_high = false;
    return RN_OK;
}

// ---- a schema -----------------------------------------------------------------------------------

static bool has_any(const demands *schema, keyword first, keyword last) {
    for (int k = first; k <= (int)last; k++)
        if (schema->values[k]) return true;
    return false;
}

// One type, with what the schema says of it.
static rn_status compile_type(compiler *c, const demands *schema, int type, uint32_t *out) {
    bool plain[RN_RULE_COUNT] = {[RN_RULE_ANY_OBJECT] = !has_any(schema, PROPERTIES, ADDITIONAL),
                                 [RN_RULE_ANY_ARRAY] = !has_any(schema, ITEMS, MAX_ITEMS),
                                 [RN_RULE_STRING] = !has_any(schema, MIN_LENGTH, MAX_LENGTH),
                                 [RN_RULE_NUMBER] = !has_any(schema, MINIMUM, BELOW),
                                 [RN_RULE_INTEGER] = !has_any(schema, MINIMUM, BELOW),
                                 [RN_RULE_BOOLEAN] = true,
                                 [RN_RULE_NULL] = true};
    *out = (uint32_t)type;
    if (plain[type]) return RN_OK;
    RN_TRY(take_rule(c, schema->at, out));
    switch (type) {
    case RN_RULE_ANY_OBJECT:
        return compile_object(c, schema, *out);
    case RN_RULE_ANY_ARRAY:
        return compile_array(c, schema, *out);
    case RN_RULE_STRING:
        return compile_string(c, schema, *out);
    default:
        return compile_number(c, schema, *out, type == RN_RULE_INTEGER);
    }
}

// The types as bits; 0: any. Where "type" is missing, keywords of objects and the like say which is
// meant: other types would be allowed, too, but nobody writes such a schema to get them.
static rn_status read_types(const compiler *c, const demands *schema, uint32_t *out) {
    rn_json_reader reader;
    rn_json_item item;
    uint32_t at = schema->values[TYPE];
    *out = 0;
    if (!at) {
        if (has_any(schema, PROPERTIES, ADDITIONAL)) *out |= 1u << RN_RULE_ANY_OBJECT;
        if (has_any(schema, ITEMS, MAX_ITEMS)) *out |= 1u << RN_RULE_ANY_ARRAY;
        if (has_any(schema, MIN_LENGTH, MAX_LENGTH)) *out |= 1u << RN_RULE_STRING;
        if (has_any(schema, MINIMUM, BELOW)) *out |= 1u << RN_RULE_NUMBER;
        return RN_OK;
    }
    rn_status s = open_value(c, at, &reader, &item);
    bool list = s == RN_OK && item.kind == RN_JSON_ARRAY;
    if (list) s = rn_json_next(&reader, &item);
    while (s == RN_OK && item.kind != RN_JSON_ARRAY_END) {
        int type = item.kind == RN_JSON_STRING ? type_rule(item.text) : -1;
        if (type < 0) {
            s = refuse_type(at, TYPE, "object, array, string, number, integer, boolean or null");
            break;
        }
        *out |= 1u << type;
        if (!list) break;
        s = rn_json_next(&reader, &item);
    }
    rn_json_reader_free(&reader);
    return s == RN_OK && !*out ? refuse_type(at, TYPE, "a type") : s;
}

static rn_status compile_types(compiler *c, const demands *schema, uint32_t types, uint32_t *out) {
    uint32_t count = 0, first = 0, k = 0;
    if (types & 1u << RN_RULE_NUMBER) types &= ~(1u << RN_RULE_INTEGER); // is among them
    for (int t = 0; t < RN_RULE_COUNT; t++)
        count += types >> t & 1;
    if (count == 0) {
        *out = RN_RULE_ANY;
        return RN_OK;
    }
    if (count > 1) {
        RN_TRY(take_rule(c, schema->at, out));
        RN_TRY(take_list(c, schema->at, count, &first));
        c->out->rules[*out].form = RN_FORM_ANY_OF;
        c->out->rules[*out].first = first;
        c->out->rules[*out].count = count;
    }
    for (int t = 0; t < RN_RULE_COUNT; t++) {
        if (!(types >> t & 1)) continue;
        uint32_t *place = count > 1 ? &c->out->list[first + k++] : out;
        RN_TRY(compile_type(c, schema, t, place));
    }
    return RN_OK;
}

static rn_status follow(compiler *c, const demands *schema, uint32_t *out);

static rn_status compile_alternatives(compiler *c, const demands *schema, keyword k,
                                      uint32_t *out) {
    uint32_t first, count;
    if (has_any(schema, PROPERTIES, BELOW) || has_any(schema, TYPE, REF))
        return rn_hint(rn_fail(RN_UNSUPPORTED,
                               "the schema, at byte %u: \"%s\" beside other demands", schema->at,
                               keywords[k]),
                       "write them into each of the alternatives");
    RN_TRY(take_rule(c, schema->at, out));
    RN_TRY(compile_list(c, schema->values[k], k, &first, &count));
    if (k == ALL_OF && count != 1)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "the schema, at byte %u: \"allOf\" of %u schemas",
                               schema->at, count),
                       "write one schema with the demands of all");
    rn_json_rule *r = &c->out->rules[*out];
    r->form = RN_FORM_ANY_OF;
    r->first = first;
    r->count = count;
    return RN_OK;
}

static rn_status compile_keywords(compiler *c, const demands *schema, uint32_t *out) {
    uint32_t types = 0;
    if (schema->values[REF]) return follow(c, schema, out);
    for (int k = ANY_OF; k <= ALL_OF; k++)
        if (schema->values[k]) return compile_alternatives(c, schema, (keyword)k, out);
    RN_TRY(read_types(c, schema, &types));
    if (!schema->values[ENUM] && !schema->values[CONST])
        return compile_types(c, schema, types, out);
    if (has_any(schema, PROPERTIES, BELOW))
        return refuse(schema->at, RN_UNSUPPORTED, "\"enum\" beside other demands");
    RN_TRY(take_rule(c, schema->at, out));
    return compile_literals(c, schema, *out, types);
}

static rn_status compile_object_at(compiler *c, uint32_t at, uint32_t *out) {
    rn_json_reader reader;
    rn_json_item item;
    demands found = {.at = at};
    rn_status s = open_value(c, at, &reader, &item);
    if (s == RN_OK && item.kind == RN_JSON_TRUE) {
        *out = RN_RULE_ANY;
    } else if (s == RN_OK && item.kind == RN_JSON_FALSE) {
        s = take_rule(c, at, out);
    } else if (s == RN_OK && item.kind == RN_JSON_OBJECT) {
        s = read_keywords(&reader, &found);
        rn_json_reader_free(&reader); // schemas within need it no more
        return s == RN_OK ? compile_keywords(c, &found, out) : s;
    } else if (s == RN_OK) {
        s = refuse(at, RN_INVALID, "a schema must be an object, true or false");
    }
    rn_json_reader_free(&reader);
    return s;
}

static rn_status compile_at(compiler *c, uint32_t at, uint32_t *out) {
    if (c->calls == MOST_CALLS) return refuse(at, RN_INVALID, "it is nested too deeply");
    c->calls++;
    rn_status s = compile_object_at(c, at, out);
    c->calls--;
    return s;
}

// ---- references ---------------------------------------------------------------------------------

// One step of a pointer, "~1" and "~0" being '/' and '~': in an object by name, in a list by
// number.
static rn_status find_member(const compiler *c, uint32_t *at, rn_str name) {
    rn_json_reader reader;
    rn_json_item item;
    char number[24];
    uint64_t index = 0;
    bool found = false;
    rn_status s = open_value(c, *at, &reader, &item);
    bool list = s == RN_OK && item.kind == RN_JSON_ARRAY;
    bool object = s == RN_OK && item.kind == RN_JSON_OBJECT;
    for (; s == RN_OK && (list || object) && !found; index++) {
        s = rn_json_next(&reader, &item);
        if (s != RN_OK || item.kind == RN_JSON_ARRAY_END || item.kind == RN_JSON_OBJECT_END) break;
        snprintf(number, sizeof number, "%llu", (unsigned long long)index);
        found = rn_str_equal(name, list ? rn_str_from(number) : item.text);
        if (object) s = rn_json_next(&reader, &item);
        if (s == RN_OK && found) *at = (uint32_t)item.offset;
        if (s == RN_OK && !found) s = skip_value(&reader, &item);
    }
    rn_json_reader_free(&reader);
    if (s == RN_OK && !found)
        s = rn_fail(RN_INVALID, "the schema refers to '%.*s', which is not there",
                    (int)rn_min_u64(name.bytes, 60), name.data);
    return s;
}

static rn_status find_target(const compiler *c, rn_str pointer, uint32_t *out) {
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

// A rule of its own that has the target as its only alternative: a circle of references then is a
// rule without a text, and no endless walk.
static rn_status follow(compiler *c, const demands *schema, uint32_t *out) {
    rn_json_reader reader;
    rn_json_item item;
    uint32_t target = 0, first = 0;
    if (has_any(schema, ENUM, CONST) || has_any(schema, ANY_OF, BELOW))
        return refuse(schema->at, RN_UNSUPPORTED, "\"$ref\" beside other demands");
    if (c->references++ == MOST_REFERENCES)
        return refuse(schema->at, RN_INVALID, "too many references");
    rn_status s = open_value(c, schema->values[REF], &reader, &item);
    if (s == RN_OK && item.kind != RN_JSON_STRING)
        s = refuse_type(schema->values[REF], REF, "a text");
    if (s == RN_OK) s = find_target(c, item.text, &target);
    rn_json_reader_free(&reader);
    RN_TRY(s);
    for (uint32_t i = RN_RULE_COUNT; i < c->out->rule_count; i++)
        if (c->out->rules[i].source == target) {
            *out = i;
            return RN_OK;
        }
    RN_TRY(take_rule(c, target, out)); // known from here on: what refers to it again finds it
    RN_TRY(take_list(c, schema->at, 1, &first));
    c->out->rules[*out].form = RN_FORM_ANY_OF;
    c->out->rules[*out].first = first;
    c->out->rules[*out].count = 1;
    return compile_at(c, target, &c->out->list[first]);
}

// ---- all of it ----------------------------------------------------------------------------------

static rn_status check(const compiler *c) {
    const rn_json_rule *root = &c->out->rules[c->out->root];
    if (root->levels <= RN_SCHEMA_LEVELS) return RN_OK;
    if (root->levels != RN_UNLIMITED)
        return rn_fail(RN_INVALID, "the schema needs %u levels of nesting, %d are possible",
                       root->levels, RN_SCHEMA_LEVELS);
    return rn_hint(rn_fail(RN_INVALID, "no JSON text satisfies the schema"),
                   "look for empty \"enum\" lists, limits that exclude each other, and required "
                   "properties that contain themselves");
}

// How much of each there can be: a part of a schema has at least so many characters.
static void count_parts(size_t bytes, compiler *c) {
    c->rules_most = (uint32_t)(bytes / 8 + RULES_AT_LEAST);
    c->list_most = (uint32_t)(bytes / 2 + RULES_AT_LEAST);
    c->properties_most = (uint32_t)(bytes / 3 + 4);
    c->texts_most = (uint32_t)(bytes / 2 + 8);
    c->bytes_left = 2 * bytes + 64;
}

size_t rn_json_rules_bytes(size_t schema_bytes) {
    compiler c = {0};
    count_parts(rn_min_u64(schema_bytes, RN_SCHEMA_BYTES), &c);
    return c.rules_most * sizeof(rn_json_rule) + c.list_most * sizeof(uint32_t) +
           c.properties_most * sizeof(rn_json_property) + c.texts_most * sizeof(rn_str) +
           c.bytes_left + 8 * 1024 + 8 * schema_bytes; // arena, strings on their way
}

static rn_status take_memory(compiler *c) {
    rn_json_rules *o = c->out;
    void *block;
    RN_TRY(rn_arena_array(&o->memory, c->rules_most, sizeof *o->rules, &block));
    o->rules = block;
    RN_TRY(rn_arena_array(&o->memory, c->list_most, sizeof *o->list, &block));
    o->list = block;
    RN_TRY(rn_arena_array(&o->memory, c->properties_most, sizeof *o->properties, &block));
    o->properties = block;
    RN_TRY(rn_arena_array(&o->memory, c->texts_most, sizeof *o->texts, &block));
    o->texts = block;
    RN_TRY(rn_arena_alloc(&o->memory, c->bytes_left, &block));
    c->bytes = block;
    return RN_OK;
}

static void add_fixed_rules(rn_json_rules *o) {
    static const rn_str words[] = {RN_STR("false"), RN_STR("true"), RN_STR("null")};
    static const rn_json_rule fixed[RN_RULE_COUNT] = {
        [RN_RULE_ANY] = {.form = RN_FORM_ANY_OF, .count = 6},
        [RN_RULE_ANY_OBJECT] = {.form = RN_FORM_OBJECT, .rest = RN_RULE_ANY},
        [RN_RULE_ANY_ARRAY] = {.form = RN_FORM_ARRAY, .rest = RN_RULE_ANY},
        [RN_RULE_STRING] = {.form = RN_FORM_STRING},
        [RN_RULE_NUMBER] = {.form = RN_FORM_NUMBER},
        [RN_RULE_INTEGER] = {.form = RN_FORM_NUMBER, .whole = true},
        [RN_RULE_BOOLEAN] = {.form = RN_FORM_LITERALS, .count = 2},
        [RN_RULE_NULL] = {.form = RN_FORM_LITERALS, .first = 2, .count = 1}};
    static const uint32_t any[] = {RN_RULE_ANY_OBJECT, RN_RULE_ANY_ARRAY, RN_RULE_STRING,
                                   RN_RULE_NUMBER,     RN_RULE_BOOLEAN,   RN_RULE_NULL};
    for (int i = 0; i < RN_RULE_COUNT; i++) {
        o->rules[i] = fixed[i];
        o->rules[i].most = RN_UNLIMITED;
        o->rules[i].source = UINT32_MAX;
    }
    memcpy(o->list, any, sizeof any);
    memcpy(o->texts, words, sizeof words);
    o->rule_count = RN_RULE_COUNT;
    o->list_count = 6;
    o->text_count = 3;
}

// Of SHA-256: nobody can write a schema that is taken for another's.
static uint64_t hash_text(rn_str text) {
    uint8_t digest[RN_SHA256_BYTES];
    rn_sha256 hash;
    uint64_t key;
    rn_sha256_begin(&hash);
    rn_sha256_add(&hash, text.data, text.bytes);
    rn_sha256_end(&hash, digest);
    memcpy(&key, digest, sizeof key);
    return key;
}

static rn_status compile(compiler *c) {
    uint32_t at = 0;
    RN_TRY(take_memory(c));
    add_fixed_rules(c->out);
    c->out->root = RN_RULE_ANY_OBJECT;
    while (at < c->text.bytes && strchr(" \t\r\n", c->text.data[at]))
        at++;
    if (at < c->text.bytes) RN_TRY(compile_at(c, at, &c->out->root));
    rn_json_rules_find_levels(c->out);
    return check(c);
}

rn_status rn_json_rules_compile(rn_str schema, rn_json_rules *out) {
    compiler c = {.out = out, .text = schema};
    *out = (rn_json_rules){.key = hash_text(schema)};
    rn_arena_init(&out->memory, RN_HOST_IO, 4096);
    if (schema.bytes > RN_SCHEMA_BYTES)
        return rn_fail(RN_INVALID, "the schema has %zu bytes: at most %zu", schema.bytes,
                       RN_SCHEMA_BYTES);
    count_parts(schema.bytes, &c);
    rn_status s = compile(&c);
    if (s != RN_OK) rn_json_rules_free(out);
    return s == RN_CORRUPT ? RN_INVALID : s; // a request's text, no file
}

void rn_json_rules_free(rn_json_rules *rules) {
    if (rules->memory.from) rn_arena_free_all(&rules->memory);
    *rules = (rn_json_rules){0};
}

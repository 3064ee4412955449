// schema_compile.c — a JSON schema becomes rules.
//
// A schema is read where it stands: each object of it is walked once for its keywords, whose values
// are compiled in turn. What a reference names is found by walking from the schema's beginning, and
// compiled once: rules remember where they came from, so references may go round in circles.
//
// A keyword either is obeyed, or says nothing about the text (titles, examples), or is refused by
// name: nothing that the schema demands is passed over in silence. Unknown keywords say nothing, as
// JSON Schema has it.
#include "text/constraint/schema_parts.h"

#include "base/checked.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/str.h"
#include "memory/account.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CALLS = 128, MOST_REFERENCES = 512 };

// ---- parts of rules -----------------------------------------------------------------------------

static rn_status take_rule(rn_schema_compiler *c, uint32_t at, uint32_t *out) {
    if (c->out->rule_count == c->rules_most)
        return rn_schema_refuse(at, RN_INVALID, "too many parts");
    *out = c->out->rule_count++;
    c->out->rules[*out] = (rn_json_rule){
        .form = RN_FORM_NEVER, .rest = RN_NO_RULE, .most = RN_UNLIMITED, .source = at};
    return RN_OK;
}

// Rules of a list stand side by side, so they are reserved before any of them is compiled.
static rn_status take_list(rn_schema_compiler *c, uint32_t at, uint32_t count, uint32_t *out) {
    if (count > c->list_most - c->out->list_count)
        return rn_schema_refuse(at, RN_INVALID, "too many alternatives");
    *out = c->out->list_count;
    c->out->list_count += count;
    return RN_OK;
}

static rn_status keep_bytes(rn_schema_compiler *c, uint32_t at, rn_str text, rn_str *out) {
    if (text.bytes > c->bytes_left)
        return rn_schema_refuse(at, RN_INVALID, "too many names and values");
    if (text.bytes) memcpy(c->bytes, text.data, text.bytes);
    *out = (rn_str){c->bytes, text.bytes};
    c->bytes += text.bytes;
    c->bytes_left -= text.bytes;
    return RN_OK;
}

// As JSON writes it, with quotes.
static rn_status keep_string(rn_schema_compiler *c, uint32_t at, rn_str text, rn_str *out) {
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
static rn_status keep_value(rn_schema_compiler *c, uint32_t at, rn_str *out) {
    rn_json_reader reader;
    rn_json_item item;
    char *begin = c->bytes;
    rn_status s = rn_schema_open(c, at, &reader, &item);
    if (s == RN_OK && item.kind == RN_JSON_STRING) {
        s = keep_string(c, at, item.text, out);
    } else if (s == RN_OK) {
        s = rn_json_skip_rest(&reader, &item);
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

static rn_status add_text(rn_schema_compiler *c, uint32_t rule, uint32_t at, uint32_t types) {
    rn_str text;
    RN_TRY(keep_value(c, at, &text));
    if (types && !(types & types_of_text(text))) return RN_OK; // "type" forbids it
    if (c->out->text_count == c->texts_most)
        return rn_schema_refuse(at, RN_INVALID, "too many values");
    c->out->texts[c->out->text_count++] = text;
    c->out->rules[rule].count++;
    return RN_OK;
}

static rn_status compile_enum(rn_schema_compiler *c, const rn_schema_demands *schema, uint32_t rule,
                              uint32_t types) {
    rn_json_reader reader;
    rn_json_item item;
    uint32_t at = schema->values[RN_KEY_ENUM];
    rn_status s = rn_schema_open(c, at, &reader, &item);
    if (s == RN_OK && item.kind != RN_JSON_ARRAY)
        s = rn_schema_refuse_type(at, RN_KEY_ENUM, "a list");
    if (s == RN_OK) s = rn_json_next(&reader, &item);
    while (s == RN_OK && item.kind != RN_JSON_ARRAY_END) {
        s = add_text(c, rule, (uint32_t)item.offset, types);
        if (s == RN_OK) s = rn_json_skip_rest(&reader, &item);
        if (s == RN_OK) s = rn_json_next(&reader, &item);
    }
    rn_json_reader_free(&reader);
    return s;
}

static rn_status compile_literals(rn_schema_compiler *c, const rn_schema_demands *schema,
                                  uint32_t rule, uint32_t types) {
    rn_json_rule *r = &c->out->rules[rule];
    if (schema->values[RN_KEY_ENUM] && schema->values[RN_KEY_CONST])
        return rn_schema_refuse(schema->at, RN_UNSUPPORTED, "\"enum\" beside \"const\"");
    r->form = RN_FORM_LITERALS;
    r->first = c->out->text_count;
    RN_TRY(schema->values[RN_KEY_CONST] ? add_text(c, rule, schema->values[RN_KEY_CONST], types)
                                        : compile_enum(c, schema, rule, types));
    qsort(&c->out->texts[r->first], r->count, sizeof(rn_str), compare_texts);
    return RN_OK;
}

// ---- lists of schemas ---------------------------------------------------------------------------

static rn_status count_items(const rn_schema_compiler *c, uint32_t at, rn_schema_key k,
                             uint32_t *out) {
    rn_json_reader reader;
    rn_json_item item;
    *out = 0;
    rn_status s = rn_schema_open(c, at, &reader, &item);
    if (s == RN_OK && item.kind != RN_JSON_ARRAY)
        s = rn_schema_refuse_type(at, k, "a list of schemas");
    if (s == RN_OK) s = rn_json_next(&reader, &item);
    while (s == RN_OK && item.kind != RN_JSON_ARRAY_END) {
        ++*out;
        s = rn_json_skip_rest(&reader, &item);
        if (s == RN_OK) s = rn_json_next(&reader, &item);
    }
    rn_json_reader_free(&reader);
    return s;
}

// The schemas of a list, side by side.
static rn_status compile_list(rn_schema_compiler *c, uint32_t at, rn_schema_key k,
                              uint32_t *out_first, uint32_t *out_count) {
    rn_json_reader reader;
    rn_json_item item;
    RN_TRY(count_items(c, at, k, out_count));
    RN_TRY(take_list(c, at, *out_count, out_first));
    rn_schema_read_from(c, at, &reader);
    rn_status s = rn_json_next(&reader, &item);
    for (uint32_t i = 0; s == RN_OK && i < *out_count; i++) {
        s = rn_json_next(&reader, &item);
        if (s == RN_OK)
            s = rn_schema_compile_at(c, (uint32_t)item.offset, &c->out->list[*out_first + i]);
        if (s == RN_OK) s = rn_json_skip_rest(&reader, &item);
    }
    rn_json_reader_free(&reader);
    return s;
}

// ---- objects ------------------------------------------------------------------------------------

static rn_status add_property(rn_schema_compiler *c, uint32_t at, rn_str name) {
    rn_str quoted;
    if (c->out->property_count == c->properties_most)
        return rn_schema_refuse(at, RN_INVALID, "too many properties");
    RN_TRY(keep_string(c, at, name, &quoted));
    c->out->properties[c->out->property_count++] =
        (rn_json_property){.name = {quoted.data + 1, quoted.bytes - 2}, .rule = RN_NO_RULE};
    return RN_OK;
}

// Two walks: the names, so that they stand side by side; then their schemas.
static rn_status compile_properties(rn_schema_compiler *c, const rn_schema_demands *schema,
                                    uint32_t rule, bool names) {
    rn_json_reader reader;
    rn_json_item item;
    uint32_t at = schema->values[RN_KEY_PROPERTIES], i = c->out->rules[rule].first;
    rn_status s = rn_schema_open(c, at, &reader, &item);
    if (s == RN_OK && item.kind != RN_JSON_OBJECT)
        s = rn_schema_refuse_type(at, RN_KEY_PROPERTIES, "an object");
    if (s == RN_OK) s = rn_json_next(&reader, &item);
    for (; s == RN_OK && item.kind != RN_JSON_OBJECT_END; i++) {
        if (names) s = add_property(c, (uint32_t)item.offset, item.text);
        if (s == RN_OK) s = rn_json_next(&reader, &item);
        if (s == RN_OK && !names)
            s = rn_schema_compile_at(c, (uint32_t)item.offset, &c->out->properties[i].rule);
        if (s == RN_OK) s = rn_json_skip_rest(&reader, &item);
        if (s == RN_OK) s = rn_json_next(&reader, &item);
    }
    rn_json_reader_free(&reader);
    return s;
}

// A name that is required but has no schema of its own stands behind the others.
static rn_status require(rn_schema_compiler *c, uint32_t rule, uint32_t at, rn_str name) {
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
    added->rule = RN_NO_RULE; // see compile_additional
    return RN_OK;
}

static rn_status compile_required(rn_schema_compiler *c, const rn_schema_demands *schema,
                                  uint32_t rule) {
    rn_json_reader reader;
    rn_json_item item;
    uint32_t at = schema->values[RN_KEY_REQUIRED];
    if (!at) return RN_OK;
    rn_status s = rn_schema_open(c, at, &reader, &item);
    if (s == RN_OK && item.kind != RN_JSON_ARRAY)
        s = rn_schema_refuse_type(at, RN_KEY_REQUIRED, "a list of names");
    while (s == RN_OK) {
        s = rn_json_next(&reader, &item);
        if (s != RN_OK || item.kind == RN_JSON_ARRAY_END) break;
        s = item.kind == RN_JSON_STRING
                ? require(c, rule, (uint32_t)item.offset, item.text)
                : rn_schema_refuse_type(at, RN_KEY_REQUIRED, "a list of names");
    }
    rn_json_reader_free(&reader);
    return s;
}

static rn_status sort_names(rn_schema_compiler *c, const rn_json_rule *r) {
    rn_json_property *p = &c->out->properties[r->first];
    for (uint32_t i = 0; i < r->count; i++) { // few, and mostly in some order: insertion
        uint32_t at = i;
        for (; at && compare_texts(&p[i].name, &p[p[at - 1].sorted].name) < 0; at--)
            p[at].sorted = p[at - 1].sorted;
        p[at].sorted = i;
    }
    for (uint32_t i = 1; i < r->count; i++)
        if (rn_str_equal(p[p[i].sorted].name, p[p[i - 1].sorted].name))
            return rn_schema_refuse(r->source, RN_INVALID, "a property is there twice");
    return RN_OK;
}

// What properties without a schema of their own may be. `rest`: none are allowed.
static rn_status fill_required(rn_schema_compiler *c, const rn_schema_demands *schema,
                               uint32_t rule, uint32_t rest) {
    const rn_json_rule *r = &c->out->rules[rule];
    uint32_t first = r->first, end = r->first + r->count, never = rest;
    for (uint32_t i = first; i < end; i++) {
        if (c->out->properties[i].rule != RN_NO_RULE) continue;
        if (never == RN_NO_RULE) RN_TRY(take_rule(c, schema->at, &never)); // of no text
        c->out->properties[i].rule = never;
    }
    return RN_OK;
}

// Further properties: where the schema says so, or where none is named at all.
static rn_status compile_additional(rn_schema_compiler *c, const rn_schema_demands *schema,
                                    uint32_t rule) {
    rn_json_reader reader;
    rn_json_item item;
    uint32_t at = schema->values[RN_KEY_ADDITIONAL], rest = RN_NO_RULE;
    if (!at) {
        c->out->rules[rule].rest = schema->values[RN_KEY_PROPERTIES] ? RN_NO_RULE : RN_RULE_ANY;
        return fill_required(c, schema, rule, RN_RULE_ANY);
    }
    rn_status s = rn_schema_open(c, at, &reader, &item);
    if (s == RN_OK && item.kind != RN_JSON_FALSE) s = rn_schema_compile_at(c, at, &rest);
    rn_json_reader_free(&reader);
    RN_TRY(s);
    c->out->rules[rule].rest = rest;
    c->out->rules[rule].closed = rest == RN_NO_RULE;
    return fill_required(c, schema, rule, rest);
}

static rn_status compile_object(rn_schema_compiler *c, const rn_schema_demands *schema,
                                uint32_t rule) {
    rn_json_rule *r = &c->out->rules[rule];
    r->form = RN_FORM_OBJECT;
    r->first = c->out->property_count;
    if (schema->values[RN_KEY_PROPERTIES]) RN_TRY(compile_properties(c, schema, rule, true));
    RN_TRY(compile_required(c, schema, rule));
    r->count = c->out->property_count - r->first;
    if (r->count > UINT16_MAX)
        return rn_schema_refuse(schema->at, RN_INVALID, "too many properties");
    RN_TRY(sort_names(c, r));
    if (schema->values[RN_KEY_PROPERTIES]) RN_TRY(compile_properties(c, schema, rule, false));
    return compile_additional(c, schema, rule);
}

// ---- arrays, strings, numbers -------------------------------------------------------------------

static rn_status compile_array(rn_schema_compiler *c, const rn_schema_demands *schema,
                               uint32_t rule) {
    rn_json_rule *r = &c->out->rules[rule];
    rn_json_reader reader;
    rn_json_item item = {0};
    uint32_t rest = RN_RULE_ANY;
    r->form = RN_FORM_ARRAY;
    r->least = 0;
    RN_TRY(rn_schema_count(c, schema, RN_KEY_MIN_ITEMS, &r->least));
    RN_TRY(rn_schema_count(c, schema, RN_KEY_MAX_ITEMS, &r->most));
    if (schema->values[RN_KEY_PREFIX_ITEMS])
        RN_TRY(compile_list(c, schema->values[RN_KEY_PREFIX_ITEMS], RN_KEY_PREFIX_ITEMS, &r->first,
                            &r->count));
    if (schema->values[RN_KEY_ITEMS]) {
        rn_status s = rn_schema_open(c, schema->values[RN_KEY_ITEMS], &reader, &item);
        rn_json_reader_free(&reader);
        RN_TRY(s);
        rest = RN_NO_RULE;
        if (item.kind != RN_JSON_FALSE)
            RN_TRY(rn_schema_compile_at(c, schema->values[RN_KEY_ITEMS], &rest));
    }
    c->out->rules[rule].rest = rest;
    return RN_OK;
}

static rn_status compile_string(rn_schema_compiler *c, const rn_schema_demands *schema,
                                uint32_t rule) {
    rn_json_rule *r = &c->out->rules[rule];
    r->form = RN_FORM_STRING;
    RN_TRY(rn_schema_count(c, schema, RN_KEY_MIN_LENGTH, &r->least));
    return rn_schema_count(c, schema, RN_KEY_MAX_LENGTH, &r->most);
}

// A limit, and the one that excludes its own value: the narrower counts.
static rn_status read_limit(const rn_schema_compiler *c, const rn_schema_demands *schema,
                            rn_schema_key with, rn_schema_key without, double sign, bool *out_has,
                            bool *out_without, double *out) {
    double limit = 0;
    for (int i = 0; i < 2; i++) {
        rn_schema_key k = i ? without : with;
        if (!schema->values[k]) continue;
        RN_TRY(rn_schema_number(c, schema->values[k], k, &limit));
        if (*out_has && (sign * limit < sign * *out || (sign * limit == sign * *out && !i)))
            continue;
        *out_has = true;
        *out_without = i;
        *out = limit;
    }
    return RN_OK;
}

static rn_status compile_number(rn_schema_compiler *c, const rn_schema_demands *schema,
                                uint32_t rule, bool whole) {
    rn_json_rule *r = &c->out->rules[rule];
    r->form = RN_FORM_NUMBER;
    r->whole = whole;
    RN_TRY(read_limit(c, schema, RN_KEY_MINIMUM, RN_KEY_ABOVE, 1, &r->has_low, &r->without_low,
                      &r->low));
    RN_TRY(read_limit(c, schema, RN_KEY_MAXIMUM, RN_KEY_BELOW, -1, &r->has_high, &r->without_high,
                      &r->high));
    if (!whole) return RN_OK;
    if (r->has_low) r->low = r->without_low ? floor(r->low) + 1 : ceil(r->low);
    if (r->has_high) r->high = r->without_high ? ceil(r->high) - 1 : floor(r->high);
    r->without_low = r->without_high = false;
    return RN_OK;
}

// ---- a schema -----------------------------------------------------------------------------------

static bool has_any(const rn_schema_demands *schema, rn_schema_key first, rn_schema_key last) {
    for (int k = first; k <= (int)last; k++)
        if (schema->values[k]) return true;
    return false;
}

// One type, with what the schema says of it.
static rn_status compile_type(rn_schema_compiler *c, const rn_schema_demands *schema, int type,
                              uint32_t *out) {
    bool plain[RN_RULE_COUNT] = {
        [RN_RULE_ANY_OBJECT] = !has_any(schema, RN_KEY_PROPERTIES, RN_KEY_ADDITIONAL),
        [RN_RULE_ANY_ARRAY] = !has_any(schema, RN_KEY_ITEMS, RN_KEY_MAX_ITEMS),
        [RN_RULE_STRING] = !has_any(schema, RN_KEY_MIN_LENGTH, RN_KEY_MAX_LENGTH),
        [RN_RULE_NUMBER] = !has_any(schema, RN_KEY_MINIMUM, RN_KEY_BELOW),
        [RN_RULE_INTEGER] = !has_any(schema, RN_KEY_MINIMUM, RN_KEY_BELOW),
        [RN_RULE_BOOLEAN] = true,
        [RN_RULE_NULL] = true};
    *out = (uint32_t)type;
    if (plain[type]) return RN_OK;
    RN_TRY(take_rule(c, schema->at, out));
    c->out->rules[*out].guessed = !schema->values[RN_KEY_TYPE];
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
static rn_status read_types(const rn_schema_compiler *c, const rn_schema_demands *schema,
                            uint32_t *out) {
    rn_json_reader reader;
    rn_json_item item;
    uint32_t at = schema->values[RN_KEY_TYPE];
    *out = 0;
    if (!at) {
        if (has_any(schema, RN_KEY_PROPERTIES, RN_KEY_ADDITIONAL)) *out |= 1u << RN_RULE_ANY_OBJECT;
        if (has_any(schema, RN_KEY_ITEMS, RN_KEY_MAX_ITEMS)) *out |= 1u << RN_RULE_ANY_ARRAY;
        if (has_any(schema, RN_KEY_MIN_LENGTH, RN_KEY_MAX_LENGTH)) *out |= 1u << RN_RULE_STRING;
        if (has_any(schema, RN_KEY_MINIMUM, RN_KEY_BELOW)) *out |= 1u << RN_RULE_NUMBER;
        return RN_OK;
    }
    rn_status s = rn_schema_open(c, at, &reader, &item);
    bool list = s == RN_OK && item.kind == RN_JSON_ARRAY;
    if (list) s = rn_json_next(&reader, &item);
    while (s == RN_OK && item.kind != RN_JSON_ARRAY_END) {
        int type = item.kind == RN_JSON_STRING ? type_rule(item.text) : -1;
        if (type < 0) {
            s = rn_schema_refuse_type(at, RN_KEY_TYPE,
                                      "object, array, string, number, integer, boolean or null");
            break;
        }
        *out |= 1u << type;
        if (!list) break;
        s = rn_json_next(&reader, &item);
    }
    rn_json_reader_free(&reader);
    return s == RN_OK && !*out ? rn_schema_refuse_type(at, RN_KEY_TYPE, "a type") : s;
}

static rn_status compile_types(rn_schema_compiler *c, const rn_schema_demands *schema,
                               uint32_t types, uint32_t *out) {
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

static rn_status follow(rn_schema_compiler *c, const rn_schema_demands *schema, uint32_t *out);

static rn_status compile_alternatives(rn_schema_compiler *c, const rn_schema_demands *schema,
                                      rn_schema_key k, uint32_t *out) {
    uint32_t first, count;
    if (has_any(schema, RN_KEY_PROPERTIES, RN_KEY_BELOW) ||
        has_any(schema, RN_KEY_TYPE, RN_KEY_REF))
        return rn_hint(rn_fail(RN_UNSUPPORTED,
                               "the schema, at byte %u: \"%s\" beside other demands", schema->at,
                               rn_schema_key_name(k)),
                       "write them into each of the alternatives");
    RN_TRY(take_rule(c, schema->at, out));
    RN_TRY(compile_list(c, schema->values[k], k, &first, &count));
    if (k == RN_KEY_ALL_OF && count != 1)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "the schema, at byte %u: \"allOf\" of %u schemas",
                               schema->at, count),
                       "write one schema with the demands of all");
    rn_json_rule *r = &c->out->rules[*out];
    r->form = RN_FORM_ANY_OF;
    r->first = first;
    r->count = count;
    r->exclusive = k == RN_KEY_ONE_OF;
    return RN_OK;
}

static rn_status compile_keywords(rn_schema_compiler *c, const rn_schema_demands *schema,
                                  uint32_t *out) {
    uint32_t types = 0;
    if (schema->values[RN_KEY_REF]) return follow(c, schema, out);
    for (int k = RN_KEY_ANY_OF; k <= RN_KEY_ALL_OF; k++)
        if (schema->values[k]) return compile_alternatives(c, schema, (rn_schema_key)k, out);
    RN_TRY(read_types(c, schema, &types));
    if (!schema->values[RN_KEY_ENUM] && !schema->values[RN_KEY_CONST])
        return compile_types(c, schema, types, out);
    if (has_any(schema, RN_KEY_PROPERTIES, RN_KEY_BELOW))
        return rn_schema_refuse(schema->at, RN_UNSUPPORTED, "\"enum\" beside other demands");
    RN_TRY(take_rule(c, schema->at, out));
    return compile_literals(c, schema, *out, types);
}

static rn_status compile_object_at(rn_schema_compiler *c, uint32_t at, uint32_t *out) {
    rn_json_reader reader;
    rn_json_item item;
    rn_schema_demands found = {.at = at};
    rn_status s = rn_schema_open(c, at, &reader, &item);
    if (s == RN_OK && item.kind == RN_JSON_TRUE) {
        *out = RN_RULE_ANY;
    } else if (s == RN_OK && item.kind == RN_JSON_FALSE) {
        s = take_rule(c, at, out);
    } else if (s == RN_OK && item.kind == RN_JSON_OBJECT) {
        s = rn_schema_read_keywords(&reader, &found);
        rn_json_reader_free(&reader); // schemas within need it no more
        return s == RN_OK ? compile_keywords(c, &found, out) : s;
    } else if (s == RN_OK) {
        s = rn_schema_refuse(at, RN_INVALID, "a schema must be an object, true or false");
    }
    rn_json_reader_free(&reader);
    return s;
}

rn_status rn_schema_compile_at(rn_schema_compiler *c, uint32_t at, uint32_t *out) {
    if (c->calls == MOST_CALLS) return rn_schema_refuse(at, RN_INVALID, "it is nested too deeply");
    c->calls++;
    rn_status s = compile_object_at(c, at, out);
    c->calls--;
    return s;
}

// ---- references ---------------------------------------------------------------------------------

// A rule of its own that has the target as its only alternative: a circle of references then is a
// rule without a text, and no endless walk.
static rn_status follow(rn_schema_compiler *c, const rn_schema_demands *schema, uint32_t *out) {
    rn_json_reader reader;
    rn_json_item item;
    uint32_t target = 0, first = 0;
    if (has_any(schema, RN_KEY_ENUM, RN_KEY_CONST) || has_any(schema, RN_KEY_ANY_OF, RN_KEY_BELOW))
        return rn_schema_refuse(schema->at, RN_UNSUPPORTED, "\"$ref\" beside other demands");
    if (c->references++ == MOST_REFERENCES)
        return rn_schema_refuse(schema->at, RN_INVALID, "too many references");
    rn_status s = rn_schema_open(c, schema->values[RN_KEY_REF], &reader, &item);
    if (s == RN_OK && item.kind != RN_JSON_STRING)
        s = rn_schema_refuse_type(schema->values[RN_KEY_REF], RN_KEY_REF, "a text");
    if (s == RN_OK) s = rn_schema_find(c, item.text, &target);
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
    return rn_schema_compile_at(c, target, &c->out->list[first]);
}

// json_rules.c — the memory of rules, those that are always there, and what must hold of all.
#include "text/constraint/schema_parts.h"

#include "base/checked.h"
#include "base/sha256.h"
#include "base/str.h"
#include "memory/account.h"

#include <string.h>

enum { RULES_AT_LEAST = 32 };

static rn_status check(const rn_schema_compiler *c) {
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
static void count_parts(size_t bytes, rn_schema_compiler *c) {
    c->rules_most = (uint32_t)(bytes / 8 + RULES_AT_LEAST);
    c->list_most = (uint32_t)(bytes / 2 + RULES_AT_LEAST);
    c->properties_most = (uint32_t)(bytes / 3 + 4);
    c->texts_most = (uint32_t)(bytes / 2 + 8);
    c->bytes_left = 2 * bytes + 64;
}

size_t rn_json_rules_bytes(size_t schema_bytes) {
    rn_schema_compiler c = {0};
    count_parts(rn_min_u64(schema_bytes, RN_SCHEMA_BYTES), &c);
    return c.rules_most * sizeof(rn_json_rule) + c.list_most * sizeof(uint32_t) +
           c.properties_most * sizeof(rn_json_property) + c.texts_most * sizeof(rn_str) +
           c.bytes_left + 8 * 1024 + 8 * schema_bytes; // arena, strings on their way
}

static rn_status take_memory(rn_schema_compiler *c) {
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

static rn_status compile(rn_schema_compiler *c) {
    uint32_t at = 0;
    RN_TRY(take_memory(c));
    add_fixed_rules(c->out);
    c->out->root = RN_RULE_ANY_OBJECT;
    while (at < c->text.bytes && strchr(" \t\r\n", c->text.data[at]))
        at++;
    if (at < c->text.bytes) RN_TRY(rn_schema_compile_at(c, at, &c->out->root));
    rn_json_rules_find_levels(c->out);
    RN_TRY(check(c));
    return rn_schema_check_exclusive(c->out);
}

rn_status rn_json_rules_compile(rn_str schema, rn_json_rules *out) {
    rn_schema_compiler c = {.out = out, .text = schema};
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

// json_rules.h — which JSON texts are allowed: a schema as rules that a machine can walk.
//
//     {"type": "object", "properties": {"name": {"type": "string"}, "age": {...}}, "required": ...}
//
//     rule 9  OBJECT   properties: name -> rule 3 (required), age -> rule 10     rest: none
//     rule 3  STRING   0 .. any number of characters
//     rule 10 NUMBER   whole, 0 .. 150
//
// The texts are a part of what the schema allows, never more: properties come in the schema's
// order, others than those named only where "additionalProperties" says so (or none is named),
// numbers have at most 15 digits, white space is a blank, or a line break and its indentation.
#ifndef RN_TEXT_JSON_RULES_H
#define RN_TEXT_JSON_RULES_H

#include "base/arena.h"

#include <ration/text.h>

#define RN_NO_RULE   UINT32_MAX
#define RN_UNLIMITED UINT32_MAX

typedef enum rn_json_form {
    RN_FORM_NEVER, // no text at all
    RN_FORM_ANY_OF,
    RN_FORM_OBJECT,
    RN_FORM_ARRAY,
    RN_FORM_STRING,
    RN_FORM_NUMBER,
    RN_FORM_LITERALS // true, null, the values of an "enum", as they are written
} rn_json_form;

// Rules that are always there.
enum {
    RN_RULE_ANY,
    RN_RULE_ANY_OBJECT,
    RN_RULE_ANY_ARRAY,
    RN_RULE_STRING,
    RN_RULE_NUMBER,
    RN_RULE_INTEGER,
    RN_RULE_BOOLEAN,
    RN_RULE_NULL,
    RN_RULE_COUNT
};

typedef struct rn_json_rule {
    rn_json_form form;
    uint32_t first, count; // ANY_OF, ARRAY (its first items): of `list`; OBJECT: of `properties`;
                           // LITERALS: of `texts`, sorted
    uint32_t rest;         // OBJECT: rule of further properties; ARRAY: of further items; or none
    uint32_t least, most;  // ARRAY: items; STRING: characters; most may be RN_UNLIMITED
    bool whole;            // NUMBER: without a fraction
    bool has_low, has_high, without_low, without_high; // limits, and whether they are excluded
    double low, high;
    bool closed;     // OBJECT: the schema forbids further properties
    bool guessed;    // the schema does not say the type: it allows texts of others, too
    bool exclusive;  // ANY_OF: of a text only one may be true ("oneOf")
    uint32_t levels; // of nesting that its flattest text has; RN_UNLIMITED: there is no text
    uint32_t source; // where it stands in the schema, for references
} rn_json_rule;

typedef struct rn_json_property {
    rn_str name; // as it is written between quotes, with escapes
    uint32_t rule;
    uint32_t sorted; // of its object's names in order of bytes the i-th is that of property
                     // properties[first + i].sorted
    bool required;
} rn_json_property;

typedef struct rn_json_rules {
    rn_json_rule *rules; // (rule_count)
    uint32_t *list;      // (list_count): rules
    rn_json_property *properties;
    rn_str *texts;
    uint32_t rule_count, list_count, property_count, text_count;
    uint32_t root;
    uint64_t key; // of the schema's text: equal schemas have equal keys
    rn_arena memory;
} rn_json_rules;

#define RN_SCHEMA_BYTES  ((size_t)64 << 10) // of a schema's text, at most
#define RN_SCHEMA_LEVELS 40                 // of nesting in what is written

// What compiling a schema of so many bytes takes, at most.
size_t rn_json_rules_bytes(size_t schema_bytes);
// An empty schema (no bytes): any object. RN_INVALID: not JSON, or no text satisfies it;
// RN_UNSUPPORTED: a keyword that is not known here would have to be obeyed. Both say where in the
// schema.
RN_MUST_USE rn_status rn_json_rules_compile(rn_str schema, rn_json_rules *out);
void rn_json_rules_free(rn_json_rules *rules);
// Fills in all `levels`; a part of compiling.
void rn_json_rules_find_levels(rn_json_rules *rules);

#endif

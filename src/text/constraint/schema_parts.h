// schema_parts.h — a JSON schema's text, and the rules that it becomes while they are made.
#ifndef RN_TEXT_SCHEMA_PARTS_H
#define RN_TEXT_SCHEMA_PARTS_H

#include "io/json_read.h"
#include "text/constraint/json_rules.h"

// Those that are obeyed; those from RN_KEY_FIRST_REFUSED on are not.
typedef enum rn_schema_key {
    RN_KEY_TYPE,
    RN_KEY_ENUM,
    RN_KEY_CONST,
    RN_KEY_REF,
    RN_KEY_ANY_OF,
    RN_KEY_ONE_OF,
    RN_KEY_ALL_OF,
    RN_KEY_PROPERTIES,
    RN_KEY_REQUIRED,
    RN_KEY_ADDITIONAL,
    RN_KEY_ITEMS,
    RN_KEY_PREFIX_ITEMS,
    RN_KEY_MIN_ITEMS,
    RN_KEY_MAX_ITEMS,
    RN_KEY_MIN_LENGTH,
    RN_KEY_MAX_LENGTH,
    RN_KEY_MINIMUM,
    RN_KEY_MAXIMUM,
    RN_KEY_ABOVE,
    RN_KEY_BELOW,
    RN_KEY_FIRST_REFUSED,
    RN_KEY_COUNT = RN_KEY_FIRST_REFUSED + 21
} rn_schema_key;
const char *rn_schema_key_name(rn_schema_key key);

// A schema that is an object: where the values of its keywords stand; 0: it has none.
typedef struct rn_schema_demands {
    uint32_t at;
    uint32_t values[RN_KEY_COUNT];
} rn_schema_demands;

typedef struct rn_schema_compiler {
    rn_json_rules *out;
    rn_str text;
    uint32_t rules_most, list_most, properties_most, texts_most;
    char *bytes; // for names and literals
    size_t bytes_left;
    uint32_t calls, references;
} rn_schema_compiler;

// "the schema, at byte 12: WHAT", "... "minItems" must be WANTED".
rn_status rn_schema_refuse(uint32_t at, rn_status status, const char *what);
rn_status rn_schema_refuse_type(uint32_t at, rn_schema_key key, const char *wanted);

// A reader of the text from there on; and the first item of the value there. Texts are of `reader`,
// which the caller frees (also where it fails).
void rn_schema_read_from(const rn_schema_compiler *c, uint32_t at, rn_json_reader *out);
RN_MUST_USE rn_status rn_schema_open(const rn_schema_compiler *c, uint32_t at,
                                     rn_json_reader *reader, rn_json_item *out);
RN_MUST_USE rn_status rn_schema_number(const rn_schema_compiler *c, uint32_t at, rn_schema_key key,
                                       double *out);
// Whole numbers; what is not given stays.
RN_MUST_USE rn_status rn_schema_count(const rn_schema_compiler *c, const rn_schema_demands *schema,
                                      rn_schema_key key, uint32_t *out);
// The keywords of an object whose '{' has been read.
RN_MUST_USE rn_status rn_schema_read_keywords(rn_json_reader *reader, rn_schema_demands *out);
// The schema there becomes a rule.
RN_MUST_USE rn_status rn_schema_compile_at(rn_schema_compiler *c, uint32_t at, uint32_t *out);
// A text that is written by one alternative of a "oneOf" must satisfy no other: RN_UNSUPPORTED
// where that cannot be shown.
RN_MUST_USE rn_status rn_schema_check_exclusive(const rn_json_rules *rules);
// Where "#/$defs/name" points to.
RN_MUST_USE rn_status rn_schema_find(const rn_schema_compiler *c, rn_str pointer, uint32_t *out);

#endif

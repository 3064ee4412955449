// fields.h — a model's settings by name, wherever they stood.
//
//     rn_fields fields;
//     rn_fields_init(&fields, "config.json");
//     RN_TRY(rn_fields_read_json(&fields, text));   // {"rope_scaling": {"factor": 8}, "eos": [1,
//     2]} RN_TRY(rn_fields_need_u32(&fields, "hidden_size", &dim));
//     RN_TRY(rn_fields_number(&fields, "rope_scaling.factor", &factor)); // stays where it is
//     absent rn_fields_free(&fields);
//
// Objects and arrays are flattened: "rope_scaling.factor", "eos.1". What is null is absent. Every
// failure names the source and the field.
#ifndef RN_MODEL_FIELDS_H
#define RN_MODEL_FIELDS_H

#include <ration/checkpoint.h>

#include "base/arena.h"
#include "base/map.h"

typedef enum rn_field_kind {
    RN_FIELD_TEXT,
    RN_FIELD_NUMBER,
    RN_FIELD_BOOL,
    RN_FIELD_LIST // an array or an object
} rn_field_kind;

typedef struct rn_field {
    rn_field_kind kind;
    rn_str text;    // TEXT; terminated where it comes from JSON
    double number;  // NUMBER
    bool boolean;   // BOOL
    uint64_t count; // LIST: of its items
    uint64_t order; // it is the so many-th that was read
} rn_field;

typedef struct rn_fields {
    const char *source; // for messages; borrowed
    const char *within; // an object that names are looked for in, borrowed; NULL: the whole
    rn_arena memory;
    rn_map by_name; // name -> rn_field *
} rn_fields;

void rn_fields_init(rn_fields *fields, const char *source);
void rn_fields_free(rn_fields *fields);
// RN_CORRUPT with the offset where it is not JSON, not an object, or has a name twice.
RN_MUST_USE rn_status rn_fields_read_json(rn_fields *fields, rn_str text);
// The same from a file; RN_NOT_FOUND where there is none.
RN_MUST_USE rn_status rn_fields_read_file(rn_fields *fields, const char *path);
// The metadata; the checkpoint must outlive the fields. Of arrays the elements are listed where
// they are few, and numbers or flags.
RN_MUST_USE rn_status rn_fields_read_metadata(rn_fields *fields, const rn_checkpoint *checkpoint);

// NULL where it is absent or null.
const rn_field *rn_fields_find(const rn_fields *fields, const char *name);

// *out stays as it is where the field is absent; `need` makes that RN_CORRUPT. RN_CORRUPT also for
// another kind of value, a number that is not whole or too large, or not finite.
RN_MUST_USE rn_status rn_fields_u32(const rn_fields *fields, const char *name, uint32_t *out);
RN_MUST_USE rn_status rn_fields_need_u32(const rn_fields *fields, const char *name, uint32_t *out);
RN_MUST_USE rn_status rn_fields_number(const rn_fields *fields, const char *name, float *out);
RN_MUST_USE rn_status rn_fields_need_number(const rn_fields *fields, const char *name, float *out);
RN_MUST_USE rn_status rn_fields_bool(const rn_fields *fields, const char *name, bool *out);
RN_MUST_USE rn_status rn_fields_text(const rn_fields *fields, const char *name, rn_str *out);
RN_MUST_USE rn_status rn_fields_need_text(const rn_fields *fields, const char *name, rn_str *out);

#endif

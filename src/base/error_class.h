// error_class.h — how failures are classified, for those who know a runtime's texts; and what of it
// is not the API's.
//
// A back end's rows are in its descriptor (device/registry.h); below them are those of libraries,
// of the system and of our own statuses (error_class.c).
#ifndef RN_BASE_ERROR_CLASS_H
#define RN_BASE_ERROR_CLASS_H

#include <ration/error_class.h>

#include "base/json.h"
#include "base/str.h"

typedef struct rn_error_row rn_error_row;
struct rn_error_row {
    rn_error_class class;
    // What a message holds: alternatives separated by '|', in which '*' is any run of bytes.
    const char *texts;
    // ... or else whether a message tells of the row's number or its name; NULL: it does not.
    bool (*fits)(rn_str message, const rn_error_row *row);
    int code;
    const char *code_name;
};
#define RN_ERROR_TEXT(name, texts, meaning, hint)                                                  \
    { {name, meaning, hint}, texts, NULL, 0, NULL }

typedef struct rn_error_table {
    const rn_error_row *rows;
    size_t count;
} rn_error_table;

// The tables of back ends, in the order in which they are asked; NULL behind the last. Defined in
// device/registry.c: this layer knows no back end.
const rn_error_table *rn_error_table_at(size_t index);

// ---- reading messages ---------------------------------------------------------------------------

// Whether it holds one of the texts, as rn_error_row has them.
bool rn_message_holds(rn_str message, const char *texts);
// Goes on behind the next `piece`; false where there is none.
bool rn_message_go_behind(rn_str *message, rn_str piece);
// Takes a number off the front; false where there is none.
bool rn_message_take_number(rn_str *message, uint32_t *out);

// ---- as JSON
// -------------------------------------------------------------------------------------

// Fields of the object that is open: class, meaning, message, hint and, where the message tells,
// device_full (below).
void rn_error_json(const rn_error_info *error, rn_json *json);

// What the text says about an allocation that a core of a device had no room for:
//     TDRV:log_dev_mem Failed to allocate 64.000MB (usage: tensors) on ND 0:NC 1
typedef struct rn_device_full {
    uint64_t bytes;
    char usage[32]; // "tensors", "model code", "dma rings io", ...
    uint32_t device, core;
} rn_device_full;
// False where it is not such a text.
bool rn_device_full_read(rn_str text, rn_device_full *out);

#endif

// error_class.h — how failures are classified, for those who know a runtime's texts.
//
// A back end's rows are in its descriptor (device/registry.h); below them are those of libraries,
// of the system and of our own statuses (error_class.c).
#ifndef RN_BASE_ERROR_CLASS_H
#define RN_BASE_ERROR_CLASS_H

#include <ration/error_class.h>

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

#endif

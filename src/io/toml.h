// toml.h — reads TOML 1.0.0 (https://toml.io/en/v1.0.0) from untrusted bytes into a tree.
//
//     rn_toml *doc;
//     int64_t steps = 100;
//     RN_TRY(rn_toml_parse(text, &rn_system_allocator, &doc));
//     const rn_toml_value *value = rn_toml_find_path(rn_toml_root(doc), "train.steps");
//     rn_status s = value ? rn_toml_get_integer(value, &steps) : RN_OK;
//     rn_toml_free(doc);
//
// A document owns its values, their strings and a copy of its text: `text` may go once it is
// parsed. Values are borrowed and live as long as the document. Once parsed, a document does not
// change: any number of threads may read it. A value takes 112 bytes beside its text, so a hostile
// file can take many times its size: the allocator's budget is what bounds that.
#ifndef RN_IO_TOML_H
#define RN_IO_TOML_H

#include "base/alloc.h"

#include <ration/text.h>

#define RN_TOML_MAX_BYTES ((size_t)16 << 20)
// Every part of a dotted key or header, every item of an array and every [[table]] is one level
// deeper.
#define RN_TOML_MAX_DEPTH 64

typedef enum rn_toml_type {
    RN_TOML_STRING,
    RN_TOML_INTEGER,
    RN_TOML_FLOAT,
    RN_TOML_BOOL,
    RN_TOML_OFFSET_DATETIME, // 1979-05-27T07:32:00Z
    RN_TOML_LOCAL_DATETIME,  // 1979-05-27T07:32:00
    RN_TOML_LOCAL_DATE,      // 1979-05-27
    RN_TOML_LOCAL_TIME,      // 07:32:00
    RN_TOML_ARRAY,           // [1, 2], and what [[name]] makes
    RN_TOML_TABLE,
    RN_TOML_TYPE_COUNT
} rn_toml_type;

typedef struct rn_toml rn_toml;
typedef struct rn_toml_value rn_toml_value;

// The parts that the type does not have are 0.
typedef struct rn_toml_time {
    int year, month, day;     // 0..9999, 1..12, 1..31 as the month has
    int hour, minute, second; // 0..23, 0..59, 0..60 (a leap second)
    int nanosecond;           // further digits are cut off, not rounded
    int offset_minutes;       // east of UTC
} rn_toml_time;

// Where a value stands in the text: bytes [begin, end), which start at this line and column (both
// from 1, columns in characters). A table from a header has the place of that header, an array of
// tables that of its first header, a table made on the way to another (by a dotted key or a longer
// header) that of its name.
typedef struct rn_toml_place {
    size_t line, column, begin, end;
} rn_toml_place;

// RN_CORRUPT: not TOML; the message starts with "line L, column C: ". RN_UNSUPPORTED: more than
// RN_TOML_MAX_BYTES. RN_NO_MEMORY, or whatever the allocator refuses with. *out is NULL on failure;
// free it with rn_toml_free.
RN_MUST_USE rn_status rn_toml_parse(rn_str text, const rn_allocator *from, rn_toml **out);
// NULL-safe.
void rn_toml_free(rn_toml *doc);
// The table that holds everything; never NULL.
const rn_toml_value *rn_toml_root(const rn_toml *doc);
// The document's own copy of the text, that places count in.
rn_str rn_toml_text(const rn_toml *doc);

rn_toml_type rn_toml_type_of(const rn_toml_value *value);
// "integer", "local date" and so on.
const char *rn_toml_type_name(rn_toml_type type);
rn_toml_place rn_toml_place_of(const rn_toml_value *value);
// The name it has in its table, unquoted; empty for array items and the root.
rn_str rn_toml_key_of(const rn_toml_value *value);

// Entries of a table or items of an array; 0 for other values.
size_t rn_toml_count(const rn_toml_value *value);
// Entries in the order of their first mention, items in order. NULL at the end, and for values that
// hold none:
//     for (const rn_toml_value *v = rn_toml_first(table); v; v = rn_toml_next(v))
const rn_toml_value *rn_toml_first(const rn_toml_value *value);
const rn_toml_value *rn_toml_next(const rn_toml_value *value);
// The item at `index`, counted from the first each time; NULL past the end and for what is no
// array.
const rn_toml_value *rn_toml_at(const rn_toml_value *array, size_t index);
// The entry of that name; NULL where there is none and for what is no table.
const rn_toml_value *rn_toml_find(const rn_toml_value *table, rn_str key);
// Follows names with dots between ("train.lora.rank"); in an array a name is an index
// ("backend.0.name"). Names that hold a dot themselves need rn_toml_find. NULL where the path leads
// nowhere.
const rn_toml_value *rn_toml_find_path(const rn_toml_value *from, const char *path);

// Each gives the value, or RN_INVALID with a message that names the place, the key and both types.
// Strings are UTF-8, not terminated, and may hold NUL (from \u0000). Line ends in multi-line
// strings are "\n" whatever the file has.
RN_MUST_USE rn_status rn_toml_get_string(const rn_toml_value *value, rn_str *out);
RN_MUST_USE rn_status rn_toml_get_integer(const rn_toml_value *value, int64_t *out);
// Takes integers too. Too large for a double reads as infinity.
RN_MUST_USE rn_status rn_toml_get_float(const rn_toml_value *value, double *out);
RN_MUST_USE rn_status rn_toml_get_bool(const rn_toml_value *value, bool *out);
// Any of the four date and time types.
RN_MUST_USE rn_status rn_toml_get_time(const rn_toml_value *value, rn_toml_time *out);
// RN_OK where the value is of that type.
RN_MUST_USE rn_status rn_toml_expect(const rn_toml_value *value, rn_toml_type type);

#endif

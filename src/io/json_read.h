// json_read.h — reading JSON as a stream of items: no tree, so a hostile file cannot make one.
//
//     rn_json_reader reader;
//     rn_json_reader_init(&reader, text, allocator);
//     RN_TRY(rn_json_expect(&reader, RN_JSON_OBJECT, NULL));
//     RN_TRY(rn_json_next(&reader, &item)); // RN_JSON_KEY ... or RN_JSON_OBJECT_END
//
// RFC 8259 and nothing more: UTF-8 is checked, lone surrogates, control characters, leading zeros,
// trailing commas and trailing text are errors. Nesting is limited. Failures are RN_CORRUPT with
// the byte offset.
#ifndef RN_IO_JSON_READ_H
#define RN_IO_JSON_READ_H

#include "base/buffer.h"
#include "base/str.h"

#define RN_JSON_READ_DEPTH 64

typedef enum rn_json_kind {
    RN_JSON_OBJECT, // begins an object; its keys follow
    RN_JSON_OBJECT_END,
    RN_JSON_ARRAY,
    RN_JSON_ARRAY_END,
    RN_JSON_KEY,
    RN_JSON_STRING,
    RN_JSON_NUMBER,
    RN_JSON_TRUE,
    RN_JSON_FALSE,
    RN_JSON_NULL,
    RN_JSON_END // the text is finished
} rn_json_kind;

// `text` is a key's or string's value, or a number's digits. It holds until the next key or string
// is read.
typedef struct rn_json_item {
    rn_json_kind kind;
    rn_str text;
    uint64_t offset; // where it begins
} rn_json_item;

typedef struct rn_json_reader {
    rn_str text;
    size_t at;
    uint64_t base;       // of the text in its file: errors and items count from there; 0 after init
    rn_buffer unescaped; // of the last string that had escapes
    int depth;
    uint64_t arrays;  // bit d: level d is an array
    bool need_comma;  // an item stands before, at this level
    bool after_key;   // a value must follow
    bool done;        // the outermost value is complete
    bool just_opened; // '{' or '[' was the last item
} rn_json_reader;

void rn_json_reader_init(rn_json_reader *reader, rn_str text, const rn_allocator *from);
void rn_json_reader_free(rn_json_reader *reader);
RN_MUST_USE rn_status rn_json_next(rn_json_reader *reader, rn_json_item *out);
// The next item, which must be of this kind; *out may be NULL.
RN_MUST_USE rn_status rn_json_expect(rn_json_reader *reader, rn_json_kind kind, rn_json_item *out);
// Skips the value that comes next, however deep.
RN_MUST_USE rn_status rn_json_skip(rn_json_reader *reader);
// The same of a value whose first item has been read: the rest of it.
RN_MUST_USE rn_status rn_json_skip_rest(rn_json_reader *reader, const rn_json_item *first);
// A whole number 0 .. 2^64-1 without sign, point or exponent.
RN_MUST_USE rn_status rn_json_u64_of(const rn_json_item *item, uint64_t *out);
const char *rn_json_kind_name(rn_json_kind kind);

#endif

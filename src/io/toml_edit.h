// toml_edit.h — changes one value of a TOML file and leaves every other byte as it was.
//
//     rn_str path[] = {RN_STR("train"), RN_STR("steps")};
//     rn_toml_change change = {.path = path, .path_count = 2, .value = RN_STR("500")};
//     RN_TRY(rn_toml_set(text, &change, &rn_system_allocator, &edited, &edited_bytes));
//     ...
//     rn_free(&rn_system_allocator, edited, edited_bytes);
//
// Comments, blank lines, order and line ends stay. Functions here keep no state: any thread may
// call them.
#ifndef RN_IO_TOML_EDIT_H
#define RN_IO_TOML_EDIT_H

#include "io/toml.h"

typedef struct rn_toml_change {
    const rn_str *path; // (path_count) names from the root, unquoted
    size_t path_count;
    rn_str value;    // one value as TOML writes it: 500, "text" (see rn_toml_quote), [1, 2]
    bool make_array; // write a table that is missing as [[table]]
} rn_toml_change;

// Sets the value at the path:
//
// - A value that is there is replaced, also inside inline tables and behind dotted keys.
// - A name on the way that is an array of tables stands for all of its items: each is changed.
// - A missing key goes after the last line of its table, and after the comment lines that follow
//   without a blank line, unless these lead on to the next header. It is indented as the line
//   before it and ends as the file's first line ends. In an inline table it becomes the last entry;
//   beside dotted keys it is written as one.
// - A missing table goes to the end of the file, after a blank line; in an item of an array of
//   tables, to the end of that item.
//
// The result is parsed again and compared with the original before it is returned: exactly that
// value differs.
//
// RN_CORRUPT: `text` is not TOML. RN_INVALID: the path is empty or not UTF-8, or `value` is not one
// value. RN_UNSUPPORTED: the path leads through or to something that cannot be set this way (a
// table with lines of its own, a number that would need keys), or the result would be too large or
// too deep. *out_text (not terminated) is the caller's, freed with *out_bytes; NULL on failure.
RN_MUST_USE rn_status rn_toml_set(rn_str text, const rn_toml_change *change,
                                  const rn_allocator *from, char **out_text, size_t *out_bytes);

// `raw` as a string in double quotes. RN_INVALID where it is not UTF-8. *out_text as above.
RN_MUST_USE rn_status rn_toml_quote(rn_str raw, const rn_allocator *from, char **out_text,
                                    size_t *out_bytes);

#endif

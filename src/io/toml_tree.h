// toml_tree.h — the values of a document as the parser makes them and the editor reads them.
//
// Besides what a reader of the file wants to know, each table remembers how it was written, because
// TOML's rules on defining a table twice, and the place where a new key goes, depend on that.
#ifndef RN_IO_TOML_TREE_H
#define RN_IO_TOML_TREE_H

#include "base/arena.h"
#include "base/map.h"
#include "io/toml.h"

typedef enum rn_toml_form {
    RN_TOML_PLAIN,    // no table; an array has brackets
    RN_TOML_ROOT,     // the table of the lines before the first header
    RN_TOML_HEADER,   // [a.b] made b
    RN_TOML_ITEM,     // [[a.b]] made an item of b
    RN_TOML_ITEMS,    // the array b of such items
    RN_TOML_IMPLICIT, // [a.b] made a on the way; a header may still define it
    RN_TOML_DOTTED,   // a.b = 1 made a; no header may define it
    RN_TOML_INLINE,   // {...}: complete as it stands
} rn_toml_form;

// Finds entries of a large table by name.
typedef struct rn_toml_index {
    struct rn_toml_index *next; // in the document's list
    rn_map map;                 // name -> entry's address
} rn_toml_index;

struct rn_toml_value {
    uint8_t type; // rn_toml_type
    uint8_t form; // rn_toml_form
    uint8_t depth;
    uint32_t line, column, begin, end; // see rn_toml_place
    rn_str key;
    rn_toml_value *parent, *next; // parent is NULL for the root only
    union {
        rn_str string;
        int64_t integer;
        double number;
        bool boolean;
        rn_toml_time time;
        struct {
            rn_toml_value *first, *last;
            size_t count;
            rn_toml_index *index;        // NULL while the table is small
            rn_toml_value *next_section; // root, [header]s and [[header]]s in file order
            // The last entry written here, key to value; the header, or "{", or nothing, where
            // there is no entry yet.
            uint32_t last_begin, last_end;
        } items; // arrays and tables
    };
};

struct rn_toml {
    const rn_allocator *from;
    rn_arena arena; // holds the values, the strings and this struct's text
    rn_toml_index *indexes;
    rn_str text; // followed by a NUL
    rn_toml_value *root;
};

// Appends a new value to `parent` (a table or array; NULL makes a root). The caller has checked
// that the key is new and the depth allowed.
RN_MUST_USE rn_status rn_toml_add(rn_toml *doc, rn_toml_value *parent, rn_str key,
                                  rn_toml_type type, rn_toml_form form, rn_toml_value **out);

#endif

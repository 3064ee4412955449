// toml_editor.h — what the files of the TOML editor share.
#ifndef RN_IO_TOML_EDITOR_H
#define RN_IO_TOML_EDITOR_H

#include "base/buffer.h"
#include "io/toml_edit.h"
#include "io/toml_tree.h"

// Bytes [begin, end) of the original become `text`.
typedef struct rn_toml_patch {
    struct rn_toml_patch *next;
    size_t begin, end;
    rn_str text;
} rn_toml_patch;

typedef struct rn_toml_editor {
    const rn_toml_change *change;
    rn_toml *before;             // the original
    rn_toml *value;              // a document whose one entry is change->value
    rn_str text;                 // of `before`
    rn_arena arena;              // holds the patches
    rn_buffer draft;             // the patch being written
    rn_toml_patch *first, *last; // in file order
    size_t result_bytes;         // the text with all patches
} rn_toml_editor;

// The draft becomes a patch of [begin, end), and is empty again.
RN_MUST_USE rn_status rn_toml_patch_add(rn_toml_editor *e, size_t begin, size_t end);

// toml_insert.c: adds the patch that makes path[at] and the names after it in `table`, which has no
// path[at].
RN_MUST_USE rn_status rn_toml_insert(rn_toml_editor *e, const rn_toml_value *table, size_t at);

// toml_verify.c: whether `after` is `before` with `value` at the path, and else equal.
bool rn_toml_verify(const rn_toml_change *change, const rn_toml_value *before,
                    const rn_toml_value *after, const rn_toml_value *value);

// toml_quote.c: a string in double quotes; a key part, quoted where it must be.
RN_MUST_USE rn_status rn_toml_write_string(rn_buffer *out, rn_str raw);
RN_MUST_USE rn_status rn_toml_write_name(rn_buffer *out, rn_str name);

#endif

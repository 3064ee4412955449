// toml_parser.h — what the files of the TOML parser share: the cursor and one function for each
// piece of grammar.
//
// The text was checked as a whole first (rn_toml_check_text), so the grammar sees valid UTF-8 whose
// only control characters are tab, LF and CR before LF. It ends with a NUL, which it cannot hold:
// looking one character ahead needs no bounds check.
#ifndef RN_IO_TOML_PARSER_H
#define RN_IO_TOML_PARSER_H

#include "io/toml_tree.h"

typedef struct rn_toml_parser {
    rn_toml *doc;
    const char *text; // (bytes), then a NUL
    size_t bytes;
    size_t at; // the next character
    // Lines and columns are counted from the last place asked for, as places are asked for in
    // rising order.
    size_t counted;
    uint32_t line, column;  // of `counted`
    rn_toml_value *section; // the table that key = value lines go to
} rn_toml_parser;

// ---- toml_lex.c: text, places, white space, keys ------------------------------------------------

// Refuses what may stand nowhere in TOML: bad UTF-8, control characters, a lone CR.
RN_MUST_USE rn_status rn_toml_check_text(rn_toml_parser *p);
// RN_CORRUPT with "line L, column C: " before the message.
rn_status rn_toml_fail_at(rn_toml_parser *p, size_t offset, const char *format, ...)
    RN_PRINTF(3, 4);
// The same, "...: expected `what`, found (the next character)".
rn_status rn_toml_fail_expected(rn_toml_parser *p, const char *what);
// Begins a value's place at `offset`.
void rn_toml_mark(rn_toml_parser *p, rn_toml_value *value, size_t offset);
bool rn_toml_at_newline(const rn_toml_parser *p);
void rn_toml_skip_space(rn_toml_parser *p);
void rn_toml_skip_comment(rn_toml_parser *p);
// White space, comments and line ends.
void rn_toml_skip_lines(rn_toml_parser *p);
// Only white space and a comment may stand before the end of the line, which is passed.
RN_MUST_USE rn_status rn_toml_end_line(rn_toml_parser *p, const char *after_what);
// One part of a key, bare or quoted.
RN_MUST_USE rn_status rn_toml_parse_name(rn_toml_parser *p, rn_str *out);
// A name for messages: at most 40 bytes of it, cut between characters.
rn_str rn_toml_clip(rn_str name);

// ---- toml_string.c, toml_number.c, toml_time.c --------------------------------------------------

// Any of the four string forms; is_key allows one line only.
RN_MUST_USE rn_status rn_toml_parse_string(rn_toml_parser *p, bool is_key, rn_str *out);
// The number is all of text[p->at, end); sets the type and content of `value` and passes it.
RN_MUST_USE rn_status rn_toml_parse_number(rn_toml_parser *p, size_t end, rn_toml_value *value);
// Does a date or time begin here? Then the next call reads it.
bool rn_toml_at_time(const rn_toml_parser *p);
RN_MUST_USE rn_status rn_toml_parse_time(rn_toml_parser *p, rn_toml_value *value);

// ---- toml_value.c -------------------------------------------------------------------------------

// Any value, as a new entry or item of `parent`.
RN_MUST_USE rn_status rn_toml_parse_value(rn_toml_parser *p, rn_toml_value *parent, rn_str key);

// ---- toml_define.c: which names may be defined where --------------------------------------------

// key = value, from the key to the end of the value.
RN_MUST_USE rn_status rn_toml_parse_entry(rn_toml_parser *p, rn_toml_value *table);
// [a.b] or [[a.b]]; it becomes the section.
RN_MUST_USE rn_status rn_toml_parse_header(rn_toml_parser *p);
// Refuses a value below `parent` that would be nested too deeply; `offset` is where it stands.
RN_MUST_USE rn_status rn_toml_check_depth(rn_toml_parser *p, const rn_toml_value *parent,
                                          size_t offset);

#endif

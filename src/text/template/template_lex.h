// template_lex.h — a template's text as tokens, by Jinja's rules for white space: trim_blocks and
// lstrip_blocks are on, as transformers has them.
#ifndef RN_TEXT_TEMPLATE_LEX_H
#define RN_TEXT_TEMPLATE_LEX_H

#include "base/arena.h"

#include <ration/text.h>

#define RN_JINJA_MAX_SOURCE_BYTES ((size_t)256 << 10)
enum { RN_JINJA_MAX_NESTING = 64 }; // of brackets, and of statements

// Line breaks are '\n' only, and there is none at the end.
typedef struct rn_jinja_source {
    const char *name;
    rn_str text;
} rn_jinja_source;

typedef enum rn_jinja_token_kind {
    RN_TOKEN_END,
    RN_TOKEN_DATA, // text outside of tags
    RN_TOKEN_PRINT_BEGIN,
    RN_TOKEN_PRINT_END,
    RN_TOKEN_BLOCK_BEGIN,
    RN_TOKEN_BLOCK_END,
    RN_TOKEN_NAME,
    RN_TOKEN_STRING,
    RN_TOKEN_INT,
    RN_TOKEN_FLOAT,
    RN_TOKEN_ADD,
    RN_TOKEN_SUB,
    RN_TOKEN_MUL,
    RN_TOKEN_DIV,
    RN_TOKEN_FLOORDIV,
    RN_TOKEN_MOD,
    RN_TOKEN_POW,
    RN_TOKEN_TILDE,
    RN_TOKEN_EQ,
    RN_TOKEN_NE,
    RN_TOKEN_LT,
    RN_TOKEN_LE,
    RN_TOKEN_GT,
    RN_TOKEN_GE,
    RN_TOKEN_ASSIGN,
    RN_TOKEN_DOT,
    RN_TOKEN_COLON,
    RN_TOKEN_PIPE,
    RN_TOKEN_COMMA,
    RN_TOKEN_SEMICOLON,
    RN_TOKEN_LPAREN,
    RN_TOKEN_RPAREN,
    RN_TOKEN_LBRACKET,
    RN_TOKEN_RBRACKET,
    RN_TOKEN_LBRACE,
    RN_TOKEN_RBRACE,
    RN_TOKEN_IN,    // only as an operator of comparisons, made by the parser
    RN_TOKEN_NOT_IN // the same
} rn_jinja_token_kind;

typedef struct rn_jinja_token rn_jinja_token;
struct rn_jinja_token {
    rn_jinja_token_kind kind;
    uint32_t at; // byte in the source
    rn_str text; // DATA, NAME; STRING without quotes and escapes
    int64_t whole;
    double real;
    rn_jinja_token *next; // NULL after END
};

// Copies `text` into the arena with its line breaks made alike. RN_CORRUPT where it is not UTF-8.
RN_MUST_USE rn_status rn_jinja_source_make(rn_arena *arena, const char *name, rn_str text,
                                           rn_jinja_source *out);
// RN_CORRUPT: what Jinja does not take either. RN_UNSUPPORTED: what is refused here.
RN_MUST_USE rn_status rn_jinja_lex(const rn_jinja_source *source, rn_arena *arena,
                                   rn_jinja_token **out);
// Begins an error with "name:line:column: ".
rn_status rn_jinja_complain(const rn_jinja_source *source, uint32_t at, rn_status status,
                            const char *format, ...) RN_PRINTF(4, 5);

#endif

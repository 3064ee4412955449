// template_node.h — a parsed template: a tree of nodes that nobody changes any more, so that any
// number of threads may render it at once.
#ifndef RN_TEXT_TEMPLATE_NODE_H
#define RN_TEXT_TEMPLATE_NODE_H

#include "text/template/template_lex.h"
#include "text/template/template_value.h"

typedef enum rn_jinja_kind {
    // expressions
    RN_NODE_CONSTANT,  // constant
    RN_NODE_NAME,      // name
    RN_NODE_ATTRIBUTE, // left.name
    RN_NODE_ITEM,      // left[right]
    RN_NODE_SLICE,     // left[items: begin, end, step]
    RN_NODE_CALL,      // left(items: ARGUMENT...)
    RN_NODE_ARGUMENT,  // name=left, or just left
    RN_NODE_FILTER,    // left|name(items: ARGUMENT...); without left: of a block's text
    RN_NODE_TEST,      // left is name(items: ARGUMENT...)
    RN_NODE_NOT,       // not left
    RN_NODE_NEGATE,    // -left
    RN_NODE_PLUS,      // +left
    RN_NODE_AND,       // left and right
    RN_NODE_OR,
    RN_NODE_CALCULATE, // left op right
    RN_NODE_JOIN,      // items with ~ between them
    RN_NODE_COMPARE,   // left (items: OPERAND...)
    RN_NODE_OPERAND,   // op left
    RN_NODE_CONDITION, // left if right else third, which may be missing
    RN_NODE_LIST,      // items
    RN_NODE_TUPLE,
    RN_NODE_DICT, // items: PAIR...
    RN_NODE_PAIR, // left: right
    // statements
    RN_NODE_DATA,            // text between tags: name
    RN_NODE_PRINT,           // {{ left }}
    RN_NODE_IF,              // items: BRANCH...
    RN_NODE_BRANCH,          // if left (none: else), then items
    RN_NODE_FOR,             // for left in right if third, items, else others
    RN_NODE_SET,             // left = right
    RN_NODE_SET_BLOCK,       // left = items, through the filters right
    RN_NODE_WITH,            // others: PAIR..., then items
    RN_NODE_MACRO,           // name(others: ARGUMENT, left is the default) items
    RN_NODE_FILTER_BLOCK,    // items through the filters right
    RN_NODE_GENERATION,      // items
    RN_NODE_BREAK,           //
    RN_NODE_CONTINUE,        //
    RN_NODE_NAMESPACE_TARGET // name.constant, to be set
} rn_jinja_kind;

typedef struct rn_jinja_node rn_jinja_node;
struct rn_jinja_node {
    rn_jinja_kind kind;
    uint32_t at; // byte in the source
    rn_jinja_token_kind op;
    rn_str name;
    rn_jinja_value constant;
    const rn_jinja_builtin *builtin; // of a filter or test
    rn_jinja_node *left, *right, *third;
    rn_jinja_node *items, *others; // first of a list each
    rn_jinja_node *next;           // in the list that this node is in
};

typedef struct rn_jinja_parser {
    const rn_jinja_source *source;
    rn_arena *arena;
    const rn_jinja_token *token; // the next
    int depth;
    bool in_loop, in_macro; // directly: break and continue, varargs and kwargs mean something
} rn_jinja_parser;

// The whole template. RN_CORRUPT, RN_UNSUPPORTED as rn_jinja_lex.
RN_MUST_USE rn_status rn_jinja_parse(rn_jinja_parser *parser, rn_jinja_node **out);

// ---- between the parser's two files ------------------------------------------------------

RN_MUST_USE rn_status rn_jinja_node_new(rn_jinja_parser *parser, rn_jinja_kind kind, uint32_t at,
                                        rn_jinja_node **out);
// With or without `a if b else c` at the outermost level.
RN_MUST_USE rn_status rn_jinja_parse_expression(rn_jinja_parser *parser, bool with_condition,
                                                rn_jinja_node **out);
// An expression, or several with commas between them: a tuple.
RN_MUST_USE rn_status rn_jinja_parse_tuple(rn_jinja_parser *parser, bool with_condition,
                                           rn_jinja_node **out);
// |filter|filter..., applied to `input` (or to a block's text: NULL).
RN_MUST_USE rn_status rn_jinja_parse_filters(rn_jinja_parser *parser, rn_jinja_node *input,
                                             rn_jinja_node **out);
// The filter's name comes next.
RN_MUST_USE rn_status rn_jinja_parse_filter(rn_jinja_parser *parser, rn_jinja_node *input,
                                            rn_jinja_node **out);
bool rn_jinja_is_name(const rn_jinja_token *token, const char *name);
// Takes the token where it is next.
bool rn_jinja_skip(rn_jinja_parser *parser, rn_jinja_token_kind kind);
bool rn_jinja_skip_name(rn_jinja_parser *parser, const char *name);
RN_MUST_USE rn_status rn_jinja_expect(rn_jinja_parser *parser, rn_jinja_token_kind kind);
// RN_CORRUPT: this token does not belong here.
rn_status rn_jinja_unexpected(rn_jinja_parser *parser);

#endif

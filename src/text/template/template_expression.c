// template_expression.c — expressions, by the precedence of Jinja's own parser:
//
//     a if b else c   or   and   not   == != < <= > >= in   + -   ~   * / // %   unary   postfix
//     |is
//
// Each level is a function that calls the next tighter one. Note that filters bind tighter than
// any operator, but looser than a sign: -x|abs is (-x)|abs.
#include "base/str.h"
#include "text/template/template_builtin.h"
#include "text/template/template_node.h"

static rn_status parse_or(rn_jinja_parser *parser, rn_jinja_node **out);
static rn_status parse_unary(rn_jinja_parser *parser, bool with_filters, rn_jinja_node **out);

rn_status rn_jinja_node_new(rn_jinja_parser *parser, rn_jinja_kind kind, uint32_t at,
                            rn_jinja_node **out) {
    void *block;
    *out = NULL;
    RN_TRY(rn_arena_alloc(parser->arena, sizeof(rn_jinja_node), &block));
    *out = block;
    (*out)->kind = kind;
    (*out)->at = at;
    return RN_OK;
}

bool rn_jinja_is_name(const rn_jinja_token *token, const char *name) {
    return token->kind == RN_TOKEN_NAME && rn_str_equal(token->text, rn_str_from(name));
}

bool rn_jinja_skip(rn_jinja_parser *parser, rn_jinja_token_kind kind) {
    if (parser->token->kind != kind) return false;
    parser->token = parser->token->next;
    return true;
}

bool rn_jinja_skip_name(rn_jinja_parser *parser, const char *name) {
    if (!rn_jinja_is_name(parser->token, name)) return false;
    parser->token = parser->token->next;
    return true;
}

rn_status rn_jinja_unexpected(rn_jinja_parser *parser) {
    const rn_jinja_token *token = parser->token;
    rn_str rest = parser->source->text;
    if (token->kind == RN_TOKEN_END)
        return rn_jinja_complain(parser->source, token->at, RN_CORRUPT,
                                 "the template ends too early");
    rest = (rn_str){rest.data + token->at, rest.bytes - token->at};
    size_t shown = token->kind == RN_TOKEN_NAME ? token->text.bytes
                   : rest.bytes < 2             ? rest.bytes
                                                : 2;
    return rn_jinja_complain(parser->source, token->at, RN_CORRUPT, "unexpected '%.*s'", (int)shown,
                             rest.data);
}

rn_status rn_jinja_expect(rn_jinja_parser *parser, rn_jinja_token_kind kind) {
    return rn_jinja_skip(parser, kind) ? RN_OK : rn_jinja_unexpected(parser);
}

static rn_status refuse(rn_jinja_parser *parser, const char *what) {
    return rn_jinja_complain(parser->source, parser->token->at, RN_UNSUPPORTED,
                             "%s not supported in chat templates", what);
}

// A node of two operands; *io_left becomes it.
static rn_status join(rn_jinja_parser *parser, rn_jinja_kind kind, uint32_t at,
                      rn_jinja_node **io_left, rn_jinja_node *right) {
    rn_jinja_node *node;
    RN_TRY(rn_jinja_node_new(parser, kind, at, &node));
    node->left = *io_left;
    node->right = right;
    *io_left = node;
    return RN_OK;
}

// ---- literals ----------------------------------------------------------------------------

static rn_status constant(rn_jinja_parser *parser, rn_jinja_value value, rn_jinja_node **out) {
    RN_TRY(rn_jinja_node_new(parser, RN_NODE_CONSTANT, parser->token->at, out));
    (*out)->constant = value;
    return RN_OK;
}

// What these names mean inside Jinja is not a variable.
static bool is_special(const rn_jinja_parser *parser, const rn_jinja_token *token) {
    if (rn_jinja_is_name(token, "self") || rn_jinja_is_name(token, "super")) return true;
    return parser->in_macro &&
           (rn_jinja_is_name(token, "varargs") || rn_jinja_is_name(token, "kwargs") ||
            rn_jinja_is_name(token, "caller"));
}

static rn_status parse_name(rn_jinja_parser *parser, rn_jinja_node **out) {
    const rn_jinja_token *token = parser->token;
    bool is_true = rn_jinja_is_name(token, "true") || rn_jinja_is_name(token, "True");
    bool is_false = rn_jinja_is_name(token, "false") || rn_jinja_is_name(token, "False");
    bool is_none = rn_jinja_is_name(token, "none") || rn_jinja_is_name(token, "None");
    if (is_special(parser, token))
        return rn_jinja_complain(parser->source, token->at, RN_UNSUPPORTED,
                                 "the name '%.*s' is not supported", RN_STR_ARG(token->text));
    if (is_true || is_false || is_none) {
        RN_TRY(constant(parser, is_none ? rn_jinja_none() : rn_jinja_bool(is_true), out));
    } else {
        RN_TRY(rn_jinja_node_new(parser, RN_NODE_NAME, token->at, out));
        (*out)->name = token->text;
    }
    parser->token = token->next;
    return RN_OK;
}

// Strings that stand side by side are one.
static rn_status parse_string(rn_jinja_parser *parser, rn_jinja_node **out) {
    size_t bytes = 0, at = 0;
    void *joined;
    const rn_jinja_token *token = parser->token;
    for (; token->kind == RN_TOKEN_STRING; token = token->next)
        bytes += token->text.bytes;
    RN_TRY(rn_arena_alloc(parser->arena, bytes, &joined));
    RN_TRY(constant(parser, rn_jinja_text((rn_str){joined, bytes}), out));
    for (; parser->token->kind == RN_TOKEN_STRING; parser->token = parser->token->next) {
        memcpy((char *)joined + at, parser->token->text.data, parser->token->text.bytes);
        at += parser->token->text.bytes;
    }
    return RN_OK;
}

static rn_status parse_list(rn_jinja_parser *parser, rn_jinja_node **out) {
    RN_TRY(rn_jinja_node_new(parser, RN_NODE_LIST, parser->token->at, out));
    rn_jinja_node **end = &(*out)->items;
    RN_TRY(rn_jinja_expect(parser, RN_TOKEN_LBRACKET));
    while (parser->token->kind != RN_TOKEN_RBRACKET) {
        if ((*out)->items) RN_TRY(rn_jinja_expect(parser, RN_TOKEN_COMMA));
        if (parser->token->kind == RN_TOKEN_RBRACKET) break;
        RN_TRY(rn_jinja_parse_expression(parser, true, end));
        end = &(*end)->next;
    }
    return rn_jinja_expect(parser, RN_TOKEN_RBRACKET);
}

static rn_status parse_dict(rn_jinja_parser *parser, rn_jinja_node **out) {
    RN_TRY(rn_jinja_node_new(parser, RN_NODE_DICT, parser->token->at, out));
    rn_jinja_node **end = &(*out)->items;
    RN_TRY(rn_jinja_expect(parser, RN_TOKEN_LBRACE));
    while (parser->token->kind != RN_TOKEN_RBRACE) {
        if ((*out)->items) RN_TRY(rn_jinja_expect(parser, RN_TOKEN_COMMA));
        if (parser->token->kind == RN_TOKEN_RBRACE) break;
        RN_TRY(rn_jinja_node_new(parser, RN_NODE_PAIR, parser->token->at, end));
        RN_TRY(rn_jinja_parse_expression(parser, true, &(*end)->left));
        RN_TRY(rn_jinja_expect(parser, RN_TOKEN_COLON));
        RN_TRY(rn_jinja_parse_expression(parser, true, &(*end)->right));
        end = &(*end)->next;
    }
    return rn_jinja_expect(parser, RN_TOKEN_RBRACE);
}

static rn_status parse_parentheses(rn_jinja_parser *parser, rn_jinja_node **out) {
    uint32_t at = parser->token->at;
    RN_TRY(rn_jinja_expect(parser, RN_TOKEN_LPAREN));
    if (rn_jinja_skip(parser, RN_TOKEN_RPAREN))
        return rn_jinja_node_new(parser, RN_NODE_TUPLE, at, out);
    RN_TRY(rn_jinja_parse_tuple(parser, true, out));
    return rn_jinja_expect(parser, RN_TOKEN_RPAREN);
}

static rn_status parse_primary(rn_jinja_parser *parser, rn_jinja_node **out) {
    const rn_jinja_token *token = parser->token;
    switch (token->kind) {
    case RN_TOKEN_NAME:
        return parse_name(parser, out);
    case RN_TOKEN_STRING:
        return parse_string(parser, out);
    case RN_TOKEN_INT:
    case RN_TOKEN_FLOAT:
        RN_TRY(constant(parser,
                        token->kind == RN_TOKEN_INT ? rn_jinja_int(token->whole)
                                                    : rn_jinja_float(token->real),
                        out));
        parser->token = token->next;
        return RN_OK;
    case RN_TOKEN_LPAREN:
        return parse_parentheses(parser, out);
    case RN_TOKEN_LBRACKET:
        return parse_list(parser, out);
    case RN_TOKEN_LBRACE:
        return parse_dict(parser, out);
    default:
        return rn_jinja_unexpected(parser);
    }
}

// ---- what may follow a value -------------------------------------------------------------

static rn_status parse_arguments(rn_jinja_parser *parser, rn_jinja_node **out) {
    bool named = false;
    RN_TRY(rn_jinja_expect(parser, RN_TOKEN_LPAREN));
    for (rn_jinja_node **end = out; parser->token->kind != RN_TOKEN_RPAREN; end = &(*end)->next) {
        if (end != out) RN_TRY(rn_jinja_expect(parser, RN_TOKEN_COMMA));
        if (end != out && parser->token->kind == RN_TOKEN_RPAREN) break;
        if (parser->token->kind == RN_TOKEN_MUL || parser->token->kind == RN_TOKEN_POW)
            return refuse(parser, "'*' and '**' before arguments are");
        RN_TRY(rn_jinja_node_new(parser, RN_NODE_ARGUMENT, parser->token->at, end));
        if (parser->token->kind == RN_TOKEN_NAME && parser->token->next->kind == RN_TOKEN_ASSIGN) {
            (*end)->name = parser->token->text;
            parser->token = parser->token->next->next;
            named = true;
        } else if (named) {
            return rn_jinja_unexpected(parser);
        }
        RN_TRY(rn_jinja_parse_expression(parser, true, &(*end)->left));
    }
    return rn_jinja_expect(parser, RN_TOKEN_RPAREN);
}

static rn_status parse_call(rn_jinja_parser *parser, rn_jinja_node **io) {
    RN_TRY(join(parser, RN_NODE_CALL, parser->token->at, io, NULL));
    return parse_arguments(parser, &(*io)->items);
}

static rn_status parse_attribute(rn_jinja_parser *parser, rn_jinja_node **io) {
    const rn_jinja_token *token = parser->token->next;
    uint32_t at = parser->token->at;
    parser->token = token;
    if (token->kind == RN_TOKEN_NAME) {
        RN_TRY(join(parser, RN_NODE_ATTRIBUTE, at, io, NULL));
        (*io)->name = token->text;
    } else if (token->kind == RN_TOKEN_INT) {
        rn_jinja_node *index;
        RN_TRY(constant(parser, rn_jinja_int(token->whole), &index));
        RN_TRY(join(parser, RN_NODE_ITEM, at, io, index));
    } else {
        return rn_jinja_unexpected(parser);
    }
    parser->token = token->next;
    return RN_OK;
}

static bool ends_bound(const rn_jinja_parser *parser) {
    return parser->token->kind == RN_TOKEN_COLON || parser->token->kind == RN_TOKEN_RBRACKET ||
           parser->token->kind == RN_TOKEN_COMMA;
}

// The rest of [begin:end:step], from the first colon on; `begin` may be NULL.
static rn_status parse_slice(rn_jinja_parser *parser, uint32_t at, rn_jinja_node *begin,
                             rn_jinja_node **io) {
    RN_TRY(join(parser, RN_NODE_SLICE, at, io, NULL));
    if (!begin) RN_TRY(constant(parser, rn_jinja_none(), &begin));
    (*io)->items = begin;
    rn_jinja_node *last = begin;
    for (int i = 0; i < 2; i++) {
        if (rn_jinja_skip(parser, RN_TOKEN_COLON) && !ends_bound(parser))
            RN_TRY(rn_jinja_parse_expression(parser, true, &last->next));
        else
            RN_TRY(constant(parser, rn_jinja_none(), &last->next));
        last = last->next;
    }
    return RN_OK;
}

static rn_status parse_subscript(rn_jinja_parser *parser, rn_jinja_node **io) {
    uint32_t at = parser->token->at;
    rn_jinja_node *key = NULL;
    RN_TRY(rn_jinja_expect(parser, RN_TOKEN_LBRACKET));
    if (parser->token->kind == RN_TOKEN_RBRACKET) return refuse(parser, "empty subscripts are");
    if (parser->token->kind != RN_TOKEN_COLON)
        RN_TRY(rn_jinja_parse_expression(parser, true, &key));
    if (parser->token->kind == RN_TOKEN_COLON)
        RN_TRY(parse_slice(parser, at, key, io));
    else
        RN_TRY(join(parser, RN_NODE_ITEM, at, io, key));
    if (parser->token->kind == RN_TOKEN_COMMA) return refuse(parser, "several subscripts are");
    return rn_jinja_expect(parser, RN_TOKEN_RBRACKET);
}

static rn_status parse_postfix(rn_jinja_parser *parser, rn_jinja_node **io) {
    for (;;) {
        if (parser->token->kind == RN_TOKEN_DOT)
            RN_TRY(parse_attribute(parser, io));
        else if (parser->token->kind == RN_TOKEN_LBRACKET)
            RN_TRY(parse_subscript(parser, io));
        else if (parser->token->kind == RN_TOKEN_LPAREN)
            RN_TRY(parse_call(parser, io));
        else
            return RN_OK;
    }
}

// ---- filters and tests -------------------------------------------------------------------

static rn_status parse_builtin_name(rn_jinja_parser *parser, rn_jinja_kind kind,
                                    rn_jinja_node **io) {
    const rn_jinja_token *token = parser->token;
    bool is_filter = kind == RN_NODE_FILTER;
    RN_TRY(rn_jinja_expect(parser, RN_TOKEN_NAME));
    RN_TRY(join(parser, kind, token->at, io, NULL));
    (*io)->name = token->text;
    (*io)->builtin =
        is_filter ? rn_jinja_filter_find(token->text) : rn_jinja_test_find(token->text);
    if ((*io)->builtin && parser->token->kind != RN_TOKEN_DOT) return RN_OK;
    return rn_jinja_complain(parser->source, token->at, RN_UNSUPPORTED,
                             "the %s '%.*s' is not supported", is_filter ? "filter" : "test",
                             RN_STR_ARG(token->text));
}

rn_status rn_jinja_parse_filter(rn_jinja_parser *parser, rn_jinja_node *input,
                                rn_jinja_node **out) {
    *out = input;
    RN_TRY(parse_builtin_name(parser, RN_NODE_FILTER, out));
    if (parser->token->kind == RN_TOKEN_LPAREN) RN_TRY(parse_arguments(parser, &(*out)->items));
    return RN_OK;
}

rn_status rn_jinja_parse_filters(rn_jinja_parser *parser, rn_jinja_node *input,
                                 rn_jinja_node **out) {
    *out = input;
    while (rn_jinja_skip(parser, RN_TOKEN_PIPE))
        RN_TRY(rn_jinja_parse_filter(parser, *out, out));
    return RN_OK;
}

// Whether a test's argument follows without parentheses: x is divisibleby 3.
static bool begins_test_argument(const rn_jinja_token *token) {
    switch (token->kind) {
    case RN_TOKEN_NAME:
        return !rn_jinja_is_name(token, "else") && !rn_jinja_is_name(token, "or") &&
               !rn_jinja_is_name(token, "and");
    case RN_TOKEN_STRING:
    case RN_TOKEN_INT:
    case RN_TOKEN_FLOAT:
    case RN_TOKEN_LBRACKET:
    case RN_TOKEN_LBRACE:
        return true;
    default:
        return false;
    }
}

static rn_status parse_test(rn_jinja_parser *parser, rn_jinja_node **io) {
    uint32_t at = parser->token->at;
    parser->token = parser->token->next; // is
    bool negated = rn_jinja_skip_name(parser, "not");
    RN_TRY(parse_builtin_name(parser, RN_NODE_TEST, io));
    if (parser->token->kind == RN_TOKEN_LPAREN) {
        RN_TRY(parse_arguments(parser, &(*io)->items));
    } else if (begins_test_argument(parser->token)) {
        if (rn_jinja_is_name(parser->token, "is")) return rn_jinja_unexpected(parser);
        RN_TRY(rn_jinja_node_new(parser, RN_NODE_ARGUMENT, parser->token->at, &(*io)->items));
        RN_TRY(parse_primary(parser, &(*io)->items->left));
        RN_TRY(parse_postfix(parser, &(*io)->items->left));
    }
    return negated ? join(parser, RN_NODE_NOT, at, io, NULL) : RN_OK;
}

static rn_status parse_filters_and_tests(rn_jinja_parser *parser, rn_jinja_node **io) {
    for (;;) {
        if (parser->token->kind == RN_TOKEN_PIPE)
            RN_TRY(rn_jinja_parse_filters(parser, *io, io));
        else if (rn_jinja_is_name(parser->token, "is"))
            RN_TRY(parse_test(parser, io));
        else if (parser->token->kind == RN_TOKEN_LPAREN)
            RN_TRY(parse_call(parser, io));
        else
            return RN_OK;
    }
}

// ---- operators ---------------------------------------------------------------------------

static rn_status parse_signed(rn_jinja_parser *parser, rn_jinja_kind kind, rn_jinja_node **out) {
    uint32_t at = parser->token->at;
    parser->token = parser->token->next;
    if (++parser->depth > RN_JINJA_MAX_NESTING) return refuse(parser, "this many signs are");
    RN_TRY(parse_unary(parser, false, out));
    parser->depth--;
    return join(parser, kind, at, out, NULL);
}

static rn_status parse_unary(rn_jinja_parser *parser, bool with_filters, rn_jinja_node **out) {
    if (parser->token->kind == RN_TOKEN_SUB)
        RN_TRY(parse_signed(parser, RN_NODE_NEGATE, out));
    else if (parser->token->kind == RN_TOKEN_ADD)
        RN_TRY(parse_signed(parser, RN_NODE_PLUS, out));
    else
        RN_TRY(parse_primary(parser, out));
    RN_TRY(parse_postfix(parser, out));
    return with_filters ? parse_filters_and_tests(parser, out) : RN_OK;
}

static rn_status parse_product(rn_jinja_parser *parser, rn_jinja_node **out) {
    RN_TRY(parse_unary(parser, true, out));
    for (;;) {
        const rn_jinja_token *op = parser->token;
        rn_jinja_node *right;
        if (op->kind == RN_TOKEN_POW) return refuse(parser, "'**' is");
        if (op->kind < RN_TOKEN_MUL || op->kind > RN_TOKEN_MOD) return RN_OK;
        parser->token = op->next;
        RN_TRY(parse_unary(parser, true, &right));
        RN_TRY(join(parser, RN_NODE_CALCULATE, op->at, out, right));
        (*out)->op = op->kind;
    }
}

static rn_status parse_join(rn_jinja_parser *parser, rn_jinja_node **out) {
    rn_jinja_node *first;
    RN_TRY(parse_product(parser, &first));
    *out = first;
    if (parser->token->kind != RN_TOKEN_TILDE) return RN_OK;
    RN_TRY(rn_jinja_node_new(parser, RN_NODE_JOIN, parser->token->at, out));
    (*out)->items = first;
    while (rn_jinja_skip(parser, RN_TOKEN_TILDE)) {
        RN_TRY(parse_product(parser, &first->next));
        first = first->next;
    }
    return RN_OK;
}

static rn_status parse_sum(rn_jinja_parser *parser, rn_jinja_node **out) {
    RN_TRY(parse_join(parser, out));
    for (;;) {
        const rn_jinja_token *op = parser->token;
        rn_jinja_node *right;
        if (op->kind != RN_TOKEN_ADD && op->kind != RN_TOKEN_SUB) return RN_OK;
        parser->token = op->next;
        RN_TRY(parse_join(parser, &right));
        RN_TRY(join(parser, RN_NODE_CALCULATE, op->at, out, right));
        (*out)->op = op->kind;
    }
}

// Takes a comparison's operator; END where there is none.
static rn_jinja_token_kind take_comparison(rn_jinja_parser *parser) {
    const rn_jinja_token *token = parser->token;
    if (token->kind >= RN_TOKEN_EQ && token->kind <= RN_TOKEN_GE) {
        parser->token = token->next;
        return token->kind;
    }
    if (rn_jinja_skip_name(parser, "in")) return RN_TOKEN_IN;
    if (rn_jinja_is_name(token, "not") && rn_jinja_is_name(token->next, "in")) {
        parser->token = token->next->next;
        return RN_TOKEN_NOT_IN;
    }
    return RN_TOKEN_END;
}

static rn_status parse_comparison(rn_jinja_parser *parser, rn_jinja_node **out) {
    RN_TRY(parse_sum(parser, out));
    rn_jinja_node **end = NULL;
    for (;;) {
        uint32_t at = parser->token->at;
        rn_jinja_token_kind op = take_comparison(parser);
        if (op == RN_TOKEN_END) return RN_OK;
        if (!end) {
            RN_TRY(join(parser, RN_NODE_COMPARE, at, out, NULL));
            end = &(*out)->items;
        }
        RN_TRY(rn_jinja_node_new(parser, RN_NODE_OPERAND, at, end));
        (*end)->op = op;
        RN_TRY(parse_sum(parser, &(*end)->left));
        end = &(*end)->next;
    }
}

static rn_status parse_not(rn_jinja_parser *parser, rn_jinja_node **out) {
    uint32_t at = parser->token->at;
    if (!rn_jinja_skip_name(parser, "not")) return parse_comparison(parser, out);
    if (++parser->depth > RN_JINJA_MAX_NESTING) return refuse(parser, "this many 'not' are");
    RN_TRY(parse_not(parser, out));
    parser->depth--;
    return join(parser, RN_NODE_NOT, at, out, NULL);
}

static rn_status parse_and(rn_jinja_parser *parser, rn_jinja_node **out) {
    RN_TRY(parse_not(parser, out));
    for (;;) {
        rn_jinja_node *right;
        uint32_t at = parser->token->at;
        if (!rn_jinja_skip_name(parser, "and")) return RN_OK;
        RN_TRY(parse_not(parser, &right));
        RN_TRY(join(parser, RN_NODE_AND, at, out, right));
    }
}

static rn_status parse_or(rn_jinja_parser *parser, rn_jinja_node **out) {
    RN_TRY(parse_and(parser, out));
    for (;;) {
        rn_jinja_node *right;
        uint32_t at = parser->token->at;
        if (!rn_jinja_skip_name(parser, "or")) return RN_OK;
        RN_TRY(parse_and(parser, &right));
        RN_TRY(join(parser, RN_NODE_OR, at, out, right));
    }
}

static rn_status parse_condition(rn_jinja_parser *parser, rn_jinja_node **out) {
    RN_TRY(parse_or(parser, out));
    for (;;) {
        rn_jinja_node *test;
        uint32_t at = parser->token->at;
        if (!rn_jinja_skip_name(parser, "if")) return RN_OK;
        RN_TRY(parse_or(parser, &test));
        RN_TRY(join(parser, RN_NODE_CONDITION, at, out, test));
        if (rn_jinja_skip_name(parser, "else"))
            RN_TRY(rn_jinja_parse_expression(parser, true, &(*out)->third));
    }
}

rn_status rn_jinja_parse_expression(rn_jinja_parser *parser, bool with_condition,
                                    rn_jinja_node **out) {
    *out = NULL;
    if (++parser->depth > RN_JINJA_MAX_NESTING)
        return refuse(parser, "expressions nested this deeply are");
    RN_TRY(with_condition ? parse_condition(parser, out) : parse_or(parser, out));
    parser->depth--;
    return RN_OK;
}

// Whether a tuple is complete, though a comma came last.
static bool ends_tuple(const rn_jinja_parser *parser) {
    rn_jinja_token_kind kind = parser->token->kind;
    return kind == RN_TOKEN_PRINT_END || kind == RN_TOKEN_BLOCK_END || kind == RN_TOKEN_RPAREN;
}

rn_status rn_jinja_parse_tuple(rn_jinja_parser *parser, bool with_condition, rn_jinja_node **out) {
    rn_jinja_node *first;
    uint32_t at = parser->token->at;
    RN_TRY(rn_jinja_parse_expression(parser, with_condition, &first));
    *out = first;
    if (parser->token->kind != RN_TOKEN_COMMA) return RN_OK;
    RN_TRY(rn_jinja_node_new(parser, RN_NODE_TUPLE, at, out));
    (*out)->items = first;
    while (rn_jinja_skip(parser, RN_TOKEN_COMMA) && !ends_tuple(parser)) {
        RN_TRY(rn_jinja_parse_expression(parser, with_condition, &first->next));
        first = first->next;
    }
    return RN_OK;
}

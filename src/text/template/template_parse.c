// template_parse.c — statements: what stands between {% and %}.
#include "base/str.h"
#include "text/template/template_node.h"

static rn_status parse_body(rn_jinja_parser *parser, const char *const *ends, rn_jinja_node **out);

static rn_status refuse(rn_jinja_parser *parser, uint32_t at, const char *what, rn_str name) {
    return rn_jinja_complain(parser->source, at, RN_UNSUPPORTED, "%s '%.*s' is not supported", what,
                             RN_STR_ARG(name));
}

// ---- targets of assignments --------------------------------------------------------------

static rn_status parse_target(rn_jinja_parser *parser, bool with_namespace, rn_jinja_node **out);

static rn_status parse_target_name(rn_jinja_parser *parser, bool with_namespace,
                                   rn_jinja_node **out) {
    static const char *const constants[] = {"true", "false", "none", "True", "False", "None"};
    const rn_jinja_token *token = parser->token;
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++)
        if (rn_jinja_is_name(token, constants[i])) return rn_jinja_unexpected(parser);
    RN_TRY(rn_jinja_expect(parser, RN_TOKEN_NAME));
    RN_TRY(rn_jinja_node_new(parser, RN_NODE_NAME, token->at, out));
    (*out)->name = token->text;
    if (!with_namespace || !rn_jinja_skip(parser, RN_TOKEN_DOT)) return RN_OK;
    (*out)->kind = RN_NODE_NAMESPACE_TARGET;
    (*out)->constant = rn_jinja_text(parser->token->text);
    return rn_jinja_expect(parser, RN_TOKEN_NAME);
}

static rn_status parse_one_target(rn_jinja_parser *parser, bool with_namespace,
                                  rn_jinja_node **out) {
    if (!rn_jinja_skip(parser, RN_TOKEN_LPAREN))
        return parse_target_name(parser, with_namespace, out);
    RN_TRY(parse_target(parser, with_namespace, out));
    return rn_jinja_expect(parser, RN_TOKEN_RPAREN);
}

// name, ns.name, or several of them with commas.
static rn_status parse_target(rn_jinja_parser *parser, bool with_namespace, rn_jinja_node **out) {
    rn_jinja_node *first;
    uint32_t at = parser->token->at;
    *out = NULL;
    if (++parser->depth > RN_JINJA_MAX_NESTING)
        return refuse(parser, at, "nesting of this depth in", RN_STR("set"));
    RN_TRY(parse_one_target(parser, with_namespace, &first));
    parser->depth--;
    *out = first;
    if (parser->token->kind != RN_TOKEN_COMMA) return RN_OK;
    RN_TRY(rn_jinja_node_new(parser, RN_NODE_TUPLE, at, out));
    (*out)->items = first;
    while (rn_jinja_skip(parser, RN_TOKEN_COMMA)) {
        if (parser->token->kind == RN_TOKEN_RPAREN || parser->token->kind == RN_TOKEN_BLOCK_END ||
            parser->token->kind == RN_TOKEN_ASSIGN || rn_jinja_is_name(parser->token, "in"))
            break;
        RN_TRY(parse_one_target(parser, with_namespace, &first->next));
        first = first->next;
    }
    return RN_OK;
}

// ---- blocks ------------------------------------------------------------------------------

// The statements of a block whose tag ends here, up to one of the tags `ends`.
static rn_status parse_block(rn_jinja_parser *parser, const char *const *ends,
                             rn_jinja_node **out) {
    rn_jinja_skip(parser, RN_TOKEN_COLON);
    RN_TRY(rn_jinja_expect(parser, RN_TOKEN_BLOCK_END));
    return parse_body(parser, ends, out);
}

// A block that break and continue cannot leave.
static rn_status parse_closed_block(rn_jinja_parser *parser, const char *end, rn_jinja_node **out) {
    const char *const ends[] = {end, NULL};
    bool in_loop = parser->in_loop;
    parser->in_loop = false;
    RN_TRY(parse_block(parser, ends, out));
    parser->in_loop = in_loop;
    parser->token = parser->token->next;
    return RN_OK;
}

static rn_status parse_if(rn_jinja_parser *parser, rn_jinja_node *node) {
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif",
                                                                                        NULL};
    rn_jinja_node **branch = &node->items;
    for (;;) {
        RN_TRY(rn_jinja_node_new(parser, RN_NODE_BRANCH, parser->token->at, branch));
        RN_TRY(rn_jinja_parse_tuple(parser, false, &(*branch)->left));
        RN_TRY(parse_block(parser, ends, &(*branch)->items));
        branch = &(*branch)->next;
        if (!rn_jinja_skip_name(parser, "elif")) break;
    }
    if (rn_jinja_skip_name(parser, "else")) {
        RN_TRY(rn_jinja_node_new(parser, RN_NODE_BRANCH, parser->token->at, branch));
        RN_TRY(parse_block(parser, last, &(*branch)->items));
    }
    parser->token = parser->token->next;
    return RN_OK;
}

static rn_status parse_for(rn_jinja_parser *parser, rn_jinja_node *node) {
    static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
    bool in_loop = parser->in_loop;
    if (rn_jinja_is_name(parser->token, "loop")) return rn_jinja_unexpected(parser);
    RN_TRY(parse_target(parser, false, &node->left));
    if (!rn_jinja_skip_name(parser, "in")) return rn_jinja_unexpected(parser);
    RN_TRY(rn_jinja_parse_tuple(parser, false, &node->right));
    if (rn_jinja_skip_name(parser, "if"))
        RN_TRY(rn_jinja_parse_expression(parser, true, &node->third));
    if (rn_jinja_is_name(parser->token, "recursive"))
        return refuse(parser, parser->token->at, "the word", parser->token->text);
    parser->in_loop = true;
    RN_TRY(parse_block(parser, ends, &node->items));
    parser->in_loop = in_loop;
    if (rn_jinja_skip_name(parser, "else")) RN_TRY(parse_block(parser, last, &node->others));
    parser->token = parser->token->next;
    return RN_OK;
}

static rn_status parse_set(rn_jinja_parser *parser, rn_jinja_node *node) {
    RN_TRY(parse_target(parser, true, &node->left));
    if (rn_jinja_skip(parser, RN_TOKEN_ASSIGN))
        return rn_jinja_parse_tuple(parser, true, &node->right);
    node->kind = RN_NODE_SET_BLOCK;
    RN_TRY(rn_jinja_parse_filters(parser, NULL, &node->right));
    return parse_closed_block(parser, "endset", &node->items);
}

static rn_status parse_with(rn_jinja_parser *parser, rn_jinja_node *node) {
    static const char *const ends[] = {"endwith", NULL};
    rn_jinja_node **end = &node->others;
    while (parser->token->kind != RN_TOKEN_BLOCK_END) {
        if (node->others) RN_TRY(rn_jinja_expect(parser, RN_TOKEN_COMMA));
        RN_TRY(rn_jinja_node_new(parser, RN_NODE_PAIR, parser->token->at, end));
        RN_TRY(parse_target_name(parser, false, &(*end)->left));
        RN_TRY(rn_jinja_expect(parser, RN_TOKEN_ASSIGN));
        RN_TRY(rn_jinja_parse_expression(parser, true, &(*end)->right));
        end = &(*end)->next;
    }
    RN_TRY(parse_block(parser, ends, &node->items));
    parser->token = parser->token->next;
    return RN_OK;
}

static rn_status parse_parameters(rn_jinja_parser *parser, rn_jinja_node **out) {
    bool needs_default = false;
    RN_TRY(rn_jinja_expect(parser, RN_TOKEN_LPAREN));
    for (rn_jinja_node **end = out; parser->token->kind != RN_TOKEN_RPAREN; end = &(*end)->next) {
        if (end != out) RN_TRY(rn_jinja_expect(parser, RN_TOKEN_COMMA));
        if (rn_jinja_is_name(parser->token, "caller"))
            return refuse(parser, parser->token->at, "the parameter", parser->token->text);
        RN_TRY(parse_target_name(parser, false, end));
        (*end)->kind = RN_NODE_ARGUMENT;
        if (rn_jinja_skip(parser, RN_TOKEN_ASSIGN)) {
            RN_TRY(rn_jinja_parse_expression(parser, true, &(*end)->left));
            needs_default = true;
        } else if (needs_default) {
            return rn_jinja_unexpected(parser);
        }
    }
    return rn_jinja_expect(parser, RN_TOKEN_RPAREN);
}

static rn_status parse_macro(rn_jinja_parser *parser, rn_jinja_node *node) {
    bool in_macro = parser->in_macro;
    node->name = parser->token->text;
    RN_TRY(rn_jinja_expect(parser, RN_TOKEN_NAME));
    parser->in_macro = true;
    RN_TRY(parse_parameters(parser, &node->others));
    RN_TRY(parse_closed_block(parser, "endmacro", &node->items));
    parser->in_macro = in_macro;
    return RN_OK;
}

static rn_status parse_filter_block(rn_jinja_parser *parser, rn_jinja_node *node) {
    RN_TRY(rn_jinja_parse_filter(parser, NULL, &node->right));
    RN_TRY(rn_jinja_parse_filters(parser, node->right, &node->right));
    return parse_closed_block(parser, "endfilter", &node->items);
}

static rn_status parse_generation(rn_jinja_parser *parser, rn_jinja_node *node) {
    return parse_closed_block(parser, "endgeneration", &node->items);
}

static rn_status parse_jump(rn_jinja_parser *parser, rn_jinja_node *node) {
    if (parser->in_loop) return RN_OK;
    return rn_jinja_complain(parser->source, node->at, RN_CORRUPT,
                             "there is no loop here to leave or continue");
}

// ---- statements --------------------------------------------------------------------------

// The tag's name comes next; afterwards its end does.
static rn_status parse_statement(rn_jinja_parser *parser, rn_jinja_node **out) {
    static const struct {
        const char *name;
        rn_jinja_kind kind;
        rn_status (*parse)(rn_jinja_parser *parser, rn_jinja_node *node);
    } statements[] = {
        {"if", RN_NODE_IF, parse_if},
        {"for", RN_NODE_FOR, parse_for},
        {"set", RN_NODE_SET, parse_set},
        {"with", RN_NODE_WITH, parse_with},
        {"macro", RN_NODE_MACRO, parse_macro},
        {"filter", RN_NODE_FILTER_BLOCK, parse_filter_block},
        {"generation", RN_NODE_GENERATION, parse_generation},
        {"break", RN_NODE_BREAK, parse_jump},
        {"continue", RN_NODE_CONTINUE, parse_jump},
    };
    const rn_jinja_token *token = parser->token;
    if (token->kind != RN_TOKEN_NAME) return rn_jinja_unexpected(parser);
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (!rn_jinja_is_name(token, statements[i].name)) continue;
        RN_TRY(rn_jinja_node_new(parser, statements[i].kind, token->at, out));
        parser->token = token->next;
        return statements[i].parse(parser, *out);
    }
    bool is_stray = rn_str_starts(token->text, RN_STR("end")) || rn_jinja_is_name(token, "else") ||
                    rn_jinja_is_name(token, "elif");
    return is_stray ? rn_jinja_unexpected(parser)
                    : refuse(parser, token->at, "the statement", token->text);
}

static bool is_end(const rn_jinja_token *token, const char *const *ends) {
    for (; ends && *ends; ends++)
        if (rn_jinja_is_name(token, *ends)) return true;
    return false;
}

static rn_status parse_piece(rn_jinja_parser *parser, rn_jinja_node **out) {
    const rn_jinja_token *token = parser->token;
    parser->token = token->next;
    if (token->kind == RN_TOKEN_DATA) {
        RN_TRY(rn_jinja_node_new(parser, RN_NODE_DATA, token->at, out));
        (*out)->name = token->text;
        return RN_OK;
    }
    if (token->kind == RN_TOKEN_PRINT_BEGIN) {
        RN_TRY(rn_jinja_node_new(parser, RN_NODE_PRINT, token->at, out));
        RN_TRY(rn_jinja_parse_tuple(parser, true, &(*out)->left));
        return rn_jinja_expect(parser, RN_TOKEN_PRINT_END);
    }
    RN_TRY(parse_statement(parser, out));
    return rn_jinja_expect(parser, RN_TOKEN_BLOCK_END);
}

// Up to the name of one of the tags `ends`, which is next then; NULL: to the template's end.
static rn_status parse_body(rn_jinja_parser *parser, const char *const *ends, rn_jinja_node **out) {
    if (++parser->depth > RN_JINJA_MAX_NESTING)
        return refuse(parser, parser->token->at, "nesting of this depth in", RN_STR("{%"));
    for (; parser->token->kind != RN_TOKEN_END; out = &(*out)->next) {
        if (parser->token->kind == RN_TOKEN_BLOCK_BEGIN && is_end(parser->token->next, ends)) {
            parser->token = parser->token->next;
            parser->depth--;
            return RN_OK;
        }
        RN_TRY(parse_piece(parser, out));
    }
    parser->depth--;
    return ends ? rn_jinja_unexpected(parser) : RN_OK;
}

rn_status rn_jinja_parse(rn_jinja_parser *parser, rn_jinja_node **out) {
    *out = NULL;
    return parse_body(parser, NULL, out);
}

// template_evaluate.c — expressions: a walk over the tree, one function a kind of node.
#include "text/template/template_builtin.h"

static rn_status evaluate_children(rn_jinja_run *run, const rn_jinja_node *first,
                                   rn_jinja_list **out) {
    RN_TRY(rn_jinja_list_new(run, out));
    for (const rn_jinja_node *node = first; node; node = node->next) {
        rn_jinja_value value = rn_jinja_none();
        RN_TRY(rn_jinja_evaluate(run, node, &value));
        RN_TRY(rn_jinja_list_add(run, *out, value));
    }
    return RN_OK;
}

static rn_status evaluate_dict(rn_jinja_run *run, const rn_jinja_node *node, rn_jinja_value *out) {
    rn_jinja_dict *dict = NULL;
    rn_jinja_value key = rn_jinja_none(), value = rn_jinja_none();
    RN_TRY(rn_jinja_dict_new(run, &dict));
    for (const rn_jinja_node *pair = node->items; pair; pair = pair->next) {
        RN_TRY(rn_jinja_evaluate(run, pair->left, &key));
        RN_TRY(rn_jinja_evaluate(run, pair->right, &value));
        run->at = pair->at;
        RN_TRY(rn_jinja_dict_set(run, dict, key, value));
    }
    *out = (rn_jinja_value){.type = RN_JINJA_DICT, .dict = dict};
    return RN_OK;
}

static rn_status evaluate_slice(rn_jinja_run *run, const rn_jinja_node *node, rn_jinja_value *out) {
    rn_jinja_value of = rn_jinja_none(), bounds[3] = {{0}};
    RN_TRY(rn_jinja_evaluate(run, node->left, &of));
    const rn_jinja_node *bound = node->items;
    for (size_t i = 0; i < 3; i++, bound = bound->next)
        RN_TRY(rn_jinja_evaluate(run, bound, &bounds[i]));
    run->at = node->at;
    return rn_jinja_get_slice(run, of, bounds, out);
}

static rn_status evaluate_item(rn_jinja_run *run, const rn_jinja_node *node, rn_jinja_value *out) {
    rn_jinja_value of = rn_jinja_none(), key = rn_jinja_none();
    RN_TRY(rn_jinja_evaluate(run, node->left, &of));
    if (node->kind == RN_NODE_ITEM) RN_TRY(rn_jinja_evaluate(run, node->right, &key));
    run->at = node->at;
    return node->kind == RN_NODE_ITEM ? rn_jinja_get_item(run, of, key, out)
                                      : rn_jinja_get_attribute(run, of, node->name, out);
}

// ---- operators ---------------------------------------------------------------------------

static rn_status evaluate_sign(rn_jinja_run *run, const rn_jinja_node *node, rn_jinja_value *out) {
    rn_jinja_value value = rn_jinja_none();
    RN_TRY(rn_jinja_evaluate(run, node->left, &value));
    run->at = node->at;
    if (value.type == RN_JINJA_UNDEFINED) return rn_jinja_fail_undefined(run, value);
    if (!rn_jinja_is_number(value))
        return rn_jinja_fail(run, RN_INVALID, "a %s has no sign", rn_jinja_type_name(value.type));
    if (value.type == RN_JINJA_FLOAT) {
        *out = rn_jinja_float(node->kind == RN_NODE_NEGATE ? -value.real : value.real);
        return RN_OK;
    }
    return rn_jinja_calculate(run, node->kind == RN_NODE_NEGATE ? RN_TOKEN_SUB : RN_TOKEN_ADD,
                              rn_jinja_int(0), value, out);
}

static rn_status evaluate_calculation(rn_jinja_run *run, const rn_jinja_node *node,
                                      rn_jinja_value *out) {
    rn_jinja_value a = rn_jinja_none(), b = rn_jinja_none();
    RN_TRY(rn_jinja_evaluate(run, node->left, &a));
    RN_TRY(rn_jinja_evaluate(run, node->right, &b));
    run->at = node->at;
    return rn_jinja_calculate(run, node->op, a, b, out);
}

// `and` and `or` give one of their operands, and look at the second only where they need it.
static rn_status evaluate_choice(rn_jinja_run *run, const rn_jinja_node *node,
                                 rn_jinja_value *out) {
    RN_TRY(rn_jinja_evaluate(run, node->left, out));
    if (rn_jinja_truth(*out) == (node->kind == RN_NODE_OR)) return RN_OK;
    return rn_jinja_evaluate(run, node->right, out);
}

static rn_status evaluate_join(rn_jinja_run *run, const rn_jinja_node *node, rn_jinja_value *out) {
    rn_jinja_list *parts = NULL;
    RN_TRY(evaluate_children(run, node->items, &parts));
    size_t mark = run->out.bytes;
    for (size_t i = 0; i < parts->count; i++)
        RN_TRY(rn_jinja_print(run, parts->items[i]));
    *out = rn_jinja_text((rn_str){"", 0});
    return rn_jinja_take(run, mark, &out->text);
}

// a < b < c is a < b and b < c.
static rn_status evaluate_comparison(rn_jinja_run *run, const rn_jinja_node *node,
                                     rn_jinja_value *out) {
    rn_jinja_value left = rn_jinja_none(), right = rn_jinja_none();
    bool holds = true;
    RN_TRY(rn_jinja_evaluate(run, node->left, &left));
    for (const rn_jinja_node *operand = node->items; operand && holds; operand = operand->next) {
        RN_TRY(rn_jinja_evaluate(run, operand->left, &right));
        run->at = operand->at;
        if (operand->op == RN_TOKEN_IN || operand->op == RN_TOKEN_NOT_IN) {
            RN_TRY(rn_jinja_contains(run, right, left, &holds));
            if (operand->op == RN_TOKEN_NOT_IN) holds = !holds;
        } else {
            RN_TRY(rn_jinja_compare(run, operand->op, left, right, &holds));
        }
        left = right;
    }
    *out = rn_jinja_bool(holds);
    return RN_OK;
}

static rn_status evaluate_condition(rn_jinja_run *run, const rn_jinja_node *node,
                                    rn_jinja_value *out) {
    rn_jinja_value test = rn_jinja_none();
    RN_TRY(rn_jinja_evaluate(run, node->right, &test));
    if (rn_jinja_truth(test)) return rn_jinja_evaluate(run, node->left, out);
    if (node->third) return rn_jinja_evaluate(run, node->third, out);
    *out = rn_jinja_undefined(RN_STR("the else of an inline if"));
    return RN_OK;
}

// ---- calls -------------------------------------------------------------------------------

static rn_status evaluate_arguments(rn_jinja_run *run, const rn_jinja_node *first,
                                    rn_jinja_args *out) {
    size_t count = 0;
    void *names, *values;
    for (const rn_jinja_node *node = first; node; node = node->next)
        count++;
    *out = (rn_jinja_args){0};
    if (count == 0) return RN_OK;
    RN_TRY(rn_jinja_alloc(run, count, sizeof(rn_str), &names));
    RN_TRY(rn_jinja_alloc(run, count, sizeof(rn_jinja_value), &values));
    rn_jinja_value *value = values;
    for (const rn_jinja_node *node = first; node; node = node->next, value++) {
        RN_TRY(rn_jinja_evaluate(run, node->left, value));
        if (node->name.bytes > 0)
            ((rn_str *)names)[out->named_count++] = node->name;
        else
            out->count++;
    }
    out->items = values;
    out->named = out->items + out->count;
    out->names = names;
    return RN_OK;
}

static bool take_named(const rn_jinja_args *args, rn_str name, size_t *io_used,
                       rn_jinja_value *out) {
    for (size_t i = 0; i < args->named_count; i++)
        if (rn_str_equal(args->names[i], name)) {
            *out = args->named[i];
            ++*io_used;
            return true;
        }
    return false;
}

// Gives the macro's parameters their values, in its own scope, which is the innermost already.
static rn_status bind_parameters(rn_jinja_run *run, const rn_jinja_node *macro,
                                 const rn_jinja_args *args) {
    size_t index = 0, used = 0;
    for (const rn_jinja_node *param = macro->others; param; param = param->next, index++) {
        rn_jinja_value value = rn_jinja_undefined(param->name);
        if (index < args->count)
            value = args->items[index];
        else if (!take_named(args, param->name, &used, &value) && param->left)
            RN_TRY(rn_jinja_evaluate(run, param->left, &value));
        RN_TRY(rn_jinja_scope_set(run, param->name, value));
    }
    if (args->count > index || used < args->named_count)
        return rn_jinja_fail(run, RN_INVALID, "the macro '%.*s' does not take these arguments",
                             RN_STR_ARG(macro->name));
    return RN_OK;
}

static rn_status call_macro(rn_jinja_run *run, const rn_jinja_macro *macro,
                            const rn_jinja_args *args, rn_jinja_value *out) {
    rn_jinja_scope *caller = run->scope;
    size_t mark = run->out.bytes;
    RN_TRY(rn_jinja_scope_push(run, macro->scope));
    RN_TRY(bind_parameters(run, macro->node, args));
    RN_TRY(rn_jinja_execute(run, macro->node->items));
    run->scope = caller;
    *out = rn_jinja_text((rn_str){"", 0});
    return rn_jinja_take(run, mark, &out->text);
}

static rn_status evaluate_call(rn_jinja_run *run, const rn_jinja_node *node, rn_jinja_value *out) {
    rn_jinja_value callee = rn_jinja_none();
    rn_jinja_args args = {0};
    RN_TRY(rn_jinja_evaluate(run, node->left, &callee));
    RN_TRY(evaluate_arguments(run, node->items, &args));
    run->at = node->at;
    switch (callee.type) {
    case RN_JINJA_FUNCTION:
        return rn_jinja_builtin_call(run, callee.function, rn_jinja_none(), &args, out);
    case RN_JINJA_METHOD:
        return rn_jinja_builtin_call(run, callee.method->row, callee.method->self, &args, out);
    case RN_JINJA_MACRO:
        return call_macro(run, callee.macro, &args, out);
    case RN_JINJA_UNDEFINED:
        return rn_jinja_fail_undefined(run, callee);
    default:
        return rn_jinja_fail(run, RN_INVALID, "a %s cannot be called",
                             rn_jinja_type_name(callee.type));
    }
}

static rn_status evaluate_builtin(rn_jinja_run *run, const rn_jinja_node *node,
                                  rn_jinja_value *out) {
    rn_jinja_value self = rn_jinja_none();
    rn_jinja_args args = {0};
    bool answer = false;
    RN_TRY(rn_jinja_evaluate(run, node->left, &self));
    RN_TRY(evaluate_arguments(run, node->items, &args));
    run->at = node->at;
    if (node->kind == RN_NODE_FILTER)
        return rn_jinja_builtin_call(run, node->builtin, self, &args, out);
    RN_TRY(rn_jinja_test_ask(run, node->builtin, self, &args, &answer));
    *out = rn_jinja_bool(answer);
    return RN_OK;
}

rn_status rn_jinja_apply_filters(rn_jinja_run *run, const rn_jinja_node *filters, rn_str text,
                                 rn_jinja_value *out) {
    rn_jinja_args args = {0};
    rn_jinja_value input = rn_jinja_text(text);
    *out = input;
    if (!filters) return RN_OK;
    RN_TRY(rn_jinja_enter(run));
    RN_TRY(rn_jinja_apply_filters(run, filters->left, text, &input));
    RN_TRY(evaluate_arguments(run, filters->items, &args));
    run->at = filters->at;
    RN_TRY(rn_jinja_builtin_call(run, filters->builtin, input, &args, out));
    run->depth--;
    return RN_OK;
}

// ---- all of them -------------------------------------------------------------------------

static rn_status evaluate_sequence(rn_jinja_run *run, const rn_jinja_node *node,
                                   rn_jinja_value *out) {
    rn_jinja_list *list = NULL;
    RN_TRY(evaluate_children(run, node->items, &list));
    *out = rn_jinja_sequence(node->kind == RN_NODE_LIST ? RN_JINJA_LIST : RN_JINJA_TUPLE, list);
    return RN_OK;
}

static rn_status evaluate_not(rn_jinja_run *run, const rn_jinja_node *node, rn_jinja_value *out) {
    RN_TRY(rn_jinja_evaluate(run, node->left, out));
    *out = rn_jinja_bool(!rn_jinja_truth(*out));
    return RN_OK;
}

static rn_status evaluate_any(rn_jinja_run *run, const rn_jinja_node *node, rn_jinja_value *out) {
    switch (node->kind) {
    case RN_NODE_CONSTANT:
        *out = node->constant;
        return RN_OK;
    case RN_NODE_NAME:
        *out = rn_jinja_scope_get(run, node->name);
        return RN_OK;
    case RN_NODE_ATTRIBUTE:
    case RN_NODE_ITEM:
        return evaluate_item(run, node, out);
    case RN_NODE_SLICE:
        return evaluate_slice(run, node, out);
    case RN_NODE_CALL:
        return evaluate_call(run, node, out);
    case RN_NODE_FILTER:
    case RN_NODE_TEST:
        return evaluate_builtin(run, node, out);
    case RN_NODE_NOT:
        return evaluate_not(run, node, out);
    case RN_NODE_NEGATE:
    case RN_NODE_PLUS:
        return evaluate_sign(run, node, out);
    case RN_NODE_AND:
    case RN_NODE_OR:
        return evaluate_choice(run, node, out);
    case RN_NODE_CALCULATE:
        return evaluate_calculation(run, node, out);
    case RN_NODE_JOIN:
        return evaluate_join(run, node, out);
    case RN_NODE_COMPARE:
        return evaluate_comparison(run, node, out);
    case RN_NODE_CONDITION:
        return evaluate_condition(run, node, out);
    case RN_NODE_LIST:
    case RN_NODE_TUPLE:
        return evaluate_sequence(run, node, out);
    case RN_NODE_DICT:
        return evaluate_dict(run, node, out);
    default:
        return rn_jinja_fail(run, RN_INTERNAL, "node %d is no expression", (int)node->kind);
    }
}

rn_status rn_jinja_evaluate(rn_jinja_run *run, const rn_jinja_node *node, rn_jinja_value *out) {
    run->at = node->at;
    RN_TRY(rn_jinja_enter(run));
    RN_TRY(evaluate_any(run, node, out));
    run->depth--;
    return RN_OK;
}

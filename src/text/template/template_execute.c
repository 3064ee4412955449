// template_execute.c — statements. Only loops, macros and blocks that are captured have scopes of
// their own: what an `if` sets stays set.
#include "text/template/template_run.h"

#include "text/chat_text.h"

static rn_status unpack(rn_jinja_run *run, const rn_jinja_node *targets, rn_jinja_value value) {
    rn_jinja_iterator walk;
    rn_jinja_list *items = NULL;
    size_t count = 0;
    for (const rn_jinja_node *target = targets; target; target = target->next)
        count++;
    RN_TRY(rn_jinja_iterate(run, value, &walk));
    RN_TRY(rn_jinja_collect(run, &walk, &items));
    if (items->count != count)
        return rn_jinja_fail(run, RN_INVALID, "%zu names for %zu values", count, items->count);
    const rn_jinja_node *target = targets;
    for (size_t i = 0; i < count; i++, target = target->next)
        RN_TRY(rn_jinja_assign(run, target, items->items[i]));
    return RN_OK;
}

static rn_status assign_attribute(rn_jinja_run *run, const rn_jinja_node *target,
                                  rn_jinja_value value) {
    rn_jinja_value space = rn_jinja_scope_get(run, target->name);
    rn_str name = target->constant.text;
    if (space.type != RN_JINJA_NAMESPACE)
        return rn_jinja_fail(run, RN_INVALID, "'%.*s' is no namespace: its '%.*s' cannot be set",
                             RN_STR_ARG(target->name), RN_STR_ARG(name));
    if (rn_str_starts(name, RN_STR("_")))
        return rn_jinja_fail(run, RN_INVALID, "a namespace keeps no names with '_' in front");
    return rn_jinja_dict_set(run, space.dict, rn_jinja_text(name), value);
}

rn_status rn_jinja_assign(rn_jinja_run *run, const rn_jinja_node *target, rn_jinja_value value) {
    run->at = target->at;
    if (target->kind == RN_NODE_TUPLE) return unpack(run, target->items, value);
    if (target->kind == RN_NODE_NAMESPACE_TARGET) return assign_attribute(run, target, value);
    return rn_jinja_scope_set(run, target->name, value);
}

// The statements in a scope of their own; what they print is taken as text.
static rn_status capture(rn_jinja_run *run, const rn_jinja_node *node, rn_jinja_value *out) {
    rn_jinja_scope *scope = run->scope;
    size_t mark = run->out.bytes;
    rn_str text = {"", 0};
    RN_TRY(rn_jinja_scope_push(run, scope));
    RN_TRY(rn_jinja_execute(run, node->items));
    run->scope = scope;
    RN_TRY(rn_jinja_take(run, mark, &text));
    return rn_jinja_apply_filters(run, node->right, text, out);
}

static rn_status run_if(rn_jinja_run *run, const rn_jinja_node *node) {
    for (const rn_jinja_node *branch = node->items; branch; branch = branch->next) {
        rn_jinja_value test = rn_jinja_bool(true);
        if (branch->left) RN_TRY(rn_jinja_evaluate(run, branch->left, &test));
        if (rn_jinja_truth(test)) return rn_jinja_execute(run, branch->items);
    }
    return RN_OK;
}

static rn_status run_set(rn_jinja_run *run, const rn_jinja_node *node) {
    rn_jinja_value value = rn_jinja_none();
    if (node->kind == RN_NODE_SET)
        RN_TRY(rn_jinja_evaluate(run, node->right, &value));
    else
        RN_TRY(capture(run, node, &value));
    return rn_jinja_assign(run, node->left, value);
}

// The values are those outside.
static rn_status run_with(rn_jinja_run *run, const rn_jinja_node *node) {
    rn_jinja_scope *outer = run->scope;
    RN_TRY(rn_jinja_scope_push(run, outer));
    rn_jinja_scope *inner = run->scope;
    for (const rn_jinja_node *pair = node->others; pair; pair = pair->next) {
        rn_jinja_value value = rn_jinja_none();
        run->scope = outer;
        RN_TRY(rn_jinja_evaluate(run, pair->right, &value));
        run->scope = inner;
        RN_TRY(rn_jinja_assign(run, pair->left, value));
    }
    RN_TRY(rn_jinja_execute(run, node->items));
    run->scope = outer;
    return RN_OK;
}

static rn_status define_macro(rn_jinja_run *run, const rn_jinja_node *node) {
    void *block;
    RN_TRY(rn_jinja_alloc(run, 1, sizeof(rn_jinja_macro), &block));
    rn_jinja_macro *macro = block;
    *macro = (rn_jinja_macro){node, run->scope};
    return rn_jinja_scope_set(run, node->name,
                              (rn_jinja_value){.type = RN_JINJA_MACRO, .macro = macro});
}

static rn_status run_capture(rn_jinja_run *run, const rn_jinja_node *node) {
    rn_jinja_value text = rn_jinja_none();
    RN_TRY(capture(run, node, &text));
    return rn_jinja_print(run, text);
}

// {% generation %}: what the assistant says, for trainings.
static rn_status run_generation(rn_jinja_run *run, const rn_jinja_node *node) {
    rn_chat_span span = {.begin = run->out.bytes};
    RN_TRY(run_capture(run, node));
    span.end = run->out.bytes;
    return span.end > span.begin ? rn_buffer_append(&run->spans, &span, sizeof span) : RN_OK;
}

static rn_status run_print(rn_jinja_run *run, const rn_jinja_node *node) {
    rn_jinja_value value = rn_jinja_none();
    RN_TRY(rn_jinja_evaluate(run, node->left, &value));
    run->at = node->left->at;
    return rn_jinja_print(run, value);
}

static rn_status run_statement(rn_jinja_run *run, const rn_jinja_node *node) {
    switch (node->kind) {
    case RN_NODE_DATA:
        return rn_jinja_write(run, node->name);
    case RN_NODE_PRINT:
        return run_print(run, node);
    case RN_NODE_IF:
        return run_if(run, node);
    case RN_NODE_FOR:
        return rn_jinja_run_for(run, node);
    case RN_NODE_SET:
    case RN_NODE_SET_BLOCK:
        return run_set(run, node);
    case RN_NODE_WITH:
        return run_with(run, node);
    case RN_NODE_MACRO:
        return define_macro(run, node);
    case RN_NODE_FILTER_BLOCK:
        return run_capture(run, node);
    case RN_NODE_GENERATION:
        return run_generation(run, node);
    case RN_NODE_BREAK:
    case RN_NODE_CONTINUE:
        run->flow = node->kind == RN_NODE_BREAK ? RN_JINJA_BREAK : RN_JINJA_CONTINUE;
        return RN_OK;
    default:
        return rn_jinja_fail(run, RN_INTERNAL, "node %d is no statement", (int)node->kind);
    }
}

rn_status rn_jinja_execute(rn_jinja_run *run, const rn_jinja_node *statements) {
    RN_TRY(rn_jinja_enter(run));
    for (const rn_jinja_node *node = statements; node && run->flow == RN_JINJA_GO_ON;
         node = node->next) {
        run->at = node->at;
        RN_TRY(rn_jinja_work(run, 0));
        RN_TRY(run_statement(run, node));
    }
    run->depth--;
    return RN_OK;
}

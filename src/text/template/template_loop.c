// template_loop.c — `for` and its `loop`. Items come one at a time, so that a filter (`for x in xs
// if ...`) sees what the body has changed in a namespace; loop.last and loop.nextitem look one item
// ahead, loop.length takes all that are left.
#include "text/template/template_builtin.h"

struct rn_jinja_loop {
    const rn_jinja_node *node;
    rn_jinja_scope *outer; // around the loop
    rn_jinja_value over;
    rn_jinja_iterator walk;
    rn_jinja_value before, current, after; // MISSING where there is none
    int64_t index0;
    int64_t length;         // -1: not known yet
    bool unfiltered;        // what is left has passed the filter already
    rn_jinja_value changed; // what loop.changed saw last
};

// Whether the item passes the loop's filter.
static rn_status passes(rn_jinja_run *run, rn_jinja_loop *loop, rn_jinja_value item, bool *out) {
    rn_jinja_value test = rn_jinja_bool(true);
    rn_jinja_scope *scope = run->scope;
    *out = true;
    if (!loop->node->third || loop->unfiltered) return RN_OK;
    RN_TRY(rn_jinja_scope_push(run, loop->outer));
    RN_TRY(rn_jinja_assign(run, loop->node->left, item));
    RN_TRY(rn_jinja_evaluate(run, loop->node->third, &test));
    run->scope = scope;
    *out = rn_jinja_truth(test);
    return RN_OK;
}

static rn_status fetch(rn_jinja_run *run, rn_jinja_loop *loop, rn_jinja_value *out) {
    for (;;) {
        bool more = false, good = false;
        RN_TRY(rn_jinja_next(run, &loop->walk, &more, out));
        if (!more) {
            *out = (rn_jinja_value){.type = RN_JINJA_MISSING};
            return RN_OK;
        }
        RN_TRY(passes(run, loop, *out, &good));
        if (good) return RN_OK;
    }
}

static rn_status peek(rn_jinja_run *run, rn_jinja_loop *loop) {
    return loop->after.type == RN_JINJA_MISSING ? fetch(run, loop, &loop->after) : RN_OK;
}

static rn_status advance(rn_jinja_run *run, rn_jinja_loop *loop) {
    RN_TRY(peek(run, loop));
    loop->before = loop->current;
    loop->current = loop->after;
    loop->after = (rn_jinja_value){.type = RN_JINJA_MISSING};
    loop->index0++;
    return RN_OK;
}

// Gathers what is left where the length is not known beforehand.
static rn_status measure(rn_jinja_run *run, rn_jinja_loop *loop) {
    size_t length = 0;
    rn_jinja_list *rest = NULL;
    if (loop->length >= 0) return RN_OK;
    if (!loop->node->third && rn_jinja_length(loop->over, &length)) {
        loop->length = (int64_t)length;
        return RN_OK;
    }
    bool ahead = loop->after.type != RN_JINJA_MISSING;
    RN_TRY(rn_jinja_list_new(run, &rest));
    for (;;) {
        rn_jinja_value item = rn_jinja_none();
        RN_TRY(fetch(run, loop, &item));
        if (item.type == RN_JINJA_MISSING) break;
        RN_TRY(rn_jinja_list_add(run, rest, item));
    }
    loop->walk = (rn_jinja_iterator){.of = rn_jinja_sequence(RN_JINJA_LIST, rest)};
    loop->unfiltered = true;
    loop->length = loop->index0 + 1 + ahead + (int64_t)rest->count;
    return RN_OK;
}

static rn_status begin(rn_jinja_run *run, const rn_jinja_node *node, rn_jinja_loop **out) {
    void *block;
    RN_TRY(rn_jinja_alloc(run, 1, sizeof(rn_jinja_loop), &block));
    rn_jinja_loop *loop = block;
    *loop = (rn_jinja_loop){.node = node, .outer = run->scope, .index0 = -1, .length = -1};
    RN_TRY(rn_jinja_evaluate(run, node->right, &loop->over));
    run->at = node->at;
    *out = loop;
    return rn_jinja_iterate(run, loop->over, &loop->walk);
}

static rn_status run_body(rn_jinja_run *run, rn_jinja_loop *loop) {
    RN_TRY(rn_jinja_scope_push(run, loop->outer));
    RN_TRY(rn_jinja_assign(run, loop->node->left, loop->current));
    RN_TRY(rn_jinja_scope_set(run, RN_STR("loop"),
                              (rn_jinja_value){.type = RN_JINJA_LOOP, .loop = loop}));
    RN_TRY(rn_jinja_execute(run, loop->node->items));
    run->scope = loop->outer;
    return RN_OK;
}

rn_status rn_jinja_run_for(rn_jinja_run *run, const rn_jinja_node *node) {
    rn_jinja_loop *loop = NULL;
    bool completed = false; // a body came to its end: in Jinja, only that keeps `else` from running
    RN_TRY(begin(run, node, &loop));
    for (;;) {
        RN_TRY(advance(run, loop));
        if (loop->current.type == RN_JINJA_MISSING) break;
        RN_TRY(run_body(run, loop));
        rn_jinja_flow flow = run->flow;
        run->flow = RN_JINJA_GO_ON;
        if (flow == RN_JINJA_BREAK) break;
        completed = completed || flow == RN_JINJA_GO_ON;
    }
    if (completed || !node->others) return RN_OK;
    RN_TRY(rn_jinja_scope_push(run, loop->outer));
    RN_TRY(rn_jinja_execute(run, node->others));
    run->scope = loop->outer;
    return RN_OK;
}

// ---- loop.* ------------------------------------------------------------------------------

static rn_status cycle(rn_jinja_run *run, rn_jinja_value self, const rn_jinja_args *args,
                       rn_jinja_value *out) {
    if (args->count == 0 || args->named_count > 0)
        return rn_jinja_fail(run, RN_INVALID, "loop.cycle needs items, and no names");
    *out = args->items[(uint64_t)self.loop->index0 % args->count];
    return RN_OK;
}

static rn_status changed(rn_jinja_run *run, rn_jinja_value self, const rn_jinja_args *args,
                         rn_jinja_value *out) {
    rn_jinja_list *now = NULL;
    bool same = false;
    if (args->named_count > 0) return rn_jinja_fail(run, RN_INVALID, "loop.changed takes no names");
    RN_TRY(rn_jinja_list_new(run, &now));
    for (size_t i = 0; i < args->count; i++)
        RN_TRY(rn_jinja_list_add(run, now, args->items[i]));
    rn_jinja_value value = rn_jinja_sequence(RN_JINJA_TUPLE, now);
    if (self.loop->changed.type != RN_JINJA_MISSING)
        RN_TRY(rn_jinja_equal(run, self.loop->changed, value, &same));
    self.loop->changed = value;
    *out = rn_jinja_bool(!same);
    return RN_OK;
}

static const rn_jinja_builtin loop_methods[] = {
    {.name = "cycle", .call_raw = cycle},
    {.name = "changed", .call_raw = changed},
    {.name = NULL},
};

static rn_status get_method(rn_jinja_run *run, rn_jinja_loop *loop, rn_str name,
                            rn_jinja_value *out) {
    const rn_jinja_builtin *row = rn_jinja_row_find(loop_methods, name);
    void *block;
    *out = rn_jinja_undefined(name);
    if (!row) return RN_OK;
    RN_TRY(rn_jinja_alloc(run, 1, sizeof(rn_jinja_method), &block));
    rn_jinja_method *method = block;
    *method = (rn_jinja_method){{.type = RN_JINJA_LOOP, .loop = loop}, row};
    *out = (rn_jinja_value){.type = RN_JINJA_METHOD, .method = method};
    return RN_OK;
}

static rn_status get_length(rn_jinja_run *run, rn_jinja_loop *loop, int64_t minus,
                            rn_jinja_value *out) {
    RN_TRY(measure(run, loop));
    *out = rn_jinja_int(loop->length - minus);
    return RN_OK;
}

static rn_status get_after(rn_jinja_run *run, rn_jinja_loop *loop, bool is_last,
                           rn_jinja_value *out) {
    RN_TRY(peek(run, loop));
    bool none = loop->after.type == RN_JINJA_MISSING;
    *out = is_last ? rn_jinja_bool(none)
           : none  ? rn_jinja_undefined(RN_STR("nextitem"))
                   : loop->after;
    return RN_OK;
}

rn_status rn_jinja_loop_attribute(rn_jinja_run *run, rn_jinja_loop *loop, rn_str name,
                                  rn_jinja_value *out) {
    int64_t index = loop->index0;
    if (rn_str_equal(name, RN_STR("index0")))
        *out = rn_jinja_int(index);
    else if (rn_str_equal(name, RN_STR("index")))
        *out = rn_jinja_int(index + 1);
    else if (rn_str_equal(name, RN_STR("first")))
        *out = rn_jinja_bool(index == 0);
    else if (rn_str_equal(name, RN_STR("depth")))
        *out = rn_jinja_int(1);
    else if (rn_str_equal(name, RN_STR("depth0")))
        *out = rn_jinja_int(0);
    else if (rn_str_equal(name, RN_STR("last")))
        return get_after(run, loop, true, out);
    else if (rn_str_equal(name, RN_STR("nextitem")))
        return get_after(run, loop, false, out);
    else if (rn_str_equal(name, RN_STR("length")))
        return get_length(run, loop, 0, out);
    else if (rn_str_equal(name, RN_STR("revindex")))
        return get_length(run, loop, index, out);
    else if (rn_str_equal(name, RN_STR("revindex0")))
        return get_length(run, loop, index + 1, out);
    else if (rn_str_equal(name, RN_STR("previtem")))
        *out = index == 0 ? rn_jinja_undefined(name) : loop->before;
    else
        return get_method(run, loop, name, out);
    return RN_OK;
}

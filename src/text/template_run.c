// template_run.c — what a rendering may take, and where its names live.
#include "text/template_run.h"

#include "base/checked.h"
#include "text/template_builtin.h"

#include <stdarg.h>
#include <stdio.h>

struct rn_jinja_binding {
    rn_str name;
    rn_jinja_value value;
    rn_jinja_binding *next;
};

rn_status rn_jinja_fail(rn_jinja_run *run, rn_status status, const char *format, ...) {
    char message[768];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return rn_jinja_complain(run->source, run->at, status, "%s", message);
}

rn_status rn_jinja_fail_undefined(rn_jinja_run *run, rn_jinja_value undefined) {
    return rn_jinja_fail(run, RN_INVALID, "'%.*s' is undefined", RN_STR_ARG(undefined.text));
}

static rn_status exceed(rn_jinja_run *run, const char *what) {
    return rn_hint(rn_jinja_fail(run, RN_INVALID, "the chat template %s", what),
                   "shorten the conversation, or use another template");
}

rn_status rn_jinja_work(rn_jinja_run *run, size_t bytes) {
    run->steps += 1 + (bytes >> 10);
    return run->steps > RN_JINJA_MAX_STEPS ? exceed(run, "takes too many steps") : RN_OK;
}

rn_status rn_jinja_enter(rn_jinja_run *run) {
    RN_TRY(rn_jinja_work(run, 0));
    if (++run->depth > RN_JINJA_MAX_DEPTH) return exceed(run, "nests too deeply");
    return RN_OK;
}

rn_status rn_jinja_alloc(rn_jinja_run *run, size_t count, size_t item_bytes, void **out) {
    size_t bytes, total;
    *out = NULL;
    if (!rn_mul_size(count, item_bytes, &bytes) ||
        !rn_add_size(run->arena.held_bytes, bytes, &total) || total > RN_JINJA_MAX_VALUE_BYTES ||
        (run->most_bytes && total > run->most_bytes))
        return exceed(run, "holds too much text at once");
    return rn_arena_alloc(&run->arena, bytes, out);
}

rn_status rn_jinja_write(rn_jinja_run *run, rn_str text) {
    RN_TRY(rn_jinja_work(run, text.bytes));
    size_t most = RN_JINJA_MAX_OUTPUT_BYTES;
    if (run->most_bytes && run->most_bytes < most) most = run->most_bytes;
    if (text.bytes > most || run->out.bytes > most - text.bytes)
        return exceed(run, "writes too much text");
    return rn_buffer_append(&run->out, text.data, text.bytes);
}

rn_status rn_jinja_take(rn_jinja_run *run, size_t mark, rn_str *out) {
    size_t bytes = run->out.bytes - mark;
    void *copy;
    *out = (rn_str){"", 0};
    RN_TRY(rn_jinja_alloc(run, bytes, 1, &copy));
    if (bytes) memcpy(copy, run->out.data + mark, bytes);
    run->out.bytes = mark;
    *out = (rn_str){copy, bytes};
    return RN_OK;
}

rn_status rn_jinja_scope_push(rn_jinja_run *run, rn_jinja_scope *outer) {
    void *block;
    RN_TRY(rn_jinja_alloc(run, 1, sizeof(rn_jinja_scope), &block));
    run->scope = block;
    run->scope->outer = outer;
    return RN_OK;
}

// The walk counts as steps, so that very many names cannot make it slow.
static rn_jinja_binding *find(rn_jinja_run *run, const rn_jinja_scope *scope, rn_str name) {
    rn_jinja_binding *binding = scope->first;
    size_t walked = 0;
    for (; binding && !rn_str_equal(binding->name, name); binding = binding->next)
        walked++;
    run->steps += walked >> 4;
    return binding;
}

rn_status rn_jinja_scope_set(rn_jinja_run *run, rn_str name, rn_jinja_value value) {
    rn_jinja_binding *binding = find(run, run->scope, name);
    if (!binding) {
        void *block;
        RN_TRY(rn_jinja_alloc(run, 1, sizeof(rn_jinja_binding), &block));
        binding = block;
        *binding = (rn_jinja_binding){.name = name, .next = run->scope->first};
        run->scope->first = binding;
    }
    binding->value = value;
    return RN_OK;
}

rn_jinja_value rn_jinja_scope_get(rn_jinja_run *run, rn_str name) {
    for (const rn_jinja_scope *scope = run->scope; scope; scope = scope->outer) {
        const rn_jinja_binding *binding = find(run, scope, name);
        if (binding) return binding->value;
    }
    const rn_jinja_builtin *function = rn_jinja_function_find(name);
    if (!function || (run->now == 0 && rn_str_equal(name, RN_STR("strftime_now"))))
        return rn_jinja_undefined(name);
    return (rn_jinja_value){.type = RN_JINJA_FUNCTION, .function = function};
}

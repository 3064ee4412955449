// template_run.c — what a rendering may take, and where its names live.
#include "text/template/template_run.h"

#include "text/chat_text.h"

#include "base/checked.h"
#include "text/template/template_builtin.h"

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

// ---- texts -------------------------------------------------------------------------------

struct rn_jinja_block {
    rn_jinja_block *next;
    char *text;    // (bytes)
    uint8_t *bits; // (rn_taint_bytes(bytes))
    size_t bytes, used;
};

// A sixteenth of what is held already: few blocks to search, and little of the last one is lost.
// A text that is larger gets a block of its own behind the first, whose rest is still used.
static rn_status add_block(rn_jinja_run *run, size_t bytes, rn_jinja_block **out) {
    enum { LEAST_BYTES = 4 << 10 };
    void *memory;
    size_t usual = (size_t)rn_max_u64(LEAST_BYTES, run->arena.held_bytes / 16), all;
    bool alone = bytes > usual;
    if (!alone) bytes = usual;
    if (!rn_add_size(bytes, rn_taint_bytes(bytes), &all) ||
        !rn_add_size(all, sizeof(rn_jinja_block), &all))
        return exceed(run, "holds too much text at once");
    RN_TRY(rn_jinja_alloc(run, all, 1, &memory));
    rn_jinja_block *block = memory, **link = &run->blocks;
    block->text = (char *)(block + 1);
    block->bits = (uint8_t *)block->text + bytes;
    block->bytes = bytes;
    if (alone && *link) link = &(*link)->next;
    block->next = *link;
    *link = block;
    *out = block;
    return RN_OK;
}

rn_status rn_jinja_make_text(rn_jinja_run *run, size_t bytes, rn_jinja_made *out) {
    rn_jinja_block *block = run->blocks;
    if (!block || block->bytes - block->used < bytes) RN_TRY(add_block(run, bytes, &block));
    *out = (rn_jinja_made){block->text + block->used, block->bits, block->used};
    block->used += bytes;
    return RN_OK;
}

// What lies in no block is the template's, or a number's digits. The walk counts as steps.
rn_taint rn_jinja_taint_of(rn_jinja_run *run, rn_str text) {
    uintptr_t at = (uintptr_t)text.data;
    size_t walked = 0;
    const rn_jinja_block *block = text.bytes ? run->blocks : NULL;
    for (; block; block = block->next, walked++)
        if (at >= (uintptr_t)block->text && at < (uintptr_t)block->text + block->bytes) break;
    run->steps += walked >> 4;
    if (!block) return (rn_taint){0};
    return (rn_taint){block->bits, (size_t)(text.data - block->text)};
}

rn_status rn_jinja_copy_foreign(rn_jinja_run *run, rn_str text, rn_str *out) {
    rn_jinja_made made;
    *out = (rn_str){"", 0};
    if (text.bytes == 0) return RN_OK;
    RN_TRY(rn_jinja_make_text(run, text.bytes, &made));
    memcpy(made.text, text.data, text.bytes);
    for (size_t i = 0; i < text.bytes; i++)
        rn_taint_put(made.bits, made.first + i, true);
    *out = (rn_str){made.text, text.bytes};
    return RN_OK;
}

// ---- the output --------------------------------------------------------------------------

static rn_status grow_taint(rn_jinja_run *run) {
    static const char zeros[256] = {0};
    for (size_t need; (need = rn_taint_bytes(run->out.bytes)) > run->taint.bytes;)
        RN_TRY(rn_buffer_append(&run->taint, zeros,
                                (size_t)rn_min_u64(sizeof zeros, need - run->taint.bytes)));
    return RN_OK;
}

rn_status rn_jinja_write(rn_jinja_run *run, rn_str text) {
    RN_TRY(rn_jinja_work(run, text.bytes));
    size_t most = RN_JINJA_MAX_OUTPUT_BYTES, at = run->out.bytes;
    if (run->most_bytes && run->most_bytes < most) most = run->most_bytes;
    if (text.bytes > most || at > most - text.bytes) return exceed(run, "writes too much text");
    RN_TRY(rn_buffer_append(&run->out, text.data, text.bytes));
    RN_TRY(grow_taint(run));
    rn_taint_copy((uint8_t *)run->taint.data, at, rn_jinja_taint_of(run, text), text.bytes);
    return RN_OK;
}

// Spans of what is taken back are no longer anywhere.
static void lose_spans(rn_jinja_run *run, size_t mark) {
    const rn_chat_span *spans = (const void *)run->spans.data;
    while (run->spans.bytes && spans[run->spans.bytes / sizeof *spans - 1].end > mark) {
        run->spans.bytes -= sizeof *spans;
        run->spans_lost = true;
    }
}

rn_status rn_jinja_take(rn_jinja_run *run, size_t mark, rn_str *out) {
    size_t bytes = run->out.bytes - mark;
    rn_jinja_made made;
    *out = (rn_str){"", 0};
    lose_spans(run, mark);
    if (bytes == 0) return RN_OK;
    RN_TRY(rn_jinja_make_text(run, bytes, &made));
    memcpy(made.text, run->out.data + mark, bytes);
    rn_jinja_made_of(&made, 0, (rn_taint){(const uint8_t *)run->taint.data, mark}, bytes);
    run->out.bytes = mark;
    *out = (rn_str){made.text, bytes};
    return RN_OK;
}

// ---- names -------------------------------------------------------------------------------

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

// template_run.h — one rendering: its memory, its limits, its scopes, its output.
//
// The output is one growing buffer. A part of it that is needed as a value (a macro's result, a
// `set` block, str(x)) is written to its end, copied out and cut off again, so nothing has to be
// freed where a rendering fails.
//
// Which bytes came from a message is known by their address. Texts that a rendering makes, and the
// messages themselves, lie in blocks that have a bit for each byte (taint.h); what lies elsewhere
// is the template's. A part of a text needs no thought, its bytes lie where they lay. A copy takes
// its bits along: rn_jinja_write and rn_jinja_take do, and so does whoever calls
// rn_jinja_make_text.
#ifndef RN_TEXT_TEMPLATE_RUN_H
#define RN_TEXT_TEMPLATE_RUN_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/str.h"
#include "text/taint.h"
#include "text/template/template_node.h"
#include "text/template/template_value.h"

enum {
    RN_JINJA_MAX_STEPS = 1000000, // evaluated nodes, walked items, KiB of text touched
    RN_JINJA_MAX_DEPTH = 250,     // nodes within nodes, macros within macros, values within values
    RN_JINJA_MAX_RANGE = 100000,  // items of a range, as in Jinja's sandbox
};
#define RN_JINJA_MAX_OUTPUT_BYTES ((size_t)16 << 20)
#define RN_JINJA_MAX_VALUE_BYTES  ((size_t)64 << 20)

typedef struct rn_jinja_binding rn_jinja_binding;
typedef struct rn_jinja_scope rn_jinja_scope;
typedef struct rn_jinja_block rn_jinja_block;

struct rn_jinja_scope {
    rn_jinja_scope *outer;
    rn_jinja_binding *first;
};

struct rn_jinja_macro {
    const rn_jinja_node *node;
    rn_jinja_scope *scope; // where it was defined
};

typedef enum rn_jinja_flow { RN_JINJA_GO_ON, RN_JINJA_BREAK, RN_JINJA_CONTINUE } rn_jinja_flow;

struct rn_jinja_run {
    const rn_jinja_source *source;
    rn_arena arena;
    rn_buffer out;
    rn_buffer taint;        // of `out`: rn_taint_bytes(out.bytes), zeroed when it is new
    rn_jinja_block *blocks; // of text; the first is the one that is being filled
    rn_jinja_scope *scope;  // the innermost
    rn_jinja_flow flow;     // what `break` and `continue` ask of the loop around them
    uint32_t at;            // the place in the source that is being evaluated
    uint64_t steps;
    int depth;
    rn_buffer spans;   // rn_chat_span, of `out`: what stands between generation and endgeneration
    bool spans_lost;   // one was printed into a value, whose place nobody knows
    size_t most_bytes; // see rn_chat; 0: the limits below
    int64_t now;       // see rn_chat; 0: strftime_now is undefined
};

// an error that begins with the template's name, line and column.
rn_status rn_jinja_fail(rn_jinja_run *run, rn_status status, const char *format, ...)
    RN_PRINTF(3, 4);
// For an operation on UNDEFINED.
rn_status rn_jinja_fail_undefined(rn_jinja_run *run, rn_jinja_value undefined);

// Counts `bytes` of text that are about to be touched, and one step.
RN_MUST_USE rn_status rn_jinja_work(rn_jinja_run *run, size_t bytes);
// One level deeper; leaving is run->depth--.
RN_MUST_USE rn_status rn_jinja_enter(rn_jinja_run *run);
// Zeroed memory that lives as long as the rendering.
RN_MUST_USE rn_status rn_jinja_alloc(rn_jinja_run *run, size_t count, size_t item_bytes,
                                     void **out);
// Text that is being made, and its bits; nothing of it is tainted yet.
typedef struct rn_jinja_made {
    char *text;
    uint8_t *bits;
    size_t first; // the bit of text[0]
} rn_jinja_made;
RN_MUST_USE rn_status rn_jinja_make_text(rn_jinja_run *run, size_t bytes, rn_jinja_made *out);
// Bytes [at, at + count) of it are made of as many that are tainted so.
static inline void rn_jinja_made_of(const rn_jinja_made *made, size_t at, rn_taint taint,
                                    size_t count) {
    rn_taint_copy(made->bits, made->first + at, taint, count);
}
rn_taint rn_jinja_taint_of(rn_jinja_run *run, rn_str text);
// A copy of what a stranger wrote: tainted.
RN_MUST_USE rn_status rn_jinja_copy_foreign(rn_jinja_run *run, rn_str text, rn_str *out);
// JSON that a stranger wrote, which has been checked to be JSON. RN_INVALID: a call's arguments are
// a text that is none.
RN_MUST_USE rn_status rn_jinja_from_json(rn_jinja_run *run, rn_str text, rn_jinja_value *out);
RN_MUST_USE rn_status rn_jinja_write(rn_jinja_run *run, rn_str text);
// Takes the output from `mark` (an earlier run->out.bytes) on as a value.
RN_MUST_USE rn_status rn_jinja_take(rn_jinja_run *run, size_t mark, rn_str *out);

// A new scope inside `outer` becomes the innermost.
RN_MUST_USE rn_status rn_jinja_scope_push(rn_jinja_run *run, rn_jinja_scope *outer);
// In the innermost scope.
RN_MUST_USE rn_status rn_jinja_scope_set(rn_jinja_run *run, rn_str name, rn_jinja_value value);
// UNDEFINED where nobody has set it.
rn_jinja_value rn_jinja_scope_get(rn_jinja_run *run, rn_str name);

// ---- the evaluator -----------------------------------------------------------------------

RN_MUST_USE rn_status rn_jinja_evaluate(rn_jinja_run *run, const rn_jinja_node *node,
                                        rn_jinja_value *out);
// A list of filters, applied to a block's text.
RN_MUST_USE rn_status rn_jinja_apply_filters(rn_jinja_run *run, const rn_jinja_node *filters,
                                             rn_str text, rn_jinja_value *out);
// a op b, for + - * / // %.
RN_MUST_USE rn_status rn_jinja_calculate(rn_jinja_run *run, rn_jinja_token_kind op,
                                         rn_jinja_value a, rn_jinja_value b, rn_jinja_value *out);
// a op b, for == != < <= > >=.
RN_MUST_USE rn_status rn_jinja_compare(rn_jinja_run *run, rn_jinja_token_kind op, rn_jinja_value a,
                                       rn_jinja_value b, bool *out);
// Carries out statements until the end, or until run->flow says otherwise.
RN_MUST_USE rn_status rn_jinja_execute(rn_jinja_run *run, const rn_jinja_node *statements);
RN_MUST_USE rn_status rn_jinja_assign(rn_jinja_run *run, const rn_jinja_node *target,
                                      rn_jinja_value value);
RN_MUST_USE rn_status rn_jinja_run_for(rn_jinja_run *run, const rn_jinja_node *node);
// loop.name.
RN_MUST_USE rn_status rn_jinja_loop_attribute(rn_jinja_run *run, rn_jinja_loop *loop, rn_str name,
                                              rn_jinja_value *out);

#endif

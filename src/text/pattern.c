// pattern.c — PCRE2 with its memory on the ledger, its just-in-time compiler where the system lets
// it, and limits, because expressions come from files. PCRE2 frees without saying sizes, so its
// blocks carry theirs in front.
#include "text/pattern.h"

#include "base/buffer.h"
#include "base/map.h"

#include <ration/memory.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdatomic.h>

enum {
    EXPRESSION_CAP_BYTES = 64 << 10,
    HEADER_BYTES = 16,
    MATCH_LIMIT = 1000000,
    HEAP_LIMIT_KIB = 64 << 10,
    STACK_START_BYTES = 32 << 10,
    STACK_BYTES = 8 << 20
};

#define STACK_ACCOUNT ((rn_account){.device = RN_DEVICE_HOST, .purpose = RN_PURPOSE_OTHER})

struct rn_pattern {
    const rn_allocator *from;
    pcre2_general_context *general;
    pcre2_code *code;
    rn_scan scan;
    uint64_t hash;       // of the expression
    atomic_bool refused; // an allocation was, once
};

static void *take(size_t bytes, void *self) {
    rn_pattern *pattern = self;
    void *block = NULL;
    if (bytes > SIZE_MAX - HEADER_BYTES ||
        rn_alloc(pattern->from, bytes + HEADER_BYTES, &block) != RN_OK) {
        pattern->refused = true;
        return NULL;
    }
    memcpy(block, &bytes, sizeof bytes);
    return (char *)block + HEADER_BYTES;
}

static void give(void *block, void *self) {
    const rn_pattern *pattern = self;
    size_t bytes;
    if (!block) return;
    char *start = (char *)block - HEADER_BYTES;
    memcpy(&bytes, start, sizeof bytes);
    rn_free(pattern->from, start, bytes + HEADER_BYTES);
}

// Why `take` gave nothing: its error is the last one.
static rn_status refusal(void) {
    return rn_last_error()->status == RN_OVER_BUDGET ? RN_OVER_BUDGET : RN_NO_MEMORY;
}

// ---- from Oniguruma's syntax ------------------------------------------------------------

typedef struct translation {
    rn_str from;
    size_t at;
    int depth; // of classes
    rn_buffer *to;
} translation;

static char peek(const translation *t, size_t ahead) {
    return t->at + ahead < t->from.bytes ? t->from.data[t->at + ahead] : 0;
}

static rn_status refuse(const char *what) {
    return rn_fail(RN_UNSUPPORTED, "%s in an expression of the tokenizer", what);
}

static rn_status copy(translation *t, size_t bytes) {
    if (bytes > t->from.bytes - t->at) bytes = t->from.bytes - t->at;
    RN_TRY(rn_buffer_append(t->to, t->from.data + t->at, bytes));
    t->at += bytes;
    return RN_OK;
}

// A class within a class is a union: its brackets go, unless it is [:name:] or negated.
static rn_status translate_in_class(translation *t) {
    char c = peek(t, 0);
    if (c == '&' && peek(t, 1) == '&') return refuse("&& (an intersection of classes)");
    if (c == '[' && peek(t, 1) == ':') {
        size_t end = t->at + 2;
        while (end + 1 < t->from.bytes &&
               !(t->from.data[end] == ':' && t->from.data[end + 1] == ']'))
            end++;
        return copy(t, end + 2 - t->at);
    }
    if (c == '[') {
        if (peek(t, 1) == '^') return refuse("a negated class within a class");
        t->depth++;
        t->at++;
        return RN_OK;
    }
    if (c == ']' && t->depth-- > 1) {
        t->at++;
        return RN_OK;
    }
    return copy(t, 1);
}

static rn_status translate_next(translation *t) {
    char c = peek(t, 0);
    if (c == '\\') {
        char escaped = peek(t, 1);
        if (escaped == 'h' || escaped == 'H') return refuse("\\h");
        return copy(t, 2);
    }
    if (t->depth > 0) return translate_in_class(t);
    if (c != '[') return copy(t, 1);
    t->depth = 1;
    RN_TRY(copy(t, peek(t, 1) == '^' ? 2 : 1));
    return peek(t, 0) == ']' ? copy(t, 1) : RN_OK; // a bracket that comes first is itself
}

static rn_status translate(rn_str from, rn_buffer *to) {
    translation t = {.from = from, .to = to};
    while (t.at < from.bytes)
        RN_TRY(translate_next(&t));
    return RN_OK;
}

// ---- compiling --------------------------------------------------------------------------

static rn_status compile(rn_pattern *pattern, rn_str expression, bool literal) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    uint32_t options =
        PCRE2_UTF |
        (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
    pcre2_compile_context *context = pcre2_compile_context_create(pattern->general);
    if (!context) return refusal();
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pattern->code = pcre2_compile((PCRE2_SPTR)expression.data, expression.bytes, options, &error,
                                  &offset, context);
    pcre2_compile_context_free(context);
    if (!pattern->code && error == PCRE2_ERROR_HEAP_FAILED) return refusal();
    if (!pattern->code) {
        char why[128] = "";
        pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
        return rn_fail(RN_UNSUPPORTED, "the tokenizer's expression at byte %zu: %s", offset, why);
    }
    // Without it (a hardened kernel) matching is slower, not different.
    (void)pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE);
    return pattern->refused ? refusal() : RN_OK;
}

static rn_status make(rn_pattern *pattern, rn_str expression, bool literal) {
    if (expression.bytes == 0) return refuse("nothing");
    if (expression.bytes > EXPRESSION_CAP_BYTES) return refuse("more than 64 KiB");
    pattern->general = pcre2_general_context_create(take, give, pattern);
    if (!pattern->general) return refusal();
    if (literal) return compile(pattern, expression, true);
    pattern->scan = rn_scan_for(expression);
    rn_buffer translated;
    rn_buffer_init(&translated, pattern->from, EXPRESSION_CAP_BYTES);
    rn_status s = translate(expression, &translated);
    if (s == RN_OK) s = compile(pattern, (rn_str){translated.data, translated.bytes}, false);
    rn_buffer_free(&translated);
    return s;
}

rn_status rn_pattern_compile(const rn_allocator *from, rn_str expression, bool literal,
                             rn_pattern **out) {
    void *block;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(from, 1, sizeof(rn_pattern), &block));
    rn_pattern *pattern = block;
    pattern->from = from;
    pattern->hash = rn_hash(expression.data, expression.bytes, literal);
    rn_status s = make(pattern, expression, literal);
    if (s == RN_OK)
        *out = pattern;
    else
        rn_pattern_destroy(pattern);
    return s;
}

void rn_pattern_destroy(rn_pattern *pattern) {
    if (!pattern) return;
    pcre2_code_free(pattern->code);
    pcre2_general_context_free(pattern->general);
    rn_free(pattern->from, pattern, sizeof *pattern);
}

rn_scan rn_pattern_scan(const rn_pattern *pattern) {
    return pattern->scan;
}

bool rn_pattern_is(const rn_pattern *pattern, rn_str expression) {
    if (pattern->scan != RN_SCAN_NONE && pattern->scan == rn_scan_for(expression)) return true;
    return pattern->hash == rn_hash(expression.data, expression.bytes, false);
}

// ---- matching ---------------------------------------------------------------------------

void rn_matching_free(rn_matching *matching) {
    pcre2_match_data_free(matching->data);
    pcre2_match_context_free(matching->context);
    if (matching->stack) rn_ledger_release(STACK_ACCOUNT, NULL, STACK_BYTES);
    pcre2_jit_stack_free(matching->stack);
    *matching = (rn_matching){0};
}

static rn_status prepare(const rn_pattern *pattern, rn_matching *matching) {
    if (matching->data) return RN_OK;
    matching->context = pcre2_match_context_create(pattern->general);
    if (!matching->context) return refusal();
    pcre2_set_match_limit(matching->context, MATCH_LIMIT);
    pcre2_set_heap_limit(matching->context, HEAP_LIMIT_KIB);
    matching->data = pcre2_match_data_create(1, pattern->general);
    return matching->data ? RN_OK : refusal();
}

// The machine's stack is enough for nearly all text; a larger one is made when it was not.
static int match_deeply(const rn_pattern *pattern, rn_matching *matching, rn_str text, size_t from,
                        uint32_t options) {
    int rc = pcre2_match(pattern->code, (PCRE2_SPTR)text.data, text.bytes, from, options,
                         matching->data, matching->context);
    if (rc != PCRE2_ERROR_JIT_STACKLIMIT || matching->stack) return rc;
    // It is mapped by PCRE2's compiler, which asks no allocator: charged here.
    if (rn_budget_charge(STACK_ACCOUNT, NULL, STACK_BYTES) != RN_OK) return PCRE2_ERROR_NOMEMORY;
    matching->stack = pcre2_jit_stack_create(STACK_START_BYTES, STACK_BYTES, pattern->general);
    if (!matching->stack) {
        rn_ledger_release(STACK_ACCOUNT, NULL, STACK_BYTES);
        return PCRE2_ERROR_NOMEMORY;
    }
    pcre2_jit_stack_assign(matching->context, NULL, matching->stack);
    return pcre2_match(pattern->code, (PCRE2_SPTR)text.data, text.bytes, from, options,
                       matching->data, matching->context);
}

rn_status rn_pattern_next(const rn_pattern *pattern, rn_matching *matching, rn_str text,
                          size_t from, bool not_empty, rn_match *out) {
    uint32_t options = PCRE2_NO_UTF_CHECK | (not_empty ? PCRE2_NOTEMPTY_ATSTART : 0);
    *out = (rn_match){0};
    RN_TRY(prepare(pattern, matching));
    int rc = match_deeply(pattern, matching, text, from, options);
    if (rc == PCRE2_ERROR_NOMATCH) return RN_OK;
    if (rc == PCRE2_ERROR_NOMEMORY) return rn_fail(RN_NO_MEMORY, "no memory to match with");
    if (rc < 0)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "the tokenizer's expression gives up on this text"),
                       "cut the text into lines and encode them one by one");
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(matching->data);
    *out = (rn_match){true, ends[0], ends[1]};
    return RN_OK;
}

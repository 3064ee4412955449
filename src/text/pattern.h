// pattern.h — the expressions of tokenizer files, by PCRE2 or by a scanner where there is one.
//
// Files are written for Oniguruma (its Ruby syntax). What it reads differently is translated
// (classes within classes, ^ and $ as lines' ends) or refused by name (&& in classes, \h), never
// matched wrongly.
#ifndef RN_TEXT_PATTERN_H
#define RN_TEXT_PATTERN_H

#include "base/alloc.h"
#include "text/scan.h"

typedef struct rn_pattern rn_pattern;

// `literal`: the text itself is looked for. RN_UNSUPPORTED says what is not understood.
RN_MUST_USE rn_status rn_pattern_compile(const rn_allocator *from, rn_str expression, bool literal,
                                         rn_pattern **out);
void rn_pattern_destroy(rn_pattern *pattern);
// RN_SCAN_NONE, or how rn_scan_next cuts text the same way, faster.
rn_scan rn_pattern_scan(const rn_pattern *pattern);
// Whether this is the expression that it was compiled from, or one with the same scanner.
bool rn_pattern_is(const rn_pattern *pattern, rn_str expression);

// What one thread needs to match; {0} is ready, one for each call.
typedef struct rn_matching {
    void *data, *context, *stack;
} rn_matching;
void rn_matching_free(rn_matching *matching);

typedef struct rn_match {
    bool found;
    size_t start, end; // in the text; may be equal
} rn_match;
// The first match that begins at `from` or later (with `not_empty`: that is not empty at `from`).
// `text` is
// UTF-8. RN_UNSUPPORTED: the expression needs more steps or memory than it may have.
RN_MUST_USE rn_status rn_pattern_next(const rn_pattern *pattern, rn_matching *matching, rn_str text,
                                      size_t from, bool not_empty, rn_match *out);

#endif

// foreign.h — what the readers of other programs' profiles share: words, numbers, texts, times.
#ifndef RN_PROFILE_FOREIGN_H
#define RN_PROFILE_FOREIGN_H

#include <ration/memory.h>

#include "base/alloc.h"
#include "base/str.h"

// What others call it, as a purpose: "parameter", "weight", "kv_cache", "optimizer_state", ... and
// ration's own names. RN_PURPOSE_OTHER for what is not known.
rn_purpose rn_foreign_purpose(rn_str word);

// A decimal number, "-12.5e3", whatever the locale. False for anything else.
bool rn_foreign_number(rn_str text, double *out);

// ISO 8601, "2025-01-13T10:29:45[.123456][Z|+01:00]" (a space may stand for the T), or seconds
// since the epoch as a number. Times without an offset count as UTC. Nanoseconds since the epoch.
bool rn_foreign_time(rn_str text, int64_t *out_ns);

// Text of a bounded length, safe to show: what is not UTF-8 and control characters become '?', and
// what does not fit is left out, whole characters at a time.
typedef struct rn_foreign_text {
    char data[1024];
    size_t bytes;
} rn_foreign_text;
void rn_foreign_append(rn_foreign_text *text, rn_str more);
void rn_foreign_print(rn_foreign_text *text, const char *format, ...) RN_PRINTF(2, 3);
static inline rn_str rn_foreign_str(const rn_foreign_text *text) {
    return (rn_str){text->data, text->bytes};
}

// Room for one more item in an array that doubles; *items (a pointer to the array's pointer) and
// *capacity change where it needs another block.
RN_MUST_USE rn_status rn_foreign_grow(const rn_allocator *from, void *items, size_t count,
                                      size_t *capacity, size_t item_bytes);

#endif

// diff.h — two reports put side by side: rows of the same name in one row.
#ifndef RN_PROFILE_DIFF_H
#define RN_PROFILE_DIFF_H

#include "profile/timeline/report.h"

typedef struct rn_diff_row {
    const char *text;
    const void *sides[2]; // the row of `a` and of `b`, or NULL
    uint64_t size;        // of the change: they are in its order, the largest first
} rn_diff_row;

typedef struct rn_diff_table {
    const rn_allocator *from;
    rn_diff_row *rows; // (count)
    size_t count, capacity;
} rn_diff_table;

// Freed by the caller, also where it failed. Sides are rn_report_row; NULL tables are empty.
RN_MUST_USE rn_status rn_diff_tables(const rn_allocator *from, const rn_report_table *a,
                                     const rn_report_table *b, rn_diff_table *out);
// Sides are rn_report_op; the change is that of their own time.
RN_MUST_USE rn_status rn_diff_ops(const rn_report *a, const rn_report *b, rn_diff_table *out);
void rn_diff_free(rn_diff_table *table);

uint64_t rn_diff_bytes(const rn_diff_row *row, int side); // 0 where it is not there

#endif

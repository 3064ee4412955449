// report.h — the numbers of a report, gathered once for its text, its JSON and comparisons.
#ifndef RN_PROFILE_REPORT_H
#define RN_PROFILE_REPORT_H

#include "profile/timeline.h"

// Blocks that have something in common.
typedef struct rn_report_row {
    const char *text; // "" where they have no name; as in the file
    uint64_t bytes, count;
    const char *detail; // of a call stack: its frames, one a line; else NULL
} rn_report_row;

typedef struct rn_report_table {
    rn_report_row *rows; // (count), most bytes first
    size_t count, capacity;
} rn_report_table;

// All operations of one name.
typedef struct rn_report_op {
    const char *text;
    uint64_t count, unfinished_count;
    uint64_t self_ns; // without operations within them
    // The next are of those that do not lie within another of the same name: its sums have them.
    uint64_t total_ns;
    uint64_t alloc_count, free_count, allocated_bytes;
    int64_t delta_bytes, inner_delta_bytes;
    uint64_t peak_bytes; // of the one with the highest
    bool is_told;        // count and delta_bytes are the file's own sums; then as well:
    int64_t most_delta_bytes;
} rn_report_op;

typedef struct rn_report_device {
    uint8_t device;
    rn_timeline_level peak, moment; // moment: what the tables below are about
    uint64_t active_peak_bytes, active_peak_ns;
    uint64_t counted_bytes, counted_ns; // 0: unknown; the same for the next
    uint64_t budget_bytes, predicted_peak_bytes, resident_peak_bytes;
    uint64_t predicted_count;                   // samples of the predicted curve
    uint64_t most_over_bytes, most_under_bytes; // in use against it, at its samples
    rn_report_table purposes, blocks, ops;      // in use at the moment
    rn_report_table sites;                      // of it, by where it was asked for
    uint32_t *live;                             // (live_count): allocs, largest first
    size_t live_count;
    rn_report_table left;            // live at the end, by the operation that made it and has ended
    uint64_t left_bytes, left_count; // of these
    uint64_t end_bytes, end_count;   // all that is in use at the end
} rn_report_device;

// What was held at a mark.
typedef struct rn_report_held {
    uint64_t reserved_bytes, active_bytes;
} rn_report_held;

typedef struct rn_report {
    const rn_timeline *timeline;
    bool at_peak;
    uint64_t at_ns;                          // else
    size_t rows;                             // of each table in print
    rn_report_device devices[RN_DEVICE_MAX]; // those that hold or count something
    size_t device_count;
    rn_report_op *ops; // (op_count), most time of their own first
    size_t op_count, op_capacity;
    rn_report_held *held;        // (mark_count, device_count of the report)
    uint32_t *name_ids, *groups; // (name_count): names with the same text have the same number
    uint32_t *rows_of;           // (name_count): scratch
} rn_report;

// Freed by the caller, also where it failed. `options` may be NULL.
RN_MUST_USE rn_status rn_report_make(const rn_timeline *t, const rn_report_options *options,
                                     rn_report *out);
void rn_report_free(rn_report *report);

// A text of a file, cut and safe to print on one line; `instead` where it is empty.
typedef struct rn_label {
    char text[72];
} rn_label;
rn_label rn_label_of(const char *text, const char *instead);
// "+1.50 MiB", "-12 B", "0 B".
rn_size_text rn_change_format(int64_t bytes);

#endif

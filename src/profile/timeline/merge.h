// merge.h — the recordings of several processes (ranks) as one timeline.
//
// A merged file is the recordings themselves, one behind the other, so nothing is lost and any of
// them can be cut out again:
//
//     "RNMERGE1"  count u32  0 u32   { bytes u64, a trace, zeros up to a multiple of 8 } count
//     times
//
// All clocks become rank 0's. The wall clock of each recording's beginning is the first guess;
// collectives say the rest: nobody leaves a barrier or an all-reduce before the last has entered
// it, so their ends are one moment, but for the network. A collective is an operation whose label
// has the group RN_COLLECTIVE_GROUP; the k-th of one rank is the k-th of all.
#ifndef RN_PROFILE_MERGE_H
#define RN_PROFILE_MERGE_H

#include "profile/timeline.h"

#define RN_MERGE_MAGIC      "RNMERGE1"
#define RN_MERGE_MAGIC_SIZE 8
// The group of collectives' labels: rn_profile_label("all_reduce", RN_COLLECTIVE_GROUP, "64 MiB").
#define RN_COLLECTIVE_GROUP "comm"
// A counter (RN_COUNTER_OTHER) of this name says which rank a recording is; else its place in the
// file does.
#define RN_RANK_COUNTER "comm rank"
#define RN_MERGE_MOST   RN_DEVICE_MAX // ranks: each has at least a host

// As the other readers of timeline.h. RN_CORRUPT where two parts say that they are one rank.
RN_MUST_USE rn_status rn_merge_read(const char *path, const uint8_t *data, uint64_t bytes,
                                    rn_timeline **out);

// What of a rank's clock is to be added to have rank 0's, in nanoseconds.
typedef struct rn_merge_clock {
    int64_t shift_ns;
    int64_t by_collectives_ns; // of that, beyond what the wall clocks say
    int64_t scatter_ns; // the most by which the end of a collective then differs from rank 0's
    uint32_t count;     // collectives that were compared; 0: the wall clock alone
} rn_merge_clock;
// parts (count), finished, by rank. Pure.
RN_MUST_USE rn_status rn_merge_align(rn_timeline *const *parts, uint32_t count,
                                     rn_merge_clock *out); // (count)
// Whether an operation is a collective of all ranks; sends and receives are of two.
bool rn_merge_is_collective(const rn_timeline *t, const rn_timeline_op *op);
// The index of the next collective at or behind `at`, or t->op_count.
uint32_t rn_merge_next_collective(const rn_timeline *t, uint32_t at);

#endif

// timeline_build.h — what a timeline keeps for itself: between timeline_build.c, timeline_finish.c
// and timeline_query.c.
#ifndef RN_PROFILE_TIMELINE_BUILD_H
#define RN_PROFILE_TIMELINE_BUILD_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/map.h"
#include "profile/timeline.h"

typedef struct rn_timeline_build {
    rn_arena texts;
    rn_map name_ids; // "name\0group\0detail" to number; until it is finished
    rn_buffer key;
    uint32_t name_capacity, lane_capacity, alloc_capacity, op_capacity, mark_capacity,
        counter_capacity, move_capacity, torch_op_capacity, sum_capacity; // of the arrays, in items
    uint64_t sum_bytes;                                                   // of all blocks
    uint32_t *by_end;                                                     // (alloc_count)
    uint32_t by_end_count;                                                // as allocated
} rn_timeline_build;

// Times above this are not believed: sums and differences of times stay within 64 bits.
#define RN_TIMELINE_MAX_NS ((uint64_t)1 << 62)
// The same for one block.
#define RN_TIMELINE_MAX_BYTES ((uint64_t)1 << 48)
// And for all blocks together, whenever they lived: no sum of them leaves an int64_t.
#define RN_TIMELINE_MAX_SUM ((uint64_t)1 << 61)

// timeline_build.c: bytes of block `index` become a block of their own, `part`.
RN_MUST_USE rn_status rn_timeline_split(rn_timeline *t, uint32_t index,
                                        const rn_timeline_alloc *part);

// timeline_parents.c: finds the block of each part. Sorted by begin and end.
RN_MUST_USE rn_status rn_timeline_find_parents(rn_timeline *t);
// Parts without a block lie in what was held before the recording, or before what a ring kept: as
// much of that as they fill at most becomes an arena, so that it does not count twice. May add
// blocks; then everything is to be sorted again.
RN_MUST_USE rn_status rn_timeline_cover_orphans(rn_timeline *t);

#endif

// trace_live.h — which blocks are live while a trace is read: a FREE finds its ALLOC.
//
// Blocks are found by (device, address, purpose, inner). Blocks without an address (charges that
// have none, and what was held before the recording began) are lists, one for each device and
// purpose: a release takes bytes off them.
#ifndef RN_PROFILE_TRACE_LIVE_H
#define RN_PROFILE_TRACE_LIVE_H

#include "profile/timeline.h"

typedef struct rn_trace_live {
    rn_timeline *timeline;
    struct rn_trace_live_slot *slots; // (capacity), linear probing
    size_t capacity, count;
    uint64_t seed;
    // First of each list: charges without address, and what was there before.
    uint32_t unplaced[RN_DEVICE_MAX][RN_PURPOSE_COUNT], before[RN_DEVICE_MAX][RN_PURPOSE_COUNT];
    uint64_t unknown_count; // releases of blocks that were not seen
} rn_trace_live;

void rn_trace_live_init(rn_trace_live *live, rn_timeline *t);
void rn_trace_live_free(rn_trace_live *live);
// `alloc` begins. One that is live at its place already ended there: its FREE was lost.
RN_MUST_USE rn_status rn_trace_live_begin(rn_trace_live *live, const rn_timeline_alloc *alloc);
// Bytes at an address are released, at this time by this lane.
RN_MUST_USE rn_status rn_trace_live_end(rn_trace_live *live, const rn_trace_event *event,
                                        uint64_t time_ns, uint32_t lane);
// The live block at this address is called `name` and serves `purpose`, from its beginning.
void rn_trace_live_relabel(rn_trace_live *live, const rn_trace_event *event, uint32_t name,
                           uint8_t purpose);
// Its call stack is the detail of `name`.
void rn_trace_live_site(rn_trace_live *live, const rn_trace_event *event, uint32_t name);

#endif

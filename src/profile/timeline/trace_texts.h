// trace_texts.h — what a trace says about itself: preamble, end, names, lanes, devices, totals.
#ifndef RN_PROFILE_TRACE_TEXTS_H
#define RN_PROFILE_TRACE_TEXTS_H

#include "profile/timeline.h"
#include "profile/timeline/trace_scan.h"

// Numbers in the file to numbers in the timeline. A damaged file may name numbers that were never
// explained: names become 0, lanes and devices are made.
typedef struct rn_trace_texts {
    rn_timeline *timeline;
    uint32_t *names, *lanes; // (name_capacity), (lane_capacity); RN_NO_INDEX: not there
    size_t name_capacity, lane_capacity;
    uint32_t other_lane; // of numbers that are too large to be true
    uint8_t devices[RN_DEVICE_MAX];
    uint8_t purposes[256];
    uint32_t purpose_count; // of the file: the number behind its last purpose stands for a peak
} rn_trace_texts;

// Reads all blocks of these kinds but TOTALS. Freed by the caller also where it failed.
RN_MUST_USE rn_status rn_trace_texts_read(rn_trace_texts *texts, rn_timeline *t,
                                          const rn_scan *scan, const uint8_t *data, uint64_t bytes);
void rn_trace_texts_free(rn_trace_texts *texts);
uint32_t rn_trace_name(const rn_trace_texts *texts, uint32_t number);
// Makes it where it is new.
RN_MUST_USE rn_status rn_trace_lane(rn_trace_texts *texts, uint64_t number, uint32_t *out);

// One record of a TOTALS block.
typedef struct rn_trace_total {
    uint32_t device, purpose;
    uint64_t bytes, blocks;
} rn_trace_total;

#endif

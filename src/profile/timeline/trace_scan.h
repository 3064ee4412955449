// trace_scan.h — finds the whole blocks of a trace file, whatever lies between them.
#ifndef RN_PROFILE_TRACE_SCAN_H
#define RN_PROFILE_TRACE_SCAN_H

#include "profile/trace.h"

#include "base/alloc.h"

typedef struct rn_scan_block {
    uint64_t sequence, round;
    uint64_t offset; // of the payload in the file, a multiple of 64
    uint32_t kind, lane, payload_bytes;
} rn_scan_block;

typedef struct rn_scan {
    const rn_allocator *from;
    rn_scan_block *blocks; // (count), by sequence, each once
    size_t count, capacity;
    size_t hole_count; // stretches that are no whole block, between two that are
    bool is_cut;       // such a stretch at the end of the file
} rn_scan;

// `data` (bytes) is the file. RN_CORRUPT: it has no whole block;
// RN_UNSUPPORTED: one of a later version.
RN_MUST_USE rn_status rn_trace_scan(const rn_allocator *from, const uint8_t *data, uint64_t bytes,
                                    rn_scan *out);
void rn_trace_scan_free(rn_scan *scan);

#endif

// export_json.h — the seed's and pie's JSON document, in parts: export_json.c writes the whole,
// its metadata and what is short; snapshots and operations have files of their own.
//
// Every key of both is there. What we do not know has the value that pie writes for "none"
// (0, [], "unknown"); what we know beyond them stands in keys of our own behind theirs.
#ifndef RN_PROFILE_EXPORT_JSON_H
#define RN_PROFILE_EXPORT_JSON_H

#include "profile/export/export.h"

#define RN_JSON_PEAKS      64     // snapshots at new peaks
#define RN_JSON_MARKS      4096   // snapshots at marks
#define RN_JSON_LISTED     1000   // tensors of a device in one snapshot
#define RN_JSON_LIST_TOTAL 100000 // tensors in all snapshots together, if they are many
#define RN_JSON_LIFECYCLES 100000
#define RN_JSON_OPERATIONS 100000 // single invocations that are listed

typedef struct rn_json_export {
    const rn_timeline *timeline;
    rn_export_names names;
    rn_json json;
    uint8_t device_of[RN_DEVICE_MAX]; // which device counts one's tensors: itself, but for a host
                                      // beside a "cpu"
    int64_t second;                   // of `prefix`
    char prefix[24];                  // "2026-01-31T12:03:04"
    uint64_t peaks[RN_JSON_PEAKS];    // (peak_count): how many changes have happened then
    size_t peak_count;
    uint64_t peak_bytes;               // in use, all devices together
    uint64_t periodic_step, mark_step; // every how many-th mark is a snapshot
    uint64_t snapshot_count, snapshot_omitted_count;
    size_t listed; // tensors of a device in one snapshot
} rn_json_export;

// Whether a block is one of the program's tensors: what the profiler holds itself is not.
static inline bool rn_json_counts(const rn_timeline_alloc *alloc) {
    return rn_is_in_use(alloc) && alloc->purpose != RN_PURPOSE_PROFILER;
}

// Local time as Python's datetime.isoformat() writes it, with microseconds.
void rn_json_export_time(rn_json_export *x, const char *key, uint64_t time_ns);
// Bytes in units of 1024 * 1024, which pie calls MB.
void rn_json_export_mb(rn_json_export *x, const char *key, double bytes);
// The keys of a TensorInfo, within an object that is open.
void rn_json_export_tensor(rn_json_export *x, uint32_t alloc);
// Its name, as PyTorch has it.
void rn_json_export_device(rn_json_export *x, const char *key, uint8_t device);
void rn_json_export_shape(rn_json_export *x, const char *key, const rn_export_shape *shape);
bool rn_json_export_is_persistent(const rn_timeline_alloc *alloc);

// Chooses the moments of snapshots; then writes "snapshots".
void rn_json_export_plan(rn_json_export *x);
RN_MUST_USE rn_status rn_json_export_snapshots(rn_json_export *x);
// "operation_allocations", "operation_summary", "operation_graph" and "operation_log".
RN_MUST_USE rn_status rn_json_export_operations(rn_json_export *x);

#endif

// timeline.h — what was recorded, put in order: the one form that reports, pages and exports are
// made from, whatever file it came from.
//
//     file ── trace_read.c, json_profile.c, torch_snapshot.c ──▶ rn_timeline ──▶ report, page,
//     exports
//
// Readers make an empty timeline, add what they find in any order, and finish it: then
// everything is sorted, operations have their depth and their bytes, and parts know their block.
// After that it is only read. Times are nanoseconds since the beginning of the recording. Equal
// times have no order: a reader whose clock is coarse adds a nanosecond where it knows one.
#ifndef RN_PROFILE_TIMELINE_H
#define RN_PROFILE_TIMELINE_H

#include <ration/profile.h>

#include "base/alloc.h"
#include "profile/trace.h"

#define RN_STILL_LIVE UINT64_MAX // an end that was not seen
#define RN_NO_INDEX   UINT32_MAX

// Categories are ration's purposes; what others recorded without one is RN_PURPOSE_OTHER.
typedef struct rn_timeline_name {
    const char *name, *group, *detail; // "" where there is none
} rn_timeline_name;

typedef struct rn_timeline_device {
    const char *name;
} rn_timeline_device;

typedef struct rn_timeline_lane {
    const char *name;
    bool is_queue; // of a device; else a thread
} rn_timeline_lane;

// One piece of memory, from its allocation to its release.
typedef struct rn_timeline_alloc {
    uint64_t begin_ns, end_ns; // end_ns: RN_STILL_LIVE when it was live at the end
    uint64_t address, bytes;
    uint32_t name;      // 0: none
    uint32_t site;      // a name whose detail is the call stack that asked for it; 0: unknown
    uint32_t lane;      // that allocated it
    uint32_t free_lane; // that released it, plus one; 0: the same lane
    uint32_t op;        // innermost operation of that lane at the time; RN_NO_INDEX: none, or
                        // RN_PURPOSE_PROFILER and _OUTSIDE, which no operation asks for
    uint32_t parent;    // an inner part: the index of its block (the first, where several have its
                        // address), if it was seen, else RN_NO_INDEX
    uint8_t device, purpose;
    bool inner;    // a part of a block that is counted itself
    bool is_arena; // a block with inner parts: they, and not it, are what is in use. A reader may
                   // set it for a block that only ever holds parts, even when none was seen (a
                   // segment of PyTorch's caching allocator); finish keeps that
    bool before;   // was there when the recording began
} rn_timeline_alloc;

typedef struct rn_timeline_op {
    uint64_t begin_ns, end_ns; // cut at the end of its lane where no end was seen
    uint32_t name, lane;
    uint32_t depth;       // 0: outermost of its lane
    uint32_t parent;      // the operation around it, or RN_NO_INDEX
    uint32_t alloc_count; // blocks and parts allocated in it, on its lane
    uint32_t free_count;
    int64_t delta_bytes;       // outer blocks allocated minus freed in it, on its lane
    int64_t inner_delta_bytes; // the same of parts
    uint64_t allocated_bytes;  // sum of what was allocated in it, parts included, blocks with
                               // parts not
    uint64_t peak_bytes;       // the most above its begin, on its lane, of what allocated_bytes has
    bool unfinished;           // no end was seen
    bool told;          // alloc_count, free_count, delta_bytes and pre_bytes are the file's own
                        // numbers, and finish keeps them
    uint64_t pre_bytes; // told: in use on all devices before it; UINT64_MAX: unknown
    uint32_t operands;  // a name whose detail is its tensors (rn_export_operand_next); or 0
    uint32_t rows;      // what "rows" is in the details of both names; 0: unknown
} rn_timeline_op;

typedef struct rn_timeline_mark {
    uint64_t time_ns, bytes;
    uint32_t name, lane;
    uint8_t kind; // an rn_trace_mark
    uint8_t device;
} rn_timeline_mark;

typedef struct rn_timeline_counter {
    uint64_t time_ns, value;
    uint32_t name;
    uint8_t kind; // an rn_counter
    uint8_t device;
} rn_timeline_counter;

typedef struct rn_timeline_move {
    uint64_t time_ns, bytes, address;
    uint32_t name, lane;
    uint8_t from, to; // RN_DEVICE_ANY: the disk
} rn_timeline_move;

// What a file itself says of all operations of one name. It may count more than it lists.
typedef struct rn_timeline_sum {
    uint32_t name; // without group and detail
    uint64_t count;
    int64_t delta_bytes, most_delta_bytes; // of all; of the one with the largest
} rn_timeline_sum;

// One (operation, shapes) of PyTorch's own profiler; see RN_EXPORT_JSON.
typedef struct rn_timeline_torch_op {
    uint32_t name; // detail: input shapes as JSON text, "[[1, 512], [512, 64]]"
    uint64_t count;
    double cpu_us, cuda_us;
    int64_t cpu_bytes, cuda_bytes;
} rn_timeline_torch_op;

struct rn_timeline {
    const rn_allocator *allocator; // of everything below; charged to the ledger
    char path[4096];
    char format[32]; // "ration trace", "memory profile", "torch snapshot"
    char command[256];
    char mode[16]; // "spill", "ring", or ""
    uint64_t start_unix_ns;
    uint64_t end_ns; // of the recording: the last time seen
    uint64_t event_count, dropped_count;
    bool has_end;       // the recording was ended in order
    char reason[64];    // why it ended
    char notes[8][160]; // what a reader of the file should know: cut, damaged, overwritten
    uint32_t note_count;

    rn_timeline_name *names; // (name_count), [0] is ""
    rn_timeline_device *devices;
    rn_timeline_lane *lanes;
    rn_timeline_alloc *allocs; // by begin_ns
    rn_timeline_op *ops;       // by begin_ns, outer before inner
    rn_timeline_mark *marks;   // by time_ns; the next two as well
    rn_timeline_counter *counters;
    rn_timeline_move *moves;
    rn_timeline_torch_op *torch_ops;
    rn_timeline_sum *sums; // one a name
    uint32_t name_count, device_count, lane_count, alloc_count, op_count, mark_count, counter_count,
        move_count, torch_op_count, sum_count;
    // By device, counted by the recorder as it happened (see TOTALS in trace.h); bytes 0: unknown.
    // Its time may lie before what a ring still has.
    struct {
        uint64_t bytes, time_ns;
    } counted_peaks[RN_DEVICE_MAX];
    struct rn_timeline_build *build; // texts, capacities, order: see timeline_build.h
};

// ---- making (timeline_build.c) ------------------------------------------------------------------

RN_MUST_USE rn_status rn_timeline_create(const char *path, const char *format, rn_timeline **out);
// Texts are copied. The same texts give the same number; all empty is 0.
RN_MUST_USE rn_status rn_timeline_add_name(rn_timeline *t, rn_str name, rn_str group, rn_str detail,
                                           uint32_t *out);
// The same name gives the same number. Device 0 is "host" only if it is added first. RN_CORRUPT
// when there are more than RN_DEVICE_MAX.
RN_MUST_USE rn_status rn_timeline_add_device(rn_timeline *t, rn_str name, uint8_t *out);
RN_MUST_USE rn_status rn_timeline_add_lane(rn_timeline *t, rn_str name, bool is_queue,
                                           uint32_t *out); // always a new one
RN_MUST_USE rn_status rn_timeline_name_lane(rn_timeline *t, uint32_t lane, rn_str name);
// Of the fields, those that finish computes (op, parent, depth, counts, sums) are ignored;
// is_arena is kept where it is set. `allocs` and `ops` may be added when their end is known, or
// with RN_STILL_LIVE. Names, lanes and purposes must exist, devices be below RN_DEVICE_MAX (a mark,
// counter or move may have RN_DEVICE_ANY); RN_CORRUPT if not.
RN_MUST_USE rn_status rn_timeline_add_alloc(rn_timeline *t, const rn_timeline_alloc *alloc);
RN_MUST_USE rn_status rn_timeline_add_op(rn_timeline *t, const rn_timeline_op *op);
RN_MUST_USE rn_status rn_timeline_add_mark(rn_timeline *t, const rn_timeline_mark *mark);
RN_MUST_USE rn_status rn_timeline_add_counter(rn_timeline *t, const rn_timeline_counter *counter);
RN_MUST_USE rn_status rn_timeline_add_move(rn_timeline *t, const rn_timeline_move *move);
RN_MUST_USE rn_status rn_timeline_add_torch_op(rn_timeline *t, const rn_timeline_torch_op *op);
RN_MUST_USE rn_status rn_timeline_add_sum(rn_timeline *t, const rn_timeline_sum *sum);
// A sentence for people; more than eight are dropped.
void rn_timeline_note(rn_timeline *t, const char *format, ...) RN_PRINTF(2, 3);
RN_MUST_USE rn_status rn_timeline_finish(rn_timeline *t);

// ---- readers: `data` (bytes) is the whole file, mapped; they return an unfinished timeline
// --------

RN_MUST_USE rn_status rn_trace_read(const char *path, const uint8_t *data, uint64_t bytes,
                                    rn_timeline **out); // trace_read.c
RN_MUST_USE rn_status rn_json_profile_read(const char *path, const uint8_t *data, uint64_t bytes,
                                           rn_timeline **out); // json_profile.c
RN_MUST_USE rn_status rn_torch_snapshot_read(const char *path, const uint8_t *data, uint64_t bytes,
                                             rn_timeline **out); // torch_snapshot.c

// ---- asking (timeline_query.c)
// --------------------------------------------------------------------

// The bytes of a device at one time. in use: blocks without parts, and parts.
typedef struct rn_timeline_level {
    uint64_t time_ns;
    uint64_t reserved_bytes;                  // blocks
    uint64_t active_bytes;                    // in use
    uint64_t purpose_bytes[RN_PURPOSE_COUNT]; // of active_bytes
    uint64_t count;                           // live blocks without parts, and live parts
} rn_timeline_level;

// Walks the changes of a device in the order of time; at equal times, frees before allocations. A
// block that lives no time is there in one step and gone in the next, which has the same time.
typedef struct rn_timeline_walk {
    const rn_timeline *timeline;
    uint8_t device; // RN_DEVICE_ANY: all together
    rn_timeline_level level;
    size_t next_begin, next_end;
} rn_timeline_walk;
void rn_timeline_walk_begin(rn_timeline_walk *walk, const rn_timeline *t, uint8_t device);
// Takes all changes of the next moment. False when there are no more.
bool rn_timeline_walk_next(rn_timeline_walk *walk);

// Indices of allocs by their end, for walking backwards or in order of ends: (alloc_count). Made by
// finish.
const uint32_t *rn_timeline_by_end(const rn_timeline *t);

// The moment with the most reserved bytes, of these the one with the most in use, of these the
// first (an arena is reserved long before it is full); and what they were then. What is allocated
// and freed within one moment (equal times) counts as well.
rn_timeline_level rn_timeline_peak(const rn_timeline *t, uint8_t device);
// Whether `level` is more than `peak` in that sense: for who walks already.
bool rn_timeline_is_more(const rn_timeline_level *level, const rn_timeline_level *peak);
rn_timeline_level rn_timeline_level_at(const rn_timeline *t, uint8_t device, uint64_t time_ns);

// What was in use at a moment, largest first: indices of allocs, blocks without parts and parts.
// At most `capacity`; returns how many there are in all.
size_t rn_timeline_live_at(const rn_timeline *t, uint8_t device, uint64_t time_ns, uint32_t *out,
                           size_t capacity);

#endif

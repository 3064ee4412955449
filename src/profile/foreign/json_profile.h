// json_profile.h — between the files that read JSON memory profiles.
//
//     json_profile_tree.c        keys, and values of any type, out of the stream
//     json_profile_snapshots.c   snapshots become lives of tensors, and what is not listed
//     json_profile_operations.c  operations, the lives that were tracked, PyTorch's operations
//     json_profile.c             the whole: times, and everything into the timeline
//
// A snapshot says what was there at one moment. A tensor lives from the first snapshot that lists
// it to the first that does not, and where totals say that more was there than is listed, a block
// "not listed" carries the difference: at every snapshot the timeline has the file's total.
#ifndef RN_PROFILE_JSON_PROFILE_H
#define RN_PROFILE_JSON_PROFILE_H

#include "base/arena.h"
#include "base/map.h"
#include "io/json_read.h"
#include "profile/timeline.h"

#define RN_NO_TIME INT64_MIN

typedef enum rn_json_word {
    RN_JP_UNKNOWN,
    RN_JP_METADATA,
    RN_JP_SNAPSHOTS,
    RN_JP_OPERATION_ALLOCATIONS,
    RN_JP_OPERATION_SUMMARY,
    RN_JP_OPERATION_LOG,
    RN_JP_TENSOR_LIFECYCLE,
    RN_JP_PYTORCH_OPERATIONS,
    RN_JP_COMMAND,
    RN_JP_STARTED_AT,
    RN_JP_TIMESTAMP,
    RN_JP_CHECKPOINT_NAME,
    RN_JP_KIND,
    RN_JP_TOTAL_BYTES,
    RN_JP_TOTAL_MB,
    RN_JP_TOP_ALLOCATIONS,
    RN_JP_DEVICE_BREAKDOWN,
    RN_JP_TENSORS,
    RN_JP_TENSOR_ID,
    RN_JP_SIZE_BYTES,
    RN_JP_SIZE_MB,
    RN_JP_SHAPE,
    RN_JP_DTYPE,
    RN_JP_DEVICE,
    RN_JP_REQUIRES_GRAD,
    RN_JP_ALLOCATED_BY,
    RN_JP_OPERATION,
    RN_JP_PURPOSE,
    RN_JP_NAME,
    RN_JP_BLOCK,
    RN_JP_MEMORY_DELTA_MB,
    RN_JP_TENSOR_DELTA,
    RN_JP_TENSORS_ALLOCATED,
    RN_JP_TENSORS_DEALLOCATED,
    RN_JP_PRE_TOTAL_MB,
    RN_JP_INVOCATION_COUNT,
    RN_JP_TOTAL_MEMORY_DELTA_MB,
    RN_JP_MAX_MEMORY_DELTA_MB,
    RN_JP_DURATION_US,
    RN_JP_LANE,
    RN_JP_MODULE_NAME,
    RN_JP_INPUT_SHAPES,
    RN_JP_EVENTS,
    RN_JP_EVENT_TYPE,
    RN_JP_OP_NAME,
    RN_JP_COUNT,
    RN_JP_CPU_TIME_US,
    RN_JP_CUDA_TIME_US,
    RN_JP_CPU_MEMORY_MB,
    RN_JP_CUDA_MEMORY_MB,
    RN_JP_WORD_COUNT
} rn_json_word;

typedef struct rn_json_snapshot {
    int64_t time_ns; // since the epoch, or RN_NO_TIME; then, once all are read, since the beginning
    uint32_t name;
    uint8_t kind;  // an rn_trace_mark
    bool is_exact; // whatever ended between this and the next, it is known when
} rn_json_snapshot;

// A tensor as snapshots list it: all that look the same are told apart by counting.
typedef struct rn_json_tensor {
    uint64_t bytes;
    rn_str id; // "" for none
    uint32_t name;
    uint8_t device, purpose;
    uint32_t next;             // the next that looks the same, or RN_NO_INDEX
    uint32_t first, last;      // snapshots of its life under way
    uint32_t met_in, met_last; // of the first of those that look the same: the last one met, and in
                               // which snapshot
    bool is_live;
} rn_json_tensor;

// From snapshot `first` to behind snapshot `last`.
typedef struct rn_json_life {
    uint64_t bytes;
    rn_str id;
    uint32_t name, first, last;
    uint8_t device, purpose;
} rn_json_life;

// A life as it was tracked; times as in a snapshot.
typedef struct rn_json_tracked {
    int64_t begin_ns, end_ns; // RN_NO_TIME: not seen
    uint64_t bytes;
    rn_str id;
    uint32_t name;
    uint32_t count;          // of the first of this id: how many there are
    uint8_t purpose, device; // RN_DEVICE_ANY: unknown
    bool is_used;            // a snapshot has it
} rn_json_tracked;

typedef struct rn_json_operation {
    int64_t time_ns;
    uint64_t duration_ns;
    rn_str key; // its name, kept
    uint32_t name, lane;
    uint32_t alloc_count, free_count;
    uint32_t taken; // of the first of a name in operation_allocations: how many the log has met
    int64_t delta_bytes;
    uint64_t pre_bytes; // UINT64_MAX: unknown
    bool has_duration, is_log, has_delta;
} rn_json_operation;

#define RN_JSON_ARRAY_OF(type)                                                                     \
    struct {                                                                                       \
        type *items;                                                                               \
        size_t count, capacity;                                                                    \
    }

typedef struct rn_json_profile {
    rn_json_reader json;
    rn_timeline *timeline;
    const rn_allocator *from;
    rn_arena texts;
    rn_map text_ids;   // to rn_str of `texts`
    rn_map tensor_ids; // what a tensor looks like, to the first of its kind
    rn_map lane_ids;
    rn_buffer key, shape;
    int64_t started_ns; // as the file says, or RN_NO_TIME
    bool has_snapshots, has_operations;
    uint64_t told_bytes;  // of all changes that operations tell, whatever their signs
    bool is_inconsistent; // a snapshot lists more than its total
    RN_JSON_ARRAY_OF(rn_json_snapshot) snapshots;
    RN_JSON_ARRAY_OF(rn_json_tensor) tensors;
    RN_JSON_ARRAY_OF(uint32_t) live; // tensors
    RN_JSON_ARRAY_OF(rn_json_life) lives;
    RN_JSON_ARRAY_OF(rn_json_tracked) tracked;
    RN_JSON_ARRAY_OF(rn_json_operation) operations;
    struct {
        uint64_t bytes;
        uint32_t first;
    } rests[RN_DEVICE_MAX]; // not listed, since snapshot `first`
} rn_json_profile;

#define RN_JSON_PUSH(p, array, item)                                                               \
    do {                                                                                           \
        RN_TRY(rn_foreign_grow((p)->from, &(p)->array.items, (p)->array.count,                     \
                               &(p)->array.capacity, sizeof *(p)->array.items));                   \
        (p)->array.items[(p)->array.count++] = (item);                                             \
    } while (0)

// ---- json_profile_tree.c ------------------------------------------------------------------------

// Enters the value that comes next if it is of this kind (object or array), else skips it.
RN_MUST_USE rn_status rn_jp_enter(rn_json_profile *p, rn_json_kind kind, bool *out_in);
// The next key of an object; *out_more is false at its end. The text holds until the next is read.
RN_MUST_USE rn_status rn_jp_next_key(rn_json_profile *p, rn_str *out_key, bool *out_more);
RN_MUST_USE rn_status rn_jp_next_word(rn_json_profile *p, rn_json_word *out, bool *out_more);
// Enters the next object of an array, past what is none; *out_more is false at its end.
RN_MUST_USE rn_status rn_jp_next_object(rn_json_profile *p, bool *out_more);
// Values of the right type; others are skipped and leave *out as it is.
RN_MUST_USE rn_status rn_jp_text(rn_json_profile *p, rn_str *out); // kept; a number as its digits
RN_MUST_USE rn_status rn_jp_flag(rn_json_profile *p, bool *out);
RN_MUST_USE rn_status rn_jp_number(rn_json_profile *p, double *out, bool *out_has); // has: or NULL
RN_MUST_USE rn_status rn_jp_bytes(rn_json_profile *p, uint64_t *out, bool *out_has);
RN_MUST_USE rn_status rn_jp_megabytes(rn_json_profile *p, uint64_t *out, bool *out_has);
RN_MUST_USE rn_status rn_jp_time(rn_json_profile *p, int64_t *out);
// Any array as compact JSON text, "[[1, 512], [64]]", kept; cut where it is long.
RN_MUST_USE rn_status rn_jp_list(rn_json_profile *p, rn_str *out);
RN_MUST_USE rn_status rn_jp_skip(rn_json_profile *p);
// The same text once, for as long as the profile lives; as much of it as a name can show.
RN_MUST_USE rn_status rn_jp_keep(rn_json_profile *p, rn_str text, rn_str *out);
// A name in the timeline, safe to show.
RN_MUST_USE rn_status rn_jp_name(rn_json_profile *p, rn_str name, rn_str group, rn_str detail,
                                 uint32_t *out);
RN_MUST_USE rn_status rn_jp_device(rn_json_profile *p, rn_str name, uint8_t *out);

// ---- the sections -------------------------------------------------------------------------------

// json_profile_snapshots.c
RN_MUST_USE rn_status rn_jp_snapshots(rn_json_profile *p);
// What is live at the end of the last one lives on.
RN_MUST_USE rn_status rn_jp_end_snapshots(rn_json_profile *p);
// json_profile_operations.c
RN_MUST_USE rn_status rn_jp_operation_allocations(rn_json_profile *p);
RN_MUST_USE rn_status rn_jp_operation_summary(rn_json_profile *p);
RN_MUST_USE rn_status rn_jp_operation_log(rn_json_profile *p);
RN_MUST_USE rn_status rn_jp_tensor_lifecycle(rn_json_profile *p);
RN_MUST_USE rn_status rn_jp_pytorch_operations(rn_json_profile *p);

#endif

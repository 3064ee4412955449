// torch_snapshot.h — between the files that read PyTorch's memory snapshots.
//
//     {"segments": [{"device": 0, "address": A, "total_size": N, "blocks": [{...}]}],
//      "device_traces": [[{"action": "alloc", "addr": A, "size": N, "frames": [...]}], ...],
//      "allocator_settings": {...}, "external_annotations": [...]}
//
//     torch_snapshot_fold.c    dictionaries of the pickle become records as they are read
//     torch_snapshot_replay.c  the trace of a device, event by event, becomes blocks
//     torch_snapshot_notes.c   annotations become operations; settings become notes
//     torch_snapshot.c         the whole
#ifndef RN_PROFILE_TORCH_SNAPSHOT_H
#define RN_PROFILE_TORCH_SNAPSHOT_H

#include "base/buffer.h"
#include "base/map.h"
#include "profile/foreign/pickle.h"
#include "profile/timeline.h"

// Keys and actions, numbered; see torch_snapshot_fold.c.
typedef enum rn_torch_word {
    RN_TORCH_UNKNOWN,
    RN_TORCH_ALLOC, // actions
    RN_TORCH_FREE,
    RN_TORCH_FREE_COMPLETED,
    RN_TORCH_FREE_REQUESTED,
    RN_TORCH_SEGMENT_ALLOC,
    RN_TORCH_SEGMENT_FREE,
    RN_TORCH_SEGMENT_MAP,
    RN_TORCH_SEGMENT_UNMAP,
    RN_TORCH_SNAPSHOT,
    RN_TORCH_OOM,
    RN_TORCH_ACTION, // keys
    RN_TORCH_ADDR,
    RN_TORCH_DEVICE_FREE,
    RN_TORCH_SIZE,
    RN_TORCH_STREAM,
    RN_TORCH_TIME_US,
    RN_TORCH_FRAMES,
    RN_TORCH_CATEGORY,
    RN_TORCH_USER_METADATA,
    RN_TORCH_FILENAME,
    RN_TORCH_LINE,
    RN_TORCH_NAME,
    RN_TORCH_WORD_COUNT
} rn_torch_word;

typedef struct rn_torch_frame {
    rn_str file, function;
    uint64_t line;
} rn_torch_frame;

// Innermost first. The same frames are the same stack.
#define RN_TORCH_STACK_FRAMES 64
typedef struct rn_torch_stack {
    uint32_t count;
    uint32_t name;            // in the timeline, once it has one for `group`
    uint64_t group;           // the value that it was named with
    rn_torch_frame *frames[]; // (count)
} rn_torch_stack;

// One event of a trace. There are as many as millions: 48 bytes.
typedef struct rn_torch_entry {
    uint64_t addr; // device_free of an oom
    uint64_t size, time_us;
    rn_pickle_value frames; // a list, or the record of a stack
    rn_pickle_value group;  // a text: user_metadata, or a category that is no purpose of ours
    uint32_t stream;        // index of reader->streams
    uint8_t action;         // an rn_torch_word
    uint8_t purpose;
} rn_torch_entry;

enum { RN_TORCH_RECORD_ENTRY = 1, RN_TORCH_RECORD_FRAME, RN_TORCH_RECORD_STACK };

typedef struct rn_torch_reader {
    rn_pickle pickle;
    rn_map frame_ids; // "file\nline\nname" to rn_torch_frame
    rn_map stack_ids; // its frames' addresses to rn_torch_stack
    rn_buffer key;
    rn_timeline *timeline;
    uint64_t file_bytes;
    uint64_t visited_count; // blocks and entries looked at; a file cannot have more than bytes
    uint64_t base_us;       // the first time
    bool has_times;
    uint64_t streams[64]; // as traces name them; those beyond share the last
    uint32_t stream_count;
    uint32_t lane_count;
    struct {
        uint64_t device, stream;
        uint32_t lane;
    } lanes[64];
} rn_torch_reader;

// ---- torch_snapshot_fold.c ----------------------------------------------------------------------

rn_pickle_folder rn_torch_folder(rn_torch_reader *reader);
// The event that a value of a trace is, or NULL for something else.
RN_MUST_USE rn_status rn_torch_entry_of(rn_torch_reader *reader, rn_pickle_value value,
                                        rn_torch_entry **out);
// The name of a stack ("forward (model.py:12)") with its group and all its frames as detail; 0
// where there is neither.
RN_MUST_USE rn_status rn_torch_name(rn_torch_reader *reader, rn_pickle_value frames,
                                    rn_pickle_value group, uint32_t *out);
// Counts one thing looked at. RN_CORRUPT when there are more than a file of this size can hold:
// then it names the same list again and again.
RN_MUST_USE rn_status rn_torch_visit(rn_torch_reader *reader);

// ---- torch_snapshot_replay.c --------------------------------------------------------------------

// The lane of a stream of a device. Streams beyond the first few dozen share one.
RN_MUST_USE rn_status rn_torch_lane(rn_torch_reader *reader, uint64_t device, uint64_t stream,
                                    uint32_t *out);
// Device number `device`: its trace (None: none), then what `segments` says was there at the end.
RN_MUST_USE rn_status rn_torch_replay(rn_torch_reader *reader, uint64_t device,
                                      rn_pickle_value trace, rn_pickle_value segments);

// ---- torch_snapshot_notes.c ---------------------------------------------------------------------

RN_MUST_USE rn_status rn_torch_annotations(rn_torch_reader *reader, rn_pickle_value annotations);
void rn_torch_settings(rn_torch_reader *reader, rn_pickle_value settings);

#endif

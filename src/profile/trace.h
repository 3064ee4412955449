// trace.h — the trace file: blocks that each stand for themselves.
//
//     | preamble | names | totals | events of thread 1 | events of thread 2 | totals | ... | end |
//
// All numbers are little-endian. Every block begins at a multiple of 64 bytes with a header of 64
// bytes that has its own checksum and that of its payload, so a file can be cut anywhere, or have a
// hole, and what is whole is still read: a reader that finds no header looks for the next one, 64
// bytes on. Blocks are appended, never changed. A recording with keep_newest goes back to the
// end of the preamble when the file has reached its limit and overwrites its oldest blocks; the
// sequence numbers say which are the newest, and each round of blocks begins with the totals before
// it, so what is held is known whatever has been overwritten. At the beginning of every lap all
// names are written again, and soon after it the counters that hold until they change (resident,
// budget, predicted peak), for the same reason.
//
// One *round* is what the writer took from all rings (or a thread from its own, when that was full)
// in one go: a TOTALS block, then DEVICES, LANES and NAMES that are new, then one EVENTS block (or
// several) for each thread that had some. The first round is 0, as is the preamble's. Rounds
// are not in the order of time: an event may be earlier than one of a round before. A thread is.
//
// A lap of a ring begins with a round of its own (TOTALS, all DEVICES, LANES and NAMES), even in
// the middle of another, whose remaining EVENTS then belong to the new one. Names take no more than
// half of the file there; what does not fit has no name. The file is cut where a lap ends, so that
// the sequence numbers in it are without a gap but for blocks that are half overwritten.
//
// PREAMBLE is JSON: what is needed to read the rest without this header.
//     {"format": "ration trace", "version": 1, "event_bytes": 32, "event_fields": [...],
//      "event_kinds": [...], "mark_kinds": [...], "counter_kinds": [...], "purposes": [...],
//      "mode": "spill" | "ring", "limit_bytes": N, "snapshot_seconds": N,
//      "start_unix_ns": N, "pid": N, "command": "..."}
// NAMES is records: u32 id, then three texts (name, group, detail), each u32 bytes and the bytes.
// LANES is records: u32 lane, u32 kind (0 thread, 1 queue), a text (u32 bytes and the bytes).
//     A lane may be named again; the last one counts.
// DEVICES is records: u32 device, a text. Written when one is new and at the beginning of a lap.
// TOTALS is records: u32 device, u32 purpose, i64 bytes held, i64 blocks held, of all events before
//     this round (in the order of blocks: a release may have been taken from one thread's ring
//     while its charge lay in another's, so a number may be below zero until the next round).
//     Those that are zero are left out. Then the peak so far of each device, a record with purpose
//     == RN_PURPOSE_COUNT: the bytes, and in the place of the blocks when it was (time_ns). The
//     peak was counted as it happened, by atomic adds, so it is exact whatever threads did at the
//     same nanosecond; it may lie in events that are still to come. Only outer blocks count.
// EVENTS is rn_trace_event after rn_trace_event, in the order of one thread (header.lane). Lanes
//     are numbers from 1; one of them, "profiler", is the recorder's own: counters, marks, and
//     events of threads that could not have a ring. The recording begins there: one ALLOC for each
//     holder of what was held before (time 0, a small number for address), then MARK START.
// END is JSON: {"reason": "stopped" | "limit", "events": N, "dropped": N}, behind one more TOTALS,
//     which is a round of its own, where there was room. Where the disk was full, or the program
//     was killed, there is none.
#ifndef RN_PROFILE_TRACE_H
#define RN_PROFILE_TRACE_H

#include <ration/profile.h>

#define RN_TRACE_MAGIC       "\x89RNTRC\r\n" // 8 bytes, without the NUL
#define RN_TRACE_VERSION     1
#define RN_TRACE_ALIGN       64
#define RN_TRACE_MAX_PAYLOAD ((uint32_t)1 << 20)
// What the detail of a tensor's label ends with where the tensor requires a gradient, as PyTorch
// says it: its own flag, not its purpose's.
#define RN_REQUIRES_GRAD " requires_grad"
// Addresses from 1 to below this are not addresses: see RN_MARK_START. 0 is "none".
#define RN_TRACE_FIRST_ADDRESS 4096

typedef enum rn_trace_block_kind {
    RN_TRACE_PREAMBLE = 1,
    RN_TRACE_NAMES,
    RN_TRACE_LANES,
    RN_TRACE_DEVICES,
    RN_TRACE_TOTALS,
    RN_TRACE_EVENTS,
    RN_TRACE_END
} rn_trace_block_kind;

typedef struct rn_trace_block {
    char magic[8];
    uint32_t header_crc;  // of the header with this field 0
    uint32_t payload_crc; // CRC-32C of the payload
    uint32_t kind;
    uint32_t payload_bytes; // without the padding to a multiple of 64
    uint64_t sequence;      // of the blocks of this file, from 0
    uint64_t round;         // from 0
    uint32_t lane;          // EVENTS
    uint32_t version;
    uint64_t unused[2];
} rn_trace_block;
_Static_assert(sizeof(rn_trace_block) == RN_TRACE_ALIGN, "a block's header is 64 bytes");

typedef enum rn_trace_kind {
    RN_TRACE_ALLOC = 1, // address, bytes, name (holder, tensor; 0 none), device, purpose, flags;
                        // with RN_PROFILE_RELABEL: name and purpose of the live block at the
                        // address, which was allocated before (ignored if there is none); with
                        // RN_PROFILE_SITE: who asked for it, in the same way
    RN_TRACE_FREE,      // address, bytes, device, purpose, flags as at its ALLOC
    RN_TRACE_BEGIN,     // name: an operation on this lane; address: 0, or a name whose detail is
                    // its tensors (see rn_export_operand_next); bytes: what "rows" is in both, or 0
    RN_TRACE_FINISH,  // the innermost operation of this lane ends
    RN_TRACE_SPAN,    // name; address: the lane; time_ns: its begin; bytes: its nanoseconds
    RN_TRACE_MARK,    // name; purpose: an rn_trace_mark; bytes: see there
    RN_TRACE_COUNTER, // name; purpose: an rn_counter; device; bytes: the value
    RN_TRACE_MOVE,    // name; address: where to; bytes; device: to; purpose: from device
    RN_TRACE_KIND_END
} rn_trace_kind;

typedef enum rn_trace_mark {
    RN_MARK_STAGE,      // rn_stage
    RN_MARK_CHECKPOINT, // asked for by the program: a snapshot with a name
    RN_MARK_PERIODIC,   // a snapshot every few seconds
    RN_MARK_REFUSAL,    // the budget said no; bytes: requested; device
    RN_MARK_NO_MEMORY,  // the system (or torch) said no; bytes: requested, or 0
    RN_MARK_SIGNAL,     // bytes: its number
    RN_MARK_FORK,       // this process made a child
    RN_MARK_START,      // of the recording. What was held then comes before it as ALLOC events, one
                        // for each holder, with addresses below RN_TRACE_FIRST_ADDRESS; what is
                        // released of it later has addresses of its own
    RN_MARK_COUNT
} rn_trace_mark;

typedef struct rn_trace_event {
    uint64_t time_ns; // since the recording's start
    uint64_t address;
    uint64_t bytes;
    uint32_t name;
    uint8_t kind; // an rn_trace_kind
    uint8_t device;
    uint8_t purpose; // or what the kind says
    uint8_t flags;   // rn_profile_flag
} rn_trace_event;
_Static_assert(sizeof(rn_trace_event) == 32, "an event is 32 bytes");

// "stage", "checkpoint", ...; "mark" for one that does not exist.
const char *rn_mark_name(unsigned kind);

// With the padding.
static inline uint64_t rn_trace_block_bytes(uint32_t payload_bytes) {
    return RN_TRACE_ALIGN + (((uint64_t)payload_bytes + RN_TRACE_ALIGN - 1) & ~(uint64_t)63);
}

// Completes `block` (kind, payload_bytes, sequence, round and lane are set) for this payload.
void rn_trace_seal(rn_trace_block *block, const void *payload);
// Whether `at` is the header of a block: magic, version, checksum, a kind that exists and a payload
// that is not too large.
bool rn_trace_is_header(const void *at);
// Whether the payload is the one that was sealed.
bool rn_trace_is_whole(const rn_trace_block *block, const void *payload);

#endif

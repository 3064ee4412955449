// profile.h — every byte on a timeline: recording what happens, and looking at it afterwards.
//
//     RN_TRY(rn_profile_start(&(rn_profile_options){.path = "run.rntrace"}));
//     ... the ledger's charges, sessions, scopes and stages are recorded as they happen
//     RN_TRY(rn_profile_stop());
//
//     rn_timeline *timeline;
//     RN_TRY(rn_timeline_open("run.rntrace", &timeline));
//     RN_TRY(rn_timeline_report(timeline, NULL, rn_sink_file(stdout)));
//     RN_TRY(rn_timeline_export(timeline, RN_EXPORT_HTML, sink));
//     rn_timeline_destroy(timeline);
//
// Events go into a ring of their thread, without a lock; every 20 to 60 milliseconds they are
// appended to the file. A file whose program was killed is readable up to the last block.
#ifndef RATION_PROFILE_H
#define RATION_PROFILE_H

#include <ration/memory.h>

RN_BEGIN_DECLS

// ---- recording ------------------------------------------------------------------------

typedef struct rn_profile_options {
    const char *path;        // "": "ration_YYYYMMDD_HHMMSS.rntrace" in the working folder
    const char *command;     // what is recorded, for people; may be NULL
    uint64_t limit_bytes;    // of the file; 0: 1 GiB
    bool keep_newest;        // at the limit the oldest events make room (a ring); otherwise the
                             // recording ends there, and the file says so
    double snapshot_seconds; // between periodic snapshots; 0: 5; negative: none
    uint64_t ring_bytes;     // of each thread's ring; 0: 256 KiB
    bool leave_signals;   // do not catch fatal signals (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT)
    uint64_t reserved[4]; // zero
} rn_profile_options;

// One recording a process. RN_INVALID while one is under way, or another process records into this
// file; RN_IO for a file that cannot be made. A child of fork records nothing and leaves the file
// alone. A program that exits without rn_profile_stop leaves what a killed one leaves: a file
// without an end, and without its last events (60 ms at most).
RN_API RN_MUST_USE rn_status rn_profile_start(const rn_profile_options *options);
// Writes what is left and ends the file. RN_OK where nothing is recorded. RN_IO: the file could not
// be written to the end (a full disk); what it has is readable.
RN_API RN_MUST_USE rn_status rn_profile_stop(void);
// One relaxed load.
RN_API bool rn_profile_is_on(void);
// The number of the recording under way; 0 while nothing is recorded. A new one knows nothing of
// parts and operations that were told before: who tells them looks here. One relaxed load.
RN_API uint32_t rn_profile_recording(void);
// Writes what is in the rings now. Called by itself on a refusal or when memory has run out.
RN_API void rn_profile_flush(void);

typedef struct rn_profile_facts {
    char path[4096]; // of the recording under way, or the last one
    bool on;
    uint64_t event_count;   // written
    uint64_t dropped_count; // for which there was no room or no disk
    uint64_t file_bytes;
    uint64_t ring_bytes; // of all threads, as charged to the ledger
} rn_profile_facts;
RN_API void rn_profile_get_facts(rn_profile_facts *out);

// A name's number, for events; the same text gives the same number. 0 is "no name"; so is a name
// for which there is no memory. Cheap after the first time, but keep it where it can be kept. While
// nothing is recorded it is 0.
RN_API uint32_t rn_profile_name(const char *name);
// The same with what else is known: the block (layer) it belongs to, and shapes and dtypes
// ("f16 [4096, 4096] x f32 [1, 4096]"). Both may be NULL.
RN_API uint32_t rn_profile_label(const char *name, const char *group, const char *detail);
// Names the calling thread in the picture: "main", "read queue".
RN_API void rn_profile_thread_name(const char *name);

// An operation on this thread, from here to the matching end. They nest.
RN_API void rn_profile_begin(uint32_t name);
RN_API void rn_profile_end(void);
// An operation that another clock has timed, in rn_profile_now's nanoseconds, on a lane of its own
// (a device's queue): see rn_profile_lane.
RN_API void rn_profile_span(uint32_t lane, uint32_t name, uint64_t begin_ns, uint64_t end_ns);
// The same name gives the same number, in every recording and before one. 0: too many (256).
RN_API uint32_t rn_profile_lane(const char *name);
RN_API uint64_t rn_profile_now(void);

// Memory that is not on the ledger (PyTorch's), or a part of a block that is (RN_PROFILE_INNER).
typedef enum rn_profile_flag {
    RN_PROFILE_INNER = 1,   // lies in a block that was allocated before: an arena's buffer
    RN_PROFILE_RELABEL = 2, // an ALLOC that allocates nothing: the live block at this address is
                            // called `name` and serves this purpose, from its beginning. Not
                            // counted; its FREE has the purpose of its first ALLOC.
    RN_PROFILE_SITE = 4,    // an ALLOC that allocates nothing: the live block at this address was
                            // asked for by the call stack that is the detail of `name`, a frame a
                            // line, outermost first. Not counted.
} rn_profile_flag;
RN_API void rn_profile_alloc(rn_account account, uint64_t address, uint64_t bytes, uint32_t name,
                             unsigned flags);
RN_API void rn_profile_free(rn_account account, uint64_t address, uint64_t bytes, unsigned flags);
// Bytes copied from one device to another, or read from disk (from = RN_DEVICE_ANY).
RN_API void rn_profile_move(rn_device_id from, rn_device_id to, uint64_t address, uint64_t bytes,
                            uint32_t name);

typedef enum rn_counter {
    RN_COUNTER_OTHER,          // any number; its name says which
    RN_COUNTER_RESIDENT,       // what the system holds of the process
    RN_COUNTER_BUDGET,         // a device's hard limit
    RN_COUNTER_PREDICTED,      // a plan's live bytes at this step, and what the device holds beside
                               // the plan's arena: what should be in use now
    RN_COUNTER_PREDICTED_PEAK, // the same with the most live bytes of any step
    // One (operation, shapes) of PyTorch's own profiler: `name` is its label, with the input shapes
    // as JSON text for detail. The last value counts. A timeline has them as its torch_ops.
    RN_COUNTER_TORCH_CALLS,
    RN_COUNTER_TORCH_CPU_NS,
    RN_COUNTER_TORCH_CUDA_NS,
    RN_COUNTER_TORCH_CPU_BYTES,  // an int64_t
    RN_COUNTER_TORCH_CUDA_BYTES, // an int64_t
    RN_COUNTER_COUNT
} rn_counter;
RN_API void rn_profile_counter(rn_counter kind, rn_device_id device, uint32_t name, uint64_t value);

// A snapshot with a name: what is live here is listed in reports and exports.
RN_API void rn_profile_checkpoint(const char *name);

// ---- looking ---------------------------------------------------------------------------

typedef struct rn_timeline rn_timeline;

// Reads a trace, a JSON profile (the seed's or pie's) or a PyTorch snapshot (pickle), whichever it
// is, into memory that is charged to the ledger. A file that was cut or damaged is read as far as
// it goes; rn_timeline_report says what is missing. RN_CORRUPT: none of these formats;
// RN_OVER_BUDGET.
RN_API RN_MUST_USE rn_status rn_timeline_open(const char *path, rn_timeline **out);
RN_API void rn_timeline_destroy(rn_timeline *timeline);

// Writes one file that holds the recordings of a job's ranks (at most 16); rn_timeline_open reads
// it as one timeline: devices and lanes called "rank 0 ...", clocks aligned by the ends of
// collectives (operations whose label has the group "comm"), and a lane with those of all ranks.
// RN_INVALID: a file that is no recording.
RN_API RN_MUST_USE rn_status rn_timeline_merge(const char *const *paths, size_t count,
                                               rn_sink sink);

typedef struct rn_report_options {
    double at_seconds;    // what was live then; negative: at the peak
    size_t rows;          // of each table; 0: 10
    uint64_t reserved[4]; // zero
} rn_report_options;
// For people: peak and what was live at it by purpose, block and operation; operations; reserved
// against active; predicted against actual; leaks. {.at_seconds = -1} where options is NULL.
RN_API RN_MUST_USE rn_status rn_timeline_report(const rn_timeline *timeline,
                                                const rn_report_options *options, rn_sink sink);
RN_API RN_MUST_USE rn_status rn_timeline_report_json(const rn_timeline *timeline,
                                                     const rn_report_options *options,
                                                     rn_sink sink); // a JSON object
// What changed from `a` to `b`: peaks, purposes, operations, what is live at the peaks.
RN_API RN_MUST_USE rn_status rn_timeline_diff(const rn_timeline *a, const rn_timeline *b,
                                              rn_sink sink);
RN_API RN_MUST_USE rn_status rn_timeline_diff_json(const rn_timeline *a, const rn_timeline *b,
                                                   rn_sink sink); // a JSON object

typedef enum rn_export {
    RN_EXPORT_HTML,       // one page that needs nothing else
    RN_EXPORT_JSON,       // every key of pie's memory_profile_*.json and of its documentation
    RN_EXPORT_CHROME,     // Chrome's trace format: Perfetto, chrome://tracing, speedscope
    RN_EXPORT_TORCH,      // PyTorch's memory snapshot, a pickle that memory_viz opens
    RN_EXPORT_CSV,        // id,lower,upper,size: what `ration place` plans again
    RN_EXPORT_PROMETHEUS, // gauges, as text
    RN_EXPORT_PPROF,      // pprof's profile.proto: bytes by operation, purpose and holder
    RN_EXPORT_COUNT
} rn_export;
// "html", "json", "chrome", "torch", "csv", "prometheus", "pprof".
RN_API const char *rn_export_name(rn_export form);
RN_API RN_MUST_USE rn_status rn_timeline_export(const rn_timeline *timeline, rn_export form,
                                                rn_sink sink);

RN_END_DECLS

#endif

// record.h — the recorder's insides: who owns what, and in which order locks are taken.
//
//     thread ──put──▶ its ring ─┐
//     thread ──put──▶ its ring ─┼─ a round, under `lock` ──▶ blocks ──▶ file
//     service ring (the writer) ┘
//
// A thread's events go into its own ring without a lock. Whoever holds `lock` may take them out:
// a thread that records when a round is due (20 ms after the last), or whose own ring is full; the
// writer thread, where nobody has; a flush, a fatal signal. Taking out allocates nothing and calls
// only what a signal handler may call.
//
// Locks, outer first: control (start, stop), names (names, lanes), lock (rings, file).
#ifndef RN_PROFILE_RECORD_H
#define RN_PROFILE_RECORD_H

#include "base/alloc.h"
#include "profile/trace.h"

#include <pthread.h>
#include <stdatomic.h>

// ---- texts that are only ever added (record_log.c) ----------------------------------------------

// Records as the file has them, in chunks that never move: one thread appends (under a lock), any
// other reads what is complete without one.
enum { RN_LOG_CHUNK = 32 << 10, RN_LOG_CHUNKS = 2048 };

typedef struct rn_record_log {
    char *chunks[RN_LOG_CHUNKS];
    _Atomic uint32_t used[RN_LOG_CHUNKS];
    _Atomic uint32_t chunk_count;
} rn_record_log;

typedef struct rn_log_cursor {
    uint32_t chunk, offset;
} rn_log_cursor;

// Where it lies now, or NULL: no memory, or `most_chunks` are full. bytes <= RN_LOG_CHUNK.
const char *rn_record_log_append(rn_record_log *log, const void *record, uint32_t bytes,
                                 uint32_t most_chunks);
// The next stretch of whole records behind `at`; false at the end.
bool rn_record_log_next(rn_record_log *log, rn_log_cursor *at, const char **out, uint32_t *bytes);
void rn_record_log_free(rn_record_log *log);

// ---- names and lanes (record_names.c) -----------------------------------------------------------

// Names live as long as the process, so that a number means the same in every recording.
extern rn_record_log rn_names_log;
extern rn_record_log rn_lanes_log; // of the recording under way
extern pthread_mutex_t rn_names_lock;

// The number of these texts; 0 where there is no memory. *out_text (may be NULL): the name's bytes,
// for good.
uint32_t rn_name_intern(rn_str name, rn_str group, rn_str detail, rn_str *out_text);
// As rn_profile_name, whether or not something is recorded: by the thread's cache first.
uint32_t rn_name_cached(const char *name);
uint32_t rn_lane_next(void); // a lane's number, never given twice
void rn_lane_call(uint32_t lane, const char *name);
// Lists the queues, which keep their numbers, in a new recording.
void rn_lanes_begin(void);
void rn_lanes_end(void);

// ---- rings and threads (record_ring.c) ----------------------------------------------------------

enum { RN_NAME_CACHE = 64 };

typedef struct rn_name_slot {
    const char *key; // the caller's pointer
    rn_str text;     // what it said
    uint32_t id;
} rn_name_slot;

typedef struct rn_ring {
    struct rn_ring *next, **link; // in rn_recorder.rings, under its lock
    rn_trace_event *events;       // (capacity), behind this struct
    uint64_t capacity;            // a power of two
    uint64_t block_bytes;         // of the allocation
    uint32_t lane;
    _Atomic uint32_t *inside; // the owner's; NULL: the service ring
    uint64_t taken;           // head at the beginning of a round
    rn_name_slot names[RN_NAME_CACHE];
    _Alignas(64) _Atomic uint64_t head; // the owner's
    uint64_t tail_seen;                 // the owner's
    _Alignas(64) _Atomic uint64_t tail; // under the lock
} rn_ring;

typedef struct rn_recording_thread {
    rn_ring *ring;           // valid while `session` is the recorder's
    uint32_t session;        // 0: none
    _Atomic uint32_t inside; // the ring is in use: it may not be freed
    uint32_t wait;           // events until another attempt at a ring, after a refusal
    bool busy;               // the recorder itself allocates here
    bool ending;             // its ring has gone, and it gets no other
} rn_recording_thread;

extern _Thread_local rn_recording_thread rn_this_recording;

// While the recorder allocates: what is charged has no name, makes no ring, and is not counted in
// the program's scopes.
typedef struct rn_aside {
    void *scopes;
    bool busy;
} rn_aside;
rn_aside rn_aside_begin(void);
void rn_aside_end(rn_aside before);

// What this thread was told last. Where the recorder can do without what it did not get, that is
// not the program's business: the program finds its own error and its own refusal.
typedef struct rn_told {
    rn_error_info error;
    rn_refusal refusal;
} rn_told;
void rn_told_keep(rn_told *told);
void rn_told_restore(const rn_told *told);

// Between enter and leave the thread's ring stays. False: it has none in this recording, or is
// there already (a signal handler). Takes no lock, and no lock may be taken inside.
bool rn_recording_enter(rn_recording_thread *thread);
static inline void rn_recording_leave(rn_recording_thread *thread) {
    atomic_store_explicit(&thread->inside, 0, memory_order_release);
}

// Puts an event into this thread's ring; where it has none and gets none (no memory, the recorder
// itself is allocating, the thread is ending) into the service ring.
void rn_record_put(const rn_trace_event *event);
// For those who put several events at one moment: a time for them.
uint64_t rn_record_now(void);
// With kind, name and the time now.
void rn_record_mark(rn_trace_mark mark, rn_device_id device, uint32_t name, uint64_t bytes);
// The calling thread's lane; 0 where it has no ring and gets none.
uint32_t rn_recording_lane(void);
rn_status rn_ring_create(uint64_t ring_bytes, rn_ring **out);
void rn_ring_destroy(rn_ring *ring);
// Under the lock, on the service ring.
void rn_service_put(const rn_trace_event *event);
// Makes every thread that is inside visible, and waits until none of `rings` is used.
void rn_rings_await(rn_ring *rings);
void rn_rings_prepare(void); // once a recording: the barrier that rn_rings_await needs

// ---- the file (record_file.c) -------------------------------------------------------------------

typedef struct rn_trace_file {
    int fd; // -1: none
    char path[4096];
    uint64_t limit_bytes, first_bytes; // the preamble's end
    uint64_t offset, bytes;            // of the next block; of the file
    uint64_t sequence, round;
    bool ring; // keep_newest
    int error; // errno of the write that failed
} rn_trace_file;

RN_MUST_USE rn_status rn_trace_file_open(rn_trace_file *file, const char *path);
// Bytes that a payload may still have before the limit, 0 where not even a header fits.
uint64_t rn_trace_file_room(const rn_trace_file *file);
// False: `error` says why. There must be room.
bool rn_trace_file_put(rn_trace_file *file, rn_trace_block_kind kind, uint32_t lane,
                       const void *payload, uint32_t bytes);
// END fits always: room for it is kept.
bool rn_trace_file_put_end(rn_trace_file *file, const char *payload, uint32_t bytes);
void rn_trace_file_begin_lap(rn_trace_file *file);
RN_MUST_USE rn_status rn_trace_file_put_preamble(rn_trace_file *file,
                                                 const rn_profile_options *options);

// ---- rounds (record_round.c) --------------------------------------------------------------------

// What the file's events say is held: below zero for a moment where a release was taken from one
// ring and its charge still lies in another.
typedef struct rn_held_bytes {
    int64_t bytes, blocks;
} rn_held_bytes;

typedef struct rn_peak {
    _Alignas(64) atomic_flag lock;
    _Atomic uint64_t bytes, time_ns;
    _Alignas(64) _Atomic int64_t extra; // bytes held that are not on the ledger
} rn_peak;

typedef struct rn_recorder {
    // What every event looks at; the rest changes with every round.
    _Atomic uint32_t session; // 0: off
    _Atomic uint64_t start_ns, ring_bytes;
    _Atomic uint64_t due_ns; // since the start: when a round of all rings should have been
    _Alignas(64) pthread_mutex_t lock;
    _Atomic uintptr_t owner; // of the lock: a signal handler must not wait for its own thread
    pthread_cond_t wake;
    bool quit;      // the writer thread's
    bool open;      // from start to stop
    bool over;      // nothing is written any more: END, or a write that failed
    bool in_signal; // no log
    pthread_t writer;
    rn_trace_file file;
    rn_ring *rings, *service;
    rn_ring *orphans; // of the parent, in a child
    uint64_t event_count;
    _Atomic uint64_t dropped_count;
    rn_log_cursor names_at, lanes_at; // what the file has
    size_t devices_at;
    rn_held_bytes held[RN_DEVICE_MAX][RN_PURPOSE_COUNT];
    rn_peak peaks[RN_DEVICE_MAX];
    uint64_t laps; // of a ring file, begun
    // The last of those counters that hold until they change; kind 0: there was none.
    rn_trace_event counters[RN_DEVICE_MAX][RN_COUNTER_PREDICTED_PEAK + 1];
    char warning[512]; // to be logged
    double snapshot_seconds;
} rn_recorder;

extern rn_recorder rn_rec;

void rn_recorder_lock(void);
bool rn_recorder_try_lock(void);
void rn_recorder_unlock(void);
// Logs what there is to warn of. The writer thread and stop do it: a thread that records may hold
// any lock of the program, even the log's.
void rn_recorder_say(void);
// Under the lock. One round of all rings, or of one: nothing is written where all are empty.
void rn_round_write(rn_ring *only);
// Under the lock: END with a reason; the recording is off from here on.
void rn_recorder_end(const char *reason);

// ---- the ledger (record_ledger.c) ---------------------------------------------------------------

// Counts bytes that are not on the ledger, and the device's peak.
void rn_record_count(rn_device_id device, int64_t change, uint64_t now_ns);
// Listens from now on. What the ledger holds already becomes events on the service ring; then
// START. What other threads charge or release just then may be missed.
void rn_record_base(void);
void rn_record_peaks_begin(void);
// The device's peak so far.
rn_held_bytes rn_record_peak(rn_device_id device); // bytes; in the place of the blocks: time_ns

// ---- signals and forks (record_signal.c) --------------------------------------------------------

void rn_record_signals_catch(void);
void rn_record_signals_restore(void);
void rn_record_forks_watch(void); // once a process
extern pthread_mutex_t rn_control_lock;

#endif

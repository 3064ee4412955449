// executable.h — programs of a graph, one a bucket, with the buffers that they share: what its
// parts see of it. uploads.c brings weights and states, execution.c runs, executable.c makes and
// ends it.
#ifndef RN_BACKEND_PJRT_EXECUTABLE_H
#define RN_BACKEND_PJRT_EXECUTABLE_H

#include "backend/pjrt/pjrt.h"

#include "base/arena.h"

// A program for one number of rows.
typedef struct rn_pjrt_bucket {
    uint64_t rows;
    rn_stablehlo_signature signature;
    rn_pjrt_code code;
} rn_pjrt_bucket;

// An argument that several weights are, on its way: uploaded when the last has come.
typedef struct rn_pjrt_joined {
    uint8_t *data; // NULL: nothing was put, or all is uploaded
    uint32_t left; // of its parts, those that were not put
    bool staged;   // data is the executable's stage
} rn_pjrt_joined;

typedef struct rn_pjrt_executable {
    rn_executable base;
    rn_pjrt_device *device;
    const rn_graph *graph;
    rn_arena memory;         // all tables
    rn_pjrt_bucket *buckets; // (bucket_count)
    uint32_t bucket_count;
    rn_pjrt_table arguments; // (arguments of any bucket); those of a run are NULL between runs
    rn_pjrt_table results;   // (results of any bucket)
    // A run of the smallest bucket that was begun before it was asked for, or NULL: its results,
    // its end, and the inputs that it was begun with, one behind the other.
    bool goes_ahead; // there is room for it
    const rn_pjrt_bucket *ahead;
    rn_pjrt_table ahead_results;
    void *ahead_done[RN_PJRT_MOST_CORES];
    uint8_t *foreseen;
    rn_pjrt_table later; // (1): the counted input of the run behind it, or NULL
    void **read;         // (results of any bucket): events of results that are being read
    int64_t *kept;       // (kept_count): numbers of states' arguments that are not donated
    uint32_t kept_count;
    size_t option_bytes;    // of a run's options, as the plugin wants them
    uint32_t weights_left;  // that were not put yet
    rn_pjrt_joined *joined; // (arguments): of weights that are one argument, what was put of them
    void *stage;            // of the largest of those, for one after the other
    uint64_t stage_bytes;
    uint32_t joined_left; // arguments of several weights that are not uploaded yet
    bool stage_busy;
    bool ran; // once: the stage is told
    uint64_t runs, runs_ahead;
    uint64_t phase_ns[3]; // uploading inputs, submitting, waiting for results; for the log
} rn_pjrt_executable;

static inline rn_pjrt_executable *rn_pjrt_executable_of(rn_executable *executable) {
    return (rn_pjrt_executable *)((char *)executable - offsetof(rn_pjrt_executable, base));
}

// Of the largest bucket; the others differ in rows alone.
static inline const rn_stablehlo_signature *rn_pjrt_signature(const rn_pjrt_executable *e) {
    return &e->buckets[e->bucket_count - 1].signature;
}

// ---- weights and states (uploads.c) -------------------------------------------------------------

static inline bool rn_pjrt_is_there(const rn_pjrt_executable *e, uint32_t argument) {
    return e->arguments.core[0][argument] != NULL;
}
void rn_pjrt_drop_argument(rn_pjrt_executable *e, uint32_t argument);
RN_MUST_USE rn_status rn_pjrt_upload_argument(rn_pjrt_executable *e, const rn_stablehlo_entry *port,
                                              const void *data, uint32_t argument);
// rn_executable.put and .get.
RN_MUST_USE rn_status rn_pjrt_put(rn_executable *executable, rn_value value, const void *data,
                                  uint64_t bytes);
RN_MUST_USE rn_status rn_pjrt_get(rn_executable *executable, rn_value value, void *data,
                                  uint64_t bytes);
// Constants and states of zeros: what nobody puts.
RN_MUST_USE rn_status rn_pjrt_fill(rn_pjrt_executable *e);
// A run that failed has eaten the states that it was to update: they are zeros again.
void rn_pjrt_rebuild_states(rn_pjrt_executable *e);
// Whatever is left of weights on their way.
void rn_pjrt_release_joined(rn_pjrt_executable *e, uint32_t argument);
void rn_pjrt_release_stage(rn_pjrt_executable *e);

// ---- runs (execution.c) -------------------------------------------------------------------------

// rn_executable.run.
RN_MUST_USE rn_status rn_pjrt_run(rn_executable *executable, const rn_execution *run);
// A run that was begun is not wanted.
void rn_pjrt_drop_ahead(rn_pjrt_executable *e);

#endif

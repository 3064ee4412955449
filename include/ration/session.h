// session.h — carries out a plan: one arena, filled and computed step by step, and nothing else.
//
//     rn_session *session;
//     RN_TRY(rn_session_create(plan, &weights, NULL, &session));
//     RN_TRY(rn_session_set(session, "x", x, sizeof x));
//     RN_TRY(rn_session_run(session, rows));
//     RN_TRY(rn_session_get(session, "y", y, sizeof y));
//     rn_session_destroy(session);
//
// One thread at a time. After a failure (a read error, an injected fault, cancelling) every call
// returns the same error until rn_session_reset.
#ifndef RATION_SESSION_H
#define RATION_SESSION_H

#include <ration/checkpoint.h>
#include <ration/comm.h>
#include <ration/plan.h>

RN_BEGIN_DECLS

typedef struct rn_session rn_session;
typedef struct rn_device rn_device;

// Where weights come from: memory for those that `find` knows (adapters, tests), the rest a
// checkpoint (tensors by the weights' names). One of the two may be NULL.
typedef struct rn_weight_source {
    const rn_checkpoint *checkpoint;
    void *self;
    // The plain bytes of a weight (as files have them; int8, int4 and nf4 with their scales behind
    // the data, each part on a 64-byte boundary), valid while the session lives; NULL: none. Asked
    // by rn_session_create only.
    const void *(*find)(void *self, const char *name, rn_dtype dtype, uint64_t bytes);
} rn_weight_source;

// What a plan for a device with its own memory may use there. {0}: nine tenths of what is free.
typedef struct rn_device_budget {
    uint64_t bytes;    // of the device, with the context and all else that this process has there
    bool planned_only; // for the plan alone
} rn_device_budget;
// `options` are the host's (budget, and what is held beside the plan). For a device with its own
// memory that becomes the plan's share of the host, and the device's budget takes its place: with
// what is on its ledger now, and a reserve for recordings of runs, beside the plan. One that
// compiles gets host_caps, unless it is to be exact. RN_OVER_BUDGET: the device is full already.
RN_API RN_MUST_USE rn_status rn_plan_options_for(rn_device *device, const rn_device_budget *budget,
                                                 rn_plan_options *options);

typedef struct rn_session_options {
    rn_device *device;      // NULL: the CPU
    const rn_flag *cancel;  // seen between steps and between reads; may be NULL
    bool audit;             // count live bytes at each step from the kernels' own arguments
    bool guard;             // canary bytes around the arena (8 KiB more than planned) and where
                            // it is free; RN_INTERNAL names a kernel that overwrote some
    uint32_t growing_pages; // states of purpose KV with so many rows are charged and made resident
                            // row by row as they are needed, on the host (rn_generator_options
                            // .grow_kv); 0: all at once
    rn_comm *comm;          // of graphs with collectives, which all ranks then run together;
                            // borrowed; NULL: one rank
    uint64_t reserved[4];   // zero
} rn_session_options;

// Takes the arena (charged to the ledger) and reads the resident weights. The plan must outlive it.
RN_API RN_MUST_USE rn_status rn_session_create(const rn_plan *plan, const rn_weight_source *weights,
                                               const rn_session_options *options, rn_session **out);
RN_API void rn_session_destroy(rn_session *session);

// An input's bytes, for the next run: n rows of it where it has RN_ROWS. They are copied, over the
// last run's outputs. With micro-batches: of the whole batch, and borrowed until the run returns;
// an input that has the size of one micro-batch goes to each.
RN_API RN_MUST_USE rn_status rn_session_set(rn_session *session, const char *input,
                                            const void *data, uint64_t bytes);
RN_API RN_MUST_USE rn_status rn_session_set_scalar(rn_session *session, const char *name,
                                                   double value);
// rows: n <= the plan's rows; 0 where the graph has no RN_ROWS.
RN_API RN_MUST_USE rn_status rn_session_run(rn_session *session, uint64_t rows);
// An output, a state or a trainable weight, as plain bytes.
RN_API RN_MUST_USE rn_status rn_session_get(rn_session *session, const char *name, void *data,
                                            uint64_t bytes);
// Where an output lies on the host, and its bytes, without a copy; until the next set or run. NULL,
// with 0 bytes, where there is no such output now (no run yet, a failure): then rn_session_get says
// what is the matter.
RN_API const void *rn_session_output(const rn_session *session, const char *name,
                                     uint64_t *out_bytes);
// Overwrites a state or weight.
RN_API RN_MUST_USE rn_status rn_session_put(rn_session *session, const char *name, const void *data,
                                            uint64_t bytes);
// Clears a failure: slots are released, reading starts over; states stay as they are.
RN_API RN_MUST_USE rn_status rn_session_reset(rn_session *session);

typedef struct rn_session_facts {
    uint64_t runs;
    uint64_t live_peak_bytes;     // audit: the most bytes in use at any step
    uint64_t live_mismatch_step;  // audit: the first step at which they differ from the plan, or
                                  // UINT64_MAX
    uint64_t resident_peak_bytes; // audit: pages of the arena that the system holds (mincore)
    uint64_t read_bytes;          // from disk
    double seconds, wait_seconds; // of the last run; of it waiting for reads
    // Experts on demand, of all runs: how many of a layer a run's rows chose, how many of those
    // were not in memory, and the bytes read for them (part of read_bytes).
    uint64_t experts_needed, experts_missed, expert_read_bytes;
} rn_session_facts;
RN_API rn_session_facts rn_session_get_facts(const rn_session *session);

RN_END_DECLS

#endif

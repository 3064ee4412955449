// session.h — a session from the inside, for the files that make it up.
//
//     session.c   life, inputs and outputs, a run        walk.c     steps to queues, fences
//     bind.c      calls: shapes and addresses            weights.c  from file to slot
//     audit.c     live bytes, counted from the calls     guard.c    canaries
//     gather.c    rows of embeddings, before a run       session_profile.c  what profilers hear
//     session_io.c     in and out of a device's own memory    captures.c  runs that are replayed
//     copies.c    streamed weights on the host           session_segments.c  some blocks of a run
//     host_offloads.c  states and saved values there        program_run.c  phases in one arena
//     expert_slots.c   experts on demand
#ifndef RN_RUNTIME_SESSION_H
#define RN_RUNTIME_SESSION_H

#include <ration/program.h>
#include <ration/session.h>

#include "device/device.h"
#include "device/executable.h"
#include "graph/op/rank_sum.h"
#include "plan/plan.h"
#include "runtime/expert_slots.h"
#include "runtime/weights.h"

typedef struct rn_guard rn_guard;
typedef struct rn_row_pick rn_row_pick;
typedef struct rn_session_profile rn_session_profile;

typedef struct rn_session_input {
    rn_value value;
    const uint8_t *data; // with micro-batches: the whole batch, the caller's
    uint64_t bytes;      // that were given
    bool given;          // for the next run
} rn_session_input;

// The inputs that say where an op writes in a cache.
typedef struct rn_session_append {
    rn_value sequence, position;
} rn_session_append;

// Steps of a run of so many rows, as the compute queue keeps them.
typedef struct rn_session_capture {
    uint64_t rows, used; // used: the number of its last use; 0: never
    uint32_t from_step, to_step;
    rn_value unwanted;
    rn_recording *recording;
} rn_session_capture;

// Slots of the ring in runs by segments: the load that is there or on its way, or none.
typedef struct rn_session_slots {
    uint32_t holds[RN_INTERLEAVE_SLOTS];
    rn_fence full[RN_INTERLEAVE_SLOTS], free[RN_INTERLEAVE_SLOTS];
} rn_session_slots;

struct rn_session {
    const rn_plan *plan;
    rn_device *device;
    bool owns_device;
    rn_session_options options;
    rn_arena memory; // all tables
    rn_device_memory arena;
    uint8_t *base;           // of the plan's arena, within `arena`
    uint64_t page_bytes;     // of a page of the KV cache that grows, in all layers; 0: none grows
    uint32_t held_pages;     // of it, charged and resident so far
    rn_program_run *program; // whose arena it is, of which this is a phase; NULL: its own

    rn_queue *compute;
    rn_queue *read;     // NULL where nothing is streamed
    rn_queue *copy;     // of a device with its own memory, else NULL
    rn_queue *send;     // where something of a run goes to the host, else NULL
    rn_fence *fences;   // (fence_count)
    uint32_t *fence_of; // (steps): the fence that the step signals, or RN_NO_STEP
    uint32_t fence_count;

    rn_weights *weights;
    rn_experts *experts; // NULL: none are on demand
    uint32_t
        *read_order; // (slots + uses): the loads read before the first run, then those of a run
    uint64_t reads_begun;       // since the session was opened or reset; the read queue's
    _Atomic uint64_t evictions; // since then
    uint8_t *stages[2];         // host buffers between disk and device, (stage_bytes) each
    uint64_t stage_bytes;
    rn_fence stage_full[2], stage_free[2];

    uint8_t
        *copies; // of streamed weight groups on the host, in the device's layout; NULL: from disk
    uint64_t copies_bytes;
    uint64_t *copy_offset; // (weight groups)
    uint8_t *away[2];      // on the host: values that are saved there; states, whose home it is
    uint8_t *io;           // inputs and outputs on the host; NULL: the arena is the host's
    uint64_t io_bytes;
    uint64_t *io_offset;     // (values + 1)
    uint64_t *row_io_offset; // (the plan's row tables)
    const rn_segment_table *segments;
    rn_session_slots slots;
    const rn_segment *segment; // of the run under way, or the last; NULL: it is a whole one
    uint64_t value_offset; // among the I/O staging buffers, of what segments are handed and hand on
    rn_session *host;      // of the plan's part for the host; NULL: there is none
    rn_executable *executable;    // of a device that compiles; then there are no queues
    rn_argument *arguments;       // (inputs and outputs): of its run
    uint32_t first_step;          // of the run under way
    uint32_t from_step, to_step;  // what of it is being submitted
    rn_session_capture *captures; // (capture_count)
    uint32_t capture_count;
    uint64_t replays;
    bool cannot_capture; // the device had no memory for it

    rn_call *calls;      // (steps); of COMPUTE steps
    bool *is_view;       // (steps): nothing is computed
    uint32_t *slot_load; // (loads): the next load of the same weight group, or RN_NO_LOAD
    uint64_t bound_rows;
    bool bound_segments; // streamed weights are where segments have them

    rn_value unwanted;        // an output that is not brought to the host; RN_NO_VALUE: none
    rn_next_run next;         // of a session that is compiled; all RN_NO_VALUE: not foreseen
    rn_session_input *inputs; // (input_count)
    uint32_t input_count;
    rn_scalar scalars[RN_MAX_SCALARS];
    rn_scalar *numbered;     // (micro-batches, scalars of the graph) where it has RN_MICRO_BATCH
    rn_scalar *call_scalars; // those of the micro-batch that is being submitted; NULL: `scalars`
    uint32_t number_scalar;

    rn_row_pick *picks;  // (the most ids of an input whose rows are gathered)
    int32_t *unique_ids; // as many

    rn_session_append *appends; // (append_count)
    uint32_t append_count;
    rn_value *sums; // (sum_count): what micro-batches add up in
    uint32_t sum_count;

    rn_call_ranks ranks;         // of collectives; ranks 0: there is one rank
    rn_guard *guard;             // or NULL
    rn_session_profile *profile; // NULL: it was never recorded
    uint32_t arena_recording;    // the recording that knows of the arena; 0: none
    bool told_inputs;            // the stage inputs_on_device
    bool primed;                 // the first reads of the next run are under way
    bool ran;                    // outputs are there
    bool handed;                 // what a segment hands on is there
    _Atomic bool stop;
    uint64_t wait_ns;
    rn_error_info error; // of the failure; status RN_OK: none
    rn_session_facts facts;
};

// READ, and UPLOAD, which reads and then copies to a device of its own memory.
static inline bool rn_step_fills(const rn_plan_step *step) {
    return step->kind == RN_STEP_READ || step->kind == RN_STEP_UPLOAD;
}

// ---- a KV cache that grows (kv_growth.c) --------------------------------------------------------

// What of the arena is charged later, by rn_session_hold_pages; sets page_bytes.
uint64_t rn_session_growing_bytes(rn_session *session);
// Whether this value's pages come as they are needed.
bool rn_session_grows(const rn_session *session, rn_value value);
// The first `pages` pages are there, zeroed and charged. RN_OVER_BUDGET: those so far stay.
RN_MUST_USE rn_status rn_session_hold_pages(rn_session *session, uint32_t pages);
void rn_session_release_pages(rn_session *session);

// ---- places (bind.c) ----------------------------------------------------------------------------

// Where a value lies in the arena; NULL: nowhere, or in a slot.
uint8_t *rn_session_address(const rn_session *session, rn_value value);
// Plain bytes of a value with `rows`.
uint64_t rn_session_value_bytes(const rn_session *session, rn_value value, uint64_t rows);
// Tables for the calls; checks what never changes: that every buffer lies in the arena and every
// node has a kernel.
RN_MUST_USE rn_status rn_session_prepare_calls(rn_session *session);
// A COMPUTE step, and where streamed weights lie then.
typedef struct rn_session_step {
    rn_session *session;
    uint32_t *current; // (weight groups): the load in which its weights lie now
    uint32_t step;
    const rn_node *node;
    uint64_t rows;
} rn_session_step;
// Calls `each` for every COMPUTE step in turn, until one fails. RN_NO_MEMORY, or what it returns.
RN_MUST_USE rn_status rn_session_each_step(rn_session *session, uint64_t rows,
                                           rn_status (*each)(const rn_session_step *at));
// Where the buffer of an operand begins, and its bytes; NULL: nowhere.
uint8_t *rn_session_step_buffer(const rn_session_step *at, rn_value value, uint64_t *out_bytes);
// Makes all calls for `rows`, of session->segment or a whole run. RN_INTERNAL, naming the node: the
// plan gave a value or a workspace less than it needs.
RN_MUST_USE rn_status rn_session_bind(rn_session *session, uint64_t rows);

// ---- the walk (walk.c) --------------------------------------------------------------------------

RN_MUST_USE rn_status rn_session_prepare_walk(rn_session *session);
void rn_session_close_walk(rn_session *session);
// Reads resident weights into the arena now. Of a phase of a program those in the shared region;
// with `entering` its own.
RN_MUST_USE rn_status rn_session_load_resident(rn_session *session, bool entering);
// One pass over the steps [session->from_step, to_step); nodes of phase UPDATE only where `last`.
// In segments nothing is read. Failures are in the queues.
void rn_session_walk(rn_session *session, bool last);
// Begins the reads that the last run would have left under way.
void rn_session_prime(rn_session *session);
// Waits for all that was submitted.
void rn_session_settle(rn_session *session);
// Ends all reading, revives the queues.
void rn_session_revive(rn_session *session);

// ---- a device's own memory (session_io.c, copies.c, host_offloads.c, captures.c)
// ---------------------- All of it is nothing where the device's memory is the host's.

RN_MUST_USE rn_status rn_session_open_io(rn_session *session);
void rn_session_close_io(rn_session *session);
// Where an input or output waits on the host, or NULL.
uint8_t *rn_session_io(const rn_session *session, rn_value value);
uint8_t *rn_session_row_io(const rn_session *session, uint32_t table);
void rn_session_bring_inputs(rn_session *session, uint64_t rows);
void rn_session_fetch_outputs(rn_session *session, uint64_t rows);
// Takes what a segment is handed to where it waits, or right into the arena; and from there, behind
// the inputs, into the arena; and what it hands on back there. Nothing for RN_NO_VALUE.
void rn_session_keep_value(rn_session *session, rn_value value, const void *data, uint64_t bytes);
void rn_session_bring_value(rn_session *session, rn_value value, uint64_t rows);
void rn_session_fetch_value(rn_session *session, rn_value value, uint64_t rows);

RN_MUST_USE rn_status rn_session_open_copies(rn_session *session);
void rn_session_close_copies(rn_session *session);
RN_MUST_USE rn_status rn_session_load_copies(rn_session *session);

// Places on the host for what the plan sends there: states begin as zeros.
RN_MUST_USE rn_status rn_session_open_offloads(rn_session *session);
void rn_session_close_offloads(rn_session *session);
// Where a state is whose home is the host; NULL: it is in the arena.
uint8_t *rn_session_home(const rn_session *session, rn_value value);
void rn_session_offload(rn_session *session, uint32_t offload);
void rn_session_prefetch_offload(rn_session *session, uint32_t offload);

// Submits what is from session->from_step to to_step.
typedef rn_status (*rn_session_submit)(rn_session *session, uint64_t rows);
// Replays these steps where they can be, and have been recorded, which the second run of a number
// of rows is. *out_done: they were submitted, by replaying.
RN_MUST_USE rn_status rn_session_prepare_captures(rn_session *session);
RN_MUST_USE rn_status rn_session_replay(rn_session *session, uint64_t rows,
                                        rn_session_submit submit, bool *out_done);
// Idle queues.
void rn_session_forget_captures(rn_session *session);

// ---- phases (program_run.c) ---------------------------------------------------------------------

// rn_session_create for a phase of a program that is being opened, in its arena.
RN_MUST_USE rn_status rn_session_create_phase(const rn_plan *plan, rn_program_run *program,
                                              const rn_device_memory *arena,
                                              const rn_weight_source *weights,
                                              const rn_session_options *options, rn_session **out);
// Makes the arena above the shared region this session's: its constants and weights are there.
// Nothing where it is already, or the session is of no program.
RN_MUST_USE rn_status rn_session_enter(rn_session *session);
// Ends all reading; what is above the shared region, outputs included, is another phase's now.
void rn_session_rest(rn_session *session);
// Constants have their bytes; with `states` these are zero.
RN_MUST_USE rn_status rn_session_fill_values(rn_session *session, bool states);

// ---- segments (session_segments.c) --------------------------------------------------------------

// rn_session_create with segments that are not the plan's own; borrowed.
RN_MUST_USE rn_status rn_session_create_with(const rn_plan *plan, const rn_segment_table *segments,
                                             const rn_weight_source *weights,
                                             const rn_session_options *options, rn_session **out);
// One segment of the session's own. `value`: what the blocks before it have made and it reads,
// `bytes` of it, plain; it is copied. NULL for one that is the beginning. All inputs are set as for
// a whole run. Of other blocks nothing is read or written, nor their states.
RN_MUST_USE rn_status rn_session_run_segment(rn_session *session, uint32_t segment,
                                             const void *value, uint64_t bytes, uint64_t rows);
// What a segment that was just run hands on to the blocks behind it, and its bytes; until the next
// set or run. NULL where it is the end: then there are outputs.
const void *rn_session_segment_output(const rn_session *session, uint64_t *out_bytes);
// Whether a run of so many rows goes through the segments of both memories.
bool rn_session_is_hybrid(const rn_session *session, uint64_t rows);
// Opens and closes the host's part.
RN_MUST_USE rn_status rn_session_open_host(rn_session *session, const rn_weight_source *weights);
// Through all segments, with the inputs that were set.
RN_MUST_USE rn_status rn_session_run_hybrid(rn_session *session, uint64_t rows);

// ---- executables (session_executable.c) ---------------------------------------------------------

RN_MUST_USE rn_status rn_session_open_executable(rn_session *session,
                                                 const rn_weight_source *weights);
void rn_session_close_executable(rn_session *session);
// A run of so many rows, with the inputs that were set.
RN_MUST_USE rn_status rn_session_execute(rn_session *session, uint64_t rows);
// session.c's, for it: that device and plan go together; the graph's inputs.
RN_MUST_USE rn_status rn_session_check_options(const rn_session *session);
RN_MUST_USE rn_status rn_session_list_inputs(rn_session *session);

// Submits the whole of session->segment.
RN_MUST_USE rn_status rn_session_submit_segment(rn_session *session, uint64_t rows);
// Begins to bring the first loads to slots that hold nothing, and returns.
void rn_session_prefetch(rn_session *session);
// Whatever slots held is gone; the fences anew, too.
void rn_session_forget_slots(rn_session *session);
void rn_session_renew_slots(rn_session *session);

// ---- rows on demand (gather.c) ------------------------------------------------------------------

RN_MUST_USE rn_status rn_session_prepare_rows(rn_session *session);
// Reads the rows that the inputs ask for and rewrites these inputs. RN_INVALID: an id that is no
// row; RN_IO.
RN_MUST_USE rn_status rn_session_gather(rn_session *session, uint64_t rows);

// ---- places in caches (appends.c) ---------------------------------------------------------------

RN_MUST_USE rn_status rn_session_prepare_appends(rn_session *session);
// RN_INVALID: two rows of the inputs are the same position of the same sequence.
RN_MUST_USE rn_status rn_session_check_appends(const rn_session *session, uint64_t rows);

// ---- audit (audit.c) ----------------------------------------------------------------------------

// Counts the live bytes of the pass just walked into session->facts.
RN_MUST_USE rn_status rn_session_audit(rn_session *session);
// Counts the arena's resident pages into session->facts.
void rn_session_audit_resident(rn_session *session);

// ---- guard (guard.c) ----------------------------------------------------------------------------

// Bytes before and behind the arena that nobody may touch.
#define RN_GUARD_BYTES ((uint64_t)4096)

RN_MUST_USE rn_status rn_guard_create(const rn_session *session, rn_guard **out);
// Paints what is free at this step, but for the slots.
void rn_guard_paint(rn_guard *guard, uint32_t step);
// RN_INTERNAL, naming the node: it wrote outside of its buffers.
RN_MUST_USE rn_status rn_guard_check(const rn_guard *guard, uint32_t step);

// ---- recording (session_profile.c) --------------------------------------------------------------
// All of it is nothing where nothing is recorded, and cannot fail.

// What is alive all the time, and the predicted peak. After the queues are there.
void rn_session_profile_open(rn_session *session);
// Ends all parts. Before the arena goes, with idle queues.
void rn_session_profile_close(rn_session *session);
// Of a phase of a program, around the time in which the arena is its own. Idle queues.
void rn_session_profile_enter(rn_session *session);
void rn_session_profile_leave(rn_session *session);
// Ends the parts of a run that failed. Idle queues.
void rn_session_profile_drop(rn_session *session);
// Around a run: a recording that began meanwhile is noticed here.
void rn_session_profile_run(rn_session *session, uint64_t rows);
void rn_session_profile_ran(rn_session *session);
// Between the two, where the run is seen: notes stand among its commands.
bool rn_session_profile_is_running(const rn_session *session);
// Around a step, in the compute queue: its operation if it computes, the buffers that begin and end
// with it, what was predicted. Each begin has its end.
void rn_session_profile_begin(rn_session *session, uint32_t step, bool computes);
void rn_session_profile_end(rn_session *session, uint32_t step);
// Around a wait for another queue: what for, and RN_WAIT_ENDS.
typedef enum rn_session_wait { RN_WAIT_ENDS, RN_WAIT_WEIGHTS, RN_WAIT_OFFLOAD } rn_session_wait;
void rn_session_profile_wait(rn_session *session, rn_session_wait begins);
// Around the filling of a weight group, in the thread that reads; `streamed`: the read queue's.
// True: _done is owed.
bool rn_session_profile_read(rn_session *session, uint32_t group, bool streamed);
void rn_session_profile_done(rn_session *session, uint32_t group, const uint8_t *target,
                             bool arrived);
// Around the copy of a load's weights to a device with its own memory, in the copy queue; or,
// behind the loads, of a weight group's to where segments have it.
void rn_session_profile_upload(rn_session *session, uint32_t load, bool begins);
// Around an offload's copy, in the send queue to the host or in the copy queue back.
void rn_session_profile_offload(rn_session *session, rn_queue *queue, uint32_t offload,
                                bool begins);
// Rows of a table were read.
void rn_session_profile_gather(rn_session *session, uint32_t table, uint64_t row_count);

#endif

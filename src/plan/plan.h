// plan.h — the plan from the inside: what the runtime walks.
//
// The arena is one block on the device:
//
//     0                                                                 arena_bytes
//     | resident weights | states, constants | slot 0 | slot 1 | ... | intermediates |
//     |        alive all the time            |    ring of weights    |  by lifetime  |
//
// Of a phase of a program the beginning is the shared region, the same in all phases (program.h).
//
// A *weight group* is a run of weights in the order of their first use (consecutive small ones
// together, within a block): what is read from disk in one go. Some weight groups are resident:
// those that are trained or tied, those too large for a slot, and of the rest some, block by block,
// spread over the graph, or from the last one back (rn_residency_rule). Each other one is read into
// a slot before each of its *loads*. The loads of a run are numbered 0 .. load_count - 1 in the
// order in which they begin (a frozen weight of a training step has two: forward, backward); load u
// lies in slot u % slot_count, and there are more loads than slots.
//
// Steps are in the order in which they are submitted; queue 0 computes and evicts, queue 1 reads.
// Every node is one COMPUTE, views too, which have nothing to do. Behind the last COMPUTE that
// reads load u stands its EVICT, and right behind that the READ (`after` it) of the load that is
// next in the slot: u + slot_count; or, where there is none, of load u % slot_count for the next
// run
// (`next_run`). So the first slot_count loads of a run are read in the run before; in the first run
// the session submits the READs with next_run itself, in their order, before step 0. The COMPUTE
// that begins load u has the READ as `after`: a larger step number than its own is one of the run
// before. Where it begins several loads, `after` is the READ that was submitted last. A READ fills
// the slot: file bytes are packed into the device's layout as they come, but for *file-layout*
// weights, which the kernel takes as the file has them. These are read straight into their place,
// which has room for the pages around them: where in its first page a weight begins is known to the
// session, which knows the files.
//
// A load that was read in the run before has two buffers in one place: loads[u].buffer, from step 0
// to its EVICT, and another one from its READ, for the next run, to the last step.
//
// The rows of a table of embeddings that a run asks for may be gathered before step 0 instead, into
// a buffer of their own (row_tables); the lookups then read that buffer, and the ids, an input that
// nobody else reads, are rewritten to places in it.
//
// Of a mixture of experts the stacks of matrices may be *on demand*: no run needs all of a layer's
// experts, so a run brings those that its router chose. Each such layer has a fixed number of slots
// for experts (expert_cache.h has the rule by which they stay), in all its stacks alike; what gets
// no slot passes through places that all layers share, in turn: transit. These weights are in
// weight groups of their own, which are neither resident nor have loads.
//
//     | ring | slots: layer 0 gate | up | down | layer 1 gate | ... | transit | intermediates |
//
// Of a training step on a device of its own memory, some values are *offloaded* to the host. What
// is saved for the backward pass: behind the last COMPUTE of the forward pass that touches it
// stands its OFFLOAD (queue 3), a little later a WAIT of queue 0, with which its buffer ends;
// before the backward pass touches it, a PREFETCH (queue 2, after the step of queue 0 before it)
// begins another buffer, and right before its COMPUTE stands a WAIT. And states that only updates
// touch, whose home is the host: PREFETCH, WAIT, COMPUTE, OFFLOAD, WAIT. With micro-batches these
// go with the last.
//
// A buffer lives from the step that writes it to the last that reads one of its values. Buffers
// begin at multiples of 64 bytes and have multiples of 64 bytes.
//
// Invariants: at every step, the sum of the bytes of live buffers == steps[i].live_bytes <=
// summary.live_peak_bytes <= summary.arena_bytes; no two buffers that are alive at one step
// overlap; what a COMPUTE reads and writes is alive. rn_plan_is_valid checks them.
#ifndef RN_PLAN_PLAN_H
#define RN_PLAN_PLAN_H

#include <ration/plan.h>

#include "base/arena.h"
#include "base/json.h"
#include "device/kernel.h"
#include "plan/interleave.h"

#define RN_NO_STEP    UINT32_MAX
#define RN_NO_BUFFER  UINT32_MAX
#define RN_NO_LOAD    UINT32_MAX
#define RN_NO_OFFLOAD UINT32_MAX
#define RN_NO_OFFSET  UINT64_MAX

typedef enum rn_buffer_kind {
    RN_BUFFER_VALUE,     // one or more values that share their bytes
    RN_BUFFER_WORKSPACE, // of one step
    RN_BUFFER_GROUP,     // resident weights, one load of a slot, or a layer's slots for experts
    RN_BUFFER_HELD,      // persistent values of other phases of a program (program.h)
    RN_BUFFER_TRANSIT    // for experts that get no slot
} rn_buffer_kind;

typedef struct rn_plan_buffer {
    rn_buffer_kind kind;
    rn_purpose purpose;
    rn_value value;                 // VALUE: the first that lives here
    uint32_t group;                 // GROUP
    uint32_t offload;               // VALUE: of its bytes, or RN_NO_OFFLOAD
    uint64_t offset, bytes;         // in the arena
    uint32_t first_step, last_step; // alive from the one to the other, both included
    bool always;                    // alive between runs as well: 0 .. step_count - 1
} rn_plan_buffer;

// Where a value lies: buffers[buffer].offset + offset. RN_NO_BUFFER: nowhere (nobody reads it), or
// a streamed weight, which lies in the slot of the load.
typedef struct rn_plan_place {
    uint32_t buffer;
    uint64_t offset;
    uint64_t
        bytes; // with rows = summary.rows; of the layout; file layout: with the pages around it
    rn_layout layout;
    uint32_t group;   // of a weight, else RN_NO_LOAD
    bool file_layout; // begins with the page of the file in which the weight begins
} rn_plan_place;

typedef struct rn_plan_group {
    uint32_t first_value,
        value_count; // of group_values; their places' offsets are within the weight group
    uint32_t block;
    uint64_t bytes;      // in the arena: in the device's layout, or as it lies in a slot
    uint64_t file_bytes; // to be read
    bool resident;
    bool sharable; // other phases of the program read these weights, or one of them trains them
    bool shared;   // resident at `offset`, where another phase's plan holds them
    bool brings;   // shared, and this phase is the one that reads them
    uint64_t offset;
    bool on_demand; // one weight, `stack`, of which a run brings the experts that it needs
    uint32_t stack;
} rn_plan_group;

// A weight whose matrices are brought on demand.
typedef struct rn_plan_stack {
    rn_value weight;
    uint32_t layer;        // of expert_layers
    uint64_t matrix_bytes; // of an expert, as in the file
    uint64_t place_bytes;  // of it in memory: with the pages around it
    uint32_t buffer;       // of the layer's slots; RN_NO_BUFFER: it has none
} rn_plan_stack;

// The experts of one router.
typedef struct rn_plan_expert_layer {
    rn_value ids; // what the router chose
    uint32_t block;
    uint32_t experts, chosen; // chosen: by a row
    uint32_t slots;
    uint32_t first_stack, stack_count;
    uint64_t expert_bytes; // of the file, in all stacks
    uint64_t slot_bytes;
} rn_plan_expert_layer;

// A table whose rows are gathered for the ids of one input.
typedef struct rn_plan_rows {
    rn_value table, ids;
    uint32_t buffer;
    uint64_t row_bytes;
    bool wrapped; // ids below zero count from the table's end
} rn_plan_rows;

typedef struct rn_plan_load {
    uint32_t group, slot, buffer;
    uint32_t read_step, evict_step;
} rn_plan_load;

// Bytes of a value that are on the host for a while.
typedef struct rn_plan_offload {
    rn_value value;        // whose they are when they are brought back
    bool home;             // a state, which stays there between runs
    uint32_t buffer, back; // before it; after it: of a state the same
    uint64_t host_offset;  // among the states, or among what is sent
    uint64_t bytes;
    uint32_t offload_step, gone_step, prefetch_step, back_step; // gone, back: the WAITs
} rn_plan_offload;

typedef enum rn_step_kind {
    RN_STEP_COMPUTE,
    RN_STEP_READ,     // a load's weights into its slot
    RN_STEP_UPLOAD,   // the same, from host memory to a device of its own
    RN_STEP_EVICT,    // the slot is free
    RN_STEP_OFFLOAD,  // an offload's bytes to the host
    RN_STEP_PREFETCH, // and back
    RN_STEP_WAIT,     // computing goes on when one of the two is done
    RN_STEP_EXECUTE   // all of the graph, by an executable
} rn_step_kind;

typedef struct rn_plan_step {
    rn_step_kind kind;
    uint8_t queue;      // 0 compute, 1 read, 2 copy, 3 send
    bool next_run;      // READ, UPLOAD: for the next run
    uint32_t node;      // COMPUTE
    uint32_t load;      // READ, UPLOAD, EVICT
    uint32_t offload;   // OFFLOAD, PREFETCH, WAIT
    uint32_t after;     // a step of another queue that must be done first, or RN_NO_STEP; for a
                        // `next_run` READ it is of this run
    uint32_t workspace; // COMPUTE: its buffer, or RN_NO_BUFFER
    uint64_t live_bytes;
    double seconds; // predicted
} rn_plan_step;

typedef struct rn_plan_reason {
    const char
        *move; // "chunk", "slice", "stream", "row slices", "constraint", "rows", "micro-batch",
               // "cheap", "recompute", "states", "offload", "order", "place", "hybrid", "compile"
    const char *text; // "12 of 32 blocks are resident: 3.1 GiB are read in each run"
} rn_plan_reason;

enum { RN_PLAN_BUCKETS = 4 };

// ---- segments (plan_segments.c) -----------------------------------------------------------------
//
// A *segment* is a set of consecutive blocks on one memory, run apart from the others, with the
// values that enter and leave. A run of up to `segments.rows` rows of a plan with a host's part
// goes through the segments of both memories in turn:
//
//     host->segments.list[0] ── x ──▶ segments.list[0] ── x ──▶ host->segments.list[1] ...
//
// and any longer run through all steps of the plan itself. Weights that do not stay on the device
// are brought for a segment block by block: a block's are a *load*, and load i lies in slot
// i % slot_count of the ring, which these runs have to themselves.

// Blocks [first, end) of the graph.
typedef struct rn_block_range {
    uint32_t first, end;
} rn_block_range;

typedef struct rn_segment {
    uint32_t first_step, end_step;
    rn_value in;  // handed in: made before it, read from it on; none where it is the beginning
    rn_value out; // what those behind it read; none where it is the end
    uint32_t first_chunk, end_chunk;
} rn_segment;

// Steps of a segment that are submitted at once, when a load is there.
typedef struct rn_segment_chunk {
    uint32_t first_step, end_step;
    uint32_t load; // or RN_NO_LOAD: their weights stay
} rn_segment_chunk;

// One memory's segments.
typedef struct rn_segment_table {
    rn_segment *list; // (count), in the order in which a run goes through them
    uint32_t count;
    uint64_t rows;            // of a run that may go through them, at most
    rn_segment_chunk *chunks; // (chunk_count), segment after segment
    uint32_t chunk_count;
    uint32_t *loads; // (load_count): blocks, in the order in which they are brought
    uint32_t load_count;
    uint32_t slot_count; // of the ring, at most RN_INTERLEAVE_SLOTS
    uint64_t slot_bytes;
    uint64_t
        *group_offset; // (weight groups): in the arena, of what is brought so; else RN_NO_OFFSET
} rn_segment_table;

struct rn_plan {
    rn_arena memory; // everything below
    rn_graph *graph; // owned; with recomputed nodes
    rn_device_caps caps;
    rn_plan_options options;
    rn_plan_summary summary;
    char name[64];
    uint64_t resident_bytes; // weight groups that are resident
    // Of a phase of a program: the arena's beginning, which all phases hold in the same way
    // (program.h). What lies behind it is this phase's own.
    bool is_phase;
    uint64_t shared_bytes;
    uint64_t slot_bytes;
    uint32_t slot_count;
    uint64_t ring_offset, ring_bytes; // of the slots, or more (rn_residency_rule)
    bool from_host; // a device of its own memory: the host has copies of all streamed weight groups
    rn_plan_buffer *buffers; // (buffer_count)
    rn_plan_place *places;   // (value_count + 1), by value
    rn_plan_group *groups;   // (group_count)
    rn_value *group_values;
    rn_plan_load *loads;                 // (load_count)
    rn_plan_rows *row_tables;            // (row_table_count)
    rn_plan_offload *offloads;           // (offload_count)
    rn_plan_expert_layer *expert_layers; // (expert_layer_count); none: no experts are on demand
    rn_plan_stack *stacks;               // (stack_count), layer after layer
    uint32_t expert_layer_count, stack_count;
    uint32_t transit_buffer, transit_places; // of transit_bytes each
    uint64_t transit_bytes;
    rn_plan_step *steps; // (step_count)
    rn_plan_reason *reasons;
    uint32_t buffer_count, value_count, group_count, load_count, step_count, reason_count;
    uint32_t row_table_count, offload_count;

    // What is behind the blocks with streamed weights.
    bool suffix;            // resident weights are those of the last blocks
    uint32_t prefix_blocks; // of the graph's blocks, the first so many hold all that is streamed
    double tail_seconds; // a run of one row that begins behind these; 0 as summary.decode_seconds
    double prefill_tail_seconds; // of prefill_seconds, what is computed behind them

    // Hybrid execution: what the CPU computes of short runs (hybrid.c).
    rn_plan *host;             // a graph of these blocks, and an arena of its own; NULL: nothing
    rn_segment_table segments; // of the plan's own memory; none without a host's part
    bool every_run;            // there are no longer runs

    // A device that compiles (compiled.c): one segment, an executable of the whole graph, for these
    // numbers of rows. Offsets are not places then, but show what is held. Where there is a host's
    // part, every run goes through all of that first.
    bool compiled;
    uint64_t buckets[RN_PLAN_BUCKETS]; // (bucket_count), rising
    uint32_t bucket_count;
    uint64_t
        executable_bytes; // that it may hold; the rest of the plan is what a session holds beside
};

// Finds the blocks' steps, what enters and leaves, and where their loads lie: segments of runs of
// up to `rows` rows, with at most `slots` of the ring (0: as many as it has). All of it is
// `memory`'s. RN_UNSUPPORTED: more than one value crosses into or out of them, others run among
// them, they are the end and an output is made before them, they read streamed weights of another
// block, or the ring is too small for a block's.
RN_MUST_USE rn_status rn_plan_cut_segments(rn_arena *memory, const rn_plan *plan,
                                           const rn_block_range *ranges, uint32_t count,
                                           uint64_t rows, uint32_t slots, rn_segment_table *out);
// The first half of it, for one.
RN_MUST_USE rn_status rn_plan_find_segment(const rn_plan *plan, uint32_t first, uint32_t end,
                                           rn_segment *out);
// Host memory that a device of its own memory needs for what enters and leaves; else 0.
uint64_t rn_plan_segments_bytes(const rn_plan *plan, const rn_segment_table *segments);
// Of the weight group's bytes, with those around it, in a slot of the ring and on the host.
uint64_t rn_plan_group_room(const rn_plan *plan, uint32_t group);

// The weight's stack where it is on demand, or NULL.
const rn_plan_stack *rn_plan_stack_of(const rn_plan *plan, rn_value weight);

// The gathered rows that a lookup reads, or NULL; their bytes with RN_ROWS bound to a number.
const rn_plan_rows *rn_plan_rows_of(const rn_plan *plan, uint32_t node);
uint64_t rn_plan_rows_bytes(const rn_graph *graph, const rn_plan_rows *rows, uint64_t bound);

// The buffer in which a value that is no streamed weight lies at a step, or RN_NO_BUFFER.
uint32_t rn_plan_buffer_at(const rn_plan *plan, rn_value value, uint32_t step);

// The recipe's graph for a device: one of inference has the fused ops of `fusions`
// (rn_device_caps.fusions), another is as the recipe has it, with RN_FUSE_HALVES in 16-bit values.
RN_MUST_USE rn_status rn_recipe_build(const rn_recipe *recipe, uint32_t fusions,
                                      const rn_recipe_options *options, rn_graph **out);

// What of a budget is the plan's: without what is beside it, and a process's reserve.
uint64_t rn_plan_room(const rn_plan_options *options, uint64_t budget_bytes);
// Whether the invariants hold. For debug builds and tests; looks at every pair of buffers.
bool rn_plan_is_valid(const rn_plan *plan);
// rn_plan_json under `key`.
void rn_plan_write_json(const rn_plan *plan, rn_json *json, const char *key);

// The staging that a session holds to read weights: the reader's buffers.
#define RN_PLAN_STAGING_BYTES ((uint64_t)4 << 20)

#endif

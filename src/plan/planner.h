// planner.h — the planner from the inside: what is worked out, how often, and by which file.
//
//     rn_case     a graph: micro-batches, recomputed blocks,   order.c  weight groups.c  rows.c
//     front.c
//      │          weights in slices of rows
//      └ rn_binding   its rows bound to a number               binding.c  liveness.c
//         └ rn_variant    attention in slices, values that     candidates.c  offloads.c
//            │            visit the host: an arena
//            └ rn_residency   which weights stay, which pass   stream.c  cost.c  choose.c
//
// Each level is worked out when something below it is first asked for, and kept. A *position* is a
// node's place in the order of execution; steps are made of positions at the very end (assemble.c).
//
// The list of candidates does not depend on the budget, nor does anything that is said about one of
// them. The plan is the fastest that fits, so a larger budget never gives a slower plan: not by
// care, but because it chooses from more.
#ifndef RN_PLAN_PLANNER_H
#define RN_PLAN_PLANNER_H

#include "base/stop.h"
#include "device/call_cost.h"
#include "plan/plan.h"
#include "plan/program.h"

enum {
    RN_PLAN_ALIGN = 64,        // of every buffer
    RN_PLAN_SLOT_ALIGN = 4096, // of the ring and its slots: direct reading
    RN_PLAN_SLICES = 4,
    RN_PLAN_POINTS = 12, // of the keep/recompute front, "nothing" included
    RN_PLAN_ROWS = 66,   // numbers of rows: 2^64 can be halved this often
    RN_PLAN_LEVELS = 4,  // sizes of slots that are tried
    RN_PLAN_CUTS = 3,    // sizes above which a weight is cut into slices of rows; 0: none is
    RN_PLAN_DEMANDS = 2, // experts as all other weights; on demand
};
extern const uint32_t rn_plan_slices[RN_PLAN_SLICES]; // 0 first, then finer and finer

// How many experts are taken to be there already: as is most likely, the fewest, the most.
typedef enum rn_expert_guess { RN_GUESS_EXPECTED, RN_GUESS_LOW, RN_GUESS_HIGH } rn_expert_guess;

typedef struct rn_offload rn_offload;
typedef struct rn_offloads rn_offloads;
typedef struct rn_case rn_case;
typedef struct rn_variant rn_variant;

// ---- order (order.c) ----------------------------------------------------------------------------

typedef struct rn_plan_order {
    uint32_t *nodes;       // (count): the node at a position
    uint32_t *positions;   // (count): the position of a node
    bool *changes;         // (count): whether a node updates one of its inputs in place
    rn_value *roots;       // (values + 1): the value whose bytes it is (a part of)
    uint64_t *offsets;     // (values + 1): where in the root's bytes
    uint32_t count;        // of nodes
    uint32_t update_count; // nodes of phase UPDATE that change a weight or a state
    uint32_t early_count;  // of them, those that run before the last backward node
} rn_plan_order;

RN_MUST_USE rn_status rn_plan_order_make(rn_arena *memory, const rn_graph *graph,
                                         rn_plan_order *out);

// ---- weights as weight groups (weight groups.c)
// -----------------------------------------------------------------

typedef struct rn_group_access {
    uint32_t position, group;
} rn_group_access;

// What a caller wants of a weight (constraints.c).
typedef enum rn_constraint {
    RN_CONSTRAINT_NONE,
    RN_CONSTRAINT_KEEP,
    RN_CONSTRAINT_OFFLOAD
} rn_constraint;
// `options` may be NULL.
rn_constraint rn_constraint_of(const rn_plan_options *options, const char *name);

typedef struct rn_group_table {
    rn_plan_group *groups;      // (group_count), by first use; `resident`: always, by its nature or
                                // because it is to be kept
    rn_constraint *constraints; // (group_count): of all its weights; of what stays by nature NONE
    uint64_t
        *slot_bytes; // (group_count): of a weight group in a slot; weight groups[u].bytes: resident
    rn_value *values;         // weight group after weight group
    uint32_t *group_of;       // (values + 1): of weights and what shares their bytes, or RN_NO_LOAD
    uint64_t *offset_of;      // (values + 1): within the weight group, where it is resident
    uint64_t *slot_offset_of; // (values + 1): within the weight group, where it is in a slot
    rn_layout *layout_of;     // (values + 1): resident
    rn_layout *slot_layout_of; // (values + 1): in a slot; plain where the other is not: file_layout
    rn_group_access *accesses; // (access_count), by position; no pair twice
    rn_plan_rows *rows; // (row_count): tables whose rows are gathered, in no weight group for that
    uint32_t *rows_of;  // (nodes): the rows that a lookup reads, or RN_NO_LOAD
    uint32_t group_count, access_count, row_count;
    // Experts on demand, whose weight groups have no accesses:
    rn_plan_expert_layer *expert_layers; // (expert_layer_count)
    rn_plan_stack *stacks;               // (stack_count)
    rn_group_access *demands;            // (demand_count): `group` is a layer of experts
    uint32_t expert_layer_count, stack_count, demand_count;
    bool has_stacks; // that could be on demand
} rn_group_table;

// `values`: of the program that the graph is a phase of; NULL: of none. `on_demand`: experts are.
RN_MUST_USE rn_status rn_group_table_make(rn_arena *memory, const rn_graph *graph,
                                          const rn_device_caps *caps, const rn_plan_order *order,
                                          const rn_plan_options *options,
                                          const rn_program_values *values, bool on_demand,
                                          rn_group_table *out);

// Sets `rows` (rows.c).
RN_MUST_USE rn_status rn_plan_find_rows(rn_arena *memory, const rn_graph *graph,
                                        const rn_device_caps *caps, const rn_plan_order *order,
                                        const rn_plan_options *options,
                                        const rn_program_values *values, rn_group_table *out);

// ---- nodes as the device sees them (binding.c) --------------------------------------------------

// Nodes bound to rows, one after the other, in one array of tensors.
typedef struct rn_binder {
    const rn_graph *graph;
    const rn_device_caps *caps;
    const rn_layout *layouts; // (values + 1), or NULL: all plain
    uint64_t rows;
    rn_tensor *tensors; // (the most that a node has)
} rn_binder;

RN_MUST_USE rn_status rn_binder_init(rn_arena *memory, const rn_graph *graph, rn_binder *out);
rn_call rn_binder_bind(rn_binder *binder, uint32_t node);
// How an output lies to the inputs; binds the node only where that depends on shapes.
rn_alias rn_binder_alias(rn_binder *binder, uint32_t node, uint32_t output, uint64_t *out_offset);
// Whether all that comes out is (a part of) what goes in: there is nothing to compute.
bool rn_binder_is_view(rn_binder *binder, uint32_t node);

// The most bytes that a single value may have, so that sums over a graph stay below 2^63.
#define RN_PLAN_VALUE_BYTES ((uint64_t)1 << 44)
// RN_INVALID names the value.
RN_MUST_USE rn_status rn_plan_value_bytes(const rn_graph *graph, rn_value value, uint64_t rows,
                                          rn_layout layout, uint64_t *out);

// Values that share their bytes.
typedef struct rn_plan_storage {
    rn_value value;          // the first
    uint32_t first, last;    // positions; 0 for inputs, count - 1 for outputs
    uint64_t bytes;          // of all its values
    bool always;             // states and constants
    bool from_start, to_end; // inputs; outputs
    // Of a phase of a program:
    bool persists;        // a state that must outlast the other phases
    bool in_other_phases; // which read it, too
    bool held;            // another phase's plan has placed it, at `offset`
    uint64_t offset;
} rn_plan_storage;

typedef struct rn_plan_liveness {
    rn_plan_storage *storages; // (storage_count)
    uint32_t *storage_of;      // (values + 1); RN_NO_BUFFER: in a weight group, or nowhere
    uint64_t *offset_of;       // (values + 1): within the storage
    uint64_t *bytes_of;        // (values + 1)
    uint32_t *rows_storage;    // (row_count): of gathered rows
    uint32_t storage_count;
    uint64_t always_bytes; // of states and constants, each rounded to RN_PLAN_ALIGN, but for those
                           // that another phase of the program holds
} rn_plan_liveness;

typedef struct rn_binding {
    bool is_made, is_live;
    uint64_t rows;
    bool *is_view;                            // (positions): nothing is computed
    double *seconds[RN_PLAN_SLICES];          // (positions)
    double *until[RN_PLAN_SLICES];            // (positions + 1): of all positions before
    uint64_t *workspace[RN_PLAN_SLICES];      // (positions)
    uint64_t *slot_workspace[RN_PLAN_SLICES]; // (positions): with weights as they lie in slots
    bool slices[RN_PLAN_SLICES];              // whether that slice needs less than those before it
    double total_seconds[RN_PLAN_SLICES], update_seconds;
    uint64_t io_bytes; // of inputs, outputs and gathered rows, each rounded to RN_PLAN_ALIGN
    rn_plan_liveness live;
} rn_binding;

// Everything but `live`. RN_UNSUPPORTED: the device has no kernel for a node.
RN_MUST_USE rn_status rn_binding_make(rn_arena *memory, const rn_graph *graph,
                                      const rn_device_caps *caps, const rn_plan_order *order,
                                      const rn_group_table *groups, uint64_t rows,
                                      rn_workload workload, rn_binding *out);
// Sets `live` (liveness.c).
RN_MUST_USE rn_status rn_binding_trace(rn_arena *memory, const rn_graph *graph,
                                       const rn_device_caps *caps, const rn_plan_order *order,
                                       const rn_group_table *groups, rn_binding *binding);
// What a position needs at most: with resident weights, or with `streams` however they lie.
uint64_t rn_binding_workspace(const rn_binding *binding, uint32_t slice, bool streams,
                              uint32_t position);
// The most bytes of intermediates and workspace alive at once, each rounded to RN_PLAN_ALIGN:
// below this there is no placement. `offloads`: what is on the host in between; NULL: nothing.
RN_MUST_USE rn_status rn_binding_peak(rn_arena *memory, const rn_binding *binding,
                                      const rn_offloads *offloads, uint32_t slice, bool streams,
                                      uint32_t positions, uint64_t *out_bytes);
// Places them. out_offsets: of the storages in their order (`always` ones left out of it get 0),
// then of the positions' workspaces, then of what has come back from offloads; NULL where only the
// height is wanted.
RN_MUST_USE rn_status rn_binding_place(rn_arena *memory, const rn_binding *binding,
                                       const rn_offloads *offloads, uint32_t slice, bool streams,
                                       uint32_t positions, rn_place_effort effort,
                                       uint64_t *out_offsets, rn_placement *out);

// ---- offloads (offloads.c) ----------------------------------------------------------------

// Bytes that a step does not need all the time, and a device of its own memory does not hold
// meanwhile.
//
//     saved for the backward pass   |first ... away|..gone|      |due..|back ... last|
//     an update's own state                   |due..|back ... away|..gone|
//
// What is sent behind `away` has left up to `gone`; what is brought from `due` on is there at
// `back`.
struct rn_offload {
    uint32_t storage;
    bool home;                      // a state: the host is where it stays
    uint32_t away, gone, due, back; // positions
    uint64_t bytes;
};

struct rn_offloads {
    rn_offload *list;                               // (count)
    uint32_t *by_away, *by_gone, *by_due, *by_back; // (count): offloads in the order of these
    uint32_t *of;                                   // (storages): its offload, or RN_NO_OFFLOAD
    uint32_t count;
    uint64_t home_bytes, sent_bytes; // each rounded to RN_PLAN_ALIGN, all to RN_PLAN_SLOT_ALIGN
    uint64_t away_always_bytes;      // of states that are not always on the device, as always_bytes
};

// How much of what may be on the host is there.
typedef enum rn_share {
    RN_SHARE_NONE,
    RN_SHARE_HALF, // of half of the blocks
    RN_SHARE_ALL,
    RN_SHARE_LATE, // all, brought and sent at the last moment: computing waits, few places are held
    RN_SHARE_COUNT
} rn_share;

// Of a traced binding: the variant's shares of states and of saved values.
RN_MUST_USE rn_status rn_offloads_make(rn_arena *memory, const rn_case *c,
                                       const rn_binding *binding, const rn_device_caps *caps,
                                       const rn_variant *variant, rn_offloads *out);

// ---- experts on demand (expert_plan.c) ----------------------------------------------------------

// A stack of `experts` matrices whose rows `ids` chose becomes one of the table's, which has room.
// bytes: in the device's layout.
void rn_experts_add(rn_group_table *table, rn_value weight, uint32_t block, rn_value ids,
                    uint32_t experts, uint32_t chosen, uint64_t file_bytes, uint64_t bytes);
// Of `total` slots, shared out to the layers evenly; the first ones have what is left over.
uint32_t rn_experts_slots(const rn_group_table *table, uint32_t total, uint32_t layer);
// As many slots as there are experts.
uint32_t rn_experts_most(const rn_group_table *table);
// Of slots and transit; 0 where nothing is on demand. Places of transit, and the bytes of one.
uint64_t rn_experts_bytes(const rn_group_table *table, uint32_t total);
uint32_t rn_experts_transit(const rn_group_table *table, uint64_t *out_place_bytes);
// The most slots with which these bytes are at most `bytes`; UINT32_MAX: not even none.
uint32_t rn_experts_fit(const rn_group_table *table, uint64_t bytes);
// Of a run of `rows` rows: bytes that are missing and read, as expected of the options' hits.
double rn_experts_read(const rn_group_table *table, const rn_plan_options *options, uint32_t total,
                       uint64_t rows, rn_expert_guess guess);
// And for how long computing waits for them, layer by layer. seconds: (positions).
double rn_experts_wait(const rn_group_table *table, const rn_plan_options *options,
                       const rn_device_caps *caps, uint32_t total, uint64_t rows,
                       const double *seconds, rn_expert_guess guess);

// ---- streaming (stream.c) -----------------------------------------------------------------------

typedef struct rn_stream_load {
    uint32_t group;
    uint32_t first, last; // positions that read it
} rn_stream_load;

typedef struct rn_stream {
    uint32_t slot_count; // 0: nothing is streamed
    uint64_t slot_bytes;
    rn_stream_load *loads; // (load_count), by first
    uint32_t *by_last;     // (load_count): loads in the order in which they are evicted
    uint32_t load_count;
    uint64_t read_bytes; // by all loads together
    bool from_host;      // the host has copies of all that is streamed
} rn_stream;

// Room for any stream over the table.
RN_MUST_USE rn_status rn_stream_init(rn_arena *memory, const rn_group_table *groups,
                                     rn_stream *out);
// Walks the accesses of the weight groups that are not resident. False where `slots` are too few (a
// step reads more weight groups than there are slots), or so many that nothing would ever be
// evicted.
bool rn_stream_walk(const rn_group_table *groups, const bool *resident, uint32_t slots,
                    rn_stream *out);
// The load that follows `use` in its slot; *out_next_run where it belongs to the next run.
uint32_t rn_stream_follower(const rn_stream *stream, uint32_t load, bool *out_next_run);

// ---- time (cost.c) ------------------------------------------------------------------------------

// The host's part of a run on a device of its own memory, of which so many bytes come back; else 0.
double rn_cost_outputs(const rn_device_caps *caps, uint64_t bytes);
// To bring `file_bytes` of a weight, `bytes` in the device's layout, into the arena: from disk, or
// from a copy that the host has.
double rn_cost_read(const rn_device_caps *caps, uint64_t file_bytes, uint64_t bytes,
                    bool from_host);
// To copy so much between host and device.
double rn_cost_copy(const rn_device_caps *caps, uint64_t bytes);
// What goes on beside computing.
typedef struct rn_traffic {
    const rn_plan_group *groups;
    const rn_stream *stream;
    double *ready;               // (loads)
    const rn_offloads *offloads; // NULL: none
    bool no_homes;               // of the offloads, without states: a micro-batch before the last
    double *done;                // (2, offloads): when it was sent, when it was brought
} rn_traffic;
// Of one run among many: computing, reading and sending side by side, one waiting for the other.
// until: (positions + 1) seconds that all positions before take.
double rn_cost_run(const rn_device_caps *caps, const double *until, uint32_t positions,
                   const rn_traffic *traffic);

// ---- keep or recompute (front.c) ----------------------------------------------------------------

typedef struct rn_front {
    uint32_t count;                  // at least 1; point 0 recomputes nothing, the last everything
    bool *recompute;                 // (RN_PLAN_POINTS, blocks)
    uint32_t blocks[RN_PLAN_POINTS]; // how many that are
    double seconds[RN_PLAN_POINTS];  // that it costs
    uint64_t bytes[RN_PLAN_POINTS];  // that need not be kept for the backward pass
} rn_front;

RN_MUST_USE rn_status rn_front_make(rn_arena *memory, const rn_graph *graph,
                                    const rn_plan_order *order, const rn_binding *binding,
                                    rn_front *out);

// ---- candidates (candidates.c) ------------------------------------------------------------------

// Units by the size of the slots: larger ones are resident, the others are streamed but for the
// first k of a list.
typedef struct rn_level {
    uint32_t *groups;         // (count): those that fit a slot, block after block, blocks spread;
                              // with rule.suffix the last first; what must not stay behind all
    uint64_t *resident_bytes; // (count + 1): of all that stay when the first k do
    uint64_t *slot_bytes;     // (count + 1): the largest of the rest
    uint64_t *file_bytes;     // (count + 1): of the rest
    uint64_t *link_bytes;     // (count + 1): of the rest, in the device's layout
    uint64_t *copy_bytes;     // (count + 1): of the rest, as they lie in slots, each in whole pages
    uint32_t count;
    uint32_t choices; // k may be 0 .. choices - 1: what is asked for allows no more
} rn_level;

struct rn_case {
    rn_arena memory; // everything below but the graph
    bool is_open;
    bool needs_staging;  // there are weights, and they come from files
    bool own_memory;     // the device's: staging is not on it
    bool all_may_stay;   // nobody constraints otherwise
    uint64_t ring_bytes; // of the ring, at least
    bool trains;         // there is a backward pass
    bool on_demand;      // experts are
    rn_graph *graph;
    rn_plan_order order;
    rn_group_table groups;
    rn_level levels[RN_PLAN_LEVELS];
    uint32_t level_count; // 0: nothing can be streamed
    uint64_t group_bytes; // of all, each rounded
    rn_binding *bindings; // (rows, and one of decode_rows)
};

struct rn_variant {
    uint32_t micro, cut, point, rows, slice; // indices
    bool on_demand;                          // experts are
    rn_share states, sent;                   // that are on the host
    double bound_seconds;                    // it takes at least this, for the workload
    bool has_peak, is_placed;
    // Of intermediates and workspace: with all weights resident; with some of them streamed.
    uint64_t peak_bytes[2], height_bytes[2];
    uint64_t always_bytes; // of states and constants that are on the device
    uint64_t floor_bytes;  // of a plan, at least; set with the peak
};

typedef struct rn_residency {
    uint32_t slots; // 0: everything is resident, but for experts on demand
    uint32_t level, kept;
    uint32_t expert_slots; // of all layers together, where experts are on demand
} rn_residency;

typedef struct rn_candidate {
    uint32_t variant; // RN_NO_STEP: none
    rn_residency residency;
    uint64_t planned_bytes;
    uint64_t read_bytes;   // with what is offloaded
    bool from_host;        // streamed weights have copies on the host
    double seconds;        // for the workload
    double decode_seconds; // a run of one row; 0 where there are no such runs
} rn_candidate;

enum { RN_PLAN_OPEN_CASES = 4 };

// What hybrid execution wants of a device's plan (hybrid.c). {0}: nothing.
typedef struct rn_residency_rule {
    bool suffix; // the weights that stay are those of the last blocks, not of blocks spread over
                 // the graph: what lies behind the others can be run apart
    double host_bytes_second; // the host computes the others in runs of one row, reading their
                              // weights so fast; 0: it does not
    uint64_t ring_bytes;      // of the device, at least, for loads of segments
    const rn_program_values *values; // the graph is a phase of a program; NULL: it is not
    bool once; // that is run once: copies of weights on the host would not be read again
} rn_residency_rule;

typedef struct rn_planner {
    rn_arena memory;
    const rn_recipe *recipe;
    const rn_device_caps *caps;
    rn_plan_options options;
    rn_residency_rule rule;
    uint32_t *micro; // (micro_count): numbers of micro-batches, 1 first
    uint64_t *rows;  // (rows_count): the wanted number first; 0 where there is no RN_ROWS
    rn_case *cases;  // (case_count): micro x demand x cut x point; the plain ones are always open
    uint32_t case_count;
    bool has_demand;             // there are variants with experts on demand
    uint64_t cuts[RN_PLAN_CUTS]; // (cut_count): 0, then the sizes that some weight is above
    uint32_t cut_count;
    rn_front *fronts; // (micro_count)
    uint32_t micro_count, rows_count;
    rn_case *opened[RN_PLAN_OPEN_CASES]; // of the others, those that are open
    uint32_t open_count;                 // how many were ever opened
    rn_variant *variants;                // (variant_count), by bound_seconds
    uint32_t variant_count;
    rn_candidate frugal;       // the one that a refusal shows: no plan is made for a smaller budget
    uint64_t least_host_bytes; // the fewest that any candidate holds on the host
} rn_planner;

// Lists the candidates and finds the frugal one. The planner is destroyed in any case. `options`
// and `rule` may be NULL.
RN_MUST_USE rn_status rn_planner_init(const rn_recipe *recipe, const rn_device_caps *caps,
                                      const rn_plan_options *options, const rn_residency_rule *rule,
                                      rn_planner *out);
void rn_planner_destroy(rn_planner *planner);
// The variant's case and binding, made now where they were not; good until another one is opened.
RN_MUST_USE rn_status rn_planner_open(rn_planner *planner, const rn_variant *variant,
                                      rn_case **out_case, rn_binding **out_binding);
// Sets the peak; the height.
RN_MUST_USE rn_status rn_planner_peak(rn_planner *planner, rn_variant *variant);
RN_MUST_USE rn_status rn_planner_place(rn_planner *planner, rn_variant *variant);
// The budget of which so many bytes are the plan's: with those that are held beside it.
uint64_t rn_planner_budget(const rn_planner *planner, uint64_t plan_bytes);
// Bytes of the arena below all that the plan places: the program's shared region, or in its first
// phase what other phases have there.
uint64_t rn_planner_below(const rn_planner *planner);
// Rows that a typical job brings; 0 where there is no RN_ROWS. Runs of one row that follow.
uint64_t rn_planner_workload(const rn_planner *planner);
uint64_t rn_planner_decode_steps(const rn_planner *planner);
// Seconds for recipe.decode_rows rows of a variant whose weights are all resident.
RN_MUST_USE rn_status rn_planner_time_batch(rn_planner *planner, const rn_variant *v,
                                            double *out_seconds);
// Seconds for the workload's rows, of runs that take `run_seconds` each and updates that take
// `update_seconds` of it.
double rn_planner_total(const rn_planner *planner, const rn_variant *variant, double run_seconds,
                        double update_seconds);
// The variant's graph with one row, opened as it is: for the time of a pass. NULL where rows are
// not for inference.
RN_MUST_USE rn_status rn_planner_open_decode(rn_planner *planner, const rn_variant *variant,
                                             rn_binding **out);

// ---- constraints (constraints.c)
// --------------------------------------------------------------------------

// RN_INVALID: a pattern that fits no weight, of the graph or of the program that it is a phase of
// (values; or NULL), or to be offloaded only such as cannot leave.
RN_MUST_USE rn_status rn_constraints_check(const rn_plan_options *options, const rn_case *c,
                                           const rn_program_values *values);
// Puts what must not stay behind the others.
void rn_constraints_sort(const rn_group_table *groups, rn_level *level);
// Sets `choices`, from the sums, for slots of at most `largest` bytes.
RN_MUST_USE rn_status rn_constraints_limit(const rn_plan_options *options, rn_case *c,
                                           uint64_t largest, rn_level *level);
// Sets all_may_stay.
RN_MUST_USE rn_status rn_constraints_allow_all(const rn_plan_options *options, rn_case *c);
// Bytes of what stays because it is to be kept; the first one's name, and how many weights.
uint64_t rn_constraints_kept(const rn_plan *plan, const rn_plan_options *options,
                             const char **out_name, uint32_t *out_count);

// ---- the choice (choose.c) ----------------------------------------------------------------------

// Which weight groups stay.
void rn_residency_mark(const rn_case *c, rn_residency residency,
                       bool *out_resident /* (weight groups) */);
// Bytes of the arena below the intermediates; where its ring begins.
uint64_t rn_residency_base(const rn_case *c, uint64_t always_bytes, rn_residency residency,
                           uint64_t *out_ring_offset);
// Of the ring; 0: there is none.
uint64_t rn_residency_ring(const rn_case *c, rn_residency residency);
uint64_t rn_case_staging(const rn_case *c);
// What is held on the host for a device of its own memory, else 0. `copies`: of streamed weights;
// `offloads` may be NULL.
uint64_t rn_residency_host(const rn_case *c, rn_residency residency, uint64_t io_bytes,
                           const rn_offloads *offloads, bool copies);
// Makes `best` the variant's candidate of the fewest bytes, where these are fewer than its own.
RN_MUST_USE rn_status rn_choose_frugal(rn_planner *planner, uint32_t variant, rn_candidate *best);
// The fastest candidate of at most `budget_bytes`, which is not below the frugal one's.
RN_MUST_USE rn_status rn_choose(rn_planner *planner, uint64_t budget_bytes, rn_candidate *out);

// ---- hybrid execution (hybrid.c) ----------------------------------------------------------------

// A plan for the device alone, as rn_plan_make's without hybrid execution.
RN_MUST_USE rn_status rn_plan_make_alone(const rn_recipe *recipe, const rn_device_caps *caps,
                                         const rn_plan_options *options,
                                         const rn_residency_rule *rule, rn_plan **out);
// Where *plan streams weights to a device of its own memory, and the CPU (options->host_caps) can
// compute some blocks of short runs sooner than the link brings their weights: puts a plan in its
// place that says so.
RN_MUST_USE rn_status rn_plan_make_hybrid(const rn_recipe *recipe, const rn_device_caps *caps,
                                          const rn_plan_options *options, rn_plan **plan);

// ---- devices that compile (compiled.c) ----------------------------------------------------------

RN_MUST_USE rn_status rn_plan_make_compiled(const rn_recipe *recipe, const rn_device_caps *caps,
                                            const rn_plan_options *options, rn_plan **out);
// No limit as a number, and never more than the device has.
uint64_t rn_plan_limit(const rn_device_caps *caps, uint64_t budget_bytes);

// ---- the plan (assemble.c, reasons.c, refuse.c) -------------------------------------------------

// The caller destroys the plan. Its graph is the case's and is still the planner's.
RN_MUST_USE rn_status rn_plan_assemble(rn_planner *planner, const rn_candidate *candidate,
                                       rn_plan **out);
RN_MUST_USE rn_status rn_plan_explain(rn_planner *planner, const rn_candidate *candidate,
                                      rn_plan *plan);
// One decision more, as printf does; there is room for two.
RN_MUST_USE rn_status rn_plan_add_reason(rn_plan *plan, const char *move, const char *format, ...)
    RN_PRINTF(3, 4);
// RN_OVER_BUDGET, with the table of the frugal plan.
rn_status rn_plan_refuse(rn_planner *planner, uint64_t budget_bytes);
// The same where the host has no room for its part of any plan.
rn_status rn_plan_refuse_host(const rn_planner *planner);
// RN_INVALID: what is asked for contradicts itself, whatever the budget.
rn_status rn_plan_refuse_constraints(const rn_planner *planner);

#endif

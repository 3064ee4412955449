// plan.h — decides what lives where and when, within a byte budget, before anything is loaded.
//
//     rn_recipe recipe;
//     RN_TRY(rn_builtin_recipe("resnet18", &recipe));
//     rn_plan *plan;
//     rn_plan_options options = {.budget_bytes = 60 << 20};
//     RN_TRY(rn_plan_make(&recipe, rn_cpu_caps(), &options, &plan));
//     RN_TRY(rn_plan_print(plan, rn_sink_file(stdout)));
//     rn_plan_destroy(plan);
//
// Pure: the same recipe, caps and options give the same plan; no device is touched, nothing is
// read. As the budget grows, what was feasible stays feasible and the predicted time never rises.
#ifndef RATION_PLAN_H
#define RATION_PLAN_H

#include <ration/graph.h>
#include <ration/place.h>

RN_BEGIN_DECLS

typedef struct rn_device_caps rn_device_caps; // what a device can do and how fast it is
typedef struct rn_plan rn_plan;

// ---- recipes ------------------------------------------------------------------------------------

// What a planner may choose when it asks for a graph. {0}: the roomiest.
typedef struct rn_recipe_options {
    uint32_t micro_batches; // 0 or 1: none. The graph is of one of them and accumulates gradients
    bool halves; // kernels take 16 bits in the place of f32: a policy for activations need not cast
    // Micro-batches are single samples, whose gradients and losses are summed in a tree over their
    // numbers (rn_plan_options.exact).
    bool exact;
} rn_recipe_options;
// The runtime scalar that a session sets to the number of the micro-batch, from 0, in graphs that
// have it.
#define RN_MICRO_BATCH "micro_batch"

// Makes graphs; the planner may call it several times.
typedef struct rn_recipe {
    char name[64];
    void *self;
    // A finished graph that the caller destroys. Of plain ops: a planner puts in the fused ones of
    // its device.
    rn_status (*build)(void *self, const rn_recipe_options *options, rn_graph **out);
    void (*destroy)(void *self); // may be NULL
    uint64_t rows;          // wanted rows a run (the prefill chunk); 0 where there is no RN_ROWS
    uint64_t workload_rows; // rows that a typical job brings (a prompt); 0: one full run
    uint64_t decode_steps;  // runs of one row that follow them (new tokens); 0: none
    uint64_t least_rows;    // a run must have room for (the longest text of an encoder); 0: 1
    uint32_t max_micro_batches; // how far the batch can be cut; 0 or 1: not at all
    bool weights_in_memory;     // they need no staging on their way
    bool widens_vectors;        // weights (N) of f16 or bf16 may be asked for as f32
    bool batch_statistics;      // micro-batches would change the result (training batchnorm)
    uint64_t decode_rows; // of a run of decode_steps, where all weights are resident (sequences);
                          // 0: 1
} rn_recipe;
RN_API void rn_recipe_destroy(rn_recipe *recipe);

// A recipe for one finished graph, which must outlive it: each build is a copy. `rows`: as
// rn_recipe.rows; 0 where the graph has no RN_ROWS. The other fields may be set afterwards.
RN_API RN_MUST_USE rn_status rn_recipe_from_graph(const rn_graph *graph, uint64_t rows,
                                                  rn_recipe *out);

// "mlp", "simple", "resnet18", "llama:LAYERSxDIM", each also with ":train" or ":train=OPTIMIZER" at
// its end; mlp and llama also with ":evaluate": the loss of the training step's batch. RN_NOT_FOUND
// lists them.
RN_API RN_MUST_USE rn_status rn_builtin_recipe(const char *name, rn_recipe *out);
// Numbers where no file has any: a weight's by its name and shape alone, an input's between 0 and
// 1.
RN_API void rn_builtin_weight(const rn_value_info *weight, uint64_t elements,
                              float *out /* (elements) */);
RN_API void rn_builtin_input(uint64_t seed, uint64_t elements, float *out /* (elements) */);

// ---- planning -----------------------------------------------------------------------------------

// How often the experts that a row of a mixture of experts needs are in memory already, by the
// share of a layer's experts that have slots: rate i is for i / (RN_EXPERT_POINTS - 1) of them.
// None of the three falls. From a routing trace: rn_expert_hits_read.
enum { RN_EXPERT_POINTS = 33 };
typedef struct rn_expert_hits {
    double expected[RN_EXPERT_POINTS], low[RN_EXPERT_POINTS], high[RN_EXPERT_POINTS];
} rn_expert_hits;
// What the cache rule of a run would have had of the choices in a trace (JSON lines or CSV: which
// experts each token chose, layer by layer), after a third of it; `low` and `high` are the worst
// and the best of four parts of the rest. RN_NOT_FOUND, RN_IO, RN_CORRUPT with the line.
RN_API RN_MUST_USE rn_status rn_expert_hits_read(const char *path, rn_expert_hits *out);

// Whether experts are brought one by one, when a router chose them.
typedef enum rn_experts_move {
    RN_EXPERTS_AS_NEEDED, // where that is faster, or nothing else fits
    RN_EXPERTS_NEVER,     // layers of experts are weights like all others
    RN_EXPERTS_ALWAYS     // wherever there are experts
} rn_experts_move;

// A move of a training step that costs time and saves memory.
typedef enum rn_move { RN_MOVE_AS_NEEDED, RN_MOVE_NEVER, RN_MOVE_ALWAYS } rn_move;

typedef struct rn_plan_options {
    uint64_t budget_bytes; // for what the plan holds: arena and staging; 0 or RN_NO_LIMIT: no limit
    uint64_t
        reserved_bytes; // of the budget, what is held beside the plan: the process, its structures
    bool with_reserve;  // the budget is a process's: its reserve stays free (rn_budget_usable)
    uint64_t least_budget_bytes; // no smaller budget works, whatever the plan takes: opening the
                                 // model took so much
    // Of a device with its own memory, which budget_bytes is for: what the plan may hold on the
    // host. Weights that do not stay on the device are kept there where they fit; else each run
    // reads them from disk. In training also the optimiser's states, and what is saved for the
    // backward pass, where the device has no room for them. 0 or RN_NO_LIMIT: no limit.
    uint64_t host_budget_bytes;
    uint64_t host_reserved_bytes; // of the host's budget, what that does not count: for a refusal
    bool host_with_reserve;       // the host's budget is a process's
    // The CPU (rn_cpu_caps()), which may compute blocks of short runs whose weights are not on such
    // a device (hybrid execution); the first blocks for one that compiles. NULL: it computes none.
    const rn_device_caps *host_caps;
    // The same bits at every budget: nothing that rounds otherwise is done (hybrid execution). Of a
    // training step each sample (a packed sequence) is computed alone, whatever the budget and
    // however many micro-batches are asked for, and gradients and losses are summed in one binary
    // tree over the samples' numbers. So the bits are those of any other cut of the same batch.
    bool exact;
    bool allow_lossy; // micro-batches of a graph with batch statistics
    rn_place_effort effort;
    // Weights by name, borrowed while the plan is made: patterns ('*' any run, '?' any one
    // character) with commas between them; NULL: none. RN_INVALID names one that fits no weight.
    const char *keep;         // these stay, or there is no plan
    const char *offload;      // these do not, but for those to be kept
    uint32_t resident_blocks; // at most so many keep weights; RN_NO_BLOCKS: none, 0: no limit
    uint64_t resident_bytes;  // of weights that stay, at most; 0: no limit
    // Attention takes at most so many rows of queries at once (64, 8, 1 are built), where that
    // needs less memory: the same bits. 0: the planner's choice, which slices where it must.
    uint32_t slice_rows;
    // Of a training step, instead of the planner's own choice:
    uint32_t micro_batches;   // 0: its choice. RN_INVALID: the batch cannot be cut so (`exact`: any
                              // number that divides the batch, with the same bits)
    rn_move recompute;        // of blocks: none, or all
    rn_move host_states;      // the optimiser's states on the host: none, or all
    rn_move host_activations; // the same of what is saved for the backward pass
    const rn_expert_hits *expert_hits; // of this model, or of one like it; borrowed. NULL: chance
    rn_experts_move experts;
    uint64_t reserved[4]; // zero
} rn_plan_options;
#define RN_NO_BLOCKS UINT32_MAX

// RN_OVER_BUDGET: rn_last_refusal() has the largest holders and the smallest budget.
RN_API RN_MUST_USE rn_status rn_plan_make(const rn_recipe *recipe, const rn_device_caps *caps,
                                          const rn_plan_options *options, rn_plan **out);
RN_API void rn_plan_destroy(rn_plan *plan);

typedef struct rn_plan_summary {
    uint64_t planned_bytes; // what a session holds on the device: the arena, and where the device's
                            // memory is the host's, the staging
    uint64_t arena_bytes;   // one block on the device
    uint64_t staging_bytes; // through which weights are read
    uint64_t live_peak_bytes;                 // the most bytes of the arena in use at any step
    uint64_t purpose_bytes[RN_PURPOSE_COUNT]; // of planned_bytes; their sum
    uint64_t smallest_bytes;                  // the least that works
    uint64_t smallest_budget_bytes; // and the budget for it: with what is beside, and a reserve
    uint64_t rows;                  // RN_ROWS is bound to this
    uint64_t workload_rows;         // for which the time is predicted; 0: one run
    uint32_t slice_rows;            // of attention; 0: the kernel's choice
    uint32_t micro_batches;         // at least 1
    uint32_t block_count, resident_blocks, recomputed_blocks;
    uint64_t weight_bytes, streamed_bytes; // streamed: brought anew in every run
    // Of a device with its own memory, held on the host: staging, what is on its way to and from
    // the device, and copies of all streamed weights (then no run reads the disk).
    uint64_t host_bytes, host_weight_bytes;
    // Of a training step there: states that only updates touch, and values saved for the backward
    // pass; how many of each. All of them pass the link both ways in a step.
    uint64_t host_state_bytes, host_saved_bytes;
    uint32_t host_states, host_saved;
    uint32_t step_count;
    double seconds; // predicted, for the workload: prefill_seconds + decode_steps * decode_seconds
    double prefill_seconds; // for workload_rows; where there is no RN_ROWS, one run
    double decode_seconds;  // a run of one row, for inference with RN_ROWS; else 0. Where all
                            // weights are resident: a row of each sequence (rn_recipe.decode_rows)
    uint64_t decode_steps;  // such runs
    // Hybrid execution: the CPU computes the first blocks of short runs (decode_seconds is then of
    // such a run, and what the CPU holds is part of host_bytes and host_weight_bytes):
    uint32_t host_blocks;        // so many blocks; 0: it does not
    uint32_t interleaved_blocks; // of them so many are brought to the device, while it computes
    uint64_t host_rows;          // in runs of up to so many rows
    double streaming_seconds; // predicted for the workload, were all weights brought to the device
    bool optimal;             // the arena is as low as its lifetimes allow
    // Experts on demand: those that a run's routers chose are read when they are needed, but for
    // the ones in slots. No layers: there are none, or all are held or streamed like other weights.
    uint32_t expert_layers, experts;           // layers; experts of one, the most
    uint32_t expert_slots_least, expert_slots; // of a layer: the fewest, the most
    uint64_t expert_slot_bytes;                // of all slots
    uint64_t expert_transit_bytes;             // of what gets none
    uint64_t expert_token_bytes;               // that a row chooses, in all layers
    // Expected to be read for a row, and the time of a run of one row (decode_seconds is the
    // expected one): by rn_plan_options.expert_hits, else as if experts were chosen by chance (and
    // `least`: as if every row chose the same).
    uint64_t expert_read_bytes, expert_read_least_bytes, expert_read_most_bytes;
    double decode_least_seconds, decode_most_seconds;
    bool expert_hits_known;
} rn_plan_summary;
RN_API const rn_plan_summary *rn_plan_get_summary(const rn_plan *plan);
RN_API const rn_graph *rn_plan_graph(const rn_plan *plan); // with the recomputed nodes in it

// ---- showing ------------------------------------------------------------------------------------

// For people: peak by purpose, moves and their reasons, the largest buffers, time.
RN_API RN_MUST_USE rn_status rn_plan_print(const rn_plan *plan, rn_sink sink);
// All of it, as a JSON object: summary, reasons, steps, buffers with offset and lifetime.
RN_API RN_MUST_USE rn_status rn_plan_json(const rn_plan *plan, rn_sink sink);
// The arena, address by step, as one SVG picture; as a page that shows what is under the pointer.
RN_API RN_MUST_USE rn_status rn_plan_svg(const rn_plan *plan, rn_sink sink);
RN_API RN_MUST_USE rn_status rn_plan_html(const rn_plan *plan, rn_sink sink);

// What the tables of a plan of the graph and of its session take on the host, about: no plan can
// plan it. A caller whose budget is the process's counts it in `reserved_bytes`.
RN_API uint64_t rn_plan_table_bytes(const rn_graph *graph);

// Plans for several budgets between the smallest and the roomiest.
typedef struct rn_sweep_row {
    uint64_t budget_bytes;
    rn_plan_summary summary;
} rn_sweep_row;
RN_API RN_MUST_USE rn_status rn_plan_sweep(const rn_recipe *recipe, const rn_device_caps *caps,
                                           const rn_plan_options *options, rn_sweep_row *out_rows,
                                           uint32_t row_count);

RN_END_DECLS

#endif

// program.h — several graphs under one budget: the phases of one job.
//
//     rn_program_phase phases[] = {{.name = "step", .recipe = &step, .runs = 1000},
//                                  {.name = "evaluate", .recipe = &evaluate, .runs = 10}};
//     rn_program *program;
//     RN_TRY(rn_program_make(phases, 2, rn_cpu_caps(), &options, &program));
//     RN_TRY(rn_program_print(program, rn_sink_file(stdout)));
//
// Phases never run at the same time, so they have one arena. Its beginning is the *shared region*:
// values that persist from phase to phase (states, weights that are trained, resident weights that
// several phases read), each held once, known by its name. What is above it belongs to the phase
// that runs: its own resident weights, slots of streamed weights, activations, workspaces.
//
//     0              shared_bytes
//     | shared region | step: own weights, ring, activations ........................ |
//     |               | evaluate: ........................... |
//
// So a program needs the shared region and the largest of what is above it, not the sum.
//
// Pure, as planning is; rn_program_open runs it. Where every weight is trained, or all weights fit,
// a larger budget never gives a slower program; a feasible one stays feasible in any case.
#ifndef RATION_PROGRAM_H
#define RATION_PROGRAM_H

#include <ration/plan.h>
#include <ration/session.h>

RN_BEGIN_DECLS

typedef struct rn_program rn_program;
typedef struct rn_program_run rn_program_run;

#define RN_PROGRAM_PHASES 16 // at most

typedef struct rn_program_phase {
    const char *name;
    // Of the graph, borrowed for the call. NULL: a phase without one (writing a checkpoint), which
    // needs `bytes` of scratch above the shared region.
    const rn_recipe *recipe;
    uint64_t bytes;
    // Phases of one model know each other's weights and states by name; of different models equal
    // names are different values. NULL: the common one.
    const char *model;
    uint64_t runs;    // in the job; 0: 1
    uint64_t entries; // how often the phase begins behind another one; 0: 1
} rn_program_phase;

// options: as rn_plan_make, for the whole program; hybrid execution is not planned. RN_OVER_BUDGET:
// the error names the phase that does not fit and the smallest budget for the whole program, as
// rn_last_refusal() does. RN_INVALID: two phases disagree on the type or shape of a value.
RN_API RN_MUST_USE rn_status rn_program_make(const rn_program_phase *phases, uint32_t phase_count,
                                             const rn_device_caps *caps,
                                             const rn_plan_options *options, rn_program **out);
RN_API void rn_program_destroy(rn_program *program);

typedef struct rn_program_phase_summary {
    const char *name;        // the program's
    uint64_t planned_bytes;  // while it runs: with the shared region
    uint64_t own_bytes;      // above the shared region, and staging
    uint64_t streamed_bytes; // in each run
    uint64_t load_bytes;     // of its own resident weights, read whenever the phase begins
    double seconds;          // predicted, of one run; of its workload where it has RN_ROWS
    double load_seconds;     // whenever it begins
    uint64_t runs, entries;
} rn_program_phase_summary;

typedef struct rn_program_summary {
    uint64_t planned_bytes;         // the most that any phase needs
    uint64_t arena_bytes;           // one block
    uint64_t shared_bytes;          // its beginning
    uint64_t host_bytes;            // for a device of its own memory: of all phases together
    uint64_t smallest_budget_bytes; // the least that works, for the program as it was chosen
    uint32_t largest_phase;
    uint32_t phase_count;
    double seconds; // predicted: all runs of all phases, and what they load
} rn_program_summary;

RN_API const rn_program_summary *rn_program_get_summary(const rn_program *program);
RN_API rn_program_phase_summary rn_program_get_phase(const rn_program *program, uint32_t phase);
// Of a phase; NULL: it has no graph. The program's.
RN_API const rn_plan *rn_program_plan(const rn_program *program, uint32_t phase);

// ---- running ------------------------------------------------------------------------------------

// Takes the arena once and makes a session of every phase with a graph. Values in the shared region
// are read, and states are zero, before the first run. weights: (phases), of each; options: for all
// of them (guards are refused). The program must outlive it.
RN_API RN_MUST_USE rn_status rn_program_open(const rn_program *program,
                                             const rn_weight_source *weights,
                                             const rn_session_options *options,
                                             rn_program_run **out);
RN_API void rn_program_close(rn_program_run *run);
// Of a phase, the run's; NULL: it has no graph. Whichever session is set or run next has the arena:
// what is its own is read then, and inputs and outputs of the session before are gone. One at a
// time, in one thread.
RN_API rn_session *rn_program_session(const rn_program_run *run, uint32_t phase);
// Ends the phase that has the arena: what its session holds beside it (staging) is released.
RN_API void rn_program_rest(rn_program_run *run);
// The scratch of a phase without a graph, until a session is set or run. NULL: the device's memory
// is not the host's.
RN_API void *rn_program_scratch(rn_program_run *run, uint32_t phase);

// ---- showing ------------------------------------------------------------------------------------

// For people: the phases, then each plan.
RN_API RN_MUST_USE rn_status rn_program_print(const rn_program *program, rn_sink sink);
RN_API RN_MUST_USE rn_status rn_program_json(const rn_program *program, rn_sink sink);
// The arena of every phase, side by side; as a page with the plans in words.
RN_API RN_MUST_USE rn_status rn_program_svg(const rn_program *program, rn_sink sink);
RN_API RN_MUST_USE rn_status rn_program_html(const rn_program *program, rn_sink sink);

// Programs for several budgets between the smallest and the roomiest.
typedef struct rn_program_sweep_row {
    uint64_t budget_bytes;
    rn_program_summary summary;
} rn_program_sweep_row;
RN_API RN_MUST_USE rn_status rn_program_sweep(const rn_program_phase *phases, uint32_t phase_count,
                                              const rn_device_caps *caps,
                                              const rn_plan_options *options,
                                              rn_program_sweep_row *out_rows, uint32_t row_count);

RN_END_DECLS

#endif

// program.h — a program from the inside: the values that its phases share.
//
// One phase is planned first: the one with the most persistent bytes. Its plan lays out the shared
// region; the other phases' plans find their weights and states there by name, or have them above.
// Values of the region that a phase does not use are buffers of the kind RN_BUFFER_HELD in its
// plan, so that every plan accounts for the whole arena.
#ifndef RN_PLAN_PROGRAM_H
#define RN_PLAN_PROGRAM_H

#include <ration/program.h>

#include "plan/plan.h"

typedef struct rn_plan_liveness rn_plan_liveness;

// A weight or state of some phases.
typedef struct rn_program_value {
    const char *model, *name;
    const char *tensor; // of a weight: its file's name for it, which constraints mean
    rn_role role;
    rn_dtype dtype;
    rn_shape shape;
    rn_purpose purpose;
    uint32_t phases;  // bit p: phase p has it
    bool trained;     // by some phase
    uint64_t bytes;   // as it is held; before that, plain
    uint64_t offset;  // in the shared region; RN_NO_OFFSET: it is not there
    rn_layout layout; // there
} rn_program_value;

typedef struct rn_program_values {
    rn_program_value *list; // (count), by model, role and name
    uint32_t count;
    uint32_t first; // the phase that lays out the region
    // Of the phase that is being planned:
    uint32_t phase;
    const char *model;
    bool is_first;  // it lays out the region
    uint64_t bytes; // of the region, once it is laid out
} rn_program_values;

typedef struct rn_phase_plan {
    const char *name;
    uint64_t runs, entries, bytes;
    rn_plan *plan; // NULL: a phase without a graph
} rn_phase_plan;

struct rn_program {
    rn_arena memory;
    rn_phase_plan *phases; // (summary.phase_count)
    rn_program_values values;
    char caps_name[64];
    uint64_t budget_bytes;
    uint64_t making_bytes; // of the host, that were held at most while it was made
    rn_program_summary summary;
};

// What of the arena is charged to each purpose: as the phase that needs the most has it.
void rn_program_charges(const rn_program *program, uint64_t out_bytes[RN_PURPOSE_COUNT]);

// ---- values (program_values.c) ------------------------------------------------------------------

// Adds the persistent values of a phase's graph. RN_INVALID: they differ from another phase's.
RN_MUST_USE rn_status rn_program_collect(rn_arena *memory, rn_program_values *values,
                                         const rn_graph *graph, const char *model, uint32_t phase);
// `values` may be NULL: then there is none.
const rn_program_value *rn_program_find(const rn_program_values *values, const rn_value_info *info);
// Whether the region has it already.
bool rn_program_holds(const rn_program_values *values, const rn_value_info *info);
// Whether some phase trains it.
bool rn_program_trains(const rn_program_values *values, const rn_value_info *info);
// Whether the phase that lays out the region puts it there, where it is resident.
bool rn_program_shares(const rn_program_values *values, const rn_value_info *info);
// Whether the phase being planned is the one to read it into the region, which another lays out.
bool rn_program_brings(const rn_program_values *values, const rn_program_value *value);
// Whether it must be in the region, and the phase that lays it out does not have it.
bool rn_program_is_extra(const rn_program_values *values, const rn_program_value *value);
// Bytes of the arena that are taken before a phase's plan places anything.
uint64_t rn_program_below(const rn_program_values *values);
// Whether the plan has a buffer of its own for it in the region.
bool rn_program_used(const rn_plan *plan, const rn_program_value *value);
// Marks states as persistent or held; takes what is held off live->always_bytes.
RN_MUST_USE rn_status rn_program_mark(const rn_program_values *values, const rn_graph *graph,
                                      rn_plan_liveness *live);
// Takes the region over from the first phase's plan.
void rn_program_place(rn_program_values *values, const rn_plan *plan);

#endif

// phases.c — what each phase of a training holds at its peak, by purpose, before any of them runs.
//
// All phases have one arena, which is charged once, as the phase that needs the most has it. Beside
// it come the staging through which weights are read, and while the program is opened a tensor of
// zeros. Saving, verifying and resuming work in the arena (scratch.c).
#include "train/trainer.h"

#include "base/checked.h"
#include "base/str.h"
#include "io/writer.h"
#include "plan/program.h"

static const rn_plan *plan_of(const rn_program *program, uint32_t phase) {
    return phase < program->summary.phase_count ? program->phases[phase].plan : NULL;
}

// Of a phase: its graph, its plan, and its session's tables. Measured: 1,100 to 1,600 bytes a step.
static uint64_t tables_of(uint64_t steps, uint64_t values) {
    enum { BASE = 256 << 10, A_STEP = 1600, A_VALUE = 200 };
    return BASE + steps * A_STEP + values * A_VALUE;
}

static uint64_t session_bytes(const rn_plan *plan) {
    return plan ? tables_of(plan->step_count, plan->value_count) : 0;
}

// Of a checkpoint that is written or read: its names, in several tables, and its header.
static uint64_t file_tables(uint64_t tensors) {
    enum { BASE = 24 << 10, A_TENSOR = 1600 };
    return BASE + tensors * A_TENSOR;
}

// Recomputing repeats forward nodes at most once, and they are less than half; an evaluation has no
// more of them.
uint64_t rn_train_tables_bytes(const rn_graph *graph, uint64_t tensors) {
    uint64_t nodes = rn_graph_node_count(graph), values = rn_graph_value_count(graph);
    return 2 * tables_of(nodes, values) + file_tables(tensors);
}

typedef struct trained {
    uint64_t tensors, weights, most; // weights and states; bytes of the weights; elements
    uint64_t bytes;                  // of all
    uint64_t magnitudes;             // bytes of DoRA's, whose first values are held while loading
    bool drawn;                      // they are additions, whose first values are drawn
} trained;

static trained find_trained(const rn_program *program) {
    trained t = {0};
    for (uint32_t i = 0; i < program->values.count; i++) {
        const rn_program_value *v = &program->values.list[i];
        bool state = v->role == RN_ROLE_STATE && v->purpose == RN_PURPOSE_OPTIMIZER;
        uint64_t elements = rn_shape_elements(v->shape, 1);
        if (!state && !(v->role == RN_ROLE_WEIGHT && v->trained)) continue;
        t.tensors++;
        t.bytes += elements * sizeof(float);
        if (!state) t.weights += elements * sizeof(float);
        t.drawn |= rn_str_matches(rn_str_from(v->name), rn_str_from(RN_LORA_TRAINED));
        if (!state && rn_str_matches(rn_str_from(v->name), RN_STR("tuned.*.magnitude")))
            t.magnitudes += elements * sizeof(float);
        t.most = rn_max_u64(t.most, elements);
    }
    return t;
}

static uint64_t most_staging(const rn_program *program) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < program->summary.phase_count; i++)
        if (plan_of(program, i))
            most = rn_max_u64(most, plan_of(program, i)->summary.staging_bytes);
    return most;
}

rn_train_phase_info rn_train_get_phase(const rn_program *program, rn_train_phase phase) {
    static const char *const names[] = {"load", "resume", "step", "evaluate", "save"};
    const rn_plan *step = plan_of(program, RN_TRAINER_STEP);
    const rn_plan *evaluate = plan_of(program, RN_TRAINER_EVALUATE);
    trained all = find_trained(program);
    rn_train_phase_info out = {.name = names[phase]};
    rn_program_charges(program, out.bytes);
    out.host_bytes = program->summary.host_bytes;
    out.tables_bytes = session_bytes(step) + session_bytes(evaluate);
    bool own = step->caps.own_memory;
    uint64_t scratch = own ? rn_trainer_scratch_bytes(all.most) : 0, staging = 0;
    switch (phase) {
    case RN_TRAIN_LOAD:
        staging = most_staging(program) + (all.drawn ? all.most * sizeof(float) : 0);
        out.tables_bytes += all.magnitudes;
        break;
    case RN_TRAIN_STEP:
        staging = step->summary.staging_bytes;
        out.seconds = step->summary.seconds;
        break;
    case RN_TRAIN_EVALUATE:
        staging = evaluate ? evaluate->summary.staging_bytes : 0;
        out.seconds = evaluate ? evaluate->summary.seconds : 0;
        break;
    case RN_TRAIN_RESUME:
        out.tables_bytes += scratch + file_tables(all.tensors);
        break;
    default: // a checkpoint, and the weights twice: for PEFT and llama.cpp
        out.tables_bytes += scratch + file_tables(all.tensors);
        out.file_bytes = all.bytes + 2 * all.weights + 4 * file_tables(all.tensors);
    }
    if (own)
        out.tables_bytes += staging; // on the host
    else
        out.bytes[RN_PURPOSE_STAGING] += staging;
    // Before anything is there, the plan is made: by now it is known what that took.
    if (own && phase == RN_TRAIN_LOAD && program->making_bytes > out.tables_bytes + out.host_bytes)
        out.tables_bytes = program->making_bytes - out.host_bytes;
    for (int i = 0; i < RN_PURPOSE_COUNT; i++)
        out.planned_bytes += out.bytes[i];
    return out;
}

void rn_trainer_rest(rn_trainer *trainer) {
    rn_program_rest(trainer->run);
}

// program.c — phases planned one after the other, around one shared region.
//
// The first to be planned is the phase with the most bytes that must persist (a training step with
// its optimiser's states); its plan lays out the shared region. Each other phase has the program's
// budget less that region for what is its own. Frozen weights that several phases read, and that
// the first keeps in the region, leave the others less: so where not everything fits, programs that
// keep half of them, or none, are made as well, and the one of the least time is chosen.
#include "plan/planner.h"

#include "base/checked.h"
#include "memory/account.h"
#include "memory/budget.h"

#include <stdio.h>
#include <string.h>

#define FROM        RN_HOST_OTHER
#define SIZE(bytes) rn_size_format(bytes).text

// What is asked for.
typedef struct question {
    const rn_program_phase *phases; // (count)
    uint32_t count;
    const rn_device_caps *caps;
    rn_plan_options options;
    bool first_only;  // the others are not planned
    uint32_t refused; // the phase that did not fit, or count
} question;

static uint64_t at_least_one(uint64_t n) {
    return n ? n : 1;
}

static const char *model_of(const rn_program_phase *phase) {
    return phase->model ? phase->model : "";
}

// ---- before planning ----------------------------------------------------------------------------

static rn_status check_question(const question *q) {
    bool has_graph = false;
    if (q->count == 0 || q->count > RN_PROGRAM_PHASES)
        return rn_fail(RN_INVALID, "a program has 1 to %d phases, not %u", RN_PROGRAM_PHASES,
                       q->count);
    for (uint32_t i = 0; i < q->count; i++)
        has_graph |= q->phases[i].recipe != NULL;
    return has_graph ? RN_OK : rn_fail(RN_INVALID, "no phase of the program has a graph");
}

static rn_status collect_phase(const question *q, uint32_t phase, rn_program *program) {
    const rn_recipe *recipe = q->phases[phase].recipe;
    rn_graph *graph = NULL;
    char *model = NULL;
    if (!recipe) return RN_OK;
    RN_TRY(rn_arena_copy(&program->memory, model_of(&q->phases[phase]),
                         strlen(model_of(&q->phases[phase])), (void **)&model));
    // As the device's plan will have it: fusing may declare vectors of 16 bits as f32.
    RN_TRY(rn_recipe_build(recipe, q->caps->fusions, &(rn_recipe_options){0}, &graph));
    rn_status s = rn_program_collect(&program->memory, &program->values, graph, model, phase);
    rn_graph_destroy(graph);
    return s;
}

// Bytes that persist, then weights: of a phase.
static void weigh(const rn_program_values *values, uint32_t phase, uint64_t out[2]) {
    out[0] = out[1] = 0;
    for (uint32_t i = 0; i < values->count; i++) {
        const rn_program_value *v = &values->list[i];
        if (!(v->phases >> phase & 1)) continue;
        out[v->role == RN_ROLE_STATE || v->trained ? 0 : 1] += v->bytes;
    }
}

static uint32_t find_first(const question *q, const rn_program_values *values) {
    uint64_t most[2] = {0}, bytes[2];
    uint32_t first = q->count;
    for (uint32_t i = 0; i < q->count; i++) {
        if (!q->phases[i].recipe) continue;
        weigh(values, i, bytes);
        bool more = bytes[0] > most[0] || (bytes[0] == most[0] && bytes[1] > most[1]);
        if (first != q->count && !more) continue;
        memcpy(most, bytes, sizeof most);
        first = i;
    }
    return first;
}

// ---- one program --------------------------------------------------------------------------------

static rn_status plan_phase(const question *q, const rn_plan_options *options, rn_program *program,
                            uint32_t phase) {
    rn_residency_rule rule = {.values = &program->values,
                              .once = program->phases[phase].runs == 1 &&
                                      program->phases[phase].entries == 1};
    program->values.phase = phase;
    program->values.model = model_of(&q->phases[phase]);
    return rn_plan_make_alone(q->phases[phase].recipe, q->caps, options, &rule,
                              &program->phases[phase].plan);
}

// A phase without a graph: its scratch above the region.
static rn_status check_scratch(const question *q, const rn_program *program, uint32_t phase,
                               uint64_t room) {
    uint64_t need = 0;
    if (!rn_add_u64(program->values.bytes, q->phases[phase].bytes, &need)) need = UINT64_MAX;
    if (q->caps->own_memory || need <= room) return RN_OK;
    rn_refusal_keep(&(rn_refusal){.device = q->caps->device,
                                  .purpose = RN_PURPOSE_IO,
                                  .requested_bytes = need,
                                  .free_bytes = room,
                                  .budget_bytes = q->options.budget_bytes});
    return rn_fail(RN_OVER_BUDGET, "phase '%s' needs %s", q->phases[phase].name, SIZE(need));
}

static uint64_t find_limit(const question *q) {
    uint64_t limit = q->options.budget_bytes ? q->options.budget_bytes : RN_NO_LIMIT;
    return q->caps->memory_bytes ? rn_min_u64(limit, q->caps->memory_bytes) : limit;
}

// Of the host's budget, what the phases before leave: their sessions hold theirs all the time.
static bool take_host(rn_plan_options *options, const rn_plan *plan) {
    if (!options->host_budget_bytes || options->host_budget_bytes == RN_NO_LIMIT) return true;
    if (plan->summary.host_bytes >= options->host_budget_bytes) return false;
    options->host_budget_bytes -= plan->summary.host_bytes;
    return true;
}

// `first_options`: of the phase that lays out the region.
static rn_status plan_phases(question *q, const rn_plan_options *first_options,
                             rn_program *program) {
    rn_plan_options options = q->options;
    uint64_t room = rn_plan_room(&q->options, find_limit(q));
    q->refused = program->values.first;
    program->values.is_first = true;
    RN_TRY(plan_phase(q, first_options, program, program->values.first));
    rn_program_place(&program->values, program->phases[program->values.first].plan);
    bool left = take_host(&options, program->phases[program->values.first].plan);
    for (uint32_t i = 0; i < q->count && !q->first_only; i++) {
        q->refused = i;
        if (i == program->values.first) continue;
        if (!q->phases[i].recipe) {
            RN_TRY(check_scratch(q, program, i, room));
            continue;
        }
        if (!left) options.host_budget_bytes = 1;
        RN_TRY(plan_phase(q, &options, program, i));
        left = take_host(&options, program->phases[i].plan);
    }
    q->refused = q->count;
    return RN_OK;
}

static void summarize(const question *q, rn_program *program) {
    rn_program_summary *s = &program->summary;
    uint64_t most = 0;
    s->phase_count = q->count;
    s->shared_bytes = program->values.bytes;
    for (uint32_t i = 0; i < q->count; i++) {
        const rn_plan *plan = program->phases[i].plan;
        rn_program_phase_summary phase = rn_program_get_phase(program, i);
        if (i == 0 || phase.planned_bytes > most) s->largest_phase = i;
        most = rn_max_u64(most, phase.planned_bytes);
        uint64_t arena = plan ? plan->summary.arena_bytes : phase.planned_bytes;
        s->arena_bytes = rn_max_u64(s->arena_bytes, arena);
        s->seconds +=
            (double)phase.runs * phase.seconds + (double)phase.entries * phase.load_seconds;
        rn_planner for_budget = {.options = q->options};
        uint64_t smallest = plan ? plan->summary.smallest_budget_bytes
                            : q->caps->own_memory
                                ? 0
                                : rn_planner_budget(&for_budget, phase.planned_bytes);
        s->smallest_budget_bytes = rn_max_u64(s->smallest_budget_bytes, smallest);
        if (plan) s->host_bytes += plan->summary.host_bytes;
    }
    s->planned_bytes = most;
}

static rn_status fill_program(question *q, const rn_plan_options *first_options,
                              rn_program *program) {
    size_t bytes = sizeof *program->phases;
    RN_TRY(rn_arena_array(&program->memory, q->count, bytes, (void **)&program->phases));
    program->summary.phase_count = q->count;
    for (uint32_t i = 0; i < q->count; i++) {
        const rn_program_phase *from = &q->phases[i];
        const char *name = from->name ? from->name : from->recipe ? from->recipe->name : "phase";
        program->phases[i] = (rn_phase_plan){.runs = at_least_one(from->runs),
                                             .entries = at_least_one(from->entries),
                                             .bytes = from->recipe ? 0 : from->bytes};
        RN_TRY(
            rn_arena_copy(&program->memory, name, strlen(name), (void **)&program->phases[i].name));
        RN_TRY(collect_phase(q, i, program));
    }
    program->values.first = find_first(q, &program->values);
    snprintf(program->caps_name, sizeof program->caps_name, "%s", q->caps->name);
    program->budget_bytes = q->options.budget_bytes;
    RN_TRY(plan_phases(q, first_options, program));
    summarize(q, program);
    return RN_OK;
}

static rn_status make_one(question *q, const rn_plan_options *first_options, rn_program **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(rn_program), &block));
    rn_program *program = block;
    rn_arena_init(&program->memory, FROM, 0);
    rn_status s = fill_program(q, first_options, program);
    if (s == RN_OK)
        *out = program;
    else
        rn_program_destroy(program);
    return s;
}

void rn_program_destroy(rn_program *program) {
    if (!program) return;
    for (uint32_t i = 0; program->phases && i < program->summary.phase_count; i++)
        rn_plan_destroy(program->phases[i].plan);
    rn_arena_free_all(&program->memory);
    rn_free(FROM, program, sizeof *program);
}

// ---- the choice ---------------------------------------------------------------------------------

// Bytes that the first phase's plan keeps resident if half of the weights go that it has in the
// region and that could be streamed as well. 0: there are none.
static uint64_t find_half(const rn_program *program) {
    const rn_plan *plan = program->phases[program->values.first].plan;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->values.count; i++) {
        const rn_program_value *v = &program->values.list[i];
        if (v->role == RN_ROLE_WEIGHT && !v->trained && v->offset != RN_NO_OFFSET)
            bytes += v->bytes;
    }
    return bytes ? plan->resident_bytes - bytes / 2 : 0;
}

// Nothing to gain: every phase has its weights, and none brings them anew.
static bool is_whole(const rn_program *program) {
    for (uint32_t i = 0; i < program->summary.phase_count; i++) {
        rn_program_phase_summary phase = rn_program_get_phase(program, i);
        if (phase.streamed_bytes || phase.load_bytes) return false;
    }
    return true;
}

// Takes the better of two; NULL: there is none.
static void keep_better(rn_program **best, rn_program *other) {
    bool better = !*best || (other && other->summary.seconds < (*best)->summary.seconds);
    rn_program *worse = better ? *best : other;
    if (better) *best = other;
    rn_program_destroy(worse);
}

// What the first phase is to be planned with for the smallest region that this knows of: no weights
// but those that never leave, and its own smallest budget, where the states of a device of its own
// memory are on the host.
static rn_status find_least(const question *q, rn_plan_options *out) {
    question first = *q;
    rn_program *program = NULL;
    rn_status s = RN_INVALID;
    first.first_only = true;
    first.options.budget_bytes = 0;
    for (int none = 1; none >= 0 && s == RN_INVALID; none--) {
        *out = first.options;
        if (none) out->resident_blocks = RN_NO_BLOCKS; // invalid where weights are to be kept
        s = make_one(&first, out, &program);
    }
    RN_TRY(s);
    out->budget_bytes = program->phases[program->values.first].plan->summary.smallest_budget_bytes;
    rn_program_destroy(program);
    return RN_OK;
}

// Programs whose first phase keeps at most `half` bytes of weights (0: not tried), or none but
// those that never leave; where nothing fits so far, one of the smallest region. Where one of them
// cannot be made, there is one less.
static rn_status try_fewer(question *q, uint64_t half, rn_program **best) {
    enum { HALF, NONE, LEAST, WAYS };
    rn_error_info error = *rn_last_error();
    rn_refusal refusal = *rn_last_refusal();
    uint32_t refused = q->refused;
    for (int way = half ? HALF : NONE; way < WAYS; way++) {
        rn_plan_options options = q->options;
        rn_program *other = NULL;
        rn_status s = RN_OK;
        if (way == LEAST && *best) break;
        if (way == HALF && (options.resident_bytes == 0 || options.resident_bytes > half))
            options.resident_bytes = half;
        if (way == NONE) options.resident_blocks = RN_NO_BLOCKS;
        if (way == LEAST) s = find_least(q, &options);
        if (way == LEAST && s == RN_OK && options.budget_bytes > find_limit(q)) break;
        if (s == RN_OK) s = make_one(q, &options, &other);
        if (s != RN_OK && s != RN_OVER_BUDGET && s != RN_INVALID) return s;
        keep_better(best, other);
    }
    if (*best) return RN_OK;
    q->refused = refused;
    rn_refusal_restore(&refusal);
    return rn_error_restore(&error);
}

// ---- refusing -----------------------------------------------------------------------------------

// The smallest budget for all phases: each phase's, above the smallest region. 0: not known.
static uint64_t find_smallest(const question *q) {
    question roomy = *q;
    rn_plan_options first;
    rn_program *program = NULL;
    roomy.options.budget_bytes = 0;
    rn_status s = find_least(&roomy, &first);
    if (s == RN_OK) s = make_one(&roomy, &first, &program);
    if (s != RN_OK) return 0;
    uint64_t smallest = program->summary.smallest_budget_bytes;
    rn_program_destroy(program);
    return smallest;
}

static rn_status refuse(const question *q, rn_status status) {
    if (status != RN_OVER_BUDGET || q->refused >= q->count) return status;
    rn_error_info error = *rn_last_error();
    rn_refusal refusal = *rn_last_refusal();
    uint64_t smallest = find_smallest(q);
    if (smallest == 0) return rn_error_restore(&error);
    bool same = refusal.smallest_budget_bytes == smallest; // then its hint may know what helps
    refusal.smallest_budget_bytes = smallest;
    rn_refusal_keep(&refusal);
    (void)rn_fail(status, "phase '%s' of the program: %s", q->phases[q->refused].name,
                  error.message);
    if (same) return rn_hint(status, "%s", error.hint);
    return rn_hint(status, "the smallest budget that works for all %u phases is %s (%llu bytes)",
                   q->count, SIZE(smallest), (unsigned long long)smallest);
}

static rn_status make(question *q, rn_program **out) {
    uint64_t half = 0;
    RN_TRY(check_question(q));
    rn_status s = make_one(q, &q->options, out);
    if (s == RN_OK && is_whole(*out)) return RN_OK;
    if (s != RN_OK && s != RN_OVER_BUDGET) return s;
    if (s == RN_OK) half = find_half(*out);
    if (s == RN_OK && half == 0) return RN_OK;
    s = try_fewer(q, half, out);
    if (s == RN_OK) return RN_OK;
    rn_program_destroy(*out);
    *out = NULL;
    return refuse(q, s);
}

static question ask(const rn_program_phase *phases, uint32_t count, const rn_device_caps *caps,
                    const rn_plan_options *options) {
    question q = {.phases = phases, .count = count, .caps = caps};
    if (options) q.options = *options;
    q.options.host_caps = NULL; // one memory a phase
    return q;
}

rn_status rn_program_make(const rn_program_phase *phases, uint32_t phase_count,
                          const rn_device_caps *caps, const rn_plan_options *options,
                          rn_program **out) {
    question q = ask(phases, phase_count, caps, options);
    *out = NULL;
    return make(&q, out);
}

// ---- facts --------------------------------------------------------------------------------------

const rn_program_summary *rn_program_get_summary(const rn_program *program) {
    return &program->summary;
}

const rn_plan *rn_program_plan(const rn_program *program, uint32_t phase) {
    return phase < program->summary.phase_count ? program->phases[phase].plan : NULL;
}

// Its own resident weights, which are read when it begins: all but those in the region.
static void add_loads(const rn_plan *plan, rn_program_phase_summary *out) {
    for (uint32_t u = 0; u < plan->group_count; u++) {
        const rn_plan_group *group = &plan->groups[u];
        if (!group->resident || group->shared || group->sharable) continue;
        out->load_bytes += group->file_bytes;
        out->load_seconds += rn_cost_read(&plan->caps, group->file_bytes, group->bytes, false);
    }
}

rn_program_phase_summary rn_program_get_phase(const rn_program *program, uint32_t phase) {
    if (phase >= program->summary.phase_count) return (rn_program_phase_summary){0};
    const rn_phase_plan *p = &program->phases[phase];
    rn_program_phase_summary out = {.name = p->name,
                                    .planned_bytes = program->values.bytes + p->bytes,
                                    .own_bytes = p->bytes,
                                    .runs = p->runs,
                                    .entries = p->entries};
    if (!p->plan) return out;
    out.planned_bytes = p->plan->summary.planned_bytes;
    out.own_bytes = out.planned_bytes - p->plan->shared_bytes;
    out.streamed_bytes = p->plan->summary.streamed_bytes;
    out.seconds = p->plan->summary.seconds;
    add_loads(p->plan, &out);
    return out;
}

// ---- sweep --------------------------------------------------------------------------------------

static rn_status sweep_one(question *q, uint64_t budget_bytes, rn_program_sweep_row *out) {
    rn_program *program = NULL;
    q->options.budget_bytes = budget_bytes;
    RN_TRY(make(q, &program));
    *out = (rn_program_sweep_row){budget_bytes, program->summary};
    rn_program_destroy(program);
    return RN_OK;
}

rn_status rn_program_sweep(const rn_program_phase *phases, uint32_t phase_count,
                           const rn_device_caps *caps, const rn_plan_options *options,
                           rn_program_sweep_row *out_rows, uint32_t row_count) {
    question q = ask(phases, phase_count, caps, options);
    if (row_count == 0) return RN_OK;
    RN_TRY(check_question(&q));
    uint64_t low = find_smallest(&q);
    rn_program_sweep_row *last = &out_rows[row_count - 1];
    RN_TRY(sweep_one(&q, q.options.budget_bytes, last)); // the roomiest
    rn_planner for_budget = {.options = q.options};
    uint64_t high = rn_planner_budget(&for_budget, last->summary.planned_bytes);
    last->budget_bytes = high;
    for (uint32_t i = 0; i + 1 < row_count; i++) {
        uint64_t above = (uint64_t)((double)(high - low) / (row_count - 1) * i);
        RN_TRY(sweep_one(&q, low + above, &out_rows[i]));
    }
    return RN_OK;
}

void rn_program_charges(const rn_program *program, uint64_t out_bytes[RN_PURPOSE_COUNT]) {
    const rn_plan *largest = program->phases[program->values.first].plan; // of one with a graph
    for (uint32_t i = 0; i < program->summary.phase_count; i++) {
        const rn_plan *plan = program->phases[i].plan;
        if (plan && plan->summary.arena_bytes > largest->summary.arena_bytes) largest = plan;
    }
    memcpy(out_bytes, largest->summary.purpose_bytes, sizeof largest->summary.purpose_bytes);
    if (!largest->caps.own_memory) out_bytes[RN_PURPOSE_STAGING] -= largest->summary.staging_bytes;
    // Of a phase without a graph, which has more than any other.
    out_bytes[RN_PURPOSE_STAGING] += program->summary.arena_bytes - largest->summary.arena_bytes;
}

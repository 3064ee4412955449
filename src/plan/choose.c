// choose.c — which weights stay, and the fastest candidate that fits.
//
// For every size of slots and number of slots: the first k weight groups of a list stay, for every
// k. Bytes are a sum looked up, time is a small simulation; a candidate whose lower bound is no
// better than the best so far is not simulated. Skipping never changes the result, so the choice is
// the same as from the whole list: least time, then fewest bytes read, then fewest bytes planned,
// then the first.
//
// A training step of a large model has variants by the hundred with weight groups by the hundred.
// There, of each size and number of slots, only the few k that keep the most are simulated: those
// that keep less read more, and are slower but for what a load that stays longer happens to delay.
// And an arena is placed only where the variant would win if its placement were perfect.
#include "plan/planner.h"

#include "base/checked.h"
#include "memory/account.h"

enum { FEWEST_SLOTS = 1, MOST_SLOTS = 4 };
enum { MANY_ACCESSES = 256, FEW_CHOICES = 3 }; // of a large training step

// ---- bytes --------------------------------------------------------------------------------------

void rn_residency_mark(const rn_case *c, rn_residency r, bool *out_resident) {
    for (uint32_t u = 0; u < c->groups.group_count; u++)
        out_resident[u] = !c->groups.groups[u].on_demand;
    for (uint32_t k = r.kept; r.slots && k < c->levels[r.level].count; k++)
        out_resident[c->levels[r.level].groups[k]] = false;
}

uint64_t rn_residency_ring(const rn_case *c, rn_residency r) {
    if (r.slots == 0) return 0;
    return rn_max_u64(r.slots * c->levels[r.level].slot_bytes[r.kept], c->ring_bytes);
}

uint64_t rn_residency_base(const rn_case *c, uint64_t always_bytes, rn_residency r,
                           uint64_t *out_ring_offset) {
    const rn_level *level = &c->levels[r.level];
    uint64_t base = c->group_bytes + always_bytes;
    *out_ring_offset = 0;
    if (r.slots) {
        *out_ring_offset =
            rn_round_up(level->resident_bytes[r.kept] + always_bytes, RN_PLAN_SLOT_ALIGN);
        base = *out_ring_offset + rn_residency_ring(c, r);
    }
    if (!c->on_demand) return base;
    return rn_round_up(base, RN_PLAN_SLOT_ALIGN) + rn_experts_bytes(&c->groups, r.expert_slots);
}

uint64_t rn_case_staging(const rn_case *c) {
    return c->needs_staging ? RN_PLAN_STAGING_BYTES : 0;
}

// A resident weight group is packed into a stage on its way; those that are read in every run have
// two, so that the disk runs ahead of the link.
uint64_t rn_residency_host(const rn_case *c, rn_residency r, uint64_t io_bytes,
                           const rn_offloads *offloads, bool copies) {
    uint64_t largest = 0, stages = r.slots && !copies ? 2 : 1;
    if (!c->own_memory) return 0;
    if (offloads) io_bytes += offloads->home_bytes + offloads->sent_bytes;
    for (uint32_t u = 0; u < c->groups.group_count; u++)
        largest = rn_max_u64(largest, c->groups.groups[u].bytes);
    return rn_case_staging(c) + io_bytes + stages * rn_round_up(largest, RN_PLAN_SLOT_ALIGN) +
           (r.slots && copies ? c->levels[r.level].copy_bytes[r.kept] : 0);
}

// heights: of the intermediates, without and with streaming.
static uint64_t plan_bytes(const rn_case *c, const rn_variant *v, rn_residency r,
                           const uint64_t heights[2]) {
    uint64_t ring;
    return rn_residency_base(c, v->always_bytes, r, &ring) + heights[r.slots > 0] +
           (c->own_memory ? 0 : rn_case_staging(c));
}

// Whether the host has room for its part; *out_from_host: with copies of what is streamed.
static bool fits_host(rn_planner *p, const rn_case *c, const rn_binding *binding,
                      const rn_offloads *offloads, rn_residency r, bool *out_from_host) {
    uint64_t io = binding->io_bytes;
    uint64_t without = rn_residency_host(c, r, io, offloads, false);
    uint64_t with = rn_residency_host(c, r, io, offloads, true); // of small ones: less
    uint64_t limit = p->options.host_budget_bytes ? p->options.host_budget_bytes : RN_NO_LIMIT;
    *out_from_host = c->own_memory && r.slots && with <= limit && !p->rule.once;
    p->least_host_bytes = rn_min_u64(p->least_host_bytes, rn_min_u64(with, without));
    return rn_min_u64(with, without) <= limit;
}

// ---- one variant --------------------------------------------------------------------------------

typedef struct chooser {
    rn_planner *planner;
    rn_candidate *best;
    uint32_t variant;
    const rn_variant *v;
    const rn_case *c;
    const rn_binding *binding;
    const rn_binding *pass; // of one row; or NULL
    uint64_t passes;
    uint32_t expert_slots; // of the candidate that is looked at
    rn_stream stream;
    rn_offloads offloads;
    bool *resident;          // (weight groups)
    double *ready;           // (accesses)
    double *done;            // (2, offloads)
    double offloads_seconds; // for the workload, at least, with its offloads
} chooser;

static rn_status prepare(chooser *ch, rn_arena *scratch) {
    const rn_group_table *t = &ch->c->groups;
    RN_TRY(rn_stream_init(scratch, t, &ch->stream));
    RN_TRY(rn_offloads_make(scratch, ch->c, ch->binding, ch->planner->caps, ch->v, &ch->offloads));
    RN_TRY(rn_arena_array(scratch, 2 * (size_t)ch->offloads.count, sizeof(double),
                          (void **)&ch->done));
    RN_TRY(rn_arena_array(scratch, t->group_count, sizeof(bool), (void **)&ch->resident));
    return rn_arena_array(scratch, t->access_count, sizeof(double), (void **)&ch->ready);
}

static bool can_stream(chooser *ch, rn_residency r) {
    rn_residency_mark(ch->c, r, ch->resident);
    return rn_stream_walk(&ch->c->groups, ch->resident, r.slots, &ch->stream);
}

static double for_workload(const chooser *ch, double run_seconds, double decode_seconds) {
    return rn_planner_total(ch->planner, ch->v, run_seconds, ch->binding->update_seconds) +
           (double)ch->passes * decode_seconds;
}

static double simulate(const chooser *ch, const rn_binding *binding, bool no_homes) {
    rn_traffic traffic = {.groups = ch->c->groups.groups,
                          .stream = &ch->stream,
                          .ready = ch->ready,
                          .offloads = &ch->offloads,
                          .no_homes = no_homes,
                          .done = ch->done};
    double run =
        rn_cost_run(ch->planner->caps, binding->until[ch->v->slice], ch->c->order.count, &traffic);
    return run + rn_experts_wait(&ch->c->groups, &ch->planner->options, ch->planner->caps,
                                 ch->expert_slots, binding->rows, binding->seconds[ch->v->slice],
                                 RN_GUESS_EXPECTED);
}

// States go with the last of several micro-batches.
static double total_of(const chooser *ch, double run_seconds, double decode_seconds) {
    double once = ch->binding->update_seconds;
    if (ch->planner->micro[ch->v->micro] > 1 && ch->offloads.home_bytes)
        once += run_seconds - simulate(ch, ch->binding, true);
    return rn_planner_total(ch->planner, ch->v, run_seconds, once) +
           (double)ch->passes * decode_seconds;
}

static bool is_better(const rn_candidate *a, const rn_candidate *b) {
    if (b->variant == RN_NO_STEP) return true;
    if (a->seconds != b->seconds) return a->seconds < b->seconds;
    if (a->read_bytes != b->read_bytes) return a->read_bytes < b->read_bytes;
    return a->planned_bytes < b->planned_bytes;
}

static double longer(double a, double b) {
    return a > b ? a : b;
}

// No run is shorter than its steps, or than its reads.
static double bound_of(const chooser *ch, const rn_binding *binding, double reading) {
    return longer(binding->total_seconds[ch->v->slice], reading);
}

// Whether a candidate is slower than the best with these times, none of which can be shorter.
static bool is_slower(const chooser *ch, double run_seconds, double decode_seconds) {
    double seconds = for_workload(ch, run_seconds, decode_seconds) * (1 - 1e-9); // rounding
    return ch->best->variant != RN_NO_STEP && seconds > ch->best->seconds;
}

// A run of one row of which the host computes all blocks with weights that do not stay: their
// weights at its rate, then the others.
static double share_pass(const chooser *ch, double rate) {
    const rn_group_table *t = &ch->c->groups;
    double seconds = 0;
    uint32_t end = 0;
    for (uint32_t u = 0; u < t->group_count; u++)
        if (!ch->resident[u] && t->groups[u].block >= end) end = t->groups[u].block + 1;
    for (uint32_t u = 0; u < t->group_count; u++)
        if (t->groups[u].block < end) seconds += (double)t->groups[u].file_bytes / rate;
    for (uint32_t p = 0; p < ch->c->order.count; p++)
        if (rn_graph_node(ch->c->graph, ch->c->order.nodes[p])->block >= end)
            seconds += ch->pass->seconds[ch->v->slice][p];
    return seconds;
}

static double find_pass(const chooser *ch, rn_residency r) {
    double rate = ch->planner->rule.host_bytes_second;
    if (ch->passes == 0) return 0;
    return rate > 0 && r.slots ? share_pass(ch, rate) : simulate(ch, ch->pass, false);
}

// Looking at one residency is a walk over all accesses, and a simulation over all steps.
static bool is_cancelled(const chooser *ch) {
    return rn_stop_spend(ch->c->groups.access_count + 2 * (uint64_t)ch->c->order.count) ==
           RN_STOP_CANCEL;
}

// Of a run, expected.
static uint64_t read_of_experts(const chooser *ch, rn_residency r) {
    return (uint64_t)rn_experts_read(&ch->c->groups, &ch->planner->options, r.expert_slots,
                                     ch->binding->rows, RN_GUESS_EXPECTED);
}

// Whether it could be tried.
static bool offer(chooser *ch, rn_residency r, uint64_t bytes) {
    if (!fits_host(ch->planner, ch->c, ch->binding, &ch->offloads, r, &ch->stream.from_host))
        return false;
    if (r.slots && !can_stream(ch, r)) return false;
    if (r.slots == 0) ch->stream.slot_count = ch->stream.load_count = 0;
    ch->expert_slots = r.expert_slots;
    double pass = find_pass(ch, r);
    if (is_slower(ch, bound_of(ch, ch->binding, 0), pass)) return true;
    double run = simulate(ch, ch->binding, false);
    rn_candidate candidate = {.variant = ch->variant,
                              .residency = r,
                              .planned_bytes = bytes,
                              .read_bytes = (r.slots ? ch->stream.read_bytes : 0) +
                                            ch->offloads.home_bytes + ch->offloads.sent_bytes +
                                            read_of_experts(ch, r),
                              .from_host = ch->stream.from_host,
                              .seconds = total_of(ch, run, pass),
                              .decode_seconds = pass};
    // By definition, so that skipping by these bounds is exact.
    candidate.seconds = longer(candidate.seconds, ch->v->bound_seconds);
    candidate.seconds = longer(candidate.seconds, ch->offloads_seconds);
    if (is_better(&candidate, ch->best)) *ch->best = candidate;
    return true;
}

static bool is_large(const chooser *ch) {
    return ch->c->trains && ch->c->groups.access_count >= MANY_ACCESSES;
}

static double bound_pass(const chooser *ch, uint64_t read_bytes, double reading) {
    double rate = ch->planner->rule.host_bytes_second;
    if (ch->passes == 0) return 0;
    return rate > 0 ? (double)read_bytes / rate : bound_of(ch, ch->pass, reading);
}

// Over a link all of it comes, from wherever; and a device's layout may be smaller than the file's.
static double bound_reading(const rn_device_caps *caps, const rn_level *l, uint32_t kept) {
    if (caps->own_memory) return (double)l->link_bytes[kept] / caps->link_bytes_second;
    return (double)l->file_bytes[kept] / caps->disk_bytes_second;
}

// Whether no candidate of this variant that keeps so many weight groups, or fewer, is better than
// the best.
static bool cannot_win(const chooser *ch, const rn_level *l, uint32_t kept) {
    const rn_candidate *best = ch->best;
    double reading = bound_reading(ch->planner->caps, l, kept);
    uint64_t read_bytes = l->file_bytes[kept];
    double pass = bound_pass(ch, read_bytes, reading);
    if (best->variant == RN_NO_STEP) return false;
    if (is_slower(ch, bound_of(ch, ch->binding, reading), pass)) return true;
    return ch->v->bound_seconds >= best->seconds && read_bytes > best->read_bytes;
}

// From the most that stays to the least: the bound only grows, and so do the bytes read.
static void offer_level(chooser *ch, uint32_t level, uint32_t slots, uint64_t budget,
                        const uint64_t heights[2]) {
    const rn_level *l = &ch->c->levels[level];
    uint32_t left = is_large(ch) ? FEW_CHOICES : UINT32_MAX;
    for (uint32_t k = l->choices; left && k-- > 0;) {
        rn_residency r = {.slots = slots, .level = level, .kept = k};
        uint64_t bytes = plan_bytes(ch->c, ch->v, r, heights);
        if (cannot_win(ch, l, k) || is_cancelled(ch)) break;
        if (bytes <= budget && offer(ch, r, bytes)) left--;
    }
}

// Slots for experts in what all other weights leave free: more of them are never slower. Where
// other weights are streamed, each run reads these, and experts have none.
static uint32_t fit_experts(const chooser *ch, uint64_t free_bytes) {
    const rn_group_table *t = &ch->c->groups;
    return ch->c->on_demand ? rn_experts_fit(t, rn_experts_bytes(t, 0) + free_bytes) : 0;
}

static void offer_all(chooser *ch, uint64_t budget, const uint64_t heights[2]) {
    rn_residency everything = {0};
    uint64_t bytes = plan_bytes(ch->c, ch->v, everything, heights);
    if (bytes <= budget && ch->c->all_may_stay) {
        everything.expert_slots = fit_experts(ch, budget - bytes);
        (void)offer(ch, everything, plan_bytes(ch->c, ch->v, everything, heights));
    }
    if (ch->best->variant == ch->variant && ch->best->seconds == ch->v->bound_seconds &&
        ch->best->read_bytes == 0)
        return; // as fast as this variant can be, and nothing is read
    for (uint32_t level = 0; level < ch->c->level_count; level++)
        for (uint32_t slots = FEWEST_SLOTS; slots <= MOST_SLOTS; slots++)
            offer_level(ch, level, slots, budget, heights);
}

// The fewest bytes with `heights`; *out is set where they are below `less_than`.
static uint64_t find_fewest(chooser *ch, const uint64_t heights[2], uint64_t less_than,
                            rn_residency *out) {
    rn_residency r = {0};
    bool from_host;
    uint64_t bytes = plan_bytes(ch->c, ch->v, r, heights);
    if (bytes < less_than && ch->c->all_may_stay &&
        fits_host(ch->planner, ch->c, ch->binding, &ch->offloads, r, &from_host)) {
        less_than = bytes;
        *out = r;
    }
    for (r.level = 0; r.level < ch->c->level_count; r.level++)
        for (r.slots = FEWEST_SLOTS; r.slots <= MOST_SLOTS; r.slots++)
            for (r.kept = 0; r.kept < ch->c->levels[r.level].choices; r.kept++) {
                bytes = plan_bytes(ch->c, ch->v, r, heights);
                if (bytes < less_than && is_cancelled(ch)) return less_than;
                if (bytes >= less_than || !can_stream(ch, r) ||
                    !fits_host(ch->planner, ch->c, ch->binding, &ch->offloads, r, &from_host))
                    continue;
                less_than = bytes;
                *out = r;
            }
    return less_than;
}

// ---- all variants -------------------------------------------------------------------------------

static rn_status with_variant(rn_planner *p, uint32_t variant, rn_candidate *best,
                              rn_status (*then)(chooser *, uint64_t), uint64_t argument) {
    rn_case *c;
    rn_binding *binding, *pass;
    rn_arena scratch;
    chooser ch = {.planner = p,
                  .best = best,
                  .variant = variant,
                  .v = &p->variants[variant],
                  .passes = rn_planner_decode_steps(p)};
    RN_TRY(rn_planner_open(p, ch.v, &c, &binding));
    RN_TRY(rn_planner_open_decode(p, ch.v, &pass));
    ch.c = c;
    ch.binding = binding;
    ch.pass = pass;
    rn_arena_init(&scratch, RN_HOST_OTHER, 0);
    rn_status s = prepare(&ch, &scratch);
    if (s == RN_OK) s = then(&ch, argument);
    if (s == RN_OK) s = rn_stop_try(0); // it may have ended early
    rn_arena_free_all(&scratch);
    return s;
}

static rn_status improve_frugal(chooser *ch, uint64_t unused) {
    rn_residency r = {0};
    uint64_t least = ch->best->planned_bytes;
    (void)unused;
    if (find_fewest(ch, ch->v->peak_bytes, least, &r) >= least) return RN_OK;
    RN_TRY(rn_planner_place(ch->planner, &ch->planner->variants[ch->variant]));
    uint64_t bytes = find_fewest(ch, ch->v->height_bytes, least, &r);
    if (bytes >= least) return RN_OK;
    *ch->best = (rn_candidate){.variant = ch->variant, .residency = r, .planned_bytes = bytes};
    return RN_OK;
}

rn_status rn_choose_frugal(rn_planner *p, uint32_t variant, rn_candidate *best) {
    RN_TRY(rn_planner_peak(p, &p->variants[variant]));
    return with_variant(p, variant, best, improve_frugal, 0);
}

// Whether its offloads alone make it slower than the best. They are timed without weights that are
// streamed meanwhile.
static bool travels_too_long(chooser *ch) {
    if (ch->offloads.count == 0) return false;
    ch->stream.slot_count = ch->stream.load_count = 0;
    ch->offloads_seconds = total_of(ch, simulate(ch, ch->binding, false), 0);
    return ch->best->variant != RN_NO_STEP && ch->offloads_seconds > ch->best->seconds;
}

// Whether the variant would be better than the best if no byte of its arena were lost to gaps.
static bool could_win(chooser *ch, uint64_t budget) {
    rn_candidate *best = ch->best, hoped = *best;
    if (!is_large(ch)) return true;
    ch->best = &hoped;
    offer_all(ch, budget, ch->v->peak_bytes);
    ch->best = best;
    return hoped.variant == ch->variant;
}

static rn_status improve(chooser *ch, uint64_t budget) {
    rn_residency r = {0};
    if (travels_too_long(ch)) return RN_OK;
    if (find_fewest(ch, ch->v->peak_bytes, UINT64_MAX, &r) > budget) return RN_OK;
    if (!could_win(ch, budget)) return RN_OK;
    RN_TRY(rn_planner_place(ch->planner, &ch->planner->variants[ch->variant]));
    offer_all(ch, budget, ch->v->height_bytes);
    return RN_OK;
}

// Whether a variant with values on the host, or weights in slices, comes too late: nothing is
// faster than the best, which moves nothing.
static bool is_late(const rn_variant *v, const rn_candidate *best) {
    return best->variant != RN_NO_STEP && best->read_bytes == 0 &&
           (v->states || v->sent || v->cut || v->on_demand) && v->bound_seconds >= best->seconds;
}

rn_status rn_choose(rn_planner *p, uint64_t budget_bytes, rn_candidate *out) {
    *out = (rn_candidate){.variant = RN_NO_STEP};
    for (uint32_t i = 0; i < p->variant_count; i++) {
        if (out->variant != RN_NO_STEP && p->variants[i].bound_seconds > out->seconds) break;
        if (is_late(&p->variants[i], out)) continue;
        RN_TRY(rn_planner_peak(p, &p->variants[i]));
        if (p->variants[i].floor_bytes > budget_bytes) continue;
        RN_TRY(with_variant(p, i, out, improve, budget_bytes));
    }
    if (out->variant == RN_NO_STEP) return rn_fail(RN_INTERNAL, "the frugal plan does not fit");
    return RN_OK;
}

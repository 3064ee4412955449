// candidates.c — the list of all that a plan may be, without a budget in sight:
//
//     inference   rows {wanted, half, ... 1}   x slices of attention x residency
//                 x weights in slices of rows x experts on demand
//     training    micro-batches {1, 2, 4 ...}  x blocks recomputed   x slices x residency
//                 x states on the host x saved values on the host, where that is another memory
//
// In training, what is cheap is made again in the backward pass where that is worth it: decided for
// each graph once, so no dimension.
//
// Each variant gets a time below which it cannot be; the list is in that order, so that choosing
// can stop early. Graphs, lifetimes and placements are made when they are first asked for.
#include "plan/planner.h"

#include "base/checked.h"
#include "graph/repeat.h"
#include "graph/cut.h"
#include "memory/account.h"

#define FROM RN_HOST_OTHER

// ---- cases --------------------------------------------------------------------------------------

static rn_case *case_at(const rn_planner *p, uint32_t micro, bool on_demand, uint32_t cut,
                        uint32_t point) {
    size_t row = ((size_t)micro * RN_PLAN_DEMANDS + on_demand) * RN_PLAN_CUTS + cut;
    return &p->cases[row * RN_PLAN_POINTS + point];
}

static rn_case *plain_case(const rn_planner *p, uint32_t micro) {
    return case_at(p, micro, false, 0, 0);
}

static void close_case(rn_case *c) {
    rn_graph_destroy(c->graph);
    rn_arena_free_all(&c->memory);
    *c = (rn_case){0};
}

// Blocks in the order in which they become resident, so that what is streamed lies evenly between
// what stays, however many that are, and the disk has work all through a run. A power of two of
// them: halves, quarters, eighths ... Any other number is not cut so evenly: there a block's turn
// is how far it lies round a circle, each block a golden section further than the one before; the
// first few of them are never more than three different distances apart.
static uint32_t turn_of(uint32_t block, uint32_t blocks) {
    static const uint32_t golden = 2654435769u; // of a circle of 2^32
    uint32_t turned = 0;
    if (blocks & (blocks - 1)) return block * golden;
    for (uint32_t bit = 1; bit < blocks; bit <<= 1)
        turned = turned << 1 | ((block & bit) != 0);
    return turned;
}

// By insertion: the weight groups of a block stay in the order of use.
static rn_status spread(const rn_group_table *t, uint32_t blocks, rn_level *level) {
    for (uint32_t i = 0; i < level->count; i++) {
        uint32_t group = level->groups[i], turn = turn_of(t->groups[group].block, blocks), at = i;
        for (; at > 0 && turn_of(t->groups[level->groups[at - 1]].block, blocks) > turn; at--)
            level->groups[at] = level->groups[at - 1];
        level->groups[at] = group;
        RN_TRY(rn_stop_try(1 + i - at));
    }
    return RN_OK;
}

// From the last to be used to the first, so that what does not stay is a beginning of the graph.
static void turn_round(rn_level *level) {
    for (uint32_t i = 0; i < level->count / 2; i++) {
        uint32_t *a = &level->groups[i], *b = &level->groups[level->count - 1 - i], group = *a;
        *a = *b;
        *b = group;
    }
}

static rn_status write_level(const rn_planner *p, rn_case *c, uint64_t largest, rn_level *level) {
    const rn_group_table *t = &c->groups;
    size_t room = (size_t)t->group_count + 1;
    RN_TRY(rn_arena_array(&c->memory, room, sizeof *level->groups, (void **)&level->groups));
    RN_TRY(rn_arena_array(&c->memory, room, sizeof(uint64_t), (void **)&level->resident_bytes));
    RN_TRY(rn_arena_array(&c->memory, room, sizeof(uint64_t), (void **)&level->slot_bytes));
    RN_TRY(rn_arena_array(&c->memory, room, sizeof(uint64_t), (void **)&level->file_bytes));
    RN_TRY(rn_arena_array(&c->memory, room, sizeof(uint64_t), (void **)&level->link_bytes));
    RN_TRY(rn_arena_array(&c->memory, room, sizeof(uint64_t), (void **)&level->copy_bytes));
    for (uint32_t u = 0; u < t->group_count; u++)
        if (!t->groups[u].resident && !t->groups[u].on_demand && t->slot_bytes[u] <= largest)
            level->groups[level->count++] = u;
    if (p->rule.suffix)
        turn_round(level);
    else
        RN_TRY(spread(t, rn_graph_block_count(c->graph), level));
    rn_constraints_sort(t, level);
    level->resident_bytes[level->count] = c->group_bytes;
    for (uint32_t k = level->count; k-- > 0;) {
        uint32_t u = level->groups[k];
        level->resident_bytes[k] =
            level->resident_bytes[k + 1] - rn_round_up(t->groups[u].bytes, RN_PLAN_ALIGN);
        level->slot_bytes[k] =
            rn_max_u64(level->slot_bytes[k + 1], rn_round_up(t->slot_bytes[u], RN_PLAN_SLOT_ALIGN));
        level->file_bytes[k] = level->file_bytes[k + 1] + t->groups[u].file_bytes;
        level->link_bytes[k] = level->link_bytes[k + 1] + t->groups[u].bytes;
        level->copy_bytes[k] =
            level->copy_bytes[k + 1] + rn_round_up(t->slot_bytes[u], RN_PLAN_SLOT_ALIGN);
    }
    return rn_constraints_limit(&p->options, c, largest, level);
}

// Slots as large as the largest weight group, as the next smaller one, and so on.
static rn_status write_levels(const rn_planner *p, rn_case *c) {
    uint64_t below = UINT64_MAX;
    for (uint32_t u = 0; u < c->groups.group_count; u++)
        if (!c->groups.groups[u].shared && !c->groups.groups[u].on_demand)
            c->group_bytes += rn_round_up(c->groups.groups[u].bytes, RN_PLAN_ALIGN);
    while (c->level_count < RN_PLAN_LEVELS) {
        uint64_t largest = 0;
        for (uint32_t u = 0; u < c->groups.group_count; u++)
            if (!c->groups.groups[u].resident && !c->groups.groups[u].on_demand &&
                c->groups.slot_bytes[u] < below)
                largest = rn_max_u64(largest, c->groups.slot_bytes[u]);
        if (largest == 0) break;
        RN_TRY(write_level(p, c, largest, &c->levels[c->level_count++]));
        below = largest;
    }
    return rn_constraints_allow_all(&p->options, c);
}

static bool has_backward(const rn_graph *graph) {
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++)
        if (rn_graph_node(graph, n)->phase != RN_PHASE_FORWARD) return true;
    return false;
}

// As the recipe and the device have it, with the blocks repeated that the point of the front says,
// or with weights in slices. The latter is NULL where no weight is so large.
static rn_status build_graph(rn_planner *p, uint32_t micro, uint32_t cut, uint32_t point,
                             rn_graph **out) {
    rn_recipe_options options = {.micro_batches = p->micro[micro],
                                 .exact = p->options.exact && p->micro[micro] > 1};
    rn_graph *plain = NULL;
    uint32_t fusions = p->caps->fusions;
    if (point == 0 && cut == 0) return rn_recipe_build(p->recipe, fusions, &options, out);
    RN_TRY(rn_recipe_build(p->recipe, fusions, &options, &plain));
    size_t row = (size_t)point * rn_graph_block_count(plain);
    rn_status s = cut ? rn_graph_slice_rows(plain, p->cuts[cut], out)
                      : rn_graph_recompute(plain, p->fronts[micro].recompute + row, out);
    rn_graph_destroy(plain);
    return s;
}

// Everything about c->graph but what depends on rows.
static rn_status fill_case(rn_planner *p, rn_case *c) {
    if (rn_graph_node_count(c->graph) == 0)
        return rn_fail(RN_INVALID, "'%s' has no nodes: there is nothing to plan", p->recipe->name);
    RN_TRY(rn_plan_order_make(&c->memory, c->graph, &c->order));
    RN_TRY(rn_group_table_make(&c->memory, c->graph, p->caps, &c->order, &p->options,
                               p->rule.values, c->on_demand, &c->groups));
    for (uint32_t u = 0; u < c->groups.group_count && !p->recipe->weights_in_memory; u++)
        c->needs_staging |= !c->groups.groups[u].shared || c->groups.groups[u].brings;
    c->own_memory = p->caps->own_memory;
    c->trains = has_backward(c->graph);
    c->ring_bytes = rn_round_up(p->rule.ring_bytes, RN_PLAN_SLOT_ALIGN);
    RN_TRY(
        rn_arena_array(&c->memory, RN_PLAN_ROWS + 1, sizeof *c->bindings, (void **)&c->bindings));
    return write_levels(p, c);
}

static rn_status bind_at(rn_planner *p, rn_case *c, uint32_t at, uint64_t rows, rn_binding **out) {
    *out = &c->bindings[at];
    if ((*out)->is_made && (*out)->rows == rows) return RN_OK;
    rn_workload workload = {p->recipe->workload_rows, p->recipe->decode_steps};
    return rn_binding_make(&c->memory, c->graph, p->caps, &c->order, &c->groups, rows, workload,
                           *out);
}

static rn_status bind(rn_planner *p, rn_case *c, uint32_t rows, rn_binding **out) {
    return bind_at(p, c, rows, p->rows[rows], out);
}

static rn_status trace(rn_planner *p, rn_case *c, uint32_t rows, rn_binding **out) {
    RN_TRY(bind(p, c, rows, out));
    if ((*out)->is_live) return RN_OK;
    RN_TRY(rn_binding_trace(&c->memory, c->graph, p->caps, &c->order, &c->groups, *out));
    return rn_program_mark(p->rule.values, c->graph, &(*out)->live);
}

uint64_t rn_planner_below(const rn_planner *p) {
    return p->rule.values ? rn_program_below(p->rule.values) : 0;
}

// ---- what is cheap ------------------------------------------------------------------------------

static rn_status measure(rn_planner *p, rn_case *c, uint64_t *out_peak, double *out_seconds) {
    rn_binding *b;
    rn_arena scratch;
    RN_TRY(trace(p, c, 0, &b));
    rn_arena_init(&scratch, FROM, 0);
    rn_status s = rn_binding_peak(&scratch, b, NULL, 0, false, c->order.count, out_peak);
    rn_arena_free_all(&scratch);
    *out_seconds = b->total_seconds[0];
    return s;
}

// Whether the leaner case takes the other one's place, whatever the budget: it must lower the peak
// by a larger part than it lengthens the step, and that by little.
static rn_status is_worth_it(rn_planner *p, rn_case *c, rn_case *lean, bool *out) {
    static const double most = 0.02; // of the step's time
    uint64_t peak = 0, lean_peak = 0;
    double seconds = 0, lean_seconds = 0;
    RN_TRY(measure(p, c, &peak, &seconds));
    RN_TRY(measure(p, lean, &lean_peak, &lean_seconds));
    double longer = lean_seconds / seconds - 1, lower = 1 - (double)lean_peak / (double)peak;
    *out = lower > 0 && longer <= lower && longer <= most;
    return RN_OK;
}

// Makes what is cheap again in the backward pass, where that is worth it.
static rn_status trim_case(rn_planner *p, rn_case *c) {
    rn_case lean = {.is_open = true};
    bool worth_it = false;
    if (!has_backward(c->graph)) return RN_OK;
    rn_arena_init(&lean.memory, FROM, 0);
    rn_status s = rn_graph_recompute_cheap(c->graph, &lean.graph);
    if (s == RN_OK) s = fill_case(p, &lean);
    if (s == RN_OK) s = is_worth_it(p, c, &lean, &worth_it);
    rn_case other = worth_it ? *c : lean;
    if (worth_it) *c = lean;
    close_case(&other);
    return s;
}

// ---- opening ------------------------------------------------------------------------------------

// Rows of inference may come in several runs; those of a training step belong together.
static rn_status list_rows(rn_planner *p, const rn_graph *graph) {
    RN_TRY(rn_arena_array(&p->memory, RN_PLAN_ROWS, sizeof *p->rows, (void **)&p->rows));
    if (!rn_graph_has_rows(graph)) {
        p->rows_count = 1;
        return RN_OK;
    }
    uint64_t rows = p->recipe->rows ? p->recipe->rows : 1;
    uint64_t least = rn_max_u64(p->recipe->least_rows, 1);
    p->rows[p->rows_count++] = rows;
    for (; rows > least && !has_backward(graph); p->rows_count++)
        rows = p->rows[p->rows_count] = rn_max_u64(rn_div_up(rows, 2), least);
    return RN_OK;
}

// The front is one of the plain graph: what a block's repetition saves beside what is cheap is
// seen when it is tried.
static rn_status make_front(rn_planner *p, uint32_t micro, rn_case *c) {
    rn_binding *b;
    if (micro == 0) RN_TRY(list_rows(p, c->graph));
    RN_TRY(bind(p, c, 0, &b));
    return rn_front_make(&p->memory, c->graph, &c->order, b, &p->fronts[micro]);
}

static rn_status open_case(rn_planner *p, uint32_t micro, bool on_demand, uint32_t cut,
                           uint32_t point) {
    rn_case *c = case_at(p, micro, on_demand, cut, point);
    bool is_plain = cut == 0 && point == 0 && !on_demand;
    if (c->is_open) return RN_OK;
    rn_case **oldest = &p->opened[p->open_count % RN_PLAN_OPEN_CASES];
    if (!is_plain && *oldest) close_case(*oldest);
    if (!is_plain) *oldest = NULL;
    rn_arena_init(&c->memory, FROM, 0);
    c->is_open = true; // to be closed in any case
    c->on_demand = on_demand;
    rn_status s = build_graph(p, micro, cut, point, &c->graph);
    if (s == RN_OK) s = fill_case(p, c);
    if (s == RN_OK && is_plain) s = make_front(p, micro, c);
    if (s == RN_OK) s = trim_case(p, c);
    if (s != RN_OK) {
        close_case(c);
    } else if (!is_plain) {
        *oldest = c;
        p->open_count++;
    }
    return s;
}

rn_status rn_planner_open(rn_planner *p, const rn_variant *v, rn_case **out_case,
                          rn_binding **out_binding) {
    RN_TRY(open_case(p, v->micro, v->on_demand, v->cut, v->point));
    rn_case *c = *out_case = case_at(p, v->micro, v->on_demand, v->cut, v->point);
    return trace(p, c, v->rows, out_binding);
}

// ---- variants -----------------------------------------------------------------------------------

rn_status rn_planner_peak(rn_planner *p, rn_variant *v) {
    rn_case *c;
    rn_binding *b;
    rn_arena scratch;
    if (v->has_peak) return RN_OK;
    RN_TRY(rn_planner_open(p, v, &c, &b));
    rn_offloads offloads;
    rn_arena_init(&scratch, FROM, 0);
    rn_status s = rn_offloads_make(&scratch, c, b, p->caps, v, &offloads);
    for (int streams = 0; streams < 2 && s == RN_OK; streams++)
        s = rn_binding_peak(&scratch, b, &offloads, v->slice, streams, c->order.count,
                            &v->peak_bytes[streams]);
    rn_arena_free_all(&scratch);
    v->always_bytes = rn_planner_below(p) + b->live.always_bytes - offloads.away_always_bytes;
    v->floor_bytes = v->always_bytes + rn_min_u64(v->peak_bytes[0], v->peak_bytes[1]) +
                     rn_experts_bytes(&c->groups, 0) +
                     (c->level_count ? 0 : c->group_bytes); // none of them can be streamed
    v->has_peak = s == RN_OK;
    return s;
}

// Whether weights in slots make a difference for the arena.
static bool has_slot_workspace(const rn_binding *b, uint32_t slice, uint32_t positions) {
    for (uint32_t p = 0; p < positions; p++)
        if (b->slot_workspace[slice][p] > b->workspace[slice][p]) return true;
    return false;
}

rn_status rn_planner_place(rn_planner *p, rn_variant *v) {
    rn_case *c;
    rn_binding *b;
    rn_arena scratch;
    rn_offloads offloads;
    if (v->is_placed) return RN_OK;
    RN_TRY(rn_planner_peak(p, v));
    RN_TRY(rn_planner_open(p, v, &c, &b));
    rn_arena_init(&scratch, FROM, 0);
    rn_status s = rn_offloads_make(&scratch, c, b, p->caps, v, &offloads);
    for (int streams = 0; streams < 2 && s == RN_OK; streams++) {
        rn_placement placement = {.height_bytes = v->height_bytes[0]};
        if (streams == 0 || has_slot_workspace(b, v->slice, c->order.count))
            s = rn_binding_place(&scratch, b, &offloads, v->slice, streams, c->order.count,
                                 p->options.effort, NULL, &placement);
        v->height_bytes[streams] = placement.height_bytes;
    }
    rn_arena_free_all(&scratch);
    v->is_placed = s == RN_OK;
    return s;
}

static bool has_passes(const rn_planner *p) {
    return p->rows[p->rows_count - 1] == 1 && !has_backward(plain_case(p, 0)->graph);
}

rn_status rn_planner_open_decode(rn_planner *p, const rn_variant *v, rn_binding **out) {
    *out = NULL;
    if (!has_passes(p)) return RN_OK;
    RN_TRY(open_case(p, v->micro, v->on_demand, v->cut, v->point));
    return bind(p, case_at(p, v->micro, v->on_demand, v->cut, v->point), p->rows_count - 1, out);
}

// Rows that do not fit into one run are shared out to several.
rn_status rn_planner_time_batch(rn_planner *p, const rn_variant *v, double *out_seconds) {
    uint64_t all = rn_max_u64(p->recipe->decode_rows, 1), most = p->rows[v->rows];
    uint64_t runs = most ? rn_div_up(all, most) : 1;
    rn_binding *batch;
    RN_TRY(open_case(p, v->micro, v->on_demand, v->cut, v->point));
    RN_TRY(bind_at(p, case_at(p, v->micro, v->on_demand, v->cut, v->point), RN_PLAN_ROWS,
                   rn_div_up(all, runs), &batch));
    *out_seconds = (double)runs * batch->total_seconds[v->slice];
    return RN_OK;
}

uint64_t rn_planner_decode_steps(const rn_planner *p) {
    return has_passes(p) ? p->recipe->decode_steps : 0;
}

uint64_t rn_planner_workload(const rn_planner *p) {
    return p->recipe->workload_rows ? p->recipe->workload_rows : p->rows[0];
}

double rn_planner_total(const rn_planner *p, const rn_variant *v, double run_seconds,
                        double update_seconds) {
    uint64_t rows = p->rows[v->rows], runs = 1, parts = p->micro[v->micro];
    if (rows) runs = rn_div_up(rn_planner_workload(p), rows);
    return (double)runs * ((double)parts * run_seconds - (double)(parts - 1) * update_seconds);
}

static void insert_variant(rn_planner *p, rn_variant v) {
    uint32_t at = p->variant_count++;
    for (; at > 0 && p->variants[at - 1].bound_seconds > v.bound_seconds; at--)
        p->variants[at] = p->variants[at - 1];
    p->variants[at] = v;
}

// Whether values of a run may be on the host for a while.
static bool has_offloads(const rn_planner *p) {
    return p->caps->own_memory && plain_case(p, 0)->trains;
}

// Whether a share is what was asked for.
static bool allows_share(rn_move move, rn_share share) {
    if (move == RN_MOVE_NEVER) return share == RN_SHARE_NONE;
    return move != RN_MOVE_ALWAYS || share >= RN_SHARE_ALL;
}

// With all shares of what may be on the host; nothing there first.
static void insert_shares(rn_planner *p, rn_variant v) {
    bool any = has_offloads(p);
    rn_share end = any ? RN_SHARE_COUNT : RN_SHARE_NONE + 1;
    for (v.states = RN_SHARE_NONE; v.states < end; v.states++)
        for (v.sent = RN_SHARE_NONE; v.sent < end; v.sent++)
            if (!any || (allows_share(p->options.host_states, v.states) &&
                         allows_share(p->options.host_activations, v.sent)))
                insert_variant(p, v);
}

// The points of a front that may be chosen: the first recomputes nothing, the last everything.
static bool allows_point(const rn_planner *p, const rn_front *front, uint32_t point) {
    if (p->options.recompute == RN_MOVE_NEVER) return point == 0;
    return p->options.recompute != RN_MOVE_ALWAYS || point + 1 == front->count;
}

// Slices that hold no more rows than was asked for; where none that saves anything is as fine, the
// finest there is.
static bool allows_slice(const rn_planner *p, const rn_binding *b, uint32_t slice) {
    uint32_t finest = 0, most = p->options.slice_rows;
    for (uint32_t s = 0; s < RN_PLAN_SLICES; s++)
        if (b->slices[s]) finest = s;
    bool fine = rn_plan_slices[slice] && rn_plan_slices[slice] <= most;
    return b->slices[slice] && (!most || fine || slice == finest);
}

// Experts on demand, or not, where there is a choice. What they read comes on top of the bound.
static void insert_demands(rn_planner *p, rn_variant v) {
    bool forced = p->has_demand && p->options.experts == RN_EXPERTS_ALWAYS;
    if (!forced) insert_shares(p, v);
    v.on_demand = true;
    if (p->has_demand) insert_variant(p, v);
}

static rn_status list_variants_of(rn_planner *p, uint32_t micro, uint32_t rows) {
    const rn_front *front = &p->fronts[micro];
    rn_binding *b, *pass;
    double passes = (double)rn_planner_decode_steps(p);
    RN_TRY(bind(p, plain_case(p, micro), rows, &b));
    RN_TRY(bind(p, plain_case(p, micro), p->rows_count - 1, &pass));
    for (uint32_t point = 0; point < front->count; point++)
        for (uint32_t slice = 0; slice < RN_PLAN_SLICES; slice++) {
            rn_variant v = {.micro = micro, .point = point, .rows = rows, .slice = slice};
            double seconds = b->total_seconds[slice] + front->seconds[point];
            v.bound_seconds = rn_planner_total(p, &v, seconds, b->update_seconds) +
                              passes * pass->total_seconds[slice];
            if (!allows_point(p, front, point)) continue;
            for (v.cut = 0; allows_slice(p, b, slice) && v.cut < p->cut_count; v.cut++)
                insert_demands(p, v);
        }
    return RN_OK;
}

static rn_status list_variants(rn_planner *p) {
    size_t room = (size_t)p->micro_count * p->rows_count * RN_PLAN_POINTS * RN_PLAN_SLICES *
                  p->cut_count * (has_offloads(p) ? RN_SHARE_COUNT * RN_SHARE_COUNT : 1) *
                  RN_PLAN_DEMANDS;
    RN_TRY(rn_arena_array(&p->memory, room, sizeof *p->variants, (void **)&p->variants));
    for (uint32_t m = 0; m < p->micro_count; m++)
        for (uint32_t r = 0; r < p->rows_count; r++)
            RN_TRY(list_variants_of(p, m, r));
    return RN_OK;
}

// ---- what may vary ------------------------------------------------------------------------------

static rn_status check_wanted(const rn_planner *p, bool allowed) {
    uint32_t wanted = p->options.micro_batches, most = p->recipe->max_micro_batches;
    if (wanted <= 1) return RN_OK;
    if (most < 2)
        return rn_fail(RN_INVALID, "'%s' cannot be cut into micro-batches", p->recipe->name);
    if (!allowed)
        return rn_hint(rn_fail(RN_INVALID,
                               "micro-batches of '%s' would change its result: it has "
                               "batch statistics",
                               p->recipe->name),
                       "allow lossy moves, or leave them to the planner");
    if (most % wanted == 0) return RN_OK;
    return rn_hint(
        rn_fail(RN_INVALID, "a batch of %u cannot be cut into %u micro-batches", most, wanted),
        "use a number that divides the batch");
}

// Experts can be on demand where a run is for inference and the device's memory is the host's, and
// nobody says what else is to stay or go.
static void find_demand(rn_planner *p) {
    const rn_plan_options *o = &p->options;
    const rn_case *c = plain_case(p, 0);
    bool asked = o->keep || o->offload || o->resident_blocks || o->resident_bytes;
    p->has_demand = c->groups.has_stacks && !c->trains && !p->caps->own_memory && !p->rule.values &&
                    !p->rule.suffix && !p->rule.ring_bytes && !asked &&
                    o->experts != RN_EXPERTS_NEVER;
}

// The numbers into which the batch can be cut evenly: powers of two, and single samples. Exact sums
// have one order whatever the budget: that of a tree of single samples, each computed alone.
static rn_status list_micro(rn_planner *p) {
    uint32_t most = p->recipe->max_micro_batches, wanted = p->options.micro_batches;
    bool allowed = !p->recipe->batch_statistics || (p->options.allow_lossy && !p->options.exact);
    RN_TRY(check_wanted(p, allowed));
    RN_TRY(rn_arena_array(&p->memory, 34, sizeof *p->micro, (void **)&p->micro));
    if (p->options.exact && allowed && most > 1) wanted = most;
    if (wanted) {
        p->micro[p->micro_count++] = wanted;
        return RN_OK;
    }
    p->micro[p->micro_count++] = 1;
    for (uint32_t m = 2; allowed && m < most && most % m == 0; m *= 2)
        p->micro[p->micro_count++] = m;
    if (allowed && most > 1) p->micro[p->micro_count++] = most;
    return RN_OK;
}

// Weights above the first size are rare (the head of a large vocabulary) and would make all slots
// large. Slices of the second are as small as a read may be without losing speed; of a large model
// larger ones, so that there are not many more nodes than it has anyway. In training all weights
// are whole, and in the phases of a program, which know each other's by name.
static rn_status list_cuts(rn_planner *p) {
    const rn_case *c = plain_case(p, 0);
    uint64_t least = rn_max_u64(8 << 20, c->group_bytes / 256), largest = 0;
    uint64_t sizes[RN_PLAN_CUTS - 1] = {4 * least, least};
    p->cuts[p->cut_count++] = 0;
    if (c->trains || p->rule.values) return RN_OK;
    RN_TRY(rn_graph_find_sliceable(c->graph, &largest));
    for (uint32_t i = 0; i < RN_PLAN_CUTS - 1; i++)
        if (largest > sizes[i]) p->cuts[p->cut_count++] = sizes[i];
    return RN_OK;
}

// ---- the frugal one -----------------------------------------------------------------------------

// Looked for at the corners only, because a refusal must be quick: the fewest rows, the finest
// slices, everything recomputed or nothing, any number of micro-batches (more of them hold fewer
// activations, but all gradients), any shares on the host, which may have little room.
static bool is_corner(const rn_planner *p, const rn_variant *v, const rn_binding *b) {
    uint32_t finest = 0;
    for (uint32_t s = 0; s < RN_PLAN_SLICES; s++)
        if (b->slices[s]) finest = s;
    return v->rows == p->rows_count - 1 && v->slice == finest &&
           (v->point == 0 || v->point == p->fronts[v->micro].count - 1);
}

static bool is_corner_at(const rn_planner *p, uint32_t variant) {
    const rn_variant *v = &p->variants[variant];
    return is_corner(p, v, &plain_case(p, v->micro)->bindings[v->rows]);
}

// The one that looks best before it is placed: with it tried first, few of those that differ in
// their offloads only are placed at all.
static rn_status find_promising(rn_planner *p, uint32_t *out) {
    uint64_t fewest = UINT64_MAX;
    *out = 0;
    for (uint32_t i = 0; i < p->variant_count; i++) {
        rn_variant *v = &p->variants[i];
        if (!is_corner_at(p, i)) continue;
        RN_TRY(rn_planner_peak(p, v));
        if (v->always_bytes + v->peak_bytes[0] >= fewest) continue;
        fewest = v->always_bytes + v->peak_bytes[0];
        *out = i;
    }
    return RN_OK;
}

static rn_status find_frugal(rn_planner *p) {
    uint32_t first = 0;
    p->frugal = (rn_candidate){.variant = RN_NO_STEP, .planned_bytes = UINT64_MAX};
    p->least_host_bytes = UINT64_MAX;
    if (has_offloads(p)) {
        RN_TRY(find_promising(p, &first));
        RN_TRY(rn_choose_frugal(p, first, &p->frugal));
    }
    for (uint32_t i = 0; i < p->variant_count; i++)
        if (is_corner_at(p, i)) RN_TRY(rn_choose_frugal(p, i, &p->frugal));
    return RN_OK;
}

// ---- life ---------------------------------------------------------------------------------------

static rn_status fill_planner(rn_planner *p) {
    RN_TRY(list_micro(p));
    p->case_count = p->micro_count * RN_PLAN_DEMANDS * RN_PLAN_CUTS * RN_PLAN_POINTS;
    RN_TRY(rn_arena_array(&p->memory, p->case_count, sizeof *p->cases, (void **)&p->cases));
    RN_TRY(rn_arena_array(&p->memory, p->micro_count, sizeof *p->fronts, (void **)&p->fronts));
    for (uint32_t m = 0; m < p->micro_count; m++)
        RN_TRY(open_case(p, m, false, 0, 0));
    find_demand(p);
    RN_TRY(rn_constraints_check(&p->options, plain_case(p, 0), p->rule.values));
    RN_TRY(list_cuts(p));
    RN_TRY(list_variants(p));
    return find_frugal(p);
}

rn_status rn_planner_init(const rn_recipe *recipe, const rn_device_caps *caps,
                          const rn_plan_options *options, const rn_residency_rule *rule,
                          rn_planner *out) {
    *out = (rn_planner){.recipe = recipe, .caps = caps};
    if (options) out->options = *options;
    if (rule) out->rule = *rule;
    rn_arena_init(&out->memory, FROM, 0);
    return fill_planner(out);
}

void rn_planner_destroy(rn_planner *p) {
    for (uint32_t i = 0; p->cases && i < p->case_count; i++)
        if (p->cases[i].is_open) close_case(&p->cases[i]);
    rn_arena_free_all(&p->memory);
}

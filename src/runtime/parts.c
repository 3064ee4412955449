// parts.c — some blocks of a run, apart from the others, with their weights brought in time.
//
//     copy     [ group 0 ]      [ group 1 ]      [ group 0 of the next run ...
//     compute            ▶ piece │       ▶ piece │ pieces that stay
//     caller   part 0 ────────────▶ part 1 ──────────────────────▶
//
// A part is cut into *pieces*: each block with weights that do not stay is one, and so is what lies
// between them. The weights of such a block are a *group*. Whole runs use the plan's ring slot by
// slot; these runs have it to themselves as a few *places*, each for a whole block: group g lies in
// place g % places, and when its piece is done, the copy queue fills the place with the group that
// is next there, in this run or the following. Whoever runs next, a part or a whole run, finds
// what the other has left in the ring to be none of its own, and begins anew.
//
// A piece can be recorded: what it waits for, and what waits for it, is outside.
#include "runtime/session.h"

#include "base/checked.h"

// ---- cutting ------------------------------------------------------------------------------------

static bool is_streamed(const rn_plan *plan, uint32_t unit) {
    return unit != RN_NO_USE && !plan->units[unit].resident;
}

static rn_status refuse(const rn_session *session, uint32_t block, const char *why) {
    return rn_fail(RN_UNSUPPORTED, "block '%s' of '%s' cannot be run apart: %s",
                   rn_graph_block_name(session->plan->graph, block), session->plan->name, why);
}

// Weights that do not stay come with their own block.
static rn_status check_weights(const rn_session *session, const rn_node *node) {
    const rn_plan *plan = session->plan;
    for (uint32_t i = 0; i < node->input_count; i++) {
        uint32_t unit = plan->places[node->inputs[i]].unit;
        if (node->inputs[i] != RN_NO_VALUE && is_streamed(plan, unit) &&
            plan->units[unit].block != node->block)
            return refuse(session, node->block, "it reads streamed weights of another");
    }
    return RN_OK;
}

static rn_status add_group(rn_session_parts *p, const rn_session *session, uint32_t block) {
    for (uint32_t g = 0; g < p->group_count; g++)
        if (p->groups[g] == block) return refuse(session, block, "others run among its nodes");
    p->groups[p->group_count++] = block;
    return RN_OK;
}

static rn_status begin_piece(rn_session *session, uint32_t step, uint32_t block, bool streams) {
    rn_session_parts *p = &session->parts;
    p->pieces[p->piece_count++] =
        (rn_session_piece){.first_step = step, .group = streams ? p->group_count : RN_NO_GROUP};
    return streams ? add_group(p, session, block) : RN_OK;
}

static rn_status cut_part(rn_session *session, rn_session_part *part) {
    const rn_plan *plan = session->plan;
    rn_session_parts *p = &session->parts;
    uint32_t last = UINT32_MAX; // block
    bool streams = false;
    part->first_piece = p->piece_count;
    for (uint32_t i = part->at.first_step; i < part->at.end_step; i++) {
        if (plan->steps[i].kind != RN_STEP_COMPUTE) continue;
        const rn_node *node = rn_graph_node(plan->graph, plan->steps[i].node);
        RN_TRY(check_weights(session, node));
        if (node->block == last) continue;
        last = node->block;
        bool before = streams, is_first = p->piece_count == part->first_piece;
        streams = rn_plan_block_room(plan, last) > 0;
        if (is_first || before || streams) RN_TRY(begin_piece(session, i, last, streams));
    }
    part->end_piece = p->piece_count;
    for (uint32_t i = part->first_piece; i < part->end_piece; i++)
        p->pieces[i].end_step =
            i + 1 < part->end_piece ? p->pieces[i + 1].first_step : part->at.end_step;
    return RN_OK;
}

static rn_status check_options(const rn_session *session) {
    const rn_session_options *o = &session->options;
    if (o->part_rows == 0 || o->part_rows > session->plan->summary.rows)
        return rn_fail(RN_INVALID, "parts of runs of %llu rows: the plan is for 1 to %llu",
                       (unsigned long long)o->part_rows,
                       (unsigned long long)session->plan->summary.rows);
    for (uint32_t i = 1; i < o->part_count; i++)
        if (o->parts[i].first < o->parts[i - 1].end)
            return rn_fail(RN_INVALID, "part %u of a run begins before the one before it ends", i);
    return RN_OK;
}

// ---- places -------------------------------------------------------------------------------------

static void place_units(rn_session *session, uint32_t group) {
    const rn_plan *plan = session->plan;
    rn_session_parts *p = &session->parts;
    uint64_t offset = plan->ring_offset + group % p->place_count * p->place_bytes;
    for (uint32_t u = 0; u < plan->unit_count; u++) {
        if (plan->units[u].block != p->groups[group] || plan->units[u].resident) continue;
        p->unit_offset[u] = offset;
        offset += rn_plan_unit_room(plan, u);
    }
}

static rn_status make_places(rn_session *session) {
    const rn_plan *plan = session->plan;
    rn_session_parts *p = &session->parts;
    void *offsets = NULL;
    if (p->group_count == 0) return RN_OK;
    for (uint32_t g = 0; g < p->group_count; g++)
        p->place_bytes = rn_max_u64(p->place_bytes, rn_plan_block_room(plan, p->groups[g]));
    uint64_t room = plan->ring_bytes / p->place_bytes;
    if (!plan->from_host) return refuse(session, p->groups[0], "its weights are read from disk");
    if (room == 0) return refuse(session, p->groups[0], "the ring is smaller than its weights");
    uint64_t wanted = session->options.part_places ? session->options.part_places : RN_WEAVE_PLACES;
    p->place_count =
        (uint32_t)rn_min_u64(rn_min_u64(room, RN_WEAVE_PLACES), rn_min_u64(wanted, p->group_count));
    RN_TRY(rn_arena_array(&session->memory, plan->unit_count, sizeof(uint64_t), &offsets));
    p->unit_offset = offsets;
    for (uint32_t u = 0; u < plan->unit_count; u++)
        p->unit_offset[u] = RN_NO_OFFSET;
    for (uint32_t g = 0; g < p->group_count; g++)
        place_units(session, g);
    return RN_OK;
}

// ---- life ---------------------------------------------------------------------------------------

void rn_session_forget_places(rn_session *session) {
    for (uint32_t i = 0; i < RN_WEAVE_PLACES; i++)
        session->parts.holds[i] = RN_NO_GROUP;
}

void rn_session_renew_places(rn_session *session) {
    for (uint32_t i = 0; i < RN_WEAVE_PLACES; i++) {
        rn_fence_free(&session->parts.full[i]);
        rn_fence_free(&session->parts.free[i]);
        rn_fence_init(&session->parts.full[i]);
        rn_fence_init(&session->parts.free[i]);
    }
    rn_session_forget_places(session);
}

rn_status rn_session_prepare_parts(rn_session *session) {
    const rn_session_options *o = &session->options;
    rn_session_parts *p = &session->parts;
    void *parts = NULL, *pieces = NULL, *groups = NULL;
    uint32_t blocks = rn_graph_block_count(session->plan->graph);
    if (o->part_count == 0) return RN_OK;
    RN_TRY(check_options(session));
    RN_TRY(rn_arena_array(&session->memory, o->part_count, sizeof *p->list, &parts));
    RN_TRY(rn_arena_array(&session->memory, session->plan->step_count, sizeof *p->pieces, &pieces));
    RN_TRY(rn_arena_array(&session->memory, blocks, sizeof *p->groups, &groups));
    p->list = parts;
    p->pieces = pieces;
    p->groups = groups;
    for (; p->count < o->part_count; p->count++) {
        rn_session_part *part = &p->list[p->count];
        const rn_block_range *range = &o->parts[p->count];
        RN_TRY(rn_plan_find_part(session->plan, range->first, range->end, &part->at));
        RN_TRY(cut_part(session, part));
    }
    return make_places(session);
}

// ---- bringing -----------------------------------------------------------------------------------

static void bring(rn_session *session, uint32_t group) {
    const rn_plan *plan = session->plan;
    rn_session_parts *p = &session->parts;
    uint32_t place = group % p->place_count;
    rn_queue_wait(session->copy, &p->free[place]);
    for (uint32_t u = 0; u < plan->unit_count; u++) {
        if (plan->units[u].block != p->groups[group] || plan->units[u].resident) continue;
        rn_session_profile_upload(session, plan->use_count + u, true);
        rn_queue_copy_in(session->copy, session->base + p->unit_offset[u],
                         session->copies + session->copy_offset[u], plan->units[u].bytes);
        rn_session_profile_upload(session, plan->use_count + u, false);
    }
    rn_queue_signal(session->copy, &p->full[place]);
    p->holds[place] = group;
    session->primed = false; // the ring is not as the next whole run would have it
}

void rn_session_bring_first(rn_session *session) {
    rn_session_parts *p = &session->parts;
    for (uint32_t place = 0; place < p->place_count; place++)
        if (p->holds[place] == RN_NO_GROUP) bring(session, place);
}

static void await(rn_session *session, uint32_t group) {
    rn_session_parts *p = &session->parts;
    uint32_t place = group % p->place_count;
    if (p->holds[place] != group) bring(session, group);
    rn_session_profile_wait(session, RN_WAIT_WEIGHTS);
    rn_queue_wait(session->compute, &p->full[place]);
    rn_session_profile_wait(session, RN_WAIT_ENDS);
}

static void release(rn_session *session, uint32_t group) {
    rn_session_parts *p = &session->parts;
    uint32_t place = group % p->place_count, next = group + p->place_count;
    rn_queue_signal(session->compute, &p->free[place]);
    bring(session, next < p->group_count ? next : place);
}

// ---- a run --------------------------------------------------------------------------------------

static rn_status submit_piece(rn_session *session, uint64_t rows) {
    const rn_plan_part *at = &session->part->at;
    if (session->from_step == at->first_step) {
        rn_session_bring_inputs(session, rows);
        if (at->in == RN_NO_VALUE && !session->ports) RN_TRY(rn_session_gather(session, rows));
        rn_session_bring_value(session, at->in, rows);
    }
    rn_session_walk(session, true);
    if (session->to_step != at->end_step) return RN_OK;
    if (at->out == RN_NO_VALUE)
        rn_session_fetch_outputs(session, rows);
    else
        rn_session_fetch_value(session, at->out, rows);
    return RN_OK;
}

rn_status rn_session_submit_part(rn_session *session, uint64_t rows) {
    const rn_session_parts *p = &session->parts;
    for (uint32_t i = session->part->first_piece; i < session->part->end_piece; i++) {
        const rn_session_piece *piece = &p->pieces[i];
        bool done = false;
        session->from_step = piece->first_step;
        session->to_step = piece->end_step;
        if (piece->group != RN_NO_GROUP) await(session, piece->group);
        RN_TRY(rn_session_replay(session, rows, submit_piece, &done));
        if (!done) RN_TRY(submit_piece(session, rows));
        if (piece->group != RN_NO_GROUP) release(session, piece->group);
    }
    return RN_OK;
}

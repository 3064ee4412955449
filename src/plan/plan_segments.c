// plan_segments.c — consecutive blocks of a run, apart from the others: what enters and leaves, and
// where their weights lie.
//
//     blocks   0 ─ 1 ─┊─ 2 ─ 3 ─┊─ 4 ─ ...      one value crosses at either end
//
// A segment is cut into *chunks*: each block with weights that do not stay is one, and so is what
// lies between them.
#include "plan/plan.h"

#include "base/checked.h"

static uint32_t block_of(const rn_plan *plan, uint32_t step) {
    return rn_graph_node(plan->graph, plan->steps[step].node)->block;
}

static bool computes(const rn_plan *plan, uint32_t step) {
    return plan->steps[step].kind == RN_STEP_COMPUTE;
}

// The first step of this block or a later one.
static uint32_t find_step(const rn_plan *plan, uint32_t block) {
    uint32_t step = 0;
    while (step < plan->step_count && (!computes(plan, step) || block_of(plan, step) < block))
        step++;
    return step;
}

static rn_status refuse(const rn_plan *plan, uint32_t block, const char *why) {
    return rn_fail(RN_UNSUPPORTED, "no segment of a run of '%s' can begin or end at block '%s': %s",
                   plan->name, rn_graph_block_name(plan->graph, block), why);
}

// Nothing of the blocks before comes behind the step, and all that is gathered is used before it.
static rn_status check_cut(const rn_plan *plan, uint32_t block, uint32_t first) {
    for (uint32_t i = first; i < plan->step_count; i++) {
        if (!computes(plan, i)) continue;
        if (block_of(plan, i) < block) return refuse(plan, block, "others run among its nodes");
        if (rn_plan_rows_of(plan, plan->steps[i].node))
            return refuse(plan, block, "rows are gathered for it");
    }
    return first ? RN_OK : refuse(plan, block, "it is the first");
}

// Whether the value is made before; inputs, weights, states and constants are there anyway.
static bool crosses(const rn_plan *plan, rn_value value, uint32_t block) {
    if (value == RN_NO_VALUE) return false;
    uint32_t producer = rn_graph_value(plan->graph, value)->producer;
    return producer != RN_NO_NODE && rn_graph_node(plan->graph, producer)->block < block;
}

static rn_status find_value(const rn_plan *plan, uint32_t block, uint32_t first, rn_value *out) {
    *out = RN_NO_VALUE;
    for (uint32_t i = first; i < plan->step_count; i++) {
        if (!computes(plan, i)) continue;
        const rn_node *node = rn_graph_node(plan->graph, plan->steps[i].node);
        for (uint32_t k = 0; k < node->input_count; k++) {
            rn_value value = node->inputs[k];
            if (!crosses(plan, value, block) || value == *out) continue;
            if (*out != RN_NO_VALUE) return refuse(plan, block, "it reads more than one value");
            *out = value;
        }
    }
    return *out != RN_NO_VALUE ? RN_OK : refuse(plan, block, "it reads nothing of those before");
}

static rn_status cut(const rn_plan *plan, uint32_t block, uint32_t *out_step, rn_value *out_value) {
    *out_step = find_step(plan, block);
    RN_TRY(check_cut(plan, block, *out_step));
    return find_value(plan, block, *out_step, out_value);
}

// Where a run ends, every output is one of the part's own, but for what it is handed.
static rn_status check_outputs(const rn_plan *plan, uint32_t block, rn_value handed) {
    for (rn_value v = 1; v <= rn_graph_value_count(plan->graph); v++)
        if (v != handed && rn_graph_value(plan->graph, v)->role == RN_ROLE_OUTPUT &&
            crosses(plan, v, block))
            return refuse(plan, block, "an output is made before it");
    return RN_OK;
}

rn_status rn_plan_find_segment(const rn_plan *plan, uint32_t first, uint32_t end, rn_segment *out) {
    uint32_t blocks = rn_graph_block_count(plan->graph);
    *out = (rn_segment){.end_step = plan->step_count};
    if (first >= end || end > blocks || plan->summary.micro_batches > 1)
        return rn_fail(RN_INVALID, "blocks %u to %u are no segment of a run of '%s'", first, end,
                       plan->name);
    if (first) RN_TRY(cut(plan, first, &out->first_step, &out->in));
    if (end < blocks) return cut(plan, end, &out->end_step, &out->out);
    return first ? check_outputs(plan, first, out->in) : RN_OK;
}

// ---- chunks and loads ---------------------------------------------------------------------------

static bool is_streamed(const rn_plan *plan, uint32_t group) {
    return group != RN_NO_LOAD && !plan->groups[group].resident;
}

uint64_t rn_plan_group_room(const rn_plan *plan, uint32_t group) {
    return rn_round_up(plan->groups[group].bytes, RN_PAGE_BYTES);
}

// What of a block does not stay on the device, weight group after weight group; 0: all does.
static uint64_t load_bytes(const rn_plan *plan, uint32_t block) {
    uint64_t bytes = 0;
    for (uint32_t u = 0; u < plan->group_count; u++)
        if (plan->groups[u].block == block && !plan->groups[u].resident)
            bytes += rn_plan_group_room(plan, u);
    return bytes;
}

static rn_status refuse_load(const rn_plan *plan, uint32_t block, const char *why) {
    return rn_fail(RN_UNSUPPORTED, "block '%s' of '%s' cannot be run apart: %s",
                   rn_graph_block_name(plan->graph, block), plan->name, why);
}

// Weights that do not stay come with their own block.
static rn_status check_weights(const rn_plan *plan, const rn_node *node) {
    for (uint32_t i = 0; i < node->input_count; i++) {
        uint32_t group = plan->places[node->inputs[i]].group;
        if (node->inputs[i] != RN_NO_VALUE && is_streamed(plan, group) &&
            plan->groups[group].block != node->block)
            return refuse_load(plan, node->block, "it reads streamed weights of another");
    }
    return RN_OK;
}

static rn_status begin_chunk(const rn_plan *plan, rn_segment_table *t, uint32_t step,
                             uint32_t block, bool streams) {
    t->chunks[t->chunk_count++] =
        (rn_segment_chunk){.first_step = step, .load = streams ? t->load_count : RN_NO_LOAD};
    for (uint32_t i = 0; streams && i < t->load_count; i++)
        if (t->loads[i] == block) return refuse_load(plan, block, "others run among its nodes");
    if (streams) t->loads[t->load_count++] = block;
    return RN_OK;
}

static rn_status cut_chunks(const rn_plan *plan, rn_segment_table *t, rn_segment *segment) {
    uint32_t last = UINT32_MAX; // block
    bool streams = false;
    segment->first_chunk = t->chunk_count;
    for (uint32_t i = segment->first_step; i < segment->end_step; i++) {
        if (!computes(plan, i)) continue;
        const rn_node *node = rn_graph_node(plan->graph, plan->steps[i].node);
        RN_TRY(check_weights(plan, node));
        if (node->block == last) continue;
        last = node->block;
        bool before = streams, is_first = t->chunk_count == segment->first_chunk;
        streams = load_bytes(plan, last) > 0;
        if (is_first || before || streams) RN_TRY(begin_chunk(plan, t, i, last, streams));
    }
    segment->end_chunk = t->chunk_count;
    for (uint32_t i = segment->first_chunk; i < segment->end_chunk; i++)
        t->chunks[i].end_step =
            i + 1 < segment->end_chunk ? t->chunks[i + 1].first_step : segment->end_step;
    return RN_OK;
}

// ---- slots --------------------------------------------------------------------------------------

static void place_load(const rn_plan *plan, rn_segment_table *t, uint32_t load) {
    uint64_t offset = plan->ring_offset + load % t->slot_count * t->slot_bytes;
    for (uint32_t u = 0; u < plan->group_count; u++) {
        if (plan->groups[u].block != t->loads[load] || plan->groups[u].resident) continue;
        t->group_offset[u] = offset;
        offset += rn_plan_group_room(plan, u);
    }
}

static rn_status place_loads(rn_arena *memory, const rn_plan *plan, uint32_t slots,
                             rn_segment_table *t) {
    if (t->load_count == 0) return RN_OK;
    for (uint32_t i = 0; i < t->load_count; i++)
        t->slot_bytes = rn_max_u64(t->slot_bytes, load_bytes(plan, t->loads[i]));
    uint64_t room = plan->ring_bytes / t->slot_bytes;
    if (!plan->from_host) return refuse_load(plan, t->loads[0], "its weights are read from disk");
    if (room == 0) return refuse_load(plan, t->loads[0], "the ring is smaller than its weights");
    uint64_t wanted = slots ? slots : RN_INTERLEAVE_SLOTS;
    t->slot_count = (uint32_t)rn_min_u64(rn_min_u64(room, RN_INTERLEAVE_SLOTS),
                                         rn_min_u64(wanted, t->load_count));
    RN_TRY(rn_arena_array(memory, plan->group_count, sizeof *t->group_offset,
                          (void **)&t->group_offset));
    for (uint32_t u = 0; u < plan->group_count; u++)
        t->group_offset[u] = RN_NO_OFFSET;
    for (uint32_t i = 0; i < t->load_count; i++)
        place_load(plan, t, i);
    return RN_OK;
}

// ---- all of it ----------------------------------------------------------------------------------

static rn_status check_ranges(const rn_plan *plan, const rn_block_range *ranges, uint32_t count,
                              uint64_t rows) {
    if (rows == 0 || rows > plan->summary.rows)
        return rn_fail(RN_INVALID, "segments of runs of %llu rows: the plan is for 1 to %llu",
                       (unsigned long long)rows, (unsigned long long)plan->summary.rows);
    for (uint32_t i = 1; i < count; i++)
        if (ranges[i].first < ranges[i - 1].end)
            return rn_fail(RN_INVALID, "segment %u of a run begins before the one before it ends",
                           i);
    return RN_OK;
}

rn_status rn_plan_cut_segments(rn_arena *memory, const rn_plan *plan, const rn_block_range *ranges,
                               uint32_t count, uint64_t rows, uint32_t slots,
                               rn_segment_table *out) {
    uint32_t blocks = rn_graph_block_count(plan->graph);
    *out = (rn_segment_table){.rows = rows};
    if (count == 0) return RN_OK;
    RN_TRY(check_ranges(plan, ranges, count, rows));
    RN_TRY(rn_arena_array(memory, count, sizeof *out->list, (void **)&out->list));
    // A chunk begins with a block that is streamed, or behind one, or with the segment.
    size_t chunks = 2 * (size_t)blocks + count + 1;
    RN_TRY(rn_arena_array(memory, chunks, sizeof *out->chunks, (void **)&out->chunks));
    RN_TRY(rn_arena_array(memory, blocks, sizeof *out->loads, (void **)&out->loads));
    for (; out->count < count; out->count++) {
        rn_segment *segment = &out->list[out->count];
        const rn_block_range *range = &ranges[out->count];
        RN_TRY(rn_plan_find_segment(plan, range->first, range->end, segment));
        RN_TRY(cut_chunks(plan, out, segment));
    }
    return place_loads(memory, plan, slots, out);
}

// ---- what crosses -------------------------------------------------------------------------------

static uint64_t crossing_bytes(const rn_plan *plan, rn_value value, uint64_t rows) {
    if (value == RN_NO_VALUE) return 0;
    const rn_value_info *info = rn_graph_value(plan->graph, value);
    rn_tensor tensor = {.dtype = info->dtype, .layout = RN_LAYOUT_PLAIN, .shape = info->shape};
    if (tensor.shape.rank && tensor.shape.dims[0] == RN_ROWS) tensor.shape.dims[0] = rows;
    return rn_round_up(rn_tensor_bytes(&tensor), 64);
}

// One buffer for all: what enters has been taken when what leaves comes.
uint64_t rn_plan_segments_bytes(const rn_plan *plan, const rn_segment_table *t) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < t->count && plan->caps.own_memory; i++) {
        most = rn_max_u64(most, crossing_bytes(plan, t->list[i].in, t->rows));
        most = rn_max_u64(most, crossing_bytes(plan, t->list[i].out, t->rows));
    }
    return most;
}

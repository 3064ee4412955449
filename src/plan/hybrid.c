// hybrid.c — hybrid execution: the first blocks of short runs on the CPU, and on the link beside
// it.
//
//     a prompt   link ═ weights ═▶ device: block 0 ... m-1 ─ m ... ─ head
//     a token    host: 0 1 ── x ──▶ device: 2 ── x ──▶ host: 3 4 ── x ──▶ device: 5 ... head
//                link ══════════ 2 ══════▶            ════════ 5 ══════▶
//
// Weights that do not fit the device lie on the host. For a prompt they are worth their way over
// the link; for a token the CPU reads them faster where they are than the link could bring them.
// But the link can bring some while the CPU computes others: so they are dealt out to both
// (interleave.h), if the device has room for a whole block's. Where it has not, or that is no gain,
// the CPU computes all of them. The times of all ways are predicted, for the typical job, and the
// best one is taken, or none.
//
// The plan is then the device's, with segments; plan->host is the CPU's: a graph of its blocks
// (rn_graph_keep_blocks), an arena, segments of its own. The CPU rounds otherwise than a device
// does (activations of quantised weights to int8): what is said agrees to rounding, so `exact`
// forbids it.
#include "plan/planner.h"

#include "base/checked.h"
#include "graph/cut.h"
#include "graph/fuse.h"
#include "memory/account.h"
#include "memory/budget.h"

#include <stdio.h>

enum {
    MOST_ROWS = 64, // of a run that may count as short
    SLOTS = 1, // on the device, for blocks that the link brings: a second would cost one of those
               // that stay its own, and that is more than the link's rest is worth
};

typedef struct proposal {
    const rn_recipe *recipe;
    const rn_device_caps *caps, *host_caps;
    const rn_plan_options *options; // the device's
    rn_plan *plan;                  // the device's: what it streams is of the first blocks
    rn_plan *host;                  // the CPU's
    uint32_t blocks;      // of the graph, the first so many lie on the host, which computes them
    uint32_t layers;      // of them, those with a KV cache
    uint32_t interleaved; // of the layers, so many are brought to the device meanwhile
    uint64_t rows;        // of a short run, at most
    bool every_run;       // there are no others
    uint64_t block_bytes; // on the device, of the largest of the first blocks
    uint64_t host_bytes;  // more on the host than the device's plan has there
    double prefill_seconds, decode_seconds; // of the workload's rows; of a run of one row
    double seconds;                         // for the workload
} proposal;

static void drop(proposal *p) {
    rn_plan_destroy(p->plan);
    rn_plan_destroy(p->host);
    p->plan = p->host = NULL;
}

// ---- blocks -------------------------------------------------------------------------------------

// Layers whose cache is made before a block: those that are computed before it.
static uint32_t count_layers(const rn_graph *graph, uint32_t block) {
    uint32_t count = 0;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        count += info->role == RN_ROLE_STATE && info->purpose == RN_PURPOSE_KV &&
                 info->producer == RN_NO_NODE && info->block < block;
    }
    return count;
}

// Whether the block is a layer that the link brings in short runs.
static bool is_interleaved(const proposal *p, uint32_t block) {
    const rn_graph *graph = p->plan->graph;
    uint32_t layer = count_layers(graph, block);
    bool is_layer = count_layers(graph, block + 1) > layer;
    return is_layer && rn_interleave_streams(layer, p->layers, p->interleaved);
}

// The segments of a short run, as they follow each other: one on the host, one on the device, and
// so on.
static uint32_t list_ranges(const proposal *p, rn_block_range *host /* (interleaved + 1) */,
                            rn_block_range *device /* (interleaved + 1) */) {
    uint32_t last = 0; // segment
    bool before = false;
    host[0] = device[0] = (rn_block_range){0};
    for (uint32_t block = 0; block < p->blocks; block++) {
        bool brought = is_interleaved(p, block);
        if (brought && !before) device[last].first = host[last].end = block;
        if (!brought && before) {
            device[last++].end = block;
            host[last].first = block;
        }
        before = brought;
    }
    if (!before) device[last].first = host[last].end = p->blocks;
    device[last].end = rn_graph_block_count(p->plan->graph);
    return last + 1;
}

// The first block behind all that is streamed, and behind a layer at least. False: no segment can
// begin there.
static bool find_blocks(proposal *p) {
    const rn_graph *graph = p->plan->graph;
    uint32_t count = rn_graph_block_count(graph);
    rn_segment segment;
    p->blocks = p->plan->prefix_blocks;
    while (p->blocks < count && count_layers(graph, p->blocks) == 0)
        p->blocks++;
    p->layers = count_layers(graph, p->blocks);
    return rn_plan_find_segment(p->plan, p->blocks, count, &segment) == RN_OK;
}

// ---- plans of both sides ------------------------------------------------------------------------

// A refusal is an answer here, and no event for a profiler.
static rn_status try_plan(const rn_recipe *recipe, const rn_device_caps *caps,
                          const rn_plan_options *options, const rn_residency_rule *rule,
                          rn_plan **out) {
    rn_refusals_mute(true);
    rn_status s = rn_plan_make_alone(recipe, caps, options, rule, out);
    rn_refusals_mute(false);
    return s;
}

// `ring_bytes`: room for what the link brings beside the CPU; so both go through the weights.
static rn_status plan_device(proposal *p, uint64_t host_bytes, uint64_t ring_bytes) {
    rn_plan_options options = *p->options;
    rn_residency_rule rule = {.suffix = true,
                              .host_bytes_second = p->host_caps->memory_bytes_second,
                              .ring_bytes = ring_bytes};
    if (ring_bytes) rule.host_bytes_second += p->caps->link_bytes_second;
    options.host_budget_bytes = host_bytes;
    rn_plan_destroy(p->plan);
    return try_plan(p->recipe, p->caps, &options, &rule, &p->plan);
}

// The recipe of the CPU's blocks.
typedef struct host_recipe {
    const proposal *proposal;
    bool *keep; // (blocks)
} host_recipe;

// Of plain ops, with the vectors that the device's graph has.
static rn_status build_host(void *self, const rn_recipe_options *options, rn_graph **out) {
    const host_recipe *h = self;
    const proposal *p = h->proposal;
    uint32_t fusions =
        p->caps->fusions & RN_FUSE_ALL && p->recipe->widens_vectors ? RN_FUSE_WIDEN : 0;
    rn_graph *graph = NULL;
    *out = NULL;
    rn_status s = rn_recipe_build(p->recipe, fusions, options, &graph);
    if (s == RN_OK) s = rn_graph_keep_blocks(graph, h->keep, out);
    rn_graph_destroy(graph);
    return s;
}

// `workload`: rows of a typical prompt; 0: as the recipe has it.
static rn_status plan_blocks(proposal *p, rn_arena *scratch, uint64_t rows, uint64_t workload) {
    host_recipe self = {.proposal = p};
    rn_recipe recipe = *p->recipe;
    RN_TRY(rn_arena_array(scratch, rn_graph_block_count(p->plan->graph), sizeof *self.keep,
                          (void **)&self.keep));
    for (uint32_t block = 0; block < p->blocks; block++)
        self.keep[block] = !is_interleaved(p, block);
    recipe.self = &self;
    recipe.build = build_host;
    recipe.destroy = NULL;
    recipe.rows = rows;
    if (workload) recipe.workload_rows = workload;
    rn_plan_options options = {.effort = p->options->effort};
    return try_plan(&recipe, p->host_caps, &options, NULL, &p->host);
}

static rn_status plan_host(proposal *p, uint64_t rows, uint64_t workload) {
    rn_arena scratch;
    rn_plan_destroy(p->host);
    p->host = NULL;
    rn_arena_init(&scratch, RN_HOST_OTHER, 0);
    rn_status s = plan_blocks(p, &scratch, rows, workload);
    rn_arena_free_all(&scratch);
    return s;
}

// Of how many rows a run may be so that the CPU has done its blocks before the link would have
// brought all of them. Its time bends upwards, from what memory takes to what arithmetic takes; so
// between one row and the most it is at most the straight line.
static uint64_t count_rows(const proposal *p, uint64_t most) {
    const rn_plan_summary *host = &p->host->summary;
    double link = (double)p->plan->summary.streamed_bytes / p->plan->caps.link_bytes_second;
    double one = host->decode_seconds, all = host->prefill_seconds;
    if (all <= link || most <= 1) return most;
    if (one >= link) return 1;
    return 1 + (uint64_t)((link - one) / (all - one) * (double)(most - 1));
}

// ---- segments -----------------------------------------------------------------------------------

static rn_status cut_segments(proposal *p, rn_arena *scratch) {
    size_t most = (size_t)p->interleaved + 1;
    rn_block_range *host, *device;
    RN_TRY(rn_arena_array(scratch, most, sizeof *host, (void **)&host));
    RN_TRY(rn_arena_array(scratch, most, sizeof *device, (void **)&device));
    uint32_t count = list_ranges(p, host, device);
    // The host's graph ends with its last segment.
    host[count - 1].end = rn_graph_block_count(p->host->graph);
    RN_TRY(rn_plan_cut_segments(&p->host->memory, p->host, host, count, p->rows, 0,
                                &p->host->segments));
    return rn_plan_cut_segments(&p->plan->memory, p->plan, device, count, p->rows, SLOTS,
                                &p->plan->segments);
}

// What of the host is taken for the CPU's part, and whether there is room for it beside what the
// device's part takes.
static rn_status count_host(proposal *p, bool *out_fits) {
    uint64_t limit = p->options->host_budget_bytes, tables = 0;
    rn_arena scratch;
    p->rows = rn_min_u64(p->rows, p->host->summary.rows); // its plan may prefer several short runs
    rn_arena_init(&scratch, RN_HOST_OTHER, 0);
    rn_status s = cut_segments(p, &scratch);
    rn_arena_free_all(&scratch);
    RN_TRY(s);
    if (p->options->host_with_reserve) tables = rn_plan_table_bytes(p->host->graph);
    p->host_bytes =
        p->host->summary.planned_bytes + rn_plan_segments_bytes(p->plan, &p->plan->segments);
    *out_fits = limit == 0 || limit == RN_NO_LIMIT ||
                p->plan->summary.host_bytes + p->host_bytes + tables <= limit;
    return RN_OK;
}

// ---- the CPU computes all of them ---------------------------------------------------------------

static void predict(proposal *p, double prefill_seconds, double decode_seconds) {
    p->prefill_seconds = prefill_seconds;
    p->decode_seconds = decode_seconds;
    p->seconds = prefill_seconds + (double)p->plan->summary.decode_steps * decode_seconds;
}

static double add_pass(const proposal *p) {
    return p->host->summary.decode_seconds + p->plan->tail_seconds;
}

// The CPU's plan for runs that are short enough.
static rn_status plan_short(proposal *p, bool *out_fits) {
    uint64_t most = rn_min_u64(p->plan->summary.rows, MOST_ROWS);
    RN_TRY(plan_host(p, most, most));
    p->rows = count_rows(p, most);
    RN_TRY(plan_host(p, p->rows, p->rows));
    RN_TRY(count_host(p, out_fits));
    if (p->plan->summary.host_weight_bytes == 0) *out_fits = false; // prompts would read the disk
    return RN_OK;
}

// Prompts on the device, through the link; tokens on both. *out_fits: the host has room for both
// kinds of copies of the first blocks' weights.
static rn_status propose_short(proposal *p, bool *out_fits) {
    RN_TRY(plan_short(p, out_fits));
    predict(p, p->plan->summary.prefill_seconds, add_pass(p));
    return RN_OK;
}

// All runs on both. The device's plan is made again for what the host has left, so its ring will
// never turn.
static rn_status propose_all(proposal *p, bool *out_fits) {
    uint64_t limit = p->options->host_budget_bytes;
    uint32_t layers = p->layers;
    p->rows = p->plan->summary.rows;
    RN_TRY(plan_host(p, p->rows, 0));
    RN_TRY(count_host(p, out_fits));
    *out_fits = false;
    if (p->host_bytes >= limit) return RN_OK;
    rn_status s = plan_device(p, limit - p->host_bytes, 0);
    if (s == RN_OVER_BUDGET) return RN_OK;
    RN_TRY(s);
    if (!find_blocks(p) || p->layers != layers) return RN_OK;
    p->rows = p->plan->summary.rows;
    p->every_run = true;
    RN_TRY(count_host(p, out_fits));
    predict(p, p->host->summary.prefill_seconds + p->plan->prefill_tail_seconds, add_pass(p));
    return RN_OK;
}

// Of the first blocks, what the largest one takes on the device.
static uint64_t largest_block(const proposal *p) {
    const rn_plan *plan = p->plan;
    uint64_t largest = 0;
    for (uint32_t block = 0; block < p->blocks; block++) {
        uint64_t bytes = 0;
        for (uint32_t u = 0; u < plan->group_count; u++)
            if (plan->groups[u].block == block) bytes += rn_plan_group_room(plan, u);
        largest = rn_max_u64(largest, bytes);
    }
    return largest;
}

// *out_fits: there is a proposal.
static rn_status propose(proposal *p, bool *out_fits) {
    *out_fits = false;
    rn_status s = plan_device(p, p->options->host_budget_bytes, 0);
    if (s == RN_OVER_BUDGET || (s == RN_OK && !find_blocks(p))) return RN_OK;
    RN_TRY(s);
    p->block_bytes = largest_block(p);
    RN_TRY(propose_short(p, out_fits));
    return *out_fits ? RN_OK : propose_all(p, out_fits);
}

// ---- with the link beside the CPU ---------------------------------------------------------------

static uint32_t count_steps(const rn_plan *plan, uint32_t block) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->step_count; i++)
        count += plan->steps[i].kind == RN_STEP_COMPUTE &&
                 rn_graph_node(plan->graph, plan->steps[i].node)->block == block;
    return count;
}

// A layer of a run of one row: on the device it takes what memory takes to bring its weights; the
// CPU's seconds are its file's bytes, for now.
static rn_interleave_block time_layer(const rn_plan *plan, uint32_t block) {
    const rn_device_caps *caps = &plan->caps;
    double link = caps->link_bytes_second; // beside the CPU
    if (caps->link_share > 0 && caps->link_share < 1) link *= caps->link_share;
    rn_interleave_block layer = {.device_seconds = count_steps(plan, block) * caps->step_seconds};
    for (uint32_t u = 0; u < plan->group_count; u++) {
        const rn_plan_group *group = &plan->groups[u];
        if (group->block != block) continue;
        layer.host_seconds += (double)group->file_bytes;
        layer.device_seconds += (double)group->bytes / caps->memory_bytes_second;
        if (!group->resident) layer.link_seconds += (double)group->bytes / link;
    }
    return layer;
}

// The host's plan is of all layers and says how long they take together: each as its bytes are.
static void time_layers(const proposal *p, rn_interleave_block *out /* (layers) */) {
    uint32_t layer = 0;
    double bytes = 0;
    for (uint32_t block = 0; block < p->blocks; block++) {
        if (count_layers(p->plan->graph, block + 1) == layer) continue;
        out[layer] = time_layer(p->plan, block);
        bytes += out[layer++].host_seconds;
    }
    for (uint32_t i = 0; i < layer; i++)
        out[i].host_seconds *= p->host->summary.decode_seconds / bytes;
}

// How many layers the link brings, and how long a run of one row takes then.
static rn_status deal_layers(proposal *p, double *out_seconds) {
    double share = p->host_caps->beside_link;
    rn_interleave deal = {.count = p->layers,
                          .slots = SLOTS,
                          .tail_seconds = p->plan->tail_seconds,
                          .host_share = share > 0 && share < 1 ? share : 1};
    rn_arena scratch;
    void *layers = NULL;
    RN_TRY(plan_host(p, 1, 1));
    rn_arena_init(&scratch, RN_HOST_OTHER, 0);
    rn_status s = rn_arena_array(&scratch, p->layers, sizeof(rn_interleave_block), &layers);
    if (s == RN_OK) {
        time_layers(p, layers);
        deal.blocks = layers;
        p->interleaved = rn_interleave_deal(&deal);
        *out_seconds = rn_interleave_seconds(&deal, p->interleaved);
    }
    rn_arena_free_all(&scratch);
    return s;
}

static rn_status propose_interleaved(proposal *p, bool *out_fits) {
    double decode_seconds = 0;
    *out_fits = false;
    rn_status s = plan_device(p, p->options->host_budget_bytes, SLOTS * p->block_bytes);
    if (s == RN_OVER_BUDGET || (s == RN_OK && !find_blocks(p))) return RN_OK;
    RN_TRY(s);
    if (!p->plan->from_host || p->plan->ring_bytes < SLOTS * largest_block(p)) return RN_OK;
    RN_TRY(deal_layers(p, &decode_seconds));
    if (p->interleaved == 0) return RN_OK;
    RN_TRY(plan_short(p, out_fits));
    predict(p, p->plan->summary.prefill_seconds, decode_seconds);
    return RN_OK;
}

// Takes an interleaved proposal in the place of `p` where that is better. *fits: there is one in
// `p`.
static rn_status interleave(proposal *p, bool *fits) {
    proposal other = {.recipe = p->recipe,
                      .caps = p->caps,
                      .host_caps = p->host_caps,
                      .options = p->options,
                      .block_bytes = p->block_bytes};
    bool is_there = false;
    if (p->block_bytes == 0) return RN_OK;
    rn_status s = propose_interleaved(&other, &is_there);
    if (s == RN_OK && is_there && (!*fits || other.seconds < p->seconds)) {
        proposal worse = *p;
        *p = other;
        other = worse;
        *fits = true;
    }
    drop(&other);
    return s;
}

// ---- the decision -------------------------------------------------------------------------------

// Those in which something is computed.
static uint32_t count_blocks(const rn_graph *graph, uint32_t end) {
    uint32_t count = 0;
    for (uint32_t block = 0; block < end; block++)
        for (uint32_t n = 0; n < rn_graph_node_count(graph); n++)
            if (rn_graph_node(graph, n)->block == block) {
                count++;
                break;
            }
    return count;
}

static rn_status explain(const proposal *p) {
    const rn_plan_summary *s = &p->plan->summary;
    char brought[80] = "";
    if (p->interleaved)
        snprintf(brought, sizeof brought, ", but for %u that the link brings meanwhile",
                 p->interleaved);
    return rn_plan_add_reason(
        p->plan, "hybrid",
        "in runs of up to %llu rows the CPU computes the first %u blocks from its own memory (%s "
        "of "
        "weights)%s: %s for the workload, not %s by streaming; sums are rounded as the CPU does",
        (unsigned long long)p->rows, s->host_blocks,
        rn_size_format(p->host->summary.purpose_bytes[RN_PURPOSE_WEIGHTS]).text, brought,
        rn_time_format(s->seconds).text, rn_time_format(s->streaming_seconds).text);
}

// Puts the proposal in the place of the plan that only streams.
static rn_status take(proposal *p, rn_plan **plan) {
    rn_plan_summary *s = &p->plan->summary;
    const rn_plan_summary *old = &(*plan)->summary;
    s->smallest_bytes = rn_min_u64(s->smallest_bytes, old->smallest_bytes);
    s->smallest_budget_bytes = rn_min_u64(s->smallest_budget_bytes, old->smallest_budget_bytes);
    s->host_blocks = count_blocks(p->plan->graph, p->blocks);
    s->interleaved_blocks = p->interleaved;
    s->host_rows = p->rows;
    s->decode_seconds = p->decode_seconds;
    s->prefill_seconds = p->prefill_seconds;
    s->seconds = p->seconds;
    s->streaming_seconds = old->seconds;
    s->host_bytes += p->host_bytes;
    s->host_weight_bytes += p->host->summary.purpose_bytes[RN_PURPOSE_WEIGHTS];
    RN_TRY(explain(p));
    p->plan->host = p->host;
    p->plan->every_run = p->every_run;
    rn_plan_destroy(*plan);
    *plan = p->plan;
    p->plan = p->host = NULL;
    return RN_OK;
}

static rn_status explain_streaming(rn_plan *plan, double seconds) {
    return rn_plan_add_reason(plan, "hybrid",
                              "weights are brought to the device: %s for the workload, %s with the "
                              "CPU's help in short runs",
                              rn_time_format(plan->summary.seconds).text,
                              rn_time_format(seconds).text);
}

rn_status rn_plan_make_hybrid(const rn_recipe *recipe, const rn_device_caps *caps,
                              const rn_plan_options *options, rn_plan **plan) {
    proposal p = {
        .recipe = recipe, .caps = caps, .host_caps = options->host_caps, .options = options};
    bool fits = false;
    if (!p.host_caps || !caps->own_memory || (*plan)->summary.streamed_bytes == 0) return RN_OK;
    if ((*plan)->summary.rows == 0 || (*plan)->summary.micro_batches > 1) return RN_OK;
    if (options->exact)
        return rn_plan_add_reason(*plan, "hybrid",
                                  "exact: the CPU, which rounds otherwise, computes no blocks");
    rn_status s = propose(&p, &fits);
    if (s == RN_OK) s = interleave(&p, &fits);
    if (s == RN_OK && fits)
        s = p.seconds < (*plan)->summary.seconds ? take(&p, plan)
                                                 : explain_streaming(*plan, p.seconds);
    drop(&p);
    return s;
}

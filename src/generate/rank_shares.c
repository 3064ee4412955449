// rank_shares.c — several ranks become one generator: the same model and options, a part of the
// model for each, a plan for each part, and one answer for all of them.
//
//     rank 0's text options ─▶ all
//     what each has room for ─▶ rank 0: where to cut ─▶ all
//     each one's plan ─▶ all: load, or none does
#include "generate/rank_part.h"

#include "base/checked.h"
#include "base/sha256.h"
#include "device/device.h"
#include "graph/cut.h"
#include "io/fingerprint.h"
#include "memory/account.h"
#include "memory/budget.h"

#include <ration/ranks.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    CHUNK_ROWS = 512, // of a prompt, in one process
    LEAST_CHUNK = 32,
};

bool rn_generator_has_ranks(const rn_generator_options *options) {
    return rn_comm_size(options->comm) > 1;
}

const rn_rank_share *rn_generator_shares(const rn_generator *g, uint32_t *out_count) {
    *out_count = g->job.shares ? g->job.ranks : 0;
    return g->job.shares;
}

// ---- the same model, the same options -----------------------------------------------------------

static rn_status add_text(void *self, const char *text, size_t bytes) {
    rn_sha256_add(self, text, bytes);
    return RN_OK;
}

// Tensors, and the graph: what of a model's settings is in no tensor is in its attributes.
static rn_status describe(const rn_text_maker *maker, const rn_text_options *text,
                          char out[2 * RN_FINGERPRINT_BYTES]) {
    rn_text_options small = *text;
    rn_graph *graph = NULL;
    rn_sha256 hash;
    uint8_t digest[RN_SHA256_BYTES];
    size_t used = 0;
    if (maker->weights.checkpoint) {
        RN_TRY(rn_checkpoint_fingerprint(maker->weights.checkpoint, out));
        used = RN_FINGERPRINT_BYTES - 1;
    }
    small.context = small.page_tokens = small.rows = small.sequences = small.logit_rows = 1;
    small.pages = 1;
    rn_sha256_begin(&hash);
    RN_TRY(rn_text_maker_build(maker, &small, &graph));
    rn_status s = rn_graph_print(graph, (rn_sink){&hash, add_text});
    rn_graph_destroy(graph);
    rn_sha256_end(&hash, digest);
    rn_sha256_text(digest, out + used);
    return s;
}

// While one rank has rows of a prompt the next one has those before them: several chunks each.
static uint32_t chunk_rows(uint32_t ranks) {
    return (uint32_t)rn_max_u64(CHUNK_ROWS / (2 * ranks), LEAST_CHUNK);
}

// Chunks of a prompt that ranks have one behind the other are smaller ones.
static void limit_rows(rn_generator *g) {
    if (g->options.text.rows == 0 && !g->job.heads)
        g->text.rows = (uint32_t)rn_min_u64(g->text.rows, chunk_rows(g->job.ranks));
}

static rn_status limit_options(rn_generator_options *o) {
    if (o->speculation == RN_SPECULATE_ALWAYS)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "drafts are not checked by several ranks"),
                       "leave speculation to the plan, or switch it off");
    o->speculation = RN_SPECULATE_NEVER;
    o->grow_kv = false;
    o->session.cancel = NULL; // the others would wait for a run that was left half done
    o->plan.exact = true;     // what a rank's CPU would round otherwise than its device
    return RN_OK;
}

// How fast messages are, for plans of collective ops and for the choice between both ways.
static rn_status measure_link(const rn_generator_options *o) {
    enum { SMALL = 64 << 10 };
    rn_comm_rates rates;
    RN_TRY(rn_comm_measure(o->comm, SMALL, &rates));
    rn_device *device = o->session.device;
    if (!device) return RN_OK;
    device->caps.message_seconds = rates.latency_seconds;
    device->caps.message_bytes_second = rates.bytes_per_second;
    return RN_OK;
}

// Of the typical job. A pipeline's ranks take turns at a token; at a prompt each has another chunk.
static double find_seconds(const rn_rank_share *shares, uint32_t ranks, uint64_t decode_steps,
                           double hop_seconds) {
    double prefill = 0, decode = 0;
    bool turns = shares[0].split == RN_SPLIT_LAYERS;
    for (uint32_t r = 0; r < ranks; r++) {
        decode = turns ? decode + shares[r].decode_seconds + hop_seconds
                       : fmax(decode, shares[r].decode_seconds);
        prefill = fmax(prefill, shares[r].prefill_seconds);
        if (shares[r].status != RN_OK) return INFINITY;
    }
    return prefill + (double)decode_steps * decode;
}

// INFINITY: it cannot be divided so.
static double predict_split(const rn_text_maker *maker, const rn_generator_options *options,
                            rn_split split, uint32_t ranks, rn_rank_share *shares) {
    enum { ANSWER = 128 }; // tokens
    rn_generator_options o = *options;
    double hop = o.session.device ? o.session.device->caps.message_seconds : 0;
    o.split = split;
    if (rn_ranks_predict(maker, &o, ranks, shares) != RN_OK) return INFINITY;
    return find_seconds(shares, ranks, ANSWER, hop);
}

// Rank 0's, from its own budget and rates. Layers where nothing says otherwise.
static rn_status choose_split(const rn_text_maker *maker, rn_generator_options *o) {
    enum { MOST_RANKS = 64 }; // whose plans are made for that
    rn_rank_share *shares = NULL;
    void *block = NULL;
    uint32_t ranks = rn_comm_size(o->comm);
    bool own = o->session.device && o->session.device->caps.own_memory;
    if (o->split != RN_SPLIT_AUTO) return RN_OK;
    o->split = RN_SPLIT_LAYERS;
    if (ranks > MOST_RANKS || own || rn_comm_rank(o->comm) > 0) return RN_OK;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, ranks, sizeof *shares, &block));
    shares = block;
    double layers = predict_split(maker, o, RN_SPLIT_LAYERS, ranks, shares);
    double heads = predict_split(maker, o, RN_SPLIT_HEADS, ranks, shares);
    if (heads < layers) o->split = RN_SPLIT_HEADS;
    rn_free(RN_HOST_OTHER, block, ranks * sizeof *shares);
    return RN_OK;
}

rn_status rn_ranks_agree_options(const rn_text_maker *maker, rn_generator_options *o) {
    char model[2 * RN_FINGERPRINT_BYTES] = "";
    rn_comm_item items[] = {{"the model", model}};
    RN_TRY(limit_options(o));
    RN_TRY(rn_comm_broadcast(o->comm, 0, &o->text, sizeof o->text));
    RN_TRY(rn_comm_broadcast(o->comm, 0, &o->prefix_caching, sizeof o->prefix_caching));
    RN_TRY(rn_comm_broadcast(o->comm, 0, &o->least_pages, sizeof o->least_pages));
    RN_TRY(measure_link(o));
    RN_TRY(rn_comm_agree(o->comm, choose_split(maker, o)));
    RN_TRY(rn_comm_broadcast(o->comm, 0, &o->split, sizeof o->split));
    RN_TRY(rn_comm_agree(o->comm, describe(maker, &o->text, model)));
    return rn_comm_compare(o->comm, items, 1);
}

// ---- parts --------------------------------------------------------------------------------------

// What a whole model takes beside weights and caches: about what a part of it does.
static rn_status find_beside(const rn_text_maker *maker, const rn_generator *g,
                             uint64_t *out_bytes) {
    rn_recipe recipe = {0};
    rn_plan *plan = NULL;
    RN_TRY(maker->make(maker->self, &g->text, &recipe));
    rn_status s = rn_plan_make(&recipe, rn_generator_caps(g), &(rn_plan_options){0}, &plan);
    rn_recipe_destroy(&recipe);
    RN_TRY(s);
    const rn_plan_summary *p = rn_plan_get_summary(plan);
    *out_bytes = p->planned_bytes - p->purpose_bytes[RN_PURPOSE_WEIGHTS] -
                 p->purpose_bytes[RN_PURPOSE_KV] - p->purpose_bytes[RN_PURPOSE_STATE];
    rn_plan_destroy(plan);
    return RN_OK;
}

// For weights and caches, of this rank's budget.
static uint64_t find_room(const rn_generator *g, uint64_t beside) {
    const rn_plan_options *o = &g->options.plan;
    bool own = rn_generator_caps(g)->own_memory;
    uint64_t budget = own ? g->options.device_budget.bytes : o->budget_bytes;
    uint64_t room = budget == 0 || budget == RN_NO_LIMIT ? UINT64_MAX / 4
                    : own                                ? budget
                                                         : rn_plan_room(o, budget);
    room = rn_min_u64(room, UINT64_MAX / 4);
    return room - rn_min_u64(room, beside);
}

static rn_status cut_whole(const rn_text_maker *maker, const rn_generator *g, const uint64_t *rooms,
                           uint32_t ranks, uint32_t *out_first) {
    rn_graph *whole = NULL;
    RN_TRY(rn_text_maker_build(maker, &g->text, &whole));
    rn_status s = RN_OK;
    for (uint32_t r = 0; r < ranks && g->job.heads; r++)
        out_first[r] = 0;
    out_first[ranks] = rn_graph_block_count(whole);
    if (!g->job.heads) s = rn_rank_parts_cut(whole, rooms, ranks, out_first);
    rn_graph_destroy(whole);
    return s;
}

// Rank 0's cut, of all ranks' rooms. (ranks + 1)
static rn_status agree_cut(const rn_text_maker *maker, rn_generator *g, uint32_t *first,
                           uint64_t *rooms) {
    rn_comm *comm = g->options.comm;
    uint32_t rank = rn_comm_rank(comm), ranks = rn_comm_size(comm);
    uint64_t beside = 0;
    RN_TRY(rn_comm_agree(comm, find_beside(maker, g, &beside)));
    rooms[rank] = find_room(g, beside);
    RN_TRY(rn_comm_all_gather(comm, rooms, sizeof *rooms));
    // All of them, so that all have the same refusal; but rank 0's counts.
    RN_TRY(cut_whole(maker, g, rooms, ranks, first));
    return rn_comm_broadcast(comm, 0, first, (ranks + 1) * sizeof *first);
}

static uint64_t crossing_row_bytes(const rn_graph *graph) {
    rn_value in = rn_graph_find(graph, RN_ROLE_INPUT, RN_CROSSING);
    uint64_t bytes = 0;
    if (in == RN_NO_VALUE) return 0;
    const rn_value_info *info = rn_graph_value(graph, in);
    return rn_dtype_bytes(info->dtype, rn_shape_elements(info->shape, 1), &bytes) ? bytes : 0;
}

// Of the largest step: rn_ranks_run has the layout.
static uint64_t packet_bytes(const rn_generator *g) {
    uint64_t words = (3 + (uint64_t)g->adapters) * g->text.rows +
                     (uint64_t)g->text.sequences * g->table_pages + g->text.logit_rows;
    return words * sizeof(int32_t);
}

// `graph`: of this rank's part.
static rn_status take_job_memory(rn_generator *g, const rn_graph *graph) {
    rn_rank_job *j = &g->job;
    uint64_t logits = (uint64_t)g->text.logit_rows * g->vocab_size;
    j->hidden_row_bytes = crossing_row_bytes(graph);
    j->packet_bytes = packet_bytes(g);
    uint64_t hidden = j->hidden_row_bytes * g->text.rows;
    RN_TRY(rn_arena_array(&g->memory, j->packet_bytes, 1, (void **)&j->packet));
    if (hidden) RN_TRY(rn_arena_array(&g->memory, hidden, 1, (void **)&j->hidden));
    if (j->rank == 0 && !j->heads)
        RN_TRY(rn_arena_array(&g->memory, logits, sizeof *j->logits, (void **)&j->logits));
    return RN_OK;
}

static rn_status take_part(const rn_text_maker *maker, rn_generator *g, const uint32_t *first) {
    rn_rank_job *j = &g->job;
    rn_graph *graph = NULL;
    *j->part = (rn_rank_part){.whole = *maker,
                              .rank = j->rank,
                              .ranks = j->ranks,
                              .heads = j->heads,
                              .first_block = first[j->rank],
                              .end_block = first[j->heads ? j->ranks : j->rank + 1]};
    j->maker = rn_rank_part_maker(j->part);
    RN_TRY(rn_text_maker_build(&j->maker, &g->text, &graph));
    rn_status s = take_job_memory(g, graph);
    rn_graph_destroy(graph);
    return s;
}

static rn_status take_job(rn_generator *g, uint32_t rank, uint32_t ranks, uint32_t **out_first,
                          uint64_t **out_rooms) {
    rn_rank_job *j = &g->job;
    j->rank = rank;
    j->ranks = ranks;
    RN_TRY(rn_arena_array(&g->memory, 1, sizeof *j->part, (void **)&j->part));
    RN_TRY(rn_arena_array(&g->memory, ranks, sizeof *j->shares, (void **)&j->shares));
    RN_TRY(rn_arena_array(&g->memory, ranks + 1u, sizeof **out_first, (void **)out_first));
    return rn_arena_array(&g->memory, ranks, sizeof **out_rooms, (void **)out_rooms);
}

rn_status rn_ranks_open(const rn_text_maker *maker, rn_generator *g) {
    rn_comm *comm = g->options.comm;
    uint32_t *first = NULL;
    uint64_t *rooms = NULL;
    RN_TRY(take_job(g, rn_comm_rank(comm), rn_comm_size(comm), &first, &rooms));
    g->job.heads = g->options.split == RN_SPLIT_HEADS;
    if (g->job.heads && rn_generator_caps(g)->own_memory)
        return rn_fail(RN_UNSUPPORTED, "heads are dealt out to CPUs only: %s has no collective ops",
                       rn_generator_caps(g)->name);
    limit_rows(g);
    RN_TRY(agree_cut(maker, g, first, rooms));
    RN_TRY(take_part(maker, g, first));
    g->job.comm = comm;
    if (g->job.heads) g->options.session.comm = comm;
    return RN_OK;
}

// ---- plans --------------------------------------------------------------------------------------

static void name_blocks(const rn_text_maker *whole, const rn_generator *g, rn_rank_share *out) {
    rn_graph *graph = NULL;
    if (rn_text_maker_build(whole, &g->text, &graph) != RN_OK) return; // it was built before
    uint32_t first = out->first_block; // what stands before the first named block is empty
    while (first + 1 < out->end_block && !rn_graph_block_name(graph, first)[0])
        first++;
    snprintf(out->first_name, sizeof out->first_name, "%s", rn_graph_block_name(graph, first));
    snprintf(out->last_name, sizeof out->last_name, "%s",
             rn_graph_block_name(graph, out->end_block - 1));
    rn_graph_destroy(graph);
}

// g->plan NULL: it was refused, as the thread's last refusal says.
static void fill_share(const rn_generator *g, rn_status planned, rn_rank_share *out) {
    const rn_rank_job *j = &g->job;
    const rn_plan_options *o = &g->options.plan;
    *out = (rn_rank_share){.rank = j->rank,
                           .split = j->heads ? RN_SPLIT_HEADS : RN_SPLIT_LAYERS,
                           .status = planned,
                           .first_block = j->part->first_block,
                           .end_block = j->part->end_block,
                           .budget_bytes = o->budget_bytes ? o->budget_bytes : RN_NO_LIMIT};
    if (rn_generator_caps(g)->own_memory)
        out->budget_bytes =
            g->options.device_budget.bytes ? g->options.device_budget.bytes : RN_NO_LIMIT;
    snprintf(out->device, sizeof out->device, "%s", rn_generator_caps(g)->name);
    name_blocks(&j->part->whole, g, out);
    if (planned == RN_OVER_BUDGET) {
        out->smallest_budget_bytes = rn_last_refusal()->smallest_budget_bytes;
        out->planned_bytes = rn_last_refusal()->requested_bytes;
    }
    if (planned != RN_OK) return;
    const rn_plan_summary *p = rn_plan_get_summary(g->plan);
    out->planned_bytes = p->planned_bytes;
    out->smallest_budget_bytes = p->smallest_budget_bytes;
    out->streamed_bytes = p->streamed_bytes;
    out->rows = (uint32_t)p->rows;
    out->pages = g->text.pages;
    out->prefill_seconds = p->prefill_seconds;
    out->decode_seconds = p->decode_seconds;
    memcpy(out->purpose_bytes, p->purpose_bytes, sizeof out->purpose_bytes);
}

// The first rank that was refused; the refusal itself stays that of who had it.
static rn_status refuse(const rn_generator *g) {
    const rn_rank_job *j = &g->job;
    for (uint32_t r = 0; r < j->ranks; r++) {
        const rn_rank_share *share = &j->shares[r];
        if (share->status == RN_OK) continue;
        if (share->status != RN_OVER_BUDGET)
            return rn_fail(share->status, "rank %u of %u could not make a plan", r, j->ranks);
        rn_size_text least = rn_size_format(share->smallest_budget_bytes);
        return rn_hint(rn_fail(RN_OVER_BUDGET,
                               "rank %u of %u is over its budget of %s: %s to %s need %s", r,
                               j->ranks, rn_size_format(share->budget_bytes).text,
                               share->first_name, share->last_name, least.text),
                       "a budget of %lluMiB for that rank, more ranks, or a smaller context",
                       (unsigned long long)rn_div_up(share->smallest_budget_bytes, 1 << 20));
    }
    return RN_OK;
}

rn_status rn_ranks_agree_plans(rn_generator *g, rn_status planned) {
    rn_rank_job *j = &g->job;
    rn_error_info error = *rn_last_error();
    fill_share(g, planned, &j->shares[j->rank]);
    // An error of another kind is told in its own words.
    if (planned != RN_OVER_BUDGET && planned != RN_OK) (void)rn_error_restore(&error);
    RN_TRY(rn_comm_agree(j->comm, planned == RN_OVER_BUDGET ? RN_OK : planned));
    RN_TRY(rn_comm_all_gather(j->comm, j->shares, sizeof *j->shares));
    if (g->options.shared) g->options.shared(g->options.planned_self, j->shares, j->ranks);
    RN_TRY(refuse(g));
    g->rows = UINT32_MAX;
    for (uint32_t r = 0; r < j->ranks; r++) {
        g->rows = (uint32_t)rn_min_u64(g->rows, j->shares[r].rows);
        g->text.pages = (uint32_t)rn_min_u64(g->text.pages, j->shares[r].pages);
    }
    return RN_OK;
}

// ---- on paper -----------------------------------------------------------------------------------

static rn_status predict_share(const rn_text_maker *maker, rn_generator *g, const uint32_t *first,
                               rn_rank_share *out) {
    RN_TRY(take_part(maker, g, first));
    rn_status s = rn_generator_make_plan(&g->job.maker, g);
    if (s != RN_OK && s != RN_OVER_BUDGET) return s;
    fill_share(g, s, out);
    return RN_OK;
}

// As rank `rank` would plan, in a generator that is dropped again.
static rn_status predict_one(const rn_text_maker *maker, const rn_generator_options *options,
                             uint32_t rank, uint32_t ranks, rn_rank_share *out) {
    rn_generator *g = NULL;
    uint32_t *first = NULL;
    uint64_t *rooms = NULL, beside = 0;
    RN_TRY(rn_generator_prepare(maker, options, &g));
    rn_status s = take_job(g, rank, ranks, &first, &rooms);
    g->job.heads = options->split == RN_SPLIT_HEADS;
    limit_rows(g);
    if (s == RN_OK) s = find_beside(maker, g, &beside);
    for (uint32_t r = 0; s == RN_OK && r < ranks; r++)
        rooms[r] = find_room(g, beside);
    if (s == RN_OK) s = cut_whole(maker, g, rooms, ranks, first);
    if (s == RN_OK) s = predict_share(maker, g, first, out);
    rn_generator_destroy(g);
    return s;
}

rn_status rn_ranks_predict(const rn_text_maker *maker, const rn_generator_options *options,
                           uint32_t ranks, rn_rank_share *out) {
    rn_generator_options own = *options;
    own.comm = NULL;
    if (ranks == 0) return rn_fail(RN_INVALID, "0 ranks");
    if (ranks > 1) RN_TRY(limit_options(&own));
    rn_refusals_mute(true);
    rn_status s = RN_OK;
    for (uint32_t r = 0; s == RN_OK && r < ranks; r++)
        s = predict_one(maker, &own, r, ranks, &out[r]);
    rn_refusals_mute(false);
    return s;
}

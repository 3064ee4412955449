// generate_split.c — the first layers of short passes on the CPU.
//
//     a prompt     link ═ weights ═▶ device: layer 0 ... m-1 ─ m ... ─ head
//     a token      host: layer 0 ... m-1 ── x ──▶ device: layer m ... ─ head
//
// Weights that do not fit the device lie on the host. For a prompt they are worth their way over
// the link; for a token the CPU reads them faster where they are than the link could bring them.
// Both times are predicted, for the typical job, and the better one is taken.
//
// Each side has the KV cache of the first m layers, and one page table says where a text lies in
// both. A page is brought from the side that wrote it last, before the other one reads it.
//
// The CPU rounds otherwise than a device does (activations of quantised weights to int8): what is
// said agrees to rounding, so `exact` forbids it.
#include "model/generate.h"

#include "base/checked.h"
#include "device/device.h"
#include "plan/plan.h"
#include "runtime/kv_move.h"
#include "runtime/session.h"

enum { MOST_ROWS = 64 }; // of a pass that may count as short

// Who has a page's keys and values as they are now.
enum { BOTH, ON_DEVICE, ON_HOST, MOVING };

// ---- planning -----------------------------------------------------------------------------------

typedef struct proposal {
    const rn_text_maker *maker;
    rn_generator *g;
    const rn_plan_options *options; // the device's
    rn_plan *plan;                  // the device's: what it streams is of the first blocks
    rn_plan *host;                  // the CPU's
    rn_plan_share share;
    uint32_t layers;
    double seconds; // for the workload
} proposal;

static void drop(proposal *p) {
    rn_plan_destroy(p->plan);
    rn_plan_destroy(p->host);
    p->plan = p->host = NULL;
}

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

// The first block behind all that is streamed, and behind a layer at least. False: no run can begin
// there.
static bool find_entry(proposal *p) {
    const rn_graph *graph = p->plan->graph;
    rn_plan_entry entry;
    p->share.blocks = p->plan->summary.prefix_blocks;
    while (p->share.blocks < rn_graph_block_count(graph) &&
           count_layers(graph, p->share.blocks) == 0)
        p->share.blocks++;
    p->layers = count_layers(graph, p->share.blocks);
    return rn_plan_find_entry(p->plan, p->share.blocks, &entry) == RN_OK;
}

static rn_status plan_device(proposal *p, uint64_t host_bytes) {
    rn_plan_options options = *p->options;
    options.prefix = true;
    options.host_bytes_second = p->g->split.device->caps.memory_bytes_second;
    options.host_budget_bytes = host_bytes;
    rn_plan_destroy(p->plan);
    return rn_generator_try_plan(p->maker, rn_generator_caps(p->g), &p->g->text, &options,
                                 &p->plan);
}

// `workload`: rows of a typical prompt; 0: as the options say.
static rn_status plan_host(proposal *p, uint32_t rows, uint32_t workload) {
    rn_text_options text = p->g->text;
    text.first_layers = p->layers;
    text.fused = false;
    text.rows = rows;
    if (workload) text.prompt_tokens = workload;
    rn_plan_destroy(p->host);
    return rn_generator_try_plan(p->maker, &p->g->split.device->caps, &text,
                                 &(rn_plan_options){.effort = p->options->effort}, &p->host);
}

// Of how many rows a pass may be so that the CPU has done its layers before the link would have
// brought them. Its time bends upwards, from what memory takes to what arithmetic takes; so between
// one row and the most it is at most the straight line.
static uint32_t count_rows(const proposal *p, uint32_t most) {
    const rn_plan_summary *host = &p->host->summary;
    double link = (double)p->plan->summary.streamed_bytes / p->plan->caps.link_bytes_second;
    double one = host->pass_seconds, all = host->prompt_seconds;
    if (all <= link || most <= 1) return most;
    if (one >= link) return 1;
    return 1 + (uint32_t)((link - one) / (all - one) * (most - 1));
}

// What of the host is taken for the CPU's part, and whether there is room for it beside what the
// device's part takes.
static rn_status count_host(proposal *p, bool *out_fits) {
    const rn_plan_summary *host = &p->host->summary;
    uint64_t limit = p->options->host_budget_bytes, entry = 0, tables = 0;
    RN_TRY(rn_session_entry_bytes(p->plan, p->share.blocks, p->share.rows, &entry));
    if (p->g->options.plan.beside_bytes) tables = rn_session_table_bytes(p->host->graph);
    p->share.weight_bytes = host->purpose_bytes[RN_PURPOSE_WEIGHTS];
    p->share.host_bytes = host->planned_bytes + entry;
    *out_fits = limit == 0 || limit == RN_NO_LIMIT ||
                p->plan->summary.host_bytes + p->share.host_bytes + tables <= limit;
    return RN_OK;
}

static void predict(proposal *p, double prompt_seconds) {
    const rn_plan_summary *s = &p->plan->summary;
    p->share.prompt_seconds = prompt_seconds;
    p->share.pass_seconds = p->host->summary.pass_seconds + s->tail_seconds;
    p->seconds = prompt_seconds + (double)s->workload_passes * p->share.pass_seconds;
}

// Prompts on the device, through the link; tokens on both. *out_fits: the host has room for both
// kinds of copies of the first layers' weights.
static rn_status propose_short(proposal *p, bool *out_fits) {
    uint32_t most = (uint32_t)rn_min_u64(p->plan->summary.rows, MOST_ROWS);
    RN_TRY(plan_host(p, most, most));
    p->share.rows = count_rows(p, most);
    RN_TRY(plan_host(p, (uint32_t)p->share.rows, (uint32_t)p->share.rows));
    RN_TRY(count_host(p, out_fits));
    if (p->plan->summary.host_weight_bytes == 0) *out_fits = false; // prompts would read the disk
    predict(p, p->plan->summary.prompt_seconds);
    return RN_OK;
}

// All passes on both. The device's plan is made again for what the host has left, so its ring will
// never turn.
static rn_status propose_all(proposal *p, bool *out_fits) {
    uint64_t limit = p->options->host_budget_bytes;
    uint32_t layers = p->layers;
    p->share.rows = p->plan->summary.rows;
    RN_TRY(plan_host(p, (uint32_t)p->share.rows, 0));
    RN_TRY(count_host(p, out_fits));
    *out_fits = false;
    if (p->share.host_bytes >= limit) return RN_OK;
    rn_status s = plan_device(p, limit - p->share.host_bytes);
    if (s == RN_OVER_BUDGET) return RN_OK;
    RN_TRY(s);
    if (!find_entry(p) || p->layers != layers) return RN_OK;
    p->share.rows = rn_min_u64(p->plan->summary.rows, p->host->summary.rows);
    p->share.every_pass = true;
    RN_TRY(count_host(p, out_fits));
    predict(p, p->host->summary.prompt_seconds + p->plan->summary.prompt_tail_seconds);
    return RN_OK;
}

// *out_fits: there is a proposal.
static rn_status propose(proposal *p, bool *out_fits) {
    *out_fits = false;
    rn_status s = plan_device(p, p->options->host_budget_bytes);
    if (s == RN_OVER_BUDGET || (s == RN_OK && !find_entry(p))) return RN_OK;
    RN_TRY(s);
    RN_TRY(propose_short(p, out_fits));
    return *out_fits ? RN_OK : propose_all(p, out_fits);
}

static void take(proposal *p) {
    rn_generator *g = p->g;
    rn_plan_destroy(g->plan);
    g->plan = p->plan;
    g->split.plan = p->host;
    g->split.share = p->share;
    p->plan = p->host = NULL;
}

static bool is_possible(const rn_generator *g) {
    return rn_generator_caps(g)->own_memory && !g->options.plan.exact;
}

rn_status rn_split_plan(const rn_text_maker *maker, rn_generator *g,
                        const rn_plan_options *options) {
    const rn_plan_summary *streaming = rn_plan_get_summary(g->plan);
    proposal p = {.maker = maker, .g = g, .options = options};
    bool fits = false;
    if (!is_possible(g) || streaming->streamed_bytes == 0) return RN_OK;
    RN_TRY(rn_cpu_device_create(rn_generator_caps(g)->threads, &g->split.device));
    rn_status s = propose(&p, &fits);
    if (s == RN_OK && fits) {
        g->split.seconds = p.seconds;
        p.share.streaming_seconds = streaming->seconds;
        if (p.seconds < streaming->seconds) take(&p);
    }
    drop(&p);
    if (!g->split.plan) {
        rn_device_destroy(g->split.device);
        g->split.device = NULL;
    }
    return s;
}

rn_status rn_split_tell(rn_generator *g) {
    bool streams = rn_plan_get_summary(g->plan)->streamed_bytes > 0;
    if (g->split.plan) return rn_plan_tell_share(g->plan, &g->split.share);
    if (!streams || !rn_generator_caps(g)->own_memory) return RN_OK;
    if (g->split.seconds == 0 && !g->options.plan.exact) return RN_OK; // there was no choice
    return rn_plan_tell_streaming(g->plan, g->split.seconds);
}

// ---- life ---------------------------------------------------------------------------------------

rn_status rn_split_take_memory(rn_generator *g) {
    void *owners = NULL, *moved = NULL;
    if (!is_possible(g)) return RN_OK;
    RN_TRY(rn_arena_array(&g->memory, g->text.pages, sizeof *g->split.owners, &owners));
    RN_TRY(rn_arena_array(&g->memory, g->text.pages, sizeof *g->split.moved, &moved));
    g->split.owners = owners;
    g->split.moved = moved;
    return RN_OK;
}

rn_status rn_split_open(rn_generator *g, const rn_text_maker *maker) {
    rn_session_options options = g->options.session;
    if (!g->split.plan) return RN_OK;
    options.device = g->split.device;
    return rn_session_create(g->split.plan, &maker->weights, &options, &g->split.session);
}

void rn_split_close(rn_generator *g) {
    rn_session_destroy(g->split.session);
    rn_plan_destroy(g->split.plan);
    rn_device_destroy(g->split.device);
}

// ---- a pass -------------------------------------------------------------------------------------

bool rn_split_takes(const rn_generator *g, uint32_t rows) {
    return g->split.session && rows <= g->split.share.rows;
}

uint32_t rn_split_keep(const rn_generator *g, uint32_t rows) {
    return rn_split_takes(g, rows) ? g->rows - (uint32_t)g->split.share.rows : 0;
}

// Pages with something in them that only the other side has.
static uint32_t list_stale(rn_generator *g, uint8_t other) {
    uint32_t count = 0;
    for (const rn_sequence *s = g->line; s; s = s->next) {
        uint32_t used = (uint32_t)rn_div_up(s->read, g->text.page_tokens);
        for (uint32_t i = 0; s->turn.rows && i < used; i++) {
            int32_t page = s->pages.pages[i];
            if (g->split.owners[page] != other) continue;
            g->split.owners[page] = MOVING; // a page that several hold is listed once
            g->split.moved[count++] = page;
        }
    }
    return count;
}

rn_status rn_split_sync(rn_generator *g, bool on_host) {
    rn_split *split = &g->split;
    uint8_t other = on_host ? ON_DEVICE : ON_HOST;
    if (!split->session) return RN_OK;
    uint32_t count = list_stale(g, other);
    if (count == 0) return RN_OK;
    rn_status s = on_host ? rn_kv_move(g->session, split->session, split->moved, count)
                          : rn_kv_move(split->session, g->session, split->moved, count);
    for (uint32_t i = 0; i < count; i++)
        split->owners[split->moved[i]] = s == RN_OK ? BOTH : other;
    if (s == RN_OK) g->facts.moved_pages += count;
    return s;
}

void rn_split_wrote(rn_generator *g, bool on_host) {
    if (!g->split.session) return;
    for (const rn_sequence *s = g->line; s; s = s->next) {
        uint32_t size = g->text.page_tokens, end = s->read + s->turn.rows + s->turn.drafted;
        for (uint32_t at = s->read / size; s->turn.rows && at * size < end; at++)
            g->split.owners[s->pages.pages[at]] = on_host ? ON_HOST : ON_DEVICE;
    }
    g->facts.split_passes += on_host;
}

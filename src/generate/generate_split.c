// generate_split.c — the first layers of short passes on the CPU, and on the link beside it.
//
//     a prompt     link ═ weights ═▶ device: layer 0 ... m-1 ─ m ... ─ head
//     a token      host: layer 0 1 ── x ──▶ device: 2 ── x ──▶ host: 3 4 ── x ──▶ device: 5 ...
//     head
//                  link ══════════ 2 ══════▶            ════════ 5 ══════▶
//
// Weights that do not fit the device lie on the host. For a prompt they are worth their way over
// the link; for a token the CPU reads them faster where they are than the link could bring them.
// But the link can bring some while the CPU computes others: so they are dealt out to both
// (plan/weave.h), if the device has room for a whole layer's. Where it has not, or that is no gain,
// the CPU computes all of them. The times of all ways are predicted, for the typical job, and the
// best one is taken.
//
// Each side has the KV cache of the layers that the CPU computes, and one page table says where a
// text lies in both. A page is brought from the side that wrote it last, before the other one reads
// it. What the link brings is computed on the device in every pass, and has its cache there alone.
//
// The CPU rounds otherwise than a device does (activations of quantised weights to int8): what is
// said agrees to rounding, so `exact` forbids it.
#include "generate/generate.h"

#include "base/checked.h"
#include "device/device.h"
#include "plan/plan.h"
#include "plan/weave.h"
#include "generate/kv_move.h"
#include "runtime/session.h"

enum {
    MOST_ROWS = 64, // of a pass that may count as short
    PLACES = 1, // on the device, for layers that the link brings: a second would cost one of those
                // that stay its own, and that is more than the link's rest is worth
};

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
    uint64_t block_bytes; // on the device, of the largest of the first blocks
    double seconds;       // for the workload
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

// Whether the block is a layer that the link brings in short passes.
static bool is_woven(const rn_graph *graph, const rn_plan_share *share, uint32_t block) {
    uint32_t layer = count_layers(graph, block), layers = count_layers(graph, share->blocks);
    bool is_layer = count_layers(graph, block + 1) > layer;
    return is_layer && rn_weave_streams(layer, layers, share->woven);
}

// The parts of a short pass, as they follow each other: one on the host, one on the device, and so
// on. The host's graph has the first blocks but for those that are woven.
static uint32_t list_parts(const rn_plan *plan, const rn_plan_share *share,
                           rn_block_range *host /* (woven + 1) */,
                           rn_block_range *device /* (woven + 1) */) {
    uint32_t last = 0, on_host = 0; // part; blocks of the host's graph
    bool before = false;
    host[0] = device[0] = (rn_block_range){0};
    for (uint32_t block = 0; block < share->blocks; block++) {
        bool woven = is_woven(plan->graph, share, block);
        if (woven && !before) device[last].first = block;
        if (!woven && before) {
            device[last++].end = block;
            host[last].first = on_host;
        }
        if (!woven) host[last].end = ++on_host;
        before = woven;
    }
    if (!before) device[last].first = share->blocks;
    device[last].end = rn_graph_block_count(plan->graph);
    return last + 1;
}

static rn_status make_parts(rn_arena *memory, const rn_plan *plan, const rn_plan_share *share,
                            rn_block_range **out_host, rn_block_range **out_device,
                            uint32_t *out_count) {
    size_t most = (size_t)share->woven + 1;
    RN_TRY(rn_arena_array(memory, most, sizeof **out_host, (void **)out_host));
    RN_TRY(rn_arena_array(memory, most, sizeof **out_device, (void **)out_device));
    *out_count = list_parts(plan, share, *out_host, *out_device);
    return RN_OK;
}

// The first block behind all that is streamed, and behind a layer at least. False: no part of a run
// can begin there.
static bool find_blocks(proposal *p) {
    const rn_graph *graph = p->plan->graph;
    uint32_t count = rn_graph_block_count(graph);
    rn_plan_part part;
    p->share.blocks = p->plan->summary.prefix_blocks;
    while (p->share.blocks < count && count_layers(graph, p->share.blocks) == 0)
        p->share.blocks++;
    p->layers = count_layers(graph, p->share.blocks);
    return rn_plan_find_part(p->plan, p->share.blocks, count, &part) == RN_OK;
}

// `ring_bytes`: room for what the link brings beside the CPU; so both go through the weights.
static rn_status plan_device(proposal *p, uint64_t host_bytes, uint64_t ring_bytes) {
    rn_plan_options options = *p->options;
    options.prefix = true;
    options.host_bytes_second = p->g->split.device->caps.memory_bytes_second;
    if (ring_bytes) options.host_bytes_second += rn_generator_caps(p->g)->link_bytes_second;
    options.host_budget_bytes = host_bytes;
    options.ring_bytes = ring_bytes;
    rn_plan_destroy(p->plan);
    return rn_generator_try_plan(p->maker, rn_generator_caps(p->g), &p->g->text, &options,
                                 &p->plan);
}

// `workload`: rows of a typical prompt; 0: as the options say.
static rn_status plan_host(proposal *p, uint32_t rows, uint32_t workload) {
    rn_text_options text = p->g->text;
    text.first_layers = p->layers;
    text.woven_layers = p->share.woven;
    text.fused = false;
    text.rows = rows;
    if (workload) text.prompt_tokens = workload;
    rn_plan_destroy(p->host);
    return rn_generator_try_plan(p->maker, &p->g->split.device->caps, &text,
                                 &(rn_plan_options){.effort = p->options->effort}, &p->host);
}

// Of how many rows a pass may be so that the CPU has done its layers before the link would have
// brought all of them. Its time bends upwards, from what memory takes to what arithmetic takes; so
// between one row and the most it is at most the straight line.
static uint32_t count_rows(const proposal *p, uint32_t most) {
    const rn_plan_summary *host = &p->host->summary;
    double link = (double)p->plan->summary.streamed_bytes / p->plan->caps.link_bytes_second;
    double one = host->pass_seconds, all = host->prompt_seconds;
    if (all <= link || most <= 1) return most;
    if (one >= link) return 1;
    return 1 + (uint32_t)((link - one) / (all - one) * (most - 1));
}

static rn_status count_part_bytes(const proposal *p, uint64_t *out_bytes) {
    rn_arena scratch;
    rn_block_range *host, *device;
    uint32_t count = 0;
    rn_arena_init(&scratch, p->g->memory.from, 0);
    rn_status s = make_parts(&scratch, p->plan, &p->share, &host, &device, &count);
    if (s == RN_OK) s = rn_session_part_bytes(p->plan, device, count, p->share.rows, out_bytes);
    rn_arena_free_all(&scratch);
    return s;
}

// What of the host is taken for the CPU's part, and whether there is room for it beside what the
// device's part takes.
static rn_status count_host(proposal *p, bool *out_fits) {
    const rn_plan_summary *host = &p->host->summary;
    uint64_t limit = p->options->host_budget_bytes, crossing = 0, tables = 0;
    RN_TRY(count_part_bytes(p, &crossing));
    if (p->g->options.plan.beside_bytes) tables = rn_session_table_bytes(p->host->graph);
    p->share.weight_bytes = host->purpose_bytes[RN_PURPOSE_WEIGHTS];
    p->share.host_bytes = host->planned_bytes + crossing;
    *out_fits = limit == 0 || limit == RN_NO_LIMIT ||
                p->plan->summary.host_bytes + p->share.host_bytes + tables <= limit;
    return RN_OK;
}

static void predict(proposal *p, double prompt_seconds, double pass_seconds) {
    p->share.prompt_seconds = prompt_seconds;
    p->share.pass_seconds = pass_seconds;
    p->seconds = prompt_seconds + (double)p->plan->summary.workload_passes * pass_seconds;
}

static double add_pass(const proposal *p) {
    return p->host->summary.pass_seconds + p->plan->summary.tail_seconds;
}

// The CPU's plan for passes that are short enough.
static rn_status plan_short(proposal *p, bool *out_fits) {
    uint32_t most = (uint32_t)rn_min_u64(p->plan->summary.rows, MOST_ROWS);
    RN_TRY(plan_host(p, most, most));
    p->share.rows = count_rows(p, most);
    RN_TRY(plan_host(p, (uint32_t)p->share.rows, (uint32_t)p->share.rows));
    RN_TRY(count_host(p, out_fits));
    if (p->plan->summary.host_weight_bytes == 0) *out_fits = false; // prompts would read the disk
    return RN_OK;
}

// Prompts on the device, through the link; tokens on both. *out_fits: the host has room for both
// kinds of copies of the first layers' weights.
static rn_status propose_short(proposal *p, bool *out_fits) {
    RN_TRY(plan_short(p, out_fits));
    predict(p, p->plan->summary.prompt_seconds, add_pass(p));
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
    rn_status s = plan_device(p, limit - p->share.host_bytes, 0);
    if (s == RN_OVER_BUDGET) return RN_OK;
    RN_TRY(s);
    if (!find_blocks(p) || p->layers != layers) return RN_OK;
    p->share.rows = rn_min_u64(p->plan->summary.rows, p->host->summary.rows);
    p->share.every_pass = true;
    RN_TRY(count_host(p, out_fits));
    predict(p, p->host->summary.prompt_seconds + p->plan->summary.prompt_tail_seconds, add_pass(p));
    return RN_OK;
}

// Of the first blocks, what the largest one takes on the device.
static uint64_t largest_block(const proposal *p) {
    const rn_plan *plan = p->plan;
    uint64_t largest = 0;
    for (uint32_t block = 0; block < p->share.blocks; block++) {
        uint64_t bytes = 0;
        for (uint32_t u = 0; u < plan->unit_count; u++)
            if (plan->units[u].block == block) bytes += rn_plan_unit_room(plan, u);
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

// A layer of a pass of one row: on the device it takes what memory takes to bring its weights; the
// CPU's seconds are its file's bytes, for now.
static rn_weave_block time_layer(const rn_plan *plan, uint32_t block) {
    const rn_device_caps *caps = &plan->caps;
    double link = caps->link_bytes_second; // beside the CPU
    if (caps->link_share > 0 && caps->link_share < 1) link *= caps->link_share;
    rn_weave_block layer = {.device_seconds = count_steps(plan, block) * caps->step_seconds};
    for (uint32_t u = 0; u < plan->unit_count; u++) {
        const rn_plan_unit *unit = &plan->units[u];
        if (unit->block != block) continue;
        layer.host_seconds += (double)unit->file_bytes;
        layer.device_seconds += (double)unit->bytes / caps->memory_bytes_second;
        if (!unit->resident) layer.link_seconds += (double)unit->bytes / link;
    }
    return layer;
}

// The host's plan is of all layers and says how long they take together: each as its bytes are.
static void time_layers(const proposal *p, rn_weave_block *out /* (layers) */) {
    uint32_t layer = 0;
    double bytes = 0;
    for (uint32_t block = 0; block < p->share.blocks; block++) {
        if (count_layers(p->plan->graph, block + 1) == layer) continue;
        out[layer] = time_layer(p->plan, block);
        bytes += out[layer++].host_seconds;
    }
    for (uint32_t i = 0; i < layer; i++)
        out[i].host_seconds *= p->host->summary.pass_seconds / bytes;
}

// How many layers the link brings, and how long a pass of one row takes then.
static void deal(proposal *p, const rn_weave_block *layers, double *out_seconds) {
    double share = p->g->split.device->caps.beside_link;
    rn_weave weave = {.blocks = layers,
                      .count = p->layers,
                      .places = PLACES,
                      .tail_seconds = p->plan->summary.tail_seconds,
                      .host_share = share > 0 && share < 1 ? share : 1};
    p->share.woven = rn_weave_deal(&weave);
    *out_seconds = rn_weave_seconds(&weave, p->share.woven);
}

static rn_status deal_layers(proposal *p, double *out_seconds) {
    rn_arena scratch;
    void *layers = NULL;
    RN_TRY(plan_host(p, 1, 1));
    rn_arena_init(&scratch, p->g->memory.from, 0);
    rn_status s = rn_arena_array(&scratch, p->layers, sizeof(rn_weave_block), &layers);
    if (s == RN_OK) {
        time_layers(p, layers);
        deal(p, layers, out_seconds);
    }
    rn_arena_free_all(&scratch);
    return s;
}

static rn_status propose_woven(proposal *p, bool *out_fits) {
    double pass_seconds = 0;
    *out_fits = false;
    rn_status s = plan_device(p, p->options->host_budget_bytes, PLACES * p->block_bytes);
    if (s == RN_OVER_BUDGET || (s == RN_OK && !find_blocks(p))) return RN_OK;
    RN_TRY(s);
    if (!p->plan->from_host || p->plan->ring_bytes < PLACES * largest_block(p)) return RN_OK;
    RN_TRY(deal_layers(p, &pass_seconds));
    if (p->share.woven == 0) return RN_OK;
    RN_TRY(plan_short(p, out_fits));
    predict(p, p->plan->summary.prompt_seconds, pass_seconds);
    return RN_OK;
}

// Takes a woven proposal in the place of `p` where that is better. *fits: there is one in `p`.
static rn_status weave(proposal *p, bool *fits) {
    proposal woven = {
        .maker = p->maker, .g = p->g, .options = p->options, .block_bytes = p->block_bytes};
    bool is_there = false;
    if (p->block_bytes == 0) return RN_OK;
    rn_status s = propose_woven(&woven, &is_there);
    if (s == RN_OK && is_there && (!*fits || woven.seconds < p->seconds)) {
        proposal other = *p;
        *p = woven;
        woven = other;
        *fits = true;
    }
    drop(&woven);
    return s;
}

static void take(proposal *p) {
    rn_generator *g = p->g;
    rn_plan_summary *s = &p->plan->summary;
    const rn_plan_summary *old = &g->plan->summary;
    s->smallest_bytes = rn_min_u64(s->smallest_bytes, old->smallest_bytes);
    s->smallest_budget_bytes = rn_min_u64(s->smallest_budget_bytes, old->smallest_budget_bytes);
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
    if (s == RN_OK) s = weave(&p, &fits);
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

static rn_status open_sessions(rn_generator *g, const rn_text_maker *maker, rn_arena *scratch) {
    rn_split *split = &g->split;
    rn_session_options options = g->options.session, host = options;
    rn_block_range *on_host, *on_device;
    if (split->plan) {
        RN_TRY(make_parts(scratch, g->plan, &split->share, &on_host, &on_device, &split->parts));
        options.parts = on_device;
        host.parts = on_host;
        host.part_count = options.part_count = split->parts;
        host.part_rows = options.part_rows = split->share.rows;
        options.part_places = PLACES;
        host.device = split->device;
    }
    RN_TRY(rn_session_create(g->plan, &maker->weights, &options, &g->session));
    if (!split->plan) return RN_OK;
    return rn_session_create(split->plan, &maker->weights, &host, &split->session);
}

rn_status rn_split_open(rn_generator *g, const rn_text_maker *maker) {
    rn_arena scratch;
    rn_arena_init(&scratch, g->memory.from, 0);
    rn_status s = open_sessions(g, maker, &scratch);
    rn_arena_free_all(&scratch);
    return s;
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

// The sides in turn, each with what the other hands it; `set` sets the inputs of a session. The
// link begins where it was not asked in the pass before.
rn_status rn_split_run(rn_generator *g, uint32_t rows, rn_split_set set) {
    const rn_split *split = &g->split;
    const void *x = NULL; // (rows, dim)
    uint64_t bytes = 0;
    RN_TRY(rn_session_bring_parts(g->session));
    for (uint32_t part = 0; part < split->parts; part++) {
        RN_TRY(set(g, split->session, rows));
        RN_TRY(rn_session_run_part(split->session, part, x, bytes, rows));
        x = rn_session_part_output(split->session, &bytes);
        if (!x) x = rn_session_output(split->session, "x", &bytes);
        RN_TRY(set(g, g->session, rows));
        RN_TRY(rn_session_run_part(g->session, part, x, bytes, rows));
        x = rn_session_part_output(g->session, &bytes);
    }
    return RN_OK;
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

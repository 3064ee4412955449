// generate.c — a generator's life: its own memory first, then the plan around it, then the session.
#include "generate/generate.h"

#include "base/checked.h"
#include "device/executable.h"
#include "memory/account.h"
#include "model/model.h"
#include "runtime/recover.h"
#include "runtime/session.h"

#include <ration/calibrate.h>
#include <ration/profile.h>

#include <string.h>

#define FROM RN_HOST_OTHER

enum { MOST_DRAWERS = 4 };

// ---- memory -------------------------------------------------------------------------------------

static rn_status take_array(rn_generator *g, size_t count, size_t item_bytes, void *out) {
    void *block = NULL;
    RN_TRY(rn_arena_array(&g->memory, count, item_bytes, &block));
    memcpy(out, &block, sizeof block);
    return RN_OK;
}

static rn_status take_inputs(rn_generator *g) {
    size_t places = (size_t)g->text.sequences * g->table_pages;
    size_t logit_rows = (size_t)g->text.logit_rows + g->draft_most; // at most, once there is a plan
    RN_TRY(take_array(g, g->text.rows, sizeof(int32_t), &g->tokens));
    RN_TRY(take_array(g, g->text.rows, sizeof(int32_t), &g->sequence));
    RN_TRY(take_array(g, g->text.rows, sizeof(int32_t), &g->position));
    RN_TRY(take_array(g, (size_t)g->adapters * g->text.rows, sizeof(float), &g->chosen));
    RN_TRY(take_array(g, logit_rows, sizeof(int32_t), &g->wanted));
    RN_TRY(take_array(g, places, sizeof(int32_t), &g->page_table));
    memset(g->page_table, -1, places * sizeof(int32_t));
    return RN_OK;
}

static rn_status take_sequences(rn_generator *g) {
    rn_sequence *sequences = NULL;
    RN_TRY(take_array(g, g->text.sequences, sizeof *sequences, &sequences));
    for (uint32_t i = g->text.sequences; i-- > 0;) {
        rn_sequence *sequence = &sequences[i];
        *sequence = (rn_sequence){.generator = g, .slot = i, .next = g->free};
        RN_TRY(take_array(g, g->text.context, sizeof(uint32_t), &sequence->tokens));
        RN_TRY(take_array(g, (size_t)g->draft_most + 1, sizeof(rn_sample), &sequence->samples));
        g->free = sequence;
    }
    return RN_OK;
}

// Twice as many places as readers, so that few meet in one.
static rn_status take_readers(rn_generator *g) {
    uint32_t count = 2;
    while (count < 2 * g->text.sequences)
        count *= 2;
    RN_TRY(take_array(g, count, sizeof *g->readers, &g->readers));
    g->reader_count = count;
    return RN_OK;
}

// As many as there are threads to draw, up to a few: each takes some bytes a token of the
// vocabulary.
static rn_status take_scratch(rn_generator *g) {
    uint64_t threads = rn_min_u64(rn_generator_caps(g)->threads, MOST_DRAWERS);
    uint32_t count = (uint32_t)rn_max_u64(rn_min_u64(threads, g->text.sequences), 1);
    RN_TRY(take_array(g, count, sizeof *g->scratch, &g->scratch));
    for (; g->drawers < count; g->drawers++) {
        void *block = NULL;
        RN_TRY(take_array(g, g->vocab_size, RN_SAMPLER_SCRATCH_BYTES, &block));
        g->scratch[g->drawers] = rn_sampler_scratch_cut(block, g->vocab_size);
    }
    return RN_OK;
}

static rn_status take_memory(rn_generator *g) {
    bool shares = g->options.prefix_caching;
    RN_TRY(take_inputs(g));
    RN_TRY(take_sequences(g));
    RN_TRY(take_array(g, g->text.sequences, sizeof *g->prompts, &g->prompts));
    if (shares) RN_TRY(take_readers(g));
    RN_TRY(rn_kv_sides_take_memory(g));
    RN_TRY(
        rn_page_pool_init(&g->pool, &g->memory, g->text.pages, shares ? g->text.page_tokens : 0));
    return take_scratch(g);
}

// ---- life ---------------------------------------------------------------------------------------

static bool is_cache(const rn_value_info *info) {
    return info->role == RN_ROLE_STATE && info->purpose == RN_PURPOSE_KV &&
           info->producer == RN_NO_NODE;
}

static bool rolls(const rn_value_info *info) {
    return strstr(info->name, RN_WINDOW_STATE) != NULL;
}

uint32_t rn_generator_held(const rn_generator *g) {
    const rn_graph *graph = rn_plan_graph(g->plan);
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (is_cache(info) && rolls(info))
            return (uint32_t)(info->shape.dims[0] / g->text.sequences) * g->text.page_tokens;
    }
    return 0;
}

uint64_t rn_generator_page_bytes(const rn_graph *graph) {
    uint64_t sum = 0, bytes = 0;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (!is_cache(info) || rolls(info)) continue;
        if (rn_dtype_bytes(info->dtype, rn_shape_elements(info->shape, 1), &bytes))
            sum += bytes / info->shape.dims[0];
    }
    return sum;
}

static rn_status open_session(rn_generator *g, const rn_text_maker *maker) {
    const rn_graph *graph = rn_plan_graph(g->plan);
    if (!g->job.comm) g->rows = (uint32_t)rn_plan_get_summary(g->plan)->rows;
    if (g->plan->every_run) g->rows = (uint32_t)g->plan->segments.rows;
    rn_session_options session = g->options.session;
    bool grows = g->options.grow_kv && g->text.sequences == 1 && !g->options.prefix_caching;
    if (grows) session.growing_pages = g->text.pages;
    RN_TRY(rn_session_create(g->plan, &maker->weights, &session, &g->session));
    rn_page_pool_shrink(&g->pool, g->text.pages);
    if (grows) // a page too few would make its only text wait for ever
        g->text.context =
            (uint32_t)rn_min_u64(g->text.context, (uint64_t)g->text.pages * g->text.page_tokens);
    g->window = maker->window;
    g->text.largest &= rn_graph_find(graph, RN_ROLE_OUTPUT, "largest") != RN_NO_VALUE;
    g->held = rn_generator_held(g);
    g->facts.kv_page_bytes = rn_generator_page_bytes(graph);
    return RN_OK;
}

// A plan and its session, as often as the device has no room for them (runtime/recover.h).
typedef struct opening {
    rn_generator *g;
    const rn_text_maker *maker;
    rn_text_options text; // as asked: planning settles pages and rows of logits
    uint32_t draft_most;
} opening;

static void drop_plan(rn_generator *g) {
    rn_plan_destroy(g->plan);
    g->plan = NULL;
}

static rn_status plan_once(opening *o) {
    rn_generator *g = o->g;
    g->text = o->text;
    g->draft_most = o->draft_most;
    rn_profile_begin(rn_profile_name("plan"));
    rn_status s = rn_generator_make_plan(o->maker, g);
    rn_profile_end();
    return s;
}

// A refusal is a matter of bytes and does not wait for this. Where the budget is the process's, the
// plan's share of it is still free.
static rn_status plan_by_measure(opening *o) {
    rn_generator *g = o->g;
    const rn_plan_options *options = &g->plan->options;
    rn_device *device = g->options.session.device;
    rn_rates_quick_options quick = {.checkpoint = o->maker->weights.checkpoint};
    if (options->reserved_bytes) quick.room_bytes = rn_plan_room(options, options->budget_bytes);
    rn_rates_source before = rn_rates_apply(device);
    if (rn_rates_measure_quick(device, &quick) == before) return RN_OK;
    drop_plan(g);
    return plan_once(o);
}

static rn_status make_plan(void *self, const rn_plan **out) {
    opening *o = self;
    rn_generator *g = o->g;
    RN_TRY(plan_once(o));
    if (g->options.measure_rates && g->options.session.device) RN_TRY(plan_by_measure(o));
    rn_stage("plan_made");
    if (g->options.planned) g->options.planned(g->options.planned_self, g->plan);
    *out = g->plan;
    return RN_OK;
}

static rn_status open_plan(void *self) {
    opening *o = self;
    RN_TRY(open_session(o->g, o->maker));
    rn_stage(rn_generator_caps(o->g)->own_memory ? "model_on_device" : "model_loaded_cpu");
    return RN_OK;
}

static void close_plan(void *self) {
    rn_generator *g = ((opening *)self)->g;
    rn_session_destroy(g->session);
    g->session = NULL;
    drop_plan(g);
}

static void lower_budget(void *self, uint64_t bytes) {
    rn_generator *g = ((opening *)self)->g;
    rn_device_budget_lower(g->options.session.device, bytes, &g->options.device_budget);
}

// All ranks or none: a plan that one of them makes again would not be what the others know of.
static rn_status open_on_ranks(opening *o) {
    const rn_plan *plan = NULL;
    rn_generator *g = o->g;
    o->maker = &g->job.maker;
    RN_TRY(rn_ranks_agree_plans(g, make_plan(o, &plan)));
    return rn_comm_agree(g->job.comm, open_plan(o));
}

static rn_status open_generator(rn_generator *g, const rn_text_maker *maker) {
    opening o = {.g = g, .maker = maker, .text = g->text, .draft_most = g->draft_most};
    if (g->job.comm) return open_on_ranks(&o);
    return rn_recover(&(rn_recovery){.device = g->options.session.device,
                                     .self = &o,
                                     .plan = make_plan,
                                     .open = open_plan,
                                     .undo = close_plan,
                                     .lower = lower_budget});
}

rn_status rn_generator_prepare(const rn_text_maker *maker, const rn_generator_options *options,
                               rn_generator **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(rn_generator), &block));
    rn_generator *g = block;
    if (options) g->options = *options;
    rn_arena_init(&g->memory, FROM, RN_PAGE_BYTES);
    rn_status s = rn_generator_resolve(maker, g);
    if (s == RN_OK) s = take_memory(g);
    if (s == RN_OK && rn_generator_has_ranks(&g->options)) s = rn_ranks_open(maker, g);
    if (s == RN_OK)
        *out = g;
    else
        rn_generator_destroy(g);
    return s;
}

rn_status rn_generator_create_from(const rn_text_maker *maker, const rn_generator_options *options,
                                   rn_generator **out) {
    rn_generator *g = NULL;
    rn_generator_options own = options ? *options : (rn_generator_options){0};
    *out = NULL;
    if (rn_generator_has_ranks(&own)) RN_TRY(rn_ranks_agree_options(maker, &own));
    RN_TRY(rn_generator_prepare(maker, &own, &g));
    rn_status s = open_generator(g, maker);
    if (s == RN_OK)
        *out = g;
    else
        rn_generator_destroy(g);
    return s;
}

rn_status rn_generator_plan_from(const rn_text_maker *maker, const rn_generator_options *options,
                                 rn_plan **out) {
    rn_generator *g = NULL;
    rn_generator_options own = options ? *options : (rn_generator_options){0};
    *out = NULL;
    own.comm = NULL; // nobody is asked
    RN_TRY(rn_generator_prepare(maker, &own, &g));
    rn_status s = rn_generator_make_plan(maker, g);
    if (s == RN_OK) {
        *out = g->plan;
        g->plan = NULL;
    }
    rn_generator_destroy(g);
    return s;
}

void rn_generator_destroy(rn_generator *g) {
    if (!g) return;
    rn_ranks_close(g);
    rn_session_destroy(g->session);
    rn_plan_destroy(g->plan);
    rn_arena_free_all(&g->memory);
    rn_free(FROM, g, sizeof *g);
}

const char *rn_generator_program(const rn_generator *g) {
    return g->session->executable ? g->session->executable->about : "";
}

// ---- facts --------------------------------------------------------------------------------------

const rn_plan *rn_generator_plan(const rn_generator *g) {
    return g->plan;
}

size_t rn_generator_context(const rn_generator *g) {
    return g->text.context;
}

rn_generator_facts rn_generator_get_facts(const rn_generator *g) {
    rn_generator_facts facts = g->facts;
    facts.session = rn_session_get_facts(g->session);
    facts.kv_pages = rn_page_pool_taken(&g->pool);
    facts.kv_pages_peak = g->pool.taken_peak;
    facts.kv_pages_total = g->pool.page_count;
    facts.kv_pages_kept = g->pool.known.kept_count;
    return facts;
}

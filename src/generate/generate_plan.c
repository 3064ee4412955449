// generate_plan.c — from options to a plan.
//
// Pages: where fewer would do, those asked for are tried first, then the fewest; between the two as
// many as cost no weight its place. A plan takes milliseconds, so few are made.
//
// Guessing needs logits of several rows, and those take bytes and time. So a plan is made without
// them first; only where it streams weights (or where drafting was asked for) is a second one made,
// and it is taken where it fits and streams hardly more.
#include "generate/generate.h"

#include "base/checked.h"
#include "base/reserved.h"
#include "memory/budget.h"
#include "runtime/session.h"

#include <ration/device.h>

enum { CONTEXT = 4096, PAGE_TOKENS = 64, ROWS = 512, DRAFT = 8, MOST_DRAFT = 64 };

// ---- options ------------------------------------------------------------------------------------

static uint32_t either(uint32_t given, uint32_t otherwise) {
    return given ? given : otherwise;
}

static uint64_t count_pages(const rn_text_options *t) {
    return t->sequences * rn_div_up(t->context, t->page_tokens);
}

static rn_status check_sizes(const rn_text_options *t) {
    uint64_t tokens = 0;
    bool fits = rn_mul_u64(count_pages(t), t->page_tokens, &tokens) && tokens <= INT32_MAX;
    if (fits && t->logit_rows <= INT32_MAX / 2) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "%u sequences of %u tokens in pages of %u are too many",
                           t->sequences, t->context, t->page_tokens),
                   "fewer sequences, or a smaller context");
}

// What a model with states cannot do: a page of keys without the states behind it is of no use to
// another text, and a draft that was wrong has changed them.
static rn_status limit_recurrent(rn_generator *g) {
    if (!g->recurrent) return RN_OK;
    g->options.prefix_caching = false;
    if (g->options.speculation == RN_SPECULATE_ALWAYS)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "drafts cannot be checked with this model: its "
                                               "layers keep states that cannot go back"),
                       "leave speculation to the plan, or switch it off");
    g->options.speculation = RN_SPECULATE_NEVER;
    return RN_OK;
}

// Logits of many rows take longer over the link than to be looked through on the device. Those of a
// compiled program do so from the first: its plugin copies them over pageable memory, and waits.
static bool wants_largest(const rn_generator *g) {
    enum { LEAST_ROWS = 16 };
    const rn_device *device = g->options.session.device;
    return device && device->caps.own_memory &&
           (device->compile || g->text.logit_rows >= LEAST_ROWS);
}

rn_status rn_generator_resolve(const rn_text_maker *maker, rn_generator *g) {
    rn_text_options t = g->options.text;
    RN_TRY(rn_check_reserved(g->options.reserved, "rn_generator_options"));
    RN_TRY(rn_check_reserved(t.reserved, "rn_text_options"));
    RN_TRY(rn_check_reserved(g->options.plan.reserved, "rn_plan_options"));
    RN_TRY(rn_check_reserved(g->options.session.reserved, "rn_session_options"));
    uint32_t trained = either(maker->context, CONTEXT);
    t.context = either(t.context, (uint32_t)rn_min_u64(trained, CONTEXT));
    t.page_tokens = either(t.page_tokens, PAGE_TOKENS);
    t.sequences = either(t.sequences, 1);
    t.logit_rows = (uint32_t)rn_max_u64(t.logit_rows, t.sequences);
    RN_TRY(check_sizes(&t));
    uint64_t tokens = (uint64_t)t.sequences * t.context;
    t.pages = (uint32_t)rn_min_u64(either(t.pages, UINT32_MAX), count_pages(&t));
    t.rows = (uint32_t)rn_min_u64(either(t.rows, ROWS), tokens);
    g->text = t;
    g->vocab_size = maker->vocab_size;
    g->table_pages = (uint32_t)rn_div_up(t.context, t.page_tokens);
    g->recurrent = maker->recurrent;
    g->adapters = maker->adapters;
    g->pace = (rn_pace){.gap_ns = (uint64_t)g->options.max_gap_ms * 1000000};
    RN_TRY(limit_recurrent(g));
    g->text.rolling_windows = !g->options.prefix_caching;
    g->text.largest = wants_largest(g);
    if (g->options.speculation != RN_SPECULATE_NEVER)
        g->draft_most =
            (uint32_t)rn_min_u64(either(g->options.speculated_tokens, DRAFT), MOST_DRAFT);
    return RN_OK;
}

// ---- plans --------------------------------------------------------------------------------------

const rn_device_caps *rn_generator_caps(const rn_generator *g) {
    rn_device *device = g->options.session.device;
    return device ? rn_device_get_caps(device) : rn_cpu_caps();
}

static rn_status plan_with(const rn_text_maker *maker, const rn_generator *g,
                           const rn_text_options *text, const rn_plan_options *options,
                           rn_plan **out) {
    rn_recipe recipe = {0};
    *out = NULL;
    RN_TRY(maker->make(maker->self, text, &recipe));
    rn_status s = rn_plan_make(&recipe, rn_generator_caps(g), options, out);
    rn_recipe_destroy(&recipe);
    return s;
}

// RN_OVER_BUDGET is an answer here, and no event for a profiler.
static rn_status try_plan(const rn_text_maker *maker, const rn_generator *g,
                          const rn_text_options *text, const rn_plan_options *options,
                          rn_plan **out) {
    rn_refusals_mute(true);
    rn_status s = plan_with(maker, g, text, options, out);
    rn_refusals_mute(false);
    return s;
}

// Whether checking drafts is worth what their logits take from the resident weights.
static bool is_better(const rn_generator *g, const rn_plan *drafting) {
    const rn_plan_summary *new = rn_plan_get_summary(drafting), *old = rn_plan_get_summary(g->plan);
    if (new->rows < 2) return false;
    return g->options.speculation == RN_SPECULATE_ALWAYS ||
           new->streamed_bytes <= old->streamed_bytes + old->streamed_bytes / 8;
}

static rn_status plan_drafting(const rn_text_maker *maker, rn_generator *g,
                               const rn_plan_options *options) {
    rn_text_options text = g->text;
    rn_plan *plan = NULL;
    text.logit_rows =
        (uint32_t)rn_max_u64(text.logit_rows, (uint64_t)text.sequences + g->draft_most);
    rn_status s = try_plan(maker, g, &text, options, &plan);
    if (s != RN_OK && s != RN_OVER_BUDGET) return s;
    if (s == RN_OK && is_better(g, plan)) {
        rn_plan_destroy(g->plan);
        g->plan = plan;
        g->text = text;
    } else {
        rn_plan_destroy(plan);
        g->draft_most = 0;
    }
    return RN_OK;
}

// ---- as many pages as fit -----------------------------------------------------------------------

// More pages are not worth weights that have to be read in every step, nor many more experts, nor
// prompts in crumbs.
static bool is_as_good(const rn_plan *plan, const rn_plan_summary *least) {
    const rn_plan_summary *s = rn_plan_get_summary(plan);
    return s->streamed_bytes <= least->streamed_bytes && s->rows >= least->rows / 2 &&
           s->expert_read_bytes <= least->expert_read_bytes + least->expert_read_bytes / 8;
}

// *out is NULL where so many pages do not fit.
static rn_status try_pages(const rn_text_maker *maker, const rn_generator *g, uint32_t pages,
                           const rn_plan_options *options, rn_plan **out) {
    rn_text_options text = g->text;
    text.pages = pages;
    rn_status s = try_plan(maker, g, &text, options, out);
    return s == RN_OVER_BUDGET ? RN_OK : s;
}

static void take_plan(rn_generator *g, rn_plan *plan, uint32_t pages) {
    rn_plan_destroy(g->plan);
    g->plan = plan;
    g->text.pages = pages;
}

// How many pages more than the plan has would fill the budget, were they all that grows.
static uint64_t guess_more(const rn_generator *g, const rn_plan_options *options) {
    const rn_plan_summary *s = rn_plan_get_summary(g->plan);
    uint64_t page = rn_generator_page_bytes(rn_plan_graph(g->plan));
    uint64_t share = rn_plan_room(options, options->budget_bytes);
    return share > s->planned_bytes ? (share - s->planned_bytes) / rn_max_u64(page, 1) : 0;
}

// Between the pages of the plan so far and `high`, which are too many. The draft is nearly always
// right; one page more shows it.
static rn_status search_pages(const rn_text_maker *maker, rn_generator *g, uint32_t high,
                              const rn_plan_options *options) {
    const rn_plan_summary least = *rn_plan_get_summary(g->plan);
    uint64_t more = rn_max_u64(guess_more(g, options), 1);
    while (high - g->text.pages > 1) {
        uint32_t pages = g->text.pages + (uint32_t)rn_min_u64(more, high - g->text.pages - 1);
        bool is_guess = more > 1;
        rn_plan *plan = NULL;
        RN_TRY(try_pages(maker, g, pages, options, &plan));
        bool fits = plan && is_as_good(plan, &least);
        if (fits) {
            take_plan(g, plan, pages);
        } else {
            rn_plan_destroy(plan);
            high = pages;
        }
        more = fits && is_guess ? 1 : (high - g->text.pages) / 2;
    }
    return RN_OK;
}

static bool is_best(const rn_generator *g, const rn_plan *plan) {
    const rn_plan_summary *s = rn_plan_get_summary(plan);
    return s->streamed_bytes == 0 && s->expert_read_bytes == 0 && s->rows == g->text.rows;
}

// RN_OVER_BUDGET is the refusal of the fewest pages.
static rn_status plan_pages(const rn_text_maker *maker, rn_generator *g,
                            const rn_plan_options *options) {
    uint32_t most = g->text.pages;
    rn_plan *full = NULL;
    RN_TRY(try_pages(maker, g, most, options, &full));
    if (full && is_best(g, full)) {
        g->plan = full;
        return RN_OK;
    }
    g->text.pages = g->options.least_pages;
    rn_status s = plan_with(maker, g, &g->text, options, &g->plan);
    if (s == RN_OK && full && is_as_good(full, rn_plan_get_summary(g->plan))) {
        take_plan(g, full, most);
        return RN_OK;
    }
    rn_plan_destroy(full);
    return s == RN_OK ? search_pages(maker, g, most, options) : s;
}

// ---- the refusal --------------------------------------------------------------------------------

// The smallest budget for a context of so many pages: with no budget to speak of, the refusal says
// at once what the most frugal plan takes, and that is one of a single row.
static uint64_t find_need(const rn_text_maker *maker, const rn_generator *g, uint32_t pages,
                          const rn_plan_options *options) {
    rn_text_options text = g->text;
    rn_plan_options none = *options;
    rn_plan *plan = NULL;
    text.context = (uint32_t)rn_min_u64((uint64_t)pages * text.page_tokens, text.context);
    text.pages = (uint32_t)rn_min_u64(text.pages, count_pages(&text));
    text.rows = 1;
    none.budget_bytes = 1;
    rn_status s = try_plan(maker, g, &text, &none, &plan);
    rn_plan_destroy(plan);
    return s == RN_OVER_BUDGET ? rn_last_refusal()->smallest_budget_bytes : UINT64_MAX;
}

typedef struct context_need {
    uint32_t pages;
    uint64_t bytes;
} context_need;

// Where the need would meet the budget if it grew evenly from low to high; strictly between them.
static uint32_t guess_pages(context_need low, context_need high, uint64_t budget_bytes) {
    double part = (double)(budget_bytes - low.bytes) / (double)(high.bytes - low.bytes);
    uint32_t more = (uint32_t)(part * (high.pages - low.pages));
    return low.pages + (uint32_t)rn_min_u64(rn_max_u64(more, 1), high.pages - low.pages - 1);
}

// The largest number of pages that fits, or 0; `high` does not.
static uint32_t find_most_pages(const rn_text_maker *maker, const rn_generator *g,
                                context_need high, const rn_plan_options *options) {
    context_need low = {1, find_need(maker, g, 1, options)};
    if (low.bytes > options->budget_bytes) return 0;
    while (high.pages - low.pages > 1) {
        uint32_t pages = guess_pages(low, high, options->budget_bytes);
        context_need between = {pages, find_need(maker, g, pages, options)};
        *(between.bytes <= options->budget_bytes ? &low : &high) = between;
    }
    return low.pages;
}

// Where it is the host that has no room for a device's plan, no context would help.
static rn_status refuse(const rn_text_maker *maker, const rn_generator *g,
                        const rn_plan_options *options) {
    rn_error_info error = *rn_last_error();
    rn_refusal refusal = *rn_last_refusal();
    context_need asked = {g->table_pages, refusal.smallest_budget_bytes};
    // Nor where planning itself had no memory.
    if (refusal.at_least || refusal.device != rn_generator_caps(g)->device)
        return rn_error_restore(&error);
    uint32_t pages = find_most_pages(maker, g, asked, options);
    rn_refusal_restore(&refusal);
    rn_status s = rn_error_restore(&error);
    if (pages == 0) return rn_hint(s, "%s; no context is small enough for this budget", error.hint);
    return rn_hint(s, "%s; with this budget the largest context that fits is %u tokens, not %u",
                   error.hint, pages * g->text.page_tokens, g->text.context);
}

// The plan's own tables and the session's, which no plan can plan. They count where the budget is
// the process's: where something is held beside the plan.
static rn_status count_tables(const rn_text_maker *maker, const rn_generator *g,
                              uint64_t *out_bytes) {
    rn_recipe recipe = {0};
    rn_graph *graph = NULL;
    RN_TRY(maker->make(maker->self, &g->text, &recipe));
    uint32_t fusions = rn_generator_caps(g)->fusions;
    rn_status s = rn_recipe_build(&recipe, fusions, &(rn_recipe_options){0}, &graph);
    if (s == RN_OK) *out_bytes = rn_plan_table_bytes(graph);
    rn_graph_destroy(graph);
    rn_recipe_destroy(&recipe);
    return s;
}

static rn_status count_beside(const rn_text_maker *maker, const rn_generator *g,
                              rn_plan_options *options) {
    uint64_t own = g->memory.held_bytes + sizeof *g, tables = 0;
    if (options->reserved_bytes) RN_TRY(count_tables(maker, g, &tables));
    own += tables;
    if (!rn_add_u64(options->reserved_bytes, own, &options->reserved_bytes))
        return rn_fail(RN_INVALID, "%llu bytes beside the plan",
                       (unsigned long long)g->options.plan.reserved_bytes);
    rn_device *device = g->options.session.device;
    return device ? rn_plan_options_for(device, &g->options.device_budget, options) : RN_OK;
}

// ---- moves --------------------------------------------------------------------------------------

bool rn_generator_may_be_hybrid(const rn_generator *g) {
    return rn_generator_caps(g)->own_memory && !g->options.plan.exact && !g->recurrent;
}

// The plan again, with the CPU's help in short steps where that is worth it. While pages and
// drafts are settled it is not asked for: that takes several plans each time.
static rn_status plan_hybrid(const rn_text_maker *maker, rn_generator *g, rn_plan_options *options,
                             const rn_device_caps *host_caps) {
    rn_text_options text = g->text;
    rn_plan *plan = NULL;
    if (!host_caps || g->recurrent || g->plan->compiled || g->plan->summary.streamed_bytes == 0)
        return RN_OK;
    bool rolls = rn_generator_held(g) > 0;
    text.rolling_windows = false; // pages go from side to side, and these layers have none
    options->host_caps = host_caps;
    rn_status s = rolls ? try_plan(maker, g, &text, options, &plan)
                        : plan_with(maker, g, &text, options, &plan);
    options->host_caps = NULL;
    if (rolls && (s == RN_OVER_BUDGET || (s == RN_OK && !plan->host))) {
        rn_plan_destroy(plan);
        return RN_OK;
    }
    if (s == RN_OK) {
        rn_plan_destroy(g->plan);
        g->plan = plan;
        g->text = text;
    }
    return s;
}

// Drafts and hybrid execution, each where it was asked for or seems worth it. In a hybrid step
// several rows are hardly cheaper than as many steps of one: no drafts then.
static rn_status plan_moves(const rn_text_maker *maker, rn_generator *g, rn_plan_options *options,
                            const rn_device_caps *host_caps) {
    bool always = g->options.speculation == RN_SPECULATE_ALWAYS;
    if (g->draft_most && always) RN_TRY(plan_drafting(maker, g, options));
    RN_TRY(plan_hybrid(maker, g, options, host_caps));
    if (always) return RN_OK;
    bool streams = rn_plan_get_summary(g->plan)->streamed_bytes > 0 && !g->plan->host;
    if (g->draft_most && streams) return plan_drafting(maker, g, options);
    g->draft_most = 0;
    return RN_OK;
}

static rn_status make_plan(const rn_text_maker *maker, rn_generator *g,
                           const rn_device_caps *host_caps) {
    rn_plan_options options = g->options.plan;
    RN_TRY(count_beside(maker, g, &options));
    uint32_t least = g->options.least_pages;
    rn_status s = least && least < g->text.pages
                      ? plan_pages(maker, g, &options)
                      : plan_with(maker, g, &g->text, &options, &g->plan);
    if (s == RN_OVER_BUDGET) return refuse(maker, g, &options);
    RN_TRY(s);
    return plan_moves(maker, g, &options, host_caps);
}

rn_status rn_generator_make_plan(const rn_text_maker *maker, rn_generator *g) {
    const rn_device_caps *caps = rn_generator_caps(g);
    rn_device *cpu = NULL;
    if (caps->own_memory) RN_TRY(rn_cpu_device_create(caps->threads, &cpu));
    rn_status s = make_plan(maker, g, cpu ? rn_device_get_caps(cpu) : NULL);
    rn_device_destroy(cpu);
    return s;
}

// generate_step.c — one step over the weights: run, draw, and only then keep.
//
//     line:  A makes tokens      B reads a prompt          C makes tokens, and drafts two
//     rows:  [ a9 ]              [ b0 b1 b2 b3 ... ]       [ c5 | c6? c7? ]
//     logits:  a9                  the last one, if there     c5   c6  c7
//
// Whatever can fail comes before the first sequence changes. A row that was read for a wrong draft
// has left its key and value in the cache; the row that comes there next overwrites it before any
// attention looks.
#include "generate/generate.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/workers.h"
#include "memory/budget.h"
#include "generate/speculate.h"
#include "runtime/session.h"

#include <ration/profile.h>

#include <stdio.h>

// ---- inputs -------------------------------------------------------------------------------------

static void write_rows(rn_generator *g, rn_sequence *s, uint32_t *row, uint32_t *logit) {
    uint32_t rows = s->turn.rows + s->turn.drafted;
    s->turn.logits = *logit;
    s->reach = (uint32_t)rn_max_u64(s->reach, s->read + rows);
    for (uint32_t i = 0; i < rows; i++, ++*row) {
        g->tokens[*row] = (int32_t)s->tokens[s->read + i];
        g->sequence[*row] = (int32_t)s->slot;
        g->position[*row] = (int32_t)(s->read + i);
        for (uint32_t a = 0; a < g->adapters; a++)
            g->chosen[(size_t)a * g->text.rows + *row] = s->adapter == a + 1;
        if (s->turn.draws && i + 1 >= s->turn.rows) g->wanted[(*logit)++] = (int32_t)*row;
    }
}

// Rows whose logits nobody wants are those of the first row. Returns how many are wanted.
static uint32_t write_inputs(rn_generator *g) {
    uint32_t row = 0, logit = 0;
    for (rn_sequence *s = g->line; s; s = s->next)
        write_rows(g, s, &row, &logit);
    for (uint32_t i = logit; i < g->text.logit_rows; i++)
        g->wanted[i] = 0;
    return logit;
}

// A rank that has some blocks of the model has some of its inputs.
static rn_status set(rn_generator *g, const char *name, const void *data, size_t bytes) {
    bool has =
        !g->job.comm || rn_graph_find(rn_plan_graph(g->plan), RN_ROLE_INPUT, name) != RN_NO_VALUE;
    return has ? rn_session_set(g->session, name, data, bytes) : RN_OK;
}

static rn_status set_choices(rn_generator *g, uint32_t rows) {
    char name[32];
    for (uint32_t a = 0; a < g->adapters; a++) {
        snprintf(name, sizeof name, "adapter.%u", a + 1);
        RN_TRY(set(g, name, g->chosen + (size_t)a * g->text.rows, rows * sizeof(float)));
    }
    return RN_OK;
}

rn_status rn_generator_set_inputs(rn_generator *g, uint32_t rows) {
    RN_TRY(set_choices(g, rows));
    size_t places = (size_t)g->text.sequences * g->table_pages;
    RN_TRY(set(g, "tokens", g->tokens, rows * sizeof(int32_t)));
    RN_TRY(set(g, "sequence", g->sequence, rows * sizeof(int32_t)));
    RN_TRY(set(g, "position", g->position, rows * sizeof(int32_t)));
    RN_TRY(set(g, "page_table", g->page_table, places * sizeof(int32_t)));
    return set(g, "rows", g->wanted, g->text.logit_rows * sizeof(int32_t));
}

// ---- drawing ------------------------------------------------------------------------------------

// What a step brought: logits, or what of them is wanted.
typedef struct drawn_from {
    const float *logits; // (logit_rows, vocab); NULL: the other two
    const int32_t *largest;
    const float *peak; // (logit_rows) each
} drawn_from;

static rn_status draw_row(rn_sequence *s, const drawn_from *from, uint32_t row, uint32_t at,
                          rn_sample *out) {
    if (!from->logits)
        return rn_sampler_take_largest((uint32_t)from->largest[row], from->peak[row], out);
    return rn_sampler_draw(&s->sampler, from->logits + (size_t)row * s->generator->vocab_size,
                           s->tokens, at, at, out);
}

// A token from each row, as long as the row before it was of the token that was drawn. What fails
// behind the first is tried again in the next step, when it is the first.
static void draw(rn_sequence *s, const drawn_from *from) {
    bool goes_on = true;
    for (uint32_t i = 0; goes_on; i++) {
        uint32_t at = s->count + i;
        rn_sample *sample = &s->samples[i];
        rn_status status = draw_row(s, from, s->turn.logits + i, at, sample);
        if (status != RN_OK && i == 0) s->failure = *rn_last_error();
        if (status != RN_OK) return;
        goes_on = i < s->turn.drafted && s->tokens[at] == sample->token;
        s->tokens[at] = sample->token;
        s->turn.made = i + 1;
    }
}

// The draws of a step, dealt out to `parts` hands.
typedef struct drawing {
    rn_generator *g;
    const drawn_from *from;
    uint32_t parts;
} drawing;

static void draw_part(void *self, size_t part) {
    const drawing *d = self;
    uint32_t turn = 0;
    for (rn_sequence *s = d->g->line; s; s = s->next) {
        if (!s->turn.draws || turn++ % d->parts != part) continue;
        if (part < d->g->drawers) s->sampler.scratch = d->g->scratch[part];
        draw(s, d->from);
    }
}

// Only who takes the largest logit draws without scratch: then all threads may.
static void draw_all(rn_generator *g, const drawn_from *from) {
    rn_workers *workers = g->session->device->workers;
    uint32_t count = 0;
    bool all_plain = workers != NULL;
    for (const rn_sequence *s = g->line; s; s = s->next) {
        count += s->turn.draws;
        all_plain &= !s->turn.draws || rn_sampling_is_plain(&s->sampler.sampling);
    }
    uint64_t most = all_plain ? rn_workers_count(workers) : g->drawers;
    drawing d = {.g = g, .from = from, .parts = (uint32_t)rn_min_u64(count, most)};
    if (!from->logits) d.parts = 1; // nothing to look through
    rn_profile_begin(rn_profile_name("sample"));
    if (d.parts > 1 && workers)
        rn_workers_run(workers, d.parts, draw_part, &d);
    else
        for (uint32_t part = 0; part < d.parts; part++)
            draw_part(&d, part);
    rn_profile_end();
}

// ---- computing ----------------------------------------------------------------------------------

// Whether nobody looks at the logits themselves.
static bool wants_largest(const rn_generator *g) {
    for (const rn_sequence *s = g->line; s; s = s->next)
        if (s->turn.draws && !rn_sampling_is_greedy(&s->sampler.sampling)) return false;
    return g->text.largest;
}

// The next step, where every row is a sequence's last token and will be followed by the one that
// the program finds. It may be begun in vain: its key and value lie where the next row of that
// sequence comes. States and rolling windows, which do not go back, are not for that.
static rn_next_run foresee(const rn_generator *g, uint32_t rows) {
    const rn_graph *graph = rn_plan_graph(g->plan);
    bool may = g->session->unwanted != RN_NO_VALUE && g->draft_most == 0 && !g->recurrent &&
               g->held == 0 && rows == g->text.logit_rows;
    for (const rn_sequence *s = g->line; s && may; s = s->next)
        may = s->turn.rows == 0 || (s->turn.rows == 1 && s->turn.draws &&
                                    (s->read + 1) / g->text.page_tokens < s->pages.count);
    if (!may) return (rn_next_run){RN_NO_VALUE, RN_NO_VALUE, RN_NO_VALUE};
    return (rn_next_run){.fed = rn_graph_find(graph, RN_ROLE_INPUT, "tokens"),
                         .from = rn_graph_find(graph, RN_ROLE_OUTPUT, "largest"),
                         .counted = rn_graph_find(graph, RN_ROLE_INPUT, "position")};
}

static drawn_from find_drawn(const rn_generator *g) {
    uint64_t bytes = 0;
    if (g->session->unwanted == RN_NO_VALUE)
        return (drawn_from){.logits = rn_session_output(g->session, "logits", &bytes)};
    return (drawn_from){.largest = rn_session_output(g->session, "largest", &bytes),
                        .peak = rn_session_output(g->session, "peak", &bytes)};
}

// What one rank has failed at, no other can do again: `failed` is of no use here.
static rn_status compute_on_ranks(rn_generator *g, uint32_t rows) {
    drawn_from from = {0};
    RN_TRY(rn_ranks_run(g, rows, write_inputs(g), &from.logits));
    if (from.logits) draw_all(g, &from);
    return RN_OK;
}

static rn_status compute(rn_generator *g, uint32_t rows) {
    if (g->job.comm) return compute_on_ranks(g, rows);
    bool on_host = rn_session_is_hybrid(g->session, rows);
    const rn_graph *graph = rn_plan_graph(g->plan);
    g->session->unwanted =
        wants_largest(g) ? rn_graph_find(graph, RN_ROLE_OUTPUT, "logits") : RN_NO_VALUE;
    g->session->next = foresee(g, rows);
    if (g->failed) RN_TRY(rn_session_reset(g->session));
    g->failed = true;
    (void)write_inputs(g);
    // Pages that were never taken lie below all others on the pool's stack: those that ever were
    // are the first ones.
    RN_TRY(rn_session_hold_pages(g->session, g->pool.taken_peak));
    RN_TRY(rn_kv_sides_sync(g, on_host));
    RN_TRY(rn_generator_set_inputs(g, rows));
    RN_TRY(rn_session_run(g->session, rows));
    rn_kv_sides_wrote(g, on_host);
    g->failed = false;
    drawn_from from = find_drawn(g);
    draw_all(g, &from);
    return RN_OK;
}

// ---- keeping ------------------------------------------------------------------------------------

static void keep_made(rn_generator *g, rn_sequence *s) {
    const rn_turn *t = &s->turn;
    s->made = t->made;
    s->count += t->made;
    s->read = s->count - 1;
    g->facts.speculated_tokens += t->drafted;
    g->facts.accepted_tokens += t->made - 1;
    s->draft_length = rn_draft_adapt(s->draft_length, t->drafted, t->made - 1, g->draft_most);
}

static void keep_turn(rn_generator *g, rn_sequence *s) {
    const rn_turn *t = &s->turn;
    if (t->rows == 0) return;
    uint32_t prompt = s->prompt_end > s->read ? s->prompt_end - s->read : 0;
    g->facts.prompt_tokens += rn_min_u64(prompt, t->rows);
    g->facts.new_tokens += t->made;
    s->read += t->rows;
    s->is_making = s->failure.status == RN_OK;
    if (t->made)
        keep_made(g, s);
    else
        rn_sequence_go_back(s, s->count - 1);
    rn_sequence_publish(s, (uint32_t)rn_min_u64(s->read, s->taken - 1));
    rn_sequence_trim(s);
}

// Those that made tokens go to the end of the line; a prompt keeps its place until it is read.
static void move_on(rn_generator *g) {
    rn_sequence *old = g->line, *served = NULL, **end = &g->line, **served_end = &served;
    for (rn_sequence *s = old; s; s = s->next) {
        rn_sequence ***list = s->turn.draws ? &served_end : &end;
        **list = s;
        *list = &s->next;
    }
    *served_end = NULL;
    *end = served;
}

// Rows of the step that are not one token of an answer.
static uint32_t count_prompt_rows(const rn_generator *g) {
    uint32_t rows = 0;
    for (const rn_sequence *s = g->line; s; s = s->next)
        if (s->turn.rows > 1 || !s->turn.draws) rows += s->turn.rows;
    return rows;
}

static void keep(rn_generator *g, bool has_prompt, uint64_t nanoseconds) {
    double seconds = (double)nanoseconds * 1e-9;
    uint64_t made_before = g->facts.new_tokens;
    rn_pace_learn(&g->pace, count_prompt_rows(g), nanoseconds);
    for (rn_sequence *s = g->line; s; s = s->next)
        keep_turn(g, s);
    move_on(g);
    g->facts.steps++;
    g->facts.prefill_steps += has_prompt;
    if (!has_prompt) g->facts.decoded_tokens += g->facts.new_tokens - made_before;
    *(has_prompt ? &g->facts.prefill_seconds : &g->facts.new_seconds) += seconds;
}

// ---- a step -------------------------------------------------------------------------------------

bool rn_generator_has_work(const rn_generator *g) {
    for (const rn_sequence *s = g->line; s; s = s->next)
        if (rn_sequence_is_busy(s)) return true;
    return false;
}

static rn_status refuse_page(const rn_generator *g) {
    uint64_t pages = g->pool.page_count, bytes = g->facts.kv_page_bytes;
    rn_refusal_keep(&(rn_refusal){.device = g->session->device->caps.device,
                                  .purpose = RN_PURPOSE_KV,
                                  .requested_bytes = bytes,
                                  .budget_bytes = pages * bytes,
                                  .smallest_budget_bytes = (pages + 1) * bytes});
    return rn_hint(rn_fail(RN_OVER_BUDGET,
                           "all %llu pages of the KV cache (%u tokens each) are taken or promised, "
                           "and each sequence needs one more",
                           (unsigned long long)pages, g->text.page_tokens),
                   "end or rewind a sequence, or plan for more pages");
}

rn_status rn_generator_step(rn_generator *g) {
    uint64_t begin = rn_clock_ns();
    bool has_prompt = false;
    if (!rn_generator_has_work(g)) return RN_OK;
    uint32_t rows = rn_generator_share_rows(g, &has_prompt);
    rn_profile_begin(rn_profile_name(has_prompt ? "prefill" : "decode"));
    rn_status s = rows ? compute(g, rows) : refuse_page(g);
    rn_profile_end();
    if (s == RN_OK) {
        keep(g, has_prompt, rn_clock_ns() - begin);
        return RN_OK;
    }
    for (rn_sequence *each = g->line; each; each = each->next) {
        if (g->recurrent && rows && each->turn.rows) each->read = 0; // some layers have gone on
        rn_sequence_trim(each);
    }
    return s;
}

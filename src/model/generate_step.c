// generate_step.c — one pass over the weights: who gets which rows, run, draw, and only then keep.
//
//     line:  A makes tokens      B reads a prompt          C makes tokens, and guesses two
//     rows:  [ a9 ]              [ b0 b1 b2 b3 ... ]       [ c5 | c6? c7? ]
//     logits:  a9                  the last one, if there     c5   c6  c7
//
// Whatever can fail comes before the first sequence changes. A row that was read for a wrong guess
// has left its key and value in the cache; the row that comes there next overwrites it before any
// attention looks.
#include "model/generate.h"

#include "base/checked.h"
#include "base/clock.h"
#include "memory/budget.h"
#include "model/speculate.h"
#include "runtime/session.h"

#include <ration/profile.h>

// ---- rows ---------------------------------------------------------------------------------------

typedef struct pass {
    rn_generator *g;
    uint32_t rows_left, logits_left;
    uint32_t makers; // further back in line, with a row to come for each
    bool has_prompt;
} pass;

static bool makes_tokens(const rn_sequence *s) {
    return rn_sequence_is_busy(s) && s->count - s->read == 1;
}

// Pages for the tokens [0, end); returns how far they reach.
static uint32_t reach(rn_sequence *s, uint32_t end) {
    rn_generator *g = s->generator;
    uint32_t needed = (uint32_t)rn_div_up(end, g->text.page_tokens);
    int32_t *list = g->page_table + (size_t)s->slot * g->table_pages;
    if (needed > s->pages) s->pages = rn_page_pool_resize(&g->pool, list, s->pages, needed);
    return (uint32_t)rn_min_u64(end, (uint64_t)s->pages * g->text.page_tokens);
}

// A row for each that makes tokens; what is left goes to the prompts, from the front of the line.
static void give_rows(pass *p, rn_sequence *s) {
    s->turn = (rn_turn){0};
    s->is_waiting = false;
    if (!rn_sequence_is_busy(s)) return;
    p->makers -= makes_tokens(s);
    if (p->rows_left == 0) return;
    uint32_t wanted = s->count - s->read;
    uint32_t kept = (uint32_t)rn_min_u64(p->makers, p->rows_left - 1);
    uint32_t rows = reach(s, s->read + (uint32_t)rn_min_u64(wanted, p->rows_left - kept)) - s->read;
    s->is_waiting = rows == 0;
    s->turn.rows = rows;
    s->turn.draws = rows == wanted;
    p->rows_left -= rows;
    p->logits_left -= s->turn.draws;
    p->has_prompt |= rows && s->read < s->prompt_end;
}

static void give_draft(pass *p, rn_sequence *s) {
    const rn_generator *g = p->g;
    if (!s->turn.draws || s->turn.rows > 1 || s->read < s->prompt_end) return;
    uint64_t most = rn_min_u64(rn_min_u64(g->draft_most, s->draft_length),
                               rn_min_u64(p->rows_left, p->logits_left));
    most = rn_min_u64(most, g->text.context - s->count - 1);
    uint32_t drafted = rn_draft_find(s->tokens, s->count, (uint32_t)most);
    s->turn.drafted = reach(s, s->count + drafted) - s->count;
    p->rows_left -= s->turn.drafted;
    p->logits_left -= s->turn.drafted;
}

// Returns the pass's rows.
static uint32_t share_rows(pass *p) {
    rn_generator *g = p->g;
    for (rn_sequence *s = g->line; s; s = s->next)
        p->makers += makes_tokens(s);
    for (rn_sequence *s = g->line; s; s = s->next)
        give_rows(p, s);
    for (rn_sequence *s = g->line; s; s = s->next)
        give_draft(p, s);
    return g->rows - p->rows_left;
}

// ---- inputs -------------------------------------------------------------------------------------

static void write_rows(rn_generator *g, rn_sequence *s, uint32_t *row, uint32_t *logit) {
    uint32_t rows = s->turn.rows + s->turn.drafted;
    s->turn.logits = *logit;
    for (uint32_t i = 0; i < rows; i++, ++*row) {
        g->tokens[*row] = (int32_t)s->tokens[s->read + i];
        g->sequence[*row] = (int32_t)s->slot;
        g->position[*row] = (int32_t)(s->read + i);
        if (s->turn.draws && i + 1 >= s->turn.rows) g->wanted[(*logit)++] = (int32_t)*row;
    }
}

// Rows whose logits nobody wants are those of the first row.
static rn_status set_inputs(rn_generator *g, uint32_t rows) {
    uint32_t row = 0, logit = 0;
    size_t places = (size_t)g->text.sequences * g->table_pages;
    for (rn_sequence *s = g->line; s; s = s->next)
        write_rows(g, s, &row, &logit);
    while (logit < g->text.logit_rows)
        g->wanted[logit++] = 0;
    RN_TRY(rn_session_set(g->session, "tokens", g->tokens, rows * sizeof(int32_t)));
    RN_TRY(rn_session_set(g->session, "sequence", g->sequence, rows * sizeof(int32_t)));
    RN_TRY(rn_session_set(g->session, "position", g->position, rows * sizeof(int32_t)));
    RN_TRY(rn_session_set(g->session, "rows", g->wanted, logit * sizeof(int32_t)));
    return rn_session_set(g->session, "page_table", g->page_table, places * sizeof(int32_t));
}

// ---- drawing ------------------------------------------------------------------------------------

// The host's memory is read where it lies.
static rn_status get_logits(rn_generator *g, const float **out) {
    *out = g->logits;
    if (g->logits)
        return rn_session_get(g->session, "logits", g->logits,
                              (uint64_t)g->text.logit_rows * g->vocab_size * sizeof(float));
    *out = (const float *)(const void *)rn_session_address(g->session, g->logits_at);
    return RN_OK;
}

// A token from each row, as long as the row before it was of the token that was drawn.
static rn_status draw(rn_sequence *s, const float *logits /* (1 + drafted, vocab) */) {
    bool goes_on = true;
    for (uint32_t i = 0; goes_on; i++, logits += s->generator->vocab_size) {
        uint32_t at = s->count + i;
        rn_sample *sample = &s->samples[i];
        RN_TRY(rn_sampler_draw(&s->sampler, logits, s->tokens, at, at, sample));
        goes_on = i < s->turn.drafted && s->tokens[at] == sample->token;
        s->tokens[at] = sample->token;
        s->turn.made = i + 1;
    }
    return RN_OK;
}

static rn_status draw_all(rn_generator *g, const float *logits /* (logit_rows, vocab) */) {
    rn_status status = RN_OK;
    rn_profile_begin(rn_profile_name("sample"));
    for (rn_sequence *s = g->line; s && status == RN_OK; s = s->next)
        if (s->turn.draws) status = draw(s, logits + (size_t)s->turn.logits * g->vocab_size);
    rn_profile_end();
    return status;
}

static rn_status compute(rn_generator *g, uint32_t rows) {
    const float *logits = NULL; // (logit_rows, vocab_size)
    if (g->failed) RN_TRY(rn_session_reset(g->session));
    g->failed = true;
    RN_TRY(set_inputs(g, rows));
    RN_TRY(rn_session_run(g->session, rows));
    RN_TRY(get_logits(g, &logits));
    g->failed = false;
    return draw_all(g, logits);
}

// ---- keeping ------------------------------------------------------------------------------------

static void keep_turn(rn_generator *g, rn_sequence *s) {
    const rn_turn *t = &s->turn;
    uint32_t prompt = s->prompt_end > s->read ? s->prompt_end - s->read : 0;
    g->facts.prompt_tokens += rn_min_u64(prompt, t->rows);
    g->facts.new_tokens += t->made;
    s->read += t->rows;
    if (t->draws) {
        s->made = t->made;
        s->count += t->made;
        s->read = s->count - 1;
        g->facts.speculated_tokens += t->drafted;
        g->facts.accepted_tokens += t->made - 1;
        s->draft_length = rn_draft_adapt(s->draft_length, t->drafted, t->made - 1, g->draft_most);
    }
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

static void keep(rn_generator *g, bool has_prompt, uint64_t nanoseconds) {
    double seconds = (double)nanoseconds * 1e-9;
    uint64_t made_before = g->facts.new_tokens;
    for (rn_sequence *s = g->line; s; s = s->next)
        keep_turn(g, s);
    move_on(g);
    g->facts.passes++;
    g->facts.prompt_passes += has_prompt;
    if (!has_prompt) g->facts.decoded_tokens += g->facts.new_tokens - made_before;
    *(has_prompt ? &g->facts.prompt_seconds : &g->facts.new_seconds) += seconds;
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
                           "all %llu pages of the KV cache (%u tokens each) are taken, and each "
                           "sequence needs one more",
                           (unsigned long long)pages, g->text.page_tokens),
                   "end, pause or rewind a sequence, or plan for more pages");
}

rn_status rn_generator_step(rn_generator *g) {
    uint64_t begin = rn_clock_ns();
    pass p = {.g = g, .rows_left = g->rows, .logits_left = g->text.logit_rows};
    if (!rn_generator_has_work(g)) return RN_OK;
    uint32_t rows = share_rows(&p);
    rn_profile_begin(rn_profile_name(p.has_prompt ? "prefill" : "decode"));
    rn_status s = rows ? compute(g, rows) : refuse_page(g);
    rn_profile_end();
    if (s == RN_OK) {
        keep(g, p.has_prompt, rn_clock_ns() - begin);
        return RN_OK;
    }
    for (rn_sequence *each = g->line; each; each = each->next)
        rn_sequence_trim(each);
    return s;
}

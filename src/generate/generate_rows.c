// generate_rows.c — who gets which rows of a step.
//
// A row for each that makes tokens: they are what somebody waits for word by word. What is left
// goes to prompts (beside answers as many rows as their readers can wait for: pace.h), the
// shortest first, for a short one should not wait behind a long one; but each
// step that a prompt has waited makes it a quarter of a chunk shorter, so none waits for ever.
//
// Of prompts that begin alike only one reads a page; the others find it in the next step.
#include "generate/generate.h"

#include "base/checked.h"
#include "generate/speculate.h"
#include "runtime/session.h"

#include <string.h>

enum { PASSES_A_CHUNK = 4 }; // of waiting weigh as much as a chunk to read

typedef struct step {
    rn_generator *g;
    uint32_t rows_left, logits_left;
    uint32_t makers;  // with a row
    uint32_t prompts; // in the heap
} step;

// ---- rows ---------------------------------------------------------------------------------------

static bool makes_tokens(const rn_sequence *s) {
    return rn_sequence_is_busy(s) && s->count - s->read == 1;
}

// Pages for the tokens [0, end); returns how far they reach.
static uint32_t reach(rn_sequence *s, uint32_t end) {
    rn_generator *g = s->generator;
    uint32_t needed = (uint32_t)rn_div_up(end, g->text.page_tokens);
    if (needed > s->pages.count) rn_page_pool_resize(&g->pool, &s->pages, needed);
    return (uint32_t)rn_min_u64(end, (uint64_t)s->pages.count * g->text.page_tokens);
}

static void give_rows(step *p, rn_sequence *s, uint32_t most) {
    uint32_t wanted = s->count - s->read;
    uint32_t rows = reach(s, s->read + (uint32_t)rn_min_u64(wanted, most)) - s->read;
    s->is_waiting = rows == 0;
    s->turn.rows = rows;
    s->turn.draws = rows == wanted;
    p->rows_left -= rows;
    p->logits_left -= s->turn.draws;
}

// Leaves `kept` rows. Those that get none are further in front the next time.
static void serve_makers(step *p, uint32_t kept) {
    for (rn_sequence *s = p->g->line; s && p->rows_left > kept; s = s->next) {
        if (!makes_tokens(s) || s->turn.rows || s->is_waiting) continue;
        give_rows(p, s, 1);
        p->makers += s->turn.rows;
    }
}

static void give_draft(step *p, rn_sequence *s) {
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

// ---- the heap of prompts ------------------------------------------------------------------------

static bool is_before(rn_prompt a, rn_prompt b) {
    return a.rank != b.rank ? a.rank < b.rank : a.sequence->fed < b.sequence->fed;
}

static void push(step *p, rn_prompt prompt) {
    rn_prompt *heap = p->g->prompts;
    uint32_t at = p->prompts++;
    for (; at && is_before(prompt, heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = prompt;
}

static rn_sequence *pop(step *p) {
    rn_prompt *heap = p->g->prompts, last = heap[--p->prompts];
    rn_sequence *first = heap[0].sequence;
    for (uint32_t at = 0, child = 1;; at = child, child = 2 * at + 1) {
        if (child + 1 < p->prompts && is_before(heap[child + 1], heap[child])) child++;
        if (child >= p->prompts || !is_before(heap[child], last)) {
            heap[at] = last;
            return first;
        }
        heap[at] = heap[child];
    }
}

// All wait alike, so the step in which each was fed says as much as its age.
static uint64_t find_rank(const rn_sequence *s) {
    const rn_generator *g = s->generator;
    uint64_t chunk = rn_min_u64(g->options.prompt_rows ? g->options.prompt_rows : g->rows, g->rows);
    return PASSES_A_CHUNK * rn_div_up(s->count - s->read, chunk) + s->fed_step;
}

// ---- prompts ------------------------------------------------------------------------------------

static bool read_the_same_page(const rn_sequence *a, const rn_sequence *b) {
    uint32_t size = a->generator->text.page_tokens, begin = a->known * size;
    return a->known == b->known &&
           rn_page_before(&a->pages, a->known) == rn_page_before(&b->pages, b->known) &&
           memcmp(a->tokens + begin, b->tokens + begin, size * sizeof *a->tokens) == 0;
}

// Where it says who reads its next page in this step; NULL: that page is not to be shared. Two
// pages of the same hash cost a chance to wait, nothing else.
static const rn_sequence **find_reader(const rn_generator *g, const rn_sequence *s) {
    uint32_t size = g->text.page_tokens, begin = s->known * size;
    if (g->reader_count == 0 || s->count - begin < size) return NULL;
    int32_t before = rn_page_before(&s->pages, s->known);
    uint64_t hash = rn_prefix_hash(before, s->tokens + begin, size);
    return &g->readers[hash & (g->reader_count - 1)];
}

static bool can_wait_for(const rn_sequence *s, const rn_sequence *reader) {
    uint32_t size = s->generator->text.page_tokens;
    return reader && s->read == s->known * size && s->count - s->read > size &&
           read_the_same_page(reader, s);
}

// A reader is one that did get rows: nobody waits for one that waits itself.
static void serve_prompt(step *p, rn_sequence *s, uint32_t most) {
    const rn_sequence **reader = find_reader(p->g, s);
    if (reader && can_wait_for(s, *reader)) return;
    give_rows(p, s, most);
    if (reader && s->turn.rows) *reader = s;
}

static void serve_prompts(step *p) {
    rn_generator *g = p->g;
    uint32_t most = p->rows_left;
    if (p->makers && g->options.prompt_rows) most = g->options.prompt_rows;
    if (p->makers) most = (uint32_t)rn_min_u64(most, rn_pace_rows(&g->pace));
    uint32_t end = p->rows_left - (uint32_t)rn_min_u64(most, p->rows_left);
    if (g->reader_count) memset(g->readers, 0, g->reader_count * sizeof *g->readers);
    while (p->prompts && p->rows_left > end)
        serve_prompt(p, pop(p), p->rows_left - end);
}

// ---- a step -------------------------------------------------------------------------------------

static void begin_turns(step *p) {
    for (rn_sequence *s = p->g->line; s; s = s->next) {
        s->turn = (rn_turn){0};
        s->is_waiting = false;
        if (!rn_sequence_is_busy(s)) continue;
        rn_sequence_adopt(s);
        if (!makes_tokens(s)) push(p, (rn_prompt){.sequence = s, .rank = find_rank(s)});
    }
}

// A row is left for prompts; where there is only one, it goes to the kind that is in front of the
// line: those that make tokens leave it for its end, a prompt once it is read.
static uint32_t find_kept(const step *p) {
    const rn_sequence *front = p->g->line;
    if (p->prompts == 0) return 0;
    while (!rn_sequence_is_busy(front))
        front = front->next;
    return p->g->rows > 1 || !makes_tokens(front);
}

// How many more rows than these drafts must leave alone, so that a short step stays one.
static uint32_t keep_short(const rn_generator *g, uint32_t rows) {
    bool is_short = rn_session_is_hybrid(g->session, rows);
    return is_short ? g->rows - (uint32_t)g->plan->segments.rows : 0;
}

uint32_t rn_generator_share_rows(rn_generator *g, bool *out_has_prompt) {
    step p = {.g = g, .rows_left = g->rows, .logits_left = g->text.logit_rows};
    begin_turns(&p);
    serve_makers(&p, find_kept(&p));
    serve_prompts(&p);
    serve_makers(&p, 0);
    uint32_t kept = keep_short(g, g->rows - p.rows_left);
    p.rows_left -= kept;
    *out_has_prompt = false;
    for (rn_sequence *s = g->line; s; s = s->next) {
        give_draft(&p, s);
        *out_has_prompt |= s->turn.rows && s->read < s->prompt_end;
    }
    return g->rows - kept - p.rows_left;
}

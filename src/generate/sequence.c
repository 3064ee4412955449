// sequence.c — what a sequence is asked from outside, between steps.
#include "generate/generate.h"

#include "base/checked.h"

#include <assert.h>

// ---- line ---------------------------------------------------------------------------------------

void rn_sequence_queue(rn_sequence *sequence) {
    rn_sequence **end = &sequence->generator->line;
    while (*end)
        end = &(*end)->next;
    sequence->next = NULL;
    *end = sequence;
}

bool rn_sequence_is_busy(const rn_sequence *s) {
    return s->is_making && s->taken == s->count && s->count < s->generator->text.context;
}

// ---- pages --------------------------------------------------------------------------------------

// Whether all that the row at position `read` sees is still there.
static bool is_held(const rn_sequence *s, uint32_t read) {
    const rn_generator *g = s->generator;
    uint32_t first = read + 1 > g->window ? read + 1 - g->window : 0;
    return g->held == 0 || s->reach <= g->held + first;
}

void rn_sequence_go_back(rn_sequence *s, uint32_t read) {
    if (read >= s->read) return;
    s->read = s->generator->recurrent || !is_held(s, read) ? 0 : read;
    if (s->read == 0) s->reach = 0;
}

void rn_sequence_trim(rn_sequence *s) {
    rn_generator *g = s->generator;
    uint32_t needed = (uint32_t)rn_div_up(s->read, g->text.page_tokens);
    if (needed < s->pages.count) rn_page_pool_resize(&g->pool, &s->pages, needed);
}

void rn_sequence_publish(rn_sequence *s, uint32_t end) {
    rn_generator *g = s->generator;
    uint32_t full = end / g->text.page_tokens;
    for (; g->options.prefix_caching && s->known < full; s->known++)
        rn_page_pool_publish(&g->pool, &s->pages, s->known,
                             s->tokens + (size_t)s->known * g->text.page_tokens);
}

// The last token is read in any case: its row gives the logits.
void rn_sequence_adopt(rn_sequence *s) {
    rn_generator *g = s->generator;
    uint32_t size = g->text.page_tokens, begin = s->read;
    if (!g->options.prefix_caching || s->read != s->known * size) return;
    while (s->count - s->read > size &&
           rn_page_pool_adopt(&g->pool, &s->pages, s->tokens + s->read)) {
        s->known++;
        s->read += size;
    }
    s->shared += s->read - begin;
    g->facts.shared_tokens += s->read - begin;
}

bool rn_sequence_reserve(rn_sequence *s, size_t tokens) {
    rn_generator *g = s->generator;
    uint64_t most = rn_min_u64(tokens, g->text.context);
    return rn_page_pool_promise(&g->pool, &s->pages,
                                (uint32_t)rn_div_up(most, g->text.page_tokens));
}

// ---- life ---------------------------------------------------------------------------------------

rn_status rn_sequence_create(rn_generator *g, const rn_sampling *sampling, rn_sequence **out) {
    static const rn_sampling greedy = {0};
    rn_sequence *s = g->free;
    *out = NULL;
    if (!s)
        return rn_hint(rn_fail(RN_INVALID, "there are %u sequences already, as many as planned",
                               g->text.sequences),
                       "plan for more, or destroy one");
    RN_TRY(
        rn_sampler_init(&s->sampler, sampling ? sampling : &greedy, g->vocab_size, g->scratch[0]));
    g->free = s->next;
    *s = (rn_sequence){.generator = g,
                       .slot = s->slot,
                       .tokens = s->tokens,
                       .samples = s->samples,
                       .pages.pages = g->page_table + (size_t)s->slot * g->table_pages,
                       .draft_length = g->draft_most,
                       .sampler = s->sampler};
    rn_sequence_queue(s);
    *out = s;
    return RN_OK;
}

// Pages hold what an adapter made of the text, too.
static void set_root(rn_sequence *s) {
    uint64_t root = (uint64_t)s->owner * (s->generator->adapters + 1) + s->adapter;
    assert(root < INT32_MAX && s->pages.count == 0);
    s->pages.owner = (uint32_t)root;
}

void rn_sequence_set_owner(rn_sequence *s, uint32_t owner) {
    s->owner = owner;
    set_root(s);
}

rn_status rn_sequence_set_adapter(rn_sequence *s, uint32_t adapter) {
    if (adapter > s->generator->adapters)
        return rn_fail(RN_INVALID, "adapter %u: the model has %u to choose from", adapter,
                       s->generator->adapters);
    s->adapter = adapter;
    set_root(s);
    return RN_OK;
}

void rn_sequence_destroy(rn_sequence *s) {
    if (!s) return;
    rn_generator *g = s->generator;
    rn_sequence **at = &g->line;
    rn_sequence_rewind(s, 0);
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    s->next = g->free;
    g->free = s;
}

// ---- tokens -------------------------------------------------------------------------------------

rn_status rn_sequence_feed(rn_sequence *s, const uint32_t *ids, size_t count) {
    rn_generator *g = s->generator;
    if (s->taken + count == 0)
        return rn_hint(rn_fail(RN_INVALID, "there is no text to go on from"),
                       "begin with the beginning-of-text token");
    if (count > g->text.context - s->taken)
        return rn_hint(rn_fail(RN_INVALID, "%zu tokens and %u before them: the context has %u",
                               count, s->taken, g->text.context),
                       "a longer context, or a shorter text");
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= g->vocab_size)
            return rn_fail(RN_INVALID, "token %u: the vocabulary has %u", ids[i], g->vocab_size);
    rn_sequence_pause(s);
    for (size_t i = 0; i < count; i++)
        s->tokens[s->count + i] = ids[i];
    s->count += (uint32_t)count;
    s->taken = s->count;
    if (count) s->prompt_end = s->count;
    rn_sequence_go_back(s, s->count - 1); // the last token's row gives the logits
    s->is_making = true;
    s->failure.status = RN_OK;
    s->shared = 0;
    s->fed = g->feeds++;
    s->fed_step = g->facts.steps;
    rn_sequence_adopt(s);
    return RN_OK;
}

bool rn_sequence_take(rn_sequence *s, rn_sample *out) {
    if (s->taken == s->count) return false;
    *out = s->samples[s->made - (s->count - s->taken)];
    s->taken++;
    return true;
}

// A known page is not written any more: whoever goes back into one, or to its end, reads it again;
// to its end because the last token is read in any case.
static void forget(rn_sequence *s, uint32_t count) {
    uint32_t size = s->generator->text.page_tokens, last = count - (count > 0);
    s->count = s->taken = count;
    s->prompt_end = (uint32_t)rn_min_u64(s->prompt_end, count);
    rn_sequence_go_back(s, count);
    if (last < s->known * size) {
        s->known = last / size;
        s->read = s->known * size;
    }
    s->is_making = s->is_waiting = false;
    rn_sequence_trim(s);
}

void rn_sequence_pause(rn_sequence *s) {
    forget(s, s->taken);
}

// What is forgotten may well be fed again, to this one or another.
void rn_sequence_rewind(rn_sequence *s, size_t count) {
    (void)rn_sequence_reserve(s, 0);
    rn_sequence_publish(s, s->read);
    forget(s, (uint32_t)rn_min_u64(count, s->taken));
}

// ---- looking ------------------------------------------------------------------------------------

bool rn_sequence_is_full(const rn_sequence *s) {
    return s->count == s->generator->text.context;
}

bool rn_sequence_is_waiting(const rn_sequence *s) {
    return s->is_waiting;
}

size_t rn_sequence_shared(const rn_sequence *s) {
    return s->shared;
}

const rn_error_info *rn_sequence_failure(const rn_sequence *s) {
    return s->failure.status == RN_OK ? NULL : &s->failure;
}

const uint32_t *rn_sequence_tokens(const rn_sequence *s, size_t *out_count) {
    *out_count = s->taken;
    return s->tokens;
}

// sequence.c — what a sequence is asked from outside, between passes.
#include "model/generate.h"

#include "base/checked.h"

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

void rn_sequence_trim(rn_sequence *s) {
    rn_generator *g = s->generator;
    int32_t *list = g->page_table + (size_t)s->slot * g->table_pages;
    uint32_t needed = (uint32_t)rn_div_up(s->read, g->text.page_tokens);
    s->pages =
        rn_page_pool_resize(&g->pool, list, s->pages, (uint32_t)rn_min_u64(needed, s->pages));
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
    RN_TRY(rn_sampler_init(&s->sampler, sampling ? sampling : &greedy, g->vocab_size, g->scratch));
    g->free = s->next;
    *s = (rn_sequence){.generator = g,
                       .slot = s->slot,
                       .tokens = s->tokens,
                       .samples = s->samples,
                       .draft_length = g->draft_most,
                       .sampler = s->sampler};
    rn_sequence_queue(s);
    *out = s;
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
    const rn_generator *g = s->generator;
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
    s->read = (uint32_t)rn_min_u64(s->read, s->count - 1); // the last token's row gives the logits
    s->is_making = true;
    return RN_OK;
}

bool rn_sequence_take(rn_sequence *s, rn_sample *out) {
    if (s->taken == s->count) return false;
    *out = s->samples[s->made - (s->count - s->taken)];
    s->taken++;
    return true;
}

static void forget(rn_sequence *s, uint32_t count) {
    s->count = s->taken = count;
    s->prompt_end = (uint32_t)rn_min_u64(s->prompt_end, count);
    s->read = (uint32_t)rn_min_u64(s->read, count);
    s->is_making = s->is_waiting = false;
    rn_sequence_trim(s);
}

void rn_sequence_pause(rn_sequence *s) {
    forget(s, s->taken);
}

void rn_sequence_rewind(rn_sequence *s, size_t count) {
    forget(s, (uint32_t)rn_min_u64(count, s->taken));
}

// ---- looking ------------------------------------------------------------------------------------

bool rn_sequence_is_full(const rn_sequence *s) {
    return s->count == s->generator->text.context;
}

bool rn_sequence_is_waiting(const rn_sequence *s) {
    return s->is_waiting;
}

const uint32_t *rn_sequence_tokens(const rn_sequence *s, size_t *out_count) {
    *out_count = s->taken;
    return s->tokens;
}

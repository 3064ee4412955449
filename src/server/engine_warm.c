// engine_warm.c — the first passes on a target: that it works, and then with everything that
// clients will use, so that threads, caches and pages of memory are there before the first of them
// comes.
#include "server/engine_parts.h"

#include "base/checked.h"
#include "memory/account.h"

enum { CHUNK = 128 };

static uint32_t any_token(const rn_engine *e) {
    const rn_tokenizer_info *info = rn_tokenizer_get_info(e->tokenizing.tokenizer);
    return info->begin < e->tokenizing.vocab_size ? info->begin : 0;
}

static rn_status feed(rn_engine *e, rn_sequence *sequence, size_t count) {
    uint32_t ids[CHUNK];
    for (size_t i = 0; i < count; i++)
        ids[i] = any_token(e);
    return rn_sequence_feed(sequence, ids, count);
}

static rn_status make_one(rn_engine *e, rn_sequence *sequence) {
    rn_sample sample;
    do
        RN_TRY(rn_generator_step(e->generator));
    while (!rn_sequence_take(sequence, &sample) && rn_generator_has_work(e->generator));
    const rn_error_info *failure = rn_sequence_failure(sequence);
    return failure ? rn_error_restore(failure) : RN_OK;
}

rn_status rn_engine_try(rn_engine *e) {
    rn_sequence *sequence = NULL;
    RN_TRY(rn_sequence_create(e->generator, NULL, &sequence));
    rn_status s = feed(e, sequence, 1);
    if (s == RN_OK) s = make_one(e, sequence);
    rn_sequence_destroy(sequence);
    return s;
}

// What fits the context and the pages with a token behind it.
static size_t choose_chunk(const rn_tokenizing *in) {
    uint64_t room = rn_min_u64(in->context, (uint64_t)in->pages * in->page_tokens);
    return (size_t)rn_min_u64(CHUNK, room > 1 ? room / 2 : 1);
}

// Feeds as many sequences as there are pages for; the first reads a chunk.
static rn_status feed_all(rn_engine *e, rn_sequence **sequences, uint32_t *out_count) {
    size_t chunk = choose_chunk(&e->tokenizing);
    for (*out_count = 0; *out_count < e->tokenizing.sequences;) {
        size_t count = *out_count ? 1 : chunk;
        rn_sequence **sequence = &sequences[*out_count];
        RN_TRY(rn_sequence_create(e->generator, NULL, sequence));
        ++*out_count;
        RN_TRY(feed(e, *sequence, count));
        if (rn_sequence_reserve(*sequence, count + 1)) continue;
        rn_sequence_pause(*sequence);
        break;
    }
    return RN_OK;
}

static rn_status run_batch(rn_engine *e, rn_sequence **sequences, uint32_t count) {
    rn_sample sample;
    RN_TRY(make_one(e, sequences[0]));
    for (uint32_t i = 1; i < count; i++)
        (void)rn_sequence_take(sequences[i], &sample);
    return rn_generator_step(e->generator);
}

rn_status rn_engine_warm(rn_engine *e) {
    void *block = NULL;
    uint32_t count = 0, most = e->tokenizing.sequences;
    RN_TRY(rn_alloc_zeroed(RN_HOST_IO, most, sizeof(rn_sequence *), &block));
    rn_sequence **sequences = block;
    rn_status s = feed_all(e, sequences, &count);
    if (s == RN_OK) s = run_batch(e, sequences, count);
    for (uint32_t i = 0; i < count; i++)
        rn_sequence_destroy(sequences[i]);
    rn_free(RN_HOST_IO, block, most * sizeof(rn_sequence *));
    return s;
}

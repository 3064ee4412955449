// kv_prefix.c — a hash table whose nodes are the pages themselves, and a list of the kept ones.
#include "generate/kv_prefix.h"

#include <string.h>

static uint32_t *tokens_of(const rn_prefix_index *x, int32_t page) {
    return x->tokens + (size_t)page * x->page_tokens;
}

static size_t token_bytes(const rn_prefix_index *x) {
    return x->page_tokens * sizeof *x->tokens;
}

rn_status rn_prefix_init(rn_prefix_index *x, rn_arena *memory, uint32_t page_count,
                         uint32_t page_tokens) {
    void *pages = NULL, *tokens = NULL, *buckets = NULL;
    uint32_t bucket_count = 1;
    while (bucket_count < page_count)
        bucket_count *= 2;
    RN_TRY(rn_arena_array(memory, page_count, sizeof(rn_known_page), &pages));
    RN_TRY(rn_arena_array(memory, page_count, page_tokens * sizeof(uint32_t), &tokens));
    RN_TRY(rn_arena_array(memory, bucket_count, sizeof(int32_t), &buckets));
    memset(buckets, -1, bucket_count * sizeof(int32_t));
    *x = (rn_prefix_index){.pages = pages,
                           .tokens = tokens,
                           .buckets = buckets,
                           .page_count = page_count,
                           .page_tokens = page_tokens,
                           .bucket_count = bucket_count,
                           .oldest = RN_NO_PAGE,
                           .newest = RN_NO_PAGE};
    return RN_OK;
}

// ---- the table ----------------------------------------------------------------------------------

uint64_t rn_prefix_hash(int32_t before, const uint32_t *tokens, uint32_t count) {
    uint64_t hash = (uint32_t)before;
    for (uint32_t i = 0; i < count; i++)
        hash = (hash ^ hash >> 29 ^ tokens[i]) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

static uint32_t find_bucket(const rn_prefix_index *x, int32_t before, const uint32_t *tokens) {
    return (uint32_t)rn_prefix_hash(before, tokens, x->page_tokens) & (x->bucket_count - 1);
}

int32_t rn_prefix_find(const rn_prefix_index *x, int32_t before, const uint32_t *tokens) {
    if (x->page_count == 0) return RN_NO_PAGE;
    int32_t page = x->buckets[find_bucket(x, before, tokens)];
    while (page != RN_NO_PAGE && (x->pages[page].before != before ||
                                  memcmp(tokens_of(x, page), tokens, token_bytes(x)) != 0))
        page = x->pages[page].next;
    return page;
}

void rn_prefix_add(rn_prefix_index *x, int32_t page, int32_t before, const uint32_t *tokens) {
    uint32_t bucket = find_bucket(x, before, tokens);
    x->pages[page] = (rn_known_page){
        .before = before, .next = x->buckets[bucket], .bucket = bucket, .is_known = true};
    x->buckets[bucket] = page;
    memcpy(tokens_of(x, page), tokens, token_bytes(x));
}

static void forget(rn_prefix_index *x, int32_t page) {
    int32_t *at = &x->buckets[x->pages[page].bucket];
    while (*at != page)
        at = &x->pages[*at].next;
    *at = x->pages[page].next;
    x->pages[page].is_known = false;
}

// ---- the kept ones ------------------------------------------------------------------------------

void rn_prefix_keep(rn_prefix_index *x, int32_t page) {
    rn_known_page *p = &x->pages[page];
    p->older = x->newest;
    p->newer = RN_NO_PAGE;
    *(x->newest == RN_NO_PAGE ? &x->oldest : &x->pages[x->newest].newer) = page;
    x->newest = page;
    x->kept_count++;
}

void rn_prefix_hold(rn_prefix_index *x, int32_t page) {
    const rn_known_page *p = &x->pages[page];
    *(p->older == RN_NO_PAGE ? &x->oldest : &x->pages[p->older].newer) = p->newer;
    *(p->newer == RN_NO_PAGE ? &x->newest : &x->pages[p->newer].older) = p->older;
    x->kept_count--;
}

int32_t rn_prefix_forget_oldest(rn_prefix_index *x) {
    int32_t page = x->page_count ? x->oldest : RN_NO_PAGE;
    if (page == RN_NO_PAGE) return page;
    rn_prefix_hold(x, page);
    forget(x, page);
    return page;
}

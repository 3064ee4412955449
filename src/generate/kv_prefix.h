// kv_prefix.h — what full pages of the KV cache hold, so that a text that begins alike finds them.
//
//     ─ "You are a " ─ "helpful ma" ─┬─ "chine. Hi!"      a page is known by its tokens and the
//                                    └─ "chine. Why"      page before it: a path is a beginning
//
// A first page has a root before it, a number below 0: texts of different roots know nothing of
// each other, so that nobody can find out by its pages what another one has sent.
//
// Pages that nobody holds are kept, the newest last. Whoever holds a page holds all before it, and
// gives them back from the end; so of two kept pages the one further on is the older one, and
// forgetting the oldest never cuts a path in two.
#ifndef RN_RUNTIME_KV_PREFIX_H
#define RN_RUNTIME_KV_PREFIX_H

#include "base/arena.h"

#define RN_NO_PAGE (-1)

typedef struct rn_known_page {
    int32_t before;       // the page before it, or its root
    int32_t next;         // in its bucket
    int32_t older, newer; // where it is kept
    uint32_t bucket;
    bool is_known;
} rn_known_page;

typedef struct rn_prefix_index {
    rn_known_page *pages;                           // (page_count)
    uint32_t *tokens;                               // (page_count, page_tokens)
    int32_t *buckets;                               // (bucket_count)
    uint32_t page_count, page_tokens, bucket_count; // a power of two; page_count 0: knows nothing
    int32_t oldest, newest;                         // of the kept ones
    uint32_t kept_count;
} rn_prefix_index;

// Knows nothing; its memory is the arena's.
RN_MUST_USE rn_status rn_prefix_init(rn_prefix_index *index, rn_arena *memory, uint32_t page_count,
                                     uint32_t page_tokens);

// Of a page with these tokens behind `before`; says where to look, nothing more.
uint64_t rn_prefix_hash(int32_t before, const uint32_t *tokens, uint32_t count);
// The page with these tokens behind `before`, or RN_NO_PAGE.
int32_t rn_prefix_find(const rn_prefix_index *index, int32_t before,
                       const uint32_t *tokens /* (page_tokens) */);
// Someone holds it, and it is to be found from now on. Nothing equal may be known.
void rn_prefix_add(rn_prefix_index *index, int32_t page, int32_t before,
                   const uint32_t *tokens /* (page_tokens), copied */);
static inline bool rn_prefix_knows(const rn_prefix_index *index, int32_t page) {
    return index->page_count && index->pages[page].is_known;
}

// A known page that nobody holds any more, and one that is held again.
void rn_prefix_keep(rn_prefix_index *index, int32_t page);
void rn_prefix_hold(rn_prefix_index *index, int32_t page);
// The page that was kept longest, no longer known; RN_NO_PAGE: none is kept.
int32_t rn_prefix_forget_oldest(rn_prefix_index *index);

#endif

// kv_pages_pool.h — whose the pages of the KV cache are. All layers have the same pages, so one
// number stands for a page in each of them.
//
//     free ─▶ held by a list ─▶ free                            nobody knew what was in it
//                   ├─ known ─▶ held by several ─▶ kept ─┐      by an index of beginnings
//                   └──────────── adopted ◀──────────────┴─▶ free, where its room is needed
//
// A list may be promised pages. Free and kept ones together are never fewer than what is owed, so a
// list within its promise always gets one; the others get what is left beyond that.
#ifndef RN_RUNTIME_KV_PAGES_POOL_H
#define RN_RUNTIME_KV_PAGES_POOL_H

#include "generate/kv_prefix.h"

typedef struct rn_page_pool {
    int32_t *free;     // (free_count of page_count): those to be taken, the last first
    uint32_t *holders; // (page_count): lists that hold it
    uint32_t page_count, free_count;
    uint32_t owed;         // promised, and not taken yet
    uint32_t taken_peak;   // the most that were ever taken at once
    rn_prefix_index known; // of full pages
} rn_page_pool;

// The pages of one sequence, in order.
typedef struct rn_page_list {
    int32_t *pages; // a row of the page table: `count` pages, then -1
    uint32_t count;
    uint32_t promised; // pages in all, those that it has included
    uint32_t owner;    // finds pages of the same owner only, and is found by them; below INT32_MAX
} rn_page_list;

// What the page behind `at` others stands behind: the page before it, or the root of its owner.
static inline int32_t rn_page_before(const rn_page_list *list, uint32_t at) {
    return at ? list->pages[at - 1] : RN_NO_PAGE - (int32_t)list->owner;
}

// All are free, page 0 is taken first. page_tokens 0: what a page holds is never known. The memory
// is the arena's.
RN_MUST_USE rn_status rn_page_pool_init(rn_page_pool *pool, rn_arena *memory, uint32_t page_count,
                                        uint32_t page_tokens);
// As if it had been made with fewer pages. Only before one is taken.
void rn_page_pool_shrink(rn_page_pool *pool, uint32_t page_count);

// Makes the list `wanted` pages long, taking or releasing at its end, and returns how long it is:
// less than wanted where none is left. A list within its promise may release only pages that it
// alone holds.
uint32_t rn_page_pool_resize(rn_page_pool *pool, rn_page_list *list, uint32_t wanted);
// Promises so many pages in all; 0 takes the promise back. False, and nothing changes: there are
// not enough.
bool rn_page_pool_promise(rn_page_pool *pool, rn_page_list *list, uint32_t pages);

// Page `at` of the list is full, and known from now on; those before it are already. Where an equal
// one was known, the list has that one instead.
void rn_page_pool_publish(rn_page_pool *pool, rn_page_list *list, uint32_t at,
                          const uint32_t *tokens /* (page_tokens) */);
// Appends the known page with these tokens behind the list's own, which are all known. False: there
// is none, or its room is owed to others.
bool rn_page_pool_adopt(rn_page_pool *pool, rn_page_list *list,
                        const uint32_t *tokens /* (page_tokens) */);

// Those that can be had: free, or kept.
static inline uint32_t rn_page_pool_room(const rn_page_pool *pool) {
    return pool->free_count + pool->known.kept_count;
}

static inline uint32_t rn_page_pool_taken(const rn_page_pool *pool) {
    return pool->page_count - rn_page_pool_room(pool);
}

#endif

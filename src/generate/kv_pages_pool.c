// kv_pages_pool.c — a stack of free pages, holders counted, and promises as one number.
#include "generate/kv_pages_pool.h"

#include "base/checked.h"

#include <assert.h>

static void free_all(rn_page_pool *pool, uint32_t page_count) {
    pool->page_count = pool->free_count = page_count;
    for (uint32_t i = 0; i < page_count; i++)
        pool->free[i] = (int32_t)(page_count - 1 - i);
}

rn_status rn_page_pool_init(rn_page_pool *pool, rn_arena *memory, uint32_t page_count,
                            uint32_t page_tokens) {
    void *free = NULL, *holders = NULL;
    *pool = (rn_page_pool){0};
    RN_TRY(rn_arena_array(memory, page_count, sizeof *pool->free, &free));
    RN_TRY(rn_arena_array(memory, page_count, sizeof *pool->holders, &holders));
    pool->free = free;
    pool->holders = holders;
    free_all(pool, page_count);
    return page_tokens ? rn_prefix_init(&pool->known, memory, page_count, page_tokens) : RN_OK;
}

void rn_page_pool_shrink(rn_page_pool *pool, uint32_t page_count) {
    assert(rn_page_pool_taken(pool) == 0 && page_count <= pool->page_count);
    free_all(pool, page_count);
}

// ---- holding ------------------------------------------------------------------------------------

static uint32_t owed_to(const rn_page_list *list) {
    return list->promised > list->count ? list->promised - list->count : 0;
}

static void hold(rn_page_pool *pool, int32_t page) {
    if (pool->holders[page]++ == 0 && rn_prefix_knows(&pool->known, page))
        rn_prefix_hold(&pool->known, page);
}

static void let_go(rn_page_pool *pool, int32_t page) {
    if (--pool->holders[page]) return;
    if (rn_prefix_knows(&pool->known, page))
        rn_prefix_keep(&pool->known, page);
    else
        pool->free[pool->free_count++] = page;
}

// Whether a page that nobody holds may go to this list.
static bool may_take(const rn_page_pool *pool, const rn_page_list *list) {
    return owed_to(list) || rn_page_pool_room(pool) > pool->owed;
}

static void append(rn_page_pool *pool, rn_page_list *list, int32_t page) {
    pool->owed -= owed_to(list) > 0;
    hold(pool, page);
    list->pages[list->count++] = page;
    pool->taken_peak = (uint32_t)rn_max_u64(pool->taken_peak, rn_page_pool_taken(pool));
}

static int32_t take_free(rn_page_pool *pool) {
    return pool->free_count ? pool->free[--pool->free_count]
                            : rn_prefix_forget_oldest(&pool->known);
}

static void release(rn_page_pool *pool, rn_page_list *list) {
    int32_t page = list->pages[--list->count];
    list->pages[list->count] = RN_NO_PAGE;
    assert(!owed_to(list) || pool->holders[page] == 1);
    pool->owed += owed_to(list) > 0;
    let_go(pool, page);
}

uint32_t rn_page_pool_resize(rn_page_pool *pool, rn_page_list *list, uint32_t wanted) {
    while (list->count > wanted)
        release(pool, list);
    while (list->count < wanted && may_take(pool, list))
        append(pool, list, take_free(pool));
    return list->count;
}

bool rn_page_pool_promise(rn_page_pool *pool, rn_page_list *list, uint32_t pages) {
    rn_page_list promised = {.count = list->count, .promised = pages};
    uint32_t others = pool->owed - owed_to(list);
    if (owed_to(&promised) > rn_page_pool_room(pool) - others) return false;
    pool->owed = others + owed_to(&promised);
    list->promised = pages;
    return true;
}

// ---- knowing ------------------------------------------------------------------------------------

void rn_page_pool_publish(rn_page_pool *pool, rn_page_list *list, uint32_t at,
                          const uint32_t *tokens) {
    int32_t before = rn_page_before(list, at), own = list->pages[at];
    int32_t equal = rn_prefix_find(&pool->known, before, tokens);
    if (equal == RN_NO_PAGE) {
        rn_prefix_add(&pool->known, own, before, tokens);
        return;
    }
    hold(pool, equal);
    list->pages[at] = equal;
    let_go(pool, own);
}

bool rn_page_pool_adopt(rn_page_pool *pool, rn_page_list *list, const uint32_t *tokens) {
    int32_t before = rn_page_before(list, list->count);
    int32_t page = rn_prefix_find(&pool->known, before, tokens);
    if (page == RN_NO_PAGE || (pool->holders[page] == 0 && !may_take(pool, list))) return false;
    append(pool, list, page);
    return true;
}

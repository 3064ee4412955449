// kv_pages_pool.h — which pages of the KV cache are free. All layers have the same pages, so one
// number stands for a page in each of them. Takes no memory of its own.
#ifndef RN_RUNTIME_KV_PAGES_POOL_H
#define RN_RUNTIME_KV_PAGES_POOL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct rn_page_pool {
    int32_t *free; // (free_count of page_count): those to be taken, the last first
    uint32_t page_count, free_count;
    uint32_t taken_peak; // the most that were ever taken at once
} rn_page_pool;

// All are free; `room` (page_count) is the caller's. Page 0 is taken first.
void rn_page_pool_init(rn_page_pool *pool, int32_t *room, uint32_t page_count);

// A list of pages is a row of the page table: those taken, then -1. Makes it `wanted` pages long,
// taking or giving back at its end, and returns how long it is: less than wanted where none is
// left.
uint32_t rn_page_pool_resize(rn_page_pool *pool, int32_t *list, uint32_t count, uint32_t wanted);

static inline uint32_t rn_page_pool_taken(const rn_page_pool *pool) {
    return pool->page_count - pool->free_count;
}

#endif

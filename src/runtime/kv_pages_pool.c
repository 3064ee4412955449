// kv_pages_pool.c — a stack of free pages.
#include "runtime/kv_pages_pool.h"

void rn_page_pool_init(rn_page_pool *pool, int32_t *room, uint32_t page_count) {
    *pool = (rn_page_pool){.free = room, .page_count = page_count, .free_count = page_count};
    for (uint32_t i = 0; i < page_count; i++)
        room[i] = (int32_t)(page_count - 1 - i);
}

uint32_t rn_page_pool_resize(rn_page_pool *pool, int32_t *list, uint32_t count, uint32_t wanted) {
    for (; count > wanted; count--) {
        pool->free[pool->free_count++] = list[count - 1];
        list[count - 1] = -1;
    }
    for (; count < wanted && pool->free_count; count++)
        list[count] = pool->free[--pool->free_count];
    if (rn_page_pool_taken(pool) > pool->taken_peak) pool->taken_peak = rn_page_pool_taken(pool);
    return count;
}

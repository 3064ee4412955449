// http_block.c — a list of free blocks.
#include "server/http_block.h"

#include "memory/account.h"

#include <string.h>

#define FROM RN_HOST_IO

static void *pop(rn_http_blocks *blocks) {
    void *block = blocks->free;
    memcpy(&blocks->free, block, sizeof(void *));
    blocks->count--;
    if (blocks->count < blocks->least) blocks->least = blocks->count;
    return block;
}

void *rn_http_block_take(rn_http_blocks *blocks) {
    void *block = NULL;
    if (blocks->free) return pop(blocks);
    return rn_alloc(FROM, blocks->bytes, &block) == RN_OK ? block : NULL;
}

void rn_http_block_give(rn_http_blocks *blocks, void *block) {
    if (!block) return;
    memcpy(block, &blocks->free, sizeof(void *));
    blocks->free = block;
    blocks->count++;
}

void rn_http_block_release(rn_http_blocks *blocks) {
    for (uint32_t unused = blocks->least; unused; unused--)
        rn_free(FROM, pop(blocks), blocks->bytes);
    blocks->least = blocks->count;
}

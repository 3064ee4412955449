// http_block.h — blocks of one size that connections have while bytes are on their way. Those that
// are given back are kept for the next, so that the heap does not fray; what nobody has needed for
// a while goes back to the system.
#ifndef RN_SERVER_HTTP_BLOCK_H
#define RN_SERVER_HTTP_BLOCK_H

#include <stddef.h>
#include <stdint.h>

typedef struct rn_http_blocks {
    size_t bytes;          // of each
    void *free;            // a list; each begins with the address of the next
    uint32_t count, least; // on it now, and at least since the last release
} rn_http_blocks;

// NULL: there is no memory.
void *rn_http_block_take(rn_http_blocks *blocks);
void rn_http_block_give(rn_http_blocks *blocks, void *block); // NULL-safe
// Frees as many as were unused all the time since the last call. At the end: twice for all.
void rn_http_block_release(rn_http_blocks *blocks);

#endif

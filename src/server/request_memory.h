// request_memory.h — the bytes that all requests together may take: bodies, prompts, answers. A
// request takes its share before it allocates anything, so that what is promised can be kept.
#ifndef RN_SERVER_REQUEST_MEMORY_H
#define RN_SERVER_REQUEST_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct rn_request_memory {
    uint64_t total_bytes;
    _Atomic uint64_t taken_bytes, peak_bytes;
} rn_request_memory;

void rn_request_memory_init(rn_request_memory *memory, uint64_t total_bytes);
// From any thread. False: not now.
bool rn_request_memory_take(rn_request_memory *memory, uint64_t bytes);
void rn_request_memory_release(rn_request_memory *memory, uint64_t bytes);

#endif

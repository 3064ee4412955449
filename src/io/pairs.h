// pairs.h — metadata being collected for a file to be written: keys and values copied into an
// arena.
//
//     rn_pairs pairs;
//     rn_pairs_init(&pairs, RN_HOST_IO);
//     RN_TRY(rn_pairs_u32(&pairs, "llama.block_count", 22));
//     ... pairs.items, pairs.count ...
//     rn_pairs_free(&pairs);
//
// An array is given as GGUF lays its elements out: numbers, or texts that rn_pairs_put_text wrote.
#ifndef RN_IO_PAIRS_H
#define RN_IO_PAIRS_H

#include <ration/checkpoint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "io/gguf.h"

typedef struct rn_pairs {
    rn_arena arena;
    rn_metadata *items; // (count)
    size_t count, capacity;
} rn_pairs;

void rn_pairs_init(rn_pairs *pairs, const rn_allocator *from);
void rn_pairs_free(rn_pairs *pairs); // also one that is zero

RN_MUST_USE rn_status rn_pairs_u32(rn_pairs *pairs, const char *key, uint32_t value);
RN_MUST_USE rn_status rn_pairs_f32(rn_pairs *pairs, const char *key, float value);
RN_MUST_USE rn_status rn_pairs_bool(rn_pairs *pairs, const char *key, bool value);
RN_MUST_USE rn_status rn_pairs_text(rn_pairs *pairs, const char *key, rn_str value);
// Takes the buffer's bytes over: into the arena; the buffer is freed.
RN_MUST_USE rn_status rn_pairs_array(rn_pairs *pairs, const char *key, uint32_t gguf_type,
                                     uint64_t count, rn_buffer *raw);
// Appends a text as an element of an array.
RN_MUST_USE rn_status rn_pairs_put_text(rn_buffer *raw, rn_str text);

#endif

// arena.h — many small things with one lifetime: allocate freely, free once.
//
//     chunk ──▶ chunk ──▶ chunk (current)
//     [hdr|aaaa|bb|cccc|free....]
//
// Not thread-safe; owned by the object that it serves.
#ifndef RN_BASE_ARENA_H
#define RN_BASE_ARENA_H

#include "base/alloc.h"

typedef struct rn_arena_chunk rn_arena_chunk;

typedef struct rn_arena {
    const rn_allocator *from;
    rn_arena_chunk *current;
    size_t chunk_bytes; // size of an ordinary chunk, its header included
    size_t held_bytes;  // all chunks together
} rn_arena;

// Takes no memory yet. chunk_bytes == 0 gives 64 KiB.
void rn_arena_init(rn_arena *arena, const rn_allocator *from, size_t chunk_bytes);
// Zeroed, 16-byte aligned, lives until rn_arena_free_all. bytes == 0 gives a unique valid pointer.
RN_MUST_USE rn_status rn_arena_alloc(rn_arena *arena, size_t bytes, void **out);
// count * item_bytes, refused on overflow.
RN_MUST_USE rn_status rn_arena_array(rn_arena *arena, size_t count, size_t item_bytes, void **out);
// A copy of `bytes` bytes, followed by a NUL.
RN_MUST_USE rn_status rn_arena_copy(rn_arena *arena, const void *data, size_t bytes, void **out);
// Frees everything; the arena may be used again.
void rn_arena_free_all(rn_arena *arena);

#endif

// arena.c — a list of chunks, filled front to back. A large request that the current chunk has no
// room for gets one of its own, put behind the current one so that the current one's rest is not
// lost: no more than an eighth of any chunk is.
#include "base/arena.h"
#include "base/checked.h"

#include <string.h>

struct rn_arena_chunk {
    rn_arena_chunk *next;
    size_t bytes; // this chunk, header included
    size_t used;  // from the chunk's start
    size_t unused_padding;
};

enum { DEFAULT_CHUNK_BYTES = 64 << 10, HEADER_BYTES = sizeof(rn_arena_chunk), LARGE_DIVISOR = 8 };
_Static_assert(HEADER_BYTES % 16 == 0, "blocks after the header stay aligned");

void rn_arena_init(rn_arena *arena, const rn_allocator *from, size_t chunk_bytes) {
    *arena =
        (rn_arena){.from = from, .chunk_bytes = chunk_bytes ? chunk_bytes : DEFAULT_CHUNK_BYTES};
}

static rn_status add_chunk(rn_arena *arena, size_t with_header, rn_arena_chunk **out) {
    void *block;
    bool own = with_header > arena->chunk_bytes ||
               (arena->current && with_header > arena->chunk_bytes / LARGE_DIVISOR);
    size_t bytes = own ? with_header : arena->chunk_bytes;
    RN_TRY(rn_alloc(arena->from, bytes, &block));
    rn_arena_chunk *chunk = block;
    *chunk = (rn_arena_chunk){.bytes = bytes, .used = HEADER_BYTES};
    arena->held_bytes += bytes;
    if (arena->current && own) {
        chunk->next = arena->current->next;
        arena->current->next = chunk;
    } else {
        chunk->next = arena->current;
        arena->current = chunk;
    }
    *out = chunk;
    return RN_OK;
}

rn_status rn_arena_alloc(rn_arena *arena, size_t bytes, void **out) {
    size_t rounded, with_header;
    *out = NULL;
    if (!rn_add_size(bytes, bytes ? 15 : 16, &rounded) ||
        !rn_add_size(rounded, HEADER_BYTES, &with_header))
        return rn_fail(RN_NO_MEMORY, "an arena cannot hold %zu bytes", bytes);
    rounded &= ~(size_t)15;
    rn_arena_chunk *chunk = arena->current;
    if (!chunk || chunk->bytes - chunk->used < rounded)
        RN_TRY(add_chunk(arena, rounded + HEADER_BYTES, &chunk));
    *out = (char *)chunk + chunk->used;
    chunk->used += rounded;
    memset(*out, 0, rounded);
    return RN_OK;
}

rn_status rn_arena_array(rn_arena *arena, size_t count, size_t item_bytes, void **out) {
    size_t bytes;
    *out = NULL;
    if (!rn_mul_size(count, item_bytes, &bytes))
        return rn_fail(RN_NO_MEMORY, "%zu items of %zu bytes overflow", count, item_bytes);
    return rn_arena_alloc(arena, bytes, out);
}

rn_status rn_arena_copy(rn_arena *arena, const void *data, size_t bytes, void **out) {
    size_t with_nul;
    *out = NULL;
    if (!rn_add_size(bytes, 1, &with_nul)) return rn_fail(RN_NO_MEMORY, "text is too long");
    RN_TRY(rn_arena_alloc(arena, with_nul, out));
    if (bytes) memcpy(*out, data, bytes);
    return RN_OK;
}

void rn_arena_free_all(rn_arena *arena) {
    rn_arena_chunk *chunk = arena->current;
    while (chunk) {
        rn_arena_chunk *next = chunk->next;
        rn_free(arena->from, chunk, chunk->bytes);
        chunk = next;
    }
    arena->current = NULL;
    arena->held_bytes = 0;
}

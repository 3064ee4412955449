// record_log.c — an append-only list of records. `used` is published after the bytes, the number of
// chunks after the chunk; a chunk is final once there is a next one.
#include "profile/record/record.h"

#include "memory/account.h"

#include <string.h>

static bool add_chunk(rn_record_log *log, uint32_t count, uint32_t most_chunks) {
    void *block;
    if (count == most_chunks || count == RN_LOG_CHUNKS) return false;
    if (rn_alloc(&rn_host_allocators[RN_PURPOSE_PROFILER], RN_LOG_CHUNK, &block) != RN_OK)
        return false;
    log->chunks[count] = block;
    atomic_store(&log->used[count], 0);
    atomic_store_explicit(&log->chunk_count, count + 1, memory_order_release);
    return true;
}

const char *rn_record_log_append(rn_record_log *log, const void *record, uint32_t bytes,
                                 uint32_t most_chunks) {
    uint32_t count = atomic_load(&log->chunk_count);
    bool fits = count && atomic_load(&log->used[count - 1]) + bytes <= RN_LOG_CHUNK;
    if (!fits && !add_chunk(log, count++, most_chunks)) return NULL;
    uint32_t used = atomic_load(&log->used[count - 1]);
    char *at = log->chunks[count - 1] + used;
    memcpy(at, record, bytes);
    atomic_store_explicit(&log->used[count - 1], used + bytes, memory_order_release);
    return at;
}

bool rn_record_log_next(rn_record_log *log, rn_log_cursor *at, const char **out, uint32_t *bytes) {
    uint32_t count = atomic_load_explicit(&log->chunk_count, memory_order_acquire);
    for (; at->chunk < count; at->chunk++, at->offset = 0) {
        uint32_t used = atomic_load_explicit(&log->used[at->chunk], memory_order_acquire);
        if (used > at->offset) {
            *out = log->chunks[at->chunk] + at->offset;
            *bytes = used - at->offset;
            at->offset = used;
            return true;
        }
        if (at->chunk + 1 == count) return false;
    }
    return false;
}

void rn_record_log_free(rn_record_log *log) {
    uint32_t count = atomic_exchange(&log->chunk_count, 0);
    for (uint32_t i = 0; i < count; i++)
        rn_free(&rn_host_allocators[RN_PURPOSE_PROFILER], log->chunks[i], RN_LOG_CHUNK);
}

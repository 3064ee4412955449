// pool.c — chunks from a source, cut by rn_offsets.
//
// One rn_offsets spans all chunks and its offsets are the addresses themselves: an allocation looks
// at every chunk at once in O(1), nothing is translated, and its ranges are the list of chunks.
//
// Growing. A request up to chunk_bytes takes a chunk; a larger one a chunk of its own size. Steps
// of different shapes leave holes that fit nothing that comes later, so a pool that only grows ends
// at a multiple of what is live. Here a new peak of reserved bytes is the last resort: before it,
// what is free goes back to the source.
//
// Locks. `lock` guards the books and is held for nanoseconds. `growth` is held across source->grow,
// so that two threads in want of memory do not both take a chunk; it is taken before `lock`, and
// never by trim: a source may trim from inside grow.
#include <ration/text.h>
#include "memory/pool.h"
#include "memory/account.h"
#include "memory/ledger.h"
#include "memory/offsets.h"
#include "base/checked.h"
#include "base/reserved.h"

#include <pthread.h>

#define DEFAULT_CHUNK   ((size_t)64 << 20)
#define DEFAULT_STEP    ((size_t)8 << 20) // the same of flat memory: chunks join, so they may be small
#define DEFAULT_GRANULE ((size_t)256)
#define LARGE_ROUND     ((size_t)2 << 20) // separate chunks above chunk_bytes are multiples of it
#define MAX_BLOCK       (RN_OFFSETS_MAX_BYTES >> 1)
#define TRIM_BATCH      32

struct rn_pool {
    const rn_allocator *from;
    rn_pool_source source;
    rn_pool_options options;
    pthread_mutex_t growth;
    pthread_mutex_t lock; // guards what follows
    rn_offsets *offsets;
    uint64_t reserved_bytes, peak_reserved_bytes; // reserved == capacity of offsets
    uint64_t alloc_count;
};

// ---- lifetime ---------------------------------------------------------------------------------

static bool is_power_of_two(size_t value) {
    return value != 0 && (value & (value - 1)) == 0;
}

static rn_status choose_options(const rn_pool_options *given, size_t part_bytes,
                                rn_pool_options *out) {
    rn_pool_options options = given ? *given : (rn_pool_options){0};
    if (options.granule_bytes == 0) options.granule_bytes = DEFAULT_GRANULE;
    if (options.chunk_bytes == 0) options.chunk_bytes = part_bytes ? DEFAULT_STEP : DEFAULT_CHUNK;
    if (!is_power_of_two(options.granule_bytes) || options.granule_bytes > RN_OFFSETS_MAX_GRANULE)
        return rn_fail(RN_INVALID,
                       "a pool's granule of %zu bytes is not a power of two up to 1 GiB",
                       options.granule_bytes);
    if (part_bytes && (!is_power_of_two(part_bytes) || part_bytes < options.granule_bytes))
        return rn_fail(RN_INVALID, "a source's part of %zu bytes is not a power of two of granules",
                       part_bytes);
    if (options.chunk_bytes > MAX_BLOCK || part_bytes > MAX_BLOCK)
        return rn_fail(RN_INVALID, "a pool's chunk of %zu bytes is too large", options.chunk_bytes);
    *out = options;
    return RN_OK;
}

rn_status rn_pool_create_in(const rn_allocator *from, rn_pool_source source,
                            const rn_pool_options *options, rn_pool **out_pool) {
    *out_pool = NULL;
    rn_pool_options chosen;
    RN_TRY(choose_options(options, source.part_bytes, &chosen));
    void *memory;
    RN_TRY(rn_alloc_zeroed(from, 1, sizeof(rn_pool), &memory));
    rn_pool *pool = memory;
    pool->from = from;
    pool->source = source;
    pool->options = chosen;
    pthread_mutex_init(&pool->growth, NULL); // cannot fail for a plain mutex on Linux
    pthread_mutex_init(&pool->lock, NULL);
    rn_status status = rn_offsets_create(from, 0, chosen.granule_bytes, &pool->offsets);
    if (status == RN_OK)
        *out_pool = pool;
    else
        rn_pool_destroy(pool);
    return status;
}

rn_status rn_pool_create(rn_pool_source source, const rn_pool_options *options,
                         rn_pool **out_pool) {
    *out_pool = NULL;
    if (options) RN_TRY(rn_check_reserved(options->reserved, "rn_pool_options"));
    return rn_pool_create_in(RN_HOST_OTHER, source, options, out_pool);
}

void rn_pool_destroy(rn_pool *pool) {
    if (!pool) return;
    uint32_t count = pool->offsets ? rn_offsets_range_count(pool->offsets) : 0;
    for (uint32_t i = 0; i < count; i++) {
        rn_offset_range range = rn_offsets_range_at(pool->offsets, i);
        pool->source.release(pool->source.self, range.start, range.bytes);
    }
    rn_offsets_destroy(pool->offsets);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->growth);
    rn_free(pool->from, pool, sizeof *pool);
}

// ---- releasing ------------------------------------------------------------------------------

// Takes one free chunk, or a part of flat memory of about `most_bytes`, off the books. The lock is
// held.
static bool strike_one(rn_pool *pool, uint64_t most_bytes, rn_offset_range *out) {
    if (pool->source.part_bytes)
        return rn_offsets_remove_units(pool->offsets, pool->source.part_bytes, most_bytes, out) ==
               RN_OFFSETS_DONE;
    for (uint32_t i = rn_offsets_range_count(pool->offsets); i-- > 0;) {
        *out = rn_offsets_range_at(pool->offsets, i);
        if (out->is_free)
            return rn_offsets_remove(pool->offsets, out->start, out->bytes) == RN_OFFSETS_DONE;
    }
    return false;
}

static size_t strike_free(rn_pool *pool, uint64_t keep_bytes, rn_offset_range *out_ranges) {
    size_t count = 0;
    pthread_mutex_lock(&pool->lock);
    while (count < TRIM_BATCH && pool->reserved_bytes > keep_bytes &&
           strike_one(pool, pool->reserved_bytes - keep_bytes, &out_ranges[count]))
        pool->reserved_bytes -= out_ranges[count++].bytes;
    pthread_mutex_unlock(&pool->lock);
    return count;
}

size_t rn_pool_trim(rn_pool *pool, size_t keep_bytes) {
    rn_offset_range ranges[TRIM_BATCH]; // off the books: nobody's until released
    size_t released = 0, count;
    do {
        count = strike_free(pool, keep_bytes, ranges);
        for (size_t i = 0; i < count; i++) {
            pool->source.release(pool->source.self, ranges[i].start, ranges[i].bytes);
            released += ranges[i].bytes;
        }
    } while (count == TRIM_BATCH);
    return released;
}

// ---- growing ----------------------------------------------------------------------------------

// What chunks are multiples of.
static size_t chunk_unit(const rn_pool *pool) {
    return pool->source.part_bytes ? pool->source.part_bytes : pool->options.granule_bytes;
}

// The least chunk that serves a request, and the one that is taken where nothing forbids it.
static size_t least_chunk(const rn_pool *pool, size_t bytes, size_t align) {
    size_t granule = pool->options.granule_bytes;
    size_t need = rn_round_up(bytes, granule) + (align > granule ? align - granule : 0);
    return rn_round_up(need, chunk_unit(pool));
}

static size_t best_chunk(const rn_pool *pool, size_t least) {
    size_t chunk = rn_round_up(pool->options.chunk_bytes, chunk_unit(pool));
    if (least <= chunk) return chunk;
    bool rounds = pool->source.part_bytes == 0 && chunk >= LARGE_ROUND;
    return rounds ? rn_round_up(least, LARGE_ROUND) : least;
}

// Gives back what would make a chunk of `bytes` a new peak. Returns how much the cap then allows.
static size_t make_way(rn_pool *pool, size_t bytes) {
    pthread_mutex_lock(&pool->lock);
    uint64_t peak = pool->peak_reserved_bytes;
    pthread_mutex_unlock(&pool->lock);
    rn_pool_trim(pool, peak > bytes ? peak - bytes : 0);
    if (pool->options.cap_bytes == 0) return SIZE_MAX;
    pthread_mutex_lock(&pool->lock);
    uint64_t left = pool->options.cap_bytes - pool->reserved_bytes;
    pthread_mutex_unlock(&pool->lock);
    return rn_round_down(left, chunk_unit(pool));
}

static rn_status refuse(rn_pool *pool, size_t bytes) {
    rn_pool_stats stats;
    rn_pool_get_stats(pool, &stats);
    return rn_hint(
        rn_fail(RN_OVER_BUDGET, "%s more does not fit a pool capped at %s (%s reserved, %s in use)",
                rn_size_format(bytes).text, rn_size_format(pool->options.cap_bytes).text,
                rn_size_format(stats.reserved_bytes).text, rn_size_format(stats.active_bytes).text),
        "free some blocks, or raise the cap");
}

// A chunk of `best` bytes, or what the cap leaves, but no less than `least`. The growth lock is
// held, `lock` is not.
static rn_status take_chunk(rn_pool *pool, size_t least, size_t best, rn_offset_range *out_chunk) {
    rn_pool_source *source = &pool->source;
    size_t left = make_way(pool, best);
    if (least > left) return refuse(pool, least);
    out_chunk->bytes = rn_min_u64(best, left);
    rn_status status = source->grow(source->self, out_chunk->bytes, &out_chunk->start);
    if (status == RN_OK) return RN_OK;
    rn_error_info error = *rn_last_error();
    if (rn_pool_trim(pool, 0) == 0 && out_chunk->bytes == least) {
        (void)rn_error_restore(&error); // trimming may have had failures of its own
        return status;
    }
    out_chunk->bytes = least;
    return source->grow(source->self, least, &out_chunk->start);
}

// ---- the two verbs ----------------------------------------------------------------------------

static rn_offsets_result try_alloc(rn_pool *pool, size_t bytes, size_t align,
                                   rn_offset_block *out) {
    pthread_mutex_lock(&pool->lock);
    rn_offsets_result result = rn_offsets_alloc(pool->offsets, bytes, align, out);
    pool->alloc_count += result == RN_OFFSETS_DONE;
    pthread_mutex_unlock(&pool->lock);
    return result;
}

static rn_status add_chunk(rn_pool *pool, rn_offset_range chunk) {
    RN_TRY(rn_offsets_add(pool->offsets, chunk.start, chunk.bytes, pool->source.part_bytes != 0));
    pool->reserved_bytes += chunk.bytes;
    pool->peak_reserved_bytes = rn_max_u64(pool->peak_reserved_bytes, pool->reserved_bytes);
    return RN_OK;
}

// Adds the chunk and serves the request from it before anybody else can.
static rn_status alloc_from_chunk(rn_pool *pool, rn_offset_range chunk, size_t bytes, size_t align,
                                  rn_offset_block *out) {
    pthread_mutex_lock(&pool->lock);
    rn_status status = add_chunk(pool, chunk);
    bool added = status == RN_OK;
    if (added && rn_offsets_alloc(pool->offsets, bytes, align, out) != RN_OFFSETS_DONE)
        status = rn_last_error()->status; // out of nodes
    pool->alloc_count += status == RN_OK;
    pthread_mutex_unlock(&pool->lock);
    if (!added) pool->source.release(pool->source.self, chunk.start, chunk.bytes);
    return status;
}

static rn_status alloc_growing(rn_pool *pool, size_t bytes, size_t align, rn_offset_block *out) {
    pthread_mutex_lock(&pool->growth);
    rn_offsets_result result = try_alloc(pool, bytes, align, out); // it may have grown meanwhile
    rn_status status = result == RN_OFFSETS_NO_NODE ? rn_last_error()->status : RN_OK;
    if (result == RN_OFFSETS_NO_ROOM) {
        size_t least = least_chunk(pool, bytes, align);
        rn_offset_range chunk;
        status = take_chunk(pool, least, best_chunk(pool, least), &chunk);
        if (status == RN_OK) status = alloc_from_chunk(pool, chunk, bytes, align, out);
    }
    pthread_mutex_unlock(&pool->growth);
    return status;
}

// Told after it is taken and before it is released: no listener sees an address twice.
static void tell(const rn_pool *pool, rn_event_kind kind, rn_pool_block block) {
    const rn_account *account = pool->source.account;
    if (!account || !rn_ledger_is_heard()) return;
    rn_ledger_emit(&(rn_event){.kind = kind,
                               .account = *account,
                               .address = (const void *)(uintptr_t)block.address,
                               .bytes = block.bytes});
}

rn_status rn_pool_alloc(rn_pool *pool, size_t bytes, size_t align, rn_pool_block *out_block) {
    *out_block = (rn_pool_block){.node = UINT32_MAX};
    if (bytes == 0) return RN_OK;
    if (align == 0) align = 1;
    if (!is_power_of_two(align))
        return rn_fail(RN_INVALID, "an alignment of %zu bytes is not a power of two", align);
    if (bytes > MAX_BLOCK || align > MAX_BLOCK)
        return rn_fail(RN_NO_MEMORY, "%zu bytes at a multiple of %zu is no block", bytes, align);
    rn_offset_block where;
    rn_offsets_result result = try_alloc(pool, bytes, align, &where);
    if (result == RN_OFFSETS_NO_NODE) return rn_last_error()->status;
    if (result == RN_OFFSETS_NO_ROOM) RN_TRY(alloc_growing(pool, bytes, align, &where));
    *out_block = (rn_pool_block){where.offset, bytes, where.node};
    tell(pool, RN_EVENT_PART_CHARGE, *out_block);
    return RN_OK;
}

void rn_pool_free(rn_pool *pool, rn_pool_block block) {
    if (block.bytes == 0) return;
    tell(pool, RN_EVENT_PART_RELEASE, block);
    pthread_mutex_lock(&pool->lock);
    rn_offsets_free(pool->offsets, (rn_offset_block){block.address, block.node});
    pthread_mutex_unlock(&pool->lock);
}

// ---- looking ----------------------------------------------------------------------------------

void rn_pool_get_stats(rn_pool *pool, rn_pool_stats *out_stats) {
    rn_offsets_stats inner;
    pthread_mutex_lock(&pool->lock);
    rn_offsets_get_stats(pool->offsets, &inner);
    *out_stats = (rn_pool_stats){
        .allocated_bytes = inner.allocated_bytes,
        .active_bytes = inner.active_bytes,
        .reserved_bytes = pool->reserved_bytes,
        .peak_bytes = inner.peak_bytes,
        .peak_reserved_bytes = pool->peak_reserved_bytes,
        .alloc_count = pool->alloc_count,
        .block_count = inner.block_count,
        .fragmentation = inner.fragmentation,
    };
    pthread_mutex_unlock(&pool->lock);
}

bool rn_pool_is_valid(rn_pool *pool) {
    rn_offsets_stats inner;
    pthread_mutex_lock(&pool->lock);
    rn_offsets_get_stats(pool->offsets, &inner);
    uint64_t reserved = pool->reserved_bytes;
    bool valid = rn_offsets_is_valid(pool->offsets) && reserved == inner.capacity_bytes &&
                 reserved % chunk_unit(pool) == 0 && reserved <= pool->peak_reserved_bytes &&
                 (pool->options.cap_bytes == 0 || reserved <= pool->options.cap_bytes);
    pthread_mutex_unlock(&pool->lock);
    return valid;
}

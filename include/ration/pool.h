// pool.h — memory for tensors: takes large chunks from a source and hands out parts of them.
//
//     rn_pool *pool;
//     rn_pool_block scores;
//     RN_TRY(rn_pool_create(rn_pool_source_host(NULL, false), NULL, &pool));
//     RN_TRY(rn_pool_alloc(pool, 12 * 1024 * 1024, 64, &scores));
//     float *data = (float *)(uintptr_t)scores.address;
//     ...
//     rn_pool_free(pool, scores);
//     rn_pool_trim(pool, 0); // what is free goes back to the system now
//     rn_pool_destroy(pool);
//
// Nothing is written into the memory itself, so it may be a GPU's. Freed blocks stay in the pool,
// ready for the next tensor, until they are trimmed. A request that does not fit makes the pool
// take another chunk; but before its reserved bytes reach a new peak, it gives free memory back
// first. So it never holds more than it once had to.
//
// Threads: every call may be made from any thread; destroy when no other call is under way. The
// lock is held for the bookkeeping only, never while the source grows or releases; so a source may
// itself call rn_pool_trim, as a budget does that asks its owners to release.
#ifndef RATION_POOL_H
#define RATION_POOL_H

#include <ration/status.h>

RN_BEGIN_DECLS

typedef struct rn_pool rn_pool;
struct rn_account; // memory.h

// Where chunks come from: the system, a CUDA device, a test. Both functions may be called by
// several threads at once and must not call rn_pool_alloc of the same pool.
typedef struct rn_pool_source {
    void *self; // must outlive the pool
    // `bytes` more, at an address that is a multiple of the pool's granule. A failure has an error.
    rn_status (*grow)(void *self, size_t bytes, uint64_t *out_address);
    // What `grow` gave: see part_bytes.
    void (*release)(void *self, uint64_t address, size_t bytes);
    // 0: chunks are separate (cudaMalloc): no block lies across two of them, and they are released
    // whole. Otherwise the source is one flat memory (host, mapped CUDA ranges): chunks are
    // multiples of part_bytes, they join where they touch, and `release` may be given any parts of
    // them that are multiples of it. Flat memory fragments less. A power of two, at least the
    // granule.
    size_t part_bytes;
    // Whose memory it is: the ledger's listener hears of every block that the pool hands out of it
    // (RN_EVENT_PART_CHARGE). NULL: it does not. Must outlive the pool.
    const struct rn_account *account;
} rn_pool_source;

// Zero means the default.
typedef struct rn_pool_options {
    size_t chunk_bytes;   // taken from the source at a time; 64 MiB, of flat memory 8 MiB
    size_t granule_bytes; // sizes and addresses are multiples of it: a power of two; 256
    size_t cap_bytes;     // reserved_bytes never exceeds it; 0 = none
    uint64_t reserved[4]; // zero
} rn_pool_options;

// A piece of memory; a value. Give it back as it is.
typedef struct rn_pool_block {
    uint64_t address; // of the device or the host
    size_t bytes;     // as asked
    uint32_t node;    // the pool's
} rn_pool_block;

typedef struct rn_pool_stats {
    uint64_t allocated_bytes;     // as asked, live
    uint64_t active_bytes;        // the same, rounded to granules
    uint64_t reserved_bytes;      // held from the source
    uint64_t peak_bytes;          // the largest allocated_bytes so far
    uint64_t peak_reserved_bytes; // the largest reserved_bytes so far
    uint64_t alloc_count;         // allocations so far
    uint64_t block_count;         // live now
    double fragmentation;         // of the free bytes, the share outside the largest free block
} rn_pool_stats;

// Takes nothing from the source yet. `options` may be NULL. RN_INVALID, RN_NO_MEMORY.
RN_API RN_MUST_USE rn_status rn_pool_create(rn_pool_source source, const rn_pool_options *options,
                                            rn_pool **out_pool);
// NULL-safe. Releases every chunk; live blocks die with it.
RN_API void rn_pool_destroy(rn_pool *pool);

// Uninitialised memory at a multiple of `align` (a power of two; 0 = the granule). bytes == 0 gives
// an empty block. RN_OVER_BUDGET when cap_bytes stops it, otherwise what the source said.
RN_API RN_MUST_USE rn_status rn_pool_alloc(rn_pool *pool, size_t bytes, size_t align,
                                           rn_pool_block *out_block);
RN_API void rn_pool_free(rn_pool *pool, rn_pool_block block);

// Releases what is free (whole chunks, or parts of flat memory) until reserved_bytes <= keep_bytes
// or nothing more can go. Returns the bytes released.
RN_API size_t rn_pool_trim(rn_pool *pool, size_t keep_bytes);

RN_API void rn_pool_get_stats(rn_pool *pool, rn_pool_stats *out_stats);
// Walks every invariant; for tests and debugging.
RN_API bool rn_pool_is_valid(rn_pool *pool);

// Flat host memory, mapped from the system. `account` is charged for it (and its budget asked
// first) in parts of 256 KiB; it must outlive the pool, and NULL charges nobody. With huge_pages
// the system is asked for 2 MiB pages: fewer page faults, coarser steps.
RN_API rn_pool_source rn_pool_source_host(const struct rn_account *account, bool huge_pages);

RN_END_DECLS

#endif

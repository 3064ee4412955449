// hooks.h — memory that other code allocates: PyTorch's tensors, or all that a program asks of the
// C library. Every block is an exact event of the recording (profile.h) and is counted here, under
// a limit if one is set.
//
//     RN_TRY(rn_hooks_install("libc10.so")); // PyTorch's CPU allocator, from now on
//     rn_hooks_set_limit((uint64_t)2 << 30); // beyond it torch raises its error
//     ...
//     rn_hooks_stats stats;
//     rn_hooks_get_stats(&stats);
//     rn_hooks_remove();
//
// The blocks are on a device of their own, "cpu": "host" is what ration itself holds. Bytes are the
// bytes that were asked for. Everything here may be called from any thread.
//
// A program that is not Python and does not call this: libration_preload.so in LD_PRELOAD does it
// for the whole process, from its first instruction to its last. It reads the variables below.
#ifndef RATION_HOOKS_H
#define RATION_HOOKS_H

#include <ration/profile.h>

RN_BEGIN_DECLS

// ---- what the preload library reads -----------------------------------------------------------

// The trace file. Not set: nothing is recorded.
#define RN_PRELOAD_FILE "RATION_PROFILE_FILE"
// "tensors" (the default): blocks of at least 64 KiB, and those asked for at a boundary of 64 bytes
// or more, as PyTorch does. "all": every block, and mappings.
#define RN_PRELOAD_ALLOCATIONS "RATION_PROFILE_ALLOCATIONS"
// "false": without the call stacks of blocks.
#define RN_PRELOAD_STACKS "RATION_PROFILE_STACKS"
// "2GiB": what is recorded may not grow above it; an allocation beyond fails with ENOMEM.
#define RN_PRELOAD_LIMIT "RATION_MEMORY_LIMIT"
// "1": child processes write files of their own, FILE with ".PID" before its suffix. Otherwise they
// record nothing. A program that replaces this one (exec) takes the file over.
#define RN_PRELOAD_CHILDREN "RATION_PROFILE_CHILDREN"
// Seconds between periodic snapshots; 5.
#define RN_PRELOAD_INTERVAL "RATION_PROFILE_INTERVAL"
// Bytes of the file ("4GiB"); 1 GiB.
#define RN_PRELOAD_FILE_LIMIT "RATION_PROFILE_LIMIT"
// Set by the library itself: the process that FILE belongs to.
#define RN_PRELOAD_OWNER "RATION_PROFILE_OWNER"

// ---- in this process ---------------------------------------------------------------------------

// Which blocks are recorded: those of at least min_bytes, or asked for at a boundary of at least
// min_align. {0, 0}: all.
typedef struct rn_hooks_filter {
    uint64_t min_bytes, min_align;
} rn_hooks_filter;
#define RN_HOOKS_TENSORS ((rn_hooks_filter){64 << 10, 64})
RN_API void rn_hooks_set_filter(rn_hooks_filter filter); // at first RN_HOOKS_TENSORS
// Whether the recording has the call stack of each block: Python's frames, where the thread runs
// Python, and C's. At first not: a block then takes some microseconds more (docs/profiler.md).
RN_API void rn_hooks_set_stacks(bool on);

// Redirects the calls of malloc, calloc, realloc, reallocarray, posix_memalign, aligned_alloc,
// memalign and free in the loaded libraries whose file name matches `library` (`*` and `?`; NULL:
// "libc10.so*"), by their global offset tables. Other libraries are not touched; one that is loaded
// later is not, either, until this is called again. Blocks that were allocated before are not
// known, and their release is ignored. A program at a fixed address (not PIE) is left alone: its
// stubs are what everybody calls. RN_UNSUPPORTED: no such library is loaded, or it calls none
// of them (PyTorch on 64-bit Arm has an allocator of its own). RN_OK where the preload library sees
// everything already.
RN_API RN_MUST_USE rn_status rn_hooks_install(const char *library);
// Puts back what was there. As releases are not seen any more, what is live is forgotten: now_bytes
// is 0; peak and totals stay.
RN_API void rn_hooks_remove(void);

typedef struct rn_hooks_stats {
    uint64_t now_bytes, peak_bytes;    // exact, also between two looks
    uint64_t now_count;                // live blocks
    uint64_t total_bytes, total_count; // ever allocated
    uint64_t refused_count;            // beyond the limit
    uint64_t missed_count;             // not recorded, as there was no memory to remember them
    uint64_t limit_bytes;              // RN_NO_LIMIT: none
    uint64_t slot_count;               // calls redirected by rn_hooks_install
    bool preloaded;                    // libration_preload.so sees everything in this process
} rn_hooks_stats;
RN_API void rn_hooks_get_stats(rn_hooks_stats *out);
// The peak begins anew from what is live now.
RN_API void rn_hooks_reset_peak(void);
// An allocation that would make now_bytes larger than this fails with ENOMEM. RN_NO_LIMIT: none.
RN_API void rn_hooks_set_limit(uint64_t bytes);

// What the calling thread allocates from now on serves this; at first RN_PURPOSE_OTHER. Returns
// what it was.
RN_API rn_purpose rn_hooks_set_purpose(rn_purpose purpose);
// rn_profile_begin and rn_profile_end for an operation whose memory serves `purpose`; they nest.
// RN_PURPOSE_COUNT: as around it.
RN_API void rn_hooks_begin(uint32_t name, rn_purpose purpose);
RN_API void rn_hooks_end(void);

// What a live block is: its name (rn_profile_label) and what it serves. The recording shows it so
// from the block's beginning. RN_PURPOSE_COUNT: what it served before. False where the address is
// not that of a block known here.
RN_API bool rn_hooks_label(uint64_t address, rn_purpose purpose, uint32_t name);
// The same for many; names may be NULL. Returns how many are known.
RN_API size_t rn_hooks_label_all(const uint64_t *addresses, const uint32_t *names, size_t count,
                                 rn_purpose purpose);

// A block that was there before: counted and recorded from now on, unless it is known already (then
// false).
RN_API bool rn_hooks_adopt(uint64_t address, uint64_t bytes, rn_purpose purpose);
// For a recording that begins after the hooks: tells it of every block that is live. Blocks that
// other threads allocate meanwhile may be told twice.
RN_API void rn_hooks_replay(void);

// ---- for a library that takes the place of malloc in the whole process --------------------------

typedef struct rn_hooks_calls {
    void *(*malloc)(size_t bytes);
    void *(*calloc)(size_t count, size_t bytes);
    void *(*realloc)(void *block, size_t bytes);
    int (*posix_memalign)(void **out, size_t align, size_t bytes);
    void *(*aligned_alloc)(size_t align, size_t bytes);
    void *(*memalign)(size_t align, size_t bytes);
    void (*free)(void *block);
    void *(*mmap)(void *address, size_t bytes, int protection, int flags, int file, long offset);
    int (*munmap)(void *address, size_t bytes);
} rn_hooks_calls;

// Functions that count, record and limit, and call `real` for the memory. Only anonymous mappings
// that can be read are blocks; one whose end is unmapped first stays as it was. From now on
// rn_hooks_install does nothing.
RN_API const rn_hooks_calls *rn_hooks_wrap(const rn_hooks_calls *real);

RN_END_DECLS

#endif

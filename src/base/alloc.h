// alloc.h — the only door to the system's memory for the library's own structures.
//
// An rn_allocator is a handle {self, functions}. base/ provides the plain one; memory/account.h
// provides one that charges the ledger and asks the budget first. Frees are sized: whoever holds a
// block knows its size, so no block carries a header and the ledger's numbers are the bytes that
// were asked for.
#ifndef RN_BASE_ALLOC_H
#define RN_BASE_ALLOC_H

#include <ration/status.h>

typedef struct rn_allocator {
    void *self;
    // NULL means refused, and the thread's error says why. bytes > 0; align is a power of two.
    // Blocks of RN_MAP_THRESHOLD bytes and more are zero: rn_alloc_zeroed relies on it.
    void *(*alloc)(void *self, size_t bytes, size_t align);
    void (*free)(void *self, void *block, size_t bytes);
} rn_allocator;

// Blocks of this size and above are mapped, so that freeing them returns them to the system at
// once.
#define RN_MAP_THRESHOLD ((size_t)256 << 10)
#define RN_PAGE_BYTES    ((size_t)4096)

// Memory straight from the system, charged to nobody.
extern const rn_allocator rn_system_allocator;

// Uninitialised memory, aligned to 64 bytes. bytes == 0 gives NULL and RN_OK.
RN_MUST_USE rn_status rn_alloc(const rn_allocator *from, size_t bytes, void **out);
// The same, aligned as asked (a power of two).
RN_MUST_USE rn_status rn_alloc_aligned(const rn_allocator *from, size_t bytes, size_t align,
                                       void **out);
// count * item_bytes of zeros; refuses when the product overflows.
RN_MUST_USE rn_status rn_alloc_zeroed(const rn_allocator *from, size_t count, size_t item_bytes,
                                      void **out);
// NULL-safe. `bytes` must be what was asked for.
void rn_free(const rn_allocator *from, void *block, size_t bytes);

// Gives freed blocks that the C library keeps for later back to the system: before memory is taken
// to the last byte of a budget.
void rn_alloc_trim(void);

#endif

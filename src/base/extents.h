// extents.h — cuts an ordered list of file ranges into requests of a bounded size. Pure arithmetic.
#ifndef RN_BASE_EXTENTS_H
#define RN_BASE_EXTENTS_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

typedef struct rn_extent {
    uint32_t file; // index into the reader's files
    uint64_t offset;
    uint64_t bytes;       // may be 0
    uint64_t grain_bytes; // where it is divided, then at a multiple of this, if a request holds so
                          // much: rows that are packed together arrive together; 0: anywhere
} rn_extent;

// Two extents of a file share a request when at most this many unwanted bytes lie between them.
// Measured: a request of its own takes as long as reading some 64 KiB more (13 to 18 us).
#define RN_EXTENT_GAP_BYTES ((uint64_t)64 << 10)

// A list. Every extent ends inside its file: offset + bytes does not overflow.
typedef struct rn_extents {
    const rn_extent *items; // (count)
    uint32_t count;
} rn_extents;

// A place in the list: `passed_bytes` of items[extent] lie behind it. Never rests at the end of an
// extent, so that extents of 0 bytes are stepped over; at the end of the list extent == count.
typedef struct rn_extent_cursor {
    uint32_t extent;
    uint64_t passed_bytes;
} rn_extent_cursor;

// One range to read: from `offset`, a multiple of the alignment, at least `need_bytes` (> 0, at
// most the limit; rounded up to the alignment it is still at most the limit).
typedef struct rn_extent_request {
    uint32_t file;
    uint64_t offset;
    size_t need_bytes;
} rn_extent_request;

// The list's first place, and the place `bytes` further on, within or at the end of the same
// extent.
rn_extent_cursor rn_extents_begin(rn_extents list);
rn_extent_cursor rn_extents_advance(rn_extents list, rn_extent_cursor at, uint64_t bytes);
static inline bool rn_extent_cursor_equal(rn_extent_cursor a, rn_extent_cursor b) {
    return a.extent == b.extent && a.passed_bytes == b.passed_bytes;
}

// The next request at *cursor, which must not be the end; moves the cursor past what it covers.
// align_bytes[file] is a power of two that divides limit_bytes. An extent that fits a request whole
// is never divided; one that does not fit is divided at multiples of its grain, else of the
// alignment.
rn_extent_request rn_extents_take(rn_extents list, const uint64_t *align_bytes, size_t limit_bytes,
                                  rn_extent_cursor *cursor);

#endif

// offsets.h — which sub-ranges of [0, capacity) are taken: an allocator that owns no memory.
//
// Why. Device memory cannot hold an allocator's headers, a budget must know before it touches, and
// a test must run without a GPU. So this is pure bookkeeping: numbers in, numbers out. What the
// numbers mean (bytes of a CUDA chunk, of a mapping, of a file) is the caller's affair; the pool
// uses addresses.
//
// How it works. Two-level segregated fit (TLSF). Sizes are counted in granules. Free blocks hang in
// lists by size class: a power of two, cut in 32 equal steps. A bitmap of powers and one of steps
// for each power find the smallest class that surely fits, in two bit scans. What is left over is
// cut off and goes back into its list; a freed block merges with free neighbours at once. Nodes
// live in an array beside the range; the handle carries the index, so freeing searches nothing.
//
//     offset  0        4 KiB         12 KiB    16 KiB              48 KiB = capacity
//             |==live==|....free.....|==live==|........free........|
//       edge<->  #1   <->    #4     <->  #2   <->       #3        <-> edge      neighbours
//                              |                          |
//     powers  ...0 1 0 1 0...  |     steps of 32 KiB: ... 1 0 0 ...             bitmaps
//                  |   |       |
//                  |   +-------|--> class [32 KiB, 33 KiB) : #3
//                  +-----------+--> class [8 KiB, 8.25 KiB): #4
//
// A request's own class may hold blocks a little smaller than it, so a few of them are looked at
// before the next class: a tensor that comes back in the same size finds the place it left. Before
// the answer "no room", the rest of that class is walked: growing costs more than a walk.
//
// The simple use is one range that grows and shrinks at its end (grow, trim). A pool whose chunks
// lie anywhere uses add and remove: a set of disjoint ranges, among which every allocation stays
// O(1).
//
// Invariants (rn_offsets_is_valid walks them all): blocks tile their range without gaps; no two
// neighbours are both free; a bit is set exactly where a list is not empty; and
//     capacity_bytes == active_bytes + free_bytes,  allocated_bytes <= active_bytes.
//
// Threads: none of it is locked; the owner does that.
#ifndef RN_MEMORY_OFFSETS_H
#define RN_MEMORY_OFFSETS_H

#include "base/alloc.h"

typedef struct rn_offsets rn_offsets;

// "Does not fit" is an answer, not an error: no error is built for it.
typedef enum rn_offsets_result {
    RN_OFFSETS_DONE = 0,
    RN_OFFSETS_NO_ROOM, // nothing free is large enough
    RN_OFFSETS_NO_NODE, // bookkeeping could not grow; the thread's error says why. Nothing changed
} rn_offsets_result;

// A live block. Give back exactly what was given out.
typedef struct rn_offset_block {
    uint64_t offset;
    uint32_t node;
} rn_offset_block;

typedef struct rn_offset_range {
    uint64_t start, bytes;
    bool is_free; // wholly
} rn_offset_range;

typedef struct rn_offsets_stats {
    uint64_t capacity_bytes;
    uint64_t allocated_bytes; // as asked, live
    uint64_t active_bytes;    // the same, rounded to granules
    uint64_t peak_bytes;      // the largest allocated_bytes so far
    uint64_t free_bytes;
    uint64_t largest_free_bytes; // the largest request that would fit now (granule alignment)
    uint64_t block_count;        // live
    double fragmentation;        // 1 - largest_free / free; 0 where nothing is free
} rn_offsets_stats;

#define RN_OFFSETS_MAX_GRANULE ((uint64_t)1 << 30)
#define RN_OFFSETS_MAX_BYTES   ((uint64_t)1 << 55) // of capacity, and so of a block

// A range [0, capacity_bytes), all free; capacity 0 is an empty one to grow or add to.
// granule_bytes: a power of two up to RN_OFFSETS_MAX_GRANULE; capacity is rounded down to it.
// `from` holds the nodes and must outlive the object. RN_INVALID, RN_NO_MEMORY or the allocator's
// refusal.
RN_MUST_USE rn_status rn_offsets_create(const rn_allocator *from, uint64_t capacity_bytes,
                                        uint64_t granule_bytes, rn_offsets **out_offsets);
// NULL-safe. Live blocks die with it.
void rn_offsets_destroy(rn_offsets *offsets);

// Takes bytes > 0 at a multiple of `align` (a power of two; up to the granule it is free of cost).
RN_MUST_USE rn_offsets_result rn_offsets_alloc(rn_offsets *offsets, uint64_t bytes, uint64_t align,
                                               rn_offset_block *out_block);
void rn_offsets_free(rn_offsets *offsets, rn_offset_block block);

// Appends `bytes` (rounded down to granules) to the end of the last range.
RN_MUST_USE rn_status rn_offsets_grow(rn_offsets *offsets, uint64_t bytes);
// Cuts what is free off the end of the last range, down to `keep_bytes` of capacity at the least.
// Returns the bytes cut.
uint64_t rn_offsets_trim(rn_offsets *offsets, uint64_t keep_bytes);

// Adds the free range [start, start + bytes), both multiples of the granule, disjoint from the
// others. `joins`: where it touches another range the two become one, and a block may lie across
// the seam.
RN_MUST_USE rn_status rn_offsets_add(rn_offsets *offsets, uint64_t start, uint64_t bytes,
                                     bool joins);
// Takes [start, start + bytes) out again. RN_OFFSETS_NO_ROOM: some of it is in use, nothing
// changed.
RN_MUST_USE rn_offsets_result rn_offsets_remove(rn_offsets *offsets, uint64_t start,
                                                uint64_t bytes);

// Takes out the largest free run of whole units, at most `most_bytes` of it rounded up to units.
// Units (a power of two of granules) are counted from the start of their range. RN_OFFSETS_NO_ROOM:
// no free block holds a whole unit.
RN_MUST_USE rn_offsets_result rn_offsets_remove_units(rn_offsets *offsets, uint64_t unit_bytes,
                                                      uint64_t most_bytes,
                                                      rn_offset_range *out_range);

// The ranges, by start. Joined ones count as one.
uint32_t rn_offsets_range_count(const rn_offsets *offsets);
rn_offset_range rn_offsets_range_at(const rn_offsets *offsets, uint32_t index);

void rn_offsets_get_stats(const rn_offsets *offsets, rn_offsets_stats *out_stats);
// Walks every block, list and bit. For tests and debugging: O(blocks).
bool rn_offsets_is_valid(const rn_offsets *offsets);

#endif

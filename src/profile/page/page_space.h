// page_space.h — addresses without the gaps between them: where allocations are drawn.
//
//     addresses  ..[aaaaa]....................[bbb][cc]......[dd]
//     places       [aaaaa][bbb][cc][dd]
//
// A *piece* is a stretch of a device's addresses that allocations cover, apart from gaps of less
// than a page.
#ifndef RN_PROFILE_PAGE_SPACE_H
#define RN_PROFILE_PAGE_SPACE_H

#include "profile/timeline.h"

typedef struct rn_page_piece {
    uint64_t address, bytes;
    uint64_t place; // of its first byte, from 1; each device counts for itself
    uint8_t device;
} rn_page_piece;

typedef struct rn_page_space {
    const rn_allocator *allocator;
    uint64_t *places; // (alloc_count): of each allocation; 0: it has no (true) address, or no bytes
    rn_page_piece *pieces;
    size_t alloc_count, piece_count, piece_capacity;
} rn_page_space;

// Zero-initialised before; closed after, also when it fails.
RN_MUST_USE rn_status rn_page_space_open(rn_page_space *space, const rn_timeline *t);
void rn_page_space_close(rn_page_space *space);

#endif
